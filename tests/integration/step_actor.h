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
	bool slow;     /* the daemon takes its time */
};

/*
 * Scripts: lines of who, and what. The second worker is of another user where there can be one.
 *   *  the memory stays charged, although its maker has destroyed it: somebody still has it open
 *   .  and now it does not
 * The last line is NULL.
 */
extern const char *const gm_step_tokens[], *const gm_step_names[], *const gm_step_evictions[];

/* What the books must say: what the workers hold, and what is left of a buffer that its maker has
 * destroyed and the other one still has open. */
struct gm_step_expected {
	uint64_t held[2], left, declared[2];
	unsigned clients;
	unsigned made[2];   /* buffers */
	unsigned opened[2]; /* leases that it opened */
};
/* The line was performed, and its worker answered that it holds so much. */
void gm_step_expect(struct gm_step_expected *expected, const char *line, uint64_t held);

/* For gm_worker_start(), with a struct gm_step_part. Answers each word with how much memory the worker holds, as a uint64_t. Ends
 * with the word 'q'. */
void gm_step_work(int channel, void *argument);

#endif
