/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_DEVICE_NAME_H
#define GM_COMMON_DEVICE_NAME_H

#include <stdbool.h>
#include <stdint.h>

#include "common/limits.h"

/*
 * How people name a device, in the configuration and on the command line: by its number; by its
 * UUID, as nvidia-smi and CUDA_VISIBLE_DEVICES have it (GPU-…, MIG-…, or without that); by its PCI
 * address, as lspci, nvidia-smi or the driver write it (a0:00.0, 0000:A0:00.0, 00000000:A0:00.0).
 * A number depends on which GPUs the daemon sees, and in which order; the others do not.
 */

#define GM_DEVICE_NAME_TEXT 48 /* a name is shorter */

enum gm_device_name_kind { GM_DEVICE_NUMBER, GM_DEVICE_UUID, GM_DEVICE_PCI };

struct gm_device_name {
	enum gm_device_name_kind kind;
	uint32_t number; /* below GM_LIMIT_DEVICES */
	uint8_t uuid[GM_UUID_BYTES];
	uint32_t pci[4]; /* domain, bus, device, function */
};

/* 0; -EINVAL: no name; -ERANGE: a number that no device can have. */
int gm_device_name_parse(const char *text, struct gm_device_name *ret);
/* Whether both say the same in the same way. */
bool gm_device_name_same(const struct gm_device_name *a, const struct gm_device_name *b);
/* Whether it means the device with this number, UUID (NULL: it has none) and PCI address ("": it
 * has none). */
bool gm_device_name_means(const struct gm_device_name *name, uint32_t number,
	const uint8_t uuid[GM_UUID_BYTES], const char *pci);

#endif
