/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core against a model (core_model.c, where the invariants stand): any sequence of requests,
 * grows, returns, shares, opens, deaths, disconnects, resumes, trims, new policies, foreign memory,
 * chunks that somebody keeps mapped after their clients left them,
 * jobs that end in any order, jobs that fail, and allocations that fail. Besides the invariants,
 * each step checks its own outcome: a request is refused for want of memory exactly if its whole 2
 * MiB exceed what is available, or when the backend failed twice; each request ends once; nothing
 * is left at the end.
 *
 * GM_MODEL_SEED=n runs other seeds (the first one is n), GM_MODEL_STEPS=n more or fewer steps. A
 * failure names both.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/unit/core/core_model.h"
#include "tests/unit/failing_malloc.h"

#define SEEDS 8
#define STEPS 12000

/* ---- the steps */

static int pick_session(struct model *m, bool connected)
{
	for (int tries = 0; tries < 4 * SESSIONS; tries++) {
		int i = (int)model_roll(m, SESSIONS);
		if (m->sessions[i].s && !(connected && m->sessions[i].quarantined))
			return i;
	}
	return -1;
}

static int pick_lease_of(struct model *m, int session)
{
	uint64_t start = model_roll(m, LEASES);
	for (uint64_t k = 0; k < LEASES; k++) {
		int i = (int)((start + k) % LEASES);
		for (size_t h = 0; m->leases[i].l && h < m->leases[i].n_holders; h++)
			if (m->leases[i].holders[h].session == session)
				return i;
	}
	return -1;
}

static void step_connect(struct model *m)
{
	static const struct {
		gm_domain domain;
		uid_t uid;
		bool pooling;
	} kinds[] = {
		{1, 100, true}, {2, 100, true}, {3, 200, true}, {3, 200, true}, {4, 300, false}};
	int i = 0;
	while (i < SESSIONS && m->sessions[i].s)
		i++;
	if (i == SESSIONS)
		return;
	size_t k = model_roll(m, sizeof(kinds) / sizeof(kinds[0]));
	struct m_session *s = &m->sessions[i];
	struct gm_session_info info = {.pid = 1,
		.uid = kinds[k].uid,
		.gid = kinds[k].uid,
		.domain = kinds[k].domain,
		.pooling = kinds[k].pooling};
	struct gm_session *made;
	int r = gm_session_new(m->fake.core, &info, s->token, &made);
	if (r == -ENOMEM && failing_malloc_fired())
		return;
	must(m, r == 0, "no session");
	s->s = made;
	s->quarantined = false;
	s->pooling = info.pooling;
	s->domain = info.domain;
	s->uid = info.uid;
}

static uint64_t some_bytes(struct model *m)
{
	switch (model_roll(m, 12)) {
	case 0:
		return model_roll(m, 3) ? 1 + model_roll(m, 100 * MiB) : 1 + model_roll(m, 3 * GiB);
	case 1:
		return 1 + model_roll(m, 600 * MiB);
	case 3:
		return (1 + model_roll(m, 64)) * 2 * MiB;
	default:
		return 1 + model_roll(m, 40 * MiB);
	}
}

static void step_ask(struct model *m, bool grow)
{
	int s = pick_session(m, true), slot = 0, lease = -1, n = 0;
	while (slot < REQUESTS && m->requests[slot].used)
		slot++;
	for (int i = 0; i < LEASES; i++)
		n += m->leases[i].l != NULL;
	if (s < 0 || slot == REQUESTS || n + REQUESTS >= LEASES)
		return;
	if (grow && (lease = pick_lease_of(m, s)) < 0)
		return;
	struct m_request *r = &m->requests[slot];
	memset(r, 0, sizeof(*r));
	r->session = s;
	r->lease = lease;
	r->grow = grow;
	r->device = grow ? m->leases[lease].device : (uint32_t)model_roll(m, DEVICES);
	enum gm_transport asked = model_roll(m, 6) == 0 ? GM_TRANSPORT_IPC : GM_TRANSPORT_AUTO;
	if (grow) {
		struct gm_lease_info info;
		gm_lease_info(m->leases[lease].l, m->sessions[s].s, &info);
		asked = info.transport;
	}
	r->transport = asked == GM_TRANSPORT_AUTO ? GM_TRANSPORT_FD : asked;
	uint64_t bytes = some_bytes(m);
	r->exact = (bytes + 2 * MiB - 1) / (2 * MiB) * (2 * MiB);
	uint64_t available = model_less(
		model_ceiling(m, r->device, m->foreign[r->device]), model_charged(m, r->device));
	size_t jobs = m->fake.n_jobs;
	uint64_t hits = fake_pool(&m->fake, r->device).hits;

	m->fake.for_others = model_roll(m, 4) == 0;
	if (grow)
		fake_grow(&m->fake, &r->q, m->sessions[s].s, m->leases[lease].l, bytes);
	else
		fake_ask(&m->fake, &r->q, m->sessions[s].s, r->device, bytes, asked);
	m->hits += fake_pool(&m->fake, r->device).hits - hits;
	bool no_host_memory = failing_malloc_fired();
	gpumem_status expected = GPUMEM_OK;
	if (grow && m->leases[lease].maker != s)
		expected = GPUMEM_E_DENIED;
	else if (r->transport == GM_TRANSPORT_IPC && (grow || r->device != 1))
		expected = GPUMEM_E_UNSUPPORTED;
	else if (r->exact > available)
		expected = GPUMEM_E_NO_MEMORY;
	if (expected != GPUMEM_OK || (no_host_memory && r->q.ended && r->q.status != GPUMEM_OK)) {
		must(m, r->q.ended == 1, "not refused");
		must(m,
			r->q.status == expected ||
				(no_host_memory && r->q.status == GPUMEM_E_HOST_MEMORY),
			"refused with %d, not %d: %s", r->q.status, expected, r->q.detail);
		m->refused++;
		return;
	}
	must(m, !r->q.ended || r->q.status == GPUMEM_OK, "refused: %s", r->q.detail);
	r->used = true;
	uint64_t turn = gm_session_id(m->sessions[s].s);
	for (size_t i = jobs; !r->q.ended && i < m->fake.n_jobs; i++) {
		const struct fake_job *job = &m->fake.jobs[i];
		if (job->destroy || job->turn != turn)
			continue;
		r->missing += job->chunk->bytes;
		model_chunk(m, job->chunk->id)->request = slot;
	}
	must(m, r->q.ended || r->missing > 0, "waits for nothing");
	must(m, model_charged(m, r->device) <= model_ceiling(m, r->device, m->foreign[r->device]),
		"admitted past the ceiling");
}

static void step_complete(struct model *m)
{
	if (m->fake.n_jobs == 0)
		return;
	size_t i = model_roll(m, m->fake.n_jobs);
	struct fake_job job = m->fake.jobs[i];
	uint64_t id = job.chunk->id, bytes = job.chunk->bytes;
	uint64_t luck = model_roll(m, 20);
	int result = luck == 0 ? -ENOMEM : luck == 1 ? -EIO : 0;
	int request = job.destroy ? -1 : model_chunk(m, id)->request;
	struct m_request *r = request >= 0 ? &m->requests[request] : NULL;
	bool retried = false;
	if (r && result == 0) {
		r->missing -= bytes;
		m->chunks[id].request = -1;
	}
	size_t jobs = m->fake.n_jobs;
	fake_core_complete(&m->fake, i, result);
	bool no_host_memory = failing_malloc_fired();
	if (!r || result == 0) {
		must(m, !r || !r->q.ended || r->q.status == GPUMEM_OK || no_host_memory,
			"refused though it was created: %s", r ? r->q.detail : "");
		return;
	}
	for (size_t k = 0; k < m->fake.n_jobs; k++)
		retried |= !m->fake.jobs[k].destroy && m->fake.jobs[k].chunk->id == id;
	if (retried) {
		must(m, result == -ENOMEM && m->fake.n_jobs >= jobs, "tried again for nothing");
		must(m, !model_chunk(m, id)->doomed, "tried again and destroyed");
		must(m, fake_figures(&m->fake, r->device).pooled == 0, "the pool was kept");
		return;
	}
	must(m, r->q.ended == 1, "goes on without a chunk");
	must(m,
		r->q.status == (result == -ENOMEM ? GPUMEM_E_NO_MEMORY : GPUMEM_E_SYSTEM) ||
			(no_host_memory && r->q.status == GPUMEM_E_HOST_MEMORY),
		"refused with %d", r->q.status);
}

static void step_return_chunks(struct model *m)
{
	int s = pick_session(m, true);
	int i = s < 0 ? -1 : pick_lease_of(m, s);
	if (i < 0)
		return;
	struct m_lease *l = &m->leases[i];
	uint64_t ids[80];
	size_t n = 0;
	bool wrong = false;
	for (size_t k = 0; k < l->n_chunks && n < 64; k++)
		if (model_roll(m, 2))
			ids[n++] = l->chunks[k];
	if (n > 0 && model_roll(m, 6) == 0) {
		ids[n] = model_roll(m, 2) ? ids[model_roll(m, n)]
					  : m->fake.last_id + 1 - model_roll(m, 2) * 5;
		bool in_lease = false, named = false;
		for (size_t k = 0; k < l->n_chunks; k++)
			in_lease |= l->chunks[k] == ids[n];
		for (size_t k = 0; k < n; k++)
			named |= ids[k] == ids[n];
		wrong = !in_lease || named;
		n++;
	}
	bool shared = l->maker != s || l->n_holders > 1 || l->holders[0].count > 1;
	for (int t = 0; t < TOKENS; t++)
		shared |= m->tokens[t].used && m->tokens[t].lease == i;
	gpumem_status status = gm_lease_return_chunks(m->sessions[s].s, l->l, ids, n);
	if (shared || wrong) {
		must(m, status == (shared ? GPUMEM_E_BUSY : GPUMEM_E_NOT_FOUND), "status %d",
			status);
		return;
	}
	must(m, status == GPUMEM_OK, "status %d", status);
	for (size_t k = 0; k < n; k++) {
		model_unlease(m, l, ids[k], l->reusable);
		for (size_t j = 0; j < l->n_chunks; j++)
			if (l->chunks[j] == ids[k]) {
				memmove(&l->chunks[j], &l->chunks[j + 1],
					(--l->n_chunks - j) * sizeof(l->chunks[0]));
				break;
			}
	}
}

static void step_return(struct model *m)
{
	int s = pick_session(m, true);
	int i = s < 0 ? -1 : pick_lease_of(m, s);
	if (i < 0)
		return;
	struct m_lease *l = &m->leases[i];
	gm_lease_return(m->sessions[s].s, l->l);
	for (size_t h = 0; h < l->n_holders; h++) {
		if (l->holders[h].session != s)
			continue;
		if (--l->holders[h].count == 0)
			model_drop(m, i, s, false);
		return;
	}
}

static void step_share(struct model *m)
{
	int s = pick_session(m, true), t = 0;
	int i = s < 0 ? -1 : pick_lease_of(m, s);
	while (t < TOKENS && m->tokens[t].used)
		t++;
	if (i < 0 || t == TOKENS)
		return;
	static const uint32_t uids[] = {100, 200, 300};
	struct gm_token_options options = {
		.audience = model_roll(m, 3), .read_only = model_roll(m, 2)};
	options.id = uids[model_roll(m, 3)];
	gpumem_status status =
		gm_lease_share(m->sessions[s].s, m->leases[i].l, &options, m->tokens[t].token);
	if (m->leases[i].maker != s) {
		must(m, status == GPUMEM_E_DENIED, "shared by an opener");
		return;
	}
	if (status == GPUMEM_E_HOST_MEMORY && failing_malloc_fired())
		return;
	if (!m->leases[i].for_others && options.audience != GM_NAME_AUDIENCE_DOMAIN) {
		must(m, status == GPUMEM_E_UNSUPPORTED, "shared outside its domain: %d", status);
		return;
	}
	must(m, status == GPUMEM_OK, "not shared: %d", status);
	m->tokens[t].used = true;
	m->tokens[t].lease = i;
	m->tokens[t].audience = options.audience;
	m->tokens[t].id = options.id;
}

static void step_open(struct model *m)
{
	int s = pick_session(m, true);
	struct m_token *t = &m->tokens[model_roll(m, TOKENS)];
	if (s < 0)
		return;
	struct m_session *o = &m->sessions[s];
	struct gm_lease *lease = NULL;
	gpumem_status status = gm_session_open(o->s, t->token, NULL, 0, &lease);
	struct m_lease *l = &m->leases[t->lease];
	bool may = t->used && (t->audience == GM_NAME_AUDIENCE_DOMAIN
					      ? m->sessions[l->maker].domain == o->domain
					      : t->id == o->uid);
	if (!may) {
		must(m, status == GPUMEM_E_NOT_FOUND && !lease, "opened what it may not");
		return;
	}
	if (status == GPUMEM_E_HOST_MEMORY && failing_malloc_fired())
		return;
	must(m, status == GPUMEM_OK && lease == l->l, "not opened: %d", status);
	for (size_t h = 0; h < l->n_holders; h++) {
		if (l->holders[h].session == s) {
			l->holders[h].count++;
			return;
		}
	}
	l->holders[l->n_holders].session = s;
	l->holders[l->n_holders++].count = 1;
	if (o->domain != m->sessions[l->maker].domain || !o->pooling)
		l->reusable = false;
}

static void step_unshare(struct model *m)
{
	int s = pick_session(m, true);
	int i = s < 0 ? -1 : pick_lease_of(m, s);
	if (i < 0)
		return;
	gpumem_status status = gm_lease_unshare(m->sessions[s].s, m->leases[i].l);
	must(m, status == (m->leases[i].maker == s ? GPUMEM_OK : GPUMEM_E_DENIED), "unshare");
	for (int t = 0; status == GPUMEM_OK && t < TOKENS; t++)
		if (m->tokens[t].lease == i)
			m->tokens[t].used = false;
}

static void cancelled(struct model *m, int session)
{
	for (int i = 0; i < REQUESTS; i++)
		if (m->requests[i].used && m->requests[i].session == session)
			must(m,
				m->requests[i].q.ended &&
					m->requests[i].q.status == GPUMEM_E_CANCELLED,
				"not cancelled");
}

static void step_end(struct model *m, bool died)
{
	int s = pick_session(m, !died);
	if (s < 0)
		return;
	if (died)
		gm_session_end_died(m->sessions[s].s);
	else
		gm_session_end_unmapped(m->sessions[s].s);
	cancelled(m, s);
	model_sweep(m);
	for (int i = 0; i < LEASES; i++)
		if (m->leases[i].l)
			model_drop(m, i, s, died);
	m->sessions[s].s = NULL;
}

static void step_quarantine(struct model *m)
{
	int s = pick_session(m, true);
	if (s < 0)
		return;
	gm_session_quarantine(m->sessions[s].s);
	m->sessions[s].quarantined = true;
	cancelled(m, s);
	must(m, fake_quarantined(m->sessions[s].s), "not quarantined");
}

static void step_resume(struct model *m)
{
	int s = pick_session(m, false);
	if (s < 0)
		return;
	struct m_session *o = &m->sessions[s];
	uint8_t token[GM_TOKEN_BYTES], next[GM_TOKEN_BYTES];
	memcpy(token, o->token, sizeof(token));
	if (model_roll(m, 3) == 0) {
		token[model_roll(m, GM_TOKEN_BYTES)] ^= (uint8_t)(1u << model_roll(m, 8));
		must(m, gm_session_resume(o->s, token, NULL, next) == -EACCES, "wrong token");
		return;
	}
	int r = gm_session_resume(o->s, token, NULL, next);
	must(m, r == (o->quarantined ? 0 : -EBUSY), "resume %d", r);
	if (r == 0) {
		o->quarantined = false;
		memcpy(o->token, next, sizeof(next));
	}
}

static void step_policy(struct model *m)
{
	uint32_t d = (uint32_t)model_roll(m, DEVICES);
	struct gm_policy *p = &m->info[d].policy;
	p->fraction = 0.5 + (double)model_roll(m, 51) / 100;
	p->min_free = model_roll(m, 4) * 100 * MiB;
	p->max_pool = model_roll(m, 3) ? UINT64_MAX : model_roll(m, 2 * GiB);
	p->max_per_bucket = model_roll(m, 3) ? 0 : (uint32_t)(1 + model_roll(m, 4));
	p->pooling = model_roll(m, 5) != 0;
	p->reserve = model_roll(m, 3) * 32 * MiB;
	p->pool_decay_ns = model_roll(m, 3) * 5000000000;
	gm_core_set_policy(m->fake.core, d, p);
}

static void step_sample(struct model *m)
{
	uint32_t d = (uint32_t)model_roll(m, DEVICES);
	uint64_t total = m->info[d].total, ours = m->fake.backend_bytes[d];
	uint64_t others = model_roll(m, 6) ? model_roll(m, 300 * MiB) : model_roll(m, total);
	uint64_t free_bytes = model_less(model_less(total, ours), others);
	m->foreign[d] = model_less(total - free_bytes, ours);
	gm_core_sample(m->fake.core, d, free_bytes);
}

/* Whether somebody has a chunk: a child of its client, or a liar. */
static bool is_mapped(void *ctx, const struct gm_chunk *chunk)
{
	const struct model *m = ctx;
	return chunk->id < m->n_chunks && m->chunks[chunk->id].mapped;
}

/* Processes get hold of chunks that are leased, and let go of chunks, whatever has become of them. */
static void step_map(struct model *m)
{
	uint64_t often = model_roll(m, 5);
	for (uint64_t id = 0; id < m->n_chunks; id++) {
		struct m_chunk *c = &m->chunks[id];
		if (c->mapped)
			c->mapped = model_roll(m, 8) >= often;
		else if (c->fate == LEASED)
			c->mapped = model_roll(m, 8) == 0;
	}
}

/* When nobody has anything any more, what is orphaned is found within seconds. */
static void let_all_go(struct model *m)
{
	for (uint64_t id = 0; id < m->n_chunks; id++)
		m->chunks[id].mapped = false;
	for (uint64_t end = m->fake.now + UINT64_C(7000000000); m->fake.now < end;) {
		uint64_t next = gm_core_tick(m->fake.core);
		m->fake.now = next > m->fake.now && next < end ? next : end;
	}
	gm_core_tick(m->fake.core);
	model_sweep(m);
	model_check(m);
	for (uint32_t d = 0; d < DEVICES; d++)
		must(m, fake_figures(&m->fake, d).orphaned == 0, "something is orphaned");
}

static void step(struct model *m)
{
	m->run.step++;
	if (model_roll(m, 10) == 0)
		failing_malloc_arm(1 + model_roll(m, 6));
	switch (model_roll(m, 41)) {
	case 0:
	case 1:
		step_connect(m);
		break;
	case 2 ... 8:
		step_ask(m, false);
		break;
	case 9 ... 11:
		step_ask(m, true);
		break;
	case 12 ... 22:
		for (uint64_t n = model_roll(m, 5); n-- > 0; model_sweep(m))
			step_complete(m);
		break;
	case 23 ... 25:
		step_return_chunks(m);
		break;
	case 26 ... 28:
		step_return(m);
		break;
	case 29:
		step_share(m);
		break;
	case 30 ... 31:
		step_open(m);
		break;
	case 32:
		if (model_roll(m, 4) == 0)
			step_unshare(m);
		break;
	case 33:
		if (model_roll(m, 3) == 0)
			step_end(m, model_roll(m, 2));
		break;
	case 34:
		if (model_roll(m, 2))
			step_quarantine(m);
		break;
	case 35 ... 36:
		step_resume(m);
		break;
	case 37:
		if (model_roll(m, 4) == 0)
			step_policy(m);
		else if (model_roll(m, 4) == 0)
			gm_core_trim(m->fake.core, (uint32_t)model_roll(m, DEVICES),
				&(uint64_t){UINT64_MAX});
		break;
	case 38:
		step_sample(m);
		break;
	case 39:
		m->fake.now += model_roll(m, 2000000000);
		gm_core_tick(m->fake.core);
		break;
	case 40:
		step_map(m);
		break;
	}
	failing_malloc_arm(0);
	model_sweep(m);
	model_check(m);
}

START_TEST(any_sequence_of_events_leaves_the_ledger_true)
{
	struct model *m = calloc(1, sizeof(*m));
	ck_assert_ptr_nonnull(m);
	model_run_init(&m->run, 20, (uint64_t)_i, STEPS);
	uint64_t n = m->run.steps;
	fake_core_init(&m->fake);
	m->fake.mapped = is_mapped;
	m->fake.mapped_ctx = m;
	m->fake.calls_off = _i % 2; /* whether what is cancelled is made all the same */
	for (uint32_t d = 0; d < DEVICES; d++) {
		m->info[d] = fake_info(d == 0 ? 4 * GiB : 6 * GiB + 10 * MiB);
		m->info[d].transport_ipc = d == 1;
		m->info[d].policy.reserve = d == 0 ? 64 * MiB : 0;
		m->info[d].policy.max_pool = UINT64_MAX;
		fake_core_add(&m->fake, &m->info[d]);
	}
	model_check(m);
	while (m->run.step < n)
		step(m);
	let_all_go(m);
	must(m, m->granted > n / 20 && m->refused > n / 200 && m->hits > n / 20,
		"the run tried little: %" PRIu64 " granted, %" PRIu64 " refused, %" PRIu64 " hits",
		m->granted, m->refused, m->hits);
	must(m, m->orphaned > n / 100, "only %" PRIu64 " chunks was orphaned", m->orphaned);
	gm_core_shutdown(m->fake.core);
	model_sweep(m);
	for (int i = 0; i < REQUESTS; i++)
		must(m, !m->requests[i].used, "a request never ended");
	fake_core_deinit(&m->fake);
	for (int i = 0; i < LEASES; i++)
		free(m->leases[i].chunks);
	free(m->chunks);
	free(m);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("core_model");
	TCase *tcase = tcase_create("model");
	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, any_sequence_of_events_leaves_the_ledger_true, 0, SEEDS);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
