/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * What one user can do to another. A user leases and returns memory that the pool has, and notes how
 * long each lease takes, while a process of another uid floods the daemon. The control is the same
 * flood against a second daemon on the same core, so that the flood costs the machine the same and
 * only the queue in front of the user differs. Needs root, for the second uid, and two cores.
 */

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/measure.h"
#include "tests/integration/flood.h"

enum { MOST_CONNECTIONS = 1000, MOST_SAMPLES = 20000, ROUNDS = 5 };
#define ROUND_NS UINT64_C(400000000)
/* The goals. RATIO: half and 99% of the leases take 3 times as long as in the control at most.
 * HELLO: the median is at most that of the control plus one hello. MOST: the longest is at most
 * GOAL_US. */
#define GOAL_RATIO 3
#define GOAL_US    10000

/* The user is no flood itself: it rests between two leases. */
#define REST_US 100

/* The flooder's limit, as in the configuration below. */
#define FLOODER_MAX (UINT64_C(4) << 30)

struct flood {
	const char *name;
	size_t connections, requests;
	void (*run)(const struct flood *flood, const struct gm_daemon *daemon);
	const Gm__Wire__Packet *(*packet)(void);
	bool miss; /* the user's requests miss the pool */
	size_t forks;
	enum { RATIO, HELLO, MOST } goal;
};

static struct gm_raw raws[MOST_CONNECTIONS];

static void join_all(const struct flood *flood, const struct gm_daemon *daemon, bool observe)
{
	for (size_t i = 0; i < flood->connections; i++) {
		if (observe)
			gm_raw_observe(&raws[i], daemon);
		else
			gm_raw_join(&raws[i], daemon);
	}
}

/* ---- floods: each runs until it is killed, and says once that it has begun */

static int begun; /* the channel to the benchmark */

static void say_begun(void)
{
	if (begun >= 0)
		gm_say_word(begun, 'b');
	begun = -1;
}

static void lease_and_return(const struct flood *flood, const struct gm_daemon *daemon)
{
	static uint64_t leases[MOST_CONNECTIONS];

	join_all(flood, daemon, false);
	for (;;) {
		Gm__Wire__Lease lease = GM__WIRE__LEASE__INIT;
		lease.bytes = GM_CHUNK_MIN;
		for (size_t i = 0; i < flood->connections; i++)
			gm_raw_send(&raws[i], GM_RAW_PACKET(LEASE, lease, &lease));
		for (size_t i = 0; i < flood->connections; i++) {
			GM_REQUIRE(gm_raw_receive(&raws[i]));
			GM_REQUIRE_EQ(
				raws[i].packet->body_case, GM__WIRE__PACKET__BODY_LEASE_REPLY);
			leases[i] = raws[i].packet->lease_reply->lease;
			/* The daemon would take a chunk that is still open for lingering memory. */
			gm_fdlist_deinit(&raws[i].fds);
			gm_fdlist_init(&raws[i].fds);
		}
		say_begun();
		for (size_t i = 0; i < flood->connections; i++) {
			Gm__Wire__Return back = GM__WIRE__RETURN__INIT;
			back.lease = leases[i];
			gm_raw_send(&raws[i], GM_RAW_PACKET(RETURN_CHUNKS, return_chunks, &back));
		}
		for (size_t i = 0; i < flood->connections; i++)
			GM_REQUIRE(gm_raw_receive(&raws[i]));
	}
}

static void ask(const struct flood *flood, const struct gm_daemon *daemon)
{
	join_all(flood, daemon, false);
	for (;;) {
		for (size_t n = 0; n < flood->requests; n++)
			for (size_t i = 0; i < flood->connections; i++)
				gm_raw_send(&raws[i], flood->packet());
		say_begun();
		for (size_t n = 0; n < flood->requests; n++) {
			for (size_t i = 0; i < flood->connections; i++)
				do
					GM_REQUIRE(gm_raw_receive(&raws[i]));
				while (raws[i].packet->more);
		}
	}
}

/* Requests that wait for the flooder's own limit, while one of its clients leases and returns. */
static void wait_in_line(const struct flood *flood, const struct gm_daemon *daemon)
{
	Gm__Wire__Lease body = GM__WIRE__LEASE__INIT;
	struct gm_raw_lease one, rest;

	join_all(flood, daemon, false);
	GM_REQUIRE_EQ(gm_raw_lease(&raws[0], 0, GM_CHUNK_MIN, &one), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_lease(&raws[0], 0, FLOODER_MAX - GM_CHUNK_MIN, &rest), GPUMEM_OK);
	body.bytes = 2 * GM_CHUNK_MIN;
	body.wait_ms = UINT64_C(1000) * 3600 * 24 * 365;
	for (size_t i = 1; i < flood->connections; i++)
		for (size_t n = 0; n < flood->requests; n++)
			gm_raw_send(&raws[i], GM_RAW_PACKET(LEASE, lease, &body));
	for (;;) {
		GM_REQUIRE_EQ(gm_raw_give_back(&raws[0], &one), GPUMEM_OK);
		say_begun();
		GM_REQUIRE_EQ(gm_raw_lease(&raws[0], 0, GM_CHUNK_MIN, &one), GPUMEM_OK);
	}
}

static void reconnect(const struct flood *flood, const struct gm_daemon *daemon)
{
	(void)flood;
	for (;;) {
		gm_raw_join(&raws[0], daemon);
		say_begun();
		gm_raw_close(&raws[0]);
	}
}

static void watch(const struct flood *flood, const struct gm_daemon *daemon)
{
	Gm__Wire__Watch body = GM__WIRE__WATCH__INIT;
	static struct gm_raw client;

	join_all(flood, daemon, true);
	for (size_t i = 0; i < flood->connections; i++)
		GM_REQUIRE_EQ(gm_raw_call(&raws[i], GM_RAW_PACKET(WATCH, watch, &body)), GPUMEM_OK);
	gm_raw_join(&client, daemon);
	for (;;) {
		GM_REQUIRE(gm_raw_call(&client, flood->packet()) != GPUMEM_OK);
		say_begun();
		for (size_t i = 0; i < flood->connections; i++)
			while (gm_raw_readable(raws[i].socket))
				GM_REQUIRE(gm_raw_receive(&raws[i]));
	}
}

static const struct flood floods[] = {
	{"nothing", 0, 0, NULL, NULL, false, 0, RATIO},
	{"64 connections lease and return", 64, 0, lease_and_return, NULL, false, 1, RATIO},
	{"the same, and the user misses the pool", 64, 0, lease_and_return, NULL, true, 1, RATIO},
	{"1,000 connections lease and return", 1000, 0, lease_and_return, NULL, false, 1, RATIO},
	{"1,000 connections x 60 GetStatus", 1000, 60, ask, gm_flood_status, false, 1, RATIO},
	{"1,000 sessions x 8 Cleanup dry_run", 1000, 8, ask, gm_flood_cleanup, false, 1, RATIO},
	{"8 processes that reconnect", 1, 0, reconnect, NULL, false, 8, HELLO},
	{"1,000 watchers, one client refused", 1000, 0, watch, gm_flood_lease, false, 1, RATIO},
	{"1,000 x 8 GetClients", 1000, 8, ask, gm_flood_clients, false, 1, MOST},
	{"1,000 x 8 GetBuffers", 1000, 8, ask, gm_flood_buffers, false, 1, MOST},
	{"1,000 requests that wait", 64, 16, wait_in_line, NULL, false, 1, RATIO},
	{"64 x 32 returns of 60,000 ids", 64, 32, ask, gm_flood_return, false, 1, MOST},
};

struct start {
	const struct flood *flood;
	const struct gm_daemon *daemon;
};

static void flooder(int channel, void *argument)
{
	const struct start *start = argument;

	gm_become_stranger();
	begun = channel;
	start->flood->run(start->flood, start->daemon);
}

/* ---- the user */

struct latency {
	double p50, p99, max;
};

static double samples[MOST_SAMPLES];

static double lease_once(struct gm_raw *user, bool miss)
{
	struct gm_raw_lease lease;
	uint64_t before = gm_monotonic_ns();

	GM_REQUIRE_EQ(gm_raw_lease(user, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	double us = (double)(gm_monotonic_ns() - before) / 1000;
	/* What is kept until the end, the pool cannot have. */
	if (!miss)
		GM_REQUIRE_EQ(gm_raw_give_back(user, &lease), GPUMEM_OK);
	else
		gm_raw_lease_clear(&lease);
	return us;
}

/* How long it takes to connect and be welcomed, while nobody floods. */
static double hello_once(const struct gm_daemon *daemon)
{
	enum { HELLOS = 101 };
	static double took[HELLOS];

	for (size_t i = 0; i < HELLOS; i++) {
		struct gm_raw raw;
		uint64_t before = gm_monotonic_ns();
		gm_raw_join(&raw, daemon);
		took[i] = (double)(gm_monotonic_ns() - before) / 1000;
		gm_raw_goodbye(&raw);
		gm_raw_close(&raw);
	}
	return gm_median(took, HELLOS);
}

static struct latency measure(
	const struct gm_daemon *daemon, const struct gm_daemon *target, const struct flood *flood)
{
	struct gm_worker workers[8];
	struct start start = {flood, target};
	struct gm_raw user;
	size_t n = 0;

	gm_raw_join(&user, daemon);
	lease_once(&user, false);
	for (size_t i = 0; i < flood->forks; i++)
		gm_worker_start(&workers[i], flooder, &start);
	for (size_t i = 0; i < flood->forks; i++)
		gm_hear_word(workers[i].channel, 'b');
	for (uint64_t end = gm_monotonic_ns() + ROUND_NS;
		n < MOST_SAMPLES && gm_monotonic_ns() < end;) {
		samples[n++] = lease_once(&user, flood->miss);
		usleep(REST_US);
	}
	for (size_t i = 0; i < flood->forks; i++) {
		/* A flood that has ended was none. */
		GM_REQUIRE(waitpid(workers[i].pid, NULL, WNOHANG) == 0);
		gm_worker_kill(&workers[i]);
	}
	gm_raw_goodbye(&user);
	gm_raw_close(&user);
	return (struct latency){gm_percentile(samples, n, 50), gm_percentile(samples, n, 99),
		gm_percentile(samples, n, 100)};
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	GM_REQUIRE(sched_setaffinity(0, sizeof(set), &set) == 0);
}

static void compare(
	const struct gm_daemon *daemon, const struct gm_daemon *other, const struct flood *flood)
{
	double p50[2][ROUNDS], p99[2][ROUNDS], max[2][ROUNDS];

	for (size_t r = 0; r < ROUNDS; r++) {
		for (size_t control = 0; control < 2; control++) {
			struct latency l = measure(daemon, control ? other : daemon, flood);
			p50[control][r] = l.p50;
			p99[control][r] = l.p99;
			max[control][r] = l.max;
		}
	}
	double asked = flood->goal == RATIO ? GOAL_RATIO : -1;
	double control = gm_median(p50[1], ROUNDS);
	gm_print_title(flood->name);
	gm_print_ratio("p50", gm_median(p50[0], ROUNDS), control, "us", asked);
	gm_print_ratio("p99", gm_median(p99[0], ROUNDS), gm_median(p99[1], ROUNDS), "us", asked);
	gm_print_ratio("max", gm_median(max[0], ROUNDS), gm_median(max[1], ROUNDS), "us", -1);
	if (flood->goal == HELLO)
		gm_print_ratio("p50; peer: control and a hello", gm_median(p50[0], ROUNDS),
			control + hello_once(daemon), "us", 1);
	if (flood->goal == MOST)
		gm_print_ratio(
			"max; peer: what is asked", gm_median(max[0], ROUNDS), GOAL_US, "us", 1);
}

int main(int argc, char **argv)
{
	/* The pool keeps few chunks of a size per user, so most of a flood of leases misses it. */
	static const char *const on_core_0[] = {"taskset", "-c", "0", NULL};
	static const struct gm_daemon_options options = {
		.config = GM_DAEMON_CONFIG_WITH(
			"max_pooled_per_bucket = 4\n", "32G") "[limit uid:64999]\nmax = 4G\n",
		.runner = on_core_0};
	struct gm_daemon daemon, other;
	struct rlimit limit;

	if (geteuid() != 0) {
		fputs("fairness: needs root, to flood as another user\n", stderr);
		return 77;
	}
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	gm_daemon_start(&daemon, &options);
	gm_daemon_start(&other, &options);
	pin(1);
	puts("A lease while another uid floods the daemon; peer: the same flood at another daemon");
	for (size_t i = 0; i < sizeof(floods) / sizeof(*floods); i++)
		if (argc < 2 || strstr(floods[i].name, argv[1]))
			compare(&daemon, &other, &floods[i]);
	gm_daemon_stop(&daemon);
	gm_daemon_stop(&other);
	return 0;
}
