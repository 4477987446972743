/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_CORE_H
#define GM_CORE_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/figures.h"
#include "daemon/books/usage_sample.h"
#include "daemon/books/ops.h"
#include "daemon/books/pool.h"
#include "daemon/core/adopt.h"
#include "daemon/core/place.h"
#include "daemon/device/device.h"
#include "daemon/reclaim/reclaim.h"
#include "daemon/device/limit.h"
#include "daemon/lease/lease.h"
#include "daemon/lease/metadata.h"
#include "daemon/lease/name.h"
#include "daemon/lease/session.h"
#include "daemon/lease/lease_token.h"
#include "daemon/queue/queue.h"
#include "daemon/queue/request.h"

/*
 * Core decides who holds which memory, who may have more, and what becomes of every chunk,
 * and it promises that the books balance at every return. It must never know a socket, protobuf,
 * libuv, libsystemd or CUDA, nor read a clock or make an id by itself: all of that comes through
 * one table of functions (ops.h).
 *
 * Other folders call core through this header. They may include the headers of its types directly.
 * All of core runs on one thread (the daemon's loop, or a test's). It promises:
 *   - At every return, created = leased + quarantined + pooled, and nothing is admitted past the
 *     ceiling. pooled + charged <= ceiling, unless foreign memory took the room; then the pool is
 *     empty.
 *   - A request ends exactly once, by its done() function, which may run before gm_core_request()
 *     returns.
 *   - No owner's limit is passed by a byte at admission, and what is guaranteed to one owner is not
 *     given to another (limit.h).
 *   - A waiting request is granted in the very call that brings back what it waits for, in the
 *     order that queue.h promises.
 *   - A chunk is never given to another client unless its last client said that it unmapped it, and
 *     no process was seen to have it.
 *   - No call costs more as the number of leases or clients grows, except those that must look at
 *     every client: a new limit, a cleanup, and a request that does not fit.
 *
 * Core is one library in six folders, lowest first; each may use only those above it in this list:
 *   daemon/books    what is counted, and the types that all of core shares (ledger.h)
 *   daemon/device   one device: its chunks, and who may have more of it (device.h)
 *   daemon/reclaim  getting memory back from clients (reclaim.h)
 *   daemon/queue    requests for memory, and the order in which they wait (queue.h)
 *   daemon/lease    what clients hold (lease.h; session_private.h has its order)
 *   daemon/core     taking over from an earlier daemon, advice, and the calls below
 */

struct gm_core;
struct gm_user_table;

int gm_core_new(const struct gm_core_ops *ops, void *ctx, struct gm_core **ret_core);
/* There must be no session and no chunk any more; gm_core_shutdown() sees to that. */
void gm_core_free(struct gm_core *core);
/* Counts in this table from now on, and frees descriptors when its account of them asks for that. There must be no
 * session yet. The table must outlive core. Without this call, core has a table of its own, without a bound on
 * descriptors. */
void gm_core_share_users(struct gm_core *core, struct gm_user_table *users);
/* Ends every session and empties the pools. Core is idle once no creation or destruction is under
 * way. */
void gm_core_shutdown(struct gm_core *core);
/* Empties the pools, and makes nothing new. What sessions hold stays, for the next daemon to adopt. This cannot be
 * undone. Core can be freed only if nothing is left that has a record: sessions, leases and orphaned mappings stay. */
void gm_core_retire(struct gm_core *core);
bool gm_core_idle(const struct gm_core *core);

/* ---- devices */

/* Devices are numbered in the order in which they are added. Starts to fill the reserve. */
int gm_core_add_device(
	struct gm_core *core, const struct gm_core_device_info *info, uint32_t *ret_device);
/*
 * A daemon that takes over from an earlier one calls these, the first one before it adds devices. In
 * between it adds all devices, sets the configured limits, and adopts what the records tell
 * (adopt.h). No chunk is created meanwhile. Nobody may be served before the end.
 */
void gm_core_begin_adoption(struct gm_core *core);
void gm_core_end_adoption(struct gm_core *core);
uint32_t gm_core_device_count(const struct gm_core *core);
/* Sets a new policy. Pooled chunks beyond it are destroyed; leased chunks beyond it stay. */
void gm_core_set_policy(struct gm_core *core, uint32_t device, const struct gm_policy *policy);
void gm_core_device_figures(
	const struct gm_core *core, uint32_t device, struct gm_device_figures *ret);

struct gm_pool_totals {
#define GM_POOL_TOTAL(name, ...) uint64_t name;
	GM_POOL_FIGURES(GM_POOL_TOTAL, GM_FIGURE_SKIP)
#undef GM_POOL_TOTAL
};
void gm_core_pool_totals(const struct gm_core *core, uint32_t device, struct gm_pool_totals *ret);
void gm_core_pool_each(const struct gm_core *core, uint32_t device,
	void (*visit)(void *ctx, const struct gm_pool_bucket_info *bucket), void *ctx);
/* Empties a device's pool and raises its reclaim epoch. The reserve goes, too; it fills again while
 * pressure is low. Releases no more than *slice chunks and counts them off; 0 is left: there may be
 * more, so call it again on another turn. Returns the bytes released. */
uint64_t gm_core_trim(struct gm_core *core, uint32_t device, uint64_t *slice);
/* A slice of a few microseconds. */
#define GM_CORE_TRIM_SLICE 4

/*
 * Drains a device: until gm_core_undrain(), nobody gets new memory on it. Core refuses requests that wait for it,
 * and destroys its pool and all chunks that come back. Clients keep what they hold. uid is the user
 * that asked for the drain; refusals name it. If the device is drained already, that stays as it is, but
 * the reclaim epoch rises. A negative errno: the drain cannot be recorded, and nothing changed.
 */
int gm_core_drain(struct gm_core *core, uint32_t device, uid_t uid);
/* Returns whether the device was drained. */
bool gm_core_undrain(struct gm_core *core, uint32_t device);

/*
 * Plans a cleanup by hand: what must be done so that free bytes of the device are free for anybody
 * (free as the device itself counts it: total - foreign - created - being destroyed). 0: all there
 * is to be had. If nothing has to be done, the plan has no steps. Changes nothing.
 * GPUMEM_E_NO_MEMORY: not even everything would be enough; the plan is that of everything, and
 * detail says how much there is. GPUMEM_E_NOT_FOUND: no such device. GPUMEM_E_HOST_MEMORY.
 */
gpumem_status gm_core_cleanup_plan(struct gm_core *core, uint32_t device, uint64_t free,
	struct gm_reclaim_plan *ret_plan, char detail[GM_DETAIL_BYTES]);
/*
 * Carries out the plan that gm_core_cleanup_plan() makes at this moment, and hands it out (ret_plan
 * may be NULL). With GPUMEM_E_NO_MEMORY nothing was done. What clients return for it is destroyed,
 * not pooled. GM_EVENT_RECLAIM_ENDED reports its end, at the deadline or earlier.
 */
gpumem_status gm_core_cleanup(struct gm_core *core, uint32_t device, uint64_t free,
	struct gm_reclaim_plan *ret_plan, char detail[GM_DETAIL_BYTES]);

/* ---- limits */

/*
 * Each of these changes everything or nothing. On failure, detail says what contradicts what.
 * GPUMEM_E_INVALID: guarantees beyond the capacity, max below guarantee, guarantees for two kinds
 * of owner or for a client's name, nothing set. GPUMEM_E_NOT_FOUND: no such device or session, or
 * (reset) nothing was set for it. GPUMEM_E_LIMIT: too many (GM_BOUND_LIMITS). GPUMEM_E_HOST_MEMORY.
 *
 * A max below what is held is no failure: see gm_limit_info.over.
 */
/* Replaces the configuration's layer as a whole, and with it the policies of all devices (NULL:
 * they stay), whose capacities bound the guarantees. Ignores rules for a device that is not there.
 */
gpumem_status gm_core_configure(struct gm_core *core, const struct gm_policy *policies,
	const struct gm_limit_rule *rules, size_t n_rules, char detail[GM_DETAIL_BYTES]);
/* Between these, core decides about no request, so that a caller can tell of a change before its effects. */
void gm_core_hold(struct gm_core *core);
void gm_core_release(struct gm_core *core);
/* Adds to what was set for this owner at run time. */
gpumem_status gm_core_set_limit(struct gm_core *core, const struct gm_owner *owner, uint32_t device,
	const struct gm_limit_values *values, char detail[GM_DETAIL_BYTES]);
/* Forgets what was set at run time for this owner; NULL: for all owners. */
gpumem_status gm_core_reset_limit(struct gm_core *core, const struct gm_owner *owner,
	uint32_t device, char detail[GM_DETAIL_BYTES]);
/*
 * Visits limits in the order in which their owners were first named, each with its devices, from a
 * place on. When visit() takes no more, it returns false; then that limit's place is written to
 * *place, and the result is true.
 */
bool gm_core_limit_each(struct gm_core *core, struct gm_limit_place *place,
	bool (*visit)(void *ctx, const struct gm_limit_info *info), void *ctx);

/* ---- sessions and requests; see also session.h, lease.h and lease_token.h */

struct gm_session *gm_core_find_session(struct gm_core *core, uint64_t id);
uint64_t gm_core_session_count(const struct gm_core *core);
/* Counts leases that somebody holds, or that have a name. While a session that shared leases ends in
 * slices, those may be missing. */
uint64_t gm_core_lease_count(const struct gm_core *core);
/* Does a slice of the user's work: see gm_core_ops.work. Returns whether there is more. */
bool gm_core_work(struct gm_core *core, uid_t payer_uid);
/*
 * Visits the orphaned accounts, oldest first, with ids above the one given. Those that hold nothing are left out. When
 * visit() takes no more, it returns false, and the result is true.
 */
bool gm_core_orphan_each(const struct gm_core *core, uint64_t after,
	bool (*visit)(void *ctx, const struct gm_orphan *orphan), void *ctx);

/*
 * Asks for memory. A request that could never be granted is refused at once (GPUMEM_E_LIMIT,
 * GPUMEM_E_NO_MEMORY). If a request does not fit now, clients are asked for what is missing, and it
 * is queued: until the asked clients' deadline if it may not wait, otherwise as long as it may wait
 * (queue.h). The same happens to a request that fits when the backend turns out to have less
 * memory. Its tag must stay valid until it is done. Outcomes of waiting: GPUMEM_E_TIMEOUT,
 * GPUMEM_E_DEADLOCK, GPUMEM_E_CANCELLED.
 */
void gm_core_request(struct gm_core *core, struct gm_request *request);
/* Ends a request that is not done: it waits, or its chunks are being made. Calls done() with
 * GPUMEM_E_CANCELLED before it returns. */
void gm_core_cancel(struct gm_core *core, struct gm_request *request);
/* Visits the waiting requests of a device in order, from a place on. When visit() takes no more, it
 * returns false; then that request's place is written to *place, and the result is true. */
bool gm_core_queue_each(const struct gm_core *core, uint32_t device, struct gm_queue_place *place,
	bool (*visit)(void *ctx, const struct gm_queue_info *info), void *ctx);
void gm_core_counters(const struct gm_core *core, struct gm_core_counters *ret);

/* ---- what the daemon must tell core */

/* The end of a creation. result: 0, with chunk->handle filled, or a negative errno (-ENOMEM: the
 * backend is out of memory; -EXFULL: the keeper has no room for it). */
void gm_core_created(struct gm_core *core, struct gm_chunk *chunk, int result);
void gm_core_destroyed(struct gm_core *core, struct gm_chunk *chunk);
/* The keeper has the control block of this request's lease, for which deposit() had to wait. */
void gm_core_control_block_deposited(struct gm_core *core, struct gm_request *request);
/*
 * How much of the device was free when the device thread looked. Corrects foreign, and so the
 * ceiling. The samples, creations and destructions of one device must be reported in the order in
 * which the thread did them, so that a sample never counts memory that core does not know of. A
 * sample reported before -ENOMEM makes the refusal name what is foreign now.
 */
void gm_core_sample(struct gm_core *core, uint32_t device, uint64_t free_bytes);
/* The device could not say: foreign stays what it was, and does not count as measured any more. */
void gm_core_sample_failed(struct gm_core *core, uint32_t device);
/*
 * Reports what the driver counts for each process, if the device is counted. Core takes ownership. The report must come
 * in order with the others of the device: for a chunk that is watched, one count before its
 * destruction and one after it.
 */
void gm_core_counted(struct gm_core *core, uint32_t device, struct gm_usage_sample *counted);
/* The sample reported last, or its failure, began after the call of gm_core_ops.probe. Does nothing
 * if no probe is under way. */
void gm_core_probed(struct gm_core *core, uint32_t device);
/*
 * Does what is due: the dwell of the pressure level, another try at the reserve, the decay of the
 * pool, orphaned chunks, orphaned mappings, deadlines of waiting requests and of clients that were asked for memory, reclaim's next step. Returns when
 * it must be called next, in ns, or UINT64_MAX. That time may become earlier: see wake_at().
 */
uint64_t gm_core_tick(struct gm_core *core);

#endif
