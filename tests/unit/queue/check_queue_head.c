/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/queue/queue_head.c, through the core: what fits is served, and a large request that is overtaken
 * may hold others back for a while, if what is coming covers it. */
#include "daemon/device/limit.h"
#include "daemon/queue/queue.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"

#define SECOND UINT64_C(1000000000)
#define MS     UINT64_C(1000000)

static struct fake_core fake;
static uint32_t d;
static struct gm_session *a, *b, *c;
static struct gm_lease *held;
static struct fake_request large, small;

/* 16 GiB without levels. a holds 14 GiB. Clients have long enough to answer. */
static void setup(void)
{
	struct gm_core_device_info info = fake_info(16 * GiB);
	fake_no_levels(&info.policy);
	info.policy.reclaim_ns = 3600 * SECOND;
	fake_core_init_asking(&fake);
	d = fake_core_add(&fake, &info);
	a = fake_session(&fake, 1, 1);
	b = fake_session(&fake, 2, 2);
	c = fake_session(&fake, 3, 3);
	held = fake_lease(&fake, a, d, 14 * GiB);
}

static void teardown(void)
{
	fake_core_deinit(&fake);
}

static void set(uid_t uid, const struct gm_limit_values *values)
{
	struct gm_owner o;
	char detail[GM_DETAIL_BYTES];
	gm_owner_by_id(GM_OWNER_UID, uid, &o);
	ck_assert_int_eq(
		gm_core_set_limit(fake.core, &o, GM_ALL_DEVICES, values, detail), GPUMEM_OK);
}

/* c is granted so many small leases, and returns them. */
static void overtake(unsigned times)
{
	for (unsigned i = 0; i < times; i++)
		gm_lease_return(c, fake_lease(&fake, c, d, 2 * MiB));
}

/* A request of c is held back now. */
static void expect_held_back(const struct fake_request *by)
{
	ck_assert_ptr_eq(fake_queue_holder(&fake, d), &by->r);
	fake_wait(&fake, &small, c, d, 2 * MiB, GM_WAIT_FOREVER);
	ck_assert_uint_eq(small.ended, 0);
	ck_assert_int_eq(small.r.waiting.ask.block, GM_BLOCK_OVERTAKEN);
}

/* a was asked for what large lacks, about 6 GiB, when large began to hold others back. a returns 4 GiB of that in time. That is
 * more than half, so core counts on what a claims to have still, but asks nobody before the next round. */
static void return_most(void)
{
	uint64_t ids[4];
	ck_assert_uint_ge(fake_asked(&fake, a)->bytes, 6 * GiB);
	for (uint32_t i = 0; i < 4; i++)
		ids[i] = gm_lease_chunk(held, i)->id;
	ck_assert_int_eq(gm_lease_return_chunks(a, held, ids, 4), GPUMEM_OK);
	fake_says(&fake, a, d, 10 * GiB, 0);
	fake_pass(&fake, 50 * MS);
	fake_core_run(&fake);
	ck_assert(!fake_reclaims(&fake, d, GM_RECLAIM_TRIGGER_REQUEST));
}

static void expect_served(void)
{
	fake_core_run(&fake);
	ck_assert_ptr_null(fake_queue_holder(&fake, d));
	ck_assert_uint_eq(small.ended, 1);
	ck_assert_int_eq(small.status, GPUMEM_OK);
	gm_lease_return(c, small.r.lease);
}

START_TEST(what_fits_is_served_whoever_waits_for_more)
{
	fake_wait(&fake, &large, b, d, 8 * GiB, GM_WAIT_FOREVER);
	overtake(100);
	ck_assert_uint_eq(large.ended, 0);
	ck_assert_uint_eq(large.r.waiting.overtaken, 100);
	ck_assert_ptr_null(fake_queue_holder(&fake, d));
}
END_TEST

START_TEST(a_request_holds_others_back_when_it_was_overtaken_often_and_its_memory_is_coming)
{
	fake_says(&fake, a, d, 14 * GiB, 0);
	fake_wait(&fake, &large, b, d, 8 * GiB, GM_WAIT_FOREVER);
	overtake(GM_QUEUE_HEAD_OVERTAKES);
	expect_held_back(&large);
	gm_lease_return(a, held);
	fake_core_run(&fake);
	ck_assert_int_eq(large.status, GPUMEM_OK);
	ck_assert_uint_eq(large.ended, 1);
	expect_served();
}
END_TEST

START_TEST(when_it_is_gone_the_others_go_on)
{
	fake_says(&fake, a, d, 14 * GiB, 0);
	fake_wait(&fake, &large, b, d, 8 * GiB, GM_WAIT_FOREVER);
	overtake(GM_QUEUE_HEAD_OVERTAKES);
	expect_held_back(&large);
	gm_core_cancel(fake.core, &large.r);
	expect_served();
}
END_TEST

START_TEST(a_higher_priority_is_not_held_back)
{
	fake_says(&fake, a, d, 14 * GiB, 0);
	fake_wait(&fake, &large, b, d, 8 * GiB, GM_WAIT_FOREVER);
	overtake(GM_QUEUE_HEAD_OVERTAKES);
	expect_held_back(&large);
	set(3, &(struct gm_limit_values){.set = GM_LIMIT_PRIORITY, .priority = 1});
	fake_core_run(&fake);
	ck_assert_int_eq(small.status, GPUMEM_OK);
	ck_assert_ptr_eq(fake_queue_holder(&fake, d), &large.r);
}
END_TEST

START_TEST(what_is_guaranteed_to_an_owner_is_not_held_back)
{
	set(3, &(struct gm_limit_values){.set = GM_LIMIT_GUARANTEE, .guarantee = GiB});
	fake_says(&fake, a, d, 14 * GiB, 0);
	fake_wait(&fake, &large, b, d, 8 * GiB, GM_WAIT_FOREVER);
	overtake(GM_QUEUE_HEAD_OVERTAKES);
	ck_assert_ptr_eq(fake_queue_holder(&fake, d), &large.r);
	fake_lease(&fake, c, d, GiB);
	/* Beyond that it is like any other. */
	expect_held_back(&large);
}
END_TEST

START_TEST(what_a_guarantee_keeps_does_not_cover_it)
{
	set(1, &(struct gm_limit_values){.set = GM_LIMIT_GUARANTEE, .guarantee = 10 * GiB});
	fake_says(&fake, a, d, 14 * GiB, 0);
	/* 2 GiB are free, and 4 of a's 14 GiB could help others. */
	fake_wait(&fake, &large, b, d, 6 * GiB - 2 * MiB, GM_WAIT_FOREVER);
	overtake(GM_QUEUE_HEAD_OVERTAKES);
	ck_assert_ptr_eq(fake_queue_holder(&fake, d), &large.r);
	gm_core_cancel(fake.core, &large.r);
	/* Now 1 GiB is free. */
	fake_lease(&fake, c, d, GiB);
	fake_wait(&fake, &large, b, d, 6 * GiB - 2 * MiB, GM_WAIT_FOREVER);
	overtake(2 * GM_QUEUE_HEAD_OVERTAKES);
	ck_assert_ptr_null(fake_queue_holder(&fake, d));
}
END_TEST

/* It could return that memory without being asked. */
START_TEST(what_its_own_user_claims_covers_it_against_that_user_alone)
{
	struct gm_session *other_of_a = fake_session(&fake, 1, 1);
	static struct fake_request own;
	fake_says(&fake, a, d, 14 * GiB, 0);
	fake_wait(&fake, &large, other_of_a, d, 8 * GiB, GM_WAIT_FOREVER);
	overtake(2 * GM_QUEUE_HEAD_OVERTAKES);
	ck_assert_uint_eq(large.ended, 0);
	ck_assert_ptr_eq(fake_queue_holder(&fake, d), &large.r);
	fake_wait(&fake, &own, a, d, 2 * MiB, GM_WAIT_FOREVER);
	ck_assert_int_eq(own.r.waiting.ask.block, GM_BLOCK_OVERTAKEN);

	/* Another user is served still. */
	fake_lease(&fake, b, d, 2 * MiB);
	gm_core_cancel(fake.core, &large.r);
	fake_core_run(&fake);
	ck_assert_uint_eq(own.ended, 1);
}
END_TEST

START_TEST(it_ends_when_the_memory_is_in_use_again)
{
	fake_says(&fake, a, d, 14 * GiB, 0);
	fake_wait(&fake, &large, b, d, 8 * GiB, GM_WAIT_FOREVER);
	overtake(GM_QUEUE_HEAD_OVERTAKES);
	expect_held_back(&large);
	fake_says(&fake, a, d, GiB, 0);
	fake_pass(&fake, 100 * MS);
	expect_served();
	ck_assert_uint_eq(large.ended, 0);
}
END_TEST

START_TEST(a_client_that_let_a_deadline_pass_is_not_believed)
{
	struct gm_policy policy = fake_figures(&fake, d).policy;
	policy.reclaim_ns = 200 * MS;
	gm_core_set_policy(fake.core, d, &policy);
	fake_says(&fake, a, d, 14 * GiB, 0);
	fake_wait(&fake, &large, b, d, 8 * GiB, GM_WAIT_FOREVER);
	overtake(GM_QUEUE_HEAD_OVERTAKES);
	expect_held_back(&large);
	fake_pass(&fake, 300 * MS);
	expect_served();
	overtake(3 * GM_QUEUE_HEAD_OVERTAKES);
	fake_pass(&fake, 100 * SECOND);
	overtake(1);
	ck_assert_ptr_null(fake_queue_holder(&fake, d));
}
END_TEST

START_TEST(whatever_clients_claim_it_ends_after_ten_seconds_and_the_user_rests)
{
	static struct fake_request next, others;
	struct gm_session *twin = fake_session(&fake, 2, 2), *e = fake_session(&fake, 5, 5);
	fake_says(&fake, a, d, 14 * GiB, 0);
	fake_wait(&fake, &large, b, d, 8 * GiB, GM_WAIT_FOREVER);
	fake_wait(&fake, &next, twin, d, 8 * GiB, GM_WAIT_FOREVER);
	overtake(GM_QUEUE_HEAD_OVERTAKES);
	expect_held_back(&large);
	fake_pass(&fake, GM_QUEUE_HEAD_HOLD_NS - 1);
	ck_assert_uint_eq(small.ended, 0);
	fake_pass(&fake, 1);
	expect_served();

	/* Neither it nor another request of the uid does so again, also if the first one goes. */
	overtake(3 * GM_QUEUE_HEAD_OVERTAKES);
	gm_core_cancel(fake.core, &large.r);
	overtake(3 * GM_QUEUE_HEAD_OVERTAKES);
	fake_pass(&fake, GM_QUEUE_HEAD_HOLD_NS - SECOND);
	overtake(1);
	ck_assert_ptr_null(fake_queue_holder(&fake, d));

	/* Another uid may, once the others were served for as long as they were held back. */
	fake_wait(&fake, &others, e, d, 8 * GiB, GM_WAIT_FOREVER);
	overtake(GM_QUEUE_HEAD_OVERTAKES);
	ck_assert_ptr_null(fake_queue_holder(&fake, d));
	fake_pass(&fake, 2 * SECOND);
	expect_held_back(&others);
	gm_core_cancel(fake.core, &others.r);
	expect_served();

	/* A starving request has another chance later. */
	fake_pass(&fake, 6 * GM_QUEUE_HEAD_HOLD_NS - 2 * SECOND);
	overtake(1);
	expect_held_back(&next);
	fake_pass(&fake, GM_QUEUE_HEAD_HOLD_NS);
	expect_served();
}
END_TEST

/* All of its requests leave, and with them its line. */
START_TEST(a_user_does_not_escape_its_rest_by_asking_anew)
{
	fake_says(&fake, a, d, 14 * GiB, 0);
	for (int i = 0; i < 3; i++) {
		static struct fake_request other;
		fake_wait(&fake, &large, b, d, 8 * GiB, GM_WAIT_FOREVER);
		overtake(GM_QUEUE_HEAD_OVERTAKES);
		if (i == 0)
			expect_held_back(&large);
		else
			ck_assert_ptr_null(fake_queue_holder(&fake, d));
		fake_pass(&fake, GM_QUEUE_HEAD_HOLD_NS);
		if (i == 0)
			expect_served();
		gm_core_cancel(fake.core, &large.r);
		/* Another uid begins to wait, and ends. */
		fake_wait(&fake, &other, fake_session(&fake, 6, 6), d, 8 * GiB, GM_WAIT_FOREVER);
		gm_core_cancel(fake.core, &other.r);
	}
}
END_TEST

/* It waits for its deadline, or, if it may not wait, for as long as clients have to answer. */
START_TEST(no_request_fails_because_it_was_held_back)
{
	struct gm_policy policy = fake_figures(&fake, d).policy;
	fake_says(&fake, a, d, 14 * GiB, 0);
	fake_wait(&fake, &large, b, d, 8 * GiB, GM_WAIT_FOREVER);
	overtake(GM_QUEUE_HEAD_OVERTAKES);
	policy.reclaim_ns = 50 * MS;
	gm_core_set_policy(fake.core, d, &policy);
	for (int i = 0; i < 2; i++) {
		ck_assert_ptr_eq(fake_queue_holder(&fake, d), &large.r);
		fake_wait(&fake, &small, c, d, 2 * MiB, i ? GM_WAIT_NEVER : 100 * MS);
		fake_pass(&fake, 100 * MS - 1);
		ck_assert_uint_eq(small.ended, 0);
		fake_pass(&fake, 1);
		fake_core_run(&fake);
		ck_assert_uint_eq(small.ended, 1);
		ck_assert_int_eq(small.status, GPUMEM_OK);
		gm_lease_return(c, small.r.lease);
	}
	/* One that does not fit by then fails as ever. */
	fake_wait(&fake, &small, c, d, 4 * GiB, 100 * MS);
	fake_pass(&fake, 100 * MS);
	ck_assert_int_eq(small.status, GPUMEM_E_TIMEOUT);
	ck_assert_ptr_eq(fake_queue_holder(&fake, d), &large.r);
}
END_TEST

START_TEST(nor_does_one_that_may_not_wait_while_nobody_can_be_asked)
{
	struct gm_policy policy = fake_figures(&fake, d).policy;
	policy.reclaim_ns = 50 * MS;
	gm_core_set_policy(fake.core, d, &policy);
	fake_wait(&fake, &large, b, d, 8 * GiB, GM_WAIT_FOREVER);
	fake_pass(&fake, 50 * MS);
	fake_says(&fake, a, d, 14 * GiB, 0);
	overtake(GM_QUEUE_HEAD_OVERTAKES);
	return_most();
	ck_assert_ptr_eq(fake_queue_holder(&fake, d), &large.r);
	fake_wait(&fake, &small, c, d, 2 * MiB, GM_WAIT_NEVER);
	ck_assert_uint_eq(small.ended, 0);
	fake_pass(&fake, 100 * MS);
	fake_core_run(&fake);
	ck_assert_int_eq(small.status, GPUMEM_OK);
	ck_assert_uint_eq(small.ended, 1);
}
END_TEST

/* What it waits for is its turn, and that comes. */
START_TEST(one_that_is_held_back_is_in_no_deadlock)
{
	struct gm_policy policy = fake_figures(&fake, d).policy;
	static struct fake_request more;
	policy.reclaim_ns = 50 * MS;
	policy.settle_ns = 3600 * SECOND;
	policy.deadlock_ns = SECOND;
	gm_core_set_policy(fake.core, d, &policy);
	fake_lease(&fake, c, d, 2 * MiB);
	fake_wait(&fake, &large, b, d, 8 * GiB, GM_WAIT_FOREVER);
	fake_wait(&fake, &more, a, d, 8 * GiB, GM_WAIT_FOREVER);
	fake_pass(&fake, 50 * MS);
	fake_says(&fake, a, d, 14 * GiB, 0);
	overtake(GM_QUEUE_HEAD_OVERTAKES);
	return_most();
	expect_held_back(&large);
	/* Both who hold memory wait for more. But one of them fits. */
	fake_pass(&fake, 5 * SECOND);
	ck_assert_uint_eq(small.ended, 0);
	ck_assert_uint_eq(more.ended, 0);
	fake_pass(&fake, 5 * SECOND);
	expect_served();
}
END_TEST

/* When the turn ends, the daemon looks at a part of the line only, and the request that fits is behind
 * that part. */
START_TEST(nor_is_one_at_the_end_of_a_long_line)
{
	struct gm_policy policy = fake_figures(&fake, d).policy;
	static struct fake_request more, user_queue[GM_QUEUE_SLICE];
	policy.reclaim_ns = 50 * MS;
	policy.settle_ns = 3600 * SECOND;
	policy.deadlock_ns = SECOND;
	gm_core_set_policy(fake.core, d, &policy);
	fake_lease(&fake, c, d, 2 * MiB);
	fake_wait(&fake, &large, b, d, 8 * GiB, GM_WAIT_FOREVER);
	fake_wait(&fake, &more, a, d, 8 * GiB, GM_WAIT_FOREVER);
	for (size_t i = 0; i < GM_QUEUE_SLICE; i++)
		fake_wait(&fake, &user_queue[i], c, d, 8 * GiB, GM_WAIT_FOREVER);
	fake_pass(&fake, 50 * MS);
	fake_says(&fake, a, d, 14 * GiB, 0);
	overtake(GM_QUEUE_HEAD_OVERTAKES);
	return_most();
	expect_held_back(&large);
	fake_pass(&fake, GM_QUEUE_HEAD_HOLD_NS);
	fake_finish_slices(&fake, d);
	expect_served();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("turn");
	TCase *tcase = tcase_create("turn");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_fits_is_served_whoever_waits_for_more);
	tcase_add_test(tcase,
		a_request_holds_others_back_when_it_was_overtaken_often_and_its_memory_is_coming);
	tcase_add_test(tcase, when_it_is_gone_the_others_go_on);
	tcase_add_test(tcase, a_higher_priority_is_not_held_back);
	tcase_add_test(tcase, what_is_guaranteed_to_an_owner_is_not_held_back);
	tcase_add_test(tcase, what_a_guarantee_keeps_does_not_cover_it);
	tcase_add_test(tcase, what_its_own_user_claims_covers_it_against_that_user_alone);
	tcase_add_test(tcase, it_ends_when_the_memory_is_in_use_again);
	tcase_add_test(tcase, a_client_that_let_a_deadline_pass_is_not_believed);
	tcase_add_test(tcase, whatever_clients_claim_it_ends_after_ten_seconds_and_the_user_rests);
	tcase_add_test(tcase, a_user_does_not_escape_its_rest_by_asking_anew);
	tcase_add_test(tcase, no_request_fails_because_it_was_held_back);
	tcase_add_test(tcase, nor_does_one_that_may_not_wait_while_nobody_can_be_asked);
	tcase_add_test(tcase, one_that_is_held_back_is_in_no_deadlock);
	tcase_add_test(tcase, nor_is_one_at_the_end_of_a_long_line);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
