/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon takes back whatever an earlier one granted, also where that is more than a user may have:
 * the earlier one may have had other bounds. Clients still use it. */
#include <stdio.h>
#include <string.h>

#include "common/bounds.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/lease.h"
#include "daemon/lease/lease_token.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_ledger.h"

static struct fake_core fake;
static struct fake_ledger ledger;
static struct gm_core_device_info device;
static struct gm_adopt_result result;
static uint8_t token[GM_TOKEN_BYTES], share[GM_TOKEN_BYTES];
static struct gm_session *s;

static void setup(void)
{
	memset(&ledger, 0, sizeof(ledger));
	device = fake_info(64 * GiB);
	fake_no_levels(&device.policy);
	memset(device.uuid, 1, sizeof(device.uuid));
	fake_core_init_keeping(&fake, &ledger);
	fake_core_add(&fake, &device);
	gm_core_end_adoption(fake.core);
	s = fake_ledger_join(&fake, 100, "a.service", token);
}

static void teardown(void)
{
	struct gm_session *session;
	while ((session = fake_next_session(&fake, NULL)))
		fake_ledger_leave(&fake, session, true);
	fake_core_deinit(&fake);
	fake_ledger_deinit(&ledger);
}

/* Adopts, and finds all records sound. s is resumed. */
static void restart(void)
{
	uint64_t id = gm_session_id(s), damaged = 0;
	uint8_t next[GM_TOKEN_BYTES];
	fake_ledger_restart(&fake, &device, 1, true, &result);
	for (unsigned kind = 0; kind < GM_RECORD_KINDS; kind++)
		damaged += result.damaged[kind];
	ck_assert_uint_eq(damaged + result.lost + result.unfinished, 0);
	s = gm_core_find_session(fake.core, id);
	ck_assert_ptr_nonnull(s);
	ck_assert_int_eq(gm_session_resume(s, token, gm_session_info(s)->user, next), 0);
	memcpy(token, next, sizeof(token));
}

/* Another record like the first one of its kind. Returns what the caller is to change. */
static void *one_more(uint32_t kind)
{
	const struct fake_record *first = fake_ledger_find(&ledger, kind, 0);
	struct fake_record copy;
	uint32_t place = 0;
	ck_assert_ptr_nonnull(first);
	copy = *first;
	struct gm_record *head = (void *)copy.bytes;
	head->id = ++fake.last_id;
	ck_assert_int_eq(
		fake_ledger_record(&ledger, kind, head->id, &place, copy.bytes, copy.size), 0);
	return ledger.records[place - 1].bytes;
}

/* A lease like the first one, with a chunk. */
static void one_more_lease(void)
{
	const struct gm_record_lease *lease = one_more(GM_RECORD_LEASE);
	uint64_t owner = lease->head.id;
	struct gm_record_chunk *chunk = one_more(GM_RECORD_CHUNK);
	chunk->owner = owner;
	struct gm_chunk kept = {.id = chunk->head.id, .bytes = chunk->bytes, .device = 0};
	fake_ledger_created(&ledger, &kept);
}

/* uid 200 shares a lease with uid 100, which opens it. */
static struct gm_lease *open_one(void)
{
	const struct gm_token_options options = {.audience = GM_NAME_AUDIENCE_UID, .id = 100};
	uint8_t unused[GM_TOKEN_BYTES];
	struct gm_session *other = fake_ledger_join(&fake, 200, NULL, unused);
	struct gm_lease *lease;
	fake.for_others = true;
	lease = fake_lease(&fake, other, 0, 2 * MiB);
	fake.for_others = false;
	ck_assert_int_eq(gm_lease_share(other, lease, &options, share), GPUMEM_OK);
	ck_assert_int_eq(gm_session_open(s, share, NULL, 0, &lease), GPUMEM_OK);
	return lease;
}

static gpumem_status ask(void)
{
	struct fake_request q;
	fake_ask(&fake, &q, s, 0, 2 * MiB, GM_TRANSPORT_AUTO);
	fake_core_run(&fake);
	return q.status;
}

START_TEST(a_client_keeps_more_leases_than_it_may_have)
{
	const uint64_t most = GM_BOUND_LEASES_PER_CLIENT;
	struct gm_lease *opened;
	for (uint64_t i = 1; i < most; i++)
		ck_assert_int_eq(ask(), GPUMEM_OK);
	open_one();
	ck_assert_int_eq(ask(), GPUMEM_E_LIMIT);

	one_more_lease();
	one_more_lease();
	((struct gm_record_ref *)one_more(GM_RECORD_REF))->request = 77;
	restart();
	ck_assert_uint_eq(gm_session_lease_count(s), most + 2);
	ck_assert_uint_eq(gm_session_held(s, 0), (most + 1) * 2 * MiB);

	/* What is new is bounded, as ever. */
	ck_assert_int_eq(ask(), GPUMEM_E_LIMIT);
	ck_assert_int_eq(gm_session_open(s, share, NULL, 0, &opened), GPUMEM_OK);
	ck_assert_uint_eq(opened->n_opens, 3);
}
END_TEST

START_TEST(a_lease_stays_open_more_often_than_it_may_be)
{
	struct gm_lease *lease = open_one();
	uint64_t id = lease->id;
	for (int i = 0; i < GM_BOUND_OPENERS_PER_LEASE; i++)
		one_more(GM_RECORD_REF);
	restart();
	lease = gm_session_find_lease(s, id);
	ck_assert_ptr_nonnull(lease);
	ck_assert_uint_eq(lease->n_opens, GM_BOUND_OPENERS_PER_LEASE + 1);
	ck_assert_int_eq(gm_session_open(s, share, NULL, 0, &lease), GPUMEM_E_LIMIT);
}
END_TEST

START_TEST(a_client_keeps_more_shares_than_it_may_have)
{
	const struct gm_token_options options = {.audience = GM_NAME_AUDIENCE_DOMAIN};
	struct gm_lease *lease = fake_lease(&fake, s, 0, 2 * MiB);
	uint64_t id = lease->id;
	for (int i = 0; i < GM_BOUND_SHARES_PER_CLIENT; i++)
		ck_assert_int_eq(gm_lease_share(s, lease, &options, share), GPUMEM_OK);
	ck_assert_int_eq(gm_lease_share(s, lease, &options, share), GPUMEM_E_LIMIT);

	struct gm_record_share *more = one_more(GM_RECORD_SHARE);
	more->hash.h[0]++;
	restart();
	ck_assert_uint_eq(s->shares.amount, GM_BOUND_SHARES_PER_CLIENT + 1);
	lease = gm_session_find_lease(s, id);
	ck_assert_int_eq(gm_lease_share(s, lease, &options, share), GPUMEM_E_LIMIT);
}
END_TEST

/* Of each unit, a chunk is left that a process still maps. */
START_TEST(a_user_keeps_more_orphaned_accounts_than_it_may_have)
{
	const uint64_t most = GM_BOUND_ORPHANS_PER_UID;
	uint8_t unused[GM_TOKEN_BYTES];
	char unit[16];
	fake.in_use = true;
	for (uint64_t i = 1; i < most; i++) {
		snprintf(unit, sizeof(unit), "%u.service", (unsigned)i);
		struct gm_session *session = fake_ledger_join(&fake, 100, unit, unused);
		fake_lease(&fake, session, 0, 2 * MiB);
		fake_ledger_leave(&fake, session, true);
	}
	ck_assert_uint_eq(fake_left_by(&fake, 100, 0), (most - 1) * 2 * MiB);

	struct gm_record_orphan *orphan = one_more(GM_RECORD_ORPHAN);
	uint64_t owner = orphan->head.id;
	strcpy(orphan->unit, "one-more.service");
	struct gm_record_chunk *chunk = one_more(GM_RECORD_CHUNK);
	chunk->owner = owner;
	struct gm_chunk kept = {.id = chunk->head.id, .bytes = chunk->bytes, .device = 0};
	fake_ledger_created(&ledger, &kept);
	restart();
	ck_assert_uint_eq(fake_left_by(&fake, 100, 0), most * 2 * MiB);

	struct gm_session_info info = {
		.pid = 1, .uid = 100, .gid = 100, .domain = 100, .unit = "new.service"};
	struct gm_session *fresh;
	ck_assert_int_lt(gm_session_new(fake.core, &info, unused, &fresh), 0);
	fake.in_use = false;
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("adopt bounds");
	TCase *tc = tcase_create("adopt bounds");
	tcase_add_checked_fixture(tc, setup, teardown);
	/* Thousands of leases, twice. */
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, a_client_keeps_more_leases_than_it_may_have);
	tcase_add_test(tc, a_lease_stays_open_more_often_than_it_may_be);
	tcase_add_test(tc, a_client_keeps_more_shares_than_it_may_have);
	tcase_add_test(tc, a_user_keeps_more_orphaned_accounts_than_it_may_have);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
