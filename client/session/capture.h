/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SESSION_CAPTURE_H
#define GM_CLIENT_SESSION_CAPTURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/lock.h"

/*
 * The memory that captured graphs use. A graph uses the same addresses each time it is launched,
 * even long after the program has freed them. So memory that is allocated or freed while its stream
 * is captured stays in place, neither reused nor given back, until the program says that the graph
 * is gone. A program that captures nothing pays one load per free.
 */
struct gm_capture_block;

struct gm_captures {
	_Atomic uint64_t n; /* blocks in the table */
	struct gm_lock lock;
	struct gm_capture_block *blocks; /* by address */
};

void gm_captures_init(struct gm_captures *captures);
void gm_captures_deinit(struct gm_captures *captures);

static inline bool gm_captures_any(const struct gm_captures *captures)
{
	return atomic_load_explicit(&captures->n, memory_order_relaxed) != 0;
}

/* Records that ptr was allocated for a graph. On error, returns -ENOMEM. */
int gm_captures_add(struct gm_captures *captures, void *ptr, uint32_t device, uint64_t graph);

enum gm_capture_outcome {
	GM_CAPTURE_KEPT = 1,    /* a graph uses the block: it stays until the graph is gone */
	GM_CAPTURE_E_FREED = 2, /* the block was freed before */
};
/* The program frees ptr, a live block, on a stream that is captured into graph, or 0 if it is not
 * captured. Returns 0 if no graph uses the block: the caller must free it. Otherwise returns an
 * outcome from above, or -ENOMEM. */
int gm_captures_free(struct gm_captures *captures, void *ptr, uint32_t device, uint64_t graph);

/* The graph is gone. Calls free_now() for each of its blocks that was freed meanwhile and that no
 * other graph uses. Blocks that were not freed become ordinary ones. Returns how many blocks the
 * graph had. */
uint64_t gm_captures_gone(struct gm_captures *captures, uint64_t graph,
	void (*free_now)(void *ctx, void *ptr, uint32_t device), void *ctx);

#endif
