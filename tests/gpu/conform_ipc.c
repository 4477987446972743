/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA IPC handles. See conformance.h.
 */
#include "tests/gpu/conformance.h"

#include <stdio.h>
#include <string.h>

static void ipc_handles_open_in_other_processes(void)
{
	struct puppet owner = conform_begin(true), user = conform_begin(true);
	uint64_t ptr = OK(&owner, ALLOC, .a = FULL), there, again;
	struct puppet_answer handle = PUPPET(&owner, IPC_GET, .a = ptr);
	struct puppet_call open = {.op = PUPPET_IPC_OPEN, .a = LAZY};
	struct puppet_answer answer;

	conform_expect("IPC_GET", handle.result, GM_CUDA_SUCCESS);
	memcpy(open.blob, handle.blob, sizeof open.blob);
	OK(&owner, SET, .a = ptr, .b = FULL, .c = 0x21);
	OK(&owner, SYNC, .a = 0);
	answer = puppet_do(&user, &open, -1, NULL);
	conform_expect("IPC_OPEN", answer.result, GM_CUDA_SUCCESS);
	there = answer.value;
	conform_value("bytes seen", OK(&user, COUNT, .a = there, .b = FULL, .c = 0x21), FULL);
	answer = puppet_do(&user, &open, -1, NULL);
	conform_expect("IPC_OPEN again", answer.result, GM_CUDA_SUCCESS);
	/* The client's tables count in steps of 2 MiB. */
	conform_value("its address, past a multiple of 2 MiB", there % ((uint64_t)2 << 20), 0);
	again = answer.value;
	conform_value("the same address the second time", again, there);
	OK(&user, IPC_CLOSE, .a = there);
	conform_value("open until the last close",
		OK(&user, COUNT, .a = there, .b = FULL, .c = 0x21), FULL);
	OK(&user, IPC_CLOSE, .a = again);
	conform_expect("IPC_OPEN in the owner", puppet_do(&owner, &open, -1, NULL).result,
		GM_CUDA_ERROR_INVALID_CONTEXT);
	puppet_stop(&user);
	puppet_stop(&owner);
	conform_end(
		"an IPC handle opens in another process, twice at one address, and not in its own");
}

static void an_ipc_client_computes_on_after_the_owner_died(void)
{
	struct puppet watcher = conform_begin(false), owner = conform_begin(true),
		      user = conform_begin(true);
	uint64_t ptr = OK(&owner, ALLOC, .a = FULL), there;
	struct puppet_call open = {.op = PUPPET_IPC_OPEN, .a = LAZY};
	uint64_t used;

	memcpy(open.blob, PUPPET(&owner, IPC_GET, .a = ptr).blob, sizeof open.blob);
	there = puppet_do(&user, &open, -1, NULL).value;
	OK(&user, SET, .a = there, .b = FULL, .c = 3);
	OK(&user, SYNC, .a = 0);
	used = conform_free(&watcher);
	puppet_kill(&owner);
	conform_value("bytes kept", OK(&user, COUNT, .a = there, .b = FULL, .c = 3), FULL);
	OK(&user, SET, .a = there, .b = FULL, .c = 4);
	conform_value("bytes written after", OK(&user, COUNT, .a = there, .b = FULL, .c = 4), FULL);
	puppet_stop(&user);
	conform_true("back when both are gone", conform_comes_back(&watcher, used + FULL));
	puppet_stop(&watcher);
	conform_end("an ipc client reads and writes on after the owner was killed");
}

static void ipc_nonsense_is_refused(void)
{
	struct puppet user = conform_begin(true);
	struct puppet_call open = {.op = PUPPET_IPC_OPEN, .a = LAZY};

	memset(open.blob, 0xab, sizeof open.blob);
	conform_true("a handle of nonsense fails",
		puppet_do(&user, &open, -1, NULL).result != GM_CUDA_SUCCESS);
	puppet_stop(&user);
	conform_end("an IPC handle of nonsense is refused");
}

static void an_opening_is_closed_as_often_as_it_was_made(void)
{
	struct puppet owner = conform_begin(true), user = conform_begin(true);
	uint64_t ptr = OK(&owner, ALLOC, .a = 2 * MIB), there, own;
	struct puppet_call open = {.op = PUPPET_IPC_OPEN, .a = LAZY};

	memcpy(open.blob, PUPPET(&owner, IPC_GET, .a = ptr).blob, sizeof open.blob);
	own = OK(&user, ALLOC, .a = 2 * MIB);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &user, IPC_CLOSE, .a = own);
	there = puppet_do(&user, &open, -1, NULL).value;
	BELIEVED(GM_CUDA_ERROR_INVALID_VALUE, &user, IPC_GET, .a = there);
	OK(&user, IPC_CLOSE, .a = there);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &user, IPC_CLOSE, .a = there);
	there = puppet_do(&user, &open, -1, NULL).value;
	BELIEVED(GM_CUDA_ERROR_INVALID_VALUE, &user, FREE, .a = there);
	open.a = 0;
	conform_believed("IPC_OPEN without the one flag that there is",
		puppet_do(&user, &open, -1, NULL).result, GM_CUDA_ERROR_INVALID_VALUE);
	puppet_stop(&user);
	puppet_stop(&owner);
	conform_end("an opening is closed once, and only what was opened is");
}

static void mapped_memory_has_no_ipc_handle(void)
{
	struct puppet p = conform_begin(true);
	uint64_t va = conform_place(&p, OK(&p, CREATE, .a = 2 * MIB, .b = 0, .c = 1), 2 * MIB);

	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &p, IPC_GET, .a = va);
	conform_value("the device says that it has ipc",
		OK(&p, ATTRIBUTE, .a = GM_CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, .b = 0), 1);
	puppet_stop(&p);
	conform_end("memory mapped by the program has no IPC handle");
}

static void a_handle_is_of_one_allocation_and_of_a_living_owner(void)
{
	struct puppet owner = conform_begin(true), user = conform_begin(true);
	struct puppet_call open = {.op = PUPPET_IPC_OPEN, .a = LAZY};
	uint64_t ptr = OK(&owner, ALLOC, .a = FULL);
	struct puppet_answer first = PUPPET(&owner, IPC_GET, .a = ptr), second;

	OK(&owner, FREE, .a = ptr);
	ptr = OK(&owner, ALLOC, .a = FULL);
	second = PUPPET(&owner, IPC_GET, .a = ptr);
	conform_true("another one for new memory",
		memcmp(first.blob, second.blob, sizeof first.blob) != 0);
	memcpy(open.blob, second.blob, sizeof open.blob);
	puppet_kill(&owner);
	conform_expect("IPC_OPEN of what died with its owner",
		puppet_do(&user, &open, -1, NULL).result, GM_CUDA_ERROR_INVALID_HANDLE);
	puppet_stop(&user);
	conform_end("an IPC handle is of one allocation, and opens while its owner lives");
}

/* Where a handle has the number by which the driver finds the memory: daemon/backend/ipc_blocks.c. */
static bool same_number(const uint8_t *one, const uint8_t *other)
{
	return memcmp(one + 48, other + 48, 8) == 0;
}

/* Whoever gives out handles must know it: the 64 bytes stay good for what gets their number. */
static void an_old_handle_opens_what_has_its_number_since(void)
{
	struct puppet owner = conform_begin(true), user = conform_begin(true);
	struct puppet_call open = {.op = PUPPET_IPC_OPEN, .a = LAZY};
	uint64_t ptr = OK(&owner, ALLOC, .a = FULL), next;
	struct puppet_answer answer;

	memcpy(open.blob, PUPPET(&owner, IPC_GET, .a = ptr).blob, sizeof open.blob);
	OK(&owner, FREE, .a = ptr);
	conform_expect("IPC_OPEN of what was freed", puppet_do(&user, &open, -1, NULL).result,
		GM_CUDA_ERROR_INVALID_VALUE);
	/* Elsewhere, so that it is not the address that counts. */
	OK(&owner, RESERVE, .a = FULL, .c = ptr);
	next = OK(&owner, ALLOC, .a = FULL);
	conform_true("new memory lies elsewhere", next != ptr);
	OK(&owner, SET, .a = next, .b = FULL, .c = 0x32);
	OK(&owner, SYNC, .a = 0);
	conform_expect("IPC_OPEN of what took its number, and has no handle",
		puppet_do(&user, &open, -1, NULL).result, GM_CUDA_ERROR_NOT_PERMITTED);
	answer = PUPPET(&owner, IPC_GET, .a = next);
	conform_true("another handle", memcmp(answer.blob, open.blob, sizeof open.blob) != 0);
	conform_true("of the same number", same_number(answer.blob, open.blob));
	answer = puppet_do(&user, &open, -1, NULL);
	conform_expect("IPC_OPEN of what took its number", answer.result, GM_CUDA_SUCCESS);
	conform_value("of the new memory",
		OK(&user, COUNT, .a = answer.value, .b = FULL, .c = 0x32), FULL);
	puppet_stop(&user);
	puppet_stop(&owner);
	conform_end("an old IPC handle opens what has its number since, wherever that lies");
}

static void a_registered_page_takes_the_number_away(void)
{
	struct puppet owner = conform_begin(true), user = conform_begin(true);
	struct puppet_call open = {.op = PUPPET_IPC_OPEN, .a = LAZY};
	uint64_t ptr = OK(&owner, ALLOC, .a = FULL), next, page;
	struct puppet_answer answer;

	memcpy(open.blob, PUPPET(&owner, IPC_GET, .a = ptr).blob, sizeof open.blob);
	OK(&owner, FREE, .a = ptr);
	page = OK(&owner, PAGES, .a = 4096);
	OK(&owner, REGISTER, .a = page, .b = 4096);
	conform_expect("IPC_OPEN of a page's number", puppet_do(&user, &open, -1, NULL).result,
		GM_CUDA_ERROR_NOT_PERMITTED);
	next = OK(&owner, ALLOC, .a = FULL);
	answer = PUPPET(&owner, IPC_GET, .a = next);
	conform_true("new memory has another number", !same_number(answer.blob, open.blob));
	conform_expect("IPC_OPEN when other memory is shared",
		puppet_do(&user, &open, -1, NULL).result, GM_CUDA_ERROR_NOT_PERMITTED);
	puppet_stop(&user);
	puppet_stop(&owner);
	conform_end(
		"a registered page takes the number of freed memory, and keeps its old handle out");
}

static void one_context_opens_what_is_of_one_process(void)
{
	struct puppet owner = conform_begin(true), stranger = conform_begin(true),
		      user = conform_begin(false);
	struct puppet_call open[3] = {{.op = PUPPET_IPC_OPEN, .a = LAZY},
		{.op = PUPPET_IPC_OPEN, .a = LAZY}, {.op = PUPPET_IPC_OPEN, .a = LAZY}};
	uint64_t own, primary, there;

	for (int i = 0; i < 3; i++) {
		struct puppet *of = i < 2 ? &owner : &stranger;
		uint64_t ptr = OK(of, ALLOC, .a = 2 * MIB);
		memcpy(open[i].blob, PUPPET(of, IPC_GET, .a = ptr).blob, sizeof open[i].blob);
	}
	own = OK(&user, CONTEXT_NEW, .a = 0);
	OK(&user, CONTEXT_POP, .a = 0);
	primary = OK(&user, CONTEXT, .a = 0);
	there = puppet_do(&user, &open[0], -1, NULL).value;
	conform_value("the same address", puppet_do(&user, &open[0], -1, NULL).value, there);
	OK(&user, CONTEXT_SET, .a = own);
	for (int i = 0; i < 2; i++)
		conform_expect("IPC_OPEN in a second context",
			puppet_do(&user, &open[i], -1, NULL).result, GM_CUDA_ERROR_INVALID_HANDLE);
	conform_expect("IPC_OPEN of another owner's", puppet_do(&user, &open[2], -1, NULL).result,
		GM_CUDA_SUCCESS);
	/* Any context may close, and when nothing is open any may open. */
	OK(&user, IPC_CLOSE, .a = there);
	conform_expect("IPC_OPEN when one of two was closed",
		puppet_do(&user, &open[1], -1, NULL).result, GM_CUDA_ERROR_INVALID_HANDLE);
	OK(&user, IPC_CLOSE, .a = there);
	OK(&user, CONTEXT_SET, .a = primary);
	conform_expect("IPC_OPEN of another owner's, in the first",
		puppet_do(&user, &open[2], -1, NULL).result, GM_CUDA_ERROR_INVALID_HANDLE);
	GIVES(GM_CUDA_ERROR_INVALID_VALUE, &user, IPC_CLOSE, .a = there);
	OK(&user, CONTEXT_SET, .a = own);
	for (int i = 0; i < 2; i++)
		conform_expect("IPC_OPEN when all were closed",
			puppet_do(&user, &open[i], -1, NULL).result, GM_CUDA_SUCCESS);
	OK(&user, CONTEXT_SET, .a = primary);
	conform_expect("IPC_OPEN in the first context, which is the second now",
		puppet_do(&user, &open[1], -1, NULL).result, GM_CUDA_ERROR_INVALID_HANDLE);
	OK(&user, CONTEXT_DROP, .a = own);
	conform_expect("IPC_OPEN when the other context is gone",
		puppet_do(&user, &open[1], -1, NULL).result, GM_CUDA_SUCCESS);
	puppet_stop(&user);
	puppet_stop(&stranger);
	puppet_stop(&owner);
	conform_end("IPC handles of a process open in one context at a time, and close in any");
}

static void another_context_reaches_what_one_has_opened(void)
{
	struct puppet owner = conform_begin(true), user = conform_begin(false);
	struct puppet_call open = {.op = PUPPET_IPC_OPEN, .a = LAZY};
	uint64_t ptr = OK(&owner, ALLOC, .a = 2 * MIB), there, own, mine;

	memcpy(open.blob, PUPPET(&owner, IPC_GET, .a = ptr).blob, sizeof open.blob);
	OK(&user, CONTEXT, .a = 0);
	there = puppet_do(&user, &open, -1, NULL).value;
	OK(&user, SET, .a = there, .b = 2 * MIB, .c = 0x41);
	OK(&user, SYNC, .a = 0);
	OK(&user, CONTEXT_NEW, .a = 0);
	own = OK(&user, STREAM_NEW, .a = GM_CU_STREAM_NON_BLOCKING);
	mine = OK(&user, ALLOC, .a = 2 * MIB);
	conform_value("what the other wrote",
		OK(&user, COUNT, .a = there, .b = 2 * MIB, .c = 0x41, .d = own), 2 * MIB);
	FAILS(GM_CUDA_ERROR_INVALID_VALUE, &user, SET, .a = there, .b = 2 * MIB, .c = 0x42,
		.d = own);
	OK(&user, SYNC, .a = own);
	conform_value("what the other wrote, still",
		OK(&user, COUNT, .a = there, .b = 2 * MIB, .c = 0x41, .d = own), 2 * MIB);
	OK(&user, SET, .a = mine, .b = 2 * MIB, .c = 0x43, .d = own);
	BELIEVED(GM_CUDA_SUCCESS, &user, COPY, .a = there, .b = mine, .c = 2 * MIB, .d = own);
	OK(&user, SYNC, .a = own);
	OK(&user, CONTEXT_POP, .a = 0);
	OK(&user, CONTEXT_SYNC, .a = 0);
	conform_believed("what was copied there",
		OK(&user, COUNT, .a = there, .b = 2 * MIB, .c = 0x43) == 2 * MIB
			? GM_CUDA_SUCCESS
			: GM_CUDA_ERROR_UNKNOWN,
		GM_CUDA_SUCCESS);
	puppet_stop(&user);
	puppet_stop(&owner);
	conform_end("what one context opened another one copies from and to, but does not set");
}

static void two_blocks_have_two_numbers(void)
{
	struct puppet p = conform_begin(true);
	uint64_t a = OK(&p, ALLOC, .a = 2 * MIB), b = OK(&p, ALLOC, .a = 2 * MIB);
	struct puppet_answer one = PUPPET(&p, IPC_GET, .a = a), two = PUPPET(&p, IPC_GET, .a = b);

	conform_true("no two are the same", !same_number(one.blob, two.blob));
	puppet_stop(&p);
	conform_end("blocks that are there at a time have numbers of their own");
}

void conform_ipc(void)
{
	ipc_handles_open_in_other_processes();
	an_ipc_client_computes_on_after_the_owner_died();
	ipc_nonsense_is_refused();
	an_opening_is_closed_as_often_as_it_was_made();
	mapped_memory_has_no_ipc_handle();
	a_handle_is_of_one_allocation_and_of_a_living_owner();
	an_old_handle_opens_what_has_its_number_since();
	a_registered_page_takes_the_number_away();
	one_context_opens_what_is_of_one_process();
	another_context_reaches_what_one_has_opened();
	two_blocks_have_two_numbers();
}
