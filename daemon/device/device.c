/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device: ties its ledger and its pool together, so that a chunk never moves in one without
 * moving in the other. It promises that pooled + charged stays below the ceiling (or the pool is
 * empty), and that only reusable chunks reach the pool. It must never look at a client: leases know
 * who holds a chunk and what the client said about it.
 */
#include "daemon/books/hash_table.h"
#include "daemon/device/device_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/arith.h"
#include "daemon/books/usage_sample.h"
#include "daemon/books/fds.h"
#include "daemon/device/device_plan.h"

/* ---- the figures */

uint64_t gm_device_capacity(const struct gm_device *device)
{
	return gm_policy_ceiling(device->share, device->beyond_min_free, 0);
}

uint64_t gm_device_ceiling(const struct gm_device *device)
{
	return gm_policy_ceiling(device->share, device->beyond_min_free, device->ledger.foreign);
}

uint64_t gm_device_available(const struct gm_device *device)
{
	return gm_policy_available(gm_device_ceiling(device), gm_ledger_charged(&device->ledger));
}

uint32_t gm_device_pressure(const struct gm_device *device)
{
	return gm_policy_pressure(gm_device_capacity(device), gm_device_available(device));
}

enum gm_pressure_level gm_device_level_now(const struct gm_device *device)
{
	return gm_policy_level(
		&device->info.policy, gm_device_pressure(device), device->pressure.level);
}

/* ---- the ways of a chunk */

static struct gm_chunk *device_new_chunk(
	struct gm_device *device, uint64_t id, enum gm_transport transport, uint64_t bytes)
{
	struct gm_env *env = device->env;
	struct gm_chunk *chunk = calloc(1, sizeof(*chunk));
	if (!chunk)
		return NULL;

	chunk->id = id;
	chunk->bytes = bytes;
	chunk->device = device->number;
	chunk->domain = GM_DOMAIN_FRESH;
	chunk->payer_uid = (uid_t)-1;
	chunk->transport = transport;
	chunk->state = GM_CHUNK_CREATING;
	chunk->handle.fd = -1;
	HASH_ADD(hh, *gm_env_chunks(env, chunk->id), id, sizeof(chunk->id), chunk);
	if (!GM_TABLE_ADDED(chunk)) {
		free(chunk);
		return NULL;
	}
	device->chunks++;
	return chunk;
}

struct gm_chunk *gm_device_new_chunk(
	struct gm_device *device, enum gm_transport transport, uint64_t bytes)
{
	const struct gm_env *env = device->env;
	return device_new_chunk(device, env->ops.new_id(env->ctx), transport, bytes);
}

void gm_device_free_chunk(struct gm_device *device, struct gm_chunk *chunk)
{
	assert(chunk->state == GM_CHUNK_CREATING && device->chunks > 0);
	gm_fds_move(device->env, chunk, GM_FDS_NONE, NULL);
	HASH_DEL(*gm_env_chunks(device->env, chunk->id), chunk);
	device->chunks--;
	free(chunk);
}

struct gm_chunk *gm_device_adopt_chunk(struct gm_device *device, uint64_t id, uint64_t bytes,
	const struct gm_backend_handle *handle)
{
	struct gm_chunk *chunk = device_new_chunk(device, id, GM_TRANSPORT_FD, bytes);
	if (!chunk)
		return NULL;
	chunk->state = GM_CHUNK_LEASED;
	chunk->adopted = true;
	chunk->handle = *handle;
	return chunk;
}

/* Submits the creation of a chunk. */
static void device_submit(struct gm_device *device, struct gm_chunk *chunk)
{
	const struct gm_ledger *ledger = &device->ledger;

	/* What is charged includes this chunk. After a failure the device had less than it seems. */
	chunk->after_doomed =
		chunk->retried || gm_ledger_charged(ledger) + ledger->pooled + ledger->doomed >
					  gm_device_ceiling(device);
	device->env->ops.create(device->env->ctx, chunk, chunk->turn);
}

void gm_device_create(struct gm_device *device, struct gm_chunk *chunk, uint64_t turn)
{
	struct gm_env *env = device->env;
	assert(chunk->state == GM_CHUNK_CREATING);
	device->jobs++;
	chunk->turn = turn;
	if (gm_fds_must_wait(env, chunk))
		gm_fds_wait(env, chunk);
	else
		device_submit(device, chunk);
}

bool gm_device_retry_create(struct gm_device *device, struct gm_chunk *chunk)
{
	struct gm_env *env = device->env;
	if (chunk->retried)
		return false;
	gm_device_settle_fds(env, true);
	if (env->fds->dying == 0)
		return false;
	chunk->retried = true;
	device->jobs++;
	gm_fds_wait(env, chunk);
	return true;
}

bool gm_device_call_off(struct gm_device *device, struct gm_chunk *chunk)
{
	struct gm_env *env = device->env;
	assert(chunk->state == GM_CHUNK_CREATING && device->jobs > 0);
	if (!gm_fds_stop_waiting(env, chunk) &&
		(!env->ops.call_off || !env->ops.call_off(env->ctx, chunk)))
		return false;
	device->jobs--;
	return true;
}

/* Submits the destruction of a chunk that the ledger counts as doomed already. */
static void device_doom(struct gm_device *device, struct gm_chunk *chunk)
{
	assert(device->chunks > 0);
	HASH_DEL(*gm_env_chunks(device->env, chunk->id), chunk);
	device->chunks--;
	gm_fds_move(device->env, chunk, GM_FDS_DYING, NULL);
	chunk->state = GM_CHUNK_DOOMED;
	chunk->last = device->env->stopping;
	chunk->watched = chunk->map && !chunk->last;
	chunk->unseen = chunk->watched && !gm_usage_sample_find(device->maps.last, chunk->debtor);
	chunk->lease = NULL;
	chunk->request = NULL;

	device->jobs++;
	device->env->ops.destroy(device->env->ctx, chunk);
}

static void device_pool_released(void *ctx, struct gm_chunk *chunk)
{
	struct gm_device *device = ctx;
	if (chunk->domain == GM_DOMAIN_FRESH)
		device->reserve.short_of = true;
	chunk->decayed = device->decay.running;
	gm_ledger_doom_pooled(&device->ledger, chunk->bytes);
	device_doom(device, chunk);
}

/* Puts a chunk that the ledger counts as pooled into the pool. Returns whether it was taken. */
static bool device_pool(struct gm_device *device, struct gm_chunk *chunk)
{
	struct gm_env *env = device->env;
	/* An older chunk must go first if pooled chunks have too many descriptors. */
	gm_fds_move(env, chunk, GM_FDS_SPARE, NULL);
	if (chunk->transport == GM_TRANSPORT_FD && gm_fd_budget_too_many_spare(env->fds) &&
		!gm_pool_evict(&device->pool, chunk->domain))
		return false;
	if (gm_pool_put(&device->pool, chunk, gm_device_now(device)) != 0)
		return false;
	gm_env_need_tick(env, gm_pool_decay_due(&device->pool));
	if (env->ops.pooled)
		env->ops.pooled(env->ctx, chunk);
	return true;
}

/* Whether a chunk that is in no account any more may be pooled. charged: what is still charged. */
static bool device_has_room(
	const struct gm_device *device, const struct gm_chunk *chunk, uint64_t charged)
{
	if (device->env->stopping || device->drain.on ||
		device->pressure.level == GM_PRESSURE_LEVEL_CRITICAL)
		return false;
	if (chunk->domain != GM_DOMAIN_FRESH && !device->info.policy.pooling)
		return false;
	if (chunk->single || chunk->adopted)
		return false;
	/* Requests for ipc chunks take a size class each; nobody would ask for another size. */
	if (chunk->transport == GM_TRANSPORT_IPC &&
		chunk->bytes != gm_device_plan_ipc_class(chunk->bytes))
		return false;
	return device->ledger.pooled + chunk->bytes + charged <= gm_device_ceiling(device);
}

bool gm_device_release(
	struct gm_device *device, struct gm_chunk *chunk, struct gm_account *account, bool reusable)
{
	assert(chunk->state == GM_CHUNK_LEASED);
	uint64_t charged = gm_ledger_charged(&device->ledger) - chunk->bytes;
	chunk->lease = NULL;
	chunk->request = NULL;

	if (reusable && device_has_room(device, chunk, charged)) {
		/* Into the ledger first: putting it into the pool may push others out. */
		gm_ledger_pool_leased(&device->ledger, account, chunk->bytes);
		if (device_pool(device, chunk))
			return true;
		gm_ledger_doom_pooled(&device->ledger, chunk->bytes);
	} else {
		gm_ledger_doom_leased(&device->ledger, account, chunk->bytes);
	}
	device_doom(device, chunk);
	return false;
}

void gm_device_doom_orphaned(
	struct gm_device *device, struct gm_chunk *chunk, struct gm_account *account)
{
	assert(chunk->state == GM_CHUNK_ORPHANED);
	gm_ledger_doom_orphaned(&device->ledger, account, chunk->bytes);
	device_doom(device, chunk);
}

void gm_device_created_unclaimed(struct gm_device *device, struct gm_chunk *chunk, int result)
{
	struct gm_ledger *ledger = &device->ledger;
	if (result < 0) {
		gm_ledger_fail_unclaimed(ledger, chunk->bytes);
		gm_device_free_chunk(device, chunk);
		return;
	}

	/* A declaration that waits may wait for the room of this chunk. */
	if (!device->declaring && device_has_room(device, chunk, gm_ledger_charged(ledger))) {
		gm_ledger_pool_unclaimed(ledger, chunk->bytes);
		if (device_pool(device, chunk))
			return;
		gm_ledger_doom_pooled(ledger, chunk->bytes);
	} else {
		gm_ledger_doom_unclaimed(ledger, chunk->bytes);
	}
	device->reserve.short_of = true;
	device_doom(device, chunk);
}

void gm_device_make_room(struct gm_device *device, gm_domain spare)
{
	uint64_t used = device->ledger.pooled + gm_ledger_charged(&device->ledger);
	uint64_t ceiling = gm_device_ceiling(device);
	if (used > ceiling)
		gm_pool_shrink(&device->pool, used - ceiling, spare);
}

/* Releases one pooled chunk that has a descriptor, of the first device that has any. */
static bool device_evict_any(struct gm_env *env)
{
	for (uint32_t n = 0; n < env->n_devices; n++) {
		struct gm_device *device = &env->devices[n];
		if (!device->info.transport_fd || !gm_pool_evict(&device->pool, GM_DOMAIN_FRESH))
			continue;
		env->ops.device_changed(env->ctx, n);
		return true;
	}
	return false;
}

void gm_device_settle_fds(struct gm_env *env, bool all)
{
	while (env->fds->spare > 0 && (all || gm_fd_budget_short(env->fds)))
		if (!device_evict_any(env))
			break;

	struct gm_chunk *chunk;
	while ((chunk = gm_fds_next(env)))
		device_submit(&env->devices[chunk->device], chunk);
}

void gm_device_settle(struct gm_device *device)
{
	struct gm_env *env = device->env;
	gm_device_make_room(device, GM_DOMAIN_FRESH);
	if (env->fds->waiting > 0)
		gm_device_settle_fds(env, false);
	assert(device->pool.bytes == device->ledger.pooled);

	uint32_t ppm = gm_device_pressure(device);
	if (!gm_preload_pressure_steady(&device->pressure, &device->info.policy, ppm)) {
		bool calm = device->pressure.calm;
		bool changed = gm_preload_pressure_step(
			&device->pressure, &device->info.policy, ppm, gm_device_now(device));
		/* Reclaim acts on a new level, and a fall that waits for its dwell sets a time.
		 */
		if (changed || calm != device->pressure.calm)
			env->woken = true;
		if (changed)
			env->ops.level_changed(env->ctx, device->number, device->pressure.level);
	}

	if (device->queue.length > 0)
		gm_device_wake_queue(device);
	env->ops.device_changed(env->ctx, device->number);
}

/* ---- life */

struct gm_device *gm_device_by_key(const struct gm_env *env, uint64_t key)
{
	for (uint32_t n = 0; n < env->n_devices; n++)
		if (env->devices[n].key == key)
			return &env->devices[n];
	return NULL;
}

/* Devices without UUIDs are told apart by their order. */
static uint64_t device_make_key(const struct gm_device *device)
{
	uint64_t half[2];
	_Static_assert(sizeof(half) == GM_UUID_BYTES, "a UUID is two numbers");
	memcpy(half, device->info.uuid, sizeof(half));
	uint64_t key = (half[0] ^ half[1] * UINT64_C(0x9e3779b97f4a7c15)) | 1;
	while (gm_device_by_key(device->env, key))
		key += 2;
	return key;
}

void gm_device_init(struct gm_device *device, struct gm_env *env, uint32_t number,
	const struct gm_core_device_info *info)
{
	memset(device, 0, sizeof(*device));
	device->env = env;
	device->number = number;
	device->info = *info;
	device->key = device_make_key(device);
	gm_ledger_init(&device->ledger, info->total);
	device->linger.due_ns = UINT64_MAX;
	device->maps.due_ns = UINT64_MAX;
	gm_pool_init(&device->pool, device_pool_released, device);
	gm_device_set_policy(device, &info->policy);
}

void gm_device_deinit(struct gm_device *device)
{
	assert(device->chunks == 0 && device->jobs == 0 && device->queue.length == 0);
	assert(!device->declaring);
	free(device->maps.last);
	gm_pool_deinit(&device->pool);
	gm_ledger_deinit(&device->ledger);
}

gpumem_status gm_device_check_number(
	const struct gm_env *env, uint32_t number, char detail[GM_DETAIL_BYTES])
{
	if (number < env->n_devices)
		return GPUMEM_OK;
	return gm_text_refuse(GPUMEM_E_NOT_FOUND, detail,
		"there is no device %u; there %s %u, numbered from 0", number,
		env->n_devices == 1 ? "is" : "are", env->n_devices);
}

void gm_device_set_policy(struct gm_device *device, const struct gm_policy *policy)
{
	uint64_t total = device->info.total;
	device->info.policy = *policy;
	device->share = gm_policy_share(policy, total);
	device->beyond_min_free = gm_u64_minus(total, policy->min_free);
	gm_pool_set_bounds(
		&device->pool, gm_policy_max_pool(policy, total), policy->max_per_bucket);
	device->pool.decay_ns = policy->pool_decay_ns;
	if (!policy->pooling)
		gm_pool_clear_used(&device->pool);
}
