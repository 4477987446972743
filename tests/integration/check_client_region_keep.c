/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Regions against a real daemon that keep their content in host memory while they are paused: it comes back byte
 * for byte, whatever happens meanwhile.
 */

#include <semaphore.h>

#include "tests/integration/region_fixture.h"

START_TEST(content_that_is_kept_comes_back_byte_for_byte)
{
	enum { N = 9 };
	gpumem_region *region = create("weights", 128 * MIB);
	void *blocks[N];
	for (unsigned i = 0; i < N; i++) {
		blocks[i] = take(region, (1 + i) * MIB);
		write_pattern(blocks[i], (1 + i) * MIB, i);
	}
	for (unsigned round = 0; round < 3; round++) {
		OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));
		GM_REQUIRE_EQ(leased(), 0);
		gpumem_region_stats_t stats = stats_of("weights");
		GM_REQUIRE_EQ(stats.held, 0);
		GM_REQUIRE_EQ(stats.kept, 45 * MIB);
		GM_REQUIRE(stats.kept <= stats.needed && stats.kept <= on_host());
		/* Somebody else has the memory meanwhile. */
		gpumem_buffer *other;
		OK(gpumem_buffer_create(session, 0, 1024 * MIB, NULL, &other));
		gm_device_set(gpumem_buffer_ptr(other), 1024 * MIB, 0xee);
		gpumem_buffer_destroy(other);

		OK(gpumem_region_resume(session, "weights", 0));
		GM_UNTIL(on_host() == 0);
		GM_REQUIRE_EQ(stats_of("weights").kept, 0);
		for (unsigned i = 0; i < N; i++)
			require_pattern(blocks[i], (1 + i) * MIB, i);
	}
	gpumem_region_destroy(region);
}
END_TEST

START_TEST(the_host_pays_for_what_is_kept_and_says_so)
{
	gpumem_region *region = create("weights", 128 * MIB);
	(void)take(region, 100 * MIB);
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));
	gpumem_stats_t device = GPUMEM_STATS_INIT, host = GPUMEM_STATS_INIT;
	OK(gpumem_stats(session, 0, &device));
	OK(gpumem_stats(session, GPUMEM_DEVICE_HOST, &host));
	GM_REQUIRE_EQ(device.allocated + device.in_use + device.slack, 0);
	GM_REQUIRE_EQ(host.in_use, 100 * MIB);
	GM_REQUIRE_EQ(host.allocated, on_host());
	GM_REQUIRE_EQ(host.slack, host.allocated - host.in_use);
	gpumem_region_destroy(region);
	OK(gpumem_stats(session, GPUMEM_DEVICE_HOST, &host));
	GM_REQUIRE_EQ(host.allocated + host.in_use + host.slack, 0);
	GM_UNTIL(on_host() == 0);
}
END_TEST

/* What gpumemctl buffers learns about the only row. */
static void require_row(uint32_t device, uint64_t bytes, uint64_t used, bool paused)
{
	struct gm_raw raw;
	Gm__Wire__GetBuffers get = GM__WIRE__GET_BUFFERS__INIT;
	gm_raw_observe(&raw, &daemon_);
	/* The daemon leaves out a row that the library's thread is writing just then. */
	do
		GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(GET_BUFFERS, get_buffers, &get)),
			GPUMEM_OK);
	while (raw.packet->buffers->n_buffers != (bytes || paused));
	if (bytes || paused) {
		const Gm__Wire__Buffer *row = raw.packet->buffers->buffers[0];
		GM_REQUIRE_EQ(row->device, device);
		GM_REQUIRE_EQ(row->bytes, bytes);
		GM_REQUIRE_EQ(row->used_bytes, used);
		GM_REQUIRE_EQ(row->max_bytes, 128 * MIB);
		GM_REQUIRE(strcmp(row->tag, "weights") == 0);
		GM_REQUIRE(strcmp(row->type, "region") == 0);
		GM_REQUIRE_EQ(row->paused, paused);
		GM_REQUIRE_EQ(row->home, 0);
		GM_REQUIRE_EQ(row->in_host, device == 1);
		GM_REQUIRE(!row->evictable);
	}
	gm_raw_close(&raw);
}

START_TEST(others_see_where_a_region_is)
{
	gpumem_region *region = create("weights", 128 * MIB);
	require_row(0, 0, 0, false);
	void *a = take(region, 3 * MIB);
	require_row(0, 128 * MIB, 3 * MIB, false);
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));
	require_row(1, 3 * MIB, 3 * MIB, true);
	OK(gpumem_region_resume(session, "weights", 0));
	require_row(0, 4 * MIB, 3 * MIB, false);
	/* Without its content it has nothing, but it is there. */
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP));
	require_row(0, 0, 3 * MIB, true);
	OK(gpumem_region_resume(session, "weights", 0));
	require_row(0, 4 * MIB, 3 * MIB, false);
	OK(gpumem_region_free(region, a, NULL));
	require_row(0, 4 * MIB, 0, false);
	/* Nor does it need anything now. */
	for (int i = 0; i < 2; i++) {
		OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP));
		require_row(0, 0, 0, true);
		OK(gpumem_region_resume(session, "weights", 0));
		require_row(0, 0, 0, false);
	}
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));
	require_row(0, 0, 0, true);
	gpumem_region_destroy(region);
	require_row(0, 0, 0, false);
}
END_TEST

/* The table of gpumemctl buffers has a line for the region, and fits a terminal. */
static void require_line(const char *tag, const char *where)
{
	char command[512], line[512];
	unsigned found = 0;
	snprintf(command, sizeof(command), "COLUMNS=80 %s/ctl/gpumemctl --socket %s buffers",
		getenv("top_builddir"), daemon_.socket);
	FILE *out = popen(command, "re");
	GM_REQUIRE(out);
	while (fgets(line, sizeof(line), out)) {
		/* The mark of a cut has three bytes for one column. */
		size_t cut = 0;
		for (const char *c = line; (c = strstr(c, "…")); c++)
			cut++;
		GM_REQUIRE(strlen(line) - 2 * cut <= 81);
		found += strstr(line, tag) && strstr(line, where);
	}
	GM_REQUIRE_EQ(pclose(out), 0);
	GM_REQUIRE_EQ(found, 1);
}

START_TEST(a_paused_region_is_shown_whatever_it_has)
{
	gpumem_region *region = create("a_region_with_a_rather_long_tag", 128 * MIB);
	for (int i = 0; i < 3; i++) {
		void *a = i ? take(region, 3 * MIB) : NULL;
		OK(gpumem_region_pause(session, "a_region_with_a_rather_long_tag",
			i == 2 ? GPUMEM_REGION_KEEP : GPUMEM_REGION_DROP));
		require_line("_tag", "paused"); /* a name keeps its end */
		OK(gpumem_region_resume(session, "a_region_with_a_rather_long_tag", 0));
		OK(gpumem_region_free(region, a, NULL));
	}
	gpumem_region_destroy(region);
}
END_TEST

START_TEST(content_that_finds_no_host_memory_stays_on_the_device)
{
	gpumem_region *region = create("weights", 640 * MIB);
	void *a = take(region, 600 * MIB), *b = take(region, MIB);
	write_pattern(b, MIB, 7);
	gm_device_set(a, 600 * MIB, 1);
	REFUSED(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP), GPUMEM_E_NO_MEMORY,
		"");
	GM_REQUIRE_EQ(stats_of("weights").state, GPUMEM_REGION_ACTIVE);
	GM_REQUIRE_EQ(stats_of("weights").pauses, 0);
	GM_UNTIL(on_host() == 0);
	require_pattern(b, MIB, 7);
	GM_REQUIRE(gm_device_is(a, 600 * MIB, 1));
	/* What needs no host memory still works. */
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP));
	gpumem_region_destroy(region);
}
END_TEST

START_TEST(kept_content_survives_a_resume_that_fails)
{
	gpumem_region *region = create("weights", 400 * MIB);
	void *a = take(region, 400 * MIB);
	write_pattern(a, 400 * MIB, 1);
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));
	gpumem_buffer *other;
	OK(gpumem_buffer_create(session, 0, 704 * MIB, NULL, &other));
	REFUSED(gpumem_region_resume(session, "weights", 0), GPUMEM_E_NO_MEMORY, "");
	REFUSED(gpumem_region_resume(session, "weights", 1), GPUMEM_E_TIMEOUT, "");
	GM_REQUIRE_EQ(stats_of("weights").kept, 400 * MIB);
	gpumem_buffer_destroy(other);
	OK(gpumem_region_resume(session, "weights", 0));
	require_pattern(a, 400 * MIB, 1);
	gpumem_region_destroy(region);
}
END_TEST

START_TEST(kept_content_survives_restarts_of_the_daemon)
{
	gpumem_region *region = create("weights", 64 * MIB);
	void *a = take(region, 40 * MIB);
	write_pattern(a, 40 * MIB, 1);
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));
	restart();
	GM_UNTIL(on_host() >= 40 * MIB);
	OK(gpumem_region_resume(session, "weights", 0));
	require_pattern(a, 40 * MIB, 1);
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));

	/* Away: the resume waits for it. */
	gm_daemon_kill(&daemon_);
	struct resumer r = {.tag = "weights"};
	resume_begin(&r);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	resume_end(&r);
	require_pattern(a, 40 * MIB, 1);
	GM_UNTIL(on_host() == 0);
	gpumem_region_destroy(region);
}
END_TEST

START_TEST(a_restart_while_a_resume_waits_for_its_turn_loses_nothing)
{
	gpumem_region *region = create("weights", 400 * MIB);
	void *a = take(region, 400 * MIB);
	write_pattern(a, 16 * MIB, 5);
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));
	gpumem_buffer *other;
	OK(gpumem_buffer_create(session, 0, 704 * MIB, NULL, &other));
	struct resumer r = {.tag = "weights", .wait_ms = GPUMEM_WAIT_FOREVER};
	resume_begin(&r);
	GM_UNTIL(gm_queue_wait(&daemon_) == 1);

	/* The library asks the new daemon again, which knows who has what. */
	restart();
	GM_UNTIL(gm_queue_wait(&daemon_) == 1);
	GM_REQUIRE_EQ(stats_of("weights").state, GPUMEM_REGION_RESUMING);
	GM_UNTIL(on_host() >= 400 * MIB && leased() >= 704 * MIB);
	gpumem_buffer_destroy(other);
	resume_end(&r);
	require_pattern(a, 16 * MIB, 5);
	GM_UNTIL(on_host() == 0);
	gpumem_region_destroy(region);
}
END_TEST

START_TEST(a_resume_that_fails_can_be_followed_by_anything)
{
	gpumem_region *region = create("weights", 400 * MIB);
	void *a = take(region, 200 * MIB), *b = take(region, 200 * MIB);
	write_pattern(a, 16 * MIB, 1);
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));
	gpumem_buffer *other;
	OK(gpumem_buffer_create(session, 0, 704 * MIB, NULL, &other));
	REFUSED(gpumem_region_resume(session, "weights", 0), GPUMEM_E_NO_MEMORY, "");

	/* With less to bring back, there is room. */
	OK(gpumem_region_free(region, b, GPUMEM_STREAM_DONE));
	OK(gpumem_region_resume(session, "weights", 0));
	require_pattern(a, 16 * MIB, 1);
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));
	gpumem_buffer *more;
	OK(gpumem_buffer_create(session, 0, 256 * MIB, NULL, &more));
	REFUSED(gpumem_region_resume(session, "weights", 0), GPUMEM_E_NO_MEMORY, "");
	gpumem_region_destroy(region);
	GM_UNTIL(on_host() == 0);
	gpumem_buffer_destroy(other);
	gpumem_buffer_destroy(more);
}
END_TEST

static sem_t stalled, go_on;

static void stall(void *user, const gpumem_event *event)
{
	(void)user;
	if (event->kind != GPUMEM_EVENT_LOST)
		return;
	sem_post(&stalled);
	while (sem_wait(&go_on) < 0)
		;
}

/* The program's own function keeps the library's thread from giving anything back. */
START_TEST(a_pause_finds_the_host_memory_that_a_resume_gave_up)
{
	gpumem_region *region = create("weights", 320 * MIB);
	void *a = take(region, 300 * MIB);

	GM_REQUIRE(sem_init(&stalled, 0, 0) == 0 && sem_init(&go_on, 0, 0) == 0);
	write_pattern(a, 16 * MIB, 1);
	OK(gpumem_on_event(session, stall, NULL));
	restart();
	while (sem_wait(&stalled) < 0)
		;
	/* 512 MiB are not enough for the content twice. */
	for (int i = 0; i < 3; i++) {
		OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));
		OK(gpumem_region_resume(session, "weights", 0));
	}
	require_pattern(a, 16 * MIB, 1);
	sem_post(&go_on);
	OK(gpumem_on_event(session, NULL, NULL));
	gpumem_region_destroy(region);
	GM_UNTIL(on_host() == 0);
}
END_TEST

START_TEST(the_content_of_several_regions_shares_host_limit)
{
	gpumem_region *one = create("one", 320 * MIB), *two = create("two", 320 * MIB);
	void *a = take(one, 300 * MIB), *b = take(two, 300 * MIB);
	write_pattern(a, 16 * MIB, 1);
	write_pattern(b, 16 * MIB, 2);
	OK(gpumem_region_pause(session, "one", GPUMEM_REGION_KEEP));
	/* 512 MiB are not enough for both. */
	REFUSED(gpumem_region_pause(session, "two", GPUMEM_REGION_KEEP), GPUMEM_E_NO_MEMORY, "");
	GM_REQUIRE_EQ(stats_of("two").state, GPUMEM_REGION_ACTIVE);
	require_pattern(b, 16 * MIB, 2);
	(void)take(two, MIB);
	OK(gpumem_region_resume(session, "one", 0));
	OK(gpumem_region_pause(session, "two", GPUMEM_REGION_KEEP));
	require_pattern(a, 16 * MIB, 1);
	OK(gpumem_region_resume(session, "two", 0));
	require_pattern(b, 16 * MIB, 2);
	gpumem_region_destroy(one);
	gpumem_region_destroy(two);
}
END_TEST

START_TEST(kept_content_ends_with_its_session)
{
	gpumem_session *mine = session;
	session = join("forgetful");
	gpumem_region *a = create("a", 64 * MIB);
	(void)take(a, MIB);
	OK(gpumem_region_pause(session, "a", GPUMEM_REGION_KEEP));
	gpumem_disconnect(session);
	session = mine;
	GM_UNTIL(gm_figures_now(&daemon_).clients == 1);
	GM_UNTIL(on_host() == 0);
}
END_TEST

START_TEST(what_was_freed_while_content_is_kept_is_free_afterwards)
{
	gpumem_region *region = create("weights", 64 * MIB);
	void *a = take(region, 20 * MIB), *b = take(region, 20 * MIB), *c;
	write_pattern(b, 20 * MIB, 2);
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));
	OK(gpumem_region_free(region, a, GPUMEM_STREAM_ANY));
	OK(gpumem_region_resume(session, "weights", 0));
	c = take(region, 20 * MIB);
	GM_REQUIRE(c == a);
	write_pattern(c, 20 * MIB, 3);
	require_pattern(b, 20 * MIB, 2);
	gpumem_region_destroy(region);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client region keep");
	TCase *tc = tcase_create("client region keep");
	tcase_add_checked_fixture(tc, set_up_keeping, tear_down);
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, content_that_is_kept_comes_back_byte_for_byte);
	tcase_add_test(tc, the_host_pays_for_what_is_kept_and_says_so);
	tcase_add_test(tc, others_see_where_a_region_is);
	tcase_add_test(tc, a_paused_region_is_shown_whatever_it_has);
	tcase_add_test(tc, content_that_finds_no_host_memory_stays_on_the_device);
	tcase_add_test(tc, kept_content_survives_a_resume_that_fails);
	tcase_add_test(tc, kept_content_survives_restarts_of_the_daemon);
	tcase_add_test(tc, a_restart_while_a_resume_waits_for_its_turn_loses_nothing);
	tcase_add_test(tc, a_resume_that_fails_can_be_followed_by_anything);
	tcase_add_test(tc, a_pause_finds_the_host_memory_that_a_resume_gave_up);
	tcase_add_test(tc, the_content_of_several_regions_shares_host_limit);
	tcase_add_test(tc, kept_content_ends_with_its_session);
	tcase_add_test(tc, what_was_freed_while_content_is_kept_is_free_afterwards);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
