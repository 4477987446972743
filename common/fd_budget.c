/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The account of file descriptors. It only counts: it must never open or close one.
 */
#include "common/fd_budget.h"

#include <assert.h>

/* Descriptors that are open for a moment: read-only copies of a packet's handles, files in /proc
 * that say who a client is, the three that answer a hello. A daemon with few has to do with less. */
#define FD_BUDGET_PASSING 80

void gm_fd_budget_init(struct gm_fd_budget *budget, uint64_t limit, uint64_t in_use)
{
	/* The sums here must not overflow. */
	limit = gm_u64_min(limit, UINT64_MAX / 8);
	*budget = (struct gm_fd_budget){
		.total = gm_u64_minus(limit, in_use + gm_u64_min(FD_BUDGET_PASSING, limit / 16))};
}

bool gm_fd_budget_allows_connection(const struct gm_fd_budget *budget, uint64_t own, uint64_t n)
{
	uint64_t reserve = gm_fd_budget_reserve(budget);
	uint64_t left = gm_u64_minus(budget->total, budget->connections + budget->chunks);

	if (own + n <= gm_u64_min(GM_FD_BUDGET_CONNECTIONS, reserve / 2))
		return n <= left;
	left = gm_u64_minus(left, reserve);
	return n <= left && own + n <= 7 * (left - n);
}

static void fd_budget_settle(struct gm_fd_budget *budget, bool all)
{
	if (budget->settle)
		budget->settle(budget->ctx, all);
}

bool gm_fd_budget_ready(struct gm_fd_budget *budget, uint64_t n)
{
	if (budget->connections + n + budget->chunks + budget->spare + budget->dying <=
		budget->total + budget->waiting)
		return true;
	fd_budget_settle(budget, false);
	return budget->spare + budget->dying == 0;
}

bool gm_fd_budget_exhausted(struct gm_fd_budget *budget)
{
	fd_budget_settle(budget, true);
	return budget->spare + budget->dying > 0;
}

void gm_fd_budget_connect(struct gm_fd_budget *budget, uint64_t n)
{
	budget->connections += n;
	if (gm_fd_budget_short(budget) && budget->spare > 0)
		fd_budget_settle(budget, false);
}

void gm_fd_budget_disconnect(struct gm_fd_budget *budget, uint64_t n)
{
	assert(budget->connections >= n);
	budget->connections -= n;
	if (budget->waiting > 0)
		fd_budget_settle(budget, false);
}
