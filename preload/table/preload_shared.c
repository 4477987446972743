/* SPDX-License-Identifier: Apache-2.0 */
/* Two lists: what is mapped, and what of it is open. Both are short: programs open segments of others'
 * allocators. */
#include "preload/table/preload_shared.h"
#include "common/lock.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

struct shared_mapping {
	gpumem_token token;
	struct gm_preload_shared_mapped mapped;
	unsigned opened; /* allocations in it */
	struct shared_mapping *prev, *next;
};

struct shared_opened {
	struct gm_preload_block block;
	struct shared_mapping *mapping;
	unsigned count; /* how often it was opened */
	struct shared_opened *prev, *next;
};

static struct gm_lock shared_lock = GM_LOCK_INITIALIZER(GM_LOCK_LEAF);
static struct shared_mapping *shared_mappings;
static struct shared_opened *shared_list;
static uint64_t shared_serial;
static _Atomic size_t shared_n; /* of shared_list */

/* ---- with the lock held */

static struct shared_opened *shared_at(gm_cu_ptr ptr)
{
	struct shared_opened *opened;

	DL_SEARCH_SCALAR(shared_list, opened, block.base, ptr);
	return opened;
}

/* One more allocation in the mapping, or the same once more. false: no memory. */
static bool shared_begin(struct shared_mapping *mapping, const gpumem_piece *piece, gm_cu_ctx ctx,
	gm_cu_ptr *ret_ptr)
{
	gm_cu_ptr ptr = mapping->mapped.start + piece->offset;
	struct shared_opened *opened = shared_at(ptr);

	if (!opened) {
		opened = calloc(1, sizeof *opened);
		if (!opened)
			return false;
		opened->block.base = ptr;
		opened->block.bytes = piece->bytes;
		opened->block.ctx = ctx;
		opened->block.serial = UINT64_C(1) << 61 | ++shared_serial;
		opened->mapping = mapping;
		mapping->opened++;
		DL_APPEND(shared_list, opened);
		atomic_fetch_add_explicit(&shared_n, 1, memory_order_relaxed);
	}
	opened->count++;
	*ret_ptr = ptr;
	return true;
}

/* ---- the calls */

int gm_preload_shared_open(const gpumem_piece *piece, gm_cu_ctx ctx, gm_cu_ptr *ret_ptr)
{
	struct shared_mapping *mapping;
	int r = 0;

	gm_lock(&shared_lock);
	DL_FOREACH (shared_mappings, mapping)
		if (memcmp(&mapping->token, &piece->token, sizeof piece->token) == 0 &&
			piece->offset < mapping->mapped.bytes &&
			piece->bytes <= mapping->mapped.bytes - piece->offset)
			break;
	if (mapping)
		r = shared_begin(mapping, piece, ctx, ret_ptr) ? 1 : -1;
	gm_lock_drop(&shared_lock);
	return r;
}

bool gm_preload_shared_add(const gpumem_piece *piece, gm_cu_ctx ctx,
	const struct gm_preload_shared_mapped *mapped, gm_cu_ptr *ret_ptr)
{
	struct shared_mapping *mapping = calloc(1, sizeof *mapping);
	if (!mapping)
		return false;
	mapping->token = piece->token;
	mapping->mapped = *mapped;

	gm_lock(&shared_lock);
	bool added = shared_begin(mapping, piece, ctx, ret_ptr);
	if (added)
		DL_APPEND(shared_mappings, mapping);
	gm_lock_drop(&shared_lock);
	if (!added)
		free(mapping);
	return added;
}

bool gm_preload_shared_is(gm_cu_ptr ptr)
{
	if (!atomic_load_explicit(&shared_n, memory_order_relaxed))
		return false;
	gm_lock(&shared_lock);
	bool found = shared_at(ptr);
	gm_lock_drop(&shared_lock);
	return found;
}

bool gm_preload_shared_close(gm_cu_ptr ptr, gpumem_buffer **ret_buffer)
{
	struct shared_mapping *unused = NULL;

	gm_lock(&shared_lock);
	struct shared_opened *opened = shared_at(ptr);
	if (!opened || --opened->count > 0) {
		gm_lock_drop(&shared_lock);
		*ret_buffer = NULL;
		return opened;
	}
	DL_DELETE(shared_list, opened);
	atomic_fetch_sub_explicit(&shared_n, 1, memory_order_relaxed);
	if (--opened->mapping->opened == 0) {
		unused = opened->mapping;
		DL_DELETE(shared_mappings, unused);
	}
	gm_lock_drop(&shared_lock);

	*ret_buffer = unused ? unused->mapped.buffer : NULL;
	free(unused);
	free(opened);
	return true;
}

bool gm_preload_shared_find(gm_cu_ptr ptr, struct gm_preload_block *ret_block)
{
	struct shared_opened *opened;

	if (!atomic_load_explicit(&shared_n, memory_order_relaxed))
		return false;
	gm_lock(&shared_lock);
	DL_FOREACH (shared_list, opened)
		if (ptr >= opened->block.base && ptr - opened->block.base < opened->block.bytes)
			break;
	if (opened)
		*ret_block = opened->block;
	gm_lock_drop(&shared_lock);
	return opened;
}
