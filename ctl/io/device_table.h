/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_DEVICE_H
#define GM_CTL_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "ctl/io/table.h"
#include "proto/gpumem.pb-c.h"

/* Devices as status and devices show them: one table, with every key that programs get. */

struct gm_table *gm_device_table_new(void);
void gm_device_table_add(struct gm_table *table, const Gm__Wire__Device *device);

const char *gm_device_level(uint32_t level); /* "low" … "critical" */
enum gm_mark gm_device_level_mark(uint32_t level);
const char *gm_device_transport(Gm__Wire__Transport transport); /* "auto", "fd", "ipc" */

#define GM_DEVICE_UUID_TEXT 41
/* As CUDA_VISIBLE_DEVICES and nvidia-smi have it, with GPU- or MIG- before it, where the device is
 * one; "" if there is none. */
const char *gm_device_uuid(const Gm__Wire__Device *device, char text[GM_DEVICE_UUID_TEXT]);

#endif
