/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shares a buffer's memory with other processes, without a copy. The daemon makes a token, and the
 * token is all that passes between the processes: every process of the audience that has it may
 * open the buffer. This library never writes a token anywhere.
 */
#include "client/share/buffer_share.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/buffer/buffer.h"
#include "client/buffer/buffer_retired.h"
#include "client/buffer/evict.h"
#include "client/session/gpumem_session.h"
#include "client/session/session_call.h"
#include "client/grant/session_ask.h"
#include "common/cancel.h"
#include "common/text/units.h"

struct share_call {
	struct gm_conn_request call;
	bool repeated; /* it may have been done before it was refused */
	gpumem_token token;
};

static int share_take(
	struct gm_conn_request *base, const Gm__Wire__Packet *packet, struct gm_conn_packet *in)
{
	struct share_call *call = (struct share_call *)base;

	if (packet->body_case != GM__WIRE__PACKET__BODY_SHARE_REPLY ||
		packet->share_reply->token.len != sizeof(call->token.bytes))
		return -EPROTO;
	memcpy(call->token.bytes, packet->share_reply->token.data, sizeof(call->token.bytes));
	return 0;
}

/* Nobody knows a token that came too late, and it ends with its lease. */
static void share_late(struct gm_conn_request *call)
{
	free(call);
}

static int share_repeat(struct gm_conn_request *call)
{
	((struct share_call *)call)->repeated = true;
	return 0;
}

static const struct gm_conn_request_ops share_ops = {
	.take = share_take, .late = share_late, .repeat = share_repeat};

/* Whether the daemon still knows the buffer. */
static gpumem_status share_known(gpumem_buffer *buffer)
{
	gm_lock(&buffer->lock);
	bool known = buffer->lease->held.epoch == gm_session_epoch(buffer->session);
	gm_lock_drop(&buffer->lock);
	if (!known)
		return gm_error(GPUMEM_E_DISCONNECTED,
			"gpumemd was restarted and does not know this buffer: it keeps working "
			"here, but cannot be shared; create a new one");
	return GPUMEM_OK;
}

gpumem_status gm_buffer_share_begin(gpumem_buffer *buffer)
{
	if (!buffer)
		return gm_error(GPUMEM_E_INVALID, "buffer must not be NULL");
	if (!gm_session_ok(buffer->session))
		return gm_session_refused(buffer->session);
	if (buffer->opened)
		return gm_error(
			GPUMEM_E_DENIED, "only the process that created a buffer can share it");

	gpumem_status status = gm_evict_hold(buffer);
	if (status)
		return status;
	status = share_known(buffer);
	if (status)
		gm_evict_release(buffer);
	return status;
}

void gm_buffer_share_end(gpumem_buffer *buffer)
{
	gm_evict_release(buffer);
}

void gm_buffer_share_unlock(gpumem_buffer *buffer, bool before, bool refused)
{
	if (refused && !before)
		(void)gm_evict_note_shared(buffer, false);
	gm_lock_drop(&buffer->lock);
}

gpumem_status gm_buffer_share_lock(gpumem_buffer *buffer, bool *ret_before)
{
	gm_retired_settle(buffer->session, GM_RETIRED_NO_WAIT);
	gm_lock(&buffer->lock);
	if (!gm_buffer_retired_has(buffer)) {
		*ret_before = gm_evict_note_shared(buffer, true);
		return GPUMEM_OK;
	}
	gm_lock_drop(&buffer->lock);
	return gm_error(GPUMEM_E_BUSY,
		"this buffer was made smaller, and the device may still use what was cut off: try "
		"again when its work is done");
}

gpumem_status gm_buffer_share_status(gpumem_buffer *buffer, gpumem_status status)
{
	gpumem_status forgotten = status == GPUMEM_E_NOT_FOUND ? share_known(buffer) : GPUMEM_OK;
	return forgotten ? forgotten : status;
}

gpumem_status gm_buffer_share_options_check(const gpumem_share_options *options)
{
	if (options->audience != GPUMEM_AUDIENCE_DOMAIN &&
		options->audience != GPUMEM_AUDIENCE_UID &&
		options->audience != GPUMEM_AUDIENCE_GID)
		return gm_error(
			GPUMEM_E_INVALID, "there is no audience %d", (int)options->audience);
	if (options->mode != GPUMEM_SHARE_READ_WRITE && options->mode != GPUMEM_SHARE_READ_ONLY)
		return gm_error(GPUMEM_E_INVALID, "there is no share mode %d", (int)options->mode);
	if (options->flags & ~(uint32_t)GPUMEM_READERS_CAN_WRITE)
		return gm_error(GPUMEM_E_INVALID, "flags 0x%x are not known", options->flags);
	return GPUMEM_OK;
}

static gpumem_status share_send(
	gpumem_buffer *buffer, const gpumem_share_options *options, gpumem_token *ret_token)
{
	struct share_call *share = calloc(1, sizeof(*share));
	if (!share)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a request");
	bool before;
	gpumem_status status = gm_buffer_share_lock(buffer, &before);
	if (status) {
		free(share);
		return status;
	}
	share->call.ops = &share_ops;
	share->call.of_epoch = buffer->lease->held.epoch;

	Gm__Wire__Share body = GM__WIRE__SHARE__INIT;
	body.lease = buffer->lease->held.lease;
	body.audience = (Gm__Wire__Audience)options->audience;
	body.audience_id = options->id;
	body.read_only = options->mode == GPUMEM_SHARE_READ_ONLY;
	body.readers_can_write = options->flags & GPUMEM_READERS_CAN_WRITE;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(SHARE, share, &body);

	struct gm_conn_request *call = &share->call;
	status = gm_session_call(buffer->session, NULL, &packet, &call);
	gm_buffer_share_unlock(buffer, before, call && call->status && !share->repeated);
	if (!status)
		*ret_token = share->token;
	free(call);
	return gm_buffer_share_status(buffer, status);
}

gpumem_status gpumem_share(
	gpumem_buffer *buffer, const gpumem_share_options *options, gpumem_token *ret_token)
{
	gpumem_share_options given = GPUMEM_SHARE_OPTIONS_INIT;
	GM_UNCANCELLED;

	gpumem_status status = gm_buffer_share_begin(buffer);
	if (status)
		return status;
	if (!ret_token)
		status = gm_error(GPUMEM_E_INVALID, "ret_token must not be NULL");
	if (!status)
		status = gm_sized_in(&given, sizeof(given), options);
	if (!status)
		status = gm_buffer_share_options_check(&given);
	if (!status)
		status = share_send(buffer, &given, ret_token);
	gm_buffer_share_end(buffer);
	return status;
}

gpumem_status gpumem_open(
	gpumem_session *session, const gpumem_token *token, gpumem_buffer **ret_buffer)
{
	GM_UNCANCELLED;

	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!token || !ret_buffer)
		return gm_error(
			GPUMEM_E_INVALID, "%s must not be NULL", token ? "ret_buffer" : "token");
	struct gm_session_lease *lease;
	struct gm_session_chunk *chunks;
	gm_retired_settle(session,
		GM_RETIRED_NO_WAIT); /* a buffer that was destroyed may still count as an opening */
	gpumem_status status = gm_session_lease_open(session, token->bytes, 0, &lease, &chunks);
	if (status)
		return status;
	return gm_buffer_new(session, lease, chunks, GM_BUFFER_OPENED, NULL, ret_buffer);
}

gpumem_status gpumem_unshare(gpumem_buffer *buffer)
{
	GM_UNCANCELLED;

	gpumem_status status = gm_buffer_share_begin(buffer);
	if (status)
		return status;
	gm_lock(&buffer->lock);
	Gm__Wire__Unshare body = GM__WIRE__UNSHARE__INIT;
	body.lease = buffer->lease->held.lease;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(UNSHARE, unshare, &body);
	status = gm_session_tell(
		buffer->session, NULL, &packet, buffer->lease->held.epoch, GM_WAIT_FOR_DAEMON);
	gm_lock_drop(&buffer->lock);
	status = gm_buffer_share_status(buffer, status);
	gm_buffer_share_end(buffer);
	return status;
}

/* ---- tokens as text */

void gpumem_token_to_text(const gpumem_token *token, char text[GPUMEM_TOKEN_TEXT_BYTES])
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < sizeof(token->bytes); i++) {
		*text++ = digits[token->bytes[i] >> 4];
		*text++ = digits[token->bytes[i] & 15];
	}

	*text = '\0';
}

gpumem_status gpumem_token_from_text(const char *text, gpumem_token *ret_token)
{
	gpumem_token token;
	uint32_t byte = 0;

	if (!text || !ret_token)
		return gm_error(
			GPUMEM_E_INVALID, "%s must not be NULL", text ? "ret_token" : "text");

	for (size_t i = 0; text && i < sizeof(token.bytes); i++) {
		text = gm_parse_hex(text, 2, 2, &byte);
		token.bytes[i] = (uint8_t)byte;
	}

	if (!text || *text)
		return gm_error(GPUMEM_E_INVALID, "a token has %zu hexadecimal digits",
			2 * sizeof(token.bytes));
	*ret_token = token;
	return GPUMEM_OK;
}
