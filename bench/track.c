/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * What tracking costs: the host memory of a tracked allocation, a warm pair of gpumem_alloc() and
 * gpumem_free() without and with tracking, and the CPU time of a look for leaks, in the program and by
 * the daemon for gpumemctl. bench/alloc counts the instructions of a pair.
 */

#include <malloc.h>
#include <stdio.h>
#include <time.h>

#include "bench/measure.h"
#include "common/wire/page.h"
#include "gpumem/gpumem.h"
#include "tests/integration/raw.h"

#define ROUNDS 9
#define PAIRS  2000
#define N      10000
#define MOST   256

static struct gm_daemon daemon_;

static void require(gpumem_status status)
{
	if (status)
		GM_FAIL("%s", gpumem_error_detail());
}

static gpumem_session *join(gpumem_track how)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	gpumem_session *session = NULL;
	options.socket = daemon_.socket;
	options.name = "bench";
	options.track = how;
	require(gpumem_connect(&options, &session));
	return session;
}

static uint64_t cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ---- time of a pair */

static double pair_ns(gpumem_session *session, size_t size)
{
	uint64_t start = gm_monotonic_ns();
	for (int i = 0; i < PAIRS; i++) {
		void *p;
		require(gpumem_alloc(session, 0, size, NULL, NULL, &p));
		require(gpumem_free(session, p, NULL));
	}
	return (double)(gm_monotonic_ns() - start) / PAIRS;
}

static void measure_pairs(const char *name, gpumem_track how, size_t size)
{
	double tracked[ROUNDS], plain[ROUNDS];
	gpumem_session *one = join(how), *other = join(GPUMEM_TRACK_AUTO);

	pair_ns(one, size);
	pair_ns(other, size);
	for (int i = 0; i < ROUNDS; i++) {
		tracked[i] = pair_ns(one, size);
		plain[i] = pair_ns(other, size);
	}
	gm_print_ratio(name, gm_median(tracked, ROUNDS), gm_median(plain, ROUNDS), "ns", -1);
	gpumem_disconnect(one);
	gpumem_disconnect(other);
}

/* ---- many allocations */

static void *ptr[N];

/* Host memory for N blocks: of the process, and of the page for those that have a row there. */
static double allocate(gpumem_session *session)
{
	size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
	for (int i = 0; i < N; i++)
		require(gpumem_alloc(session, 0, 40960, NULL, NULL, &ptr[i]));
	size_t after = mallinfo2().uordblks + mallinfo2().hblkhd;
	return (double)(after - before);
}

static void release(gpumem_session *session)
{
	for (int i = 0; i < N; i++)
		require(gpumem_free(session, ptr[i], GPUMEM_STREAM_DONE));
}

static void measure_many(void)
{
	const double page = GM_BOUND_TRACKED_BUFFERS *
			    (double)(sizeof(struct gm_page_row) + sizeof(struct gm_page_note));
	gpumem_session *plain = join(GPUMEM_TRACK_AUTO);
	double untracked = allocate(plain);
	release(plain);
	gpumem_disconnect(plain);

	gpumem_session *session = join(GPUMEM_TRACK_ALL);
	double bytes = (allocate(session) - untracked + page) / N;
	gm_print_title("Host memory of a tracked allocation, without its tag and its call stack");
	printf("  %-45s %9.0f B   (asked: at most %d B)\n", "10,000 allocations, each", bytes,
		MOST);

	double here[ROUNDS], there[ROUNDS];
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t count, start = cpu_ns();
		require(gpumem_leaks(session, 0, NULL, NULL, &count));
		here[i] = (double)(cpu_ns() - start);
		GM_REQUIRE_EQ(count, N);

		struct gm_raw raw;
		Gm__Wire__GetBuffers get = GM__WIRE__GET_BUFFERS__INIT;
		gm_raw_observe(&raw, &daemon_);
		start = gm_daemon_cpu_ns(&daemon_);
		GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(GET_BUFFERS, get_buffers, &get)),
			GPUMEM_OK);
		while (raw.packet->more)
			GM_REQUIRE(gm_raw_receive(&raw));
		there[i] = (double)(gm_daemon_cpu_ns(&daemon_) - start);
		gm_raw_close(&raw);
	}
	gm_print_title(
		"A look for leaks among them; CPU time, and its share at one look every 10 s");
	printf("  %-45s %9.2f ms  %.4f %%  (asked: less than 0.1 %%)\n", "gpumem_leaks()",
		gm_median(here, ROUNDS) / 1e6, gm_median(here, ROUNDS) / 1e8);
	printf("  %-45s %9.2f ms  %.4f %%  (asked: less than 0.1 %%)\n",
		"gpumemctl buffers, in the daemon", gm_median(there, ROUNDS) / 1e6,
		gm_median(there, ROUNDS) / 1e8);
	release(session);
	gpumem_disconnect(session);
}

/* The library's thread lists large blocks once a second while they change. */
static void measure_listing(void)
{
	gpumem_session *session = join(GPUMEM_TRACK_AUTO);
	double samples[ROUNDS];
	gpumem_stats_t stats = GPUMEM_STATS_INIT;

	for (int i = 0; i < N; i++)
		require(gpumem_alloc(session, 0, 40960, NULL, NULL, &ptr[i]));
	for (int i = 0; i < ROUNDS; i++) {
		void *p;
		require(gpumem_alloc(session, 0, 1 << 20, NULL, NULL, &p));
		uint64_t start = cpu_ns();
		require(gpumem_stats(session, 0, &stats));
		samples[i] = (double)(cpu_ns() - start);
		require(gpumem_free(session, p, NULL));
	}
	gm_print_title("The library's own scan, once a second while allocations come and go");
	printf("  %-45s %9.2f ms  %.4f %%  (asked: less than 0.1 %%)\n", "10,000 live allocations",
		gm_median(samples, ROUNDS) / 1e6, gm_median(samples, ROUNDS) / 1e7);
	release(session);
	gpumem_disconnect(session);
}

int main(void)
{
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = GM_DAEMON_CONFIG});
	gm_print_title("gpumem_alloc and gpumem_free, warm, tracked against not tracked");
	measure_pairs("512 B, track all", GPUMEM_TRACK_ALL, 512);
	measure_pairs("1 MiB, track all", GPUMEM_TRACK_ALL, 1 << 20);
	measure_pairs("512 B, track stacks", GPUMEM_TRACK_STACKS, 512);
	measure_pairs("1 MiB, track stacks", GPUMEM_TRACK_STACKS, 1 << 20);
	measure_many();
	measure_listing();
	gm_daemon_stop(&daemon_);
	return 0;
}
