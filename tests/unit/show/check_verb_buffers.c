/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl buffers against a scripted daemon: what programs say about their buffers, and where they were
 * allocated, also if the client lies about that.
 */

#include "common/wire/page.h"
#include "tests/tap.h"
#include "tests/unit/failing_malloc.h"
#include "tests/unit/ctl/verbs_fixture.h"

#define FRAME(module, offset) ((uint64_t)(module) << GM_PAGE_FRAME_SHIFT | (offset))

#define MANY 200

static Gm__Wire__Packet packet;
static bool with_stacks, gone, none_keeps, grows, many, evictable;
static const char *client_name = "trainer with a long name";

static bool send_buffers(struct gm_fake *f)
{
	const Gm__Wire__Packet *asked = gm_fake_expect(f, GM__WIRE__PACKET__BODY_GET_BUFFERS);
	Gm__Wire__BuffersReply reply = GM__WIRE__BUFFERS_REPLY__INIT;
	Gm__Wire__Buffer rows[MANY], *list[MANY];
	int n = many ? MANY : 4;

	if (!asked)
		return false;
	for (int i = 0; i < n; i++) {
		gm__wire__buffer__init(&rows[i]);
		list[i] = &rows[i];
		rows[i].session = 17;
		rows[i].pid = 4711;
		rows[i].client = (char *)client_name;
		rows[i].bytes = G;
		rows[i].age_ms = 100000 - 100000 / (uint64_t)n * (uint64_t)i;
		rows[i].idle_ms = rows[i].age_ms;
		rows[i].tag = (char *)"a tag that is long enough to need more room than there is";
	}
	if (!grows || with_stacks) {
		rows[0].type = (char *)"activations";
		rows[0].precision = (char *)"float8_e4m3";
	}
	rows[0].idle_ms = 2000;
	rows[0].stack = rows[1].stack = 3;
	rows[2].stack = 4;
	rows[3].stack = 77; /* there is no such stack */
	for (int i = 0; i < 4 && none_keeps; i++)
		rows[i].stack = 0;
	for (int i = 0; many && i < n; i++)
		rows[i].stack = 4;

	for (int i = 0; evictable && i < n; i++) {
		rows[i].session = 281474976710657;
		rows[i].row = (uint32_t)i + 1;
		rows[i].pid = 4194303;
		rows[i].uid = 65534;
		rows[i].client = (char *)"trainer-number-one";
		rows[i].tag = (char *)"optimizer state";
		rows[i].bytes = 354 * (G / 1024);
		rows[i].evictable = true;
		rows[i].in_host = i == 0;
	}

	Gm__Wire__BufferGrowth growth = GM__WIRE__BUFFER_GROWTH__INIT;
	growth.percent = 150;
	growth.step = G - G / 1000;
	growth.ceiling = 1000 * G - G / 16;
	if (grows) {
		rows[0].growth = &growth;
		rows[0].use_known = true;
		rows[0].used_bytes = G - G / 1000;
		rows[0].max_bytes = 1000 * G - G / 16;
	}
	packet = (Gm__Wire__Packet)GM__WIRE__PACKET__INIT;
	packet.body_case = GM__WIRE__PACKET__BODY_BUFFERS;
	packet.buffers = &reply;
	reply.buffers = list;
	reply.n_buffers = (size_t)n;
	send_answer(f, &packet, asked->id, false);
	return true;
}

static bool send_stacks(struct gm_fake *f)
{
	const Gm__Wire__Packet *asked = gm_fake_expect(f, GM__WIRE__PACKET__BODY_GET_STACKS);
	Gm__Wire__StacksReply reply = GM__WIRE__STACKS_REPLY__INIT;
	Gm__Wire__Failure failure = GM__WIRE__FAILURE__INIT;
	Gm__Wire__StackModule modules[2], *module_list[2] = {&modules[0], &modules[1]};
	Gm__Wire__Stack stacks[2], *stack_list[2] = {&stacks[0], &stacks[1]};
	uint64_t sound[] = {FRAME(1, 0x1234), FRAME(0, 0x10)};
	/* Modules that are not there, and more frames than there can be. */
	uint64_t lies[20] = {FRAME(2, 1), FRAME(0x7fff, 2), UINT64_MAX};

	if (!asked || asked->get_stacks->session != 17)
		return false;
	packet = (Gm__Wire__Packet)GM__WIRE__PACKET__INIT;
	if (gone) {
		packet.body_case = GM__WIRE__PACKET__BODY_FAILURE;
		packet.failure = &failure;
		failure.status = GPUMEM_E_NOT_FOUND;
		failure.detail = (char *)"there is no such session";
		send_answer(f, &packet, asked->id, false);
		return true;
	}
	for (int i = 0; i < 2; i++) {
		gm__wire__stack_module__init(&modules[i]);
		gm__wire__stack__init(&stacks[i]);
	}
	modules[0].path = (char *)"/usr/bin/true\033[2J";
	modules[1].index = 1;
	modules[1].path = (char *)"/nowhere/libmodel.so";
	modules[1].build_id.data = (uint8_t *)"0123456789012345678901234567890123456789";
	modules[1].build_id.len = 40;
	stacks[0].id = 3;
	stacks[0].frames = sound;
	stacks[0].n_frames = 2;
	stacks[1].id = 4;
	stacks[1].frames = lies;
	stacks[1].n_frames = 20;

	packet.body_case = GM__WIRE__PACKET__BODY_STACKS;
	packet.stacks = &reply;
	reply.modules = module_list;
	reply.n_modules = 2;
	send_answer(f, &packet, asked->id, true);
	reply.n_modules = 0;
	reply.stacks = stack_list;
	reply.n_stacks = 2;
	send_answer(f, &packet, asked->id, false);
	return true;
}

static void script(struct gm_fake *f, void *user)
{
	Gm__Wire__ClientsReply clients = GM__WIRE__CLIENTS_REPLY__INIT;

	(void)user;
	if (!gm_fake_hello(f) || !send_buffers(f) ||
		(with_stacks && ((!none_keeps && !send_stacks(f)) || !send_buffers(f))))
		return;
	const Gm__Wire__Packet *asked = gm_fake_expect(f, GM__WIRE__PACKET__BODY_GET_CLIENTS);
	if (!asked)
		return;
	packet = (Gm__Wire__Packet)GM__WIRE__PACKET__INIT;
	packet.body_case = GM__WIRE__PACKET__BODY_CLIENTS;
	packet.clients = &clients;
	send_answer(f, &packet, asked->id, false);
}

START_TEST(what_programs_say_about_a_buffer_is_shown)
{
	with_stacks = false;
	client_name = "trainer";
	char *text = run_text("buffers", script);
	client_name = "trainer with a long name";
	has(text, "IDLE");
	has(text, "TYPE");
	has(text, "PREC");
	has(text, "2s");
	ck_assert_ptr_null(strstr(text, "STACK"));
	fits_screen(text, 7);
	free(text);

	json_t *json = run_json("buffers", script);
	equals(json, "buffers", 0, "type", "activations");
	equals(json, "buffers", 0, "precision", "float8_e4m3");
	ck_assert_int_eq(number(json, "buffers", 0, "idle_ms"), 2000);
	/* No use of it is known. */
	ck_assert(json_is_null(at(json, "buffers", 1, "idle_ms")));
	ck_assert(json_is_null(at(json, "buffers", 1, "type")));
	ck_assert(json_is_null(at(json, "buffers", 0, "stack")));
	json_decref(json);
}
END_TEST

START_TEST(stacks_are_listed_below_the_table)
{
	struct gm_options options = {.given = GM_OPTION_STACKS};

	with_stacks = true;
	gone = false;
	char *text = run("buffers", script, false, &options);
	ck_assert_msg(text != NULL, "%s", trouble.text);
	has(text, "STACK");
	has(text, "stack 1: 2.0G in 2 buffers\n  #0  libmodel.so+0x1234\n  #1  ");
	has(text, "stack 2: 1.0G in 1 buffer\n  #0  ?+0x1\n  #1  ?+0x2\n  #2  ?+0xffffffffffff\n");
	ck_assert_ptr_null(strchr(text, '\033'));
	ck_assert_ptr_null(strstr(text, "#15"));
	fits_screen(text, 30);
	free(text);

	json_t *json = parse(run("buffers", script, true, &options));
	const json_t *stack = at(json, "buffers", 0, "stack");
	ck_assert_uint_eq(json_array_size(stack), 2);
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(stack, 0), "module")),
		"/nowhere/libmodel.so");
	ck_assert_int_eq(
		json_integer_value(json_object_get(json_array_get(stack, 0), "offset")), 0x1234);
	ck_assert(json_is_null(json_object_get(json_array_get(stack, 0), "function")));
	ck_assert_uint_eq(json_array_size(at(json, "buffers", 2, "stack")), GM_PAGE_FRAMES);
	ck_assert(json_is_null(at(json, "buffers", 3, "stack")));
	json_decref(json);
}
END_TEST

START_TEST(stacks_are_in_csv_as_a_table_of_their_own)
{
	struct gm_options options = {.given = GM_OPTION_STACKS, .csv = true};

	with_stacks = true;
	char *text = run("buffers", script, false, &options);
	ck_assert_msg(text != NULL, "%s", trouble.text);
	has(text, ",precision,stack,session,");
	has(text, "\n\nstack,frame,function,file,line,module,offset\n"
		  "1,0,,,,/nowhere/libmodel.so,4660\n");
	free(text);
}
END_TEST

START_TEST(the_column_of_stacks_can_be_chosen_and_asks_for_them)
{
	struct gm_options options = {0};
	const struct gm_verb *verb = gm_verb_find(gm_verbs, "buffers");
	char why[GM_VIEW_WHY];

	ck_assert_int_eq(
		gm_view_show(&options.view, verb->columns, verb->n_columns, "bytes,STACK", why), 0);
	with_stacks = true;
	char *text = run("buffers", script, false, &options);
	ck_assert_msg(text != NULL, "%s", trouble.text);
	has(text, "SIZE STACK\n1.0G     1\n");
	has(text, "stack 1: 2.0G in 2 buffers\n");
	free(text);
}
END_TEST

START_TEST(where_no_client_keeps_stacks_a_line_says_how_to_have_them)
{
	struct gm_options options = {.given = GM_OPTION_STACKS};

	with_stacks = none_keeps = true;
	char *text = run("buffers", script, false, &options);
	ck_assert_msg(text != NULL, "%s", trouble.text);
	has(text, "GPUMEM_TRACK=stacks\n");
	fits_screen(text, 9);
	free(text);

	/* Nothing is said of clients that are not shown. */
	options.given |= GM_OPTION_NAME;
	options.name = "nobody has this name";
	text = run("buffers", script, false, &options);
	ck_assert_str_eq(text, "No buffer matches.\n");
	free(text);
	options = (struct gm_options){.given = GM_OPTION_STACKS};

	json_t *json = parse(run("buffers", script, true, &options));
	ck_assert_uint_eq(json_array_size(json_object_get(json, "warnings")), 0);
	json_decref(json);
}
END_TEST

/* Everything that can be shown at once, in texts and figures that are as wide as they get. */
START_TEST(what_finds_no_room_is_left_out_and_named)
{
	struct gm_options options = {.given = GM_OPTION_STACKS};
	char why[GM_VIEW_WHY];

	with_stacks = grows = true;
	char *text = run("buffers", script, false, &options);
	ck_assert_msg(text != NULL, "%s", trouble.text);
	has(text, " STACK ");
	has(text, "a tag…n there is");
	has(text, "! not shown, too narrow: PREC, IDLE, USED, MAX, FACTOR, STEP, CEILING; see\n");
	has(text, "! cut, too narrow: TAG, TYPE, CLIENT; see --columns or --json\n");
	fits_screen(text, 33);
	free(text);

	/* A growing buffer alone. */
	with_stacks = false;
	text = run_text("buffers", script);
	has(text, "n there is ");
	has(text, " USED\n");
	has(text, "! not shown, too narrow: MAX, FACTOR, STEP, CEILING; see");
	fits_screen(text, 8);
	free(text);

	options = (struct gm_options){.given = GM_OPTION_COLUMNS};
	const struct gm_verb *verb = gm_verb_find(gm_verbs, "buffers");
	ck_assert_int_eq(gm_view_show(&options.view, verb->columns, verb->n_columns,
				 "growth_factor,growth_step", why),
		0);
	text = run("buffers", script, false, &options);
	has(text, "FACTOR    STEP\n   1.5 1023.0M\n");
	free(text);

	json_t *json = run_json("buffers", script);
	ck_assert(json_real_value(at(json, "buffers", 0, "growth_factor")) == 1.5);
	ck_assert_int_eq(number(json, "buffers", 0, "growth_ceiling"), 1000 * G - G / 16);
	json_decref(json);
}
END_TEST

START_TEST(where_evictable_buffers_are_and_their_kind_have_room_before_their_names)
{
	with_stacks = grows = many = false;
	evictable = true;
	char *text = run_text("buffers", script);
	has(text, " KIND ");
	has(text, " buffer host ");
	has(text, " WHERE ");
	has(text, " nobody trainer-number-one\n");
	has(text, "! not shown, too narrow: BUFFER, TYPE, PREC, IDLE; see --columns\n");
	fits_screen(text, 8);
	free(text);

	struct gm_options options = {.given = GM_OPTION_COLUMNS};
	const struct gm_verb *verb = gm_verb_find(gm_verbs, "buffers");
	char why[GM_VIEW_WHY];
	ck_assert_int_eq(
		gm_view_show(&options.view, verb->columns, verb->n_columns, "buffer,tag", why), 0);
	text = run("buffers", script, false, &options);
	evictable = false;
	has(text, "\n281474976710657/1 optimizer state\n");
	free(text);
}
END_TEST

/* Many buffers are allocated in the same place: its frames are stored once, and for JSON alone. */
START_TEST(a_stack_takes_its_memory_once_for_all_buffers)
{
	struct gm_options options = {.given = GM_OPTION_STACKS};

	with_stacks = many = true;
	for (int json = 0; json < 2; json++) {
		/* So many allocations for a row are enough, and those for its 15 frames too many. */
		failing_malloc_arm(MANY * 15);
		char *text = run("buffers", script, json, &options);
		ck_assert(!failing_malloc_fired());
		has(text, json ? "\"stack\": [" : "in 200 buffers");
		free(text);
	}
}
END_TEST

START_TEST(a_client_that_ended_meanwhile_has_no_stacks)
{
	struct gm_options options = {.given = GM_OPTION_STACKS};

	with_stacks = gone = true;
	char *text = run("buffers", script, false, &options);
	ck_assert_msg(text != NULL, "%s", trouble.text);
	ck_assert_ptr_null(strstr(text, "stack 1"));
	free(text);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("verb buffers");
	TCase *tc = tcase_create("verb buffers");
	tcase_add_unchecked_fixture(tc, setup, NULL);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, what_programs_say_about_a_buffer_is_shown);
	tcase_add_test(tc, stacks_are_listed_below_the_table);
	tcase_add_test(tc, stacks_are_in_csv_as_a_table_of_their_own);
	tcase_add_test(tc, the_column_of_stacks_can_be_chosen_and_asks_for_them);
	tcase_add_test(tc, where_no_client_keeps_stacks_a_line_says_how_to_have_them);
	tcase_add_test(tc, what_finds_no_room_is_left_out_and_named);
	tcase_add_test(tc, where_evictable_buffers_are_and_their_kind_have_room_before_their_names);
	tcase_add_test(tc, a_stack_takes_its_memory_once_for_all_buffers);
	tcase_add_test(tc, a_client_that_ended_meanwhile_has_no_stacks);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
