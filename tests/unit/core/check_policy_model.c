/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits, queue and reclaim against a model: any sequence of requests that wait or do not, cancels,
 * returns, deaths, disconnects, new limits, new policies, foreign memory, steps of the clock, jobs
 * that end in any order or fail, and clients that answer a reclaim, lie, or say nothing. (Leases,
 * shares and the ledger have their own model: core_model.c.)
 *
 * The invariants stand in policy_model.c. Each request ends once, and nothing is left at the end.
 *
 * GM_MODEL_SEED=n and GM_MODEL_STEPS=n as in check_core_model.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/unit/core/policy_model.h"

#define STEPS 12000
#define SEEDS 8

static const char *const owners[OWNERS] = {"uid:1", "uid:2", "uid:3", "gid:1", "gid:2", "unit:a",
	"container:x", "container:y", "client:me"};

/* ---- the steps */

static struct m_session *pick(struct model *m, bool connected)
{
	uint64_t start = model_roll(m, SESSIONS);
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
	*s = (struct m_session){.uid = 1 + (uid_t)model_roll(m, UIDS),
		.gid = 1 + (gid_t)model_roll(m, 3),
		.unit = units[model_roll(m, 3)],
		.container = boxes[model_roll(m, 3)],
		.name = names[model_roll(m, 3)]};
	struct gm_session_info info = {.pid = 1,
		.uid = s->uid,
		.gid = s->gid,
		.domain = 1 + model_roll(m, 4),
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
	uint64_t bytes =
		model_roll(m, 4) ? 1 + model_roll(m, 200 * MiB) : 1 + model_roll(m, 9 * GiB);
	bool waits = model_roll(m, 2);
	if (s)
		model_ask(m, s, bytes, waits, waits && model_roll(m, 4));
}

static struct gm_lease *some_lease(struct model *m, const struct m_session *s)
{
	uint64_t n = gm_session_lease_count(s->s);
	struct gm_lease *lease = gm_session_next_lease(s->s, NULL);
	for (uint64_t k = n ? model_roll(m, n) : 0; lease && k > 0; k--)
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
	if (model_roll(m, 2)) {
		struct gm_lease_info info;
		gm_lease_info(lease, s->s, &info);
		for (const struct gm_chunk *c = gm_lease_chunk(lease, 0); c; c = c->next)
			s->returned += model_mapped(m, c) ? 0 : c->bytes;
		gm_lease_return(s->s, lease);
	} else {
		for (const struct gm_chunk *c = gm_lease_chunk(lease, 0); c && n < 64; c = c->next)
			if (model_roll(m, 2)) {
				ids[n++] = c->id;
				s->returned += model_mapped(m, c) ? 0 : c->bytes;
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
			model_check(m);
		}
	}
}

static void step_limit(struct model *m)
{
	m->moved = true;
	char detail[GM_DETAIL_BYTES] = "";
	struct gm_owner o;
	ck_assert_int_eq(gm_owner_parse(owners[model_roll(m, OWNERS)], &o), 0);
	if (model_roll(m, 3) == 0) {
		gm_core_reset_limit(
			m->fake.core, model_roll(m, 4) ? &o : NULL, GM_ALL_DEVICES, detail);
		return;
	}
	struct gm_limit_values v = {.set = 1 + (unsigned)model_roll(m, 7),
		.max = model_roll(m, 5) ? model_roll(m, 10 * GiB) : UINT64_MAX,
		.guarantee = model_roll(m, 3 * GiB),
		.priority = (int32_t)model_roll(m, 4) - 1};
	gpumem_status status;
	if (model_roll(m, 2)) {
		status = gm_core_set_limit(m->fake.core, &o, 0, &v, detail);
	} else {
		struct gm_limit_rule rule = {.owner = o, .device = GM_ALL_DEVICES, .values = v};
		status = gm_core_configure(m->fake.core, NULL, &rule, 1, detail);
	}
	must(m, status == GPUMEM_OK || (status == GPUMEM_E_INVALID && detail[0]), "limit: %d",
		status);
}

static void step_sample(struct model *m)
{
	uint64_t ours = m->fake.backend_bytes[0];
	uint64_t others = model_roll(m, 4) ? model_roll(m, GiB) : model_roll(m, m->total);
	if (m->fake.probing && model_roll(m, 4)) {
		fake_probed(&m->fake, 0, others);
		m->n.probed++;
	} else if (m->fake.probing && model_roll(m, 4) == 0) {
		m->fake.probing = false;
		gm_core_sample_failed(m->fake.core, 0);
		gm_core_probed(m->fake.core, 0);
	} else {
		gm_core_sample(m->fake.core, 0, model_less(model_less(m->total, ours), others));
	}
}

static void step_says(struct model *m)
{
	struct m_session *s = pick(m, false);
	if (s)
		fake_says(&m->fake, s->s, 0,
			model_roll(m, 4) ? model_roll(m, gm_session_held(s->s, 0) + 1)
					 : model_roll(m, UINT64_MAX),
			model_roll(m, 3) ? 0 : model_roll(m, 4 * GiB));
}

static void step_cleanup(struct model *m)
{
	struct gm_reclaim_plan dry, real;
	char detail[GM_DETAIL_BYTES];
	uint64_t need = model_roll(m, 3) ? model_roll(m, m->total) : 0;
	gpumem_status a = gm_core_cleanup_plan(m->fake.core, 0, need, &dry, detail);
	gpumem_status b = gm_core_cleanup(m->fake.core, 0, need, &real, detail);
	must(m, a == b && dry.n_steps == real.n_steps, "the dry run said something else");
	for (size_t i = 0; i < dry.n_steps; i++)
		must(m,
			dry.steps[i].session == real.steps[i].session &&
				dry.steps[i].bytes == real.steps[i].bytes,
			"another victim");
	gm_reclaim_plan_deinit(&dry);
	gm_reclaim_plan_deinit(&real);
}

static void step_end(struct model *m)
{
	struct m_session *s = pick(m, false);
	if (s)
		model_end(m, s, model_roll(m, 2) || s->away);
}

static void step_policy(struct model *m)
{
	m->moved = true;
	struct gm_policy *p = &m->policy;
	p->fraction = 0.6 + (double)model_roll(m, 41) / 100;
	p->min_free = model_roll(m, 3) * 100 * MiB;
	p->oom = (enum gm_policy_oom)model_roll(m, 3);
	p->reserve = model_roll(m, 2) * 64 * MiB;
	gm_core_set_policy(m->fake.core, 0, p);
}

static void step_pass(struct model *m, uint64_t ns)
{
	m->fake.now += ns;
	gm_core_tick(m->fake.core);
	if (!m->fake.victim || !gm_core_find_session(m->fake.core, m->fake.victim))
		return;
	for (int k = 0; k < SESSIONS; k++)
		if (m->sessions[k].s && gm_session_id(m->sessions[k].s) == m->fake.victim) {
			model_end(m, &m->sessions[k], true);
			m->n.victims++;
		}
}

/* Every client waits for more, without an end, and returns nothing for some time. What comes of it may be a deadlock. */
static void step_stand_still(struct model *m)
{
	for (int k = 0; k < SESSIONS; k++) {
		struct m_session *s = &m->sessions[k];
		if (!s->s)
			continue;
		if (s->away)
			model_end(m, s, true);
		else
			model_ask(m, s, 1 + model_roll(m, 4 * GiB), true, true);
		model_check(m);
	}
	for (int i = 0; i < 20; i++) {
		while (m->fake.n_jobs > 0) {
			fake_core_complete(&m->fake, 0, 0);
			model_check(m);
		}
		if (m->fake.probing)
			fake_probed(&m->fake, 0, 0);
		model_check(m);
		step_pass(m, model_roll(m, SECOND / 5));
		model_check(m);
	}
}

static void step(struct model *m)
{
	m->run.step++;
	switch (model_roll(m, 33)) {
	case 0 ... 1:
		step_connect(m);
		break;
	case 2 ... 10:
		step_ask(m);
		break;
	case 11 ... 15:
		for (uint64_t n = model_roll(m, 8); n-- > 0 && m->fake.n_jobs > 0; model_check(m))
			fake_core_complete(&m->fake, model_roll(m, m->fake.n_jobs),
				model_roll(m, m->dry ? 2 : 40) ? 0 : -ENOMEM);
		if (model_roll(m, 8) == 0)
			m->dry = !m->dry;
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
		if (model_roll(m, 3) == 0)
			step_end(m);
		break;
	case 22: {
		struct m_session *s = pick(m, true);
		if (s && model_roll(m, 4) == 0) {
			s->away = true;
			gm_session_quarantine(s->s);
		}
		break;
	}
	case 23:
		if (model_roll(m, 2))
			step_limit(m);
		break;
	case 24:
		step_sample(m);
		break;
	case 25 ... 26:
		step_says(m);
		break;
	case 27 ... 29:
		step_pass(m, model_roll(m, 3) ? model_roll(m, 60000000) : model_roll(m, SECOND));
		break;
	case 30: {
		struct m_request *r = &m->requests[model_roll(m, REQUESTS)];
		if (r->used && !r->q.ended) {
			gm_core_cancel(m->fake.core, &r->q.r);
			must(m, r->q.status == GPUMEM_E_CANCELLED, "not cancelled");
		}
		break;
	}
	case 31:
		if (model_roll(m, 6) == 0)
			step_policy(m);
		else if (model_roll(m, 4) == 0)
			step_cleanup(m);
		else if (model_roll(m, 8) == 0)
			step_stand_still(m);
		break;
	case 32:
		/* Some let go, others get hold of chunks. */
		m->mapped = model_roll(m, 2 * MAPPED_OF);
		break;
	}
	m->n.orphaned += fake_figures(&m->fake, 0).orphaned > 0;
	model_check(m);
	if (m->fake.probing && model_roll(m, 3) == 0) {
		step_sample(m);
		model_check(m);
	}
}

START_TEST(any_sequence_of_events_keeps_limits_order_and_promises)
{
	struct model *m = calloc(1, sizeof(*m));
	ck_assert_ptr_nonnull(m);
	model_run_init(&m->run, 40, (uint64_t)_i, STEPS);
	uint64_t n = m->run.steps;
	m->total = 16 * GiB;
	struct gm_core_device_info info = fake_info(m->total);
	info.policy.max_pool = UINT64_MAX;
	info.policy.deadlock_ns = SECOND / 50;
	m->policy = info.policy;
	fake_core_init_probing(&m->fake);
	m->fake.mapped = model_mapped;
	m->fake.mapped_ctx = m;
	m->mapped = MAPPED_OF;
	m->fake.calls_off = m->run.seed % 2; /* whether what is cancelled is made all the same */
	fake_core_add(&m->fake, &info);
	model_check(m);
	while (m->run.step < n)
		step(m);
	for (size_t i = 0; i < m->fake.n_events && i < FAKE_LOG; i++)
		m->n.ignored += m->fake.events[i].event.kind == GM_EVENT_IGNORED;
	fprintf(stderr,
		"# granted %" PRIu64 " (%" PRIu64 " after waiting), refused %" PRIu64
		", limit %" PRIu64 ", timeout %" PRIu64 ", deadlock %" PRIu64 ", never %" PRIu64
		", held back %" PRIu64 "/%" PRIu64 ", asked %" PRIu64 ", ignored %" PRIu64
		", victims %" PRIu64 ", probed %" PRIu64 ", denied %" PRIu64 "\n",
		m->n.granted, m->n.late, m->n.refused, m->n.limit, m->n.timeout, m->n.deadlock,
		m->n.never, m->n.refs, m->n.turned, m->n.asked, m->n.ignored, m->n.victims,
		m->n.probed, m->n.denied);
	must(m,
		m->run.chosen || n < STEPS ||
			(m->n.granted > n / 100 && m->n.late > n / 300 && m->n.limit > n / 1000 &&
				m->n.timeout > 0 && m->n.deadlock > 0 && m->n.asked > n / 300 &&
				m->n.ignored > 0 && m->n.probed > 0 && m->n.denied > 0 &&
				m->n.orphaned > n / 20),
		"the run tried little");
	gm_core_shutdown(m->fake.core);
	memset(m->sessions, 0, sizeof(m->sessions));
	model_sweep(m);
	for (int i = 0; i < REQUESTS; i++)
		must(m, !m->requests[i].used, "a request never ended");
	fake_core_deinit(&m->fake);
	free(m);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("policy_model");
	TCase *tcase = tcase_create("model");
	tcase_set_timeout(tcase, 240);
	tcase_add_loop_test(
		tcase, any_sequence_of_events_keeps_limits_order_and_promises, 0, SEEDS);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
