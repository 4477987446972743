/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl shares against a scripted daemon: the names as people and programs get to read them, and
 * what is asked of the daemon to remove one.
 */

#include "tests/tap.h"
#include "tests/unit/ctl/shortage_script.h"
#include "tests/unit/ctl/verbs_fixture.h"

static bool none;

static void script_shares(struct gm_fake *f, void *user)
{
	Gm__Wire__NamesReply reply = GM__WIRE__NAMES_REPLY__INIT;
	Gm__Wire__Name rows[4], *list[4];
	if (!gm_fake_hello(f))
		return;
	uint64_t id = asked(f, GM__WIRE__PACKET__BODY_GET_NAMES);
	if (!id)
		return;
	for (int i = 0; i < 4; i++) {
		gm__wire__name__init(&rows[i]);
		list[i] = &rows[i];
		rows[i].name = (char *)"llama";
		rows[i].version = 1;
		rows[i].bytes = 2 * G;
		rows[i].user_bytes = 2 * G - 1;
		rows[i].audience = (Gm__Wire__Audience)i;
	}
	rows[0].owner = 4000000000;
	rows[0].name = (char *)"a name that has as many bytes as a name may have: that is sixty";
	rows[0].version = 1234567;
	rows[0].readers = 100000;
	rows[0].age_ms = 200000;
	rows[0].left_ms = 7200000 + 180000;
	rows[0].metadata_bytes = 1234;
	rows[0].maker = true;
	rows[0].tag = (char *)"weights";
	rows[1].audience_id = 0;
	rows[1].read_only = true;
	rows[1].until_unread = true;
	rows[2].audience_id = 4000000001;
	rows[2].read_only = rows[2].advisory = true; /* on a GPU */
	rows[3].audience = (Gm__Wire__Audience)77;   /* of a newer daemon */
	packet.body_case = GM__WIRE__PACKET__BODY_NAMES;
	packet.names = &reply;
	reply.names = list;
	reply.n_names = none ? 0 : 1;
	send_answer(f, &packet, id, true);
	reply.names = list + 1;
	reply.n_names = none ? 0 : 3;
	send_answer(f, &packet, id, false);
}

START_TEST(names_are_shown_with_whose_they_are_and_for_whom)
{
	none = false;
	char *text = run_text("shares", script_shares);
	has(text, "OWNER");
	has(text, "4000000");
	has(text, "domain");
	has(text, "gid:4000000001");
	has(text, "a name th…ave: that is sixty");
	has(text, "! cut, too narrow: NAME; see --columns or --json\n");
	has(text, "uid:root");
	has(text, " write ");
	has(text, " read ");
	has(text, " advisory ");
	has(text, "! not shown, too narrow: LEFT, VERSION, AGE, MAKER; see --columns\n");
	fits_screen(text, 8);
	free(text);

	/* Sorted by owner and name; these are the rows of root and one of somebody without a name. */
	json_t *json = run_json("shares", script_shares);
	ck_assert_uint_eq(json_array_size(json_object_get(json, "shares")), 4);
	size_t other = number(json, "shares", 0, "uid") ? 0 : 3, root = other ? 0 : 1;
	ck_assert_int_eq(number(json, "shares", other, "uid"), 4000000000);
	ck_assert_int_eq(number(json, "shares", other, "version"), 1234567);
	ck_assert_int_eq(number(json, "shares", other, "readers"), 100000);
	ck_assert_int_eq(number(json, "shares", other, "age_ms"), 200000);
	ck_assert_int_eq(number(json, "shares", other, "left_ms"), 7380000);
	ck_assert(json_is_null(at(json, "shares", root, "left_ms")));
	ck_assert_int_eq(number(json, "shares", other, "metadata_bytes"), 1234);
	ck_assert(json_is_true(at(json, "shares", other, "maker")));
	equals(json, "shares", other, "audience", "domain");
	equals(json, "shares", other, "mode", "write");
	equals(json, "shares", other, "tag", "weights");
	equals(json, "shares", root, "user", "root");
	equals(json, "shares", root, "audience", "uid:0");
	equals(json, "shares", root, "audience_name", "uid:root");
	equals(json, "shares", root, "mode", "read");
	ck_assert(json_is_true(at(json, "shares", root, "until_unread")));
	ck_assert(json_is_false(at(json, "shares", root, "maker")));
	ck_assert_int_eq(number(json, "shares", root, "bytes"), 2 * G);
	ck_assert_int_eq(number(json, "shares", root, "user_bytes"), 2 * G - 1);
	equals(json, "shares", root + 1, "audience", "gid:4000000001");
	ck_assert(json_is_null(at(json, "shares", root + 2, "audience")));
	/* What was asked for, and whether that is more than a request. */
	equals(json, "shares", root + 1, "mode", "read");
	ck_assert(json_is_false(at(json, "shares", root + 1, "enforced")));
	ck_assert(json_is_true(at(json, "shares", root, "enforced")));
	ck_assert(json_is_null(at(json, "shares", other, "enforced")));
	json_decref(json);
}
END_TEST

START_TEST(no_names_are_said_in_words_and_an_empty_list)
{
	none = true;
	char *text = run_text("shares", script_shares);
	ck_assert_str_eq(text, "No buffers are published that you may see.\n");
	free(text);
	json_t *json = run_json("shares", script_shares);
	ck_assert(json_is_array(json_object_get(json, "shares")));
	json_decref(json);
}
END_TEST

static struct {
	char name[64];
	bool foreign;
	uint32_t owner;
} removed;

static void script_remove(struct gm_fake *f, void *user)
{
	Gm__Wire__Done done = GM__WIRE__DONE__INIT;
	if (!gm_fake_hello(f))
		return;
	const Gm__Wire__Packet *request = gm_fake_expect(f, GM__WIRE__PACKET__BODY_UNPUBLISH);
	if (!request)
		return;
	begin();
	snprintf(removed.name, sizeof(removed.name), "%s", request->unpublish->name);
	removed.foreign = request->unpublish->foreign;
	removed.owner = request->unpublish->owner;
	packet.body_case = GM__WIRE__PACKET__BODY_DONE;
	packet.done = &done;
	send_answer(f, &packet, request->id, false);
}

static char *run_remove(const char *name, gm_fake_script script)
{
	struct gm_options options = {.args = {"remove", name}, .n_args = name ? 2 : 1};
	return run("shares", script, false, &options);
}

START_TEST(a_name_is_removed_by_its_owner_or_with_the_owner)
{
	char *text = run_remove("llama", script_remove);
	ck_assert_str_eq(removed.name, "llama");
	ck_assert(!removed.foreign);
	has(text, "Removed llama.");
	free(text);
	free(run_remove("uid:root/llama", script_remove));
	ck_assert(removed.foreign);
	ck_assert_uint_eq(removed.owner, 0);
	ck_assert_str_eq(removed.name, "llama");
	free(run_remove("uid:4000000000/b", script_remove));
	ck_assert_uint_eq(removed.owner, 4000000000);
	ck_assert_str_eq(removed.name, "b");
}
END_TEST

static struct {
	char name[64];
	bool foreign;
	uint32_t owner;
	uint64_t lifetime_ms;
} expired;

static void script_expire(struct gm_fake *f, void *user)
{
	Gm__Wire__Done done = GM__WIRE__DONE__INIT;
	if (!gm_fake_hello(f))
		return;
	const Gm__Wire__Packet *request = gm_fake_expect(f, GM__WIRE__PACKET__BODY_EXPIRE_NAME);
	if (!request)
		return;
	begin();
	snprintf(expired.name, sizeof(expired.name), "%s", request->expire_name->name);
	expired.foreign = request->expire_name->foreign;
	expired.owner = request->expire_name->owner;
	expired.lifetime_ms = request->expire_name->lifetime_ms;
	packet.body_case = GM__WIRE__PACKET__BODY_DONE;
	packet.done = &done;
	send_answer(f, &packet, request->id, false);
}

START_TEST(a_name_is_told_when_it_ends)
{
	struct gm_options options = {.args = {"expire", "llama", "2h"}, .n_args = 3};
	char *text = run("shares", script_expire, false, &options);
	ck_assert_str_eq(expired.name, "llama");
	ck_assert(!expired.foreign);
	ck_assert_uint_eq(expired.lifetime_ms, 7200000);
	has(text, "llama ends in 2h.");
	free(text);

	/* It says what it understood. */
	options.args[2] = "90";
	text = run("shares", script_expire, false, &options);
	ck_assert_uint_eq(expired.lifetime_ms, 90000);
	has(text, "llama ends in 1min 30s.");
	free(text);

	options.args[1] = "uid:root/llama";
	options.args[2] = "never";
	text = run("shares", script_expire, false, &options);
	ck_assert(expired.foreign);
	ck_assert_uint_eq(expired.owner, 0);
	ck_assert_uint_eq(expired.lifetime_ms, 0);
	has(text, "does not end by itself");
	free(text);

	text = run("shares", script_expire, true, &options);
	json_t *json = json_loads(text, 0, NULL);
	ck_assert_str_eq(json_string_value(json_object_get(json, "expires")), "uid:root/llama");
	ck_assert(json_is_null(json_object_get(json, "left_ms")));
	json_decref(json);
	free(text);
}
END_TEST

/* The daemon does not know the name, and then lists the names that it has. */
static void script_unknown(struct gm_fake *f, void *user)
{
	Gm__Wire__Failure failure = GM__WIRE__FAILURE__INIT;
	Gm__Wire__NamesReply reply = GM__WIRE__NAMES_REPLY__INIT;
	Gm__Wire__Name row = GM__WIRE__NAME__INIT, *list[] = {&row};
	if (!gm_fake_hello(f))
		return;
	const Gm__Wire__Packet *request = gm_fake_expect(f, GM__WIRE__PACKET__BODY_EXPIRE_NAME);
	if (!request)
		return;
	begin();
	bool last = request->expire_name->foreign || strstr(request->expire_name->name, "…");
	failure.status = GPUMEM_E_NOT_FOUND;
	failure.detail = (char *)"there is no such name";
	packet.body_case = GM__WIRE__PACKET__BODY_FAILURE;
	packet.failure = &failure;
	packet.id = request->id;
	gm_fake_send(f, &packet);
	if (last) {
		gm_fake_wait_end(f);
		return;
	}

	uint64_t id = asked(f, GM__WIRE__PACKET__BODY_GET_NAMES);
	row.name = (char *)"llama";
	row.owner = 4000000000;
	reply.names = list;
	reply.n_names = none ? 0 : 1;
	packet.body_case = GM__WIRE__PACKET__BODY_NAMES;
	packet.names = &reply;
	if (id)
		send_answer(f, &packet, id, false);
}

START_TEST(a_name_that_another_user_has_is_pointed_to)
{
	struct gm_options options = {.args = {"expire", "llama", "2h"}, .n_args = 3};
	ck_assert_ptr_null(run("shares", script_unknown, false, &options));
	ck_assert_str_eq(trouble.text,
		"you have no buffer with the name llama; for that of user 4000000000, write uid:4000000000/llama");
	ck_assert_int_eq(trouble.status, GPUMEM_E_NOT_FOUND);
	ck_assert(!usage);

	options.args[1] = "mistral";
	ck_assert_ptr_null(run("shares", script_unknown, false, &options));
	ck_assert_str_eq(
		trouble.text, "you have no buffer with the name mistral; see 'gpumemctl shares'");
	options.args[1] = "uid:root/llama";
	ck_assert_ptr_null(run("shares", script_unknown, false, &options));
	ck_assert_str_eq(trouble.text,
		"user root has no buffer with the name llama; see 'gpumemctl shares'");
}
END_TEST

START_TEST(a_name_that_a_table_has_cut_is_told_from_one_that_does_not_exist)
{
	struct gm_options options = {.args = {"expire", "meta-…1-of-00003", "2h"}, .n_args = 3};

	ck_assert_ptr_null(run("shares", script_unknown, false, &options));
	ck_assert_str_eq(trouble.text,
		"there is no meta-…1-of-00003: a table cut this name where … is; 'gpumemctl shares "
		"--columns name' shows whole names");
	ck_assert_int_eq(trouble.status, GPUMEM_E_NOT_FOUND);
}
END_TEST

/* Runs it where nobody listens: it must not get so far. */
static bool is_wrong_usage(struct gm_options options)
{
	struct gm_ctl ctl = {.options = &options};
	options.socket = "/nowhere/at/all";
	options.timeout_ms = 1000;
	options.verb = gm_verb_find(gm_verbs, "shares");
	ctl.writer = gm_writer_json_new();
	ck_assert_int_ne(options.verb->run(&ctl), GPUMEM_OK);
	gm_writer_free(ctl.writer);
	return ctl.usage;
}

static bool remove_is_wrong_usage(const char *name)
{
	return is_wrong_usage(
		(struct gm_options){.args = {"remove", name}, .n_args = name ? 2 : 1});
}

static bool expire_is_wrong_usage(const char *name, const char *time)
{
	return is_wrong_usage(
		(struct gm_options){.args = {"expire", name, time}, .n_args = time ? 3 : 2});
}

START_TEST(wrong_names_never_reach_the_daemon)
{
	static const char *const wrong[] = {NULL, "", "a/b", "/", "uid:root/", "uid:no-such-user/x",
		"uid:/x", "uid:0/a/b", "a\nb",
		"uid:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/x"};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_msg(remove_is_wrong_usage(wrong[i]), "%s", wrong[i]);
	ck_assert(is_wrong_usage(
		(struct gm_options){.args = {"remove", "llama", "mistral"}, .n_args = 3}));
}
END_TEST

START_TEST(wrong_times_never_reach_the_daemon)
{
	static const char *const wrong[] = {NULL, "", "soon", "-1s", "0", "0s", "10us", "40000d",
		"99999999999999999999d", "1x"};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_msg(expire_is_wrong_usage("llama", wrong[i]), "%s", wrong[i]);
	ck_assert(expire_is_wrong_usage("a/b", "1h"));
	ck_assert(expire_is_wrong_usage("uid:no-such-user/x", "1h"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("verb_shares");
	TCase *tcase = tcase_create("verb");
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, names_are_shown_with_whose_they_are_and_for_whom);
	tcase_add_test(tcase, no_names_are_said_in_words_and_an_empty_list);
	tcase_add_test(tcase, a_name_is_removed_by_its_owner_or_with_the_owner);
	tcase_add_test(tcase, a_name_that_another_user_has_is_pointed_to);
	tcase_add_test(tcase, a_name_that_a_table_has_cut_is_told_from_one_that_does_not_exist);
	tcase_add_test(tcase, wrong_names_never_reach_the_daemon);
	tcase_add_test(tcase, a_name_is_told_when_it_ends);
	tcase_add_test(tcase, wrong_times_never_reach_the_daemon);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
