/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each call gives while a stream is being captured, and whether the capture outlives it: by
 * the mode of the capture, the thread that calls, that thread's mode, and the context that it has.
 * See conform_calls.h for the calls.
 */
#include <stdio.h>

#include "tests/gpu/conform_calls.h"

#define GLOBAL  GM_CU_STREAM_CAPTURE_MODE_GLOBAL
#define LOCAL   GM_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
#define RELAXED GM_CU_STREAM_CAPTURE_MODE_RELAXED

/* Who calls. */
static const struct caller {
	const char *name;
	int mode; /* of the capture */
	bool aside;
	enum conform_arg context; /* ARG_ZERO: none */
	int thread_mode;
} callers[] = {
	{"global capture, its own thread", GLOBAL, false, ARG_PRIMARY, GLOBAL},
	{"global capture, another thread", GLOBAL, true, ARG_PRIMARY, GLOBAL},
	{"global capture, a thread without a context", GLOBAL, true, ARG_ZERO, GLOBAL},
	{"global capture, a thread in another context", GLOBAL, true, ARG_OWN, GLOBAL},
	{"global capture, its own thread, relaxed", GLOBAL, false, ARG_PRIMARY, RELAXED},
	{"global capture, another thread, relaxed", GLOBAL, true, ARG_PRIMARY, RELAXED},
	{"global capture, another thread, thread-local", GLOBAL, true, ARG_PRIMARY, LOCAL},
	{"thread-local capture, its own thread", LOCAL, false, ARG_PRIMARY, GLOBAL},
	{"thread-local capture, another thread", LOCAL, true, ARG_PRIMARY, GLOBAL},
	{"relaxed capture, its own thread", RELAXED, false, ARG_PRIMARY, GLOBAL},
	{"relaxed capture, another thread", RELAXED, true, ARG_PRIMARY, GLOBAL},
	{"relaxed capture, a thread without a context", RELAXED, true, ARG_ZERO, GLOBAL},
};

static bool bound(const struct caller *caller)
{
	if (caller->thread_mode == RELAXED || caller->mode == RELAXED)
		return false;
	return !caller->aside || (caller->mode == GLOBAL && caller->thread_mode == GLOBAL);
}

/* Makes the call while the stream is captured, and ends the capture. */
static void during(struct conform_world *world, uint64_t stream, const struct caller *caller,
	const struct conform_call *call, int wanted, bool breaks)
{
	struct conform_parts parts = conform_prepare(world, call);
	struct puppet *p = &world->p;
	struct puppet_answer answer;
	char what[160];

	snprintf(what, sizeof what, "%s: %s", caller->name, call->name);
	OK(p, CAPTURE, .a = stream, .b = (uint64_t)caller->mode);
	answer = conform_make(world, call, parts, caller->aside);
	conform_expect(what, answer.result, wanted);
	snprintf(what, sizeof what, "%s: after %s, the capture", caller->name, call->name);
	conform_value(what, OK(p, CAPTURING, .a = stream),
		breaks ? GM_CU_STREAM_CAPTURE_STATUS_INVALIDATED
		       : GM_CU_STREAM_CAPTURE_STATUS_ACTIVE);
	conform_restore(world, call, answer, caller->aside, world->value[caller->context]);
	conform_expect(what, PUPPET(p, CAPTURE_END, .a = stream).result,
		breaks ? GM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : GM_CUDA_SUCCESS);
	/* So that nothing is under way in what the next one asks. */
	OK(p, CONTEXT_SYNC, .a = 0);
}

static void take_place(struct conform_world *world, const struct caller *caller)
{
	struct puppet *p = &world->p;

	OK(p, CONTEXT_SET, .aside = caller->aside, .a = world->value[caller->context]);
	OK(p, CAPTURE_MODE, .aside = caller->aside, .a = (uint64_t)caller->thread_mode);
	world->value[ARG_MODE] = (uint64_t)caller->thread_mode;
}

static void leave_place(struct conform_world *world, const struct caller *caller)
{
	OK(&world->p, CAPTURE_MODE, .aside = caller->aside, .a = GLOBAL);
}

static void every_call_is_refused_or_safe(void)
{
	struct conform_world world;
	size_t n;
	const struct conform_call *calls = conform_calls(&n);

	conform_world_begin(&world);
	for (size_t i = 0; i < sizeof callers / sizeof *callers; i++) {
		const struct caller *caller = &callers[i];
		take_place(&world, caller);
		for (size_t j = 0; j < n; j++) {
			bool lacks =
				calls[j].flags & CALL_NEEDS_CONTEXT && caller->context == ARG_ZERO;
			bool refused = calls[j].flags & CALL_UNSAFE && bound(caller) && !lacks;
			if (calls[j].flags & CALL_ONE_CONTEXT && caller->context == ARG_OWN)
				continue;
			during(&world, world.captured, caller, &calls[j],
				lacks     ? GM_CUDA_ERROR_INVALID_CONTEXT
				: refused ? GM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
					  : GM_CUDA_SUCCESS,
				refused);
		}
		leave_place(&world, caller);
	}
	conform_world_end(&world);
	conform_end(
		"during a capture a call is refused to whom it binds, and breaks it, or is safe");
}

static void what_cannot_be_captured_breaks_it_in_every_mode(void)
{
	struct conform_world world;

	conform_world_begin(&world);
	world.value[ARG_STREAM] = world.captured;
	const struct conform_call calls[] = {
		{"cuStreamSynchronize of its stream", PUPPET_SYNC, {ARG_STREAM}, 0, 0},
		{"cuStreamQuery of its stream", PUPPET_STREAM_QUERY, {ARG_STREAM}, 0, 0},
		{"cuStreamGetId of its stream", PUPPET_STREAM_ID, {ARG_STREAM}, 0, 0},
		{"cuCtxRecordEvent of its context", PUPPET_CONTEXT_RECORD,
			{ARG_PRIMARY, ARG_OTHER_EVENT}, 0, 0},
		{"cuCtxSynchronize", PUPPET_CONTEXT_SYNC, {ARG_ZERO}, 0, CALL_NEEDS_CONTEXT},
	};
	for (size_t i = 0; i < sizeof callers / sizeof *callers; i++) {
		const struct caller *caller = &callers[i];
		take_place(&world, caller);
		for (size_t j = 0; j < sizeof calls / sizeof *calls; j++) {
			/* What is current matters to the last of them alone. */
			enum conform_arg context =
				calls[j].flags & CALL_NEEDS_CONTEXT ? caller->context : ARG_PRIMARY;
			during(&world, world.captured, caller, &calls[j],
				context == ARG_PRIMARY ? GM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
				: context == ARG_OWN   ? GM_CUDA_SUCCESS
						       : GM_CUDA_ERROR_INVALID_CONTEXT,
				context == ARG_PRIMARY);
		}
		leave_place(&world, caller);
	}
	conform_world_end(&world);
	conform_end(
		"asking what is captured breaks the capture in every mode, another context does not");
}

static void the_legacy_stream_is_closed_whoever_asks(void)
{
	struct conform_world world;
	uint64_t blocking;

	conform_world_begin(&world);
	blocking = OK(&world.p, STREAM_NEW, .a = 0);
	static const struct {
		struct conform_call call;
		bool harmless;
	} asked[] = {
		{{"cuStreamSynchronize", PUPPET_SYNC, {ARG_ZERO}, 0, 0}, false},
		{{"cuStreamQuery", PUPPET_STREAM_QUERY, {ARG_ZERO}, 0, 0}, false},
		{{"cuStreamGetId", PUPPET_STREAM_ID, {ARG_ZERO}, 0, 0}, false},
		{{"cuMemsetD8Async", PUPPET_SET, {ARG_PTR, ARG_BYTES, ARG_ZERO, ARG_ZERO}, 0, 0},
			false},
		{{"cuLaunchHostFunc", PUPPET_CALL, {ARG_ZERO}, 0, 0}, false},
		{{"cuStreamWaitEvent", PUPPET_WAIT_EVENT, {ARG_ZERO, ARG_EVENT}, 0, 0}, false},
		{{"cuEventRecord", PUPPET_EVENT_RECORD, {ARG_OTHER_EVENT, ARG_ZERO}, 0, 0}, false},
		{{"cuStreamIsCapturing", PUPPET_CAPTURING, {ARG_ZERO}, 0, 0}, true},
		{{"cuStreamGetCaptureInfo", PUPPET_CAPTURE_INFO, {ARG_ZERO}, 0, 0}, true},
	};
	for (size_t i = 0; i < sizeof callers / sizeof *callers; i++) {
		if (callers[i].context != ARG_PRIMARY)
			continue;
		take_place(&world, &callers[i]);
		for (size_t j = 0; j < sizeof asked / sizeof *asked; j++)
			during(&world, blocking, &callers[i], &asked[j].call,
				GM_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, !asked[j].harmless);
		leave_place(&world, &callers[i]);
	}
	conform_world_end(&world);
	conform_end(
		"while a blocking stream is captured the legacy one is closed, in every mode alike");
}

void conform_captured(void)
{
	every_call_is_refused_or_safe();
	what_cannot_be_captured_breaks_it_in_every_mode();
	the_legacy_stream_is_closed_whoever_asks();
}
