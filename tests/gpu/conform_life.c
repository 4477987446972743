/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose end gives memory back, and whose does not. See conformance.h.
 */
#include "tests/gpu/conformance.h"

#include <signal.h>
#include <unistd.h>

static void memory_outlives_its_maker_in_an_fd(void)
{
	struct puppet owner = conform_begin(true), next = conform_begin(true);
	uint64_t handle = OK(&owner, CREATE, .a = FULL, .b = 0, .c = 1);
	uint64_t va = conform_place(&owner, handle, FULL);
	int fd = conform_export(&owner, handle); /* this process never used CUDA */
	struct puppet_answer imported;

	OK(&owner, SET, .a = va, .b = FULL, .c = 0x77);
	OK(&owner, SYNC, .a = 0);
	puppet_kill(&owner);
	imported = conform_import(&next, fd);
	conform_expect("IMPORT", imported.result, GM_CUDA_SUCCESS);
	va = conform_place(&next, imported.value, FULL);
	conform_value("bytes kept", OK(&next, COUNT, .a = va, .b = FULL, .c = 0x77), FULL);
	close(fd);
	puppet_stop(&next);
	conform_end("memory outlives its maker in an fd held by a process that never used CUDA");
}

static void a_client_computes_on_after_the_owner_died(void)
{
	struct puppet owner = conform_begin(false), user = conform_begin(true);
	int fd = conform_export(&owner, OK(&owner, CREATE, .a = FULL, .b = 0, .c = 1));
	uint64_t va = conform_place(&user, conform_import(&user, fd).value, FULL);

	close(fd);
	OK(&user, SET, .a = va, .b = FULL, .c = 1);
	puppet_kill(&owner);
	conform_value("bytes kept", OK(&user, COUNT, .a = va, .b = FULL, .c = 1), FULL);
	OK(&user, SET, .a = va, .b = FULL, .c = 2);
	conform_value("bytes written after", OK(&user, COUNT, .a = va, .b = FULL, .c = 2), FULL);
	puppet_stop(&user);
	conform_end("a client reads and writes on after the owner was killed");
}

static void nothing_comes_back_while_somebody_maps_it(void)
{
	struct puppet watcher = conform_begin(false), owner = conform_begin(false),
		      user = conform_begin(true);
	uint64_t before = conform_free(&watcher);
	uint64_t handle = OK(&owner, CREATE, .a = FULL, .b = 0, .c = 1);
	int fd = conform_export(&owner, handle);
	uint64_t imported = conform_import(&user, fd).value;
	uint64_t va = conform_place(&user, imported, FULL);

	close(fd);
	OK(&user, RELEASE, .a = imported);
	OK(&owner, RELEASE, .a = handle);
	conform_true("still used", conform_free(&watcher) <= before - FULL);
	OK(&user, UNMAP, .a = va, .b = FULL);
	conform_true("back after the unmap", conform_comes_back(&watcher, before));
	puppet_stop(&user);
	puppet_stop(&owner);
	puppet_stop(&watcher);
	conform_end("released memory comes back only when the last mapping is gone");
}

static void a_forked_child_keeps_its_dead_parents_memory(void)
{
	struct puppet watcher = conform_begin(false), user;
	uint64_t before = conform_free(&watcher);
	pid_t child;

	user = conform_begin(true);
	conform_place(&user, OK(&user, CREATE, .a = FULL, .b = 0, .c = 1), FULL);
	child = (pid_t)OK(&user, FORK, .a = 0);
	puppet_kill(&user);
	conform_true("the child keeps it used", conform_free(&watcher) <= before - FULL);
	kill(child, SIGKILL);
	conform_true("back when the child ended too", conform_comes_back(&watcher, before));
	puppet_stop(&watcher);
	conform_end("a forked child keeps its dead parent's memory used until it ends");
}

static void a_forked_child_cannot_call_the_driver(void)
{
	struct puppet p = conform_begin(true);

	GIVES(GM_CUDA_ERROR_NOT_INITIALIZED, &p, FORK_CALL, .a = 0);
	puppet_stop(&p);
	conform_end("a forked child's calls fail as not initialised");
}

void conform_life(void)
{
	memory_outlives_its_maker_in_an_fd();
	a_client_computes_on_after_the_owner_died();
	nothing_comes_back_while_somebody_maps_it();
	a_forked_child_keeps_its_dead_parents_memory();
	a_forked_child_cannot_call_the_driver();
}
