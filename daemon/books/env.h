/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_BOOKS_ENV_H
#define GM_BOOKS_ENV_H

#include <stdbool.h>
#include <stdint.h>

#include "common/fd_budget.h"
#include "daemon/books/ops.h"
#include "daemon/books/payer.h"
#include "daemon/books/token_hash.h"
#include "daemon/user/user.h"

struct gm_core;
struct gm_device;

#define GM_ENV_TABLES 64

/*
 * What all of core's modules share: the way up to the daemon, the tables of devices, payers and
 * chunks, and the state of the call into core that is running.
 *
 * Every call that can change who may have memory runs between gm_env_enter() and gm_env_leave().
 * Such calls may be nested, because done() may call core again. A module that changes something
 * which requests wait for sets woken. Then the outermost gm_env_leave() runs the pump.
 */
struct gm_env {
	struct gm_core_ops ops;
	void *ctx; /* the first argument of all ops */
	bool stopping;

	struct gm_device *devices; /* in order of number */
	uint32_t n_devices;
	struct gm_account_payer *payers;    /* by id, in order of age */
	struct gm_token_hash_key owner_key; /* of gm_owner_hash(); drawn at the start */
	/* By id; all but the doomed ones. A table that grows goes through all of its chunks, so there
	 * are many small ones (gm_env_chunks()). */
	struct gm_chunk *chunks[GM_ENV_TABLES];

	struct gm_user_table *users; /* never NULL */
	struct gm_fd_budget *fds;    /* of users */
	/* Chunks, and requests for a control block, that wait for a descriptor, longest first (fds.c, control_block.c). The
	 * two lists take turns. */
	struct gm_chunk *fd_waiting;
	struct gm_request *word_waiting;
	bool word_turn;
	bool word_denied; /* the kernel had none; cleared when the next one is closed */

	bool adopting; /* core takes over from an earlier daemon: nothing is created yet */

	uint64_t armed_ns; /* when the daemon means to call gm_core_tick() */
	unsigned depth;
	bool woken;
	/* Grants what waits and lets the ladders act. Core sets it: the modules below cannot call
	 * it by name. */
	void (*pump)(struct gm_core *core);
	struct gm_core *core;
};

/* The table that has the chunk of this id, if there is one. */
static inline struct gm_chunk **gm_env_chunks(struct gm_env *env, uint64_t id)
{
	return &env->chunks[id % GM_ENV_TABLES];
}

static inline uint64_t gm_env_now(const struct gm_env *env)
{
	return env->ops.now_ns(env->ctx);
}

static inline void gm_env_enter(struct gm_env *env)
{
	env->depth++;
}

static inline void gm_env_leave(struct gm_env *env)
{
	if (--env->depth == 0 && env->woken)
		env->pump(env->core);
}

/* Makes sure that a tick comes by this time. If none is due by then, the pump asks for one. */
static inline void gm_env_need_tick(struct gm_env *env, uint64_t ns)
{
	if (ns < env->armed_ns)
		env->woken = true;
}

static inline void gm_env_tell(const struct gm_env *env, const struct gm_event *event)
{
	if (env->ops.event)
		env->ops.event(env->ctx, event);
}

/* See gm_core_ops.record and erase. Returns 0 where nothing is kept. */
static inline int gm_env_record(const struct gm_env *env, uint32_t kind, uint64_t id,
	uint32_t *place, const void *bytes, size_t size)
{
	return env->ops.record ? env->ops.record(env->ctx, kind, id, place, bytes, size) : 0;
}

static inline void gm_env_erase(const struct gm_env *env, uint32_t *place)
{
	if (*place)
		env->ops.erase(env->ctx, place);
}

/* Reports that what the payer holds on a device, or may hold there, has changed. Does nothing for a payer that is
 * about to end or has no process. */
static inline void gm_env_payer_changed(
	const struct gm_env *env, const struct gm_account_payer *payer, uint32_t device)
{
	if (!payer->ending && payer->session)
		env->ops.session_changed(env->ctx, payer->session, device);
}

#endif
