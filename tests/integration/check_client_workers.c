/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Several processes with the client library: a buffer that goes from one to another, a child, a
 * worker that is killed.
 */

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/client_fixture.h"
#include "tests/integration/device.h"
#include "tests/tap.h"

/* Workers are forked while the library's thread runs, and start threads of their own: thread
 * sanitizer takes that for a mistake unless told. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}

static void open_and_answer(int channel, void *argument)
{
	gpumem_token token;
	gm_hear(channel, &token, sizeof(token));
	gpumem_session *s = join("opener");
	gpumem_buffer *b = NULL;
	OK(gpumem_open(s, &token, &b));
	uint8_t *p = gpumem_buffer_ptr(b);
	GM_REQUIRE_EQ(gpumem_buffer_size(b), 70 * MIB);
	GM_REQUIRE(gm_device_is(p, 70 * MIB, 0x11));
	gm_device_set(p, 70 * MIB, 0x22);
	gm_text_say_word(channel, 'w');
	gm_hear_word(channel, 'e');
	gpumem_buffer_destroy(b);
	gpumem_disconnect(s);
}

START_TEST(a_buffer_passes_from_process_to_process_without_a_copy)
{
	struct gm_worker worker;
	gpumem_buffer *b = NULL;
	gpumem_token token;
	start_worker(&worker, open_and_answer);
	OK(gpumem_buffer_create(session, 0, 70 * MIB, NULL, &b));
	uint8_t *p = gpumem_buffer_ptr(b);
	gm_device_set(p, 70 * MIB, 0x11);
	OK(gpumem_share(b, NULL, &token));
	gm_text_say(worker.channel, &token, sizeof(token));
	gm_hear_word(worker.channel, 'w');
	GM_REQUIRE(gm_device_is(p, 70 * MIB, 0x22));
	gm_text_say_word(worker.channel, 'e');
	gm_worker_join(&worker);
	gpumem_buffer_destroy(b);
}
END_TEST

START_TEST(a_token_survives_being_written_as_text)
{
	gpumem_buffer *b = NULL, *again = NULL;
	gpumem_token token, back;
	char text[GPUMEM_TOKEN_TEXT_BYTES];
	OK(gpumem_buffer_create(session, 0, MIB, NULL, &b));
	OK(gpumem_share(b, NULL, &token));
	gpumem_token_to_text(&token, text);
	OK(gpumem_token_from_text(text, &back));
	OK(gpumem_open(session, &back, &again));
	GM_REQUIRE_EQ(gpumem_token_from_text("zz", &back), GPUMEM_E_INVALID);
	token.bytes[3] ^= 1;
	gpumem_buffer *none = NULL;
	GM_REQUIRE_EQ(gpumem_open(session, &token, &none), GPUMEM_E_NOT_FOUND);
	GM_REQUIRE(!none);
	gpumem_buffer_destroy(again);
	gpumem_buffer_destroy(b);
}
END_TEST

static void read_it_only(int channel, void *argument)
{
	gpumem_token token;
	gm_hear(channel, &token, sizeof(token));
	gpumem_session *s = join("reader");
	gpumem_buffer *b = NULL;
	OK(gpumem_open(s, &token, &b));
	const uint8_t *p = gpumem_buffer_ptr(b);
	GM_REQUIRE(p[0] == 0x33);
	pid_t child = fork();
	GM_REQUIRE(child >= 0);
	gpumem_buffer_destroy(b);
	gpumem_disconnect(s);
	if (child == 0)
		_exit(0);
	int status;
	GM_REQUIRE(waitpid(child, &status, 0) == child);
}

static void write_it_nonetheless(int channel, void *argument)
{
	gpumem_token token;
	gm_hear(channel, &token, sizeof(token));
	gpumem_session *s = join("writer");
	gpumem_buffer *b = NULL;
	OK(gpumem_open(s, &token, &b));
	gm_text_say_word(channel, 'o');
	signal(SIGSEGV, SIG_DFL); /* a sanitizer would turn it into a report */
	*(volatile uint8_t *)gpumem_buffer_ptr(b) = 1;
	gm_text_say_word(channel, 'w');
}

START_TEST(a_read_only_buffer_can_be_read_and_not_written)
{
	struct gm_worker reader, writer;
	gpumem_buffer *b = NULL;
	gpumem_token token;
	gpumem_share_options options = GPUMEM_SHARE_OPTIONS_INIT;
	options.mode = GPUMEM_SHARE_READ_ONLY;
	start_worker(&reader, read_it_only);
	start_worker(&writer, write_it_nonetheless);
	OK(gpumem_buffer_create(session, 0, MIB, NULL, &b));
	gm_device_set(gpumem_buffer_ptr(b), MIB, 0x33);
	OK(gpumem_share(b, &options, &token));
	gm_text_say(reader.channel, &token, sizeof(token));
	gm_worker_join(&reader);
	gm_text_say(writer.channel, &token, sizeof(token));
	gm_hear_word(writer.channel, 'o');
	int status;
	GM_REQUIRE(waitpid(writer.pid, &status, 0) == writer.pid);
	GM_REQUIRE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	close(writer.channel);
	GM_REQUIRE(*(uint8_t *)gpumem_buffer_ptr(b) == 0x33);
	gpumem_buffer_destroy(b);
}
END_TEST

START_TEST(a_forked_child_may_not_use_the_session_and_can_connect_for_itself)
{
	void *p, *q;
	OK(gpumem_alloc(session, 0, 4 * MIB, NULL, NULL, &p));
	gm_device_set(p, 4 * MIB, 1);
	fflush(NULL);
	pid_t child = fork();
	GM_REQUIRE(child >= 0);
	if (child == 0) {
		gpumem_stats_t stats = {.size = sizeof(stats)};
		int bad = 0;
		bad |= (gpumem_alloc(session, 0, 4096, NULL, NULL, &q) != GPUMEM_E_FORKED) << 0;
		bad |= (gpumem_free(session, p, NULL) != GPUMEM_E_FORKED) << 1;
		bad |= (gpumem_stats(session, 0, &stats) != GPUMEM_E_FORKED) << 2;
		bad |= (gpumem_trim(session, NULL) != GPUMEM_E_FORKED) << 3;
		gpumem_session *own = NULL;
		gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
		options.socket = daemon_.socket;
		bad |= (gpumem_connect(&options, &own) != GPUMEM_OK) << 4;
		if (own) {
			/* The driver does not work in a child of a process that used it. */
			gpumem_status status = gpumem_alloc(own, 0, MIB, NULL, NULL, &q);
			bad |= (status != (gm_on_gpu() ? GPUMEM_E_UNSUPPORTED : GPUMEM_OK)) << 5;
			if (status == GPUMEM_OK)
				gm_device_set(q, MIB, 9);
			gpumem_disconnect(own);
		}
		_exit(bad);
	}
	int status;
	GM_REQUIRE(waitpid(child, &status, 0) == child);
	GM_REQUIRE_EQ(status, 0);
	/* The parent's is as it was. */
	GM_REQUIRE(gm_device_is(p, 4 * MIB, 1));
	OK(gpumem_free(session, p, GPUMEM_STREAM_DONE));
}
END_TEST

static void die_with_memory(int channel, void *argument)
{
	gpumem_session *s = join("short-lived");
	void *p;
	OK(gpumem_alloc(s, 0, 200 * MIB, NULL, NULL, &p));
	gm_device_set(p, MIB, 1);
	gm_text_say_word(channel, 'h');
	pause();
}

START_TEST(the_memory_of_a_killed_worker_comes_back)
{
	struct gm_worker worker;
	start_worker(&worker, die_with_memory);
	gm_hear_word(worker.channel, 'h');
	GM_REQUIRE(gm_figures_now(&daemon_).leased >= 200 * MIB);
	gm_worker_kill(&worker);
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	void *p;
	OK(gpumem_alloc(session, 0, 1000 * MIB, NULL, NULL, &p));
	OK(gpumem_free(session, p, GPUMEM_STREAM_DONE));
}
END_TEST

/* ---- one limit for many processes */

#define RUN_LIMIT (64 * MIB)
#define RUN_PIECE (4 * MIB)
/* On a GPU each of them has a context, which takes its part. */
#define RACERS (gm_on_gpu() ? 10 : 100)

static void race_for_the_limit(int channel, void *argument)
{
	void *ptr = NULL;

	setenv("GPUMEM_RUN", "race", 1);
	setenv("GPUMEM_RUN_LIMIT", "67108864", 1);
	gpumem_session *s = join("racer");
	gm_hear_word(channel, 'g');
	gpumem_status status = gpumem_alloc(s, 0, RUN_PIECE, GPUMEM_STREAM_ANY, NULL, &ptr);
	GM_REQUIRE(status == GPUMEM_OK || status == GPUMEM_E_LIMIT);
	gm_text_say_word(channel, status == GPUMEM_OK ? 'y' : 'n');
	gm_hear_word(channel, 'e');
	OK(gpumem_free(s, ptr, GPUMEM_STREAM_DONE));
	gpumem_disconnect(s);
}

START_TEST(processes_that_race_for_the_limit_of_a_run_never_pass_it)
{
	struct gm_worker workers[100];
	uint64_t got = 0;
	char word;

	gpumem_disconnect(session);
	for (int i = 0; i < RACERS; i++)
		gm_worker_start(&workers[i], race_for_the_limit, NULL);
	for (int i = 0; i < RACERS; i++)
		gm_text_say_word(workers[i].channel, 'g');
	for (int i = 0; i < RACERS; i++) {
		gm_hear(workers[i].channel, &word, 1);
		got += word == 'y';
	}
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE(got > 0 && got <= RUN_LIMIT / RUN_PIECE);
	GM_REQUIRE(f.leased >= got * RUN_PIECE && f.leased <= RUN_LIMIT);
	GM_REQUIRE(f.peak_charged <= RUN_LIMIT);
	for (int i = 0; i < RACERS; i++)
		gm_text_say_word(workers[i].channel, 'e');
	for (int i = 0; i < RACERS; i++)
		gm_worker_join(&workers[i]);
	GM_REQUIRE(gm_figures_now(&daemon_).peak_charged <= RUN_LIMIT);
	session = join("the test");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client workers");
	TCase *tc = tcase_create("client workers");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, a_buffer_passes_from_process_to_process_without_a_copy);
	tcase_add_test(tc, a_token_survives_being_written_as_text);
	/* The driver lets whoever imports memory choose its own access: on a GPU read-only is a
	 * request. */
	if (!gm_on_gpu())
		tcase_add_test(tc, a_read_only_buffer_can_be_read_and_not_written);
	tcase_add_test(tc, a_forked_child_may_not_use_the_session_and_can_connect_for_itself);
	tcase_add_test(tc, the_memory_of_a_killed_worker_comes_back);
	tcase_add_test(tc, processes_that_race_for_the_limit_of_a_run_never_pass_it);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
