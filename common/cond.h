/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_COND_H
#define GM_COMMON_COND_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/clock.h"

/* Condition variables whose deadlines are times of gm_clock_ns(). */
static inline void gm_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

/* Returns false when the time is over. */
static inline bool gm_cond_wait_until(
	pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns)
{
	struct timespec until = {
		.tv_sec = (time_t)(deadline_ns / GM_NS_PER_S),
		.tv_nsec = (long)(deadline_ns % GM_NS_PER_S),
	};
	return pthread_cond_timedwait(cond, lock, &until) != ETIMEDOUT;
}

#endif
