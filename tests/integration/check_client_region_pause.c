/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Regions that are paused and resumed against a real daemon: what becomes of the memory, the addresses and the
 * books, in whatever order things come.
 */

#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/region_fixture.h"
/* ---- pause and resume */

START_TEST(a_pause_gives_the_memory_back_and_a_resume_gets_it_again)
{
	gpumem_region *region = create("weights", 640 * MIB);
	uint8_t *a = take(region, 100 * MIB), *b = take(region, 300 * MIB), *c, *d;
	gm_device_set(a, 100 * MIB, 1);
	require_held("weights", 512 * MIB);

	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP));
	require_held("weights", 0);
	gpumem_region_stats_t stats = stats_of("weights");
	GM_REQUIRE_EQ(stats.state, GPUMEM_REGION_PAUSED);
	GM_REQUIRE_EQ(stats.in_use, 400 * MIB);
	GM_REQUIRE_EQ(stats.allocations, 2);
	GM_REQUIRE_EQ(stats.pauses, 1);
	GM_REQUIRE_EQ(stats.kept, 0);
	/* The daemon can give all of it to others. */
	gpumem_buffer *all;
	OK(gpumem_buffer_create(session, 0, 1024 * MIB, NULL, &all));
	gpumem_buffer_destroy(all);

	OK(gpumem_region_resume(session, "weights", 0));
	GM_REQUIRE_EQ(stats_of("weights").state, GPUMEM_REGION_ACTIVE);
	GM_REQUIRE_EQ(stats_of("weights").needed, 0);
	gm_device_set(a, 100 * MIB, 3);
	gm_device_set(b, 300 * MIB, 4);
	GM_REQUIRE(gm_device_is(a, 100 * MIB, 3));

	/* The books of the heap are as before: nothing overlaps, and it grows. */
	OK(gpumem_region_free(region, a, NULL));
	c = take(region, 50 * MIB);
	d = take(region, 200 * MIB);
	gm_device_set(c, 50 * MIB, 5);
	gm_device_set(d, 200 * MIB, 6);
	GM_REQUIRE(gm_device_is(b, 300 * MIB, 4));
	GM_REQUIRE(gm_device_is(c, 50 * MIB, 5));
	gpumem_region_destroy(region);
	GM_UNTIL(leased() == 0);
}
END_TEST

/* The daemon cannot know who has the overflow uid, so it pools nothing of such clients. */
#define OVERFLOW_UID 65534

START_TEST(a_resume_takes_the_chunks_that_the_pause_left_in_the_pool)
{
	const bool pools = getuid() != OVERFLOW_UID;
	gpumem_region *region = create("weights", 512 * MIB);
	(void)take(region, 512 * MIB);
	uint64_t chunks = gm_figures_now(&daemon_).chunks;
	for (int i = 0; i < 5; i++) {
		OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP));
		struct gm_figures f = gm_figures_now(&daemon_);
		GM_REQUIRE_EQ(f.pooled, pools ? 512 * MIB : 0);
		GM_REQUIRE_EQ(f.orphaned, 0);
		if (pools)
			GM_REQUIRE_EQ(f.chunks, chunks);
		OK(gpumem_region_resume(session, "weights", 0));
		GM_REQUIRE_EQ(gm_figures_now(&daemon_).pooled, 0);
		require_held("weights", 512 * MIB);
	}
	gpumem_region_destroy(region);
}
END_TEST

START_TEST(a_region_without_memory_can_be_paused_too)
{
	gpumem_region *region = create("empty", 64 * MIB);
	OK(gpumem_region_pause(session, "empty", GPUMEM_REGION_DROP));
	GM_REQUIRE_EQ(stats_of("empty").state, GPUMEM_REGION_PAUSED);
	OK(gpumem_region_resume(session, "empty", 0));
	gm_device_set(take(region, MIB), MIB, 1);
	gpumem_region_destroy(region);
}
END_TEST

START_TEST(what_a_paused_region_cannot_do_is_refused_and_names_it)
{
	gpumem_region *region = create("weights", 64 * MIB), *other = create("kv", 64 * MIB);
	void *a = take(region, MIB), *b = take(region, MIB), *p;
	REFUSED(gpumem_region_resume(session, "weights", 0), GPUMEM_E_INVALID,
		"\"weights\" is not paused");
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP));
	REFUSED(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP), GPUMEM_E_INVALID,
		"\"weights\" is paused already");
	REFUSED(gpumem_region_alloc(region, MIB, NULL, NULL, &p), GPUMEM_E_BUSY,
		"\"weights\" is paused, so nothing can be allocated from it: resume it first");
	/* Freeing is only a matter of books. */
	OK(gpumem_region_free(region, a, NULL));
	REFUSED(gpumem_region_free(region, a, NULL), GPUMEM_E_INVALID, "weights");
	GM_REQUIRE_EQ(stats_of("weights").in_use, MIB);
	/* Others are not concerned. */
	gm_device_set(take(other, MIB), MIB, 1);

	OK(gpumem_region_resume(session, "weights", 0));
	REFUSED(gpumem_region_resume(session, "weights", 0), GPUMEM_E_INVALID, "not paused");
	p = take(region, MIB);
	gm_device_set(b, MIB, 2);
	gm_device_set(p, MIB, 3);
	GM_REQUIRE(gm_device_is(b, MIB, 2));
	gpumem_region_destroy(region);
	gpumem_region_destroy(other);
}
END_TEST

static sigjmp_buf faulted;
static void on_fault(int signal)
{
	siglongjmp(faulted, signal);
}

/* Whether reading the byte faults. */
static bool faults(const volatile uint8_t *at)
{
	struct sigaction action = {.sa_handler = on_fault}, old;
	GM_REQUIRE_EQ(sigaction(SIGSEGV, &action, &old), 0);
	volatile bool fault = true;
	if (!sigsetjmp(faulted, 1)) {
		(void)*at;
		fault = false;
	}
	GM_REQUIRE_EQ(sigaction(SIGSEGV, &old, NULL), 0);
	return fault;
}

START_TEST(memory_of_a_paused_region_cannot_be_used)
{
	gpumem_region *region = create("weights", 64 * MIB);
	uint8_t *a = take(region, MIB);
	gm_device_set(a, MIB, 1);
	GM_REQUIRE(!faults(a));
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP));
	GM_REQUIRE(faults(a));
	GM_REQUIRE(faults(a + MIB - 1));
	/* Nothing else comes to lie there. */
	gpumem_buffer *buffer;
	OK(gpumem_buffer_create(session, 0, 64 * MIB, NULL, &buffer));
	GM_REQUIRE(faults(a));
	OK(gpumem_region_resume(session, "weights", 0));
	GM_REQUIRE(!faults(a));
	gpumem_region_destroy(region);
	gpumem_buffer_destroy(buffer);
}
END_TEST

/* ---- a full device */

START_TEST(a_resume_that_finds_no_memory_leaves_the_region_paused)
{
	gpumem_region *region = create("weights", 600 * MIB);
	uint8_t *a = take(region, 600 * MIB);
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP));
	GM_REQUIRE_EQ(stats_of("weights").needed, 600 * MIB);
	gpumem_buffer *other;
	OK(gpumem_buffer_create(session, 0, 704 * MIB, NULL, &other));
	for (int i = 0; i < 3; i++) {
		REFUSED(gpumem_region_resume(session, "weights", 0), GPUMEM_E_NO_MEMORY, "");
		GM_REQUIRE_EQ(stats_of("weights").state, GPUMEM_REGION_PAUSED);
		GM_REQUIRE_EQ(leased(), 704 * MIB);
	}
	REFUSED(gpumem_region_resume(session, "weights", 1), GPUMEM_E_TIMEOUT, "");
	GM_REQUIRE_EQ(stats_of("weights").state, GPUMEM_REGION_PAUSED);
	gpumem_buffer_destroy(other);
	OK(gpumem_region_resume(session, "weights", 0));
	gm_device_set(a, 600 * MIB, 1);
	gpumem_region_destroy(region);
}
END_TEST

START_TEST(a_resume_waits_for_its_turn_and_others_see_that)
{
	gpumem_region *region = create("weights", 600 * MIB);
	uint8_t *a = take(region, 600 * MIB), *p;
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP));
	gpumem_buffer *other;
	OK(gpumem_buffer_create(session, 0, 704 * MIB, NULL, &other));
	struct resumer r = {.tag = "weights", .wait_ms = GPUMEM_WAIT_FOREVER};
	resume_begin(&r);
	GM_UNTIL(gm_queue_wait(&daemon_) == 1);

	GM_REQUIRE_EQ(stats_of("weights").state, GPUMEM_REGION_RESUMING);
	REFUSED(gpumem_region_resume(session, "weights", 0), GPUMEM_E_BUSY,
		"another thread is resuming the region \"weights\"");
	REFUSED(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP), GPUMEM_E_BUSY,
		"another thread is resuming");
	REFUSED(gpumem_region_alloc(region, MIB, NULL, NULL, (void **)&p), GPUMEM_E_BUSY,
		"resume it first");
	gpumem_buffer_destroy(other);
	resume_end(&r);
	gm_device_set(a, 600 * MIB, 1);
	gpumem_region_destroy(region);
}
END_TEST

static void *allocate_there(void *ctx)
{
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	void *ptr;
	options.wait_ms = GPUMEM_WAIT_FOREVER;
	gpumem_status status = gpumem_region_alloc(ctx, 300 * MIB, NULL, &options, &ptr);
	GM_REQUIRE_EQ(status, GPUMEM_E_BUSY);
	GM_REQUIRE(strstr(gpumem_error_detail(), "resume it first"));
	return NULL;
}

START_TEST(a_region_can_be_paused_while_an_allocation_waits_for_memory)
{
	gpumem_region *region = create("weights", 600 * MIB);
	(void)take(region, 200 * MIB);
	gpumem_buffer *other;
	OK(gpumem_buffer_create(session, 0, 704 * MIB, NULL, &other));
	pthread_t thread;
	GM_REQUIRE_EQ(pthread_create(&thread, NULL, allocate_there, region), 0);
	GM_UNTIL(gm_queue_wait(&daemon_) == 1);
	/* The wait does not hold up the pause, and what comes of it goes back. */
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP));
	gpumem_buffer_destroy(other);
	GM_REQUIRE_EQ(pthread_join(thread, NULL), 0);
	GM_UNTIL(leased() == 0);
	OK(gpumem_region_resume(session, "weights", 0));
	gpumem_region_destroy(region);
}
END_TEST

struct maker {
	gpumem_region *region;
	gpumem_status status;
};

static void *make_there(void *ctx)
{
	struct maker *maker = ctx;
	gpumem_region_options options = GPUMEM_REGION_OPTIONS_INIT;
	options.initial = 500 * MIB;
	options.wait_ms = GPUMEM_WAIT_FOREVER;
	maker->status =
		gpumem_region_create(session, 0, "weights", 600 * MIB, &options, &maker->region);
	return NULL;
}

START_TEST(a_region_that_waits_for_its_first_memory_is_its_makers_alone)
{
	struct maker maker = {0};
	gpumem_region *second;
	gpumem_buffer *other;
	pthread_t thread;
	OK(gpumem_buffer_create(session, 0, 704 * MIB, NULL, &other));
	GM_REQUIRE_EQ(pthread_create(&thread, NULL, make_there, &maker), 0);
	GM_UNTIL(gm_queue_wait(&daemon_) == 1);

	REFUSED(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP), GPUMEM_E_BUSY,
		"another thread is making the region \"weights\"");
	REFUSED(gpumem_region_resume(session, "weights", 0), GPUMEM_E_BUSY,
		"another thread is making");
	REFUSED(gpumem_region_create(session, 0, "weights", MIB, NULL, &second), GPUMEM_E_BUSY,
		"has a region \"weights\" already");
	gpumem_buffer_destroy(other);
	GM_REQUIRE_EQ(pthread_join(thread, NULL), 0);
	GM_REQUIRE_EQ(maker.status, GPUMEM_OK);
	GM_REQUIRE_EQ(stats_of("weights").state, GPUMEM_REGION_ACTIVE);
	(void)take(maker.region, 500 * MIB);
	gpumem_region_destroy(maker.region);
}
END_TEST

/* ---- ends, restarts, forks */

START_TEST(paused_regions_end_with_their_session)
{
	gpumem_session *mine = session;
	session = join("forgetful");
	gpumem_region *a = create("a", 64 * MIB), *b = create("b", 64 * MIB);
	(void)create("c", 64 * MIB);
	(void)take(a, MIB);
	(void)take(b, MIB);
	OK(gpumem_region_pause(session, "b", GPUMEM_REGION_DROP));
	gpumem_disconnect(session);
	session = mine;
	GM_UNTIL(gm_figures_now(&daemon_).clients == 1);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).leases, 0);
}
END_TEST

START_TEST(a_restart_of_the_daemon_changes_nothing)
{
	gpumem_region *region = create("weights", 256 * MIB);
	uint8_t *a = take(region, 200 * MIB);
	gm_device_set(a, 200 * MIB, 1);
	restart();
	GM_REQUIRE(gm_device_is(a, 200 * MIB, 1));
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP));
	GM_UNTIL(leased() == 0);
	restart();
	OK(gpumem_region_resume(session, "weights", 0));
	/* The heap never had the rest. */
	require_held("weights", 200 * MIB);
	gm_device_set(a, 200 * MIB, 2);

	/* Away: a pause needs no daemon, a resume waits for it. */
	gm_daemon_kill(&daemon_);
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP));
	struct resumer r = {.tag = "weights"};
	resume_begin(&r);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	resume_end(&r);
	GM_UNTIL(leased() == 200 * MIB);
	gm_device_set(a, 200 * MIB, 3);
	gpumem_region_destroy(region);
}
END_TEST

START_TEST(a_forked_child_cannot_use_its_parents_regions)
{
	gpumem_region *region = create("weights", 64 * MIB), *other;
	void *a = take(region, MIB), *p;
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP));
	pid_t pid = fork();
	GM_REQUIRE(pid >= 0);
	if (pid == 0) {
		gpumem_region_stats_t stats = GPUMEM_REGION_STATS_INIT;
		bool ok =
			gpumem_region_resume(session, "weights", 0) == GPUMEM_E_FORKED &&
			gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP) ==
				GPUMEM_E_FORKED &&
			gpumem_region_alloc(region, MIB, NULL, NULL, &p) == GPUMEM_E_FORKED &&
			gpumem_region_free(region, a, NULL) == GPUMEM_E_FORKED &&
			gpumem_region_stats(session, "weights", &stats) == GPUMEM_E_FORKED &&
			gpumem_region_create(session, 0, "x", MIB, NULL, &other) == GPUMEM_E_FORKED;
		gpumem_region_destroy(region);
		_exit(ok ? 0 : 1);
	}
	int status;
	GM_REQUIRE_EQ(waitpid(pid, &status, 0), pid);
	GM_REQUIRE_EQ(status, 0);
	OK(gpumem_region_resume(session, "weights", 0));
	gm_device_set(a, MIB, 1);
	gpumem_region_destroy(region);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client region pause");
	TCase *tc = tcase_create("client region pause");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, a_pause_gives_the_memory_back_and_a_resume_gets_it_again);
	tcase_add_test(tc, a_resume_takes_the_chunks_that_the_pause_left_in_the_pool);
	tcase_add_test(tc, a_region_without_memory_can_be_paused_too);
	tcase_add_test(tc, what_a_paused_region_cannot_do_is_refused_and_names_it);
	if (!gm_on_gpu())
		tcase_add_test(tc, memory_of_a_paused_region_cannot_be_used);
	tcase_add_test(tc, a_resume_that_finds_no_memory_leaves_the_region_paused);
	tcase_add_test(tc, a_resume_waits_for_its_turn_and_others_see_that);
	tcase_add_test(tc, a_region_can_be_paused_while_an_allocation_waits_for_memory);
	tcase_add_test(tc, a_region_that_waits_for_its_first_memory_is_its_makers_alone);
	tcase_add_test(tc, paused_regions_end_with_their_session);
	tcase_add_test(tc, a_restart_of_the_daemon_changes_nothing);
	tcase_add_test(tc, a_forked_child_cannot_use_its_parents_regions);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
