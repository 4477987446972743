/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/device/device_probe.c, through the core: no request is judged by a foreign figure that is older
 * than the request, probes are shared, and time is kept all the same. */
#include <string.h>

#include "daemon/device/device_probe.h"
#include "daemon/device/limit.h"
#include "daemon/queue/queue.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"

#define SECOND UINT64_C(1000000000)
#define MS     UINT64_C(1000000)

static struct fake_core fake;
static uint32_t d;
static struct gm_session *a, *b;
static struct fake_request q, p, r;

/* 4 GiB, of which others had 3 when last seen. */
static void setup(void)
{
	struct gm_core_device_info info = fake_info(4 * GiB);
	fake_no_levels(&info.policy);
	fake_core_init_probing(&fake);
	d = fake_core_add(&fake, &info);
	a = fake_session(&fake, 1, 1);
	b = fake_session(&fake, 2, 2);
	gm_core_sample(fake.core, d, GiB);
	memset(&q, 0, sizeof(q));
	memset(&p, 0, sizeof(p));
	memset(&r, 0, sizeof(r));
}

static void teardown(void)
{
	fake_core_deinit(&fake);
}

static void granted(struct fake_request *which)
{
	fake_core_run(&fake);
	ck_assert_uint_eq(which->ended, 1);
	ck_assert_int_eq(which->status, GPUMEM_OK);
	fake_core_check(&fake, d);
}

/* Whether it may wait or not, and whatever others cache or have outside the broker. */
START_TEST(what_can_never_be_granted_is_refused_before_anybody_is_asked)
{
	static const uint64_t waits[] = {GM_WAIT_NEVER, 0, SECOND, GM_WAIT_FOREVER};
	char detail[GM_DETAIL_BYTES];
	struct gm_owner owner;
	struct gm_limit_values v = {.set = GM_LIMIT_MAX, .max = GiB};
	fake_lease(&fake, b, d, GiB);
	fake_says(&fake, b, d, GiB, 0);
	gm_owner_by_id(GM_OWNER_UID, 1, &owner);
	for (unsigned i = 0; i < 4; i++) {
		fake_wait(&fake, &q, a, d, UINT64_C(1) << 40, waits[i]);
		ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
		ck_assert_ptr_nonnull(strstr(q.detail, "asked for 1.0T, which it can never give"));
		/* What others hold has no part in it. */
		ck_assert_ptr_null(strstr(q.detail, "see gpumemctl clients"));
	}
	ck_assert_int_eq(
		gm_core_set_limit(fake.core, &owner, GM_ALL_DEVICES, &v, detail), GPUMEM_OK);
	for (unsigned i = 0; i < 4; i++) {
		fake_wait(&fake, &q, a, d, GiB + 1, waits[i]);
		ck_assert_int_eq(q.status, GPUMEM_E_LIMIT);
		ck_assert_ptr_nonnull(strstr(q.detail,
			"user 1 may hold 1.0G, holds 0B, asked for 1.0G (2.0M too much), which it can "
			"never have"));
		ck_assert_ptr_nonnull(strstr(q.detail, "see gpumemctl limit"));
	}
	ck_assert_uint_eq(fake.probes, 0);
	ck_assert_uint_eq(fake.n_asks, 0);
	ck_assert_uint_eq(fake.n_jobs, 0);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_QUEUED), 0);
	ck_assert_uint_eq(fake_queue_length(&fake, d), 0);
}
END_TEST

START_TEST(a_request_is_not_refused_by_a_figure_older_than_itself)
{
	fake_ask(&fake, &q, a, d, 2 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_uint_eq(fake.probes, 1);
	ck_assert_uint_eq(fake.n_jobs, 0);
	/* The program that had it ended in the meantime. */
	fake_probed(&fake, d, 0);
	granted(&q);
	ck_assert_uint_eq(fake.probes, 1);
	ck_assert_uint_eq(fake.n_events, 0);
}
END_TEST

START_TEST(what_does_not_fit_after_the_probe_is_refused_by_what_it_saw)
{
	fake_ask(&fake, &q, a, d, 2 * GiB, GM_TRANSPORT_AUTO);
	fake_probed(&fake, d, 5 * GiB / 2);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_ptr_nonnull(strstr(q.detail, "has 1.5G available of 4.0G, asked for 2.0G"));
	ck_assert_ptr_nonnull(strstr(q.detail, "2.5G are used outside the broker"));
	ck_assert_uint_eq(fake.probes, 1);
}
END_TEST

START_TEST(nobody_is_asked_before_the_device_was_probed)
{
	fake_lease(&fake, b, d, GiB);
	fake_says(&fake, b, d, GiB, 0);
	fake_ask(&fake, &q, a, d, GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake.n_asks, 0);
	fake_probed(&fake, d, 3 * GiB);
	ck_assert_uint_eq(fake.n_asks, 1);
	ck_assert_uint_eq(q.ended, 0);
}
END_TEST

START_TEST(what_no_probe_could_make_fit_is_not_probed_for)
{
	char detail[GM_DETAIL_BYTES];
	struct gm_owner o;
	struct gm_limit_values v = {.set = GM_LIMIT_MAX, .max = 512 * MiB};
	/* Never to be had; had; over a limit; and not for want of what is foreign. */
	fake_ask(&fake, &q, a, d, 5 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	fake_ask(&fake, &q, a, d, GiB, GM_TRANSPORT_AUTO);
	granted(&q);
	gm_owner_by_id(GM_OWNER_UID, 2, &o);
	ck_assert_int_eq(gm_core_set_limit(fake.core, &o, d, &v, detail), GPUMEM_OK);
	fake_ask(&fake, &q, b, d, GiB, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(q.status, GPUMEM_E_LIMIT);
	fake_ask(&fake, &q, a, d, 4 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	gm_core_sample(fake.core, d, 3 * GiB);
	fake_lease(&fake, a, d, 3 * GiB);
	fake_ask(&fake, &q, a, d, 2 * MiB, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_uint_eq(fake.probes, 0);
}
END_TEST

START_TEST(those_who_come_during_a_probe_share_the_next_one)
{
	fake_ask(&fake, &q, a, d, 2 * GiB, GM_TRANSPORT_AUTO);
	fake_ask(&fake, &p, b, d, 2 * GiB, GM_TRANSPORT_AUTO);
	fake_ask(&fake, &r, b, d, 2 * GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(fake.probes, 1);
	/* This one may have begun before the others came: it says nothing about them. */
	fake_probed(&fake, d, 3 * GiB);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_uint_eq(p.ended + r.ended, 0);
	ck_assert_uint_eq(fake.probes, 2);
	fake_probed(&fake, d, 2 * GiB);
	/* In the order in which they came. */
	granted(&p);
	ck_assert_uint_eq(r.ended, 1);
	ck_assert_int_eq(r.status, GPUMEM_E_NO_MEMORY);
	ck_assert_uint_eq(fake.probes, 2);
}
END_TEST

START_TEST(a_sample_that_is_no_probe_grants_but_refuses_nobody)
{
	fake_ask(&fake, &q, a, d, 2 * GiB, GM_TRANSPORT_AUTO);
	gm_core_sample(fake.core, d, GiB / 2);
	ck_assert_uint_eq(q.ended, 0);
	gm_core_sample(fake.core, d, 2 * GiB);
	granted(&q);
	fake_probed(&fake, d, 0);
	ck_assert_uint_eq(fake.probes, 1);
	/* One that nobody wants is as good as any other. */
	gm_core_probed(fake.core, d);
	ck_assert_uint_eq(fake.probes, 1);
}
END_TEST

START_TEST(a_device_that_cannot_say_is_judged_by_what_is_known)
{
	fake_ask(&fake, &q, a, d, 2 * GiB, GM_TRANSPORT_AUTO);
	fake.probing = false;
	gm_core_sample_failed(fake.core, d);
	ck_assert_uint_eq(q.ended, 0);
	gm_core_probed(fake.core, d);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
}
END_TEST

START_TEST(a_probe_that_does_not_end_costs_no_more_than_the_time_that_was_given)
{
	fake_ask(&fake, &q, a, d, 2 * GiB, GM_TRANSPORT_AUTO);
	fake_wait(&fake, &p, b, d, 2 * GiB, 300 * MS);
	fake_pass(&fake, 199 * MS);
	ck_assert_uint_eq(q.ended + p.ended, 0);
	fake_pass(&fake, MS);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	fake_pass(&fake, 100 * MS);
	ck_assert_uint_eq(p.ended, 1);
	ck_assert_int_eq(p.status, GPUMEM_E_TIMEOUT);
	ck_assert_uint_eq(fake.probes, 1);
	/* Neither was ever found not to fit, so nothing is told before the end. */
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_REFUSED), 2);
	ck_assert_uint_eq(fake.n_events, 2);
	ck_assert_ptr_nonnull(strstr(fake.events[0].text, "refused after 200ms: device 0"));
	ck_assert_ptr_nonnull(strstr(fake.events[1].text, "waited 300ms: device 0"));
	fake_probed(&fake, d, 3 * GiB);
	fake_probed(&fake, d, 3 * GiB);
	ck_assert_uint_eq(fake.probes, 2);
}
END_TEST

START_TEST(who_waits_for_foreign_memory_is_told_after_the_probe_and_probed_for_again_and_again)
{
	fake_wait(&fake, &q, a, d, 2 * GiB, 10 * SECOND);
	ck_assert_ptr_null(fake_told(&fake, GM_EVENT_QUEUED));
	fake_probed(&fake, d, 3 * GiB);
	ck_assert_ptr_nonnull(fake_told(&fake, GM_EVENT_QUEUED));
	for (uint64_t i = 1; i < 5; i++) {
		ck_assert_uint_eq(fake.probes, i);
		ck_assert(!fake.probing);
		fake_pass(&fake, GM_DEVICE_PROBE_NS - 1);
		ck_assert(!fake.probing);
		fake_pass(&fake, 1);
		/* One, however long it takes. */
		fake_pass(&fake, 5 * GM_DEVICE_PROBE_NS);
		ck_assert_uint_eq(fake.probes, i + 1);
		fake_probed(&fake, d, 3 * GiB);
	}
	fake_pass(&fake, GM_DEVICE_PROBE_NS);
	fake_probed(&fake, d, 2 * GiB);
	granted(&q);
	uint64_t probes = fake.probes;
	fake_pass(&fake, SECOND);
	ck_assert_uint_eq(fake.probes, probes);
}
END_TEST

START_TEST(who_asked_in_vain_is_probed_for_once_more_before_the_refusal)
{
	fake_lease(&fake, b, d, GiB);
	fake_says(&fake, b, d, GiB, 0);
	fake_ask(&fake, &q, a, d, GiB, GM_TRANSPORT_AUTO);
	fake_probed(&fake, d, 3 * GiB);
	ck_assert_uint_eq(fake.n_asks, 1);
	/* While it is asked, the device is probed as for any request that waits. */
	fake_pass(&fake, 60 * MS);
	if (fake.probing)
		fake_probed(&fake, d, 3 * GiB);
	uint64_t probes = fake.probes;
	fake_pass(&fake, 45 * MS);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert(fake.probing);
	ck_assert_uint_gt(fake.probes, probes);
	fake_probed(&fake, d, 2 * GiB);
	granted(&q);
}
END_TEST

START_TEST(who_leaves_while_the_device_is_probed_leaves_nothing)
{
	fake_ask(&fake, &q, a, d, 2 * GiB, GM_TRANSPORT_AUTO);
	fake_ask(&fake, &p, b, d, 2 * GiB, GM_TRANSPORT_AUTO);
	gm_core_cancel(fake.core, &q.r);
	ck_assert_int_eq(q.status, GPUMEM_E_CANCELLED);
	gm_session_end_died(b);
	ck_assert_int_eq(p.status, GPUMEM_E_CANCELLED);
	ck_assert_uint_eq(fake_queue_length(&fake, d), 0);
	fake_probed(&fake, d, 0);
	fake_probed(&fake, d, 0);
	fake_lease(&fake, a, d, 4 * GiB);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("probe");
	TCase *tcase = tcase_create("probe");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_can_never_be_granted_is_refused_before_anybody_is_asked);
	tcase_add_test(tcase, a_request_is_not_refused_by_a_figure_older_than_itself);
	tcase_add_test(tcase, what_does_not_fit_after_the_probe_is_refused_by_what_it_saw);
	tcase_add_test(tcase, nobody_is_asked_before_the_device_was_probed);
	tcase_add_test(tcase, what_no_probe_could_make_fit_is_not_probed_for);
	tcase_add_test(tcase, those_who_come_during_a_probe_share_the_next_one);
	tcase_add_test(tcase, a_sample_that_is_no_probe_grants_but_refuses_nobody);
	tcase_add_test(tcase, a_device_that_cannot_say_is_judged_by_what_is_known);
	tcase_add_test(tcase, a_probe_that_does_not_end_costs_no_more_than_the_time_that_was_given);
	tcase_add_test(tcase,
		who_waits_for_foreign_memory_is_told_after_the_probe_and_probed_for_again_and_again);
	tcase_add_test(tcase, who_asked_in_vain_is_probed_for_once_more_before_the_refusal);
	tcase_add_test(tcase, who_leaves_while_the_device_is_probed_leaves_nothing);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
