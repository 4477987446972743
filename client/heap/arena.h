/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_ARENA_H
#define GM_CLIENT_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/map/map.h"
#include "client/heap/heap.h"
#include "client/heap/source.h"
#include "common/limits.h"
#include "gpumem/gpumem.h"

/*
 * A device's memory in this process: chunks of a source, mapped side by side into one reserved
 * range, cut into blocks by one heap, small sizes cached per thread. What gpumem_alloc() and
 * gpumem_free() do, for one device.
 *
 * Memory that cannot be put at an address of our choice (the ipc transport) is had in regions, one
 * per chunk, wherever each one lies: nothing merges or moves across their borders, and a region
 * goes back when all of it is free.
 *
 * All calls may be made from any thread, several at once, but for _new and _free. No lock is held
 * while the source, the backend or wake() is called. A fork's child must not come here at all.
 */

struct gm_arena;

struct gm_arena_config {
	const struct gm_map_ops *ops;
	void *backend;
	struct gm_source source;
	bool regions; /* chunks are attached where the backend wants them to be; reserves nothing */
	/* Address space to reserve; halved until the platform gives it. 0: 4 TiB. */
	uint64_t reserve;
	/* How long a chunk stays here that nothing uses. 0: it goes at the next tick. */
	uint64_t decay_ns;
	/*
	 * Called, from whatever thread frees, when the arena has something to do for
	 * gm_arena_tick() and the last tick had said GM_ARENA_NEVER: have a tick soon. At most
	 * once between two ticks. May be NULL. Must not call the arena and must not wait.
	 */
	void (*wake)(void *ctx);
	void *wake_ctx;
};

/*
 * What a call can come to besides 0 and a negative errno (-ENOMEM: no host memory; others: what the
 * backend said). gm_arena_status() makes a status of either.
 */
enum gm_arena_outcome {
	GM_ARENA_E_SIZE = 1,      /* 0, or more than GM_LEASE_BYTES_MAX */
	GM_ARENA_E_ALIGNMENT = 2, /* no power of two, or more than GM_CHUNK_MAX */
	GM_ARENA_E_SOURCE = 3,  /* the source gave no more; ret_status is what it said, and what it
				   left in gpumem_error_detail() still stands */
	GM_ARENA_E_SPACE = 4,   /* the reserved range has no gap left that is large enough */
	GM_ARENA_E_FOREIGN = 5, /* the pointer lies outside of the arena */
	GM_ARENA_E_INSIDE = 6,  /* the pointer is inside a live block, not at its start */
	GM_ARENA_E_FREED = 7,   /* no block is alive there: freed already, or never handed out */
	GM_ARENA_E_STREAM = 8,  /* GPUMEM_STREAM_DONE is for freeing only */
};

/* -ENOMEM when not even one large chunk's worth of address space is to be had. */
int gm_arena_new(const struct gm_arena_config *config, struct gm_arena **ret_arena);
/* Unmaps everything and gives every chunk back to the source, whatever is still in use; waits for
 * the device, if it may still use what was freed. No other thread may be in a call. false:
 * something could not be unmapped, and did not go back. NULL is fine. */
bool gm_arena_free(struct gm_arena *arena);

enum gm_arena_flag {
	/* The block can be listed: it does not come from a thread's cache. Larger ones than
	 * GM_SMALL_MAX never do. */
	GM_ARENA_LISTED = 1 << 0,
};

/*
 * alignment: a power of two; 0 stands for 256. tag: a name for whoever lists the block, or NULL; the
 * arena keeps a copy while the block is alive. A block that cannot be listed keeps no tag. ret_status
 * may be NULL and is written with GM_ARENA_E_SOURCE only.
 */
int gm_arena_alloc(struct gm_arena *arena, uint64_t size, uint64_t alignment, gpumem_stream stream,
	unsigned flags, const char *tag, void **ret_ptr, gpumem_status *ret_status);
/* Never waits, never calls the source. ret_cookie may be NULL; 0: the block carries none. */
int gm_arena_dealloc(struct gm_arena *arena, void *ptr, gpumem_stream stream, uint32_t *ret_cookie);

/*
 * Listing what is alive, at no cost to those who allocate: whoever lists looks through the heap's
 * books now and then, and leaves a cookie on each block it has listed, which comes back when the
 * block is freed.
 */
struct gm_arena_entry {
	void *ptr;
	uint64_t size;   /* as asked for */
	uint64_t serial; /* of the tag; 0: there is none */
	char tag[GM_LIMIT_NAME_BYTES + 1];
};

#define GM_ARENA_ENTRIES GM_HEAP_SLAB_BLOCKS
struct gm_arena_walk {
	struct gm_heap_slab *at; /* NULL: before the first step */
	bool over;
};

/* One step, which holds the lock shortly: blocks of at least min_bytes that are alive and carry no
 * cookie. Steps until over meet every block that is there all the while. Returns how many. */
size_t gm_arena_unlisted(struct gm_arena *arena, uint64_t min_bytes, struct gm_arena_walk *walk,
	struct gm_arena_entry ret_entries[GM_ARENA_ENTRIES]);
/* Leaves a cookie, not 0, on a block found so. GM_ARENA_E_FREED: another block is there now, or
 * none, or it has a cookie already. */
int gm_arena_set_cookie(
	struct gm_arena *arena, const struct gm_arena_entry *entry, uint32_t cookie);
/* A number that differs when blocks of the heap have come or gone. */
uint64_t gm_arena_changes(struct gm_arena *arena);

/* Whether the address lies in the arena's range, or in one of its regions: says which device a
 * pointer is of. */
bool gm_arena_holds(const struct gm_arena *arena, const void *ptr);
/* What was asked for at the start of a live block; else an outcome as of gm_arena_dealloc(). */
int gm_arena_size(struct gm_arena *arena, const void *ptr, uint64_t *ret_size);

/* Gives chunks back that nothing uses, caches of all threads included, until min_bytes went
 * (UINT64_MAX: all of them). What still waits for the device goes at a later tick. Returns how many
 * bytes went. */
uint64_t gm_arena_trim(struct gm_arena *arena, uint64_t min_bytes);

#define GM_ARENA_NEVER UINT64_MAX
/* Housekeeping: decay, idle threads' caches, memory that waited for the device. now_ns is
 * CLOCK_MONOTONIC. Returns when to call again, as a time on that clock; GM_ARENA_NEVER: not before
 * wake(). One thread at a time. */
uint64_t gm_arena_tick(struct gm_arena *arena, uint64_t now_ns);

struct gm_arena_stats {
	uint64_t held;   /* chunks, those on their way in and out included */
	uint64_t in_use; /* asked for and not freed */
	uint64_t cached; /* held - in_use - rounding: ready for reuse, or waiting for the device */
	uint64_t rounding; /* what blocks are larger than was asked for */
	uint64_t peak;     /* of in_use; with several threads never less than it was */
	uint64_t hits;     /* allocations that did not ask the source */
	uint64_t misses;   /* allocations that did */
	uint64_t returns;  /* chunks given back */
	uint64_t active;   /* blocks alive */
	uint64_t moves;    /* chunks moved to where they were needed */
	uint64_t pending;  /* of cached: freed, but perhaps still used by the device */
	uint64_t reserved; /* address space */
};

void gm_arena_stats(struct gm_arena *arena, struct gm_arena_stats *ret_stats);

/* The status of an outcome or a negative errno. GM_ARENA_E_SOURCE: the source's own is better. */
gpumem_status gm_arena_status(int outcome);
/* A sentence on an outcome, for gpumem_error_detail(). NULL for GM_ARENA_E_SOURCE and 0. */
const char *gm_arena_text(int outcome);

#endif
