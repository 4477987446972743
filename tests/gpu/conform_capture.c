/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Capturing a stream into a graph: who may call what meanwhile, and what breaks it. See
 * conformance.h.
 */
#include "tests/gpu/conformance.h"

#include <unistd.h>

#define GLOBAL  GM_CU_STREAM_CAPTURE_MODE_GLOBAL
#define LOCAL   GM_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
#define RELAXED GM_CU_STREAM_CAPTURE_MODE_RELAXED

static void capture_is_seen(void)
{
	struct puppet p = conform_begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);

	conform_value("before", OK(&p, CAPTURING, .a = s), GM_CU_STREAM_CAPTURE_STATUS_NONE);
	OK(&p, CAPTURE, .a = s, .b = RELAXED);
	conform_value("during", OK(&p, CAPTURING, .a = s), GM_CU_STREAM_CAPTURE_STATUS_ACTIVE);
	OK(&p, CAPTURE_END, .a = s);
	conform_value("after", OK(&p, CAPTURING, .a = s), GM_CU_STREAM_CAPTURE_STATUS_NONE);
	puppet_stop(&p);
	conform_end("a stream says that it is being captured");
}

static void a_context_event_breaks_a_capture(void)
{
	struct puppet p = conform_begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);

	OK(&p, CAPTURE, .a = s, .b = RELAXED);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, &p, CONTEXT_EVENT, .a = 0);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, &p, CAPTURE_END, .a = s);
	conform_value("after", OK(&p, CAPTURING, .a = s), GM_CU_STREAM_CAPTURE_STATUS_NONE);
	puppet_stop(&p);
	conform_end("an event on the whole context is refused during a capture, and breaks it");
}

static void asking_a_captured_stream_for_its_id_breaks_the_capture(void)
{
	struct puppet p = conform_begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);

	OK(&p, CAPTURE, .a = s, .b = RELAXED);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, &p, STREAM_ID, .a = s);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, &p, CAPTURE_END, .a = s);
	puppet_stop(&p);
	conform_end("asking a captured stream for its id is refused, and breaks the capture");
}

/* A puppet whose two threads have the context, and an event that has passed. */
static struct puppet two_threads(uint64_t *ret_stream, uint64_t *ret_event)
{
	struct puppet p = conform_begin(true);

	OK(&p, CONTEXT, .aside = true, .a = 0);
	*ret_stream = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	*ret_event = OK(&p, EVENT, .a = *ret_stream);
	OK(&p, SYNC, .a = *ret_stream);
	return p;
}

/* As a watchdog's thread would, that knows nothing of graphs. */
static void a_global_capture_binds_every_thread(void)
{
	uint64_t s, event;
	struct puppet p = two_threads(&s, &event);

	OK(&p, CAPTURE, .a = s, .b = GLOBAL);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, &p, EVENT_QUERY, .aside = true, .a = event);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, &p, CAPTURE_END, .a = s);
	OK(&p, CAPTURE, .a = s, .b = GLOBAL);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, &p, EVENT_QUERY, .a = event);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, &p, CAPTURE_END, .a = s);
	OK(&p, CAPTURE, .a = s, .b = GLOBAL);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, &p, ALLOC, .a = 2 * MIB);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, &p, CAPTURE_END, .a = s);
	OK(&p, CAPTURE, .a = s, .b = GLOBAL);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, &p, ALLOC, .aside = true, .a = 2 * MIB);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, &p, CAPTURE_END, .a = s);
	GIVES(GM_CUDA_SUCCESS, &p, EVENT_QUERY, .a = event);
	puppet_stop(&p);
	conform_end("during a global capture no thread may query an event or allocate: it breaks");
}

static void a_relaxed_thread_is_not_bound(void)
{
	uint64_t s, event;
	struct puppet p = two_threads(&s, &event);

	OK(&p, CAPTURE, .a = s, .b = GLOBAL);
	for (int aside = 0; aside < 2; aside++) {
		conform_value("the mode until then",
			OK(&p, CAPTURE_MODE, .aside = aside, .a = RELAXED), GLOBAL);
		GIVES(GM_CUDA_SUCCESS, &p, EVENT_QUERY, .aside = aside, .a = event);
		OK(&p, ALLOC, .aside = aside, .a = 2 * MIB);
		conform_value("the mode until then",
			OK(&p, CAPTURE_MODE, .aside = aside, .a = GLOBAL), RELAXED);
	}
	OK(&p, CAPTURE_END, .a = s);
	puppet_stop(&p);
	conform_end("a thread in relaxed mode queries and allocates during a global capture");
}

static void a_capture_of_one_thread_binds_that_one(void)
{
	uint64_t s, event;
	struct puppet p = two_threads(&s, &event);

	OK(&p, CAPTURE, .a = s, .b = LOCAL);
	GIVES(GM_CUDA_SUCCESS, &p, EVENT_QUERY, .aside = true, .a = event);
	OK(&p, ALLOC, .aside = true, .a = 2 * MIB);
	OK(&p, CAPTURE_END, .a = s);
	OK(&p, CAPTURE, .a = s, .b = LOCAL);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, &p, EVENT_QUERY, .a = event);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, &p, CAPTURE_END, .a = s);
	/* And a thread can say that others do not concern it. */
	OK(&p, CAPTURE, .a = s, .b = GLOBAL);
	OK(&p, CAPTURE_MODE, .aside = true, .a = LOCAL);
	GIVES(GM_CUDA_SUCCESS, &p, EVENT_QUERY, .aside = true, .a = event);
	OK(&p, CAPTURE_END, .a = s);
	puppet_stop(&p);
	conform_end("a thread-local capture binds its own thread alone");
}

static void a_relaxed_capture_binds_nobody(void)
{
	uint64_t s, event;
	struct puppet p = two_threads(&s, &event);

	OK(&p, CAPTURE, .a = s, .b = RELAXED);
	OK(&p, ALLOC, .a = 2 * MIB);
	OK(&p, ALLOC, .aside = true, .a = 2 * MIB);
	OK(&p, CAPTURE_END, .aside = true, .a = s); /* by any thread */
	OK(&p, CAPTURE, .a = s, .b = RELAXED);
	GIVES(GM_CUDA_SUCCESS, &p, EVENT_QUERY, .a = event);
	GIVES(GM_CUDA_SUCCESS, &p, EVENT_QUERY, .aside = true, .a = event);
	GIVES(GM_CUDA_SUCCESS, &p, CAPTURE_END, .a = s);
	puppet_stop(&p);
	conform_end("during a relaxed capture every thread may allocate, and any may end it");
}

static void a_capture_ends_in_its_thread_and_on_its_stream(void)
{
	uint64_t s, event;
	struct puppet p = two_threads(&s, &event);

	FAILS(GM_CUDA_ERROR_ILLEGAL_STATE, &p, CAPTURE_END, .a = s);
	FAILS(GM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, &p, CAPTURE, .a = 0, .b = RELAXED);
	OK(&p, CAPTURE, .a = s, .b = GLOBAL);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, &p, CAPTURE_END, .aside = true, .a = s);
	/* The try ended it all the same, and the stream can be captured again. */
	GIVES(GM_CUDA_ERROR_ILLEGAL_STATE, &p, CAPTURE_END, .a = s);
	OK(&p, CAPTURE, .a = s, .b = GLOBAL);
	FAILS(GM_CUDA_ERROR_ILLEGAL_STATE, &p, CAPTURE, .a = s, .b = GLOBAL);
	BELIEVED(GM_CUDA_SUCCESS, &p, CAPTURE_END, .a = s);
	puppet_stop(&p);
	conform_end(
		"a capture begins once, not on the legacy stream, and in another thread ends without a graph");
}

static void what_is_asked_of_a_captured_stream_breaks_the_capture(void)
{
	static const enum puppet_op asking[] = {PUPPET_SYNC, PUPPET_STREAM_QUERY};
	struct puppet p = conform_begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t ptr = OK(&p, ALLOC, .a = 2 * MIB);

	for (size_t i = 0; i < sizeof asking / sizeof *asking; i++) {
		OK(&p, CAPTURE, .a = s, .b = RELAXED);
		conform_expect("asking",
			puppet_do(&p, &(struct puppet_call){.op = asking[i], .a = s}, -1, NULL)
				.result,
			GM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		conform_value("broken", OK(&p, CAPTURING, .a = s),
			GM_CU_STREAM_CAPTURE_STATUS_INVALIDATED);
		GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, &p, SET, .a = ptr, .b = 2 * MIB,
			.c = 1, .d = s);
		GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, &p, CAPTURE_END, .a = s);
		conform_value("over", OK(&p, CAPTURING, .a = s), GM_CU_STREAM_CAPTURE_STATUS_NONE);
	}
	OK(&p, SET, .a = ptr, .b = 2 * MIB, .c = 1, .d = s);
	OK(&p, SYNC, .a = s);
	OK(&p, CAPTURE, .a = s, .b = RELAXED);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, &p, CONTEXT_SYNC, .a = 0);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, &p, CAPTURE_END, .a = s);
	puppet_stop(&p);
	conform_end(
		"waiting for a captured stream breaks the capture, and what is broken takes no work");
}

static void the_legacy_stream_is_closed_while_a_blocking_one_is_captured(void)
{
	struct puppet p = conform_begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = 0);
	uint64_t ptr = OK(&p, ALLOC, .a = 2 * MIB);

	OK(&p, CAPTURE, .a = s, .b = RELAXED);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, &p, CAPTURING, .a = 0);
	conform_value("not broken by asking", OK(&p, CAPTURING, .a = s),
		GM_CU_STREAM_CAPTURE_STATUS_ACTIVE);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, &p, SET, .a = ptr, .b = 2 * MIB, .c = 1);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, &p, CAPTURE_END, .a = s);
	OK(&p, SET, .a = ptr, .b = 2 * MIB, .c = 1);
	OK(&p, SYNC, .a = 0);
	puppet_stop(&p);
	conform_end(
		"the legacy stream cannot be used while a stream that waits for it is captured");
}

static void a_capture_spreads_by_events(void)
{
	struct puppet p = conform_begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t t = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t ptr = OK(&p, ALLOC, .a = 2 * MIB), fork, join;

	for (int joined = 0; joined < 2; joined++) {
		OK(&p, CAPTURE, .a = s, .b = RELAXED);
		OK(&p, SET, .a = ptr, .b = MIB, .c = 1, .d = s);
		fork = OK(&p, EVENT, .a = s);
		OK(&p, WAIT_EVENT, .a = t, .b = fork);
		conform_value("the other stream is captured, too", OK(&p, CAPTURING, .a = t),
			GM_CU_STREAM_CAPTURE_STATUS_ACTIVE);
		OK(&p, SET, .a = ptr + MIB, .b = MIB, .c = 2, .d = t);
		if (joined) {
			join = OK(&p, EVENT, .a = t);
			OK(&p, WAIT_EVENT, .a = s, .b = join);
		}
		GIVES(joined ? GM_CUDA_SUCCESS : GM_CUDA_ERROR_STREAM_CAPTURE_UNJOINED, &p,
			CAPTURE_END, .a = s);
		conform_value("and is no more", OK(&p, CAPTURING, .a = t),
			GM_CU_STREAM_CAPTURE_STATUS_NONE);
	}
	puppet_stop(&p);
	conform_end(
		"a capture spreads to streams that wait for it, and ends where they have joined");
}

static void events_do_not_cross_the_border_of_a_capture(void)
{
	struct puppet p = conform_begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t t = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t before = OK(&p, EVENT, .a = t), within;

	OK(&p, CAPTURE, .a = s, .b = RELAXED);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_ISOLATION, &p, WAIT_EVENT, .a = s, .b = before);
	GIVES(GM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, &p, CAPTURE_END, .a = s);
	OK(&p, CAPTURE, .a = s, .b = RELAXED);
	within = OK(&p, EVENT, .a = s);
	OK(&p, CAPTURE_MODE, .a = RELAXED);
	GIVES(GM_CUDA_ERROR_CAPTURED_EVENT, &p, EVENT_QUERY, .a = within);
	BELIEVED(GM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, &p, CAPTURE_END, .a = s);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, EVENT_QUERY, .a = within); /* of no graph */
	OK(&p, EVENT_RECORD, .a = within, .b = s);
	OK(&p, SYNC, .a = s);
	GIVES(GM_CUDA_SUCCESS, &p, EVENT_QUERY, .a = within);
	OK(&p, CAPTURE, .a = s, .b = RELAXED);
	OK(&p, EVENT_RECORD, .a = within, .b = s);
	OK(&p, CAPTURE_END, .a = s);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &p, EVENT_QUERY, .a = within); /* of a graph */
	puppet_stop(&p);
	conform_end("a graph does not wait for events of before, and its events cannot be asked");
}

/* Waiting, pinning and freeing; every call in every mode is in conform_captured.c. */
static void other_calls_are_unsafe(void)
{
	uint64_t s, event;
	struct puppet p = two_threads(&s, &event);
	uint64_t pages = OK(&p, PAGES, .a = 2 * MIB), ptr = OK(&p, ALLOC, .a = 2 * MIB);
	const struct {
		const char *what;
		struct puppet_call call;
	} calls[] = {
		{"cuStreamSynchronize of another stream by another thread, global capture",
			{.op = PUPPET_SYNC, .a = GM_CU_STREAM_PER_THREAD}},
		{"cuStreamQuery likewise",
			{.op = PUPPET_STREAM_QUERY, .a = GM_CU_STREAM_PER_THREAD}},
		{"cuMemHostAlloc likewise", {.op = PUPPET_HOST_ALLOC, .a = 2 * MIB}},
		{"cuMemHostRegister likewise", {.op = PUPPET_REGISTER, .a = pages, .b = 2 * MIB}},
		{"cuMemFree likewise", {.op = PUPPET_FREE, .a = ptr}},
	};

	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		struct puppet_call call = calls[i].call;
		call.aside = true;
		OK(&p, CAPTURE, .a = s, .b = GLOBAL);
		conform_expect(calls[i].what, puppet_do(&p, &call, -1, NULL).result,
			GM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		conform_expect("… and the end of the capture",
			PUPPET(&p, CAPTURE_END, .a = s).result,
			GM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	}
	OK(&p, SYNC, .a = s); /* and all is well again */
	puppet_stop(&p);
	conform_end("what else a bound thread may not call");
}

static void placing_memory_is_safe_during_a_capture(void)
{
	uint64_t s, event, va;
	struct puppet owner = conform_begin(false), p = two_threads(&s, &event);
	int fd = conform_export(&owner, OK(&owner, CREATE, .a = 2 * MIB, .b = 0, .c = 1));

	OK(&p, CAPTURE, .a = s, .b = GLOBAL);
	va = conform_place(&p, conform_import(&p, fd).value, 2 * MIB);
	OK(&p, SET, .a = va, .b = 2 * MIB, .c = 1, .d = s);
	OK(&p, CAPTURE_END, .a = s);
	close(fd);
	puppet_stop(&p);
	puppet_stop(&owner);
	conform_end("reserving, importing, mapping and giving access break no capture");
}

void conform_capture(void)
{
	capture_is_seen();
	a_context_event_breaks_a_capture();
	asking_a_captured_stream_for_its_id_breaks_the_capture();
	a_global_capture_binds_every_thread();
	a_relaxed_thread_is_not_bound();
	a_capture_of_one_thread_binds_that_one();
	a_relaxed_capture_binds_nobody();
	a_capture_ends_in_its_thread_and_on_its_stream();
	what_is_asked_of_a_captured_stream_breaks_the_capture();
	the_legacy_stream_is_closed_while_a_blocking_one_is_captured();
	a_capture_spreads_by_events();
	events_do_not_cross_the_border_of_a_capture();
	other_calls_are_unsafe();
	placing_memory_is_safe_during_a_capture();
}
