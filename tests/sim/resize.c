/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes resize their buffers, move them to host memory, and bring them back. As client.c. Core sees a resize as a
 * request with a new size or as a new size alone, an eviction as a return, and its end as a request.
 */
#include "tests/sim/sim.h"

#define U(n) ((unsigned long long)(n))

bool sim_alone(const struct sim *sim, int lease, int proc)
{
	const struct sim_lease *l = &sim->leases[lease];
	if (l->maker != proc || l->n_holds != 1 || l->holds[0].n_views != 1 || l->name >= 0)
		return false;
	for (int t = 0; t < SIM_TOKENS; t++)
		if (sim->tokens[t].used && sim->tokens[t].lease == lease)
			return false;
	return true;
}

void sim_step_resize(struct sim *sim, const struct step *s)
{
	int proc = sim_pick_proc(sim, s->a, true), lease = sim_pick_lease(sim, proc, s->b, true);
	if (lease < 0 || sim_ask_grows(sim, lease))
		return;
	struct sim_lease *l = &sim->leases[lease];
	uint64_t size = 1 + s->c % (2 * l->bytes);
	char detail[GM_DETAIL_BYTES];
	sim_say(sim, "process %d resizes lease %llu of %llu to %llu", sim->procs[proc].pid,
		U(l->id), U(l->bytes), U(size));
	if (size > l->bytes) {
		sim->settled = true;
		struct sim_ask *ask = sim_ask_new(sim, proc, lease, size - l->bytes);
		if (!ask)
			return;
		ask->size = size;
		ask->late = s->a / 4096 % 4 == 0 ? 1 + s->a / 16384 % 8 : 0;
		sim_ask_wait(sim, ask, s->a / 65536);
		sim_ask_send(sim, ask);
		return;
	}
	gpumem_status status = gm_lease_set_size(
		sim_session(sim, &sim->procs[proc]), sim_lease_of(sim, proc, lease), size, detail);
	if (sim_unheard(sim))
		return;
	bool alone = sim_alone(sim, lease, proc);
	SIM_MUST(sim, status == (alone ? GPUMEM_OK : GPUMEM_E_BUSY),
		"a resize of lease %llu, which is %s, got %d", U(l->id), alone ? "alone" : "shared",
		status);
	if (!alone)
		return;
	l->size = size;
	l->size_before = 0;
}

/* Chooses a buffer that its maker can move, and its maker. */
static int pick_evictable(struct sim *sim, uint32_t a, bool by_hand)
{
	for (int k = 0; k < sim->n_leases; k++) {
		int i = (int)((a + (uint32_t)k) % (uint32_t)sim->n_leases);
		const struct sim_lease *l = &sim->leases[i];
		if (sim->again ? l->id != sim->lease : !l->id)
			continue;
		const struct sim_proc *p = l->maker >= 0 ? &sim->procs[l->maker] : NULL;
		if (!p || !l->evictable || l->unheard || !p->connected || p->stopped ||
			(!by_hand && !p->spill[l->device] && !sim->again) ||
			sim_ask_grows(sim, i) || !sim_alone(sim, i, l->maker))
			continue;
		sim->proc = l->maker;
		sim->lease = l->id;
		return i;
	}
	return -1;
}

void sim_step_evict(struct sim *sim, const struct step *s)
{
	int lease = pick_evictable(sim, s->a, s->c % 4 == 0);
	if (lease < 0)
		return;
	struct sim_proc *p = &sim->procs[sim->proc];
	uint32_t d = sim->leases[lease].device;
	uint64_t bytes = sim->leases[lease].bytes;
	sim_say(sim, "process %d moves lease %llu to host memory", p->pid,
		U(sim->leases[lease].id));
	sim_client_give_back(sim, sim->proc, lease, 0);
	if (sim_unheard(sim))
		return;
	p->away[d] += bytes;
	p->spill[d] = p->spill[d] > bytes ? p->spill[d] - bytes : 0;
}

void sim_step_restore(struct sim *sim, const struct step *s)
{
	uint32_t d = s->b % SIM_DEVICES;
	sim->settled = true;
	for (int k = 0; k < sim->n_procs; k++) {
		int i = (int)((s->a + (uint32_t)k) % (uint32_t)sim->n_procs);
		struct sim_proc *p = &sim->procs[i];
		struct sim_ask *ask = p->alive && p->connected && !p->stopped && p->away[d]
					      ? sim_ask_new(sim, i, -1, p->away[d])
					      : NULL;
		if (!ask)
			continue;
		sim_say(sim, "process %d brings %llu back to device %u", p->pid, U(ask->bytes), d);
		ask->r.device = d;
		ask->evictable = ask->restores = true;
		sim_ask_wait(sim, ask, s->c);
		p->away[d] = 0;
		sim_ask_send(sim, ask);
		return;
	}
}
