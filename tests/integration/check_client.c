/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

/*
 * The client library against a real daemon: what a worker program does, from several threads and
 * processes, and what it sees when it forks, when the daemon stops, dies and comes back.
 */

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/types.h"
#include "gpumem/gpumem.h"
#include "tests/integration/device.h"
#include "tests/integration/raw.h"
#include "tests/limit.h"
#include "tests/tap.h"

#define MIB (UINT64_C(1) << 20)

/* Workers are forked while the library's thread runs, and start threads of their own: thread
 * sanitizer takes that for a mistake unless told. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}

static struct gm_daemon daemon_;
static gpumem_session *session;

static void require_ok_(gpumem_status status, const char *what, int line)
{
	if (status != GPUMEM_OK)
		gm_fail(__FILE__, line, "%s: %s: %s", what, gpumem_status_text(status),
			gpumem_error_detail());
}
#define OK(call) require_ok_((call), #call, __LINE__)

static gpumem_session *join(const char *name)
{
	gpumem_session *s = NULL;
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	options.socket = daemon_.socket;
	options.name = name;
	OK(gpumem_connect(&options, &s));
	return s;
}

static void set_up(void)
{
	gm_daemon_start(
		&daemon_, &(struct gm_daemon_options){
				  .config = GM_DAEMON_CONFIG_WITH("pressure_dwell = 0s\n", "1G")});
	session = join("the test");
}

/*
 * A worker is forked while no thread but this one is there: the sanitizers' own locks do not
 * survive a fork that happens while the library's thread begins.
 */
static void start_worker(struct gm_worker *worker, gm_worker_fn fn)
{
	gpumem_disconnect(session);
	gm_worker_start(worker, fn, NULL);
	session = join("the test");
}

static void tear_down(void)
{
	gpumem_disconnect(session);
	session = NULL;
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.leased + f.quarantined + f.admitted, 0);
	GM_REQUIRE_EQ(f.leases, 0);
	gm_daemon_stop(&daemon_);
}

/* ---- one process */

START_TEST(memory_can_be_had_written_and_given_back)
{
	void *small, *large;
	OK(gpumem_alloc(session, 0, 1000, NULL, NULL, &small));
	OK(gpumem_alloc(session, 0, 100 * MIB, NULL, NULL, &large));
	GM_REQUIRE((uintptr_t)small % 256 == 0 && (uintptr_t)large % 256 == 0);
	gm_device_set(small, 1000, 1);
	gm_device_set(large, 100 * MIB, 2);
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE(f.leased >= 100 * MIB + 1000);
	gpumem_stats_t stats = {.size = sizeof(stats)};
	OK(gpumem_stats(session, 0, &stats));
	GM_REQUIRE_EQ(stats.allocated, f.leased);
	GM_REQUIRE(stats.in_use >= 100 * MIB + 1000 && stats.in_use <= stats.allocated);
	GM_REQUIRE_EQ(stats.active_buffers, 2);
	OK(gpumem_free(session, small, GPUMEM_STREAM_DONE));
	OK(gpumem_free(session, large, GPUMEM_STREAM_DONE));
	OK(gpumem_stats(session, 0, &stats));
	GM_REQUIRE_EQ(stats.in_use, 0);
	GM_REQUIRE_EQ(stats.active_buffers, 0);
	GM_REQUIRE(stats.peak >= 100 * MIB + 1000);
	uint64_t bytes;
	OK(gpumem_trim(session, &bytes));
	OK(gpumem_stats(session, 0, &stats));
	GM_REQUIRE_EQ(stats.allocated, gm_figures_now(&daemon_).leased);
	GM_REQUIRE_EQ(stats.pooled, stats.allocated);
}
END_TEST

START_TEST(a_trim_gives_all_that_is_unused_to_the_daemon)
{
	void *p[40];
	for (int i = 0; i < 40; i++) {
		OK(gpumem_alloc(session, 0, (size_t)(i + 1) * 300000, NULL, NULL, &p[i]));
		gm_device_set(p[i], 300000, (uint8_t)i);
	}
	for (int i = 0; i < 40; i++)
		OK(gpumem_free(session, p[i], GPUMEM_STREAM_DONE));
	uint64_t held = gm_figures_now(&daemon_).leased, bytes;
	GM_REQUIRE(held > 0);
	OK(gpumem_trim(session, &bytes));
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	GM_REQUIRE_EQ(bytes, held);
}
END_TEST

START_TEST(what_makes_no_sense_is_refused_with_a_sentence)
{
	void *p = &p;
	int mine;
	gpumem_device_info_t info = {.size = sizeof(info)};
	uint32_t n;
	OK(gpumem_device_count(session, &n));
	GM_REQUIRE_EQ(n, 1);
	OK(gpumem_device_info(session, 0, &info));
	GM_REQUIRE_EQ(info.total, 1024 * MIB);
	GM_REQUIRE(strcmp(info.backend, gm_on_gpu() ? "cuda" : "host") == 0);
	GM_REQUIRE_EQ(gpumem_alloc(session, 0, 0, NULL, NULL, &p), GPUMEM_E_INVALID);
	GM_REQUIRE(strlen(gpumem_error_detail()) > 0);
	GM_REQUIRE(p == &p);
	gpumem_status status = gpumem_alloc(session, 7, 4096, NULL, NULL, &p);
	GM_REQUIRE(status == GPUMEM_E_NOT_FOUND || status == GPUMEM_E_INVALID);
	status = gpumem_alloc(session, 0, (size_t)1 << 63, NULL, NULL, &p);
	GM_REQUIRE(status == GPUMEM_E_INVALID || status == GPUMEM_E_NO_MEMORY);
	GM_REQUIRE_EQ(gpumem_alloc(session, 0, 2048 * MIB, NULL, NULL, &p), GPUMEM_E_NO_MEMORY);
	GM_REQUIRE(strlen(gpumem_error_detail()) > 0);
	GM_REQUIRE_EQ(gpumem_free(session, &mine, NULL), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gpumem_free(session, NULL, NULL), GPUMEM_OK);
	OK(gpumem_alloc(session, 0, 4096, NULL, NULL, &p));
	GM_REQUIRE_EQ(gpumem_free(session, (char *)p + 8, NULL), GPUMEM_E_INVALID);
	OK(gpumem_free(session, p, NULL));
	GM_REQUIRE_EQ(gpumem_free(session, p, NULL), GPUMEM_E_INVALID);
	/* And goes on. */
	OK(gpumem_alloc(session, 0, 4096, NULL, NULL, &p));
	OK(gpumem_free(session, p, NULL));
}
END_TEST

START_TEST(options_whose_size_was_forgotten_are_refused_and_not_left_unheard)
{
	/* Most of all this one: it would share for writing. */
	const gpumem_share_options share = {.mode = GPUMEM_SHARE_READ_ONLY};
	const gpumem_connect_options connect = {.name = "somebody"};
	const gpumem_alloc_options alloc = {.tag = "tag"};
	const gpumem_buffer_options buffer_options = {.tag = "tag"};
	gpumem_session *other = NULL;
	gpumem_buffer *buffer = NULL;
	gpumem_token token;
	void *p = NULL;
	GM_REQUIRE_EQ(gpumem_connect(&connect, &other), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gpumem_alloc(session, 0, 4096, NULL, &alloc, &p), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(
		gpumem_buffer_create(session, 0, MIB, &buffer_options, &buffer), GPUMEM_E_INVALID);
	GM_REQUIRE(!other && !p && !buffer);
	OK(gpumem_buffer_create(session, 0, MIB, NULL, &buffer));
	GM_REQUIRE_EQ(gpumem_share(buffer, &share, &token), GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gpumem_error_detail(), "size"));
	gpumem_buffer_destroy(buffer);
}
END_TEST

START_TEST(the_library_says_the_version_of_its_header)
{
	char version[32];
	snprintf(version, sizeof(version), "%d.%d.%d", GPUMEM_VERSION_MAJOR, GPUMEM_VERSION_MINOR,
		GPUMEM_VERSION_PATCH);
	GM_REQUIRE(strcmp(gpumem_version(), version) == 0);
}
END_TEST

START_TEST(all_of_the_device_can_be_had_and_no_more)
{
	void *p, *q;
	gpumem_device_info_t info = {.size = sizeof(info)};
	OK(gpumem_device_info(session, 0, &info));
	OK(gpumem_alloc(session, 0, info.capacity, NULL, NULL, &p));
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).available, 0);
	GM_REQUIRE_EQ(gpumem_alloc(session, 0, 4 * MIB, NULL, NULL, &q), GPUMEM_E_NO_MEMORY);
	gm_device_set((char *)p + info.capacity - 1, 1, 1);
	OK(gpumem_free(session, p, GPUMEM_STREAM_DONE));
	OK(gpumem_alloc(session, 0, 4 * MIB, NULL, NULL, &q));
	OK(gpumem_free(session, q, GPUMEM_STREAM_DONE));
}
END_TEST

#define THREADS 4
static void *hammer(void *argument)
{
	unsigned seed = (unsigned)(uintptr_t)argument;
	struct {
		uint8_t *p;
		size_t n;
		uint8_t mark;
	} held[64] = {0};
	for (int i = 0; i < 4000; i++) {
		size_t k = (size_t)rand_r(&seed) % 64;
		if (held[k].p) {
			GM_REQUIRE(gm_device_is(held[k].p, 1, held[k].mark));
			GM_REQUIRE(gm_device_is(held[k].p + held[k].n - 1, 1, held[k].mark));
			OK(gpumem_free(session, held[k].p, GPUMEM_STREAM_DONE));
			held[k].p = NULL;
			continue;
		}
		held[k].n = 1 + (size_t)rand_r(&seed) % (rand_r(&seed) % 8 ? 5000 : 3000000);
		held[k].mark = (uint8_t)rand_r(&seed);
		void *p;
		OK(gpumem_alloc(session, 0, held[k].n, NULL, NULL, &p));
		held[k].p = p;
		gm_device_set(held[k].p, 1, held[k].mark);
		gm_device_set(held[k].p + held[k].n - 1, 1, held[k].mark);
	}
	for (size_t k = 0; k < 64; k++)
		OK(gpumem_free(session, held[k].p, GPUMEM_STREAM_DONE));
	return NULL;
}

START_TEST(several_threads_share_a_session)
{
	pthread_t threads[THREADS];
	for (uintptr_t i = 0; i < THREADS; i++)
		GM_REQUIRE(pthread_create(&threads[i], NULL, hammer, (void *)(i + 1)) == 0);
	for (int i = 0; i < THREADS; i++)
		GM_REQUIRE(pthread_join(threads[i], NULL) == 0);
	gpumem_stats_t stats = {.size = sizeof(stats)};
	OK(gpumem_stats(session, 0, &stats));
	GM_REQUIRE_EQ(stats.in_use, 0);
	GM_REQUIRE_EQ(stats.active_buffers, 0);
	GM_REQUIRE(stats.hits + stats.misses > 0);
	OK(gpumem_trim(session, NULL));
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
}
END_TEST

static void *make_buffers(void *argument)
{
	for (int i = 0; i < 60; i++) {
		GPUMEM_AUTO_BUFFER gpumem_buffer *a = NULL;
		GPUMEM_AUTO_BUFFER gpumem_buffer *b = NULL;
		gpumem_token token;
		OK(gpumem_buffer_create(session, 0, 3 * MIB, NULL, &a));
		gm_device_set(gpumem_buffer_ptr(a), 100, (uint8_t)i);
		OK(gpumem_share(a, NULL, &token));
		OK(gpumem_open(session, &token, &b));
		GM_REQUIRE(gm_device_is(gpumem_buffer_ptr(b), 100, (uint8_t)i));
		OK(gpumem_unshare(a));
	}
	return NULL;
}

START_TEST(several_threads_make_share_and_open_buffers)
{
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		GM_REQUIRE(pthread_create(&threads[i], NULL, make_buffers, NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		GM_REQUIRE(pthread_join(threads[i], NULL) == 0);
	GM_UNTIL(gm_figures_now(&daemon_).leases <= 1);
}
END_TEST

START_TEST(a_buffer_knows_its_size_device_and_tag)
{
	gpumem_buffer *b = NULL;
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	options.tag = "weights";
	OK(gpumem_buffer_create(session, 0, 5000001, &options, &b));
	GM_REQUIRE_EQ(gpumem_buffer_size(b), 5000001);
	GM_REQUIRE_EQ(gpumem_buffer_device(b), 0);
	GM_REQUIRE(strcmp(gpumem_buffer_tag(b), "weights") == 0);
	OK(gpumem_buffer_set_tag(b, "others"));
	GM_REQUIRE(strcmp(gpumem_buffer_tag(b), "others") == 0);
	char tag[GM_LIMIT_NAME_BYTES + 2];
	memset(tag, 't', sizeof(tag));
	tag[GM_LIMIT_NAME_BYTES + 1] = '\0';
	GM_REQUIRE_EQ(gpumem_buffer_set_tag(b, tag), GPUMEM_E_INVALID);
	gm_device_set(gpumem_buffer_ptr(b), 5000001, 7);
	gpumem_buffer_destroy(b);
}
END_TEST

static size_t listed(uint64_t *ret_untracked, char tag[64])
{
	struct gm_raw raw;
	size_t n = 0;
	*ret_untracked = 0;
	gm_raw_observe(&raw, &daemon_);
	Gm__Wire__GetBuffers get = GM__WIRE__GET_BUFFERS__INIT;
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(GET_BUFFERS, get_buffers, &get)), GPUMEM_OK);
	for (;;) {
		n += raw.packet->buffers->n_buffers;
		*ret_untracked += raw.packet->buffers->untracked;
		if (raw.packet->buffers->n_buffers > 0)
			snprintf(tag, 64, "%s", raw.packet->buffers->buffers[0]->tag);
		if (!raw.packet->more)
			break;
		GM_REQUIRE(gm_raw_receive(&raw));
	}
	gm_raw_close(&raw);
	return n;
}

/* Has what is alive now listed: the library's thread would do so in its own time. */
static void publish(gpumem_session *s)
{
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	OK(gpumem_stats(s, 0, &stats));
}

START_TEST(large_buffers_are_listed_with_tag_and_size)
{
	void *p, *q;
	char tag[64] = "";
	uint64_t untracked;
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	options.tag = "leaked?";
	OK(gpumem_alloc(session, 0, GM_TRACK_LARGE_BYTES, NULL, &options, &p));
	OK(gpumem_alloc(session, 0, GM_TRACK_LARGE_BYTES - 1, NULL, NULL,
		&q)); /* too small to be tracked */
	publish(session);
	GM_REQUIRE_EQ(listed(&untracked, tag), 1);
	GM_REQUIRE(strcmp(tag, "leaked?") == 0);
	OK(gpumem_free(session, p, NULL));
	GM_REQUIRE_EQ(listed(&untracked, tag), 0);
	/* Nobody need ask: it is so after a while. */
	OK(gpumem_alloc(session, 0, GM_TRACK_LARGE_BYTES, NULL, &options, &p));
	GM_UNTIL(listed(&untracked, tag) == 1);
	OK(gpumem_free(session, p, NULL));
	GM_REQUIRE_EQ(listed(&untracked, tag), 0);
	OK(gpumem_free(session, q, NULL));
}
END_TEST

START_TEST(buffers_past_the_table_are_counted_and_not_listed)
{
	GM_LIMIT_TEST(TRACKED_BUFFERS);
	enum { N = GM_LIMIT_TRACKED_BUFFERS + 1 };
	static void *p[N];
	gpumem_session *s;
	gm_daemon_configure(&daemon_, GM_DAEMON_CONFIG_WITH("track = all\n", "1G"));
	gm_daemon_signal(&daemon_, SIGHUP);
	gm_daemon_await_notice(&daemon_, "RELOADING=1");
	gm_daemon_await_notice(&daemon_, "READY=1");
	s = join("tracked");
	char tag[64];
	uint64_t untracked = 0;
	for (int i = 0; i < N; i++)
		OK(gpumem_alloc(s, 0, 512, NULL, NULL, &p[i]));
	publish(s);
	GM_REQUIRE_EQ(listed(&untracked, tag), GM_LIMIT_TRACKED_BUFFERS);
	GM_REQUIRE_EQ(untracked, 1);
	/* Free one that was not listed or one that was: all that are alive are told. */
	OK(gpumem_free(s, p[0], GPUMEM_STREAM_DONE));
	publish(s);
	GM_REQUIRE_EQ(listed(&untracked, tag), GM_LIMIT_TRACKED_BUFFERS);
	GM_REQUIRE_EQ(untracked, 0);
	for (int i = 1; i < N; i++)
		OK(gpumem_free(s, p[i], GPUMEM_STREAM_DONE));
	publish(s);
	GM_REQUIRE_EQ(listed(&untracked, tag), 0);
	GM_REQUIRE_EQ(untracked, 0);
	gpumem_disconnect(s);
}
END_TEST

/* ---- several processes */

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
	gm_say_word(channel, 'w');
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
	gm_say(worker.channel, &token, sizeof(token));
	gm_hear_word(worker.channel, 'w');
	GM_REQUIRE(gm_device_is(p, 70 * MIB, 0x22));
	gm_say_word(worker.channel, 'e');
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
	gm_say_word(channel, 'o');
	signal(SIGSEGV, SIG_DFL); /* a sanitizer would turn it into a report */
	*(volatile uint8_t *)gpumem_buffer_ptr(b) = 1;
	gm_say_word(channel, 'w');
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
	gm_say(reader.channel, &token, sizeof(token));
	gm_worker_join(&reader);
	gm_say(writer.channel, &token, sizeof(token));
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
	gm_say_word(channel, 'h');
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

/* ---- events */

struct heard {
	pthread_mutex_t lock;
	pthread_cond_t more;
	unsigned kinds; /* set of 1 << kind */
	gpumem_level level;
	int count;
};

static void hear_event(void *user, const gpumem_event *event)
{
	struct heard *heard = user;
	pthread_mutex_lock(&heard->lock);
	heard->kinds |= 1u << event->kind;
	if (event->kind == GPUMEM_EVENT_PRESSURE)
		heard->level = event->level;
	heard->count++;
	pthread_cond_broadcast(&heard->more);
	pthread_mutex_unlock(&heard->lock);
}

static void await_kind(struct heard *heard, gpumem_event_kind kind)
{
	struct timespec until;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += GM_PATIENCE_MS / 1000;
	pthread_mutex_lock(&heard->lock);
	while (!(heard->kinds & 1u << kind)) {
		if (pthread_cond_timedwait(&heard->more, &heard->lock, &until) == ETIMEDOUT)
			GM_FAIL("event %d never came", (int)kind);
	}
	pthread_mutex_unlock(&heard->lock);
}

START_TEST(pressure_by_another_client_is_heard_and_can_be_read)
{
	struct heard heard = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0};
	double pressure = -1;
	gpumem_level level = GPUMEM_LEVEL_CRITICAL;
	OK(gpumem_on_event(session, hear_event, &heard));
	OK(gpumem_pressure(session, 0, &pressure, &level));
	GM_REQUIRE(pressure == 0 && level == GPUMEM_LEVEL_LOW);
	struct gm_raw raw;
	struct gm_raw_lease lease;
	gm_raw_join(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_lease(&raw, 0, 900 * MIB, &lease), GPUMEM_OK);
	await_kind(&heard, GPUMEM_EVENT_PRESSURE);
	GM_UNTIL(gpumem_pressure(session, 0, &pressure, &level) == GPUMEM_OK &&
		 level == GPUMEM_LEVEL_HIGH);
	GM_REQUIRE(pressure > 0.85 && pressure < 0.95);
	OK(gpumem_on_event(session, NULL, NULL));
	int count = heard.count;
	gm_raw_lease_clear(&lease);
	GM_REQUIRE_EQ(gm_raw_goodbye(&raw), GPUMEM_OK);
	gm_raw_close(&raw);
	GM_UNTIL(gpumem_pressure(session, 0, &pressure, &level) == GPUMEM_OK &&
		 level == GPUMEM_LEVEL_LOW);
	GM_REQUIRE_EQ(heard.count, count);
}
END_TEST

START_TEST(memory_outlives_a_killed_daemon_and_the_session_comes_back)
{
	struct heard heard = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0};
	void *p, *q;
	OK(gpumem_on_event(session, hear_event, &heard));
	OK(gpumem_alloc(session, 0, 20 * MIB, NULL, NULL, &p));
	gm_device_set(p, 20 * MIB, 5);
	gm_daemon_kill(&daemon_);
	await_kind(&heard, GPUMEM_EVENT_LOST);
	GM_REQUIRE(gm_device_is(p, 20 * MIB, 5));
	gm_device_set(p, 20 * MIB, 6);
	/* New memory fails, what is cached works. */
	GM_REQUIRE_EQ(gpumem_alloc(session, 0, 300 * MIB, NULL, NULL, &q), GPUMEM_E_DISCONNECTED);
	OK(gpumem_free(session, p, GPUMEM_STREAM_DONE));
	OK(gpumem_alloc(session, 0, 20 * MIB, NULL, NULL, &p));
	gm_device_set(p, 20 * MIB, 7);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	await_kind(&heard, GPUMEM_EVENT_RESTORED);
	OK(gpumem_alloc(session, 0, 300 * MIB, NULL, NULL, &q));
	GM_REQUIRE(gm_device_is(p, 20 * MIB, 7));
	gm_device_set(q, 300 * MIB, 8);
	OK(gpumem_free(session, p, GPUMEM_STREAM_DONE));
	OK(gpumem_free(session, q, GPUMEM_STREAM_DONE));
	OK(gpumem_on_event(session, NULL, NULL));
}
END_TEST

START_TEST(a_daemon_that_stops_says_goodbye_first)
{
	struct heard heard = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0};
	void *p;
	OK(gpumem_on_event(session, hear_event, &heard));
	OK(gpumem_alloc(session, 0, 4 * MIB, NULL, NULL, &p));
	gm_daemon_signal(&daemon_, SIGTERM);
	await_kind(&heard, GPUMEM_EVENT_GOODBYE);
	await_kind(&heard, GPUMEM_EVENT_LOST);
	GM_REQUIRE_EQ(gm_daemon_wait(&daemon_), 0);
	gm_device_set(p, 4 * MIB, 1);
	OK(gpumem_free(session, p, GPUMEM_STREAM_DONE));
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	await_kind(&heard, GPUMEM_EVENT_RESTORED);
	OK(gpumem_on_event(session, NULL, NULL));
}
END_TEST

START_TEST(no_daemon_is_said_at_once)
{
	gpumem_session *s = NULL;
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	options.socket = "/nonexistent/gpumemd/socket";
	GM_REQUIRE_EQ(gpumem_connect(&options, &s), GPUMEM_E_DISCONNECTED);
	GM_REQUIRE(strstr(gpumem_error_detail(), "/nonexistent/gpumemd/socket"));
	GM_REQUIRE(!s);
}
END_TEST

START_TEST(a_refused_connection_is_told_why)
{
	gm_daemon_configure(&daemon_, GM_DAEMON_CONFIG_WITH("connections_per_uid = 2\n", "1G"));
	gm_daemon_signal(&daemon_, SIGHUP);
	gm_daemon_await_notice(&daemon_, "RELOADING=1");
	gm_daemon_await_notice(&daemon_, "READY=1");
	gpumem_session *second = join("second"), *third = NULL;
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	options.socket = daemon_.socket;
	GM_REQUIRE_EQ(gpumem_connect(&options, &third), GPUMEM_E_LIMIT);
	GM_REQUIRE(strlen(gpumem_error_detail()) > 0);
	gpumem_disconnect(second);
	/* The two there are left can be asked for their figures again. */
	gm_daemon_configure(&daemon_, GM_DAEMON_CONFIG);
	gm_daemon_signal(&daemon_, SIGHUP);
	gm_daemon_await_notice(&daemon_, "READY=1");
}
END_TEST

START_TEST(many_sessions_in_one_process_are_apart)
{
	gpumem_session *s[8];
	void *p[8];
	for (int i = 0; i < 8; i++) {
		s[i] = join("one of eight");
		OK(gpumem_alloc(s[i], 0, MIB, NULL, NULL, &p[i]));
		gm_device_set(p[i], MIB, (uint8_t)i);
	}
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).clients, 9);
	GM_REQUIRE_EQ(gpumem_free(s[1], p[0], NULL), GPUMEM_E_INVALID);
	for (int i = 0; i < 8; i++) {
		GM_REQUIRE(gm_device_is(p[i], MIB, (uint8_t)i));
		gpumem_disconnect(s[i]);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client");
	TCase *tc = tcase_create("client");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, memory_can_be_had_written_and_given_back);
	tcase_add_test(tc, a_trim_gives_all_that_is_unused_to_the_daemon);
	tcase_add_test(tc, what_makes_no_sense_is_refused_with_a_sentence);
	tcase_add_test(tc, options_whose_size_was_forgotten_are_refused_and_not_left_unheard);
	tcase_add_test(tc, the_library_says_the_version_of_its_header);
	tcase_add_test(tc, all_of_the_device_can_be_had_and_no_more);
	tcase_add_test(tc, several_threads_share_a_session);
	tcase_add_test(tc, several_threads_make_share_and_open_buffers);
	tcase_add_test(tc, a_buffer_knows_its_size_device_and_tag);
	tcase_add_test(tc, large_buffers_are_listed_with_tag_and_size);
	tcase_add_test(tc, buffers_past_the_table_are_counted_and_not_listed);
	tcase_add_test(tc, a_buffer_passes_from_process_to_process_without_a_copy);
	tcase_add_test(tc, a_token_survives_being_written_as_text);
	/* The driver lets whoever imports memory choose its own access: on a GPU read-only is a
	 * request. */
	if (!gm_on_gpu())
		tcase_add_test(tc, a_read_only_buffer_can_be_read_and_not_written);
	tcase_add_test(tc, a_forked_child_may_not_use_the_session_and_can_connect_for_itself);
	tcase_add_test(tc, the_memory_of_a_killed_worker_comes_back);
	tcase_add_test(tc, pressure_by_another_client_is_heard_and_can_be_read);
	tcase_add_test(tc, memory_outlives_a_killed_daemon_and_the_session_comes_back);
	tcase_add_test(tc, a_daemon_that_stops_says_goodbye_first);
	tcase_add_test(tc, no_daemon_is_said_at_once);
	tcase_add_test(tc, a_refused_connection_is_told_why);
	tcase_add_test(tc, many_sessions_in_one_process_are_apart);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
