/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds open blocks of the ipc transport by handle and by address. The driver counts openings by
 * itself and gives the same address each time. That makes the two races harmless that exist because
 * no lock is held around the driver's calls:
 *
 *   - Two threads open the same block at once. Both open it, and the later one closes its own
 *     opening again.
 *   - A thread takes a block while its last use ends. The block is opened anew; the driver may see
 *     the new opening before the close or after it, and both work.
 *
 * This module must never close a block that somebody uses, nor leave a block open that nobody uses.
 */
#include "client/map/ipc_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

struct gm_ipc_cache_block {
	uint8_t handle[GM_IPC_HANDLE_BYTES];
	uint64_t context;
	void *addr;
	unsigned uses;
	unsigned openings; /* as the driver counts them: more than one if a close failed */
	struct gm_ipc_cache_block *next_handle, *next_addr; /* in the buckets */
};

static struct gm_ipc_cache_block **ipc_cache_handle_bucket(
	struct gm_ipc_cache *cache, const uint8_t *handle)
{
	uint64_t hash = 0, word;

	for (size_t i = 0; i < GM_IPC_HANDLE_BYTES; i += sizeof(word)) {
		memcpy(&word, handle + i, sizeof(word));
		hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		hash ^= hash >> 29;
	}
	return &cache->by_handle[hash % GM_IPC_CACHE_BUCKETS];
}

static struct gm_ipc_cache_block **ipc_cache_addr_bucket(
	struct gm_ipc_cache *cache, const void *addr)
{
	return &cache->by_addr[(uintptr_t)addr / GM_CHUNK_MIN % GM_IPC_CACHE_BUCKETS];
}

/* ---- the callers of these hold the lock */

static struct gm_ipc_cache_block *ipc_cache_find(
	struct gm_ipc_cache *cache, const uint8_t *handle, uint64_t context)
{
	struct gm_ipc_cache_block *block;

	LL_FOREACH2 (*ipc_cache_handle_bucket(cache, handle), block, next_handle) {
		if (block->context == context &&
			!memcmp(block->handle, handle, GM_IPC_HANDLE_BYTES))
			return block;
	}
	return NULL;
}

static void ipc_cache_unlist(struct gm_ipc_cache *cache, struct gm_ipc_cache_block *block)
{
	LL_DELETE2(*ipc_cache_handle_bucket(cache, block->handle), block, next_handle);
	LL_DELETE2(*ipc_cache_addr_bucket(cache, block->addr), block, next_addr);
}

static void ipc_cache_enlist(struct gm_ipc_cache *cache, struct gm_ipc_cache_block *block)
{
	LL_PREPEND2(*ipc_cache_handle_bucket(cache, block->handle), block, next_handle);
	LL_PREPEND2(*ipc_cache_addr_bucket(cache, block->addr), block, next_addr);
}

/* If a block is still listed at this address, its context was destroyed, and its users have not let
 * go of it yet. They know nothing but the address, so they become users of the new block. */
static void ipc_cache_take_over(struct gm_ipc_cache *cache, struct gm_ipc_cache_block *block)
{
	struct gm_ipc_cache_block *former;

	LL_SEARCH_SCALAR2(
		*ipc_cache_addr_bucket(cache, block->addr), former, addr, block->addr, next_addr);
	if (!former)
		return;
	ipc_cache_unlist(cache, former);
	block->uses += former->uses;
	free(former);
}

/* ---- taking and putting */

int gm_ipc_cache_take(struct gm_ipc_cache *cache, const struct gm_ipc_ops *ops, void *ctx,
	const uint8_t handle[GM_IPC_HANDLE_BYTES], uint64_t context, void **ret_addr)
{
	struct gm_ipc_cache_block *block, *new;
	int r;

	gm_lock(&cache->lock);
	block = ipc_cache_find(cache, handle, context);
	if (block) {
		block->uses++;
		*ret_addr = block->addr;
	}
	gm_lock_drop(&cache->lock);
	if (block)
		return 0;

	new = calloc(1, sizeof(*new));
	if (!new)
		return -ENOMEM;
	memcpy(new->handle, handle, sizeof(new->handle));
	new->context = context;
	new->uses = new->openings = 1;
	r = ops->open(ctx, handle, &new->context, &new->addr);
	if (r < 0) {
		free(new);
		return r;
	}

	gm_lock(&cache->lock);
	block = ipc_cache_find(cache, handle, new->context);
	if (block) {
		block->uses++;
		*ret_addr = block->addr;
	} else {
		ipc_cache_take_over(cache, new);
		ipc_cache_enlist(cache, new);
		*ret_addr = new->addr;
	}
	gm_lock_drop(&cache->lock);
	if (!block)
		return 0;

	/* Another thread's opening is enough. If this one cannot be closed now, it is closed
	 * together with that one. */
	if (ops->close(ctx, new->context, new->addr) < 0) {
		gm_lock(&cache->lock);
		block->openings++;
		gm_lock_drop(&cache->lock);
	}
	free(new);
	return 0;
}

int gm_ipc_cache_put(
	struct gm_ipc_cache *cache, const struct gm_ipc_ops *ops, void *ctx, void *addr)
{
	struct gm_ipc_cache_block *block, *other;
	int r = 0;

	gm_lock(&cache->lock);
	LL_SEARCH_SCALAR2(*ipc_cache_addr_bucket(cache, addr), block, addr, addr, next_addr);
	if (!block) {
		r = -ENOENT;
	} else if (--block->uses) {
		block = NULL;
	} else {
		/* From here on nobody finds the block: a closed block must not be handed out. */
		ipc_cache_unlist(cache, block);
	}
	gm_lock_drop(&cache->lock);
	if (!block)
		return r;

	while (r == 0 && block->openings) {
		r = ops->close(ctx, block->context, addr);
		if (r == 0)
			block->openings--;
	}
	if (r == 0) {
		free(block);
		return 0;
	}

	gm_lock(&cache->lock);
	other = ipc_cache_find(cache, block->handle, block->context);
	if (other) {
		/* The block was opened again meanwhile, and takes over what could not be closed. */
		other->uses++;
		other->openings += block->openings;
	} else {
		block->uses = 1;
		ipc_cache_enlist(cache, block);
	}
	gm_lock_drop(&cache->lock);
	if (other)
		free(block);
	return r;
}
