/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sharing chunks of a lease that goes on growing and shrinking, as that of a heap does: each becomes a
 * lease of its own. This file promises that a chunk changes its lease and nothing else: its maker, who
 * pays, its trust domain, who has seen it, its descriptor and its index stay. A client that does not hear of the change, because its
 * connection ended, can ask again, or return the chunk as if it were where it was. It must never give a chunk to anybody: lease_token.c opens leases.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/lease_private.h"
#include "daemon/lease/lease_token_private.h"
#include "daemon/lease/commit.h"

#include <assert.h>
#include <string.h>

#include "common/arith.h"
#include "common/step.h"

static const struct gm_token_options piece_options = {.audience = GM_NAME_AUDIENCE_DOMAIN};

/* Takes the chunk over into a new lease of the same maker. NULL: no memory. */
static struct gm_lease *piece_split(struct gm_lease *lease, struct gm_chunk *chunk)
{
	struct gm_lease *own = gm_lease_new(lease->core, 0, lease->maker, lease->orphan,
		lease->device, lease->transport, lease->tag);
	if (!own)
		return NULL;
	own->origin = lease->id;
	own->reusable = lease->reusable;
	own->for_others = lease->for_others;
	own->across = lease->across;
	if (gm_lease_begin(own) < 0) {
		gm_lease_free(own);
		return NULL;
	}
	if (gm_commit_piece(own, chunk) < 0) {
		gm_lease_return(own->maker, own);
		return NULL;
	}

	DL_DELETE(lease->chunks, chunk);
	lease->bytes -= chunk->bytes;
	lease->user_bytes = gm_u64_min(lease->user_bytes, lease->bytes);
	lease->size_before = 0;
	if (!lease->chunks)
		gm_lease_count_bare(lease->maker);
	gm_commit_lease(lease);
	GM_STEP("piece: split");

	gm_lease_uncount_bare(own->maker);
	chunk->prev = chunk->next = NULL;
	DL_APPEND(own->chunks, chunk);
	chunk->lease = own;
	chunk->asked = 0;
	own->grants = 1;
	own->next_index = chunk->index + 1;
	own->bytes = own->user_bytes = chunk->bytes;
	return own;
}

/* The chunk, and the lease that it is in now. */
static gpumem_status piece_find(struct gm_session *session, uint64_t lease_id, uint64_t chunk_id,
	struct gm_lease **ret_lease, struct gm_chunk **ret_chunk, char detail[GM_DETAIL_BYTES])
{
	struct gm_env *env = &session->core->env;
	struct gm_lease *lease = gm_session_find_lease(session, lease_id);
	struct gm_chunk *chunk = NULL;

	if (chunk_id)
		HASH_FIND(hh, *gm_env_chunks(env, chunk_id), &chunk_id, sizeof(chunk_id), chunk);
	else if (lease && lease->chunks && !lease->chunks->next)
		chunk = lease->chunks;
	/* The client may not have heard yet that the chunk is a lease of its own. */
	if (chunk && chunk->lease && chunk->lease->origin)
		lease = chunk->lease;
	if (!chunk || !lease || chunk->lease != lease || chunk->marked || lease->maker != session)
		return gm_text_refuse(GPUMEM_E_NOT_FOUND, detail,
			"this client has no such chunk in that lease, or did not make the lease");
	*ret_lease = lease;
	*ret_chunk = chunk;
	return GPUMEM_OK;
}

/* The lease that has the chunk for itself, which may be made now. */
static gpumem_status piece_lease(struct gm_session *session, uint64_t lease_id, uint64_t chunk_id,
	struct gm_lease **ret_lease, char detail[GM_DETAIL_BYTES])
{
	struct gm_lease *lease;
	struct gm_chunk *chunk;
	gpumem_status status = piece_find(session, lease_id, chunk_id, &lease, &chunk, detail);
	if (status != GPUMEM_OK)
		return status;

	if (chunk_id && !lease->origin) {
		if (!gm_lease_is_alone(lease, session) || lease->signals)
			return gm_text_refuse(GPUMEM_E_BUSY, detail,
				"the lease is shared itself, so its chunks stay in it");
		if (gm_session_full(session, detail))
			return GPUMEM_E_LIMIT;
		lease = piece_split(lease, chunk);
	}
	if (!lease)
		return gm_text_refuse(GPUMEM_E_HOST_MEMORY, detail, "the daemon has no memory");
	*ret_lease = lease;
	return GPUMEM_OK;
}

/* Ends what the same packet shared when it was here before: nobody got that token. */
static void piece_forget(struct gm_session *session, const struct gm_token_chunks *what)
{
	struct gm_lease *leases[GM_TOKEN_CHUNKS_MOST], *lease;
	char unsaid[GM_DETAIL_BYTES];
	struct gm_chunk *chunk;
	size_t n = 0, k;

	assert(what->n <= GM_TOKEN_CHUNKS_MOST);
	for (size_t i = 0; i < what->n; i++) {
		if (piece_find(session, what->leases[i], what->chunks[i], &lease, &chunk, unsaid) !=
			GPUMEM_OK)
			continue;
		/* Each lease once: one alone may have all shares of the client, and be named each time. */
		for (k = 0; k < n && leases[k] != lease; k++)
			;
		if (k < n)
			continue;
		leases[n++] = lease;
		gm_token_forget(lease, what->asked);
	}
}

/* Whether the session made the token, so that it may add to it. */
static bool piece_is_token_of(const struct gm_session *session, const uint8_t token[GM_TOKEN_BYTES])
{
	struct gm_token_hash hash = gm_token_hash_make(&session->core->token_key, token);
	const struct gm_token *share = gm_token_find(session->core, &hash);

	return share && share->lease->maker == session;
}

/* Ends those of the token from index first to index end, without end itself. */
static void piece_end(const struct gm_session *session, const uint8_t token[GM_TOKEN_BYTES],
	uint64_t first, uint64_t end)
{
	for (uint64_t i = first; i < end; i++) {
		struct gm_token_hash hash =
			gm_token_hash_piece(&session->core->token_key, token, (uint32_t)i);
		struct gm_token *share = gm_token_find(session->core, &hash);
		if (share && share->lease->maker == session)
			gm_token_end(share);
	}
}

/* Shares the next chunk. */
static gpumem_status piece_share(struct gm_session *session, const struct gm_token_chunks *what,
	const uint8_t token[GM_TOKEN_BYTES], const uint64_t *leases, char detail[GM_DETAIL_BYTES])
{
	size_t i = what->n_shared;
	struct gm_lease *lease = gm_session_find_lease(session, leases[i]);
	struct gm_token_hash hash =
		gm_token_hash_piece(&session->core->token_key, token, what->first + (uint32_t)i);

	if (!lease || lease->maker != session)
		return gm_text_refuse(GPUMEM_E_NOT_FOUND, detail,
			"this client has returned a chunk while it was being shared");
	/* A token has one chunk at an index: else none of them could be ended for good. */
	piece_end(session, token, what->first + i, what->first + i + 1);
	if (!gm_token_has_room(session, 1)) {
		gm_session_say_share_limit(session, detail);
		return GPUMEM_E_LIMIT;
	}
	gpumem_status status = gm_token_make(lease, &hash, &piece_options, what->asked);
	return status == GPUMEM_OK ? status
				   : gm_text_refuse(status, detail, "the daemon has no memory");
}

/* Checks what can be checked before anything changes. */
static gpumem_status piece_begin(struct gm_session *session, const struct gm_token_chunks *what,
	uint8_t token[GM_TOKEN_BYTES], char detail[GM_DETAIL_BYTES])
{
	struct gm_core *core = session->core;

	if (what->first && !piece_is_token_of(session, token))
		return gm_text_refuse(GPUMEM_E_NOT_FOUND, detail, "this client has no such token");
	/* Else some could not be ended by the token. */
	if (what->first + what->n > GM_BOUND_SHARES_PER_CLIENT)
		return gm_text_refuse(GPUMEM_E_LIMIT, detail, "a token has at most %d chunks",
			GM_BOUND_SHARES_PER_CLIENT);
	/* Else the client would be refused because of shares that it does not know of. */
	if (what->again && what->asked)
		piece_forget(session, what);
	if (!gm_token_has_room(session, what->n)) {
		gm_session_say_share_limit(session, detail);
		return GPUMEM_E_LIMIT;
	}
	if (!what->first)
		core->env.ops.random(core->env.ctx, token, GM_TOKEN_BYTES);
	return GPUMEM_OK;
}

bool gm_session_share_some(struct gm_session *session, struct gm_token_chunks *what,
	uint8_t token[GM_TOKEN_BYTES], uint64_t *ret_leases, gpumem_status *ret_status,
	char detail[GM_DETAIL_BYTES])
{
	gpumem_status status = GPUMEM_OK;
	struct gm_lease *lease = NULL;
	unsigned slice = GM_TOKEN_SLICE;

	if (!what->begun) {
		memset(ret_leases, 0, what->n * sizeof(ret_leases[0]));
		status = piece_begin(session, what, token, detail);
		what->begun = true;
	} else if (what->first && !piece_is_token_of(session, token)) {
		status = gm_text_refuse(GPUMEM_E_NOT_FOUND, detail,
			"this client ended the token while chunks were being added to it");
		piece_end(session, token, what->first, what->first + what->n_shared);
	}
	for (; status == GPUMEM_OK && what->n_split < what->n && slice > 0; slice--) {
		size_t i = what->n_split;
		status = piece_lease(session, what->leases[i], what->chunks[i], &lease, detail);
		if (status == GPUMEM_OK)
			ret_leases[what->n_split++] = lease->id;
	}
	for (; status == GPUMEM_OK && what->n_shared < what->n && slice > 0; slice--) {
		status = piece_share(session, what, token, ret_leases, detail);
		if (status != GPUMEM_OK)
			piece_end(session, token, what->first, what->first + what->n_shared);
		else
			what->n_shared++;
	}
	if (status == GPUMEM_OK && what->n_shared < what->n)
		return true;
	if (status == GPUMEM_OK)
		GM_STEP("piece: shared");
	*ret_status = status;
	return false;
}

bool gm_session_unshare_some(
	struct gm_session *session, const uint8_t token[GM_TOKEN_BYTES], uint32_t *at, uint32_t n)
{
	uint32_t end = (uint32_t)gm_u64_min(n, GM_BOUND_SHARES_PER_CLIENT);
	uint32_t next = (uint32_t)gm_u64_min(*at + GM_TOKEN_SLICE, end);

	piece_end(session, token, *at, next);
	*at = next;
	return next < end;
}

gpumem_status gm_session_return_piece(
	struct gm_session *session, uint64_t origin, uint64_t id, uint64_t index)
{
	struct gm_env *env = &session->core->env;
	struct gm_chunk *chunk;

	HASH_FIND(hh, *gm_env_chunks(env, id), &id, sizeof(id), chunk);
	struct gm_lease *lease = chunk ? chunk->lease : NULL;
	/* It may have come back since, and left another lease. A client that has opened the lease, too, knows it. */
	if (!lease || !origin || lease->origin != origin || lease->maker != session ||
		chunk->index != index || lease->own.count != 1 || lease->own.opens)
		return GPUMEM_E_NOT_FOUND;
	gm_lease_return(session, lease);
	return GPUMEM_OK;
}
