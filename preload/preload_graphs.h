/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PRELOAD_GRAPHS_H
#define GM_PRELOAD_GRAPHS_H

#include <stdbool.h>

#include "preload/preload_charges.h"

/*
 * What is charged for the memory of graphs: for allocations of captured streams, and for memory nodes. The
 * driver makes it when a graph is first launched, and keeps it for later launches. So it is charged
 * from when it is asked for until the graph is destroyed, and everything that was made of the graph.
 *
 * A handle is a graph's or that of one that can be launched. Thread-safe.
 */

struct gm_graphs_memory;

/* The graph that a stream is being captured into. NULL: there is none, or the driver does not say. */
gm_cu_graph gm_graphs_of(const struct gm_driver *driver, gm_cu_stream stream);

/* A graph has memory more; captured: if the capture comes to an end. The charge goes back at once if the
 * host has no memory to note it down. */
void gm_graphs_add(gm_cu_graph graph, const struct gm_preload_charge *charge, bool captured);
/* A capture has ended with this graph. */
void gm_graphs_captured(gm_cu_graph graph);
/* No stream is being captured any more: what was captured into no graph goes back, unless capturing() says that another
 * capture has begun. */
void gm_graphs_drop_captured(bool (*capturing)(void));
/* A second handle has the memory of the first, too. */
void gm_graphs_share(const void *handle, const void *second);

/* The handle is about to end: returns what it has, for gm_graphs_settle(). NULL: nothing. */
struct gm_graphs_memory *gm_graphs_take(const void *handle);
/* It has ended, or not: then everything is as it was. */
void gm_graphs_settle(struct gm_graphs_memory *memory, const void *handle, bool ended);

#endif
