/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps pinned host memory, on top of the mappings of the GPUs and of the host; map_pinned.h says
 * what this module promises. It must never leave a registration behind: the driver would keep pages
 * pinned that the daemon has already given to somebody else. So every registration is in a list,
 * and whoever unmaps a part of one ends it first.
 */
#include "client/map/map_pinned.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <utlist.h>

#include "client/map/map_host.h"
#include "common/lock.h"
#include "common/cuda/cuda.h"

/* One part for each GPU. */
struct gm_pinned_event {
	struct gm_map_event *parts[GM_BOUND_DEVICES];
};

/* A range that access() is called for; of memfds, it is registered as one. */
struct gm_pinned_range {
	struct gm_map_pinned *backend;
	void *addr;
	uint64_t bytes;
	bool read_only;
	struct gm_pinned_range *prev, *next;
};

struct gm_map_pinned {
	const struct gm_cuda *cuda;
	size_t n; /* GPUs */
	gm_cu_device devices[GM_BOUND_DEVICES];
	struct gm_map_cuda *gpus[GM_BOUND_DEVICES];
	bool host;           /* the memory is memfds, not the driver's own */
	struct gm_lock lock; /* protects the list */
	struct gm_pinned_range *registered;
};

/* ---- the GPUs */

/* The index of the GPU of this thread's context. backend->n: the thread has no context, or one of
 * another GPU. */
static size_t pinned_current_gpu(const struct gm_map_pinned *backend)
{
	gm_cu_ctx context = NULL;
	gm_cu_device device;
	size_t i = backend->n;

	if (backend->cuda->cuCtxGetCurrent(&context) == GM_CUDA_SUCCESS && context &&
		backend->cuda->cuCtxGetDevice(&device) == GM_CUDA_SUCCESS)
		for (i = 0; i < backend->n && backend->devices[i] != device; i++)
			;
	return i;
}

/* The GPU to call the driver for if any will do: one that has a context already. */
static struct gm_map_cuda *pinned_any_gpu(const struct gm_map_pinned *backend)
{
	size_t i = pinned_current_gpu(backend);

	if (i < backend->n)
		return backend->gpus[i];
	for (i = 0; i < backend->n; i++)
		if (gm_map_cuda_active(backend->gpus[i]))
			return backend->gpus[i];
	return backend->gpus[0];
}

static void pinned_close(void *ctx)
{
	struct gm_map_pinned *backend = ctx;

	if (!backend)
		return;
	for (size_t i = 0; i < backend->n; i++)
		gm_map_cuda_ops()->close(backend->gpus[i]);
	gm_lock_deinit(&backend->lock);
	free(backend);
}

int gm_map_pinned_new(bool memfd, struct gm_map_pinned **ret_backend, char why[GM_MAP_CUDA_WHY])
{
	struct gm_map_pinned *backend;
	const struct gm_cuda *cuda;
	int count = 0, r;

	r = gm_cuda_load(&cuda, why);
	if (r < 0)
		return r;
	backend = calloc(1, sizeof(*backend));
	if (!backend)
		return -ENOMEM;
	backend->cuda = cuda;
	backend->host = memfd;
	gm_lock_init(&backend->lock, GM_LOCK_LEAF);

	r = gm_map_cuda_count(cuda, &count, why);
	for (int i = 0; i < count && r == 0 && backend->n < GM_BOUND_DEVICES; i++) {
		gm_cu_device device;
		gm_cu_uuid uuid;
		int able = 1;

		if (cuda->cuDeviceGet(&device, i) || cuda->cuDeviceGetUuid(&uuid, device))
			continue;
		/* Not every kind of GPU reaches the driver's own memory. */
		if (!memfd &&
			cuda->cuDeviceGetAttribute(&able,
				GM_CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
				device))
			able = 0;
		if (!able)
			continue;

		r = gm_map_cuda_new((const uint8_t *)uuid.bytes, &backend->gpus[backend->n], why);
		if (r == 0)
			backend->devices[backend->n++] = device;
	}
	if (r == 0 && !backend->n) {
		snprintf(why, GM_MAP_CUDA_WHY,
			"this process sees no GPU that can reach it: check CUDA_VISIBLE_DEVICES, and which GPUs its container was given");
		r = -ENODEV;
	}
	if (r < 0) {
		pinned_close(backend);
		return r;
	}
	*ret_backend = backend;
	return 0;
}

/* ---- the driver's own memory */

static gm_cu_result pinned_set_access(const struct gm_cuda *cuda, void *arg)
{
	const struct gm_pinned_range *range = arg;
	const struct gm_map_pinned *backend = range->backend;
	gm_cu_access access[GM_BOUND_DEVICES + 1];
	size_t n = 0;

	for (; n < backend->n; n++) {
		access[n].location.type = GM_CU_MEM_LOCATION_TYPE_DEVICE;
		access[n].location.id = backend->devices[n];
	}
	access[n].location.type = GM_CU_MEM_LOCATION_TYPE_HOST;
	access[n].location.id = 0;
	n++;

	for (size_t i = 0; i < n; i++)
		access[i].flags = range->read_only ? GM_CU_MEM_ACCESS_FLAGS_PROT_READ
						   : GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	return cuda->cuMemSetAccess((gm_cu_ptr)(uintptr_t)range->addr, range->bytes, access, n);
}

/* ---- memfds */

static gm_cu_result pinned_host_register(const struct gm_cuda *cuda, void *arg)
{
	const struct gm_pinned_range *range = arg;

	return cuda->cuMemHostRegister(range->addr, range->bytes,
		GM_CU_MEMHOSTREGISTER_PORTABLE | GM_CU_MEMHOSTREGISTER_DEVICEMAP);
}

static gm_cu_result pinned_host_unregister(const struct gm_cuda *cuda, void *arg)
{
	const struct gm_pinned_range *range = arg;

	return cuda->cuMemHostUnregister(range->addr);
}

/* Registers a range as a whole, because no copy may cross two registrations. */
static int pinned_register_range(struct gm_map_pinned *backend, void *addr, uint64_t bytes)
{
	struct gm_pinned_range *range = calloc(1, sizeof(*range));
	int r;

	if (!range)
		return -ENOMEM;

	*range = (struct gm_pinned_range){.backend = backend, .addr = addr, .bytes = bytes};
	r = gm_map_cuda_call(pinned_any_gpu(backend), pinned_host_register, range);
	if (r < 0) {
		free(range);
		return r;
	}

	gm_lock(&backend->lock);
	DL_APPEND(backend->registered, range);
	gm_lock_drop(&backend->lock);
	return 0;
}

/* Ends all registrations that overlap the range. The driver's errors are ignored: the registration
 * is already gone, with its context or with the driver; or work of this process has crashed the
 * context, in which case no work runs any more and the pages go when the process ends. */
static void pinned_unregister(struct gm_map_pinned *backend, const void *addr, uint64_t bytes)
{
	uintptr_t first = (uintptr_t)addr;
	struct gm_pinned_range *range;

	do {
		gm_lock(&backend->lock);
		DL_FOREACH (backend->registered, range)
			if ((uintptr_t)range->addr < first + bytes &&
				first < (uintptr_t)range->addr + range->bytes)
				break;
		if (range)
			DL_DELETE(backend->registered, range);
		gm_lock_drop(&backend->lock);

		if (range)
			(void)gm_map_cuda_call(
				pinned_any_gpu(backend), pinned_host_unregister, range);
		free(range);
	} while (range);
}

/* ---- both kinds */

/* The mapping that does the work, and its backend in *ret_ctx. */
static const struct gm_map_ops *pinned_under(const struct gm_map_pinned *backend, void **ret_ctx)
{
	*ret_ctx = backend->host ? NULL : pinned_any_gpu(backend);
	return backend->host ? gm_map_host_ops() : gm_map_cuda_ops();
}

static int pinned_reserve(void *ctx, uint64_t bytes, void **ret_addr)
{
	void *under;

	return pinned_under(ctx, &under)->reserve(under, bytes, ret_addr);
}

static void pinned_unreserve(void *ctx, void *addr, uint64_t bytes)
{
	void *under;

	pinned_unregister(ctx, addr, bytes);
	pinned_under(ctx, &under)->unreserve(under, addr, bytes);
}

static int pinned_map(void *ctx, void *addr, uint64_t bytes, int fd)
{
	void *under;

	return pinned_under(ctx, &under)->map(under, addr, bytes, fd);
}

static int pinned_access(void *ctx, void *addr, uint64_t bytes, bool read_only)
{
	struct gm_map_pinned *backend = ctx;
	struct gm_pinned_range range = {
		.backend = backend, .addr = addr, .bytes = bytes, .read_only = read_only};
	int r;

	if (!backend->host)
		return gm_map_cuda_call(pinned_any_gpu(backend), pinned_set_access, &range);

	/* The driver pins pages for writing, so they must be writable while it does. */
	r = gm_map_host_ops()->access(NULL, addr, bytes, false);
	if (r == 0)
		r = pinned_register_range(backend, addr, bytes);
	if (r == 0 && read_only)
		r = gm_map_host_ops()->access(NULL, addr, bytes, true);
	return r;
}

static int pinned_move(void *ctx, void *from, void *to, uint64_t bytes)
{
	struct gm_map_pinned *backend = ctx;

	/* The rest of the registered range may be in use. */
	if (backend->host)
		return -EOPNOTSUPP;
	return gm_map_cuda_ops()->move(pinned_any_gpu(backend), from, to, bytes);
}

static int pinned_unmap(void *ctx, void *addr, uint64_t bytes)
{
	void *under;

	pinned_unregister(ctx, addr, bytes);
	return pinned_under(ctx, &under)->unmap(under, addr, bytes);
}

static int pinned_copy(void *ctx, void *to, const void *from, uint64_t bytes, gpumem_stream stream)
{
	return gm_map_cuda_ops()->copy(pinned_any_gpu(ctx), to, from, bytes, stream);
}

/* ---- streams and events */

static void pinned_forget(void *ctx, struct gm_map_event *given)
{
	struct gm_pinned_event *event = (struct gm_pinned_event *)given;
	struct gm_map_pinned *backend = ctx;

	if (!event)
		return;
	for (size_t i = 0; i < backend->n; i++)
		gm_map_cuda_ops()->forget(backend->gpus[i], event->parts[i]);
	free(event);
}

static int pinned_record(void *ctx, struct gm_map_event **ret_event)
{
	struct gm_map_pinned *backend = ctx;
	struct gm_pinned_event *event = calloc(1, sizeof(*event));
	int r = 0;

	if (!event)
		return -ENOMEM;
	/* On a GPU without a context this records nothing, and makes no context. */
	for (size_t i = 0; i < backend->n && r == 0; i++)
		r = gm_map_cuda_ops()->record(backend->gpus[i], &event->parts[i]);
	if (r < 0) {
		pinned_forget(backend, (struct gm_map_event *)event);
		return r;
	}
	*ret_event = (struct gm_map_event *)event;
	return 0;
}

/* The stream is one of this thread's GPU. The event has no part on the others. */
static int pinned_record_on(void *ctx, gpumem_stream stream, struct gm_map_event **ret_event)
{
	struct gm_map_pinned *backend = ctx;
	struct gm_pinned_event *event = calloc(1, sizeof(*event));

	if (!event)
		return -ENOMEM;
	int r = gm_map_cuda_ops()->record_on(pinned_any_gpu(backend), stream, &event->parts[0]);
	if (r < 0) {
		free(event);
		return r;
	}
	*ret_event = (struct gm_map_event *)event;
	return 0;
}

static int pinned_passed(void *ctx, struct gm_map_event *given)
{
	struct gm_pinned_event *event = (struct gm_pinned_event *)given;
	struct gm_map_pinned *backend = ctx;
	int r = 1;

	for (size_t i = 0; i < backend->n && r == 1; i++)
		r = gm_map_cuda_ops()->passed(backend->gpus[i], event->parts[i]);
	return r;
}

static int pinned_order(void *ctx, gpumem_stream stream, struct gm_map_event *given)
{
	struct gm_pinned_event *event = (struct gm_pinned_event *)given;
	struct gm_map_pinned *backend = ctx;
	int r = 0;

	/* A stream of one GPU may wait for events of another. */
	for (size_t i = 0; i < backend->n && r == 0; i++)
		r = gm_map_cuda_ops()->order(pinned_any_gpu(backend), stream, event->parts[i]);
	return r;
}

static uint64_t pinned_here(void *ctx)
{
	struct gm_map_pinned *backend = ctx;
	size_t i = pinned_current_gpu(backend);

	return i < backend->n ? gm_map_cuda_ops()->here(backend->gpus[i]) : 0;
}

static int pinned_stream_id(void *ctx, gpumem_stream stream, uint64_t *ret_id)
{
	return gm_map_cuda_ops()->stream_id(pinned_any_gpu(ctx), stream, ret_id);
}

/* Host memory can be part of a graph like any other: a copy in the graph uses it at each launch. */
static uint64_t pinned_captured_into(void *ctx, gpumem_stream stream)
{
	return gm_map_cuda_ops()->captured_into(pinned_any_gpu(ctx), stream);
}

#define OPS(whole_) \
	{ \
		.name = "pinned", .whole = (whole_), .close = pinned_close, \
		.error = gm_map_cuda_error, .reserve = pinned_reserve, \
		.unreserve = pinned_unreserve, .map = pinned_map, .access = pinned_access, \
		.move = pinned_move, .unmap = pinned_unmap, .copy = pinned_copy, \
		.record = pinned_record, .record_on = pinned_record_on, .passed = pinned_passed, \
		.order = pinned_order, .forget = pinned_forget, .here = pinned_here, \
		.stream_id = pinned_stream_id, .captured_into = pinned_captured_into, \
	}

const struct gm_map_ops *gm_map_pinned_ops(bool memfd)
{
	static const struct gm_map_ops shared = OPS(false), registered = OPS(true);

	return memfd ? &registered : &shared;
}
