/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A good-fit heap in constant time. It has two levels of size classes (powers of two, each divided
 * into 64) with a bitmap per level, and a list of free blocks per class. A request looks through a
 * few blocks of its own class first: the plain two-level scheme skips that class, and so breaks
 * large blocks without need. Among equals the lowest address wins, which keeps long-lived blocks
 * together.
 *
 * Descriptors lie in host memory, apart from the memory they describe, and stay where they are
 * until the heap ends. So whoever holds a stale one reads a descriptor, never anything else.
 *
 * This module must never touch the memory, take a lock or call a driver.
 */
#include "autoconf.h"

#include "client/heap/heap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "common/arith.h"

struct gm_heap_slab {
	struct gm_heap_slab *next;
	struct gm_heap_block blocks[GM_HEAP_SLAB_BLOCKS];
};

/* Memory without a hole. The sentinels are in no bins, so nothing merges past them. */
struct gm_heap_range {
	uint64_t start, end;
	struct gm_heap_block head, tail;
};

/* How many ranges start below addr; also where in the sorted table a range that starts there
 * belongs. */
static size_t heap_range_index(const struct gm_heap *heap, uint64_t addr)
{
	size_t low = 0, high = heap->n_ranges;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (heap->ranges[middle]->start < addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct gm_heap_range *heap_range_from(const struct gm_heap *heap, uint64_t start)
{
	size_t i = heap_range_index(heap, start);

	return i < heap->n_ranges && heap->ranges[i]->start == start ? heap->ranges[i] : NULL;
}

static struct gm_heap_range *heap_range_until(const struct gm_heap *heap, uint64_t end)
{
	size_t i = heap_range_index(heap, end);

	return i > 0 && heap->ranges[i - 1]->end == end ? heap->ranges[i - 1] : NULL;
}

static int heap_range_new(
	struct gm_heap *heap, uint64_t start, uint64_t end, struct gm_heap_range **ret_range)
{
	struct gm_heap_range *range;
	size_t i = heap_range_index(heap, start);

	if (heap->n_ranges == heap->max_ranges) {
		size_t max = heap->max_ranges ? 2 * heap->max_ranges : 16;
		struct gm_heap_range **ranges = realloc(heap->ranges, max * sizeof(*ranges));

		if (!ranges)
			return -ENOMEM;
		heap->ranges = ranges;
		heap->max_ranges = max;
	}

	range = calloc(1, sizeof(*range));
	if (!range)
		return -ENOMEM;
	range->start = start;
	range->end = end;
	range->head.next = &range->tail;
	range->tail.prev = &range->head;

	memmove(&heap->ranges[i + 1], &heap->ranges[i],
		(heap->n_ranges - i) * sizeof(*heap->ranges));
	heap->ranges[i] = range;
	heap->n_ranges++;
	*ret_range = range;
	return 0;
}

static void heap_range_drop(struct gm_heap *heap, struct gm_heap_range *range)
{
	size_t i = heap_range_index(heap, range->start);

	heap->n_ranges--;
	memmove(&heap->ranges[i], &heap->ranges[i + 1],
		(heap->n_ranges - i) * sizeof(*heap->ranges));
	free(range);
}

void gm_heap_init(struct gm_heap *heap)
{
	memset(heap, 0, sizeof(*heap));
}

void gm_heap_deinit(struct gm_heap *heap)
{
	for (size_t i = 0; i < heap->n_ranges; i++)
		free(heap->ranges[i]);
	free(heap->ranges);
	while (heap->slabs) {
		struct gm_heap_slab *slab = heap->slabs;

		heap->slabs = slab->next;
		free(slab);
	}
	memset(heap, 0, sizeof(*heap));
}

void gm_heap_bins_init(struct gm_heap_bins *bins, bool aged)
{
	memset(bins, 0, sizeof(*bins));
	bins->aged = aged;
}

/* ---- descriptors */

/* Makes sure that the next n calls of heap_block_new() succeed. -ENOMEM. */
static int heap_ensure(struct gm_heap *heap, unsigned n)
{
	struct gm_heap_slab *slab;

	if (heap->n_spare >= n)
		return 0;
	slab = calloc(1, sizeof(*slab));
	if (!slab)
		return -ENOMEM;
	slab->next = heap->slabs;
	heap->slabs = slab;
	for (unsigned i = GM_HEAP_SLAB_BLOCKS; i > 0; i--) {
		slab->blocks[i - 1].next = heap->spare;
		heap->spare = &slab->blocks[i - 1];
	}
	heap->n_spare += GM_HEAP_SLAB_BLOCKS;
	return 0;
}

static struct gm_heap_block *heap_block_new(struct gm_heap *heap, uint64_t addr, uint64_t bytes)
{
	struct gm_heap_block *block = heap->spare;

	heap->spare = block->next;
	heap->n_spare--;
	block->addr = addr;
	block->bytes = bytes;
	block->bins = NULL;
	return block;
}

static void heap_block_drop(struct gm_heap *heap, struct gm_heap_block *block)
{
	block->bytes = 0;
	block->bins = NULL;
	block->next = heap->spare;
	heap->spare = block;
	heap->n_spare++;
}

struct gm_heap_slab *gm_heap_slab(const struct gm_heap *heap, struct gm_heap_slab *last,
	struct gm_heap_block **ret_blocks, unsigned *ret_n)
{
	/* New slabs come first and none ever goes, so all older slabs lie behind the last one. */
	struct gm_heap_slab *slab = last ? last->next : heap->slabs;

	if (slab) {
		*ret_blocks = slab->blocks;
		*ret_n = GM_HEAP_SLAB_BLOCKS;
	}
	return slab;
}

static void heap_link_after(struct gm_heap_block *where, struct gm_heap_block *block)
{
	block->prev = where;
	block->next = where->next;
	where->next->prev = block;
	where->next = block;
}

static void heap_unlink_block(struct gm_heap_block *block)
{
	block->prev->next = block->next;
	block->next->prev = block->prev;
}

/* ---- bins */

static inline void heap_class_of(uint64_t bytes, unsigned *ret_level, unsigned *ret_sub)
{
	uint64_t units = bytes >> GM_HEAP_UNIT_SHIFT;

	if (units < GM_HEAP_SUBS) {
		*ret_level = 0;
		*ret_sub = (unsigned)units;
	} else {
		unsigned top = 63 - (unsigned)__builtin_clzll(units);

		*ret_level = top - GM_HEAP_SUB_SHIFT + 1;
		*ret_sub = (unsigned)(units >> (top - GM_HEAP_SUB_SHIFT)) & (GM_HEAP_SUBS - 1);
	}
}

static void heap_list_insert(struct gm_heap_bins *bins, struct gm_heap_block *block)
{
	unsigned level, sub;
	struct gm_heap_block **list;

	heap_class_of(block->bytes, &level, &sub);
	list = &bins->lists[level][sub];
	block->bin_prev = NULL;
	block->bin_next = *list;
	if (*list)
		(*list)->bin_prev = block;
	*list = block;
	bins->subs[level] |= UINT64_C(1) << sub;
	bins->levels |= UINT64_C(1) << level;
	bins->bytes += block->bytes;
	block->bins = bins;
}

static void heap_list_remove(struct gm_heap_bins *bins, struct gm_heap_block *block)
{
	if (block->bin_next)
		block->bin_next->bin_prev = block->bin_prev;
	if (block->bin_prev) {
		block->bin_prev->bin_next = block->bin_next;
	} else {
		unsigned level, sub;

		heap_class_of(block->bytes, &level, &sub);
		bins->lists[level][sub] = block->bin_next;
		if (!block->bin_next) {
			bins->subs[level] &= ~(UINT64_C(1) << sub);
			if (!bins->subs[level])
				bins->levels &= ~(UINT64_C(1) << level);
		}
	}
	bins->bytes -= block->bytes;
	block->bins = NULL;
}

static void heap_bins_insert(struct gm_heap_bins *bins, struct gm_heap_block *block, uint64_t stamp)
{
	heap_list_insert(bins, block);
	block->stamp = stamp;
	if (bins->aged)
		DL_APPEND2(bins->oldest, block, age_prev, age_next);
}

static void heap_bins_remove(struct gm_heap_block *block)
{
	struct gm_heap_bins *bins = block->bins;

	heap_list_remove(bins, block);
	if (bins->aged)
		DL_DELETE2(bins->oldest, block, age_prev, age_next);
}

static inline bool heap_block_fits(
	const struct gm_heap_block *block, uint64_t bytes, uint64_t alignment)
{
	uint64_t skip = gm_round_up(block->addr, alignment) - block->addr;

	return block->bytes >= bytes && block->bytes - bytes >= skip;
}

static struct gm_heap_block *heap_list_search(
	struct gm_heap_block *block, uint64_t bytes, uint64_t alignment)
{
	struct gm_heap_block *best = NULL;

	for (unsigned i = 0; block && i < GM_HEAP_DEPTH; i++, block = block->bin_next) {
		if (!heap_block_fits(block, bytes, alignment))
			continue;
		if (!best || block->bytes < best->bytes ||
			(block->bytes == best->bytes && block->addr < best->addr))
			best = block;
	}
	return best;
}

/* Finds the next class with blocks in it, starting with this one. */
static bool heap_class_next(const struct gm_heap_bins *bins, unsigned *level, unsigned *sub)
{
	uint64_t subs, levels;

	if (*level >= GM_HEAP_LEVELS)
		return false;
	subs = *sub < GM_HEAP_SUBS ? bins->subs[*level] & (~UINT64_C(0) << *sub) : 0;
	if (!subs) {
		levels = bins->levels & (~UINT64_C(0) << *level) & ~(UINT64_C(1) << *level);
		if (!levels)
			return false;
		*level = (unsigned)__builtin_ctzll(levels);
		subs = bins->subs[*level];
	}
	*sub = (unsigned)__builtin_ctzll(subs);
	return true;
}

static struct gm_heap_block *heap_search(
	struct gm_heap_bins *bins, uint64_t bytes, uint64_t alignment)
{
	unsigned level, sub;
	uint64_t sure = bytes + (alignment > GM_HEAP_UNIT ? alignment - GM_HEAP_UNIT : 0);

	heap_class_of(bytes, &level, &sub);
	/* From the second class on, every block is large enough. Only the alignment can be a
	 * problem, and not for many classes. */
	for (unsigned i = 0; i < GM_HEAP_DEPTH && heap_class_next(bins, &level, &sub); i++, sub++) {
		struct gm_heap_block *best =
			heap_list_search(bins->lists[level][sub], bytes, alignment);

		if (best)
			return best;
	}
	if (sure == bytes)
		return NULL;

	/* Blocks that fit wherever they start. */
	heap_class_of(sure, &level, &sub);
	for (sub++; heap_class_next(bins, &level, &sub); sub++) {
		struct gm_heap_block *best =
			heap_list_search(bins->lists[level][sub], bytes, alignment);

		if (best)
			return best;
	}
	return NULL;
}

bool gm_heap_fits(struct gm_heap_bins *bins, uint64_t bytes, uint64_t alignment)
{
	return heap_search(bins, bytes, alignment) != NULL;
}

/* ---- blocks */

int gm_heap_carve(struct gm_heap *heap, struct gm_heap_block *block, uint64_t addr, uint64_t bytes,
	struct gm_heap_block **ret_block)
{
	struct gm_heap_bins *bins = block->bins;
	uint64_t below = addr - block->addr;
	uint64_t above = block->bytes - below - bytes;
	struct gm_heap_block *taken = block;
	int r;

	r = heap_ensure(heap, 2);
	if (r < 0)
		return r;

	heap_list_remove(bins, block);
	if (above) {
		struct gm_heap_block *rest = heap_block_new(heap, addr + bytes, above);

		heap_link_after(block, rest);
		rest->stamp = block->stamp;
		heap_list_insert(bins, rest);
		if (bins->aged) /* a piece is as old as the block it was cut from */
			DL_APPEND_ELEM2(bins->oldest, block, rest, age_prev, age_next);
	}
	if (below) {
		taken = heap_block_new(heap, addr, bytes);
		heap_link_after(block, taken);
		block->bytes = below;
		heap_list_insert(bins, block);
	} else {
		block->bytes = bytes;
		if (bins->aged)
			DL_DELETE2(bins->oldest, block, age_prev, age_next);
	}

	atomic_store_explicit(&taken->cookie, 0, memory_order_relaxed);
	taken->note = NULL;
	*ret_block = taken;
	return 0;
}

int gm_heap_alloc(struct gm_heap *heap, struct gm_heap_bins *bins, uint64_t bytes,
	uint64_t alignment, struct gm_heap_block **ret_block)
{
	struct gm_heap_block *block = heap_search(bins, bytes, alignment);

	if (!block)
		return GM_HEAP_E_NONE;
	return gm_heap_carve(heap, block, gm_round_up(block->addr, alignment), bytes, ret_block);
}

struct gm_heap_block *gm_heap_release(struct gm_heap *heap, struct gm_heap_block *block,
	struct gm_heap_bins *bins, uint64_t stamp)
{
	struct gm_heap_block *other = block->next;

	if (other->bins == bins) {
		heap_bins_remove(other);
		block->bytes += other->bytes;
		heap_unlink_block(other);
		heap_block_drop(heap, other);
	}
	other = block->prev;
	if (other->bins == bins) {
		heap_bins_remove(other);
		other->bytes += block->bytes;
		heap_unlink_block(block);
		heap_block_drop(heap, block);
		block = other;
	}
	heap_bins_insert(bins, block, stamp);
	return block;
}

struct gm_heap_block *gm_heap_rebin(struct gm_heap *heap, struct gm_heap_block *block,
	struct gm_heap_bins *bins, uint64_t stamp)
{
	heap_bins_remove(block);
	return gm_heap_release(heap, block, bins, stamp);
}

/* ---- ranges */

int gm_heap_add(struct gm_heap *heap, uint64_t addr, uint64_t bytes, struct gm_heap_bins *bins,
	uint64_t stamp, struct gm_heap_block **ret_block)
{
	struct gm_heap_range *low = heap->apart ? NULL : heap_range_until(heap, addr);
	struct gm_heap_range *high = heap->apart ? NULL : heap_range_from(heap, addr + bytes);
	struct gm_heap_block *block;
	int r;

	r = heap_ensure(heap, 1);
	if (r < 0)
		return r;
	if (!low && !high) {
		r = heap_range_new(heap, addr, addr + bytes, &low);
		if (r < 0)
			return r;
		block = heap_block_new(heap, addr, bytes);
		heap_link_after(&low->head, block);
	} else if (low) {
		block = heap_block_new(heap, addr, bytes);
		heap_link_after(low->tail.prev, block);
		low->end = addr + bytes;
		if (high) {
			/* Three ranges become one: the lower takes over the blocks of the upper. */
			block->next = high->head.next;
			block->next->prev = block;
			low->tail.prev = high->tail.prev;
			low->tail.prev->next = &low->tail;
			low->end = high->end;
			heap_range_drop(heap, high);
		}
	} else {
		block = heap_block_new(heap, addr, bytes);
		heap_link_after(&high->head, block);
		high->start = addr;
	}

	heap->bytes += bytes;
	block = gm_heap_release(heap, block, bins, stamp);
	if (ret_block)
		*ret_block = block;
	return 0;
}

int gm_heap_remove(struct gm_heap *heap, struct gm_heap_block *block, uint64_t addr, uint64_t bytes)
{
	struct gm_heap_range *range, *upper = NULL;
	struct gm_heap_block *piece;
	bool first, last;
	int r;

	range = heap->ranges[heap_range_index(heap, addr + 1) - 1];
	first = addr == range->start;
	last = addr + bytes == range->end;
	if (!first && !last) {
		/* First: if this fails, nothing has changed yet. */
		r = heap_range_new(heap, addr + bytes, range->end, &upper);
		if (r < 0)
			return r;
	}
	r = gm_heap_carve(heap, block, addr, bytes, &piece);
	if (r < 0) {
		if (upper)
			heap_range_drop(heap, upper);
		return r;
	}

	if (upper) {
		upper->head.next = piece->next;
		upper->head.next->prev = &upper->head;
		upper->tail.prev = range->tail.prev;
		upper->tail.prev->next = &upper->tail;
		piece->next = &range->tail;
		range->tail.prev = piece;
		range->end = addr;
	}

	heap_unlink_block(piece);
	heap_block_drop(heap, piece);
	if (first && last) {
		heap_range_drop(heap, range);
	} else if (first) {
		range->start = addr + bytes;
	} else {
		range->end = addr;
	}
	heap->bytes -= bytes;
	return 0;
}

struct gm_heap_block *gm_heap_last_before(struct gm_heap *heap, uint64_t addr)
{
	struct gm_heap_range *range = heap_range_until(heap, addr);

	return range ? range->tail.prev : NULL;
}

struct gm_heap_block *gm_heap_first_after(struct gm_heap *heap, uint64_t addr)
{
	struct gm_heap_range *range = heap_range_from(heap, addr);

	return range ? range->head.next : NULL;
}

struct gm_heap_block *gm_heap_walk(
	struct gm_heap_bins *bins, uint64_t min_bytes, struct gm_heap_block *last)
{
	unsigned level = 0, sub = 0;

	if (last) {
		for (struct gm_heap_block *b = last->bin_next; b; b = b->bin_next) {
			if (b->bytes >= min_bytes)
				return b;
		}
		heap_class_of(last->bytes, &level, &sub);
		sub++;
	} else {
		heap_class_of(min_bytes, &level, &sub);
	}
	for (; heap_class_next(bins, &level, &sub); sub++) {
		for (struct gm_heap_block *b = bins->lists[level][sub]; b; b = b->bin_next) {
			if (b->bytes >= min_bytes)
				return b;
		}
	}
	return NULL;
}
