/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Managed memory of the fake driver. It is host memory that devices reach, and beside it a file on the
 * device, which has a hole wherever the memory is on the host: so a device is used, and NVML counts, as
 * much as was prefetched. Pages that a kernel touches do not move by themselves.
 */
#include "tests/fake/fake.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <utlist.h>

#include "tests/fake/stream.h"

#define ADDRESSES ((size_t)1 << 47) /* a process has no more */

struct fake_managed {
	uint64_t id;
	uintptr_t va;
	size_t size;
	int device;
	int context;
	int fd;
	bool *resident; /* for each piece of FAKE_GRANULARITY */
	struct fake_managed *prev, *next;
};
static struct fake_managed *all; /* behind fake.lock */
static uint64_t last_id;         /* the same */

static struct fake_managed *find(uintptr_t addr, size_t bytes)
{
	struct fake_managed *m;

	DL_FOREACH (all, m)
		if (addr >= m->va && addr - m->va < m->size && bytes <= m->size - (addr - m->va))
			return m;
	return NULL;
}

/* Moves whole pieces that the range touches. A device that is full leaves the rest on the host. */
static void move(struct fake_managed *m, size_t offset, size_t bytes, bool to_host)
{
	struct fake_device *device = fake_get_device(m->device);

	for (size_t i = offset / FAKE_GRANULARITY; i * FAKE_GRANULARITY < offset + bytes; i++) {
		off_t at = (off_t)(i * FAKE_GRANULARITY);
		int mode = to_host ? FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE : 0;
		if (m->resident[i] == !to_host || fallocate(m->fd, mode, at, FAKE_GRANULARITY) < 0)
			continue;
		m->resident[i] = !to_host;
		fake_account(
			device, to_host ? -(int64_t)FAKE_GRANULARITY : (int64_t)FAKE_GRANULARITY);
	}
}

static void end(struct fake_managed *m)
{
	move(m, 0, m->size, true);
	DL_DELETE(all, m);
	(void)fake_host_drop((void *)m->va);
	close(m->fd);
	free(m->resident);
	free(m);
}

bool fake_managed_drop(uintptr_t addr)
{
	struct fake_managed *m = find(addr, 1);

	if (!m || m->va != addr)
		return false;
	end(m);
	return true;
}

uint64_t fake_managed_id(uintptr_t addr)
{
	struct fake_managed *m = find(addr, 1);

	return m ? m->id : 0;
}

void fake_managed_end(int context)
{
	struct fake_managed *m, *tmp;

	DL_FOREACH_SAFE (all, m, tmp)
		if (m->context == context)
			end(m);
}

FAKE_API gm_cu_result cuMemAllocManaged(gm_cu_ptr *ptr, size_t bytes, unsigned int flags);
FAKE_API gm_cu_result cuMemAllocManaged(gm_cu_ptr *ptr, size_t bytes, unsigned int flags)
{
	struct fake_device *device;
	struct fake_managed *m;
	gm_cu_result result;
	void *made;

	FAKE_ENTER("cuMemAllocManaged");
	if (!ptr || !bytes || (flags != GM_CU_MEM_ATTACH_GLOBAL && flags != GM_CU_MEM_ATTACH_HOST))
		return GM_CUDA_ERROR_INVALID_VALUE;
	if ((result = fake_need_context(&device)) || (result = fake_capture_forbids()))
		return result;
	if (fake_without("managed"))
		return GM_CUDA_ERROR_NOT_SUPPORTED;
	if (bytes > ADDRESSES)
		return GM_CUDA_ERROR_OUT_OF_MEMORY;

	m = calloc(1, sizeof *m);
	if (!m)
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	size_t size = (bytes + FAKE_GRANULARITY - 1) & ~(FAKE_GRANULARITY - 1);
	m->resident = calloc(size / FAKE_GRANULARITY, sizeof *m->resident);
	m->fd = openat(device->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (!m->resident || m->fd < 0 || posix_memalign(&made, FAKE_GRANULARITY, size)) {
		if (m->fd >= 0)
			close(m->fd);
		free(m->resident);
		free(m);
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	}

	m->va = (uintptr_t)made;
	m->size = size;
	m->device = (int)(device - fake.device);
	m->context = fake_context();
	pthread_mutex_lock(&fake.lock);
	result = fake_host_add(made, size);
	if (!result) {
		/* Far from the numbers of other memory. */
		m->id = UINT64_C(1) << 48 | ++last_id;
		DL_APPEND(all, m);
	}
	pthread_mutex_unlock(&fake.lock);
	if (result) {
		close(m->fd);
		free(m->resident);
		free(m);
		free(made);
		return result;
	}
	*ptr = (gm_cu_ptr)m->va;
	return GM_CUDA_SUCCESS;
}

struct prefetch {
	uintptr_t addr;
	size_t bytes;
	bool to_host;
};

/* Runs in the stream's order. */
static void run_prefetch(void *user)
{
	struct prefetch *prefetch = user;
	struct fake_managed *m;

	pthread_mutex_lock(&fake.lock);
	m = find(prefetch->addr, prefetch->bytes);
	if (m)
		move(m, prefetch->addr - m->va, prefetch->bytes, prefetch->to_host);
	pthread_mutex_unlock(&fake.lock);
	free(prefetch);
}

static bool is_place(gm_cu_device device)
{
	return device == -1 || fake_get_device(device);
}

static bool is_managed(gm_cu_ptr ptr, size_t bytes)
{
	pthread_mutex_lock(&fake.lock);
	bool found = bytes > 0 && find((uintptr_t)ptr, bytes) != NULL;
	pthread_mutex_unlock(&fake.lock);
	return found;
}

FAKE_API gm_cu_result cuMemPrefetchAsync(
	gm_cu_ptr ptr, size_t bytes, gm_cu_device place, gm_cu_stream stream);
FAKE_API gm_cu_result cuMemPrefetchAsync(
	gm_cu_ptr ptr, size_t bytes, gm_cu_device place, gm_cu_stream stream)
{
	struct fake_device *device;
	gm_cu_result result;
	int context;

	FAKE_ENTER("cuMemPrefetchAsync");
	if ((result = fake_stream_context(stream, &device, &context)))
		return result;
	if (!is_place(place))
		return GM_CUDA_ERROR_INVALID_DEVICE;
	if (!is_managed(ptr, bytes))
		return GM_CUDA_ERROR_INVALID_VALUE;
	if (fake_without("concurrent"))
		return GM_CUDA_ERROR_INVALID_DEVICE;

	struct prefetch *prefetch = malloc(sizeof *prefetch);
	if (!prefetch)
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	*prefetch = (struct prefetch){(uintptr_t)ptr, bytes, place == -1};
	result = fake_submit(
		stream, &(struct fake_op){.kind = FAKE_CALL, .fn = run_prefetch, .user = prefetch});
	if (result)
		free(prefetch);
	return result;
}

FAKE_API gm_cu_result cuMemAdvise(
	gm_cu_ptr ptr, size_t bytes, gm_cu_advice advice, gm_cu_device place);
FAKE_API gm_cu_result cuMemAdvise(
	gm_cu_ptr ptr, size_t bytes, gm_cu_advice advice, gm_cu_device place)
{
	struct fake_device *device;
	gm_cu_result result;

	FAKE_ENTER("cuMemAdvise");
	if ((result = fake_need_context(&device)))
		return result;
	if (!is_managed(ptr, bytes) || advice < GM_CU_MEM_ADVISE_SET_READ_MOSTLY ||
		advice > GM_CU_MEM_ADVISE_UNSET_ACCESSED_BY)
		return GM_CUDA_ERROR_INVALID_VALUE;
	return is_place(place) ? GM_CUDA_SUCCESS : GM_CUDA_ERROR_INVALID_DEVICE;
}
