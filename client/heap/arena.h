/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_ARENA_H
#define GM_CLIENT_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/map/map.h"
#include "client/heap/heap.h"
#include "client/heap/heap_source.h"
#include "common/bounds.h"
#include "gpumem/gpumem.h"

/*
 * This folder gives out blocks of one device's memory and takes them back, in constant time and
 * without a message to the daemon, as long as it holds enough chunks. It must never know sessions,
 * messages or a driver: chunks come from a table of functions (heap_source.h) and are mapped by another
 * (map.h).
 *
 * An arena is one device's memory in this process. It maps the chunks of a source side by side into
 * one reserved address range; one heap cuts them into blocks, and each thread caches small blocks.
 * gpumem_alloc() and gpumem_free() call the arena of their device.
 *
 * Memory that cannot be mapped at an address of our choice (the ipc transport) comes in regions:
 * one per chunk, wherever it lies. Nothing merges or moves across the borders of regions, and a
 * region goes back when all of it is free.
 *
 * All calls except _new and _free may be made from any thread, and several at once. The arena holds
 * no lock while it calls the source, the backend or wake(). A forked child must not call the arena
 * at all.
 */

struct gm_arena;

struct gm_arena_config {
	const struct gm_map_ops *ops;
	void *backend;
	struct gm_heap_source source;
	/* The backend chooses the chunks' addresses (attach); no address space is reserved. */
	bool regions;
	/* Address space to reserve; halved until the platform has that much. 0: 4 TiB. */
	uint64_t reserve;
	/* A range of reserve bytes that the caller owns. Then chunks lie side by side from its start,
	 * in the order in which the source gave them, and stay there: the arena never moves one. The
	 * caller uses GM_ARENA_LISTED, one thread at a time allocates, and gm_arena_range_cut() and
	 * gm_arena_range_tick() take the place of trims and ticks. NULL: the arena reserves its
	 * range itself. */
	void *range;
	/* How long an unused chunk stays here. 0: it goes back at the next tick. */
	uint64_t decay_ns;
	/*
	 * Called by the thread that frees when the arena needs a gm_arena_tick() soon, although the
	 * last tick returned GM_ARENA_NEVER. Called at most once between two ticks. Must not call
	 * the arena and must not wait. May be NULL.
	 */
	void (*wake)(void *ctx);
	void *wake_ctx;
};

/*
 * A call returns 0, one of these, or a negative errno: -ENOMEM if the host has no memory, others as
 * the backend returned them. gm_arena_status() turns any of them into a status.
 */
enum gm_arena_outcome {
	GM_ARENA_E_SIZE = 1,      /* the size is 0, or more than GM_LEASE_BYTES_MAX */
	GM_ARENA_E_ALIGNMENT = 2, /* no power of two, or more than GM_CHUNK_MAX */
	GM_ARENA_E_SOURCE = 3,    /* the source gave no more; ret_status is its status, and
				     gpumem_error_detail() still says what the source left there */
	GM_ARENA_E_SPACE = 4,     /* the reserved range has no gap that is large enough */
	GM_ARENA_E_FOREIGN = 5,   /* the pointer lies outside the arena */
	GM_ARENA_E_INSIDE = 6,    /* the pointer is inside a live block, not at its start */
	GM_ARENA_E_FREED = 7,     /* no block is alive there: freed already, or never handed out */
	GM_ARENA_E_STREAM = 8,    /* GPUMEM_STREAM_DONE is for freeing only */
};

/* -ENOMEM if not even 64 MiB of address space can be reserved. */
int gm_arena_new(const struct gm_arena_config *config, struct gm_arena **ret_arena);
/* Unmaps everything and gives every chunk back to the source, even if it is in use. Waits for the
 * device if it may still use freed memory. No other thread may be in a call. false: something could
 * not be unmapped, and did not go back. arena may be NULL. */
bool gm_arena_free(struct gm_arena *arena);

enum gm_arena_flag {
	/* The block can be listed, so it does not come from a thread's cache. Blocks larger than
	 * GM_SMALL_MAX can always be listed. */
	GM_ARENA_LISTED = 1 << 0,
	/* The call does not wait for other threads, which may have asked the source for chunks. */
	GM_ARENA_HERE = 1 << 1,
	/* The call takes what is at hand: it neither empties the caches of other threads, nor makes
	 * the stream wait for work that uses freed memory. */
	GM_ARENA_EASY = 1 << 2,
};

/*
 * alignment: a power of two; 0 stands for 256. call: the arguments for the source, and the tag of the block
 * in lists; may be NULL. The arena keeps a copy of the tag while the block is alive. A block that cannot
 * be listed keeps no tag.
 * ret_status may be NULL and is written with GM_ARENA_E_SOURCE only.
 */
int gm_arena_alloc(struct gm_arena *arena, uint64_t size, uint64_t alignment, gpumem_stream stream,
	unsigned flags, struct gm_heap_source_call *call, void **ret_ptr,
	gpumem_status *ret_status);
/* Never waits, and never calls the source. *ret_cookie is the block's cookie, 0 if it has none;
 * ret_cookie may be NULL. */
int gm_arena_dealloc(struct gm_arena *arena, void *ptr, gpumem_stream stream, uint32_t *ret_cookie);

/*
 * Listing the live blocks, at no cost to those who allocate. The caller goes through the heap's
 * descriptors now and then and leaves a cookie on each block that it has listed. When the block is
 * freed, gm_arena_dealloc() returns the cookie.
 */
struct gm_arena_entry {
	void *ptr;
	uint64_t size;   /* as asked for */
	uint64_t serial; /* of the tag; 0 if the block has no tag */
	char tag[GM_BOUND_NAME_BYTES + 1];
};

#define GM_ARENA_ENTRIES GM_HEAP_SLAB_BLOCKS
struct gm_arena_walk {
	struct gm_heap_slab *at; /* NULL: before the first step */
	bool over;
};

/* One step through the live blocks of at least min_bytes that have no cookie; holds the lock for a
 * short time. Steps until walk->over meet every block that is alive all the while. Returns how many
 * entries it wrote. */
size_t gm_arena_unlisted(struct gm_arena *arena, uint64_t min_bytes, struct gm_arena_walk *walk,
	struct gm_arena_entry ret_entries[GM_ARENA_ENTRIES]);
/* Leaves a cookie on a block found so; cookie must not be 0. GM_ARENA_E_FREED: the block is gone,
 * or another block is there now, or it has a cookie already. */
int gm_arena_set_cookie(
	struct gm_arena *arena, const struct gm_arena_entry *entry, uint32_t cookie);
/* Describes a live block that starts at ptr, whether it has a cookie or not. Fails like
 * gm_arena_dealloc(), and for small objects that threads may cache. */
int gm_arena_describe(struct gm_arena *arena, void *ptr, struct gm_arena_entry *ret_entry);
/* Leaves a cookie on such a block, and returns the one that was there, or 0. Nobody may free the block
 * meanwhile. */
int gm_arena_swap_cookie(struct gm_arena *arena, void *ptr, uint32_t cookie, uint32_t *ret_old);
/* A number that changes whenever the heap hands out a block or gets one back. */
uint64_t gm_arena_changes(struct gm_arena *arena);

/* Whether the address lies in the arena's range or in one of its regions. This says which device a
 * pointer belongs to. */
bool gm_arena_holds(const struct gm_arena *arena, const void *ptr);
/* The size that was asked for at the start of a live block. Fails like gm_arena_dealloc(). */
int gm_arena_size(struct gm_arena *arena, const void *ptr, uint64_t *ret_size);

/*
 * Lists the chunks that carry a live block of so many bytes, by address; *ret_offset is where it begins
 * in the first. Nobody may free the block meanwhile. The caller frees the list. -ENOMEM; -EPROTO: no
 * chunk lies there.
 */
int gm_arena_cover(struct gm_arena *arena, const void *ptr, uint64_t bytes, uint64_t **ret_ids,
	size_t *ret_n, uint64_t *ret_offset);

/*
 * Finds out which freed memory the device has finished with, and waits for other threads that are finding that out or are
 * giving memory back. While some memory still waits for the device, looks again, for patience_ns at most: an event needs
 * some microseconds to pass even on an idle device. Ticks and trims do not wait.
 */
void gm_arena_settle(struct gm_arena *arena, uint64_t patience_ns);

/* Gives back unused chunks, and those that only caches use, until min_bytes are gone (UINT64_MAX:
 * all). Chunks that still wait for the device go at a later tick. Returns how many bytes went
 * back. */
uint64_t gm_arena_trim(struct gm_arena *arena, uint64_t min_bytes);

#define GM_ARENA_NEVER UINT64_MAX
/* Housekeeping: decay, the caches of idle threads, and memory that waited for the device. now_ns is
 * on CLOCK_MONOTONIC. Returns the time of the next call on the same clock; GM_ARENA_NEVER: not
 * before wake(). One thread at a time. */
uint64_t gm_arena_tick(struct gm_arena *arena, uint64_t now_ns);

/*
 * For an arena over a range of the caller's. Everything is counted in bytes from the start of the range.
 */

/* A piece of the range. */
struct gm_arena_piece {
	uint64_t offset;
	uint64_t bytes;
};

/* Frees memory that waited for the device and that the device has finished with. Returns when another call may
 * help. Any thread may call it; ticks come as before. */
uint64_t gm_arena_range_settle(struct gm_arena *arena, uint64_t now_ns);
/* The same for the one thread that wake() wakes. Returns when to call again, as gm_arena_tick() does. */
uint64_t gm_arena_range_tick(struct gm_arena *arena, uint64_t now_ns);
/* Where the last block ends that is alive or waits for the device, in whole units of GM_CHUNK_MIN. */
uint64_t gm_arena_range_used(struct gm_arena *arena);
/* Forgets the memory behind gm_arena_range_used() without calling the source: the caller takes it back. Nobody may
 * allocate meanwhile. Returns where the memory of the arena ends now. That may be further back if the host has
 * no memory. */
uint64_t gm_arena_range_cut(struct gm_arena *arena);
/* Lists what is alive, lowest first. Blocks with less than gap bytes between them are one piece. What
 * waits for the device is not alive. The caller frees the list; it is NULL if nothing is alive.
 * -ENOMEM. */
int gm_arena_range_live(
	struct gm_arena *arena, uint64_t gap, struct gm_arena_piece **ret_pieces, size_t *ret_n);

struct gm_arena_stats {
	uint64_t held;     /* bytes of all chunks, including those on their way in or out */
	uint64_t in_use;   /* bytes asked for and not freed */
	uint64_t cached;   /* not in use, and gm_arena_trim() would give it back now */
	uint64_t slack;    /* held - in_use - cached: rounding, free pieces of chunks that are
			      partly in use, and freed memory that the device may still use */
	uint64_t rounding; /* part of slack: what blocks are larger than was asked for */
	uint64_t peak;     /* of in_use; exact with one thread, approximate with several */
	uint64_t hits;     /* allocations that did not ask the source */
	uint64_t misses;   /* allocations that did */
	uint64_t returns;  /* chunks given back */
	uint64_t active;   /* live blocks */
	uint64_t moves;    /* chunks moved to where they were needed */
	uint64_t pending;  /* part of slack: freed, but the device may still use it */
	uint64_t reserved; /* address space */
};

void gm_arena_stats(struct gm_arena *arena, struct gm_arena_stats *ret_stats);

/* The status of an outcome or a negative errno. After GM_ARENA_E_SOURCE, the source's own status
 * says more. */
gpumem_status gm_arena_status(int outcome);
/* A sentence about an outcome, for gpumem_error_detail(). NULL for GM_ARENA_E_SOURCE and 0. */
const char *gm_arena_text(int outcome);

#endif
