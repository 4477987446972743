/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_STEP_ACTOR_H
#define GM_TESTS_INTEGRATION_STEP_ACTOR_H

#include <stdbool.h>

#include "gpumem/gpumem.h"
#include "tests/integration/harness.h"

/*
 * A worker of check_steps: does one thing for each word that it hears, and looks after each whether all that it holds has its
 * content still. No call of it may fail, whenever the daemon or its keeper dies.
 */

#define MIB (UINT64_C(1) << 20)
/* How much memory the word 'e' declares. */
#define GM_STEP_DECLARED (3 * MIB)

/* What the test and the workers share. */
struct gm_step_board {
	gpumem_token token;
	char name[32];
};

struct gm_step_part {
	const char *socket;
	struct gm_step_board *board;
	bool stranger; /* of another user, where there can be one */
};

/* For gm_worker_start(), with a struct gm_step_part. Answers each word with how much memory the worker holds, as a uint64_t. Ends
 * with the word 'q'. */
void gm_step_work(int channel, void *argument);

#endif
