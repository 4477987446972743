/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that programs under the broker share by CUDA IPC handles, as torch.multiprocessing does. A
 * handle of ours has a token of the daemon's, which opens the memory for processes of the same trust
 * domain and nobody else. All other handles are the driver's.
 */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "preload/preload_blocks.h"
#include "preload/preload_broker.h"
#include "preload/preload_shared.h"

/* What a handle of ours looks like. The driver's begin with numbers of its own. */
struct ipc_ours {
	char magic[16];
	gpumem_token token;
	uint64_t bytes; /* of the allocation */
	char zero[64 - 16 - sizeof(gpumem_token) - 8];
};
_Static_assert(sizeof(struct ipc_ours) == sizeof(gm_cu_ipc_mem), "one size for handles");

static const char ipc_magic[16] = "gpumemd\0handle\1";

/* So that an allocation gets one token, and a process opens it once. Held over messages: these calls are
 * rare. */
static pthread_mutex_t ipc_lock = PTHREAD_MUTEX_INITIALIZER;

static bool ipc_read(const gm_cu_ipc_mem *handle, struct ipc_ours *ret)
{
	memcpy(ret, handle, sizeof *ret);
	return memcmp(ret->magic, ipc_magic, sizeof ipc_magic) == 0;
}

/* ---- the process that has the memory */

static gm_cu_result ipc_name(struct gm_shared *shared)
{
	if (shared->named)
		return GM_CUDA_SUCCESS;
	gm_cu_result result = gm_broker_share(shared->buffer, &shared->token);
	if (result)
		return result;
	shared->named = true;
	gm_shared_set(shared);
	return GM_CUDA_SUCCESS;
}

gm_cu_result cuIpcGetMemHandle(gm_cu_ipc_mem *handle, gm_cu_ptr ptr)
{
	GM_DRIVER_OR_RETURN(driver, cuIpcGetMemHandle);
	struct ipc_ours ours = {.bytes = 0};
	struct gm_preload_block block;
	struct gm_shared shared;

	/* Of host memory, the driver says that it has no handle. */
	if (!handle || !gm_broker_there() || !gm_blocks_near(ptr) || !gm_blocks_find(ptr, &block) ||
		block.host_flags)
		return driver->cuIpcGetMemHandle(handle, ptr);

	pthread_mutex_lock(&ipc_lock);
	gm_cu_result result = gm_shared_find(block.base, &shared) ? ipc_name(&shared)
								  : GM_CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_unlock(&ipc_lock);
	if (result)
		return result;

	memcpy(ours.magic, ipc_magic, sizeof ipc_magic);
	ours.token = shared.token;
	ours.bytes = block.bytes;
	memcpy(handle, &ours, sizeof ours);
	return GM_CUDA_SUCCESS;
}

/* ---- the process that opens it */

/* With the lock held. */
static gm_cu_result ipc_open(const struct ipc_ours *ours, gm_cu_ptr *ret_ptr)
{
	struct gm_shared shared;

	if (gm_shared_find_token(&ours->token, &shared)) {
		/* As the driver: nobody opens what is his own; a second time, the address is the same. */
		if (!shared.opened)
			return GM_CUDA_ERROR_INVALID_CONTEXT;
		shared.opened++;
		gm_shared_set(&shared);
		*ret_ptr = shared.base;
		return GM_CUDA_SUCCESS;
	}

	shared = (struct gm_shared){.named = true, .token = ours->token, .opened = 1};
	gm_cu_result result = gm_broker_open(&ours->token, &shared.buffer, &shared.base);
	if (result)
		return result;
	if (!gm_shared_add(&shared)) {
		gm_broker_buffer_end(shared.buffer);
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_ptr = shared.base;
	return GM_CUDA_SUCCESS;
}

/* true: the handle is ours, and the result is *ret_result. */
static bool ipc_opened(
	gm_cu_ptr *ptr, const gm_cu_ipc_mem *handle, unsigned int flags, gm_cu_result *ret_result)
{
	struct ipc_ours ours;

	if (!ipc_read(handle, &ours))
		return false;
	enum gm_broker_answer answer = gm_broker_begin();
	if (answer == GM_BROKER_ABSENT)
		return false;
	if (answer == GM_BROKER_REFUSED)
		*ret_result = GM_CUDA_ERROR_SYSTEM_NOT_READY;
	else if (!ptr || flags != GM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		*ret_result = GM_CUDA_ERROR_INVALID_VALUE;
	else {
		pthread_mutex_lock(&ipc_lock);
		*ret_result = ipc_open(&ours, ptr);
		pthread_mutex_unlock(&ipc_lock);
	}
	return true;
}

#define IPC_OPEN(symbol) \
	gm_cu_result symbol(gm_cu_ptr *ptr, gm_cu_ipc_mem handle, unsigned int flags) \
	{ \
		GM_DRIVER_OR_RETURN(driver, symbol); \
		gm_cu_result result; \
		return ipc_opened(ptr, &handle, flags, &result) \
			       ? result \
			       : driver->symbol(ptr, handle, flags); \
	}

IPC_OPEN(cuIpcOpenMemHandle)
IPC_OPEN(cuIpcOpenMemHandle_v2)

gm_cu_result cuIpcCloseMemHandle(gm_cu_ptr ptr)
{
	GM_DRIVER_OR_RETURN(driver, cuIpcCloseMemHandle);
	gpumem_buffer *buffer = NULL;
	struct gm_shared shared;

	if (!gm_broker_there() || !gm_shared_find(ptr, &shared) || !shared.opened)
		return driver->cuIpcCloseMemHandle(ptr);

	/* Work of this process may still use it. */
	gm_cu_result result = driver->cuCtxSynchronize();
	pthread_mutex_lock(&ipc_lock);
	if (gm_shared_find(ptr, &shared) && shared.opened) {
		if (--shared.opened > 0)
			gm_shared_set(&shared);
		else
			(void)gm_shared_take(ptr, false, &buffer);
	}
	pthread_mutex_unlock(&ipc_lock);
	gm_broker_buffer_end(buffer);
	return result;
}
