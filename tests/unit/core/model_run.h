/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_MODEL_RUN_H
#define GM_TESTS_MODEL_RUN_H

#include <check.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/sanitized.h"

/* A run of a test that draws its steps by lot, and can be had again: which one it is, and where. */
struct model_run {
	uint64_t seed, steps; /* GM_MODEL_SEED and GM_MODEL_STEPS, or the test's own */
	bool chosen;          /* the seed is not the test's own */
	uint64_t step;        /* now */
	uint64_t random;
};

/* The nth run, from 0; seed is that of the first one. */
static inline void model_run_init(struct model_run *run, uint64_t seed, uint64_t n, uint64_t steps)
{
	const char *given = getenv("GM_MODEL_SEED"), *length = getenv("GM_MODEL_STEPS");
	*run = (struct model_run){.seed = (given ? strtoull(given, NULL, 0) : seed) + n,
		.steps = length           ? strtoull(length, NULL, 0)
			 : gm_sanitized() ? steps / 4
					  : steps,
		.chosen = given};
	/* An assertion inside core ends the process: say now which run it was. */
	fprintf(stderr, "# GM_MODEL_SEED=%" PRIu64 "\n", run->seed);
	run->random = (run->seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

/* Below the bound given; repeats from run to run. */
static inline uint64_t model_run_roll(struct model_run *run, uint64_t below)
{
	run->random ^= run->random << 13;
	run->random ^= run->random >> 7;
	run->random ^= run->random << 17;
	return (run->random >> 11) % below;
}

/* Both for a model m whose run is m->run. */
#define model_roll(m, below) model_run_roll(&(m)->run, below)

/* Like ck_assert(), with seed and step; it allocates nothing while all is well. */
#define must(m, condition, ...) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "# GM_MODEL_SEED=%" PRIu64 " step %" PRIu64 ": ", \
				(m)->run.seed, (m)->run.step); \
			fprintf(stderr, __VA_ARGS__); \
			fprintf(stderr, "\n"); \
			ck_abort_msg("seed %" PRIu64 " step %" PRIu64 ": %s", (m)->run.seed, \
				(m)->run.step, #condition); \
		} \
	} while (0)

/* Not under 0. */
static inline uint64_t model_less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

#endif
