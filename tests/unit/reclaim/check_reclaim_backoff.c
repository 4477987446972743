/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/reclaim/reclaim_backoff.c, through the core: how often a user can make other users move their buffers, or return what they
 * cache. */
#include "daemon/lease/session_private.h"
#include "daemon/lease/lease.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"
#include "tests/unit/reclaim/reclaim_fixture.h"
#include "tests/unit/reclaim/ask_fixture.h"
#include "tests/unit/reclaim/backoff_fixture.h"

/* A client of a user takes so many bytes and gives them back, again and again, for so long, and waits in between.
 * The honest client moves buffers when it is asked to, and moves them back when there is room. Returns how
 * often it had to. */
static unsigned thrash_with(struct gm_session *session, struct gm_lease *held, uint64_t bytes,
	uint64_t ns, uint64_t wait_ns)
{
	uint64_t until = fake.now + ns;
	static struct fake_request q;
	unsigned moves = 0;

	while (fake.now < until) {
		asks();
		fake_ask(&fake, &q, session, d, bytes, GM_TRANSPORT_AUTO);
		for (int i = 0; i < 100 && !q.ended; i++) {
			const struct gm_reclaim_message *ask = fake_asked(&fake, c);
			if (ask && ask->spill > 0) {
				give_back(c, held, 10 * GiB);
				moves++;
			}
			asks();
			fake_core_run(&fake);
			if (!q.ended)
				fake_pass(&fake, 10 * MS);
		}
		ck_assert_uint_eq(q.ended, 1);
		if (q.status == GPUMEM_OK) {
			gm_lease_return(session, q.r.lease);
			fake_core_run(&fake);
			held = fake_lease(&fake, c, d, 10 * GiB);
			fake_says(&fake, c, d, 0, 40 * GiB);
		}
		fake_pass(&fake, wait_ns);
	}
	return moves;
}

static unsigned thrash(
	struct gm_session *session, struct gm_lease *held, uint64_t ns, uint64_t wait_ns)
{
	return thrash_with(session, held, 10 * GiB, ns, wait_ns);
}

START_TEST(a_user_cannot_make_others_move_buffers_for_nothing_again_and_again)
{
	no_levels();
	policy.max_pool = 0;
	gm_core_set_policy(fake.core, d, &policy);
	fake_lease(&fake, a, d, 60 * GiB);
	fake_lease(&fake, c, d, 30 * GiB);
	struct gm_lease *lease = fake_lease(&fake, c, d, 10 * GiB);
	fake_says(&fake, c, d, 0, 40 * GiB);

	/* Two in each time of rest, and that time doubles: 1, 2, 4 and 8 s. */
	unsigned moves = thrash(b, lease, 20 * SECOND, 10 * MS);
	ck_assert_uint_ge(moves, 2);
	ck_assert_uint_le(moves, 12);
}
END_TEST

/* Of 200 s with a pause of 2.1 s, one move in each pause would be 95. */
START_TEST(who_waits_before_it_asks_again_rests_for_longer_each_time_all_the_same)
{
	struct gm_lease *lease = add_honest();
	fake_lease(&fake, a, d, 60 * GiB);
	ck_assert_uint_le(thrash(b, lease, 200 * SECOND, 2100 * MS), 20);
}
END_TEST

/* Its rests grow to 64 s within 127 s, with two moves in each of the seven. The 640 s after that have ten such rests. */
START_TEST(who_goes_on_for_nothing_keeps_its_longest_rest)
{
	struct gm_lease *lease = add_honest();
	fake_lease(&fake, a, d, 60 * GiB);
	ck_assert_uint_le(thrash(b, lease, 767 * SECOND, 10 * MS), 40);
}
END_TEST

/* It asks for 51 GiB where 50 are free, and the buffer that moves for the last one has ten. */
START_TEST(what_a_request_found_free_is_no_reason_to_disturb_others)
{
	struct gm_lease *lease = add_honest();
	fake_lease(&fake, a, d, 10 * GiB);
	unsigned moves = thrash_with(b, lease, 51 * GiB, 20 * SECOND, 10 * MS);
	ck_assert_uint_ge(moves, 2);
	ck_assert_uint_le(moves, 12);
}
END_TEST

/* Lets time pass while a request waits for more than all clients could return. The honest client moves buffers when it is
 * asked to, and back. Returns how often it had to. */
static unsigned wait_in_vain(struct gm_lease **held, uint64_t ns)
{
	uint64_t until = fake.now + ns;
	unsigned moves = 0;

	while (fake.now < until) {
		const struct gm_reclaim_message *ask = fake_asked(&fake, c);
		bool moved = ask && ask->spill > 0;
		asks();
		if (moved) {
			moves++;
			give_back(c, *held, 10 * GiB);
			fake_says(&fake, c, d, 0, 0);
			fake_core_run(&fake);
			fake_pass(&fake, 100 * MS);
			*held = fake_lease(&fake, c, d, 10 * GiB);
			fake_says(&fake, c, d, 0, 10 * GiB);
		}
		fake_pass(&fake, 10 * MS);
	}
	return moves;
}

/* Of 200 s, one move in each 3 s would be 66. */
START_TEST(a_request_that_waits_in_vain_makes_others_move_buffers_more_and_more_rarely)
{
	struct gm_lease *lease = add_honest();
	static struct fake_request q;

	fake_lease(&fake, a, d, 60 * GiB);
	fake_says(&fake, c, d, 0, 10 * GiB);
	asks();
	fake_wait(&fake, &q, b, d, 90 * GiB, GM_WAIT_FOREVER);
	unsigned moves = wait_in_vain(&lease, 200 * SECOND);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_uint_ge(moves, 2);
	ck_assert_uint_le(moves, 25);
	gm_core_cancel(fake.core, &q.r);
}
END_TEST

/* Neither does it keep others from what the client can move, nor are they charged for moves that it would need. */
START_TEST(another_user_has_others_move_what_it_lacks_itself_beside_a_request_that_waits_in_vain)
{
	struct gm_lease *lease = add_honest();
	static struct fake_request q, r;

	fake_lease(&fake, a, d, 60 * GiB);
	fake_says(&fake, c, d, 0, 10 * GiB);
	asks();
	fake_wait(&fake, &q, b, d, 90 * GiB, GM_WAIT_FOREVER);
	/* Until it is in the middle of a rest of 16 s. */
	while (wait_in_vain(&lease, 10 * SECOND) > 0)
		;
	struct gm_session *other = fake_session(&fake, 4, 4);
	asks();
	fake_wait(&fake, &r, other, d, 2 * GiB, GM_WAIT_FOREVER);
	/* The request that rests has asked it for what it does not use, and does so again every two seconds. */
	uint64_t spill = 0;
	for (int i = 0; i < 300 && spill == 0; i++) {
		const struct gm_reclaim_message *ask = fake_asked(&fake, c);
		spill = ask ? ask->spill : 0;
		asks();
		fake_pass(&fake, 10 * MS);
	}
	ck_assert_uint_eq(spill, 2 * GiB);
	gm_core_cancel(fake.core, &r.r);
	gm_core_cancel(fake.core, &q.r);
}
END_TEST

START_TEST(what_a_user_held_before_is_not_what_others_made_room_for)
{
	struct gm_lease *lease = add_honest();
	fake_lease(&fake, a, d, 40 * GiB);
	fake_lease(&fake, b, d, 20 * GiB);
	ck_assert_uint_le(thrash(b, lease, 200 * SECOND, 2100 * MS), 20);
}
END_TEST

/* It used the memory until its rest was over, so it has wasted nothing. */
START_TEST(who_uses_what_others_made_room_for_does_not_rest_for_longer)
{
	struct gm_lease *lease = add_honest();
	fake_lease(&fake, a, d, 60 * GiB);
	for (int i = 0; i < 5; i++) {
		static struct fake_request q;
		asks();
		fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
		ck_assert_uint_eq(fake_asked(&fake, c)->spill, 10 * GiB);
		give_back(c, lease, 10 * GiB);
		fake_core_run(&fake);
		ck_assert_int_eq(q.status, GPUMEM_OK);
		fake_pass(&fake, 1100 * MS);
		gm_lease_return(b, q.r.lease);
		fake_core_run(&fake);
		lease = fake_lease(&fake, c, d, 10 * GiB);
		fake_says(&fake, c, d, 0, 40 * GiB);
	}
}
END_TEST

START_TEST(a_user_that_keeps_what_others_made_room_for_gets_more)
{
	no_levels();
	fake_lease(&fake, a, d, 10 * GiB);
	struct gm_lease *lease = fake_lease(&fake, c, d, 90 * GiB);
	fake_says(&fake, c, d, 0, 90 * GiB);
	for (int i = 0; i < 9; i++) {
		static struct fake_request q;
		fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
		ck_assert_uint_eq(fake_asked(&fake, c)->spill, 10 * GiB);
		asks();
		give_back(c, lease, 10 * GiB);
		fake_core_run(&fake);
		ck_assert_int_eq(q.status, GPUMEM_OK);
	}
}
END_TEST

START_TEST(who_made_others_move_buffers_for_nothing_still_moves_its_own)
{
	no_levels();
	policy.max_pool = 0;
	gm_core_set_policy(fake.core, d, &policy);
	struct gm_session *twin = fake_session(&fake, 2, 2);
	struct gm_lease *own = fake_lease(&fake, twin, d, 60 * GiB);
	struct gm_lease *other = fake_lease(&fake, c, d, 40 * GiB);
	fake_says(&fake, c, d, 0, 40 * GiB);
	static struct fake_request q;
	fake_ask(&fake, &q, b, d, 20 * GiB, GM_TRANSPORT_AUTO);
	give_back(c, other, 20 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);

	gm_lease_return(b, q.r.lease);
	give_back(twin, own, 55 * GiB);
	fake_core_run(&fake);
	fake_lease(&fake, a, d, 75 * GiB);
	fake_says(&fake, c, d, 0, 20 * GiB);
	fake_says(&fake, twin, d, 0, 5 * GiB);
	asks();
	fake_ask(&fake, &q, b, d, 5 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake_asked(&fake, twin)->spill, 5 * GiB);
	ck_assert_ptr_null(fake_asked(&fake, c));
}
END_TEST

/* ---- what others cache */

START_TEST(a_user_cannot_empty_other_users_caches_again_and_again)
{
	struct gm_lease *lease = add_cache();
	uint64_t until = fake.now + 20 * SECOND;
	static struct fake_request q;
	unsigned emptied = 0;
	while (fake.now < until) {
		fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
		emptied += serve_cache(&q, lease);
		/* It costs the user time, not its memory. */
		ck_assert_int_eq(q.status, GPUMEM_OK);
		fake_pass(&fake, 10 * MS);
		gm_lease_return(b, q.r.lease);
		fake_core_run(&fake);
		lease = cache_again();
	}
	ck_assert_uint_ge(emptied, 15);
	ck_assert_uint_le(emptied, 21);
	fake_core_check(&fake, d);
}
END_TEST

/* A user asks, and takes that back before it is served, again and again for 20 s. Returns how often the
 * honest client returned its cache. */
static unsigned take_requests_back(struct gm_lease *lease)
{
	uint64_t until = fake.now + 20 * SECOND;
	static struct fake_request q;
	unsigned emptied = 0;
	while (fake.now < until) {
		fake_wait(&fake, &q, b, d, 10 * GiB, 100 * SECOND);
		fake_pass(&fake, 10 * MS);
		gm_core_cancel(fake.core, &q.r);
		if (return_cache(lease)) {
			emptied++;
			lease = cache_again();
		}
	}
	return emptied;
}

START_TEST(a_user_that_takes_its_requests_back_empties_no_more_caches)
{
	unsigned emptied = take_requests_back(add_cache());
	ck_assert_uint_ge(emptied, 15);
	ck_assert_uint_le(emptied, 21);
}
END_TEST

/* That it keeps what it got first is no reason to disturb others for nothing. */
START_TEST(a_user_that_keeps_something_and_takes_the_rest_back_empties_no_more_caches)
{
	struct gm_lease *first = add_honest(), *second = fake_lease(&fake, c, d, 10 * GiB);
	fake_lease(&fake, a, d, 50 * GiB);
	fake_says(&fake, c, d, 10 * GiB, 0);
	static struct fake_request q;
	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(serve_cache(&q, first), 1);
	ck_assert_int_eq(q.status, GPUMEM_OK);

	fake_says(&fake, c, d, 10 * GiB, 0);
	unsigned emptied = take_requests_back(second);
	ck_assert_uint_ge(emptied, 15);
	ck_assert_uint_le(emptied, 21);
}
END_TEST

/* A large request, which the user takes back, and a small one, of which it keeps the memory. */
START_TEST(a_user_that_keeps_a_little_of_what_others_return_empties_no_more_caches)
{
	struct gm_session *other = fake_session(&fake, 4, 4);
	struct gm_lease *lease = add_honest();
	static struct fake_request large, small[5];
	unsigned emptied = 0;
	fake_lease(&fake, a, d, 55 * GiB);
	fake_lease(&fake, other, d, 5 * GiB);
	fake_says(&fake, c, d, 10 * GiB, 0);
	fake_says(&fake, other, d, 5 * GiB, 0);
	for (unsigned i = 0; i < 5; i++) {
		uint64_t cached = 10 * GiB - emptied * GiB;
		asks();
		fake_wait(&fake, &large, b, d, cached, 100 * SECOND);
		fake_wait(&fake, &small[i], b, d, GiB, 100 * SECOND);
		bool asked = fake_asked(&fake, c);
		gm_core_cancel(fake.core, &large.r);
		if (asked) {
			ck_assert(i > 0 || fake_asked(&fake, other));
			give_back(c, lease, cached);
			fake_core_run(&fake);
			ck_assert_int_eq(small[i].status, GPUMEM_OK);
			emptied++;
			lease = fake_lease(&fake, c, d, cached - GiB);
			fake_says(&fake, c, d, cached - GiB, 0);
		}
		fake_pass(&fake, 150 * MS);
	}
	ck_assert_uint_eq(emptied, 1);
}
END_TEST

/* A growing program asks for one piece after the other. */
START_TEST(a_user_that_keeps_what_others_cached_gets_more_at_once)
{
	no_levels();
	fake_lease(&fake, a, d, 10 * GiB);
	struct gm_lease *lease = fake_lease(&fake, c, d, 90 * GiB);
	for (int i = 0; i < 9; i++) {
		static struct fake_request q;
		fake_says(&fake, c, d, 90 * GiB - (uint64_t)i * 10 * GiB, 0);
		fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
		ck_assert_uint_eq(fake_asked(&fake, c)->bytes, 10 * GiB);
		give_back(c, lease, 10 * GiB);
		asks();
		fake_core_run(&fake);
		ck_assert_int_eq(q.status, GPUMEM_OK);
	}
}
END_TEST

/* Two threads of a growing program: the second one asks while the first is half served. */
START_TEST(a_user_whose_requests_come_at_once_gets_one_after_the_other_at_once)
{
	static struct fake_request q[2];
	no_levels();
	fake_lease(&fake, a, d, 60 * GiB);
	struct gm_lease *lease = fake_lease(&fake, c, d, 40 * GiB);
	fake_says(&fake, c, d, 5 * GiB, 0);
	fake_ask(&fake, &q[0], b, d, 5 * GiB, GM_TRANSPORT_AUTO);
	give_back(c, lease, 3 * GiB);
	fake_core_run(&fake);
	fake_says(&fake, c, d, 10 * GiB, 0);
	fake_ask(&fake, &q[1], b, d, 5 * GiB, GM_TRANSPORT_AUTO);
	asks();
	give_back(c, lease, 2 * GiB);
	fake_core_run(&fake);
	ck_assert_uint_eq(q[0].ended, 1);
	ck_assert_int_eq(q[0].status, GPUMEM_OK);
	ck_assert_uint_eq(fake_asked(&fake, c)->bytes, 5 * GiB);
	give_back(c, lease, 5 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q[1].status, GPUMEM_OK);
}
END_TEST

START_TEST(a_user_that_has_its_memory_before_others_return_theirs_gets_more_at_once)
{
	struct gm_lease *first = add_honest(), *second = fake_lease(&fake, c, d, 10 * GiB);
	struct gm_lease *other = fake_lease(&fake, a, d, 50 * GiB);
	fake_says(&fake, c, d, 10 * GiB, 0);
	static struct fake_request q[3];
	fake_wait(&fake, &q[0], b, d, 10 * GiB, 100 * SECOND);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));
	ck_assert_uint_eq(fake_asked(&fake, c)->bytes, 10 * GiB);
	give_back(a, other, 10 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q[0].status, GPUMEM_OK);
	give_back(c, first, 10 * GiB);
	fake_core_run(&fake);
	fake_ask(&fake, &q[1], b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	fake_core_run(&fake);
	ck_assert_int_eq(q[1].status, GPUMEM_OK);

	fake_says(&fake, c, d, 10 * GiB, 0);
	asks();
	fake_ask(&fake, &q[2], b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));
	give_back(c, second, 10 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q[2].status, GPUMEM_OK);
}
END_TEST

START_TEST(who_emptied_others_caches_for_nothing_still_gets_its_own)
{
	struct gm_lease *lease = add_cache();
	struct gm_session *twin = fake_session(&fake, 2, 2);
	static struct fake_request q;
	waste_cache(&q, lease);

	struct gm_lease *own = fake_lease(&fake, twin, d, 5 * GiB);
	fake_lease(&fake, c, d, 5 * GiB);
	fake_says(&fake, twin, d, 5 * GiB, 0);
	fake_says(&fake, c, d, 5 * GiB, 0);
	asks();
	fake_ask(&fake, &q, b, d, 5 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake_asked(&fake, twin)->bytes, 5 * GiB);
	ck_assert_ptr_null(fake_asked(&fake, c));
	give_back(twin, own, 5 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

/* Its own clients are its own affair, and other users' clients have nothing to do with it. */
START_TEST(a_user_whose_own_clients_returned_something_for_nothing_does_not_rest)
{
	no_levels();
	struct gm_session *twin = fake_session(&fake, 2, 2);
	fake_lease(&fake, twin, d, 60 * GiB);
	struct gm_lease *lease = fake_lease(&fake, c, d, 40 * GiB);
	fake_says(&fake, twin, d, 10 * GiB, 0);
	static struct fake_request q;
	fake_wait(&fake, &q, b, d, 10 * GiB, 100 * SECOND);
	ck_assert_ptr_nonnull(fake_asked(&fake, twin));
	ck_assert_ptr_null(fake_asked(&fake, c));
	gm_core_cancel(fake.core, &q.r);
	fake_core_run(&fake);

	fake_says(&fake, c, d, 40 * GiB, 0);
	asks();
	fake_ask(&fake, &q, b, d, 30 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));
	give_back(c, lease, 30 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

/* Nothing is free. The client that is asked for the user's request returns nothing, and is given up on. */
START_TEST(a_user_whose_request_fails_while_another_user_has_somebody_asked_does_not_rest)
{
	static struct fake_request lure, q;
	struct gm_session *other = fake_session(&fake, 4, 4);

	ask_a_liar(&lure);
	fake_lease(&fake, other, d, 20 * GiB);
	fake_says(&fake, c, d, 10 * GiB, 0);
	fake_wait(&fake, &q, b, d, 10 * GiB, 100 * SECOND);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));
	fake_pass(&fake, 100 * MS);
	gm_core_cancel(fake.core, &q.r);

	fake_says(&fake, other, d, 10 * GiB, 0);
	asks();
	fake_wait(&fake, &q, b, d, 10 * GiB, 100 * SECOND);
	ck_assert_ptr_nonnull(fake_asked(&fake, other));
	ck_assert_uint_eq(lure.ended, 0);
}
END_TEST

/* Of two clients that are asked, the other user's returns what it cached. The own one takes its time. */
START_TEST(a_user_whose_request_fails_while_its_own_client_is_asked_does_not_rest)
{
	static struct fake_request q;
	struct gm_session *twin = fake_session(&fake, 2, 2), *other = fake_session(&fake, 4, 4);

	no_levels();
	fake_lease(&fake, twin, d, 60 * GiB);
	struct gm_lease *lease = fake_lease(&fake, c, d, 20 * GiB);
	fake_lease(&fake, other, d, 20 * GiB);
	fake_says(&fake, twin, d, 0, 5 * GiB);
	fake_says(&fake, c, d, 5 * GiB, 0);
	fake_wait(&fake, &q, b, d, 10 * GiB, 100 * SECOND);
	ck_assert_uint_eq(fake_asked(&fake, twin)->spill, 5 * GiB);
	ck_assert_uint_eq(fake_asked(&fake, c)->bytes, 5 * GiB);
	give_back(c, lease, 5 * GiB);
	fake_pass(&fake, 1200 * MS);
	gm_core_cancel(fake.core, &q.r);

	fake_says(&fake, other, d, 20 * GiB, 0);
	asks();
	fake_wait(&fake, &q, b, d, 15 * GiB, 100 * SECOND);
	ck_assert_ptr_nonnull(fake_asked(&fake, other));
	ck_assert_uint_eq(fake_asked(&fake, other)->bytes, 5 * GiB);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("backoff");
	TCase *tcase = tcase_create("backoff");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_user_cannot_make_others_move_buffers_for_nothing_again_and_again);
	tcase_add_test(
		tcase, who_waits_before_it_asks_again_rests_for_longer_each_time_all_the_same);
	tcase_add_test(tcase, who_goes_on_for_nothing_keeps_its_longest_rest);
	tcase_add_test(tcase, what_a_request_found_free_is_no_reason_to_disturb_others);
	tcase_add_test(
		tcase, a_request_that_waits_in_vain_makes_others_move_buffers_more_and_more_rarely);
	tcase_add_test(tcase,
		another_user_has_others_move_what_it_lacks_itself_beside_a_request_that_waits_in_vain);
	tcase_add_test(tcase, what_a_user_held_before_is_not_what_others_made_room_for);
	tcase_add_test(tcase, who_uses_what_others_made_room_for_does_not_rest_for_longer);
	tcase_add_test(tcase, a_user_that_keeps_what_others_made_room_for_gets_more);
	tcase_add_test(tcase, who_made_others_move_buffers_for_nothing_still_moves_its_own);
	tcase_add_test(tcase, a_user_cannot_empty_other_users_caches_again_and_again);
	tcase_add_test(tcase, a_user_that_takes_its_requests_back_empties_no_more_caches);
	tcase_add_test(
		tcase, a_user_that_keeps_something_and_takes_the_rest_back_empties_no_more_caches);
	tcase_add_test(
		tcase, a_user_that_keeps_a_little_of_what_others_return_empties_no_more_caches);
	tcase_add_test(tcase, a_user_that_keeps_what_others_cached_gets_more_at_once);
	tcase_add_test(tcase, a_user_whose_requests_come_at_once_gets_one_after_the_other_at_once);
	tcase_add_test(
		tcase, a_user_that_has_its_memory_before_others_return_theirs_gets_more_at_once);
	tcase_add_test(tcase, who_emptied_others_caches_for_nothing_still_gets_its_own);
	tcase_add_test(
		tcase, a_user_whose_own_clients_returned_something_for_nothing_does_not_rest);
	tcase_add_test(tcase,
		a_user_whose_request_fails_while_another_user_has_somebody_asked_does_not_rest);
	tcase_add_test(
		tcase, a_user_whose_request_fails_while_its_own_client_is_asked_does_not_rest);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
