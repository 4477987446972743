/* SPDX-License-Identifier: Apache-2.0 */
/* Small sizes and the caches of threads: classes, slabs, bounds, the end of threads and of arenas,
 * a fork. */
#include "autoconf.h"

#include "client/heap/tcache.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/heap/arena_private.h"
#include "client/heap/small.h"
#include "tests/tap.h"
#include "tests/unit/heap/heap_world.h"

#define MIB  (UINT64_C(1) << 20)
#define BASE (UINT64_C(1) << 40)
#define DONE GPUMEM_STREAM_DONE
#define ANY  GPUMEM_STREAM_ANY

/* ---- classes and slabs */

static struct gm_heap_ptrmap map;
static struct gm_small small;

static void setup_small(void)
{
	ck_assert_int_eq(gm_heap_ptrmap_init(&map, BASE, 64 * MIB, 15), 0);
	ck_assert_int_eq(gm_heap_ptrmap_cover(&map, BASE, 64 * MIB), 0);
	gm_small_init(&small, &map);
}

static void teardown_small(void)
{
	gm_small_deinit(&small);
	gm_heap_ptrmap_deinit(&map);
}

START_TEST(every_small_size_has_the_least_class_that_holds_it)
{
	for (uint64_t size = 1; size <= GM_SMALL_MAX; size++) {
		unsigned class = gm_small_class(size);
		ck_assert_uint_lt(class, GM_SMALL_CLASSES);
		ck_assert_uint_ge(gm_small_bytes(class), size);
		if (class)
			ck_assert_uint_lt(gm_small_bytes(class - 1), size);
	}
	ck_assert_uint_eq(gm_small_bytes(0), 256);
	ck_assert_uint_eq(gm_small_bytes(GM_SMALL_CLASSES - 1), GM_SMALL_MAX);
	for (uint64_t alignment = 256; alignment <= GM_SMALL_MAX; alignment *= 2) {
		for (uint64_t size = 1; size <= GM_SMALL_MAX; size += 111) {
			unsigned class = gm_small_class_aligned(size, alignment);
			ck_assert_uint_ge(gm_small_bytes(class), size);
			ck_assert_uint_eq(gm_small_bytes(class) % alignment, 0);
		}
	}
}
END_TEST

START_TEST(every_offset_in_a_span_belongs_to_the_object_it_is_in)
{
	for (unsigned class = 0; class < GM_SMALL_CLASSES; class ++) {
		for (uint64_t offset = 0; offset < GM_SMALL_SPAN_BYTES; offset += 256)
			ck_assert_uint_eq(
				gm_small_index(class, offset), offset / gm_small_bytes(class));
	}
}
END_TEST

START_TEST(a_slab_is_used_up_by_any_class_and_comes_back_whole)
{
	static uint64_t objects[GM_SMALL_SLAB_BYTES / 256 + 1];
	uint64_t addr = BASE + 8 * MIB;

	ck_assert_uint_eq(gm_small_take(&small, 0, 1, objects), 0);
	ck_assert_int_eq(gm_small_add(&small, addr), 0);
	for (unsigned class = 0; class < GM_SMALL_CLASSES; class ++) {
		uint64_t per_span = GM_SMALL_SPAN_BYTES / gm_small_bytes(class);
		unsigned n = gm_small_take(
			&small, class, (unsigned)(sizeof(objects) / sizeof(*objects)), objects);
		ck_assert_uint_eq(n, per_span * GM_SMALL_SPANS);
		ck_assert_uint_eq(gm_small_take(&small, class, 1, objects + n), 0);
		for (unsigned i = 0; i < n; i++) {
			ck_assert(objects[i] >= addr &&
				  objects[i] + gm_small_bytes(class) <= addr + GM_SMALL_SLAB_BYTES);
			ck_assert(!gm_small_slab_empty(small.slabs));
			ck_assert_int_eq(gm_small_put(&small, objects[i]), i == n - 1);
		}
		ck_assert_uint_eq(small.free_bytes, GM_SMALL_SLAB_BYTES);
	}
	ck_assert_uint_eq(small.slabs->addr, addr);
	gm_small_remove(&small, small.slabs);
	ck_assert_ptr_null(small.slabs);
	ck_assert_uint_eq(gm_heap_ptrmap_below(&map, BASE + 64 * MIB - 1), 0);
	ck_assert_uint_eq(small.free_bytes, 0);
}
END_TEST

START_TEST(lists_of_objects_keep_and_join)
{
	struct gm_small_list a = {0}, b = {0};
	uint64_t objects[8], seen = 0, object;

	ck_assert_int_eq(gm_small_add(&small, BASE), 0);
	ck_assert_uint_eq(gm_small_take(&small, 7, 8, objects), 8);
	for (unsigned i = 0; i < 8; i++)
		gm_small_list_push(&small, i % 2 ? &a : &b, objects[i]);
	gm_small_list_append(&small, &a, &b);
	ck_assert_uint_eq(gm_small_list_pop(&small, &b), 0);
	gm_small_list_append(&small, &b, &a);
	while ((object = gm_small_list_pop(&small, &b))) {
		seen++;
		gm_small_put(&small, object);
	}
	ck_assert_uint_eq(seen, 8);
	ck_assert_uint_eq(small.free_bytes, GM_SMALL_SLAB_BYTES);
}
END_TEST

/* ---- caches */

static struct world w;
static struct gm_arena *arena;

static void setup(void)
{
	world_init(&w, true, 512 * MIB);
	arena = world_arena(&w, 1000);
}

static void teardown(void)
{
	gm_arena_free(arena);
	world_deinit(&w);
}

static void *take(uint64_t size, gpumem_stream stream)
{
	void *ptr = NULL;
	if (gm_arena_alloc(arena, size, 0, stream, 0, NULL, &ptr, NULL))
		abort();
	return ptr;
}

static void give(void *ptr, gpumem_stream stream)
{
	if (gm_arena_dealloc(arena, ptr, stream, NULL))
		abort();
}

static uint64_t held(void)
{
	struct gm_arena_stats stats;
	gm_arena_stats(arena, &stats);
	return stats.held;
}

static pthread_barrier_t barrier;

static void *fill_cache(void *ctx)
{
	void *blocks[3000];
	for (unsigned i = 0; i < 3000; i++)
		blocks[i] = take(1 + (i * 37) % GM_SMALL_MAX, ANY);
	for (unsigned i = 0; i < 3000; i++)
		give(blocks[i], DONE);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	return NULL;
}

START_TEST(an_idle_thread_pins_little_and_trim_takes_even_that)
{
	pthread_t threads[4];

	pthread_barrier_init(&barrier, NULL, 5);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, fill_cache, NULL), 0);
	pthread_barrier_wait(&barrier);
	/* The threads live and sit on their caches. */
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(held(), 0);
	pthread_barrier_wait(&barrier);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	pthread_barrier_destroy(&barrier);
}
END_TEST

static void check_bytes(struct gm_tcache *cache, void *ctx)
{
	uint64_t bytes = 0;
	for (unsigned s = 0; s <= GM_TCACHE_STREAMS; s++) {
		for (unsigned class = 0; cache->sets[s] && class < GM_SMALL_CLASSES; class ++) {
			ck_assert_uint_le(cache->sets[s]->bins[class].n, gm_tcache_limit(class));
			bytes += cache->sets[s]->bins[class].n * gm_small_bytes(class);
		}
	}
	ck_assert_uint_eq(bytes, cache->bytes);
	ck_assert_uint_le(bytes, GM_TCACHE_BYTES + GM_SMALL_MAX);
	++*(unsigned *)ctx;
}

START_TEST(a_cache_is_bounded_in_bytes_whatever_is_freed_into_it)
{
	static void *blocks[4000];
	unsigned caches = 0;

	for (unsigned i = 0; i < 4000; i++)
		blocks[i] = take(1 + (i * 37) % GM_SMALL_MAX, world_stream(i % 6));
	for (unsigned i = 0; i < 4000; i++) {
		give(blocks[i], world_stream(i % 6));
		if (i % 100 == 0)
			gm_tcache_each(&arena->caches, check_bytes, &caches);
	}
	ck_assert_uint_eq(caches, 40);
	world_finish_all(&w);
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(held(), 0);
}
END_TEST

static void *leave_at_once(void *ctx)
{
	unsigned s = (unsigned)(uintptr_t)ctx;
	for (unsigned i = 0; i < 50; i++) {
		void *ptr = take(5000, world_stream(s));
		world_launch(&w, s);
		give(ptr, world_stream(s));
	}
	return NULL;
}

START_TEST(a_threads_end_empties_its_cache_and_what_it_freed_on_streams_still_waits)
{
	pthread_t thread;
	struct gm_arena_stats stats;

	ck_assert_int_eq(pthread_create(&thread, NULL, leave_at_once, (void *)3), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_ptr_null(arena->caches.caches);
	gm_arena_trim(arena, UINT64_MAX);
	gm_arena_stats(arena, &stats);
	ck_assert_uint_eq(stats.pending, 5120);
	ck_assert_uint_eq(stats.hits + stats.misses, 50);
	ck_assert_uint_eq(stats.active, 0);
	world_finish(&w, 3);
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(held(), 0);
}
END_TEST

static void *outlive(void *ctx)
{
	give(take(1000, ANY), DONE);
	pthread_barrier_wait(&barrier);
	/* The arena goes, and another one comes, perhaps at the same address. */
	pthread_barrier_wait(&barrier);
	give(take(1000, ANY), DONE);
	return NULL;
}

START_TEST(a_thread_may_outlive_an_arena_and_use_the_next)
{
	pthread_t thread;

	pthread_barrier_init(&barrier, NULL, 2);
	ck_assert_int_eq(pthread_create(&thread, NULL, outlive, NULL), 0);
	pthread_barrier_wait(&barrier);
	gm_arena_free(arena);
	world_deinit(&w);
	setup();
	pthread_barrier_wait(&barrier);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	pthread_barrier_destroy(&barrier);
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(held(), 0);
}
END_TEST

START_TEST(a_thread_has_a_cache_for_each_arena_it_uses)
{
	static struct world other_world;
	struct gm_arena *first = arena, *other;

	world_init(&other_world, false, 64 * MIB);
	other = world_arena(&other_world, 1000);
	for (unsigned i = 0; i < 100; i++) {
		void *a, *b;
		arena = first;
		a = take(1000, ANY);
		arena = other;
		b = take(1000, ANY);
		ck_assert(gm_arena_holds(first, a) && !gm_arena_holds(first, b));
		give(b, DONE);
		arena = first;
		give(a, DONE);
	}
	/* Each was served from its own cache, after the first time. */
	ck_assert_uint_eq(w.gets, 1);
	ck_assert_uint_eq(other_world.gets, 1);
	gm_arena_free(other);
	world_deinit(&other_world);
	give(take(1000, ANY), DONE);
}
END_TEST

static pthread_key_t late_key;

static void free_late(void *ptr)
{
	/* Runs in a thread whose caches may be gone already; each round asks for another. */
	give(ptr, DONE);
	give(take(300, ANY), DONE);
}

static void *die_late(void *ctx)
{
	pthread_setspecific(late_key, take(300, ANY));
	return NULL;
}

START_TEST(what_a_thread_frees_in_its_last_moments_is_not_lost)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_key_create(&late_key, free_late), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, die_late, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	pthread_key_delete(late_key);
	ck_assert_ptr_null(arena->caches.caches);
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(held(), 0);
}
END_TEST

START_TEST(a_forked_child_can_start_afresh_and_leaves_its_parents_alone)
{
	void *ptr = take(1000, ANY);
	pid_t pid;
	int status;

	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		static struct world child;
		struct gm_arena *own;
		void *p = NULL;
		world_init(&child, false, 64 * MIB);
		own = world_arena(&child, 0);
		if (gm_arena_alloc(own, 1000, 0, ANY, 0, NULL, &p, NULL) ||
			gm_arena_dealloc(own, p, DONE, NULL))
			_exit(1);
		gm_arena_free(own);
		world_deinit(&child);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	give(ptr, DONE);
}
END_TEST

static _Atomic bool stop;

static void *churn(void *ctx)
{
	unsigned seed = (unsigned)(uintptr_t)ctx;
	void *blocks[32] = {0};
	for (unsigned i = 0; i < 20000; i++) {
		unsigned j = (unsigned)rand_r(&seed) % 32;
		if (blocks[j]) {
			give(blocks[j], DONE);
			blocks[j] = NULL;
		} else {
			blocks[j] = take(1 + (uint64_t)rand_r(&seed) % GM_SMALL_MAX, ANY);
			memset(blocks[j], (int)i, 1);
		}
	}
	for (unsigned j = 0; j < 32; j++) {
		if (blocks[j])
			give(blocks[j], DONE);
	}
	return NULL;
}

static void *trim_on(void *ctx)
{
	while (!atomic_load(&stop))
		gm_arena_trim(arena, UINT64_MAX);
	return NULL;
}

START_TEST(caches_can_be_drained_while_their_threads_use_them)
{
	pthread_t threads[3], trimmer;

	atomic_store(&stop, false);
	ck_assert_int_eq(pthread_create(&trimmer, NULL, trim_on, NULL), 0);
	for (uintptr_t i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	atomic_store(&stop, true);
	ck_assert_int_eq(pthread_join(trimmer, NULL), 0);
	gm_arena_trim(arena, UINT64_MAX);
	ck_assert_uint_eq(held(), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tcache");
	TCase *slabs = tcase_create("small"), *caches = tcase_create("tcache");

	tcase_add_checked_fixture(slabs, setup_small, teardown_small);
	tcase_add_test(slabs, every_small_size_has_the_least_class_that_holds_it);
	tcase_add_test(slabs, every_offset_in_a_span_belongs_to_the_object_it_is_in);
	tcase_add_test(slabs, a_slab_is_used_up_by_any_class_and_comes_back_whole);
	tcase_add_test(slabs, lists_of_objects_keep_and_join);
	tcase_set_timeout(slabs, 60);
	suite_add_tcase(suite, slabs);

	tcase_add_checked_fixture(caches, setup, teardown);
	tcase_set_timeout(caches, 120);
	tcase_add_test(caches, an_idle_thread_pins_little_and_trim_takes_even_that);
	tcase_add_test(caches, a_cache_is_bounded_in_bytes_whatever_is_freed_into_it);
	tcase_add_test(
		caches, a_threads_end_empties_its_cache_and_what_it_freed_on_streams_still_waits);
	tcase_add_test(caches, a_thread_may_outlive_an_arena_and_use_the_next);
	tcase_add_test(caches, a_thread_has_a_cache_for_each_arena_it_uses);
	tcase_add_test(caches, what_a_thread_frees_in_its_last_moments_is_not_lost);
	tcase_add_test(caches, a_forked_child_can_start_afresh_and_leaves_its_parents_alone);
	tcase_add_test(caches, caches_can_be_drained_while_their_threads_use_them);
	suite_add_tcase(suite, caches);
	return gm_tap_run(suite);
}
