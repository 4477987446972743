/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TEXT_DEVICE_NAME_H
#define GM_TEXT_DEVICE_NAME_H

#include <stdbool.h>
#include <stdint.h>

#include "common/bounds.h"

/*
 * How people name a device, in the configuration and on the command line:
 *   - by its number, which depends on which GPUs the daemon sees, and in which order;
 *   - by its UUID, as nvidia-smi and CUDA_VISIBLE_DEVICES write it (GPU-…, MIG-…), also without
 *     that prefix;
 *   - by its PCI address, as lspci, nvidia-smi or the driver write it (a0:00.0, 0000:A0:00.0,
 *     00000000:A0:00.0);
 *   - pinned host memory by "pinned", because its number is that of the GPU after the last.
 */

#define GM_DEVICE_NAME_TEXT 48 /* every name is shorter */

#define GM_DEVICE_PINNED_NAME "pinned"

enum gm_device_name_kind { GM_DEVICE_NUMBER, GM_DEVICE_UUID, GM_DEVICE_PCI, GM_DEVICE_PINNED };

struct gm_device_name {
	enum gm_device_name_kind kind;
	uint32_t number; /* below GM_BOUND_DEVICES */
	uint8_t uuid[GM_UUID_BYTES];
	uint32_t pci[4]; /* domain, bus, device, function */
};

/* Returns -EINVAL if the text is not a device name, and -ERANGE for a number that no device can
 * have. */
int gm_device_name_parse(const char *text, struct gm_device_name *ret);
/* Whether both names are of the same kind and have the same value. */
bool gm_device_name_same(const struct gm_device_name *a, const struct gm_device_name *b);
/* Whether the name means the device with this number, UUID (NULL if it has none) and PCI address
 * ("" if it has none), or pinned host memory. */
bool gm_device_name_means(const struct gm_device_name *name, uint32_t number,
	const uint8_t uuid[GM_UUID_BYTES], const char *pci, bool pinned);

#define GM_DEVICE_NAME_BEFORE 24
/*
 * What to write before a sentence of the daemon, so that it says which device it is about: "device 3: ",
 * or "" if the sentence begins with the device. Returns text.
 */
const char *gm_device_name_before(
	uint32_t number, const char *sentence, char text[GM_DEVICE_NAME_BEFORE]);

#endif
