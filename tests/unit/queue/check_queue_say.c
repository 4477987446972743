/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/queue/queue_say.c: which requests are reported that fail although there is memory for them. */
#include <errno.h>
#include <string.h>

#include "common/bounds.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"
#include "tests/unit/failing_malloc.h"

#define SECOND UINT64_C(1000000000)

static struct fake_core fake;
static struct gm_session *s;
static struct fake_request q;
static uint32_t d;

static void setup(void)
{
	struct gm_core_device_info info = fake_info(64 * GiB);
	fake_core_init_asking(&fake);
	d = fake_core_add(&fake, &info);
	s = fake_session(&fake, 1, 1000);
}

static void teardown(void)
{
	fake_core_check(&fake, d);
	fake_core_deinit(&fake);
}

/* One refusal was reported, in these words after "refused: ". */
static void require_told(gpumem_status status, const char *words)
{
	const struct fake_event *told = fake_told(&fake, GM_EVENT_REFUSED);

	ck_assert_uint_eq(q.ended, 1);
	ck_assert_int_eq(q.status, status);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_REFUSED), 1);
	ck_assert_msg(strncmp(told->text, "refused: ", 9) == 0 && strstr(told->text, words),
		"\"%s\" does not say %s", told->text, words);
	ck_assert_str_eq(told->text + 9, q.detail);
	ck_assert_uint_eq(told->session, gm_session_id(s));
	ck_assert_uint_eq(told->event.asked, q.r.bytes);
	ck_assert_int_eq(told->event.status, status);
}

START_TEST(a_failure_of_the_backend_is_reported)
{
	static const struct {
		int result;
		gpumem_status status;
		const char *words;
	} ways[] = {
		{-EIO, GPUMEM_E_SYSTEM, "device 0 could not make a chunk of 1.0G"},
		{-EMFILE, GPUMEM_E_LIMIT, "the daemon has no file descriptors left"},
		{-EXFULL, GPUMEM_E_LIMIT, "the keeper has no room"},
		{-EOPNOTSUPP, GPUMEM_E_UNSUPPORTED, "its driver refused"},
		{-EDQUOT, GPUMEM_E_LIMIT, "no ipc block can be made"},
	};
	fake_ask(&fake, &q, s, d, GiB, GM_TRANSPORT_AUTO);
	fake_core_complete(&fake, 0, ways[_i].result);
	require_told(ways[_i].status, ways[_i].words);
}
END_TEST

START_TEST(a_request_that_waited_before_the_backend_failed_is_reported_at_the_end)
{
	struct gm_session *other = fake_session(&fake, 2, 2000);
	struct gm_lease *lease = fake_lease(&fake, other, d, 64 * GiB);
	fake_wait(&fake, &q, s, d, GiB, SECOND);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_QUEUED), 1);
	gm_lease_return(other, lease);
	while (fake_core_count(&fake, true) > 0) {
		fake_core_complete(&fake, 0, 0);
		fake_pass(&fake, 0);
	}
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_GRANTED), 1);
	fake_core_complete(&fake, 0, -EIO);
	require_told(GPUMEM_E_SYSTEM, "device 0 could not make a chunk");
}
END_TEST

START_TEST(a_daemon_without_host_memory_is_reported)
{
	failing_malloc_arm(1);
	fake_ask(&fake, &q, s, d, GiB, GM_TRANSPORT_AUTO);
	ck_assert(failing_malloc_fired());
	require_told(GPUMEM_E_HOST_MEMORY, "the daemon has no memory for another lease");
}
END_TEST

START_TEST(a_client_with_too_many_leases_is_reported)
{
	for (int i = 0; i < GM_BOUND_LEASES_PER_CLIENT; i++)
		fake_lease(&fake, s, d, 2 * MiB);
	fake_ask(&fake, &q, s, d, 2 * MiB, GM_TRANSPORT_AUTO);
	require_told(GPUMEM_E_LIMIT, "which is the most");
}
END_TEST

/* What follows a refused request counts as one with it. */
START_TEST(only_the_first_of_several_requests_is_reported)
{
	fake_ask(&fake, &q, s, d, GiB, GM_TRANSPORT_AUTO);
	q.r.again = true;
	fake_core_complete(&fake, 0, -EIO);
	ck_assert_int_eq(q.status, GPUMEM_E_SYSTEM);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_REFUSED), 0);
}
END_TEST

/* A client that takes host memory instead is refused nothing, unless the device fails. */
START_TEST(no_refusal_is_reported_where_host_memory_will_do)
{
	struct gm_core_counters counters;

	fake_lease(&fake, fake_session(&fake, 2, 2000), d, 64 * GiB);
	fake.host_will_do = true;
	fake_ask(&fake, &q, s, d, GiB, GM_TRANSPORT_AUTO);
	fake_pass(&fake, 10 * SECOND);
	ck_assert_int_eq(q.status, GPUMEM_E_NO_MEMORY);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_REFUSED), 0);

	fake_wait(&fake, &q, s, d, GiB, SECOND);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_QUEUED), 1);
	fake_pass(&fake, 2 * SECOND);
	ck_assert_int_eq(q.status, GPUMEM_E_TIMEOUT);
	ck_assert_uint_eq(fake_count_told(&fake, GM_EVENT_REFUSED), 0);
	const struct fake_event *told = fake_told(&fake, GM_EVENT_CANCELLED);
	ck_assert_msg(strstr(told->text, "waits no longer, as host memory will do: waited 1"), "%s",
		told->text);
	gm_core_counters(fake.core, &counters);
	ck_assert_uint_eq(counters.requests, 3);
	ck_assert_uint_eq(counters.refusals, 0);
}
END_TEST

START_TEST(a_device_that_fails_is_reported_although_host_memory_would_do)
{
	fake.host_will_do = true;
	fake_ask(&fake, &q, s, d, GiB, GM_TRANSPORT_AUTO);
	fake_core_complete(&fake, 0, -EIO);
	require_told(GPUMEM_E_SYSTEM, "device 0 could not make a chunk");
}
END_TEST

START_TEST(what_is_taken_back_or_wrong_is_not_reported)
{
	fake_ask(&fake, &q, s, d, GiB, GM_TRANSPORT_AUTO);
	gm_core_cancel(fake.core, &q.r);
	fake_core_run(&fake);
	fake_ask(&fake, &q, s, 77, GiB, GM_TRANSPORT_AUTO);
	ck_assert_uint_eq(q.ended, 1);
	fake_ask(&fake, &q, s, d, 0, GM_TRANSPORT_AUTO);
	ck_assert_int_eq(q.status, GPUMEM_E_INVALID);
	fake_ask(&fake, &q, s, d, GiB, (enum gm_transport)7);
	ck_assert_int_eq(q.status, GPUMEM_E_INVALID);
	fake_ask(&fake, &q, s, d, GiB, GM_TRANSPORT_IPC);
	ck_assert_int_eq(q.status, GPUMEM_E_UNSUPPORTED);
	ck_assert_uint_eq(fake.n_events, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("queue_say");
	TCase *tcase = tcase_create("queue_say");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, a_failure_of_the_backend_is_reported, 0, 5);
	tcase_add_test(
		tcase, a_request_that_waited_before_the_backend_failed_is_reported_at_the_end);
	tcase_add_test(tcase, a_daemon_without_host_memory_is_reported);
	tcase_add_test(tcase, a_client_with_too_many_leases_is_reported);
	tcase_add_test(tcase, only_the_first_of_several_requests_is_reported);
	tcase_add_test(tcase, no_refusal_is_reported_where_host_memory_will_do);
	tcase_add_test(tcase, a_device_that_fails_is_reported_although_host_memory_would_do);
	tcase_add_test(tcase, what_is_taken_back_or_wrong_is_not_reported);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
