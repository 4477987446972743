/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_ARITH_H
#define GM_COMMON_ARITH_H

#include <stdbool.h>
#include <stdint.h>

/* Arithmetic on sizes and times that neither wraps around nor overflows. */

static inline uint64_t gm_u64_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t gm_u64_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* a - b, or 0 if b is larger. */
static inline uint64_t gm_u64_minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* a + b, or UINT64_MAX, which stands for "forever" and "no limit". */
static inline uint64_t gm_u64_plus(uint64_t a, uint64_t b)
{
	return b < UINT64_MAX - a ? a + b : UINT64_MAX;
}

/* The next multiple of step, which must be a power of two. */
static inline uint64_t gm_round_up(uint64_t value, uint64_t step)
{
	return (value + step - 1) & ~(step - 1);
}

#endif
