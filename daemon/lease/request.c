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
#include "daemon/lease/session_private.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "common/arith.h"
#include "common/step.h"
#include "common/text/units.h"
#include "daemon/books/fds.h"
#include "daemon/device/plan.h"
#include "daemon/device/reserve.h"
#include "daemon/queue/turn.h"

/* ---- the end of a request */

void gm_request_unlink(struct gm_request *request)
{
	struct gm_session *session = request->session;
	if (!request->prev)
		return;
	DL_DELETE(session->pending, request);
	request->prev = request->next = NULL;
	if (!request->lease && !request->declares)
		session->n_new--;
}

void gm_request_link(struct gm_request *request)
{
	struct gm_session *session = request->session;
	DL_APPEND(session->pending, request);
	if (!request->lease && !request->declares)
		session->n_new++;
}

/* Gives back all that is held for the request. The caller must still see to done(). */
static void request_undo(struct gm_request *request)
{
	struct gm_session *session = request->session;
	struct gm_device *device = request->target->device;
	struct gm_account *account = gm_session_account(session, device);
	struct gm_chunk *chunk, *next;
	gm_request_unlink(request);
	if (request->signals)
		gm_word_stop_waiting(device->env, request);

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
		}
	}

	if (!request->lease)
		gm_lease_free(request->target);
	request->target = NULL;
	gm_session_changed(session, device);
	gm_device_settle(device);
}

void gm_request_refuse(struct gm_request *request, gpumem_status status, const char *detail)
{
	if (status != GPUMEM_E_CANCELLED && !request->again) {
		request->session->core->counters.refusals++;
		request->session->n_refused++;
	}
	request->done(request, status, detail);
}

/* It is marked cold so that a pool hit,
 * which never comes here, does not pay for it. */
__attribute__((cold)) void gm_request_fail(
	struct gm_request *request, gpumem_status status, const char *detail)
{
	if (request->waiting.queued) {
		gm_queue_end(request, status, detail);
		return;
	}
	struct gm_device *device = request->declares
					   ? &request->session->core->env.devices[request->device]
					   : request->target->device;
	if (status != GPUMEM_E_CANCELLED)
		gm_request_tell(device, request, status, detail);
	if (request->declares) {
		gm_declare_fail(request, status, detail);
		return;
	}

	request_undo(request);
	gm_request_refuse(request, status, detail);
	gm_reserve_refill(device);
}

/* Whether a resize can still be done. */
static bool request_may_resize(const struct gm_request *request)
{
	const struct gm_lease *lease = request->target;
	uint64_t bytes = lease->bytes;
	const struct gm_chunk *chunk;

	DL_FOREACH (request->chunks, chunk)
		bytes += chunk->bytes;
	return gm_lease_is_alone(lease, request->session) && request->user_bytes <= bytes;
}

static void request_finish(struct gm_request *request)
{
	struct gm_lease *lease = request->target;
	struct gm_device *device = lease->device;
	/* user_bytes is a sum, so it may as well become smaller. */
	uint64_t more =
		request->user_bytes ? request->user_bytes - lease->user_bytes : request->bytes;
	assert(request->missing == 0);
	GM_STEP("grant: every chunk is there");
	/* Since it was asked for, chunks may have gone back, or somebody may have got a token. */
	if (request->user_bytes && !request_may_resize(request)) {
		gm_request_fail(request, GPUMEM_E_BUSY,
			"the buffer was shared, or a part of it was returned, while it grew");
		return;
	}
	if (gm_commit_grant(lease, request->chunks, request->id, more) < 0) {
		gm_request_fail(request, GPUMEM_E_HOST_MEMORY,
			"the daemon's ledger has no room for another lease; return some");
		return;
	}
	if (!request->lease && gm_lease_begin(lease) < 0) {
		gm_commit_undo(lease, request->chunks);
		gm_request_fail(request, GPUMEM_E_HOST_MEMORY,
			"the daemon has no memory for another lease");
		return;
	}

	gm_request_unlink(request);
	lease->size_before = request->user_bytes ? lease->user_bytes : 0;
	request->first_index = gm_lease_append(lease, request->chunks, more);
	request->chunks = NULL;
	request->target = NULL;
	request->lease = lease;
	gm_session_changed(request->session, device);
	gm_device_settle(device);

	/* done() may free the request: do not use it from here on. */
	request->done(request, GPUMEM_OK, NULL);
	gm_reserve_refill(device);
}

void gm_request_cancel_all(struct gm_session *session)
{
	while (session->pending)
		gm_request_fail(session->pending, GPUMEM_E_CANCELLED, "the session went away");
}

void gm_request_cancel_grows(struct gm_session *session, struct gm_lease *lease)
{
	struct gm_request *request = session->pending;
	while (request) {
		if (request->lease == lease) {
			gm_request_fail(request, GPUMEM_E_CANCELLED, "the lease was returned");
			/* done() may have changed the list. */
			request = session->pending;
		} else {
			request = request->next;
		}
	}
}

/* ---- creations */

static void request_refuse_backend(
	struct gm_request *request, const struct gm_chunk *chunk, int result)
{
	struct gm_device *device = request->target->device;
	char detail[GM_DETAIL_BYTES];
	gpumem_status status = gm_request_say_backend(device, chunk, result, detail);

	gm_ledger_unadmit(
		&device->ledger, gm_session_account(request->session, device), chunk->bytes);
	gm_request_fail(request, status, detail);
}

/* The request fits, but the device has no memory for it. It gives back what it has, and waits like
 * a request that does not fit. */
static void request_put_back(struct gm_request *request, uint64_t bytes)
{
	struct gm_device *device = request->target->device;
	uint64_t doomed = device->ledger.doomed, lacking = bytes;
	const struct gm_chunk *chunk;
	DL_FOREACH (request->chunks, chunk)
		if (chunk->state == GM_CHUNK_CREATING)
			lacking += chunk->bytes;

	gm_ledger_unadmit(&device->ledger, gm_session_account(request->session, device), bytes);
	request_undo(request);
	request->charged = 0;
	request->missing = 0;
	gm_queue_deny(device, request, lacking, device->ledger.doomed - doomed);
}

void gm_request_go_on(struct gm_request *request)
{
	assert(request->missing > 0);
	if (--request->missing == 0)
		request_finish(request);
	else
		gm_device_settle(request->target->device);
}

void gm_request_created(struct gm_request *request, struct gm_chunk *chunk, int result)
{
	struct gm_device *device = request->target->device;
	if (result == 0) {
		gm_ledger_lease_created(&device->ledger,
			gm_session_account(request->session, device), chunk->bytes);
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
		gm_device_create(device, chunk, request->session->payer.id);
		gm_device_settle(device);
		return;
	}

	if ((result == -EMFILE || result == -ENFILE || result == -EXFULL) &&
		gm_device_create_again(device, chunk))
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

gpumem_status gm_request_check_bytes(uint64_t bytes, char detail[GM_DETAIL_BYTES])
{
	char size[GM_UNITS_TEXT], asked[GM_UNITS_TEXT];
	if (bytes > 0 && bytes <= GM_LEASE_BYTES_MAX)
		return GPUMEM_OK;
	return gm_refuse(GPUMEM_E_INVALID, detail, "asked for %s; a request is for 1 byte to %s",
		bytes ? gm_format_size(bytes, asked) : "0 bytes",
		gm_format_size(GM_LEASE_BYTES_MAX, size));
}

/* Says why a device lacks a transport, and what to do about it. */
static __attribute__((cold)) gpumem_status request_say_transport(const struct gm_device *device,
	enum gm_transport asked, enum gm_transport picked, char *detail)
{
	const struct gm_core_device_info *info = &device->info;
	bool ipc = picked == GM_TRANSPORT_IPC;
	const char *why = ipc ? info->ipc_why : info->fd_why;
	const char *remedy = ipc ? "ask for fd or auto" : "ask for ipc or auto";

	/* A client's heap names the transport that the daemon told it to use. */
	if (asked == GM_TRANSPORT_AUTO || info->policy.transport == picked)
		remedy = "gpumemd.conf asks for it: set transport = auto";
	if (!info->transport_fd && !info->transport_ipc)
		remedy = "it cannot share memory at all; see gpumemctl doctor";
	return gm_refuse(GPUMEM_E_UNSUPPORTED, detail, "device %u has no %s transport%s%s; %s",
		device->number, ipc ? "ipc" : "fd", why && *why ? ": " : "", why ? why : "",
		remedy);
}

gpumem_status gm_request_pick_transport(const struct gm_device *device, enum gm_transport asked,
	enum gm_transport *ret_transport, char detail[GM_DETAIL_BYTES])
{
	const struct gm_core_device_info *info = &device->info;
	enum gm_transport picked = gm_policy_transport(&info->policy, asked, info->transport_fd);
	if (picked != GM_TRANSPORT_FD && picked != GM_TRANSPORT_IPC)
		return gm_refuse(GPUMEM_E_INVALID, detail,
			"there is no transport %d; ask for auto, fd or ipc", (int)asked);
	if (!(picked == GM_TRANSPORT_FD ? info->transport_fd : info->transport_ipc))
		return request_say_transport(device, asked, picked, detail);
	*ret_transport = picked;
	return GPUMEM_OK;
}

static gpumem_status request_check_grow(const struct gm_request *request, char *detail)
{
	const struct gm_session *session = request->session;
	const struct gm_lease *lease = request->lease;
	if (lease->maker != session)
		return gm_refuse(
			GPUMEM_E_DENIED, detail, "only the client that made a lease can grow it");
	if (lease->name)
		return gm_refuse(GPUMEM_E_BUSY, detail,
			"the buffer is published as %s, so it stays as it is: unpublish "
			"it first",
			lease->name->text);
	if (lease->transport == GM_TRANSPORT_IPC)
		return gm_refuse(GPUMEM_E_UNSUPPORTED, detail,
			"a lease on the ipc transport is one block and cannot grow; make "
			"another one");
	if (lease->origin)
		return gm_refuse(GPUMEM_E_UNSUPPORTED, detail,
			"a chunk that was shared by itself is a lease that cannot grow; "
			"make another one");
	if (request->user_bytes && !gm_lease_is_alone(lease, session))
		return gm_refuse(GPUMEM_E_BUSY, detail, GM_LEASE_NOT_ALONE);
	if (request->user_bytes > lease->bytes + request->bytes)
		return gm_refuse(GPUMEM_E_INVALID, detail,
			"a lease that grows to %llu bytes cannot have a size of %llu",
			(unsigned long long)(lease->bytes + request->bytes),
			(unsigned long long)request->user_bytes);
	return GPUMEM_OK;
}

/* Checks a request for a single chunk that the client maps itself. */
static gpumem_status request_check_one(
	const struct gm_device *device, const struct gm_request *request, char *detail)
{
	const struct gm_core_device_info *info = &device->info;
	if (request->bytes % GM_CHUNK_MIN)
		return gm_refuse(GPUMEM_E_INVALID, detail,
			"asked for one chunk of %llu bytes; that must be whole 2 MiB",
			(unsigned long long)request->bytes);
	if (!info->transport_fd && request->transport != GM_TRANSPORT_IPC)
		return gm_refuse(GPUMEM_E_UNSUPPORTED, detail,
			"device %u has no fd transport, which a chunk that the client maps itself "
			"needs",
			device->number);
	if (gm_policy_transport(&info->policy, request->transport, true) != GM_TRANSPORT_FD)
		return gm_refuse(GPUMEM_E_UNSUPPORTED, detail,
			"a chunk that the client maps itself needs the fd transport; ask for fd");
	return GPUMEM_OK;
}

/* Checks what the client asks for, and chooses the transport of a new lease. */
static gpumem_status request_check(
	const struct gm_env *env, struct gm_request *request, char *detail)
{
	const struct gm_session *session = request->session;
	if (env->stopping)
		return gm_refuse(GPUMEM_E_DISCONNECTED, detail, "the daemon is stopping");
	if (session->payer.ending || session->payer.quarantined)
		return gm_refuse(GPUMEM_E_DISCONNECTED, detail, "the session is not connected");
	gpumem_status status = gm_request_check_bytes(request->bytes, detail);
	if (status != GPUMEM_OK)
		return status;
	if (request->lease)
		return request_check_grow(request, detail);

	status = gm_device_check_number(env, request->device, detail);
	if (status != GPUMEM_OK || request->declares)
		return status;
	const struct gm_device *device = &env->devices[request->device];
	if (request->tag && !gm_name_ok(request->tag))
		return gm_refuse(GPUMEM_E_INVALID, detail,
			"a tag must be printable UTF-8 of at most %d bytes", GM_LIMIT_NAME_BYTES);
	if (request->one_chunk)
		status = request_check_one(device, request, detail);
	if (status == GPUMEM_OK)
		status = gm_request_pick_transport(
			device, request->transport, &request->transport, detail);
	if (status != GPUMEM_OK)
		return status;
	if (request->signals && request->transport != GM_TRANSPORT_FD)
		return gm_refuse(GPUMEM_E_UNSUPPORTED, detail,
			"signals need the fd transport; ask for fd, or for no signals");
	return gm_session_full(session, detail) ? GPUMEM_E_LIMIT : GPUMEM_OK;
}

/* Returns the transport of the request's chunks. Only leases on the fd transport grow. */
static enum gm_transport request_transport(const struct gm_request *request)
{
	return request->lease ? GM_TRANSPORT_FD : request->transport;
}

/* Whose used chunks the request may have. Memory that others will see must not have old data. */
static gm_domain request_domain(const struct gm_request *request)
{
	bool for_others = request->lease ? request->lease->for_others : request->for_others;
	return for_others ? GM_DOMAIN_FRESH : request->session->info.domain;
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
static int request_make_chunks(struct gm_device *device, enum gm_transport transport,
	const struct gm_request *request, const struct gm_plan *plan, struct gm_chunk **ret_chunks)
{
	const struct gm_session *session = request->session;
	struct gm_chunk *chunks = NULL, *chunk;
	for (unsigned c = plan->classes; c-- > 0;) {
		for (uint32_t i = 0; i < plan->created[c]; i++) {
			chunk = gm_device_new_chunk(device, transport, plan->size[c]);
			if (!chunk)
				goto fail;
			chunk->payer_uid = session->payer.payer_uid;
			chunk->single = request->one_chunk;
			if (transport == GM_TRANSPORT_IPC) {
				chunk->domain = session->info.domain;
				chunk->single = !session->info.pooling;
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
	enum gm_transport transport, const struct gm_plan *plan, struct gm_chunk *created)
{
	struct gm_account *account = gm_session_account(request->session, device);
	for (unsigned c = plan->classes; c-- > 0;) {
		for (uint32_t i = 0; i < plan->pooled[c]; i++) {
			struct gm_chunk *chunk = gm_pool_take(
				&device->pool, transport, plan->size[c], request_domain(request));
			assert(chunk);
			if (chunk->domain == GM_DOMAIN_FRESH)
				device->reserve.short_of = true;
			chunk->state = GM_CHUNK_LEASED;
			gm_ledger_lease_pooled(&device->ledger, account, chunk->bytes);
			gm_fds_move(device->env, chunk, GM_FDS_HELD, request->session->fds);
			DL_APPEND(request->chunks, chunk);
		}
		for (uint32_t i = 0; i < plan->created[c]; i++) {
			struct gm_chunk *chunk = created;
			DL_DELETE(created, chunk);
			chunk->request = request;
			gm_fds_move(device->env, chunk, GM_FDS_HELD, request->session->fds);
			DL_APPEND(request->chunks, chunk);
		}
	}
	device->pool.misses += plan->n_created;
	request->missing = plan->n_created;
}

/* Chooses the chunks of a request that fits. Its transport is chosen. */
static gpumem_status request_plan(const struct gm_request *request, struct gm_device *device,
	struct gm_plan *ret_plan, char detail[GM_DETAIL_BYTES])
{
	struct gm_session *session = request->session;
	enum gm_transport transport = request_transport(request);
	uint64_t ceiling = gm_device_ceiling(device);
	struct gm_account *account = gm_session_account(session, device);
	uint64_t room = gm_ledger_room(&device->ledger, account, ceiling);
	if (request->one_chunk) {
		gm_plan_one(request->bytes, ret_plan);
	} else {
		int r = gm_plan_make(&device->pool, transport, request_domain(request),
			request->bytes, room, ret_plan);
		assert(r == 0); /* gm_admit_now() said that it fits */
		(void)r;
	}

	uint64_t own = session->fds->held;
	uint64_t fds = ret_plan->n_pooled + ret_plan->n_created + request->signals;
	if (transport == GM_TRANSPORT_FD && !gm_fd_budget_allows_chunks(device->env->fds, own, fds))
		return gm_request_say_fds(session, fds, detail);
	return GPUMEM_OK;
}

gpumem_status gm_request_admit(
	struct gm_request *request, struct gm_device *device, char detail[GM_DETAIL_BYTES])
{
	struct gm_session *session = request->session;
	struct gm_account *account = gm_session_account(session, device);
	enum gm_transport transport = request_transport(request);
	struct gm_plan plan;
	if (request->declares) {
		gm_declare_admit(request, device);
		return GPUMEM_OK;
	}
	gpumem_status status = request_plan(request, device, &plan, detail);
	if (status != GPUMEM_OK)
		return status;

	struct gm_lease *target = request->lease;
	struct gm_chunk *created = NULL;
	bool waits = false;
	if (!target)
		target = gm_lease_new(session->core, 0, session, session->estate, device, transport,
			request->tag);
	if (!target || request_make_chunks(device, transport, request, &plan, &created) < 0) {
		if (!request->lease)
			gm_lease_free(target);
		return gm_refuse(
			GPUMEM_E_HOST_MEMORY, detail, "the daemon has no memory for another lease");
	}

	if (!request->lease) {
		target->for_others = request->for_others;
		target->signals = request->signals;
	}
	if (request->signals) {
		status = gm_word_make(target, request, &waits, detail);
		if (status != GPUMEM_OK) {
			request_free_chunks(device, created);
			gm_lease_free(target);
			return status;
		}
	}
	request->target = target;
	request->charged = plan.bytes;
	int r = gm_ledger_admit(&device->ledger, account, gm_device_ceiling(device), plan.bytes);
	assert(r == 0); /* the plan was made for what there is room for */
	(void)r;

	request_gather(request, device, transport, &plan, created);
	request->missing += waits;
	gm_device_make_room(device, session->info.domain);
	if (gm_fd_budget_short(device->env->fds))
		gm_device_settle_fds(device->env, false);
	if (device->queue.length > 0)
		gm_turn_overtake(device, account, request->waiting.order);
	return GPUMEM_OK;
}

/* Submits the creations that a request lacks. Cold for the same reason as gm_request_fail(): next to
 * the backend's time, the cost does not matter. */
static __attribute__((cold)) void request_submit(struct gm_request *request)
{
	struct gm_session *session = request->session;
	struct gm_device *device = request->target->device;
	gm_queue_note(device, request);
	gm_request_link(request);

	/* No creation completes before its submission returns, so the list stands still. */
	struct gm_chunk *chunk;
	DL_FOREACH (request->chunks, chunk)
		if (chunk->state == GM_CHUNK_CREATING)
			gm_device_create(device, chunk, session->payer.id);

	gm_session_changed(session, device);
	gm_device_settle(device);
}

void gm_request_start(struct gm_request *request)
{
	if (request->declares)
		gm_declare_start(request);
	else if (request->missing == 0)
		request_finish(request);
	else
		request_submit(request);
}

/* Whether the request may be granted now. If not, *ret says why. */
static bool request_fits(struct gm_device *device, const struct gm_request *request, uint64_t exact,
	struct gm_refusal *ret)
{
	const struct gm_account *account = gm_session_account(request->session, device);
	if (!gm_admit_now(device, account, exact, ret))
		return false;
	if (!device->queue.holder ||
		!gm_turn_bars(device, &request->session->payer, exact, UINT64_MAX))
		return true;
	ret->block = GM_BLOCK_TURN;
	return false;
}

gpumem_status gm_request_foresee(const struct gm_request *request, struct gm_device *device,
	struct gm_refusal *ret_refusal, char detail[GM_DETAIL_BYTES])
{
	struct gm_refusal never;
	uint64_t exact = gm_plan_exact(request->bytes);
	struct gm_plan plan;

	*ret_refusal = (struct gm_refusal){0};
	if (request_fits(device, request, exact, ret_refusal))
		return request_plan(request, device, &plan, detail);

	const struct gm_payer *payer = &request->session->payer;
	if (!gm_admit_ever(device, &payer->accounts[device->number], exact, &never))
		*ret_refusal = never;
	return gm_admit_say(device, payer, exact, ret_refusal, detail);
}

/* Whether the daemon has too little of something. Otherwise the request is wrong, which is the client's affair. */
static bool request_is_short(gpumem_status status)
{
	return status == GPUMEM_E_LIMIT || status == GPUMEM_E_HOST_MEMORY ||
	       status == GPUMEM_E_SYSTEM;
}

/* Grants the request or queues it. Any other status than GPUMEM_OK: it must be refused. */
static gpumem_status request_take(struct gm_env *env, struct gm_request *request, char *detail)
{
	gpumem_status status = request_check(env, request, detail);
	if (status != GPUMEM_OK) {
		if (request_is_short(status))
			gm_request_tell(&env->devices[request->device], request, status, detail);
		return status;
	}

	struct gm_device *device =
		request->lease ? request->lease->device : &env->devices[request->device];
	uint64_t exact = request->declares ? request->bytes : gm_plan_exact(request->bytes);
	struct gm_refusal refusal = {0};
	bool fits = request_fits(device, request, exact, &refusal);
	if (fits) {
		status = gm_request_admit(request, device, detail);
		if (status == GPUMEM_OK)
			gm_request_start(request);
		else if (request_is_short(status))
			gm_request_tell(device, request, status, detail);
		return status;
	}

	return gm_queue_enter(device, request, exact, &refusal, detail);
}

void gm_request_begin(struct gm_core *core, struct gm_request *request)
{
	char detail[GM_DETAIL_BYTES];
	detail[0] = '\0'; /* an initializer would clear all of it, for every pool hit */
	request->first_index = 0;
	request->charged = 0;
	request->missing = 0;
	request->target = NULL;
	request->chunks = NULL;
	request->prev = request->next = NULL;
	request->waiting.queued = false;
	request->waiting.order = UINT64_MAX;
	core->counters.requests += !request->again;

	gpumem_status status = request_take(&core->env, request, detail);
	if (status != GPUMEM_OK)
		gm_request_refuse(request, status, detail);
}

void gm_request_cancel(struct gm_request *request)
{
	gm_request_fail(request, GPUMEM_E_CANCELLED, "the client took the request back");
}
