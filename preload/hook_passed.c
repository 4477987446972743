/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that make device memory, and that the driver serves: they are counted.
 */
#include "preload/preload_broker.h"

#define PASSED(symbol, parameters, arguments) \
	gm_cu_result symbol parameters \
	{ \
		GM_DRIVER_OR_RETURN(driver, symbol); \
		gm_broker_count_passed(GM_CALL_##symbol); \
		return driver->symbol arguments; \
	}

PASSED(cuMemCreate,
	(gm_cu_mem * handle, size_t bytes, const gm_cu_prop *prop, unsigned long long flags),
	(handle, bytes, prop, flags))
