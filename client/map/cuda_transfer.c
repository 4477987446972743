/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See cuda_operations.h. The stream exists only during the call: the program may destroy the context at any
 * time, and nothing of ours may be left in it. It does not wait for the program's default stream, which
 * may be busy for as long as the program likes.
 */
#include "client/map/cuda_operations.h"

#include <time.h>

#include "common/arith.h"
#include "common/clock.h"

/* How often to look whether the copy is done: at first, and at last. */
#define TRANSFER_FIRST_NS (20 * GM_NS_PER_US)
#define TRANSFER_LAST_NS  GM_NS_PER_MS

/* Sleeps between looks, so that the copy costs the CPU nothing. */
static gm_cu_result transfer_await(const struct gm_cuda *cuda, gm_cu_stream stream)
{
	uint64_t pause_ns = TRANSFER_FIRST_NS;
	gm_cu_result result;

	while ((result = cuda->cuStreamQuery(stream)) == GM_CUDA_ERROR_NOT_READY) {
		nanosleep(&(struct timespec){.tv_nsec = (long)pause_ns}, NULL);
		pause_ns = gm_u64_min(2 * pause_ns, TRANSFER_LAST_NS);
	}
	return result;
}

static gm_cu_result transfer_copy(
	const struct gm_cuda *cuda, void *to, const void *from, uint64_t bytes)
{
	gm_cu_stream stream;
	gm_cu_result result = cuda->cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING);

	if (result)
		return result;
	result = cuda->cuMemcpyAsync(
		(gm_cu_ptr)(uintptr_t)to, (gm_cu_ptr)(uintptr_t)from, bytes, stream);
	if (!result) {
		result = transfer_await(cuda, stream);
		/* The device must have finished with the copy when this returns, also after an error. */
		if (result)
			(void)cuda->cuStreamSynchronize(stream);
	}
	(void)cuda->cuStreamDestroy(stream);
	return result;
}

int gm_cuda_transfer(struct gm_cuda_contexts *contexts, void *to, const void *from, uint64_t bytes)
{
	struct gm_cuda_entered entered;
	gm_cu_result result = gm_cuda_contexts_enter(contexts, &entered);

	if (result)
		return (int)result;
	result = transfer_copy(contexts->cuda, to, from, bytes);
	gm_cuda_contexts_leave(contexts, &entered);
	return (int)result;
}
