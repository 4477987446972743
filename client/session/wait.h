/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SESSION_WAIT_H
#define GM_CLIENT_SESSION_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/clock.h"
#include "gpumem/gpumem.h"

/*
 * How a request waits: for memory of a full device, and for a daemon that is away. This header knows
 * neither sessions nor messages.
 */

enum gm_wait_mode {
	/* Not for memory, but for the daemon: until the deadline, or as long as the session waits. */
	GM_WAIT_FOR_DAEMON = 0,
	/* For memory as the daemon is configured, and for the daemon as long as the session waits. */
	GM_WAIT_AS_CONFIGURED,
	/* For both, until the deadline. */
	GM_WAIT_UNTIL,
	/* For neither. Clients may be asked to give memory back, and get the time for that. */
	GM_WAIT_NOT,
	/* For neither, and nobody is asked to make room. */
	GM_WAIT_AT_ONCE,
};

/* A search in this process for what a request asks for, while the request waits. */
struct gm_wait_look {
	/* Called on the thread that waits, with nothing locked, at at_ns and when memory was freed. May
	 * make requests of its own. Returns when to call it next (CLOCK_MONOTONIC), or 0: the request is
	 * not wanted any more. */
	uint64_t (*look)(void *ctx);
	void *ctx;
	uint64_t at_ns;
};

struct gm_wait {
	enum gm_wait_mode mode;
	uint64_t deadline_ns;      /* CLOCK_MONOTONIC; 0: none; UINT64_MAX: GPUMEM_WAIT_FOREVER */
	struct gm_wait_look *look; /* NULL: only the daemon has what is asked for */
};

/* The longest wait that a message names, in milliseconds. */
#define GM_WAIT_MOST_MS (UINT64_C(1000) * 3600 * 24 * 365)

/* The wait that a program names by milliseconds, from now on. */
static inline struct gm_wait gm_wait_of(uint32_t ms)
{
	if (!ms)
		return (struct gm_wait){.mode = GM_WAIT_AS_CONFIGURED};
	if (ms == GPUMEM_NO_WAIT)
		return (struct gm_wait){.mode = GM_WAIT_NOT};
	return (struct gm_wait){.mode = GM_WAIT_UNTIL,
		.deadline_ns =
			ms == GPUMEM_WAIT_FOREVER ? UINT64_MAX : gm_clock_ns() + ms * GM_NS_PER_MS};
}

/* Whether the request waits for a daemon that is away. */
static inline bool gm_wait_for_daemon(const struct gm_wait *wait)
{
	return wait->mode < GM_WAIT_NOT;
}

/* Returns the time that is left for memory, as a message names it: in milliseconds, at least 1; 0: the
 * message names no time. */
static inline uint64_t gm_wait_left_ms(const struct gm_wait *wait)
{
	if (wait->mode != GM_WAIT_UNTIL)
		return 0;
	if (wait->deadline_ns == UINT64_MAX)
		return GM_WAIT_MOST_MS;
	uint64_t now = gm_clock_ns();
	if (wait->deadline_ns <= now)
		return 1;
	return (wait->deadline_ns - now + GM_NS_PER_MS - 1) / GM_NS_PER_MS;
}

/* Returns how long the daemon may let the request wait for memory, in ns, if it is sent now. configured_ms: what the
 * daemon is configured to. */
static inline uint64_t gm_wait_memory_ns(const struct gm_wait *wait, uint64_t configured_ms)
{
	uint64_t ms = wait->mode == GM_WAIT_AS_CONFIGURED ? configured_ms : gm_wait_left_ms(wait);

	return (ms < GM_WAIT_MOST_MS ? ms : GM_WAIT_MOST_MS) * GM_NS_PER_MS;
}

/*
 * How much longer a request waits for a daemon that is away. The time for which the daemon was there does
 * not count, and earns as much again: a request outlasts any number of restarts, but not a daemon that it
 * kills.
 */
struct gm_wait_patience {
	uint64_t end_ns; /* when the request stops waiting for the daemon; 0: it does not wait */
	uint64_t began_ns;
	uint64_t sent_ns; /* when it was sent last */
	bool lost;        /* that connection ended before the answer */
};

/* The request waits from now_ns on. away_ns: how long the session waits for the daemon. */
static inline void gm_wait_patience_begin(struct gm_wait_patience *patience,
	const struct gm_wait *wait, uint64_t away_ns, uint64_t now_ns)
{
	uint64_t end_ns = now_ns + away_ns;

	if (wait->deadline_ns && wait->deadline_ns < end_ns)
		end_ns = wait->deadline_ns;
	*patience = (struct gm_wait_patience){
		.end_ns = gm_wait_for_daemon(wait) ? end_ns : 0, .began_ns = now_ns};
}

/* Returns for how long the request has waited, as a message names it: in milliseconds. */
static inline uint64_t gm_wait_patience_waited_ms(const struct gm_wait_patience *patience)
{
	return (gm_clock_ns() - patience->began_ns) / GM_NS_PER_MS;
}

/* The connection ended before the answer. */
static inline void gm_wait_patience_lost(struct gm_wait_patience *patience,
	const struct gm_wait *wait, uint64_t away_ns, uint64_t now_ns)
{
	uint64_t end_ns = patience->end_ns + 2 * (now_ns - patience->sent_ns);

	patience->lost = true;
	if (end_ns > now_ns + away_ns)
		end_ns = now_ns + away_ns;
	if (wait->deadline_ns && wait->deadline_ns < end_ns)
		end_ns = wait->deadline_ns;
	if (gm_wait_for_daemon(wait))
		patience->end_ns = end_ns;
}

#endif
