/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of administrators, of the device, and of the world around the daemon. As client.c. */
#include <stdlib.h>

#include "tests/sim/sim.h"

#define MIB    (UINT64_C(1) << 20)
#define GIB    (UINT64_C(1) << 30)
#define SECOND UINT64_C(1000000000)
#define U(n)   ((unsigned long long)(n))

void sim_step_limit(struct sim *sim, const struct step *s)
{
	uint32_t uid = s->a % SIM_UIDS;
	uint64_t max = s->b % 3 == 0 ? UINT64_MAX : s->c % (GIB / 2);
	struct gm_quota_values values = {.set = GM_QUOTA_MAX, .max = max};
	struct gm_owner owner;
	char detail[GM_DETAIL_BYTES];
	gm_owner_by_id(GM_OWNER_UID, 1000 + uid, &owner);
	sim_say(sim, "the limit of uid %u is %llu", uid, U(max));
	gpumem_status status = gm_core_set_quota(sim->core, &owner, 0, &values, detail);
	SIM_MUST(sim, status == GPUMEM_OK || sim->frozen, "no limit: %s", detail);
	if (sim->frozen)
		return;
	sim->max[uid] = max;
	sim->held[uid] = UINT64_MAX; /* it may hold more already */
}

void sim_step_policy(struct sim *sim, const struct step *s)
{
	uint32_t d = s->a % SIM_DEVICES;
	struct gm_policy *p = &sim->info[d].policy;
	p->fraction = 0.5 + (double)(s->b % 51) / 100;
	p->min_free = s->c % 4 * 64 * MIB;
	p->max_pool = s->c / 4 % 4 * 256 * MIB;
	p->pool_decay_ns = s->c / 16 % 3 * 5 * SECOND;
	sim_say(sim, "device %u gets another policy", d);
	gm_core_set_policy(sim->core, d, p);
}

void sim_step_drain(struct sim *sim, const struct step *s)
{
	uint32_t d = s->a % SIM_DEVICES;
	bool on = s->b % 4 == 0;
	sim_say(sim, "device %u is %s", d, on ? "drained" : "in use again");
	if (on)
		SIM_MUST(sim, gm_core_drain(sim->core, d, 0) == 0, "no drain");
	else
		gm_core_undrain(sim->core, d);
	if (!sim->frozen)
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
	sim_thread_work(sim, s->a % SIM_DEVICES, 1 + s->b % 16, s->c % 40);
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
	if (most > 0)
		sim->keeper_refills = false;
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
