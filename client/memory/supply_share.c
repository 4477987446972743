/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shares chunks of a heap. The daemon makes each a lease of its own (daemon/lease/piece.c), and the heap
 * goes on using it. If the answer is lost for good, nobody here knows whether the chunk has left its lease. It is
 * then given back as if it were there: the daemon knows it by its index.
 *
 * Chunks of one allocation have one token. The daemon bounds tokens, so those of allocations that were
 * freed end now and then. The token of a single chunk serves all allocations in it.
 */
#include "client/memory/supply.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "client/heap/arena.h"
#include "client/memory/supply_private.h"
#include "client/session/session_call.h"
#include "common/arith.h"

/* As many as the daemon takes in one request. */
#define SHARE_MOST 256

/* ---- the request */

struct supply_call {
	struct gm_conn_request call;
	struct gm_supply *supply;
	size_t n;
	uint64_t ids[SHARE_MOST];
	struct gm_session_lease
		*leases[SHARE_MOST]; /* made for those that have none of their own */
	gpumem_token token;
	gpumem_status status;
	char detail[GM_ERROR_BYTES];
};

/* The chunk is in this lease now, whoever waits for the answer. Returns true if the chunk has taken the
 * struct over. */
static bool supply_note_lease(struct gm_supply *supply, struct gm_session_lease *lease, uint64_t id)
{
	bool taken = false;

	gm_lock(&supply->lock);
	struct gm_session_chunk *chunk = gm_supply_find(supply, id);
	if (chunk && !chunk->whole) {
		chunk->whole = lease;
		chunk->held.lease = lease->held.lease;
		lease->bytes = lease->user_bytes = chunk->bytes;
		taken = true;
	} else if (chunk) {
		lease->held.lease = 0; /* an earlier answer said the same */
	}
	gm_lock_drop(&supply->lock);
	return taken;
}

static int supply_share_take(
	struct gm_conn_request *base, const Gm__Wire__Packet *packet, struct gm_conn_packet *in)
{
	struct supply_call *call = (struct supply_call *)base;
	const Gm__Wire__ShareChunksReply *reply = packet->share_chunks_reply;
	struct gpumem_session *session = call->supply->session;

	(void)in;
	if (packet->body_case != GM__WIRE__PACKET__BODY_SHARE_CHUNKS_REPLY ||
		reply->n_leases != call->n ||
		(reply->token.len ? reply->token.len != sizeof(call->token.bytes) : !reply->status))
		return -EPROTO;

	for (size_t i = 0; i < call->n; i++) {
		struct gm_session_lease *lease = call->leases[i];
		if (!lease || !reply->leases[i])
			continue;
		gm_lock(&session->lock);
		lease->held.lease = reply->leases[i];
		lease->held.epoch = base->epoch;
		lease->next_index = 1;
		gm_lock_drop(&session->lock);
		if (supply_note_lease(call->supply, lease, call->ids[i]))
			call->leases[i] = NULL;
	}

	call->status = reply->token.len ? GPUMEM_OK : (gpumem_status)reply->status;
	if (reply->token.len)
		memcpy(call->token.bytes, reply->token.data, sizeof(call->token.bytes));
	snprintf(call->detail, sizeof(call->detail), "%s", reply->detail);
	return 0;
}

/* A lease that no chunk took goes back: the heap gave its chunk up meanwhile. */
static void supply_call_free(struct supply_call *call)
{
	if (!call)
		return;
	for (size_t i = 0; i < call->n; i++)
		if (call->leases[i])
			gm_session_lease_give(call->supply->session, call->leases[i]);
	free(call);
}

static void supply_share_late(struct gm_conn_request *base)
{
	struct supply_call *call = (struct supply_call *)base;

	for (size_t i = 0; i < call->n; i++)
		if (call->leases[i])
			gm_session_lease_give_later(call->supply->session, call->leases[i]);
	free(call);
}

static int supply_share_repeat(struct gm_conn_request *call)
{
	(void)call;
	return 0;
}

static const struct gm_conn_request_ops supply_share_ops = {
	.take = supply_share_take, .late = supply_share_late, .repeat = supply_share_repeat};

/* Fills in the leases and chunks of the request. */
static gpumem_status supply_call_prepare(
	struct supply_call *call, uint64_t epoch, uint64_t *leases, uint64_t *chunks)
{
	struct gm_supply *supply = call->supply;
	gpumem_status status = GPUMEM_OK;

	for (size_t i = 0; i < call->n && !status; i++) {
		gm_lock(&supply->lock);
		const struct gm_session_chunk *chunk = gm_supply_find(supply, call->ids[i]);
		if (!chunk)
			status = GPUMEM_E_INVALID;
		else if (chunk->held.epoch != epoch)
			status = GPUMEM_E_DISCONNECTED;
		bool whole = chunk && chunk->whole;
		leases[i] = chunk ? chunk->held.lease : 0;
		gm_lock_drop(&supply->lock);

		chunks[i] = whole ? 0 : call->ids[i];
		if (status || whole)
			continue;
		call->leases[i] = gm_session_lease_new(supply->session, supply->device,
			supply->ipc ? GM_TRANSPORT_IPC : GM_TRANSPORT_FD);
		if (!call->leases[i])
			status = GPUMEM_E_HOST_MEMORY;
	}

	if (status == GPUMEM_E_INVALID)
		return gm_error(status, "the allocation was freed while it was being shared");
	if (status == GPUMEM_E_DISCONNECTED)
		return gm_error(status,
			"gpumemd was restarted and does not know this memory: it keeps working "
			"here, but cannot be shared; allocate it again");
	return status ? gm_error(status, "no memory for a request") : GPUMEM_OK;
}

/* Shares some chunks. first: how many the token has already. */
static gpumem_status supply_share_some(struct gm_supply *supply, const uint64_t *ids, size_t n,
	uint32_t first, uint64_t epoch, gpumem_token *token)
{
	uint64_t leases[SHARE_MOST], chunks[SHARE_MOST];
	struct supply_call *call = calloc(1, sizeof(*call));
	if (!call)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a request");
	call->call.ops = &supply_share_ops;
	call->call.of_epoch = epoch;
	call->supply = supply;
	call->n = n;
	memcpy(call->ids, ids, n * sizeof(ids[0]));
	gpumem_status status = supply_call_prepare(call, epoch, leases, chunks);
	if (status) {
		supply_call_free(call);
		return status;
	}

	Gm__Wire__ShareChunks body = GM__WIRE__SHARE_CHUNKS__INIT;
	body.leases = leases;
	body.n_leases = n;
	body.chunks = chunks;
	body.n_chunks = n;
	body.first = first;
	body.token.data = token->bytes;
	body.token.len = first ? sizeof(token->bytes) : 0;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(SHARE_CHUNKS, share_chunks, &body);

	struct gm_conn_request *base = &call->call;
	status = gm_session_call(supply->session, NULL, &packet, &base);
	call = (struct supply_call *)base;
	if (!status && call->status)
		status = gm_error(call->status, "%s", call->detail);
	if (!status)
		*token = call->token;
	supply_call_free(call);
	return status;
}

/* ---- tokens of allocations */

/* Ends the token at the daemon. */
static void supply_group_unshare(struct gm_supply *supply, struct gm_supply_group *group)
{
	Gm__Wire__Unshare body = GM__WIRE__UNSHARE__INIT;
	body.token.data = group->token.bytes;
	body.token.len = sizeof(group->token.bytes);
	body.chunks = (uint32_t)group->n;
	Gm__Wire__Packet packet = GM_WIRE_PACKET(UNSHARE, unshare, &body);

	/* If the daemon is away, the token lasts as long as its chunks. */
	(void)gm_session_tell(supply->session, NULL, &packet, group->epoch, GM_WAIT_NOT);
}

static void supply_group_end(struct gm_supply *supply, struct gm_supply_group *group)
{
	supply_group_unshare(supply, group);
	LL_DELETE(supply->groups, group);
	supply->n_groups--;
	free(group);
}

/* Whether the heap still has all chunks, as they were shared. */
static bool supply_group_whole(struct gm_supply *supply, const struct gm_supply_group *group)
{
	bool whole = true;

	gm_lock(&supply->lock);
	for (size_t i = 0; i < group->n && whole; i++) {
		const struct gm_session_chunk *chunk = gm_supply_find(supply, group->members[i].id);
		whole = chunk && chunk->whole && chunk->held.lease == group->members[i].lease;
	}
	gm_lock_drop(&supply->lock);
	return whole;
}

/* Notes in which leases the chunks are now. */
static void supply_group_note(struct gm_supply *supply, struct gm_supply_group *group)
{
	gm_lock(&supply->lock);
	for (size_t i = 0; i < group->n; i++) {
		const struct gm_session_chunk *chunk = gm_supply_find(supply, group->members[i].id);
		group->members[i].lease = chunk && chunk->whole ? chunk->held.lease : 0;
	}
	gm_lock_drop(&supply->lock);
}

/* Whether the heap still has all chunks, and, unless it is one, the allocation. */
static bool supply_group_lives(
	struct gm_supply *supply, struct gm_arena *arena, const struct gm_supply_group *group)
{
	uint64_t size;

	return group->epoch == gm_session_epoch(supply->session) &&
	       supply_group_whole(supply, group) &&
	       (group->n == 1 ||
		       (gm_arena_size(arena, group->ptr, &size) == 0 && size == group->size));
}

/* Ends the tokens that nobody needs. */
static void supply_sweep(struct gm_supply *supply, struct gm_arena *arena)
{
	struct gm_supply_group *group, *tmp;

	LL_FOREACH_SAFE (supply->groups, group, tmp)
		if (!supply_group_lives(supply, arena, group))
			supply_group_end(supply, group);
	supply->sweep_at = gm_u64_max(2 * supply->n_groups, 64);
}

static struct gm_supply_group *supply_group_find(
	struct gm_supply *supply, const uint64_t *ids, size_t n, uint64_t epoch)
{
	struct gm_supply_group *group;
	size_t i;

	LL_FOREACH (supply->groups, group) {
		if (group->n != n || group->epoch != epoch)
			continue;
		for (i = 0; i < n && group->members[i].id == ids[i]; i++)
			;
		if (i == n && supply_group_whole(supply, group))
			return group;
	}
	return NULL;
}

static gpumem_status supply_share_all(
	struct gm_supply *supply, struct gm_supply_group *group, const uint64_t *ids)
{
	gpumem_status status = GPUMEM_OK;

	for (size_t done = 0; done < group->n && !status;) {
		size_t n = gm_u64_min(group->n - done, SHARE_MOST);
		status = supply_share_some(
			supply, ids + done, n, (uint32_t)done, group->epoch, &group->token);
		done += n;
	}
	if (!status)
		supply_group_note(supply, group);
	return status;
}

gpumem_status gm_supply_share(struct gm_supply *supply, struct gm_arena *arena,
	const struct gm_supply_shared *what, gpumem_token *ret_token)
{
	uint64_t epoch = gm_session_epoch(supply->session);
	gpumem_status status;

	gm_lock(&supply->sharing);
	struct gm_supply_group *group = supply_group_find(supply, what->ids, what->n, epoch);
	if (group) {
		*ret_token = group->token;
		gm_lock_drop(&supply->sharing);
		return GPUMEM_OK;
	}

	if (supply->n_groups >= supply->sweep_at)
		supply_sweep(supply, arena);
	group = calloc(1, sizeof(*group) + what->n * sizeof(group->members[0]));
	if (!group) {
		gm_lock_drop(&supply->sharing);
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a token");
	}
	group->epoch = epoch;
	group->ptr = what->ptr;
	group->size = what->size;
	group->n = what->n;
	for (size_t i = 0; i < what->n; i++)
		group->members[i].id = what->ids[i];
	LL_PREPEND(supply->groups, group);
	supply->n_groups++;

	status = supply_share_all(supply, group, what->ids);
	if (status == GPUMEM_E_LIMIT) {
		/* The sweep also ends what this allocation has got so far: it must not find its group. */
		supply_group_unshare(supply, group);
		LL_DELETE(supply->groups, group);
		supply_sweep(supply, arena);
		LL_PREPEND(supply->groups, group);
		status = supply_share_all(supply, group, what->ids);
	}
	if (!status)
		*ret_token = group->token;
	else
		supply_group_end(supply, group);
	gm_lock_drop(&supply->sharing);
	return status;
}
