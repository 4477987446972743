/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/device/device_plan.c: bytes to chunks, with an empty pool and with a full one. */
#include <string.h>

#include "daemon/device/device_plan.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"

static struct gm_pool pool;
static struct gm_chunk chunks[64];
static size_t n_chunks;
static struct gm_device_plan plan;

static void ignore(void *ctx, struct gm_chunk *chunk)
{
	chunk->state = GM_CHUNK_DOOMED;
}

static void setup(void)
{
	memset(chunks, 0, sizeof(chunks));
	n_chunks = 0;
	gm_pool_init(&pool, ignore, NULL);
}

static void teardown(void)
{
	gm_pool_clear(&pool);
	gm_pool_deinit(&pool);
}

static void pooled(uint64_t bytes, gm_domain domain, enum gm_transport transport)
{
	struct gm_chunk *chunk = &chunks[n_chunks++];
	chunk->bytes = bytes;
	chunk->domain = domain;
	chunk->transport = transport;
	chunk->state = GM_CHUNK_LEASED;
	ck_assert_int_eq(gm_pool_put(&pool, chunk, 0), 0);
}

static int fd(uint64_t bytes, uint64_t budget)
{
	memset(&plan, 0, sizeof(plan));
	return gm_device_plan_make(&pool, GM_TRANSPORT_FD, 1, bytes, budget, &plan);
}

static unsigned class_of(uint64_t bytes)
{
	return (unsigned)__builtin_ctzll(bytes) - GM_CHUNK_MIN_SHIFT;
}

START_TEST(a_size_is_the_sum_of_its_powers_of_two)
{
	ck_assert_int_eq(fd(2 * GiB + 98 * MiB, UINT64_MAX), 0);
	ck_assert_uint_eq(plan.bytes, 2 * GiB + 128 * MiB); /* 30M more, of 33.5M at most */
	ck_assert_int_eq(fd(100 * MiB, UINT64_MAX), 0);
	ck_assert_uint_eq(plan.bytes, 100 * MiB);
	ck_assert_uint_eq(plan.n_created, 3);
	ck_assert_uint_eq(plan.created[class_of(64 * MiB)], 1);
	ck_assert_uint_eq(plan.created[class_of(32 * MiB)], 1);
	ck_assert_uint_eq(plan.created[class_of(4 * MiB)], 1);
	ck_assert_int_eq(fd(1, UINT64_MAX), 0);
	ck_assert_uint_eq(plan.bytes, 2 * MiB);
	ck_assert_int_eq(fd(GM_LEASE_BYTES_MAX, UINT64_MAX), 0);
	ck_assert_uint_eq(plan.n_created, GM_LEASE_BYTES_MAX / GiB);
}
END_TEST

/* What a request for so many bytes gets. */
static uint64_t rounded(uint64_t bytes, uint64_t budget)
{
	ck_assert_int_eq(fd(bytes, budget), 0);
	return plan.bytes;
}

START_TEST(a_plan_has_no_class_larger_than_the_lease)
{
	ck_assert_int_eq(fd(1, UINT64_MAX), 0);
	ck_assert_uint_eq(plan.classes, 1);
	ck_assert_int_eq(fd(100 * MiB, UINT64_MAX), 0);
	ck_assert_uint_eq(plan.classes, class_of(64 * MiB) + 1);
	ck_assert_int_eq(fd(3 * GiB, UINT64_MAX), 0);
	ck_assert_uint_eq(plan.classes, GM_CHUNK_CLASSES);
	ck_assert_uint_eq(plan.size[GM_CHUNK_CLASSES - 1], GiB);
}
END_TEST

START_TEST(rounding_saves_chunks_within_a_64th_and_the_budget)
{
	ck_assert_uint_eq(rounded(1022 * MiB, UINT64_MAX), GiB);
	ck_assert_uint_eq(rounded(1022 * MiB, 1023 * MiB), 1022 * MiB);
	ck_assert_uint_eq(rounded(1008 * MiB, UINT64_MAX), 1008 * MiB);
	ck_assert_uint_eq(rounded(1010 * MiB, UINT64_MAX), GiB);
	ck_assert_uint_eq(rounded(62 * MiB, UINT64_MAX), 62 * MiB);
	/* No larger than needed when it saves nothing. */
	ck_assert_uint_eq(rounded(GiB, UINT64_MAX), GiB);
	for (uint64_t n = 1; n < 2500; n += 7) {
		uint64_t exact = n * 2 * MiB, got = rounded(exact - 1, UINT64_MAX);
		ck_assert_uint_ge(got, exact);
		ck_assert_uint_le(got - exact, exact / 64);
	}
}
END_TEST

START_TEST(what_does_not_fit_the_budget_gets_no_plan)
{
	ck_assert_int_eq(fd(2 * MiB + 1, 4 * MiB - 1), GM_DEVICE_PLAN_E_NO_ROOM);
	ck_assert_int_eq(fd(2 * MiB + 1, 4 * MiB), 0);
	ck_assert_int_eq(fd(1, 0), GM_DEVICE_PLAN_E_NO_ROOM);
}
END_TEST

START_TEST(the_pool_is_used_down_to_a_64th_of_the_size)
{
	for (int i = 0; i < 4; i++)
		pooled(16 * MiB, 1, GM_TRANSPORT_FD);
	for (int i = 0; i < 4; i++)
		pooled(8 * MiB, GM_DOMAIN_FRESH, GM_TRANSPORT_FD);
	ck_assert_int_eq(fd(GiB, UINT64_MAX), 0);
	ck_assert_uint_eq(plan.pooled[class_of(16 * MiB)], 4);
	ck_assert_uint_eq(plan.pooled[class_of(8 * MiB)], 0);
	ck_assert_uint_eq(plan.bytes, GiB);
	/* 960 left: 512 + 256 + 128 + 64 */
	ck_assert_uint_eq(plan.n_created, 4);
	ck_assert_int_eq(fd(512 * MiB, UINT64_MAX), 0);
	ck_assert_uint_eq(plan.pooled[class_of(16 * MiB)], 4);
	ck_assert_uint_eq(plan.pooled[class_of(8 * MiB)], 4);
}
END_TEST

/* Whoever attaches to it maps few chunks, whatever the pool holds. */
START_TEST(sixteen_gigabytes_have_no_chunk_below_256_megabytes)
{
	for (unsigned c = 0; c < GM_CHUNK_CLASSES; c++)
		for (int i = 0; i < 5; i++)
			pooled(GM_CHUNK_MIN << c, i % 2 ? 1 : GM_DOMAIN_FRESH, GM_TRANSPORT_FD);
	ck_assert_int_eq(fd(16 * GiB, UINT64_MAX), 0);
	for (unsigned c = 0; c < class_of(256 * MiB); c++)
		ck_assert_uint_eq(plan.pooled[c] + plan.created[c], 0);
	ck_assert_uint_le(plan.n_pooled + plan.n_created, 64);
	ck_assert_uint_eq(plan.bytes, 16 * GiB);
}
END_TEST

START_TEST(a_small_piece_that_is_needed_anyway_comes_from_the_pool)
{
	pooled(2 * MiB, GM_DOMAIN_FRESH, GM_TRANSPORT_FD);
	/* No rounding: the budget is exact. */
	ck_assert_int_eq(fd(GiB + 2 * MiB, GiB + 2 * MiB), 0);
	ck_assert_uint_eq(plan.pooled[0], 1);
	ck_assert_uint_eq(plan.n_created, 1);
}
END_TEST

START_TEST(a_chunk_larger_than_what_is_left_is_not_used)
{
	pooled(64 * MiB, 1, GM_TRANSPORT_FD);
	pooled(32 * MiB, 2, GM_TRANSPORT_FD);
	ck_assert_int_eq(fd(32 * MiB, UINT64_MAX), 0);
	ck_assert_uint_eq(plan.n_pooled, 0);
	ck_assert_uint_eq(plan.bytes, 32 * MiB);
}
END_TEST

START_TEST(an_ipc_lease_is_one_chunk_of_four_classes_per_doubling)
{
	static const uint64_t classes[] = {
		2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128};
	size_t c = 0;
	for (uint64_t m = 1; m <= 128; m++) {
		if (m > classes[c])
			c++;
		ck_assert_uint_eq(gm_device_plan_ipc_class(m * MiB), classes[c] * MiB);
		ck_assert_uint_eq(gm_device_plan_ipc_class(classes[c] * MiB), classes[c] * MiB);
	}
	ck_assert_int_eq(
		gm_device_plan_make(&pool, GM_TRANSPORT_IPC, 1, 3 * GiB + 1, UINT64_MAX, &plan), 0);
	ck_assert_uint_eq(plan.bytes, 3 * GiB + 512 * MiB);
	ck_assert_uint_eq(plan.n_created, 1);
}
END_TEST

START_TEST(an_ipc_lease_takes_its_class_from_the_pool_or_the_exact_size_when_room_is_short)
{
	pooled(20 * MiB, 1, GM_TRANSPORT_IPC);
	pooled(18 * MiB, 1, GM_TRANSPORT_FD);
	ck_assert_int_eq(
		gm_device_plan_make(&pool, GM_TRANSPORT_IPC, 1, 17 * MiB, UINT64_MAX, &plan), 0);
	ck_assert_uint_eq(plan.n_pooled, 1);
	ck_assert_int_eq(
		gm_device_plan_make(&pool, GM_TRANSPORT_IPC, 2, 17 * MiB, 18 * MiB, &plan), 0);
	ck_assert_uint_eq(plan.bytes, 18 * MiB);
	ck_assert_uint_eq(plan.n_pooled, 0);
	ck_assert_int_eq(gm_device_plan_make(&pool, GM_TRANSPORT_IPC, 1, 17 * MiB, 17 * MiB, &plan),
		GM_DEVICE_PLAN_E_NO_ROOM);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("plan");
	TCase *tcase = tcase_create("plan");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_size_is_the_sum_of_its_powers_of_two);
	tcase_add_test(tcase, a_plan_has_no_class_larger_than_the_lease);
	tcase_add_test(tcase, rounding_saves_chunks_within_a_64th_and_the_budget);
	tcase_add_test(tcase, what_does_not_fit_the_budget_gets_no_plan);
	tcase_add_test(tcase, the_pool_is_used_down_to_a_64th_of_the_size);
	tcase_add_test(tcase, sixteen_gigabytes_have_no_chunk_below_256_megabytes);
	tcase_add_test(tcase, a_small_piece_that_is_needed_anyway_comes_from_the_pool);
	tcase_add_test(tcase, a_chunk_larger_than_what_is_left_is_not_used);
	tcase_add_test(tcase, an_ipc_lease_is_one_chunk_of_four_classes_per_doubling);
	tcase_add_test(tcase,
		an_ipc_lease_takes_its_class_from_the_pool_or_the_exact_size_when_room_is_short);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
