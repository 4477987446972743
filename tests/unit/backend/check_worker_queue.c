/* SPDX-License-Identifier: Apache-2.0 */

/* The order of a device's jobs. */

#include <stdlib.h>
#include <string.h>

#include "daemon/backend/worker_queue.h"
#include "tests/tap.h"
#include "tests/unit/failing_malloc.h"

static struct gm_worker_queue turns;
static struct gm_chunk chunks[64];

static void add(size_t i, uid_t uid, uint64_t session, bool destroy)
{
	chunks[i].id = i;
	chunks[i].payer_uid = uid;
	chunks[i].job.turn = session;
	chunks[i].job.destroy = destroy;
	gm_worker_queue_add(&turns, &chunks[i]);
}

/* Does the next job, which takes ns. */
static struct gm_chunk *take_for(uint64_t ns)
{
	struct gm_chunk *chunk = gm_worker_queue_next(&turns);
	if (chunk) {
		gm_worker_queue_remove(&turns, chunk);
		gm_worker_queue_charge(&turns, chunk->payer_uid, ns);
	}
	return chunk;
}

/* Does a part of this job. */
static void expect_part(size_t i)
{
	ck_assert_ptr_eq(gm_worker_queue_next(&turns), &chunks[i]);
	gm_worker_queue_charge(&turns, chunks[i].payer_uid, 10);
}

static void expect(const size_t *order, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct gm_chunk *chunk = take_for(10);
		ck_assert_ptr_nonnull(chunk);
		ck_assert_uint_eq(chunk->id, order[i]);
	}
}

#define EXPECT(...) \
	expect((const size_t[]){__VA_ARGS__}, \
		sizeof((const size_t[]){__VA_ARGS__}) / sizeof(size_t))

static void teardown(void)
{
	ck_assert_ptr_null(gm_worker_queue_next(&turns));
	ck_assert_ptr_null(turns.users);
	ck_assert_ptr_null(turns.queue);
	ck_assert_ptr_null(turns.idle);
	ck_assert_ptr_null(turns.destroys);
	ck_assert_ptr_null(turns.orphans);
}

START_TEST(users_take_turns_whatever_they_want)
{
	for (size_t i = 1; i <= 6; i++)
		add(i, 1000, i, false); /* a session each */
	for (size_t i = 11; i <= 14; i++)
		add(i, 1001, 7, true);
	add(21, 1002, 8, false);
	EXPECT(1, 11, 21, 2, 12, 3, 13);
	EXPECT(4, 14, 5, 6);
}
END_TEST

START_TEST(a_user_who_comes_later_waits_for_the_job_that_goes_on)
{
	for (size_t uid = 0; uid < 4; uid++)
		for (size_t i = 0; i < 3; i++)
			add(10 * uid + i + 1, 1000 + (uid_t)uid, uid + 1, false);
	for (uint64_t ns = 10; ns < 14; ns++)
		take_for(ns);

	struct gm_chunk *going_on = gm_worker_queue_next(&turns);
	ck_assert_ptr_eq(going_on, &chunks[2]);
	gm_worker_queue_remove(&turns, going_on);
	add(51, 1005, 9, false);
	gm_worker_queue_charge(&turns, going_on->payer_uid, 10);
	EXPECT(51, 12, 22, 32, 3, 13, 23, 33);
}
END_TEST

START_TEST(users_get_the_same_time_with_short_and_long_jobs)
{
	uint64_t ns[2] = {0, 0};
	for (size_t i = 1; i <= 30; i++) {
		add(i, 1000, 1, false);
		add(30 + i, 1001, 2, false);
	}
	for (size_t i = 0; i < 33; i++) {
		bool is_long = gm_worker_queue_next(&turns)->payer_uid == 1000;
		take_for(is_long ? 100 : 10);
		ns[is_long] += is_long ? 100 : 10;
	}
	ck_assert_uint_eq(ns[true], 300);
	ck_assert_uint_eq(ns[false], 300);
	while (take_for(10))
		;
}
END_TEST

START_TEST(a_user_with_a_job_now_and_then_has_no_more_time_than_others)
{
	size_t next = 10, jobs = 0;
	for (size_t i = 1; i <= 8; i++)
		add(i, 1001, 2, false);
	/* User 1000 has a job whenever it is asked for one, and never two. */
	add(next++, 1000, 1, false);
	for (size_t i = 0; i < 8; i++) {
		struct gm_chunk *chunk =
			take_for(gm_worker_queue_next(&turns)->payer_uid == 1000 ? 40 : 10);
		if (chunk->payer_uid == 1000) {
			jobs++;
			add(next++, 1000, 1, false);
		}
	}
	ck_assert_uint_eq(jobs, 2);
	while (take_for(10))
		;
}
END_TEST

START_TEST(nobody_saves_up_time)
{
	add(1, 1000, 1, false);
	EXPECT(1);
	for (size_t i = 11; i <= 16; i++)
		add(i, 1001, 2, false);
	EXPECT(11, 12, 13);
	/* User 1000 was idle in between. */
	for (size_t i = 2; i <= 4; i++)
		add(i, 1000, 1, false);
	EXPECT(2, 14, 3, 15, 4, 16);
}
END_TEST

START_TEST(a_job_that_is_not_through_keeps_its_place)
{
	add(1, 1000, 1, true);
	add(2, 1000, 1, true);
	add(11, 1001, 2, true);
	chunks[12].after_doomed = true;
	add(12, 1001, 2, false);
	expect_part(1);
	EXPECT(11);
	expect_part(1);
	/* The creation waits for the destruction, which is also the next job on that user's turn. */
	expect_part(1);
	EXPECT(1, 2, 12);
	chunks[12].after_doomed = false;
}
END_TEST

START_TEST(the_sessions_of_a_user_take_turns)
{
	for (size_t i = 1; i <= 3; i++)
		add(i, 1000, 1, false);
	add(4, 1000, 2, false);
	add(5, 1000, 2, false);
	EXPECT(1, 4, 2, 5, 3);
}
END_TEST

START_TEST(a_users_destructions_come_before_its_creations)
{
	add(1, 1000, 1, false);
	add(2, 1000, 1, true);
	add(3, 1000, 1, true);
	EXPECT(2, 3, 1);
}
END_TEST

START_TEST(a_creation_that_needs_room_waits_for_what_was_doomed_before_it)
{
	add(1, 1000, 1, true);
	add(2, 1000, 1, true);
	chunks[11].after_doomed = true;
	add(11, 1001, 2, false);
	add(12, 1001, 2, false);
	add(3, 1000, 1, true); /* after it: it does not wait for this */
	/* On its turn the oldest destruction is done instead, and user 1000 pays for it. */
	EXPECT(1, 2, 11, 12, 3);
}
END_TEST

START_TEST(a_creation_that_needs_no_room_does_not_wait)
{
	for (size_t i = 1; i <= 5; i++)
		add(i, 1000, 1, true);
	add(11, 1001, 2, false);
	EXPECT(1, 11, 2, 3, 4, 5);
}
END_TEST

START_TEST(a_job_that_is_removed_leaves_the_others_as_they_were)
{
	for (size_t i = 1; i <= 4; i++)
		add(i, 1000, 1, false);
	add(11, 1001, 2, false);
	ck_assert(chunks[11].job.waits);
	gm_worker_queue_remove(&turns, &chunks[1]);
	gm_worker_queue_remove(&turns, &chunks[3]);
	gm_worker_queue_remove(&turns, &chunks[11]);
	ck_assert(!chunks[11].job.waits);
	EXPECT(2, 4);
}
END_TEST

START_TEST(without_memory_no_job_is_lost)
{
	bool fired;
	uint64_t n = 0;

	do {
		failing_malloc_arm(++n);
		add(1, 1000, 1, false);
		fired = failing_malloc_fired();
		failing_malloc_arm(0);
		add(2, 1000, 1, true);
		gm_worker_queue_remove(&turns, &chunks[2]);
		EXPECT(1);
		teardown();
	} while (fired);
	ck_assert_uint_gt(n, 2);

	failing_malloc_arm(1);
	add(3, 1000, 1, true);
	failing_malloc_arm(0);
	gm_worker_queue_remove(&turns, &chunks[3]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("turns");
	TCase *tests = tcase_create("turns");

	tcase_add_checked_fixture(tests, NULL, teardown);
	tcase_add_test(tests, a_job_that_is_not_through_keeps_its_place);
	tcase_add_test(tests, users_take_turns_whatever_they_want);
	tcase_add_test(tests, a_user_who_comes_later_waits_for_the_job_that_goes_on);
	tcase_add_test(tests, users_get_the_same_time_with_short_and_long_jobs);
	tcase_add_test(tests, a_user_with_a_job_now_and_then_has_no_more_time_than_others);
	tcase_add_test(tests, nobody_saves_up_time);
	tcase_add_test(tests, the_sessions_of_a_user_take_turns);
	tcase_add_test(tests, a_users_destructions_come_before_its_creations);
	tcase_add_test(tests, a_creation_that_needs_room_waits_for_what_was_doomed_before_it);
	tcase_add_test(tests, a_creation_that_needs_no_room_does_not_wait);
	tcase_add_test(tests, a_job_that_is_removed_leaves_the_others_as_they_were);
	tcase_add_test(tests, without_memory_no_job_is_lost);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
