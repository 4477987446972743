/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* gpumemctl evict and restore against a scripted daemon: what they ask for, how long they look, and what
 * they say. */

#include "tests/tap.h"
#include "tests/unit/ctl/verbs_fixture.h"

static Gm__Wire__Evict asked;
static uint64_t second = 17; /* the session of the second buffer */
static bool quarantined;     /* the client that is asked for */
static bool nothing;         /* is left to be moved */
static int looks;            /* how often the client's buffers were looked at */
static int moved_from;       /* they have moved from this look on */
static uint32_t waited_for;  /* the device that a request waits for */

static void script_clients(struct gm_fake *f)
{
	Gm__Wire__Packet answer = GM__WIRE__PACKET__INIT;
	Gm__Wire__ClientsReply reply = GM__WIRE__CLIENTS_REPLY__INIT;
	Gm__Wire__Client gone = GM__WIRE__CLIENT__INIT, ann = GM__WIRE__CLIENT__INIT;
	Gm__Wire__Client ben = GM__WIRE__CLIENT__INIT, ben_too = GM__WIRE__CLIENT__INIT;
	Gm__Wire__Client hidden = GM__WIRE__CLIENT__INIT;
	Gm__Wire__Client *clients[] = {&gone, &ann, &ben, &ben_too, &hidden};
	const Gm__Wire__Packet *packet = gm_fake_expect(f, GM__WIRE__PACKET__BODY_GET_CLIENTS);
	if (!packet)
		return;

	/* What a client with the same pid left behind is not meant. */
	gone.session = 16;
	gone.pid = ann.pid = 4711;
	gone.left = true;
	ann.session = 17;
	ben.session = 21;
	ben_too.session = 22;
	gone.name = ann.name = hidden.name = (char *)"ann";
	ann.quarantined = quarantined;
	ben.name = ben_too.name = (char *)"ben";
	gone.details = ann.details = ben.details = ben_too.details = true;
	/* Nobody should be told by a name that they may not see. */
	hidden.session = 23;
	reply.n_clients = sizeof(clients) / sizeof(clients[0]);
	reply.clients = clients;
	answer.id = packet->id;
	answer.body_case = GM__WIRE__PACKET__BODY_CLIENTS;
	answer.clients = &reply;
	gm_fake_send(f, &answer);
}

static bool script_ask(struct gm_fake *f)
{
	Gm__Wire__Packet answer = GM__WIRE__PACKET__INIT;
	Gm__Wire__EvictReply reply = GM__WIRE__EVICT_REPLY__INIT;
	const Gm__Wire__Packet *packet = gm_fake_expect(f, GM__WIRE__PACKET__BODY_EVICT);
	if (!packet)
		return false;
	asked = *packet->evict;
	reply.buffers = nothing ? 0 : 2;
	reply.bytes = nothing ? 0 : 3 * G;
	answer.id = packet->id;
	answer.body_case = GM__WIRE__PACKET__BODY_EVICT_REPLY;
	answer.evict_reply = &reply;
	gm_fake_send(f, &answer);
	return true;
}

/* The client's two buffers, one that is pinned, and one of another client. */
static bool script_look(struct gm_fake *f)
{
	Gm__Wire__Packet answer = GM__WIRE__PACKET__INIT;
	Gm__Wire__BuffersReply reply = GM__WIRE__BUFFERS_REPLY__INIT;
	Gm__Wire__Buffer buffers[4], *list[4];
	const Gm__Wire__Packet *packet = gm_fake_expect(f, GM__WIRE__PACKET__BODY_GET_BUFFERS);
	if (!packet)
		return false;
	bool there = ++looks >= moved_from;
	for (int i = 0; i < 4; i++) {
		gm__wire__buffer__init(list[i] = &buffers[i]);
		buffers[i].session = i == 3 ? 18 : i == 1 ? second : 17;
		buffers[i].pid = i == 3 ? 4712 : 4711;
		buffers[i].row = (uint32_t)i + 1;
		buffers[i].bytes = (uint64_t)(i + 1) * G;
		buffers[i].evictable = true;
		buffers[i].pinned = i == 2;
		buffers[i].in_host = there && i < 2 ? !asked.restore : asked.restore;
	}
	reply.n_buffers = 4;
	reply.buffers = list;
	answer.id = packet->id;
	answer.body_case = GM__WIRE__PACKET__BODY_BUFFERS;
	answer.buffers = &reply;
	gm_fake_send(f, &answer);
	return !there;
}

static void script_client(struct gm_fake *f, void *user)
{
	if (!gm_fake_hello(f))
		return;
	script_clients(f);
	if (!quarantined && script_ask(f)) {
		while (script_look(f))
			;
		script_clients(f); /* the client is there still */
	}
	gm_fake_wait_end(f);
}

/* A request waits for this device. */
static void script_queue(struct gm_fake *f, uint32_t device)
{
	Gm__Wire__Packet answer = GM__WIRE__PACKET__INIT;
	Gm__Wire__QueueReply reply = GM__WIRE__QUEUE_REPLY__INIT;
	Gm__Wire__Waiting waiting = GM__WIRE__WAITING__INIT, *list[] = {&waiting};
	const Gm__Wire__Packet *packet = gm_fake_expect(f, GM__WIRE__PACKET__BODY_GET_QUEUE);
	if (!packet)
		return;
	waiting.device = device;
	reply.n_requests = 1;
	reply.requests = list;
	answer.id = packet->id;
	answer.body_case = GM__WIRE__PACKET__BODY_QUEUE;
	answer.queue = &reply;
	gm_fake_send(f, &answer);
}

static void script_buffer(struct gm_fake *f, void *user)
{
	if (!gm_fake_hello(f))
		return;
	if (script_ask(f)) {
		while (script_look(f))
			;
		script_clients(f); /* the client is there still */
	}
	if (asked.restore && !nothing)
		script_queue(f, waited_for);
	gm_fake_wait_end(f);
}

static char *run_verb(const char *verb, gm_fake_script script, const char *word, bool json)
{
	struct gm_options options = {.args = {word}, .n_args = 1};
	looks = 0;
	return run(verb, script, json, &options);
}

START_TEST(a_pid_means_the_session_that_is_there)
{
	moved_from = 3;
	char *text = run_verb("evict", script_client, "4711", false);
	ck_assert_ptr_nonnull(text);
	has(text, "Moved 2 buffers (3.0G) to host memory.");
	ck_assert_uint_eq(asked.session, 17);
	ck_assert_uint_eq(asked.row, 0);
	ck_assert(!asked.restore);
	ck_assert_int_eq(looks, 3);
	ck_assert_int_eq(ended, GPUMEM_OK);
	free(text);
}
END_TEST

START_TEST(a_pid_means_all_sessions_of_its_process)
{
	moved_from = 3;
	second = 19;
	char *text = run_verb("evict", script_client, "4711", false);
	ck_assert_ptr_nonnull(text);
	has(text, "Moved 2 buffers (3.0G) to host memory.");
	ck_assert(asked.process);
	ck_assert_int_eq(looks, 3);
	free(text);

	/* The number of a session means that one. */
	moved_from = 1;
	free(run_verb("evict", script_client, "17", false));
	ck_assert_uint_eq(asked.session, 17);
	ck_assert(!asked.process);
	second = 17;
}
END_TEST

START_TEST(a_buffer_is_asked_for_by_its_row)
{
	moved_from = 1;
	json_t *json = parse(run_verb("restore", script_buffer, "17/2", true));
	ck_assert_uint_eq(asked.session, 17);
	ck_assert_uint_eq(asked.row, 2);
	ck_assert(asked.restore);
	ck_assert_int_eq(json_integer_value(json_object_get(json, "buffers")), 2);
	ck_assert_int_eq(json_integer_value(json_object_get(json, "left")), 0);
	ck_assert_uint_eq(json_array_size(json_object_get(json, "warnings")), 1);
	json_decref(json);
}
END_TEST

START_TEST(restored_buffers_may_move_again_while_a_request_waits_for_their_device)
{
	moved_from = 1;
	char *text = run_verb("restore", script_buffer, "17/2", false);
	has(text, "a request waits for this device, so the buffers may be moved to");
	has(text, "'gpumemctl queue'");
	free(text);
	waited_for = 1;
	text = run_verb("restore", script_buffer, "17/2", false);
	ck_assert_ptr_null(strstr(text, "waits"));
	free(text);
	waited_for = 0;
}
END_TEST

START_TEST(buffers_that_are_there_already_are_not_moved)
{
	moved_from = 1;
	nothing = true;
	char *text = run_verb("evict", script_client, "4711", false);
	has(text, "Nothing to move: 2 buffers are in host memory already.\n");
	free(text);
	text = run_verb("restore", script_buffer, "17/2", false);
	has(text, "Nothing to move: 1 buffer is on the device already.\n");
	free(text);
	nothing = false;
}
END_TEST

START_TEST(a_client_in_quarantine_is_named_as_such)
{
	quarantined = true;
	ck_assert_ptr_null(run_verb("evict", script_client, "4711", false));
	quarantined = false;
	ck_assert_int_eq(trouble.status, GPUMEM_E_BUSY);
	has(trouble.text, "client '4711' is in quarantine");
}
END_TEST

/* Refuses the next request with these words. */
static bool script_refuse(struct gm_fake *f, const char *words)
{
	Gm__Wire__Packet answer = GM__WIRE__PACKET__INIT;
	Gm__Wire__Failure failure = GM__WIRE__FAILURE__INIT;
	const Gm__Wire__Packet *packet = gm_fake_expect(f, GM__WIRE__PACKET__BODY_EVICT);
	if (!packet)
		return false;
	asked = *packet->evict;
	answer.id = packet->id;
	answer.body_case = GM__WIRE__PACKET__BODY_FAILURE;
	answer.failure = &failure;
	failure.status = GPUMEM_E_BUSY;
	failure.detail = (char *)words;
	gm_fake_send(f, &answer);
	return true;
}

/* The client is using what is asked for. */
static void script_refuses(struct gm_fake *f, void *user)
{
	if (!gm_fake_hello(f))
		return;
	if (script_refuse(f, "client 17 (ann, pid 4711) has pinned this buffer"))
		script_look(f);
	gm_fake_wait_end(f);
}

START_TEST(a_refusal_is_passed_on_with_the_name_of_the_holder)
{
	char *text = run_verb("evict", script_refuses, "17/3", false);
	ck_assert_ptr_null(text);
	has(trouble.text, "ann");
	has(trouble.text, "pinned");
	ck_assert_int_eq(trouble.status, GPUMEM_E_BUSY);
}
END_TEST

/* The client has not heard the last request when the first two come. */
static void script_hears_late(struct gm_fake *f, void *user)
{
	if (!gm_fake_hello(f))
		return;
	for (int i = 0; i < 2; i++)
		if (!script_refuse(f, "the client has not heard the last request yet") ||
			!script_look(f))
			return;
	if (script_ask(f)) {
		while (script_look(f))
			;
		script_clients(f);
	}
	gm_fake_wait_end(f);
}

START_TEST(a_client_that_has_not_heard_the_last_request_is_asked_again)
{
	moved_from = 4;
	char *text = run_verb("evict", script_hears_late, "17/1", false);
	ck_assert_msg(text, "%s", trouble.text);
	has(text, "Moved 2 buffers (3.0G) to host memory.");
	ck_assert_uint_eq(asked.row, 1);
	ck_assert_int_eq(looks, 4);
	free(text);
}
END_TEST

static void script_no_such_client(struct gm_fake *f, void *user)
{
	if (!gm_fake_hello(f))
		return;
	script_clients(f);
	gm_fake_wait_end(f);
}

START_TEST(a_client_that_is_not_there_is_named)
{
	char *text = run_verb("restore", script_no_such_client, "4712", false);
	ck_assert_ptr_null(text);
	has(trouble.text, "there is no client '4712'; see 'gpumemctl clients'");
	ck_assert_int_eq(trouble.status, GPUMEM_E_NOT_FOUND);
	/* A client with this name may be there, as one of the clients has a name that is hidden. */
	ck_assert_ptr_null(run_verb("restore", script_no_such_client, "eve", false));
	has(trouble.text,
		"there is no client 'eve' whose name you may see; see 'gpumemctl clients'");
}
END_TEST

START_TEST(a_name_means_the_one_client_that_has_it)
{
	moved_from = 1;
	free(run_verb("evict", script_client, "ann", false));
	ck_assert_uint_eq(asked.session, 17);
	ck_assert_uint_eq(asked.row, 0);
	ck_assert_int_eq(ended, GPUMEM_OK);

	char *text = run_verb("evict", script_no_such_client, "ben", false);
	ck_assert_ptr_null(text);
	has(trouble.text, "several clients have the name 'ben'");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("verb_evict");
	TCase *tcase = tcase_create("evict");
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, a_pid_means_the_session_that_is_there);
	tcase_add_test(tcase, a_pid_means_all_sessions_of_its_process);
	tcase_add_test(
		tcase, restored_buffers_may_move_again_while_a_request_waits_for_their_device);
	tcase_add_test(tcase, buffers_that_are_there_already_are_not_moved);
	tcase_add_test(tcase, a_client_in_quarantine_is_named_as_such);
	tcase_add_test(tcase, a_buffer_is_asked_for_by_its_row);
	tcase_add_test(tcase, a_refusal_is_passed_on_with_the_name_of_the_holder);
	tcase_add_test(tcase, a_client_that_has_not_heard_the_last_request_is_asked_again);
	tcase_add_test(tcase, a_client_that_is_not_there_is_named);
	tcase_add_test(tcase, a_name_means_the_one_client_that_has_it);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
