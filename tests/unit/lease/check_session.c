/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/lease/session.c: quarantine, resuming, ends, and the whole core's end. */
#include <errno.h>
#include <string.h>

#include "daemon/lease/session_private.h"
#include "daemon/lease/lease_private.h"
#include "daemon/lease/lease_token.h"
#include "tests/bound.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"
#include "tests/unit/failing_malloc.h"

static struct fake_core fake;
static struct gm_session *s;
static uint8_t token[GM_TOKEN_BYTES], next[GM_TOKEN_BYTES];
static struct gm_session_info info = {.pid = 7, .uid = 1000, .domain = 1, .pooling = true};
static struct fake_request q;
static uint32_t d;

static void setup(void)
{
	struct gm_core_device_info device = fake_info(16 * GiB);
	fake_core_init(&fake);
	d = fake_core_add(&fake, &device);
	info.user = &fake;
	ck_assert_int_eq(gm_session_new(fake.core, &info, token, &s), 0);
}

static void teardown(void)
{
	fake_core_check(&fake, d);
	fake_core_deinit(&fake);
}

START_TEST(a_session_is_found_by_its_id_and_listed_by_age)
{
	struct gm_session *b = fake_session(&fake, 2, 2), *c = fake_session(&fake, 3, 3);
	ck_assert_ptr_eq(gm_core_find_session(fake.core, gm_session_id(b)), b);
	ck_assert_ptr_null(gm_core_find_session(fake.core, 123456));
	gm_session_end_died(b);
	ck_assert_ptr_eq(fake_next_session(&fake, NULL), s);
	ck_assert_ptr_eq(fake_next_session(&fake, s), c);
	ck_assert_ptr_null(fake_next_session(&fake, c));
	ck_assert_uint_eq(gm_core_session_count(fake.core), 2);
	ck_assert_ptr_eq(gm_session_info(s)->user, &fake);
	gm_session_set_user(s, NULL);
	ck_assert_ptr_null(gm_session_info(s)->user);
}
END_TEST

START_TEST(quarantined_memory_stays_charged_and_comes_back_with_the_token)
{
	struct gm_lease *l = fake_lease(&fake, s, d, 64 * MiB);
	gm_session_quarantine(s);
	gm_session_quarantine(s);
	ck_assert(fake_quarantined(s));
	ck_assert_ptr_null(gm_session_info(s)->user);
	ck_assert_uint_eq(fake_figures(&fake, d).quarantined, 64 * MiB);
	ck_assert_uint_eq(fake_figures(&fake, d).leased, 0);
	ck_assert_uint_eq(fake_figures(&fake, d).available, 16 * GiB - 64 * MiB);
	ck_assert_int_eq(gm_session_resume(s, token, &q, next), 0);
	ck_assert_ptr_eq(gm_session_info(s)->user, &q);
	ck_assert_uint_eq(fake_figures(&fake, d).leased, 64 * MiB);
	ck_assert_ptr_eq(gm_session_next_lease(s, NULL), l);
	fake_grow(&fake, &q, s, l, MiB);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

START_TEST(a_token_works_once_and_only_for_a_quarantined_session)
{
	ck_assert_int_eq(gm_session_resume(s, token, NULL, next), -EBUSY);
	gm_session_quarantine(s);
	uint8_t wrong[GM_TOKEN_BYTES];
	memcpy(wrong, token, sizeof(wrong));
	for (size_t i = 0; i < sizeof(wrong); i++) {
		wrong[i] ^= 1;
		ck_assert_int_eq(gm_session_resume(s, wrong, NULL, next), -EACCES);
		wrong[i] ^= 1;
	}
	ck_assert_int_eq(gm_session_resume(s, token, NULL, next), 0);
	gm_session_confirm(s);
	gm_session_quarantine(s);
	ck_assert_int_eq(gm_session_resume(s, token, NULL, wrong), -EACCES);
	ck_assert_int_eq(gm_session_resume(s, next, NULL, wrong), 0);
	/* Another session's token is a wrong one. */
	struct gm_session *other;
	uint8_t others[GM_TOKEN_BYTES];
	ck_assert_int_eq(gm_session_new(fake.core, &info, others, &other), 0);
	gm_session_quarantine(s);
	ck_assert_int_eq(gm_session_resume(s, others, NULL, next), -EACCES);
}
END_TEST

START_TEST(a_token_whose_successor_was_never_told_works_once_more)
{
	uint8_t third[GM_TOKEN_BYTES];
	gm_session_quarantine(s);
	ck_assert_int_eq(gm_session_resume(s, token, NULL, next), 0);
	gm_session_keep_token(s, token);
	gm_session_quarantine(s);
	ck_assert_int_eq(gm_session_resume(s, next, NULL, third), -EACCES);
	ck_assert_int_eq(gm_session_resume(s, token, NULL, third), 0);
	gm_session_confirm(s);
	gm_session_quarantine(s);
	ck_assert_int_eq(gm_session_resume(s, token, NULL, next), -EACCES);
	ck_assert_int_eq(gm_session_resume(s, third, NULL, next), 0);
}
END_TEST

/* The connection may end before the client has read the answer to its hello. */
START_TEST(a_token_works_until_the_client_is_known_to_have_its_successor)
{
	uint8_t third[GM_TOKEN_BYTES], fourth[GM_TOKEN_BYTES];
	gm_session_quarantine(s);
	ck_assert_int_eq(gm_session_resume(s, token, NULL, next), 0);
	gm_session_quarantine(s);
	ck_assert_int_eq(gm_session_resume(s, token, NULL, third), 0);
	gm_session_quarantine(s);
	/* A token that was never used is replaced by its successor. */
	ck_assert_int_eq(gm_session_resume(s, next, NULL, fourth), -EACCES);
	ck_assert_int_eq(gm_session_resume(s, third, NULL, fourth), 0);
	gm_session_confirm(s);
	gm_session_quarantine(s);
	ck_assert_int_eq(gm_session_resume(s, third, NULL, next), -EACCES);
	ck_assert_int_eq(gm_session_resume(s, fourth, NULL, next), 0);
}
END_TEST

START_TEST(what_is_pending_when_a_client_goes_is_cancelled_and_pooled_as_fresh)
{
	struct fake_request other;
	fake_ask(&fake, &q, s, d, 64 * MiB, GM_TRANSPORT_AUTO);
	fake_ask(&fake, &other, s, d, 6 * MiB, GM_TRANSPORT_AUTO);
	fake_core_complete(&fake, 1, 0);
	gm_session_quarantine(s);
	ck_assert_int_eq(q.status, GPUMEM_E_CANCELLED);
	ck_assert_int_eq(other.status, GPUMEM_E_CANCELLED);
	ck_assert_uint_eq(gm_session_held(s, d), 0);
	ck_assert_uint_eq(fake_figures(&fake, d).pooled, 4 * MiB);
	fake_core_check(&fake, d);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_figures(&fake, d).pooled, 70 * MiB);
	fake_ask(&fake, &q, fake_session(&fake, 77, 1), d, 70 * MiB, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

START_TEST(what_was_made_for_a_client_that_died_is_destroyed_when_there_is_no_room)
{
	struct gm_policy p = fake_figures(&fake, d).policy;
	p.max_pool = MiB;
	gm_core_set_policy(fake.core, d, &p);
	fake_ask(&fake, &q, s, d, 64 * MiB, GM_TRANSPORT_AUTO);
	gm_session_end_died(s);
	ck_assert_int_eq(q.status, GPUMEM_E_CANCELLED);
	fake_core_complete(&fake, 0, 0);
	ck_assert_uint_eq(fake_core_count(&fake, true), 1);
	ck_assert_uint_eq(fake_figures(&fake, d).created, 0);
}
END_TEST

START_TEST(a_creation_that_fails_for_nobody_leaves_nothing)
{
	fake_ask(&fake, &q, s, d, 64 * MiB, GM_TRANSPORT_AUTO);
	gm_session_end_died(s);
	fake_core_complete(&fake, 0, -EIO);
	ck_assert_uint_eq(fake.n_jobs, 0);
	ck_assert_uint_eq(fake_figures(&fake, d).chunks, 0);
}
END_TEST

START_TEST(a_quarantined_session_gets_nothing)
{
	gm_session_quarantine(s);
	fake_ask(&fake, &q, s, d, MiB, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(q.status, GPUMEM_E_DISCONNECTED);
}
END_TEST

START_TEST(a_process_that_ends_in_quarantine_gives_everything_up)
{
	fake_lease(&fake, s, d, GiB);
	gm_session_quarantine(s);
	gm_session_end_died(s);
	ck_assert_uint_eq(fake_figures(&fake, d).quarantined, 0);
	ck_assert_uint_eq(fake_figures(&fake, d).pooled, 0);
	ck_assert_uint_eq(fake_figures(&fake, d).available, 16 * GiB);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake.backend_bytes[d], 0);
}
END_TEST

START_TEST(without_memory_there_is_no_session)
{
	for (uint64_t n = 1; n <= 2; n++) {
		struct gm_session *none = NULL;
		gm_session_end_died(s);
		failing_malloc_arm(n);
		int r = gm_session_new(fake.core, &info, token, &none);
		ck_assert(failing_malloc_fired());
		ck_assert_int_eq(r, -ENOMEM);
		ck_assert_ptr_null(none);
		ck_assert_uint_eq(gm_core_session_count(fake.core), 0);
		s = fake_session(&fake, 1, 1);
	}
}
END_TEST

START_TEST(an_orphaned_account_too_many_is_refused)
{
	struct gm_session *more[GM_BOUND_ORPHANS_PER_UID], *other;
	char box[16];
	GM_BOUND_TEST(ORPHANS_PER_UID);
	struct gm_session_info in_box = {.pid = 7, .uid = 1000, .domain = 1, .container = box};

	/* The session of the fixture is in no container. */
	for (int i = 1; i < GM_BOUND_ORPHANS_PER_UID; i++) {
		snprintf(box, sizeof(box), "box %d", i);
		ck_assert_int_eq(gm_session_new(fake.core, &in_box, next, &more[i]), 0);
	}
	snprintf(box, sizeof(box), "another");
	ck_assert_int_eq(gm_session_new(fake.core, &in_box, next, &other), -EMLINK);

	/* Another uid is not affected, and further clients where the uid has some are welcome. */
	in_box.uid = 1001;
	ck_assert_int_eq(gm_session_new(fake.core, &in_box, next, &other), 0);
	in_box.uid = 1000;
	snprintf(box, sizeof(box), "box 1");
	ck_assert_int_eq(gm_session_new(fake.core, &in_box, next, &other), 0);

	/* an orphaned account ends with the last of its sessions. */
	gm_session_end_died(more[2]);
	snprintf(box, sizeof(box), "another");
	ck_assert_int_eq(gm_session_new(fake.core, &in_box, next, &other), 0);
}
END_TEST

START_TEST(all_uids_that_one_user_pays_for_have_the_orphaned_accounts_of_one)
{
	struct gm_session *other, *last = NULL;
	struct gm_session_info sub = {.pid = 7, .payer_uid = 5000, .domain = 1};
	int n = 0, r;

	for (sub.uid = 100000; (r = gm_session_new(fake.core, &sub, next, &other)) == 0;
		sub.uid++) {
		last = other;
		n++;
	}
	ck_assert_int_eq(r, -EMLINK);
	ck_assert_int_eq(n, GM_BOUND_ORPHANS_PER_UID);
	ck_assert_uint_eq(gm_session_info(last)->uid, 100000 + n - 1);
	ck_assert_uint_eq(gm_session_info(last)->payer_uid, 5000);

	/* The user itself is one of them, and others are not affected. */
	struct gm_session_info user = {.pid = 7, .uid = 5000, .domain = 1};
	ck_assert_int_eq(gm_session_new(fake.core, &user, next, &other), -EMLINK);
	user.uid = (uid_t)(100000 + n);
	ck_assert_int_eq(gm_session_new(fake.core, &user, next, &other), 0);
	ck_assert_uint_eq(gm_session_info(other)->payer_uid, user.uid);
}
END_TEST

START_TEST(a_uid_leaves_sessions_to_others)
{
	GM_BOUND_TEST(SESSIONS);
	struct gm_session_info many = {.pid = 7, .uid = 1001, .domain = 1};
	struct gm_session *other, *last = NULL;
	uint64_t n = 0;
	int r;

	/* The fixture has one session of another uid. */
	while ((r = gm_session_new(fake.core, &many, next, &other)) == 0) {
		last = other;
		n++;
	}
	ck_assert_int_eq(r, -ENOSPC);
	ck_assert_uint_eq(n, GM_BOUND_SESSIONS / 2);
	many.uid = 1002;
	for (n = 0; gm_session_new(fake.core, &many, next, &other) == 0;)
		n++;
	ck_assert_uint_eq(n, GM_BOUND_SESSIONS / 4);
	gm_session_end_died(last);
	many.uid = 1001;
	ck_assert_int_eq(gm_session_new(fake.core, &many, next, &other), -ENOSPC);
	gm_session_end_died(other = fake_session(&fake, 1, 1003));
}
END_TEST

START_TEST(orphaned_accounts_are_left_to_others)
{
	GM_BOUND_TEST(ORPHANS);
	char box[16];
	struct gm_session_info in_box = {.pid = 7, .domain = 1, .container = box};
	struct gm_session *other;
	struct gm_core_device_info device = fake_info(64 * GiB);
	struct fake_core large;
	fake_core_init(&large);
	uint32_t n0 = fake_core_add(&large, &device);
	uint64_t n = 0;
	int r = 0;

	/* The orphaned accounts outlive the sessions: each leaves memory that another uid holds. */
	struct gm_session *holder = fake_session(&large, 1, 4000);
	large.for_others = true;
	for (in_box.uid = 2000; in_box.uid < 2100; in_box.uid++) {
		for (uint64_t i = 0; i < GM_BOUND_ORPHANS_PER_UID; i++) {
			struct gm_lease *l, *opened;
			snprintf(box, sizeof(box), "box %u", (unsigned)i);
			r = gm_session_new(large.core, &in_box, next, &other);
			if (r < 0)
				break;
			n++;
			l = fake_lease(&large, other, n0, MiB);
			ck_assert_int_eq(
				gm_lease_share(other, l,
					&(struct gm_token_options){
						.audience = GM_NAME_AUDIENCE_UID, .id = 4000},
					token),
				GPUMEM_OK);
			/* One session may not hold as many leases. */
			if (n % 8192 == 0)
				holder = fake_session(&large, 1, 4000);
			ck_assert_int_eq(
				gm_session_open(holder, token, NULL, 0, &opened), GPUMEM_OK);
			gm_session_end_unmapped(other);
		}
	}
	ck_assert_int_eq(r, -EMLINK);
	ck_assert_uint_lt(n, GM_BOUND_ORPHANS);
	ck_assert_uint_gt(n, GM_BOUND_ORPHANS - 100);
	/* Where there is an orphaned account already, a client is welcome. */
	in_box.uid = 2000;
	snprintf(box, sizeof(box), "box 1");
	ck_assert_int_eq(gm_session_new(large.core, &in_box, next, &other), 0);
	fake_core_deinit(&large);
}
END_TEST

/* The session ends with one lease of many chunks, and with many leases of one. */
START_TEST(a_session_with_very_many_chunks_ends_in_slices)
{
	enum { CHUNKS = 3000, LEASES = 1000 };
	struct gm_session *large = fake_session(&fake, 1, 1001);
	struct gm_lease *lease = fake_lease(&fake, large, d, 2 * MiB);

	for (int i = 1; i < CHUNKS; i++) {
		fake_grow(&fake, &q, large, lease, 2 * MiB);
		fake_core_run(&fake);
		ck_assert_int_eq(q.status, GPUMEM_OK);
	}
	for (int i = 0; i < LEASES; i++)
		fake_lease(&fake, large, d, 2 * MiB);
	uint64_t left = CHUNKS + LEASES;

	/* At each instant, what is not being destroyed is charged to the uid. */
	gm_session_end_died(large);
	for (left -= GM_LEASE_SLICE;; left -= GM_LEASE_SLICE) {
		ck_assert_uint_eq(fake_core_count(&fake, true), GM_LEASE_SLICE);
		ck_assert_uint_eq(fake_left_by(&fake, 1001, d), left * 2 * MiB);
		ck_assert_uint_eq(gm_core_lease_count(fake.core), 0);
		fake_core_check(&fake, d);
		/* Others are served meanwhile. */
		gm_lease_return(s, fake_lease(&fake, s, d, 2 * MiB));
		ck_assert_uint_eq(fake_core_count(&fake, true), 0);
		if (left < GM_LEASE_SLICE)
			break;
		ck_assert_uint_le(fake.wake_ns, fake.now);
		gm_core_tick(fake.core);
	}
	gm_core_tick(fake.core);
	ck_assert_uint_eq(fake_core_count(&fake, true), left);
	ck_assert_uint_eq(fake_left_by(&fake, 1001, d), 0);
	ck_assert_uint_gt(gm_core_tick(fake.core), fake.now);
}
END_TEST

static uid_t asked_to_work;
static unsigned int n_asked_to_work;

static int count_work(void *ctx, uid_t payer_uid)
{
	asked_to_work = payer_uid;
	n_asked_to_work++;
	return 0;
}

/* Tokens, views and leases count, not only chunks. */
START_TEST(no_call_takes_apart_more_of_a_session_than_a_slice)
{
	enum { SLICE = 4, LEASES = 40, CHUNKS = 20, SHARES = 30, VIEWS = 30 };
	struct gm_session *ends = fake_session(&fake, 1, 1001),
			  *mate = fake_session(&fake, 1, 1001);
	struct gm_lease *lease = fake_lease(&fake, ends, d, 2 * MiB), *opened;
	const struct gm_token_options options = {0};
	uint8_t ends_token[GM_TOKEN_BYTES];
	uint64_t id = gm_session_id(ends), calls = 0;

	for (int i = 1; i < CHUNKS; i++) {
		fake_grow(&fake, &q, ends, lease, 2 * MiB);
		fake_core_run(&fake);
	}
	for (int i = 0; i < SHARES; i++)
		ck_assert_int_eq(gm_lease_share(ends, lease, &options, ends_token), GPUMEM_OK);
	for (int i = 0; i < LEASES; i++)
		fake_lease(&fake, ends, d, 2 * MiB);
	lease = fake_lease(&fake, mate, d, 2 * MiB);
	uint8_t mates[GM_TOKEN_BYTES];
	ck_assert_int_eq(gm_lease_share(mate, lease, &options, mates), GPUMEM_OK);
	for (int i = 0; i < VIEWS; i++)
		ck_assert_int_eq(gm_session_open(ends, mates, NULL, 0, &opened), GPUMEM_OK);

	fake.core->env.ops.slice = SLICE;
	fake.core->env.ops.work = count_work;
	n_asked_to_work = 0;
	uint64_t sessions = gm_core_session_count(fake.core), leases = 1;
	gm_session_end_died(ends);
	/* Nobody sees a part of it. */
	ck_assert_ptr_null(gm_core_find_session(fake.core, id));
	ck_assert_uint_eq(gm_core_session_count(fake.core), sessions - 1);
	ck_assert_int_eq(gm_session_open(mate, ends_token, NULL, 0, &opened), GPUMEM_E_NOT_FOUND);
	ck_assert_uint_eq(asked_to_work, 1001);
	ck_assert_uint_gt(gm_core_tick(fake.core), fake.now); /* no tick does it */

	uint64_t doomed = fake_core_count(&fake, true);
	ck_assert_uint_le(doomed, SLICE);
	for (bool more = true; more; calls++) {
		more = gm_core_work(fake.core, 1001);
		ck_assert_uint_le(fake_core_count(&fake, true) - doomed, SLICE);
		doomed = fake_core_count(&fake, true);
		ck_assert_uint_eq(
			fake_left_by(&fake, 1001, d), (CHUNKS + LEASES - doomed) * 2 * MiB);
		ck_assert_uint_eq(gm_core_lease_count(fake.core), leases);
		fake_core_check(&fake, d);
	}
	ck_assert_uint_ge(calls, (CHUNKS + LEASES + SHARES + VIEWS) / SLICE - 1);
	ck_assert_uint_le(calls, CHUNKS + LEASES + SHARES + VIEWS);
	ck_assert_uint_eq(doomed, CHUNKS + LEASES);
	ck_assert_uint_eq(n_asked_to_work, 1);
	ck_assert(!gm_core_work(fake.core, 1001));
	ck_assert(!gm_core_work(fake.core, 1));
}
END_TEST

START_TEST(a_large_pool_is_trimmed_in_slices)
{
	struct gm_lease *lease = fake_lease(&fake, s, d, 2 * MiB);
	uint64_t slice = 300;

	for (int i = 1; i < 700; i++) {
		fake_grow(&fake, &q, s, lease, 2 * MiB);
		fake_core_run(&fake);
	}
	gm_lease_return(s, lease);
	gm_core_tick(fake.core); /* it has more chunks than are released in one go */
	ck_assert_uint_eq(gm_core_trim(fake.core, d, &slice), 300 * 2 * MiB);
	ck_assert_uint_eq(slice, 0);
	ck_assert_uint_eq(fake_core_count(&fake, true), 300);
	fake_core_check(&fake, d);
	slice = 500;
	ck_assert_uint_eq(gm_core_trim(fake.core, d, &slice), 400 * 2 * MiB);
	ck_assert_uint_eq(slice, 100);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
}
END_TEST

START_TEST(a_daemon_that_stops_waits_for_no_slice)
{
	struct gm_session *large = fake_session(&fake, 1, 1001);

	for (int i = 0; i < 3 * GM_LEASE_SLICE; i++)
		fake_lease(&fake, large, d, 2 * MiB);
	gm_session_end_unmapped(large);
	gm_core_shutdown(fake.core);
	ck_assert_uint_eq(fake_left_by(&fake, 1001, d), 0);
	fake_core_run(&fake);
	ck_assert(gm_core_idle(fake.core));
}
END_TEST

START_TEST(shutting_down_ends_everything_that_is_under_way)
{
	fake_lease(&fake, s, d, GiB);
	gm_lease_return(s, fake_lease(&fake, s, d, 64 * MiB));
	fake_ask(&fake, &q, s, d, 2 * GiB, GM_TRANSPORT_AUTO);
	gm_session_quarantine(fake_session(&fake, 2, 2));
	gm_core_shutdown(fake.core);
	ck_assert_int_eq(q.status, GPUMEM_E_CANCELLED);
	ck_assert_uint_eq(gm_core_session_count(fake.core), 0);
	ck_assert(!gm_core_idle(fake.core));
	struct gm_session *none;
	ck_assert_int_eq(gm_session_new(fake.core, &info, token, &none), -ESHUTDOWN);
	fake_core_run(&fake);
	ck_assert(gm_core_idle(fake.core));
	ck_assert_uint_eq(fake.backend_bytes[d], 0);
}
END_TEST

START_TEST(levels_are_told_when_they_change)
{
	struct gm_lease *l = fake_lease(&fake, s, d, 13 * GiB);
	ck_assert_int_eq(fake.level, GM_PRESSURE_LEVEL_HIGH);
	ck_assert_uint_eq(fake.level_changes, 1);
	uint64_t since = fake.now;
	gm_lease_return(s, l);
	ck_assert_int_eq(fake.level, GM_PRESSURE_LEVEL_HIGH);
	ck_assert_uint_eq(gm_core_tick(fake.core), since + 1000000000);
	fake.now = since + 1000000000;
	ck_assert_uint_eq(gm_core_tick(fake.core), UINT64_MAX);
	ck_assert_int_eq(fake.level, GM_PRESSURE_LEVEL_LOW);
	ck_assert_uint_eq(fake.level_changes, 2);
}
END_TEST

START_TEST(devices_are_bounded_and_come_before_sessions)
{
	struct gm_core_device_info device = fake_info(GiB);
	uint32_t number;
	ck_assert_int_eq(gm_core_add_device(fake.core, &device, &number), -EBUSY);
	gm_session_end_died(s);
	for (int i = 1; i < GM_BOUND_DEVICES; i++)
		ck_assert_int_eq(gm_core_add_device(fake.core, &device, &number), 0);
	ck_assert_uint_eq(number, GM_BOUND_DEVICES - 1);
	ck_assert_int_eq(gm_core_add_device(fake.core, &device, &number), -E2BIG);
	ck_assert_uint_eq(gm_core_device_count(fake.core), GM_BOUND_DEVICES);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("session");
	TCase *tcase = tcase_create("session");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_session_is_found_by_its_id_and_listed_by_age);
	tcase_add_test(tcase, quarantined_memory_stays_charged_and_comes_back_with_the_token);
	tcase_add_test(tcase, a_token_works_once_and_only_for_a_quarantined_session);
	tcase_add_test(tcase, a_token_whose_successor_was_never_told_works_once_more);
	tcase_add_test(tcase, a_token_works_until_the_client_is_known_to_have_its_successor);
	tcase_add_test(tcase, what_is_pending_when_a_client_goes_is_cancelled_and_pooled_as_fresh);
	tcase_add_test(
		tcase, what_was_made_for_a_client_that_died_is_destroyed_when_there_is_no_room);
	tcase_add_test(tcase, a_creation_that_fails_for_nobody_leaves_nothing);
	tcase_add_test(tcase, a_quarantined_session_gets_nothing);
	tcase_add_test(tcase, a_process_that_ends_in_quarantine_gives_everything_up);
	tcase_add_test(tcase, without_memory_there_is_no_session);
	tcase_add_test(tcase, an_orphaned_account_too_many_is_refused);
	tcase_add_test(tcase, all_uids_that_one_user_pays_for_have_the_orphaned_accounts_of_one);
	tcase_add_test(tcase, a_uid_leaves_sessions_to_others);
	tcase_add_test(tcase, orphaned_accounts_are_left_to_others);
	tcase_add_test(tcase, shutting_down_ends_everything_that_is_under_way);
	tcase_add_test(tcase, a_session_with_very_many_chunks_ends_in_slices);
	tcase_add_test(tcase, no_call_takes_apart_more_of_a_session_than_a_slice);
	tcase_add_test(tcase, a_daemon_that_stops_waits_for_no_slice);
	tcase_add_test(tcase, a_large_pool_is_trimmed_in_slices);
	tcase_add_test(tcase, levels_are_told_when_they_change);
	tcase_add_test(tcase, devices_are_bounded_and_come_before_sessions);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
