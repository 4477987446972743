/* SPDX-License-Identifier: Apache-2.0 */
/* Records of every kind, and a daemon that lacks something when it adopts. Without host memory, it gives nothing up, so
 * that the next daemon has all. Without the devices, it gives up what belongs to them. It takes nothing for damaged. */

#include <errno.h>
#include <string.h>

#include "daemon/device/device_drain.h"
#include "daemon/lease/metadata.h"
#include "daemon/lease/name.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/lease_token.h"
#include "tests/tap.h"
#include "tests/unit/core/adopt_fixture.h"
#include "tests/unit/core/fake_ledger.h"
#include "tests/unit/failing_malloc.h"

static uint64_t failing; /* which allocation fails */
static bool failed;
static struct fake_books before;

static void require_books(void)
{
	struct fake_books after;

	fake_books_read(&fake, &after);
	fake_books_equal(&before, &after);
	fake_books_deinit(&after);
}

static void lack_memory(bool begins)
{
	if (begins) {
		failing_malloc_arm(failing);
		return;
	}

	failed = failing_malloc_fired();
	ck_assert(ledger.shortage_result == 0 || ledger.shortage_result == -ENOMEM);
	/* A daemon that starts has all. */
	if (ledger.shortage_result == 0) {
		ck_assert_msg(all_damaged() + result.lost == 0, "allocation %u", (unsigned)failing);
		require_books();
	}
}

/* The process of an earlier session owes memory. */
static void make_orphan_map(void)
{
	const struct fake_record *device = fake_ledger_find(&ledger, GM_RECORD_DEVICE, 0), *orphan;
	for (size_t i = 0; (orphan = fake_ledger_find(&ledger, GM_RECORD_ORPHAN, i)); i++)
		if (((const struct gm_record *)orphan->bytes)->uid == 300)
			break;
	ck_assert(orphan && device);
	struct gm_record_orphan_map record = {
		.orphan = orphan->id, .device = device->id, .bytes = 2 * MiB, .pid = 4711};
	uint32_t place = 0;
	uint64_t id = fake_ledger_last_id(&ledger) + 1;

	gm_record_begin(&record.head, GM_RECORD_ORPHAN_MAP, id, sizeof(record), 300);
	ck_assert_int_eq(fake_ledger_record(&ledger, GM_RECORD_ORPHAN_MAP, id, &place, &record,
				 sizeof(record)),
		0);
}

static void declare(struct gm_session *session)
{
	struct fake_request q = {.r = {.session = session,
					 .bytes = MiB,
					 .declares = true,
					 .wait_ns = GM_WAIT_NEVER,
					 .done = fake_request_done}};

	gm_core_request(fake.core, &q.r);
	fake_core_run(&fake);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}

static void set_limit(enum gm_owner_kind kind, uint64_t id)
{
	struct gm_limit_values values = {.set = GM_LIMIT_MAX, .max = 64 * MiB};
	struct gm_owner owner;
	char detail[GM_DETAIL_BYTES];

	gm_owner_by_id(kind, id, &owner);
	ck_assert_int_eq(
		gm_core_set_limit(fake.core, &owner, GM_ALL_DEVICES, &values, detail), GPUMEM_OK);
}

/* Makes at least one record of each kind. */
static void make_records(void)
{
	const struct gm_token_options options = {.audience = GM_NAME_AUDIENCE_UID, .id = 200};
	const struct gm_metadata_piece piece = {4, 0, "true", 4};
	struct gm_name_publish what = {.text = "llama", .metadata_bytes = 4};
	uint8_t share[GM_TOKEN_BYTES];
	char detail[GM_DETAIL_BYTES];
	struct gm_lease *opened;
	uint64_t version;

	/* uid 300 leaves orphaned memory, and an orphaned mapping. */
	struct gm_session *gone = fake_ledger_join(&fake, 300, NULL, next);
	ask(gone, NULL, 2 * MiB, 1, GPUMEM_OK);
	fake.in_use = true;
	fake_ledger_leave(&fake, gone, true);
	make_orphan_map();

	struct gm_lease *lease = ask(s, NULL, 6 * MiB, 1, GPUMEM_OK);
	struct gm_session *other =
		fake_ledger_join_run(&fake, 200, "b.service", "r", 64 * MiB, next);
	ck_assert_int_eq(gm_lease_share(s, lease, &options, share), GPUMEM_OK);
	ck_assert_int_eq(gm_session_open(other, share, NULL, 0, &opened), GPUMEM_OK);
	ck_assert_int_eq(gm_lease_put_metadata(s, lease, &piece, detail), GPUMEM_OK);
	ck_assert_int_eq(gm_lease_publish(s, lease, &what, &version, detail), GPUMEM_OK);
	set_limit(GM_OWNER_UID, 100);
	set_limit(GM_OWNER_SESSION, gm_session_id(s));
	declare(s);
	ck_assert_int_ge(gm_core_drain(fake.core, 1, 0), 0);
}

static void make_records_of_each_kind(void)
{
	/* Only then there are orphaned mappings and declarations. */
	devices[0].counted = true;
	restart();
	s = back(gm_session_id(fake_next_session(&fake, NULL)), token);
	make_records();
	restart();
	ck_assert_uint_eq(all_damaged() + result.lost, 0);
	for (unsigned kind = GM_RECORD_NONE + 1; kind < GM_RECORD_KINDS; kind++)
		if (kind != GM_RECORD_SESSION) /* it is only read */
			ck_assert_msg(
				result.adopted[kind] > 0, "there is no record of kind %u", kind);
}

START_TEST(what_belongs_to_devices_that_are_gone_is_given_up_and_not_damaged)
{
	static const unsigned about[] = {GM_RECORD_DEVICE, GM_RECORD_DRAIN, GM_RECORD_LIMIT,
		GM_RECORD_LEASE, GM_RECORD_CHUNK, GM_RECORD_ORPHAN_MAP, GM_RECORD_REF,
		GM_RECORD_SHARE, GM_RECORD_NAME};

	make_records_of_each_kind();
	for (uint32_t d = 0; d < DEVICES; d++)
		memset(devices[d].uuid, 7 + (int)d, sizeof(devices[d].uuid));
	restart();
	ck_assert_uint_eq(all_damaged() + result.lost, 0);
	for (size_t i = 0; i < sizeof(about) / sizeof(about[0]); i++) {
		ck_assert_msg(result.elsewhere[about[i]] > 0, "kind %u", about[i]);
		ck_assert_msg(result.adopted[about[i]] == 0, "kind %u", about[i]);
	}

	/* The next daemon finds none of it. */
	restart();
	for (size_t i = 0; i < sizeof(about) / sizeof(about[0]); i++)
		ck_assert_msg(result.elsewhere[about[i]] == 0, "kind %u", about[i]);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_CHUNK), 0);
}
END_TEST

START_TEST(whichever_allocation_fails_nothing_is_given_up)
{
	unsigned kinds[GM_RECORD_KINDS], refused = 0;

	make_records_of_each_kind();
	fake_books_read(&fake, &before);
	for (unsigned kind = 0; kind < GM_RECORD_KINDS; kind++)
		kinds[kind] = (unsigned)fake_ledger_count(&ledger, kind);

	failed = true;
	for (failing = 1; failed; failing++) {
		ledger.shortage = lack_memory;
		restart();
		refused += ledger.shortage_result < 0;
		/* This is what the daemon after it finds. */
		ck_assert_msg(all_damaged() + result.lost == 0, "allocation %u", (unsigned)failing);
		for (unsigned kind = GM_RECORD_NONE + 1; kind < GM_RECORD_KINDS; kind++)
			ck_assert_msg(fake_ledger_count(&ledger, kind) == kinds[kind],
				"allocation %u: records of kind %u: %zu, not %u", (unsigned)failing,
				kind, fake_ledger_count(&ledger, kind), kinds[kind]);
		require_books();
	}
	ck_assert_uint_gt(refused, 20);
	fake_books_deinit(&before);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("adoption by a daemon that lacks something");
	TCase *tcase = tcase_create("adoption by a daemon that lacks something");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_belongs_to_devices_that_are_gone_is_given_up_and_not_damaged);
	tcase_add_test(tcase, whichever_allocation_fails_nothing_is_given_up);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
