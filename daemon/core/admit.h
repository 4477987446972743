/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_ADMIT_H
#define GM_CORE_ADMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "gpumem/status.h"
#include "daemon/core/device_private.h"

/* Whether a session may have so many bytes more of a device, now or ever, and why not. Changes
 * nothing: the charge itself is the ledger's (gm_ledger_admit()). */

struct gm_refusal {
	enum gm_block block;
	const struct gm_tally *tally; /* GM_BLOCK_QUOTA: whose max */
	bool never;                   /* however long it waited */
	/* GM_BLOCK_DEVICE: it fitted, but the device could not make so many bytes of it. 0:
	 * that is not why. */
	uint64_t denied;
};

/* false: it does not fit now; ret says why. The turn of others is not looked at. */
bool gm_admit_now(struct gm_device *device, const struct gm_account *account, uint64_t bytes,
	struct gm_refusal *ret);
/* false: it could not be granted if everybody else returned everything and nothing were foreign. */
bool gm_admit_ever(const struct gm_device *device, const struct gm_account *account, uint64_t bytes,
	struct gm_refusal *ret);
/* How many bytes must come back (to the limit, or to the device) before it fits. */
uint64_t gm_admit_missing(const struct gm_device *device, const struct gm_account *account,
	uint64_t bytes, const struct gm_refusal *refusal);

/* The status that goes with it, and the sentence. */
gpumem_status gm_admit_say(struct gm_device *device, const struct gm_account *account,
	uint64_t bytes, const struct gm_refusal *refusal, char detail[GM_DETAIL_BYTES]);

#endif
