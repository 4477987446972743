/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The budget arithmetic as pure functions: capacity, available, pressure, and the level that
 * follows from it. It reads no clock and changes nothing but the level it is given. It must never
 * know an owner: limits are the business of limit.c and the ledger.
 */
#include "daemon/books/policy.h"

/* A fraction outside 0..1 counts as the nearest bound, and NaN as 0. */
uint64_t gm_policy_share(const struct gm_policy *policy, uint64_t total)
{
	double fraction = policy->fraction;
	if (!(fraction > 0))
		return 0;
	if (fraction >= 1)
		return total;
	return gm_u64_min((uint64_t)(fraction * (double)total), total);
}

uint64_t gm_policy_capacity(const struct gm_policy *policy, uint64_t total)
{
	return gm_policy_ceiling(
		gm_policy_share(policy, total), gm_u64_minus(total, policy->min_free), 0);
}

uint64_t gm_policy_available(uint64_t ceiling, uint64_t charged)
{
	return gm_u64_minus(ceiling, charged);
}

uint32_t gm_policy_pressure(uint64_t capacity, uint64_t available)
{
	if (capacity == 0)
		return GM_PPM;
	return (uint32_t)((unsigned __int128)gm_u64_minus(capacity, available) * GM_PPM / capacity);
}

uint64_t gm_policy_max_pool(const struct gm_policy *policy, uint64_t total)
{
	if (policy->max_pool != UINT64_MAX)
		return policy->max_pool;
	return gm_policy_capacity(policy, total) / 4;
}

enum gm_pressure_level gm_policy_level(
	const struct gm_policy *policy, uint32_t pressure_ppm, enum gm_pressure_level from)
{
	enum gm_pressure_level level = GM_PRESSURE_LEVEL_LOW;
	for (unsigned l = GM_PRESSURE_LEVEL_LOW + 1; l < GM_LEVELS; l++) {
		uint64_t threshold = policy->level_ppm[l - 1];
		if (l <= (unsigned)from)
			threshold = gm_u64_minus(threshold, policy->hysteresis_ppm);
		if (pressure_ppm >= threshold)
			level = (enum gm_pressure_level)l;
	}
	return level;
}

bool gm_preload_pressure_steady(
	const struct gm_pressure *pressure, const struct gm_policy *policy, uint32_t pressure_ppm)
{
	return !pressure->calm &&
	       gm_policy_level(policy, pressure_ppm, pressure->level) == pressure->level;
}

uint64_t gm_preload_pressure_due(
	const struct gm_pressure *pressure, const struct gm_policy *policy, uint32_t pressure_ppm)
{
	enum gm_pressure_level level = gm_policy_level(policy, pressure_ppm, pressure->level);
	if (level == pressure->level)
		return UINT64_MAX;
	if (level < pressure->level) /* only a step notes since when it is calm */
		return pressure->calm ? gm_u64_plus(pressure->calm_ns, policy->dwell_ns) : 0;
	return level <= pressure->fell_from ? gm_u64_plus(pressure->since_ns, policy->dwell_ns) : 0;
}

bool gm_preload_pressure_step(struct gm_pressure *pressure, const struct gm_policy *policy,
	uint32_t pressure_ppm, uint64_t now_ns)
{
	enum gm_pressure_level level = gm_policy_level(policy, pressure_ppm, pressure->level);
	bool calm = level < pressure->level;
	if (calm && !pressure->calm)
		pressure->calm_ns = now_ns;
	pressure->calm = calm;

	uint64_t due = gm_preload_pressure_due(pressure, policy, pressure_ppm);
	if (due == UINT64_MAX || now_ns < due)
		return false;

	pressure->fell_from = calm ? pressure->level : GM_PRESSURE_LEVEL_LOW;
	pressure->level = level;
	pressure->since_ns = now_ns;
	pressure->calm = false;
	return true;
}
