/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See copy_pipe.h. A transfer is a row of pieces, and piece k uses slot k modulo the number of slots.
 * Four counters say how far the pieces have come; each only grows:
 *
 *   next    taken by a thread, which moves it
 *   moved   all before it are moved
 *   sent    given to the driver
 *   landed  all before it are done by the device
 *
 * On the way in, a piece is moved, then sent, then landed; on the way out it is sent, landed, moved. A
 * slot is used again when its last piece has come to the end of its way.
 *
 * This module must never return while a thread of its own runs, or while the device uses the program's
 * memory, unless the driver can no longer tell whether it has finished.
 */
#include "client/copy/copy_pipe.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/device/map_await.h"
#include "client/device/map_chunks.h"
#include "client/map/map.h"
#include "common/arith.h"
#include "common/clock.h"
#include "common/cond.h"
#include "common/lock.h"
#include "common/stack.h"

/* How many pieces the driver has at a time if it needs no slots. */
#define PIPE_DRIVER_DEPTH 2
/* How soon the device is asked again, and how soon the program's wish to cancel is noticed while
 * threads are at work. */
#define PIPE_ASK_LEAST_NS (5 * GM_NS_PER_US)
#define PIPE_ASK_MOST_NS  (100 * GM_NS_PER_US)
#define PIPE_LOOK_NS      (5 * GM_NS_PER_MS)

struct pipe_slot {
	bool moved;
	size_t n; /* bytes of the piece that was moved last */
	struct gm_map_event *event;
};

struct copy_pipe {
	struct gm_copy_transfer *copy;
	enum gm_copy_way way;
	const struct gm_copy_slots *through; /* NULL: the pieces need no slots of their own */
	size_t piece;
	uint32_t slots;
	uint64_t asked; /* bytes */

	/* Used only by the calling thread. */
	uint64_t sent, landed;
	uint64_t told;               /* bytes */
	struct gm_map_event *before; /* nothing is sent until it has passed; NULL: none */
	bool cancelled;
	int refused; /* by the driver; 0: nothing */
	bool unsure; /* the device does not say when it is done */
	char why[128];

	struct gm_lock lock;    /* protects the rest */
	pthread_cond_t came;    /* a piece was moved */
	pthread_cond_t room;    /* pieces can be moved */
	uint64_t total, pieces; /* fewer than asked for, once the end of the input was found */
	uint64_t next, moved;
	uint64_t limit; /* pieces before this one can be moved */
	bool stop;
	int error; /* of moving; 0: none */
	struct pipe_slot slot[GPUMEM_COPY_SLOTS_MOST];
};

/* ---- moving */

static size_t pipe_length(const struct copy_pipe *pipe, uint64_t k)
{
	return (size_t)gm_u64_min(pipe->piece, pipe->asked - k * pipe->piece);
}

static uint8_t *pipe_place(const struct copy_pipe *pipe, uint64_t k)
{
	return pipe->through ? pipe->through->memory + k % pipe->slots * pipe->piece
			     : pipe->copy->at + k * pipe->piece;
}

/* Moves the next piece. The lock is held, but not meanwhile. */
static void pipe_move(struct copy_pipe *pipe)
{
	struct gm_copy_transfer *copy = pipe->copy;
	uint64_t k = pipe->next++;
	size_t n = pipe_length(pipe, k), got = n;

	gm_lock_drop(&pipe->lock);
	int r = copy->move(copy->ctx, k * pipe->piece, pipe_place(pipe, k), n, &got);
	gm_lock(&pipe->lock);

	if (r) {
		if (!pipe->error)
			pipe->error = r;
		pipe->stop = true;
	} else {
		if (got < n) {
			pipe->total = k * pipe->piece + got;
			pipe->pieces = k + (got > 0);
		}
		pipe->slot[k % pipe->slots].n = got;
		pipe->slot[k % pipe->slots].moved = true;
	}
	while (pipe->moved < pipe->pieces && pipe->slot[pipe->moved % pipe->slots].moved)
		pipe->slot[pipe->moved++ % pipe->slots].moved = false;
	pthread_cond_signal(&pipe->came);
}

static bool pipe_movable(const struct copy_pipe *pipe)
{
	return !pipe->stop && pipe->next < gm_u64_min(pipe->pieces, pipe->limit);
}

static void *pipe_run_thread(void *ctx)
{
	struct copy_pipe *pipe = ctx;

	gm_lock(&pipe->lock);
	while (!pipe->stop && pipe->next < pipe->pieces) {
		if (pipe_movable(pipe))
			pipe_move(pipe);
		else
			gm_lock_wait(&pipe->lock, &pipe->room);
	}
	gm_lock_drop(&pipe->lock);
	return NULL;
}

/* Returns how many threads there are: as many as the system lets the program have. */
static uint32_t pipe_start_threads(struct copy_pipe *pipe, pthread_t *threads, uint32_t wanted)
{
	/* A fault in the program's memory is for the program's handler, if it has one. */
	static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
	pthread_attr_t attributes;
	sigset_t all, old;
	uint32_t n = 0;

	if (gm_stack_attr_init(&attributes))
		return 0;
	sigfillset(&all);
	for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
		sigdelset(&all, faults[i]);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (n < wanted && pthread_create(&threads[n], &attributes, pipe_run_thread, pipe) == 0)
		(void)pthread_setname_np(threads[n++], "gpumem-copy");
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attributes);
	return n;
}

/* ---- the device */

static void pipe_refused(struct copy_pipe *pipe, int r)
{
	pipe->refused = r;
	snprintf(pipe->why, sizeof(pipe->why), "%s", gm_map_chunks_error(pipe->copy->device, r));
}

/*
 * Records an event after the pieces that were sent: only an event says that the device has finished with
 * the memory. -EAGAIN: a stream is being captured; later it can be recorded.
 */
static int pipe_record(struct copy_pipe *pipe, struct pipe_slot *slot)
{
	const struct gm_session_device *d = pipe->copy->device;
	int r = d->map->record_on(d->backend, pipe->copy->stream, &slot->event);

	if (r < 0)
		slot->event = NULL;
	return r;
}

/* Whether the driver itself would put the bytes into pinned memory. */
static bool pipe_is_pageable(const struct copy_pipe *pipe)
{
	return pipe->through ? !pipe->through->pinned
			     : pipe->way == GM_COPY_WAY_DRIVER && pipe->copy->pageable;
}

/*
 * Lets a transfer of pageable memory begin only when the stream's work is done. The driver's call would wait
 * for that, and until it returns, other threads that make a stream or allocate memory wait, too: if one of
 * them is what the stream waits for, for good.
 */
static void pipe_begin(struct copy_pipe *pipe)
{
	const struct gm_session_device *d = pipe->copy->device;
	if (!pipe_is_pageable(pipe))
		return;

	int r = d->map->record_on(d->backend, pipe->copy->stream, &pipe->before);
	if (r < 0) {
		pipe->before = NULL;
		pipe_refused(pipe, r);
	}
}

/* Whether the stream's work before the transfer is done. */
static bool pipe_begun(struct copy_pipe *pipe)
{
	const struct gm_session_device *d = pipe->copy->device;
	if (!pipe->before)
		return true;

	int r = gm_map_take_passed(d->map, d->backend, &pipe->before);
	if (r < 0 && r != -EAGAIN)
		pipe_refused(pipe, r);
	return r == 1;
}

/* Gives the driver the next piece. false: it refuses. */
static bool pipe_send(struct copy_pipe *pipe)
{
	struct gm_copy_transfer *copy = pipe->copy;
	const struct gm_session_device *d = copy->device;
	uint64_t k = pipe->sent;
	uint8_t *there = copy->at + k * pipe->piece;
	uint8_t *here = pipe->way == GM_COPY_WAY_DRIVER ? copy->memory + k * pipe->piece
							: pipe_place(pipe, k);
	size_t n =
		pipe->way == GM_COPY_WAY_IN ? pipe->slot[k % pipe->slots].n : pipe_length(pipe, k);

	int r = d->map->copy(
		d->backend, copy->out ? here : there, copy->out ? there : here, n, copy->stream);
	if (r < 0) {
		pipe_refused(pipe, r);
		return false;
	}

	pipe->sent++;
	r = pipe_record(pipe, &pipe->slot[k % pipe->slots]);
	/* From now on nothing is sent; what was sent is waited for. */
	if (r < 0)
		pipe_refused(pipe, r);
	return r == 0;
}

/* Whether the oldest piece has landed. */
static bool pipe_land(struct copy_pipe *pipe)
{
	const struct gm_session_device *d = pipe->copy->device;
	struct pipe_slot *slot = &pipe->slot[pipe->landed % pipe->slots];
	int r = gm_map_take_passed(d->map, d->backend, &slot->event);

	if (r < 0)
		pipe_refused(pipe, r);
	if (r <= 0)
		return false;
	pipe->landed++;
	return true;
}

/* How many pieces the driver may have by now. */
static uint64_t pipe_sendable(const struct copy_pipe *pipe, uint64_t moved, uint64_t pieces)
{
	switch (pipe->way) {
	case GM_COPY_WAY_IN:
		return moved;
	case GM_COPY_WAY_OUT:
		return gm_u64_min(pieces, moved + pipe->slots);
	case GM_COPY_WAY_DRIVER:
		return gm_u64_min(pieces, pipe->landed + PIPE_DRIVER_DEPTH);
	case GM_COPY_WAY_CPU:
		break;
	}
	return 0;
}

/* Sends what can be sent and sees what has landed. */
static void pipe_drive(struct copy_pipe *pipe, uint64_t moved, uint64_t pieces)
{
	if (!pipe_begun(pipe))
		return;
	while (!pipe->refused && pipe->sent < pipe_sendable(pipe, moved, pieces))
		if (!pipe_send(pipe))
			return;
	while (!pipe->refused && pipe->landed < pipe->sent)
		if (!pipe_land(pipe))
			return;
}

/* Makes sure that there is an event for a piece that was sent. Waits for the end of a capture. */
static int pipe_await_record(struct copy_pipe *pipe, struct pipe_slot *slot)
{
	int r = 0;

	while (!slot->event && (r = pipe_record(pipe, slot)) == -EAGAIN)
		nanosleep(&(struct timespec){.tv_nsec = PIPE_ASK_MOST_NS}, NULL);
	return r;
}

/* Waits for all pieces that the driver has. Those after one that failed do not count as landed. */
static void pipe_drain(struct copy_pipe *pipe)
{
	const struct gm_session_device *d = pipe->copy->device;
	bool failed = false;

	if (pipe->before)
		d->map->forget(d->backend, pipe->before);
	for (uint64_t k = pipe->landed; k < pipe->sent; k++) {
		struct pipe_slot *slot = &pipe->slot[k % pipe->slots];
		int r = pipe_await_record(pipe, slot);

		if (r == 0) {
			r = gm_map_await_event(d, slot->event);
			d->map->forget(d->backend, slot->event);
			slot->event = NULL;
		}
		if (r < 0 && !pipe->refused)
			pipe_refused(pipe, r);
		if (r < 0)
			failed = pipe->unsure = true;
		else if (!failed)
			pipe->landed++;
	}
}

/* ---- the calling thread */

/* How many pieces have arrived. */
static uint64_t pipe_arrived(const struct copy_pipe *pipe)
{
	return pipe->way == GM_COPY_WAY_IN || pipe->way == GM_COPY_WAY_DRIVER ? pipe->landed
									      : pipe->moved;
}

static uint64_t pipe_movable_before(const struct copy_pipe *pipe)
{
	switch (pipe->way) {
	case GM_COPY_WAY_IN:
		return pipe->landed + pipe->slots;
	case GM_COPY_WAY_OUT:
		return pipe->landed;
	case GM_COPY_WAY_CPU:
		return pipe->moved + pipe->slots;
	case GM_COPY_WAY_DRIVER:
		break;
	}
	return 0;
}

/* Tells the program how far it is, and hears whether to go on. The lock is not held. */
static void pipe_tell(struct copy_pipe *pipe, uint64_t done)
{
	const gpumem_copy_options *options = &pipe->copy->options;

	if (options->progress && done > pipe->told) {
		pipe->told = done;
		if (options->progress(options->user, done, pipe->asked))
			pipe->cancelled = true;
	}
	if (options->cancel && __atomic_load_n(options->cancel, __ATOMIC_ACQUIRE))
		pipe->cancelled = true;
}

/* Sleeps until a thread has moved a piece, or until it is time to ask the device again. Locked. */
static void pipe_sleep(struct copy_pipe *pipe, uint64_t *pause_ns)
{
	bool device = pipe->before || pipe->landed < pipe->sent;

	(void)gm_lock_wait_until(
		&pipe->lock, &pipe->came, gm_clock_ns() + (device ? *pause_ns : PIPE_LOOK_NS));
	*pause_ns = gm_u64_min(2 * *pause_ns, PIPE_ASK_MOST_NS);
}

/* Locked. */
static void pipe_loop(struct copy_pipe *pipe, bool alone)
{
	uint64_t pause_ns = PIPE_ASK_LEAST_NS;

	while (!pipe->stop && pipe_arrived(pipe) < pipe->pieces) {
		uint64_t moved = pipe->moved, arrived = pipe_arrived(pipe), sent = pipe->sent;
		uint64_t pieces = pipe->pieces, limit;

		gm_lock_drop(&pipe->lock);
		pipe_tell(pipe, gm_u64_min(arrived * pipe->piece, pipe->asked));
		if (!pipe->cancelled)
			pipe_drive(pipe, moved, pieces);
		gm_lock(&pipe->lock);

		if (pipe->cancelled || pipe->refused)
			pipe->stop = true;
		limit = pipe_movable_before(pipe);
		if (limit != pipe->limit) {
			pipe->limit = limit;
			pthread_cond_broadcast(&pipe->room);
		}
		if (alone && pipe_movable(pipe))
			pipe_move(pipe);
		else if (!pipe->stop && moved == pipe->moved && sent == pipe->sent &&
			 arrived == pipe_arrived(pipe))
			pipe_sleep(pipe, &pause_ns);
		else
			pause_ns = PIPE_ASK_LEAST_NS;
	}
	pipe->stop = true;
	atomic_store(&pipe->copy->stopping, true);
	pthread_cond_broadcast(&pipe->room);
}

/* ---- the outcome */

static gpumem_status pipe_outcome(const struct copy_pipe *pipe)
{
	const struct gm_copy_transfer *copy = pipe->copy;
	unsigned long long bytes = copy->result.bytes, asked = pipe->asked;

	if (pipe_arrived(pipe) >= pipe->pieces)
		return GPUMEM_OK;
	if (pipe->refused == -EAGAIN)
		return gm_error(GPUMEM_E_BUSY,
			GM_MAP_AWAIT_CAPTURED ", so nothing more can be copied: %llu of %llu bytes "
					      "were copied; copy after the capture",
			bytes, asked);
	if (pipe->refused == -EINVAL)
		return gm_error(GPUMEM_E_INVALID,
			"the driver refused the copy after %llu of %llu bytes (%s): stream must be "
			"open and one of device %u, and the host memory must be there",
			bytes, asked, pipe->why, copy->device->info.number);
	if (pipe->refused)
		return gm_error(GPUMEM_E_SYSTEM, "the copy failed after %llu of %llu bytes: %s",
			bytes, asked, pipe->why);
	if (pipe->error && pipe->error != -ECANCELED)
		return copy->explain(copy, pipe->error);
	return gm_error(GPUMEM_E_CANCELLED, "the transfer was cancelled after %llu of %llu bytes",
		bytes, asked);
}

gpumem_status gm_copy_pipe(struct gm_copy_transfer *copy, enum gm_copy_way way,
	const struct gm_copy_slots *through, size_t piece, uint32_t threads, bool *ret_done)
{
	pthread_t thread[GPUMEM_COPY_THREADS_MOST];
	struct copy_pipe pipe = {.copy = copy,
		.asked = copy->total,
		.total = copy->total,
		.way = way,
		.through = through,
		.piece = piece,
		.slots = through ? through->n : GPUMEM_COPY_SLOTS_MOST,
		.pieces = (copy->total + piece - 1) / piece};

	gm_lock_init(&pipe.lock, GM_LOCK_LEAF);
	gm_cond_init(&pipe.came);
	pthread_cond_init(&pipe.room, NULL);
	pipe_tell(&pipe, 0);

	if (!pipe.cancelled)
		pipe_begin(&pipe);

	threads = pipe.cancelled || pipe.refused ? 0 : (uint32_t)gm_u64_min(threads, pipe.pieces);
	uint32_t n = pipe_start_threads(&pipe, thread, threads);
	gm_lock(&pipe.lock);
	pipe.stop = pipe.cancelled || pipe.refused;
	pipe_loop(&pipe, n == 0);
	gm_lock_drop(&pipe.lock);
	for (uint32_t i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	pipe_drain(&pipe);

	copy->result.threads = n;
	copy->result.bytes = gm_u64_min(pipe_arrived(&pipe) * piece, pipe.total);
	if (pipe_arrived(&pipe) >= pipe.pieces)
		pipe_tell(&pipe, copy->result.bytes);
	*ret_done = !pipe.unsure;
	gpumem_status status = pipe_outcome(&pipe);
	pthread_cond_destroy(&pipe.room);
	pthread_cond_destroy(&pipe.came);
	gm_lock_deinit(&pipe.lock);
	return status;
}
