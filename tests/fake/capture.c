/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream capture of the fake driver. No graph is ever run: what is captured is counted, so that a
 * fork that was never joined is known. What this is for is the rules, which the real driver keeps
 * by breaking the capture of whoever offends, another thread's too: which calls a thread may make
 * while somebody captures, and in which mode.
 */
#include "tests/fake/stream.h"

#include <stdlib.h>
#include <string.h>

#include <utlist.h>

static __thread gm_cu_capture_mode mine = GM_CU_STREAM_CAPTURE_MODE_GLOBAL;

/*
 * As documented for cuThreadExchangeStreamCaptureMode: a capture that is not relaxed binds the
 * thread that began it, a global one every thread that is in global mode, and nobody binds a
 * relaxed thread. It is no matter which context anything is of. Lock.
 */
static gm_cu_result forbids(void)
{
	gm_cu_result result = GM_CUDA_SUCCESS;
	struct fake_capture *capture;

	if (mine == GM_CU_STREAM_CAPTURE_MODE_RELAXED)
		return result;
	DL_FOREACH (fake_streams.captures, capture) {
		bool own = pthread_equal(capture->thread, pthread_self()) &&
			   capture->mode != GM_CU_STREAM_CAPTURE_MODE_RELAXED;
		bool global = mine == GM_CU_STREAM_CAPTURE_MODE_GLOBAL &&
			      capture->mode == GM_CU_STREAM_CAPTURE_MODE_GLOBAL;
		if (own || global) {
			capture->broken = true;
			result = GM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	}
	return result;
}

gm_cu_result fake_capture_forbids(void)
{
	gm_cu_result result;

	pthread_mutex_lock(&fake_streams.lock);
	result = forbids();
	pthread_mutex_unlock(&fake_streams.lock);
	return result;
}

struct fake_capture *fake_capture_find(gm_cu_u64 id)
{
	struct fake_capture *capture;

	DL_FOREACH (fake_streams.captures, capture)
		if (capture->id == id)
			return capture;
	return NULL;
}

gm_cu_result fake_capture_break(int context)
{
	gm_cu_result result = GM_CUDA_SUCCESS;
	struct fake_stream *stream;

	DL_FOREACH (fake_streams.list, stream)
		if (stream->capture && stream->context == context) {
			stream->capture->broken = true;
			result = GM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	return result;
}

/* The legacy stream cannot be used while one that waits for it is captured. */
static bool implicit(const struct fake_stream *stream, bool breaks)
{
	struct fake_stream *other;
	bool found = false;

	if (!stream->legacy)
		return false;
	DL_FOREACH (fake_streams.list, other)
		if (other->capture && other->blocking && other->context == stream->context) {
			other->capture->broken = other->capture->broken || breaks;
			found = true;
		}
	return found;
}

gm_cu_result fake_capture_use(struct fake_stream *stream, bool *ret_captured)
{
	*ret_captured = false;
	if (implicit(stream, true))
		return GM_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	if (!stream->capture)
		return GM_CUDA_SUCCESS;
	if (stream->capture->broken)
		return GM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	*ret_captured = true;
	stream->captured++;
	return GM_CUDA_SUCCESS;
}

gm_cu_result fake_capture_ask(struct fake_stream *stream, bool unsafe)
{
	gm_cu_result result;

	if (implicit(stream, true))
		return GM_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	result = unsafe ? forbids() : GM_CUDA_SUCCESS;
	if (!stream->capture)
		return result;
	stream->capture->broken = true;
	return GM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

gm_cu_result fake_capture_wait(struct fake_stream *stream, gm_cu_event event, bool *ret_captured)
{
	struct fake_capture *capture = fake_capture_find(event->capture);

	*ret_captured = false;
	if (!event->capture && !stream->capture)
		return implicit(stream, true) ? GM_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
					      : GM_CUDA_SUCCESS;
	if (!event->capture) {
		/* It would make the graph wait for something outside of it. */
		if (stream->capture->broken)
			return GM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
		stream->capture->broken = true;
		return GM_CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	}
	if (!capture)
		return GM_CUDA_ERROR_CAPTURED_EVENT; /* of a graph that is finished */
	if (stream->capture && stream->capture != capture) {
		stream->capture->broken = capture->broken = true;
		return GM_CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	if (stream->legacy) {
		capture->broken = true;
		return GM_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	if (capture->broken)
		return GM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!fake_points_merge(&stream->seen, &event->points))
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	stream->capture = capture; /* so a capture spreads over streams */
	*ret_captured = true;
	return GM_CUDA_SUCCESS;
}

/* ---- the driver's functions */

/* Only a thing to destroy. */
struct fake_graph {
	bool exec;                   /* it can be launched */
	bool memory;                 /* it has memory of its own */
	const struct fake_graph *of; /* what it was made of, if it can be launched */
	const struct fake_graph *in; /* what it was moved into, and ends with */
	struct fake_graph *prev, *next;
};
static struct fake_graph *graphs; /* behind the streams' lock */

FAKE_API gm_cu_result cuThreadExchangeStreamCaptureMode(gm_cu_capture_mode *mode);
FAKE_API gm_cu_result cuThreadExchangeStreamCaptureMode(gm_cu_capture_mode *mode)
{
	gm_cu_capture_mode old = mine;

	FAKE_ENTER("cuThreadExchangeStreamCaptureMode");
	if (!mode || *mode < 0 || *mode > GM_CU_STREAM_CAPTURE_MODE_RELAXED)
		return GM_CUDA_ERROR_INVALID_VALUE;
	mine = *mode;
	*mode = old;
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuStreamBeginCapture_v2(gm_cu_stream handle, gm_cu_capture_mode mode);
FAKE_API gm_cu_result cuStreamBeginCapture_v2(gm_cu_stream handle, gm_cu_capture_mode mode)
{
	struct fake_capture *capture;
	struct fake_stream *stream;
	gm_cu_result result;

	FAKE_ENTER("cuStreamBeginCapture");
	if (mode < 0 || mode > GM_CU_STREAM_CAPTURE_MODE_RELAXED)
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake_streams.lock);
	result = fake_stream_find(handle, &stream);
	if (!result && stream->legacy) {
		result = GM_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	} else if (!result && stream->capture) {
		result = GM_CUDA_ERROR_ILLEGAL_STATE;
	} else if (!result && (!(capture = calloc(1, sizeof *capture)) ||
				      !(capture->graph = calloc(1, sizeof *capture->graph)))) {
		free(capture);
		result = GM_CUDA_ERROR_OUT_OF_MEMORY;
	} else if (!result) {
		capture->id = fake_streams.next_capture++;
		capture->mode = mode;
		capture->origin = stream;
		capture->thread = pthread_self();
		DL_APPEND(fake_streams.captures, capture);
		stream->capture = capture;
	}
	pthread_mutex_unlock(&fake_streams.lock);
	return result;
}

/* Asking the legacy stream is refused where using it is, but breaks nothing. */
static gm_cu_result status_of(
	gm_cu_stream handle, gm_cu_capture_status *status, struct fake_stream **ret_stream)
{
	gm_cu_result result = fake_stream_find(handle, ret_stream);

	if (result)
		return result;
	if (implicit(*ret_stream, false))
		return GM_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	*status = !(*ret_stream)->capture          ? GM_CU_STREAM_CAPTURE_STATUS_NONE
		  : (*ret_stream)->capture->broken ? GM_CU_STREAM_CAPTURE_STATUS_INVALIDATED
						   : GM_CU_STREAM_CAPTURE_STATUS_ACTIVE;
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuStreamIsCapturing(gm_cu_stream handle, gm_cu_capture_status *status);
FAKE_API gm_cu_result cuStreamIsCapturing(gm_cu_stream handle, gm_cu_capture_status *status)
{
	struct fake_stream *stream;
	gm_cu_result result;

	FAKE_ENTER("cuStreamIsCapturing");
	if (!status)
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake_streams.lock);
	result = status_of(handle, status, &stream);
	pthread_mutex_unlock(&fake_streams.lock);
	return result;
}

FAKE_API gm_cu_result cuStreamGetCaptureInfo(
	gm_cu_stream handle, gm_cu_capture_status *status, gm_cu_u64 *id);
FAKE_API gm_cu_result cuStreamGetCaptureInfo(
	gm_cu_stream handle, gm_cu_capture_status *status, gm_cu_u64 *id)
{
	struct fake_stream *stream;
	gm_cu_result result;

	FAKE_ENTER("cuStreamGetCaptureInfo");
	if (!status)
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake_streams.lock);
	result = status_of(handle, status, &stream);
	if (!result && *status == GM_CU_STREAM_CAPTURE_STATUS_ACTIVE && id)
		*id = stream->capture->id;
	pthread_mutex_unlock(&fake_streams.lock);
	return result;
}

static bool joined(const struct fake_capture *capture, const struct fake_stream *stream)
{
	const struct fake_points *seen = &capture->origin->seen;

	if (stream == capture->origin || !stream->captured)
		return true;
	for (size_t i = 0; i < seen->n; i++)
		if (seen->at[i].stream == stream)
			return seen->at[i].count >= stream->captured;
	return false;
}

/* Takes all its streams out of the capture. */
static gm_cu_result end(struct fake_capture *capture, struct fake_graph **ret_graph)
{
	gm_cu_result result =
		capture->broken ? GM_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : GM_CUDA_SUCCESS;
	struct fake_stream *stream;

	DL_FOREACH (fake_streams.list, stream)
		if (stream->capture == capture && !result && !joined(capture, stream))
			result = GM_CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	DL_FOREACH (fake_streams.list, stream)
		if (stream->capture == capture) {
			stream->capture = NULL;
			stream->captured = 0;
			free(stream->seen.at);
			stream->seen = (struct fake_points){0};
		}
	DL_DELETE(fake_streams.captures, capture);
	if (result || !ret_graph) {
		free(capture->graph);
	} else {
		DL_APPEND(graphs, capture->graph);
		*ret_graph = capture->graph;
	}
	free(capture);
	return result;
}

FAKE_API gm_cu_result cuStreamEndCapture(gm_cu_stream handle, void **ret_graph);
FAKE_API gm_cu_result cuStreamEndCapture(gm_cu_stream handle, void **ret_graph)
{
	struct fake_capture *capture;
	struct fake_graph *graph = NULL;
	struct fake_stream *stream;
	gm_cu_result result;

	FAKE_ENTER("cuStreamEndCapture");
	if (!ret_graph)
		return GM_CUDA_ERROR_INVALID_VALUE;
	*ret_graph = NULL;
	pthread_mutex_lock(&fake_streams.lock);
	result = fake_stream_find(handle, &stream);
	capture = result ? NULL : stream->capture;
	if (!result && !capture) {
		result = GM_CUDA_ERROR_ILLEGAL_STATE;
	} else if (!result && capture->origin != stream) {
		capture->broken = true;
		result = GM_CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	} else if (!result && capture->mode != GM_CU_STREAM_CAPTURE_MODE_RELAXED &&
		   !pthread_equal(capture->thread, pthread_self())) {
		end(capture, NULL); /* the right thread finds no capture any more */
		result = GM_CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	} else if (!result) {
		result = end(capture, &graph);
		*ret_graph = graph;
	}
	pthread_mutex_unlock(&fake_streams.lock);
	return result;
}

/* What a stream is captured into; dependencies are not told. */
FAKE_API gm_cu_result cuStreamGetCaptureInfo_v2(gm_cu_stream handle, gm_cu_capture_status *status,
	gm_cu_u64 *id, void **graph, const void **dependencies, size_t *n);
FAKE_API gm_cu_result cuStreamGetCaptureInfo_v2(gm_cu_stream handle, gm_cu_capture_status *status,
	gm_cu_u64 *id, void **graph, const void **dependencies, size_t *n)
{
	struct fake_stream *stream;
	gm_cu_result result;

	FAKE_ENTER("cuStreamGetCaptureInfo");
	if (!status || dependencies || n)
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake_streams.lock);
	result = status_of(handle, status, &stream);
	if (!result && *status == GM_CU_STREAM_CAPTURE_STATUS_ACTIVE) {
		if (id)
			*id = stream->capture->id;
		if (graph)
			*graph = stream->capture->graph;
	}
	pthread_mutex_unlock(&fake_streams.lock);
	return result;
}

bool fake_captured(gm_cu_stream handle, gm_cu_result *ret_result)
{
	struct fake_stream *stream;
	bool captured = false;

	pthread_mutex_lock(&fake_streams.lock);
	*ret_result = fake_stream_find(handle, &stream);
	if (!*ret_result && stream->capture)
		*ret_result = fake_capture_use(stream, &captured);
	if (captured)
		stream->capture->graph->memory = true;
	pthread_mutex_unlock(&fake_streams.lock);
	return captured || *ret_result;
}

static struct fake_graph *graph_find(void *handle, bool exec)
{
	struct fake_graph *graph;

	DL_FOREACH (graphs, graph)
		if (graph == handle && graph->exec == exec)
			break;
	return graph;
}

static gm_cu_result graph_new(void **ret_handle, bool exec)
{
	struct fake_graph *graph = calloc(1, sizeof *graph);

	if (!graph)
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	graph->exec = exec;
	pthread_mutex_lock(&fake_streams.lock);
	DL_APPEND(graphs, graph);
	pthread_mutex_unlock(&fake_streams.lock);
	*ret_handle = graph;
	return GM_CUDA_SUCCESS;
}

static void graph_destroy(void *handle, bool exec)
{
	pthread_mutex_lock(&fake_streams.lock);
	struct fake_graph *graph = graph_find(handle, exec), *child, *next;
	if (!graph || graph->in)
		fake_undefined("no such graph");
	DL_FOREACH_SAFE (graphs, child, next)
		if (child->in == graph) {
			DL_DELETE(graphs, child);
			free(child);
		}
	DL_DELETE(graphs, graph);
	free(graph);
	pthread_mutex_unlock(&fake_streams.lock);
}

FAKE_API gm_cu_result cuGraphCreate(void **graph, unsigned int flags);
FAKE_API gm_cu_result cuGraphCreate(void **graph, unsigned int flags)
{
	FAKE_ENTER("cuGraphCreate");
	return graph && !flags ? graph_new(graph, false) : GM_CUDA_ERROR_INVALID_VALUE;
}

FAKE_API gm_cu_result cuGraphInstantiateWithFlags(
	void **exec, void *graph, unsigned long long flags);
FAKE_API gm_cu_result cuGraphInstantiateWithFlags(
	void **exec, void *graph, unsigned long long flags)
{
	const struct fake_graph *other;
	bool taken = false;
	gm_cu_result result;

	FAKE_ENTER("cuGraphInstantiateWithFlags");
	(void)flags;
	pthread_mutex_lock(&fake_streams.lock);
	const struct fake_graph *found = graph_find(graph, false);
	DL_FOREACH (graphs, other)
		taken |= found && found->memory && other->of == found;
	pthread_mutex_unlock(&fake_streams.lock);
	if (!exec || !found)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if (taken) /* a graph with memory can be launched in one form only */
		return GM_CUDA_ERROR_NOT_SUPPORTED;
	result = graph_new(exec, true);
	if (result == GM_CUDA_SUCCESS)
		((struct fake_graph *)*exec)->of = found;
	return result;
}

/* The memory is made when the graph is launched, which this driver does not do. */
FAKE_API gm_cu_result cuGraphAddMemAllocNode(
	void **node, void *graph, const void *dependencies, size_t n, gm_cu_alloc_node *parameters);
FAKE_API gm_cu_result cuGraphAddMemAllocNode(
	void **node, void *graph, const void *dependencies, size_t n, gm_cu_alloc_node *parameters)
{
	static char a_node;

	FAKE_ENTER("cuGraphAddMemAllocNode");
	(void)dependencies;
	if (!node || n || !parameters || !parameters->bytes ||
		parameters->pool.type != GM_CU_MEM_ALLOCATION_TYPE_PINNED ||
		!fake_get_device(parameters->pool.location.id))
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake_streams.lock);
	struct fake_graph *found = graph_find(graph, false);
	if (found)
		found->memory = true;
	pthread_mutex_unlock(&fake_streams.lock);
	if (!found)
		return GM_CUDA_ERROR_INVALID_VALUE;
	*node = &a_node;
	return fake_captured_memory(&parameters->ptr, parameters->bytes);
}

/* A graph with memory can only be moved, once. */
static gm_cu_result graph_add_child(void **node, void *graph, const gm_cu_child_node *parameters)
{
	static char a_node;

	pthread_mutex_lock(&fake_streams.lock);
	struct fake_graph *parent = graph_find(graph, false);
	struct fake_graph *child = graph_find(parameters->graph, false);
	bool moves = parameters->ownership == GM_CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
	bool fine = node && parent && child && parent != child && !child->in &&
		    (moves || !child->memory);
	if (fine && moves) {
		child->in = parent;
		parent->memory |= child->memory;
	}
	pthread_mutex_unlock(&fake_streams.lock);
	if (!fine)
		return GM_CUDA_ERROR_INVALID_VALUE;
	*node = &a_node;
	return GM_CUDA_SUCCESS;
}

/* Of all kinds of nodes, graphs and those with memory. */
FAKE_API gm_cu_result cuGraphAddNode_v2(void **node, void *graph, const void *dependencies,
	const void *edges, size_t n, gm_cu_any_node *any);
FAKE_API gm_cu_result cuGraphAddNode_v2(void **node, void *graph, const void *dependencies,
	const void *edges, size_t n, gm_cu_any_node *any)
{
	FAKE_ENTER("cuGraphAddNode");
	(void)edges;
	if (any && any->type == GM_CU_GRAPH_NODE_TYPE_GRAPH)
		return graph_add_child(node, graph, &any->child);
	if (!any || any->type != GM_CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		return GM_CUDA_ERROR_INVALID_VALUE;
	return cuGraphAddMemAllocNode(node, graph, dependencies, n, &any->memory);
}

FAKE_API gm_cu_result cuGraphDestroy(void *handle);
FAKE_API gm_cu_result cuGraphDestroy(void *handle)
{
	FAKE_ENTER("cuGraphDestroy");
	graph_destroy(handle, false);
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuGraphExecDestroy(void *handle);
FAKE_API gm_cu_result cuGraphExecDestroy(void *handle)
{
	FAKE_ENTER("cuGraphExecDestroy");
	graph_destroy(handle, true);
	return GM_CUDA_SUCCESS;
}
