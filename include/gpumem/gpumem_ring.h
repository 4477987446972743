/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUMEM_RING_H
#define GPUMEM_RING_H

/*
 * Rings: messages of one size between a program and its kernel, or between two processes, in both
 * directions, in pinned host memory from the broker.
 *
 * A ring has two ends. The process that creates it has the near end. The far end belongs to another
 * process, which opens the ring's buffer (gpumem_ring_open()), or to a kernel, which gets it by
 * gpumem_ring_far_end() and uses it with gpumem_ring_device.h. No message passes through the daemon.
 *
 * Threads. At each end, one thread at a time may send, flush or hang up, and one may receive; they may be
 * two threads. gpumem_ring_stats() may be called by any thread, gpumem_ring_close() and
 * gpumem_ring_far_end() only when no other call runs.
 *
 * Trust. The other end can write what it likes into the ring. It can spoil messages and counters, and
 * keep this end waiting until its timeout. It cannot make this process read or write outside of the
 * ring: the ring's geometry is read once, and every number is checked. If a number makes no sense, calls
 * fail with GPUMEM_E_PROTOCOL from then on.
 *
 * A ring must be closed before its session is disconnected. A forked child must not use the rings of its
 * parent: calls fail with GPUMEM_E_FORKED.
 */

#include "gpumem.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpumem_ring gpumem_ring;
struct gpumem_ring_view; /* in gpumem_ring_device.h */

/* What gpumem_ring_send() does if there is no place for a message. */
typedef enum gpumem_ring_full {
	GPUMEM_RING_FAIL = 0, /* it fails with GPUMEM_E_BUSY */
	GPUMEM_RING_WAIT = 1, /* it waits for a place, for wait_ms at most: GPUMEM_E_TIMEOUT */
	GPUMEM_RING_DROP = 2, /* it drops the message, counts it, and succeeds */
} gpumem_ring_full;

/* How one end uses the ring; the other end may use it differently. */
typedef struct gpumem_ring_options {
	size_t size;
	gpumem_ring_full full;
	uint32_t
		wait_ms; /* of GPUMEM_RING_WAIT; GPUMEM_WAIT_FOREVER and GPUMEM_NO_WAIT are allowed */
	/* The other end sees messages after this many, or when the ring is full, or after
	 * gpumem_ring_flush(). 1: each at once. 0: only after a flush, or when the ring is full. */
	uint32_t flush_every;
	/* Of the ring's buffer, as in gpumem_buffer_options; gpumem_ring_open() and gpumem_ring_far_end()
	 * do not use them. */
	const char *tag;
	uint32_t flags; /* GPUMEM_BUFFER_FOR_OTHERS, or 0 */
} gpumem_ring_options;

#define GPUMEM_RING_OPTIONS_INIT \
	{ \
		sizeof(gpumem_ring_options), GPUMEM_RING_FAIL, 0, 1, NULL, 0 \
	}

#define GPUMEM_RING_MESSAGE_MOST  (UINT32_C(1) << 30)
#define GPUMEM_RING_MESSAGES_MOST (UINT32_C(1) << 30)

/*
 * Makes a ring whose messages have message_bytes bytes (1 to GPUMEM_RING_MESSAGE_MOST), and that holds
 * at least messages of them in each direction (1 to GPUMEM_RING_MESSAGES_MOST): the next power of two.
 * Its memory is a buffer of pinned host memory (GPUMEM_DEVICE_HOST), so it takes 2 MiB or more. options
 * may be NULL. The call fails as gpumem_buffer_create() does.
 */
GPUMEM_API gpumem_status gpumem_ring_create(gpumem_session *session, size_t message_bytes,
	size_t messages, const gpumem_ring_options *options, gpumem_ring **ret_ring);
/*
 * Takes the far end of a ring that another process made. The buffer comes from gpumem_open() or
 * gpumem_attach(). If the call succeeds, it belongs to the ring. If a process had this end before, the
 * call goes on where that process stopped: it gets messages again that the process had read without
 * letting the other end know (flush_every), and what the process had sent without a flush is lost.
 *
 *   GPUMEM_E_INVALID      There is no ring in the buffer.
 *   GPUMEM_E_BUSY         Another process has the far end, and lives; or a kernel has it.
 *   GPUMEM_E_DENIED       The buffer is read-only.
 *   GPUMEM_E_UNSUPPORTED  The CPU cannot reach the buffer, because it is on a GPU.
 */
GPUMEM_API gpumem_status gpumem_ring_open(
	gpumem_buffer *buffer, const gpumem_ring_options *options, gpumem_ring **ret_ring);
/*
 * Closes this end, after a flush. The other end gets the messages that are there, and then
 * GPUMEM_E_CANCELLED instead of waiting. The far end can be opened again afterwards. A kernel that uses
 * the ring must have ended: gpumem_ring_hang_up() tells it to. The ring's buffer is destroyed. ring may
 * be NULL.
 */
GPUMEM_API void gpumem_ring_close(gpumem_ring *ring);
/* Says that this end sends no more, after a flush, as gpumem_ring_close() does, but keeps the ring: a
 * kernel or process at the other end sees that it is to end, and its last messages can be received. No
 * thread may be sending. gpumem_ring_send() fails from then on, with GPUMEM_E_CANCELLED. */
GPUMEM_API gpumem_status gpumem_ring_hang_up(gpumem_ring *ring);
/*
 * The far end, for a kernel of this process: pass *ret_view to it by value. It works on every GPU that
 * this process uses. Of the options, only flush_every is used. If the ring was opened, it has handed its
 * end over: gpumem_ring_send() and gpumem_ring_receive() fail with GPUMEM_E_BUSY from then on. A second
 * call returns the same view, so that a later kernel can go on where an earlier one ended.
 *
 * GPUMEM_E_BUSY: another process has the far end, and lives.
 */
GPUMEM_API gpumem_status gpumem_ring_far_end(
	gpumem_ring *ring, const gpumem_ring_options *options, struct gpumem_ring_view *ret_view);
/* The ring's buffer, to be shared or published. It must not be destroyed or resized. */
GPUMEM_API gpumem_buffer *gpumem_ring_buffer(const gpumem_ring *ring);
GPUMEM_API size_t gpumem_ring_message_bytes(const gpumem_ring *ring);
/* How many messages there is room for in each direction. */
GPUMEM_API size_t gpumem_ring_messages(const gpumem_ring *ring);

/*
 * Sends a message of gpumem_ring_message_bytes() bytes. If the ring is full, the options say what
 * happens.
 *
 *   GPUMEM_E_BUSY       The ring is full (GPUMEM_RING_FAIL).
 *   GPUMEM_E_TIMEOUT    It was full all the time (GPUMEM_RING_WAIT).
 *   GPUMEM_E_CANCELLED  It is full, and the other end has closed it, or its process has ended
 *                       (GPUMEM_RING_WAIT); or this end has hung up.
 *   GPUMEM_E_PROTOCOL   The other end has written nonsense.
 */
GPUMEM_API gpumem_status gpumem_ring_send(gpumem_ring *ring, const void *message);
/* Lets the other end see all messages that were sent. */
GPUMEM_API gpumem_status gpumem_ring_flush(gpumem_ring *ring);
/*
 * Takes the next message, and waits for it for wait_ms at most; 0 and GPUMEM_NO_WAIT: not at all. Before a program waits for
 * an answer, it must flush what it has sent.
 *
 *   GPUMEM_E_TIMEOUT    There is no message.
 *   GPUMEM_E_CANCELLED  There is none, and the other end has closed the ring or hung up, or its
 *                       process has ended.
 *   GPUMEM_E_PROTOCOL   The other end has written nonsense.
 *
 * A process that ends without closing its end is noticed by a call that waits, within a tenth of a
 * second, if both processes see the same process numbers (the same pid namespace). Otherwise only the
 * timeout ends the wait.
 */
GPUMEM_API gpumem_status gpumem_ring_receive(gpumem_ring *ring, void *message, uint32_t wait_ms);

/* One direction. This struct does not grow in later versions. */
typedef struct gpumem_ring_flow {
	uint64_t sent;     /* messages that the sender let the receiver see */
	uint64_t received; /* how many of these the receiver says that it has read */
	uint64_t dropped;  /* messages that found no place (GPUMEM_RING_DROP) */
	uint64_t
		high_water; /* the most messages that were in the ring at once, as the sender saw it */
} gpumem_ring_flow;

typedef struct gpumem_ring_stats_t {
	size_t size;
	gpumem_ring_flow out; /* what this end sends */
	gpumem_ring_flow in;  /* what it receives: the other end's word for it */
} gpumem_ring_stats_t;

#define GPUMEM_RING_STATS_INIT \
	{ \
		sizeof(gpumem_ring_stats_t), {0, 0, 0, 0}, \
		{ \
			0, 0, 0, 0 \
		} \
	}

/* The counters of both directions, since the ring was made. Sends no message. */
GPUMEM_API gpumem_status gpumem_ring_stats(const gpumem_ring *ring, gpumem_ring_stats_t *ret_stats);

#ifdef __cplusplus
}
#endif

#endif
