/* SPDX-License-Identifier: Apache-2.0 */
/* See copy_ring.h. The slots are one block: where each block is a buffer of its own (registered memfds),
 * a block costs a message and a call of the driver. */
#include "client/copy/copy_ring.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/arith.h"
#include "gpumem/gpumem_copy.h"

#define RING_SLOT_LEAST ((size_t)256 << 10)
/* If the pinned memory is used up, the request is refused after this time, and not after the time that
 * the daemon's configuration or an absent daemon would let it wait. */
#define RING_WAIT_MS 1

/* Takes bytes of what the session's rings may have. */
static bool ring_charge(struct gpumem_session *session, uint64_t bytes)
{
	uint64_t used = atomic_load(&session->copy_used);

	do {
		if (bytes > gm_minus(atomic_load(&session->copy_limit), used))
			return false;
	} while (!atomic_compare_exchange_weak(&session->copy_used, &used, used + bytes));
	return true;
}

static gpumem_status ring_alloc(struct gpumem_session *session, size_t bytes, void **ret_slots)
{
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;

	if (!ring_charge(session, bytes))
		return GPUMEM_E_LIMIT;
	options.tag = "copy ring";
	options.wait_ms = RING_WAIT_MS;
	gpumem_status status = gpumem_host_alloc(session, bytes, &options, ret_slots);
	if (status)
		atomic_fetch_sub(&session->copy_used, bytes);
	return status;
}

/* Whether a smaller ring might be had. */
static bool ring_worth_trying(gpumem_status status)
{
	return status == GPUMEM_E_LIMIT || status == GPUMEM_E_NO_MEMORY ||
	       status == GPUMEM_E_TIMEOUT || status == GPUMEM_E_HOST_MEMORY;
}

/* Gets the largest ring that can be had, at most as large as it says. */
static bool ring_get(struct gm_copy_ring *ring)
{
	void *slots;

	for (;;) {
		gpumem_status status =
			ring_alloc(ring->session, ring->n * ring->slot_bytes, &slots);
		if (!status) {
			ring->slots = slots;
			return true;
		}
		if (!ring->refused)
			ring->refused = status;
		if (!ring_worth_trying(status))
			return false;
		if (ring->n > 2)
			ring->n = (ring->n + 1) / 2;
		else if (ring->slot_bytes / 2 >= RING_SLOT_LEAST)
			ring->slot_bytes /= 2;
		else
			return false;
	}
}

bool gm_copy_ring_init(
	struct gm_copy_ring *ring, struct gpumem_session *session, uint32_t n, size_t slot_bytes)
{
	char before[GM_ERROR_BYTES];

	*ring = (struct gm_copy_ring){.session = session, .n = n, .slot_bytes = slot_bytes};
	snprintf(before, sizeof(before), "%s", gm_error_text());
	ring->pinned = ring_get(ring);
	/* A refusal stands in the result. The program's call has not failed. */
	if (ring->refused)
		(void)gm_error(GPUMEM_OK, "%s", before);
	return ring->pinned;
}

bool gm_copy_ring_init_pageable(
	struct gm_copy_ring *ring, struct gpumem_session *session, size_t slot_bytes)
{
	*ring = (struct gm_copy_ring){
		.session = session, .n = 2, .slot_bytes = slot_bytes, .refused = ring->refused};
	ring->slots = malloc(ring->n * slot_bytes);
	return ring->slots;
}

void gm_copy_ring_deinit(struct gm_copy_ring *ring, bool done)
{
	if (!ring->pinned) {
		/* Without a word from the device, it may use the memory for good. */
		if (done)
			free(ring->slots);
		return;
	}
	(void)gpumem_free(
		ring->session, ring->slots, done ? GPUMEM_STREAM_DONE : GPUMEM_STREAM_ANY);
	atomic_fetch_sub(&ring->session->copy_used, ring->n * ring->slot_bytes);
}
