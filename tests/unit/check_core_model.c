/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core against a model: any sequence of requests, grows, returns, shares, opens, deaths,
 * disconnects, resumes, trims, new policies, foreign memory, jobs that end in any order, jobs that
 * fail, and allocations that fail. The model knows who holds which chunk and nothing of how core
 * finds that out; it adds everything up from nothing after every step.
 *
 * After every step, per device:
 *   1. created = leased + quarantined + pooled = what the backend has, less what is to be
 * destroyed;
 *   2. leased, quarantined and admitted are the model's sums, and so is what each session holds;
 *   3. pooled + charged <= ceiling, or nothing is pooled; the pool is within its bounds;
 *   4. capacity, ceiling, available, foreign and pressure are those of the design's arithmetic;
 *   5. no chunk is in two leases, or in one and to be destroyed; every chunk that a lease has is
 *      listed by core, in rising order of index, and no index is given twice;
 *   6. a chunk that a lease gets was never leased before, or was returned by all of its holders,
 * who were of the same trust domain and alive; one that was not is to be destroyed at once;
 *   7. chunks counted = chunks the backend has or is making, less those to be destroyed.
 * At a request: it is refused for want of memory exactly if its whole 2 MiB exceed what is
 * available; what is granted is at least what was asked, and at most 1/64 more (ipc: a quarter and
 * a bit). Each request ends once. At the end nothing is left.
 *
 * GM_MODEL_SEED=n runs other seeds (the first one is n), GM_MODEL_STEPS=n more or fewer steps. A
 * failure names both.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/unit/failing_malloc.h"
#include "tests/unit/fake_core.h"

#define SEEDS    8
#define STEPS    12000
#define SESSIONS 10
#define LEASES   160
#define HOLDERS  SESSIONS
#define REQUESTS 24
#define TOKENS   40
#define DEVICES  2

enum fate { UNKNOWN, LEASED, RETURNED, BANNED };

struct m_chunk {
	uint64_t bytes;
	enum fate fate;
	gm_domain domain;
	int lease, request;
	bool doomed;
};

struct m_session {
	struct gm_session *s;
	bool quarantined, pooling;
	gm_domain domain;
	uid_t uid;
	uint8_t token[GM_TOKEN_BYTES];
};

struct m_lease {
	struct gm_lease *l;
	uint64_t id, next_index, bytes;
	uint32_t device;
	int maker;
	struct {
		int session;
		unsigned count;
	} holders[HOLDERS];
	size_t n_holders;
	bool reusable;
	uint64_t *chunks; /* ids, in order */
	size_t n_chunks;
};

struct m_request {
	struct fake_request q;
	bool used, grow, created_failed;
	int session, lease;
	uint32_t device;
	uint64_t exact, missing;
	enum gm_transport transport;
};

struct m_token {
	bool used;
	uint8_t token[GM_TOKEN_BYTES];
	int lease;
	enum gm_audience audience;
	uint32_t id;
};

struct model {
	struct fake_core fake;
	uint64_t seed, step, random;
	struct m_chunk *chunks; /* by id */
	uint64_t n_chunks;
	struct m_session sessions[SESSIONS];
	struct m_lease leases[LEASES];
	struct m_request requests[REQUESTS];
	struct m_token tokens[TOKENS];
	struct gm_core_device_info info[DEVICES];
	uint64_t foreign[DEVICES];
	uint64_t granted, refused, hits;
};

#define must(m, condition, ...) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "# GM_MODEL_SEED=%" PRIu64 " step %" PRIu64 ": ", \
				(m)->seed, (m)->step); \
			fprintf(stderr, __VA_ARGS__); \
			fprintf(stderr, "\n"); \
			ck_abort_msg("seed %" PRIu64 " step %" PRIu64 ": %s", (m)->seed, \
				(m)->step, #condition); \
		} \
	} while (0)

static uint64_t roll(struct model *m, uint64_t below)
{
	m->random ^= m->random << 13;
	m->random ^= m->random >> 7;
	m->random ^= m->random << 17;
	return (m->random >> 11) % below;
}

static struct m_chunk *chunk_at(struct model *m, uint64_t id)
{
	if (id >= m->n_chunks) {
		uint64_t n = id * 2 + 64;
		m->chunks = realloc(m->chunks, n * sizeof(m->chunks[0]));
		must(m, m->chunks, "no memory");
		memset(m->chunks + m->n_chunks, 0, (n - m->n_chunks) * sizeof(m->chunks[0]));
		for (uint64_t i = m->n_chunks; i < n; i++)
			m->chunks[i].lease = m->chunks[i].request = -1;
		m->n_chunks = n;
	}
	return &m->chunks[id];
}

/* ---- the model's own arithmetic */

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static uint64_t ceiling_of(const struct model *m, uint32_t d, uint64_t foreign)
{
	const struct gm_policy *p = &m->info[d].policy;
	uint64_t a = (uint64_t)(p->fraction * (double)m->info[d].total);
	uint64_t b = less(less(m->info[d].total, p->min_free), foreign);
	return a < b ? a : b;
}

static uint64_t charged_to(const struct model *m, int session, uint32_t d, uint64_t *ret_admitted)
{
	uint64_t held = 0, admitted = 0;
	for (int i = 0; i < LEASES; i++)
		if (m->leases[i].l && m->leases[i].device == d &&
			m->leases[i].holders[0].session == session)
			held += m->leases[i].bytes;
	for (int i = 0; i < REQUESTS; i++) {
		const struct m_request *r = &m->requests[i];
		if (r->used && r->session == session && r->device == d) {
			held += r->q.r.charged;
			admitted += r->missing;
		}
	}
	*ret_admitted = admitted;
	return held;
}

static uint64_t charged(const struct model *m, uint32_t d)
{
	uint64_t sum = 0, admitted;
	for (int i = 0; i < SESSIONS; i++)
		if (m->sessions[i].s)
			sum += charged_to(m, i, d, &admitted);
	return sum;
}

/* ---- what changes in the model */

static void forget_lease(struct model *m, int i)
{
	for (int t = 0; t < TOKENS; t++)
		if (m->tokens[t].lease == i)
			m->tokens[t].used = false;
	free(m->leases[i].chunks);
	memset(&m->leases[i], 0, sizeof(m->leases[i]));
}

static void unlease(struct model *m, struct m_lease *l, uint64_t id, bool reusable)
{
	struct m_chunk *c = chunk_at(m, id);
	must(m, c->fate == LEASED, "chunk %" PRIu64 " was not leased", id);
	c->fate = reusable ? RETURNED : BANNED;
	c->lease = -1;
	l->bytes -= c->bytes;
}

static void drop_holder(struct model *m, int lease, int session, bool died)
{
	struct m_lease *l = &m->leases[lease];
	size_t h = 0;
	while (h < l->n_holders && l->holders[h].session != session)
		h++;
	if (h == l->n_holders)
		return;
	memmove(&l->holders[h], &l->holders[h + 1], (--l->n_holders - h) * sizeof(l->holders[0]));
	if (l->maker == session) {
		l->maker = -1;
		for (int t = 0; t < TOKENS; t++)
			if (m->tokens[t].lease == lease)
				m->tokens[t].used = false;
	}
	if (died)
		l->reusable = false;
	if (l->n_holders > 0)
		return;
	for (size_t i = 0; i < l->n_chunks; i++)
		unlease(m, l, l->chunks[i], l->reusable);
	must(m, l->bytes == 0, "bytes left in a lease that ended");
	forget_lease(m, lease);
}

static void granted(struct model *m, struct m_request *r)
{
	int i = r->lease;
	if (!r->grow) {
		for (i = 0; m->leases[i].l; i++)
			must(m, i < LEASES - 1, "too many leases for the model");
		struct m_lease *l = &m->leases[i];
		struct gm_lease_info info;
		gm_lease_info(r->q.r.lease, r->q.r.session, &info);
		*l = (struct m_lease){.l = r->q.r.lease,
			.id = info.id,
			.device = r->device,
			.maker = r->session,
			.n_holders = 1,
			.reusable = m->sessions[r->session].pooling};
		l->holders[0].session = r->session;
		l->holders[0].count = 1;
		must(m, info.device == r->device && !info.read_only, "info of the lease");
	}
	struct m_lease *l = &m->leases[i];
	uint64_t got = 0;
	gm_domain domain = m->sessions[r->session].domain;
	must(m, r->q.r.first_index >= l->next_index, "an index is given twice");
	for (const struct gm_chunk *c = gm_lease_chunk(l->l, r->q.r.first_index); c; c = c->next) {
		struct m_chunk *k = chunk_at(m, c->id);
		must(m, !k->doomed, "chunk %" PRIu64 " is leased and to be destroyed", c->id);
		must(m, k->fate == UNKNOWN || (k->fate == RETURNED && k->domain == domain),
			"chunk %" PRIu64 " was used by another domain, or not returned", c->id);
		must(m, k->fate == UNKNOWN || k->bytes == c->bytes, "a chunk changed its size");
		must(m, c->index >= l->next_index, "indices do not rise");
		must(m, c->transport == r->transport && c->device == r->device, "wrong kind");
		k->bytes = c->bytes;
		k->fate = LEASED;
		k->domain = domain;
		k->lease = i;
		k->request = -1;
		l->next_index = c->index + 1;
		l->chunks = realloc(l->chunks, (l->n_chunks + 1) * sizeof(l->chunks[0]));
		must(m, l->chunks, "no memory");
		l->chunks[l->n_chunks++] = c->id;
		got += c->bytes;
	}
	l->bytes += got;
	must(m, got == r->q.r.charged, "charged for something else than what was granted");
	must(m, got >= r->exact, "granted less than asked");
	if (r->transport == GM_TRANSPORT_FD)
		must(m, got - r->exact <= r->exact / 64, "rounded by more than 1/64");
	else
		must(m, got - r->exact <= r->exact / 4 + 2 * MiB, "not the next class");
	m->granted++;
}

/* Requests that ended since the last time. */
static void sweep(struct model *m)
{
	for (int i = 0; i < REQUESTS; i++) {
		struct m_request *r = &m->requests[i];
		if (!r->used || !r->q.ended)
			continue;
		r->used = false;
		if (r->q.status == GPUMEM_OK) {
			must(m, r->missing == 0, "granted before everything was created");
			granted(m, r);
			continue;
		}
		must(m, r->q.detail[0], "refused without a word");
		m->refused++;
		for (uint64_t id = 0; id < m->n_chunks; id++)
			if (m->chunks[id].request == i)
				m->chunks[id].request = -1;
	}
}

/* ---- the invariants */

static void check_bucket(void *ctx, const struct gm_pool_bucket_info *bucket)
{
	uint64_t *sum = ctx;
	sum[0] += bucket->chunks * bucket->chunk_bytes;
	if (bucket->chunks > sum[1])
		sum[1] = bucket->chunks;
}

static void check_leases(struct model *m)
{
	uint64_t n = 0;
	for (int i = 0; i < LEASES; i++) {
		struct m_lease *l = &m->leases[i];
		if (!l->l)
			continue;
		n++;
		const struct gm_chunk *c = gm_lease_chunk(l->l, 0);
		for (size_t k = 0; k < l->n_chunks; k++, c = c->next) {
			must(m, c && c->id == l->chunks[k], "a chunk is not where it was");
			must(m, !m->chunks[c->id].doomed, "a leased chunk is to be destroyed");
			must(m, m->chunks[c->id].lease == i, "a chunk is in two leases");
		}
		must(m, !c, "a lease has a chunk too many");
		for (size_t h = 0; h < l->n_holders; h++)
			must(m,
				gm_session_find_lease(
					m->sessions[l->holders[h].session].s, l->id) == l->l,
				"a holder does not find its lease");
	}
	must(m, gm_core_lease_count(m->fake.core) == n, "count of leases");
}

static void check_device(struct model *m, uint32_t d)
{
	struct gm_device_figures f = fake_figures(&m->fake, d);
	uint64_t doomed = 0, n_doomed = 0, creating = 0;
	for (size_t i = 0; i < m->fake.n_jobs; i++) {
		const struct fake_job *job = &m->fake.jobs[i];
		if (job->chunk->device != d)
			continue;
		if (!job->destroy) {
			creating++;
			continue;
		}
		doomed += job->chunk->bytes;
		n_doomed++;
	}
	uint64_t leased = 0, quarantined = 0, admitted = 0;
	for (int i = 0; i < SESSIONS; i++) {
		uint64_t a, held;
		if (!m->sessions[i].s)
			continue;
		held = charged_to(m, i, d, &a);
		must(m, held == gm_session_held(m->sessions[i].s, d),
			"session %d holds %" PRIu64 ", should hold %" PRIu64, i,
			gm_session_held(m->sessions[i].s, d), held);
		admitted += a;
		*(m->sessions[i].quarantined ? &quarantined : &leased) += held - a;
	}
	must(m, f.leased == leased, "leased %" PRIu64 ", not %" PRIu64, f.leased, leased);
	must(m, f.quarantined == quarantined, "quarantined");
	must(m, f.admitted == admitted, "admitted %" PRIu64 ", not %" PRIu64, f.admitted, admitted);
	must(m, f.created == leased + quarantined + f.pooled, "created");
	must(m, f.created + doomed == m->fake.backend_bytes[d], "what the backend has");
	must(m, f.chunks == m->fake.backend_chunks[d] - n_doomed + creating, "chunks");

	uint64_t all = leased + quarantined + admitted;
	uint64_t capacity = ceiling_of(m, d, 0), ceiling = ceiling_of(m, d, m->foreign[d]);
	must(m, f.foreign == m->foreign[d], "foreign");
	must(m, f.capacity == capacity && f.ceiling == ceiling, "capacity or ceiling");
	must(m, f.available == less(ceiling, all), "available");
	must(m,
		f.pressure_ppm == (capacity ? (uint32_t)((double)(capacity - f.available) * 1e6 /
							 (double)capacity)
					    : 1000000) ||
			capacity > (UINT64_C(1) << 33),
		"pressure %u", f.pressure_ppm);
	must(m, f.pooled == 0 || f.pooled + all <= ceiling, "the pool is in the way");
	must(m, f.peak_charged >= all, "peak");

	uint64_t pool[2] = {0, 0};
	const struct gm_policy *p = &m->info[d].policy;
	gm_core_pool_each(m->fake.core, d, check_bucket, pool);
	must(m, pool[0] == f.pooled, "the buckets do not add up");
	must(m, f.pooled <= (p->max_pool == UINT64_MAX ? capacity / 4 : p->max_pool), "max_pool");
	must(m, !p->max_per_bucket || pool[1] <= p->max_per_bucket, "max_per_bucket");
}

static void check_all(struct model *m)
{
	/* So that no step has to make room while memory is made to fail. */
	chunk_at(m, m->fake.last_id);
	for (size_t i = 0; i < m->fake.n_jobs; i++)
		if (m->fake.jobs[i].destroy)
			chunk_at(m, m->fake.jobs[i].chunk->id)->doomed = true;
	for (uint64_t id = 0; id < m->n_chunks; id++)
		must(m, m->chunks[id].fate != BANNED || m->chunks[id].doomed,
			"chunk %" PRIu64 " must not be used again and is not destroyed", id);
	for (uint32_t d = 0; d < DEVICES; d++)
		check_device(m, d);
	check_leases(m);
}

/* ---- the steps */

static int pick_session(struct model *m, bool connected)
{
	for (int tries = 0; tries < 4 * SESSIONS; tries++) {
		int i = (int)roll(m, SESSIONS);
		if (m->sessions[i].s && !(connected && m->sessions[i].quarantined))
			return i;
	}
	return -1;
}

static int pick_lease_of(struct model *m, int session)
{
	uint64_t start = roll(m, LEASES);
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
	size_t k = roll(m, sizeof(kinds) / sizeof(kinds[0]));
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
	switch (roll(m, 12)) {
	case 0:
		return roll(m, 3) ? 1 + roll(m, 100 * MiB) : 1 + roll(m, 3 * GiB);
	case 1:
		return 1 + roll(m, 600 * MiB);
	case 3:
		return (1 + roll(m, 64)) * 2 * MiB;
	default:
		return 1 + roll(m, 40 * MiB);
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
	r->device = grow ? m->leases[lease].device : (uint32_t)roll(m, DEVICES);
	enum gm_transport asked = roll(m, 6) == 0 ? GM_TRANSPORT_IPC : GM_TRANSPORT_AUTO;
	if (grow) {
		struct gm_lease_info info;
		gm_lease_info(m->leases[lease].l, m->sessions[s].s, &info);
		asked = info.transport;
	}
	r->transport = asked == GM_TRANSPORT_AUTO ? GM_TRANSPORT_FD : asked;
	uint64_t bytes = some_bytes(m);
	r->exact = (bytes + 2 * MiB - 1) / (2 * MiB) * (2 * MiB);
	uint64_t available =
		less(ceiling_of(m, r->device, m->foreign[r->device]), charged(m, r->device));
	size_t jobs = m->fake.n_jobs;
	uint64_t hits = fake_pool(&m->fake, r->device).hits;

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
		chunk_at(m, job->chunk->id)->request = slot;
	}
	must(m, r->q.ended || r->missing > 0, "waits for nothing");
	must(m, charged(m, r->device) <= ceiling_of(m, r->device, m->foreign[r->device]),
		"admitted past the ceiling");
}

static void step_complete(struct model *m)
{
	if (m->fake.n_jobs == 0)
		return;
	size_t i = roll(m, m->fake.n_jobs);
	struct fake_job job = m->fake.jobs[i];
	uint64_t id = job.chunk->id, bytes = job.chunk->bytes;
	uint64_t luck = roll(m, 20);
	int result = luck == 0 ? -ENOMEM : luck == 1 ? -EIO : 0;
	int request = job.destroy ? -1 : chunk_at(m, id)->request;
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
		must(m, !chunk_at(m, id)->doomed, "tried again and destroyed");
		must(m, fake_figures(&m->fake, r->device).pooled == 0, "the pool was kept");
		return;
	}
	must(m, r->q.ended == 1, "goes on without a chunk");
	must(m, r->q.status == (result == -ENOMEM ? GPUMEM_E_NO_MEMORY : GPUMEM_E_SYSTEM),
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
		if (roll(m, 2))
			ids[n++] = l->chunks[k];
	if (n > 0 && roll(m, 6) == 0) {
		ids[n] = roll(m, 2) ? ids[roll(m, n)] : m->fake.last_id + 1 - roll(m, 2) * 5;
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
		unlease(m, l, ids[k], l->reusable);
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
			drop_holder(m, i, s, false);
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
	struct gm_share_options options = {.audience = roll(m, 3), .read_only = roll(m, 2)};
	options.id = uids[roll(m, 3)];
	gpumem_status status =
		gm_lease_share(m->sessions[s].s, m->leases[i].l, &options, m->tokens[t].token);
	if (m->leases[i].maker != s) {
		must(m, status == GPUMEM_E_DENIED, "shared by an opener");
		return;
	}
	if (status == GPUMEM_E_HOST_MEMORY && failing_malloc_fired())
		return;
	must(m, status == GPUMEM_OK, "not shared: %d", status);
	m->tokens[t].used = true;
	m->tokens[t].lease = i;
	m->tokens[t].audience = options.audience;
	m->tokens[t].id = options.id;
}

static void step_open(struct model *m)
{
	int s = pick_session(m, true);
	struct m_token *t = &m->tokens[roll(m, TOKENS)];
	if (s < 0)
		return;
	struct m_session *o = &m->sessions[s];
	struct gm_lease *lease = NULL;
	gpumem_status status = gm_session_open(o->s, t->token, NULL, 0, &lease);
	struct m_lease *l = &m->leases[t->lease];
	bool may = t->used &&
		   (t->audience == GM_AUDIENCE_DOMAIN ? m->sessions[l->maker].domain == o->domain
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
	sweep(m);
	for (int i = 0; i < LEASES; i++)
		if (m->leases[i].l)
			drop_holder(m, i, s, died);
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
	must(m, gm_session_quarantined(m->sessions[s].s), "not quarantined");
}

static void step_resume(struct model *m)
{
	int s = pick_session(m, false);
	if (s < 0)
		return;
	struct m_session *o = &m->sessions[s];
	uint8_t token[GM_TOKEN_BYTES], next[GM_TOKEN_BYTES];
	memcpy(token, o->token, sizeof(token));
	if (roll(m, 3) == 0) {
		token[roll(m, GM_TOKEN_BYTES)] ^= (uint8_t)(1u << roll(m, 8));
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
	uint32_t d = (uint32_t)roll(m, DEVICES);
	struct gm_policy *p = &m->info[d].policy;
	p->fraction = 0.5 + (double)roll(m, 51) / 100;
	p->min_free = roll(m, 4) * 100 * MiB;
	p->max_pool = roll(m, 3) ? UINT64_MAX : roll(m, 2 * GiB);
	p->max_per_bucket = roll(m, 3) ? 0 : (uint32_t)(1 + roll(m, 4));
	p->pooling = roll(m, 5) != 0;
	p->reserve = roll(m, 3) * 32 * MiB;
	gm_core_set_policy(m->fake.core, d, p);
}

static void step_sample(struct model *m)
{
	uint32_t d = (uint32_t)roll(m, DEVICES);
	uint64_t total = m->info[d].total, ours = m->fake.backend_bytes[d];
	uint64_t others = roll(m, 6) ? roll(m, 300 * MiB) : roll(m, total);
	uint64_t free_bytes = less(less(total, ours), others);
	m->foreign[d] = less(total - free_bytes, ours);
	gm_core_sample(m->fake.core, d, free_bytes);
}

static void step(struct model *m)
{
	m->step++;
	if (roll(m, 10) == 0)
		failing_malloc_arm(1 + roll(m, 6));
	switch (roll(m, 40)) {
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
		for (uint64_t n = roll(m, 5); n-- > 0; sweep(m))
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
		if (roll(m, 4) == 0)
			step_unshare(m);
		break;
	case 33:
		if (roll(m, 3) == 0)
			step_end(m, roll(m, 2));
		break;
	case 34:
		if (roll(m, 2))
			step_quarantine(m);
		break;
	case 35 ... 36:
		step_resume(m);
		break;
	case 37:
		if (roll(m, 4) == 0)
			step_policy(m);
		else if (roll(m, 4) == 0)
			gm_core_trim(m->fake.core, (uint32_t)roll(m, DEVICES));
		break;
	case 38:
		step_sample(m);
		break;
	case 39:
		m->fake.now += roll(m, 2000000000);
		gm_core_tick(m->fake.core);
		break;
	}
	failing_malloc_arm(0);
	sweep(m);
	check_all(m);
}

START_TEST(any_sequence_of_events_leaves_the_ledger_true)
{
	const char *seed = getenv("GM_MODEL_SEED"), *steps = getenv("GM_MODEL_STEPS");
	struct model *m = calloc(1, sizeof(*m));
	ck_assert_ptr_nonnull(m);
	m->seed = (seed ? strtoull(seed, NULL, 0) : 20) + (uint64_t)_i;
	uint64_t n = steps ? strtoull(steps, NULL, 0) : STEPS;
	/* An assertion inside core ends the process: say now which run it was. */
	fprintf(stderr, "# GM_MODEL_SEED=%" PRIu64 "\n", m->seed);
	m->random = (m->seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
	fake_core_init(&m->fake);
	for (uint32_t d = 0; d < DEVICES; d++) {
		m->info[d] = fake_info(d == 0 ? 4 * GiB : 6 * GiB + 10 * MiB);
		m->info[d].transport_ipc = d == 1;
		m->info[d].policy.reserve = d == 0 ? 64 * MiB : 0;
		m->info[d].policy.max_pool = UINT64_MAX;
		fake_core_add(&m->fake, &m->info[d]);
	}
	check_all(m);
	while (m->step < n)
		step(m);
	must(m, m->granted > n / 20 && m->refused > n / 200 && m->hits > n / 20,
		"the run tried little: %" PRIu64 " granted, %" PRIu64 " refused, %" PRIu64 " hits",
		m->granted, m->refused, m->hits);
	gm_core_shutdown(m->fake.core);
	sweep(m);
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
