/* SPDX-License-Identifier: Apache-2.0 */
#include "common/system/processors.h"

#include <errno.h>
#include <sched.h>

/* More than any kernel is built for. */
#define PROCESSORS_MOST (1 << 16)

uint32_t gm_processors(void)
{
	/* The kernel refuses a set that is smaller than its own, however few processors there are. */
	for (size_t n = CPU_SETSIZE; n <= PROCESSORS_MOST; n *= 2) {
		size_t bytes = CPU_ALLOC_SIZE(n);
		cpu_set_t *set = CPU_ALLOC(n);
		if (!set)
			return 1;

		int r = sched_getaffinity(0, bytes, set) < 0 ? errno : 0;
		int count = r ? 0 : CPU_COUNT_S(bytes, set);
		CPU_FREE(set);
		if (r != EINVAL)
			return count > 0 ? (uint32_t)count : 1;
	}
	return 1;
}
