/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Maps host chunks. A reservation is a PROT_NONE mapping. A chunk is its memfd mapped over a part
 * of the reservation, and unmapping it puts PROT_NONE back. So there is never a hole that another
 * thread's mmap() could fall into. fork() does not pass chunks on: a child must not see, or keep
 * alive, memory that its parent gave back.
 */
#include "client/map/map_host.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/map/map_control.h"
#include "common/bounds.h"

/* Makes a part of a reservation empty. */
static int host_empty(void *addr, uint64_t bytes)
{
	void *p = mmap(addr, bytes, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);

	return p == MAP_FAILED ? -errno : 0;
}

static int host_reserve(void *backend, uint64_t bytes, void **ret_addr)
{
	if (!bytes || bytes > SIZE_MAX - GM_CHUNK_MIN)
		return -EINVAL;

	/* To get an aligned range, ask for more and give back both ends. */
	uint64_t more = bytes + GM_CHUNK_MIN;
	uint8_t *p =
		mmap(NULL, more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	/* The arguments are valid, so EINVAL means too much, too: valgrind reports it so. */
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

		(void)host_empty(addr, bytes);
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
	return host_empty(addr, bytes);
}

static int host_move(void *backend, void *from, void *to, uint64_t bytes)
{
	/* With an old size of 0, mremap() maps the shared pages a second time. So the old place
	 * stays taken until it is emptied. */
	if (mremap(from, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED)
		return -errno;
	if (madvise(to, bytes, MADV_DONTFORK) < 0) {
		int r = -errno;

		(void)host_empty(to, bytes);
		return r;
	}
	return host_empty(from, bytes);
}

static int host_copy(
	void *backend, void *to, const void *from, uint64_t bytes, gpumem_stream stream)
{
	memcpy(to, from, bytes);
	return 0;
}

static int host_word_open(void *backend, int fd, bool read_only, struct gm_map_control **ret_word)
{
	struct gm_map_control *word = calloc(1, sizeof(*word));
	if (!word)
		return -ENOMEM;

	int r = gm_map_control_init(word, fd, read_only);
	if (r < 0) {
		free(word);
		return r;
	}
	*ret_word = word;
	return 0;
}

static void host_word_close(void *backend, struct gm_map_control *word)
{
	gm_map_control_deinit(word);
	free(word);
}

static int host_transfer(void *backend, void *to, const void *from, uint64_t bytes)
{
	memcpy(to, from, bytes);
	return 0;
}

static int host_managed_make(
	void *backend, uint64_t bytes, bool attach_host, void **ret_addr, uint64_t *ret_id)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	/* A forked child has no part in it, as on a GPU. */
	(void)madvise(p, bytes, MADV_DONTFORK);
	*ret_addr = p;
	*ret_id = 0;
	return 0;
}

static int host_managed_free(void *backend, void *addr, uint64_t bytes, uint64_t id)
{
	return munmap(addr, bytes) < 0 ? -errno : 0;
}

/* The memory is where it is. */
static int host_managed_prefetch(
	void *backend, void *addr, uint64_t bytes, bool to_host, gpumem_stream stream)
{
	return 0;
}

static int host_managed_advise(void *backend, void *addr, uint64_t bytes, int advice, bool host)
{
	return 0;
}

/* There is no state to free. */
static void host_close(void *backend)
{
}

const struct gm_map_ops *gm_map_host_ops(void)
{
	static const struct gm_map_ops ops = {
		.name = "host",
		.close = host_close,
		.reserve = host_reserve,
		.unreserve = host_unreserve,
		.map = host_map,
		.access = host_access,
		.move = host_move,
		.word_open = host_word_open,
		.word_close = host_word_close,
		.unmap = host_unmap,
		.copy = host_copy,
		.transfer = host_transfer,
		.managed_make = host_managed_make,
		.managed_free = host_managed_free,
		.managed_prefetch = host_managed_prefetch,
		.managed_advise = host_managed_advise,
	};

	return &ops;
}
