/* SPDX-License-Identifier: Apache-2.0 */

/* Limits that change: at run time, by a reload, and by runs that come and go. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/device/limit.h"
#include "tests/bound.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"
#include "tests/unit/device/limit_fixture.h"
#include "tests/unit/failing_malloc.h"

START_TEST(what_was_set_at_run_time_stays_over_a_reload_until_it_is_reset)
{
	struct gm_session *s = client(7, 7, NULL, NULL, NULL);
	struct gm_limit_rule rules[2] = {
		{.owner = owner("uid:7"),
			.device = GM_ALL_DEVICES,
			.values = {.set = GM_LIMIT_MAX | GM_LIMIT_PRIORITY,
				.max = 4 * GiB,
				.priority = 3}},
		{.owner = owner("uid:7"),
			.device = 0,
			.values = {.set = GM_LIMIT_MAX, .max = 5 * GiB}},
	};
	ck_assert_int_eq(gm_core_configure(fake.core, NULL, rules, 2, detail), GPUMEM_OK);
	ck_assert_uint_eq(gm_session_max(s, d), 5 * GiB);
	ck_assert_int_eq(fake_priority(s, d), 3);
	ck_assert_int_eq(set("uid:7", 6 * GiB, 0), GPUMEM_OK);
	ck_assert_uint_eq(gm_session_max(s, d), 6 * GiB);
	ck_assert_uint_eq(shown("user 7").run_time.set, GM_LIMIT_MAX);
	/* The reload changes what nobody set by hand. */
	rules[0].values.priority = 4;
	ck_assert_int_eq(gm_core_configure(fake.core, NULL, rules, 1, detail), GPUMEM_OK);
	ck_assert_uint_eq(gm_session_max(s, d), 6 * GiB);
	ck_assert_int_eq(fake_priority(s, d), 4);
	struct gm_owner o = owner("uid:7");
	ck_assert_int_eq(gm_core_reset_limit(fake.core, &o, GM_ALL_DEVICES, detail), GPUMEM_OK);
	ck_assert_uint_eq(gm_session_max(s, d), 4 * GiB);
	ck_assert_int_eq(
		gm_core_reset_limit(fake.core, &o, GM_ALL_DEVICES, detail), GPUMEM_E_NOT_FOUND);
	/* No limit at all can be set by hand, too. */
	ck_assert_int_eq(set("uid:7", UINT64_MAX, 0), GPUMEM_OK);
	ck_assert_int_eq(ask(s, 8 * GiB), GPUMEM_OK);
	ck_assert_int_eq(gm_core_reset_limit(fake.core, NULL, GM_ALL_DEVICES, detail), GPUMEM_OK);
	ck_assert(shown("user 7").over);
	ck_assert_int_eq(gm_core_configure(fake.core, NULL, NULL, 0, detail), GPUMEM_OK);
	ck_assert_uint_eq(count(), 0);
	ck_assert_int_eq(fake_priority(s, d), 0);
}
END_TEST

START_TEST(a_reload_that_contradicts_what_was_set_keeps_the_old_one)
{
	struct gm_limit_rule rule = {.owner = owner("uid:7"),
		.device = GM_ALL_DEVICES,
		.values = {.set = GM_LIMIT_GUARANTEE, .guarantee = 2 * GiB}};
	ck_assert_int_eq(set("uid:7", GiB, 0), GPUMEM_OK);
	ck_assert_int_eq(gm_core_configure(fake.core, NULL, &rule, 1, detail), GPUMEM_E_INVALID);
	ck_assert_uint_eq(shown("user 7").values.guarantee, 0);
	rule.owner = owner("session:1");
	ck_assert_int_eq(gm_core_configure(fake.core, NULL, &rule, 1, detail), GPUMEM_E_INVALID);
	rule.owner = owner("uid:8");
	rule.device = 3; /* not there: passed over */
	ck_assert_int_eq(gm_core_configure(fake.core, NULL, &rule, 1, detail), GPUMEM_OK);
	ck_assert_uint_eq(count(), 1);
}
END_TEST

START_TEST(a_single_clients_limit_goes_with_it)
{
	struct gm_session *s = client(7, 7, NULL, NULL, NULL);
	struct gm_session *other = client(8, 8, NULL, NULL, NULL);
	char text[64];
	snprintf(text, sizeof(text), "session:%llu", (unsigned long long)gm_session_id(s));
	ck_assert_int_eq(set(text, 0, 60 * GiB), GPUMEM_OK);
	ck_assert_int_eq(ask(other, 5 * GiB), GPUMEM_E_NO_MEMORY);
	gm_session_end_died(s);
	ck_assert_uint_eq(count(), 0);
	ck_assert_int_eq(ask(other, 64 * GiB), GPUMEM_OK);
}
END_TEST

/* A client of a run in a container; max 0: it says nothing about a limit. */
static struct gm_session *contained(
	uid_t uid, const char *container, const char *run, uint64_t max, int32_t priority)
{
	uint8_t token[GM_TOKEN_BYTES];
	struct gm_session *session;
	struct gm_session_info info = {.pid = 1,
		.uid = uid,
		.gid = uid,
		.domain = uid + 1,
		.pooling = true,
		.container = container,
		.run = run,
		.run_limit = {.set = (max ? GM_LIMIT_MAX : 0) | (priority ? GM_LIMIT_PRIORITY : 0),
			.max = max,
			.priority = priority}};
	ck_assert_int_eq(gm_session_new(fake.core, &info, token, &session), 0);
	return session;
}

static struct gm_session *runner(uid_t uid, const char *run, uint64_t max, int32_t priority)
{
	return contained(uid, NULL, run, max, priority);
}

START_TEST(a_run_has_the_first_name_that_was_given_to_it)
{
	struct gm_session *a = runner(7, "r", GiB, 0), *b = runner(7, "r", GiB, 0);
	struct gm_session *other = runner(8, "r", GiB, 0), *none = client(7, 7, NULL, NULL, "x");

	gm_session_name_run(a, "");
	ck_assert_int_eq(ask(a, 2 * GiB), GPUMEM_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(detail, "run r may hold"));
	gm_session_name_run(b, "trainer");
	gm_session_name_run(a, "inner");
	gm_session_name_run(none, "none");
	ck_assert_str_eq(gm_session_run_name(a), "inner");
	ck_assert_str_eq(gm_session_run_name(b), "trainer");
	ck_assert_str_eq(gm_session_run_name(other), "");
	ck_assert_int_eq(ask(a, 2 * GiB), GPUMEM_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(detail, "run \"trainer\" may hold"));
	ck_assert_int_eq(ask(other, 2 * GiB), GPUMEM_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(detail, "run r may hold"));

	/* A change of limits keeps it. */
	ck_assert_int_eq(set("uid:9", GiB, 0), GPUMEM_OK);
	ck_assert_int_eq(ask(b, 2 * GiB), GPUMEM_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(detail, "run \"trainer\" may hold"));
}
END_TEST

START_TEST(all_clients_of_a_run_share_its_limit_and_the_last_one_ends_it)
{
	struct gm_session *a = runner(7, "r", 4 * GiB, 0), *b = runner(7, "r", 4 * GiB, 0);
	struct gm_session *other = runner(8, "r", 2 * GiB, 0),
			  *free_of = client(7, 7, NULL, NULL, NULL);

	ck_assert_uint_eq(count(), 2); /* each user has its own */
	ck_assert_int_eq(ask(a, 3 * GiB), GPUMEM_OK);
	ck_assert_int_eq(ask(b, 2 * GiB), GPUMEM_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(detail, "run r"));
	ck_assert_uint_eq(gm_session_room(b, d), GiB);
	ck_assert_int_eq(ask(b, GiB), GPUMEM_OK);
	ck_assert_int_eq(ask(a, 2 * MiB), GPUMEM_E_LIMIT);
	ck_assert_int_eq(ask(other, 2 * GiB), GPUMEM_OK);
	ck_assert_int_eq(ask(free_of, 8 * GiB), GPUMEM_OK);

	/* What one of them had, the next one can have. */
	gm_session_end_died(a);
	fake_core_run(&fake);
	ck_assert_int_eq(ask(b, 3 * GiB), GPUMEM_OK);
	ck_assert_int_eq(ask(b, 2 * MiB), GPUMEM_E_LIMIT);
	gm_session_end_died(b);
	ck_assert_uint_eq(count(), 1);
	gm_session_end_died(other);
	ck_assert_uint_eq(count(), 0);
}
END_TEST

START_TEST(containers_of_one_user_do_not_share_a_run)
{
	struct gm_session *a = contained(7, "box1", "r", 4 * GiB, 0);
	struct gm_session *b = contained(7, "box2", "r", 2 * GiB, 0);
	struct gm_session *c = contained(7, "box1", "r", 4 * GiB, 0);
	struct gm_session *outside = runner(7, "r", GiB, 0);

	ck_assert_uint_eq(count(), 3);
	ck_assert_int_eq(ask(a, 4 * GiB), GPUMEM_OK);
	ck_assert_int_eq(ask(c, 2 * MiB), GPUMEM_E_LIMIT);
	ck_assert_int_eq(ask(b, 2 * GiB), GPUMEM_OK);
	ck_assert_int_eq(ask(b, 2 * MiB), GPUMEM_E_LIMIT);
	ck_assert_int_eq(ask(outside, GiB), GPUMEM_OK);
}
END_TEST

START_TEST(the_limit_of_a_run_is_its_own)
{
	struct gm_session *a = runner(7, "r", 4 * GiB, 0);
	struct gm_limit_rule rule = {.owner = owner("uid:7"),
		.device = GM_ALL_DEVICES,
		.values = {.set = GM_LIMIT_MAX, .max = 6 * GiB}};
	struct gm_owner run = owner("run:r");

	/* Nobody else sets or resets it, and a reload leaves it as it is. */
	ck_assert_int_eq(ask(a, 3 * GiB), GPUMEM_OK);
	ck_assert_int_eq(set("run:r", 8 * GiB, 0), GPUMEM_E_INVALID);
	ck_assert_int_eq(
		gm_core_reset_limit(fake.core, &run, GM_ALL_DEVICES, detail), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(gm_core_configure(fake.core, NULL, &rule, 1, detail), GPUMEM_OK);
	ck_assert_int_eq(gm_core_reset_limit(fake.core, NULL, GM_ALL_DEVICES, detail), GPUMEM_OK);
	ck_assert_uint_eq(shown("run r").held, 3 * GiB);
	ck_assert_uint_eq(gm_session_room(a, d), GiB);

	/* Later clients do not change it. One that says nothing about it is not of the run. */
	struct gm_session *more = runner(7, "r", 20 * GiB, 0), *none = runner(7, "r", 0, 0);
	ck_assert_uint_eq(gm_session_room(more, d), GiB);
	ck_assert_uint_eq(gm_session_room(none, d), 3 * GiB);
	ck_assert_uint_eq(shown("run r").clients, 2);
	gm_session_end_died(none);
	gm_session_end_died(more);
	ck_assert_uint_eq(shown("run r").clients, 1);
	ck_assert_int_eq(ask(a, 2 * GiB), GPUMEM_E_LIMIT);
}
END_TEST

START_TEST(a_run_can_only_lower_its_priority)
{
	ck_assert_int_eq(prefer("uid:7", 3), GPUMEM_OK);
	ck_assert_int_eq(fake_priority(runner(7, "low", 0, -5), d), -5);
	ck_assert_int_eq(fake_priority(runner(7, "high", 0, 100), d), 3);
}
END_TEST

START_TEST(runs_of_users_leave_room_for_limits)
{
	char run[32];
	for (int i = 0; i < GM_BOUND_LIMITS; i++) {
		snprintf(run, sizeof(run), "run%d", i);
		runner(7, run, GiB, 0);
	}
	ck_assert_int_eq(set("uid:8", GiB, 0), GPUMEM_OK);
}
END_TEST

START_TEST(clients_hear_of_a_new_limit)
{
	struct gm_session *s = client(7, 7, NULL, NULL, NULL);
	uint64_t before = fake.session_changes;
	ck_assert_int_eq(set("uid:8", GiB, 0), GPUMEM_OK);
	ck_assert_uint_eq(fake.session_changes, before);
	ck_assert_int_eq(set("uid:7", GiB, 0), GPUMEM_OK);
	ck_assert_uint_eq(fake.session_changes, before + 1);
	ck_assert_uint_eq(gm_session_max(s, d), GiB);
	ck_assert_int_eq(gm_core_reset_limit(fake.core, NULL, d, detail), GPUMEM_OK);
	ck_assert_uint_eq(fake.session_changes, before + 2);
	ck_assert_uint_eq(gm_session_max(s, d), UINT64_MAX);
}
END_TEST

START_TEST(a_limit_too_many_is_refused)
{
	GM_BOUND_TEST(LIMITS);
	struct gm_limit_rule *rules = calloc(GM_BOUND_LIMITS + 1, sizeof(*rules));
	ck_assert_ptr_nonnull(rules);
	for (size_t i = 0; i <= GM_BOUND_LIMITS; i++) {
		gm_owner_by_id(GM_OWNER_UID, i, &rules[i].owner);
		rules[i].device = GM_ALL_DEVICES;
		rules[i].values = (struct gm_limit_values){.set = GM_LIMIT_MAX, .max = GiB};
	}
	ck_assert_int_eq(gm_core_configure(fake.core, NULL, rules, GM_BOUND_LIMITS + 1, detail),
		GPUMEM_E_LIMIT);
	ck_assert_uint_eq(count(), 0);
	ck_assert_int_eq(
		gm_core_configure(fake.core, NULL, rules, GM_BOUND_LIMITS, detail), GPUMEM_OK);
	free(rules);
	ck_assert_int_eq(set("uid:100000", GiB, 0), GPUMEM_E_LIMIT);
	ck_assert_int_eq(set("uid:3", 2 * GiB, 0), GPUMEM_OK);
}
END_TEST

START_TEST(a_reload_accepts_as_many_limits_as_a_start_beside_those_set_at_run_time)
{
	struct gm_limit_rule *rules = calloc(GM_BOUND_LIMITS, sizeof(*rules));
	ck_assert_ptr_nonnull(rules);
	for (size_t i = 0; i < GM_BOUND_LIMITS; i++) {
		gm_owner_by_id(GM_OWNER_UID, i, &rules[i].owner);
		rules[i].device = GM_ALL_DEVICES;
		rules[i].values = (struct gm_limit_values){.set = GM_LIMIT_MAX, .max = GiB};
	}
	ck_assert_int_eq(set("uid:100000", GiB, 0), GPUMEM_OK);
	ck_assert_int_eq(
		gm_core_configure(fake.core, NULL, rules, GM_BOUND_LIMITS, detail), GPUMEM_OK);
	free(rules);
	ck_assert_uint_eq(count(), GM_BOUND_LIMITS + 1);
	ck_assert_int_eq(set("uid:100001", GiB, 0), GPUMEM_E_LIMIT);
	ck_assert_int_eq(set("uid:100000", 2 * GiB, 0), GPUMEM_OK);
}
END_TEST

START_TEST(without_memory_nothing_changes)
{
	struct gm_session *s = client(7, 7, "u", "c", "n");
	ck_assert_int_eq(set("uid:7", GiB, 0), GPUMEM_OK);
	ck_assert_int_eq(set("unit:u", GiB, 0), GPUMEM_OK);
	struct gm_owner o = owner("uid:7");
	struct gm_limit_values v = {.set = GM_LIMIT_MAX, .max = 2 * GiB};
	for (uint64_t n = 1;; n++) {
		failing_malloc_arm(n);
		gpumem_status status = gm_core_set_limit(fake.core, &o, d, &v, detail);
		bool fired = failing_malloc_fired();
		ck_assert_int_eq(status, fired ? GPUMEM_E_HOST_MEMORY : GPUMEM_OK);
		if (!fired)
			break;
		ck_assert_uint_eq(shown("user 7").values.max, GiB);
		ck_assert_uint_eq(gm_session_max(s, d), GiB);
	}
	for (uint64_t n = 1;; n++) {
		uint8_t token[GM_TOKEN_BYTES];
		struct gm_session *made;
		struct gm_session_info info = {.domain = 1,
			.unit = "a",
			.name = "b",
			.run = "r",
			.run_limit = {.set = GM_LIMIT_MAX, .max = GiB}};
		failing_malloc_arm(n);
		int r = gm_session_new(fake.core, &info, token, &made);
		if (!failing_malloc_fired())
			break;
		ck_assert_int_eq(r, -ENOMEM);
	}
}
END_TEST

/* Takes so many, and then no more. */
struct part {
	unsigned room, n;
	char owners[64][GM_OWNER_TEXT];
	uint32_t devices[64];
};

static bool take(void *ctx, const struct gm_limit_info *info)
{
	struct part *part = ctx;
	if (part->room == 0)
		return false;
	part->room--;
	ck_assert_uint_lt(part->n, 64);
	gm_owner_name(&info->owner, part->owners[part->n]);
	part->devices[part->n++] = info->device;
	return true;
}

START_TEST(a_list_in_parts_has_each_limit_once_whatever_changes_in_between)
{
	struct gm_core_device_info more = fake_info(64 * GiB);
	struct gm_limit_place place = {0};
	struct part part = {.room = 3};
	char text[32];
	ck_assert_uint_eq(fake_core_add(&fake, &more), 1);
	for (int i = 0; i < 6; i++) {
		snprintf(text, sizeof(text), "uid:%d", i);
		ck_assert_int_eq(prefer(text, i), GPUMEM_OK);
	}
	/* It stops within uid 1, before its second device. */
	ck_assert(gm_core_limit_each(fake.core, &place, take, &part));
	ck_assert_uint_eq(part.n, 3);
	/* One that was listed goes, and so does the one where it stopped; one comes, one stays and
	 * has another value. */
	for (int i = 0; i < 2; i++) {
		struct gm_owner gone = owner(i ? "uid:1" : "uid:0");
		ck_assert_int_eq(
			gm_core_reset_limit(fake.core, &gone, GM_ALL_DEVICES, detail), GPUMEM_OK);
	}
	ck_assert_int_eq(prefer("uid:6", 6), GPUMEM_OK);
	ck_assert_int_eq(prefer("uid:3", 7), GPUMEM_OK);
	/* One at a time from here on, each with a change behind it. */
	for (unsigned k = 0; k < 20; k++) {
		part.room = 1;
		if (!gm_core_limit_each(fake.core, &place, take, &part))
			break;
		ck_assert_int_eq(prefer("uid:5", (int32_t)k), GPUMEM_OK);
	}
	static const char *const want[] = {"uid:0", "uid:0", "uid:1", "uid:2", "uid:2", "uid:3",
		"uid:3", "uid:4", "uid:4", "uid:5", "uid:5", "uid:6", "uid:6"};
	ck_assert_uint_eq(part.n, sizeof(want) / sizeof(want[0]));
	for (unsigned i = 0; i < part.n; i++) {
		ck_assert_str_eq(part.owners[i], want[i]);
		ck_assert_uint_eq(part.devices[i], i < 3 ? i % 2 : (i + 1) % 2);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("limits that change");
	TCase *tcase = tcase_create("limits that change");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_was_set_at_run_time_stays_over_a_reload_until_it_is_reset);
	tcase_add_test(tcase, a_reload_that_contradicts_what_was_set_keeps_the_old_one);
	tcase_add_test(tcase, a_single_clients_limit_goes_with_it);
	tcase_add_test(tcase, all_clients_of_a_run_share_its_limit_and_the_last_one_ends_it);
	tcase_add_test(tcase, a_run_has_the_first_name_that_was_given_to_it);
	tcase_add_test(tcase, containers_of_one_user_do_not_share_a_run);
	tcase_add_test(tcase, the_limit_of_a_run_is_its_own);
	tcase_add_test(tcase, a_run_can_only_lower_its_priority);
	tcase_add_test(tcase, runs_of_users_leave_room_for_limits);
	tcase_add_test(tcase, clients_hear_of_a_new_limit);
	tcase_add_test(tcase, a_list_in_parts_has_each_limit_once_whatever_changes_in_between);
	tcase_add_test(tcase, a_limit_too_many_is_refused);
	tcase_add_test(
		tcase, a_reload_accepts_as_many_limits_as_a_start_beside_those_set_at_run_time);
	tcase_add_test(tcase, without_memory_nothing_changes);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
