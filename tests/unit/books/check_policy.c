/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of daemon/books/policy.c, with the figures of the design, and at its edges. */
#include <math.h>
#include <stdint.h>

#include "daemon/books/policy.h"
#include "tests/tap.h"
#include "tests/unit/core/fake_core.h"

#define SECOND UINT64_C(1000000000)

static const struct gm_policy policy = {
	.fraction = 0.9,
	.min_free = 512 * MiB,
	.max_pool = UINT64_MAX,
	.level_ppm = {600000, 800000, 950000},
	.hysteresis_ppm = 50000,
	.dwell_ns = SECOND,
};

static uint64_t ceiling_of(const struct gm_policy *p, uint64_t total, uint64_t foreign)
{
	uint64_t beyond_min_free = total > p->min_free ? total - p->min_free : 0;
	return gm_policy_ceiling(gm_policy_share(p, total), beyond_min_free, foreign);
}

START_TEST(the_figures_of_the_design_come_out)
{
	uint64_t total = 143155 * MiB;
	uint64_t capacity = gm_policy_capacity(&policy, total);
	ck_assert_uint_eq(capacity / MiB, 128839);

	uint64_t ceiling = ceiling_of(&policy, total, 10460 * MiB);
	ck_assert_uint_eq(ceiling, capacity);
	ck_assert_uint_eq(gm_policy_pressure(capacity, gm_policy_available(ceiling, 0)), 0);

	ceiling = ceiling_of(&policy, total, 40000 * MiB);
	ck_assert_uint_eq(ceiling, 102643 * MiB);
	ck_assert_uint_eq(
		gm_policy_pressure(capacity, gm_policy_available(ceiling, 0)) / 10000, 20);
}
END_TEST

/* gpumemctl(1), PRESSURE: a GPU of 80G of which clients hold 50G, then a program takes 20G. */
START_TEST(the_figures_of_the_manual_come_out)
{
	uint64_t total = 80 * GiB, capacity = gm_policy_capacity(&policy, total);
	ck_assert_uint_eq(capacity, 72 * GiB);
	uint64_t available = gm_policy_available(ceiling_of(&policy, total, 0), 50 * GiB);
	ck_assert_uint_eq(available, 22 * GiB);
	ck_assert_uint_eq(gm_policy_pressure(capacity, available) / 10000, 69);
	ck_assert_int_eq(gm_policy_level(&policy, gm_policy_pressure(capacity, available),
				 GM_PRESSURE_LEVEL_LOW),
		GM_PRESSURE_LEVEL_MEDIUM);
	uint64_t ceiling = ceiling_of(&policy, total, 20 * GiB);
	ck_assert_uint_eq(ceiling, 59 * GiB + GiB / 2);
	available = gm_policy_available(ceiling, 50 * GiB);
	ck_assert_uint_eq(available, 9 * GiB + GiB / 2);
	uint32_t pressure = gm_policy_pressure(capacity, available);
	ck_assert_uint_eq((pressure + 5000) / 10000, 87);
	ck_assert_int_eq(gm_policy_level(&policy, pressure, GM_PRESSURE_LEVEL_MEDIUM),
		GM_PRESSURE_LEVEL_HIGH);
}
END_TEST

START_TEST(nothing_goes_under_0)
{
	struct gm_policy p = policy;
	p.min_free = 10 * GiB;
	ck_assert_uint_eq(gm_policy_capacity(&p, 4 * GiB), 0);
	ck_assert_uint_eq(ceiling_of(&p, 4 * GiB, UINT64_MAX), 0);
	ck_assert_uint_eq(ceiling_of(&policy, 4 * GiB, 5 * GiB), 0);
	ck_assert_uint_eq(gm_policy_available(1, 2), 0);
	ck_assert_uint_eq(gm_policy_pressure(0, 0), GM_PPM);
	ck_assert_uint_eq(gm_policy_pressure(5, 9), 0);
}
END_TEST

START_TEST(a_fraction_that_is_none_counts_as_the_nearest)
{
	struct gm_policy p = policy;
	p.min_free = 0;
	p.fraction = -1;
	ck_assert_uint_eq(gm_policy_capacity(&p, GiB), 0);
	p.fraction = NAN;
	ck_assert_uint_eq(gm_policy_capacity(&p, GiB), 0);
	p.fraction = 7;
	ck_assert_uint_eq(gm_policy_capacity(&p, GiB), GiB);
	p.fraction = 1;
	ck_assert_uint_eq(gm_policy_capacity(&p, UINT64_MAX), UINT64_MAX);
}
END_TEST

START_TEST(pressure_is_exact_for_sizes_that_overflow_a_product)
{
	ck_assert_uint_eq(gm_policy_pressure(UINT64_MAX, 0), GM_PPM);
	ck_assert_uint_eq(gm_policy_pressure(UINT64_C(1) << 62, UINT64_C(1) << 61), GM_PPM / 2);
}
END_TEST

START_TEST(the_pool_is_a_quarter_of_capacity_unless_told)
{
	struct gm_policy p = policy;
	p.min_free = 0;
	p.fraction = 0.5;
	ck_assert_uint_eq(gm_policy_max_pool(&p, 8 * GiB), GiB);
	p.max_pool = 7;
	ck_assert_uint_eq(gm_policy_max_pool(&p, 8 * GiB), 7);
}
END_TEST

START_TEST(a_level_is_reached_at_its_threshold_and_left_below_the_hysteresis)
{
	ck_assert_int_eq(
		gm_policy_level(&policy, 599999, GM_PRESSURE_LEVEL_LOW), GM_PRESSURE_LEVEL_LOW);
	ck_assert_int_eq(
		gm_policy_level(&policy, 600000, GM_PRESSURE_LEVEL_LOW), GM_PRESSURE_LEVEL_MEDIUM);
	ck_assert_int_eq(gm_policy_level(&policy, 550000, GM_PRESSURE_LEVEL_MEDIUM),
		GM_PRESSURE_LEVEL_MEDIUM);
	ck_assert_int_eq(
		gm_policy_level(&policy, 549999, GM_PRESSURE_LEVEL_MEDIUM), GM_PRESSURE_LEVEL_LOW);
	ck_assert_int_eq(gm_policy_level(&policy, GM_PPM, GM_PRESSURE_LEVEL_LOW),
		GM_PRESSURE_LEVEL_CRITICAL);
	ck_assert_int_eq(
		gm_policy_level(&policy, 0, GM_PRESSURE_LEVEL_CRITICAL), GM_PRESSURE_LEVEL_LOW);
	ck_assert_int_eq(gm_policy_level(&policy, 760000, GM_PRESSURE_LEVEL_CRITICAL),
		GM_PRESSURE_LEVEL_HIGH);
}
END_TEST

START_TEST(a_level_rises_at_once_and_falls_after_the_dwell)
{
	struct gm_pressure p = {0};
	uint64_t now = 5 * SECOND;
	ck_assert(!gm_preload_pressure_step(&p, &policy, 100, now));
	ck_assert(gm_preload_pressure_step(&p, &policy, 700000, now));
	ck_assert_int_eq(p.level, GM_PRESSURE_LEVEL_MEDIUM);
	/* Up again within the dwell: at once. */
	ck_assert(gm_preload_pressure_step(&p, &policy, 960000, now + 1));
	ck_assert_int_eq(p.level, GM_PRESSURE_LEVEL_CRITICAL);

	/* It is calm from here on. */
	ck_assert(!gm_preload_pressure_step(&p, &policy, 0, now + 2));
	uint64_t due = gm_preload_pressure_due(&p, &policy, 0);
	ck_assert_uint_eq(due, now + 2 + SECOND);
	ck_assert(!gm_preload_pressure_step(&p, &policy, 0, due - 1));
	ck_assert_int_eq(p.level, GM_PRESSURE_LEVEL_CRITICAL);
	ck_assert(gm_preload_pressure_step(&p, &policy, 0, due));
	ck_assert_int_eq(p.level, GM_PRESSURE_LEVEL_LOW);
	ck_assert_uint_eq(gm_preload_pressure_due(&p, &policy, 0), UINT64_MAX);
	ck_assert(gm_preload_pressure_steady(&p, &policy, 0));
}
END_TEST

START_TEST(one_moment_of_pressure_makes_the_calm_begin_anew)
{
	struct gm_pressure p = {0};
	ck_assert(gm_preload_pressure_step(&p, &policy, 700000, SECOND));
	ck_assert(!gm_preload_pressure_step(&p, &policy, 0, 2 * SECOND));
	ck_assert(!gm_preload_pressure_step(&p, &policy, 600000, 3 * SECOND - 2));
	ck_assert(!gm_preload_pressure_step(&p, &policy, 0, 3 * SECOND - 1));
	ck_assert(!gm_preload_pressure_step(&p, &policy, 0, 3 * SECOND));
	ck_assert_uint_eq(gm_preload_pressure_due(&p, &policy, 0), 4 * SECOND - 1);
	ck_assert(gm_preload_pressure_step(&p, &policy, 0, 4 * SECOND - 1));
}
END_TEST

START_TEST(it_does_not_go_back_within_the_dwell_but_past_it_at_once)
{
	struct gm_pressure p = {0};
	ck_assert(gm_preload_pressure_step(&p, &policy, 700000, SECOND));
	ck_assert(!gm_preload_pressure_step(&p, &policy, 0, SECOND));
	ck_assert(gm_preload_pressure_step(&p, &policy, 0, 2 * SECOND));
	ck_assert_int_eq(p.level, GM_PRESSURE_LEVEL_LOW);
	/* To where it was: after the dwell. */
	ck_assert(!gm_preload_pressure_step(&p, &policy, 700000, 2 * SECOND + 1));
	ck_assert_uint_eq(gm_preload_pressure_due(&p, &policy, 700000), 3 * SECOND);
	/* Higher than it was: now. */
	struct gm_pressure q = p;
	ck_assert(gm_preload_pressure_step(&q, &policy, 810000, 2 * SECOND + 1));
	ck_assert_int_eq(q.level, GM_PRESSURE_LEVEL_HIGH);
	ck_assert(gm_preload_pressure_step(&p, &policy, 700000, 3 * SECOND));
	ck_assert_int_eq(p.level, GM_PRESSURE_LEVEL_MEDIUM);
}
END_TEST

/* Periods from far below the dwell to far above it, with any share of the time up. */
START_TEST(a_square_wave_changes_the_level_once_per_dwell_at_most)
{
	static const uint64_t periods[] = {SECOND / 100, SECOND / 3, SECOND, SECOND + 7,
		SECOND * 3 / 2, 2 * SECOND, 3 * SECOND, 10 * SECOND};
	static const uint32_t waves[][2] = {{0, 700000}, {590000, 610000}, {540000, 610000},
		{0, 1000000}, {760000, 960000}, {890000, 960000}};
	for (size_t i = 0; i < sizeof(periods) / sizeof(periods[0]); i++) {
		for (size_t w = 0; w < sizeof(waves) / sizeof(waves[0]); w++) {
			for (uint64_t share = 1; share < 4; share++) {
				struct gm_pressure p = {0};
				uint64_t last = 0, changes = 0, step = periods[i] / 12;
				gm_preload_pressure_step(&p, &policy, waves[w][0], 0);
				p.fell_from = GM_PRESSURE_LEVEL_LOW;
				for (uint64_t t = step; t < 60 * SECOND; t += step) {
					bool up = t % periods[i] < periods[i] * share / 4;
					uint32_t ppm = waves[w][up];
					enum gm_pressure_level asked =
						gm_policy_level(&policy, ppm, p.level);
					bool may = t >= gm_preload_pressure_due(&p, &policy, ppm);
					if (!gm_preload_pressure_step(&p, &policy, ppm, t))
						continue;
					ck_assert(may && p.level == asked);
					if (changes++ > 0)
						ck_assert_uint_ge(t - last, SECOND);
					last = t;
				}
			}
		}
	}
}
END_TEST

START_TEST(a_dwell_past_the_end_of_time_never_ends)
{
	struct gm_policy forever = policy;
	forever.dwell_ns = UINT64_MAX;
	struct gm_pressure p = {.level = GM_PRESSURE_LEVEL_HIGH, .since_ns = 2};
	ck_assert(!gm_preload_pressure_step(&p, &forever, 0, 3));
	ck_assert_uint_eq(gm_preload_pressure_due(&p, &forever, 0), UINT64_MAX);
	ck_assert(!gm_preload_pressure_step(&p, &forever, 0, UINT64_MAX));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("policy");
	TCase *tcase = tcase_create("policy");
	tcase_add_test(tcase, the_figures_of_the_design_come_out);
	tcase_add_test(tcase, the_figures_of_the_manual_come_out);
	tcase_add_test(tcase, nothing_goes_under_0);
	tcase_add_test(tcase, a_fraction_that_is_none_counts_as_the_nearest);
	tcase_add_test(tcase, pressure_is_exact_for_sizes_that_overflow_a_product);
	tcase_add_test(tcase, the_pool_is_a_quarter_of_capacity_unless_told);
	tcase_add_test(tcase, a_level_is_reached_at_its_threshold_and_left_below_the_hysteresis);
	tcase_add_test(tcase, a_level_rises_at_once_and_falls_after_the_dwell);
	tcase_add_test(tcase, one_moment_of_pressure_makes_the_calm_begin_anew);
	tcase_add_test(tcase, it_does_not_go_back_within_the_dwell_but_past_it_at_once);
	tcase_add_test(tcase, a_square_wave_changes_the_level_once_per_dwell_at_most);
	tcase_add_test(tcase, a_dwell_past_the_end_of_time_never_ends);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
