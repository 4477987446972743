/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Latency of one user while others flood the daemon. A user leases and returns memory that the pool has, and notes
 * how long each lease takes, while one or four other users flood the daemon: with each kind of
 * request that there is, and with some mixtures. The control is the same flood against a second
 * daemon on the same core, so that the flood costs the machine the same and only the queue in front
 * of the user differs. Needs root, for the other uids, and two cores. An argument selects the
 * floods whose name has it.
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

enum { MOST_CONNECTIONS = 1000, MOST_SAMPLES = 20000, MOST_FORKS = 8, ROUNDS = 5 };
#define ROUND_NS UINT64_C(200000000)
/* Maximum ratio of p50 and of p99 of a lease to the control, with one flooding user and with FOUR. */
#define GOAL_ONE  3
#define GOAL_FOUR 5
enum { FOUR = 4 };

/* The user is no flood itself: it waits between two leases. */
#define WAIT_US 100
#define USER    64990

/* The flooders are GM_STRANGER and the uids below. This is their limit, as in the configuration
 * below. */
#define FLOODER_MAX (UINT64_C(4) << 30)

struct flood {
	const char *name;
	size_t connections, requests;
	void (*run)(const struct flood *flood, const struct gm_daemon *daemon);
	const struct gm_flood_kind *kind; /* what is asked; NULL: run() knows */
	bool miss;                        /* the user's requests miss the pool */
	size_t forks;                     /* processes in all, or as many as users */
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
		gm_text_say_word(begun, 'b');
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
			/* The daemon would take a chunk that is still open for orphaned memory. */
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
	static struct gm_flood_state states[MOST_CONNECTIONS];
	const struct gm_flood_kind *kind = flood->kind;
	bool silent = kind->how == GM_FLOOD_SILENT;

	join_all(flood, daemon, false);
	for (size_t i = 0; i < flood->connections; i++)
		gm_flood_prepare(kind, &raws[i], &states[i]);
	for (;;) {
		for (size_t n = 0; n < flood->requests; n++)
			for (size_t i = 0; i < flood->connections; i++)
				gm_raw_send(&raws[i], kind->packet(&states[i]));
		say_begun();
		/* Without answers, it is a question that says that all were read. */
		for (size_t i = 0; silent && i < flood->connections; i++)
			gm_raw_send(&raws[i], gm_flood_status());
		for (size_t n = 0; n < (silent ? 1 : flood->requests); n++) {
			for (size_t i = 0; i < flood->connections; i++)
				do
					GM_REQUIRE(gm_raw_receive(&raws[i]));
				while (raws[i].packet->more || raws[i].packet->id == 0);
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
		GM_REQUIRE(gm_raw_call(&client, gm_flood_lease()) != GPUMEM_OK);
		say_begun();
		for (size_t i = 0; i < flood->connections; i++)
			while (gm_raw_readable(raws[i].socket))
				GM_REQUIRE(gm_raw_receive(&raws[i]));
	}
}

/* Beside the kinds of requests: see gm_flood_kinds. These include Hello, Goodbye,
 * Lease and Return. */
static const struct flood floods[] = {
	{"nothing", 0, 0, NULL, NULL, false, 0},
	{"64 connections lease and return", 64, 0, lease_and_return, NULL, false, 1},
	{"the same, and the user misses the pool", 64, 0, lease_and_return, NULL, true, 1},
	{"1,000 connections lease and return", 1000, 0, lease_and_return, NULL, false, 1},
	{"8 processes that reconnect", 1, 0, reconnect, NULL, false, MOST_FORKS},
	{"250 watchers, one client refused", 250, 0, watch, NULL, false, 1},
	{"1,000 requests that wait", 64, 16, wait_in_line, NULL, false, 1},
};

struct start {
	const struct flood *flood;
	const struct gm_daemon *daemon;
	uid_t uid;
};

static void flooder(int channel, void *argument)
{
	const struct start *start = argument;

	GM_REQUIRE(setgid(start->uid) == 0 && setuid(start->uid) == 0);
	begun = channel;
	start->flood->run(start->flood, start->daemon);
}

/* ---- the user */

/* served: without the time in which the daemon's loop or the user waited for a core. A daemon that
 * is flooded is always runnable, so on a busy machine it waits for its core where an idle one does
 * not. */
enum { P50, P99, P50_SERVED, P99_SERVED, MAX, FIGURES };
static const char *const figure_names[] = {
	"p50", "p99", "p50 without waiting for a core", "p99 without waiting for a core", "max"};
struct latency {
	double figure[FIGURES];
};

static double samples[MOST_SAMPLES], served[MOST_SAMPLES];

/* Time that the first thread of the process has waited for a core, in ns. */
static uint64_t waited_ns(pid_t pid)
{
	unsigned long long ran, waited = 0;
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", (int)pid, (int)pid);
	FILE *f = fopen(path, "re");

	if (f) {
		if (fscanf(f, "%llu %llu", &ran, &waited) != 2)
			waited = 0;
		fclose(f);
	}
	return waited;
}

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

/* A user of its own, so that an administrator's flood is another user's. */
static void join_as_user(struct gm_raw *user, const struct gm_daemon *daemon)
{
	GM_REQUIRE_EQ(seteuid(USER), 0);
	gm_raw_join(user, daemon);
	GM_REQUIRE_EQ(seteuid(0), 0);
}

static struct latency measure(const struct gm_daemon *daemon, const struct gm_daemon *target,
	const struct flood *flood, size_t users)
{
	struct gm_worker workers[MOST_FORKS];
	struct gm_raw user;
	size_t n = 0, forks = flood->forks > 1 ? flood->forks : flood->forks * users;
	bool admin = flood->kind && flood->kind->how == GM_FLOOD_ADMIN;

	join_as_user(&user, daemon);
	lease_once(&user, false);
	for (size_t i = 0; i < forks; i++) {
		struct flood part = *flood;
		struct start start = {&part, target, admin ? 0 : GM_STRANGER - (uid_t)(i % users)};
		if (part.connections == MOST_CONNECTIONS) /* in all */
			part.connections /= users;
		gm_worker_start(&workers[i], flooder, &start);
	}
	for (size_t i = 0; i < forks; i++)
		gm_hear_word(workers[i].channel, 'b');
	for (uint64_t end = gm_monotonic_ns() + ROUND_NS;
		n < MOST_SAMPLES && gm_monotonic_ns() < end;) {
		uint64_t waited = waited_ns(daemon->pid) + waited_ns(getpid());
		samples[n] = lease_once(&user, flood->miss);
		waited = waited_ns(daemon->pid) + waited_ns(getpid()) - waited;
		/* Both may have waited at the same time. */
		served[n] = samples[n] - (double)waited / 1000;
		if (served[n] < 0)
			served[n] = 0;
		n++;
		usleep(WAIT_US);
	}
	for (size_t i = 0; i < forks; i++) {
		/* A flood that has ended was none. */
		GM_REQUIRE(waitpid(workers[i].pid, NULL, WNOHANG) == 0);
		gm_worker_kill(&workers[i]);
	}
	gm_raw_goodbye(&user);
	gm_raw_close(&user);
	return (struct latency){{gm_percentile(samples, n, 50), gm_percentile(samples, n, 99),
		gm_percentile(served, n, 50), gm_percentile(served, n, 99),
		gm_percentile(samples, n, 100)}};
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	GM_REQUIRE(sched_setaffinity(0, sizeof(set), &set) == 0);
}

static void compare(const struct gm_daemon *daemon, const struct gm_daemon *other,
	const struct flood *flood, size_t users)
{
	double figures[2][FIGURES][ROUNDS];
	char title[128];

	for (size_t r = 0; r < ROUNDS; r++) {
		for (size_t control = 0; control < 2; control++) {
			struct latency l = measure(daemon, control ? other : daemon, flood, users);
			for (size_t i = 0; i < FIGURES; i++)
				figures[control][i][r] = l.figure[i];
		}
	}
	snprintf(title, sizeof(title), "%s%s", flood->name, users > 1 ? ", four users" : "");
	gm_print_title(title);
	for (size_t i = 0; i < FIGURES; i++)
		gm_print_ratio(figure_names[i], gm_median(figures[0][i], ROUNDS),
			gm_median(figures[1][i], ROUNDS), "us",
			i == MAX    ? -1
			: users > 1 ? GOAL_FOUR
				    : GOAL_ONE);
}

static void compare_with(const struct gm_daemon *daemon, const struct gm_daemon *other,
	const struct flood *flood, const char *wanted)
{
	bool admin = flood->kind && flood->kind->how == GM_FLOOD_ADMIN;

	if (wanted && !strstr(flood->name, wanted))
		return;
	compare(daemon, other, flood, 1);
	if (flood->forks && !admin) /* all administrators are root here: one user */
		compare(daemon, other, flood, FOUR);
}

static struct flood flood_of(const struct gm_flood_kind *kind)
{
	bool list = kind->how == GM_FLOOD_LIST;

	return (struct flood){
		.name = gm_flood_name(kind),
		.connections = list ? 250 : 16,
		.requests = 8,
		.run = ask,
		.kind = kind,
		/* A trim empties the pool. */
		.miss = kind->body == GM__WIRE__PACKET__BODY_TRIM,
		.forks = 1,
	};
}

int main(int argc, char **argv)
{
	/* The pool keeps few chunks of a size per user, so most of a flood of leases misses it. */
	const char *cores = getenv("GPUMEM_BENCH_CORES");
	const char *const on_cores[] = {"taskset", "-c", cores ? cores : "0", NULL};
	const struct gm_daemon_options options = {
		.config = GM_DAEMON_CONFIG_WITH(
			"max_pooled_per_bucket = 4\n", "32G") "[limit uid:64999]\nmax = 4G\n"
							      "[limit uid:64998]\nmax = 4G\n"
							      "[limit uid:64997]\nmax = 4G\n"
							      "[limit uid:64996]\nmax = 4G\n",
		.runner = on_cores};
	const char *wanted = argc > 1 ? argv[1] : NULL, *missing = gm_flood_missing();
	struct gm_daemon daemon, other;
	struct rlimit limit;

	if (missing) {
		fprintf(stderr, "fairness: gm_flood_kinds has no %s\n", missing);
		return 1;
	}
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
	puts("A lease while other users flood the daemon; peer: the same flood at another daemon");
	for (size_t i = 0; i < sizeof(floods) / sizeof(*floods); i++)
		compare_with(&daemon, &other, &floods[i], wanted);
	for (const struct gm_flood_kind *kind = gm_flood_kinds; kind->body; kind++) {
		struct flood flood = flood_of(kind);
		if (kind->how != GM_FLOOD_OWN)
			compare_with(&daemon, &other, &flood, wanted);
	}
	gm_daemon_stop(&daemon);
	gm_daemon_stop(&other);
	return 0;
}
