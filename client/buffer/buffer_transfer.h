/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_BUFFER_BUFFER_TRANSFER_H
#define GM_CLIENT_BUFFER_BUFFER_TRANSFER_H

#include "client/buffer/gpumem_buffer.h"

/*
 * A transfer (client/copy) uses the buffer's memory from its begin to its end. A program can resize or
 * destroy the buffer meanwhile, from another thread or from the transfer's progress function. Neither may
 * take the memory away: the buffer is not resized, and if it is destroyed, it goes with the end of the
 * last transfer.
 */

/* The buffer is locked. */
void gm_buffer_transfer_begin(struct gpumem_buffer *buffer);
/* Returns true if the program has destroyed the buffer meanwhile: then the caller must destroy it now. */
bool gm_buffer_transfer_end(struct gpumem_buffer *buffer);
bool gm_buffer_transferring(struct gpumem_buffer *buffer);
/* Call when the program destroys the buffer. Returns true if a transfer still uses it: then the end of the last
 * transfer destroys it. */
bool gm_buffer_transfer_doom(struct gpumem_buffer *buffer);

#endif
