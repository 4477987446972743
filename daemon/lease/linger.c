/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lingering chunks: they are to be destroyed, but a process may still reach them (a forked child, or
 * a client that returned them falsely), so their memory would not come back. This file promises that
 * such a chunk stays charged to the estate of its owners until no process can reach it, and is
 * destroyed soon after that. It asks again at growing intervals, a bounded number of chunks at a time. It
 * must never pool a chunk.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/linger.h"
#include "daemon/lease/commit.h"

#include <assert.h>

#include "common/arith.h"
#include "daemon/device/reserve.h"
#include "daemon/queue/deadlock.h"

/* The first look comes after this time. Each further one waits twice as long as the one before, up
 * to 6.4 s. */
#define LINGER_FIRST_NS UINT64_C(100000000)
/* Each look is a system call or two, so a call from above makes so many at most. */
#define LINGER_LOOK_AT 64

bool gm_linger_in_use(const struct gm_device *device, const struct gm_chunk *chunk)
{
	const struct gm_env *env = device->env;
	return !env->stopping && env->ops.in_use && env->ops.in_use(env->ctx, chunk);
}

static void linger_put(struct gm_device *device, struct gm_chunk *chunk, unsigned level)
{
	struct gm_linger *linger = &device->linger;
	chunk->linger_level = (uint8_t)level;
	chunk->linger_ns = gm_device_now(device) + (LINGER_FIRST_NS << level);
	DL_APPEND(linger->levels[level], chunk);
	linger->due_ns = gm_min(linger->due_ns, chunk->linger_ns);
	gm_env_need_tick(device->env, linger->due_ns);
}

void gm_linger_begin(struct gm_device *device, struct gm_chunk *chunk, struct gm_account *account,
	struct gm_estate *estate)
{
	assert(chunk->state == GM_CHUNK_LEASED);
	gm_ledger_linger(&device->ledger, account, gm_estate_account(estate, device), chunk->bytes);
	chunk->state = GM_CHUNK_LINGERING;
	chunk->lease = NULL;
	chunk->estate = gm_estate_ref(estate);
	gm_commit_lingering(chunk);
	linger_put(device, chunk, 0);
}

void gm_linger_adopt(struct gm_device *device, struct gm_chunk *chunk, struct gm_estate *estate)
{
	chunk->state = GM_CHUNK_LINGERING;
	chunk->estate = gm_estate_ref(estate);
	linger_put(device, chunk, 0);
}

/* Destroys a chunk that is in no list. */
static void linger_end(struct gm_device *device, struct gm_chunk *chunk)
{
	struct gm_estate *estate = chunk->estate;
	struct gm_account *account = gm_estate_account(estate, device);
	chunk->estate = NULL;
	gm_env_erase(device->env, &chunk->place);
	gm_deadlock_returned(device, account);
	gm_device_doom_lingering(device, chunk, account);
	gm_estate_unref(estate);
}

static void linger_set_due(struct gm_linger *linger)
{
	linger->due_ns = UINT64_MAX;
	for (unsigned i = 0; i < GM_LINGER_LEVELS; i++)
		if (linger->levels[i])
			linger->due_ns = gm_min(linger->due_ns, linger->levels[i]->linger_ns);
}

void gm_linger_look(struct gm_device *device)
{
	struct gm_linger *linger = &device->linger;
	uint64_t now = gm_device_now(device);
	unsigned looks = 0;
	bool ended = false;
	if (linger->due_ns > now)
		return;

	for (unsigned level = 0; level < GM_LINGER_LEVELS; level++) {
		struct gm_chunk *chunk;
		while ((chunk = linger->levels[level]) && chunk->linger_ns <= now &&
			looks++ < LINGER_LOOK_AT) {
			DL_DELETE(linger->levels[level], chunk);
			chunk->prev = chunk->next = NULL;
			if (gm_linger_in_use(device, chunk)) {
				linger_put(device, chunk, gm_min(level + 1, GM_LINGER_LEVELS - 1));
			} else {
				linger_end(device, chunk);
				ended = true;
			}
		}
	}
	linger_set_due(linger);
	if (ended)
		gm_reserve_settle(device);
}

void gm_linger_end_all(struct gm_device *device)
{
	for (unsigned i = 0; i < GM_LINGER_LEVELS; i++) {
		while (device->linger.levels[i]) {
			struct gm_chunk *chunk = device->linger.levels[i];
			DL_DELETE(device->linger.levels[i], chunk);
			linger_end(device, chunk);
		}
	}
	device->linger.due_ns = UINT64_MAX;
}
