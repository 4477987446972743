/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is left of a process whose work went astray on the GPU: which calls fail for good, in which
 * of its contexts, and that its physical memory and its addresses can still be managed, and so be
 * given back. See conform_calls.h for the calls.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/conform_calls.h"

/* What each call gives, made by that thread with that context current. */
static void look(struct conform_world *world, const char *where, bool astray, bool aside,
	enum conform_arg context, const struct conform_parts *parts)
{
	size_t n;
	const struct conform_call *calls = conform_calls(&n);

	OK(&world->p, CONTEXT_SET, .aside = aside, .a = world->value[context]);
	for (size_t i = 0; i < n; i++) {
		int wanted = astray && calls[i].flags & CALL_FAILS ? GM_CUDA_ERROR_ILLEGAL_ADDRESS
								   : GM_CUDA_SUCCESS;
		struct puppet_answer answer;
		char what[160];
		if (calls[i].flags & CALL_NEEDS_CONTEXT && context == ARG_ZERO)
			wanted = GM_CUDA_ERROR_INVALID_CONTEXT;
		if (calls[i].flags & CALL_ONE_CONTEXT && context == ARG_OWN && !astray)
			continue;
		snprintf(what, sizeof what, "%s: %s", where, calls[i].name);
		answer = conform_make(world, &calls[i], parts[i], aside);
		conform_expect(what, answer.result, wanted);
		conform_restore(world, &calls[i], answer, aside, world->value[context]);
	}
}

static struct conform_parts *prepare_all(struct conform_world *world)
{
	size_t n;
	const struct conform_call *calls = conform_calls(&n);
	struct conform_parts *parts = calloc(n, sizeof *parts);

	if (!parts)
		abort();
	for (size_t i = 0; i < n; i++)
		parts[i] = conform_prepare(world, &calls[i]);
	return parts;
}

static void which_calls_need_a_context(void)
{
	static const enum conform_arg contexts[] = {ARG_PRIMARY, ARG_ZERO, ARG_OWN};
	struct conform_world world;

	conform_world_begin(&world);
	for (size_t i = 0; i < sizeof contexts / sizeof *contexts; i++) {
		struct conform_parts *parts = prepare_all(&world);
		look(&world, "all is well", false, false, contexts[i], parts);
		OK(&world.p, CONTEXT_SET, .a = world.value[ARG_PRIMARY]);
		free(parts);
	}
	conform_world_end(&world);
	conform_end("a call that is told its context by what it is given needs none");
}

static void one_context_goes_astray_and_all_fail(void)
{
	static const struct {
		const char *name;
		enum conform_arg culprit, context;
		bool aside;
	} cases[] = {
		{"astray", ARG_PRIMARY, ARG_PRIMARY, false},
		{"astray, another thread", ARG_PRIMARY, ARG_PRIMARY, true},
		{"astray, no context", ARG_PRIMARY, ARG_ZERO, false},
		{"astray, another context", ARG_PRIMARY, ARG_OWN, false},
		{"astray in a context that is not primary, which is current", ARG_OWN, ARG_OWN,
			false},
		{"astray in a context that is not primary", ARG_OWN, ARG_PRIMARY, false},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct conform_world world;
		struct conform_parts *parts;
		conform_world_begin(&world);
		parts = prepare_all(&world);
		OK(&world.p, CONTEXT_SET, .a = world.value[cases[i].culprit]);
		GIVES(GM_CUDA_ERROR_ILLEGAL_ADDRESS, &world.p, ASTRAY, .a = 0);
		look(&world, cases[i].name, true, cases[i].aside, cases[i].context, parts);
		free(parts);
		conform_world_end(&world);
	}
	conform_end(
		"work that goes astray fails all contexts of the process, and no call of memory and addresses");
}

/* Works on memory that is no more. */
static void go_astray(struct puppet *p, bool copy)
{
	uint64_t s = OK(p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t to = OK(p, ALLOC, .a = 2 * MIB), va;

	va = conform_place(p, OK(p, CREATE, .a = 2 * MIB, .b = 0, .c = 1), 2 * MIB);
	OK(p, BUSY, .a = s);
	if (copy)
		OK(p, COPY, .a = to, .b = va, .c = 2 * MIB, .d = s);
	else
		OK(p, SET, .a = va, .b = 2 * MIB, .c = 1, .d = s);
	OK(p, UNMAP, .a = va, .b = 2 * MIB); /* does not wait */
	OK(p, IDLE, .a = 0);
	GIVES(GM_CUDA_ERROR_ILLEGAL_ADDRESS, p, SYNC, .a = s);
}

static void work_on_what_is_unmapped_goes_astray(void)
{
	for (int copy = 0; copy < 2; copy++) {
		struct puppet p = conform_begin(true);
		go_astray(&p, copy);
		GIVES(GM_CUDA_ERROR_ILLEGAL_ADDRESS, &p, ALLOC, .a = 2 * MIB);
		puppet_stop(&p);
	}
	conform_end("unmapping waits for nobody, and work that comes later goes astray");
}

static void no_capture_goes_on(void)
{
	struct puppet p = conform_begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t t = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);

	OK(&p, CAPTURE, .a = s, .b = GM_CU_STREAM_CAPTURE_MODE_RELAXED);
	go_astray(&p, false);
	GIVES(GM_CUDA_ERROR_ILLEGAL_ADDRESS, &p, CAPTURING, .a = s);
	GIVES(GM_CUDA_ERROR_ILLEGAL_ADDRESS, &p, CALL, .a = s);
	for (int i = 0; i < 2; i++)
		GIVES(GM_CUDA_ERROR_ILLEGAL_ADDRESS, &p, CAPTURE_END, .a = s);
	GIVES(GM_CUDA_ERROR_ILLEGAL_ADDRESS, &p, CAPTURE, .a = t,
		.b = GM_CU_STREAM_CAPTURE_MODE_RELAXED);
	GIVES(GM_CUDA_ERROR_ILLEGAL_ADDRESS, &p, CAPTURE_END, .a = t);
	puppet_stop(&p);
	conform_end("once work went astray no capture ends, and none begins");
}

static void the_last_context_ends_and_none_comes(void)
{
	struct puppet p = conform_begin(false);
	uint64_t own = OK(&p, CONTEXT_NEW, .a = 0);

	OK(&p, CONTEXT_POP, .a = 0);
	OK(&p, CONTEXT, .a = 0);
	go_astray(&p, false);
	OK(&p, CONTEXT_END, .a = 0);
	conform_value("active", OK(&p, CONTEXT_STATE, .a = 0), 0);
	GIVES(GM_CUDA_ERROR_ILLEGAL_ADDRESS, &p, CONTEXT_TAKE, .a = 0);
	OK(&p, CONTEXT_SET, .a = own);
	GIVES(GM_CUDA_ERROR_ILLEGAL_ADDRESS, &p, CONTEXT_SYNC, .a = 0);
	OK(&p, CONTEXT_DROP, .a = own);
	GIVES(GM_CUDA_ERROR_ILLEGAL_ADDRESS, &p, CONTEXT_TAKE, .a = 0);
	GIVES(GM_CUDA_ERROR_ILLEGAL_ADDRESS, &p, CONTEXT_NEW, .a = 0);
	puppet_stop(&p);
	conform_end("when all contexts of such a process have ended, no other can be made");
}

static void neither_destroying_nor_resetting_helps(void)
{
	struct puppet p = conform_begin(false);
	uint64_t context = OK(&p, CONTEXT, .a = 0), own = OK(&p, CONTEXT_NEW, .a = 0), mem;

	GIVES(GM_CUDA_ERROR_ILLEGAL_ADDRESS, &p, ASTRAY, .a = 0);
	OK(&p, CONTEXT_DROP, .a = own);
	OK(&p, CONTEXT_SET, .a = context);
	GIVES(GM_CUDA_ERROR_ILLEGAL_ADDRESS, &p, CONTEXT_SYNC, .a = 0);
	GIVES(GM_CUDA_ERROR_ILLEGAL_ADDRESS, &p, ALLOC, .a = 2 * MIB);
	GIVES(GM_CUDA_ERROR_ILLEGAL_ADDRESS, &p, CONTEXT_NEW, .a = 0);
	puppet_stop(&p);
	p = conform_begin(false);
	own = OK(&p, CONTEXT_NEW, .a = 0);
	OK(&p, CONTEXT_POP, .a = 0);
	context = OK(&p, CONTEXT, .a = 0);
	GIVES(GM_CUDA_ERROR_ILLEGAL_ADDRESS, &p, ASTRAY, .a = 0);
	conform_value("active", OK(&p, CONTEXT_STATE, .a = 0), 1);
	OK(&p, CONTEXT_RESET, .a = 0);
	conform_value("active after a reset", OK(&p, CONTEXT_STATE, .a = 0), 0);
	GIVES(GM_CUDA_ERROR_ILLEGAL_ADDRESS, &p, CONTEXT_TAKE, .a = 0);
	conform_value("active after all", OK(&p, CONTEXT_STATE, .a = 0), 0);
	conform_value("its device", OK(&p, CONTEXT_DEVICE, .a = 0), 0);
	OK(&p, CONTEXT_SET, .a = context);
	GIVES(GM_CUDA_ERROR_CONTEXT_IS_DESTROYED, &p, ALLOC, .a = 2 * MIB);
	GIVES(GM_CUDA_ERROR_CONTEXT_IS_DESTROYED, &p, CONTEXT_SYNC, .a = 0);
	OK(&p, CONTEXT_SET, .a = own);
	GIVES(GM_CUDA_ERROR_ILLEGAL_ADDRESS, &p, CONTEXT_SYNC, .a = 0);
	mem = OK(&p, CREATE, .a = 2 * MIB, .b = 0, .c = 1);
	conform_place(&p, mem, 2 * MIB);
	puppet_stop(&p);
	conform_end("a process whose work went astray has no context any more, but memory");
}

static void others_compute_on(void)
{
	struct puppet watcher = conform_begin(false), owner = conform_begin(true),
		      user = conform_begin(true);
	uint64_t mem = OK(&owner, CREATE, .a = FULL, .b = 0, .c = 1), va, there, opened, more;
	uint64_t ptr = OK(&owner, ALLOC, .a = FULL), used;
	struct puppet_call open = {.op = PUPPET_IPC_OPEN, .a = LAZY};
	int fd = conform_export(&owner, mem), later;

	memcpy(open.blob, PUPPET(&owner, IPC_GET, .a = ptr).blob, sizeof open.blob);
	va = conform_place(&owner, mem, FULL);
	OK(&owner, SET, .a = va, .b = FULL, .c = 0x5a);
	OK(&owner, SET, .a = ptr, .b = FULL, .c = 0x5b);
	OK(&owner, SYNC, .a = 0);
	there = conform_place(&user, conform_import(&user, fd).value, FULL);
	opened = puppet_do(&user, &open, -1, NULL).value;
	GIVES(GM_CUDA_ERROR_ILLEGAL_ADDRESS, &owner, ASTRAY, .a = 0);
	conform_value("of the chunk", OK(&user, COUNT, .a = there, .b = FULL, .c = 0x5a), FULL);
	conform_value("of the block", OK(&user, COUNT, .a = opened, .b = FULL, .c = 0x5b), FULL);
	OK(&user, SET, .a = there, .b = FULL, .c = 1);
	OK(&user, SYNC, .a = 0);
	/* What is given out from then on is as good. */
	OK(&user, IPC_CLOSE, .a = opened);
	conform_expect("IPC_OPEN of what its owner cannot use any more",
		puppet_do(&user, &open, -1, NULL).result, GM_CUDA_SUCCESS);
	more = OK(&owner, CREATE, .a = FULL, .b = 0, .c = 1);
	later = conform_export(&owner, more);
	there = conform_place(&user, conform_import(&user, later).value, FULL);
	conform_value("all zero", OK(&user, COUNT, .a = there, .b = FULL, .c = 0), FULL);
	close(fd);
	close(later);
	/* And what its own process gives back is back. */
	used = conform_free(&watcher);
	for (int mapped = 0; mapped < 2; mapped++) {
		more = OK(&owner, CREATE, .a = FULL, .b = 0, .c = 1);
		conform_true("it takes memory", conform_free(&watcher) <= used - FULL);
		if (mapped) {
			va = conform_place(&owner, more, FULL);
			OK(&owner, UNMAP, .a = va, .b = FULL);
			OK(&owner, UNRESERVE, .a = va, .b = FULL);
		}
		OK(&owner, RELEASE, .a = more);
		if (mapped)
			conform_believed("memory that was mapped after it comes back",
				conform_comes_back(&watcher, used) ? GM_CUDA_SUCCESS
								   : GM_CUDA_ERROR_NOT_READY,
				GM_CUDA_SUCCESS);
		else
			conform_true("which comes back", conform_comes_back(&watcher, used));
	}
	puppet_stop(&owner);
	OK(&user, CONTEXT_SYNC, .a = 0);
	puppet_stop(&user);
	puppet_stop(&watcher);
	conform_end(
		"others use on what a process shares whose work went astray, and it gives back");
}

void conform_astray(void)
{
	which_calls_need_a_context();
	one_context_goes_astray_and_all_fail();
	work_on_what_is_unmapped_goes_astray();
	no_capture_goes_on();
	the_last_context_ends_and_none_comes();
	neither_destroying_nor_resetting_helps();
	others_compute_on();
}
