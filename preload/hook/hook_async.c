/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is allocated and freed in the order of a stream. preload_pools.h says which pools the
 * broker serves. The others, and what a stream allocates while it is captured, are the driver's.
 */
#include <stdatomic.h>
#include <stdint.h>

#include "common/cancel.h"
#include "preload/hook/hook_capture.h"
#include "preload/table/preload_blocks.h"
#include "preload/broker/preload_broker.h"
#include "preload/broker/preload_graphs.h"
#include "preload/broker/preload_report.h"
#include "preload/table/preload_pools.h"
#include "preload/broker/preload_streams.h"

/* Set for good once the program has given a device another pool. */
static atomic_bool async_pools_set;

/* The pool that is meant, if the broker serves it; handle NULL: the one that the device has now. To be
 * given to gm_preload_pools_put(). */
static struct gm_preload_pool *async_pool(
	const struct gm_driver *driver, gm_cu_device device, gm_cu_pool handle)
{
	if (!handle) {
		if (!atomic_load_explicit(&async_pools_set, memory_order_acquire))
			return gm_preload_pools_first(driver, device);
		if (!driver->cuDeviceGetMemPool || driver->cuDeviceGetMemPool(&handle, device))
			return NULL;
	}
	return gm_preload_pools_get(driver, handle);
}

/* Allocates for a pool, which the block keeps. */
static gm_cu_result async_serve(struct gm_preload_pool *pool, uint32_t number, size_t bytes,
	gpumem_stream stream, gm_cu_ptr *ret_ptr)
{
	struct gm_preload_block block = {.bytes = bytes, .pool = pool, .number = number};
	gm_cu_result result = gm_preload_alloc(number, bytes, stream, &block.base);
	if (result == GM_CUDA_ERROR_OUT_OF_MEMORY) {
		block.spilled = gm_preload_spill(bytes, &block.base);
		block.device = gm_preload_pools_device(pool);
		if (block.spilled)
			result = GM_CUDA_SUCCESS;
	}
	if (result) {
		gm_preload_report_refused();
		return result;
	}

	if (gm_preload_pools_enter(pool, bytes)) {
		if (gm_preload_blocks_add(&block)) {
			*ret_ptr = block.base;
			return GM_CUDA_SUCCESS;
		}
		gm_preload_pools_leave(pool, bytes);
	}
	/* Nobody has used it, but it may have come to its stream from work that still does. */
	gm_preload_free(block.base, GPUMEM_STREAM_ANY);
	gm_preload_report_why(GM_PRELOAD_REPORT_NO_HOST);
	gm_preload_report_refused();
	return GM_CUDA_ERROR_OUT_OF_MEMORY;
}

/* What becomes of an allocation that the driver makes. */
struct async_passed {
	struct gm_preload_charge charge;
	gm_cu_graph graph;                    /* that has the memory; NULL: none */
	struct gm_preload_graphs_piece piece; /* the memory of the graph */
	uint64_t reused;                      /* bytes of it that are charged already */
};

/* Asks for the memory of a graph, of which the pool is only a description. */
static gm_cu_result async_capture(const struct gm_driver *driver, enum gm_preload_call call,
	size_t bytes, gm_cu_stream stream, struct async_passed *passed)
{
	GM_UNCANCELLED; /* between these steps the memory that the graph may use again is nobody's */
	struct gm_preload_graphs_piece *piece = &passed->piece;
	gm_cu_device device;

	*piece = (struct gm_preload_graphs_piece){.stream = stream, .bytes = bytes};
	passed->graph = gm_preload_graphs_of(driver, stream);
	if (!passed->graph || !gm_preload_streams_device(driver, stream, &device, &piece->number)) {
		passed->graph = NULL;
		gm_preload_count_passed(call);
		return GM_CUDA_SUCCESS;
	}
	passed->reused = gm_preload_graphs_reuse(passed->graph, piece);
	gm_cu_result result = gm_preload_charges_begin_on(
		driver, call, device, bytes - passed->reused, &passed->charge);
	if (result)
		gm_preload_graphs_spare(passed->graph, piece, passed->reused);
	return result;
}

/*
 * true: the call is over, with *ret_result. false: it is the driver's, and async_made() is to be told what
 * came of it.
 */
static bool async_alloc(const struct gm_driver *driver, gm_cu_ptr *ptr, size_t bytes,
	gm_cu_pool handle, gm_cu_stream stream, struct async_passed *ret_passed,
	gm_cu_result *ret_result)
{
	enum gm_preload_call call =
		handle ? GM_CALL_cuMemAllocFromPoolAsync : GM_CALL_cuMemAllocAsync;
	struct gm_preload_pool *pool = NULL;
	gm_cu_device device;
	uint32_t number;

	*ret_passed = (struct async_passed){0};
	if (!ptr || !bytes)
		return false;
	enum gm_preload_answer answer = gm_preload_begin();
	if (answer == GM_BROKER_REFUSED) {
		*ret_result = gm_preload_refuse();
		return true;
	}
	if (answer == GM_BROKER_READY && gm_capture_of(driver, stream)) {
		*ret_result = async_capture(driver, call, bytes, stream, ret_passed);
		return *ret_result;
	}
	if (answer != GM_BROKER_READY ||
		!gm_preload_streams_device(driver, stream, &device, &number) ||
		!(pool = async_pool(driver, device, handle))) {
		gm_preload_count_passed(call);
		return false;
	}

	if (!gm_preload_pools_is_served(pool)) {
		*ret_result = gm_preload_charges_begin_on(
			driver, call, gm_preload_pools_device(pool), bytes, &ret_passed->charge);
		gm_preload_pools_put(pool);
		return *ret_result;
	}
	if (gm_preload_pools_device(pool) != device &&
		!gm_preload_device(driver, gm_preload_pools_device(pool), &number)) {
		gm_preload_pools_put(pool);
		gm_preload_count_passed(call);
		return false;
	}
	/* A pool may be of another device than the stream. */
	*ret_result = async_serve(pool, number, bytes,
		gm_preload_pools_device(pool) == device ? (gpumem_stream)stream : GPUMEM_STREAM_ANY,
		ptr);
	if (*ret_result)
		gm_preload_pools_put(pool);
	return true;
}

/* The driver has answered. */
static gm_cu_result async_made(
	struct async_passed *passed, const gm_cu_ptr *ptr, gm_cu_result result)
{
	if (!passed->graph || result) {
		gm_preload_charges_settle(&passed->charge, result ? 0 : *ptr);
		if (passed->graph)
			gm_preload_graphs_spare(passed->graph, &passed->piece, passed->reused);
		return result;
	}

	bool charged = passed->charge.bytes || passed->reused;
	passed->piece.ptr = *ptr;
	gm_preload_graphs_add(passed->graph, &passed->charge, true);
	if (charged)
		gm_preload_graphs_allocated(passed->graph, &passed->piece);
	return result;
}

/*
 * Frees memory in the order of a stream of another device. The client library knows no order between the two, so it
 * waits until all contexts are done that it knows of. It gets to know that of the stream. ctx: NULL if it is not known yet. A thread that
 * were cancelled in the driver's calls would lose the memory.
 */
static void async_free_across(
	const struct gm_driver *driver, gm_cu_stream stream, gm_cu_ctx ctx, gm_cu_ptr ptr)
{
	GM_UNCANCELLED;
	gm_cu_ctx other;

	bool known = ctx || gm_preload_streams_context(driver, stream, &ctx) == GM_CUDA_SUCCESS;
	bool pushed = known && ctx && driver->cuCtxPushCurrent_v2(ctx) == GM_CUDA_SUCCESS;
	gm_preload_free(ptr, GPUMEM_STREAM_ANY);
	if (pushed)
		(void)driver->cuCtxPopCurrent_v2(&other);
}

/* false: it is the driver's, and async_freed() is to be told what came of it. */
static bool async_free(const struct gm_driver *driver, gm_cu_ptr ptr, gm_cu_stream stream,
	struct async_passed *ret_passed)
{
	struct gm_preload_block block;
	gm_cu_device device;
	gm_cu_ctx ctx = NULL;
	uint32_t number;

	*ret_passed = (struct async_passed){.piece = {.stream = stream, .ptr = ptr}};
	if (!gm_preload_there())
		return false;
	if (gm_capture_of(driver, stream)) {
		ret_passed->graph = gm_preload_graphs_of(driver, stream);
		return false;
	}

	bool known = gm_preload_streams_device(driver, stream, &device, &number);
	/* The driver says what is wrong with a stream that it does not know. */
	if (!known && gm_preload_streams_context(driver, stream, &ctx))
		return false;
	if (!gm_preload_blocks_near(ptr) || !gm_preload_blocks_take(ptr, &block)) {
		ret_passed->charge = gm_preload_charges_take(ptr);
		return false;
	}
	gm_preload_pools_free(&block);
	/* The order of a stream is for memory of its device. */
	if (block.spilled)
		gm_preload_free(ptr, GPUMEM_STREAM_ANY);
	else if (known && number == block.number)
		gm_preload_free(ptr, stream);
	else
		async_free_across(driver, stream, ctx, ptr);
	return true;
}

static gm_cu_result async_freed(const struct async_passed *passed, gm_cu_result result)
{
	gm_preload_charges_settle(&passed->charge, result ? passed->piece.ptr : 0);
	if (passed->graph && !result)
		gm_preload_graphs_freed(passed->graph, &passed->piece);
	return result;
}

/* The thread's own default stream, where the program means that one by 0. */
#define ASYNC_STREAM(stream, zero) \
	((uintptr_t)(stream) ? (stream) : (gm_cu_stream)(uintptr_t)(zero))

/* A thread that were cancelled in the driver's call would lose what is charged for it. */
#define ASYNC_CALLS(suffix, zero) \
	gm_cu_result cuMemAllocAsync##suffix(gm_cu_ptr *ptr, size_t bytes, gm_cu_stream stream) \
	{ \
		GM_DRIVER_OR_RETURN(driver, cuMemAllocAsync##suffix); \
		struct async_passed passed; \
		gm_cu_result result; \
		if (async_alloc(driver, ptr, bytes, NULL, ASYNC_STREAM(stream, zero), &passed, \
			    &result)) \
			return result; \
		GM_UNCANCELLED; \
		return async_made( \
			&passed, ptr, driver->cuMemAllocAsync##suffix(ptr, bytes, stream)); \
	} \
\
	gm_cu_result cuMemAllocFromPoolAsync##suffix( \
		gm_cu_ptr *ptr, size_t bytes, gm_cu_pool pool, gm_cu_stream stream) \
	{ \
		GM_DRIVER_OR_RETURN(driver, cuMemAllocFromPoolAsync##suffix); \
		struct async_passed passed = {0}; \
		gm_cu_result result; \
		if (pool && async_alloc(driver, ptr, bytes, pool, ASYNC_STREAM(stream, zero), \
				    &passed, &result)) \
			return result; \
		GM_UNCANCELLED; \
		return async_made(&passed, ptr, \
			driver->cuMemAllocFromPoolAsync##suffix(ptr, bytes, pool, stream)); \
	} \
\
	gm_cu_result cuMemFreeAsync##suffix(gm_cu_ptr ptr, gm_cu_stream stream) \
	{ \
		GM_DRIVER_OR_RETURN(driver, cuMemFreeAsync##suffix); \
		struct async_passed passed; \
		if (async_free(driver, ptr, ASYNC_STREAM(stream, zero), &passed)) \
			return GM_CUDA_SUCCESS; \
		GM_UNCANCELLED; \
		return async_freed(&passed, driver->cuMemFreeAsync##suffix(ptr, stream)); \
	}

ASYNC_CALLS(, 0)
ASYNC_CALLS(_ptsz, GM_CU_STREAM_PER_THREAD)

gm_cu_result cuMemSetMemPool(gm_cu_location *location, int type, gm_cu_pool pool)
{
	GM_DRIVER_OR_RETURN(driver, cuMemSetMemPool);
	gm_cu_result result = driver->cuMemSetMemPool(location, type, pool);

	if (result == GM_CUDA_SUCCESS)
		atomic_store_explicit(&async_pools_set, true, memory_order_release);
	return result;
}

gm_cu_result cuDeviceSetMemPool(gm_cu_device device, gm_cu_pool pool)
{
	GM_DRIVER_OR_RETURN(driver, cuDeviceSetMemPool);
	gm_cu_result result = driver->cuDeviceSetMemPool(device, pool);

	if (result == GM_CUDA_SUCCESS)
		atomic_store_explicit(&async_pools_set, true, memory_order_release);
	return result;
}
