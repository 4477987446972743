/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's half of the cuda backend: imported chunks mapped into reserved device addresses, and
 * events on the program's streams. See map_cuda.h for what it promises. It never waits for the GPU,
 * never leaves a context current that was not, and keeps no handle of a chunk: what is mapped can
 * be found again from its address.
 */
#include "client/map_cuda.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ipc_cache.h"
#include "common/cuda.h"

#define PEERS_MAX GM_LIMIT_DEVICES

struct gm_event {
	gm_cu_event cu;
	struct gm_event *next; /* of the spare ones */
};

struct gm_map_cuda {
	const struct gm_cuda *cuda;
	gm_cu_device device;
	pthread_mutex_t lock; /* of what follows */
	gm_cu_ctx primary;    /* NULL: not made for us yet */
	struct gm_event *spare;
	gm_cu_device peers[PEERS_MAX];
	size_t n_peers;
};

static __thread const char *last_error = "";

/* The stream last seen captured on each device; NULL: none. For all mappings of a device together:
 * pinned host memory has one of its own. */
static _Atomic(gpumem_stream) captured[GM_LIMIT_DEVICES];

static _Atomic(gpumem_stream) *captured_on(const struct gm_map_cuda *backend)
{
	return &captured[(unsigned)backend->device % GM_LIMIT_DEVICES];
}

const char *gm_map_cuda_error(void)
{
	return last_error;
}

static int outcome(struct gm_map_cuda *backend, gm_cu_result result)
{
	/* What is undone after a failure must not hide it. */
	if (result)
		last_error = gm_cuda_error(backend->cuda, result);
	return gm_cuda_errno(result);
}

/* ---- entering the driver */

/* What enter() changed in this thread, for leave() to undo. */
struct entered {
	bool pushed;
	bool exchanged;
	gm_cu_capture_mode mode;
};

static void leave(struct gm_map_cuda *backend, struct entered *entered)
{
	if (entered->pushed)
		backend->cuda->cuCtxPopCurrent(NULL);
	if (entered->exchanged)
		backend->cuda->cuThreadExchangeStreamCaptureMode(&entered->mode);
}

/*
 * Says to the driver that our calls mean no harm to a capture that the program may have under way
 * in another thread: in its default mode it would refuse many of them, and break the capture.
 */
static void relax(struct gm_map_cuda *backend, struct entered *entered)
{
	entered->mode = GM_CU_STREAM_CAPTURE_MODE_RELAXED;
	entered->exchanged =
		backend->cuda->cuThreadExchangeStreamCaptureMode &&
		backend->cuda->cuThreadExchangeStreamCaptureMode(&entered->mode) == GM_CUDA_SUCCESS;
}

/* Makes a context of the device current, and relaxes. */
static gm_cu_result enter(struct gm_map_cuda *backend, struct entered *ret)
{
	const struct gm_cuda *cuda = backend->cuda;
	gm_cu_ctx current = NULL;
	gm_cu_device device;
	gm_cu_result result;

	*ret = (struct entered){0};
	result = cuda->cuCtxGetCurrent(&current);
	if (result)
		return result;
	if (!current || cuda->cuCtxGetDevice(&device) || device != backend->device) {
		pthread_mutex_lock(&backend->lock);
		if (!backend->primary)
			result = cuda->cuDevicePrimaryCtxRetain(&current, backend->device);
		if (!backend->primary && !result)
			backend->primary = current;
		current = backend->primary;
		pthread_mutex_unlock(&backend->lock);
		if (!result)
			result = cuda->cuCtxPushCurrent(current);
		if (result)
			return result;
		ret->pushed = true;
	}
	relax(backend, ret);
	return GM_CUDA_SUCCESS;
}

int gm_map_cuda_call(struct gm_map_cuda *backend,
	gm_cu_result (*fn)(const struct gm_cuda *cuda, void *arg), void *arg)
{
	struct entered entered;
	gm_cu_result result = enter(backend, &entered);

	if (!result) {
		result = fn(backend->cuda, arg);
		leave(backend, &entered);
	}
	return outcome(backend, result);
}

/* ---- the backend */

static int find_device(
	const struct gm_cuda *cuda, const uint8_t uuid[GM_UUID_BYTES], gm_cu_device *ret_device)
{
	int count = 0;

	if (cuda->cuDeviceGetCount(&count))
		return -ENODEV;
	for (int i = 0; i < count; i++) {
		gm_cu_device device;
		gm_cu_uuid theirs;
		if (!cuda->cuDeviceGet(&device, i) && !cuda->cuDeviceGetUuid(&theirs, device) &&
			memcmp(theirs.bytes, uuid, GM_UUID_BYTES) == 0) {
			*ret_device = device;
			return 0;
		}
	}
	return -ENODEV;
}

/* Whether this driver can put memory at an address of our choice, which the fd transport is. */
static bool can_place(const struct gm_cuda *cuda)
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
	if (!can_place(cuda) && !cuda->cuIpcOpenMemHandle) {
		snprintf(why, GM_MAP_CUDA_WHY,
			"the NVIDIA driver is too old to map memory of another process: CUDA 11.0 or newer is needed");
		return -ENODEV;
	}
	r = find_device(cuda, uuid, &device);
	if (r < 0) {
		snprintf(why, GM_MAP_CUDA_WHY,
			"this process does not see the GPU that the daemon serves: check CUDA_VISIBLE_DEVICES, and which GPUs its container was given");
		return r;
	}
	backend = calloc(1, sizeof(*backend));
	if (!backend) {
		snprintf(why, GM_MAP_CUDA_WHY, "no memory");
		return -ENOMEM;
	}
	backend->cuda = cuda;
	backend->device = device;
	pthread_mutex_init(&backend->lock, NULL);
	*ret_backend = backend;
	return 0;
}

void gm_map_cuda_free(struct gm_map_cuda *backend)
{
	struct gm_event *event;
	struct entered entered;

	if (!backend)
		return;
	if (backend->spare && enter(backend, &entered) == GM_CUDA_SUCCESS) {
		for (event = backend->spare; event; event = event->next)
			backend->cuda->cuEventDestroy(event->cu);
		leave(backend, &entered);
	}
	while ((event = backend->spare)) {
		backend->spare = event->next;
		free(event);
	}
	if (backend->primary)
		backend->cuda->cuDevicePrimaryCtxRelease(backend->device);
	pthread_mutex_destroy(&backend->lock);
	free(backend);
}

int gm_map_cuda_add_peer(struct gm_map_cuda *backend, const uint8_t uuid[GM_UUID_BYTES])
{
	gm_cu_device peer;
	int can = 0, r = find_device(backend->cuda, uuid, &peer);
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

static gm_cu_ptr at(void *addr)
{
	return (gm_cu_ptr)(uintptr_t)addr;
}

static int cuda_reserve(void *ctx, uint64_t bytes, void **ret_addr)
{
	struct gm_map_cuda *backend = ctx;
	struct entered entered;
	gm_cu_ptr ptr = 0;
	gm_cu_result result;

	last_error = "";
	if (!can_place(backend->cuda))
		return -EOPNOTSUPP;
	result = enter(backend, &entered);
	if (!result) {
		result = backend->cuda->cuMemAddressReserve(&ptr, bytes, GM_CHUNK_MIN, 0, 0);
		leave(backend, &entered);
	}
	if (result)
		return outcome(backend, result);
	*ret_addr = (void *)(uintptr_t)ptr;
	return 0;
}

static void cuda_unreserve(void *ctx, void *addr, uint64_t bytes)
{
	struct gm_map_cuda *backend = ctx;
	struct entered entered;

	if (enter(backend, &entered) == GM_CUDA_SUCCESS) {
		backend->cuda->cuMemUnmap(
			at(addr), bytes); /* where nothing is mapped that is no error */
		backend->cuda->cuMemAddressFree(at(addr), bytes);
		leave(backend, &entered);
	}
}

static int cuda_map(void *ctx, void *addr, uint64_t bytes, int fd)
{
	struct gm_map_cuda *backend = ctx;
	const struct gm_cuda *cuda = backend->cuda;
	struct entered entered;
	gm_cu_result result;
	gm_cu_mem mem;

	last_error = "";
	if (fd < 0)
		return -EOPNOTSUPP;
	result = enter(backend, &entered);
	if (result)
		return outcome(backend, result);
	result = cuda->cuMemImportFromShareableHandle(
		&mem, (void *)(intptr_t)fd, GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (!result) {
		result = cuda->cuMemMap(at(addr), bytes, 0, mem, 0);
		cuda->cuMemRelease(mem); /* a mapping keeps the memory by itself */
	}
	leave(backend, &entered);
	return outcome(backend, result);
}

static int cuda_access(void *ctx, void *addr, uint64_t bytes, bool read_only)
{
	struct gm_map_cuda *backend = ctx;
	gm_cu_access access[1 + PEERS_MAX] = {0};
	struct entered entered;
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
	result = enter(backend, &entered);
	if (!result) {
		result = backend->cuda->cuMemSetAccess(at(addr), bytes, access, n);
		leave(backend, &entered);
	}
	return outcome(backend, result);
}

static int cuda_move(void *ctx, void *from, void *to, uint64_t bytes)
{
	struct gm_map_cuda *backend = ctx;
	const struct gm_cuda *cuda = backend->cuda;
	struct entered entered;
	gm_cu_result result;
	gm_cu_mem mem;

	result = enter(backend, &entered);
	if (result)
		return outcome(backend, result);
	result = cuda->cuMemRetainAllocationHandle(&mem, from);
	if (!result) {
		/* The new place first: should that fail, the chunk is where it was. */
		result = cuda->cuMemMap(at(to), bytes, 0, mem, 0);
		if (!result) {
			result = cuda->cuMemUnmap(at(from), bytes);
			if (result)
				cuda->cuMemUnmap(at(to), bytes);
		}
		cuda->cuMemRelease(mem);
	}
	leave(backend, &entered);
	return outcome(backend, result);
}

static int cuda_unmap(void *ctx, void *addr, uint64_t bytes)
{
	struct gm_map_cuda *backend = ctx;
	struct entered entered;
	gm_cu_result result = enter(backend, &entered);

	if (!result) {
		result = backend->cuda->cuMemUnmap(at(addr), bytes);
		leave(backend, &entered);
	}
	return outcome(backend, result);
}

/* ---- the ipc transport */

/* One for the process: the driver's openings are the process's, whatever session they came by. */
static struct gm_ipc_cache ipc_blocks = GM_IPC_CACHE_INIT;

static int ipc_open(void *ctx, const uint8_t handle[GM_IPC_HANDLE_BYTES], void **ret_addr)
{
	struct gm_map_cuda *backend = ctx;
	gm_cu_ipc_mem given;
	gm_cu_ptr ptr = 0;
	gm_cu_result result;

	memcpy(&given, handle, sizeof given);
	result = backend->cuda->cuIpcOpenMemHandle(
		&ptr, given, GM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	if (result)
		return outcome(backend, result);
	*ret_addr = (void *)(uintptr_t)ptr;
	return 0;
}

static int ipc_close(void *ctx, void *context, void *addr)
{
	struct gm_map_cuda *backend = ctx;
	const struct gm_cuda *cuda = backend->cuda;
	gm_cu_result result = cuda->cuCtxPushCurrent(context);

	if (!result) {
		result = cuda->cuIpcCloseMemHandle(at(addr));
		cuda->cuCtxPopCurrent(NULL);
	}
	/* With its context, or with the driver, it was closed already. */
	if (result == GM_CUDA_ERROR_DEINITIALIZED || result == GM_CUDA_ERROR_INVALID_CONTEXT ||
		result == GM_CUDA_ERROR_CONTEXT_IS_DESTROYED)
		result = GM_CUDA_SUCCESS;
	return outcome(backend, result);
}

static const struct gm_ipc_ops ipc_ops = {.open = ipc_open, .close = ipc_close};

static int cuda_attach(void *ctx, const uint8_t handle[GM_IPC_HANDLE_BYTES], void **ret_addr)
{
	struct gm_map_cuda *backend = ctx;
	struct entered entered;
	gm_cu_ctx current = NULL;
	gm_cu_result result;
	int r;

	last_error = "";
	if (!backend->cuda->cuIpcOpenMemHandle || !backend->cuda->cuIpcCloseMemHandle)
		return -EOPNOTSUPP;
	result = enter(backend, &entered);
	if (result)
		return outcome(backend, result);
	result = backend->cuda->cuCtxGetCurrent(&current);
	r = result ? outcome(backend, result)
		   : gm_ipc_cache_take(&ipc_blocks, &ipc_ops, backend, handle, current, ret_addr);
	leave(backend, &entered);
	return r;
}

static int cuda_detach(void *ctx, void *addr)
{
	struct gm_map_cuda *backend = ctx;
	struct entered entered = {0};
	int r;

	last_error = "";
	/* No context is needed: the block is closed in its own. */
	relax(backend, &entered);
	r = gm_ipc_cache_put(&ipc_blocks, &ipc_ops, backend, addr);
	leave(backend, &entered);
	return r;
}

/* ---- streams and events */

static bool is_captured(struct gm_map_cuda *backend, gpumem_stream stream)
{
	gm_cu_capture_status status = GM_CU_STREAM_CAPTURE_STATUS_NONE;

	return backend->cuda->cuStreamIsCapturing &&
	       backend->cuda->cuStreamIsCapturing((gm_cu_stream)stream, &status) ==
		       GM_CUDA_SUCCESS &&
	       status != GM_CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Whether the program is known to be capturing: the stream last seen at it still says so. */
static bool capturing(struct gm_map_cuda *backend)
{
	gpumem_stream stream = atomic_load_explicit(captured_on(backend), memory_order_acquire);

	if (!stream)
		return false;
	if (is_captured(backend, stream))
		return true;
	atomic_compare_exchange_strong(captured_on(backend), &stream, NULL);
	return false;
}

static struct gm_event *event_new(struct gm_map_cuda *backend, gm_cu_result *ret_result)
{
	struct gm_event *event;

	*ret_result = GM_CUDA_SUCCESS;
	pthread_mutex_lock(&backend->lock);
	event = backend->spare;
	if (event)
		backend->spare = event->next;
	pthread_mutex_unlock(&backend->lock);
	if (event)
		return event;
	event = calloc(1, sizeof(*event));
	if (!event) {
		*ret_result = GM_CUDA_ERROR_OUT_OF_MEMORY;
		return NULL;
	}
	*ret_result = backend->cuda->cuEventCreate(&event->cu, GM_CU_EVENT_DISABLE_TIMING);
	if (*ret_result) {
		free(event);
		return NULL;
	}
	return event;
}

static void cuda_forget(void *ctx, struct gm_event *event)
{
	struct gm_map_cuda *backend = ctx;

	pthread_mutex_lock(&backend->lock);
	event->next = backend->spare;
	backend->spare = event;
	pthread_mutex_unlock(&backend->lock);
}

static int cuda_record(void *ctx, gpumem_stream stream, struct gm_event **ret_event)
{
	struct gm_map_cuda *backend = ctx;
	const struct gm_cuda *cuda = backend->cuda;
	struct gm_event *event;
	struct entered entered;
	gm_cu_result result;
	gm_cu_ctx current;

	last_error = "";
	if (stream == GPUMEM_STREAM_ANY && !cuda->cuCtxRecordEvent)
		return -EOPNOTSUPP;
	if (stream == GPUMEM_STREAM_ANY && capturing(backend))
		return -EAGAIN;
	result = enter(backend, &entered);
	if (result)
		return outcome(backend, result);
	event = event_new(backend, &result);
	if (event && stream == GPUMEM_STREAM_ANY) {
		result = cuda->cuCtxGetCurrent(&current);
		if (!result)
			result = cuda->cuCtxRecordEvent(current, event->cu);
	} else if (event) {
		result = cuda->cuEventRecord(event->cu, (gm_cu_stream)stream);
	}
	leave(backend, &entered);
	if (result) {
		if (event)
			cuda_forget(backend, event);
		return outcome(backend, result);
	}
	*ret_event = event;
	return 0;
}

static int cuda_passed(void *ctx, struct gm_event *event)
{
	struct gm_map_cuda *backend = ctx;
	struct entered entered;
	gm_cu_result result = enter(backend, &entered);

	if (result)
		return outcome(backend, result);
	result = backend->cuda->cuEventQuery(event->cu);
	leave(backend, &entered);
	if (result == GM_CUDA_ERROR_NOT_READY)
		return 0;
	return result ? outcome(backend, result) : 1;
}

static int cuda_order(void *ctx, gpumem_stream stream, struct gm_event *event)
{
	struct gm_map_cuda *backend = ctx;
	struct entered entered;
	gm_cu_result result;

	/* A capture would take the event for a part of its graph, which it is not. */
	if (is_captured(backend, stream)) {
		atomic_store_explicit(captured_on(backend), stream, memory_order_release);
		return -EAGAIN;
	}
	result = enter(backend, &entered);
	if (!result) {
		result = backend->cuda->cuStreamWaitEvent((gm_cu_stream)stream, event->cu, 0);
		leave(backend, &entered);
	}
	return outcome(backend, result);
}

static int cuda_stream_id(void *ctx, gpumem_stream stream, uint64_t *ret_id)
{
	struct gm_map_cuda *backend = ctx;
	unsigned long long id;
	gm_cu_result result;

	if (is_captured(backend, stream)) {
		atomic_store_explicit(captured_on(backend), stream, memory_order_release);
		return -EAGAIN; /* asking for its id would break the capture */
	}
	/* An older driver cannot tell two streams at one handle apart. */
	if (!backend->cuda->cuStreamGetId)
		return -EOPNOTSUPP;
	result = backend->cuda->cuStreamGetId((gm_cu_stream)stream, &id);
	if (result)
		return outcome(backend, result);
	*ret_id = id;
	return 0;
}

static uint64_t cuda_captured_into(void *ctx, gpumem_stream stream)
{
	struct gm_map_cuda *backend = ctx;
	gm_cu_capture_status status = GM_CU_STREAM_CAPTURE_STATUS_NONE;
	gm_cu_u64 id = 0;

	if (!backend->cuda->cuStreamGetCaptureInfo ||
		backend->cuda->cuStreamGetCaptureInfo((gm_cu_stream)stream, &status, &id) ||
		status != GM_CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return 0;
	return id;
}

static void cuda_close(void *ctx)
{
	gm_map_cuda_free(ctx);
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
		.attach = cuda_attach,
		.detach = cuda_detach,
		.record = cuda_record,
		.passed = cuda_passed,
		.order = cuda_order,
		.forget = cuda_forget,
		.stream_id = cuda_stream_id,
		.captured_into = cuda_captured_into,
	};
	return &ops;
}
