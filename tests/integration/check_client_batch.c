/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Batches against a real daemon: all entries or none, freed together or one by one, and what is
 * refused names the entry.
 */

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/bounds.h"
#include "common/types.h"
#include "tests/integration/client_fixture.h"
#include "tests/integration/device.h"
#include "tests/tap.h"

#define KIB (UINT64_C(1) << 10)

static gpumem_batch_entry entries[GPUMEM_BATCH_MOST + 1];

static void all_entries_have(size_t bytes)
{
	for (size_t i = 0; i < GPUMEM_BATCH_MOST + 1; i++)
		entries[i] = (gpumem_batch_entry){bytes, 0, NULL};
}

static gpumem_stats_t stats_now(void)
{
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	OK(gpumem_stats(session, 0, &stats));
	return stats;
}

/* ---- what it is for */

START_TEST(a_batch_gives_each_entry_its_memory_at_its_alignment)
{
	const gpumem_batch_entry wanted[] = {
		{1, 0, "first"},
		{5 * MIB + 3, 64 * KIB, NULL},
		{100, 2 * MIB, "aligned"},
		{300, 16, "less than 256"},
		{7 * MIB, 4096, ""},
	};
	enum { N = sizeof(wanted) / sizeof(wanted[0]) };
	gpumem_batch_options options = GPUMEM_BATCH_OPTIONS_INIT;
	gpumem_batch *batch = NULL;
	options.tag = "the batch";
	OK(gpumem_batch_create(session, 0, wanted, N, &options, &batch));
	GM_REQUIRE_EQ(gpumem_batch_count(batch), N);
	GM_REQUIRE_EQ(gpumem_batch_device(batch), 0);

	const uint8_t *end = NULL;
	for (size_t i = 0; i < N; i++) {
		const uint8_t *ptr = gpumem_batch_ptr(batch, i);
		GM_REQUIRE(ptr && ptr >= end);
		GM_REQUIRE_EQ((uintptr_t)ptr % 256, 0);
		GM_REQUIRE_EQ((uintptr_t)ptr % (wanted[i].alignment ? wanted[i].alignment : 1), 0);
		GM_REQUIRE_EQ(gpumem_batch_size(batch, i), wanted[i].bytes);
		GM_REQUIRE(strcmp(gpumem_batch_tag(batch, i),
				   wanted[i].tag ? wanted[i].tag : "the batch") == 0);
		end = ptr + wanted[i].bytes;
	}
	for (size_t i = 0; i < N; i++)
		gm_device_set(gpumem_batch_ptr(batch, i), wanted[i].bytes, (uint8_t)(i + 1));
	for (size_t i = 0; i < N; i++)
		GM_REQUIRE(gm_device_is(
			gpumem_batch_ptr(batch, i), wanted[i].bytes, (uint8_t)(i + 1)));
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leases, 1);

	GM_REQUIRE(!gpumem_batch_ptr(batch, N));
	GM_REQUIRE_EQ(gpumem_batch_size(batch, N), 0);
	GM_REQUIRE(strcmp(gpumem_batch_tag(batch, N), "") == 0);
	gpumem_batch_destroy(batch);
	gpumem_batch_destroy(NULL);
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
}
END_TEST

START_TEST(entries_are_freed_one_by_one_and_the_lease_goes_back_with_the_last)
{
	gpumem_batch *batch = NULL;
	all_entries_have(3 * MIB);
	OK(gpumem_batch_create(session, 0, entries, 8, NULL, &batch));
	gpumem_stats_t stats = stats_now();
	GM_REQUIRE_EQ(stats.in_use, 24 * MIB);
	GM_REQUIRE_EQ(stats.active_buffers, 8);
	GM_REQUIRE_EQ(stats.allocated, gm_figures_now(&daemon_).leased);
	GM_REQUIRE_EQ(stats.slack, stats.allocated - stats.in_use);

	for (size_t i = 0; i < 7; i++) {
		size_t index = i * 3 % 8;
		OK(gpumem_batch_free_entry(batch, index, i & 1 ? NULL : GPUMEM_STREAM_DONE));
		GM_REQUIRE(!gpumem_batch_ptr(batch, index));
		GM_REQUIRE_EQ(gpumem_batch_size(batch, index), 3 * MIB);
	}
	stats = stats_now();
	GM_REQUIRE_EQ(stats.in_use, 3 * MIB);
	GM_REQUIRE_EQ(stats.active_buffers, 1);
	GM_REQUIRE_EQ(stats.pooled, 0);
	GM_REQUIRE_EQ(stats.slack, stats.allocated - 3 * MIB);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leases, 1);

	OK(gpumem_batch_free_entry(batch, 7 * 3 % 8, GPUMEM_STREAM_ANY));
	GM_UNTIL(gm_figures_now(&daemon_).leases == 0);
	stats = stats_now();
	GM_REQUIRE_EQ(stats.in_use + stats.active_buffers + stats.allocated + stats.slack, 0);
	GM_REQUIRE_EQ(gpumem_batch_count(batch), 8);
	GM_REQUIRE_EQ(gpumem_batch_free_entry(batch, 0, NULL), GPUMEM_E_INVALID);
	gpumem_batch_destroy(batch);
}
END_TEST

START_TEST(an_entry_is_freed_once_and_only_through_its_batch)
{
	gpumem_batch *batch = NULL;
	all_entries_have(MIB);
	OK(gpumem_batch_create(session, 0, entries, 3, NULL, &batch));
	GM_REQUIRE_EQ(gpumem_batch_free_entry(batch, 3, NULL), GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gpumem_error_detail(), "no entry 3"));
	GM_REQUIRE_EQ(gpumem_batch_free_entry(batch, SIZE_MAX, NULL), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gpumem_batch_free_entry(NULL, 0, NULL), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gpumem_free(session, gpumem_batch_ptr(batch, 1), NULL), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(stats_now().in_use, 3 * MIB);

	OK(gpumem_batch_free_entry(batch, 1, GPUMEM_STREAM_DONE));
	GM_REQUIRE_EQ(gpumem_batch_free_entry(batch, 1, GPUMEM_STREAM_DONE), GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gpumem_error_detail(), "entry 1 of the batch was freed before"));
	GM_REQUIRE_EQ(stats_now().in_use, 2 * MIB);
	gpumem_batch_destroy(batch);
	GM_REQUIRE_EQ(stats_now().in_use, 0);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 0);
}
END_TEST

/* ---- what is refused */

/* Refuses count entries; the sentence says so, and that entry is to blame. Nothing changes. */
static void refused(size_t count, gpumem_status status, const char *says, size_t failed)
{
	gpumem_batch *batch = (gpumem_batch *)&entries;
	gpumem_batch_options options = GPUMEM_BATCH_OPTIONS_INIT;
	size_t told = 12345;
	struct gm_figures before = gm_figures_now(&daemon_);
	options.ret_failed = &told;
	GM_REQUIRE_EQ(gpumem_batch_create(session, 0, entries, count, &options, &batch), status);
	if (!strstr(gpumem_error_detail(), says))
		GM_FAIL("'%s' does not say '%s'", gpumem_error_detail(), says);
	GM_REQUIRE_EQ(told, failed);
	GM_REQUIRE(batch == (gpumem_batch *)&entries);
	struct gm_figures after = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(after.leases, before.leases);
	GM_REQUIRE_EQ(after.leased, before.leased);
	GM_REQUIRE_EQ(stats_now().active_buffers, 0);
}

START_TEST(a_batch_has_1_to_1024_entries)
{
	gpumem_batch *batch = NULL;
	all_entries_have(1000);
	refused(0, GPUMEM_E_INVALID, "count must be from 1 to 1024", GPUMEM_BATCH_NO_ENTRY);
	refused(1025, GPUMEM_E_INVALID, "and is 1025", GPUMEM_BATCH_NO_ENTRY);
	refused(SIZE_MAX, GPUMEM_E_INVALID, "count must be", GPUMEM_BATCH_NO_ENTRY);
	OK(gpumem_batch_create(session, 0, entries, 1, NULL, &batch));
	gpumem_batch_destroy(batch);
	OK(gpumem_batch_create(session, 0, entries, 1024, NULL, &batch));
	GM_REQUIRE_EQ(stats_now().active_buffers, 1024);
	gm_device_set(gpumem_batch_ptr(batch, 1023), 1000, 1);
	gpumem_batch_destroy(batch);
}
END_TEST

START_TEST(an_entry_that_makes_no_sense_is_named)
{
	char tag[GM_BOUND_NAME_BYTES + 2];
	all_entries_have(1000);
	entries[3].bytes = 0;
	refused(4, GPUMEM_E_INVALID, "entry 3 of the batch: bytes", 3);
	entries[3].bytes = SIZE_MAX;
	refused(4, GPUMEM_E_INVALID, "entry 3 of the batch: bytes", 3);
	entries[3].bytes = GM_LEASE_BYTES_MAX;
	refused(4, GPUMEM_E_INVALID, "entry 3 of the batch: with it", 3);

	entries[3] = (gpumem_batch_entry){1000, 3, NULL};
	refused(4, GPUMEM_E_INVALID, "entry 3 of the batch: alignment", 3);
	entries[3].alignment = 4 * MIB;
	refused(4, GPUMEM_E_INVALID, "and is 4194304", 3);
	entries[3].alignment = SIZE_MAX;
	refused(4, GPUMEM_E_INVALID, "entry 3 of the batch: alignment", 3);

	memset(tag, 't', sizeof(tag));
	tag[GM_BOUND_NAME_BYTES + 1] = '\0';
	entries[3] = (gpumem_batch_entry){1000, 0, tag};
	refused(4, GPUMEM_E_INVALID, "entry 3 of the batch: a tag", 3);
	entries[3].tag = "a\ntag";
	refused(4, GPUMEM_E_INVALID, "entry 3 of the batch: a tag", 3);

	/* Each could be, but not all of them. */
	all_entries_have(GM_LEASE_BYTES_MAX / 8);
	refused(20, GPUMEM_E_INVALID, "entry 8 of the batch: with it", 8);
}
END_TEST

START_TEST(arguments_that_make_no_sense_are_named)
{
	gpumem_batch *batch = NULL;
	gpumem_batch_options options = GPUMEM_BATCH_OPTIONS_INIT;
	all_entries_have(1000);
	GM_REQUIRE_EQ(gpumem_batch_create(session, 0, NULL, 1, NULL, &batch), GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gpumem_error_detail(), "entries must not be NULL"));
	GM_REQUIRE_EQ(gpumem_batch_create(session, 0, entries, 1, NULL, NULL), GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gpumem_error_detail(), "ret_batch must not be NULL"));
	GM_REQUIRE_EQ(gpumem_batch_create(NULL, 0, entries, 1, NULL, &batch), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(
		gpumem_batch_create(session, 7, entries, 1, NULL, &batch), GPUMEM_E_NOT_FOUND);
	options.size = 0;
	GM_REQUIRE_EQ(
		gpumem_batch_create(session, 0, entries, 1, &options, &batch), GPUMEM_E_INVALID);
	options = (gpumem_batch_options)GPUMEM_BATCH_OPTIONS_INIT;
	options.tag = "a\ttag";
	GM_REQUIRE_EQ(
		gpumem_batch_create(session, 0, entries, 1, &options, &batch), GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gpumem_error_detail(), "tag"));
	options.tag = NULL;
	options.transport = (gpumem_transport)9;
	GM_REQUIRE_EQ(
		gpumem_batch_create(session, 0, entries, 1, &options, &batch), GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gpumem_error_detail(), "transport 9"));
	GM_REQUIRE(!batch);
}
END_TEST

START_TEST(the_first_entry_that_does_not_fit_is_named_and_none_is_there)
{
	gpumem_batch *batch = NULL;
	all_entries_have(200 * MIB);
	entries[5].tag = "the sixth";
	/* The device has 1,024 MiB. */
	refused(6, GPUMEM_E_NO_MEMORY,
		"entry 5 of the batch (the sixth, 200.0M) does not fit: ", 5);
	refused(10, GPUMEM_E_NO_MEMORY, "entry 5 of the batch", 5);
	entries[2].bytes = 2048 * MIB;
	refused(10, GPUMEM_E_NO_MEMORY, "entry 2 of the batch (2.0G) does not fit: ", 2);

	/* Less fits while others hold some of it. */
	gpumem_session *other = join("other");
	gpumem_buffer *buffer;
	OK(gpumem_buffer_create(other, 0, 500 * MIB, NULL, &buffer));
	all_entries_have(200 * MIB);
	refused(5, GPUMEM_E_NO_MEMORY, "entry 2 of the batch", 2);
	gpumem_disconnect(other);
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	OK(gpumem_batch_create(session, 0, entries, 5, NULL, &batch));
	gpumem_batch_destroy(batch);
}
END_TEST

START_TEST(what_others_took_just_now_counts)
{
	gpumem_session *other = join("other");
	gpumem_buffer *buffer;
	gpumem_batch *batch = NULL;
	gpumem_batch_options options = GPUMEM_BATCH_OPTIONS_INIT;
	size_t failed = 0;
	all_entries_have(100 * MIB);
	options.ret_failed = &failed;
	/* So little that the pages of all clients are not written at once. Only the first refusal
	 * takes a while, because the daemon asks the other client first. */
	for (size_t i = 0; i < 10; i++) {
		const size_t expected = i & 1 ? 7 : 9;
		OK(gpumem_buffer_create(other, 0, (i & 1 ? 230 : 30) * MIB, NULL, &buffer));
		GM_REQUIRE_EQ(gpumem_batch_create(session, 0, entries, 10, &options, &batch),
			GPUMEM_E_NO_MEMORY);
		GM_REQUIRE_EQ(failed, expected);
		gpumem_buffer_destroy(buffer);
		OK(gpumem_trim(other, NULL));
	}
	gpumem_disconnect(other);
}
END_TEST

START_TEST(an_entry_past_a_limit_is_named)
{
	gm_daemon_reload(
		&daemon_, GM_DAEMON_CONFIG_WITH("[limit client:small]\nmax = 64M\n", "1G"));
	gpumem_disconnect(session);
	session = join("small");
	all_entries_have(20 * MIB);
	refused(4, GPUMEM_E_LIMIT, "entry 3 of the batch", 3);
}
END_TEST

START_TEST(a_batch_that_waits_in_vain_names_the_entry)
{
	gpumem_session *other = join("other");
	gpumem_buffer *buffer;
	gpumem_batch *batch = NULL;
	gpumem_batch_options options = GPUMEM_BATCH_OPTIONS_INIT;
	size_t failed = 0;
	OK(gpumem_buffer_create(other, 0, 900 * MIB, NULL, &buffer));
	all_entries_have(60 * MIB);
	options.wait_ms = 20;
	options.ret_failed = &failed;
	GM_REQUIRE_EQ(
		gpumem_batch_create(session, 0, entries, 4, &options, &batch), GPUMEM_E_TIMEOUT);
	GM_REQUIRE(strstr(gpumem_error_detail(), "entry 2 of the batch"));
	GM_REQUIRE_EQ(failed, 2);
	gpumem_disconnect(other);
}
END_TEST

static void *end_soon(void *other)
{
	GM_UNTIL(gm_queue_wait(&daemon_) == 1);
	gpumem_disconnect(other);
	return NULL;
}

START_TEST(a_batch_can_wait_for_its_memory)
{
	gpumem_session *other = join("other");
	gpumem_buffer *buffer;
	gpumem_batch *batch = NULL;
	gpumem_batch_options options = GPUMEM_BATCH_OPTIONS_INIT;
	pthread_t thread;
	OK(gpumem_buffer_create(other, 0, 900 * MIB, NULL, &buffer));
	GM_REQUIRE_EQ(pthread_create(&thread, NULL, end_soon, other), 0);
	all_entries_have(60 * MIB);
	options.wait_ms = GPUMEM_WAIT_FOREVER;
	OK(gpumem_batch_create(session, 0, entries, 4, &options, &batch));
	GM_REQUIRE_EQ(pthread_join(thread, NULL), 0);
	gpumem_batch_destroy(batch);
}
END_TEST

/* ---- what others see */

static size_t listed(uint64_t *ret_bytes, char *ret_tags, size_t n)
{
	struct gm_raw raw;
	size_t count = 0;
	*ret_bytes = 0;
	*ret_tags = '\0';
	gm_raw_observe(&raw, &daemon_);
	Gm__Wire__GetBuffers get = GM__WIRE__GET_BUFFERS__INIT;
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(GET_BUFFERS, get_buffers, &get)), GPUMEM_OK);
	for (;;) {
		for (size_t i = 0; i < raw.packet->buffers->n_buffers; i++) {
			size_t used = strlen(ret_tags);
			*ret_bytes += raw.packet->buffers->buffers[i]->bytes;
			snprintf(ret_tags + used, n - used, "%s ",
				raw.packet->buffers->buffers[i]->tag);
			count++;
		}
		if (!raw.packet->more)
			break;
		GM_REQUIRE(gm_raw_receive(&raw));
	}
	gm_raw_close(&raw);
	return count;
}

START_TEST(large_entries_are_listed_with_tag_and_size)
{
	gpumem_batch *batch = NULL;
	uint64_t bytes;
	char tags[256];
	gpumem_batch_options options = GPUMEM_BATCH_OPTIONS_INIT;
	const gpumem_batch_entry wanted[] = {
		{GM_TRACK_LARGE_BYTES, 0, "weights"},
		{GM_TRACK_LARGE_BYTES - 1, 0, "small"},
		{3 * MIB, 0, NULL},
	};
	options.tag = "model";
	OK(gpumem_batch_create(session, 0, wanted, 3, &options, &batch));
	GM_REQUIRE_EQ(listed(&bytes, tags, sizeof(tags)), 2);
	GM_REQUIRE_EQ(bytes, GM_TRACK_LARGE_BYTES + 3 * MIB);
	GM_REQUIRE(strstr(tags, "weights ") && strstr(tags, "model "));
	OK(gpumem_batch_free_entry(batch, 0, NULL));
	GM_REQUIRE_EQ(listed(&bytes, tags, sizeof(tags)), 1);
	GM_REQUIRE(strcmp(tags, "model ") == 0);
	gpumem_batch_destroy(batch);
	GM_REQUIRE_EQ(listed(&bytes, tags, sizeof(tags)), 0);
}
END_TEST

/* ---- threads and restarts */

#define THREADS 4
static gpumem_batch *shared;

static void *free_some(void *argument)
{
	for (size_t i = (uintptr_t)argument; i < 1024; i += THREADS) {
		gm_device_set(gpumem_batch_ptr(shared, i), 1, (uint8_t)i);
		OK(gpumem_batch_free_entry(shared, i, i & 1 ? GPUMEM_STREAM_DONE : NULL));
	}
	return NULL;
}

START_TEST(several_threads_free_the_entries_of_a_batch)
{
	pthread_t threads[THREADS];
	all_entries_have(64 * KIB);
	OK(gpumem_batch_create(session, 0, entries, 1024, NULL, &shared));
	for (uintptr_t i = 0; i < THREADS; i++)
		GM_REQUIRE_EQ(pthread_create(&threads[i], NULL, free_some, (void *)i), 0);
	for (int i = 0; i < THREADS; i++)
		GM_REQUIRE_EQ(pthread_join(threads[i], NULL), 0);
	GM_UNTIL(gm_figures_now(&daemon_).leases == 0);
	GM_REQUIRE_EQ(stats_now().in_use, 0);
	gpumem_batch_destroy(shared);
}
END_TEST

START_TEST(a_batch_outlives_a_daemon_that_is_killed)
{
	gpumem_batch *batch = NULL;
	all_entries_have(5 * MIB);
	OK(gpumem_batch_create(session, 0, entries, 6, NULL, &batch));
	for (size_t i = 0; i < 6; i++)
		gm_device_set(gpumem_batch_ptr(batch, i), 5 * MIB, (uint8_t)(i + 1));
	uint64_t leased = gm_figures_now(&daemon_).leased;
	gm_daemon_kill(&daemon_);
	OK(gpumem_batch_free_entry(batch, 0, NULL));
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	/* It is quarantined until the library is back. */
	GM_UNTIL(gm_figures_now(&daemon_).leased == leased);
	for (size_t i = 1; i < 6; i++)
		GM_REQUIRE(gm_device_is(gpumem_batch_ptr(batch, i), 5 * MIB, (uint8_t)(i + 1)));
	for (size_t i = 1; i < 6; i++)
		OK(gpumem_batch_free_entry(batch, i, NULL));
	GM_UNTIL(gm_figures_now(&daemon_).leased == 0);
	gpumem_batch_destroy(batch);
}
END_TEST

START_TEST(a_batch_can_be_made_after_a_restart)
{
	gpumem_batch *batch = NULL;
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	all_entries_have(5 * MIB);
	OK(gpumem_batch_create(session, 0, entries, 6, NULL, &batch));
	gpumem_batch_destroy(batch);
}
END_TEST

/* ---- lifetime */

static gpumem_status work_that_fails(void)
{
	GPUMEM_AUTO_SESSION gpumem_session *s = join("short");
	GPUMEM_AUTO_BATCH gpumem_batch *batch = NULL;
	GPUMEM_AUTO_BATCH gpumem_batch *none = NULL;
	GPUMEM_AUTO_BUFFER gpumem_buffer *buffer = NULL;
	all_entries_have(4 * MIB);
	OK(gpumem_batch_create(s, 0, entries, 4, NULL, &batch));
	OK(gpumem_batch_free_entry(batch, 2, NULL));
	OK(gpumem_buffer_create(s, 0, MIB, NULL, &buffer));
	return gpumem_batch_create(s, 0, entries, 1000, NULL, &none);
}

START_TEST(what_a_scope_declares_ends_with_it)
{
	GM_REQUIRE_EQ(work_that_fails(), GPUMEM_E_NO_MEMORY);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 1);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leases, 0);
}
END_TEST

START_TEST(batches_end_with_their_session)
{
	gpumem_session *s = join("forgetful");
	gpumem_batch *batch[3];
	all_entries_have(MIB);
	for (size_t i = 0; i < 3; i++)
		OK(gpumem_batch_create(s, 0, entries, 10, NULL, &batch[i]));
	OK(gpumem_batch_free_entry(batch[1], 0, NULL));
	for (size_t i = 0; i < 10; i++)
		OK(gpumem_batch_free_entry(batch[2], i, NULL));
	gpumem_disconnect(s);
	GM_UNTIL(gm_figures_now(&daemon_).clients == 1);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leases, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client batch");
	TCase *tc = tcase_create("client batch");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, a_batch_gives_each_entry_its_memory_at_its_alignment);
	tcase_add_test(tc, entries_are_freed_one_by_one_and_the_lease_goes_back_with_the_last);
	tcase_add_test(tc, an_entry_is_freed_once_and_only_through_its_batch);
	tcase_add_test(tc, a_batch_has_1_to_1024_entries);
	tcase_add_test(tc, an_entry_that_makes_no_sense_is_named);
	tcase_add_test(tc, arguments_that_make_no_sense_are_named);
	tcase_add_test(tc, the_first_entry_that_does_not_fit_is_named_and_none_is_there);
	tcase_add_test(tc, what_others_took_just_now_counts);
	tcase_add_test(tc, an_entry_past_a_limit_is_named);
	tcase_add_test(tc, a_batch_that_waits_in_vain_names_the_entry);
	tcase_add_test(tc, a_batch_can_wait_for_its_memory);
	tcase_add_test(tc, large_entries_are_listed_with_tag_and_size);
	tcase_add_test(tc, several_threads_free_the_entries_of_a_batch);
	tcase_add_test(tc, a_batch_outlives_a_daemon_that_is_killed);
	tcase_add_test(tc, a_batch_can_be_made_after_a_restart);
	tcase_add_test(tc, what_a_scope_declares_ends_with_it);
	tcase_add_test(tc, batches_end_with_their_session);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
