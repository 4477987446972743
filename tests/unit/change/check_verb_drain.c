/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* gpumemctl drain against a scripted daemon: what it asks for, when it ends, and what it says. */

#include "tests/tap.h"
#include "tests/unit/ctl/verbs_fixture.h"

/* One packet of each connection's answer: how the device stands. */
struct state {
	bool drained, changed;
	uint64_t held, going;
};
static const struct state *states;
static Gm__Wire__Drain asked; /* last */

static bool script_drain(struct gm_fake *f, const struct state *state)
{
	Gm__Wire__Packet answer = GM__WIRE__PACKET__INIT;
	Gm__Wire__DrainReply reply = GM__WIRE__DRAIN_REPLY__INIT;
	if (!gm_fake_hello(f))
		return false;
	const Gm__Wire__Packet *packet = gm_fake_expect(f, GM__WIRE__PACKET__BODY_DRAIN);
	if (!packet)
		return false;
	asked = *packet->drain;
	answer.id = packet->id;
	answer.body_case = GM__WIRE__PACKET__BODY_DRAIN_REPLY;
	answer.drain_reply = &reply;
	reply.drained = state->drained;
	reply.changed = state->changed;
	reply.held = state->held;
	reply.going = state->going;
	gm_fake_send(f, &answer);
	return true;
}

static void script_clients(struct gm_fake *f, uint64_t held)
{
	Gm__Wire__Packet answer = GM__WIRE__PACKET__INIT;
	Gm__Wire__ClientsReply reply = GM__WIRE__CLIENTS_REPLY__INIT;
	Gm__Wire__ClientUse here = GM__WIRE__CLIENT_USE__INIT, there = GM__WIRE__CLIENT_USE__INIT;
	Gm__Wire__ClientUse more = GM__WIRE__CLIENT_USE__INIT;
	Gm__Wire__Client ann = GM__WIRE__CLIENT__INIT, ben = GM__WIRE__CLIENT__INIT;
	Gm__Wire__Client left = GM__WIRE__CLIENT__INIT;
	Gm__Wire__ClientUse *use_of_ann[] = {&here}, *use_of_ben[] = {&there};
	Gm__Wire__ClientUse *use_of_left[] = {&more};
	Gm__Wire__Client *clients[] = {&ann, &ben, &left};
	const Gm__Wire__Packet *packet = gm_fake_expect(f, GM__WIRE__PACKET__BODY_GET_CLIENTS);
	if (!packet)
		return;

	here.device = 3;
	here.held = held;
	more.device = 3;
	more.held = 2 * held;
	there.device = 0;
	there.held = G;
	ann.session = 17;
	ann.pid = 4711;
	ann.name = (char *)"ann";
	ann.details = ben.details = true;
	ann.n_use = ben.n_use = 1;
	ann.use = use_of_ann;
	ben.use = use_of_ben;
	ben.name = (char *)"ben";
	left.session = 99;
	left.left = left.details = true;
	left.n_use = 1;
	left.use = use_of_left;
	reply.n_clients = 3;
	reply.clients = clients;
	answer.id = packet->id;
	answer.body_case = GM__WIRE__PACKET__BODY_CLIENTS;
	answer.clients = &reply;
	gm_fake_send(f, &answer);
}

/* Answers with the name of what was left behind. */
static void script_names(struct gm_fake *f)
{
	Gm__Wire__Packet answer = GM__WIRE__PACKET__INIT;
	Gm__Wire__NamesReply reply = GM__WIRE__NAMES_REPLY__INIT;
	Gm__Wire__Name name = GM__WIRE__NAME__INIT, *list = &name;
	const Gm__Wire__Packet *packet = gm_fake_expect(f, GM__WIRE__PACKET__BODY_GET_NAMES);
	if (!packet)
		return;

	name.payer = 99;
	name.name = (char *)"llama";
	reply.names = &list;
	reply.n_names = 1;
	answer.id = packet->id;
	answer.body_case = GM__WIRE__PACKET__BODY_NAMES;
	answer.names = &reply;
	gm_fake_send(f, &answer);
}

static void script_once(struct gm_fake *f, void *user)
{
	if (!script_drain(f, &states[0]))
		return;
	if (!asked.undo)
		script_clients(f, states[0].held);
	if (!asked.undo && states[0].held)
		script_names(f);
	gm_fake_wait_end(f);
}

static struct gm_options of_device_3(unsigned given)
{
	return (struct gm_options){.given = GM_OPTION_DEVICE | given, .device = 3, .wait_ms = 0};
}

START_TEST(an_empty_device_is_said_to_be_empty)
{
	static const struct state empty = {.drained = true, .changed = true};
	struct gm_options options = of_device_3(0);
	states = &empty;
	char *text = run("drain", script_once, false, &options);
	ck_assert_ptr_nonnull(text);
	has(text, "Device 3 is empty. It stays drained until 'gpumemctl drain 3 --undo'.");
	ck_assert(!asked.undo && !asked.again);
	ck_assert_uint_eq(asked.device, 3);
	ck_assert_int_eq(ended, GPUMEM_OK);
	free(text);
}
END_TEST

START_TEST(who_holds_memory_when_the_time_is_over_is_shown_and_it_fails)
{
	static const struct state held = {.drained = true, .held = 2 * G, .going = G};
	struct gm_options options = of_device_3(GM_OPTION_WAIT);
	states = &held;
	char *text = run("drain", script_once, false, &options);
	ck_assert_ptr_nonnull(text);
	/* The state comes last, where people look first. */
	ck_assert_str_eq(
		strrchr(text, 'D'), "Device 3 is drained, but not empty: 2.0G are still held.\n");
	has(text, "ann");
	/* By the name that it is published under, and with a state as in 'clients'. */
	has(text,
		" PID USER NAME  HELD STATE\n   - root llama 4.0G left\n4711 root ann   2.0G -\n");
	ck_assert_ptr_null(strstr(text, "ben"));
	/* What a client left behind has no process. */
	has(text, "'gpumemctl kill CLIENT' ends a client.");
	has(text, "'gpumemctl shares remove NAME'");
	ck_assert_int_eq(ended, GPUMEM_E_BUSY);
	free(text);

	json_t *json = parse(run("drain", script_once, true, &options));
	ck_assert(json_is_true(json_object_get(json, "drained")));
	ck_assert(json_is_false(json_object_get(json, "empty")));
	json_t *holders = json_object_get(json, "holders");
	ck_assert_uint_eq(json_array_size(holders), 2);
	/* gpumemctl lists the client first that holds most. */
	ck_assert(json_is_null(json_object_get(json_array_get(holders, 0), "pid")));
	ck_assert_uint_eq(
		(uint64_t)json_integer_value(json_object_get(json_array_get(holders, 1), "held")),
		2 * G);
	json_decref(json);
}
END_TEST

START_TEST(an_undo_asks_for_it_and_says_whether_there_was_a_drain)
{
	static const struct state was = {.changed = true}, was_not = {.changed = false};
	struct gm_options options = of_device_3(GM_OPTION_UNDO);
	states = &was;
	char *text = run("drain", script_once, false, &options);
	ck_assert_ptr_nonnull(text);
	ck_assert(asked.undo);
	has(text, "Device 3 is not drained any more.");
	free(text);
	states = &was_not;
	text = run("drain", script_once, false, &options);
	has(text, "Device 3 was not drained.");
	free(text);
}
END_TEST

START_TEST(a_drain_that_somebody_ends_ends_the_wait)
{
	static const struct state undone = {.drained = false};
	struct gm_options options = of_device_3(0);
	states = &undone;
	ck_assert_ptr_null(run("drain", script_once, false, &options));
	has(trouble.text, "somebody ended the drain of device 3");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("verb_drain");
	TCase *tcase = tcase_create("verb");
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, an_empty_device_is_said_to_be_empty);
	tcase_add_test(tcase, who_holds_memory_when_the_time_is_over_is_shown_and_it_fails);
	tcase_add_test(tcase, an_undo_asks_for_it_and_says_whether_there_was_a_drain);
	tcase_add_test(tcase, a_drain_that_somebody_ends_ends_the_wait);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
