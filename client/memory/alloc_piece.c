/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shares allocations of a heap, and opens those of other processes. The opener maps all chunks that
 * carry the allocation side by side, as one buffer. This file never looks into the memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#include "client/buffer/buffer.h"
#include "client/heap/arena.h"
#include "client/memory/supply.h"
#include "client/session/gpumem_session.h"
#include "client/grant/session_ask.h"
#include "common/cancel.h"
#include "gpumem/gpumem_piece.h"

/* The heap that the pointer is of; NULL: none has it. */
static struct gm_arena *piece_arena(
	struct gpumem_session *session, const void *ptr, uint32_t *ret_device)
{
	for (uint32_t i = 0; i < session->counted; i++) {
		struct gm_arena *arena =
			atomic_load_explicit(&session->device[i].arena, memory_order_acquire);
		if (arena && gm_arena_holds(arena, ptr)) {
			*ret_device = i;
			return arena;
		}
	}
	return NULL;
}

gpumem_status gpumem_share_ptr(gpumem_session *session, const void *ptr, gpumem_piece *ret_piece)
{
	struct gm_supply_shared what = {.ptr = ptr};
	gpumem_piece piece;
	uint32_t device;
	uint64_t *ids;
	GM_UNCANCELLED;

	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!ptr || !ret_piece)
		return gm_error(GPUMEM_E_INVALID, "%s must not be NULL", ptr ? "ret_piece" : "ptr");
	struct gm_arena *arena = piece_arena(session, ptr, &device);
	if (!arena || gm_arena_size(arena, ptr, &what.size))
		return gm_error(GPUMEM_E_INVALID,
			"cannot share %p: no allocation of a device begins there", ptr);
	int r = gm_arena_cover(arena, ptr, what.size, &ids, &what.n, &piece.offset);
	if (r == -EPROTO)
		return gm_error(
			GPUMEM_E_INVALID, "the allocation was freed while it was being shared");
	if (r < 0)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a list of chunks");

	what.ids = ids;
	piece.bytes = what.size;
	gpumem_status status =
		gm_supply_share(session->device[device].supply, arena, &what, &piece.token);
	free(ids);
	if (!status)
		*ret_piece = piece;
	return status;
}

/* Opens the chunks of a piece until there are that many bytes. On error, what was opened is in
 * *ret_lease, which may be NULL, and *ret_chunks. */
static gpumem_status piece_open(struct gpumem_session *session, const gpumem_piece *piece,
	uint64_t bytes, struct gm_session_lease **ret_lease, struct gm_session_chunk **ret_chunks)
{
	struct gm_session_lease *first = NULL, *last = NULL, *lease;
	struct gm_session_chunk *chunks;

	for (uint32_t i = 0; !first || first->user_bytes < bytes; i++) {
		gpumem_status status =
			gm_session_lease_open(session, piece->token.bytes, i, &lease, &chunks);
		if (status)
			return status;
		LL_CONCAT(*ret_chunks, chunks);
		if (last)
			last->also = lease;
		else
			*ret_lease = first = lease;
		last = lease;

		/* A piece of the heap is whole chunks. */
		if (lease->user_bytes != lease->bytes || lease->device != first->device ||
			lease->transport != first->transport ||
			(lease != first && lease->transport == GM_TRANSPORT_IPC))
			return gm_error(GPUMEM_E_NOT_FOUND, "this token is not of a piece");
		if (lease != first)
			first->user_bytes += lease->bytes;
	}
	return GPUMEM_OK;
}

gpumem_status gpumem_open_piece(
	gpumem_session *session, const gpumem_piece *piece, gpumem_buffer **ret_buffer)
{
	struct gm_session_lease *lease = NULL;
	struct gm_session_chunk *chunks = NULL;
	uint64_t bytes;
	GM_UNCANCELLED;

	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!piece || !ret_buffer)
		return gm_error(
			GPUMEM_E_INVALID, "%s must not be NULL", piece ? "ret_buffer" : "piece");
	if (!piece->bytes || __builtin_add_overflow(piece->offset, piece->bytes, &bytes) ||
		bytes > 2 * GM_LEASE_BYTES_MAX)
		return gm_error(GPUMEM_E_NOT_FOUND, "there is no such piece");

	gm_retired_settle(session,
		GM_RETIRED_NO_WAIT); /* a buffer that was destroyed may still count as an opening */
	gpumem_status status = piece_open(session, piece, bytes, &lease, &chunks);
	if (!status)
		return gm_buffer_new(session, lease, chunks, GM_BUFFER_OPENED, NULL, ret_buffer);
	gm_session_chunks_free(chunks);
	if (lease)
		gm_session_lease_give(session, lease);
	return status;
}
