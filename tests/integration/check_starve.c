/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * A daemon that runs out of memory, at each of its allocations in turn, libuv's included. That may
 * cost a client its request or its connection. The daemon lives, its books balance, and a client of
 * another user does not notice.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/starve.h"
#include "tests/integration/witness.h"
#include "tests/tap.h"

static struct gm_starve *starve;
static struct gm_witness witness;

/* Only turns an answer that never comes into a failure. */
#define PATIENCE_S 50

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
	hello.name = (char *)"starving";
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

/* Two clients of a user do everything that clients do. Whatever fails, they go on. */
static void do_everything(void)
{
	struct gm_raw maker, opener, observer;
	struct gm_raw_lease lease = {0}, opened = {0}, more = {0};
	uint8_t token[GM_TOKEN_BYTES] = {0};

	say_hello(&observer, true);
	ask_everything(&observer);
	say_hello(&maker, false);
	say_hello(&opener, false);
	if (gm_raw_lease(&maker, 0, 3 * GM_CHUNK_MIN, &lease) == GPUMEM_OK) {
		gm_raw_grow(&maker, &lease, GM_CHUNK_MIN);
		gm_raw_share(&maker, lease.id, GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN, 0, true, token);
		gm_raw_open(&opener, token, &opened);
		gm_raw_lease_clear(&opened);
	}
	/* More than there is: it waits for a moment. */
	Gm__Wire__Lease large = GM__WIRE__LEASE__INIT;
	large.bytes = UINT64_C(1) << 30;
	large.wait_ms = 1;
	ask(&opener, GM_RAW_PACKET(LEASE, lease, &large));
	if (gm_raw_lease(&maker, 0, GM_CHUNK_MIN, &more) == GPUMEM_OK) {
		uint64_t chunk = more.chunks[0].id, id = more.id;
		gm_raw_lease_clear(&more);
		gm_raw_return(&maker, id, &chunk, 1);
		gm_raw_return(&maker, id, NULL, 0);
	}
	if (gm_raw_lease(&opener, 0, 5 * GM_CHUNK_MIN, &more) == GPUMEM_OK)
		gm_raw_give_back(&opener, &more);
	gm_raw_lease_clear(&lease);
	ask_everything(&maker);
	gm_raw_goodbye(&opener);
	/* The maker ends without a goodbye, the others with their process. */
}

static void do_everything_in_a_process(void)
{
	pid_t child = fork();
	GM_REQUIRE(child >= 0);
	if (child == 0) {
		alarm(PATIENCE_S);
		gm_become_stranger_if_possible();
		do_everything();
		_exit(0);
	}
	int status;
	GM_REQUIRE(waitpid(child, &status, 0) == child);
	if (status != 0)
		GM_FAIL("a client got no answer, or a wrong one: status %x", status);
}

static bool balanced(void)
{
	struct gm_figures f = gm_figures_now(&witness.daemon);

	return f.clients == 1 && f.leases == 1 && f.leased == GM_CHUNK_MIN && f.admitted == 0 &&
	       f.quarantined == 0;
}

/* From its n-th allocation on, the daemon gets no memory so many times. Returns whether it noticed. */
static bool starve_at(uint64_t n, uint64_t times)
{
	atomic_store(&starve->failed, 0);
	atomic_store(&starve->skip, n);
	atomic_store(&starve->fail, times);
	do_everything_in_a_process();
	atomic_store(&starve->fail, 0);

	if (waitpid(witness.daemon.pid, NULL, WNOHANG) != 0)
		GM_FAIL("the daemon died when allocation %llu failed (%llu in a row)",
			(unsigned long long)n, (unsigned long long)times);
	GM_UNTIL(balanced());
	gm_witness_served(&witness);
	return atomic_load(&starve->failed) > 0;
}

static char file[128]; /* what starve maps */

/* Returns the environment of a daemon that can be starved, until the next call. */
static const char *const *make_starve(void)
{
	static char preload[4352], set[256];
	static const char *env[3];
	snprintf(file, sizeof(file), "/tmp/gpumem-starve-%d", (int)getpid());
	int fd = open(file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	GM_REQUIRE(fd >= 0 && ftruncate(fd, sizeof(*starve)) == 0);
	starve = mmap(NULL, sizeof(*starve), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	GM_REQUIRE(starve != MAP_FAILED);
	close(fd);

	const char *build = getenv("top_builddir");
	char *path = realpath(build ? build : ".", NULL);
	GM_REQUIRE(path);
	snprintf(preload, sizeof(preload), "LD_PRELOAD=%s/tests/integration/.libs/libstarve.so",
		path);
	free(path);
	GM_REQUIRE(access(preload + strlen("LD_PRELOAD="), R_OK) == 0);
	snprintf(set, sizeof(set), GM_STARVE_FILE "=%s", file);
	env[0] = set;
	/* A sanitizer's own malloc() cannot be replaced. */
	env[1] = gm_sanitized() ? NULL : preload;
	env[2] = NULL;
	return env;
}

static void setup(void)
{
	gm_witness_start(&witness, &(struct gm_daemon_options){.env = make_starve()});
	GM_REQUIRE(unlink(file) == 0);
}

static void teardown(void)
{
	gm_witness_stop(&witness);
	munmap(starve, sizeof(*starve));
}

START_TEST(with_memory_all_goes_well)
{
	GM_REQUIRE(!starve_at(0, 0));
}
END_TEST

START_TEST(the_daemon_survives_each_allocation_that_fails)
{
	uint64_t n = 0, failed = 0;

	/* Some allocations come only now and then, so a few misses in a row are the end. */
	for (unsigned misses = 0; misses < 5; n++) {
		bool noticed = starve_at(n, 1);
		failed += noticed;
		misses = noticed ? 0 : misses + 1;
	}
	GM_REQUIRE(failed > 30); /* it does run out in many places */
}
END_TEST

START_TEST(and_several_that_fail_in_a_row)
{
	for (uint64_t n = 0, misses = 0; misses < 3; n += 7)
		misses = starve_at(n, 25) ? 0 : misses + 1;
}
END_TEST

/* ---- a start */

/* Starts the daemon, which gets no memory once, after n allocations. Returns what gm_daemon_spawn() does. */
static int start_without(struct gm_daemon *daemon, uint64_t n)
{
	atomic_store(&starve->failed, 0);
	atomic_store(&starve->skip, n);
	atomic_store(&starve->fail, 1);
	int status = gm_daemon_spawn(daemon);
	atomic_store(&starve->fail, 0);
	return status;
}

/* A daemon that cannot take over for lack of memory ends, or starts with all of it. */
START_TEST(a_start_that_lacks_memory_costs_clients_nothing)
{
	/* The many allocations before are of the configuration, and nothing is taken over yet. */
	const uint64_t last = 300, many = UINT64_C(1) << 32;
	struct gm_daemon daemon;
	struct gm_raw raw;
	struct gm_raw_lease lease;
	unsigned refused = 0;

	gm_daemon_start(&daemon, &(struct gm_daemon_options){.env = make_starve()});
	gm_raw_join(&raw, &daemon);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, 7 * GM_CHUNK_MIN, &lease), GPUMEM_OK);
	gm_daemon_kill(&daemon);
	GM_REQUIRE_EQ(start_without(&daemon, many), -1);
	uint64_t all = many - atomic_load(&starve->skip);
	GM_REQUIRE(all > last);

	for (uint64_t n = all - last; n < all; n++) {
		if (daemon.pid)
			gm_daemon_kill(&daemon);
		if (start_without(&daemon, n) != -1)
			refused++;
		else if (gm_figures_now(&daemon).quarantined != lease.bytes)
			GM_FAIL("memory is lost, at allocation %llu or before",
				(unsigned long long)n);
	}
	GM_REQUIRE(refused > 20);
	if (daemon.pid)
		gm_daemon_kill(&daemon);
	GM_REQUIRE_EQ(start_without(&daemon, many), -1);
	GM_REQUIRE_EQ(gm_figures_now(&daemon).quarantined, lease.bytes);

	gm_raw_lease_clear(&lease);
	gm_raw_close(&raw);
	unlink(file);
	munmap(starve, sizeof(*starve));
	gm_daemon_stop(&daemon);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("starve");
	TCase *tests = tcase_create("starve");

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, with_memory_all_goes_well);
	if (!gm_sanitized()) {
		tcase_add_test(tests, the_daemon_survives_each_allocation_that_fails);
		tcase_add_test(tests, and_several_that_fail_in_a_row);
	}
	tcase_set_timeout(tests, 600);
	suite_add_tcase(suite, tests);
	tests = tcase_create("starve at the start");
	tcase_set_timeout(tests, 600);
	if (!gm_sanitized())
		tcase_add_test(tests, a_start_that_lacks_memory_costs_clients_nothing);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
