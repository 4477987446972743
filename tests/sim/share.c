/* SPDX-License-Identifier: Apache-2.0 */
/* Processes share leases by tokens and by names, and open those of others. As client.c. */
#include "tests/sim/sim.h"

#define META_MOST 6000
#define U(n)      ((unsigned long long)(n))

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
	struct gm_token_options options = {
		.audience = s->c % 2 ? GM_NAME_AUDIENCE_UID : GM_NAME_AUDIENCE_DOMAIN,
		.id = 1000 + s->c / 2 % SIM_UIDS};
	sim_say(sim, "process %d shares lease %llu", sim->procs[proc].pid,
		U(sim->leases[lease].id));
	gpumem_status status = gm_lease_share_by(sim_session(sim, &sim->procs[proc]),
		sim_lease_of(sim, proc, lease), &options, sim->op, sim->again, token->token);
	if (sim_unheard(sim))
		return;
	if (sim_unrecorded(sim, status))
		return;
	if (options.audience == GM_NAME_AUDIENCE_UID && !sim->leases[lease].for_others) {
		SIM_MUST(sim, status == GPUMEM_E_UNSUPPORTED,
			"lease %llu is shared outside its domain", U(sim->leases[lease].id));
		return;
	}
	SIM_MUST(sim, status == GPUMEM_OK, "lease %llu is not shared: %d", U(sim->leases[lease].id),
		status);
	token->used = true;
	token->index = 0;
	token->lease = lease;
	token->outside = options.audience == GM_NAME_AUDIENCE_UID;
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
	gpumem_status status = gm_session_open_by(sim_session(sim, &sim->procs[proc]), t->token,
		t->index, NULL, 0, sim->op, sim->again, &lease);
	if (sim_unheard(sim) || sim_unrecorded(sim, status))
		return;
	bool may = t->used && may_open(sim, proc, t->lease, t->outside, t->uid);
	SIM_MUST(sim, status == (may ? GPUMEM_OK : GPUMEM_E_NOT_FOUND), "an Open got %d, and may%s",
		status, may ? "" : " not");
	if (may)
		sim_model_open(sim, t->lease, proc, sim->op);
}

/* ---- names */

/* The bytes that the packet of this id sends as metadata. */
static uint8_t meta_byte(uint64_t seed, uint64_t at)
{
	return (uint8_t)(seed * 31 + at * 7 + at / 251);
}

/* Sends metadata in some pieces. Returns the status of the last. */
static gpumem_status put_metadata(
	struct sim *sim, int proc, int lease, uint64_t size, uint32_t pieces)
{
	uint8_t bytes[META_MOST];
	char detail[GM_DETAIL_BYTES];
	gpumem_status status = GPUMEM_OK;
	for (uint64_t at = 0, n; at < size && status == GPUMEM_OK && !sim->frozen; at += n) {
		n = size / pieces + 1 < size - at ? size / pieces + 1 : size - at;
		for (uint64_t k = 0; k < n; k++)
			bytes[k] = meta_byte(sim->op, at + k);
		struct gm_metadata_piece piece = {
			.size = size, .offset = at, .bytes = bytes, .n = n};
		status = gm_lease_put_metadata(sim_session(sim, &sim->procs[proc]),
			sim_lease_of(sim, proc, lease), &piece, detail);
	}
	return status;
}

/* What the model expects of a publish. */
static gpumem_status publish_outcome(
	const struct sim *sim, int lease, uint32_t uid, unsigned name, bool lacks)
{
	const struct sim_lease *l = &sim->leases[lease];
	const struct sim_name *n = &sim->names[uid][name];
	int own = (int)(uid * SIM_NAMES + name);
	if (l->name == own)
		return GPUMEM_OK;
	if (l->name >= 0 || (n->lease >= 0 && sim->leases[n->lease].domain != l->domain))
		return GPUMEM_E_BUSY;
	return lacks ? GPUMEM_E_NOT_FOUND : GPUMEM_OK;
}

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
	/* If the keeper loses the lease of a new version, the model cannot say whether the old one had ended by then. */
	if (sim->keeper_refills && n->lease >= 0 && n->lease != lease)
		return;
	bool outside = s->c / SIM_NAMES % 2 && l->for_others;
	uint32_t to = s->c / SIM_NAMES / 2 % SIM_UIDS, kind = s->c / 64 % 8;
	/* Of metadata that is too short, the daemon lacks the last byte. */
	uint64_t size = kind < 4 ? 0 : 1 + s->c / 512 % META_MOST, sent = size - (kind == 7);
	struct gm_name_publish what = {.text = text,
		.share = {.audience = outside ? GM_NAME_AUDIENCE_UID : GM_NAME_AUDIENCE_DOMAIN,
			.id = outside ? 1000 + to : 0},
		.replace = true,
		.metadata_bytes = size,
		.asked = sim->op,
		.again = sim->again};
	struct gm_session *session = sim_session(sim, &sim->procs[proc]);
	struct gm_lease *core = sim_lease_of(sim, proc, lease);
	uint64_t version = 0;
	sim_say(sim, "process %d publishes lease %llu as %s, with %llu bytes of metadata",
		sim->procs[proc].pid, U(l->id), text, U(size));
	sim->frees = n->lease >= 0 ? sim->leases[n->lease].id : 0;
	gpumem_status put = sim->again ? GPUMEM_OK : put_metadata(sim, proc, lease, sent, kind);
	gpumem_status status = gm_lease_publish(session, core, &what, &version, detail);
	if (sim->again && status == GPUMEM_E_NOT_FOUND) {
		put = put_metadata(sim, proc, lease, sent, kind);
		status = gm_lease_publish(session, core, &what, &version, detail);
	}
	if (sim_unheard(sim))
		return;
	SIM_MUST(sim, put == (sent && l->name >= 0 && !sim->again ? GPUMEM_E_BUSY : GPUMEM_OK),
		"metadata of lease %llu is sent: %d", U(l->id), put);
	gpumem_status expected = publish_outcome(
		sim, lease, uid, name, sent != size || (size && sim->keeper_refills));
	SIM_MUST(sim,
		status == expected || sim_unrecorded(sim, status) ||
			(sim->keeper_full && size && status == GPUMEM_E_HOST_MEMORY),
		"publish: %d: %s", status, detail);
	struct gm_metadata_info info;
	gm_lease_metadata(core, &info);
	struct sim_meta meta = {
		.id = size ? info.id : 0, .size = size, .seed = sim->op, .version = version};
	/* A daemon that died before it recorded the name leaves the metadata to the lease. */
	if (status != GPUMEM_OK) {
		if (sim->again && info.id && info.size == size && l->meta.id == 0)
			l->meta = meta;
		return;
	}
	SIM_MUST(sim, n->lease < 0 || n->lease == lease || version > n->version,
		"version %llu of a name follows version %llu", U(version), U(n->version));
	if (n->lease != lease) {
		n->outside = outside;
		n->uid = to;
		l->meta = meta;
	}
	sim_model_publish(sim, lease, uid, name, version);
}

void sim_step_read_metadata(struct sim *sim, const struct step *s)
{
	int proc = sim_pick_proc(sim, s->a, true);
	uint32_t uid = s->b % SIM_UIDS;
	unsigned name = s->b / SIM_UIDS % SIM_NAMES;
	const struct sim_name *n = &sim->names[uid][name];
	char text[2] = {(char)('a' + name), 0};
	struct gm_metadata_info info;
	uint8_t bytes[META_MOST];
	sim->settled = true;
	if (proc < 0)
		return;
	sim_say(sim, "process %d reads metadata of %s of uid %u", sim->procs[proc].pid, text, uid);
	gpumem_status status = gm_session_find_metadata(
		sim_session(sim, &sim->procs[proc]), 1000 + uid, text, NULL, 0, &info);
	bool may = n->lease >= 0 && may_open(sim, proc, n->lease, n->outside, n->uid);
	SIM_MUST(sim, status == (may ? GPUMEM_OK : GPUMEM_E_NOT_FOUND),
		"a read of metadata got %d, and may%s", status, may ? "" : " not");
	if (!may)
		return;
	const struct sim_meta *meta = &sim->leases[n->lease].meta;
	SIM_MUST(sim, info.size == meta->size && info.version == n->version,
		"metadata of %llu bytes and version %llu, not %llu and %llu", U(info.size),
		U(info.version), U(meta->size), U(n->version));
	if (!info.size)
		return;
	uint64_t at = s->c % info.size;
	SIM_MUST(sim, gm_core_read_metadata(sim->core, info.id, at, bytes, info.size - at) == 0,
		"metadata %llu cannot be read", U(info.id));
	for (uint64_t k = at; k < info.size; k++)
		SIM_MUST(sim, bytes[k - at] == meta_byte(meta->seed, k),
			"byte %llu of metadata %llu has changed", U(k), U(info.id));
}

void sim_step_unpublish(struct sim *sim, const struct step *s)
{
	uint32_t uid = s->a % SIM_UIDS;
	unsigned name = s->b % SIM_NAMES;
	char text[2] = {(char)('a' + name), 0};
	bool is = sim->names[uid][name].lease >= 0;
	sim_say(sim, "an administrator ends name %s of uid %u", text, uid);
	sim->frees = is ? sim->leases[sim->names[uid][name].lease].id : 0;
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
	if (sim_unheard(sim) || sim_unrecorded(sim, status))
		return;
	bool may = n->lease >= 0 && may_open(sim, proc, n->lease, n->outside, n->uid);
	SIM_MUST(sim, status == (may ? GPUMEM_OK : GPUMEM_E_NOT_FOUND),
		"an attach got %d, and may%s", status, may ? "" : " not");
	if (may)
		sim_model_open(sim, n->lease, proc, sim->op);
}
