/* SPDX-License-Identifier: Apache-2.0 */
#include "client/buffer/buffer_transfer.h"

void gm_buffer_transfer_begin(struct gpumem_buffer *buffer)
{
	gm_lock(&buffer->session->lock);
	buffer->transfers++;
	gm_lock_drop(&buffer->session->lock);
}

bool gm_buffer_transferring(struct gpumem_buffer *buffer)
{
	gm_lock(&buffer->session->lock);
	bool is = buffer->transfers > 0;
	gm_lock_drop(&buffer->session->lock);
	return is;
}

bool gm_buffer_transfer_doom(struct gpumem_buffer *buffer)
{
	gm_lock(&buffer->session->lock);
	bool is = buffer->transfers > 0;
	buffer->doomed = is;
	gm_lock_drop(&buffer->session->lock);
	return is;
}

bool gm_buffer_transfer_end(struct gpumem_buffer *buffer)
{
	gm_lock(&buffer->session->lock);
	bool last = --buffer->transfers == 0 && buffer->doomed;
	gm_lock_drop(&buffer->session->lock);
	return last;
}
