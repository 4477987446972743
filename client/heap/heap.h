/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_HEAP_H
#define GM_CLIENT_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Cuts ranges of memory into blocks. The memory itself is never touched: it may be a device's. No
 * lock inside, no driver call. Sizes and addresses are multiples of GM_HEAP_UNIT.
 *
 * Free blocks lie in bins, and there may be several sets of bins over one heap: neighbours merge
 * only when both are free in the same bins.
 */

#define GM_HEAP_UNIT       UINT64_C(256)
#define GM_HEAP_UNIT_SHIFT 8
#define GM_HEAP_SUB_SHIFT  6
#define GM_HEAP_SUBS       (1 << GM_HEAP_SUB_SHIFT)
#define GM_HEAP_LEVELS     34 /* sizes below 2^47 */
/* How many entries of one list are looked at for the one that fits best. */
#define GM_HEAP_DEPTH 16
/* How many descriptors a step of gm_heap_slab() brings. */
#define GM_HEAP_SLAB_BLOCKS 128

struct gm_heap_bins;

struct gm_heap_block {
	uint64_t addr;
	uint64_t bytes;
	struct gm_heap_block *prev, *next; /* by address; a range begins and ends with a sentinel */
	struct gm_heap_block *bin_prev, *bin_next;
	struct gm_heap_block *age_prev, *age_next;
	struct gm_heap_bins *bins; /* NULL: not free */
	uint64_t stamp;            /* free: as given. In use: the owner's */
	uint32_t cookie;           /* in use: the owner's; 0 when it is taken */
	void *note;                /* in use: the owner's; NULL when it is taken */
};

struct gm_heap_bins {
	uint64_t bytes;
	bool aged;                    /* keep the blocks in the order of their stamps */
	struct gm_heap_block *oldest; /* its age_prev is the newest */
	uint64_t levels;
	uint64_t subs[GM_HEAP_LEVELS];
	struct gm_heap_block *lists[GM_HEAP_LEVELS][GM_HEAP_SUBS];
};

struct gm_heap_slab;
struct gm_heap_range;

struct gm_heap {
	uint64_t bytes; /* of all ranges */
	bool apart;     /* ranges stay as they were added: nothing merges across their borders */
	struct gm_heap_block *spare;
	unsigned n_spare;
	struct gm_heap_slab *slabs;
	struct gm_heap_range **ranges; /* sorted by address */
	size_t n_ranges, max_ranges;
};

enum {
	GM_HEAP_E_NONE = 1, /* no free block is large enough */
};

void gm_heap_init(struct gm_heap *heap);
/* Every block is gone with it, free or not. */
void gm_heap_deinit(struct gm_heap *heap);
void gm_heap_bins_init(struct gm_heap_bins *bins, bool aged);

/* A new range, overlapping none; it joins with those it touches, unless they stay apart. It is free
 * in bins, as a part of *ret_block (may be NULL). -ENOMEM. */
int gm_heap_add(struct gm_heap *heap, uint64_t addr, uint64_t bytes, struct gm_heap_bins *bins,
	uint64_t stamp, struct gm_heap_block **ret_block);
/* Takes a piece of a free block out of the heap, which leaves a hole. What is left below the piece
 * keeps the block. -ENOMEM: nothing changed. */
int gm_heap_remove(
	struct gm_heap *heap, struct gm_heap_block *block, uint64_t addr, uint64_t bytes);

/* A block of bytes from bins; alignment is a power of two. GM_HEAP_E_NONE or -ENOMEM. */
int gm_heap_alloc(struct gm_heap *heap, struct gm_heap_bins *bins, uint64_t bytes,
	uint64_t alignment, struct gm_heap_block **ret_block);
/* This piece of a free block. -ENOMEM. */
int gm_heap_carve(struct gm_heap *heap, struct gm_heap_block *block, uint64_t addr, uint64_t bytes,
	struct gm_heap_block **ret_block);
/* Frees a block into bins; returns the free block it became a part of. In aged bins no block may
 * have a later stamp. Cannot fail. */
struct gm_heap_block *gm_heap_release(struct gm_heap *heap, struct gm_heap_block *block,
	struct gm_heap_bins *bins, uint64_t stamp);
/* The same for a block that is free in other bins. */
struct gm_heap_block *gm_heap_rebin(struct gm_heap *heap, struct gm_heap_block *block,
	struct gm_heap_bins *bins, uint64_t stamp);

/* The block that ends where a range ends, at addr, or that starts where a range starts; NULL: no
 * range does. */
struct gm_heap_block *gm_heap_last_before(struct gm_heap *heap, uint64_t addr);
struct gm_heap_block *gm_heap_first_after(struct gm_heap *heap, uint64_t addr);

/* Walks the free blocks of at least min_bytes, smallest classes first: pass NULL, then the last one
 * got. The bins may not change meanwhile. */
struct gm_heap_block *gm_heap_walk(
	struct gm_heap_bins *bins, uint64_t min_bytes, struct gm_heap_block *last);
/* Walks every descriptor there is, a bounded number at a time: pass NULL, then what came last;
 * NULL: that was all. Those in use are among the ones with bytes and without bins. Blocks may come
 * and go between two steps: some of those are then not met. */
struct gm_heap_slab *gm_heap_slab(const struct gm_heap *heap, struct gm_heap_slab *last,
	struct gm_heap_block **ret_blocks, unsigned *ret_n);
/* Whether a block of bytes with that alignment would be found. */
bool gm_heap_fits(struct gm_heap_bins *bins, uint64_t bytes, uint64_t alignment);

#endif
