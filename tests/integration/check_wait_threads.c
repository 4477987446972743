/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * A thread that waits for memory gets what another thread of its process frees, wherever the library
 * keeps that. The device is as good as full, its memory is held by this process alone, and what is
 * freed stays cached for an hour. So nobody but the waiting call itself can bring the memory.
 */

#include <pthread.h>
#include <string.h>

#include "gpumem/gpumem.h"
#include "tests/integration/device.h"
#include "tests/integration/raw.h"
#include "tests/tap.h"

#define KiB UINT64_C(1024)
#define MiB (UINT64_C(1) << 20)
/* Long enough for any machine. A call that nobody wakes fails with GPUMEM_E_TIMEOUT. */
#define LONG_MS 60000

static struct gm_daemon daemon_;
static gpumem_session *session;

static gpumem_session *join(void)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	gpumem_session *joined;
	options.socket = daemon_.socket;
	GM_REQUIRE_EQ(gpumem_connect(&options, &joined), GPUMEM_OK);
	return joined;
}

/* The daemon asks for cached memory once, and not again before the test is over. */
#define QUIET "decay = 1h\nafter_action = 1h\n"

static void start_with(const char *config)
{
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = config});
	session = join();
}

static void start(void)
{
	start_with(GM_DAEMON_CONFIG_WITH(QUIET, "64M"));
}

static void stop(void)
{
	gpumem_disconnect(session);
	gm_daemon_stop(&daemon_);
}

static void *take(uint64_t bytes)
{
	void *ptr = NULL;
	gpumem_status status = gpumem_alloc(session, 0, bytes, GPUMEM_STREAM_ANY, NULL, &ptr);
	if (status != GPUMEM_OK)
		GM_FAIL("%s: %s", gpumem_status_text(status), gpumem_error_detail());
	return ptr;
}

static void give(void *ptr)
{
	GM_REQUIRE_EQ(gpumem_free(session, ptr, GPUMEM_STREAM_DONE), GPUMEM_OK);
}

static gpumem_buffer *take_buffer(uint64_t bytes)
{
	gpumem_buffer *buffer = NULL;
	GM_REQUIRE_EQ(gpumem_buffer_create(session, 0, bytes, NULL, &buffer), GPUMEM_OK);
	return buffer;
}

/* ---- a thread that waits */

struct waiter {
	gpumem_session *session;
	uint64_t bytes;
	uint32_t wait_ms;
	bool buffer;
	gpumem_status status;
	char detail[256];
	void *ptr;
	gpumem_buffer *made;
	pthread_t thread;
};

static void *wait_here(void *ctx)
{
	struct waiter *w = ctx;
	if (w->buffer) {
		gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
		options.wait_ms = w->wait_ms;
		w->status = gpumem_buffer_create(w->session, 0, w->bytes, &options, &w->made);
		w->ptr = gpumem_buffer_ptr(w->made);
	} else {
		gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
		options.wait_ms = w->wait_ms;
		w->status =
			gpumem_alloc(w->session, 0, w->bytes, GPUMEM_STREAM_ANY, &options, &w->ptr);
	}
	snprintf(w->detail, sizeof(w->detail), "%s", gpumem_error_detail());
	return NULL;
}

/* Returns when so many requests wait in the daemon. */
static void begin(struct waiter *w, uint64_t waiting)
{
	if (!w->session)
		w->session = session;
	if (!w->wait_ms)
		w->wait_ms = LONG_MS;
	GM_REQUIRE(pthread_create(&w->thread, NULL, wait_here, w) == 0);
	GM_UNTIL(gm_queue_wait(&daemon_) == waiting);
}

static void await(struct waiter *w)
{
	GM_REQUIRE(pthread_join(w->thread, NULL) == 0);
	if (w->status != GPUMEM_OK)
		GM_FAIL("%s: %s", gpumem_status_text(w->status), w->detail);
	gm_device_set(w->ptr, w->bytes, 'w');
}

/* What the library cancelled does not wait any more, and leaves nothing behind. */
static void nobody_waits(void)
{
	GM_UNTIL(gm_queue_wait(&daemon_) == 0);
}

START_TEST(a_buffer_that_is_destroyed_serves_who_waits)
{
	struct waiter w = {.bytes = 20 * MiB, .buffer = _i};
	start();
	gpumem_buffer *held = take_buffer(60 * MiB);
	begin(&w, 1);
	gpumem_buffer_destroy(held);
	await(&w);
	stop();
}
END_TEST

START_TEST(chunks_that_are_freed_serve_who_waits_for_a_buffer)
{
	struct waiter w = {.bytes = 20 * MiB, .buffer = true};
	start();
	void *held = take(60 * MiB);
	begin(&w, 1);
	give(held);
	await(&w);
	stop();
}
END_TEST

START_TEST(chunks_that_are_freed_serve_who_waits)
{
	struct waiter w = {.bytes = 20 * MiB};
	start();
	void *held = take(60 * MiB);
	begin(&w, 1);
	give(held);
	await(&w);
	stop();
}
END_TEST

START_TEST(a_piece_of_a_chunk_that_is_freed_serves_who_waits)
{
	struct waiter w = {.bytes = 900 * KiB};
	void *pieces[80], *ptr;
	int n = 0;
	start();
	/* About two pieces to a chunk, until there is no more: no chunk becomes free. */
	while (n < 80 &&
		gpumem_alloc(session, 0, 900 * KiB, GPUMEM_STREAM_ANY, NULL, &ptr) == GPUMEM_OK)
		pieces[n++] = ptr;
	begin(&w, 1);
	give(pieces[n / 2]);
	await(&w);
	nobody_waits();
	stop();
}
END_TEST

START_TEST(pieces_that_lie_apart_serve_who_waits_with_what_the_daemon_has)
{
	struct waiter w = {.bytes = 12 * MiB};
	void *pieces[10];
	start();
	gpumem_buffer *other = take_buffer(4 * MiB);
	for (int i = 0; i < 10; i++)
		pieces[i] = take(6 * MiB);
	begin(&w, 1);
	/* Neither of them alone is enough. */
	give(pieces[2]);
	give(pieces[7]);
	gpumem_buffer_destroy(other);
	await(&w);
	nobody_waits();
	stop();
}
END_TEST

/* Frees a small block, which its cache keeps, and lives on. */
struct hoarder {
	void *ptr;
	pthread_barrier_t done;
};

static void *hoard(void *ctx)
{
	struct hoarder *h = ctx;
	give(h->ptr);
	pthread_barrier_wait(&h->done);
	pthread_barrier_wait(&h->done);
	return NULL;
}

START_TEST(what_another_threads_cache_keeps_serves_who_waits)
{
	struct waiter w = {.bytes = 16 * KiB};
	struct hoarder h = {.ptr = NULL};
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	pthread_t thread;
	void *ptr;
	start();
	/* Small blocks until there is no more. One thread's cache holds none of them. */
	while (gpumem_alloc(session, 0, 16 * KiB, GPUMEM_STREAM_ANY, &options, &ptr) == GPUMEM_OK)
		h.ptr = ptr;
	begin(&w, 1);
	pthread_barrier_init(&h.done, NULL, 2);
	GM_REQUIRE(pthread_create(&thread, NULL, hoard, &h) == 0);
	pthread_barrier_wait(&h.done);
	await(&w);
	pthread_barrier_wait(&h.done);
	GM_REQUIRE(pthread_join(thread, NULL) == 0);
	pthread_barrier_destroy(&h.done);
	nobody_waits();
	stop();
}
END_TEST

START_TEST(who_waits_without_end_is_served_as_well)
{
	struct waiter w = {.bytes = 20 * MiB, .wait_ms = GPUMEM_WAIT_FOREVER};
	start_with(GM_DAEMON_CONFIG_WITH(QUIET "deadlock_after = 1h\n", "64M"));
	void *held = take(60 * MiB);
	begin(&w, 1);
	give(held);
	await(&w);
	stop();
}
END_TEST

START_TEST(of_several_who_wait_all_are_served_as_memory_is_freed)
{
	enum { MANY = 8 };
	struct waiter w[MANY];
	void *held[MANY];
	start();
	for (int i = 0; i < MANY; i++)
		held[i] = take(8 * MiB - 64 * KiB);
	for (int i = 0; i < MANY; i++) {
		w[i] = (struct waiter){.bytes = 8 * MiB - 64 * KiB};
		begin(&w[i], (uint64_t)i + 1);
	}
	for (int i = 0; i < MANY; i++)
		give(held[i]);
	for (int i = 0; i < MANY; i++)
		await(&w[i]);
	nobody_waits();
	/* One after the other: each frees what the next one waits for. */
	for (int i = 0; i < MANY; i++) {
		held[i] = w[i].ptr;
		w[i] = (struct waiter){.bytes = 8 * MiB - 64 * KiB};
		begin(&w[i], 1);
		give(held[i]);
		await(&w[i]);
		nobody_waits();
	}
	stop();
}
END_TEST

START_TEST(another_session_of_the_process_is_served_through_the_daemon)
{
	struct waiter w = {.bytes = 20 * MiB};
	/* This daemon asks again and again, as daemons do. */
	start_with(GM_DAEMON_CONFIG_WITH("decay = 1h\nafter_action = 10ms\n", "64M"));
	w.session = join();
	void *held = take(60 * MiB);
	begin(&w, 1);
	give(held);
	await(&w);
	gpumem_disconnect(w.session);
	stop();
}
END_TEST

START_TEST(who_waits_in_vain_is_told_that_the_time_is_over)
{
	struct waiter w = {.bytes = 20 * MiB, .wait_ms = 200};
	start();
	(void)take(60 * MiB);
	void *small = take(256 * KiB);
	w.session = session;
	GM_REQUIRE(pthread_create(&w.thread, NULL, wait_here, &w) == 0);
	/* Not enough, however often it is freed. */
	for (int i = 0; i < 1000; i++) {
		give(small);
		small = take(256 * KiB);
	}
	GM_REQUIRE(pthread_join(w.thread, NULL) == 0);
	GM_REQUIRE_EQ(w.status, GPUMEM_E_TIMEOUT);
	nobody_waits();
	stop();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("wait_threads");
	TCase *tcase = tcase_create("wait_threads");
	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, a_buffer_that_is_destroyed_serves_who_waits, 0, 2);
	tcase_add_test(tcase, chunks_that_are_freed_serve_who_waits_for_a_buffer);
	tcase_add_test(tcase, chunks_that_are_freed_serve_who_waits);
	tcase_add_test(tcase, a_piece_of_a_chunk_that_is_freed_serves_who_waits);
	tcase_add_test(tcase, pieces_that_lie_apart_serve_who_waits_with_what_the_daemon_has);
	tcase_add_test(tcase, what_another_threads_cache_keeps_serves_who_waits);
	tcase_add_test(tcase, who_waits_without_end_is_served_as_well);
	tcase_add_test(tcase, of_several_who_wait_all_are_served_as_memory_is_freed);
	tcase_add_test(tcase, another_session_of_the_process_is_served_through_the_daemon);
	tcase_add_test(tcase, who_waits_in_vain_is_told_that_the_time_is_over);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
