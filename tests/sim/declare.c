/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that processes make themselves and declare. As client.c. They make it as soon as they may. The driver's counts
 * are not simulated, so core takes that memory for foreign, too, once it has measured the device.
 */
#include "daemon/lease/declare.h"
#include "tests/sim/sim.h"

#define MIB  (UINT64_C(1) << 20)
#define U(n) ((unsigned long long)(n))

void sim_step_declare(struct sim *sim, const struct step *s)
{
	int proc = sim_pick_proc(sim, s->a, true);
	sim->settled = true;
	struct sim_ask *ask = proc < 0 ? NULL : sim_ask_new(sim, proc, -1, 1 + s->b % (48 * MIB));
	if (!ask)
		return;
	ask->r.declares = true;
	ask->r.device = s->c % SIM_DEVICES;
	sim_ask_wait(sim, ask, s->c / 2);
	sim_say(sim, "process %d declares %llu more on device %u", sim->procs[proc].pid,
		U(ask->bytes), ask->r.device);
	sim_ask_send(sim, ask);
}

void sim_step_declare_less(struct sim *sim, const struct step *s)
{
	int proc = sim_pick_proc(sim, s->a, true);
	uint32_t d = s->b % SIM_DEVICES;
	if (proc < 0 || sim->procs[proc].declared[d] == 0)
		return;
	struct sim_proc *p = &sim->procs[proc];
	uint64_t bytes = s->c % 2 ? 0 : s->c % p->declared[d];
	sim_say(sim, "process %d declares %llu of %llu on device %u", p->pid, U(bytes),
		U(p->declared[d]), d);
	p->declared[d] = bytes; /* the memory is gone */
	uint64_t has = gm_declare_less(sim_session(sim, p), d, bytes);
	SIM_MUST(sim, has == bytes || sim->frozen, "process %d declared %llu, and core counts %llu",
		p->pid, U(bytes), U(has));
}

bool sim_declare_knows(const struct sim *sim, uint32_t d)
{
	struct gm_device_figures f;
	uint64_t foreign = sim->foreign[d];
	for (int i = 0; i < sim->n_procs; i++)
		foreign += sim->procs[i].declared[d];
	/* Chunks that were lost, and that a process still maps. */
	for (size_t i = 0; i < sim->n_live; i++) {
		const struct sim_chunk *c = &sim->chunks[sim->live[i]];
		foreign += c->device == d && !c->daemon ? c->bytes : 0;
	}
	gm_core_device_figures(sim->core, d, &f);
	return f.foreign >= foreign;
}

void sim_declare_done(struct sim *sim, const struct sim_ask *ask)
{
	uint32_t d = ask->r.device;
	uint64_t left = sim_device_free(sim, d);
	/* What comes to the device while a declaration waits is not made room for. */
	SIM_MUST(sim, left >= ask->bytes || ask->unaware || !sim_declare_knows(sim, d),
		"process %d may make %llu on device %u, which has %llu", sim->procs[ask->proc].pid,
		U(ask->bytes), d, U(left));
}

void sim_declare_again(struct sim *sim, int proc)
{
	struct sim_proc *p = &sim->procs[proc];
	for (uint32_t d = 0; d < SIM_DEVICES && !sim->frozen; d++) {
		uint64_t has = gm_declare_less(sim_session(sim, p), d, p->declared[d]);
		SIM_MUST(sim, has == p->declared[d] || sim->frozen,
			"process %d declared %llu on device %u, and core counts %llu", p->pid,
			U(p->declared[d]), d, U(has));
	}
}

void sim_declare_check(struct sim *sim, const struct sim_proc *p, const struct gm_session *session)
{
	for (uint32_t d = 0; d < SIM_DEVICES; d++) {
		uint64_t has = gm_declare_sum(session, d);
		SIM_MUST(sim, has == p->declared[d],
			"process %d declared %llu on device %u, and core counts %llu", p->pid,
			U(p->declared[d]), d, U(has));
	}
}
