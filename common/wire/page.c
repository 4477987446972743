/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Copies blocks into and out of the shared pages, under their sequence count. All words are copied
 * atomically, one by one, because the other side may be writing or reading at the same time.
 * Neither side ever waits for the other.
 *
 * A copy is one consistent state of the block. Nothing more is promised: a client may write any
 * nonsense into its page.
 */

#include <errno.h>
#include <stddef.h>
#include <unistd.h>

#include "common/wire/page.h"

/* A write takes some tens of nanoseconds. A writer that was stopped in the middle may take any
 * time, so readers give up. By pread(), which takes longer than a write, they do it soon: a client
 * could let the daemon try in vain on purpose. */
#define PAGE_TRIES       128
#define PAGE_TRIES_PREAD 3

typedef _Atomic uint64_t page_word;

static void page_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

int gm_page_read(const void *block, size_t n, void *ret_copy)
{
	const page_word *from = block;
	const _Atomic uint32_t *seq = block;
	uint64_t copy[GM_PAGE_BLOCK / sizeof(uint64_t)];

	if (n == 0 || n > GM_PAGE_BLOCK || n % sizeof(uint64_t) != 0)
		return -EINVAL;
	for (int i = 0; i < PAGE_TRIES; i++) {
		uint32_t before = atomic_load_explicit(seq, memory_order_acquire);
		if (before % 2 == 0) {
			for (size_t w = 0; w < n / sizeof(uint64_t); w++)
				copy[w] = atomic_load_explicit(&from[w], memory_order_relaxed);
			atomic_thread_fence(memory_order_acquire);
			if (atomic_load_explicit(seq, memory_order_relaxed) == before) {
				memcpy(ret_copy, copy, n);
				return 0;
			}
		}
		page_pause();
	}
	return -EAGAIN;
}

static int page_pread(int fd, void *to, size_t n, off_t offset)
{
	ssize_t got;

	do
		got = pread(fd, to, n, offset);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	return (size_t)got == n ? 0 : -EIO;
}

int gm_page_pread(int fd, off_t offset, size_t n, void *ret_copy)
{
	uint64_t copy[GM_PAGE_BLOCK / sizeof(uint64_t)];
	uint32_t before, after;
	int r;

	if (n == 0 || n > GM_PAGE_BLOCK || n % sizeof(uint64_t) != 0)
		return -EINVAL;
	for (int i = 0; i < PAGE_TRIES_PREAD; i++) {
		r = page_pread(fd, &before, sizeof(before), offset);
		if (r < 0)
			return r;
		if (before % 2 != 0)
			continue;
		/* A system call by itself does not order memory accesses. */
		atomic_thread_fence(memory_order_acquire);
		r = page_pread(fd, copy, n, offset);
		if (r < 0)
			return r;
		atomic_thread_fence(memory_order_acquire);
		r = page_pread(fd, &after, sizeof(after), offset);
		if (r < 0)
			return r;
		if (before == after) {
			memcpy(ret_copy, copy, n);
			return 0;
		}
	}
	return -EAGAIN;
}

void gm_page_write(void *block, const void *value, size_t n)
{
	page_word *to = block;
	_Atomic uint32_t *seq = block;
	uint64_t word;

	gm_page_write_begin(seq);
	/* The count is one half of the first word, so the other half is stored separately. */
	atomic_store_explicit(
		(_Atomic uint32_t *)block + 1, ((const uint32_t *)value)[1], memory_order_relaxed);
	for (size_t w = 1; w < n / sizeof(word); w++) {
		memcpy(&word, (const uint8_t *)value + w * sizeof(word), sizeof(word));
		atomic_store_explicit(&to[w], word, memory_order_relaxed);
	}

	gm_page_write_end(seq);
}
