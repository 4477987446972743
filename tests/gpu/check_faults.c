/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * What goes wrong with GPUs and drivers, on two fake ones: a call that fails halfway, a GPU that is
 * gone, one that is not to be seen from the client, memory that cannot be mapped, a client that
 * dies before it has mapped anything, and programs that take memory without asking. Each time the
 * error says the cause, and the daemon's figures are those of the device itself, which the kernel
 * keeps. The test never touches CUDA, so that it may fork workers at any time.
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "tests/gpu/faults_fixture.h"
#include "tests/gpu/worker.h"
#include "tests/integration/device.h"
#include "tests/integration/raw.h"
#include "tests/scratch.h"
#include "tests/tap.h"

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
	gm_text_say_word(channel, 'h');
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
	gm_text_say_word(channel, 'f');
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
	gm_text_say_word(worker.channel, 'l');
	gm_hear_word(worker.channel, 'f');
	/* However often somebody asks. */
	GM_REQUIRE_EQ(
		gm_daemon_said(&daemon_, "device 0: cuMemCreate: CUDA_ERROR_DEVICE_UNAVAILABLE"),
		1);
	GM_REQUIRE(ledger_is_true(1));
	mark(0, ".lost", false);
	gm_text_say_word(worker.channel, 'b');
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
	gm_text_say_word(channel, 'h');
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

/* ---- a daemon that comes back while the driver does not work */

static void holds_on(int channel, void *argument)
{
	void *held;
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	options.socket = daemon_.socket;
	options.away_ms = 0;
	OK(gpumem_connect(&options, &session));
	use_gpu();
	OK(gpumem_alloc(session, 0, 32 * MIB, NULL, NULL, &held));
	fill(held, 32 * MIB, 0x23, NULL);
	gm_text_say_word(channel, 'h');
	gm_hear_word(channel, 'b');
	GM_REQUIRE(all(held, 32 * MIB, 0x23, NULL));
	OK(gpumem_free(session, held, GPUMEM_STREAM_DONE));
	gpumem_disconnect(session);
}

static const struct {
	const char *plan, *says;
} unwell[] = {
	{"cuMemImportFromShareableHandle:1:999", "CUDA_ERROR_UNKNOWN"},
	{"cuMemImportFromShareableHandle:0:46", "CUDA_ERROR_DEVICE_UNAVAILABLE"},
	{"cuMemImportFromShareableHandle:0:800", "CUDA_ERROR_NOT_PERMITTED"},
};

START_TEST(a_daemon_that_cannot_take_over_what_clients_hold_leaves_it_to_the_next_one)
{
	struct gm_worker worker;
	start(NULL);
	gm_worker_start(&worker, holds_on, NULL);
	gm_hear_word(worker.channel, 'h');
	uint64_t leased = figures(0).leased;
	gm_daemon_kill(&daemon_);
	setenv("GPUMEM_FAKE_FAIL", unwell[_i].plan, 1);
	int status = gm_daemon_spawn(&daemon_);
	GM_REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	GM_REQUIRE(gm_daemon_said(&daemon_, "device 0 cannot take over what clients hold"));
	GM_REQUIRE(gm_daemon_said(&daemon_, unwell[_i].says));
	unsetenv("GPUMEM_FAKE_FAIL");
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_REQUIRE_EQ(figures(0).leased + figures(0).quarantined, leased);
	gm_text_say_word(worker.channel, 'b');
	gm_worker_join(&worker);
	GM_UNTIL(ledger_is_true(0));
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
	gm_text_say_word(channel, 'h');
	gm_hear_word(channel, 'o');
	/* What is device 0 there is another GPU than the one that was asked for by that number. */
	GM_UNTIL(gpumem_alloc(session, 0, 16 * MIB, NULL, NULL, &ptr) == GPUMEM_E_DISCONNECTED &&
		 strstr(gpumem_error_detail(), "another GPU"));
	gm_text_say_word(channel, 'o');
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
	gm_text_say_word(worker.channel, 'o');
	gm_hear_word(worker.channel, 'o');
	gm_daemon_kill(&daemon_);
	unsetenv("CUDA_VISIBLE_DEVICES");
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	gm_text_say_word(worker.channel, 's');
	gm_worker_join(&worker);
	stop();
}
END_TEST

/* ---- those who do not ask */

static void eat(int channel, void *argument)
{
	gm_cu_ptr ptr;
	use_gpu();
	CU(cuda->cuMemAlloc(&ptr, 192 * MIB));
	gm_text_say_word(channel, 'e');
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
	gm_text_say_word(worker.channel, 'g');
	gm_worker_join(&worker);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
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
	gm_text_say_word(channel, 'h');
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
	gm_text_say_word(worker.channel, 'b');
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

int main(void)
{
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
	tcase_add_loop_test(tc,
		a_daemon_that_cannot_take_over_what_clients_hold_leaves_it_to_the_next_one, 0,
		sizeof(unwell) / sizeof(unwell[0]));
	tcase_add_test(tc, a_session_goes_on_only_with_the_gpus_that_it_began_with);
	tcase_add_test(tc, a_refusal_names_what_others_use);
	tcase_add_test(tc, in_mig_mode_the_daemon_says_how_to_serve_the_other_instances);
	tcase_add_test(tc, what_is_configured_for_no_device_here_is_said);
	tcase_add_test(tc, by_transport_ipc_no_reserve_is_made_of_the_other_one);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
