/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MEMORY_ALLOC_H
#define GM_CLIENT_MEMORY_ALLOC_H

#include "client/memory/supply.h"
#include "client/session/gpumem_session.h"
#include "gpumem/gpumem_chunk.h"

/*
 * The folder client/memory/ promises a program all memory that is neither a buffer nor a region: pointers,
 * pinned blocks, batches, managed memory and raw chunks, and the list of what was not freed. It must
 * never know when a session begins, reconnects or ends: the files right in client/ call it then.
 *
 * This header is for pointers: gpumem_alloc() and gpumem_free() on the heap of each device.
 */

struct gm_arena;

/* An allocation that the heap could not make at once, and what was asked for it. */
struct gm_alloc_wanted {
	struct gm_arena *arena;
	struct gm_supply *supply;
	size_t size;
	gpumem_stream stream;
	uint64_t alignment;
	unsigned flags;
	struct gm_supply_call call;
	struct gm_supply_ask ask;
	uint64_t end_ns; /* when it has waited long enough; UINT64_MAX: never */
	void *ptr;       /* out */
};

/* For requests that are taken later (request_calls.c). gm_alloc_prepare() checks the arguments of a
 * gpumem_alloc(), and makes the heap. It leaves the tag where the options have it. */
gpumem_status gm_alloc_prepare(struct gpumem_session *session, uint32_t device, size_t size,
	gpumem_stream stream, const gpumem_alloc_options *options,
	struct gm_alloc_wanted *ret_wanted, uint32_t *ret_wait_ms);
/* Allocates out of what the heap has and the offer brings. Returns an outcome of the arena. */
int gm_alloc_from_offer(
	struct gm_alloc_wanted *wanted, struct gm_supply_offer *offer, gpumem_status *ret_status);
/* Returns the status of an allocation that the heap refused, and leaves the sentence. outcome is the heap's;
 * source is the status of its source. */
gpumem_status gm_alloc_failed(const struct gpumem_session *session, uint32_t device, int outcome,
	gpumem_status source, uint64_t size);
/* How many bytes to ask the daemon for, so that the block fits wherever they lie. */
uint64_t gm_alloc_bytes(const struct gm_alloc_wanted *wanted);
/* Fills in what to ask the session for. */
void gm_alloc_ask(struct gm_alloc_wanted *wanted, struct gm_session_ask_wanted *ret_asked);
/* The request has brought this. Returns true if the allocation has ended, with *ret_status: wanted->ptr, or a
 * failure and its sentence. Returns false if it must be asked for anew: the daemon does not know the lease
 * any more, or other threads took what was left in the heap, and there is time. */
bool gm_alloc_answered(struct gpumem_session *session, uint32_t device,
	struct gm_alloc_wanted *wanted, struct gm_session_lease *lease,
	struct gm_session_chunk *chunks, gpumem_status *status);
/* Hands a block to the program. Fails if there is no memory to record that a graph uses it. */
gpumem_status gm_alloc_hand_over(
	struct gpumem_session *session, uint32_t device, gpumem_stream stream, void *ptr);
/* Frees a block that the program never got. */
void gm_alloc_undo(struct gpumem_session *session, uint32_t device, void *ptr);

/* Ends the heaps and unmaps their memory. No thread may be allocating. */
void gm_alloc_drop_all(struct gpumem_session *session);
/* Gives unused memory of one device back, until that many bytes are returned (UINT64_MAX: all of
 * it). Returns how many bytes were. */
uint64_t gm_alloc_trim(struct gpumem_session *session, uint32_t device, uint64_t bytes);
/* Does the housekeeping of all heaps. Returns when to call it again (CLOCK_MONOTONIC), or
 * UINT64_MAX if only a wake-up requires it. */
uint64_t gm_alloc_tick(struct gpumem_session *session, uint64_t now_ns);

/* ---- the end of a session: batch.c, leaks.c, raw_chunk.c */

/* Forgets all batches. Their buffers end with the session, which waits for the device if it may
 * still use entries that were freed. */
void gm_alloc_batch_drop_all(struct gpumem_session *session);

/* Prints on stderr what the session tracks and the program never freed. Prints nothing if all was freed. Call it
 * at the end of a session whose program asked for it, before the memory goes back. */
void gm_alloc_leaks_report(struct gpumem_session *session);

/* Frees the structs of all chunks that are left, at the end of a session. Their memory goes back with the
 * session. */
void gm_alloc_raw_chunk_drop_all(struct gpumem_session *session);

#endif
