/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Workers that go on while the daemon is killed, stopped, frozen and started again: no call fails,
 * and what they hold keeps its contents.
 */

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/client_fixture.h"
#include "tests/integration/device.h"
#include "tests/tap.h"

/* Workers are forked, and start threads of their own: thread sanitizer takes that for a mistake
 * unless told. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}

static void join_again(uint32_t timeout_ms, uint32_t away_ms)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	options.timeout_ms = timeout_ms;
	options.away_ms = away_ms;
	gpumem_disconnect(session);
	session = join_as(options, "the test");
}

/* ---- threads that allocate all the time */

enum { THREADS = 4 };
static _Atomic bool over;
static _Atomic unsigned rounds[THREADS];

static void one_round(gpumem_session *s, uint8_t byte)
{
	gpumem_buffer *buffer;
	void *block, *small;
	OK(gpumem_alloc(s, 0, 3 * MIB, NULL, NULL, &block));
	OK(gpumem_alloc(s, 0, 1000, NULL, NULL, &small));
	OK(gpumem_buffer_create(s, 0, 2 * MIB, NULL, &buffer));
	gm_device_set(block, 3 * MIB, byte);
	gm_device_set(gpumem_buffer_ptr(buffer), 2 * MIB, byte);
	GM_REQUIRE(gm_device_is(block, 3 * MIB, byte));
	GM_REQUIRE(gm_device_is(gpumem_buffer_ptr(buffer), 2 * MIB, byte));
	OK(gpumem_free(s, block, GPUMEM_STREAM_DONE));
	OK(gpumem_free(s, small, GPUMEM_STREAM_DONE));
	gpumem_buffer_destroy(buffer);
	/* The next round asks the daemon again. */
	OK(gpumem_trim(s, NULL));
}

static void *allocate(void *ctx)
{
	_Atomic unsigned *mine = ctx;
	while (!over) {
		one_round(session, (uint8_t)(mine - rounds + 1));
		(*mine)++;
	}
	return NULL;
}

/* Every thread has done so many rounds more. */
static void await_rounds(unsigned n)
{
	for (unsigned i = 0; i < THREADS; i++) {
		unsigned from = rounds[i];
		GM_UNTIL(rounds[i] >= from + n);
	}
}

/* How the daemon ends. */
static void end_daemon(int signal)
{
	if (signal == SIGKILL) {
		gm_daemon_kill(&daemon_);
	} else {
		gm_daemon_signal(&daemon_, signal);
		GM_REQUIRE_EQ(gm_daemon_wait(&daemon_), 0);
	}
}

static void restart_under_threads(int signal)
{
	pthread_t threads[THREADS];
	void *held;
	OK(gpumem_alloc(session, 0, 20 * MIB, NULL, NULL, &held));
	gm_device_set(held, 20 * MIB, 77);
	for (unsigned i = 0; i < THREADS; i++)
		GM_REQUIRE_EQ(pthread_create(&threads[i], NULL, allocate, &rounds[i]), 0);
	for (unsigned i = 0; i < 5; i++) {
		await_rounds(2);
		end_daemon(signal);
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
		await_rounds(1);
	}
	over = true;
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	GM_REQUIRE(gm_device_is(held, 20 * MIB, 77));
	OK(gpumem_free(session, held, GPUMEM_STREAM_DONE));
}

START_TEST(threads_that_allocate_do_not_notice_a_daemon_that_is_killed)
{
	restart_under_threads(SIGKILL);
}
END_TEST

START_TEST(threads_that_allocate_do_not_notice_a_daemon_that_is_stopped_and_started)
{
	restart_under_threads(SIGTERM);
}
END_TEST

/* ---- processes */

static void work_on(int channel, void *argument)
{
	gpumem_session *s = join("worker");
	void *held;
	char word;
	OK(gpumem_alloc(s, 0, 4 * MIB, NULL, NULL, &held));
	gm_device_set(held, 4 * MIB, 99);
	/* A round whenever the test says so, until it says 'e'. */
	for (gm_hear(channel, &word, 1); word != 'e'; gm_hear(channel, &word, 1)) {
		one_round(s, 5);
		gm_text_say(channel, &word, 1);
	}
	GM_REQUIRE(gm_device_is(held, 4 * MIB, 99));
	OK(gpumem_free(s, held, GPUMEM_STREAM_DONE));
	gpumem_disconnect(s);
}

START_TEST(workers_that_ask_while_the_daemon_is_away_get_what_they_asked_for)
{
	enum { N = 8 };
	struct gm_worker workers[N];
	gpumem_disconnect(session);
	for (unsigned i = 0; i < N; i++)
		gm_worker_start(&workers[i], work_on, NULL);
	session = join("the test");
	for (unsigned i = 0; i < N; i++) {
		gm_text_say_word(workers[i].channel, 'r');
		gm_hear_word(workers[i].channel, 'r');
	}
	for (unsigned k = 0; k < 3; k++) {
		/* They begin before it is killed, or while it is away. */
		for (unsigned i = 0; i < N / 2; i++)
			gm_text_say_word(workers[i].channel, 'r');
		gm_daemon_kill(&daemon_);
		for (unsigned i = N / 2; i < N; i++)
			gm_text_say_word(workers[i].channel, 'r');
		GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
		for (unsigned i = 0; i < N; i++)
			gm_hear_word(workers[i].channel, 'r');
	}
	for (unsigned i = 0; i < N; i++) {
		gm_text_say_word(workers[i].channel, 'e');
		gm_worker_join(&workers[i]);
	}
}
END_TEST

/* ---- a daemon that is there, but does not answer */

START_TEST(a_daemon_that_is_frozen_is_waited_for_no_longer_than_timeout_ms)
{
	gpumem_buffer *buffer;
	join_again(200, 1000000);
	gm_daemon_signal(&daemon_, SIGSTOP);
	GM_REQUIRE_EQ(gpumem_buffer_create(session, 0, 4 * MIB, NULL, &buffer), GPUMEM_E_TIMEOUT);
	gm_daemon_signal(&daemon_, SIGCONT);
	GM_UNTIL(gpumem_buffer_create(session, 0, 4 * MIB, NULL, &buffer) == GPUMEM_OK);
	gpumem_buffer_destroy(buffer);
}
END_TEST

static void *create_one(void *ctx)
{
	OK(gpumem_buffer_create(session, 0, 4 * MIB, NULL, ctx));
	return NULL;
}

START_TEST(a_request_that_a_frozen_daemon_never_read_is_repeated_to_the_next_one)
{
	gpumem_buffer *buffer;
	pthread_t thread;
	gm_daemon_signal(&daemon_, SIGSTOP);
	GM_REQUIRE_EQ(pthread_create(&thread, NULL, create_one, &buffer), 0);
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	pthread_join(thread, NULL);
	gm_device_set(gpumem_buffer_ptr(buffer), 4 * MIB, 1);
	gpumem_buffer_destroy(buffer);
}
END_TEST

/* ---- a request that waits for memory */

static void fill_device(int channel, void *argument)
{
	gpumem_session *s = join("holder");
	gpumem_buffer *buffer;
	OK(gpumem_buffer_create(s, 0, 900 * MIB, NULL, &buffer));
	gm_text_say_word(channel, 'h');
	pause();
}

static void *create_patiently(void *ctx)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	options.wait_ms = GM_PATIENCE_MS;
	OK(gpumem_buffer_create(session, 0, 512 * MIB, &options, ctx));
	return NULL;
}

static void wait_through(int signal)
{
	struct gm_worker holder;
	gpumem_buffer *buffer;
	pthread_t thread;
	gpumem_disconnect(session);
	gm_worker_start(&holder, fill_device, NULL);
	gm_hear_word(holder.channel, 'h');
	session = join("the test");
	GM_REQUIRE_EQ(pthread_create(&thread, NULL, create_patiently, &buffer), 0);
	GM_UNTIL(gm_queue_wait(&daemon_) == 1);
	end_daemon(signal);
	/* Nobody but the waiting request remembers. */
	gm_worker_kill(&holder);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	pthread_join(thread, NULL);
	gpumem_buffer_destroy(buffer);
}

START_TEST(a_request_that_waits_for_memory_waits_on_with_the_next_daemon)
{
	wait_through(SIGKILL);
}
END_TEST

START_TEST(a_request_that_waits_for_memory_is_not_ended_by_a_daemon_that_stops)
{
	wait_through(SIGTERM);
}
END_TEST

static void wait_for_most(int channel, void *argument)
{
	gpumem_session *s = join(argument);
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *buffer;

	options.wait_ms = GPUMEM_WAIT_FOREVER;
	OK(gpumem_buffer_create(s, 0, 600 * MIB, &options, &buffer));
	gm_text_say_word(channel, 'g');
	pause();
}

/* The daemon sees the second request before the first one, and orders them as they came to the daemon before. */
START_TEST(requests_of_a_user_keep_their_order_over_a_restart)
{
	struct gm_worker holder, first, second;

	gpumem_disconnect(session);
	gm_worker_start(&holder, fill_device, NULL);
	gm_hear_word(holder.channel, 'h');
	gm_worker_start(&first, wait_for_most, "first");
	GM_UNTIL(gm_queue_wait(&daemon_) == 1);
	gm_worker_start(&second, wait_for_most, "second");
	GM_UNTIL(gm_queue_wait(&daemon_) == 2);

	GM_REQUIRE(kill(first.pid, SIGSTOP) == 0);
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_UNTIL(gm_queue_wait(&daemon_) == 1);
	GM_REQUIRE(kill(first.pid, SIGCONT) == 0);
	GM_UNTIL(gm_queue_wait(&daemon_) == 2);

	gm_worker_kill(&holder);
	gm_hear_word(first.channel, 'g');
	gm_worker_kill(&first);
	gm_hear_word(second.channel, 'g');
	gm_worker_kill(&second);
	session = join("the test");
}
END_TEST

/* ---- a daemon that does not come back */

START_TEST(a_daemon_that_does_not_come_back_is_waited_for_as_long_as_the_program_says)
{
	static const uint32_t away_ms[] = {0, 300};
	void *held, *more;
	gpumem_buffer *buffer;
	join_again(0, away_ms[_i]);
	OK(gpumem_alloc(session, 0, 4 * MIB, NULL, NULL, &held));
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(
		gpumem_buffer_create(session, 0, 4 * MIB, NULL, &buffer), GPUMEM_E_DISCONNECTED);
	GM_REQUIRE_EQ(
		gpumem_alloc(session, 0, 300 * MIB, NULL, NULL, &more), GPUMEM_E_DISCONNECTED);
	if (away_ms[_i])
		GM_REQUIRE(strstr(gpumem_error_detail(), "did not come back within") != NULL);
	/* What is there works. */
	OK(gpumem_free(session, held, GPUMEM_STREAM_DONE));
	OK(gpumem_alloc(session, 0, 4 * MIB, NULL, NULL, &held));
	OK(gpumem_free(session, held, GPUMEM_STREAM_DONE));
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
}
END_TEST

/* ---- a program that closes what it does not know */

/* Reads a file, or a part of a folder, into text. Thread sanitizer must not know of the descriptor: its number may be one that the
 * library's thread has lost to close_everything_twice(). Returns the bytes read, at most size - 1; 0 at the end or on error. */
static size_t read_unseen(const char *path, int *fd, bool folder, char *text, size_t size)
{
	if (*fd < 0)
		*fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	long n = syscall(folder ? SYS_getdents64 : SYS_read, *fd, text, size - 1);

	text[n > 0 ? n : 0] = '\0';
	return n > 0 ? (size_t)n : 0;
}

/* How often the thread of that number ran: its context switches; 0 if it is not the library's. */
static uint64_t task_ran(const char *task)
{
	char path[300], text[4096], name[32];
	uint64_t voluntary, other;
	int fd = -1;

	snprintf(path, sizeof(path), "/proc/self/task/%s/status", task);
	read_unseen(path, &fd, false, text, sizeof(text));
	syscall(SYS_close, fd);
	const char *at = strstr(text, "\nvoluntary_ctxt_switches:");
	if (sscanf(text, "Name: %31s", name) != 1 || strcmp(name, "gpumem") != 0 || !at ||
		sscanf(at,
			" voluntary_ctxt_switches: %" SCNu64
			" nonvoluntary_ctxt_switches: %" SCNu64,
			&voluntary, &other) != 2)
		return 0;
	return voluntary + other;
}

/* How often the library's thread ran so far. */
static uint64_t thread_ran(void)
{
	_Alignas(struct dirent64) char tasks[4096];
	uint64_t sum = 0;
	int fd = -1;
	size_t n;

	while ((n = read_unseen("/proc/self/task", &fd, true, tasks, sizeof(tasks))) > 0) {
		for (size_t at = 0; at < n;) {
			const struct dirent64 *entry = (const struct dirent64 *)(tasks + at);
			sum += task_ran(entry->d_name);
			at += entry->d_reclen;
		}
	}
	syscall(SYS_close, fd);
	return sum;
}

static bool thread_sleeps(void)
{
	uint64_t before = thread_ran();

	usleep(200000);
	return before && thread_ran() == before;
}

/* As closefrom(3) does, but for the channel to the test. */
static void close_everything_twice(int channel, void *argument)
{
	gpumem_session *s = join_away("closes", 60000);
	void *held;

	OK(gpumem_alloc(s, 0, 3 * MIB, NULL, NULL, &held));
	gm_device_set(held, 3 * MIB, 7);
	for (int round = 0; round < 2; round++) {
		for (int fd = 3; fd < 256; fd++)
			if (fd != channel)
				syscall(SYS_close, fd); /* a race with the library, on purpose */
		GM_UNTIL(thread_sleeps());
		one_round(s, 8);
		GM_REQUIRE(gm_device_is(held, 3 * MIB, 7));
	}
	OK(gpumem_free(s, held, GPUMEM_STREAM_DONE));
	gpumem_disconnect(s);
}

START_TEST(a_session_goes_on_and_its_thread_sleeps_after_the_program_closed_its_descriptors)
{
	struct gm_worker worker;

	start_worker(&worker, close_everything_twice);
	gm_worker_join(&worker);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client restart");
	TCase *tc = tcase_create("client restart");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, threads_that_allocate_do_not_notice_a_daemon_that_is_killed);
	tcase_add_test(
		tc, threads_that_allocate_do_not_notice_a_daemon_that_is_stopped_and_started);
	tcase_add_test(tc, workers_that_ask_while_the_daemon_is_away_get_what_they_asked_for);
	tcase_add_test(tc, a_daemon_that_is_frozen_is_waited_for_no_longer_than_timeout_ms);
	tcase_add_test(tc, a_request_that_a_frozen_daemon_never_read_is_repeated_to_the_next_one);
	tcase_add_test(tc, a_request_that_waits_for_memory_waits_on_with_the_next_daemon);
	tcase_add_test(tc, a_request_that_waits_for_memory_is_not_ended_by_a_daemon_that_stops);
	tcase_add_test(tc, requests_of_a_user_keep_their_order_over_a_restart);
	tcase_add_loop_test(tc,
		a_daemon_that_does_not_come_back_is_waited_for_as_long_as_the_program_says, 0, 2);
	tcase_add_test(tc,
		a_session_goes_on_and_its_thread_sleeps_after_the_program_closed_its_descriptors);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
