/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ordering between processes: the maker of a buffer signals growing values, and processes that opened
 * the buffer wait for them. Both go through a control block in host memory (common/control.h). On a GPU,
 * streams write and wait by themselves. On the host, a wait is a futex.
 *
 * If the maker goes, nobody would ever release those waits. The daemon tells each opener, and its
 * library's thread does it: for streams it stores GM_CONTROL_LOST, on the host it wakes the threads that
 * wait. Which value the maker reached stays in the word beside, so every process knows which of its waits
 * were lost.
 */
#include "client/share/buffer_signal.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#include "client/buffer/gpumem_buffer.h"
#include "client/map/map.h"
#include "client/map/map_control.h"
#include "client/session/session_call.h"
#include "common/arith.h"
#include "common/cancel.h"
#include "common/clock.h"

/* How soon the library's thread looks again: at a thread that was about to wait; and at a block that it
 * released, or at a daemon that did not answer. */
#define WAKE_NS  (1 * GM_NS_PER_MS)
#define AGAIN_NS (1 * GM_NS_PER_S)
/* How soon a thread looks again at a value that a stream writes, which wakes nobody: at first, and in the long run. */
#define LOOK_LEAST_NS (20 * GM_NS_PER_US)
#define LOOK_MOST_NS  (1 * GM_NS_PER_MS)
/* In one message. */
#define MAKERS_ASKED 512

static const struct gm_session_device *signal_device(const struct gpumem_buffer *buffer)
{
	return &buffer->session->device[buffer->device];
}

static struct gm_control *signal_control(const struct gpumem_buffer *buffer)
{
	return buffer->signals.word->control;
}

static void signal_wake(struct gm_control *control)
{
	(void)syscall(SYS_futex, &control->wakeup, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- calls of the program */

static gpumem_status signal_check(const gpumem_buffer *buffer, uint64_t value)
{
	if (!buffer)
		return gm_error(GPUMEM_E_INVALID, "buffer must not be NULL");
	if (!gm_session_ok(buffer->session))
		return gm_session_refused(buffer->session);
	if (!buffer->signals.word)
		return gm_error(GPUMEM_E_UNSUPPORTED,
			"this buffer was created without signals: create one with signals");
	if (!value || value > GM_CONTROL_MOST)
		return gm_error(GPUMEM_E_INVALID, "value must be from 1 to %llu; %llu was given",
			(unsigned long long)GM_CONTROL_MOST, (unsigned long long)value);
	return GPUMEM_OK;
}

static void signal_post_now(struct gpumem_buffer *buffer, uint64_t value)
{
	struct gm_control *control = signal_control(buffer);

	/* The value that was reached comes first: if the maker dies in between, that is no loss. */
	atomic_store(&control->last, value);
	atomic_store(&control->value, value);
	atomic_fetch_add(&control->wakeup, 1);
	signal_wake(control);
}

static int signal_post(struct gpumem_buffer *buffer, gpumem_stream stream, uint64_t value)
{
	const struct gm_session_device *d = signal_device(buffer);

	if (!d->map->post || stream == GPUMEM_STREAM_DONE) {
		signal_post_now(buffer, value);
		return 0;
	}
	if (d->map->here)
		(void)d->map->here(d->backend);
	return d->map->post(d->backend, stream, buffer->signals.word, value);
}

gpumem_status gpumem_buffer_signal(gpumem_buffer *buffer, gpumem_stream stream, uint64_t value)
{
	GM_UNCANCELLED;
	gpumem_status status = signal_check(buffer, value);
	if (status)
		return status;
	if (buffer->opened)
		return gm_error(GPUMEM_E_DENIED,
			"only the process that created a buffer can signal on it; to answer, create "
			"another one");
	if (stream == GPUMEM_STREAM_ANY)
		return gm_error(GPUMEM_E_INVALID,
			"a signal follows the work of one stream: name one, or say that no work is left");

	/* So that values grow whichever thread signals. */
	gm_lock(&buffer->signals.lock);
	if (value <= buffer->signals.sent) {
		status = gm_error(GPUMEM_E_INVALID,
			"value must be above the last one, which was %llu; %llu was given",
			(unsigned long long)buffer->signals.sent, (unsigned long long)value);
	} else {
		int r = signal_post(buffer, stream, value);
		if (r == 0)
			buffer->signals.sent = value;
		else
			status = gm_signals_failed(signal_device(buffer), r, "signal");
	}
	gm_lock_drop(&buffer->signals.lock);
	return status;
}

static gpumem_status signal_lost(uint64_t value, uint64_t last)
{
	return gm_error(GPUMEM_E_CANCELLED,
		"the process that created the buffer has destroyed it or ended; its last signal was "
		"%llu, and %llu will not come",
		(unsigned long long)last, (unsigned long long)value);
}

/* Whether the value was reached, is lost, or may still come: GPUMEM_OK with *ret_reached, or
 * GPUMEM_E_CANCELLED. */
static gpumem_status signal_look(
	const struct gpumem_buffer *buffer, uint64_t value, bool *ret_reached)
{
	const struct gm_control *control = signal_control(buffer);
	/* In this order: what the maker wrote before it went is there when orphaned is set, and the last
	 * signal before the block is released. */
	bool orphaned = atomic_load(&buffer->signals.orphaned);
	/* The library of another process may have heard of it first. */
	bool lost = atomic_load(&control->value) == GM_CONTROL_LOST;
	uint64_t last = atomic_load(&control->last);

	*ret_reached = last >= value;
	if (!*ret_reached && (orphaned || lost))
		return signal_lost(value, last);
	return GPUMEM_OK;
}

/* Sleeps until the signals ring, or for ns at most; UINT64_MAX: until they ring. */
static void signal_sleep(struct gm_control *control, uint32_t wakeup, uint64_t ns)
{
	const struct timespec most = {
		.tv_sec = (time_t)(ns / GM_NS_PER_S), .tv_nsec = (long)(ns % GM_NS_PER_S)};

	(void)syscall(SYS_futex, &control->wakeup, FUTEX_WAIT, wakeup,
		ns == UINT64_MAX ? NULL : &most, NULL, 0);
}

/* Waits on the host, until end_ns at the latest. */
static gpumem_status signal_wait_here(struct gpumem_buffer *buffer, uint64_t value, uint64_t end_ns)
{
	struct gm_control *control = signal_control(buffer);
	uint64_t look_ns = signal_device(buffer)->map->await ? LOOK_LEAST_NS : UINT64_MAX;
	gpumem_status status;
	bool reached;

	atomic_fetch_add(&buffer->signals.waiting, 1);
	for (;;) {
		uint32_t wakeup = atomic_load(&control->wakeup);
		status = signal_look(buffer, value, &reached);
		if (status || reached)
			break;
		uint64_t now = gm_clock_ns();
		if (now >= end_ns) {
			status = gm_error(GPUMEM_E_TIMEOUT,
				"the value %llu was not signalled in time; the last signal was %llu",
				(unsigned long long)value,
				(unsigned long long)atomic_load(&control->last));
			break;
		}
		uint64_t left_ns = end_ns == UINT64_MAX ? UINT64_MAX : end_ns - now;
		signal_sleep(control, wakeup, gm_u64_min(left_ns, look_ns));
		if (look_ns != UINT64_MAX)
			look_ns = gm_u64_min(2 * look_ns, LOOK_MOST_NS);
	}
	atomic_fetch_sub(&buffer->signals.waiting, 1);
	return status;
}

/* When a wait that begins now gives up. */
static uint64_t signal_wait_end(uint32_t timeout_ms)
{
	if (timeout_ms == GPUMEM_WAIT_FOREVER)
		return UINT64_MAX;
	return gm_clock_ns() + (timeout_ms == GPUMEM_NO_WAIT ? 0 : timeout_ms) * GM_NS_PER_MS;
}

gpumem_status gpumem_buffer_wait(
	gpumem_buffer *buffer, gpumem_stream stream, uint64_t value, uint32_t timeout_ms)
{
	GM_UNCANCELLED;
	gpumem_status status = signal_check(buffer, value);
	if (status)
		return status;
	if (stream == GPUMEM_STREAM_ANY || stream == GPUMEM_STREAM_DONE)
		return gm_error(GPUMEM_E_INVALID, "stream must be one stream");

	const struct gm_session_device *d = signal_device(buffer);
	if (!d->map->await || timeout_ms != GPUMEM_WAIT_FOREVER)
		return signal_wait_here(buffer, value, signal_wait_end(timeout_ms));
	if (atomic_load(&buffer->signals.orphaned)) {
		bool reached;
		return signal_look(buffer, value, &reached);
	}
	if (d->map->here)
		(void)d->map->here(d->backend);
	int r = d->map->await(d->backend, stream, buffer->signals.word, value);
	return r < 0 ? gm_signals_failed(d, r, "wait") : GPUMEM_OK;
}

gpumem_status gpumem_buffer_lost(gpumem_buffer *buffer, uint64_t value)
{
	bool reached;
	GM_UNCANCELLED;
	gpumem_status status = signal_check(buffer, value);
	return status ? status : signal_look(buffer, value, &reached);
}

/* ---- asking the daemon for makers */

/* Leases that this process opened, and which of them have no maker any more. */
struct signal_makers {
	size_t n;
	struct signal_maker {
		uint64_t id, epoch;
		bool gone;
	} lease[];
};

struct signal_makers_call {
	struct gm_conn_request call;
	size_t n;
	uint64_t gone[MAKERS_ASKED];
};

static int signal_makers_take(
	struct gm_conn_request *base, const Gm__Wire__Packet *packet, struct gm_conn_packet *in)
{
	struct signal_makers_call *call = (struct signal_makers_call *)base;

	if (packet->body_case != GM__WIRE__PACKET__BODY_MAKERS ||
		packet->makers->n_gone > MAKERS_ASKED)
		return -EPROTO;
	call->n = packet->makers->n_gone;
	for (size_t i = 0; i < call->n; i++)
		call->gone[i] = packet->makers->gone[i];
	return 0;
}

static void signal_makers_late(struct gm_conn_request *call)
{
	free(call);
}

static const struct gm_conn_request_ops signal_makers_ops = {
	.take = signal_makers_take, .late = signal_makers_late};

/* Whether the library's thread has something to do for the buffer. The session's lock is held. */
static bool signal_makers_concern(const struct gpumem_buffer *buffer)
{
	return buffer->signals.word && buffer->opened && !buffer->signals.released;
}

/* Lists the leases to ask for. NULL: there are none, or no memory (-ENOMEM in *ret_error). */
static struct signal_makers *signal_makers_list(struct gpumem_session *session, int *ret_error)
{
	struct gpumem_buffer *buffer;
	size_t n = 0;

	gm_lock(&session->lock);
	DL_FOREACH (session->buffers->first, buffer)
		n += signal_makers_concern(buffer);
	struct signal_makers *makers =
		n ? calloc(1, sizeof(*makers) + n * sizeof(makers->lease[0])) : NULL;
	*ret_error = n && !makers ? -ENOMEM : 0;
	DL_FOREACH (makers ? session->buffers->first : NULL, buffer)
		if (signal_makers_concern(buffer))
			makers->lease[makers->n++] = (struct signal_maker){
				.id = buffer->lease->held.lease,
				.epoch = buffer->lease->held.epoch,
				/* A daemon that was restarted without its keeper does not know the
				 * lease, so it would never tell. */
				.gone = buffer->lease->held.epoch != session->epoch ||
					atomic_load(&buffer->signals.orphaned),
			};
	gm_lock_drop(&session->lock);
	return makers;
}

static struct signal_maker *signal_makers_find(
	struct signal_makers *makers, uint64_t id, uint64_t epoch)
{
	for (size_t i = 0; i < makers->n; i++)
		if (makers->lease[i].id == id && makers->lease[i].epoch == epoch)
			return &makers->lease[i];
	return NULL;
}

/* Asks for some of them, from the given one on. Returns the next one to ask for, or 0: the daemon did
 * not answer. */
static size_t signal_makers_ask(
	struct gpumem_session *session, struct signal_makers *makers, size_t from)
{
	struct signal_makers_call *ask = calloc(1, sizeof(*ask));
	uint64_t ids[MAKERS_ASKED], epoch = 0;
	size_t i = from, n = 0;
	if (!ask)
		return 0;

	for (; i < makers->n && n < MAKERS_ASKED; i++) {
		if (makers->lease[i].gone)
			continue;
		epoch = makers->lease[i].epoch;
		ids[n++] = makers->lease[i].id;
	}
	ask->call.ops = &signal_makers_ops;
	ask->call.of_epoch = epoch;
	ask->call.wait.mode = GM_WAIT_NOT;
	Gm__Wire__GetMakers body = GM__WIRE__GET_MAKERS__INIT;
	body.n_leases = n;
	body.leases = ids;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(GET_MAKERS, get_makers, &body);

	struct gm_conn_request *call = &ask->call;
	gpumem_status status = n ? gm_session_call(session, NULL, &packet, &call) : GPUMEM_OK;
	for (size_t j = 0; !status && j < ask->n; j++) {
		struct signal_maker *lease = signal_makers_find(makers, ask->gone[j], epoch);
		if (lease)
			lease->gone = true;
	}
	free(call);
	return status ? 0 : i;
}

/* ---- releasing */

/* Releases all waits for the signals of a buffer whose maker is gone. Returns when to do that again. */
static uint64_t signal_release(struct gpumem_buffer *buffer)
{
	const struct gm_session_device *d = signal_device(buffer);
	struct gm_control *control = signal_control(buffer);

	atomic_store(&buffer->signals.orphaned, true);
	if (d->map->await) {
		/* A stream of the maker may have written after it; so this looks once more. */
		buffer->signals.released =
			atomic_exchange(&control->value, GM_CONTROL_LOST) == GM_CONTROL_LOST;
		return buffer->signals.released ? UINT64_MAX : gm_clock_ns() + AGAIN_NS;
	}
	/* A thread that did not see the flag may begin to wait just after it is woken. */
	bool waiting = atomic_load(&buffer->signals.waiting) > 0;
	signal_wake(control);
	buffer->signals.released = !waiting;
	return waiting ? gm_clock_ns() + WAKE_NS : UINT64_MAX;
}

/* Releases what waits for makers that are gone. */
static uint64_t signal_release_gone(struct gpumem_session *session, struct signal_makers *makers)
{
	struct gpumem_buffer *buffer;
	uint64_t at = UINT64_MAX;

	/* A buffer that is in the list is mapped. */
	gm_lock(&session->lock);
	DL_FOREACH (session->buffers->first, buffer) {
		if (!signal_makers_concern(buffer))
			continue;
		const struct gm_lease_return_item *held = &buffer->lease->held;
		const struct signal_maker *lease =
			signal_makers_find(makers, held->lease, held->epoch);
		if (lease && lease->gone)
			at = gm_u64_min(at, signal_release(buffer));
	}
	gm_lock_drop(&session->lock);
	return at;
}

uint64_t gm_buffer_signal_settle(struct gpumem_session *session)
{
	int error;
	struct signal_makers *makers = signal_makers_list(session, &error);
	if (!makers)
		return error ? gm_clock_ns() + AGAIN_NS : UINT64_MAX;

	size_t from = 0;
	do
		from = signal_makers_ask(session, makers, from);
	while (from && from < makers->n);
	uint64_t at = signal_release_gone(session, makers);
	free(makers);
	/* If the daemon is away, the session is resumed first. */
	return from ? at : gm_u64_min(at, gm_clock_ns() + AGAIN_NS);
}
