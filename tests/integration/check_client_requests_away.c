/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Requests that nobody waits for in a call, while the daemon is away or killed, in a forked child, and begun
 * and dropped at random. At the end of each test the daemon has everything back.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/requests_fixture.h"
#include "tests/tap.h"

const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}

/* ---- without the daemon */

static gpumem_request *pending[50];

START_TEST(pending_requests_outlast_a_daemon_that_is_killed_and_nothing_is_granted_twice)
{
	void *taken[100], *all = hold(1000 * MIB);
	for (int i = 0; i < 50; i++)
		pending[i] = i % 2 ? begin_waiting(session, 2 * MIB, FOREVER)
				   : begin_buffer(4 * MIB, FOREVER);
	for (int i = 0; i < 3; i++) {
		GM_UNTIL(gm_queue_wait(&daemon_) >= 10);
		gm_daemon_kill(&daemon_);
		for (int k = 0; k < 5; k++)
			(void)gpumem_request_ready(pending[k]);
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	}
	let_go(all);
	for (int i = 0; i < 50; i++)
		taken[i] = i % 2 ? take(pending[i]) : (void *)take_buffer(pending[i]);
	OK(gpumem_trim(session, NULL));
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	OK(gpumem_stats(session, 0, &stats));
	GM_UNTIL(gm_figures_now(&daemon_).leased == stats.allocated);
	for (int i = 0; i < 50; i++) {
		if (i % 2)
			let_go(taken[i]);
		else
			gpumem_buffer_destroy(taken[i]);
	}
}
END_TEST

START_TEST(requests_begun_while_the_daemon_is_away_are_granted_when_it_is_back)
{
	gm_daemon_kill(&daemon_);
	gpumem_request *a = begin(20 * MIB), *b = begin_buffer(2 * MIB, 0);
	gpumem_request *dropped = begin(20 * MIB);
	GM_REQUIRE_EQ(gpumem_request_wait(a, 5), GPUMEM_E_TIMEOUT);
	gpumem_request_cancel(dropped);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	let_go(take(a));
	gpumem_buffer_destroy(take_buffer(b));
}
END_TEST

START_TEST(requests_fail_when_the_daemon_stays_away)
{
	void *ptr;
	gpumem_disconnect(session);
	session = join_away("the test", 50);
	gm_daemon_kill(&daemon_);
	gpumem_request *request = begin(20 * MIB);
	OK(gpumem_request_wait(request, FOREVER));
	GM_REQUIRE_EQ(gpumem_alloc_take(request, &ptr), GPUMEM_E_DISCONNECTED);
	GM_REQUIRE(strstr(gpumem_error_detail(), "cannot be reached"));
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	/* It may be some tries until the library finds it. */
	do {
		request = begin(20 * MIB);
		OK(gpumem_request_wait(request, FOREVER));
	} while (gpumem_alloc_take(request, &ptr) != GPUMEM_OK);
	let_go(ptr);
}
END_TEST

START_TEST(a_forked_child_cannot_use_a_request)
{
	gpumem_request *request = begin(20 * MIB), *other = NULL;
	OK(gpumem_request_wait(request, FOREVER));
	pid_t pid = fork();
	if (pid == 0) {
		void *ptr;
		int fd;
		bool ok =
			gpumem_request_wait(request, 0) == GPUMEM_E_FORKED &&
			gpumem_alloc_take(request, &ptr) == GPUMEM_E_FORKED &&
			gpumem_request_ready(request) == GPUMEM_REQUEST_FAILED &&
			gpumem_request_on_done(request, NULL, NULL) == GPUMEM_E_FORKED &&
			gpumem_alloc_begin(session, 0, 1, NULL, NULL, &other) == GPUMEM_E_FORKED &&
			gpumem_buffer_create_begin(session, 0, 1, NULL, &other) ==
				GPUMEM_E_FORKED &&
			gpumem_dispatch(session, NULL) == GPUMEM_E_FORKED &&
			gpumem_session_fd(session, &fd) == GPUMEM_E_FORKED;
		gpumem_request_cancel(request);
		_exit(ok ? 0 : 1);
	}
	int status;
	GM_REQUIRE_EQ(waitpid(pid, &status, 0), pid);
	GM_REQUIRE_EQ(status, 0);
	let_go(take(request));
}
END_TEST

/* ---- at random */

enum { THREADS = 3, SLOTS = 40 };
static _Atomic unsigned begun, stopped;
static unsigned begins_each;

static unsigned pick(uint64_t *seed, unsigned n)
{
	*seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (unsigned)(*seed >> 33) % n;
}

struct slot {
	gpumem_request *request;
	bool buffer;
	uint32_t wait_ms;
	void *ptr;
};

static void slot_end(struct slot *slot)
{
	if (slot->request)
		gpumem_request_cancel(slot->request);
	else if (slot->buffer)
		gpumem_buffer_destroy(slot->ptr);
	else if (slot->ptr)
		let_go(slot->ptr);
	*slot = (struct slot){0};
}

/* Takes a request, or leaves it if it is not ready. */
static void slot_take(struct slot *slot)
{
	gpumem_buffer *buffer = NULL;
	gpumem_status status = slot->buffer ? gpumem_buffer_take(slot->request, &buffer)
					    : gpumem_alloc_take(slot->request, &slot->ptr);
	if (status == GPUMEM_E_BUSY)
		return;
	if (buffer)
		slot->ptr = buffer;
	slot->request = NULL;
	if (status != GPUMEM_OK) {
		/* Threads together may ask for more than there is, and a restart of the daemon may
		 * take longer than some of them wait. */
		if (status != GPUMEM_E_NO_MEMORY && status != GPUMEM_E_TIMEOUT &&
			(status != GPUMEM_E_DISCONNECTED || slot->wait_ms != 5))
			GM_FAIL("%s: %s", gpumem_status_text(status), gpumem_error_detail());
		slot->buffer = false;
	}
}

static void *begin_and_drop(void *ctx)
{
	uint64_t seed = (uintptr_t)ctx + 1;
	struct slot slots[SLOTS] = {0};
	static const size_t sizes[] = {100, 5000, 100000, 3 * MIB, 40 * MIB};
	static const uint32_t waits[] = {0, 5, FOREVER};

	for (unsigned i = 0; i < begins_each; i++) {
		struct slot *slot = &slots[pick(&seed, SLOTS)];
		if (slot->request && pick(&seed, 3) == 0)
			(void)gpumem_request_wait(slot->request, pick(&seed, 2));
		if (slot->request && pick(&seed, 2))
			slot_take(slot);
		slot_end(slot);
		size_t size = sizes[pick(&seed, 5)];
		uint32_t wait_ms = slot->wait_ms = waits[pick(&seed, 3)];
		slot->buffer = pick(&seed, 4) == 0;
		slot->request = slot->buffer ? begin_buffer(size, wait_ms)
					     : begin_waiting(session, size, wait_ms);
		begun++;
	}
	for (unsigned i = 0; i < SLOTS; i++)
		slot_end(&slots[i]);
	stopped++;
	return NULL;
}

static void begin_and_drop_at_random(bool killed)
{
	pthread_t threads[THREADS];
	unsigned all = gm_sanitized() ? 3000 : 10000;
	begins_each = all / THREADS + 1;
	for (uintptr_t i = 0; i < THREADS; i++)
		GM_REQUIRE_EQ(pthread_create(&threads[i], NULL, begin_and_drop, (void *)i), 0);
	for (unsigned i = 1; killed && i <= 6; i++) {
		GM_UNTIL(begun >= all * i / 7 || stopped == THREADS);
		gm_daemon_kill(&daemon_);
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);

	/* The books are equal, and empty. */
	GM_UNTIL(gm_queue_wait(&daemon_) == 0);
	GM_UNTIL((gpumem_trim(session, NULL), gm_figures_now(&daemon_).leased == 0));
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	OK(gpumem_stats(session, 0, &stats));
	GM_REQUIRE_EQ(stats.in_use, 0);
	GM_REQUIRE_EQ(stats.allocated, 0);
	GM_REQUIRE_EQ(stats.active_buffers, 0);
}

START_TEST(requests_begun_and_dropped_at_random_leave_nothing_behind)
{
	begin_and_drop_at_random(false);
}
END_TEST

START_TEST(requests_begun_and_dropped_at_random_leave_nothing_behind_when_the_daemon_is_killed)
{
	begin_and_drop_at_random(true);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client requests away");
	TCase *tc = tcase_create("requests");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 300);
	tcase_add_test(
		tc, pending_requests_outlast_a_daemon_that_is_killed_and_nothing_is_granted_twice);
	tcase_add_test(tc, requests_begun_while_the_daemon_is_away_are_granted_when_it_is_back);
	tcase_add_test(tc, requests_fail_when_the_daemon_stays_away);
	tcase_add_test(tc, a_forked_child_cannot_use_a_request);
	tcase_add_test(tc, requests_begun_and_dropped_at_random_leave_nothing_behind);
	tcase_add_test(tc,
		requests_begun_and_dropped_at_random_leave_nothing_behind_when_the_daemon_is_killed);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
