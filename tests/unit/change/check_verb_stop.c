/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* gpumemctl stop against a scripted daemon: what the daemon is asked for, and what is said about it. */

#include "tests/tap.h"
#include "tests/unit/ctl/verbs_fixture.h"

static bool forget;

static void script_stop(struct gm_fake *f, void *user)
{
	Gm__Wire__Packet answer = GM__WIRE__PACKET__INIT;
	Gm__Wire__Done done = GM__WIRE__DONE__INIT;
	if (!gm_fake_hello(f))
		return;
	const Gm__Wire__Packet *packet = gm_fake_expect(f, GM__WIRE__PACKET__BODY_STOP);
	if (!packet)
		return;
	forget = packet->stop->forget;
	answer.id = packet->id;
	answer.body_case = GM__WIRE__PACKET__BODY_DONE;
	answer.done = &done;
	gm_fake_send(f, &answer);
	gm_fake_wait_end(f);
}

START_TEST(stop_keeps_what_clients_hold_unless_it_is_to_forget)
{
	struct gm_options options = {0};
	char *text = run_text("stop", script_stop);
	ck_assert(!forget);
	has(text, "wait for the next daemon");
	free(text);

	options.given = GM_OPTION_FORGET;
	json_t *json = parse(run("stop", script_stop, true, &options));
	ck_assert(forget);
	ck_assert(json_is_true(json_object_get(json, "forgotten")));
	json_decref(json);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("verb_stop");
	TCase *tcase = tcase_create("verb");
	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, stop_keeps_what_clients_hold_unless_it_is_to_forget);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
