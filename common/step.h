/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_STEP_H
#define GM_COMMON_STEP_H

/*
 * Names a moment between two steps at which a process may die. In the programs that are installed it is
 * nothing. A test builds programs with GM_STEPS, in which a process ends itself there when it is
 * told to (tests/integration/check_steps.c). The test finds the names in the source.
 */
#ifdef GM_STEPS
void gm_step(const char *name);
#define GM_STEP(name) gm_step(name)
#else
#define GM_STEP(name) \
	do { \
	} while (0)
#endif

#endif
