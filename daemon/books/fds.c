/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptors of chunks. This file promises that every chunk on the fd transport is in one
 * column of the account, and that a user is charged for exactly the chunks that were asked for on its
 * behalf and are leased, or are orphaned. It must never decide which chunk is released: it does not know the pools.
 */
#include "daemon/books/hash_table.h"
#include "daemon/books/fds.h"

#include <assert.h>
#include <stdlib.h>

/* ---- columns */

/* Where the account has the column. NULL: nowhere, or in the charge of a user. */
static uint64_t *fds_column(struct gm_fd_budget *budget, enum gm_fds_column column)
{
	switch (column) {
	case GM_FDS_SPARE:
		return &budget->spare;
	case GM_FDS_DYING:
		return &budget->dying;
	case GM_FDS_LEASED:
	case GM_FDS_NONE:
		break;
	}
	return NULL;
}

void gm_fds_move(
	struct gm_env *env, struct gm_chunk *chunk, enum gm_fds_column column, struct gm_user *user)
{
	if (chunk->transport != GM_TRANSPORT_FD)
		return;

	uint64_t *from = fds_column(env->fds, chunk->fds_column);
	uint64_t *to = fds_column(env->fds, column);
	assert((column == GM_FDS_LEASED) == (user != NULL));
	if (from)
		(*from)--;
	if (to)
		(*to)++;
	chunk->fds_column = column;
	gm_user_charge_deinit(&chunk->fds);
	if (user) {
		gm_user_charge_init(&chunk->fds, user, GM_USER_CHUNK_FDS);
		gm_user_charge_add(&chunk->fds, 1);
	}
}

/* ---- waiting */

bool gm_fds_short(const struct gm_env *env)
{
	const struct gm_fd_budget *fds = env->fds;
	return fds->waiting > 0 ||
	       fds->connections + fds->chunks + fds->spare + fds->dying > fds->total;
}

bool gm_fds_must_wait(const struct gm_env *env, const struct gm_chunk *chunk)
{
	return chunk->transport == GM_TRANSPORT_FD && gm_fds_short(env);
}

void gm_fds_wait(struct gm_env *env, struct gm_chunk *chunk)
{
	assert(!chunk->fds_prev);
	DL_APPEND2(env->fd_waiting, chunk, fds_prev, fds_next);
	env->fds->waiting++;
}

bool gm_fds_stop_waiting(struct gm_env *env, struct gm_chunk *chunk)
{
	if (!chunk->fds_prev)
		return false;
	DL_DELETE2(env->fd_waiting, chunk, fds_prev, fds_next);
	chunk->fds_prev = chunk->fds_next = NULL;
	env->fds->waiting--;
	return true;
}

struct gm_chunk *gm_fds_next(struct gm_env *env)
{
	struct gm_chunk *chunk = env->fd_waiting;
	if (env->fds->waiting == 0 || !gm_fd_budget_may_open(env->fds))
		return NULL;
	if (env->word_waiting && !env->word_denied && (env->word_turn || !chunk)) {
		env->woken = true;
		return NULL;
	}
	if (!chunk)
		return NULL;
	gm_fds_stop_waiting(env, chunk);
	env->word_turn = true;
	return chunk;
}
