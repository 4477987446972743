/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/device/device_drain.c, through the core: who gets nothing, what goes, and what outlives the daemon. */
#include <errno.h>
#include <string.h>

#include "tests/tap.h"
#include "tests/unit/core/fake_ledger.h"

#define DEVICES 2
#define SECOND  UINT64_C(1000000000)
#define ADMIN   4711

static struct fake_core fake;
static struct fake_ledger ledger;
static struct gm_core_device_info devices[DEVICES];
static struct gm_adopt_result result;
static uint8_t token[GM_TOKEN_BYTES];
static struct gm_session *s;

static void setup(void)
{
	memset(&ledger, 0, sizeof(ledger));
	for (uint32_t d = 0; d < DEVICES; d++) {
		devices[d] = fake_info(16 * GiB);
		fake_no_levels(&devices[d].policy);
		memset(devices[d].uuid, 1 + (int)d, sizeof(devices[d].uuid));
	}
	devices[0].policy.reserve = 64 * MiB;
	fake_core_init_keeping(&fake, &ledger);
	for (uint32_t d = 0; d < DEVICES; d++)
		fake_core_add(&fake, &devices[d]);
	gm_core_end_adoption(fake.core);
	fake_core_run(&fake);
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

static void drain(uint32_t device)
{
	ck_assert_int_eq(gm_core_drain(fake.core, device, ADMIN), 0);
}

static void refused(const struct fake_request *q)
{
	ck_assert_uint_eq(q->ended, 1);
	ck_assert_int_eq(q->status, GPUMEM_E_NO_MEMORY);
	ck_assert_msg(strstr(q->detail, "device 0 is being drained by user 4711"), "%s", q->detail);
	ck_assert_msg(strstr(q->detail, "; use another device, or see "), "%s", q->detail);
}

START_TEST(nobody_gets_new_memory_on_a_device_that_is_drained)
{
	struct fake_request q = {0}, grow = {0}, forever = {0};
	struct gm_lease *lease = fake_lease(&fake, s, 0, 4 * MiB);

	drain(0);
	ck_assert_uint_eq(fake_figures(&fake, 0).available, 0);
	ck_assert_uint_eq(gm_session_room(s, 0), 0);
	fake_ask(&fake, &q, s, 0, 2 * MiB, GM_TRANSPORT_AUTO);
	refused(&q);
	fake_grow(&fake, &grow, s, lease, 2 * MiB);
	refused(&grow);
	fake_wait(&fake, &forever, s, 0, 2 * MiB, GM_WAIT_FOREVER);
	refused(&forever);

	/* What it has stays its own, and other devices go on. */
	ck_assert_uint_eq(fake_figures(&fake, 0).leased, 4 * MiB);
	fake_lease(&fake, s, 1, 2 * MiB);

	ck_assert(gm_core_undrain(fake.core, 0));
	ck_assert(!gm_core_undrain(fake.core, 0));
	fake_lease(&fake, s, 0, 2 * MiB);
	ck_assert_uint_gt(fake_figures(&fake, 0).available, 0);
}
END_TEST

START_TEST(requests_that_wait_are_refused_when_the_drain_begins)
{
	static struct fake_request timed, forever, other;
	fake_lease(&fake, s, 0, 16 * GiB);
	fake_lease(&fake, s, 1, 16 * GiB);
	fake_wait(&fake, &timed, s, 0, GiB, 10 * SECOND);
	fake_wait(&fake, &forever, s, 0, GiB, GM_WAIT_FOREVER);
	fake_wait(&fake, &other, s, 1, GiB, 10 * SECOND);
	ck_assert_uint_eq(fake_queue_length(&fake, 0), 2);

	drain(0);
	refused(&timed);
	refused(&forever);
	ck_assert_uint_eq(fake_queue_length(&fake, 0), 0);
	ck_assert_uint_eq(other.ended, 0);
}
END_TEST

START_TEST(a_request_whose_chunks_are_being_made_gets_them)
{
	struct fake_request q = {0};
	fake_ask(&fake, &q, s, 0, GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(q.ended, 0);
	drain(0);
	fake_core_run(&fake);
	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, GPUMEM_OK);
}
END_TEST

START_TEST(a_request_that_the_device_denies_memory_does_not_wait_for_the_end_of_the_drain)
{
	struct fake_request q = {0};
	fake_wait(&fake, &q, s, 0, GiB, GM_WAIT_FOREVER);
	drain(0);
	while (q.ended == 0) {
		size_t i = 0;
		ck_assert_uint_gt(fake.n_jobs, 0);
		while (i + 1 < fake.n_jobs && fake.jobs[i].destroy)
			i++;
		fake_core_complete(&fake, i, -ENOMEM);
	}
	refused(&q);
}
END_TEST

/* A device whose pool has more chunks than go in one slice. */
START_TEST(the_pool_goes_in_slices_and_what_comes_back_follows)
{
	enum { MANY = 5000 };
	static struct gm_lease *leases[MANY];
	for (unsigned i = 0; i < MANY; i++)
		leases[i] = fake_lease(&fake, s, 0, 2 * MiB);
	struct gm_lease *held = fake_lease(&fake, s, 0, 2 * MiB);
	for (unsigned i = 0; i < MANY; i++)
		gm_lease_return(s, leases[i]);
	fake_core_run(&fake);
	ck_assert_uint_ge(fake_pool(&fake, 0).pooled, MANY * 2 * MiB);

	drain(0);
	ck_assert_uint_gt(fake_pool(&fake, 0).pooled, 0);
	while (gm_core_tick(fake.core) <= fake.now)
		continue;
	ck_assert_uint_eq(fake_pool(&fake, 0).pooled, 0);
	ck_assert_uint_gt(fake_figures(&fake, 0).dying, 0);

	gm_lease_return(s, held);
	ck_assert_uint_eq(fake_pool(&fake, 0).pooled, 0);
	fake_core_run(&fake);
	fake_pass(&fake, 100 * SECOND);
	fake_core_run(&fake);
	struct gm_device_figures f = fake_figures(&fake, 0);
	ck_assert_uint_eq(f.created + f.dying + f.admitted, 0);
	ck_assert_uint_eq(fake.backend_bytes[0], 0);

	/* The reserve comes back with the end of the drain. */
	gm_core_undrain(fake.core, 0);
	fake_core_run(&fake);
	ck_assert_uint_eq(fake_pool(&fake, 0).pooled, 64 * MiB);
}
END_TEST

START_TEST(a_drain_outlives_the_daemon_until_it_is_undone)
{
	uint64_t id = gm_session_id(s);
	uint8_t next[GM_TOKEN_BYTES];
	struct fake_request q = {0};

	fake_lease(&fake, s, 0, 4 * MiB);
	fake.now += SECOND;
	drain(0);
	uint64_t since = fake.now;
	fake.now += SECOND;
	/* Once more, by somebody else: the first one counts. */
	ck_assert_int_eq(gm_core_drain(fake.core, 0, ADMIN + 1), 0);
	fake_ledger_restart(&fake, devices, DEVICES, false, &result);
	fake_core_run(&fake);

	struct gm_device_figures f = fake_figures(&fake, 0);
	ck_assert(f.drain.on && !fake_figures(&fake, 1).drain.on);
	ck_assert_uint_eq(f.drain.uid, ADMIN);
	ck_assert_uint_eq(f.drain.since_ns, since);
	ck_assert_uint_eq(f.quarantined, 4 * MiB);
	ck_assert_uint_eq(f.pooled, 0);
	ck_assert_uint_eq(result.adopted[GM_RECORD_DRAIN], 1);
	s = gm_core_find_session(fake.core, id);
	ck_assert_int_eq(gm_session_resume(s, token, gm_session_info(s)->user, next), 0);
	fake_ask(&fake, &q, s, 0, 2 * MiB, GM_TRANSPORT_AUTO);
	refused(&q);

	ck_assert(gm_core_undrain(fake.core, 0));
	fake_ledger_restart(&fake, devices, DEVICES, false, &result);
	ck_assert(!fake_figures(&fake, 0).drain.on);
	ck_assert_uint_eq(result.adopted[GM_RECORD_DRAIN], 0);
}
END_TEST

START_TEST(the_drain_of_a_device_that_is_gone_is_forgotten)
{
	drain(1);
	fake_ledger_restart(&fake, devices, 1, false, &result);
	ck_assert(!fake_figures(&fake, 0).drain.on);
	ck_assert_uint_eq(fake_ledger_count(&ledger, GM_RECORD_DRAIN), 0);
	fake_lease(&fake, fake_ledger_join(&fake, 100, NULL, token), 0, 2 * MiB);
}
END_TEST

START_TEST(a_drain_that_cannot_be_recorded_changes_nothing)
{
	ledger.full = true;
	ck_assert_int_lt(gm_core_drain(fake.core, 0, ADMIN), 0);
	ck_assert(!fake_figures(&fake, 0).drain.on);
	ck_assert_uint_eq(fake_pool(&fake, 0).pooled, 64 * MiB);
	ledger.full = false;
	fake_lease(&fake, s, 0, 2 * MiB);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("drain");
	TCase *tcase = tcase_create("drain");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, nobody_gets_new_memory_on_a_device_that_is_drained);
	tcase_add_test(tcase, requests_that_wait_are_refused_when_the_drain_begins);
	tcase_add_test(tcase, a_request_whose_chunks_are_being_made_gets_them);
	tcase_add_test(tcase,
		a_request_that_the_device_denies_memory_does_not_wait_for_the_end_of_the_drain);
	tcase_add_test(tcase, the_pool_goes_in_slices_and_what_comes_back_follows);
	tcase_add_test(tcase, a_drain_outlives_the_daemon_until_it_is_undone);
	tcase_add_test(tcase, the_drain_of_a_device_that_is_gone_is_forgotten);
	tcase_add_test(tcase, a_drain_that_cannot_be_recorded_changes_nothing);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
