/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_CANCEL_H
#define GM_CLIENT_CANCEL_H

#include <pthread.h>

/*
 * A thread of the program that is cancelled (pthread_cancel) in a call of this library ends after
 * it: in the middle it would take along locks, answers of other threads, and memory that was just
 * granted. Stands at the beginning of whatever waits, sends, or calls the system between a lock and
 * its end. What neither does needs none.
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
