/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See cuda_signal.h. What this module does by itself runs on a stream of its own, which exists only
 * during the call: the program may destroy the context at any time, and nothing of ours may be left in
 * it.
 *
 * A GPU has fewer queues than a program may have streams, so a new stream may share its queue with one
 * that waits. Such a stream would wait, too. Streams of the highest priority have queues that programs
 * seldom use; if the write still does not come through, another stream gets another queue.
 */
#include "client/map/cuda_signal.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/map/cuda_capture.h"
#include "common/arith.h"
#include "common/clock.h"
#include "common/control.h"

/* How long a write may take before it is tried on another stream, and how many streams are tried. */
#define SIGNAL_PATIENCE_NS (20 * GM_NS_PER_MS)
#define SIGNAL_STREAMS     40
/* How long a copy may take: its stream, too, may share a queue with one that waits. */
#define SIGNAL_COPY_NS (5000 * GM_NS_PER_MS)

bool gm_cuda_signal_able(const struct gm_cuda *cuda, gm_cu_device device)
{
	int able = 0;

	return cuda->cuStreamWaitValue64 && cuda->cuStreamWriteValue64 &&
	       !cuda->cuDeviceGetAttribute(
		       &able, GM_CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device) &&
	       able;
}

static gm_cu_ptr signal_at(const uint64_t *word)
{
	return (gm_cu_ptr)(uintptr_t)word;
}

/* ---- on the program's streams */

/* Enters a context for an operation on a stream of the program's. */
static int signal_enter(struct gm_cuda_contexts *contexts, gpumem_stream stream,
	struct gm_cuda_entered *ret_entered)
{
	if (!gm_cuda_signal_able(contexts->cuda, contexts->device))
		return -EOPNOTSUPP;
	/* A graph would do it again at each launch. A default stream cannot be used while a stream
	 * that waits for it is being captured. */
	if (gm_cuda_captured(contexts->cuda, contexts->device, stream) ||
		((uintptr_t)stream <= GM_CU_STREAM_PER_THREAD &&
			gm_cuda_capturing(contexts->cuda, contexts->device)))
		return -EAGAIN;
	return (int)gm_cuda_contexts_enter(contexts, ret_entered);
}

int gm_cuda_signal_post(struct gm_cuda_contexts *contexts, gpumem_stream stream,
	uint64_t *const *words, size_t n, uint64_t value)
{
	struct gm_cuda_entered entered;
	gm_cu_result result = GM_CUDA_SUCCESS;
	int r = signal_enter(contexts, stream, &entered);

	if (r)
		return r;
	for (size_t i = 0; i < n && !result; i++)
		result = contexts->cuda->cuStreamWriteValue64((gm_cu_stream)stream,
			signal_at(words[i]), value, GM_CU_STREAM_WRITE_VALUE_DEFAULT);
	gm_cuda_contexts_leave(contexts, &entered);
	return (int)result;
}

int gm_cuda_signal_await(
	struct gm_cuda_contexts *contexts, gpumem_stream stream, uint64_t *word, uint64_t value)
{
	struct gm_cuda_entered entered;
	gm_cu_result result;
	int r = signal_enter(contexts, stream, &entered);

	if (r)
		return r;
	result = contexts->cuda->cuStreamWaitValue64(
		(gm_cu_stream)stream, signal_at(word), value, GM_CU_STREAM_WAIT_VALUE_GEQ);
	gm_cuda_contexts_leave(contexts, &entered);
	return (int)result;
}

/* ---- on a stream of this module's */

static gm_cu_result signal_stream(const struct gm_cuda *cuda, gm_cu_stream *ret_stream)
{
	/* The driver takes the highest priority that there is. */
	return cuda->cuStreamCreateWithPriority
		       ? cuda->cuStreamCreateWithPriority(
				 ret_stream, GM_CU_STREAM_NON_BLOCKING, INT_MIN / 2)
		       : cuda->cuStreamCreate(ret_stream, GM_CU_STREAM_NON_BLOCKING);
}

/* GM_CUDA_ERROR_NOT_READY: the stream has not come to its end in time. */
static gm_cu_result signal_end_of(
	const struct gm_cuda *cuda, gm_cu_stream stream, uint64_t patience_ns)
{
	uint64_t until = gm_clock_ns() + patience_ns, pause_ns = GM_NS_PER_US;
	gm_cu_result result;

	while ((result = cuda->cuStreamQuery(stream)) == GM_CUDA_ERROR_NOT_READY &&
		gm_clock_ns() < until) {
		nanosleep(&(struct timespec){.tv_nsec = (long)pause_ns}, NULL);
		pause_ns = gm_min(2 * pause_ns, GM_NS_PER_MS);
	}
	return result;
}

static gm_cu_result signal_try_poke(
	const struct gm_cuda *cuda, uint64_t *word, uint64_t value, uint64_t patience_ns)
{
	gm_cu_stream stream;
	gm_cu_result result = signal_stream(cuda, &stream);

	if (result)
		return result;
	result = cuda->cuStreamWriteValue64(
		stream, signal_at(word), value, GM_CU_STREAM_WRITE_VALUE_DEFAULT);
	if (!result)
		result = signal_end_of(cuda, stream, patience_ns);
	/* A write that is still under way is done later. */
	(void)cuda->cuStreamDestroy(stream);
	return result;
}

int gm_cuda_signal_poke(struct gm_cuda_contexts *contexts, uint64_t *word, uint64_t value)
{
	gm_cu_result result = GM_CUDA_ERROR_NOT_READY;
	struct gm_cuda_entered entered;

	if (!gm_cuda_signal_able(contexts->cuda, contexts->device))
		return -EOPNOTSUPP;
	int r = (int)gm_cuda_contexts_enter(contexts, &entered);
	if (r)
		return r;
	/* Only the last word there will ever be is written more than once: any other could come late,
	 * after a larger one. */
	int tries = value == GM_CONTROL_LOST ? SIGNAL_STREAMS : 1;
	for (int i = 0; i < tries && result == GM_CUDA_ERROR_NOT_READY; i++)
		result = signal_try_poke(contexts->cuda, word, value,
			SIGNAL_PATIENCE_NS * SIGNAL_STREAMS / (unsigned)tries);
	gm_cuda_contexts_leave(contexts, &entered);
	return (int)result;
}

/* Where a copy lands. If the driver does not say when it is done, it may land at any time, and the
 * place is kept for good. */
struct signal_place {
	struct signal_place *next;
	uint64_t words[];
};
static _Atomic(struct signal_place *) strays;

static void signal_keep(struct signal_place *place)
{
	place->next = atomic_load(&strays);
	while (!atomic_compare_exchange_weak(&strays, &place->next, place))
		;
}

static gm_cu_result signal_copy(const struct gm_cuda *cuda, const uint64_t *words, size_t n,
	struct signal_place *place, bool *ret_done)
{
	gm_cu_stream stream;
	gm_cu_result result = signal_stream(cuda, &stream);

	*ret_done = true;
	if (result)
		return result;
	result = cuda->cuMemcpyAsync(
		(gm_cu_ptr)(uintptr_t)place->words, signal_at(words), n * sizeof(*words), stream);
	if (!result) {
		result = signal_end_of(cuda, stream, SIGNAL_COPY_NS);
		*ret_done = !result;
	}
	(void)cuda->cuStreamDestroy(stream);
	return result;
}

int gm_cuda_signal_peek(
	struct gm_cuda_contexts *contexts, const uint64_t *words, size_t n, uint64_t *ret_values)
{
	struct signal_place *place = calloc(1, sizeof(*place) + n * sizeof(*words));
	struct gm_cuda_entered entered;
	bool done;

	if (!place)
		return -ENOMEM;
	gm_cu_result result = gm_cuda_contexts_enter(contexts, &entered);
	if (result) {
		free(place);
		return (int)result;
	}
	result = signal_copy(contexts->cuda, words, n, place, &done);
	gm_cuda_contexts_leave(contexts, &entered);

	if (!result)
		memcpy(ret_values, place->words, n * sizeof(*words));
	if (done)
		free(place);
	else
		signal_keep(place);
	return (int)result;
}
