/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "client/map/ipc_cache.h"
#include "tests/tap.h"
#include "tests/unit/failing_malloc.h"

/*
 * A driver that counts: a block has one address while it is open, as the real one gives it, and
 * another when it is opened anew. It complains of a close that has no open.
 */

#define BLOCKS 8

static struct driver {
	pthread_mutex_t lock;
	/* By context, which has addresses of its own. */
	unsigned open[2][BLOCKS]; /* openings */
	unsigned life[2][BLOCKS]; /* how often it was opened anew */
	void *addr[2][BLOCKS];    /* where it is, or was last */
	void *next;               /* where the next one comes to lie; NULL: where it belongs */
	unsigned opens, closes;
	int fail_open, fail_close; /* the next one */
	uint64_t only_in;          /* the context that opens, whoever asks; 0: any */
	/* Called in an open, before it is done; in a close likewise. */
	void (*during)(void);
	void (*during_close)(void);
} driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct gm_ipc_cache cache = GM_IPC_CACHE_INIT;
static const uint64_t context_a = 1, context_b = UINT64_MAX;

static unsigned of(uint64_t context)
{
	return context == context_b;
}

static void *addr_of(unsigned context, unsigned block, unsigned life)
{
	return (void *)(GM_CHUNK_MIN *
			(uintptr_t)(1 + block +
				    (uint64_t)BLOCKS * (context + 2 * (uint64_t)(life % 4096))));
}

static int driver_open(void *ctx, const uint8_t *handle, uint64_t *context, void **ret_addr)
{
	unsigned block = handle[0];
	int r = 0;
	if (driver.only_in)
		*context = driver.only_in;
	ck_assert_ptr_eq(ctx, &driver);
	if (driver.during)
		driver.during();
	pthread_mutex_lock(&driver.lock);
	driver.opens++;
	if (driver.fail_open) {
		r = driver.fail_open;
		driver.fail_open = 0;
	} else {
		unsigned in = of(*context);
		if (driver.open[in][block]++ == 0) {
			driver.life[in][block]++;
			driver.addr[in][block] =
				driver.next ? driver.next
					    : addr_of(in, block, driver.life[in][block]);
			driver.next = NULL;
		}
		*ret_addr = driver.addr[in][block];
	}
	pthread_mutex_unlock(&driver.lock);
	return r;
}

static int driver_close(void *ctx, uint64_t context, void *addr)
{
	int r = 0;
	ck_assert(context == context_a || context == context_b);
	ck_assert(!driver.only_in || context == driver.only_in);
	if (driver.during_close)
		driver.during_close();
	pthread_mutex_lock(&driver.lock);
	unsigned in = of(context), block = 0;
	driver.closes++;
	if (driver.fail_close) {
		r = driver.fail_close;
		driver.fail_close = 0;
	} else {
		while (block < BLOCKS &&
			(!driver.open[in][block] || driver.addr[in][block] != addr))
			block++;
		ck_assert_uint_lt(block, BLOCKS);
		driver.open[in][block]--;
	}
	pthread_mutex_unlock(&driver.lock);
	return r;
}

static const struct gm_ipc_ops ops = {.open = driver_open, .close = driver_close};

static int take_in(unsigned block, uint64_t context, void **ret_addr)
{
	uint8_t handle[GM_IPC_HANDLE_BYTES] = {(uint8_t)block};
	return gm_ipc_cache_take(&cache, &ops, &driver, handle, context, ret_addr);
}

static void *take(unsigned block)
{
	void *addr = NULL;
	ck_assert_int_eq(take_in(block, context_a, &addr), 0);
	return addr;
}

static int put(void *addr)
{
	return gm_ipc_cache_put(&cache, &ops, &driver, addr);
}

static void teardown(void)
{
	for (unsigned i = 0; i < BLOCKS; i++)
		ck_assert_uint_eq(driver.open[0][i] + driver.open[1][i], 0);
	for (unsigned i = 0; i < GM_IPC_CACHE_BUCKETS; i++) {
		ck_assert_ptr_null(cache.by_handle[i]);
		ck_assert_ptr_null(cache.by_addr[i]);
	}
}

START_TEST(a_block_that_opens_elsewhere_is_closed_there)
{
	void *a, *b, *in_b;
	driver.only_in = context_b;
	a = take(1);
	b = take(2);
	/* The same opening for both contexts, whoever asked first. */
	ck_assert_int_eq(take_in(1, context_b, &in_b), 0);
	ck_assert_ptr_eq(in_b, a);
	ck_assert_ptr_eq(take(2), b);
	ck_assert_uint_eq(driver.open[1][1], 1);
	ck_assert_uint_eq(driver.open[1][2], 1);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(put(a), 0);
		ck_assert_int_eq(put(b), 0);
	}
}
END_TEST

START_TEST(a_block_in_the_place_of_one_that_went_with_its_context_is_not_closed_for_it)
{
	void *former = take(1), *now;
	/* The context is destroyed, and the driver gives the address to the next one. */
	driver.open[0][1] = 0;
	driver.next = former;
	ck_assert_int_eq(take_in(2, context_b, &now), 0);
	ck_assert_ptr_eq(now, former);
	driver.only_in = context_b;
	ck_assert_int_eq(put(former), 0);
	ck_assert_uint_eq(driver.closes, 0);
	ck_assert_int_eq(put(now), 0);
	ck_assert_uint_eq(driver.closes, 1);
	ck_assert_int_eq(put(now), -ENOENT);
}
END_TEST

START_TEST(a_block_is_opened_once_and_closed_after_its_last_use)
{
	void *a = take(1), *again = take(1), *other = take(2);
	ck_assert_ptr_eq(a, again);
	ck_assert_ptr_ne(a, other);
	ck_assert_uint_eq(driver.opens, 2);
	ck_assert_int_eq(put(a), 0);
	ck_assert_uint_eq(driver.closes, 0);
	ck_assert_int_eq(put(a), 0);
	ck_assert_uint_eq(driver.closes, 1);
	ck_assert_int_eq(put(other), 0);
}
END_TEST

START_TEST(what_is_not_open_cannot_be_closed)
{
	void *a = take(1);
	ck_assert_int_eq(put((char *)a + 1), -ENOENT);
	ck_assert_int_eq(put(a), 0);
	ck_assert_int_eq(put(a), -ENOENT);
	ck_assert_uint_eq(driver.closes, 1);
}
END_TEST

START_TEST(an_open_that_fails_leaves_nothing)
{
	void *addr = &driver;
	driver.fail_open = -EIO;
	ck_assert_int_eq(take_in(3, context_a, &addr), -EIO);
	ck_assert_ptr_eq(addr, &driver);
	ck_assert_int_eq(put(take(3)), 0);
}
END_TEST

START_TEST(a_close_that_fails_can_be_tried_again)
{
	void *a = take(1);
	driver.fail_close = -EIO;
	ck_assert_int_eq(put(a), -EIO);
	/* It is open still, and found. */
	ck_assert_ptr_eq(take(1), a);
	ck_assert_uint_eq(driver.opens, 1);
	ck_assert_int_eq(put(a), 0);
	ck_assert_int_eq(put(a), 0);
	ck_assert_uint_eq(driver.closes, 2);
}
END_TEST

START_TEST(each_context_opens_for_itself)
{
	void *a = take(1), *b = NULL;
	ck_assert_int_eq(take_in(1, context_b, &b), 0);
	ck_assert_uint_eq(driver.opens, 2);
	ck_assert_int_eq(put(a), 0);
	ck_assert_int_eq(put(b), 0);
	ck_assert_uint_eq(driver.closes, 2);
}
END_TEST

/* Another thread opens the block first, while this one is at it. */
static void overtaken(void)
{
	driver.during = NULL;
	ck_assert_ptr_nonnull(take(4));
}

START_TEST(who_comes_second_with_an_open_closes_it_again)
{
	driver.during = overtaken;
	void *a = take(4);
	ck_assert_uint_eq(driver.opens, 2);
	ck_assert_uint_eq(driver.closes, 1);
	ck_assert_uint_eq(driver.open[0][4], 1);
	ck_assert_int_eq(put(a), 0);
	ck_assert_int_eq(put(a), 0);
	ck_assert_uint_eq(driver.closes, 2);
}
END_TEST

START_TEST(a_second_open_that_does_not_close_is_closed_with_the_first)
{
	driver.during = overtaken;
	driver.fail_close = -EIO;
	void *a = take(4);
	ck_assert_uint_eq(driver.open[0][4], 2);
	ck_assert_int_eq(put(a), 0);
	ck_assert_uint_eq(driver.open[0][4], 2);
	ck_assert_int_eq(put(a), 0);
	ck_assert_uint_eq(driver.open[0][4], 0);
}
END_TEST

/* Another thread opens the block anew, while this one closes it in vain. */
static void taken_again(void)
{
	driver.during_close = NULL;
	ck_assert_ptr_nonnull(take(5));
}

/* The close after this one fails. */
static void fail_next(void)
{
	static unsigned calls;
	if (calls++ == 1) {
		driver.during_close = NULL;
		driver.fail_close = -EIO;
	}
}

START_TEST(what_could_not_be_closed_is_closed_with_the_one_opened_meanwhile)
{
	void *a = take(5);
	driver.during_close = taken_again;
	driver.fail_close = -EIO;
	ck_assert_int_eq(put(a), -EIO);
	ck_assert_uint_eq(driver.opens, 2);
	/* One of the two uses is of the one that takes it on. */
	ck_assert_int_eq(put(a), 0);
	ck_assert_uint_eq(driver.closes, 1);
	/* The last one closes both openings, a failure in between notwithstanding. */
	if (_i)
		driver.during_close = fail_next;
	ck_assert_int_eq(put(a), _i ? -EIO : 0);
	if (_i)
		ck_assert_int_eq(put(a), 0);
	ck_assert_int_eq(put(a), -ENOENT);
}
END_TEST

START_TEST(without_memory_nothing_is_opened)
{
	void *addr = &driver;
	failing_malloc_arm(1);
	int r = take_in(6, context_a, &addr);
	bool fired = failing_malloc_fired();
	ck_assert(fired);
	ck_assert_int_eq(r, -ENOMEM);
	ck_assert_ptr_eq(addr, &driver);
	ck_assert_uint_eq(driver.opens, 0);
	ck_assert_int_eq(put(take(6)), 0);
}
END_TEST

static void *churn(void *ctx)
{
	unsigned seed = (unsigned)(uintptr_t)ctx;
	void *held[4] = {0};
	for (int i = 0; i < 3000; i++) {
		unsigned at = (unsigned)rand_r(&seed) % 4;
		if (held[at]) {
			if (put(held[at]) != 0)
				return "a block in use was closed";
			held[at] = NULL;
		} else if (take_in((unsigned)rand_r(&seed) % 3, context_a, &held[at]) < 0) {
			return "a block did not open";
		}
		if (i % 64 == 0)
			sched_yield();
	}
	for (int i = 0; i < 4; i++)
		if (held[i] && put(held[i]) != 0)
			return "a block in use was closed at the end";
	return NULL;
}

START_TEST(threads_share_blocks_and_the_last_one_closes)
{
	pthread_t threads[6];
	for (uintptr_t i = 0; i < 6; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
	for (int i = 0; i < 6; i++) {
		void *wrong;
		ck_assert_int_eq(pthread_join(threads[i], &wrong), 0);
		if (wrong)
			ck_abort_msg("%s", (const char *)wrong);
	}
	ck_assert_uint_eq(driver.opens, driver.closes);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ipc_cache");
	TCase *tcase = tcase_create("cache");
	tcase_add_checked_fixture(tcase, NULL, teardown);
	tcase_add_test(tcase, a_block_that_opens_elsewhere_is_closed_there);
	tcase_add_test(
		tcase, a_block_in_the_place_of_one_that_went_with_its_context_is_not_closed_for_it);
	tcase_add_test(tcase, a_block_is_opened_once_and_closed_after_its_last_use);
	tcase_add_test(tcase, what_is_not_open_cannot_be_closed);
	tcase_add_test(tcase, an_open_that_fails_leaves_nothing);
	tcase_add_test(tcase, a_close_that_fails_can_be_tried_again);
	tcase_add_test(tcase, each_context_opens_for_itself);
	tcase_add_test(tcase, who_comes_second_with_an_open_closes_it_again);
	tcase_add_test(tcase, a_second_open_that_does_not_close_is_closed_with_the_first);
	tcase_add_loop_test(
		tcase, what_could_not_be_closed_is_closed_with_the_one_opened_meanwhile, 0, 2);
	tcase_add_test(tcase, without_memory_nothing_is_opened);
	tcase_add_test(tcase, threads_share_blocks_and_the_last_one_closes);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
