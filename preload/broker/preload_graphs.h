/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_GRAPHS_H
#define GM_PRELOAD_GRAPHS_H

#include <stdbool.h>

#include "preload/broker/preload_charges.h"

/*
 * What is charged for the memory of graphs: for allocations of captured streams, and for memory nodes. The
 * driver makes it when a graph is first launched, and keeps it for later launches. So it is charged
 * from when it is asked for until the graph is destroyed, and everything that was made of the graph.
 *
 * Within a graph the driver uses memory again. Memory that a stream frees while it is captured serves the next
 * allocations of the same stream, and is charged once. Nobody here knows which nodes come after which: those that a
 * program adds by itself, and streams that wait for one another, are charged as a sum.
 *
 * A handle is a graph's or that of one that can be launched. Thread-safe.
 */

struct gm_preload_graphs_memory;

/* An allocation that is captured. */
struct gm_preload_graphs_piece {
	gm_cu_stream stream; /* that allocates or frees it */
	gm_cu_ptr ptr;
	uint64_t bytes;
	uint32_t number; /* the daemon's of the device */
};

/* The graph that a stream is being captured into. NULL: there is none, or the driver does not say. */
gm_cu_graph gm_preload_graphs_of(const struct gm_driver *driver, gm_cu_stream stream);

/* A graph has memory more; captured: if the capture comes to an end. The charge goes back at once if the
 * host has no memory to note it down. */
void gm_preload_graphs_add(
	gm_cu_graph graph, const struct gm_preload_charge *charge, bool captured);
/* How many bytes of an allocation lie in memory that its stream has freed before. They count as used from now on. */
uint64_t gm_preload_graphs_reuse(gm_cu_graph graph, const struct gm_preload_graphs_piece *piece);
/* They do not: there is no such allocation. */
void gm_preload_graphs_spare(
	gm_cu_graph graph, const struct gm_preload_graphs_piece *piece, uint64_t bytes);
/* The allocation is there, so that its free can be known. */
void gm_preload_graphs_allocated(gm_cu_graph graph, const struct gm_preload_graphs_piece *piece);
/* A stream has freed what begins at piece->ptr. */
void gm_preload_graphs_freed(gm_cu_graph graph, const struct gm_preload_graphs_piece *piece);
/* A capture has ended with this graph. */
void gm_preload_graphs_captured(gm_cu_graph graph);
/* No stream is being captured any more: what was captured into no graph goes back, unless another capture
 * has begun. */
void gm_preload_graphs_drop_captured(void);
/* A second handle has the memory of the first, too. */
void gm_preload_graphs_share(const void *handle, const void *second);

/* The driver has moved a graph into another one: they end together. */
void gm_preload_graphs_move(gm_cu_graph child, gm_cu_graph parent);
/* The primary context of a device has ended, and what graphs had there. */
void gm_preload_graphs_end_on(uint32_t number);

/* The handle is about to end: returns what it has, for gm_preload_graphs_settle(). NULL: nothing. */
struct gm_preload_graphs_memory *gm_preload_graphs_take(const void *handle);
/* It has ended, or not: then everything is as it was. */
void gm_preload_graphs_settle(
	struct gm_preload_graphs_memory *memory, const void *handle, bool ended);

#endif
