/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Managed memory and declarations, through the library: they are charged before anything is made, they
 * survive restarts of the daemon, they end with the process, and the driver's figures of them do not
 * count as memory outside of the broker.
 */

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpumem/gpumem_managed.h"
#include "tests/end_keeper.h"
#include "tests/integration/client_fixture.h"
#include "tests/integration/refused.h"
#include "tests/tap.h"

static bool on_fake(void)
{
	const char *backend = getenv("GPUMEM_TEST_BACKEND");
	return backend && strcmp(backend, "cuda") == 0;
}

/* Of a daemon that may be away. */
static uint64_t charged(void)
{
	struct gm_figures f = {0};
	return gm_figures_try(&daemon_, &f) ? f.declared : UINT64_MAX;
}

static uint64_t declared(gpumem_session *s)
{
	uint64_t bytes;
	OK(gpumem_declared(s, 0, &bytes));
	return bytes;
}

static gpumem_managed *make(uint64_t bytes)
{
	gpumem_managed *managed = NULL;
	OK(gpumem_managed_create(session, 0, bytes, NULL, &managed));
	return managed;
}

/* ---- its life */

START_TEST(managed_memory_is_charged_in_whole_chunks_and_can_be_used)
{
	gpumem_managed *managed = make(5 * MIB + 3);
	GM_REQUIRE_EQ(gpumem_managed_size(managed), 5 * MIB + 3);
	GM_REQUIRE_EQ(gpumem_managed_device(managed), 0);
	GM_REQUIRE_EQ(declared(session), 6 * MIB);
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.declared, 6 * MIB);
	GM_REQUIRE_EQ(f.leased + f.quarantined + f.pooled + f.chunks, 0);

	unsigned char *p = gpumem_managed_ptr(managed);
	memset(p, 0x5a, 5 * MIB + 3);
	OK(gpumem_managed_prefetch(managed, 3, 5 * MIB, GPUMEM_MANAGED_ON_DEVICE, NULL));
	for (int advice = 1; advice <= 6; advice++)
		OK(gpumem_managed_advise(
			managed, 0, MIB, (gpumem_managed_advice)advice, GPUMEM_MANAGED_ON_HOST));
	OK(gpumem_managed_prefetch(managed, 0, 5 * MIB + 3, GPUMEM_MANAGED_ON_HOST, NULL));
	OK(gpumem_managed_prefetch(managed, 5 * MIB + 3, 0, GPUMEM_MANAGED_ON_HOST, NULL));
	GM_REQUIRE(p[0] == 0x5a && memcmp(p, p + 1, 5 * MIB + 2) == 0);
	gpumem_managed_destroy(managed);
	gpumem_managed_destroy(NULL);
	GM_UNTIL(charged() == 0);
	GM_REQUIRE_EQ(declared(session), 0);
}
END_TEST

START_TEST(wrong_arguments_are_named)
{
	gpumem_managed *managed = NULL;
	uint64_t bytes;
	REFUSED(gpumem_managed_create(session, 0, 0, NULL, &managed), GPUMEM_E_INVALID, "bytes");
	REFUSED(gpumem_managed_create(session, 0, SIZE_MAX, NULL, &managed), GPUMEM_E_INVALID,
		"bytes");
	REFUSED(gpumem_managed_create(session, 0, 1, NULL, NULL), GPUMEM_E_INVALID, "ret_managed");
	REFUSED(gpumem_managed_create(session, 77, 1, NULL, &managed), GPUMEM_E_NOT_FOUND, "77");
	gpumem_managed_options none = {0};
	GM_REQUIRE_EQ(gpumem_managed_create(session, 0, 1, &none, &managed), GPUMEM_E_INVALID);
	GM_REQUIRE(!managed);
	GM_REQUIRE(!gpumem_managed_ptr(NULL) && !gpumem_managed_size(NULL));

	managed = make(MIB);
	REFUSED(gpumem_managed_prefetch(NULL, 0, 1, GPUMEM_MANAGED_ON_HOST, NULL), GPUMEM_E_INVALID,
		"managed");
	REFUSED(gpumem_managed_prefetch(managed, 1, MIB, GPUMEM_MANAGED_ON_HOST, NULL),
		GPUMEM_E_INVALID, "not inside");
	REFUSED(gpumem_managed_prefetch(managed, SIZE_MAX, 2, GPUMEM_MANAGED_ON_HOST, NULL),
		GPUMEM_E_INVALID, "not inside");
	REFUSED(gpumem_managed_prefetch(managed, 0, 1, (gpumem_managed_place)2, NULL),
		GPUMEM_E_INVALID, "place");
	REFUSED(gpumem_managed_prefetch(managed, 0, 1, GPUMEM_MANAGED_ON_HOST, GPUMEM_STREAM_ANY),
		GPUMEM_E_INVALID, "stream");
	REFUSED(gpumem_managed_advise(
			managed, 0, 1, (gpumem_managed_advice)0, GPUMEM_MANAGED_ON_HOST),
		GPUMEM_E_INVALID, "advice");
	REFUSED(gpumem_managed_advise(
			managed, 0, 1, (gpumem_managed_advice)7, GPUMEM_MANAGED_ON_HOST),
		GPUMEM_E_INVALID, "advice");
	gpumem_managed_destroy(managed);

	REFUSED(gpumem_declare(session, 0, 0, 0), GPUMEM_E_INVALID, "bytes");
	REFUSED(gpumem_declare(session, 77, 1, 0), GPUMEM_E_NOT_FOUND, "77");
	REFUSED(gpumem_declared(session, 0, NULL), GPUMEM_E_INVALID, "ret_bytes");
	OK(gpumem_declare(session, 0, 5, 0));
	GM_UNTIL(declared(session) == 5);
	REFUSED(gpumem_undeclare(session, 0, 6), GPUMEM_E_INVALID, "has declared 5 bytes");
	OK(gpumem_undeclare(session, 0, 5));
	OK(gpumem_declared(session, 0, &bytes));
	GM_REQUIRE_EQ(bytes, 0);
}
END_TEST

/* The device has 1 GiB. */
START_TEST(what_does_not_fit_is_not_made)
{
	gpumem_managed *managed = NULL;
	gpumem_buffer *buffer = NULL;
	OK(gpumem_buffer_create(session, 0, 768 * MIB, NULL, &buffer));
	REFUSED(gpumem_managed_create(session, 0, 512 * MIB, NULL, &managed), GPUMEM_E_NO_MEMORY,
		"asked for 512.0M");
	GM_REQUIRE_EQ(charged(), 0);
	gpumem_buffer_destroy(buffer);
	managed = make(512 * MIB);
	REFUSED(gpumem_buffer_create(session, 0, 768 * MIB, NULL, &buffer), GPUMEM_E_NO_MEMORY,
		"asked for 768.0M");
	gpumem_managed_destroy(managed);

	/* It waits for what another thread or process gives back, here for the end of the above. */
	gpumem_managed_options options = GPUMEM_MANAGED_OPTIONS_INIT;
	options.wait_ms = 60000;
	OK(gpumem_managed_create(session, 0, 1024 * MIB, &options, &managed));
	options.wait_ms = 1;
	gpumem_managed *second = NULL;
	GM_REQUIRE_EQ(gpumem_managed_create(session, 0, MIB, &options, &second), GPUMEM_E_TIMEOUT);
	gpumem_managed_destroy(managed);
}
END_TEST

START_TEST(a_lease_waits_for_declared_memory_and_the_other_way_round)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer = NULL;
	OK(gpumem_declare(session, 0, 1024 * MIB, 0));
	OK(gpumem_undeclare(session, 0, 1024 * MIB));
	options.wait_ms = 60000;
	OK(gpumem_buffer_create(session, 0, 1024 * MIB, &options, &buffer));
	gpumem_buffer_destroy(buffer);
	OK(gpumem_declare(session, 0, 1024 * MIB, 60000));
	OK(gpumem_undeclare(session, 0, 1024 * MIB));
}
END_TEST

START_TEST(declaring_ten_thousand_times_keeps_nothing_more)
{
	struct gm_figures before;
	OK(gpumem_declare(session, 0, 1, 0));
	gm_figures(&daemon_, &before);
	for (int i = 0; i < 10000; i++)
		OK(gpumem_declare(session, 0, 1, 0));
	GM_REQUIRE_EQ(charged(), 10001);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).records, before.records);
	OK(gpumem_undeclare(session, 0, 10001));
	GM_REQUIRE_EQ(charged(), 0);
	/* What was never given back goes with the session. */
	OK(gpumem_declare(session, 0, 64 * MIB, 0));
	make(8 * MIB);
}
END_TEST

static void *declare_often(void *arg)
{
	gpumem_session *s = arg;
	for (int i = 0; i < 100; i++) {
		gpumem_managed *managed;
		OK(gpumem_managed_create(s, 0, 2 * MIB, NULL, &managed));
		OK(gpumem_declare(s, 0, 7, 0));
		gpumem_managed_destroy(managed);
		OK(gpumem_undeclare(s, 0, 7));
	}
	return NULL;
}

START_TEST(several_threads_do_not_disturb_one_another)
{
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		GM_REQUIRE_EQ(pthread_create(&threads[i], NULL, declare_often, session), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	GM_UNTIL(charged() == 0);
	GM_REQUIRE_EQ(declared(session), 0);
}
END_TEST

START_TEST(a_limit_refuses_before_memory_is_made)
{
	char config[512];
	gpumem_managed *managed = NULL, *first;
	snprintf(config, sizeof(config), "%s[limit uid:%u]\nmax = 64M\n", GM_DAEMON_CONFIG,
		getuid());
	gm_daemon_reload(&daemon_, config);
	first = make(48 * MIB);
	REFUSED(gpumem_managed_create(session, 0, 17 * MIB, NULL, &managed), GPUMEM_E_LIMIT,
		"may hold 64.0M, holds 48.0M");
	GM_REQUIRE(!managed);
	/* A second session of the user does not get around it. */
	gpumem_session *other = join("another");
	GM_REQUIRE_EQ(gpumem_declare(other, 0, 16 * MIB + 1, 0), GPUMEM_E_LIMIT);
	OK(gpumem_declare(other, 0, 16 * MIB, 0));
	GM_REQUIRE_EQ(charged(), 64 * MIB);
	gpumem_disconnect(other);
	GM_UNTIL(charged() == 48 * MIB);
	gpumem_managed_destroy(first);
}
END_TEST

/* ---- clients that know no library */

static gpumem_status raw_declare(
	struct gm_raw *raw, uint32_t device, int how, uint64_t bytes, uint64_t *ret_bytes)
{
	Gm__Wire__Declare body = GM__WIRE__DECLARE__INIT;
	body.device = device;
	body.how = (Gm__Wire__DeclareHow)how;
	body.bytes = bytes;
	body.no_wait = true;
	gpumem_status status = gm_raw_call(raw, GM_RAW_PACKET(DECLARE, declare, &body));
	if (status)
		return status;
	GM_REQUIRE_EQ(raw->packet->body_case, GM__WIRE__PACKET__BODY_DECLARE_REPLY);
	*ret_bytes = raw->packet->declare_reply->bytes;
	return GPUMEM_OK;
}

START_TEST(the_daemon_takes_no_nonsense)
{
	enum { MORE, LESS, EXACTLY, NONSENSE };
	struct gm_raw raw;
	uint64_t bytes = 77;
	gm_raw_join(&raw, &daemon_);
	GM_REQUIRE_EQ(raw_declare(&raw, 0, NONSENSE, 1, &bytes), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(raw_declare(&raw, 9, MORE, 1, &bytes), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE_EQ(raw_declare(&raw, 0, MORE, 0, &bytes), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(raw_declare(&raw, 0, MORE, UINT64_MAX, &bytes), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(raw_declare(&raw, 0, EXACTLY, UINT64_MAX, &bytes), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(raw_declare(&raw, 0, MORE, UINT64_C(1) << 46, &bytes), GPUMEM_E_NO_MEMORY);
	GM_REQUIRE_EQ(bytes, 77);
	OK(raw_declare(&raw, 0, LESS, UINT64_MAX, &bytes));
	GM_REQUIRE_EQ(bytes, 0);
	OK(raw_declare(&raw, 0, MORE, 5 * MIB, &bytes));
	OK(raw_declare(&raw, 0, EXACTLY, 7 * MIB, &bytes));
	GM_REQUIRE_EQ(bytes, 7 * MIB);
	OK(raw_declare(&raw, 0, EXACTLY, 3, &bytes));
	GM_REQUIRE_EQ(bytes, 3);
	OK(raw_declare(&raw, 0, LESS, 2, &bytes));
	GM_REQUIRE_EQ(bytes, 1);
	OK(raw_declare(&raw, 0, LESS, 2, &bytes));
	GM_REQUIRE_EQ(bytes, 0);
	OK(raw_declare(&raw, 0, MORE, MIB, &bytes));
	GM_REQUIRE_EQ(charged(), MIB);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
	GM_UNTIL(charged() == 0);
}
END_TEST

/* ---- restarts */

START_TEST(a_restart_loses_nothing)
{
	gpumem_managed *kept = make(64 * MIB), *freed = make(32 * MIB);
	memset(gpumem_managed_ptr(kept), 0x33, 64 * MIB);
	OK(gpumem_declare(session, 0, 5, 0));
	gm_daemon_kill(&daemon_);
	/* While it is away, memory is freed, and what is made waits. */
	gpumem_managed_destroy(freed);
	OK(gpumem_undeclare(session, 0, 2));
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	OK(gpumem_declare(session, 0, MIB, 0));
	GM_UNTIL(charged() == 65 * MIB + 3);
	GM_REQUIRE_EQ(declared(session), 65 * MIB + 3);

	/* Nothing has to be said for the charge to be there after a restart. */
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_REQUIRE_EQ(charged(), 65 * MIB + 3);
	GM_REQUIRE(*(char *)gpumem_managed_ptr(kept) == 0x33);
	gpumem_managed_destroy(kept);
	OK(gpumem_undeclare(session, 0, MIB + 3));
	GM_UNTIL(charged() == 0);
}
END_TEST

START_TEST(requests_that_a_restart_interrupts_are_charged_once)
{
	pthread_t threads[2];
	for (int i = 0; i < 2; i++)
		GM_REQUIRE_EQ(pthread_create(&threads[i], NULL, declare_often, session), 0);
	/* Not in a thread: the daemon would die with it. */
	for (int i = 0; i < 5; i++) {
		gm_daemon_kill(&daemon_);
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	OK(gpumem_declare(session, 0, 3, 0));
	GM_UNTIL(charged() == 3);
	GM_REQUIRE_EQ(declared(session), 3);
	OK(gpumem_undeclare(session, 0, 3));
}
END_TEST

/* The next daemon knows nothing of the session, and a limit is lower than what it has. */
START_TEST(what_a_daemon_that_forgot_all_refuses_is_asked_for_again)
{
	char config[512], run[128];
	OK(gpumem_declare(session, 0, 48 * MIB, 0));
	snprintf(config, sizeof(config), "%s[limit uid:%u]\nmax = 32M\n", GM_DAEMON_CONFIG,
		getuid());
	gm_daemon_configure(&daemon_, config);
	snprintf(run, sizeof(run), "%.*s", (int)(strrchr(daemon_.socket, '/') - daemon_.socket),
		daemon_.socket);
	pid_t keeper = gm_keeper_in(run);
	GM_REQUIRE(keeper > 0);
	gm_daemon_kill(&daemon_);
	gm_keeper_signal(keeper, SIGKILL);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);

	/* Nothing more is made while what is there is not charged. */
	REFUSED(gpumem_declare(session, 0, MIB, 0), GPUMEM_E_LIMIT, "asked for 49.0M");
	GM_REQUIRE_EQ(charged(), 0);
	GM_REQUIRE_EQ(declared(session), 48 * MIB);
	/* What is given back is what the daemon does not know. */
	OK(gpumem_undeclare(session, 0, 24 * MIB));
	OK(gpumem_declare(session, 0, 4 * MIB, 0));
	GM_REQUIRE_EQ(charged(), 28 * MIB);
	GM_REQUIRE_EQ(declared(session), 28 * MIB);
	OK(gpumem_undeclare(session, 0, 3 * MIB));
	GM_REQUIRE_EQ(charged(), 25 * MIB);
	OK(gpumem_undeclare(session, 0, 25 * MIB));
	GM_REQUIRE_EQ(charged(), 0);
}
END_TEST

static _Atomic int told;

static void *undeclare_one(void *unused)
{
	OK(gpumem_undeclare(session, 0, 1));
	told++;
	return unused;
}

/* One thread tells the daemon, which does not answer. The other one leaves the rest to it. */
START_TEST(no_thread_waits_for_another_one_that_declares_less)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	pthread_t threads[2];
	gpumem_disconnect(session);
	options.timeout_ms = 600000;
	session = join_as(options, "the test");
	OK(gpumem_declare(session, 0, 2, 0));
	told = 0;
	gm_daemon_signal(&daemon_, SIGSTOP);
	for (int i = 0; i < 2; i++)
		GM_REQUIRE_EQ(pthread_create(&threads[i], NULL, undeclare_one, NULL), 0);
	GM_UNTIL(told > 0);
	gm_daemon_signal(&daemon_, SIGCONT);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	GM_UNTIL(charged() == 0);
}
END_TEST

/* ---- several processes; the test itself does not use the driver */

static void set_up_alone(void)
{
	gm_daemon_start(&daemon_, NULL);
}

static void tear_down_alone(void)
{
	gm_figures_await_none(&daemon_);
	gm_daemon_stop(&daemon_);
}

/* Has so much, on the device, and so much else declared. */
struct holding {
	uint64_t managed, also;
};

static void hold(int channel, void *argument)
{
	const struct holding *holding = argument;
	session = join("holder");
	gpumem_managed *managed = make(holding->managed);
	OK(gpumem_managed_prefetch(managed, 0, holding->managed, GPUMEM_MANAGED_ON_DEVICE, NULL));
	if (holding->also)
		OK(gpumem_declare(session, 0, holding->also, 0));
	gm_text_say_word(channel, 'h');
	gm_hear_word(channel, 'e');
	gpumem_disconnect(session);
}

static void start_holder(struct gm_worker *worker, struct holding *holding)
{
	gm_worker_start(worker, hold, holding);
	gm_hear_word(worker->channel, 'h');
}

static bool figures_are(uint64_t all, uint64_t seen, uint64_t foreign)
{
	struct gm_figures f = gm_figures_now(&daemon_);
	return f.declared == all && f.declared_seen == seen && f.foreign == foreign &&
	       f.free == f.total - seen - foreign;
}

START_TEST(what_processes_have_on_the_device_is_counted_once)
{
	struct holding a = {.managed = 64 * MIB}, b = {.managed = 32 * MIB, .also = 100 * MIB};
	struct gm_worker one, two;
	start_holder(&one, &a);
	start_holder(&two, &b);
	GM_REQUIRE_EQ(charged(), 196 * MIB);
	/* Of the second one, the driver counts less than was declared. */
	uint64_t seen = on_fake() ? 96 * MIB : 0;
	GM_UNTIL(figures_are(196 * MIB, seen, 0));

	/* The daemon that comes next has to find out again. */
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_REQUIRE_EQ(charged(), 196 * MIB);
	GM_UNTIL(figures_are(196 * MIB, seen, 0));

	gm_worker_kill(&one);
	GM_UNTIL(figures_are(132 * MIB, on_fake() ? 32 * MIB : 0, 0));
	gm_text_say_word(two.channel, 'e');
	gm_worker_join(&two);
	GM_UNTIL(figures_are(0, 0, 0));
}
END_TEST

static void keep_declaring(int channel, void *argument)
{
	session = join("declarer");
	gm_text_say_word(channel, 'h');
	for (;;) {
		gpumem_managed *managed = make(2 * MIB);
		OK(gpumem_declare(session, 0, 3, 0));
		gpumem_managed_destroy(managed);
		OK(gpumem_undeclare(session, 0, 2));
	}
}

START_TEST(a_process_that_is_killed_at_any_moment_leaves_no_charge)
{
	for (int i = 0; i < 10; i++) {
		struct gm_worker worker;
		gm_worker_start(&worker, keep_declaring, NULL);
		gm_hear_word(worker.channel, 'h');
		GM_UNTIL(charged() > (uint64_t)(3 * i));
		gm_worker_kill(&worker);
		gm_figures_await_none(&daemon_);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client managed");
	TCase *tc = tcase_create("one process");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, managed_memory_is_charged_in_whole_chunks_and_can_be_used);
	tcase_add_test(tc, wrong_arguments_are_named);
	tcase_add_test(tc, what_does_not_fit_is_not_made);
	tcase_add_test(tc, a_lease_waits_for_declared_memory_and_the_other_way_round);
	tcase_add_test(tc, declaring_ten_thousand_times_keeps_nothing_more);
	tcase_add_test(tc, several_threads_do_not_disturb_one_another);
	tcase_add_test(tc, a_limit_refuses_before_memory_is_made);
	tcase_add_test(tc, the_daemon_takes_no_nonsense);
	tcase_add_test(tc, a_restart_loses_nothing);
	tcase_add_test(tc, requests_that_a_restart_interrupts_are_charged_once);
	tcase_add_test(tc, what_a_daemon_that_forgot_all_refuses_is_asked_for_again);
	tcase_add_test(tc, no_thread_waits_for_another_one_that_declares_less);
	suite_add_tcase(suite, tc);

	tc = tcase_create("several processes");
	tcase_add_checked_fixture(tc, set_up_alone, tear_down_alone);
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, what_processes_have_on_the_device_is_counted_once);
	tcase_add_test(tc, a_process_that_is_killed_at_any_moment_leaves_no_charge);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
