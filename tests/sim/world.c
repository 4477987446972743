/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of administrators, of the device, and of the world around the daemon. As client.c. */
#include <stdlib.h>

#include "tests/sim/sim.h"

#define MIB    (UINT64_C(1) << 20)
#define GIB    (UINT64_C(1) << 30)
#define SECOND UINT64_C(1000000000)
#define U(n)   ((unsigned long long)(n))

static uint64_t capacity(const struct sim *sim, uint32_t d, const struct gm_policy *policy)
{
	uint64_t total = sim->info[d].total, share = (uint64_t)(policy->fraction * (double)total);
	return share < total - policy->min_free ? share : total - policy->min_free;
}

static uint64_t guaranteed(const struct sim *sim, uint32_t d)
{
	uint64_t sum = 0;
	for (uint32_t u = 0; u < SIM_UIDS; u++)
		sum += sim->limits[d][u].guarantee;
	return sum;
}

struct seen_limit {
	uint32_t uid, d;
	struct sim_limit is;
};

static bool see_limit(void *ctx, const struct gm_limit_info *info)
{
	struct seen_limit *seen = ctx;
	if (info->device == seen->d && info->owner.id == 1000 + seen->uid)
		seen->is = (struct sim_limit){.set = info->values.set,
			.max = info->values.max,
			.guarantee = info->values.guarantee,
			.priority = info->values.priority};
	return true;
}

static bool is_limit(const struct sim_limit *a, const struct sim_limit *b)
{
	return a->set == b->set && a->max == b->max && a->guarantee == b->guarantee &&
	       a->priority == b->priority;
}

/* A daemon died while it set the limit. The next one has the old limit or the new one, and clients have repeated their
 * requests under that. */
static void adopted_limit(struct sim *sim, uint32_t uid, uint32_t d, const struct sim_limit *next)
{
	struct seen_limit seen = {.uid = uid, .d = d, .is = {.max = UINT64_MAX}};
	struct gm_limit_place place = {0};
	struct sim_limit *limit = &sim->limits[d][uid];
	gm_core_limit_each(sim->core, &place, see_limit, &seen);
	SIM_MUST(sim, is_limit(&seen.is, limit) || is_limit(&seen.is, next),
		"uid %u has a limit on device %u that was never set", uid, d);
	if (!is_limit(&seen.is, limit))
		sim->held[d][uid] = UINT64_MAX;
	*limit = seen.is;
	sim_daemon_settle(sim);
	for (uint32_t k = 0; k < SIM_DEVICES; k++)
		sim_check_admission(sim, k);
}

static void reset_limit(struct sim *sim, uint32_t uid, uint32_t d, const struct gm_owner *owner)
{
	struct sim_limit *limit = &sim->limits[d][uid];
	char detail[GM_DETAIL_BYTES];
	sim_say(sim, "the limit of uid %u on device %u ends", uid, d);
	if (sim->again)
		adopted_limit(sim, uid, d, &(struct sim_limit){.max = UINT64_MAX});
	gpumem_status status = gm_core_reset_limit(sim->core, owner, d, detail);
	if (sim->frozen)
		return;
	SIM_MUST(sim, status == (limit->set ? GPUMEM_OK : GPUMEM_E_NOT_FOUND) || sim->again,
		"a limit is reset: %d", status);
	*limit = (struct sim_limit){.max = UINT64_MAX};
}

void sim_step_limit(struct sim *sim, const struct step *s)
{
	uint32_t uid = s->a % SIM_UIDS, d = s->a / SIM_UIDS % SIM_DEVICES;
	struct sim_limit next = sim->limits[d][uid];
	struct gm_owner owner;
	char detail[GM_DETAIL_BYTES];
	gm_owner_by_id(GM_OWNER_UID, 1000 + uid, &owner);
	if (s->b % 8 == 0) {
		reset_limit(sim, uid, d, &owner);
		return;
	}
	struct gm_limit_values values = {.max = s->b % 3 == 0 ? UINT64_MAX : s->c % (GIB / 2),
		.guarantee = s->c % 5 == 0 ? 0 : s->c / 8 % (GIB / 3),
		.priority = (int32_t)(s->c % 7) - 3};
	values.set = s->b % 8 < 3   ? GM_LIMIT_MAX
		     : s->b % 8 < 6 ? GM_LIMIT_GUARANTEE
				    : 1 + s->b / 8 % 7;
	next.set |= values.set;
	next.max = values.set & GM_LIMIT_MAX ? values.max : next.max;
	next.guarantee = values.set & GM_LIMIT_GUARANTEE ? values.guarantee : next.guarantee;
	next.priority = values.set & GM_LIMIT_PRIORITY ? values.priority : next.priority;
	uint64_t sum = guaranteed(sim, d) - sim->limits[d][uid].guarantee + next.guarantee;
	bool valid = (!next.guarantee || next.max >= next.guarantee) &&
		     sum <= capacity(sim, d, &sim->info[d].policy);
	sim_say(sim, "uid %u on device %u: limit %llu, guarantee %llu, priority %d", uid, d,
		U(next.max), U(next.guarantee), next.priority);
	if (sim->again)
		adopted_limit(sim, uid, d, valid ? &next : &sim->limits[d][uid]);
	gpumem_status status = gm_core_set_limit(sim->core, &owner, d, &values, detail);
	if (sim->frozen)
		return;
	SIM_MUST(sim,
		status == (valid ? GPUMEM_OK : GPUMEM_E_INVALID) || sim_unrecorded(sim, status),
		"a limit that is %s got %d: %s", valid ? "valid" : "wrong", status, detail);
	if (status != GPUMEM_OK)
		return;
	sim->limits[d][uid] = next;
	sim->held[d][uid] = UINT64_MAX; /* it may hold more already */
}

void sim_step_policy(struct sim *sim, const struct step *s)
{
	uint32_t d = s->a % SIM_DEVICES;
	struct gm_policy policies[SIM_DEVICES], *p = &policies[d];
	char detail[GM_DETAIL_BYTES];
	for (uint32_t k = 0; k < SIM_DEVICES; k++)
		policies[k] = sim->info[k].policy;
	p->fraction = 0.5 + (double)(s->b % 51) / 100;
	p->min_free = s->c % 4 * 64 * MIB;
	p->max_pool = s->c / 4 % 4 * 256 * MIB;
	p->pool_decay_ns = s->c / 16 % 3 * 5 * SECOND;
	bool valid = guaranteed(sim, d) <= capacity(sim, d, p);
	sim_say(sim, "device %u gets another policy%s", d, valid ? "" : ", which is wrong");
	/* The next daemon has this configuration, too. */
	if (valid)
		sim->info[d].policy = *p;
	gpumem_status status = gm_core_configure(sim->core, policies, NULL, 0, detail);
	SIM_MUST(sim, status == (valid ? GPUMEM_OK : GPUMEM_E_INVALID) || sim->frozen,
		"a policy that is %s got %d: %s", valid ? "valid" : "wrong", status, detail);
}

void sim_step_drain(struct sim *sim, const struct step *s)
{
	uint32_t d = s->a % SIM_DEVICES;
	bool on = s->b % 4 == 0;
	sim_say(sim, "device %u is %s", d, on ? "drained" : "in use again");
	int r = 0;
	if (on)
		r = gm_core_drain(sim->core, d, 0);
	else
		gm_core_undrain(sim->core, d);
	SIM_MUST(sim, r == 0 || sim->store_full || sim->frozen, "no drain: %d", r);
	if (!sim->frozen && r == 0)
		sim->drained[d] = on;
}

void sim_step_reclaim(struct sim *sim, const struct step *s)
{
	char detail[GM_DETAIL_BYTES];
	uint64_t slice;
	if (s->b % 2) {
		gm_core_cleanup(sim->core, s->a % SIM_DEVICES, s->c % GIB, NULL, detail);
		return;
	}
	do {
		slice = GM_CORE_TRIM_SLICE;
		gm_core_trim(sim->core, s->a % SIM_DEVICES, &slice);
	} while (slice == 0);
}

void sim_step_foreign(struct sim *sim, const struct step *s)
{
	uint32_t d = s->a % SIM_DEVICES;
	sim->settled = true;
	sim->foreign[d] = s->b % 2 ? 0 : s->c % (sim->info[d].total / 2);
	sim_say(sim, "others have %llu of device %u", U(sim->foreign[d]), d);
	if (s->b / 2 % 2)
		sim_thread_sample(sim, d);
}

void sim_step_work(struct sim *sim, const struct step *s)
{
	sim->settled = true;
	uint32_t late = s->c / 64 % 4 == 0 ? 1 + s->c / 256 % 4 : 0;
	sim_thread_work(sim, s->a % SIM_DEVICES, 1 + s->b % 16, s->c % 40, late);
}

void sim_step_pass(struct sim *sim, const struct step *s)
{
	static const uint64_t units[] = {1000, 1000000, SECOND, 60 * SECOND, 3600 * SECOND};
	sim->settled = true;
	sim_daemon_pass(sim, units[s->a % 5] * (1 + s->b % 30));
}

void sim_step_keeper_dies(struct sim *sim, const struct step *s)
{
	sim->settled = true;
	if (s->a % 4)
		return;
	sim_say(sim, "the keeper dies");
	for (size_t i = 0; i < sim->n_live; i++)
		sim->chunks[sim->live[i]].keeper = false;
	sim_items_forget(sim);
	sim->keeper_refills = true;
}

void sim_step_refill(struct sim *sim, const struct step *s)
{
	uint32_t most = 1 + s->a % 64;
	sim->settled = true;
	for (size_t i = 0; i < sim->n_live && most > 0; i++) {
		struct sim_chunk *c = &sim->chunks[sim->live[i]];
		if (c->daemon && !c->doomed && !c->keeper) {
			c->keeper = true;
			most--;
		}
	}
	if (most == 0 || !sim->keeper_refills)
		return;
	sim->keeper_refills = false;
	sim_items_fill(sim);
}

void sim_step_store_full(struct sim *sim, const struct step *s)
{
	sim->settled = true;
	sim->full_after = 1 + s->a % 24;
}

void sim_step_daemon_dies(struct sim *sim, const struct step *s)
{
	if (s->a % 2) {
		sim->die_after = 1 + s->b % 60;
		return;
	}
	sim_say(sim, "the daemon dies");
	sim->settled = true;
	sim_daemon_restart(sim);
	sim_clients_resume(sim);
}
