/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_PENDING_H
#define GM_CLIENT_PENDING_H

#include <stdbool.h>
#include <stdint.h>

#include "client/map/map.h"
#include "client/heap/heap.h"
#include "client/heap/small.h"

/*
 * What was freed while the device may still use it. No lock inside and no driver call: the owner
 * makes the calls between a begin and its end, without a lock.
 *
 * Time is counted in epochs. Everything freed carries the epoch of its free; recording an event
 * ends an epoch, and when the event has passed, everything of that epoch and the ones before is
 * done. Events cover all streams, so one serves every set, and no stream is touched that the
 * program may have destroyed since.
 */

/* Names a stream for as long as the program runs. */
typedef uint64_t gm_stream_key;
#define GM_STREAM_DONE UINT64_MAX
#define GM_STREAM_ANY  (UINT64_MAX - 1)
/* And downwards from it: a default stream for each context. */
#define GM_STREAM_DEFAULT  (UINT64_MAX - 2)
#define GM_STREAM_DEFAULTS (UINT64_C(1) << 32)

/* Never fails: a stream that cannot be told apart counts as any. Shows the calling thread to the
 * backend, unless nothing is under way. */
gm_stream_key gm_pending_key(const struct gm_map_ops *ops, void *backend, gpumem_stream stream);

#define GM_PENDING_EVENTS 8 /* recorded and not known to have passed */
#define GM_PENDING_SETS   32
#define GM_PENDING_EPOCHS 16 /* more than events can keep open */

/* What was freed on one stream. It may be reused there at once. */
struct gm_pending_set {
	gm_stream_key key;
	struct gm_heap_bins bins; /* stamped with epochs */
	struct gm_small_list small[GM_PENDING_EPOCHS][GM_SMALL_CLASSES];
	uint64_t small_bytes;
};

struct gm_pending {
	uint64_t epoch;   /* what is freed now gets this one */
	uint64_t settled; /* everything freed in this one or before is done */
	bool open;        /* something was freed in it */
	bool recording;   /* between begin and end */
	bool polling;
	unsigned n_events;
	struct {
		uint64_t epoch;
		struct gm_map_event *event;
	} events[GM_PENDING_EVENTS]; /* oldest first */
	unsigned n_sets;
	struct gm_pending_set *sets[GM_PENDING_SETS]; /* the first one is for any stream */
};

/* -ENOMEM. */
int gm_pending_init(struct gm_pending *pending);
/* Events are forgotten by the caller: gm_pending_poll_begin(). */
void gm_pending_deinit(struct gm_pending *pending);

/* Where to put what is freed on a stream. When there are too many streams, or no host memory, that
 * is the set for any stream. Never NULL. */
struct gm_pending_set *gm_pending_set(struct gm_pending *pending, gm_stream_key key);
/* The stream's own set; NULL: nothing waits on it, or it is any stream. */
struct gm_pending_set *gm_pending_own(struct gm_pending *pending, gm_stream_key key);
uint64_t gm_pending_bytes(const struct gm_pending *pending);

/* The epoch for what is freed now; notes that something is. */
static inline uint64_t gm_pending_stamp(struct gm_pending *pending)
{
	pending->open = true;
	return pending->epoch;
}

/* Whether an event should be recorded now. If so the epoch ends, and the caller records an event
 * for any stream and says how it went: NULL, it failed. */
bool gm_pending_record_begin(struct gm_pending *pending, uint64_t *ret_epoch);
void gm_pending_record_end(struct gm_pending *pending, struct gm_small *small, uint64_t epoch,
	struct gm_map_event *event);

/* The events to ask about, oldest first. false: there are none, or another thread is at it. */
bool gm_pending_poll_begin(struct gm_pending *pending,
	struct gm_map_event *ret_events[GM_PENDING_EVENTS], unsigned *ret_n);
/* The first n have passed. They are the caller's, to forget. *ret_epoch: everything freed in it or
 * before is done. */
void gm_pending_poll_end(struct gm_pending *pending, unsigned n, uint64_t *ret_epoch);

/* Moves what is done to the clean side; returns how many bytes that were. */
uint64_t gm_pending_settle(struct gm_pending *pending, uint64_t epoch, struct gm_heap *heap,
	struct gm_heap_bins *clean, struct gm_small *small);
/* Everything that waits of this epoch and before becomes as if freed on this stream just now, once
 * the stream was ordered behind an event of that epoch. NULL: there is no set left for it. */
struct gm_pending_set *gm_pending_gather(struct gm_pending *pending, gm_stream_key key,
	uint64_t epoch, struct gm_heap *heap, struct gm_small *small);

/* An object that is free on the set's stream. */
void gm_pending_put_small(struct gm_pending *pending, struct gm_pending_set *set,
	struct gm_small *small, unsigned class, uint64_t object);
/* 0: none of the class. */
uint64_t gm_pending_take_small(struct gm_pending *pending, struct gm_pending_set *set,
	struct gm_small *small, unsigned class);

#endif
