/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * What 1,000 idle clients cost the daemon: its CPU time over some seconds and its resident memory,
 * compared with the same daemon without clients. Each client has its wakeup and its two
 * pages, and has held memory once.
 */

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bench/measure.h"
#include "tests/integration/raw.h"

#define CLIENTS 1000
#define SECONDS 5

static double cpu_ms_while_idle(const struct gm_daemon *daemon)
{
	uint64_t before = gm_daemon_cpu_ns(daemon);
	sleep(SECONDS);
	return (double)(gm_daemon_cpu_ns(daemon) - before) / 1e6;
}

int main(void)
{
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	struct gm_daemon daemon;
	gm_daemon_start(&daemon, NULL);
	double cpu_none = cpu_ms_while_idle(&daemon);
	double rss_none = (double)gm_daemon_rss(&daemon) / (1 << 20);
	struct gm_raw *raws = calloc(CLIENTS, sizeof(*raws));
	GM_REQUIRE(raws);
	for (size_t i = 0; i < CLIENTS; i++) {
		struct gm_raw_lease lease;
		gm_raw_join(&raws[i], &daemon);
		GM_REQUIRE_EQ(gm_raw_lease(&raws[i], 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
		GM_REQUIRE_EQ(gm_raw_give_back(&raws[i], &lease), GPUMEM_OK);
	}
	double cpu_all = cpu_ms_while_idle(&daemon);
	double rss_all = (double)gm_daemon_rss(&daemon) / (1 << 20);
	gm_print_title("1,000 connected idle clients, against none");
	printf("  %-44s %10.2f ms   peer %10.2f ms   (asked: not measurable)\n", "CPU time in 5 s",
		cpu_all, cpu_none);
	gm_print_ratio("resident memory of the daemon", rss_all, rss_none, "MiB", -1);
	printf("  %-44s %10.2f MiB  (asked: under 32)\n", "resident memory of the daemon", rss_all);
	for (size_t i = 0; i < CLIENTS; i++)
		gm_raw_close(&raws[i]);
	free(raws);
	gm_daemon_stop(&daemon);
	return 0;
}
