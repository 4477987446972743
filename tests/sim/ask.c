/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests for memory: how processes send them, hear of their end, and repeat them after they lost their connection or
 * their daemon. As client.c.
 */
#include "tests/sim/sim.h"

#define MIB    (UINT64_C(1) << 20)
#define GIB    (UINT64_C(1) << 30)
#define SECOND UINT64_C(1000000000)
#define U(n)   ((unsigned long long)(n))

static void ask_done(struct gm_request *request, gpumem_status status, const char *detail)
{
	struct sim_ask *ask = (struct sim_ask *)request;
	struct sim *sim = ask->sim;
	if (sim->frozen)
		return;
	SIM_MUST(sim, ask->pending && !ask->ended, "a request ends twice");
	SIM_MUST(sim, status == GPUMEM_OK || (detail && *detail), "refused without a word");
	if (status == GPUMEM_E_CANCELLED && sim->parting == ask->proc) {
		ask->pending = false; /* its client cannot hear that, and repeats it */
		return;
	}
	if (status == GPUMEM_OK && request->declares)
		sim_declare_done(sim, ask);
	ask->ended = true;
	ask->order = ++sim->n_ended;
	ask->status = status;
}

void sim_ask_send(struct sim *sim, struct sim_ask *ask)
{
	struct sim_proc *p = &sim->procs[ask->proc];
	uint64_t wait = ask->r.wait_ns;
	/* It ends when clients had their time to move buffers. */
	if (wait == GM_WAIT_NEVER)
		ask->until_ns = sim->now + 10 * SECOND;
	else if (ask->until_ns <= sim->now)
		ask->until_ns = sim->now + 1;
	if (wait != GM_WAIT_NEVER && wait != GM_WAIT_FOREVER)
		wait = ask->until_ns - sim->now;
	ask->r = (struct gm_request){.session = sim_session(sim, p),
		.lease = ask->lease >= 0 ? sim_lease_of(sim, ask->proc, ask->lease) : NULL,
		.device = ask->r.device,
		.bytes = ask->bytes,
		.user_bytes = ask->size,
		.transport = GM_TRANSPORT_AUTO,
		.tag = "sim",
		.for_others = ask->r.for_others,
		.signals = ask->r.signals,
		.one_chunk = ask->r.one_chunk,
		.declares = ask->r.declares,
		.id = ask->id,
		.wait_ns = wait,
		.done = ask_done};
	ask->pending = true;
	ask->ended = false;
	gm_core_request(sim->core, &ask->r);
}

struct sim_ask *sim_ask_new(struct sim *sim, int proc, int lease, uint64_t bytes)
{
	int slot = 0;
	unsigned n = 0;
	while (slot < SIM_ASKS && sim->asks[slot].used)
		slot++;
	for (int i = 0; i < sim->n_leases; i++)
		n += sim->leases[i].id != 0;
	if (slot == SIM_ASKS || n + SIM_ASKS >= SIM_LEASES)
		return NULL;
	struct sim_ask *ask = &sim->asks[slot];
	sim->n_asks = slot < sim->n_asks ? sim->n_asks : slot + 1;
	*ask = (struct sim_ask){.sim = sim,
		.used = true,
		.proc = proc,
		.lease = lease,
		.id = sim->op,
		.bytes = bytes};
	ask->r.wait_ns = GM_WAIT_NEVER;
	if (lease >= 0)
		ask->r.device = sim->leases[lease].device;
	return ask;
}

void sim_ask_wait(struct sim *sim, struct sim_ask *ask, uint32_t how)
{
	switch (how % 4) {
	case 0:
		ask->r.wait_ns = (1 + how / 4 % 20) * SECOND;
		ask->until_ns = sim->now + ask->r.wait_ns;
		break;
	case 1:
		ask->r.wait_ns = GM_WAIT_FOREVER;
		ask->until_ns = UINT64_MAX / 2;
		break;
	default:
		ask->r.wait_ns = GM_WAIT_NEVER;
	}
}

bool sim_ask_grows(const struct sim *sim, int lease)
{
	for (int i = 0; i < sim->n_asks; i++)
		if (sim->asks[i].used && sim->asks[i].lease == lease)
			return true;
	return false;
}

/* ---- hearing */

static void hear_end(struct sim *sim, struct sim_ask *ask)
{
	struct sim_lease *l = &sim->leases[ask->got];
	ask->used = false;
	if (l->id == ask->got_id)
		l->unheard = false;
}

static void hear(struct sim *sim, struct sim_ask *ask)
{
	ask->ended = ask->pending = false;
	if (ask->status == GPUMEM_OK && ask->r.declares) {
		sim->procs[ask->proc].declared[ask->r.device] += ask->bytes;
		sim->grants++;
		ask->used = false;
		return;
	}
	if (ask->status == GPUMEM_OK) {
		sim_model_granted(sim, ask);
		ask->booked = true;
		sim->leases[ask->got].unheard |= ask->late > 0 && ask->lease < 0;
		if (ask->late == 0)
			hear_end(sim, ask);
		return;
	}
	SIM_MUST(sim, ask->status != GPUMEM_E_BUSY || ask->lease >= 0,
		"a new lease is refused as busy");
	ask->used = false;
	sim->refusals++;
	if (ask->restores)
		sim->procs[ask->proc].away[ask->r.device] += ask->bytes;
}

void sim_clients_hear(struct sim *sim)
{
	for (int i = 0; i < sim->n_asks; i++)
		if (sim->asks[i].used && sim->asks[i].booked && --sim->asks[i].late == 0)
			hear_end(sim, &sim->asks[i]);
	/* In the order in which core ended them. */
	for (struct sim_ask *next = &sim->asks[0]; next;) {
		next = NULL;
		for (int i = 0; i < sim->n_asks; i++) {
			struct sim_ask *ask = &sim->asks[i];
			if (ask->used && ask->ended && (!next || ask->order < next->order))
				next = ask;
		}
		if (next)
			hear(sim, next);
	}
}

/* Looks for what the request was granted. The client did not hear of it, and repeats the request. */
static bool find_again(struct sim *sim, struct gm_session *session, struct sim_ask *ask)
{
	uint64_t from, to, n = 0;
	struct gm_lease *lease;
	bool found = gm_session_find_grant(session, ask->id, &lease, &from, &to);
	if (!ask->booked) {
		if (found) {
			ask->ended = ask->pending = ask->found = true;
			ask->order = ask->granted ? ask->order : ++sim->n_ended;
			ask->status = GPUMEM_OK;
			ask->r.lease = lease;
			ask->r.first_index = from;
		}
		return found;
	}

	struct sim_lease *l = &sim->leases[ask->got];
	ask->late = 0;
	if (l->id != ask->got_id) { /* it is given up */
		ask->used = false;
		return true;
	}
	SIM_MUST(sim, found, "what request %llu was granted is lost", U(ask->id));
	for (size_t k = 0; k < l->n_chunks; k++) {
		const struct sim_chunk *c = sim_chunk(sim, l->chunks[k]);
		n += c->asked == ask->id && c->index >= from && c->index < to;
	}
	SIM_MUST(sim, n == ask->n_got, "request %llu got %llu chunks, and finds %llu", U(ask->id),
		U(ask->n_got), U(n));
	hear_end(sim, ask);
	return true;
}

void sim_asks_repeat(struct sim *sim, int proc)
{
	struct gm_session *session = sim_session(sim, &sim->procs[proc]);
	sim_declare_again(sim, proc);
	for (int k = 0; k < sim->n_asks && !sim->frozen; k++) {
		struct sim_ask *ask = &sim->asks[k];
		if (!ask->used || ask->pending || ask->proc != proc)
			continue;
		if (ask->lease >= 0 && !sim_lease_of(sim, proc, ask->lease)) {
			ask->used = false; /* the lease was lost */
			continue;
		}
		if (!ask->r.declares && find_again(sim, session, ask))
			continue;
		SIM_MUST(sim, !ask->granted || sim->given_up || ask->r.declares,
			"what request %llu was granted is lost", U(ask->id));
		sim_ask_send(sim, ask);
	}
}

/* ---- steps */

static void step_ask(struct sim *sim, const struct step *s, bool grow)
{
	int proc = sim_pick_proc(sim, s->a, true);
	int lease = grow ? sim_pick_lease(sim, proc, s->b, true) : -1;
	uint64_t bytes = s->c % 16 == 0  ? 1 + s->b % (GIB + GIB / 2)
			 : s->c % 16 < 4 ? 1 + s->b % (256 * MIB)
					 : 1 + s->b % (24 * MIB);
	sim->settled = true; /* a request that was not answered is repeated in any case */
	struct sim_ask *ask =
		proc < 0 || (grow && lease < 0) ? NULL : sim_ask_new(sim, proc, lease, bytes);
	if (!ask)
		return;
	if (!grow)
		ask->r.device = s->c / 16 % SIM_DEVICES;
	ask->r.for_others = s->c / 32 % 4 == 0;
	ask->evictable = s->a / 4096 % 2 == 0;
	ask->r.signals = !grow && s->a / 8192 % 8 < 2;
	ask->r.one_chunk = !grow && s->a / 8192 % 8 == 2 && bytes <= 24 * MIB;
	if (ask->r.one_chunk)
		ask->bytes = (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
	ask->late = s->a / 65536 % 4 == 0 ? 1 + s->a / 262144 % 8 : 0;
	sim_ask_wait(sim, ask, s->c / 128);
	sim_say(sim, "process %d asks for %llu on device %u%s", sim->procs[proc].pid, U(bytes),
		ask->r.device, grow ? ", to grow a lease" : "");
	sim_ask_send(sim, ask);
}

void sim_step_ask(struct sim *sim, const struct step *s)
{
	step_ask(sim, s, false);
}

void sim_step_grow(struct sim *sim, const struct step *s)
{
	step_ask(sim, s, true);
}

void sim_step_cancel(struct sim *sim, const struct step *s)
{
	for (int k = 0; k < sim->n_asks; k++) {
		struct sim_ask *ask = &sim->asks[(s->a + (uint32_t)k) % (uint32_t)sim->n_asks];
		if (!ask->used || !ask->pending || ask->ended)
			continue;
		sim_say(sim, "process %d cancels", sim->procs[ask->proc].pid);
		gm_core_cancel(sim->core, &ask->r);
		SIM_MUST(sim, sim->frozen || ask->ended, "not cancelled");
		return;
	}
}
