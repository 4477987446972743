/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session and who uses it: what it knows without a message, what it refuses, what it takes along
 * when it ends, a forked child, many threads.
 */
#include <glob.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/wire/wire.h"
#include "gpumem/gpumem_chunk.h"
#include "gpumem/gpumem_graph.h"
#include "gpumem/gpumem_managed.h"
#include "gpumem/gpumem_region.h"
#include "gpumem/gpumem_share.h"
#include "tests/bound.h"
#include "tests/tap.h"
#include "tests/unit/session/heard.h"
#include "tests/unit/open_fds.h"
#include "tests/unit/session/session_fixture.h"

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

/* Every call that takes the number of a device, with arguments that are right but for that. */
static gpumem_status ask_info(uint32_t device)
{
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	return gpumem_device_info(session, device, &info);
}

static gpumem_status ask_pressure(uint32_t device)
{
	double pressure;
	return gpumem_pressure(session, device, &pressure, NULL);
}

static gpumem_status ask_stats(uint32_t device)
{
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	return gpumem_stats(session, device, &stats);
}

static gpumem_status ask_alloc(uint32_t device)
{
	void *ptr;
	return gpumem_alloc(session, device, 1, GPUMEM_STREAM_ANY, NULL, &ptr);
}

static gpumem_status ask_graph(uint32_t device)
{
	uint64_t graph;
	return gpumem_graph_of(session, device, NULL, &graph);
}

static gpumem_status ask_buffer(uint32_t device)
{
	gpumem_buffer *buffer;
	return gpumem_buffer_create(session, device, 1, NULL, &buffer);
}

static gpumem_status begin_alloc(uint32_t device)
{
	gpumem_request *request;
	return gpumem_alloc_begin(session, device, 1, NULL, NULL, &request);
}

static gpumem_status begin_buffer(uint32_t device)
{
	gpumem_request *request;
	return gpumem_buffer_create_begin(session, device, 1, NULL, &request);
}

static gpumem_status ask_batch(uint32_t device)
{
	const gpumem_batch_entry entry = {.bytes = 1};
	gpumem_batch *batch;
	return gpumem_batch_create(session, device, &entry, 1, NULL, &batch);
}

static gpumem_status count_passed(uint32_t device)
{
	return gpumem_count_passed(session, device, 1);
}

static gpumem_status ask_chunk(uint32_t device)
{
	gpumem_chunk *chunk;
	int fd;
	return gpumem_chunk_create(session, device, GPUMEM_CHUNK_GRANULARITY, NULL, &chunk, &fd);
}

static gpumem_status ask_managed(uint32_t device)
{
	gpumem_managed *managed;
	return gpumem_managed_create(session, device, 1, NULL, &managed);
}

static gpumem_status declare(uint32_t device)
{
	return gpumem_declare(session, device, 1, 0);
}

static gpumem_status undeclare(uint32_t device)
{
	return gpumem_undeclare(session, device, 1);
}

static gpumem_status ask_declared(uint32_t device)
{
	uint64_t bytes;
	return gpumem_declared(session, device, &bytes);
}

static gpumem_status ask_region(uint32_t device)
{
	gpumem_region *region;
	return gpumem_region_create(session, device, "a region", 1, NULL, &region);
}

static const struct {
	gpumem_status (*ask)(uint32_t device);
	gpumem_status host; /* for GPUMEM_DEVICE_HOST, where the daemon hands out none */
} calls_with_a_device[] = {
	{ask_info, GPUMEM_E_UNSUPPORTED},
	{ask_pressure, GPUMEM_E_UNSUPPORTED},
	{ask_stats, GPUMEM_E_UNSUPPORTED},
	{count_passed, GPUMEM_E_UNSUPPORTED},
	{ask_alloc, GPUMEM_E_INVALID},
	{ask_graph, GPUMEM_E_INVALID},
	{ask_buffer, GPUMEM_E_UNSUPPORTED},
	{begin_alloc, GPUMEM_E_INVALID},
	{begin_buffer, GPUMEM_E_UNSUPPORTED},
	{ask_batch, GPUMEM_E_UNSUPPORTED},
	{ask_chunk, GPUMEM_E_UNSUPPORTED},
	{ask_managed, GPUMEM_E_INVALID},
	{declare, GPUMEM_E_UNSUPPORTED},
	{undeclare, GPUMEM_E_UNSUPPORTED},
	{ask_declared, GPUMEM_E_UNSUPPORTED},
	{ask_region, GPUMEM_E_INVALID},
};

/* How many functions of a header take the number of a device. */
static size_t declared_in(const char *path)
{
	char line[256];
	size_t n = 0;
	FILE *header = fopen(path, "re");
	ck_assert_ptr_nonnull(header);
	while (fgets(line, sizeof(line), header))
		n += strstr(line, "uint32_t device,") != NULL;
	fclose(header);
	return n;
}

START_TEST(a_device_that_does_not_exist_is_not_found_by_any_call)
{
	const size_t n = sizeof(calls_with_a_device) / sizeof(calls_with_a_device[0]);
	for (size_t i = 0; i < n; i++) {
		ck_assert_int_eq(calls_with_a_device[i].ask(2), GPUMEM_E_NOT_FOUND);
		says("no device 2: besides pinned host memory there are 2, numbered from 0");
		ck_assert_int_eq(calls_with_a_device[i].ask(UINT32_MAX - 1), GPUMEM_E_NOT_FOUND);
		ck_assert_int_eq(calls_with_a_device[i].ask(GPUMEM_DEVICE_HOST),
			calls_with_a_device[i].host);
	}

	/* A new call with a device needs a row above. gpumem_weights.h is another library's. */
	const char *top = getenv("top_srcdir");
	char pattern[4096];
	glob_t headers;
	size_t declared = 0;
	snprintf(pattern, sizeof(pattern), "%s/include/gpumem/*.h", top ? top : ".");
	ck_assert_int_eq(glob(pattern, 0, NULL, &headers), 0);
	for (size_t i = 0; i < headers.gl_pathc; i++)
		if (!strstr(headers.gl_pathv[i], "/gpumem_weights.h"))
			declared += declared_in(headers.gl_pathv[i]);
	globfree(&headers);
	ck_assert_uint_eq(declared, n);
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
	char tag[GM_BOUND_NAME_BYTES + 2];
	GM_BOUND_TEST(NAME_BYTES);
	memset(tag, 't', sizeof(tag) - 1);
	tag[sizeof(tag) - 1] = '\0';

	ck_assert_int_eq(gpumem_buffer_create(NULL, 0, 1, NULL, &buffer), GPUMEM_E_INVALID);
	says("NULL");
	ck_assert_int_eq(gpumem_buffer_create(session, 0, 0, NULL, &buffer), GPUMEM_E_INVALID);
	says("0 were asked for");
	ck_assert_int_eq(
		gpumem_buffer_create(session, 0, (size_t)1 << 63, NULL, &buffer), GPUMEM_E_INVALID);
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
	ck_assert_int_eq(gpumem_alloc(session, 0, 1, NULL, NULL, NULL), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_alloc(session, 0, 1, NULL, &alloc, &ptr), GPUMEM_E_INVALID);
	alloc.tag = NULL;
	alloc.alignment = 3;
	ck_assert_int_eq(gpumem_alloc(session, 0, 1, NULL, &alloc, &ptr), GPUMEM_E_INVALID);
	ck_assert_int_eq(gpumem_free(session, &local, NULL), GPUMEM_E_INVALID);
	says("this session has no memory there");
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

/* Else a limit that somebody wrote into the environment would not hold, and nobody would know. */
START_TEST(a_run_that_makes_no_sense_is_refused_with_a_sentence)
{
	static const struct {
		const char *run, *limit, *priority, *says;
	} wrong[] = {
		{"ab-c", NULL, NULL,
			"GPUMEM_RUN must be 1 to 32 letters and digits, and is 'ab-c'"},
		{"", NULL, NULL, "GPUMEM_RUN must be"},
		{"123456789012345678901234567890123", NULL, NULL, "GPUMEM_RUN must be"},
		{"a", "32M", NULL, "GPUMEM_RUN_LIMIT must be a number of bytes, and is '32M'"},
		{"a", "", NULL, "GPUMEM_RUN_LIMIT must be"},
		{"a", "-1", NULL, "GPUMEM_RUN_LIMIT must be"},
		{"a", "1", "low",
			"GPUMEM_RUN_PRIORITY must be a number from -1000 to 0, and is 'low'"},
		{"a", "1", "1", "GPUMEM_RUN_PRIORITY must be"},
		{"a", "1", "-1001", "GPUMEM_RUN_PRIORITY must be"},
		{"a", "1", "-", "GPUMEM_RUN_PRIORITY must be"},
	};
	gpumem_session *another = NULL;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		setenv("GPUMEM_RUN", wrong[i].run, 1);
		if (wrong[i].limit)
			setenv("GPUMEM_RUN_LIMIT", wrong[i].limit, 1);
		if (wrong[i].priority)
			setenv("GPUMEM_RUN_PRIORITY", wrong[i].priority, 1);
		ck_assert_int_eq(try_connect(20000, &another), GPUMEM_E_INVALID);
		ck_assert_ptr_null(another);
		says(wrong[i].says);
	}

	setenv("GPUMEM_RUN", "12345678901234567890123456789012", 1);
	setenv("GPUMEM_RUN_PRIORITY", "-1000", 1);
	ck_assert_int_eq(try_connect(20000, &another), GPUMEM_OK);
	gpumem_disconnect(another);

	/* Without a run, nobody reads its limit. */
	unsetenv("GPUMEM_RUN");
	setenv("GPUMEM_RUN_LIMIT", "32M", 1);
	ck_assert_int_eq(try_connect(20000, &another), GPUMEM_OK);
	gpumem_disconnect(another);
	unsetenv("GPUMEM_RUN_LIMIT");
	unsetenv("GPUMEM_RUN_PRIORITY");
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
		fake_send_reclaim(fake, i % 2, true, 0);
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

static void take_own(void *user, const gpumem_name *name)
{
	*(uint32_t *)user = name->own;
}

/* In a user namespace, uids differ. An older daemon says nothing, so there the uid decides. */
START_TEST(the_daemon_knows_whose_a_name_is_and_else_the_uid_tells)
{
	for (int whose = 0; whose < 3; whose++) {
		uint32_t own = 77;
		fake_will(fake, &(struct fake_will){.whose = whose});
		ck_assert_int_eq(gpumem_names(session, take_own, &own), GPUMEM_OK);
		ck_assert_uint_eq(own, whose != 2);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client session");
	TCase *tc = tcase_create("session");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, devices_and_pressure_are_known_without_a_message);
	tcase_add_test(tc, a_device_that_does_not_exist_is_not_found_by_any_call);
	tcase_add_test(tc, bad_arguments_are_refused_with_a_sentence);
	tcase_add_test(tc, a_run_that_makes_no_sense_is_refused_with_a_sentence);
	tcase_add_test(tc, a_session_that_ends_takes_everything_along);
	tcase_add_test(tc, a_child_has_no_part_in_its_parents_session);
	tcase_add_test(tc, many_threads_use_one_session);
	tcase_add_test(tc, the_daemon_knows_whose_a_name_is_and_else_the_uid_tells);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
