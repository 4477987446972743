/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

/*
 * gpumem_alloc and gpumem_free of a warm size in one thread, in nanoseconds for the pair, beside
 * malloc and free of the same size. Small groups of pairs are timed, and the median group counts:
 * reading the clock costs as much as a pair.
 */

#include <stdio.h>
#include <stdlib.h>

#include "bench/measure.h"
#include "gpumem/gpumem.h"
#include "tests/integration/harness.h"

#define GROUP  64
#define GROUPS 4000
#define ROUNDS 7

static gpumem_session *session;

static void ours(size_t size)
{
	void *p;
	if (gpumem_alloc(session, 0, size, NULL, NULL, &p) != GPUMEM_OK)
		GM_FAIL("%s", gpumem_error_detail());
	gpumem_free(session, p, NULL);
}

static void theirs(size_t size)
{
	/* volatile: the compiler must not take the pair out. */
	void *volatile p = malloc(size);
	if (!p)
		GM_FAIL("malloc");
	free(p);
}

static double p50_ns(void (*pair)(size_t size), size_t size)
{
	static double samples[GROUPS];
	for (size_t i = 0; i < GROUPS; i++) {
		uint64_t start = gm_monotonic_ns();
		for (size_t k = 0; k < GROUP; k++)
			pair(size);
		samples[i] = (double)(gm_monotonic_ns() - start) / GROUP;
	}
	return gm_percentile(samples, GROUPS, 50);
}

static void measure(const char *config, const size_t *sizes, const char *const *names, size_t n)
{
	struct gm_daemon daemon;
	gm_daemon_start(&daemon, &(struct gm_daemon_options){.config = config});
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	options.socket = daemon.socket;
	options.name = "bench";
	if (gpumem_connect(&options, &session) != GPUMEM_OK)
		GM_FAIL("%s", gpumem_error_detail());
	for (size_t s = 0; s < n; s++) {
		double a[ROUNDS], b[ROUNDS];
		p50_ns(ours, sizes[s]);
		for (size_t r = 0; r < ROUNDS; r++) {
			a[r] = p50_ns(ours, sizes[s]);
			b[r] = p50_ns(theirs, sizes[s]);
		}
		gm_print_ratio(names[s], gm_median(a, ROUNDS), gm_median(b, ROUNDS), "ns", -1);
	}
	gpumem_disconnect(session);
	gm_daemon_stop(&daemon);
}

int main(void)
{
	static const size_t sizes[] = {512, 4096, 65536, 1 << 20, 8 << 20, 64 << 20};
	static const char *const names[] = {"512 B", "4 KiB", "64 KiB", "1 MiB", "8 MiB",
		"64 MiB, listed for gpumemctl buffers"};
	static const char *const unlisted[] = {"64 MiB, track = off"};
	gm_print_title("gpumem_alloc and gpumem_free, warm, one thread, against malloc and free "
		       "(asked: at most 100 ns)");
	measure(GM_DAEMON_CONFIG, sizes, names, 6);
	/* What it costs to list the large ones for gpumemctl buffers. */
	measure(GM_DAEMON_CONFIG_WITH("track = off\n", "1G"), sizes + 5, unlisted, 1);
	return 0;
}
