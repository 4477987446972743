/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Evictable buffers on a fake GPU whose driver fails: whichever call it is, the buffer keeps its content,
 * what was leased for the move goes back, and the next try works.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpumem/gpumem_evict.h"
#include "tests/gpu/broker.h"
#include "tests/gpu/fake_gate.h"

static const char config[] =
	"[gpumemd]\nfraction = 1.0\nmin_free = 0\nreserve = 0\nmax_pool = 100%\n"
	"host_limit = 128M\npressure_dwell = 1h\n"; /* so that nothing returns by itself */

#define BYTES (30 * MIB) /* four chunks */
/* The daemon makes one chunk when it starts, to see what the driver can do, and tries twice. */
#define REFUSE_DEVICE "cuMemCreate:2:2,cuMemCreate:3:2"
#define REFUSE_ALL    "cuMemCreate:2+:2"

static gpumem_buffer *evictable(gm_cu_stream stream, unsigned char value)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer;
	options.flags = GPUMEM_BUFFER_EVICTABLE;
	OK(gpumem_buffer_create(session, 0, BYTES, &options, &buffer));
	OK(gpumem_buffer_pin(buffer, NULL, NULL));
	fill(gpumem_buffer_ptr(buffer), BYTES, value, stream);
	CU(cuda->cuStreamSynchronize(stream));
	OK(gpumem_buffer_unpin(buffer, GPUMEM_STREAM_DONE));
	return buffer;
}

static void fail_by(const char *plan)
{
	if (plan)
		setenv("GPUMEM_FAKE_FAIL", plan, 1);
	else
		unsetenv("GPUMEM_FAKE_FAIL");
}

/* ---- on the way out */

static const char *const out_plans[] = {
	"cuMemcpyAsync:0:999",
	"cuStreamCreate:0:2",
	"cuStreamQuery:0:999",
	"cuMemImportFromShareableHandle:0:999",
	"cuMemMap:0:2",
	"cuMemSetAccess:0:999",
	"cuMemAddressReserve:0:2",
};
#define OUT_PLANS ((int)(sizeof(out_plans) / sizeof(*out_plans)))

static void cannot_leave(int channel, void *argument)
{
	join_at(daemon_.socket, "cannot leave");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gpumem_buffer *buffer = evictable(stream, 5);
	gpumem_location where;

	fail_by(out_plans[*(const int *)argument]);
	gpumem_status status = gpumem_buffer_evict(buffer);
	fail_by(NULL);
	GM_REQUIRE(status != GPUMEM_OK);
	GM_REQUIRE_EQ(gpumem_buffer_location(buffer), GPUMEM_LOCATION_DEVICE);
	GM_REQUIRE_EQ(leased_on(0), BYTES);
	GM_UNTIL(leased_on(1) == 0);

	OK(gpumem_buffer_evict(buffer));
	GM_REQUIRE_EQ(leased_on(0), 0);
	OK(gpumem_buffer_pin(buffer, NULL, &where));
	GM_REQUIRE_EQ(where, GPUMEM_LOCATION_DEVICE);
	GM_REQUIRE(all(gpumem_buffer_ptr(buffer), BYTES, 5, stream));
	gpumem_disconnect(session);
}

START_TEST(a_buffer_that_cannot_leave_stays_as_it_was)
{
	one_worker(cannot_leave, &_i);
}
END_TEST

/* ---- on the way back */

static const char *const in_plans[] = {
	"cuMemcpyAsync:0:999",
	"cuStreamCreate:0:2",
	"cuMemImportFromShareableHandle:0:999",
	"cuMemMap:0:2",
	"cuMemSetAccess:0:999",
};
#define IN_PLANS ((int)(sizeof(in_plans) / sizeof(*in_plans)))

static void cannot_return(int channel, void *argument)
{
	join_at(daemon_.socket, "cannot return");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gpumem_buffer *buffer = evictable(stream, 6);
	OK(gpumem_buffer_evict(buffer));
	uint64_t host = leased_on(1);
	GM_REQUIRE(host >= BYTES);

	fail_by(in_plans[*(const int *)argument]);
	gpumem_status status = gpumem_buffer_pin(buffer, NULL, NULL);
	fail_by(NULL);
	GM_REQUIRE(status != GPUMEM_OK);
	GM_REQUIRE_EQ(gpumem_buffer_location(buffer), GPUMEM_LOCATION_HOST);
	GM_REQUIRE_EQ(gpumem_buffer_unpin(buffer, NULL), GPUMEM_E_INVALID);
	GM_UNTIL(leased_on(0) == 0);
	GM_REQUIRE_EQ(leased_on(1), host);

	OK(gpumem_buffer_pin(buffer, NULL, NULL));
	GM_REQUIRE(all(gpumem_buffer_ptr(buffer), BYTES, 6, stream));
	GM_REQUIRE_EQ(leased_on(1), 0);
	gpumem_disconnect(session);
}

START_TEST(a_buffer_that_cannot_return_keeps_its_content_in_host_memory)
{
	one_worker(cannot_return, &_i);
}
END_TEST

/* The driver does not say whether the work on the buffer is done: nobody waits for that. */
static void cannot_be_asked(int channel, void *argument)
{
	gpumem_pin_options options = GPUMEM_PIN_OPTIONS_INIT;
	gpumem_buffer *large;
	gpumem_location where;
	join_at(daemon_.socket, "cannot be asked");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gpumem_buffer *buffer = evictable(stream, 9);

	OK(gpumem_buffer_pin(buffer, NULL, NULL));
	OK(gpumem_buffer_unpin(buffer, stream));
	fail_by("cuEventQuery:0:999");
	REFUSED(gpumem_buffer_evict(buffer), GPUMEM_E_SYSTEM, "does not say");
	fail_by(NULL);
	OK(gpumem_buffer_evict(buffer));

	OK(gpumem_buffer_create(session, 0, 240 * MIB, NULL, &large));
	options.flags = GPUMEM_PIN_HOST_OK;
	OK(gpumem_buffer_pin(buffer, &options, &where));
	GM_REQUIRE_EQ(where, GPUMEM_LOCATION_HOST);
	OK(gpumem_buffer_unpin(buffer, stream));
	gpumem_buffer_destroy(large);
	GM_UNTIL(leased_on(0) == 0);
	fail_by("cuEventQuery:0:999");
	REFUSED(gpumem_buffer_pin(buffer, NULL, NULL), GPUMEM_E_SYSTEM, "does not say");
	fail_by(NULL);
	OK(gpumem_buffer_pin(buffer, NULL, &where));
	GM_REQUIRE_EQ(where, GPUMEM_LOCATION_DEVICE);
	GM_REQUIRE(all(gpumem_buffer_ptr(buffer), BYTES, 9, stream));
	gpumem_disconnect(session);
}

START_TEST(a_driver_that_does_not_say_whether_work_is_done_is_not_waited_for)
{
	one_worker(cannot_be_asked, NULL);
}
END_TEST

/* The device has no room, so it should lie in host memory; but the driver does not map that there. */
static void cannot_lie_under(int channel, void *argument)
{
	gpumem_pin_options options = GPUMEM_PIN_OPTIONS_INIT;
	gpumem_location where;
	join_at(daemon_.socket, "cannot lie under");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gpumem_buffer *buffer = evictable(stream, 7), *large;
	OK(gpumem_buffer_evict(buffer));
	OK(gpumem_buffer_create(session, 0, 240 * MIB, NULL, &large));

	options.flags = GPUMEM_PIN_HOST_OK;
	fail_by(*(const int *)argument ? "cuMemSetAccess:0:999" : "cuMemMap:0:2");
	GM_REQUIRE(gpumem_buffer_pin(buffer, &options, &where) != GPUMEM_OK);
	fail_by(NULL);
	OK(gpumem_buffer_pin(buffer, &options, &where));
	GM_REQUIRE_EQ(where, GPUMEM_LOCATION_HOST);
	GM_REQUIRE(all(gpumem_buffer_ptr(buffer), BYTES, 7, stream));
	OK(gpumem_buffer_unpin(buffer, GPUMEM_STREAM_DONE));
	gpumem_buffer_destroy(large);
	GM_UNTIL(leased_on(0) == 0);
	OK(gpumem_buffer_pin(buffer, NULL, &where));
	GM_REQUIRE_EQ(where, GPUMEM_LOCATION_DEVICE);
	GM_REQUIRE(all(gpumem_buffer_ptr(buffer), BYTES, 7, stream));
	gpumem_disconnect(session);
}

START_TEST(host_memory_that_cannot_be_mapped_under_a_buffer_keeps_its_content)
{
	one_worker(cannot_lie_under, &_i);
}
END_TEST

/* ---- in place of a full device */

static gpumem_status make_fallback(uint64_t bytes, gpumem_buffer **ret_buffer)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	options.flags = GPUMEM_BUFFER_CPU_OK;
	return gpumem_buffer_create(session, 0, bytes, &options, ret_buffer);
}

static const char *const make_plans[] = {
	"cuMemImportFromShareableHandle:0:999",
	"cuMemMap:0:2",
	"cuMemSetAccess:0:999",
	"cuMemAddressReserve:0:2",
};
#define MAKE_PLANS ((int)(sizeof(make_plans) / sizeof(*make_plans)))

/* The device is full, and host memory cannot be mapped: nothing is held. Then it can. */
static void cannot_be_made(int channel, void *argument)
{
	gpumem_pin_options options = GPUMEM_PIN_OPTIONS_INIT;
	gpumem_buffer *large, *buffer = NULL;
	gpumem_location where;
	join_at(daemon_.socket, "cannot be made");
	use_gpu();
	gm_cu_stream stream = stream_new();
	OK(gpumem_buffer_create(session, 0, 240 * MIB, NULL, &large));

	fail_by(make_plans[*(const int *)argument]);
	REFUSED(make_fallback(BYTES, &buffer), GPUMEM_E_NO_MEMORY, "nor can it be in host memory");
	fail_by(NULL);
	GM_REQUIRE(!buffer);
	GM_UNTIL(leased_on(1) == 0);

	OK(make_fallback(BYTES, &buffer));
	options.flags = GPUMEM_PIN_HOST_OK;
	OK(gpumem_buffer_pin(buffer, &options, &where));
	GM_REQUIRE_EQ(where, GPUMEM_LOCATION_HOST);
	memset(gpumem_buffer_ptr(buffer), 8, BYTES);
	GM_REQUIRE(all(gpumem_buffer_ptr(buffer), BYTES, 8, stream));
	OK(gpumem_buffer_unpin(buffer, GPUMEM_STREAM_DONE));

	/* It cannot move to the device at first, and keeps its content. */
	gpumem_buffer_destroy(large);
	GM_UNTIL(leased_on(0) == 0);
	fail_by("cuMemcpyAsync:0:999");
	GM_REQUIRE(gpumem_buffer_pin(buffer, NULL, NULL) != GPUMEM_OK);
	fail_by(NULL);
	OK(gpumem_buffer_pin(buffer, NULL, &where));
	GM_REQUIRE_EQ(where, GPUMEM_LOCATION_DEVICE);
	GM_REQUIRE(all(gpumem_buffer_ptr(buffer), BYTES, 8, stream));
	gpumem_disconnect(session);
}

START_TEST(host_memory_that_cannot_be_mapped_is_not_kept)
{
	one_worker(cannot_be_made, &_i);
}
END_TEST

static void device_refuses(int channel, void *argument)
{
	gpumem_buffer *buffer;
	join_at(daemon_.socket, "the device refuses");
	use_gpu();
	OK(make_fallback(32 * MIB, &buffer));
	GM_REQUIRE_EQ(gpumem_buffer_location(buffer), GPUMEM_LOCATION_HOST);
	GM_REQUIRE_EQ(leased_on(0), 0);
	gpumem_disconnect(session);
}

/* The daemon believes that the device has room, but the driver has none. */
START_TEST(a_driver_that_refuses_memory_is_a_full_device)
{
	one_worker(device_refuses, NULL);
}
END_TEST

static void both_refuse(int channel, void *argument)
{
	gpumem_buffer *buffer = NULL;
	join_at(daemon_.socket, "both refuse");
	use_gpu();
	REFUSED(make_fallback(32 * MIB, &buffer), GPUMEM_E_NO_MEMORY,
		"nor can it be in host memory");
	GM_REQUIRE_EQ(leased_on(0) + leased_on(1), 0);
	gpumem_disconnect(session);
}

START_TEST(a_driver_that_refuses_both_is_named_for_both)
{
	one_worker(both_refuse, NULL);
}
END_TEST

/* ---- a driver that takes its time */

static gpumem_buffer *looked_at;

static void *look(void *done)
{
	(void)gpumem_buffer_location(looked_at);
	atomic_store((atomic_bool *)done, true);
	return NULL;
}

/* Other calls of this session need not wait for the driver. */
static void require_free_session(gpumem_buffer *buffer)
{
	pthread_t thread;
	atomic_bool done = false;
	looked_at = buffer;
	GM_REQUIRE_EQ(pthread_create(&thread, NULL, look, &done), 0);
	GM_UNTIL(atomic_load(&done));
	GM_REQUIRE_EQ(pthread_join(thread, NULL), 0);
}

/* Asks the daemon that this session's buffers come back. */
static void ask_to_restore(void)
{
	struct gm_raw raw;
	Gm__Wire__GetBuffers get = GM__WIRE__GET_BUFFERS__INIT;
	Gm__Wire__Evict evict = GM__WIRE__EVICT__INIT;
	gm_raw_observe(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(GET_BUFFERS, get_buffers, &get)), GPUMEM_OK);
	GM_REQUIRE(raw.packet->buffers->n_buffers > 0);
	evict.session = raw.packet->buffers->buffers[0]->session;
	evict.restore = true;
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(EVICT, evict, &evict)), GPUMEM_OK);
	gm_raw_close(&raw);
}

static void slow_restore(int channel, void *argument)
{
	gpumem_pin_options options = GPUMEM_PIN_OPTIONS_INIT;
	gpumem_location where;
	gpumem_buffer *large;
	struct fake_gate closed;

	fake_gate_prepare();
	join_at(daemon_.socket, "slow restore");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gpumem_buffer *buffer = evictable(stream, 8);
	OK(gpumem_buffer_evict(buffer));
	OK(gpumem_buffer_create(session, 0, 240 * MIB, NULL, &large));
	options.flags = GPUMEM_PIN_HOST_OK;
	OK(gpumem_buffer_pin(buffer, &options, &where));
	GM_REQUIRE_EQ(where, GPUMEM_LOCATION_HOST);
	OK(gpumem_buffer_unpin(buffer, stream));
	gpumem_buffer_destroy(large);

	/* It lies in host memory, and the library's thread asks whether it is still used there. */
	fake_gate_close(&closed, "cuEventQuery");
	ask_to_restore();
	fake_gate_await(&closed);
	require_free_session(buffer);
	fake_gate_open(&closed);
	OK(gpumem_buffer_pin(buffer, NULL, NULL));
	GM_REQUIRE(all(gpumem_buffer_ptr(buffer), BYTES, 8, stream));
	gpumem_disconnect(session);
}

static gm_cu_stream unpinned_on;

static void *unpin_there(void *buffer)
{
	OK(gpumem_buffer_unpin(buffer, unpinned_on));
	return NULL;
}

static void slow_unpin(int channel, void *argument)
{
	struct fake_gate closed;
	pthread_t thread;

	fake_gate_prepare();
	join_at(daemon_.socket, "slow unpin");
	use_gpu();
	unpinned_on = stream_new();
	gpumem_buffer *buffer = evictable(unpinned_on, 9);
	for (int i = 0; i < 5; i++)
		OK(gpumem_buffer_pin(buffer, NULL, NULL));
	for (int i = 0; i < 4; i++)
		OK(gpumem_buffer_unpin(buffer, unpinned_on));

	/* By now there are so many events that unpinning asks which of them have passed. */
	fake_gate_close(&closed, "cuEventQuery");
	GM_REQUIRE_EQ(pthread_create(&thread, NULL, unpin_there, buffer), 0);
	fake_gate_await(&closed);
	require_free_session(buffer);
	fake_gate_open(&closed);
	GM_REQUIRE_EQ(pthread_join(thread, NULL), 0);
	REFUSED(gpumem_buffer_unpin(buffer, unpinned_on), GPUMEM_E_INVALID, "not pinned");
	OK(gpumem_buffer_evict(buffer));
	OK(gpumem_buffer_pin(buffer, NULL, NULL));
	GM_REQUIRE(all(gpumem_buffer_ptr(buffer), BYTES, 9, unpinned_on));
	gpumem_disconnect(session);
}

START_TEST(a_driver_that_takes_its_time_to_restore_holds_no_other_call_up)
{
	one_worker(slow_restore, NULL);
}
END_TEST

START_TEST(a_driver_that_takes_its_time_to_unpin_holds_no_other_call_up)
{
	one_worker(slow_unpin, NULL);
}
END_TEST

/* ---- setting up */

static void set_up(void)
{
	start_with(config);
}

static void set_up_refusing(const char *plan)
{
	const char *env[] = {plan, NULL};
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = config, .env = env});
}

static void set_up_refusing_first(void)
{
	set_up_refusing("GPUMEM_FAKE_FAIL=" REFUSE_DEVICE);
}

static void set_up_refusing_all(void)
{
	set_up_refusing("GPUMEM_FAKE_FAIL=" REFUSE_ALL);
}

static void tear_down_both(void)
{
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	GM_REQUIRE_EQ(leased_on(1), 0);
	tear_down();
}

int main(void)
{
	if (!getenv("GPUMEM_FAKE_DIR")) {
		printf("1..0 # SKIP what goes wrong is made to by the fake driver\n");
		return 0;
	}
	Suite *suite = suite_create("evict_faults");
	TCase *tc = tcase_create("evict_faults");
	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, set_up, tear_down_both);
	tcase_add_loop_test(tc, a_buffer_that_cannot_leave_stays_as_it_was, 0, OUT_PLANS);
	tcase_add_loop_test(
		tc, a_buffer_that_cannot_return_keeps_its_content_in_host_memory, 0, IN_PLANS);
	tcase_add_test(tc, a_driver_that_does_not_say_whether_work_is_done_is_not_waited_for);
	tcase_add_loop_test(
		tc, host_memory_that_cannot_be_mapped_under_a_buffer_keeps_its_content, 0, 2);
	tcase_add_loop_test(tc, host_memory_that_cannot_be_mapped_is_not_kept, 0, MAKE_PLANS);
	tcase_add_test(tc, a_driver_that_takes_its_time_to_unpin_holds_no_other_call_up);
	tcase_add_test(tc, a_driver_that_takes_its_time_to_restore_holds_no_other_call_up);
	suite_add_tcase(suite, tc);

	tc = tcase_create("refusing");
	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, set_up_refusing_first, tear_down_both);
	tcase_add_test(tc, a_driver_that_refuses_memory_is_a_full_device);
	suite_add_tcase(suite, tc);
	tc = tcase_create("refusing all");
	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, set_up_refusing_all, tear_down_both);
	tcase_add_test(tc, a_driver_that_refuses_both_is_named_for_both);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
