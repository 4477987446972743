/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/books/pool.c: who may take what, who makes room for whom, and what it does without memory.
 */
#include <errno.h>
#include <string.h>

#include "daemon/books/pool.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"
#include "tests/unit/failing_malloc.h"

static struct gm_pool pool;
static struct gm_chunk chunks[256];
static size_t n_chunks;
static struct gm_chunk *released[512];
static size_t n_released;
static uint64_t now;

static void release(void *ctx, struct gm_chunk *chunk)
{
	chunk->state = GM_CHUNK_DOOMED;
	released[n_released++] = chunk;
}

static void setup(void)
{
	memset(chunks, 0, sizeof(chunks));
	n_chunks = n_released = 0;
	now = 1000;
	gm_pool_init(&pool, release, NULL);
}

static void teardown(void)
{
	gm_pool_clear(&pool);
	gm_pool_deinit(&pool);
}

static struct gm_chunk *make(uint64_t bytes, gm_domain domain)
{
	struct gm_chunk *chunk = &chunks[n_chunks++];
	chunk->id = n_chunks;
	chunk->bytes = bytes;
	chunk->domain = domain;
	chunk->transport = GM_TRANSPORT_FD;
	chunk->state = GM_CHUNK_LEASED;
	return chunk;
}

static struct gm_chunk *put(uint64_t bytes, gm_domain domain)
{
	struct gm_chunk *chunk = make(bytes, domain);
	ck_assert_int_eq(gm_pool_put(&pool, chunk, now++), 0);
	return chunk;
}

static struct gm_chunk *take(uint64_t bytes, gm_domain domain)
{
	struct gm_chunk *chunk = gm_pool_take(&pool, GM_TRANSPORT_FD, bytes, domain);
	if (chunk)
		chunk->state = GM_CHUNK_LEASED;
	return chunk;
}

START_TEST(a_domain_takes_its_own_before_fresh_ones_and_never_anothers)
{
	struct gm_chunk *fresh = put(2 * MiB, GM_DOMAIN_FRESH);
	struct gm_chunk *own = put(2 * MiB, 7);
	put(2 * MiB, 8);
	ck_assert_uint_eq(gm_pool_count(&pool, GM_TRANSPORT_FD, 2 * MiB, 7), 2);
	ck_assert_ptr_eq(take(2 * MiB, 7), own);
	ck_assert_ptr_eq(take(2 * MiB, 7), fresh);
	ck_assert_ptr_null(take(2 * MiB, 7));
	ck_assert_uint_eq(gm_pool_count(&pool, GM_TRANSPORT_FD, 2 * MiB, 7), 0);
	ck_assert_uint_eq(pool.chunks, 1);
	ck_assert_uint_eq(pool.hits, 2);
}
END_TEST

START_TEST(size_and_transport_must_match)
{
	put(4 * MiB, 7);
	ck_assert_ptr_null(take(2 * MiB, 7));
	ck_assert_ptr_null(gm_pool_take(&pool, GM_TRANSPORT_IPC, 4 * MiB, 7));
	ck_assert_ptr_nonnull(take(4 * MiB, 7));
}
END_TEST

START_TEST(what_came_last_is_taken_first)
{
	struct gm_chunk *first = put(2 * MiB, 7), *second = put(2 * MiB, 7);
	ck_assert_ptr_eq(take(2 * MiB, 7), second);
	ck_assert_ptr_eq(take(2 * MiB, 7), first);
}
END_TEST

START_TEST(other_domains_make_room_first_longest_unused_first_and_fresh_ones_last)
{
	struct gm_chunk *fresh = put(2 * MiB, GM_DOMAIN_FRESH);
	struct gm_chunk *a1 = put(2 * MiB, 1), *b1 = put(2 * MiB, 2), *c1 = put(2 * MiB, 3);
	struct gm_chunk *c2 = put(2 * MiB, 3), *a2 = put(2 * MiB, 1);
	/* Used last: 2, 3, 1. 2 is spared. 3 and 1 have more than the average, until each has lost a chunk. */
	struct gm_chunk *order[] = {c1, a1, c2, a2, b1, fresh};
	for (size_t i = 0; i < 6; i++) {
		ck_assert(gm_pool_evict(&pool, 2));
		ck_assert_ptr_eq(released[i], order[i]);
	}
	ck_assert(!gm_pool_evict(&pool, 2));
	ck_assert_uint_eq(pool.released, 6);
}
END_TEST

START_TEST(shrinking_stops_when_enough_is_gone)
{
	put(2 * MiB, 1);
	put(4 * MiB, 1);
	put(8 * MiB, 1);
	ck_assert_uint_eq(gm_pool_shrink(&pool, 0, 0), 0);
	ck_assert_uint_eq(gm_pool_shrink(&pool, 3 * MiB, 0), 6 * MiB);
	ck_assert_uint_eq(pool.bytes, 8 * MiB);
	ck_assert_uint_eq(gm_pool_shrink(&pool, UINT64_MAX, 0), 8 * MiB);
	ck_assert_uint_eq(pool.peak, 14 * MiB);
}
END_TEST

START_TEST(a_full_pool_parts_with_what_is_oldest)
{
	gm_pool_set_bounds(&pool, 8 * MiB, 0);
	struct gm_chunk *old = put(4 * MiB, 1);
	put(2 * MiB, 1);
	put(2 * MiB, 2);
	put(2 * MiB, 2);
	ck_assert_uint_eq(n_released, 1);
	ck_assert_ptr_eq(released[0], old);
	ck_assert_uint_eq(pool.bytes, 6 * MiB);
	ck_assert_int_eq(gm_pool_put(&pool, make(16 * MiB, 1), now), GM_POOL_E_FULL);
	ck_assert_uint_eq(pool.bytes, 6 * MiB);
}
END_TEST

START_TEST(a_domain_with_more_than_the_average_makes_room_itself)
{
	gm_pool_set_bounds(&pool, 16 * MiB, 0);
	put(2 * MiB, GM_DOMAIN_FRESH);
	struct gm_chunk *theirs = put(4 * MiB, 1);
	for (int i = 0; i < 50; i++)
		put(2 * MiB, 2);
	ck_assert_uint_eq(pool.bytes, 16 * MiB);
	for (size_t i = 0; i < n_released; i++)
		ck_assert_uint_eq(released[i]->domain, 2);

	/* Not in one large chunk either. */
	ck_assert_int_eq(gm_pool_put(&pool, make(12 * MiB, 2), now), GM_POOL_E_FULL);
	ck_assert_ptr_eq(take(4 * MiB, 1), theirs);
	ck_assert_int_eq(gm_pool_put(&pool, make(8 * MiB, 2), now), 0);
	ck_assert_uint_le(pool.bytes, 16 * MiB);
}
END_TEST

/* Takes what there is, or makes it, and returns it. true: it was there. */
static bool use(uint64_t bytes, gm_domain domain, unsigned n)
{
	struct gm_chunk *used[4];
	bool there = true;

	for (unsigned i = 0; i < n; i++) {
		used[i] = take(bytes, domain);
		there = there && used[i];
	}
	for (unsigned i = 0; i < n; i++) {
		if (!used[i])
			used[i] = make(bytes, domain);
		used[i]->domain = domain;
		(void)gm_pool_put(&pool, used[i], now++);
	}
	return there;
}

START_TEST(one_that_has_a_lot_makes_room_for_all_who_have_less)
{
	gm_pool_set_bounds(&pool, 64 * MiB, 0);
	for (int i = 0; i < 32; i++)
		put(2 * MiB, 1);
	for (int round = 0; round < 20; round++) {
		for (gm_domain d = 2; d < 6; d++) {
			ck_assert(use(2 * MiB, d, 4) || round == 0);
			(void)use(2 * MiB, 1, 1);
		}
	}
}
END_TEST

START_TEST(a_newcomer_finds_room_beside_one_that_has_a_lot)
{
	gm_pool_set_bounds(&pool, 256 * MiB, 0);
	for (gm_domain d = 3; d < 8; d++)
		put(2 * MiB, d);
	for (int i = 0; i < 125; i++)
		put(2 * MiB, 1);
	put(64 * MiB, 2);
	for (size_t i = 0; i < n_released; i++)
		ck_assert_uint_eq(released[i]->domain, 1);
}
END_TEST

START_TEST(a_domain_is_spared_only_while_it_has_no_more_than_the_average)
{
	struct gm_chunk *theirs = put(2 * MiB, 1), *mine[4];
	for (int i = 0; i < 4; i++)
		mine[i] = put(2 * MiB, 2);
	/* When both have the same, others go first. */
	struct gm_chunk *order[] = {mine[0], mine[1], mine[2], theirs, mine[3]};
	for (size_t i = 0; i < 5; i++) {
		ck_assert(gm_pool_evict(&pool, 2));
		ck_assert_ptr_eq(released[i], order[i]);
	}
}
END_TEST

START_TEST(what_a_domain_has_not_used_for_long_goes_first)
{
	gm_pool_set_bounds(&pool, 8 * MiB, 0);
	struct gm_chunk *theirs = put(2 * MiB, 1);
	for (int i = 0; i < 3; i++)
		put(2 * MiB, 2);
	now += GM_POOL_UNUSED_NS;
	put(2 * MiB, 2);
	ck_assert_uint_eq(n_released, 1);
	ck_assert_ptr_eq(released[0], theirs);
}
END_TEST

START_TEST(used_chunks_never_push_out_fresh_ones)
{
	gm_pool_set_bounds(&pool, 8 * MiB, 0);
	put(4 * MiB, GM_DOMAIN_FRESH);
	put(2 * MiB, GM_DOMAIN_FRESH);
	put(2 * MiB, 1);
	ck_assert_int_eq(gm_pool_put(&pool, make(4 * MiB, 1), now), GM_POOL_E_FULL);
	ck_assert_uint_eq(pool.bytes, 8 * MiB);
	/* A fresh one pushes out a used one. */
	put(2 * MiB, GM_DOMAIN_FRESH);
	ck_assert_uint_eq(n_released, 1);
	ck_assert_uint_eq(released[0]->domain, 1);
}
END_TEST

START_TEST(a_bucket_holds_no_more_than_its_bound)
{
	gm_pool_set_bounds(&pool, UINT64_MAX, 2);
	put(2 * MiB, 1);
	put(2 * MiB, 1);
	ck_assert_int_eq(gm_pool_put(&pool, make(2 * MiB, 1), now), GM_POOL_E_FULL);
	put(2 * MiB, 2);
	put(4 * MiB, 1);
	ck_assert_uint_eq(pool.chunks, 4);
}
END_TEST

START_TEST(new_bounds_release_what_is_past_them)
{
	for (int i = 0; i < 5; i++) {
		put(2 * MiB, 1);
		put(4 * MiB, 2);
	}
	gm_pool_set_bounds(&pool, UINT64_MAX, 2);
	ck_assert_uint_eq(pool.bytes, 12 * MiB);
	/* The oldest went. */
	ck_assert_ptr_eq(released[0], &chunks[0]);
	gm_pool_set_bounds(&pool, 5 * MiB, 0);
	ck_assert_uint_le(pool.bytes, 5 * MiB);
	gm_pool_set_bounds(&pool, 0, 0);
	ck_assert_uint_eq(pool.bytes, 0);
	ck_assert_uint_eq(n_released, 10);
}
END_TEST

START_TEST(clearing_what_was_used_keeps_what_is_fresh)
{
	put(2 * MiB, 1);
	put(2 * MiB, GM_DOMAIN_FRESH);
	put(2 * MiB, 2);
	gm_pool_clear_used(&pool);
	ck_assert_uint_eq(pool.chunks, 1);
	ck_assert_uint_eq(gm_pool_count(&pool, GM_TRANSPORT_FD, 2 * MiB, GM_DOMAIN_FRESH), 1);
	ck_assert_uint_eq(gm_pool_clear(&pool), 2 * MiB);
}
END_TEST

START_TEST(domains_that_come_and_go_are_forgotten)
{
	for (gm_domain d = 1; d < 200; d++) {
		struct gm_chunk *chunk = &chunks[0];
		chunk->bytes = 2 * MiB;
		chunk->domain = d;
		chunk->transport = GM_TRANSPORT_FD;
		chunk->state = GM_CHUNK_LEASED;
		ck_assert_int_eq(gm_pool_put(&pool, chunk, now), 0);
		ck_assert_ptr_eq(take(2 * MiB, d), chunk);
		ck_assert_uint_le(pool.n_idle, GM_POOL_IDLE_DOMAINS);
	}
	/* The one used last is still known: no memory is needed for its next chunk. */
	chunks[0].domain = 199;
	failing_malloc_arm(1);
	int r = gm_pool_put(&pool, &chunks[0], now);
	ck_assert(!failing_malloc_fired());
	ck_assert_int_eq(r, 0);
}
END_TEST

START_TEST(without_memory_a_chunk_stays_with_whoever_puts_it)
{
	/* One after the other: a domain, its table, a bucket and its table; an empty pool each
	 * time. */
	int failures = 0;
	for (uint64_t n = 1;; n++) {
		gm_pool_deinit(&pool);
		gm_pool_init(&pool, release, NULL);
		struct gm_chunk *chunk = make(2 * MiB, 5);
		failing_malloc_arm(n);
		int r = gm_pool_put(&pool, chunk, now);
		if (!failing_malloc_fired()) {
			ck_assert_int_eq(r, 0);
			break;
		}
		failures++;
		ck_assert_int_eq(r, -ENOMEM);
		ck_assert_int_eq(chunk->state, GM_CHUNK_LEASED);
		ck_assert_uint_eq(pool.bytes, 0);
		ck_assert_ptr_null(take(2 * MiB, 5));
	}
	ck_assert_int_ge(failures, 6);
}
END_TEST

static void add_up(void *ctx, const struct gm_pool_bucket_info *bucket)
{
	struct gm_pool_bucket_info *sum = ctx;
	sum->chunks += bucket->chunks;
	if (bucket->domain == 1)
		sum->oldest_ns = bucket->oldest_ns;
}

START_TEST(buckets_are_listed_with_the_age_of_their_oldest)
{
	struct gm_pool_bucket_info sum = {0};
	put(2 * MiB, 1);
	put(2 * MiB, 1);
	put(4 * MiB, 2);
	take(4 * MiB, 2);
	gm_pool_each(&pool, 1500, add_up, &sum);
	ck_assert_uint_eq(sum.chunks, 2);
	ck_assert_uint_eq(sum.oldest_ns, 500);
}
END_TEST

/* By domain. */
static void note_decay(void *ctx, const struct gm_pool_bucket_info *bucket)
{
	uint64_t *left = ctx;
	left[bucket->domain] = bucket->decay_ns;
}

START_TEST(buckets_are_listed_with_the_time_until_a_chunk_decays)
{
	static const uint32_t reserve[GM_CHUNK_CLASSES] = {1};
	uint64_t left[3] = {0};
	gm_pool_set_reserve(&pool, reserve);
	put(2 * MiB, GM_DOMAIN_FRESH);
	put(2 * MiB, 1);
	put(2 * MiB, 1);
	gm_pool_each(&pool, 1500, note_decay, left);
	ck_assert_uint_eq(left[1], UINT64_MAX);

	pool.decay_ns = 1000;
	gm_pool_each(&pool, 1500, note_decay, left);
	ck_assert_uint_eq(left[GM_DOMAIN_FRESH], UINT64_MAX);
	ck_assert_uint_eq(left[1], 501);
	ck_assert_uint_eq(gm_pool_decay_due(&pool), 2001);

	/* One more than the reserve: that one decays. */
	put(2 * MiB, GM_DOMAIN_FRESH);
	gm_pool_each(&pool, 1500, note_decay, left);
	ck_assert_uint_eq(left[GM_DOMAIN_FRESH], 503);
	/* Late is not before the time. */
	gm_pool_each(&pool, 5000, note_decay, left);
	ck_assert_uint_eq(left[GM_DOMAIN_FRESH], 0);
}
END_TEST

START_TEST(decay_keeps_as_many_fresh_chunks_as_the_reserve_has_whichever_went_before)
{
	static const uint32_t reserve[GM_CHUNK_CLASSES] = {2};
	gm_pool_set_reserve(&pool, reserve);
	pool.decay_ns = 10;
	for (int i = 0; i < 4; i++)
		put(2 * MiB, GM_DOMAIN_FRESH);
	/* Room is needed: the oldest goes, which was of the reserve. */
	ck_assert(gm_pool_evict(&pool, 1));
	ck_assert_uint_eq(gm_pool_decay(&pool, 5000, 8, UINT64_MAX), 1);
	ck_assert_uint_eq(pool.chunks, 2);
	ck_assert_uint_eq(gm_pool_decay_due(&pool), UINT64_MAX);

	/* A larger size has no reserve. */
	put(4 * MiB, GM_DOMAIN_FRESH);
	ck_assert_uint_eq(gm_pool_decay(&pool, 5000, 8, UINT64_MAX), 1);
	/* A smaller reserve counts at once. */
	gm_pool_set_reserve(&pool, (const uint32_t[GM_CHUNK_CLASSES]){1});
	ck_assert_uint_eq(pool.chunks, 1);
}
END_TEST

START_TEST(decay_stops_at_its_bounds)
{
	pool.decay_ns = 10;
	for (gm_domain d = 1; d <= 6; d++)
		put(2 * MiB, d);
	ck_assert_uint_eq(gm_pool_decay(&pool, 5000, 2, UINT64_MAX), 2);
	ck_assert_ptr_eq(released[0], &chunks[0]);
	ck_assert_ptr_eq(released[1], &chunks[1]);
	ck_assert_uint_eq(gm_pool_decay(&pool, 5000, 8, 3 * MiB), 2);
	ck_assert_uint_eq(gm_pool_decay(&pool, 1013, 8, UINT64_MAX), 0);
	ck_assert_uint_eq(gm_pool_decay(&pool, 1014, 8, UINT64_MAX), 1);
	ck_assert_uint_eq(pool.chunks, 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pool");
	TCase *tcase = tcase_create("pool");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_domain_takes_its_own_before_fresh_ones_and_never_anothers);
	tcase_add_test(tcase, size_and_transport_must_match);
	tcase_add_test(tcase, what_came_last_is_taken_first);
	tcase_add_test(
		tcase, other_domains_make_room_first_longest_unused_first_and_fresh_ones_last);
	tcase_add_test(tcase, shrinking_stops_when_enough_is_gone);
	tcase_add_test(tcase, a_full_pool_parts_with_what_is_oldest);
	tcase_add_test(tcase, a_domain_with_more_than_the_average_makes_room_itself);
	tcase_add_test(tcase, one_that_has_a_lot_makes_room_for_all_who_have_less);
	tcase_add_test(tcase, a_newcomer_finds_room_beside_one_that_has_a_lot);
	tcase_add_test(tcase, a_domain_is_spared_only_while_it_has_no_more_than_the_average);
	tcase_add_test(tcase, what_a_domain_has_not_used_for_long_goes_first);
	tcase_add_test(tcase, used_chunks_never_push_out_fresh_ones);
	tcase_add_test(tcase, a_bucket_holds_no_more_than_its_bound);
	tcase_add_test(tcase, new_bounds_release_what_is_past_them);
	tcase_add_test(tcase, clearing_what_was_used_keeps_what_is_fresh);
	tcase_add_test(tcase, domains_that_come_and_go_are_forgotten);
	tcase_add_test(tcase, without_memory_a_chunk_stays_with_whoever_puts_it);
	tcase_add_test(tcase, buckets_are_listed_with_the_age_of_their_oldest);
	tcase_add_test(tcase, buckets_are_listed_with_the_time_until_a_chunk_decays);
	tcase_add_test(
		tcase, decay_keeps_as_many_fresh_chunks_as_the_reserve_has_whichever_went_before);
	tcase_add_test(tcase, decay_stops_at_its_bounds);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
