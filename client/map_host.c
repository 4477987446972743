/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host chunks in this process's address space. A reservation is a PROT_NONE mapping; a chunk is its
 * memfd mapped over a part of it, and unmapping puts PROT_NONE back, so that at no moment is there
 * a hole into which another thread's mmap() could fall. Chunks are not inherited by fork(): a child
 * must not see, or keep alive, memory that its parent gave back.
 *
 * On the host nothing is asynchronous: an event has passed when it is recorded, unless a test holds
 * it back.
 */
#include "client/map_host.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/limits.h"

struct gm_event {
	bool held;
	struct gm_event *prev, *next; /* of the held ones */
};

struct gm_map_host {
	pthread_mutex_t lock;
	bool holding;
	struct gm_event held; /* the head of a ring */
	uint64_t orders;
};

int gm_map_host_new(struct gm_map_host **ret_backend)
{
	struct gm_map_host *backend = calloc(1, sizeof(*backend));
	if (!backend)
		return -ENOMEM;
	pthread_mutex_init(&backend->lock, NULL);
	backend->held.prev = backend->held.next = &backend->held;
	*ret_backend = backend;
	return 0;
}

void gm_map_host_free(struct gm_map_host *backend)
{
	if (!backend)
		return;
	pthread_mutex_destroy(&backend->lock);
	free(backend);
}

/* ---- memory */

static int empty(void *addr, uint64_t bytes)
{
	void *p = mmap(addr, bytes, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	return p == MAP_FAILED ? -errno : 0;
}

static int host_reserve(void *backend, uint64_t bytes, void **ret_addr)
{
	if (!bytes || bytes > SIZE_MAX - GM_CHUNK_MIN)
		return -EINVAL;
	/* Aligned by asking for more and giving back both ends. */
	uint64_t more = bytes + GM_CHUNK_MIN;
	uint8_t *p =
		mmap(NULL, more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	/* What is asked for is right, so EINVAL means too much, too: valgrind says it so. */
	if (p == MAP_FAILED)
		return errno == EINVAL ? -ENOMEM : -errno;
	uint64_t before = (GM_CHUNK_MIN - ((uintptr_t)p & (GM_CHUNK_MIN - 1))) & (GM_CHUNK_MIN - 1);
	uint64_t after = GM_CHUNK_MIN - before;
	if (before)
		munmap(p, before);
	if (after)
		munmap(p + before + bytes, after);
	*ret_addr = p + before;
	return 0;
}

static void host_unreserve(void *backend, void *addr, uint64_t bytes)
{
	munmap(addr, bytes);
}

static int host_map(void *backend, void *addr, uint64_t bytes, int fd)
{
	if (fd < 0)
		return -EBADF;
	if (mmap(addr, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		return -errno;
	if (madvise(addr, bytes, MADV_DONTFORK) < 0) {
		int r = -errno;
		(void)empty(addr, bytes);
		return r;
	}
	return 0;
}

static int host_access(void *backend, void *addr, uint64_t bytes, bool read_only)
{
	int prot = read_only ? PROT_READ : PROT_READ | PROT_WRITE;
	return mprotect(addr, bytes, prot) < 0 ? -errno : 0;
}

static int host_unmap(void *backend, void *addr, uint64_t bytes)
{
	return empty(addr, bytes);
}

static int host_move(void *backend, void *from, void *to, uint64_t bytes)
{
	/* An old size of 0 maps shared pages a second time: from stays taken until it is emptied.
	 */
	if (mremap(from, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED)
		return -errno;
	if (madvise(to, bytes, MADV_DONTFORK) < 0) {
		int r = -errno;
		(void)empty(to, bytes);
		return r;
	}
	return empty(from, bytes);
}

/* ---- events */

static int host_record(void *ctx, struct gm_event **ret_event)
{
	struct gm_map_host *backend = ctx;
	struct gm_event *event = calloc(1, sizeof(*event));
	if (!event)
		return -ENOMEM;
	pthread_mutex_lock(&backend->lock);
	if (backend->holding) {
		event->held = true;
		event->next = &backend->held;
		event->prev = backend->held.prev;
		event->prev->next = event->next->prev = event;
	}
	pthread_mutex_unlock(&backend->lock);
	*ret_event = event;
	return 0;
}

static int host_passed(void *ctx, struct gm_event *event)
{
	struct gm_map_host *backend = ctx;
	pthread_mutex_lock(&backend->lock);
	bool held = event->held;
	pthread_mutex_unlock(&backend->lock);
	return held ? 0 : 1;
}

static int host_order(void *ctx, gpumem_stream stream, struct gm_event *event)
{
	struct gm_map_host *backend = ctx;
	pthread_mutex_lock(&backend->lock);
	if (event->held)
		backend->orders++;
	pthread_mutex_unlock(&backend->lock);
	return 0;
}

static void unhold(struct gm_event *event)
{
	event->prev->next = event->next;
	event->next->prev = event->prev;
	event->held = false;
}

static void host_forget(void *ctx, struct gm_event *event)
{
	struct gm_map_host *backend = ctx;
	if (!event)
		return;
	pthread_mutex_lock(&backend->lock);
	if (event->held)
		unhold(event);
	pthread_mutex_unlock(&backend->lock);
	free(event);
}

static int host_stream_id(void *backend, gpumem_stream stream, uint64_t *ret_id)
{
	*ret_id = (uintptr_t)stream;
	return 0;
}

void gm_map_host_hold(struct gm_map_host *backend)
{
	pthread_mutex_lock(&backend->lock);
	backend->holding = true;
	pthread_mutex_unlock(&backend->lock);
}

void gm_map_host_release(struct gm_map_host *backend)
{
	pthread_mutex_lock(&backend->lock);
	backend->holding = false;
	while (backend->held.next != &backend->held)
		unhold(backend->held.next);
	pthread_mutex_unlock(&backend->lock);
}

uint64_t gm_map_host_orders(struct gm_map_host *backend)
{
	pthread_mutex_lock(&backend->lock);
	uint64_t orders = backend->orders;
	pthread_mutex_unlock(&backend->lock);
	return orders;
}

static void host_close(void *backend)
{
	gm_map_host_free(backend);
}

#define MEMORY_OPS \
	.name = "host", .close = host_close, .reserve = host_reserve, .unreserve = host_unreserve, \
	.map = host_map, .access = host_access, .move = host_move, .unmap = host_unmap

const struct gm_map_ops *gm_map_host_ops(void)
{
	static const struct gm_map_ops ops = {MEMORY_OPS};
	return &ops;
}

const struct gm_map_ops *gm_map_host_streams_ops(void)
{
	static const struct gm_map_ops ops = {
		MEMORY_OPS,
		.record = host_record,
		.passed = host_passed,
		.order = host_order,
		.forget = host_forget,
		.stream_id = host_stream_id,
	};
	return &ops;
}
