/* SPDX-License-Identifier: Apache-2.0 */
/* Processes share chunks of their heaps: each becomes a lease of its own. As client.c. */
#include <string.h>

#include "tests/sim/sim.h"

#define PIECES_MOST 6
#define U(n)        ((unsigned long long)(n))

/* A process that repeats a packet returns leases that it does not know, or that it has returned. They must have no memory: a
 * daemon died before it gave them any, or after it took that back. */
static void reconcile(struct sim *sim, int proc)
{
	struct gm_session *session = sim_session(sim, &sim->procs[proc]);
	struct gm_lease *next = gm_session_next_lease(session, NULL), *lease;
	while ((lease = next)) {
		struct gm_lease_info info;
		next = gm_session_next_lease(session, lease);
		gm_lease_info(lease, session, &info);
		if (info.bytes > 0)
			continue;
		sim_say(sim, "process %d returns lease %llu, which is empty", sim->procs[proc].pid,
			U(info.id));
		gm_lease_return(session, lease);
	}
}

static int free_tokens(const struct sim *sim)
{
	int n = 0;
	for (int t = 0; t < SIM_TOKENS; t++)
		n += !sim->tokens[t].used;
	return n;
}

static void add_token(
	struct sim *sim, const uint8_t bytes[GM_TOKEN_BYTES], uint32_t index, int lease)
{
	int t = 0;
	while (sim->tokens[t].used)
		t++;
	sim->tokens[t] = (struct sim_token){.used = true, .lease = lease, .index = index};
	memcpy(sim->tokens[t].token, bytes, GM_TOKEN_BYTES);
}

void sim_step_share_chunks(struct sim *sim, const struct step *s)
{
	int proc = sim_pick_proc(sim, s->a, true), lease = sim_pick_lease(sim, proc, s->b, true);
	/* With a keeper that is not filled, the model could not say what is lost. */
	if (lease < 0 || sim_ask_grows(sim, lease) || sim->keeper_refills ||
		free_tokens(sim) < PIECES_MOST || sim->n_leases > SIM_LEASES - SIM_ASKS)
		return;
	struct sim_lease *l = &sim->leases[lease];
	uint64_t leases[PIECES_MOST], chunks[PIECES_MOST], got[PIECES_MOST];
	size_t n = 0;
	for (size_t k = 0; k < l->n_chunks && n < PIECES_MOST; k++) {
		if (!(s->c >> k % 32 & 1))
			continue;
		leases[n] = l->id;
		chunks[n++] = l->chunks[k];
	}
	if (n == 0 || (n == l->n_chunks && !l->origin))
		return;
	bool alone = sim_alone(sim, lease, proc) && !l->signals;
	struct gm_token_chunks what = {
		.leases = leases, .chunks = chunks, .n = n, .asked = sim->op, .again = sim->again};
	uint8_t token[GM_TOKEN_BYTES];
	char detail[GM_DETAIL_BYTES];
	gpumem_status status;
	sim_say(sim, "process %d shares %zu chunks of lease %llu", sim->procs[proc].pid, n,
		U(l->id));
	while (gm_session_share_some(
		sim_session(sim, &sim->procs[proc]), &what, token, got, &status, detail))
		;
	if (sim->again && !sim->frozen)
		reconcile(sim, proc);
	if (sim_unheard(sim))
		return;
	SIM_MUST(sim,
		status == (alone || l->origin ? GPUMEM_OK : GPUMEM_E_BUSY) ||
			sim_unrecorded(sim, status),
		"chunks of lease %llu are shared: %d", U(l->id), status);
	/* If it fails, some of them may be leases of their own all the same. */
	for (size_t k = 0; k < n && got[k]; k++) {
		int own = lease;
		SIM_MUST(sim, (got[k] == l->id) == (l->origin != 0), "chunk %llu is in lease %llu",
			U(chunks[k]), U(got[k]));
		if (!l->origin)
			own = sim_model_split(sim, lease, proc, chunks[k], got[k]);
		if (status == GPUMEM_OK)
			add_token(sim, token, (uint32_t)k, own);
	}
}

void sim_step_unshare_chunks(struct sim *sim, const struct step *s)
{
	const struct sim_token *t = &sim->tokens[s->a % SIM_TOKENS];
	for (uint32_t k = 0; !t->used && k < SIM_TOKENS; k++)
		t = &sim->tokens[(s->a + k) % SIM_TOKENS];
	int proc = sim->again ? sim->proc : t->used ? sim->leases[t->lease].maker : -1;
	if (proc < 0 || !sim->procs[proc].connected || sim->procs[proc].stopped)
		return;
	uint8_t token[GM_TOKEN_BYTES];
	uint32_t at = 0, n = 1 + s->b % (PIECES_MOST + 1);
	memcpy(token, t->token, sizeof(token));
	sim->proc = proc;
	sim_say(sim, "process %d ends the first %u of a token", sim->procs[proc].pid, n);
	while (gm_session_unshare_some(sim_session(sim, &sim->procs[proc]), token, &at, n))
		;
	for (int k = 0; k < SIM_TOKENS && !sim_unheard(sim); k++)
		if (sim->tokens[k].index < n && !memcmp(sim->tokens[k].token, token, sizeof(token)))
			sim->tokens[k].used = false;
}

static int pick_piece(struct sim *sim, uint32_t a)
{
	for (int k = 0; k < sim->n_leases; k++) {
		int i = (int)((a + (uint32_t)k) % (uint32_t)sim->n_leases);
		const struct sim_lease *l = &sim->leases[i];
		if ((sim->again ? l->id != sim->lease : !l->id) || !l->origin || l->maker < 0 ||
			!sim->procs[l->maker].connected || sim->procs[l->maker].stopped ||
			sim_ask_grows(sim, i))
			continue;
		sim->proc = l->maker;
		sim->lease = l->id;
		return i;
	}
	return -1;
}

/* A process that was not told that a chunk is a lease of its own returns the chunk by its place in the other lease. */
void sim_step_return_piece(struct sim *sim, const struct step *s)
{
	int lease = pick_piece(sim, s->a), proc = sim->proc;
	if (lease < 0)
		return;
	const struct sim_lease *l = &sim->leases[lease];
	struct gm_session *session = sim_session(sim, &sim->procs[proc]);
	if (!sim->again) {
		sim->ids[0] = l->chunks[0];
		sim->indexes[0] = sim_chunk(sim, l->chunks[0])->index;
	}
	uint64_t origin = l->origin, id = sim->ids[0], index = sim->indexes[0];
	sim->frees = l->id;
	sim_say(sim, "process %d returns chunk %llu, which was in lease %llu", sim->procs[proc].pid,
		U(id), U(origin));
	if (!sim->procs[proc].liar)
		sim_unmap(sim, proc, id);
	gpumem_status wrong = gm_session_return_piece(session, origin, id, index + 1);
	gpumem_status status = gm_session_return_piece(session, origin, id, index);
	gpumem_status twice = gm_session_return_piece(session, origin, id, index);
	if (sim->again && !sim->frozen)
		reconcile(sim, proc);
	if (sim_unheard(sim))
		return;
	SIM_MUST(sim, wrong == GPUMEM_E_NOT_FOUND && twice == GPUMEM_E_NOT_FOUND,
		"chunk %llu is returned from another place, or twice: %d, %d", U(id), wrong, twice);
	SIM_MUST(sim, status == GPUMEM_OK || sim->again, "chunk %llu is not taken back: %d", U(id),
		status);
	sim_model_return(sim, lease, proc, 0);
}
