/* SPDX-License-Identifier: Apache-2.0 */
/* What waits for the device: epochs, sets per stream, events in order. No backend: events are just
 * pointers here. */
#include "autoconf.h"

#include "client/heap/pending.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"

#define MIB  (UINT64_C(1) << 20)
#define BASE (UINT64_C(1) << 40)

static struct gm_heap_ptrmap map;
static struct gm_heap heap;
static struct gm_heap_bins clean;
static struct gm_small small;
static struct gm_pending pending;

static void setup(void)
{
	gm_heap_init(&heap);
	gm_heap_bins_init(&clean, false);
	ck_assert_int_eq(gm_heap_ptrmap_init(&map, BASE, 64 * MIB, 15), 0);
	ck_assert_int_eq(gm_heap_ptrmap_cover(&map, BASE, 64 * MIB), 0);
	gm_small_init(&small, &map);
	ck_assert_int_eq(gm_small_add(&small, BASE + 32 * MIB), 0);
	ck_assert_int_eq(gm_heap_add(&heap, BASE, 32 * MIB, &clean, 0, NULL), 0);
	ck_assert_int_eq(gm_pending_init(&pending), 0);
}

static void teardown(void)
{
	gm_pending_deinit(&pending);
	gm_small_deinit(&small);
	gm_heap_deinit(&heap);
	gm_heap_ptrmap_deinit(&map);
}

static struct gm_map_event *event(uintptr_t n)
{
	return (struct gm_map_event *)(n * 16);
}

static struct gm_heap_block *take(void)
{
	struct gm_heap_block *block = NULL;
	ck_assert_int_eq(gm_heap_alloc(&heap, &clean, MIB, 256, &block), 0);
	return block;
}

static void put(struct gm_heap_block *block, gm_stream_key key)
{
	gm_heap_release(
		&heap, block, &gm_pending_set(&pending, key)->bins, gm_pending_stamp(&pending));
}

static void put_small(gm_stream_key key)
{
	uint64_t object;
	ck_assert_uint_eq(gm_small_take(&small, 3, 1, &object), 1);
	gm_pending_put_small(&pending, gm_pending_set(&pending, key), &small, 3, object);
}

static bool record(uintptr_t n)
{
	uint64_t epoch;
	if (!gm_pending_record_begin(&pending, false, &epoch))
		return false;
	ck_assert_ptr_null(gm_pending_record_end(&pending, &small, epoch, n ? event(n) : NULL));
	return true;
}

/* Returns the event that gave way. */
static struct gm_map_event *replace(uintptr_t n)
{
	uint64_t epoch;
	ck_assert(gm_pending_record_begin(&pending, true, &epoch));
	return gm_pending_record_end(&pending, &small, epoch, n ? event(n) : NULL);
}

static uint64_t pass(unsigned n)
{
	struct gm_map_event *events[GM_PENDING_EVENTS];
	uint64_t epoch;
	unsigned of;
	ck_assert(gm_pending_poll_begin(&pending, events, &of));
	ck_assert_uint_le(n, of);
	gm_pending_poll_end(&pending, n, &epoch);
	return n ? gm_pending_settle(&pending, epoch, &heap, &clean, &small) : 0;
}

/* Everything comes free without another free, because events are recorded while they are needed. */
static void settle_rest(void)
{
	for (unsigned i = 0; i < 4; i++) {
		(void)record(1000 + i);
		if (pending.n_events)
			pass(pending.n_events);
	}
	ck_assert_uint_eq(gm_pending_bytes(&pending), 0);
	ck_assert(!record(1));
}

START_TEST(nothing_is_recorded_when_nothing_waits)
{
	ck_assert(!record(1));
	put(take(), 5);
	ck_assert(record(1));
	ck_assert(!record(2));
	put(take(), 6);
	ck_assert(record(2));
	ck_assert_uint_eq(pass(2), 2 * MIB);
	ck_assert(!record(3));
}
END_TEST

START_TEST(an_event_settles_its_epoch_and_those_before_and_nothing_later)
{
	struct gm_heap_block *blocks[3];

	for (unsigned i = 0; i < 3; i++) {
		blocks[i] = take();
		take();
	}
	put(blocks[0], 5);
	put_small(5);
	ck_assert(record(1));
	put(blocks[1], GM_STREAM_ANY);
	put_small(GM_STREAM_ANY);
	ck_assert(record(2));
	put(blocks[2], 5);
	put_small(GM_STREAM_DEFAULT);
	ck_assert_uint_eq(gm_pending_bytes(&pending), 3 * (MIB + 1024));
	ck_assert_uint_eq(pass(1), MIB + 1024);
	ck_assert_uint_eq(pass(0), 0);
	ck_assert_uint_eq(pass(1), MIB + 1024);
	ck_assert_uint_eq(gm_pending_bytes(&pending), MIB + 1024);
	ck_assert(record(3));
	ck_assert_uint_eq(pass(1), MIB + 1024);
	ck_assert_uint_eq(gm_pending_bytes(&pending), 0);
}
END_TEST

START_TEST(a_block_that_grew_by_a_later_free_waits_for_the_later_event)
{
	struct gm_heap_block *a = take(), *b = take();

	take();
	put(a, 5);
	ck_assert(record(1));
	put(b, 5); /* joins with a */
	ck_assert_uint_eq(pass(1), 0);
	ck_assert(record(2));
	ck_assert_uint_eq(pass(1), 2 * MIB);
}
END_TEST

START_TEST(events_are_bounded_and_one_at_a_time)
{
	uint64_t epoch, other;
	struct gm_map_event *events[GM_PENDING_EVENTS];
	unsigned n;

	put_small(5);
	ck_assert(gm_pending_record_begin(&pending, false, &epoch));
	put_small(5);
	ck_assert(!gm_pending_record_begin(&pending, false, &other));
	gm_pending_record_end(&pending, &small, epoch, event(1));
	ck_assert(gm_pending_poll_begin(&pending, events, &n));
	ck_assert(!gm_pending_poll_begin(&pending, events, &n));
	gm_pending_poll_end(&pending, 0, &epoch);
	for (unsigned i = 1; i < GM_PENDING_EVENTS; i++) {
		put_small(5);
		ck_assert(record(i + 1));
	}
	put_small(5);
	ck_assert(!record(100));
	ck_assert_uint_eq(pass(GM_PENDING_EVENTS), (GM_PENDING_EVENTS + 1) * 1024);
	ck_assert(record(100));
	ck_assert(gm_pending_poll_begin(&pending, events, &n));
	ck_assert_uint_eq(n, 1);
	ck_assert_ptr_eq(events[0], event(100));
}
END_TEST

START_TEST(the_newest_event_gives_way_to_one_that_was_recorded)
{
	for (unsigned i = 0; i < GM_PENDING_EVENTS; i++) {
		put_small(5);
		ck_assert_ptr_null(replace(i + 1));
	}
	for (unsigned i = 0; i < 3 * GM_PENDING_LISTS; i++) {
		put_small(5);
		ck_assert(!record(100));
		/* If recording fails, nothing has changed. */
		ck_assert_ptr_null(replace(0));
		ck_assert_uint_eq(pending.n_events, GM_PENDING_EVENTS);
		ck_assert_ptr_eq(replace(GM_PENDING_EVENTS + 1 + i), event(GM_PENDING_EVENTS + i));
	}
	settle_rest();
}
END_TEST

/* Other objects of an epoch come into its lists if the oldest event does not pass for many epochs. */
START_TEST(objects_are_not_forgotten_behind_failed_recordings)
{
	put_small(5);
	ck_assert(record(1));
	for (int i = 0; i < _i; i++) {
		put_small(5);
		ck_assert(record(0));
	}
	put_small(5);
	ck_assert(record(2));
	pass(2);
	settle_rest();
}
END_TEST

/* Frees objects, records, fails to record, replaces and passes in any order. */
START_TEST(no_object_is_free_too_early_nor_never)
{
	unsigned put = 0, settled = 0, covered[GM_PENDING_EVENTS];
	unsigned seed = (unsigned)_i;

	for (unsigned i = 0; i < 2000; i++) {
		unsigned what = (unsigned)rand_r(&seed) % 16, n = pending.n_events;

		if (what < 5 && put - settled < 500) {
			put_small(5 + what % 3);
			put++;
		} else if (what < 10 && record(what < 8 ? 1 : 0) && what < 8) {
			covered[n] = put;
		} else if (what < 14 && pending.open && (replace(what < 13 ? 2 : 0), what < 13)) {
			covered[n == GM_PENDING_EVENTS ? n - 1 : n] = put;
		} else if (what >= 14 && n && rand_r(&seed) % 4 == 0) {
			unsigned passed = 1 + (unsigned)rand_r(&seed) % n;

			settled += (unsigned)(pass(passed) / 1024);
			ck_assert_uint_le(settled, covered[passed - 1]);
			memmove(covered, covered + passed, (n - passed) * sizeof(covered[0]));
		}
		ck_assert_uint_eq(gm_pending_bytes(&pending), (put - settled) * 1024);
		ck_assert(put == settled || pending.n_events || pending.open);
	}
	settle_rest();
}
END_TEST

START_TEST(any_number_of_failed_recordings_loses_nothing)
{
	unsigned n = 0;

	for (unsigned i = 0; i < 3 * GM_PENDING_LISTS; i++) {
		put_small(5);
		n++;
		ck_assert(record(0));
	}
	ck_assert(record(1));
	ck_assert_uint_eq(pass(1), n * 1024);
	ck_assert_uint_eq(gm_pending_bytes(&pending), 0);
}
END_TEST

START_TEST(objects_do_not_wait_for_later_events_however_many_are_replaced)
{
	for (unsigned i = 1; i <= GM_PENDING_EVENTS; i++) {
		put_small(5);
		ck_assert(record(i));
	}
	for (unsigned i = 0; i < 100; i++) {
		put_small(6);
		ck_assert_ptr_eq(replace(GM_PENDING_EVENTS + 1 + i), event(GM_PENDING_EVENTS + i));
	}
	for (unsigned i = 1; i < GM_PENDING_EVENTS; i++)
		ck_assert_uint_eq(pass(1), 1024);
	ck_assert_uint_eq(pass(1), 101 * 1024);
	ck_assert_uint_eq(gm_pending_bytes(&pending), 0);
}
END_TEST

START_TEST(a_stream_takes_back_its_own_objects_of_any_epoch)
{
	struct gm_pending_set *set;
	unsigned n = 0;

	for (unsigned i = 0; i < 5; i++) {
		put_small(5);
		put_small(6);
		ck_assert(record(i + 1));
	}
	ck_assert_ptr_null(gm_pending_own(&pending, 7));
	ck_assert_ptr_null(gm_pending_own(&pending, GM_STREAM_ANY));
	set = gm_pending_own(&pending, 5);
	ck_assert_uint_eq(gm_pending_take_small(&pending, set, &small, 2), 0);
	while (gm_pending_take_small(&pending, set, &small, 3))
		n++;
	ck_assert_uint_eq(n, 5);
	ck_assert_uint_eq(set->small_bytes, 0);
	ck_assert_uint_eq(pass(5), 5 * 1024);
}
END_TEST

START_TEST(too_many_streams_share_the_set_for_any)
{
	struct gm_pending_set *any = gm_pending_set(&pending, GM_STREAM_ANY), *set;

	for (unsigned i = 0; i < GM_PENDING_SETS - 1; i++) {
		uint64_t object;
		ck_assert_uint_eq(gm_small_take(&small, 3, 1, &object), 1);
		set = gm_pending_set(&pending, 100 + i);
		ck_assert_ptr_ne(set, any);
		gm_pending_put_small(&pending, set, &small, 3, object);
	}
	ck_assert_ptr_eq(gm_pending_set(&pending, 999), any);
	ck_assert_ptr_null(gm_pending_gather(&pending, 999, 0, &heap, &small));
	/* A set that is empty is free for another stream. */
	ck_assert(record(1));
	pass(1);
	ck_assert_ptr_ne(gm_pending_set(&pending, 999), any);
}
END_TEST

START_TEST(gathering_makes_everything_before_the_event_the_streams_own)
{
	struct gm_heap_block *a = take(), *b = take(), *c = take();
	struct gm_pending_set *set;

	take();
	put(a, 5);
	put_small(GM_STREAM_ANY);
	put(b, 6);
	ck_assert(record(1));
	put(c, 6); /* after the event, and it joins with b */
	set = gm_pending_gather(&pending, 7, pending.events[0].epoch, &heap, &small);
	ck_assert_ptr_nonnull(set);
	ck_assert_uint_eq(set->bins.bytes, MIB);
	ck_assert_uint_eq(set->small_bytes, 1024);
	ck_assert_uint_eq(gm_pending_own(&pending, 6)->bins.bytes, 2 * MIB);
	/* For the others it waits for an event after the gathering. */
	ck_assert_uint_eq(pass(1), 0);
	ck_assert(record(2));
	ck_assert_uint_eq(pass(1), 3 * MIB + 1024);
}
END_TEST

static int no_id(void *backend, gpumem_stream stream, uint64_t *ret_id)
{
	if (backend)
		*ret_id = *(uint64_t *)backend;
	return backend ? 0 : -EINVAL;
}

START_TEST(a_stream_that_cannot_be_told_apart_counts_as_any)
{
	struct gm_map_ops ops = {.stream_id = no_id};
	uint64_t id = 17;

	ck_assert_uint_eq(gm_pending_key(&ops, NULL, &id), GM_STREAM_ANY);
	ck_assert_uint_eq(gm_pending_key(&ops, &id, &id), 17);
	ck_assert_uint_eq(gm_pending_key(&ops, NULL, NULL), GM_STREAM_DEFAULT);
	ck_assert_uint_eq(gm_pending_key(&ops, NULL, GPUMEM_STREAM_ANY), GM_STREAM_ANY);
	ck_assert_uint_eq(gm_pending_key(&ops, NULL, GPUMEM_STREAM_DONE), GM_STREAM_DONE);
	id = GM_STREAM_DEFAULT;
	ck_assert_uint_eq(gm_pending_key(&ops, &id, &id), GM_STREAM_ANY);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("pending");
	TCase *tcase = tcase_create("pending");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, nothing_is_recorded_when_nothing_waits);
	tcase_add_test(tcase, an_event_settles_its_epoch_and_those_before_and_nothing_later);
	tcase_add_test(tcase, a_block_that_grew_by_a_later_free_waits_for_the_later_event);
	tcase_add_test(tcase, events_are_bounded_and_one_at_a_time);
	tcase_add_test(tcase, the_newest_event_gives_way_to_one_that_was_recorded);
	tcase_add_loop_test(
		tcase, objects_are_not_forgotten_behind_failed_recordings, 0, 2 * GM_PENDING_LISTS);
	tcase_add_loop_test(tcase, no_object_is_free_too_early_nor_never, 0, 20);
	tcase_add_test(tcase, any_number_of_failed_recordings_loses_nothing);
	tcase_add_test(tcase, objects_do_not_wait_for_later_events_however_many_are_replaced);
	tcase_add_test(tcase, a_stream_takes_back_its_own_objects_of_any_epoch);
	tcase_add_test(tcase, too_many_streams_share_the_set_for_any);
	tcase_add_test(tcase, gathering_makes_everything_before_the_event_the_streams_own);
	tcase_add_test(tcase, a_stream_that_cannot_be_told_apart_counts_as_any);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
