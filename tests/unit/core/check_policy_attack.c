/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What users can cost one another, whatever they do and in whatever order, in the policy model: its invariants hold all the
 * time (policy_model.c). These cases know the promises of reclaim_backoff.h, reclaim_overdue.h and queue.h, and nothing of how they are kept.
 *
 * GM_MODEL_SEED=n as in check_core_model.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/unit/core/policy_model.h"

#define ATTACKS 6
#define SECONDS 300 /* GM_MODEL_STEPS */
#define MS      UINT64_C(1000000)
enum { FILLER, ATTACKER, HONEST, OTHER };

/* One of each uid, on a device without levels. The honest client answers at once, and takes back what it returned as soon as
 * there is room. */
struct attack {
	struct model *m;
	uint64_t wants;        /* what the honest client holds if it can */
	bool moves;            /* it has buffers to move, otherwise it caches something */
	uint64_t answered;     /* asks that it has looked at */
	uint64_t given;        /* how often it did, or returned that */
	struct m_request *own; /* of the honest client, which takes memory back */
};

static void attack_connect(struct model *m, int k)
{
	struct m_session *s = &m->sessions[k];
	*s = (struct m_session){.uid = 1 + (uid_t)k};
	s->s = fake_session(&m->fake, 1 + (gm_domain)k, s->uid);
	fake_says(&m->fake, s->s, 0, 0, 0);
}

static void attack_begin(struct attack *x, int n, uint64_t total, uint64_t reclaim_ns)
{
	struct model *m = calloc(1, sizeof(*m));
	ck_assert_ptr_nonnull(m);
	*x = (struct attack){.m = m};
	model_run_init(&m->run, 90, (uint64_t)n, SECONDS);
	m->total = total;
	struct gm_core_device_info info = fake_info(total);
	fake_no_levels(&info.policy);
	info.policy.max_pool = 0;
	info.policy.reclaim_ns = reclaim_ns;
	info.policy.deadlock_ns = 3600 * SECOND;
	m->policy = info.policy;
	fake_core_init_asking(&m->fake);
	m->fake.mapped = model_mapped;
	m->fake.mapped_ctx = m;
	m->mapped = MAPPED_OF;
	fake_core_add(&m->fake, &info);
	for (int k = 0; k < 4; k++)
		attack_connect(m, k);
}

static void attack_end(struct attack *x)
{
	struct model *m = x->m;
	gm_core_shutdown(m->fake.core);
	memset(m->sessions, 0, sizeof(m->sessions));
	model_sweep(m);
	fake_core_deinit(&m->fake);
	free(m);
}

/* Returns so many bytes, in chunks of 1 GiB. */
static void attack_return(struct model *m, struct m_session *s, uint64_t bytes)
{
	struct gm_lease *lease = NULL, *next = gm_session_next_lease(s->s, NULL);
	while (bytes > 0 && (lease = next)) {
		uint64_t ids[128];
		size_t n = 0;
		next = gm_session_next_lease(s->s, lease);
		for (const struct gm_chunk *c = gm_lease_chunk(lease, 0); c && bytes > 0;
			c = c->next) {
			ids[n++] = c->id;
			s->returned += c->bytes;
			bytes = model_less(bytes, c->bytes);
		}
		must(m, gm_lease_return_chunks(s->s, lease, ids, n) == GPUMEM_OK, "return");
	}
}

static void attack_drop(struct model *m, struct m_session *s)
{
	attack_return(m, s, gm_session_held(s->s, 0));
	struct gm_lease *lease;
	while ((lease = gm_session_next_lease(s->s, NULL)))
		gm_lease_return(s->s, lease);
}

/* The honest client does what it was asked for. */
static void attack_answer(struct attack *x)
{
	struct model *m = x->m;
	struct m_session *honest = &m->sessions[HONEST];
	for (; x->answered < m->fake.n_asks; x->answered++) {
		const struct fake_ask *asked = &m->fake.asks[x->answered % FAKE_LOG];
		uint64_t bytes = x->moves ? asked->ask.spill : asked->ask.bytes;
		if (asked->session != gm_session_id(honest->s) || bytes == 0)
			continue;
		model_check(m);
		x->given++;
		attack_return(m, honest, bytes);
		model_check(m);
	}
}

static void attack_restore(struct attack *x)
{
	struct model *m = x->m;
	struct m_session *honest = &m->sessions[HONEST];
	uint64_t held = gm_session_held(honest->s, 0);
	if ((!x->own || x->own->q.ended) && held < x->wants &&
		gm_session_room(honest->s, 0) >= x->wants - held)
		x->own = model_ask(m, honest, x->wants - held, false, false);
	held = gm_session_held(honest->s, 0);
	if (held == x->wants)
		fake_says(&m->fake, honest->s, 0, x->moves ? 0 : 10 * GiB, x->moves ? held : 0);
	else
		fake_says(&m->fake, honest->s, 0, 0, 0);
}

static void attack_pass(struct attack *x, uint64_t ns)
{
	for (uint64_t until = x->m->fake.now + ns; x->m->fake.now < until;) {
		attack_answer(x);
		fake_core_run(&x->m->fake);
		attack_restore(x);
		model_check(x->m);
		fake_pass(&x->m->fake, 10 * MS);
		x->m->run.step++;
	}
}

/* Until the request is over, or for so long. */
static void attack_await(struct attack *x, const struct m_request *r, uint64_t ns)
{
	for (uint64_t until = x->m->fake.now + ns; !r->q.ended && x->m->fake.now < until;)
		attack_pass(x, 10 * MS);
	if (!r->q.ended)
		gm_core_cancel(x->m->fake.core, &((struct m_request *)r)->q.r);
	model_check(x->m);
}

/* One of what a user can do to get memory that it does not keep. */
static void attack_waste(struct attack *x)
{
	struct model *m = x->m;
	struct m_session *s = &m->sessions[ATTACKER];
	uint64_t bytes = (1 + model_roll(m, 10)) * GiB;
	struct m_request *large;
	switch (model_roll(m, 12)) {
	case 0 ... 3: /* gives it back at once */
		attack_await(x, model_ask(m, s, bytes, model_roll(m, 2), false), 5 * SECOND);
		attack_drop(m, s);
		break;
	case 4 ... 6: /* takes the request back */
		attack_await(x, model_ask(m, s, bytes, true, true), 10 * MS);
		break;
	case 7 ... 8: /* keeps a little of it, for a while */
		large = model_ask(m, s, bytes, true, true);
		model_ask(m, s, GiB, true, false);
		attack_await(x, large, 10 * MS);
		break;
	case 9: /* waits for more than all can return */
		attack_await(x, model_ask(m, s, 90 * GiB, true, true), model_roll(m, 3 * SECOND));
		break;
	case 10: /* comes again */
		model_end(m, s, model_roll(m, 2));
		attack_connect(m, ATTACKER);
		break;
	case 11: /* rests itself */
		attack_drop(m, s);
		attack_pass(x, model_roll(m, 3 * SECOND));
		break;
	}
	attack_pass(x, 10 * MS);
}

/* Whatever it does, others return what they cache once in a second, and move buffers for it more and more rarely. What it
 * keeps of that for a while is rightly given, so the bounds have room for it: in 402 runs of 75 s, the most were 1.3 times a
 * second, and a third of that. If others were asked each time, it would be more than twice as often, or once a second. */
START_TEST(no_user_makes_others_give_memory_again_and_again_that_it_does_not_keep)
{
	struct attack x;
	attack_begin(&x, _i, 100 * GiB, GM_RECLAIM_NS);
	struct model *m = x.m;
	x.moves = m->run.seed % 2;
	x.wants = 40 * GiB;
	must(m, model_ask(m, &m->sessions[FILLER], 60 * GiB, false, false), "no filler");
	fake_core_run(&m->fake);
	attack_restore(&x);
	attack_pass(&x, 10 * MS);
	uint64_t began = m->fake.now;
	while (m->fake.now - began < m->run.steps * SECOND)
		attack_waste(&x);
	uint64_t seconds = (m->fake.now - began) / SECOND;
	uint64_t most = x.moves ? 17 + seconds / 8 : 3 + seconds + seconds / 4;
	must(m, x.given >= 5, "the run tried little: %" PRIu64, x.given);
	must(m, x.given <= most, "%" PRIu64 " times in %" PRIu64 " s", x.given, seconds);
	attack_end(&x);
}
END_TEST

/* ---- claims that do not come true */

/* Clients of a user that is asked first say what they like, and return nothing. It costs other users one deadline in ten
 * minutes. After that, the honest client is asked as well. */
START_TEST(false_claims_cost_others_one_deadline_however_often_their_user_connects)
{
	struct attack x;
	attack_begin(&x, _i, 100 * GiB, GM_RECLAIM_NS);
	struct model *m = x.m;
	struct m_session *liar = &m->sessions[OTHER], *user = &m->sessions[ATTACKER];
	unsigned late = 0, requests = 0;
	char detail[GM_DETAIL_BYTES];
	struct gm_owner o;
	gm_owner_by_id(GM_OWNER_UID, liar->uid, &o);
	const struct gm_limit_values v = {.set = GM_LIMIT_PRIORITY, .priority = -1};
	must(m, gm_core_set_limit(m->fake.core, &o, 0, &v, detail) == GPUMEM_OK, "priority");
	x.moves = m->run.seed % 2;
	x.wants = 40 * GiB;
	model_ask(m, &m->sessions[FILLER], 40 * GiB, false, false);
	model_ask(m, liar, 20 * GiB, false, false);
	fake_core_run(&m->fake);
	attack_restore(&x);
	attack_pass(&x, 10 * MS); /* the honest client has its memory, and says so */

	for (uint64_t until = m->fake.now + m->run.steps * SECOND; m->fake.now < until;) {
		if (model_roll(m, 3) == 0) {
			uint64_t held = gm_session_held(liar->s, 0);
			model_end(m, liar, true);
			attack_connect(m, OTHER);
			fake_core_run(&m->fake);
			model_ask(m, liar, held, false, false);
			fake_core_run(&m->fake);
		}
		fake_says(
			&m->fake, liar->s, 0, model_roll(m, 21) * GiB, model_roll(m, 2) * 20 * GiB);
		struct m_request *r = model_ask(m, user, (1 + model_roll(m, 8)) * GiB, true, true);
		uint64_t began = m->fake.now;
		attack_await(&x, r, 20 * SECOND);
		must(m, r->q.status == GPUMEM_OK, "it got nothing: %d", r->q.status);
		late += m->fake.now - began > 100 * MS;
		requests++;
		/* It uses what it got, so nobody is exempt. */
		attack_pass(&x, 2 * SECOND);
		attack_drop(m, user);
		attack_pass(&x, 100 * MS);
	}
	must(m, requests > m->run.steps / 4 && late > 0, "the run tried little");
	must(m, late <= 1, "%u of %u requests waited for a deadline", late, requests);
	attack_end(&x);
}
END_TEST

/* ---- requests that hold others back */

/* Two users ask for what a third one says it could return, and never does. Nobody is held back for more than half of the
 * time, by whatever they do; and not at all with a higher priority, or within a guarantee. */
START_TEST(no_users_hold_others_back_for_long_whatever_they_claim)
{
	enum { PLAIN, HIGHER, GUARANTEED };
	struct attack x;
	attack_begin(&x, _i, 16 * GiB, 3600 * SECOND);
	struct model *m = x.m;
	struct m_session *small = &m->sessions[HONEST];
	unsigned rights = (unsigned)_i % 3;
	uint64_t held_back = 0;
	char detail[GM_DETAIL_BYTES];
	struct gm_owner o;
	gm_owner_by_id(GM_OWNER_UID, small->uid, &o);
	const struct gm_limit_values v = {
		.set = rights == HIGHER ? GM_LIMIT_PRIORITY : GM_LIMIT_GUARANTEE,
		.priority = 1,
		.guarantee = GiB};
	if (rights != PLAIN)
		must(m, gm_core_set_limit(m->fake.core, &o, 0, &v, detail) == GPUMEM_OK, "right");
	model_ask(m, &m->sessions[FILLER], 14 * GiB, false, false);
	fake_core_run(&m->fake);
	fake_says(&m->fake, m->sessions[FILLER].s, 0, 14 * GiB, 0);

	uint64_t began = m->fake.now;
	while (m->fake.now - began < m->run.steps * SECOND) {
		struct m_session *s = &m->sessions[model_roll(m, 2) ? ATTACKER : OTHER];
		unsigned waiting = 0;
		for (int i = 0; i < REQUESTS; i++)
			waiting += m->requests[i].used && !m->requests[i].q.ended;
		if (waiting < 4)
			model_ask(m, s, (8 + model_roll(m, 5)) * GiB, true, true);
		if (model_roll(m, 40) == 0) {
			int k = (int)(s - m->sessions);
			model_end(m, s, true);
			attack_connect(m, k);
		}
		struct m_request *r = &m->requests[model_roll(m, REQUESTS)];
		if (model_roll(m, 20) == 0 && r->used && !r->q.ended)
			gm_core_cancel(m->fake.core, &r->q.r);
		model_check(m);
		r = model_ask(m, small, 2 * MiB, true, model_roll(m, 2));
		fake_core_run(&m->fake);
		for (model_check(m); !r->q.ended; m->run.step++) {
			held_back += 50 * MS;
			fake_pass(&m->fake, 50 * MS);
			fake_core_run(&m->fake);
			model_check(m);
		}
		must(m, r->q.status == GPUMEM_OK, "it was refused: %d", r->q.status);
		attack_drop(m, small);
		model_check(m);
		fake_pass(&m->fake, model_roll(m, 100) * MS);
	}
	if (rights == PLAIN)
		must(m, m->n.refs > 1 && held_back > 0, "the run tried little");
	if (rights == PLAIN)
		must(m, held_back <= m->run.steps * SECOND / 2 + GM_QUEUE_HEAD_HOLD_NS,
			"held back for %" PRIu64 " ms", held_back / MS);
	else
		must(m, held_back == 0, "held back for %" PRIu64 " ms", held_back / MS);
	attack_end(&x);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("policy_attack");
	TCase *tcase = tcase_create("attack");
	tcase_set_timeout(tcase, 240);
	tcase_add_loop_test(tcase,
		no_user_makes_others_give_memory_again_and_again_that_it_does_not_keep, 0, ATTACKS);
	tcase_add_loop_test(tcase,
		false_claims_cost_others_one_deadline_however_often_their_user_connects, 0,
		ATTACKS);
	tcase_add_loop_test(
		tcase, no_users_hold_others_back_for_long_whatever_they_claim, 0, ATTACKS);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
