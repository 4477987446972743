/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * What a batch of 1,000 entries costs, compared with 1,000 buffers of the same sizes and tags: the
 * CPU time of the daemon and of this process together, kernel included, from the first call until the
 * daemon has everything back. Rounds alternate. The first round of each only warms up and fills the
 * daemon's pool.
 */

#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "bench/measure.h"
#include "gpumem/gpumem.h"
#include "tests/integration/raw.h"

#define ROUNDS 9
#define N      1000
#define KiB    (UINT64_C(1) << 10)
#define MiB    (UINT64_C(1) << 20)

static struct gm_daemon daemon_;
static gpumem_session *session;
static gpumem_batch_entry entries[N];

static uint64_t cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec + gm_daemon_cpu_ns(&daemon_);
}

static void require(gpumem_status status)
{
	if (status)
		GM_FAIL("%s", gpumem_error_detail());
}

static void one_by_one(void)
{
	static gpumem_buffer *buffers[N];
	for (size_t i = 0; i < N; i++) {
		gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
		options.tag = entries[i].tag;
		require(gpumem_buffer_create(session, 0, entries[i].bytes, &options, &buffers[i]));
	}
	for (size_t i = 0; i < N; i++)
		gpumem_buffer_destroy(buffers[i]);
}

static void blocks(void)
{
	static void *ptr[N];
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	options.tag = "a tag";
	for (size_t i = 0; i < N; i++)
		require(gpumem_alloc(session, 0, entries[i].bytes, NULL, &options, &ptr[i]));
	for (size_t i = 0; i < N; i++)
		require(gpumem_free(session, ptr[i], NULL));
}

static void batch_freed_together(void)
{
	gpumem_batch *batch;
	require(gpumem_batch_create(session, 0, entries, N, NULL, &batch));
	gpumem_batch_destroy(batch);
}

static void batch_freed_one_by_one(void)
{
	gpumem_batch *batch;
	require(gpumem_batch_create(session, 0, entries, N, NULL, &batch));
	for (size_t i = 0; i < N; i++)
		require(gpumem_batch_free_entry(batch, i, NULL));
	gpumem_batch_destroy(batch);
}

/* In milliseconds. */
static double cost(void (*work)(void))
{
	uint64_t before = cpu_ns();
	work();
	require(gpumem_trim(session, NULL));
	return (double)(cpu_ns() - before) / 1e6;
}

static void compare(
	const char *what, uint64_t bytes, void (*ours)(void), void (*peer)(void), double asked)
{
	double a[ROUNDS], b[ROUNDS];
	for (size_t i = 0; i < N; i++)
		entries[i] = (gpumem_batch_entry){bytes, 0, "a tag"};
	cost(ours);
	cost(peer);
	for (size_t r = 0; r < ROUNDS; r++) {
		a[r] = cost(ours);
		b[r] = cost(peer);
	}
	gm_print_ratio(what, gm_median(a, ROUNDS), gm_median(b, ROUNDS), "ms", asked);
}

int main(void)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	gm_daemon_start(
		&daemon_, &(struct gm_daemon_options){.config = GM_DAEMON_CONFIG_WITH("", "8G")});
	options.socket = daemon_.socket;
	require(gpumem_connect(&options, &session));

	gm_print_title(
		"A batch of 1,000, made and freed, against 1,000 buffers: CPU time of daemon "
		"and client");
	compare("64 KiB each, freed together", 64 * KiB, batch_freed_together, one_by_one, 0.1);
	compare("64 KiB each, freed one by one", 64 * KiB, batch_freed_one_by_one, one_by_one, 0.1);
	compare("2 MiB each, freed together", 2 * MiB, batch_freed_together, one_by_one, 0.1);
	compare("2 MiB each, freed one by one", 2 * MiB, batch_freed_one_by_one, one_by_one, 0.1);
	gm_print_title("The same against 1,000 blocks of gpumem_alloc, whose heap holds no "
		       "chunks yet");
	compare("64 KiB each, freed together", 64 * KiB, batch_freed_together, blocks, -1);
	compare("2 MiB each, freed together", 2 * MiB, batch_freed_together, blocks, -1);

	gpumem_disconnect(session);
	gm_daemon_stop(&daemon_);
	return 0;
}
