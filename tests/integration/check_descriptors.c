/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The daemon's file descriptors. A user who takes as many as it can, for connections, for chunks or
 * on their way to clients that do not read, keeps nobody else from them. What the pool holds is
 * given up before anybody is refused.
 */

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/end_keeper.h"
#include "tests/integration/descriptors_fixture.h"
#include "tests/integration/raw.h"
#include "tests/tap.h"

/* The exit status of gpumemctl. */
static int run_ctl(const struct gm_daemon *daemon, const char *verb)
{
	char program[512];
	const char *build = getenv("top_builddir");
	int status;

	snprintf(program, sizeof(program), "%s/ctl/gpumemctl", build ? build : ".");
	pid_t pid = fork();
	GM_REQUIRE(pid >= 0);
	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY);
		dup2(null, STDOUT_FILENO);
		execl(program, program, "--socket", daemon->socket, verb, (char *)NULL);
		_exit(127);
	}
	GM_REQUIRE_EQ(waitpid(pid, &status, 0), pid);
	GM_REQUIRE(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* Takes leases of one chunk until one is refused. Returns how many it got. */
static size_t lease_all(struct gm_raw *raw, uint64_t bytes, uint64_t leases[MANY])
{
	gpumem_status status = GPUMEM_OK;
	size_t n = 0;

	while (n < MANY) {
		struct gm_raw_lease lease;
		status = gm_raw_lease(raw, 0, bytes, &lease);
		if (status != GPUMEM_OK)
			break;
		GM_REQUIRE_EQ(lease.n, 1);
		leases[n++] = lease.id;
		gm_raw_lease_clear(&lease);
	}
	/* The refusal names the bound and the remedy. */
	GM_REQUIRE_EQ(status, GPUMEM_E_LIMIT);
	GM_REQUIRE(strstr(gm_raw_detail(raw), "LimitNOFILE="));
	return n;
}

/* ---- chunks */

static void fill_the_pool(int channel, void *argument)
{
	static uint64_t leases[MANY];
	struct gm_raw raw;

	gm_become_stranger_if_possible();
	gm_raw_join(&raw, argument);
	/* Of a size that nobody else asks for. */
	size_t n = lease_all(&raw, 2 * GM_CHUNK_MIN, leases);
	GM_REQUIRE(n > 10);
	return_all(&raw, leases, n);
	gm_text_say_word(channel, 'f');
	gm_hear_word(channel, 'e');
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
}

static void expect_pool_gives_way(const struct gm_daemon_options *options, size_t chunks)
{
	struct gm_daemon daemon;
	struct gm_worker worker;

	gm_daemon_start(&daemon, options);
	gm_worker_start(&worker, fill_the_pool, &daemon);
	gm_hear_word(worker.channel, 'f');
	GM_REQUIRE(gm_figures_now(&daemon).pooled > 0);
	expect_served(&daemon, chunks);
	GM_REQUIRE_EQ(run_ctl(&daemon, "trim"), 0);
	GM_REQUIRE_EQ(gm_figures_now(&daemon).pooled, 0);
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	gm_daemon_stop(&daemon);
}

START_TEST(pooled_chunks_give_up_their_descriptors_before_anybody_is_refused)
{
	expect_pool_gives_way(&few, 200);
}
END_TEST

START_TEST(so_it_is_with_very_few)
{
	expect_pool_gives_way(&very_few, 20);
}
END_TEST

static void hold_chunks(int channel, void *argument)
{
	static uint64_t leases[MANY];
	struct gm_raw raw;

	gm_become_stranger();
	gm_raw_join(&raw, argument);
	GM_REQUIRE(lease_all(&raw, GM_CHUNK_MIN, leases) > 10);
	GM_REQUIRE(strstr(gm_raw_detail(&raw), "user 64999"));
	gm_text_say_word(channel, 'f');
	gm_hear_word(channel, 'e');
	gm_raw_close(&raw);
}

START_TEST(a_user_with_many_chunks_leaves_descriptors_to_others)
{
	struct gm_daemon daemon;
	struct gm_worker worker;

	gm_daemon_start(&daemon, &few);
	gm_worker_start(&worker, hold_chunks, &daemon);
	gm_hear_word(worker.channel, 'f');
	expect_served(&daemon, 100);
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	gm_daemon_stop(&daemon);
}
END_TEST

/* Returns chunks that it still maps, until no more are given to it. */
static void keep_returned_chunks(int channel, void *argument)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gpumem_status status;
	size_t n = 0;

	gm_become_stranger();
	gm_raw_join(&raw, argument);
	while ((status = gm_raw_lease(&raw, 0, GM_CHUNK_MIN, &lease)) == GPUMEM_OK) {
		uint64_t id = lease.id;
		GM_REQUIRE(gm_raw_map(&lease.chunks[0], false) != MAP_FAILED);
		gm_raw_lease_clear(&lease);
		GM_REQUIRE_EQ(gm_raw_return(&raw, id, NULL, 0), GPUMEM_OK);
		GM_REQUIRE(++n < MANY);
	}
	GM_REQUIRE_EQ(status, GPUMEM_E_LIMIT);
	GM_REQUIRE(strstr(gm_raw_detail(&raw), "LimitNOFILE="));
	GM_REQUIRE_EQ(gm_figures_now(argument).orphaned, n * GM_CHUNK_MIN);
	gm_text_say_word(channel, 'f');
	gm_hear_word(channel, 'e');
	gm_raw_close(&raw);
}

START_TEST(a_user_with_many_orphaned_chunks_leaves_descriptors_to_others)
{
	struct gm_daemon daemon;
	struct gm_worker worker;

	gm_daemon_start(&daemon, &few);
	gm_worker_start(&worker, keep_returned_chunks, &daemon);
	gm_hear_word(worker.channel, 'f');
	expect_served(&daemon, 100);
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	GM_UNTIL(gm_figures_now(&daemon).orphaned == 0);
	gm_daemon_stop(&daemon);
}
END_TEST

/* The pool has only chunks that are too large, so each request waits until the device's thread has
 * destroyed some of them. */
START_TEST(a_request_waits_for_descriptors_that_the_pool_gives_up)
{
	static uint64_t leases[MANY];
	struct gm_daemon daemon;
	struct gm_raw raw;
	size_t first = 0;

	gm_daemon_start(&daemon, &very_few);
	gm_raw_join(&raw, &daemon);
	for (uint64_t bytes = 4 * GM_CHUNK_MIN; bytes >= GM_CHUNK_MIN; bytes /= 2) {
		size_t n = lease_all(&raw, bytes, leases);
		first = first ? first : n;
		GM_REQUIRE_EQ(n, first);
		return_all(&raw, leases, n);
	}
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
	gm_daemon_stop(&daemon);
}
END_TEST

/* ---- control blocks */

static const struct gm_daemon_options fewest = {
	.config = GM_DAEMON_CONFIG_WITH("", "8G"), .nofile = 128};

static uint64_t ask_with_signals(struct gm_raw *raw)
{
	Gm__Wire__Lease ask = GM__WIRE__LEASE__INIT;

	ask.bytes = GM_CHUNK_MIN;
	ask.signals = true;
	return gm_raw_send(raw, GM_RAW_PACKET(LEASE, lease, &ask));
}

/* Why the last request was refused. */
static char refusal[512];

/* Reads until the daemon has taken all that was sent. Returns the lease that the request got, or 0, and
 * closes its descriptors. */
static uint64_t lease_so_far(struct gm_raw *raw, uint64_t request)
{
	Gm__Wire__GetConfig get = GM__WIRE__GET_CONFIG__INIT;
	uint64_t id = gm_raw_send(raw, GM_RAW_PACKET(GET_CONFIG, get_config, &get)), lease = 0;

	do {
		GM_REQUIRE(gm_raw_receive(raw));
		if (raw->packet->id != request)
			continue;
		if (raw->packet->body_case == GM__WIRE__PACKET__BODY_FAILURE)
			snprintf(refusal, sizeof(refusal), "%s", gm_raw_detail(raw));
		else
			lease = raw->packet->lease_reply->lease;
	} while (raw->packet->id != id || raw->packet->more);
	return lease;
}

static uint64_t expect_lease(struct gm_raw *raw, uint64_t request)
{
	uint64_t lease;

	while (!(lease = lease_so_far(raw, request))) {
		if (refusal[0])
			GM_FAIL("%s", refusal);
		poll(NULL, 0, 1);
	}
	return lease;
}

/* Leases and returns a pooled chunk with signals, until no answer comes at once, or many times. */
static void churn_signals(int channel, void *argument)
{
	struct gm_raw raw;
	int n = 0;

	gm_become_stranger_if_possible();
	gm_raw_join(&raw, argument);
	uint64_t lease = expect_lease(&raw, ask_with_signals(&raw));
	gm_text_say_word(channel, 'j');
	gm_hear_word(channel, 'b');
	do
		GM_REQUIRE_EQ(gm_raw_return(&raw, lease, NULL, 0), GPUMEM_OK);
	while (n++ < MANY && (lease = lease_so_far(&raw, ask_with_signals(&raw))));
	gm_text_say_word(channel, 'f');
	gm_hear_word(channel, 'e');
	gm_raw_close(&raw);
}

/* The keeper is slow to close what one user has returned. It must not seem to be full to another user. */
START_TEST(a_user_that_churns_leases_with_signals_makes_nobody_elses_fail)
{
	struct gm_daemon daemon;
	struct gm_worker worker;
	struct gm_raw raw;
	char folder[128];

	gm_daemon_start(&daemon, &fewest);
	gm_raw_join(&raw, &daemon);
	gm_worker_start(&worker, churn_signals, &daemon);
	gm_hear_word(worker.channel, 'j');
	snprintf(folder, sizeof(folder), "%.*s", (int)(strrchr(daemon.socket, '/') - daemon.socket),
		daemon.socket);
	pid_t keeper = gm_keeper_in(folder);
	GM_REQUIRE(keeper > 0);
	GM_REQUIRE_EQ(kill(keeper, SIGSTOP), 0);
	gm_text_say_word(worker.channel, 'b');
	gm_hear_word(worker.channel, 'f');

	uint64_t id = ask_with_signals(&raw);
	bool granted = lease_so_far(&raw, id);
	GM_REQUIRE_EQ(kill(keeper, SIGCONT), 0);
	if (!granted)
		expect_lease(&raw, id);
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	gm_raw_close(&raw);
	gm_daemon_stop(&daemon);
}
END_TEST

/* ---- after a restart */

#define PUBLISHED 64

static void publish_with_metadata(const struct gm_daemon *daemon)
{
	struct gm_raw raw;

	gm_raw_join(&raw, daemon);
	for (int i = 0; i < PUBLISHED; i++) {
		static const char text[] = "what it is";
		Gm__Wire__Publish publish = GM__WIRE__PUBLISH__INIT;
		struct gm_raw_lease lease;
		uint64_t version;
		char name[16];

		snprintf(name, sizeof(name), "name-%d", i);
		publish.name = name;
		publish.audience = GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN;
		publish.metadata_bytes = sizeof(text);
		GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
		publish.lease = lease.id;
		GM_REQUIRE_EQ(
			gm_raw_put_metadata(&raw, lease.id, sizeof(text), 0, text, sizeof(text)),
			GPUMEM_OK);
		GM_REQUIRE_EQ(gm_raw_publish(&raw, &publish, &version), GPUMEM_OK);
		gm_raw_lease_clear(&lease);
	}
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
}

/* How many chunks a client can have. */
static size_t count_room(const struct gm_daemon *daemon)
{
	static uint64_t leases[MANY];
	struct gm_raw raw;

	gm_raw_join(&raw, daemon);
	size_t n = lease_all(&raw, GM_CHUNK_MIN, leases);
	return_all(&raw, leases, n);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
	return n;
}

/* The next daemon gets the descriptors of chunks and metadata from the keeper, before it knows whose they
 * are. It must not count them as its own as well. */
START_TEST(descriptors_that_are_kept_over_a_restart_count_once)
{
	struct gm_daemon daemon;

	gm_daemon_start(&daemon, &few);
	publish_with_metadata(&daemon);
	size_t before = count_room(&daemon);
	gm_daemon_kill(&daemon);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon), -1);
	/* Some are those of sessions that had not quite ended, and of threads. */
	size_t after = count_room(&daemon);
	if (after + PUBLISHED / 4 < before)
		GM_FAIL("%zu chunks before the restart, %zu after it", before, after);
	gm_daemon_stop(&daemon);
}
END_TEST

/* ---- memory is the only bound on chunks */

/* What each of two users takes: together 18 GiB, in chunks of 2 MiB. */
#define CHUNKS 4608

static void take_small_chunks(int channel, void *argument)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	uid_t uid;

	gm_hear(channel, &uid, sizeof(uid));
	GM_REQUIRE(setgid(uid) == 0 && setuid(uid) == 0);
	gm_raw_join(&raw, argument);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	for (int i = 1; i < CHUNKS; i++) {
		struct gm_raw_lease grown = {.id = lease.id};
		if (gm_raw_grow(&raw, &grown, GM_CHUNK_MIN) != GPUMEM_OK)
			GM_FAIL("refused after %d: %s", i, gm_raw_detail(&raw));
		gm_raw_lease_clear(&grown);
	}
	gm_text_say_word(channel, 'f');
	gm_hear_word(channel, 'e');
	gm_raw_lease_clear(&lease);
	gm_raw_close(&raw);
}

START_TEST(small_leases_of_some_users_leave_another_its_guarantee)
{
	struct gm_daemon daemon;
	struct gm_worker workers[2];
	struct gm_raw raw;
	struct gm_raw_lease lease;
	struct rlimit limit;

	GM_REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	if (limit.rlim_max < 20000) {
		limit.rlim_max = 20000;
		GM_REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	}
	gm_daemon_start(&daemon,
		&(struct gm_daemon_options){.config = GM_DAEMON_CONFIG_WITH(
						    "", "64G") "[limit uid:0]\nguarantee = 8G\n"});
	for (uid_t i = 0; i < 2; i++) {
		uid_t uid = GM_STRANGER + i;
		gm_worker_start(&workers[i], take_small_chunks, &daemon);
		gm_text_say(workers[i].channel, &uid, sizeof(uid));
		gm_hear_word(workers[i].channel, 'f');
	}
	GM_REQUIRE_EQ(gm_figures_now(&daemon).chunks, 2 * CHUNKS);
	gm_raw_join(&raw, &daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, UINT64_C(8) << 30, &lease), GPUMEM_OK);
	gm_raw_lease_clear(&lease);
	gm_raw_close(&raw);
	for (int i = 0; i < 2; i++) {
		gm_text_say_word(workers[i].channel, 'e');
		gm_worker_join(&workers[i]);
	}
	gm_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("descriptors");
	TCase *tc = tcase_create("descriptors");
	/* Thousands of chunks are made one by one. */
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, pooled_chunks_give_up_their_descriptors_before_anybody_is_refused);
	tcase_add_test(tc, so_it_is_with_very_few);
	tcase_add_test(tc, a_request_waits_for_descriptors_that_the_pool_gives_up);
	tcase_add_test(tc, descriptors_that_are_kept_over_a_restart_count_once);
	if (GM_TAP_WITH_USERS(a_user_that_churns_leases_with_signals_makes_nobody_elses_fail))
		tcase_add_test(tc, a_user_that_churns_leases_with_signals_makes_nobody_elses_fail);
	if (GM_TAP_WITH_USERS(a_user_with_many_chunks_leaves_descriptors_to_others))
		tcase_add_test(tc, a_user_with_many_chunks_leaves_descriptors_to_others);
	/* On a GPU a returned chunk is destroyed, and is orphaned without a descriptor. */
	if (!gm_on_gpu() &&
		GM_TAP_WITH_USERS(a_user_with_many_orphaned_chunks_leaves_descriptors_to_others))
		tcase_add_test(tc, a_user_with_many_orphaned_chunks_leaves_descriptors_to_others);
	/* The memory of a fake GPU is really there, and this takes more than many machines have. */
	if (!gm_on_gpu() &&
		GM_TAP_WITH_USERS(small_leases_of_some_users_leave_another_its_guarantee))
		tcase_add_test(tc, small_leases_of_some_users_leave_another_its_guarantee);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
