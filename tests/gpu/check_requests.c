/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Requests that are taken later, on a GPU: the library's thread maps their memory, whatever streams
 * and captures the program has meanwhile. See broker.h.
 */

#include "tests/gpu/broker.h"

#define BYTES (4 * MIB)

static gpumem_request *begin(uint64_t bytes, gm_cu_stream stream)
{
	gpumem_request *request = NULL;
	OK(gpumem_alloc_begin(session, 0, bytes, stream, NULL, &request));
	return request;
}

static gpumem_request *begin_buffer(uint64_t bytes)
{
	gpumem_request *request = NULL;
	OK(gpumem_buffer_create_begin(session, 0, bytes, NULL, &request));
	return request;
}

static void *take(gpumem_request *request)
{
	void *ptr = NULL;
	OK(gpumem_request_wait(request, GPUMEM_WAIT_FOREVER));
	OK(gpumem_alloc_take(request, &ptr));
	return ptr;
}

/* ---- many */

enum { MANY = 200 };

static uint64_t size_of(int i)
{
	return i % 4 ? 300000 : 2 * MIB;
}

static void ask_for_many(int channel, void *argument)
{
	gpumem_request *requests[MANY];
	gpumem_buffer *buffers[MANY] = {0};
	void *ptrs[MANY];
	join("asking");
	use_gpu();
	gm_cu_stream stream = stream_new();
	for (int i = 0; i < MANY; i++)
		requests[i] = i % 4 ? begin(size_of(i), stream) : begin_buffer(size_of(i));
	for (int i = 0; i < MANY; i++) {
		if (i % 4) {
			ptrs[i] = take(requests[i]);
		} else {
			OK(gpumem_request_wait(requests[i], GPUMEM_WAIT_FOREVER));
			OK(gpumem_buffer_take(requests[i], &buffers[i]));
			ptrs[i] = gpumem_buffer_ptr(buffers[i]);
		}
		fill(ptrs[i], size_of(i), (unsigned char)i, stream);
	}
	for (int i = 0; i < MANY; i++)
		GM_REQUIRE(all(ptrs[i], size_of(i), (unsigned char)i, stream));
	for (int i = 0; i < MANY; i++) {
		if (i % 4)
			OK(gpumem_free(session, ptrs[i], stream));
		gpumem_buffer_destroy(buffers[i]);
	}
	gpumem_disconnect(session);
}

START_TEST(hundreds_of_requests_bring_memory_that_the_gpu_can_use)
{
	start_with(_i ? IPC_CONFIG : CONFIG(""));
	one_worker(ask_for_many, NULL);
	tear_down();
}
END_TEST

static void drop_many(int channel, void *argument)
{
	join("dropping");
	for (int round = 0; round < 3; round++) {
		gpumem_request *requests[MANY];
		for (int i = 0; i < MANY; i++)
			requests[i] = i % 4 ? begin(size_of(i), NULL) : begin_buffer(size_of(i));
		/* Some are ready, some are on their way, some were never sent. */
		OK(gpumem_request_wait(requests[round], GPUMEM_WAIT_FOREVER));
		for (int i = 0; i < MANY; i++)
			gpumem_request_cancel(requests[i]);
	}
	gm_text_say_word(channel, 'd');
	gm_hear_word(channel, 't');
	GM_UNTIL((gpumem_trim(session, NULL), gm_figures_now(&daemon_).leased == 0));
	gm_text_say_word(channel, 't');
	gm_hear_word(channel, 'e');
	gpumem_disconnect(session);
}

START_TEST(requests_that_are_dropped_leave_nothing_on_the_gpu)
{
	struct gm_worker worker;
	start_with(_i ? IPC_CONFIG : CONFIG(""));
	gm_worker_start(&worker, drop_many, NULL);
	gm_hear_word(worker.channel, 'd');
	gm_text_say_word(worker.channel, 't');
	gm_hear_word(worker.channel, 't');
	end_worker(&worker);
	tear_down();
}
END_TEST

/* ---- streams and captures */

static void ask_beside_work(int channel, void *argument)
{
	void *ptr;
	join("beside");
	use_gpu();
	gm_cu_stream stream = stream_new(), other = stream_new();
	OK(gpumem_alloc(session, 0, BYTES, stream, NULL, &ptr));
	keep_busy(stream);
	fill(ptr, BYTES, 1, stream);
	OK(gpumem_free(session, ptr, stream));

	/* Another stream gets other memory, though nothing says when the work ends. */
	void *fresh = take(begin(BYTES, other));
	GM_REQUIRE(fresh != ptr);
	fill(fresh, BYTES, 2, other);
	GM_REQUIRE(all(fresh, BYTES, 2, other));
	/* The stream itself may have it back at once. */
	gpumem_request *request = begin(BYTES, stream);
	GM_REQUIRE_EQ(gpumem_request_ready(request), GPUMEM_REQUEST_READY);
	GM_REQUIRE(take(request) == ptr);
	open_gate();
	GM_REQUIRE(all(fresh, BYTES, 2, other));
	OK(gpumem_free(session, ptr, stream));
	OK(gpumem_free(session, fresh, other));
	gpumem_disconnect(session);
}

START_TEST(a_request_does_not_get_memory_that_the_gpu_still_uses)
{
	start_with(CONFIG(""));
	one_worker(ask_beside_work, NULL);
	tear_down();
}
END_TEST

static void ask_in_a_capture(int channel, void *argument)
{
	uint64_t graph;
	join("capturing");
	use_gpu();
	gm_cu_stream stream = stream_new();
	gpumem_request *before = begin(BYTES, stream);
	begin_capture(stream);
	OK(gpumem_graph_of(session, 0, stream, &graph));
	GM_REQUIRE(graph);
	/* The library's thread maps memory meanwhile, and does not break the capture. */
	gpumem_request *during = begin(40 * MIB, stream), *buffer = begin_buffer(BYTES);
	void *a = take(before), *b = take(during);
	OK(gpumem_request_wait(buffer, GPUMEM_WAIT_FOREVER));
	gpumem_request_cancel(buffer);
	fill(a, BYTES, 1, stream);
	fill(b, 40 * MIB, 2, stream);
	(void)end_capture(stream);
	/* What was taken on the stream is the graph's: it stays when it is freed. */
	OK(gpumem_free(session, a, stream));
	OK(gpumem_free(session, b, stream));
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	OK(gpumem_stats(session, 0, &stats));
	GM_REQUIRE_EQ(stats.active_buffers, 2);
	OK(gpumem_graph_gone(session, graph));
	OK(gpumem_stats(session, 0, &stats));
	GM_REQUIRE_EQ(stats.active_buffers, 0);
	gpumem_disconnect(session);
}

START_TEST(requests_become_ready_while_a_stream_is_captured)
{
	start_with(CONFIG(""));
	one_worker(ask_in_a_capture, NULL);
	tear_down();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("requests");
	TCase *tc = tcase_create("requests");
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, hundreds_of_requests_bring_memory_that_the_gpu_can_use, 0, 2);
	tcase_add_loop_test(tc, requests_that_are_dropped_leave_nothing_on_the_gpu, 0, 2);
	tcase_add_test(tc, a_request_does_not_get_memory_that_the_gpu_still_uses);
	tcase_add_test(tc, requests_become_ready_while_a_stream_is_captured);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
