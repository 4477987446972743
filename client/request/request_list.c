/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lists of requests. This file promises that a request is in exactly one list while the program
 * has it, that the descriptor is readable while a function is to be called and at no other time, and
 * that the session knows whether there are requests which nobody waits for in a call.
 */
#include "client/request/request_list.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <utlist.h>

#include "common/arith.h"
#include "common/cancel.h"
#include "common/cleanup.h"

void gm_request_dispose(struct gpumem_request *request)
{
	gm_session_ask_drop(request->ask);
	if (request->ptr)
		gm_alloc_undo(request->session, request->device, request->ptr);
	gpumem_buffer_destroy(request->buffer);
	free(request->detail);
	free(request);
}

int gm_requests_init(struct gpumem_session *session)
{
	struct gm_requests *q = calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	q->fd = -1;
	q->due_ns = UINT64_MAX;
	q->nudge = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (q->nudge < 0) {
		int r = -errno;
		free(q);
		return r;
	}

	session->requests = q;
	return 0;
}

static void request_dispose_all(struct gpumem_request *list)
{
	struct gpumem_request *request, *tmp;
	DL_FOREACH_SAFE (list, request, tmp)
		gm_request_dispose(request);
}

void gm_requests_deinit(struct gpumem_session *session)
{
	struct gm_requests *q = gm_steal_ptr(&session->requests);
	if (!q)
		return;

	request_dispose_all(q->queued);
	request_dispose_all(q->asked);
	request_dispose_all(q->ended);
	gm_close(q->fd);
	gm_close(q->nudge);
	free(q);
}

void gm_requests_nudge(void *ctx)
{
	struct gpumem_session *session = ctx;
	GM_UNCANCELLED;

	gm_session_wake(session);
	gm_lock(&session->lock);
	if (session->requests && session->requests->driving)
		(void)!eventfd_write(session->requests->nudge, 1);
	gm_lock_drop(&session->lock);
}

/* Locked. */
static struct gpumem_request **request_list_of(const struct gpumem_request *request)
{
	struct gm_requests *q = request->session->requests;

	if (request->state == GM_REQUEST_QUEUED)
		return &q->queued;
	return request->state == GM_REQUEST_ASKED ? &q->asked : &q->ended;
}

/* Locked. Counts a request that became pending, or stopped to be. While there are such requests, the
 * session hurries to reach an absent daemon, and hears of memory that is freed. */
static void request_count(struct gpumem_request *request, bool more)
{
	struct gpumem_session *session = request->session;
	struct gm_requests *q = session->requests;

	q->pending[request->device] += more ? 1 : -1;
	q->n_pending += more ? 1 : -1;
	if (q->n_pending != (more ? 1 : 0))
		return;
	session->begun = more;
	session->waiting += more ? 1 : -1;
	if (more)
		atomic_fetch_add(&session->dirty, GM_SESSION_AWAITED);
	else
		atomic_fetch_sub(&session->dirty, GM_SESSION_AWAITED);
}

void gm_request_unlist(struct gpumem_request *request)
{
	struct gpumem_request **list = request_list_of(request);

	DL_DELETE(*list, request);
	if (gm_request_pending(request))
		request_count(request, false);
}

void gm_request_enlist(struct gpumem_request *request, enum gm_request_state state)
{
	struct gm_requests *q = request->session->requests;
	struct gpumem_request *after;

	request->state = state;
	struct gpumem_request **list = request_list_of(request);
	if (state != GM_REQUEST_QUEUED) {
		DL_APPEND(*list, request);
	} else {
		/* A request that is queued again keeps its place: close to the first. */
		bool last = !q->queued || q->queued->prev->serial < request->serial;
		after = last ? NULL : q->queued;
		while (after && after->serial < request->serial)
			after = after->next;
		if (after)
			DL_PREPEND_ELEM(*list, after, request);
		else
			DL_APPEND(*list, request);
		q->due_ns = gm_u64_min(q->due_ns, gm_request_end_ns(request));
	}
	if (gm_request_pending(request))
		request_count(request, true);
}

void gm_request_announce(struct gpumem_request *request)
{
	struct gm_requests *q = request->session->requests;

	request->announced = true;
	DL_APPEND2(q->done, request, done_prev, done_next);
	if (q->n_done++ == 0 && q->fd >= 0)
		(void)!eventfd_write(q->fd, 1);
}

void gm_request_unannounce(struct gpumem_request *request)
{
	struct gm_requests *q = request->session->requests;
	eventfd_t count;

	if (!request->announced)
		return;
	request->announced = false;
	DL_DELETE2(q->done, request, done_prev, done_next);
	if (--q->n_done == 0 && q->fd >= 0)
		(void)!eventfd_read(q->fd, &count);
}
