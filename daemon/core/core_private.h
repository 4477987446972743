/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_PRIVATE_H
#define GM_CORE_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/core.h"
#include "daemon/core/device.h"
#include "daemon/core/quota.h"
#include "daemon/core/token_hash.h"

/* What struct gm_core is, for core's own files. */

struct gm_share;

struct gm_core {
	struct gm_core_ops ops;
	void *ctx;
	bool stopping;
	struct gm_token_hash_key token_key;

	struct gm_device devices[GM_LIMIT_DEVICES];
	uint32_t n_devices;

	struct gm_session *sessions; /* by id, in order of age */
	struct gm_chunk *chunks;     /* by id */
	struct gm_share *shares;     /* by hash of token */
	struct gm_quotas quotas;
	bool tops_stale; /* devices' top_priority must be looked up again */
	uint64_t n_leases;
	struct gm_core_counters counters;

	unsigned depth;    /* of calls into core: done() may call it again */
	bool woken;        /* there is something to look after when the outermost call returns */
	uint64_t armed_ns; /* when the one above means to call gm_core_tick() */
};

/* What waits is granted, and the ladder acts: gm_core_leave() calls it. */
void gm_core_pump(struct gm_core *core);

/* Around everything that can change who may have memory. */
static inline void gm_core_enter(struct gm_core *core)
{
	core->depth++;
}

static inline void gm_core_leave(struct gm_core *core)
{
	if (--core->depth == 0 && core->woken)
		gm_core_pump(core);
}

static inline void gm_core_tell(struct gm_core *core, const struct gm_event *event)
{
	if (core->ops.event)
		core->ops.event(core->ctx, event);
}

#endif
