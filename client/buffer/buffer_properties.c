/* SPDX-License-Identifier: Apache-2.0 */
/* A program asks these functions about a buffer, and notes things about it. They leave its memory alone. */
#include <stdio.h>
#include <string.h>

#include "client/buffer/buffer_make.h"
#include "common/arith.h"
#include "common/lock.h"

/* ---- properties */

void *gpumem_buffer_ptr(const gpumem_buffer *buffer)
{
	return buffer ? buffer->addr : NULL;
}

size_t gpumem_buffer_size(const gpumem_buffer *buffer)
{
	return buffer ? buffer->size : 0;
}

size_t gpumem_buffer_max_size(const gpumem_buffer *buffer)
{
	if (!buffer)
		return 0;
	bool fixed = buffer->opened || buffer->wish.signals;
	return fixed ? buffer->size : gm_u64_max(buffer->reach, buffer->size);
}

uint32_t gpumem_buffer_device(const gpumem_buffer *buffer)
{
	return buffer ? gm_session_device_name(buffer->session, buffer->device) : 0;
}

gpumem_transport gpumem_buffer_transport(const gpumem_buffer *buffer)
{
	return buffer ? (gpumem_transport)buffer->transport : GPUMEM_TRANSPORT_AUTO;
}

gpumem_status gpumem_buffer_ipc_handle(
	const gpumem_buffer *buffer, unsigned char ret_handle[GPUMEM_IPC_HANDLE_BYTES])
{
	_Static_assert(GPUMEM_IPC_HANDLE_BYTES == GM_IPC_HANDLE_BYTES, "one size of handle");
	if (!buffer || !ret_handle)
		return gm_error(
			GPUMEM_E_INVALID, "%s must not be NULL", buffer ? "ret_handle" : "buffer");
	if (!gm_session_ok(buffer->session))
		return gm_session_refused(buffer->session);
	if (buffer->transport != GM_TRANSPORT_IPC)
		return gm_error(GPUMEM_E_UNSUPPORTED,
			"this buffer is on the fd transport and has no CUDA IPC handle: create it "
			"with transport ipc");

	/* A move changes the lease and the handle. */
	struct gm_lock *lock = &((gpumem_buffer *)buffer)->lock;
	gm_lock(lock);
	bool known = buffer->lease->held.epoch == gm_session_epoch(buffer->session);
	if (known)
		memcpy(ret_handle, buffer->ipc, GPUMEM_IPC_HANDLE_BYTES);
	gm_lock_drop(lock);
	if (!known)
		return gm_error(GPUMEM_E_DISCONNECTED,
			"gpumemd was restarted, so the CUDA IPC handle of this buffer is no longer "
			"valid: the buffer keeps working here, but no other process can open it");
	return GPUMEM_OK;
}

uint64_t gpumem_buffer_version(const gpumem_buffer *buffer)
{
	return buffer ? atomic_load(&buffer->version) : 0;
}

const char *gpumem_buffer_tag(const gpumem_buffer *buffer)
{
	return buffer ? buffer->tag : "";
}

gpumem_status gpumem_buffer_set_tag(gpumem_buffer *buffer, const char *tag)
{
	if (!buffer)
		return gm_error(GPUMEM_E_INVALID, "buffer must not be NULL");
	if (!gm_session_ok(buffer->session))
		return gm_session_refused(buffer->session);
	gpumem_status status = gm_buffer_tag_check(tag);
	if (status)
		return status;
	gm_lock(&buffer->session->lock);
	snprintf(buffer->tag, sizeof(buffer->tag), "%s", tag ? tag : "");
	gm_session_pages_row_tag(&buffer->session->pages, buffer->row, buffer->tag);
	gm_lock_drop(&buffer->session->lock);
	return GPUMEM_OK;
}

gpumem_status gpumem_buffer_touch(gpumem_buffer *buffer)
{
	if (!buffer)
		return gm_error(GPUMEM_E_INVALID, "buffer must not be NULL");
	if (!gm_session_ok(buffer->session))
		return gm_session_refused(buffer->session);
	gm_session_pages_row_touch(&buffer->session->pages, buffer->row);
	return GPUMEM_OK;
}
