/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Daemons that die at any write of a record, and others that take over. Random operations run on a
 * core with a ledger in plain memory. At a random write or erasure, the ledger stops, as if the daemon
 * had died there. The next core is built from the records, and its books are held against those before
 * and after the operation in which the daemon died:
 *   - what both have is there, so no byte that a client was told of is lost;
 *   - what is there is in one of them, and nothing is charged twice;
 *   - a request is granted as a whole or not at all;
 *   - if the daemon died between two operations, the books are equal, line by line.
 * A second test damages the records first: core adopts what is sound, and no chunk changes its uid.
 *
 * GM_MODEL_SEED=n runs other seeds (the first one is n), GM_MODEL_STEPS=n more or fewer steps.
 */
#include <errno.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/unit/core/fake_ledger.h"
#include "tests/unit/core/model_run.h"

#define SEEDS    6
#define STEPS    2500
#define SESSIONS 8
#define TOKENS   32
#define PIECES   4
#define DEVICES  2

struct adopt_session {
	struct gm_session *s;
	uint64_t id;
	uint8_t token[GM_TOKEN_BYTES], former[GM_TOKEN_BYTES];
};

struct adopt_model {
	struct fake_core fake;
	struct fake_ledger ledger;
	struct model_run run;
	struct gm_core_device_info devices[DEVICES];
	struct adopt_session sessions[SESSIONS];
	uint8_t tokens[TOKENS][GM_TOKEN_BYTES];
	size_t n_tokens;
	uint64_t last_request;
	struct adopt_session *resuming; /* by the step that runs */
	bool forged;                    /* a record has got another uid */
	bool granting;                  /* the step that runs is a grant */
	bool leaving;                   /* a session ends in the step that runs */
	uint64_t restarts, partial, granted, shared;
};

static struct gm_lease *pick_lease(struct adopt_model *m, struct gm_session *s)
{
	struct gm_lease *lease = NULL;
	uint64_t n = gm_session_lease_count(s);
	for (uint64_t i = n ? model_roll(m, n) + 1 : 0; i > 0; i--)
		lease = gm_session_next_lease(s, lease);
	return lease;
}

static void step_join(struct adopt_model *m)
{
	static const char *const units[] = {NULL, "a.service", "b.service"};
	for (int i = 0; i < SESSIONS; i++) {
		struct adopt_session *o = &m->sessions[i];
		if (o->s)
			continue;
		o->s = fake_ledger_join(
			&m->fake, 100 + (uid_t)model_roll(m, 3), units[model_roll(m, 3)], o->token);
		o->id = gm_session_id(o->s);
		return;
	}
}

static void step_ask(struct adopt_model *m, struct adopt_session *o, bool grow)
{
	struct gm_lease *lease = grow ? pick_lease(m, o->s) : NULL;
	struct fake_request q = {0};
	m->granting = true;
	if (grow && !lease)
		return;
	uint64_t bytes = (1 + model_roll(m, 40)) * MiB;
	memset(&q, 0, sizeof(q));
	q.r = (struct gm_request){.session = o->s,
		.lease = lease,
		.device = (uint32_t)model_roll(m, DEVICES),
		.bytes = bytes,
		.tag = model_roll(m, 2) ? "some tag" : NULL,
		.id = ++m->last_request,
		.for_others = model_roll(m, 2),
		.signals = !lease && model_roll(m, 4) == 0,
		.wait_ns = GM_WAIT_NEVER,
		.done = fake_request_done};
	gm_core_request(m->fake.core, &q.r);
	fake_core_run(&m->fake);
	if (!q.ended)
		gm_core_cancel(m->fake.core, &q.r);
	m->granted += q.status == GPUMEM_OK;
}

static void step_return(struct adopt_model *m, struct adopt_session *o)
{
	struct gm_lease *lease = pick_lease(m, o->s);
	if (!lease)
		return;
	if (model_roll(m, 2)) {
		gm_lease_return(o->s, lease);
		return;
	}
	uint64_t ids[64];
	size_t n = 0;
	for (const struct gm_chunk *c = gm_lease_chunk(lease, 0); c && n < 64; c = c->next)
		if (model_roll(m, 2))
			ids[n++] = c->id;
	gm_lease_return_chunks(o->s, lease, ids, n);
}

static void step_share(struct adopt_model *m, struct adopt_session *o)
{
	struct gm_lease *lease = pick_lease(m, o->s);
	struct gm_token_options options = {
		.audience = model_roll(m, 2) ? GM_NAME_AUDIENCE_DOMAIN : GM_NAME_AUDIENCE_UID,
		.id = 100 + (uint32_t)model_roll(m, 3),
		.read_only = model_roll(m, 2),
	};
	if (lease && model_roll(m, 8) == 0)
		gm_lease_unshare(o->s, lease);
	else if (lease)
		gm_lease_share(o->s, lease, &options, m->tokens[m->n_tokens++ % TOKENS]);
}

/* Shares some chunks of leases, with a token of their own or as the next ones of a token. */
static void step_share_chunks(struct adopt_model *m, struct adopt_session *o)
{
	uint64_t leases[PIECES], chunks[PIECES], own[PIECES];
	uint8_t *token = m->tokens[m->n_tokens % TOKENS];
	struct gm_token_chunks what = {
		.leases = leases, .chunks = chunks, .asked = ++m->last_request};
	char detail[GM_DETAIL_BYTES];

	for (size_t most = 1 + model_roll(m, PIECES); what.n < most;) {
		struct gm_lease *lease = pick_lease(m, o->s);
		const struct gm_chunk *c = lease ? gm_lease_chunk(lease, model_roll(m, 4)) : NULL;
		struct gm_lease_info info;
		if (!c)
			break;
		gm_lease_info(lease, o->s, &info);
		leases[what.n] = info.id;
		chunks[what.n++] = model_roll(m, 6) ? c->id : 0;
	}
	if (what.n == 0)
		return;
	if (model_roll(m, 3) == 0) {
		what.first = 1 + (uint32_t)model_roll(m, PIECES);
		token = m->tokens[model_roll(m, TOKENS)];
	} else {
		m->n_tokens++;
	}
	if (model_roll(m, 6) == 0)
		fake_unshare_chunks(o->s, token, (uint32_t)model_roll(m, 2 * PIECES));
	m->shared += fake_share_chunks(o->s, &what, token, own, detail) == GPUMEM_OK;
}

static void step_open(struct adopt_model *m, struct adopt_session *o)
{
	struct gm_lease *lease;
	if (m->n_tokens > 0)
		gm_session_open_by(o->s, m->tokens[model_roll(m, TOKENS)],
			model_roll(m, 2) ? (uint32_t)model_roll(m, PIECES) : 0, NULL, 0,
			++m->last_request, false, &lease);
}

static const char *const names[] = {"llama", "mistral", "gemma"};

static void step_publish(struct adopt_model *m, struct adopt_session *o)
{
	struct gm_lease *lease = pick_lease(m, o->s);
	const char *text = names[model_roll(m, 3)];
	uid_t uid = gm_session_info(o->s)->uid;
	struct gm_name_publish what = {
		.text = text,
		.share = {.audience =
				  model_roll(m, 2) ? GM_NAME_AUDIENCE_DOMAIN : GM_NAME_AUDIENCE_UID,
			.id = 100 + (uint32_t)model_roll(m, 3),
			.read_only = model_roll(m, 2)},
		.until_unread = model_roll(m, 2),
		.replace = model_roll(m, 2),
		.metadata_bytes = model_roll(m, 3),
		.lifetime_ns = model_roll(m, 2) ? UINT64_C(1) << 50 : 0,
	};
	char detail[GM_DETAIL_BYTES];
	uint64_t version;
	/* A draft that is used, one that is too short, and one that is forgotten. */
	struct gm_metadata_piece piece = {
		.size = 1 + model_roll(m, 2), .bytes = "xy", .n = 1 + model_roll(m, 2)};
	if (lease && model_roll(m, 4) > 0)
		gm_lease_put_metadata(o->s, lease, &piece, detail);
	if (model_roll(m, 4) == 0)
		gm_core_expire(m->fake.core, &(struct gm_name_asker){.admin = true}, uid, text,
			(UINT64_C(1) << 40) + model_roll(m, 100));
	else if (model_roll(m, 4) == 0)
		gm_core_unpublish(m->fake.core, &(struct gm_name_asker){.admin = true}, uid, text);
	else if (lease)
		gm_lease_publish(o->s, lease, &what, &version, detail);
}

static void step_attach(struct adopt_model *m, struct adopt_session *o)
{
	struct gm_lease *lease;
	gm_session_attach(o->s, 100 + (uid_t)model_roll(m, 3), names[model_roll(m, 3)], NULL, 0,
		++m->last_request, false, &lease);
}

static void step_limit(struct adopt_model *m, const struct adopt_session *o)
{
	struct gm_limit_values values = {.set = GM_LIMIT_MAX | GM_LIMIT_PRIORITY,
		.max = (256 + model_roll(m, 512)) * MiB,
		.priority = (int32_t)model_roll(m, 9) - 4};
	uint32_t device = model_roll(m, 2) ? GM_ALL_DEVICES : (uint32_t)model_roll(m, DEVICES);
	struct gm_owner owner;
	char detail[GM_DETAIL_BYTES];
	switch (model_roll(m, 3)) {
	case 0:
		gm_owner_by_id(GM_OWNER_UID, 100 + model_roll(m, 3), &owner);
		break;
	case 1:
		gm_owner_by_id(GM_OWNER_SESSION, o->id, &owner);
		break;
	default:
		gm_owner_by_name(GM_OWNER_UNIT, "a.service", &owner);
	}
	if (model_roll(m, 3))
		gm_core_set_limit(m->fake.core, &owner, device, &values, detail);
	else
		gm_core_reset_limit(m->fake.core, model_roll(m, 6) ? &owner : NULL, device, detail);
}

static void step_resume(struct adopt_model *m, struct adopt_session *o)
{
	uint8_t next[GM_TOKEN_BYTES];
	void *user = gm_session_info(o->s)->user;
	gm_session_quarantine(o->s);
	must(m, gm_session_resume(o->s, o->token, user, next) == 0, "a token is not valid");
	memcpy(o->former, o->token, sizeof(next));
	memcpy(o->token, next, sizeof(next));
	m->resuming = o;
}

static void step(struct adopt_model *m)
{
	struct adopt_session *o = &m->sessions[model_roll(m, SESSIONS)];
	m->granting = m->leaving = false;
	m->resuming = NULL;
	if (!o->s || model_roll(m, 20) == 0) {
		step_join(m);
		return;
	}
	switch (model_roll(m, 22)) {
	case 18:
	case 19:
	case 20:
	case 21:
		step_share_chunks(m, o);
		break;
	case 16:
		step_publish(m, o);
		break;
	case 17:
		step_attach(m, o);
		break;
	case 0:
		m->fake.in_use = model_roll(m, 2);
		m->leaving = true;
		fake_ledger_leave(&m->fake, o->s, model_roll(m, 2));
		o->s = NULL;
		break;
	case 1:
		step_share(m, o);
		break;
	case 2:
	case 3:
		step_open(m, o);
		break;
	case 4:
		step_limit(m, o);
		break;
	case 5:
		if (model_roll(m, 2))
			gm_session_confirm(o->s);
		else
			step_resume(m, o);
		break;
	case 6:
		/* So many chunks may be orphaned that they are looked at in several ticks. */
		m->fake.now += UINT64_C(10000000000);
		for (int i = 0; i < 8; i++)
			gm_core_tick(m->fake.core);
		break;
	case 7:
		m->fake.in_use = !m->fake.in_use;
		step_return(m, o);
		break;
	case 8:
	case 9:
	case 10:
		step_return(m, o);
		break;
	case 11:
	case 12:
		step_ask(m, o, true);
		break;
	default:
		step_ask(m, o, false);
	}
	m->fake.in_use = false;
	fake_core_run(&m->fake);
}

/* ---- a restart */

/* Every client comes back with the last token that it got. */
static void resume_all(struct adopt_model *m, bool cut)
{
	if (cut && m->resuming)
		memcpy(m->resuming->token, m->resuming->former, GM_TOKEN_BYTES);
	for (int i = 0; i < SESSIONS; i++) {
		struct adopt_session *o = &m->sessions[i];
		uint8_t next[GM_TOKEN_BYTES];
		o->s = o->id ? gm_core_find_session(m->fake.core, o->id) : NULL;
		if (!o->s) {
			o->id = 0;
			continue;
		}
		must(m, fake_quarantined(o->s), "an adopted session is connected");
		void *user = gm_session_info(o->s)->user;
		int r = gm_session_resume(o->s, o->token, user, next);
		must(m, r == 0, "session %" PRIu64 " cannot be resumed: %d", o->id, r);
		memcpy(o->token, next, sizeof(next));
		gm_session_confirm(o->s);
	}
}

static bool is_chunk(const char *line)
{
	return strncmp(line, "chunk ", 6) == 0;
}

/* A session that opened its own lease several times leaves it one by one. */
static bool is_half_left(
	const struct adopt_model *m, const char *line, const struct fake_books *before)
{
	const char *made = strstr(line, " made ");
	for (size_t i = 0; m->leaving && made && i < before->n; i++)
		if (strncmp(line, before->lines[i], (size_t)(made - line) + 1) == 0)
			return true;
	return false;
}

/* Holds the adopted books against those before and after the operation that was cut short. */
static void check_cut(struct adopt_model *m, const struct fake_books *before,
	const struct fake_books *after, const struct fake_books *adopted)
{
	size_t new_chunks = 0, new_adopted = 0;
	for (size_t i = 0; i < before->n; i++)
		must(m,
			!fake_books_has(after, before->lines[i]) ||
				fake_books_has(adopted, before->lines[i]),
			"lost: %s", before->lines[i]);
	for (size_t i = 0; i < adopted->n; i++)
		must(m,
			fake_books_has(before, adopted->lines[i]) ||
				fake_books_has(after, adopted->lines[i]) ||
				is_half_left(m, adopted->lines[i], before),
			"from nowhere: %s", adopted->lines[i]);
	for (size_t i = 0; i < after->n; i++) {
		if (!is_chunk(after->lines[i]) || fake_books_has(before, after->lines[i]))
			continue;
		new_chunks++;
		new_adopted += fake_books_has(adopted, after->lines[i]);
	}
	must(m, !m->granting || new_adopted == 0 || new_adopted == new_chunks,
		"%zu of %zu chunks of a request", new_adopted, new_chunks);
}

static void restart(struct adopt_model *m, struct gm_adopt_result *result)
{
	fake_ledger_restart(&m->fake, m->devices, DEVICES, true, result);
	m->restarts++;
	for (unsigned kind = 0; kind < GM_RECORD_KINDS; kind++)
		must(m, result->damaged[kind] == 0, "%" PRIu64 " damaged of kind %u",
			result->damaged[kind], kind);
	must(m, result->lost == 0, "lost");
	for (uint32_t d = 0; d < DEVICES; d++)
		fake_core_check(&m->fake, d);
}

static void model_init(struct adopt_model *m, int n)
{
	struct gm_adopt_result result;
	memset(m, 0, sizeof(*m));
	model_run_init(&m->run, 1, (uint64_t)n, STEPS);
	for (uint32_t d = 0; d < DEVICES; d++) {
		m->devices[d] = fake_info(GiB);
		fake_no_levels(&m->devices[d].policy);
		m->devices[d].policy.reserve = d * 8 * MiB;
	}
	fake_core_init_keeping(&m->fake, &m->ledger);
	gm_core_end_adoption(m->fake.core);
	fake_ledger_restart(&m->fake, m->devices, DEVICES, true, &result);
}

static void model_deinit(struct adopt_model *m)
{
	for (int i = 0; i < SESSIONS; i++)
		if (m->sessions[i].s)
			fake_ledger_leave(&m->fake, m->sessions[i].s, true);
	fake_core_deinit(&m->fake);
	fake_ledger_deinit(&m->ledger);
}

static struct adopt_model model;

START_TEST(a_daemon_may_die_at_any_write)
{
	struct adopt_model *m = &model;
	struct fake_books before, after, adopted;
	struct gm_adopt_result result;
	model_init(m, _i);

	for (m->run.step = 0; m->run.step < m->run.steps; m->run.step++) {
		bool dies = model_roll(m, 12) == 0;
		if (!dies) {
			step(m);
			continue;
		}
		fake_books_read(&m->fake, &before);
		m->ledger.stop_at = m->ledger.writes + 1 + model_roll(m, 8);
		step(m);
		bool cut = m->ledger.stopped;
		fake_books_read(&m->fake, &after);
		restart(m, &result);
		fake_books_read(&m->fake, &adopted);
		if (cut)
			check_cut(m, &before, &after, &adopted);
		else
			fake_books_equal(&after, &adopted);
		m->partial += cut;
		resume_all(m, cut);
		fake_books_deinit(&before);
		fake_books_deinit(&after);
		fake_books_deinit(&adopted);
	}
	if (!m->run.chosen && m->run.steps >= STEPS)
		must(m, m->restarts > 100 && m->partial > 30 && m->granted > 200 && m->shared > 20,
			"too tame");
	model_deinit(m);
}
END_TEST

/* ---- damage */

/* Changes one thing about a record. The numbers come from the other records, because a random number
 * would be found out too easily. */
static void damage(struct adopt_model *m, struct fake_record *record)
{
	const struct fake_record *other = &m->ledger.records[model_roll(m, m->ledger.n)];
	size_t words = record->size / 8;
	uint32_t *head = (uint32_t *)record->bytes;
	switch (model_roll(m, 8)) {
	case 0:
		record->kind = 0;
		break;
	case 1:
		record->id = other->id;
		break;
	case 2:
		/* Two records that are wrong in the same way could not be told from right ones. */
		if (m->forged)
			break;
		m->forged = true;
		head[1] = 100 + (uint32_t)model_roll(m, 3);
		break;
	case 3:
		record->kind = 1 + (uint32_t)model_roll(m, GM_RECORD_KINDS + 1);
		break;
	case 4:
		record->bytes[1 + model_roll(m, words - 1)] = other->id;
		break;
	case 5:
		record->bytes[1 + model_roll(m, words - 1)] ^= UINT64_C(1) << model_roll(m, 64);
		break;
	case 6:
		record->size = 1 + model_roll(m, FAKE_RECORD_BYTES);
		break;
	default:
		record->bytes[1 + model_roll(m, words - 1)] = UINT64_MAX;
	}
}

/* The uid at the end of the line for the same chunk before; 0: there was none. */
static unsigned uid_before(const struct fake_books *before, uint64_t id)
{
	for (size_t i = 0; i < before->n; i++) {
		uint64_t chunk;
		const char *uid = strstr(before->lines[i], " uid ");
		if ((sscanf(before->lines[i], "chunk %" SCNu64, &chunk) == 1 ||
			    sscanf(before->lines[i], "orphaned %" SCNu64, &chunk) == 1) &&
			chunk == id)
			return (unsigned)atoi(uid + 5);
	}
	return 0;
}

static void check_uids(struct adopt_model *m, const struct fake_books *before)
{
	struct fake_books adopted;
	fake_books_read(&m->fake, &adopted);
	for (size_t i = 0; i < adopted.n; i++) {
		const char *line = adopted.lines[i], *uid = strstr(line, " uid ");
		uint64_t id;
		if (sscanf(line, "chunk %" SCNu64, &id) != 1 &&
			sscanf(line, "orphaned %" SCNu64, &id) != 1)
			continue;
		must(m, uid_before(before, id) == (unsigned)atoi(uid + 5),
			"a chunk changed its uid: %s", line);
	}
	fake_books_deinit(&adopted);
}

START_TEST(damaged_records_never_move_memory_to_another_uid)
{
	struct adopt_model *m = &model;
	uint64_t damaged = 0, adopted = 0;
	model_init(m, _i);

	for (m->run.step = 0; m->run.step < m->run.steps / 25; m->run.step++) {
		struct fake_books before;
		struct gm_adopt_result result;
		for (int i = 0; i < 25; i++)
			step(m);
		fake_books_read(&m->fake, &before);

		/* The daemon must not erase what is changed below. */
		m->ledger.stopped = true;
		m->forged = false;
		uint64_t one_in = 2 + model_roll(m, 20);
		for (size_t i = 0; i < m->ledger.n; i++)
			if (m->ledger.records[i].kind && model_roll(m, one_in) == 0)
				damage(m, &m->ledger.records[i]);
		fake_ledger_restart(&m->fake, m->devices, DEVICES, false, &result);
		for (unsigned kind = 0; kind < GM_RECORD_KINDS; kind++)
			damaged += result.damaged[kind];
		adopted += result.adopted[GM_RECORD_CHUNK];
		check_uids(m, &before);
		fake_books_deinit(&before);
		for (uint32_t d = 0; d < DEVICES; d++)
			fake_core_check(&m->fake, d);

		/* Those that could not come back end, as if their processes had. */
		for (int i = 0; i < SESSIONS; i++)
			m->sessions[i] = (struct adopt_session){0};
		struct gm_session *s;
		while ((s = fake_next_session(&m->fake, NULL)))
			fake_ledger_leave(&m->fake, s, true);
		fake_core_run(&m->fake);
	}
	if (!m->run.chosen && m->run.steps >= STEPS)
		must(m, damaged > 100 && adopted > 100, "too tame");
	model_deinit(m);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("adopt_model");
	TCase *tcase = tcase_create("model");
	tcase_add_loop_test(tcase, a_daemon_may_die_at_any_write, 0, SEEDS);
	tcase_add_loop_test(tcase, damaged_records_never_move_memory_to_another_uid, 0, SEEDS);
	tcase_set_timeout(tcase, 0);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
