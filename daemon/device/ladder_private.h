/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DEVICE_LADDER_PRIVATE_H
#define GM_DEVICE_LADDER_PRIVATE_H

#include "daemon/device/device_private.h"
#include "daemon/device/ladder.h"

/* The ladder for core's own modules: building a plan, carrying it out, and what came of it. */

/* What a client said is used for so long, or until what it holds changes. Before a client is asked,
 * and when its deadline has passed, core looks again. */
#define GM_LADDER_SAID_NS UINT64_C(50000000)
/* A plan looks at so many clients at most, those it has not looked at for longest: each look is a
 * system call. Of the others, what they said before counts. Only a cleanup by hand looks at all. */
#define GM_LADDER_LOOKS 256

void gm_ladder_init(struct gm_ladder *ladder);

/* A plan is built rung by rung. The functions that return int may return -ENOMEM; then the plan
 * must still be deinited. */
void gm_ladder_plan_init(struct gm_device *device, enum gm_trigger trigger, uint64_t need,
	struct gm_ladder_plan *plan);
int gm_ladder_plan_pool(struct gm_device *device, struct gm_ladder_plan *plan, uint64_t bytes);
/* self: the account that wants the memory; NULL: nobody in particular. tally: asks only clients
 * that count for it; NULL: all. */
int gm_ladder_plan_clients(struct gm_device *device, const struct gm_account *self,
	const struct gm_tally *tally, enum gm_rung rung, uint64_t bytes,
	struct gm_ladder_plan *plan);
/* What the plan brings if no client breaks its word again. */
static inline uint64_t gm_ladder_plan_sure(const struct gm_ladder_plan *plan)
{
	return plan->planned - plan->doubted;
}
/* The plan of a cleanup by hand: see gm_core_cleanup_plan(). */
gpumem_status gm_ladder_plan_cleanup(struct gm_device *device, uint64_t free_bytes,
	struct gm_ladder_plan *ret_plan, char detail[GM_DETAIL_BYTES]);

/* Carries the plan out and reports it. A run of the same trigger that is still active absorbs it.
 */
void gm_ladder_carry_out(struct gm_device *device, const struct gm_ladder_plan *plan);
/* Ends the runs in which no client owes anything any more, or whose deadline has passed. */
void gm_ladder_end_runs(struct gm_device *device);

/*
 * Asks clients for bytes on behalf of a request of self: the accounts of one limit (tally), or all
 * of the device. First the clients that say they have them are asked; if that is not enough, or
 * with widely, every client that holds memory. With fully, nobody is asked unless all of it could
 * come. With own, other users' clients move no buffers. Returns how many bytes were asked for.
 */
struct gm_ladder_ways {
	bool widely, fully, own;
};
uint64_t gm_ladder_ask(struct gm_device *device, const struct gm_account *self,
	const struct gm_tally *tally, uint64_t bytes, struct gm_ladder_ways ways);
/* The bytes that clients say they could return and that would help self. with_own: also the clients
 * of its own user. A client that let its last deadline pass is not believed, nor is one that cannot
 * tell. */
uint64_t gm_ladder_claimed(struct gm_device *device, const struct gm_payer *self, bool with_own);
/* The bytes that clients were asked for by this trigger and still owe. */
uint64_t gm_ladder_owed(const struct gm_device *device, enum gm_trigger trigger);
/* Whether clients still have time to return what they were asked for. */
bool gm_ladder_asking(const struct gm_device *device, enum gm_trigger trigger);
/* Until when clients have time to move buffers for the trigger; 0: none of them was asked to. */
uint64_t gm_ladder_spill_until(const struct gm_device *device, enum gm_trigger trigger);
/* How long a client has that must copy content first. */
uint64_t gm_ladder_spill_ns(const struct gm_policy *policy);
/* An account that was asked for memory returned a chunk. Returns whether the chunk must be
 * destroyed. */
bool gm_ladder_returned(struct gm_device *device, struct gm_account *account, uint64_t bytes);
/* The payer will not return anything any more: it is quarantined, or ends. */
void gm_ladder_gone(struct gm_device *device, struct gm_payer *payer);
/* The pool gave so many bytes because the device has less than min_free. */
void gm_ladder_min_free(struct gm_device *device, uint64_t need, uint64_t bytes);

#endif
