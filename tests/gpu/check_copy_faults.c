/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Transfers with a driver that fails, on fake GPUs, which do when told: the error says how many bytes
 * arrived, they are there, nothing of the ring stays in use, and the next transfer works. See pinned.h.
 */

#include <pthread.h>

#include "gpumem/gpumem_ring.h"
#include "gpumem/gpumem_ring_device.h"
#include "tests/gpu/fake_gate.h"
#include "tests/gpu/pinned.h"
#include "tests/integration/transfer.h"
#include "tests/tap.h"

#define BYTES (6 * MIB + 99)
#define SLOT  (256 * 1024)

struct fault {
	const char *fails;
	gpumem_status status;
	const char *says;
	gpumem_stream stream;
};

/* The calls are counted from the start of the process. */
static const struct fault faults[] = {
	{"cuMemcpyAsync:5:719", GPUMEM_E_SYSTEM, "CUDA_ERROR_LAUNCH_FAILED", NULL},
	{"cuMemcpyAsync:1:719", GPUMEM_E_SYSTEM, "after 0 of", NULL},
	{"cuMemcpyAsync:24:719", GPUMEM_E_SYSTEM, "of 6291555 bytes", NULL},
	{"cuMemcpyAsync:3:400", GPUMEM_E_INVALID, "stream must be open", NULL},
	{"cuEventQuery:4:719", GPUMEM_E_SYSTEM, "CUDA_ERROR_LAUNCH_FAILED", NULL},
	{"cuEventQuery:4+:719", GPUMEM_E_SYSTEM, "CUDA_ERROR_LAUNCH_FAILED", NULL},
	{"cuStreamCreate:1:2", GPUMEM_E_SYSTEM, "no stream", GPUMEM_STREAM_DONE},
	/* An event that cannot be recorded on the stream is recorded for the whole context. */
	{"cuEventRecord:2:719", GPUMEM_OK, "", NULL},
	{"cuEventRecord:2+:719,cuCtxRecordEvent:0:719", GPUMEM_E_SYSTEM, "CUDA_ERROR", NULL},
};

static gpumem_copy_options staged(void)
{
	return by_threads(GPUMEM_COPY_STAGED, 2, 3, SLOT);
}

static void read_back(gpumem_buffer *buffer, uint8_t *to)
{
	CU(cuda->cuMemcpyAsync((gm_cu_ptr)(uintptr_t)to,
		(gm_cu_ptr)(uintptr_t)gpumem_buffer_ptr(buffer), BYTES, NULL));
	CU(cuda->cuStreamSynchronize(NULL));
}

/* The ring is free, and can be returned. */
static void require_no_ring(void)
{
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	/* If the device did not say when it had finished, the library asks again later. */
	GM_UNTIL(gpumem_trim(session, NULL) == GPUMEM_OK &&
		 gpumem_stats(session, GPUMEM_DEVICE_HOST, &stats) == GPUMEM_OK && !stats.in_use);
}

static void unlucky(int channel, void *argument)
{
	const struct fault *fault = argument;
	gpumem_copy_options options = staged();
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	gpumem_buffer *buffer;
	uint8_t *bytes = pattern(BYTES, 1), *there = calloc(1, BYTES);
	GM_REQUIRE(there);
	join("unlucky");
	use_gpu_of(0);
	OK(gpumem_buffer_create(session, 0, BYTES, NULL, &buffer));

	setenv("GPUMEM_FAKE_FAIL", fault->fails, 1);
	gpumem_status status =
		gpumem_copy_in(buffer, 0, bytes, BYTES, fault->stream, &options, &result);
	setenv("GPUMEM_FAKE_FAIL", "", 1);
	if (fault->status)
		REFUSED(status, fault->status, fault->says);
	else
		GM_REQUIRE_EQ(status, GPUMEM_OK);
	if (!strstr(fault->says, "no stream")) {
		char arrived[64];
		snprintf(arrived, sizeof(arrived), "after %llu of",
			(unsigned long long)result.bytes);
		GM_REQUIRE(!fault->status || strstr(gpumem_error_detail(), arrived));
	}
	read_back(buffer, there);
	GM_REQUIRE(memcmp(there, bytes, result.bytes) == 0);
	require_no_ring();

	/* And the other way, for which the calls of before do not count as failures. */
	OK(gpumem_copy_in(buffer, 0, bytes, BYTES, NULL, &options, &result));
	GM_REQUIRE_EQ(result.strategy, GPUMEM_COPY_STAGED);
	memset(there, 0, BYTES);
	OK(gpumem_copy_out(buffer, 0, there, BYTES, NULL, &options, &result));
	GM_REQUIRE(memcmp(there, bytes, BYTES) == 0);
	require_no_ring();
	gpumem_disconnect(session);
	free(bytes);
	free(there);
}

START_TEST(a_copy_that_fails_halfway_says_what_arrived)
{
	one_worker(unlucky, (void *)&faults[_i]);
}
END_TEST

static void out_of_luck(int channel, void *argument)
{
	gpumem_copy_options options = staged();
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	gpumem_buffer *buffer;
	uint8_t *bytes = pattern(BYTES, 1), *there = calloc(1, BYTES);
	GM_REQUIRE(there);
	join("out of luck");
	use_gpu_of(0);
	OK(gpumem_buffer_create(session, 0, BYTES, NULL, &buffer));
	OK(gpumem_copy_in(buffer, 0, bytes, BYTES, NULL, NULL, NULL));
	/* The driver copies from the device no more than once. */
	setenv("GPUMEM_FAKE_FAIL", argument, 1);
	REFUSED(gpumem_copy_out(buffer, 0, there, BYTES, NULL, &options, &result), GPUMEM_E_SYSTEM,
		"CUDA_ERROR_LAUNCH_FAILED");
	setenv("GPUMEM_FAKE_FAIL", "", 1);
	GM_REQUIRE(result.bytes < BYTES);
	GM_REQUIRE(memcmp(there, bytes, result.bytes) == 0);
	require_no_ring();
	gpumem_disconnect(session);
	free(bytes);
	free(there);
}

START_TEST(a_copy_back_that_fails_halfway_says_what_arrived)
{
	one_worker(out_of_luck, (void *)"cuMemcpyAsync:9+:719");
}
END_TEST

/* Pinned memory that cannot be mapped: the transfer goes on without it. */
static void without_pinned(int channel, void *argument)
{
	gpumem_copy_options options = staged();
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	gpumem_buffer *buffer;
	uint8_t *bytes = pattern(BYTES, 1), *there = calloc(1, BYTES);
	GM_REQUIRE(there);
	join("without");
	use_gpu_of(0);
	OK(gpumem_buffer_create(session, 0, BYTES, NULL, &buffer));
	setenv("GPUMEM_FAKE_FAIL", argument, 1);
	OK(gpumem_copy_in(buffer, 0, bytes, BYTES, NULL, &options, &result));
	setenv("GPUMEM_FAKE_FAIL", "", 1);
	GM_REQUIRE_EQ(result.strategy, GPUMEM_COPY_SYNC);
	GM_REQUIRE_EQ(result.slots, 0);
	GM_REQUIRE(result.ring_status != GPUMEM_OK);
	read_back(buffer, there);
	GM_REQUIRE(memcmp(there, bytes, BYTES) == 0);
	gpumem_disconnect(session);
	GM_REQUIRE_EQ(registered(), 0);
	free(bytes);
	free(there);
}

START_TEST(memory_that_cannot_be_pinned_is_done_without)
{
	one_worker(without_pinned,
		(void *)(registers() ? "cuMemHostRegister:0:304" : "cuMemSetAccess:0:304"));
}
END_TEST

/* How the program asks for all pinned memory, after a transfer. */
static const struct wish {
	bool buffer;
	uint32_t wait_ms;
} wishes[] = {
	{false, 0},
	{true, 0},
	{false, 20},
	{true, 20},
	{false, GPUMEM_WAIT_FOREVER},
	{true, GPUMEM_WAIT_FOREVER},
};
#define N_WISHES ((int)(sizeof(wishes) / sizeof(*wishes)))

static void get_all(const struct wish *wish)
{
	gpumem_alloc_options for_block = GPUMEM_ALLOC_OPTIONS_INIT;
	gpumem_buffer_options for_buffer = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer;
	void *ptr;

	for_block.wait_ms = for_buffer.wait_ms = wish->wait_ms;
	if (wish->buffer) {
		OK(gpumem_buffer_create(session, GPUMEM_DEVICE_HOST, LIMIT, &for_buffer, &buffer));
		gpumem_buffer_destroy(buffer);
	} else {
		OK(gpumem_host_alloc(session, LIMIT, &for_block, &ptr));
		OK(gpumem_free(session, ptr, GPUMEM_STREAM_DONE));
	}
}

/* Makes a ring that stays, because the driver cannot say whether something is launched. */
static void make_ring(gpumem_buffer *buffer, const uint8_t *bytes)
{
	gpumem_copy_options options = staged();
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;

	setenv("GPUMEM_FAKE_FAIL", "cuCtxRecordEvent:0:719", 1);
	for (int i = 0; i < 3; i++) {
		OK(gpumem_copy_in(buffer, 0, bytes, BYTES, GPUMEM_STREAM_DONE, &options, &result));
		GM_REQUIRE_EQ(result.strategy, GPUMEM_COPY_STAGED);
		GM_REQUIRE_EQ(result.slots, 3);
	}
	/* Each copy used the same ring, which stays: to end it, the driver would wait for what is launched. */
	OK(gpumem_trim(session, NULL));
	GM_REQUIRE_EQ(registered(), registers());
}

static void in_the_way(int channel, void *argument)
{
	gpumem_copy_options options = staged();
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	gpumem_buffer *buffer;
	uint8_t *bytes = pattern(BYTES, 1);
	fake_gate_prepare();
	join("in the way");
	use_gpu_of(0);
	OK(gpumem_buffer_create(session, 0, BYTES, NULL, &buffer));
	make_ring(buffer, bytes);

	/* Unless the program itself needs the memory. */
	get_all(argument);
	setenv("GPUMEM_FAKE_FAIL", "", 1);
	OK(gpumem_copy_in(buffer, 0, bytes, BYTES, GPUMEM_STREAM_DONE, &options, &result));
	GM_REQUIRE_EQ(result.strategy, GPUMEM_COPY_STAGED);
	require_no_ring();
	gpumem_disconnect(session);
	GM_REQUIRE_EQ(registered(), 0);
	free(bytes);
}

START_TEST(a_ring_that_stays_registered_is_used_again_and_is_not_in_the_programs_way)
{
	one_worker(in_the_way, (void *)&wishes[_i]);
}
END_TEST

static void set_up_hasty(void)
{
	start_with(CONFIG("host_limit = 64M\ndeadlock_after = 100ms\n"));
}

/* The library's thread looks after rings more often than the daemon refuses a request. */
static void set_up_patient(void)
{
	start_with(CONFIG("host_limit = 64M\ndeadlock_after = 1s\n"));
}

static void *get_all_in_thread(void *argument)
{
	char why[GM_CUDA_WHY_BYTES];

	GM_REQUIRE(try_gpu(0, why));
	get_all(argument);
	return NULL;
}

static void *get_too_much(void *argument)
{
	char why[GM_CUDA_WHY_BYTES];
	void *ptr;

	GM_REQUIRE(try_gpu(0, why));
	REFUSED(gpumem_host_alloc(session, LIMIT + 2 * MIB, NULL, &ptr), GPUMEM_E_NO_MEMORY,
		"never");
	return NULL;
}

/* One thread of the program is in the driver, which ends the ring, for a request that is too large. Two others need the
 * memory of the ring: one that may not wait is refused meanwhile, and one that may wait gets it. The heap has memory that
 * others need. */
static void in_the_driver(int channel, void *argument)
{
	const struct wish for_ever = {false, GPUMEM_WAIT_FOREVER};
	pthread_t greedy, other;
	struct fake_gate closed;
	gpumem_buffer *buffer;
	uint8_t *bytes = pattern(BYTES, 1);
	void *ptr;

	fake_gate_prepare();
	join("in the driver");
	use_gpu_of(0);
	OK(gpumem_buffer_create(session, 0, BYTES, NULL, &buffer));
	make_ring(buffer, bytes);
	OK(gpumem_alloc(session, 0, 300 * MIB, NULL, NULL, &ptr));
	OK(gpumem_free(session, ptr, GPUMEM_STREAM_DONE));

	fake_gate_close(&closed, "cuMemHostUnregister");
	GM_REQUIRE_EQ(pthread_create(&greedy, NULL, get_too_much, NULL), 0);
	fake_gate_await(&closed);
	REFUSED(gpumem_host_alloc(session, LIMIT, NULL, &ptr), GPUMEM_E_NO_MEMORY, "available");
	uint64_t refusals = now().refusals;
	GM_REQUIRE_EQ(pthread_create(&other, NULL, get_all_in_thread, (void *)&for_ever), 0);
	GM_UNTIL(now().refusals > refusals);
	gm_text_say_word(channel, 'd');
	gm_hear_word(channel, 'o');
	fake_gate_open(&closed);
	GM_REQUIRE_EQ(pthread_join(greedy, NULL), 0);
	GM_REQUIRE_EQ(pthread_join(other, NULL), 0);
	setenv("GPUMEM_FAKE_FAIL", "", 1);
	gpumem_disconnect(session);
	GM_REQUIRE_EQ(registered(), 0);
	free(bytes);
}

static void wants_the_rest(int channel, void *argument)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer;

	join("wants the rest");
	use_gpu_of(0);
	options.wait_ms = 60000;
	OK(gpumem_buffer_create(session, 0, 300 * MIB, &options, &buffer));
	gpumem_disconnect(session);
}

START_TEST(others_get_memory_back_while_the_driver_ends_a_ring)
{
	struct gm_worker worker;

	if (!registers())
		return;
	gm_worker_start(&worker, in_the_driver, NULL);
	gm_hear_word(worker.channel, 'd');
	one_worker(wants_the_rest, NULL);
	gm_text_say_word(worker.channel, 'o');
	gm_worker_join(&worker);
}
END_TEST

/* A request waits. Then the library's thread finds that nothing is launched, and ends the ring; while the driver does that, the
 * daemon refuses the request. */
static void in_the_librarys_hands(int channel, void *argument)
{
	const struct wish for_ever = {*(const int *)argument, GPUMEM_WAIT_FOREVER};
	struct fake_gate closed;
	gpumem_buffer *buffer;
	uint8_t *bytes = pattern(BYTES, 1);
	pthread_t other;

	fake_gate_prepare();
	join("in the library's hands");
	use_gpu_of(0);
	OK(gpumem_buffer_create(session, 0, BYTES, NULL, &buffer));
	make_ring(buffer, bytes);
	fake_gate_close(&closed, "cuMemHostUnregister");
	uint64_t refusals = now().refusals;
	GM_REQUIRE_EQ(pthread_create(&other, NULL, get_all_in_thread, (void *)&for_ever), 0);
	GM_UNTIL(gm_queue_wait(&daemon_) == 1);
	setenv("GPUMEM_FAKE_FAIL", "none:1:1", 1);
	fake_gate_await(&closed);
	GM_UNTIL(now().refusals > refusals);
	fake_gate_open(&closed);
	GM_REQUIRE_EQ(pthread_join(other, NULL), 0);
	gpumem_disconnect(session);
	GM_REQUIRE_EQ(registered(), 0);
	free(bytes);
}

START_TEST(a_ring_that_the_library_ends_just_now_is_not_in_the_programs_way)
{
	if (registers())
		one_worker(in_the_librarys_hands, &_i);
}
END_TEST

/* A kernel has the other end of a ring, and may wait for a message. To end a registration, the driver would wait for it. */
static void beside_a_kernel(int channel, void *argument)
{
	gpumem_ring *ring;
	gpumem_ring_view view;
	gpumem_buffer *buffer;
	void *ptr;

	join("beside a kernel");
	use_gpu_of(0);
	OK(gpumem_ring_create(session, 64, 64, NULL, &ring));
	OK(gpumem_ring_far_end(ring, NULL, &view));
	OK(gpumem_host_alloc(session, 4 * MIB, NULL, &ptr));
	int before = registered();
	OK(gpumem_free(session, ptr, GPUMEM_STREAM_DONE));
	OK(gpumem_buffer_create(session, 0, 2 * MIB, NULL, &buffer));
	gpumem_buffer_destroy(buffer);
	OK(gpumem_trim(session, NULL));
	GM_REQUIRE_EQ(registered(), before);

	gpumem_ring_close(ring);
	GM_UNTIL(registered() == 0);
	gpumem_disconnect(session);
}

START_TEST(no_registration_ends_while_a_kernel_has_an_end_of_a_ring)
{
	if (registers())
		one_worker(beside_a_kernel, NULL);
}
END_TEST

/* The driver ends the registration of a freed block, and waits for a kernel meanwhile. Nobody else may wait for that, unless
 * the memory itself is needed. */
static void in_nobodys_way(int channel, void *argument)
{
	struct fake_gate closed;
	gpumem_buffer *buffer;
	void *ptr, *other;

	fake_gate_prepare();
	join("in nobody's way");
	use_gpu_of(0);
	OK(gpumem_host_alloc(session, 4 * MIB, NULL, &ptr));
	fake_gate_close(&closed, "cuMemHostUnregister");
	OK(gpumem_free(session, ptr, GPUMEM_STREAM_DONE));
	fake_gate_await(&closed);
	OK(gpumem_buffer_create(session, 0, 2 * MIB, NULL, &buffer));
	OK(gpumem_alloc(session, 0, 2 * MIB, NULL, NULL, &ptr));
	OK(gpumem_free(session, ptr, GPUMEM_STREAM_DONE));
	gpumem_buffer_destroy(buffer);
	OK(gpumem_buffer_create(session, 0, 2 * MIB, NULL, &buffer));
	fake_gate_open(&closed);

	/* A request for the memory itself waits until it is there. */
	OK(gpumem_host_alloc(session, LIMIT, NULL, &other));
	OK(gpumem_free(session, other, GPUMEM_STREAM_DONE));
	GM_UNTIL(registered() == 0);
	gpumem_disconnect(session);
}

START_TEST(others_go_on_while_the_driver_ends_the_registration_of_a_freed_block)
{
	if (registers())
		one_worker(in_nobodys_way, NULL);
}
END_TEST

static void leaves(int channel, void *argument)
{
	void *ptr;

	join("leaves");
	OK(gpumem_host_alloc(session, LIMIT - 4 * MIB, NULL, &ptr));
	gm_text_say_word(channel, 'h');
	gm_hear_word(channel, 'e');
	gpumem_disconnect(session);
}

/* Its stream may wait for what the program does with the memory that it waits for. */
static void waits_for_others(int channel, void *argument)
{
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	gpumem_buffer *buffer;
	uint8_t *bytes = pattern(BYTES, 1);
	void *ptr;

	fake_gate_prepare();
	join("waits for others");
	use_gpu_of(0);
	OK(gpumem_buffer_create(session, 0, BYTES, NULL, &buffer));
	make_ring(buffer, bytes);
	options.wait_ms = GPUMEM_WAIT_FOREVER;
	OK(gpumem_host_alloc(session, 32 * MIB, &options, &ptr));
	GM_REQUIRE_EQ(registered(), 2 * registers());
	setenv("GPUMEM_FAKE_FAIL", "", 1);
	gpumem_disconnect(session);
	free(bytes);
}

START_TEST(a_request_that_waits_leaves_the_ring_alone_as_long_as_others_give_memory)
{
	struct gm_worker holder, waiter;

	gm_worker_start(&holder, leaves, NULL);
	gm_hear_word(holder.channel, 'h');
	gm_worker_start(&waiter, waits_for_others, NULL);
	GM_UNTIL(gm_queue_wait(&daemon_) == 1);
	end_worker(&holder);
	gm_worker_join(&waiter);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("copy_faults");
	TCase *tc = tcase_create("faults");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 240);
	tcase_add_loop_test(tc, a_copy_that_fails_halfway_says_what_arrived, 0,
		sizeof(faults) / sizeof(*faults));
	tcase_add_test(tc, a_copy_back_that_fails_halfway_says_what_arrived);
	tcase_add_test(tc, memory_that_cannot_be_pinned_is_done_without);
	tcase_add_test(tc, no_registration_ends_while_a_kernel_has_an_end_of_a_ring);
	tcase_add_test(tc, others_go_on_while_the_driver_ends_the_registration_of_a_freed_block);
	tcase_add_test(
		tc, a_request_that_waits_leaves_the_ring_alone_as_long_as_others_give_memory);
	suite_add_tcase(suite, tc);

	tc = tcase_create("rings");
	tcase_add_checked_fixture(tc, set_up_hasty, tear_down);
	tcase_set_timeout(tc, 240);
	tcase_add_loop_test(tc,
		a_ring_that_stays_registered_is_used_again_and_is_not_in_the_programs_way, 0,
		N_WISHES);
	tcase_add_test(tc, others_get_memory_back_while_the_driver_ends_a_ring);
	suite_add_tcase(suite, tc);

	tc = tcase_create("hands");
	tcase_add_checked_fixture(tc, set_up_patient, tear_down);
	tcase_set_timeout(tc, 240);
	tcase_add_loop_test(
		tc, a_ring_that_the_library_ends_just_now_is_not_in_the_programs_way, 0, 2);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
