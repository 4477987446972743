/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_IO_DEVICE_TABLE_H
#define GM_CTL_IO_DEVICE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "common/bounds.h"
#include "ctl/io/table.h"
#include "ctl/io/writer.h"
#include "proto/gpumem.pb-c.h"

/* Devices as rows of one table, which status and devices share, and the words for their values. */

struct gm_table *gm_device_table_new(void);
void gm_device_table_add(struct gm_table *table, const Gm__Wire__Device *device);

const char *gm_device_level(uint32_t level); /* "low" … "critical" */
enum gm_mark gm_device_level_mark(uint32_t level);
const char *gm_device_transport(Gm__Wire__Transport transport); /* "auto", "fd", "ipc" */

#define GM_DEVICE_UUID_TEXT 41
/*
 * The UUID of a GPU as nvidia-smi and CUDA_VISIBLE_DEVICES write it, with GPU- or MIG- before it.
 * Another device's UUID has no prefix. "" if the device has none.
 */
const char *gm_device_uuid(const Gm__Wire__Device *device, char text[GM_DEVICE_UUID_TEXT]);

/* The devices that are drained, for notes below a table. */
struct gm_device_drains {
	size_t n;
	struct gm_device_drain {
		uint32_t number, uid;
		uint64_t age_ms;
	} items[GM_BOUND_DEVICES];
};

/* Does nothing if the device is not drained. */
void gm_device_drains_add(struct gm_device_drains *drains, const Gm__Wire__Device *device);
/* Notes that devices are drained, by whom, and how to end that. The caller begins the notes. */
void gm_device_drains_note(const struct gm_device_drains *drains, struct gm_writer *writer);

#endif
