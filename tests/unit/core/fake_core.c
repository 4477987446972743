/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See fake_core.h. It promises to do nothing by itself: time passes and jobs end when the test says
 * so. It must never keep state that core would have to agree with by chance: what it counts, it
 * counts from the jobs.
 */
#include "tests/unit/core/fake_core.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/lease/session_private.h"
#include "daemon/lease/lease.h"
#include "tests/unit/core/fake_ledger.h"
#include "tests/unit/failing_malloc.h"

/* ck_assert() allocates even when all is well, which would be what a test makes fail. */
#define must(condition) \
	do { \
		if (!(condition)) \
			ck_abort_msg("%s", #condition); \
	} while (0)

static void push(struct fake_core *fake, struct gm_chunk *chunk, bool destroy, uint64_t turn)
{
	must(fake->n_jobs < fake->room);
	fake->jobs[fake->n_jobs++] =
		(struct fake_job){.chunk = chunk, .destroy = destroy, .turn = turn};
}

static void create(void *ctx, struct gm_chunk *chunk, uint64_t turn)
{
	must(chunk->state == GM_CHUNK_CREATING);
	push(ctx, chunk, false, turn);
}

static void destroy(void *ctx, struct gm_chunk *chunk)
{
	must(chunk->state == GM_CHUNK_DOOMED);
	push(ctx, chunk, true, 0);
}

static bool call_off(void *ctx, struct gm_chunk *chunk)
{
	struct fake_core *fake = ctx;
	size_t i = 0;
	must(chunk->state == GM_CHUNK_CREATING);
	while (i < fake->n_jobs && fake->jobs[i].chunk != chunk)
		i++;
	must(i < fake->n_jobs && !fake->jobs[i].destroy);
	if (!fake->calls_off)
		return false;
	memmove(&fake->jobs[i], &fake->jobs[i + 1], (--fake->n_jobs - i) * sizeof(fake->jobs[0]));
	return true;
}

static bool in_use(void *ctx, const struct gm_chunk *chunk)
{
	struct fake_core *fake = ctx;
	must(chunk->state == GM_CHUNK_LEASED || chunk->state == GM_CHUNK_ORPHANED);
	fake->looks++;
	return fake->mapped ? fake->mapped(fake->mapped_ctx, chunk) : fake->in_use;
}

static void pooled(void *ctx, const struct gm_chunk *chunk)
{
	struct fake_core *fake = ctx;
	must(chunk->state == GM_CHUNK_POOLED);
	fake->pooled++;
	must(!fake->mapped || !fake->mapped(fake->mapped_ctx, chunk));
}

static uint64_t now_ns(void *ctx)
{
	return ((struct fake_core *)ctx)->now;
}

static uint64_t new_id(void *ctx)
{
	return ++((struct fake_core *)ctx)->last_id;
}

/* The ledger's own memory never fails. Most tests do without failing memory. */
#pragma weak failing_malloc_pause
static void pause_failures(bool paused)
{
	if (failing_malloc_pause)
		failing_malloc_pause(paused);
}

static int record(
	void *ctx, uint32_t kind, uint64_t id, uint32_t *place, const void *bytes, size_t size)
{
	pause_failures(true);
	int r = fake_ledger_record(((struct fake_core *)ctx)->ledger, kind, id, place, bytes, size);
	pause_failures(false);
	return r;
}

static void erase(void *ctx, uint32_t *place)
{
	pause_failures(true);
	fake_ledger_erase(((struct fake_core *)ctx)->ledger, place);
	pause_failures(false);
}

static int deposit(
	void *ctx, enum gm_store_kind kind, uint64_t id, int fd, struct gm_request *request)
{
	pause_failures(true);
	int r = fake_ledger_deposit(((struct fake_core *)ctx)->ledger, kind, id, fd, request);
	pause_failures(false);
	return r;
}

static void withdraw(void *ctx, enum gm_store_kind kind, uint64_t id)
{
	pause_failures(true);
	fake_ledger_withdraw(((struct fake_core *)ctx)->ledger, id);
	pause_failures(false);
}

static void close_aside(void *ctx, uid_t payer_uid, int fd)
{
	struct fake_core *fake = ctx;
	fake->closed_aside++;
	fake->closed_for = payer_uid;
	must(close(fd) == 0);
}

static void random_bytes(void *ctx, void *bytes, size_t n)
{
	struct fake_core *fake = ctx;
	uint8_t *p = bytes;
	while (n-- > 0) {
		fake->random = fake->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
		*p++ = (uint8_t)(fake->random >> 56);
	}
}

static void device_changed(void *ctx, uint32_t device)
{
	((struct fake_core *)ctx)->device_changes++;
}

static void session_changed(void *ctx, struct gm_session *session, uint32_t device)
{
	struct fake_core *fake = ctx;
	must(session);
	fake->session_changes++;
}

static void level_changed(void *ctx, uint32_t device, enum gm_pressure_level level)
{
	struct fake_core *fake = ctx;
	fake->level_changes++;
	fake->level = level;
}

/* ---- what clients are asked and what is told */

static void use(void *ctx, struct gm_session *session, uint32_t device, struct gm_account_use *ret)
{
	struct fake_core *fake = ctx;
	fake->page_looks++;
	*ret = fake->use[gm_session_id(session) % FAKE_LOG][device];
}

static void reclaim(void *ctx, struct gm_session *session, const struct gm_reclaim_message *ask)
{
	struct fake_core *fake = ctx;
	must(ask->bytes > 0 && ask->deadline_ns > fake->now);
	must(!fake_quarantined(session));
	fake->asks[fake->n_asks++ % FAKE_LOG] =
		(struct fake_ask){.session = gm_session_id(session), .ask = *ask};
}

static void maker_left(void *ctx, struct gm_session *session)
{
	struct fake_core *fake = ctx;
	fake->left++;
	fake->left_to = gm_session_id(session);
}

static int terminate(void *ctx, struct gm_session *session, uint32_t device)
{
	struct fake_core *fake = ctx;
	fake->victim = gm_session_id(session);
	fake->victims++;
	return fake->terminate;
}

static void probe(void *ctx, uint32_t device)
{
	struct fake_core *fake = ctx;
	must(!fake->probing);
	fake->probes++;
	fake->probing = true;
}

void fake_probed(struct fake_core *fake, uint32_t device, uint64_t foreign)
{
	uint64_t total = fake_figures(fake, device).total;
	uint64_t used = fake->backend_bytes[device] + foreign;
	must(fake->probing);
	fake->probing = false;
	gm_core_sample(fake->core, device, total > used ? total - used : 0);
	gm_core_probed(fake->core, device);
}

static void count(void *ctx, uint32_t device)
{
	((struct fake_core *)ctx)->counts++;
}

static enum gm_env_process fate(void *ctx, pid_t pid, uint64_t began)
{
	must(pid > 0);
	return ((struct fake_core *)ctx)->fate;
}

static void wake_at(void *ctx, uint64_t ns)
{
	((struct fake_core *)ctx)->wake_ns = ns;
}

static void event(void *ctx, const struct gm_event *told)
{
	struct fake_core *fake = ctx;
	struct fake_event *e = &fake->events[fake->n_events++ % FAKE_LOG];
	must(told->text && told->text[0]);
	memset(e, 0, sizeof(*e));
	e->event = *told;
	e->session = told->session ? gm_session_id(told->session) : 0;
	if (told->owner)
		e->owner = *told->owner;
	strncpy(e->text, told->text, sizeof(e->text) - 1);
	e->event.session = NULL;
	e->event.owner = NULL;
	e->event.text = NULL;
	/* One at a time, and none ends that did not start. */
	if (told->kind == GM_EVENT_RECLAIM_STARTED) {
		must(!fake_reclaims(fake, told->device, told->trigger));
		fake->started[told->device][told->trigger]++;
	} else if (told->kind == GM_EVENT_RECLAIM_ENDED) {
		must(fake_reclaims(fake, told->device, told->trigger));
		fake->ended[told->device][told->trigger]++;
	}
}

void fake_says(struct fake_core *fake, struct gm_session *session, uint32_t device, uint64_t cached,
	uint64_t evictable)
{
	session->payer.accounts[device].said.until_ns = 0;
	fake->use[gm_session_id(session) % FAKE_LOG][device] =
		(struct gm_account_use){.cached = cached, .evictable = evictable};
}

uint64_t fake_claims(
	const struct fake_core *fake, const struct gm_session *session, uint32_t device)
{
	uint64_t cached = fake->use[gm_session_id(session) % FAKE_LOG][device].cached;
	uint64_t held = gm_session_held(session, device);
	return cached < held ? cached : held;
}

void fake_says_roughly(struct fake_core *fake, struct gm_session *session, uint32_t device)
{
	session->payer.accounts[device].said.until_ns = 0;
	fake->use[gm_session_id(session) % FAKE_LOG][device].rough = true;
}

const struct gm_reclaim_message *fake_asked(
	const struct fake_core *fake, const struct gm_session *session)
{
	for (size_t i = fake->n_asks; i > 0 && i + FAKE_LOG > fake->n_asks; i--)
		if (fake->asks[(i - 1) % FAKE_LOG].session == gm_session_id(session))
			return &fake->asks[(i - 1) % FAKE_LOG].ask;
	return NULL;
}

const struct fake_event *fake_told(const struct fake_core *fake, enum gm_event_kind kind)
{
	for (size_t i = fake->n_events; i > 0 && i + FAKE_LOG > fake->n_events; i--)
		if (fake->events[(i - 1) % FAKE_LOG].event.kind == kind)
			return &fake->events[(i - 1) % FAKE_LOG];
	return NULL;
}

bool fake_reclaims(const struct fake_core *fake, uint32_t device, enum gm_reclaim_trigger trigger)
{
	return fake->started[device][trigger] > fake->ended[device][trigger];
}

uint64_t fake_count_told(const struct fake_core *fake, enum gm_event_kind kind)
{
	uint64_t n = 0;
	must(fake->n_events <= FAKE_LOG);
	for (size_t i = 0; i < fake->n_events; i++)
		n += fake->events[i].event.kind == kind;
	return n;
}

void fake_pass(struct fake_core *fake, uint64_t ns)
{
	uint64_t end = fake->now + ns, next = gm_core_tick(fake->core);
	while (next <= end) {
		if (next > fake->now)
			fake->now = next;
		uint64_t due = gm_core_tick(fake->core);
		must(due > fake->now || due > next);
		next = due;
	}
	fake->now = end;
	gm_core_tick(fake->core);
}

void fake_no_levels(struct gm_policy *policy)
{
	for (unsigned i = 0; i < GM_LEVELS - 1; i++)
		policy->level_ppm[i] = 2000000;
}

struct gm_core_device_info fake_info(uint64_t total)
{
	return (struct gm_core_device_info){.total = total,
		.transport_fd = true,
		.policy = {
			.fraction = 1,
			.max_pool = total,
			.pooling = true,
			.level_ppm = {600000, 800000, 950000},
			.hysteresis_ppm = 50000,
			.dwell_ns = 1000000000,
		}};
}

static void init(struct fake_core *fake, bool asking, bool probing, struct fake_ledger *ledger)
{
	struct gm_core_ops ops = {
		.create = create,
		.destroy = destroy,
		.now_ns = now_ns,
		.new_id = new_id,
		.random = random_bytes,
		.device_changed = device_changed,
		.session_changed = session_changed,
		.level_changed = level_changed,
		.call_off = call_off,
		.maker_left = maker_left,
		.in_use = in_use,
		.pooled = pooled,
		.count = count,
		.fate = fate,
	};
	if (asking) {
		ops.use = use;
		ops.reclaim = reclaim;
		ops.terminate = terminate;
		ops.wake_at = wake_at;
		ops.event = event;
	}
	if (probing)
		ops.probe = probe;
	if (ledger) {
		ops.record = record;
		ops.erase = erase;
		ops.deposit = deposit;
		ops.withdraw = withdraw;
		ops.close = close_aside;
	}
	memset(fake, 0, sizeof(*fake));
	fake->ledger = ledger;
	fake->now = 1;
	/* Room for every chunk there can be, made at once: the fake must not fail when memory is
	 * made to fail. */
	fake->room = (size_t)1 << 15;
	fake->jobs = calloc(fake->room, sizeof(fake->jobs[0]));
	ck_assert_ptr_nonnull(fake->jobs);
	ck_assert_int_eq(gm_core_new(&ops, fake, &fake->core), 0);
}

void fake_core_init(struct fake_core *fake)
{
	init(fake, false, false, NULL);
}

void fake_core_init_asking(struct fake_core *fake)
{
	init(fake, true, false, NULL);
}

void fake_core_init_probing(struct fake_core *fake)
{
	init(fake, true, true, NULL);
}

void fake_core_init_keeping(struct fake_core *fake, struct fake_ledger *ledger)
{
	init(fake, true, false, ledger);
	fake->last_id = fake_ledger_last_id(ledger);
	gm_core_begin_adoption(fake->core);
}

uint32_t fake_core_add(struct fake_core *fake, const struct gm_core_device_info *info)
{
	uint32_t device;
	ck_assert_int_eq(gm_core_add_device(fake->core, info, &device), 0);
	return device;
}

void fake_core_deinit(struct fake_core *fake)
{
	gm_core_shutdown(fake->core);
	fake_core_run(fake);
	ck_assert(gm_core_idle(fake->core));
	for (uint32_t d = 0; d < gm_core_device_count(fake->core); d++) {
		ck_assert_uint_eq(fake->backend_bytes[d], 0);
		ck_assert_uint_eq(fake->backend_chunks[d], 0);
	}
	gm_core_free(fake->core);
	free(fake->jobs);
	fake->jobs = NULL;
}

void fake_core_complete(struct fake_core *fake, size_t i, int result)
{
	must(i < fake->n_jobs);
	struct fake_job job = fake->jobs[i];
	memmove(&fake->jobs[i], &fake->jobs[i + 1], (--fake->n_jobs - i) * sizeof(job));
	uint32_t d = job.chunk->device;
	if (job.destroy) {
		must(fake->backend_bytes[d] >= job.chunk->bytes);
		fake->backend_bytes[d] -= job.chunk->bytes;
		fake->backend_chunks[d]--;
		if (fake->ledger)
			fake_ledger_destroyed(fake->ledger, job.chunk);
		gm_core_destroyed(fake->core, job.chunk);
		return;
	}
	if (result == 0) {
		fake->backend_bytes[d] += job.chunk->bytes;
		fake->backend_chunks[d]++;
		if (fake->ledger)
			fake_ledger_created(fake->ledger, job.chunk);
		job.chunk->handle.native = job.chunk->id;
	}
	gm_core_created(fake->core, job.chunk, result);
}

size_t fake_core_count(const struct fake_core *fake, bool destroying)
{
	size_t n = 0;
	for (size_t i = 0; i < fake->n_jobs; i++)
		n += fake->jobs[i].destroy == destroying;
	return n;
}

void fake_core_run(struct fake_core *fake)
{
	while (fake->n_jobs > 0) {
		size_t i = 0;
		while (i < fake->n_jobs && !fake->jobs[i].destroy)
			i++;
		fake_core_complete(fake, i < fake->n_jobs ? i : 0, 0);
	}
}

struct gm_session *fake_next_session(const struct fake_core *fake, struct gm_session *after)
{
	struct gm_account_payer *payer = after ? after->payer.hh.next : fake->core->env.payers;
	while (payer && (!payer->session || payer->ending))
		payer = payer->hh.next;
	return payer ? payer->session : NULL;
}

struct fake_left {
	uid_t uid;
	uint32_t device;
	uint64_t held;
};

static bool fake_add_left(void *ctx, const struct gm_orphan *orphan)
{
	struct fake_left *left = ctx;
	if (left->uid == (uid_t)-1 || gm_orphan_info(orphan)->uid == left->uid)
		left->held += gm_orphan_held(orphan, left->device);
	return true;
}

uint64_t fake_left_by(const struct fake_core *fake, uid_t uid, uint32_t device)
{
	struct fake_left left = {.uid = uid, .device = device};
	ck_assert(!gm_core_orphan_each(fake->core, 0, fake_add_left, &left));
	return left.held;
}

bool fake_quarantined(const struct gm_session *session)
{
	return session->payer.quarantined;
}

int32_t fake_priority(const struct gm_session *session, uint32_t device)
{
	return session->payer.accounts[device].priority;
}

uint64_t fake_queue_length(const struct fake_core *fake, uint32_t device)
{
	return fake->core->devices[device].queue.length;
}

uint64_t fake_queue_steps(const struct fake_core *fake, uint32_t device)
{
	return fake->core->devices[device].queue.steps;
}

void fake_finish_slices(struct fake_core *fake, uint32_t device)
{
	const struct gm_queue *queue = &fake->core->devices[device].queue;
	while (queue->length > 0 && queue->due_ns <= fake->now + 1) {
		fake->now++;
		gm_core_tick(fake->core);
	}
}

const struct gm_request *fake_queue_holder(const struct fake_core *fake, uint32_t device)
{
	return fake->core->devices[device].queue.holder;
}

void fake_core_check(const struct fake_core *fake, uint32_t device)
{
	struct gm_device_figures f = fake_figures(fake, device);
	uint64_t doomed = 0;
	for (size_t i = 0; i < fake->n_jobs; i++)
		if (fake->jobs[i].destroy && fake->jobs[i].chunk->device == device)
			doomed += fake->jobs[i].chunk->bytes;
	ck_assert_uint_eq(f.created, f.leased + f.quarantined + f.pooled);
	ck_assert_uint_eq(f.created + doomed, fake->backend_bytes[device]);
	uint64_t held = fake_left_by(fake, (uid_t)-1, device);
	for (struct gm_session *s = fake_next_session(fake, NULL); s;
		s = fake_next_session(fake, s))
		held += gm_session_held(s, device);
	ck_assert_uint_eq(held, f.leased + f.quarantined + f.admitted + f.declared);
	ck_assert(f.pooled == 0 || f.pooled + held <= f.ceiling);
}

struct gm_session *fake_session(struct fake_core *fake, gm_domain domain, uid_t uid)
{
	uint8_t token[GM_TOKEN_BYTES];
	struct gm_session *session;
	struct gm_session_info info = {
		.pid = 1, .uid = uid, .gid = uid, .domain = domain, .pooling = true};
	ck_assert_int_eq(gm_session_new(fake->core, &info, token, &session), 0);
	return session;
}

void fake_request_done(struct gm_request *request, gpumem_status status, const char *detail)
{
	struct fake_request *q = (struct fake_request *)request;
	must(q->ended == 0);
	q->ended++;
	q->status = status;
	must(status == GPUMEM_OK || (detail && detail[0]));
	strncpy(q->detail, detail ? detail : "", sizeof(q->detail) - 1);
}

void fake_ask(struct fake_core *fake, struct fake_request *q, struct gm_session *session,
	uint32_t device, uint64_t bytes, enum gm_transport transport)
{
	memset(q, 0, sizeof(*q));
	q->r.session = session;
	q->r.device = device;
	q->r.bytes = bytes;
	q->r.transport = transport;
	q->r.tag = "test";
	q->r.for_others = fake->for_others;
	q->r.signals = fake->signals;
	q->r.one_chunk = fake->one_chunk;
	q->r.host_will_do = fake->host_will_do;
	q->r.done = fake_request_done;
	gm_core_request(fake->core, &q->r);
}

void fake_wait(struct fake_core *fake, struct fake_request *q, struct gm_session *session,
	uint32_t device, uint64_t bytes, uint64_t wait_ns)
{
	memset(q, 0, sizeof(*q));
	q->r.session = session;
	q->r.device = device;
	q->r.bytes = bytes;
	q->r.wait_ns = wait_ns;
	q->r.host_will_do = fake->host_will_do;
	q->r.done = fake_request_done;
	gm_core_request(fake->core, &q->r);
}

void fake_grow(struct fake_core *fake, struct fake_request *q, struct gm_session *session,
	struct gm_lease *lease, uint64_t bytes)
{
	memset(q, 0, sizeof(*q));
	q->r.session = session;
	q->r.lease = lease;
	q->r.bytes = bytes;
	q->r.done = fake_request_done;
	gm_core_request(fake->core, &q->r);
}

struct gm_lease *fake_lease(
	struct fake_core *fake, struct gm_session *session, uint32_t device, uint64_t bytes)
{
	struct fake_request q;
	fake_ask(fake, &q, session, device, bytes, GM_TRANSPORT_AUTO);
	fake_core_run(fake);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_msg(q.status == GPUMEM_OK, "refused: %s", q.detail);
	return q.r.lease;
}

size_t fake_chunks(const struct gm_lease *lease)
{
	size_t n = 0;
	for (const struct gm_chunk *c = gm_lease_chunk(lease, 0); c; c = c->next)
		n++;
	return n;
}

struct gm_device_figures fake_figures(const struct fake_core *fake, uint32_t device)
{
	struct gm_device_figures figures;
	gm_core_device_figures(fake->core, device, &figures);
	return figures;
}

struct gm_pool_totals fake_pool(const struct fake_core *fake, uint32_t device)
{
	struct gm_pool_totals totals;
	gm_core_pool_totals(fake->core, device, &totals);
	return totals;
}
