/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/lease/orphan_map.c: memory of a GPU that was destroyed and that a process still maps, by what the
 * driver counts for each process. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/lease/session_private.h"
#include "daemon/lease/lease.h"
#include "daemon/lease/lease_token.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_ledger.h"

#define SECOND  UINT64_C(1000000000)
#define CONTEXT (518 * MiB)
#define PID     4711
#define OTHER   4712

static struct fake_core fake;
static struct fake_ledger ledger;
static struct gm_core_device_info info;
static struct gm_session *s;

static struct gm_session *join(pid_t pid, uid_t uid)
{
	uint8_t token[GM_TOKEN_BYTES];
	struct gm_session *session;
	struct gm_session_info who = {
		.pid = pid, .began = 5, .uid = uid, .gid = uid, .domain = uid, .pooling = true};
	ck_assert_int_eq(gm_session_new(fake.core, &who, token, &session), 0);
	return session;
}

static void setup(void)
{
	memset(&ledger, 0, sizeof(ledger));
	info = fake_info(4 * GiB);
	info.counted = true;
	info.policy.pooling = false;
	fake_no_levels(&info.policy);
	fake_core_init_asking(&fake);
	fake_core_add(&fake, &info);
	s = join(PID, 7);
}

/* Starts again with a core that writes records, and a session of uid 100 in a.service. */
static pid_t join_kept(void)
{
	uint8_t token[GM_TOKEN_BYTES];
	memset(info.uuid, 1, sizeof(info.uuid));
	fake_core_deinit(&fake);
	fake_core_init_keeping(&fake, &ledger);
	fake_core_add(&fake, &info);
	gm_core_end_adoption(fake.core);
	s = fake_ledger_join(&fake, 100, "a.service", token);
	return gm_session_info(s)->pid;
}

static void teardown(void)
{
	fake_core_deinit(&fake);
	fake_ledger_deinit(&ledger);
}

/* The driver counts so much for so many processes: pairs of pid_t and uint64_t, in order of pid. */
static void count(int n, ...)
{
	struct gm_usage_sample *counted =
		calloc(1, sizeof(*counted) + 2 * sizeof(counted->list[0]));
	va_list args;
	va_start(args, n);
	counted->known = true;
	for (int i = 0; i < n; i++) {
		counted->list[i].pid = va_arg(args, pid_t);
		counted->list[i].bytes = va_arg(args, uint64_t);
	}
	counted->n = (size_t)n;
	va_end(args);
	gm_core_counted(fake.core, 0, counted);
}

static void cannot_count(void)
{
	gm_core_counted(fake.core, 0, calloc(1, sizeof(struct gm_usage_sample)));
}

static uint64_t orphaned(void)
{
	struct gm_device_figures f = fake_figures(&fake, 0);
	ck_assert_uint_ge(f.quarantined, f.orphaned);
	ck_assert_uint_eq(f.orphaned, fake_left_by(&fake, (uid_t)-1, 0));
	return f.orphaned;
}

/* The session has so much in one chunk, returns it, and it is destroyed. */
static void come_and_go(struct gm_session *session, uint64_t bytes)
{
	gm_lease_return(session, fake_lease(&fake, session, 0, bytes));
	fake_core_run(&fake);
	ck_assert_uint_eq(fake.backend_bytes[0], 0);
}

static gpumem_status ask(uint64_t bytes)
{
	struct fake_request q;
	fake_ask(&fake, &q, s, 0, bytes, GM_TRANSPORT_AUTO);
	fake_core_run(&fake);
	return q.status;
}

START_TEST(what_came_to_a_process_when_its_chunk_was_destroyed_is_charged_while_it_has_it)
{
	struct gm_owner owner;
	struct gm_limit_values values = {.set = GM_LIMIT_MAX, .max = 64 * MiB};
	char detail[GM_DETAIL_BYTES];
	gm_owner_by_id(GM_OWNER_UID, 7, &owner);
	ck_assert_int_eq(gm_core_set_limit(fake.core, &owner, 0, &values, detail), GPUMEM_OK);

	count(1, PID, CONTEXT);
	come_and_go(s, 64 * MiB);
	ck_assert_uint_eq(orphaned(), 0);
	count(1, PID, CONTEXT + 64 * MiB);
	ck_assert_uint_eq(orphaned(), 64 * MiB);
	ck_assert_uint_eq(fake_left_by(&fake, 7, 0), 64 * MiB);
	ck_assert_uint_eq(gm_session_held(s, 0), 0);
	ck_assert_int_eq(ask(2 * MiB), GPUMEM_E_LIMIT);

	/* A part of it is unmapped, then the rest. */
	count(1, PID, CONTEXT + 16 * MiB);
	ck_assert_uint_eq(orphaned(), 16 * MiB);
	ck_assert_int_eq(ask(50 * MiB), GPUMEM_E_LIMIT);
	count(1, PID, CONTEXT);
	ck_assert_uint_eq(orphaned(), 0);
	ck_assert_int_eq(ask(64 * MiB), GPUMEM_OK);
}
END_TEST

START_TEST(an_honest_process_owes_nothing)
{
	count(1, PID, CONTEXT + 100 * MiB);
	come_and_go(s, 64 * MiB);
	count(1, PID, CONTEXT + 100 * MiB);
	ck_assert_uint_eq(orphaned(), 0);
	/* It also gave up memory of its own. */
	come_and_go(s, 64 * MiB);
	count(1, PID, CONTEXT);
	ck_assert_uint_eq(orphaned(), 0);
	/* It got memory of its own when nothing of it was destroyed. */
	fake_lease(&fake, s, 0, 64 * MiB);
	count(1, PID, CONTEXT + 64 * MiB);
	ck_assert_uint_eq(orphaned(), 0);
	ck_assert_uint_eq(gm_core_tick(fake.core), UINT64_MAX);
}
END_TEST

START_TEST(memory_that_a_process_gets_for_itself_at_that_moment_is_no_orphaned_mapping)
{
	/* More than was destroyed; no sum of the chunks; a context. */
	count(1, PID, CONTEXT);
	come_and_go(s, 64 * MiB);
	count(1, PID, CONTEXT + 66 * MiB);
	ck_assert_uint_eq(orphaned(), 0);
	come_and_go(s, 64 * MiB);
	count(1, PID, CONTEXT + 66 * MiB + 32 * MiB);
	ck_assert_uint_eq(orphaned(), 0);
	count(0);
	come_and_go(s, GiB);
	count(1, PID, 512 * MiB);
	ck_assert_uint_eq(orphaned(), 0);
}
END_TEST

START_TEST(memory_of_its_own_between_two_orphaned_mappings_is_no_part_of_them)
{
	count(1, PID, CONTEXT);
	come_and_go(s, 64 * MiB);
	count(1, PID, CONTEXT + 64 * MiB);
	count(1, PID, CONTEXT + 364 * MiB); /* 300 MiB of its own */
	ck_assert_uint_eq(orphaned(), 64 * MiB);
	come_and_go(s, 32 * MiB);
	come_and_go(s, 32 * MiB);
	count(1, PID, CONTEXT + 396 * MiB);
	ck_assert_uint_eq(orphaned(), 96 * MiB);
	count(1, PID, CONTEXT + 300 * MiB);
	ck_assert_uint_eq(orphaned(), 0);
}
END_TEST

START_TEST(a_dead_process_owes_what_its_child_maps_until_the_child_ends)
{
	count(1, PID, CONTEXT);
	fake_lease(&fake, s, 0, 64 * MiB);
	gm_session_end_died(s);
	fake.fate = GM_ENV_PROCESS_GONE;
	fake_core_run(&fake);
	count(1, PID, CONTEXT + 64 * MiB);
	ck_assert_uint_eq(orphaned(), 64 * MiB);
	ck_assert_uint_eq(fake_left_by(&fake, 7, 0), 64 * MiB);

	/* As long as it is listed, counts are asked for. */
	uint64_t before = fake.counts;
	fake_pass(&fake, 3 * SECOND);
	ck_assert_uint_ge(fake.counts, before + 2);
	count(1, PID, CONTEXT + 64 * MiB);
	ck_assert_uint_eq(orphaned(), 64 * MiB);
	count(0);
	ck_assert_uint_eq(orphaned(), 0);
	ck_assert_uint_eq(gm_core_tick(fake.core), UINT64_MAX);
	s = NULL;
}
END_TEST

/* Of one that was not listed before, the context cannot be told apart. */
START_TEST(a_dead_process_owes_no_more_than_was_destroyed)
{
	count(0);
	fake_lease(&fake, s, 0, 64 * MiB);
	gm_session_end_died(s);
	fake.fate = GM_ENV_PROCESS_GONE;
	fake_core_run(&fake);
	count(1, PID, CONTEXT + 64 * MiB);
	ck_assert_uint_eq(orphaned(), 64 * MiB);
	count(1, PID, CONTEXT + 64 * MiB);
	ck_assert_uint_eq(orphaned(), 64 * MiB);
	count(0);
	ck_assert_uint_eq(orphaned(), 0);
}
END_TEST

/* The process lives on with what its new program gets. */
START_TEST(a_process_that_called_exec_owes_only_what_came_to_it_at_the_destruction)
{
	count(1, PID, CONTEXT);
	fake_lease(&fake, s, 0, 64 * MiB);
	gm_session_end_died(s);
	fake_core_run(&fake);
	count(1, PID, CONTEXT);
	count(1, PID, CONTEXT + 64 * MiB);
	ck_assert_uint_eq(orphaned(), 0);

	s = join(PID, 7);
	fake_lease(&fake, s, 0, 64 * MiB);
	gm_session_end_died(s);
	fake_core_run(&fake);
	count(1, PID, CONTEXT + 128 * MiB);
	ck_assert_uint_eq(orphaned(), 64 * MiB);
	count(1, PID, CONTEXT + 64 * MiB);
	ck_assert_uint_eq(orphaned(), 0);
}
END_TEST

START_TEST(a_number_that_another_process_has_by_now_owes_nothing)
{
	count(1, PID, CONTEXT);
	come_and_go(s, 64 * MiB);
	count(1, PID, CONTEXT + 64 * MiB);
	ck_assert_uint_eq(orphaned(), 64 * MiB);
	fake.fate = GM_ENV_PROCESS_REPLACED;
	count(1, PID, CONTEXT + 64 * MiB);
	ck_assert_uint_eq(orphaned(), 0);
}
END_TEST

START_TEST(two_sessions_of_one_process_do_not_owe_the_same)
{
	struct gm_session *second = join(PID, 7);
	count(1, PID, CONTEXT);
	come_and_go(s, 64 * MiB);
	come_and_go(second, 64 * MiB);
	count(1, PID, CONTEXT + 64 * MiB);
	ck_assert_uint_eq(orphaned(), 64 * MiB);
	count(1, PID, CONTEXT);
	ck_assert_uint_eq(orphaned(), 0);
}
END_TEST

START_TEST(what_the_last_opener_keeps_is_charged_to_the_maker)
{
	fake.for_others = true;
	const struct gm_token_options options = {.audience = GM_NAME_AUDIENCE_UID, .id = 8};
	struct gm_session *opener = join(OTHER, 8);
	struct gm_lease *lease = fake_lease(&fake, s, 0, 64 * MiB), *opened;
	uint8_t token[GM_TOKEN_BYTES];
	ck_assert_int_eq(gm_lease_share(s, lease, &options, token), GPUMEM_OK);
	ck_assert_int_eq(gm_session_open(opener, token, NULL, 0, &opened), GPUMEM_OK);
	gm_lease_return(s, lease);

	count(2, PID, CONTEXT, OTHER, CONTEXT);
	gm_lease_return(opener, opened);
	fake_core_run(&fake);
	count(2, PID, CONTEXT, OTHER, CONTEXT + 64 * MiB);
	ck_assert_uint_eq(fake_left_by(&fake, 7, 0), 64 * MiB);
	ck_assert_uint_eq(fake_left_by(&fake, 8, 0), 0);
	count(2, PID, CONTEXT, OTHER, CONTEXT);
	ck_assert_uint_eq(orphaned(), 0);
}
END_TEST

START_TEST(what_was_pooled_counts_when_the_pool_gives_it_up)
{
	uint64_t slice = UINT64_MAX;
	info.policy.pooling = true;
	gm_core_set_policy(fake.core, 0, &info.policy);
	gm_lease_return(s, fake_lease(&fake, s, 0, 64 * MiB));
	ck_assert_uint_eq(fake_figures(&fake, 0).pooled, 64 * MiB);
	gm_session_end_unmapped(s);
	count(1, PID, CONTEXT);
	gm_core_trim(fake.core, 0, &slice);
	fake_core_run(&fake);
	count(1, PID, CONTEXT + 64 * MiB);
	ck_assert_uint_eq(fake_left_by(&fake, 7, 0), 64 * MiB);
	count(0);
	ck_assert_uint_eq(orphaned(), 0);
}
END_TEST

/* Or each unit that ever left something in the pool would count for GM_BOUND_ORPHANS_PER_UID. */
START_TEST(a_pooled_chunk_keeps_no_orphaned_account_of_a_process_that_owes_nothing)
{
	uint64_t slice = UINT64_MAX;
	info.policy.pooling = true;
	pid_t pid = join_kept();

	gm_lease_return(s, fake_lease(&fake, s, 0, 64 * MiB));
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_ORPHAN), 1);
	fake_ledger_leave(&fake, s, false);
	ck_assert_uint_eq(fake_figures(&fake, 0).pooled, 64 * MiB);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_ORPHAN), 0);

	/* If it does owe something in the end, the orphaned account is the same as before. */
	count(1, pid, CONTEXT);
	gm_core_trim(fake.core, 0, &slice);
	fake_core_run(&fake);
	count(1, pid, CONTEXT + 64 * MiB);
	ck_assert_uint_eq(fake_left_by(&fake, 100, 0), 64 * MiB);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_ORPHAN), 1);
	const struct gm_record_orphan *orphan =
		(const void *)fake_ledger_find(&ledger, GM_RECORD_ORPHAN, 0)->bytes;
	ck_assert_str_eq(orphan->unit, "a.service");
	ck_assert_uint_eq(orphan->head.uid, 100);
	count(0);
	ck_assert_uint_eq(orphaned(), 0);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_ORPHAN_MAP), 0);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_ORPHAN), 0);
}
END_TEST

START_TEST(without_room_for_its_orphaned_account_there_is_no_orphaned_mapping)
{
	uint64_t slice = UINT64_MAX;
	info.policy.pooling = true;
	pid_t pid = join_kept();
	gm_lease_return(s, fake_lease(&fake, s, 0, 64 * MiB));
	fake_ledger_leave(&fake, s, false);

	count(1, pid, CONTEXT);
	gm_core_trim(fake.core, 0, &slice);
	fake_core_run(&fake);
	ledger.full = true;
	count(1, pid, CONTEXT + 64 * MiB);
	ck_assert_uint_eq(orphaned(), 0);
	ledger.full = false;
	count(1, pid, CONTEXT + 64 * MiB);
	ck_assert_uint_eq(orphaned(), 0);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_ORPHAN), 0);
	ck_assert_uint_eq(gm_core_tick(fake.core), UINT64_MAX);
}
END_TEST

START_TEST(a_count_that_failed_makes_no_orphaned_mapping_and_ends_none)
{
	count(1, PID, CONTEXT);
	come_and_go(s, 64 * MiB);
	cannot_count();
	count(1, PID, CONTEXT + 64 * MiB);
	ck_assert_uint_eq(orphaned(), 0);

	come_and_go(s, 64 * MiB);
	count(1, PID, CONTEXT + 128 * MiB);
	ck_assert_uint_eq(orphaned(), 64 * MiB);
	cannot_count();
	ck_assert_uint_eq(orphaned(), 64 * MiB);
	count(1, PID, CONTEXT + 64 * MiB);
	ck_assert_uint_eq(orphaned(), 0);
}
END_TEST

START_TEST(an_orphaned_mapping_is_not_foreign)
{
	struct gm_usage_sample *counted = calloc(1, sizeof(*counted) + sizeof(counted->list[0]));
	count(1, PID, CONTEXT);
	come_and_go(s, 64 * MiB);
	gm_core_sample(fake.core, 0, 4 * GiB - CONTEXT - 64 * MiB);
	ck_assert_uint_eq(fake_figures(&fake, 0).foreign, CONTEXT + 64 * MiB);
	uint64_t available = fake_figures(&fake, 0).available;
	*counted = (struct gm_usage_sample){
		.known = true, .sampled = true, .free_bytes = 4 * GiB - CONTEXT - 64 * MiB, .n = 1};
	counted->list[0] =
		(struct gm_usage_sample_process){.pid = PID, .bytes = CONTEXT + 64 * MiB};
	gm_core_counted(fake.core, 0, counted);
	ck_assert_uint_eq(orphaned(), 64 * MiB);
	ck_assert_uint_eq(fake_figures(&fake, 0).foreign, CONTEXT);
	ck_assert_uint_eq(fake_figures(&fake, 0).available, available);
}
END_TEST

/* The device's thread counts at any pace for chunks that are unseen. */
START_TEST(a_chunk_is_unseen_while_no_count_has_its_process)
{
	struct gm_lease *lease = fake_lease(&fake, s, 0, 2 * MiB);
	gm_lease_return(s, lease);
	ck_assert(fake.jobs[0].destroy && fake.jobs[0].chunk->watched);
	ck_assert(fake.jobs[0].chunk->unseen);
	fake_core_run(&fake);

	lease = fake_lease(&fake, s, 0, 2 * MiB);
	count(1, OTHER, CONTEXT);
	gm_lease_return(s, lease);
	ck_assert(fake.jobs[0].chunk->unseen);
	fake_core_run(&fake);

	lease = fake_lease(&fake, s, 0, 2 * MiB);
	count(2, PID, CONTEXT, OTHER, CONTEXT);
	gm_lease_return(s, lease);
	ck_assert(fake.jobs[0].chunk->watched && !fake.jobs[0].chunk->unseen);
	fake_core_run(&fake);
}
END_TEST

START_TEST(an_orphaned_mapping_outlives_the_daemon)
{
	struct gm_adopt_result result;
	uint8_t token[GM_TOKEN_BYTES];
	pid_t pid = join_kept();

	count(1, pid, CONTEXT);
	come_and_go(s, 64 * MiB);
	count(1, pid, CONTEXT + 64 * MiB);
	ck_assert_uint_eq(fake_left_by(&fake, 100, 0), 64 * MiB);
	fake_ledger_leave(&fake, s, false);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_ORPHAN_MAP), 1);

	fake_ledger_restart(&fake, &info, 1, true, &result);
	ck_assert_uint_eq(result.adopted[GM_RECORD_ORPHAN_MAP], 1);
	ck_assert_uint_eq(orphaned(), 64 * MiB);
	ck_assert_uint_eq(fake_left_by(&fake, 100, 0), 64 * MiB);
	/* The daemon wants to know at once whether it is still so. */
	gm_core_tick(fake.core);
	ck_assert_uint_eq(fake.counts, 1);
	count(1, pid, CONTEXT + 32 * MiB);
	ck_assert_uint_eq(orphaned(), 32 * MiB);
	count(0);
	ck_assert_uint_eq(orphaned(), 0);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_ORPHAN_MAP), 0);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_ORPHAN), 0);

	/* A device without counts cannot tell when it ends. */
	s = fake_ledger_join(&fake, 100, "a.service", token);
	count(1, pid, CONTEXT);
	come_and_go(s, 64 * MiB);
	count(1, pid, CONTEXT + 64 * MiB);
	fake_ledger_leave(&fake, s, false);
	info.counted = false;
	fake_ledger_restart(&fake, &info, 1, true, &result);
	ck_assert_uint_eq(orphaned(), 0);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_ORPHAN_MAP), 0);
}
END_TEST

/* No chunk and no lease is left that would keep the daemon: only what was counted, which has a record,
 * and what was not, which nobody will count any more. */
START_TEST(a_daemon_that_stops_leaves_to_the_next_one_what_was_counted_and_nothing_else)
{
	struct gm_adopt_result result;
	uint8_t token[GM_TOKEN_BYTES];
	pid_t pid = join_kept();
	struct gm_session *second = fake_ledger_join(&fake, 200, NULL, token);

	count(2, pid, CONTEXT, gm_session_info(second)->pid, CONTEXT);
	come_and_go(s, 64 * MiB);
	count(2, pid, CONTEXT + 64 * MiB, gm_session_info(second)->pid, CONTEXT);
	come_and_go(second, 32 * MiB);
	fake_ledger_leave(&fake, s, false);
	fake_ledger_leave(&fake, second, false);

	gm_core_retire(fake.core);
	ck_assert(gm_core_idle(fake.core));
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_ORPHAN_MAP), 1);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_ORPHAN), 1);
	const struct gm_orphan_map *left = fake.core->devices[0].maps.list;
	ck_assert(left && !left->next);
	ck_assert_uint_eq(left->bytes, 64 * MiB);
	fake_ledger_restart(&fake, &info, 1, true, &result);
	ck_assert_uint_eq(fake_left_by(&fake, 100, 0), 64 * MiB);
	ck_assert_uint_eq(fake_left_by(&fake, 200, 0), 0);
}
END_TEST

/* The last count arrives while the daemon stops. Then nothing is worth keeping, and it ends like one that
 * forgets everything. */
START_TEST(an_orphaned_mapping_that_ends_while_the_daemon_stops_leaves_nothing)
{
	pid_t pid = join_kept();

	count(1, pid, CONTEXT);
	come_and_go(s, 64 * MiB);
	count(1, pid, CONTEXT + 64 * MiB);
	fake_ledger_leave(&fake, s, false);
	gm_core_retire(fake.core);
	count(0);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_ORPHAN_MAP), 0);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_ORPHAN), 0);
	/* Without gm_core_shutdown(), as in the broker. */
	gm_core_free(fake.core);
	free(fake.jobs);
	fake_core_init_keeping(&fake, &ledger);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("orphaned mapping");
	TCase *tcase = tcase_create("orphaned mapping");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase,
		what_came_to_a_process_when_its_chunk_was_destroyed_is_charged_while_it_has_it);
	tcase_add_test(tcase, an_honest_process_owes_nothing);
	tcase_add_test(
		tcase, memory_that_a_process_gets_for_itself_at_that_moment_is_no_orphaned_mapping);
	tcase_add_test(tcase, memory_of_its_own_between_two_orphaned_mappings_is_no_part_of_them);
	tcase_add_test(tcase, a_dead_process_owes_what_its_child_maps_until_the_child_ends);
	tcase_add_test(tcase, a_dead_process_owes_no_more_than_was_destroyed);
	tcase_add_test(
		tcase, a_process_that_called_exec_owes_only_what_came_to_it_at_the_destruction);
	tcase_add_test(tcase, a_number_that_another_process_has_by_now_owes_nothing);
	tcase_add_test(tcase, two_sessions_of_one_process_do_not_owe_the_same);
	tcase_add_test(tcase, what_the_last_opener_keeps_is_charged_to_the_maker);
	tcase_add_test(tcase, what_was_pooled_counts_when_the_pool_gives_it_up);
	tcase_add_test(
		tcase, a_pooled_chunk_keeps_no_orphaned_account_of_a_process_that_owes_nothing);
	tcase_add_test(tcase, without_room_for_its_orphaned_account_there_is_no_orphaned_mapping);
	tcase_add_test(tcase, a_count_that_failed_makes_no_orphaned_mapping_and_ends_none);
	tcase_add_test(tcase, an_orphaned_mapping_is_not_foreign);
	tcase_add_test(tcase, a_chunk_is_unseen_while_no_count_has_its_process);
	tcase_add_test(tcase, an_orphaned_mapping_outlives_the_daemon);
	tcase_add_test(tcase,
		a_daemon_that_stops_leaves_to_the_next_one_what_was_counted_and_nothing_else);
	tcase_add_test(tcase, an_orphaned_mapping_that_ends_while_the_daemon_stops_leaves_nothing);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
