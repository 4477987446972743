/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_QUEUE_QUEUE_PRIVATE_H
#define GM_QUEUE_QUEUE_PRIVATE_H

#include "daemon/device/device_private.h"
#include "daemon/device/limit_private.h"
#include "daemon/queue/queue.h"

/* What queue.c, queue_request.c and queue_say.c know of one another. They are one object: a request moves from one to
 * the other and back. */

/* ---- queue_request.c */

/*
 * Charges a request that fits (gm_device_admit_now()), takes chunks from the pool and prepares those that
 * must be created. The request is not linked yet. On failure nothing is held: GPUMEM_E_UNSUPPORTED,
 * GPUMEM_E_LIMIT (chunks), GPUMEM_E_HOST_MEMORY.
 */
gpumem_status gm_request_admit(
	struct gm_request *request, struct gm_device *device, char detail[GM_DETAIL_BYTES]);
/* Submits what an admitted request lacks, or ends the request if it lacks nothing. */
void gm_request_start(struct gm_request *request);
/* Puts the request into its payer's list of pending ones. */
void gm_request_link(struct gm_request *request);

/* ---- queue.c */

/*
 * A request does not fit; refusal says why. GPUMEM_OK: it is queued, and clients were asked for
 * what it lacks, or will be when the device has been probed. Any other status: the caller must
 * refuse it with that status and detail. It may not wait and nobody can be asked, it could never be
 * granted, or too many of its user wait (GM_BOUND_WAITING_PER_UID).
 */
gpumem_status gm_queue_enter(struct gm_device *device, struct gm_request *request, uint64_t exact,
	const struct gm_request_refusal *refusal, char detail[GM_DETAIL_BYTES]);
/*
 * A request was admitted, but the backend has no memory for it, and nothing is held for it any
 * more. bytes: what could not be made of it; doomed: what is being destroyed of what it had. It is
 * queued again, or ended by done().
 */
void gm_queue_deny(
	struct gm_device *device, struct gm_request *request, uint64_t bytes, uint64_t doomed);
/* Gives an admitted request that lacks chunks its place in the order, in case it comes to the queue
 * later. */
void gm_queue_note(struct gm_device *device, struct gm_request *request);
/* Ends a request that waits. */
void gm_queue_end(struct gm_request *request, gpumem_status status, const char *detail);

/* ---- queue_say.c */

/* The backend could not make a chunk, for another reason than lack of memory. */
gpumem_status gm_request_say_backend(const struct gm_device *device, const struct gm_chunk *chunk,
	int result, char detail[GM_DETAIL_BYTES]);
/* Returns the owner of the limit, or of the largest guarantee, that keeps the request waiting, or NULL. */
const struct gm_owner *gm_request_blocker(const struct gm_device *device,
	const struct gm_limits *limits, const struct gm_request *request,
	struct gm_limit_most *last);
/* The payer's user may not have n more descriptors of the daemon. */
gpumem_status gm_request_say_fds(const struct gm_account_payer *payer, const struct gm_env *env,
	uint64_t n, char detail[GM_DETAIL_BYTES]);
/* Reports what happened to the request, which is the verb, and why. */
void gm_queue_tell(struct gm_device *device, const struct gm_request *request,
	enum gm_event_kind kind, int status, const char *verb, const char *why);
/* Reports the refusal of a request of which nothing was reported yet. Nothing is said about requests that are no more than a
 * try (at_once) or that follow a refused one (again), as those are not counted, either. If a limit is the reason,
 * and was when the request came, that was reported then. */
void gm_queue_tell_refused(struct gm_device *device, const struct gm_request *request,
	gpumem_status status, const char *detail);
/* Reports that the request waits until other users' clients may be asked for it. A request that must not wait
 * may do that, too. */
void gm_queue_tell_rest(struct gm_device *device, struct gm_request *request);

#endif
