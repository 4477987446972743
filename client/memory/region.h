/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MEMORY_REGION_H
#define GM_CLIENT_MEMORY_REGION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "client/map/map.h"
#include "client/memory/ground.h"
#include "client/memory/spill.h"
#include "client/session/gpumem_session.h"
#include "gpumem/gpumem_region.h"

struct gm_arena;

/*
 * A region: a heap over a ground of its own. The heap sees the ground as chunks that come from a source,
 * in the order of their addresses. It keeps its books while the ground has no memory, so addresses
 * and allocations stay.
 *
 * (The regions of arena_region.h are something else: chunks whose addresses the driver chooses.)
 */
struct gpumem_region {
	struct gpumem_session *session;
	uint32_t device; /* by its index */
	uint64_t max;    /* whole chunks */
	char tag[GM_LIMIT_NAME_BYTES + 1];
	struct gm_map_ops ops; /* the device's, but mapping does nothing: the ground does that */
	struct gm_arena *arena;

	/* Held while something is allocated or the ground gets memory, but not while the daemon is asked. A
	 * thread that changes the state from ACTIVE takes it once, and then nobody allocates any more. */
	pthread_mutex_t lock;
	/* In another state than ACTIVE, these two belong to the thread that set the state. */
	struct gm_ground ground;
	struct gm_spill *content; /* of a paused region; NULL: it was dropped, or there is none */
	uint64_t handed;          /* bytes of the ground that the heap has; they come first */
	uint64_t last;            /* the last piece of them; its id is how many there were */
	uint64_t serial;
	/* What the heap asked for last, and did not get; 0: that would be more than the region's size. */
	uint64_t wanted;

	/* The session's lock protects the rest. */
	_Atomic gpumem_region_state state; /* changes only under the lock */
	uint64_t in_use, peak, allocations, pauses;
	uint64_t needed;                  /* by the next resume */
	uint64_t counted, counted_chunks; /* of the ground, in the figures of the device */
	uint64_t kept, kept_held;         /* of the content, in those of the host */
	uint32_t row;                     /* in the client's page; 0: not listed */
	uint32_t row_device;
	struct gpumem_region *prev, *next;
};

/* The session's region with this tag in this state, which becomes the next one. Fails if there is none,
 * and says so. */
gpumem_status gm_region_begin(struct gpumem_session *session, const char *tag,
	gpumem_region_state from, gpumem_region_state to, struct gpumem_region **ret_region);
/* Ends what gm_region_begin() began, and counts and lists what the region has now. */
void gm_region_end(struct gpumem_region *region, gpumem_region_state state);
/* Counts and lists what the region has now. */
void gm_region_count(struct gpumem_region *region);
/* Waits until all work is done that was launched before. -EAGAIN: a stream is being captured. */
int gm_region_await(const struct gpumem_region *region);

/* Ends all regions without a message: the session ends. */
void gm_region_drop_all(struct gpumem_session *session);

#endif
