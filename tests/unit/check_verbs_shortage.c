/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

/*
 * The verbs for when memory is short, limit, pressure, queue, cleanup and watch, against a scripted
 * daemon: what is asked of it, what people and programs get to read, and the exit status. What is
 * wrong with the arguments is said before anybody is asked.
 */

#include <unistd.h>

#include "tests/tap.h"
#include "tests/unit/verbs_fixture.h"

static Gm__Wire__Packet packet;

static void begin(void)
{
	gm__wire__packet__init(&packet);
}

/* The next request's id; 0: it is another one than the script has. */
static uint64_t asked(struct gm_fake *f, Gm__Wire__Packet__BodyCase body)
{
	const Gm__Wire__Packet *request = gm_fake_expect(f, body);
	begin();
	return request ? request->id : 0;
}

static void refuse(struct gm_fake *f, uint64_t id, gpumem_status status, const char *detail)
{
	Gm__Wire__Failure failure = GM__WIRE__FAILURE__INIT;
	begin();
	failure.status = status;
	failure.detail = (char *)detail;
	packet.body_case = GM__WIRE__PACKET__BODY_FAILURE;
	packet.failure = &failure;
	send_answer(f, &packet, id, false);
}

static struct gm_options with_args(const char *const *args)
{
	struct gm_options options = {0};
	for (; args[options.n_args]; options.n_args++)
		options.args[options.n_args] = args[options.n_args];
	return options;
}
#define ARGS(...) with_args((const char *const[]){__VA_ARGS__, NULL})

static json_t *parse(char *text)
{
	ck_assert_msg(text != NULL, "%s", trouble.text);
	json_t *json = json_loads(text, 0, NULL);
	ck_assert_msg(json != NULL, "not JSON: %s", text);
	free(text);
	return json;
}

static int64_t number(const json_t *json, const char *list, size_t i, const char *key)
{
	const json_t *value = at(json, list, i, key);
	ck_assert_msg(json_is_integer(value), "%s[%zu].%s is no number", list, i, key);
	return json_integer_value(value);
}

static void equals(
	const json_t *json, const char *list, size_t i, const char *key, const char *text)
{
	const char *value = json_string_value(at(json, list, i, key));
	ck_assert_msg(value && !strcmp(value, text), "%s[%zu].%s is %s, not %s", list, i, key,
		value ? value : "no text", text);
}

/* Runs it where nobody listens: it must not get so far. */
static void is_wrong_usage(const char *name, struct gm_options options, const char *why)
{
	struct gm_ctl ctl = {.options = &options};
	options.socket = "/nowhere/at/all";
	options.timeout_ms = 1000;
	options.verb = gm_verb_find(name);
	ctl.writer = gm_writer_json_new();
	ck_assert_int_ne(options.verb->run(&ctl), GPUMEM_OK);
	ck_assert_msg(ctl.usage, "%s: not called wrong usage: %s", why, ctl.trouble.text);
	has(ctl.trouble.text, why);
	gm_writer_free(ctl.writer);
}

static void send_devices(struct gm_fake *f, uint64_t id)
{
	Gm__Wire__DevicesReply reply = GM__WIRE__DEVICES_REPLY__INIT;
	Gm__Wire__Device devices[3], *list[3];
	for (uint32_t i = 0; i < 3; i++) {
		gm__wire__device__init(&devices[i]);
		list[i] = &devices[i];
		devices[i].number = i;
		devices[i].capacity = 100 * G;
		devices[i].available = (100 - 45 * i) * G;
		devices[i].pressure_ppm = 450000 * i;
		devices[i].level = i;
		devices[i].foreign = i * G;
		devices[i].measured = i != 2;
		devices[i].pinned = i == 2;
	}
	begin();
	packet.body_case = GM__WIRE__PACKET__BODY_DEVICES;
	packet.devices = &reply;
	reply.n_devices = 2;
	reply.devices = list;
	send_answer(f, &packet, id, true);
	reply.n_devices = 1;
	reply.devices = list + 2;
	send_answer(f, &packet, id, false);
}

/* ---- limit */

static struct {
	Gm__Wire__Packet__BodyCase body; /* what must be asked */
	bool look;                       /* after a look at the devices */
	gpumem_status status;
	char owner[64];
	Gm__Wire__SetLimit set;
	Gm__Wire__ResetLimit reset;
} limits;

static void send_limits(struct gm_fake *f, uint64_t id)
{
	Gm__Wire__LimitsReply reply = GM__WIRE__LIMITS_REPLY__INIT;
	Gm__Wire__Limit rows[3], *list[3];
	for (size_t i = 0; i < 3; i++) {
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
	begin();
	packet.body_case = GM__WIRE__PACKET__BODY_LIMITS;
	packet.limits = &reply;
	reply.limits = list;
	reply.n_limits = 2;
	send_answer(f, &packet, id, true);
	reply.limits = list + 2;
	reply.n_limits = 1;
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
	has(text, "0 48.0G         -      -10 49.0G       3 over  run-time\n");
	has(text, "1     -         -      -10    0B       3 ok    run-time\n");
	has(text, "0     -     16.0G        -    0B       0 ok    configured\n");
	has(text, "\\x1b");
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
	ck_assert_str_eq(text, "No limits are set.\n");
	free(text);
	options.device = 3;
	limits.status = GPUMEM_E_NOT_FOUND;
	ck_assert_ptr_null(run("limit", script_limit, false, &options));
	ck_assert_str_eq(trouble.text, "there is no device 3; 'gpumemctl devices' shows them");
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

START_TEST(a_limit_that_makes_no_sense_is_wrong_usage)
{
	is_wrong_usage("limit", ARGS("shwo"), "did you mean 'limit show'?");
	is_wrong_usage("limit", ARGS("xyzzy"), "say 'gpumemctl limit show'");
	is_wrong_usage("limit", ARGS("show", "uid:0"), "'uid:0' is one argument too many");
	is_wrong_usage("limit", ARGS("set"), "say 'gpumemctl limit set OWNER max=SIZE'");
	is_wrong_usage("limit", ARGS("set", "uid:0"), "say 'gpumemctl limit set OWNER max=SIZE'");
	is_wrong_usage("limit", ARGS("set", "uid:nobody-has-this-name", "max=1G"),
		"there is no user \"nobody-has-this-name\"");
	is_wrong_usage("limit", ARGS("set", "unit:a", "max=1G"), "did you mean a.service?");
	is_wrong_usage("limit", ARGS("set", "session:0", "max=1G"), "is not a session");
	is_wrong_usage("limit", ARGS("set", "0", "max=1G"), "names no owner");
	is_wrong_usage("limit", ARGS("set", "uid:0", "max=lots"), "'max=lots' is no size");
	is_wrong_usage("limit", ARGS("set", "uid:0", "max="), "'max=' is no size");
	is_wrong_usage("limit", ARGS("set", "uid:0", "max=-1G"), "'max=-1G' is no size");
	is_wrong_usage("limit", ARGS("set", "uid:0", "guarantee=none"), "is no size");
	is_wrong_usage("limit", ARGS("set", "uid:0", "priority=1001"), "from -1000 to 1000");
	is_wrong_usage("limit", ARGS("set", "uid:0", "priority=--1"), "is no priority");
	is_wrong_usage("limit", ARGS("set", "uid:0", "priority=1.5"), "is no priority");
	is_wrong_usage("limit", ARGS("set", "uid:0", "min=1G"), "is nothing of a limit");
	is_wrong_usage("limit", ARGS("set", "uid:0", "max"), "is nothing of a limit");
	is_wrong_usage("limit", ARGS("set", "uid:0", "max=1G", "max=2G"), "was given already");
	is_wrong_usage("limit", ARGS("reset", "uid:0", "max"), "'max' is one argument too many");
	is_wrong_usage("limit", ARGS("reset", "nobody"), "names no owner");
}
END_TEST

/* ---- pressure */

static void script_devices(struct gm_fake *f, void *user)
{
	if (!gm_fake_hello(f))
		return;
	uint64_t id = asked(f, GM__WIRE__PACKET__BODY_GET_DEVICES);
	if (id)
		send_devices(f, id);
}

START_TEST(pressure_is_shown_and_asked_for_by_its_level)
{
	struct gm_options options = {0};
	char *text = run_text("pressure", script_devices);
	has(text, "DEV PRESSURE LEVEL   AVAIL CAPACITY FOREIGN\n");
	has(text, "  0       0% low    100.0G   100.0G      0B\n");
	has(text, "  1      45% medium  55.0G   100.0G    1.0G\n");
	has(text, "  2      90% high    10.0G   100.0G       -\n");
	ck_assert_int_eq(ended, GPUMEM_OK);
	free(text);
	for (uint32_t level = 0; level < 4; level++) {
		options = (struct gm_options){.at_least = level, .given = GM_OPTION_AT_LEAST};
		json_t *json = parse(run("pressure", script_devices, true, &options));
		ck_assert(json_is_boolean(json_object_get(json, "reached")));
		ck_assert_int_eq(json_is_true(json_object_get(json, "reached")), level <= 2);
		ck_assert_int_eq(gm_status_exit(ended), level <= 2 ? 0 : 1);
		equals(json, "pressure", 2, "level", "high");
		ck_assert(json_is_null(at(json, "pressure", 2, "foreign")));
		ck_assert_double_eq_tol(
			json_real_value(at(json, "pressure", 1, "pressure")), 0.45, 1e-9);
		json_decref(json);
	}
	/* Of one device. */
	options.at_least = 2;
	options.given = GM_OPTION_AT_LEAST | GM_OPTION_DEVICE;
	options.device = 1;
	json_t *json = parse(run("pressure", script_devices, true, &options));
	ck_assert_uint_eq(json_array_size(json_object_get(json, "pressure")), 1);
	ck_assert(json_is_false(json_object_get(json, "reached")));
	ck_assert_int_eq(gm_status_exit(ended), 1);
	json_decref(json);
	options.device = 3;
	ck_assert_ptr_null(run("pressure", script_devices, false, &options));
	ck_assert_str_eq(trouble.text, "there is no device 3; 'gpumemctl devices' shows them");
}
END_TEST

/* ---- queue */

static bool queue_is_empty;

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
	rows[0].owner = (char *)"uid:1002";
	rows[0].priority = -10;
	rows[0].waited_ms = 200000;
	rows[0].overtaken = 5;
	rows[1].left_ms = 29000;
	rows[1].parked = true;
	rows[5].block = (Gm__Wire__Block)77; /* of a newer daemon */
	packet.body_case = GM__WIRE__PACKET__BODY_QUEUE;
	packet.queue = &reply;
	reply.requests = list;
	reply.n_requests = queue_is_empty ? 0 : 4;
	send_answer(f, &packet, id, true);
	reply.requests = list + 4;
	reply.n_requests = queue_is_empty ? 0 : 2;
	send_answer(f, &packet, id, false);
}

START_TEST(who_waits_is_shown_with_what_for)
{
	queue_is_empty = false;
	char *text = run_text("queue", script_queue);
	has(text,
		"  0 4711 root trainer  2.0G      -10   3min    -         5 limit     uid:1002\n");
	has(text, "29s         0 device");
	has(text, "guarantee");
	has(text, "pressure");
	has(text, "turn");
	fits_screen(text, 8);
	free(text);
	json_t *json = run_json("queue", script_queue);
	static const char *const blocks[] = {"limit", "device", "guarantee", "pressure", "turn"};
	ck_assert_uint_eq(json_array_size(json_object_get(json, "queue")), 6);
	for (size_t i = 0; i < 5; i++)
		equals(json, "queue", i, "block", blocks[i]);
	ck_assert(json_is_null(at(json, "queue", 5, "block")));
	ck_assert_int_eq(number(json, "queue", 0, "session"), 17);
	ck_assert_int_eq(number(json, "queue", 0, "waited_ms"), 200000);
	ck_assert_int_eq(number(json, "queue", 0, "priority"), -10);
	ck_assert_int_eq(number(json, "queue", 0, "overtaken"), 5);
	equals(json, "queue", 0, "owner", "uid:1002");
	ck_assert(json_is_null(at(json, "queue", 0, "left_ms")));
	ck_assert_int_eq(number(json, "queue", 1, "left_ms"), 29000);
	ck_assert(json_is_true(at(json, "queue", 1, "parked")));
	/* A name that is not for the asker. */
	ck_assert(json_is_null(at(json, "queue", 1, "client")));
	json_decref(json);
	queue_is_empty = true;
	text = run_text("queue", script_queue);
	ck_assert_str_eq(text, "No request waits.\n");
	free(text);
	json = run_json("queue", script_queue);
	ck_assert_uint_eq(json_array_size(json_object_get(json, "queue")), 0);
	ck_assert(json_is_array(json_object_get(json, "queue")));
	json_decref(json);
}
END_TEST

/* ---- cleanup */

static struct {
	bool look;            /* it must ask which devices there are */
	unsigned tries, runs; /* how many dry and real ones are to come */
	unsigned refuse_at;   /* the how-manieth of them is refused, from 1 */
	bool nothing, short_of;
	uint32_t devices[8];
	bool dry[8];
	uint64_t need;
} cleanup;

static void send_cleanup(struct gm_fake *f, uint64_t id, uint32_t device, bool dry)
{
	Gm__Wire__CleanupReply reply = GM__WIRE__CLEANUP_REPLY__INIT;
	Gm__Wire__CleanupStep steps[2], *list[2] = {&steps[0], &steps[1]};
	uint64_t freed[6] = {4 * G, 6 * G};
	gm__wire__cleanup_step__init(&steps[0]);
	gm__wire__cleanup_step__init(&steps[1]);
	steps[0].rung = GM__WIRE__RUNG__RUNG_POOL;
	steps[0].bytes = 4 * G;
	steps[1].rung = GM__WIRE__RUNG__RUNG_CACHED;
	steps[1].bytes = 7 * G + G / 2;
	steps[1].held = 30 * G;
	steps[1].session = 5;
	steps[1].pid = 4711;
	steps[1].client = (char *)"trainer";
	steps[1].priority = -10;
	begin();
	packet.body_case = GM__WIRE__PACKET__BODY_CLEANUP_REPLY;
	packet.cleanup_reply = &reply;
	reply.device = device;
	if (!cleanup.nothing) {
		reply.planned = 11 * G + G / 2;
		reply.n_steps = 2;
		reply.steps = list;
	}
	send_answer(f, &packet, id, !dry);
	if (dry)
		return;
	reply.n_steps = 0;
	reply.done = true;
	reply.reached = !cleanup.short_of;
	reply.n_freed = cleanup.nothing ? 0 : 6;
	reply.freed = freed;
	reply.free = 16 * G;
	send_answer(f, &packet, id, false);
}

static void script_cleanup(struct gm_fake *f, void *user)
{
	if (!gm_fake_hello(f))
		return;
	if (cleanup.look)
		send_devices(f, asked(f, GM__WIRE__PACKET__BODY_GET_DEVICES));
	for (unsigned i = 0; i < cleanup.tries + cleanup.runs; i++) {
		const Gm__Wire__Packet *request = gm_fake_expect(f, GM__WIRE__PACKET__BODY_CLEANUP);
		if (!request)
			return;
		uint64_t id = request->id;
		cleanup.devices[i] = request->cleanup->device;
		cleanup.dry[i] = request->cleanup->dry_run;
		cleanup.need = request->cleanup->need;
		if (cleanup.refuse_at == i + 1) {
			refuse(f, id, GPUMEM_E_NO_MEMORY, "device 1: 16.0G cannot be made free");
			gm_fake_wait_end(f);
			return;
		}
		send_cleanup(f, id, cleanup.devices[i], cleanup.dry[i]);
	}
}

static struct gm_options cleanup_options(unsigned given)
{
	memset(&cleanup, 0, sizeof(cleanup));
	return (struct gm_options){
		.given = given, .need = given & GM_OPTION_NEED ? 16 * G : 0, .device = 1};
}

START_TEST(a_cleanup_shows_its_plan_and_what_came_of_it)
{
	struct gm_options options = cleanup_options(GM_OPTION_DEVICE | GM_OPTION_NEED);
	cleanup.runs = 1;
	char *text = run("cleanup", script_cleanup, false, &options);
	ck_assert_msg(text != NULL, "%s", trouble.text);
	ck_assert_str_eq(text, "DEV STEP   WANTED  HELD  PID USER CLIENT  PRIORITY\n"
			       "  1 pool     4.0G     -    - -    -              -\n"
			       "  1 cached   7.5G 30.0G 4711 root trainer      -10\n"
			       "\n"
			       "Device 1: 10.0G of 11.5G came back.\n");
	free(text);
	ck_assert_uint_eq(cleanup.devices[0], 1);
	ck_assert_uint_eq(cleanup.need, 16 * G);
	ck_assert(!cleanup.dry[0]);
	ck_assert_int_eq(gm_status_exit(ended), 0);
	json_t *json = parse(run("cleanup", script_cleanup, true, &options));
	equals(json, "plan", 0, "step", "pool");
	ck_assert(json_is_null(at(json, "plan", 0, "session")));
	ck_assert_int_eq(number(json, "plan", 1, "session"), 5);
	ck_assert_int_eq(number(json, "plan", 1, "bytes"), (int64_t)(7 * G + G / 2));
	ck_assert_int_eq(number(json, "devices", 0, "freed"), (int64_t)(10 * G));
	ck_assert_int_eq(number(json, "devices", 0, "free"), (int64_t)(16 * G));
	ck_assert(json_is_true(at(json, "devices", 0, "reached")));
	json_decref(json);
	/* It was begun, and not enough came. */
	cleanup.short_of = true;
	text = run("cleanup", script_cleanup, false, &options);
	has(text, "Device 1: 10.0G of 11.5G came back, which is not enough.\n");
	ck_assert_int_eq(gm_status_exit(ended), 6);
	free(text);
}
END_TEST

START_TEST(a_dry_run_asks_for_the_plan_and_nothing_else)
{
	struct gm_options options = cleanup_options(GM_OPTION_DRY_RUN);
	cleanup.look = true;
	cleanup.tries = 3;
	char *text = run("cleanup", script_cleanup, false, &options);
	ck_assert_msg(text != NULL, "%s", trouble.text);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert(cleanup.dry[i]);
		ck_assert_uint_eq(cleanup.devices[i], i);
	}
	ck_assert_uint_eq(cleanup.need, 0);
	has(text, "Device 0: 11.5G could be got back; nothing was done.\n");
	has(text, "Device 2: 11.5G could be got back; nothing was done.\n");
	ck_assert_int_eq(gm_status_exit(ended), 0);
	free(text);
	json_t *json = parse(run("cleanup", script_cleanup, true, &options));
	ck_assert_uint_eq(json_array_size(json_object_get(json, "plan")), 6);
	ck_assert(json_is_null(at(json, "devices", 2, "freed")));
	ck_assert(json_is_null(at(json, "devices", 2, "reached")));
	json_decref(json);
	cleanup.nothing = true;
	text = run("cleanup", script_cleanup, false, &options);
	ck_assert_str_eq(text, "Device 0: there is nothing to do.\n"
			       "Device 1: there is nothing to do.\n"
			       "Device 2: there is nothing to do.\n");
	free(text);
}
END_TEST

START_TEST(a_cleanup_of_several_devices_is_done_on_all_or_on_none)
{
	/* What a GPU is to have free is not asked of pinned memory, which is device 2. */
	struct gm_options options = cleanup_options(GM_OPTION_NEED);
	cleanup.look = true;
	cleanup.tries = cleanup.runs = 2;
	char *text = run("cleanup", script_cleanup, false, &options);
	ck_assert_msg(text != NULL, "%s", trouble.text);
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_int_eq(cleanup.dry[i], i < 2);
		ck_assert_uint_eq(cleanup.devices[i], i % 2);
	}
	has(text, "Device 0: 10.0G");
	has(text, "Device 1: 10.0G");
	ck_assert_ptr_null(strstr(text, "Device 2"));
	free(text);
	/* The second one cannot: nothing was begun on the first. */
	cleanup.refuse_at = 2;
	ck_assert_ptr_null(run("cleanup", script_cleanup, false, &options));
	ck_assert(cleanup.dry[0] && cleanup.dry[1]);
	ck_assert_str_eq(trouble.text, "device 1: 16.0G cannot be made free");
	ck_assert_int_eq(gm_status_exit(trouble.status), 6);
	/* Without a size all three are cleaned. */
	options = cleanup_options(0);
	cleanup.look = true;
	cleanup.tries = cleanup.runs = 3;
	text = run("cleanup", script_cleanup, false, &options);
	has(text, "Device 2: 10.0G");
	free(text);
}
END_TEST

/* ---- watch */

static bool watch_refused, watch_cut;

static void script_watch(struct gm_fake *f, void *user)
{
	Gm__Wire__Done done = GM__WIRE__DONE__INIT;
	Gm__Wire__PressureEvent pressure = GM__WIRE__PRESSURE_EVENT__INIT;
	Gm__Wire__NoticeEvent notice = GM__WIRE__NOTICE_EVENT__INIT;
	Gm__Wire__GoodbyeEvent goodbye = GM__WIRE__GOODBYE_EVENT__INIT;
	uint64_t rungs[6] = {G, 2 * G, 0, 0, 0, 0};
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
	notice.need = 3 * G;
	notice.n_rungs = 6;
	notice.rungs = rungs;
	notice.reached = true;
	send_answer(f, &packet, 0, false);
	gm__wire__notice_event__init(&notice);
	notice.kind = (char *)"limits";
	notice.text = (char *)"somebody changed limits";
	send_answer(f, &packet, 0, false);
	gm__wire__notice_event__init(&notice);
	notice.kind = (char *)"limit";
	notice.device = 1;
	notice.text = (char *)"uid 7 may hold 1.0G";
	notice.session = 17;
	notice.pid = 4711;
	notice.uid = 7;
	notice.client = (char *)"x";
	notice.owner = (char *)"uid:7";
	notice.asked = G;
	notice.max = G;
	notice.held = 1;
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
		.verb = gm_verb_find("watch"),
		.given = device ? GM_OPTION_DEVICE : 0,
		.device = device ? *device : 0};
	struct gm_ctl ctl = {.options = &options, .writer = gm_writer_json_new()};
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
	has(text, "  limit            uid 7 may hold 1.0G\n");
	has(text, "  goodbye          goodbye: the daemon is stopping\n");
	ck_assert_ptr_null(strchr(text, '\033'));
	free(text);
	/* Of one device: what is about another is left out, what is about none is not. */
	uint32_t device = 1;
	text = watch(false, &device, GPUMEM_OK);
	has(text, "  pressure ");
	has(text, "  limits ");
	has(text, "  limit ");
	ck_assert_ptr_null(strstr(text, "reclaim-ended"));
	free(text);
}
END_TEST

START_TEST(each_line_for_programs_is_an_object)
{
	static const char *const kinds[] = {
		"pressure", "reclaim-ended", "limits", "limit", "goodbye"};
	char *text = watch(true, NULL, GPUMEM_OK), *rest = text;
	size_t n = 0;
	for (char *line; (line = strsep(&rest, "\n")) && *line; n++) {
		json_t *json = json_loads(line, 0, NULL);
		ck_assert_msg(json != NULL, "not JSON: %s", line);
		ck_assert_uint_lt(n, 5);
		ck_assert_str_eq(json_string_value(json_object_get(json, "event")), kinds[n]);
		ck_assert_ptr_nonnull(json_string_value(json_object_get(json, "time")));
		if (n == 0) {
			ck_assert_str_eq(json_string_value(json_object_get(json, "level")), "high");
			ck_assert_double_eq_tol(
				json_real_value(json_object_get(json, "pressure")), 0.812345, 1e-9);
		}
		if (n == 1) {
			const json_t *rungs = json_object_get(json, "rungs");
			ck_assert_int_eq(json_integer_value(json_object_get(rungs, "cached")),
				(int64_t)(2 * G));
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
		json_decref(json);
	}
	ck_assert_uint_eq(n, 5);
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
	text = watch(false, NULL, GPUMEM_E_DISCONNECTED);
	has(text, "uid 7 may hold 1.0G\n");
	ck_assert_int_eq(gm_status_exit(trouble.status), 3);
	free(text);
	uint32_t device = 3;
	text = watch(false, &device, GPUMEM_E_NOT_FOUND);
	ck_assert_str_eq(text, "");
	ck_assert_str_eq(trouble.text, "there is no device 3; 'gpumemctl devices' shows them");
	free(text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("verbs_shortage");
	TCase *tcase = tcase_create("verbs");
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, limits_are_shown_with_what_is_held_and_who_is_over);
	tcase_add_test(tcase, limits_of_one_device_can_be_shown);
	tcase_add_test(tcase, a_limit_is_set_as_it_was_said);
	tcase_add_test(tcase, a_limit_is_reset_for_one_or_for_all);
	tcase_add_test(tcase, a_limit_that_makes_no_sense_is_wrong_usage);
	tcase_add_test(tcase, pressure_is_shown_and_asked_for_by_its_level);
	tcase_add_test(tcase, who_waits_is_shown_with_what_for);
	tcase_add_test(tcase, a_cleanup_shows_its_plan_and_what_came_of_it);
	tcase_add_test(tcase, a_dry_run_asks_for_the_plan_and_nothing_else);
	tcase_add_test(tcase, a_cleanup_of_several_devices_is_done_on_all_or_on_none);
	tcase_add_test(tcase, what_happens_is_a_line_each_until_the_goodbye);
	tcase_add_test(tcase, each_line_for_programs_is_an_object);
	tcase_add_test(tcase, a_watch_that_ends_otherwise_is_a_failure);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
