/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_FD_BUDGET_H
#define GM_COMMON_FD_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arith.h"

/*
 * The daemon's file descriptors, and who may have them. Connections, sessions and chunks on the fd
 * transport need some. This account promises that one user cannot use them up, nor can a few:
 *
 *   - A quarter is for connections and sessions alone.
 *   - An eighth is a reserve for users who have little: the first GM_FD_BUDGET_CONNECTIONS for
 *     connections and sessions, and the first GM_FD_BUDGET_CHUNKS for chunks.
 *   - Beside the reserve, a user may hold three times as many for chunks as are left for others. For
 *     connections and sessions, it may hold seven times as many.
 *   - Chunks that nobody has (pooled ones) hold at most half of what is for chunks. They are released
 *     when descriptors get short, so they count as left.
 *
 * By the shares alone, each user would leave an eighth to the next, and the fourth got nothing. With
 * 1,024 descriptors the reserve is enough for about ten further users with a client each.
 *
 * A released chunk keeps its descriptor until the device's thread has destroyed it. So a new chunk, or
 * the control block of a lease with signals, may have to wait for that. Connections need not: chunks
 * leave a quarter of the reserve to them.
 *
 * daemon/user counts what users have, daemon/books the chunks that nobody has. Administrators'
 * connections are not counted, because their listener has a reserve of its own. All of it runs on one thread.
 */
struct gm_fd_budget {
	uint64_t total;       /* for connections, sessions and chunks */
	uint64_t connections; /* held by connections and sessions */
	uint64_t chunks;      /* held by chunks that are leased, or admitted for a lease */
	uint64_t spare;   /* held by chunks that nobody has, or that are being made for nobody */
	uint64_t dying;   /* held by chunks that are being destroyed */
	uint64_t waiting; /* of chunks: not opened yet, because descriptors are short */
	/* Releases spare chunks where there are too many (all: every one), and goes on with what
	 * waits for descriptors. NULL: nobody has chunks. */
	void (*settle)(void *ctx, bool all);
	void *ctx;
};

#define GM_FD_BUDGET_NONE ((struct gm_fd_budget){.total = UINT64_MAX / 8})

/* limit: RLIMIT_NOFILE. in_use: how many the daemon has open before the first client. */
void gm_fd_budget_init(struct gm_fd_budget *budget, uint64_t limit, uint64_t in_use);

/* So much is little: two clients with a flow, and four chunks. A daemon with few descriptors has to do
 * with less. */
#define GM_FD_BUDGET_CONNECTIONS 11
#define GM_FD_BUDGET_CHUNKS      4

/* How many are kept for users who have little. */
static inline uint64_t gm_fd_budget_reserve(const struct gm_fd_budget *budget)
{
	return budget->total / 8;
}

/* The most that chunks may ever have. The rest is for connections and sessions alone. */
static inline uint64_t gm_fd_budget_chunks_at_most(const struct gm_fd_budget *budget)
{
	return budget->total - budget->total / 4;
}

/* How many there may be of chunks and spare together. */
static inline uint64_t gm_fd_budget_for_chunks(const struct gm_fd_budget *budget)
{
	return gm_u64_min(gm_fd_budget_chunks_at_most(budget),
		gm_u64_minus(budget->total, budget->connections + gm_fd_budget_reserve(budget)));
}

/* Whether a user that holds own descriptors for chunks may have n more. */
static inline bool gm_fd_budget_allows_chunks(
	const struct gm_fd_budget *budget, uint64_t own, uint64_t n)
{
	uint64_t reserve = gm_fd_budget_reserve(budget);
	uint64_t most = gm_fd_budget_for_chunks(budget);

	if (own + n <= gm_u64_min(GM_FD_BUDGET_CHUNKS, reserve / 4))
		return budget->chunks + n <= gm_fd_budget_chunks_at_most(budget) &&
		       budget->connections + budget->chunks + n <= budget->total - reserve / 4;
	/* A user that has none may take the last one. */
	return budget->chunks + n + reserve / 2 <= most &&
	       own + n <= 3 * (most - budget->chunks - n) + 1;
}

/* Whether spare chunks must be released. */
static inline bool gm_fd_budget_short(const struct gm_fd_budget *budget)
{
	return budget->chunks + budget->spare > gm_fd_budget_for_chunks(budget);
}

/* Whether there are more spare chunks than there may be. */
static inline bool gm_fd_budget_too_many_spare(const struct gm_fd_budget *budget)
{
	uint64_t most = gm_fd_budget_for_chunks(budget);

	return budget->chunks + budget->spare > most || budget->spare > most / 2;
}

/* Whether one more spare chunk would be too many. */
static inline bool gm_fd_budget_spare_full(const struct gm_fd_budget *budget)
{
	uint64_t most = gm_fd_budget_for_chunks(budget);

	return budget->chunks + budget->spare >= most || budget->spare >= most / 2;
}

/* Whether one that waits can be opened now. */
static inline bool gm_fd_budget_may_open(const struct gm_fd_budget *budget)
{
	return budget->connections + budget->chunks + budget->spare + budget->dying <
	       budget->total + budget->waiting;
}

/* Whether a user that holds own descriptors for connections and sessions may have n more. */
bool gm_fd_budget_allows_connection(const struct gm_fd_budget *budget, uint64_t own, uint64_t n);
/* Whether n for a connection or session can be opened now. false: spare chunks are on their way
 * out, so ask again soon. */
bool gm_fd_budget_ready(struct gm_fd_budget *budget, uint64_t n);
/* The kernel says that there are none left. Releases all spare chunks; false: there are none, and
 * none are being destroyed. */
bool gm_fd_budget_exhausted(struct gm_fd_budget *budget);
/* A connection or session took or gave back n. */
void gm_fd_budget_connect(struct gm_fd_budget *budget, uint64_t n);
void gm_fd_budget_disconnect(struct gm_fd_budget *budget, uint64_t n);

#endif
