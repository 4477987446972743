/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_DRIVER_H
#define GM_PRELOAD_DRIVER_H

#include "preload/driver/preload_calls.h"

/*
 * The driver's own functions, as the program's libcuda.so.1 has them. The library never loads the
 * driver itself: whoever calls it has done so. Once found, the driver stays loaded.
 */

struct gm_driver {
#define GM_DRIVER_CALL(symbol, name, version, flags, parameters) gm_cu_result(*symbol) parameters;
	GM_PRELOAD_CALLS(GM_DRIVER_CALL)
#undef GM_DRIVER_CALL
#define GM_DRIVER_USED(symbol, parameters) gm_cu_result(*symbol) parameters;
	GM_PRELOAD_USED(GM_DRIVER_USED)
#undef GM_DRIVER_USED
};

/* NULL: this process has not loaded the driver. A function that the driver lacks is NULL. Thread-safe. */
const struct gm_driver *gm_driver(void);

/* Begins a hook: finds the driver's function of that name, or ends the call. */
#define GM_DRIVER_OR_RETURN(variable, symbol) \
	const struct gm_driver *variable = gm_driver(); \
	if (!variable || !variable->symbol) \
	return GM_CUDA_ERROR_NOT_FOUND

#endif
