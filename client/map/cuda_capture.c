/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See cuda_capture.h. Remembers which streams of a GPU are being captured, among those that the
 * program has named. It asks the driver with the lock held, so that no thread forgets a capture
 * that another has just seen.
 *
 * It asks the driver nothing that a capture does not allow. It must never forget a capture that
 * goes on: if it has no memory to remember one, the program counts as capturing from then on.
 */
#include "client/map/cuda_capture.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/cancel.h"
#include "common/bounds.h"
#include "common/lock.h"

/* A stream that was seen being captured. NULL stands for the legacy default stream, which cannot be captured, so NULL
 * marks a free place. */
struct gm_capture_place {
	gpumem_stream stream;
	/* CU_STREAM_PER_THREAD is another stream in each thread and in each context. 0 and NULL for all others. */
	pid_t thread;
	gm_cu_ctx ctx;
};

struct gm_capture_places {
	struct gm_capture_place at[GM_CUDA_CAPTURED_PLACES];
	struct gm_capture_places *next;
};

struct gm_captured {
	_Atomic unsigned n; /* captures in places, plus one if lost */
	bool lost;          /* a capture found no place */
	struct gm_capture_places first;
};

static struct gm_captured captured[GM_BOUND_DEVICES];
/* Protects all of them. Nobody takes it while nothing is captured. */
static struct gm_lock lock = GM_LOCK_INITIALIZER(GM_LOCK_LEAF);
/* The driver that was asked about what is in them. A process has one. */
static const struct gm_cuda *captured_by;

/* Number of captures that the program has announced and not ended. */
static _Atomic unsigned capture_announced;

/* Number of threads that keep captures out. Threads that use different counters do not slow each other down. */
#define CAPTURE_COUNTERS 16
static struct {
	_Alignas(64) _Atomic unsigned n;
} capture_kept_out[CAPTURE_COUNTERS];
static _Atomic unsigned capture_threads;
/* The counter of this thread, plus 1; 0: the thread has none yet. */
static __thread unsigned capture_counter;

/* What is being captured on a device. */
static struct gm_captured *cuda_capture_on(gm_cu_device device)
{
	return &captured[(unsigned)device % GM_BOUND_DEVICES];
}

static bool cuda_capture_any(const struct gm_captured *on)
{
	return atomic_load_explicit(&on->n, memory_order_acquire) != 0;
}

/* Asks the driver whether a stream is being captured, or, of a default stream, whether a stream is that
 * waits for it. Neither breaks a capture. */
static bool cuda_capture_asked(const struct gm_cuda *cuda, gpumem_stream stream)
{
	gm_cu_capture_status status = GM_CU_STREAM_CAPTURE_STATUS_NONE;

	if (!cuda->cuStreamIsCapturing)
		return false;
	gm_cu_result result = cuda->cuStreamIsCapturing((gm_cu_stream)stream, &status);
	return result == GM_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
	       (result == GM_CUDA_SUCCESS && status != GM_CU_STREAM_CAPTURE_STATUS_NONE);
}

/* Whether the handle stands for the legacy default stream of the current context. */
static bool cuda_capture_is_legacy(gpumem_stream stream)
{
	return (uintptr_t)stream <= GM_CU_STREAM_LEGACY;
}

/* Returns what a stream's place holds, if this thread names the stream now. */
static struct gm_capture_place cuda_capture_named(const struct gm_cuda *cuda, gpumem_stream stream)
{
	struct gm_capture_place named = {.stream = stream};

	if ((uintptr_t)stream == GM_CU_STREAM_PER_THREAD) {
		named.thread = gettid();
		if (cuda->cuCtxGetCurrent(&named.ctx))
			named.ctx = NULL;
	}
	return named;
}

/* ---- places; the callers hold the lock */

static bool cuda_capture_same(const struct gm_capture_place *a, const struct gm_capture_place *b)
{
	return a->stream == b->stream && a->thread == b->thread && a->ctx == b->ctx;
}

/* The place of a stream; for an empty one, a free place. Returns NULL if it finds none. */
static struct gm_capture_place *cuda_capture_find(
	struct gm_captured *on, const struct gm_capture_place *named)
{
	for (struct gm_capture_places *places = &on->first; places; places = places->next)
		for (size_t i = 0; i < GM_CUDA_CAPTURED_PLACES; i++)
			if (cuda_capture_same(&places->at[i], named))
				return &places->at[i];
	return NULL;
}

static void cuda_capture_forget(struct gm_captured *on, struct gm_capture_place *place)
{
	*place = (struct gm_capture_place){0};
	atomic_fetch_sub_explicit(&on->n, 1, memory_order_release);
}

/* Whether a capture is over, as far as this thread can know. The driver answers for a thread's own default stream only
 * in that thread, and in its context. So elsewhere the capture goes on until the thread has ended. */
static bool cuda_capture_over(const struct gm_cuda *cuda, const struct gm_capture_place *place)
{
	const struct gm_capture_place named = cuda_capture_named(cuda, place->stream);

	if (cuda_capture_same(place, &named))
		return !cuda_capture_asked(cuda, place->stream);
	return tgkill(getpid(), place->thread, 0) < 0 && errno == ESRCH;
}

/* Frees the places of captures that are over; unless all is set, up to one that goes on. */
static void cuda_capture_forget_ended(const struct gm_cuda *cuda, struct gm_captured *on, bool all)
{
	for (struct gm_capture_places *places = &on->first; places; places = places->next)
		for (size_t i = 0; i < GM_CUDA_CAPTURED_PLACES; i++) {
			if (!places->at[i].stream)
				continue;
			if (cuda_capture_over(cuda, &places->at[i]))
				cuda_capture_forget(on, &places->at[i]);
			else if (!all)
				return;
		}
}

/* Makes more places only if each one holds a capture that goes on. NULL: no memory. */
static struct gm_capture_place *cuda_capture_free_place(
	const struct gm_cuda *cuda, struct gm_captured *on)
{
	const struct gm_capture_place none = {0};
	struct gm_capture_place *place = cuda_capture_find(on, &none);
	struct gm_capture_places *more;

	if (place)
		return place;

	cuda_capture_forget_ended(cuda, on, true);
	place = cuda_capture_find(on, &none);
	if (place)
		return place;

	more = calloc(1, sizeof(*more));
	if (!more)
		return NULL;
	more->next = on->first.next;
	on->first.next = more;
	return &more->at[0];
}

static void cuda_capture_remember(
	const struct gm_cuda *cuda, struct gm_captured *on, const struct gm_capture_place *named)
{
	struct gm_capture_place *place;

	if (cuda_capture_find(on, named))
		return;
	captured_by = cuda;
	place = cuda_capture_free_place(cuda, on);
	if (place)
		*place = *named;
	else if (on->lost)
		return;
	else
		on->lost = true; /* nobody can know when this capture ends */
	atomic_fetch_add_explicit(&on->n, 1, memory_order_release);
}

/* ---- questions */

void gm_cuda_not_captured(const struct gm_cuda *cuda, gm_cu_device device, gpumem_stream stream)
{
	struct gm_captured *on = cuda_capture_on(device);
	struct gm_capture_place *place;

	if (cuda_capture_is_legacy(stream) || !cuda_capture_any(on))
		return;

	const struct gm_capture_place named = cuda_capture_named(cuda, stream);
	gm_lock(&lock);
	place = cuda_capture_find(on, &named);
	if (place)
		cuda_capture_forget(on, place);
	gm_lock_drop(&lock);
}

bool gm_cuda_captured(const struct gm_cuda *cuda, gm_cu_device device, gpumem_stream stream)
{
	struct gm_captured *on = cuda_capture_on(device);
	struct gm_capture_place *place;
	bool is;

	/* This table does not know legacy default streams: callers ask the driver in the context, each time. */
	if (cuda_capture_is_legacy(stream))
		return cuda_capture_asked(cuda, stream);
	if (!cuda_capture_any(on) && !cuda_capture_asked(cuda, stream))
		return false;

	GM_UNCANCELLED;
	const struct gm_capture_place named = cuda_capture_named(cuda, stream);
	gm_lock(&lock);
	is = cuda_capture_asked(cuda, stream);
	if (is)
		cuda_capture_remember(cuda, on, &named);
	else if ((place = cuda_capture_find(on, &named)))
		cuda_capture_forget(on, place);
	gm_lock_drop(&lock);
	return is;
}

bool gm_cuda_capturing(const struct gm_cuda *cuda, gm_cu_device device)
{
	struct gm_captured *on = cuda_capture_on(device);
	bool is;

	if (atomic_load(&capture_announced))
		return true;
	if (!cuda_capture_any(on))
		return false;

	gm_lock(&lock);
	cuda_capture_forget_ended(cuda, on, false);
	is = cuda_capture_any(on);
	gm_lock_drop(&lock);
	return is;
}

/* ---- captures that are about to begin */

#define CAPTURE_PATIENCE_MS 1000

/* Counts this thread among those that keep captures out. Either the thread then sees the capture that is about to
 * begin, or gm_cuda_capture_begin() sees the thread. */
static void cuda_capture_count_in(void)
{
	if (__builtin_expect(!capture_counter, 0))
		capture_counter = atomic_fetch_add(&capture_threads, 1) % CAPTURE_COUNTERS + 1;
	atomic_fetch_add(&capture_kept_out[capture_counter - 1].n, 1);
}

bool gm_cuda_capture_keep_out(const struct gm_cuda *cuda, gm_cu_device device)
{
	cuda_capture_count_in();
	if (!gm_cuda_capturing(cuda, device))
		return true;
	gm_cuda_capture_let_in();
	return false;
}

bool gm_cuda_capture_keep_out_announced(void)
{
	cuda_capture_count_in();
	if (!atomic_load(&capture_announced))
		return true;
	gm_cuda_capture_let_in();
	return false;
}

void gm_cuda_capture_let_in(void)
{
	atomic_fetch_sub_explicit(
		&capture_kept_out[capture_counter - 1].n, 1, memory_order_release);
}

static bool cuda_capture_is_kept_out(void)
{
	for (size_t i = 0; i < CAPTURE_COUNTERS; i++)
		if (atomic_load(&capture_kept_out[i].n))
			return true;
	return false;
}

bool gm_cuda_capture_launch(const struct gm_cuda *cuda, gm_cu_device device, gpumem_stream stream)
{
	if (cuda_capture_is_legacy(stream) && !gm_cuda_capture_keep_out(cuda, device))
		return false;
	if (!gm_cuda_captured(cuda, device, stream))
		return true;
	gm_cuda_capture_launched(stream);
	return false;
}

void gm_cuda_capture_launched(gpumem_stream stream)
{
	if (cuda_capture_is_legacy(stream))
		gm_cuda_capture_let_in();
}

void gm_cuda_capture_begin(void)
{
	const struct timespec pause = {.tv_nsec = 1000 * 1000};
	GM_UNCANCELLED;

	atomic_fetch_add(&capture_announced, 1);
	for (int i = 0; i < 100 && cuda_capture_is_kept_out(); i++)
		sched_yield();
	for (int i = 0; i < CAPTURE_PATIENCE_MS && cuda_capture_is_kept_out(); i++)
		nanosleep(&pause, NULL);
}

void gm_cuda_capture_end(void)
{
	unsigned n = atomic_load(&capture_announced);
	GM_UNCANCELLED;

	/* The program may destroy the stream next, and then nobody may ask about it any more. */
	for (size_t i = 0; i < GM_BOUND_DEVICES; i++) {
		if (!cuda_capture_any(&captured[i]))
			continue;
		gm_lock(&lock);
		if (captured_by)
			cuda_capture_forget_ended(captured_by, &captured[i], true);
		gm_lock_drop(&lock);
	}

	/* An end too many, where nobody captures, does no harm. */
	while (n && !atomic_compare_exchange_weak(&capture_announced, &n, n - 1))
		;
}

/* ---- forked children */

/* Nobody captures in the child, whatever its parent's threads were doing: a child cannot use the driver that its parent has
 * used. Places that its parent has made stay, and are empty. */
static void cuda_capture_after_fork(void)
{
	gm_lock_init(&lock, GM_LOCK_LEAF);
	atomic_store(&capture_announced, 0);
	for (size_t i = 0; i < CAPTURE_COUNTERS; i++)
		atomic_store(&capture_kept_out[i].n, 0);
	for (size_t i = 0; i < GM_BOUND_DEVICES; i++) {
		struct gm_captured *on = &captured[i];

		for (struct gm_capture_places *places = &on->first; places; places = places->next)
			memset(places->at, 0, sizeof places->at);
		atomic_store(&on->n, 0);
		on->lost = false;
	}
}

static __attribute__((constructor)) void cuda_capture_prepare(void)
{
	pthread_atfork(NULL, NULL, cuda_capture_after_fork);
}
