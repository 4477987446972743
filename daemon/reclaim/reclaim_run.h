/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_RECLAIM_RECLAIM_RUN_H
#define GM_RECLAIM_RECLAIM_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/device/device_private.h"
#include "daemon/reclaim/reclaim.h"

/* Carries out plans of reclaim, and follows what clients return. */

void gm_reclaim_init(struct gm_reclaim *reclaim);

/* Carries the plan out and reports it. A run of the same trigger that is still active absorbs it.
 */
void gm_reclaim_carry_out(struct gm_device *device, const struct gm_reclaim_plan *plan);
/* Ends the runs in which no client owes anything any more, or whose deadline has passed. Of the run for requests,
 * gives up on each client whose own deadline has passed. */
void gm_reclaim_end_runs(struct gm_device *device);

/*
 * Asks clients for bytes on behalf of a request of self: the accounts of one limit (tally), or all
 * of the device. The clients that say they have them are asked; if that is not enough, also every
 * client that holds memory. Nobody is asked unless as much as least could come.
 */
struct gm_reclaim_ways {
	bool later; /* clients were asked for the request before */
	uint64_t least;
	enum gm_reclaim_reach reach;
	struct gm_reclaim_user *user; /* of the user of self */
	uint64_t lacks;               /* bytes that the request itself lacks; for the report */
};
struct gm_reclaim_outcome {
	uint64_t bytes;
	bool others; /* clients of other users were asked, too */
	bool spares; /* clients say they have too little, but other users have buffers that `reach` excludes */
};
struct gm_reclaim_outcome gm_reclaim_request(struct gm_device *device,
	const struct gm_account *self, const struct gm_ledger_tally *tally, uint64_t bytes,
	struct gm_reclaim_ways ways);
/* How many of these bytes could come from clients that may be asked now, by what the clients say. */
uint64_t gm_reclaim_offered(struct gm_device *device, const struct gm_account *self,
	const struct gm_ledger_tally *tally, uint64_t bytes, enum gm_reclaim_reach reach);
/* The bytes that clients were asked for by this trigger and still owe. */
uint64_t gm_reclaim_owed(const struct gm_device *device, enum gm_reclaim_trigger trigger);
/* Whether clients still have time to return what they were asked for. */
bool gm_reclaim_asking(const struct gm_device *device, enum gm_reclaim_trigger trigger);
/* Until when clients have time to move buffers for the trigger; 0: none of them was asked to. */
uint64_t gm_reclaim_spill_until(const struct gm_device *device, enum gm_reclaim_trigger trigger);
/* How long a client has that must copy content first. */
uint64_t gm_reclaim_spill_ns(const struct gm_policy *policy);
/* An account that was asked for memory returned a chunk. Returns whether the chunk must be
 * destroyed. */
bool gm_reclaim_returned(struct gm_device *device, struct gm_account *account, uint64_t bytes);
/* The payer will not return anything any more: it is quarantined, or ends. */
void gm_reclaim_gone(struct gm_device *device, struct gm_account_payer *payer);
/* The pool gave so many bytes because the device has less than min_free. */
void gm_reclaim_min_free(struct gm_device *device, uint64_t need, uint64_t bytes);

#endif
