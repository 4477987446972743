/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_ARENA_FIXTURE_H
#define GM_TESTS_UNIT_ARENA_FIXTURE_H

/* One arena in a world of its own, and blocks that it must give and take back. */

#include <check.h>

#include "client/heap/arena.h"
#include "tests/unit/heap/heap_world.h"

#define KIB    UINT64_C(1024)
#define MIB    (KIB * KIB)
#define GIB    (KIB * MIB)
#define SECOND UINT64_C(1000000000)
#define ANY    GPUMEM_STREAM_ANY
#define DONE   GPUMEM_STREAM_DONE

static struct world w;
static struct gm_arena *arena;

/* What is free decays after 10 seconds. */
static inline void setup_with(bool streams, bool regions)
{
	world_init(&w, streams, GIB);
	w.regions = regions;
	arena = world_arena(&w, 10 * SECOND);
}

static inline void setup(void)
{
	setup_with(false, false);
}

static inline void teardown(void)
{
	gm_arena_free(arena);
	world_deinit(&w);
}

static inline void *take_with(uint64_t size, uint64_t alignment, gpumem_stream stream)
{
	void *ptr = NULL;
	ck_assert_int_eq(gm_arena_alloc(arena, size, alignment, stream, 0, NULL, &ptr, NULL), 0);
	ck_assert_ptr_nonnull(ptr);
	ck_assert_uint_eq((uintptr_t)ptr % (alignment ? alignment : 256), 0);
	return ptr;
}

static inline void *take(uint64_t size)
{
	return take_with(size, 0, ANY);
}

static inline void give(void *ptr)
{
	ck_assert_int_eq(gm_arena_dealloc(arena, ptr, DONE, NULL), 0);
}

static inline struct gm_arena_stats stats(void)
{
	struct gm_arena_stats s;
	gm_arena_stats(arena, &s);
	return s;
}

#endif
