/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * How long a program waits for the refusal of a request that could never be granted (1 TiB from a
 * device of 1 GiB), compared with a buffer that the daemon's pool has. Short rounds alternate, so
 * that a busy machine affects both. The first round of each only warms up.
 */

#include <stdint.h>
#include <stdio.h>

#include "bench/measure.h"
#include "gpumem/gpumem.h"
#include "tests/integration/harness.h"

#define ROUNDS 51
#define CALLS  50
#define TiB    (UINT64_C(1) << 40)
#define MiB    (UINT64_C(1) << 20)

static gpumem_session *session;

static double refusals(uint32_t wait_ms)
{
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	options.wait_ms = wait_ms;
	uint64_t start = gm_monotonic_ns();
	for (int i = 0; i < CALLS; i++) {
		void *ptr;
		GM_REQUIRE_EQ(gpumem_alloc(session, 0, TiB, GPUMEM_STREAM_ANY, &options, &ptr),
			GPUMEM_E_NO_MEMORY);
	}
	return (double)(gm_monotonic_ns() - start) / CALLS / 1000.0;
}

static double hits(void)
{
	gpumem_buffer *buffers[CALLS];
	uint64_t start = gm_monotonic_ns();
	for (int i = 0; i < CALLS; i++)
		GM_REQUIRE_EQ(
			gpumem_buffer_create(session, 0, 2 * MiB, NULL, &buffers[i]), GPUMEM_OK);
	uint64_t end = gm_monotonic_ns();
	for (int i = 0; i < CALLS; i++)
		gpumem_buffer_destroy(buffers[i]);
	GM_REQUIRE_EQ(gpumem_trim(session, NULL), GPUMEM_OK);
	return (double)(end - start) / CALLS / 1000.0;
}

int main(void)
{
	struct gm_daemon daemon;
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	double plain[ROUNDS], waiting[ROUNDS], peer[ROUNDS];

	gm_daemon_start(&daemon, &(struct gm_daemon_options){.config = GM_DAEMON_CONFIG});
	options.socket = daemon.socket;
	if (gpumem_connect(&options, &session) != GPUMEM_OK)
		GM_FAIL("%s", gpumem_error_detail());

	for (int i = -1; i < ROUNDS; i++) {
		double a = refusals(0), b = refusals(GPUMEM_WAIT_FOREVER), c = hits();
		if (i < 0)
			continue;
		plain[i] = a;
		waiting[i] = b;
		peer[i] = c;
	}
	gpumem_disconnect(session);
	gm_daemon_stop(&daemon);

	double hit = gm_median(peer, ROUNDS);
	gm_print_title("Refusal of 1 TiB, against a buffer of 2 MiB from the pool");
	gm_print_ratio("gpumem_alloc", gm_median(plain, ROUNDS), hit, "us", 1.0);
	gm_print_ratio(
		"gpumem_alloc, may wait forever", gm_median(waiting, ROUNDS), hit, "us", 1.0);
	return 0;
}
