/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_CHARGES_H
#define GM_PRELOAD_CHARGES_H

#include <stdbool.h>
#include <stdint.h>

#include "preload/driver/preload_driver.h"

/*
 * Device memory that only the driver can make: managed memory, arrays, memory of pools that can be
 * exported. The daemon is asked first, and charges the run for it. What was charged is noted down under
 * the pointer or the handle, and given back when that ends.
 *
 * A call that makes such memory:
 *
 *	result = gm_preload_charges_begin(driver, GM_CALL_cuArrayCreate_v2, bytes, &charge);
 *	if (result)
 *		return result;
 *	result = driver->cuArrayCreate_v2(array, description);
 *	gm_preload_charges_settle(&charge, result ? 0 : (uint64_t)*array);
 *
 * And one that ends it. Another thread may be given the same handle at once, so it is taken before:
 *
 *	charge = gm_preload_charges_take((uint64_t)array);
 *	result = driver->cuArrayDestroy(array);
 *	gm_preload_charges_settle(&charge, result ? (uint64_t)array : 0);
 *
 * Thread-safe.
 */

struct gm_preload_charge {
	uint64_t bytes;  /* 0: nothing is charged, and nothing has to be done */
	uint32_t number; /* the daemon's of the device */
	gm_cu_ctx ctx;   /* it ends with this context; NULL: with none */
};

/* Asks the daemon, for the device of the current context. A result of the driver if the call must fail:
 * CUDA_ERROR_OUT_OF_MEMORY. Without a daemon, nothing is charged, and the call is counted. */
gm_cu_result gm_preload_charges_begin(const struct gm_driver *driver, enum gm_preload_call call,
	uint64_t bytes, struct gm_preload_charge *ret_charge);
/* The same for a device of the driver's, and for memory that belongs to no context. */
gm_cu_result gm_preload_charges_begin_on(const struct gm_driver *driver, enum gm_preload_call call,
	gm_cu_device device, uint64_t bytes, struct gm_preload_charge *ret_charge);
/* The memory is there, under that address or handle; 0: it is not, and the charge goes back. */
void gm_preload_charges_settle(const struct gm_preload_charge *charge, uint64_t key);
/* Takes out what was noted down. */
struct gm_preload_charge gm_preload_charges_take(uint64_t key);

/* What is charged in a context, taken out: a list for gm_preload_charges_settle_list(). */
struct gm_preload_charges_list *gm_preload_charges_take_of(gm_cu_ctx ctx);
/* The context has ended, or not: then everything is as it was. Frees the list. */
void gm_preload_charges_settle_list(struct gm_preload_charges_list *list, bool ended);

#endif
