/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* Arenas over a range of the caller's: where the last block ends, giving up what is behind it, and lists of
 * what is alive. */

#include <pthread.h>
#include <stdlib.h>

#include "common/arith.h"
#include "tests/tap.h"
#include "tests/unit/heap/arena_fixture.h"

#define BASE UINT64_C(0x700000000000)
#define ROOM GIB

static uint64_t handed; /* by the source, from the start of the range on */

static gpumem_status range_get(void *ctx, struct gm_heap_source_call *call, uint64_t bytes,
	struct gm_heap_source_chunk **ret_chunks, size_t *ret_n)
{
	static uint64_t serial;
	bytes = gm_round_up(bytes, GM_CHUNK_MIN);
	if (handed + bytes > ROOM)
		return GPUMEM_E_NO_MEMORY;
	struct gm_heap_source_chunk *chunk = calloc(1, sizeof(*chunk));
	*chunk = (struct gm_heap_source_chunk){.id = ++serial, .bytes = bytes, .fd = -1};
	handed += bytes;
	*ret_chunks = chunk;
	*ret_n = 1;
	return GPUMEM_OK;
}

static void range_put(void *ctx, const uint64_t *ids, size_t n)
{
}

static int map_nothing(void *backend, void *addr, uint64_t bytes, int fd)
{
	return 0;
}

static int access_nothing(void *backend, void *addr, uint64_t bytes, bool read_only)
{
	return 0;
}

static int unmap_nothing(void *backend, void *addr, uint64_t bytes)
{
	return 0;
}

static struct gm_map_ops ops;
static unsigned wakes;

static void wake(void *ctx)
{
	wakes++;
}

static void set_up_range(bool streams)
{
	world_init(&w, streams, GIB);
	ops = w.ops;
	ops.map = map_nothing;
	ops.access = access_nothing;
	ops.unmap = unmap_nothing;
	handed = wakes = 0;
	const struct gm_arena_config config = {
		.ops = &ops,
		.backend = &w,
		.source = {.get = range_get, .put = range_put},
		.reserve = ROOM,
		.range = (void *)BASE,
		.wake = wake,
	};
	ck_assert_int_eq(gm_arena_new(&config, &arena), 0);
}

static void set_up_plain(void)
{
	set_up_range(false);
}

static void set_up_streams(void)
{
	set_up_range(true);
}

static uint64_t take_listed(uint64_t size, gpumem_stream stream)
{
	void *ptr = NULL;
	ck_assert_int_eq(
		gm_arena_alloc(arena, size, 0, stream, GM_ARENA_LISTED, NULL, &ptr, NULL), 0);
	return (uint64_t)(uintptr_t)ptr - BASE;
}

static void give_at(uint64_t offset, gpumem_stream stream)
{
	ck_assert_int_eq(gm_arena_dealloc(arena, (void *)(BASE + offset), stream, NULL), 0);
}

/* Both ways to ask where the memory ends agree. */
static void cut_to(uint64_t bytes)
{
	ck_assert_uint_eq(gm_arena_range_used(arena), bytes);
	handed = gm_arena_range_cut(arena);
	ck_assert_uint_eq(handed, bytes);
	ck_assert_uint_eq(stats().held, bytes);
}

START_TEST(what_lies_behind_the_last_block_can_be_cut_off)
{
	cut_to(0);
	uint64_t a = take_listed(10 * MIB, ANY), b = take_listed(100 * MIB, ANY),
		 c = take_listed(MIB, ANY);
	ck_assert_uint_eq(a, 0);
	cut_to(gm_round_up(c + MIB, GM_CHUNK_MIN));
	give_at(b, DONE);
	cut_to(gm_round_up(c + MIB, GM_CHUNK_MIN));
	give_at(c, DONE);
	cut_to(10 * MIB);

	/* It grows there again, and finds nothing of what was. */
	ck_assert_int_eq(gm_arena_dealloc(arena, (void *)(BASE + b), DONE, NULL), GM_ARENA_E_FREED);
	b = take_listed(300 * MIB, ANY);
	ck_assert_uint_eq(b, 10 * MIB);
	give_at(a, DONE);
	a = take_listed(8 * MIB, ANY);
	ck_assert_uint_eq(a, 0);
	give_at(a, DONE);
	give_at(b, DONE);
	cut_to(0);
	ck_assert_uint_eq(take_listed(MIB, ANY), 0);
}
END_TEST

START_TEST(a_piece_is_cut_in_the_middle)
{
	uint64_t a = take_listed(64 * MIB, ANY);
	give_at(a, DONE);
	/* The same piece of the source, of which a small part is used now. */
	a = take_listed(3 * MIB, ANY);
	ck_assert_uint_eq(a, 0);
	cut_to(4 * MIB);
	/* What is left of it is used up first. */
	uint64_t b = take_listed(5 * MIB, ANY);
	ck_assert_uint_eq(b, 3 * MIB);
	ck_assert_uint_eq(handed, 8 * MIB);
	give_at(b, DONE);
	give_at(a, DONE);
	cut_to(0);
}
END_TEST

START_TEST(what_waits_for_the_device_is_not_cut_off)
{
	uint64_t a = take_listed(2 * MIB, world_stream(1)),
		 b = take_listed(2 * MIB, world_stream(1));
	world_launch(&w, 1);
	give_at(b, world_stream(1));
	ck_assert_uint_eq(wakes, 1);
	ck_assert_uint_eq(gm_arena_range_tick(arena, SECOND), SECOND + SECOND / 100);
	cut_to(4 * MIB);
	world_finish_all(&w);
	ck_assert_uint_eq(gm_arena_range_tick(arena, SECOND), GM_ARENA_NEVER);
	cut_to(2 * MIB);
	/* The next free asks for another look. */
	give_at(a, world_stream(1));
	ck_assert_uint_eq(wakes, 2);
	ck_assert_uint_eq(gm_arena_range_tick(arena, SECOND), GM_ARENA_NEVER);
	cut_to(0);
}
END_TEST

static void *settle_beside(void *unused)
{
	ck_assert_uint_ne(gm_arena_range_settle(arena, SECOND), GM_ARENA_NEVER);
	return NULL;
}

/* Another thread looks while this one asks the device, which has just finished. */
static int passed_beside_another(void *backend, struct gm_map_event *event)
{
	pthread_t thread;
	ck_assert_int_eq(pthread_create(&thread, NULL, settle_beside, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ops.passed = w.ops.passed;
	return ops.passed(backend, event);
}

START_TEST(a_look_beside_the_tick_does_not_keep_the_next_free_from_asking_for_one)
{
	uint64_t a = take_listed(2 * MIB, world_stream(1)),
		 b = take_listed(2 * MIB, world_stream(1));
	world_launch(&w, 1);
	give_at(b, world_stream(1));
	ck_assert_uint_ne(gm_arena_range_tick(arena, SECOND), GM_ARENA_NEVER);
	world_finish_all(&w);
	ops.passed = passed_beside_another;
	/* A tick that wakes its own thread is followed by another. */
	for (unsigned before = wakes + 1; before != wakes;) {
		before = wakes;
		ck_assert_uint_eq(gm_arena_range_tick(arena, SECOND), GM_ARENA_NEVER);
	}
	ck_assert_ptr_eq(ops.passed, w.ops.passed);

	unsigned before = wakes;
	world_launch(&w, 1);
	give_at(a, world_stream(1));
	ck_assert_uint_eq(wakes, before + 1);
}
END_TEST

static void require_pieces(uint64_t gap, size_t n, const struct gm_arena_piece *wanted)
{
	struct gm_arena_piece *pieces = NULL;
	size_t found;
	ck_assert_int_eq(gm_arena_range_live(arena, gap, &pieces, &found), 0);
	ck_assert_uint_eq(found, n);
	for (size_t i = 0; i < n; i++) {
		ck_assert_uint_eq(pieces[i].offset, wanted[i].offset);
		ck_assert_uint_eq(pieces[i].bytes, wanted[i].bytes);
	}
	free(pieces);
}

START_TEST(pieces_cover_what_is_alive_and_the_gaps_that_are_small)
{
	require_pieces(0, 0, NULL);
	uint64_t at[5];
	for (int i = 0; i < 5; i++)
		at[i] = take_listed((1 + i) * MIB, ANY);
	require_pieces(1, 1, &(struct gm_arena_piece){0, 15 * MIB});
	give_at(at[1], DONE);
	give_at(at[3], DONE);
	require_pieces(
		1, 3, (struct gm_arena_piece[]){{0, MIB}, {3 * MIB, 3 * MIB}, {10 * MIB, 5 * MIB}});
	require_pieces(
		2 * MIB + 1, 2, (struct gm_arena_piece[]){{0, 6 * MIB}, {10 * MIB, 5 * MIB}});
	require_pieces(GIB, 1, &(struct gm_arena_piece){0, 15 * MIB});
	give_at(at[0], DONE);
	require_pieces(GIB, 1, &(struct gm_arena_piece){3 * MIB, 12 * MIB});
	give_at(at[2], DONE);
	give_at(at[4], DONE);
	require_pieces(1, 0, NULL);
}
END_TEST

START_TEST(many_pieces_are_listed)
{
	enum { N = 300 };
	uint64_t at[N];
	for (int i = 0; i < N; i++)
		at[i] = take_listed(MIB, ANY);
	for (int i = 0; i < N; i += 2)
		give_at(at[i], DONE);
	struct gm_arena_piece *pieces = NULL;
	size_t n;
	ck_assert_int_eq(gm_arena_range_live(arena, 1, &pieces, &n), 0);
	ck_assert_uint_eq(n, N / 2);
	for (size_t i = 0; i < n; i++)
		ck_assert_uint_eq(pieces[i].offset, at[2 * i + 1]);
	free(pieces);
}
END_TEST

static void tear_down_range(void)
{
	world_finish_all(&w);
	teardown();
}

int main(void)
{
	Suite *suite = suite_create("arena range");
	TCase *tc = tcase_create("arena range");
	tcase_add_checked_fixture(tc, set_up_plain, tear_down_range);
	tcase_add_test(tc, what_lies_behind_the_last_block_can_be_cut_off);
	tcase_add_test(tc, a_piece_is_cut_in_the_middle);
	tcase_add_test(tc, pieces_cover_what_is_alive_and_the_gaps_that_are_small);
	tcase_add_test(tc, many_pieces_are_listed);
	suite_add_tcase(suite, tc);

	tc = tcase_create("arena range with streams");
	tcase_add_checked_fixture(tc, set_up_streams, tear_down_range);
	tcase_add_test(tc, what_waits_for_the_device_is_not_cut_off);
	tcase_add_test(tc, a_look_beside_the_tick_does_not_keep_the_next_free_from_asking_for_one);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
