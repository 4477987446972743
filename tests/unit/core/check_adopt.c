/* SPDX-License-Identifier: Apache-2.0 */
/* What a daemon takes back from the records of an earlier one, case by case. check_adopt_model.c has
 * the random ones. */

#include <stdio.h>
#include <string.h>

#include "daemon/lease/session_private.h"
#include "daemon/lease/lease.h"
#include "daemon/lease/lease_token.h"
#include "daemon/lease/commit.h"
#include "tests/tap.h"
#include "tests/unit/core/adopt_fixture.h"
#include "tests/unit/core/fake_ledger.h"
#include "tests/unit/failing_malloc.h"

START_TEST(a_chunk_made_to_measure_is_back_after_a_restart)
{
	uint64_t id = gm_session_id(s);

	fake.one_chunk = true;
	(void)fake_lease(&fake, s, 0, 10 * MiB);
	(void)fake_lease(&fake, s, 0, 6 * MiB);
	restart();
	ck_assert_uint_eq(all_damaged(), 0);
	s = back(id, token);
	ck_assert_uint_eq(gm_session_held(s, 0), 16 * MiB);

	struct gm_lease *lease = gm_session_next_lease(s, NULL);
	ck_assert_uint_eq(gm_lease_chunk(lease, 0)->bytes, 10 * MiB);
	gm_lease_return(s, lease);
	fake_core_run(&fake);
	ck_assert_uint_eq(gm_session_held(s, 0), 6 * MiB);
	ck_assert_uint_eq(fake_pool(&fake, 0).pooled, 0);
}
END_TEST

START_TEST(everything_is_back_after_a_restart)
{
	struct fake_books before, after;
	uint8_t share[GM_TOKEN_BYTES], others[GM_TOKEN_BYTES];
	const struct gm_token_options options = {.audience = GM_NAME_AUDIENCE_UID, .id = 200};
	struct gm_session *other = fake_ledger_join(&fake, 200, NULL, others);
	uint64_t id = gm_session_id(s), other_id = gm_session_id(other);
	struct gm_lease *lease = ask(s, NULL, 6 * MiB, 1, GPUMEM_OK), *opened;
	struct gm_owner owner;
	struct gm_limit_values values = {.set = GM_LIMIT_MAX, .max = 32 * MiB};
	char detail[GM_DETAIL_BYTES];

	ck_assert_int_eq(gm_lease_share(s, lease, &options, share), GPUMEM_OK);
	ck_assert_int_eq(gm_session_open(other, share, NULL, 0, &opened), GPUMEM_OK);
	ask(other, NULL, 2 * MiB, 1, GPUMEM_OK);
	gm_owner_by_id(GM_OWNER_UID, 100, &owner);
	ck_assert_int_eq(gm_core_set_limit(fake.core, &owner, 0, &values, detail), GPUMEM_OK);
	uint64_t slice = UINT64_MAX;
	gm_core_trim(fake.core, 1, &slice);
	gm_core_tick(fake.core);

	fake_books_read(&fake, &before);
	struct gm_device_figures was = fake_figures(&fake, 0);
	struct gm_core_counters counted, counted_before;
	gm_core_counters(fake.core, &counted_before);
	restart();
	fake_books_read(&fake, &after);
	fake_books_equal(&before, &after);
	ck_assert_uint_eq(all_damaged(), 0);

	struct gm_device_figures is = fake_figures(&fake, 0);
	ck_assert_uint_eq(is.quarantined, was.leased);
	ck_assert_uint_eq(is.available, was.available);
	ck_assert_uint_eq(is.peak_charged, was.peak_charged);
	ck_assert_uint_eq(fake_figures(&fake, 1).reclaim_epoch, 1);
	gm_core_counters(fake.core, &counted);
	ck_assert_uint_eq(counted.requests, counted_before.requests);

	s = back(id, token);
	other = back(other_id, others);
	ck_assert_uint_eq(fake_figures(&fake, 0).leased, was.leased);
	/* The token of the share is valid still, and so is the limit: 26 MiB are left. */
	ck_assert_int_eq(gm_session_open(other, share, NULL, 0, &opened), GPUMEM_OK);
	ck_assert_uint_eq(gm_session_room(s, 0), 26 * MiB);
	fake_books_deinit(&before);
	fake_books_deinit(&after);
}
END_TEST

START_TEST(the_limit_of_a_run_holds_after_a_restart_whoever_resumes_first)
{
	uint8_t tokens[2][GM_TOKEN_BYTES];
	struct gm_session *a = fake_ledger_join_run(&fake, 100, NULL, "r", 16 * MiB, tokens[0]);
	struct gm_session *b = fake_ledger_join_run(&fake, 100, NULL, "r", 16 * MiB, tokens[1]);
	uint64_t id = gm_session_id(b);

	ask(a, NULL, 12 * MiB, 1, GPUMEM_OK);
	ask(b, NULL, 2 * MiB, 1, GPUMEM_OK);
	restart();
	b = back(id, tokens[1]);
	ck_assert_uint_eq(gm_session_room(b, 0), 2 * MiB);
	ask(b, NULL, 4 * MiB, 2, GPUMEM_E_LIMIT);
	ask(b, NULL, 2 * MiB, 3, GPUMEM_OK);
	ck_assert_uint_eq(
		gm_session_room(fake_ledger_join(&fake, 100, NULL, token), 0), GiB - 16 * MiB);
}
END_TEST

/* A user may have many runs, and each limit that is adopted makes a copy of all that there are then. So limits come first. Otherwise
 * the start would allocate each run once for each limit and device. */
START_TEST(a_start_with_many_limits_takes_no_longer_because_a_user_has_many_runs)
{
	enum { LIMITS = 50, RUNS = 200 };
	struct gm_limit_values values = {.set = GM_LIMIT_MAX, .max = 100 * MiB};
	char detail[GM_DETAIL_BYTES], run[16];
	struct gm_owner owner;

	for (unsigned i = 0; i < LIMITS; i++) {
		gm_owner_by_id(GM_OWNER_UID, 1000 + i, &owner);
		ck_assert_int_eq(
			gm_core_set_limit(fake.core, &owner, GM_ALL_DEVICES, &values, detail),
			GPUMEM_OK);
	}
	for (unsigned i = 0; i < RUNS; i++) {
		snprintf(run, sizeof(run), "r%u", i);
		fake_ledger_join_run(&fake, 1000, NULL, run, 50 * MiB, token);
	}

	failing_malloc_arm(LIMITS * DEVICES * RUNS);
	restart();
	ck_assert(!failing_malloc_fired());
	ck_assert_uint_eq(all_damaged(), 0);
	ck_assert_uint_eq(result.adopted[GM_RECORD_LIMIT], LIMITS);
	struct gm_session *last = NULL;
	for (struct gm_session *at = NULL; (at = fake_next_session(&fake, at));)
		last = at;
	ck_assert_uint_eq(gm_session_max(last, 0), 50 * MiB);
	ask(back(gm_session_id(last), token), NULL, 40 * MiB, 1, GPUMEM_OK);
	ck_assert_uint_eq(gm_session_room(last, 0), 10 * MiB);
}
END_TEST

/* The configuration has grown since an administrator set a limit. */
START_TEST(a_limit_that_was_set_stays_however_many_are_configured)
{
	static struct gm_limit_rule rules[GM_BOUND_LIMITS];
	struct gm_limit_values values = {.set = GM_LIMIT_MAX, .max = 100 * MiB};
	char detail[GM_DETAIL_BYTES];
	struct gm_owner owner, other;

	gm_owner_by_id(GM_OWNER_UID, 100, &owner);
	gm_owner_by_id(GM_OWNER_UID, 101, &other);
	for (size_t i = 0; i < GM_BOUND_LIMITS; i++) {
		gm_owner_by_id(GM_OWNER_UID, 1000 + i, &rules[i].owner);
		rules[i].device = GM_ALL_DEVICES;
		rules[i].values = (struct gm_limit_values){.set = GM_LIMIT_MAX, .max = GiB};
	}
	ck_assert_int_eq(
		gm_core_set_limit(fake.core, &owner, GM_ALL_DEVICES, &values, detail), GPUMEM_OK);

	ledger.rules = rules;
	ledger.n_rules = GM_BOUND_LIMITS;
	restart();
	ck_assert_uint_eq(all_damaged(), 0);
	ck_assert_uint_eq(gm_session_max(fake_next_session(&fake, NULL), 0), 100 * MiB);

	/* It can be changed and reset. There is no room for another one. */
	ck_assert_int_eq(gm_core_set_limit(fake.core, &other, GM_ALL_DEVICES, &values, detail),
		GPUMEM_E_LIMIT);
	values.max = 200 * MiB;
	ck_assert_int_eq(
		gm_core_set_limit(fake.core, &owner, GM_ALL_DEVICES, &values, detail), GPUMEM_OK);
	ck_assert_uint_eq(gm_session_max(fake_next_session(&fake, NULL), 0), 200 * MiB);
	ck_assert_int_eq(gm_core_reset_limit(fake.core, &owner, GM_ALL_DEVICES, detail), GPUMEM_OK);
	ledger.n_rules = 0;
}
END_TEST

struct held_to {
	const struct gm_owner *owner;
	uint32_t device;
	struct gm_limit_values values;
};

static bool held_to_one(void *ctx, const struct gm_limit_info *info)
{
	struct held_to *to = ctx;
	if (info->device == to->device && !memcmp(&info->owner, to->owner, sizeof(*to->owner)))
		to->values = info->values;
	return true;
}

/* The values in force of an owner on a device. */
static struct gm_limit_values held_to(const struct gm_owner *owner, uint32_t device)
{
	struct held_to to = {.owner = owner, .device = device};
	struct gm_limit_place place = {0};
	gm_core_limit_each(fake.core, &place, held_to_one, &to);
	return to.values;
}

START_TEST(a_limit_in_a_record_of_a_former_format_holds)
{
	struct gm_limit_values values = {
		.set = GM_LIMIT_MAX | GM_LIMIT_PRIORITY, .max = 100 * MiB, .priority = -3};
	char detail[GM_DETAIL_BYTES];
	struct gm_owner owner;

	gm_owner_by_id(GM_OWNER_UID, 100, &owner);
	ck_assert_int_eq(
		gm_core_set_limit(fake.core, &owner, GM_ALL_DEVICES, &values, detail), GPUMEM_OK);
	struct fake_record *record = fake_ledger_find(&ledger, GM_RECORD_LIMIT, 0);
	struct gm_record_limit *limit = (void *)record->bytes, old;
	memset(&old, 0, sizeof(old));
	old.head = limit->head;
	old.owner = limit->owner;
	old.n_devices = limit->n_devices;
	ck_assert_uint_eq(limit->n_values, 2 * limit->n_devices);
	for (uint64_t d = 0; d < limit->n_devices; d++) {
		old.former[d].device = limit->devices[d];
		old.former[d].set = values.set;
		old.former[d].max = values.max;
		old.former[d].priority = values.priority;
	}
	old.head.format = GM_RECORD_FORMAT_LIMIT_ROWS - 1;
	old.head.size = offsetof(struct gm_record_limit, former) + sizeof(old.former);
	*limit = old;
	record->size = old.head.size;

	restart();
	ck_assert_uint_eq(all_damaged(), 0);
	struct gm_limit_values now = held_to(&owner, 1);
	ck_assert_uint_eq(now.set, values.set);
	ck_assert_uint_eq(now.max, values.max);
	ck_assert_int_eq(now.priority, values.priority);
}
END_TEST

/* Sets values for a uid at run time, lets the next daemon have another configuration, and returns what holds for
 * the uid on device 0 then. */
static struct gm_limit_values restart_with(uint64_t uid, struct gm_limit_values values,
	uint32_t device, const struct gm_limit_rule *rule)
{
	char detail[GM_DETAIL_BYTES];
	struct gm_owner owner;

	ck_assert_int_eq(gm_core_configure(fake.core, NULL, NULL, 0, detail), GPUMEM_OK);
	gm_owner_by_id(GM_OWNER_UID, uid, &owner);
	ck_assert_int_eq(gm_core_set_limit(fake.core, &owner, device, &values, detail), GPUMEM_OK);
	ledger.rules = rule;
	ledger.n_rules = 1;
	ledger.contradictions = 0;
	restart();
	ledger.n_rules = 0;
	ck_assert_uint_eq(all_damaged(), 0);
	return held_to(&owner, 0);
}

START_TEST(a_max_of_the_run_time_stays_where_the_configuration_guarantees_more)
{
	struct gm_limit_rule rule = {.values = {.set = GM_LIMIT_GUARANTEE, .guarantee = 100 * MiB}};
	struct gm_limit_values now;

	gm_owner_by_id(GM_OWNER_UID, 100, &rule.owner);
	now = restart_with(100,
		(struct gm_limit_values){
			.set = GM_LIMIT_MAX | GM_LIMIT_PRIORITY, .max = 50 * MiB, .priority = 3},
		GM_ALL_DEVICES, &rule);
	ck_assert_uint_eq(ledger.contradictions, 1);
	ck_assert_str_eq(ledger.why,
		"user 100: max 50.0M is below guarantee 100.0M; raise max, or lower guarantee");
	ck_assert_uint_eq(now.max, 50 * MiB);
	ck_assert_uint_eq(now.guarantee, 50 * MiB);
	ck_assert_int_eq(now.priority, 3);
	ck_assert_uint_eq(held_to(&rule.owner, 1).max, 50 * MiB);
	ck_assert_uint_eq(held_to(&rule.owner, 1).guarantee, 0);
	ck_assert_uint_eq(gm_session_max(fake_next_session(&fake, NULL), 0), 50 * MiB);

	/* The record says the same, so the next start has nothing to report. */
	ledger.rules = &rule;
	ledger.n_rules = 1;
	ledger.contradictions = 0;
	restart();
	ledger.n_rules = 0;
	ck_assert_uint_eq(ledger.contradictions, 0);
	ck_assert_uint_eq(held_to(&rule.owner, 0).max, 50 * MiB);
}
END_TEST

START_TEST(a_guarantee_of_the_run_time_that_contradicts_the_configuration_is_reported_not_damaged)
{
	struct gm_limit_rule rule = {.values = {.set = GM_LIMIT_GUARANTEE, .guarantee = 50 * MiB}};
	struct gm_limit_values values = {
		.set = GM_LIMIT_MAX | GM_LIMIT_GUARANTEE, .max = 200 * MiB, .guarantee = 100 * MiB};
	struct gm_limit_values now;

	/* Its max stays. */
	ck_assert_int_eq(gm_owner_by_name(GM_OWNER_UNIT, "a.service", &rule.owner), 0);
	now = restart_with(100, values, 0, &rule);
	ck_assert_uint_eq(ledger.contradictions, 1);
	ck_assert_ptr_nonnull(strstr(ledger.why, "one kind of owner only"));
	ck_assert_uint_eq(now.max, 200 * MiB);
	ck_assert_uint_eq(now.guarantee, 0);
	ck_assert_uint_eq(result.adopted[GM_RECORD_LIMIT], 1);

	/* Nothing of it stays: it has no record any more. */
	values.set = GM_LIMIT_GUARANTEE;
	now = restart_with(101, values, 0, &rule);
	ck_assert_uint_eq(ledger.contradictions, 1);
	ck_assert_uint_eq(now.set, 0);
	ck_assert_uint_eq(result.contradicted, 1);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_LIMIT), 1);
}
END_TEST

START_TEST(a_guarantee_of_the_run_time_that_does_not_fit_the_device_is_reported_not_damaged)
{
	struct gm_limit_rule rule = {
		.device = 1, .values = {.set = GM_LIMIT_PRIORITY, .priority = 1}};
	struct gm_limit_values values = {.set = GM_LIMIT_GUARANTEE, .guarantee = 512 * MiB};
	struct gm_limit_values now;

	gm_owner_by_id(GM_OWNER_UID, 100, &rule.owner);
	devices[0].total = 256 * MiB;
	now = restart_with(100, values, GM_ALL_DEVICES, &rule);
	ck_assert_uint_eq(ledger.contradictions, 1);
	ck_assert_ptr_nonnull(strstr(ledger.why, "device 0 go beyond its capacity of 256.0M"));
	ck_assert_uint_eq(now.set, 0);
	ck_assert_uint_eq(held_to(&rule.owner, 1).guarantee, 512 * MiB);
}
END_TEST

START_TEST(a_kill_forgets_few_counts_and_no_peak)
{
	struct gm_core_counters before, after;
	struct gm_lease *lease = ask(s, NULL, 8 * MiB, 1, GPUMEM_OK);
	uint64_t peak = fake_figures(&fake, 0).peak_charged, hits = 0;
	gm_lease_return(s, lease);
	for (uint64_t i = 2; i < 3 * GM_COMMIT_LAG; i++)
		gm_lease_return(s, ask(s, NULL, 8 * MiB, i, GPUMEM_OK));
	hits = fake_pool(&fake, 0).hits;
	gm_core_counters(fake.core, &before);
	restart();
	gm_core_counters(fake.core, &after);
	ck_assert_uint_le(after.requests, before.requests);
	ck_assert_uint_gt(after.requests + GM_COMMIT_LAG, before.requests);
	ck_assert_uint_gt(fake_pool(&fake, 0).hits + GM_COMMIT_LAG, hits);
	ck_assert_uint_eq(fake_figures(&fake, 0).peak_charged, peak);
}
END_TEST

START_TEST(adopted_chunks_are_never_pooled)
{
	struct gm_lease *lease = ask(s, NULL, 4 * MiB, 1, GPUMEM_OK);
	uint64_t id = gm_session_id(s), lease_id;
	struct gm_lease_info info;
	gm_lease_info(lease, s, &info);
	lease_id = info.id;
	restart();
	s = back(id, token);
	gm_lease_return(s, gm_session_find_lease(s, lease_id));
	ck_assert_uint_eq(fake_pool(&fake, 0).pooled, 0);
	ck_assert_uint_eq(fake_core_count(&fake, true), 1);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_CHUNK), 0);
	/* A new one is. */
	gm_lease_return(s, ask(s, NULL, 4 * MiB, 2, GPUMEM_OK));
	ck_assert_uint_eq(fake_pool(&fake, 0).pooled, 4 * MiB);
}
END_TEST

START_TEST(a_pooled_chunk_has_no_record)
{
	gm_lease_return(s, ask(s, NULL, 4 * MiB, 1, GPUMEM_OK));
	ck_assert_uint_eq(fake_pool(&fake, 0).pooled, 4 * MiB);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_CHUNK), 0);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_LEASE), 0);
	restart();
	ck_assert_uint_eq(fake_figures(&fake, 0).created, 0);
}
END_TEST

START_TEST(orphaned_memory_stays_charged_until_it_is_gone)
{
	struct gm_lease *lease = ask(s, NULL, 4 * MiB, 1, GPUMEM_OK);
	(void)lease;
	fake.in_use = true;
	fake_ledger_leave(&fake, s, true);
	ck_assert_uint_eq(fake_left_by(&fake, 100, 0), 4 * MiB);
	restart();
	ck_assert_uint_eq(fake_left_by(&fake, 100, 0), 4 * MiB);
	ck_assert_uint_eq(fake_figures(&fake, 0).orphaned, 4 * MiB);
	fake.in_use = false;
	fake_pass(&fake, UINT64_C(10000000000));
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_left_by(&fake, 100, 0), 0);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_CHUNK), 0);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_ORPHAN), 0);
}
END_TEST

START_TEST(a_repeated_request_is_found_with_what_it_brought)
{
	struct gm_lease *lease = ask(s, NULL, 6 * MiB, 7, GPUMEM_OK), *found;
	uint64_t id = gm_session_id(s), from, to;
	ask(s, lease, 2 * MiB, 9, GPUMEM_OK);
	ask(s, NULL, 2 * MiB, 8, GPUMEM_OK);

	for (int round = 0; round < 2; round++) {
		struct gm_lease_info info;
		ck_assert(gm_session_find_grant(s, 7, &found, &from, &to));
		gm_lease_info(found, s, &info);
		ck_assert_uint_eq(info.bytes, 8 * MiB);
		ck_assert(from == 0 && to == 2);
		ck_assert(gm_session_find_grant(s, 9, &found, &from, &to));
		ck_assert(from == 2 && to == 3);
		ck_assert(gm_session_find_grant(s, 8, &found, &from, &to));
		ck_assert(from == 0 && to == 1);
		ck_assert(!gm_session_find_grant(s, 0, &found, &from, &to));
		ck_assert(!gm_session_find_grant(s, 6, &found, &from, &to));
		ck_assert(!gm_session_find_grant(s, 10, &found, &from, &to));

		/* The same after a restart, and what was returned is not found. */
		if (round == 1)
			continue;
		restart();
		s = back(id, token);
	}
	ck_assert(gm_session_find_grant(s, 8, &found, &from, &to));
	gm_lease_return(s, found);
	ck_assert(!gm_session_find_grant(s, 8, &found, &from, &to));
}
END_TEST

/* A token of a lease of another user's session, for uid 100. */
static void share_with_us(uint8_t ret_token[GM_TOKEN_BYTES])
{
	const struct gm_token_options options = {.audience = GM_NAME_AUDIENCE_UID, .id = 100};
	uint8_t others[GM_TOKEN_BYTES];
	struct gm_session *other = fake_ledger_join(&fake, 200, NULL, others);
	struct gm_lease *lease = ask(other, NULL, 6 * MiB, 1, GPUMEM_OK);
	ck_assert_int_eq(gm_lease_share(other, lease, &options, ret_token), GPUMEM_OK);
}

static struct gm_lease *open_again(const uint8_t share[GM_TOKEN_BYTES], uint64_t asked, bool again)
{
	struct gm_lease *lease;
	ck_assert_int_eq(gm_session_open_by(s, share, 0, NULL, 0, asked, again, &lease), GPUMEM_OK);
	return lease;
}

START_TEST(every_repeated_open_is_known)
{
	uint8_t share[GM_TOKEN_BYTES];
	uint64_t id = gm_session_id(s);
	struct gm_lease *lease, *none;
	uint64_t from, to;
	share_with_us(share);
	for (uint64_t asked = 1; asked <= 3; asked++)
		lease = open_again(share, asked, false);

	for (int round = 0; round < 2; round++) {
		restart();
		s = back(id, token);
		memcpy(token, next, sizeof(token));
		for (uint64_t asked = 1; asked <= 3; asked++)
			lease = open_again(share, asked, true);
		ck_assert_uint_eq(lease->n_opens, 3);
		ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_REF), 3);
		/* An Open is no Lease. */
		ck_assert(!gm_session_find_grant(s, 2, &none, &from, &to));
	}

	/* Even if the share has ended, but not once it was returned. */
	gm_lease_unshare(lease->maker, lease);
	open_again(share, 2, true);
	gm_lease_return_view(s, lease, 2);
	ck_assert_int_eq(
		gm_session_open_by(s, share, 0, NULL, 0, 2, true, &none), GPUMEM_E_NOT_FOUND);
	ck_assert_uint_eq(lease->n_opens, 2);
}
END_TEST

START_TEST(a_view_ends_once_however_often_its_return_is_repeated)
{
	uint8_t share[GM_TOKEN_BYTES];
	uint64_t id = gm_session_id(s), lease_id;
	struct gm_lease *lease;
	share_with_us(share);
	open_again(share, 1, false);
	lease = open_again(share, 2, false);
	lease_id = lease->id;

	/* The daemon dies after it has carried the return out, and before it answers. */
	gm_lease_return_view(s, lease, 1);
	restart();
	s = back(id, token);
	lease = gm_session_find_lease(s, lease_id);
	ck_assert(!gm_lease_has_view(s, lease, 1));
	gm_lease_return_view(s, lease, 1);
	ck_assert_ptr_eq(gm_session_find_lease(s, lease_id), lease);
	ck_assert_uint_eq(lease->n_opens, 1);
	/* Clients that do not name the view return any. */
	gm_lease_return(s, lease);
	ck_assert_ptr_null(gm_session_find_lease(s, lease_id));
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_REF), 0);
}
END_TEST

START_TEST(a_maker_may_open_its_own_lease)
{
	const struct gm_token_options options = {.audience = GM_NAME_AUDIENCE_DOMAIN};
	struct gm_lease *lease = ask(s, NULL, 6 * MiB, 1, GPUMEM_OK);
	uint64_t id = gm_session_id(s), lease_id = lease->id;
	uint8_t share[GM_TOKEN_BYTES];
	ck_assert_int_eq(gm_lease_share(s, lease, &options, share), GPUMEM_OK);
	open_again(share, 2, false);
	open_again(share, 3, false);
	restart();
	s = back(id, token);
	lease = gm_session_find_lease(s, lease_id);
	ck_assert_uint_eq(lease->own.count, 3);
	open_again(share, 2, true);
	gm_lease_return_view(s, lease, 3);
	ck_assert_uint_eq(lease->own.count, 2);
	/* In any order, and whatever it means. */
	gm_lease_return(s, lease);
	gm_lease_return_view(s, lease, 2);
	ck_assert_ptr_null(gm_session_find_lease(s, lease_id));
	ck_assert_uint_eq(gm_session_held(s, 0), 0);
}
END_TEST

START_TEST(a_record_of_an_open_that_counts_several_is_damaged)
{
	uint8_t share[GM_TOKEN_BYTES];
	uint64_t id = gm_session_id(s);
	share_with_us(share);
	open_again(share, 4, false);
	struct gm_record_ref *ref = (void *)fake_ledger_find(&ledger, GM_RECORD_REF, 0)->bytes;
	ref->count = 3;
	restart();
	s = back(id, token);
	ck_assert_uint_eq(all_damaged(), 1);
	ck_assert_uint_eq(gm_session_lease_count(s), 0);
}
END_TEST

START_TEST(a_request_that_was_never_answered_is_granted_as_a_whole_or_not_at_all)
{
	/* 6 MiB are two chunks: three records. The daemon dies before each of them, and after. */
	for (uint64_t at = 1; at <= 4; at++) {
		struct gm_lease *found;
		uint64_t from, to, id = gm_session_id(s);
		ledger.stop_at = ledger.writes + at;
		ask(s, NULL, 6 * MiB, at, GPUMEM_OK);
		restart();
		s = back(id, token);
		memcpy(token, next, sizeof(token));
		ck_assert(gm_session_find_grant(s, at, &found, &from, &to) == (at == 4));
		ck_assert_uint_eq(gm_session_held(s, 0), at == 4 ? 6 * MiB : 0);
		ck_assert_uint_eq(result.unfinished, at == 4 ? 0 : at - 1);
		ck_assert_uint_eq(all_damaged(), 0);
	}
}
END_TEST

START_TEST(what_was_adopted_does_not_count_as_foreign)
{
	ask(s, NULL, 64 * MiB, 1, GPUMEM_OK);
	devices[0].measured = true;
	devices[0].free_bytes = GiB - 64 * MiB - 10 * MiB;
	restart();
	ck_assert_uint_eq(fake_figures(&fake, 0).foreign, 10 * MiB);
}
END_TEST

START_TEST(the_reserve_is_filled_after_the_adoption)
{
	ask(s, NULL, 64 * MiB, 1, GPUMEM_OK);
	devices[0].policy.reserve = GiB;
	restart();
	fake_core_check(&fake, 0);
	struct gm_device_figures figures = fake_figures(&fake, 0);
	ck_assert_uint_eq(figures.quarantined, 64 * MiB);
	ck_assert_uint_gt(figures.pooled, 0);
	ck_assert_uint_le(figures.pooled + figures.quarantined, GiB);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("adopt");
	TCase *tcase = tcase_create("adopt");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, everything_is_back_after_a_restart);
	tcase_add_test(tcase, a_chunk_made_to_measure_is_back_after_a_restart);
	tcase_add_test(tcase, the_limit_of_a_run_holds_after_a_restart_whoever_resumes_first);
	tcase_add_test(
		tcase, a_start_with_many_limits_takes_no_longer_because_a_user_has_many_runs);
	tcase_add_test(tcase, a_limit_that_was_set_stays_however_many_are_configured);
	tcase_add_test(tcase, a_limit_in_a_record_of_a_former_format_holds);
	tcase_add_test(tcase, a_max_of_the_run_time_stays_where_the_configuration_guarantees_more);
	tcase_add_test(tcase,
		a_guarantee_of_the_run_time_that_contradicts_the_configuration_is_reported_not_damaged);
	tcase_add_test(tcase,
		a_guarantee_of_the_run_time_that_does_not_fit_the_device_is_reported_not_damaged);
	tcase_add_test(tcase, a_kill_forgets_few_counts_and_no_peak);
	tcase_add_test(tcase, adopted_chunks_are_never_pooled);
	tcase_add_test(tcase, a_pooled_chunk_has_no_record);
	tcase_add_test(tcase, orphaned_memory_stays_charged_until_it_is_gone);
	tcase_add_test(tcase, a_repeated_request_is_found_with_what_it_brought);
	tcase_add_test(tcase, every_repeated_open_is_known);
	tcase_add_test(tcase, a_view_ends_once_however_often_its_return_is_repeated);
	tcase_add_test(tcase, a_maker_may_open_its_own_lease);
	tcase_add_test(tcase, a_record_of_an_open_that_counts_several_is_damaged);
	tcase_add_test(
		tcase, a_request_that_was_never_answered_is_granted_as_a_whole_or_not_at_all);
	tcase_add_test(tcase, what_was_adopted_does_not_count_as_foreign);
	tcase_add_test(tcase, the_reserve_is_filled_after_the_adoption);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
