/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_BACKOFF_H
#define GM_COMMON_BACKOFF_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arith.h"

/*
 * Exponential back-off: a delay that doubles with each failure in a row. Times are of one clock, in ns. The first delay is
 * the caller's, the same in all calls.
 */
struct gm_backoff {
	uint64_t until_ns; /* end of the delay; 0: there is none */
	uint8_t failures;  /* in a row, as far as they count */
};

/* Number of times that the delay doubles at most. */
#define GM_BACKOFF_DOUBLINGS 6

static inline uint64_t gm_backoff_longest(uint64_t first_ns)
{
	return first_ns << GM_BACKOFF_DOUBLINGS;
}

static inline bool gm_backoff_holds(const struct gm_backoff *backoff, uint64_t now_ns)
{
	return now_ns < backoff->until_ns;
}

/* Begins the delay that the failures so far ask for. */
static inline void gm_backoff_begin(struct gm_backoff *backoff, uint64_t now_ns, uint64_t first_ns)
{
	backoff->until_ns = gm_u64_plus(now_ns, first_ns << backoff->failures);
}

/* Counts a failure. The next delay is twice as long. */
static inline void gm_backoff_fail(struct gm_backoff *backoff, uint64_t now_ns)
{
	backoff->until_ns = gm_u64_max(backoff->until_ns, now_ns);
	if (backoff->failures < GM_BACKOFF_DOUBLINGS)
		backoff->failures++;
}

/* Returns whether the failures still count. They do not once the longest delay has passed without one: a shorter time
 * would let the shortest delay follow the longest. */
static inline bool gm_backoff_remembers(
	const struct gm_backoff *backoff, uint64_t now_ns, uint64_t first_ns)
{
	return backoff->failures > 0 &&
	       now_ns < gm_u64_plus(backoff->until_ns, gm_backoff_longest(first_ns));
}

static inline void gm_backoff_forget_old(
	struct gm_backoff *backoff, uint64_t now_ns, uint64_t first_ns)
{
	if (!gm_backoff_remembers(backoff, now_ns, first_ns))
		backoff->failures = 0;
}

/* Ends the delay that has just begun at a random moment of its second half, so that many who failed at the same moment do not
 * try again at the same moment. */
static inline void gm_backoff_spread(struct gm_backoff *backoff, uint64_t now_ns, uint64_t random)
{
	uint64_t half = gm_u64_minus(backoff->until_ns, now_ns) / 2;

	backoff->until_ns -= random % (half + 1);
}

#endif
