/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_CONTEXTS_H
#define GM_PRELOAD_CONTEXTS_H

#include "preload/driver/preload_driver.h"

/*
 * Which context the memory belongs to that is allocated while another one is current. A green context is a part of its
 * device's primary context: memory that is allocated in it stays when it ends, and work of all parts may use it. So
 * that memory is the primary context's, and who waits for that one waits for its green contexts as well.
 *
 * Thread-safe.
 */

/* The program has got the context of a green one. */
void gm_driver_contexts_add_green(gm_cu_ctx ctx);
/* That has ended. */
void gm_driver_contexts_remove_green(gm_cu_ctx ctx);
/* The context that has the memory: ctx itself, or the primary one of its device. */
gm_cu_ctx gm_driver_contexts_owner(
	const struct gm_driver *driver, gm_cu_ctx ctx, gm_cu_device device);
/* The primary context of a device. NULL: it is not active. */
gm_cu_ctx gm_driver_contexts_primary(const struct gm_driver *driver, gm_cu_device device);

#endif
