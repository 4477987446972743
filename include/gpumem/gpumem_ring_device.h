/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUMEM_RING_DEVICE_H
#define GPUMEM_RING_DEVICE_H

/*
 * The far end of a ring, for kernels. gpumem_ring.h says what a ring is; gpumem_ring_far_end() hands over
 * its far end as a struct gpumem_ring_view, which a program passes to its kernel by value.
 *
 * The same code compiles for a GPU (nvcc, or clang for CUDA; sm_70 or later) and as plain C or C++, where
 * a thread can play the far end. The library itself uses it for both ends.
 *
 * One thread of the whole grid sends, and one receives. Other threads of its block may read or write the
 * message that gpumem_ring_receiver_peek() or gpumem_ring_sender_reserve() returned, between two
 * __syncthreads().
 *
 * This end does not trust what the other end writes: whatever that is, this end reads and writes nothing
 * outside the ring, and no call loops.
 *
 * Names that end in an underscore are for this header alone.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define GPUMEM_RING_FN_ static __host__ __device__ __forceinline__
#else
#define GPUMEM_RING_FN_ static inline
#endif

#if defined(__cplusplus)
#define GPUMEM_RING_ASSERT_(name, condition) static_assert(condition, #name)
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define GPUMEM_RING_ASSERT_(name, condition) _Static_assert(condition, #name)
#else
#define GPUMEM_RING_ASSERT_(name, condition) \
	typedef char gpumem_ring_##name##_[(condition) ? 1 : -1]
#endif

/* ---- the layout in memory, which both ends share */

#define GPUMEM_RING_MAGIC   UINT32_C(0x676d7231)
#define GPUMEM_RING_LINE    64
#define GPUMEM_RING_CONTROL 128

/*
 * The control block of one direction. The first line is written by the end that sends, the second by
 * the end that receives, so neither slows the other down more than it must. head and tail count
 * messages and wrap around; a message's place is its number modulo the number of places.
 *
 * A ring is: the control block from the near end to the far end, that of the other direction, and at
 * GPUMEM_RING_PLACES the places of the first and of the second direction, each array from a multiple of
 * 256 bytes on. A place is a message rounded up to 16 bytes.
 */
typedef struct gpumem_ring_control {
	uint64_t
		head; /* the number of the next message to come; the first one had the number in first */
	uint64_t dropped;       /* messages that found no place */
	uint64_t high_water;    /* the most messages that were in the ring, as the sender saw it */
	uint32_t sender_sleeps; /* not 0: a sender waits for tail to change: wake it */
	uint32_t magic;         /* GPUMEM_RING_MAGIC */
	uint64_t sender;        /* which process has this end, and how: for the library */
	uint64_t reserved;
	uint32_t message_bytes;
	uint32_t messages; /* a power of two */
	uint64_t first;    /* what head and tail began with */

	uint64_t tail;            /* the number of the next message to be read */
	uint32_t receiver_sleeps; /* not 0: a receiver waits for head to change: wake it */
	uint32_t reserved_line[13];
} gpumem_ring_control;

#define GPUMEM_RING_PLACES 256

GPUMEM_RING_ASSERT_(control_block, sizeof(gpumem_ring_control) == GPUMEM_RING_CONTROL);
GPUMEM_RING_ASSERT_(head, offsetof(gpumem_ring_control, head) == 0);
GPUMEM_RING_ASSERT_(dropped, offsetof(gpumem_ring_control, dropped) == 8);
GPUMEM_RING_ASSERT_(high_water, offsetof(gpumem_ring_control, high_water) == 16);
GPUMEM_RING_ASSERT_(sender_sleeps, offsetof(gpumem_ring_control, sender_sleeps) == 24);
GPUMEM_RING_ASSERT_(magic, offsetof(gpumem_ring_control, magic) == 28);
GPUMEM_RING_ASSERT_(sender, offsetof(gpumem_ring_control, sender) == 32);
GPUMEM_RING_ASSERT_(reserved, offsetof(gpumem_ring_control, reserved) == 40);
GPUMEM_RING_ASSERT_(message_bytes, offsetof(gpumem_ring_control, message_bytes) == 48);
GPUMEM_RING_ASSERT_(messages, offsetof(gpumem_ring_control, messages) == 52);
GPUMEM_RING_ASSERT_(first, offsetof(gpumem_ring_control, first) == 56);
GPUMEM_RING_ASSERT_(tail, offsetof(gpumem_ring_control, tail) == GPUMEM_RING_LINE);
GPUMEM_RING_ASSERT_(receiver_sleeps, offsetof(gpumem_ring_control, receiver_sleeps) == 72);
GPUMEM_RING_ASSERT_(reserved_line, offsetof(gpumem_ring_control, reserved_line) == 76);

/* The low eight bits of gpumem_ring_control.sender: who has the end that sends. */
#define GPUMEM_RING_NOBODY  0 /* nobody yet */
#define GPUMEM_RING_PROCESS 1
#define GPUMEM_RING_KERNEL  2 /* it wakes nobody, so the other end polls */
#define GPUMEM_RING_SILENT  3 /* a process that sends no more */
#define GPUMEM_RING_CLOSED  4 /* nobody any more */

/* One end of a ring, as its owner uses it: its own copy of the geometry, which the other end cannot change.
 * This struct does not grow in later versions. */
typedef struct gpumem_ring_view gpumem_ring_view;
struct gpumem_ring_view {
	gpumem_ring_control *out; /* of the direction in which this end sends */
	gpumem_ring_control *in;  /* of the direction in which it receives */
	unsigned char *out_places;
	unsigned char *in_places;
	uint32_t message_bytes;
	uint32_t place_bytes;
	uint32_t messages; /* in each direction; a power of two */
	uint32_t
		flush_every; /* after so many messages the other end sees them; 0: only by a flush */
};

GPUMEM_RING_ASSERT_(view, sizeof(gpumem_ring_view) == 48);

/* ---- words that both ends use at once */

/* Order: what an end wrote before it published a number is there for the end that has read the number.
 * On the host, publishing is also ordered before looking for a sleeper. */
GPUMEM_RING_FN_ uint64_t gpumem_ring_read_(const uint64_t *word)
{
#ifdef __CUDA_ARCH__
	uint64_t value;
	asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
	return value;
#else
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#endif
}

GPUMEM_RING_FN_ void gpumem_ring_publish_(uint64_t *word, uint64_t value)
{
#ifdef __CUDA_ARCH__
	asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
#else
	__atomic_store_n(word, value, __ATOMIC_SEQ_CST);
#endif
}

/* For figures: no order. */
GPUMEM_RING_FN_ void gpumem_ring_note_(uint64_t *word, uint64_t value)
{
#ifdef __CUDA_ARCH__
	asm volatile("st.relaxed.sys.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
#else
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
#endif
}

GPUMEM_RING_FN_ void gpumem_ring_copy_(void *to, const void *from, uint32_t bytes)
{
#ifdef __CUDA_ARCH__
	/* A GPU reaches host memory in transactions, so the fewer the better. */
	uintptr_t together = (uintptr_t)to | (uintptr_t)from | bytes;
	if (together % 8 == 0)
		for (uint32_t i = 0; i < bytes / 8; i++)
			((uint64_t *)to)[i] = ((const uint64_t *)from)[i];
	else if (together % 4 == 0)
		for (uint32_t i = 0; i < bytes / 4; i++)
			((uint32_t *)to)[i] = ((const uint32_t *)from)[i];
	else
		for (uint32_t i = 0; i < bytes; i++)
			((unsigned char *)to)[i] = ((const unsigned char *)from)[i];
#else
	__builtin_memcpy(to, from, bytes);
#endif
}

/* ---- sending */

/* What an end knows of the direction in which it sends. */
typedef struct gpumem_ring_sender gpumem_ring_sender;
struct gpumem_ring_sender {
	gpumem_ring_control *control;
	unsigned char *places;
	uint32_t message_bytes, place_bytes, messages, flush_every;
	uint64_t head;       /* the next message; those before published may be read */
	uint64_t published;  /* what the control block says */
	uint64_t tail;       /* of the receiver, as last seen */
	uint64_t dropped;    /* what the control block says */
	uint64_t high_water; /* the same */
	int broken;          /* not 0: the other end has written nonsense */
};

/* Begins, or goes on where the last owner of this end stopped: with what it had published. */
GPUMEM_RING_FN_ void gpumem_ring_sender_begin(
	gpumem_ring_sender *sender, const gpumem_ring_view *view)
{
	sender->control = view->out;
	sender->places = view->out_places;
	sender->message_bytes = view->message_bytes;
	sender->place_bytes = view->place_bytes;
	sender->messages = view->messages;
	sender->flush_every = view->flush_every;
	sender->head = gpumem_ring_read_(&view->out->head);
	sender->published = sender->head;
	sender->tail = gpumem_ring_read_(&view->out->tail);
	sender->dropped = gpumem_ring_read_(&view->out->dropped);
	sender->high_water = gpumem_ring_read_(&view->out->high_water);
	sender->broken = sender->head - sender->tail > sender->messages;
}

/* Lets the other end see all that was sent. */
GPUMEM_RING_FN_ void gpumem_ring_sender_flush(gpumem_ring_sender *sender)
{
	if (sender->published == sender->head)
		return;
	sender->published = sender->head;
	gpumem_ring_publish_(&sender->control->head, sender->head);
}

/* Reads how far the receiver is. Only a number that it can have reached counts. */
GPUMEM_RING_FN_ void gpumem_ring_sender_look_(gpumem_ring_sender *sender)
{
	uint64_t tail = gpumem_ring_read_(&sender->control->tail);

	if (sender->head - tail > sender->messages)
		sender->broken = 1;
	else
		sender->tail = tail;
}

/* Where the next message is to be written, or NULL: the ring is full, and everything in it is flushed.
 * Nothing is sent before gpumem_ring_sender_commit(). */
GPUMEM_RING_FN_ void *gpumem_ring_sender_reserve(gpumem_ring_sender *sender)
{
	if (sender->broken)
		return NULL;
	if (sender->head - sender->tail >= sender->messages) {
		gpumem_ring_sender_look_(sender);
		if (sender->broken || sender->head - sender->tail >= sender->messages) {
			gpumem_ring_sender_flush(sender);
			return NULL;
		}
	}
	return sender->places +
	       (size_t)(sender->head & (sender->messages - 1)) * sender->place_bytes;
}

/* Sends the message that was written where gpumem_ring_sender_reserve() said. */
GPUMEM_RING_FN_ void gpumem_ring_sender_commit(gpumem_ring_sender *sender)
{
	sender->head++;
	if (sender->flush_every && sender->head - sender->published >= sender->flush_every)
		gpumem_ring_sender_flush(sender);

	/* The receiver may be further than it was: look again only if this would be a new mark. */
	if (sender->head - sender->tail > sender->high_water) {
		gpumem_ring_sender_look_(sender);
		if (sender->head - sender->tail > sender->high_water) {
			sender->high_water = sender->head - sender->tail;
			gpumem_ring_note_(&sender->control->high_water, sender->high_water);
		}
	}
}

/* Sends a copy of a message. 1: sent. 0: the ring is full. -1: the other end has written nonsense. */
GPUMEM_RING_FN_ int gpumem_ring_sender_send(gpumem_ring_sender *sender, const void *message)
{
	void *place = gpumem_ring_sender_reserve(sender);

	if (!place)
		return sender->broken ? -1 : 0;
	gpumem_ring_copy_(place, message, sender->message_bytes);
	gpumem_ring_sender_commit(sender);
	return 1;
}

/* Counts a message that was not sent, because the ring was full. */
GPUMEM_RING_FN_ void gpumem_ring_sender_drop(gpumem_ring_sender *sender)
{
	sender->dropped++;
	gpumem_ring_note_(&sender->control->dropped, sender->dropped);
}

/* ---- receiving */

/* What an end knows of the direction in which it receives. */
typedef struct gpumem_ring_receiver gpumem_ring_receiver;
struct gpumem_ring_receiver {
	gpumem_ring_control *control;
	const unsigned char *places;
	uint32_t message_bytes, place_bytes, messages, flush_every;
	uint64_t tail;      /* the next message */
	uint64_t published; /* what the control block says */
	uint64_t head;      /* of the sender, as last seen */
	int broken;         /* not 0: the other end has written nonsense */
};

GPUMEM_RING_FN_ void gpumem_ring_receiver_begin(
	gpumem_ring_receiver *receiver, const gpumem_ring_view *view)
{
	uint32_t half = view->messages > 1 ? view->messages / 2 : 1;

	receiver->control = view->in;
	receiver->places = view->in_places;
	receiver->message_bytes = view->message_bytes;
	receiver->place_bytes = view->place_bytes;
	receiver->messages = view->messages;
	/* A sender must not wait for places that were read long ago. */
	receiver->flush_every =
		view->flush_every && view->flush_every < half ? view->flush_every : half;
	receiver->tail = gpumem_ring_read_(&view->in->tail);
	receiver->published = receiver->tail;
	receiver->head = receiver->tail;
	receiver->broken = 0;
}

/* Lets the other end use the places of all messages that were read. */
GPUMEM_RING_FN_ void gpumem_ring_receiver_flush(gpumem_ring_receiver *receiver)
{
	if (receiver->published == receiver->tail)
		return;
	receiver->published = receiver->tail;
	gpumem_ring_publish_(&receiver->control->tail, receiver->tail);
}

/* The next message, which stays where it is until gpumem_ring_receiver_next(). NULL: there is none. The
 * other end can still write to it: copy what is checked before it is used. */
GPUMEM_RING_FN_ const void *gpumem_ring_receiver_peek(gpumem_ring_receiver *receiver)
{
	if (receiver->broken)
		return NULL;
	if (receiver->tail == receiver->head) {
		uint64_t head = gpumem_ring_read_(&receiver->control->head);

		if (head - receiver->tail > receiver->messages)
			receiver->broken = 1;
		else
			receiver->head = head;
		if (receiver->tail == receiver->head) {
			gpumem_ring_receiver_flush(receiver);
			return NULL;
		}
	}
	return receiver->places +
	       (size_t)(receiver->tail & (receiver->messages - 1)) * receiver->place_bytes;
}

/* Ends the use of the message that gpumem_ring_receiver_peek() returned. */
GPUMEM_RING_FN_ void gpumem_ring_receiver_next(gpumem_ring_receiver *receiver)
{
	receiver->tail++;
	if (receiver->tail - receiver->published >= receiver->flush_every)
		gpumem_ring_receiver_flush(receiver);
}

/* Copies the next message. 1: done. 0: there is none. -1: the other end has written nonsense. */
GPUMEM_RING_FN_ int gpumem_ring_receiver_receive(gpumem_ring_receiver *receiver, void *message)
{
	const void *place = gpumem_ring_receiver_peek(receiver);

	if (!place)
		return receiver->broken ? -1 : 0;
	gpumem_ring_copy_(message, place, receiver->message_bytes);
	gpumem_ring_receiver_next(receiver);
	return 1;
}

/* Whether the other end is closed or has hung up, so that no more messages come than are in the ring
 * now: receive once more after this. */
GPUMEM_RING_FN_ int gpumem_ring_receiver_closed(const gpumem_ring_receiver *receiver)
{
	return (gpumem_ring_read_(&receiver->control->sender) & 0xff) >= GPUMEM_RING_SILENT;
}

#endif
