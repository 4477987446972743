/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_QUEUE_QUEUE_HEAD_H
#define GM_QUEUE_QUEUE_HEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/books/payer.h"
#include "daemon/device/device_private.h"
#include "daemon/queue/request.h"

/* Turns: which waiting request may hold others back, and for how long. queue.h says the rules. */

#define GM_QUEUE_HEAD_OVERTAKES 16
#define GM_QUEUE_HEAD_HOLD_NS   UINT64_C(10000000000)

/* Call when core has worked out what the request waits for. */
void gm_queue_head_note(struct gm_request *request);
/* A request of this account is granted: counts it for those that it overtakes. order: its place;
 * UINT64_MAX: it is new. */
void gm_queue_head_overtake(
	struct gm_device *device, const struct gm_account *account, uint64_t order);
/* Lets the request hold others back from now on, if it may. */
void gm_queue_head_begin(struct gm_device *device, struct gm_request *request, uint64_t now);
/* Ends such a hold if it has lasted long enough, or if the memory that justified it is gone. */
void gm_queue_head_look(struct gm_device *device, uint64_t now);
/* When gm_queue_head_look() must be called; UINT64_MAX: never. */
uint64_t gm_queue_head_due(const struct gm_device *device);
/* The request leaves its line. */
void gm_queue_head_leave(struct gm_device *device, const struct gm_request *request);
/* Whether a request of this payer must wait because another one holds it back. order: as above. */
bool gm_queue_head_bars(const struct gm_device *device, const struct gm_account_payer *payer,
	uint64_t bytes, uint64_t order);

#endif
