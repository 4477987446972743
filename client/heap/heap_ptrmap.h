/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_HEAP_HEAP_PTRMAP_H
#define GM_CLIENT_HEAP_HEAP_PTRMAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A table from addresses in a range to values, one value per granule. Reading takes no lock and
 * never fails: where nothing was set, it finds 0. Two threads must not set the value of one granule
 * at the same time.
 */

#define GM_HEAP_PTRMAP_LEAF_SHIFT 12
#define GM_HEAP_PTRMAP_LEAF       (1 << GM_HEAP_PTRMAP_LEAF_SHIFT)

typedef _Atomic uintptr_t gm_heap_ptrmap_leaf[GM_HEAP_PTRMAP_LEAF];

struct gm_heap_ptrmap {
	uint64_t base;
	uint64_t bytes;
	unsigned shift; /* of a granule */
	size_t n_leaves;
	gm_heap_ptrmap_leaf *_Atomic *leaves;
};

/* -ENOMEM. */
int gm_heap_ptrmap_init(struct gm_heap_ptrmap *map, uint64_t base, uint64_t bytes, unsigned shift);
/* Nobody may be reading. The map may be all zeros. */
void gm_heap_ptrmap_deinit(struct gm_heap_ptrmap *map);
/* Makes room for the values of [addr, addr + bytes), which stays until the map ends. -ENOMEM. */
int gm_heap_ptrmap_cover(struct gm_heap_ptrmap *map, uint64_t addr, uint64_t bytes);

static inline bool gm_heap_ptrmap_holds(const struct gm_heap_ptrmap *map, uint64_t addr)
{
	return addr - map->base < map->bytes;
}

/* addr must be covered. */
static inline void gm_heap_ptrmap_set(struct gm_heap_ptrmap *map, uint64_t addr, uintptr_t value)
{
	uint64_t granule = (addr - map->base) >> map->shift;
	gm_heap_ptrmap_leaf *leaf = atomic_load_explicit(
		&map->leaves[granule >> GM_HEAP_PTRMAP_LEAF_SHIFT], memory_order_relaxed);

	atomic_store_explicit(
		&(*leaf)[granule & (GM_HEAP_PTRMAP_LEAF - 1)], value, memory_order_release);
}

/* Changes the value of a granule from `from` to `to`. Returns false if it is another value. addr must be covered. Several
 * threads may try at the same time: one of them succeeds. */
static inline bool gm_heap_ptrmap_change(
	struct gm_heap_ptrmap *map, uint64_t addr, uintptr_t from, uintptr_t to)
{
	uint64_t granule = (addr - map->base) >> map->shift;
	gm_heap_ptrmap_leaf *leaf = atomic_load_explicit(
		&map->leaves[granule >> GM_HEAP_PTRMAP_LEAF_SHIFT], memory_order_relaxed);

	return atomic_compare_exchange_strong(
		&(*leaf)[granule & (GM_HEAP_PTRMAP_LEAF - 1)], &from, to);
}

/* addr may be any address. */
static inline uintptr_t gm_heap_ptrmap_get(const struct gm_heap_ptrmap *map, uint64_t addr)
{
	uint64_t offset = addr - map->base;
	uint64_t granule = offset >> map->shift;
	gm_heap_ptrmap_leaf *leaf;

	if (offset >= map->bytes)
		return 0;
	leaf = atomic_load_explicit(
		&map->leaves[granule >> GM_HEAP_PTRMAP_LEAF_SHIFT], memory_order_acquire);
	if (!leaf)
		return 0;
	return atomic_load_explicit(
		&(*leaf)[granule & (GM_HEAP_PTRMAP_LEAF - 1)], memory_order_acquire);
}

/* The last value at or below addr that is not 0; 0: there is none. Slow. */
uintptr_t gm_heap_ptrmap_below(const struct gm_heap_ptrmap *map, uint64_t addr);

#endif
