/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_DEVICE_H
#define GM_CORE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/core.h"
#include "daemon/core/ladder.h"
#include "daemon/core/ledger.h"
#include "daemon/core/probe.h"
#include "daemon/core/policy.h"
#include "daemon/core/pool.h"
#include "daemon/core/queue.h"
#include "daemon/core/reserve.h"

/* A device as core knows it: its ledger, its pool, its policy, and the ways a chunk goes. */
struct gm_device {
	struct gm_core *core;
	uint32_t number;
	bool stopping; /* nothing is pooled or made any more */
	struct gm_core_device_info info;
	/* Of the policy, worked out once: the share of the whole, and what is not min_free. */
	uint64_t share, beyond_min_free;
	struct gm_ledger ledger;
	struct gm_pool pool;
	struct gm_reserve reserve;
	struct gm_pressure pressure;
	struct gm_queue queue;
	struct gm_ladder ladder;
	struct gm_look look;
	uint64_t freed;       /* bytes since the start: destroyed, or not foreign any more */
	uint64_t guaranteed;  /* the sum of all guarantees (quota.c) */
	int32_t top_priority; /* of all sessions, unless core->tops_stale */
	uint64_t chunks;      /* all but the doomed */
	uint64_t jobs;        /* creations and destructions under way */
	uint64_t reclaim_epoch;
};

void gm_device_init(struct gm_device *device, struct gm_core *core, uint32_t number,
	const struct gm_core_device_info *info);
void gm_device_deinit(struct gm_device *device);

uint64_t gm_device_now(const struct gm_device *device);
uint64_t gm_device_capacity(const struct gm_device *device);
uint64_t gm_device_ceiling(const struct gm_device *device);
uint64_t gm_device_available(const struct gm_device *device);
uint32_t gm_device_pressure(const struct gm_device *device);
void gm_device_set_policy(struct gm_device *device, const struct gm_policy *policy);

/* A chunk to be: counted, with an id, not in the ledger yet. NULL: no memory. */
struct gm_chunk *gm_device_new_chunk(
	struct gm_device *device, enum gm_transport transport, uint64_t bytes);
/* Of a chunk that the backend has nothing of. */
void gm_device_free_chunk(struct gm_device *device, struct gm_chunk *chunk);
/* Submits its creation. */
void gm_device_create(struct gm_device *device, struct gm_chunk *chunk, uint64_t turn);

/* Takes it back, if it has not begun: then the chunk is to be freed. */
bool gm_device_call_off(struct gm_device *device, struct gm_chunk *chunk);

/*
 * A created chunk leaves the account that is charged for it. reusable: whoever had it has unmapped
 * it (or never saw it), so it is pooled for chunk->domain if there is room; otherwise it is
 * destroyed. Whether it was pooled. The chunk is in no list before.
 */
bool gm_device_release(struct gm_device *device, struct gm_chunk *chunk, struct gm_account *account,
	bool reusable);
/* A creation that nobody waits for ended. */
void gm_device_created_unclaimed(struct gm_device *device, struct gm_chunk *chunk, int result);

/* The pool makes room for what is charged and for the chunks there are, sparing that domain. */
void gm_device_make_room(struct gm_device *device, gm_domain spare);
/* After any change: pool within the ceiling, level and figures told. */
void gm_device_settle(struct gm_device *device);

#endif
