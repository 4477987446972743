/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_BUFFER_BUFFER_RETIRED_H
#define GM_CLIENT_BUFFER_BUFFER_RETIRED_H

#include "client/buffer/gpumem_buffer.h"

/*
 * The tail of a buffer: chunks at its end that a resize cut off while the device may still use
 * them. It stays mapped until the device has finished, and then goes back. A buffer has one tail at
 * most; what is cut off later becomes a part of it. If the buffer grows again before, it takes its
 * tail back.
 *
 * All functions are called with the session's settling held, except _new() and _has().
 */
struct gm_buffer_retired {
	struct gm_retired retired;    /* comes first */
	struct gpumem_buffer *buffer; /* NULL: it has taken the tail back, or is gone */
	uint64_t bytes;
	bool listed; /* in the retire list */
	bool kept;   /* it does not go for now, even if the device has finished */
};

/* NULL: no memory. */
struct gm_buffer_retired *gm_buffer_retired_new(struct gpumem_buffer *buffer);
/* Whether the buffer has a tail. The buffer is locked. */
bool gm_buffer_retired_has(const struct gpumem_buffer *buffer);
static inline uint64_t gm_buffer_retired_bytes(const struct gpumem_buffer *buffer)
{
	return buffer->tail ? buffer->tail->bytes : 0;
}

/* Between these two, the tail stays. */
void gm_buffer_retired_keep(struct gpumem_buffer *buffer);
void gm_buffer_retired_let_go(struct gpumem_buffer *buffer);
/* Cuts off this many bytes, which must be whole chunks. idle: the device does not use them. Takes
 * ownership of spare, from gm_buffer_retired_new(). */
void gm_buffer_retired_cut(
	struct gpumem_buffer *buffer, uint64_t bytes, bool idle, struct gm_buffer_retired *spare);
/* Takes the tail back, except the last `but` bytes of it. */
void gm_buffer_retired_take_back(struct gpumem_buffer *buffer, uint64_t but);
/* Moves the tail to another buffer, which has taken over the memory. */
void gm_buffer_retired_pass(struct gpumem_buffer *from, struct gpumem_buffer *to);
/* Detaches the tail from a buffer that ends. */
void gm_buffer_retired_forget(struct gpumem_buffer *buffer);

#endif
