/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl watch against a scripted daemon: a line for each event, for people and for programs,
 * until the goodbye; any other end is a failure.
 */

#include <unistd.h>

#include "tests/tap.h"
#include "tests/unit/ctl/shortage_script.h"
#include "tests/unit/ctl/verbs_fixture.h"

static bool watch_refused, watch_cut;
static uint64_t watch_need;
static char *watch_what = (char *)"", *watch_name = (char *)"x";
static bool watch_colour;
static size_t watch_columns;

static void script_watch(struct gm_fake *f, void *user)
{
	Gm__Wire__Done done = GM__WIRE__DONE__INIT;
	Gm__Wire__PressureEvent pressure = GM__WIRE__PRESSURE_EVENT__INIT;
	Gm__Wire__NoticeEvent notice = GM__WIRE__NOTICE_EVENT__INIT;
	Gm__Wire__GoodbyeEvent goodbye = GM__WIRE__GOODBYE_EVENT__INIT;
	uint64_t stages[6] = {G, 2 * G, 0, 4, 5, 6};
	if (!gm_fake_hello(f))
		return;
	if (user)
		send_devices(f, asked(f, GM__WIRE__PACKET__BODY_GET_DEVICES));
	if (user && *(const uint32_t *)user > 2) {
		gm_fake_wait_end(f);
		return;
	}
	uint64_t id = asked(f, GM__WIRE__PACKET__BODY_WATCH);
	if (!id)
		return;
	if (watch_refused) {
		refuse(f, id, GPUMEM_E_LIMIT, "too many watch already");
		return;
	}
	packet.body_case = GM__WIRE__PACKET__BODY_DONE;
	packet.done = &done;
	send_answer(f, &packet, id, false);
	begin();
	packet.body_case = GM__WIRE__PACKET__BODY_PRESSURE_EVENT;
	packet.pressure_event = &pressure;
	pressure.device = 1;
	pressure.level = 2;
	pressure.pressure_ppm = 812345;
	send_answer(f, &packet, 0, false);
	begin();
	packet.body_case = GM__WIRE__PACKET__BODY_NOTICE_EVENT;
	packet.notice_event = &notice;
	notice.kind = (char *)"reclaim-ended";
	notice.text = (char *)"device 0: \033[31menough";
	notice.trigger = (char *)"manual";
	notice.need = watch_need;
	notice.n_stages = 6;
	notice.stages = stages;
	notice.reached = true;
	send_answer(f, &packet, 0, false);
	gm__wire__notice_event__init(&notice);
	notice.kind = (char *)"limits";
	notice.text = (char *)"somebody changed limits";
	send_answer(f, &packet, 0, false);
	gm__wire__notice_event__init(&notice);
	notice.kind = (char *)"limit";
	notice.device = 1;
	notice.text = (char *)"user 7 may hold 1.0G";
	notice.session = 17;
	notice.pid = 4711;
	notice.uid = 0;
	notice.client = watch_name;
	notice.owner = (char *)"uid:7";
	notice.asked = G;
	notice.max = G;
	notice.held = 1;
	notice.what = watch_what;
	send_answer(f, &packet, 0, false);
	gm__wire__notice_event__init(&notice);
	notice.kind = (char *)"lost";
	notice.text = (char *)"2 events were lost";
	send_answer(f, &packet, 0, false);
	notice.text = (char *)"uid 0 causes too many";
	notice.owner = (char *)"uid:0";
	send_answer(f, &packet, 0, false);
	gm__wire__notice_event__init(&notice);
	notice.kind = (char *)"of\033[2Ja newer one";
	notice.text = (char *)"what that is";
	send_answer(f, &packet, 0, false);
	if (watch_cut)
		return;
	begin();
	packet.body_case = GM__WIRE__PACKET__BODY_GOODBYE_EVENT;
	packet.goodbye_event = &goodbye;
	goodbye.reason = (char *)"the daemon is stopping";
	send_answer(f, &packet, 0, false);
	gm_fake_wait_end(f);
}

/* watch writes by itself, line by line: what came on stdout, malloc'ed. */
static char *watch(bool json, const uint32_t *device, gpumem_status expected)
{
	struct gm_options options = {.timeout_ms = 30000,
		.json = json,
		.verb = gm_verb_find(gm_verbs, "watch"),
		.given = GM_OPTION_NO_RECONNECT | (device ? GM_OPTION_DEVICE : 0),
		.device = device ? *device : 0};
	struct gm_ctl ctl = {.options = &options,
		.writer = gm_writer_json_new(),
		.colour = watch_colour,
		.columns = watch_columns};
	FILE *file = tmpfile();
	char *text = NULL;
	size_t room = 0;
	ck_assert_ptr_nonnull(file);
	fflush(stdout);
	int saved = dup(STDOUT_FILENO);
	ck_assert_int_ge(saved, 0);
	ck_assert_int_ge(dup2(fileno(file), STDOUT_FILENO), 0);
	gm_fake_start(&fake, script_watch, (void *)device);
	options.socket = fake.path;
	gpumem_status status = options.verb->run(&ctl);
	fflush(stdout);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	gm_fake_stop(&fake);
	trouble = ctl.trouble;
	exits = ctl.exit_status;
	ck_assert_int_eq(status, expected);
	rewind(file);
	if (getdelim(&text, &room, '\0', file) < 0) {
		free(text);
		text = strdup("");
	}
	fclose(file);
	gm_writer_free(ctl.writer);
	return text;
}

START_TEST(what_happens_is_a_line_each_until_the_goodbye)
{
	char *text = watch(false, NULL, GPUMEM_OK);
	has(text, "  pressure         device 1: pressure is high (81%)\n");
	has(text, "  reclaim-ended    device 0: \\x1b[31menough\n");
	has(text, "  limits           somebody changed limits\n");
	has(text, "  of\\x1b[2Ja newer one  what that is\n");
	has(text, "  limit            user 7 may hold 1.0G\n");
	has(text, "  goodbye          the daemon is stopping\n");
	ck_assert_ptr_null(strchr(text, '\033'));
	ck_assert_int_eq(exits, 7);
	free(text);
	/* Of one device: what is about another is left out, what is about none is not. */
	uint32_t device = 1;
	text = watch(false, &device, GPUMEM_OK);
	has(text, "  pressure ");
	has(text, "  limits ");
	has(text, "  limit ");
	has(text, "  lost             2 events were lost\n");
	has(text, "  lost             user root causes too many\n");
	ck_assert_ptr_null(strstr(text, "reclaim-ended"));
	free(text);
}
END_TEST

START_TEST(each_line_for_programs_is_an_object)
{
	watch_need = 3 * G;
	static const char *const kinds[] = {"pressure", "reclaim-ended", "limits", "limit", "lost",
		"lost", "of\\x1b[2Ja newer one", "goodbye"};
	char *text = watch(true, NULL, GPUMEM_OK), *rest = text;
	size_t n = 0;
	for (char *line; (line = strsep(&rest, "\n")) && *line; n++) {
		json_t *json = json_loads(line, 0, NULL);
		ck_assert_msg(json != NULL, "not JSON: %s", line);
		ck_assert_uint_lt(n, 8);
		ck_assert_str_eq(json_string_value(json_object_get(json, "event")), kinds[n]);
		ck_assert_ptr_nonnull(json_string_value(json_object_get(json, "time")));
		if (n == 0) {
			ck_assert_str_eq(json_string_value(json_object_get(json, "level")), "high");
			ck_assert_double_eq_tol(
				json_real_value(json_object_get(json, "pressure")), 0.812345, 1e-9);
		}
		if (n == 1) {
			const json_t *stages = json_object_get(json, "stages");
			ck_assert_int_eq(json_integer_value(json_object_get(stages, "cached")),
				(int64_t)(2 * G));
			ck_assert_int_eq(json_integer_value(json_object_get(stages, "spill")), 4);
			/* The stages after that give no bytes. */
			ck_assert_uint_eq(json_object_size(stages), 4);
			ck_assert_int_eq(json_integer_value(json_object_get(json, "need")),
				(int64_t)(3 * G));
			ck_assert(json_is_true(json_object_get(json, "reached")));
			ck_assert_str_eq(
				json_string_value(json_object_get(json, "trigger")), "manual");
			ck_assert_ptr_null(json_object_get(json, "session"));
		}
		if (n == 2)
			ck_assert_ptr_null(json_object_get(json, "device"));
		if (n == 3) {
			ck_assert_int_eq(json_integer_value(json_object_get(json, "session")), 17);
			ck_assert_str_eq(
				json_string_value(json_object_get(json, "owner")), "uid:7");
			ck_assert_int_eq(
				json_integer_value(json_object_get(json, "asked")), (int64_t)G);
		}
		if (n == 4)
			ck_assert_ptr_null(json_object_get(json, "uid"));
		if (n == 5) {
			ck_assert_ptr_null(json_object_get(json, "device"));
			ck_assert(json_is_integer(json_object_get(json, "uid")));
			ck_assert_str_eq(json_string_value(json_object_get(json, "user")), "root");
		}
		json_decref(json);
	}
	ck_assert_uint_eq(n, 8);
	free(text);
}
END_TEST

START_TEST(the_need_of_a_reclaim_of_all_there_is_is_null)
{
	watch_need = UINT64_MAX;
	char *text = watch(true, NULL, GPUMEM_OK), *rest = text;
	strsep(&rest, "\n");
	json_t *json = json_loads(strsep(&rest, "\n"), 0, NULL);
	ck_assert_str_eq(json_string_value(json_object_get(json, "event")), "reclaim-ended");
	ck_assert(json_is_null(json_object_get(json, "need")));
	json_decref(json);
	free(text);
}
END_TEST

START_TEST(a_watch_that_ends_otherwise_is_a_failure)
{
	watch_refused = true;
	char *text = watch(false, NULL, GPUMEM_E_LIMIT);
	ck_assert_str_eq(text, "");
	ck_assert_str_eq(trouble.text, "too many watch already");
	ck_assert_int_eq(gm_status_exit(trouble.status), 5);
	free(text);
	watch_refused = false;
	/* What came before is shown all the same. */
	watch_cut = true;
	text = watch(false, NULL, GPUMEM_OK);
	has(text, "user 7 may hold 1.0G\n");
	has(text, "  disconnected     ");
	ck_assert_int_eq(exits, 7);
	free(text);
	uint32_t device = 3;
	text = watch(false, &device, GPUMEM_E_NOT_FOUND);
	ck_assert_str_eq(text, "");
	ck_assert_str_eq(trouble.text, "there is no device 3; see 'gpumemctl devices'");
	free(text);
	watch_cut = false;
}
END_TEST

START_TEST(people_read_names_and_not_numbers)
{
	static const struct {
		const char *name, *what, *line;
	} cases[] = {
		{"ann", "uid 0 may hold 1.0G",
			"ann (pid 4711, user root): user root may hold 1.0G\n"},
		{"ann", "uid 4294967295 may hold 1.0G",
			"ann (pid 4711, user root): uid 4294967295 may hold 1.0G\n"},
		{"", "waits because of a limit", "pid 4711, user root: waits because of a limit\n"},
		{"ann", "device 0: client 17 was asked",
			"device 0: ann (pid 4711, user root) was asked\n"},
		{"ann", "client 171 was asked",
			"ann (pid 4711, user root): client 171 was asked\n"},
		{"\033[2J", "no", "\\x1b[2J (pid 4711, user root): no\n"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		watch_name = (char *)cases[i].name;
		watch_what = (char *)cases[i].what;
		char *text = watch(false, NULL, GPUMEM_OK);
		has(text, cases[i].line);
		ck_assert_ptr_null(strchr(text, '\033'));
		free(text);
	}
}
END_TEST

START_TEST(a_line_goes_on_below_its_text_where_the_terminal_ends)
{
	watch_columns = 64;
	watch_what = (char *)"uid 0 may hold 1.0G";
	watch_name = (char *)"ann";
	char *text = watch(false, NULL, GPUMEM_OK);
	has(text, "  limit            ann (pid 4711, user root): user root\n"
		  "                           may hold 1.0G\n");
	has(text, "  of\\x1b[2Ja newer one  what that is\n");
	free(text);

	/* A name that is longer than the column of texts is broken within it. */
	watch_name = (char *)"a-name-that-is-longer-than-what-is-left-of-a-line-here";
	text = watch(false, NULL, GPUMEM_OK);
	has(text, "  limit            a-name-that-is-longer-than-what-is-le\n"
		  "                           ft-of-a-line-here\n"
		  "                           (pid 4711, user root): user root may\n");
	free(text);
	watch_name = (char *)"ann";

	/* A program reads an event to the end of its line. */
	text = watch(true, NULL, GPUMEM_OK);
	ck_assert_ptr_null(strstr(text, "\n "));
	free(text);

	/* Where the text would have no room, the terminal breaks the line. */
	watch_columns = 40;
	text = watch(false, NULL, GPUMEM_OK);
	has(text, "  limit            ann (pid 4711, user root): user root may hold 1.0G\n");
	free(text);
	watch_columns = 0;
}
END_TEST

START_TEST(colour_is_for_the_kind_of_the_event_alone)
{
	watch_colour = true;
	watch_name = (char *)"\033[2J";
	char *text = watch(false, NULL, GPUMEM_OK);
	has(text, "  \033[33mpressure       \033[0m  device 1: pressure is high (81%)\n");
	has(text, "  \033[33mlimit          \033[0m  ");
	has(text, "  limits           somebody changed limits\n");
	ck_assert_ptr_null(strstr(text, "\033[2J"));
	free(text);
	text = watch(true, NULL, GPUMEM_OK);
	ck_assert_ptr_null(strchr(text, '\033'));
	free(text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("verb_watch");
	TCase *tcase = tcase_create("verb");
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, what_happens_is_a_line_each_until_the_goodbye);
	tcase_add_test(tcase, each_line_for_programs_is_an_object);
	tcase_add_test(tcase, the_need_of_a_reclaim_of_all_there_is_is_null);
	tcase_add_test(tcase, a_watch_that_ends_otherwise_is_a_failure);
	tcase_add_test(tcase, people_read_names_and_not_numbers);
	tcase_add_test(tcase, a_line_goes_on_below_its_text_where_the_terminal_ends);
	tcase_add_test(tcase, colour_is_for_the_kind_of_the_event_alone);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
