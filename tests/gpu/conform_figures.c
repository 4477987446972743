/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NVML and the driver say of memory's use. See conformance.h.
 */
#include "tests/gpu/conformance.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

static void nvml_and_the_driver_agree(void)
{
	struct puppet p = conform_begin(true);
	struct puppet_answer driver = PUPPET(&p, MEM_INFO, .a = 0);
	struct puppet_answer nvml = PUPPET(&p, NVML_FREE, .a = 0);

	conform_expect("MEM_INFO", driver.result, GM_CUDA_SUCCESS);
	conform_expect("NVML_FREE", nvml.result, GM_CUDA_SUCCESS);
	conform_value("free", nvml.value, driver.value);
	conform_true("NVML's total counts more", nvml.value2 > driver.value2);
	puppet_stop(&p);
	conform_end("NVML's free is the driver's, its total is more than can be had");
}

static void a_context_costs_memory(void)
{
	struct puppet watcher = conform_begin(false), p = conform_begin(false);
	uint64_t before = conform_free(&watcher);

	OK(&p, CONTEXT, .a = 0);
	conform_true("less is free", conform_free(&watcher) < before);
	puppet_stop(&p);
	conform_true("and comes back", conform_comes_back(&watcher, before));
	puppet_stop(&watcher);
	conform_end("a context costs device memory, which comes back with the process's end");
}

static bool listed(struct puppet *watcher, const struct puppet *p)
{
	return PUPPET(watcher, NVML_PROCESS, .a = 0, .b = (uint64_t)p->pid).value2;
}

static uint64_t said_of(struct puppet *watcher, const struct puppet *p)
{
	return OK(watcher, NVML_PROCESS, .a = 0, .b = (uint64_t)p->pid);
}

/* So what NVML says of a client is what it uses besides the broker's memory. */
static void nvml_counts_a_process_for_what_it_made_and_not_for_what_it_imports(void)
{
	struct puppet watcher = conform_begin(false), owner = conform_begin(false),
		      user = conform_begin(true);
	uint64_t handle = OK(&owner, CREATE, .a = FULL, .b = 0, .c = 1), context, imported, va;
	int fd = conform_export(&owner, handle);

	conform_true("without a context it is not listed", !listed(&watcher, &owner));
	context = said_of(&watcher, &user);
	conform_true("with one it is", listed(&watcher, &user) && context > 0);
	imported = conform_import(&user, fd).value;
	va = OK(&user, RESERVE, .a = FULL);
	OK(&user, MAP, .a = va, .b = FULL, .c = imported);
	OK(&user, ACCESS, .a = va, .b = FULL, .c = GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE, .d = 0);
	conform_value("after mapping another's memory", said_of(&watcher, &user), context);
	OK(&user, ALLOC, .a = FULL);
	conform_value("after allocating", said_of(&watcher, &user), context + FULL);
	OK(&user, CREATE, .a = FULL, .b = 0, .c = 1);
	conform_value("after creating", said_of(&watcher, &user), context + 2 * FULL);
	close(fd);
	puppet_stop(&user);
	puppet_stop(&owner);
	puppet_stop(&watcher);
	conform_end(
		"NVML lists processes with a context, and counts what they made, not what they import");
}

/* A process with another's memory mapped, of which nobody has an fd. */
static uint64_t map_all(struct puppet *user, struct puppet *owner, uint64_t handle)
{
	int fd = conform_export(owner, handle);
	uint64_t imported = conform_import(user, fd).value, va = OK(user, RESERVE, .a = FULL);

	close(fd);
	OK(user, MAP, .a = va, .b = FULL, .c = imported);
	OK(user, ACCESS, .a = va, .b = FULL, .c = GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE, .d = 0);
	OK(user, RELEASE, .a = imported);
	return va;
}

/* So memory that a client returned and still maps is seen in what NVML says of the client. */
static void nvml_counts_memory_for_who_maps_it_once_its_maker_has_released_it(void)
{
	struct puppet watcher = conform_begin(false), owner = conform_begin(false),
		      user = conform_begin(true);
	uint64_t handle = OK(&owner, CREATE, .a = FULL, .b = 0, .c = 1);
	uint64_t va = map_all(&user, &owner, handle), context = said_of(&watcher, &user);
	int fd = conform_export(&owner, handle);

	OK(&owner, RELEASE, .a = handle);
	conform_value("while there is an fd", said_of(&watcher, &user), context);
	close(fd);
	conform_value("when it is closed", said_of(&watcher, &user), context + FULL);
	OK(&user, UNMAP, .a = va, .b = FULL);
	conform_value("after the unmap", said_of(&watcher, &user), context);
	puppet_stop(&user);
	puppet_stop(&owner);
	puppet_stop(&watcher);
	conform_end(
		"NVML counts memory for the process that maps it, once its maker has released it");
}

/* A handle is as good as a mapping. */
static void nvml_counts_memory_for_who_has_a_handle_of_it(void)
{
	struct puppet watcher = conform_begin(false), owner = conform_begin(false),
		      user = conform_begin(true);
	uint64_t handle = OK(&owner, CREATE, .a = FULL, .b = 0, .c = 1);
	uint64_t context = said_of(&watcher, &user);
	int fd = conform_export(&owner, handle);
	uint64_t imported = conform_import(&user, fd).value;

	close(fd);
	OK(&owner, RELEASE, .a = handle);
	conform_value("with the handle", said_of(&watcher, &user), context + FULL);
	OK(&user, RELEASE, .a = imported);
	conform_value("without it", said_of(&watcher, &user), context);
	puppet_stop(&user);
	puppet_stop(&owner);
	puppet_stop(&watcher);
	conform_end("NVML counts released memory for the process that has a handle of it");
}

/* A process that unmapped what it had does not grow when its maker releases it. */
static void nvml_counts_nothing_for_who_has_unmapped_it(void)
{
	struct puppet watcher = conform_begin(false), owner = conform_begin(false),
		      user = conform_begin(true);
	uint64_t handle = OK(&owner, CREATE, .a = FULL, .b = 0, .c = 1);
	uint64_t va = map_all(&user, &owner, handle), context = said_of(&watcher, &user);

	OK(&user, UNMAP, .a = va, .b = FULL);
	OK(&owner, RELEASE, .a = handle);
	conform_value("after the release", said_of(&watcher, &user), context);
	puppet_stop(&user);
	puppet_stop(&owner);
	puppet_stop(&watcher);
	conform_end("NVML counts nothing for a process that unmapped what its maker then released");
}

static bool comes_off_the_list(struct puppet *watcher, const struct puppet *p)
{
	const struct timespec pause = {.tv_nsec = 10000000};

	for (int i = 0; i < 1000 && listed(watcher, p); i++)
		nanosleep(&pause, NULL);
	return !listed(watcher, p);
}

static void nvml_counts_a_dead_process_that_has_a_child(void)
{
	struct puppet watcher = conform_begin(false), owner = conform_begin(false),
		      user = conform_begin(true), dead;
	uint64_t handle = OK(&owner, CREATE, .a = FULL, .b = 0, .c = 1), before;
	pid_t child;

	(void)map_all(&user, &owner, handle);
	child = (pid_t)OK(&user, FORK, .a = 0);
	dead = user;
	puppet_kill(&user);
	before = said_of(&watcher, &dead);
	OK(&owner, RELEASE, .a = handle);
	conform_true("the dead process is listed", listed(&watcher, &dead));
	conform_true("with what the child maps", said_of(&watcher, &dead) >= before + FULL);
	kill(child, SIGKILL);
	conform_true("and not when the child has ended", comes_off_the_list(&watcher, &dead));
	puppet_stop(&owner);
	puppet_stop(&watcher);
	conform_end("NVML counts what a forked child maps for the number of its dead parent");
}

void conform_figures(void)
{
	nvml_and_the_driver_agree();
	a_context_costs_memory();
	nvml_counts_a_process_for_what_it_made_and_not_for_what_it_imports();
	nvml_counts_memory_for_who_maps_it_once_its_maker_has_released_it();
	nvml_counts_memory_for_who_has_a_handle_of_it();
	nvml_counts_nothing_for_who_has_unmapped_it();
	nvml_counts_a_dead_process_that_has_a_child();
}
