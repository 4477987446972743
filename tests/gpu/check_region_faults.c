/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Regions over a driver that fails: whichever call of a pause or a resume it is, the region is as it was
 * before, with its content, and the next try succeeds.
 */

#include <pthread.h>
#include <stdatomic.h>

#include "gpumem/gpumem_region.h"
#include "tests/gpu/broker.h"
#include "tests/gpu/fake_gate.h"

#define KEEPING "[gpumemd]\nfraction = 0.9\nmin_free = 16M\nreserve = 0\nhost_limit = 128M\n"
#define BYTES   (48 * MIB)

static gpumem_region *region;
static uint8_t *memory;

static void begin(gm_cu_stream *ret_stream)
{
	void *ptr;
	join("unlucky");
	use_gpu();
	*ret_stream = stream_new();
	OK(gpumem_region_create(session, 0, "weights", 64 * MIB, NULL, &region));
	OK(gpumem_region_alloc(region, BYTES, *ret_stream, NULL, &ptr));
	memory = ptr;
	fill(memory, BYTES, 1, *ret_stream);
	CU(cuda->cuStreamSynchronize(*ret_stream));
}

static gpumem_region_state state(void)
{
	gpumem_region_stats_t stats = GPUMEM_REGION_STATS_INIT;
	OK(gpumem_region_stats(session, "weights", &stats));
	return stats.state;
}

static void fail_from_now(const char *call)
{
	char text[64];
	snprintf(text, sizeof(text), "%s:0:304", call);
	setenv("GPUMEM_FAKE_FAIL", text, 1);
}

/* The calls of the driver that are part of each. */
static const char *const pausing[] = {"cuMemcpyAsync", "cuMemImportFromShareableHandle", "cuMemMap",
	"cuMemSetAccess", "cuMemAddressReserve", "cuMemUnmap"};
static const char *const resuming[] = {
	"cuMemcpyAsync", "cuMemImportFromShareableHandle", "cuMemMap", "cuMemSetAccess"};

static void pauser(int channel, void *argument)
{
	gm_cu_stream stream;
	begin(&stream);
	uint64_t held = leased_on(0);
	fail_from_now(argument);
	GM_REQUIRE(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP) != GPUMEM_OK);
	unsetenv("GPUMEM_FAKE_FAIL");
	GM_REQUIRE_EQ(state(), GPUMEM_REGION_ACTIVE);
	GM_REQUIRE_EQ(leased_on(0), held);
	GM_REQUIRE(all(memory, BYTES, 1, stream));

	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));
	GM_REQUIRE_EQ(leased_on(0), 0);
	OK(gpumem_region_resume(session, "weights", 0));
	GM_REQUIRE(all(memory, BYTES, 1, stream));
	gpumem_disconnect(session);
}

START_TEST(a_pause_that_fails_leaves_the_region_as_it_was)
{
	start_with(KEEPING);
	one_worker(pauser, (void *)pausing[_i]);
	tear_down();
}
END_TEST

START_TEST(content_whose_host_memory_cannot_be_pinned_stays_on_the_device)
{
	/* The driver pins what it did not make itself when it is registered. */
	start_with(KEEPING "host_memory = memfd\n");
	one_worker(pauser, (void *)"cuMemHostRegister");
	tear_down();
}
END_TEST

static void resumer(int channel, void *argument)
{
	gm_cu_stream stream;
	begin(&stream);
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));
	uint64_t kept = leased_on(1);
	fail_from_now(argument);
	GM_REQUIRE(gpumem_region_resume(session, "weights", 0) != GPUMEM_OK);
	unsetenv("GPUMEM_FAKE_FAIL");
	GM_REQUIRE_EQ(state(), GPUMEM_REGION_PAUSED);
	GM_REQUIRE_EQ(leased_on(0), 0);
	GM_REQUIRE_EQ(leased_on(1), kept);

	OK(gpumem_region_resume(session, "weights", 0));
	GM_REQUIRE(all(memory, BYTES, 1, stream));
	GM_UNTIL(leased_on(1) == 0);
	gpumem_disconnect(session);
}

START_TEST(a_resume_that_fails_keeps_the_content)
{
	start_with(KEEPING);
	one_worker(resumer, (void *)resuming[_i]);
	tear_down();
}
END_TEST

static void grower(int channel, void *argument)
{
	gm_cu_stream stream;
	void *ptr;
	begin(&stream);
	fail_from_now(argument);
	GM_REQUIRE(gpumem_region_create(session, 0, "other", 64 * MIB, NULL, &region) == GPUMEM_OK);
	GM_REQUIRE(gpumem_region_alloc(region, MIB, stream, NULL, &ptr) != GPUMEM_OK);
	GM_REQUIRE(gpumem_region_alloc(region, MIB, stream, NULL, &ptr) != GPUMEM_OK);
	unsetenv("GPUMEM_FAKE_FAIL");
	OK(gpumem_region_alloc(region, MIB, stream, NULL, &ptr));
	fill(ptr, MIB, 2, stream);
	GM_REQUIRE(all(ptr, MIB, 2, stream));
	GM_REQUIRE(all(memory, BYTES, 1, stream));
	gpumem_disconnect(session);
}

START_TEST(a_region_that_cannot_grow_now_grows_later)
{
	start_with(KEEPING);
	one_worker(grower, (void *)resuming[_i + 1]);
	tear_down();
}
END_TEST

static void *grow_there(void *ret_status)
{
	void *ptr;
	*(gpumem_status *)ret_status = gpumem_region_alloc(region, 280 * MIB, NULL, NULL, &ptr);
	return NULL;
}

static void *take_there(void *done)
{
	void *ptr;
	OK(gpumem_region_alloc(region, MIB, NULL, NULL, &ptr));
	atomic_store((atomic_bool *)done, true);
	return NULL;
}

/* A thread gets memory that the driver does not map. While it gives that back, the daemon does not answer,
 * and other threads use what the region has. */
static void giver(int channel, void *argument)
{
	gpumem_connect_options connecting = GPUMEM_CONNECT_OPTIONS_INIT;
	pthread_t growing, taking;
	struct fake_gate gate_;
	gpumem_status status;
	atomic_bool done = false;
	void *ptr;

	fake_gate_prepare();
	connecting.socket = daemon_.socket;
	connecting.timeout_ms = 10 * GM_PATIENCE_MS;
	OK(gpumem_connect(&connecting, &session));
	use_gpu();
	OK(gpumem_region_create(session, 0, "large", 300 * MIB, NULL, &region));
	OK(gpumem_region_alloc(region, MIB, NULL, NULL, &ptr));
	fake_gate_close(&gate_, "cuMemMap");
	GM_REQUIRE_EQ(pthread_create(&growing, NULL, grow_there, &status), 0);
	fake_gate_await(&gate_);
	GM_REQUIRE_EQ(kill(daemon_.pid, SIGSTOP), 0);
	fail_from_now("cuMemMap");
	fake_gate_open(&gate_);

	GM_REQUIRE_EQ(pthread_create(&taking, NULL, take_there, &done), 0);
	GM_UNTIL(atomic_load(&done));
	GM_REQUIRE_EQ(kill(daemon_.pid, SIGCONT), 0);
	GM_REQUIRE_EQ(pthread_join(taking, NULL), 0);
	GM_REQUIRE_EQ(pthread_join(growing, NULL), 0);
	GM_REQUIRE(status != GPUMEM_OK);
	gpumem_disconnect(session);
}

START_TEST(memory_that_cannot_be_mapped_goes_back_without_holding_others_up)
{
	start_with(KEEPING);
	one_worker(giver, NULL);
	tear_down();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("region faults");
	TCase *tc = tcase_create("region faults");
	tcase_set_timeout(tc, 180);
	tcase_add_loop_test(tc, a_pause_that_fails_leaves_the_region_as_it_was, 0,
		sizeof(pausing) / sizeof(*pausing));
	tcase_add_test(tc, content_whose_host_memory_cannot_be_pinned_stays_on_the_device);
	tcase_add_loop_test(
		tc, a_resume_that_fails_keeps_the_content, 0, sizeof(resuming) / sizeof(*resuming));
	tcase_add_loop_test(tc, a_region_that_cannot_grow_now_grows_later, 0,
		sizeof(resuming) / sizeof(*resuming) - 1);
	tcase_add_test(tc, memory_that_cannot_be_mapped_goes_back_without_holding_others_up);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
