/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of the program that are cancelled in a call: they end after it, and nobody else is held
 * up, nothing lost.
 */
#include "autoconf.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "client/heap/arena_private.h"
#include "client/session/gpumem_session.h"
#include "proto/gpumem.pb-c.h"
#include "tests/tap.h"
#include "tests/unit/session/session_fixture.h"

/*
 * A function that is cancelled has no variables of its own: address sanitizer is not told that its
 * frame has gone, and takes what it marked there for the next one's.
 */
static void *ptr, *first;
static gpumem_buffer *buffer;
static gpumem_status status;

/* From here on this thread ends as soon as a call lets it. */
static void cancel_me(void)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	ck_assert_int_eq(pthread_cancel(pthread_self()), 0);
	/* No assertion after this: Check writes to a pipe for each. */
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
}

static void must_end_cancelled(pthread_t thread)
{
	void *result;
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
}

static void run_cancelled(void *(*fn)(void *))
{
	pthread_t thread;
	ck_assert_int_eq(pthread_create(&thread, NULL, fn, NULL), 0);
	must_end_cancelled(thread);
}

static void *small_ones(void *unused)
{
	/* The first one makes the heap; the next one fills this thread's cache. */
	ck_assert_int_eq(gpumem_alloc(session, 0, 512, GPUMEM_STREAM_ANY, NULL, &first), GPUMEM_OK);
	cancel_me();
	status = gpumem_alloc(session, 0, 512, GPUMEM_STREAM_ANY, NULL, &ptr);
	pthread_testcancel();
	return NULL;
}

START_TEST(a_thread_that_is_cancelled_leaves_its_cache_in_order)
{
	run_cancelled(small_ones);
	ck_assert_int_eq(status, GPUMEM_OK);
	ck_assert_ptr_nonnull(ptr);
	ck_assert_int_eq(gpumem_free(session, ptr, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_int_eq(gpumem_trim(session, NULL), GPUMEM_OK);
}
END_TEST

static _Atomic bool let_go;

static void *asks(void *ctx)
{
	ck_assert_int_eq(
		gpumem_alloc(session, 0, 3 * MIB, GPUMEM_STREAM_ANY, NULL, ctx), GPUMEM_OK);
	return NULL;
}

static void *counts_on_it(void *unused)
{
	cancel_me();
	status = gpumem_alloc(session, 0, 64 << 10, GPUMEM_STREAM_ANY, NULL, &ptr);
	atomic_store(&let_go, true);
	pthread_testcancel();
	return NULL;
}

static bool somebody_waits(void)
{
	struct gm_arena *arena = atomic_load(&session->device[0].arena);
	gm_lock(&arena->lock);
	bool waits = arena->waiters > 0;
	gm_lock_drop(&arena->lock);
	return waits;
}

START_TEST(a_thread_that_is_cancelled_while_it_waits_for_anothers_request_holds_up_nobody)
{
	pthread_t asker, other;
	void *large;
	fake_will(fake, &(struct fake_will){.hold = GM__WIRE__PACKET__BODY_LEASE});
	ck_assert_int_eq(pthread_create(&asker, NULL, asks, &large), 0);
	fake_wait_seen(fake, GM__WIRE__PACKET__BODY_LEASE, 1);
	ck_assert_int_eq(pthread_create(&other, NULL, counts_on_it, NULL), 0);
	while (!somebody_waits())
		sched_yield();
	ck_assert(!atomic_load(&let_go));
	fake_will(fake, &(struct fake_will){0});
	ck_assert_int_eq(pthread_join(asker, NULL), 0);
	must_end_cancelled(other);
	ck_assert(atomic_load(&let_go));
	ck_assert_int_eq(status, GPUMEM_OK);
	ck_assert_int_eq(gpumem_free(session, large, GPUMEM_STREAM_DONE), GPUMEM_OK);
	ck_assert_int_eq(gpumem_free(session, ptr, GPUMEM_STREAM_DONE), GPUMEM_OK);
}
END_TEST

static void *makes_a_buffer(void *unused)
{
	cancel_me();
	status = gpumem_buffer_create(session, 0, MIB, NULL, &buffer);
	pthread_testcancel();
	return NULL;
}

START_TEST(a_buffer_that_a_cancelled_thread_made_is_there)
{
	run_cancelled(makes_a_buffer);
	ck_assert_int_eq(status, GPUMEM_OK);
	ck_assert_ptr_nonnull(buffer);
	ck_assert_uint_eq(fake_leases(fake), 1);
	gpumem_buffer_destroy(buffer);
	fake_wait_leases(fake, 0);
}
END_TEST

static __attribute__((noinline)) void connect_now(void)
{
	status = try_connect(20000, &session);
}

static void *connects(void *unused)
{
	cancel_me();
	connect_now();
	pthread_testcancel();
	return NULL;
}

START_TEST(a_session_that_a_cancelled_thread_made_is_there)
{
	gpumem_disconnect(session);
	session = NULL;
	run_cancelled(connects);
	ck_assert_int_eq(status, GPUMEM_OK);
	ck_assert_ptr_nonnull(session);
	gpumem_buffer_destroy(make_buffer(MIB));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cancel");
	TCase *tc = tcase_create("cancel");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, a_thread_that_is_cancelled_leaves_its_cache_in_order);
	tcase_add_test(
		tc, a_thread_that_is_cancelled_while_it_waits_for_anothers_request_holds_up_nobody);
	tcase_add_test(tc, a_buffer_that_a_cancelled_thread_made_is_there);
	tcase_add_test(tc, a_session_that_a_cancelled_thread_made_is_there);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
