/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/reclaim/reclaim_backoff.c, through the core: what becomes of a request while other users' clients are exempt from what it asks, and what a
 * person is told about that. */
#include <string.h>

#include "daemon/queue/queue.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"
#include "tests/unit/reclaim/reclaim_fixture.h"
#include "tests/unit/reclaim/ask_fixture.h"
#include "tests/unit/reclaim/backoff_fixture.h"

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

/* How often a plan looked at a client while memory came back, and nobody could be asked. */
static uint64_t count_plans(struct gm_lease *news)
{
	uint64_t before = fake.core->devices[d].reclaim.steps;

	give_back(a, news, GiB);
	fake_core_run(&fake);
	return fake.core->devices[d].reclaim.steps - before;
}

START_TEST(a_request_that_rests_looks_at_no_client_for_each_piece_of_news)
{
	static struct fake_request q;
	struct gm_lease *lease = add_honest(), *news = fake_lease(&fake, a, d, 60 * GiB);
	give(1, GM_LIMIT_GUARANTEE, 60 * GiB, 0);
	fake_says(&fake, c, d, 10 * GiB, 0);
	waste_cache(&q, lease);
	cache_again();

	fake_wait(&fake, &q, b, d, 10 * GiB, 100 * SECOND);
	ck_assert_uint_gt(listed_rest(), 0);
	ck_assert_uint_eq(count_plans(news), 0);
}
END_TEST

/* ---- what a person is told about a request that rests */

#define RESTS \
	"other users' clients returned memory that this user does not hold, and are left alone"

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

START_TEST(a_request_that_rests_only_later_is_told_about_then)
{
	static struct fake_request q, early;
	struct gm_lease *lease = add_cache();
	fake_says(&fake, c, d, 0, 0);
	fake_wait(&fake, &early, b, d, 20 * GiB, 100 * SECOND);
	/* It asks once a second. */
	fake_pass(&fake, 2500 * MS);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_RESTS), 0);

	asks();
	fake_says(&fake, c, d, 10 * GiB, 0);
	waste_cache(&q, lease);
	cache_again();
	for (int i = 0; i < 100 && listed_rest() == 0; i++)
		fake_pass(&fake, 10 * MS);
	ck_assert_uint_gt(listed_rest(), 0);
	const struct fake_event *told = fake_told(&fake, GM_EVENT_RESTS);
	ck_assert_ptr_nonnull(told);
	ck_assert_ptr_nonnull(strstr(told->text, "rests, asked for 20.0G: " RESTS));
	ck_assert_uint_eq(early.ended, 0);
}
END_TEST

/* The user gets what the honest client moves buffers for, and gives it back at once, so often that others move no more for it. */
static void waste_buffers(struct gm_lease *lease)
{
	static struct fake_request q;

	for (int round = 0; round < 2; round++) {
		asks();
		fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
		ck_assert_uint_eq(fake_asked(&fake, c)->spill, 10 * GiB);
		give_back(c, lease, 10 * GiB);
		fake_core_run(&fake);
		ck_assert_int_eq(q.status, GPUMEM_OK);
		gm_lease_return(b, q.r.lease);
		fake_core_run(&fake);
		lease = fake_lease(&fake, c, d, 10 * GiB);
		fake_says(&fake, c, d, 0, 40 * GiB);
	}
}

START_TEST(a_rest_from_moved_buffers_is_listed_and_told_about_as_well)
{
	static struct fake_request q;
	struct gm_lease *lease = add_honest();
	fake_lease(&fake, a, d, 60 * GiB);
	waste_buffers(lease);
	asks();

	fake_wait(&fake, &q, b, d, 10 * GiB, 100 * SECOND);
	uint64_t rest = listed_rest();
	ck_assert_uint_gt(rest, 0);
	const struct fake_event *told = fake_told(&fake, GM_EVENT_RESTS);
	ck_assert_ptr_nonnull(told);
	ck_assert_ptr_nonnull(strstr(told->text,
		"other users' clients moved buffers for memory that this user does not hold, and move no more for "));

	asks();
	fake_pass(&fake, rest + SECOND);
	ck_assert_uint_eq(fake_asked(&fake, c)->spill, 10 * GiB);
	ck_assert_uint_eq(listed_rest(), 0);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_RESTS), 1);
}
END_TEST

/* Then it waits for nothing but memory. */
START_TEST(no_rest_is_listed_if_others_have_no_buffers_to_move)
{
	static struct fake_request q;
	struct gm_lease *lease = add_honest();
	fake_lease(&fake, a, d, 60 * GiB);
	waste_buffers(lease);
	fake_says(&fake, c, d, 0, 0);

	fake_wait(&fake, &q, b, d, 10 * GiB, 100 * SECOND);
	ck_assert_uint_eq(listed_rest(), 0);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_RESTS), 0);
}
END_TEST

/* ---- and about one that is refused at once */

START_TEST(a_request_that_is_refused_without_waiting_is_told_about)
{
	struct fake_request q = {0};
	no_levels();
	fake_lease(&fake, a, d, 100 * GiB);

	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	fake_pass(&fake, 10 * SECOND);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_REFUSED), 1);
	const struct fake_event *told = fake_told(&fake, GM_EVENT_REFUSED);
	ck_assert_ptr_nonnull(strstr(told->text, "refused after 100ms: device 0 has 0B available"));
	ck_assert_uint_eq(told->event.asked, 10 * GiB);
	ck_assert_int_eq(told->event.status, GPUMEM_E_NO_MEMORY);

	/* One that could never be granted. */
	fake_wait(&fake, &q, b, d, 1000 * GiB, 100 * SECOND);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_REFUSED), 2);
	ck_assert_ptr_nonnull(strstr(fake_told(&fake, GM_EVENT_REFUSED)->text,
		"refused without waiting: device 0 has 0B available"));
}
END_TEST

/* It came for another reason, so nothing was said about the limit then. */
START_TEST(a_request_that_a_limit_refuses_only_later_is_told_about)
{
	static const uint64_t max[] = {GiB, 10 * GiB}; /* never, and not now */
	struct fake_request q = {0};
	no_levels();
	fake_lease(&fake, b, d, 2 * GiB);
	fake_lease(&fake, a, d, 98 * GiB);
	fake_says(&fake, a, d, 50 * GiB, 0);

	fake_ask(&fake, &q, b, d, 10 * GiB, GM_TRANSPORT_AUTO);
	fake_pass(&fake, 50 * MS);
	ck_assert_uint_eq(q.ended, 0);
	give(2, GM_LIMIT_MAX, max[_i], 0);
	fake_pass(&fake, 10 * SECOND);
	ck_assert_int_eq(q.status, GPUMEM_E_LIMIT);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_LIMIT), 0);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_REFUSED), 1);
	const struct fake_event *told = fake_told(&fake, GM_EVENT_REFUSED);
	ck_assert_ptr_nonnull(strstr(told->text, "refused after "));
	ck_assert_uint_ge(told->event.waited_ns, 50 * MS);
	/* Watchers that may not know whose limit it is are told less. */
	ck_assert_int_eq(told->event.block, GM_BLOCK_LIMIT);
	ck_assert_int_eq(told->owner.kind, GM_OWNER_UID);
}
END_TEST

/* The library asks again for less, or when it has freed something. A limit has an event of its own. */
START_TEST(what_follows_a_refusal_or_runs_into_a_limit_is_not_told_about_twice)
{
	struct fake_request q = {0};
	no_levels();
	fake_lease(&fake, a, d, 100 * GiB);
	q.r = (struct gm_request){.session = b,
		.device = d,
		.bytes = GiB,
		.wait_ns = GM_WAIT_NEVER,
		.again = true,
		.done = fake_request_done};
	gm_core_request(fake.core, &q.r);
	fake_pass(&fake, 10 * SECOND);
	ck_assert_uint_eq(q.ended, 1);
	q.ended = 0;
	q.r.again = false;
	q.r.at_once = true;
	gm_core_request(fake.core, &q.r);
	ck_assert_uint_eq(q.ended, 1);

	give(2, GM_LIMIT_MAX, GiB, 0);
	fake_ask(&fake, &q, b, d, 2 * GiB, GM_TRANSPORT_AUTO);
	fake_pass(&fake, 10 * SECOND);
	ck_assert_int_eq(q.status, GPUMEM_E_LIMIT);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_LIMIT), 1);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_REFUSED), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("rest");
	TCase *tcase = tcase_create("rest");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_request_that_may_not_wait_waits_for_what_others_could_move);
	tcase_add_test(
		tcase, a_request_that_may_not_wait_waits_for_what_others_have_beside_its_own_user);
	tcase_add_test(tcase,
		a_request_that_may_not_wait_is_not_refused_for_what_a_request_before_it_lacks);
	tcase_add_test(
		tcase, a_request_that_may_not_wait_is_refused_at_once_if_others_have_too_little);
	tcase_add_test(tcase,
		a_user_that_always_has_somebody_asked_keeps_no_other_from_asking_after_its_rest);
	tcase_add_test(tcase, a_request_that_rests_looks_at_no_client_for_each_piece_of_news);
	tcase_add_test(tcase,
		a_request_that_rests_is_listed_with_the_rest_of_that_time_and_told_about_once);
	tcase_add_test(tcase, a_request_that_may_not_wait_is_told_about_once_as_well);
	tcase_add_test(tcase, a_request_whose_time_is_over_while_it_rests_is_told_so);
	tcase_add_test(tcase, a_request_that_rests_only_later_is_told_about_then);
	tcase_add_test(tcase, a_rest_from_moved_buffers_is_listed_and_told_about_as_well);
	tcase_add_test(tcase, no_rest_is_listed_if_others_have_no_buffers_to_move);
	tcase_add_test(tcase, a_request_that_is_refused_without_waiting_is_told_about);
	tcase_add_loop_test(tcase, a_request_that_a_limit_refuses_only_later_is_told_about, 0, 2);
	tcase_add_test(tcase, what_follows_a_refusal_or_runs_into_a_limit_is_not_told_about_twice);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
