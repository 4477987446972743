/* SPDX-License-Identifier: Apache-2.0 */
/* The table of pointers: what was set is found, everything else is nothing, readers need no lock.
 */
#include "autoconf.h"

#include "client/heap/heap_ptrmap.h"

#include <pthread.h>

#include "tests/tap.h"

#define BASE  (UINT64_C(1) << 40)
#define BYTES (UINT64_C(1) << 42)
#define SHIFT 15
#define GRAIN (UINT64_C(1) << SHIFT)

static struct gm_heap_ptrmap map;

static void setup(void)
{
	ck_assert_int_eq(gm_heap_ptrmap_init(&map, BASE, BYTES, SHIFT), 0);
}

static void teardown(void)
{
	gm_heap_ptrmap_deinit(&map);
}

START_TEST(addresses_outside_and_never_covered_ones_find_nothing)
{
	ck_assert_uint_eq(gm_heap_ptrmap_get(&map, 0), 0);
	ck_assert_uint_eq(gm_heap_ptrmap_get(&map, BASE - 1), 0);
	ck_assert_uint_eq(gm_heap_ptrmap_get(&map, BASE), 0);
	ck_assert_uint_eq(gm_heap_ptrmap_get(&map, BASE + BYTES - 1), 0);
	ck_assert_uint_eq(gm_heap_ptrmap_get(&map, BASE + BYTES), 0);
	ck_assert_uint_eq(gm_heap_ptrmap_get(&map, UINT64_MAX), 0);
	ck_assert_uint_eq(gm_heap_ptrmap_below(&map, BASE + BYTES - 1), 0);
	ck_assert(!gm_heap_ptrmap_holds(&map, BASE - 1));
	ck_assert(gm_heap_ptrmap_holds(&map, BASE));
	ck_assert(!gm_heap_ptrmap_holds(&map, BASE + BYTES));
}
END_TEST

START_TEST(a_value_is_found_in_its_granule_and_nowhere_else)
{
	static const uint64_t places[] = {0, GRAIN, GRAIN * GM_HEAP_PTRMAP_LEAF,
		GRAIN * (GM_HEAP_PTRMAP_LEAF - 1), BYTES - GRAIN};

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		uint64_t addr = BASE + places[i];
		ck_assert_int_eq(gm_heap_ptrmap_cover(&map, addr, GRAIN), 0);
		gm_heap_ptrmap_set(&map, addr, 0x1000 + i);
		ck_assert_uint_eq(gm_heap_ptrmap_get(&map, addr), 0x1000 + i);
		ck_assert_uint_eq(gm_heap_ptrmap_get(&map, addr + GRAIN - 1), 0x1000 + i);
		ck_assert_uint_eq(gm_heap_ptrmap_get(&map, addr + GRAIN), 0);
		if (addr > BASE)
			ck_assert_uint_eq(gm_heap_ptrmap_get(&map, addr - 1), 0);
		gm_heap_ptrmap_set(&map, addr, 0);
		ck_assert_uint_eq(gm_heap_ptrmap_get(&map, addr), 0);
	}
}
END_TEST

START_TEST(the_last_value_below_is_found_across_tables_and_gaps)
{
	ck_assert_int_eq(gm_heap_ptrmap_cover(&map, BASE + GRAIN, GRAIN), 0);
	gm_heap_ptrmap_set(&map, BASE + GRAIN, 42);
	ck_assert_uint_eq(gm_heap_ptrmap_below(&map, BASE), 0);
	ck_assert_uint_eq(gm_heap_ptrmap_below(&map, BASE + GRAIN), 42);
	ck_assert_uint_eq(gm_heap_ptrmap_below(&map, BASE + 2 * GRAIN), 42);
	ck_assert_uint_eq(gm_heap_ptrmap_below(&map, BASE + BYTES - 1), 42);
	ck_assert_int_eq(gm_heap_ptrmap_cover(&map, BASE + BYTES / 2, GRAIN), 0);
	ck_assert_uint_eq(gm_heap_ptrmap_below(&map, BASE + BYTES - 1), 42);
	gm_heap_ptrmap_set(&map, BASE + BYTES / 2, 43);
	ck_assert_uint_eq(gm_heap_ptrmap_below(&map, BASE + BYTES - 1), 43);
	ck_assert_uint_eq(gm_heap_ptrmap_below(&map, BASE + BYTES / 2 - 1), 42);
}
END_TEST

static void *read_on(void *stop)
{
	while (!atomic_load((_Atomic bool *)stop)) {
		for (uint64_t i = 0; i < 64; i++) {
			uintptr_t value = gm_heap_ptrmap_get(&map, BASE + i * (BYTES / 64));
			if (value != 0 && value != i + 1)
				return (void *)1;
		}
	}
	return NULL;
}

START_TEST(readers_see_old_or_new_values_while_tables_are_made)
{
	_Atomic bool stop = false;
	pthread_t threads[2];
	void *bad;

	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, read_on, &stop), 0);
	for (unsigned round = 0; round < 200; round++) {
		for (uint64_t i = 0; i < 64; i++) {
			uint64_t addr = BASE + i * (BYTES / 64);
			ck_assert_int_eq(gm_heap_ptrmap_cover(&map, addr, GRAIN), 0);
			gm_heap_ptrmap_set(&map, addr, round % 2 ? 0 : i + 1);
		}
	}
	atomic_store(&stop, true);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(pthread_join(threads[i], &bad), 0);
		ck_assert_ptr_null(bad);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ptrmap");
	TCase *tcase = tcase_create("ptrmap");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, addresses_outside_and_never_covered_ones_find_nothing);
	tcase_add_test(tcase, a_value_is_found_in_its_granule_and_nowhere_else);
	tcase_add_test(tcase, the_last_value_below_is_found_across_tables_and_gaps);
	tcase_add_test(tcase, readers_see_old_or_new_values_while_tables_are_made);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
