/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts that are not primary, and what becomes of those that end. See conformance.h.
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

static void none_in_the_place_of_a_context_is_a_pop(void)
{
	struct puppet p = conform_begin(false);
	uint64_t primary = OK(&p, CONTEXT, .a = 0);

	OK(&p, CONTEXT_NEW, .a = 0);
	OK(&p, CONTEXT_SET, .a = 0);
	conform_value("the one below", OK(&p, CONTEXT_CURRENT, .a = 0), primary);
	OK(&p, CONTEXT_POP, .a = 0);
	GIVES(GM_CUDA_ERROR_INVALID_CONTEXT, &p, CONTEXT_POP, .a = 0);
	OK(&p, CONTEXT_SET, .a = 0);
	GIVES(GM_CUDA_ERROR_INVALID_CONTEXT, &p, CONTEXT_POP, .a = 0);
	conform_value("none", OK(&p, CONTEXT_CURRENT, .a = 0), 0);
	puppet_stop(&p);
	conform_end("setting no context current pops the one that is");
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

static void a_context_that_is_current_elsewhere_is_held(void)
{
	struct puppet p = conform_begin(false), watcher = conform_begin(true);
	uint64_t one, two, before;

	before = conform_free(&watcher);
	one = OK(&p, CONTEXT_NEW, .a = 0);
	OK(&p, ALLOC, .a = 64 * MIB);
	OK(&p, CONTEXT_POP, .a = 0);
	OK(&p, CONTEXT_PUSH, .aside = true, .a = one);
	conform_true("it takes memory", conform_free(&watcher) <= before - 64 * MIB);
	OK(&p, CONTEXT_DROP, .a = one);
	conform_true("which is back at once", conform_comes_back(&watcher, before));
	/* Nothing but that it is no more, whoever asks. */
	for (int i = 0; i < 3; i++) {
		GIVES(GM_CUDA_ERROR_CONTEXT_IS_DESTROYED, &p, CONTEXT_ID, .a = one);
		OK(&p, CONTEXT_PUSH, .a = one);
		conform_value("its device", OK(&p, CONTEXT_DEVICE, .a = 0), 0);
		GIVES(GM_CUDA_ERROR_CONTEXT_IS_DESTROYED, &p, CONTEXT_SYNC, .a = 0);
		OK(&p, CONTEXT_POP, .a = 0);
		two = OK(&p, CONTEXT_NEW, .a = 0);
		conform_true("its handle does not come again", two != one);
		OK(&p, CONTEXT_DROP, .a = two);
	}
	conform_value("its device", OK(&p, CONTEXT_DEVICE, .aside = true, .a = 0), 0);
	GIVES(GM_CUDA_ERROR_CONTEXT_IS_DESTROYED, &p, CONTEXT_SYNC, .aside = true, .a = 0);
	OK(&p, CONTEXT_POP, .aside = true, .a = 0);
	GIVES(GM_CUDA_ERROR_INVALID_CONTEXT, &p, CONTEXT_SYNC, .aside = true, .a = 0);
	GIVES(GM_CUDA_ERROR_CONTEXT_IS_DESTROYED, &p, CONTEXT_ID, .a = one);
	OK(&p, CONTEXT_NEW, .a = 0);
	OK(&p, CONTEXT_SYNC, .a = 0);
	puppet_stop(&p);
	puppet_stop(&watcher);
	conform_end(
		"a context that is current somewhere when it is destroyed can be asked and entered");
}

static void a_primary_context_comes_again_after_a_reset(void)
{
	struct puppet p = conform_begin(false);
	uint64_t context = OK(&p, CONTEXT, .a = 0), id = OK(&p, CONTEXT_ID, .a = context);

	OK(&p, CONTEXT_POP, .a = 0);
	OK(&p, CONTEXT_RESET, .a = 0);
	GIVES(GM_CUDA_ERROR_CONTEXT_IS_DESTROYED, &p, CONTEXT_ID, .a = context);
	conform_value("the handle", OK(&p, CONTEXT, .a = 0), context);
	conform_true("the id is another", OK(&p, CONTEXT_ID, .a = context) != id);
	/* Who had it retained has it retained still. */
	BELIEVED(GM_CUDA_SUCCESS, &p, CONTEXT_END, .a = 0);
	BELIEVED(GM_CUDA_SUCCESS, &p, CONTEXT_ID, .a = context);
	BELIEVED(GM_CUDA_SUCCESS, &p, CONTEXT_END, .a = 0);
	BELIEVED(GM_CUDA_ERROR_CONTEXT_IS_DESTROYED, &p, CONTEXT_ID, .a = context);
	puppet_stop(&p);
	conform_end("a primary context that was reset comes again at its handle, with another id");
}

void conform_context(void)
{
	contexts_are_apart();
	default_streams_are_apart();
	memory_is_reached_from_every_context();
	none_in_the_place_of_a_context_is_a_pop();
	a_context_that_is_destroyed_is_said_to_be();
	a_context_that_is_current_elsewhere_is_held();
	a_primary_context_comes_again_after_a_reset();
}
