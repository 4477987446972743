/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/broker/preload_streams.h"

#include "preload/preload.h"
#include "preload/broker/preload_broker.h"

#define STREAMS_KNOWN 8
static GM_PRELOAD_THREAD struct streams_known {
	gm_cu_stream stream;
	uint64_t age; /* gm_preload_age() when it was found */
	gm_cu_device device;
	uint32_t number; /* of the daemon */
} streams_known[STREAMS_KNOWN];

gm_cu_result gm_preload_streams_context(
	const struct gm_driver *driver, gm_cu_stream stream, gm_cu_ctx *ret_ctx)
{
	if ((uintptr_t)stream <= GM_CU_STREAM_PER_THREAD || !driver->cuStreamGetCtx)
		return driver->cuCtxGetCurrent(ret_ctx);
	return driver->cuStreamGetCtx(stream, ret_ctx);
}

/* Asks the driver for the device of a stream. */
static bool streams_ask(
	const struct gm_driver *driver, gm_cu_stream stream, gm_cu_device *ret_device)
{
	gm_cu_ctx ctx, other;

	if ((uintptr_t)stream <= GM_CU_STREAM_PER_THREAD || !driver->cuStreamGetCtx)
		return driver->cuCtxGetDevice(ret_device) == GM_CUDA_SUCCESS;
	if (gm_preload_streams_context(driver, stream, &ctx) || driver->cuCtxGetCurrent(&other))
		return false;
	if (ctx == other)
		return driver->cuCtxGetDevice(ret_device) == GM_CUDA_SUCCESS;
	if (driver->cuCtxPushCurrent_v2(ctx))
		return false;
	gm_cu_result result = driver->cuCtxGetDevice(ret_device);
	(void)driver->cuCtxPopCurrent_v2(&other);
	return result == GM_CUDA_SUCCESS;
}

bool gm_preload_streams_device(const struct gm_driver *driver, gm_cu_stream stream,
	gm_cu_device *ret_device, uint32_t *ret_number)
{
	uintptr_t place = (uintptr_t)stream / 64;
	struct streams_known *known =
		&streams_known[(place ^ place / STREAMS_KNOWN) % STREAMS_KNOWN];
	bool named = (uintptr_t)stream > GM_CU_STREAM_PER_THREAD;
	uint64_t age = gm_preload_age();

	if (!named || known->stream != stream || known->age != age) {
		if (!streams_ask(driver, stream, ret_device) ||
			!gm_preload_device(driver, *ret_device, ret_number))
			return false;
		if (named)
			*known = (struct streams_known){stream, age, *ret_device, *ret_number};
		return true;
	}
	*ret_device = known->device;
	*ret_number = known->number;
	return true;
}
