/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The daemon may die at any instruction of a hello, a grant, a return, a resize, an eviction, a
 * sharing, a publishing or an end. The test executes the thread of its loop one instruction at a
 * time (ptrace). Whenever the store or what the keeper has is not what it was, a fresh core adopts
 * a copy of both (adopted.h). Two workers run the scripts of check_steps meanwhile.
 *
 * An operation is one line of a script, from before the request until the loop sleeps after the
 * answer. It changes the books from what they were to what they are in the end: what is in both is
 * always there, and what comes or goes does so once.
 *
 * GPUMEM_TEST_STRIDE: the instructions between two system calls are executed one by one each time
 * that so many of these have passed, and at once otherwise. The next operation begins with another
 * one. 1: all instructions, one by one.
 */

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/system/path.h"
#include "tests/integration/adopted.h"
#include "tests/integration/raw.h"
#include "tests/integration/single_step.h"
#include "tests/integration/step_actor.h"
#include "tests/tap.h"

/* Unless GPUMEM_TEST_STRIDE is set. */
#define STRIDE           4
#define STRIDE_SANITIZED 32

static struct gm_daemon daemon_;
static struct gm_inner_keeper keeper;
static struct gm_adopted adopted;
static struct gm_worker workers[2];
static struct gm_step_board *board;
static struct gm_step_expected expected;
static unsigned stride, operations;
static uint64_t instructions;
static struct gm_single_step loop; /* the daemon's first thread */

/* ---- operations */

/* Whether the operation is at its end, as far as the books show. */
static bool is_done(const struct gm_step_expected *then)
{
	struct gm_adopted_sums sums;
	gm_adopted_sum(&adopted, &sums);
	return sums.sessions == then->clients && sums.made == then->made[0] + then->made[1] &&
	       sums.opened == then->opened[0] + then->opened[1] &&
	       sums.leased == then->held[0] + then->held[1] + then->left &&
	       sums.declared == then->declared[0] + then->declared[1];
}

/* An operation, and what the books must say in the end. */
struct operation {
	const char *line;
	int channel; /* where its worker answers; -1: it has answered */
	struct gm_step_expected then;
};

static void hear(struct operation *operation)
{
	uint64_t held;
	if (operation->channel < 0 || !gm_raw_readable(operation->channel))
		return;
	gm_hear(operation->channel, &held, sizeof(held));
	gm_step_expect(&operation->then, operation->line, held);
	operation->channel = -1;
}

/* The loop is about to wait for an event. Returns false if the operation is at its end, and there
 * is none. */
static bool sleep_through(struct operation *operation)
{
	for (;;) {
		hear(operation);
		if (operation->channel < 0 && is_done(&operation->then))
			return !gm_single_step_sleeps(&loop);
		if (gm_single_step_sleep(&loop, operation->channel, keeper.daemon))
			return true;
		gm_inner_keeper_serve(&keeper);
	}
}

/* Executes instructions until the operation is at its end. */
static void run_operation(struct operation *operation)
{
	unsigned calls = operations++;
	for (bool more = true; more;) {
		bool skips = calls % stride != 0;
		enum gm_instruction next =
			skips ? gm_single_step_skip(&loop) : gm_single_step_next(&loop);
		if (next == GM_INSTRUCTION_SLEEP)
			more = sleep_through(operation);
		else
			gm_single_step_run(&loop);
		if (loop.pending)
			gm_single_step_interrupt(&loop);
		if (next != GM_INSTRUCTION_PLAIN)
			gm_inner_keeper_serve(&keeper);
		calls += next != GM_INSTRUCTION_PLAIN;
		adopted.instruction++;
		gm_adopted_look(&adopted, next != GM_INSTRUCTION_PLAIN, skips);
	}
}

static void perform(const char *line)
{
	unsigned who = line[0] == '2';
	uint64_t states = adopted.states, adoptions = adopted.adoptions, began = gm_monotonic_ns();
	struct operation operation = {
		.line = line, .channel = workers[who].channel, .then = expected};

	gm_adopted_begin(&adopted, line);
	if (line[1] == 'k') {
		gm_worker_kill(&workers[who]);
		adopted.clients[who] = 0;
		gm_step_expect(&operation.then, line, 0);
		operation.channel = -1;
	} else {
		gm_text_say_word(operation.channel, line[1]);
	}
	run_operation(&operation);
	gm_adopted_end(&adopted);
	fprintf(stderr,
		"# %s: %" PRIu64 " instructions, %" PRIu64 " states, %" PRIu64
		" adopted, %zu books, %" PRIu64 " ms\n",
		line, adopted.instruction, adopted.states - states, adopted.adoptions - adoptions,
		adopted.n_books, (gm_monotonic_ns() - began) / 1000000);
	expected = operation.then;
	instructions += adopted.instruction;
}

static void run_script(const char *const *script)
{
	for (size_t i = 0; script[i]; i++)
		perform(script[i]);
	fprintf(stderr,
		"# the daemon could have died at %" PRIu64 " instructions: %" PRIu64
		" different stores, %" PRIu64 " adopted\n",
		instructions, adopted.states, adopted.adoptions);
}

/* ---- the daemon */

static void set_up(void)
{
	static const char *const env[] = {"GPUMEM_KEEPER=service", NULL};
	static struct gm_step_part parts[2];
	char path[GM_PATH_BYTES];
	const char *given = getenv("GPUMEM_TEST_STRIDE");

	stride = given ? (unsigned)atoi(given) : gm_sanitized() ? STRIDE_SANITIZED : STRIDE;
	GM_REQUIRE(stride > 0);
	gm_daemon_prepare(&daemon_,
		&(struct gm_daemon_options){
			.config = "[gpumemd]\nfraction = 1.0\nmin_free = 0\nreserve = 0\n"
				  "max_pool = 100%\n"
				  "pressure_dwell = 0s\nhost_limit = 256M\n[device 0]\nsize = 1G\n",
			.env = env});
	board = mmap(
		NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	GM_REQUIRE(board != MAP_FAILED);
	snprintf(board->name, sizeof(board->name), "uid:%u/llama", (unsigned)geteuid());
	/* Workers have no copies of what the keeper has. */
	for (unsigned i = 0; i < 2; i++) {
		parts[i] = (struct gm_step_part){
			.socket = daemon_.socket, .board = board, .stranger = i == 1, .slow = true};
		gm_worker_start(&workers[i], gm_step_work, &parts[i]);
	}
	GM_REQUIRE_EQ(gm_path_keeper_socket(daemon_.socket, path), 0);
	gm_inner_keeper_open(&keeper, path);
	gm_inner_keeper_begin(&keeper);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	gm_inner_keeper_end(&keeper);

	gm_single_step_begin(&loop, daemon_.pid);
	gm_inner_keeper_serve(&keeper);
	gm_adopted_open(&adopted, &keeper);
	expected = (struct gm_step_expected){0};
	for (unsigned i = 0; i < 2; i++)
		adopted.clients[i] = workers[i].pid;
	gm_adopted_look(&adopted, true, true);
}

static void tear_down(void)
{
	gm_single_step_end(&loop);
	gm_inner_keeper_begin(&keeper);
	gm_worker_join(&workers[0]);
	if (adopted.clients[1])
		gm_worker_kill(&workers[1]);
	gm_daemon_signal(&daemon_, SIGTERM);
	GM_REQUIRE_EQ(gm_daemon_wait(&daemon_), 0);
	gm_inner_keeper_end(&keeper);
	gm_inner_keeper_close(&keeper);
	gm_adopted_close(&adopted);
	gm_daemon_stop(&daemon_);
	munmap(board, sizeof(*board));
}

START_TEST(the_daemon_may_die_at_any_instruction)
{
	run_script(gm_step_tokens);
}
END_TEST

START_TEST(the_daemon_may_die_at_any_instruction_of_a_name)
{
	run_script(gm_step_names);
}
END_TEST

START_TEST(the_daemon_may_die_at_any_instruction_of_an_eviction)
{
	run_script(gm_step_evictions);
}
END_TEST

int main(void)
{
	const char *why_not = gm_single_step_why_not();
	if (why_not) {
		printf("1..0 # SKIP %s\n", why_not);
		return 0;
	}

	Suite *suite = suite_create("instructions");
	TCase *tc = tcase_create("instructions");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 900); /* some million instructions */
	tcase_add_test(tc, the_daemon_may_die_at_any_instruction);
	tcase_add_test(tc, the_daemon_may_die_at_any_instruction_of_a_name);
	tcase_add_test(tc, the_daemon_may_die_at_any_instruction_of_an_eviction);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
