/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/lease/declare.c: memory that clients make themselves and declare. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/lease/declare.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/lease.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_ledger.h"

#define CONTEXT (518 * MiB)
#define PID     4711
#define OTHER   4712
#define TOTAL   (4 * GiB)

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
	info = fake_info(TOTAL);
	info.counted = true;
	fake_no_levels(&info.policy);
	fake_core_init_asking(&fake);
	fake_core_add(&fake, &info);
	s = join(PID, 7);
}

static void teardown(void)
{
	struct gm_session *session;
	while (fake.ledger && (session = fake_next_session(&fake, NULL)))
		fake_ledger_leave(&fake, session, true);
	fake_core_deinit(&fake);
	fake_ledger_deinit(&ledger);
}

static void begin(
	struct fake_request *q, struct gm_session *session, uint64_t bytes, uint64_t wait_ns)
{
	memset(q, 0, sizeof(*q));
	q->r = (struct gm_request){
		.session = session, .bytes = bytes, .declares = true, .wait_ns = wait_ns};
	q->r.done = fake_request_done;
	gm_core_request(fake.core, &q->r);
}

static gpumem_status declare(struct gm_session *session, uint64_t more)
{
	struct fake_request q;
	begin(&q, session, more, GM_WAIT_NEVER);
	ck_assert_uint_eq(q.ended, 1);
	return q.status;
}

static void limit(uid_t uid, uint64_t max)
{
	struct gm_owner owner;
	struct gm_limit_values values = {.set = GM_LIMIT_MAX, .max = max};
	char detail[GM_DETAIL_BYTES];
	gm_owner_by_id(GM_OWNER_UID, uid, &owner);
	ck_assert_int_eq(gm_core_set_limit(fake.core, &owner, 0, &values, detail), GPUMEM_OK);
}

/* So much of the device is used, and the driver counts so much for so many processes: pairs of pid_t
 * and uint64_t, in order of pid. */
static void count(uint64_t used, int n, ...)
{
	struct gm_usage_sample *counted =
		calloc(1, sizeof(*counted) + 2 * sizeof(counted->list[0]));
	va_list args;
	va_start(args, n);
	counted->known = counted->sampled = true;
	counted->free_bytes = TOTAL - used;
	for (int i = 0; i < n; i++) {
		counted->list[i].pid = va_arg(args, pid_t);
		counted->list[i].bytes = va_arg(args, uint64_t);
	}
	counted->n = (size_t)n;
	va_end(args);
	gm_core_counted(fake.core, 0, counted);
}

static uint64_t foreign(void)
{
	struct gm_device_figures f = fake_figures(&fake, 0);
	ck_assert_uint_eq(f.free, TOTAL - f.foreign - f.created - f.dying - f.declared_seen);
	ck_assert_uint_le(f.declared_seen, f.declared);
	return f.foreign;
}

START_TEST(declared_memory_is_charged_like_leased_memory_and_is_not_created)
{
	ck_assert_int_eq(declare(s, 3 * MiB + 5), GPUMEM_OK);
	ck_assert_int_eq(declare(s, GiB), GPUMEM_OK);
	ck_assert_uint_eq(gm_declare_sum(s, 0), GiB + 3 * MiB + 5);
	ck_assert_uint_eq(gm_session_held(s, 0), GiB + 3 * MiB + 5);
	struct gm_device_figures f = fake_figures(&fake, 0);
	ck_assert_uint_eq(f.declared, GiB + 3 * MiB + 5);
	ck_assert_uint_eq(f.created, 0);
	ck_assert_uint_eq(f.available, TOTAL - f.declared);
	ck_assert_uint_eq(f.peak_charged, f.declared);

	ck_assert_uint_eq(gm_declare_less(s, 0, 5), 5);
	ck_assert_uint_eq(gm_session_held(s, 0), 5);
	/* More than it has changes nothing. */
	ck_assert_uint_eq(gm_declare_less(s, 0, GiB), 5);
	ck_assert_uint_eq(gm_declare_less(s, 0, 0), 0);
	ck_assert_uint_eq(fake_figures(&fake, 0).available, TOTAL);
	ck_assert_uint_eq(gm_declare_less(s, 9, 0), 0);
}
END_TEST

START_TEST(a_limit_refuses_before_anything_is_charged)
{
	limit(7, 64 * MiB);
	struct gm_session *second = join(PID, 7);
	struct fake_request q;
	fake_lease(&fake, s, 0, 16 * MiB);
	ck_assert_int_eq(declare(second, 32 * MiB), GPUMEM_OK);
	begin(&q, s, 16 * MiB + 1, GM_WAIT_NEVER);
	ck_assert_int_eq(q.status, GPUMEM_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(q.detail, "may hold 64.0M, holds 48.0M"));
	ck_assert_uint_eq(gm_declare_sum(s, 0), 0);
	ck_assert_int_eq(declare(s, 16 * MiB), GPUMEM_OK);

	/* And declared memory leaves as much less for leases. */
	fake_wait(&fake, &q, second, 0, 2 * MiB, GM_WAIT_NEVER);
	fake_pass(&fake, UINT64_C(5000000000));
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_E_LIMIT);
	gm_declare_less(second, 0, 0);
	fake_lease(&fake, s, 0, 32 * MiB);
}
END_TEST

START_TEST(nobody_declares_more_than_the_device_has)
{
	struct gm_session *other = join(OTHER, 8);
	ck_assert_int_eq(declare(s, TOTAL + 1), GPUMEM_E_NO_MEMORY);
	ck_assert_int_eq(declare(s, 0), GPUMEM_E_INVALID);
	ck_assert_int_eq(declare(s, UINT64_MAX), GPUMEM_E_INVALID);
	ck_assert_int_eq(declare(s, 3 * GiB), GPUMEM_OK);
	ck_assert_int_eq(declare(other, GiB + 1), GPUMEM_E_NO_MEMORY);
	ck_assert_int_eq(declare(other, GiB), GPUMEM_OK);
	ck_assert_uint_eq(fake_figures(&fake, 0).available, 0);
	gm_session_end_died(other);
	ck_assert_uint_eq(fake_figures(&fake, 0).available, GiB);
}
END_TEST

/* The client makes the memory as soon as it has the answer: the room must be there by then. */
START_TEST(the_pool_makes_room_before_the_answer)
{
	struct fake_request q;
	gm_lease_return(s, fake_lease(&fake, s, 0, GiB));
	ck_assert_uint_eq(fake_figures(&fake, 0).pooled, GiB);
	begin(&q, s, TOTAL - GiB / 2, GM_WAIT_NEVER);
	ck_assert_uint_le(fake_figures(&fake, 0).pooled, GiB / 2);
	ck_assert_uint_eq(q.ended, 0);
	/* It is charged, but not declared yet. */
	ck_assert_uint_eq(gm_session_held(s, 0), TOTAL - GiB / 2);
	ck_assert_uint_eq(gm_declare_sum(s, 0), 0);
	fake_core_run(&fake);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	ck_assert_uint_eq(gm_declare_sum(s, 0), TOTAL - GiB / 2);
	ck_assert_uint_eq(gm_session_held(s, 0), TOTAL - GiB / 2);
}
END_TEST

/* Begins a request for a lease, and cancels it when the device has begun to create its chunks. */
static void cancel_late(struct gm_session *session, uint64_t bytes)
{
	struct fake_request q = {
		.r = {.session = session, .bytes = bytes, .wait_ns = GM_WAIT_NEVER}};
	q.r.done = fake_request_done;
	gm_core_request(fake.core, &q.r);
	ck_assert_uint_eq(q.ended, 0);
	gm_core_cancel(fake.core, &q.r);
	ck_assert_uint_eq(gm_session_held(session, 0), 0);
}

START_TEST(a_creation_that_nobody_wants_any_more_ends_before_the_answer)
{
	struct fake_request q;
	cancel_late(s, 3 * GiB);
	begin(&q, s, 2 * GiB, GM_WAIT_NEVER);
	ck_assert_uint_eq(q.ended, 0);
	while (q.ended == 0)
		fake_core_complete(&fake, 0, 0);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	/* What the device has made, and what it still may make, leaves the room. */
	uint64_t taken = fake.backend_bytes[0];
	for (size_t i = 0; i < fake.n_jobs; i++)
		taken += fake.jobs[i].destroy ? 0 : fake.jobs[i].chunk->bytes;
	ck_assert_uint_le(taken, TOTAL - 2 * GiB);
	fake_core_run(&fake);
}
END_TEST

START_TEST(a_creation_that_fails_makes_room_too)
{
	struct fake_request q;
	cancel_late(s, 3 * GiB);
	begin(&q, s, 2 * GiB, GM_WAIT_NEVER);
	ck_assert_uint_eq(q.ended, 0);
	while (fake.n_jobs > 0)
		fake_core_complete(&fake, 0, -EIO);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

/* A declaration that waits has not counted chunks that began later, so their failure is no room for it. */
START_TEST(a_creation_that_begins_later_and_fails_makes_room_for_later_declarations_alone)
{
	struct gm_session *other = join(OTHER, 8), *third = join(OTHER + 1, 9);
	struct fake_request first, second;
	cancel_late(s, 4 * GiB);
	size_t n = fake.n_jobs;
	begin(&first, s, GiB, GM_WAIT_NEVER);
	cancel_late(third, GiB);
	begin(&second, other, GiB, GM_WAIT_NEVER);
	while (fake.n_jobs > n)
		fake_core_complete(&fake, n, -EIO);
	ck_assert_uint_eq(first.ended + second.ended, 0);

	/* The first one lacks 1 GiB, and the second one 1 GiB more. */
	uint64_t gone = 0;
	while (first.ended == 0) {
		gone += fake.jobs[0].chunk->bytes;
		ck_assert_uint_le(gone, GiB);
		fake_core_complete(&fake, 0, -EIO);
	}
	ck_assert_uint_eq(gone, GiB);
	ck_assert_uint_eq(second.ended, 0);
	while (second.ended == 0) {
		gone += fake.jobs[0].chunk->bytes;
		fake_core_complete(&fake, 0, -EIO);
	}
	ck_assert_uint_eq(gone, 2 * GiB);
	fake_core_run(&fake);
}
END_TEST

START_TEST(a_declaration_that_fits_beside_what_is_destroyed_does_not_wait)
{
	info.policy.pooling = false;
	gm_core_set_policy(fake.core, 0, &info.policy);
	gm_lease_return(s, fake_lease(&fake, s, 0, GiB));
	ck_assert_uint_eq(fake_figures(&fake, 0).dying, GiB);
	ck_assert_int_eq(declare(s, 2 * GiB), GPUMEM_OK);
	ck_assert_uint_eq(fake_figures(&fake, 0).dying, GiB);
	fake_core_run(&fake);
}
END_TEST

/* Each of them waits for as much as it lacks, and not for what was doomed after it. */
START_TEST(what_is_doomed_later_makes_no_declaration_wait_longer)
{
	struct gm_session *other = join(OTHER, 8);
	struct fake_request first, second;
	info.policy.pooling = false;
	gm_core_set_policy(fake.core, 0, &info.policy);
	struct gm_lease *a = fake_lease(&fake, s, 0, 512 * MiB),
			*b = fake_lease(&fake, s, 0, 512 * MiB),
			*later = fake_lease(&fake, other, 0, GiB);
	gm_lease_return(s, a);
	gm_lease_return(s, b);
	uint64_t dying = fake_figures(&fake, 0).dying;
	ck_assert_uint_eq(dying, GiB);
	begin(&first, s, 2 * GiB + 256 * MiB, GM_WAIT_NEVER);
	begin(&second, other, 512 * MiB, GM_WAIT_NEVER);
	gm_lease_return(other, later);
	ck_assert_uint_eq(first.ended + second.ended, 0);

	while (fake_figures(&fake, 0).dying + 256 * MiB > 2 * GiB) {
		ck_assert_uint_eq(first.ended, 0);
		fake_core_complete(&fake, 0, 0);
	}
	ck_assert_uint_eq(first.ended, 1);
	while (fake_figures(&fake, 0).dying + 768 * MiB > 2 * GiB) {
		ck_assert_uint_eq(second.ended, 0);
		fake_core_complete(&fake, 0, 0);
	}
	ck_assert_uint_eq(second.ended, 1);
	fake_core_run(&fake);
}
END_TEST

/* The creation of a chunk was charged when the declaration came. Then its request is cancelled, and another one takes its place
 * before the chunk is destroyed. */
START_TEST(what_takes_the_place_of_a_cancelled_creation_takes_no_declared_room)
{
	struct gm_session *other = join(OTHER, 8), *third = join(OTHER + 1, 9);
	struct fake_request creating, first, instead;
	info.policy.pooling = false;
	gm_core_set_policy(fake.core, 0, &info.policy);
	gm_lease_return(s, fake_lease(&fake, s, 0, GiB));
	fake_ask(&fake, &creating, third, 0, GiB, GM_TRANSPORT_AUTO);
	begin(&first, other, 2 * GiB + 256 * MiB, GM_WAIT_NEVER);
	ck_assert_uint_eq(first.ended, 0);
	gm_core_cancel(fake.core, &creating.r);
	fake_ask(&fake, &instead, third, 0, GiB, GM_TRANSPORT_AUTO);
	while (first.ended == 0)
		fake_core_complete(&fake, 0, 0);
	ck_assert_int_eq(first.status, GPUMEM_OK);
	uint64_t taken = fake.backend_bytes[0];
	for (size_t i = 0; i < fake.n_jobs; i++)
		taken += fake.jobs[i].destroy ? 0 : fake.jobs[i].chunk->bytes;
	ck_assert_uint_le(taken, TOTAL - 2 * GiB - 256 * MiB);
	fake_core_run(&fake);
	ck_assert_int_eq(instead.status, GPUMEM_OK);
}
END_TEST

START_TEST(a_declaration_that_waits_for_room_can_be_cancelled)
{
	struct fake_request q, gone;
	struct gm_session *other = join(OTHER, 8);
	gm_lease_return(s, fake_lease(&fake, s, 0, GiB));
	begin(&q, s, 3 * GiB + 256 * MiB, GM_WAIT_NEVER);
	begin(&gone, other, 512 * MiB, GM_WAIT_NEVER);
	ck_assert_uint_eq(q.ended + gone.ended, 0);
	gm_core_cancel(fake.core, &q.r);
	ck_assert_int_eq(q.status, GPUMEM_E_CANCELLED);
	ck_assert_uint_eq(gm_session_held(s, 0), 0);
	gm_session_quarantine(other);
	ck_assert_int_eq(gone.status, GPUMEM_E_CANCELLED);
	gm_session_end_died(other);
	fake_core_run(&fake);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_uint_eq(gone.ended, 1);
	ck_assert_uint_eq(fake_figures(&fake, 0).available, TOTAL);
}
END_TEST

START_TEST(a_declaration_waits_its_turn_and_gets_what_others_return)
{
	struct gm_session *other = join(OTHER, 8);
	struct gm_lease *lease = fake_lease(&fake, other, 0, 3 * GiB);
	struct fake_request q, cancelled;
	begin(&q, s, 2 * GiB, UINT64_C(5000000000));
	begin(&cancelled, s, 3 * GiB, GM_WAIT_FOREVER);
	ck_assert_uint_eq(q.ended, 0);
	ck_assert_uint_eq(gm_session_held(s, 0), 0);
	gm_core_cancel(fake.core, &cancelled.r);
	ck_assert_int_eq(cancelled.status, GPUMEM_E_CANCELLED);
	gm_lease_return(other, lease);
	fake_core_run(&fake);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_OK);
	ck_assert_uint_eq(gm_declare_sum(s, 0), 2 * GiB);

	/* What is given back lets a lease that waits have the room. */
	fake_wait(&fake, &q, other, 0, 3 * GiB, UINT64_C(5000000000));
	fake_core_run(&fake);
	ck_assert_uint_eq(q.ended, 0);
	gm_declare_less(s, 0, GiB);
	fake_core_run(&fake);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

START_TEST(a_client_is_not_asked_for_what_it_declared)
{
	struct gm_session *other = join(OTHER, 8);
	struct fake_request q;
	ck_assert_int_eq(declare(s, 3 * GiB), GPUMEM_OK);
	fake_says(&fake, s, 0, 3 * GiB, 0);
	begin(&q, other, 2 * GiB, GM_WAIT_NEVER);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_ptr_null(fake_asked(&fake, s));
}
END_TEST

START_TEST(a_quarantined_session_keeps_what_it_declared_and_a_dead_one_does_not)
{
	fake_lease(&fake, s, 0, 64 * MiB);
	ck_assert_int_eq(declare(s, GiB), GPUMEM_OK);
	gm_session_quarantine(s);
	struct gm_device_figures f = fake_figures(&fake, 0);
	ck_assert_uint_eq(f.quarantined, 64 * MiB);
	ck_assert_uint_eq(f.declared, GiB);
	gm_session_end_died(s);
	fake_core_run(&fake);
	f = fake_figures(&fake, 0);
	ck_assert_uint_eq(f.declared, 0);
	ck_assert_uint_eq(f.available, TOTAL);
}
END_TEST

START_TEST(what_the_driver_counts_for_the_process_is_not_foreign_too)
{
	/* All else than the context of the process is somebody else's. */
	ck_assert_int_eq(declare(s, GiB), GPUMEM_OK);
	count(CONTEXT + 100 * MiB, 1, PID, CONTEXT);
	/* The driver does not tell a context from declared memory: see doc/decisions.md. */
	ck_assert_uint_eq(foreign(), 100 * MiB);
	/* Now it has made all of it. */
	count(CONTEXT + GiB + 100 * MiB, 1, PID, CONTEXT + GiB);
	ck_assert_uint_eq(foreign(), CONTEXT + 100 * MiB);
	/* And has freed it. */
	gm_declare_less(s, 0, 0);
	ck_assert_uint_eq(foreign(), CONTEXT + 100 * MiB);
	count(CONTEXT + 100 * MiB, 1, PID, CONTEXT);
	ck_assert_uint_eq(foreign(), CONTEXT + 100 * MiB);
	ck_assert_uint_eq(fake_figures(&fake, 0).declared_seen, 0);
}
END_TEST

START_TEST(two_sessions_of_a_process_do_not_hide_the_same_bytes)
{
	struct gm_session *second = join(PID, 7), *other = join(OTHER, 8);
	ck_assert_int_eq(declare(s, GiB), GPUMEM_OK);
	ck_assert_int_eq(declare(second, GiB), GPUMEM_OK);
	ck_assert_int_eq(declare(other, 256 * MiB), GPUMEM_OK);
	count(3 * GiB, 2, PID, 1536 * MiB, OTHER, GiB);
	ck_assert_uint_eq(foreign(), 3 * GiB - 1536 * MiB - 256 * MiB);
	gm_session_end_died(second);
	count(3 * GiB, 2, PID, 1536 * MiB, OTHER, GiB);
	ck_assert_uint_eq(foreign(), 3 * GiB - GiB - 256 * MiB);
}
END_TEST

/* A process that lies hides no more than what it is charged for. */
START_TEST(a_lie_makes_no_room)
{
	struct gm_session *other = join(OTHER, 8);
	count(2 * GiB, 2, PID, GiB, OTHER, GiB);
	uint64_t before = fake_figures(&fake, 0).available;
	ck_assert_int_eq(declare(s, GiB + 512 * MiB), GPUMEM_OK);
	for (int i = 0; i < 3; i++) {
		count(2 * GiB, 2, PID, GiB, OTHER, GiB);
		ck_assert_uint_eq(foreign(), GiB);
		ck_assert_uint_eq(fake_figures(&fake, 0).available, before - 512 * MiB);
	}
	(void)other;
}
END_TEST

START_TEST(without_a_count_declared_memory_is_foreign_as_well)
{
	ck_assert_int_eq(declare(s, GiB), GPUMEM_OK);
	/* Of a process in another pid namespace, the driver says nothing. */
	count(GiB + CONTEXT, 1, OTHER, GiB + CONTEXT);
	ck_assert_uint_eq(foreign(), GiB + CONTEXT);
	count(GiB + CONTEXT, 1, PID, GiB + CONTEXT);
	ck_assert_uint_eq(foreign(), CONTEXT);
	/* The driver cannot tell any more. */
	gm_core_counted(fake.core, 0, calloc(1, sizeof(struct gm_usage_sample)));
	gm_core_sample(fake.core, 0, TOTAL - GiB - CONTEXT);
	ck_assert_uint_eq(foreign(), GiB + CONTEXT);
}
END_TEST

/* Memory that was destroyed and is still mapped is in the figure of its process, too. */
START_TEST(an_orphaned_mapping_and_a_declaration_do_not_hide_the_same_bytes)
{
	info.policy.pooling = false;
	gm_core_set_policy(fake.core, 0, &info.policy);
	count(CONTEXT, 1, PID, CONTEXT);
	gm_lease_return(s, fake_lease(&fake, s, 0, 64 * MiB));
	fake_core_run(&fake);
	count(CONTEXT + 64 * MiB, 1, PID, CONTEXT + 64 * MiB);
	ck_assert_uint_eq(fake_figures(&fake, 0).orphaned, 64 * MiB);
	ck_assert_int_eq(declare(s, GiB), GPUMEM_OK);
	count(CONTEXT + 64 * MiB, 1, PID, CONTEXT + 64 * MiB);
	ck_assert_uint_eq(fake_figures(&fake, 0).declared_seen, CONTEXT);
	ck_assert_uint_eq(foreign(), 0);
	count(CONTEXT, 1, PID, CONTEXT);
}
END_TEST

/* The process makes what it declared while chunks of it are destroyed: it is charged once. */
START_TEST(declared_memory_that_is_made_is_no_orphaned_mapping)
{
	info.policy.pooling = false;
	gm_core_set_policy(fake.core, 0, &info.policy);
	count(CONTEXT, 1, PID, CONTEXT);
	gm_lease_return(s, fake_lease(&fake, s, 0, 64 * MiB));
	ck_assert_int_eq(declare(s, 64 * MiB), GPUMEM_OK);
	/* By this count, its context covers what it declared, and nothing of that is made yet. */
	count(CONTEXT + 64 * MiB, 1, PID, CONTEXT);
	ck_assert_uint_eq(fake_figures(&fake, 0).declared_seen, 64 * MiB);
	fake_core_run(&fake);
	count(CONTEXT + 64 * MiB, 1, PID, CONTEXT + 64 * MiB);
	ck_assert_uint_eq(fake_figures(&fake, 0).orphaned, 0);
	ck_assert_uint_eq(gm_session_held(s, 0), 64 * MiB);

	/* All of it is there now. What comes with the next chunk is owed. */
	gm_lease_return(s, fake_lease(&fake, s, 0, 64 * MiB));
	fake_core_run(&fake);
	count(CONTEXT + 128 * MiB, 1, PID, CONTEXT + 128 * MiB);
	ck_assert_uint_eq(fake_figures(&fake, 0).orphaned, 64 * MiB);
	ck_assert_uint_eq(fake_figures(&fake, 0).declared_seen, 64 * MiB);
	count(CONTEXT + 64 * MiB, 1, PID, CONTEXT + 64 * MiB);
	ck_assert_uint_eq(fake_figures(&fake, 0).orphaned, 0);
}
END_TEST

/* Of two sessions, one made its memory before the other declared. */
START_TEST(sessions_of_a_process_expect_only_what_is_not_made)
{
	struct gm_session *second = join(PID, 7);
	info.policy.pooling = false;
	gm_core_set_policy(fake.core, 0, &info.policy);
	count(CONTEXT, 1, PID, CONTEXT);
	ck_assert_int_eq(declare(s, 128 * MiB), GPUMEM_OK);
	count(CONTEXT + 128 * MiB, 1, PID, CONTEXT + 128 * MiB);
	ck_assert_int_eq(declare(second, 32 * MiB), GPUMEM_OK);
	gm_lease_return(s, fake_lease(&fake, s, 0, 64 * MiB));
	fake_core_run(&fake);
	count(CONTEXT + 224 * MiB, 1, PID, CONTEXT + 224 * MiB);
	ck_assert_uint_eq(fake_figures(&fake, 0).orphaned, 64 * MiB);
	count(CONTEXT + 160 * MiB, 1, PID, CONTEXT + 160 * MiB);
	ck_assert_uint_eq(fake_figures(&fake, 0).orphaned, 0);
}
END_TEST

/* ---- restart */

static struct gm_session *join_kept(void)
{
	uint8_t token[GM_TOKEN_BYTES];
	memset(info.uuid, 1, sizeof(info.uuid));
	fake_core_deinit(&fake);
	fake_core_init_keeping(&fake, &ledger);
	fake_core_add(&fake, &info);
	gm_core_end_adoption(fake.core);
	return fake_ledger_join(&fake, 100, "a.service", token);
}

START_TEST(the_next_daemon_knows_what_was_declared)
{
	struct gm_adopt_result result;
	s = join_kept();
	ck_assert_int_eq(declare(s, GiB), GPUMEM_OK);
	gm_declare_less(s, 0, 512 * MiB);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_DECLARED), 1);
	fake_ledger_restart(&fake, &info, 1, true, &result);
	ck_assert_uint_eq(result.adopted[GM_RECORD_DECLARED], 1);
	s = fake_next_session(&fake, NULL);
	ck_assert_uint_eq(gm_declare_sum(s, 0), 512 * MiB);
	ck_assert_uint_eq(gm_session_held(s, 0), 512 * MiB);
	ck_assert_uint_eq(fake_figures(&fake, 0).available, TOTAL - 512 * MiB);

	/* A limit that is lower by now takes nothing away, but the session gets no more. */
	limit(100, 256 * MiB);
	gm_declare_less(s, 0, 0);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_DECLARED), 0);
}
END_TEST

START_TEST(the_record_goes_with_the_session)
{
	s = join_kept();
	ck_assert_int_eq(declare(s, GiB), GPUMEM_OK);
	fake_ledger_leave(&fake, s, true);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_DECLARED), 0);
	ck_assert_uint_eq(fake_figures(&fake, 0).declared, 0);
}
END_TEST

START_TEST(without_room_for_its_record_nothing_is_declared)
{
	s = join_kept();
	ledger.full = true;
	ck_assert_int_eq(declare(s, GiB), GPUMEM_E_HOST_MEMORY);
	ck_assert_uint_eq(gm_session_held(s, 0), 0);
	ledger.full = false;
	ck_assert_int_eq(declare(s, GiB), GPUMEM_OK);
	ledger.full = true;
	ck_assert_int_eq(declare(s, GiB), GPUMEM_OK);
	ck_assert_uint_eq(gm_declare_less(s, 0, MiB), MiB);
	ledger.full = false;
}
END_TEST

START_TEST(a_damaged_record_charges_nobody_else)
{
	struct gm_adopt_result result;
	s = join_kept();
	ck_assert_int_eq(declare(s, GiB), GPUMEM_OK);
	struct gm_record_declared *record =
		(void *)fake_ledger_find(&ledger, GM_RECORD_DECLARED, 0)->bytes;
	record->head.uid++;
	fake_ledger_restart(&fake, &info, 1, true, &result);
	ck_assert_uint_eq(result.damaged[GM_RECORD_DECLARED], 1);
	ck_assert_uint_eq(fake_figures(&fake, 0).declared, 0);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_DECLARED), 0);
}
END_TEST

START_TEST(a_record_of_a_device_twice_or_beyond_reason_counts_once_or_not_at_all)
{
	struct gm_adopt_result result;
	s = join_kept();
	ck_assert_int_eq(declare(s, GiB), GPUMEM_OK);
	struct gm_record_declared *record =
		(void *)fake_ledger_find(&ledger, GM_RECORD_DECLARED, 0)->bytes;
	record->n_devices = 3;
	record->devices[1] = record->devices[2] = record->devices[0];
	record->devices[2].device += 2;
	record->devices[0].bytes = UINT64_MAX;
	fake_ledger_restart(&fake, &info, 1, true, &result);
	ck_assert_uint_eq(fake_figures(&fake, 0).declared, GiB);
	record = (void *)fake_ledger_find(&ledger, GM_RECORD_DECLARED, 0)->bytes;
	record->n_devices = GM_BOUND_DEVICES + 1;
	fake_ledger_restart(&fake, &info, 1, true, &result);
	ck_assert_uint_eq(result.damaged[GM_RECORD_DECLARED], 1);
	ck_assert_uint_eq(fake_figures(&fake, 0).declared, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("declare");
	TCase *tc = tcase_create("declare");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, declared_memory_is_charged_like_leased_memory_and_is_not_created);
	tcase_add_test(tc, a_limit_refuses_before_anything_is_charged);
	tcase_add_test(tc, nobody_declares_more_than_the_device_has);
	tcase_add_test(tc, the_pool_makes_room_before_the_answer);
	tcase_add_test(tc, a_creation_that_nobody_wants_any_more_ends_before_the_answer);
	tcase_add_test(tc, a_creation_that_fails_makes_room_too);
	tcase_add_test(
		tc, a_creation_that_begins_later_and_fails_makes_room_for_later_declarations_alone);
	tcase_add_test(tc, a_declaration_that_fits_beside_what_is_destroyed_does_not_wait);
	tcase_add_test(tc, what_is_doomed_later_makes_no_declaration_wait_longer);
	tcase_add_test(tc, what_takes_the_place_of_a_cancelled_creation_takes_no_declared_room);
	tcase_add_test(tc, a_declaration_that_waits_for_room_can_be_cancelled);
	tcase_add_test(tc, a_declaration_waits_its_turn_and_gets_what_others_return);
	tcase_add_test(tc, a_client_is_not_asked_for_what_it_declared);
	tcase_add_test(tc, a_quarantined_session_keeps_what_it_declared_and_a_dead_one_does_not);
	tcase_add_test(tc, what_the_driver_counts_for_the_process_is_not_foreign_too);
	tcase_add_test(tc, two_sessions_of_a_process_do_not_hide_the_same_bytes);
	tcase_add_test(tc, a_lie_makes_no_room);
	tcase_add_test(tc, without_a_count_declared_memory_is_foreign_as_well);
	tcase_add_test(tc, an_orphaned_mapping_and_a_declaration_do_not_hide_the_same_bytes);
	tcase_add_test(tc, declared_memory_that_is_made_is_no_orphaned_mapping);
	tcase_add_test(tc, sessions_of_a_process_expect_only_what_is_not_made);
	tcase_add_test(tc, the_next_daemon_knows_what_was_declared);
	tcase_add_test(tc, the_record_goes_with_the_session);
	tcase_add_test(tc, without_room_for_its_record_nothing_is_declared);
	tcase_add_test(tc, a_damaged_record_charges_nobody_else);
	tcase_add_test(tc, a_record_of_a_device_twice_or_beyond_reason_counts_once_or_not_at_all);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
