/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_STEP_TABLE_H
#define GM_TESTS_INTEGRATION_STEP_TABLE_H

#include <stdatomic.h>
#include <stdint.h>

/*
 * The steps that a program has passed, in a file that the test maps, too. The variable GPUMEM_TEST_STEPS
 * names the file. A row is written by one process: the daemon has one table, the keeper the other, and
 * the next daemon goes on in the rows of the one before.
 */
#define GM_STEP_ROWS  64
#define GM_STEP_BYTES 56

struct gm_step_row {
	char name[GM_STEP_BYTES];
	_Atomic uint32_t passes;
	_Atomic uint32_t fatal; /* the pass at which the process ends itself; 0: none */
};

struct gm_step_tables {
	struct gm_step_row daemon[GM_STEP_ROWS], keeper[GM_STEP_ROWS];
};

#endif
