/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request for memory is for: a new lease, or more of one. The queue (daemon/queue) brings the chunks. This
 * file promises that a request is checked before the queue sees it, and that its chunks are recorded before the
 * client hears of them. It must never decide who gets memory.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/lease_private.h"
#include "daemon/lease/declare_private.h"
#include "daemon/lease/control_block.h"
#include "daemon/lease/commit.h"
#include "daemon/lease/request_private.h"

#include <assert.h>
#include <string.h>

#include "common/arith.h"
#include "common/step.h"
#include "common/text/units.h"
#include "daemon/device/reserve.h"
#include "daemon/queue/queue.h"

/* ---- the end of a request */

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

/* ---- a new lease */

/* Makes the lease that the chunks go to. */
static gpumem_status request_prepare(struct gm_request *request, struct gm_device *device,
	bool *ret_waits, char detail[GM_DETAIL_BYTES])
{
	struct gm_session *session = request->session;
	struct gm_lease *target = gm_lease_new(session->core, 0, session, session->orphan, device,
		request->transport, request->tag);
	if (!target)
		return gm_text_refuse(
			GPUMEM_E_HOST_MEMORY, detail, "the daemon has no memory for another lease");

	target->for_others = request->for_others;
	target->signals = request->signals;
	if (request->signals) {
		gpumem_status status = gm_control_block_make(target, request, ret_waits, detail);
		if (status != GPUMEM_OK) {
			gm_lease_free(target);
			return status;
		}
	}
	request->target = target;
	return GPUMEM_OK;
}

static void request_drop_target(struct gm_request *request)
{
	if (request->signals)
		gm_control_block_stop_waiting(request->target->device->env, request);
	gm_lease_free(request->target);
	request->target = NULL;
}

static const struct gm_request_calls request_calls_new = {
	.makes = true,
	.prepare = request_prepare,
	.finish = request_finish,
	.undo = request_drop_target,
	.refuse = gm_session_refuse,
};
static const struct gm_request_calls request_calls_grow = {
	.finish = request_finish,
	.refuse = gm_session_refuse,
};
/* ---- the beginning */

gpumem_status gm_request_check_bytes(uint64_t bytes, char detail[GM_DETAIL_BYTES])
{
	char size[GM_UNITS_TEXT], asked[GM_UNITS_TEXT];
	if (bytes > 0 && bytes <= GM_LEASE_BYTES_MAX)
		return GPUMEM_OK;
	return gm_text_refuse(GPUMEM_E_INVALID, detail,
		"asked for %s; a request is for 1 byte to %s",
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
	return gm_text_refuse(GPUMEM_E_UNSUPPORTED, detail, "device %u has no %s transport%s%s; %s",
		device->number, ipc ? "ipc" : "fd", why && *why ? ": " : "", why ? why : "",
		remedy);
}

gpumem_status gm_request_pick_transport(const struct gm_device *device, enum gm_transport asked,
	enum gm_transport *ret_transport, char detail[GM_DETAIL_BYTES])
{
	const struct gm_core_device_info *info = &device->info;
	enum gm_transport picked = gm_policy_transport(&info->policy, asked, info->transport_fd);
	if (picked != GM_TRANSPORT_FD && picked != GM_TRANSPORT_IPC)
		return gm_text_refuse(GPUMEM_E_INVALID, detail,
			"there is no transport %d; ask for auto, fd or ipc", (int)asked);
	if (!(picked == GM_TRANSPORT_FD ? info->transport_fd : info->transport_ipc))
		return request_say_transport(device, asked, picked, detail);
	*ret_transport = picked;
	return GPUMEM_OK;
}

static gpumem_status request_check_grow(struct gm_request *request, char *detail)
{
	const struct gm_session *session = request->session;
	const struct gm_lease *lease = request->lease;
	request->device = lease->device->number;
	if (lease->maker != session)
		return gm_text_refuse(
			GPUMEM_E_DENIED, detail, "only the client that made a lease can grow it");
	if (lease->name)
		return gm_text_refuse(GPUMEM_E_BUSY, detail,
			"the buffer is published as %s, so it stays as it is: unpublish "
			"it first",
			lease->name->text);
	if (lease->transport == GM_TRANSPORT_IPC)
		return gm_text_refuse(GPUMEM_E_UNSUPPORTED, detail,
			"a lease on the ipc transport is one block and cannot grow; make "
			"another one");
	if (lease->origin)
		return gm_text_refuse(GPUMEM_E_UNSUPPORTED, detail,
			"a chunk that was shared by itself is a lease that cannot grow; "
			"make another one");
	if (request->user_bytes && !gm_lease_is_alone(lease, session))
		return gm_text_refuse(GPUMEM_E_BUSY, detail, GM_LEASE_NOT_ALONE);
	if (request->user_bytes > lease->bytes + request->bytes)
		return gm_text_refuse(GPUMEM_E_INVALID, detail,
			"a lease that grows to %llu bytes cannot have a size of %llu",
			(unsigned long long)(lease->bytes + request->bytes),
			(unsigned long long)request->user_bytes);
	request->transport = GM_TRANSPORT_FD;
	return GPUMEM_OK;
}

/* Checks a request for a single chunk that the client maps itself. */
static gpumem_status request_check_one(
	const struct gm_device *device, const struct gm_request *request, char *detail)
{
	const struct gm_core_device_info *info = &device->info;
	if (request->bytes % GM_CHUNK_MIN)
		return gm_text_refuse(GPUMEM_E_INVALID, detail,
			"asked for one chunk of %llu bytes; that must be whole 2 MiB",
			(unsigned long long)request->bytes);
	if (!info->transport_fd && request->transport != GM_TRANSPORT_IPC)
		return gm_text_refuse(GPUMEM_E_UNSUPPORTED, detail,
			"device %u has no fd transport, which a chunk that the client maps itself "
			"needs",
			device->number);
	if (gm_policy_transport(&info->policy, request->transport, true) != GM_TRANSPORT_FD)
		return gm_text_refuse(GPUMEM_E_UNSUPPORTED, detail,
			"a chunk that the client maps itself needs the fd transport; ask for fd");
	return GPUMEM_OK;
}

/* Checks what the client asks for, and chooses the transport of a new lease. */
static gpumem_status request_check(
	const struct gm_env *env, struct gm_request *request, char *detail)
{
	const struct gm_session *session = request->session;
	if (env->stopping)
		return gm_text_refuse(GPUMEM_E_DISCONNECTED, detail, "the daemon is stopping");
	if (session->payer.ending || session->payer.quarantined)
		return gm_text_refuse(
			GPUMEM_E_DISCONNECTED, detail, "the session is not connected");
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
		return gm_text_refuse(GPUMEM_E_INVALID, detail,
			"a tag must be printable UTF-8 of at most %d bytes", GM_BOUND_NAME_BYTES);
	if (request->one_chunk)
		status = request_check_one(device, request, detail);
	if (status == GPUMEM_OK)
		status = gm_request_pick_transport(
			device, request->transport, &request->transport, detail);
	if (status != GPUMEM_OK)
		return status;
	if (request->signals && request->transport != GM_TRANSPORT_FD)
		return gm_text_refuse(GPUMEM_E_UNSUPPORTED, detail,
			"signals need the fd transport; ask for fd, or for no signals");
	return gm_session_full(session, detail) ? GPUMEM_E_LIMIT : GPUMEM_OK;
}

/* Says to the queue what the request is. */
static inline void request_set_up(struct gm_request *request)
{
	struct gm_lease *lease = request->lease;

	request->payer = &request->session->payer;
	request->target = lease;
	request->fresh = lease ? lease->for_others : request->for_others;
	if (lease)
		request->calls = &request_calls_grow;
	else
		request->calls = request->declares ? &gm_declare_calls : &request_calls_new;
}

gpumem_status gm_request_foresee(const struct gm_request *request, struct gm_device *device,
	struct gm_request_refusal *ret_refusal, char detail[GM_DETAIL_BYTES])
{
	struct gm_request copy = *request;

	request_set_up(&copy);
	return gm_request_try(&copy, device, ret_refusal, detail);
}

void gm_request_submit(struct gm_core *core, struct gm_request *request)
{
	char detail[GM_DETAIL_BYTES];
	detail[0] = '\0'; /* an initializer would clear all of it, for every pool hit */
	request->first_index = 0;
	request->charged = 0;
	request->missing = 0;
	request->chunks = NULL;
	request->prev = request->next = NULL;
	request->waiting.queued = false;
	request->waiting.order = UINT64_MAX;
	request_set_up(request);
	core->counters.requests += !request->again;

	gpumem_status status = request_check(&core->env, request, detail);
	if (status == GPUMEM_OK)
		status = gm_request_begin(&core->env.devices[request->device], request, detail);
	else if (status == GPUMEM_E_LIMIT)
		gm_request_tell(&core->env.devices[request->device], request, status, detail);
	if (status != GPUMEM_OK)
		gm_session_refuse(request, status, detail);
}
