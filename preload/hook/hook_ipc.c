/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that programs under the broker share by CUDA IPC handles, as torch.multiprocessing does. A
 * handle of ours says where an allocation lies in memory that a token of the daemon's opens
 * (gpumem_piece.h): for processes of the same trust domain and nobody else. All other handles are the
 * driver's.
 */
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>

#include "common/cancel.h"
#include "common/lock.h"
#include "preload/table/preload_blocks.h"
#include "preload/broker/preload_broker.h"
#include "preload/table/preload_shared.h"

/* What a handle of ours looks like. The driver's begin with numbers of its own. */
struct ipc_ours {
	char magic[16];
	gpumem_piece piece;
	uint64_t process; /* drawn by the one that made it, which must not open it */
	uint64_t zero;
};
_Static_assert(sizeof(struct ipc_ours) == sizeof(gm_cu_ipc_mem), "one size for handles");

static const char ipc_magic[16] = "gpumemd\0handle\2";

/* So that a process maps what it opens once. Held over messages: these calls are rare. */
static struct gm_lock ipc_lock = GM_LOCK_INITIALIZER(GM_LOCK_IPC);

static uint64_t ipc_number;
static pthread_once_t ipc_drawn = PTHREAD_ONCE_INIT;

static void ipc_draw(void)
{
	if (getrandom(&ipc_number, sizeof ipc_number, 0) != sizeof ipc_number || !ipc_number)
		ipc_number = (uintptr_t)&ipc_number;
}

/* A number that no other process has. */
static uint64_t ipc_process(void)
{
	pthread_once(&ipc_drawn, ipc_draw);
	return ipc_number;
}

static bool ipc_read(const gm_cu_ipc_mem *handle, struct ipc_ours *ret)
{
	memcpy(ret, handle, sizeof *ret);
	return memcmp(ret->magic, ipc_magic, sizeof ipc_magic) == 0;
}

/* ---- the process that has the memory */

gm_cu_result cuIpcGetMemHandle(gm_cu_ipc_mem *handle, gm_cu_ptr ptr)
{
	GM_DRIVER_OR_RETURN(driver, cuIpcGetMemHandle);
	struct ipc_ours ours = {.zero = 0};
	struct gm_preload_block block;

	/* Of host memory, the driver says that it has no handle. */
	if (!handle || !gm_preload_there() || !gm_preload_blocks_near(ptr) ||
		!gm_preload_blocks_find(ptr, &block) || block.host_flags)
		return driver->cuIpcGetMemHandle(handle, ptr);
	/* As the driver, which makes handles only for memory that was not allocated in stream order. */
	if (!block.ctx)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if (block.spilled)
		return GM_CUDA_ERROR_NOT_SUPPORTED;

	gm_cu_result result = gm_preload_share(block.base, &ours.piece);
	if (result)
		return result;
	memcpy(ours.magic, ipc_magic, sizeof ipc_magic);
	ours.process = ipc_process();
	memcpy(handle, &ours, sizeof ours);
	return GM_CUDA_SUCCESS;
}

/* ---- the process that opens it */

/* With the lock held. */
static gm_cu_result ipc_open(
	const struct gm_driver *driver, const struct ipc_ours *ours, gm_cu_ptr *ret_ptr)
{
	struct gm_preload_shared_mapped mapped;
	gm_cu_ctx ctx = NULL;

	/* As the driver: nobody opens what is his own. */
	if (ours->process == ipc_process() || driver->cuCtxGetCurrent(&ctx) || !ctx)
		return GM_CUDA_ERROR_INVALID_CONTEXT;
	int again = gm_preload_shared_open(&ours->piece, ctx, ret_ptr);
	if (again)
		return again > 0 ? GM_CUDA_SUCCESS : GM_CUDA_ERROR_OUT_OF_MEMORY;

	gm_cu_result result =
		gm_preload_open(&ours->piece, &mapped.buffer, &mapped.start, &mapped.bytes);
	if (result)
		return result;
	if (!gm_preload_shared_add(&ours->piece, ctx, &mapped, ret_ptr)) {
		gm_preload_buffer_end(mapped.buffer);
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	}
	return GM_CUDA_SUCCESS;
}

/* true: the handle is ours, and the result is *ret_result. */
static bool ipc_opened(const struct gm_driver *driver, gm_cu_ptr *ptr, const gm_cu_ipc_mem *handle,
	unsigned int flags, gm_cu_result *ret_result)
{
	struct ipc_ours ours;

	if (!ipc_read(handle, &ours))
		return false;
	enum gm_preload_answer answer = gm_preload_begin();
	if (answer == GM_BROKER_ABSENT)
		return false;
	if (answer == GM_BROKER_REFUSED)
		*ret_result = GM_CUDA_ERROR_SYSTEM_NOT_READY;
	else if (!ptr || flags != GM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		*ret_result = GM_CUDA_ERROR_INVALID_VALUE;
	else {
		GM_UNCANCELLED;
		gm_lock(&ipc_lock);
		*ret_result = ipc_open(driver, &ours, ptr);
		gm_lock_drop(&ipc_lock);
	}
	return true;
}

#define IPC_OPEN(symbol) \
	gm_cu_result symbol(gm_cu_ptr *ptr, gm_cu_ipc_mem handle, unsigned int flags) \
	{ \
		GM_DRIVER_OR_RETURN(driver, symbol); \
		gm_cu_result result; \
		return ipc_opened(driver, ptr, &handle, flags, &result) \
			       ? result \
			       : driver->symbol(ptr, handle, flags); \
	}

IPC_OPEN(cuIpcOpenMemHandle)
IPC_OPEN(cuIpcOpenMemHandle_v2)

gm_cu_result cuIpcCloseMemHandle(gm_cu_ptr ptr)
{
	GM_DRIVER_OR_RETURN(driver, cuIpcCloseMemHandle);
	gpumem_buffer *buffer = NULL;

	if (!gm_preload_there() || !gm_preload_shared_is(ptr))
		return driver->cuIpcCloseMemHandle(ptr);

	/* Work of this process may still use it. The driver need not be waited for, and the wait would break a capture. */
	GM_UNCANCELLED;
	bool wait = gm_preload_capture_keep_out();
	gm_cu_result result = wait ? driver->cuCtxSynchronize() : GM_CUDA_SUCCESS;
	if (wait)
		gm_preload_capture_let_in();
	gm_lock(&ipc_lock);
	bool closed = gm_preload_shared_close(ptr, &buffer);
	gm_lock_drop(&ipc_lock);
	gm_preload_buffer_end(buffer);
	return closed ? result : GM_CUDA_ERROR_INVALID_VALUE;
}
