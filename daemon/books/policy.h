/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_BOOKS_POLICY_H
#define GM_BOOKS_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arith.h"
#include "common/types.h"

/*
 * The rules for one device, and the arithmetic that follows from them. No result goes below 0.
 * Nothing here keeps state but struct gm_pressure.
 */

/* What the daemon does when a device has no memory for a request that does not say how long it may wait. */
enum gm_policy_oom {
	GM_POLICY_OOM_REFUSE,    /* it is refused, after clients were asked to return memory */
	GM_POLICY_OOM_WAIT,      /* it waits, wait_ns at most */
	GM_POLICY_OOM_TERMINATE, /* it waits, and at critical pressure a client may be terminated */
};

/* Per device, from the configuration. A reload may change it. */
struct gm_policy {
	double fraction;
	uint64_t min_free;
	uint64_t max_pool;       /* bytes; UINT64_MAX: a quarter of the capacity */
	uint32_t max_per_bucket; /* chunks; 0: no bound */
	uint64_t pool_decay_ns;  /* how long a chunk stays pooled untaken; 0: for good */
	uint64_t reserve;        /* bytes of fresh chunks kept ready: pooled, within max_pool */
	bool pooling;            /* false: trust = client, nothing is pooled after use */
	uint32_t level_ppm[GM_LEVELS - 1];
	uint32_t hysteresis_ppm;
	uint64_t dwell_ns;
	enum gm_policy_oom oom;
	uint64_t wait_ns;     /* oom_wait, for a request that does not say; 0: GM_WAIT_NS */
	uint64_t reclaim_ns;  /* reclaim_deadline, to answer a reclaim; 0: GM_RECLAIM_NS */
	uint64_t settle_ns;   /* after_action, until reclaim's next action; 0: GM_SETTLE_NS */
	uint64_t deadlock_ns; /* deadlock_after, without a return; 0: GM_QUEUE_DEADLOCK_NS */
	enum gm_transport
		transport; /* of requests that name none; AUTO: fd, where the device has it */
};
#define GM_WAIT_NS           UINT64_C(30000000000)
#define GM_RECLAIM_NS        UINT64_C(100000000)
#define GM_SETTLE_NS         UINT64_C(1000000000)
#define GM_QUEUE_DEADLOCK_NS UINT64_C(10000000000)

/* Returns the transport of a request that asks for one, or for AUTO. The device may lack it. */
static inline enum gm_transport gm_policy_transport(
	const struct gm_policy *policy, enum gm_transport asked, bool has_fd)
{
	if (asked == GM_TRANSPORT_AUTO)
		asked = policy->transport;
	if (asked == GM_TRANSPORT_AUTO)
		asked = has_fd ? GM_TRANSPORT_FD : GM_TRANSPORT_IPC;
	return asked;
}

static inline uint64_t gm_policy_reclaim_ns(const struct gm_policy *policy)
{
	return policy->reclaim_ns ? policy->reclaim_ns : GM_RECLAIM_NS;
}

static inline uint64_t gm_policy_settle_ns(const struct gm_policy *policy)
{
	return policy->settle_ns ? policy->settle_ns : GM_SETTLE_NS;
}

static inline uint64_t gm_policy_deadlock_ns(const struct gm_policy *policy)
{
	return policy->deadlock_ns ? policy->deadlock_ns : GM_QUEUE_DEADLOCK_NS;
}

#define GM_PPM 1000000u

/* fraction x total */
uint64_t gm_policy_share(const struct gm_policy *policy, uint64_t total);
/* min(fraction x total, total - min_free) */
uint64_t gm_policy_capacity(const struct gm_policy *policy, uint64_t total);
/* min(share, total - min_free - foreign), of the policy's share and total - min_free */
static inline uint64_t gm_policy_ceiling(uint64_t share, uint64_t beyond_min_free, uint64_t foreign)
{
	return gm_u64_min(share, gm_u64_minus(beyond_min_free, foreign));
}
/* ceiling - charged */
uint64_t gm_policy_available(uint64_t ceiling, uint64_t charged);
/* (capacity - available) / capacity, in millionths; GM_PPM if capacity is 0 */
uint32_t gm_policy_pressure(uint64_t capacity, uint64_t available);
/* What the pool may hold, including the reserve. */
uint64_t gm_policy_max_pool(const struct gm_policy *policy, uint64_t total);

/*
 * The pressure level. It rises at once when a threshold is reached. It falls when pressure has been
 * below the threshold, by the hysteresis, for the whole dwell. After a fall, it does not go back up
 * to the old level within the dwell. So relief never comes too early, and a load that swings around
 * a threshold changes the level at most once per dwell. Most often it stays at the higher level.
 */
struct gm_pressure {
	enum gm_pressure_level level;
	enum gm_pressure_level fell_from; /* GM_PRESSURE_LEVEL_LOW: the last change was no fall */
	bool calm;                        /* since calm_ns, pressure has asked for a lower level */
	uint64_t since_ns;                /* of the last change */
	uint64_t calm_ns;
};
/* The level that this pressure asks for when the level is from. */
enum gm_pressure_level gm_policy_level(
	const struct gm_policy *policy, uint32_t pressure_ppm, enum gm_pressure_level from);
/* Whether a step would do nothing: pressure asks for the level there is, as it did at the last
 * step. */
bool gm_preload_pressure_steady(
	const struct gm_pressure *pressure, const struct gm_policy *policy, uint32_t pressure_ppm);
/* Notes the pressure, and goes to the level that it asks for if the dwell allows it. Returns
 * whether the level changed. */
bool gm_preload_pressure_step(struct gm_pressure *pressure, const struct gm_policy *policy,
	uint32_t pressure_ppm, uint64_t now_ns);
/* When a step would change the level if pressure stays as it was at the last step; UINT64_MAX:
 * never. */
uint64_t gm_preload_pressure_due(
	const struct gm_pressure *pressure, const struct gm_policy *policy, uint32_t pressure_ppm);

#endif
