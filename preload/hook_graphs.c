/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs that have memory of their own (preload_graphs.h). What can be launched has the memory of the graph
 * that it was made of.
 */
#include "preload/preload_graphs.h"

gm_cu_result cuGraphAddMemAllocNode(void **node, gm_cu_graph graph, const void *dependencies,
	size_t n, gm_cu_alloc_node *parameters)
{
	GM_DRIVER_OR_RETURN(driver, cuGraphAddMemAllocNode);
	struct gm_preload_charge charge = {0};
	gm_cu_result result = GM_CUDA_SUCCESS;

	if (graph && parameters && parameters->bytes &&
		parameters->pool.location.type == GM_CU_MEM_LOCATION_TYPE_DEVICE)
		result = gm_charges_begin_on(driver, GM_CALL_cuGraphAddMemAllocNode,
			parameters->pool.location.id, parameters->bytes, &charge);
	if (result)
		return result;
	result = driver->cuGraphAddMemAllocNode(node, graph, dependencies, n, parameters);
	if (result)
		gm_charges_settle(&charge, 0);
	else
		gm_graphs_add(graph, &charge, false);
	return result;
}

static gm_cu_result graphs_made(gm_cu_result result, const void *graph, void *const *made)
{
	if (result == GM_CUDA_SUCCESS)
		gm_graphs_share(graph, *made);
	return result;
}

#define GRAPHS_INSTANTIATE(symbol, parameters, ...) \
	gm_cu_result symbol parameters \
	{ \
		GM_DRIVER_OR_RETURN(driver, symbol); \
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
		struct gm_graphs_memory *memory = gm_graphs_take(handle); \
		gm_cu_result result = driver->symbol(handle); \
		gm_graphs_settle(memory, handle, result == GM_CUDA_SUCCESS); \
		return result; \
	}

GRAPHS_DESTROY(cuGraphDestroy, gm_cu_graph)
GRAPHS_DESTROY(cuGraphExecDestroy, void *)
