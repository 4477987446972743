/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl cleanup against a scripted daemon: which devices it is asked to try and to clean, what
 * people and programs get to read of the plan and its end, and the exit status.
 */

#include "tests/tap.h"
#include "tests/unit/ctl/shortage_script.h"
#include "tests/unit/ctl/verbs_fixture.h"

static struct {
	bool look;            /* it must ask which devices there are */
	unsigned tries, runs; /* how many dry and real ones are to come */
	unsigned refuse_at;   /* the how-manieth of them is refused, from 1 */
	bool nothing, short_of;
	uint32_t devices[8];
	bool dry[8];
	uint64_t need;
	uint64_t more; /* comes back than was planned */
	uint64_t min_free, reserve;
} cleanup;

static void send_cleanup(struct gm_fake *f, uint64_t id, uint32_t device, bool dry)
{
	Gm__Wire__CleanupReply reply = GM__WIRE__CLEANUP_REPLY__INIT;
	Gm__Wire__CleanupStep steps[2], *list[2] = {&steps[0], &steps[1]};
	uint64_t freed[6] = {4 * G, 6 * G + cleanup.more};
	gm__wire__cleanup_step__init(&steps[0]);
	gm__wire__cleanup_step__init(&steps[1]);
	steps[0].stage = GM__WIRE__STAGE__STAGE_POOL;
	steps[0].bytes = 4 * G;
	steps[1].stage = GM__WIRE__STAGE__STAGE_CACHED;
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
	reply.min_free = cleanup.min_free;
	reply.reserve = cleanup.reserve;
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

START_TEST(what_clients_do_not_get_of_free_memory_is_named)
{
	struct gm_options options = cleanup_options(GM_OPTION_DEVICE | GM_OPTION_NEED);

	cleanup.runs = 1;
	cleanup.min_free = G / 2;
	cleanup.reserve = G / 4;
	char *text = run("cleanup", script_cleanup, false, &options);
	ck_assert_msg(text != NULL, "%s", trouble.text);
	has(text, "Device 1: 10.0G of 11.5G came back.\n"
		  "  512.0M of what is free are never leased: min_free.\n"
		  "  The daemon will make its reserve again, of up to 256.0M.\n");
	free(text);
	json_t *json = parse(run("cleanup", script_cleanup, true, &options));
	ck_assert_int_eq(number(json, "devices", 0, "min_free"), (int64_t)(G / 2));
	ck_assert_int_eq(number(json, "devices", 0, "reserve"), (int64_t)(G / 4));
	json_decref(json);

	/* Nothing came back, so the reserve is as it was. */
	cleanup.nothing = true;
	text = run("cleanup", script_cleanup, false, &options);
	has(text, "nothing to do.\n  512.0M of what is free are never leased: min_free.\n");
	ck_assert_ptr_null(strstr(text, "reserve"));
	free(text);
}
END_TEST

START_TEST(more_than_was_wanted_is_no_part_of_it)
{
	struct gm_options options = cleanup_options(GM_OPTION_DEVICE | GM_OPTION_NEED);

	cleanup.runs = 1;
	cleanup.more = 2 * G;
	char *text = run("cleanup", script_cleanup, false, &options);
	ck_assert_msg(text != NULL, "%s", trouble.text);
	has(text, "Device 1: 12.0G came back, 11.5G were wanted.\n");
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
	has(text, "Device 0: 11.5G would come back; nothing was done.\n");
	has(text, "Device 2: 11.5G would come back; nothing was done.\n");
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

int main(void)
{
	Suite *suite = suite_create("verb_cleanup");
	TCase *tcase = tcase_create("verb");
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, a_cleanup_shows_its_plan_and_what_came_of_it);
	tcase_add_test(tcase, what_clients_do_not_get_of_free_memory_is_named);
	tcase_add_test(tcase, more_than_was_wanted_is_no_part_of_it);
	tcase_add_test(tcase, a_dry_run_asks_for_the_plan_and_nothing_else);
	tcase_add_test(tcase, a_cleanup_of_several_devices_is_done_on_all_or_on_none);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
