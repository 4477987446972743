/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Answers the same question as bench/scale, but free of noise: how many instructions does the
 * daemon execute for a lease and its return? Compares 10,000 leases with one, 1,000 clients with
 * one, and a client under three limits with a client under none.
 *
 * Valgrind (callgrind) counts the instructions. Two runs that differ only in the number of requests
 * give the cost of one. The time in the kernel, which is most of a request on the host, is not
 * included.
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bench/measure.h"
#include "tests/integration/raw.h"

#define LEASES  10000
#define CLIENTS 1000
#define CALLS   1000

static const char config[] = "[gpumemd]\nfraction = 1.0\nmin_free = 0\nreserve = 0\n"
			     "[device 0]\nsize = 32G\n[device 1]\nsize = 32G\n";
/* The clients are called "raw". */
static const char limits[] = "[limit uid:%u]\nmax = 16G\nguarantee = 1G\npriority = 3\n"
			     "[limit gid:%u]\nmax = 16G\n[limit client:raw]\nmax = 16G\n"
			     "[limit uid:64999]\nguarantee = 1G\n";
/* Counts from reading a packet to sending its answer. How often the loop runs is chance. */
static const char *const valgrind[] = {"valgrind", "--tool=callgrind",
	"--callgrind-out-file=/dev/null", "--toggle-collect=gm_dispatch_packet", NULL};

/* All instructions of a daemon that serves the given number of leases and returns. */
static double count(size_t leases, size_t clients, size_t calls, bool limited)
{
	struct gm_daemon daemon;
	char text[1024];
	int n = snprintf(text, sizeof(text), "%s", config);
	if (limited)
		snprintf(text + n, sizeof(text) - (size_t)n, limits, getuid(), getgid());
	gm_daemon_start(&daemon, &(struct gm_daemon_options){.config = text, .runner = valgrind});
	struct gm_raw *raws = calloc(clients, sizeof(*raws));
	GM_REQUIRE(raws);
	struct gm_raw_lease lease;
	for (size_t i = 0; i < clients; i++)
		gm_raw_join(&raws[i], &daemon);
	for (size_t i = 0; i < leases; i++) {
		GM_REQUIRE_EQ(
			gm_raw_lease(&raws[i % clients], i & 1, GM_CHUNK_MIN, &lease), GPUMEM_OK);
		gm_raw_lease_clear(&lease);
	}
	for (size_t i = 0; i < calls; i++) {
		GM_REQUIRE_EQ(gm_raw_lease(&raws[0], 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
		GM_REQUIRE_EQ(gm_raw_give_back(&raws[0], &lease), GPUMEM_OK);
	}
	gm_daemon_signal(&daemon, SIGTERM);
	GM_REQUIRE_EQ(gm_daemon_wait(&daemon), 0);
	char *log = gm_daemon_log(&daemon);
	const char *at = strstr(log, "Collected :");
	GM_REQUIRE(at);
	double instructions = strtod(at + strlen("Collected :"), NULL);
	free(log);
	for (size_t i = 0; i < clients; i++)
		gm_raw_close(&raws[i]);
	free(raws);
	gm_daemon_stop(&daemon);
	return instructions;
}

static double per_call(size_t leases, size_t clients, bool limited)
{
	return (count(leases, clients, 2 * CALLS, limited) -
		       count(leases, clients, CALLS, limited)) /
	       CALLS;
}

int main(void)
{
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	gm_print_title(
		"Instructions of the daemon per lease and return, with much against little to "
		"look after");
	if (system("valgrind --version >/dev/null 2>&1") != 0) {
		printf("  not measured: valgrind is not installed\n");
		return 0;
	}
	double few = per_call(1, 1, false);
	gm_print_ratio("one client with 10,000 leases, against 1", per_call(LEASES, 1, false), few,
		"", 1.0);
	gm_print_ratio("1,000 clients, against 1", per_call(CLIENTS, CLIENTS, false), few, "", 1.0);
	gm_print_ratio(
		"a client under three limits, against none", per_call(1, 1, true), few, "", 1.0);
	return 0;
}
