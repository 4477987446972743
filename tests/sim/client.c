/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What processes do, a step at a time. A step calls core, and changes the model only if the daemon lives to answer. If
 * it does not, the step runs again with the next daemon, as a client repeats a request with the same id.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

#define MIB    (UINT64_C(1) << 20)
#define GIB    (UINT64_C(1) << 30)
#define SECOND UINT64_C(1000000000)
#define U(n)   ((unsigned long long)(n))

struct gm_session *sim_session(const struct sim *sim, const struct sim_proc *proc)
{
	return proc->session ? gm_core_find_session(sim->core, proc->session) : NULL;
}

/* ---- choosing */

/* A step that is repeated is about the same process and the same lease as before. */
int sim_pick_proc(struct sim *sim, uint32_t a, bool connected)
{
	if (sim->again)
		return sim->proc;
	for (int k = 0; k < sim->n_procs; k++) {
		int i = (int)((a + (uint32_t)k) % (uint32_t)sim->n_procs);
		const struct sim_proc *p = &sim->procs[i];
		if (p->alive && p->session && (!connected || (p->connected && !p->stopped)))
			return sim->proc = i;
	}
	return sim->proc = -1;
}

struct sim_hold *sim_hold_of(struct sim *sim, int lease, int proc)
{
	struct sim_lease *l = &sim->leases[lease];
	for (size_t h = 0; l->id && h < l->n_holds; h++)
		if (l->holds[h].proc == proc)
			return &l->holds[h];
	return NULL;
}

int sim_pick_lease(struct sim *sim, int proc, uint32_t b, bool made)
{
	for (int k = 0; proc >= 0 && k < sim->n_leases; k++) {
		int i = (int)((b + (uint32_t)k) % (uint32_t)sim->n_leases);
		if (!sim->leases[i].id || sim->leases[i].unheard || !sim_hold_of(sim, i, proc) ||
			(made && sim->leases[i].maker != proc))
			continue;
		if (sim->again && sim->leases[i].id != sim->lease)
			continue;
		sim->lease = sim->leases[i].id;
		return i;
	}
	return -1;
}

struct gm_lease *sim_lease_of(struct sim *sim, int proc, int lease)
{
	return gm_session_find_lease(sim_session(sim, &sim->procs[proc]), sim->leases[lease].id);
}

/* ---- coming and going */

void sim_step_connect(struct sim *sim, const struct step *s)
{
	int i = 0;
	while (i < SIM_PROCS &&
		(sim->procs[i].alive || sim->procs[i].n_maps || sim->procs[i].session))
		i++;
	if (i == SIM_PROCS)
		return;
	struct sim_proc *p = &sim->procs[i];
	uint64_t *maps = p->maps;
	sim->n_procs = i < sim->n_procs ? sim->n_procs : i + 1;
	*p = (struct sim_proc){.alive = true,
		.pid = ++sim->last_pid,
		.uid = s->a % SIM_UIDS,
		.liar = s->b % 8 == 0,
		.maps = maps};
	p->domain = 1 + p->uid * 2 + (s->b / 8 % 4 == 0);
	char key[32];
	snprintf(key, sizeof(key), "domain %u", p->domain);
	struct gm_session_info info = {.pid = p->pid,
		.began = p->domain,
		.uid = 1000 + p->uid,
		.gid = 1000 + p->uid,
		.domain = p->domain,
		.domain_key = key,
		.pooling = true,
		.user = p,
		.name = "worker"};
	struct gm_session *session;
	sim_say(sim, "process %d of uid %u connects%s", p->pid, p->uid, p->liar ? "; it lies" : "");
	int r = gm_session_new(sim->core, &info, p->token, &session);
	SIM_MUST(sim, r == 0 || sim->frozen || sim->store_full, "no session: %d", r);
	if (r == 0) {
		p->session = gm_session_id(session);
		r = gm_session_keep(session, 1, false);
		SIM_MUST(sim, r == 0 || sim->frozen || sim->store_full, "no record of a client: %d",
			r);
		if (r < 0)
			gm_session_end_died(session);
	}
	p->connected = true;
	if (sim->frozen || r < 0) { /* it was never told its token, and gives up */
		*p = (struct sim_proc){.maps = maps};
		sim->settled = true;
	}
}

static void unmap_all(struct sim *sim, int proc)
{
	struct sim_proc *p = &sim->procs[proc];
	while (p->n_maps > 0)
		sim_unmap(sim, proc, p->maps[0]);
}

static void step_end(struct sim *sim, const struct step *s, bool died)
{
	int i = sim_pick_proc(sim, s->a, !died);
	if (i < 0)
		return;
	struct sim_proc *p = &sim->procs[i];
	struct gm_session *session = sim_session(sim, p);
	sim_say(sim, "process %d %s", p->pid, died ? "dies" : "says goodbye");
	if (died || !p->liar)
		unmap_all(sim, i);
	if (died)
		gm_session_end_died(session);
	else
		gm_session_end_unmapped(session);
	sim->settled = true;
	sim_model_end(sim, i, died || sim->frozen);
	if (sim->frozen) /* it ends, whoever has heard of it */
		unmap_all(sim, i);
	p->alive = p->n_maps > 0;
}

/* Processes without a session that go on mapping what they returned. */
void sim_step_let_go(struct sim *sim, const struct step *s)
{
	for (int k = 0; k < sim->n_procs; k++) {
		int i = (int)((s->a + (uint32_t)k) % (uint32_t)sim->n_procs);
		struct sim_proc *p = &sim->procs[i];
		if (!p->alive || !p->n_maps)
			continue;
		if (!p->session) {
			sim_say(sim, "process %d ends at last", p->pid);
			unmap_all(sim, i);
			p->alive = false;
			return;
		}
		if (!p->liar)
			continue;
		for (size_t m = p->n_maps; m-- > 0;) {
			int lease = sim_chunk(sim, p->maps[m])->lease;
			if (lease < 0 || !sim_hold_of(sim, lease, i))
				sim_unmap(sim, i, p->maps[m]);
		}
		sim_say(sim, "process %d unmaps what it returned", p->pid);
		return;
	}
}

void sim_client_part(struct sim *sim, int proc)
{
	sim->parting = proc;
	gm_session_quarantine(sim_session(sim, &sim->procs[proc]));
	sim->parting = -1;
	sim->procs[proc].connected = false;
}

void sim_step_disconnect(struct sim *sim, const struct step *s)
{
	int i = sim_pick_proc(sim, s->a, true);
	if (i < 0)
		return;
	sim_say(sim, "process %d loses its connection", sim->procs[i].pid);
	sim_client_part(sim, i);
}

void sim_client_resume(struct sim *sim, int i, bool unheard)
{
	struct sim_proc *p = &sim->procs[i];
	struct gm_session *session = sim_session(sim, p);
	uint8_t next[GM_TOKEN_BYTES], wrong[GM_TOKEN_BYTES];
	SIM_MUST(sim, session, "session %llu of process %d is lost", U(p->session), p->pid);
	memcpy(wrong, p->token, sizeof(wrong));
	wrong[i % GM_TOKEN_BYTES] ^= 1;
	SIM_MUST(sim, gm_session_resume(session, wrong, p, next) == -EACCES,
		"a wrong token opens a session");
	SIM_MUST(sim, gm_session_resume(session, p->token, p, next) == 0,
		"process %d cannot resume", p->pid);
	if (sim->frozen)
		return;
	if (unheard) { /* the connection is lost again before it hears its new token */
		gm_session_quarantine(session);
		return;
	}
	memcpy(p->token, next, sizeof(next));
	gm_session_confirm(session);
	p->connected = true;
	sim_asks_repeat(sim, i);
}

void sim_step_resume(struct sim *sim, const struct step *s)
{
	for (int k = 0; k < sim->n_procs; k++) {
		int i = (int)((s->a + (uint32_t)k) % (uint32_t)sim->n_procs);
		struct sim_proc *p = &sim->procs[i];
		if (!p->alive || !p->session || p->connected)
			continue;
		sim_say(sim, "process %d resumes", p->pid);
		p->stopped = false;
		sim->settled = true;
		sim_client_resume(sim, i, s->b % 4 == 0);
		return;
	}
}

void sim_step_stop(struct sim *sim, const struct step *s)
{
	int i = sim_pick_proc(sim, s->a, false);
	if (i < 0)
		return;
	sim->procs[i].stopped = !sim->procs[i].stopped;
	sim_say(sim, "process %d is %s", sim->procs[i].pid,
		sim->procs[i].stopped ? "stopped" : "continued");
	sim->settled = true;
}

void sim_clients_resume(struct sim *sim)
{
	for (int i = 0; i < sim->n_procs; i++)
		sim->procs[i].connected = sim->procs[i].stopped = false;
	for (int i = 0; i < sim->n_asks; i++) {
		struct sim_ask *ask = &sim->asks[i];
		ask->granted = ask->used && ask->ended && ask->status == GPUMEM_OK;
		ask->pending = ask->ended = false;
	}
	for (int i = 0; i < sim->n_leases; i++) {
		/* The next daemon does not know it. */
		sim->leases[i].size_old = sim->leases[i].size_before;
		sim->leases[i].size_before = 0;
	}
	sim->restarted = true;
	for (int i = 0; i < sim->n_procs; i++)
		if (sim->procs[i].alive && sim->procs[i].session)
			sim_client_resume(sim, i, false);
}

bool sim_unrecorded(const struct sim *sim, gpumem_status status)
{
	return sim->store_full && status == GPUMEM_E_HOST_MEMORY;
}

bool sim_unheard(const struct sim *sim)
{
	return sim->frozen || (sim->deaf && !sim->again);
}

/* ---- returning */

void sim_client_give_back(struct sim *sim, int proc, int lease, uint64_t view)
{
	struct sim_proc *p = &sim->procs[proc];
	struct sim_hold *h = sim_hold_of(sim, lease, proc);
	struct gm_session *session = sim_session(sim, p);
	struct gm_lease *l = sim_lease_of(sim, proc, lease);
	sim_say(sim, "process %d returns lease %llu", p->pid, U(sim->leases[lease].id));
	for (size_t k = 0; !p->liar && h->n_views == 1 && k < sim->leases[lease].n_chunks; k++)
		sim_unmap(sim, proc, sim->leases[lease].chunks[k]);
	sim->frees = sim->leases[lease].id;
	/* The daemon looks for the view before it returns any part of the lease. */
	bool has = l && gm_lease_has_view(session, l, view);
	SIM_MUST(sim, has || sim->again, "process %d does not have lease %llu", p->pid,
		U(sim->leases[lease].id));
	while (has && gm_lease_return_some(session, l))
		;
	if (has)
		gm_lease_return_view(session, l, view);
	/* A view ends once, however often it is returned. */
	if (view && l && h->n_views > 1 && !sim->frozen) {
		SIM_MUST(sim, !gm_lease_has_view(session, l, view), "a view outlives its return");
		gm_lease_return_view(session, l, view);
	}
	if (!sim_unheard(sim))
		sim_model_return(sim, lease, proc, view);
}

void sim_step_return(struct sim *sim, const struct step *s)
{
	int proc = sim_pick_proc(sim, s->a, true), lease = sim_pick_lease(sim, proc, s->b, false);
	if (lease < 0 || sim_ask_grows(sim, lease))
		return;
	const struct sim_hold *h = sim_hold_of(sim, lease, proc);
	sim_client_give_back(sim, proc, lease, h->views[s->c % h->n_views]);
}

/* A process does what it was asked for: returns some of it. */
void sim_step_obey(struct sim *sim, const struct step *s)
{
	for (int k = 0; k < sim->n_procs; k++) {
		int i = (int)((s->a + (uint32_t)k) % (uint32_t)sim->n_procs);
		struct sim_proc *p = &sim->procs[i];
		uint32_t d = s->b % SIM_DEVICES;
		int lease = p->alive && p->connected && p->asked[d]
				    ? sim_pick_lease(sim, i, s->b, true)
				    : -1;
		if (lease < 0 || sim->leases[lease].device != d || sim_ask_grows(sim, lease))
			continue;
		uint64_t bytes = sim->leases[lease].bytes;
		sim_client_give_back(sim, i, lease, 0);
		if (!sim_unheard(sim))
			p->asked[d] = p->asked[d] > bytes ? p->asked[d] - bytes : 0;
		return;
	}
}

/* Returns those of the chunks that the lease still has. */
static void return_chunks(struct sim *sim, int proc, int lease, const uint64_t *ids, size_t n)
{
	struct gm_session *session = sim_session(sim, &sim->procs[proc]);
	struct gm_lease *l = sim_lease_of(sim, proc, lease);
	uint64_t *indexes = sim->indexes, still[SIM_IDS], still_at[SIM_IDS];
	size_t m = 0;
	for (size_t k = 0; k < n; k++) {
		if (!sim->again)
			indexes[k] = sim_chunk(sim, ids[k])->index;
		for (const struct gm_chunk *c = gm_lease_chunk(l, 0); c; c = c->next) {
			if (c->id != ids[k] || c->index != indexes[k])
				continue;
			still[m] = c->id;
			still_at[m++] = c->index;
		}
	}
	SIM_MUST(sim, m == n || sim->again, "lease %llu has lost a chunk", U(sim->lease));
	gpumem_status status = gm_lease_return_chunks_at(session, l, ids, indexes, n);
	SIM_MUST(sim, status == (m == n ? GPUMEM_OK : GPUMEM_E_NOT_FOUND),
		"chunks of lease %llu, %zu of %zu still there, are returned: %d", U(sim->lease), m,
		n, status);
	if (m < n && m > 0)
		status = gm_lease_return_chunks_at(session, l, still, still_at, m);
	SIM_MUST(sim, m == 0 || status == GPUMEM_OK, "chunks of lease %llu are not taken back: %d",
		U(sim->lease), status);
	while (gm_lease_is_leaving(l) && gm_lease_return_more(session, l))
		;
	sim->returned.proc = proc;
	sim->returned.session = sim->procs[proc].session;
	sim->returned.lease = sim->lease;
	sim->returned.n = n;
	memcpy(sim->returned.ids, ids, n * sizeof(ids[0]));
	memcpy(sim->returned.indexes, indexes, n * sizeof(ids[0]));
}

void sim_step_return_chunks(struct sim *sim, const struct step *s)
{
	int proc = sim_pick_proc(sim, s->a, true), lease = sim_pick_lease(sim, proc, s->b, true);
	if (lease < 0 || sim_ask_grows(sim, lease))
		return;
	struct sim_lease *model = &sim->leases[lease];
	uint64_t *ids = sim->ids;
	size_t n = sim->again ? sim->n_ids : 0;
	for (size_t k = 0; !sim->again && k < model->n_chunks && n < SIM_IDS; k++)
		if (s->c >> k % 32 & 1)
			ids[n++] = model->chunks[k];
	sim->n_ids = n;
	if (n == 0 || (n == model->n_chunks && !sim->again) || !sim_alone(sim, lease, proc)) {
		sim->n_ids = 0;
		return;
	}
	sim_say(sim, "process %d returns %zu chunks of lease %llu", sim->procs[proc].pid, n,
		U(model->id));
	for (size_t k = 0; k < n && !sim->procs[proc].liar; k++)
		sim_unmap(sim, proc, ids[k]);
	sim->frees = model->id;
	return_chunks(sim, proc, lease, ids, n);
	if (sim_unheard(sim))
		return;
	for (size_t k = 0; k < n; k++)
		sim_model_return_chunk(sim, lease, ids[k]);
	sim_model_clamp(sim, lease, !sim->again || sim->deaf);
}

/* A packet that was answered comes a second time. Chunks may have come back to the lease since, with other indexes. */
void sim_step_return_twice(struct sim *sim, const struct step *s)
{
	int proc = sim->returned.proc;
	const struct sim_proc *p = &sim->procs[proc];
	sim->settled = true;
	if (!sim->returned.n || !p->connected || p->session != sim->returned.session)
		return;
	struct gm_session *session = sim_session(sim, p);
	struct gm_lease *l = gm_session_find_lease(session, sim->returned.lease);
	if (!l)
		return;
	sim_say(sim, "process %d returns chunks of lease %llu for the second time", p->pid,
		U(sim->returned.lease));
	gpumem_status status = gm_lease_return_chunks_at(
		session, l, sim->returned.ids, sim->returned.indexes, sim->returned.n);
	SIM_MUST(sim, status == GPUMEM_E_NOT_FOUND || status == GPUMEM_E_BUSY,
		"chunks are returned twice: %d", status);
}

void sim_client_doubt(struct sim *sim)
{
	bool has = false;
	for (int i = 0; sim->doubt >= 0 && i < sim->n_procs; i++)
		has |= sim->procs[i].session && sim_lease_of(sim, i, sim->doubt);
	if (sim->doubt < 0 || has)
		return;
	sim_model_give_up(sim, sim->doubt);
	sim->settled = true;
}

void sim_step_goodbye(struct sim *sim, const struct step *s)
{
	step_end(sim, s, false);
}

void sim_step_die(struct sim *sim, const struct step *s)
{
	step_end(sim, s, true);
}

void sim_clients_leave(struct sim *sim)
{
	sim->again = false;
	for (uint32_t u = 0; u < SIM_UIDS; u++)
		for (unsigned k = 0; k < SIM_NAMES; k++)
			sim_step_unpublish(sim, &(struct step){.a = u, .b = k});
	sim_daemon_settle(sim);
	for (int i = 0; i < sim->n_procs; i++) {
		unmap_all(sim, i);
		if (sim->procs[i].session)
			step_end(sim, &(struct step){.a = (uint32_t)i}, true);
		sim->procs[i].alive = false;
	}
}
