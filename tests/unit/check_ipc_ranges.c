/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The addresses of ipc blocks, over a driver of this test's own: a map of pages, of which each is
 * free, memory or reserved. It can be told to reserve nothing, or not where it was asked to, or no
 * more than one former place at a time, and to fail. It has no lock: whoever calls it from two
 * threads at a time is found out by the thread sanitizer.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ipc_ranges.h"
#include "tests/limit.h"
#include "tests/tap.h"
#include "tests/unit/failing_malloc.h"

#define MIB   ((uint64_t)1 << 20)
#define GIB   ((uint64_t)1 << 30)
#define PAGE  (2 * MIB)
#define BASE  ((uint64_t)1 << 40)
#define PAGES (17 * 1024 * (GIB / PAGE))

/* Allocates nothing when all is well: memory may be made to fail. */
#define must(truth) \
	do { \
		if (!(truth)) \
			ck_abort_msg("%s", #truth); \
	} while (0)

/* ---- the driver */

enum { FREE, MEMORY, RESERVED };
static uint8_t pages[PAGES];
static struct {
	enum { HONOURS, REFUSES, ELSEWHERE, HALVES, LACKS, KINDS } kind;
	uint64_t memory, reserved; /* pages */
	uint64_t limit;            /* of memory, in pages; 0: none */
	uint64_t skip;             /* the next memory is put as many pages further on */
	bool alloc_fails, free_fails, unreserve_fails;
	unsigned calls;
} driver;

static bool is(uint64_t first, uint64_t n, uint8_t what)
{
	for (uint64_t i = first; i < first + n; i++)
		if (i >= PAGES || pages[i] != what)
			return false;
	return true;
}

static uint64_t first_fit(uint64_t n)
{
	uint64_t run = 0;

	for (uint64_t i = driver.skip; i < PAGES; i++) {
		run = pages[i] == FREE ? run + 1 : 0;
		if (run == n)
			return i + 1 - n;
	}
	ck_abort_msg("no addresses are left");
}

static uint64_t page_of(gm_cu_ptr ptr)
{
	must(ptr >= BASE);
	must((ptr - BASE) % PAGE == 0);
	return (ptr - BASE) / PAGE;
}

/* How long each place was that is in use, by its first page. */
static uint64_t lengths[PAGES];

static gm_cu_result driver_alloc(gm_cu_ptr *ptr, size_t bytes)
{
	uint64_t n = bytes / PAGE, at;

	driver.calls++;
	if (driver.alloc_fails || (driver.limit && driver.memory + n > driver.limit))
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	at = first_fit(n);
	memset(&pages[at], MEMORY, n);
	lengths[at] = n;
	driver.memory += n;
	*ptr = BASE + at * PAGE;
	return GM_CUDA_SUCCESS;
}

static gm_cu_result driver_free(gm_cu_ptr ptr)
{
	uint64_t at = page_of(ptr);

	driver.calls++;
	if (driver.free_fails)
		return GM_CUDA_ERROR_UNKNOWN;
	must(is(at, lengths[at], MEMORY));
	memset(&pages[at], FREE, lengths[at]);
	driver.memory -= lengths[at];
	return GM_CUDA_SUCCESS;
}

static gm_cu_result driver_reserve(
	gm_cu_ptr *ptr, size_t bytes, size_t alignment, gm_cu_ptr hint, unsigned long long flags)
{
	uint64_t n = bytes / PAGE, at = page_of(hint);

	driver.calls++;
	must(alignment == 0 && flags == 0);
	if (driver.kind == REFUSES)
		return GM_CUDA_ERROR_NOT_SUPPORTED;
	if (driver.kind == ELSEWHERE || (driver.kind == HALVES && lengths[at] < n) ||
		!is(at, n, FREE)) {
		uint64_t skip = driver.skip;
		driver.skip = PAGES / 2;
		at = first_fit(n);
		driver.skip = skip;
	}
	memset(&pages[at], RESERVED, n);
	driver.reserved += n;
	*ptr = BASE + at * PAGE;
	return GM_CUDA_SUCCESS;
}

static gm_cu_result driver_unreserve(gm_cu_ptr ptr, size_t bytes)
{
	uint64_t at = page_of(ptr), n = bytes / PAGE;

	driver.calls++;
	if (driver.unreserve_fails)
		return GM_CUDA_ERROR_UNKNOWN;
	must(is(at, n, RESERVED));
	memset(&pages[at], FREE, n);
	driver.reserved -= n;
	return GM_CUDA_SUCCESS;
}

static struct gm_cuda cuda = {
	.cuMemAlloc = driver_alloc,
	.cuMemFree = driver_free,
	.cuMemAddressReserve = driver_reserve,
	.cuMemAddressFree = driver_unreserve,
};

static struct gm_ipc_ranges *ranges;

static void begin(int kind)
{
	driver.kind = kind;
	if (kind == LACKS)
		cuda.cuMemAddressReserve = NULL;
	ck_assert_int_eq(gm_ipc_ranges_new(&cuda, &ranges), 0);
}

/* Whatever happened, nothing of ours is left at the driver's. */
static void end(uint64_t memory)
{
	gm_ipc_ranges_free(ranges);
	ck_assert_uint_eq(driver.reserved, 0);
	ck_assert_uint_eq(driver.memory, memory);
}

/* ---- what it is asked */

static struct gm_seen by(gm_domain domain)
{
	return (struct gm_seen){.domain = domain, .uid = 1000};
}

static int try(const struct gm_seen *seen, uint64_t bytes, gm_cu_ptr *ptr)
{
	gm_cu_result result = GM_CUDA_SUCCESS;
	int r = gm_ipc_ranges_take(ranges, 0, bytes, seen, ptr, &result);

	if (r == GM_IPC_RANGES_E_DRIVER)
		must(result == GM_CUDA_ERROR_OUT_OF_MEMORY);
	return r;
}

static gm_cu_ptr take(gm_domain domain, uint64_t bytes)
{
	struct gm_seen seen = by(domain);
	gm_cu_ptr ptr;

	ck_assert_int_eq(try(&seen, bytes, &ptr), 0);
	return ptr;
}

static void give(gm_cu_ptr ptr, gm_domain domain)
{
	struct gm_seen seen = by(domain);

	ck_assert_int_eq(gm_ipc_ranges_release(ranges, ptr, &seen), GM_CUDA_SUCCESS);
}

static bool apart(gm_cu_ptr a, gm_cu_ptr b, uint64_t bytes)
{
	return a + bytes <= b || b + bytes <= a;
}

static uint64_t left(uid_t uid)
{
	uint64_t n, bytes;

	gm_ipc_ranges_left(ranges, uid, &n, &bytes);
	return n;
}

START_TEST(another_domain_never_gets_what_one_has_had_however_the_driver_reserves)
{
	gm_cu_ptr first, other, larger;

	begin(_i);
	first = take(1, 8 * MIB);
	give(first, 1);
	for (gm_domain domain = 2; domain < 6; domain++) {
		other = take(domain, 8 * MIB);
		ck_assert(apart(first, other, 8 * MIB));
		larger = take(domain, 16 * MIB);
		ck_assert(larger >= first + 8 * MIB || larger + 16 * MIB <= first);
		give(other, domain);
		give(larger, domain);
	}
	ck_assert_uint_eq(driver.memory, 0); /* what was avoided is not kept */
	ck_assert_uint_eq(take(1, 8 * MIB), first);
	give(first, 1);
	end(0);
}
END_TEST

START_TEST(many_places_of_others_are_avoided_at_once_however_the_driver_reserves)
{
	gm_cu_ptr had[8], got[8];

	begin(_i);
	for (int i = 0; i < 8; i++)
		had[i] = take(1, 4 * MIB);
	for (int i = 0; i < 8; i++)
		give(had[i], 1);
	for (int i = 0; i < 8; i++) {
		got[i] = take(2, 4 * MIB);
		for (int j = 0; j < 8; j++)
			ck_assert(apart(got[i], had[j], 4 * MIB));
	}
	ck_assert_uint_eq(driver.memory, 8 * 2);
	for (int i = 0; i < 8; i++)
		give(got[i], 2);
	end(0);
}
END_TEST

START_TEST(a_domain_gets_its_own_place_again_in_its_size_and_on_its_device)
{
	struct gm_seen seen = by(1);
	gm_cu_ptr first, ptr;
	gm_cu_result result;

	begin(HONOURS);
	first = take(1, 8 * MIB);
	give(first, 1);
	for (int i = 0; i < 100; i++) {
		ptr = take(1, 8 * MIB);
		ck_assert_uint_eq(ptr, first);
		give(ptr, 1);
	}
	ck_assert_uint_eq(left(1000), 1);
	ptr = take(1, 4 * MIB);
	ck_assert(apart(ptr, first, 8 * MIB));
	give(ptr, 1);
	ck_assert_int_eq(gm_ipc_ranges_take(ranges, 1, 8 * MIB, &seen, &ptr, &result), 0);
	ck_assert(apart(ptr, first, 8 * MIB));
	give(ptr, 1);
	ck_assert_uint_eq(left(1000), 3);
	end(0);
}
END_TEST

START_TEST(sizes_are_rounded_to_what_the_driver_reserves)
{
	gm_cu_ptr ptr;

	begin(HONOURS);
	ptr = take(1, 3 * MIB);
	ck_assert_uint_eq(driver.memory, 2);
	give(ptr, 1);
	ck_assert_uint_eq(driver.reserved, 2);
	end(0);
}
END_TEST

START_TEST(what_several_domains_have_seen_nobody_gets_again)
{
	struct gm_seen several = {.domain = 1, .uid = 1000, .several = true};
	gm_cu_ptr first;

	begin(HONOURS);
	first = take(1, 8 * MIB);
	if (_i)
		give(first, 2); /* another one than it was made for */
	else
		ck_assert_int_eq(gm_ipc_ranges_release(ranges, first, &several), GM_CUDA_SUCCESS);
	for (gm_domain domain = 1; domain < 5; domain++)
		ck_assert(apart(take(domain, 8 * MIB), first, 8 * MIB));
	end(4 * 4);
}
END_TEST

START_TEST(what_nobody_saw_is_anybodys)
{
	struct gm_seen fresh = by(GM_DOMAIN_FRESH);
	gm_cu_ptr ptr, first;

	begin(HONOURS);
	ck_assert_int_eq(try(&fresh, 8 * MIB, &first), 0);
	ck_assert_int_eq(gm_ipc_ranges_release(ranges, first, _i ? &fresh : NULL), 0);
	ck_assert_uint_eq(driver.reserved, 0);
	ck_assert_uint_eq(left(1000), 0);
	ptr = take(2, 8 * MIB);
	ck_assert_uint_eq(ptr, first);
	ck_assert_int_eq(gm_ipc_ranges_release(ranges, ptr, NULL), 0);
	/* A fresh one becomes the domain's that it was given to. */
	ck_assert_int_eq(try(&fresh, 8 * MIB, &ptr), 0);
	ck_assert_uint_eq(ptr, first);
	give(ptr, 3);
	ck_assert_uint_eq(left(1000), 1);
	ck_assert(apart(take(2, 8 * MIB), first, 8 * MIB));
	ck_assert_uint_eq(take(3, 8 * MIB), first);
	end(8);
}
END_TEST

START_TEST(a_place_that_was_seen_earlier_stays_its_domains_though_a_block_there_was_not)
{
	gm_cu_ptr first;

	begin(HONOURS);
	first = take(1, 8 * MIB);
	give(first, 1);
	ck_assert_uint_eq(take(1, 8 * MIB), first);
	ck_assert_int_eq(gm_ipc_ranges_release(ranges, first, NULL), 0);
	ck_assert(apart(take(2, 8 * MIB), first, 8 * MIB));
	end(4);
}
END_TEST

START_TEST(a_failed_allocation_leaves_everything_as_it_was)
{
	struct gm_seen one = by(1), two = by(2);
	gm_cu_ptr first, ptr = 17;

	begin(_i);
	first = take(1, 8 * MIB);
	give(first, 1);
	uint64_t reserved = driver.reserved;
	driver.alloc_fails = true;
	ck_assert_int_eq(try(&one, 8 * MIB, &ptr), GM_IPC_RANGES_E_DRIVER);
	ck_assert_int_eq(try(&two, 8 * MIB, &ptr), GM_IPC_RANGES_E_DRIVER);
	ck_assert_uint_eq(ptr, 17);
	ck_assert_uint_eq(driver.reserved, reserved);
	ck_assert_uint_eq(left(1000), 1);
	driver.alloc_fails = false;
	/* Without reservations memory must be kept while other memory is looked for. */
	driver.limit = 4;
	bool keeps = _i != HONOURS && _i != HALVES;
	ck_assert_int_eq(try(&two, 8 * MIB, &ptr), keeps ? GM_IPC_RANGES_E_DRIVER : 0);
	if (!keeps)
		give(ptr, 2);
	ck_assert_uint_eq(driver.memory, 0);
	ck_assert_uint_eq(take(1, 8 * MIB), first);
	end(4);
}
END_TEST

START_TEST(a_place_that_the_driver_passes_over_is_kept_and_another_one_offered_next)
{
	gm_cu_ptr first, second;

	begin(HONOURS);
	first = take(1, 8 * MIB);
	second = take(1, 8 * MIB);
	give(first, 1);
	give(second, 1);
	driver.skip = 1000;
	gm_cu_ptr far = take(1, 8 * MIB);
	ck_assert_uint_ge(far, BASE + 1000 * PAGE);
	ck_assert_uint_eq(driver.reserved, 8);
	driver.skip = 4; /* behind the first one */
	ck_assert_uint_eq(take(1, 8 * MIB), second);
	driver.skip = 0;
	ck_assert(apart(take(2, 8 * MIB), first, 8 * MIB));
	ck_assert_uint_eq(take(1, 8 * MIB), first);
	end(16);
}
END_TEST

START_TEST(a_reservation_that_does_not_end_is_left_alone)
{
	gm_cu_ptr first;

	begin(HONOURS);
	first = take(1, 8 * MIB);
	give(first, 1);
	driver.unreserve_fails = true;
	ck_assert(apart(take(1, 8 * MIB), first, 8 * MIB));
	driver.unreserve_fails = false;
	ck_assert_uint_eq(take(1, 8 * MIB), first);
	end(8);
}
END_TEST

START_TEST(a_block_that_cannot_be_freed_is_lost_with_its_place)
{
	struct gm_seen one = by(1);
	gm_cu_ptr first;

	begin(HONOURS);
	first = take(1, 8 * MIB);
	driver.free_fails = true;
	ck_assert_int_eq(gm_ipc_ranges_release(ranges, first, &one), GM_CUDA_ERROR_UNKNOWN);
	driver.free_fails = false;
	ck_assert_uint_eq(left(1000), 1);
	/* As when its context ends after all. */
	driver_free(first);
	for (gm_domain domain = 1; domain < 4; domain++)
		ck_assert(apart(take(domain, 8 * MIB), first, 8 * MIB));
	end(3 * 4);
}
END_TEST

/* As when a context was lost: the block is still to be released, and somebody has its handle. */
START_TEST(the_place_of_a_block_whose_memory_went_by_itself_is_avoided_as_well)
{
	struct gm_seen one = by(1);
	gm_cu_ptr first;

	begin(_i);
	first = take(1, 8 * MIB);
	driver_free(first);
	for (gm_domain domain = 1; domain < 4; domain++)
		ck_assert(apart(take(domain, 8 * MIB), first, 8 * MIB));
	driver.free_fails = true;
	ck_assert_int_eq(gm_ipc_ranges_release(ranges, first, &one), GM_CUDA_ERROR_UNKNOWN);
	driver.free_fails = false;
	ck_assert(apart(take(4, 8 * MIB), first, 8 * MIB));
	end(4 * 4);
}
END_TEST

START_TEST(places_that_are_not_guarded_are_guarded_when_the_driver_does_it)
{
	gm_cu_ptr first;

	begin(REFUSES);
	first = take(1, 8 * MIB);
	give(first, 1);
	ck_assert_uint_eq(driver.reserved, 0);
	driver.kind = HONOURS;
	ck_assert(apart(take(2, 8 * MIB), first, 8 * MIB));
	ck_assert_uint_eq(driver.reserved, 4);
	ck_assert_uint_eq(take(1, 8 * MIB), first);
	end(8);
}
END_TEST

/* ---- bounds */

/* Many ranges of one uid that no two lie side by side of, each of a domain of its own. */
static gm_domain leave_many(uid_t uid, uint64_t n)
{
	gm_domain domain = 100;
	gm_cu_ptr *ptr = calloc(n, sizeof *ptr), *between = calloc(n, sizeof *ptr);

	for (uint64_t i = 0; i < n; i++) {
		struct gm_seen seen = {.domain = domain + i, .uid = uid};
		ck_assert_int_eq(try(&seen, PAGE, &ptr[i]), 0);
		between[i] = take(1, PAGE);
	}
	for (uint64_t i = 0; i < n; i++) {
		struct gm_seen seen = {.domain = domain + i, .uid = uid};
		ck_assert_int_eq(gm_ipc_ranges_release(ranges, ptr[i], &seen), 0);
	}
	for (uint64_t i = 0; i < n; i++)
		give(between[i], 1);
	free(ptr);
	free(between);
	return domain;
}

START_TEST(a_uid_that_left_too_many_places_behind_gets_no_other_and_nobody_else_notices)
{
	struct gm_seen theirs = {.domain = 50, .uid = 7}, one = by(1), mine = {.domain = 51};
	uint64_t n, bytes;
	gm_cu_ptr ptr, again;

	GM_LIMIT_TEST(IPC_RANGES_PER_UID);
	begin(HONOURS);
	gm_domain first = leave_many(7, GM_LIMIT_IPC_RANGES_PER_UID - 1);
	ck_assert_int_eq(try(&theirs, PAGE, &ptr), 0);
	ck_assert_int_eq(gm_ipc_ranges_release(ranges, ptr, &theirs), 0);
	ck_assert(!gm_ipc_ranges_left(ranges, 7, &n, &bytes));
	ck_assert(gm_ipc_ranges_left(ranges, 7, &n, &bytes));
	ck_assert_uint_eq(n, GM_LIMIT_IPC_RANGES_PER_UID);
	ck_assert_uint_eq(bytes, GM_LIMIT_IPC_RANGES_PER_UID * PAGE);
	theirs.domain = 52;
	again = 17;
	ck_assert_int_eq(try(&theirs, PAGE, &again), GM_IPC_RANGES_E_SPENT);
	ck_assert_int_eq(try(&theirs, 2 * PAGE, &again), GM_IPC_RANGES_E_SPENT);
	ck_assert_uint_eq(again, 17);
	/* In a place of its domain's it may. */
	theirs.domain = 50;
	ck_assert_int_eq(try(&theirs, PAGE, &again), 0);
	ck_assert_uint_eq(again, ptr);
	ck_assert_int_eq(gm_ipc_ranges_release(ranges, ptr, &theirs), 0);
	theirs.domain = first;
	ck_assert_int_eq(try(&theirs, PAGE, &again), 0);
	ck_assert_int_eq(gm_ipc_ranges_release(ranges, again, &theirs), 0);
	/* … but not where the driver puts it instead. */
	driver.skip = PAGES / 4;
	uint64_t memory = driver.memory;
	ck_assert_int_eq(try(&theirs, PAGE, &again), GM_IPC_RANGES_E_SPENT);
	ck_assert_uint_eq(driver.memory, memory);
	driver.skip = 0;
	ck_assert_int_eq(try(&one, 4 * PAGE, &ptr), 0);
	ck_assert_int_eq(try(&mine, PAGE, &ptr), 0);
	end(5);
}
END_TEST

START_TEST(places_side_by_side_become_one_when_there_are_too_many)
{
	static gm_cu_ptr ptr[GM_LIMIT_IPC_RANGES_PER_UID];
	uint64_t n = GM_LIMIT_IPC_RANGES_PER_UID, bytes;

	begin(_i ? HALVES : HONOURS);
	for (uint64_t i = 0; i < n; i++)
		ptr[i] = take(1 + i, PAGE);
	for (uint64_t i = 0; i < n; i++)
		give(ptr[i], 1 + i);
	ck_assert_uint_eq(left(1000), n);
	struct gm_seen next = by(n + 1);
	gm_cu_ptr other;
	int r = try(&next, PAGE, &other);
	ck_assert_uint_eq(driver.reserved, n); /* not one is without */
	if (_i) {
		ck_assert_int_eq(r, GM_IPC_RANGES_E_SPENT);
		ck_assert_uint_eq(left(1000), n);
		unsigned calls = driver.calls;
		ck_assert_int_eq(try(&next, PAGE, &other), GM_IPC_RANGES_E_SPENT);
		ck_assert_uint_eq(driver.calls, calls); /* tried once, not at every request */
		end(0);
		return;
	}
	ck_assert_int_eq(r, 0);
	gm_ipc_ranges_left(ranges, 1000, &n, &bytes);
	ck_assert_uint_eq(n, 1);
	ck_assert_uint_eq(bytes, GM_LIMIT_IPC_RANGES_PER_UID * PAGE);
	for (gm_domain domain = 1; domain < 20; domain++)
		ck_assert_uint_ge(take(domain, PAGE), BASE + GM_LIMIT_IPC_RANGES_PER_UID * PAGE);
	end(20);
}
END_TEST

START_TEST(a_uid_that_left_too_much_behind_gets_no_other_place)
{
	struct gm_seen theirs = {.domain = 1, .uid = 7};
	gm_cu_ptr ptr;

	GM_LIMIT_TEST(IPC_RANGES_GIB_PER_UID);
	begin(HONOURS);
	for (int i = 0; i < 16; i++) {
		theirs.domain = 1 + (gm_domain)i;
		uint64_t bytes = (uint64_t)GM_LIMIT_IPC_RANGES_GIB_PER_UID / 16 * GIB;
		ck_assert_int_eq(try(&theirs, i == 15 ? bytes - PAGE : bytes, &ptr), 0);
		ck_assert_int_eq(gm_ipc_ranges_release(ranges, ptr, &theirs), 0);
	}
	theirs.domain = 17;
	ck_assert_int_eq(try(&theirs, PAGE, &ptr), 0);
	ck_assert_int_eq(gm_ipc_ranges_release(ranges, ptr, &theirs), 0);
	theirs.domain = 18;
	ck_assert_int_eq(try(&theirs, PAGE, &ptr), GM_IPC_RANGES_E_SPENT);
	take(19, PAGE); /* another uid */
	end(1);
}
END_TEST

/* ---- host memory */

START_TEST(the_first_block_of_all_without_host_memory_is_not_taken_either)
{
	struct gm_seen one = by(1);
	unsigned n = 0;
	gm_cu_ptr ptr;
	int r;

	begin(HONOURS);
	do {
		failing_malloc_arm(++n);
		r = try(&one, PAGE, &ptr);
		must(r == (failing_malloc_fired() ? -ENOMEM : 0));
		must(driver.memory == (r == 0));
	} while (r < 0);
	ck_assert_uint_gt(n, 3);
	end(1);
}
END_TEST

START_TEST(without_host_memory_nothing_is_taken_and_nothing_lost)
{
	gm_cu_ptr first[64], ptr;
	unsigned n = 0;
	bool fired;

	begin(_i);
	/* So many that the list must grow. */
	for (int i = 0; i < 64; i++)
		first[i] = take(1, PAGE);
	for (int i = 0; i < 64; i++)
		give(first[i], 1);
	struct gm_seen other = {.domain = 2, .uid = 8};
	do {
		uint64_t reserved = driver.reserved;
		failing_malloc_arm(++n);
		int r = try(&other, PAGE, &ptr);
		fired = failing_malloc_fired();
		ck_assert_int_eq(r == 0, !fired);
		if (!fired)
			break;
		ck_assert(r == -ENOMEM || r == GM_IPC_RANGES_E_DRIVER);
		ck_assert_uint_eq(driver.memory, 0);
		if (driver.kind != HONOURS)
			ck_assert_uint_eq(driver.reserved, reserved);
		ck_assert_uint_eq(left(8), 0);
	} while (true);
	ck_assert_uint_gt(n, 2);
	for (int i = 0; i < 64; i++)
		ck_assert(apart(ptr, first[i], PAGE));
	failing_malloc_arm(1);
	struct gm_ipc_ranges *none;
	ck_assert_int_eq(gm_ipc_ranges_new(&cuda, &none), -ENOMEM);
	ck_assert(failing_malloc_fired());
	end(1);
}
END_TEST

START_TEST(none_is_freed_as_well)
{
	gm_ipc_ranges_free(NULL);
}
END_TEST

/* ---- anything, in any order */

#define DOMAINS 5
#define BLOCKS  24

static uint32_t state;

static unsigned roll(unsigned n)
{
	state = state * 1664525 + 1013904223;
	return (state >> 16) % n;
}

/* Who has had each page: whoever gets one must be the only one who had it. */
static uint8_t history[PAGES];

START_TEST(whatever_happens_a_place_is_of_one_domain_for_ever)
{
	struct {
		gm_cu_ptr ptr;
		uint64_t pages;
		gm_domain domain;
	} block[BLOCKS] = {0};

	state = (uint32_t)_i + 1;
	begin((int)roll(LACKS));
	driver.limit = 512;
	for (int step = 0; step < 4000; step++) {
		unsigned i = roll(BLOCKS);
		driver.skip = roll(8) ? 0 : roll(512);
		if (roll(64) == 0)
			driver.kind = (int)roll(LACKS);
		driver.alloc_fails = roll(32) == 0;
		driver.unreserve_fails = roll(32) == 0;
		if (block[i].ptr) {
			struct gm_seen seen = by(block[i].domain);
			seen.several = roll(64) == 0;
			bool unseen = roll(8) == 0;
			uint64_t at = page_of(block[i].ptr);
			for (uint64_t p = at; p < at + block[i].pages && !unseen; p++)
				history[p] |= (uint8_t)(seen.several ? 0xff : 1u << seen.domain);
			ck_assert_int_eq(
				gm_ipc_ranges_release(ranges, block[i].ptr, unseen ? NULL : &seen),
				0);
			block[i].ptr = 0;
			continue;
		}
		struct gm_seen seen = by(1 + roll(DOMAINS));
		seen.uid = 1000 + (uid_t)seen.domain % 2;
		block[i].pages = 1 + roll(4);
		block[i].domain = seen.domain;
		if (try(&seen, block[i].pages * PAGE, &block[i].ptr) != 0) {
			block[i].ptr = 0;
			continue;
		}
		uint64_t at = page_of(block[i].ptr);
		for (uint64_t p = at; p < at + block[i].pages; p++)
			ck_assert_int_eq(history[p] & ~(1u << seen.domain), 0);
	}
	driver.unreserve_fails = false;
	uint64_t memory = 0;
	for (int i = 0; i < BLOCKS; i++)
		memory += block[i].ptr ? block[i].pages : 0;
	gm_ipc_ranges_free(ranges);
	ck_assert_uint_eq(driver.memory, memory);
}
END_TEST

static void *hammer(void *arg)
{
	gm_domain domain = (gm_domain)(uintptr_t)arg;

	for (int i = 0; i < 500; i++) {
		gm_cu_ptr a = take(domain, 4 * MIB), b = take(domain, 8 * MIB);
		give(a, domain);
		give(b, domain);
	}
	return NULL;
}

START_TEST(threads_of_several_devices_take_and_release_at_a_time)
{
	pthread_t threads[4];

	begin(HONOURS);
	for (uintptr_t i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, hammer, (void *)(i + 1)), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(left(1000), 8);
	end(0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ipc_ranges");
	TCase *tcase = tcase_create("ipc_ranges");

	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase,
		another_domain_never_gets_what_one_has_had_however_the_driver_reserves, 0, KINDS);
	tcase_add_loop_test(tcase,
		many_places_of_others_are_avoided_at_once_however_the_driver_reserves, 0, KINDS);
	tcase_add_test(tcase, a_domain_gets_its_own_place_again_in_its_size_and_on_its_device);
	tcase_add_test(tcase, sizes_are_rounded_to_what_the_driver_reserves);
	tcase_add_loop_test(tcase, what_several_domains_have_seen_nobody_gets_again, 0, 2);
	tcase_add_loop_test(tcase, what_nobody_saw_is_anybodys, 0, 2);
	tcase_add_test(tcase,
		a_place_that_was_seen_earlier_stays_its_domains_though_a_block_there_was_not);
	tcase_add_loop_test(tcase, a_failed_allocation_leaves_everything_as_it_was, 0, KINDS);
	tcase_add_test(
		tcase, a_place_that_the_driver_passes_over_is_kept_and_another_one_offered_next);
	tcase_add_test(tcase, a_reservation_that_does_not_end_is_left_alone);
	tcase_add_test(tcase, a_block_that_cannot_be_freed_is_lost_with_its_place);
	tcase_add_loop_test(tcase,
		the_place_of_a_block_whose_memory_went_by_itself_is_avoided_as_well, 0, KINDS);
	tcase_add_test(tcase, places_that_are_not_guarded_are_guarded_when_the_driver_does_it);
	tcase_add_test(tcase,
		a_uid_that_left_too_many_places_behind_gets_no_other_and_nobody_else_notices);
	tcase_add_loop_test(tcase, places_side_by_side_become_one_when_there_are_too_many, 0, 2);
	tcase_add_test(tcase, a_uid_that_left_too_much_behind_gets_no_other_place);
	tcase_add_loop_test(tcase, without_host_memory_nothing_is_taken_and_nothing_lost, 0, KINDS);
	tcase_add_test(tcase, the_first_block_of_all_without_host_memory_is_not_taken_either);
	tcase_add_test(tcase, none_is_freed_as_well);
	tcase_add_loop_test(tcase, whatever_happens_a_place_is_of_one_domain_for_ever, 0, 20);
	tcase_add_test(tcase, threads_of_several_devices_take_and_release_at_a_time);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
