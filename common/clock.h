/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_CLOCK_H
#define GM_COMMON_CLOCK_H

#include <stdint.h>
#include <time.h>

#define GM_NS_PER_US UINT64_C(1000)
#define GM_NS_PER_MS UINT64_C(1000000)
#define GM_NS_PER_S  UINT64_C(1000000000)

/* CLOCK_MONOTONIC in nanoseconds. All processes of the host see the same clock. */
static inline uint64_t gm_clock_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for a clock that exists */
	return (uint64_t)now.tv_sec * GM_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* A timeout for poll() that ends at a time on that clock: rounded up, and at most an hour.
 * UINT64_MAX means never. */
static inline int gm_clock_poll_ms(uint64_t until_ns)
{
	uint64_t now = gm_clock_ns();
	if (until_ns == UINT64_MAX)
		return -1;
	if (now >= until_ns)
		return 0;
	uint64_t ms = (until_ns - now + GM_NS_PER_MS - 1) / GM_NS_PER_MS;
	return ms > 3600000 ? 3600000 : (int)ms;
}

#endif
