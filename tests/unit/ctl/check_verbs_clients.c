/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* What gpumemctl shows of clients and of their buffers. */

#include "tests/tap.h"
#include "tests/unit/ctl/verbs_fixture.h"

/* What the client made itself. */
static uint64_t declared_bytes;
/* Requests wait and were refused, and nothing is cached. */
static bool waits_only;
static const char client_name[] = "\033[31ma client rather proud of its long name";
static const char *run_name = ""; /* that gpumem-run gave it */

static void script_clients(struct gm_fake *f, void *user)
{
	if (!gm_fake_hello(f))
		return;
	const Gm__Wire__Packet *request = gm_fake_expect(f, GM__WIRE__PACKET__BODY_GET_CLIENTS);
	Gm__Wire__ClientsReply reply = GM__WIRE__CLIENTS_REPLY__INIT;
	Gm__Wire__Client client = GM__WIRE__CLIENT__INIT, *list = &client;
	Gm__Wire__ClientUse use[2] = {GM__WIRE__CLIENT_USE__INIT, GM__WIRE__CLIENT_USE__INIT};
	Gm__Wire__ClientUse *uses[2] = {&use[0], &use[1]};
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;

	if (!request)
		return;
	uint64_t id = request->id;
	packet.body_case = GM__WIRE__PACKET__BODY_CLIENTS;
	packet.clients = &reply;
	reply.n_clients = 1;
	reply.clients = &list;
	client.session = 5;
	client.pid = 4194303;
	client.uid = 0;
	client.name = (char *)client_name;
	client.unit = (char *)"user@1000.service/app.slice/worker-with-a-long-name.service";
	client.run = (char *)"0123456789abcdef";
	client.run_name = (char *)run_name;
	client.age_ms = 200000;
	client.leases = 16384;
	client.refused = 18;
	client.waiting = 2;
	client.details = true;
	client.quarantined = true;
	use[0].held = use[1].held = 1023 * (G / 1024) + 900 * 1024;
	use[0].in_use = use[0].cached = use[0].slack = use[0].peak = use[0].held;
	use[0].evictable = 8192;
	use[0].in_host = 4096;
	use[0].cpu_fallbacks = 3;
	use[0].passed = 7;
	use[1].device = 1;
	use[1].declared = declared_bytes;
	client.n_use = 2;
	client.use = uses;
	if (waits_only) {
		use[0].cached = use[0].slack = use[0].evictable = use[0].in_host = 0;
		use[0].passed = 0;
		client.quarantined = false;
	}
	send_answer(f, &packet, id, true);
	gm__wire__client__init(&client);
	client.uid = 1;
	client.n_use = 1;
	client.use = uses;
	send_answer(f, &packet, id, false);
}

START_TEST(clients_are_shown_per_device_and_within_the_screen)
{
	char *text = run_text("clients", script_clients);
	has(text, "4194303");
	has(text, "\\x1b");
	has(text, "quarantined");
	has(text, " IN HOST ");
	has(text, "! not shown, too narrow: ");
	ck_assert_ptr_null(strstr(text, "DECLARED"));
	ck_assert_ptr_null(strchr(text, '\033'));
	fits_screen(text, 24);
	free(text);
}
END_TEST

START_TEST(columns_without_a_figure_give_way_to_those_with_one)
{
	waits_only = true;
	char *text = run_text("clients", script_clients);
	waits_only = false;
	has(text, " REFUSED WAITING\n");
	has(text, " IN USE ");
	has(text, "! not shown, too narrow: UNIT, CACHED, SLACK; see --columns\n");
	fits_screen(text, 24);
	free(text);
}
END_TEST

START_TEST(a_run_has_the_name_that_was_given_to_it)
{
	waits_only = true;
	run_name = "train";
	char *text = run_text("clients", script_clients);
	has(text, " RUN NAME ");
	has(text, " train ");
	fits_screen(text, 24);
	free(text);
	json_t *json = run_json("clients", script_clients);
	equals(json, "clients", 0, "run_name", "train");
	ck_assert(json_is_null(at(json, "clients", 1, "run_name")));
	json_decref(json);

	/* A client is found by it. */
	struct gm_options options = {.given = GM_OPTION_NAME, .name = "tr*"};
	text = run("clients", script_clients, false, &options);
	has(text, " train ");
	free(text);

	/* A program without a name of its own has that of its run, which is not shown twice. */
	run_name = client_name;
	text = run_text("clients", script_clients);
	ck_assert_ptr_null(strstr(text, "RUN NAME"));
	free(text);
	waits_only = false;
	run_name = "";
}
END_TEST

/* Two runs of one name, whose clients are asked for twice. */
static void script_two_runs(struct gm_fake *f, void *user)
{
	static char *const ids[] = {(char *)"0123456789abcdef", (char *)"fedcba9876543210"};
	const Gm__Wire__Packet *request;

	if (!gm_fake_hello(f))
		return;
	for (int asked = 0; asked < 2; asked++) {
		Gm__Wire__ClientsReply reply = GM__WIRE__CLIENTS_REPLY__INIT;
		Gm__Wire__Client client[2], *list[2] = {&client[0], &client[1]};
		Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;

		request = gm_fake_expect(f, GM__WIRE__PACKET__BODY_GET_CLIENTS);
		if (!request)
			return;
		uint64_t id = request->id;
		packet.body_case = GM__WIRE__PACKET__BODY_CLIENTS;
		packet.clients = &reply;
		reply.n_clients = 2;
		reply.clients = list;
		for (int i = 0; i < 2; i++) {
			gm__wire__client__init(&client[i]);
			client[i].session = 5 + (uint64_t)i;
			client[i].pid = 4711 + i;
			client[i].name = client[i].run_name = (char *)"train";
			client[i].run = ids[i];
			client[i].details = true;
		}
		send_answer(f, &packet, id, false);
	}
}

START_TEST(two_runs_of_one_name_are_told_apart)
{
	char *text = run_text("clients", script_two_runs);
	has(text, " train#01234567");
	has(text, " train#fedcba98");
	fits_screen(text, 24);
	free(text);
}
END_TEST

START_TEST(what_may_not_be_seen_of_a_client_is_null_not_nothing)
{
	json_t *json = run_json("clients", script_clients);

	ck_assert_uint_eq(json_array_size(json_object_get(json, "clients")), 2);
	ck_assert_int_eq(json_integer_value(at(json, "clients", 0, "pid")), 4194303);
	ck_assert_str_eq(json_string_value(at(json, "clients", 0, "state")), "quarantined");
	ck_assert_uint_eq(json_array_size(at(json, "clients", 0, "use")), 2);
	json_t *first = json_array_get(at(json, "clients", 0, "use"), 0);
	ck_assert_int_eq(json_integer_value(json_object_get(first, "cpu_fallbacks")), 3);
	ck_assert_int_eq(json_integer_value(json_object_get(first, "passed")), 7);
	ck_assert_int_eq(json_integer_value(json_object_get(first, "in_host")), 4096);
	ck_assert_int_eq(json_integer_value(json_object_get(first, "evictable")), 8192);
	ck_assert(json_is_null(at(json, "clients", 0, "container")));
	ck_assert_str_eq(json_string_value(at(json, "clients", 0, "run")), "0123456789abcdef");
	ck_assert(json_is_null(at(json, "clients", 1, "run")));
	ck_assert(json_is_null(at(json, "clients", 0, "run_name")));
	ck_assert(json_is_null(at(json, "clients", 1, "pid")));
	ck_assert(json_is_null(at(json, "clients", 1, "name")));
	ck_assert(json_is_null(at(json, "clients", 1, "leases")));
	ck_assert_int_eq(number(json, "clients", 0, "refused"), 18);
	ck_assert_int_eq(number(json, "clients", 0, "waiting"), 2);
	ck_assert(json_is_null(at(json, "clients", 1, "refused")));
	ck_assert(json_is_null(at(json, "clients", 1, "waiting")));
	ck_assert(json_is_false(at(json, "clients", 1, "details")));
	json_t *use = json_array_get(at(json, "clients", 1, "use"), 0);
	ck_assert_int_gt(json_integer_value(json_object_get(use, "held")), 0);
	ck_assert(json_is_null(json_object_get(use, "in_use")));
	ck_assert(json_is_null(json_object_get(use, "active_buffers")));
	ck_assert_int_eq(json_integer_value(json_object_get(use, "declared")), 0);
	json_decref(json);
}
END_TEST

START_TEST(what_clients_declared_has_a_column_if_there_is_any)
{
	declared_bytes = G / 2;
	char *text = run_text("clients", script_clients);
	has(text, "DECLARED"); /* or that it found no room, in a table as wide as this */
	fits_screen(text, 24);
	free(text);
	struct gm_options options = {.csv = true};
	text = run("clients", script_clients, false, &options);
	has(text, ",orphaned,declared,run_name\n");
	has(text, ",0,536870912,\n");
	free(text);

	json_t *json = run_json("clients", script_clients);
	json_t *use = json_array_get(at(json, "clients", 0, "use"), 1);
	ck_assert_int_eq(json_integer_value(json_object_get(use, "declared")), (int64_t)(G / 2));
	json_decref(json);
	declared_bytes = 0;
}
END_TEST

START_TEST(a_client_has_a_row_for_each_device_in_csv)
{
	struct gm_options options = {.csv = true};
	char *text = run("clients", script_clients, false, &options);

	has(text,
		"session,pid,uid,user,name,command,unit,container,run,state,details,age_ms,leases,"
		"refused,waiting,device,held,in_use,cached,");
	has(text, "\n5,4194303,0,root,\\x1b[31ma client rather proud of its long name,,"
		  "user@1000.service/app.slice/worker-with-a-long-name.service,,0123456789abcdef,"
		  "quarantined,true,"
		  "200000,16384,18,2,0,");
	has(text, ",16384,18,2,1,");
	/* What may not be seen is empty. */
	has(text, ",,,,connected,false,,,,,0,");
	free(text);
}
END_TEST

START_TEST(clients_are_picked_by_device_user_and_name)
{
	struct gm_options options = {.given = GM_OPTION_USER, .user = 1};
	json_t *json = parse(run("clients", script_clients, true, &options));
	ck_assert_uint_eq(json_array_size(json_object_get(json, "clients")), 1);
	ck_assert_int_eq(number(json, "clients", 0, "uid"), 1);
	json_decref(json);

	/* The name of the other one is hidden, so nobody can tell whether it matches. */
	options = (struct gm_options){.given = GM_OPTION_NAME, .name = "*a *proud*"};
	json = parse(run("clients", script_clients, true, &options));
	ck_assert_uint_eq(json_array_size(json_object_get(json, "clients")), 1);
	equals(json, "warnings", 0, "kind", "hidden");
	json_decref(json);
	options.name = "proud";
	char *text = run("clients", script_clients, false, &options);
	has(text, "No client matches.\n"
		  "! 1 client was left out: only its user and administrators see its name\n");
	free(text);
}
END_TEST

static uint64_t asked_older_than;

/* gpumemctl buffers asks for what clients left behind, unless only old buffers are wanted. One client
 * here left something, another lives, and of a third the asker sees no details. */
static void send_left(struct gm_fake *f, bool any)
{
	Gm__Wire__ClientsReply reply = GM__WIRE__CLIENTS_REPLY__INIT;
	Gm__Wire__Client clients[3], *list[3];
	Gm__Wire__ClientUse use = GM__WIRE__CLIENT_USE__INIT, *uses = &use;
	const Gm__Wire__Packet *request = gm_fake_expect(f, GM__WIRE__PACKET__BODY_GET_CLIENTS);

	if (!request)
		return;
	uint64_t id = request->id;

	use.held = 3 * G;
	use.orphaned = G;
	for (size_t i = 0; i < 3; i++) {
		gm__wire__client__init(&clients[i]);
		clients[i].session = 4711 + i;
		clients[i].left = i != 1;
		clients[i].details = i != 2;
		clients[i].n_use = 1;
		clients[i].use = &uses;
		list[i] = &clients[i];
	}
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.body_case = GM__WIRE__PACKET__BODY_CLIENTS;
	packet.clients = &reply;
	reply.n_clients = any ? 3 : 0;
	reply.clients = list;
	send_answer(f, &packet, id, false);
}

/* A client left something: gpumemctl asks which names that has, and once more for the clients. */
static void send_names(struct gm_fake *f)
{
	Gm__Wire__NamesReply reply = GM__WIRE__NAMES_REPLY__INIT;
	Gm__Wire__Name names[3], *list[3];
	static const char *const texts[] = {"llama", "of somebody else", "qwen"};
	const Gm__Wire__Packet *request = gm_fake_expect(f, GM__WIRE__PACKET__BODY_GET_NAMES);

	if (!request)
		return;
	uint64_t id = request->id;

	for (size_t i = 0; i < 3; i++) {
		gm__wire__name__init(&names[i]);
		names[i].name = (char *)texts[i];
		names[i].payer = i == 1 ? 4719 : 4711;
		names[i].device = i == 2;
		names[i].bytes = G / 2;
		list[i] = &names[i];
	}
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.body_case = GM__WIRE__PACKET__BODY_NAMES;
	packet.names = &reply;
	reply.n_names = 3;
	reply.names = list;
	send_answer(f, &packet, id, false);
}

static void script_left(struct gm_fake *f, void *user)
{
	if (!gm_fake_hello(f))
		return;
	send_left(f, true);
	send_names(f);
	send_left(f, true);
}

START_TEST(what_outlived_its_client_is_shown_by_the_names_it_is_published_under)
{
	json_t *json = run_json("clients", script_left);
	ck_assert_uint_eq(json_array_size(json_object_get(json, "clients")), 3);
	equals(json, "clients", 0, "name", "llama, qwen");
	equals(json, "clients", 0, "state", "left");
	ck_assert(json_is_null(at(json, "clients", 1, "name")));
	ck_assert(json_is_null(at(json, "clients", 2, "name")));
	json_decref(json);

	struct gm_options options = {.given = GM_OPTION_NAME, .name = "*qwen*"};
	json = parse(run("clients", script_left, true, &options));
	ck_assert_uint_eq(json_array_size(json_object_get(json, "clients")), 1);
	json_decref(json);
	char *text = run_text("clients", script_left);
	has(text, " llama, qwen ");
	fits_screen(text, 24);
	free(text);
}
END_TEST

static void script_buffers(struct gm_fake *f, void *user)
{
	if (!gm_fake_hello(f))
		return;
	const Gm__Wire__Packet *request = gm_fake_expect(f, GM__WIRE__PACKET__BODY_GET_BUFFERS);
	Gm__Wire__BuffersReply reply = GM__WIRE__BUFFERS_REPLY__INIT;
	Gm__Wire__Buffer buffer = GM__WIRE__BUFFER__INIT, *list = &buffer;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;

	if (!request)
		return;
	uint64_t id = request->id;
	asked_older_than = request->get_buffers->older_than_ms;
	packet.body_case = GM__WIRE__PACKET__BODY_BUFFERS;
	packet.buffers = &reply;
	reply.n_buffers = 1;
	reply.buffers = &list;
	reply.untracked = 3;
	buffer.tag = (char *)"重みの重みの重みの重みの重みの重みの";
	buffer.client = (char *)"a worker with a name of its own, and a long one at that";
	buffer.bytes = G;
	Gm__Wire__BufferTotals totals = GM__WIRE__BUFFER_TOTALS__INIT, *totals_list = &totals;
	totals.session = 4242;
	totals.held = totals.declared = G;
	reply.totals = &totals_list;
	for (uint64_t age = 1; age <= 5; age++) {
		buffer.age_ms = (age * 7) % 5 * 60000;
		reply.n_totals = age == 5 && !asked_older_than;
		send_answer(f, &packet, id, age < 5);
	}
	if (!asked_older_than)
		send_left(f, true);
	if (!asked_older_than)
		send_names(f);
	if (!asked_older_than)
		send_left(f, true);
}

START_TEST(buffers_come_oldest_first)
{
	json_t *json = run_json("buffers", script_buffers);
	for (size_t i = 0; i < 5; i++)
		ck_assert_int_eq(
			json_integer_value(at(json, "buffers", i, "age_ms")), (4 - (int)i) * 60000);
	ck_assert_int_eq(json_integer_value(json_object_get(json, "untracked")), 3);
	ck_assert_int_eq(json_integer_value(json_object_get(json, "hidden_clients")), 1);
	ck_assert_uint_eq(json_array_size(json_object_get(json, "buffers")), 9);
	equals(json, "buffers", 5, "kind", "published");
	equals(json, "buffers", 5, "tag", "llama");
	ck_assert_int_eq(number(json, "buffers", 5, "bytes"), (int64_t)G / 2);
	ck_assert_int_eq(number(json, "buffers", 5, "session"), 4711);
	equals(json, "buffers", 6, "kind", "left");
	ck_assert(json_is_null(at(json, "buffers", 6, "tag")));
	ck_assert_int_eq(number(json, "buffers", 6, "bytes"), (int64_t)(G + G / 2));
	ck_assert_int_eq(number(json, "buffers", 6, "session"), 4711);
	ck_assert(json_is_null(at(json, "buffers", 6, "pid")));
	equals(json, "buffers", 7, "kind", "declared");
	ck_assert_int_eq(number(json, "buffers", 7, "session"), 4242);
	equals(json, "buffers", 8, "kind", "orphaned");
	ck_assert_int_eq(number(json, "buffers", 8, "bytes"), (int64_t)G);
	json_decref(json);
	char *text = run_text("buffers", script_buffers);
	has(text, "! 3 more buffers found no room");
	fits_screen(text, 24);
	free(text);
}
END_TEST

START_TEST(the_age_asked_for_goes_to_the_daemon)
{
	struct gm_options options = {.older_than_ms = 60000, .given = GM_OPTION_OLDER_THAN};
	char *text = run("buffers", script_buffers, false, &options);
	ck_assert_uint_eq(asked_older_than, 60000);
	free(text);
}
END_TEST

#define MANY_PACKETS 200
#define MANY_ROWS    500

static void script_many_buffers(struct gm_fake *f, void *user)
{
	static Gm__Wire__Buffer buffer, *list[MANY_ROWS];

	if (!gm_fake_hello(f))
		return;
	const Gm__Wire__Packet *request = gm_fake_expect(f, GM__WIRE__PACKET__BODY_GET_BUFFERS);
	Gm__Wire__BuffersReply reply = GM__WIRE__BUFFERS_REPLY__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;

	if (!request)
		return;
	uint64_t id = request->id;
	gm__wire__buffer__init(&buffer);
	buffer.tag = (char *)"one of many";
	for (size_t i = 0; i < MANY_ROWS; i++)
		list[i] = &buffer;
	packet.body_case = GM__WIRE__PACKET__BODY_BUFFERS;
	packet.buffers = &reply;
	reply.n_buffers = MANY_ROWS;
	reply.buffers = list;
	for (size_t i = 0; i < MANY_PACKETS; i++)
		send_answer(f, &packet, id, i + 1 < MANY_PACKETS);
	send_left(f, false);
}

START_TEST(a_hundred_thousand_buffers_are_all_listed)
{
	char *text = run_text("buffers", script_many_buffers);
	size_t lines = 0;

	for (const char *t = text; (t = strchr(t, '\n')); t++)
		lines++;
	ck_assert_uint_eq(lines, MANY_PACKETS * MANY_ROWS + 1);
	free(text);
	json_t *json = run_json("buffers", script_many_buffers);
	ck_assert_uint_eq(
		json_array_size(json_object_get(json, "buffers")), MANY_PACKETS * MANY_ROWS);
	json_decref(json);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("verbs about clients");
	TCase *tcase = tcase_create("verbs about clients");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, what_outlived_its_client_is_shown_by_the_names_it_is_published_under);
	tcase_add_test(tcase, clients_are_shown_per_device_and_within_the_screen);
	tcase_add_test(tcase, columns_without_a_figure_give_way_to_those_with_one);
	tcase_add_test(tcase, a_run_has_the_name_that_was_given_to_it);
	tcase_add_test(tcase, two_runs_of_one_name_are_told_apart);
	tcase_add_test(tcase, what_may_not_be_seen_of_a_client_is_null_not_nothing);
	tcase_add_test(tcase, what_clients_declared_has_a_column_if_there_is_any);
	tcase_add_test(tcase, a_client_has_a_row_for_each_device_in_csv);
	tcase_add_test(tcase, clients_are_picked_by_device_user_and_name);
	tcase_add_test(tcase, buffers_come_oldest_first);
	tcase_add_test(tcase, a_hundred_thousand_buffers_are_all_listed);
	tcase_add_test(tcase, the_age_asked_for_goes_to_the_daemon);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
