/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SMALL_H
#define GM_CLIENT_SMALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/heap/heap_ptrmap.h"

/*
 * Small sizes: slabs of 2 MiB are cut into spans of 128 KiB, and each span into objects of one
 * class. The classes are 256, 512, 768 and 1024 bytes, then four per doubling, up to 32 KiB.
 *
 * This module takes no lock. The owner must hold a lock of its own, except for gm_small_find().
 */

#define GM_SMALL_MAX        UINT64_C(32768)
#define GM_SMALL_CLASSES    24
#define GM_SMALL_SLAB_BYTES UINT64_C(0x200000)
#define GM_SMALL_SPAN_SHIFT 17
#define GM_SMALL_SPAN_BYTES (UINT64_C(1) << GM_SMALL_SPAN_SHIFT)
#define GM_SMALL_SPANS      (GM_SMALL_SLAB_BYTES / GM_SMALL_SPAN_BYTES)
#define GM_SMALL_UNIT       UINT64_C(256) /* sizes of objects are multiples of it */
#define GM_SMALL_OBJECTS    (GM_SMALL_SPAN_BYTES / GM_SMALL_UNIT)
/* A value in the ptrmap that is a span carries this bit. */
#define GM_SMALL_MARK UINT64_C(1)

struct gm_small_slab;

struct gm_small_span {
	uint64_t addr;
	struct gm_small_slab *slab;
	_Atomic uint32_t class1; /* class + 1; 0: the span is free */
	uint16_t objects, free;
	uint16_t first; /* the first free object; as large as objects: none is free */
	struct gm_small_span *prev, *next; /* in the class's list, while objects are free */
	uint64_t link[GM_SMALL_OBJECTS];   /* to the next free or waiting object */
	/*
	 * Per object, the size that was asked for; 0: it is not alive. Threads write these words
	 * without a lock, each for the objects of its own cache. So that they do not write the same
	 * cache lines, an object's word stands where its first 256 bytes stand among those of the
	 * span, and nothing else that is used without a lock is close.
	 */
	_Atomic uint16_t asked[GM_SMALL_OBJECTS];
	char apart[64]; /* from the next span */
};

struct gm_small_slab {
	uint64_t addr;
	uint32_t used; /* a bit per span that has a class */
	bool touched;  /* objects came or went since the owner cleared this */
	struct gm_small_slab *prev, *next;
	struct gm_small_span spans[GM_SMALL_SPANS];
};

/* A list of objects of one class that are not alive, but not free yet. */
struct gm_small_list {
	uint64_t head, tail; /* addresses; 0: empty */
};

struct gm_small {
	struct gm_heap_ptrmap *map;
	struct gm_small_span *partial[GM_SMALL_CLASSES];
	struct gm_small_slab *slabs; /* by age, oldest first */
	struct gm_small_slab *spare; /* descriptors of slabs that are gone */
	uint64_t free_bytes;         /* of free objects in spans and free spans in slabs */
};

/* The map belongs to the caller. Its granules are at most as large as a span. */
void gm_small_init(struct gm_small *small, struct gm_heap_ptrmap *map);
void gm_small_deinit(struct gm_small *small);

static inline uint64_t gm_small_bytes(unsigned class)
{
	return class < 4 ? (class + 1) * UINT64_C(256)
			 : (UINT64_C(4) + class % 4 + 1) << (8 + class / 4 - 1);
}

/* The class for a size from 1 to GM_SMALL_MAX. */
static inline unsigned gm_small_class(uint64_t size)
{
	uint64_t units = (size - 1) >> 8;
	unsigned top;

	if (units < 4)
		return (unsigned)units;
	top = 63 - (unsigned)__builtin_clzll(units);
	return (top - 1) * 4 + (unsigned)((units >> (top - 2)) & 3);
}

/* The index of the object that an offset in a span belongs to, without a division. */
static inline unsigned gm_small_index(unsigned class, uint64_t offset)
{
#define R(units) ((UINT32_C(1) << 24) / (units) + ((UINT32_C(1) << 24) % (units) ? 1 : 0))
	static const uint32_t reciprocal[GM_SMALL_CLASSES] = {R(1), R(2), R(3), R(4), R(5), R(6),
		R(7), R(8), R(10), R(12), R(14), R(16), R(20), R(24), R(28), R(32), R(40), R(48),
		R(56), R(64), R(80), R(96), R(112), R(128)};
#undef R
	return (unsigned)(((offset >> 8) * reciprocal[class]) >> 24);
}

/* The class for a size and an alignment of at most GM_SMALL_MAX each. */
unsigned gm_small_class_aligned(uint64_t size, uint64_t alignment);

/* Adds the memory of one slab. The map must cover it. -ENOMEM. */
int gm_small_add(struct gm_small *small, uint64_t addr);
/* Removes a slab; it must be empty. */
void gm_small_remove(struct gm_small *small, struct gm_small_slab *slab);
static inline bool gm_small_slab_empty(const struct gm_small_slab *slab)
{
	return slab->used == 0;
}
/* Whether no object of the slab is alive: all are free, or lie in a thread's cache, or wait. */
bool gm_small_slab_dead(const struct gm_small_slab *slab);

/* Takes up to max free objects of a class and writes their addresses. Returns how many; 0: another
 * slab is needed. */
unsigned gm_small_take(struct gm_small *small, unsigned class, unsigned max, uint64_t *ret_objects);
/* Frees an object. Returns whether its whole slab is free now. */
bool gm_small_put(struct gm_small *small, uint64_t object);

void gm_small_list_push(struct gm_small *small, struct gm_small_list *list, uint64_t object);
/* 0: the list is empty. */
uint64_t gm_small_list_pop(struct gm_small *small, struct gm_small_list *list);
/* Moves everything from one list to another. */
void gm_small_list_append(
	struct gm_small *small, struct gm_small_list *list, struct gm_small_list *from);

/*
 * Finds the object at an address: returns its word in asked, which says whether it is alive, and
 * writes its class. *ret_start: whether the address is the start of the object. NULL: there is no
 * object. Needs no lock.
 */
static inline _Atomic uint16_t *gm_small_find(
	struct gm_small_span *span, uint64_t addr, unsigned *ret_class, bool *ret_start)
{
	uint32_t class1 = atomic_load_explicit(&span->class1, memory_order_relaxed);
	uint64_t offset = addr - span->addr;
	uint64_t index, bytes;

	if (!class1)
		return NULL;
	*ret_class = class1 - 1;
	bytes = gm_small_bytes(class1 - 1);
	index = gm_small_index(class1 - 1, offset);
	*ret_start = index * bytes == offset;
	if ((index + 1) * bytes > GM_SMALL_SPAN_BYTES)
		return NULL;
	return &span->asked[index * bytes / GM_SMALL_UNIT];
}

#endif
