/* SPDX-License-Identifier: Apache-2.0 */
/* An arena over plain memory and a table of chunks: growth, holes, moves, decay, streams, threads,
 * and what goes wrong. */
#include "config.h"

#include "client/arena.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "common/limits.h"
#include "tests/tap.h"
#include "tests/unit/heap_world.h"

#define KIB    UINT64_C(1024)
#define MIB    (KIB * KIB)
#define GIB    (KIB * MIB)
#define SECOND UINT64_C(1000000000)
#define ANY    GPUMEM_STREAM_ANY
#define DONE   GPUMEM_STREAM_DONE

static struct world w;
static struct gm_arena *arena;

static void setup_with(bool streams)
{
	world_init(&w, streams, GIB);
	arena = world_arena(&w, 10 * SECOND);
}

static void setup(void)
{
	setup_with(false);
}

static void setup_streams(void)
{
	setup_with(true);
}

static void teardown(void)
{
	gm_arena_free(arena);
	world_deinit(&w);
}

static void *take_on(uint64_t size, gpumem_stream stream)
{
	void *ptr = NULL;
	ck_assert_int_eq(gm_arena_alloc(arena, size, 0, stream, 0, &ptr, NULL), 0);
	ck_assert_ptr_nonnull(ptr);
	return ptr;
}

static void *take(uint64_t size)
{
	return take_on(size, ANY);
}

static void give(void *ptr)
{
	ck_assert_int_eq(gm_arena_dealloc(arena, ptr, DONE, NULL), 0);
}

static struct gm_arena_stats stats(void)
{
	struct gm_arena_stats s;
	gm_arena_stats(arena, &s);
	return s;
}

/* ---- arguments */

START_TEST(nonsense_is_refused_by_name)
{
	void *ptr = &w;
	ck_assert_int_eq(gm_arena_alloc(arena, 0, 0, ANY, 0, &ptr, NULL), GM_ARENA_E_SIZE);
	ck_assert_int_eq(gm_arena_alloc(arena, GM_LEASE_BYTES_MAX + 1, 0, ANY, 0, &ptr, NULL),
		GM_ARENA_E_SIZE);
	ck_assert_int_eq(gm_arena_alloc(arena, UINT64_MAX, 0, ANY, 0, &ptr, NULL), GM_ARENA_E_SIZE);
	ck_assert_int_eq(
		gm_arena_alloc(arena, UINT64_C(1) << 63, 0, ANY, 0, &ptr, NULL), GM_ARENA_E_SIZE);
	ck_assert_int_eq(gm_arena_alloc(arena, 1, 3, ANY, 0, &ptr, NULL), GM_ARENA_E_ALIGNMENT);
	ck_assert_int_eq(gm_arena_alloc(arena, 1, 768, ANY, 0, &ptr, NULL), GM_ARENA_E_ALIGNMENT);
	ck_assert_int_eq(gm_arena_alloc(arena, 1, 2 * GM_CHUNK_MAX, ANY, 0, &ptr, NULL),
		GM_ARENA_E_ALIGNMENT);
	ck_assert_int_eq(gm_arena_alloc(arena, 1, 0, DONE, 0, &ptr, NULL), GM_ARENA_E_STREAM);
	ck_assert_ptr_eq(ptr, &w);
	ck_assert_uint_eq(w.gets, 0);
	for (int i = GM_ARENA_E_SIZE; i <= GM_ARENA_E_STREAM; i++) {
		ck_assert_int_ne(gm_arena_status(i), GPUMEM_OK);
		ck_assert(i == GM_ARENA_E_SOURCE || gm_arena_text(i));
	}
	ck_assert_int_eq(gm_arena_status(-ENOMEM), GPUMEM_E_HOST_MEMORY);
	ck_assert_int_eq(gm_arena_status(-EIO), GPUMEM_E_SYSTEM);
	ck_assert_int_eq(gm_arena_status(GM_ARENA_E_FREED), GPUMEM_E_INVALID);
}
END_TEST

START_TEST(a_size_that_no_address_range_holds_is_refused)
{
	void *ptr;
	w.capacity = UINT64_MAX;
	ck_assert_int_eq(gm_arena_alloc(arena, 16 * GIB, 0, ANY, 0, &ptr, NULL), GM_ARENA_E_SPACE);
	ck_assert_uint_eq(w.granted, 0);
}
END_TEST

START_TEST(pointers_that_are_none_are_told_apart)
{
	static const uint64_t sizes[] = {256, 1000, 32 * KIB, 32 * KIB + 1, 100 * KIB, 5 * MIB};
	uint8_t local[64];

	ck_assert_int_eq(gm_arena_dealloc(arena, local, DONE, NULL), GM_ARENA_E_FOREIGN);
	ck_assert_int_eq(gm_arena_dealloc(arena, NULL, DONE, NULL), GM_ARENA_E_FOREIGN);
	ck_assert(!gm_arena_holds(arena, local));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint8_t *ptr = take(sizes[i]);
		uint64_t size = 0;
		ck_assert(gm_arena_holds(arena, ptr));
		ck_assert_int_eq(gm_arena_size(arena, ptr, &size), 0);
		ck_assert_uint_eq(size, sizes[i]);
		ck_assert_int_eq(gm_arena_dealloc(arena, ptr + 1, DONE, NULL), GM_ARENA_E_INSIDE);
		ck_assert_int_eq(
			gm_arena_dealloc(arena, ptr + sizes[i] - 1, DONE, NULL), GM_ARENA_E_INSIDE);
		if (sizes[i] > 256)
			ck_assert_int_eq(
				gm_arena_dealloc(arena, ptr + 256, DONE, NULL), GM_ARENA_E_INSIDE);
		ck_assert_int_eq(gm_arena_dealloc(arena, ptr, DONE, NULL), 0);
		ck_assert_int_eq(gm_arena_dealloc(arena, ptr, DONE, NULL), GM_ARENA_E_FREED);
		ck_assert_int_eq(gm_arena_size(arena, ptr, &size), GM_ARENA_E_FREED);
		ck_assert_int_eq(gm_arena_dealloc(arena, ptr + 512, DONE, NULL), GM_ARENA_E_FREED);
	}
	ck_assert_uint_eq(stats().active, 0);
}
END_TEST

START_TEST(an_inside_pointer_before_the_next_block_of_its_granule_is_still_inside)
{
	/* Two blocks that share a granule of the table: the end of one, the start of the next. */
	uint8_t *a = take(33 * KIB), *b = take(33 * KIB);

	ck_assert_ptr_eq(b, a + 33 * KIB);
	ck_assert_int_eq(gm_arena_dealloc(arena, b - 256, DONE, NULL), GM_ARENA_E_INSIDE);
	ck_assert_int_eq(gm_arena_dealloc(arena, b + 256, DONE, NULL), GM_ARENA_E_INSIDE);
	give(a);
	ck_assert_int_eq(gm_arena_dealloc(arena, b - 256, DONE, NULL), GM_ARENA_E_FREED);
	give(b);
}
END_TEST

START_TEST(every_alignment_holds_at_every_kind_of_size)
{
	static const uint64_t sizes[] = {1, 300, 20 * KIB, 40 * KIB, 3 * MIB};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (uint64_t alignment = 1; alignment <= 32 * MIB; alignment *= 2) {
			void *ptr = NULL;
			ck_assert_int_eq(
				gm_arena_alloc(arena, sizes[i], alignment, ANY, 0, &ptr, NULL), 0);
			ck_assert_uint_eq((uintptr_t)ptr % alignment, 0);
			ck_assert_uint_eq((uintptr_t)ptr % 256, 0);
			memset(ptr, 1, sizes[i]);
			give(ptr);
		}
	}
}
END_TEST

/* ---- what is alive */

static struct gm_arena_entry found[4 * GM_ARENA_ENTRIES];

static size_t unlisted(uint64_t min_bytes)
{
	struct gm_arena_walk walk = {0};
	size_t n = 0;

	while (!walk.over) {
		ck_assert_uint_le(n, 3 * GM_ARENA_ENTRIES);
		n += gm_arena_unlisted(arena, min_bytes, &walk, &found[n]);
	}
	return n;
}

START_TEST(what_is_alive_is_found_until_it_has_a_cookie)
{
	uint64_t before = gm_arena_changes(arena);
	uint32_t cookie = 1;
	void *ptr = NULL, *small = NULL;

	ck_assert_uint_eq(unlisted(0), 0);
	ptr = take(MIB);
	ck_assert_uint_ne(gm_arena_changes(arena), before);
	ck_assert_uint_eq(unlisted(MIB), 1);
	ck_assert_ptr_eq(found[0].ptr, ptr);
	ck_assert_uint_eq(found[0].size, MIB);
	ck_assert_uint_eq(found[0].serial, 0);
	ck_assert_str_eq(found[0].tag, "");
	ck_assert_uint_eq(unlisted(MIB + 1), 0);
	ck_assert_int_eq(gm_arena_set_cookie(arena, &found[0], 4711), 0);
	ck_assert_uint_eq(unlisted(0), 0);
	/* One cookie is enough. */
	ck_assert_int_eq(gm_arena_set_cookie(arena, &found[0], 1), GM_ARENA_E_FREED);
	ck_assert_int_eq(gm_arena_dealloc(arena, ptr, DONE, &cookie), 0);
	ck_assert_uint_eq(cookie, 4711);
	ck_assert_int_eq(gm_arena_set_cookie(arena, &found[0], 1), GM_ARENA_E_FREED);

	/* Whoever has the place next begins without one. */
	ptr = take(MIB);
	ck_assert_ptr_eq(ptr, found[0].ptr);
	ck_assert_int_eq(gm_arena_dealloc(arena, ptr, DONE, &cookie), 0);
	ck_assert_uint_eq(cookie, 0);

	/* Of small ones those alone that asked for it. */
	ptr = take(100);
	ck_assert_uint_eq(unlisted(0), 0);
	ck_assert_int_eq(gm_arena_alloc(arena, 100, 0, ANY, GM_ARENA_LISTED, &small, NULL), 0);
	ck_assert_uint_eq(unlisted(0), 1);
	ck_assert_ptr_eq(found[0].ptr, small);
	ck_assert_uint_eq(found[0].size, 100);
	/* They take more room than they ask for, which does not count. */
	ck_assert_uint_eq(unlisted(101), 0);
	found[0].ptr = ptr;
	ck_assert_int_eq(gm_arena_set_cookie(arena, &found[0], 1), GM_ARENA_E_FREED);
	give(small);
	give(ptr);
}
END_TEST

START_TEST(a_tag_stays_with_its_block)
{
	static const char *const tags[] = {"weights", "kv cache"};
	char longest[GM_LIMIT_NAME_BYTES + 1];
	struct gm_arena_entry stale;
	void *ptr[3];

	memset(longest, 't', sizeof(longest) - 1);
	longest[GM_LIMIT_NAME_BYTES] = '\0';
	ck_assert_int_eq(gm_arena_alloc_tagged(arena, MIB, 0, ANY, 0, tags[0], &ptr[0], NULL), 0);
	ck_assert_uint_eq(unlisted(0), 1);
	ck_assert_str_eq(found[0].tag, tags[0]);
	stale = found[0];
	give(ptr[0]);

	/* Another one of the same size at the same place is not taken for it. */
	ck_assert_int_eq(gm_arena_alloc_tagged(arena, MIB, 0, ANY, 0, tags[1], &ptr[0], NULL), 0);
	ck_assert_ptr_eq(ptr[0], stale.ptr);
	ck_assert_int_eq(gm_arena_set_cookie(arena, &stale, 1), GM_ARENA_E_FREED);
	give(ptr[0]);
	ptr[0] = take(MIB);
	ck_assert_ptr_eq(ptr[0], stale.ptr);
	ck_assert_int_eq(gm_arena_set_cookie(arena, &stale, 1), GM_ARENA_E_FREED);
	give(ptr[0]);

	ck_assert_int_eq(gm_arena_alloc_tagged(arena, MIB, 0, ANY, 0, longest, &ptr[0], NULL), 0);
	ck_assert_uint_eq(unlisted(0), 1);
	ck_assert_str_eq(found[0].tag, longest);
	/* Small ones of a cache have none; nor does a tag remain of what could not be had. */
	ck_assert_int_eq(gm_arena_alloc_tagged(arena, 100, 0, ANY, 0, tags[0], &ptr[1], NULL), 0);
	ck_assert_int_eq(gm_arena_alloc_tagged(arena, 2 * GIB, 0, ANY, 0, tags[0], &ptr[2], NULL),
		GM_ARENA_E_SOURCE);
	ck_assert_uint_eq(unlisted(0), 1);
	/* The arena ends with them alive. */
}
END_TEST

START_TEST(every_one_of_many_blocks_is_found)
{
	enum { N = GM_ARENA_ENTRIES + 60 };
	void *ptr[N];

	for (int i = 0; i < N; i++)
		ptr[i] = take(64 * KIB + (uint64_t)i);
	ck_assert_uint_eq(unlisted(0), N);
	for (int i = 0; i < N; i++) {
		ck_assert_uint_lt(found[i].size - 64 * KIB, N);
		ck_assert_ptr_eq(found[i].ptr, ptr[found[i].size - 64 * KIB]);
		ck_assert_int_eq(gm_arena_set_cookie(arena, &found[i], 1 + (uint32_t)i), 0);
	}
	ck_assert_uint_eq(unlisted(0), 0);
	for (int i = 0; i < N; i++)
		give(ptr[i]);
	ck_assert_uint_eq(unlisted(0), 0);
}
END_TEST

/* ---- growth */

START_TEST(a_first_small_need_takes_one_chunk_of_the_least_size)
{
	give(take(256));
	ck_assert_uint_eq(w.granted, GM_CHUNK_MIN);
	give(take(100 * KIB));
	/* The small one's chunk is moved over, now that nothing uses it, or another was asked for:
	 * never more than these two. */
	ck_assert_uint_le(w.granted, 2 * GM_CHUNK_MIN);
}
END_TEST

START_TEST(growth_is_by_at_most_a_32nd_of_what_is_held)
{
	uint64_t held = 0;

	for (unsigned i = 0; i < 500; i++) {
		uint64_t bound;
		take(MIB);
		bound = held / 32 < GM_CHUNK_MIN ? GM_CHUNK_MIN : held / 32;
		if (bound > 32 * MIB)
			bound = 32 * MIB;
		ck_assert_uint_le(w.granted - held, bound);
		held = w.granted;
	}
	ck_assert_uint_le(w.granted, 500 * MIB + 500 * MIB / 32 + GM_CHUNK_MIN);
}
END_TEST

START_TEST(a_large_request_asks_once_and_only_for_what_is_missing_next_to_a_free_tail)
{
	void *a = take(3 * MIB), *b;

	ck_assert_uint_eq(w.granted, 4 * MIB);
	b = take(101 * MIB); /* 1 MiB of it is there */
	ck_assert_uint_eq(w.gets, 2);
	ck_assert_uint_eq(w.last_get, 100 * MIB);
	ck_assert_ptr_eq(b, (uint8_t *)a + 3 * MIB);
	memset(b, 1, 101 * MIB);
	give(a);
	give(b);
}
END_TEST

START_TEST(free_neighbours_merge_across_chunk_borders)
{
	void *blocks[16];

	for (unsigned i = 0; i < 16; i++)
		blocks[i] = take(2 * MIB);
	for (unsigned i = 0; i < 16; i += 2)
		give(blocks[i]);
	for (unsigned i = 1; i < 16; i += 2)
		give(blocks[i]);
	uint64_t gets = w.gets;
	blocks[0] = take(32 * MIB);
	ck_assert_uint_eq(w.gets, gets);
	ck_assert_uint_eq(stats().moves, 0);
	give(blocks[0]);
}
END_TEST

START_TEST(a_chunk_in_the_middle_goes_back_alone_and_its_hole_is_filled_first)
{
	uint8_t *blocks[8];

	for (unsigned i = 0; i < 8; i++)
		blocks[i] = take(2 * MIB);
	give(blocks[3]);
	ck_assert_uint_eq(gm_arena_trim(arena, UINT64_MAX), 2 * MIB);
	ck_assert_uint_eq(w.granted, 14 * MIB);
	ck_assert_uint_eq(stats().returns, 1);
	ck_assert_ptr_eq(take(2 * MIB), blocks[3]);
	ck_assert_uint_eq(w.granted, 16 * MIB);
}
END_TEST

START_TEST(own_free_chunks_are_moved_together_before_the_source_is_asked)
{
	uint8_t *blocks[16], *large;

	for (unsigned i = 0; i < 16; i++)
		blocks[i] = take(2 * MIB);
	for (unsigned i = 0; i < 16; i += 2)
		give(blocks[i]);
	/* 16 MiB are free, in pieces of 2: no more is asked for. */
	uint64_t gets = w.gets;
	w.capacity = w.granted;
	large = take(16 * MIB);
	memset(large, 1, 16 * MIB);
	ck_assert_uint_eq(w.gets, gets);
	ck_assert_uint_ge(stats().moves, 7);
	ck_assert_uint_eq(w.granted, 32 * MIB);
	ck_assert_uint_eq(stats().held, 32 * MIB);
}
END_TEST

START_TEST(what_moving_cannot_bring_is_asked_for)
{
	uint8_t *blocks[8];

	for (unsigned i = 0; i < 8; i++)
		blocks[i] = take(2 * MIB);
	for (unsigned i = 0; i < 8; i += 2)
		give(blocks[i]);
	memset(take(20 * MIB), 1, 20 * MIB);
	ck_assert_uint_eq(w.last_get, 12 * MIB);
	ck_assert_uint_eq(w.granted, 28 * MIB);
}
END_TEST

START_TEST(a_step_that_is_refused_is_asked_for_smaller)
{
	/* Steps are 4 MiB from 128 MiB on. */
	take(128 * MIB);
	w.capacity = w.granted + 2 * MIB;
	take(MIB);
	ck_assert_uint_eq(w.granted, 130 * MIB);
}
END_TEST

START_TEST(a_refusal_brings_the_sources_status_and_changes_nothing)
{
	gpumem_status status = GPUMEM_OK;
	void *ptr = &w;

	take(MIB);
	struct gm_arena_stats before = stats();
	w.fail_status = GPUMEM_E_LIMIT;
	w.fail_gets = 100;
	ck_assert_int_eq(
		gm_arena_alloc(arena, 64 * MIB, 0, ANY, 0, &ptr, &status), GM_ARENA_E_SOURCE);
	ck_assert_int_eq(status, GPUMEM_E_LIMIT);
	ck_assert_ptr_eq(ptr, &w);
	struct gm_arena_stats after = stats();
	ck_assert_mem_eq(&before, &after, sizeof(before));
	w.fail_gets = 0;
	take(64 * MIB);
}
END_TEST

START_TEST(a_small_block_comes_from_the_heap_when_no_slab_is_to_be_had)
{
	void *large = take(3 * MIB);
	void *small;

	w.capacity = w.granted;
	small = take(256);
	memset(small, 1, 256);
	give(small);
	give(large);
}
END_TEST

START_TEST(chunks_of_odd_sizes_are_all_used)
{
	w.chunk_min = 8 * MIB;
	for (unsigned i = 0; i < 200; i++)
		take(1000);
	/* No chunk fits a slab; that does not mean one more for every small block. */
	ck_assert_uint_le(w.granted, 24 * MIB);
	for (unsigned i = 0; i < 12; i++)
		take(MIB);
	ck_assert_uint_le(w.granted, 32 * MIB);
}
END_TEST

START_TEST(what_cannot_be_mapped_goes_back)
{
	void *ptr;

	w.fail_map = 100;
	ck_assert_int_eq(gm_arena_alloc(arena, 8 * MIB, 0, ANY, 0, &ptr, NULL), -EIO);
	ck_assert_uint_eq(w.granted, 0);
	ck_assert_uint_eq(stats().held, 0);
	w.fail_map = 0;
	w.fail_access = 100;
	ck_assert_int_eq(gm_arena_alloc(arena, 8 * MIB, 0, ANY, 0, &ptr, NULL), -EIO);
	ck_assert_uint_eq(w.granted, 0);
	w.fail_access = 0;
	give(take(8 * MIB));
}
END_TEST

START_TEST(a_chunk_that_cannot_be_unmapped_is_used_on)
{
	give(take(2 * MIB));
	w.fail_unmap = 1;
	ck_assert_uint_eq(gm_arena_trim(arena, UINT64_MAX), 0);
	ck_assert_uint_eq(stats().held, 2 * MIB);
	uint64_t gets = w.gets;
	give(take(2 * MIB));
	ck_assert_uint_eq(w.gets, gets);
	ck_assert_uint_eq(gm_arena_trim(arena, UINT64_MAX), 2 * MIB);
}
END_TEST

START_TEST(the_reservation_is_halved_until_it_fits)
{
	struct gm_arena_config config = {.ops = &w.ops, .backend = &w, .source = w.source};
	struct gm_arena *other = NULL;
	struct world small;

	world_init(&small, false, GIB);
	small.reserve_max = 300 * MIB;
	config.ops = &small.ops;
	config.backend = &small;
	config.source = small.source;
	ck_assert_int_eq(gm_arena_new(&config, &other), 0);
	ck_assert_uint_eq(small.reserved, 256 * MIB);
	gm_arena_free(other);
	world_deinit(&small);
	small.reserve_max = MIB;
	ck_assert_int_eq(gm_arena_new(&config, &other), -ENOMEM);
	gm_arena_free(NULL);
}
END_TEST

/* ---- giving back */

START_TEST(trim_gives_back_what_it_is_asked_for_and_no_chunk_more)
{
	void *blocks[8];

	for (unsigned i = 0; i < 8; i++)
		blocks[i] = take(2 * MIB);
	for (unsigned i = 0; i < 8; i++)
		give(blocks[i]);
	ck_assert_uint_eq(gm_arena_trim(arena, 3 * MIB), 4 * MIB);
	ck_assert_uint_eq(w.granted, 12 * MIB);
	ck_assert_uint_eq(gm_arena_trim(arena, UINT64_MAX), 12 * MIB);
	ck_assert_uint_eq(gm_arena_trim(arena, UINT64_MAX), 0);
}
END_TEST

START_TEST(trim_takes_small_blocks_out_of_the_caches)
{
	void *blocks[100];

	for (unsigned i = 0; i < 100; i++)
		blocks[i] = take(1 + i * 300);
	for (unsigned i = 0; i < 100; i++)
		give(blocks[i]);
	ck_assert_uint_gt(stats().held, 0);
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(stats().held, 0);
}
END_TEST

START_TEST(a_chunk_goes_when_it_was_free_for_the_whole_decay_time)
{
	uint64_t now = 100 * SECOND, next;
	void *ptr = take(2 * MIB);

	next = gm_arena_tick(arena, now);
	give(ptr);
	/* Free since some time after the last tick: counted from the next one on. */
	now += 5 * SECOND;
	next = gm_arena_tick(arena, now);
	ck_assert_uint_eq(next, now + 10 * SECOND);
	ck_assert_uint_gt(gm_arena_tick(arena, next - 1), next - 1);
	ck_assert_uint_eq(w.granted, 2 * MIB);
	/* Used once more: the time starts again. */
	give(take(2 * MIB));
	now = next;
	next = gm_arena_tick(arena, now);
	ck_assert_uint_eq(w.granted, 2 * MIB);
	ck_assert_uint_eq(next, now + 10 * SECOND);
	ck_assert_uint_eq(gm_arena_tick(arena, next), GM_ARENA_NEVER);
	ck_assert_uint_eq(w.granted, 0);
}
END_TEST

START_TEST(an_idle_threads_cache_and_its_slab_go_with_time)
{
	uint64_t now = SECOND;

	give(take(1000));
	ck_assert_uint_eq(w.granted, 2 * MIB);
	for (unsigned i = 0; i < 10; i++) {
		uint64_t next = gm_arena_tick(arena, now);
		if (next == GM_ARENA_NEVER)
			break;
		ck_assert_uint_gt(next, now);
		now = next;
	}
	ck_assert_uint_eq(w.granted, 0);
}
END_TEST

START_TEST(the_arena_asks_for_a_tick_only_when_none_will_come)
{
	void *ptr = take(2 * MIB);

	ck_assert_uint_eq(w.wakes, 0);
	give(ptr);
	ck_assert_uint_eq(w.wakes, 1);
	give(take(2 * MIB));
	ck_assert_uint_eq(w.wakes, 1);
	ck_assert_uint_ne(gm_arena_tick(arena, SECOND), GM_ARENA_NEVER);
	give(take(2 * MIB));
	ck_assert_uint_eq(w.wakes, 1);
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(gm_arena_tick(arena, 2 * SECOND), GM_ARENA_NEVER);
	give(take(2 * MIB));
	ck_assert_uint_eq(w.wakes, 2);
}
END_TEST

START_TEST(the_figures_say_what_happened)
{
	void *a = take(1000), *b = take(MIB + 1);
	struct gm_arena_stats s = stats();

	ck_assert_uint_eq(s.in_use, 1000 + MIB + 1);
	ck_assert_uint_eq(s.rounding, 24 + 255);
	ck_assert_uint_eq(s.held, w.granted);
	ck_assert_uint_eq(s.cached, s.held - s.in_use - s.rounding);
	ck_assert_uint_eq(s.active, 2);
	ck_assert_uint_eq(s.misses, 2);
	ck_assert_uint_eq(s.hits, 0);
	give(a);
	give(b);
	give(take(1000));
	s = stats();
	ck_assert_uint_eq(s.in_use, 0);
	ck_assert_uint_eq(s.rounding, 0);
	ck_assert_uint_eq(s.cached, s.held);
	ck_assert_uint_eq(s.peak, 1000 + MIB + 1);
	ck_assert_uint_eq(s.hits, 1);
	ck_assert_uint_eq(s.active, 0);
	ck_assert_uint_ge(s.reserved, GIB);
}
END_TEST

/* ---- streams */

static void use(unsigned stream)
{
	world_launch(&w, stream);
}

static void give_on(void *ptr, unsigned stream)
{
	ck_assert_int_eq(gm_arena_dealloc(arena, ptr, world_stream(stream), NULL), 0);
}

START_TEST(a_stream_gets_back_at_once_what_it_freed_and_nothing_is_recorded)
{
	static const uint64_t sizes[] = {500, 50 * KIB, 2 * MIB};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (unsigned s = 0; s < 3; s++) {
			void *first = take_on(sizes[i], world_stream(s));
			use(s);
			give_on(first, s);
			for (unsigned j = 0; j < 10; j++) {
				void *again = take_on(sizes[i], world_stream(s));
				ck_assert_ptr_eq(again, first);
				use(s);
				give_on(again, s);
			}
		}
	}
	ck_assert_uint_eq(w.orders, 0);
}
END_TEST

START_TEST(reuse_on_the_default_stream_records_nothing)
{
	void *ptr = take_on(2 * MIB, world_stream(0));

	use(0);
	for (unsigned i = 0; i < 10; i++) {
		give_on(ptr, 0);
		ck_assert_ptr_eq(take_on(2 * MIB, world_stream(0)), ptr);
	}
	ck_assert_uint_eq(w.records, 0);
	ck_assert_uint_eq(w.queries, 0);
	ck_assert_uint_eq(w.gets, 1);
	give_on(ptr, 0);
}
END_TEST

START_TEST(another_stream_gets_it_only_when_the_event_has_passed)
{
	static const uint64_t sizes[] = {500, 50 * KIB, 2 * MIB};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		void *mine = take_on(sizes[i], world_stream(1)), *other;
		use(1);
		give_on(mine, 1);
		other = take_on(sizes[i], world_stream(2));
		ck_assert_ptr_ne(other, mine);
		ck_assert_int_eq(gm_arena_dealloc(arena, other, DONE, NULL), 0);
		other = take_on(sizes[i], ANY);
		ck_assert_ptr_ne(other, mine);
		ck_assert_int_eq(gm_arena_dealloc(arena, other, DONE, NULL), 0);
		world_finish(&w, 1);
		gm_arena_trim(arena, UINT64_MAX);
		ck_assert_uint_eq(w.granted, 0);
	}
}
END_TEST

START_TEST(one_event_serves_many_blocks)
{
	void *blocks[50];

	for (unsigned i = 0; i < 50; i++)
		blocks[i] = take_on(MIB, world_stream(i % 3));
	for (unsigned i = 0; i < 3; i++)
		use(i);
	for (unsigned i = 0; i < 50; i++)
		give_on(blocks[i], i % 3);
	ck_assert_uint_eq(w.records, 0);
	world_finish_all(&w);
	gm_arena_tick(arena, SECOND);
	ck_assert_uint_eq(w.records, 1);
	ck_assert_uint_eq(stats().pending, 0);
	uint64_t gets = w.gets;
	take_on(50 * MIB, world_stream(5));
	ck_assert_uint_eq(w.gets, gets);
}
END_TEST

START_TEST(only_blocks_of_one_stream_merge)
{
	void *a = take_on(2 * MIB, world_stream(1)), *b = take_on(2 * MIB, world_stream(2));
	void *c = take_on(2 * MIB, world_stream(1)), *d = take_on(2 * MIB, world_stream(1));

	use(1);
	use(2);
	give_on(a, 1);
	give_on(b, 2);
	give_on(c, 1);
	give_on(d, 1);
	uint64_t gets = w.gets;
	ck_assert_ptr_eq(take_on(4 * MIB, world_stream(1)), c);
	ck_assert_uint_eq(w.gets, gets);
	take_on(4 * MIB, world_stream(1));
	ck_assert_uint_eq(w.gets, gets + 1);
}
END_TEST

START_TEST(an_alloc_that_would_fail_orders_itself_behind_what_is_pending)
{
	uint8_t *a = take_on(32 * MIB, world_stream(1)), *b = take_on(32 * MIB, world_stream(2));
	void *c;

	w.capacity = w.granted;
	use(1);
	use(2);
	give_on(a, 1);
	give_on(b, 2);
	c = take_on(64 * MIB, world_stream(3));
	ck_assert_ptr_eq(c, a);
	ck_assert_uint_eq(w.orders, 1);
	ck_assert_uint_ge(w.behind[3][1], 1);
	ck_assert_uint_ge(w.behind[3][2], 1);
	give_on(c, 3);
}
END_TEST

START_TEST(free_memory_between_pending_blocks_is_used_too_before_failing)
{
	uint8_t *a = take_on(16 * MIB, world_stream(1)), *b = take_on(16 * MIB, ANY);
	uint8_t *c = take_on(16 * MIB, world_stream(2));

	w.capacity = w.granted;
	use(1);
	use(2);
	give_on(a, 1);
	give(b);
	give_on(c, 2);
	ck_assert_ptr_eq(take_on(48 * MIB, world_stream(3)), a);
}
END_TEST

START_TEST(an_alloc_for_any_stream_fails_rather_than_use_what_is_pending)
{
	gpumem_status status = GPUMEM_OK;
	void *ptr = take_on(32 * MIB, world_stream(1));

	w.capacity = w.granted;
	use(1);
	give_on(ptr, 1);
	ck_assert_int_eq(
		gm_arena_alloc(arena, 32 * MIB, 0, ANY, 0, &ptr, &status), GM_ARENA_E_SOURCE);
	ck_assert_int_eq(status, GPUMEM_E_NO_MEMORY);
	ck_assert_uint_eq(w.orders, 0);
	world_finish(&w, 1);
	ck_assert_int_eq(gm_arena_alloc(arena, 32 * MIB, 0, ANY, 0, &ptr, NULL), 0);
}
END_TEST

START_TEST(chunks_go_back_only_after_their_last_use_has_passed)
{
	void *ptr = take_on(8 * MIB, world_stream(1));

	use(1);
	give_on(ptr, 1);
	ck_assert_uint_eq(gm_arena_trim(arena, UINT64_MAX), 0);
	ck_assert_uint_eq(stats().pending, 8 * MIB);
	ck_assert_uint_ne(gm_arena_tick(arena, SECOND), GM_ARENA_NEVER);
	ck_assert_uint_eq(w.granted, 8 * MIB);
	/* The trim was asked for: what it could not take goes as soon as it can. */
	world_finish(&w, 1);
	gm_arena_tick(arena, 2 * SECOND);
	ck_assert_uint_eq(w.granted, 0);
}
END_TEST

START_TEST(a_trim_does_not_end_decay_for_what_is_freed_later)
{
	void *before = take_on(8 * MIB, world_stream(1)),
	     *after = take_on(4 * MIB, world_stream(2));
	uint64_t now = SECOND;

	use(1);
	give_on(before, 1);
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(w.granted, 12 * MIB);
	use(2);
	give_on(after, 2);
	/* What the trim was for goes as soon as it can. */
	world_finish(&w, 1);
	gm_arena_tick(arena, now);
	ck_assert_uint_eq(w.granted, 4 * MIB);
	ck_assert_uint_eq(stats().pending, 4 * MIB);
	/* The rest was freed later, and has its time. */
	world_finish(&w, 2);
	gm_arena_tick(arena, ++now);
	ck_assert_uint_eq(stats().pending, 0);
	ck_assert_uint_eq(w.granted, 4 * MIB);
	gm_arena_tick(arena, now + 10 * SECOND);
	ck_assert_uint_eq(w.granted, 0);
}
END_TEST

START_TEST(what_was_freed_for_any_stream_waits_for_all_of_them)
{
	void *ptr = take_on(2 * MIB, ANY);

	use(1);
	use(4);
	ck_assert_int_eq(gm_arena_dealloc(arena, ptr, ANY, NULL), 0);
	world_finish(&w, 1);
	ck_assert_ptr_ne(take_on(2 * MIB, ANY), ptr);
	world_finish(&w, 4);
	ck_assert_ptr_eq(take_on(2 * MIB, ANY), ptr);
}
END_TEST

START_TEST(a_recording_that_fails_is_tried_again)
{
	void *large = take_on(2 * MIB, world_stream(1)), *small = take_on(100, world_stream(1));

	use(1);
	give_on(large, 1);
	give_on(small, 1);
	world_finish(&w, 1);
	w.fail_record = 3;
	for (unsigned i = 0; i < 3; i++)
		gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(w.granted, 4 * MIB);
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(w.granted, 0);
}
END_TEST

START_TEST(many_streams_are_kept_apart_as_far_as_possible_and_never_mixed_up)
{
	/* More events than are kept, and each stream's blocks still only its own. */
	void *blocks[WORLD_STREAMS][20];

	for (unsigned round = 0; round < 20; round++) {
		for (unsigned s = 0; s < WORLD_STREAMS; s++) {
			blocks[s][round] = take_on(64 * KIB, world_stream(s));
			use(s);
		}
		for (unsigned s = 0; s < WORLD_STREAMS; s++)
			give_on(blocks[s][round], s);
		gm_arena_tick(arena, (round + 1) * SECOND);
	}
	ck_assert_uint_le(w.events, 8);
	for (unsigned s = 0; s < WORLD_STREAMS; s++)
		ck_assert_ptr_eq(blocks[s][19], blocks[s][0]);
	world_finish_all(&w);
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(w.granted, 0);
}
END_TEST

/* ---- threads */

static void *alloc_one(void *ctx)
{
	void *ptr = NULL;
	int r = gm_arena_alloc(arena, *(uint64_t *)ctx, 0, ANY, 0, &ptr, NULL);
	return r ? NULL : ptr;
}

START_TEST(threads_that_grow_at_once_ask_for_little_more_than_they_need)
{
	pthread_t threads[16];
	uint64_t size = 64 * KIB;
	void *ptr;

	w.hold_gets = true;
	for (unsigned i = 0; i < 16; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, alloc_one, &size), 0);
	world_await_gets(&w, 1);
	world_release_gets(&w);
	for (unsigned i = 0; i < 16; i++) {
		ck_assert_int_eq(pthread_join(threads[i], &ptr), 0);
		ck_assert_ptr_nonnull(ptr);
	}
	/* All of it fits one chunk. */
	ck_assert_uint_eq(w.granted, 2 * MIB);
}
END_TEST

START_TEST(a_large_request_under_way_does_not_keep_others_waiting)
{
	uint64_t size = 512 * MIB;
	pthread_t thread;
	void *ptr;

	void *block = take(MIB + MIB / 2);
	w.hold_gets = true;
	ck_assert_int_eq(pthread_create(&thread, NULL, alloc_one, &size), 0);
	world_await_gets(&w, 1);
	/* What is free here, and what others free, is used meanwhile. */
	give(block);
	give(take(MIB));
	world_release_gets(&w);
	ck_assert_int_eq(pthread_join(thread, &ptr), 0);
	ck_assert_ptr_nonnull(ptr);
	give(ptr);
}
END_TEST

START_TEST(a_local_free_wakes_a_thread_that_waits_for_anothers_request)
{
	uint64_t half = MIB;
	pthread_t first, second;
	void *ptr, *block = take(2 * MIB);

	w.hold_gets = true;
	ck_assert_int_eq(pthread_create(&first, NULL, alloc_one, &half), 0);
	world_await_gets(&w, 1);
	/* This one counts on the other half of what the first one gets. */
	ck_assert_int_eq(pthread_create(&second, NULL, alloc_one, &half), 0);
	give(block);
	ck_assert_int_eq(pthread_join(second, &ptr), 0);
	ck_assert_ptr_nonnull(ptr);
	ck_assert_uint_eq(w.gets, 2);
	world_release_gets(&w);
	ck_assert_int_eq(pthread_join(first, &ptr), 0);
	ck_assert_ptr_nonnull(ptr);
}
END_TEST

START_TEST(when_a_request_fails_those_who_counted_on_it_ask_for_themselves)
{
	pthread_t threads[4];
	uint64_t size = 64 * KIB;
	void *ptr;

	w.hold_gets = true;
	w.fail_gets = 2; /* the step and the exact amount of the first */
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, alloc_one, &size), 0);
	world_await_gets(&w, 1);
	world_release_gets(&w);
	unsigned got = 0;
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_int_eq(pthread_join(threads[i], &ptr), 0);
		got += ptr != NULL;
	}
	/* The others were not failed by it; and the one that was tried again by itself. */
	ck_assert_uint_ge(got, 3);
}
END_TEST

struct handover {
	void *blocks[64];
};

static void *alloc_many(void *ctx)
{
	struct handover *h = ctx;
	for (unsigned i = 0; i < 64; i++) {
		h->blocks[i] = NULL;
		if (gm_arena_alloc(arena, 100 + i * 500, 0, ANY, 0, &h->blocks[i], NULL))
			return h;
	}
	return NULL;
}

static void *free_many(void *ctx)
{
	struct handover *h = ctx;
	for (unsigned i = 0; i < 64; i++) {
		if (gm_arena_dealloc(arena, h->blocks[i], DONE, NULL))
			return h;
	}
	return NULL;
}

static void in_thread(void *(*fn)(void *), void *ctx)
{
	pthread_t thread;
	void *bad;
	ck_assert_int_eq(pthread_create(&thread, NULL, fn, ctx), 0);
	ck_assert_int_eq(pthread_join(thread, &bad), 0);
	ck_assert_ptr_null(bad);
}

START_TEST(blocks_may_be_freed_by_other_threads_and_outlive_their_own)
{
	struct handover h;

	in_thread(alloc_many, &h);
	ck_assert_uint_eq(stats().active, 64);
	in_thread(free_many, &h);
	ck_assert_uint_eq(stats().active, 0);
	ck_assert_uint_eq(stats().hits + stats().misses, 64);
	/* The threads are gone, and their caches with them. */
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(w.granted, 0);
}
END_TEST

static _Atomic unsigned freed;
static void *_Atomic target;
static pthread_barrier_t barrier;

static void *free_target(void *ctx)
{
	for (unsigned i = 0; i < 200; i++) {
		pthread_barrier_wait(&barrier);
		if (gm_arena_dealloc(arena, atomic_load(&target), DONE, NULL) == 0)
			atomic_fetch_add(&freed, 1);
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

START_TEST(of_two_frees_at_once_exactly_one_succeeds)
{
	pthread_t threads[2];

	pthread_barrier_init(&barrier, NULL, 3);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, free_target, NULL), 0);
	for (unsigned i = 0; i < 200; i++) {
		atomic_store(&target, take(i % 2 ? 500 : 500000));
		atomic_store(&freed, 0);
		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
		ck_assert_uint_eq(atomic_load(&freed), 1);
	}
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	pthread_barrier_destroy(&barrier);
	ck_assert_uint_eq(stats().active, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("arena");
	TCase *plain = tcase_create("plain"), *streams = tcase_create("streams");

	tcase_add_checked_fixture(plain, setup, teardown);
	tcase_set_timeout(plain, 60);
	tcase_add_test(plain, nonsense_is_refused_by_name);
	tcase_add_test(plain, a_size_that_no_address_range_holds_is_refused);
	tcase_add_test(plain, pointers_that_are_none_are_told_apart);
	tcase_add_test(
		plain, an_inside_pointer_before_the_next_block_of_its_granule_is_still_inside);
	tcase_add_test(plain, every_alignment_holds_at_every_kind_of_size);
	tcase_add_test(plain, what_is_alive_is_found_until_it_has_a_cookie);
	tcase_add_test(plain, a_tag_stays_with_its_block);
	tcase_add_test(plain, every_one_of_many_blocks_is_found);
	tcase_add_test(plain, a_first_small_need_takes_one_chunk_of_the_least_size);
	tcase_add_test(plain, growth_is_by_at_most_a_32nd_of_what_is_held);
	tcase_add_test(
		plain, a_large_request_asks_once_and_only_for_what_is_missing_next_to_a_free_tail);
	tcase_add_test(plain, free_neighbours_merge_across_chunk_borders);
	tcase_add_test(plain, a_chunk_in_the_middle_goes_back_alone_and_its_hole_is_filled_first);
	tcase_add_test(plain, own_free_chunks_are_moved_together_before_the_source_is_asked);
	tcase_add_test(plain, what_moving_cannot_bring_is_asked_for);
	tcase_add_test(plain, a_step_that_is_refused_is_asked_for_smaller);
	tcase_add_test(plain, a_refusal_brings_the_sources_status_and_changes_nothing);
	tcase_add_test(plain, a_small_block_comes_from_the_heap_when_no_slab_is_to_be_had);
	tcase_add_test(plain, chunks_of_odd_sizes_are_all_used);
	tcase_add_test(plain, what_cannot_be_mapped_goes_back);
	tcase_add_test(plain, a_chunk_that_cannot_be_unmapped_is_used_on);
	tcase_add_test(plain, the_reservation_is_halved_until_it_fits);
	tcase_add_test(plain, trim_gives_back_what_it_is_asked_for_and_no_chunk_more);
	tcase_add_test(plain, trim_takes_small_blocks_out_of_the_caches);
	tcase_add_test(plain, a_chunk_goes_when_it_was_free_for_the_whole_decay_time);
	tcase_add_test(plain, an_idle_threads_cache_and_its_slab_go_with_time);
	tcase_add_test(plain, the_arena_asks_for_a_tick_only_when_none_will_come);
	tcase_add_test(plain, the_figures_say_what_happened);
	tcase_add_test(plain, threads_that_grow_at_once_ask_for_little_more_than_they_need);
	tcase_add_test(plain, a_large_request_under_way_does_not_keep_others_waiting);
	tcase_add_test(plain, a_local_free_wakes_a_thread_that_waits_for_anothers_request);
	tcase_add_test(plain, when_a_request_fails_those_who_counted_on_it_ask_for_themselves);
	tcase_add_test(plain, blocks_may_be_freed_by_other_threads_and_outlive_their_own);
	tcase_add_test(plain, of_two_frees_at_once_exactly_one_succeeds);
	suite_add_tcase(suite, plain);

	tcase_add_checked_fixture(streams, setup_streams, teardown);
	tcase_set_timeout(streams, 60);
	tcase_add_test(streams, a_stream_gets_back_at_once_what_it_freed_and_nothing_is_recorded);
	tcase_add_test(streams, reuse_on_the_default_stream_records_nothing);
	tcase_add_test(streams, another_stream_gets_it_only_when_the_event_has_passed);
	tcase_add_test(streams, one_event_serves_many_blocks);
	tcase_add_test(streams, only_blocks_of_one_stream_merge);
	tcase_add_test(streams, an_alloc_that_would_fail_orders_itself_behind_what_is_pending);
	tcase_add_test(streams, free_memory_between_pending_blocks_is_used_too_before_failing);
	tcase_add_test(streams, an_alloc_for_any_stream_fails_rather_than_use_what_is_pending);
	tcase_add_test(streams, chunks_go_back_only_after_their_last_use_has_passed);
	tcase_add_test(streams, a_trim_does_not_end_decay_for_what_is_freed_later);
	tcase_add_test(streams, what_was_freed_for_any_stream_waits_for_all_of_them);
	tcase_add_test(streams, a_recording_that_fails_is_tried_again);
	tcase_add_test(streams, many_streams_are_kept_apart_as_far_as_possible_and_never_mixed_up);
	suite_add_tcase(suite, streams);
	return gm_tap_run(suite);
}
