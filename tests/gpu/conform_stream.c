/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts, streams and events. See conformance.h.
 */
#include "tests/gpu/conformance.h"

static void events_pass_when_their_work_is_done(void)
{
	struct puppet p = conform_begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t t = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t on_s, on_t, on_all, after;

	OK(&p, BUSY, .a = s);
	on_s = OK(&p, EVENT, .a = s);
	on_t = OK(&p, EVENT, .a = t);
	on_all = OK(&p, CONTEXT_EVENT, .a = 0);
	GIVES(GM_CUDA_ERROR_NOT_READY, &p, EVENT_QUERY, .a = on_s);
	OK(&p, SYNC, .a = t);
	GIVES(GM_CUDA_SUCCESS, &p, EVENT_QUERY, .a = on_t);
	GIVES(GM_CUDA_ERROR_NOT_READY, &p, EVENT_QUERY, .a = on_all);
	OK(&p, WAIT_EVENT, .a = t, .b = on_s);
	after = OK(&p, EVENT, .a = t);
	GIVES(GM_CUDA_ERROR_NOT_READY, &p, EVENT_QUERY, .a = after);
	OK(&p, IDLE, .a = 0);
	OK(&p, SYNC, .a = t);
	OK(&p, SYNC, .a = s);
	GIVES(GM_CUDA_SUCCESS, &p, EVENT_QUERY, .a = on_s);
	GIVES(GM_CUDA_SUCCESS, &p, EVENT_QUERY, .a = after);
	GIVES(GM_CUDA_SUCCESS, &p, EVENT_QUERY, .a = on_all);
	puppet_stop(&p);
	conform_end("events pass when the work before them is done, and order other streams");
}

static void stream_ids_are_not_reused(void)
{
	struct puppet p = conform_begin(true);
	uint64_t seen[8], stream, legacy = OK(&p, STREAM_ID, .a = 0);

	for (int i = 0; i < 8; i++) {
		stream = OK(&p, STREAM_NEW, .a = 0);
		seen[i] = OK(&p, STREAM_ID, .a = stream);
		OK(&p, STREAM_END, .a = stream);
		conform_true("differs from the default stream's", seen[i] != legacy);
		for (int j = 0; j < i; j++)
			conform_true("differs from an ended stream's", seen[i] != seen[j]);
	}
	conform_value("the default stream by either name",
		OK(&p, STREAM_ID, .a = GM_CU_STREAM_LEGACY), legacy);
	puppet_stop(&p);
	conform_end("a stream's id is not given to another stream");
}

static void unmapping_does_not_wait_and_freeing_does(void)
{
	struct puppet p = conform_begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t va = conform_place(&p, OK(&p, CREATE, .a = 2 * MIB, .b = 0, .c = 1), 2 * MIB);
	uint64_t plain = OK(&p, ALLOC, .a = 2 * MIB);

	OK(&p, BUSY, .a = s);
	OK(&p, UNMAP, .a = va, .b = 2 * MIB); /* would hang here if it waited */
	OK(&p, IDLE, .a = 0);
	OK(&p, SYNC, .a = s);
	OK(&p, FREE, .a = plain);
	puppet_stop(&p);
	conform_end("unmapping does not wait for a busy stream");
}

static void what_needs_a_context_says_so(void)
{
	struct puppet p = conform_begin(false);

	GIVES(GM_CUDA_ERROR_INVALID_CONTEXT, &p, ALLOC, .a = 2 * MIB);
	GIVES(GM_CUDA_ERROR_INVALID_CONTEXT, &p, HOST_ALLOC, .a = 2 * MIB);
	GIVES(GM_CUDA_ERROR_INVALID_CONTEXT, &p, MEM_INFO, .a = 0);
	GIVES(GM_CUDA_ERROR_INVALID_CONTEXT, &p, STREAM_NEW, .a = 0);
	GIVES(GM_CUDA_ERROR_INVALID_CONTEXT, &p, EVENT_NEW, .a = GM_CU_EVENT_DISABLE_TIMING);
	GIVES(GM_CUDA_ERROR_INVALID_CONTEXT, &p, CONTEXT_POP, .a = 0);
	BELIEVED(GM_CUDA_ERROR_INVALID_CONTEXT, &p, SYNC, .a = 0);
	GIVES(GM_CUDA_ERROR_INVALID_CONTEXT, &p, CONTEXT_END, .a = 0);
	puppet_stop(&p);
	conform_end("what needs a current context says so where there is none");
}

static void a_context_takes_its_memory_along(void)
{
	struct puppet watcher = conform_begin(false), p = conform_begin(false);
	uint64_t before;

	OK(&p, CONTEXT, .a = 0);
	before = conform_free(&watcher);
	OK(&p, ALLOC, .a = FULL);
	conform_true("it is used", conform_free(&watcher) <= before - FULL);
	OK(&p, CONTEXT_END, .a = 0);
	FAILS(GM_CUDA_ERROR_CONTEXT_IS_DESTROYED, &p, ALLOC, .a = FULL);
	conform_true("it came back", conform_comes_back(&watcher, before));
	GIVES(GM_CUDA_ERROR_INVALID_CONTEXT, &p, CONTEXT_END, .a = 0);
	OK(&p, CONTEXT, .a = 0);
	OK(&p, ALLOC, .a = FULL);
	puppet_stop(&p);
	puppet_stop(&watcher);
	conform_end("a context's end takes its allocations along, and it can be made anew");
}

static void an_event_is_passed_until_it_is_recorded(void)
{
	struct puppet p = conform_begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t event = OK(&p, EVENT_NEW, .a = GM_CU_EVENT_DISABLE_TIMING);

	GIVES(GM_CUDA_SUCCESS, &p, EVENT_QUERY, .a = event);
	OK(&p, BUSY, .a = s);
	GIVES(GM_CUDA_SUCCESS, &p, EVENT_QUERY, .a = event);
	GIVES(GM_CUDA_ERROR_NOT_READY, &p, STREAM_QUERY, .a = s);
	OK(&p, EVENT_RECORD, .a = event, .b = s);
	GIVES(GM_CUDA_ERROR_NOT_READY, &p, EVENT_QUERY, .a = event);
	OK(&p, IDLE, .a = 0);
	OK(&p, SYNC, .a = s);
	GIVES(GM_CUDA_SUCCESS, &p, STREAM_QUERY, .a = s);
	GIVES(GM_CUDA_SUCCESS, &p, EVENT_QUERY, .a = event);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, EVENT_NEW, .a = 4); /* shared, and with timing */
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, EVENT_NEW, .a = 128);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, STREAM_NEW, .a = 128);
	FAILS(GM_CUDA_ERROR_INVALID_HANDLE, &p, EVENT_QUERY, .a = 0);
	FAILS(GM_CUDA_ERROR_INVALID_HANDLE, &p, EVENT_RECORD, .a = 0, .b = s);
	FAILS(GM_CUDA_ERROR_INVALID_HANDLE, &p, WAIT_EVENT, .a = s, .b = 0);
	BELIEVED(GM_CUDA_ERROR_INVALID_HANDLE, &p, STREAM_END, .a = 0);
	puppet_stop(&p);
	conform_end("an event that was never recorded has passed");
}

static void a_stream_ends_after_its_work(void)
{
	struct puppet p = conform_begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t t = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t ptr = OK(&p, ALLOC, .a = 2 * MIB), event;

	OK(&p, SET, .a = ptr, .b = 2 * MIB, .c = 0);
	OK(&p, SYNC, .a = 0);
	OK(&p, BUSY, .a = s);
	OK(&p, SET, .a = ptr, .b = 2 * MIB, .c = 0x61, .d = s);
	event = OK(&p, EVENT, .a = s);
	OK(&p, STREAM_END, .a = s); /* does not wait */
	GIVES(GM_CUDA_ERROR_NOT_READY, &p, EVENT_QUERY, .a = event);
	OK(&p, WAIT_EVENT, .a = t, .b = event);
	OK(&p, IDLE, .a = 0);
	OK(&p, SYNC, .a = t);
	GIVES(GM_CUDA_SUCCESS, &p, EVENT_QUERY, .a = event);
	conform_value("what the ended stream wrote",
		OK(&p, COUNT, .a = ptr, .b = 2 * MIB, .c = 0x61), 2 * MIB);
	puppet_stop(&p);
	conform_end("a stream that is destroyed does its work, and its events pass");
}

void conform_stream(void)
{
	events_pass_when_their_work_is_done();
	stream_ids_are_not_reused();
	unmapping_does_not_wait_and_freeing_does();
	what_needs_a_context_says_so();
	a_context_takes_its_memory_along();
	an_event_is_passed_until_it_is_recorded();
	a_stream_ends_after_its_work();
}
