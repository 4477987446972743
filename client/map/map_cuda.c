/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Imports chunks and maps them into reserved device addresses; map_cuda.h says what this module
 * promises. It keeps no handle of a chunk, because the driver finds a mapped chunk from its
 * address. cuda_context.c chooses the context for each call, cuda_ipc.c has the chunks of the ipc
 * transport, and cuda_stream.c the streams.
 *
 * It must never wait for the GPU, except for a transfer.
 */
#include "client/map/map_cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/map/cuda_backend.h"
#include "client/map/cuda_capture.h"
#include "client/map/cuda_operations.h"
#include "client/map/cuda_signal.h"
#include "common/lock.h"

const char *gm_map_cuda_error(void)
{
	return gm_cuda_backend_error();
}

int gm_map_cuda_call(struct gm_map_cuda *backend,
	gm_cu_result (*fn)(const struct gm_cuda *cuda, void *arg), void *arg)
{
	struct gm_cuda_entered entered;
	gm_cu_result result = gm_cuda_backend_enter(backend, &entered);

	if (!result) {
		result = fn(backend->cuda, arg);
		gm_cuda_backend_leave(backend, &entered);
	}
	return gm_cuda_backend_outcome(backend, result);
}

bool gm_map_cuda_active(struct gm_map_cuda *backend)
{
	return gm_cuda_contexts_any(backend->contexts);
}

/* ---- the backend */

int gm_map_cuda_count(const struct gm_cuda *cuda, int *ret_count, char why[GM_MAP_CUDA_WHY])
{
	gm_cu_result result = cuda->cuDeviceGetCount(ret_count);

	if (result == GM_CUDA_ERROR_NOT_INITIALIZED)
		snprintf(why, GM_MAP_CUDA_WHY,
			"CUDA was started before this process was forked, and does not work after fork(): fork first, or start a program in the child (exec)");
	else if (result)
		snprintf(why, GM_MAP_CUDA_WHY, "the NVIDIA driver does not answer: %s",
			gm_cuda_error(cuda, result));
	return result ? -ENODEV : 0;
}

static int cuda_find_device(const struct gm_cuda *cuda, const uint8_t uuid[GM_UUID_BYTES],
	gm_cu_device *ret_device, char why[GM_MAP_CUDA_WHY])
{
	int count = 0;
	int r = gm_map_cuda_count(cuda, &count, why);

	if (r < 0)
		return r;
	for (int i = 0; i < count; i++) {
		gm_cu_device device;
		gm_cu_uuid theirs;

		if (!cuda->cuDeviceGet(&device, i) && !cuda->cuDeviceGetUuid(&theirs, device) &&
			memcmp(theirs.bytes, uuid, GM_UUID_BYTES) == 0) {
			*ret_device = device;
			return 0;
		}
	}
	snprintf(why, GM_MAP_CUDA_WHY,
		"this process does not see the GPU that the daemon serves: check CUDA_VISIBLE_DEVICES, and which GPUs its container was given");
	return -ENODEV;
}

/* Whether this driver can map memory at an address of our choice, as the fd transport needs. */
static bool cuda_can_place(const struct gm_cuda *cuda)
{
	return cuda->cuMemAddressReserve && cuda->cuMemMap &&
	       cuda->cuMemImportFromShareableHandle && cuda->cuMemRetainAllocationHandle;
}

int gm_map_cuda_new(const uint8_t uuid[GM_UUID_BYTES], struct gm_map_cuda **ret_backend,
	char why[GM_MAP_CUDA_WHY])
{
	struct gm_map_cuda *backend;
	const struct gm_cuda *cuda;
	gm_cu_device device;
	int r;

	_Static_assert(GM_MAP_CUDA_WHY == GM_CUDA_WHY_BYTES, "one size for reasons");
	r = gm_cuda_load(&cuda, why);
	if (r < 0)
		return r;
	if (!cuda_can_place(cuda) && !cuda->cuIpcOpenMemHandle) {
		snprintf(why, GM_MAP_CUDA_WHY,
			"the NVIDIA driver is too old to map memory of another process: CUDA 11.0 or newer is needed");
		return -ENODEV;
	}
	r = cuda_find_device(cuda, uuid, &device, why);
	if (r < 0)
		return r;

	backend = calloc(1, sizeof(*backend));
	if (!backend)
		return -ENOMEM;
	backend->cuda = cuda;
	backend->device = device;
	r = gm_cuda_contexts_get(cuda, device, &backend->contexts);
	if (r < 0) {
		free(backend);
		return r;
	}
	gm_lock_init(&backend->lock, GM_LOCK_LEAF);
	*ret_backend = backend;
	return 0;
}

static void cuda_close(void *ctx)
{
	struct gm_map_cuda *backend = ctx;

	if (!backend)
		return;
	gm_cuda_signal_leave();
	gm_cuda_contexts_put(backend->contexts);
	gm_lock_deinit(&backend->lock);
	free(backend);
}

int gm_map_cuda_add_peer(struct gm_map_cuda *backend, const uint8_t uuid[GM_UUID_BYTES])
{
	gm_cu_device peer;
	char why[GM_MAP_CUDA_WHY];
	int can = 0, r = cuda_find_device(backend->cuda, uuid, &peer, why);
	bool known;

	if (r < 0)
		return r;
	if (peer == backend->device)
		return 0;
	if (!backend->cuda->cuDeviceCanAccessPeer ||
		backend->cuda->cuDeviceCanAccessPeer(&can, peer, backend->device) || !can)
		return -EOPNOTSUPP;

	gm_lock(&backend->lock);
	known = false;
	for (size_t i = 0; i < backend->n_peers; i++)
		known = known || backend->peers[i] == peer;
	if (!known && backend->n_peers < GM_CUDA_PEERS_MAX)
		backend->peers[backend->n_peers++] = peer;
	gm_lock_drop(&backend->lock);
	return 0;
}

/* ---- memory */

static int cuda_reserve(void *ctx, uint64_t bytes, void **ret_addr)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;
	gm_cu_ptr ptr = 0;
	gm_cu_result result;
	int r;

	gm_cuda_backend_no_error();
	if (!cuda_can_place(backend->cuda))
		return -EOPNOTSUPP;
	result = gm_cuda_backend_enter(backend, &entered);
	if (result)
		return gm_cuda_backend_outcome(backend, result);
	result = backend->cuda->cuMemAddressReserve(&ptr, bytes, GM_CHUNK_MIN, 0, 0);
	gm_cuda_backend_leave(backend, &entered);
	if (result) {
		r = gm_cuda_backend_outcome(backend, result);
		return r == -ENOBUFS ? -ENOMEM : r; /* a smaller size may work */
	}
	*ret_addr = (void *)(uintptr_t)ptr;
	return 0;
}

static void cuda_unreserve(void *ctx, void *addr, uint64_t bytes)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;

	if (gm_cuda_backend_enter(backend, &entered) == GM_CUDA_SUCCESS) {
		/* Unmapping a place where nothing is mapped is no error. */
		backend->cuda->cuMemUnmap(gm_cuda_backend_at(addr), bytes);
		backend->cuda->cuMemAddressFree(gm_cuda_backend_at(addr), bytes);
		gm_cuda_backend_leave(backend, &entered);
	}
}

static int cuda_map(void *ctx, void *addr, uint64_t bytes, int fd)
{
	struct gm_map_cuda *backend = ctx;
	const struct gm_cuda *cuda = backend->cuda;
	struct gm_cuda_entered entered;
	gm_cu_result result;
	gm_cu_mem mem;

	gm_cuda_backend_no_error();
	if (fd < 0)
		return -EOPNOTSUPP;
	result = gm_cuda_backend_enter(backend, &entered);
	if (result)
		return gm_cuda_backend_outcome(backend, result);

	result = cuda->cuMemImportFromShareableHandle(
		&mem, (void *)(intptr_t)fd, GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (!result) {
		result = cuda->cuMemMap(gm_cuda_backend_at(addr), bytes, 0, mem, 0);
		cuda->cuMemRelease(mem); /* the mapping holds the memory by itself */
	}
	gm_cuda_backend_leave(backend, &entered);
	return gm_cuda_backend_outcome(backend, result);
}

static int cuda_access(void *ctx, void *addr, uint64_t bytes, bool read_only)
{
	struct gm_map_cuda *backend = ctx;
	gm_cu_access access[1 + GM_CUDA_PEERS_MAX] = {0};
	struct gm_cuda_entered entered;
	gm_cu_result result;
	size_t n = 0;

	access[n++].location.id = backend->device;

	gm_lock(&backend->lock);
	for (size_t i = 0; i < backend->n_peers; i++)
		access[n++].location.id = backend->peers[i];
	gm_lock_drop(&backend->lock);

	for (size_t i = 0; i < n; i++) {
		access[i].location.type = GM_CU_MEM_LOCATION_TYPE_DEVICE;
		access[i].flags = read_only ? GM_CU_MEM_ACCESS_FLAGS_PROT_READ
					    : GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	}

	result = gm_cuda_backend_enter(backend, &entered);
	if (!result) {
		result = backend->cuda->cuMemSetAccess(gm_cuda_backend_at(addr), bytes, access, n);
		gm_cuda_backend_leave(backend, &entered);
	}
	return gm_cuda_backend_outcome(backend, result);
}

static int cuda_move(void *ctx, void *from, void *to, uint64_t bytes)
{
	struct gm_map_cuda *backend = ctx;
	const struct gm_cuda *cuda = backend->cuda;
	struct gm_cuda_entered entered;
	gm_cu_result result;
	gm_cu_mem mem;

	result = gm_cuda_backend_enter(backend, &entered);
	if (result)
		return gm_cuda_backend_outcome(backend, result);

	result = cuda->cuMemRetainAllocationHandle(&mem, from);
	if (!result) {
		/* The new place first: if that fails, the chunk is still where it was. */
		result = cuda->cuMemMap(gm_cuda_backend_at(to), bytes, 0, mem, 0);
		if (!result) {
			result = cuda->cuMemUnmap(gm_cuda_backend_at(from), bytes);
			if (result)
				cuda->cuMemUnmap(gm_cuda_backend_at(to), bytes);
		}
		cuda->cuMemRelease(mem);
	}
	gm_cuda_backend_leave(backend, &entered);
	return gm_cuda_backend_outcome(backend, result);
}

static int cuda_unmap(void *ctx, void *addr, uint64_t bytes)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;
	gm_cu_result result = gm_cuda_backend_enter(backend, &entered);

	if (!result) {
		result = backend->cuda->cuMemUnmap(gm_cuda_backend_at(addr), bytes);
		gm_cuda_backend_leave(backend, &entered);
	}
	/* When the driver went, it unmapped everything. */
	return result == GM_CUDA_ERROR_DEINITIALIZED ? 0 : gm_cuda_backend_outcome(backend, result);
}

static int cuda_copy(void *ctx, void *to, const void *from, uint64_t bytes, gpumem_stream stream)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;
	gm_cu_result result;

	gm_cuda_backend_no_error();
	if (!backend->cuda->cuMemcpyAsync)
		return -EOPNOTSUPP;
	result = gm_cuda_backend_enter(backend, &entered);
	if (result)
		return gm_cuda_backend_outcome(backend, result);
	if (!gm_cuda_capture_launch(backend->cuda, backend->device, stream)) {
		gm_cuda_backend_leave(backend, &entered);
		return -EAGAIN;
	}
	result = backend->cuda->cuMemcpyAsync(
		gm_cuda_backend_at(to), (gm_cu_ptr)(uintptr_t)from, bytes, (gm_cu_stream)stream);
	gm_cuda_capture_launched(stream);
	gm_cuda_backend_leave(backend, &entered);
	return gm_cuda_backend_outcome(backend, result);
}

static bool cuda_known(void *ctx, const void *ptr)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;
	unsigned int type = 0;
	gm_cu_result result;

	if (!backend->cuda->cuPointerGetAttribute || gm_cuda_backend_enter(backend, &entered))
		return false;
	result = backend->cuda->cuPointerGetAttribute(
		&type, GM_CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (gm_cu_ptr)(uintptr_t)ptr);
	gm_cuda_backend_leave(backend, &entered);
	return result == GM_CUDA_SUCCESS && type != 0;
}

static int cuda_transfer(void *ctx, void *to, const void *from, uint64_t bytes)
{
	struct gm_map_cuda *backend = ctx;

	gm_cuda_backend_no_error();
	return gm_cuda_backend_outcome(
		backend, (gm_cu_result)gm_cuda_transfer(backend->contexts, to, from, bytes));
}

/* ---- managed memory */

static int cuda_managed_make(
	void *ctx, uint64_t bytes, bool attach_host, void **ret_addr, uint64_t *ret_id)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;

	gm_cuda_backend_no_error();
	gm_cu_result result = gm_cuda_backend_enter(backend, &entered);
	if (!result) {
		result = gm_cuda_managed_make(backend->cuda, bytes, attach_host, ret_addr, ret_id);
		gm_cuda_backend_leave(backend, &entered);
	}
	return gm_cuda_backend_outcome(backend, result);
}

static int cuda_managed_free(void *ctx, void *addr, uint64_t bytes, uint64_t id)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;

	gm_cuda_backend_no_error();
	gm_cu_result result = gm_cuda_backend_enter(backend, &entered);
	if (!result) {
		result = gm_cuda_managed_free(backend->cuda, addr, id);
		gm_cuda_backend_leave(backend, &entered);
	}
	/* When the driver went, it freed everything. */
	return result == GM_CUDA_ERROR_DEINITIALIZED ? 0 : gm_cuda_backend_outcome(backend, result);
}

static int cuda_managed_prefetch(
	void *ctx, void *addr, uint64_t bytes, bool to_host, gpumem_stream stream)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;

	gm_cuda_backend_no_error();
	gm_cu_result result = gm_cuda_backend_enter(backend, &entered);
	if (!result) {
		result = gm_cuda_managed_prefetch(
			backend->cuda, addr, bytes, backend->device, to_host, (gm_cu_stream)stream);
		gm_cuda_backend_leave(backend, &entered);
	}
	return gm_cuda_backend_outcome(backend, result);
}

static int cuda_managed_advise(void *ctx, void *addr, uint64_t bytes, int advice, bool host)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;

	gm_cuda_backend_no_error();
	gm_cu_result result = gm_cuda_backend_enter(backend, &entered);
	if (!result) {
		result = gm_cuda_managed_advise(
			backend->cuda, addr, bytes, advice, backend->device, host);
		gm_cuda_backend_leave(backend, &entered);
	}
	return gm_cuda_backend_outcome(backend, result);
}

static uint64_t cuda_here(void *ctx)
{
	struct gm_map_cuda *backend = ctx;

	return gm_cuda_contexts_here(backend->contexts);
}

const struct gm_map_ops *gm_map_cuda_ops(void)
{
	static const struct gm_map_ops ops = {
		.name = "cuda",
		.close = cuda_close,
		.error = gm_map_cuda_error,
		.reserve = cuda_reserve,
		.unreserve = cuda_unreserve,
		.map = cuda_map,
		.access = cuda_access,
		.move = cuda_move,
		.unmap = cuda_unmap,
		.copy = cuda_copy,
		.known = cuda_known,
		.stream_open = gm_cuda_stream_open,
		.stream_close = gm_cuda_stream_close,
		.transfer = cuda_transfer,
		.managed_make = cuda_managed_make,
		.managed_free = cuda_managed_free,
		.managed_prefetch = cuda_managed_prefetch,
		.managed_advise = cuda_managed_advise,
		.attach = gm_cuda_ipc_attach,
		.detach = gm_cuda_ipc_detach,
		.record = gm_cuda_stream_record,
		.record_on = gm_cuda_stream_record_on,
		.passed = gm_cuda_stream_passed,
		.order = gm_cuda_stream_order,
		.forget = gm_cuda_stream_forget,
		.word_open = gm_cuda_stream_control_open,
		.word_close = gm_cuda_stream_control_close,
		.word_settle = gm_cuda_stream_control_settle,
		.post = gm_cuda_stream_post,
		.await = gm_cuda_stream_await,
		.here = cuda_here,
		.stream_id = gm_cuda_stream_id,
		.captured_into = gm_cuda_stream_captured_into,
	};

	return &ops;
}
