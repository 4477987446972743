/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core as the daemon sees it. core.h says what core promises; this file puts the modules
 * together and hands each call to the module that keeps the promise. It must never hold a rule of
 * its own about memory.
 */
#include "daemon/books/hash_table.h"
#include "daemon/core/core.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/arith.h"
#include "daemon/books/fds.h"
#include "daemon/reclaim/reclaim_overdue.h"
#include "daemon/reclaim/reclaim_pressure.h"
#include "daemon/device/device_decay.h"
#include "daemon/device/device_drain.h"
#include "daemon/reclaim/reclaim_plan.h"
#include "daemon/reclaim/reclaim_run.h"
#include "daemon/device/device_probe.h"
#include "daemon/device/reserve.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/lease_private.h"
#include "daemon/lease/orphan_chunk.h"
#include "daemon/lease/declare_private.h"
#include "daemon/lease/name_publish.h"
#include "daemon/lease/name_expiry.h"
#include "daemon/lease/control_block.h"
#include "daemon/lease/commit.h"
#include "daemon/lease/request_private.h"
#include "daemon/queue/queue.h"
#include "daemon/queue/queue_user.h"
#include "daemon/reclaim/reclaim_backoff.h"

static struct gm_device *core_device_of(const struct gm_core *core, uint32_t device)
{
	assert(device < core->env.n_devices);
	return &core->env.devices[device];
}

/* ---- time */

static uint64_t core_level_due(const struct gm_device *d)
{
	return gm_preload_pressure_due(&d->pressure, &d->info.policy, gm_device_pressure(d));
}

static void core_level_tick(struct gm_device *d)
{
	if (core_level_due(d) <= gm_device_now(d))
		gm_device_settle(d);
}

static void core_pressure_tick(struct gm_device *d)
{
	if (gm_reclaim_pressure_due(d) <= gm_device_now(d))
		d->env->woken = true;
}

static uint64_t core_orphan_due(const struct gm_device *d)
{
	return d->linger.due_ns;
}

static uint64_t core_orphan_map_due(const struct gm_device *d)
{
	return d->maps.due_ns;
}

static uint64_t core_drain_due(const struct gm_device *d)
{
	return gm_device_drain_wants_slice(d) ? 0 : UINT64_MAX;
}

/* With every tick. */
static uint64_t core_never_due(const struct gm_device *d)
{
	return UINT64_MAX;
}

/* What a device does by itself, in this order: when it is due, and what does it if it is. */
#define CORE_TIMERS(X) \
	X(core_level_due, core_level_tick) \
	X(gm_reclaim_backoff_due, gm_reclaim_backoff_tick) \
	X(gm_queue_due, gm_queue_tick) \
	X(gm_reclaim_pressure_due, core_pressure_tick) \
	X(core_orphan_due, gm_orphan_chunk_look) \
	X(core_orphan_map_due, gm_orphan_map_tick) \
	X(core_never_due, gm_commit_device) \
	X(core_drain_due, gm_device_drain_release_some) \
	X(gm_device_decay_due, gm_device_decay_run) \
	X(gm_reserve_due, gm_reserve_refill)
#define CORE_EARLIER(due, run) next = gm_u64_min(next, due(d));
#define CORE_RUN(due, run)     run(d);

static uint64_t core_next_due(const struct gm_core *core)
{
	uint64_t next = gm_name_expiry_next(core);
	if (core->env.woken || core->n_ticking > 0)
		return gm_env_now(&core->env);
	for (uint32_t n = 0; n < core->env.n_devices; n++) {
		const struct gm_device *d = &core->devices[n];
		CORE_TIMERS(CORE_EARLIER)
	}
	return next;
}

/* A grant whose done() asks again could go on for ever. After so many rounds, the rest waits for a
 * tick. */
#define PUMP_ROUNDS 1024

/* Grants what waits and lets the ladders act, when the outermost call into core returns. */
static void core_pump(struct gm_core *core)
{
	struct gm_env *env = &core->env;
	/* The next round takes care of whatever done() changes in here. */
	env->depth++;
	for (unsigned rounds = 0; env->woken && rounds < PUMP_ROUNDS; rounds++) {
		env->woken = false;
		gm_control_block_make_waiting(env);
		for (uint32_t n = 0; n < env->n_devices; n++) {
			struct gm_device *d = &core->devices[n];
			gm_reclaim_pressure_act(d);
			if (d->queue.woken)
				gm_queue_run(d);
		}
	}
	env->depth--;

	uint64_t next = core_next_due(core);
	if (next < core->env.armed_ns) {
		core->env.armed_ns = next;
		if (env->ops.wake_at)
			env->ops.wake_at(env->ctx, next);
	}
}

uint64_t gm_core_tick(struct gm_core *core)
{
	struct gm_env *env = &core->env;
	gm_env_enter(env);
	gm_name_expire_some(core);
	gm_orphan_work_tick(core);
	for (uint32_t n = 0; n < env->n_devices; n++) {
		struct gm_device *d = &core->devices[n];
		CORE_TIMERS(CORE_RUN)
	}
	gm_env_leave(env);

	core->env.armed_ns = core_next_due(core);
	return core->env.armed_ns;
}

/* ---- life */

int gm_core_new(const struct gm_core_ops *ops, void *ctx, struct gm_core **ret_core)
{
	struct gm_core *core = calloc(1, sizeof(*core));
	if (!core)
		return -ENOMEM;

	core->env = (struct gm_env){
		.ops = *ops, .ctx = ctx, .devices = core->devices, .pump = core_pump, .core = core};
	core->env.armed_ns = UINT64_MAX;
	gm_user_table_init(&core->users);
	core->env.users = &core->users;
	core->env.fds = &core->users.fds;
	core->limits = (struct gm_limits){.env = &core->env, .owner_of = gm_account_payer_owner};
	ops->random(ctx, &core->token_key, sizeof(core->token_key));
	ops->random(ctx, &core->env.owner_key, sizeof(core->env.owner_key));
	*ret_core = core;
	return 0;
}

static bool core_has_chunks(const struct gm_core *core)
{
	for (unsigned i = 0; i < GM_ENV_TABLES; i++)
		if (core->env.chunks[i])
			return true;
	return false;
}

void gm_core_free(struct gm_core *core)
{
	if (!core)
		return;

	assert(!core->env.payers && !core->shares && !core->orphan_list && core->n_leases == 0);
	assert(!core->metadata && core->expiries.n == 0);
	free(core->expiries.names);
	for (uint32_t d = 0; d < core->env.n_devices; d++) {
		assert(!core->devices[d].maps.list);
		gm_queue_user_free_all(&core->devices[d]);
		gm_reclaim_overdue_forget_all(&core->devices[d]);
		gm_device_deinit(&core->devices[d]);
	}
	assert(!core_has_chunks(core) && !core->env.fd_waiting);
	assert(!core->env.word_waiting);
	core->env.fds->settle = NULL;
	gm_limits_deinit(&core->limits);
	gm_user_table_deinit(&core->users);
	explicit_bzero(&core->token_key, sizeof(core->token_key));
	free(core);
}

static void core_settle_fds(void *ctx, bool all)
{
	struct gm_core *core = ctx;
	struct gm_env *env = &core->env;
	env->word_denied = false;
	gm_device_settle_fds(env, all);
	/* The caller may be in the middle of a connection's end, which no answer to a client must
	 * disturb. So a control block waits for a tick. */
	if (env->woken && env->depth == 0 && env->ops.wake_at) {
		env->armed_ns = gm_env_now(env);
		env->ops.wake_at(env->ctx, env->armed_ns);
	}
}

void gm_core_share_users(struct gm_core *core, struct gm_user_table *users)
{
	assert(!core->users.users);
	core->env.users = users;
	core->env.fds = &users->fds;
	users->fds.settle = core_settle_fds;
	users->fds.ctx = core;
}

/* The oldest session that has a process; NULL: there is none. */
static struct gm_session *core_first_session(const struct gm_core *core)
{
	const struct gm_account_payer *payer = core->env.payers;
	while (payer && (!payer->session || payer->ending))
		payer = payer->hh.next;
	return payer ? payer->session : NULL;
}

void gm_core_shutdown(struct gm_core *core)
{
	struct gm_env *env = &core->env;
	gm_env_enter(env);
	env->stopping = true;
	/* Nothing is pooled any more, so it makes no difference how the sessions end. */
	for (struct gm_session *session; (session = core_first_session(core));)
		gm_session_end_died(session);
	gm_name_end_all(core);
	gm_orphan_work_finish(core);
	for (uint32_t d = 0; d < env->n_devices; d++) {
		gm_orphan_chunk_end_all(&core->devices[d]);
		gm_orphan_map_end_all(&core->devices[d]);
		gm_pool_clear(&core->devices[d].pool);
		gm_device_settle(&core->devices[d]);
	}
	gm_env_leave(env);
}

void gm_core_retire(struct gm_core *core)
{
	struct gm_env *env = &core->env;
	gm_env_enter(env);
	env->stopping = true;
	for (uint32_t d = 0; d < env->n_devices; d++) {
		gm_orphan_map_retire(&core->devices[d]);
		gm_pool_clear(&core->devices[d].pool);
		gm_device_settle(&core->devices[d]);
		gm_commit_device(&core->devices[d]);
	}
	gm_env_leave(env);
}

bool gm_core_idle(const struct gm_core *core)
{
	for (uint32_t d = 0; d < core->env.n_devices; d++)
		if (core->devices[d].jobs > 0)
			return false;
	return true;
}

/* ---- devices */

int gm_core_add_device(
	struct gm_core *core, const struct gm_core_device_info *info, uint32_t *ret_device)
{
	struct gm_env *env = &core->env;
	if (env->n_devices >= GM_BOUND_DEVICES)
		return -E2BIG;
	if (env->payers || core->limits.by_owner) /* they have an account per device */
		return -EBUSY;

	uint32_t number = env->n_devices++;
	struct gm_device *device = &core->devices[number];
	gm_device_init(device, env, number, info);
	gm_reserve_set(device, info->policy.reserve);
	gm_reclaim_init(&device->reclaim);
	/* The reserve must not take what others use, so core must know that first. */
	if (info->measured)
		gm_ledger_sample(&device->ledger, info->free_bytes);
	*ret_device = number;

	gm_env_enter(env);
	gm_reserve_settle(device);
	gm_env_leave(env);
	return 0;
}

void gm_core_begin_adoption(struct gm_core *core)
{
	assert(core->env.n_devices == 0);
	core->env.adopting = true;
}

void gm_core_end_adoption(struct gm_core *core)
{
	struct gm_env *env = &core->env;
	gm_env_enter(env);
	env->adopting = false;
	for (uint32_t n = 0; n < env->n_devices; n++) {
		struct gm_device *d = &core->devices[n];
		/* What was adopted counted as foreign when the device was added. */
		if (d->info.measured)
			gm_ledger_sample(&d->ledger, d->info.free_bytes);
		gm_commit_device(d);
		gm_reserve_settle(d);
	}
	gm_env_leave(env);
}

uint32_t gm_core_device_count(const struct gm_core *core)
{
	return core->env.n_devices;
}

void gm_core_set_policy(struct gm_core *core, uint32_t device, const struct gm_policy *policy)
{
	struct gm_device *d = core_device_of(core, device);
	gm_env_enter(&core->env);
	gm_device_set_policy(d, policy);
	gm_reserve_set(d, policy->reserve);
	gm_reserve_settle(d);
	gm_env_need_tick(&core->env, gm_device_decay_due(d));
	gm_env_leave(&core->env);
}

void gm_core_device_figures(
	const struct gm_core *core, uint32_t device, struct gm_device_figures *ret)
{
	const struct gm_device *d = core_device_of(core, device);
	*ret = (struct gm_device_figures){
		.total = d->info.total,
		.foreign = d->ledger.foreign,
		.capacity = gm_device_capacity(d),
		.ceiling = gm_device_ceiling(d),
		.available = d->drain.on ? 0 : gm_device_available(d),
		.leased = d->ledger.leased,
		.quarantined = d->ledger.quarantined,
		.orphaned = d->ledger.orphaned,
		.declared = d->ledger.declared,
		.declared_seen = d->ledger.seen,
		.admitted = d->ledger.admitted,
		.pooled = d->ledger.pooled,
		.created = gm_ledger_created(&d->ledger),
		.dying = d->ledger.doomed,
		.free = gm_ledger_free(&d->ledger),
		.measured = d->ledger.measured,
		.peak_charged = d->ledger.peak_charged,
		.chunks = d->chunks,
		.pressure_ppm = gm_device_pressure(d),
		.level = gm_device_level_now(d),
		.reclaim_epoch = d->reclaim_epoch,
		.drain = d->drain,
		.policy = d->info.policy,
	};
}

void gm_core_pool_totals(const struct gm_core *core, uint32_t device, struct gm_pool_totals *ret)
{
	const struct gm_device *d = core_device_of(core, device);
	*ret = (struct gm_pool_totals){
		.pooled = d->pool.bytes,
		.peak = d->pool.peak,
		.max_pool = d->pool.max_bytes,
		.reserve = d->info.policy.reserve,
		.hits = d->pool.hits,
		.misses = d->pool.misses,
		.pool_decay_ms = d->pool.decay_ns / GM_NS_PER_MS,
		.returns = d->pool.returns,
		.released = d->pool.released,
	};
}

void gm_core_pool_each(const struct gm_core *core, uint32_t device,
	void (*visit)(void *ctx, const struct gm_pool_bucket_info *bucket), void *ctx)
{
	const struct gm_device *d = core_device_of(core, device);
	gm_pool_each(&d->pool, gm_device_now(d), visit, ctx);
}

uint64_t gm_core_trim(struct gm_core *core, uint32_t device, uint64_t *slice)
{
	struct gm_device *d = core_device_of(core, device);
	uint64_t released = d->pool.bytes;
	gm_env_enter(&core->env);
	for (; *slice > 0 && gm_pool_evict(&d->pool, GM_DOMAIN_FRESH); --*slice)
		continue;
	released -= d->pool.bytes;
	if (d->pool.bytes == 0)
		d->reclaim_epoch++;
	gm_commit_device(d);
	gm_reserve_settle(d);
	gm_env_leave(&core->env);
	return released;
}

int gm_core_drain(struct gm_core *core, uint32_t device, uid_t uid)
{
	gm_env_enter(&core->env);
	int r = gm_device_drain_begin(core_device_of(core, device), uid);
	gm_env_leave(&core->env);
	return r;
}

bool gm_core_undrain(struct gm_core *core, uint32_t device)
{
	struct gm_device *d = core_device_of(core, device);
	gm_env_enter(&core->env);
	bool was_on = gm_device_drain_end(d);
	if (was_on)
		gm_reserve_settle(d);
	gm_env_leave(&core->env);
	return was_on;
}

gpumem_status gm_core_cleanup_plan(struct gm_core *core, uint32_t device, uint64_t free_bytes,
	struct gm_reclaim_plan *ret_plan, char detail[GM_DETAIL_BYTES])
{
	gpumem_status status = gm_device_check_number(&core->env, device, detail);
	if (status != GPUMEM_OK)
		return status;
	return gm_reclaim_plan_cleanup(&core->devices[device], free_bytes, ret_plan, detail);
}

gpumem_status gm_core_cleanup(struct gm_core *core, uint32_t device, uint64_t free_bytes,
	struct gm_reclaim_plan *ret_plan, char detail[GM_DETAIL_BYTES])
{
	struct gm_reclaim_plan plan = {0};
	gpumem_status status = gm_core_cleanup_plan(core, device, free_bytes, &plan, detail);
	if (status == GPUMEM_OK && plan.n_steps > 0) {
		gm_env_enter(&core->env);
		/* For a while, the reserve must not take what becomes free. */
		gm_reserve_back_off(&core->devices[device]);
		gm_reclaim_carry_out(&core->devices[device], &plan);
		gm_env_leave(&core->env);
	}

	if (ret_plan && (status == GPUMEM_OK || status == GPUMEM_E_NO_MEMORY))
		*ret_plan = plan;
	else
		gm_reclaim_plan_deinit(&plan);
	return status;
}

/* ---- limits */

/* The last step of a change: if it is valid (status), puts the new table in force, with the
 * policies (NULL: they stay), and frees the old one. */
static gpumem_status core_put_in_force(struct gm_core *core, const struct gm_policy *policies,
	struct gm_limits *next, gpumem_status status)
{
	struct gm_env *env = &core->env;
	if (status != GPUMEM_OK)
		return status;

	gm_env_enter(env);
	for (uint32_t d = 0; policies && d < env->n_devices; d++)
		gm_core_set_policy(core, d, &policies[d]);
	gm_limits_replace(&core->limits, next);
	for (uint32_t d = 0; d < env->n_devices; d++)
		gm_queue_requote(&core->devices[d], &core->limits);
	gm_limits_deinit(next);
	for (uint32_t d = 0; d < env->n_devices; d++)
		gm_device_settle(&core->devices[d]);
	gm_env_leave(env);
	return GPUMEM_OK;
}

gpumem_status gm_core_configure(struct gm_core *core, const struct gm_policy *policies,
	const struct gm_limit_rule *rules, size_t n_rules, char detail[GM_DETAIL_BYTES])
{
	const struct gm_limit_config config = {
		.policies = policies, .rules = rules, .n_rules = n_rules};
	struct gm_limits next;
	gpumem_status status = gm_limits_configured(&core->limits, &config, &next, detail);
	return core_put_in_force(core, policies, &next, status);
}

gpumem_status gm_core_set_limit(struct gm_core *core, const struct gm_owner *owner, uint32_t device,
	const struct gm_limit_values *values, char detail[GM_DETAIL_BYTES])
{
	struct gm_limits next;
	gpumem_status status = gm_limits_with(&core->limits, owner, device, values, &next, detail);
	return core_put_in_force(core, NULL, &next, status);
}

gpumem_status gm_core_reset_limit(struct gm_core *core, const struct gm_owner *owner,
	uint32_t device, char detail[GM_DETAIL_BYTES])
{
	struct gm_limits next;
	gpumem_status status = gm_limits_without(&core->limits, owner, device, &next, detail);
	return core_put_in_force(core, NULL, &next, status);
}

void gm_core_hold(struct gm_core *core)
{
	gm_env_enter(&core->env);
}

void gm_core_release(struct gm_core *core)
{
	gm_env_leave(&core->env);
}

bool gm_core_limit_each(struct gm_core *core, struct gm_limit_place *place,
	bool (*visit)(void *ctx, const struct gm_limit_info *info), void *ctx)
{
	return gm_limits_each(&core->limits, place, visit, ctx);
}

/* ---- sessions and requests */

struct gm_session *gm_core_find_session(struct gm_core *core, uint64_t id)
{
	struct gm_account_payer *payer;
	HASH_FIND(hh, core->env.payers, &id, sizeof(id), payer);
	return payer && !payer->ending ? payer->session : NULL;
}

uint64_t gm_core_session_count(const struct gm_core *core)
{
	return HASH_COUNT(core->env.payers) - core->env.users->all[GM_USER_ORPHANS] -
	       core->n_ending;
}

uint64_t gm_core_lease_count(const struct gm_core *core)
{
	return gm_u64_minus(core->n_leases, core->n_outgoing);
}

bool gm_core_work(struct gm_core *core, uid_t payer_uid)
{
	struct gm_user *user = gm_user_find(core->env.users, payer_uid);
	uint64_t slice = gm_orphan_work_slice(&core->env);
	if (!user || !user->work || !user->work->working)
		return false;

	gm_user_ref(user);
	gm_env_enter(&core->env);
	gm_orphan_work_do(user->work, &slice);
	gm_env_leave(&core->env);
	/* done() may have ended more, or all of it. */
	bool more = user->work && user->work->working;
	gm_user_unref(user);
	return more;
}

bool gm_core_orphan_each(const struct gm_core *core, uint64_t after,
	bool (*visit)(void *ctx, const struct gm_orphan *orphan), void *ctx)
{
	return gm_orphan_each(core, after, visit, ctx);
}

void gm_core_request(struct gm_core *core, struct gm_request *request)
{
	gm_env_enter(&core->env);
	gm_request_submit(core, request);
	gm_env_leave(&core->env);
}

void gm_core_cancel(struct gm_core *core, struct gm_request *request)
{
	gm_env_enter(&core->env);
	gm_request_cancel(request);
	gm_env_leave(&core->env);
}

bool gm_core_queue_each(const struct gm_core *core, uint32_t device, struct gm_queue_place *place,
	bool (*visit)(void *ctx, const struct gm_queue_info *info), void *ctx)
{
	return gm_queue_each(core_device_of(core, device), &core->limits, place, visit, ctx);
}

void gm_core_counters(const struct gm_core *core, struct gm_core_counters *ret)
{
	*ret = core->counters;
}

/* ---- what the daemon reports */

void gm_core_created(struct gm_core *core, struct gm_chunk *chunk, int result)
{
	struct gm_device *d = core_device_of(core, chunk->device);
	assert(chunk->state == GM_CHUNK_CREATING && d->jobs > 0);
	d->jobs--;

	gm_env_enter(&core->env);
	if (chunk->request) {
		gm_request_created(chunk->request, chunk, result);
	} else {
		if (chunk->reserve)
			gm_reserve_created(d, chunk, result == 0);
		gm_request_created_unclaimed(d, chunk, result);
		gm_reserve_settle(d);
	}
	gm_env_leave(&core->env);
}

void gm_core_control_block_deposited(struct gm_core *core, struct gm_request *request)
{
	gm_env_enter(&core->env);
	gm_request_go_on(request);
	gm_env_leave(&core->env);
}

void gm_core_destroyed(struct gm_core *core, struct gm_chunk *chunk)
{
	struct gm_device *d = core_device_of(core, chunk->device);
	assert(chunk->state == GM_CHUNK_DOOMED && d->jobs > 0);
	d->jobs--;
	gm_ledger_destroyed(&d->ledger, chunk->bytes);
	d->freed += chunk->bytes;
	d->destroyed += chunk->bytes;
	bool decayed = chunk->decayed;
	gm_fds_move(&core->env, chunk, GM_FDS_NONE, NULL);
	gm_orphan_map_destroyed(d, chunk);
	free(chunk);

	gm_env_enter(&core->env);
	core->env.word_denied = false;
	if (core->env.fds->waiting > 0)
		gm_device_settle_fds(&core->env, false);
	/* A request that was denied memory may get it now. */
	if (d->queue.denied > 0)
		gm_device_wake_queue(d);
	gm_request_destroyed(d);
	if (decayed)
		gm_device_decay_destroyed(d);
	gm_env_leave(&core->env);
}

void gm_core_sample(struct gm_core *core, uint32_t device, uint64_t free_bytes)
{
	struct gm_device *d = core_device_of(core, device);
	uint64_t foreign = d->ledger.foreign;
	if (!gm_ledger_sample(&d->ledger, free_bytes))
		return;
	d->freed += gm_u64_minus(foreign, d->ledger.foreign);

	gm_env_enter(&core->env);
	uint64_t pooled = d->pool.bytes, min_free = d->info.policy.min_free;
	gm_device_settle(d);
	if (free_bytes < min_free && d->pool.bytes < pooled)
		gm_reclaim_min_free(d, min_free - free_bytes, pooled - d->pool.bytes);
	gm_reserve_refill(d);
	gm_env_leave(&core->env);
}

void gm_core_sample_failed(struct gm_core *core, uint32_t device)
{
	core_device_of(core, device)->ledger.measured = false;
}

void gm_core_counted(struct gm_core *core, uint32_t device, struct gm_usage_sample *counted)
{
	struct gm_device *d = core_device_of(core, device);
	uint64_t free_bytes = counted->free_bytes;
	bool sampled = counted->sampled;

	gm_env_enter(&core->env);
	bool changed = gm_orphan_map_count(d, counted);
	gm_declare_count(d);
	/* What is owed was foreign, so foreign must be right before anybody looks at the sum. */
	if (sampled)
		gm_core_sample(core, device, free_bytes);
	if (changed)
		gm_reserve_settle(d);
	gm_env_leave(&core->env);
}

void gm_core_probed(struct gm_core *core, uint32_t device)
{
	gm_env_enter(&core->env);
	gm_device_probe_told(core_device_of(core, device));
	gm_env_leave(&core->env);
}
