/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Makers, publishers, readers, the daemon and its keeper are killed at random moments, while the
 * workers make buffers, publish them, attach, remove names, make batches, and begin requests that
 * they drop (storm.h). What a worker attaches to is always whole, and no older than what anybody saw
 * before. In the end the names that were kept are there. When they are removed, nothing is left: not
 * in the books, not in the keeper, and not on the device.
 *
 *   GPUMEM_TEST_STORM  how many processes are killed
 *   GPUMEM_TEST_SEED   which random moments and steps
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/end_keeper.h"
#include "tests/integration/device_bytes.h"
#include "tests/integration/scene.h"
#include "tests/integration/storm.h"
#include "tests/tap.h"

#define MIB (UINT64_C(1) << 20)

enum { KILLS = 40 };
#define CONFIG(size) GM_DAEMON_CONFIG_WITH("pressure_dwell = 0s\n", size)

/* Workers are forked, and start threads of their own: thread sanitizer takes that for a mistake
 * unless told. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}

static struct gm_daemon daemon_;
static struct gm_worker workers[GM_STORM_WORKERS];
static unsigned n_workers;
static unsigned killed[GM_STORM_ROLES], killed_daemons, killed_keepers;

static unsigned environment(const char *name, unsigned otherwise)
{
	const char *value = getenv(name);
	return value ? (unsigned)strtoul(value, NULL, 10) : otherwise;
}

static pid_t keeper(void)
{
	return gm_device_keeper(&daemon_);
}

static uint64_t device_bytes(void)
{
	return gm_device_bytes(&daemon_);
}

/* ---- what the books say */

static void owner_of(unsigned user, char owner[32])
{
	snprintf(owner, 32, "uid:%u", (unsigned)gm_storm_board->uids[user]);
}

/* So that the books have a row for each user, whatever it holds. */
static void set_limits(void)
{
	struct gm_scene scene = {0};
	char owner[32];

	gm_raw_observe(&scene.ctl, &daemon_);
	for (unsigned user = 0; user < GM_STORM_USERS; user++) {
		owner_of(user, owner);
		GM_REQUIRE_EQ(gm_scene_set_limit(&scene, owner, 1, 4096 * MIB, 0, 0), GPUMEM_OK);
	}
	gm_raw_close(&scene.ctl);
}

static uint64_t held_by(unsigned user)
{
	struct gm_scene scene = {0};
	char owner[32];

	owner_of(user, owner);
	gm_raw_observe(&scene.ctl, &daemon_);
	const Gm__Wire__Limit *limit = gm_scene_limit(&scene, owner);
	GM_REQUIRE(limit);
	uint64_t held = limit->held;
	gm_raw_close(&scene.ctl);
	return held;
}

static void remove_names(void)
{
	struct gm_raw raw;
	char text[GM_STORM_NAME_TEXT];

	gm_raw_observe(&raw, &daemon_);
	for (unsigned user = 0; user < GM_STORM_USERS; user++)
		for (unsigned name = 0; name < GM_STORM_NAMES; name++) {
			bool must = atomic_load(&gm_storm_board->newest[user][name]) > 0;
			gpumem_status status = gm_raw_unpublish(
				&raw, gm_storm_board->uids[user], gm_storm_name(user, name, text));
			GM_REQUIRE(status == GPUMEM_OK || status == GPUMEM_E_NOT_FOUND);
			GM_REQUIRE(status == GPUMEM_OK || !must);
		}
	GM_REQUIRE_EQ(gm_raw_count_names(&raw), 0);
	gm_raw_close(&raw);
}

static void empty_the_pool(void)
{
	Gm__Wire__Trim trim = GM__WIRE__TRIM__INIT;
	struct gm_raw raw;

	trim.all_devices = true;
	gm_raw_observe(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(TRIM, trim, &trim)), GPUMEM_OK);
	gm_raw_close(&raw);
}

/* The books of a daemon that served somebody, and nobody has anything: a key and counters are
 * recorded once and for good. */
static struct gm_figures books_of_nobody(void)
{
	struct gm_raw_lease lease;
	struct gm_raw raw;

	gm_raw_join(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, MIB, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_give_back(&raw, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_UNTIL(gm_figures_now(&daemon_).kept == 1); /* the ledger */
	return gm_figures_now(&daemon_);
}

/* Nobody has anything any more, and the device agrees. */
static void require_nothing(const struct gm_figures *before)
{
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 0);
	GM_UNTIL(gm_figures_now(&daemon_).orphaned == 0);
	GM_UNTIL(gm_figures_now(&daemon_).foreign == 0);
	GM_UNTIL(gm_figures_now(&daemon_).kept == before->kept);
	GM_UNTIL(gm_figures_now(&daemon_).records == before->records);
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.leased + f.quarantined + f.admitted + f.quarantined_clients, 0);
	GM_REQUIRE_EQ(f.available, f.ceiling);
	GM_REQUIRE_EQ(gm_queue_wait(&daemon_), 0);
	for (unsigned user = 0; user < GM_STORM_USERS; user++) {
		GM_REQUIRE_EQ(held_by(user), 0);
		GM_REQUIRE_EQ(gm_left_by(&daemon_, gm_storm_board->uids[user]), 0);
	}

	GM_UNTIL(device_bytes() == gm_figures_now(&daemon_).pooled);
	empty_the_pool();
	GM_UNTIL(gm_figures_now(&daemon_).chunks == 0);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).pooled, 0);
	GM_UNTIL(device_bytes() == 0);
}

/* ---- workers */

static void start_worker(unsigned number, unsigned *seed)
{
	struct gm_storm_worker as = {number, (unsigned)rand_r(seed)};
	gm_worker_start(&workers[number], gm_storm_work, &as);
}

/* A worker ends only if it is killed or told to: otherwise something failed, which it has said. */
static void require_running(unsigned number)
{
	siginfo_t info = {0};
	GM_REQUIRE(
		waitid(P_PID, (id_t)workers[number].pid, &info, WEXITED | WNOWAIT | WNOHANG) == 0);
	if (info.si_pid)
		GM_FAIL("worker %u ended by itself, with %d", number, info.si_status);
}

static void await_step(unsigned number)
{
	unsigned from = gm_storm_board->steps[number];
	GM_UNTIL((require_running(number), gm_storm_board->steps[number] != from));
}

static void kill_worker(unsigned number)
{
	siginfo_t info = {0};
	pid_t pid = workers[number].pid;

	GM_REQUIRE(kill(pid, SIGKILL) == 0);
	GM_REQUIRE(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0);
	if (info.si_code != CLD_KILLED || info.si_status != SIGKILL)
		GM_FAIL("worker %u ended by itself, with %d", number, info.si_status);
	gm_worker_kill(&workers[number]);
	killed[gm_storm_role_of(number)]++;
}

/* Returns when the next keeper has everything: before that, the daemon must not die. */
static void kill_keeper(void)
{
	size_t said = gm_daemon_said(&daemon_, "has everything again");
	gm_keeper_signal(keeper(), SIGKILL);
	GM_UNTIL(gm_daemon_said(&daemon_, "has everything again") > said);
	killed_keepers++;
}

static void kill_something(unsigned *seed)
{
	unsigned number = (unsigned)rand_r(seed) % n_workers;
	unsigned what = (unsigned)rand_r(seed) % 16;
	if (what == 15) {
		kill_keeper();
		return;
	}
	what %= 8;
	bool daemon_too = what < 2;

	if (daemon_too) {
		gm_daemon_kill(&daemon_);
		killed_daemons++;
	}
	if (what > 0) /* the worker may die while the daemon is away */
		kill_worker(number);
	if (daemon_too)
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	if (what > 0)
		start_worker(number, seed);
}

static unsigned count_killed(void)
{
	unsigned n = killed_daemons + killed_keepers;
	for (unsigned i = 0; i < GM_STORM_ROLES; i++)
		n += killed[i];
	return n;
}

static void find_kept(unsigned *seed)
{
	for (unsigned user = 0; user < GM_STORM_USERS; user++) {
		struct gm_storm_worker as = {user, (unsigned)rand_r(seed)};
		struct gm_worker worker;
		gm_worker_start(&worker, gm_storm_find_kept, &as);
		gm_worker_join(&worker);
	}
}

static void report(void)
{
	const struct gm_storm_board *b = gm_storm_board;
	fprintf(stderr,
		"# %u deaths: %u makers, %u publishers, %u readers, %u daemons, %u keepers; %llu published, %llu "
		"attached, %llu names removed, %llu batches, %llu requests\n",
		count_killed(), killed[GM_STORM_MAKER], killed[GM_STORM_PUBLISHER],
		killed[GM_STORM_READER], killed_daemons, killed_keepers,
		(unsigned long long)b->published, (unsigned long long)b->attached,
		(unsigned long long)b->removed, (unsigned long long)b->batches,
		(unsigned long long)b->begun);
}

static void start(void)
{
	gm_storm_board = mmap(NULL, sizeof(*gm_storm_board), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	GM_REQUIRE(gm_storm_board != MAP_FAILED);
	gm_storm_board->daemon = &daemon_;
	gm_storm_board->uids[0] = geteuid();
	gm_storm_board->uids[1] = gm_tap_has_users() ? GM_STRANGER : geteuid();
	n_workers = gm_on_gpu() || gm_sanitized() ? 6 : GM_STORM_WORKERS;
	/* Small enough for pressure now and then. */
	gm_daemon_start(&daemon_,
		&(struct gm_daemon_options){.config = gm_on_gpu() ? CONFIG("2G") : CONFIG("1G")});
	set_limits();
}

START_TEST(nothing_is_lost_and_nothing_is_left_when_anybody_dies)
{
	unsigned kills = environment("GPUMEM_TEST_STORM", KILLS);
	unsigned seed = environment("GPUMEM_TEST_SEED", (unsigned)getpid());

	fprintf(stderr, "# seed %u (GPUMEM_TEST_SEED)\n", seed);
	start();
	struct gm_figures before = books_of_nobody();
	for (unsigned i = 0; i < n_workers; i++)
		start_worker(i, &seed);

	while (count_killed() < kills) {
		struct timespec moment = {.tv_nsec = rand_r(&seed) % 10 * 1000000L};
		await_step((unsigned)rand_r(&seed) % n_workers);
		nanosleep(&moment, NULL);
		kill_something(&seed);
	}

	for (unsigned i = 0; i < n_workers; i++)
		gm_text_say_word(workers[i].channel, i % 4 < 2 ? 'e' : 'x');
	for (unsigned i = 0; i < n_workers; i++)
		gm_worker_join(&workers[i]);
	find_kept(&seed);
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	find_kept(&seed);

	report();
	remove_names();
	require_nothing(&before);
	gm_daemon_stop(&daemon_);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kills names");
	TCase *tc = tcase_create("kills names");
	/* Only what hangs is to end: each death is bounded by the harness. */
	tcase_set_timeout(tc, 240 + 5 * environment("GPUMEM_TEST_STORM", KILLS));
	tcase_add_test(tc, nothing_is_lost_and_nothing_is_left_when_anybody_dies);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
