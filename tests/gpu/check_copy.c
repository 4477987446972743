/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Transfers to and from GPUs: on both transports, in the order of streams, while a stream is busy or
 * captured, in a context of the program's own, from several threads, and from a file. See pinned.h.
 */

#include <fcntl.h>
#include <pthread.h>

#include "tests/gpu/pinned.h"
#include "tests/integration/transfer.h"
#include "tests/scratch.h"
#include "tests/tap.h"

#define BYTES (9 * MIB + 4321)

static gpumem_copy_options by(gpumem_copy_strategy strategy)
{
	return by_threads(strategy, 3, 5, MIB);
}

/* The buffer has these bytes from its start, once the device has done all. */
static void require_there(gpumem_buffer *buffer, const uint8_t *bytes, size_t n)
{
	uint8_t *there = malloc(n);
	GM_REQUIRE(there);
	CU(cuda->cuCtxSynchronize());
	CU(cuda->cuMemcpyAsync((gm_cu_ptr)(uintptr_t)there,
		(gm_cu_ptr)(uintptr_t)gpumem_buffer_ptr(buffer), n, NULL));
	CU(cuda->cuStreamSynchronize(NULL));
	GM_REQUIRE(memcmp(there, bytes, n) == 0);
	free(there);
}

static gpumem_buffer *create(uint64_t bytes, gpumem_transport transport)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer;
	options.transport = transport;
	OK(gpumem_buffer_create(session, 0, bytes, &options, &buffer));
	return buffer;
}

/* ---- both transports, every strategy, every way to name a stream */

static void copier(int channel, void *argument)
{
	static const gpumem_copy_strategy strategies[] = {
		GPUMEM_COPY_AUTO, GPUMEM_COPY_SYNC, GPUMEM_COPY_STAGED};
	const gpumem_transport transport = *(const gpumem_transport *)argument;
	join("copier");
	use_gpu_of(0);
	gpumem_stream streams[] = {NULL, stream_new(), GPUMEM_STREAM_ANY, GPUMEM_STREAM_DONE,
		(gpumem_stream)(uintptr_t)GM_CU_STREAM_PER_THREAD};
	gpumem_buffer *buffer = create(BYTES, transport);
	uint8_t *to = malloc(BYTES);
	GM_REQUIRE(to);
	for (unsigned i = 0; i < 3; i++)
		for (unsigned s = 0; s < 5; s++) {
			gpumem_copy_options options = by(strategies[i]);
			gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
			uint8_t *from = pattern(BYTES, i * 7 + s);
			memset(to, 0, BYTES);
			OK(gpumem_copy_in(buffer, 0, from, BYTES, streams[s], &options, &result));
			GM_REQUIRE_EQ(result.bytes, BYTES);
			if (strategies[i] == GPUMEM_COPY_STAGED) {
				GM_REQUIRE_EQ(result.strategy, GPUMEM_COPY_STAGED);
				GM_REQUIRE_EQ(result.slots, 5);
			}
			if (strategies[i] == GPUMEM_COPY_AUTO)
				GM_REQUIRE_EQ(result.strategy,
					registers() ? GPUMEM_COPY_SYNC : GPUMEM_COPY_STAGED);
			require_there(buffer, from, BYTES);
			OK(gpumem_copy_out(buffer, 1, to, BYTES - 1, streams[s], &options, NULL));
			GM_REQUIRE(memcmp(to, from + 1, BYTES - 1) == 0);
			free(from);
		}
	free(to);
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
	GM_REQUIRE_EQ(registered(), 0);
}

START_TEST(bytes_arrive_on_both_transports)
{
	static const gpumem_transport transports[] = {GPUMEM_TRANSPORT_FD, GPUMEM_TRANSPORT_IPC};
	one_worker(copier, (void *)&transports[_i]);
}
END_TEST

/* ---- the order of streams */

struct on_stream {
	gpumem_buffer *buffer;
	const uint8_t *bytes;
	gm_cu_stream stream;
	gm_cu_ctx context;
	gpumem_copy_strategy strategy;
};

static void *copy_on_stream(void *ctx)
{
	const struct on_stream *on = ctx;
	gpumem_copy_options options = by(on->strategy);
	CU(cuda->cuCtxSetCurrent(on->context));
	OK(gpumem_copy_in(
		on->buffer, 0, on->bytes, BYTES, (gpumem_stream)on->stream, &options, NULL));
	return NULL;
}

static void waiter(int channel, void *argument)
{
	join("waiter");
	use_gpu_of(0);
	gpumem_copy_options options = by(GPUMEM_COPY_STAGED);
	gpumem_buffer *late = create(BYTES, GPUMEM_TRANSPORT_AUTO);
	gpumem_buffer *soon = create(BYTES, GPUMEM_TRANSPORT_AUTO);
	uint8_t *bytes = pattern(BYTES, 3);
	struct on_stream on = {.buffer = late,
		.bytes = bytes,
		.stream = stream_new(),
		.strategy = *(const gpumem_copy_strategy *)argument};
	pthread_t thread;
	CU(cuda->cuCtxGetCurrent(&on.context));
	keep_busy(on.stream);
	fill(gpumem_buffer_ptr(late), BYTES, 0x55, on.stream);
	GM_REQUIRE(pthread_create(&thread, NULL, copy_on_stream, &on) == 0);

	/* These do not wait for the gate, nor does the end of the memory that the first one went through. */
	for (unsigned i = 0; i < 3; i++)
		OK(gpumem_copy_in(soon, 0, bytes, BYTES, GPUMEM_STREAM_DONE, &options, NULL));
	open_gate();
	pthread_join(thread, NULL);
	require_there(soon, bytes, BYTES);
	/* What was set before the copy is not there any more. */
	require_there(late, bytes, BYTES);
	free(bytes);
	gpumem_disconnect(session);
}

START_TEST(a_copy_comes_after_the_work_on_its_stream_and_waits_for_no_other)
{
	static const gpumem_copy_strategy strategies[] = {GPUMEM_COPY_SYNC, GPUMEM_COPY_STAGED};
	one_worker(waiter, (void *)&strategies[_i]);
}
END_TEST

static void launcher(int channel, void *argument)
{
	join("launcher");
	use_gpu_of(0);
	gpumem_copy_options options = by(GPUMEM_COPY_ASYNC);
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	gpumem_buffer *buffer = create(8 * MIB, GPUMEM_TRANSPORT_AUTO);
	uint8_t *bytes = pattern(8 * MIB, 4);
	gm_cu_stream stream = stream_new();
	void *host;
	OK(gpumem_host_alloc(session, 8 * MIB, NULL, &host));
	memcpy(host, bytes, 8 * MIB);
	keep_busy(stream);
	fill(gpumem_buffer_ptr(buffer), 8 * MIB, 0x55, stream);
	/* Neither waits for the gate. */
	OK(gpumem_copy_in(buffer, 0, host, 8 * MIB, stream, &options, &result));
	GM_REQUIRE_EQ(result.strategy, GPUMEM_COPY_ASYNC);
	GM_REQUIRE_EQ(result.bytes, 8 * MIB);
	OK(gpumem_copy_out(buffer, 4 * MIB, host, 4 * MIB, stream, &options, NULL));
	open_gate();
	CU(cuda->cuStreamSynchronize(stream));
	require_there(buffer, bytes, 8 * MIB);
	GM_REQUIRE(memcmp(host, bytes + 4 * MIB, 4 * MIB) == 0);
	OK(gpumem_host_free(session, host));
	free(bytes);
	gpumem_disconnect(session);
}

START_TEST(an_asynchronous_copy_does_not_wait_for_its_stream)
{
	one_worker(launcher, NULL);
}
END_TEST

static void capturer(int channel, void *argument)
{
	static const gpumem_copy_strategy strategies[] = {
		GPUMEM_COPY_AUTO, GPUMEM_COPY_SYNC, GPUMEM_COPY_STAGED, GPUMEM_COPY_ASYNC};
	join("capturer");
	use_gpu_of(0);
	gpumem_buffer *buffer = create(8 * MIB, GPUMEM_TRANSPORT_AUTO);
	uint8_t *bytes = pattern(8 * MIB, 5);
	gm_cu_stream stream;
	CU(cuda->cuStreamCreate(&stream, 0)); /* one that waits for the default stream */
	begin_capture(stream);
	for (unsigned i = 0; i < 4; i++) {
		gpumem_copy_options options = by(strategies[i]);
		REFUSED(gpumem_copy_in(buffer, 0, bytes, 8 * MIB, stream, &options, NULL),
			GPUMEM_E_BUSY, "captured");
	}
	/* So is the default stream, which a stream that is captured may be waiting for. */
	for (unsigned i = 0; i < 4; i++) {
		gpumem_copy_options options = by(strategies[i]);
		REFUSED(gpumem_copy_in(buffer, 0, bytes, 8 * MIB, NULL, &options, NULL),
			GPUMEM_E_BUSY, "captured");
	}
	/* The capture is as it was. */
	(void)end_capture(stream);
	OK(gpumem_copy_in(buffer, 0, bytes, 8 * MIB, stream, NULL, NULL));
	require_there(buffer, bytes, 8 * MIB);
	free(bytes);
	gpumem_disconnect(session);
}

START_TEST(a_captured_stream_is_refused_and_the_capture_goes_on)
{
	one_worker(capturer, NULL);
}
END_TEST

struct surprise {
	gm_cu_stream captured; /* begins to be when the first bytes have arrived */
	uint64_t at;
};

static int begin_to_capture(void *user, uint64_t done, uint64_t total)
{
	struct surprise *surprise = user;
	if (!surprise->at && done) {
		surprise->at = done;
		begin_capture(surprise->captured);
	}
	return 0;
}

/* The copy's own stream, or one that waits for the default stream, which the copy is on. The library hears
 * of neither. */
static void surprised(int channel, void *argument)
{
	const bool own = *(const int *)argument & 1, out = *(const int *)argument & 2;
	join("surprised");
	use_gpu_of(0);
	struct surprise surprise = {0};
	gpumem_copy_options options = by(GPUMEM_COPY_STAGED);
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	gpumem_buffer *buffer = create(BYTES, GPUMEM_TRANSPORT_AUTO);
	uint8_t *bytes = pattern(BYTES, 5), *to = calloc(1, BYTES);
	GM_REQUIRE(to);
	CU(cuda->cuStreamCreate(&surprise.captured, 0));
	gpumem_stream stream = own ? (gpumem_stream)surprise.captured : NULL;
	fill(gpumem_buffer_ptr(buffer), BYTES, 0x55, NULL);
	if (out)
		OK(gpumem_copy_in(buffer, 0, bytes, BYTES, NULL, NULL, NULL));
	CU(cuda->cuCtxSynchronize());

	options.progress = begin_to_capture;
	options.user = &surprise;
	gpumem_status status =
		out ? gpumem_copy_out(buffer, 0, to, BYTES, stream, &options, &result)
		    : gpumem_copy_in(buffer, 0, bytes, BYTES, stream, &options, &result);
	REFUSED(status, GPUMEM_E_BUSY, "captured");
	GM_REQUIRE(result.bytes >= surprise.at && result.bytes < BYTES);
	/* The capture is as it was, and has nothing of the copy in it. */
	(void)end_capture(surprise.captured);
	if (out)
		GM_REQUIRE(memcmp(to, bytes, result.bytes) == 0);
	else
		require_there(buffer, bytes, result.bytes);
	OK(gpumem_copy_in(buffer, 0, bytes, BYTES, stream, NULL, NULL));
	require_there(buffer, bytes, BYTES);
	free(bytes);
	free(to);
	gpumem_disconnect(session);
}

START_TEST(a_capture_that_begins_during_a_copy_ends_the_copy_and_goes_on)
{
	one_worker(surprised, &_i);
}
END_TEST

/* ---- contexts and threads */

static void stranger(int channel, void *argument)
{
	gm_cu_ctx context;
	join("stranger");
	use_gpu_of(0);
	CU(cuda->cuCtxCreate(&context, 0, 0));
	gpumem_copy_options options = by(GPUMEM_COPY_STAGED);
	gpumem_buffer *buffer = create(BYTES, GPUMEM_TRANSPORT_AUTO);
	uint8_t *bytes = pattern(BYTES, 6);
	OK(gpumem_copy_in(buffer, 0, bytes, BYTES, stream_new(), &options, NULL));
	require_there(buffer, bytes, BYTES);
	memset(bytes, 1, BYTES);
	OK(gpumem_copy_in(buffer, 0, bytes, BYTES, GPUMEM_STREAM_DONE, &options, NULL));
	require_there(buffer, bytes, BYTES);
	/* A thread without any context. */
	CU(cuda->cuCtxSetCurrent(NULL));
	memset(bytes, 2, BYTES);
	OK(gpumem_copy_in(buffer, 0, bytes, BYTES, GPUMEM_STREAM_ANY, &options, NULL));
	CU(cuda->cuCtxSetCurrent(context));
	require_there(buffer, bytes, BYTES);
	gpumem_buffer_destroy(buffer);
	free(bytes);
	gpumem_disconnect(session);
}

START_TEST(copies_work_in_any_context_and_in_none)
{
	one_worker(stranger, NULL);
}
END_TEST

static void crowd(int channel, void *argument)
{
	struct on_stream on[4];
	pthread_t threads[4];
	join("crowd");
	use_gpu_of(0);
	for (unsigned i = 0; i < 4; i++) {
		on[i] = (struct on_stream){.buffer = create(BYTES, GPUMEM_TRANSPORT_AUTO),
			.bytes = pattern(BYTES, i),
			.stream = stream_new(),
			.strategy = i % 2 ? GPUMEM_COPY_AUTO : GPUMEM_COPY_STAGED};
		CU(cuda->cuCtxGetCurrent(&on[i].context));
		GM_REQUIRE(pthread_create(&threads[i], NULL, copy_on_stream, &on[i]) == 0);
	}
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		require_there(on[i].buffer, on[i].bytes, BYTES);
		free((void *)on[i].bytes);
	}
	gpumem_disconnect(session);
}

START_TEST(threads_copy_on_streams_of_their_own)
{
	one_worker(crowd, NULL);
}
END_TEST

/* ---- files */

static void loader(int channel, void *argument)
{
	gpumem_copy_file file = GPUMEM_COPY_FILE_INIT;
	gpumem_copy_options options = by(GPUMEM_COPY_STAGED);
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	uint8_t *bytes = pattern(BYTES, 8);
	file.path = argument;
	int fd = open(file.path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	GM_REQUIRE(fd >= 0);
	for (size_t done = 0; done < BYTES;) {
		ssize_t r = write(fd, bytes + done, BYTES - done);
		GM_REQUIRE(r > 0);
		done += (size_t)r;
	}
	close(fd);

	join("loader");
	use_gpu_of(0);
	gpumem_buffer *buffer = create(BYTES, GPUMEM_TRANSPORT_AUTO);
	OK(gpumem_copy_file_in(buffer, 0, &file, stream_new(), &options, &result));
	GM_REQUIRE_EQ(result.bytes, BYTES);
	GM_REQUIRE_EQ(result.slots, 5);
	require_there(buffer, bytes, BYTES);
	free(bytes);
	gpumem_disconnect(session);
}

START_TEST(a_file_is_loaded_through_pinned_slots)
{
	char path[256];
	gm_scratch_path("load", path, sizeof(path));
	one_worker(loader, path);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("copy");
	TCase *tc = tcase_create("copies");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 240);
	tcase_add_loop_test(tc, bytes_arrive_on_both_transports, 0, 2);
	tcase_add_loop_test(
		tc, a_copy_comes_after_the_work_on_its_stream_and_waits_for_no_other, 0, 2);
	tcase_add_test(tc, an_asynchronous_copy_does_not_wait_for_its_stream);
	tcase_add_test(tc, a_captured_stream_is_refused_and_the_capture_goes_on);
	tcase_add_loop_test(
		tc, a_capture_that_begins_during_a_copy_ends_the_copy_and_goes_on, 0, 4);
	tcase_add_test(tc, copies_work_in_any_context_and_in_none);
	tcase_add_test(tc, threads_copy_on_streams_of_their_own);
	tcase_add_test(tc, a_file_is_loaded_through_pinned_slots);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
