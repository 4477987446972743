/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client library through its public calls, against a daemon that is late, wrong, gone, or back
 * without a memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/wire.h"
#include "common/types.h"
#include "gpumem/gpumem.h"
#include "tests/limit.h"
#include "tests/tap.h"
#include "tests/unit/fake_daemon.h"

#define LARGE GM_TRACK_LARGE_BYTES
#define MIB   (UINT64_C(1) << 20)

static struct fake *fake;
static gpumem_session *session;

static gpumem_status try_connect(uint32_t timeout_ms, gpumem_session **ret)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	options.socket = fake_path(fake);
	options.name = "test";
	options.timeout_ms = timeout_ms;
	return gpumem_connect(&options, ret);
}

static void daemon_only(void)
{
	fake = fake_start();
	session = NULL;
}

static void set_up(void)
{
	daemon_only();
	ck_assert_int_eq(try_connect(20000, &session), GPUMEM_OK);
}

static void tear_down(void)
{
	gpumem_disconnect(session);
	fake_stop(fake);
}

static void says(const char *words)
{
	if (!strstr(gpumem_error_detail(), words))
		ck_abort_msg("\"%s\" is not in \"%s\"", words, gpumem_error_detail());
}

static unsigned open_fds(void)
{
	unsigned n = 0;
	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static gpumem_buffer *make_buffer(size_t size)
{
	gpumem_buffer *buffer;
	gpumem_status status = gpumem_buffer_create(session, 0, size, NULL, &buffer);
	if (status)
		ck_abort_msg("%s", gpumem_error_detail());
	return buffer;
}

/* ---- events, waited for */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned counts[8];
	gpumem_event last[8];
	char text[256];
} heard = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void on_event(void *user, const gpumem_event *event)
{
	pthread_mutex_lock(&heard.lock);
	heard.counts[event->kind]++;
	heard.last[event->kind] = *event;
	if (event->text)
		snprintf(heard.text, sizeof(heard.text), "%s", event->text);
	pthread_cond_broadcast(&heard.changed);
	pthread_mutex_unlock(&heard.lock);
}

static void listen_to(gpumem_session *s)
{
	ck_assert_int_eq(gpumem_on_event(s, on_event, NULL), GPUMEM_OK);
}

static gpumem_event wait_event(gpumem_event_kind kind, unsigned n)
{
	pthread_mutex_lock(&heard.lock);
	while (heard.counts[kind] < n)
		pthread_cond_wait(&heard.changed, &heard.lock);
	gpumem_event event = heard.last[kind];
	pthread_mutex_unlock(&heard.lock);
	return event;
}

/* ---- connecting */

START_TEST(no_daemon_is_told_with_a_remedy)
{
	fake_away(fake);
	ck_assert_int_eq(try_connect(1000, &session), GPUMEM_E_DISCONNECTED);
	says(fake_path(fake));
	says("systemctl start gpumemd");
	ck_assert_ptr_null(session);
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	options.socket = "/nonexistent/socket";
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_E_DISCONNECTED);
	says("no gpumemd at /nonexistent/socket");
}
END_TEST

START_TEST(the_socket_is_found_through_the_environment)
{
	setenv("GPUMEM_SOCKET", fake_path(fake), 1);
	ck_assert_int_eq(gpumem_connect(NULL, &session), GPUMEM_OK);
	gpumem_disconnect(session);
	session = NULL;
	setenv("GPUMEM_SOCKET", "/nonexistent/socket", 1);
	ck_assert_int_eq(gpumem_connect(NULL, &session), GPUMEM_E_DISCONNECTED);
	says("(GPUMEM_SOCKET)");
}
END_TEST

START_TEST(a_socket_path_past_the_limit_is_refused)
{
	GM_LIMIT_TEST(SOCKET_PATH_BYTES);
	char path[GM_LIMIT_SOCKET_PATH_BYTES + 2];
	memset(path, 'x', sizeof(path) - 1);
	path[0] = '/';
	path[sizeof(path) - 1] = '\0';
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	options.socket = path;
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_E_INVALID);
	says("longer than 107 bytes");
	static char huge[3 * PATH_MAX];
	memset(huge, 'x', sizeof(huge) - 1);
	options.socket = huge;
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_E_INVALID);
	path[GM_LIMIT_SOCKET_PATH_BYTES] = '\0';
	options.socket = path;
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_E_DISCONNECTED);
}
END_TEST

START_TEST(another_major_version_is_refused_and_a_newer_minor_is_not)
{
	struct fake_will will = {.major = GM_WIRE_MAJOR + 1};
	fake_will(fake, &will);
	ck_assert_int_eq(try_connect(20000, &session), GPUMEM_E_VERSION);
	says("install matching versions");
	will = (struct fake_will){.refuse = GPUMEM_E_VERSION};
	fake_will(fake, &will);
	ck_assert_int_eq(try_connect(20000, &session), GPUMEM_E_VERSION);
	says("refused by the test");
	will = (struct fake_will){.minor = GM_WIRE_MINOR + 7};
	fake_will(fake, &will);
	ck_assert_int_eq(try_connect(20000, &session), GPUMEM_OK);
}
END_TEST

START_TEST(what_is_no_gpumemd_is_not_taken_for_one)
{
	unsigned before = open_fds();
	struct fake_will will = {.nonsense_hello = true};
	fake_will(fake, &will);
	ck_assert_int_eq(try_connect(20000, &session), GPUMEM_E_PROTOCOL);
	will = (struct fake_will){.mute_hello = true};
	fake_will(fake, &will);
	ck_assert_int_eq(try_connect(20, &session), GPUMEM_E_TIMEOUT);
	says("did not answer the hello");
	will = (struct fake_will){.drop = GM__WIRE__PACKET__BODY_HELLO};
	fake_will(fake, &will);
	ck_assert_int_eq(try_connect(20000, &session), GPUMEM_E_DISCONNECTED);
	says("before it answered the hello");
	fake_hang_up(fake);
	fake_will(fake, &(struct fake_will){0});
	/* Pages and event sockets of the fake come and go with each hello: two page fds and one
	 * end of a channel stay with it. */
	ck_assert_uint_le(open_fds(), before + 2);
}
END_TEST

START_TEST(names_are_checked)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	char name[GM_LIMIT_NAME_BYTES + 2];
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	options.socket = fake_path(fake);
	options.name = name;
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_E_INVALID);
	says("at most 63 bytes");
	options.name = "a\nb";
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_connect(&options, NULL), GPUMEM_E_INVALID);
	name[GM_LIMIT_NAME_BYTES] = '\0';
	options.name = name;
	ck_assert_int_eq(gpumem_connect(&options, &session), GPUMEM_OK);
}
END_TEST

START_TEST(options_of_another_size_are_read_as_far_as_they_go)
{
	struct {
		gpumem_connect_options known;
		char unknown[64];
	} newer = {.known = GPUMEM_CONNECT_OPTIONS_INIT};
	newer.known.size = sizeof(newer);
	newer.known.socket = fake_path(fake);
	memset(newer.unknown, 0xff, sizeof(newer.unknown));
	ck_assert_int_eq(gpumem_connect(&newer.known, &session), GPUMEM_OK);
	/* An older program: it knows the socket and nothing behind it. */
	gpumem_connect_options older = GPUMEM_CONNECT_OPTIONS_INIT;
	older.size = offsetof(gpumem_connect_options, name);
	older.socket = fake_path(fake);
	older.name = (const char *)1;
	gpumem_session *second;
	ck_assert_int_eq(gpumem_connect(&older, &second), GPUMEM_OK);
	gpumem_disconnect(second);
}
END_TEST

/* ---- what is known without a message */

START_TEST(devices_and_pressure_are_known_without_a_message)
{
	uint32_t count = 0;
	ck_assert_int_eq(gpumem_device_count(session, &count), GPUMEM_OK);
	ck_assert_uint_eq(count, 2);
	unsigned asked = fake_seen(fake, GM__WIRE__PACKET__BODY_GET_DEVICES);
	fake_pressure(fake, 1, 250000, 2);
	double pressure = -1;
	gpumem_level level = GPUMEM_LEVEL_LOW;
	ck_assert_int_eq(gpumem_pressure(session, 1, &pressure, &level), GPUMEM_OK);
	ck_assert_double_eq(pressure, 0.25);
	ck_assert_int_eq(level, GPUMEM_LEVEL_HIGH);
	ck_assert_int_eq(gpumem_pressure(session, 1, NULL, NULL), GPUMEM_OK);
	gpumem_device_info_t info = {.size = sizeof(info)};
	ck_assert_int_eq(gpumem_device_info(session, 1, &info), GPUMEM_OK);
	ck_assert_str_eq(info.name, "the other");
	ck_assert_str_eq(info.backend, "host");
	ck_assert_uint_eq(info.number, 1);
	ck_assert_uint_eq(info.capacity, 1000);
	ck_assert_uint_eq(info.available, 500);
	ck_assert_uint_eq(fake_seen(fake, GM__WIRE__PACKET__BODY_GET_DEVICES), asked);
	ck_assert_int_eq(gpumem_pressure(session, 2, &pressure, &level), GPUMEM_E_INVALID);
	says("no device 2");
	ck_assert_int_eq(gpumem_device_info(session, 2, &info), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_device_info(session, 0, NULL), GPUMEM_E_INVALID);
	info.size = 0;
	ck_assert_int_eq(gpumem_device_info(session, 0, &info), GPUMEM_E_INVALID);
	says("size field");
	/* An older program's struct is written as far as it goes. */
	info.size = offsetof(gpumem_device_info_t, total);
	info.total = 77;
	ck_assert_int_eq(gpumem_device_info(session, 0, &info), GPUMEM_OK);
	ck_assert_uint_eq(info.total, 77);
	ck_assert_str_eq(info.name, "the first");
}
END_TEST

/* ---- buffers */

START_TEST(a_buffer_is_one_range_of_several_chunks)
{
	unsigned before = open_fds();
	struct fake_will will = {.per_packet = 1};
	fake_will(fake, &will);
	gpumem_buffer *buffer;
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	options.tag = "weights";
	ck_assert_int_eq(
		gpumem_buffer_create(session, 1, 14 * MIB - 5, &options, &buffer), GPUMEM_OK);
	ck_assert_uint_eq(fake_chunks(fake), 3);
	ck_assert_uint_eq(gpumem_buffer_size(buffer), 14 * MIB - 5);
	ck_assert_uint_eq(gpumem_buffer_device(buffer), 1);
	ck_assert_str_eq(gpumem_buffer_tag(buffer), "weights");
	memset(gpumem_buffer_ptr(buffer), 1, 14 * MIB - 5);
	/* Three chunks of the daemon, and no fd left here. */
	ck_assert_uint_eq(open_fds(), before + 3);
	gpumem_stats_t stats = {.size = sizeof(stats)};
	ck_assert_int_eq(gpumem_stats(session, 1, &stats), GPUMEM_OK);
	ck_assert_uint_eq(stats.in_use, 14 * MIB - 5);
	ck_assert_uint_eq(stats.allocated, 14 * MIB);
	ck_assert_uint_eq(stats.active_buffers, 1);
	ck_assert_uint_eq(stats.misses, 1);
	gpumem_buffer_destroy(buffer);
	fake_wait_leases(fake, 0);
	ck_assert_uint_eq(open_fds(), before);
	ck_assert_int_eq(gpumem_stats(session, 1, &stats), GPUMEM_OK);
	ck_assert_uint_eq(stats.in_use, 0);
	ck_assert_uint_eq(stats.allocated, 0);
	ck_assert_uint_eq(stats.peak, 14 * MIB - 5);
	ck_assert_uint_eq(stats.returns, 3);
}
END_TEST

START_TEST(a_buffer_is_listed_in_the_clients_page)
{
	struct gm_page_row row;
	struct gm_page_use use;
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_buffer *small, *large;
	ck_assert_int_eq(gpumem_buffer_create(session, 0, LARGE - 1, NULL, &small), GPUMEM_OK);
	fake_read_row(fake, 0, &row);
	ck_assert_uint_eq(row.bytes, 0);
	options.tag = "large";
	ck_assert_int_eq(gpumem_buffer_create(session, 0, LARGE, &options, &large), GPUMEM_OK);
	fake_read_row(fake, 0, &row);
	ck_assert_uint_eq(row.bytes, LARGE);
	ck_assert_uint_eq(row.device, 0);
	ck_assert_str_eq(row.tag, "large");
	ck_assert_uint_ne(row.born_ns, 0);
	fake_read_use(fake, 0, &use);
	ck_assert_uint_eq(use.active_buffers, 2);
	ck_assert_uint_eq(use.in_use, 2 * LARGE - 1);
	ck_assert_int_eq(gpumem_buffer_set_tag(large, "renamed"), GPUMEM_OK);
	fake_read_row(fake, 0, &row);
	ck_assert_str_eq(row.tag, "renamed");
	ck_assert_str_eq(gpumem_buffer_tag(large), "renamed");
	gpumem_buffer_destroy(large);
	fake_read_row(fake, 0, &row);
	ck_assert_uint_eq(row.bytes, 0);
	gpumem_buffer_destroy(small);
	fake_read_use(fake, 0, &use);
	ck_assert_uint_eq(use.active_buffers, 0);
}
END_TEST

/* How many rows there are; of those with that many bytes the last one. */
static unsigned rows(uint64_t bytes, struct gm_page_row *ret)
{
	struct gm_page_row row;
	unsigned n = 0;
	for (uint32_t i = 0; i < GM_LIMIT_TRACKED_BUFFERS; i++) {
		fake_read_row(fake, i, &row);
		n += row.bytes != 0;
		if (ret && row.bytes == bytes)
			*ret = row;
	}
	return n;
}

START_TEST(a_block_is_listed_when_somebody_looks_and_no_longer_than_it_lives)
{
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	struct gm_page_row row;
	void *small, *plain, *tagged, *brief;
	ck_assert_int_eq(
		gpumem_alloc(session, 1, LARGE - 1, GPUMEM_STREAM_ANY, NULL, &small), GPUMEM_OK);
	ck_assert_int_eq(
		gpumem_alloc(session, 1, LARGE, GPUMEM_STREAM_ANY, NULL, &plain), GPUMEM_OK);
	options.tag = "weights";
	ck_assert_int_eq(gpumem_alloc(session, 1, LARGE + 1, GPUMEM_STREAM_ANY, &options, &tagged),
		GPUMEM_OK);
	options.tag = "brief";
	ck_assert_int_eq(gpumem_alloc(session, 1, LARGE + 2, GPUMEM_STREAM_ANY, &options, &brief),
		GPUMEM_OK);
	ck_assert_int_eq(gpumem_free(session, brief, GPUMEM_STREAM_DONE), GPUMEM_OK);

	ck_assert_int_eq(gpumem_stats(session, 1, &stats), GPUMEM_OK);
	ck_assert_uint_eq(rows(LARGE, &row), 2);
	ck_assert_uint_eq(row.bytes, LARGE);
	ck_assert_uint_eq(row.device, 1);
	ck_assert_str_eq(row.tag, "");
	ck_assert_uint_ne(row.born_ns, 0);
	rows(LARGE + 1, &row);
	ck_assert_uint_eq(row.bytes, LARGE + 1);
	ck_assert_str_eq(row.tag, "weights");
	uint64_t born_ns = row.born_ns;

	/* It is told once, and keeps its age. */
	ck_assert_int_eq(gpumem_stats(session, 1, &stats), GPUMEM_OK);
	ck_assert_uint_eq(rows(LARGE + 1, &row), 2);
	ck_assert_uint_eq(row.born_ns, born_ns);
	/* Of another device nothing is. */
	ck_assert_int_eq(gpumem_stats(session, 0, &stats), GPUMEM_OK);
	ck_assert_uint_eq(rows(0, NULL), 2);

	/* With the free it is gone, though nobody looks. */
	ck_assert_int_eq(gpumem_free(session, tagged, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_uint_eq(rows(LARGE, &row), 1);
	ck_assert_uint_eq(row.bytes, LARGE);
	ck_assert_int_eq(gpumem_free(session, plain, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_int_eq(gpumem_free(session, small, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_uint_eq(rows(0, NULL), 0);
}
END_TEST

START_TEST(a_block_is_listed_by_the_librarys_thread_too)
{
	void *ptr;
	ck_assert_int_eq(gpumem_alloc(session, 0, LARGE, GPUMEM_STREAM_ANY, NULL, &ptr), GPUMEM_OK);
	while (rows(0, NULL) != 1)
		sched_yield();
	ck_assert_int_eq(gpumem_free(session, ptr, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_uint_eq(rows(0, NULL), 0);
}
END_TEST

START_TEST(blocks_past_the_table_get_the_rows_that_come_free)
{
	enum { N = GM_LIMIT_TRACKED_BUFFERS + 2 };
	static void *ptr[N];
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	struct gm_page_use use;
	gpumem_buffer *buffer;
	for (int i = 0; i < N; i++)
		ck_assert_int_eq(gpumem_alloc(session, 0, LARGE, GPUMEM_STREAM_ANY, NULL, &ptr[i]),
			GPUMEM_OK);
	ck_assert_int_eq(gpumem_stats(session, 0, &stats), GPUMEM_OK);
	ck_assert_uint_eq(rows(0, NULL), GM_LIMIT_TRACKED_BUFFERS);
	fake_read_use(fake, 0, &use);
	ck_assert_uint_eq(use.untracked, 2);
	/* A buffer that finds no row is counted with them. */
	ck_assert_int_eq(gpumem_buffer_create(session, 0, LARGE, NULL, &buffer), GPUMEM_OK);
	fake_read_use(fake, 0, &use);
	ck_assert_uint_eq(use.untracked, 3);
	gpumem_buffer_destroy(buffer);
	/* Whichever goes: all that are alive are told. */
	ck_assert_int_eq(gpumem_free(session, ptr[0], GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_int_eq(gpumem_stats(session, 0, &stats), GPUMEM_OK);
	fake_read_use(fake, 0, &use);
	ck_assert_uint_eq(rows(0, NULL), GM_LIMIT_TRACKED_BUFFERS);
	ck_assert_uint_eq(use.untracked, 1);
	for (int i = 1; i < N; i++)
		ck_assert_int_eq(gpumem_free(session, ptr[i], GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_int_eq(gpumem_stats(session, 0, &stats), GPUMEM_OK);
	fake_read_use(fake, 0, &use);
	ck_assert_uint_eq(rows(0, NULL), 0);
	ck_assert_uint_eq(use.untracked, 0);
}
END_TEST

START_TEST(bad_arguments_are_refused_with_a_sentence)
{
	gpumem_buffer *buffer = NULL;
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_alloc_options alloc = GPUMEM_ALLOC_OPTIONS_INIT;
	gpumem_token token = {{0}};
	void *ptr;
	int local;
	char tag[GM_LIMIT_NAME_BYTES + 2];
	GM_LIMIT_TEST(NAME_BYTES);
	memset(tag, 't', sizeof(tag) - 1);
	tag[sizeof(tag) - 1] = '\0';

	ck_assert_int_eq(gpumem_buffer_create(NULL, 0, 1, NULL, &buffer), GPUMEM_E_INVALID);
	says("NULL");
	ck_assert_int_eq(gpumem_buffer_create(session, 0, 0, NULL, &buffer), GPUMEM_E_INVALID);
	says("0 were asked for");
	ck_assert_int_eq(
		gpumem_buffer_create(session, 0, (size_t)1 << 63, NULL, &buffer), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_buffer_create(session, 2, 1, NULL, &buffer), GPUMEM_E_INVALID);
	says("no device 2");
	ck_assert_int_eq(gpumem_buffer_create(session, 0, 1, NULL, NULL), GPUMEM_E_INVALID);
	options.tag = tag;
	ck_assert_int_eq(gpumem_buffer_create(session, 0, 1, &options, &buffer), GPUMEM_E_INVALID);
	says("at most 63 bytes");
	ck_assert_ptr_null(buffer);

	alloc.tag = tag;
	ck_assert_int_eq(gpumem_alloc(NULL, 0, 1, NULL, NULL, &ptr), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_alloc(session, 0, 0, NULL, NULL, &ptr), GPUMEM_E_INVALID);
	ck_assert_int_eq(
		gpumem_alloc(session, 0, (size_t)1 << 63, NULL, NULL, &ptr), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_alloc(session, 9, 1, NULL, NULL, &ptr), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_alloc(session, 0, 1, NULL, NULL, NULL), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_alloc(session, 0, 1, NULL, &alloc, &ptr), GPUMEM_E_INVALID);
	alloc.tag = NULL;
	alloc.alignment = 3;
	ck_assert_int_eq(gpumem_alloc(session, 0, 1, NULL, &alloc, &ptr), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_free(session, &local, NULL), GPUMEM_E_INVALID);
	says("no memory of this session is there");
	ck_assert_int_eq(gpumem_free(NULL, &local, NULL), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_free(session, NULL, NULL), GPUMEM_OK);

	ck_assert_int_eq(gpumem_share(NULL, NULL, &token), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_unshare(NULL), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_open(session, NULL, &buffer), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_open(session, &token, NULL), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_open(NULL, &token, &buffer), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_open(session, &token, &buffer), GPUMEM_E_NOT_FOUND);
	ck_assert_int_eq(gpumem_buffer_set_tag(NULL, "x"), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_stats(session, 0, NULL), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_stats(NULL, 0, NULL), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_trim(NULL, NULL), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_on_event(NULL, NULL, NULL), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_device_count(session, NULL), GPUMEM_E_INVALID);

	buffer = make_buffer(1);
	gpumem_share_options share = GPUMEM_SHARE_OPTIONS_INIT;
	ck_assert_int_eq(gpumem_share(buffer, NULL, NULL), GPUMEM_E_INVALID);
	share.audience = (gpumem_audience)3;
	ck_assert_int_eq(gpumem_share(buffer, &share, &token), GPUMEM_E_INVALID);
	share = (gpumem_share_options)GPUMEM_SHARE_OPTIONS_INIT;
	share.mode = (gpumem_share_mode)2;
	ck_assert_int_eq(gpumem_share(buffer, &share, &token), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_buffer_set_tag(buffer, "\x01"), GPUMEM_E_INVALID);
	gpumem_buffer_destroy(buffer);
	gpumem_buffer_destroy(NULL);
	gpumem_disconnect(NULL);
	ck_assert_ptr_null(gpumem_buffer_ptr(NULL));
}
END_TEST

START_TEST(a_refusal_of_the_daemon_is_passed_on)
{
	struct fake_will will = {.fail = GM__WIRE__PACKET__BODY_LEASE};
	fake_will(fake, &will);
	gpumem_buffer *buffer;
	void *ptr;
	ck_assert_int_eq(gpumem_buffer_create(session, 0, MIB, NULL, &buffer), GPUMEM_E_NO_MEMORY);
	ck_assert_str_eq(gpumem_error_detail(), "no room");
	ck_assert_int_eq(gpumem_alloc(session, 0, MIB, NULL, NULL, &ptr), GPUMEM_E_NO_MEMORY);
	ck_assert_str_eq(gpumem_error_detail(), "no room");
}
END_TEST

static void sized_buffer(size_t size)
{
	GPUMEM_AUTO_BUFFER gpumem_buffer *buffer = make_buffer(size);
	ck_assert_uint_eq(gpumem_buffer_size(buffer), size);
	fake_wait_leases(fake, 1);
}

START_TEST(an_auto_buffer_ends_with_its_scope)
{
	sized_buffer(MIB);
	fake_wait_leases(fake, 0);
}
END_TEST

START_TEST(a_session_that_ends_takes_everything_along)
{
	unsigned before = open_fds();
	void *ptr;
	make_buffer(4 * MIB);
	make_buffer(MIB);
	ck_assert_int_eq(
		gpumem_alloc(session, 0, 3 * MIB, GPUMEM_STREAM_ANY, NULL, &ptr), GPUMEM_OK);
	unsigned returns = fake_seen(fake, GM__WIRE__PACKET__BODY_RETURN_CHUNKS);
	gpumem_disconnect(session);
	session = NULL;
	ck_assert_uint_eq(fake_seen(fake, GM__WIRE__PACKET__BODY_GOODBYE), 1);
	ck_assert_uint_eq(fake_seen(fake, GM__WIRE__PACKET__BODY_RETURN_CHUNKS), returns);
	fake_wait_leases(fake, 0);
	fake_hang_up(fake);
	ck_assert_uint_lt(open_fds(), before);
}
END_TEST

/* ---- sharing */

START_TEST(a_shared_buffer_is_the_same_memory)
{
	gpumem_session *other;
	gpumem_token token, again;
	char text[GPUMEM_TOKEN_TEXT_BYTES];
	gpumem_buffer *mine = make_buffer(6 * MIB), *theirs;
	ck_assert_int_eq(gpumem_buffer_set_tag(mine, "local"), GPUMEM_OK);
	ck_assert_int_eq(gpumem_share(mine, NULL, &token), GPUMEM_OK);
	gpumem_token_to_text(&token, text);
	ck_assert_uint_eq(strlen(text), 32);
	ck_assert_int_eq(gpumem_token_from_text(text, &again), GPUMEM_OK);
	ck_assert_mem_eq(&token, &again, sizeof(token));
	ck_assert_int_eq(try_connect(20000, &other), GPUMEM_OK);
	ck_assert_int_eq(gpumem_open(other, &again, &theirs), GPUMEM_OK);
	ck_assert_uint_eq(gpumem_buffer_size(theirs), 6 * MIB);
	char *a = gpumem_buffer_ptr(mine), *b = gpumem_buffer_ptr(theirs);
	ck_assert_ptr_ne(a, b);
	a[6 * MIB - 1] = 42;
	ck_assert_int_eq(b[6 * MIB - 1], 42);
	ck_assert_int_eq(gpumem_share(theirs, NULL, &token), GPUMEM_E_DENIED);
	ck_assert_int_eq(gpumem_unshare(mine), GPUMEM_OK);
	gpumem_buffer_destroy(mine);
	ck_assert_int_eq(b[6 * MIB - 1], 42);
	gpumem_buffer_destroy(theirs);
	fake_wait_leases(fake, 0);
	gpumem_disconnect(other);
}
END_TEST

START_TEST(tokens_are_32_digits_and_nothing_else)
{
	gpumem_token token;
	ck_assert_int_eq(gpumem_token_from_text("", &token), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_token_from_text("0123456789abcdef0123456789ABCDE", &token),
		GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_token_from_text("0123456789abcdef0123456789ABCDEFF", &token),
		GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_token_from_text("0123456789abcdef0123456789ABCDEg", &token),
		GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_token_from_text(NULL, &token), GPUMEM_E_INVALID);
	ck_assert_int_eq(
		gpumem_token_from_text("0123456789abcdef0123456789ABCDEF", &token), GPUMEM_OK);
	ck_assert_uint_eq(token.bytes[15], 0xef);
	ck_assert_uint_eq(token.bytes[0], 0x01);
}
END_TEST

/* ---- late and lost answers */

START_TEST(a_lease_that_comes_too_late_goes_back_by_itself)
{
	gpumem_session *hasty;
	gpumem_buffer *buffer;
	ck_assert_int_eq(try_connect(50, &hasty), GPUMEM_OK);
	unsigned before = open_fds();
	struct fake_will will = {.hold = GM__WIRE__PACKET__BODY_LEASE};
	fake_will(fake, &will);
	ck_assert_int_eq(gpumem_buffer_create(hasty, 0, 6 * MIB, NULL, &buffer), GPUMEM_E_TIMEOUT);
	says("within 50 ms");
	fake_wait_leases(fake, 0);
	/* The daemon gets round to it: it grants, in two packets, and has it back. */
	will = (struct fake_will){.per_packet = 1};
	fake_will(fake, &will);
	fake_wait_seen(fake, GM__WIRE__PACKET__BODY_RETURN_CHUNKS, 1);
	fake_wait_leases(fake, 0);
	ck_assert_uint_eq(open_fds(), before);
	gpumem_disconnect(hasty);
}
END_TEST

START_TEST(chunks_that_come_too_late_for_the_heap_go_back_by_themselves)
{
	gpumem_session *hasty;
	void *first, *second;
	ck_assert_int_eq(try_connect(50, &hasty), GPUMEM_OK);
	ck_assert_int_eq(gpumem_alloc(hasty, 0, 3 * MIB, NULL, NULL, &first), GPUMEM_OK);
	unsigned chunks = fake_chunks(fake);
	struct fake_will will = {.hold = GM__WIRE__PACKET__BODY_GROW};
	fake_will(fake, &will);
	ck_assert_int_eq(gpumem_alloc(hasty, 0, 64 * MIB, NULL, NULL, &second), GPUMEM_E_TIMEOUT);
	fake_will(fake, &(struct fake_will){0});
	fake_wait_seen(fake, GM__WIRE__PACKET__BODY_RETURN_CHUNKS, 1);
	/* The return was answered when the next request is. */
	ck_assert_int_eq(gpumem_free(hasty, first, GPUMEM_STREAM_DONE), GPUMEM_OK);
	while (fake_chunks(fake) > chunks) {
		gpumem_buffer *buffer;
		ck_assert_int_eq(gpumem_buffer_create(hasty, 0, MIB, NULL, &buffer), GPUMEM_OK);
		gpumem_buffer_destroy(buffer);
	}
	gpumem_disconnect(hasty);
}
END_TEST

START_TEST(handles_lost_on_the_way_are_asked_for_again)
{
	unsigned before = open_fds();
	struct fake_will will = {.cut = 2, .per_packet = 2};
	fake_will(fake, &will);
	gpumem_buffer *buffer = make_buffer(14 * MIB);
	ck_assert_uint_ge(fake_seen(fake, GM__WIRE__PACKET__BODY_GET_HANDLES), 1);
	memset(gpumem_buffer_ptr(buffer), 7, 14 * MIB);
	gpumem_buffer_destroy(buffer);
	fake_wait_leases(fake, 0);
	ck_assert_uint_eq(open_fds(), before);
}
END_TEST

START_TEST(a_process_that_stays_at_its_limit_of_files_is_told_so)
{
	struct fake_will will = {.cut = UINT_MAX};
	fake_will(fake, &will);
	gpumem_buffer *buffer = NULL;
	ck_assert_int_eq(gpumem_buffer_create(session, 0, 2 * MIB, NULL, &buffer), GPUMEM_E_SYSTEM);
	says("open files");
	says("ulimit -n");
	ck_assert_ptr_null(buffer);
	fake_wait_leases(fake, 0);
}
END_TEST

/* ---- the daemon goes and comes */

START_TEST(what_is_held_works_on_while_the_daemon_is_away)
{
	void *ptr, *more;
	listen_to(session);
	gpumem_buffer *buffer = make_buffer(4 * MIB), *other;
	memset(gpumem_buffer_ptr(buffer), 3, 4 * MIB);
	ck_assert_int_eq(gpumem_alloc(session, 0, 4096, NULL, NULL, &ptr), GPUMEM_OK);
	fake_away(fake);
	wait_event(GPUMEM_EVENT_LOST, 1);
	ck_assert_int_eq(
		gpumem_buffer_create(session, 0, MIB, NULL, &other), GPUMEM_E_DISCONNECTED);
	says("is away");
	ck_assert_int_eq(((char *)gpumem_buffer_ptr(buffer))[4 * MIB - 1], 3);
	/* The chunk has room: no message is needed. */
	ck_assert_int_eq(gpumem_alloc(session, 0, 4096, NULL, NULL, &more), GPUMEM_OK);
	ck_assert_int_eq(gpumem_free(session, more, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_int_eq(
		gpumem_alloc(session, 0, 512 * MIB, NULL, NULL, &more), GPUMEM_E_DISCONNECTED);
	ck_assert_int_eq(gpumem_pressure(session, 0, NULL, NULL), GPUMEM_OK);
	gpumem_buffer_destroy(buffer);
	ck_assert_int_eq(gpumem_free(session, ptr, GPUMEM_STREAM_DONE), GPUMEM_OK);
	/* Disconnecting needs no daemon. */
	gpumem_disconnect(session);
	session = NULL;
}
END_TEST

START_TEST(a_session_is_taken_up_again_with_all_it_holds)
{
	listen_to(session);
	gpumem_buffer *kept = make_buffer(LARGE), *given = make_buffer(2 * MIB), *fresh;
	memset(gpumem_buffer_ptr(kept), 3, LARGE);
	fake_away(fake);
	wait_event(GPUMEM_EVENT_LOST, 1);
	/* Given back while nobody listens; and the daemon has one that nobody here knows. */
	gpumem_buffer_destroy(given);
	fake_wait_leases(fake, 2);
	fake_add_lease(fake, 2 * MIB);
	fake_back(fake);
	gpumem_event event = wait_event(GPUMEM_EVENT_RESTORED, 1);
	ck_assert_int_eq(event.kind, GPUMEM_EVENT_RESTORED);
	fake_wait_leases(fake, 1);
	ck_assert_int_eq(((char *)gpumem_buffer_ptr(kept))[0], 3);
	ck_assert_int_eq(gpumem_buffer_create(session, 0, MIB, NULL, &fresh), GPUMEM_OK);
	/* The new pages go on where the old ones ended. */
	struct gm_page_row row;
	fake_read_row(fake, 0, &row);
	ck_assert_uint_eq(row.bytes, LARGE);
	fake_pressure(fake, 0, 750000, 3);
	double pressure;
	ck_assert_int_eq(gpumem_pressure(session, 0, &pressure, NULL), GPUMEM_OK);
	ck_assert_double_eq(pressure, 0.75);
	/* And so does the event channel. */
	fake_send_pressure(fake, 1, 500000, 1);
	wait_event(GPUMEM_EVENT_PRESSURE, 1);
	gpumem_token token;
	ck_assert_int_eq(gpumem_share(kept, NULL, &token), GPUMEM_OK);
	gpumem_buffer_destroy(fresh);
	gpumem_buffer_destroy(kept);
	fake_wait_leases(fake, 0);
}
END_TEST

START_TEST(a_grant_whose_answer_was_lost_goes_back_at_the_resume)
{
	void *first, *second;
	gpumem_buffer *buffer;
	listen_to(session);
	ck_assert_int_eq(gpumem_alloc(session, 0, 3 * MIB, NULL, NULL, &first), GPUMEM_OK);
	unsigned chunks = fake_chunks(fake);
	struct fake_will will = {.drop = GM__WIRE__PACKET__BODY_GROW};
	fake_will(fake, &will);
	ck_assert_int_eq(
		gpumem_alloc(session, 0, 64 * MIB, NULL, NULL, &second), GPUMEM_E_DISCONNECTED);
	ck_assert_uint_gt(fake_chunks(fake), chunks);
	wait_event(GPUMEM_EVENT_RESTORED, 1);
	ck_assert_uint_eq(fake_chunks(fake), chunks);
	will = (struct fake_will){.drop = GM__WIRE__PACKET__BODY_LEASE};
	fake_will(fake, &will);
	ck_assert_int_eq(
		gpumem_buffer_create(session, 0, 8 * MIB, NULL, &buffer), GPUMEM_E_DISCONNECTED);
	wait_event(GPUMEM_EVENT_RESTORED, 2);
	fake_wait_leases(fake, 1);
	ck_assert_uint_eq(fake_chunks(fake), chunks);
	memset(first, 1, 3 * MIB);
	ck_assert_int_eq(gpumem_free(session, first, GPUMEM_STREAM_DONE), GPUMEM_OK);
}
END_TEST

START_TEST(a_daemon_that_forgot_the_session_gives_a_new_one)
{
	listen_to(session);
	void *ptr, *more;
	gpumem_buffer *old = make_buffer(4 * MIB);
	memset(gpumem_buffer_ptr(old), 3, 4 * MIB);
	ck_assert_int_eq(gpumem_alloc(session, 0, 3 * MIB, NULL, NULL, &ptr), GPUMEM_OK);
	fake_away(fake);
	wait_event(GPUMEM_EVENT_LOST, 1);
	struct fake_will will = {.forget = true};
	fake_will(fake, &will);
	fake_back(fake);
	wait_event(GPUMEM_EVENT_RESTORED, 1);
	ck_assert_ptr_nonnull(strstr(heard.text, "started anew"));
	fake_will(fake, &(struct fake_will){0});
	fake_wait_leases(fake, 0);
	/* What was held works on, but the daemon knows nothing of it. */
	memset(ptr, 4, 3 * MIB);
	ck_assert_int_eq(((char *)gpumem_buffer_ptr(old))[4 * MIB - 1], 3);
	gpumem_token token;
	ck_assert_int_eq(gpumem_share(old, NULL, &token), GPUMEM_E_DISCONNECTED);
	says("started anew");
	ck_assert_int_eq(gpumem_alloc(session, 0, 64 * MIB, NULL, NULL, &more), GPUMEM_OK);
	gpumem_buffer *fresh = make_buffer(2 * MIB);
	fake_wait_leases(fake, 2);
	unsigned returns = fake_seen(fake, GM__WIRE__PACKET__BODY_RETURN_CHUNKS);
	gpumem_buffer_destroy(old);
	ck_assert_uint_eq(fake_seen(fake, GM__WIRE__PACKET__BODY_RETURN_CHUNKS), returns);
	gpumem_buffer_destroy(fresh);
	fake_wait_leases(fake, 1);
	ck_assert_int_eq(gpumem_free(session, ptr, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_int_eq(gpumem_free(session, more, GPUMEM_STREAM_DONE), GPUMEM_OK);
	uint64_t bytes = 0;
	ck_assert_int_eq(gpumem_trim(session, &bytes), GPUMEM_OK);
	ck_assert_uint_ge(bytes, 67 * MIB);
	ck_assert_uint_eq(fake_chunks(fake), 0);
}
END_TEST

/* ---- events */

START_TEST(events_reach_the_program)
{
	listen_to(session);
	fake_send_pressure(fake, 1, 900000, 2);
	gpumem_event event = wait_event(GPUMEM_EVENT_PRESSURE, 1);
	ck_assert_uint_eq(event.size, sizeof(event));
	ck_assert_uint_eq(event.device, 1);
	ck_assert_int_eq(event.level, GPUMEM_LEVEL_HIGH);
	ck_assert_double_eq(event.pressure, 0.9);
	fake_send_goodbye(fake, "an upgrade");
	wait_event(GPUMEM_EVENT_GOODBYE, 1);
	ck_assert_str_eq(heard.text, "an upgrade");
}
END_TEST

START_TEST(a_reclaim_gives_back_what_is_cached)
{
	void *ptr;
	listen_to(session);
	ck_assert_int_eq(gpumem_alloc(session, 0, 8 * MIB, NULL, NULL, &ptr), GPUMEM_OK);
	ck_assert_int_eq(gpumem_free(session, ptr, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_uint_ge(fake_chunks(fake), 1);
	fake_send_reclaim(fake, 0, true);
	gpumem_event event = wait_event(GPUMEM_EVENT_RECLAIM, 1);
	ck_assert_int_eq(event.urgent, 1);
	ck_assert_uint_ge(event.bytes, 8 * MIB);
	ck_assert_uint_eq(fake_chunks(fake), 0);
}
END_TEST

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool inside, go;
	_Atomic bool left;
	gpumem_status nested;
} slow = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void slow_event(void *user, const gpumem_event *event)
{
	slow.nested = gpumem_on_event(session, NULL, NULL);
	gpumem_disconnect(session); /* refused: it would wait for itself */
	pthread_mutex_lock(&slow.lock);
	slow.inside = true;
	pthread_cond_broadcast(&slow.changed);
	while (!slow.go)
		pthread_cond_wait(&slow.changed, &slow.lock);
	pthread_mutex_unlock(&slow.lock);
	slow.left = true;
}

static void *end_events(void *ctx)
{
	gpumem_status status = gpumem_on_event(session, NULL, NULL);
	return (void *)(uintptr_t)(status == GPUMEM_OK && slow.left);
}

START_TEST(no_function_runs_after_it_was_taken_away)
{
	ck_assert_int_eq(gpumem_on_event(session, slow_event, NULL), GPUMEM_OK);
	fake_send_pressure(fake, 0, 1, 0);
	pthread_mutex_lock(&slow.lock);
	while (!slow.inside)
		pthread_cond_wait(&slow.changed, &slow.lock);
	pthread_mutex_unlock(&slow.lock);
	pthread_t thread;
	ck_assert_int_eq(pthread_create(&thread, NULL, end_events, NULL), 0);
	/* The session works meanwhile. */
	gpumem_buffer_destroy(make_buffer(MIB));
	pthread_mutex_lock(&slow.lock);
	slow.go = true;
	pthread_cond_broadcast(&slow.changed);
	pthread_mutex_unlock(&slow.lock);
	void *ok;
	ck_assert_int_eq(pthread_join(thread, &ok), 0);
	ck_assert_ptr_nonnull(ok);
	ck_assert_int_eq(slow.nested, GPUMEM_E_BUSY);
}
END_TEST

/* ---- forks */

/* Thread sanitizer lets no child of a program with threads start another. */
#if defined(__SANITIZE_THREAD__)
#define CHILD_THREADS 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CHILD_THREADS 0
#endif
#endif
#ifndef CHILD_THREADS
#define CHILD_THREADS 1
#endif

static int in_child(void)
{
	uint32_t count;
	void *ptr;
	gpumem_buffer *buffer;
	if (gpumem_device_count(session, &count) != GPUMEM_E_FORKED ||
		gpumem_alloc(session, 0, 4096, NULL, NULL, &ptr) != GPUMEM_E_FORKED ||
		gpumem_free(session, &count, NULL) != GPUMEM_E_FORKED ||
		gpumem_buffer_create(session, 0, MIB, NULL, &buffer) != GPUMEM_E_FORKED ||
		gpumem_pressure(session, 0, NULL, NULL) != GPUMEM_E_FORKED ||
		gpumem_trim(session, NULL) != GPUMEM_E_FORKED ||
		gpumem_on_event(session, NULL, NULL) != GPUMEM_E_FORKED)
		return 1;
	if (!strstr(gpumem_error_detail(), "connect again in the child"))
		return 2;
	gpumem_disconnect(session);
	if (!CHILD_THREADS)
		return 0;
	gpumem_session *own;
	if (try_connect(20000, &own))
		return 3;
	/* The child's own session does not make the parent's valid. */
	if (gpumem_device_count(session, &count) != GPUMEM_E_FORKED)
		return 4;
	if (gpumem_buffer_create(own, 0, MIB, NULL, &buffer) ||
		gpumem_alloc(own, 0, 4096, NULL, NULL, &ptr))
		return 5;
	memset(ptr, 1, 4096);
	gpumem_disconnect(own);
	return 0;
}

START_TEST(a_child_has_no_part_in_its_parents_session)
{
	void *ptr;
	gpumem_buffer *buffer = make_buffer(MIB);
	ck_assert_int_eq(gpumem_alloc(session, 0, 4096, NULL, NULL, &ptr), GPUMEM_OK);
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid)
		_exit(in_child());
	int status;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	/* The parent goes on. */
	memset(gpumem_buffer_ptr(buffer), 1, MIB);
	ck_assert_int_eq(gpumem_free(session, ptr, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_int_eq(gpumem_device_count(session, &(uint32_t){0}), GPUMEM_OK);
}
END_TEST

/* ---- many threads */

static void *busy(void *ctx)
{
	for (unsigned i = 0; i < 40; i++) {
		gpumem_buffer *buffer;
		void *ptr;
		double pressure;
		if (gpumem_buffer_create(session, i % 2, (1 + i % 5) * MIB, NULL, &buffer))
			return (void *)1;
		memset(gpumem_buffer_ptr(buffer), (int)i, 4096);
		if (gpumem_alloc(session, i % 2, 512 + i * 4096, NULL, NULL, &ptr))
			return (void *)2;
		memset(ptr, (int)i, 512);
		if (gpumem_pressure(session, 0, &pressure, NULL))
			return (void *)3;
		gpumem_buffer_destroy(buffer);
		if (gpumem_free(session, ptr, GPUMEM_STREAM_DONE))
			return (void *)4;
	}
	return NULL;
}

START_TEST(many_threads_use_one_session)
{
	enum { N = 6 };
	pthread_t threads[N];
	listen_to(session);
	struct fake_will will = {.per_packet = 1};
	fake_will(fake, &will);
	for (unsigned i = 0; i < N; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, busy, NULL), 0);
	for (unsigned i = 0; i < 20; i++) {
		fake_send_reclaim(fake, i % 2, true);
		fake_send_pressure(fake, 0, i, 0);
	}
	for (unsigned i = 0; i < N; i++) {
		void *bad;
		ck_assert_int_eq(pthread_join(threads[i], &bad), 0);
		ck_assert_ptr_null(bad);
	}
	ck_assert_int_eq(gpumem_trim(session, NULL), GPUMEM_OK);
	ck_assert_uint_eq(fake_chunks(fake), 0);
}
END_TEST

static _Atomic bool over;

static void *stubborn(void *ctx)
{
	while (!over) {
		gpumem_buffer *buffer;
		gpumem_status status = gpumem_buffer_create(session, 0, 3 * MIB, NULL, &buffer);
		if (status == GPUMEM_OK) {
			memset(gpumem_buffer_ptr(buffer), 1, 3 * MIB);
			gpumem_buffer_destroy(buffer);
		} else if (status != GPUMEM_E_DISCONNECTED) {
			return (void *)1;
		}
	}
	return NULL;
}

START_TEST(nothing_is_lost_when_the_connection_breaks_again_and_again)
{
	enum { N = 4 };
	pthread_t threads[N];
	listen_to(session);
	for (unsigned i = 0; i < N; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, stubborn, NULL), 0);
	for (unsigned i = 1; i <= 5; i++) {
		fake_wait_seen(fake, GM__WIRE__PACKET__BODY_LEASE,
			fake_seen(fake, GM__WIRE__PACKET__BODY_LEASE) + 20);
		fake_hang_up(fake);
		wait_event(GPUMEM_EVENT_RESTORED, i);
	}
	over = true;
	for (unsigned i = 0; i < N; i++) {
		void *bad;
		ck_assert_int_eq(pthread_join(threads[i], &bad), 0);
		ck_assert_ptr_null(bad);
	}
	fake_wait_leases(fake, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client session");
	TCase *first = tcase_create("connecting");
	tcase_set_timeout(first, 60);
	tcase_add_checked_fixture(first, daemon_only, tear_down);
	tcase_add_test(first, no_daemon_is_told_with_a_remedy);
	tcase_add_test(first, the_socket_is_found_through_the_environment);
	tcase_add_test(first, a_socket_path_past_the_limit_is_refused);
	tcase_add_test(first, another_major_version_is_refused_and_a_newer_minor_is_not);
	tcase_add_test(first, what_is_no_gpumemd_is_not_taken_for_one);
	tcase_add_test(first, names_are_checked);
	tcase_add_test(first, options_of_another_size_are_read_as_far_as_they_go);
	suite_add_tcase(suite, first);
	TCase *tc = tcase_create("session");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, devices_and_pressure_are_known_without_a_message);
	tcase_add_test(tc, a_buffer_is_one_range_of_several_chunks);
	tcase_add_test(tc, a_buffer_is_listed_in_the_clients_page);
	tcase_add_test(tc, a_block_is_listed_when_somebody_looks_and_no_longer_than_it_lives);
	tcase_add_test(tc, a_block_is_listed_by_the_librarys_thread_too);
	tcase_add_test(tc, blocks_past_the_table_get_the_rows_that_come_free);
	tcase_add_test(tc, bad_arguments_are_refused_with_a_sentence);
	tcase_add_test(tc, a_refusal_of_the_daemon_is_passed_on);
	tcase_add_test(tc, an_auto_buffer_ends_with_its_scope);
	tcase_add_test(tc, a_session_that_ends_takes_everything_along);
	tcase_add_test(tc, a_shared_buffer_is_the_same_memory);
	tcase_add_test(tc, tokens_are_32_digits_and_nothing_else);
	tcase_add_test(tc, a_lease_that_comes_too_late_goes_back_by_itself);
	tcase_add_test(tc, chunks_that_come_too_late_for_the_heap_go_back_by_themselves);
	tcase_add_test(tc, handles_lost_on_the_way_are_asked_for_again);
	tcase_add_test(tc, a_process_that_stays_at_its_limit_of_files_is_told_so);
	tcase_add_test(tc, what_is_held_works_on_while_the_daemon_is_away);
	tcase_add_test(tc, a_session_is_taken_up_again_with_all_it_holds);
	tcase_add_test(tc, a_grant_whose_answer_was_lost_goes_back_at_the_resume);
	tcase_add_test(tc, a_daemon_that_forgot_the_session_gives_a_new_one);
	tcase_add_test(tc, events_reach_the_program);
	tcase_add_test(tc, a_reclaim_gives_back_what_is_cached);
	tcase_add_test(tc, no_function_runs_after_it_was_taken_away);
	tcase_add_test(tc, a_child_has_no_part_in_its_parents_session);
	tcase_add_test(tc, many_threads_use_one_session);
	tcase_add_test(tc, nothing_is_lost_when_the_connection_breaks_again_and_again);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
