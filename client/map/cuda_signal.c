/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See cuda_signal.h. To end a registration, the driver waits for all work that this process has launched,
 * and keeps other threads from launching meanwhile. If a stream waits for a signal of another process,
 * which in turn waits for one of this process, neither would ever go on. So registrations end only while
 * no stream of this process waits for a signal, and many at a time. If streams wait all the time, a page
 * for each block that was closed stays until the process ends.
 *
 * Whether a stream still waits, an event tells that was recorded after the wait. This module must never
 * decide that by what a block says: other processes write there, and one that takes a signal back, or
 * punches a hole into the memfd, would make the driver wait for ever.
 */
#include "client/map/cuda_signal.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <utlist.h>

#include "client/map/cuda_capture.h"
#include "client/map/cuda_event.h"
#include "common/lock.h"

/* So many blocks that nobody needs may stay registered. */
#define SIGNAL_CLOSED 64

struct signal_word {
	struct gm_map_control word; /* comes first */
	_Atomic gm_cu_ptr at;       /* where the device has the control block */
	struct signal_word *next;
};

/* A stream was told to wait. When the event has passed, it does not wait any more. */
struct signal_wait {
	struct gm_cuda_contexts *contexts; /* whom this wait uses */
	struct gm_cuda_event *event;       /* NULL: none could be recorded yet */
	struct signal_wait *prev, *next;
};

/* All of the process: the driver waits for the streams of all sessions. */
static struct {
	/* Held for reading while a stream is told to wait, and for writing while registrations end. */
	pthread_rwlock_t waiting;
	struct gm_lock lock; /* protects the rest */
	struct signal_word *closed;
	size_t n_closed;
	struct signal_wait *waits;
} words = {.waiting = PTHREAD_RWLOCK_INITIALIZER, .lock = GM_LOCK_INITIALIZER(GM_LOCK_LEAF)};

bool gm_cuda_signal_able(const struct gm_cuda *cuda, gm_cu_device device)
{
	int able = 0;

	return cuda->cuStreamWaitValue64 && cuda->cuStreamWriteValue64 &&
	       !cuda->cuDeviceGetAttribute(
		       &able, GM_CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device) &&
	       able;
}

/* ---- registering */

/* A context is current. */
static gm_cu_result signal_register(const struct gm_cuda *cuda, struct signal_word *word)
{
	struct gm_control *control = word->word.control;
	gm_cu_ptr at = 0;
	gm_cu_result result = cuda->cuMemHostRegister(control, GM_CONTROL_BYTES,
		GM_CU_MEMHOSTREGISTER_PORTABLE | GM_CU_MEMHOSTREGISTER_DEVICEMAP);

	if (result && result != GM_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
		return result;
	bool made = !result;
	result = cuda->cuMemHostGetDevicePointer(&at, control, 0);
	if (!result)
		atomic_store(&word->at, at);
	else if (made)
		(void)cuda->cuMemHostUnregister(control);
	return result;
}

int gm_cuda_signal_open(struct gm_cuda_contexts *contexts, int fd, struct gm_map_control **ret_word)
{
	struct gm_cuda_entered entered;
	if (!gm_cuda_signal_able(contexts->cuda, contexts->device))
		return -EOPNOTSUPP;
	struct signal_word *word = calloc(1, sizeof(*word));
	if (!word)
		return -ENOMEM;

	/* For writing, because the driver pins pages for that, and because a wait for a process that died
	 * ends by a store of this process. */
	int r = gm_map_control_init(&word->word, fd, false);
	if (r < 0) {
		free(word);
		return r;
	}
	gm_cu_result result = gm_cuda_contexts_enter(contexts, &entered);
	if (!result) {
		result = signal_register(contexts->cuda, word);
		gm_cuda_contexts_leave(contexts, &entered);
	}
	if (result) {
		gm_map_control_deinit(&word->word);
		free(word);
		return (int)result;
	}
	*ret_word = &word->word;
	return 0;
}

/* ---- streams that wait */

static int signal_wait_new(struct gm_cuda_contexts *contexts, struct signal_wait **ret_wait)
{
	struct signal_wait *wait = calloc(1, sizeof(*wait));
	if (!wait)
		return -ENOMEM;

	int r = gm_cuda_contexts_get(contexts->cuda, contexts->device, &wait->contexts);
	if (r < 0) {
		free(wait);
		return r;
	}
	*ret_wait = wait;
	return 0;
}

static void signal_wait_free(struct signal_wait *wait)
{
	gm_cuda_event_forget(wait->event);
	gm_cuda_contexts_put(wait->contexts);
	free(wait);
}

/* Whether the stream has gone on. After an error, it counts as one that waits. */
static bool signal_wait_over(struct signal_wait *wait)
{
	/* The program may have destroyed the stream by now, so the library records an event for all streams. During a capture it
	 * records none. */
	if (!wait->event && gm_cuda_event_record(wait->contexts, &wait->event))
		return false;
	return gm_cuda_event_passed(wait->event) == 0;
}

/* Looks at n waits, those that were looked at longest ago, and forgets those that have ended. */
static void signal_forget_ended(size_t n)
{
	struct signal_wait *wait, *first = NULL;

	while (n-- > 0) {
		gm_lock(&words.lock);
		wait = words.waits;
		if (wait == first)
			wait = NULL;
		if (wait)
			DL_DELETE(words.waits, wait);
		gm_lock_drop(&words.lock);
		if (!wait)
			return;

		if (signal_wait_over(wait)) {
			signal_wait_free(wait);
			continue;
		}
		first = first ? first : wait;
		gm_lock(&words.lock);
		DL_APPEND(words.waits, wait);
		gm_lock_drop(&words.lock);
	}
}

/* Notes that the stream waits. A capture that has begun since the stream was told to wait may keep the event from being
 * recorded: then signal_wait_over() records one, after the capture. */
static void signal_note(struct signal_wait *wait, gpumem_stream stream)
{
	(void)gm_cuda_event_record_on(wait->contexts, stream, &wait->event);
	gm_lock(&words.lock);
	DL_APPEND(words.waits, wait);
	gm_lock_drop(&words.lock);
}

void gm_cuda_signal_leave(void)
{
	pthread_rwlock_rdlock(&words.waiting);
	signal_forget_ended(SIZE_MAX);
	pthread_rwlock_unlock(&words.waiting);
}

/* ---- ending registrations */

/* Takes the closed blocks, unless a stream may wait for any block. The caller holds waiting for writing,
 * so that no wait is added, or taken out for a look. */
static struct signal_word *signal_take_closed(void)
{
	struct signal_word *taken = NULL;

	signal_forget_ended(SIZE_MAX);
	gm_lock(&words.lock);
	if (!words.waits) {
		taken = words.closed;
		words.closed = NULL;
		words.n_closed = 0;
	}
	gm_lock_drop(&words.lock);
	return taken;
}

/* The driver's errors are ignored: the registration went with its context or with the driver, or work of
 * this process has crashed the context. */
static void signal_end_closed(struct gm_cuda_contexts *contexts)
{
	struct signal_word *taken, *word, *tmp;
	struct gm_cuda_entered entered;

	/* If a stream is being told to wait right now, there will be another time. */
	if (pthread_rwlock_trywrlock(&words.waiting))
		return;
	if (gm_cuda_contexts_enter(contexts, &entered) == GM_CUDA_SUCCESS) {
		taken = signal_take_closed();
		LL_FOREACH_SAFE (taken, word, tmp) {
			(void)contexts->cuda->cuMemHostUnregister(word->word.control);
			gm_map_control_deinit(&word->word);
			free(word);
		}
		gm_cuda_contexts_leave(contexts, &entered);
	}
	pthread_rwlock_unlock(&words.waiting);
}

void gm_cuda_signal_close(struct gm_map_control *word)
{
	struct signal_word *closed = (struct signal_word *)word;

	gm_lock(&words.lock);
	LL_PREPEND(words.closed, closed);
	words.n_closed++;
	gm_lock_drop(&words.lock);
}

void gm_cuda_signal_settle(struct gm_cuda_contexts *contexts)
{
	gm_lock(&words.lock);
	bool many = words.n_closed > SIGNAL_CLOSED;
	gm_lock_drop(&words.lock);
	if (many)
		signal_end_closed(contexts);
}

/* ---- on the program's streams */

/* Enters a context for an operation on a stream of the program's. */
static int signal_enter(struct gm_cuda_contexts *contexts, gpumem_stream stream,
	struct gm_cuda_entered *ret_entered)
{
	if (!gm_cuda_signal_able(contexts->cuda, contexts->device))
		return -EOPNOTSUPP;
	gm_cu_result result = gm_cuda_contexts_enter(contexts, ret_entered);
	if (result)
		return (int)result;
	/* A graph would do it again at each launch. */
	if (gm_cuda_capture_launch(contexts->cuda, contexts->device, stream))
		return 0;
	gm_cuda_contexts_leave(contexts, ret_entered);
	return -EAGAIN;
}

static void signal_leave(
	struct gm_cuda_contexts *contexts, gpumem_stream stream, struct gm_cuda_entered *entered)
{
	gm_cuda_capture_launched(stream);
	gm_cuda_contexts_leave(contexts, entered);
}

typedef gm_cu_result (*signal_op)(
	const struct gm_cuda *cuda, gm_cu_stream stream, gm_cu_ptr at, uint64_t value);

static gm_cu_result signal_write(
	const struct gm_cuda *cuda, gm_cu_stream stream, gm_cu_ptr at, uint64_t value)
{
	gm_cu_result result = cuda->cuStreamWriteValue64(stream,
		at + offsetof(struct gm_control, last), value, GM_CU_STREAM_WRITE_VALUE_DEFAULT);

	if (result)
		return result;
	return cuda->cuStreamWriteValue64(stream, at + offsetof(struct gm_control, value), value,
		GM_CU_STREAM_WRITE_VALUE_DEFAULT);
}

static gm_cu_result signal_wait(
	const struct gm_cuda *cuda, gm_cu_stream stream, gm_cu_ptr at, uint64_t value)
{
	return cuda->cuStreamWaitValue64(stream, at + offsetof(struct gm_control, value), value,
		GM_CU_STREAM_WAIT_VALUE_GEQ);
}

static int signal_launch(struct gm_cuda_contexts *contexts, gpumem_stream stream,
	struct signal_word *word, uint64_t value, signal_op op)
{
	const struct gm_cuda *cuda = contexts->cuda;
	struct gm_cuda_entered entered;
	int r = signal_enter(contexts, stream, &entered);
	if (r)
		return r;

	gm_cu_result result = op(cuda, (gm_cu_stream)stream, atomic_load(&word->at), value);
	/* The registration goes with the context in which it was made, if the program destroys that. */
	if (result == GM_CUDA_ERROR_INVALID_VALUE && !signal_register(cuda, word))
		result = op(cuda, (gm_cu_stream)stream, atomic_load(&word->at), value);
	signal_leave(contexts, stream, &entered);
	return (int)result;
}

int gm_cuda_signal_post(struct gm_cuda_contexts *contexts, gpumem_stream stream,
	struct gm_map_control *word, uint64_t value)
{
	return signal_launch(contexts, stream, (struct signal_word *)word, value, signal_write);
}

int gm_cuda_signal_await(struct gm_cuda_contexts *contexts, gpumem_stream stream,
	struct gm_map_control *base, uint64_t value)
{
	struct signal_word *word = (struct signal_word *)base;
	struct signal_wait *wait;
	int r = signal_wait_new(contexts, &wait);
	if (r < 0)
		return r;

	/* A thread that looks whether a stream waits holds the lock for writing. */
	pthread_rwlock_rdlock(&words.waiting);
	r = signal_launch(contexts, stream, word, value, signal_wait);
	if (r == 0)
		signal_note(wait, stream);
	else
		signal_wait_free(wait);
	/* So there are never many more than streams wait. */
	signal_forget_ended(2);
	pthread_rwlock_unlock(&words.waiting);
	return r;
}
