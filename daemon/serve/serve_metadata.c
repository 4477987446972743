/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metadata on the wire. It comes and goes in pieces of one packet, so that nobody waits long for
 * anybody's metadata, and no descriptor is given away. An answer keeps the id of the metadata: if that
 * ends between two packets, because its name got another version, the answer ends with a Failure.
 */
#include "daemon/serve/handlers.h"

#include "common/arith.h"
#include "common/step.h"
#include "daemon/serve/answer.h"
#include "daemon/serve/serve_handles.h"

void gm_serve_put_metadata(
	struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__PutMetadata *put = packet->put_metadata;
	struct gm_lease *lease = gm_serve_find_lease(peer, packet->id, put->lease);
	const struct gm_metadata_piece piece = {
		.size = put->size,
		.offset = put->offset,
		.bytes = put->data.data,
		.n = put->data.len,
	};
	char detail[GM_DETAIL_BYTES];

	if (!lease)
		return;
	gpumem_status status =
		gm_lease_put_metadata(gm_serve_session_of(peer), lease, &piece, detail);
	GM_STEP("metadata: a piece written");
	gm_serve_answer_status(peer, packet->id, status, detail);
}

/* Bytes of metadata in a packet of an answer: to read, pack and send so many is a short turn. */
#define METADATA_ANSWERED 16384

struct metadata_answer {
	struct gm_answer head;
	struct gm_metadata_info info;
	uint64_t offset;
};

static int metadata_next(struct gm_stream *stream, struct gm_peer *peer)
{
	struct metadata_answer *answer = (struct metadata_answer *)stream;
	const struct gm_metadata_info *info = &answer->info;
	Gm__Wire__MetadataReply reply = GM__WIRE__METADATA_REPLY__INIT;
	uint8_t piece[METADATA_ANSWERED];

	int r = gm_peer_may_emit(peer, 0);
	if (r < 0)
		return r;
	size_t n = gm_u64_min(info->size - answer->offset, sizeof(piece));
	if (n > 0 && gm_core_read_metadata(
			     answer->head.serve->core, info->id, answer->offset, piece, n) < 0)
		return gm_answer_emit_failure(stream, peer, GPUMEM_E_BUSY,
			"the metadata was replaced while it was read; try again");

	reply.version = info->version;
	reply.size = info->size;
	reply.offset = answer->offset;
	reply.data.data = piece;
	reply.data.len = n;
	r = gm_answer_emit(stream, peer, answer->offset + n < info->size,
		GM__WIRE__PACKET__BODY_METADATA_REPLY, &reply);
	if (r >= 0)
		answer->offset += n;
	return r;
}

void gm_serve_get_metadata(
	struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__GetMetadata *get = packet->get_metadata;
	const struct gm_identity *identity = gm_peer_identity(peer);
	struct gm_metadata_info info;
	gpumem_status status = GPUMEM_OK;

	if (get->lease) {
		const struct gm_lease *lease = gm_serve_find_lease(peer, packet->id, get->lease);
		if (!lease)
			return;
		gm_lease_metadata(lease, &info);
	} else {
		status = gm_session_find_metadata(gm_serve_session_of(peer),
			get->foreign ? get->owner : identity->uid, get->name, identity->groups,
			identity->n_groups, &info);
	}
	if (status != GPUMEM_OK) {
		gm_peer_send_failure(peer, packet->id, status, GM_SERVE_NO_NAME);
		return;
	}

	struct metadata_answer *answer =
		gm_answer_new(serve, peer, packet->id, metadata_next, sizeof(*answer));
	if (!answer) {
		gm_serve_fail_memory(peer, packet->id);
		return;
	}
	answer->info = info;
	gm_peer_start(peer, &answer->head.stream);
}
