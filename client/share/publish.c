/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers under names. A published buffer belongs to its name: it outlives this process, and everybody
 * in its audience may attach to it. The publish is sent when the program's work on the buffer is done,
 * so nobody ever sees a buffer that is half filled: a maker that dies before leaves no name.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "client/buffer/buffer.h"
#include "client/device/map_await.h"
#include "client/device/map_chunks.h"
#include "client/session/reconnect.h"
#include "client/session/gpumem_session.h"
#include "client/session/session_call.h"
#include "client/grant/session_ask.h"
#include "client/share/buffer_share.h"
#include "client/share/publish_metadata.h"
#include "common/arith.h"
#include "common/cancel.h"
#include "common/clock.h"
#include "common/text/share_name.h"
#include "common/text/units.h"

/* How often, and for how long, metadata is sent again that the daemon has lost or cannot keep. */
#define RESEND_LEAST_NS GM_NS_PER_MS
#define RESEND_MOST_NS  (250 * GM_NS_PER_MS)
#define RESEND_FOR_NS   (30 * GM_NS_PER_S)

/* ---- the program's work on the buffer */

/* Waits for what may still write to the buffer: the work of the stream, or of all streams. */
static gpumem_status publish_await(const gpumem_buffer *buffer, gpumem_stream stream)
{
	const struct gm_session_device *d = &buffer->session->device[buffer->device];
	int r = gm_map_await_stream(d, stream);

	if (r == -EAGAIN)
		return gm_map_await_captured("publish", ", or say that no work is left");
	if (r < 0)
		return gm_error(GPUMEM_E_SYSTEM,
			"cannot wait for the work on this buffer, so it is not published: %s",
			gm_map_chunks_error(d, r));
	return GPUMEM_OK;
}

/* ---- publishing */

struct publish_call {
	struct gm_conn_request call;
	bool repeated; /* it may have been done before it was refused */
	uint64_t version;
	bool resend;
};

static int publish_take(
	struct gm_conn_request *base, const Gm__Wire__Packet *packet, struct gm_conn_packet *in)
{
	struct publish_call *call = (struct publish_call *)base;

	if (packet->body_case != GM__WIRE__PACKET__BODY_PUBLISH_REPLY ||
		(packet->publish_reply->version == 0) != packet->publish_reply->resend)
		return -EPROTO;
	call->version = packet->publish_reply->version;
	call->resend = packet->publish_reply->resend;
	return 0;
}

static void publish_late(struct gm_conn_request *call)
{
	free(call);
}

static int publish_repeat(struct gm_conn_request *call)
{
	((struct publish_call *)call)->repeated = true;
	return 0;
}

static const struct gm_conn_request_ops publish_ops = {
	.take = publish_take, .late = publish_late, .repeat = publish_repeat};

static gpumem_status publish_send(gpumem_buffer *buffer, const char *name,
	const gpumem_publish_options *options, uint64_t *ret_version, bool *ret_resend)
{
	struct publish_call *publish = calloc(1, sizeof(*publish));
	if (!publish)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a request");
	bool before;
	gpumem_status status = gm_buffer_share_lock(buffer, &before);
	if (status) {
		free(publish);
		return status;
	}
	publish->call.ops = &publish_ops;
	publish->call.of_epoch = buffer->lease->held.epoch;

	Gm__Wire__Publish body = GM__WIRE__PUBLISH__INIT;
	body.lease = buffer->lease->held.lease;
	body.name = (char *)name;
	body.audience = (Gm__Wire__Audience)options->audience;
	body.audience_id = options->id;
	body.read_only = options->mode == GPUMEM_SHARE_READ_ONLY;
	body.readers_can_write = options->flags & GPUMEM_READERS_CAN_WRITE;
	body.until_unread = options->until_unread != 0;
	body.replace = options->replace != 0;
	body.metadata_bytes = options->metadata_size;
	body.lifetime_ms = (uint64_t)options->expires_s * 1000;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(PUBLISH, publish, &body);

	struct gm_conn_request *call = &publish->call;
	status = gm_session_call(buffer->session, NULL, &packet, &call);
	gm_buffer_share_unlock(buffer, before, call && call->status && !publish->repeated);
	if (!status) {
		*ret_version = publish->version;
		*ret_resend = publish->resend;
	}
	free(call);
	return gm_buffer_share_status(buffer, status);
}

/* Sends the metadata and then the publish, until the daemon has both: it may restart in between, or
 * its keeper may be away for a moment. */
static gpumem_status publish_send_all(gpumem_buffer *buffer, const char *name,
	const gpumem_publish_options *options, uint64_t *ret_version)
{
	uint64_t pause_ns = RESEND_LEAST_NS, end_ns = gm_clock_ns() + RESEND_FOR_NS;

	for (;;) {
		bool resend = false;
		gpumem_status status = gm_name_publish_metadata_send(
			buffer, options->metadata, options->metadata_size);
		if (!status)
			status = publish_send(buffer, name, options, ret_version, &resend);
		if (status || !resend)
			return status;
		if (gm_clock_ns() > end_ns)
			return gm_error(GPUMEM_E_BUSY,
				"gpumemd cannot keep the metadata of %s right now, so nothing is "
				"published; see 'gpumemctl status' for its keeper, and try again",
				name);
		nanosleep(&(struct timespec){.tv_nsec = (long)pause_ns}, NULL);
		pause_ns = gm_u64_min(2 * pause_ns, RESEND_MOST_NS);
	}
}

static gpumem_status publish_check(
	const char *name, const gpumem_publish_options *options, gpumem_publish_options *ret_given)
{
	const char *wrong = gm_token_name_check(name);
	if (wrong)
		return gm_error(GPUMEM_E_INVALID, "name %s", wrong);
	gpumem_status status = gm_sized_in(ret_given, sizeof(*ret_given), options);
	if (status)
		return status;
	status = gm_buffer_share_options_check(&(gpumem_share_options){sizeof(gpumem_share_options),
		ret_given->audience, ret_given->id, ret_given->mode, ret_given->flags});
	if (status)
		return status;
	return gm_name_publish_metadata_check(ret_given->metadata, ret_given->metadata_size);
}

gpumem_status gpumem_publish(gpumem_buffer *buffer, const char *name,
	const gpumem_publish_options *options, gpumem_stream stream, uint64_t *ret_version)
{
	gpumem_publish_options given = GPUMEM_PUBLISH_OPTIONS_INIT;
	uint64_t version = 0;
	GM_UNCANCELLED;

	gpumem_status status = gm_buffer_share_begin(buffer);
	if (status)
		return status;
	status = publish_check(name, options, &given);
	if (!status)
		status = publish_await(buffer, stream);
	if (!status)
		status = publish_send_all(buffer, name, &given, &version);
	gm_buffer_share_end(buffer);
	if (status)
		return status;

	atomic_store(&buffer->version, version);
	if (ret_version)
		*ret_version = version;
	return GPUMEM_OK;
}

/* ---- attaching */

static gpumem_status publish_attach(gpumem_session *session, const struct gm_token_name *name,
	uint64_t deadline_ns, gpumem_buffer **ret_buffer)
{
	struct gm_session_lease *lease;
	struct gm_session_chunk *chunks;

	gm_retired_settle(session,
		GM_RETIRED_NO_WAIT); /* a buffer that was destroyed may still count as an opening */
	gpumem_status status = gm_session_lease_attach(session, name, deadline_ns, &lease, &chunks);
	if (status)
		return status;
	return gm_buffer_new(session, lease, chunks, GM_BUFFER_OPENED, NULL, ret_buffer);
}

static void publish_sleep_until(uint64_t at_ns)
{
	uint64_t now_ns;

	/* A signal ends the sleep of the system, but must not make this process ask more often. */
	while ((now_ns = gm_clock_ns()) < at_ns) {
		uint64_t ns = at_ns - now_ns;

		nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / GM_NS_PER_S),
				  .tv_nsec = (long)(ns % GM_NS_PER_S)},
			NULL);
	}
}

static gpumem_status publish_too_late(const char *name, uint32_t wait_ms)
{
	char waited[GM_UNITS_TEXT];

	return gm_error(GPUMEM_E_TIMEOUT,
		"there was no such name as \"%s\" for this client within %s: nobody has published "
		"it, or it is meant for somebody else; see gpumemctl shares",
		name, gm_format_duration(wait_ms * GM_NS_PER_MS, waited));
}

/*
 * Attaches when the name is there. The daemon keeps nothing for a call that waits: the call asks again after
 * delays that grow to about a second, so a thousand calls cost the daemon about as many
 * short requests a second, on the turns of their user.
 */
static gpumem_status publish_attach_within(gpumem_session *session, const char *name,
	const struct gm_token_name *parsed, uint32_t wait_ms, gpumem_buffer **ret_buffer)
{
	struct gm_backoff backoff = {0};
	uint64_t end_ns = wait_ms == GPUMEM_WAIT_FOREVER ? UINT64_MAX
							 : gm_clock_ns() + wait_ms * GM_NS_PER_MS;

	for (;;) {
		bool last = gm_clock_ns() >= end_ns;
		gpumem_status status = publish_attach(
			session, parsed, end_ns == UINT64_MAX ? 0 : end_ns, ret_buffer);
		if (status != GPUMEM_E_NOT_FOUND)
			return status;
		if (last)
			return publish_too_late(name, wait_ms);

		gm_reconnect_back_off(&backoff, gm_clock_ns());
		publish_sleep_until(gm_u64_min(backoff.until_ns, end_ns));
	}
}

gpumem_status gpumem_attach_wait(
	gpumem_session *session, const char *name, uint32_t wait_ms, gpumem_buffer **ret_buffer)
{
	struct gm_token_name parsed;
	GM_UNCANCELLED;

	gpumem_status status = gm_name_publish_name_read(session, name, &parsed);
	if (status)
		return status;
	if (!ret_buffer)
		return gm_error(GPUMEM_E_INVALID, "ret_buffer must not be NULL");
	if (!wait_ms)
		return gm_name_publish_name_missing(
			name, publish_attach(session, &parsed, 0, ret_buffer));

	if (atomic_fetch_add(&session->names_awaited, 1) < GM_BOUND_WAITING_PER_CLIENT)
		status = publish_attach_within(session, name, &parsed, wait_ms, ret_buffer);
	else
		status = gm_error(GPUMEM_E_LIMIT,
			"%d calls of this session wait for names already: try again when one has "
			"ended, or attach without waiting",
			GM_BOUND_WAITING_PER_CLIENT);
	atomic_fetch_sub(&session->names_awaited, 1);
	return status;
}

gpumem_status gpumem_attach(gpumem_session *session, const char *name, gpumem_buffer **ret_buffer)
{
	return gpumem_attach_wait(session, name, 0, ret_buffer);
}

/* ---- removing */

/* How often to begin again if others publish under the name meanwhile. */
#define REMOVE_TRIES 64

struct publish_remove_call {
	struct gm_conn_request call;
	bool again;           /* it was sent before, and the daemon may have done it */
	uint64_t id, version; /* which one the name is; 0: it is to be ended */
};

static int publish_remove_take(
	struct gm_conn_request *base, const Gm__Wire__Packet *packet, struct gm_conn_packet *in)
{
	struct publish_remove_call *call = (struct publish_remove_call *)base;

	if (packet->body_case == GM__WIRE__PACKET__BODY_DONE)
		return 0;
	if (packet->body_case != GM__WIRE__PACKET__BODY_PUBLISH_REPLY || !packet->publish_reply->id)
		return -EPROTO;
	call->id = packet->publish_reply->id;
	call->version = packet->publish_reply->version;
	return 0;
}

static int publish_remove_repeat(struct gm_conn_request *base)
{
	((struct publish_remove_call *)base)->again = true;
	return 0;
}

static const struct gm_conn_request_ops publish_remove_ops = {
	.take = publish_remove_take, .late = publish_late, .repeat = publish_remove_repeat};

/* Looks which one the name is, or ends that one, as body says. A request that is repeated after its answer
 * was lost must not end one that was published since. */
static gpumem_status publish_remove_send(
	gpumem_session *session, Gm__Wire__Unpublish *body, bool *ret_again)
{
	struct publish_remove_call *remove = calloc(1, sizeof(*remove));
	if (!remove)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a request");
	remove->call.ops = &publish_remove_ops;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(UNPUBLISH, unpublish, body);

	struct gm_conn_request *call = &remove->call;
	gpumem_status status = gm_session_call(session, NULL, &packet, &call);
	*ret_again = call && remove->again;
	if (!status && body->look) {
		body->id = remove->id;
		body->version = remove->version;
	}
	free(call);
	return status;
}

gpumem_status gpumem_unpublish(gpumem_session *session, const char *name)
{
	struct gm_token_name parsed;
	GM_UNCANCELLED;

	gpumem_status status = gm_name_publish_name_read(session, name, &parsed);
	if (status)
		return status;

	Gm__Wire__Unpublish body = GM__WIRE__UNPUBLISH__INIT;
	body.name = (char *)parsed.name;
	body.foreign = parsed.foreign;
	body.owner = parsed.owner;
	for (int i = 0; i < REMOVE_TRIES; i++) {
		bool again;

		body.look = true;
		status = publish_remove_send(session, &body, &again);
		if (status)
			return gm_name_publish_name_missing(name, status);
		body.look = false;
		status = publish_remove_send(session, &body, &again);
		if (status != GPUMEM_E_NOT_FOUND)
			return status;
		if (again)
			return GPUMEM_OK;
	}
	return gm_error(GPUMEM_E_BUSY,
		"others publish under this name all the time; stop them, or try again");
}
