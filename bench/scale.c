/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Measures whether a request costs more when the daemon has much to manage: 10,000 leases against
 * 1, and 1,000 clients against 1. Counts the daemon's CPU time per lease and return, so that
 * neither the sockets nor the client count. Runs alternate.
 */

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "bench/measure.h"
#include "tests/integration/raw.h"

#define LEASES  10000
#define CLIENTS 1000
#define ROUNDS  7
#define CALLS   4000

static const char config[] = "[gpumemd]\nfraction = 1.0\nmin_free = 0\nreserve = 0\n"
			     "[device 0]\nsize = 32G\n[device 1]\nsize = 32G\n";

static void start(struct gm_daemon *daemon, struct gm_raw *raw)
{
	gm_daemon_start(daemon, &(struct gm_daemon_options){.config = config});
	gm_raw_join(raw, daemon);
}

static void stop(struct gm_daemon *daemon, struct gm_raw *raw)
{
	gm_raw_goodbye(raw);
	gm_raw_close(raw);
	gm_daemon_stop(daemon);
}

/* The daemon's CPU time per lease and return, in microseconds. */
static double cost(const struct gm_daemon *daemon, struct gm_raw *raw)
{
	uint64_t before = gm_daemon_cpu_ns(daemon);
	for (size_t i = 0; i < CALLS; i++) {
		struct gm_raw_lease lease;
		GM_REQUIRE_EQ(gm_raw_lease(raw, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
		GM_REQUIRE_EQ(gm_raw_give_back(raw, &lease), GPUMEM_OK);
	}
	return (double)(gm_daemon_cpu_ns(daemon) - before) / 1000.0 / CALLS;
}

static void compare(const char *what, struct gm_daemon *few, struct gm_raw *few_raw,
	struct gm_daemon *many, struct gm_raw *many_raw)
{
	double a[ROUNDS], b[ROUNDS];
	cost(few, few_raw);
	cost(many, many_raw);
	for (size_t r = 0; r < ROUNDS; r++) {
		a[r] = cost(few, few_raw);
		b[r] = cost(many, many_raw);
	}
	gm_print_ratio(what, gm_median(b, ROUNDS), gm_median(a, ROUNDS), "us", 1.0);
}

int main(void)
{
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	struct gm_daemon few, many;
	struct gm_raw few_raw, many_raw;
	start(&few, &few_raw);
	gm_print_title(
		"CPU time of the daemon per lease and return, with much against little to look after");

	start(&many, &many_raw);
	for (size_t i = 0; i < LEASES; i++) {
		struct gm_raw_lease lease;
		GM_REQUIRE_EQ(gm_raw_lease(&many_raw, i & 1, GM_CHUNK_MIN, &lease), GPUMEM_OK);
		gm_raw_lease_clear(&lease);
	}
	compare("one client with 10,000 leases, against 1", &few, &few_raw, &many, &many_raw);
	stop(&many, &many_raw);

	start(&many, &many_raw);
	struct gm_raw *raws = calloc(CLIENTS, sizeof(*raws));
	GM_REQUIRE(raws);
	for (size_t i = 1; i < CLIENTS; i++) {
		struct gm_raw_lease lease;
		gm_raw_join(&raws[i], &many);
		GM_REQUIRE_EQ(gm_raw_lease(&raws[i], 1, GM_CHUNK_MIN, &lease), GPUMEM_OK);
		gm_raw_lease_clear(&lease);
	}
	compare("1,000 clients, against 1", &few, &few_raw, &many, &many_raw);
	for (size_t i = 1; i < CLIENTS; i++)
		gm_raw_close(&raws[i]);
	free(raws);
	stop(&many, &many_raw);
	stop(&few, &few_raw);
	return 0;
}
