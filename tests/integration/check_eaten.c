/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * A program outside the broker eats the GPU, and goes again: what it leaves is had at once and not
 * with the next sample, what it takes between a sample and a creation costs nobody a refusal that
 * others could prevent, and what it keeps is named. On fake GPUs: nobody takes memory of the host
 * backend's devices.
 */

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/gpu/puppet.h"
#include "tests/integration/gate.h"
#include "tests/integration/scene.h"
#include "tests/tap.h"

#define MiB  (UINT64_C(1) << 20)
#define HOUR UINT64_C(3600000)

static struct gm_scene s;

/* A program that has so much of the GPU. It never heard of the broker. */
static struct puppet eater(uint64_t bytes)
{
	struct puppet puppet = puppet_start(0);
	GM_REQUIRE_EQ(PUPPET(&puppet, INIT, 0).result, 0);
	GM_REQUIRE_EQ(PUPPET(&puppet, CREATE, .a = bytes, .b = 0).result, 0);
	return puppet;
}

static struct puppet eaten(const char *config, uint64_t bytes)
{
	gm_scene_start(&s, config);
	struct puppet puppet = eater(bytes);
	GM_UNTIL(gm_figures_now(&s.daemon).foreign == bytes);
	return puppet;
}

START_TEST(what_a_program_leaves_is_had_at_once)
{
	for (int i = 0; i < 3; i++) {
		struct puppet other = eaten(NULL, 800 * MiB);
		puppet_kill(&other);
		/* The daemon last saw it there. */
		GM_REQUIRE_EQ(gm_scene_lease(&s.a, 1024 * MiB, NULL), GPUMEM_OK);
		gm_scene_stop(&s);
	}
}
END_TEST

START_TEST(what_a_program_keeps_is_named)
{
	gm_scene_start(&s, NULL);
	/* The driver lists only processes with a context. */
	struct puppet other = puppet_start(0);
	GM_REQUIRE_EQ(PUPPET(&other, INIT, 0).result, 0);
	GM_REQUIRE_EQ(PUPPET(&other, CONTEXT, .a = 0).result, 0);
	GM_REQUIRE_EQ(PUPPET(&other, ALLOC, .a = 800 * MiB).result, 0);
	GM_UNTIL(gm_figures_now(&s.daemon).foreign == 800 * MiB);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 256 * MiB, NULL), GPUMEM_E_NO_MEMORY);
	GM_REQUIRE(strstr(gm_raw_detail(&s.a), "has 224.0M available of 1.0G, asked for 256.0M"));
	GM_REQUIRE(strstr(gm_raw_detail(&s.a), "800.0M are used outside the broker"));
	GM_REQUIRE(strstr(gm_raw_detail(&s.a), "; see gpumemctl who 0"));
	/* The daemon looks for the program when it sees that the memory is gone. */
	char words[128];
	snprintf(words, sizeof(words), "800.0M are used outside the broker (pid %d of ",
		(int)other.pid);
	GM_UNTIL(gm_scene_lease(&s.a, 256 * MiB, NULL) == GPUMEM_E_NO_MEMORY &&
		 strstr(gm_raw_detail(&s.a), words));
	GM_REQUIRE(strstr(gm_raw_detail(&s.a), " has 800.0M); see gpumemctl who 0"));
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 224 * MiB, NULL), GPUMEM_OK);
	puppet_kill(&other);
	gm_scene_stop(&s);
}
END_TEST

START_TEST(who_waits_for_a_program_gets_what_it_leaves)
{
	struct puppet other = eaten(NULL, 800 * MiB);
	uint64_t of_a = gm_scene_ask(&s.a, 512 * MiB, HOUR);
	GM_UNTIL(gm_scene_queue(&s)->n_requests == 1);
	uint64_t of_b = gm_scene_ask(&s.b, 512 * MiB, HOUR);
	GM_UNTIL(gm_scene_queue(&s)->n_requests == 2);
	/* They were found not to fit, both, and it is no deadlock. */
	GM_UNTIL(gm_scene_logged(&s, "800.0M are used outside the broker"));
	GM_REQUIRE(!gm_raw_readable(s.a.socket) && !gm_raw_readable(s.b.socket));
	puppet_kill(&other);
	GM_REQUIRE_EQ(gm_scene_answer(&s.a, of_a, NULL), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_answer(&s.b, of_b, NULL), GPUMEM_OK);
	gm_scene_stop(&s);
}
END_TEST

START_TEST(many_who_ask_while_it_goes_are_all_served)
{
	enum { MANY = 16 };
	struct gm_raw raws[MANY];
	uint64_t ids[MANY];
	struct puppet other = eaten(NULL, 1000 * MiB);
	for (int i = 0; i < MANY; i++)
		gm_raw_join(&raws[i], &s.daemon);
	puppet_kill(&other);
	for (int i = 0; i < MANY; i++)
		ids[i] = gm_scene_ask(&raws[i], 64 * MiB, 0);
	for (int i = 0; i < MANY; i++)
		GM_REQUIRE_EQ(gm_scene_answer(&raws[i], ids[i], NULL), GPUMEM_OK);
	for (int i = 0; i < MANY; i++)
		gm_raw_close(&raws[i]);
	gm_scene_stop(&s);
}
END_TEST

/* ---- between a sample and a creation */

START_TEST(what_a_program_takes_before_it_is_made_is_had_from_who_does_not_use_it)
{
	struct gm_gate gate;
	gm_gate_make(&gate);
	uint64_t idle;
	gm_scene_start_with(
		&s, &(struct gm_daemon_options){
			    .config = GM_DAEMON_CONFIG_WITH("reclaim_deadline = 1min\n", "1G"),
			    .env = gate.env});
	gm_gate_let(&gate, 2);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 256 * MiB, NULL), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 256 * MiB, &idle), GPUMEM_OK);
	gm_scene_claim_cached(&s.a, 256 * MiB);
	/* It fits and is admitted; a program is faster than the thread that makes it. */
	uint64_t id = gm_scene_ask(&s.b, 256 * MiB, 0);
	GM_UNTIL(gm_figures_now(&s.daemon).admitted == 256 * MiB);
	struct puppet other = eater(384 * MiB);
	gm_gate_let(&gate, 2);
	gm_scene_await_reclaim(&s.a);
	GM_UNTIL(gm_figures_now(&s.daemon).admitted == 0);
	GM_REQUIRE(!gm_raw_readable(s.b.socket));
	gm_gate_let(&gate, 8);
	gm_scene_give(&s.a, idle);
	GM_REQUIRE_EQ(gm_scene_answer(&s.b, id, NULL), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_figures_now(&s.daemon).leased, 512 * MiB);
	puppet_kill(&other);
	gm_scene_stop(&s);
	gm_gate_end(&gate);
}
END_TEST

START_TEST(what_a_program_takes_before_it_is_made_is_waited_for_by_who_may_wait)
{
	struct gm_gate gate;
	gm_gate_make(&gate);
	gm_scene_start_with(&s, &(struct gm_daemon_options){.env = gate.env});
	uint64_t id = gm_scene_ask(&s.b, 1024 * MiB, HOUR);
	GM_UNTIL(gm_figures_now(&s.daemon).admitted == 1024 * MiB);
	struct puppet other = eater(2 * MiB);
	gm_gate_let(&gate, 2);
	GM_UNTIL(gm_scene_queue(&s)->n_requests == 1);
	GM_REQUIRE(gm_scene_logged(&s, "waits: device 0 is out of memory: it could not make 1.0G"));
	puppet_kill(&other);
	gm_gate_let(&gate, 8);
	GM_REQUIRE_EQ(gm_scene_answer(&s.b, id, NULL), GPUMEM_OK);
	gm_scene_stop(&s);
	gm_gate_end(&gate);
}
END_TEST

/* ---- a driver that is out of memory though there is some */

START_TEST(a_driver_out_of_memory_is_tried_again_when_a_client_returned_some)
{
	/* Once more with the pool dropped is not enough: the third and the fourth fail. */
	static const char *const env[] = {"GPUMEM_FAKE_FAIL=cuMemCreate:3:2,cuMemCreate:4:2", NULL};
	uint64_t idle;
	gm_scene_start_with(
		&s, &(struct gm_daemon_options){
			    .config = GM_DAEMON_CONFIG_WITH("reclaim_deadline = 1min\n", "1G"),
			    .env = env});
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 256 * MiB, NULL), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 64 * MiB, &idle), GPUMEM_OK);
	gm_scene_claim_cached(&s.a, 64 * MiB);
	uint64_t id = gm_scene_ask(&s.b, 32 * MiB, 0);
	gm_scene_await_reclaim(&s.a);
	GM_REQUIRE_EQ(s.a.event.bytes, 32 * MiB);
	gm_scene_give(&s.a, idle);
	GM_REQUIRE_EQ(gm_scene_answer(&s.b, id, NULL), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_figures_now(&s.daemon).leased, 288 * MiB);
	gm_scene_stop(&s);
}
END_TEST

START_TEST(a_driver_that_stays_out_of_memory_is_told_in_time_and_leaves_nothing)
{
	static const char *const env[] = {"GPUMEM_FAKE_FAIL=cuMemCreate:3+:2", NULL};
	gm_scene_start_with(
		&s, &(struct gm_daemon_options){
			    .config = GM_DAEMON_CONFIG_WITH("reclaim_deadline = 1ms\n", "1G"),
			    .env = env});
	GM_REQUIRE_EQ(gm_scene_lease(&s.a, 256 * MiB, NULL), GPUMEM_OK);
	/* Of two chunks one is made. */
	GM_REQUIRE_EQ(gm_scene_lease(&s.b, 192 * MiB, NULL), GPUMEM_E_NO_MEMORY);
	GM_REQUIRE(strstr(gm_raw_detail(&s.b), "out of memory: it could not make 64.0M"));
	GM_REQUIRE(strstr(gm_raw_detail(&s.b), "0B of it are used outside the broker"));
	GM_REQUIRE_EQ(
		gm_scene_answer(&s.b, gm_scene_ask(&s.b, 8 * MiB, 50), NULL), GPUMEM_E_TIMEOUT);
	GM_REQUIRE(strstr(gm_raw_detail(&s.b), "out of memory: it could not make 8.0M"));
	struct gm_figures now = gm_figures_now(&s.daemon);
	GM_REQUIRE_EQ(now.leased, 256 * MiB);
	GM_REQUIRE_EQ(now.admitted, 0);
	GM_REQUIRE_EQ(gm_scene_queue(&s)->n_requests, 0);
	gm_scene_stop(&s);
}
END_TEST

int main(int argc, char **argv)
{
	puppet_main(argc, argv);
	Suite *suite = suite_create("eaten");
	TCase *tcase = tcase_create("eaten");
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, what_a_program_leaves_is_had_at_once);
	tcase_add_test(tcase, what_a_program_keeps_is_named);
	tcase_add_test(tcase, who_waits_for_a_program_gets_what_it_leaves);
	tcase_add_test(tcase, many_who_ask_while_it_goes_are_all_served);
	tcase_add_test(
		tcase, what_a_program_takes_before_it_is_made_is_had_from_who_does_not_use_it);
	tcase_add_test(tcase, what_a_program_takes_before_it_is_made_is_waited_for_by_who_may_wait);
	tcase_add_test(tcase, a_driver_out_of_memory_is_tried_again_when_a_client_returned_some);
	tcase_add_test(tcase, a_driver_that_stays_out_of_memory_is_told_in_time_and_leaves_nothing);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
