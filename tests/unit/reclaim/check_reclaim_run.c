/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/reclaim/reclaim_plan.c, reclaim_run.c and reclaim_pressure.c, through the core, for a request that does not fit: who is asked
 * for what, and what came of it. */
#include "daemon/reclaim/reclaim.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"
#include "tests/unit/reclaim/reclaim_fixture.h"

START_TEST(a_request_that_does_not_fit_gets_what_is_missing_and_no_more)
{
	struct gm_lease *lease = fake_lease(&fake, a, d, 70 * GiB);
	static struct fake_request q;
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_PRESSURE_LEVEL_MEDIUM);
	fake_says(&fake, a, d, 40 * GiB, 0);
	fake_ask(&fake, &q, b, d, 50 * GiB, GM_TRANSPORT_AUTO);
	/* Another client's idle cache, while pressure is only medium. */
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_uint_eq(asks(), 1);
	const struct gm_reclaim_message *r = &fake.asks[0].ask;
	ck_assert_uint_eq(fake.asks[0].session, gm_session_id(a));
	ck_assert_uint_eq(r->bytes, 20 * GiB);
	ck_assert_int_eq(r->stage, GM_STAGE_CACHED);
	ck_assert_int_eq(r->trigger, GM_RECLAIM_TRIGGER_REQUEST);
	ck_assert(!r->urgent);
	ck_assert_uint_eq(r->deadline_ns, fake.now + 100 * MS);
	ck_assert_uint_eq(fake.wake_ns, fake.now + 100 * MS);
	ck_assert(fake_reclaims(&fake, d, GM_RECLAIM_TRIGGER_REQUEST));
	/* It is about the user that asked, not about the one that gave. */
	uid_t payer_uid = gm_session_info(b)->payer_uid;
	const struct fake_event *started = fake_told(&fake, GM_EVENT_RECLAIM_STARTED);
	ck_assert_uint_eq(started->event.payer_uid, payer_uid);
	ck_assert_uint_eq(started->session, gm_session_id(b));
	ck_assert_str_eq(started->text,
		"reclaim for a request that lacks 20.0G on device 0: 20.0G are asked of clients");
	give_back(a, lease, 19 * GiB);
	ck_assert_uint_eq(q.ended, 0);
	give_back(a, lease, GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	const struct fake_event *e = fake_told(&fake, GM_EVENT_RECLAIM_ENDED);
	ck_assert_uint_eq(e->event.payer_uid, payer_uid);
	ck_assert_ptr_nonnull(e);
	ck_assert_int_eq(e->event.trigger, GM_RECLAIM_TRIGGER_REQUEST);
	ck_assert_uint_eq(e->event.stages[GM_STAGE_CACHED], 20 * GiB);
	ck_assert_uint_eq(e->event.need, 20 * GiB);
	ck_assert(e->event.reached);
	ck_assert_uint_eq(fake.started[d][GM_RECLAIM_TRIGGER_REQUEST], 1);
	ck_assert_uint_eq(fake.ended[d][GM_RECLAIM_TRIGGER_REQUEST], 1);
	fake_core_check(&fake, d);
}
END_TEST

START_TEST(victims_are_the_lowest_priority_then_the_largest_then_the_oldest)
{
	no_levels();
	struct gm_session *e = fake_session(&fake, 5, 5);
	struct gm_session *all[] = {a, b, c, e};
	for (int i = 0; i < 4; i++)
		fake_lease(&fake, all[i], d, 24 * GiB);
	give(1, GM_LIMIT_PRIORITY, 0, 1);
	fake_says(&fake, a, d, 24 * GiB, 0);
	fake_says(&fake, b, d, 2 * GiB, 0);
	fake_says(&fake, c, d, 2 * GiB, 0);
	fake_says(&fake, e, d, 8 * GiB, 0);
	struct gm_session *late = fake_session(&fake, 6, 6);
	static struct fake_request q;
	fake_ask(&fake, &q, late, d, 4 * GiB + 11 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake.n_asks, 3);
	ck_assert_uint_eq(fake.asks[0].session, gm_session_id(e));
	ck_assert_uint_eq(fake.asks[0].ask.bytes, 8 * GiB);
	ck_assert_uint_eq(fake.asks[1].session, gm_session_id(b));
	ck_assert_uint_eq(fake.asks[1].ask.bytes, 2 * GiB);
	ck_assert_uint_eq(fake.asks[2].session, gm_session_id(c));
	ck_assert_uint_eq(fake.asks[2].ask.bytes, 1 * GiB);
}
END_TEST

START_TEST(who_says_it_has_nothing_is_asked_when_the_others_have_not_enough)
{
	struct gm_lease *lease = fake_lease(&fake, a, d, 70 * GiB);
	static struct fake_request q;
	fake_ask(&fake, &q, b, d, 40 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(q.ended, 0);
	const struct gm_reclaim_message *r = fake_asked(&fake, a);
	ck_assert_ptr_nonnull(r);
	ck_assert_int_eq(r->stage, GM_STAGE_UNUSED);
	ck_assert(r->urgent);
	ck_assert_uint_eq(r->bytes, 10 * GiB);
	give_back(a, lease, 10 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

START_TEST(a_request_that_must_fit_at_once_asks_nobody)
{
	static struct fake_request q[2];
	no_levels();
	struct gm_lease *lease = fake_lease(&fake, a, d, fake_figures(&fake, d).ceiling);
	fake_says(&fake, a, d, 4 * GiB, 4 * GiB);

	for (int i = 0; i < 2; i++) {
		q[i].r = (struct gm_request){.session = b,
			.device = d,
			.bytes = 4 * GiB,
			.wait_ns = GM_WAIT_NEVER,
			.at_once = true,
			.done = fake_request_done};
		gm_core_request(fake.core, &q[i].r);
		if (i == 0) {
			ck_assert_uint_eq(q[0].ended, 1);
			ck_assert_int_eq(q[0].status, GPUMEM_E_NO_MEMORY);
			ck_assert_ptr_null(fake_asked(&fake, a));
			gm_lease_return(a, lease);
		}
		fake_core_run(&fake);
	}
	/* If it fits, it is like any other. */
	ck_assert_int_eq(q[1].status, GPUMEM_OK);
}
END_TEST

START_TEST(what_is_evictable_is_asked_for_after_what_is_cached)
{
	no_levels();
	struct gm_lease *mine = fake_lease(&fake, a, d, 40 * GiB);
	fake_lease(&fake, b, d, 30 * GiB);
	fake_lease(&fake, c, d, 30 * GiB);
	fake_says(&fake, a, d, 4 * GiB, 20 * GiB);
	fake_says(&fake, b, d, 2 * GiB, 0);
	static struct fake_request q;
	struct gm_session *late = fake_session(&fake, 6, 6);
	fake_ask(&fake, &q, late, d, 10 * GiB, GM_TRANSPORT_AUTO);
	/* One message to each; c has nothing to give and is left alone. */
	ck_assert_uint_eq(fake.n_asks, 2);
	const struct gm_reclaim_message *r = fake_asked(&fake, a);
	ck_assert_int_eq(r->stage, GM_STAGE_SPILL);
	ck_assert_uint_eq(r->bytes, 8 * GiB);
	ck_assert_uint_eq(r->spill, 4 * GiB);
	r = fake_asked(&fake, b);
	ck_assert_int_eq(r->stage, GM_STAGE_CACHED);
	ck_assert_uint_eq(r->bytes, 2 * GiB);
	ck_assert_uint_eq(r->spill, 0);
	ck_assert_ptr_null(fake_asked(&fake, c));
	give_back(a, mine, 10 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	fake_core_check(&fake, d);
}
END_TEST

START_TEST(a_guarantee_counts_once_for_all_that_is_asked_of_its_owner)
{
	no_levels();
	struct gm_session *other = fake_session(&fake, 4, 1);
	struct gm_session *late = fake_session(&fake, 6, 6);
	fake_lease(&fake, a, d, 40 * GiB);
	fake_lease(&fake, other, d, 30 * GiB);
	fake_lease(&fake, c, d, 30 * GiB);
	/* The owner of both holds 10 GiB beyond it. */
	give(1, GM_LIMIT_GUARANTEE, 60 * GiB, 0);
	fake_says(&fake, a, d, 8 * GiB, 0);
	fake_says(&fake, other, d, 0, 30 * GiB);
	fake_says(&fake, c, d, 0, 5 * GiB);
	static struct fake_request q;
	fake_ask(&fake, &q, late, d, 15 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake_asked(&fake, a)->bytes, 8 * GiB);
	ck_assert_uint_eq(fake_asked(&fake, other)->bytes, 2 * GiB);
	ck_assert_uint_eq(fake_asked(&fake, c)->bytes, 5 * GiB);
}
END_TEST

START_TEST(a_client_asked_for_what_it_does_not_use_may_move_buffers_for_it)
{
	no_levels();
	struct gm_session *other = fake_session(&fake, 4, 1);
	struct gm_session *late = fake_session(&fake, 6, 6);
	fake_lease(&fake, a, d, 40 * GiB);
	fake_lease(&fake, other, d, 30 * GiB);
	fake_lease(&fake, c, d, 30 * GiB);
	give(1, GM_LIMIT_GUARANTEE, 60 * GiB, 0);
	fake_says(&fake, a, d, 0, 4 * GiB);
	fake_says(&fake, other, d, 0, 4 * GiB);
	/* What they say is not enough, so all are asked for the rest as well, but not for what the guarantee covers. */
	static struct fake_request q;
	fake_ask(&fake, &q, late, d, 35 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake_asked(&fake, a)->bytes, 6 * GiB);
	ck_assert_uint_eq(fake_asked(&fake, a)->spill, 4 * GiB);
	ck_assert_uint_eq(fake_asked(&fake, other)->bytes, 4 * GiB);
	ck_assert_uint_eq(fake_asked(&fake, other)->spill, 4 * GiB);
	ck_assert_uint_eq(fake_asked(&fake, c)->bytes, 25 * GiB);
}
END_TEST

START_TEST(a_request_makes_nobody_of_a_higher_priority_move_its_buffers)
{
	no_levels();
	give(1, GM_LIMIT_PRIORITY, 0, 1);
	fake_lease(&fake, a, d, 50 * GiB);
	struct gm_lease *lease = fake_lease(&fake, b, d, 50 * GiB);
	fake_says(&fake, a, d, 0, 50 * GiB);
	fake_says(&fake, b, d, 0, 10 * GiB);
	static struct fake_request q;
	fake_ask(&fake, &q, c, d, 5 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake.n_asks, 1);
	ck_assert_uint_eq(fake_asked(&fake, b)->spill, 5 * GiB);
	give_back(b, lease, 5 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);

	/* When all are asked, a may return what it does not use, but moves nothing. */
	fake_says(&fake, b, d, 0, 0);
	fake_ask(&fake, &q, c, d, 60 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake_asked(&fake, a)->spill, 0);
	ck_assert_int_eq(fake_asked(&fake, a)->stage, GM_STAGE_UNUSED);
}
END_TEST

START_TEST(a_client_that_moves_buffers_has_the_time_that_a_copy_takes)
{
	no_levels();
	struct gm_lease *lease = fake_lease(&fake, a, d, 100 * GiB);
	static struct fake_request q;
	for (int i = 0; i < 8; i++) {
		fake_says(&fake, a, d, 0, 20 * GiB);
		fake_wait(&fake, &q, b, d, 5 * GiB, 100 * SECOND);
		ck_assert_uint_eq(asks(), 1);
		/* It takes longer than anybody may take who only returns what it caches. */
		fake_pass(&fake, 2 * SECOND);
		ck_assert_uint_eq(q.ended, 0);
		give_back(a, lease, 5 * GiB);
		fake_core_run(&fake);
		ck_assert_int_eq(q.status, GPUMEM_OK);
	}
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_IGNORED), 0);
}
END_TEST

START_TEST(a_request_that_may_not_wait_stays_while_buffers_move_for_it)
{
	no_levels();
	struct gm_lease *lease = fake_lease(&fake, a, d, 100 * GiB);
	static struct fake_request q;
	fake_says(&fake, a, d, 0, 20 * GiB);
	fake_ask(&fake, &q, b, d, 5 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake_asked(&fake, a)->spill, 5 * GiB);
	/* Long after it would have been refused if a only had to return what it caches. */
	fake_pass(&fake, SECOND);
	ck_assert_uint_eq(q.ended, 0);
	give_back(a, lease, 5 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	fake_core_check(&fake, d);
}
END_TEST

START_TEST(a_request_that_may_not_wait_does_not_wait_for_a_liar_for_long)
{
	no_levels();
	fake_lease(&fake, a, d, 100 * GiB);
	static struct fake_request q;
	/* It claims buffers and moves none. */
	for (int i = 0; i < 100; i++) {
		fake_says(&fake, a, d, 0, 20 * GiB);
		uint64_t begin = fake.now;
		fake_ask(&fake, &q, b, d, 5 * GiB, GM_TRANSPORT_AUTO);
		for (int step = 0; step < 50 && !q.ended; step++)
			fake_pass(&fake, 100 * MS);
		ck_assert_uint_eq(q.ended, 1);
		ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
		/* Two rounds, each with the time for a copy. */
		ck_assert_uint_le(fake.now - begin, 2 * (2 * SECOND + 100 * MS) + 100 * MS);
	}
}
END_TEST

START_TEST(nobody_is_asked_to_move_what_is_in_host_memory_already)
{
	struct gm_core_device_info info = fake_info(100 * GiB);
	info.pinned = true;
	fake_core_deinit(&fake);
	fake_core_init_asking(&fake);
	d = fake_core_add(&fake, &info);
	policy = info.policy;
	no_levels();
	a = fake_session(&fake, 1, 1);
	b = fake_session(&fake, 2, 2);

	fake_lease(&fake, a, d, 100 * GiB);
	fake_says(&fake, a, d, 0, 50 * GiB);
	static struct fake_request q;
	fake_ask(&fake, &q, b, d, 5 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(fake_asked(&fake, a)->stage, GM_STAGE_UNUSED);
	ck_assert_uint_eq(fake_asked(&fake, a)->spill, 0);
	fake_pass(&fake, 200 * MS);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
}
END_TEST

START_TEST(a_client_moves_its_own_buffers_for_its_own_request)
{
	no_levels();
	struct gm_lease *lease = fake_lease(&fake, a, d, 100 * GiB);
	fake_says(&fake, a, d, 0, 50 * GiB);
	static struct fake_request q;
	fake_ask(&fake, &q, a, d, 5 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake.n_asks, 1);
	ck_assert_uint_eq(fake_asked(&fake, a)->spill, 5 * GiB);
	give_back(a, lease, 5 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

START_TEST(nobody_is_disturbed_when_it_could_not_be_enough)
{
	fake_lease(&fake, a, d, 10 * GiB);
	fake_lease(&fake, b, d, 60 * GiB);
	give(2, GM_LIMIT_GUARANTEE, 50 * GiB, 0);
	fake_says(&fake, a, d, 10 * GiB, 0);
	fake_says(&fake, b, d, 60 * GiB, 0);
	static struct fake_request q;
	/* 10 of a and 10 of b that are over its guarantee could come. */
	fake_ask(&fake, &q, c, d, 50 * GiB + 2 * MiB, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_uint_eq(asks(), 0);
	fake_ask(&fake, &q, c, d, 50 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_uint_eq(fake_asked(&fake, a)->bytes, 10 * GiB);
	ck_assert_uint_eq(fake_asked(&fake, b)->bytes, 10 * GiB);
}
END_TEST

START_TEST(a_second_request_asks_only_for_what_the_first_did_not)
{
	no_levels();
	struct gm_lease *lease = fake_lease(&fake, a, d, 50 * GiB);
	fake_lease(&fake, b, d, 50 * GiB);
	fake_says(&fake, a, d, 50 * GiB, 0);
	fake_says(&fake, b, d, 50 * GiB, 0);
	static struct fake_request q, r;
	fake_ask(&fake, &q, c, d, 10 * GiB, GM_TRANSPORT_AUTO);
	fake_ask(&fake, &r, c, d, 5 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake.n_asks, 2);
	ck_assert_uint_eq(fake_asked(&fake, a)->bytes, 10 * GiB);
	ck_assert_uint_eq(fake_asked(&fake, b)->bytes, 5 * GiB);
	give_back(a, lease, 15 * GiB);
	fake_core_run(&fake);
	ck_assert(q.status == GPUMEM_OK && q.ended && r.status == GPUMEM_OK && r.ended);
	/* The start told of the first one alone. */
	ck_assert_ptr_nonnull(
		strstr(fake_told(&fake, GM_EVENT_RECLAIM_STARTED)->text, "that lacks 10.0G on "));
	fake_pass(&fake, SECOND);
	const char *text = fake_told(&fake, GM_EVENT_RECLAIM_ENDED)->text;
	ck_assert_msg(strstr(text, " ended: 15.0G wanted in all, 10.0G at first; "), "%s", text);
}
END_TEST

START_TEST(what_was_asked_for_by_pressure_comes_to_a_request_as_well)
{
	static struct fake_request q;
	struct gm_lease *lease = fake_lease(&fake, a, d, 90 * GiB);
	fake_says(&fake, a, d, 50 * GiB, 0);
	fake_lease(&fake, b, d, 6 * GiB);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_PRESSURE_LEVEL_CRITICAL);
	ck_assert_int_eq(fake_asked(&fake, a)->trigger, GM_RECLAIM_TRIGGER_PRESSURE);
	asks();
	/* Nobody is left to be asked, but it is not refused while something is to come. */
	fake_ask(&fake, &q, b, d, 20 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_uint_eq(asks(), 0);
	give_back(a, lease, 16 * GiB);
	fake_core_run(&fake);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	/* And if it does not come, it is. */
	fake_ask(&fake, &q, b, d, 20 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(q.ended, 0);
	fake_pass(&fake, 100 * MS);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
}
END_TEST

START_TEST(for_room_under_a_limit_only_its_own_clients_are_asked)
{
	struct gm_session *twin = fake_session(&fake, 1, 1);
	give(1, GM_LIMIT_MAX, 10 * GiB, 0);
	struct gm_lease *lease = fake_lease(&fake, twin, d, 8 * GiB);
	fake_lease(&fake, b, d, 20 * GiB);
	fake_says(&fake, twin, d, 5 * GiB, 0);
	fake_says(&fake, b, d, 20 * GiB, 0);
	static struct fake_request q;
	fake_ask(&fake, &q, a, d, 6 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_uint_eq(fake.n_asks, 1);
	ck_assert_uint_eq(fake_asked(&fake, twin)->bytes, 4 * GiB);
	const struct fake_event *e = fake_told(&fake, GM_EVENT_LIMIT);
	ck_assert_ptr_nonnull(e);
	ck_assert_uint_eq(e->owner.id, 1);
	ck_assert_uint_eq(e->event.max, 10 * GiB);
	ck_assert_uint_eq(e->event.held, 8 * GiB);
	ck_assert_uint_eq(e->event.asked, 6 * GiB);
	give_back(twin, lease, 4 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

START_TEST(the_one_who_asks_comes_last_but_its_own_cache_counts)
{
	no_levels();
	struct gm_lease *own = fake_lease(&fake, a, d, 60 * GiB);
	struct gm_lease *other = fake_lease(&fake, b, d, 40 * GiB);
	fake_says(&fake, a, d, 30 * GiB, 0);
	fake_says(&fake, b, d, 10 * GiB, 0);
	static struct fake_request q;
	fake_ask(&fake, &q, a, d, 30 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake.asks[0].session, gm_session_id(b));
	ck_assert_uint_eq(fake.asks[0].ask.bytes, 10 * GiB);
	ck_assert_uint_eq(fake.asks[1].session, gm_session_id(a));
	ck_assert_uint_eq(fake.asks[1].ask.bytes, 20 * GiB);
	give_back(b, other, 10 * GiB);
	give_back(a, own, 20 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

START_TEST(a_request_that_its_client_takes_back_is_not_refused)
{
	no_levels();
	fake_lease(&fake, a, d, 100 * GiB);
	static struct fake_request q;
	fake_wait(&fake, &q, b, d, 10 * GiB, 60 * SECOND);
	ck_assert_ptr_nonnull(fake_told(&fake, GM_EVENT_QUEUED));
	gm_core_cancel(fake.core, &q.r);
	ck_assert_int_eq(q.status, GPUMEM_E_CANCELLED);
	ck_assert_ptr_nonnull(fake_told(&fake, GM_EVENT_CANCELLED));
	ck_assert_ptr_null(fake_told(&fake, GM_EVENT_REFUSED));
}
END_TEST

START_TEST(who_waits_is_helped_again_and_again)
{
	no_levels();
	struct gm_lease *lease = fake_lease(&fake, a, d, 100 * GiB);
	static struct fake_request q;
	fake_wait(&fake, &q, b, d, 10 * GiB, 60 * SECOND);
	ck_assert_uint_eq(asks(), 1);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_QUEUED), 1);
	fake_pass(&fake, 10 * SECOND);
	ck_assert_uint_eq(q.ended, 0);
	size_t n = asks();
	ck_assert(n >= 3 && n <= 11);
	fake_says(&fake, a, d, 20 * GiB, 0);
	fake_pass(&fake, 2 * SECOND + 100 * MS);
	ck_assert_uint_ge(asks(), 1);
	give_back(a, lease, 10 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	const struct fake_event *e = fake_told(&fake, GM_EVENT_GRANTED);
	ck_assert_ptr_nonnull(e);
	ck_assert_uint_eq(e->event.waited_ns, 12 * SECOND + 100 * MS);
}
END_TEST

/* fake_pass() fails where core wants to be woken at once, again and again. */
START_TEST(who_is_to_ask_while_others_are_asked_waits_for_their_answer_without_a_hurry)
{
	no_levels();
	fake_lease(&fake, a, d, 100 * GiB);
	static struct fake_request q[2];
	fake_wait(&fake, &q[0], b, d, 10 * GiB, 60 * SECOND);
	fake_pass(&fake, 50 * MS);
	fake_wait(&fake, &q[1], c, d, 10 * GiB, 60 * SECOND);
	fake_pass(&fake, 10 * SECOND);
	ck_assert_uint_eq(q[0].ended + q[1].ended, 0);
	ck_assert_uint_ge(asks(), 3);
}
END_TEST

START_TEST(a_client_that_dies_or_leaves_instead_of_answering_ends_the_reclaim)
{
	no_levels();
	for (int leaves = 0; leaves < 2; leaves++) {
		struct gm_session *victim = fake_session(&fake, 7, 7);
		fake_lease(&fake, victim, d, 100 * GiB);
		fake_says(&fake, victim, d, 50 * GiB, 0);
		static struct fake_request q;
		fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
		ck_assert_uint_eq(q.ended, 0);
		if (leaves)
			gm_session_quarantine(victim);
		else
			gm_session_end_died(victim);
		ck_assert(!fake_reclaims(&fake, d, GM_RECLAIM_TRIGGER_REQUEST));
		fake_core_run(&fake);
		ck_assert_uint_eq(q.ended, 1);
		ck_assert_int_eq(q.status, leaves ? GPUMEM_E_NO_MEMORY : GPUMEM_OK);
		gm_session_end_died(b);
		b = fake_session(&fake, 2, 2);
		fake_core_run(&fake);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("reclaim");
	TCase *tcase = tcase_create("reclaim");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_request_that_does_not_fit_gets_what_is_missing_and_no_more);
	tcase_add_test(tcase, victims_are_the_lowest_priority_then_the_largest_then_the_oldest);
	tcase_add_test(tcase, who_says_it_has_nothing_is_asked_when_the_others_have_not_enough);
	tcase_add_test(tcase, a_request_that_must_fit_at_once_asks_nobody);
	tcase_add_test(tcase, what_is_evictable_is_asked_for_after_what_is_cached);
	tcase_add_test(tcase, a_guarantee_counts_once_for_all_that_is_asked_of_its_owner);
	tcase_add_test(tcase, a_client_asked_for_what_it_does_not_use_may_move_buffers_for_it);
	tcase_add_test(tcase, a_request_makes_nobody_of_a_higher_priority_move_its_buffers);
	tcase_add_test(tcase, a_client_that_moves_buffers_has_the_time_that_a_copy_takes);
	tcase_add_test(tcase, a_request_that_may_not_wait_stays_while_buffers_move_for_it);
	tcase_add_test(tcase, a_request_that_may_not_wait_does_not_wait_for_a_liar_for_long);
	tcase_add_test(tcase, nobody_is_asked_to_move_what_is_in_host_memory_already);
	tcase_add_test(tcase, a_client_moves_its_own_buffers_for_its_own_request);
	tcase_add_test(tcase, nobody_is_disturbed_when_it_could_not_be_enough);
	tcase_add_test(tcase, a_second_request_asks_only_for_what_the_first_did_not);
	tcase_add_test(tcase, what_was_asked_for_by_pressure_comes_to_a_request_as_well);
	tcase_add_test(tcase, for_room_under_a_limit_only_its_own_clients_are_asked);
	tcase_add_test(tcase, the_one_who_asks_comes_last_but_its_own_cache_counts);
	tcase_add_test(tcase, a_request_that_its_client_takes_back_is_not_refused);
	tcase_add_test(tcase, who_waits_is_helped_again_and_again);
	tcase_add_test(
		tcase, who_is_to_ask_while_others_are_asked_waits_for_their_answer_without_a_hurry);
	tcase_add_test(tcase, a_client_that_dies_or_leaves_instead_of_answering_ends_the_reclaim);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
