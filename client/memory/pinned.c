/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of pinned host memory that are buffers of their own. The buffer of a freed block stays
 * until all work that could use it is done. A block that was set aside stays until nothing is launched, and
 * can be had again. This file must never wait for the device.
 */
#include "client/memory/pinned.h"

#include <stdlib.h>
#include <utlist.h>

#include "client/buffer/buffer.h"
#include "client/memory/alloc_lists.h"
#include "client/buffer/buffer_make.h"
#include "common/cancel.h"

struct gm_pinned_block {
	gpumem_buffer *buffer;
	struct gm_pinned_block *prev, *next;
};

gpumem_status gm_pinned_alloc(struct gpumem_session *session, size_t size,
	const gpumem_alloc_options *options, void **ret_ptr)
{
	gpumem_alloc_options given = GPUMEM_ALLOC_OPTIONS_INIT;
	gpumem_buffer_options wanted = GPUMEM_BUFFER_OPTIONS_INIT;
	GM_UNCANCELLED;
	gpumem_status status = gm_sized_in(&given, sizeof(given), options);
	if (status)
		return status;
	if ((given.alignment & (given.alignment - 1)) || given.alignment > GM_CHUNK_MIN)
		return gm_error(GPUMEM_E_INVALID,
			"the alignment of registered pinned memory must be a power of two of at "
			"most %llu",
			(unsigned long long)GM_CHUNK_MIN);
	struct gm_pinned_block *block = calloc(1, sizeof(*block));
	if (!block)
		return gm_error(GPUMEM_E_HOST_MEMORY, "no memory for a block");

	wanted.tag = given.tag;
	wanted.wait_ms = given.wait_ms;
	block->buffer = gm_buffer_take_back(session, size, given.tag);
	if (!block->buffer)
		status = gm_buffer_make(
			session, session->counted, size, &wanted, GM_BUFFER_MADE, &block->buffer);
	if (status) {
		free(block);
		return status;
	}

	gm_lock(&session->lock);
	DL_APPEND(session->allocated->blocks, block);
	gm_lock_drop(&session->lock);
	*ret_ptr = gpumem_buffer_ptr(block->buffer);
	return GPUMEM_OK;
}

/* Locked. The block in use at that address, or NULL. */
static struct gm_pinned_block *pinned_find(struct gpumem_session *session, const void *ptr)
{
	struct gm_pinned_block *block;
	DL_FOREACH (session->allocated->blocks, block)
		if (gpumem_buffer_ptr(block->buffer) == ptr)
			break;
	return block;
}

bool gm_pinned_holds(struct gpumem_session *session, const void *ptr)
{
	gm_lock(&session->lock);
	bool holds = pinned_find(session, ptr) != NULL;
	gm_lock_drop(&session->lock);
	return holds;
}

/* Forgets the block at that address. Returns its buffer; NULL: no block begins there. */
static gpumem_buffer *pinned_take(struct gpumem_session *session, const void *ptr)
{
	gpumem_buffer *buffer = NULL;

	gm_lock(&session->lock);
	struct gm_pinned_block *block = pinned_find(session, ptr);
	if (block) {
		DL_DELETE(session->allocated->blocks, block);
		buffer = block->buffer;
	}
	gm_lock_drop(&session->lock);
	free(block);
	return buffer;
}

bool gm_pinned_free(struct gpumem_session *session, void *ptr, gpumem_stream stream)
{
	GM_UNCANCELLED; /* the driver may reach a cancellation point while it records */
	gpumem_buffer *buffer = pinned_take(session, ptr);

	if (buffer)
		gm_buffer_leave(buffer, stream == GPUMEM_STREAM_DONE);
	return buffer;
}

bool gm_pinned_retire(struct gpumem_session *session, void *ptr)
{
	gpumem_buffer *buffer = pinned_take(session, ptr);

	if (buffer)
		gm_buffer_retire(buffer);
	return buffer;
}

void gm_pinned_drop_all(struct gpumem_session *session)
{
	struct gm_pinned_block *block, *tmp;

	DL_FOREACH_SAFE (session->allocated->blocks, block, tmp)
		free(block);
	session->allocated->blocks = NULL;
}
