/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl queue against a scripted daemon: who waits, for what and how long, as people and
 * programs get to read it, and that nobody does.
 */

#include "tests/tap.h"
#include "tests/unit/ctl/shortage_script.h"
#include "tests/unit/ctl/verbs_fixture.h"

static bool queue_is_empty, queue_is_of_runs, queue_is_wide;
static bool resumed;
static uint64_t uptime_ms = 3600000;

static void script_queue(struct gm_fake *f, void *user)
{
	Gm__Wire__QueueReply reply = GM__WIRE__QUEUE_REPLY__INIT;
	Gm__Wire__Waiting rows[6], *list[6];
	if (!gm_fake_hello(f))
		return;
	uint64_t id = asked(f, GM__WIRE__PACKET__BODY_GET_QUEUE);
	if (!id)
		return;
	for (int i = 0; i < 6; i++) {
		gm__wire__waiting__init(&rows[i]);
		list[i] = &rows[i];
		rows[i].session = 17 + (uint64_t)i;
		rows[i].pid = 4711 + i;
		rows[i].bytes = 2 * G;
		rows[i].left_ms = UINT64_MAX;
		rows[i].block = (Gm__Wire__Block)(i + 1);
	}
	rows[0].client = (char *)"trainer";
	rows[0].owner = (char *)"uid:0";
	rows[0].priority = -10;
	rows[0].waited_ms = 200000;
	rows[0].overtaken = 5;
	rows[0].resumed = resumed;
	rows[1].left_ms = 28990;
	rows[1].nowait = true;
	rows[5].block = (Gm__Wire__Block)77; /* of a newer daemon */
	if (queue_is_of_runs) {
		rows[0].client = (char *)"a client with a long name";
		rows[0].owner = (char *)"run:0123456789abcdef";
		rows[0].pid = 471100;
		rows[0].overtaken = 0;
	}
	for (uint32_t i = 0; queue_is_wide && i < 6; i++) {
		rows[i].pid = 4194303;
		rows[i].client = (char *)"trainer-number-one";
		rows[i].bytes = 354 * (G / 1024);
		rows[i].overtaken = 1000;
		rows[i].rests_ms = 870;
		rows[i].block = GM__WIRE__BLOCK__BLOCK_GUARANTEE;
		rows[i].owner = (char *)(i % 2 ? "run:bert-finetune-2026-11-18-seed-0001"
					       : "run:bert-finetune-2026-11-18-seed-0002");
	}
	packet.body_case = GM__WIRE__PACKET__BODY_QUEUE;
	packet.queue = &reply;
	reply.requests = list;
	reply.n_requests = queue_is_empty ? 0 : 4;
	send_answer(f, &packet, id, true);
	reply.requests = list + 4;
	reply.n_requests = queue_is_empty ? 0 : 2;
	send_answer(f, &packet, id, false);
	if (queue_is_empty || !resumed)
		return;

	Gm__Wire__StatusReply status = GM__WIRE__STATUS_REPLY__INIT;
	id = asked(f, GM__WIRE__PACKET__BODY_GET_STATUS);
	begin();
	packet.body_case = GM__WIRE__PACKET__BODY_STATUS;
	packet.status = &status;
	status.uptime_ms = uptime_ms;
	send_answer(f, &packet, id, false);
}

START_TEST(who_waits_is_shown_with_what_for)
{
	queue_is_empty = false;
	char *text = run_text("queue", script_queue);
	has(text, "  0 4711 root trainer  2.0G  -10   3min    -         5 limit     uid:root\n");
	has(text, "29s         - device");
	has(text, "guarantee");
	has(text, "pressure");
	has(text, "overtaken");
	fits_screen(text, 8);
	free(text);
	json_t *json = run_json("queue", script_queue);
	static const char *const blocks[] = {
		"limit", "device", "guarantee", "pressure", "overtaken"};
	ck_assert_uint_eq(json_array_size(json_object_get(json, "queue")), 6);
	for (size_t i = 0; i < 5; i++)
		equals(json, "queue", i, "block", blocks[i]);
	ck_assert(json_is_null(at(json, "queue", 5, "block")));
	ck_assert_int_eq(number(json, "queue", 0, "session"), 17);
	ck_assert_int_eq(number(json, "queue", 0, "waited_ms"), 200000);
	ck_assert_int_eq(number(json, "queue", 0, "priority"), -10);
	ck_assert_int_eq(number(json, "queue", 0, "overtaken"), 5);
	equals(json, "queue", 0, "owner", "uid:0");
	equals(json, "queue", 0, "owner_name", "uid:root");
	ck_assert(json_is_null(at(json, "queue", 0, "left_ms")));
	ck_assert_int_eq(number(json, "queue", 1, "left_ms"), 28990);
	ck_assert(json_is_true(at(json, "queue", 1, "nowait")));
	/* A name that is not for the asker. */
	ck_assert(json_is_null(at(json, "queue", 1, "client")));
	json_decref(json);
	queue_is_empty = true;
	text = run_text("queue", script_queue);
	ck_assert_str_eq(text, "No requests are waiting.\n");
	free(text);
	json = run_json("queue", script_queue);
	ck_assert_uint_eq(json_array_size(json_object_get(json, "queue")), 0);
	ck_assert(json_is_array(json_object_get(json, "queue")));
	json_decref(json);
}
END_TEST

START_TEST(the_run_whose_limit_a_request_waits_for_is_not_cut)
{
	queue_is_empty = false;
	queue_is_of_runs = true;
	char *text = run_text("queue", script_queue);
	has(text, " limit     run:0123456789abcdef\n");
	has(text, " a clie…h a long name ");
	ck_assert_ptr_null(strstr(text, "OVERTAKEN"));
	has(text, "! cut, too narrow: CLIENT; see --json\n");
	fits_screen(text, 10);
	free(text);
	json_t *json = run_json("queue", script_queue);
	ck_assert_int_eq(number(json, "queue", 0, "overtaken"), 0);
	json_decref(json);
	queue_is_of_runs = false;
}
END_TEST

START_TEST(owners_differ_and_no_row_is_wider_than_the_screen_if_everything_is_shown)
{
	queue_is_empty = false;
	queue_is_wide = true;
	char *text = run_text("queue", script_queue);
	queue_is_wide = false;
	has(text, "seed-0001\n");
	has(text, "seed-0002\n");
	has(text, "! not shown, too narrow: WAITED, LEFT, PRIO, OVERTAKEN; see --json\n");
	fits_screen(text, 10);
	free(text);
}
END_TEST

/* Clients repeat their requests, and the daemon does not know how long they have waited. */
START_TEST(after_a_restart_waiting_times_count_from_then)
{
	queue_is_empty = false;
	resumed = true;
	uptime_ms = 201000;
	char *text = run_text("queue", script_queue);
	has(text, "! the daemon started 3min");
	has(text, "WAITED,");
	free(text);
	json_t *json = run_json("queue", script_queue);
	ck_assert_uint_eq(json_array_size(json_object_get(json, "warnings")), 1);
	json_decref(json);
	uptime_ms = 3600000;
	text = run_text("queue", script_queue);
	ck_assert_ptr_null(strstr(text, "started"));
	free(text);
	resumed = false;
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("verb_queue");
	TCase *tcase = tcase_create("verb");
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, who_waits_is_shown_with_what_for);
	tcase_add_test(tcase, the_run_whose_limit_a_request_waits_for_is_not_cut);
	tcase_add_test(
		tcase, owners_differ_and_no_row_is_wider_than_the_screen_if_everything_is_shown);
	tcase_add_test(tcase, after_a_restart_waiting_times_count_from_then);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
