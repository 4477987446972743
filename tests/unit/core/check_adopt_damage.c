/* SPDX-License-Identifier: Apache-2.0 */

/* Records that cannot be adopted as they are: of another version, damaged, or at odds with one another. */

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "daemon/lease/session_private.h"
#include "daemon/lease/lease.h"
#include "daemon/lease/lease_token.h"
#include "daemon/lease/name.h"
#include "daemon/lease/metadata.h"
#include "tests/tap.h"
#include "tests/unit/core/adopt_fixture.h"
#include "tests/unit/core/fake_ledger.h"

/* A daemon that lacks memory or descriptors ends. It takes nothing for damaged, so the next one has all. */
START_TEST(a_shortage_is_no_damage)
{
	static const int errors[] = {-ENOMEM, -EMFILE, -ENFILE};
	struct fake_books before, after;

	ask(s, NULL, 6 * MiB, 1, GPUMEM_OK);
	restart();
	fake_books_read(&fake, &before);
	ledger.short_of = errors[_i];
	restart();
	fake_books_read(&fake, &after);
	fake_books_equal(&before, &after);
	ck_assert_uint_eq(all_damaged() + result.lost, 0);
	ck_assert_uint_eq(result.adopted[GM_RECORD_CLIENT], 1);
	fake_books_deinit(&before);
	fake_books_deinit(&after);
}
END_TEST

START_TEST(a_full_ledger_refuses_and_leaves_nothing)
{
	struct gm_lease *lease = ask(s, NULL, 2 * MiB, 1, GPUMEM_OK);
	size_t chunks = fake_ledger_count(&ledger, GM_RECORD_CHUNK);
	struct gm_session_info info = {.pid = 1, .uid = 300, .domain = 9};
	const struct gm_token_options options = {.audience = GM_NAME_AUDIENCE_DOMAIN};
	struct gm_limit_values values = {.set = GM_LIMIT_MAX, .max = 32 * MiB};
	struct gm_owner owner;
	struct gm_session *none;
	char detail[GM_DETAIL_BYTES];

	ledger.full = true;
	ask(s, NULL, 2 * MiB, 2, GPUMEM_E_HOST_MEMORY);
	ask(s, lease, 2 * MiB, 3, GPUMEM_E_HOST_MEMORY);
	ck_assert_uint_eq(gm_session_held(s, 0), 2 * MiB);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_CHUNK), chunks);
	ck_assert_int_lt(gm_session_new(fake.core, &info, next, &none), 0);
	ck_assert_int_eq(gm_lease_share(s, lease, &options, next), GPUMEM_E_HOST_MEMORY);
	gm_owner_by_id(GM_OWNER_UID, 100, &owner);
	ck_assert_int_eq(
		gm_core_set_limit(fake.core, &owner, 0, &values, detail), GPUMEM_E_HOST_MEMORY);
	ck_assert_ptr_nonnull(strstr(detail, "ledger"));
	ck_assert_uint_eq(gm_session_max(s, 0), UINT64_MAX);

	/* What exists goes on: returning, and replacing a record. */
	ledger.full = false;
	ck_assert_int_eq(gm_lease_share(s, lease, &options, next), GPUMEM_OK);
	ledger.full = true;
	gm_lease_return(s, lease);
	ck_assert_uint_eq(gm_session_held(s, 0), 0);
	ledger.full = false;
}
END_TEST

START_TEST(devices_are_found_by_uuid_when_their_numbers_change)
{
	uint64_t id = gm_session_id(s);
	ask(s, NULL, 4 * MiB, 1, GPUMEM_OK);
	struct gm_core_device_info first = devices[0];
	devices[0] = devices[1];
	devices[1] = first;
	for (size_t i = 0; i < ledger.n_kept; i++)
		ledger.kept[i].device = 1 - ledger.kept[i].device;
	restart();
	s = back(id, token);
	ck_assert_uint_eq(gm_session_held(s, 0), 0);
	ck_assert_uint_eq(gm_session_held(s, 1), 4 * MiB);

	/* A device that is gone takes its memory with it. */
	memcpy(token, next, sizeof(token));
	memset(devices[1].uuid, 9, sizeof(devices[1].uuid));
	restart();
	s = back(id, token);
	ck_assert_uint_eq(gm_session_held(s, 1), 0);
	ck_assert_uint_eq(result.elsewhere[GM_RECORD_DEVICE], 1);
	ck_assert_uint_eq(result.elsewhere[GM_RECORD_LEASE], 1);
	ck_assert_uint_eq(all_damaged(), 0);
}
END_TEST

START_TEST(ipc_leases_end_with_their_daemon_and_are_reported)
{
	uint64_t id = gm_session_id(s);
	ask(s, NULL, 4 * MiB, 1, GPUMEM_OK);
	struct gm_record_lease *lease =
		(void *)fake_ledger_find(&ledger, GM_RECORD_LEASE, 0)->bytes;
	struct gm_record_chunk *chunk =
		(void *)fake_ledger_find(&ledger, GM_RECORD_CHUNK, 0)->bytes;
	lease->transport = chunk->transport = GM_TRANSPORT_IPC;
	restart();
	s = back(id, token);
	ck_assert_uint_eq(result.ipc, 1);
	ck_assert_uint_eq(all_damaged(), 0);
	ck_assert_uint_eq(gm_session_lease_count(s), 0);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_CHUNK), 0);
}
END_TEST

START_TEST(a_record_of_an_older_daemon_is_read_and_one_of_a_newer_is_not)
{
	uint64_t id = gm_session_id(s);
	ask(s, NULL, 4 * MiB, 1, GPUMEM_OK);
	/* An older daemon did not write the last field, which then reads as 0. */
	struct fake_record *orphan = fake_ledger_find(&ledger, GM_RECORD_ORPHAN, 0);
	struct gm_record *head = (void *)orphan->bytes;
	orphan->size = head->size = offsetof(struct gm_record_orphan, payer_uid);
	memset((char *)orphan->bytes + orphan->size, 7, 8);
	restart();
	ck_assert_uint_eq(all_damaged(), 0);
	ck_assert_uint_eq(gm_session_info(gm_core_find_session(fake.core, id))->payer_uid, 100);

	/* Of a newer one, nothing is taken over and nothing is given up. */
	struct fake_record *lease = fake_ledger_find(&ledger, GM_RECORD_LEASE, 0);
	struct gm_adopt *adopt;
	head = (void *)lease->bytes;
	head->format = GM_RECORD_FORMAT + 1;
	ck_assert_int_eq(gm_adopt_new(fake.core, &adopt), 0);
	ck_assert_int_eq(
		gm_adopt_add(adopt, GM_RECORD_LEASE, lease->id, 1, lease->bytes, lease->size),
		-EPROTONOSUPPORT);
	head->kind = GM_RECORD_KINDS;
	ck_assert_int_eq(
		gm_adopt_add(adopt, GM_RECORD_KINDS, lease->id, 1, lease->bytes, lease->size),
		-EPROTONOSUPPORT);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_LEASE), 1);
	gm_adopt_free(adopt);
	head->kind = GM_RECORD_LEASE;
	head->format = GM_RECORD_FORMAT;
}
END_TEST

static void set_payer(enum gm_record_kind kind, uint32_t payer_uid)
{
	void *record = fake_ledger_find(&ledger, kind, 0)->bytes;
	if (kind == GM_RECORD_ORPHAN)
		((struct gm_record_orphan *)record)->payer_uid = payer_uid;
	else if (kind == GM_RECORD_SESSION)
		((struct gm_record_session *)record)->payer_uid = payer_uid;
	else
		((struct gm_record_client *)record)->payer_uid = payer_uid;
}

START_TEST(root_pays_for_its_subordinate_uids_also_after_a_restart)
{
	const struct gm_session_info sub = {
		.pid = 7, .uid = 100005, .payer_uid = 0, .subordinate = true, .domain = 1};
	struct gm_limit_values values = {.set = GM_LIMIT_MAX, .max = 4 * MiB};
	uint8_t its[GM_TOKEN_BYTES];
	char detail[GM_DETAIL_BYTES];
	struct gm_session *session;
	struct gm_owner owner;

	ck_assert_int_eq(gm_session_new(fake.core, &sub, its, &session), 0);
	ck_assert_int_eq(gm_session_keep(session, 1, false), 0);
	ck_assert_uint_eq(gm_session_info(session)->payer_uid, 0);
	uint64_t id = gm_session_id(session);
	ask(session, NULL, 4 * MiB, 1, GPUMEM_OK);
	for (int i = 0; i < 2; i++) {
		restart();
		ck_assert_uint_eq(all_damaged(), 0);
		session = back(id, its);
		ck_assert_uint_eq(gm_session_info(session)->uid, 100005);
		ck_assert_uint_eq(gm_session_info(session)->payer_uid, 0);
		memcpy(its, next, sizeof(its));
	}
	gm_owner_by_id(GM_OWNER_UID, 0, &owner);
	ck_assert_int_eq(gm_core_set_limit(fake.core, &owner, 0, &values, detail), GPUMEM_OK);
	ask(session, NULL, 2 * MiB, 2, GPUMEM_E_LIMIT);
}
END_TEST

START_TEST(who_pays_is_remembered_and_must_be_the_same_in_all_records)
{
	uint64_t id = gm_session_id(s);
	struct gm_limit_values values = {.set = GM_LIMIT_MAX, .max = 4 * MiB};
	struct gm_owner owner;
	char detail[GM_DETAIL_BYTES];
	ask(s, NULL, 4 * MiB, 1, GPUMEM_OK);

	set_payer(GM_RECORD_ORPHAN, 300);
	set_payer(GM_RECORD_CLIENT, 300);
	restart();
	ck_assert_uint_eq(all_damaged(), 0);
	s = back(id, token);
	ck_assert_uint_eq(gm_session_info(s)->uid, 100);
	ck_assert_uint_eq(gm_session_info(s)->payer_uid, 300);
	gm_owner_by_id(GM_OWNER_UID, 300, &owner);
	ck_assert_int_eq(gm_core_set_limit(fake.core, &owner, 0, &values, detail), GPUMEM_OK);
	ask(s, NULL, 2 * MiB, 2, GPUMEM_E_LIMIT);

	fake_ledger_split_client(&ledger, 0);
	set_payer(GM_RECORD_SESSION, 200);
	restart();
	ck_assert_uint_eq(result.damaged[GM_RECORD_CLIENT], 1);
	ck_assert_ptr_null(gm_core_find_session(fake.core, id));
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_SESSION), 0);
}
END_TEST

/* The daemon dies before each write of the adoption, and after. */
START_TEST(two_records_of_an_older_daemon_become_one_and_nothing_is_lost)
{
	struct fake_books before, after;
	uint64_t id;
	fake_ledger_leave(&fake, s, true);
	s = fake_ledger_join_run(&fake, 100, "a.service", "run1", 8 * MiB, token);
	id = gm_session_id(s);
	ask(s, NULL, 6 * MiB, 1, GPUMEM_OK);
	fake_books_read(&fake, &before);

	ledger.stopped = true;
	fake_ledger_split_client(&ledger, 0);
	for (uint64_t at = 1; at <= 4; at++) {
		ledger.dies_at_start = at;
		restart();
		ck_assert_uint_eq(all_damaged() + result.lost + result.unfinished, 0);
		fake_books_read(&fake, &after);
		fake_books_equal(&before, &after);
		fake_books_deinit(&after);
	}
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_SESSION), 0);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_CLIENT), 1);
	s = back(id, token);
	ck_assert_str_eq(gm_session_info(s)->run, "run1");
	ask(s, NULL, 4 * MiB, 2, GPUMEM_E_LIMIT);
	fake_books_deinit(&before);
}
END_TEST

START_TEST(of_two_records_of_an_older_daemon_one_alone_is_of_a_client_that_had_ended)
{
	uint64_t id = gm_session_id(s);
	ask(s, NULL, 4 * MiB, 1, GPUMEM_OK);
	ledger.stopped = true;
	fake_ledger_split_client(&ledger, 0);
	fake_ledger_find(&ledger, _i ? GM_RECORD_CLIENT : GM_RECORD_SESSION, 0)->kind = 0;
	restart();
	ck_assert_uint_eq(all_damaged() + result.lost, 0);
	ck_assert_ptr_null(gm_core_find_session(fake.core, id));
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_SESSION), 0);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_CLIENT), 0);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_CHUNK), 0);
}
END_TEST

/* ---- one damaged record each. uid 100 has a lease of 4 MiB and a share, uid 200 one of 2 MiB. */

static void no_lease(void)
{
	fake_ledger_find(&ledger, GM_RECORD_LEASE, 0)->kind = 0;
}

static void another_uid(void)
{
	((struct gm_record *)fake_ledger_find(&ledger, GM_RECORD_CHUNK, 0)->bytes)->uid = 200;
}

static void another_lease(void)
{
	struct gm_record_chunk *chunk =
		(void *)fake_ledger_find(&ledger, GM_RECORD_CHUNK, 0)->bytes;
	chunk->owner = fake_ledger_find(&ledger, GM_RECORD_LEASE, 1)->id;
}

static void another_session(void)
{
	struct gm_record_lease *lease =
		(void *)fake_ledger_find(&ledger, GM_RECORD_LEASE, 0)->bytes;
	lease->session = fake_ledger_find(&ledger, GM_RECORD_CLIENT, 1)->id;
}

static void another_device(void)
{
	struct gm_record_chunk *chunk =
		(void *)fake_ledger_find(&ledger, GM_RECORD_CHUNK, 0)->bytes;
	chunk->device++;
}

static void no_chunk_size(void)
{
	struct gm_record_chunk *chunk =
		(void *)fake_ledger_find(&ledger, GM_RECORD_CHUNK, 0)->bytes;
	chunk->bytes = 3 * MiB;
}

/* The second lease's chunk is stored under the id of the first one's. */
static void another_id(void)
{
	fake_ledger_find(&ledger, GM_RECORD_CHUNK, 1)->id =
		fake_ledger_find(&ledger, GM_RECORD_CHUNK, 0)->id;
}

/* One chunk of two leases. */
static void twice(void)
{
	struct fake_record *chunk = fake_ledger_find(&ledger, GM_RECORD_CHUNK, 1);
	another_id();
	((struct gm_record *)chunk->bytes)->id = chunk->id;
}

static void no_session(void)
{
	fake_ledger_find(&ledger, GM_RECORD_CLIENT, 0)->kind = 0;
}

static void no_memory(void)
{
	ledger.n_kept = 0;
}

static const struct {
	void (*damage)(void);
	unsigned kind; /* of what is found damaged */
	uint64_t damaged, lost, unfinished, held[2];
} cases[] = {
	{no_lease, GM_RECORD_SHARE, 1, 0, 1, {0, 2}},
	{another_uid, GM_RECORD_CHUNK, 1, 0, 0, {0, 2}},
	{another_lease, GM_RECORD_CHUNK, 1, 0, 0, {0, 2}},
	{another_session, GM_RECORD_LEASE, 1, 0, 0, {0, 2}},
	{another_device, GM_RECORD_CHUNK, 1, 0, 0, {0, 2}},
	{no_chunk_size, GM_RECORD_CHUNK, 1, 0, 0, {0, 2}},
	{another_id, GM_RECORD_CHUNK, 1, 0, 0, {4, 0}},
	{twice, GM_RECORD_CHUNK, 2, 0, 0, {0, 0}},
	/* It has ended, and its lease and its share were about to. */
	{no_session, GM_RECORD_LEASE, 0, 0, 1, {0, 2}},
	{no_memory, GM_RECORD_CHUNK, 0, 2, 0, {0, 0}},
};

START_TEST(a_damaged_record_is_dropped_and_counted)
{
	const struct gm_token_options options = {.audience = GM_NAME_AUDIENCE_UID, .id = 200};
	uint8_t others[GM_TOKEN_BYTES];
	struct gm_session *other = fake_ledger_join(&fake, 200, NULL, others);
	uint64_t ids[2] = {gm_session_id(s), gm_session_id(other)};
	struct gm_lease *lease = ask(s, NULL, 4 * MiB, 1, GPUMEM_OK);
	ask(other, NULL, 2 * MiB, 1, GPUMEM_OK);
	ck_assert_int_eq(gm_lease_share(s, lease, &options, next), GPUMEM_OK);

	ledger.stopped = true;
	cases[_i].damage();
	restart();
	ck_assert_uint_eq(result.damaged[cases[_i].kind], cases[_i].damaged);
	ck_assert_uint_eq(result.lost, cases[_i].lost);
	ck_assert_uint_eq(result.unfinished, cases[_i].unfinished);
	for (int i = 0; i < 2; i++) {
		struct gm_session *session = gm_core_find_session(fake.core, ids[i]);
		ck_assert_uint_eq(
			session ? gm_session_held(session, 0) : 0, cases[_i].held[i] * MiB);
	}
	/* What was dropped is not found again. */
	restart();
	ck_assert_uint_eq(all_damaged() + result.lost + result.unfinished, 0);
}
END_TEST

START_TEST(a_session_that_was_being_taken_apart_leaves_nothing_and_is_no_damage)
{
	enum { LEASES = 10 };
	const struct gm_token_options options = {.audience = GM_NAME_AUDIENCE_UID, .id = 200};
	uint8_t others[GM_TOKEN_BYTES], shared[GM_TOKEN_BYTES];
	struct gm_session *other = fake_ledger_join(&fake, 200, NULL, others);
	struct gm_lease *lease, *opened;
	uint64_t ids[2] = {gm_session_id(s), gm_session_id(other)};

	for (int i = 0; i < LEASES; i++) {
		lease = ask(s, NULL, 4 * MiB, 1 + (uint64_t)i, GPUMEM_OK);
		ck_assert_int_eq(gm_lease_share(s, lease, &options, shared), GPUMEM_OK);
	}
	ck_assert_int_eq(gm_session_open(other, shared, NULL, 0, &opened), GPUMEM_OK);
	lease = ask(other, NULL, 2 * MiB, 1, GPUMEM_OK);

	/* The daemon dies after each number of slices. */
	fake.core->env.ops.slice = 1;
	fake_ledger_leave(&fake, s, _i % 2);
	for (int i = 0; i < _i / 2; i++)
		gm_core_tick(fake.core);
	ck_assert_uint_eq(gm_core_session_count(fake.core), 1);
	ledger.stopped = true;
	restart();
	ck_assert_uint_eq(all_damaged() + result.lost + result.incomplete, 0);
	ck_assert_ptr_null(gm_core_find_session(fake.core, ids[0]));
	other = back(ids[1], others);
	/* Only the lease opened by the other session is left, and the user of its maker pays for it. */
	ck_assert_uint_eq(gm_core_lease_count(fake.core), 2);
	ck_assert_uint_eq(gm_session_held(other, 0), 2 * MiB);
	ck_assert_uint_eq(fake_left_by(&fake, 100, 0), 4 * MiB);
	ck_assert_int_eq(gm_session_open(other, shared, NULL, 0, &opened), GPUMEM_E_NOT_FOUND);
	fake_core_check(&fake, 0);
	fake_core_run(&fake);
	restart();
	ck_assert_uint_eq(all_damaged() + result.lost + result.unfinished, 0);
	s = gm_core_find_session(fake.core, ids[1]);
}
END_TEST

/* ---- a keeper that has only a part: the daemon died while it filled a new one */

/* Publishes the lease, with metadata of one byte if that is asked for. */
static void publish(struct gm_lease *lease, const char *text, bool metadata)
{
	const struct gm_metadata_piece piece = {1, 0, "m", 1};
	const struct gm_name_publish what = {.text = text, .metadata_bytes = metadata};
	char detail[GM_DETAIL_BYTES];
	uint64_t version;
	if (metadata)
		ck_assert_int_eq(gm_lease_put_metadata(s, lease, &piece, detail), GPUMEM_OK);
	ck_assert_int_eq(gm_lease_publish(s, lease, &what, &version, detail), GPUMEM_OK);
}

static gpumem_status find_name(struct gm_session *session, const char *text)
{
	struct gm_metadata_info found;
	return gm_session_find_metadata(session, 100, text, NULL, 0, &found);
}

/* The keeper does not have the memory of the nth chunk's record. */
static void lose_chunk(size_t n)
{
	const struct fake_record *chunk = fake_ledger_find(&ledger, GM_RECORD_CHUNK, n);
	for (size_t i = 0; i < ledger.n_kept; i++)
		if (ledger.kept[i].id == chunk->id)
			ledger.kept[i--] = ledger.kept[--ledger.n_kept];
}

START_TEST(a_lease_without_all_of_its_memory_is_given_up_as_a_whole)
{
	uint8_t others[GM_TOKEN_BYTES];
	uint64_t id = gm_session_id(s);
	struct gm_session *reader = fake_ledger_join(&fake, 100, "a.service", others);
	uint64_t reader_id = gm_session_id(reader);
	struct gm_lease *part = ask(s, NULL, 4 * MiB, 1, GPUMEM_OK), *opened;
	ask(s, part, 2 * MiB, 2, GPUMEM_OK);
	publish(part, "part", true);
	uint64_t part_id = part->id;
	struct gm_lease *whole = ask(s, NULL, 8 * MiB, 3, GPUMEM_OK);
	publish(whole, "whole", true);
	ck_assert_int_eq(
		gm_session_attach(reader, 100, "part", NULL, 0, 1, false, &opened), GPUMEM_OK);

	ledger.stopped = true;
	lose_chunk((size_t)_i);
	restart();
	ck_assert_uint_eq(result.lost, 1);
	ck_assert_uint_eq(result.incomplete, 2);
	ck_assert_uint_eq(all_damaged(), 0);
	s = back(id, token);
	reader = back(reader_id, others);
	ck_assert_ptr_null(gm_session_find_lease(s, part_id));
	ck_assert_ptr_null(gm_session_find_lease(reader, part_id));
	ck_assert_uint_eq(gm_session_held(s, 0), 8 * MiB);
	ck_assert_int_eq(find_name(s, "part"), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(find_name(s, "whole"), GPUMEM_OK);

	/* The request that brought the lost lease comes again, and is a new one. */
	ck_assert_uint_eq(gm_session_held(s, 0), 8 * MiB);
	ask(s, NULL, 4 * MiB, 1, GPUMEM_OK);
	ck_assert_uint_eq(gm_session_held(s, 0), 12 * MiB);
	restart();
	ck_assert_uint_eq(all_damaged() + result.lost + result.unfinished, 0);
}
END_TEST

START_TEST(a_name_without_its_metadata_is_given_up)
{
	uint64_t id = gm_session_id(s);
	struct gm_lease *lease = ask(s, NULL, 4 * MiB, 1, GPUMEM_OK);
	uint64_t lease_id = lease->id;
	publish(lease, "part", true);
	publish(ask(s, NULL, 2 * MiB, 2, GPUMEM_OK), "whole", false);

	ledger.stopped = true;
	ck_assert_uint_eq(ledger.n_deposits, 1);
	close(ledger.deposits[0].fd);
	ledger.n_deposits = 0;
	restart();
	ck_assert_uint_eq(result.lost, 0);
	ck_assert_uint_eq(result.incomplete, 1);
	s = back(id, token);
	/* Its memory is still there. */
	ck_assert_ptr_nonnull(gm_session_find_lease(s, lease_id));
	ck_assert_uint_eq(gm_session_held(s, 0), 6 * MiB);
	ck_assert_int_eq(find_name(s, "part"), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(find_name(s, "whole"), GPUMEM_OK);
	restart();
	ck_assert_uint_eq(all_damaged() + result.lost + result.incomplete, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("damaged records");
	TCase *tcase = tcase_create("damaged records");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, a_shortage_is_no_damage, 0, 3);
	tcase_add_test(tcase, a_full_ledger_refuses_and_leaves_nothing);
	tcase_add_loop_test(tcase, a_lease_without_all_of_its_memory_is_given_up_as_a_whole, 0, 2);
	tcase_add_test(tcase, a_name_without_its_metadata_is_given_up);
	tcase_add_test(tcase, devices_are_found_by_uuid_when_their_numbers_change);
	tcase_add_test(tcase, ipc_leases_end_with_their_daemon_and_are_reported);
	tcase_add_test(tcase, root_pays_for_its_subordinate_uids_also_after_a_restart);
	tcase_add_test(tcase, who_pays_is_remembered_and_must_be_the_same_in_all_records);
	tcase_add_test(tcase, two_records_of_an_older_daemon_become_one_and_nothing_is_lost);
	tcase_add_loop_test(tcase,
		of_two_records_of_an_older_daemon_one_alone_is_of_a_client_that_had_ended, 0, 2);
	tcase_add_test(tcase, a_record_of_an_older_daemon_is_read_and_one_of_a_newer_is_not);
	tcase_add_loop_test(tcase, a_damaged_record_is_dropped_and_counted, 0,
		(int)(sizeof(cases) / sizeof(cases[0])));
	tcase_add_loop_test(
		tcase, a_session_that_was_being_taken_apart_leaves_nothing_and_is_no_damage, 0, 50);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
