/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_RECLAIM_RECLAIM_BACKOFF_H
#define GM_RECLAIM_RECLAIM_BACKOFF_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/books/text_say.h"
#include "daemon/device/device_private.h"
#include "daemon/reclaim/reclaim_run.h"
#include "daemon/reclaim/reclaim_user.h"

/*
 * How much a user's requests may cost the clients of other users. For a request of another user, clients return what
 * they do not use, and move buffers to host memory. If the user does not keep the memory that it gets by that, the
 * clients are exempt from what it asks for some time. They return nothing more for it for a second (the policy's after_action),
 * and they move no buffers for it for longer each time.
 *
 * reclaim_ask.c asks this module whom it may ask. The queue reports how asks end, and leases report what clients return.
 * The state of a user stays as long as gm_reclaim_backoff_remembers(), even without asks.
 */

/* A user may ask from now on. */
void gm_reclaim_backoff_add_user(
	struct gm_device *device, struct gm_reclaim_user *asker, struct gm_user *user);
/* A user without asks leaves. */
void gm_reclaim_backoff_remove_user(struct gm_device *device, struct gm_reclaim_user *asker);
/* Whether the state of a user without asks says something that the user must not escape by leaving. */
bool gm_reclaim_backoff_remembers(
	const struct gm_device *device, const struct gm_reclaim_user *user, uint64_t now);

/* Whether other users' clients are left alone for now: they returned something for the request's user a
 * moment ago, and the user has not taken that yet, did not take it, or has given it back. */
bool gm_reclaim_backoff_rests(const struct gm_device *device, const struct gm_reclaim_ask *ask);
/* Whom the request may ask now. GM_REACH_OWN: other users' clients are exempt. */
enum gm_reclaim_reach gm_reclaim_backoff_reach(
	struct gm_device *device, const struct gm_reclaim_ask *ask);
/* While other users' clients are exempt: whether it is worth waiting for its end. It is if clients that may be asked
 * then say that they have what the request lacks. */
bool gm_reclaim_backoff_is_worth_it(
	struct gm_device *device, const struct gm_reclaim_ask *ask, uint64_t lacks);

/* Call when clients of other users were asked for the request. */
void gm_reclaim_backoff_disturb(struct gm_reclaim_ask *ask);
/* An ask of this user, which does not wait any more, is charged for its memory now. */
void gm_reclaim_backoff_granted(const struct gm_device *device, struct gm_reclaim_user *user,
	const struct gm_reclaim_ask *ask);
/* An ask leaves the queue without its memory. */
void gm_reclaim_backoff_failed(const struct gm_device *device, const struct gm_reclaim_ask *ask);
/* A client that owes memory returns bytes of it. */
void gm_reclaim_backoff_returned(
	struct gm_device *device, const struct gm_account *account, uint64_t bytes);

/* When gm_reclaim_backoff_tick() must be called although nothing has happened; UINT64_MAX: never. */
uint64_t gm_reclaim_backoff_due(const struct gm_device *device);
/* Checks, when it is time, how much users have kept of the memory that others moved buffers for. */
void gm_reclaim_backoff_tick(struct gm_device *device);

/* For how long other users' clients are still left alone before they are asked for the request, or to move
 * buffers for it. It takes longer only if they do more for its user meanwhile. 0: the request does not wait for
 * that. */
uint64_t gm_reclaim_backoff_left_ns(
	const struct gm_device *device, const struct gm_reclaim_ask *ask);
/* Writes that for a person; "" if the request does not wait for that. */
void gm_reclaim_backoff_say(const struct gm_device *device, const struct gm_reclaim_ask *ask,
	char detail[GM_DETAIL_BYTES]);

#endif
