/* SPDX-License-Identifier: Apache-2.0 */
/* Processes share leases by tokens and by names, and open those of others. As client.c. */
#include "tests/sim/sim.h"

#define U(n) ((unsigned long long)(n))

/* ---- sharing */

void sim_step_share(struct sim *sim, const struct step *s)
{
	int proc = sim_pick_proc(sim, s->a, true), lease = sim_pick_lease(sim, proc, s->b, true),
	    t = 0;
	while (t < SIM_TOKENS && sim->tokens[t].used)
		t++;
	if (lease < 0 || t == SIM_TOKENS)
		return;
	struct sim_token *token = &sim->tokens[t];
	struct gm_share_options options = {
		.audience = s->c % 2 ? GM_AUDIENCE_UID : GM_AUDIENCE_DOMAIN,
		.id = 1000 + s->c / 2 % SIM_UIDS};
	sim_say(sim, "process %d shares lease %llu", sim->procs[proc].pid,
		U(sim->leases[lease].id));
	gpumem_status status = gm_lease_share_by(sim_session(sim, &sim->procs[proc]),
		sim_lease_of(sim, proc, lease), &options, sim->op, sim->again, token->token);
	if (sim_unheard(sim))
		return;
	if (options.audience == GM_AUDIENCE_UID && !sim->leases[lease].for_others) {
		SIM_MUST(sim, status == GPUMEM_E_UNSUPPORTED,
			"lease %llu is shared outside its domain", U(sim->leases[lease].id));
		return;
	}
	SIM_MUST(sim, status == GPUMEM_OK, "lease %llu is not shared: %d", U(sim->leases[lease].id),
		status);
	token->used = true;
	token->lease = lease;
	token->outside = options.audience == GM_AUDIENCE_UID;
	token->uid = options.id - 1000;
}

void sim_step_unshare(struct sim *sim, const struct step *s)
{
	int proc = sim_pick_proc(sim, s->a, true), lease = sim_pick_lease(sim, proc, s->b, true);
	if (lease < 0)
		return;
	sim_say(sim, "process %d ends the tokens of lease %llu", sim->procs[proc].pid,
		U(sim->leases[lease].id));
	gm_lease_unshare(sim_session(sim, &sim->procs[proc]), sim_lease_of(sim, proc, lease));
	for (int t = 0; t < SIM_TOKENS && !sim_unheard(sim); t++)
		if (sim->tokens[t].lease == lease)
			sim->tokens[t].used = false;
}

/* Whether this process may open the lease, and the model has room for it. */
static bool may_open(struct sim *sim, int proc, int lease, bool outside, uint32_t uid)
{
	return outside ? sim->procs[proc].uid == uid
		       : sim->procs[proc].domain == sim->leases[lease].domain;
}

static bool is_odd(struct sim *sim, int proc, int lease)
{
	const struct sim_hold *h = sim_hold_of(sim, lease, proc);
	return sim->leases[lease].maker == proc || (h && h->n_views == 4) ||
	       (h && h->views[0] == 0);
}

void sim_step_open(struct sim *sim, const struct step *s)
{
	int proc = sim_pick_proc(sim, s->a, true);
	const struct sim_token *t = &sim->tokens[s->b % SIM_TOKENS];
	struct gm_lease *lease = NULL;
	for (uint32_t k = 0; s->c % 4 && !t->used && k < SIM_TOKENS; k++)
		t = &sim->tokens[(s->b + k) % SIM_TOKENS];
	if (proc < 0 || (t->used && is_odd(sim, proc, t->lease)))
		return;
	sim_say(sim, "process %d opens a token", sim->procs[proc].pid);
	gpumem_status status = gm_session_open_by(sim_session(sim, &sim->procs[proc]), t->token, 0,
		NULL, 0, sim->op, sim->again, &lease);
	if (sim_unheard(sim))
		return;
	bool may = t->used && may_open(sim, proc, t->lease, t->outside, t->uid);
	SIM_MUST(sim, status == (may ? GPUMEM_OK : GPUMEM_E_NOT_FOUND), "an Open got %d, and may%s",
		status, may ? "" : " not");
	if (may)
		sim_model_open(sim, t->lease, proc, sim->op);
}

/* ---- names */

void sim_step_publish(struct sim *sim, const struct step *s)
{
	int proc = sim_pick_proc(sim, s->a, true), lease = sim_pick_lease(sim, proc, s->b, true);
	if (lease < 0)
		return;
	uint32_t uid = sim->procs[proc].uid;
	unsigned name = s->c % SIM_NAMES;
	struct sim_lease *l = &sim->leases[lease];
	struct sim_name *n = &sim->names[uid][name];
	char text[2] = {(char)('a' + name), 0}, detail[GM_DETAIL_BYTES];
	bool outside = s->c / SIM_NAMES % 2 && l->for_others;
	uint32_t to = s->c / SIM_NAMES / 2 % SIM_UIDS;
	struct gm_publish what = {.text = text,
		.share = {.audience = outside ? GM_AUDIENCE_UID : GM_AUDIENCE_DOMAIN,
			.id = outside ? 1000 + to : 0},
		.replace = true,
		.asked = sim->op,
		.again = sim->again};
	uint64_t version = 0;
	sim_say(sim, "process %d publishes lease %llu as %s", sim->procs[proc].pid, U(l->id), text);
	gpumem_status status = gm_lease_publish(sim_session(sim, &sim->procs[proc]),
		sim_lease_of(sim, proc, lease), &what, &version, detail);
	if (sim_unheard(sim))
		return;
	int own = (int)(uid * SIM_NAMES + name);
	bool busy = (l->name >= 0 && l->name != own) ||
		    (n->lease >= 0 && sim->leases[n->lease].domain != l->domain);
	SIM_MUST(sim, status == (busy ? GPUMEM_E_BUSY : GPUMEM_OK), "publish: %d: %s", status,
		detail);
	if (busy)
		return;
	SIM_MUST(sim, n->lease < 0 || n->lease == lease || version > n->version,
		"version %llu of a name follows version %llu", U(version), U(n->version));
	if (n->lease != lease) {
		n->outside = outside;
		n->uid = to;
	}
	sim_model_publish(sim, lease, uid, name, version);
}

void sim_step_unpublish(struct sim *sim, const struct step *s)
{
	uint32_t uid = s->a % SIM_UIDS;
	unsigned name = s->b % SIM_NAMES;
	char text[2] = {(char)('a' + name), 0};
	bool is = sim->names[uid][name].lease >= 0;
	sim_say(sim, "an administrator ends name %s of uid %u", text, uid);
	gpumem_status status = gm_core_unpublish(
		sim->core, &(struct gm_name_asker){.admin = true}, 1000 + uid, text);
	if (sim->frozen)
		return;
	SIM_MUST(sim, status == (is ? GPUMEM_OK : GPUMEM_E_NOT_FOUND) || sim->again,
		"unpublish: %d", status);
	sim_model_unpublish(sim, uid, name);
}

void sim_step_attach(struct sim *sim, const struct step *s)
{
	int proc = sim_pick_proc(sim, s->a, true);
	uint32_t uid = s->b % SIM_UIDS;
	unsigned name = s->c % SIM_NAMES;
	const struct sim_name *n = &sim->names[uid][name];
	char text[2] = {(char)('a' + name), 0};
	struct gm_lease *lease = NULL;
	if (proc < 0 || (n->lease >= 0 && is_odd(sim, proc, n->lease)))
		return;
	sim_say(sim, "process %d attaches to %s of uid %u", sim->procs[proc].pid, text, uid);
	gpumem_status status = gm_session_attach(sim_session(sim, &sim->procs[proc]), 1000 + uid,
		text, NULL, 0, sim->op, sim->again, &lease);
	if (sim_unheard(sim))
		return;
	bool may = n->lease >= 0 && may_open(sim, proc, n->lease, n->outside, n->uid);
	SIM_MUST(sim, status == (may ? GPUMEM_OK : GPUMEM_E_NOT_FOUND),
		"an attach got %d, and may%s", status, may ? "" : " not");
	if (may)
		sim_model_open(sim, n->lease, proc, sim->op);
}
