/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* What goes wrong in a client: a GPU that it does not see, handles that do not open, calls that fail. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tests/gpu/faults_fixture.h"
#include "tests/gpu/worker.h"
#include "tests/integration/device.h"
#include "tests/integration/raw.h"
#include "tests/scratch.h"
#include "tests/tap.h"

/* ---- clients that cannot use the GPU */

static void see_only_1(int channel, void *argument)
{
	void *ptr;
	gpumem_buffer *buffer;
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	setenv("CUDA_VISIBLE_DEVICES", "1", 1);
	join("half blind");
	OK(gpumem_device_info(session, 0, &info));
	GM_REQUIRE(strcmp(info.pci, "0000:A0:00.0") == 0);
	GM_REQUIRE(info.uuid[0] == 0xf4 && info.uuid[15] == 0);
	REFUSED(gpumem_alloc(session, 0, MIB, NULL, NULL, &ptr), GPUMEM_E_UNSUPPORTED,
		"does not see the GPU");
	REFUSED(gpumem_buffer_create(session, 0, MIB, NULL, &buffer), GPUMEM_E_UNSUPPORTED,
		"CUDA_VISIBLE_DEVICES");
	OK(gpumem_alloc(session, 1, MIB, NULL, NULL, &ptr));
	gpumem_disconnect(session);
}

static void see_none(int channel, void *argument)
{
	void *ptr;
	setenv("CUDA_VISIBLE_DEVICES", "", 1);
	join("blind");
	REFUSED(gpumem_alloc(session, 0, MIB, NULL, NULL, &ptr), GPUMEM_E_UNSUPPORTED,
		"CUDA_ERROR_NO_DEVICE");
	/* Others that hold memory can still be looked at. */
	double pressure;
	OK(gpumem_pressure(session, 0, &pressure, NULL));
	gpumem_disconnect(session);
}

static const char no_driver[] = "--no-driver";

static int without_a_driver(const char *path)
{
	void *ptr;
	snprintf(daemon_.socket, sizeof(daemon_.socket), "%s", path);
	join("no driver");
	REFUSED(gpumem_alloc(session, 0, MIB, NULL, NULL, &ptr), GPUMEM_E_UNSUPPORTED,
		"libcuda.so.1 cannot be loaded");
	gpumem_disconnect(session);
	return 0;
}

/* A program without LD_LIBRARY_PATH to the fake driver: this one, anew. */
static void have_no_driver(int channel, void *argument)
{
	char path[4096];
	snprintf(path, sizeof(path), "%s/client/.libs", getenv("top_builddir"));
	setenv("LD_LIBRARY_PATH", path, 1);
	execl("/proc/self/exe", "check_faults", no_driver, daemon_.socket, NULL);
	GM_FAIL("exec failed");
}

START_TEST(a_client_without_the_gpu_connects_and_is_told_why_it_gets_no_memory)
{
	static const gm_worker_fn kinds[] = {see_only_1, see_none, have_no_driver};
	struct gm_worker worker;
	start(NULL);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		gm_worker_start(&worker, kinds[i], NULL);
		gm_worker_join(&worker);
		GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
		/* Nobody asked the daemon for what cannot be mapped. */
		GM_REQUIRE_EQ(gm_figures_now(&daemon_).chunks, 0);
	}
	stop();
}
END_TEST

/* ---- handles that do not open */

static const struct {
	const char *call;
	unsigned which; /* for a buffer; an allocation tries other chunks, so there all fail */
	int result;
	const char *says;
} unopened[] = {
	{"cuMemImportFromShareableHandle", 1, 304, "CUDA_ERROR_OPERATING_SYSTEM"},
	{"cuMemImportFromShareableHandle", 2, 999, "CUDA_ERROR_UNKNOWN"},
	{"cuMemMap", 1, 999, "CUDA_ERROR_UNKNOWN"},
	{"cuMemMap", 3, 205, "CUDA_ERROR_MAP_FAILED"},
	{"cuMemSetAccess", 1, 801, "CUDA_ERROR_NOT_SUPPORTED"},
	{"cuMemMap", 2, 2, "CUDA_ERROR_OUT_OF_MEMORY"},
	{"cuMemSetAccess", 1, 2, "CUDA_ERROR_OUT_OF_MEMORY"},
	{"cuDevicePrimaryCtxRetain", 1, 2, "CUDA_ERROR_OUT_OF_MEMORY"},
};
#define UNOPENED ((int)(sizeof(unopened) / sizeof(*unopened)))

static void cannot_open(int channel, void *argument)
{
	const int *which = argument;
	void *ptr;
	gpumem_buffer *buffer;
	gpumem_status status;
	bool with_buffer = *which % 2;
	char plan[96];
	snprintf(plan, sizeof(plan), "%s:%u:%d", unopened[*which / 2].call,
		with_buffer ? unopened[*which / 2].which : 0, unopened[*which / 2].result);
	setenv("GPUMEM_FAKE_FAIL", plan, 1);
	join("unlucky");
	if (with_buffer)
		status = gpumem_buffer_create(session, 0, FOUR_CHUNKS, NULL, &buffer);
	else
		status = gpumem_alloc(session, 0, FOUR_CHUNKS, NULL, NULL, &ptr);
	GM_REQUIRE(status != GPUMEM_OK);
	if (!strstr(gpumem_error_detail(), unopened[*which / 2].says))
		GM_FAIL("%s", gpumem_error_detail());
	/* Whose memory it is that is short. */
	if (unopened[*which / 2].result == GM_CUDA_ERROR_OUT_OF_MEMORY) {
		GM_REQUIRE_EQ(status, GPUMEM_E_NO_MEMORY);
		GM_REQUIRE(!strstr(gpumem_error_detail(), "host memory"));
	}
	gm_text_say_word(channel, 'f');
	gm_hear_word(channel, 'g');
	/* And it goes on as if nothing had been. */
	unsetenv("GPUMEM_FAKE_FAIL");
	OK(gpumem_alloc(session, 0, FOUR_CHUNKS, NULL, NULL, &ptr));
	gm_device_set(ptr, FOUR_CHUNKS, 7);
	GM_REQUIRE(gm_device_is(ptr, FOUR_CHUNKS, 7));
	OK(gpumem_free(session, ptr, GPUMEM_STREAM_DONE));
	gpumem_disconnect(session);
}

START_TEST(memory_that_cannot_be_mapped_goes_back_and_the_drivers_word_for_it_is_told)
{
	struct gm_worker worker;
	start(NULL);
	gm_worker_start(&worker, cannot_open, &_i);
	gm_hear_word(worker.channel, 'f');
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	GM_REQUIRE(ledger_is_true(0));
	gm_text_say_word(worker.channel, 'g');
	gm_worker_join(&worker);
	stop();
}
END_TEST

/* ---- growing that fails halfway */

/* The calls for the first chunk, which the buffer begins with, come before. */
static const struct {
	const char *plan;
	gpumem_status status;
	const char *says;
} ungrown[] = {
	{"cuMemImportFromShareableHandle:2:304", GPUMEM_E_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM"},
	{"cuMemImportFromShareableHandle:5:999", GPUMEM_E_SYSTEM, "CUDA_ERROR_UNKNOWN"},
	{"cuMemMap:3:205", GPUMEM_E_SYSTEM, "CUDA_ERROR_MAP_FAILED"},
	{"cuMemMap:4:2", GPUMEM_E_NO_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
	{"cuMemSetAccess:2:801", GPUMEM_E_SYSTEM, "CUDA_ERROR_NOT_SUPPORTED"},
	{"cuMemSetAccess:2:2", GPUMEM_E_NO_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
};
#define UNGROWN ((int)(sizeof(ungrown) / sizeof(*ungrown)))

static void cannot_grow(int channel, void *argument)
{
	const int *which = argument;
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer, *opened;
	gpumem_token token;
	setenv("GPUMEM_FAKE_FAIL", ungrown[*which].plan, 1);
	join("unlucky");
	options.max_size = 64 * MIB;
	OK(gpumem_buffer_create(session, 0, 2 * MIB - 5, &options, &buffer));
	void *place = gpumem_buffer_ptr(buffer);
	gm_device_set(place, 2 * MIB - 5, 7);
	REFUSED(gpumem_buffer_resize(buffer, 2 * MIB + FOUR_CHUNKS, NULL, NULL),
		ungrown[*which].status, ungrown[*which].says);
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer), 2 * MIB - 5);
	GM_REQUIRE(gm_device_is(place, 2 * MIB - 5, 7));
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, 2 * MIB);
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	OK(gpumem_stats(session, 0, &stats));
	GM_REQUIRE_EQ(stats.allocated, 2 * MIB);
	unsetenv("GPUMEM_FAKE_FAIL");
	/* The daemon knows the old size, too. */
	OK(gpumem_share(buffer, NULL, &token));
	OK(gpumem_open(session, &token, &opened));
	GM_REQUIRE_EQ(gpumem_buffer_size(opened), 2 * MIB - 5);
	gpumem_buffer_destroy(opened);
	OK(gpumem_trim(session, NULL));
	OK(gpumem_unshare(buffer));

	/* And it goes on as if nothing had been. */
	OK(gpumem_buffer_resize(buffer, 2 * MIB + FOUR_CHUNKS, NULL, NULL));
	GM_REQUIRE(gpumem_buffer_ptr(buffer) == place);
	GM_REQUIRE(gm_device_is(place, 2 * MIB - 5, 7));
	gm_device_set(place, 2 * MIB + FOUR_CHUNKS, 8);
	GM_REQUIRE(gm_device_is(place, 2 * MIB + FOUR_CHUNKS, 8));
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

START_TEST(a_buffer_whose_new_chunks_cannot_be_mapped_stays_as_it_was)
{
	start(NULL);
	one_worker(cannot_grow, &_i);
	GM_REQUIRE(ledger_is_true(0));
	stop();
}
END_TEST

/* ---- signals */

static void cannot_signal(int channel, void *argument)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer = NULL;
	options.flags = GPUMEM_BUFFER_SIGNALS;
	setenv("GPUMEM_FAKE_WITHOUT", "memops", 1);
	join("unable");
	REFUSED(gpumem_buffer_create(session, 0, FOUR_CHUNKS, &options, &buffer),
		GPUMEM_E_UNSUPPORTED, "64-bit memory operations on streams");
	gm_text_say_word(channel, 'f');
	gm_hear_word(channel, 'g');
	gpumem_disconnect(session);
}

START_TEST(signals_on_a_gpu_that_has_none_are_refused_and_nothing_is_held)
{
	struct gm_worker worker;
	start(NULL);
	gm_worker_start(&worker, cannot_signal, NULL);
	gm_hear_word(worker.channel, 'f');
	GM_UNTIL(figures(0).leased == 0);
	gm_text_say_word(worker.channel, 'g');
	gm_worker_join(&worker);
	gm_daemon_stop(&daemon_);
}
END_TEST

static void stop_before_mapping(int channel, void *argument)
{
	char plan[160];
	void *ptr;
	snprintf(plan, sizeof(plan), "cuMemImportFromShareableHandle:%s", (const char *)argument);
	setenv("GPUMEM_FAKE_GATE", plan, 1);
	join("stuck");
	gm_text_say_word(channel, 'j');
	OK(gpumem_alloc(session, 0, FOUR_CHUNKS, NULL, NULL, &ptr));
	GM_FAIL("it should have waited for ever");
}

START_TEST(a_client_that_dies_between_grant_and_map_leaves_nothing)
{
	struct gm_worker worker;
	char fifo[64];
	start(NULL);
	gm_scratch_path("gate", fifo, sizeof(fifo));
	unlink(fifo);
	GM_REQUIRE(mkfifo(fifo, 0666) == 0);
	gm_worker_start(&worker, stop_before_mapping, fifo);
	gm_hear_word(worker.channel, 'j');
	GM_UNTIL(gm_figures_now(&daemon_).leased >= FOUR_CHUNKS);
	GM_REQUIRE(ledger_is_true(0));
	gm_worker_kill(&worker);
	unlink(fifo);
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	GM_UNTIL(ledger_is_true(0));
	/* Of a dead process: released, not pooled. */
	GM_REQUIRE_EQ(used(0), 0);
	stop();
}
END_TEST

/* ---- GPUs that use one another's memory */

static void copy_to_a_peer(int channel, void *argument)
{
	char why[GM_CUDA_WHY_BYTES];
	void *on_0, *on_1;
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	options.socket = daemon_.socket;
	options.peers = argument != NULL;
	OK(gpumem_connect(&options, &session));
	OK(gpumem_alloc(session, 0, 4 * MIB, NULL, NULL, &on_0));
	OK(gpumem_alloc(session, 1, 4 * MIB, NULL, NULL, &on_1));
	gm_device_set(on_0, 4 * MIB, 5);
	/* In a context of device 1, which is not the memory's own. */
	GM_REQUIRE(try_gpu(1, why));
	gm_cu_result result = cuda->cuMemcpyAsync(
		(gm_cu_ptr)(uintptr_t)on_1, (gm_cu_ptr)(uintptr_t)on_0, 4 * MIB, NULL);
	bool reachable = argument && !getenv("GPUMEM_FAKE_WITHOUT");
	GM_REQUIRE_EQ(result, reachable ? GM_CUDA_SUCCESS : GM_CUDA_ERROR_INVALID_VALUE);
	if (reachable) {
		uint8_t byte = 0;
		CU(cuda->cuMemcpyAsync((gm_cu_ptr)(uintptr_t)&byte,
			(gm_cu_ptr)(uintptr_t)on_1 + 4 * MIB - 1, 1, NULL));
		CU(cuda->cuStreamSynchronize(NULL));
		GM_REQUIRE_EQ(byte, 5);
	}
	gpumem_disconnect(session);
}

START_TEST(gpus_use_one_anothers_memory_if_the_program_wants_it_and_they_can)
{
	struct gm_worker worker;
	if (_i == 2)
		setenv("GPUMEM_FAKE_WITHOUT", "p2p", 1);
	start(NULL);
	gm_worker_start(&worker, copy_to_a_peer, _i ? "" : NULL);
	gm_worker_join(&worker);
	stop();
}
END_TEST

/* Memory that the program says is no longer used, and is: its context fails for good. */
static void astray(int channel, void *argument)
{
	void *ptr, *other = NULL;
	join("astray");
	use_gpu();
	gm_cu_stream stream = stream_new();
	OK(gpumem_alloc(session, 0, 32 * MIB, stream, NULL, &ptr));
	OK(gpumem_alloc(session, 0, 4 * MIB, stream, NULL, &other));
	keep_busy(stream);
	fill(ptr, 32 * MIB, 1, stream);
	OK(gpumem_free(session, ptr, GPUMEM_STREAM_DONE));
	OK(gpumem_trim(session, NULL));
	open_gate();
	GM_REQUIRE_EQ(cuda->cuStreamSynchronize(stream), GM_CUDA_ERROR_ILLEGAL_ADDRESS);
	GM_REQUIRE_EQ(cuda->cuMemAlloc(&(gm_cu_ptr){0}, 4 * MIB), GM_CUDA_ERROR_ILLEGAL_ADDRESS);
	/* No event can be had any more; all the same nothing waits for ever. */
	OK(gpumem_free(session, other, GPUMEM_STREAM_ANY));
	(void)gpumem_trim(session, NULL);
	if (gpumem_alloc(session, 0, 32 * MIB, NULL, NULL, &ptr) == GPUMEM_OK)
		OK(gpumem_free(session, ptr, GPUMEM_STREAM_ANY));
	gpumem_disconnect(session);
}

START_TEST(a_program_whose_work_went_astray_leaves_nothing_behind)
{
	struct gm_worker worker;
	start(NULL);
	gm_worker_start(&worker, astray, NULL);
	gm_worker_join(&worker);
	stop();
}
END_TEST

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], no_driver) == 0)
		return without_a_driver(argv[2]);
	if (!getenv("GPUMEM_FAKE_DIR")) {
		printf("1..0 # SKIP what goes wrong is made to by the fake driver\n");
		return 0;
	}
	Suite *suite = suite_create("faults of clients");
	TCase *tc = tcase_create("faults of clients");
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_client_without_the_gpu_connects_and_is_told_why_it_gets_no_memory);
	tcase_add_test(tc, signals_on_a_gpu_that_has_none_are_refused_and_nothing_is_held);
	tcase_add_loop_test(tc,
		memory_that_cannot_be_mapped_goes_back_and_the_drivers_word_for_it_is_told, 0,
		2 * UNOPENED);
	tcase_add_loop_test(
		tc, a_buffer_whose_new_chunks_cannot_be_mapped_stays_as_it_was, 0, UNGROWN);
	tcase_add_test(tc, a_client_that_dies_between_grant_and_map_leaves_nothing);
	tcase_add_test(tc, a_program_whose_work_went_astray_leaves_nothing_behind);
	tcase_add_loop_test(
		tc, gpus_use_one_anothers_memory_if_the_program_wants_it_and_they_can, 0, 3);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
