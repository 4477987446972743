/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may have seen a chunk's handle, as core tells it to who destroys the chunk: what the backend
 * does with an ipc block's address afterwards rests on it.
 */
#include <errno.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"

#define UID 1001

static struct fake_core fake;
static struct fake_request q;
static struct gm_session *s;
static uint32_t d;

static void setup(void)
{
	struct gm_core_device_info info = fake_info(4 * GiB);
	info.transport_ipc = true;
	fake_core_init(&fake);
	d = fake_core_add(&fake, &info);
	s = fake_session(&fake, 5, UID);
}

static void teardown(void)
{
	fake_core_deinit(&fake);
}

static struct gm_lease *lease(struct gm_session *session, enum gm_transport transport)
{
	fake_ask(&fake, &q, session, d, 8 * MiB, transport);
	fake_core_run(&fake);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	return q.r.lease;
}

/* The chunk of the only job. */
static const struct gm_chunk *job(bool destroy)
{
	ck_assert_uint_eq(fake.n_jobs, 1);
	ck_assert_int_eq(fake.jobs[0].destroy, destroy);
	return fake.jobs[0].chunk;
}

START_TEST(an_ipc_block_is_its_domains_from_the_start_and_a_chunk_by_fd_is_not)
{
	fake_ask(&fake, &q, s, d, 8 * MiB, GM_TRANSPORT_IPC);
	ck_assert_uint_eq(job(false)->domain, 5);
	ck_assert_uint_eq(job(false)->payer_uid, UID);
	ck_assert(!job(false)->several);
	fake_core_run(&fake);
	fake_ask(&fake, &q, s, d, 8 * MiB, GM_TRANSPORT_FD);
	ck_assert_uint_eq(job(false)->domain, GM_DOMAIN_FRESH);
}
END_TEST

START_TEST(who_pays_for_a_uid_has_the_turn_and_the_domain_stays_that_of_the_uid)
{
	struct gm_session_info info = {
		.pid = 78, .uid = 100000, .payer_uid = UID, .domain = 9, .pooling = true};
	uint8_t token[GM_TOKEN_BYTES];
	struct gm_session *sub;

	ck_assert_int_eq(gm_session_new(fake.core, &info, token, &sub), 0);
	fake_ask(&fake, &q, sub, d, 8 * MiB, GM_TRANSPORT_FD);
	ck_assert_uint_eq(job(false)->payer_uid, UID);
	fake_core_run(&fake);
	gm_lease_return(sub, q.r.lease);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 8 * MiB);

	/* The payer itself gets none of it. */
	lease(s, GM_TRANSPORT_FD);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 8 * MiB);
	gm_core_trim(fake.core, d, &(uint64_t){UINT64_MAX});
	ck_assert_uint_eq(job(true)->domain, 9);
	ck_assert_uint_eq(job(true)->payer_uid, UID);
}
END_TEST

/* Before it is made, or after: the backend may have put it where the domain had one. */
START_TEST(an_ipc_block_that_nobody_waits_for_any_more_is_kept_for_its_domain)
{
	struct gm_session *other = fake_session(&fake, 6, UID + 1);

	fake_ask(&fake, &q, s, d, 8 * MiB, GM_TRANSPORT_IPC);
	gm_core_cancel(fake.core, &q.r);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 8 * MiB);
	lease(other, GM_TRANSPORT_IPC);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 8 * MiB);
	lease(s, GM_TRANSPORT_IPC);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
}
END_TEST

START_TEST(an_ipc_block_that_the_only_client_of_its_domain_does_not_want_is_destroyed)
{
	struct gm_session_info info = {.pid = 77, .uid = UID, .domain = 9, .pooling = false};
	uint8_t token[GM_TOKEN_BYTES];
	struct gm_session *alone;

	ck_assert_int_eq(gm_session_new(fake.core, &info, token, &alone), 0);
	fake_ask(&fake, &q, alone, d, 8 * MiB, GM_TRANSPORT_IPC);
	gm_core_cancel(fake.core, &q.r);
	fake_core_complete(&fake, 0, 0);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 0);
	ck_assert_uint_eq(job(true)->domain, 9);
}
END_TEST

static void open_by(struct gm_session *session, struct gm_lease *l)
{
	struct gm_token_options options = {.audience = GM_NAME_AUDIENCE_UID, .id = UID + 1};
	uint8_t token[GM_TOKEN_BYTES];
	struct gm_lease *opened;

	ck_assert_int_eq(gm_lease_share(s, l, &options, token), GPUMEM_OK);
	ck_assert_int_eq(gm_session_open(session, token, NULL, 0, &opened), GPUMEM_OK);
	gm_lease_return(session, opened);
}

START_TEST(what_was_opened_from_another_domain_was_seen_by_several)
{
	fake.for_others = true;
	struct gm_lease *l = lease(s, _i ? GM_TRANSPORT_IPC : GM_TRANSPORT_FD);

	open_by(fake_session(&fake, 6, UID + 1), l);
	gm_lease_return(s, l);
	ck_assert(job(true)->several);
	ck_assert_uint_eq(job(true)->domain, 5);
}
END_TEST

/* A chunk that leaves such a lease, to be shared by itself, takes that along. */
START_TEST(what_was_seen_by_several_stays_so_in_a_lease_of_its_own)
{
	fake.for_others = true;
	struct gm_lease *l = lease(s, _i ? GM_TRANSPORT_IPC : GM_TRANSPORT_FD);
	const uint64_t chunk = gm_lease_chunk(l, 0)->id;
	uint8_t token[GM_TOKEN_BYTES];
	char detail[GM_DETAIL_BYTES];
	struct gm_lease_info info;
	uint64_t own;

	gm_lease_info(l, s, &info);
	const struct gm_token_chunks what = {.leases = &info.id, .chunks = &chunk, .n = 1};
	open_by(fake_session(&fake, 6, UID + 1), l);
	ck_assert_int_eq(gm_lease_unshare(s, l), GPUMEM_OK);
	ck_assert_int_eq(fake_share_chunks(s, &what, token, &own, detail), GPUMEM_OK);
	ck_assert_uint_ne(own, info.id);
	gm_lease_return(s, gm_session_find_lease(s, own));
	ck_assert(job(true)->several);
}
END_TEST

START_TEST(what_was_opened_in_its_own_domain_was_seen_by_it_alone)
{
	fake.for_others = true;
	struct gm_lease *l = lease(s, GM_TRANSPORT_IPC);

	open_by(fake_session(&fake, 5, UID + 1), l);
	gm_lease_return(s, l);
	ck_assert_uint_eq(fake_pool(&fake, d).pooled, 8 * MiB);
	gm_core_trim(fake.core, d, &(uint64_t){UINT64_MAX});
	ck_assert(!job(true)->several);
	ck_assert_uint_eq(job(true)->domain, 5);
	ck_assert_uint_eq(job(true)->payer_uid, UID);
}
END_TEST

START_TEST(who_gets_no_ipc_block_is_refused_with_the_remedy_and_nothing_is_charged)
{
	fake_ask(&fake, &q, s, d, 8 * MiB, GM_TRANSPORT_IPC);
	fake_core_complete(&fake, 0, -EDQUOT);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(q.detail, "user 1001"));
	ck_assert_ptr_nonnull(strstr(q.detail, "ask for the fd transport"));
	ck_assert_uint_eq(gm_session_held(s, d), 0);
	fake_core_check(&fake, d);
	lease(s, GM_TRANSPORT_FD);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("seen");
	TCase *tcase = tcase_create("seen");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, an_ipc_block_is_its_domains_from_the_start_and_a_chunk_by_fd_is_not);
	tcase_add_test(tcase, who_pays_for_a_uid_has_the_turn_and_the_domain_stays_that_of_the_uid);
	tcase_add_test(tcase, an_ipc_block_that_nobody_waits_for_any_more_is_kept_for_its_domain);
	tcase_add_test(
		tcase, an_ipc_block_that_the_only_client_of_its_domain_does_not_want_is_destroyed);
	tcase_add_loop_test(tcase, what_was_opened_from_another_domain_was_seen_by_several, 0, 2);
	tcase_add_loop_test(tcase, what_was_seen_by_several_stays_so_in_a_lease_of_its_own, 0, 2);
	tcase_add_test(tcase, what_was_opened_in_its_own_domain_was_seen_by_it_alone);
	tcase_add_test(
		tcase, who_gets_no_ipc_block_is_refused_with_the_remedy_and_nothing_is_charged);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
