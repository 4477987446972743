/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gets the memory of rings: a buffer of pinned host memory, which the CPU and all GPUs reach at the same
 * address, and which another process can open.
 */
#include "client/buffer/buffer.h"
#include "client/ring/ring.h"
#include "client/ring/ring_owner.h"
#include "common/cancel.h"

gpumem_status gpumem_ring_create(gpumem_session *session, size_t message_bytes, size_t messages,
	const gpumem_ring_options *options, gpumem_ring **ret_ring)
{
	gpumem_buffer_options wanted = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_ring_options given;
	struct gm_ring_shape shape;
	gpumem_buffer *buffer;
	GM_UNCANCELLED;

	if (!gm_session_ok(session))
		return gm_session_refused(session);
	if (!ret_ring)
		return gm_error(GPUMEM_E_INVALID, "ret_ring must not be NULL");
	gpumem_status status = gm_ring_options_check(options, &given);
	if (!status)
		status = gm_ring_shape_of(message_bytes, messages, &shape);
	if (status)
		return status;

	wanted.tag = given.tag;
	wanted.flags = given.flags;
	wanted.type = "ring";
	status = gpumem_buffer_create(session, GPUMEM_DEVICE_HOST, shape.bytes, &wanted, &buffer);
	if (status)
		return status;

	void *memory = gpumem_buffer_ptr(buffer);
	gm_ring_format(memory, &shape, 0);
	status = gm_ring_new(memory, &shape, false, &given, ret_ring);
	if (status)
		gpumem_buffer_destroy(buffer);
	else
		gm_ring_set_buffer(*ret_ring, buffer, session);
	return status;
}

static gpumem_status ring_calls_check(const gpumem_buffer *buffer)
{
	if (!buffer)
		return gm_error(GPUMEM_E_INVALID, "buffer must not be NULL");
	if (!gm_session_ok(buffer->session))
		return gm_session_refused(buffer->session);
	if (!gm_buffer_visible(buffer))
		return gm_error(GPUMEM_E_UNSUPPORTED,
			"this buffer is on a GPU, where the CPU cannot reach it, so it cannot be a "
			"ring: open one that gpumem_ring_create() made");
	if (buffer->evict.able)
		return gm_error(GPUMEM_E_UNSUPPORTED,
			"an evictable buffer cannot be a ring: its memory may move away");
	if (buffer->lease->read_only)
		return gm_error(GPUMEM_E_DENIED,
			"this buffer is read-only, and both ends of a ring write to it: share it for "
			"reading and writing");
	return GPUMEM_OK;
}

gpumem_status gpumem_ring_open(
	gpumem_buffer *buffer, const gpumem_ring_options *options, gpumem_ring **ret_ring)
{
	gpumem_ring_options given;
	struct gm_ring_shape shape;
	gpumem_ring *ring;
	GM_UNCANCELLED;

	gpumem_status status = ring_calls_check(buffer);
	if (status)
		return status;
	if (!ret_ring)
		return gm_error(GPUMEM_E_INVALID, "ret_ring must not be NULL");
	status = gm_ring_options_check(options, &given);
	void *memory = gpumem_buffer_ptr(buffer);
	if (!status)
		status = gm_ring_shape_read(memory, gpumem_buffer_size(buffer), &shape);
	if (status)
		return status;

	gpumem_ring_control *far_control = (gpumem_ring_control *)memory + 1;
	status = gm_ring_owner_claim(&far_control->sender, GPUMEM_RING_PROCESS, false);
	if (status)
		return status;
	status = gm_ring_new(memory, &shape, true, &given, &ring);
	if (status) {
		__atomic_store_n(
			&far_control->sender, gm_ring_owner(GPUMEM_RING_CLOSED), __ATOMIC_RELEASE);
		return status;
	}
	gm_ring_set_buffer(ring, buffer, buffer->session);
	*ret_ring = ring;
	return GPUMEM_OK;
}
