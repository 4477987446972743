/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The books of the simulation: what processes were told that they have, and what they map. After every step core is
 * held against them:
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
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

#define MIB  (UINT64_C(1) << 20)
#define U(n) ((unsigned long long)(n))

struct sim_chunk *sim_chunk(struct sim *sim, uint64_t id)
{
	if (id >= sim->n_chunks) {
		size_t n = (size_t)id * 2 + 256;
		sim->chunks = realloc(sim->chunks, n * sizeof(sim->chunks[0]));
		SIM_MUST(sim, sim->chunks, "no memory");
		memset(sim->chunks + sim->n_chunks, 0,
			(n - sim->n_chunks) * sizeof(sim->chunks[0]));
		for (size_t i = sim->n_chunks; i < n; i++)
			sim->chunks[i].lease = -1;
		sim->n_chunks = n;
	}
	return &sim->chunks[id];
}

/* ---- what processes map */

void sim_map(struct sim *sim, int proc, uint64_t id)
{
	struct sim_proc *p = &sim->procs[proc];
	for (size_t i = 0; i < p->n_maps; i++)
		if (p->maps[i] == id)
			return;
	p->maps = realloc(p->maps, (p->n_maps + 1) * sizeof(p->maps[0]));
	SIM_MUST(sim, p->maps, "no memory");
	p->maps[p->n_maps++] = id;
	sim_chunk(sim, id)->maps++;
}

void sim_unmap(struct sim *sim, int proc, uint64_t id)
{
	struct sim_proc *p = &sim->procs[proc];
	for (size_t i = 0; i < p->n_maps; i++) {
		if (p->maps[i] != id)
			continue;
		p->maps[i] = p->maps[--p->n_maps];
		sim_chunk(sim, id)->maps--;
		return;
	}
}

/* ---- leases */

static void leave_chunk(struct sim *sim, const struct sim_lease *l, uint64_t id)
{
	struct sim_chunk *c = sim_chunk(sim, id);
	c->lease = -1;
	c->left = c->maps > 0;
	c->banned |= c->maps > 0 || c->adopted || !l->reusable;
}

static void end_lease(struct sim *sim, int i)
{
	struct sim_lease *l = &sim->leases[i];
	if (l->n_holds > 0 || l->name >= 0)
		return;
	for (size_t k = 0; k < l->n_chunks; k++)
		leave_chunk(sim, l, l->chunks[k]);
	for (int t = 0; t < SIM_TOKENS; t++)
		if (sim->tokens[t].lease == i)
			sim->tokens[t].used = false;
	free(l->holds);
	free(l->chunks);
	*l = (struct sim_lease){.maker = -1, .name = -1};
}

static struct sim_hold *find_hold(struct sim_lease *l, int proc)
{
	for (size_t h = 0; h < l->n_holds; h++)
		if (l->holds[h].proc == proc)
			return &l->holds[h];
	return NULL;
}

static void drop_hold(struct sim *sim, int i, int proc)
{
	struct sim_lease *l = &sim->leases[i];
	struct sim_hold *h = find_hold(l, proc);
	if (!h)
		return;
	*h = l->holds[--l->n_holds];
	if (l->maker == proc) {
		l->maker = -1;
		for (int t = 0; t < SIM_TOKENS; t++)
			if (sim->tokens[t].lease == i)
				sim->tokens[t].used = false;
	}
	end_lease(sim, i);
}

static void add_hold(struct sim *sim, struct sim_lease *l, int proc, uint64_t view)
{
	struct sim_hold *h = find_hold(l, proc);
	if (!h) {
		l->holds = realloc(l->holds, (l->n_holds + 1) * sizeof(l->holds[0]));
		SIM_MUST(sim, l->holds, "no memory");
		h = &l->holds[l->n_holds++];
		*h = (struct sim_hold){.proc = proc};
	}
	for (size_t i = 0; i < h->n_views; i++)
		if (h->views[i] == view)
			return;
	SIM_MUST(sim, h->n_views < sizeof(h->views) / sizeof(h->views[0]), "too many views");
	h->views[h->n_views++] = view;
	for (size_t k = 0; k < l->n_chunks; k++)
		sim_map(sim, proc, l->chunks[k]);
}

static void grant_chunk(struct sim *sim, int lease, int proc, const struct gm_chunk *chunk)
{
	struct sim_lease *l = &sim->leases[lease];
	struct sim_chunk *c = sim_chunk(sim, chunk->id);
	SIM_MUST(sim, c->daemon && (c->keeper || sim->keeper_refills) && !c->doomed,
		"chunk %llu is granted and does not exist", U(chunk->id));
	SIM_MUST(sim, c->bytes == chunk->bytes && c->device == l->device,
		"chunk %llu is another one", U(chunk->id));
	SIM_MUST(sim, c->lease < 0, "chunk %llu is in two leases", U(chunk->id));
	SIM_MUST(sim, !c->maps, "chunk %llu is granted while a process maps it", U(chunk->id));
	SIM_MUST(sim, !c->banned, "chunk %llu is granted and must not be used again", U(chunk->id));
	SIM_MUST(sim, !c->domain || (c->domain == l->domain && !l->for_others),
		"chunk %llu has bytes of domain %u, and domain %u gets it", U(chunk->id), c->domain,
		l->domain);
	c->domain = l->domain;
	c->uid = l->uid;
	c->lease = lease;
	l->bytes += c->bytes;
	l->chunks = realloc(l->chunks, (l->n_chunks + 1) * sizeof(l->chunks[0]));
	SIM_MUST(sim, l->chunks, "no memory");
	l->chunks[l->n_chunks++] = chunk->id;
	sim_map(sim, proc, chunk->id);
}

void sim_model_granted(struct sim *sim, struct sim_ask *ask)
{
	struct gm_session *session = sim_session(sim, &sim->procs[ask->proc]);
	struct gm_lease_info info;
	int i = ask->lease;
	gm_lease_info(ask->r.lease, session, &info);
	if (i < 0) {
		for (i = 0; sim->leases[i].id;)
			SIM_MUST(sim, ++i < SIM_LEASES, "too many leases for the model");
		sim->leases[i] = (struct sim_lease){.id = info.id,
			.device = info.device,
			.uid = sim->procs[ask->proc].uid,
			.domain = sim->procs[ask->proc].domain,
			.maker = ask->proc,
			.for_others = ask->r.for_others,
			.reusable = true,
			.name = -1};
		sim_chunk(sim, info.id)->number = i;
		add_hold(sim, &sim->leases[i], ask->proc, 0);
	}
	struct sim_lease *l = &sim->leases[i];
	uint64_t got = 0;
	SIM_MUST(sim, l->id == info.id, "another lease than the one that was to grow");
	for (const struct gm_chunk *c = gm_lease_chunk(ask->r.lease, ask->r.first_index); c;
		c = c->next) {
		if (c->asked != ask->id)
			continue;
		grant_chunk(sim, i, ask->proc, c);
		got += c->bytes;
	}
	SIM_MUST(sim, got >= ask->bytes, "granted %llu of %llu", U(got), U(ask->bytes));
	SIM_MUST(sim, got - ask->bytes < 2 * MIB + ask->bytes / 64, "granted %llu for %llu", U(got),
		U(ask->bytes));
	sim->grants++;
}

void sim_model_open(struct sim *sim, int lease, int proc, uint64_t view)
{
	struct sim_lease *l = &sim->leases[lease];
	if (sim->procs[proc].domain != l->domain)
		l->reusable = false;
	add_hold(sim, l, proc, view);
}

void sim_model_return(struct sim *sim, int lease, int proc, uint64_t view)
{
	struct sim_hold *h = find_hold(&sim->leases[lease], proc);
	for (size_t i = 0; h && i < h->n_views; i++) {
		if (h->views[i] != view)
			continue;
		h->views[i] = h->views[--h->n_views];
		if (h->n_views == 0)
			drop_hold(sim, lease, proc);
		return;
	}
}

void sim_model_return_chunk(struct sim *sim, int lease, uint64_t id)
{
	struct sim_lease *l = &sim->leases[lease];
	for (size_t k = 0; k < l->n_chunks; k++) {
		if (l->chunks[k] != id)
			continue;
		memmove(&l->chunks[k], &l->chunks[k + 1],
			(--l->n_chunks - k) * sizeof(l->chunks[0]));
		l->bytes -= sim_chunk(sim, id)->bytes;
		leave_chunk(sim, l, id);
		return;
	}
}

void sim_model_end(struct sim *sim, int proc, bool died)
{
	for (int i = 0; i < SIM_LEASES; i++) {
		if (!sim->leases[i].id || !find_hold(&sim->leases[i], proc))
			continue;
		if (died)
			sim->leases[i].reusable = false;
		drop_hold(sim, i, proc);
	}
	for (int i = 0; i < SIM_ASKS; i++)
		if (sim->asks[i].proc == proc)
			sim->asks[i].used = false;
	sim->procs[proc].session = 0;
	sim->procs[proc].connected = false;
}

/* ---- names */

void sim_model_unpublish(struct sim *sim, uint32_t uid, unsigned name)
{
	struct sim_name *n = &sim->names[uid][name];
	int lease = n->lease;
	if (lease < 0)
		return;
	n->lease = -1;
	sim->leases[lease].name = -1;
	end_lease(sim, lease);
}

void sim_model_publish(struct sim *sim, int lease, uint32_t uid, unsigned name, uint64_t version)
{
	struct sim_name *n = &sim->names[uid][name];
	int before = n->lease;
	n->lease = lease;
	n->version = version;
	sim->leases[lease].name = (int)(uid * SIM_NAMES + name);
	if (before >= 0 && before != lease) {
		sim->leases[before].name = -1;
		end_lease(sim, before);
	}
}

/* ---- losses */

void sim_model_give_up(struct sim *sim, int lease)
{
	struct sim_lease *l = &sim->leases[lease];
	if (l->name >= 0)
		sim->names[l->name / SIM_NAMES][l->name % SIM_NAMES].lease = -1;
	l->name = -1;
	l->n_holds = 0;
	end_lease(sim, lease);
}

void sim_model_lose(struct sim *sim)
{
	sim->doubt = -1;
	for (int i = 0; i < SIM_LEASES; i++) {
		struct sim_lease *l = &sim->leases[i];
		bool lost = false;
		for (size_t k = l->n_chunks; l->id && k-- > 0;) {
			const struct sim_chunk *c = sim_chunk(sim, l->chunks[k]);
			if (!c->keeper && c->doomed) /* it was being returned */
				sim_model_return_chunk(sim, i, l->chunks[k]);
			else
				lost |= !c->keeper;
		}
		/* Whether the step had come so far that the lease needs none of it, core must say. */
		if (lost && l->id == sim->lease)
			sim->doubt = i;
		else if (lost)
			sim_model_give_up(sim, i);
	}
	/* Pooled chunks are gone. Orphaned chunks that the keeper lost count as foreign. */
	for (size_t i = 0; i < sim->n_chunks; i++) {
		struct sim_chunk *c = &sim->chunks[i];
		if (c->lease < 0 && !(c->left && c->keeper))
			c->left = false;
		c->adopted = true;
		c->doomed = c->doomed && !c->keeper;
	}
}

/* ---- the invariants */

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
	for (int i = 0; i < SIM_PROCS; i++)
		for (uint32_t d = 0; sim->procs[i].session && d < SIM_DEVICES; d++)
			ret->of[sim->procs[i].uid][d] +=
				gm_session_held(sim_session(sim, &sim->procs[i]), d);

	for (int i = 0; i < SIM_LEASES; i++)
		if (sim->leases[i].id)
			least.of[sim->leases[i].uid][sim->leases[i].device] += sim->leases[i].bytes;
	for (int i = 0; i < SIM_ASKS; i++) {
		const struct sim_ask *ask = &sim->asks[i];
		if (ask->used && ask->pending && !ask->ended)
			least.of[sim->procs[ask->proc].uid][ask->r.device] += ask->r.charged;
	}
	for (size_t i = 0; i < sim->n_chunks; i++) {
		const struct sim_chunk *c = &sim->chunks[i];
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
	for (size_t i = 0; i < sim->n_chunks; i++)
		if (sim->chunks[i].device == d && sim->chunks[i].daemon && !sim->chunks[i].doomed)
			made += sim->chunks[i].bytes;
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
	for (int i = 0; i < SIM_LEASES; i++)
		for (size_t h = 0; sim->leases[i].id && h < sim->leases[i].n_holds; h++)
			expected[sim->leases[i].holds[h].proc]++;
	for (int p = 0; p < SIM_PROCS; p++) {
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
			SIM_MUST(sim, i >= 0 && find_hold(&sim->leases[i], p),
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
	for (size_t i = 0; i < sim->n_chunks; i++) {
		const struct sim_chunk *c = &sim->chunks[i];
		SIM_MUST(sim, !c->banned || c->lease >= 0 || c->left || c->doomed || !c->daemon,
			"chunk %zu must not be used again, and is kept", i);
	}
}

static void check_asks(struct sim *sim)
{
	unsigned waiting[SIM_DEVICES] = {0};
	for (uint32_t d = 0; d < SIM_DEVICES; d++)
		if (sim->n_jobs[d] || sim->worked[d])
			sim->busy_ns[d] = sim->now;
	struct sim_ask *last[SIM_DEVICES] = {NULL};
	for (int i = 0; i < SIM_ASKS; i++) {
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
	check_sessions(sim);
	check_names(sim);
	check_charges(sim, &charges);
	for (uint32_t d = 0; d < SIM_DEVICES; d++)
		check_device(sim, d, &charges);
	check_banned(sim);
	check_asks(sim);
}

void sim_model_free(struct sim *sim)
{
	for (int i = 0; i < SIM_LEASES; i++) {
		free(sim->leases[i].holds);
		free(sim->leases[i].chunks);
	}
	for (int i = 0; i < SIM_PROCS; i++)
		free(sim->procs[i].maps);
	free(sim->chunks);
}
