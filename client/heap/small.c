/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slabs, spans and objects. Small blocks stay together in slabs, so that one small block that lives
 * long does not hold a large chunk. A slab goes back when its last object is free.
 *
 * The descriptor of a slab that went back is kept for the next slab and is freed at the end only.
 * So a thread that looks up a stale pointer without a lock reads a descriptor, never anything else.
 *
 * This module must never touch the memory itself.
 */
#include "autoconf.h"

#include "client/heap/small.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

void gm_small_init(struct gm_small *small, struct gm_heap_ptrmap *map)
{
	memset(small, 0, sizeof(*small));
	small->map = map;
}

void gm_small_deinit(struct gm_small *small)
{
	struct gm_small_slab *slab, *next;

	LL_CONCAT(small->slabs, small->spare);
	LL_FOREACH_SAFE (small->slabs, slab, next)
		free(slab);
	memset(small, 0, sizeof(*small));
}

unsigned gm_small_class_aligned(uint64_t size, uint64_t alignment)
{
	unsigned class = gm_small_class(size);

	/* This ends: the largest class is a multiple of every alignment that may be asked for. */
	while (gm_small_bytes(class) & (alignment - 1))
		class ++;
	return class;
}

static struct gm_small_span *small_span_of(const struct gm_small *small, uint64_t object)
{
	return (struct gm_small_span *)(gm_heap_ptrmap_get(small->map, object) & ~GM_SMALL_MARK);
}

static unsigned small_index_of(const struct gm_small_span *span, uint64_t object)
{
	uint32_t class1 = atomic_load_explicit(&span->class1, memory_order_relaxed);

	return gm_small_index(class1 - 1, object - span->addr);
}

int gm_small_add(struct gm_small *small, uint64_t addr)
{
	struct gm_small_slab *slab = small->spare;
	uint64_t granule = UINT64_C(1) << small->map->shift;

	if (slab) {
		small->spare = slab->next;
	} else {
		slab = calloc(1, sizeof(*slab));
		if (!slab)
			return -ENOMEM;
	}

	slab->addr = addr;
	slab->used = 0;
	DL_APPEND(small->slabs, slab);
	for (unsigned i = 0; i < GM_SMALL_SPANS; i++) {
		struct gm_small_span *span = &slab->spans[i];

		span->addr = addr + i * GM_SMALL_SPAN_BYTES;
		span->slab = slab;
		for (uint64_t a = 0; a < GM_SMALL_SPAN_BYTES; a += granule)
			gm_heap_ptrmap_set(
				small->map, span->addr + a, (uintptr_t)span | GM_SMALL_MARK);
	}
	small->free_bytes += GM_SMALL_SLAB_BYTES;
	return 0;
}

void gm_small_remove(struct gm_small *small, struct gm_small_slab *slab)
{
	uint64_t granule = UINT64_C(1) << small->map->shift;

	for (uint64_t a = 0; a < GM_SMALL_SLAB_BYTES; a += granule)
		gm_heap_ptrmap_set(small->map, slab->addr + a, 0);
	DL_DELETE(small->slabs, slab);
	LL_PREPEND(small->spare, slab);
	small->free_bytes -= GM_SMALL_SLAB_BYTES;
}

bool gm_small_slab_dead(const struct gm_small_slab *slab)
{
	for (uint32_t used = slab->used; used; used &= used - 1) {
		const struct gm_small_span *span = &slab->spans[__builtin_ctz(used)];
		uint32_t class1 = atomic_load_explicit(&span->class1, memory_order_relaxed);
		uint64_t units = gm_small_bytes(class1 - 1) / GM_SMALL_UNIT;

		for (uint64_t i = 0; i < span->objects * units; i += units)
			if (atomic_load_explicit(&span->asked[i], memory_order_relaxed))
				return false;
	}
	return true;
}

/* Takes a free span for a class from the oldest slab that has one, so that younger slabs may become
 * empty. */
static struct gm_small_span *small_span_open(struct gm_small *small, unsigned class)
{
	const uint32_t all = (uint32_t)((UINT64_C(1) << GM_SMALL_SPANS) - 1);

	for (struct gm_small_slab *slab = small->slabs; slab; slab = slab->next) {
		struct gm_small_span *span;
		unsigned i;

		if (slab->used == all)
			continue;

		i = (unsigned)__builtin_ctz(~slab->used);
		slab->used |= UINT32_C(1) << i;
		span = &slab->spans[i];
		span->objects = (uint16_t)(GM_SMALL_SPAN_BYTES / gm_small_bytes(class));
		span->free = span->objects;
		span->first = 0;
		for (unsigned j = 0; j < span->objects; j++)
			span->link[j] = j + 1;
		atomic_store_explicit(&span->class1, class + 1, memory_order_relaxed);
		DL_PREPEND(small->partial[class], span);
		return span;
	}
	return NULL;
}

unsigned gm_small_take(struct gm_small *small, unsigned class, unsigned max, uint64_t *ret_objects)
{
	uint64_t bytes = gm_small_bytes(class);
	unsigned n = 0;

	while (n < max) {
		struct gm_small_span *span = small->partial[class];

		if (!span)
			span = small_span_open(small, class);
		if (!span)
			break;
		span->slab->touched = true;
		while (n < max && span->free) {
			unsigned i = span->first;

			span->first = (uint16_t)span->link[i];
			span->free--;
			ret_objects[n++] = span->addr + i * bytes;
		}
		if (!span->free)
			DL_DELETE(small->partial[class], span);
	}
	small->free_bytes -= n * bytes;
	return n;
}

bool gm_small_put(struct gm_small *small, uint64_t object)
{
	struct gm_small_span *span = small_span_of(small, object);
	unsigned class = atomic_load_explicit(&span->class1, memory_order_relaxed) - 1;
	unsigned i = small_index_of(span, object);

	small->free_bytes += gm_small_bytes(class);
	span->slab->touched = true;
	span->link[i] = span->free ? span->first : span->objects;
	span->first = (uint16_t)i;
	if (span->free++ == 0)
		DL_PREPEND(small->partial[class], span);
	if (span->free < span->objects)
		return false;

	DL_DELETE(small->partial[class], span);
	atomic_store_explicit(&span->class1, 0, memory_order_relaxed);
	span->slab->used &= ~(UINT32_C(1) << (span - span->slab->spans));
	return gm_small_slab_empty(span->slab);
}

void gm_small_list_push(struct gm_small *small, struct gm_small_list *list, uint64_t object)
{
	struct gm_small_span *span = small_span_of(small, object);

	span->link[small_index_of(span, object)] = list->head;
	if (!list->head)
		list->tail = object;
	list->head = object;
}

uint64_t gm_small_list_pop(struct gm_small *small, struct gm_small_list *list)
{
	uint64_t object = list->head;
	struct gm_small_span *span;

	if (!object)
		return 0;
	span = small_span_of(small, object);
	list->head = span->link[small_index_of(span, object)];
	if (!list->head)
		list->tail = 0;
	return object;
}

void gm_small_list_append(
	struct gm_small *small, struct gm_small_list *list, struct gm_small_list *from)
{
	struct gm_small_span *span;

	if (!from->head)
		return;

	span = small_span_of(small, from->tail);
	span->link[small_index_of(span, from->tail)] = list->head;
	if (!list->head)
		list->tail = from->tail;
	list->head = from->head;
	from->head = from->tail = 0;
}
