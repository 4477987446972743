/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_CANCEL_H
#define GM_COMMON_CANCEL_H

#include <pthread.h>

/*
 * Defers the cancellation (pthread_cancel) of a thread to the end of a scope. A thread that ended
 * in the middle of a call of the client library would leave locks held, and lose the answers of
 * other threads and memory that was just granted.
 *
 * GM_UNCANCELLED stands at the beginning of every function that waits, sends, or makes a system
 * call while it holds a lock. Other functions do not need it.
 */
static inline int gm_cancel_off(void)
{
	int before;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

static inline void gm_cancel_as_before(const int *before)
{
	pthread_setcancelstate(*before, NULL);
}

#define GM_UNCANCELLED \
	__attribute__((cleanup(gm_cancel_as_before), unused)) int gm_cancel_before = gm_cancel_off()

#endif
