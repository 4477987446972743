/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the transfers (client/copy) that use a buffer's memory. A program can resize or destroy the
 * buffer meanwhile, from another thread or from a transfer's progress function. Neither may take the
 * memory away from under the transfer. */
#include "client/memory/buffer.h"

void gm_buffer_transfer_begin(struct gpumem_buffer *buffer)
{
	pthread_mutex_lock(&buffer->session->lock);
	buffer->transfers++;
	pthread_mutex_unlock(&buffer->session->lock);
}

bool gm_buffer_transferring(struct gpumem_buffer *buffer)
{
	pthread_mutex_lock(&buffer->session->lock);
	bool is = buffer->transfers > 0;
	pthread_mutex_unlock(&buffer->session->lock);
	return is;
}

bool gm_buffer_transfer_doom(struct gpumem_buffer *buffer)
{
	pthread_mutex_lock(&buffer->session->lock);
	bool is = buffer->transfers > 0;
	buffer->doomed = is;
	pthread_mutex_unlock(&buffer->session->lock);
	return is;
}

void gm_buffer_transfer_end(struct gpumem_buffer *buffer)
{
	pthread_mutex_lock(&buffer->session->lock);
	bool last = --buffer->transfers == 0 && buffer->doomed;
	pthread_mutex_unlock(&buffer->session->lock);

	if (last)
		gpumem_buffer_destroy(buffer);
}
