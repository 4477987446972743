/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SHARE_BUFFER_SHARE_H
#define GM_CLIENT_SHARE_BUFFER_SHARE_H

#include "client/buffer/gpumem_buffer.h"

/*
 * The folder client/share/ promises that processes can use one another's buffers: by a token, by a name
 * that keeps a buffer, and in an order that signals say. It must never know heaps, pointers or regions:
 * only whole buffers are shared.
 *
 * This header is for the requests that share or publish a buffer.
 */

/* Checks that the program may share or publish this buffer. If so, the buffer is not evicted before
 * gm_buffer_share_end(). */
gpumem_status gm_buffer_share_begin(gpumem_buffer *buffer);
void gm_buffer_share_end(gpumem_buffer *buffer);
/* Passes the status of such a request on, unless the daemon forgot the buffer while the request waited
 * for it. */
gpumem_status gm_buffer_share_status(gpumem_buffer *buffer, gpumem_status status);
/* Locks the buffer for such a request, so that nobody resizes it. GPUMEM_E_BUSY: a part that was cut off
 * has not gone back yet, and others would get it, too; then it is not locked. *ret_before is for
 * gm_buffer_share_unlock(). */
gpumem_status gm_buffer_share_lock(gpumem_buffer *buffer, bool *ret_before);
/* refused: the daemon has answered that it does not share the buffer. */
void gm_buffer_share_unlock(gpumem_buffer *buffer, bool before, bool refused);
gpumem_status gm_buffer_share_options_check(const gpumem_share_options *options);

#endif
