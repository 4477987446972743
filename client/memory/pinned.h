/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_MEMORY_PINNED_H
#define GM_CLIENT_MEMORY_PINNED_H

#include "client/map/map.h"
#include "client/session/gpumem_session.h"

/*
 * Pinned host memory on which no heap can run (gm_map_ops.whole). Each block is a buffer of its own
 * behind a raw pointer: it takes whole chunks, and making it needs a message.
 */

/* Whether the device is of that kind. False if the device is not mapped yet. */
static inline bool gm_pinned_apart(const struct gpumem_session *session, uint32_t device)
{
	if (device >= session->devices)
		return false;
	const struct gm_map_ops *map =
		atomic_load_explicit(&session->device[device].map, memory_order_acquire);
	return map && map->whole;
}

/* Takes back a block that was set aside, if one has that tag and fits. */
gpumem_status gm_pinned_alloc(struct gpumem_session *session, size_t size,
	const gpumem_alloc_options *options, void **ret_ptr);
/* Whether ptr is a block in use. */
bool gm_pinned_holds(struct gpumem_session *session, const void *ptr);
/* Never waits: the block goes back when the work launched before the call is done. Returns false if
 * ptr is not a block. */
bool gm_pinned_free(struct gpumem_session *session, void *ptr, gpumem_stream stream);
/* Sets aside a block that nothing uses any more, until the driver can end its registration without waiting
 * (gm_buffer_retire()). Returns false if ptr is not a block. */
bool gm_pinned_retire(struct gpumem_session *session, void *ptr);
/* Forgets all blocks. Their buffers end with the session. */
void gm_pinned_drop_all(struct gpumem_session *session);

#endif
