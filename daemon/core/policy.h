/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_POLICY_H
#define GM_CORE_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/core.h"

/* The arithmetic of one device. Nothing here goes under 0, and nothing keeps state but struct
 * gm_pressure. */

#define GM_PPM 1000000u

/* min(fraction x total, total - min_free) */
uint64_t gm_policy_capacity(const struct gm_policy *policy, uint64_t total);
/* min(fraction x total, total - min_free - foreign) */
uint64_t gm_policy_ceiling(const struct gm_policy *policy, uint64_t total, uint64_t foreign);
/* ceiling - charged */
uint64_t gm_policy_available(uint64_t ceiling, uint64_t charged);
/* (capacity - available) / capacity, in millionths; all of them when capacity is 0 */
uint32_t gm_policy_pressure(uint64_t capacity, uint64_t available);
/* What the pool may hold, the reserve included. */
uint64_t gm_policy_max_pool(const struct gm_policy *policy, uint64_t total);

/*
 * The level: pressure is there at once when a threshold is reached, and gone only when pressure is
 * below the threshold by the hysteresis and the level has lasted for the dwell. So relief never
 * comes too early, and at most one rise and one fall are told per dwell.
 */
struct gm_pressure {
	enum gm_level level;
	uint64_t since_ns;
};
/* The level that this pressure asks for, coming from the one given. */
enum gm_level gm_policy_level(
	const struct gm_policy *policy, uint32_t pressure_ppm, enum gm_level from);
/* Goes to the level asked for, if it may by now. Whether it changed. */
bool gm_pressure_step(struct gm_pressure *pressure, const struct gm_policy *policy,
	uint32_t pressure_ppm, uint64_t now_ns);
/* When a step would change it, if pressure stays as it is; UINT64_MAX: never. */
uint64_t gm_pressure_due(
	const struct gm_pressure *pressure, const struct gm_policy *policy, uint32_t pressure_ppm);

#endif
