/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The client library against a real daemon, in one process: what a worker program does with memory,
 * from several threads and in several sessions, and what it is refused.
 */

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bounds.h"
#include "tests/integration/client_fixture.h"
#include "tests/integration/device.h"
#include "tests/tap.h"

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
	GM_REQUIRE(strstr(gpumem_error_detail(), "size must not be 0"));
	gpumem_alloc_options odd = GPUMEM_ALLOC_OPTIONS_INIT;
	odd.alignment = 3;
	GM_REQUIRE_EQ(gpumem_alloc(session, 0, 1, NULL, &odd, &p), GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gpumem_error_detail(), "cannot allocate 1 byte: the alignment"));
	GM_REQUIRE(p == &p);
	gpumem_status status = gpumem_alloc(session, 7, 4096, NULL, NULL, &p);
	GM_REQUIRE(status == GPUMEM_E_NOT_FOUND || status == GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gpumem_error_detail(), "pinned host memory has a name instead"));
	GM_REQUIRE(strstr(gpumem_error_detail(), "no device 7: besides pinned host memory there "));
	status = gpumem_alloc(session, 0, (size_t)1 << 63, NULL, NULL, &p);
	GM_REQUIRE(status == GPUMEM_E_INVALID || status == GPUMEM_E_NO_MEMORY);
	GM_REQUIRE_EQ(gpumem_alloc(session, 0, SIZE_MAX, NULL, NULL, &p), GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gpumem_error_detail(), "no device is that large"));
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
	char tag[GM_BOUND_NAME_BYTES + 2];
	memset(tag, 't', sizeof(tag));
	tag[GM_BOUND_NAME_BYTES + 1] = '\0';
	GM_REQUIRE_EQ(gpumem_buffer_set_tag(b, tag), GPUMEM_E_INVALID);
	gm_device_set(gpumem_buffer_ptr(b), 5000001, 7);
	gpumem_buffer_destroy(b);
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
	gm_daemon_reload(&daemon_, GM_DAEMON_CONFIG_WITH("connections_per_uid = 2\n", "1G"));
	gpumem_session *second = join("second"), *third = NULL;
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	options.socket = daemon_.socket;
	GM_REQUIRE_EQ(gpumem_connect(&options, &third), GPUMEM_E_LIMIT);
	GM_REQUIRE(strlen(gpumem_error_detail()) > 0);
	gpumem_disconnect(second);
	/* The two there are left can be asked for their figures again. */
	gm_daemon_reload(&daemon_, GM_DAEMON_CONFIG);
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
	tcase_add_test(tc, no_daemon_is_said_at_once);
	tcase_add_test(tc, a_refused_connection_is_told_why);
	tcase_add_test(tc, many_sessions_in_one_process_are_apart);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
