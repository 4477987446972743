/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles a request for memory: admission, choosing chunks, and undoing everything if a step fails.
 * This file promises that a request ends exactly once, that it is charged before anything is made
 * for it, and that a request which is not granted leaves no charge and loses no chunk: creations
 * that have not begun are called off, and chunks that no client has seen go to the pool as they
 * are. It must never wait: it submits what has to be created, and goes on in gm_request_created().
 *
 * A request that does not fit goes to the queue (queue.c), which comes back here when it fits.
 */
#include "daemon/books/hash_table.h"
#include "daemon/queue/queue_private.h"

#include <assert.h>
#include <errno.h>

#include "common/arith.h"
#include "daemon/books/fds.h"
#include "daemon/device/device_admit.h"
#include "daemon/device/device_plan.h"
#include "daemon/device/reserve.h"

static struct gm_account *request_account(
	const struct gm_request *request, const struct gm_device *device)
{
	return &request->payer->accounts[device->number];
}

/* Reports that what the payer holds on a device changed. */
static void request_changed(const struct gm_request *request, const struct gm_device *device)
{
	gm_env_payer_changed(device->env, request->payer, device->number);
}

/* ---- the end of a request */

void gm_request_unlink(struct gm_request *request)
{
	struct gm_account_payer *payer = request->payer;
	if (!request->prev)
		return;
	DL_DELETE(payer->pending, request);
	request->prev = request->next = NULL;
	payer->n_new -= request->calls->makes;
}

void gm_request_link(struct gm_request *request)
{
	struct gm_account_payer *payer = request->payer;
	DL_APPEND(payer->pending, request);
	payer->n_new += request->calls->makes;
}

static int request_compare_room(const struct gm_request *a, const struct gm_request *b)
{
	return a->room_at < b->room_at ? -1 : a->room_at > b->room_at;
}

/*
 * The creation goes on for nobody. A declaration that waits counted its chunk as charged; from now on others may be charged
 * in its place, and their chunks are made before this one is destroyed. A chunk of which the creation began later makes
 * nobody wait longer, or else a user that cancels request after request could do that without end.
 */
static void request_count_in(struct gm_device *device, const struct gm_chunk *chunk)
{
	struct gm_request *request;
	DL_FOREACH2 (device->declaring, request, side_next)
		if (chunk->id < request->room_id)
			request->room_at += chunk->bytes;
	DL_SORT2(device->declaring, request_compare_room, side_prev, side_next);
}

/* Gives back all that is held for the request. The caller must still see to done(). */
static void request_undo(struct gm_request *request)
{
	struct gm_device *device = request->waiting.device;
	struct gm_account *account = request_account(request, device);
	struct gm_chunk *chunk, *next;
	gm_request_unlink(request);

	DL_FOREACH_SAFE (request->chunks, chunk, next) {
		DL_DELETE(request->chunks, chunk);
		chunk->prev = chunk->next = NULL;
		chunk->request = NULL;
		if (chunk->state != GM_CHUNK_CREATING) {
			gm_device_release(device, chunk, account, true);
		} else if (gm_device_call_off(device, chunk)) {
			gm_ledger_unadmit(&device->ledger, account, chunk->bytes);
			gm_device_free_chunk(device, chunk);
		} else {
			gm_ledger_disown(&device->ledger, account, chunk->bytes);
			gm_fds_move(device->env, chunk, GM_FDS_SPARE, NULL);
			request_count_in(device, chunk);
		}
	}

	if (request->calls->undo)
		request->calls->undo(request);
	request_changed(request, device);
	gm_device_settle(device);
}

/* ---- memory that the client makes itself: the device must have room for it */

/*
 * How much the device must still destroy before it has the room that is charged by now. All that is
 * charged later waits for destructions of its own, and a chunk that is doomed later was counted here as
 * pooled, charged or unclaimed. Others cannot make this wait longer, except that they cancel what is under creation
 * already: see request_count_in(). A creation for nobody takes room
 * as well: its chunk is destroyed if such a request waits. If it fails, requests that counted the chunk
 * wait for that much less.
 */
static uint64_t request_lacks_room(const struct gm_device *device)
{
	const struct gm_ledger *ledger = &device->ledger;
	uint64_t going = ledger->doomed + ledger->unclaimed;
	uint64_t taken = gm_ledger_charged(ledger) + ledger->pooled + going;
	return gm_u64_min(going, gm_u64_minus(taken, gm_device_ceiling(device)));
}

static void request_admit_room(struct gm_request *request, struct gm_device *device)
{
	struct gm_account *account = request_account(request, device);
	int r = gm_ledger_admit(
		&device->ledger, account, gm_device_ceiling(device), request->bytes);
	assert(r == 0); /* gm_device_admit_now() said that it fits */
	(void)r;

	request->charged = request->bytes;
	gm_device_make_room(device, request->payer->domain);
	request->room_at = device->destroyed + request_lacks_room(device);
	if (device->queue.length > 0)
		gm_queue_head_overtake(device, account, request->waiting.order);
}

static void request_await_room(struct gm_request *request)
{
	struct gm_device *device = request->waiting.device;
	if (request->room_at <= device->destroyed) {
		request->calls->finish(request);
		return;
	}

	gm_queue_note(device, request);
	gm_request_link(request);
	request->room_id = device->env->ops.new_id(device->env->ctx);
	DL_INSERT_INORDER2(device->declaring, request, request_compare_room, side_prev, side_next);
	request_changed(request, device);
	gm_device_settle(device);
}

static void request_stop_waiting(struct gm_device *device, struct gm_request *request)
{
	DL_DELETE2(device->declaring, request, side_prev, side_next);
	request->side_prev = request->side_next = NULL;
}

static void request_leave_room(struct gm_request *request)
{
	struct gm_device *device = request->waiting.device;

	request_stop_waiting(device, request);
	gm_request_unlink(request);
	gm_ledger_unadmit(&device->ledger, request_account(request, device), request->bytes);
	request_changed(request, device);
	gm_device_settle(device);
}

void gm_request_destroyed(struct gm_device *device)
{
	struct gm_request *request;
	while ((request = device->declaring) && request->room_at <= device->destroyed) {
		request_stop_waiting(device, request);
		request->calls->finish(request);
	}
}

static void request_count_out(struct gm_device *device, const struct gm_chunk *chunk)
{
	struct gm_request *request;
	DL_FOREACH2 (device->declaring, request, side_next)
		if (chunk->id < request->room_id)
			request->room_at = gm_u64_minus(request->room_at, chunk->bytes);
	DL_SORT2(device->declaring, request_compare_room, side_prev, side_next);
}

void gm_request_created_unclaimed(struct gm_device *device, struct gm_chunk *chunk, int result)
{
	if (result < 0)
		request_count_out(device, chunk);
	gm_device_created_unclaimed(device, chunk, result);
	gm_request_destroyed(device);
}

/* ---- the end without success */

/* It is marked cold so that a pool hit,
 * which never comes here, does not pay for it. */
__attribute__((cold)) void gm_request_fail(
	struct gm_request *request, gpumem_status status, const char *detail)
{
	if (request->waiting.queued) {
		gm_queue_end(request, status, detail);
		return;
	}
	struct gm_device *device = request->waiting.device;
	if (status != GPUMEM_E_CANCELLED)
		gm_request_tell(device, request, status, detail);
	if (request->calls->no_chunks)
		request_leave_room(request);
	else
		request_undo(request);
	request->calls->refuse(request, status, detail);
	gm_reserve_refill(device);
}

void gm_request_cancel(struct gm_request *request)
{
	gm_request_fail(request, GPUMEM_E_CANCELLED, "the client took the request back");
}

void gm_request_cancel_all(struct gm_account_payer *payer)
{
	while (payer->pending)
		gm_request_fail(payer->pending, GPUMEM_E_CANCELLED, "the session went away");
}

/* ---- creations */

static void request_refuse_backend(
	struct gm_request *request, const struct gm_chunk *chunk, int result)
{
	struct gm_device *device = request->waiting.device;
	char detail[GM_DETAIL_BYTES];
	gpumem_status status = gm_request_say_backend(device, chunk, result, detail);

	gm_ledger_unadmit(&device->ledger, request_account(request, device), chunk->bytes);
	gm_request_fail(request, status, detail);
}

/* The request fits, but the device has no memory for it. It gives back what it has, and waits like
 * a request that does not fit. */
static void request_put_back(struct gm_request *request, uint64_t bytes)
{
	struct gm_device *device = request->waiting.device;
	uint64_t doomed = device->ledger.doomed, lacking = bytes;
	const struct gm_chunk *chunk;
	DL_FOREACH (request->chunks, chunk)
		if (chunk->state == GM_CHUNK_CREATING)
			lacking += chunk->bytes;

	gm_ledger_unadmit(&device->ledger, request_account(request, device), bytes);
	request_undo(request);
	request->charged = 0;
	request->missing = 0;
	gm_queue_deny(device, request, lacking, device->ledger.doomed - doomed);
}

void gm_request_go_on(struct gm_request *request)
{
	assert(request->missing > 0);
	if (--request->missing == 0)
		request->calls->finish(request);
	else
		gm_device_settle(request->waiting.device);
}

void gm_request_created(struct gm_request *request, struct gm_chunk *chunk, int result)
{
	struct gm_device *device = request->waiting.device;
	if (result == 0) {
		gm_ledger_lease_created(
			&device->ledger, request_account(request, device), chunk->bytes);
		chunk->state = GM_CHUNK_LEASED;
		gm_request_go_on(request);
		return;
	}

	if (result == -ENOMEM && !chunk->retried) {
		/* The device thread destroys what is doomed by now first, so the pool's memory is
		 * free then. */
		chunk->retried = true;
		gm_pool_clear(&device->pool);
		gm_reserve_back_off(device);
		gm_device_create(device, chunk, request->payer->id);
		gm_device_settle(device);
		return;
	}

	if ((result == -EMFILE || result == -ENFILE || result == -EXFULL) &&
		gm_device_retry_create(device, chunk))
		return;

	DL_DELETE(request->chunks, chunk);
	struct gm_chunk copy = *chunk;
	gm_device_free_chunk(device, chunk);
	if (result == -ENOMEM)
		request_put_back(request, copy.bytes);
	else
		request_refuse_backend(request, &copy, result);
}

/* ---- the beginning */

/* Whose used chunks the request may have. Memory that others will see must not have old data. */
static gm_domain request_domain(const struct gm_request *request)
{
	return request->fresh ? GM_DOMAIN_FRESH : request->payer->domain;
}

static void request_free_chunks(struct gm_device *device, struct gm_chunk *chunks)
{
	struct gm_chunk *chunk, *next;

	DL_FOREACH_SAFE (chunks, chunk, next) {
		DL_DELETE(chunks, chunk);
		gm_device_free_chunk(device, chunk);
	}
}

/* Makes the structs of all chunks that the plan creates, before anything is charged. */
static int request_make_chunks(struct gm_device *device, const struct gm_request *request,
	const struct gm_device_plan *plan, struct gm_chunk **ret_chunks)
{
	const struct gm_account_payer *payer = request->payer;
	enum gm_transport transport = request->transport;
	struct gm_chunk *chunks = NULL, *chunk;
	for (unsigned c = plan->classes; c-- > 0;) {
		for (uint32_t i = 0; i < plan->created[c]; i++) {
			chunk = gm_device_new_chunk(device, transport, plan->size[c]);
			if (!chunk)
				goto fail;
			chunk->payer_uid = payer->payer_uid;
			chunk->single = request->one_chunk;
			if (transport == GM_TRANSPORT_IPC) {
				chunk->domain = payer->domain;
				chunk->single = !payer->pooling;
			}
			DL_APPEND(chunks, chunk);
		}
	}
	*ret_chunks = chunks;
	return 0;
fail:
	request_free_chunks(device, chunks);
	return -ENOMEM;
}

/* Gives the request the chunks of its plan, from the pool and to be created, largest first. They
 * are charged already. */
static void request_gather(struct gm_request *request, struct gm_device *device,
	const struct gm_device_plan *plan, struct gm_chunk *created)
{
	struct gm_account *account = request_account(request, device);
	enum gm_transport transport = request->transport;
	for (unsigned c = plan->classes; c-- > 0;) {
		for (uint32_t i = 0; i < plan->pooled[c]; i++) {
			struct gm_chunk *chunk = gm_pool_take(
				&device->pool, transport, plan->size[c], request_domain(request));
			assert(chunk);
			if (chunk->domain == GM_DOMAIN_FRESH)
				device->reserve.short_of = true;
			chunk->state = GM_CHUNK_LEASED;
			gm_ledger_lease_pooled(&device->ledger, account, chunk->bytes);
			gm_fds_move(device->env, chunk, GM_FDS_LEASED, request->payer->user);
			DL_APPEND(request->chunks, chunk);
		}
		for (uint32_t i = 0; i < plan->created[c]; i++) {
			struct gm_chunk *chunk = created;
			DL_DELETE(created, chunk);
			chunk->request = request;
			gm_fds_move(device->env, chunk, GM_FDS_LEASED, request->payer->user);
			DL_APPEND(request->chunks, chunk);
		}
	}
	device->pool.misses += plan->n_created;
	request->missing = plan->n_created;
}

/* Chooses the chunks of a request that fits. Its transport is chosen. */
static gpumem_status request_plan(const struct gm_request *request, struct gm_device *device,
	struct gm_device_plan *ret_plan, char detail[GM_DETAIL_BYTES])
{
	enum gm_transport transport = request->transport;
	uint64_t ceiling = gm_device_ceiling(device);
	struct gm_account *account = request_account(request, device);
	uint64_t room = gm_ledger_room(&device->ledger, account, ceiling);
	if (request->one_chunk) {
		gm_device_plan_one(request->bytes, ret_plan);
	} else {
		int r = gm_device_plan_make(&device->pool, transport, request_domain(request),
			request->bytes, room, ret_plan);
		assert(r == 0); /* gm_device_admit_now() said that it fits */
		(void)r;
	}

	uint64_t fds = ret_plan->n_pooled + ret_plan->n_created + request->signals;
	if (transport == GM_TRANSPORT_FD &&
		gm_user_check(request->payer->user, GM_USER_CHUNK_FDS, fds))
		return gm_request_say_fds(request->payer, device->env, fds, detail);
	return GPUMEM_OK;
}

gpumem_status gm_request_admit(
	struct gm_request *request, struct gm_device *device, char detail[GM_DETAIL_BYTES])
{
	const struct gm_request_calls *calls = request->calls;
	struct gm_account *account = request_account(request, device);
	struct gm_chunk *created = NULL;
	bool waits = false;
	struct gm_device_plan plan;
	if (calls->no_chunks) {
		request_admit_room(request, device);
		return GPUMEM_OK;
	}
	gpumem_status status = request_plan(request, device, &plan, detail);
	if (status == GPUMEM_OK && calls->prepare)
		status = calls->prepare(request, device, &waits, detail);
	if (status != GPUMEM_OK)
		return status;
	if (request_make_chunks(device, request, &plan, &created) < 0) {
		if (calls->undo)
			calls->undo(request);
		return gm_text_refuse(
			GPUMEM_E_HOST_MEMORY, detail, "the daemon has no memory for another lease");
	}

	request->charged = plan.bytes;
	int r = gm_ledger_admit(&device->ledger, account, gm_device_ceiling(device), plan.bytes);
	assert(r == 0); /* the plan was made for what there is room for */
	(void)r;

	request_gather(request, device, &plan, created);
	request->missing += waits;
	gm_device_make_room(device, request->payer->domain);
	if (gm_fd_budget_short(device->env->fds))
		gm_device_settle_fds(device->env, false);
	if (device->queue.length > 0)
		gm_queue_head_overtake(device, account, request->waiting.order);
	return GPUMEM_OK;
}

/* Submits the creations that a request lacks. Cold for the same reason as gm_request_fail(): next to
 * the backend's time, the cost does not matter. */
static __attribute__((cold)) void request_submit(struct gm_request *request)
{
	struct gm_device *device = request->waiting.device;
	gm_queue_note(device, request);
	gm_request_link(request);

	/* No creation completes before its submission returns, so the list stands still. */
	struct gm_chunk *chunk;
	DL_FOREACH (request->chunks, chunk)
		if (chunk->state == GM_CHUNK_CREATING)
			gm_device_create(device, chunk, request->payer->id);

	request_changed(request, device);
	gm_device_settle(device);
}

void gm_request_start(struct gm_request *request)
{
	if (request->calls->no_chunks)
		request_await_room(request);
	else if (request->missing == 0)
		request->calls->finish(request);
	else
		request_submit(request);
}

/* Whether the request may be granted now. If not, *ret says why. */
static bool request_fits(struct gm_device *device, const struct gm_request *request, uint64_t exact,
	struct gm_request_refusal *ret)
{
	const struct gm_account *account = request_account(request, device);
	if (!gm_device_admit_now(device, account, exact, ret))
		return false;
	if (!device->queue.holder || !gm_queue_head_bars(device, request->payer, exact, UINT64_MAX))
		return true;
	ret->block = GM_BLOCK_OVERTAKEN;
	return false;
}

gpumem_status gm_request_try(const struct gm_request *request, struct gm_device *device,
	struct gm_request_refusal *ret_refusal, char detail[GM_DETAIL_BYTES])
{
	struct gm_request_refusal never;
	uint64_t exact = gm_device_plan_exact(request->bytes);
	struct gm_device_plan plan;

	*ret_refusal = (struct gm_request_refusal){0};
	if (request_fits(device, request, exact, ret_refusal))
		return request_plan(request, device, &plan, detail);

	const struct gm_account_payer *payer = request->payer;
	if (!gm_device_admit_ever(device, &payer->accounts[device->number], exact, &never))
		*ret_refusal = never;
	return gm_device_admit_say(device, payer, exact, ret_refusal, detail);
}

/* Whether the daemon has too little of something. Otherwise the request is wrong, which is the client's affair. */
static bool request_is_short(gpumem_status status)
{
	return status == GPUMEM_E_LIMIT || status == GPUMEM_E_HOST_MEMORY ||
	       status == GPUMEM_E_SYSTEM;
}

gpumem_status gm_request_begin(
	struct gm_device *device, struct gm_request *request, char detail[GM_DETAIL_BYTES])
{
	uint64_t exact =
		request->calls->no_chunks ? request->bytes : gm_device_plan_exact(request->bytes);
	struct gm_request_refusal refusal = {0};
	request->waiting.device = device;
	if (!request_fits(device, request, exact, &refusal))
		return gm_queue_enter(device, request, exact, &refusal, detail);

	gpumem_status status = gm_request_admit(request, device, detail);
	if (status == GPUMEM_OK)
		gm_request_start(request);
	else if (request_is_short(status))
		gm_request_tell(device, request, status, detail);
	return status;
}
