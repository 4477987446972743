/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model that limits, queue and reclaim are held against, and what must be true. It adds
 * everything up from nothing each time.
 *
 * After every step, per device:
 *   1. what a limit is shown to hold is the sum over the clients that it matches, as the model
 *      matches them, and over what such clients left and somebody has; no client that it matches
 *      was given more if it is above its max;
 *   2. nothing was charged past the ceiling, nor into what is guaranteed to owners that got
 * nothing;
 *   3. the queue lists exactly the requests that are neither done nor under creation, by priority
 * and then by arrival, none of them past its time, none that could never be granted, and those that
 *      may not wait no longer than twice the deadline of a reclaim, with the time to move buffers;
 *   4. a waiting request fits only if one before it holds it back, if pressure is critical and a
 *      client of a higher priority is there, or if the backend had no memory for it;
 *   5. a request that holds others back was overtaken often enough, is covered by what is available
 *      and what clients claim whenever core looks, and goes on for no longer than it may. Then its
 *      uid rests, and for a while nobody does so. No request fails because it was held back;
 *   6. unless a reclaim is under way or foreign memory is in the way, somebody who holds memory
 * does not wait for more;
 *   7. a client that was asked on behalf of a request or by hand is not asked for a request again
 *      before it returned that much or the deadline passed, and never while it is off the socket;
 *   8. the level that is told goes back up to where it fell from only after the dwell, and the
 *      level that is shown goes with the pressure that is shown;
 *   9. figures and backend agree (fake_core_check());
 *  10. at most one probe of the device is under way (fake_core.c), and whoever is held for one is
 *      held no longer than that;
 *  11. what the lines count as owed for a user's requests is what the clients owe.
 */
#include "tests/unit/core/policy_model.h"

#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "daemon/lease/session_private.h"
#include "daemon/queue/queue.h"
#include "daemon/queue/queue_head.h"

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

bool model_mapped(void *m, const struct gm_chunk *chunk)
{
	/* What no client got yet, nobody has. */
	return (chunk->lease || chunk->state == GM_CHUNK_ORPHANED) &&
	       chunk->id % MAPPED_OF == ((const struct model *)m)->mapped;
}

struct left {
	const struct gm_owner *owner;
	uint64_t held;
};

/* What clients left that somebody still has. */
static bool add_left(void *ctx, const struct gm_orphan *orphan)
{
	struct left *left = ctx;
	const struct gm_orphan_info *info = gm_orphan_info(orphan);
	const struct m_session s = {.uid = info->uid,
		.gid = info->gid,
		.unit = info->unit,
		.container = info->container};
	if (matches(&s, left->owner))
		left->held += gm_orphan_held(orphan, 0);
	return true;
}

struct limits {
	struct gm_limit_info info[OWNERS + UIDS];
	uid_t user[OWNERS + UIDS]; /* 0: the limit counts for all users together */
	size_t n;
	uid_t asked;
};

/* The limit of a name is listed once for each user. */
static bool list_limit(void *ctx, const struct gm_limit_info *info)
{
	struct limits *limits = ctx;
	if ((info->owner.kind == GM_OWNER_NAME) != (limits->asked != 0))
		return true;
	ck_assert_uint_lt(limits->n, OWNERS + UIDS);
	limits->user[limits->n] = limits->asked;
	limits->info[limits->n++] = *info;
	return true;
}

static void list_limits(struct model *m, struct limits *limits)
{
	for (uid_t uid = 0; uid <= UIDS; uid++) {
		struct gm_limit_place place = {.user = uid ? uid + 1 : 0};
		limits->asked = uid;
		gm_core_limit_each(m->fake.core, &place, list_limit, limits);
	}
}

static bool limits_apply(const struct limits *limits, size_t i, const struct m_session *s)
{
	return matches(s, &limits->info[i].owner) &&
	       (!limits->user[i] || limits->user[i] == s->uid);
}

struct listed {
	struct gm_queue_info info[REQUESTS];
	struct gm_owner owner[REQUESTS];
	size_t n;
};

static bool list_waiting(void *ctx, const struct gm_queue_info *info)
{
	struct listed *listed = ctx;
	ck_assert_uint_lt(listed->n, REQUESTS);
	if (info->owner)
		listed->owner[listed->n] = *info->owner;
	listed->info[listed->n++] = *info;
	return true;
}

/* What a session could be given now, by its limits and the device. */
static uint64_t room(const struct limits *limits, const struct m_session *s, uint64_t ceiling,
	uint64_t charged, uint64_t *ret_ever, uint64_t capacity)
{
	uint64_t kept = 0, promised = 0, most = UINT64_MAX, ever = UINT64_MAX;
	for (size_t i = 0; i < limits->n; i++) {
		const struct gm_limit_info *l = &limits->info[i];
		if (!limits_apply(limits, i, s)) {
			kept += model_less(l->values.guarantee, l->held);
			promised += l->values.guarantee;
			continue;
		}
		if (model_less(l->values.max, l->held) < most)
			most = model_less(l->values.max, l->held);
		if (l->values.max < ever)
			ever = l->values.max;
	}
	uint64_t device = model_less(ceiling, charged + kept);
	*ret_ever = model_less(capacity, promised) < ever ? model_less(capacity, promised) : ever;
	return device < most ? device : most;
}

/* ---- what clients do */

struct m_request *model_ask(
	struct model *m, struct m_session *s, uint64_t bytes, bool waits, bool endless)
{
	int i = 0;
	while (i < REQUESTS && m->requests[i].used)
		i++;
	if (i == REQUESTS)
		return NULL;
	struct m_request *r = &m->requests[i];
	memset(r, 0, sizeof(*r));
	r->used = true;
	r->session = (int)(s - m->sessions);
	r->exact = (bytes + 2 * MiB - 1) / (2 * MiB) * (2 * MiB);
	r->waits = waits;
	r->endless = endless;
	uint64_t wait = r->waits ? 1 + model_roll(m, 5 * SECOND) : GM_WAIT_NEVER;
	/* Longer than two rounds of returning what is cached, if somebody has buffers to move. */
	r->wait = r->waits ? wait : 2 * (GM_RECLAIM_NS + 2 * SECOND);
	if (r->endless)
		r->wait = wait = GM_WAIT_FOREVER;
	r->asked_ns = m->fake.now;
	if (waits)
		r->until = endless ? UINT64_MAX : m->fake.now + wait;
	r->arrival = ++m->arrivals;
	r->priority = fake_priority(s->s, 0);
	r->seen = true; /* granted at once: those it overtakes count it */
	fake_wait(&m->fake, &r->q, s->s, 0, bytes, wait);
	if (r->q.ended && r->q.status != GPUMEM_OK && r->waits)
		m->n.never++;
	return r;
}

void model_end(struct model *m, struct m_session *s, bool died)
{
	struct gm_session *session = s->s;
	*s = (struct m_session){0};
	m->moved = true;
	if (died)
		gm_session_end_died(session);
	else
		gm_session_end_unmapped(session);
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
		const struct gm_limit_info *l = &limits->info[i];
		struct left left = {.owner = &l->owner};
		gm_core_orphan_each(m->fake.core, 0, add_left, &left);
		uint64_t held = left.held;
		bool grew_here = false;
		for (int k = 0; k < SESSIONS; k++) {
			if (!m->sessions[k].s || !limits_apply(limits, i, &m->sessions[k]))
				continue;
			held += gm_session_held(m->sessions[k].s, 0);
			grew_here |= grew[k];
		}
		must(m, l->held == held, "a limit holds %" PRIu64 ", not %" PRIu64, l->held, held);
		must(m, l->over == (held > l->values.max), "over");
		must(m, held <= l->values.max || !grew_here, "a limit was passed");
		if (!grew_here)
			unmet += model_less(l->values.guarantee, held);
	}
	if (!grew_any)
		return;
	must(m, charged <= f->ceiling, "charged past the ceiling");
	must(m, f->ceiling - charged >= unmet, "a guarantee was given away");
}

/* Whether what is free, and what clients say they can return, covers the request that holds others
 * back. own: also the clients of its own user. */
static void check_cover(struct model *m, const struct gm_request *holder, bool own)
{
	struct m_request *r = find(m, holder);
	const struct m_session *s = &m->sessions[r->session];
	struct gm_device_figures f = fake_figures(&m->fake, 0);
	struct limits limits = {0};
	uint64_t needed = r->exact + f.leased + f.quarantined + f.admitted, claimed = 0;
	list_limits(m, &limits);
	for (size_t i = 0; i < limits.n; i++)
		if (!limits_apply(&limits, i, s))
			needed += model_less(limits.info[i].values.guarantee, limits.info[i].held);
	for (int k = 0; k < SESSIONS; k++) {
		const struct m_session *other = &m->sessions[k];
		if (other->s && !other->away && (own || other->uid != s->uid))
			claimed += fake_claims(&m->fake, other->s, 0);
	}
	must(m, needed <= f.ceiling + claimed, "it holds others back in vain");
}

static struct model *model_of(const struct gm_device *device)
{
	return ((struct fake_core *)device->env->ctx)->mapped_ctx;
}

/* A request begins to hold others back. */
static void check_begin(struct model *m, const struct gm_request *request, bool own)
{
	const struct m_request *r = find(m, request);
	uint64_t now = m->fake.now;
	m->holder_uid = m->sessions[r->session].uid;
	m->hold_ns = now;
	m->n.refs++;
	must(m, now >= m->rest_ns && now >= m->uid_rest_ns[m->holder_uid],
		"it holds others back without a rest");
	must(m, request->waiting.overtaken >= GM_QUEUE_HEAD_OVERTAKES && r->waits,
		"it holds others back too early");
	check_cover(m, request, own);
}

static void note_end(struct model *m)
{
	uint64_t now = m->fake.now, held = now - m->hold_ns;
	m->rest_ns = now + held;
	m->uid_rest_ns[m->holder_uid] = now + 6 * held;
}

/* The linker sends core's calls here (--wrap). The cover is checked when core relies on it. Right after
 * that, requests that are not held back may take what it consists of, until core looks again. */
void __real_gm_queue_head_begin(struct gm_device *device, struct gm_request *request, uint64_t now);
void __wrap_gm_queue_head_begin(struct gm_device *device, struct gm_request *request, uint64_t now);
void __wrap_gm_queue_head_begin(struct gm_device *device, struct gm_request *request, uint64_t now)
{
	const struct gm_request *before = device->queue.holder;
	__real_gm_queue_head_begin(device, request, now);
	if (device->queue.holder != before)
		check_begin(model_of(device), request, device->queue.holds_own);
}

void __real_gm_queue_head_look(struct gm_device *device, uint64_t now);
void __wrap_gm_queue_head_look(struct gm_device *device, uint64_t now);
void __wrap_gm_queue_head_look(struct gm_device *device, uint64_t now)
{
	const struct gm_request *before = device->queue.holder;
	bool due = gm_queue_head_due(device) <= now;
	__real_gm_queue_head_look(device, now);
	if (before && !device->queue.holder)
		note_end(model_of(device));
	else if (due)
		check_cover(model_of(device), before, device->queue.holds_own);
}

void __real_gm_queue_head_leave(struct gm_device *device, const struct gm_request *request);
void __wrap_gm_queue_head_leave(struct gm_device *device, const struct gm_request *request);
void __wrap_gm_queue_head_leave(struct gm_device *device, const struct gm_request *request)
{
	if (device->queue.holder == request)
		note_end(model_of(device));
	__real_gm_queue_head_leave(device, request);
}

/* A standstill ends in time: all who hold memory wait for more without a deadline, nobody is being
 * asked for memory, and nobody returned any. */
static void check_standstill(struct model *m, bool still, uint64_t since_ns)
{
	if (!still || m->moved)
		m->moved_ns = m->fake.now;
	m->moved = false;
	if (m->moved_ns < since_ns)
		m->moved_ns = since_ns;
	must(m, m->fake.now - m->moved_ns < m->policy.deadlock_ns, "everybody waits for everybody");
}

static void check_queue(struct model *m, const struct limits *limits,
	const struct gm_device_figures *f, const struct listed *queue)
{
	uint64_t charged = f->leased + f->quarantined + f->admitted;
	int32_t top = INT32_MIN;
	/* Whoever has what is orphaned may let go of it, or did so. */
	m->moved |= f->orphaned < m->orphaned;
	m->orphaned = f->orphaned;
	bool device_waits = false, moves = f->orphaned > 0, refs = false, asking = false;
	size_t waiting = 0;
	uint64_t since_ns = 0;
	for (int i = 0; i < REQUESTS; i++)
		waiting += m->requests[i].used && !m->requests[i].q.ended &&
			   m->requests[i].q.r.waiting.queued;
	must(m, waiting == queue->n, "the queue has %zu, not %zu", queue->n, waiting);
	for (int k = 0; k < SESSIONS; k++)
		if (m->sessions[k].s && fake_priority(m->sessions[k].s, 0) > top)
			top = fake_priority(m->sessions[k].s, 0);
	const struct gm_request *holder = fake_queue_holder(&m->fake, 0);
	bool waits[SESSIONS] = {false}, barred = false, listed = !holder;
	must(m, !holder || m->fake.now - m->hold_ns < GM_QUEUE_HEAD_HOLD_NS,
		"it holds others back for long");
	for (size_t i = 0; i < queue->n; i++) {
		const struct gm_queue_info *w = &queue->info[i];
		struct m_request *r = find(m, w->request);
		must(m, r && !r->q.ended, "somebody waits who is done");
		const struct m_session *s = &m->sessions[r->session];
		r->priority = fake_priority(s->s, 0);
		must(m, w->priority == r->priority, "priority");
		must(m, w->nowait == !r->waits, "nowait");
		if (!r->until)
			r->until = m->fake.now + r->wait;
		must(m, m->fake.now < r->until, "it is past its time");
		r->seen = true;
		r->counted = false; /* back, if it was granted */
		bool denied = r->q.r.waiting.ask.denied > 0;
		m->n.denied += denied;
		must(m, !r->q.r.waiting.probe || m->fake.probing,
			"held for a probe that nobody takes");
		if (i > 0) {
			struct m_request *before = find(m, queue->info[i - 1].request);
			must(m, behind(before, r), "the order");
		}
		uint64_t ever, now = room(limits, s, f->ceiling, charged, &ever, f->capacity);
		must(m, r->exact <= ever, "it waits for what it can never have");
		bool held_back = f->level == GM_PRESSURE_LEVEL_CRITICAL && r->priority < top;
		must(m, r->exact > now || held_back || barred || denied,
			"it fits and waits: block %d", w->block);
		must(m, w->block != GM_BLOCK_OVERTAKEN || barred, "it waits for no one's turn");
		if (w->block == GM_BLOCK_LIMIT)
			must(m, w->owner && matches(s, w->owner), "somebody else's limit");
		barred |= w->request == holder;
		listed |= w->request == holder;
		m->n.turned += w->block == GM_BLOCK_OVERTAKEN;
		if (!r->endless)
			continue;
		waits[r->session] = true;
		if (since_ns < r->q.r.waiting.ask.since_ns)
			since_ns = r->q.r.waiting.ask.since_ns;
		if (w->block != GM_BLOCK_LIMIT && r->exact > model_less(f->capacity, charged))
			device_waits = true;
	}
	must(m, listed, "a request that does not wait holds others back");
	for (int k = 0; k < SESSIONS; k++) {
		const struct m_session *s = &m->sessions[k];
		if (!s->s || gm_session_held(s->s, 0) == 0)
			continue;
		refs = true;
		moves |= !waits[k];
	}
	for (unsigned t = 0; t < GM_TRIGGERS; t++)
		asking |= fake_reclaims(&m->fake, 0, t);
	check_standstill(m, device_waits && refs && !moves && !asking && !holder, since_ns);
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
			must(m, ask->ask.trigger != GM_RECLAIM_TRIGGER_REQUEST || !owes,
				"asked again while it owes");
			/* At critical pressure those who claim nothing are told, and owe nothing.
			 */
			s->asked = ask->ask.trigger == GM_RECLAIM_TRIGGER_PRESSURE ? 0
										   : ask->ask.bytes;
			s->returned = 0;
			s->asked_until = ask->ask.deadline_ns;
		}
	}
}

static void check_level(struct model *m, const struct gm_device_figures *f)
{
	if (m->fake.level < m->level) {
		m->fell_from = m->level;
		m->fell_ns = m->fake.now;
	} else if (m->fake.level > m->level) {
		must(m,
			m->fake.level > m->fell_from ||
				m->fake.now - m->fell_ns >= m->policy.dwell_ns,
			"back within the dwell");
		m->fell_from = GM_PRESSURE_LEVEL_LOW;
	}
	m->level = m->fake.level;

	/* What is shown goes with the pressure, up to the hysteresis. */
	for (unsigned i = 0; i < GM_LEVELS - 1; i++) {
		uint32_t from = m->policy.level_ppm[i], least = from - m->policy.hysteresis_ppm;
		must(m, f->pressure_ppm < from || (unsigned)f->level > i, "too low a level");
		must(m, f->pressure_ppm >= least || (unsigned)f->level <= i, "too high a level");
	}
}

/* Requests that ended since the last time. */
void model_sweep(struct model *m)
{
	for (int i = 0; i < REQUESTS; i++) {
		struct m_request *r = &m->requests[i];
		if (r->used && m->sessions[r->session].s)
			r->priority = fake_priority(m->sessions[r->session].s, 0);
	}
	for (int i = 0; i < REQUESTS; i++) {
		struct m_request *r = &m->requests[i];
		/* Granted is what is charged: its chunks may still be on their way. */
		bool granted = r->used && r->seen && !r->counted &&
			       (r->q.ended ? r->q.status == GPUMEM_OK : !r->q.r.waiting.queued);
		if (granted) {
			m->n.late += r->waits;
			r->seen = false;
			r->counted = true;
		}
		if (!r->used || !r->q.ended)
			continue;
		r->used = false;
		must(m, r->q.ended == 1, "ended twice");
		must(m, !strstr(r->q.detail, "goes first"), "it failed because it was held back");
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
			must(m, r->endless, "deadlock of one that has a deadline");
			must(m, m->fake.now - r->asked_ns >= m->policy.deadlock_ns,
				"deadlock too early");
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

/* The counts of the users are those of the clients that owe something for requests. */
static void check_orphan_maps(struct model *m)
{
	const struct gm_device *device = &m->fake.core->devices[0];
	const struct gm_reclaim_run *run = &device->reclaim.runs[GM_RECLAIM_TRIGGER_REQUEST];
	const struct gm_reclaim_user *user;
	uint64_t owing = 0, owed = 0;

	DL_FOREACH (device->reclaim.users, user) {
		const struct gm_account *account;
		uint32_t of_user = 0, others = 0, moving = 0;
		DL_FOREACH2 (device->reclaim.owing, account, owing_next) {
			if (account->asked.user != user)
				continue;
			of_user++;
			others += account->payer->user != user->user;
			moving += account->asked.stage == GM_STAGE_SPILL;
		}
		must(m, user->owing == of_user, "wrong number of clients that owe");
		must(m, user->owing_others == others, "wrong number of others that owe");
		must(m, user->moving == moving, "wrong number of clients that move buffers");
		owing += user->owing;
		owed += user->owed;
	}
	must(m, run->owing == owing && run->owed == owed, "the run and the users differ");
}

void model_check(struct model *m)
{
	fake_finish_slices(&m->fake, 0);
	struct gm_device_figures f = fake_figures(&m->fake, 0);
	struct limits limits = {0};
	struct listed queue = {0};
	bool grew[SESSIONS], grew_any = false;
	model_sweep(m);
	fake_core_check(&m->fake, 0);
	list_limits(m, &limits);
	gm_core_queue_each(m->fake.core, 0, &GM_QUEUE_FIRST, list_waiting, &queue);
	for (size_t i = 0; i < queue.n; i++)
		if (queue.info[i].owner)
			queue.info[i].owner = &queue.owner[i];
	for (int k = 0; k < SESSIONS; k++) {
		struct m_session *s = &m->sessions[k];
		uint64_t held = s->s ? gm_session_held(s->s, 0) : 0;
		grew[k] = held > s->held;
		m->moved = m->moved || held < s->held;
		grew_any |= grew[k];
		s->held = held;
	}
	check_limits(m, &limits, &f, grew_any, grew);
	check_queue(m, &limits, &f, &queue);
	check_asks(m);
	check_orphan_maps(m);
	check_level(m, &f);
}
