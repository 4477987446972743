/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model that core is held against, and what must be true after every step. It adds everything
 * up from nothing each time, and must never ask core for what it means to check.
 *
 * Per device:
 *   1. created = leased + quarantined + pooled = what the backend has, less what is to be
 * destroyed;
 *   2. leased, quarantined and admitted are the model's sums, and so is what each session holds;
 *   3. pooled + charged <= ceiling, or nothing is pooled; the pool is within its bounds;
 *   4. capacity, ceiling, available, foreign and pressure are those of the design's arithmetic, and
 *      the level is what pressure asks for, up to the hysteresis;
 *   5. no chunk is in two leases, or in one and to be destroyed; every chunk that a lease has is
 *      listed by core, in rising order of index, and no index is given twice;
 *   6. a chunk that a lease gets was never leased before, or was returned by all of its holders,
 * who were of the same trust domain and alive; one that was not is to be destroyed at once;
 *   7. chunks counted = chunks the backend has or is making, less those to be destroyed;
 *   8. a chunk that somebody has when its last holder leaves it is orphaned: it is in no pool, the uid
 *      that made its lease is charged for it, and it is destroyed only after it was let go.
 * Of a request: what is granted is at least what was asked, and at most 1/64 more (ipc: a quarter
 * and a bit); it is granted when all of it is created, and charged for what it gets.
 */
#include "tests/unit/core/core_model.h"

#include <stdlib.h>
#include <string.h>

struct m_chunk *model_chunk(struct model *m, uint64_t id)
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

uint64_t model_ceiling(const struct model *m, uint32_t d, uint64_t foreign)
{
	const struct gm_policy *p = &m->info[d].policy;
	uint64_t a = (uint64_t)(p->fraction * (double)m->info[d].total);
	uint64_t b = model_less(model_less(m->info[d].total, p->min_free), foreign);
	return a < b ? a : b;
}

/* The users of the model. */
static const uid_t uids[] = {100, 200, 300};
#define UIDS (sizeof(uids) / sizeof(uids[0]))

/* What is charged on a device, in bytes. */
struct sums {
	uint64_t orphaned;   /* left, and somebody still maps it */
	uint64_t orphans;    /* leases whose makers left, and that only others hold */
	uint64_t left[UIDS]; /* of both, by the uid that made the lease */
	uint64_t held[SESSIONS], admitted[SESSIONS];
};

static void add_left(struct sums *sums, uid_t uid, uint64_t bytes)
{
	for (size_t i = 0; i < UIDS; i++)
		if (uids[i] == uid)
			sums->left[i] += bytes;
}

/* Adds up both devices in one pass: that is most of what the model computes. */
static void add_up(const struct model *m, struct sums sums[DEVICES])
{
	memset(sums, 0, DEVICES * sizeof(sums[0]));
	for (uint64_t id = 0; id < m->n_chunks; id++) {
		const struct m_chunk *c = &m->chunks[id];
		if (c->fate != ORPHANED)
			continue;
		sums[c->device].orphaned += c->bytes;
		add_left(&sums[c->device], c->uid, c->bytes);
	}

	for (int i = 0; i < LEASES; i++) {
		const struct m_lease *l = &m->leases[i];
		if (!l->l)
			continue;
		if (l->maker >= 0) {
			sums[l->device].held[l->maker] += l->bytes;
			continue;
		}
		sums[l->device].orphans += l->bytes;
		add_left(&sums[l->device], l->uid, l->bytes);
	}

	for (int i = 0; i < REQUESTS; i++) {
		const struct m_request *r = &m->requests[i];
		if (!r->used)
			continue;
		sums[r->device].held[r->session] += r->q.r.charged;
		sums[r->device].admitted[r->session] += r->missing;
	}
}

uint64_t model_charged(const struct model *m, uint32_t d)
{
	struct sums sums[DEVICES];
	add_up(m, sums);
	uint64_t sum = sums[d].orphans + sums[d].orphaned;
	for (int i = 0; i < SESSIONS; i++)
		if (m->sessions[i].s)
			sum += sums[d].held[i];
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

void model_unlease(struct model *m, struct m_lease *l, uint64_t id, bool reusable)
{
	struct m_chunk *c = model_chunk(m, id);
	must(m, c->fate == LEASED, "chunk %" PRIu64 " was not leased", id);
	c->fate = c->mapped ? ORPHANED : reusable ? RETURNED : BANNED;
	m->orphaned += c->mapped;
	c->lease = -1;
	l->bytes -= c->bytes;
}

void model_drop(struct model *m, int lease, int session, bool died)
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
		model_unlease(m, l, l->chunks[i], l->reusable);
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
			.uid = m->sessions[r->session].uid,
			.n_holders = 1,
			.for_others = r->q.r.for_others,
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
		struct m_chunk *k = model_chunk(m, c->id);
		must(m, !k->doomed, "chunk %" PRIu64 " is leased and to be destroyed", c->id);
		must(m, !k->mapped, "chunk %" PRIu64 " is leased while somebody has it", c->id);
		must(m, k->fate == UNKNOWN || (k->fate == RETURNED && k->domain == domain),
			"chunk %" PRIu64 " was used by another domain, or not returned", c->id);
		must(m, k->fate == UNKNOWN || !l->for_others,
			"chunk %" PRIu64 " was used before, and others will see it", c->id);
		must(m, k->fate == UNKNOWN || k->bytes == c->bytes, "a chunk changed its size");
		must(m, c->index >= l->next_index, "indices do not rise");
		must(m, c->transport == r->transport && c->device == r->device, "wrong kind");
		k->bytes = c->bytes;
		k->fate = LEASED;
		k->domain = domain;
		k->lease = i;
		k->device = r->device;
		k->uid = l->uid;
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
void model_sweep(struct model *m)
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

static void check_device(struct model *m, uint32_t d, const struct sums *sums)
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
	uint64_t leased = sums->orphans, admitted = 0;
	uint64_t orphaned = sums->orphaned, quarantined = orphaned;
	for (int i = 0; i < SESSIONS; i++) {
		uint64_t a = sums->admitted[i], held = sums->held[i];
		if (!m->sessions[i].s)
			continue;
		must(m, held == gm_session_held(m->sessions[i].s, d),
			"session %d holds %" PRIu64 ", should hold %" PRIu64, i,
			gm_session_held(m->sessions[i].s, d), held);
		admitted += a;
		*(m->sessions[i].quarantined ? &quarantined : &leased) += held - a;
	}
	must(m, f.leased == leased, "leased %" PRIu64 ", not %" PRIu64, f.leased, leased);
	must(m, f.quarantined == quarantined, "quarantined");
	must(m, f.orphaned == orphaned, "orphaned %" PRIu64 ", not %" PRIu64, f.orphaned, orphaned);
	for (size_t i = 0; i < UIDS; i++)
		must(m, fake_left_by(&m->fake, uids[i], d) == sums->left[i],
			"uid %u is charged for something else than it left", uids[i]);
	must(m, f.admitted == admitted, "admitted %" PRIu64 ", not %" PRIu64, f.admitted, admitted);
	must(m, f.created == leased + quarantined + f.pooled, "created");
	must(m, f.created + doomed == m->fake.backend_bytes[d], "what the backend has");
	must(m, f.chunks == m->fake.backend_chunks[d] - n_doomed + creating, "chunks");

	uint64_t all = leased + quarantined + admitted;
	uint64_t capacity = model_ceiling(m, d, 0), ceiling = model_ceiling(m, d, m->foreign[d]);
	must(m, f.foreign == m->foreign[d], "foreign");
	must(m, f.capacity == capacity && f.ceiling == ceiling, "capacity or ceiling");
	must(m, f.available == model_less(ceiling, all), "available");
	uint64_t ppm = 1000000;
	if (capacity)
		ppm = (uint64_t)((unsigned __int128)(capacity - f.available) * 1000000 / capacity);
	must(m, f.pressure_ppm == ppm, "pressure %u", f.pressure_ppm);
	/* The level goes with the pressure, up to the hysteresis. */
	for (unsigned i = 0; i < GM_LEVELS - 1; i++) {
		const struct gm_policy *policy = &m->info[d].policy;
		uint64_t from = policy->level_ppm[i];
		uint64_t least = from > policy->hysteresis_ppm ? from - policy->hysteresis_ppm : 0;
		must(m, ppm < from || (unsigned)f.level > i, "too low a level");
		must(m, ppm >= least || (unsigned)f.level <= i, "too high a level");
	}
	must(m, f.pooled == 0 || f.pooled + all <= ceiling, "the pool is in the way");
	must(m, f.peak_charged >= all, "peak");

	uint64_t pool[2] = {0, 0};
	const struct gm_policy *p = &m->info[d].policy;
	gm_core_pool_each(m->fake.core, d, check_bucket, pool);
	must(m, pool[0] == f.pooled, "the buckets do not add up");
	must(m, f.pooled <= (p->max_pool == UINT64_MAX ? capacity / 4 : p->max_pool), "max_pool");
	must(m, !p->max_per_bucket || pool[1] <= p->max_per_bucket, "max_per_bucket");
}

static void note_doomed(struct model *m, uint64_t id)
{
	struct m_chunk *c = model_chunk(m, id);
	if (!c->doomed && c->fate == ORPHANED) {
		must(m, !c->mapped, "chunk %" PRIu64 " is destroyed while somebody has it", id);
		c->fate = BANNED;
	}
	c->doomed = true;
}

void model_check(struct model *m)
{
	/* So that no step has to make room while memory is made to fail. */
	model_chunk(m, m->fake.last_id);
	for (size_t i = 0; i < m->fake.n_jobs; i++)
		if (m->fake.jobs[i].destroy)
			note_doomed(m, m->fake.jobs[i].chunk->id);
	for (uint64_t id = 0; id < m->n_chunks; id++)
		must(m, m->chunks[id].fate != BANNED || m->chunks[id].doomed,
			"chunk %" PRIu64 " must not be used again and is not destroyed", id);
	struct sums sums[DEVICES];
	add_up(m, sums);
	for (uint32_t d = 0; d < DEVICES; d++)
		check_device(m, d, &sums[d]);
	check_leases(m);
}
