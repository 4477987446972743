/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The invariants. After every step, core is held against the books of the simulation (model.c):
 *   1. created = leased + quarantined + pooled, and that is what the device's thread has made and not destroyed.
 *   2. pooled + charged <= ceiling, or nothing is pooled. Nothing new is charged beyond the ceiling.
 *   3. Each user is charged for the leases that its processes made, for its pending requests, and for what it left
 *      behind while a process maps it: for nothing else, and no other user is.
 *   4. Each process has the leases that it was told of, with the same chunks, size, control block and metadata, and no
 *      other ones. It has declared as much as it was told. It hears once that the maker of a lease with signals has left.
 *   5. Each name stands for the lease that was published last, with the metadata that came with it.
 *   6. A granted chunk is fresh, or comes from the same trust domain, whose processes all said that they unmapped it.
 *   7. A chunk that must not be used again is destroyed. No chunk is destroyed or pooled while a process maps it.
 *   8. A request ends once, in time; one that fits and is alone does not wait.
 *   9. No user gets more than its limit, nor what is guaranteed to another. Limits are those that were set last.
 */
#include <string.h>

#include "tests/sim/sim.h"

#define MIB  (UINT64_C(1) << 20)
#define U(n) ((unsigned long long)(n))

/* Sessions of the processes. To look for a session costs more than most that is done with it. */
static struct gm_session *sessions[SIM_PROCS];

struct charges {
	uint64_t of[SIM_UIDS][SIM_DEVICES];
};

struct seen_limits {
	struct sim *sim;
	const struct charges *charges;
	unsigned n;
};

static bool add_orphan(void *ctx, const struct gm_orphan *orphan)
{
	struct charges *charges = ctx;
	for (uint32_t d = 0; d < SIM_DEVICES; d++)
		charges->of[gm_orphan_info(orphan)->uid - 1000][d] += gm_orphan_held(orphan, d);
	return true;
}

/* What core says that each user is charged. */
static void sum_charges(struct sim *sim, struct charges *ret)
{
	memset(ret, 0, sizeof(*ret));
	gm_core_orphan_each(sim->core, 0, add_orphan, ret);
	for (int i = 0; i < sim->n_procs; i++) {
		const struct gm_session *session = sim_session(sim, &sim->procs[i]);
		for (uint32_t d = 0; session && d < SIM_DEVICES; d++)
			ret->of[sim->procs[i].uid][d] += gm_session_held(session, d);
	}
}

static void check_charges(struct sim *sim, struct charges *ret)
{
	struct charges least = {0}, open = {0};
	sum_charges(sim, ret);
	for (int i = 0; i < sim->n_procs; i++)
		for (uint32_t d = 0; sim->procs[i].session && d < SIM_DEVICES; d++)
			least.of[sim->procs[i].uid][d] += sim->procs[i].declared[d];

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

/* What is kept free for other users than this one. */
static uint64_t kept_from(
	const struct sim *sim, uint32_t d, uint32_t uid, const struct charges *charges)
{
	uint64_t sum = 0;
	for (uint32_t u = 0; u < SIM_UIDS; u++) {
		uint64_t guarantee = sim->limits[d][u].guarantee, held = charges->of[u][d];
		sum += u != uid && guarantee > held ? guarantee - held : 0;
	}
	return sum;
}

/* The user that was charged last had room beside what was kept for others, and nothing that was returned since then changes
 * that. */
static void check_guarantees(struct sim *sim, uint32_t d, const struct charges *charges,
	uint64_t charged, uint64_t ceiling)
{
	bool more = false;
	for (uint32_t u = 0; u < SIM_UIDS; u++) {
		if (charges->of[u][d] <= sim->held[d][u])
			continue;
		more = true;
		if (charged + kept_from(sim, d, u, charges) <= ceiling)
			return;
	}
	SIM_MUST(sim, !more || ceiling < sim->ceiling[d],
		"device %u: a user got what is guaranteed to another", d);
}

static bool check_limit(void *ctx, const struct gm_limit_info *info)
{
	struct seen_limits *seen = ctx;
	struct sim *sim = seen->sim;
	uint64_t u = info->owner.id - 1000;
	SIM_MUST(sim, info->owner.kind == GM_OWNER_UID && u < SIM_UIDS, "a limit of nobody");
	const struct sim_limit *limit = &sim->limits[info->device][u];
	SIM_MUST(sim,
		info->values.set == limit->set && info->values.max == limit->max &&
			info->values.guarantee == limit->guarantee &&
			info->values.priority == limit->priority,
		"uid %u has another limit on device %u: max %llu, guarantee %llu", (unsigned)u,
		info->device, U(info->values.max), U(info->values.guarantee));
	SIM_MUST(sim, info->held == seen->charges->of[u][info->device],
		"the limit of uid %u on device %u counts %llu, not %llu", (unsigned)u, info->device,
		U(info->held), U(seen->charges->of[u][info->device]));
	seen->n++;
	return true;
}

static void check_limits(struct sim *sim, const struct charges *charges)
{
	struct seen_limits seen = {.sim = sim, .charges = charges};
	struct gm_limit_place place = {0};
	unsigned n = 0;
	gm_core_limit_each(sim->core, &place, check_limit, &seen);
	for (uint32_t d = 0; d < SIM_DEVICES; d++)
		for (uint32_t u = 0; u < SIM_UIDS; u++)
			n += sim->limits[d][u].set != 0;
	SIM_MUST(sim, seen.n == n, "%u limits, not %u", seen.n, n);
}

static void check_limit_of(struct sim *sim, uint32_t d, uint32_t u, uint64_t held)
{
	uint64_t max = sim->limits[d][u].max;
	SIM_MUST(sim, held <= max || held <= sim->held[d][u],
		"uid %u holds %llu on device %u, above its limit of %llu and the %llu before", u,
		U(held), d, U(max), U(sim->held[d][u]));
	sim->held[d][u] = held;
}

static void check_admission(struct sim *sim, uint32_t d, const struct charges *charges)
{
	struct gm_device_figures f;
	uint64_t charged = 0;
	gm_core_device_figures(sim->core, d, &f);
	for (uint32_t u = 0; u < SIM_UIDS; u++)
		charged += charges->of[u][d];
	/* The ceiling may have fallen after something was charged. */
	SIM_MUST(sim,
		charged <= f.ceiling || charged <= sim->charged[d] || f.ceiling < sim->ceiling[d],
		"device %u: charged %llu, above the ceiling of %llu and the %llu before", d,
		U(charged), U(f.ceiling), U(sim->charged[d]));
	check_guarantees(sim, d, charges, charged, f.ceiling);
	sim->charged[d] = charged;
	sim->ceiling[d] = f.ceiling;
	for (uint32_t u = 0; u < SIM_UIDS; u++)
		check_limit_of(sim, d, u, charges->of[u][d]);
}

void sim_check_admission(struct sim *sim, uint32_t d)
{
	struct charges charges;
	sum_charges(sim, &charges);
	check_admission(sim, d, &charges);
}

static void check_device(struct sim *sim, uint32_t d, const struct charges *charges)
{
	struct gm_device_figures f;
	uint64_t made = 0, charged = 0;
	gm_core_device_figures(sim->core, d, &f);
	for (size_t i = 0; i < sim->n_live; i++) {
		const struct sim_chunk *c = &sim->chunks[sim->live[i]];
		if (c->device == d && c->daemon && !c->doomed && !c->unreported)
			made += c->bytes;
	}
	for (uint32_t u = 0; u < SIM_UIDS; u++)
		charged += charges->of[u][d];
	SIM_MUST(sim, f.created == f.leased + f.quarantined + f.pooled, "created on device %u", d);
	SIM_MUST(sim, f.created == made, "device %u: created %llu, and the device has %llu", d,
		U(f.created), U(made));
	SIM_MUST(sim, f.leased + f.quarantined + f.admitted + f.declared == charged,
		"device %u: charged %llu, and its users %llu", d,
		U(f.leased + f.quarantined + f.admitted + f.declared), U(charged));

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
}

static void check_lease(
	struct sim *sim, const struct gm_lease *lease, int i, const struct gm_lease_info *info)
{
	struct sim_lease *l = &sim->leases[i];
	size_t n = 0;
	uint64_t size = info->user_bytes;
	for (const struct gm_chunk *c = gm_lease_chunk(lease, 0); c; c = c->next, n++)
		SIM_MUST(sim, sim_chunk(sim, c->id)->lease == i,
			"lease %llu has chunk %llu, and nobody was told", U(l->id), U(c->id));
	SIM_MUST(sim,
		size == l->size || (l->size_least && size >= l->size_least && size <= l->size),
		"lease %llu has a size of %llu, not %llu", U(l->id), U(size), U(l->size));
	l->size = size;
	l->size_least = l->size_old = 0;
	SIM_MUST(sim, info->signals == l->word, "lease %llu has %s control block", U(l->id),
		info->signals ? "a" : "no");
	SIM_MUST(sim, !l->word || !sim->restarted || sim_inode(sim, info->word) == l->word_inode,
		"lease %llu has another control block", U(l->id));
	struct gm_metadata_info meta;
	gm_lease_metadata(lease, &meta);
	SIM_MUST(sim, meta.size == l->meta.size && meta.id == l->meta.id,
		"lease %llu has %llu bytes of metadata, not %llu", U(l->id), U(meta.size),
		U(l->meta.size));
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
		struct gm_session *session = sessions[p];
		size_t found = 0;
		SIM_MUST(sim, session, "session %llu of process %d is lost", U(proc->session),
			proc->pid);
		n++;
		for (struct gm_lease *l = NULL; (l = gm_session_next_lease(session, l));) {
			struct gm_lease_info info;
			gm_lease_info(l, session, &info);
			int i = sim_model_find(sim, info.id);
			SIM_MUST(sim, i >= 0 && sim_hold_of(sim, i, p),
				"process %d has lease %llu, and was never told", proc->pid,
				U(info.id));
			SIM_MUST(sim, info.made == (sim->leases[i].maker >= 0),
				"who made lease %llu", U(info.id));
			check_lease(sim, l, i, &info);
			found++;
		}
		sim_declare_check(sim, proc, session);
		SIM_MUST(sim, sim->restarted || proc->told_left == proc->must_hear_left,
			"process %d heard %u times that a maker has left, not %u", proc->pid,
			proc->told_left, proc->must_hear_left);
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
	SIM_MUST(sim, info->metadata_bytes == sim->leases[n->lease].meta.size,
		"name %u/%s has %llu bytes of metadata, not %llu", info->uid, info->text,
		U(info->metadata_bytes), U(sim->leases[n->lease].meta.size));
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

/* Chunks that must not be used again are on their way to be destroyed; those that are orphaned are looked at by and by. */
static void check_banned(struct sim *sim)
{
	for (size_t i = 0; i < sim->n_live; i++) {
		const struct sim_chunk *c = &sim->chunks[sim->live[i]];
		SIM_MUST(sim, !c->banned || c->lease >= 0 || c->left || c->doomed || !c->daemon,
			"chunk %llu must not be used again, and is kept", U(sim->live[i]));
	}
}

static void check_asks(struct sim *sim, const struct charges *charges)
{
	unsigned waiting[SIM_DEVICES] = {0};
	for (uint32_t d = 0; d < SIM_DEVICES; d++)
		if (sim->n_jobs[d] || sim->worked[d] || sim->keeper_refills)
			sim->busy_ns[d] = sim->now;
	struct sim_ask *last[SIM_DEVICES] = {NULL};
	for (int i = 0; i < sim->n_asks; i++) {
		struct sim_ask *ask = &sim->asks[i];
		if (!ask->used || !ask->pending || ask->ended)
			continue;
		uint32_t d = ask->r.device;
		waiting[d]++;
		last[d] = ask;
		if (ask->r.declares && !sim_declare_knows(sim, d))
			ask->unaware = true;
		uint64_t since = ask->until_ns > sim->busy_ns[d] ? ask->until_ns : sim->busy_ns[d];
		SIM_MUST(sim, sim->now <= since + UINT64_C(1000000000),
			"a request waits longer than it may");
	}
	for (uint32_t d = 0; d < SIM_DEVICES; d++) {
		struct gm_device_figures f;
		gm_core_device_figures(sim->core, d, &f);
		if (waiting[d] != 1 || sim->n_jobs[d] || sim->drained[d] || sim->keeper_refills ||
			f.level == GM_PRESSURE_LEVEL_CRITICAL)
			continue;
		/* A request that the device could not serve is tried again when something comes back, or after a while. */
		if (sim->denied_ns[d] && sim->now < sim->denied_ns[d] + UINT64_C(10000000000))
			continue;
		const struct sim_ask *ask = last[d];
		uint32_t uid = sim->procs[ask->proc].uid;
		uint64_t bytes = ask->r.declares
					 ? ask->bytes
					 : (ask->bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
		uint64_t kept = kept_from(sim, d, uid, charges);
		SIM_MUST(sim,
			bytes + kept > f.available ||
				sim->held[d][uid] + bytes > sim->limits[d][uid].max,
			"a request for %llu waits, alone, and %llu are available, %llu of them kept for others",
			U(ask->bytes), U(f.available), U(kept));
	}
}

void sim_check(struct sim *sim)
{
	struct charges charges;
	sim_chunks_sweep(sim);
	sim->offered = false;
	for (int i = 0; i < sim->n_procs; i++)
		sessions[i] = sim->procs[i].session ? sim_session(sim, &sim->procs[i]) : NULL;
	check_sessions(sim);
	check_names(sim);
	check_charges(sim, &charges);
	for (uint32_t d = 0; d < SIM_DEVICES; d++) {
		check_device(sim, d, &charges);
		check_admission(sim, d, &charges);
	}
	check_banned(sim);
	sim->restarted = false;
	for (int i = 0; i < sim->n_procs; i++)
		sim->procs[i].told_left = sim->procs[i].must_hear_left = 0;
	check_limits(sim, &charges);
	check_asks(sim, &charges);
}
