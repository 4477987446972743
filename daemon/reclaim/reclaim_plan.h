/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_RECLAIM_RECLAIM_PLAN_H
#define GM_RECLAIM_RECLAIM_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/device/device_private.h"
#include "daemon/reclaim/reclaim.h"

/* What clients say they could return, and the plans that follow from it. */

/* Core uses what a client said for this long, or until what the client holds changes. Core looks again before it
 * asks the client, and when the client's deadline has passed. */
#define GM_RECLAIM_SAID_NS UINT64_C(50000000)
/* The plan of a request looks at this many clients at most, those that core has not looked at for longest: each look
 * is a system call, and every request that does not fit needs a plan. For the others, what they said before
 * counts. A plan under pressure looks at all clients: it comes once in settle_ns, and must leave out nobody before a
 * client is terminated. So does a cleanup by hand. */
#define GM_RECLAIM_LOOKS 256

/* Looks at what the client says about its use of the device now, as far as it can be true. */
const struct gm_reclaim_claim *gm_reclaim_look(
	const struct gm_device *device, struct gm_account *account);
/* The bytes that clients say they could return and that would help self. with_own: also the clients
 * of its own user. Leaves out clients of users that are overdue (reclaim_overdue.h), and clients whose figures are rough. */
uint64_t gm_reclaim_claimed(
	struct gm_device *device, const struct gm_account_payer *self, bool with_own);

/* A plan is built stage by stage. The functions that return int may return -ENOMEM; then the plan
 * must still be deinited. */
void gm_reclaim_plan_init(struct gm_device *device, enum gm_reclaim_trigger trigger, uint64_t need,
	struct gm_reclaim_plan *plan);
int gm_reclaim_plan_pool(struct gm_device *device, struct gm_reclaim_plan *plan, uint64_t bytes);
/* self: the account that wants the memory; NULL: nobody in particular. tally: asks only clients
 * that count for it; NULL: all. */
int gm_reclaim_plan_clients(struct gm_device *device, const struct gm_account *self,
	const struct gm_ledger_tally *tally, enum gm_stage stage, uint64_t bytes,
	struct gm_reclaim_plan *plan);
/* What the plan brings if no client breaks its word again. */
static inline uint64_t gm_reclaim_plan_sure(const struct gm_reclaim_plan *plan)
{
	return plan->planned - plan->overdue;
}
/* The plan of a cleanup by hand: see gm_core_cleanup_plan(). */
gpumem_status gm_reclaim_plan_cleanup(struct gm_device *device, uint64_t free_bytes,
	struct gm_reclaim_plan *ret_plan, char detail[GM_DETAIL_BYTES]);

#endif
