/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/queue/queue_deadlock.c, through the core: when everybody waits for everybody, and when not. */
#include <string.h>

#include "daemon/device/limit.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"

#define SECOND  UINT64_C(1000000000)
#define FOREVER GM_WAIT_FOREVER
#define AFTER   GM_QUEUE_DEADLOCK_NS

static struct fake_core fake;
static uint32_t d;
static char detail[GM_DETAIL_BYTES];
static struct gm_session *a, *b, *c;

/* 16 GiB, no levels, nobody can be asked. */
static void setup(void)
{
	struct gm_core_device_info info = fake_info(16 * GiB);
	fake_no_levels(&info.policy);
	fake_core_init(&fake);
	d = fake_core_add(&fake, &info);
	a = fake_session(&fake, 1, 1);
	b = fake_session(&fake, 2, 2);
	c = fake_session(&fake, 3, 3);
}

static void teardown(void)
{
	fake_core_deinit(&fake);
}

static void prefer(uid_t uid, int32_t priority)
{
	struct gm_owner o;
	struct gm_limit_values v = {.set = GM_LIMIT_PRIORITY, .priority = priority};
	gm_owner_by_id(GM_OWNER_UID, uid, &o);
	ck_assert_int_eq(gm_core_set_limit(fake.core, &o, GM_ALL_DEVICES, &v, detail), GPUMEM_OK);
}

static void limit(uid_t uid, uint64_t max, uint64_t guarantee)
{
	struct gm_owner o;
	struct gm_limit_values v = {
		.set = GM_LIMIT_MAX | GM_LIMIT_GUARANTEE, .max = max, .guarantee = guarantee};
	gm_owner_by_id(GM_OWNER_UID, uid, &o);
	ck_assert_int_eq(gm_core_set_limit(fake.core, &o, GM_ALL_DEVICES, &v, detail), GPUMEM_OK);
}

/* Almost long enough, so that the next nanosecond decides. */
static void pass_almost(void)
{
	fake_pass(&fake, AFTER - 1);
}

START_TEST(two_that_hold_half_and_wait_for_more_are_told_so_after_a_time)
{
	struct gm_lease *first = fake_lease(&fake, a, d, 8 * GiB);
	fake_lease(&fake, b, d, 8 * GiB);
	static struct fake_request q, r;
	fake_wait(&fake, &q, a, d, 4 * GiB, FOREVER);
	fake_pass(&fake, SECOND);
	fake_wait(&fake, &r, b, d, 4 * GiB, FOREVER);
	pass_almost();
	ck_assert(!q.ended && !r.ended);
	fake_pass(&fake, 1);
	/* The later one of equals. */
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_int_eq(r.status, GPUMEM_E_DEADLOCK);
	ck_assert_ptr_nonnull(strstr(r.detail,
		"everybody who holds memory waits for more, and nobody returned any for 10s; free "
		"some: device 0 has 0B available"));
	gm_session_end_died(b);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	gm_lease_return(a, first);
}
END_TEST

START_TEST(a_request_with_a_deadline_waits_until_then_whoever_else_waits)
{
	fake_lease(&fake, a, d, 16 * GiB);
	static struct fake_request q, r;
	fake_wait(&fake, &q, a, d, 4 * GiB, 10 * AFTER);
	fake_wait(&fake, &r, a, d, 4 * GiB, 20 * AFTER);
	fake_pass(&fake, 10 * AFTER - 1);
	ck_assert(!q.ended && !r.ended);
	fake_pass(&fake, 1);
	ck_assert_int_eq(q.status, GPUMEM_E_TIMEOUT);
	fake_pass(&fake, 10 * AFTER);
	ck_assert_int_eq(r.status, GPUMEM_E_TIMEOUT);
}
END_TEST

START_TEST(another_thread_of_the_client_that_waits_can_free_what_it_waits_for)
{
	struct gm_lease *lease = fake_lease(&fake, a, d, 16 * GiB);
	static struct fake_request q, r;
	fake_wait(&fake, &q, a, d, 4 * GiB, FOREVER);
	fake_wait(&fake, &r, a, d, 4 * GiB, SECOND);
	pass_almost();
	ck_assert_uint_eq(q.ended, 0);
	gm_lease_return(a, lease);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	ck_assert_int_eq(r.status, GPUMEM_E_TIMEOUT);
}
END_TEST

START_TEST(whatever_is_returned_starts_the_time_again)
{
	struct gm_lease *small = fake_lease(&fake, a, d, 4 * MiB);
	struct gm_lease *last = fake_lease(&fake, b, d, 2 * MiB);
	fake_lease(&fake, a, d, 8 * GiB);
	fake_lease(&fake, b, d, 7 * GiB);
	static struct fake_request q, r;
	fake_wait(&fake, &q, a, d, 4 * GiB, FOREVER);
	fake_wait(&fake, &r, b, d, 4 * GiB, FOREVER);
	pass_almost();
	uint64_t chunk = gm_lease_chunk(small, 0)->id;
	ck_assert_int_eq(gm_lease_return_chunks(a, small, &chunk, 1), GPUMEM_OK);
	pass_almost();
	gm_lease_return(b, last);
	pass_almost();
	ck_assert(!q.ended && !r.ended);
	fake_pass(&fake, 1);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_int_eq(r.status, GPUMEM_E_DEADLOCK);
}
END_TEST

START_TEST(a_holder_whose_wait_has_a_deadline_will_move)
{
	fake_lease(&fake, a, d, 8 * GiB);
	fake_lease(&fake, b, d, 8 * GiB);
	static struct fake_request q, r, again;
	fake_wait(&fake, &q, a, d, 4 * GiB, FOREVER);
	fake_wait(&fake, &r, b, d, 4 * GiB, 10 * AFTER);
	fake_pass(&fake, 10 * AFTER);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_int_eq(r.status, GPUMEM_E_TIMEOUT);
	/* From when the last of them waits without end. */
	fake_pass(&fake, AFTER / 2);
	fake_wait(&fake, &again, b, d, 4 * GiB, FOREVER);
	pass_almost();
	ck_assert(!q.ended && !again.ended);
	fake_pass(&fake, 1);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_int_eq(again.status, GPUMEM_E_DEADLOCK);
}
END_TEST

START_TEST(of_a_deadlock_the_lowest_priority_is_refused)
{
	prefer(2, 5);
	fake_lease(&fake, a, d, 8 * GiB);
	fake_lease(&fake, b, d, 8 * GiB);
	static struct fake_request q[2], r;
	fake_wait(&fake, &q[0], a, d, 4 * GiB, FOREVER);
	fake_wait(&fake, &q[1], a, d, 4 * GiB, FOREVER);
	fake_wait(&fake, &r, b, d, 4 * GiB, FOREVER);
	fake_pass(&fake, AFTER);
	/* One per tick, and all of them: with one of two still waiting, it would not move either. */
	fake_finish_slices(&fake, d);
	ck_assert_int_eq(q[0].status, GPUMEM_E_DEADLOCK);
	ck_assert_int_eq(q[1].status, GPUMEM_E_DEADLOCK);
	ck_assert_uint_eq(r.ended, 0);
}
END_TEST

START_TEST(it_is_no_deadlock_while_somebody_could_return_something)
{
	struct gm_lease *lease = fake_lease(&fake, a, d, 4 * GiB);
	fake_lease(&fake, b, d, 6 * GiB);
	fake_lease(&fake, c, d, 6 * GiB);
	static struct fake_request q, r;
	fake_wait(&fake, &q, b, d, 5 * GiB, FOREVER);
	fake_wait(&fake, &r, c, d, 5 * GiB, FOREVER);
	fake_pass(&fake, 3 * AFTER);
	ck_assert(!q.ended && !r.ended);
	/* One off the socket may come back, or end. */
	gm_session_quarantine(a);
	fake_pass(&fake, 3 * AFTER);
	ck_assert(!q.ended && !r.ended);
	gm_session_end_died(a);
	(void)lease;
	pass_almost();
	ck_assert(!q.ended && !r.ended);
	fake_pass(&fake, 1);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_int_eq(r.status, GPUMEM_E_DEADLOCK);
}
END_TEST

START_TEST(who_waits_for_a_foreign_program_is_not_in_a_deadlock)
{
	fake_lease(&fake, a, d, 8 * GiB);
	gm_core_sample(fake.core, d, 0);
	static struct fake_request q;
	fake_wait(&fake, &q, a, d, 4 * GiB, FOREVER);
	fake_pass(&fake, 3 * AFTER);
	ck_assert_uint_eq(q.ended, 0);
	gm_core_sample(fake.core, d, 8 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

START_TEST(clients_of_one_owner_can_deadlock_under_its_limit)
{
	struct gm_session *twin = fake_session(&fake, 2, 2);
	limit(2, 4 * GiB, 0);
	struct gm_lease *others = fake_lease(&fake, a, d, 2 * GiB);
	fake_lease(&fake, b, d, 2 * GiB);
	fake_lease(&fake, twin, d, 2 * GiB);
	static struct fake_request q, r;
	fake_wait(&fake, &q, b, d, GiB, FOREVER);
	fake_wait(&fake, &r, twin, d, GiB, FOREVER);
	pass_almost();
	ck_assert(!q.ended && !r.ended);
	/* What somebody returns who does not count for the limit helps them nothing. */
	gm_lease_return(a, others);
	fake_pass(&fake, 1);
	ck_assert_int_eq(r.status, GPUMEM_E_DEADLOCK);
	ck_assert_ptr_nonnull(strstr(r.detail, "user 2 may hold 4.0G"));
	gm_session_end_died(twin);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

START_TEST(a_new_limit_and_a_new_policy_start_the_time_again)
{
	struct gm_policy policy = fake_figures(&fake, d).policy;
	struct gm_session *twin = fake_session(&fake, 2, 2);
	limit(2, 4 * GiB, 0);
	fake_lease(&fake, b, d, 2 * GiB);
	fake_lease(&fake, twin, d, 2 * GiB);
	static struct fake_request q, r;
	fake_wait(&fake, &q, b, d, 2 * GiB, FOREVER);
	fake_wait(&fake, &r, twin, d, 2 * GiB, FOREVER);
	pass_almost();
	limit(2, 5 * GiB, 0);
	pass_almost();
	ck_assert(!q.ended && !r.ended);
	policy.deadlock_ns = SECOND;
	ck_assert_int_eq(gm_core_configure(fake.core, &policy, NULL, 0, detail), GPUMEM_OK);
	fake_pass(&fake, SECOND - 1);
	ck_assert(!q.ended && !r.ended);
	fake_pass(&fake, 1);
	ck_assert_int_eq(r.status, GPUMEM_E_DEADLOCK);
	ck_assert_ptr_nonnull(strstr(r.detail, "nobody returned any for 1s"));
}
END_TEST

START_TEST(while_nobody_waits_without_end_nothing_is_due_for_a_deadlock)
{
	struct gm_lease *lease = fake_lease(&fake, a, d, 16 * GiB);
	static struct fake_request q, r;
	fake_wait(&fake, &q, b, d, 4 * GiB, 100 * AFTER);
	fake_wait(&fake, &r, b, d, 4 * GiB, FOREVER);
	gm_core_cancel(fake.core, &r.r);
	gm_lease_return(a, lease);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	ck_assert_uint_eq(gm_core_tick(fake.core), UINT64_MAX);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("deadlock");
	TCase *tcase = tcase_create("deadlock");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, two_that_hold_half_and_wait_for_more_are_told_so_after_a_time);
	tcase_add_test(tcase, a_request_with_a_deadline_waits_until_then_whoever_else_waits);
	tcase_add_test(tcase, another_thread_of_the_client_that_waits_can_free_what_it_waits_for);
	tcase_add_test(tcase, whatever_is_returned_starts_the_time_again);
	tcase_add_test(tcase, a_holder_whose_wait_has_a_deadline_will_move);
	tcase_add_test(tcase, of_a_deadlock_the_lowest_priority_is_refused);
	tcase_add_test(tcase, it_is_no_deadlock_while_somebody_could_return_something);
	tcase_add_test(tcase, who_waits_for_a_foreign_program_is_not_in_a_deadlock);
	tcase_add_test(tcase, clients_of_one_owner_can_deadlock_under_its_limit);
	tcase_add_test(tcase, a_new_limit_and_a_new_policy_start_the_time_again);
	tcase_add_test(tcase, while_nobody_waits_without_end_nothing_is_due_for_a_deadlock);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
