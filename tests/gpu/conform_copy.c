/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What transfers rely on: which memory the driver knows, and that an event after a copy passes when the
 * copy is done. See conformance.h.
 */
#include "tests/gpu/conformance.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static void the_driver_knows_its_memory_and_no_other(void)
{
	struct puppet p = conform_begin(true);
	uint64_t pages = OK(&p, PAGES, .a = 4 * MIB), host = OK(&p, HOST_ALLOC, .a = 4 * MIB);
	uint64_t device = OK(&p, ALLOC, .a = 4 * MIB);
	uint64_t handle = OK(&p, CREATE, .a = 4 * MIB, .b = 0, .c = 1);
	uint64_t own = OK(&p, CREATE, .a = 4 * MIB, .b = HOST, .c = 1);
	uint64_t va = conform_place(&p, handle, 4 * MIB), there = conform_place(&p, own, 4 * MIB);

	conform_value("cuMemAlloc", OK(&p, MEMORY_TYPE, .a = device), GM_CU_MEMORYTYPE_DEVICE);
	conform_value(
		"its end", OK(&p, MEMORY_TYPE, .a = device + 4 * MIB - 1), GM_CU_MEMORYTYPE_DEVICE);
	conform_value("cuMemMap", OK(&p, MEMORY_TYPE, .a = va + MIB), GM_CU_MEMORYTYPE_DEVICE);
	conform_value("cuMemHostAlloc", OK(&p, MEMORY_TYPE, .a = host), GM_CU_MEMORYTYPE_HOST);
	/* What it is called matters less than that it is known. */
	conform_true("a host chunk is known", OK(&p, MEMORY_TYPE, .a = there) != 0);

	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, MEMORY_TYPE, .a = pages);
	OK(&p, REGISTER, .a = pages, .b = 2 * MIB);
	conform_value("registered", OK(&p, MEMORY_TYPE, .a = pages), GM_CU_MEMORYTYPE_HOST);
	conform_value(
		"its middle", OK(&p, MEMORY_TYPE, .a = pages + MIB + 1), GM_CU_MEMORYTYPE_HOST);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, MEMORY_TYPE, .a = pages + 3 * MIB);
	OK(&p, UNREGISTER, .a = pages);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, MEMORY_TYPE, .a = pages);
	puppet_stop(&p);
	conform_end("the driver knows its own and registered memory, and no other");
}

/* A slot is filled again when the event after its copy has passed. */
static void an_event_after_a_copy_passes_when_it_is_done(void)
{
	struct puppet p = conform_begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t host = OK(&p, HOST_ALLOC, .a = 4 * MIB), device = OK(&p, ALLOC, .a = 4 * MIB);
	uint64_t first, second;

	OK(&p, SET, .a = device, .b = 4 * MIB, .c = 1);
	OK(&p, SYNC, .a = 0);
	OK(&p, BUSY, .a = s);
	/* In two pieces, at odd places. */
	OK(&p, COPY, .a = host + 1, .b = device, .c = MIB + 3, .d = s);
	first = OK(&p, EVENT, .a = s);
	OK(&p, COPY, .a = host + MIB + 4, .b = device + MIB + 3, .c = MIB, .d = s);
	second = OK(&p, EVENT, .a = s);
	GIVES(GM_CUDA_ERROR_NOT_READY, &p, EVENT_QUERY, .a = first);
	GIVES(GM_CUDA_ERROR_NOT_READY, &p, EVENT_QUERY, .a = second);
	OK(&p, IDLE, .a = 0);
	OK(&p, SYNC, .a = s);
	OK(&p, EVENT_QUERY, .a = first);
	OK(&p, EVENT_QUERY, .a = second);
	conform_value(
		"copied", OK(&p, CPU_COUNT, .a = host + 1, .b = 2 * MIB + 3, .c = 1), 2 * MIB + 3);
	puppet_stop(&p);
	conform_end("an event after a copy from pinned memory passes when the copy is done");
}

/* Whether the call waits for the word at *cpu that a stream waits for, too. It may come before the copy of
 * another thread that it shall wait for: then it is made again. */
static void waits_for_the_copy(
	struct puppet *p, const char *what, const struct puppet_call *call, _Atomic uint64_t *cpu)
{
	bool waits = false;

	for (int i = 0; i < 100 && !waits; i++) {
		puppet_begin(p, call);
		nanosleep(&(struct timespec){0, 20000000}, NULL);
		waits = !puppet_finished(p);
		if (!waits)
			conform_expect(what, puppet_finish(p).result, GM_CUDA_SUCCESS);
	}
	conform_true(what, waits);
	atomic_fetch_add(cpu, 1);
	if (waits)
		conform_expect(what, puppet_finish(p).result, GM_CUDA_SUCCESS);
}

/* So the library lets the driver copy pageable memory only on a stream whose work is done. */
static void a_copy_of_pageable_memory_keeps_others_waiting(void)
{
	struct puppet p = conform_begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t t = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t pages = OK(&p, PAGES, .a = 16 * MIB), other = OK(&p, PAGES, .a = 2 * MIB);
	uint64_t device = OK(&p, ALLOC, .a = 16 * MIB), pinned = OK(&p, HOST_ALLOC, .a = 2 * MIB);
	uint64_t event = OK(&p, EVENT_NEW, .a = GM_CU_EVENT_DISABLE_TIMING), n = 0;
	const struct {
		const char *what;
		struct puppet_call call;
	} calls[] = {
		{"cuStreamCreate waits", {.op = PUPPET_STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING}},
		{"cuMemHostAlloc waits", {.op = PUPPET_HOST_ALLOC, .a = MIB}},
		{"cuMemAlloc waits", {.op = PUPPET_ALLOC, .a = MIB}},
		{"cuEventRecord on the stream waits",
			{.op = PUPPET_EVENT_RECORD, .a = event, .b = s}},
		{"another such copy waits",
			{.op = PUPPET_COPY, .a = device, .b = other, .c = 2 * MIB, .d = t}},
	};
	_Atomic uint64_t *cpu;
	int fd = conform_words_new(&cpu);
	uint64_t word = conform_words_map(&p, fd);

	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		OK(&p, AWAIT_WORD, .a = s, .b = word, .c = ++n);
		OK(&p, COPY, .beside = true, .a = device, .b = pages, .c = 9 * MIB, .d = s);
		/* What the library does on other streams goes on. */
		OK(&p, COPY, .a = device + 8 * MIB, .b = pinned, .c = MIB, .d = t);
		OK(&p, EVENT_RECORD, .a = event, .b = t);
		OK(&p, SYNC, .a = t);
		waits_for_the_copy(&p, calls[i].what, &calls[i].call, cpu);
		OK(&p, CONTEXT_SYNC);
	}
	puppet_stop(&p);
	close(fd);
	munmap(cpu, CONFORM_WORDS_BYTES);
	conform_end(
		"while a copy of pageable memory waits for its stream, other threads wait for it");
}

void conform_copy(void)
{
	a_copy_of_pageable_memory_keeps_others_waiting();
	the_driver_knows_its_memory_and_no_other();
	an_event_after_a_copy_passes_when_it_is_done();
}
