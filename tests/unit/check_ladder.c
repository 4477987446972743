/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/core/ladder.c and climb.c, through the core: who is asked for what, by which trigger, what
 * came of it, and who is terminated in the end. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/ladder.h"
#include "daemon/core/queue.h"
#include "daemon/core/quota.h"
#include "tests/tap.h"
#include "tests/unit/failing_malloc.h"
#include "tests/unit/fake_core.h"

#define SECOND UINT64_C(1000000000)
#define MS     UINT64_C(1000000)

static struct fake_core fake;
static uint32_t d;
static char detail[GM_DETAIL_BYTES];
static struct gm_policy policy;
static struct gm_session *a, *b, *c;

/* 100 GiB, so that a GiB is a hundredth. */
static void setup(void)
{
	struct gm_core_device_info info = fake_info(100 * GiB);
	fake_core_init_asking(&fake);
	d = fake_core_add(&fake, &info);
	policy = info.policy;
	a = fake_session(&fake, 1, 1);
	b = fake_session(&fake, 2, 2);
	c = fake_session(&fake, 3, 3);
}

static void teardown(void)
{
	fake_core_deinit(&fake);
}

static void no_levels(void)
{
	fake_no_levels(&policy);
	gm_core_set_policy(fake.core, d, &policy);
}

static void give(uid_t uid, unsigned set, uint64_t bytes, int32_t priority)
{
	struct gm_owner o;
	struct gm_quota_values v = {
		.set = set, .max = bytes, .guarantee = bytes, .priority = priority};
	gm_owner_by_id(GM_OWNER_UID, uid, &o);
	ck_assert_int_eq(gm_core_set_quota(fake.core, &o, GM_ALL_DEVICES, &v, detail), GPUMEM_OK);
}

/* Returns so many bytes of a lease that is made of chunks of 1 GiB. */
static void give_back(struct gm_session *session, struct gm_lease *lease, uint64_t bytes)
{
	uint64_t ids[128];
	size_t n = 0;
	for (const struct gm_chunk *k = gm_lease_chunk(lease, 0); n < bytes / GiB; k = k->next)
		ids[n++] = k->id;
	ck_assert_int_eq(gm_lease_return_chunks(session, lease, ids, n), GPUMEM_OK);
}

static size_t asks(void)
{
	size_t n = fake.n_asks;
	fake.n_asks = 0;
	return n;
}

START_TEST(a_request_that_does_not_fit_gets_what_is_missing_and_no_more)
{
	struct gm_lease *lease = fake_lease(&fake, a, d, 70 * GiB);
	static struct fake_request q;
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_LEVEL_MEDIUM);
	fake_says(&fake, a, d, 40 * GiB, 0);
	fake_ask(&fake, &q, b, d, 50 * GiB, GM_TRANSPORT_AUTO);
	/* Another client's idle cache, while pressure is only medium. */
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_uint_eq(asks(), 1);
	const struct gm_reclaim *r = &fake.asks[0].ask;
	ck_assert_uint_eq(fake.asks[0].session, gm_session_id(a));
	ck_assert_uint_eq(r->bytes, 20 * GiB);
	ck_assert_int_eq(r->rung, GM_RUNG_CACHED);
	ck_assert_int_eq(r->trigger, GM_TRIGGER_REQUEST);
	ck_assert(!r->urgent);
	ck_assert_uint_eq(r->deadline_ns, fake.now + 100 * MS);
	ck_assert_uint_eq(fake.wake_ns, fake.now + 100 * MS);
	struct gm_reclaim_totals totals;
	gm_core_reclaim_totals(fake.core, d, GM_TRIGGER_REQUEST, &totals);
	ck_assert(totals.active && totals.runs == 1 && totals.asked == 20 * GiB);
	give_back(a, lease, 19 * GiB);
	ck_assert_uint_eq(q.ended, 0);
	give_back(a, lease, GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	const struct fake_event *e = fake_told(&fake, GM_EVENT_RECLAIM_ENDED);
	ck_assert_ptr_nonnull(e);
	ck_assert_int_eq(e->event.trigger, GM_TRIGGER_REQUEST);
	ck_assert_uint_eq(e->event.rungs[GM_RUNG_CACHED], 20 * GiB);
	ck_assert_uint_eq(e->event.need, 20 * GiB);
	ck_assert(e->event.reached);
	gm_core_reclaim_totals(fake.core, d, GM_TRIGGER_REQUEST, &totals);
	ck_assert(!totals.active && totals.reached == 1);
	ck_assert_uint_eq(totals.freed[GM_RUNG_CACHED], 20 * GiB);
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
	give(1, GM_QUOTA_PRIORITY, 0, 1);
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
	const struct gm_reclaim *r = fake_asked(&fake, a);
	ck_assert_ptr_nonnull(r);
	ck_assert_int_eq(r->rung, GM_RUNG_UNUSED);
	ck_assert(r->urgent);
	ck_assert_uint_eq(r->bytes, 10 * GiB);
	give_back(a, lease, 10 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

START_TEST(nobody_is_disturbed_when_it_could_not_be_enough)
{
	fake_lease(&fake, a, d, 10 * GiB);
	fake_lease(&fake, b, d, 60 * GiB);
	give(2, GM_QUOTA_GUARANTEE, 50 * GiB, 0);
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

START_TEST(a_client_that_ignores_it_costs_the_deadline_and_is_left_alone_for_a_while)
{
	no_levels();
	struct gm_lease *lease = fake_lease(&fake, a, d, 100 * GiB);
	static struct fake_request q;
	fake_says(&fake, a, d, 50 * GiB, 0);
	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(asks(), 1);
	fake_pass(&fake, 100 * MS - 1);
	ck_assert_uint_eq(q.ended, 0);
	fake_pass(&fake, 1);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_IGNORED), 1);
	ck_assert_uint_eq(fake_told(&fake, GM_EVENT_IGNORED)->session, gm_session_id(a));
	ck_assert_uint_eq(fake_told(&fake, GM_EVENT_IGNORED)->event.asked, 10 * GiB);
	ck_assert(!fake_told(&fake, GM_EVENT_RECLAIM_ENDED)->event.reached);
	/* Left alone: the next request is refused at once. */
	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_uint_eq(asks(), 0);
	uint64_t quiet = SECOND;
	for (int i = 0; i < 9; i++) {
		fake_pass(&fake, quiet - 1);
		fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
		ck_assert_uint_eq(asks(), 0);
		fake_pass(&fake, 1);
		fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
		ck_assert_uint_eq(asks(), 1);
		fake_pass(&fake, 100 * MS);
		ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
		quiet = quiet < 64 * SECOND ? quiet * 2 : quiet;
	}
	/* One answer makes it good again. */
	fake_pass(&fake, quiet);
	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	give_back(a, lease, 10 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	asks();
	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(asks(), 1);
}
END_TEST

START_TEST(when_what_was_claimed_does_not_come_everybody_else_is_asked)
{
	no_levels();
	fake_lease(&fake, a, d, 50 * GiB);
	struct gm_lease *lease = fake_lease(&fake, c, d, 50 * GiB);
	static struct fake_request q;
	fake_says(&fake, a, d, 50 * GiB, 0);
	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_ptr_null(fake_asked(&fake, c));
	fake_pass(&fake, 100 * MS);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_int_eq(fake_asked(&fake, c)->rung, GM_RUNG_UNUSED);
	give_back(c, lease, 10 * GiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	/* And twice the deadline is the most that a request waits that may not. */
	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	fake_pass(&fake, 200 * MS);
	ck_assert_uint_eq(q.ended, 1);
}
END_TEST

START_TEST(a_claim_beyond_what_it_holds_is_not_believed)
{
	no_levels();
	fake_lease(&fake, a, d, 2 * GiB);
	fake_lease(&fake, b, d, 98 * GiB);
	fake_says(&fake, a, d, UINT64_MAX, UINT64_MAX);
	fake_says(&fake, b, d, 10 * GiB, 0);
	static struct fake_request q;
	fake_ask(&fake, &q, c, d, 12 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake_asked(&fake, a)->bytes, 2 * GiB);
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
}
END_TEST

START_TEST(what_was_asked_for_by_pressure_comes_to_a_request_as_well)
{
	static struct fake_request q;
	struct gm_lease *lease = fake_lease(&fake, a, d, 90 * GiB);
	fake_says(&fake, a, d, 50 * GiB, 0);
	fake_lease(&fake, b, d, 6 * GiB);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_LEVEL_CRITICAL);
	ck_assert_int_eq(fake_asked(&fake, a)->trigger, GM_TRIGGER_PRESSURE);
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
	give(1, GM_QUOTA_MAX, 10 * GiB, 0);
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
		struct gm_reclaim_totals totals;
		if (leaves)
			gm_session_quarantine(victim);
		else
			gm_session_end_died(victim);
		gm_core_reclaim_totals(fake.core, d, GM_TRIGGER_REQUEST, &totals);
		ck_assert(!totals.active);
		fake_core_run(&fake);
		ck_assert_uint_eq(q.ended, 1);
		ck_assert_int_eq(q.status, leaves ? GPUMEM_E_NO_MEMORY : GPUMEM_OK);
		gm_session_end_died(b);
		b = fake_session(&fake, 2, 2);
		fake_core_run(&fake);
	}
}
END_TEST

START_TEST(at_medium_nothing_is_taken)
{
	gm_lease_return(b, fake_lease(&fake, b, d, 10 * GiB));
	fake_lease(&fake, a, d, 70 * GiB);
	fake_says(&fake, a, d, 70 * GiB, 0);
	fake_pass(&fake, 10 * SECOND);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_LEVEL_MEDIUM);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 10 * GiB);
	ck_assert_uint_eq(asks(), 0);
}
END_TEST

START_TEST(at_high_the_pool_goes_and_clients_are_asked_for_what_takes_the_level_back)
{
	gm_lease_return(b, fake_lease(&fake, b, d, 10 * GiB));
	struct gm_lease *lease = fake_lease(&fake, a, d, 82 * GiB);
	fake_says(&fake, a, d, 40 * GiB, 0);
	/* It was high before the client could say so. */
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
	const struct fake_event *e = fake_told(&fake, GM_EVENT_RECLAIM_ENDED);
	ck_assert_int_eq(e->event.trigger, GM_TRIGGER_PRESSURE);
	ck_assert_uint_eq(e->event.rungs[GM_RUNG_POOL], 10 * GiB);
	ck_assert(!e->event.reached);
	ck_assert_uint_eq(asks(), 0);
	/* The next action comes a second after the first. */
	fake_pass(&fake, SECOND - 1);
	ck_assert_uint_eq(asks(), 0);
	fake_pass(&fake, 1);
	ck_assert_uint_eq(asks(), 1);
	ck_assert_int_eq(fake.asks[0].ask.rung, GM_RUNG_CACHED);
	/* From 82 to below 75, the threshold less its hysteresis. */
	ck_assert_uint_eq(fake.asks[0].ask.bytes, 7 * GiB + 2 * MiB);
	give_back(a, lease, 8 * GiB);
	e = fake_told(&fake, GM_EVENT_RECLAIM_ENDED);
	ck_assert(e->event.reached);
	ck_assert_uint_eq(e->event.rungs[GM_RUNG_CACHED], 8 * GiB);
	/* What was asked for because of pressure is destroyed, not pooled. */
	ck_assert_uint_le(fake_pool(&fake, d).pooled, GiB);
	fake_pass(&fake, 3 * SECOND);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_LEVEL_MEDIUM);
	ck_assert_uint_eq(asks(), 0);
}
END_TEST

START_TEST(while_it_is_high_what_is_idle_goes_and_what_is_used_stays)
{
	struct gm_lease *lease = fake_lease(&fake, a, d, 82 * GiB);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_LEVEL_HIGH);
	gm_lease_return(b, fake_lease(&fake, b, d, GiB));
	gm_lease_return(c, fake_lease(&fake, c, d, 2 * GiB));
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 3 * GiB);
	for (int i = 0; i < 8; i++) {
		fake_pass(&fake, SECOND / 2);
		uint64_t misses = fake_pool(&fake, d).misses;
		gm_lease_return(b, fake_lease(&fake, b, d, GiB));
		ck_assert_uint_eq(fake_pool(&fake, d).misses, misses);
	}
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, GiB);
	gm_lease_return(a, lease);
}
END_TEST

START_TEST(at_critical_everything_unused_goes_at_once)
{
	struct gm_lease *mine = fake_lease(&fake, a, d, 50 * GiB);
	struct gm_lease *others = fake_lease(&fake, b, d, 44 * GiB);
	asks();
	fake_says(&fake, a, d, 20 * GiB, 0);
	fake_says(&fake, b, d, 10 * GiB, 0);
	struct gm_lease *last = fake_lease(&fake, c, d, 2 * GiB);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_LEVEL_CRITICAL);
	/* Within the second after the action at high: a higher level does not wait. What c asked
	 * for is not made yet, so there is nothing it could return. */
	ck_assert_uint_eq(asks(), 2);
	ck_assert(fake_figures(&fake, d).pooled == 0);
	for (int i = 0; i < 2; i++) {
		ck_assert(fake.asks[i].ask.urgent);
		ck_assert_int_eq(fake.asks[i].ask.rung, GM_RUNG_UNUSED);
		ck_assert_int_eq(fake.asks[i].ask.trigger, GM_TRIGGER_PRESSURE);
		ck_assert_uint_eq(fake.asks[i].ask.deadline_ns, fake.now + 100 * MS);
	}
	/* Nothing is pooled while it lasts. */
	gm_lease_return(c, last);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
	give_back(a, mine, 20 * GiB);
	give_back(b, others, 10 * GiB);
	const struct fake_event *e = fake_told(&fake, GM_EVENT_RECLAIM_ENDED);
	ck_assert_uint_eq(e->event.rungs[GM_RUNG_UNUSED], 30 * GiB);
	ck_assert(e->event.reached);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_figures(&fake, d).created, 64 * GiB);
	fake_pass(&fake, 5 * SECOND);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_LEVEL_MEDIUM);
	ck_assert_uint_eq(fake.victims, 0);
}
END_TEST

/* A level is left below its threshold less the hysteresis: there it still is, and something is
 * missing. */
START_TEST(on_the_border_of_a_level_there_is_something_to_do)
{
	policy.oom = GM_OOM_TERMINATE;
	gm_core_set_policy(fake.core, d, &policy);
	struct gm_lease *lease = fake_lease(&fake, a, d, 96 * GiB);
	give_back(a, lease, 6 * GiB);
	fake_core_run(&fake);
	fake_pass(&fake, 5 * SECOND);
	ck_assert_uint_eq(fake_figures(&fake, d).pressure_ppm, 900000);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_LEVEL_CRITICAL);
	ck_assert_uint_eq(fake.victims, 1);
}
END_TEST

START_TEST(at_high_nothing_more_goes_once_pressure_has_left_it)
{
	policy.dwell_ns = 60 * SECOND;
	gm_core_set_policy(fake.core, d, &policy);
	struct gm_lease *lease = fake_lease(&fake, a, d, 85 * GiB);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_LEVEL_HIGH);
	fake_says(&fake, a, d, 10 * GiB, 0);
	give_back(a, lease, 15 * GiB);
	fake_core_run(&fake);
	asks();
	uint64_t pooled = fake_pool(&fake, d).pooled;
	ck_assert_uint_gt(pooled, 0);
	fake_pass(&fake, 30 * SECOND);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_LEVEL_HIGH);
	ck_assert_uint_eq(asks(), 0);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, pooled);
}
END_TEST

START_TEST(it_was_enough_when_the_level_has_fallen_before_the_last_answer)
{
	policy.dwell_ns = 0;
	policy.reclaim_ns = 10 * SECOND;
	gm_core_set_policy(fake.core, d, &policy);
	struct gm_lease *mine = fake_lease(&fake, a, d, 50 * GiB);
	fake_lease(&fake, b, d, 44 * GiB);
	fake_says(&fake, a, d, 45 * GiB, 0);
	fake_says(&fake, b, d, GiB, 0);
	fake_lease(&fake, c, d, 2 * GiB);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_LEVEL_CRITICAL);
	give_back(a, mine, 45 * GiB);
	fake_pass(&fake, SECOND);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_LEVEL_LOW);
	/* b never answers; what was wanted is there all the same. */
	fake_pass(&fake, 20 * SECOND);
	const struct fake_event *e = fake_told(&fake, GM_EVENT_RECLAIM_ENDED);
	ck_assert_int_eq(e->event.trigger, GM_TRIGGER_PRESSURE);
	ck_assert(e->event.reached);
	ck_assert_ptr_nonnull(strstr(e->text, "; enough"));
	/* What was wanted on the way down was a part of it, not more. */
	ck_assert_uint_le(e->event.need, 22 * GiB);
	ck_assert_ptr_nonnull(fake_told(&fake, GM_EVENT_IGNORED));
}
END_TEST

START_TEST(at_critical_lower_priorities_get_nothing_new)
{
	give(1, GM_QUOTA_PRIORITY, 0, 5);
	struct gm_lease *lease = fake_lease(&fake, b, d, 96 * GiB);
	static struct fake_request q, r, w;
	fake_ask(&fake, &q, b, d, 2 * MiB, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_ptr_nonnull(strstr(q.detail, "critical pressure, and priority 0 gets nothing"));
	fake_wait(&fake, &w, c, d, 2 * MiB, 60 * SECOND);
	ck_assert_uint_eq(w.ended, 0);
	fake_ask(&fake, &r, a, d, 2 * MiB, GM_TRANSPORT_AUTO);
	fake_core_run(&fake);
	ck_assert_int_eq(r.status, GPUMEM_OK);
	give_back(b, lease, 10 * GiB);
	ck_assert_uint_eq(w.ended, 0);
	fake_pass(&fake, SECOND);
	fake_core_run(&fake);
	ck_assert_int_eq(w.status, GPUMEM_OK);
	/* When nobody is above, nobody is below. */
	gm_session_end_died(a);
	fake_lease(&fake, c, d, 10 * GiB);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_LEVEL_HIGH);
	fake_pass(&fake, 2 * SECOND);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_LEVEL_CRITICAL);
	fake_lease(&fake, c, d, 2 * MiB);
}
END_TEST

START_TEST(evictable_buffers_are_asked_for_after_what_is_unused)
{
	struct gm_lease *lease = fake_lease(&fake, a, d, 96 * GiB);
	fake_says(&fake, a, d, 0, 30 * GiB);
	asks();
	fake_pass(&fake, SECOND);
	ck_assert_uint_eq(asks(), 1);
	ck_assert_int_eq(fake.asks[0].ask.rung, GM_RUNG_SPILL);
	ck_assert_uint_eq(fake.asks[0].ask.bytes, 6 * GiB + 2 * MiB);
	ck_assert(fake.asks[0].ask.urgent);
	give_back(a, lease, 7 * GiB);
	ck_assert_uint_eq(
		fake_told(&fake, GM_EVENT_RECLAIM_ENDED)->event.rungs[GM_RUNG_SPILL], 7 * GiB);
}
END_TEST

START_TEST(only_oom_terminate_ends_a_client_and_the_right_one)
{
	policy.oom = GM_OOM_WAIT;
	gm_core_set_policy(fake.core, d, &policy);
	struct gm_session *e = fake_session(&fake, 5, 5);
	fake_lease(&fake, a, d, 40 * GiB);
	fake_lease(&fake, b, d, 25 * GiB);
	fake_lease(&fake, c, d, 5 * GiB);
	fake_lease(&fake, e, d, 28 * GiB);
	give(1, GM_QUOTA_PRIORITY, 0, 1);
	give(5, GM_QUOTA_GUARANTEE, 28 * GiB, 0);
	fake_pass(&fake, 10 * SECOND);
	ck_assert_uint_eq(fake.victims, 0);
	policy.oom = GM_OOM_TERMINATE;
	gm_core_set_policy(fake.core, d, &policy);
	fake_pass(&fake, 3 * SECOND);
	/* Not a (its priority), not e (within its guarantee), not c (smaller). */
	ck_assert_uint_eq(fake.victims, 1);
	ck_assert_uint_eq(fake.victim, gm_session_id(b));
	const struct fake_event *told = fake_told(&fake, GM_EVENT_VICTIM);
	ck_assert_uint_eq(told->session, gm_session_id(b));
	ck_assert_uint_eq(told->event.held, 25 * GiB);
	/* One at a time, however long it takes to die. */
	fake_pass(&fake, 30 * SECOND);
	ck_assert_uint_eq(fake.victims, 1);
	gm_session_end_died(b);
	fake_core_run(&fake);
	fake_pass(&fake, 30 * SECOND);
	ck_assert_uint_eq(fake.victims, 1);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_LEVEL_MEDIUM);
}
END_TEST

START_TEST(nobody_is_terminated_while_the_level_only_waits_for_its_dwell)
{
	policy.oom = GM_OOM_TERMINATE;
	policy.settle_ns = MS;
	gm_core_set_policy(fake.core, d, &policy);
	fake_lease(&fake, a, d, 50 * GiB);
	fake_lease(&fake, b, d, 46 * GiB);
	fake_pass(&fake, 10 * MS);
	ck_assert_uint_eq(fake.victims, 1);
	ck_assert_uint_eq(fake.victim, gm_session_id(a));
	gm_session_end_died(a);
	fake_core_run(&fake);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_LEVEL_CRITICAL);
	fake_pass(&fake, 5 * SECOND);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_LEVEL_LOW);
	ck_assert_uint_eq(fake.victims, 1);
}
END_TEST

START_TEST(cleanup_comes_a_second_before_the_first_termination)
{
	policy.oom = GM_OOM_TERMINATE;
	gm_core_set_policy(fake.core, d, &policy);
	fake_lease(&fake, a, d, 50 * GiB);
	fake_lease(&fake, a, d, 46 * GiB);
	ck_assert_uint_eq(asks(), 1);
	fake_pass(&fake, SECOND - 1);
	ck_assert_uint_eq(fake.victims, 0);
	fake_pass(&fake, 1);
	ck_assert_uint_eq(fake.victims, 1);
}
END_TEST

START_TEST(nobody_is_terminated_while_a_level_only_waits_to_fall)
{
	policy.oom = GM_OOM_TERMINATE;
	policy.dwell_ns = 10 * SECOND;
	gm_core_set_policy(fake.core, d, &policy);
	fake_lease(&fake, a, d, 60 * GiB);
	fake_lease(&fake, b, d, 36 * GiB);
	fake_pass(&fake, 2500 * MS);
	ck_assert_uint_eq(fake.victims, 1);
	ck_assert_uint_eq(fake.victim, gm_session_id(a));
	/* It ends, and 64 GiB are free; the level stays for its dwell, but there is nothing to do.
	 */
	gm_session_end_died(a);
	fake_core_run(&fake);
	asks();
	fake_pass(&fake, 9 * SECOND);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_LEVEL_CRITICAL);
	ck_assert_uint_eq(fake.victims, 1);
	ck_assert_uint_eq(asks(), 0);
	/* When it is short again within the dwell, somebody is. */
	struct gm_session *e = fake_session(&fake, 5, 5);
	fake_lease(&fake, e, d, 60 * GiB);
	fake_pass(&fake, 3 * SECOND);
	ck_assert_uint_eq(fake.victims, 2);
	ck_assert_uint_eq(fake.victim, gm_session_id(e));
}
END_TEST

START_TEST(a_victim_that_ended_by_itself_is_no_lack_of_rights)
{
	policy.oom = GM_OOM_TERMINATE;
	gm_core_set_policy(fake.core, d, &policy);
	fake.terminate = -ESRCH;
	fake_lease(&fake, a, d, 50 * GiB);
	fake_lease(&fake, b, d, 46 * GiB);
	fake_pass(&fake, 3 * SECOND);
	ck_assert_uint_eq(fake.victims, 1);
	ck_assert_ptr_null(fake_told(&fake, GM_EVENT_VICTIM));
	/* Its memory is as good as back; when it is and does not do, the next one goes. */
	fake.terminate = 0;
	gm_session_end_died(a);
	fake_core_run(&fake);
	fake_lease(&fake, b, d, 50 * GiB);
	fake_pass(&fake, 5 * SECOND);
	ck_assert_uint_eq(fake.victims, 2);
	ck_assert_uint_eq(fake.victim, gm_session_id(b));
	ck_assert_int_eq(fake_told(&fake, GM_EVENT_VICTIM)->event.error, 0);
}
END_TEST

START_TEST(without_the_right_to_terminate_it_is_told_once)
{
	policy.oom = GM_OOM_TERMINATE;
	gm_core_set_policy(fake.core, d, &policy);
	fake.terminate = -EPERM;
	fake_lease(&fake, a, d, 96 * GiB);
	fake_pass(&fake, 20 * SECOND);
	ck_assert_uint_eq(fake.victims, 1);
	ck_assert_int_eq(fake_told(&fake, GM_EVENT_VICTIM)->event.error, -EPERM);
	ck_assert_ptr_nonnull(
		strstr(fake_told(&fake, GM_EVENT_VICTIM)->text, "the daemon has no right to"));
	/* Nor for another reason, and that is not called a right. */
	gm_session_end_died(a);
	fake_core_run(&fake);
	fake_pass(&fake, 5 * SECOND);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_LEVEL_LOW);
	fake.terminate = -ENOMEM;
	fake_lease(&fake, b, d, 96 * GiB);
	fake_pass(&fake, 20 * SECOND);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_VICTIM), 2);
	ck_assert_ptr_nonnull(strstr(fake_told(&fake, GM_EVENT_VICTIM)->text, "but cannot be"));
}
END_TEST

START_TEST(nobody_is_terminated_for_what_foreign_programs_use)
{
	policy.oom = GM_OOM_TERMINATE;
	gm_core_set_policy(fake.core, d, &policy);
	fake_lease(&fake, a, d, 2 * GiB);
	gm_core_sample(fake.core, d, 2 * GiB);
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_LEVEL_CRITICAL);
	fake_pass(&fake, 20 * SECOND);
	ck_assert_uint_eq(fake.victims, 0);
}
END_TEST

START_TEST(below_min_free_the_pool_gives_and_nobody_else)
{
	no_levels();
	policy.min_free = 4 * GiB;
	gm_core_set_policy(fake.core, d, &policy);
	fake_lease(&fake, a, d, 50 * GiB);
	fake_says(&fake, a, d, 50 * GiB, 0);
	gm_lease_return(b, fake_lease(&fake, b, d, 10 * GiB));
	/* A foreign program takes all but 1 GiB of what is free. */
	gm_core_sample(fake.core, d, GiB);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 7 * GiB);
	const struct fake_event *e = fake_told(&fake, GM_EVENT_RECLAIM_ENDED);
	ck_assert_int_eq(e->event.trigger, GM_TRIGGER_MIN_FREE);
	ck_assert_uint_eq(e->event.need, 3 * GiB);
	ck_assert_uint_eq(e->event.rungs[GM_RUNG_POOL], 3 * GiB);
	ck_assert(e->event.reached);
	ck_assert_uint_eq(asks(), 0);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_figures(&fake, d).free, 4 * GiB);
}
END_TEST

static void same_plan(const struct gm_ladder_plan *x, const struct gm_ladder_plan *y)
{
	ck_assert_uint_eq(x->need, y->need);
	ck_assert_uint_eq(x->planned, y->planned);
	ck_assert_uint_eq(x->n_steps, y->n_steps);
	for (size_t i = 0; i < x->n_steps; i++) {
		ck_assert_int_eq(x->steps[i].rung, y->steps[i].rung);
		ck_assert_ptr_eq(x->steps[i].session, y->steps[i].session);
		ck_assert_uint_eq(x->steps[i].bytes, y->steps[i].bytes);
	}
}

START_TEST(a_dry_run_names_the_victims_of_the_real_one_and_each_gives_what_the_plan_said)
{
	no_levels();
	struct gm_lease *of_a = fake_lease(&fake, a, d, 40 * GiB);
	struct gm_lease *of_b = fake_lease(&fake, b, d, 40 * GiB);
	gm_lease_return(c, fake_lease(&fake, c, d, 10 * GiB));
	fake_says(&fake, a, d, 15 * GiB, 0);
	fake_says(&fake, b, d, 20 * GiB, 5 * GiB);
	struct gm_ladder_plan dry, real;
	uint64_t before = fake.n_events;
	/* 10 are free, 10 pooled, 20 of b, 10 of a. */
	ck_assert_int_eq(gm_core_cleanup_plan(fake.core, d, 50 * GiB, &dry, detail), GPUMEM_OK);
	ck_assert_uint_eq(asks(), 0);
	ck_assert_uint_eq(fake.n_events, before);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 10 * GiB);
	ck_assert_uint_eq(dry.need, 40 * GiB);
	ck_assert_uint_eq(dry.rungs[GM_RUNG_POOL], 10 * GiB);
	ck_assert_uint_eq(dry.rungs[GM_RUNG_CACHED], 30 * GiB);
	ck_assert_int_eq(gm_core_cleanup(fake.core, d, 50 * GiB, &real, detail), GPUMEM_OK);
	same_plan(&dry, &real);
	ck_assert_uint_eq(fake.n_asks, real.n_steps - 1);
	for (size_t i = 1; i < real.n_steps; i++) {
		ck_assert_uint_eq(fake.asks[i - 1].session, gm_session_id(real.steps[i].session));
		ck_assert_uint_eq(fake.asks[i - 1].ask.bytes, real.steps[i].bytes);
	}
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
	give_back(b, of_b, 20 * GiB);
	give_back(a, of_a, 10 * GiB);
	const struct fake_event *e = fake_told(&fake, GM_EVENT_RECLAIM_ENDED);
	ck_assert_int_eq(e->event.trigger, GM_TRIGGER_MANUAL);
	for (unsigned r = 0; r < GM_RUNGS; r++)
		ck_assert_uint_eq(e->event.rungs[r], dry.rungs[r]);
	ck_assert(e->event.reached);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_figures(&fake, d).free, 50 * GiB);
	gm_ladder_plan_deinit(&dry);
	gm_ladder_plan_deinit(&real);
	/* By now it is. */
	ck_assert_int_eq(gm_core_cleanup(fake.core, d, 50 * GiB, &real, detail), GPUMEM_OK);
	ck_assert_uint_eq(real.n_steps, 0);
	gm_ladder_plan_deinit(&real);
}
END_TEST

START_TEST(a_cleanup_of_more_than_there_is_says_so_and_does_nothing)
{
	no_levels();
	fake_lease(&fake, a, d, 80 * GiB);
	fake_says(&fake, a, d, 5 * GiB, 0);
	gm_lease_return(c, fake_lease(&fake, c, d, 10 * GiB));
	struct gm_ladder_plan plan;
	ck_assert_int_eq(
		gm_core_cleanup(fake.core, d, 26 * GiB, &plan, detail), GPUMEM_E_NO_MEMORY);
	ck_assert_str_eq(detail,
		"device 0: 26.0G cannot be made free: 10.0G are, the pool has 10.0G, and clients "
		"say they could return 5.0G; see gpumemctl clients");
	ck_assert_uint_eq(plan.planned, 15 * GiB);
	gm_ladder_plan_deinit(&plan);
	ck_assert_uint_eq(asks(), 0);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 10 * GiB);
	ck_assert_int_eq(gm_core_cleanup(fake.core, 9, GiB, NULL, detail), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(gm_core_cleanup(fake.core, d, 0, NULL, detail), GPUMEM_OK);
	ck_assert_uint_eq(asks(), 1);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
}
END_TEST

START_TEST(without_memory_for_a_plan_nobody_is_asked)
{
	no_levels();
	fake_lease(&fake, a, d, 100 * GiB);
	fake_says(&fake, a, d, 5 * GiB, 0);
	struct gm_ladder_plan plan;
	for (uint64_t n = 1;; n++) {
		failing_malloc_arm(n);
		gpumem_status status = gm_core_cleanup_plan(fake.core, d, 0, &plan, detail);
		if (!failing_malloc_fired())
			break;
		ck_assert_int_eq(status, GPUMEM_E_HOST_MEMORY);
	}
	gm_ladder_plan_deinit(&plan);
	static struct fake_request q;
	failing_malloc_arm(1);
	fake_ask(&fake, &q, b, d, 2 * GiB, GM_TRANSPORT_AUTO);
	ck_assert(failing_malloc_fired());
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_uint_eq(asks(), 0);
}
END_TEST

/* A hundred clients with idle caches: the time it takes is theirs, core asks all of them at once.
 */
START_TEST(a_hundred_idle_caches_are_asked_for_in_the_call_that_made_it_critical)
{
	struct gm_session *s[100];
	struct gm_lease *l[100];
	for (int i = 0; i < 100; i++) {
		s[i] = fake_session(&fake, 100 + (gm_domain)i, 100 + (uid_t)i);
		l[i] = fake_lease(&fake, s[i], d, 900 * MiB);
		fake_says(&fake, s[i], d, 900 * MiB, 0);
	}
	asks();
	struct gm_lease *last = fake_lease(&fake, a, d, 9 * GiB);
	(void)last;
	ck_assert_int_eq(fake_figures(&fake, d).level, GM_LEVEL_CRITICAL);
	ck_assert_uint_ge(fake.n_asks, 100);
	for (int i = 0; i < 100; i++) {
		ck_assert(fake_asked(&fake, s[i])->urgent);
		gm_lease_return(s[i], l[i]);
	}
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_figures(&fake, d).created, 9 * GiB);
	ck_assert(fake_told(&fake, GM_EVENT_RECLAIM_ENDED)->event.reached);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ladder");
	TCase *tcase = tcase_create("ladder");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_request_that_does_not_fit_gets_what_is_missing_and_no_more);
	tcase_add_test(tcase, victims_are_the_lowest_priority_then_the_largest_then_the_oldest);
	tcase_add_test(tcase, who_says_it_has_nothing_is_asked_when_the_others_have_not_enough);
	tcase_add_test(tcase, nobody_is_disturbed_when_it_could_not_be_enough);
	tcase_add_test(
		tcase, a_client_that_ignores_it_costs_the_deadline_and_is_left_alone_for_a_while);
	tcase_add_test(tcase, when_what_was_claimed_does_not_come_everybody_else_is_asked);
	tcase_add_test(tcase, a_claim_beyond_what_it_holds_is_not_believed);
	tcase_add_test(tcase, a_second_request_asks_only_for_what_the_first_did_not);
	tcase_add_test(tcase, what_was_asked_for_by_pressure_comes_to_a_request_as_well);
	tcase_add_test(tcase, for_room_under_a_limit_only_its_own_clients_are_asked);
	tcase_add_test(tcase, the_one_who_asks_comes_last_but_its_own_cache_counts);
	tcase_add_test(tcase, who_waits_is_helped_again_and_again);
	tcase_add_test(tcase, a_client_that_dies_or_leaves_instead_of_answering_ends_the_reclaim);
	tcase_add_test(tcase, at_medium_nothing_is_taken);
	tcase_add_test(
		tcase, at_high_the_pool_goes_and_clients_are_asked_for_what_takes_the_level_back);
	tcase_add_test(tcase, while_it_is_high_what_is_idle_goes_and_what_is_used_stays);
	tcase_add_test(tcase, at_critical_everything_unused_goes_at_once);
	tcase_add_test(tcase, on_the_border_of_a_level_there_is_something_to_do);
	tcase_add_test(tcase, at_high_nothing_more_goes_once_pressure_has_left_it);
	tcase_add_test(tcase, it_was_enough_when_the_level_has_fallen_before_the_last_answer);
	tcase_add_test(tcase, at_critical_lower_priorities_get_nothing_new);
	tcase_add_test(tcase, evictable_buffers_are_asked_for_after_what_is_unused);
	tcase_add_test(tcase, only_oom_terminate_ends_a_client_and_the_right_one);
	tcase_add_test(tcase, nobody_is_terminated_while_the_level_only_waits_for_its_dwell);
	tcase_add_test(tcase, cleanup_comes_a_second_before_the_first_termination);
	tcase_add_test(tcase, nobody_is_terminated_while_a_level_only_waits_to_fall);
	tcase_add_test(tcase, a_victim_that_ended_by_itself_is_no_lack_of_rights);
	tcase_add_test(tcase, without_the_right_to_terminate_it_is_told_once);
	tcase_add_test(tcase, nobody_is_terminated_for_what_foreign_programs_use);
	tcase_add_test(tcase, below_min_free_the_pool_gives_and_nobody_else);
	tcase_add_test(tcase,
		a_dry_run_names_the_victims_of_the_real_one_and_each_gives_what_the_plan_said);
	tcase_add_test(tcase, a_cleanup_of_more_than_there_is_says_so_and_does_nothing);
	tcase_add_test(tcase, without_memory_for_a_plan_nobody_is_asked);
	tcase_add_test(
		tcase, a_hundred_idle_caches_are_asked_for_in_the_call_that_made_it_critical);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
