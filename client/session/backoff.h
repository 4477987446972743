/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SESSION_BACKOFF_H
#define GM_CLIENT_SESSION_BACKOFF_H

#include <stdbool.h>
#include <stdint.h>

#include "common/clock.h"

/*
 * When to try to reach the daemon again. The delay doubles with each try, and each delay is drawn at
 * random from its upper half. So a session never tries in a busy loop, and a thousand sessions that
 * lost the daemon at the same moment do not all come back at the same moment.
 *
 * All times are of gm_clock_ns(). The functions lock nothing.
 */
#define GM_BACKOFF_FIRST_NS   (20 * GM_NS_PER_MS)
#define GM_BACKOFF_AWAITED_NS (1 * GM_NS_PER_S) /* the longest delay while a request waits */
#define GM_BACKOFF_MOST_NS    (5 * GM_NS_PER_S)

struct gm_backoff {
	uint64_t seed;
	uint64_t last_ns; /* the last try, or when the connection was lost */
	uint64_t delay_ns;
	uint64_t next_ns; /* the next try */
};

/* Any two sessions should have different seeds. */
void gm_backoff_init(struct gm_backoff *backoff, uint64_t seed);
/* Call when the connection was lost. If it had lasted long, the delays begin again with the first one.
 * Otherwise they go on growing, because a daemon that drops every connection is no better than one
 * that is away. */
void gm_backoff_lost(struct gm_backoff *backoff, uint64_t now_ns, uint64_t lasted_ns);
/* Call when a try has failed. */
void gm_backoff_failed(struct gm_backoff *backoff, uint64_t now_ns);
/* Call when a request begins to wait: the next try comes no later than GM_BACKOFF_AWAITED_NS after the
 * last one. */
void gm_backoff_hurry(struct gm_backoff *backoff);

#endif
