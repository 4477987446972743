/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Pinned host memory from the broker: a private daemon and real worker processes that write it with
 * the CPU and copy it with a GPU (on the host backend, copying is the CPU's work, too).
 */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/pinned.h"
#include "tests/gpu/worker.h"
#include "tests/tap.h"

#define UID_A 54321

/* By the GPU, unless there is none. */
static void copy(void *to, const void *from, uint64_t bytes)
{
	if (on_host()) {
		memcpy(to, from, bytes);
		return;
	}
	CU(cuda->cuMemcpyAsync((gm_cu_ptr)(uintptr_t)to, (gm_cu_ptr)(uintptr_t)from, bytes, NULL));
	CU(cuda->cuStreamSynchronize(NULL));
}

static void set(void *ptr, uint64_t bytes, unsigned char value)
{
	if (on_host()) {
		memset(ptr, value, bytes);
		return;
	}
	/* A real driver refuses to set more than one chunk of its own at a time. */
	for (uint64_t at = 0; at < bytes; at += 2 * MIB)
		CU(cuda->cuMemsetD8Async((gm_cu_ptr)(uintptr_t)ptr + at, value,
			bytes - at < 2 * MIB ? bytes - at : 2 * MIB, NULL));
	CU(cuda->cuStreamSynchronize(NULL));
}

static bool all_are(const void *ptr, uint64_t bytes, unsigned char value)
{
	const unsigned char *at = ptr;
	for (uint64_t i = 0; i < bytes; i++)
		if (at[i] != value)
			return false;
	return true;
}

/* ---- what it is for */

static void sender(int channel, void *argument)
{
	gpumem_buffer *buffer;
	gpumem_token token;
	unsigned char *host;
	join("sender");
	use_gpu_of(0);
	OK(gpumem_host_alloc(session, 5 * MIB, NULL, (void **)&host));
	GM_REQUIRE_EQ((uintptr_t)host % 256, 0);
	for (uint64_t i = 0; i < 5 * MIB; i++)
		host[i] = (unsigned char)(i * 7 + (i >> 12));
	OK(gpumem_buffer_create(session, 0, 5 * MIB, NULL, &buffer));
	copy(gpumem_buffer_ptr(buffer), host, 5 * MIB);
	OK(gpumem_host_free(session, host));
	OK(gpumem_share(buffer, NULL, &token));
	gm_text_say(channel, &token, sizeof(token));
	gm_hear_word(channel, 'e');
	gpumem_disconnect(session);
	GM_REQUIRE_EQ(registered(), 0);
}

static void receiver(int channel, void *argument)
{
	gpumem_buffer *buffer;
	gpumem_token token;
	unsigned char *host;
	gm_hear(channel, &token, sizeof(token));
	join("receiver");
	use_gpu_of(0);
	OK(gpumem_open(session, &token, &buffer));
	OK(gpumem_host_alloc(session, 5 * MIB, NULL, (void **)&host));
	memset(host, 0, 5 * MIB);
	copy(host, gpumem_buffer_ptr(buffer), 5 * MIB);
	for (uint64_t i = 0; i < 5 * MIB; i++)
		GM_REQUIRE_EQ(host[i], (unsigned char)(i * 7 + (i >> 12)));
	gpumem_disconnect(session);
	GM_REQUIRE_EQ(registered(), 0);
}

static void pass_token(gm_worker_fn from, gm_worker_fn to, void *argument)
{
	struct gm_worker a, b;
	gpumem_token token;
	gm_worker_start(&a, from, argument);
	gm_worker_start(&b, to, argument);
	gm_hear(a.channel, &token, sizeof(token));
	gm_text_say(b.channel, &token, sizeof(token));
	gm_worker_join(&b);
	end_worker(&a);
}

START_TEST(what_the_cpu_writes_a_gpu_copies_and_another_process_reads)
{
	pass_token(sender, receiver, NULL);
}
END_TEST

static void host_maker(int channel, void *argument)
{
	gpumem_buffer *buffer;
	gpumem_token token;
	gpumem_share_options options = GPUMEM_SHARE_OPTIONS_INIT;
	if (argument)
		options.mode = GPUMEM_SHARE_READ_ONLY;
	join("maker");
	use_gpu_of(0);
	OK(gpumem_buffer_create(session, GPUMEM_DEVICE_HOST, 6 * MIB, NULL, &buffer));
	GM_REQUIRE_EQ(gpumem_buffer_device(buffer), GPUMEM_DEVICE_HOST);
	GM_REQUIRE(all_are(gpumem_buffer_ptr(buffer), 6 * MIB, 0)); /* it is new */
	memset(gpumem_buffer_ptr(buffer), 0x11, 6 * MIB);
	OK(gpumem_share(buffer, &options, &token));
	gm_text_say(channel, &token, sizeof(token));
	gm_hear_word(channel, 'e');
	GM_REQUIRE(all_are(gpumem_buffer_ptr(buffer), 6 * MIB, argument ? 0x11 : 0x22));
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
	GM_REQUIRE_EQ(registered(), 0);
}

static void host_opener(int channel, void *argument)
{
	gpumem_buffer *buffer;
	gpumem_token token;
	unsigned char *mine;
	gm_hear(channel, &token, sizeof(token));
	join("opener");
	use_gpu_of(0);
	OK(gpumem_open(session, &token, &buffer));
	GM_REQUIRE_EQ(gpumem_buffer_device(buffer), GPUMEM_DEVICE_HOST);
	GM_REQUIRE(all_are(gpumem_buffer_ptr(buffer), 6 * MIB, 0x11));
	OK(gpumem_host_alloc(session, 6 * MIB, NULL, (void **)&mine));
	copy(mine, gpumem_buffer_ptr(buffer), 6 * MIB); /* the GPU reads it */
	GM_REQUIRE(all_are(mine, 6 * MIB, 0x11));
	if (!argument)
		set(gpumem_buffer_ptr(buffer), 6 * MIB, 0x22); /* and writes it */
	gpumem_disconnect(session);
	GM_REQUIRE_EQ(registered(), 0);
}

START_TEST(a_pinned_buffer_is_one_memory_for_two_processes_and_a_gpu)
{
	pass_token(host_maker, host_opener, NULL);
}
END_TEST

START_TEST(a_pinned_buffer_can_be_shared_for_reading)
{
	pass_token(host_maker, host_opener, "read-only");
}
END_TEST

/* ---- the limit */

static void limited(int channel, void *argument)
{
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	void *pointers[LIMIT / (2 * MIB)], *further;
	size_t n = LIMIT / (2 * MIB);
	double pressure;
	gpumem_level level;
	join("limited");
	use_gpu_of(0);
	OK(gpumem_device_info(session, GPUMEM_DEVICE_HOST, &info));
	GM_REQUIRE_EQ(info.number, GPUMEM_DEVICE_HOST);
	GM_REQUIRE_EQ(info.total, LIMIT);
	GM_REQUIRE_EQ(info.capacity, LIMIT);
	for (size_t i = 0; i < n; i++) {
		OK(gpumem_host_alloc(session, 2 * MIB, NULL, &pointers[i]));
		memset(pointers[i], (int)i + 1, 2 * MIB);
	}
	GM_REQUIRE_EQ(gpumem_host_alloc(session, 1, NULL, &further), GPUMEM_E_NO_MEMORY);
	for (size_t i = 0; i < n; i++)
		GM_REQUIRE(all_are(pointers[i], 2 * MIB, (unsigned char)(i + 1)));
	OK(gpumem_stats(session, GPUMEM_DEVICE_HOST, &stats));
	GM_REQUIRE_EQ(stats.in_use, LIMIT);
	GM_REQUIRE_EQ(stats.allocated, LIMIT);
	GM_REQUIRE_EQ(stats.active_buffers, n);
	GM_REQUIRE_EQ(now().leased, LIMIT);
	GM_UNTIL(gpumem_pressure(session, GPUMEM_DEVICE_HOST, &pressure, &level) == GPUMEM_OK &&
		 level == GPUMEM_LEVEL_CRITICAL);
	/* The devices' own are another matter. */
	OK(gpumem_alloc(session, 0, 4 * MIB, NULL, NULL, &further));
	OK(gpumem_free(session, further, GPUMEM_STREAM_DONE));
	for (size_t i = 0; i < n; i++)
		OK(i % 2 ? gpumem_host_free(session, pointers[i])
			 : gpumem_free(session, pointers[i], GPUMEM_STREAM_DONE));
	/* A GPU may take a moment to say that it does nothing. */
	GM_UNTIL(gpumem_host_alloc(session, LIMIT, NULL, &further) == GPUMEM_OK);
	memset(further, 0x7f, LIMIT);
	OK(gpumem_host_free(session, further));
	GM_UNTIL(gpumem_trim(session, NULL) == GPUMEM_OK && now().leased == 0);
	GM_REQUIRE_EQ(registered(), 0);
	gpumem_disconnect(session);
}

START_TEST(the_limit_is_used_to_the_last_chunk_and_no_further)
{
	one_worker(limited, NULL);
}
END_TEST

/* ---- life and death */

static void holder(int channel, void *argument)
{
	void *ptr;
	join("holder");
	use_gpu_of(0);
	OK(gpumem_host_alloc(session, 48 * MIB, NULL, &ptr));
	memset(ptr, 0x33, 48 * MIB);
	gm_text_say_word(channel, 'h');
	gm_hear_word(channel, 'e');
	gpumem_disconnect(session);
}

static void finder(int channel, void *argument)
{
	gpumem_buffer *buffer;
	if (argument)
		become(UID_A);
	join("finder");
	use_gpu_of(0);
	OK(gpumem_buffer_create(session, GPUMEM_DEVICE_HOST, 48 * MIB, NULL, &buffer));
	unsigned char found = *(unsigned char *)gpumem_buffer_ptr(buffer);
	GM_REQUIRE(all_are(gpumem_buffer_ptr(buffer), 48 * MIB, found));
	gm_text_say(channel, &found, 1);
	gpumem_disconnect(session);
}

/* The byte that a process finds in all of what it gets. */
static unsigned char find(void *other_uid)
{
	struct gm_worker worker;
	unsigned char found;
	gm_worker_start(&worker, finder, other_uid);
	gm_hear(worker.channel, &found, 1);
	gm_worker_join(&worker);
	return found;
}

START_TEST(a_killed_workers_memory_is_back_and_never_reused)
{
	struct gm_worker hold;
	gm_worker_start(&hold, holder, NULL);
	gm_hear_word(hold.channel, 'h');
	GM_REQUIRE_EQ(now().leased, 48 * MIB);
	gm_worker_kill(&hold);
	GM_UNTIL(now().available == LIMIT);
	GM_REQUIRE_EQ(now().pooled, 0);
	GM_REQUIRE_EQ(find(NULL), 0);
}
END_TEST

START_TEST(pooled_chunks_are_reused_within_a_domain_and_by_nobody_else)
{
	struct gm_worker hold;
	gm_worker_start(&hold, holder, NULL);
	gm_hear_word(hold.channel, 'h');
	end_worker(&hold);
	GM_UNTIL(now().pooled == 48 * MIB);
	GM_REQUIRE_EQ(find(NULL), 0x33);
	GM_UNTIL(now().pooled == 48 * MIB);
	if (gm_tap_has_users())
		GM_REQUIRE_EQ(find("other uid"), 0);
}
END_TEST

START_TEST(a_worker_uses_it_on_while_the_daemon_is_dead)
{
	struct gm_worker hold;
	gm_worker_start(&hold, holder, NULL);
	gm_hear_word(hold.channel, 'h');
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	end_worker(&hold);
}
END_TEST

/* ---- streams */

static void busy(int channel, void *argument)
{
	gm_cu_stream stream;
	void *host, *device, *other;
	unsigned char check[16];
	use_gpu_of(0);
	join("busy");
	CU(cuda->cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	OK(gpumem_alloc(session, 0, 4 * MIB, stream, NULL, &device));
	OK(gpumem_host_alloc(session, 4 * MIB, NULL, &host));
	memset(host, 0x55, 4 * MIB);
	keep_busy(stream);
	CU(cuda->cuMemcpyAsync(
		(gm_cu_ptr)(uintptr_t)device, (gm_cu_ptr)(uintptr_t)host, 4 * MIB, stream));
	/* The copy has not begun. Freeing does not wait for it, and nobody gets the memory. */
	if (argument)
		OK(gpumem_free(session, host, stream));
	else
		OK(gpumem_host_free(session, host));
	for (int i = 0; i < 8; i++) {
		OK(gpumem_host_alloc(session, 4 * MIB, NULL, &other));
		GM_REQUIRE(other != host);
		memset(other, 0x66, 4 * MIB);
	}
	OK(gpumem_trim(session, NULL));
	open_gate();
	CU(cuda->cuMemcpyAsync((gm_cu_ptr)(uintptr_t)check,
		(gm_cu_ptr)(uintptr_t)device + 4 * MIB - sizeof(check), sizeof(check), stream));
	CU(cuda->cuStreamSynchronize(stream));
	GM_REQUIRE(all_are(check, sizeof(check), 0x55));
	OK(gpumem_free(session, device, stream));
	CU(cuda->cuStreamSynchronize(stream));
	/* Now it can be had again, or goes back. */
	GM_UNTIL(gpumem_trim(session, NULL) == GPUMEM_OK && now().leased == 32 * MIB);
	gpumem_disconnect(session);
	GM_REQUIRE_EQ(registered(), 0);
}

START_TEST(freeing_does_not_wait_and_reuse_does)
{
	one_worker(busy, _i ? "on its stream" : NULL);
}
END_TEST

/* ---- graphs */

static void capturer(int channel, void *argument)
{
	enum { N = 8 };
	unsigned char *host, *other;
	uint64_t graph;
	void *device;
	join("capturer");
	use_gpu_of(0);
	gm_cu_stream stream = stream_new();
	OK(gpumem_host_alloc(session, 4 * MIB, NULL, (void **)&host));
	OK(gpumem_alloc(session, 0, 4 * MIB, NULL, NULL, &device));
	memset(host, 0x61, 4 * MIB);
	begin_capture(stream);
	OK(gpumem_graph_of(session, 0, stream, &graph));
	CU(cuda->cuMemcpyAsync(
		(gm_cu_ptr)(uintptr_t)device, (gm_cu_ptr)(uintptr_t)host, 4 * MIB, stream));
	OK(gpumem_free(session, host, stream));
	void *runnable = end_capture(stream);

	/* Each launch reads there, so nobody else gets it, and it does not go back. */
	GM_REQUIRE_EQ(gpumem_host_free(session, host), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gpumem_free(session, host, stream), GPUMEM_E_INVALID);
	for (int i = 0; i < N; i++) {
		OK(gpumem_host_alloc(session, 4 * MIB, NULL, (void **)&other));
		GM_REQUIRE(other != host);
		memset(other, 0x62, 4 * MIB);
		OK(gpumem_free(session, other, GPUMEM_STREAM_DONE));
		OK(gpumem_trim(session, NULL));
	}
	GM_REQUIRE(all_are(host, 4 * MIB, 0x61));
	if (runnable) {
		gm_cu_result (*launch)(void *, gm_cu_stream) =
			(gm_cu_result(*)(void *, gm_cu_stream))driver_symbol("cuGraphLaunch");
		CU(launch(runnable, stream));
		GM_REQUIRE(all(device, 4 * MIB, 0x61, stream));
	}
	OK(gpumem_graph_gone(session, graph));
	GM_REQUIRE_EQ(gpumem_host_free(session, host), GPUMEM_E_INVALID);
	CU(cuda->cuStreamSynchronize(stream));
	GM_UNTIL(gpumem_trim(session, NULL) == GPUMEM_OK && now().leased == 0);
	gpumem_disconnect(session);
	GM_REQUIRE_EQ(registered(), 0);
}

START_TEST(what_a_captured_graph_reads_stays_until_the_graph_is_gone)
{
	one_worker(capturer, NULL);
}
END_TEST

/* ---- several GPUs */

static void second(int channel, void *argument)
{
	unsigned int flags;
	int active, count;
	unsigned char *host;
	void *device;
	use_gpu_of(1);
	CU(cuda->cuDeviceGetCount(&count));
	GM_REQUIRE(count >= 2);
	join("second");
	OK(gpumem_host_alloc(session, 3 * MIB, NULL, (void **)&host));
	memset(host, 0x77, 3 * MIB);
	OK(gpumem_alloc(session, 1, 3 * MIB, NULL, NULL, &device));
	copy(device, host, 3 * MIB);
	memset(host, 0, 3 * MIB);
	copy(host, device, 3 * MIB);
	GM_REQUIRE(all_are(host, 3 * MIB, 0x77));
	OK(gpumem_host_free(session, host));
	OK(gpumem_trim(session, NULL));
	CU(cuda->cuDevicePrimaryCtxGetState(0, &flags, &active));
	GM_REQUIRE(!active); /* the other GPU was none of this process's business */
	gpumem_disconnect(session);
	GM_REQUIRE_EQ(registered(), 0);
}

START_TEST(only_the_gpu_that_is_used_gets_a_context)
{
	one_worker(second, NULL);
}
END_TEST

/* ---- waiting */

static void patient(int channel, void *argument)
{
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	void *ptr;
	join("patient");
	use_gpu_of(0);
	options.wait_ms = 1;
	GM_REQUIRE_EQ(gpumem_host_alloc(session, 32 * MIB, &options, &ptr), GPUMEM_E_TIMEOUT);
	gm_text_say_word(channel, 't');
	options.wait_ms = GPUMEM_WAIT_FOREVER;
	OK(gpumem_host_alloc(session, 32 * MIB, &options, &ptr));
	memset(ptr, 0x44, 32 * MIB);
	OK(gpumem_host_free(session, ptr));
	gpumem_disconnect(session);
}

START_TEST(a_call_that_waits_gets_what_another_process_gives_back)
{
	struct gm_worker a, b;
	gm_worker_start(&a, holder, NULL);
	gm_hear_word(a.channel, 'h');
	gm_worker_start(&b, patient, NULL);
	gm_hear_word(b.channel, 't'); /* what waits from here on waits for ever */
	GM_UNTIL(gm_queue_wait(&daemon_) == 1);
	end_worker(&a);
	gm_worker_join(&b);
}
END_TEST

/* ---- what bad input gets */

static void batcher(int channel, void *argument)
{
	const gpumem_batch_entry entries[] = {
		{3 * MIB + 1, 0, "a"}, {5 * MIB, 4096, "b"}, {7, 0, NULL}};
	gpumem_batch_entry many[] = {{40 * MIB, 0, NULL}, {40 * MIB, 0, NULL}};
	gpumem_batch_options options = GPUMEM_BATCH_OPTIONS_INIT;
	gpumem_batch *batch, *none = NULL;
	gpumem_buffer *buffer;
	size_t failed;
	join("batcher");
	use_gpu_of(0);
	OK(gpumem_batch_create(session, GPUMEM_DEVICE_HOST, entries, 3, NULL, &batch));
	GM_REQUIRE_EQ(gpumem_batch_device(batch), GPUMEM_DEVICE_HOST);
	OK(gpumem_buffer_create(session, 0, 5 * MIB, NULL, &buffer));
	for (size_t i = 0; i < 3; i++)
		memset(gpumem_batch_ptr(batch, i), (int)(i + 1), entries[i].bytes);
	/* In one copy each, from the CPU to the GPU and back. */
	copy(gpumem_buffer_ptr(buffer), gpumem_batch_ptr(batch, 1), 5 * MIB);
	memset(gpumem_batch_ptr(batch, 1), 0, 5 * MIB);
	copy(gpumem_batch_ptr(batch, 1), gpumem_buffer_ptr(buffer), 5 * MIB);
	for (size_t i = 0; i < 3; i++)
		GM_REQUIRE(all_are(
			gpumem_batch_ptr(batch, i), entries[i].bytes, (unsigned char)(i + 1)));

	/* host_limit is 64 MiB, and the first batch has some of it. */
	options.ret_failed = &failed;
	GM_REQUIRE(gpumem_batch_create(session, GPUMEM_DEVICE_HOST, many, 2, &options, &none));
	GM_REQUIRE_EQ(failed, 1);

	OK(gpumem_batch_free_entry(batch, 0, GPUMEM_STREAM_ANY));
	gpumem_batch_destroy(batch);
	GM_UNTIL(now().leased == 0);
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
	GM_REQUIRE_EQ(registered(), 0);
}

START_TEST(a_batch_of_pinned_memory_is_written_and_copied)
{
	one_worker(batcher, NULL);
}
END_TEST

static void wrong(int channel, void *argument)
{
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	gpumem_alloc_options unset = {0};
	void *host, *device, *none = NULL;
	join("wrong");
	use_gpu_of(0);
	GM_REQUIRE_EQ(counted, pinned);
	GM_REQUIRE_EQ(gpumem_device_info(session, pinned, &info), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(gpumem_alloc(session, pinned, 1, NULL, NULL, &none), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(
		gpumem_alloc(session, GPUMEM_DEVICE_HOST, 1, NULL, NULL, &none), GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gpumem_error_detail(), "allocate it as host memory"));
	GM_REQUIRE_EQ(gpumem_host_alloc(session, 0, NULL, &none), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gpumem_host_alloc(session, 1, NULL, NULL), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gpumem_host_alloc(NULL, 1, NULL, &none), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gpumem_host_alloc(session, 1, &unset, &none), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gpumem_host_alloc(session, LIMIT + 1, NULL, &none), GPUMEM_E_NO_MEMORY);
	GM_REQUIRE(!none);
	OK(gpumem_host_alloc(session, 100, NULL, &host));
	OK(gpumem_alloc(session, 0, 100, NULL, NULL, &device));
	GM_REQUIRE_EQ(gpumem_host_free(session, device), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gpumem_host_free(session, &host), GPUMEM_E_INVALID);
	OK(gpumem_host_free(session, NULL));
	OK(gpumem_host_free(session, host));
	GM_REQUIRE_EQ(gpumem_host_free(session, host), GPUMEM_E_INVALID);
	OK(gpumem_free(session, device, GPUMEM_STREAM_DONE));
	gpumem_disconnect(session);
}

START_TEST(wrong_calls_are_refused)
{
	one_worker(wrong, NULL);
}
END_TEST

static void denied(int channel, void *argument)
{
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	gpumem_buffer *buffer;
	void *host, *device;
	join("denied");
	use_gpu_of(0);
	GM_REQUIRE_EQ(gpumem_host_alloc(session, 1, NULL, &host), GPUMEM_E_UNSUPPORTED);
	GM_REQUIRE(strstr(gpumem_error_detail(), "host_limit"));
	GM_REQUIRE_EQ(gpumem_buffer_create(session, GPUMEM_DEVICE_HOST, 1, NULL, &buffer),
		GPUMEM_E_UNSUPPORTED);
	GM_REQUIRE_EQ(gpumem_stats(session, GPUMEM_DEVICE_HOST, &stats), GPUMEM_E_UNSUPPORTED);
	OK(gpumem_alloc(session, 0, 1, NULL, NULL, &device));
	gpumem_disconnect(session);
}

START_TEST(a_limit_of_0_turns_it_off)
{
	start_with(CONFIG("host_limit = 0\n"));
	one_worker(denied, NULL);
}
END_TEST

static void blind(int channel, void *argument)
{
	void *host;
	setenv("CUDA_VISIBLE_DEVICES", "", 1);
	join("blind");
	gpumem_status status = gpumem_host_alloc(session, 3 * MIB, NULL, &host);
	if (on_host() || registers()) {
		OK(status);
		memset(host, 1, 3 * MIB);
	} else {
		GM_REQUIRE_EQ(status, GPUMEM_E_UNSUPPORTED);
		GM_REQUIRE(strstr(gpumem_error_detail(), "pinned host memory cannot be used"));
	}
	gpumem_disconnect(session);
}

START_TEST(a_process_without_a_gpu_gets_what_it_can_use)
{
	one_worker(blind, NULL);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("pinned host memory");
	TCase *t = tcase_create(on_host() ? "host" : registers() ? "registered" : "shared");
	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, what_the_cpu_writes_a_gpu_copies_and_another_process_reads);
	tcase_add_test(t, a_pinned_buffer_is_one_memory_for_two_processes_and_a_gpu);
	tcase_add_test(t, a_pinned_buffer_can_be_shared_for_reading);
	tcase_add_test(t, the_limit_is_used_to_the_last_chunk_and_no_further);
	tcase_add_test(t, a_killed_workers_memory_is_back_and_never_reused);
	tcase_add_test(t, pooled_chunks_are_reused_within_a_domain_and_by_nobody_else);
	tcase_add_test(t, a_worker_uses_it_on_while_the_daemon_is_dead);
	tcase_add_test(t, a_call_that_waits_gets_what_another_process_gives_back);
	tcase_add_test(t, a_batch_of_pinned_memory_is_written_and_copied);
	tcase_add_test(t, wrong_calls_are_refused);
	tcase_add_test(t, a_process_without_a_gpu_gets_what_it_can_use);
	/* What has nothing to test somewhere is not run there: it would count as passed. On host
	 * memory nothing is ever under way; elsewhere it takes two GPUs. */
	if (!on_host()) {
		tcase_add_loop_test(t, freeing_does_not_wait_and_reuse_does, 0, 2);
		tcase_add_test(t, what_a_captured_graph_reads_stays_until_the_graph_is_gone);
	}
	if (on_fake() && !on_host())
		tcase_add_test(t, only_the_gpu_that_is_used_gets_a_context);
	suite_add_tcase(s, t);
	t = tcase_create("off");
	tcase_set_timeout(t, 120);
	tcase_add_checked_fixture(t, NULL, tear_down);
	tcase_add_test(t, a_limit_of_0_turns_it_off);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return gm_tap_run(suite());
}
