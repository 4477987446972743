/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random use of an arena against a plain model: who has each 256 bytes, and if nobody, on which
 * stream it was freed and what had been launched then. Checked after every step: blocks do not
 * overlap, alignment holds, nothing is handed to a stream while another's work may still use it,
 * nothing leaves its place before its last use has passed, and the sums add up. At the end
 * everything must come back.
 *
 * GPUMEM_TEST_SEED sets the seed of the random run; it is printed.
 */
#include "autoconf.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "client/heap/arena.h"
#include "common/bounds.h"
#include "tests/tap.h"
#include "tests/unit/heap/heap_world.h"

#define MIB       (UINT64_C(1) << 20)
#define UNIT      UINT64_C(256)
#define RESERVE   (UINT64_C(1) << 30)
#define CAPACITY  (160 * MIB)
#define LIVE_MAX  400
#define LIVE_MARK UINT32_C(0x80000000)
#define STREAMS   4
#define THREADS   4

struct block {
	uint8_t *ptr;
	uint64_t size;
	int stream;  /* -1: any */
	bool listed; /* alone: it was found, and has a cookie */
};

/* A free: on which stream, and what had been launched. */
struct record {
	int stream; /* -1: any, -2: nothing used it any more */
	uint64_t launched[STREAMS];
};

struct model {
	struct world world;
	struct gm_arena *arena;
	pthread_mutex_t lock; /* of what follows; taken before the world's */
	uint32_t *units;      /* per unit: 0, a record, or LIVE_MARK */
	struct record *records;
	uint32_t n_records, max_records;
	uint64_t in_use, peak, active, allocs;
	bool threads;
};

static struct model m;

static void model_fail(const char *what)
{
	fprintf(stderr, "model: %s\n", what);
	abort();
}

/* Whether what was launched before a free is over, for a stream; -1: for any, or for the driver.
 * World's lock. */
static bool over(const struct record *record, int stream)
{
	for (int i = 0; m.world.ops.record && i < STREAMS; i++) {
		if (record->stream == -2 || (record->stream >= 0 && record->stream != i))
			continue;
		if (m.world.done[i] >= record->launched[i] || i == stream)
			continue;
		if (stream >= 0 && m.world.behind[stream][i] >= record->launched[i])
			continue;
		return false;
	}
	return true;
}

static uint64_t unit_of(uint64_t addr)
{
	return (addr - m.world.base) / UNIT;
}

/* World's lock is held; the model's may not be waited for, because its owner may wait for that. The
 * units of a chunk on its way out are nobody else's to write, if the arena is right. */
static void leaving(struct world *world, uint64_t addr, uint64_t bytes)
{
	for (uint64_t u = unit_of(addr); u < unit_of(addr + bytes); u++) {
		uint32_t value = __atomic_load_n(&m.units[u], __ATOMIC_RELAXED);
		if (value & LIVE_MARK)
			model_fail("a live block's chunk leaves");
		if (value && !over(&m.records[value], -1))
			model_fail("a chunk leaves while the device may use it");
		__atomic_store_n(&m.units[u], 0, __ATOMIC_RELAXED);
	}
}

static void note_alloc(struct block *block, uint64_t alignment)
{
	uint64_t addr = (uintptr_t)block->ptr;

	if (addr % alignment || addr % UNIT)
		model_fail("alignment");
	pthread_mutex_lock(&m.lock);
	pthread_mutex_lock(&m.world.lock);
	for (uint64_t u = unit_of(addr); u < unit_of(addr + block->size + UNIT - 1); u++) {
		uint32_t value = __atomic_load_n(&m.units[u], __ATOMIC_RELAXED);
		if (value & LIVE_MARK)
			model_fail("blocks overlap");
		if (value && !over(&m.records[value], block->stream))
			model_fail("a block is handed out while another stream may use it");
		__atomic_store_n(&m.units[u], LIVE_MARK, __ATOMIC_RELAXED);
	}
	/* The program uses it. */
	m.world.launched[block->stream < 0 ? 0 : block->stream]++;
	pthread_mutex_unlock(&m.world.lock);
	m.in_use += block->size;
	m.active++;
	m.allocs++;
	if (m.in_use > m.peak)
		m.peak = m.in_use;
	pthread_mutex_unlock(&m.lock);
	/* The memory is there, and keeps what is written. */
	memcpy(block->ptr, &block->size, block->size < 8 ? block->size : 8);
	block->ptr[block->size - 1] = (uint8_t)block->size;
}

static void note_free(const struct block *block, int stream)
{
	uint64_t addr = (uintptr_t)block->ptr;
	struct record *record;
	uint32_t id;

	if (block->ptr[block->size - 1] != (uint8_t)block->size ||
		(block->size > 8 && memcmp(block->ptr, &block->size, 8)))
		model_fail("a block lost what was written");
	pthread_mutex_lock(&m.lock);
	pthread_mutex_lock(&m.world.lock);
	id = ++m.n_records;
	if (id >= m.max_records)
		model_fail("too few records");
	record = &m.records[id];
	record->stream = stream;
	memcpy(record->launched, m.world.launched, sizeof(record->launched));
	for (uint64_t u = unit_of(addr); u < unit_of(addr + block->size + UNIT - 1); u++)
		__atomic_store_n(&m.units[u], id, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&m.world.lock);
	m.in_use -= block->size;
	m.active--;
	pthread_mutex_unlock(&m.lock);
}

static uint64_t pick_size(unsigned *seed)
{
	uint64_t r = (uint64_t)rand_r(seed);

	switch (r % 16) {
	case 0:
		return 1 + (uint64_t)rand_r(seed) % (12 * MIB);
	case 1:
	case 2:
	case 3:
		return 1 + (uint64_t)rand_r(seed) % (2 * MIB);
	case 4:
	case 5:
	case 6:
	case 7:
		return 1 + (uint64_t)rand_r(seed) % 200000;
	case 8:
		return UNIT << ((uint64_t)rand_r(seed) % 12);
	default:
		return 1 + (uint64_t)rand_r(seed) % 33000;
	}
}

/* What a block is listed with, so that anybody can tell whether it is its own. */
static void tag_of(uint64_t size, char tag[GM_BOUND_NAME_BYTES + 1])
{
	snprintf(tag, GM_BOUND_NAME_BYTES + 1, "%llu", (unsigned long long)size);
}

static uint32_t cookie_of(const void *ptr, uint64_t size)
{
	return (uint32_t)(((uintptr_t)ptr >> 8) * 31 + size) | 1;
}

static bool do_alloc(unsigned *seed, struct block *block)
{
	uint64_t alignment = rand_r(seed) % 8 ? 0 : UINT64_C(1) << (rand_r(seed) % 24);
	unsigned flags = rand_r(seed) % 4 ? 0 : GM_ARENA_LISTED;
	char tag[GM_BOUND_NAME_BYTES + 1];
	gpumem_status status = GPUMEM_OK;
	void *ptr = NULL;
	uint64_t size;
	int r;

	block->size = pick_size(seed);
	block->stream = rand_r(seed) % (STREAMS + 1) - 1;
	block->listed = false;
	tag_of(block->size, tag);
	struct gm_heap_source_call call = {.tag = rand_r(seed) % 2 ? tag : NULL};
	r = gm_arena_alloc(m.arena, block->size, alignment,
		block->stream < 0 ? GPUMEM_STREAM_ANY : world_stream((unsigned)block->stream),
		flags, &call, &ptr, &status);
	if (r) {
		if (r == GM_ARENA_E_SOURCE && status == GPUMEM_OK)
			model_fail("a failure of the source without its status");
		if (r != GM_ARENA_E_SOURCE && r != GM_ARENA_E_SPACE && r != -EIO)
			model_fail("an outcome that cannot be");
		return false;
	}
	block->ptr = ptr;
	note_alloc(block, alignment > UNIT ? alignment : UNIT);
	if (gm_arena_size(m.arena, ptr, &size) != 0 || size != block->size)
		model_fail("a block does not know its size");
	return true;
}

static void do_free(unsigned *seed, const struct block *block)
{
	int how = rand_r(seed) % 4;
	int stream = block->stream;
	gpumem_stream s;
	uint32_t cookie = 1;

	if (how == 0) {
		/* Nothing uses it any more: the program waited for the device. */
		world_finish_all(&m.world);
		stream = -2;
		s = GPUMEM_STREAM_DONE;
	} else if (how == 1 || stream < 0) {
		stream = -1;
		s = GPUMEM_STREAM_ANY;
	} else {
		s = world_stream((unsigned)stream);
	}
	if (rand_r(seed) % 32 == 0 && block->size > 1) {
		/* A pointer that is none, first. */
		int r = gm_arena_dealloc(m.arena, block->ptr + 1, s, NULL);
		if (r != GM_ARENA_E_INSIDE)
			model_fail("the inside of a block can be freed");
	}
	note_free(block, stream);
	if (gm_arena_dealloc(m.arena, block->ptr, s, &cookie) != 0)
		model_fail("a live block cannot be freed");
	if (cookie && cookie != cookie_of(block->ptr, block->size))
		model_fail("a cookie is another block's");
	if (!m.threads && !cookie == block->listed)
		model_fail("a cookie is lost, or came from nowhere");
	if (!m.threads && rand_r(seed) % 32 == 0 &&
		gm_arena_dealloc(m.arena, block->ptr, s, NULL) != GM_ARENA_E_FREED)
		model_fail("a block can be freed twice");
}

/* Lists what is alive and was not listed yet. live: all blocks, if nobody else is at it. */
static void do_list(uint64_t min_bytes, struct block *live, unsigned n_live)
{
	static struct gm_arena_entry entries[GM_ARENA_ENTRIES];
	struct gm_arena_walk walk = {0};
	char tag[GM_BOUND_NAME_BYTES + 1];

	while (!walk.over) {
		size_t n = gm_arena_unlisted(m.arena, min_bytes, &walk, entries);
		for (size_t i = 0; i < n; i++) {
			struct gm_arena_entry *entry = &entries[i];
			unsigned k = 0;
			tag_of(entry->size, tag);
			if (entry->size < min_bytes || (entry->serial && strcmp(entry->tag, tag)) ||
				(!entry->serial && *entry->tag))
				model_fail("a block is listed as another");
			int r = gm_arena_set_cookie(
				m.arena, entry, cookie_of(entry->ptr, entry->size));
			if (r && r != GM_ARENA_E_FREED)
				model_fail("a cookie is refused");
			if (!live)
				continue;
			while (k < n_live && live[k].ptr != entry->ptr)
				k++;
			if (r || k == n_live || live[k].size != entry->size || live[k].listed)
				model_fail("a block is listed that is none, or a second time");
			live[k].listed = true;
			if (gm_arena_set_cookie(m.arena, entry, 1) != GM_ARENA_E_FREED)
				model_fail("a cookie is overwritten");
		}
	}
	for (unsigned k = 0; live && k < n_live; k++)
		if (live[k].size >= min_bytes && live[k].size > 32768 && !live[k].listed)
			model_fail("a block is alive and not listed");
}

/* The sums, with nobody else at it. */
static void check_sums(void)
{
	struct gm_arena_stats stats;

	gm_arena_stats(m.arena, &stats);
	if (stats.in_use != m.in_use || stats.active != m.active || stats.peak != m.peak)
		model_fail("in use, active or peak");
	if (stats.held != m.world.granted)
		model_fail("held is not what the source granted");
	if (stats.in_use + stats.cached + stats.slack != stats.held)
		model_fail("held is not in use, cached and slack");
	if (stats.rounding + stats.pending > stats.slack)
		model_fail("rounding and pending are not slack");
	if (stats.hits + stats.misses != m.allocs)
		model_fail("hits and misses");
}

static void model_init(bool streams, uint32_t max_records)
{
	memset(&m, 0, sizeof(m));
	world_init(&m.world, streams, CAPACITY);
	m.world.reserve_max = RESERVE;
	m.world.leaving = leaving;
	pthread_mutex_init(&m.lock, NULL);
	m.units = calloc(RESERVE / UNIT, sizeof(*m.units));
	m.max_records = max_records;
	m.records = calloc(max_records, sizeof(*m.records));
	ck_assert(m.units && m.records);
	m.arena = world_arena(&m.world, 1000);
}

static void model_deinit(void)
{
	struct gm_arena_stats stats;

	m.world.fail_unmap = m.world.fail_record = 0;
	world_finish_all(&m.world);
	gm_arena_trim(m.arena, UINT64_MAX);
	/* Nothing lives and nothing is under way: nothing may be kept. */
	gm_arena_stats(m.arena, &stats);
	ck_assert_uint_eq(stats.in_use, 0);
	ck_assert_uint_eq(stats.rounding, 0);
	ck_assert_uint_eq(stats.pending, 0);
	ck_assert_uint_eq(stats.held, 0);
	ck_assert_uint_eq(m.world.granted, 0);
	gm_arena_free(m.arena);
	world_deinit(&m.world);
	pthread_mutex_destroy(&m.lock);
	free(m.units);
	free(m.records);
}

static void make_trouble(unsigned *seed)
{
	struct world *w = &m.world;

	pthread_mutex_lock(&w->lock);
	switch (rand_r(seed) % 6) {
	case 0:
		w->fail_gets = 1 + (unsigned)rand_r(seed) % 2;
		break;
	case 1:
		w->fail_map = 1;
		break;
	case 2:
		w->fail_access = 1;
		break;
	case 3:
		w->fail_move = 1;
		break;
	case 4:
		w->fail_unmap = 1;
		break;
	default:
		w->fail_record = 1;
		break;
	}
	pthread_mutex_unlock(&w->lock);
}

static void housekeeping(unsigned *seed, uint64_t *now)
{
	switch (rand_r(seed) % 8) {
	case 0:
		gm_arena_trim(m.arena, UINT64_MAX);
		break;
	case 1:
		gm_arena_trim(m.arena, (uint64_t)rand_r(seed) % (8 * MIB));
		break;
	case 2:
		world_finish_all(&m.world);
		break;
	case 3:
		make_trouble(seed);
		break;
	case 4:
	case 5:
		world_finish(&m.world, (unsigned)rand_r(seed) % STREAMS);
		break;
	default:
		*now += (uint64_t)rand_r(seed) % 2000;
		if (gm_arena_tick(m.arena, *now) <= *now)
			model_fail("a tick wants to be called in the past");
		break;
	}
}

static void run_alone(unsigned seed, bool streams, unsigned steps)
{
	static struct block live[LIVE_MAX];
	uint64_t now = 1000;
	unsigned n = 0;

	printf("# seed %u\n", seed);
	fflush(stdout);
	model_init(streams, steps + LIVE_MAX + 2);
	/* A source that has no small chunks, or no large ones. */
	if (seed % 4 == 1)
		m.world.chunk_min = 8 * MIB;
	else if (seed % 4 == 2)
		m.world.chunk_most = 4 * MIB;
	for (unsigned step = 0; step < steps; step++) {
		unsigned r = (unsigned)rand_r(&seed) % 16;
		/* Phases of growing and of shrinking. */
		unsigned grow = step / 512 % 2 ? 5 : 10;
		if (r == 15) {
			housekeeping(&seed, &now);
		} else if (r < grow && n < LIVE_MAX) {
			if (do_alloc(&seed, &live[n]))
				n++;
		} else if (n) {
			unsigned i = (unsigned)rand_r(&seed) % n;
			do_free(&seed, &live[i]);
			live[i] = live[--n];
		}
		if (rand_r(&seed) % 64 == 0)
			do_list(rand_r(&seed) % 2 ? 0 : MIB, live, n);
		check_sums();
	}
	while (n)
		do_free(&seed, &live[--n]);
	check_sums();
	model_deinit();
}

START_TEST(random_use_by_one_thread_without_streams)
{
	run_alone(1000 + (unsigned)_i, false, 6000);
}
END_TEST

START_TEST(random_use_by_one_thread_with_streams)
{
	run_alone(2000 + (unsigned)_i, true, 6000);
}
END_TEST

START_TEST(random_use_with_another_seed_each_time)
{
	const char *text = getenv("GPUMEM_TEST_SEED");
	unsigned seed;

	if (text)
		seed = (unsigned)strtoul(text, NULL, 0);
	else
		ck_assert_int_eq(getrandom(&seed, sizeof(seed), 0), sizeof(seed));
	run_alone(seed, true, 6000);
}
END_TEST

/* ---- several threads; blocks go from thread to thread through the mailbox */

#define MAILBOX 64
static struct block *_Atomic mailbox[MAILBOX];

struct worker {
	unsigned seed, steps;
	pthread_t thread;
};

static void *work(void *ctx)
{
	struct worker *worker = ctx;
	struct block *live[64] = {0};

	for (unsigned step = 0; step < worker->steps; step++) {
		unsigned i = (unsigned)rand_r(&worker->seed) % 64;
		if (live[i] && rand_r(&worker->seed) % 2) {
			live[i] = atomic_exchange(
				&mailbox[(unsigned)rand_r(&worker->seed) % MAILBOX], live[i]);
		} else if (live[i]) {
			do_free(&worker->seed, live[i]);
			free(live[i]);
			live[i] = NULL;
		} else {
			live[i] = calloc(1, sizeof(*live[i]));
			if (!live[i])
				abort();
			if (!do_alloc(&worker->seed, live[i])) {
				free(live[i]);
				live[i] = NULL;
			}
		}
	}
	for (unsigned i = 0; i < 64; i++) {
		if (live[i])
			do_free(&worker->seed, live[i]);
		free(live[i]);
	}
	return NULL;
}

static _Atomic bool stop;

static void *keep_house(void *ctx)
{
	struct worker *worker = ctx;
	struct gm_arena_stats stats;
	uint64_t now = 1000;

	while (!atomic_load(&stop)) {
		housekeeping(&worker->seed, &now);
		do_list(0, NULL, 0);
		gm_arena_stats(m.arena, &stats);
		sched_yield();
	}
	return NULL;
}

START_TEST(random_use_by_several_threads)
{
	struct worker workers[THREADS + 1];
	unsigned seed = 3000 + (unsigned)_i;

	atomic_store(&stop, false);
	model_init(_i % 2, 100000);
	m.threads = true;
	for (unsigned i = 0; i <= THREADS; i++) {
		workers[i] = (struct worker){.seed = seed * 100 + i, .steps = 3000};
		ck_assert_int_eq(pthread_create(&workers[i].thread, NULL,
					 i == THREADS ? keep_house : work, &workers[i]),
			0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_join(workers[i].thread, NULL), 0);
	atomic_store(&stop, true);
	ck_assert_int_eq(pthread_join(workers[THREADS].thread, NULL), 0);
	for (unsigned i = 0; i < MAILBOX; i++) {
		struct block *block = atomic_exchange(&mailbox[i], NULL);
		if (block)
			do_free(&seed, block);
		free(block);
	}
	m.world.fail_gets = m.world.fail_map = 0;
	struct gm_arena_stats stats;
	gm_arena_stats(m.arena, &stats);
	ck_assert_uint_eq(stats.in_use, 0);
	ck_assert_uint_eq(stats.active, 0);
	ck_assert_uint_eq(stats.hits + stats.misses, m.allocs);
	model_deinit();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("heap_model");
	/* CK_RUN_CASE=random runs that one alone, for a seed to be looked into. */
	TCase *alone = tcase_create("alone"), *random = tcase_create("random");
	TCase *threads = tcase_create("threads");

	tcase_set_timeout(alone, 300);
	tcase_add_loop_test(alone, random_use_by_one_thread_without_streams, 0, 4);
	tcase_add_loop_test(alone, random_use_by_one_thread_with_streams, 0, 8);
	suite_add_tcase(suite, alone);
	tcase_set_timeout(random, 300);
	tcase_add_test(random, random_use_with_another_seed_each_time);
	suite_add_tcase(suite, random);
	tcase_set_timeout(threads, 300);
	tcase_add_loop_test(threads, random_use_by_several_threads, 0, 4);
	suite_add_tcase(suite, threads);
	return gm_tap_run(suite);
}
