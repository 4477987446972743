/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Watching, over the socket: who watches hears what happens, and disturbs nobody.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/net/log_limit.h"
#include "tests/integration/scene.h"
#include "tests/tap.h"

#define MiB (UINT64_C(1) << 20)

static struct gm_scene s;

static const Gm__Wire__NoticeEvent *next_notice(struct gm_raw *raw, const char *kind)
{
	do
		GM_REQUIRE(gm_raw_receive(raw));
	while (raw->packet->body_case != GM__WIRE__PACKET__BODY_NOTICE_EVENT ||
		strcmp(raw->packet->notice_event->kind, kind) != 0);
	GM_REQUIRE_EQ(raw->packet->id, 0);
	return raw->packet->notice_event;
}

START_TEST(who_watches_hears_what_happens)
{
	uint64_t held;
	struct gm_raw eye;
	Gm__Wire__Watch watch = GM__WIRE__WATCH__INIT;
	gm_scene_start(&s, NULL);
	gm_raw_observe(&eye, &s.daemon);
	GM_REQUIRE_EQ(gm_raw_call(&eye, GM_RAW_PACKET(WATCH, watch, &watch)), GPUMEM_OK);
	GM_REQUIRE(gm_raw_receive(&eye));
	GM_REQUIRE_EQ(eye.packet->body_case, GM__WIRE__PACKET__BODY_PRESSURE_EVENT);
	GM_REQUIRE_EQ(eye.packet->pressure_event->level, 0);
	GM_REQUIRE_EQ(gm_raw_call(&eye, GM_RAW_PACKET(WATCH, watch, &watch)), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 1024 * MiB, &held), GPUMEM_OK);
	do
		GM_REQUIRE(gm_raw_receive(&eye));
	while (eye.packet->body_case != GM__WIRE__PACKET__BODY_PRESSURE_EVENT ||
		eye.packet->pressure_event->level != 3);
	uint64_t id = gm_scene_ask(&s.b, 2 * MiB, 3600000);
	const Gm__Wire__NoticeEvent *notice = next_notice(&eye, "queued");
	GM_REQUIRE_EQ(notice->session, s.b.session);
	GM_REQUIRE_EQ(notice->pid, getpid());
	GM_REQUIRE_EQ(notice->asked, 2 * MiB);
	GM_REQUIRE(notice->text[0]);
	gm_scene_give(&s.a, held);
	GM_REQUIRE_EQ(gm_scene_answer(&s.b, id, NULL), GPUMEM_OK);
	notice = next_notice(&eye, "granted");
	GM_REQUIRE_EQ(notice->session, s.b.session);
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, gm_scene_session(&s.b), 1, 2 * MiB, 0, 0), GPUMEM_OK);
	notice = next_notice(&eye, "limits");
	GM_REQUIRE(strstr(notice->text, "max 2.0M"));
	GM_REQUIRE_EQ(gm_scene_lease(&s.b, 2 * MiB, NULL), GPUMEM_E_LIMIT);
	notice = next_notice(&eye, "limit");
	/* Written as people write it. */
	GM_REQUIRE(strcmp(notice->owner, gm_scene_session(&s.b)) == 0);
	GM_REQUIRE_EQ(notice->max, 2 * MiB);
	GM_REQUIRE_EQ(notice->held, 2 * MiB);
	gm_raw_close(&s.a);
	gm_raw_close(&s.b);
	gm_raw_close(&s.ctl);
	gm_daemon_stop(&s.daemon);
	do
		GM_REQUIRE(gm_raw_receive(&eye));
	while (eye.packet->body_case != GM__WIRE__PACKET__BODY_GOODBYE_EVENT);
	gm_raw_close(&eye);
}
END_TEST

START_TEST(who_watches_and_does_not_read_is_dropped_and_disturbs_nobody)
{
	struct gm_raw eye;
	Gm__Wire__Watch watch = GM__WIRE__WATCH__INIT;
	gm_scene_start(&s, NULL);
	gm_raw_observe(&eye, &s.daemon);
	(void)gm_raw_send(&eye, GM_RAW_PACKET(WATCH, watch, &watch));
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, gm_scene_session(&s.a), 1, 2 * MiB, 0, 0), GPUMEM_OK);
	for (int i = 0; i < 12000; i++)
		GM_REQUIRE_EQ(gm_scene_lease(&s.a, 4 * MiB, NULL), GPUMEM_E_LIMIT);
	/* A line a second about one client, however often it runs against its limit. */
	char *log = gm_daemon_log(&s.daemon);
	GM_REQUIRE(strlen(log) < 256 * 1024);
	free(log);
	/* What administrators do is told however often they do it. */
	for (uint64_t i = 0; !gm_scene_logged(&s, "does not read its answers"); i++)
		for (int k = 0; k < 500; k++)
			GM_REQUIRE_EQ(gm_scene_set_limit(&s, gm_scene_session(&s.a), 1,
					      (2 + i % 2) * MiB, 0, 0),
				GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_lease(&s.b, 4 * MiB, NULL), GPUMEM_OK);
	gm_raw_close(&eye);
	gm_scene_stop(&s);
}
END_TEST

/* Runs against its limit without end. */
static void flood_as_stranger(int channel, void *argument)
{
	struct gm_raw raw;
	gm_become_stranger();
	gm_raw_join(&raw, &s.daemon);
	for (int i = 0; i < 8000; i++)
		GM_REQUIRE_EQ(gm_scene_lease(&raw, 4 * MiB, NULL), GPUMEM_E_LIMIT);
	gm_raw_close(&raw);
}

START_TEST(who_floods_gets_no_watcher_dropped_and_hides_nobodys_events)
{
	enum { OWN = 12 };
	struct gm_worker worker;
	struct gm_raw eye;
	Gm__Wire__Watch watch = GM__WIRE__WATCH__INIT;
	char stranger[32];
	uint64_t heard = 0, of_the_flood = 0, lost = 0;

	gm_scene_start(&s, NULL);
	snprintf(stranger, sizeof(stranger), "uid:%d", GM_STRANGER);
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, stranger, 1, 2 * MiB, 0, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, gm_scene_session(&s.a), 1, 2 * MiB, 0, 0), GPUMEM_OK);
	gm_raw_observe(&eye, &s.daemon);
	(void)gm_raw_send(&eye, GM_RAW_PACKET(WATCH, watch, &watch));
	gm_worker_start(&worker, flood_as_stranger, NULL);
	for (uint64_t i = 0; i < OWN; i++)
		GM_REQUIRE_EQ(gm_scene_lease(&s.a, (4 + 2 * i) * MiB, NULL), GPUMEM_E_LIMIT);
	gm_worker_join(&worker);

	/* A watcher that was busy elsewhere meanwhile. Its own change is the last that it hears of. */
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, gm_scene_session(&s.b), 1, 2 * MiB, 0, 0), GPUMEM_OK);
	do {
		GM_REQUIRE(gm_raw_receive(&eye));
		if (eye.packet->body_case != GM__WIRE__PACKET__BODY_NOTICE_EVENT)
			continue;
		const Gm__Wire__NoticeEvent *notice = eye.packet->notice_event;
		if (strcmp(notice->kind, "limits") == 0)
			break;
		lost += strcmp(notice->kind, "lost") == 0 && notice->uid == GM_STRANGER;
		of_the_flood += strcmp(notice->kind, "limit") == 0 && notice->uid == GM_STRANGER;
		if (strcmp(notice->kind, "limit") == 0 && notice->uid == 0)
			GM_REQUIRE_EQ(notice->asked, (4 + 2 * heard++) * MiB);
	} while (true);
	GM_REQUIRE_EQ(heard, OWN);
	GM_REQUIRE(of_the_flood >= GM_LOG_LIMIT_NEWS && lost >= 1);
	gm_raw_close(&eye);
	gm_scene_stop(&s);
}
END_TEST

START_TEST(reclaims_without_end_do_not_fill_the_journal)
{
	enum { TIMES = 1500 };
	uint64_t piece, got;
	gm_scene_start(&s, NULL);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 1008 * MiB, NULL), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 16 * MiB, &piece), GPUMEM_OK);
	/* Two of one mind: what the one asks for the other gives back, over and over. */
	for (int i = 0; i < TIMES; i++) {
		uint64_t id = gm_scene_ask(&s.b, 16 * MiB, 3600000);
		gm_scene_await_reclaim(&s.a);
		gm_scene_give(&s.a, piece);
		GM_REQUIRE_EQ(gm_scene_answer(&s.b, id, &got), GPUMEM_OK);
		gm_scene_give(&s.b, got);
		GM_REQUIRE_EQ(gm_scene_lease(&s.a, 16 * MiB, &piece), GPUMEM_OK);
	}
	GM_REQUIRE(gm_scene_logged(&s, "reclaim for a request"));
	/* Two a second and no more: far from two each time, on the slowest machine. */
	GM_REQUIRE(gm_daemon_said(&s.daemon, "reclaim for a request") < TIMES);
	gm_scene_stop(&s);
}
END_TEST

/* A limit is short, not the device. */
START_TEST(a_reclaim_under_a_limit_names_the_client_and_the_limit_and_is_not_repeated)
{
	struct gm_raw eye;
	Gm__Wire__Watch watch = GM__WIRE__WATCH__INIT;
	const Gm__Wire__NoticeEvent *notice;
	uint64_t id, piece;
	unsigned started = 0;
	char user[32];

	gm_scene_start(&s, NULL);
	snprintf(user, sizeof(user), "uid:%u", geteuid());
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, user, 1, 32 * MiB, 0, 0), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 32 * MiB, &piece), GPUMEM_OK);
	gm_raw_observe(&eye, &s.daemon);
	(void)gm_raw_send(&eye, GM_RAW_PACKET(WATCH, watch, &watch));
	id = gm_scene_ask(&s.b, 16 * MiB, 5000);
	do {
		GM_REQUIRE(gm_raw_receive(&eye));
		if (eye.packet->body_case != GM__WIRE__PACKET__BODY_NOTICE_EVENT)
			continue;
		notice = eye.packet->notice_event;
		if (strcmp(notice->kind, "reclaim-started") != 0)
			continue;
		started++;
		GM_REQUIRE_EQ(notice->session, s.b.session);
		GM_REQUIRE_EQ(notice->asked, 16 * MiB);
		GM_REQUIRE_EQ(notice->max, 32 * MiB);
		GM_REQUIRE(strcmp(notice->owner, user) == 0);
		GM_REQUIRE(strstr(notice->what,
			"reclaim for a request that lacks 16.0M on device 0 under the limit of "));
	} while (eye.packet->body_case != GM__WIRE__PACKET__BODY_NOTICE_EVENT ||
		 strcmp(eye.packet->notice_event->kind, "refused") != 0);
	(void)gm_scene_answer(&s.b, id, &piece);
	GM_REQUIRE(started == 1);
	gm_raw_close(&eye);
	gm_scene_stop(&s);
}
END_TEST

START_TEST(a_change_of_a_limit_is_told_before_the_refusal_that_it_causes)
{
	struct gm_raw eye;
	Gm__Wire__Watch watch = GM__WIRE__WATCH__INIT;
	uint64_t id, piece;
	bool changed = false;
	const char *kind = "";

	gm_scene_start(&s, NULL);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 1008 * MiB, &piece), GPUMEM_OK);
	id = gm_scene_ask(&s.b, 64 * MiB, 3600000);
	gm_scene_await_reclaim(&s.a);
	gm_raw_observe(&eye, &s.daemon);
	(void)gm_raw_send(&eye, GM_RAW_PACKET(WATCH, watch, &watch));
	GM_REQUIRE(gm_raw_receive(&eye));
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, gm_scene_session(&s.b), 1, 2 * MiB, 0, 0), GPUMEM_OK);
	while (strcmp(kind, "refused") != 0) {
		GM_REQUIRE(gm_raw_receive(&eye));
		if (eye.packet->body_case != GM__WIRE__PACKET__BODY_NOTICE_EVENT)
			continue;
		kind = eye.packet->notice_event->kind;
		changed = changed || strcmp(kind, "limits") == 0;
	}
	GM_REQUIRE(changed);
	(void)gm_scene_answer(&s.b, id, &piece);
	gm_raw_close(&eye);
	gm_scene_stop(&s);
}
END_TEST

static void ask_as_stranger(int channel, void *argument)
{
	struct gm_raw raw;
	gm_become_stranger();
	gm_raw_join(&raw, &s.daemon);
	gm_text_say_word(channel, 'j');
	gm_hear_word(channel, 'a');
	(void)gm_scene_ask(&raw, 64 * MiB, 3600000);
	gm_hear_word(channel, 'e');
	gm_raw_close(&raw);
}

/* Two of one mind, over and over, and then somebody else in the same second. */
START_TEST(reclaims_without_end_hide_no_reclaim_of_another_user)
{
	struct gm_worker worker;
	struct gm_raw eye;
	Gm__Wire__Watch watch = GM__WIRE__WATCH__INIT;
	const Gm__Wire__NoticeEvent *notice;
	bool heard = false, waits = false;
	uint64_t piece, got;

	gm_scene_start(&s, NULL);
	gm_worker_start(&worker, ask_as_stranger, NULL);
	gm_hear_word(worker.channel, 'j');
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 1008 * MiB, NULL), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 16 * MiB, &piece), GPUMEM_OK);
	gm_raw_observe(&eye, &s.daemon);
	(void)gm_raw_send(&eye, GM_RAW_PACKET(WATCH, watch, &watch));
	for (int i = 0; i < GM_LOG_LIMIT_NEWS; i++) {
		uint64_t id = gm_scene_ask(&s.b, 16 * MiB, 3600000);
		gm_scene_await_reclaim(&s.a);
		gm_scene_give(&s.a, piece);
		GM_REQUIRE_EQ(gm_scene_answer(&s.b, id, &got), GPUMEM_OK);
		gm_scene_give(&s.b, got);
		GM_REQUIRE_EQ(gm_scene_lease(&s.a, 16 * MiB, &piece), GPUMEM_OK);
	}
	gm_text_say_word(worker.channel, 'a');

	/* Clients are asked before the request is said to wait. */
	do {
		GM_REQUIRE(gm_raw_receive(&eye));
		if (eye.packet->body_case != GM__WIRE__PACKET__BODY_NOTICE_EVENT)
			continue;
		notice = eye.packet->notice_event;
		heard = heard ||
			(strcmp(notice->kind, "reclaim-started") == 0 && notice->need == 64 * MiB);
		waits = strcmp(notice->kind, "queued") == 0 && notice->uid == GM_STRANGER;
	} while (!waits);
	GM_REQUIRE(heard);
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	gm_raw_close(&eye);
	gm_scene_stop(&s);
}
END_TEST

/* Somebody else, who may watch and not see everything. */
static void begin_as_stranger(int channel, struct gm_raw *eye)
{
	Gm__Wire__Watch watch = GM__WIRE__WATCH__INIT;
	gm_become_stranger();
	gm_raw_observe(eye, &s.daemon);
	GM_REQUIRE_EQ(gm_raw_call(eye, GM_RAW_PACKET(WATCH, watch, &watch)), GPUMEM_OK);
	gm_text_say_word(channel, 'w');
}

/* The next of that kind is about that client, and does not say what it calls itself. */
static const Gm__Wire__NoticeEvent *next_discreet(
	struct gm_raw *eye, const char *kind, const struct gm_raw *about)
{
	const Gm__Wire__NoticeEvent *notice = next_notice(eye, kind);
	GM_REQUIRE_EQ(notice->session, about->session);
	GM_REQUIRE_EQ(notice->uid, 0);
	GM_REQUIRE(!notice->client[0]);
	GM_REQUIRE(!notice->owner[0]);
	GM_REQUIRE(!strstr(notice->text, "raw"));
	return notice;
}

static void watch_as_stranger(int channel, void *argument)
{
	struct gm_raw eye;
	begin_as_stranger(channel, &eye);
	GM_REQUIRE(strstr(next_discreet(&eye, "limit", &s.a)->text, "a limit"));
	GM_REQUIRE(strstr(next_discreet(&eye, "queued", &s.a)->text, "a limit"));
	gm_raw_close(&eye);
}

/* A daemon whose clients have a limit by the name that this program's clients give themselves. */
static void start_limited(void)
{
	gm_scene_start(&s, NULL);
	GM_REQUIRE_EQ(gm_scene_set_limit(&s, "client:raw", 1, 8 * MiB, 0, 0), GPUMEM_OK);
}

START_TEST(who_may_not_see_a_client_does_not_hear_its_name_from_a_limit)
{
	struct gm_worker worker;
	start_limited();
	gm_worker_start(&worker, watch_as_stranger, NULL);
	gm_hear_word(worker.channel, 'w');
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 8 * MiB, NULL), GPUMEM_OK);
	(void)gm_scene_ask(&s.a, 2 * MiB, 3600000);
	gm_worker_join(&worker);
	gm_scene_stop(&s);
}
END_TEST

static void watch_it_go(int channel, void *argument)
{
	struct gm_raw eye;
	close(s.b.socket); /* its copy: the other one is to be the last */
	begin_as_stranger(channel, &eye);
	(void)next_discreet(&eye, "cancelled", &s.b);
	gm_raw_close(&eye);
}

START_TEST(nor_when_a_client_goes_that_waited_for_it)
{
	struct gm_worker worker;
	start_limited();
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 8 * MiB, NULL), GPUMEM_OK);
	(void)gm_scene_ask(&s.b, 2 * MiB, 3600000);
	GM_UNTIL(gm_scene_queue(&s)->n_requests == 1);
	gm_worker_start(&worker, watch_it_go, NULL);
	gm_hear_word(worker.channel, 'w');
	gm_raw_close(&s.b);
	gm_worker_join(&worker);
	gm_raw_join(&s.b, &s.daemon);
	gm_scene_stop(&s);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("watch");
	TCase *tcase = tcase_create("watch");
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, who_watches_hears_what_happens);
	tcase_add_test(tcase, who_watches_and_does_not_read_is_dropped_and_disturbs_nobody);
	tcase_add_test(tcase, reclaims_without_end_do_not_fill_the_journal);
	tcase_add_test(tcase, a_change_of_a_limit_is_told_before_the_refusal_that_it_causes);
	tcase_add_test(
		tcase, a_reclaim_under_a_limit_names_the_client_and_the_limit_and_is_not_repeated);
	if (GM_TAP_WITH_USERS(who_floods_gets_no_watcher_dropped_and_hides_nobodys_events))
		tcase_add_test(tcase, who_floods_gets_no_watcher_dropped_and_hides_nobodys_events);
	if (GM_TAP_WITH_USERS(reclaims_without_end_hide_no_reclaim_of_another_user))
		tcase_add_test(tcase, reclaims_without_end_hide_no_reclaim_of_another_user);
	if (GM_TAP_WITH_USERS(who_may_not_see_a_client_does_not_hear_its_name_from_a_limit))
		tcase_add_test(tcase, who_may_not_see_a_client_does_not_hear_its_name_from_a_limit);
	if (GM_TAP_WITH_USERS(nor_when_a_client_goes_that_waited_for_it))
		tcase_add_test(tcase, nor_when_a_client_goes_that_waited_for_it);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
