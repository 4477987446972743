/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes requests ready. One thread at a time is here, and it never waits for an answer: it takes what
 * has been answered, fails what has waited long enough, looks for memory that was freed in this
 * process, and sends what the daemon can take.
 *
 * The daemon lets a client have GM_BOUND_WAITING_PER_CLIENT requests that may wait. Some of them are
 * left to threads that wait in a call. The other requests stay here, in their order. A small request
 * is not sent while the chunk that another one asked for has room for it, too.
 *
 * While the daemon is away, requests stay pending. Those that it had not answered are sent again with
 * their ids, so nothing is granted twice.
 */
#include "client/request/request_step.h"

#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <utlist.h>

#include "client/buffer/buffer.h"
#include "client/buffer/buffer_make.h"
#include "client/heap/arena.h"
#include "client/memory/supply.h"
#include "client/request/request_list.h"
#include "client/session/reconnect.h"
#include "client/grant/lease_returns.h"
#include "common/arith.h"
#include "common/cancel.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/text/units.h"

/* What is left to threads that call and wait. */
#define OTHERS   8
#define ASKS_MAX (GM_BOUND_WAITING_PER_CLIENT - OTHERS)
/* How many more may be under way that the daemon answers at once. */
#define QUICK_MAX 16
/* Looking empties the caches of all threads, so it must not happen at each free. */
#define LOOK_NS (1 * GM_NS_PER_MS)

/* ---- one request in hand */

/* Lets go of a request that stays pending. */
static void step_let_go(struct gpumem_request *request, enum gm_request_state state)
{
	struct gpumem_session *session = request->session;

	gm_lock(&session->lock);
	request->working = false;
	bool dropped = request->dropped;
	if (dropped || state != request->state)
		gm_request_unlist(request);
	if (!dropped && state != request->state)
		gm_request_enlist(request, state);
	gm_lock_drop(&session->lock);
	if (dropped)
		gm_request_dispose(request);
}

/* Ends a request. After a failure, the sentence is this thread's. */
static void step_end(struct gpumem_request *request, gpumem_status status)
{
	struct gpumem_session *session = request->session;
	char *detail = status ? strdup(gm_error_text()) : NULL;

	gm_lock(&session->lock);
	request->status = status;
	request->detail = detail;
	request->working = false;
	gm_request_unlist(request);
	bool dropped = request->dropped;
	if (!dropped) {
		gm_request_enlist(request, status ? GM_REQUEST_FAILED : GM_REQUEST_READY);
		if (request->fn)
			gm_request_announce(request);
	}
	pthread_cond_broadcast(&session->changed);
	if (session->requests->driving)
		(void)!eventfd_write(session->requests->nudge, 1);
	gm_lock_drop(&session->lock);
	if (dropped)
		gm_request_dispose(request);
}

/* The request fails, and its ask with it. Keeps the sentence. */
static void step_fail(struct gpumem_request *request, gpumem_status status)
{
	char text[GM_ERROR_BYTES];

	snprintf(text, sizeof(text), "%s", gm_error_text());
	gm_session_ask_drop(gm_steal_ptr(&request->ask));
	step_end(request, gm_error(status, "%s", text));
}

/* ---- memory that is here */

/* Whether the heap can make the block of a request with what it has. */
static bool step_try(struct gpumem_request *request)
{
	struct gm_supply_offer nothing = {.supply = request->wanted.supply};
	gpumem_status status;

	if (gm_alloc_from_offer(&request->wanted, &nothing, &status) != 0)
		return false;
	request->ptr = request->wanted.ptr;
	gm_session_ask_drop(gm_steal_ptr(&request->ask));
	return true;
}

/* Locked. The first request for a pointer on the device that is smaller than that. */
static struct gpumem_request *step_find_smaller(
	struct gpumem_request *list, uint32_t device, size_t size)
{
	struct gpumem_request *request;
	DL_FOREACH (list, request)
		if (!request->for_buffer && request->device == device && request->size < size)
			return request;
	return NULL;
}

/* Gives what the heap has to the requests of a device. What is as large as one that did not fit does
 * not fit, either. */
static void step_try_all(struct gpumem_session *session, uint32_t device)
{
	struct gm_requests *q = session->requests;
	size_t size = SIZE_MAX;

	for (;;) {
		gm_lock(&session->lock);
		struct gpumem_request *request = step_find_smaller(q->asked, device, size);
		if (!request)
			request = step_find_smaller(q->queued, device, size);
		if (request)
			request->working = true;
		gm_lock_drop(&session->lock);
		if (!request)
			return;

		size_t tried = request->size;
		if (step_try(request)) {
			step_end(request, GPUMEM_OK);
		} else {
			size = tried;
			step_let_go(request, request->state);
		}
	}
}

/* For gm_wait_elsewhere, which has emptied the caches. It goes on looking: there may be more requests. */
static bool step_take_freed(void *ctx)
{
	struct gm_request_look *look = ctx;
	step_try_all(look->session, look->device);
	return false;
}

static void step_look(struct gpumem_session *session, uint32_t device, bool freed, uint64_t now)
{
	struct gm_request_look *look = &session->requests->look[device];
	struct gm_wait_look *at = &look->elsewhere.look;

	if (!look->session) {
		look->session = session;
		look->device = device;
		look->elsewhere = (struct gm_wait_elsewhere){
			.session = session, .device = device, .take = step_take_freed, .ctx = look};
		(void)gm_wait_elsewhere_wait(&look->elsewhere, 0);
	}
	if (look->granted) {
		look->granted = false;
		step_try_all(session, device);
	}
	if (freed)
		at->at_ns = gm_u64_min(at->at_ns, look->last_ns + LOOK_NS);
	if (now < at->at_ns)
		return;
	look->last_ns = now;
	at->at_ns = at->look(at->ctx);
}

/* Looks on each device that has requests. Returns when to look again. */
static uint64_t step_look_all(struct gpumem_session *session, uint64_t now)
{
	struct gm_requests *q = session->requests;
	uint64_t next = UINT64_MAX;

	gm_lock(&session->lock);
	bool freed = q->freed != session->freed;
	q->freed = session->freed;
	gm_lock_drop(&session->lock);

	for (uint32_t i = 0; i < session->devices; i++) {
		gm_lock(&session->lock);
		bool any = q->pending[i] > 0;
		gm_lock_drop(&session->lock);
		if (!any) {
			q->look[i].session = NULL; /* the next request looks soon */
			continue;
		}
		step_look(session, i, freed, now);
		next = gm_u64_min(next, q->look[i].elsewhere.look.at_ns);
	}
	return next;
}

/* ---- answers */

/* The daemon refused chunks for a pointer. Returns whether the request has ended. */
static bool step_refused(struct gpumem_request *request, gpumem_status status)
{
	char text[GM_ERROR_BYTES];

	snprintf(text, sizeof(text), "%s", gm_error_text());
	if (status == GPUMEM_E_NO_MEMORY || status == GPUMEM_E_LIMIT) {
		(void)gm_arena_trim(request->wanted.arena, 0);
		if (step_try(request)) {
			step_end(request, GPUMEM_OK);
			return true;
		}
		/* Chunks that are unused here may be what the daemon lacks. */
		if (!request->trimmed && gm_arena_trim(request->wanted.arena, UINT64_MAX)) {
			request->trimmed = true;
			return false;
		}
	}
	step_end(request, gm_error(status, "%s", text));
	return true;
}

/* Takes the answer to a request for a pointer. */
static void step_finish_pointer(struct gpumem_request *request, gpumem_status status,
	struct gm_session_lease *lease, struct gm_session_chunk *chunks)
{
	struct gpumem_session *session = request->session;
	bool refused = status != GPUMEM_OK;

	if (!refused)
		session->requests->look[request->device].granted = true;
	bool over = gm_alloc_answered(
		session, request->device, &request->wanted, lease, chunks, &status);
	if (over && refused) {
		over = step_refused(request, status);
	} else if (over) {
		request->ptr = status ? NULL : request->wanted.ptr;
		step_end(request, status);
	}
	if (!over)
		step_let_go(request, GM_REQUEST_QUEUED);
}

/* Takes the answer to a request. */
static void step_finish(struct gpumem_request *request)
{
	struct gpumem_session *session = request->session;
	struct gm_session_lease *lease = NULL;
	struct gm_session_chunk *chunks = NULL;
	bool lost = false;

	gpumem_status status = gm_session_ask_finish(request->ask, &lost, &lease, &chunks);
	if (lost) {
		step_let_go(request, GM_REQUEST_QUEUED);
		return;
	}

	request->ask = NULL;
	/* If the daemon went away in the last moment, a new request is made. */
	if (status == GPUMEM_E_DISCONNECTED) {
		step_let_go(request, GM_REQUEST_QUEUED);
	} else if (request->for_buffer) {
		if (!status)
			status = gm_buffer_of_lease(session, lease, chunks, request->size,
				request->tag, GM_BUFFER_MADE, &request->wish, &request->buffer);
		if (!status)
			gm_buffer_note(request->buffer, request->type, request->precision);
		step_end(request, status);
	} else {
		step_finish_pointer(request, status, lease, chunks);
	}
}

static void step_finish_all(struct gpumem_session *session)
{
	struct gm_requests *q = session->requests;

	for (;;) {
		struct gpumem_request *request;
		gm_lock(&session->lock);
		DL_FOREACH (q->asked, request)
			if (gm_session_ask_ended(request->ask))
				break;
		if (request)
			request->working = true;
		gm_lock_drop(&session->lock);
		if (!request)
			return;
		step_finish(request);
	}
}

/* ---- time */

/* Locked. Until when a queued request may wait. */
static uint64_t step_queued_until(const struct gm_requests *q, const struct gpumem_request *request)
{
	struct gm_wait_patience patience;
	uint64_t end_ns = gm_request_end_ns(request), until_ns;

	if (!q->away_ns)
		return end_ns;
	if (!request->ask || !gm_session_ask_lost(request->ask, &until_ns)) {
		gm_wait_patience_begin(&patience, &request->wait, request->session->away_ns,
			gm_u64_max(request->began_ns, q->away_ns));
		until_ns = patience.end_ns;
	}
	return gm_u64_min(end_ns, until_ns);
}

/* Locked. The first request that has waited enough, or NULL. *ret_next: when the next one has. */
static struct gpumem_request *step_find_due(
	struct gpumem_session *session, uint64_t now, uint64_t *ret_next)
{
	struct gm_requests *q = session->requests;
	struct gpumem_request *request;
	uint64_t next = UINT64_MAX;

	DL_FOREACH (q->asked, request) {
		uint64_t at = gm_session_ask_overdue_ns(request->ask);
		if (now >= at)
			return request;
		next = gm_u64_min(next, at);
	}

	if (now >= q->due_ns || q->away_ns) {
		uint64_t due = UINT64_MAX;
		DL_FOREACH (q->queued, request) {
			uint64_t at = step_queued_until(q, request);
			if (now >= at)
				return request;
			due = gm_u64_min(due, at);
		}
		q->due_ns = due;
	}
	*ret_next = gm_u64_min(next, q->due_ns);
	return NULL;
}

/* What to say to a request that has waited enough. */
static gpumem_status step_due_error(struct gpumem_request *request, uint64_t now)
{
	struct gpumem_session *session = request->session;
	char waited[GM_UNITS_TEXT];

	gm_format_duration(now - request->began_ns, waited);
	if (request->state == GM_REQUEST_ASKED)
		return gm_error(GPUMEM_E_TIMEOUT,
			"gpumemd at %s did not answer in time; the "
			"request was begun %s ago",
			session->path, waited);
	if (gm_reconnect_now(session))
		return gm_reconnect_error(session);
	return gm_error(GPUMEM_E_TIMEOUT,
		"after %s the request was still behind others of this session: the daemon takes "
		"%d at a time that wait",
		waited, GM_BOUND_WAITING_PER_CLIENT);
}

static uint64_t step_expire_all(struct gpumem_session *session, uint64_t now)
{
	for (;;) {
		uint64_t next = UINT64_MAX;
		gm_lock(&session->lock);
		struct gpumem_request *request = step_find_due(session, now, &next);
		if (request)
			request->working = true;
		gm_lock_drop(&session->lock);
		if (!request)
			return next;
		step_fail(request, step_due_error(request, now));
	}
}

/* ---- sending */

/* Locked. Until when the daemon may let the request wait; 0: not at all. */
static uint64_t step_waits_until(const struct gpumem_request *request)
{
	uint64_t wait_ms = request->session->wait_ms;

	if (request->wait.mode == GM_WAIT_AS_CONFIGURED)
		return wait_ms ? request->began_ns + wait_ms * GM_NS_PER_MS : 0;
	return request->wait.deadline_ns;
}

/* Locked. Whether the daemon may let the request wait. */
static bool step_may_wait(const struct gpumem_request *request)
{
	return step_waits_until(request) != 0;
}

/* Locked. Notes how much more than was asked for the requests under way bring, and counts them. Only
 * small ones bring more: a large one may wait where a small one need not. */
static void step_count_asked(struct gpumem_session *session, size_t *ret_waiting, size_t *ret_quick)
{
	struct gpumem_request *request;
	size_t waiting = 0, quick = 0;

	DL_FOREACH (session->requests->asked, request) {
		uint64_t bytes = gm_alloc_bytes(&request->wanted);
		request->spare = request->for_buffer ? 0 : gm_u64_minus(GM_CHUNK_MIN, bytes);
		waiting += step_may_wait(request);
		quick += !step_may_wait(request);
	}
	/* The rest of those that ask for memory are threads, which may wait. */
	*ret_waiting = waiting + gm_u64_minus(session->asking, waiting + quick);
	*ret_quick = quick;
}

/* Locked. Whether a request under way brings enough for this one, and waits no longer than it. */
static bool step_rides(struct gm_requests *q, const struct gpumem_request *rider)
{
	uint64_t bytes = gm_alloc_bytes(&rider->wanted);
	struct gpumem_request *request;

	if (rider->for_buffer)
		return false;
	DL_FOREACH (q->asked, request) {
		if (request->device == rider->device && request->spare >= bytes &&
			step_waits_until(request) <= step_waits_until(rider)) {
			request->spare -= bytes;
			return true;
		}
	}
	return false;
}

/* Locked. The next request to send, or NULL. One that the daemon answers at once may overtake those
 * that wait for a place in its queue. */
static struct gpumem_request *step_find_unsent(struct gpumem_session *session)
{
	struct gm_requests *q = session->requests;
	struct gpumem_request *request;
	size_t waiting, quick;

	if (session->state != GM_SESSION_UP)
		return NULL;
	step_count_asked(session, &waiting, &quick);
	DL_FOREACH (q->queued, request) {
		if (request->ask)
			return request;
		if (waiting >= ASKS_MAX && quick >= QUICK_MAX)
			return NULL;
		bool room = step_may_wait(request) ? waiting < ASKS_MAX : quick < QUICK_MAX;
		if (room && !step_rides(q, request))
			return request;
	}
	return NULL;
}

static gpumem_status step_make_ask(struct gpumem_request *request)
{
	struct gm_session_ask_wanted wanted = {
		.what = {.bytes = request->size,
			.device = request->device,
			.transport = request->transport,
			.tag = request->tag,
			.for_others = request->wish.for_others,
			.signals = request->wish.signals},
		.wait = request->wait,
		.ended = gm_requests_nudge,
		.ctx = request->session,
	};

	if (!request->for_buffer)
		gm_alloc_ask(&request->wanted, &wanted);
	return gm_session_ask_new(request->session, &wanted, &request->ask);
}

/* Sends a request. Returns whether another one may be sent. */
static bool step_send(struct gpumem_request *request)
{
	gpumem_status status = request->ask ? GPUMEM_OK : step_make_ask(request);
	if (!status)
		status = gm_session_ask_send(request->ask);

	if (status == GPUMEM_E_BUSY || status == GPUMEM_E_DISCONNECTED) {
		step_let_go(request, GM_REQUEST_QUEUED);
		return false;
	}
	if (!status) {
		step_let_go(request, GM_REQUEST_ASKED);
	} else if (!request->for_buffer &&
		   gm_supply_lease_gone(request->wanted.supply, &request->wanted.ask, status)) {
		gm_session_ask_drop(gm_steal_ptr(&request->ask));
		step_let_go(request, GM_REQUEST_QUEUED);
	} else {
		step_fail(request, status);
	}
	return true;
}

static void step_send_all(struct gpumem_session *session)
{
	bool more = true, first = true;

	while (more) {
		gm_lock(&session->lock);
		struct gpumem_request *request = step_find_unsent(session);
		if (request)
			request->working = true;
		gm_lock_drop(&session->lock);
		if (!request)
			return;

		/* A request must not be refused because of memory that was given back before. */
		bool pinned = request->device >= session->counted;
		if (pinned)
			gm_retired_settle(session, GM_RETIRED_HOST_WAIT);
		else if (first)
			gm_retired_settle(session, GM_RETIRED_NO_WAIT);
		if (pinned || first)
			gm_lease_returns_first(session);
		first = false;
		more = step_send(request);
	}
}

/* ---- */

/* Notes since when the daemon is away. */
static void step_note_absence(struct gpumem_session *session, uint64_t now)
{
	struct gm_requests *q = session->requests;

	gm_lock(&session->lock);
	bool away = session->state == GM_SESSION_AWAY;
	if (!away)
		q->away_ns = 0;
	else if (!q->away_ns)
		q->away_ns = now;
	gm_lock_drop(&session->lock);
}

uint64_t gm_requests_step(struct gpumem_session *session)
{
	struct gm_requests *q = session->requests;
	uint64_t now = gm_clock_ns();
	GM_UNCANCELLED;

	gm_lock(&session->lock);
	bool go = q->n_pending && !q->stepping;
	q->stepping = q->stepping || go;
	gm_lock_drop(&session->lock);
	if (!go)
		return UINT64_MAX;

	step_finish_all(session);
	step_note_absence(session, now);
	uint64_t next = step_look_all(session, now);
	step_send_all(session);
	next = gm_u64_min(next, step_expire_all(session, now));

	gm_lock(&session->lock);
	q->stepping = false;
	gm_lock_drop(&session->lock);
	return next;
}
