/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_BUFFER_EVICT_STATE_H
#define GM_CLIENT_BUFFER_EVICT_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gm_map_event;
struct gm_spill;
struct gpumem_buffer;

/*
 *              evict                          pin
 *      HERE ----------> LEAVING ---> AWAY ----------> COMING ---> HERE
 *        ^                 |           ^                 |
 *        +-----------------+           +-----------------+--------> UNDER
 *          it failed, or the             it failed            (the program allows
 *          buffer was pinned                                   host memory)
 *
 * A buffer in UNDER is pinned or not. If it is pinned again, or goes to the device by itself, it goes
 * through COMING like one in AWAY. A buffer begins in HERE; or in UNDER, if it was made in host memory
 * because the device was full.
 */
enum gm_evict_state {
	GM_EVICT_HERE,    /* the buffer has device memory */
	GM_EVICT_LEAVING, /* a thread moves its content to host memory */
	GM_EVICT_AWAY,    /* its content is in host memory, and its addresses are empty */
	GM_EVICT_COMING,  /* a thread moves the content back */
	GM_EVICT_UNDER,   /* the host memory lies under the buffer's addresses */
};

/* The last work on an unpinned buffer: one event per unpin. From this many events on, an unpin first drops those
 * that have passed. If there are twice as many all the same, one event for all streams replaces them. */
#define GM_EVICT_EVENTS 4

/*
 * The part of a buffer that has to do with eviction. The session's lock protects it. The spill and the
 * events belong to the thread that has set LEAVING or COMING; otherwise they, too, are protected by the
 * lock.
 */
struct gm_evict {
	bool able; /* the buffer was made evictable; does not change */
	enum gm_evict_state state;
	bool recalled; /* a pin waits for a move that has not gone too far */
	bool waits;    /* the thread that brings it back waits: for memory, or for the device */
	bool ended;    /* the program has destroyed the buffer */
	bool shared;   /* others may have the buffer: the daemon must be asked */
	uint32_t pins,
		holds; /* by the program, and by the library while it uses the lease or the memory */
	uint64_t
		offered; /* bytes that it counts for among the evictable ones; 0: it is not listed */
	uint64_t in_host;        /* bytes that it counts for among those in host memory */
	uint64_t round;          /* in which it was tried last */
	uint64_t asked_until_ns; /* somebody asked by hand that it goes, until then; 0: nobody */
	uint64_t added;          /* how many events were added so far */
	size_t n_events;
	size_t taken; /* events that a thread has taken out, to look at them without the lock */
	struct gm_map_event *events[2 * GM_EVICT_EVENTS];
	struct gm_spill *spill;            /* AWAY, UNDER, COMING */
	struct gpumem_buffer *prev, *next; /* in the device's list of evictable buffers */
};

#endif
