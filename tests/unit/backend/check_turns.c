/* SPDX-License-Identifier: Apache-2.0 */

/* The order of a device's jobs. */

#include <stdlib.h>
#include <string.h>

#include "daemon/backend/turns.h"
#include "tests/tap.h"
#include "tests/unit/failing_malloc.h"

static struct gm_turns turns;
static struct gm_chunk chunks[64];

static void add(size_t i, uid_t uid, uint64_t session, bool destroy)
{
	chunks[i].id = i;
	chunks[i].payer_uid = uid;
	chunks[i].job.turn = session;
	chunks[i].job.destroy = destroy;
	gm_turns_add(&turns, &chunks[i]);
}

static struct gm_chunk *take(void)
{
	struct gm_chunk *chunk = gm_turns_next(&turns);
	if (chunk)
		gm_turns_remove(&turns, chunk);
	return chunk;
}

static void expect(const size_t *order, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct gm_chunk *chunk = take();
		ck_assert_ptr_nonnull(chunk);
		ck_assert_uint_eq(chunk->id, order[i]);
	}
}

#define EXPECT(...) \
	expect((const size_t[]){__VA_ARGS__}, \
		sizeof((const size_t[]){__VA_ARGS__}) / sizeof(size_t))

static void teardown(void)
{
	ck_assert_ptr_null(gm_turns_next(&turns));
	ck_assert_ptr_null(turns.users);
	ck_assert_ptr_null(turns.circle);
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
	/* A user who comes later waits for one job of each of the others. */
	add(22, 1002, 8, false);
	EXPECT(4, 14, 22, 5, 6);
}
END_TEST

START_TEST(a_job_that_is_not_through_keeps_its_place)
{
	add(1, 1000, 1, true);
	add(2, 1000, 1, true);
	add(11, 1001, 2, true);
	chunks[12].after_doomed = true;
	add(12, 1001, 2, false);
	ck_assert_ptr_eq(gm_turns_next(&turns), &chunks[1]);
	EXPECT(11);
	ck_assert_ptr_eq(gm_turns_next(&turns), &chunks[1]);
	/* The creation waits for it, so it is the next one on that user's turn, too. */
	ck_assert_ptr_eq(gm_turns_next(&turns), &chunks[1]);
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
	/* On its turn the oldest destruction is done instead. */
	EXPECT(1, 2, 3, 11, 12);
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
	gm_turns_remove(&turns, &chunks[1]);
	gm_turns_remove(&turns, &chunks[3]);
	gm_turns_remove(&turns, &chunks[11]);
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
		gm_turns_remove(&turns, &chunks[2]);
		EXPECT(1);
		teardown();
	} while (fired);
	ck_assert_uint_gt(n, 2);

	failing_malloc_arm(1);
	add(3, 1000, 1, true);
	failing_malloc_arm(0);
	gm_turns_remove(&turns, &chunks[3]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("turns");
	TCase *tests = tcase_create("turns");

	tcase_add_checked_fixture(tests, NULL, teardown);
	tcase_add_test(tests, a_job_that_is_not_through_keeps_its_place);
	tcase_add_test(tests, users_take_turns_whatever_they_want);
	tcase_add_test(tests, the_sessions_of_a_user_take_turns);
	tcase_add_test(tests, a_users_destructions_come_before_its_creations);
	tcase_add_test(tests, a_creation_that_needs_room_waits_for_what_was_doomed_before_it);
	tcase_add_test(tests, a_creation_that_needs_no_room_does_not_wait);
	tcase_add_test(tests, a_job_that_is_removed_leaves_the_others_as_they_were);
	tcase_add_test(tests, without_memory_no_job_is_lost);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
