/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl limit against a scripted daemon: what is asked of it, what people and programs get to
 * read, and the exit status. What is wrong with the arguments is said before anybody is asked.
 */

#include "tests/tap.h"
#include "tests/unit/ctl/shortage_script.h"
#include "tests/unit/ctl/verbs_fixture.h"

static struct gm_options with_args(const char *const *args)
{
	struct gm_options options = {0};
	for (; args[options.n_args]; options.n_args++)
		options.args[options.n_args] = args[options.n_args];
	return options;
}
#define ARGS(...) with_args((const char *const[]){__VA_ARGS__, NULL})

/* Runs it where nobody listens: it must not get so far. */
static void is_wrong_usage(const char *name, struct gm_options options, const char *why)
{
	struct gm_ctl ctl = {.options = &options};
	options.socket = "/nowhere/at/all";
	options.timeout_ms = 1000;
	options.verb = gm_verb_find(gm_verbs, name);
	ctl.writer = gm_writer_json_new();
	ck_assert_int_ne(options.verb->run(&ctl), GPUMEM_OK);
	ck_assert_msg(ctl.usage, "%s: not called wrong usage: %s", why, ctl.trouble.text);
	has(ctl.trouble.text, why);
	gm_writer_free(ctl.writer);
}

static struct {
	Gm__Wire__Packet__BodyCase body; /* what must be asked */
	bool look;                       /* after a look at the devices */
	bool none;                       /* the answer is empty */
	bool none_before;                /* so is that before a reset */
	bool run;                        /* the answer is only about a run */
	char *run_name;
	bool two_runs;   /* of that name */
	uint64_t hidden; /* owners */
	gpumem_status status;
	char owner[64];
	Gm__Wire__SetLimit set;
	Gm__Wire__ResetLimit reset;
} limits;

static void send_limits(struct gm_fake *f, uint64_t id)
{
	Gm__Wire__LimitsReply reply = GM__WIRE__LIMITS_REPLY__INIT;
	Gm__Wire__Limit rows[4], *list[4];
	for (size_t i = 0; i < 4; i++) {
		gm__wire__limit__init(&rows[i]);
		list[i] = &rows[i];
	}
	rows[0].owner = (char *)"uid:1002";
	rows[0].set = 1 | 4;
	rows[0].max = 48 * G;
	rows[0].priority = -10;
	rows[0].run_time = 1;
	rows[0].held = 49 * G;
	rows[0].clients = 3;
	rows[0].over = true;
	rows[1] = rows[0];
	rows[1].device = 1;
	rows[1].max = UINT64_MAX; /* lifted */
	rows[1].held = 0;
	rows[1].over = false;
	rows[2].owner = (char *)"client:a \033[31mname";
	rows[2].set = 2;
	rows[2].guarantee = 16 * G;
	if (limits.run) {
		rows[2].owner = (char *)"run:0123456789abcdef";
		if (limits.run_name)
			rows[2].name = limits.run_name;
		rows[2].set = 1;
		rows[2].run_time = 1;
		rows[2].max = rows[2].held = 1000 * (G / 1024);
		rows[3] = rows[2];
		rows[3].owner = (char *)"run:fedcba9876543210";
	}
	begin();
	packet.body_case = GM__WIRE__PACKET__BODY_LIMITS;
	packet.limits = &reply;
	reply.limits = list;
	reply.n_limits = limits.none || limits.run ? 0 : 2;
	send_answer(f, &packet, id, true);
	reply.limits = list + 2;
	reply.n_limits = limits.none ? 0 : limits.two_runs ? 2 : 1;
	reply.hidden_owners = limits.hidden;
	send_answer(f, &packet, id, false);
}

static void script_limit(struct gm_fake *f, void *user)
{
	uint64_t id;
	if (!gm_fake_hello(f))
		return;
	if (limits.look) {
		id = asked(f, GM__WIRE__PACKET__BODY_GET_DEVICES);
		send_devices(f, id);
		if (limits.status == GPUMEM_E_NOT_FOUND)
			return;
	}
	/* What a reset undoes is asked for first. */
	if (limits.body == GM__WIRE__PACKET__BODY_RESET_LIMIT) {
		bool none = limits.none;
		limits.none = limits.none_before;
		send_limits(f, asked(f, GM__WIRE__PACKET__BODY_GET_LIMITS));
		limits.none = none;
	}
	const Gm__Wire__Packet *request = gm_fake_expect(f, limits.body);
	if (!request)
		return;
	id = request->id;
	if (limits.body == GM__WIRE__PACKET__BODY_SET_LIMIT) {
		limits.set = *request->set_limit;
		snprintf(limits.owner, sizeof(limits.owner), "%s", limits.set.owner);
	} else if (limits.body == GM__WIRE__PACKET__BODY_RESET_LIMIT) {
		limits.reset = *request->reset_limit;
		snprintf(limits.owner, sizeof(limits.owner), "%s", limits.reset.owner);
	}
	if (limits.status != GPUMEM_OK)
		refuse(f, id, limits.status, "because");
	else
		send_limits(f, id);
	/* What a max is held against. */
	if (limits.status == GPUMEM_OK && limits.body == GM__WIRE__PACKET__BODY_SET_LIMIT &&
		limits.set.set & 1 && limits.set.max != UINT64_MAX) {
		Gm__Wire__StatusReply status = GM__WIRE__STATUS_REPLY__INIT;
		Gm__Wire__Device device = GM__WIRE__DEVICE__INIT, *list[] = {&device};

		request = gm_fake_expect(f, GM__WIRE__PACKET__BODY_GET_STATUS);
		if (!request)
			return;
		id = request->id;
		begin();
		packet.body_case = GM__WIRE__PACKET__BODY_STATUS;
		packet.status = &status;
		status.devices = list;
		status.n_devices = 1;
		device.total = 4 * G;
		send_answer(f, &packet, id, false);
	}
}

static void expect_limit(Gm__Wire__Packet__BodyCase body)
{
	memset(&limits, 0, sizeof(limits));
	limits.body = body;
}

START_TEST(limits_are_shown_with_what_is_held_and_who_is_over)
{
	expect_limit(GM__WIRE__PACKET__BODY_GET_LIMITS);
	char *text = run_text("limit", script_limit);
	has(text, "OWNER");
	has(text, "0 48.0G         -      -10 49.0G over  run-time\n");
	has(text, "1     -         -      -10    0B ok    run-time\n");
	has(text, "0     -     16.0G        -    0B ok    configured\n");
	has(text, "client:a \\x1b[31mname ");
	has(text, "! not shown, too narrow: CLIENTS; see --json\n");
	ck_assert_ptr_null(strchr(text, '\033'));
	fits_screen(text, 6);
	free(text);
	struct gm_options options = ARGS("show");
	json_t *json = parse(run("limit", script_limit, true, &options));
	ck_assert_uint_eq(json_array_size(json_object_get(json, "limits")), 3);
	equals(json, "limits", 0, "owner", "uid:1002");
	ck_assert_int_eq(number(json, "limits", 0, "max"), (int64_t)(48 * G));
	ck_assert_int_eq(number(json, "limits", 0, "priority"), -10);
	ck_assert(json_is_null(at(json, "limits", 0, "guarantee")));
	equals(json, "limits", 0, "state", "over");
	equals(json, "limits", 0, "source", "run-time");
	ck_assert(json_is_null(at(json, "limits", 1, "max")));
	ck_assert_int_eq(number(json, "limits", 1, "device"), 1);
	ck_assert_int_eq(number(json, "limits", 2, "guarantee"), (int64_t)(16 * G));
	equals(json, "limits", 2, "source", "configured");
	json_decref(json);
}
END_TEST

START_TEST(values_that_no_owner_has_leave_room_for_the_name_of_a_run)
{
	expect_limit(GM__WIRE__PACKET__BODY_GET_LIMITS);
	limits.run = true;
	char *text = run_text("limit", script_limit);
	has(text, "run:0123456789abcdef   0 1000.0M 1000.0M       0 ok    run-time\n");
	ck_assert_ptr_null(strstr(text, "GUARANTEE"));
	ck_assert_ptr_null(strstr(text, "PRIORITY"));
	fits_screen(text, 6);
	free(text);

	/* People know the run by the name that they gave it. */
	limits.run_name = (char *)"nightly";
	text = run_text("limit", script_limit);
	has(text, "run:nightly ");
	free(text);
	json_t *json = run_json("limit", script_limit);
	equals(json, "limits", 0, "owner", "run:0123456789abcdef");
	equals(json, "limits", 0, "owner_name", "run:nightly");
	json_decref(json);
}
END_TEST

START_TEST(two_runs_of_one_name_are_told_apart)
{
	expect_limit(GM__WIRE__PACKET__BODY_GET_LIMITS);
	limits.run = limits.two_runs = true;
	limits.run_name = (char *)"nightly";
	char *text = run_text("limit", script_limit);
	has(text, "run:nightly#01234567 ");
	has(text, "run:nightly#fedcba98 ");
	fits_screen(text, 6);
	free(text);
}
END_TEST

START_TEST(limits_that_are_hidden_are_counted)
{
	static const char *const notes[] = {
		"1 more owner has limits; only its users and administrators see them",
		"2 more owners have limits; only their users and administrators see them",
	};

	for (uint64_t hidden = 0; hidden <= 2; hidden++) {
		expect_limit(GM__WIRE__PACKET__BODY_GET_LIMITS);
		limits.none = _i;
		limits.hidden = hidden;
		char *text = run_text("limit", script_limit);
		if (hidden)
			has(text, notes[hidden - 1]);
		else
			ck_assert_ptr_null(strstr(text, "more owner"));
		if (limits.none)
			has(text, hidden ? "None of the limits are for you to see.\n"
					 : "No limits are set.\n");
		free(text);

		json_t *json = run_json("limit", script_limit);
		ck_assert_int_eq(json_integer_value(json_object_get(json, "hidden_owners")),
			(int64_t)hidden);
		ck_assert_uint_eq(json_array_size(json_object_get(json, "warnings")), hidden > 0);
		json_decref(json);
	}
}
END_TEST

START_TEST(limits_of_one_device_can_be_shown)
{
	expect_limit(GM__WIRE__PACKET__BODY_GET_LIMITS);
	limits.look = true;
	struct gm_options options = {.device = 1, .given = GM_OPTION_DEVICE};
	json_t *json = parse(run("limit", script_limit, true, &options));
	ck_assert_uint_eq(json_array_size(json_object_get(json, "limits")), 1);
	ck_assert_int_eq(number(json, "limits", 0, "device"), 1);
	json_decref(json);
	/* None there, and no such device, are two answers. */
	options.device = 2;
	char *text = run("limit", script_limit, false, &options);
	ck_assert_str_eq(text, "No limits are set on device 2.\n");
	free(text);
	options.device = 3;
	limits.status = GPUMEM_E_NOT_FOUND;
	ck_assert_ptr_null(run("limit", script_limit, false, &options));
	ck_assert_str_eq(trouble.text, "there is no device 3; see 'gpumemctl devices'");
	ck_assert_int_eq(gm_status_exit(trouble.status), 1);
}
END_TEST

START_TEST(a_limit_is_set_as_it_was_said)
{
	expect_limit(GM__WIRE__PACKET__BODY_SET_LIMIT);
	struct gm_options options =
		ARGS("set", "uid:root", "priority=-1000", "max=1.5G", "guarantee=0");
	free(run("limit", script_limit, false, &options));
	ck_assert_str_eq(limits.owner, "uid:0");
	ck_assert_uint_eq(limits.set.set, 1 | 2 | 4);
	ck_assert_uint_eq(limits.set.max, G + G / 2);
	ck_assert_uint_eq(limits.set.guarantee, 0);
	ck_assert_int_eq(limits.set.priority, -1000);
	ck_assert(limits.set.all_devices);
	options = ARGS("set", "session:17", "max=none");
	options.device = 3;
	options.given = GM_OPTION_DEVICE;
	free(run("limit", script_limit, true, &options));
	ck_assert_str_eq(limits.owner, "session:17");
	ck_assert_uint_eq(limits.set.set, 1);
	ck_assert_uint_eq(limits.set.max, UINT64_MAX);
	ck_assert(!limits.set.all_devices);
	ck_assert_uint_eq(limits.set.device, 3);
	limits.status = GPUMEM_E_DENIED;
	ck_assert_ptr_null(run("limit", script_limit, false, &options));
	ck_assert_str_eq(trouble.text, "because");
	ck_assert(!usage);
	ck_assert_int_eq(gm_status_exit(trouble.status), 4);
}
END_TEST

START_TEST(a_limit_is_reset_for_one_or_for_all)
{
	expect_limit(GM__WIRE__PACKET__BODY_RESET_LIMIT);
	struct gm_options options = ARGS("reset");
	free(run("limit", script_limit, false, &options));
	ck_assert_str_eq(limits.owner, "");
	ck_assert(limits.reset.all_devices);
	options = ARGS("reset", "gid:0");
	options.given = GM_OPTION_DEVICE;
	free(run("limit", script_limit, false, &options));
	ck_assert_str_eq(limits.owner, "gid:0");
	ck_assert(!limits.reset.all_devices);
	ck_assert_uint_eq(limits.reset.device, 0);
}
END_TEST

START_TEST(after_a_reset_nothing_is_claimed_of_other_owners_and_devices)
{
	static const struct {
		const char *owner;
		unsigned given;
		const char *says;
	} cases[] = {
		{NULL, 0, "No limits are left.\nNothing was set at run time.\n"},
		{NULL, GM_OPTION_DEVICE,
			"No limits are left on device 1.\nNothing was set at run time.\n"},
		{"uid:0", 0, "uid:root has no limits.\nNothing was set at run time.\n"},
		{"uid:root", GM_OPTION_DEVICE,
			"uid:root has no limits on device 1.\nNothing was set at run time.\n"},
	};
	expect_limit(GM__WIRE__PACKET__BODY_RESET_LIMIT);
	limits.none = limits.none_before = true;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct gm_options options =
			cases[i].owner ? ARGS("reset", cases[i].owner) : ARGS("reset");
		options.given = cases[i].given;
		options.device = 1;
		char *text = run("limit", script_limit, false, &options);
		ck_assert_str_eq(text, cases[i].says);
		free(text);
	}
}
END_TEST

START_TEST(a_reset_says_what_it_undid)
{
	expect_limit(GM__WIRE__PACKET__BODY_RESET_LIMIT);
	limits.none = true;
	struct gm_options options = ARGS("reset");
	char *text = run("limit", script_limit, false, &options);
	ck_assert_str_eq(text,
		"No limits are left.\n"
		"Undone: uid:1002 on device 0: max 48.0G\nUndone: uid:1002 on device 1: max none\n");
	free(text);
	options.given = GM_OPTION_DEVICE;
	options.device = 1;
	json_t *json = parse(run("limit", script_limit, true, &options));
	ck_assert_int_eq(json_integer_value(json_object_get(json, "undone")), 1);
	json_decref(json);
	/* A configured limit is no such thing. */
	options = ARGS("reset", "client:a");
	text = run("limit", script_limit, false, &options);
	has(text, "Nothing was set at run time.\n");
	free(text);
}
END_TEST

/* Only the end of a run undoes its limit. */
START_TEST(a_reset_does_not_claim_to_undo_the_limits_of_runs)
{
	struct gm_options options = ARGS("reset");

	expect_limit(GM__WIRE__PACKET__BODY_RESET_LIMIT);
	limits.run = true;
	limits.run_name = (char *)"nightly";
	char *text = run("limit", script_limit, false, &options);
	has(text, "run:nightly ");
	has(text, "Nothing else was set at run time.\n"
		  "The limits of runs stay in force until the runs end.\n");
	ck_assert_ptr_null(strstr(text, "Undone"));
	ck_assert_ptr_null(strstr(text, "0123456789abcdef"));
	free(text);
	json_t *json = parse(run("limit", script_limit, true, &options));
	ck_assert_int_eq(json_integer_value(json_object_get(json, "undone")), 0);
	json_decref(json);
}
END_TEST

START_TEST(a_limit_that_makes_no_sense_is_wrong_usage)
{
	is_wrong_usage("limit", ARGS("shwo"), "did you mean 'limit show'?");
	is_wrong_usage("limit", ARGS("xyzzy"), "unknown verb 'limit xyzzy'; use 'limit show'");
	is_wrong_usage("limit", ARGS("show", "uid:0"), "'uid:0' is one argument too many");
	is_wrong_usage("limit", ARGS("set"), "use 'gpumemctl limit set OWNER max=SIZE'");
	is_wrong_usage("limit", ARGS("set", "uid:0"), "use 'gpumemctl limit set OWNER max=SIZE'");
	is_wrong_usage("limit", ARGS("set", "uid:nobody-has-this-name", "max=1G"),
		"there is no user \"nobody-has-this-name\"");
	is_wrong_usage("limit", ARGS("set", "unit:a", "max=1G"), "did you mean a.service?");
	is_wrong_usage("limit", ARGS("set", "session:0", "max=1G"), "is not a session");
	is_wrong_usage("limit", ARGS("set", "session:x", "max=1G"),
		"'gpumemctl clients --columns session,pid,name' shows them");
	is_wrong_usage("limit", ARGS("set", "0", "max=1G"),
		"\"0\" names no owner; write uid:, gid:, unit:, container: or client: and a name, or "
		"session: and a number");
	is_wrong_usage("limit", ARGS("set", "run:4f", "max=1G"),
		"\"run:4f\" is a run: its limit is set when it starts, with gpumem-run --limit");
	is_wrong_usage("limit", ARGS("set", "uid:0", "max=lots"), "'max=lots' is not a size");
	is_wrong_usage("limit", ARGS("set", "uid:0", "max=1M"),
		"'max=1M' would allow nothing: the smallest chunk that gpumemd hands out has 2.0M; use max=0");
	is_wrong_usage("limit", ARGS("set", "uid:0", "max="), "'max=' is not a size");
	is_wrong_usage("limit", ARGS("set", "uid:0", "max=-1G"), "'max=-1G' is not a size");
	is_wrong_usage("limit", ARGS("set", "uid:0", "guarantee=none"), "is not a size");
	is_wrong_usage("limit", ARGS("set", "uid:0", "foo=3"),
		"'foo=3' is not a value of a limit; use max=SIZE, guarantee=SIZE or priority=N");
	is_wrong_usage("limit", ARGS("set", "uid:0", "max=20"),
		"'max=20' is a number of bytes, and less than any memory that gpumemd hands out; did you mean 20G?");
	is_wrong_usage("limit", ARGS("set", "uid:0", "guarantee=512"), "did you mean 512M?");
	is_wrong_usage("limit", ARGS("set", "uid:0", "priority=1001"), "from -1000 to 1000");
	is_wrong_usage("limit", ARGS("set", "uid:0", "priority=--1"), "is not a priority");
	is_wrong_usage("limit", ARGS("set", "uid:0", "priority=1.5"), "is not a priority");
	is_wrong_usage("limit", ARGS("set", "uid:0", "min=1G"), "is not a value of a limit");
	is_wrong_usage("limit", ARGS("set", "uid:0", "max"), "is not a value of a limit");
	is_wrong_usage("limit", ARGS("set", "uid:0", "max=1G", "max=2G"), "was given before");
	is_wrong_usage("limit", ARGS("reset", "uid:0", "max"), "'max' is one argument too many");
	is_wrong_usage("limit", ARGS("reset", "nobody"), "names no owner");
}
END_TEST

START_TEST(a_max_that_no_device_has_limits_nothing_and_says_so)
{
	struct gm_options options = ARGS("set", "uid:0", "max=500G");

	expect_limit(GM__WIRE__PACKET__BODY_SET_LIMIT);
	json_t *json = parse(run("limit", script_limit, true, &options));
	ck_assert_uint_eq(json_array_size(json_object_get(json, "warnings")), 1);
	equals(json, "warnings", 0, "kind", "max");
	equals(json, "warnings", 0, "text",
		"max: 500.0G is more than any device has (4.0G), so it limits nothing; set a smaller max, or none");
	json_decref(json);
	options = ARGS("set", "uid:0", "max=4G");
	json = parse(run("limit", script_limit, true, &options));
	ck_assert_uint_eq(json_array_size(json_object_get(json, "warnings")), 0);
	json_decref(json);
}
END_TEST

START_TEST(a_limit_of_a_container_that_nobody_is_in_says_so)
{
	static const struct {
		const char *owner;
		bool clients, note;
	} cases[] = {
		{"container:web", false, true},
		{"container:web", true, false},
		{"container:/user.slice/x.scope", false,
			false}, /* nobody mistakes a name for that */
		{"container:6187450b8880014816ae20291a07e7c4371a7d55c0abfdede8ebcc4f6f68e42f",
			false, false},
		{"container:6187450b8880", false, true},
		{"unit:web.service", false, false},
	};
	struct gm_options options = ARGS("set", cases[_i].owner, "max=1G");

	expect_limit(GM__WIRE__PACKET__BODY_SET_LIMIT);
	limits.run = !cases[_i].clients;
	json_t *json = parse(run("limit", script_limit, true, &options));
	ck_assert_uint_eq(json_array_size(json_object_get(json, "warnings")), cases[_i].note);
	if (cases[_i].note)
		equals(json, "warnings", 0, "kind", "container");
	json_decref(json);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("verb_limit");
	TCase *tcase = tcase_create("verb");
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, limits_are_shown_with_what_is_held_and_who_is_over);
	tcase_add_test(tcase, values_that_no_owner_has_leave_room_for_the_name_of_a_run);
	tcase_add_test(tcase, two_runs_of_one_name_are_told_apart);
	tcase_add_loop_test(tcase, limits_that_are_hidden_are_counted, 0, 2);
	tcase_add_test(tcase, limits_of_one_device_can_be_shown);
	tcase_add_test(tcase, a_limit_is_set_as_it_was_said);
	tcase_add_test(tcase, a_max_that_no_device_has_limits_nothing_and_says_so);
	tcase_add_loop_test(tcase, a_limit_of_a_container_that_nobody_is_in_says_so, 0, 6);
	tcase_add_test(tcase, a_limit_is_reset_for_one_or_for_all);
	tcase_add_test(tcase, a_reset_says_what_it_undid);
	tcase_add_test(tcase, a_reset_does_not_claim_to_undo_the_limits_of_runs);
	tcase_add_test(tcase, after_a_reset_nothing_is_claimed_of_other_owners_and_devices);
	tcase_add_test(tcase, a_limit_that_makes_no_sense_is_wrong_usage);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
