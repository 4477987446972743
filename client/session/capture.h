/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_CAPTURE_H
#define GM_CLIENT_CAPTURE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Memory that a captured graph uses. The graph will use the same addresses each time it is
 * launched, long after the program has freed them; so what is allocated or freed while its stream
 * is captured stays where it is, neither reused nor given back, until the program says that the
 * graph is gone. A program that captures nothing pays one load per free.
 */
struct gm_capture_block;

struct gm_captures {
	_Atomic uint64_t n; /* blocks in the table */
	pthread_mutex_t lock;
	struct gm_capture_block *blocks; /* by address */
};

void gm_captures_init(struct gm_captures *captures);
void gm_captures_deinit(struct gm_captures *captures);

static inline bool gm_captures_any(const struct gm_captures *captures)
{
	return atomic_load_explicit(&captures->n, memory_order_relaxed) != 0;
}

/* ptr was allocated for a graph. -ENOMEM. */
int gm_captures_add(struct gm_captures *captures, void *ptr, uint32_t device, uint64_t graph);

enum gm_capture_outcome {
	GM_CAPTURE_KEPT = 1,    /* a graph uses it: it stays until the graph is gone */
	GM_CAPTURE_E_FREED = 2, /* it was freed before */
};
/* ptr, a block that is alive, is freed; graph: the one its stream is captured into, 0: none. 0: no
 * graph uses it, free it. -ENOMEM. */
int gm_captures_free(struct gm_captures *captures, void *ptr, uint32_t device, uint64_t graph);

/* The graph is gone. Calls free_now() for each block of it that was freed meanwhile and that no
 * other graph uses; those in use go on as ordinary ones. How many blocks it had in all. */
uint64_t gm_captures_gone(struct gm_captures *captures, uint64_t graph,
	void (*free_now)(void *ctx, void *ptr, uint32_t device), void *ctx);

#endif
