/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Regions against a real daemon: allocations in them, and what a pause and a resume do to the memory, the
 * addresses and the books, in whatever order they come.
 */

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/limits.h"
#include "gpumem/gpumem_region.h"
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

#define REFUSED(call, status, says) require_refused((call), (status), (says), __LINE__)
static void require_refused(gpumem_status got, gpumem_status status, const char *says, int line)
{
	if (got != status || !strstr(gpumem_error_detail(), says))
		gm_fail(__FILE__, line, "%s: %s, not %s with '%s' in it", gpumem_status_text(got),
			gpumem_error_detail(), gpumem_status_text(status), says);
}

static gpumem_region *create(const char *tag, size_t max_size)
{
	gpumem_region *region = NULL;
	OK(gpumem_region_create(session, 0, tag, max_size, NULL, &region));
	return region;
}

static void *take(gpumem_region *region, size_t size)
{
	void *ptr = NULL;
	OK(gpumem_region_alloc(region, size, NULL, NULL, &ptr));
	return ptr;
}

static gpumem_region_stats_t stats_of(const char *tag)
{
	gpumem_region_stats_t stats = GPUMEM_REGION_STATS_INIT;
	OK(gpumem_region_stats(session, tag, &stats));
	return stats;
}

static uint64_t leased(void)
{
	return gm_figures_now(&daemon_).leased;
}

/* All books say that the region holds so much, and nothing else is held. */
static void require_held(const char *tag, uint64_t held)
{
	gpumem_stats_t all = GPUMEM_STATS_INIT;
	OK(gpumem_stats(session, 0, &all));
	GM_REQUIRE_EQ(stats_of(tag).held, held);
	GM_REQUIRE_EQ(all.allocated, held);
	GM_REQUIRE_EQ(all.in_use, held);
	GM_REQUIRE_EQ(all.slack, 0);
	GM_REQUIRE_EQ(leased(), held);
}

/* ---- allocations */

START_TEST(a_region_gets_memory_in_large_pieces_up_to_its_size)
{
	gpumem_region *region = create("weights", 600 * MIB);
	require_held("weights", 0);
	void *a = take(region, 1000);
	GM_REQUIRE_EQ((uintptr_t)a % 256, 0);
	require_held("weights", 256 * MIB);
	GM_REQUIRE_EQ(gm_figures_now(&daemon_).chunks, 1);

	/* What the first piece has left is used first, and one block lies across the border. */
	uint8_t *b = take(region, 300 * MIB);
	require_held("weights", 512 * MIB);
	gm_device_set(a, 1000, 1);
	gm_device_set(b, 300 * MIB, 2);
	GM_REQUIRE(gm_device_is(a, 1000, 1));

	/* The rest, which is smaller than a piece. */
	void *c = take(region, 280 * MIB);
	require_held("weights", 600 * MIB);
	GM_REQUIRE(gm_device_is(b, 300 * MIB, 2));
	REFUSED(gpumem_region_alloc(region, 64 * MIB, NULL, NULL, &a), GPUMEM_E_LIMIT, "max_size");
	GM_REQUIRE_EQ(stats_of("weights").allocations, 3);
	GM_REQUIRE_EQ(stats_of("weights").in_use, 580 * MIB + 1000);

	OK(gpumem_region_free(region, c, NULL));
	OK(gpumem_region_free(region, b, GPUMEM_STREAM_ANY));
	require_held("weights", 600 * MIB);
	/* Freed memory is used again, and neighbours have merged. */
	b = take(region, 590 * MIB);
	require_held("weights", 600 * MIB);
	GM_REQUIRE_EQ(stats_of("weights").peak, 590 * MIB + 1000);
	gpumem_region_destroy(region);
	GM_UNTIL(leased() == 0);
}
END_TEST

START_TEST(a_region_makes_do_with_what_the_device_has_left)
{
	gpumem_buffer *most;
	OK(gpumem_buffer_create(session, 0, 1000 * MIB, NULL, &most));
	gpumem_region *region = create("small", 512 * MIB);
	void *a = take(region, 3 * MIB), *b;
	GM_REQUIRE_EQ(stats_of("small").held, 4 * MIB);
	REFUSED(gpumem_region_alloc(region, 64 * MIB, NULL, NULL, &b), GPUMEM_E_NO_MEMORY, "");
	gm_device_set(a, 3 * MIB, 1);
	b = take(region, 16 * MIB);
	gm_device_set(b, 16 * MIB, 2);
	GM_REQUIRE(gm_device_is(a, 3 * MIB, 1));
	gpumem_region_destroy(region);
	gpumem_buffer_destroy(most);
}
END_TEST

START_TEST(a_region_can_have_its_memory_from_the_start)
{
	gpumem_region_options options = GPUMEM_REGION_OPTIONS_INIT;
	gpumem_region *region;
	options.initial = 300 * MIB;
	OK(gpumem_region_create(session, 0, "kv", 900 * MIB, &options, &region));
	GM_REQUIRE_EQ(stats_of("kv").held, 512 * MIB);
	(void)take(region, 500 * MIB);
	GM_REQUIRE_EQ(stats_of("kv").held, 512 * MIB);
	gpumem_region *other = NULL;
	options.initial = 600 * MIB;
	REFUSED(gpumem_region_create(session, 0, "too much", 600 * MIB, &options, &other),
		GPUMEM_E_NO_MEMORY, "");
	gpumem_region_stats_t stats = GPUMEM_REGION_STATS_INIT;
	REFUSED(gpumem_region_stats(session, "too much", &stats), GPUMEM_E_NOT_FOUND, "too much");
	gpumem_region_destroy(region);
}
END_TEST

START_TEST(calls_that_make_no_sense_are_refused)
{
	gpumem_region *region = create("weights", 64 * MIB), *other;
	gpumem_region_options options = GPUMEM_REGION_OPTIONS_INIT;
	gpumem_region_stats_t stats = GPUMEM_REGION_STATS_INIT;
	void *ptr = take(region, MIB), *p;
	char tag[GM_LIMIT_NAME_BYTES + 2];

	REFUSED(gpumem_region_create(session, 0, "weights", MIB, NULL, &other), GPUMEM_E_BUSY,
		"weights");
	REFUSED(gpumem_region_create(session, 0, "", MIB, NULL, &other), GPUMEM_E_INVALID, "tag");
	REFUSED(gpumem_region_create(session, 0, NULL, MIB, NULL, &other), GPUMEM_E_INVALID, "tag");
	memset(tag, 'x', sizeof(tag) - 1);
	tag[sizeof(tag) - 1] = '\0';
	REFUSED(gpumem_region_create(session, 0, tag, MIB, NULL, &other), GPUMEM_E_INVALID, "tag");
	REFUSED(gpumem_region_create(session, 0, "x", 0, NULL, &other), GPUMEM_E_INVALID,
		"max_size");
	REFUSED(gpumem_region_create(session, 0, "x", SIZE_MAX, NULL, &other), GPUMEM_E_INVALID,
		"max_size");
	REFUSED(gpumem_region_create(session, 7, "x", MIB, NULL, &other), GPUMEM_E_NOT_FOUND, "7");
	REFUSED(gpumem_region_create(session, GPUMEM_DEVICE_HOST, "x", MIB, NULL, &other),
		GPUMEM_E_INVALID, "GPUMEM_DEVICE_HOST");
	options.initial = 2 * MIB;
	REFUSED(gpumem_region_create(session, 0, "x", MIB, &options, &other), GPUMEM_E_INVALID,
		"initial");
	options.size = 0;
	REFUSED(gpumem_region_create(session, 0, "x", MIB, &options, &other), GPUMEM_E_INVALID,
		"size");
	REFUSED(gpumem_region_create(session, 0, "x", MIB, NULL, NULL), GPUMEM_E_INVALID,
		"ret_region");
	REFUSED(gpumem_region_create(NULL, 0, "x", MIB, NULL, &other), GPUMEM_E_INVALID, "");

	REFUSED(gpumem_region_alloc(NULL, MIB, NULL, NULL, &p), GPUMEM_E_INVALID, "region");
	REFUSED(gpumem_region_alloc(region, 0, NULL, NULL, &p), GPUMEM_E_INVALID, "size");
	REFUSED(gpumem_region_alloc(region, MIB, NULL, NULL, NULL), GPUMEM_E_INVALID, "ret_ptr");
	REFUSED(gpumem_region_alloc(region, SIZE_MAX, NULL, NULL, &p), GPUMEM_E_INVALID, "weights");
	REFUSED(gpumem_region_alloc(region, 65 * MIB, NULL, NULL, &p), GPUMEM_E_LIMIT, "64");
	REFUSED(gpumem_region_alloc(region, MIB, GPUMEM_STREAM_DONE, NULL, &p), GPUMEM_E_INVALID,
		"");
	gpumem_alloc_options odd = GPUMEM_ALLOC_OPTIONS_INIT;
	odd.alignment = 768;
	REFUSED(gpumem_region_alloc(region, MIB, NULL, &odd, &p), GPUMEM_E_INVALID, "");

	REFUSED(gpumem_region_free(NULL, ptr, NULL), GPUMEM_E_INVALID, "region");
	REFUSED(gpumem_region_free(region, &ptr, NULL), GPUMEM_E_INVALID, "weights");
	REFUSED(gpumem_region_free(region, (char *)ptr + 256, NULL), GPUMEM_E_INVALID, "weights");
	OK(gpumem_region_free(region, NULL, NULL));
	/* The heap of the session knows nothing of it. */
	REFUSED(gpumem_free(session, ptr, NULL), GPUMEM_E_INVALID, "no memory there");
	OK(gpumem_region_free(region, ptr, NULL));
	REFUSED(gpumem_region_free(region, ptr, NULL), GPUMEM_E_INVALID, "weights");

	REFUSED(gpumem_region_pause(session, "kv", GPUMEM_REGION_DROP), GPUMEM_E_NOT_FOUND, "kv");
	REFUSED(gpumem_region_pause(session, NULL, GPUMEM_REGION_DROP), GPUMEM_E_INVALID, "tag");
	REFUSED(gpumem_region_pause(session, "weights", (gpumem_region_content)7), GPUMEM_E_INVALID,
		"7");
	REFUSED(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP), GPUMEM_E_UNSUPPORTED,
		"host_limit");
	REFUSED(gpumem_region_resume(session, "kv", 0), GPUMEM_E_NOT_FOUND, "kv");
	REFUSED(gpumem_region_resume(session, NULL, 0), GPUMEM_E_INVALID, "tag");
	REFUSED(gpumem_region_stats(session, NULL, &stats), GPUMEM_E_INVALID, "tag");
	REFUSED(gpumem_region_stats(session, "weights", NULL), GPUMEM_E_INVALID, "ret_stats");
	gpumem_region_destroy(NULL);
	gpumem_region_destroy(region);
	REFUSED(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP), GPUMEM_E_NOT_FOUND,
		"weights");
}
END_TEST

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

START_TEST(a_resume_takes_the_chunks_that_the_pause_left_in_the_pool)
{
	/* Where a buffer's memory is not pooled, a region's is not either. */
	gpumem_buffer *buffer;
	OK(gpumem_buffer_create(session, 0, 512 * MIB, NULL, &buffer));
	gpumem_buffer_destroy(buffer);
	GM_UNTIL(leased() == 0);
	if (gm_figures_now(&daemon_).pooled != 512 * MIB)
		return;
	gpumem_region *region = create("weights", 512 * MIB);
	(void)take(region, 512 * MIB);
	uint64_t chunks = gm_figures_now(&daemon_).chunks;
	for (int i = 0; i < 5; i++) {
		OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP));
		struct gm_figures f = gm_figures_now(&daemon_);
		GM_REQUIRE_EQ(f.pooled, 512 * MIB);
		GM_REQUIRE_EQ(f.lingering, 0);
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

struct resumer {
	pthread_t thread;
	const char *tag;
	uint32_t wait_ms;
	gpumem_status status;
	char detail[256];
};

static void *resume_there(void *ctx)
{
	struct resumer *r = ctx;
	r->status = gpumem_region_resume(session, r->tag, r->wait_ms);
	snprintf(r->detail, sizeof(r->detail), "%s", gpumem_error_detail());
	return NULL;
}

START_TEST(a_resume_waits_for_its_turn_and_others_see_that)
{
	gpumem_region *region = create("weights", 600 * MIB);
	uint8_t *a = take(region, 600 * MIB), *p;
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP));
	gpumem_buffer *other;
	OK(gpumem_buffer_create(session, 0, 704 * MIB, NULL, &other));
	struct resumer r = {.tag = "weights", .wait_ms = GPUMEM_WAIT_FOREVER};
	GM_REQUIRE_EQ(pthread_create(&r.thread, NULL, resume_there, &r), 0);
	GM_UNTIL(gm_waiting(&daemon_) == 1);

	GM_REQUIRE_EQ(stats_of("weights").state, GPUMEM_REGION_RESUMING);
	REFUSED(gpumem_region_resume(session, "weights", 0), GPUMEM_E_BUSY,
		"another thread is resuming the region \"weights\"");
	REFUSED(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP), GPUMEM_E_BUSY,
		"another thread is resuming");
	REFUSED(gpumem_region_alloc(region, MIB, NULL, NULL, (void **)&p), GPUMEM_E_BUSY,
		"resume it first");
	gpumem_buffer_destroy(other);
	GM_REQUIRE_EQ(pthread_join(r.thread, NULL), 0);
	if (r.status)
		GM_FAIL("%s", r.detail);
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
	GM_UNTIL(gm_waiting(&daemon_) == 1);
	/* The wait does not hold up the pause, and what comes of it goes back. */
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP));
	gpumem_buffer_destroy(other);
	GM_REQUIRE_EQ(pthread_join(thread, NULL), 0);
	GM_UNTIL(leased() == 0);
	OK(gpumem_region_resume(session, "weights", 0));
	gpumem_region_destroy(region);
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

static void restart(void)
{
	gm_daemon_kill(&daemon_);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
}

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
	GM_REQUIRE_EQ(pthread_create(&r.thread, NULL, resume_there, &r), 0);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_REQUIRE_EQ(pthread_join(r.thread, NULL), 0);
	if (r.status)
		GM_FAIL("%s", r.detail);
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

/* ---- threads */

enum { THREADS = 4, ROUNDS = 60 };
static _Atomic unsigned allocated, paused, resumed;

static void *churn(void *ctx)
{
	gpumem_region *region = ctx;
	for (int i = 0; i < ROUNDS; i++) {
		void *ptr;
		gpumem_status status =
			gpumem_region_alloc(region, (1 + i % 7) * MIB, NULL, NULL, &ptr);
		GM_REQUIRE(status == GPUMEM_OK || status == GPUMEM_E_BUSY);
		if (status == GPUMEM_OK) {
			atomic_fetch_add(&allocated, 1);
			OK(gpumem_region_free(region, ptr, i % 2 ? NULL : GPUMEM_STREAM_ANY));
		}
	}
	return NULL;
}

static void *turn(void *ctx)
{
	for (int i = 0; i < ROUNDS; i++) {
		gpumem_status p = gpumem_region_pause(session, "busy", GPUMEM_REGION_DROP);
		GM_REQUIRE(p == GPUMEM_OK || p == GPUMEM_E_BUSY || p == GPUMEM_E_INVALID);
		atomic_fetch_add(&paused, p == GPUMEM_OK);
		gpumem_status r = gpumem_region_resume(session, "busy", 0);
		GM_REQUIRE(r == GPUMEM_OK || r == GPUMEM_E_BUSY || r == GPUMEM_E_INVALID);
		atomic_fetch_add(&resumed, r == GPUMEM_OK);
	}
	return NULL;
}

START_TEST(several_threads_allocate_pause_and_resume)
{
	gpumem_region *region = create("busy", 256 * MIB);
	pthread_t threads[2 * THREADS];
	for (int i = 0; i < 2 * THREADS; i++)
		GM_REQUIRE_EQ(pthread_create(&threads[i], NULL, i % 2 ? turn : churn, region), 0);
	for (int i = 0; i < 2 * THREADS; i++)
		GM_REQUIRE_EQ(pthread_join(threads[i], NULL), 0);

	gpumem_region_stats_t stats = stats_of("busy");
	GM_REQUIRE_EQ(stats.in_use, 0);
	GM_REQUIRE_EQ(stats.allocations, 0);
	GM_REQUIRE_EQ(stats.pauses, paused);
	GM_REQUIRE(paused - resumed <= 1);
	GM_REQUIRE_EQ(stats.state, paused == resumed ? GPUMEM_REGION_ACTIVE : GPUMEM_REGION_PAUSED);
	if (paused != resumed)
		OK(gpumem_region_resume(session, "busy", 0));
	gm_device_set(take(region, 200 * MIB), 200 * MIB, 1);
	/* The daemon may round what a region grows by up by 1/64. */
	uint64_t held = stats_of("busy").held;
	GM_REQUIRE(held <= 260 * MIB);
	require_held("busy", held);
	gpumem_region_destroy(region);
}
END_TEST

static void *grow_there(void *ctx)
{
	void *ptr;
	for (int i = 0; i < 3; i++)
		OK(gpumem_region_alloc(ctx, 32 * MIB, NULL, NULL, &ptr));
	return NULL;
}

START_TEST(several_threads_make_a_region_grow_up_to_its_size)
{
	gpumem_region *region = create("growing", THREADS * 3 * 32 * MIB);
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		GM_REQUIRE_EQ(pthread_create(&threads[i], NULL, grow_there, region), 0);
	for (int i = 0; i < THREADS; i++)
		GM_REQUIRE_EQ(pthread_join(threads[i], NULL), 0);
	gpumem_region_stats_t stats = stats_of("growing");
	GM_REQUIRE_EQ(stats.in_use, stats.max_size);
	GM_REQUIRE_EQ(leased(), stats.held);
	OK(gpumem_region_pause(session, "growing", GPUMEM_REGION_DROP));
	OK(gpumem_region_resume(session, "growing", 0));
	require_held("growing", stats.max_size);
	gpumem_region_destroy(region);
}
END_TEST

/* ---- content that is kept */

#define KEEPING(host) \
	"[gpumemd]\nfraction = 1.0\nmin_free = 0\nreserve = 0\nmax_pool = 100%\n" \
	"pressure_dwell = 0s\nhost_limit = " host "\n[device 0]\nsize = 1G\n"

static void set_up_keeping(void)
{
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = KEEPING("512M")});
	session = join("the test");
}

/* So much of the host's memory is leased. */
static uint64_t on_host(void)
{
	struct gm_figures f;
	gm_figures_of(&daemon_, 1, &f);
	return f.leased;
}

/* A block whose bytes differ from one another, and from those of other blocks. */
static void write_pattern(void *ptr, size_t size, unsigned number)
{
	uint32_t *words = malloc(size);
	GM_REQUIRE(words);
	for (size_t i = 0; i < size / sizeof(*words); i++)
		words[i] = (uint32_t)(i * 2654435761u + number);
	gm_device_write(ptr, words, size);
	free(words);
}

static void require_pattern(const void *ptr, size_t size, unsigned number)
{
	uint32_t *words = malloc(size);
	GM_REQUIRE(words);
	gm_device_read(words, ptr, size);
	for (size_t i = 0; i < size / sizeof(*words); i++)
		if (words[i] != (uint32_t)(i * 2654435761u + number))
			GM_FAIL("word %zu of block %u is not as it was", i, number);
	free(words);
}

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
		GM_REQUIRE_EQ(stats.kept, stats.needed);
		GM_REQUIRE(stats.kept >= 45 * MIB && stats.kept <= on_host());
		/* Somebody else has the memory meanwhile. */
		gpumem_buffer *other;
		OK(gpumem_buffer_create(session, 0, 1024 * MIB, NULL, &other));
		gm_device_set(gpumem_buffer_ptr(other), 1024 * MIB, 0xee);
		gpumem_buffer_destroy(other);

		OK(gpumem_region_resume(session, "weights", 0));
		GM_REQUIRE_EQ(on_host(), 0);
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
static void require_row(uint32_t device, uint64_t bytes, uint64_t used, const char *precision)
{
	struct gm_raw raw;
	Gm__Wire__GetBuffers get = GM__WIRE__GET_BUFFERS__INIT;
	gm_raw_observe(&raw, &daemon_);
	GM_REQUIRE_EQ(gm_raw_call(&raw, GM_RAW_PACKET(GET_BUFFERS, get_buffers, &get)), GPUMEM_OK);
	GM_REQUIRE_EQ(raw.packet->buffers->n_buffers, bytes != 0);
	if (bytes) {
		const Gm__Wire__Buffer *row = raw.packet->buffers->buffers[0];
		GM_REQUIRE_EQ(row->device, device);
		GM_REQUIRE_EQ(row->bytes, bytes);
		GM_REQUIRE_EQ(row->used_bytes, used);
		GM_REQUIRE_EQ(row->max_bytes, 128 * MIB);
		GM_REQUIRE(strcmp(row->tag, "weights") == 0);
		GM_REQUIRE(strcmp(row->type, "region") == 0);
		GM_REQUIRE(strcmp(row->precision, precision) == 0);
	}
	gm_raw_close(&raw);
}

START_TEST(others_see_where_a_region_is)
{
	gpumem_region *region = create("weights", 128 * MIB);
	require_row(0, 0, 0, "");
	void *a = take(region, 3 * MIB);
	require_row(0, 128 * MIB, 3 * MIB, "");
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP));
	require_row(1, 4 * MIB, 3 * MIB, "paused");
	OK(gpumem_region_resume(session, "weights", 0));
	require_row(0, 4 * MIB, 3 * MIB, "");
	OK(gpumem_region_free(region, a, NULL));
	require_row(0, 4 * MIB, 0, "");
	OK(gpumem_region_pause(session, "weights", GPUMEM_REGION_DROP));
	require_row(0, 0, 0, "");
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
	GM_REQUIRE_EQ(on_host(), 0);
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
	GM_REQUIRE_EQ(pthread_create(&r.thread, NULL, resume_there, &r), 0);
	GM_REQUIRE_EQ(gm_daemon_spawn(&daemon_), -1);
	GM_REQUIRE_EQ(pthread_join(r.thread, NULL), 0);
	if (r.status)
		GM_FAIL("%s", r.detail);
	require_pattern(a, 40 * MIB, 1);
	GM_UNTIL(on_host() == 0);
	gpumem_region_destroy(region);
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
	GM_REQUIRE_EQ(on_host(), 0);
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
	Suite *suite = suite_create("client region");
	TCase *tc = tcase_create("client region");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, a_region_gets_memory_in_large_pieces_up_to_its_size);
	tcase_add_test(tc, a_region_makes_do_with_what_the_device_has_left);
	tcase_add_test(tc, a_region_can_have_its_memory_from_the_start);
	tcase_add_test(tc, calls_that_make_no_sense_are_refused);
	tcase_add_test(tc, a_pause_gives_the_memory_back_and_a_resume_gets_it_again);
	tcase_add_test(tc, a_resume_takes_the_chunks_that_the_pause_left_in_the_pool);
	tcase_add_test(tc, a_region_without_memory_can_be_paused_too);
	tcase_add_test(tc, what_a_paused_region_cannot_do_is_refused_and_names_it);
	if (!gm_on_gpu())
		tcase_add_test(tc, memory_of_a_paused_region_cannot_be_used);
	tcase_add_test(tc, a_resume_that_finds_no_memory_leaves_the_region_paused);
	tcase_add_test(tc, a_resume_waits_for_its_turn_and_others_see_that);
	tcase_add_test(tc, a_region_can_be_paused_while_an_allocation_waits_for_memory);
	tcase_add_test(tc, paused_regions_end_with_their_session);
	tcase_add_test(tc, a_restart_of_the_daemon_changes_nothing);
	tcase_add_test(tc, a_forked_child_cannot_use_its_parents_regions);
	tcase_add_test(tc, several_threads_allocate_pause_and_resume);
	tcase_add_test(tc, several_threads_make_a_region_grow_up_to_its_size);
	suite_add_tcase(suite, tc);

	tc = tcase_create("client region that keeps its content");
	tcase_add_checked_fixture(tc, set_up_keeping, tear_down);
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, content_that_is_kept_comes_back_byte_for_byte);
	tcase_add_test(tc, the_host_pays_for_what_is_kept_and_says_so);
	tcase_add_test(tc, others_see_where_a_region_is);
	tcase_add_test(tc, content_that_finds_no_host_memory_stays_on_the_device);
	tcase_add_test(tc, kept_content_survives_a_resume_that_fails);
	tcase_add_test(tc, kept_content_survives_restarts_of_the_daemon);
	tcase_add_test(tc, kept_content_ends_with_its_session);
	tcase_add_test(tc, what_was_freed_while_content_is_kept_is_free_afterwards);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
