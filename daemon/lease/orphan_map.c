/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orphaned mappings: an estimate of the memory of a GPU that was destroyed although a process still maps it. The
 * driver counts such memory for the process that maps it, from the moment at which the daemon lets it go. So
 * this file compares what the driver said of a process before some of its chunks were destroyed with
 * what it said afterwards. What came to it then is an orphaned mapping: it is charged as orphaned to the orphaned account of
 * those who had the chunks, while the driver's figure stays above the one from before.
 *
 * This file promises that a process whose figure did not grow when its chunks were destroyed owes
 * nothing, that memory which it declared and then made is no orphaned mapping, and that nobody owes more than was
 * destroyed. Whatever cannot be told is no orphaned mapping. An orphaned mapping of 0 bytes keeps no orphaned account: pooled chunks refer
 * to it long after the last session has ended. It must never ask the driver itself: the device's thread
 * does, at moments of its own choice.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/commit.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/arith.h"
#include "common/zeroed.h"
#include "daemon/queue/queue_deadlock.h"

/* How often orphaned mappings are looked at when nothing else asks for a count. */
#define ORPHAN_MAP_EVERY_NS UINT64_C(1000000000)
/* To learn what became of a process takes a system call or two, so a count asks so often at most. */
#define ORPHAN_MAP_LOOK_AT 64

/* ---- life */

static size_t orphan_map_name_bytes(const char *name)
{
	return name ? strlen(name) + 1 : 0;
}

/* NULL: what the process maps cannot be counted, or there is no memory. */
static struct gm_orphan_map *orphan_map_new(
	struct gm_device *device, pid_t pid, uint64_t began, const struct gm_orphan *orphan)
{
	if (!device->info.counted || pid <= 0)
		return NULL;
	const struct gm_orphan_info *payer = &orphan->info;
	size_t unit = orphan_map_name_bytes(payer->unit),
	       container = orphan_map_name_bytes(payer->container);
	struct gm_orphan_map *map = gm_zeroed(sizeof(*map) + unit + container);
	if (!map)
		return NULL;

	map->device = device;
	map->payer = *payer;
	if (unit)
		map->payer.unit = memcpy(map->names, payer->unit, unit);
	if (container)
		map->payer.container = memcpy(map->names + unit, payer->container, container);
	map->pid = pid;
	map->began = began;
	map->refs = 1;
	return map;
}

struct gm_orphan_map *gm_orphan_map_of_opener(
	struct gm_device *device, const struct gm_session *session, struct gm_orphan *orphan)
{
	return orphan_map_new(device, session->info.pid, session->info.began, orphan);
}

struct gm_orphan_map *gm_orphan_map_of(struct gm_session *session, struct gm_device *device)
{
	struct gm_account *account = gm_session_account(session, device);
	if (!account->map)
		account->map = orphan_map_new(
			device, session->info.pid, session->info.began, session->orphan);
	return account->map;
}

static struct gm_orphan_map *orphan_map_ref(struct gm_orphan_map *map)
{
	if (map)
		map->refs++;
	return map;
}

void gm_orphan_map_unref(struct gm_orphan_map *map)
{
	if (!map)
		return;
	assert(map->refs > 0);
	if (--map->refs > 0)
		return;
	assert(map->bytes == 0 && map->place == 0 && !map->orphan);
	free(map);
}

void gm_orphan_map_watch(struct gm_chunk *chunk, struct gm_orphan_map *map)
{
	struct gm_orphan_map *before = chunk->map;
	if (before == map)
		return;
	chunk->map = orphan_map_ref(map);
	chunk->debtor = map ? map->pid : 0;
	gm_orphan_map_unref(before);
}

static void orphan_map_list(struct gm_orphan_map *map)
{
	if (map->prev)
		return;
	orphan_map_ref(map);
	DL_APPEND(map->device->maps.list, map);
}

/* Takes it off the list, which may free it. */
static void orphan_map_unlist(struct gm_orphan_map *map)
{
	assert(map->bytes == 0);
	DL_DELETE(map->device->maps.list, map);
	map->prev = map->next = NULL;
	gm_orphan_map_unref(map);
}

void gm_orphan_map_destroyed(struct gm_device *device, struct gm_chunk *chunk)
{
	struct gm_orphan_map *map = chunk->map;
	if (!map)
		return;

	chunk->map = NULL;
	if (!device->env->stopping && device->maps.last) {
		map->smallest =
			map->destroyed ? gm_u64_min(map->smallest, chunk->bytes) : chunk->bytes;
		map->destroyed += chunk->bytes;
		orphan_map_list(map);
	}
	gm_orphan_map_unref(map);
}

/* ---- what is charged */

/* If there is no room for its orphaned account, an orphaned mapping stays at 0 bytes. */
static void orphan_map_set(struct gm_orphan_map *map, uint64_t bytes)
{
	struct gm_device *device = map->device;
	if (!map->orphan &&
		(bytes == 0 || gm_orphan_get(device->env->core, &map->payer, &map->orphan) < 0))
		return;

	struct gm_account *account = gm_orphan_account(map->orphan, device);
	if (bytes > map->bytes)
		gm_ledger_owe(&device->ledger, account, bytes - map->bytes);
	if (bytes < map->bytes) {
		gm_ledger_forgive(&device->ledger, account, map->bytes - bytes);
		gm_queue_deadlock_returned(device, account);
	}
	map->bytes = bytes;
	gm_commit_orphan_map(map);
	if (bytes > 0)
		return;
	gm_orphan_unref(map->orphan);
	map->orphan = NULL;
}

int gm_orphan_map_adopt(struct gm_device *device, struct gm_orphan *orphan, uint64_t id,
	uint32_t place, const struct gm_record_orphan_map *record)
{
	if (!device->info.counted || record->pid <= 0)
		return -EOPNOTSUPP;
	struct gm_orphan_map *map = orphan_map_new(device, record->pid, record->began, orphan);
	if (!map)
		return -ENOMEM;

	map->orphan = gm_orphan_ref(orphan);
	map->id = id;
	map->place = place;
	map->before = record->before;
	map->bytes = record->bytes;
	gm_ledger_owe(&device->ledger, gm_orphan_account(orphan, device), record->bytes);
	orphan_map_list(map);
	gm_orphan_map_unref(map);
	device->maps.due_ns = gm_device_now(device);
	return 0;
}

/* ---- counts */

/*
 * How much of what came to a process is memory of its chunks. A living process may have got memory of
 * its own at that moment. So it must be a sum of chunks: a multiple of the smallest, and no more than
 * all of them. A dead process gets nothing any more, and a child of it cannot call the driver.
 */
static uint64_t orphan_map_believe(
	const struct gm_orphan_map *map, uint64_t growth, enum gm_env_process fate)
{
	if (fate == GM_ENV_PROCESS_GONE)
		return gm_u64_min(growth, map->destroyed);
	if (growth > map->destroyed || growth % map->smallest != 0)
		return 0;
	return growth;
}

static enum gm_env_process orphan_map_fate(const struct gm_orphan_map *map, unsigned *looks)
{
	const struct gm_env *env = map->device->env;
	if (!env->ops.fate || *looks == 0)
		return GM_ENV_PROCESS_ALIVE;
	--*looks;
	return env->ops.fate(env->ctx, map->pid, map->began);
}

/* What the process owes by these two counts: last is the one from before. */
static uint64_t orphan_map_estimate(struct gm_orphan_map *map, struct gm_usage_sample_process *last,
	const struct gm_usage_sample_process *now, unsigned *looks)
{
	uint64_t growth = 0;
	if (map->destroyed)
		growth = gm_u64_minus(now->bytes, last ? last->bytes + last->expected : 0);
	if (growth == 0 && map->bytes == 0)
		return 0;

	enum gm_env_process fate = orphan_map_fate(map, looks);
	if (fate == GM_ENV_PROCESS_REPLACED)
		return 0;
	/* A living process that was not listed before has made its context since. */
	if (!last && fate != GM_ENV_PROCESS_GONE)
		growth = 0;
	uint64_t more = growth ? orphan_map_believe(map, growth, fate) : 0;

	uint64_t bytes = gm_u64_min(map->bytes, gm_u64_minus(now->bytes - more, map->before));
	if (more == 0)
		return bytes;
	/* Another session of the same process must not owe it, too. */
	if (last)
		last->bytes += more;
	/* What the process got for itself since the last orphaned mapping is no part of it. */
	map->before = now->bytes - bytes - more;
	return bytes + more;
}

/* Notes in the last count how much of what each process declared is not in it yet, as far as core can tell. Without
 * declarations that is 0. */
static void orphan_map_expect_declared(struct gm_device *device)
{
	struct gm_usage_sample *last = device->maps.last;
	if (!last || device->ledger.declared == 0)
		return;

	for (size_t i = 0; i < last->n; i++) {
		last->list[i].expected = 0;
		last->list[i].before = UINT64_MAX;
	}
	const struct gm_account *account;
	DL_FOREACH (device->ledger.holders, account) {
		struct gm_usage_sample_process *process =
			account->declared ? gm_usage_sample_find(last, account->payer->pid) : NULL;
		if (!process)
			continue;
		process->expected += account->declared;
		process->before = gm_u64_min(process->before, account->undeclared);
	}
	/* What came to the process since then may be declared memory. The rest of that is still to come. */
	for (size_t i = 0; i < last->n; i++) {
		struct gm_usage_sample_process *process = &last->list[i];
		process->expected = gm_u64_minus(
			process->expected, gm_u64_minus(process->bytes, process->before));
	}
}

bool gm_orphan_map_count(struct gm_device *device, struct gm_usage_sample *counted)
{
	struct gm_orphan_maps *maps = &device->maps;
	unsigned looks = ORPHAN_MAP_LOOK_AT;
	bool changed = false;
	struct gm_orphan_map *map, *next;

	maps->due_ns = UINT64_MAX;
	if (maps->list)
		orphan_map_expect_declared(device);
	DL_FOREACH_SAFE (maps->list, map, next) {
		struct gm_usage_sample_process *now = gm_usage_sample_find(counted, map->pid);
		uint64_t bytes = map->bytes, before = map->before;
		if (counted->known)
			bytes = now ? orphan_map_estimate(map,
					      gm_usage_sample_find(maps->last, map->pid), now,
					      &looks)
				    : 0;

		map->destroyed = map->smallest = 0;
		if (bytes != map->bytes || before != map->before) {
			orphan_map_set(map, bytes);
			changed = true;
		}
		if (map->bytes == 0)
			orphan_map_unlist(map);
		else
			maps->due_ns = gm_device_now(device) + ORPHAN_MAP_EVERY_NS;
	}
	gm_env_need_tick(device->env, maps->due_ns);

	free(maps->last);
	maps->last = counted;
	if (!counted->known) {
		free(counted);
		maps->last = NULL;
	}
	return changed;
}

void gm_orphan_map_tick(struct gm_device *device)
{
	const struct gm_env *env = device->env;
	uint64_t now = gm_device_now(device);
	if (device->maps.due_ns > now)
		return;
	/* The count will say when the next one is due. If it does not come, another one is asked for. */
	device->maps.due_ns = now + ORPHAN_MAP_EVERY_NS;
	if (env->ops.count)
		env->ops.count(env->ctx, device->number);
}

void gm_orphan_map_retire(struct gm_device *device)
{
	struct gm_orphan_map *map, *next;
	DL_FOREACH_SAFE (device->maps.list, map, next)
		if (map->bytes == 0)
			orphan_map_unlist(map);
}

void gm_orphan_map_end_all(struct gm_device *device)
{
	struct gm_orphan_map *map, *next;
	DL_FOREACH_SAFE (device->maps.list, map, next) {
		orphan_map_set(map, 0);
		orphan_map_unlist(map);
	}
	device->maps.due_ns = UINT64_MAX;
}
