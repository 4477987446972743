/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orphaned chunks: they are to be destroyed, but a process may still reach them (a forked child, or
 * a client that returned them falsely), so their memory would not come back. This file promises that
 * such a chunk stays charged to the orphaned account of its owners until no process can reach it, and is
 * destroyed soon after that. It asks again at growing intervals, a bounded number of chunks at a time. It
 * must never pool a chunk.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/orphan_chunk.h"
#include "daemon/lease/commit.h"

#include <assert.h>

#include "common/arith.h"
#include "daemon/device/reserve.h"
#include "daemon/queue/queue_deadlock.h"

/* The first look comes after this time. Each further one waits twice as long as the one before, up
 * to 6.4 s. */
#define ORPHAN_FIRST_NS UINT64_C(100000000)
/* Each look is a system call or two, so a call from above makes so many at most. */
#define ORPHAN_LOOK_AT 64

bool gm_orphan_chunk_in_use(const struct gm_device *device, const struct gm_chunk *chunk)
{
	const struct gm_env *env = device->env;
	return !env->stopping && env->ops.in_use && env->ops.in_use(env->ctx, chunk);
}

static void orphan_chunk_put(struct gm_device *device, struct gm_chunk *chunk, unsigned level)
{
	struct gm_orphan_chunk *linger = &device->linger;
	chunk->orphan_level = (uint8_t)level;
	chunk->orphan_ns = gm_device_now(device) + (ORPHAN_FIRST_NS << level);
	DL_APPEND(linger->levels[level], chunk);
	linger->due_ns = gm_u64_min(linger->due_ns, chunk->orphan_ns);
	gm_env_need_tick(device->env, linger->due_ns);
}

void gm_orphan_chunk_begin(struct gm_device *device, struct gm_chunk *chunk,
	struct gm_account *account, struct gm_orphan *orphan)
{
	assert(chunk->state == GM_CHUNK_LEASED);
	gm_ledger_orphan(&device->ledger, account, gm_orphan_account(orphan, device), chunk->bytes);
	chunk->state = GM_CHUNK_ORPHANED;
	chunk->lease = NULL;
	chunk->orphan = gm_orphan_ref(orphan);
	gm_commit_orphaned(chunk);
	orphan_chunk_put(device, chunk, 0);
}

void gm_orphan_chunk_adopt(
	struct gm_device *device, struct gm_chunk *chunk, struct gm_orphan *orphan)
{
	chunk->state = GM_CHUNK_ORPHANED;
	chunk->orphan = gm_orphan_ref(orphan);
	orphan_chunk_put(device, chunk, 0);
}

/* Destroys a chunk that is in no list. */
static void orphan_chunk_end(struct gm_device *device, struct gm_chunk *chunk)
{
	struct gm_orphan *orphan = chunk->orphan;
	struct gm_account *account = gm_orphan_account(orphan, device);
	chunk->orphan = NULL;
	gm_env_erase(device->env, &chunk->place);
	gm_queue_deadlock_returned(device, account);
	gm_device_doom_orphaned(device, chunk, account);
	gm_orphan_unref(orphan);
}

static void orphan_chunk_set_due(struct gm_orphan_chunk *linger)
{
	linger->due_ns = UINT64_MAX;
	for (unsigned i = 0; i < GM_ORPHAN_CHUNK_LEVELS; i++)
		if (linger->levels[i])
			linger->due_ns = gm_u64_min(linger->due_ns, linger->levels[i]->orphan_ns);
}

void gm_orphan_chunk_look(struct gm_device *device)
{
	struct gm_orphan_chunk *linger = &device->linger;
	uint64_t now = gm_device_now(device);
	unsigned looks = 0;
	bool ended = false;
	if (linger->due_ns > now)
		return;

	for (unsigned level = 0; level < GM_ORPHAN_CHUNK_LEVELS; level++) {
		struct gm_chunk *chunk;
		while ((chunk = linger->levels[level]) && chunk->orphan_ns <= now &&
			looks++ < ORPHAN_LOOK_AT) {
			DL_DELETE(linger->levels[level], chunk);
			chunk->prev = chunk->next = NULL;
			if (gm_orphan_chunk_in_use(device, chunk)) {
				orphan_chunk_put(device, chunk,
					gm_u64_min(level + 1, GM_ORPHAN_CHUNK_LEVELS - 1));
			} else {
				orphan_chunk_end(device, chunk);
				ended = true;
			}
		}
	}
	orphan_chunk_set_due(linger);
	if (ended)
		gm_reserve_settle(device);
}

void gm_orphan_chunk_end_all(struct gm_device *device)
{
	for (unsigned i = 0; i < GM_ORPHAN_CHUNK_LEVELS; i++) {
		while (device->linger.levels[i]) {
			struct gm_chunk *chunk = device->linger.levels[i];
			DL_DELETE(device->linger.levels[i], chunk);
			orphan_chunk_end(device, chunk);
		}
	}
	device->linger.due_ns = UINT64_MAX;
}
