/* SPDX-License-Identifier: Apache-2.0 */
/* The books of the simulation: what processes were told that they have, and what they map. check.c holds core against
 * them. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

void sim_chunk_live(struct sim *sim, uint64_t id)
{
	if (sim->n_live == sim->live_room) {
		sim->live_room = sim->live_room * 2 + 256;
		sim->live = realloc(sim->live, sim->live_room * sizeof(sim->live[0]));
		SIM_MUST(sim, sim->live, "no memory");
	}
	sim->live[sim->n_live++] = id;
}

void sim_chunks_sweep(struct sim *sim)
{
	size_t n = 0;
	for (size_t i = 0; i < sim->n_live; i++) {
		const struct sim_chunk *c = &sim->chunks[sim->live[i]];
		if (c->daemon || c->keeper || c->maps || c->left || c->lease >= 0)
			sim->live[n++] = sim->live[i];
	}
	sim->n_live = n;
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

uint64_t sim_inode(const struct sim *sim, int fd)
{
	struct stat st;
	SIM_MUST(sim, fstat(fd, &st) == 0, "descriptor %d is not open", fd);
	return (uint64_t)st.st_ino;
}

int sim_model_find(struct sim *sim, uint64_t id)
{
	int i = sim_chunk(sim, id)->number;
	return sim->leases[i].id == id ? i : -1;
}

static void leave_chunk(struct sim *sim, const struct sim_lease *l, uint64_t id)
{
	struct sim_chunk *c = sim_chunk(sim, id);
	c->lease = -1;
	c->left = c->maps > 0;
	c->banned |= c->maps > 0 || c->adopted || c->single || !l->reusable;
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
		for (size_t k = 0; l->signals && k < l->n_holds; k++)
			sim->procs[l->holds[k].proc].must_hear_left++;
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

/* Whether core has taken the chunk from the lease that the step ends, and the process has not heard of that. */
static bool is_freed(struct sim *sim, int lease, uint64_t id)
{
	const struct sim_lease *l = &sim->leases[lease];
	if (l->id != sim->frees)
		return false;
	for (size_t h = 0; h < l->n_holds; h++) {
		const struct gm_lease *core = sim_lease_of(sim, l->holds[h].proc, lease);
		const struct gm_chunk *c = core ? gm_lease_chunk(core, 0) : NULL;
		while (c && c->id != id)
			c = c->next;
		if (c)
			return false;
	}
	return true;
}

/* Takes a chunk from the lease that the step ends: core has granted it to a request that waited. found: the daemon that did
 * both has died since then. */
static void free_chunk(struct sim *sim, struct sim_chunk *c, uint64_t id, bool found)
{
	if (c->lease < 0 || !is_freed(sim, c->lease, id))
		return;
	c->adopted = found ? c->older : c->adopted;
	sim_model_return_chunk(sim, c->lease, id);
	c->adopted |= found;
}

static void grant_chunk(
	struct sim *sim, int lease, const struct sim_ask *ask, const struct gm_chunk *chunk)
{
	struct sim_lease *l = &sim->leases[lease];
	struct sim_chunk *c = sim_chunk(sim, chunk->id);
	SIM_MUST(sim, c->daemon && (c->keeper || sim->keeper_refills) && !c->doomed,
		"chunk %llu is granted and does not exist", U(chunk->id));
	SIM_MUST(sim, c->bytes == chunk->bytes && c->device == l->device,
		"chunk %llu is another one", U(chunk->id));
	free_chunk(sim, c, chunk->id, ask->found && sim->restarted);
	SIM_MUST(sim, c->lease < 0, "chunk %llu is in two leases", U(chunk->id));
	SIM_MUST(sim, !c->maps, "chunk %llu is granted while a process maps it", U(chunk->id));
	SIM_MUST(sim, !c->banned, "chunk %llu is granted and must not be used again", U(chunk->id));
	SIM_MUST(sim, !c->domain || (c->domain == l->domain && !l->for_others),
		"chunk %llu has bytes of domain %u, and domain %u gets it", U(chunk->id), c->domain,
		l->domain);
	c->domain = l->domain;
	c->uid = l->uid;
	c->lease = lease;
	c->index = chunk->index;
	c->asked = chunk->asked;
	l->bytes += c->bytes;
	l->chunks = realloc(l->chunks, (l->n_chunks + 1) * sizeof(l->chunks[0]));
	SIM_MUST(sim, l->chunks, "no memory");
	l->chunks[l->n_chunks++] = chunk->id;
	sim_map(sim, ask->proc, chunk->id);
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
		sim->n_leases = i < sim->n_leases ? sim->n_leases : i + 1;
		sim->leases[i] = (struct sim_lease){.id = info.id,
			.device = info.device,
			.uid = sim->procs[ask->proc].uid,
			.domain = sim->procs[ask->proc].domain,
			.maker = ask->proc,
			.for_others = ask->r.for_others,
			.evictable = ask->evictable,
			.signals = ask->r.signals,
			.word = ask->r.signals && !sim_chunk(sim, info.id)->wordless,
			.reusable = true,
			.name = -1};
		SIM_MUST(sim, info.signals == sim->leases[i].word,
			"lease %llu has %s control block", U(info.id), info.signals ? "a" : "no");
		if (sim->leases[i].word)
			sim->leases[i].word_inode = sim_inode(sim, info.word);
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
		grant_chunk(sim, i, ask, c);
		got += c->bytes;
		ask->n_got++;
	}
	SIM_MUST(sim, !ask->r.one_chunk || (ask->n_got == 1 && got == ask->bytes),
		"one chunk of %llu was wanted", U(ask->bytes));
	if (ask->r.one_chunk)
		sim_chunk(sim, l->chunks[0])->single = true;
	ask->got = i;
	ask->got_id = l->id;
	SIM_MUST(sim, !ask->size || sim_alone(sim, i, ask->proc),
		"lease %llu is resized while others have it, or could get it", U(l->id));
	l->size_before = ask->size && !ask->found ? l->size : 0;
	l->size = ask->size ? ask->size : l->size + ask->bytes;
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

void sim_model_clamp(struct sim *sim, int lease, bool exact)
{
	struct sim_lease *l = &sim->leases[lease];
	if (l->size <= l->bytes)
		return;
	uint64_t before = exact || l->size_before ? l->size_before : l->size_old;
	uint64_t least = before && before < l->bytes ? before : l->bytes;
	if (l->size_least && l->size_least < least)
		least = l->size_least;
	l->size = exact ? least : l->bytes;
	l->size_least = exact ? 0 : least;
	l->size_before = 0;
}

void sim_model_end(struct sim *sim, int proc, bool died)
{
	for (int i = 0; i < sim->n_leases; i++) {
		if (!sim->leases[i].id || !find_hold(&sim->leases[i], proc))
			continue;
		if (died)
			sim->leases[i].reusable = false;
		drop_hold(sim, i, proc);
	}
	for (int i = 0; i < sim->n_asks; i++)
		if (sim->asks[i].proc == proc)
			sim->asks[i].used = false;
	sim->procs[proc].session = 0;
	memset(sim->procs[proc].declared, 0, sizeof(sim->procs[proc].declared));
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

/* ---- chunks that become leases */

int sim_model_split(struct sim *sim, int lease, int proc, uint64_t chunk, uint64_t id)
{
	struct sim_lease *l = &sim->leases[lease];
	int i = 0;
	while (sim->leases[i].id)
		SIM_MUST(sim, ++i < SIM_LEASES, "too many leases for the model");
	sim->n_leases = i < sim->n_leases ? sim->n_leases : i + 1;
	sim_chunk(sim, id)->number = i;
	struct sim_chunk *c = sim_chunk(sim, chunk);
	sim->leases[i] = (struct sim_lease){.id = id,
		.origin = l->id,
		.device = l->device,
		.uid = l->uid,
		.domain = l->domain,
		.bytes = c->bytes,
		.size = c->bytes,
		.maker = proc,
		.for_others = l->for_others,
		.reusable = l->reusable,
		.name = -1,
		.n_chunks = 1,
		.chunks = malloc(sizeof(uint64_t))};
	SIM_MUST(sim, sim->leases[i].chunks, "no memory");
	sim->leases[i].chunks[0] = chunk;
	size_t k = 0;
	while (l->chunks[k] != chunk)
		k++;
	memmove(&l->chunks[k], &l->chunks[k + 1], (--l->n_chunks - k) * sizeof(l->chunks[0]));
	l->bytes -= c->bytes;
	l->size = l->size < l->bytes ? l->size : l->bytes;
	l->size_before = 0;
	c->lease = i;
	c->asked = 0;
	add_hold(sim, &sim->leases[i], proc, 0);
	return i;
}

/* ---- losses */

void sim_model_lose_item(struct sim *sim, enum gm_store_kind kind, uint64_t id)
{
	if (kind == GM_STORE_CONTROL_BLOCK) /* also of a lease of which no process has heard */
		sim_chunk(sim, id)->wordless = true;
	for (int i = 0; i < sim->n_leases; i++) {
		struct sim_lease *l = &sim->leases[i];
		if (kind == GM_STORE_CONTROL_BLOCK && l->id == id)
			l->word = false;
		if (kind != GM_STORE_METADATA || !l->id || l->meta.id != id)
			continue;
		l->meta = (struct sim_meta){0};
		if (l->name >= 0)
			sim_model_unpublish(
				sim, (uint32_t)l->name / SIM_NAMES, (unsigned)l->name % SIM_NAMES);
	}
}

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
	for (int i = 0; i < sim->n_leases; i++) {
		struct sim_lease *l = &sim->leases[i];
		bool lost = false;
		for (size_t k = l->n_chunks; l->id && k-- > 0;) {
			const struct sim_chunk *c = sim_chunk(sim, l->chunks[k]);
			if (!c->keeper && c->doomed) /* it was being returned */
				sim_model_return_chunk(sim, i, l->chunks[k]);
			else
				lost |= !c->keeper;
		}
		sim_model_clamp(sim, i, false);
		/* Whether the step had come so far that the lease needs none of it, core must say. */
		if (lost && l->id == sim->lease)
			sim->doubt = i;
		else if (lost)
			sim_model_give_up(sim, i);
	}
	/* Pooled chunks are gone. Orphaned chunks that the keeper lost count as foreign. */
	for (size_t i = 0; i < sim->n_live; i++) {
		struct sim_chunk *c = &sim->chunks[sim->live[i]];
		if (c->lease < 0 && !(c->left && c->keeper))
			c->left = false;
		c->older = c->adopted;
		c->adopted = true;
		c->doomed = c->doomed && !c->keeper;
	}
}

void sim_model_free(struct sim *sim)
{
	for (int i = 0; i < sim->n_leases; i++) {
		free(sim->leases[i].holds);
		free(sim->leases[i].chunks);
	}
	for (int i = 0; i < sim->n_procs; i++)
		free(sim->procs[i].maps);
	free(sim->chunks);
	free(sim->live);
}
