/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Regions on GPUs: what a pause waits for, content that goes to pinned host memory and comes back under
 * the same addresses, and allocations that are ordered by streams. See broker.h.
 */

#include <pthread.h>
#include <stdatomic.h>

#include "gpumem/gpumem_region.h"
#include "tests/gpu/broker.h"

/* The region and its content fit a fake device. */
#define KEEPING \
	"[gpumemd]\nfraction = 0.9\nmin_free = 16M\nreserve = 0\nmax_pool = 100%\nhost_limit = 256M\n"
#define MAX (192 * MIB)

static uint64_t leased(void)
{
	return gm_figures_now(&daemon_).leased;
}

static gpumem_region *region_of(const char *tag)
{
	gpumem_region *region;
	OK(gpumem_region_create(session, 0, tag, MAX, NULL, &region));
	return region;
}

static uint8_t *take(gpumem_region *region, uint64_t bytes, gm_cu_stream stream)
{
	void *ptr;
	OK(gpumem_region_alloc(region, bytes, stream, NULL, &ptr));
	return ptr;
}

static void run(const char *config, gm_worker_fn fn)
{
	start_with(config);
	one_worker(fn, NULL);
	tear_down();
}

/* ---- content */

static void keeper_of_content(int channel, void *argument)
{
	join("keeps");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gpumem_region *region = region_of("weights");
	uint8_t *a = take(region, 60 * MIB, stream), *b = take(region, 100 * MIB, stream);
	fill(a, 60 * MIB, 1, stream);
	fill(b, 100 * MIB, 2, stream);
	for (int i = 0; i < 3; i++) {
		/* It waits for what the stream has not done yet. */
		OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));
		GM_REQUIRE_EQ(leased(), 0);
		OK(gpumem_region_resume(session, "weights", 0));
		GM_REQUIRE(all(a, 60 * MIB, 1, stream));
		GM_REQUIRE(all(b, 100 * MIB, 2, stream));
	}
	/* One call of the driver reaches over both. */
	fill(a, (uint64_t)(b + 100 * MIB - a), 3, stream);
	GM_REQUIRE(all(b, 100 * MIB, 3, stream));
	gpumem_region_destroy(region);
	GM_UNTIL(leased() == 0);
	gpumem_disconnect(session);
}

START_TEST(content_comes_back_from_pinned_memory)
{
	run(KEEPING, keeper_of_content);
}
END_TEST

START_TEST(content_comes_back_from_registered_memory)
{
	run(KEEPING "host_memory = memfd\n", keeper_of_content);
}
END_TEST

static void *pause_again(void *ret_status)
{
	*(gpumem_status *)ret_status = gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP);
	return NULL;
}

/* The content's registered memory goes back when all GPUs are done that could use it. It is not there twice. */
static void keeper_beside_work(int channel, void *argument)
{
	gpumem_status status = GPUMEM_E_SYSTEM;
	char why[GM_CUDA_WHY_BYTES];
	gm_cu_ctx first;
	pthread_t thread;

	(void)channel;
	(void)argument;
	join("keeps");
	use_gpu();
	CU(cuda->cuCtxGetCurrent(&first));
	GM_REQUIRE(try_gpu(1, why));
	gm_cu_stream other = stream_new();
	CU(cuda->cuCtxSetCurrent(first));
	gm_cu_stream stream = stream_new();
	gpumem_region *region = region_of("weights");
	uint8_t *a = take(region, 160 * MIB, stream);
	fill(a, 160 * MIB, 1, stream);
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));
	keep_busy(other);
	OK(gpumem_region_resume(session, "weights", 0));

	/* It does not wait for ever. */
	REFUSED(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP), GPUMEM_E_NO_MEMORY,
		"");
	uint64_t refusals = gm_figures_now(&daemon_).refusals;
	GM_REQUIRE_EQ(pthread_create(&thread, NULL, pause_again, &status), 0);
	GM_UNTIL(gm_figures_now(&daemon_).refusals > refusals);
	open_gate();
	GM_REQUIRE_EQ(pthread_join(thread, NULL), 0);
	GM_REQUIRE_EQ(status, GPUMEM_OK);
	OK(gpumem_region_resume(session, "weights", 0));
	GM_REQUIRE(all(a, 160 * MIB, 1, stream));
	gpumem_region_destroy(region);
	gpumem_disconnect(session);
}

START_TEST(a_pause_waits_for_another_gpu_if_host_memory_is_short)
{
	run(KEEPING "host_memory = memfd\n", keeper_beside_work);
}
END_TEST

static void dropper(int channel, void *argument)
{
	join("drops");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gpumem_region *region = region_of("kv");
	uint8_t *a = take(region, MAX, stream);
	for (int i = 0; i < 5; i++) {
		fill(a, MAX, (unsigned char)i, stream);
		OK(gpumem_region_pause(session, "kv", GPUMEM_REGION_DROP));
		GM_REQUIRE_EQ(leased(), 0);
		GM_REQUIRE_EQ(gm_figures_now(&daemon_).pooled, MAX);
		OK(gpumem_region_resume(session, "kv", 0));
		GM_REQUIRE_EQ(gm_figures_now(&daemon_).pooled, 0);
	}
	fill(a, MAX, 9, stream);
	GM_REQUIRE(all(a, MAX, 9, stream));
	gpumem_disconnect(session);
}

START_TEST(a_resume_takes_the_same_chunks_out_of_the_pool)
{
	run(KEEPING, dropper);
}
END_TEST

/* ---- work that is under way */

static _Atomic bool paused;

static void *pause_there(void *unused)
{
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));
	atomic_store(&paused, true);
	return NULL;
}

static void pauser_at_work(int channel, void *argument)
{
	pthread_t thread;
	join("at work");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gpumem_region *region = region_of("weights");
	uint8_t *a = take(region, 32 * MIB, stream), *b = take(region, 32 * MIB, stream);
	fill(b, 32 * MIB, 5, stream);
	CU(cuda->cuStreamSynchronize(stream));
	keep_busy(stream);
	fill(a, 32 * MIB, 1, stream);
	/* Freed, but the stream may still use it. */
	OK(gpumem_region_free(region, b, stream));
	GM_REQUIRE_EQ(pthread_create(&thread, NULL, pause_there, NULL), 0);
	gpumem_region_stats_t stats = GPUMEM_REGION_STATS_INIT;
	do {
		OK(gpumem_region_stats(session, "weights", &stats));
	} while (stats.state != GPUMEM_REGION_PAUSING);
	GM_REQUIRE(!atomic_load(&paused));
	GM_REQUIRE(leased() > 0);
	open_gate();
	GM_REQUIRE_EQ(pthread_join(thread, NULL), 0);
	OK(gpumem_region_resume(session, "weights", 0));
	GM_REQUIRE(all(a, 32 * MIB, 1, stream));
	gpumem_disconnect(session);
}

START_TEST(a_pause_waits_for_the_gpus_work)
{
	run(KEEPING, pauser_at_work);
}
END_TEST

/* The daemon restarts while a thread is in gpumem_region_pause(), and again while the region is paused. */
static void pauser_in_restarts(int channel, void *argument)
{
	pthread_t thread;
	join("at work");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gpumem_region *region = region_of("weights");
	uint8_t *a = take(region, 32 * MIB, stream);
	keep_busy(stream);
	fill(a, 32 * MIB, 1, stream);
	GM_REQUIRE_EQ(pthread_create(&thread, NULL, pause_there, NULL), 0);
	gpumem_region_stats_t stats = GPUMEM_REGION_STATS_INIT;
	do {
		OK(gpumem_region_stats(session, "weights", &stats));
	} while (stats.state != GPUMEM_REGION_PAUSING);
	gm_text_say_word(channel, 'r');
	gm_hear_word(channel, 'd');
	open_gate();
	GM_REQUIRE_EQ(pthread_join(thread, NULL), 0);
	GM_UNTIL(leased() == 0);
	gm_text_say_word(channel, 'r');
	gm_hear_word(channel, 'd');
	OK(gpumem_region_resume(session, "weights", 0));
	GM_REQUIRE(all(a, 32 * MIB, 1, stream));
	gpumem_disconnect(session);
}

START_TEST(a_restart_of_the_daemon_during_a_pause_loses_nothing)
{
	start_with(KEEPING);
	run_in_restarts(pauser_in_restarts);
	tear_down();
}
END_TEST

static void orderer(int channel, void *argument)
{
	join("ordered");
	use_gpu();
	gm_cu_stream one = stream_new(), other = stream_new();
	gpumem_region *region = region_of("kv");
	uint8_t *a = take(region, MAX, one);
	keep_busy(one);
	fill(a, MAX, 1, one);
	OK(gpumem_region_free(region, a, one));
	/* The same stream may have it at once; the other one waits for the work, on the GPU. */
	uint8_t *b = take(region, MAX, one);
	GM_REQUIRE(a == b);
	fill(b, MAX, 2, one);
	OK(gpumem_region_free(region, b, one));
	uint8_t *c = take(region, MAX, other);
	GM_REQUIRE(a == c);
	fill(c, MAX, 3, other);
	open_gate();
	GM_REQUIRE(all(c, MAX, 3, other));
	CU(cuda->cuStreamSynchronize(one));
	GM_REQUIRE(all(c, MAX, 3, other));
	gpumem_disconnect(session);
}

START_TEST(memory_of_a_region_is_ordered_by_streams)
{
	run(KEEPING, orderer);
}
END_TEST

static void capturer(int channel, void *argument)
{
	void *ptr;
	join("capturing");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gpumem_region *region = region_of("weights");
	uint8_t *a = take(region, 16 * MIB, NULL);
	begin_capture(stream);
	REFUSED(gpumem_region_alloc(region, MIB, stream, NULL, &ptr), GPUMEM_E_BUSY, "captured");
	REFUSED(gpumem_region_free(region, a, stream), GPUMEM_E_BUSY, "captured");
	fill(a, 16 * MIB, 7, stream);
	REFUSED(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP), GPUMEM_E_BUSY,
		"captured");
	void *graph = end_capture(stream);
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP));
	OK(gpumem_region_resume(session, "weights", 0));
	/* The graph has the addresses, which are the same. */
	gm_cu_result (*launch)(void *, gm_cu_stream) =
		(gm_cu_result(*)(void *, gm_cu_stream))driver_symbol("cuGraphLaunch");
	if (graph && launch) {
		CU(launch(graph, stream));
		GM_REQUIRE(all(a, 16 * MIB, 7, stream));
	}
	gpumem_disconnect(session);
}

START_TEST(a_region_cannot_be_paused_while_a_stream_is_captured)
{
	run(KEEPING, capturer);
}
END_TEST

/* ---- two programs */

static void taker_of_turns(int channel, void *argument)
{
	const unsigned char mine = (unsigned char)(uintptr_t)argument;
	gpumem_region_options options = GPUMEM_REGION_OPTIONS_INIT;
	gpumem_region *region;
	join("takes turns");
	use_gpu();
	gm_cu_stream stream = stream_new();
	options.initial = 96 * MIB;
	options.wait_ms = GPUMEM_WAIT_FOREVER;
	OK(gpumem_region_create(session, 0, "work", 96 * MIB, &options, &region));
	uint8_t *a = take(region, 96 * MIB, stream);
	for (int i = 0; i < 6; i++) {
		fill(a, 96 * MIB, (unsigned char)(mine + i), stream);
		OK(gpumem_region_pause(session, "work", GPUMEM_REGION_KEEP));
		OK(gpumem_region_resume(session, "work", GPUMEM_WAIT_FOREVER));
		GM_REQUIRE(all(a, 96 * MIB, (unsigned char)(mine + i), stream));
	}
	gpumem_disconnect(session);
}

START_TEST(two_programs_take_turns)
{
	struct gm_worker a, b;
	/* Together they would pass the limit. */
	char config[256];
	snprintf(config, sizeof(config), "%s[device 0 limit uid:%u]\nmax = 160M\n", KEEPING,
		(unsigned)getuid());
	start_with(config);
	gm_worker_start(&a, taker_of_turns, (void *)(uintptr_t)10);
	gm_worker_start(&b, taker_of_turns, (void *)(uintptr_t)80);
	gm_worker_join(&a);
	gm_worker_join(&b);
	tear_down();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("region");
	TCase *tc = tcase_create("region");
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, content_comes_back_from_pinned_memory);
	tcase_add_test(tc, content_comes_back_from_registered_memory);
	/* There are two of these. */
	if (getenv("GPUMEM_FAKE_DIR"))
		tcase_add_test(tc, a_pause_waits_for_another_gpu_if_host_memory_is_short);
	tcase_add_test(tc, a_resume_takes_the_same_chunks_out_of_the_pool);
	tcase_add_test(tc, a_pause_waits_for_the_gpus_work);
	tcase_add_test(tc, a_restart_of_the_daemon_during_a_pause_loses_nothing);
	tcase_add_test(tc, memory_of_a_region_is_ordered_by_streams);
	tcase_add_test(tc, a_region_cannot_be_paused_while_a_stream_is_captured);
	tcase_add_test(tc, two_programs_take_turns);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
