/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A heap's chunks. The heap knows only ids. This file knows the lease of each chunk, because after
 * a restart of the daemon the heap has chunks of the old, lost lease beside chunks of a new one.
 *
 * The first request of an epoch makes the lease; all others grow it. Several threads may grow it at
 * once, but only one makes it. On the ipc transport a lease is one chunk and cannot grow, so there
 * each chunk is a lease of its own. So is each chunk that was shared (supply_share.c).
 */
#include "client/memory/supply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "client/buffer/buffer.h"
#include "client/memory/supply_private.h"
#include "client/session/reconnect.h"
#include "client/grant/session_ask.h"
#include "client/grant/session_lease.h"
#include "common/arith.h"
#include "common/cleanup.h"

int gm_supply_new(
	struct gpumem_session *session, uint32_t device, bool ipc, struct gm_supply **ret_supply)
{
	struct gm_supply *supply = calloc(1, sizeof(*supply));
	if (!supply)
		return -ENOMEM;
	supply->session = session;
	supply->device = device;
	supply->ipc = ipc;
	supply->sweep_at = 64;
	gm_lock_init(&supply->making, GM_LOCK_MAKING);
	gm_lock_init(&supply->sharing, GM_LOCK_SHARING);
	gm_lock_init(&supply->lock, GM_LOCK_LEAF);
	*ret_supply = supply;
	return 0;
}

void gm_supply_free(struct gm_supply *supply)
{
	struct gm_supply_group *group, *tmp;

	if (!supply)
		return;
	for (size_t i = 0; i < GM_SUPPLY_BUCKETS; i++)
		gm_session_chunks_free(supply->chunks[i]);
	LL_FOREACH_SAFE (supply->groups, group, tmp)
		free(group);
	gm_lock_deinit(&supply->making);
	gm_lock_deinit(&supply->sharing);
	gm_lock_deinit(&supply->lock);
	free(supply);
}

static struct gm_session_chunk **supply_bucket(struct gm_supply *supply, uint64_t id)
{
	return &supply->chunks[(id * UINT64_C(0x9e3779b97f4a7c15)) >> 54];
}

struct gm_session_chunk *gm_supply_find(struct gm_supply *supply, uint64_t id)
{
	struct gm_session_chunk *chunk;

	LL_SEARCH_SCALAR(*supply_bucket(supply, id), chunk, held.chunk, id);
	return chunk;
}

/* The lease to grow, or NULL if there is none in this epoch. */
static struct gm_session_lease *supply_current(struct gm_supply *supply)
{
	uint64_t epoch = gm_session_epoch(supply->session);
	gm_lock(&supply->lock);
	struct gm_session_lease *lease = supply->lease;
	gm_lock_drop(&supply->lock);
	return lease && lease->held.epoch == epoch ? lease : NULL;
}

/* Whether the program takes pinned host memory for what this heap is refused, and the daemon hands it out. */
static bool supply_host_will_do(const struct gm_supply *supply)
{
	const struct gpumem_session *session = supply->session;

	return session->host_will_do && supply->device < session->counted &&
	       session->counted < session->devices;
}

void gm_supply_wanted(
	struct gm_supply *supply, struct gm_supply_ask *ask, struct gm_session_ask_wanted *wanted)
{
	wanted->grown = supply->ipc ? NULL : supply_current(supply);
	wanted->what.device = supply->device;
	wanted->what.transport = supply->ipc ? GM_TRANSPORT_IPC : GM_TRANSPORT_FD;
	wanted->what.tag = "heap";
	wanted->what.host_will_do = supply_host_will_do(supply);
	ask->grown = wanted->grown;
}

/* Notes the lease of chunks that were granted: NULL if it was grown. An older lease stays in the session's
 * list, because it may have chunks and requests. */
static void supply_take_over(
	struct gm_supply *supply, struct gm_session_lease *lease, struct gm_session_chunk *chunks)
{
	if (supply->ipc) {
		chunks->whole = lease;
	} else if (lease) {
		gm_lock(&supply->lock);
		supply->lease = lease;
		gm_lock_drop(&supply->lock);
	}
}

bool gm_supply_lease_gone(struct gm_supply *supply, struct gm_supply_ask *ask, gpumem_status status)
{
	if (status != GPUMEM_E_NOT_FOUND || !ask->grown)
		return false;
	bool old = ask->grown->held.epoch != gm_session_epoch(supply->session);
	if (!old && ask->regrown)
		return false;
	ask->regrown = ask->regrown || !old;

	gm_lock(&supply->lock);
	if (supply->lease == ask->grown)
		supply->lease = NULL;
	gm_lock_drop(&supply->lock);
	return true;
}

/* Asks the daemon for chunks, without a wait for memory. Only one thread at a time makes the lease. */
static gpumem_status supply_obtain(struct gm_supply *supply, struct gm_session_ask_wanted *wanted,
	struct gm_session_chunk **ret_chunks)
{
	struct gm_supply_ask ask = {0};
	gpumem_status status;

	if (!supply->ipc)
		gm_retired_settle(supply->session, GM_RETIRED_NO_WAIT);
	do {
		struct gm_session_lease *lease = NULL;

		gm_supply_wanted(supply, &ask, wanted);
		bool makes = !wanted->grown && !supply->ipc;
		if (makes) {
			gm_lock(&supply->making);
			gm_supply_wanted(supply, &ask, wanted);
		}
		status = gm_session_ask_obtain(supply->session, wanted, &lease, ret_chunks);
		if (!status)
			supply_take_over(supply, lease, *ret_chunks);
		if (makes)
			gm_lock_drop(&supply->making);
	} while (gm_supply_lease_gone(supply, &ask, status));
	return status;
}

/* Locked. Whether the heap has one of the chunks already: using it twice would corrupt data. A
 * single grant never has a chunk twice. */
static bool supply_known(struct gm_supply *supply, struct gm_session_chunk *chunks)
{
	struct gm_session_chunk *chunk;

	LL_FOREACH (chunks, chunk)
		if (gm_supply_find(supply, chunk->held.chunk))
			return true;
	return false;
}

static void supply_give_back(struct gm_supply *supply, struct gm_session_chunk *chunks)
{
	if (supply->ipc) {
		gm_session_lease_give(supply->session, chunks->whole);
		gm_session_chunks_free(chunks);
	} else {
		gm_session_chunks_give(supply->session, chunks);
	}
}

static void supply_make_offer(struct gm_supply *supply, struct gm_session_chunk *chunks,
	struct gm_supply_offer *ret_offer)
{
	struct gm_session_chunk *chunk;

	*ret_offer = (struct gm_supply_offer){.supply = supply, .chunks = chunks};
	LL_FOREACH (chunks, chunk)
		ret_offer->bytes += chunk->bytes;
}

void gm_supply_got(struct gm_supply *supply, struct gm_session_lease *lease,
	struct gm_session_chunk *chunks, struct gm_supply_offer *ret_offer)
{
	supply_take_over(supply, lease, chunks);
	supply_make_offer(supply, chunks, ret_offer);
}

/* Whether the caller waits, behind the heap, for what the heap does not get. */
static bool supply_patient(const struct gm_supply *supply, const struct gm_supply_call *call)
{
	return call->wait_ms ? call->wait_ms != GPUMEM_NO_WAIT
			     : gm_session_wait_ms(supply->session) != 0;
}

/* By the daemon's page, which may be some milliseconds old. */
static uint64_t supply_room(void *ctx)
{
	const struct gm_supply *supply = ctx;
	const struct gm_session_pages *pages = &supply->session->pages;
	struct gm_page_device page;

	if (pages->daemon->header.version < 2 ||
		gm_session_pages_device(pages, supply->device, &page) < 0)
		return UINT64_MAX;
	return page.room;
}

static uint64_t supply_most(void *ctx)
{
	const struct gm_supply *supply = ctx;

	return gm_session_pages_most(&supply->session->pages, supply->device);
}

void gm_supply_withdraw(struct gm_supply_offer *offer)
{
	if (offer->chunks)
		supply_give_back(offer->supply, offer->chunks);
	offer->chunks = NULL;
}

/* Gets the chunks for a call: those that the call was offered, or others of the daemon. */
static gpumem_status supply_find_chunks(struct gm_supply *supply, struct gm_supply_call *call,
	uint64_t bytes, struct gm_session_chunk **ret_chunks)
{
	struct gm_supply_offer *offer = call->offer;

	call->away = false;
	if (offer) {
		if (!offer->chunks || offer->bytes < bytes)
			return gm_error(GPUMEM_E_NO_MEMORY,
				"the memory that was waited for is no longer enough");
		*ret_chunks = gm_steal_ptr(&offer->chunks);
		return GPUMEM_OK;
	}
	if (supply_patient(supply, call) && bytes > supply_room(supply))
		return gm_error(GPUMEM_E_NO_MEMORY, "there is not enough memory now");
	if (gm_reconnect_now(supply->session)) {
		call->away = true;
		return gm_reconnect_error(supply->session);
	}

	/* Other threads may rely on this request, so it must not wait inside the heap. */
	struct gm_session_ask_wanted wanted = {
		.what = {.bytes = bytes, .refused = &call->refused},
		.wait.mode = call->wait_ms == GPUMEM_NO_WAIT ? GM_WAIT_NOT : GM_WAIT_FOR_DAEMON,
	};
	return supply_obtain(supply, &wanted, ret_chunks);
}

static gpumem_status supply_get(void *ctx, struct gm_heap_source_call *base, uint64_t bytes,
	struct gm_heap_source_chunk **ret_chunks, size_t *ret_n)
{
	struct gm_supply *supply = ctx;
	struct gm_session_chunk *chunks, *chunk, *tmp;
	gpumem_status status =
		supply_find_chunks(supply, (struct gm_supply_call *)base, bytes, &chunks);

	if (status)
		return status;

	size_t n = 0;
	LL_COUNT(chunks, chunk, n);
	struct gm_heap_source_chunk *array = calloc(n, sizeof(*array));
	if (!array) {
		supply_give_back(supply, chunks);
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a list of chunks");
	}

	n = 0;
	gm_lock(&supply->lock);
	if (supply_known(supply, chunks)) {
		gm_lock_drop(&supply->lock);
		gm_session_chunks_free(chunks);
		free(array);
		return gm_error(GPUMEM_E_PROTOCOL, "gpumemd granted a chunk that is in use");
	}

	LL_FOREACH_SAFE (chunks, chunk, tmp) {
		array[n++] = (struct gm_heap_source_chunk){
			.id = chunk->held.chunk,
			.bytes = chunk->bytes,
			.fd = gm_steal_fd(&chunk->fd),
		};
		memcpy(array[n - 1].ipc, chunk->ipc, sizeof(chunk->ipc));
		LL_PREPEND(*supply_bucket(supply, chunk->held.chunk), chunk);
	}
	gm_lock_drop(&supply->lock);
	gm_session_dirty(supply->session);
	*ret_chunks = array;
	*ret_n = n;
	return GPUMEM_OK;
}

static void supply_put(void *ctx, const uint64_t *ids, size_t n)
{
	struct gm_supply *supply = ctx;
	struct gm_lease_return_item *list = NULL;
	struct gm_session_chunk *whole = NULL, *given, *tmp;

	gm_lock(&supply->lock);
	for (size_t i = 0; i < n; i++) {
		struct gm_session_chunk **from = supply_bucket(supply, ids[i]), *chunk;
		LL_SEARCH_SCALAR(*from, chunk, held.chunk, ids[i]);
		if (chunk) {
			LL_DELETE(*from, chunk);
			if (chunk->whole)
				LL_PREPEND(whole, chunk);
			else
				LL_PREPEND(list, &chunk->held);
		}
	}
	gm_lock_drop(&supply->lock);

	gm_lease_returns_send(supply->session, NULL, list);
	LL_FOREACH_SAFE (whole, given, tmp) {
		gm_session_lease_give(supply->session, given->whole);
		free(given);
	}

	gm_session_dirty(supply->session);
}

struct gm_heap_source gm_supply_source(struct gm_supply *supply)
{
	return (struct gm_heap_source){
		.ctx = supply,
		.get = supply_get,
		.room = supply_room,
		.most = supply_most,
		.put = supply_put,
	};
}
