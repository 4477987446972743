/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/wait/ask.c, through the core: what a request gets from clients that lie about evictable memory,
 * and how often a user can make other users move theirs, or return what they cache. */
#include <string.h>

#include "daemon/device/ladder.h"
#include "daemon/lease/session_private.h"
#include "daemon/wait/queue.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"
#include "tests/unit/device/ladder_fixture.h"

/* A session of the liar's user: it is asked first, claims all it holds, and moves nothing. */
static struct gm_session *add_liar(uint64_t bytes)
{
	struct gm_session *liar = fake_session(&fake, 9, 9);

	give(9, GM_QUOTA_PRIORITY, 0, -1);
	fake_lease(&fake, liar, d, bytes);
	fake_says(&fake, liar, d, 0, bytes);
	return liar;
}

/* Lets time pass until the request is over. Whoever is asked to move buffers and is honest does. */
static void answer_until_over(
	struct fake_request *q, struct gm_session *honest, struct gm_lease *lease)
{
	for (int i = 0; i < 100 && !q->ended; i++) {
		const struct gm_reclaim *ask = fake_asked(&fake, honest);
		if (ask && ask->spill > 0)
			give_back(honest, lease, ask->spill);
		asks();
		fake_core_run(&fake);
		if (!q->ended)
			fake_pass(&fake, 100 * MS);
	}
	ck_assert_uint_eq(q->ended, 1);
}

/* Twice: when nobody knows the liar, and when it is known. */
START_TEST(a_liar_does_not_get_a_request_refused_that_an_honest_client_covers)
{
	no_levels();
	for (int i = 0; i < 2; i++)
		add_liar(30 * GiB);
	struct gm_lease *lease = fake_lease(&fake, c, d, 40 * GiB);
	fake_says(&fake, c, d, 0, 40 * GiB);
	static struct fake_request q;
	for (int i = 0; i < 3; i++) {
		uint64_t begin = fake.now;
		fake_ask(&fake, &q, b, d, 5 * GiB, GM_TRANSPORT_AUTO);
		answer_until_over(&q, c, lease);
		ck_assert_int_eq(q.status, GPUMEM_OK);
		/* It costs one round, once. */
		ck_assert_uint_le(fake.now - begin, i == 0 ? 2 * SECOND + 200 * MS : 0);
	}
	fake_core_check(&fake, d);
}
END_TEST

START_TEST(a_liar_that_returns_a_little_in_time_is_still_a_liar)
{
	no_levels();
	struct gm_session *liar = fake_session(&fake, 9, 9);
	struct gm_lease *bait = fake_lease(&fake, liar, d, 60 * GiB);
	struct gm_lease *lease = fake_lease(&fake, c, d, 40 * GiB);
	give(9, GM_QUOTA_PRIORITY, 0, -1);
	fake_says(&fake, liar, d, 0, 50 * GiB);
	fake_says(&fake, c, d, 0, 40 * GiB);
	static struct fake_request q;
	fake_wait(&fake, &q, b, d, 10 * GiB, 100 * SECOND);
	ck_assert_uint_eq(asks(), 1);
	fake_pass(&fake, 2 * SECOND);
	give_back(liar, bait, GiB);
	fake_pass(&fake, 100 * MS);
	ck_assert_uint_eq(q.ended, 0);
	/* From now on, whatever it claims, the others are asked as well. */
	ck_assert_uint_eq(fake_asked(&fake, c)->spill, 9 * GiB);
	give_back(c, lease, 9 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);

	fake_pass(&fake, 60 * SECOND);
	asks();
	fake_ask(&fake, &q, b, d, 8 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake_asked(&fake, liar)->spill, 8 * GiB);
	ck_assert_uint_eq(fake_asked(&fake, c)->spill, 8 * GiB);

	/* It is believed again when it has returned half of what it had promised. */
	give_back(liar, bait, 8 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	fake_pass(&fake, 60 * SECOND);
	asks();
	fake_ask(&fake, &q, b, d, 8 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake_asked(&fake, liar)->spill, 8 * GiB);
	ck_assert_uint_eq(asks(), 1);
}
END_TEST

/* A user's request lacks what the user may not have, so that its own clients alone are asked: a liar, which moves nothing. Another
 * user has 40 GiB cached, and 20 GiB are free. */
static void ask_a_liar(struct fake_request *q)
{
	struct gm_session *liar = fake_session(&fake, 9, 9), *asker = fake_session(&fake, 10, 9);

	no_levels();
	give(9, GM_QUOTA_MAX, 40 * GiB, 0);
	fake_lease(&fake, liar, d, 40 * GiB);
	fake_says(&fake, liar, d, 0, 40 * GiB);
	fake_lease(&fake, c, d, 40 * GiB);
	fake_says(&fake, c, d, 40 * GiB, 0);
	fake_wait(&fake, q, asker, d, 30 * GiB, 100 * SECOND);
	ck_assert_uint_eq(fake_asked(&fake, liar)->spill, 30 * GiB);
	ck_assert_uint_eq(asks(), 1);
}

START_TEST(what_clients_owe_for_another_users_request_is_not_waited_for)
{
	static struct fake_request lure, q;

	ask_a_liar(&lure);
	fake_ask(&fake, &q, b, d, 30 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));
	ck_assert_uint_eq(fake_asked(&fake, c)->bytes, 10 * GiB);
}
END_TEST

START_TEST(nor_is_it_when_that_request_was_taken_back)
{
	static struct fake_request lure, q;

	ask_a_liar(&lure);
	gm_core_cancel(fake.core, &lure.r);
	fake_wait(&fake, &q, b, d, 30 * GiB, 100 * SECOND);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));
	ck_assert_uint_eq(fake_asked(&fake, c)->bytes, 10 * GiB);
}
END_TEST

START_TEST(what_moves_for_another_user_keeps_no_request_from_being_refused)
{
	static struct fake_request lure, q;

	ask_a_liar(&lure);
	/* All that others have is too little. */
	fake_ask(&fake, &q, b, d, 70 * GiB, GM_TRANSPORT_AUTO);
	fake_pass(&fake, 200 * MS);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
}
END_TEST

START_TEST(a_request_that_may_not_wait_is_not_refused_for_what_another_user_waits_for)
{
	static struct fake_request vain, q;

	no_levels();
	fake_lease(&fake, c, d, 90 * GiB);
	fake_wait(&fake, &vain, a, d, 90 * GiB, 100 * SECOND);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));
	/* The client had nothing, and is left alone for a second. Then it has less than that request lacks. */
	fake_pass(&fake, 1150 * MS);
	asks();
	fake_says(&fake, c, d, 40 * GiB, 0);
	fake_ask(&fake, &q, b, d, 20 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));
}
END_TEST

START_TEST(who_had_nothing_is_asked_at_once_for_what_it_has_now)
{
	static struct fake_request vain, q;

	no_levels();
	fake_lease(&fake, c, d, 90 * GiB);
	fake_wait(&fake, &vain, a, d, 90 * GiB, 100 * SECOND);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));
	fake_pass(&fake, 150 * MS);
	asks();

	/* It is left alone as long as it says nothing else. */
	fake_ask(&fake, &q, b, d, 20 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_ptr_null(fake_asked(&fake, c));
	fake_pass(&fake, 250 * MS);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	fake_says(&fake, c, d, 40 * GiB, 0);
	fake_ask(&fake, &q, b, d, 20 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));

	/* Now it has broken its word, and nobody believes it for a while. */
	fake_pass(&fake, 250 * MS);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	asks();
	fake_ask(&fake, &q, b, d, 20 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_ptr_null(fake_asked(&fake, c));
}
END_TEST

/* A user has two clients that move 2 GiB each, one after the other, and each just before its time is over: so somebody owes
 * something for a request at any time. */
struct relay {
	struct gm_session *asker, *client[2];
	struct gm_lease *lease[2];
	unsigned turn;
};

static void relay_take(struct relay *relay, unsigned i)
{
	relay->lease[i] = fake_lease(&fake, relay->client[i], d, 2 * GiB);
	fake_says(&fake, relay->client[i], d, 0, 2 * GiB);
}

static void relay_begin(struct relay *relay)
{
	*relay = (struct relay){.asker = fake_session(&fake, 9, 9)};
	give(9, GM_QUOTA_MAX, 4 * GiB, 0);
	for (unsigned i = 0; i < 2; i++) {
		relay->client[i] = fake_session(&fake, 9, 9);
		relay_take(relay, i);
	}
}

/* Has the next client asked. One second later, the one before it returns what it owes, and takes it again. */
static void relay_pass(struct relay *relay)
{
	static struct fake_request q;

	/* The other one owes 2 GiB already. */
	asks();
	fake_wait(&fake, &q, relay->asker, d, (relay->turn ? 4 : 2) * GiB, 100 * SECOND);
	gm_core_cancel(fake.core, &q.r);
	fake_pass(&fake, SECOND);
	unsigned before = ++relay->turn % 2;
	if (relay->turn > 1) {
		give_back(relay->client[before], relay->lease[before], 2 * GiB);
		fake_core_run(&fake);
		relay_take(relay, before);
	}
}

START_TEST(a_user_that_always_has_somebody_asked_keeps_no_other_from_asking_again)
{
	static struct fake_request q;
	struct relay relay;

	no_levels();
	relay_begin(&relay);
	fake_lease(&fake, c, d, 96 * GiB);
	relay_pass(&relay);
	/* The honest client uses everything when it is asked first. */
	fake_wait(&fake, &q, b, d, 20 * GiB, 100 * SECOND);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));
	relay_pass(&relay);
	fake_says(&fake, c, d, 40 * GiB, 0);
	bool asked = false;
	for (int i = 0; i < 5; i++) {
		relay_pass(&relay);
		asked = asked || fake_asked(&fake, c);
	}
	ck_assert(asked);
}
END_TEST

/* The client that is asked first moves nothing. */
START_TEST(nor_does_it_keep_a_request_that_may_not_wait_from_its_second_round)
{
	static struct fake_request q;
	struct relay relay;

	no_levels();
	relay_begin(&relay);
	relay_pass(&relay);
	relay_pass(&relay);
	struct gm_session *liar = fake_session(&fake, 8, 8);
	fake_lease(&fake, liar, d, 76 * GiB);
	fake_says(&fake, liar, d, 0, 76 * GiB);
	struct gm_lease *lease = fake_lease(&fake, c, d, 20 * GiB);
	fake_says(&fake, c, d, 0, 20 * GiB);
	asks();

	fake_ask(&fake, &q, b, d, 20 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_ptr_nonnull(fake_asked(&fake, liar));
	ck_assert_ptr_null(fake_asked(&fake, c));
	for (int i = 0; i < 5 && !fake_asked(&fake, c); i++)
		relay_pass(&relay);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));
	give_back(c, lease, 20 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

START_TEST(nor_does_it_hide_a_deadlock_under_another_users_limit)
{
	static struct fake_request q[2];
	struct gm_session *twin = fake_session(&fake, 2, 2);
	struct relay relay;

	no_levels();
	relay_begin(&relay);
	relay_pass(&relay);
	relay_pass(&relay);
	give(2, GM_QUOTA_MAX, 10 * GiB, 0);
	fake_lease(&fake, b, d, 5 * GiB);
	fake_lease(&fake, twin, d, 5 * GiB);
	fake_wait(&fake, &q[0], b, d, 3 * GiB, GM_WAIT_FOREVER);
	fake_wait(&fake, &q[1], twin, d, 3 * GiB, GM_WAIT_FOREVER);
	for (int i = 0; i < 15 && !q[1].ended; i++)
		relay_pass(&relay);
	ck_assert_uint_eq(q[1].ended, 1);
	ck_assert_int_eq(q[1].status, GPUMEM_E_DEADLOCK);
}
END_TEST

/* The client that has enough owes something for another user's request at first. Meanwhile, there is news twice. */
START_TEST(a_request_that_may_not_wait_asks_a_client_that_has_returned_what_it_owed_another_user)
{
	static struct fake_request first, q;
	struct gm_session *other = fake_session(&fake, 4, 4);
	struct relay relay;

	no_levels();
	policy.max_pool = 0;
	gm_core_set_policy(fake.core, d, &policy);
	relay_begin(&relay);
	relay_pass(&relay);
	relay_pass(&relay);
	struct gm_lease *news = fake_lease(&fake, a, d, 56 * GiB);
	give(1, GM_QUOTA_GUARANTEE, 56 * GiB, 0);
	struct gm_lease *lease = fake_lease(&fake, c, d, 40 * GiB);
	fake_says(&fake, c, d, 30 * GiB, 0);
	fake_wait(&fake, &first, other, d, 12 * GiB, 100 * SECOND);
	ck_assert_uint_eq(fake_asked(&fake, c)->bytes, 12 * GiB);
	asks();
	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	/* As long as nobody is free to answer, nobody is looked at again. */
	uint64_t steps = fake.core->devices[d].ladder.steps;
	for (int i = 0; i < 2; i++) {
		give_back(a, news, GiB);
		fake_core_run(&fake);
	}
	ck_assert_uint_eq(fake.core->devices[d].ladder.steps, steps);
	ck_assert_uint_eq(asks(), 0);

	give_back(c, lease, 12 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(first.status, GPUMEM_OK);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));
	ck_assert_uint_eq(fake_asked(&fake, c)->bytes, 10 * GiB);
	give_back(c, lease, 10 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

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
			const struct gm_reclaim *ask = fake_asked(&fake, c);
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

/* The honest client holds 40 GiB that it can move. Returns a lease of 10 GiB of them. */
static struct gm_lease *add_honest(void)
{
	no_levels();
	policy.max_pool = 0;
	gm_core_set_policy(fake.core, d, &policy);
	fake_lease(&fake, c, d, 30 * GiB);
	struct gm_lease *lease = fake_lease(&fake, c, d, 10 * GiB);
	fake_says(&fake, c, d, 0, 40 * GiB);
	return lease;
}

/* Of 200 s with a pause of 2.1 s, one move in each pause would be 95. */
START_TEST(who_waits_before_it_asks_again_rests_for_longer_each_time_all_the_same)
{
	struct gm_lease *lease = add_honest();
	fake_lease(&fake, a, d, 60 * GiB);
	ck_assert_uint_le(thrash(b, lease, 200 * SECOND, 2100 * MS), 20);
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

/* The honest client caches 10 GiB of its 40. Nothing is free. Returns the lease of those 10. */
static struct gm_lease *add_cache(void)
{
	struct gm_lease *lease = add_honest();

	fake_lease(&fake, a, d, 60 * GiB);
	fake_says(&fake, c, d, 10 * GiB, 0);
	return lease;
}

/* The honest client returns its cache if it was asked for it. Returns whether it was. */
static bool return_cache(struct gm_lease *lease)
{
	const struct gm_reclaim *ask = fake_asked(&fake, c);
	bool asked = ask && ask->bytes > 0;

	if (asked) {
		give_back(c, lease, 10 * GiB);
		fake_says(&fake, c, d, 0, 0);
	}
	asks();
	fake_core_run(&fake);
	return asked;
}

/* It takes its 10 GiB back, and caches them. */
static struct gm_lease *cache_again(void)
{
	struct gm_lease *lease = fake_lease(&fake, c, d, 10 * GiB);

	fake_says(&fake, c, d, 10 * GiB, 0);
	return lease;
}

/* Waits until the request is over. Returns how often the honest client returned its cache meanwhile. */
static unsigned serve_cache(struct fake_request *q, struct gm_lease *lease)
{
	unsigned n = 0;

	for (int i = 0; i < 500 && !q->ended; i++) {
		n += return_cache(lease);
		if (!q->ended)
			fake_pass(&fake, 10 * MS);
	}
	ck_assert_uint_eq(q->ended, 1);
	return n;
}

/* The user gets what the honest client cached, and gives it back at once. */
static void waste_cache(struct fake_request *q, struct gm_lease *lease)
{
	fake_ask(&fake, q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(serve_cache(q, lease), 1);
	gm_lease_return(b, q->r.lease);
	fake_core_run(&fake);
}

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

/* Others cache too little, but could move buffers. */
START_TEST(a_request_that_may_not_wait_waits_for_what_others_could_move)
{
	static struct fake_request q;
	waste_cache(&q, add_cache());
	cache_again();
	fake_says(&fake, c, d, 10 * GiB, 30 * GiB);
	asks();

	fake_ask(&fake, &q, b, d, 20 * GiB, GM_TRANSPORT_AUTO);
	fake_core_run(&fake);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_ptr_null(fake_asked(&fake, c));
	fake_pass(&fake, SECOND);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_uint_eq(fake_asked(&fake, c)->bytes, 20 * GiB);
	ck_assert_uint_eq(fake_asked(&fake, c)->spill, 10 * GiB);
}
END_TEST

/* Neither its own user's clients nor the others have enough alone. */
START_TEST(a_request_that_may_not_wait_waits_for_what_others_have_beside_its_own_user)
{
	struct gm_lease *lease = add_cache();
	struct gm_session *twin = fake_session(&fake, 2, 2);
	static struct fake_request q;
	waste_cache(&q, lease);
	fake_lease(&fake, twin, d, 5 * GiB);
	fake_lease(&fake, c, d, 5 * GiB);
	fake_says(&fake, twin, d, 5 * GiB, 0);
	fake_says(&fake, c, d, 5 * GiB, 0);

	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	fake_core_run(&fake);
	ck_assert_uint_eq(q.ended, 0);
	asks();
	fake_pass(&fake, SECOND);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_uint_eq(fake_asked(&fake, twin)->bytes, 5 * GiB);
	ck_assert_uint_eq(fake_asked(&fake, c)->bytes, 5 * GiB);
}
END_TEST

/* The large one is not the small one's affair. */
START_TEST(a_request_that_may_not_wait_is_not_refused_for_what_a_request_before_it_lacks)
{
	struct gm_lease *lease = add_cache();
	static struct fake_request q, large;
	waste_cache(&q, lease);
	cache_again();
	asks();

	fake_wait(&fake, &large, b, d, 50 * GiB, 100 * SECOND);
	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	fake_core_run(&fake);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_ptr_null(fake_asked(&fake, c));
}
END_TEST

START_TEST(a_request_that_may_not_wait_is_refused_at_once_if_others_have_too_little)
{
	static struct fake_request q;
	waste_cache(&q, add_cache());
	cache_again();
	asks();

	uint64_t begin = fake.now;
	fake_ask(&fake, &q, b, d, 20 * GiB, GM_TRANSPORT_AUTO);
	fake_core_run(&fake);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_uint_eq(fake.now, begin);
	ck_assert_ptr_null(fake_asked(&fake, c));
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

/* The request that rests may not wait. */
START_TEST(a_user_that_always_has_somebody_asked_keeps_no_other_from_asking_after_its_rest)
{
	static struct fake_request q;
	struct relay relay;

	struct gm_lease *lease = add_honest();
	fake_lease(&fake, a, d, 56 * GiB);
	fake_says(&fake, c, d, 10 * GiB, 0);
	relay_begin(&relay);
	relay_pass(&relay);
	relay_pass(&relay);
	waste_cache(&q, lease);
	lease = cache_again();

	asks();
	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_ptr_null(fake_asked(&fake, c));
	relay_pass(&relay);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_ptr_nonnull(fake_asked(&fake, c));
	give_back(c, lease, 10 * GiB);
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

/* ---- what a person is told about a request that rests */

#define RESTS \
	"other users' clients returned memory that this user does not hold, and are left alone"

static bool note_rest(void *ctx, const struct gm_queue_info *info)
{
	if (info->rests_ns > 0)
		*(uint64_t *)ctx = info->rests_ns;
	return true;
}

/* How long the list of requests says that one of them rests. 0: none does. */
static uint64_t listed_rest(void)
{
	uint64_t ns = 0;

	gm_core_queue_each(fake.core, d, &GM_QUEUE_FIRST, note_rest, &ns);
	return ns;
}

START_TEST(a_request_that_rests_is_listed_with_the_rest_of_that_time_and_told_about_once)
{
	static struct fake_request q;
	waste_cache(&q, add_cache());
	cache_again();
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_RESTS), 0);

	fake_wait(&fake, &q, b, d, 10 * GiB, 100 * SECOND);
	ck_assert_uint_eq(listed_rest(), SECOND);
	const struct fake_event *told = fake_told(&fake, GM_EVENT_RESTS);
	ck_assert_ptr_nonnull(strstr(told->text, "rests, asked for 10.0G: " RESTS));
	ck_assert_ptr_nonnull(strstr(told->text, "for 1s at most"));
	ck_assert_uint_eq(told->event.asked, 10 * GiB);
	fake_pass(&fake, 400 * MS);
	ck_assert_uint_eq(listed_rest(), 600 * MS);

	fake_pass(&fake, 600 * MS);
	ck_assert_uint_eq(listed_rest(), 0);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_RESTS), 1);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_QUEUED), 1);
}
END_TEST

/* How often a plan looked at a client while memory came back, and nobody could be asked. */
static uint64_t count_plans(struct gm_lease *news)
{
	uint64_t before = fake.core->devices[d].ladder.steps;

	give_back(a, news, GiB);
	fake_core_run(&fake);
	return fake.core->devices[d].ladder.steps - before;
}

START_TEST(a_request_that_rests_looks_at_no_client_for_each_piece_of_news)
{
	static struct fake_request q;
	struct gm_lease *lease = add_honest(), *news = fake_lease(&fake, a, d, 60 * GiB);
	give(1, GM_QUOTA_GUARANTEE, 60 * GiB, 0);
	fake_says(&fake, c, d, 10 * GiB, 0);
	waste_cache(&q, lease);
	cache_again();

	fake_wait(&fake, &q, b, d, 10 * GiB, 100 * SECOND);
	ck_assert_uint_gt(listed_rest(), 0);
	ck_assert_uint_eq(count_plans(news), 0);
}
END_TEST

/* A client that holds something, too: 20 requests of its own cost no more than one. */
START_TEST(if_nobody_has_anything_for_a_client_its_requests_find_that_out_once_a_second)
{
	static struct fake_request q[20];

	no_levels();
	fake_lease(&fake, b, d, 10 * GiB);
	fake_lease(&fake, a, d, 90 * GiB);
	for (int i = 0; i < 20; i++)
		fake_wait(&fake, &q[i], b, d, 10 * GiB, 100 * SECOND);
	uint64_t before = fake.core->devices[d].ladder.steps;
	fake_pass(&fake, SECOND + MS);
	uint64_t steps = fake.core->devices[d].ladder.steps - before;
	ck_assert_uint_gt(steps, 0);
	ck_assert_uint_lt(steps, 20);
}
END_TEST

START_TEST(a_request_that_may_not_wait_is_told_about_once_as_well)
{
	static struct fake_request q;
	waste_cache(&q, add_cache());
	struct gm_lease *lease = cache_again();

	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(listed_rest(), SECOND);
	serve_cache(&q, lease);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_RESTS), 1);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_QUEUED), 0);
}
END_TEST

START_TEST(a_request_whose_time_is_over_while_it_rests_is_told_so)
{
	static struct fake_request q;
	waste_cache(&q, add_cache());
	cache_again();

	fake_wait(&fake, &q, b, d, 10 * GiB, 500 * MS);
	fake_pass(&fake, 500 * MS);
	ck_assert_int_eq(q.status, GPUMEM_E_TIMEOUT);
	ck_assert_ptr_nonnull(strstr(q.detail, "waited 500ms: " RESTS));
	ck_assert_ptr_nonnull(strstr(q.detail, "for 500ms at most; device 0 has 0B available"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ask");
	TCase *tcase = tcase_create("ask");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_liar_does_not_get_a_request_refused_that_an_honest_client_covers);
	tcase_add_test(tcase, a_liar_that_returns_a_little_in_time_is_still_a_liar);
	tcase_add_test(tcase, what_clients_owe_for_another_users_request_is_not_waited_for);
	tcase_add_test(tcase, nor_is_it_when_that_request_was_taken_back);
	tcase_add_test(tcase, what_moves_for_another_user_keeps_no_request_from_being_refused);
	tcase_add_test(
		tcase, a_request_that_may_not_wait_is_not_refused_for_what_another_user_waits_for);
	tcase_add_test(tcase, who_had_nothing_is_asked_at_once_for_what_it_has_now);
	tcase_add_test(
		tcase, a_user_that_always_has_somebody_asked_keeps_no_other_from_asking_again);
	tcase_add_test(tcase, nor_does_it_keep_a_request_that_may_not_wait_from_its_second_round);
	tcase_add_test(tcase, nor_does_it_hide_a_deadlock_under_another_users_limit);
	tcase_add_test(tcase,
		a_request_that_may_not_wait_asks_a_client_that_has_returned_what_it_owed_another_user);
	tcase_add_test(tcase, a_user_cannot_make_others_move_buffers_for_nothing_again_and_again);
	tcase_add_test(
		tcase, who_waits_before_it_asks_again_rests_for_longer_each_time_all_the_same);
	tcase_add_test(tcase, what_a_request_found_free_is_no_reason_to_disturb_others);
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
	tcase_add_test(tcase, a_request_that_may_not_wait_waits_for_what_others_could_move);
	tcase_add_test(
		tcase, a_request_that_may_not_wait_waits_for_what_others_have_beside_its_own_user);
	tcase_add_test(tcase,
		a_request_that_may_not_wait_is_not_refused_for_what_a_request_before_it_lacks);
	tcase_add_test(
		tcase, a_request_that_may_not_wait_is_refused_at_once_if_others_have_too_little);
	tcase_add_test(tcase, who_emptied_others_caches_for_nothing_still_gets_its_own);
	tcase_add_test(
		tcase, a_user_whose_own_clients_returned_something_for_nothing_does_not_rest);
	tcase_add_test(tcase,
		a_user_whose_request_fails_while_another_user_has_somebody_asked_does_not_rest);
	tcase_add_test(
		tcase, a_user_whose_request_fails_while_its_own_client_is_asked_does_not_rest);
	tcase_add_test(tcase,
		a_user_that_always_has_somebody_asked_keeps_no_other_from_asking_after_its_rest);
	tcase_add_test(tcase,
		a_request_that_rests_is_listed_with_the_rest_of_that_time_and_told_about_once);
	tcase_add_test(tcase, a_request_that_rests_looks_at_no_client_for_each_piece_of_news);
	tcase_add_test(tcase,
		if_nobody_has_anything_for_a_client_its_requests_find_that_out_once_a_second);
	tcase_add_test(tcase, a_request_that_may_not_wait_is_told_about_once_as_well);
	tcase_add_test(tcase, a_request_whose_time_is_over_while_it_rests_is_told_so);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
