/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arena while the process has no memory for its books: one scene, played again and again, with
 * every single allocation of the library's own failing once, and then with all of them failing from
 * some point on. Calls may fail; nothing may be lost, and at the end everything must come back.
 */
#include "autoconf.h"

#include <errno.h>
#include <stdlib.h>

#include "client/heap/arena.h"
#include "tests/tap.h"
#include "tests/unit/heap/heap_world.h"

#define MIB UINT64_C(0x100000)

/* The linker sends the library's calls here (--wrap). */
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *ptr, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *ptr, size_t size);

static bool armed;
static bool from_then_on;
static unsigned countdown;
static unsigned failures;

static bool fails(void)
{
	if (!armed)
		return false;
	if (countdown > 0) {
		countdown--;
		return false;
	}
	if (!from_then_on)
		armed = false;
	failures++;
	return true;
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *ptr, size_t size)
{
	return fails() ? NULL : __real_realloc(ptr, size);
}

static struct world w;
static struct gm_arena *arena;
static gpumem_status (*real_get)(
	void *, struct gm_heap_source_call *, uint64_t, struct gm_heap_source_chunk **, size_t *);
static int (*real_record)(void *, struct gm_map_event **);

/* The world's own memory is not what is tested. */
static gpumem_status get(void *ctx, struct gm_heap_source_call *call, uint64_t bytes,
	struct gm_heap_source_chunk **ret_chunks, size_t *ret_n)
{
	bool was = armed;
	armed = false;
	gpumem_status status = real_get(ctx, call, bytes, ret_chunks, ret_n);
	armed = was;
	return status;
}

static int record(void *ctx, struct gm_map_event **ret_event)
{
	bool was = armed;
	armed = false;
	int r = real_record(ctx, ret_event);
	armed = was;
	return r;
}

static void *take(uint64_t size, unsigned stream)
{
	void *ptr = NULL;
	int r = gm_arena_alloc(arena, size, 0, world_stream(stream), 0, NULL, &ptr, NULL);
	ck_assert(r == 0 || (r == -ENOMEM && !ptr));
	return ptr;
}

static void give(void *ptr, gpumem_stream stream)
{
	if (ptr)
		ck_assert_int_eq(gm_arena_dealloc(arena, ptr, stream, NULL), 0);
}

/* Something of everything: growth, slabs, streams, holes, moves, a trim, a tick. */
static void play(void)
{
	void *large[24], *small[40], *more;

	for (unsigned i = 0; i < 24; i++)
		large[i] = take(2 * MIB, i % 4);
	for (unsigned i = 0; i < 40; i++)
		small[i] = take(200 + 800 * i, i % 5);
	for (unsigned i = 0; i < 24; i += 2)
		give(large[i], i % 4 ? world_stream(i % 4) : GPUMEM_STREAM_DONE);
	for (unsigned i = 0; i < 40; i += 3)
		give(small[i], world_stream(i % 5));
	gm_arena_trim(arena, 3 * MIB);
	more = take(21 * MIB, 1);
	world_finish_all(&w);
	gm_arena_tick(arena, 1000);
	give(more, GPUMEM_STREAM_ANY);
	more = take(45 * MIB, 2);
	for (unsigned i = 1; i < 24; i += 2)
		give(large[i], world_stream(i % 4));
	for (unsigned i = 0; i < 40; i++) {
		if (i % 3)
			give(small[i], GPUMEM_STREAM_ANY);
	}
	give(more, world_stream(2));
}

static void scene(unsigned n, bool on)
{
	struct gm_arena_config config = {.decay_ns = 1};
	struct gm_arena_stats stats;
	int r;

	world_init(&w, true, 256 * MIB);
	real_get = w.source.get;
	real_record = w.ops.record;
	w.source.get = get;
	w.ops.record = record;
	config.ops = &w.ops;
	config.backend = &w;
	config.source = w.source;
	countdown = n;
	from_then_on = on;
	armed = true;
	r = gm_arena_new(&config, &arena);
	if (r < 0) {
		ck_assert_int_eq(r, -ENOMEM);
		armed = false;
		world_deinit(&w);
		return;
	}
	play();
	armed = false;
	gm_arena_stats(arena, &stats);
	ck_assert_uint_eq(stats.in_use, 0);
	ck_assert_uint_eq(stats.active, 0);
	ck_assert_uint_eq(stats.held, w.granted);
	/* With memory again it works as if nothing had been. */
	play();
	world_finish_all(&w);
	gm_arena_trim(arena, UINT64_MAX);
	gm_arena_stats(arena, &stats);
	ck_assert_uint_eq(stats.held, 0);
	gm_arena_free(arena);
	world_deinit(&w);
}

START_TEST(any_one_allocation_may_fail)
{
	unsigned n = 0;

	for (;; n++) {
		failures = 0;
		scene(n, false);
		if (!failures)
			break;
	}
	/* The scene does allocate. */
	ck_assert_uint_gt(n, 50);
}
END_TEST

START_TEST(all_allocations_may_fail_from_any_point_on)
{
	for (unsigned n = 0;; n++) {
		failures = 0;
		scene(n, true);
		if (!failures)
			break;
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("heap_oom");
	TCase *tcase = tcase_create("heap_oom");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, any_one_allocation_may_fail);
	tcase_add_test(tcase, all_allocations_may_fail_from_any_point_on);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
