/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SMALL_H
#define GM_CLIENT_SMALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/heap/ptrmap.h"

/*
 * Small sizes: slabs of 2 MiB, cut into spans of 128 KiB, each cut into objects of one class. No
 * lock inside; what may be done without the owner's lock says so.
 *
 * Classes are 256, 512, 768, 1024 bytes, then four per doubling up to 32 KiB.
 */

#define GM_SMALL_MAX        UINT64_C(32768)
#define GM_SMALL_CLASSES    24
#define GM_SMALL_SLAB_BYTES UINT64_C(0x200000)
#define GM_SMALL_SPAN_SHIFT 17
#define GM_SMALL_SPAN_BYTES (UINT64_C(1) << GM_SMALL_SPAN_SHIFT)
#define GM_SMALL_SPANS      (GM_SMALL_SLAB_BYTES / GM_SMALL_SPAN_BYTES)
#define GM_SMALL_OBJECTS    (GM_SMALL_SPAN_BYTES / 256)
/* Values of spans in the ptrmap carry this bit. */
#define GM_SMALL_MARK UINT64_C(1)

struct gm_small_slab;

struct gm_small_span {
	uint64_t addr;
	struct gm_small_slab *slab;
	_Atomic uint32_t class1; /* class + 1; 0: the span is free */
	uint16_t objects, free;
	uint16_t first;                    /* of the free objects; objects: none */
	struct gm_small_span *prev, *next; /* of the class, while some objects are free */
	_Atomic uint16_t
		asked[GM_SMALL_OBJECTS]; /* what a live object was asked for; 0: not alive */
	uint64_t link[GM_SMALL_OBJECTS]; /* to the next free or waiting object */
};

struct gm_small_slab {
	uint64_t addr;
	uint32_t used; /* a bit per span that has a class */
	bool touched;  /* objects came or went; the owner clears it */
	struct gm_small_slab *prev, *next;
	struct gm_small_span spans[GM_SMALL_SPANS];
};

/* Objects that are neither alive nor free yet, of one class. */
struct gm_small_list {
	uint64_t head, tail; /* addresses; 0: empty */
};

struct gm_small {
	struct gm_ptrmap *map;
	struct gm_small_span *partial[GM_SMALL_CLASSES];
	struct gm_small_slab *slabs; /* by age, oldest first */
	struct gm_small_slab *spare;
	uint64_t free_bytes; /* objects free in spans and spans free in slabs */
};

/* map has granules of at most a span and is the caller's. */
void gm_small_init(struct gm_small *small, struct gm_ptrmap *map);
void gm_small_deinit(struct gm_small *small);

static inline uint64_t gm_small_bytes(unsigned class)
{
	return class < 4 ? (class + 1) * UINT64_C(256)
			 : (UINT64_C(4) + class % 4 + 1) << (8 + class / 4 - 1);
}

/* 0 < size <= GM_SMALL_MAX. */
static inline unsigned gm_small_class(uint64_t size)
{
	uint64_t units = (size - 1) >> 8;
	unsigned top;

	if (units < 4)
		return (unsigned)units;
	top = 63 - (unsigned)__builtin_clzll(units);
	return (top - 1) * 4 + (unsigned)((units >> (top - 2)) & 3);
}

/* Which object of a span an offset in it belongs to, without a division. */
static inline unsigned gm_small_index(unsigned class, uint64_t offset)
{
#define R(units) ((UINT32_C(1) << 24) / (units) + ((UINT32_C(1) << 24) % (units) ? 1 : 0))
	static const uint32_t reciprocal[GM_SMALL_CLASSES] = {R(1), R(2), R(3), R(4), R(5), R(6),
		R(7), R(8), R(10), R(12), R(14), R(16), R(20), R(24), R(28), R(32), R(40), R(48),
		R(56), R(64), R(80), R(96), R(112), R(128)};
#undef R
	return (unsigned)(((offset >> 8) * reciprocal[class]) >> 24);
}

/* The class for a size at an alignment of at most GM_SMALL_MAX. */
unsigned gm_small_class_aligned(uint64_t size, uint64_t alignment);

/* A slab's worth of memory. -ENOMEM. addr must be covered by the map. */
int gm_small_add(struct gm_small *small, uint64_t addr);
/* A slab none of whose spans is in use. */
void gm_small_remove(struct gm_small *small, struct gm_small_slab *slab);
static inline bool gm_small_slab_empty(const struct gm_small_slab *slab)
{
	return slab->used == 0;
}

/* Up to max free objects of a class; their addresses go to ret_objects. 0: another slab is needed.
 */
unsigned gm_small_take(struct gm_small *small, unsigned class, unsigned max, uint64_t *ret_objects);
/* An object is free again. Returns true if that left a whole slab free. */
bool gm_small_put(struct gm_small *small, uint64_t object);

void gm_small_list_push(struct gm_small *small, struct gm_small_list *list, uint64_t object);
/* 0: empty. */
uint64_t gm_small_list_pop(struct gm_small *small, struct gm_small_list *list);
void gm_small_list_append(
	struct gm_small *small, struct gm_small_list *list, struct gm_small_list *from);

/*
 * Without a lock: the span and the class of an address that starts an object, and the word that
 * says whether it lives. NULL: there is no object. *ret_start is false when the address is inside
 * one.
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
	return &span->asked[index];
}

#endif
