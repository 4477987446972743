/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests for memory: may it, from what, and what if that fails. It promises that a request ends
 * exactly once, that it is charged before anything is made for it, and that what is not granted is
 * neither charged nor lost: what has not begun is called off, and chunks that no client has seen go
 * to the pool as they were. It must never wait: what has to be created is submitted, and
 * gm_request_created() goes on from there.
 *
 * A request that does not fit goes to the queue (queue.c), which comes back here when it does.
 */
#include "daemon/core/hash_table.h"
#include "daemon/core/session_private.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "common/units.h"
#include "daemon/core/plan.h"
#include "daemon/core/reserve.h"

struct request_sizes {
	char text[4][GM_UNITS_TEXT];
};

/* ---- the end of a request */

void gm_request_unlink(struct gm_request *request)
{
	struct gm_session *session = request->session;
	if (!request->prev)
		return;
	DL_DELETE(session->pending, request);
	request->prev = request->next = NULL;
	if (!request->lease)
		session->n_new--;
}

void gm_request_link(struct gm_request *request)
{
	struct gm_session *session = request->session;
	DL_APPEND(session->pending, request);
	if (!request->lease)
		session->n_new++;
}

/* Nothing is held for it any more; done() is still to be called. */
static void request_undo(struct gm_request *request)
{
	struct gm_session *session = request->session;
	struct gm_device *device = request->target->device;
	struct gm_chunk *chunk, *next;
	gm_request_unlink(request);
	DL_FOREACH_SAFE (request->chunks, chunk, next) {
		DL_DELETE(request->chunks, chunk);
		chunk->prev = chunk->next = NULL;
		chunk->request = NULL;
		if (chunk->state != GM_CHUNK_CREATING) {
			gm_device_release(
				device, chunk, gm_session_account(request->session, device), true);
		} else if (gm_device_call_off(device, chunk)) {
			gm_ledger_unadmit(&device->ledger,
				gm_session_account(request->session, device), chunk->bytes);
			gm_device_free_chunk(device, chunk);
		} else {
			gm_ledger_disown(&device->ledger,
				gm_session_account(request->session, device), chunk->bytes);
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
	if (status != GPUMEM_E_CANCELLED)
		request->session->core->counters.refusals++;
	request->done(request, status, detail);
}

/* Ends a request that waits or is admitted, without success. Cold, so that a pool hit does not pay
 * for what it never comes to. */
static __attribute__((cold)) void request_fail(
	struct gm_request *request, gpumem_status status, const char *detail)
{
	if (request->waiting.queued) {
		gm_queue_end(request, status, detail);
		return;
	}
	struct gm_device *device = request->target->device;
	request_undo(request);
	gm_request_refuse(request, status, detail);
	gm_reserve_refill(device);
}

static void request_finish(struct gm_request *request)
{
	struct gm_lease *lease = request->target;
	struct gm_device *device = lease->device;
	assert(request->missing == 0);
	if (!request->lease && gm_lease_begin(lease) < 0) {
		request_fail(request, GPUMEM_E_HOST_MEMORY,
			"the daemon has no memory for another lease");
		return;
	}
	gm_request_unlink(request);
	request->first_index = gm_lease_append(lease, request->chunks, request->bytes);
	request->chunks = NULL;
	request->target = NULL;
	request->lease = lease;
	gm_session_changed(request->session, device);
	gm_device_settle(device);
	/* From here on the caller may have freed the request, and ended the session. */
	request->done(request, GPUMEM_OK, NULL);
	gm_reserve_refill(device);
}

void gm_request_cancel_all(struct gm_session *session)
{
	while (session->pending)
		request_fail(session->pending, GPUMEM_E_CANCELLED, "the session went away");
}

void gm_request_cancel_grows(struct gm_session *session, struct gm_lease *lease)
{
	struct gm_request *request = session->pending;
	while (request) {
		if (request->lease == lease) {
			request_fail(request, GPUMEM_E_CANCELLED, "the lease was returned");
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
	const struct gm_env *env = device->env;
	char detail[GM_DETAIL_BYTES], trouble[GM_DETAIL_BYTES];
	struct request_sizes s;
	gm_format_size(chunk->bytes, s.text[0]);
	bool said = env->ops.trouble && env->ops.trouble(env->ctx, device->number, trouble);
	if (result == -EOPNOTSUPP)
		gm_say(detail,
			"device %u has no %s transport: its driver refused; ask for the other one, "
			"or set transport = auto in gpumemd.conf",
			device->number, chunk->transport == GM_TRANSPORT_IPC ? "ipc" : "fd");
	else if (result == -EDQUOT)
		gm_say(detail,
			"no ipc block can be made for uid %u that no old handle would open; ask for "
			"the fd transport, or restart gpumemd; see the daemon's log",
			(unsigned)chunk->uid);
	else if (result == -EMFILE || result == -ENFILE)
		gm_say(detail, "the daemon has no file descriptors left; raise its LimitNOFILE=");
	else
		gm_say(detail,
			"device %u could not make a chunk of %s: %.160s; see the daemon's log",
			device->number, s.text[0], said ? trouble : strerror(-result));
	gm_ledger_unadmit(
		&device->ledger, gm_session_account(request->session, device), chunk->bytes);
	gpumem_status status = GPUMEM_E_SYSTEM;
	if (result == -EOPNOTSUPP)
		status = GPUMEM_E_UNSUPPORTED;
	else if (result == -EDQUOT || result == -EMFILE || result == -ENFILE)
		status = GPUMEM_E_LIMIT;
	request_fail(request, status, detail);
}

/* The device has no memory for it, though it fits: what it has goes back, and it waits like one
 * that does not fit. */
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

void gm_request_created(struct gm_request *request, struct gm_chunk *chunk, int result)
{
	struct gm_device *device = request->target->device;
	if (result == 0) {
		gm_ledger_lease_created(&device->ledger,
			gm_session_account(request->session, device), chunk->bytes);
		chunk->state = GM_CHUNK_LEASED;
		assert(request->missing > 0);
		if (--request->missing == 0)
			request_finish(request);
		else
			gm_device_settle(device);
		return;
	}
	if (result == -ENOMEM && !chunk->retried) {
		/* Destructions go before creations, so what the pool had is free by then. */
		chunk->retried = true;
		gm_pool_clear(&device->pool);
		gm_reserve_back_off(device);
		gm_device_create(device, chunk, request->session->payer.id);
		gm_device_settle(device);
		return;
	}
	DL_DELETE(request->chunks, chunk);
	struct gm_chunk copy = *chunk;
	gm_device_free_chunk(device, chunk);
	if (result == -ENOMEM)
		request_put_back(request, copy.bytes);
	else
		request_refuse_backend(request, &copy, result);
}

/* ---- the beginning */

static gpumem_status request_check(
	const struct gm_env *env, const struct gm_request *request, char *detail)
{
	const struct gm_session *session = request->session;
	struct request_sizes s;
	if (env->stopping) {
		gm_say(detail, "the daemon is stopping");
		return GPUMEM_E_DISCONNECTED;
	}
	if (session->payer.ending || session->payer.quarantined) {
		gm_say(detail, "the session is not connected");
		return GPUMEM_E_DISCONNECTED;
	}
	if (request->bytes == 0 || request->bytes > GM_LEASE_BYTES_MAX) {
		gm_format_size(GM_LEASE_BYTES_MAX, s.text[0]);
		gm_say(detail, "asked %llu bytes; a request is for 1 byte to %s",
			(unsigned long long)request->bytes, s.text[0]);
		return GPUMEM_E_INVALID;
	}
	if (request->lease) {
		if (request->lease->maker != session) {
			gm_say(detail, "only the client that made a lease can grow it");
			return GPUMEM_E_DENIED;
		}
		if (request->lease->transport == GM_TRANSPORT_IPC) {
			gm_say(detail,
				"a lease on the ipc transport is one block and cannot grow; make "
				"another one");
			return GPUMEM_E_UNSUPPORTED;
		}
		return GPUMEM_OK;
	}
	gpumem_status status = gm_device_check_number(env, request->device, detail);
	if (status != GPUMEM_OK)
		return status;
	if (request->tag && strnlen(request->tag, GM_LIMIT_NAME_BYTES + 1) > GM_LIMIT_NAME_BYTES) {
		gm_say(detail, "the tag is longer than %d bytes", GM_LIMIT_NAME_BYTES);
		return GPUMEM_E_INVALID;
	}
	if (gm_session_full(session)) {
		gm_say(detail,
			"this client has %d leases, which is the most; return some, or grow one",
			GM_LIMIT_LEASES_PER_CLIENT);
		return GPUMEM_E_LIMIT;
	}
	return GPUMEM_OK;
}

static gpumem_status request_pick_transport(const struct gm_device *device, enum gm_transport asked,
	enum gm_transport *ret_transport, char *detail)
{
	const struct gm_core_device_info *info = &device->info;
	switch (asked) {
	case GM_TRANSPORT_AUTO:
		if (info->transport_fd || info->transport_ipc) {
			*ret_transport = info->transport_fd ? GM_TRANSPORT_FD : GM_TRANSPORT_IPC;
			return GPUMEM_OK;
		}
		break;
	case GM_TRANSPORT_FD:
		if (info->transport_fd) {
			*ret_transport = asked;
			return GPUMEM_OK;
		}
		break;
	case GM_TRANSPORT_IPC:
		if (info->transport_ipc) {
			*ret_transport = asked;
			return GPUMEM_OK;
		}
		break;
	default:
		gm_say(detail, "there is no transport %d", (int)asked);
		return GPUMEM_E_INVALID;
	}
	gm_say(detail, "device %u has no %s transport; ask for auto", device->number,
		asked == GM_TRANSPORT_IPC ? "ipc" : "fd");
	return GPUMEM_E_UNSUPPORTED;
}

/* Chunk structs for all that the plan creates, before anything is charged. */
static int request_make_chunks(struct gm_device *device, enum gm_transport transport,
	const struct gm_session *session, const struct gm_plan *plan, struct gm_chunk **ret_chunks)
{
	struct gm_chunk *chunks = NULL, *chunk, *next;
	for (unsigned c = plan->classes; c-- > 0;) {
		for (uint32_t i = 0; i < plan->created[c]; i++) {
			chunk = gm_device_new_chunk(device, transport, plan->size[c]);
			if (!chunk)
				goto fail;
			if (transport == GM_TRANSPORT_IPC) {
				chunk->domain = session->info.domain;
				chunk->uid = session->info.uid;
				chunk->single = !session->info.pooling;
			}
			DL_APPEND(chunks, chunk);
		}
	}
	*ret_chunks = chunks;
	return 0;
fail:
	DL_FOREACH_SAFE (chunks, chunk, next) {
		DL_DELETE(chunks, chunk);
		gm_device_free_chunk(device, chunk);
	}
	return -ENOMEM;
}

/* What the plan takes from the pool and what it creates, largest first; charged already. */
static void request_gather(struct gm_request *request, struct gm_device *device,
	enum gm_transport transport, const struct gm_plan *plan, struct gm_chunk *created)
{
	for (unsigned c = plan->classes; c-- > 0;) {
		for (uint32_t i = 0; i < plan->pooled[c]; i++) {
			struct gm_chunk *chunk = gm_pool_take(&device->pool, transport,
				plan->size[c], request->session->info.domain);
			assert(chunk);
			if (chunk->domain == GM_DOMAIN_FRESH)
				device->reserve.short_of = true;
			chunk->state = GM_CHUNK_LEASED;
			gm_ledger_lease_pooled(&device->ledger,
				gm_session_account(request->session, device), chunk->bytes);
			DL_APPEND(request->chunks, chunk);
		}
		for (uint32_t i = 0; i < plan->created[c]; i++) {
			struct gm_chunk *chunk = created;
			DL_DELETE(created, chunk);
			chunk->request = request;
			DL_APPEND(request->chunks, chunk);
		}
	}
	device->pool.misses += plan->n_created;
	request->missing = plan->n_created;
}

gpumem_status gm_request_admit(
	struct gm_request *request, struct gm_device *device, char detail[GM_DETAIL_BYTES])
{
	struct gm_session *session = request->session;
	enum gm_transport transport = GM_TRANSPORT_FD;
	gpumem_status status = GPUMEM_OK;
	if (!request->lease)
		status = request_pick_transport(device, request->transport, &transport, detail);
	if (status != GPUMEM_OK)
		return status;

	struct gm_plan plan;
	uint64_t ceiling = gm_device_ceiling(device);
	struct gm_account *account = gm_session_account(session, device);
	uint64_t room = gm_ledger_room(&device->ledger, account, ceiling);
	int r = gm_plan_make(
		&device->pool, transport, session->info.domain, request->bytes, room, &plan);
	assert(r == 0); /* gm_admit_now() said that it fits */
	/* Of the chunks there are, those pooled and not used here can go. */
	if (device->chunks - (device->pool.chunks - plan.n_pooled) + plan.n_created >
		GM_LIMIT_CHUNKS_PER_DEVICE) {
		gm_say(detail,
			"device %u has %llu chunks in use, of %d at most; return some, or ask for "
			"larger leases",
			device->number, (unsigned long long)(device->chunks - device->pool.chunks),
			GM_LIMIT_CHUNKS_PER_DEVICE);
		return GPUMEM_E_LIMIT;
	}

	struct gm_lease *target = request->lease;
	struct gm_chunk *created = NULL;
	if (!target)
		target = gm_lease_new(session, device, transport, request->tag);
	if (!target || request_make_chunks(device, transport, session, &plan, &created) < 0) {
		if (!request->lease)
			gm_lease_free(target);
		gm_say(detail, "the daemon has no memory for another lease");
		return GPUMEM_E_HOST_MEMORY;
	}
	request->target = target;
	request->charged = plan.bytes;
	r = gm_ledger_admit(&device->ledger, account, ceiling, plan.bytes);
	assert(r == 0); /* the plan was made for what there is room for */
	(void)r;
	request_gather(request, device, transport, &plan, created);
	gm_device_make_room(device, session->info.domain);
	if (device->queue.length > 0)
		gm_queue_overtake(device, account, request->waiting.order);
	return GPUMEM_OK;
}

/* What is missing is made. Cold for the same reason: here the backend's time counts. */
static __attribute__((cold)) void request_submit(struct gm_request *request)
{
	struct gm_session *session = request->session;
	struct gm_device *device = request->target->device;
	gm_queue_note(device, request);
	gm_request_link(request);
	/* Nothing completes before a submission returns, so the list stands still. */
	struct gm_chunk *chunk;
	DL_FOREACH (request->chunks, chunk)
		if (chunk->state == GM_CHUNK_CREATING)
			gm_device_create(device, chunk, session->payer.id);
	gm_session_changed(session, device);
	gm_device_settle(device);
}

void gm_request_start(struct gm_request *request)
{
	if (request->missing == 0)
		request_finish(request);
	else
		request_submit(request);
}

/* Grants it, queues it or refuses it. */
static gpumem_status request_take(struct gm_env *env, struct gm_request *request, char *detail)
{
	gpumem_status status = request_check(env, request, detail);
	if (status != GPUMEM_OK)
		return status;

	struct gm_device *device =
		request->lease ? request->lease->device : &env->devices[request->device];
	const struct gm_account *account = gm_session_account(request->session, device);
	uint64_t exact = gm_plan_exact(request->bytes);
	struct gm_refusal refusal = {0};
	bool fits = gm_admit_now(device, account, exact, &refusal);
	if (fits && device->queue.exhausted > 0 && gm_queue_bars(device, account, UINT64_MAX)) {
		refusal.block = GM_BLOCK_TURN;
		fits = false;
	}
	if (fits) {
		status = gm_request_admit(request, device, detail);
		if (status == GPUMEM_OK)
			gm_request_start(request);
		return status;
	}

	/* Asked for in a way that is not to be had here: no reason to wait. */
	enum gm_transport transport;
	if (!request->lease)
		status = request_pick_transport(device, request->transport, &transport, detail);
	if (status == GPUMEM_OK)
		status = gm_queue_enter(device, request, exact, &refusal, detail);
	return status;
}

void gm_request_begin(struct gm_core *core, struct gm_request *request)
{
	char detail[GM_DETAIL_BYTES] = "";
	request->first_index = 0;
	request->charged = 0;
	request->missing = 0;
	request->target = NULL;
	request->chunks = NULL;
	request->prev = request->next = NULL;
	request->waiting.queued = false;
	request->waiting.order = UINT64_MAX;
	core->counters.requests++;

	gpumem_status status = request_take(&core->env, request, detail);
	if (status != GPUMEM_OK)
		gm_request_refuse(request, status, detail);
}

void gm_request_cancel(struct gm_request *request)
{
	request_fail(request, GPUMEM_E_CANCELLED, "the request was cancelled");
}
