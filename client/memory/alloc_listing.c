/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives rows of the client's page to blocks of the heap. A block's cookie is the number of its row.
 * The row is written first, and the cookie is set only if the block is still the same one. So
 * however a free comes in between, no row stays without its block after this call.
 *
 * It must never hold a lock of the heap while it writes.
 */
#include "client/memory/alloc_listing.h"

#include "client/heap/arena.h"
#include "client/session/session_stacks.h"
#include "client/memory/alloc_lists.h"
#include "common/cancel.h"

void gm_alloc_listing_add(struct gpumem_session *session, uint32_t device, void *ptr)
{
	struct gm_arena *arena =
		atomic_load_explicit(&session->device[device].arena, memory_order_acquire);
	struct gm_arena_entry entry;
	uint32_t other = 0;
	GM_UNCANCELLED;

	/* A block that bypassed the caches of threads can be described. */
	if (gm_arena_describe(arena, ptr, &entry))
		return;
	uint32_t row = gm_session_pages_row_add(&session->pages, device, entry.size, entry.tag);
	gm_session_pages_row_note(&session->pages, row,
		&(struct gm_pages_about){
			.ptr = ptr, .stack = gm_session_stacks_take(session->pages.stacks)});

	/* The library's thread may have listed the block meanwhile. */
	if (gm_arena_swap_cookie(arena, ptr, row, &other))
		gm_session_pages_row_remove(&session->pages, device, row);
	else
		gm_session_pages_row_remove(&session->pages, device, other);
}

void gm_alloc_listing_publish(struct gpumem_session *session, uint32_t device)
{
	struct gm_session_device *d = &session->device[device];
	struct gm_arena *arena = atomic_load_explicit(&d->arena, memory_order_acquire);
	uint64_t from = atomic_load_explicit(&session->track_from, memory_order_relaxed);
	struct gm_arena_entry entries[GM_ARENA_ENTRIES];
	struct gm_arena_walk walk = {0};
	uint64_t left = 0;

	if (!arena)
		return;

	/* One thread at a time: the figures of an older listing must not replace newer ones. */
	gm_lock(&session->allocated->listing);
	uint64_t changes = gm_arena_changes(arena);
	if (changes == d->listed_changes && from == d->listed_from && !d->unlisted) {
		gm_lock_drop(&session->allocated->listing);
		return;
	}

	while (from != UINT64_MAX && !walk.over) {
		size_t n = gm_arena_unlisted(arena, from, &walk, entries);
		for (size_t i = 0; i < n; i++) {
			uint32_t row = gm_session_pages_row_try(
				&session->pages, device, entries[i].size, entries[i].tag);
			if (!row) {
				left++;
				continue;
			}
			gm_session_pages_row_note(&session->pages, row,
				&(struct gm_pages_about){.ptr = entries[i].ptr});
			if (gm_arena_set_cookie(arena, &entries[i], row))
				gm_session_pages_row_remove(&session->pages, device, row);
		}
	}

	gm_session_pages_unlisted(&session->pages, device, left);
	d->unlisted = left;
	d->listed_changes = changes;
	d->listed_from = from;
	gm_lock_drop(&session->allocated->listing);
}
