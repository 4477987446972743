/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Limits of owners, over the socket: who is refused is told by what, what is set at run time stays
 * until it is reset, and what makes no sense changes nothing.
 */

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/scene.h"
#include "tests/tap.h"

#define MiB (UINT64_C(1) << 20)

static struct gm_scene s;

START_TEST(a_refusal_names_the_limit_its_value_what_is_held_and_what_was_asked)
{
	char config[512], want[128];
	snprintf(config, sizeof(config), "%s[limit %s]\nmax = 64M\n", GM_DAEMON_CONFIG,
		gm_scene_uid());
	gm_scene_start(&s, config);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 48 * MiB, NULL), GPUMEM_OK);
	/* What another client of the same owner holds counts. */
	GM_REQUIRE_EQ(gm_scene_lease(&s.b, 32 * MiB, NULL), GPUMEM_E_LIMIT);
	snprintf(want, sizeof(want), "%s may hold 64.0M, holds 48.0M, asked for 32.0M",
		gm_own_user());
	GM_REQUIRE(strstr(gm_raw_detail(&s.b), want));
	GM_REQUIRE_EQ(gm_scene_lease(&s.b, 16 * MiB, NULL), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_lease(&s.b, 1, NULL), GPUMEM_E_LIMIT);
	GM_REQUIRE(gm_scene_logged(&s, want));
	const Gm__Wire__Limit *row = gm_scene_limit(&s, gm_scene_uid());
	GM_REQUIRE(row);
	GM_REQUIRE_EQ(row->held, 64 * MiB);
	GM_REQUIRE_EQ(row->clients, 2);
	GM_REQUIRE(!row->over);
	GM_REQUIRE_EQ(row->run_time, 0);
	gm_scene_stop(&s);
}
END_TEST

START_TEST(a_limit_set_below_what_is_held_is_accepted_and_shown_as_over)
{
	uint64_t id;
	gm_scene_start(&s, NULL);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 48 * MiB, &id), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, gm_scene_uid(), 1, 16 * MiB, 0, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(s.ctl.packet->body_case, GM__WIRE__PACKET__BODY_LIMITS);
	GM_REQUIRE(s.ctl.packet->limits->n_limits >= 1);
	GM_REQUIRE(s.ctl.packet->limits->limits[0]->over);
	GM_REQUIRE_EQ(s.ctl.packet->limits->limits[0]->held, 48 * MiB);
	GM_REQUIRE_EQ(s.ctl.packet->limits->limits[0]->run_time, 1);
	/* Nothing is taken; both are told. */
	GM_REQUIRE_EQ(gm_figures_now(&s.daemon).leased, 48 * MiB);
	for (int i = 0; i < 2; i++) {
		struct gm_raw *raw = i ? &s.b : &s.a;
		do
			GM_REQUIRE(gm_raw_receive_event(raw));
		while (raw->event.kind != GM_PAGE_EVENT_LIMITS);
		GM_REQUIRE_EQ(raw->event.bytes, 16 * MiB);
	}
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 2 * MiB, NULL), GPUMEM_E_LIMIT);
	gm_scene_give(&s.a, id);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 16 * MiB, NULL), GPUMEM_OK);
	GM_REQUIRE(!gm_scene_limit(&s, gm_scene_uid())->over);
	gm_scene_stop(&s);
}
END_TEST

START_TEST(what_is_set_at_run_time_stays_over_a_reload_until_it_is_reset)
{
	char config[512];
	snprintf(config, sizeof(config), "%s[limit %s]\nmax = 64M\n", GM_DAEMON_CONFIG,
		gm_scene_uid());
	gm_scene_start(&s, config);
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, gm_scene_uid(), 1, 32 * MiB, 0, 0), GPUMEM_OK);
	snprintf(config, sizeof(config), "%s[limit %s]\nmax = 128M\npriority = 7\n",
		GM_DAEMON_CONFIG, gm_scene_uid());
	gm_daemon_reload(&s.daemon, config);
	const Gm__Wire__Limit *row = gm_scene_limit(&s, gm_scene_uid());
	GM_REQUIRE_EQ(row->max, 32 * MiB);
	GM_REQUIRE_EQ(row->run_time, 1);
	GM_REQUIRE_EQ(row->priority, 7);
	GM_REQUIRE_EQ(gm_scene_reset_limit(&s, gm_scene_uid()), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_limit(&s, gm_scene_uid())->max, 128 * MiB);
	GM_REQUIRE_EQ(gm_scene_reset_limit(&s, gm_scene_uid()), GPUMEM_E_NOT_FOUND);
	gm_scene_stop(&s);
}
END_TEST

START_TEST(limits_that_make_no_sense_change_nothing)
{
	gm_scene_start(&s, NULL);
	GM_REQUIRE_EQ(
		gm_scene_set_limit(&s, gm_scene_uid(), 3, 1 * MiB, 2 * MiB, 0), GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gm_raw_detail(&s.ctl), "max 1.0M is below guarantee 2.0M"));
	GM_REQUIRE_EQ(
		gm_scene_set_limit(&s, gm_scene_uid(), 2, 0, 1025 * MiB, 0), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, "client:x", 2, 0, 1 * MiB, 0), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, gm_scene_uid(), 0, 0, 0, 0), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, gm_scene_uid(), 4, 0, 0, 1001), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, gm_scene_uid(), 8, 0, 0, 0), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, "uid:root!", 1, 1, 0, 0), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, "", 1, 1, 0, 0), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, "session:1", 1, 1, 0, 0), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(gm_scene_reset_limit(&s, "uid:4711"), GPUMEM_E_NOT_FOUND);
	Gm__Wire__SetLimit body = GM__WIRE__SET_LIMIT__INIT;
	body.owner = (char *)gm_scene_uid();
	body.device = 9;
	body.set = 1;
	GM_REQUIRE_EQ(gm_raw_call(&s.ctl, GM_RAW_PACKET(SET_LIMIT, set_limit, &body)),
		GPUMEM_E_NOT_FOUND);
	Gm__Wire__GetLimits get = GM__WIRE__GET_LIMITS__INIT;
	GM_REQUIRE_EQ(gm_raw_call(&s.ctl, GM_RAW_PACKET(GET_LIMITS, get_limits, &get)), GPUMEM_OK);
	GM_REQUIRE_EQ(s.ctl.packet->limits->n_limits, 0);
	/* Guarantees are given to one kind of owner only. */
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, gm_scene_uid(), 2, 0, 1 * MiB, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, "gid:1", 2, 0, 1 * MiB, 0), GPUMEM_E_INVALID);
	gm_scene_stop(&s);
}
END_TEST

START_TEST(a_reload_whose_limits_contradict_the_device_changes_nothing)
{
	char config[512];
	gm_scene_start(&s, NULL);
	snprintf(config, sizeof(config), "%s[limit %s]\nguarantee = 2G\n",
		GM_DAEMON_CONFIG_WITH("oom = wait\n", "1G"), gm_scene_uid());
	gm_daemon_reload(&s.daemon, config);
	GM_REQUIRE(gm_scene_logged(&s, "the configuration stays as it was"));
	GM_REQUIRE(!gm_scene_limit(&s, gm_scene_uid()));
	/* oom = wait is not in force either. */
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 1024 * MiB, NULL), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_lease(&s.b, 2 * MiB, NULL), GPUMEM_E_NO_MEMORY);
	gm_scene_stop(&s);
	/* And nothing starts with it. */
	gm_daemon_prepare(&s.daemon, &(struct gm_daemon_options){.config = config});
	int status = gm_daemon_spawn(&s.daemon);
	GM_REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) != 0);
	GM_REQUIRE(gm_scene_logged(&s, "guarantee"));
}
END_TEST

START_TEST(a_reload_that_contradicts_what_was_set_at_run_time_touches_nothing)
{
	uint64_t held, pooled;
	gm_scene_start(&s, NULL);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 100 * MiB, &pooled), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 400 * MiB, &held), GPUMEM_OK);
	gm_scene_give(&s.a, pooled);
	/* More than a device of half its size has. */
	GM_REQUIRE_EQ(
		gm_scene_set_limit(&s, gm_scene_session(&s.b), 2, 0, 600 * MiB, 0), GPUMEM_OK);
	uint64_t id = gm_scene_ask(&s.b, 700 * MiB, 3600000);
	GM_UNTIL(gm_queue_wait(&s.daemon) == 1);
	struct gm_figures before = gm_figures_now(&s.daemon);
	GM_REQUIRE(before.pooled > 0);
	gm_daemon_reload(&s.daemon,
		"[gpumemd]\nfraction = 0.5\nmin_free = 0\nreserve = 0\nmax_pool = 0\n"
		"host_limit = 0\n[device 0]\nsize = 1G\n");
	GM_REQUIRE(gm_scene_logged(&s, "the configuration stays as it was"));
	/* Neither the pool nor who waits for more than there would be has felt it. */
	struct gm_figures after = gm_figures_now(&s.daemon);
	GM_REQUIRE_EQ(after.pooled, before.pooled);
	GM_REQUIRE_EQ(after.capacity, before.capacity);
	GM_REQUIRE_EQ(gm_queue_wait(&s.daemon), 1);
	gm_scene_give(&s.a, held);
	GM_REQUIRE_EQ(gm_scene_answer(&s.b, id, NULL), GPUMEM_OK);
	/* Without the limit it is put to use. */
	GM_REQUIRE_EQ(gm_scene_reset_limit(&s, gm_scene_session(&s.b)), GPUMEM_OK);
	gm_daemon_reload(&s.daemon, NULL);
	after = gm_figures_now(&s.daemon);
	GM_REQUIRE_EQ(after.capacity, 512 * MiB);
	GM_REQUIRE_EQ(after.pooled, 0);
	gm_scene_stop(&s);
}
END_TEST

START_TEST(a_guarantee_is_kept_free_for_its_owner)
{
	gm_scene_start(&s, NULL);
	GM_REQUIRE_EQ(
		gm_scene_set_limit(&s, gm_scene_session(&s.b), 2, 0, 512 * MiB, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 514 * MiB, NULL), GPUMEM_E_NO_MEMORY);
	GM_REQUIRE(strstr(gm_raw_detail(&s.a), "keeps 512.0M"));
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 512 * MiB, NULL), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_lease(&s.b, 512 * MiB, NULL), GPUMEM_OK);
	gm_scene_stop(&s);
}
END_TEST

static void stranger(int channel, void *argument)
{
	struct gm_raw raw;
	Gm__Wire__SetLimit set = GM__WIRE__SET_LIMIT__INIT;
	Gm__Wire__ResetLimit reset = GM__WIRE__RESET_LIMIT__INIT;
	Gm__Wire__Cleanup cleanup = GM__WIRE__CLEANUP__INIT;
	Gm__Wire__GetLimits get = GM__WIRE__GET_LIMITS__INIT;
	gm_become_stranger();
	gm_raw_observe(&raw, argument);
	set.owner = (char *)"uid:64999";
	set.set = 1;
	set.max = UINT64_MAX;
	GM_REQUIRE_EQ(
		gm_raw_call(&raw, GM_RAW_PACKET(SET_LIMIT, set_limit, &set)), GPUMEM_E_DENIED);
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(RESET_LIMIT, reset_limit, &reset)),
		GPUMEM_E_DENIED);
	GM_REQUIRE_EQ(
		gm_raw_call(&raw, GM_RAW_PACKET(CLEANUP, cleanup, &cleanup)), GPUMEM_E_DENIED);
	cleanup.dry_run = true;
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(CLEANUP, cleanup, &cleanup)), GPUMEM_OK);
	/* How much somebody caches, but not who: that is a detail of theirs. */
	GM_REQUIRE_EQ(raw.packet->cleanup_reply->n_steps, 1);
	const Gm__Wire__CleanupStep *step = raw.packet->cleanup_reply->steps[0];
	GM_REQUIRE_EQ(step->bytes, 64 * MiB);
	GM_REQUIRE(!step->session && !step->pid && !step->held && !step->client[0]);
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(GET_LIMITS, get_limits, &get)), GPUMEM_OK);
	gm_raw_close(&raw);
}

START_TEST(who_is_no_administrator_sees_limits_and_changes_none)
{
	gm_scene_start(&s, NULL);
	GM_REQUIRE(chmod(s.daemon.folder, 0755) == 0);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 64 * MiB, NULL), GPUMEM_OK);
	gm_scene_claim_cached(&s.a, 64 * MiB);
	struct gm_worker worker;
	gm_worker_start(&worker, stranger, &s.daemon);
	gm_worker_join(&worker);
	/* An administrator is told. */
	Gm__Wire__Cleanup cleanup = GM__WIRE__CLEANUP__INIT;
	cleanup.dry_run = true;
	GM_REQUIRE_EQ(gm_raw_call(&s.ctl, GM_RAW_PACKET(CLEANUP, cleanup, &cleanup)), GPUMEM_OK);
	GM_REQUIRE_EQ(s.ctl.packet->cleanup_reply->steps[0]->session, s.a.session);
	GM_REQUIRE_EQ(s.ctl.packet->cleanup_reply->steps[0]->pid, getpid());
	gm_scene_stop(&s);
}
END_TEST

/* Somebody else takes the name of other clients. */
static void take_the_name(int channel, void *argument)
{
	struct gm_raw thief;
	Gm__Wire__GetLimits get = GM__WIRE__GET_LIMITS__INIT;
	gm_become_stranger();
	gm_raw_join(&thief, &s.daemon);
	GM_REQUIRE_EQ(gm_scene_lease(&thief, 12 * MiB, NULL), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_lease(&thief, 8 * MiB, NULL), GPUMEM_E_LIMIT);

	/* It hears of its own use, and of nobody else's. */
	GM_REQUIRE_EQ(gm_raw_call(&thief, GM_RAW_PACKET(GET_LIMITS, get_limits, &get)), GPUMEM_OK);
	GM_REQUIRE_EQ(thief.packet->limits->n_limits, 1);
	const Gm__Wire__Limit *row = thief.packet->limits->limits[0];
	GM_REQUIRE(!strcmp(row->owner, "client:raw"));
	GM_REQUIRE_EQ(row->held, 12 * MiB);
	GM_REQUIRE_EQ(row->clients, 1);
	gm_text_say_word(channel, 't');
	gm_hear_word(channel, 'e');
	gm_raw_close(&thief);
}

START_TEST(who_takes_a_name_uses_up_no_limit_of_others_and_learns_nothing_about_them)
{
	struct gm_worker worker;
	gm_scene_start(&s, GM_DAEMON_CONFIG "[limit client:raw]\nmax = 16M\n");
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 4 * MiB, NULL), GPUMEM_OK);
	gm_worker_start(&worker, take_the_name, NULL);
	gm_hear_word(worker.channel, 't');
	GM_REQUIRE_EQ(gm_scene_lease(&s.b, 12 * MiB, NULL), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_lease(&s.b, 2 * MiB, NULL), GPUMEM_E_LIMIT);
	const Gm__Wire__Limit *row = gm_scene_limit(&s, "client:raw");
	GM_REQUIRE_EQ(row->held, 28 * MiB);
	GM_REQUIRE_EQ(row->clients, 3);
	GM_REQUIRE(!row->over);
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	gm_scene_stop(&s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("owners");
	TCase *tcase = tcase_create("owners");
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, a_refusal_names_the_limit_its_value_what_is_held_and_what_was_asked);
	tcase_add_test(tcase, a_limit_set_below_what_is_held_is_accepted_and_shown_as_over);
	tcase_add_test(tcase, what_is_set_at_run_time_stays_over_a_reload_until_it_is_reset);
	tcase_add_test(tcase, limits_that_make_no_sense_change_nothing);
	tcase_add_test(tcase, a_reload_whose_limits_contradict_the_device_changes_nothing);
	tcase_add_test(tcase, a_reload_that_contradicts_what_was_set_at_run_time_touches_nothing);
	tcase_add_test(tcase, a_guarantee_is_kept_free_for_its_owner);
	if (GM_TAP_WITH_USERS(who_is_no_administrator_sees_limits_and_changes_none))
		tcase_add_test(tcase, who_is_no_administrator_sees_limits_and_changes_none);
	if (GM_TAP_WITH_USERS(
		    who_takes_a_name_uses_up_no_limit_of_others_and_learns_nothing_about_them))
		tcase_add_test(tcase,
			who_takes_a_name_uses_up_no_limit_of_others_and_learns_nothing_about_them);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
