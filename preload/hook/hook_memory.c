/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is allocated and freed in the order of the program's calls, and what ends it: its context.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "common/cancel.h"
#include "preload/hook/hook_capture.h"
#include "preload/table/preload_blocks.h"
#include "preload/broker/preload_broker.h"
#include "preload/broker/preload_charges.h"
#include "preload/driver/preload_contexts.h"
#include "preload/broker/preload_graphs.h"
#include "preload/broker/preload_report.h"
#include "preload/table/preload_pools.h"

/* Waits for the context of a block, or the current one, as the driver does before it frees. */
static gm_cu_result memory_await(const struct gm_driver *driver, gm_cu_ctx ctx)
{
	gm_cu_ctx current = NULL;

	/* Drivers since CUDA 13 wait for a context that need not be current. */
	if (ctx && driver->cuCtxSynchronize_v2)
		return driver->cuCtxSynchronize_v2(ctx);
	if (driver->cuCtxGetCurrent(&current) == GM_CUDA_SUCCESS && (!ctx || current == ctx))
		return current ? driver->cuCtxSynchronize() : GM_CUDA_SUCCESS;
	if (!ctx)
		return driver->cuCtxSynchronize();
	gm_cu_result result = driver->cuCtxPushCurrent_v2(ctx);
	if (result)
		return result;
	result = driver->cuCtxSynchronize();
	(void)driver->cuCtxPopCurrent_v2(&current);
	return result;
}

/* On which devices cuMemFree() has not waited, because a stream was being captured: a bit for each. */
static _Atomic uint64_t memory_unwaited;

static uint64_t memory_bit(uint32_t number)
{
	return UINT64_C(1) << (number % 64);
}

/* Waits now, so that a program is not refused what it freed during a capture. Returns whether it has waited: then the
 * library has found out that the memory is free. */
static __attribute__((noinline, cold)) bool memory_await_freed(
	const struct gm_driver *driver, gm_cu_ctx ctx, uint32_t number)
{
	GM_UNCANCELLED;

	if (!(atomic_load(&memory_unwaited) & memory_bit(number)) || !gm_preload_capture_keep_out())
		return false;
	atomic_fetch_and(&memory_unwaited, ~memory_bit(number));
	(void)memory_await(driver, ctx);
	gm_preload_capture_let_in();
	gm_preload_trim();
	return true;
}

/* Allocates in the current context. */
static gm_cu_result memory_alloc(const struct gm_driver *driver, gm_cu_ctx ctx, uint32_t number,
	size_t bytes, gm_cu_ptr *ret_ptr)
{
	struct gm_preload_block block = {.bytes = bytes, .ctx = ctx, .number = number};

	gm_cu_result result = gm_preload_alloc(number, bytes, GPUMEM_STREAM_ANY, &block.base);
	if (result == GM_CUDA_ERROR_OUT_OF_MEMORY && memory_await_freed(driver, ctx, number))
		result = gm_preload_alloc(number, bytes, GPUMEM_STREAM_ANY, &block.base);
	if (result == GM_CUDA_ERROR_OUT_OF_MEMORY) {
		block.spilled = gm_preload_spill(bytes, &block.base);
		if (block.spilled)
			result = driver->cuCtxGetDevice(&block.device);
		if (block.spilled && result)
			gm_preload_free(block.base, GPUMEM_STREAM_DONE);
	}
	if (result) {
		gm_preload_report_refused();
		return result;
	}
	if (!gm_preload_blocks_add(&block)) {
		gm_preload_free(block.base, GPUMEM_STREAM_DONE);
		gm_preload_report_why(GM_PRELOAD_REPORT_NO_HOST);
		gm_preload_report_refused();
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	}

	*ret_ptr = block.base;
	return GM_CUDA_SUCCESS;
}

gm_cu_result cuMemAlloc_v2(gm_cu_ptr *ptr, size_t bytes)
{
	GM_DRIVER_OR_RETURN(driver, cuMemAlloc_v2);
	gm_cu_ctx ctx;
	uint32_t number;

	if (!ptr || !bytes)
		return driver->cuMemAlloc_v2(ptr, bytes);
	switch (gm_preload_begin()) {
	case GM_BROKER_REFUSED:
		return gm_preload_refuse();
	case GM_BROKER_READY:
		if (gm_preload_current(driver, &ctx, &number))
			return memory_alloc(driver, ctx, number, bytes, ptr);
		break;
	case GM_BROKER_ABSENT:
		break;
	}
	gm_preload_count_passed(GM_CALL_cuMemAlloc_v2);
	return driver->cuMemAlloc_v2(ptr, bytes);
}

/* As the driver's: rows begin where it begins them. */
#define MEMORY_PITCH 512

gm_cu_result cuMemAllocPitch_v2(
	gm_cu_ptr *ptr, size_t *pitch, size_t width, size_t height, unsigned int element)
{
	GM_DRIVER_OR_RETURN(driver, cuMemAllocPitch_v2);
	size_t row, bytes;
	gm_cu_ctx ctx;
	uint32_t number;

	/* The driver says what is wrong. */
	if (!ptr || !pitch || !width || !height ||
		(element != 4 && element != 8 && element != 16) ||
		__builtin_add_overflow(width, MEMORY_PITCH - 1, &row))
		return driver->cuMemAllocPitch_v2(ptr, pitch, width, height, element);
	row &= ~(size_t)(MEMORY_PITCH - 1);
	if (__builtin_mul_overflow(row, height, &bytes))
		return driver->cuMemAllocPitch_v2(ptr, pitch, width, height, element);

	switch (gm_preload_begin()) {
	case GM_BROKER_REFUSED:
		return gm_preload_refuse();
	case GM_BROKER_READY:
		if (gm_preload_current(driver, &ctx, &number)) {
			gm_cu_result result = memory_alloc(driver, ctx, number, bytes, ptr);
			if (result == GM_CUDA_SUCCESS)
				*pitch = row;
			return result;
		}
		break;
	case GM_BROKER_ABSENT:
		break;
	}
	gm_preload_count_passed(GM_CALL_cuMemAllocPitch_v2);
	return driver->cuMemAllocPitch_v2(ptr, pitch, width, height, element);
}

/* Has the driver free what it has made. If the thread were cancelled in the driver's call, what is charged for the memory would
 * be lost. */
static __attribute__((noinline)) gm_cu_result memory_free_charged(
	const struct gm_driver *driver, gm_cu_ptr ptr, const struct gm_preload_charge *charge)
{
	GM_UNCANCELLED;
	gm_cu_result result = driver->cuMemFree_v2(ptr);

	gm_preload_charges_settle(charge, result ? ptr : 0);
	return result;
}

gm_cu_result cuMemFree_v2(gm_cu_ptr ptr)
{
	GM_DRIVER_OR_RETURN(driver, cuMemFree_v2);
	struct gm_preload_block block;

	if (!gm_preload_there() || !gm_preload_blocks_near(ptr) ||
		!gm_preload_blocks_take(ptr, &block)) {
		struct gm_preload_charge charge = gm_preload_charges_take(ptr);
		return charge.bytes ? memory_free_charged(driver, ptr, &charge)
				    : driver->cuMemFree_v2(ptr);
	}
	gm_preload_pools_free(&block);

	/* During a capture nobody may wait. If the thread were cancelled in the wait, it would keep captures out for good. */
	GM_UNCANCELLED;
	bool wait = gm_preload_capture_keep_out();
	gm_cu_result result = wait ? memory_await(driver, block.ctx) : GM_CUDA_SUCCESS;
	if (wait)
		gm_preload_capture_let_in();
	else
		atomic_fetch_or(&memory_unwaited, memory_bit(block.number));

	/* Without a wait the device may still use it. After a failure it may, or will never again. The library finds out. */
	bool done = wait && !result && block.ctx;
	gm_preload_free(ptr, done ? GPUMEM_STREAM_DONE : GPUMEM_STREAM_ANY);
	return result;
}

/* ---- contexts: what was allocated in one ends with it. A thread that were cancelled in the driver's call would lose it. */

struct memory_ended {
	struct gm_preload_block block;
	struct memory_ended *next;
};

/* Takes out what was allocated in a context, before another one can have its handle. */
static struct memory_ended *memory_take_of(gm_cu_ctx ctx)
{
	struct memory_ended *list = NULL, *ended;

	while (gm_preload_there() && (ended = malloc(sizeof *ended))) {
		if (!gm_preload_blocks_take_of(ctx, &ended->block)) {
			free(ended);
			break;
		}
		ended->next = list;
		list = ended;
	}
	return list;
}

/* The context has ended, or not: then everything is as it was. */
static void memory_end(gm_cu_ctx ctx, struct memory_ended *list, bool ended)
{
	struct memory_ended *next;

	if (ctx && ended)
		gm_capture_end_of(ctx);

	for (; list; list = next) {
		next = list->next;
		if (!ended) {
			(void)gm_preload_blocks_add(&list->block);
			free(list);
			continue;
		}
		gm_preload_free(list->block.base,
			GPUMEM_STREAM_ANY); /* nobody can wait for the context any more */
		free(list);
	}
}

#define MEMORY_DESTROY(symbol) \
	gm_cu_result symbol(gm_cu_ctx ctx) \
	{ \
		GM_DRIVER_OR_RETURN(driver, symbol); \
		GM_UNCANCELLED; \
		gm_preload_grow_old(); \
		struct memory_ended *list = ctx ? memory_take_of(ctx) : NULL; \
		struct gm_preload_charges_list *charges = \
			ctx ? gm_preload_charges_take_of(ctx) : NULL; \
		gm_cu_result result = driver->symbol(ctx); \
		memory_end(ctx, list, result == GM_CUDA_SUCCESS); \
		gm_preload_charges_settle_list(charges, result == GM_CUDA_SUCCESS); \
		return result; \
	}

MEMORY_DESTROY(cuCtxDestroy)
MEMORY_DESTROY(cuCtxDetach)
MEMORY_DESTROY(cuCtxDestroy_v2)

#define MEMORY_RESET(symbol) \
	gm_cu_result symbol(gm_cu_device device) \
	{ \
		GM_DRIVER_OR_RETURN(driver, symbol); \
		GM_UNCANCELLED; \
		gm_cu_ctx ctx = \
			gm_preload_there() ? gm_driver_contexts_primary(driver, device) : NULL; \
		gm_preload_grow_old(); \
		struct memory_ended *list = ctx ? memory_take_of(ctx) : NULL; \
		struct gm_preload_charges_list *charges = \
			ctx ? gm_preload_charges_take_of(ctx) : NULL; \
		gm_cu_result result = driver->symbol(device); \
		memory_end(ctx, list, result == GM_CUDA_SUCCESS); \
		gm_preload_charges_settle_list(charges, result == GM_CUDA_SUCCESS); \
		uint32_t number; \
		if (ctx && !result && gm_preload_device(driver, device, &number)) \
			gm_preload_graphs_end_on(number); \
		return result; \
	}

MEMORY_RESET(cuDevicePrimaryCtxReset)
MEMORY_RESET(cuDevicePrimaryCtxReset_v2)

/* ---- green contexts: their memory is the primary one's, and stays */

gm_cu_result cuCtxFromGreenCtx(gm_cu_ctx *ctx, void *green)
{
	GM_DRIVER_OR_RETURN(driver, cuCtxFromGreenCtx);
	gm_cu_result result = driver->cuCtxFromGreenCtx(ctx, green);

	if (result == GM_CUDA_SUCCESS) {
		gm_driver_contexts_add_green(*ctx);
		gm_preload_grow_old(); /* what threads remember about the handle is of another one */
	}
	return result;
}

gm_cu_result cuGreenCtxDestroy(void *green)
{
	GM_DRIVER_OR_RETURN(driver, cuGreenCtxDestroy);
	gm_cu_ctx ctx = NULL;

	if (green && (!driver->cuCtxFromGreenCtx || driver->cuCtxFromGreenCtx(&ctx, green)))
		ctx = NULL;
	gm_preload_grow_old();
	gm_cu_result result = driver->cuGreenCtxDestroy(green);
	if (ctx && result == GM_CUDA_SUCCESS) {
		gm_driver_contexts_remove_green(ctx);
		gm_capture_end_of(ctx);
	}
	return result;
}
