/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts that are not primary. See conformance.h.
 */
#include "tests/gpu/conformance.h"

static void contexts_are_apart(void)
{
	struct puppet p = conform_begin(false);
	uint64_t one, two, s, t, on_one, on_two;

	one = OK(&p, CONTEXT_NEW, .a = 0);
	s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	OK(&p, BUSY, .a = s);
	on_one = OK(&p, CONTEXT_EVENT, .a = 0);
	two = OK(&p, CONTEXT_NEW, .a = 0);
	conform_true("they have numbers of their own",
		OK(&p, CONTEXT_ID, .a = one) != OK(&p, CONTEXT_ID, .a = two));
	t = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	on_two = OK(&p, CONTEXT_EVENT, .a = 0);
	OK(&p, CONTEXT_SYNC, .a = 0); /* would hang here if it waited for the other */
	GIVES(GM_CUDA_SUCCESS, &p, EVENT_QUERY, .a = on_two);
	BELIEVED(GM_CUDA_ERROR_NOT_READY, &p, EVENT_QUERY, .a = on_one);
	FAILS(GM_CUDA_ERROR_INVALID_HANDLE, &p, EVENT_RECORD, .a = on_one, .b = t);
	/* A stream may wait for what goes on in another context. */
	OK(&p, WAIT_EVENT, .a = t, .b = on_one);
	GIVES(GM_CUDA_ERROR_NOT_READY, &p, STREAM_QUERY, .a = t);
	OK(&p, CONTEXT_POP, .a = 0);
	GIVES(GM_CUDA_ERROR_NOT_READY, &p, EVENT_QUERY, .a = on_one);
	OK(&p, IDLE, .a = 0);
	OK(&p, SYNC, .a = s);
	GIVES(GM_CUDA_SUCCESS, &p, EVENT_QUERY, .a = on_one);
	OK(&p, CONTEXT_PUSH, .a = two);
	OK(&p, SYNC, .a = t);
	puppet_stop(&p);
	conform_end("an event for a context covers that one alone, and is used in it alone");
}

static void default_streams_are_apart(void)
{
	struct puppet p = conform_begin(false);

	OK(&p, CONTEXT_NEW, .a = 0);
	OK(&p, BUSY, .a = 0);
	OK(&p, CONTEXT_NEW, .a = 0);
	GIVES(GM_CUDA_SUCCESS, &p, STREAM_QUERY, .a = 0);
	OK(&p, CONTEXT_POP, .a = 0);
	GIVES(GM_CUDA_ERROR_NOT_READY, &p, STREAM_QUERY, .a = 0);
	OK(&p, IDLE, .a = 0);
	OK(&p, SYNC, .a = 0);
	puppet_stop(&p);
	conform_end("each context has a default stream of its own");
}

static void memory_is_reached_from_every_context(void)
{
	struct puppet p = conform_begin(false);
	uint64_t va;

	OK(&p, CONTEXT_NEW, .a = 0);
	va = conform_place(&p, OK(&p, CREATE, .a = 2 * MIB, .b = 0, .c = 1), 2 * MIB);
	OK(&p, SET, .a = va, .b = 2 * MIB, .c = 0x5a);
	OK(&p, SYNC, .a = 0);
	/* Of one that was made later, too. */
	OK(&p, CONTEXT_NEW, .a = 0);
	conform_value("what the other context wrote",
		OK(&p, COUNT, .a = va, .b = 2 * MIB, .c = 0x5a), 2 * MIB);
	puppet_stop(&p);
	conform_end("mapped memory is the same in every context of a device");
}

static void a_context_that_is_destroyed_is_said_to_be(void)
{
	struct puppet p = conform_begin(false);
	uint64_t one = OK(&p, CONTEXT_NEW, .a = 0);

	OK(&p, CONTEXT_POP, .a = 0);
	OK(&p, CONTEXT_PUSH, .aside = true, .a = one);
	OK(&p, CONTEXT_DROP, .a = one);
	FAILS(GM_CUDA_ERROR_CONTEXT_IS_DESTROYED, &p, ALLOC, .aside = true, .a = 2 * MIB);
	FAILS(GM_CUDA_ERROR_CONTEXT_IS_DESTROYED, &p, STREAM_NEW, .aside = true, .a = 0);
	puppet_stop(&p);
	conform_end("a thread whose context another one destroyed is told so");
}

void conform_context(void)
{
	contexts_are_apart();
	default_streams_are_apart();
	memory_is_reached_from_every_context();
	a_context_that_is_destroyed_is_said_to_be();
}
