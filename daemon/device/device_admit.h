/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DEVICE_DEVICE_ADMIT_H
#define GM_DEVICE_DEVICE_ADMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/books/payer.h"
#include "daemon/device/device_private.h"

/* Whether an account may have so many bytes more of a device, now or ever, and why not. Nothing
 * here changes anything: gm_ledger_admit() makes the charge itself. */

struct gm_request_refusal {
	enum gm_block block;
	const struct gm_ledger_tally *tally; /* GM_BLOCK_LIMIT: the tally whose max is in the way */
	bool never;                          /* waiting would not help */
	/* GM_BLOCK_DEVICE: the request fitted, but the backend could not make this many bytes of it. 0: that
	 * is not the reason. */
	uint64_t denied;
};

/* Whether it fits now. If it does not, *ret says why. Does not consider whose turn it is. */
bool gm_device_admit_now(struct gm_device *device, const struct gm_account *account, uint64_t bytes,
	struct gm_request_refusal *ret);
/* Whether it could be granted if all others returned everything and nothing were foreign. Always false while the
 * device is being drained. */
bool gm_device_admit_ever(const struct gm_device *device, const struct gm_account *account,
	uint64_t bytes, struct gm_request_refusal *ret);
/* Returns the most bytes for which gm_device_admit_ever() is true while the device is not being drained, in whole chunks. */
uint64_t gm_device_admit_most(const struct gm_device *device, const struct gm_account *account);
/* How many bytes must come back (to the limit, or to the device) before it fits. */
uint64_t gm_device_admit_missing(const struct gm_device *device, const struct gm_account *account,
	uint64_t bytes, const struct gm_request_refusal *refusal);
/* Writes the sentence for a refusal of the payer. Returns the status that goes with it. */
gpumem_status gm_device_admit_say(struct gm_device *device, const struct gm_account_payer *payer,
	uint64_t bytes, const struct gm_request_refusal *refusal, char detail[GM_DETAIL_BYTES]);

#endif
