/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_PENDING_H
#define GM_CLIENT_PENDING_H

#include <stdbool.h>
#include <stdint.h>

#include "client/map/map.h"
#include "client/heap/heap.h"
#include "client/heap/small.h"

/*
 * Memory that the program has freed while the device may still use it. This module takes no lock
 * and makes no driver call: its owner makes the call between a begin and its end, without a lock.
 *
 * Time is counted in epochs. Freed memory carries the epoch in which it was freed. Recording an
 * event ends an epoch; when the event has passed, everything freed in that epoch or before is done.
 * An event covers all streams. So one event serves every set, and nothing touches a stream that the
 * program may have destroyed since.
 */

/* Names a stream for as long as the program runs:
 *   GM_STREAM_DONE      no stream: nothing uses the memory any more
 *   GM_STREAM_ANY       any stream
 *   GM_STREAM_DEFAULT   and GM_STREAM_DEFAULTS - 1 numbers below it: a default stream per context
 * Smaller numbers are those of the backend's stream_id(). */
typedef uint64_t gm_stream_key;
#define GM_STREAM_DONE     UINT64_MAX
#define GM_STREAM_ANY      (UINT64_MAX - 1)
#define GM_STREAM_DEFAULT  (UINT64_MAX - 2)
#define GM_STREAM_DEFAULTS (UINT64_C(1) << 32)

/* Never fails: a stream that cannot be told from others counts as any stream. Shows the calling
 * thread's context to the backend, except for GPUMEM_STREAM_DONE. */
gm_stream_key gm_pending_key(const struct gm_map_ops *ops, void *backend, gpumem_stream stream);

#define GM_PENDING_EVENTS 8 /* that are recorded and not known to have passed */
#define GM_PENDING_SETS   32
/* Lists of small objects: one for each event, one for the epoch that a thread records an event for, and one for what is
 * freed now; and some to spare. */
#define GM_PENDING_LISTS 16

/* Memory that was freed on one stream, and may be reused there at once. */
struct gm_pending_set {
	gm_stream_key key;
	struct gm_heap_bins bins; /* stamps are epochs */
	struct gm_small_list small[GM_PENDING_LISTS][GM_SMALL_CLASSES];
	uint64_t small_bytes;
};

struct gm_pending {
	uint64_t epoch;   /* of what is freed now */
	uint64_t settled; /* everything freed in this epoch or before is done */
	/* Small objects that are freed now go to this list, modulo GM_PENDING_LISTS. There are fewer lists than epochs: an epoch
	 * without an event that is kept shares the list of its neighbour. */
	uint64_t list;
	uint64_t settled_list; /* as settled */
	bool open;             /* something waits for the event that will end the current epoch */
	bool recording;        /* a thread is between record_begin and record_end */
	bool polling;          /* a thread is between poll_begin and poll_end */
	unsigned n_events;
	struct {
		uint64_t epoch;
		uint64_t list; /* the lists up to this one wait for the event */
		struct gm_map_event *event;
	} events[GM_PENDING_EVENTS]; /* oldest first */
	unsigned n_sets;
	struct gm_pending_set *sets[GM_PENDING_SETS]; /* the first is for GM_STREAM_ANY */
};

/* -ENOMEM. */
int gm_pending_init(struct gm_pending *pending);
/* The caller has taken all events, with gm_pending_poll_begin(), and forgets them. */
void gm_pending_deinit(struct gm_pending *pending);

/* The set for memory freed on a stream. If there are too many streams or no host memory, it is the
 * set for any stream. Never NULL. */
struct gm_pending_set *gm_pending_set(struct gm_pending *pending, gm_stream_key key);
/* The stream's own set. NULL: it has none, or it is GM_STREAM_ANY. */
struct gm_pending_set *gm_pending_own(struct gm_pending *pending, gm_stream_key key);
uint64_t gm_pending_bytes(const struct gm_pending *pending);

/* Whether all events are in use. */
static inline bool gm_pending_full(const struct gm_pending *pending)
{
	return pending->n_events == GM_PENDING_EVENTS;
}

/* The epoch for memory that is freed now; notes that some is. */
static inline uint64_t gm_pending_stamp(struct gm_pending *pending)
{
	pending->open = true;
	return pending->epoch;
}

/* Whether an event should be recorded now. If so, the epoch ends; the caller records an event and
 * passes it to gm_pending_record_end(), or NULL if recording failed. replace: also if all events are in use. */
bool gm_pending_record_begin(struct gm_pending *pending, bool replace, uint64_t *ret_epoch);
/* If all events are in use, the new one replaces the newest of them, because it passes later and so stands for both.
 * No thread may be polling then. Returns the replaced event, which the caller forgets, or NULL. */
struct gm_map_event *gm_pending_record_end(struct gm_pending *pending, struct gm_small *small,
	uint64_t epoch, struct gm_map_event *event);

/* Returns the events to ask about, oldest first. false: there are none, or another thread is asking
 * already. */
bool gm_pending_poll_begin(struct gm_pending *pending,
	struct gm_map_event *ret_events[GM_PENDING_EVENTS], unsigned *ret_n);
/* The first n events have passed, and the caller forgets them. Everything freed in *ret_epoch or
 * before is done. */
void gm_pending_poll_end(struct gm_pending *pending, unsigned n, uint64_t *ret_epoch);

/* Moves everything freed in this epoch or before to clean and small, where it is free for
 * everybody. Returns how many bytes. */
uint64_t gm_pending_settle(struct gm_pending *pending, uint64_t epoch, struct gm_heap *heap,
	struct gm_heap_bins *clean, struct gm_small *small);
/* Makes everything freed in this epoch or before count as freed on this stream just now. The caller
 * has made the stream wait for an event of that epoch. NULL: there is no set left for the
 * stream. */
struct gm_pending_set *gm_pending_gather(struct gm_pending *pending, gm_stream_key key,
	uint64_t epoch, struct gm_heap *heap, struct gm_small *small);

/* Puts an object into a set: it is free on the set's stream. */
void gm_pending_put_small(struct gm_pending *pending, struct gm_pending_set *set,
	struct gm_small *small, unsigned class, uint64_t object);
/* 0: the set has none of the class. */
uint64_t gm_pending_take_small(struct gm_pending *pending, struct gm_pending_set *set,
	struct gm_small *small, unsigned class);

#endif
