/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_PINNED_H
#define GM_CLIENT_PINNED_H

#include "client/session/gpumem_session.h"

/*
 * Pinned host memory where no heap can run over it (struct gm_map_ops: whole): each block is a
 * buffer of its own, whole chunks and a message, behind a raw pointer.
 */

/* Whether the device, if it is mapped at all yet, is of that kind. */
static inline bool gm_pinned_apart(const struct gpumem_session *session, uint32_t device)
{
	if (device >= session->devices)
		return false;
	const struct gm_map_ops *map =
		atomic_load_explicit(&session->device[device].map, memory_order_acquire);
	return map && map->whole;
}

gpumem_status gm_pinned_alloc(struct gpumem_session *session, size_t size,
	const gpumem_alloc_options *options, void **ret_ptr);
/* Whether it is a block that is in use. */
bool gm_pinned_holds(struct gpumem_session *session, const void *ptr);
/* Never waits: the block goes back when what was launched so far is done. false: ptr is no block.
 */
bool gm_pinned_free(struct gpumem_session *session, void *ptr, gpumem_stream stream);
/* Lets blocks go that waited for the device; when to come again, as gm_alloc_tick(). */
uint64_t gm_pinned_tick(struct gpumem_session *session, uint64_t now_ns);
/* Forgets all blocks, once the device has done with those that were freed; their buffers go with
 * the session. */
void gm_pinned_drop_all(struct gpumem_session *session);

#endif
