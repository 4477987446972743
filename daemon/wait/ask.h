/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_WAIT_ASK_H
#define GM_WAIT_ASK_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/books/say.h"
#include "daemon/device/device_private.h"
#include "daemon/wait/request.h"

/* Asking clients to return memory for a request that waits, and how much that may cost them. */

/* A parked request stays for so many rounds of asking clients. */
#define GM_PARKED_ROUNDS 2
/* Asks clients for what the request lacks. Returns whether something may come. */
bool gm_ask_for(struct gm_device *device, struct gm_request *request);
/* A request of the queue is charged for its memory now. */
void gm_ask_granted(struct gm_device *device, const struct gm_request *request);
/* A request leaves the queue without its memory. */
void gm_ask_failed(struct gm_device *device, const struct gm_request *request);
/* A client that owes memory returns bytes of it. */
void gm_ask_returned(struct gm_device *device, const struct gm_account *account, uint64_t bytes);
/* When gm_ask_tick() must be called although nothing has happened; UINT64_MAX: never. */
uint64_t gm_ask_due(const struct gm_device *device);
/* Time has passed: looks what users kept of the memory that others moved buffers for. */
void gm_ask_tick(struct gm_device *device);
/* Whether clients still have time to return something that helps the request. */
bool gm_ask_under_way(const struct gm_device *device, const struct gm_waiting *w);
/* How long other users' clients are left alone before they are asked for the request: no longer than
 * this, unless they return more for its user meanwhile. 0: the request does not wait for that. */
uint64_t gm_ask_rest_ns(const struct gm_device *device, const struct gm_waiting *w);
/* Writes that for a person; "" if the request does not wait for that. */
void gm_ask_say_rest(
	const struct gm_device *device, const struct gm_waiting *w, char detail[GM_DETAIL_BYTES]);

#endif
