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

/* Whoever gives out handles must know it: the 64 bytes stay good for what comes to lie there. */
static void an_old_handle_opens_what_was_shared_since_in_its_place(void)
{
	struct puppet owner = conform_begin(true), user = conform_begin(true);
	struct puppet_call open = {.op = PUPPET_IPC_OPEN, .a = LAZY};
	uint64_t ptr = OK(&owner, ALLOC, .a = FULL), next;
	struct puppet_answer answer;

	memcpy(open.blob, PUPPET(&owner, IPC_GET, .a = ptr).blob, sizeof open.blob);
	OK(&owner, FREE, .a = ptr);
	conform_expect("IPC_OPEN of what was freed", puppet_do(&user, &open, -1, NULL).result,
		GM_CUDA_ERROR_INVALID_VALUE);
	next = OK(&owner, ALLOC, .a = FULL);
	conform_true("new memory in the same place", next == ptr);
	OK(&owner, SET, .a = next, .b = FULL, .c = 0x32);
	OK(&owner, SYNC, .a = 0);
	conform_expect("IPC_OPEN of what took its place, and has no handle",
		puppet_do(&user, &open, -1, NULL).result, GM_CUDA_ERROR_NOT_PERMITTED);
	OK(&owner, IPC_GET, .a = next);
	answer = puppet_do(&user, &open, -1, NULL);
	conform_expect("IPC_OPEN of what took its place", answer.result, GM_CUDA_SUCCESS);
	conform_value("of the new memory",
		OK(&user, COUNT, .a = answer.value, .b = FULL, .c = 0x32), FULL);
	puppet_stop(&user);
	puppet_stop(&owner);
	conform_end("an old IPC handle opens what was shared since in its place");
}

void conform_ipc(void)
{
	ipc_handles_open_in_other_processes();
	an_ipc_client_computes_on_after_the_owner_died();
	ipc_nonsense_is_refused();
	an_opening_is_closed_as_often_as_it_was_made();
	mapped_memory_has_no_ipc_handle();
	a_handle_is_of_one_allocation_and_of_a_living_owner();
	an_old_handle_opens_what_was_shared_since_in_its_place();
}
