/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases: chunks granted for one purpose, and their holders. This file promises that an index is
 * never used twice in a lease, that its maker or the maker's orphaned account pays for all of it, and that
 * chunks reach the pool only when every holder said that it unmapped them, and nobody was seen to
 * have them. It must never decide
 * whether a client may have memory: that was decided before chunks come here.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/lease_private.h"
#include "daemon/lease/orphan_chunk.h"
#include "daemon/lease/lease_token_private.h"
#include "daemon/lease/name_private.h"
#include "daemon/lease/control_block.h"
#include "daemon/lease/metadata_private.h"
#include "daemon/lease/commit.h"
#include "daemon/queue/queue.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/step.h"
#include "common/zeroed.h"
#include "daemon/reclaim/reclaim_run.h"
#include "daemon/device/reserve.h"
#include "daemon/queue/queue_deadlock.h"
#include "daemon/reclaim/reclaim_backoff.h"

/* ---- life */

static bool lease_is_kept(const struct gm_lease *lease)
{
	return lease->refs || lease->name;
}

struct gm_lease *gm_lease_new(struct gm_core *core, uint64_t id, struct gm_session *maker,
	struct gm_orphan *orphan, struct gm_device *device, enum gm_transport transport,
	const char *tag)
{
	const struct gm_env *env = device->env;
	struct gm_lease *lease = gm_zeroed(sizeof(*lease));
	if (!lease)
		return NULL;

	lease->id = id ? id : env->ops.new_id(env->ctx);
	lease->core = core;
	lease->device = device;
	lease->transport = transport;
	lease->domain = maker ? maker->info.domain : GM_DOMAIN_NOBODY;
	lease->reusable = maker && maker->info.pooling;
	lease->word = -1;
	lease->maker = maker;
	lease->orphan = gm_orphan_ref(orphan);
	if (tag)
		memcpy(lease->tag, tag, strnlen(tag, GM_BOUND_NAME_BYTES));
	return lease;
}

void gm_lease_free(struct gm_lease *lease)
{
	if (!lease)
		return;
	assert(!lease->refs && !lease->chunks && !lease->shares && !lease->name);
	assert(!lease->draft && !lease->metadata);
	gm_control_block_drop(lease);
	gm_orphan_unref(lease->orphan);
	gm_orphan_map_unref(lease->map);
	free(lease);
}

static int lease_hold_add(struct gm_lease *lease, struct gm_session *session, struct gm_ref *ref)
{
	ref->lease_id = lease->id;
	ref->lease = lease;
	ref->session = session;
	HASH_ADD(hh, session->refs, lease_id, sizeof(ref->lease_id), ref);
	if (!GM_TABLE_ADDED(ref))
		return -ENOMEM;
	DL_APPEND(lease->refs, ref);
	return 0;
}

int gm_lease_begin(struct gm_lease *lease)
{
	int r = lease_hold_add(lease, lease->maker, &lease->own);
	if (r == 0) {
		lease->own.count = lease->made = 1;
		lease->core->n_leases++;
		lease->maker->n_made++;
		gm_lease_count_bare(lease->maker);
	}
	return r;
}

uint64_t gm_lease_append(struct gm_lease *lease, struct gm_chunk *chunks, uint64_t user_bytes)
{
	uint64_t first = lease->next_index;
	lease->grants++;
	if (chunks->asked > lease->maker->last_asked)
		lease->maker->last_asked = chunks->asked;
	struct gm_chunk *chunk;
	struct gm_orphan_map *map = gm_orphan_map_of(lease->maker, lease->device);
	if (!lease->chunks && chunks)
		gm_lease_uncount_bare(lease->maker);
	DL_FOREACH (chunks, chunk) {
		gm_orphan_map_watch(chunk, lease->transport == GM_TRANSPORT_FD ? map : NULL);
		assert(chunk->state == GM_CHUNK_LEASED && !chunk->lease);
		chunk->lease = lease;
		chunk->request = NULL;
		chunk->domain = lease->domain;
		chunk->payer_uid = lease->orphan->info.payer_uid;
		chunk->index = lease->next_index++;
		lease->bytes += chunk->bytes;
	}
	DL_CONCAT(lease->chunks, chunks);
	lease->user_bytes += user_bytes;
	return first;
}

/* ---- holders */

static struct gm_ref *lease_hold_of(const struct gm_session *session, uint64_t id)
{
	struct gm_ref *ref;
	HASH_FIND(hh, session->refs, &id, sizeof(id), ref);
	return ref;
}

struct gm_ref *gm_lease_find_ref(const struct gm_lease *lease, const struct gm_session *session)
{
	/* Most leases have one holder, and it made them. */
	if (lease->maker == session && lease->own.lease)
		return (struct gm_ref *)&lease->own;
	return lease_hold_of(session, lease->id);
}

int gm_lease_join(struct gm_lease *lease, struct gm_session *session, struct gm_ref *ref)
{
	int r = lease_hold_add(lease, session, ref);
	if (r < 0)
		return r;

	if (session->info.domain != lease->domain)
		lease->across = true;
	if (lease->across || !session->info.pooling)
		lease->reusable = false;
	return 0;
}

struct gm_account *gm_lease_payer_account(const struct gm_lease *lease)
{
	struct gm_session *maker = gm_lease_maker(lease);

	return maker ? gm_session_account(maker, lease->device)
		     : gm_orphan_account(lease->orphan, lease->device);
}

void gm_lease_adopt_chunk(struct gm_lease *lease, struct gm_chunk *chunk)
{
	if (!lease->chunks && lease->maker)
		gm_lease_uncount_bare(lease->maker);
	chunk->domain = lease->domain;
	chunk->lease = lease;
	if (lease->maker)
		gm_orphan_map_watch(chunk, gm_orphan_map_of(lease->maker, lease->device));
	DL_APPEND(lease->chunks, chunk);
	lease->bytes += chunk->bytes;
	if (lease->maker && lease->maker->last_asked < chunk->asked)
		lease->maker->last_asked = chunk->asked;
	gm_ledger_adopt(&lease->device->ledger, gm_lease_payer_account(lease), chunk->bytes);
}

static void lease_release(
	struct gm_lease *lease, struct gm_chunk *chunk, struct gm_account *account, bool reusable)
{
	struct gm_device *device = lease->device;
	/* A session that has ended may have been asked for what comes back now. */
	struct gm_account *asked =
		lease->maker ? gm_session_account(lease->maker, device) : account;
	DL_DELETE(lease->chunks, chunk);
	chunk->prev = chunk->next = NULL;
	assert(lease->bytes >= chunk->bytes);
	lease->bytes -= chunk->bytes;

	chunk->several = lease->across;
	if (lease->map)
		gm_orphan_map_watch(chunk, lease->map);
	if (gm_orphan_chunk_in_use(device, chunk)) {
		/* Nothing came back, whatever the client says. */
		gm_orphan_chunk_begin(device, chunk, account, lease->orphan);
		return;
	}

	GM_STEP("return: begun");
	gm_env_erase(device->env, &chunk->place);
	GM_STEP("return: chunk's record erased");
	if (asked->asked.owing) {
		gm_reclaim_backoff_returned(device, asked, chunk->bytes);
		reusable = !gm_reclaim_returned(device, asked, chunk->bytes) && reusable;
	}
	gm_queue_deadlock_returned(device, account);
	if (gm_device_release(device, chunk, account, reusable))
		device->pool.returns++;
}

/* The chunk to be released next: one that the client has returned, if there are any. */
static struct gm_chunk *lease_pick(struct gm_lease *lease)
{
	struct gm_chunk *chunk = lease->leaving;
	if (!chunk)
		return lease->chunks;

	lease->leaving = chunk->leaving_next;
	if (!lease->leaving)
		lease->leaving_last = NULL;
	chunk->marked = false;
	return chunk;
}

/* If the client gave up on a resize, it returns the chunks that came with it. Then the size from before
 * holds again. */
static void lease_clamp(struct gm_lease *lease)
{
	if (lease->user_bytes <= lease->bytes)
		return;
	lease->user_bytes =
		lease->size_before ? gm_u64_min(lease->size_before, lease->bytes) : lease->bytes;
	lease->size_before = 0;
	gm_commit_lease(lease);
}

static void lease_count_leaving(struct gm_lease *lease, bool leaving)
{
	if (lease->counted == leaving)
		return;
	lease->counted = leaving;
	lease->maker->n_leaving += leaving ? 1 : -UINT64_C(1);
}

/* Releases chunks that the client has returned, of a lease that somebody holds. Returns whether
 * there are more. */
static bool lease_release_leaving(struct gm_lease *lease, uint64_t *slice)
{
	bool had = lease->chunks;
	for (; lease->leaving && *slice > 0; --*slice)
		lease_release(
			lease, lease_pick(lease), gm_lease_payer_account(lease), lease->reusable);
	lease_clamp(lease);
	if (lease->maker) {
		lease_count_leaving(lease, lease->leaving);
		if (had && !lease->chunks)
			gm_lease_count_bare(lease->maker);
		gm_session_changed(lease->maker, lease->device);
	}
	return lease->leaving;
}

void gm_lease_hand_over(struct gm_session *session)
{
	for (const struct gm_ref *ref = session->refs; ref; ref = ref->hh.next)
		if (ref->lease->counted && ref->lease->maker == session)
			gm_orphan_work_add_lease(ref->lease);
}

/* Releases chunks of a lease that nobody holds, and frees the lease with its last one. Returns false
 * if the slice is used up first. */
static bool lease_end(struct gm_lease *lease, struct gm_account *account, uint64_t *slice)
{
	for (; lease->chunks; --*slice) {
		if (*slice == 0)
			return false;
		lease_release(lease, lease_pick(lease), account, lease->reusable);
	}
	gm_metadata_drop(lease);
	gm_env_erase(lease->device->env, &lease->place);
	GM_STEP("return: lease's record erased");
	gm_lease_free(lease);
	return true;
}

void gm_lease_end_unheld(struct gm_lease *lease)
{
	uint64_t all = UINT64_MAX;
	assert(!lease->refs);
	lease->core->n_leases--;
	lease_end(lease, gm_lease_payer_account(lease), &all);
}

void gm_lease_settle(struct gm_lease *lease, uint64_t *slice)
{
	struct gm_device *device = lease->device;
	if (lease_is_kept(lease))
		return;

	lease->core->n_leases--;
	gm_orphan_work_remove_lease(lease);
	if (!lease_end(lease, gm_lease_payer_account(lease), slice))
		gm_orphan_work_add_lease(lease);
	gm_reserve_settle(device);
}

bool gm_lease_end_some(struct gm_lease *lease, uint64_t *slice)
{
	if (lease_is_kept(lease))
		return lease_release_leaving(lease, slice);
	return !lease_end(lease, gm_orphan_account(lease->orphan, lease->device), slice);
}

void gm_lease_drop_some(struct gm_ref *ref, bool died, uint64_t *slice)
{
	struct gm_lease *lease = ref->lease;
	struct gm_session *session = ref->session;
	bool made = lease->maker == session, had = lease->chunks;
	bool alone = made && lease->refs == ref && !ref->next && !lease->name;

	if (died)
		gm_lease_spoil(lease);
	gm_ref_end_some(ref, slice);
	if (made)
		gm_token_end_some(lease, slice);
	/* As long as the maker has the lease, what comes back counts for what it was asked for. */
	for (; alone && lease->chunks && *slice > 0; --*slice)
		lease_release(
			lease, lease_pick(lease), gm_lease_payer_account(lease), lease->reusable);
	if (alone && had && !lease->chunks)
		gm_lease_count_bare(session);
	if (!ref->opens && !(made && lease->shares) && !(alone && lease->chunks))
		gm_lease_drop(lease, ref, died, slice);
}

/* The maker has left the lease. */
static void lease_tell_openers(const struct gm_lease *lease)
{
	const struct gm_env *env = lease->device->env;
	const struct gm_ref *ref;

	if (!lease->signals || !env->ops.maker_left)
		return;
	DL_FOREACH (lease->refs, ref)
		env->ops.maker_left(env->ctx, ref->session);
}

void gm_lease_drop(struct gm_lease *lease, struct gm_ref *ref, bool died, uint64_t *slice)
{
	struct gm_session *session = ref->session;
	struct gm_device *device = lease->device;
	struct gm_account *account = gm_lease_payer_account(lease);
	bool made = lease->maker == session;

	if (made && !lease->chunks)
		gm_lease_uncount_bare(session);
	if (!made)
		gm_name_reader_left(lease, ref);
	gm_ref_end_all(ref);
	if (made) {
		gm_lease_cancel_grows(session, lease);
		gm_token_end_all(lease);
		gm_metadata_drop_draft(lease);
		lease_count_leaving(lease, false);
		session->n_made--;
		session->core->n_outgoing -= session->payer.ending;
		lease->maker = NULL;
		lease->n_opens -= ref->count - 1;
	} else {
		lease->n_opens -= ref->count;
	}
	DL_DELETE(lease->refs, ref);
	HASH_DEL(session->refs, ref);
	if (ref != &lease->own)
		free(ref);
	if (made)
		lease_tell_openers(lease);
	if (died)
		lease->reusable = false;
	/* A name may have had readers before. */
	if (!made && !lease->refs && lease->transport == GM_TRANSPORT_FD) {
		gm_orphan_map_unref(lease->map);
		lease->map = gm_orphan_map_of_opener(device, session, lease->orphan);
	}

	if (!lease_is_kept(lease)) {
		lease->core->n_leases--;
		gm_orphan_work_remove_lease(lease);
		if (lease_end(lease, account, slice))
			lease = NULL;
	}
	if (made && lease) {
		struct gm_account *payer = gm_lease_payer_account(lease);
		if (payer != account)
			gm_ledger_move(&device->ledger, account, payer, lease->bytes);
		gm_commit_lease(lease);
	}
	if (lease && (!lease_is_kept(lease) || lease->leaving))
		gm_orphan_work_add_lease(lease);
	if (made)
		gm_session_changed(session, device);
}

void gm_lease_spoil(struct gm_lease *lease)
{
	lease->reusable = false;
}

/* ---- the daemon's side */

struct gm_lease *gm_session_find_lease(struct gm_session *session, uint64_t lease)
{
	const struct gm_ref *ref = lease_hold_of(session, lease);
	return ref ? ref->lease : NULL;
}

bool gm_session_maker_holds(const struct gm_session *session, uint64_t lease)
{
	const struct gm_ref *ref = lease_hold_of(session, lease);
	return ref && gm_lease_maker(ref->lease);
}

struct gm_lease *gm_session_next_lease(struct gm_session *session, struct gm_lease *after)
{
	struct gm_ref *ref = session->refs;
	if (after) {
		ref = gm_lease_find_ref(after, session);
		ref = ref ? ref->hh.next : NULL;
	}
	return ref ? ref->lease : NULL;
}

uint64_t gm_session_lease_count(const struct gm_session *session)
{
	return HASH_COUNT(session->refs);
}

uint64_t gm_session_refusal_count(const struct gm_session *session)
{
	return session->n_refused;
}

uint64_t gm_session_waiting_count(const struct gm_session *session)
{
	return session->payer.n_waiting;
}

uint64_t gm_lease_id(const struct gm_lease *lease)
{
	return lease->id;
}

void gm_lease_info(
	const struct gm_lease *lease, const struct gm_session *session, struct gm_lease_info *ret)
{
	const struct gm_ref *ref = session ? gm_lease_find_ref(lease, session) : NULL;
	*ret = (struct gm_lease_info){
		.id = lease->id,
		.device = lease->device->number,
		.transport = lease->transport,
		.bytes = lease->bytes,
		.user_bytes = lease->user_bytes,
		.read_only = ref ? ref->read_only : true,
		.version = lease->version,
		.signals = lease->word >= 0,
		.word = lease->word,
		.made = gm_lease_maker(lease),
		.piece = lease->origin && lease->maker == session,
		.tag = lease->tag,
	};
}

const struct gm_chunk *gm_lease_chunk(const struct gm_lease *lease, uint64_t from)
{
	struct gm_chunk *chunk = lease->chunks;
	if (!chunk || chunk->index >= from)
		return chunk;
	struct gm_chunk *last = chunk->prev;
	if (last->index < from)
		return NULL;

	/* Starts at the nearer end, so that new chunks are found at once however long the lease is.
	 */
	if (last->index - from < from - chunk->index) {
		while (last->prev->index >= from)
			last = last->prev;
		return last;
	}
	while (chunk->index < from)
		chunk = chunk->next;
	return chunk;
}

const struct gm_chunk *gm_lease_chunk_after(
	const struct gm_lease *lease, uint64_t id, uint64_t from)
{
	struct gm_chunk *chunk = NULL;
	if (id)
		HASH_FIND(hh, *gm_env_chunks(lease->device->env, id), &id, sizeof(id), chunk);
	if (chunk && chunk->lease == lease)
		return chunk->next;
	return gm_lease_chunk(lease, from);
}

/* Takes back the marks of all chunks behind this one; NULL: of all. */
static void lease_unmark(struct gm_lease *lease, struct gm_chunk *before)
{
	struct gm_chunk **end = before ? &before->leaving_next : &lease->leaving;
	for (struct gm_chunk *chunk = *end; chunk; chunk = chunk->leaving_next)
		chunk->marked = false;
	*end = NULL;
	lease->leaving_last = before;
}

/* Marks the chunks as returned, all or none of them. A pooled chunk keeps its id when it is leased again, but
 * no index is given twice in a lease. */
static gpumem_status lease_mark(
	struct gm_lease *lease, const uint64_t *ids, const uint64_t *indexes, size_t n)
{
	struct gm_env *env = lease->device->env;
	struct gm_chunk *before = lease->leaving_last;

	for (size_t i = 0; i < n; i++) {
		struct gm_chunk *chunk;
		HASH_FIND(hh, *gm_env_chunks(env, ids[i]), &ids[i], sizeof(ids[i]), chunk);
		if (!chunk || chunk->lease != lease || chunk->marked ||
			(indexes && chunk->index != indexes[i])) {
			lease_unmark(lease, before);
			return GPUMEM_E_NOT_FOUND;
		}
		chunk->marked = true;
		chunk->leaving_next = NULL;
		if (lease->leaving_last)
			lease->leaving_last->leaving_next = chunk;
		else
			lease->leaving = chunk;
		lease->leaving_last = chunk;
	}
	return GPUMEM_OK;
}

bool gm_lease_is_leaving(const struct gm_lease *lease)
{
	return lease->leaving;
}

bool gm_lease_return_more(struct gm_session *session, struct gm_lease *lease)
{
	struct gm_device *device = lease->device;
	uint64_t slice = gm_orphan_work_slice(lease->device->env);
	if (!lease->leaving || lease->maker != session)
		return false;

	gm_env_enter(device->env);
	bool more = lease_release_leaving(lease, &slice);
	gm_reserve_settle(device);
	gm_env_leave(device->env);
	return more;
}

bool gm_lease_is_alone(const struct gm_lease *lease, const struct gm_session *session)
{
	return lease->maker == session && lease->refs == &lease->own && !lease->own.next &&
	       lease->own.count == 1 && !lease->shares && !lease->name;
}

gpumem_status gm_lease_set_size(struct gm_session *session, struct gm_lease *lease,
	uint64_t user_bytes, char detail[GM_DETAIL_BYTES])
{
	uint64_t before = lease->user_bytes;

	if (lease->maker != session)
		return gm_text_refuse(
			GPUMEM_E_DENIED, detail, "only the client that made a lease can resize it");
	if (lease->name)
		return gm_text_refuse(GPUMEM_E_BUSY, detail,
			"the buffer is published as %s, so it stays as it is: unpublish it "
			"first",
			lease->name->text);
	if (!gm_lease_is_alone(lease, session))
		return gm_text_refuse(GPUMEM_E_BUSY, detail, GM_LEASE_NOT_ALONE);
	if (user_bytes == 0 || user_bytes > lease->bytes)
		return gm_text_refuse(GPUMEM_E_INVALID, detail,
			"a lease of %llu bytes cannot have a size of %llu",
			(unsigned long long)lease->bytes, (unsigned long long)user_bytes);

	lease->user_bytes = user_bytes;
	lease->size_before = 0;
	if (before != user_bytes && gm_commit_lease(lease) < 0) {
		lease->user_bytes = before;
		return gm_text_refuse(GPUMEM_E_HOST_MEMORY, detail,
			"the daemon's ledger has no room; return some memory");
	}
	return GPUMEM_OK;
}

gpumem_status gm_lease_return_chunks(
	struct gm_session *session, struct gm_lease *lease, const uint64_t *ids, size_t n)
{
	return gm_lease_return_chunks_at(session, lease, ids, NULL, n);
}

gpumem_status gm_lease_return_chunks_at(struct gm_session *session, struct gm_lease *lease,
	const uint64_t *ids, const uint64_t *indexes, size_t n)
{
	if (!gm_lease_find_ref(lease, session))
		return GPUMEM_E_NOT_FOUND;
	if (!gm_lease_is_alone(lease, session))
		return GPUMEM_E_BUSY;

	gpumem_status status = lease_mark(lease, ids, indexes, n);
	if (status == GPUMEM_OK)
		gm_lease_return_more(session, lease);
	return status;
}

/* Whether there may be more chunks than are released in one go. The last one never counts as more.
 */
static bool lease_is_long(const struct gm_lease *lease)
{
	return lease->bytes > gm_orphan_work_slice(lease->device->env) * GM_CHUNK_MIN &&
	       lease->chunks->next;
}

bool gm_lease_return_some(struct gm_session *session, struct gm_lease *lease)
{
	struct gm_device *device = lease->device;
	const struct gm_ref *ref = gm_lease_find_ref(lease, session);
	if (!ref || ref->count > 1 || lease->refs != ref || ref->next || lease->name ||
		!lease_is_long(lease))
		return false;

	gm_env_enter(device->env);
	/* Nobody may open what is going away. */
	if (lease->maker == session) {
		gm_lease_cancel_grows(session, lease);
		gm_token_end_all(lease);
	}
	for (uint64_t slice = gm_orphan_work_slice(lease->device->env);
		slice > 0 && lease_is_long(lease); slice--)
		lease_release(
			lease, lease_pick(lease), gm_lease_payer_account(lease), lease->reusable);
	lease_clamp(lease);
	if (lease->maker)
		lease_count_leaving(lease, lease->leaving);
	bool more = lease_is_long(lease);
	gm_session_changed(session, device);
	gm_reserve_settle(device);
	gm_env_leave(device->env);
	return more;
}

bool gm_lease_has_view(
	const struct gm_session *session, const struct gm_lease *lease, uint64_t view)
{
	const struct gm_ref *ref = gm_lease_find_ref(lease, session);
	return ref && gm_ref_has(ref, view);
}

void gm_lease_return(struct gm_session *session, struct gm_lease *lease)
{
	gm_lease_return_view(session, lease, 0);
}

void gm_lease_return_view(struct gm_session *session, struct gm_lease *lease, uint64_t view)
{
	struct gm_device *device = lease->device;
	struct gm_ref *ref = gm_lease_find_ref(lease, session);
	if (!ref || !gm_ref_has(ref, view))
		return;
	if (ref->count > 1) {
		gm_ref_end_one(ref, view);
		return;
	}

	gm_env_enter(device->env);
	uint64_t slice = gm_orphan_work_slice(device->env);
	gm_lease_drop(lease, ref, false, &slice);
	gm_reserve_settle(device);
	gm_env_leave(device->env);
}

void gm_lease_cancel_grows(struct gm_session *session, struct gm_lease *lease)
{
	struct gm_request *request = session->payer.pending;
	while (request) {
		if (request->lease == lease) {
			gm_request_fail(request, GPUMEM_E_CANCELLED, "the lease was returned");
			/* done() may have changed the list. */
			request = session->payer.pending;
		} else {
			request = request->next;
		}
	}
}
