/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_BOOKS_FDS_H
#define GM_BOOKS_FDS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/books/chunk.h"
#include "daemon/books/env.h"

/*
 * The file descriptors of chunks, and which user each counts for. A chunk on the fd transport costs
 * one from the moment it is asked for until it is destroyed. The user that asked for it is charged as
 * long as the chunk is leased or is orphaned, whoever opens the lease. The account (common/fd_budget.h) is shared
 * with the connections. Chunks on the ipc transport cost none, and nothing here counts them.
 */

/* Moves a chunk's descriptor from one column of the account to another. user: the one that
 * GM_FDS_LEASED counts for. */
void gm_fds_move(struct gm_env *env, struct gm_chunk *chunk, enum gm_fds_column column,
	struct gm_user *user);

/* Whether the daemon must close other descriptors before it may open one that the account already counts. */
bool gm_fds_short(const struct gm_env *env);
/* Whether the creation of a chunk must wait until others are destroyed. */
bool gm_fds_must_wait(const struct gm_env *env, const struct gm_chunk *chunk);
/* Keeps the chunk until gm_fds_next() hands it out. */
void gm_fds_wait(struct gm_env *env, struct gm_chunk *chunk);
/* Takes out a chunk that waits. Returns false if it does not. */
bool gm_fds_stop_waiting(struct gm_env *env, struct gm_chunk *chunk);
/* Takes out the chunk that has waited longest, if it can be made now. Returns NULL if none can, or if it is the
 * turn of a control block, which the pump will make. */
struct gm_chunk *gm_fds_next(struct gm_env *env);

#endif
