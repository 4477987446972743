/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_HANDLES_H
#define GM_PRELOAD_HANDLES_H

#include <stdbool.h>
#include <stddef.h>

#include "common/cuda/cuda_abi.h"
#include "gpumem/gpumem_chunk.h"

/*
 * The broker's chunks that the program has handles of, and where it maps them. The driver keeps physical
 * memory until its last handle is released and its last mapping is gone, and so does this table. Then
 * it returns the chunk, for the caller to give back.
 *
 * What might end something is taken out before the driver is called, because the driver may give the
 * same number or address to another thread right after. If the driver refuses, it is put back.
 * Thread-safe. The calls take one lock for a short time, and call nobody while they hold it.
 */

struct gm_handle_about {
	gpumem_chunk *chunk;
	gm_cu_prop asked; /* what the program wanted */
};

/* Adds a chunk with one reference. false: the host has no memory. */
bool gm_preload_handles_add(gm_cu_mem handle, const struct gm_handle_about *about);
/* What is known of a handle. false: it is not the broker's. The chunk may end at once: to use it,
 * gm_preload_handles_use() keeps it. */
bool gm_preload_handles_find(gm_cu_mem handle, struct gm_handle_about *ret_about);
void *gm_preload_handles_use(gm_cu_mem handle, struct gm_handle_about *ret_about);
/* After that. Returns a chunk that must be given back now, or NULL. */
gpumem_chunk *gm_preload_handles_use_end(void *entry);
/* One more reference, by a handle that the driver has just returned. Does nothing for other handles. */
void gm_preload_handles_ref(gm_cu_mem handle);

/* One reference less: before the driver's release. false: the handle is not the broker's. */
bool gm_preload_handles_release_begin(gm_cu_mem handle, void **ret_entry);
/* After it. Returns a chunk that must be given back now, or NULL. */
gpumem_chunk *gm_preload_handles_release_end(void *entry, gm_cu_mem handle, bool released);

/* A mapping: before the driver maps. *ret_mapping is NULL if the handle is not the broker's. false: the
 * host has no memory. */
bool gm_preload_handles_map_begin(
	gm_cu_mem handle, gm_cu_ptr ptr, size_t bytes, void **ret_mapping);
/* After it. Returns a chunk that must be given back now, or NULL. */
gpumem_chunk *gm_preload_handles_map_end(void *mapping, bool mapped);

/* Takes out all mappings in a range, before the driver unmaps it. NULL: there is none. */
void *gm_preload_handles_unmap_begin(gm_cu_ptr ptr, size_t bytes);
/* After it. Returns a chunk that must be given back now, or NULL; call it again with *list until *list
 * is NULL. */
gpumem_chunk *gm_preload_handles_unmap_end(void **list, bool unmapped);

/* One more reference by address: before the driver is asked for a handle of what is mapped there. NULL:
 * it is not the broker's. */
void *gm_preload_handles_retain_begin(gm_cu_ptr ptr);
/* After it. Returns a chunk that must be given back now, or NULL. */
gpumem_chunk *gm_preload_handles_retain_end(void *entry, gm_cu_mem handle, bool retained);

#endif
