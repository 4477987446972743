/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits, queue and ladder against a model: any sequence of requests that wait or do not, cancels,
 * returns, deaths, disconnects, new limits, new policies, foreign memory, steps of the clock, jobs
 * that end in any order or fail, and clients that answer a reclaim, lie, or say nothing. (Leases,
 * shares and the ledger have their own model: core_model.c.)
 *
 * After every step, per device:
 *   1. what a limit is shown to hold is the sum over the clients that it matches, as the model
 *      matches them; it did not grow if it is above its max;
 *   2. nothing was charged past the ceiling, nor into what is guaranteed to owners that got
 * nothing;
 *   3. the queue lists exactly the requests that are neither done nor under creation, by priority
 * and then by arrival, none of them past its time, none that could never be granted, and those that
 *      may not wait no longer than twice the deadline of a reclaim;
 *   4. a waiting request fits only if one before it has been overtaken as often as it may, or if
 *      pressure is critical and a client of a higher priority is there;
 *   5. nobody is overtaken more often than that, by the model's count as well: of a request that
 * was blocked by the device all the time, all grants to those behind it;
 *   6. unless a reclaim is under way or foreign memory is in the way, somebody who holds memory
 * does not wait for more;
 *   7. a client that was asked on behalf of a request or by hand is not asked for a request again
 *      before it returned that much or the deadline passed, and never while it is off the socket;
 *   8. the level goes back up to where it fell from only after the dwell;
 *   9. figures and backend agree (fake_core_check()).
 * Each request ends once, and nothing is left at the end.
 *
 * GM_MODEL_SEED=n and GM_MODEL_STEPS=n as in check_core_model.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/core/ladder.h"
#include "daemon/core/queue.h"
#include "daemon/core/quota.h"
#include "tests/tap.h"
#include "tests/unit/fake_core.h"

#define SECOND   UINT64_C(1000000000)
#define SESSIONS 12
#define REQUESTS 40
#define LEASES   8
#define OWNERS   9
#define STEPS    6000
#define SEEDS    8

struct m_session {
	struct gm_session *s;
	uid_t uid;
	gid_t gid;
	const char *unit, *container, *name;
	bool away;
	uint64_t held; /* at the last check */
	uint64_t asked_until, asked, returned;
};

struct m_request {
	struct fake_request q;
	bool used, waits, seen;
	int session;
	uint64_t exact, until, arrival;
	bool always_device; /* blocked by the device whenever it was looked at */
	int32_t priority;   /* when it was last looked at */
	unsigned behind;    /* grants to those behind it */
};

struct model {
	struct fake_core fake;
	uint64_t seed, step, random, arrivals;
	struct gm_policy policy;
	uint64_t total, foreign;
	struct m_session sessions[SESSIONS];
	struct m_request requests[REQUESTS];
	uint64_t limit_held[OWNERS];
	enum gm_level level, fell_from;
	uint64_t fell_ns;
	uint64_t asks;
	struct {
		uint64_t granted, late, refused, limit, timeout, deadlock, never, exhausted, turned;
		uint64_t asked, ignored, victims;
	} n;
};

static const char *const owners[OWNERS] = {"uid:1", "uid:2", "uid:3", "gid:1", "gid:2", "unit:a",
	"container:x", "container:y", "client:me"};

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

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* ---- the model's own arithmetic */

static bool matches(const struct m_session *s, const struct gm_owner *o)
{
	switch (o->kind) {
	case GM_OWNER_UID:
		return s->uid == o->id;
	case GM_OWNER_GID:
		return s->gid == o->id;
	case GM_OWNER_UNIT:
		return s->unit && strcmp(s->unit, o->name) == 0;
	case GM_OWNER_CONTAINER:
		return s->container && strcmp(s->container, o->name) == 0;
	case GM_OWNER_NAME:
		return s->name && strcmp(s->name, o->name) == 0;
	}
	return false;
}

struct limits {
	struct gm_quota_info info[OWNERS];
	size_t n;
};

static void list_limit(void *ctx, const struct gm_quota_info *info)
{
	struct limits *limits = ctx;
	ck_assert_uint_lt(limits->n, OWNERS);
	limits->info[limits->n++] = *info;
}

struct listed {
	struct gm_queue_info info[REQUESTS];
	struct gm_owner owner[REQUESTS];
	size_t n;
};

static void list_waiting(void *ctx, const struct gm_queue_info *info)
{
	struct listed *listed = ctx;
	ck_assert_uint_lt(listed->n, REQUESTS);
	if (info->owner)
		listed->owner[listed->n] = *info->owner;
	listed->info[listed->n++] = *info;
}

/* What a session could be given now, by its limits and the device. */
static uint64_t room(const struct limits *limits, const struct m_session *s, uint64_t ceiling,
	uint64_t charged, uint64_t *ret_ever, uint64_t capacity)
{
	uint64_t kept = 0, promised = 0, most = UINT64_MAX, ever = UINT64_MAX;
	for (size_t i = 0; i < limits->n; i++) {
		const struct gm_quota_info *l = &limits->info[i];
		if (!matches(s, &l->owner)) {
			kept += less(l->values.guarantee, l->held);
			promised += l->values.guarantee;
			continue;
		}
		if (less(l->values.max, l->held) < most)
			most = less(l->values.max, l->held);
		if (l->values.max < ever)
			ever = l->values.max;
	}
	uint64_t device = less(ceiling, charged + kept);
	*ret_ever = less(capacity, promised) < ever ? less(capacity, promised) : ever;
	return device < most ? device : most;
}

/* ---- the invariants */

static struct m_request *find(struct model *m, const struct gm_request *r)
{
	for (int i = 0; i < REQUESTS; i++)
		if (m->requests[i].used && &m->requests[i].q.r == r)
			return &m->requests[i];
	return NULL;
}

static bool behind(const struct m_request *w, const struct m_request *x)
{
	return x->priority < w->priority || (x->priority == w->priority && x->arrival > w->arrival);
}

static void check_limits(struct model *m, const struct limits *limits,
	const struct gm_device_figures *f, bool grew_any, const bool grew[SESSIONS])
{
	uint64_t unmet = 0, charged = f->leased + f->quarantined + f->admitted;
	for (size_t i = 0; i < limits->n; i++) {
		const struct gm_quota_info *l = &limits->info[i];
		uint64_t held = 0;
		bool grew_here = false;
		for (int k = 0; k < SESSIONS; k++) {
			if (!m->sessions[k].s || !matches(&m->sessions[k], &l->owner))
				continue;
			held += gm_session_held(m->sessions[k].s, 0);
			grew_here |= grew[k];
		}
		must(m, l->held == held, "a limit holds %" PRIu64 ", not %" PRIu64, l->held, held);
		must(m, l->over == (held > l->values.max), "over");
		must(m, held <= l->values.max || !grew_here, "a limit was passed");
		if (!grew_here)
			unmet += less(l->values.guarantee, held);
	}
	if (!grew_any)
		return;
	must(m, charged <= f->ceiling, "charged past the ceiling");
	must(m, f->ceiling - charged >= unmet, "a guarantee was given away");
}

static void check_queue(struct model *m, const struct limits *limits,
	const struct gm_device_figures *f, const struct listed *queue)
{
	uint64_t charged = f->leased + f->quarantined + f->admitted;
	int32_t top = INT32_MIN;
	bool device_waits = false, moves = false, holds = false, asking = false;
	size_t waiting = 0;
	for (int i = 0; i < REQUESTS; i++)
		waiting += m->requests[i].used && !m->requests[i].q.ended &&
			   m->requests[i].q.r.waiting.queued;
	must(m, waiting == queue->n, "the queue has %zu, not %zu", queue->n, waiting);
	for (int k = 0; k < SESSIONS; k++)
		if (m->sessions[k].s && gm_session_priority(m->sessions[k].s, 0) > top)
			top = gm_session_priority(m->sessions[k].s, 0);
	bool waits[SESSIONS] = {false}, exhausted = false;
	for (size_t i = 0; i < queue->n; i++) {
		const struct gm_queue_info *w = &queue->info[i];
		struct m_request *r = find(m, w->request);
		must(m, r && !r->q.ended, "somebody waits who is done");
		const struct m_session *s = &m->sessions[r->session];
		r->priority = gm_session_priority(s->s, 0);
		must(m, w->priority == r->priority, "priority");
		must(m, w->parked == !r->waits, "parked");
		must(m, m->fake.now < r->until, "it is past its time");
		must(m, w->overtaken <= GM_QUEUE_OVERTAKES, "overtaken %u times", w->overtaken);
		if (!r->seen)
			r->always_device = true;
		r->seen = true;
		if (w->block != GM_BLOCK_DEVICE)
			r->always_device = false;
		must(m, !r->always_device || r->behind <= GM_QUEUE_OVERTAKES,
			"%u got what it waits for", r->behind);
		if (i > 0) {
			struct m_request *before = find(m, queue->info[i - 1].request);
			must(m, behind(before, r), "the order");
		}
		uint64_t ever, now = room(limits, s, f->ceiling, charged, &ever, f->capacity);
		must(m, r->exact <= ever, "it waits for what it can never have");
		bool held_back = f->level == GM_LEVEL_CRITICAL && r->priority < top;
		must(m, r->exact > now || held_back || exhausted, "it fits and waits: block %d",
			w->block);
		must(m, w->block != GM_BLOCK_TURN || exhausted, "it waits for no one's turn");
		if (w->block == GM_BLOCK_QUOTA)
			must(m, w->owner && matches(s, w->owner), "somebody else's limit");
		exhausted |= w->overtaken == GM_QUEUE_OVERTAKES;
		m->n.exhausted += w->overtaken == GM_QUEUE_OVERTAKES;
		m->n.turned += w->block == GM_BLOCK_TURN;
		if (w->parked)
			continue;
		waits[r->session] = true;
		if (w->block != GM_BLOCK_QUOTA && r->exact > less(f->capacity, charged))
			device_waits = true;
	}
	for (int k = 0; k < SESSIONS; k++) {
		const struct m_session *s = &m->sessions[k];
		if (!s->s || gm_session_held(s->s, 0) == 0)
			continue;
		holds = true;
		moves |= !waits[k];
	}
	for (unsigned t = 0; t < GM_TRIGGERS; t++) {
		struct gm_reclaim_totals totals;
		gm_core_reclaim_totals(m->fake.core, 0, t, &totals);
		asking |= totals.active;
	}
	must(m, !device_waits || !holds || moves || asking, "everybody waits for everybody");
}

static void check_asks(struct model *m)
{
	for (; m->asks < m->fake.n_asks; m->asks++) {
		const struct fake_ask *ask = &m->fake.asks[m->asks % FAKE_LOG];
		for (int k = 0; k < SESSIONS; k++) {
			struct m_session *s = &m->sessions[k];
			if (!s->s || gm_session_id(s->s) != ask->session)
				continue;
			m->n.asked++;
			bool owes = s->returned < s->asked && m->fake.now < s->asked_until;
			must(m, ask->ask.trigger != GM_TRIGGER_REQUEST || !owes,
				"asked again while it owes");
			/* At critical pressure those who claim nothing are told, and owe nothing.
			 */
			s->asked = ask->ask.trigger == GM_TRIGGER_PRESSURE ? 0 : ask->ask.bytes;
			s->returned = 0;
			s->asked_until = ask->ask.deadline_ns;
		}
	}
}

static void check_level(struct model *m, const struct gm_device_figures *f)
{
	if (f->level < m->level) {
		m->fell_from = m->level;
		m->fell_ns = m->fake.now;
	} else if (f->level > m->level) {
		must(m, f->level > m->fell_from || m->fake.now - m->fell_ns >= m->policy.dwell_ns,
			"back within the dwell");
		m->fell_from = GM_LEVEL_LOW;
	}
	m->level = f->level;
}

/* Requests that ended since the last time. */
static void sweep(struct model *m)
{
	for (int i = 0; i < REQUESTS; i++) {
		struct m_request *r = &m->requests[i];
		if (r->used && m->sessions[r->session].s)
			r->priority = gm_session_priority(m->sessions[r->session].s, 0);
	}
	for (int i = 0; i < REQUESTS; i++) {
		struct m_request *r = &m->requests[i];
		/* Granted is what is charged: its chunks may still be on their way. */
		bool granted = r->used && r->seen && r->arrival &&
			       (r->q.ended ? r->q.status == GPUMEM_OK : !r->q.r.waiting.queued);
		if (granted) {
			for (int k = 0; k < REQUESTS; k++)
				if (m->requests[k].used && m->requests[k].seen && k != i &&
					!m->requests[k].q.ended &&
					m->requests[k].q.r.waiting.queued &&
					behind(&m->requests[k], r))
					m->requests[k].behind++;
			m->n.late += r->waits;
			r->seen = false;
			r->arrival = 0; /* counted */
		}
		if (!r->used || !r->q.ended)
			continue;
		r->used = false;
		must(m, r->q.ended == 1, "ended twice");
		switch (r->q.status) {
		case GPUMEM_OK:
			m->n.granted++;
			break;
		case GPUMEM_E_LIMIT:
			m->n.limit++;
			break;
		case GPUMEM_E_TIMEOUT:
			must(m, r->waits && m->fake.now >= r->until, "timed out early");
			m->n.timeout++;
			break;
		case GPUMEM_E_DEADLOCK:
			must(m, r->waits, "deadlock of one that does not wait");
			m->n.deadlock++;
			break;
		case GPUMEM_E_NO_MEMORY:
			m->n.refused++;
			break;
		case GPUMEM_E_CANCELLED:
			break;
		default:
			must(m, false, "status %d: %s", r->q.status, r->q.detail);
		}
	}
}

static void check(struct model *m)
{
	struct gm_device_figures f = fake_figures(&m->fake, 0);
	struct limits limits = {0};
	struct listed queue = {0};
	bool grew[SESSIONS], grew_any = false;
	sweep(m);
	fake_core_check(&m->fake, 0);
	gm_core_quota_each(m->fake.core, list_limit, &limits);
	gm_core_queue_each(m->fake.core, 0, list_waiting, &queue);
	for (size_t i = 0; i < queue.n; i++)
		if (queue.info[i].owner)
			queue.info[i].owner = &queue.owner[i];
	for (int k = 0; k < SESSIONS; k++) {
		struct m_session *s = &m->sessions[k];
		uint64_t held = s->s ? gm_session_held(s->s, 0) : 0;
		grew[k] = held > s->held;
		grew_any |= grew[k];
		s->held = held;
	}
	check_limits(m, &limits, &f, grew_any, grew);
	check_queue(m, &limits, &f, &queue);
	check_asks(m);
	check_level(m, &f);
}

/* ---- the steps */

static struct m_session *pick(struct model *m, bool connected)
{
	uint64_t start = roll(m, SESSIONS);
	for (uint64_t k = 0; k < SESSIONS; k++) {
		struct m_session *s = &m->sessions[(start + k) % SESSIONS];
		if (s->s && !(connected && s->away))
			return s;
	}
	return NULL;
}

static void step_connect(struct model *m)
{
	static const char *const units[] = {NULL, "a", "b"}, *const boxes[] = {NULL, "x", "y"},
				 *const names[] = {NULL, "me", "you"};
	uint8_t token[GM_TOKEN_BYTES];
	int i = 0;
	while (i < SESSIONS && m->sessions[i].s)
		i++;
	if (i == SESSIONS)
		return;
	struct m_session *s = &m->sessions[i];
	*s = (struct m_session){.uid = 1 + (uid_t)roll(m, 4),
		.gid = 1 + (gid_t)roll(m, 3),
		.unit = units[roll(m, 3)],
		.container = boxes[roll(m, 3)],
		.name = names[roll(m, 3)]};
	struct gm_session_info info = {.pid = 1,
		.uid = s->uid,
		.gid = s->gid,
		.domain = 1 + roll(m, 4),
		.pooling = true,
		.unit = s->unit,
		.container = s->container,
		.name = s->name};
	must(m, gm_session_new(m->fake.core, &info, token, &s->s) == 0, "no session");
	fake_says(&m->fake, s->s, 0, 0, 0);
}

static void step_ask(struct model *m)
{
	struct m_session *s = pick(m, true);
	int i = 0;
	while (i < REQUESTS && m->requests[i].used)
		i++;
	if (!s || i == REQUESTS)
		return;
	struct m_request *r = &m->requests[i];
	memset(r, 0, sizeof(*r));
	uint64_t bytes = roll(m, 4) ? 1 + roll(m, 200 * MiB) : 1 + roll(m, 9 * GiB);
	r->used = true;
	r->session = (int)(s - m->sessions);
	r->exact = (bytes + 2 * MiB - 1) / (2 * MiB) * (2 * MiB);
	r->waits = roll(m, 2);
	uint64_t wait = r->waits ? 1 + roll(m, 5 * SECOND) : GM_WAIT_NEVER;
	r->until = m->fake.now + (r->waits ? wait : 2 * GM_RECLAIM_NS);
	r->arrival = ++m->arrivals;
	r->priority = gm_session_priority(s->s, 0);
	r->seen = true; /* granted at once: those it overtakes count it */
	r->always_device = true;
	fake_wait(&m->fake, &r->q, s->s, 0, bytes, wait);
	if (r->q.ended && r->q.status != GPUMEM_OK && r->waits)
		m->n.never++;
}

static struct gm_lease *some_lease(struct model *m, const struct m_session *s)
{
	uint64_t n = gm_session_lease_count(s->s);
	struct gm_lease *lease = gm_session_next_lease(s->s, NULL);
	for (uint64_t k = n ? roll(m, n) : 0; lease && k > 0; k--)
		lease = gm_session_next_lease(s->s, lease);
	return lease;
}

/* Some of a lease, or all of it. */
static void give_back(struct model *m, struct m_session *s)
{
	struct gm_lease *lease = some_lease(m, s);
	uint64_t ids[64], held = gm_session_held(s->s, 0);
	size_t n = 0;
	if (!lease)
		return;
	if (roll(m, 2)) {
		struct gm_lease_info info;
		gm_lease_info(lease, s->s, &info);
		s->returned += info.bytes;
		gm_lease_return(s->s, lease);
	} else {
		for (const struct gm_chunk *c = gm_lease_chunk(lease, 0); c && n < 64; c = c->next)
			if (roll(m, 2)) {
				ids[n++] = c->id;
				s->returned += c->bytes;
			}
		must(m, gm_lease_return_chunks(s->s, lease, ids, n) == GPUMEM_OK, "return");
	}
	(void)held;
}

static void step_answer(struct model *m)
{
	for (int k = 0; k < SESSIONS; k++) {
		struct m_session *s = &m->sessions[k];
		/* Every third one never answers. */
		if (s->s && !s->away && k % 3 && s->returned < s->asked &&
			m->fake.now < s->asked_until) {
			give_back(m, s);
			check(m);
		}
	}
}

static void step_limit(struct model *m)
{
	char detail[GM_DETAIL_BYTES] = "";
	struct gm_owner o;
	ck_assert_int_eq(gm_owner_parse(owners[roll(m, OWNERS)], &o), 0);
	if (roll(m, 3) == 0) {
		gm_core_reset_quota(m->fake.core, roll(m, 4) ? &o : NULL, GM_ALL_DEVICES, detail);
		return;
	}
	struct gm_quota_values v = {.set = 1 + (unsigned)roll(m, 7),
		.max = roll(m, 5) ? roll(m, 10 * GiB) : UINT64_MAX,
		.guarantee = roll(m, 3 * GiB),
		.priority = (int32_t)roll(m, 4) - 1};
	gpumem_status status;
	if (roll(m, 2)) {
		status = gm_core_set_quota(m->fake.core, &o, 0, &v, detail);
	} else {
		struct gm_quota_rule rule = {.owner = o, .device = GM_ALL_DEVICES, .values = v};
		status = gm_core_configure_quotas(m->fake.core, &rule, 1, detail);
	}
	must(m, status == GPUMEM_OK || (status == GPUMEM_E_INVALID && detail[0]), "limit: %d",
		status);
}

static void step_sample(struct model *m)
{
	uint64_t ours = m->fake.backend_bytes[0];
	uint64_t others = roll(m, 4) ? roll(m, GiB) : roll(m, m->total);
	gm_core_sample(m->fake.core, 0, less(less(m->total, ours), others));
}

static void step_says(struct model *m)
{
	struct m_session *s = pick(m, false);
	if (s)
		fake_says(&m->fake, s->s, 0,
			roll(m, 4) ? roll(m, gm_session_held(s->s, 0) + 1) : roll(m, UINT64_MAX),
			roll(m, 3) ? 0 : roll(m, 4 * GiB));
}

static void step_cleanup(struct model *m)
{
	struct gm_ladder_plan dry, real;
	char detail[GM_DETAIL_BYTES];
	uint64_t need = roll(m, 3) ? roll(m, m->total) : 0;
	gpumem_status a = gm_core_cleanup_plan(m->fake.core, 0, need, &dry, detail);
	gpumem_status b = gm_core_cleanup(m->fake.core, 0, need, &real, detail);
	must(m, a == b && dry.n_steps == real.n_steps, "the dry run said something else");
	for (size_t i = 0; i < dry.n_steps; i++)
		must(m,
			dry.steps[i].session == real.steps[i].session &&
				dry.steps[i].bytes == real.steps[i].bytes,
			"another victim");
	gm_ladder_plan_deinit(&dry);
	gm_ladder_plan_deinit(&real);
}

static void step_end(struct model *m)
{
	struct m_session *s = pick(m, false);
	if (!s)
		return;
	if (roll(m, 2) || s->away)
		gm_session_end_died(s->s);
	else
		gm_session_end_unmapped(s->s);
	*s = (struct m_session){0};
}

static void step_policy(struct model *m)
{
	struct gm_policy *p = &m->policy;
	p->fraction = 0.6 + (double)roll(m, 41) / 100;
	p->min_free = roll(m, 3) * 100 * MiB;
	p->oom = (enum gm_oom)roll(m, 3);
	p->reserve = roll(m, 2) * 64 * MiB;
	gm_core_set_policy(m->fake.core, 0, p);
}

static void step(struct model *m)
{
	m->step++;
	switch (roll(m, 32)) {
	case 0 ... 1:
		step_connect(m);
		break;
	case 2 ... 10:
		step_ask(m);
		break;
	case 11 ... 15:
		for (uint64_t n = roll(m, 8); n-- > 0 && m->fake.n_jobs > 0; check(m))
			fake_core_complete(
				&m->fake, roll(m, m->fake.n_jobs), roll(m, 40) ? 0 : -ENOMEM);
		break;
	case 16 ... 18: {
		struct m_session *s = pick(m, true);
		if (s)
			give_back(m, s);
		break;
	}
	case 19 ... 20:
		step_answer(m);
		break;
	case 21:
		if (roll(m, 3) == 0)
			step_end(m);
		break;
	case 22: {
		struct m_session *s = pick(m, true);
		if (s && roll(m, 4) == 0) {
			gm_session_quarantine(s->s);
			s->away = true;
		}
		break;
	}
	case 23:
		if (roll(m, 2))
			step_limit(m);
		break;
	case 24:
		step_sample(m);
		break;
	case 25 ... 26:
		step_says(m);
		break;
	case 27 ... 29:
		m->fake.now += roll(m, 3) ? roll(m, 60000000) : roll(m, SECOND);
		gm_core_tick(m->fake.core);
		if (m->fake.victim && gm_core_find_session(m->fake.core, m->fake.victim)) {
			for (int k = 0; k < SESSIONS; k++)
				if (m->sessions[k].s &&
					gm_session_id(m->sessions[k].s) == m->fake.victim) {
					gm_session_end_died(m->sessions[k].s);
					m->sessions[k] = (struct m_session){0};
					m->n.victims++;
				}
		}
		break;
	case 30: {
		struct m_request *r = &m->requests[roll(m, REQUESTS)];
		if (r->used && !r->q.ended) {
			gm_core_cancel(m->fake.core, &r->q.r);
			must(m, r->q.status == GPUMEM_E_CANCELLED, "not cancelled");
		}
		break;
	}
	case 31:
		if (roll(m, 6) == 0)
			step_policy(m);
		else if (roll(m, 4) == 0)
			step_cleanup(m);
		break;
	}
	check(m);
}

START_TEST(any_sequence_of_events_keeps_limits_order_and_promises)
{
	const char *seed = getenv("GM_MODEL_SEED"), *steps = getenv("GM_MODEL_STEPS");
	struct model *m = calloc(1, sizeof(*m));
	ck_assert_ptr_nonnull(m);
	m->seed = (seed ? strtoull(seed, NULL, 0) : 40) + (uint64_t)_i;
	uint64_t n = steps ? strtoull(steps, NULL, 0) : STEPS;
	fprintf(stderr, "# GM_MODEL_SEED=%" PRIu64 "\n", m->seed);
	m->random = (m->seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
	m->total = 16 * GiB;
	struct gm_core_device_info info = fake_info(m->total);
	info.policy.max_pool = UINT64_MAX;
	m->policy = info.policy;
	fake_core_init_asking(&m->fake);
	fake_core_add(&m->fake, &info);
	check(m);
	while (m->step < n)
		step(m);
	for (size_t i = 0; i < m->fake.n_events && i < FAKE_LOG; i++)
		m->n.ignored += m->fake.events[i].event.kind == GM_EVENT_IGNORED;
	fprintf(stderr,
		"# granted %" PRIu64 " (%" PRIu64 " after waiting), refused %" PRIu64
		", limit %" PRIu64 ", timeout %" PRIu64 ", deadlock %" PRIu64 ", never %" PRIu64
		", barred %" PRIu64 "/%" PRIu64 ", asked %" PRIu64 ", ignored %" PRIu64
		", victims %" PRIu64 "\n",
		m->n.granted, m->n.late, m->n.refused, m->n.limit, m->n.timeout, m->n.deadlock,
		m->n.never, m->n.exhausted, m->n.turned, m->n.asked, m->n.ignored, m->n.victims);
	must(m,
		seed || n < STEPS ||
			(m->n.granted > n / 100 && m->n.late > n / 300 && m->n.limit > n / 1000 &&
				m->n.timeout > 0 && m->n.deadlock > 0 && m->n.asked > n / 300 &&
				m->n.ignored > 0),
		"the run tried little");
	gm_core_shutdown(m->fake.core);
	memset(m->sessions, 0, sizeof(m->sessions));
	sweep(m);
	for (int i = 0; i < REQUESTS; i++)
		must(m, !m->requests[i].used, "a request never ended");
	fake_core_deinit(&m->fake);
	free(m);
}
END_TEST

/* ---- 64 clients that race for little */

#define RACERS     64
#define RACE_TOTAL 1000000

START_TEST(sixty_four_racing_clients_never_pass_a_limit)
{
	static struct model world;
	struct model *m = &world;
	struct gm_session *s[RACERS];
	static struct fake_request slots[RACERS];
	bool busy[RACERS] = {false};
	uint64_t requests = 0, granted = 0, refused = 0;
	char detail[GM_DETAIL_BYTES];
	m->random = 4711;
	m->total = 8 * GiB;
	struct gm_core_device_info info = fake_info(m->total);
	fake_no_levels(&info.policy);
	info.policy.max_pool = UINT64_MAX;
	fake_core_init(&m->fake);
	fake_core_add(&m->fake, &info);
	/* 8 uids of 8 clients; limits that together are above the device, one guarantee. */
	for (uid_t u = 0; u < 8; u++) {
		struct gm_owner o;
		struct gm_quota_values v = {.set = GM_QUOTA_MAX | GM_QUOTA_GUARANTEE,
			.max = (1 + u) * 301 * MiB,
			.guarantee = u == 7 ? GiB : 0};
		gm_owner_by_id(GM_OWNER_UID, u, &o);
		ck_assert_int_eq(gm_core_set_quota(m->fake.core, &o, 0, &v, detail), GPUMEM_OK);
	}
	for (int i = 0; i < RACERS; i++)
		s[i] = fake_session(&m->fake, 1 + (gm_domain)(i % 8), (uid_t)(i % 8));
	while (requests < RACE_TOTAL) {
		uint64_t i = roll(m, RACERS);
		if (busy[i] && slots[i].ended) {
			busy[i] = false;
			granted += slots[i].status == GPUMEM_OK;
			refused += slots[i].status != GPUMEM_OK;
		}
		if (!busy[i] && roll(m, 3)) {
			fake_ask(&m->fake, &slots[i], s[i], 0, 1 + roll(m, 64 * MiB),
				GM_TRANSPORT_AUTO);
			busy[i] = true;
			requests++;
		} else if (!busy[i]) {
			struct gm_lease *lease = gm_session_next_lease(s[i], NULL);
			while (lease) {
				gm_lease_return(s[i], lease);
				lease = roll(m, 4) ? gm_session_next_lease(s[i], NULL) : NULL;
			}
		}
		while (m->fake.n_jobs > 64 || (m->fake.n_jobs > 0 && roll(m, 2)))
			fake_core_complete(&m->fake, roll(m, m->fake.n_jobs), 0);
		/* By a byte: at every single step, for the owner who may have grown. */
		uint64_t held = 0;
		for (int k = (int)(i % 8); k < RACERS; k += 8)
			held += gm_session_held(s[k], 0);
		ck_assert(held <= (1 + i % 8) * 301 * MiB);
		struct gm_device_figures f;
		gm_core_device_figures(m->fake.core, 0, &f);
		ck_assert(f.leased + f.admitted <= f.ceiling);
		if (requests % 4096 == 0)
			fake_core_check(&m->fake, 0);
	}
	fake_core_run(&m->fake);
	fake_core_check(&m->fake, 0);
	ck_assert_uint_gt(granted, RACE_TOTAL / 10);
	ck_assert_uint_gt(refused, RACE_TOTAL / 100);
	struct gm_device_figures f = fake_figures(&m->fake, 0);
	ck_assert_uint_eq(f.created, m->fake.backend_bytes[0]);
	fake_core_deinit(&m->fake);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("policy_model");
	TCase *tcase = tcase_create("model");
	tcase_set_timeout(tcase, 240);
	tcase_add_loop_test(
		tcase, any_sequence_of_events_keeps_limits_order_and_promises, 0, SEEDS);
	tcase_add_test(tcase, sixty_four_racing_clients_never_pass_a_limit);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
