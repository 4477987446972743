/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One end of a ring, over memory that is there already. gpumem_ring_device.h has the sending and
 * receiving itself, the same as a kernel uses; this file adds what only a process can do: it waits, wakes
 * the other end, and says in a sentence what is wrong.
 */
#include "client/ring/ring.h"

#include <stdlib.h>
#include <string.h>

#include "client/buffer/signals.h"
#include "client/ring/ring_owner.h"
#include "client/ring/ring_wait.h"
#include "client/session/gpumem_session.h"
#include "common/cancel.h"
#include "common/clock.h"

/* Two cache lines: processors fetch them in pairs. */
#define RING_APART 128

struct gpumem_ring {
	gpumem_buffer *buffer;   /* NULL: the memory is not the ring's */
	gpumem_session *session; /* NULL: the same */
	void *memory;
	struct gm_ring_shape shape;
	bool far;
	bool lent;   /* a kernel has this end now */
	bool kernel; /* a kernel has the far end, which may be this one */
	bool silent; /* this end has hung up */
	gpumem_ring_full full;
	uint32_t wait_ms;

	/* Each is used by one thread. */
	__attribute__((aligned(RING_APART))) gpumem_ring_sender sender;
	struct gm_ring_spin sender_spin;
	uint64_t told_head; /* the receiver was woken for all messages before */
	__attribute__((aligned(RING_APART))) gpumem_ring_receiver receiver;
	struct gm_ring_spin receiver_spin;
	uint64_t told_tail;
};

/* ---- an end */

gpumem_status gm_ring_options_check(
	const gpumem_ring_options *options, gpumem_ring_options *ret_given)
{
	gpumem_ring_options given = GPUMEM_RING_OPTIONS_INIT;
	gpumem_status status = gm_sized_in(&given, sizeof(given), options);
	if (status)
		return status;

	if (given.full != GPUMEM_RING_FAIL && given.full != GPUMEM_RING_WAIT &&
		given.full != GPUMEM_RING_DROP)
		return gm_error(GPUMEM_E_INVALID, "full must be fail, wait or drop; %d was given",
			(int)given.full);
	if (given.flags & ~(uint32_t)GPUMEM_BUFFER_FOR_OTHERS)
		return gm_error(GPUMEM_E_INVALID, "flags 0x%x are not known", given.flags);
	*ret_given = given;
	return GPUMEM_OK;
}

gpumem_status gm_ring_new(void *memory, const struct gm_ring_shape *shape, bool far,
	const gpumem_ring_options *options, gpumem_ring **ret_ring)
{
	gpumem_ring *ring = aligned_alloc(RING_APART, sizeof(*ring));
	if (!ring)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a ring");

	memset(ring, 0, sizeof(*ring));
	ring->memory = memory;
	ring->shape = *shape;
	ring->far = far;
	ring->full = options->full;
	ring->wait_ms = options->wait_ms;

	gpumem_ring_view view = gm_ring_end_of(memory, shape, far, options->flush_every);
	gpumem_ring_sender_begin(&ring->sender, &view);
	gpumem_ring_receiver_begin(&ring->receiver, &view);
	ring->told_head = ring->sender.published;
	ring->told_tail = ring->receiver.published;
	*ret_ring = ring;
	return GPUMEM_OK;
}

void gm_ring_set_buffer(gpumem_ring *ring, gpumem_buffer *buffer, gpumem_session *session)
{
	ring->buffer = buffer;
	ring->session = session;
}

static gpumem_status ring_check(const gpumem_ring *ring)
{
	if (!ring)
		return gm_error(GPUMEM_E_INVALID, "ring must not be NULL");
	if (ring->session && !gm_session_ok(ring->session))
		return gm_session_refused(ring->session);
	return GPUMEM_OK;
}

static gpumem_status ring_check_use(const gpumem_ring *ring, const void *message)
{
	gpumem_status status = ring_check(ring);
	if (status)
		return status;
	if (!message)
		return gm_error(GPUMEM_E_INVALID, "message must not be NULL");
	if (ring->lent)
		return gm_error(GPUMEM_E_BUSY,
			"this end of the ring belongs to a kernel since gpumem_ring_far_end()");
	return GPUMEM_OK;
}

/* Wakes the receiver, if messages were published and it sleeps. */
static void ring_tell_receiver(gpumem_ring *ring)
{
	gpumem_ring_control *control = ring->sender.control;

	if (ring->told_head == ring->sender.published)
		return;
	ring->told_head = ring->sender.published;
	if (__atomic_load_n(&control->receiver_sleeps, __ATOMIC_SEQ_CST))
		gm_ring_wake(&control->head);
}

/* Wakes the sender, if places were freed and it sleeps. */
static void ring_tell_sender(gpumem_ring *ring)
{
	gpumem_ring_control *control = ring->receiver.control;

	if (ring->told_tail == ring->receiver.published)
		return;
	ring->told_tail = ring->receiver.published;
	if (__atomic_load_n(&control->sender_sleeps, __ATOMIC_SEQ_CST))
		gm_ring_wake(&control->tail);
}

static gpumem_status ring_is_broken(void)
{
	return gm_error_plain(GPUMEM_E_PROTOCOL,
		"the other end of the ring has written numbers that make no sense, so this ring "
		"cannot be used any more: close it and make another one");
}

static gpumem_status ring_is_over(void)
{
	return gm_error_plain(GPUMEM_E_CANCELLED,
		"the other end of the ring was closed, has hung up, or its process has ended");
}

/* ---- sending */

/* Waits for a place, and sends. */
static gpumem_status ring_send_later(gpumem_ring *ring, const void *message)
{
	gpumem_ring_control *control = ring->sender.control;
	struct gm_ring_wait wait = {
		.word = &control->tail,
		.seen = ring->sender.tail,
		.sleeps = &control->sender_sleeps,
		.spin = &ring->sender_spin,
		.other = &ring->receiver.control->sender,
		.gone_from = GPUMEM_RING_CLOSED,
	};
	uint64_t until_ns = gm_ring_wait_end(ring->wait_ms);
	GM_UNCANCELLED;

	for (;;) {
		gpumem_status status = gm_ring_wait(&wait, until_ns);
		int sent = status ? 0 : gpumem_ring_sender_send(&ring->sender, message);

		if (sent)
			return sent == 1 ? GPUMEM_OK : ring_is_broken();
		if (status == GPUMEM_E_TIMEOUT || (!status && gm_clock_ns() >= until_ns))
			return gm_error_plain(GPUMEM_E_TIMEOUT,
				"the ring was full all the time: nobody reads it");
		if (status)
			return ring_is_over();
		/* The number was another one, and is the old one again: wait on. */
	}
}

gpumem_status gpumem_ring_send(gpumem_ring *ring, const void *message)
{
	gpumem_status status = ring_check_use(ring, message);
	if (status)
		return status;
	if (ring->silent)
		return gm_error_plain(GPUMEM_E_CANCELLED,
			"this end has hung up (gpumem_ring_hang_up), so it sends no more");

	int sent = gpumem_ring_sender_send(&ring->sender, message);
	ring_tell_receiver(ring);
	if (sent == 1)
		return GPUMEM_OK;
	if (sent < 0)
		return ring_is_broken();

	switch (ring->full) {
	case GPUMEM_RING_DROP:
		gpumem_ring_sender_drop(&ring->sender);
		return GPUMEM_OK;
	case GPUMEM_RING_WAIT:
		status = ring_send_later(ring, message);
		ring_tell_receiver(ring);
		return status;
	default:
		return gm_error_plain(GPUMEM_E_BUSY,
			"the ring is full: try again when the other end has read messages, or create "
			"a ring that waits or drops messages when it is full");
	}
}

gpumem_status gpumem_ring_flush(gpumem_ring *ring)
{
	gpumem_status status = ring_check_use(ring, ring);
	if (status)
		return status;
	gpumem_ring_sender_flush(&ring->sender);
	ring_tell_receiver(ring);
	return GPUMEM_OK;
}

/* ---- receiving */

static gpumem_status ring_receive_later(gpumem_ring *ring, void *message, uint32_t wait_ms)
{
	gpumem_ring_control *control = ring->receiver.control;
	struct gm_ring_wait wait = {
		.word = &control->head,
		.seen = ring->receiver.head,
		.sleeps = &control->receiver_sleeps,
		.spin = &ring->receiver_spin,
		.other = &control->sender,
		.gone_from = GPUMEM_RING_SILENT,
	};
	uint64_t until_ns = gm_ring_wait_end(wait_ms);
	GM_UNCANCELLED;

	for (;;) {
		gpumem_status status = gm_ring_wait(&wait, until_ns);
		int got = status ? 0 : gpumem_ring_receiver_receive(&ring->receiver, message);

		if (got)
			return got == 1 ? GPUMEM_OK : ring_is_broken();
		if (status == GPUMEM_E_TIMEOUT || (!status && gm_clock_ns() >= until_ns))
			return gm_error_plain(GPUMEM_E_TIMEOUT, "no message has come");
		if (status)
			return ring_is_over();
		/* The number was another one, and is the old one again: wait on. */
	}
}

gpumem_status gpumem_ring_receive(gpumem_ring *ring, void *message, uint32_t wait_ms)
{
	gpumem_status status = ring_check_use(ring, message);
	if (status)
		return status;

	if (wait_ms == GPUMEM_NO_WAIT)
		wait_ms = 0;
	int got = gpumem_ring_receiver_receive(&ring->receiver, message);
	if (got == 0 && !wait_ms && gpumem_ring_receiver_closed(&ring->receiver)) {
		/* In this order: what was sent before the end is there now. */
		got = gpumem_ring_receiver_receive(&ring->receiver, message);
		status = got == 0 ? ring_is_over() : GPUMEM_OK;
	} else if (got == 0 && !wait_ms) {
		status = gm_error_plain(GPUMEM_E_TIMEOUT, "there is no message");
	} else if (got == 0) {
		ring_tell_sender(ring);
		status = ring_receive_later(ring, message, wait_ms);
	}
	ring_tell_sender(ring);
	return got < 0 ? ring_is_broken() : status;
}

/* ---- ending */

/* Says what this end is from now on, and wakes the other end to see it. */
static void ring_become(gpumem_ring *ring, unsigned state)
{
	gpumem_ring_sender_flush(&ring->sender);
	__atomic_store_n(&ring->sender.control->sender, gm_ring_owner(state), __ATOMIC_SEQ_CST);
	gm_ring_wake(&ring->sender.control->head);
	gm_ring_wake(&ring->receiver.control->tail);
}

gpumem_status gpumem_ring_hang_up(gpumem_ring *ring)
{
	gpumem_status status = ring_check_use(ring, ring);
	if (status)
		return status;
	ring->silent = true;
	ring_become(ring, GPUMEM_RING_SILENT);
	return GPUMEM_OK;
}

void gpumem_ring_close(gpumem_ring *ring)
{
	if (!ring)
		return;
	/* A forked child leaves the parent's ring alone. */
	if (!ring->session || gm_session_ok(ring->session)) {
		if (!ring->lent)
			gpumem_ring_receiver_flush(&ring->receiver);
		ring_become(ring, GPUMEM_RING_CLOSED);
		if (ring->kernel)
			gm_signals_kernel_ends();
	}
	gpumem_buffer_destroy(ring->buffer);
	free(ring);
}

/* ---- asking */

gpumem_status gpumem_ring_far_end(
	gpumem_ring *ring, const gpumem_ring_options *options, gpumem_ring_view *ret_view)
{
	gpumem_ring_options given;
	GM_UNCANCELLED;

	gpumem_status status = ring_check(ring);
	if (status)
		return status;
	if (!ret_view)
		return gm_error(GPUMEM_E_INVALID, "ret_view must not be NULL");
	status = gm_ring_options_check(options, &given);
	if (status)
		return status;

	gpumem_ring_view view = gm_ring_end_of(ring->memory, &ring->shape, true, given.flush_every);
	uint64_t owner = __atomic_load_n(&view.out->sender, __ATOMIC_ACQUIRE);
	bool kept = ring->far || gm_ring_owner_state(owner) == GPUMEM_RING_KERNEL;
	status = gm_ring_owner_claim(&view.out->sender, GPUMEM_RING_KERNEL, kept);
	if (status)
		return status;
	if (ring->far && !ring->lent) {
		gpumem_ring_sender_flush(&ring->sender);
		gpumem_ring_receiver_flush(&ring->receiver);
		ring->lent = true;
	}
	if (!ring->kernel)
		gm_signals_kernel_begins();
	ring->kernel = true;
	*ret_view = view;
	return GPUMEM_OK;
}

gpumem_buffer *gpumem_ring_buffer(const gpumem_ring *ring)
{
	return ring->buffer;
}

size_t gpumem_ring_message_bytes(const gpumem_ring *ring)
{
	return ring->shape.message_bytes;
}

size_t gpumem_ring_messages(const gpumem_ring *ring)
{
	return ring->shape.messages;
}

static gpumem_ring_flow ring_flow(const gpumem_ring_control *control)
{
	uint64_t first = gpumem_ring_read_(&control->first);

	return (gpumem_ring_flow){
		.sent = gpumem_ring_read_(&control->head) - first,
		.received = gpumem_ring_read_(&control->tail) - first,
		.dropped = gpumem_ring_read_(&control->dropped),
		.high_water = gpumem_ring_read_(&control->high_water),
	};
}

gpumem_status gpumem_ring_stats(const gpumem_ring *ring, gpumem_ring_stats_t *ret_stats)
{
	gpumem_ring_stats_t stats = GPUMEM_RING_STATS_INIT;
	gpumem_status status = ring_check(ring);
	if (status)
		return status;
	if (!ret_stats)
		return gm_error(GPUMEM_E_INVALID, "ret_stats must not be NULL");

	stats.out = ring_flow(ring->sender.control);
	stats.in = ring_flow(ring->receiver.control);
	return gm_sized_out(ret_stats, &stats, sizeof(stats));
}
