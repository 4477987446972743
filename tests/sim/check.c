/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The invariants. After every step, core is held against the books of the simulation (model.c):
 *   1. created = leased + quarantined + pooled, and that is what the device's thread has made and not destroyed.
 *   2. pooled + charged <= ceiling, or nothing is pooled. Nothing new is charged beyond the ceiling.
 *   3. Each user is charged for the leases that its processes made, for its pending requests, and for what it left
 *      behind while a process maps it: for nothing else, and no other user is.
 *   4. Each process has the leases that it was told of, with the same chunks, and no other ones.
 *   5. Each name stands for the lease that was published last.
 *   6. A granted chunk is fresh, or comes from the same trust domain, whose processes all said that they unmapped it.
 *   7. A chunk that must not be used again is destroyed. No chunk is destroyed or pooled while a process maps it.
 *   8. A request ends once, in time; one that fits and is alone does not wait.
 *   9. No user gets more than its limit.
 */
#include <string.h>

#include "tests/sim/sim.h"

#define MIB  (UINT64_C(1) << 20)
#define U(n) ((unsigned long long)(n))

struct charges {
	uint64_t of[SIM_UIDS][SIM_DEVICES];
};

static bool add_estate(void *ctx, const struct gm_session *estate)
{
	struct charges *charges = ctx;
	for (uint32_t d = 0; d < SIM_DEVICES; d++)
		charges->of[gm_session_info(estate)->uid - 1000][d] += gm_session_held(estate, d);
	return true;
}

static void check_charges(struct sim *sim, struct charges *ret)
{
	struct charges least = {0}, open = {0};
	memset(ret, 0, sizeof(*ret));
	gm_core_estate_each(sim->core, 0, add_estate, ret);
	for (int i = 0; i < sim->n_procs; i++)
		for (uint32_t d = 0; sim->procs[i].session && d < SIM_DEVICES; d++)
			ret->of[sim->procs[i].uid][d] +=
				gm_session_held(sim_session(sim, &sim->procs[i]), d);

	for (int i = 0; i < sim->n_leases; i++)
		if (sim->leases[i].id)
			least.of[sim->leases[i].uid][sim->leases[i].device] += sim->leases[i].bytes;
	for (int i = 0; i < sim->n_asks; i++) {
		const struct sim_ask *ask = &sim->asks[i];
		if (ask->used && ask->pending && !ask->ended)
			least.of[sim->procs[ask->proc].uid][ask->r.device] += ask->r.charged;
	}
	for (size_t i = 0; i < sim->n_live; i++) {
		const struct sim_chunk *c = &sim->chunks[sim->live[i]];
		if (c->left && !c->doomed && c->daemon)
			(c->maps ? &least : &open)->of[c->uid][c->device] += c->bytes;
	}
	for (uint32_t u = 0; u < SIM_UIDS; u++)
		for (uint32_t d = 0; d < SIM_DEVICES; d++)
			SIM_MUST(sim,
				ret->of[u][d] >= least.of[u][d] &&
					ret->of[u][d] <= least.of[u][d] + open.of[u][d],
				"uid %u is charged %llu on device %u, and has %llu (and %llu that nobody maps)",
				u, U(ret->of[u][d]), d, U(least.of[u][d]), U(open.of[u][d]));
}

static void check_device(struct sim *sim, uint32_t d, const struct charges *charges)
{
	struct gm_device_figures f;
	uint64_t made = 0, charged = 0;
	gm_core_device_figures(sim->core, d, &f);
	for (size_t i = 0; i < sim->n_live; i++) {
		const struct sim_chunk *c = &sim->chunks[sim->live[i]];
		if (c->device == d && c->daemon && !c->doomed)
			made += c->bytes;
	}
	for (uint32_t u = 0; u < SIM_UIDS; u++)
		charged += charges->of[u][d];
	SIM_MUST(sim, f.created == f.leased + f.quarantined + f.pooled, "created on device %u", d);
	SIM_MUST(sim, f.created == made, "device %u: created %llu, and the device has %llu", d,
		U(f.created), U(made));
	SIM_MUST(sim, f.leased + f.quarantined + f.admitted == charged,
		"device %u: charged %llu, and its users %llu", d,
		U(f.leased + f.quarantined + f.admitted), U(charged));

	uint64_t total = sim->info[d].total, min_free = sim->info[d].policy.min_free;
	uint64_t share = (uint64_t)(sim->info[d].policy.fraction * (double)total);
	uint64_t rest = total > min_free + f.foreign ? total - min_free - f.foreign : 0;
	uint64_t ceiling = share < rest ? share : rest;
	SIM_MUST(sim, f.ceiling == ceiling, "device %u: ceiling %llu, not %llu", d, U(f.ceiling),
		U(ceiling));
	SIM_MUST(sim, !f.pooled || f.pooled + charged <= ceiling,
		"device %u: the pool is in the way", d);
	SIM_MUST(sim, f.pooled <= sim->info[d].policy.max_pool, "device %u: the pool is too large",
		d);
	SIM_MUST(sim, charged <= ceiling || charged <= sim->charged[d],
		"device %u: charged %llu, above the ceiling of %llu and the %llu before", d,
		U(charged), U(ceiling), U(sim->charged[d]));
	sim->charged[d] = charged;
	for (uint32_t u = 0; d == 0 && u < SIM_UIDS; u++) {
		uint64_t held = charges->of[u][0];
		SIM_MUST(sim, held <= sim->max[u] || held <= sim->held[u],
			"uid %u holds %llu, above its limit of %llu and the %llu before", u,
			U(held), U(sim->max[u]), U(sim->held[u]));
		sim->held[u] = held;
	}
}

static int find_lease(struct sim *sim, uint64_t id)
{
	int i = sim_chunk(sim, id)->number;
	return sim->leases[i].id == id ? i : -1;
}

static void check_lease(struct sim *sim, const struct gm_lease *lease, int i)
{
	const struct sim_lease *l = &sim->leases[i];
	size_t n = 0;
	for (const struct gm_chunk *c = gm_lease_chunk(lease, 0); c; c = c->next, n++)
		SIM_MUST(sim, sim_chunk(sim, c->id)->lease == i,
			"lease %llu has chunk %llu, and nobody was told", U(l->id), U(c->id));
	SIM_MUST(sim, n == l->n_chunks, "lease %llu has %zu chunks, not %zu", U(l->id), n,
		l->n_chunks);
}

static void check_sessions(struct sim *sim)
{
	size_t expected[SIM_PROCS] = {0};
	uint64_t n = 0;
	for (int i = 0; i < sim->n_leases; i++)
		for (size_t h = 0; sim->leases[i].id && h < sim->leases[i].n_holds; h++)
			expected[sim->leases[i].holds[h].proc]++;
	for (int p = 0; p < sim->n_procs; p++) {
		const struct sim_proc *proc = &sim->procs[p];
		if (!proc->session)
			continue;
		struct gm_session *session = sim_session(sim, proc);
		size_t found = 0;
		SIM_MUST(sim, session, "session %llu of process %d is lost", U(proc->session),
			proc->pid);
		n++;
		for (struct gm_lease *l = NULL; (l = gm_session_next_lease(session, l));) {
			struct gm_lease_info info;
			gm_lease_info(l, session, &info);
			int i = find_lease(sim, info.id);
			SIM_MUST(sim, i >= 0 && sim_hold_of(sim, i, p),
				"process %d has lease %llu, and was never told", proc->pid,
				U(info.id));
			SIM_MUST(sim, info.made == (sim->leases[i].maker >= 0),
				"who made lease %llu", U(info.id));
			check_lease(sim, l, i);
			found++;
		}
		SIM_MUST(sim, found == expected[p], "process %d has %zu leases, not %zu", proc->pid,
			found, expected[p]);
	}
	SIM_MUST(sim, gm_core_session_count(sim->core) == n, "%llu sessions, not %llu",
		U(gm_core_session_count(sim->core)), U(n));
}

struct seen_names {
	struct sim *sim;
	unsigned n;
};

static bool check_name(void *ctx, const struct gm_name_info *info)
{
	struct seen_names *seen = ctx;
	struct sim *sim = seen->sim;
	const struct sim_name *n = &sim->names[info->uid - 1000][info->text[0] - 'a'];
	SIM_MUST(sim, n->lease >= 0 && sim->leases[n->lease].id == info->lease,
		"name %u/%s stands for lease %llu", info->uid, info->text, U(info->lease));
	SIM_MUST(sim, n->version == info->version, "name %u/%s has version %llu, not %llu",
		info->uid, info->text, U(info->version), U(n->version));
	SIM_MUST(sim, info->bytes == sim->leases[n->lease].bytes, "name %u/%s has %llu bytes",
		info->uid, info->text, U(info->bytes));
	seen->n++;
	return true;
}

static void check_names(struct sim *sim)
{
	struct seen_names seen = {.sim = sim};
	unsigned n = 0;
	gm_core_name_each(sim->core, &(struct gm_name_asker){.admin = true}, 0, check_name, &seen);
	for (uint32_t u = 0; u < SIM_UIDS; u++)
		for (unsigned k = 0; k < SIM_NAMES; k++)
			n += sim->names[u][k].lease >= 0;
	SIM_MUST(sim, seen.n == n, "%u names, not %u", seen.n, n);
}

/* Chunks that must not be used again are on their way to be destroyed; those that linger are looked at by and by. */
static void check_banned(struct sim *sim)
{
	for (size_t i = 0; i < sim->n_live; i++) {
		const struct sim_chunk *c = &sim->chunks[sim->live[i]];
		SIM_MUST(sim, !c->banned || c->lease >= 0 || c->left || c->doomed || !c->daemon,
			"chunk %llu must not be used again, and is kept", U(sim->live[i]));
	}
}

static void check_asks(struct sim *sim)
{
	unsigned waiting[SIM_DEVICES] = {0};
	for (uint32_t d = 0; d < SIM_DEVICES; d++)
		if (sim->n_jobs[d] || sim->worked[d])
			sim->busy_ns[d] = sim->now;
	struct sim_ask *last[SIM_DEVICES] = {NULL};
	for (int i = 0; i < sim->n_asks; i++) {
		struct sim_ask *ask = &sim->asks[i];
		if (!ask->used || !ask->pending || ask->ended)
			continue;
		uint32_t d = ask->r.device;
		waiting[d]++;
		last[d] = ask;
		uint64_t since = ask->until_ns > sim->busy_ns[d] ? ask->until_ns : sim->busy_ns[d];
		SIM_MUST(sim, sim->now <= since + UINT64_C(1000000000),
			"a request waits longer than it may");
	}
	for (uint32_t d = 0; d < SIM_DEVICES; d++) {
		struct gm_device_figures f;
		gm_core_device_figures(sim->core, d, &f);
		if (waiting[d] != 1 || sim->n_jobs[d] || sim->drained[d] ||
			f.level == GM_LEVEL_CRITICAL)
			continue;
		const struct sim_ask *ask = last[d];
		uint32_t uid = sim->procs[ask->proc].uid;
		uint64_t bytes = (ask->bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
		SIM_MUST(sim,
			bytes > f.available || (d == 0 && sim->held[uid] + bytes > sim->max[uid]),
			"a request for %llu waits, alone, and %llu are available", U(ask->bytes),
			U(f.available));
	}
}

void sim_check(struct sim *sim)
{
	struct charges charges;
	sim_chunks_sweep(sim);
	check_sessions(sim);
	check_names(sim);
	check_charges(sim, &charges);
	for (uint32_t d = 0; d < SIM_DEVICES; d++)
		check_device(sim, d, &charges);
	check_banned(sim);
	check_asks(sim);
}
