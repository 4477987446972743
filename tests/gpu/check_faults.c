/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * What goes wrong with GPUs and drivers, on two fake ones: a call that fails halfway, a GPU that is
 * gone, one that is not to be seen from the client, memory that cannot be mapped, a client that
 * dies before it has mapped anything, and programs that take memory without asking. Each time the
 * error says the cause, and the daemon's figures are those of the device itself, which the kernel
 * keeps. The test never touches CUDA, so that it may fork workers at any time.
 */

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tests/gpu/worker.h"
#include "tests/integration/device.h"
#include "tests/integration/raw.h"
#include "tests/scratch.h"
#include "tests/tap.h"

static struct gm_daemon daemon_;

/* Everything may be handed out and nothing is kept ready, so that every byte can be told. */
static const char config[] =
	"[gpumemd]\nfraction = 1.0\nmin_free = 0\nreserve = 0\nmax_pool = 100%\n"
	"host_limit = 0\n";

static void start(const char *variable)
{
	static const char *env[2];
	env[0] = variable;
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = config, .env = env});
}

static void path_of(uint32_t device, const char *mark, char path[256])
{
	snprintf(path, 256, "%s/gpu%u%s", getenv("GPUMEM_FAKE_DIR"), device, mark);
}

/* What is used on the device, as the kernel counts it. */
static uint64_t used(uint32_t device)
{
	char path[256];
	struct statvfs vfs;
	path_of(device, "", path);
	GM_REQUIRE(statvfs(path, &vfs) == 0);
	return (uint64_t)(vfs.f_blocks - vfs.f_bfree) * vfs.f_frsize;
}

static struct gm_figures figures(uint32_t device)
{
	struct gm_figures f;
	gm_figures_of(&daemon_, device, &f);
	return f;
}

static void mark(uint32_t device, const char *which, bool on)
{
	char path[256];
	path_of(device, which, path);
	if (on)
		close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	else
		unlink(path);
}

/* Ends the daemon, once nothing is charged and the device holds what the daemon pools, no more. */
static void stop(void)
{
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	for (uint32_t i = 0; i < 2; i++) {
		struct gm_figures f = figures(i);
		GM_REQUIRE_EQ(f.leased + f.quarantined + f.admitted, 0);
	}
	gm_daemon_stop(&daemon_);
}

static bool ledger_is_true(uint32_t device)
{
	struct gm_figures f = figures(device);
	return f.leased + f.quarantined + f.admitted + f.pooled == used(device);
}

/* In a worker. */
static void join(const char *name)
{
	join_at(daemon_.socket, name);
}

/* ---- a driver call of the daemon's that fails */

/* 30 MiB are four chunks: 16, 8, 4 and 2. */
#define FOUR_CHUNKS (30 * MIB)

static const struct {
	const char *plan;
	gpumem_status status;
	const char *says;
} halfway[] = {
	{"cuMemCreate:4:999", GPUMEM_E_SYSTEM, "cuMemCreate: CUDA_ERROR_UNKNOWN"},
	{"cuMemCreate:3:46", GPUMEM_E_SYSTEM, "cuMemCreate: CUDA_ERROR_DEVICE_UNAVAILABLE"},
	/* Out of memory is tried once more: this one stays so. */
	{"cuMemCreate:3+:2", GPUMEM_E_NO_MEMORY, "out of memory"},
	{"cuMemExportToShareableHandle:3:304", GPUMEM_E_SYSTEM,
		"cuMemExportToShareableHandle: CUDA_ERROR_OPERATING_SYSTEM"},
	{"cuMemExportToShareableHandle:4:999", GPUMEM_E_SYSTEM,
		"cuMemExportToShareableHandle: CUDA_ERROR_UNKNOWN"},
};

START_TEST(a_driver_call_that_fails_halfway_undoes_the_whole_lease)
{
	char variable[128];
	struct gm_raw raw;
	struct gm_raw_lease lease;
	snprintf(variable, sizeof(variable), "GPUMEM_FAKE_FAIL=%s", halfway[_i].plan);
	start(variable);
	gm_raw_join(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, FOUR_CHUNKS, &lease), halfway[_i].status);
	if (!strstr(gm_raw_detail(&raw), halfway[_i].says))
		GM_FAIL("%s", gm_raw_detail(&raw));
	/* The others that were under way may come a little later, and go. */
	GM_UNTIL(gm_figures_now(&daemon_).admitted == 0 && ledger_is_true(0));
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.leased + f.quarantined, 0);
	GM_REQUIRE_EQ(f.leases, 0);
	/* A plan with a + goes on; the others failed once. */
	if (!strchr(halfway[_i].plan, '+')) {
		GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, FOUR_CHUNKS, &lease), GPUMEM_OK);
		GM_REQUIRE_EQ(lease.n, 4);
		GM_REQUIRE(ledger_is_true(0));
		gm_raw_lease_clear(&lease);
	}
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
	stop();
}
END_TEST

START_TEST(memory_that_is_scarce_for_a_moment_is_asked_for_again)
{
	struct gm_raw raw;
	struct gm_raw_lease lease;
	start("GPUMEM_FAKE_FAIL=cuMemCreate:3:2");
	gm_raw_join(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, FOUR_CHUNKS, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(lease.n, 4);
	GM_REQUIRE(ledger_is_true(0));
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
	stop();
}
END_TEST

/* ---- several GPUs, and one that is lost */

static void use_both(int channel, void *argument)
{
	void *on_0, *on_1, *more;
	join("both");
	OK(gpumem_alloc(session, 0, 32 * MIB, NULL, NULL, &on_0));
	OK(gpumem_alloc(session, 1, 16 * MIB, NULL, NULL, &on_1));
	gm_say_word(channel, 'h');
	gm_hear_word(channel, 'l');
	/* Device 0 is gone: the cause is named, and device 1 does not care. */
	gpumem_buffer *buffer;
	for (int i = 0; i < 3; i++)
		REFUSED(gpumem_alloc(session, 0, 64 * MIB, NULL, NULL, &more), GPUMEM_E_SYSTEM,
			"could not make a chunk of 64.0M: cuMemCreate: CUDA_ERROR_DEVICE_UNAVAILABLE");
	REFUSED(gpumem_buffer_create(session, 0, 64 * MIB, NULL, &buffer), GPUMEM_E_SYSTEM,
		"CUDA_ERROR_DEVICE_UNAVAILABLE");
	OK(gpumem_alloc(session, 1, 64 * MIB, NULL, NULL, &more));
	OK(gpumem_free(session, more, GPUMEM_STREAM_DONE));
	/* What is held of it can still be given up. */
	OK(gpumem_free(session, on_0, GPUMEM_STREAM_DONE));
	OK(gpumem_free(session, on_1, GPUMEM_STREAM_DONE));
	gm_say_word(channel, 'f');
	gm_hear_word(channel, 'b');
	OK(gpumem_alloc(session, 0, 64 * MIB, NULL, NULL, &more));
	gpumem_disconnect(session);
}

START_TEST(a_lost_gpu_is_said_and_the_other_one_goes_on)
{
	struct gm_worker worker;
	start(NULL);
	gm_worker_start(&worker, use_both, NULL);
	gm_hear_word(worker.channel, 'h');
	GM_REQUIRE(figures(0).leased >= 32 * MIB);
	GM_REQUIRE(figures(1).leased >= 16 * MIB);
	GM_REQUIRE(ledger_is_true(0) && ledger_is_true(1));
	mark(0, ".lost", true);
	gm_say_word(worker.channel, 'l');
	gm_hear_word(worker.channel, 'f');
	/* However often somebody asks. */
	GM_REQUIRE_EQ(
		gm_daemon_said(&daemon_, "device 0: cuMemCreate: CUDA_ERROR_DEVICE_UNAVAILABLE"),
		1);
	GM_REQUIRE(ledger_is_true(1));
	mark(0, ".lost", false);
	gm_say_word(worker.channel, 'b');
	gm_worker_join(&worker);
	GM_UNTIL(ledger_is_true(0) && ledger_is_true(1));
	stop();
}
END_TEST

static void hold_and_die(int channel, void *argument)
{
	void *ptr;
	join("holder");
	OK(gpumem_alloc(session, 0, 32 * MIB, NULL, NULL, &ptr));
	gm_say_word(channel, 'h');
	pause();
}

START_TEST(a_client_that_dies_on_a_lost_gpu_leaves_a_true_ledger)
{
	struct gm_worker worker;
	start(NULL);
	gm_worker_start(&worker, hold_and_die, NULL);
	gm_hear_word(worker.channel, 'h');
	mark(0, ".lost", true);
	gm_worker_kill(&worker);
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	GM_UNTIL(ledger_is_true(0));
	mark(0, ".lost", false);
	stop();
}
END_TEST

/* ---- a daemon that comes back with its GPUs in another order */

static void outlives_daemons(int channel, void *argument)
{
	void *held, *ptr;
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT, same = GPUMEM_DEVICE_INFO_INIT;
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	options.socket = daemon_.socket;
	options.away_ms = 0;
	OK(gpumem_connect(&options, &session));
	use_gpu();
	OK(gpumem_device_info(session, 0, &info));
	OK(gpumem_alloc(session, 0, 8 * MIB, NULL, NULL, &held));
	gm_say_word(channel, 'h');
	gm_hear_word(channel, 'o');
	/* What is device 0 there is another GPU than the one that was asked for by that number. */
	GM_UNTIL(gpumem_alloc(session, 0, 16 * MIB, NULL, NULL, &ptr) == GPUMEM_E_DISCONNECTED &&
		 strstr(gpumem_error_detail(), "another GPU"));
	gm_say_word(channel, 'o');
	gm_hear_word(channel, 's');
	GM_UNTIL(gpumem_alloc(session, 0, 16 * MIB, NULL, NULL, &ptr) == GPUMEM_OK);
	OK(gpumem_device_info(session, 0, &same));
	GM_REQUIRE(memcmp(info.uuid, same.uuid, sizeof(info.uuid)) == 0);
	fill(ptr, 16 * MIB, 0x21, NULL);
	fill(held, 8 * MIB, 0x22, NULL);
	GM_REQUIRE(all(ptr, 16 * MIB, 0x21, NULL) && all(held, 8 * MIB, 0x22, NULL));
	gpumem_disconnect(session);
}

START_TEST(a_session_goes_on_only_with_the_gpus_that_it_began_with)
{
	struct gm_worker worker;
	start(NULL);
	gm_worker_start(&worker, outlives_daemons, NULL);
	gm_hear_word(worker.channel, 'h');
	gm_daemon_kill(&daemon_);
	setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	gm_say_word(worker.channel, 'o');
	gm_hear_word(worker.channel, 'o');
	gm_daemon_kill(&daemon_);
	unsetenv("CUDA_VISIBLE_DEVICES");
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	gm_say_word(worker.channel, 's');
	gm_worker_join(&worker);
	stop();
}
END_TEST

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

/* A program without LD_LIBRARY_PATH to the fake driver: this one, anew. */
static void have_no_driver(int channel, void *argument)
{
	char path[4096];
	snprintf(path, sizeof(path), "%s/client/.libs", getenv("top_builddir"));
	setenv("LD_LIBRARY_PATH", path, 1);
	execl("/proc/self/exe", "check_faults", no_driver, daemon_.socket, NULL);
	GM_FAIL("exec failed");
}

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
	gm_say_word(channel, 'f');
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
	gm_say_word(worker.channel, 'g');
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
	gm_say_word(channel, 'f');
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
	gm_say_word(worker.channel, 'g');
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
	gm_say_word(channel, 'j');
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

/* ---- those who do not ask */

static void eat(int channel, void *argument)
{
	gm_cu_ptr ptr;
	use_gpu();
	CU(cuda->cuMemAlloc(&ptr, 192 * MIB));
	gm_say_word(channel, 'e');
	gm_hear_word(channel, 'g');
}

START_TEST(a_refusal_names_what_others_use)
{
	struct gm_worker worker;
	struct gm_raw raw;
	struct gm_raw_lease lease;
	start(NULL);
	gm_raw_join(&raw, &daemon_);
	gm_worker_start(&worker, eat, NULL);
	gm_hear_word(worker.channel, 'e');
	/* Whether the daemon has looked at the device since or not. */
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, 128 * MIB, &lease), GPUMEM_E_NO_MEMORY);
	if (!strstr(gm_raw_detail(&raw), "used outside the broker") ||
		!strstr(gm_raw_detail(&raw), "192"))
		GM_FAIL("%s", gm_raw_detail(&raw));
	GM_UNTIL(gm_figures_now(&daemon_).foreign == 192 * MIB);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).available, 64 * MIB);
	/* What is left is had to the last byte. */
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, 64 * MIB, &lease), GPUMEM_OK);
	gm_raw_lease_clear(&lease);
	gm_say_word(worker.channel, 'g');
	gm_worker_join(&worker);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
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

static void use_an_instance(int channel, void *argument)
{
	void *ptr;
	join("instance");
	OK(gpumem_alloc(session, 0, 32 * MIB, NULL, NULL, &ptr));
	gm_device_set(ptr, 32 * MIB, 9);
	GM_REQUIRE(gm_device_is(ptr, 32 * MIB, 9));
	gm_say_word(channel, 'h');
	gm_hear_word(channel, 'b');
	gpumem_disconnect(session);
}

START_TEST(in_mig_mode_the_daemon_says_how_to_serve_the_other_instances)
{
	struct gm_worker worker;
	mark(0, ".mig", true);
	start(NULL);
	char *log = gm_daemon_log(&daemon_);
	GM_REQUIRE(strstr(
		log, "Fake GPU 0 (MIG-f46b6500-6770-756d-656d-640000000100) is a MIG instance"));
	GM_REQUIRE(strstr(log, "for each other instance, run a daemon"));
	GM_REQUIRE(!strstr(log, "Fake GPU 1 ("));
	free(log);
	/* A client finds the instance by its UUID. */
	gm_worker_start(&worker, use_an_instance, NULL);
	gm_hear_word(worker.channel, 'h');
	GM_REQUIRE_EQ(figures(0).leased, 32 * MIB);
	GM_REQUIRE(ledger_is_true(0));
	gm_say_word(worker.channel, 'b');
	gm_worker_join(&worker);
	mark(0, ".mig", false);
	stop();
}
END_TEST

START_TEST(what_is_configured_for_no_device_here_is_said)
{
	static const char sizes[] = "[gpumemd]\nhost_limit = 0\nmin_free = 0\n"
				    "[device 0]\nsize = 1G\n[device 1]\nsize = auto\n"
				    "[device 7]\nfraction = 0.5\n";
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = sizes});
	char *log = gm_daemon_log(&daemon_);
	GM_REQUIRE(strstr(log, "size of [device 0] has no effect: it is for the host backend, and "
			       "device 0 is a GPU (Fake GPU 0)"));
	GM_REQUIRE(!strstr(log, "size of [device 1]"));
	GM_REQUIRE(strstr(log, "[device 7] has no effect: there are 2 devices here"));
	free(log);
	gm_daemon_reload(&daemon_, "[gpumemd]\nhost_limit = 0\nmin_free = 0\n"
				   "[device 0]\nsize = auto\n[device 1]\nsize = 1G\n");
	GM_REQUIRE(gm_daemon_said(&daemon_, "size of [device 1] has no effect") > 0);
	stop();
}
END_TEST

static void lease_and_return(int channel, void *argument)
{
	gpumem_buffer *buffer;
	join("ipc");
	OK(gpumem_buffer_create(session, 0, 4 * MIB, NULL, &buffer));
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
}

START_TEST(by_transport_ipc_no_reserve_is_made_of_the_other_one)
{
	/* Were a chunk of the fd transport ever to be made, the driver would fail, which is said.
	 */
	static const char *const env[] = {"GPUMEM_FAKE_FAIL=cuMemCreate:0:999", NULL};
	static const char ipc[] = "[gpumemd]\nhost_limit = 0\nmin_free = 0\ntransport = ipc\n"
				  "preset = inference\n";
	struct gm_worker worker;
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = ipc, .env = env});
	gm_worker_start(&worker, lease_and_return, NULL);
	gm_worker_join(&worker);
	gm_daemon_signal(&daemon_, SIGTERM);
	GM_REQUIRE_EQ(gm_daemon_wait(&daemon_), 0);
	GM_REQUIRE_EQ(gm_daemon_said(&daemon_, "cuMemCreate"), 0);
	gm_daemon_stop(&daemon_);
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
	Suite *suite = suite_create("faults");
	TCase *tc = tcase_create("faults");
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, a_driver_call_that_fails_halfway_undoes_the_whole_lease, 0,
		(int)(sizeof(halfway) / sizeof(*halfway)));
	tcase_add_test(tc, memory_that_is_scarce_for_a_moment_is_asked_for_again);
	tcase_add_test(tc, a_lost_gpu_is_said_and_the_other_one_goes_on);
	tcase_add_test(tc, a_client_that_dies_on_a_lost_gpu_leaves_a_true_ledger);
	tcase_add_test(tc, a_session_goes_on_only_with_the_gpus_that_it_began_with);
	tcase_add_test(tc, a_client_without_the_gpu_connects_and_is_told_why_it_gets_no_memory);
	tcase_add_test(tc, signals_on_a_gpu_that_has_none_are_refused_and_nothing_is_held);
	tcase_add_loop_test(tc,
		memory_that_cannot_be_mapped_goes_back_and_the_drivers_word_for_it_is_told, 0,
		2 * UNOPENED);
	tcase_add_loop_test(
		tc, a_buffer_whose_new_chunks_cannot_be_mapped_stays_as_it_was, 0, UNGROWN);
	tcase_add_test(tc, a_client_that_dies_between_grant_and_map_leaves_nothing);
	tcase_add_test(tc, a_refusal_names_what_others_use);
	tcase_add_test(tc, a_program_whose_work_went_astray_leaves_nothing_behind);
	tcase_add_loop_test(
		tc, gpus_use_one_anothers_memory_if_the_program_wants_it_and_they_can, 0, 3);
	tcase_add_test(tc, in_mig_mode_the_daemon_says_how_to_serve_the_other_instances);
	tcase_add_test(tc, what_is_configured_for_no_device_here_is_said);
	tcase_add_test(tc, by_transport_ipc_no_reserve_is_made_of_the_other_one);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
