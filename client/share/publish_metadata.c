/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metadata of published buffers. It goes to the daemon in pieces before the publish, and comes back
 * in pieces, into memory of the program's own. The buffer itself is not touched for it.
 */
#include "client/share/publish_metadata.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/buffer/evict.h"
#include "client/session/session_call.h"
#include "client/share/buffer_share.h"
#include "common/arith.h"
#include "common/cancel.h"
#include "common/cleanup.h"
#include "common/text/share_name.h"

_Static_assert(GPUMEM_METADATA_MOST == GM_BOUND_METADATA_BYTES, "both are the same bound");

/* ---- sending */

gpumem_status gm_name_publish_metadata_check(const void *metadata, size_t size)
{
	if (size > GPUMEM_METADATA_MOST)
		return gm_error(GPUMEM_E_INVALID,
			"metadata_size is %zu, and a name has at most %d bytes of metadata", size,
			GPUMEM_METADATA_MOST);
	if (size > 0 && !metadata)
		return gm_error(
			GPUMEM_E_INVALID, "metadata must not be NULL if metadata_size is not 0");
	return GPUMEM_OK;
}

gpumem_status gm_name_publish_metadata_send(
	gpumem_buffer *buffer, const void *metadata, size_t size)
{
	if (!size)
		return GPUMEM_OK;
	bool before;
	gpumem_status status = gm_buffer_share_lock(buffer, &before);
	if (status)
		return status;

	const struct gm_lease_return_item *held = &buffer->lease->held;
	for (size_t sent = 0, n; sent < size && !status; sent += n) {
		Gm__Wire__PutMetadata body = GM__WIRE__PUT_METADATA__INIT;
		n = gm_u64_min(size - sent, (size_t)GM_METADATA_PIECE);
		body.lease = held->lease;
		body.size = size;
		body.offset = sent;
		body.data.data = (uint8_t *)metadata + sent;
		body.data.len = n;
		Gm__Wire__Packet packet = GM_WIRE_PACKET(PUT_METADATA, put_metadata, &body);
		status = gm_session_tell(
			buffer->session, NULL, &packet, held->epoch, GM_WAIT_FOR_DAEMON);
	}
	/* Nobody gets the buffer by its metadata. */
	gm_buffer_share_unlock(buffer, before, true);
	return gm_buffer_share_status(buffer, status);
}

/* ---- reading */

struct metadata_call {
	struct gm_conn_request call;
	bool begun;
	uint8_t *data;
	size_t size, have;
	uint64_t version;
};

static int metadata_begin_answer(struct metadata_call *call, const Gm__Wire__MetadataReply *reply)
{
	if (reply->size > GPUMEM_METADATA_MOST)
		return -EPROTO;
	call->data = malloc((size_t)reply->size + 1);
	if (!call->data)
		return -ENOMEM;
	call->size = (size_t)reply->size;
	call->version = reply->version;
	call->begun = true;
	return 0;
}

static int metadata_take(
	struct gm_conn_request *base, const Gm__Wire__Packet *packet, struct gm_conn_packet *in)
{
	struct metadata_call *call = (struct metadata_call *)base;
	const Gm__Wire__MetadataReply *reply = packet->metadata_reply;

	if (packet->body_case != GM__WIRE__PACKET__BODY_METADATA_REPLY)
		return -EPROTO;
	int r = call->begun ? 0 : metadata_begin_answer(call, reply);
	if (r < 0)
		return r;
	if (reply->size != call->size || reply->version != call->version ||
		reply->offset != call->have || reply->data.len > call->size - call->have)
		return -EPROTO;

	if (reply->data.len > 0)
		memcpy(call->data + call->have, reply->data.data, reply->data.len);
	call->have += reply->data.len;
	return packet->more || call->have == call->size ? 0 : -EPROTO;
}

static void metadata_late(struct gm_conn_request *base)
{
	struct metadata_call *call = (struct metadata_call *)base;

	if (call)
		free(call->data);
	free(call);
}

static int metadata_repeat(struct gm_conn_request *base)
{
	struct metadata_call *call = (struct metadata_call *)base;

	free(gm_steal_ptr(&call->data));
	call->begun = false;
	call->have = 0;
	return 0;
}

static const struct gm_conn_request_ops metadata_ops = {
	.take = metadata_take, .late = metadata_late, .repeat = metadata_repeat};

static gpumem_status metadata_ask(gpumem_session *session, Gm__Wire__GetMetadata *body,
	uint64_t epoch, void **ret_data, size_t *ret_size, uint64_t *ret_version)
{
	struct metadata_call *call = calloc(1, sizeof(*call));
	if (!call)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a request");
	call->call.ops = &metadata_ops;
	call->call.of_epoch = epoch;

	Gm__Wire__Packet packet = GM_WIRE_PACKET(GET_METADATA, get_metadata, body);
	struct gm_conn_request *base = &call->call;
	gpumem_status status = gm_session_call(session, NULL, &packet, &base);
	if (!status) {
		call->data[call->size] = '\0';
		*ret_data = call->size ? gm_steal_ptr(&call->data) : NULL;
		*ret_size = call->size;
		if (ret_version)
			*ret_version = call->version;
	}
	metadata_late(base);
	return status;
}

gpumem_status gm_name_publish_name_read(
	gpumem_session *session, const char *name, struct gm_token_name *ret_name)
{
	if (!gm_session_ok(session))
		return gm_session_refused(session);
	const char *wrong = gm_token_name_parse(name, ret_name);
	return wrong ? gm_error(GPUMEM_E_INVALID, "name %s", wrong) : GPUMEM_OK;
}

gpumem_status gm_name_publish_name_missing(const char *name, gpumem_status status)
{
	if (status != GPUMEM_E_NOT_FOUND)
		return status;
	return gm_error(status,
		"there is no such name as \"%s\" for this client: it may not be published yet, have "
		"ended, or be meant for somebody else; see gpumemctl shares",
		name);
}

gpumem_status gpumem_metadata_read(gpumem_session *session, const char *name, void **ret_data,
	size_t *ret_size, uint64_t *ret_version)
{
	struct gm_token_name parsed;
	GM_UNCANCELLED;

	gpumem_status status = gm_name_publish_name_read(session, name, &parsed);
	if (status)
		return status;
	if (!ret_data || !ret_size)
		return gm_error(GPUMEM_E_INVALID, "%s must not be NULL",
			ret_data ? "ret_size" : "ret_data");

	Gm__Wire__GetMetadata body = GM__WIRE__GET_METADATA__INIT;
	body.name = (char *)parsed.name;
	body.foreign = parsed.foreign;
	body.owner = parsed.owner;

	/* Busy: a newer version came while the older one was read. */
	enum { TRIES = 16 };
	status = GPUMEM_E_BUSY;
	for (int i = 0; i < TRIES && status == GPUMEM_E_BUSY; i++)
		status = metadata_ask(session, &body, 0, ret_data, ret_size, ret_version);
	return gm_name_publish_name_missing(name, status);
}

gpumem_status gpumem_buffer_metadata(gpumem_buffer *buffer, void **ret_data, size_t *ret_size)
{
	GM_UNCANCELLED;

	if (!buffer)
		return gm_error(GPUMEM_E_INVALID, "buffer must not be NULL");
	if (!gm_session_ok(buffer->session))
		return gm_session_refused(buffer->session);
	if (!ret_data || !ret_size)
		return gm_error(GPUMEM_E_INVALID, "%s must not be NULL",
			ret_data ? "ret_size" : "ret_data");

	gpumem_status status = gm_evict_hold(buffer);
	if (status)
		return status;
	Gm__Wire__GetMetadata body = GM__WIRE__GET_METADATA__INIT;
	gm_lock(&buffer->lock);
	const struct gm_lease_return_item *held = &buffer->lease->held;
	body.lease = held->lease;
	status = metadata_ask(buffer->session, &body, held->epoch, ret_data, ret_size, NULL);
	gm_lock_drop(&buffer->lock);
	gm_evict_release(buffer);
	if (status == GPUMEM_E_NOT_FOUND)
		return gm_error(GPUMEM_E_DISCONNECTED,
			"gpumemd was restarted and does not know this buffer: it keeps working "
			"here, but its metadata is gone");
	return status;
}

void gpumem_metadata_free(void *data)
{
	free(data);
}
