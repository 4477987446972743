/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts, streams and events. See conformance.h.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

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

/* ---- words that streams write and wait for */

/* A place for words, which are 0, in memory that another process may import. */
static uint64_t words_new(struct puppet *p, uint64_t *ret_handle)
{
	uint64_t handle = OK(p, CREATE, .a = 2 * MIB, .b = 0, .c = 1);
	uint64_t va = conform_place(p, handle, 2 * MIB);

	OK(p, SET, .a = va, .b = 2 * MIB, .c = 0);
	OK(p, SYNC, .a = 0);
	if (ret_handle)
		*ret_handle = handle;
	return va;
}

/* In memory of the device, and in host memory. */
static void streams_wait_for_words(bool host)
{
	struct puppet p = conform_begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t t = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	_Atomic uint64_t *cpu;
	int fd = conform_words_new(&cpu);
	uint64_t va = host ? conform_words_map(&p, fd) : words_new(&p, NULL),
		 most = (uint64_t)1 << 62;

	conform_value("the device can",
		OK(&p, ATTRIBUTE, .a = GM_CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS), 1);
	OK(&p, AWAIT_WORD, .a = s, .b = va, .c = 5);
	GIVES(GM_CUDA_ERROR_NOT_READY, &p, STREAM_QUERY, .a = s);
	OK(&p, WRITE_WORD, .a = t, .b = va, .c = 4);
	OK(&p, SYNC, .a = t);
	GIVES(GM_CUDA_ERROR_NOT_READY, &p, STREAM_QUERY, .a = s);
	OK(&p, WRITE_WORD, .a = t, .b = va, .c = 6);
	OK(&p, SYNC, .a = s);

	/* A write comes after what was launched before it, and not after what another stream does. */
	OK(&p, BUSY, .a = t);
	OK(&p, WRITE_WORD, .a = t, .b = va, .c = 7);
	OK(&p, AWAIT_WORD, .a = s, .b = va, .c = 7);
	GIVES(GM_CUDA_ERROR_NOT_READY, &p, STREAM_QUERY, .a = s);
	OK(&p, IDLE, .a = 0);
	OK(&p, SYNC, .a = s);

	/* By a difference with a sign. */
	OK(&p, AWAIT_WORD, .a = s, .b = va, .c = most);
	GIVES(GM_CUDA_ERROR_NOT_READY, &p, STREAM_QUERY, .a = s);
	OK(&p, WRITE_WORD, .a = t, .b = va, .c = 2 * most - 1);
	OK(&p, SYNC, .a = s);
	OK(&p, AWAIT_WORD, .a = s, .b = va, .c = 1);
	OK(&p, SYNC, .a = s);

	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, AWAIT_WORD, .a = s, .b = 0, .c = 1);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, AWAIT_WORD, .a = s, .b = va + 4, .c = 1);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, WRITE_WORD, .a = s, .b = 0, .c = 1);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, WRITE_WORD, .a = s, .b = va + 4, .c = 1);
	if (host)
		conform_value("the CPU reads what the device wrote", cpu[0], 2 * most - 1);
	puppet_stop(&p);
	close(fd);
	munmap(cpu, CONFORM_WORDS_BYTES);
	conform_end(host ? "a stream waits for a word in host memory that another stream writes"
			 : "a stream waits for a word that another stream writes");
}

static void words_order_processes(void)
{
	struct puppet producer = conform_begin(true), p = conform_begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t handle, theirs = words_new(&producer, &handle), word, read_only;
	int fd = conform_export(&producer, handle);
	struct puppet_answer imported = conform_import(&p, fd);

	conform_expect("import", imported.result, GM_CUDA_SUCCESS);
	word = conform_place(&p, imported.value, 2 * MIB);
	OK(&p, AWAIT_WORD, .a = s, .b = word, .c = 1);
	GIVES(GM_CUDA_ERROR_NOT_READY, &p, STREAM_QUERY, .a = s);
	OK(&producer, WRITE_WORD, .a = 0, .b = theirs, .c = 1);
	OK(&p, SYNC, .a = s);

	/* The same memory a second time, for reading only: words are read and written by the first. */
	read_only = OK(&p, RESERVE, .a = 2 * MIB);
	OK(&p, MAP, .a = read_only, .b = 2 * MIB, .c = imported.value);
	OK(&p, ACCESS, .a = read_only, .b = 2 * MIB, .c = GM_CU_MEM_ACCESS_FLAGS_PROT_READ);
	conform_value("bytes of the word", OK(&p, COUNT, .a = read_only, .b = 8, .c = 0), 7);

	/* Who waits for a process that was killed lets itself go on. */
	OK(&p, AWAIT_WORD, .a = s, .b = word, .c = 2);
	puppet_kill(&producer);
	GIVES(GM_CUDA_ERROR_NOT_READY, &p, STREAM_QUERY, .a = s);
	uint64_t own = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	OK(&p, WRITE_WORD, .a = own, .b = word, .c = UINT64_MAX >> 1);
	OK(&p, SYNC, .a = s);
	close(fd);
	puppet_stop(&p);
	conform_end("words order processes, and whoever waits for a dead one can end that");
}

/* More than a device has queues. */
#define WAITING 40

/* A write by a stream does not get past streams that wait in all queues of a device; a store does. */
static void a_store_passes_streams_that_wait(void)
{
	struct puppet p = conform_begin(true);
	uint64_t streams[WAITING], pages = OK(&p, PAGES, .a = CONFORM_WORDS_BYTES);
	_Atomic uint64_t *cpu;
	int fd = conform_words_new(&cpu);
	uint64_t va = conform_words_map(&p, fd);

	/* They are made before: while 35 streams wait, cuStreamCreate does, too. */
	for (int i = 0; i < WAITING; i++)
		streams[i] = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	for (int i = 0; i < WAITING; i++) {
		OK(&p, AWAIT_WORD, .a = streams[i], .b = va, .c = (uint64_t)i + 1);
		OK(&p, WRITE_WORD, .a = streams[i], .b = va + 64 * (uint64_t)(i + 1), .c = 7);
	}
	for (int i = 0; i < WAITING; i++)
		conform_true("nothing goes on", cpu[8 * (i + 1)] == 0);
	/* A buffer can be opened meanwhile. */
	OK(&p, REGISTER, .a = pages, .b = CONFORM_WORDS_BYTES);

	/* This is what the library does, in a process of its own even. */
	atomic_store(&cpu[0], UINT64_MAX >> 1);
	for (int i = 0; i < WAITING; i++) {
		OK(&p, SYNC, .a = streams[i]);
		conform_true("and does what comes next", cpu[8 * (i + 1)] == 7);
	}
	puppet_stop(&p);
	close(fd);
	munmap(cpu, CONFORM_WORDS_BYTES);
	conform_end("a store by the CPU of another process lets 40 streams that wait go on");
}

static void a_store_replaces_a_dead_process(void)
{
	struct puppet producer = conform_begin(true), p = conform_begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	_Atomic uint64_t *cpu;
	int fd = conform_words_new(&cpu);
	uint64_t theirs = conform_words_map(&producer, fd), word = conform_words_map(&p, fd);

	OK(&p, AWAIT_WORD, .a = s, .b = word, .c = 1);
	GIVES(GM_CUDA_ERROR_NOT_READY, &p, STREAM_QUERY, .a = s);
	OK(&producer, WRITE_WORD, .a = 0, .b = theirs, .c = 1);
	OK(&p, SYNC, .a = s);
	OK(&p, AWAIT_WORD, .a = s, .b = word, .c = 2);
	puppet_kill(&producer);
	GIVES(GM_CUDA_ERROR_NOT_READY, &p, STREAM_QUERY, .a = s);
	conform_value("the last one that the producer wrote", cpu[0], 1);
	atomic_store(&cpu[0], 2);
	OK(&p, SYNC, .a = s);
	puppet_stop(&p);
	close(fd);
	munmap(cpu, CONFORM_WORDS_BYTES);
	conform_end("words in host memory order processes, and a store replaces one that died");
}

/* So the library ends none while a stream waits for another process. */
static void the_end_of_a_registration_waits_for_streams(void)
{
	struct puppet p = conform_begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t other = OK(&p, PAGES, .a = CONFORM_WORDS_BYTES);
	_Atomic uint64_t *cpu;
	int fd = conform_words_new(&cpu);
	uint64_t va = conform_words_map(&p, fd);

	OK(&p, REGISTER, .a = other, .b = CONFORM_WORDS_BYTES);
	OK(&p, AWAIT_WORD, .a = s, .b = va, .c = 1);
	puppet_begin(&p, &(struct puppet_call){.op = PUPPET_UNREGISTER, .a = other});
	nanosleep(&(struct timespec){0, 20000000}, NULL);
	conform_true("it waits", !puppet_finished(&p));
	atomic_store(&cpu[0], 1);
	conform_expect("unregister", puppet_finish(&p).result, GM_CUDA_SUCCESS);
	OK(&p, SYNC, .a = s);
	puppet_stop(&p);
	close(fd);
	munmap(cpu, CONFORM_WORDS_BYTES);
	conform_end("the end of a registration waits for streams that wait for other memory");
}

/* A call, and what it is made with: flags for something new, an event, a stream, or device memory. */
struct behind {
	const char *name;
	enum puppet_op op;
	enum { BEHIND_FLAGS, BEHIND_EVENT, BEHIND_STREAM, BEHIND_SET } with;
};

#define BEHIND_TRIES 50

/* Whether the call waits while a registration ends. Until the thread that ends it is in the driver, the call may still
 * go on, so it is made several times. */
static bool waits_behind(struct puppet *p, const struct behind *behind, const uint64_t *objects,
	uint64_t stream, uint64_t device)
{
	for (int i = 0; i < BEHIND_TRIES; i++) {
		struct puppet_call call = {.op = behind->op};
		if (behind->with == BEHIND_FLAGS)
			call.a = behind->op == PUPPET_STREAM_NEW ? GM_CU_STREAM_NON_BLOCKING
								 : GM_CU_EVENT_DISABLE_TIMING;
		else if (behind->with == BEHIND_SET)
			call.a = device, call.b = 4096, call.d = stream;
		else
			call.a = objects[i], call.b = stream;
		puppet_begin(p, &call);
		nanosleep(&(struct timespec){0, 20000000}, NULL);
		if (!puppet_finished(p))
			return true;
		conform_expect(behind->name, puppet_finish(p).result, GM_CUDA_SUCCESS);
	}
	return false;
}

/* A thread of the program that makes any of these calls waits as long as the library's thread that ends a registration. So
 * the library ends none of its own while the device is busy. */
static void calls_wait_while_a_registration_ends(void)
{
	static const struct behind all[] = {
		{"cuStreamCreate", PUPPET_STREAM_NEW, BEHIND_FLAGS},
		{"cuStreamDestroy", PUPPET_STREAM_END, BEHIND_STREAM},
		{"cuEventCreate", PUPPET_EVENT_NEW, BEHIND_FLAGS},
		{"cuEventRecord", PUPPET_EVENT_RECORD, BEHIND_EVENT},
		{"cuEventDestroy", PUPPET_EVENT_END, BEHIND_EVENT},
		{"cuMemsetD8Async", PUPPET_SET, BEHIND_SET},
	};
	struct puppet p = conform_begin(true);
	uint64_t s = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t other = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	uint64_t device = OK(&p, ALLOC, .a = MIB), objects[BEHIND_TRIES];
	_Atomic uint64_t *cpu;
	int fd = conform_words_new(&cpu);
	uint64_t va = conform_words_map(&p, fd);

	for (uint64_t i = 0; i < sizeof all / sizeof *all; i++) {
		uint64_t pages = OK(&p, PAGES, .a = CONFORM_WORDS_BYTES);
		OK(&p, REGISTER, .a = pages, .b = CONFORM_WORDS_BYTES);
		for (int k = 0; k < BEHIND_TRIES; k++) {
			if (all[i].with == BEHIND_STREAM)
				objects[k] = OK(&p, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
			else
				objects[k] = OK(&p, EVENT_NEW, .a = GM_CU_EVENT_DISABLE_TIMING);
		}
		OK(&p, AWAIT_WORD, .a = s, .b = va, .c = i + 1);
		OK(&p, UNREGISTER, .beside = true, .a = pages);
		GIVES(GM_CUDA_ERROR_NOT_READY, &p, STREAM_QUERY, .a = s);
		bool waits = waits_behind(&p, &all[i], objects, other, device);
		conform_true(all[i].name, waits);
		/* It does not wait for good. */
		atomic_store(&cpu[0], i + 1);
		if (waits)
			conform_expect(all[i].name, puppet_finish(&p).result, GM_CUDA_SUCCESS);
		OK(&p, SYNC, .a = s);
	}
	puppet_stop(&p);
	close(fd);
	munmap(cpu, CONFORM_WORDS_BYTES);
	conform_end(
		"while a registration ends, streams and events are neither made, used nor destroyed");
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
	streams_wait_for_words(false);
	streams_wait_for_words(true);
	words_order_processes();
	a_store_passes_streams_that_wait();
	a_store_replaces_a_dead_process();
	the_end_of_a_registration_waits_for_streams();
	calls_wait_while_a_registration_ends();
}
