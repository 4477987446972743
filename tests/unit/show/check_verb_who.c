/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl who against a scripted daemon: clients, runs, published buffers and processes outside of the
 * broker in one table, the largest first, and nothing twice.
 */

#include "tests/tap.h"
#include "tests/unit/ctl/shortage_script.h"
#include "tests/unit/ctl/long_user.h"
#include "tests/unit/ctl/verbs_fixture.h"

static bool nobody, long_names, drained;

static uint64_t client_bytes = G / 2;

/* Device 0 has 10 GiB of foreign memory: 8 of a program, half a GiB of a client, the rest without a
 * process. */
static void answer_processes(struct gm_fake *f)
{
	Gm__Wire__ProcessesReply reply = GM__WIRE__PROCESSES_REPLY__INIT;
	Gm__Wire__DeviceProcesses device = GM__WIRE__DEVICE_PROCESSES__INIT, *devices = &device;
	Gm__Wire__Process rows[2], *list[2] = {&rows[0], &rows[1]};
	uint64_t id = asked(f, GM__WIRE__PACKET__BODY_GET_PROCESSES);
	if (!id)
		return;
	for (int i = 0; i < 2; i++) {
		gm__wire__process__init(&rows[i]);
		rows[i].pid = 5000 + i;
		rows[i].bytes = i ? client_bytes : 8 * G;
		rows[i].bytes_known = true;
	}
	rows[0].command = (char *)"a.out --forever";
	rows[0].uid_known = true;
	rows[1].kind = GM__WIRE__PROCESS_KIND__PROCESS_CLIENT;
	if (drained) {
		rows[1].pid = 4711;
		rows[1].uid_known = true;
		rows[1].command = (char *)"python3.11";
	}
	device.known = true;
	device.processes = list;
	device.n_processes = nobody ? 0 : 2;
	reply.devices = &devices;
	reply.n_devices = 1;
	packet.body_case = GM__WIRE__PACKET__BODY_PROCESSES;
	packet.processes = &reply;
	send_answer(f, &packet, id, false);
}

static void answer_devices(struct gm_fake *f)
{
	Gm__Wire__DevicesReply reply = GM__WIRE__DEVICES_REPLY__INIT;
	Gm__Wire__Device device = GM__WIRE__DEVICE__INIT, *list = &device;
	Gm__Wire__Drainer drainer = GM__WIRE__DRAINER__INIT;
	uint64_t id = asked(f, GM__WIRE__PACKET__BODY_GET_DEVICES);
	if (!id)
		return;
	device.measured = true;
	drainer.age_ms = 300000;
	device.drainer = drained ? &drainer : NULL;
	device.foreign = nobody ? 0 : 10 * G;
	reply.devices = &list;
	reply.n_devices = 1;
	packet.body_case = GM__WIRE__PACKET__BODY_DEVICES;
	packet.devices = &reply;
	send_answer(f, &packet, id, false);
}

/* One name whose maker is gone, and one whose maker is there. */
static void answer_names(struct gm_fake *f)
{
	Gm__Wire__NamesReply reply = GM__WIRE__NAMES_REPLY__INIT;
	Gm__Wire__Name rows[2], *list[2] = {&rows[0], &rows[1]};
	uint64_t id = asked(f, GM__WIRE__PACKET__BODY_GET_NAMES);
	if (!id)
		return;
	for (int i = 0; i < 2; i++) {
		gm__wire__name__init(&rows[i]);
		rows[i].bytes = 3 * G;
		rows[i].name = (char *)(i ? "draft" : "llama");
		if (long_names)
			rows[i].name = (char *)"weights-of-a-model-with-a-name-that-is-rather-long";
		rows[i].maker = i;
	}
	reply.names = list;
	reply.n_names = nobody ? 0 : 2;
	packet.body_case = GM__WIRE__PACKET__BODY_NAMES;
	packet.names = &reply;
	send_answer(f, &packet, id, false);
}

/* A client, a run that holds nothing here, a run, and what a user left: 3 GiB of it are published. */
static void answer_clients(struct gm_fake *f)
{
	Gm__Wire__ClientsReply reply = GM__WIRE__CLIENTS_REPLY__INIT;
	Gm__Wire__Client rows[4], *list[4];
	Gm__Wire__ClientUse use[4], *uses[4];
	uint64_t id = asked(f, GM__WIRE__PACKET__BODY_GET_CLIENTS);
	if (!id)
		return;
	for (int i = 0; i < 4; i++) {
		gm__wire__client__init(&rows[i]);
		gm__wire__client_use__init(&use[i]);
		list[i] = &rows[i];
		uses[i] = &use[i];
		rows[i].pid = 4711 + i;
		rows[i].details = true;
		rows[i].use = &uses[i];
		rows[i].n_use = 1;
	}
	rows[0].name = (char *)"server";
	use[0].held = 6 * G;
	rows[1].run = (char *)"0123456789abcdef";
	rows[2].run = (char *)"0123456789abcdef";
	rows[2].command = (char *)"train.py";
	rows[2].run_name = (char *)"nightly";
	use[1].in_host = drained ? 2 * G : 0;
	use[2].held = 4 * G;
	rows[3].pid = 0;
	rows[3].left = true;
	use[3].held = 5 * G;
	reply.clients = list;
	reply.n_clients = nobody ? 0 : 4;
	packet.body_case = GM__WIRE__PACKET__BODY_CLIENTS;
	packet.clients = &reply;
	send_answer(f, &packet, id, false);
}

static void script_who(struct gm_fake *f, void *user)
{
	if (!gm_fake_hello(f))
		return;
	answer_processes(f);
	answer_devices(f);
	answer_names(f);
	answer_clients(f);
}

START_TEST(everybody_is_in_one_table_and_the_largest_comes_first)
{
	nobody = false;
	char *text = run_text("who", script_who);
	ck_assert_str_eq(text, "DEV USER NAME             PID   SIZE WHAT        RUN NAME\n"
			       "  0 root a.out --forever 5000   8.0G foreign     -\n"
			       "  0 root server          4711   6.0G client      -\n"
			       "  0 root train.py        4713   4.0G run         nightly\n"
			       "  0 root llama              -   3.0G published   -\n"
			       "  0 root draft              -   3.0G in client's -\n"
			       "  0 root -                  -   2.0G left        -\n"
			       "  0 -    -                  -   1.5G no process  -\n"
			       "  0 -    -               5001 512.0M context     -\n");
	free(text);

	static const char *const kinds[] = {"foreign", "client", "run", "published",
		"published-by-client", "left", "unlisted", "context"};
	json_t *json = run_json("who", script_who);
	ck_assert_uint_eq(json_array_size(json_object_get(json, "who")), 8);
	for (size_t i = 0; i < 8; i++)
		equals(json, "who", i, "kind", kinds[i]);
	equals(json, "who", 2, "run", "0123456789abcdef");
	equals(json, "who", 2, "run_name", "nightly");
	ck_assert_int_eq(number(json, "who", 5, "bytes"), (int64_t)(2 * G));
	ck_assert(json_is_null(at(json, "who", 5, "pid")));
	ck_assert(json_is_null(at(json, "who", 6, "uid")));
	json_decref(json);
}
END_TEST

START_TEST(a_client_that_has_more_than_a_context_is_said_to_have_it_outside_its_leases)
{
	nobody = false;
	client_bytes = G + 1;
	char *text = run_text("who", script_who);
	has(text, "5001 1.0G outside leases ");
	ck_assert_ptr_null(strstr(text, " context "));
	client_bytes = G;
	free(text);
	text = run_text("who", script_who);
	client_bytes = G / 2;
	has(text, "5001 1.0G context ");
	free(text);
}
END_TEST

START_TEST(rows_can_be_chosen)
{
	nobody = false;
	struct gm_options options = {.given = GM_OPTION_NAME, .name = "l*"};
	char *text = run("who", script_who, false, &options);
	ck_assert_str_eq(text, "DEV USER NAME  PID SIZE WHAT\n"
			       "  0 root llama   - 3.0G published\n");
	free(text);
	/* Whose memory it is must be known. */
	options = (struct gm_options){.given = GM_OPTION_USER, .user = 0};
	text = run("who", script_who, false, &options);
	has(text, "server");
	ck_assert_ptr_null(strstr(text, "no process"));
	free(text);
}
END_TEST

START_TEST(a_long_name_is_cut_rather_than_what_it_is)
{
	nobody = false;
	long_names = true;
	long_user = "a-user-with-a-name-as-long-as-some-of-them-are";
	char *text = run_text("who", script_who);
	long_names = false;
	long_user = NULL;
	has(text, " in client's\n");
	has(text, " no process\n");
	has(text, "! cut, too narrow: USER, NAME; see --columns or --json\n");
	fits_screen(text, 12);
	free(text);
}
END_TEST

START_TEST(evicted_memory_the_client_of_a_context_and_a_drain_are_shown)
{
	nobody = false;
	drained = true;
	char *text = run_text("who", script_who);
	has(text, "  SIZE IN HOST WHAT        RUN NAME\n");
	has(text, "server          4711 512.0M       - context     -\n");
	has(text, "    0B    2.0G run");
	has(text,
		"\n! device 0: drained by user root for 5min; gpumemctl drain 0 --undo ends it\n");
	ck_assert_ptr_null(strstr(text, "python3"));
	fits_screen(text, 14);
	free(text);
	json_t *json = run_json("who", script_who);
	drained = false;
	ck_assert_str_eq(json_string_value(at(json, "warnings", 0, "kind")), "drained");
	json_decref(json);
}
END_TEST

START_TEST(what_it_is_can_be_chosen_by_its_heading)
{
	struct gm_options options = {.given = GM_OPTION_COLUMNS};
	const struct gm_verb *verb = gm_verb_find(gm_verbs, "who");
	char why[GM_VIEW_WHY];

	nobody = false;
	ck_assert_int_eq(
		gm_view_show(&options.view, verb->columns, verb->n_columns, "what,pid", why), 0);
	char *text = run("who", script_who, false, &options);
	has(text, "WHAT         PID\n");
	has(text, "\nclient      4711\n");
	free(text);
	options.csv = true;
	text = run("who", script_who, false, &options);
	has(text, "WHAT,pid\n");
	has(text, "\nclient,4711\n");
	free(text);
}
END_TEST

START_TEST(that_nobody_is_there_is_said_in_words)
{
	nobody = true;
	char *text = run_text("who", script_who);
	ck_assert_str_eq(text, "Nobody uses a device.\n");
	free(text);
	json_t *json = run_json("who", script_who);
	ck_assert(json_is_array(json_object_get(json, "who")));
	json_decref(json);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("verb_who");
	TCase *tcase = tcase_create("verb");
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, everybody_is_in_one_table_and_the_largest_comes_first);
	tcase_add_test(
		tcase, a_client_that_has_more_than_a_context_is_said_to_have_it_outside_its_leases);
	tcase_add_test(tcase, rows_can_be_chosen);
	tcase_add_test(tcase, a_long_name_is_cut_rather_than_what_it_is);
	tcase_add_test(tcase, evicted_memory_the_client_of_a_context_and_a_drain_are_shown);
	tcase_add_test(tcase, what_it_is_can_be_chosen_by_its_heading);
	tcase_add_test(tcase, that_nobody_is_there_is_said_in_words);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
