/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs that have memory of their own (preload_graphs.h). What can be launched has the memory of the graph
 * that it was made of. A thread that were cancelled in the driver's call would lose what is charged.
 */
#include "common/cancel.h"
#include "preload/broker/preload_graphs.h"

/* Before a memory node is added; parameters NULL: it is another kind of node. */
static gm_cu_result graphs_begin(const struct gm_driver *driver, enum gm_preload_call call,
	gm_cu_graph graph, const gm_cu_alloc_node *parameters, struct gm_preload_charge *charge)
{
	if (!graph || !parameters || !parameters->bytes ||
		parameters->pool.location.type != GM_CU_MEM_LOCATION_TYPE_DEVICE)
		return GM_CUDA_SUCCESS;
	return gm_preload_charges_begin_on(
		driver, call, parameters->pool.location.id, parameters->bytes, charge);
}

/* The graph that a node moves into another one; NULL: none. */
static gm_cu_graph graphs_moved(const gm_cu_any_node *any)
{
	return any && any->type == GM_CU_GRAPH_NODE_TYPE_GRAPH &&
			       any->child.ownership == GM_CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE
		       ? any->child.graph
		       : NULL;
}

static gm_cu_result graphs_added(
	gm_cu_result result, gm_cu_graph graph, struct gm_preload_charge *charge, gm_cu_graph moved)
{
	if (!result && moved)
		gm_preload_graphs_move(moved, graph);
	if (result)
		gm_preload_charges_settle(charge, 0);
	else
		gm_preload_graphs_add(graph, charge, false);
	return result;
}

#define GRAPHS_ADD(symbol, parameters, memory, moved, ...) \
	gm_cu_result symbol parameters \
	{ \
		GM_DRIVER_OR_RETURN(driver, symbol); \
		GM_UNCANCELLED; \
		struct gm_preload_charge charge = {0}; \
		gm_cu_result result = \
			graphs_begin(driver, GM_CALL_##symbol, graph, memory, &charge); \
		if (result) \
			return result; \
		gm_cu_graph child = moved; \
		return graphs_added(driver->symbol(__VA_ARGS__), graph, &charge, child); \
	}

/* The parameters of a memory node among those of a node of any kind. */
static const gm_cu_alloc_node *graphs_node_memory(const gm_cu_any_node *any)
{
	return any && any->type == GM_CU_GRAPH_NODE_TYPE_MEM_ALLOC ? &any->memory : NULL;
}

GRAPHS_ADD(cuGraphAddMemAllocNode,
	(void **node, gm_cu_graph graph, const void *dependencies, size_t n,
		gm_cu_alloc_node *parameters),
	parameters, NULL, node, graph, dependencies, n, parameters)
GRAPHS_ADD(cuGraphAddNode,
	(void **node, gm_cu_graph graph, const void *dependencies, size_t n, gm_cu_any_node *any),
	graphs_node_memory(any), graphs_moved(any), node, graph, dependencies, n, any)
GRAPHS_ADD(cuGraphAddNode_v2,
	(void **node, gm_cu_graph graph, const void *dependencies, const void *edges, size_t n,
		gm_cu_any_node *any),
	graphs_node_memory(any), graphs_moved(any), node, graph, dependencies, edges, n, any)

static gm_cu_result graphs_made(gm_cu_result result, const void *graph, void *const *made)
{
	if (result == GM_CUDA_SUCCESS)
		gm_preload_graphs_share(graph, *made);
	return result;
}

#define GRAPHS_INSTANTIATE(symbol, parameters, ...) \
	gm_cu_result symbol parameters \
	{ \
		GM_DRIVER_OR_RETURN(driver, symbol); \
		GM_UNCANCELLED; \
		return graphs_made(driver->symbol(__VA_ARGS__), graph, exec); \
	}

GRAPHS_INSTANTIATE(cuGraphInstantiate,
	(void **exec, gm_cu_graph graph, void **node, char *log, size_t room), exec, graph, node,
	log, room)
GRAPHS_INSTANTIATE(cuGraphInstantiate_v2,
	(void **exec, gm_cu_graph graph, void **node, char *log, size_t room), exec, graph, node,
	log, room)
GRAPHS_INSTANTIATE(cuGraphInstantiateWithFlags,
	(void **exec, gm_cu_graph graph, unsigned long long flags), exec, graph, flags)
GRAPHS_INSTANTIATE(cuGraphInstantiateWithParams, (void **exec, gm_cu_graph graph, void *parameters),
	exec, graph, parameters)
GRAPHS_INSTANTIATE(cuGraphInstantiateWithParams_ptsz,
	(void **exec, gm_cu_graph graph, void *parameters), exec, graph, parameters)
GRAPHS_INSTANTIATE(cuGraphClone, (void **exec, gm_cu_graph graph), exec, graph)

#define GRAPHS_DESTROY(symbol, type) \
	gm_cu_result symbol(type handle) \
	{ \
		GM_DRIVER_OR_RETURN(driver, symbol); \
		GM_UNCANCELLED; \
		struct gm_preload_graphs_memory *memory = gm_preload_graphs_take(handle); \
		gm_cu_result result = driver->symbol(handle); \
		gm_preload_graphs_settle(memory, handle, result == GM_CUDA_SUCCESS); \
		return result; \
	}

GRAPHS_DESTROY(cuGraphDestroy, gm_cu_graph)
GRAPHS_DESTROY(cuGraphExecDestroy, void *)
