/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See cuda_operations.h. The driver chooses the addresses, and lets a process open a block once only; ipc_cache.c
 * counts who uses it. Closing a block waits for the GPU.
 */
#include "client/map/cuda_operations.h"

#include <errno.h>
#include <string.h>

#include "client/map/cuda_backend.h"
#include "client/map/ipc_cache.h"

/* One for the whole process: the driver counts openings per process, not per session. */
static struct gm_ipc_cache ipc_blocks = GM_IPC_CACHE_INIT;

static gm_cu_result cuda_ipc_open_here(
	struct gm_map_cuda *backend, gm_cu_ipc_mem handle, gm_cu_ptr *ret_ptr)
{
	return backend->cuda->cuIpcOpenMemHandle(
		ret_ptr, handle, GM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

/*
 * Opens a block in another context than the current one. Only one context of a GPU at a time can
 * open blocks of a given process, here the daemon; all contexts then reach the block there. So the
 * block is opened in the context that has opened others.
 */
static gm_cu_result cuda_ipc_open_elsewhere(
	struct gm_map_cuda *backend, gm_cu_ipc_mem handle, uint64_t *context, gm_cu_ptr *ret_ptr)
{
	gm_cu_result unused, result = GM_CUDA_ERROR_INVALID_HANDLE;
	struct gm_cuda_context *other;

	gm_cuda_contexts_walk(backend->contexts);

	other = gm_cuda_contexts_first(backend->contexts, &unused);
	for (; other && result; other = other->next) {
		struct gm_cuda_entered entered;

		if (other->number == *context ||
			gm_cuda_context_enter(backend->contexts, other, &entered))
			continue;
		if (cuda_ipc_open_here(backend, handle, ret_ptr) == GM_CUDA_SUCCESS) {
			*context = other->number;
			result = GM_CUDA_SUCCESS;
		}
		gm_cuda_backend_leave(backend, &entered);
	}

	gm_cuda_contexts_walked(backend->contexts);
	return result;
}

static int cuda_ipc_open(
	void *ctx, const uint8_t handle[GM_IPC_HANDLE_BYTES], uint64_t *context, void **ret_addr)
{
	struct gm_map_cuda *backend = ctx;
	gm_cu_ipc_mem given;
	gm_cu_ptr ptr = 0;
	gm_cu_result result;

	memcpy(&given, handle, sizeof given);
	result = cuda_ipc_open_here(backend, given, &ptr);
	if (result == GM_CUDA_ERROR_INVALID_HANDLE)
		result = cuda_ipc_open_elsewhere(backend, given, context, &ptr);
	if (result)
		return gm_cuda_backend_outcome(backend, result);
	*ret_addr = (void *)(uintptr_t)ptr;
	return 0;
}

static int cuda_ipc_close(void *ctx, uint64_t context, void *addr)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;
	gm_cu_result result;
	int r = gm_cuda_contexts_enter_number(backend->contexts, context, &entered);

	/* If its context or the driver is gone, the block is closed already. */
	if (r == GM_CUDA_CONTEXT_GONE)
		return 0;

	result = (gm_cu_result)r;
	if (!result) {
		result = backend->cuda->cuIpcCloseMemHandle(gm_cuda_backend_at(addr));
		gm_cuda_backend_leave(backend, &entered);
	}
	if (result == GM_CUDA_ERROR_DEINITIALIZED || result == GM_CUDA_ERROR_INVALID_CONTEXT ||
		result == GM_CUDA_ERROR_CONTEXT_IS_DESTROYED)
		result = GM_CUDA_SUCCESS;
	return gm_cuda_backend_outcome(backend, result);
}

static const struct gm_ipc_ops ipc_ops = {.open = cuda_ipc_open, .close = cuda_ipc_close};

int gm_cuda_ipc_attach(void *ctx, const uint8_t handle[GM_IPC_HANDLE_BYTES], void **ret_addr)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;
	gm_cu_result result;
	int r;

	gm_cuda_backend_no_error();
	if (!backend->cuda->cuIpcOpenMemHandle || !backend->cuda->cuIpcCloseMemHandle)
		return -EOPNOTSUPP;
	result = gm_cuda_backend_enter(backend, &entered);
	if (result)
		return gm_cuda_backend_outcome(backend, result);

	r = gm_ipc_cache_take(&ipc_blocks, &ipc_ops, backend, handle,
		gm_cuda_contexts_here(backend->contexts), ret_addr);
	gm_cuda_backend_leave(backend, &entered);
	return r;
}

int gm_cuda_ipc_detach(void *ctx, void *addr)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;
	int r;

	gm_cuda_backend_no_error();
	/* No context need be entered here: cuda_ipc_close() enters the block's own. */
	gm_cuda_contexts_relax(backend->contexts, &entered);
	r = gm_ipc_cache_put(&ipc_blocks, &ipc_ops, backend, addr);
	gm_cuda_backend_leave(backend, &entered);
	return r;
}
