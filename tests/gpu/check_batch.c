/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Batches on GPUs: entries in which the GPU computes, on both transports and in pinned host memory,
 * and entries that are freed while the GPU is at work. See broker.h.
 */

#include "tests/gpu/broker.h"

#define N     6
#define BYTES (3 * MIB)

static gpumem_batch_entry entries[N];

static gpumem_batch *create_batch(uint32_t device, gpumem_transport transport)
{
	gpumem_batch_options options = GPUMEM_BATCH_OPTIONS_INIT;
	gpumem_batch *batch;
	options.transport = transport;
	for (size_t i = 0; i < N; i++)
		entries[i] = (gpumem_batch_entry){BYTES + i, (size_t)512 << 2 * i, "an entry"};
	OK(gpumem_batch_create(session, device, entries, N, &options, &batch));
	return batch;
}

static void all_back(void)
{
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
}

/* ---- entries are memory */

struct place {
	const char *config;
	uint32_t device;
	gpumem_transport transport;
};

static void computer(int channel, void *argument)
{
	const struct place *place = argument;
	join("computer");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gpumem_batch *batch = create_batch(place->device, place->transport);
	for (size_t i = 0; i < N; i++) {
		GM_REQUIRE_EQ((uintptr_t)gpumem_batch_ptr(batch, i) % entries[i].alignment, 0);
		if (place->device == GPUMEM_DEVICE_HOST)
			memset(gpumem_batch_ptr(batch, i), (int)(i + 1), BYTES + i);
		else
			fill(gpumem_batch_ptr(batch, i), BYTES + i, (unsigned char)(i + 1), stream);
	}
	for (size_t i = 0; i < N; i += 2)
		OK(gpumem_batch_free_entry(batch, i, stream));
	for (size_t i = 1; i < N; i += 2)
		GM_REQUIRE(
			all(gpumem_batch_ptr(batch, i), BYTES + i, (unsigned char)(i + 1), stream));
	gpumem_batch_destroy(batch);
	all_back();
	gpumem_disconnect(session);
}

START_TEST(the_gpu_computes_in_the_entries_of_a_batch)
{
	static const struct place places[] = {
		{CONFIG(""), 0, GPUMEM_TRANSPORT_FD},
		{IPC_CONFIG, 0, GPUMEM_TRANSPORT_IPC},
		{CONFIG("host_limit = 64M\n"), GPUMEM_DEVICE_HOST, GPUMEM_TRANSPORT_AUTO},
		{CONFIG("host_limit = 64M\nhost_memory = memfd\n"), GPUMEM_DEVICE_HOST,
			GPUMEM_TRANSPORT_AUTO},
	};
	struct place place = places[_i];
	start_with(place.config);
	one_worker(computer, &place);
	tear_down();
}
END_TEST

static void too_greedy(int channel, void *argument)
{
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	gpumem_batch_options options = GPUMEM_BATCH_OPTIONS_INIT;
	gpumem_batch *batch = NULL;
	size_t failed = 0;
	join("too greedy");
	use_gpu();
	OK(gpumem_device_info(session, 0, &info));
	for (size_t i = 0; i < N; i++)
		entries[i] = (gpumem_batch_entry){info.available / 100 * 22, 0, NULL};
	options.ret_failed = &failed;
	REFUSED(gpumem_batch_create(session, 0, entries, N, &options, &batch), GPUMEM_E_NO_MEMORY,
		"entry 4 of the batch");
	GM_REQUIRE_EQ(failed, 4);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, 0);
	gpumem_disconnect(session);
}

START_TEST(the_entry_that_a_gpu_has_no_room_for_is_named)
{
	start_with(CONFIG(""));
	one_worker(too_greedy, NULL);
	tear_down();
}
END_TEST

/* ---- the GPU is at work */

enum how { LAST_ENTRY, DESTROYED, HOWS };

static void freed_at_work(int channel, void *argument)
{
	const enum how how = *(const int *)argument;
	join("at work");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gpumem_batch *batch = create_batch(0, GPUMEM_TRANSPORT_AUTO);
	uint64_t leased = gm_figures_now(&daemon_).leased;
	GM_REQUIRE(leased > 0);
	keep_busy(stream);
	for (size_t i = 0; i < N; i++)
		fill(gpumem_batch_ptr(batch, i), BYTES + i, 1, stream);

	/* Nothing of this waits for the gate. */
	for (size_t i = 0; i < N && how == LAST_ENTRY; i++)
		OK(gpumem_batch_free_entry(batch, i, stream));
	gpumem_batch_destroy(batch);
	OK(gpumem_trim(session, NULL));
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leased, leased);

	open_gate();
	CU(cuda->cuStreamSynchronize(stream)); /* it had its memory to the end */
	all_back();
	gpumem_disconnect(session);
}

START_TEST(a_batch_that_is_freed_under_the_gpus_work_goes_back_after_it)
{
	int how = _i % HOWS;
	start_with(_i < HOWS ? CONFIG("") : IPC_CONFIG);
	one_worker(freed_at_work, &how);
	tear_down();
}
END_TEST

static void capturer(int channel, void *argument)
{
	join("capturer");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gm_cu_result (*launch)(void *, gm_cu_stream) =
		(gm_cu_result(*)(void *, gm_cu_stream))driver_symbol("cuGraphLaunch");
	gpumem_batch *batch = create_batch(0, GPUMEM_TRANSPORT_AUTO);
	void *ptr = gpumem_batch_ptr(batch, 0);

	begin_capture(stream);
	fill(ptr, BYTES, 0x5c, stream);
	for (size_t i = 0; i < N; i++)
		OK(gpumem_batch_free_entry(batch, i, stream));
	void *runnable = end_capture(stream); /* nothing of ours broke it */

	OK(gpumem_trim(session, NULL));
	GM_REQUIRE(gm_figures_now(&daemon_).leased > 0);
	if (runnable) {
		CU(launch(runnable, stream));
		GM_REQUIRE(all(ptr, BYTES, 0x5c, stream));
	}
	gpumem_batch_destroy(batch);
	CU(cuda->cuStreamSynchronize(stream));
	all_back();
	gpumem_disconnect(session);
}

START_TEST(entries_freed_in_a_capture_stay_until_the_batch_is_destroyed)
{
	start_with(CONFIG(""));
	one_worker(capturer, NULL);
	tear_down();
}
END_TEST

/* ---- the daemon is away */

static void survivor(int channel, void *argument)
{
	join("survivor");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gpumem_batch *batch = create_batch(0, GPUMEM_TRANSPORT_AUTO);
	for (size_t i = 0; i < N; i++)
		fill(gpumem_batch_ptr(batch, i), BYTES + i, (unsigned char)(i + 1), stream);
	gm_text_say_word(channel, 'm');
	gm_hear_word(channel, 'k');
	OK(gpumem_batch_free_entry(batch, 0, stream));
	for (size_t i = 1; i < N; i++)
		GM_REQUIRE(
			all(gpumem_batch_ptr(batch, i), BYTES + i, (unsigned char)(i + 1), stream));
	gm_text_say_word(channel, 'r');
	gm_hear_word(channel, 'u');
	gpumem_batch_destroy(create_batch(0, GPUMEM_TRANSPORT_AUTO));
	for (size_t i = 1; i < N; i++)
		OK(gpumem_batch_free_entry(batch, i, stream));
	all_back();
	gpumem_batch_destroy(batch);
	gpumem_disconnect(session);
}

START_TEST(a_batch_outlives_a_daemon_that_is_killed)
{
	struct gm_worker worker;
	start_with(CONFIG(""));
	gm_worker_start(&worker, survivor, NULL);
	gm_hear_word(worker.channel, 'm');
	gm_daemon_kill(&daemon_);
	gm_text_say_word(worker.channel, 'k');
	gm_hear_word(worker.channel, 'r');
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	gm_text_say_word(worker.channel, 'u');
	gm_worker_join(&worker);
	tear_down();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("batch");
	TCase *tc = tcase_create("batch");
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, the_gpu_computes_in_the_entries_of_a_batch, 0, 4);
	tcase_add_test(tc, the_entry_that_a_gpu_has_no_room_for_is_named);
	tcase_add_loop_test(
		tc, a_batch_that_is_freed_under_the_gpus_work_goes_back_after_it, 0, 2 * HOWS);
	tcase_add_test(tc, entries_freed_in_a_capture_stay_until_the_batch_is_destroyed);
	tcase_add_test(tc, a_batch_outlives_a_daemon_that_is_killed);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
