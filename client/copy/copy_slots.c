/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See copy_slots.h. The slots are one block: where each block is a buffer of its own (registered memfds),
 * a block costs a message and a call of the driver. There, the block of a transfer is set aside, and the next
 * transfer takes it back: if it were freed while a stream is busy, the driver would keep all copies waiting.
 */
#include "client/copy/copy_slots.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/memory/pinned.h"
#include "common/arith.h"
#include "gpumem/gpumem_copy.h"

#define SLOTS_SLOT_LEAST ((size_t)256 << 10)

/* Bytes that the slots of all transfers may have, unless gpumem_copy_set_limit() was called. */
#define COPY_LIMIT (UINT64_C(256) << 20)

int gm_copy_limit_init(struct gpumem_session *session)
{
	session->copies = calloc(1, sizeof(*session->copies));
	if (!session->copies)
		return -ENOMEM;
	atomic_init(&session->copies->limit, COPY_LIMIT);
	return 0;
}

void gm_copy_limit_deinit(struct gpumem_session *session)
{
	free(session->copies);
	session->copies = NULL;
}

/* Takes bytes of what the slots of the session's transfers may have. */
static bool slots_charge(struct gpumem_session *session, uint64_t bytes)
{
	uint64_t used = atomic_load(&session->copies->used);

	do {
		if (bytes > gm_u64_minus(atomic_load(&session->copies->limit), used))
			return false;
	} while (!atomic_compare_exchange_weak(&session->copies->used, &used, used + bytes));
	return true;
}

static gpumem_status slots_alloc(struct gpumem_session *session, size_t bytes, void **ret_memory)
{
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;

	if (!slots_charge(session, bytes))
		return GPUMEM_E_LIMIT;
	options.tag = "copy slots";
	options.wait_ms = GPUMEM_NO_WAIT;
	/* The program's own call would end what was set aside, if that is in its way. */
	gpumem_status status = gm_pinned_apart(session, session->counted)
				       ? gm_pinned_alloc(session, bytes, &options, ret_memory)
				       : gpumem_host_alloc(session, bytes, &options, ret_memory);
	if (status)
		atomic_fetch_sub(&session->copies->used, bytes);
	return status;
}

/* Whether fewer or smaller slots might be had. */
static bool slots_worth_trying(gpumem_status status)
{
	return status == GPUMEM_E_LIMIT || status == GPUMEM_E_NO_MEMORY ||
	       status == GPUMEM_E_TIMEOUT || status == GPUMEM_E_HOST_MEMORY;
}

/* Gets as many and as large slots as can be had, at most what it says. */
static bool slots_get(struct gm_copy_slots *slots)
{
	void *memory;

	for (;;) {
		gpumem_status status =
			slots_alloc(slots->session, slots->n * slots->slot_bytes, &memory);
		if (!status) {
			slots->memory = memory;
			return true;
		}
		if (!slots->refused)
			slots->refused = status;
		if (!slots_worth_trying(status))
			return false;
		if (slots->n > 2)
			slots->n = (slots->n + 1) / 2;
		else if (slots->slot_bytes / 2 >= SLOTS_SLOT_LEAST)
			slots->slot_bytes /= 2;
		else
			return false;
	}
}

bool gm_copy_slots_init(
	struct gm_copy_slots *slots, struct gpumem_session *session, uint32_t n, size_t slot_bytes)
{
	char before[GM_ERROR_BYTES];

	*slots = (struct gm_copy_slots){.session = session, .n = n, .slot_bytes = slot_bytes};
	snprintf(before, sizeof(before), "%s", gm_error_text());
	slots->pinned = slots_get(slots);
	/* A refusal stands in the result. The program's call has not failed. */
	if (slots->refused)
		(void)gm_error(GPUMEM_OK, "%s", before);
	return slots->pinned;
}

bool gm_copy_slots_init_pageable(
	struct gm_copy_slots *slots, struct gpumem_session *session, size_t slot_bytes)
{
	*slots = (struct gm_copy_slots){
		.session = session, .n = 2, .slot_bytes = slot_bytes, .refused = slots->refused};
	slots->memory = malloc(slots->n * slot_bytes);
	return slots->memory;
}

void gm_copy_slots_deinit(struct gm_copy_slots *slots, bool done)
{
	if (!slots->pinned) {
		/* Without a word from the device, it may use the memory for good. */
		if (done)
			free(slots->memory);
		return;
	}
	if (!done || !gm_pinned_retire(slots->session, slots->memory))
		(void)gpumem_free(slots->session, slots->memory,
			done ? GPUMEM_STREAM_DONE : GPUMEM_STREAM_ANY);
	atomic_fetch_sub(&slots->session->copies->used, slots->n * slots->slot_bytes);
}
