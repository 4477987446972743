/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of tables over a range of addresses. Tables are made when memory is mapped and kept until
 * the end, so a reader never meets one that is gone. Each word is read and written atomically.
 *
 * Two threads must never write at once. This module must never follow a value.
 */
#include "autoconf.h"

#include "client/heap/heap_ptrmap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int gm_heap_ptrmap_init(struct gm_heap_ptrmap *map, uint64_t base, uint64_t bytes, unsigned shift)
{
	uint64_t leaf_bytes = UINT64_C(1) << (shift + GM_HEAP_PTRMAP_LEAF_SHIFT);

	memset(map, 0, sizeof(*map));
	map->n_leaves = (size_t)((bytes + leaf_bytes - 1) / leaf_bytes);
	map->leaves = calloc(map->n_leaves, sizeof(*map->leaves));
	if (!map->leaves)
		return -ENOMEM;
	map->base = base;
	map->bytes = bytes;
	map->shift = shift;
	return 0;
}

void gm_heap_ptrmap_deinit(struct gm_heap_ptrmap *map)
{
	for (size_t i = 0; map->leaves && i < map->n_leaves; i++)
		free(atomic_load_explicit(&map->leaves[i], memory_order_relaxed));
	free((void *)map->leaves);
	memset(map, 0, sizeof(*map));
}

int gm_heap_ptrmap_cover(struct gm_heap_ptrmap *map, uint64_t addr, uint64_t bytes)
{
	unsigned shift = map->shift + GM_HEAP_PTRMAP_LEAF_SHIFT;
	size_t last = (size_t)((addr - map->base + bytes - 1) >> shift);

	for (size_t i = (size_t)((addr - map->base) >> shift); i <= last; i++) {
		gm_heap_ptrmap_leaf *leaf;

		if (atomic_load_explicit(&map->leaves[i], memory_order_relaxed))
			continue;
		leaf = calloc(1, sizeof(*leaf));
		if (!leaf)
			return -ENOMEM;
		atomic_store_explicit(&map->leaves[i], leaf, memory_order_release);
	}
	return 0;
}

uintptr_t gm_heap_ptrmap_below(const struct gm_heap_ptrmap *map, uint64_t addr)
{
	uint64_t granule = (addr - map->base) >> map->shift;

	if (!gm_heap_ptrmap_holds(map, addr))
		return 0;
	for (;;) {
		gm_heap_ptrmap_leaf *leaf = atomic_load_explicit(
			&map->leaves[granule >> GM_HEAP_PTRMAP_LEAF_SHIFT], memory_order_acquire);

		for (uint64_t i = granule & (GM_HEAP_PTRMAP_LEAF - 1);; i--) {
			uintptr_t value =
				leaf ? atomic_load_explicit(&(*leaf)[i], memory_order_acquire) : 0;

			if (value)
				return value;
			if (i == 0 || !leaf)
				break;
		}
		if (granule < GM_HEAP_PTRMAP_LEAF)
			return 0;
		granule = ((granule >> GM_HEAP_PTRMAP_LEAF_SHIFT) << GM_HEAP_PTRMAP_LEAF_SHIFT) - 1;
	}
}
