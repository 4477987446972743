/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_RING_RING_SHAPE_H
#define GM_CLIENT_RING_RING_SHAPE_H

#include <stdbool.h>

#include "gpumem/gpumem.h"
#include "gpumem/gpumem_ring_device.h"

/* The ring's geometry. */
struct gm_ring_shape {
	uint32_t message_bytes, place_bytes, messages;
	uint64_t apart; /* from the places of one direction to those of the other */
	uint64_t bytes; /* of the whole ring */
};

/* GPUMEM_E_INVALID, with a sentence that names the argument. */
gpumem_status gm_ring_shape_of(size_t message_bytes, size_t messages, struct gm_ring_shape *ret);
/* The geometry of the ring that lies in so many bytes of memory. */
gpumem_status gm_ring_shape_read(const void *memory, size_t bytes, struct gm_ring_shape *ret);
/* Makes an empty ring whose near end belongs to this process. The counters begin with first. */
void gm_ring_format(void *memory, const struct gm_ring_shape *shape, uint64_t first);
/* One end of the ring, as its owner uses it. */
gpumem_ring_view gm_ring_end_of(
	void *memory, const struct gm_ring_shape *shape, bool far, uint32_t flush_every);

#endif
