/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_FAULT_LOOP_H
#define GM_TESTS_INTEGRATION_FAULT_LOOP_H

#include <stdbool.h>

#include "tests/integration/fault.h"
#include "tests/integration/harness.h"

/*
 * The n-th call of a kind fails, in one program, for n = 0, 1, 2 … until a run in which none fails:
 * once alone, and once together with all calls of that kind that follow. After each run the scenario
 * looks whether all is as it should be. Calls that go on failing succeed again after a while, because
 * a program may wait for that.
 *
 * GPUMEM_TEST_CALLS is the number of n of each kind, spread evenly over all; 0: all.
 * GPUMEM_TEST_FAULT repeats one run: "alloc:17:once", "open:3:on". A kind alone runs all of that kind.
 */
struct gm_fault_scenario {
	const char *name;
	const char *program; /* as the kernel has it: at most 15 characters matter */
	/* GM_FAULT_BIT(). 0: all, for a test that also runs on the host backend. On a fake GPU, its
	 * calls of other kinds than the driver's fail only if GPUMEM_TEST_FAULT is set. */
	uint32_t kinds;
	/* Does what is tried, with the call that fails. Must end by itself, whatever fails. */
	void (*run)(const struct gm_fault_scenario *scenario);
	/* Requires that all is well. Nothing fails any more. */
	void (*after)(const struct gm_fault_scenario *scenario);
	void *data;
};

/* The page, after gm_fault_open(). */
extern struct gm_fault *gm_fault_page;

/* Makes the page for a program. */
void gm_fault_open(const char *program);
void gm_fault_close(void);
/* Returns "NAME=value" for programs that are to be under the page, NULL-ended, until the next call. */
const char *const *gm_fault_env(void);

void gm_fault_arm(enum gm_fault_kind kind, uint64_t n, bool once);
/* Nothing fails from now on. Returns whether something did. */
bool gm_fault_disarm(void);

/* Waits for the end of a process, whose status it returns. */
int gm_fault_reap(pid_t pid);

/* Runs all of it. */
void gm_fault_loop(const struct gm_fault_scenario *scenario);

#endif
