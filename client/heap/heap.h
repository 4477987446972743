/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_HEAP_H
#define GM_CLIENT_HEAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Cuts ranges of memory into blocks. The heap never touches the memory itself, which may be a
 * device's. It takes no lock and calls no driver. Sizes and addresses are multiples of
 * GM_HEAP_UNIT.
 *
 * Free blocks lie in bins. A heap may have several sets of bins; neighbours merge only if both are
 * free in the same bins.
 */

#define GM_HEAP_UNIT       UINT64_C(256)
#define GM_HEAP_UNIT_SHIFT 8
#define GM_HEAP_SUB_SHIFT  6
#define GM_HEAP_SUBS       (1 << GM_HEAP_SUB_SHIFT)
#define GM_HEAP_LEVELS     34 /* sizes below 2^47 */
/* How many blocks of one list are compared to find the best fit. */
#define GM_HEAP_DEPTH 16
/* How many descriptors a step of gm_heap_slab() returns. */
#define GM_HEAP_SLAB_BLOCKS 128

struct gm_heap_bins;

struct gm_heap_block {
	uint64_t addr;
	uint64_t bytes;
	struct gm_heap_block *prev, *next; /* by address; each end of a range has a sentinel */
	struct gm_heap_block *bin_prev, *bin_next;
	struct gm_heap_block *age_prev, *age_next;
	struct gm_heap_bins *bins; /* NULL: not free */
	uint64_t stamp;            /* free: as given to the heap. In use: the owner's */
	_Atomic uint32_t cookie;   /* in use: the owner's; starts as 0 */
	void *note;                /* in use: the owner's; starts as NULL */
};

struct gm_heap_bins {
	uint64_t bytes;
	bool aged;                     /* keeps the blocks in the order of their stamps */
	struct gm_heap_block *oldest;  /* its age_prev is the newest */
	uint64_t levels;               /* a bit per level with free blocks */
	uint64_t subs[GM_HEAP_LEVELS]; /* a bit per class of a level with free blocks */
	struct gm_heap_block *lists[GM_HEAP_LEVELS][GM_HEAP_SUBS];
};

struct gm_heap_slab;
struct gm_heap_range;

struct gm_heap {
	uint64_t bytes; /* of all ranges */
	bool apart;     /* ranges stay as they were added; nothing merges across their borders */
	struct gm_heap_block *spare; /* unused descriptors */
	unsigned n_spare;
	struct gm_heap_slab *slabs;
	struct gm_heap_range **ranges; /* sorted by address */
	size_t n_ranges, max_ranges;
};

enum {
	GM_HEAP_E_NONE = 1, /* no free block is large enough */
};

void gm_heap_init(struct gm_heap *heap);
/* Frees the descriptors of all blocks, free or not. */
void gm_heap_deinit(struct gm_heap *heap);
void gm_heap_bins_init(struct gm_heap_bins *bins, bool aged);

/* Adds a range, which must not overlap another. It joins the ranges it touches, unless they stay
 * apart. It is free in bins, as a part of *ret_block; ret_block may be NULL. -ENOMEM. */
int gm_heap_add(struct gm_heap *heap, uint64_t addr, uint64_t bytes, struct gm_heap_bins *bins,
	uint64_t stamp, struct gm_heap_block **ret_block);
/* Takes a piece of a free block out of the heap, which leaves a hole. The part below the piece
 * keeps the descriptor. -ENOMEM: nothing has changed. */
int gm_heap_remove(
	struct gm_heap *heap, struct gm_heap_block *block, uint64_t addr, uint64_t bytes);

/* Takes a block from bins; alignment is a power of two. GM_HEAP_E_NONE or -ENOMEM. */
int gm_heap_alloc(struct gm_heap *heap, struct gm_heap_bins *bins, uint64_t bytes,
	uint64_t alignment, struct gm_heap_block **ret_block);
/* Takes this piece of a free block. -ENOMEM. */
int gm_heap_carve(struct gm_heap *heap, struct gm_heap_block *block, uint64_t addr, uint64_t bytes,
	struct gm_heap_block **ret_block);
/* Frees a block into bins; returns the free block that it is now a part of. Aged bins must not
 * contain a later stamp. Cannot fail. */
struct gm_heap_block *gm_heap_release(struct gm_heap *heap, struct gm_heap_block *block,
	struct gm_heap_bins *bins, uint64_t stamp);
/* Does the same for a block that is free in other bins. */
struct gm_heap_block *gm_heap_rebin(struct gm_heap *heap, struct gm_heap_block *block,
	struct gm_heap_bins *bins, uint64_t stamp);

/* The last block of the range that ends at addr, and the first block of the range that starts at
 * addr. NULL: there is no such range. */
struct gm_heap_block *gm_heap_last_before(struct gm_heap *heap, uint64_t addr);
struct gm_heap_block *gm_heap_first_after(struct gm_heap *heap, uint64_t addr);

/* Walks the free blocks of at least min_bytes, smallest classes first: pass NULL, then the block
 * returned last. The bins must not change meanwhile. */
struct gm_heap_block *gm_heap_walk(
	struct gm_heap_bins *bins, uint64_t min_bytes, struct gm_heap_block *last);
/* Walks all descriptors, GM_HEAP_SLAB_BLOCKS at a time: pass NULL, then what was returned last.
 * Returns NULL at the end. Every block in use has bytes and no bins. The walk may miss blocks that
 * come or go between two steps. */
struct gm_heap_slab *gm_heap_slab(const struct gm_heap *heap, struct gm_heap_slab *last,
	struct gm_heap_block **ret_blocks, unsigned *ret_n);
/* Whether gm_heap_alloc() would find a block. */
bool gm_heap_fits(struct gm_heap_bins *bins, uint64_t bytes, uint64_t alignment);

#endif
