/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that waits for the device: when it goes, and when to look again. */
#include "client/device/leaving.h"

#include <check.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/map/map.h"
#include "tests/tap.h"

static struct gpumem_session session = {.lock = PTHREAD_MUTEX_INITIALIZER};
static bool finished;      /* whether the device has finished */
static uint64_t next_seen; /* when another thread would look again while one looks */

static int record(void *backend, struct gm_map_event **ret_event)
{
	static char event;
	*ret_event = (struct gm_map_event *)&event;
	return 0;
}

static int passed(void *backend, struct gm_map_event *event)
{
	next_seen = gm_leaving_next(&session, 1);
	return finished;
}

static bool fits(const struct gm_leaver *leaver, const void *ctx)
{
	return leaver == ctx;
}

static void forget(void *backend, struct gm_map_event *event)
{
}

static const struct gm_map_ops ops = {.record = record, .passed = passed, .forget = forget};
static struct gm_session_device device;

static void set_up(void)
{
	finished = false;
	next_seen = 0;
	session.leaving = NULL;
	session.n_leaving = 0;
	session.wake = eventfd(0, EFD_CLOEXEC);
	ck_assert_int_ge(session.wake, 0);
	atomic_store(&device.map, &ops);
}

static void tear_down(void)
{
	close(session.wake);
}

START_TEST(what_the_device_has_finished_with_is_returned_once)
{
	struct gm_leaver leaver = {0};
	ck_assert_uint_eq(gm_leaving_next(&session, 1), UINT64_MAX);
	gm_leaving_add(&session, &leaver, &device);
	ck_assert_ptr_null(gm_leaving_take(&session));
	ck_assert_uint_ne(gm_leaving_next(&session, 1), UINT64_MAX);
	finished = true;
	ck_assert_ptr_eq(gm_leaving_take(&session), &leaver);
	ck_assert_ptr_null(leaver.next);
	ck_assert_ptr_null(gm_leaving_take(&session));
	ck_assert_uint_eq(gm_leaving_next(&session, 1), UINT64_MAX);
}
END_TEST

/* The library's thread asks when to look while a thread of the program looks. If it heard that nothing
 * is leaving, nobody would look again. */
START_TEST(while_a_thread_looks_the_others_know_that_something_is_leaving)
{
	struct gm_leaver leaver = {0};
	gm_leaving_add(&session, &leaver, &device);
	ck_assert_ptr_null(gm_leaving_take(&session));
	ck_assert_uint_ne(next_seen, 0);
	ck_assert_uint_ne(next_seen, UINT64_MAX);
}
END_TEST

START_TEST(at_the_end_of_the_session_all_are_returned)
{
	struct gm_leaver leavers[2] = {0};
	gm_leaving_add(&session, &leavers[0], &device);
	gm_leaving_add(&session, &leavers[1], &device);
	finished = true;
	struct gm_leaver *list = gm_leaving_await(&session);
	ck_assert_ptr_eq(list, &leavers[1]);
	ck_assert_ptr_eq(list->next, &leavers[0]);
	ck_assert_uint_eq(gm_leaving_next(&session, 1), UINT64_MAX);
}
END_TEST

START_TEST(patient_ones_stay_until_nothing_is_launched)
{
	struct gm_leaver leavers[2] = {{.patient = true}, {.patient = true}};
	gm_leaving_add(&session, &leavers[0], &device);
	gm_leaving_add(&session, &leavers[1], &device);
	ck_assert_ptr_null(gm_leaving_take(&session));
	ck_assert_uint_ne(gm_leaving_next(&session, 1), UINT64_MAX);
	ck_assert_ptr_null(gm_leaving_take_back(&session, fits, NULL));
	ck_assert_ptr_eq(gm_leaving_take_back(&session, fits, &leavers[0]), &leavers[0]);
	ck_assert_ptr_null(gm_leaving_take_back(&session, fits, &leavers[0]));
	finished = true;
	ck_assert_ptr_eq(gm_leaving_take(&session), &leavers[1]);
	ck_assert_ptr_null(leavers[1].next);
	ck_assert_uint_eq(gm_leaving_next(&session, 1), UINT64_MAX);
}
END_TEST

START_TEST(nobody_waits_for_the_device_because_of_patient_ones)
{
	struct gm_leaver leavers[2] = {{.patient = true}, {.patient = true}};
	gm_leaving_add(&session, &leavers[0], &device);
	ck_assert_ptr_eq(gm_leaving_take_patient(&session), &leavers[0]);
	ck_assert_uint_eq(gm_leaving_next(&session, 1), UINT64_MAX);
	gm_leaving_add(&session, &leavers[1], &device);
	ck_assert_ptr_eq(gm_leaving_await(&session), &leavers[1]);
	ck_assert_uint_eq(gm_leaving_next(&session, 1), UINT64_MAX);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("leaving");
	TCase *tc = tcase_create("leaving");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, what_the_device_has_finished_with_is_returned_once);
	tcase_add_test(tc, while_a_thread_looks_the_others_know_that_something_is_leaving);
	tcase_add_test(tc, at_the_end_of_the_session_all_are_returned);
	tcase_add_test(tc, patient_ones_stay_until_nothing_is_launched);
	tcase_add_test(tc, nobody_waits_for_the_device_because_of_patient_ones);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
