/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * A daemon, or its keeper, of which each call fails in turn: allocations, libuv's included, system
 * calls, and on a fake GPU calls of the driver. That may cost a client its request or its
 * connection. The daemon lives, its books balance, no descriptor and no block is left over, and a
 * client of another user does not notice.
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/end_keeper.h"
#include "tests/integration/fault_loop.h"
#include "tests/integration/witness.h"
#include "tests/tap.h"

static struct gm_witness witness;

/* Only turns an answer that never comes into a failure. */
#define PATIENCE_S 50

#define NAME "faulty"

static void ask(struct gm_raw *raw, const Gm__Wire__Packet *packet)
{
	if (gm_raw_call(raw, packet) == GPUMEM_OK)
		while (raw->packet && raw->packet->more && gm_raw_receive(raw))
			continue;
}

static gpumem_status say_hello(struct gm_raw *raw, bool observer)
{
	Gm__Wire__Hello hello = GM__WIRE__HELLO__INIT;
	hello.major = GM_WIRE_MAJOR;
	hello.name = (char *)"client";
	hello.observer = observer;
	return gm_raw_hello(raw, witness.daemon.socket, &hello);
}

static void ask_everything(struct gm_raw *raw)
{
	Gm__Wire__GetStatus status = GM__WIRE__GET_STATUS__INIT;
	Gm__Wire__GetDevices devices = GM__WIRE__GET_DEVICES__INIT;
	Gm__Wire__GetClients clients = GM__WIRE__GET_CLIENTS__INIT;
	Gm__Wire__GetBuffers buffers = GM__WIRE__GET_BUFFERS__INIT;
	Gm__Wire__GetPools pools = GM__WIRE__GET_POOLS__INIT;
	Gm__Wire__GetQueue queue = GM__WIRE__GET_QUEUE__INIT;
	Gm__Wire__GetProcesses processes = GM__WIRE__GET_PROCESSES__INIT;
	Gm__Wire__Watch watch = GM__WIRE__WATCH__INIT;

	ask(raw, GM_RAW_PACKET(GET_STATUS, get_status, &status));
	ask(raw, GM_RAW_PACKET(GET_DEVICES, get_devices, &devices));
	ask(raw, GM_RAW_PACKET(GET_CLIENTS, get_clients, &clients));
	ask(raw, GM_RAW_PACKET(GET_BUFFERS, get_buffers, &buffers));
	ask(raw, GM_RAW_PACKET(GET_POOLS, get_pools, &pools));
	ask(raw, GM_RAW_PACKET(GET_QUEUE, get_queue, &queue));
	ask(raw, GM_RAW_PACKET(GET_PROCESSES, get_processes, &processes));
	ask(raw, GM_RAW_PACKET(WATCH, watch, &watch));
}

/* Publishes a lease under a name, with metadata, attaches it, and removes the name. */
static void use_name(struct gm_raw *maker, struct gm_raw *opener, uint64_t lease)
{
	static const uint8_t metadata[5000] = {7};
	struct gm_raw_lease attached = {0};
	Gm__Wire__Publish publish = GM__WIRE__PUBLISH__INIT;
	uint64_t version;
	uint8_t *data = NULL;
	size_t size;

	publish.lease = lease;
	publish.name = (char *)NAME;
	publish.lifetime_ms = 3600000;
	if (gm_raw_put_metadata(maker, lease, sizeof(metadata), 0, metadata, sizeof(metadata)) ==
		GPUMEM_OK)
		publish.metadata_bytes = sizeof(metadata);
	gm_raw_publish(maker, &publish, &version);
	gm_raw_attach(opener, (uid_t)-1, NAME, &attached);
	gm_raw_get_metadata(opener, (uid_t)-1, NAME, 0, &data, &size);
	free(data);
	gm_raw_lease_clear(&attached);
	gm_raw_unpublish(maker, (uid_t)-1, NAME);
}

/* Shares the chunks of a lease, opens one of them, and ends that. */
static void use_pieces(
	struct gm_raw *maker, struct gm_raw *opener, const struct gm_raw_lease *lease)
{
	uint8_t token[GM_TOKEN_BYTES];
	struct gm_raw_lease opened = {0};
	uint64_t chunk = lease->chunks[0].id;

	if (gm_raw_share_chunks(maker, &lease->id, &chunk, 1, 0, token, NULL) != GPUMEM_OK)
		return;
	gm_raw_open_index(opener, token, 0, &opened);
	gm_raw_lease_clear(&opened);
	gm_raw_unshare_chunks(maker, token, 1);
}

/* Two clients of a user do everything that clients do. Whatever fails, they go on. */
static void do_everything(int channel, void *argument)
{
	struct gm_raw maker, opener, observer;
	struct gm_raw_lease lease = {0}, opened = {0}, more = {0};
	uint8_t token[GM_TOKEN_BYTES] = {0};

	alarm(PATIENCE_S);
	gm_become_stranger_if_possible();
	say_hello(&observer, true);
	ask_everything(&observer);
	say_hello(&maker, false);
	say_hello(&opener, false);
	if (gm_raw_lease(&maker, 0, 3 * GM_CHUNK_MIN, &lease) == GPUMEM_OK) {
		gm_raw_grow(&maker, &lease, GM_CHUNK_MIN);
		gm_raw_share(&maker, lease.id, GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN, 0, true, token);
		gm_raw_open(&opener, token, &opened);
		gm_raw_lease_clear(&opened);
		use_name(&maker, &opener, lease.id);
	}
	/* More than there is: it waits for a moment. */
	Gm__Wire__Lease large = GM__WIRE__LEASE__INIT;
	large.bytes = UINT64_C(1) << 30;
	large.wait_ms = 1;
	ask(&opener, GM_RAW_PACKET(LEASE, lease, &large));
	if (gm_raw_lease(&maker, 0, GM_CHUNK_MIN, &more) == GPUMEM_OK) {
		uint64_t chunk = more.chunks[0].id, id = more.id;
		use_pieces(&maker, &opener, &more);
		gm_raw_lease_clear(&more);
		gm_raw_return(&maker, id, &chunk, 1);
		gm_raw_return(&maker, id, NULL, 0);
	}
	Gm__Wire__Declare declare = GM__WIRE__DECLARE__INIT;
	declare.bytes = GM_CHUNK_MIN;
	ask(&maker, GM_RAW_PACKET(DECLARE, declare, &declare));
	if (gm_raw_lease(&opener, 0, 5 * GM_CHUNK_MIN, &more) == GPUMEM_OK)
		gm_raw_give_back(&opener, &more);
	gm_raw_lease_clear(&lease);
	ask_everything(&maker);
	gm_raw_goodbye(&opener);
	/* The maker ends without a goodbye, the others with their process. */
}

/* libuv ends its process in a few places, such as when the kernel refuses to watch a descriptor: these
 * failures cost the daemon. The next daemon must take everything over. */
static bool daemon_may_die(void)
{
	return atomic_load(&gm_fault_page->libuv);
}

static bool daemon_was_ended(int status)
{
	return daemon_may_die() && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void serve_clients(const struct gm_fault_scenario *scenario)
{
	struct gm_worker worker;
	gm_worker_start(&worker, do_everything, NULL);
	int status = gm_fault_reap(worker.pid);
	close(worker.channel);
	if (status != 0 && !daemon_may_die())
		GM_FAIL("a client got no answer, or a wrong one: status %x", status);
}

static bool balanced(void)
{
	struct gm_figures f = gm_figures_now(&witness.daemon);

	return f.clients == 1 && f.leases == 1 && f.leased == GM_CHUNK_MIN && f.admitted == 0 &&
	       f.quarantined == 0 && f.orphaned == 0 && f.declared == 0;
}

/* Removes what a client could not, and empties the pool, whose chunks have descriptors. */
static void clean_up(void)
{
	struct gm_raw raw;
	Gm__Wire__Trim trim = GM__WIRE__TRIM__INIT;
	uid_t owner = gm_tap_has_users() ? GM_STRANGER : geteuid();

	gm_raw_observe(&raw, &witness.daemon);
	gpumem_status status = gm_raw_unpublish(&raw, owner, NAME);
	GM_REQUIRE(status == GPUMEM_OK || status == GPUMEM_E_NOT_FOUND);
	trim.all_devices = true;
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(TRIM, trim, &trim)), GPUMEM_OK);
	gm_raw_close(&raw);
}

/* What the daemon has when nobody has anything: descriptors, and blocks of memory. 0: not known yet. */
static size_t fds_of_nobody;
static int64_t blocks_of_nobody;
/* Some blocks come and go with timers and log lines. A block that is lost each time adds up to more. */
#define BLOCKS_SPARE 16

static bool nothing_left_over(char text[160])
{
	size_t fds = gm_daemon_fds(&witness.daemon);
	int64_t blocks = atomic_load(&gm_fault_page->blocks);
	snprintf(text, 160, "%zu descriptors (there are %zu) and %lld blocks (there are %lld)",
		fds_of_nobody, fds, (long long)blocks_of_nobody, (long long)blocks);
	return fds <= fds_of_nobody && blocks <= blocks_of_nobody + BLOCKS_SPARE;
}

static void learn_nothing(void);

/* scenario: NULL while it is not known what nothing is. */
static void require_whole(const struct gm_fault_scenario *scenario)
{
	struct gm_figures f;
	if (!gm_figures_try(&witness.daemon, &f)) {
		int status = gm_daemon_wait(&witness.daemon);
		if (!daemon_was_ended(status))
			GM_FAIL("the daemon ended with wait status %#x", (unsigned)status);
		fds_of_nobody = 0;
		atomic_store(&gm_fault_page->blocks, 0);
		GM_REQUIRE_EQ(gm_daemon_spawn(&witness.daemon), -1);
		gm_raw_come_back(&witness.raw, &witness.daemon);
	}
	clean_up();
	GM_UNTIL(balanced());
	gm_witness_served(&witness);
	clean_up();
	struct gm_patience patience = {0};
	char text[160];
	while (fds_of_nobody && !nothing_left_over(text))
		gm_patience_wait(&patience, __FILE__, __LINE__, text);
	if (!fds_of_nobody && scenario)
		learn_nothing();
}

/* Learns what the daemon has when nobody has anything. A connection that has just been closed is
 * still open there for a moment, so the least of several looks counts. */
static void learn_nothing(void)
{
	for (int i = 0; i < 20; i++) {
		if (i < 3)
			serve_clients(NULL);
		require_whole(NULL);
		size_t fds = gm_daemon_fds(&witness.daemon);
		int64_t blocks = atomic_load(&gm_fault_page->blocks);
		if (i < 3)
			continue;
		if (!fds_of_nobody || fds < fds_of_nobody)
			fds_of_nobody = fds;
		blocks_of_nobody = i == 3 || blocks > blocks_of_nobody ? blocks : blocks_of_nobody;
	}
	fprintf(stderr, "# %zu descriptors, %lld blocks\n", fds_of_nobody,
		(long long)blocks_of_nobody);
}

static void setup(void)
{
	gm_fault_open("gpumemd");
	gm_witness_start(&witness, &(struct gm_daemon_options){.env = gm_fault_env()});
	if (!gm_sanitized())
		learn_nothing();
}

static void teardown(void)
{
	gm_witness_stop(&witness);
	gm_fault_close();
}

static const struct gm_fault_scenario serving = {
	.name = "daemon, serving clients",
	.program = "gpumemd",
	.run = serve_clients,
	.after = require_whole,
};

START_TEST(without_faults_all_goes_well)
{
	serve_clients(&serving);
	require_whole(&serving);
}
END_TEST

START_TEST(the_daemon_survives_each_call_that_fails)
{
	gm_fault_loop(&serving);
}
END_TEST

/* ---- a keeper */

/* Returns how many descriptors the keeper has open; 0: there is none. */
static size_t keeper_fds(void)
{
	char run[96];
	snprintf(run, sizeof(run), "%s/run", witness.daemon.folder);
	const struct gm_daemon keeper = {.pid = gm_keeper_in(run)};
	return keeper.pid ? gm_daemon_fds(&keeper) : 0;
}

static struct gm_figures kept_of_nobody;

static bool keeper_holds_the_same(char text[160])
{
	struct gm_figures f = gm_figures_now(&witness.daemon);
	size_t fds = keeper_fds();
	snprintf(text, 160,
		"%llu descriptors in the keeper (%llu), which has %zu, and %llu records (%llu)",
		(unsigned long long)kept_of_nobody.kept, (unsigned long long)f.kept, fds,
		(unsigned long long)kept_of_nobody.records, (unsigned long long)f.records);
	return f.kept <= kept_of_nobody.kept && f.records <= kept_of_nobody.records && fds > 0;
}

/* The keeper may die, and is started again. The daemon has lost nothing, and the next daemon finds it all. */
static void require_kept(const struct gm_fault_scenario *scenario)
{
	struct gm_patience patience = {0};
	char text[160];
	clean_up();
	GM_UNTIL(balanced());
	gm_witness_served(&witness);
	clean_up();
	while (!keeper_holds_the_same(text))
		gm_patience_wait(&patience, __FILE__, __LINE__, text);
	gm_daemon_kill(&witness.daemon);
	GM_REQUIRE_EQ(gm_daemon_spawn(&witness.daemon), -1);
	GM_REQUIRE_EQ(gm_figures_now(&witness.daemon).quarantined, GM_CHUNK_MIN);
	gm_raw_come_back(&witness.raw, &witness.daemon);
	gm_witness_served(&witness);
}

static const struct gm_fault_scenario keeping = {
	.name = "keeper",
	.program = "gpumem-keeper",
	.run = serve_clients,
	.after = require_kept,
};

START_TEST(a_keeper_of_which_calls_fail_costs_clients_nothing)
{
	gm_fault_open(keeping.program);
	gm_witness_start(&witness, &(struct gm_daemon_options){.env = gm_fault_env()});
	/* A client that has resumed its session has a descriptor more there. */
	kept_of_nobody.kept = kept_of_nobody.records = UINT64_MAX;
	for (int i = 0; i < 3; i++) {
		serve_clients(NULL);
		require_kept(NULL);
	}
	clean_up();
	kept_of_nobody = gm_figures_now(&witness.daemon);
	gm_fault_loop(&keeping);
	gm_witness_stop(&witness);
	gm_fault_close();
}
END_TEST

/* ---- a start */

static struct gm_daemon starter;
static struct gm_raw_lease kept;
static int start_status;

static void start_daemon(const struct gm_fault_scenario *scenario)
{
	char run[96];
	if (starter.pid)
		gm_daemon_kill(&starter);
	snprintf(run, sizeof(run), "%s/run", starter.folder);
	if (!kept.bytes)
		gm_keeper_end(run);
	GM_REQUIRE(truncate(starter.log, 0) == 0);
	start_status = gm_daemon_spawn(&starter);
}

/* A daemon that cannot take over ends and says why, or starts with all of it. The next one has all of it. */
static void require_all_taken_over(const struct gm_fault_scenario *scenario)
{
	struct gm_figures f;
	char *log = gm_daemon_log(&starter);
	GM_REQUIRE(log);
	if (start_status == -1 && !gm_figures_try(&starter, &f))
		start_status = gm_daemon_wait(&starter);
	if (start_status != -1 && !daemon_was_ended(start_status)) {
		if (!WIFEXITED(start_status) || WEXITSTATUS(start_status) == 0)
			GM_FAIL("the daemon ended with wait status %#x", (unsigned)start_status);
		if (!strstr(log, "error: ") && !strstr(log, "gpumemd: ") &&
			!strstr(log, ".conf: cannot be read"))
			GM_FAIL("the daemon ended and did not say why: %s", log);
		fprintf(stderr, "#   %s", log);
	}
	free(log);
	if (start_status != -1)
		start_daemon(scenario);
	GM_REQUIRE_EQ(start_status, -1);
	GM_REQUIRE_EQ(gm_figures_now(&starter).quarantined, kept.bytes);
}

static const struct gm_fault_scenario starting = {
	.name = "daemon, starting",
	.program = "gpumemd",
	.run = start_daemon,
	.after = require_all_taken_over,
};

static const struct gm_fault_scenario starting_keeper = {
	.name = "keeper, starting",
	.program = "gpumem-keeper",
	.run = start_daemon,
	.after = require_all_taken_over,
};

START_TEST(a_keeper_that_cannot_start_is_said)
{
	gm_fault_open(starting_keeper.program);
	gm_daemon_start(&starter, &(struct gm_daemon_options){.env = gm_fault_env()});
	gm_fault_loop(&starting_keeper);
	gm_daemon_stop(&starter);
	gm_fault_close();
}
END_TEST

START_TEST(a_start_in_which_calls_fail_costs_clients_nothing)
{
	struct gm_raw raw;

	gm_fault_open(starting.program);
	gm_daemon_start(&starter, &(struct gm_daemon_options){.env = gm_fault_env()});
	gm_raw_join(&raw, &starter);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, 7 * GM_CHUNK_MIN, &kept), GPUMEM_OK);
	gm_fault_loop(&starting);
	gm_raw_lease_clear(&kept);
	gm_raw_close(&raw);
	gm_daemon_stop(&starter);
	gm_fault_close();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_daemon");
	TCase *tests = tcase_create("serving");

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_set_timeout(tests, 3600);
	tcase_add_test(tests, without_faults_all_goes_well);
	if (!gm_sanitized())
		tcase_add_test(tests, the_daemon_survives_each_call_that_fails);
	suite_add_tcase(suite, tests);
	tests = tcase_create("keeping and starting");
	tcase_set_timeout(tests, 3600);
	if (!gm_sanitized()) {
		tcase_add_test(tests, a_keeper_of_which_calls_fail_costs_clients_nothing);
		tcase_add_test(tests, a_keeper_that_cannot_start_is_said);
		tcase_add_test(tests, a_start_in_which_calls_fail_costs_clients_nothing);
	}
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
