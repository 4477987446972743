/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of blocks that graphs use. The heap sees them as blocks in use; only this file knows
 * which of them were freed. It holds no lock while it calls free_now().
 */
#include "client/session/capture.h"

#include <errno.h>
#include <stdlib.h>

/* Without this, uthash would end the process when it has no memory. */
#define HASH_NONFATAL_OOM          1
#define uthash_nonfatal_oom(block) ((block)->unlisted = true)
#include <uthash.h>
#include <utlist.h>

struct gm_capture_block {
	void *ptr;
	uint32_t device;
	bool freed;
	bool unlisted; /* there was no memory for the table */
	/* The graphs that use it: the one it was allocated for, and the one it was freed for. Each
	 * may be 0. */
	uint64_t graphs[2];
	struct gm_capture_block *next;
	UT_hash_handle hh;
};

void gm_captures_init(struct gm_captures *captures)
{
	atomic_init(&captures->n, 0);
	gm_lock_init(&captures->lock, GM_LOCK_LEAF);
	captures->blocks = NULL;
}

void gm_captures_deinit(struct gm_captures *captures)
{
	struct gm_capture_block *block, *tmp;

	HASH_ITER (hh, captures->blocks, block, tmp) {
		HASH_DEL(captures->blocks, block);
		free(block);
	}

	gm_lock_deinit(&captures->lock);
}

static int capture_add_locked(
	struct gm_captures *captures, void *ptr, uint32_t device, uint64_t graph, bool freed)
{
	struct gm_capture_block *block = calloc(1, sizeof(*block));
	if (!block)
		return -ENOMEM;
	block->ptr = ptr;
	block->device = device;
	block->graphs[freed] = graph;
	block->freed = freed;
	HASH_ADD_PTR(captures->blocks, ptr, block);
	if (block->unlisted) {
		free(block);
		return -ENOMEM;
	}

	atomic_fetch_add_explicit(&captures->n, 1, memory_order_relaxed);
	return 0;
}

int gm_captures_add(struct gm_captures *captures, void *ptr, uint32_t device, uint64_t graph)
{
	gm_lock(&captures->lock);
	int r = capture_add_locked(captures, ptr, device, graph, false);
	gm_lock_drop(&captures->lock);
	return r;
}

int gm_captures_free(struct gm_captures *captures, void *ptr, uint32_t device, uint64_t graph)
{
	struct gm_capture_block *block;
	int r = 0;

	gm_lock(&captures->lock);
	HASH_FIND_PTR(captures->blocks, &ptr, block);
	if (block && block->freed) {
		r = GM_CAPTURE_E_FREED;
	} else if (block) {
		/* If it is freed during the capture of a second graph, both graphs use it. */
		block->graphs[1] = graph;
		block->freed = true;
		r = GM_CAPTURE_KEPT;
	} else if (graph) {
		r = capture_add_locked(captures, ptr, device, graph, true);
		if (r == 0)
			r = GM_CAPTURE_KEPT;
	}
	gm_lock_drop(&captures->lock);
	return r;
}

uint64_t gm_captures_gone(struct gm_captures *captures, uint64_t graph,
	void (*free_now)(void *ctx, void *ptr, uint32_t device), void *ctx)
{
	struct gm_capture_block *block, *tmp, *gone = NULL;
	uint64_t n = 0, dropped = 0;

	gm_lock(&captures->lock);
	HASH_ITER (hh, captures->blocks, block, tmp) {
		if (block->graphs[0] != graph && block->graphs[1] != graph)
			continue;
		n++;
		for (unsigned i = 0; i < 2; i++)
			if (block->graphs[i] == graph)
				block->graphs[i] = 0;
		if (block->graphs[0] || block->graphs[1])
			continue;
		HASH_DEL(captures->blocks, block);
		LL_PREPEND(gone, block);
		dropped++;
	}
	gm_lock_drop(&captures->lock);

	LL_FOREACH_SAFE (gone, block, tmp) {
		if (block->freed)
			free_now(ctx, block->ptr, block->device);
		free(block);
	}

	atomic_fetch_sub_explicit(&captures->n, dropped, memory_order_relaxed);
	return n;
}
