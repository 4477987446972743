/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The daemon, or its keeper, dies between any two steps of a grant, a return, a resize, a sharing, a
 * publishing, a hello or an end (GM_STEP in the source). Two workers do the same things again and
 * again, and the process dies in another place each time. No call of theirs fails, what they hold
 * keeps its contents, and the books say what they hold: nothing is lost, and nothing is charged
 * twice.
 *
 * The programs are those of step.c. The first run only counts how often each step is passed, and
 * requires that every step of the source is. GPUMEM_TEST_STEP is the name of a step: only that one.
 * GPUMEM_TEST_PASSES is the number of passes of each step at which the process dies, 0 for all.
 */

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/end_keeper.h"
#include "tests/integration/raw.h"
#include "tests/integration/step_actor.h"
#include "tests/integration/step_table.h"
#include "tests/tap.h"

/* Passes of each step at which the process dies, unless GPUMEM_TEST_PASSES is set. */
#define PASSES     2
#define PASSES_GPU 1

/* Workers are forked, and start threads of their own: thread sanitizer takes that for a mistake
 * unless told. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}

static struct gm_daemon daemon_;
static struct gm_step_tables *steps;

static struct gm_step_board *board;

/* ---- the test's side */

static unsigned deaths;

static void require_killed(int status)
{
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		GM_FAIL("the daemon ended with wait status %#x", (unsigned)status);
	deaths++;
}

static void start_again(void)
{
	int status;
	while ((status = gm_daemon_spawn(&daemon_)) != -1)
		require_killed(status);
}

/* Starts the daemon again if it has died. Waits for that no longer than for the other fd. */
static void tend(int other)
{
	struct pollfd fds[] = {
		{.fd = daemon_.pidfd, .events = POLLIN}, {.fd = other, .events = POLLIN}};
	if (poll(fds, 2, other < 0 ? 0 : GM_PATIENCE_MS) < 1 && other >= 0)
		GM_FAIL("a worker does not answer");
	if (fds[0].revents) {
		require_killed(gm_daemon_wait(&daemon_));
		start_again();
	}
}

static const char *last_difference;

static bool books_agree(const struct gm_step_expected *expected)
{
	struct gm_figures f;
	if (!gm_figures_try(&daemon_, &f))
		return false;
	last_difference = f.leased != expected->held[0] + expected->held[1] + expected->left
				  ? "leased"
			  : f.declared != expected->declared[0] + expected->declared[1] ? "declared"
			  : f.clients != expected->clients                              ? "clients"
			  : f.quarantined_clients ? "quarantined clients"
			  : f.quarantined         ? "quarantined"
			  : f.orphaned            ? "orphaned"
			  : f.admitted            ? "admitted"
			  : f.foreign             ? "foreign"
						  : NULL;
	return !last_difference;
}

static void await_books(const struct gm_step_expected *expected, const char *when)
{
	char text[128];
	struct gm_patience patience = {0};
	while (!books_agree(expected)) {
		tend(-1);
		snprintf(text, sizeof(text), "the books agree on %s after %s", last_difference,
			when);
		gm_patience_wait(&patience, __FILE__, __LINE__, text);
	}
}

static const char *const *script;

static void perform(
	struct gm_worker workers[2], const char *line, struct gm_step_expected *expected)
{
	unsigned who = line[0] == '2';
	uint64_t held = 0;
	if (line[1] == 'k') {
		gm_worker_kill(&workers[who]);
	} else {
		gm_text_say_word(workers[who].channel, line[1]);
		while (!gm_raw_readable(workers[who].channel))
			tend(workers[who].channel);
		gm_hear(workers[who].channel, &held, sizeof(held));
	}
	gm_step_expect(expected, line, held);
}

/* How many records there are when nobody has anything; 0: not known yet. The keeper that has them. */
static uint64_t records_of_nobody;
static pid_t keeper_of_nobody;
/* Whether the keeper dies by the test. */
static bool keeper_dies;

static pid_t keeper_now(void)
{
	char folder[96];
	snprintf(folder, sizeof(folder), "%s/run", daemon_.folder);
	return gm_keeper_in(folder);
}

/* Whether there are the records that stay for good: the key and the counters. A keeper that nobody needs ends by
 * itself if there is no daemon for some time, and these records end with it. */
static bool records_are_right(uint64_t records)
{
	if (!records_of_nobody)
		return true;
	if (records == records_of_nobody) {
		keeper_of_nobody = keeper_now();
		return true;
	}
	return records < records_of_nobody && !keeper_dies && keeper_now() != keeper_of_nobody;
}

static bool nothing_is_left(void)
{
	struct gm_figures f;
	if (!gm_figures_try(&daemon_, &f))
		return false;
	last_difference = f.clients + f.leases                      ? "clients"
			  : f.leased + f.quarantined + f.orphaned   ? "leased"
			  : f.declared                              ? "declared"
			  : f.admitted + f.foreign                  ? "foreign"
			  : f.kept != f.chunks + 1 /* the ledger */ ? "what the keeper has"
			  : records_are_right(f.records)            ? NULL
								    : "records";
	return !last_difference;
}

static void await_nothing(void)
{
	struct gm_patience patience = {0};
	while (!nothing_is_left()) {
		char text[64];
		tend(-1);
		snprintf(text, sizeof(text), "nothing is left of %s", last_difference);
		gm_patience_wait(&patience, __FILE__, __LINE__, text);
	}
}

/* One run of the script. restart: the daemon is also killed once from outside. */
static void run_script(bool restart)
{
	struct gm_worker workers[2];
	struct gm_step_expected expected = {0};
	struct gm_step_part first = {.socket = daemon_.socket, .board = board}, second = first;

	second.stranger = true;
	gm_worker_start(&workers[0], gm_step_work, &first);
	gm_worker_start(&workers[1], gm_step_work, &second);
	for (size_t i = 0; script[i]; i++) {
		perform(workers, script[i], &expected);
		await_books(&expected, script[i]);
		if (restart && (strcmp(script[i], "1s") == 0 || strcmp(script[i], "1P") == 0)) {
			gm_daemon_kill(&daemon_);
			start_again();
			await_books(&expected, "a restart");
		}
	}
	gm_worker_join(&workers[0]);
	await_nothing();
}

/* ---- which steps */

static struct gm_step_row *find_row(struct gm_step_row *rows, const char *name)
{
	for (unsigned i = 0; i < GM_STEP_ROWS; i++)
		if (strcmp(rows[i].name, name) == 0)
			return &rows[i];
	return NULL;
}

/* Every step of the source was passed. */
static void require_covered(const char *folder, struct gm_step_row *rows)
{
	char command[512], line[512], name[64];
	unsigned n = 0;
	snprintf(command, sizeof(command),
		"grep -rhoE --include='*.c' 'GM_STEP\\(\"[^\"]+' '%s/%s'",
		getenv("top_srcdir") ? getenv("top_srcdir") : ".", folder);
	FILE *found = popen(command, "r");
	GM_REQUIRE(found);
	while (fgets(line, sizeof(line), found)) {
		GM_REQUIRE(sscanf(line, "GM_STEP(\"%63[^\n]", name) == 1);
		const struct gm_step_row *row = find_row(rows, name);
		if (!row || !row->passes)
			GM_FAIL("%s: no line of the script comes to the step '%s'", folder, name);
		n++;
	}
	GM_REQUIRE(pclose(found) == 0 && n > 0);
}

/* Dies at this pass of the step. Returns whether it came so far. */
static bool die_at(struct gm_step_row *row, unsigned pass)
{
	unsigned before = row->passes;
	unsigned fatal = before + pass;
	/* The daemon also passes these steps when sessions are resumed. The keeper's must not be fatal
	 * while there is no daemon: then everything would be gone. */
	bool daemons = row >= steps->daemon && row < steps->daemon + GM_STEP_ROWS;
	bool restart = daemons && (strncmp(row->name, "start: ", 7) == 0 ||
					  strncmp(row->name, "hello: ", 7) == 0 ||
					  strncmp(row->name, "client: ", 8) == 0);
	row->fatal = fatal;
	run_script(restart);
	row->fatal = 0;
	return row->passes >= fatal;
}

static void die_everywhere(struct gm_step_row *rows, const char *what)
{
	const char *only = getenv("GPUMEM_TEST_STEP"), *passes = getenv("GPUMEM_TEST_PASSES");
	unsigned runs = 0, names = 0, most = gm_on_gpu() ? PASSES_GPU : PASSES;
	if (passes)
		most = atoi(passes) ? (unsigned)atoi(passes) : UINT_MAX;
	for (unsigned i = 0; i < GM_STEP_ROWS && rows[i].name[0]; i++) {
		if (only && strcmp(only, rows[i].name) != 0)
			continue;
		unsigned before = runs;
		for (unsigned pass = 1; pass <= most; pass++) {
			fprintf(stderr, "# %s dies at '%s', pass %u\n", what, rows[i].name, pass);
			if (!die_at(&rows[i], pass))
				break;
			runs++;
		}
		names += runs > before;
	}
	fprintf(stderr, "# %s died at %u steps, %u times\n", what, names, runs);
	/* The last death may come after all that the script waits for. A dead keeper leaves its socket to the next one. */
	struct gm_patience patience = {0};
	while (keeper_now() == 0)
		gm_patience_wait(&patience, __FILE__, __LINE__, "there is a keeper");
}

/* ---- the programs with steps */

static char steps_file[96];

static void set_up(void)
{
	static char variable[4][256];
	static const char *env[5];
	static const char *const names[] = {"GPUMEM_TEST_STEPS", "GPUMEM_KEEPER"};
	char keeper[192];
	const char *top = getenv("top_builddir") ? getenv("top_builddir") : ".";

	snprintf(variable[0], sizeof(variable[0]), "%.200s/tests/integration/gpumemd-steps", top);
	setenv("GPUMEMD", variable[0], 1);
	snprintf(keeper, sizeof(keeper), "%.140s/tests/integration/gpumem-keeper-steps", top);

	gm_daemon_prepare(
		&daemon_, &(struct gm_daemon_options){
				  .config = GM_DAEMON_CONFIG_WITH("pressure_dwell = 0s\n", "1G")});
	snprintf(steps_file, sizeof(steps_file), "%s/steps", daemon_.folder);
	int fd = open(steps_file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	GM_REQUIRE(fd >= 0 && ftruncate(fd, sizeof(*steps)) == 0);
	steps = mmap(NULL, sizeof(*steps), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	GM_REQUIRE(steps != MAP_FAILED);
	close(fd);
	board = mmap(
		NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	GM_REQUIRE(board != MAP_FAILED);
	snprintf(board->name, sizeof(board->name), "uid:%u/llama", (unsigned)geteuid());

	snprintf(variable[1], sizeof(variable[1]), "%s=%s", names[0], steps_file);
	snprintf(variable[2], sizeof(variable[2]), "%s=%s", names[1], keeper);
	env[0] = variable[1];
	env[1] = variable[2];
	daemon_.options.env = env;
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	/* A counter or a key may be recorded once and for good. */
	script = gm_step_names;
	run_script(true);
	script = gm_step_tokens;
	run_script(true);
	run_script(true);
	records_of_nobody = gm_figures_now(&daemon_).records;
	keeper_of_nobody = keeper_now();
	require_covered("daemon", steps->daemon);
	require_covered("keeper", steps->keeper);
}

static void tear_down(void)
{
	unlink(steps_file);
	gm_daemon_stop(&daemon_);
	munmap(steps, sizeof(*steps));
	munmap(board, sizeof(*board));
}

START_TEST(the_daemon_may_die_between_any_two_steps)
{
	die_everywhere(steps->daemon, "the daemon");
}
END_TEST

START_TEST(the_daemon_may_die_between_any_two_steps_of_a_name)
{
	script = gm_step_names;
	die_everywhere(steps->daemon, "the daemon, with names,");
}
END_TEST

/* A busy machine may start the next daemon so late that the keeper, which nobody needs, has ended. */
START_TEST(the_next_daemon_may_come_after_the_end_of_the_keeper)
{
	pid_t keeper = keeper_now();
	struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, keeper, 0), .events = POLLIN};
	GM_REQUIRE(keeper > 0 && end.fd >= 0);
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(poll(&end, 1, GM_PATIENCE_MS), 1);
	close(end.fd);
	start_again();
	GM_REQUIRE(keeper_now() != keeper);
	await_nothing();
	run_script(true);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).records, records_of_nobody);
}
END_TEST

START_TEST(the_keeper_may_die_between_any_two_steps)
{
	keeper_dies = true;
	die_everywhere(steps->keeper, "the keeper");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("steps");
	TCase *tc = tcase_create("steps");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 900); /* hundreds of daemons start and end */
	tcase_add_test(tc, the_daemon_may_die_between_any_two_steps);
	tcase_add_test(tc, the_daemon_may_die_between_any_two_steps_of_a_name);
	tcase_add_test(tc, the_next_daemon_may_come_after_the_end_of_the_keeper);
	tcase_add_test(tc, the_keeper_may_die_between_any_two_steps);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
