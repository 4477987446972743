/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Imports chunks and maps them into reserved device addresses; map_cuda.h says what this module
 * promises. It keeps no handle of a chunk, because the driver finds a mapped chunk from its
 * address. cuda_context.c chooses the context for each call, and cuda_event.c does the events.
 *
 * It must never wait for the GPU, except to close a block of the ipc transport, in word_settle() and for
 * a transfer.
 */
#include "client/map/map_cuda.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/map/cuda_capture.h"
#include "client/map/cuda_event.h"
#include "client/map/cuda_managed.h"
#include "client/map/cuda_signal.h"
#include "client/map/cuda_transfer.h"
#include "client/map/ipc_cache.h"
#include "common/cuda.h"

#define PEERS_MAX GM_LIMIT_DEVICES

struct gm_map_cuda {
	const struct gm_cuda *cuda;
	gm_cu_device device;
	struct gm_cuda_contexts *contexts;
	pthread_mutex_t lock; /* protects the rest */
	gm_cu_device peers[PEERS_MAX];
	size_t n_peers;
};

static __thread const char *last_error = "";

const char *gm_map_cuda_error(void)
{
	return last_error;
}

/* The errno for a result of the driver; notes an error for gm_map_cuda_error(). */
static int cuda_outcome(struct gm_map_cuda *backend, gm_cu_result result)
{
	/* A call that succeeds while a failure is being undone must not hide the failure. */
	if (result)
		last_error = gm_cuda_error(backend->cuda, result);
	/* -ENOMEM is for the host's memory only. */
	return result == GM_CUDA_ERROR_OUT_OF_MEMORY ? -ENOBUFS : gm_cuda_errno(result);
}

static gm_cu_result cuda_enter(struct gm_map_cuda *backend, struct gm_cuda_entered *ret_entered)
{
	return gm_cuda_contexts_enter(backend->contexts, ret_entered);
}

static void cuda_leave(struct gm_map_cuda *backend, struct gm_cuda_entered *entered)
{
	gm_cuda_contexts_leave(backend->contexts, entered);
}

int gm_map_cuda_call(struct gm_map_cuda *backend,
	gm_cu_result (*fn)(const struct gm_cuda *cuda, void *arg), void *arg)
{
	struct gm_cuda_entered entered;
	gm_cu_result result = cuda_enter(backend, &entered);

	if (!result) {
		result = fn(backend->cuda, arg);
		cuda_leave(backend, &entered);
	}
	return cuda_outcome(backend, result);
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
	pthread_mutex_init(&backend->lock, NULL);
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
	pthread_mutex_destroy(&backend->lock);
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

	pthread_mutex_lock(&backend->lock);
	known = false;
	for (size_t i = 0; i < backend->n_peers; i++)
		known = known || backend->peers[i] == peer;
	if (!known && backend->n_peers < PEERS_MAX)
		backend->peers[backend->n_peers++] = peer;
	pthread_mutex_unlock(&backend->lock);
	return 0;
}

/* ---- memory */

static gm_cu_ptr cuda_at(void *addr)
{
	return (gm_cu_ptr)(uintptr_t)addr;
}

static int cuda_reserve(void *ctx, uint64_t bytes, void **ret_addr)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;
	gm_cu_ptr ptr = 0;
	gm_cu_result result;
	int r;

	last_error = "";
	if (!cuda_can_place(backend->cuda))
		return -EOPNOTSUPP;
	result = cuda_enter(backend, &entered);
	if (result)
		return cuda_outcome(backend, result);
	result = backend->cuda->cuMemAddressReserve(&ptr, bytes, GM_CHUNK_MIN, 0, 0);
	cuda_leave(backend, &entered);
	if (result) {
		r = cuda_outcome(backend, result);
		return r == -ENOBUFS ? -ENOMEM : r; /* a smaller size may work */
	}
	*ret_addr = (void *)(uintptr_t)ptr;
	return 0;
}

static void cuda_unreserve(void *ctx, void *addr, uint64_t bytes)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;

	if (cuda_enter(backend, &entered) == GM_CUDA_SUCCESS) {
		/* Unmapping a place where nothing is mapped is no error. */
		backend->cuda->cuMemUnmap(cuda_at(addr), bytes);
		backend->cuda->cuMemAddressFree(cuda_at(addr), bytes);
		cuda_leave(backend, &entered);
	}
}

static int cuda_map(void *ctx, void *addr, uint64_t bytes, int fd)
{
	struct gm_map_cuda *backend = ctx;
	const struct gm_cuda *cuda = backend->cuda;
	struct gm_cuda_entered entered;
	gm_cu_result result;
	gm_cu_mem mem;

	last_error = "";
	if (fd < 0)
		return -EOPNOTSUPP;
	result = cuda_enter(backend, &entered);
	if (result)
		return cuda_outcome(backend, result);

	result = cuda->cuMemImportFromShareableHandle(
		&mem, (void *)(intptr_t)fd, GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (!result) {
		result = cuda->cuMemMap(cuda_at(addr), bytes, 0, mem, 0);
		cuda->cuMemRelease(mem); /* the mapping holds the memory by itself */
	}
	cuda_leave(backend, &entered);
	return cuda_outcome(backend, result);
}

static int cuda_access(void *ctx, void *addr, uint64_t bytes, bool read_only)
{
	struct gm_map_cuda *backend = ctx;
	gm_cu_access access[1 + PEERS_MAX] = {0};
	struct gm_cuda_entered entered;
	gm_cu_result result;
	size_t n = 0;

	access[n++].location.id = backend->device;

	pthread_mutex_lock(&backend->lock);
	for (size_t i = 0; i < backend->n_peers; i++)
		access[n++].location.id = backend->peers[i];
	pthread_mutex_unlock(&backend->lock);

	for (size_t i = 0; i < n; i++) {
		access[i].location.type = GM_CU_MEM_LOCATION_TYPE_DEVICE;
		access[i].flags = read_only ? GM_CU_MEM_ACCESS_FLAGS_PROT_READ
					    : GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	}

	result = cuda_enter(backend, &entered);
	if (!result) {
		result = backend->cuda->cuMemSetAccess(cuda_at(addr), bytes, access, n);
		cuda_leave(backend, &entered);
	}
	return cuda_outcome(backend, result);
}

static int cuda_move(void *ctx, void *from, void *to, uint64_t bytes)
{
	struct gm_map_cuda *backend = ctx;
	const struct gm_cuda *cuda = backend->cuda;
	struct gm_cuda_entered entered;
	gm_cu_result result;
	gm_cu_mem mem;

	result = cuda_enter(backend, &entered);
	if (result)
		return cuda_outcome(backend, result);

	result = cuda->cuMemRetainAllocationHandle(&mem, from);
	if (!result) {
		/* The new place first: if that fails, the chunk is still where it was. */
		result = cuda->cuMemMap(cuda_at(to), bytes, 0, mem, 0);
		if (!result) {
			result = cuda->cuMemUnmap(cuda_at(from), bytes);
			if (result)
				cuda->cuMemUnmap(cuda_at(to), bytes);
		}
		cuda->cuMemRelease(mem);
	}
	cuda_leave(backend, &entered);
	return cuda_outcome(backend, result);
}

static int cuda_unmap(void *ctx, void *addr, uint64_t bytes)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;
	gm_cu_result result = cuda_enter(backend, &entered);

	if (!result) {
		result = backend->cuda->cuMemUnmap(cuda_at(addr), bytes);
		cuda_leave(backend, &entered);
	}
	/* When the driver went, it unmapped everything. */
	return result == GM_CUDA_ERROR_DEINITIALIZED ? 0 : cuda_outcome(backend, result);
}

static int cuda_copy(void *ctx, void *to, const void *from, uint64_t bytes, gpumem_stream stream)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;
	gm_cu_result result;

	last_error = "";
	if (!backend->cuda->cuMemcpyAsync)
		return -EOPNOTSUPP;
	if (gm_cuda_capture_forbids(backend->cuda, backend->device, stream))
		return -EAGAIN;
	result = cuda_enter(backend, &entered);
	if (!result) {
		result = backend->cuda->cuMemcpyAsync(
			cuda_at(to), (gm_cu_ptr)(uintptr_t)from, bytes, (gm_cu_stream)stream);
		cuda_leave(backend, &entered);
	}
	return cuda_outcome(backend, result);
}

static bool cuda_known(void *ctx, const void *ptr)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;
	unsigned int type = 0;
	gm_cu_result result;

	if (!backend->cuda->cuPointerGetAttribute || cuda_enter(backend, &entered))
		return false;
	result = backend->cuda->cuPointerGetAttribute(
		&type, GM_CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (gm_cu_ptr)(uintptr_t)ptr);
	cuda_leave(backend, &entered);
	return result == GM_CUDA_SUCCESS && type != 0;
}

static int cuda_stream_open(void *ctx, gpumem_stream *ret_stream)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;
	gm_cu_stream stream;
	gm_cu_result result;

	last_error = "";
	result = cuda_enter(backend, &entered);
	if (!result) {
		result = backend->cuda->cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING);
		cuda_leave(backend, &entered);
	}
	if (result)
		return cuda_outcome(backend, result);
	*ret_stream = (gpumem_stream)stream;
	return 0;
}

static void cuda_stream_close(void *ctx, gpumem_stream stream)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;

	if (cuda_enter(backend, &entered))
		return;
	(void)backend->cuda->cuStreamDestroy((gm_cu_stream)stream);
	cuda_leave(backend, &entered);
}

static int cuda_transfer(void *ctx, void *to, const void *from, uint64_t bytes)
{
	struct gm_map_cuda *backend = ctx;

	last_error = "";
	return cuda_outcome(
		backend, (gm_cu_result)gm_cuda_transfer(backend->contexts, to, from, bytes));
}

/* ---- managed memory */

static int cuda_managed_make(
	void *ctx, uint64_t bytes, bool attach_host, void **ret_addr, uint64_t *ret_id)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;

	last_error = "";
	gm_cu_result result = cuda_enter(backend, &entered);
	if (!result) {
		result = gm_cuda_managed_make(backend->cuda, bytes, attach_host, ret_addr, ret_id);
		cuda_leave(backend, &entered);
	}
	return cuda_outcome(backend, result);
}

static int cuda_managed_free(void *ctx, void *addr, uint64_t bytes, uint64_t id)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;

	last_error = "";
	gm_cu_result result = cuda_enter(backend, &entered);
	if (!result) {
		result = gm_cuda_managed_free(backend->cuda, addr, id);
		cuda_leave(backend, &entered);
	}
	/* When the driver went, it freed everything. */
	return result == GM_CUDA_ERROR_DEINITIALIZED ? 0 : cuda_outcome(backend, result);
}

static int cuda_managed_prefetch(
	void *ctx, void *addr, uint64_t bytes, bool to_host, gpumem_stream stream)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;

	last_error = "";
	gm_cu_result result = cuda_enter(backend, &entered);
	if (!result) {
		result = gm_cuda_managed_prefetch(
			backend->cuda, addr, bytes, backend->device, to_host, (gm_cu_stream)stream);
		cuda_leave(backend, &entered);
	}
	return cuda_outcome(backend, result);
}

static int cuda_managed_advise(void *ctx, void *addr, uint64_t bytes, int advice, bool host)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;

	last_error = "";
	gm_cu_result result = cuda_enter(backend, &entered);
	if (!result) {
		result = gm_cuda_managed_advise(
			backend->cuda, addr, bytes, advice, backend->device, host);
		cuda_leave(backend, &entered);
	}
	return cuda_outcome(backend, result);
}

/* ---- the ipc transport */

/* One for the whole process: the driver counts openings per process, not per session. */
static struct gm_ipc_cache ipc_blocks = GM_IPC_CACHE_INIT;

static gm_cu_result cuda_open_here(
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
static gm_cu_result cuda_open_elsewhere(
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
		if (cuda_open_here(backend, handle, ret_ptr) == GM_CUDA_SUCCESS) {
			*context = other->number;
			result = GM_CUDA_SUCCESS;
		}
		cuda_leave(backend, &entered);
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
	result = cuda_open_here(backend, given, &ptr);
	if (result == GM_CUDA_ERROR_INVALID_HANDLE)
		result = cuda_open_elsewhere(backend, given, context, &ptr);
	if (result)
		return cuda_outcome(backend, result);
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
		result = backend->cuda->cuIpcCloseMemHandle(cuda_at(addr));
		cuda_leave(backend, &entered);
	}
	if (result == GM_CUDA_ERROR_DEINITIALIZED || result == GM_CUDA_ERROR_INVALID_CONTEXT ||
		result == GM_CUDA_ERROR_CONTEXT_IS_DESTROYED)
		result = GM_CUDA_SUCCESS;
	return cuda_outcome(backend, result);
}

static const struct gm_ipc_ops ipc_ops = {.open = cuda_ipc_open, .close = cuda_ipc_close};

static int cuda_attach(void *ctx, const uint8_t handle[GM_IPC_HANDLE_BYTES], void **ret_addr)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;
	gm_cu_result result;
	int r;

	last_error = "";
	if (!backend->cuda->cuIpcOpenMemHandle || !backend->cuda->cuIpcCloseMemHandle)
		return -EOPNOTSUPP;
	result = cuda_enter(backend, &entered);
	if (result)
		return cuda_outcome(backend, result);

	r = gm_ipc_cache_take(&ipc_blocks, &ipc_ops, backend, handle,
		gm_cuda_contexts_here(backend->contexts), ret_addr);
	cuda_leave(backend, &entered);
	return r;
}

static int cuda_detach(void *ctx, void *addr)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_entered entered;
	int r;

	last_error = "";
	/* No context need be entered here: cuda_ipc_close() enters the block's own. */
	gm_cuda_contexts_relax(backend->contexts, &entered);
	r = gm_ipc_cache_put(&ipc_blocks, &ipc_ops, backend, addr);
	cuda_leave(backend, &entered);
	return r;
}

/* ---- streams and events */

/* The errno for what a function of cuda_event.h returned. */
static int cuda_errno(struct gm_map_cuda *backend, int result)
{
	return result < 0 ? result : cuda_outcome(backend, (gm_cu_result)result);
}

static int cuda_record(void *ctx, struct gm_map_event **ret_event)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_event *event;
	int r;

	last_error = "";
	r = gm_cuda_event_record(backend->contexts, &event);
	if (r)
		return cuda_errno(backend, r);
	*ret_event = (struct gm_map_event *)event;
	return 0;
}

static int cuda_record_on(void *ctx, gpumem_stream stream, struct gm_map_event **ret_event)
{
	struct gm_map_cuda *backend = ctx;
	struct gm_cuda_event *event;
	int r;

	last_error = "";
	r = gm_cuda_event_record_on(backend->contexts, stream, &event);
	if (r)
		return cuda_errno(backend, r);
	*ret_event = (struct gm_map_event *)event;
	return 0;
}

static int cuda_passed(void *ctx, struct gm_map_event *event)
{
	struct gm_map_cuda *backend = ctx;
	int r = gm_cuda_event_passed((struct gm_cuda_event *)event);

	if (r == GM_CUDA_ERROR_NOT_READY)
		return 0;
	return r ? cuda_errno(backend, r) : 1;
}

static int cuda_order(void *ctx, gpumem_stream stream, struct gm_map_event *event)
{
	struct gm_map_cuda *backend = ctx;

	return cuda_errno(backend,
		gm_cuda_event_order(backend->contexts, stream, (struct gm_cuda_event *)event));
}

static void cuda_forget(void *ctx, struct gm_map_event *event)
{
	gm_cuda_event_forget((struct gm_cuda_event *)event);
}

/* ---- signals */

static int cuda_word_open(void *ctx, int fd, bool read_only, struct gm_map_word **ret_word)
{
	struct gm_map_cuda *backend = ctx;

	last_error = "";
	return cuda_errno(backend, gm_cuda_signal_open(backend->contexts, fd, ret_word));
}

static void cuda_word_close(void *ctx, struct gm_map_word *word)
{
	gm_cuda_signal_close(word);
}

static void cuda_word_settle(void *ctx)
{
	struct gm_map_cuda *backend = ctx;

	gm_cuda_signal_settle(backend->contexts);
}

static int cuda_post(void *ctx, gpumem_stream stream, struct gm_map_word *word, uint64_t value)
{
	struct gm_map_cuda *backend = ctx;

	last_error = "";
	return cuda_errno(backend, gm_cuda_signal_post(backend->contexts, stream, word, value));
}

static int cuda_await(void *ctx, gpumem_stream stream, struct gm_map_word *word, uint64_t value)
{
	struct gm_map_cuda *backend = ctx;

	last_error = "";
	return cuda_errno(backend, gm_cuda_signal_await(backend->contexts, stream, word, value));
}

/* ---- which stream, and where */

static uint64_t cuda_here(void *ctx)
{
	struct gm_map_cuda *backend = ctx;

	return gm_cuda_contexts_here(backend->contexts);
}

static int cuda_stream_id(void *ctx, gpumem_stream stream, uint64_t *ret_id)
{
	struct gm_map_cuda *backend = ctx;
	unsigned long long id;
	gm_cu_result result;

	if (gm_cuda_captured(backend->cuda, backend->device, stream))
		return -EAGAIN; /* asking for its id would break the capture */
	/* An older driver cannot tell a stream from an earlier one at the same handle. */
	if (!backend->cuda->cuStreamGetId)
		return -EOPNOTSUPP;
	result = backend->cuda->cuStreamGetId((gm_cu_stream)stream, &id);
	if (result)
		return cuda_outcome(backend, result);
	*ret_id = id;
	return 0;
}

static uint64_t cuda_captured_into(void *ctx, gpumem_stream stream)
{
	struct gm_map_cuda *backend = ctx;
	gm_cu_capture_status status = GM_CU_STREAM_CAPTURE_STATUS_NONE;
	gm_cu_u64 id = 0;

	if (!backend->cuda->cuStreamGetCaptureInfo ||
		backend->cuda->cuStreamGetCaptureInfo((gm_cu_stream)stream, &status, &id))
		return 0;
	if (status == GM_CU_STREAM_CAPTURE_STATUS_NONE)
		gm_cuda_not_captured(backend->device, stream);
	else /* A free may be the only call that ever names this stream. */
		(void)gm_cuda_captured(backend->cuda, backend->device, stream);
	return status == GM_CU_STREAM_CAPTURE_STATUS_ACTIVE ? id : 0;
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
		.stream_open = cuda_stream_open,
		.stream_close = cuda_stream_close,
		.transfer = cuda_transfer,
		.managed_make = cuda_managed_make,
		.managed_free = cuda_managed_free,
		.managed_prefetch = cuda_managed_prefetch,
		.managed_advise = cuda_managed_advise,
		.attach = cuda_attach,
		.detach = cuda_detach,
		.record = cuda_record,
		.record_on = cuda_record_on,
		.passed = cuda_passed,
		.order = cuda_order,
		.forget = cuda_forget,
		.word_open = cuda_word_open,
		.word_close = cuda_word_close,
		.word_settle = cuda_word_settle,
		.post = cuda_post,
		.await = cuda_await,
		.here = cuda_here,
		.stream_id = cuda_stream_id,
		.captured_into = cuda_captured_into,
	};

	return &ops;
}
