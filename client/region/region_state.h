/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_REGION_REGION_STATE_H
#define GM_CLIENT_REGION_REGION_STATE_H

#include <stdatomic.h>
#include <stdint.h>

#include "client/device/spill.h"
#include "client/map/map.h"
#include "client/region/region_backing.h"
#include "client/session/gpumem_session.h"
#include "common/lock.h"
#include "gpumem/gpumem_region.h"

struct gm_arena;
struct gm_arena_piece;

/*
 * A region: a heap over a ground of its own. The heap sees the ground as chunks that come from a source,
 * in the order of their addresses. It keeps its books while the ground has no memory, so addresses
 * and allocations stay.
 *
 * (The regions of arena_segment.h are something else: chunks whose addresses the driver chooses.)
 */
struct gpumem_region {
	struct gpumem_session *session;
	uint32_t device; /* by its index */
	uint64_t max;    /* whole chunks */
	uint64_t least;  /* a region that shrinks keeps so much */
	char tag[GM_BOUND_NAME_BYTES + 1];
	struct gm_map_ops ops; /* the device's, but mapping does nothing: the ground does that */
	struct gm_arena *arena;

	/* Held while something is allocated or the ground gets memory, but not while the library asks the daemon. A
	 * thread that changes the state from ACTIVE takes it once. After that, nobody allocates. */
	struct gm_lock lock;
	/* In another state than ACTIVE, these belong to the thread that set the state. */
	struct gm_region_backing ground;
	struct gm_spill *content; /* of a paused region; NULL: it was dropped, or there is none */
	struct gm_arena_piece *pieces; /* of the ground, whose content it is, one after the other */
	size_t n_pieces;
	uint64_t handed; /* bytes of the ground that the heap has; they come first */
	uint64_t last;   /* the last piece of them; its id is how many there were */
	uint64_t serial;
	/* How many bytes the heap asked for last and did not get. 0: the region would become larger than its size. */
	uint64_t wanted;

	/* The session's lock protects the rest. */
	_Atomic gpumem_region_state state; /* changes only under the lock; RESUMING at first */
	bool made;   /* false: it has no memory yet, and nobody else may use it */
	bool paused; /* its row says so */
	uint64_t in_use, peak, allocations, pauses;
	uint64_t needed;                  /* by the next resume */
	uint64_t counted, counted_chunks; /* of the ground, in the figures of the device */
	uint64_t spare;                   /* of that: leases that nothing is allocated from */
	uint64_t kept, kept_held;         /* of the content, in those of the host */
	uint32_t row;                     /* in the client's page; 0: not listed */
	struct gpumem_region *prev, *next;
};

/* The regions of a session. */
struct gm_region_list {
	struct gpumem_region *first; /* of the session's lock; regions that are not destroyed */
	struct gm_lock walking; /* held while a thread goes through the regions without that lock */
};

/* The session is locked. */
struct gpumem_region *gm_region_find(struct gpumem_session *session, const char *tag);
/* Adds a region to the session, unless there is one with its tag. */
gpumem_status gm_region_enlist(struct gpumem_region *region);
/* Removes it, and what was counted and listed of it. */
void gm_region_unlist(struct gpumem_region *region);

/* Finds the session's region with this tag and changes its state from `from` to `to`. Fails, with a sentence, if
 * there is none in that state. */
gpumem_status gm_region_begin(struct gpumem_session *session, const char *tag,
	gpumem_region_state from, gpumem_region_state to, struct gpumem_region **ret_region);
/* Ends what gm_region_begin() began, and counts and lists what the region has now. */
void gm_region_end(struct gpumem_region *region, gpumem_region_state state);
static inline bool gm_region_active(const struct gpumem_region *region)
{
	return atomic_load(&region->state) == GPUMEM_REGION_ACTIVE;
}

/* Counts and lists what the region has now. The ground must belong to the calling thread. */
void gm_region_count(struct gpumem_region *region);
/* Counts a block that was allocated (1) or freed (-1). */
void gm_region_tally(struct gpumem_region *region, uint64_t size, int sign);

#endif
