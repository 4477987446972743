/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_PAGE_H
#define GM_COMMON_PAGE_H

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "common/limits.h"

/*
 * The two shared pages of a client (design: two shared pages, no locks in them).
 *
 * The daemon's page is written by the daemon alone and can be mapped read-only only
 * (F_SEAL_FUTURE_WRITE). The client's page is written by the client alone; the daemon reads it with
 * pread() into memory of its own, so that what it looks at cannot change under it, and takes
 * nothing in it for granted.
 *
 * A block is guarded by a sequence count: odd while its one writer is at it. A reader copies the
 * block and tries again if the count moved; it gives up after a bound and keeps what it had.
 * Writers never wait.
 */

#define GM_PAGE_DAEMON_MAGIC UINT32_C(0x31444d47) /* "GMD1" */
#define GM_PAGE_CLIENT_MAGIC UINT32_C(0x31434d47) /* "GMC1" */

#define GM_PAGE_VERSION 1
#define GM_PAGE_BLOCK   128

/* Written once, before the page is handed over. */
struct gm_page_header {
	uint32_t magic;
	uint32_t version;
	uint64_t generation;
	uint64_t session;
	uint32_t devices; /* how many device blocks follow */
	uint32_t rows;    /* client's page: how many tracked rows follow the device blocks */
	uint8_t reserved[96];
};

/* What the daemon says of one device to one client. */
struct gm_page_device {
	_Atomic uint32_t seq;
	uint32_t level;        /* 0 low … 3 critical */
	uint32_t pressure_ppm; /* 0 … 1,000,000 */
	uint32_t reserved0;
	uint64_t reclaim_epoch; /* grows when cached chunks are wanted back */
	uint64_t total;
	uint64_t capacity;
	uint64_t available;
	uint64_t held; /* by this client */
	uint64_t max;  /* this client's limit; UINT64_MAX: none of its own */
	uint8_t reserved[64];
};

struct gm_page_daemon {
	struct gm_page_header header;
	struct gm_page_device devices[GM_LIMIT_DEVICES];
};

/* What a client says of its use of one device. */
struct gm_page_use {
	_Atomic uint32_t seq;
	uint32_t reserved0;
	uint64_t in_use;
	uint64_t cached;
	uint64_t peak;
	uint64_t hits;
	uint64_t misses;
	uint64_t returns;
	uint64_t cpu_fallbacks;
	uint64_t active_buffers;
	uint64_t untracked; /* active buffers that found no free row */
	uint8_t reserved[48];
};

/* One tracked buffer. bytes == 0: the row is free. */
struct gm_page_row {
	_Atomic uint32_t seq;
	uint32_t device;
	uint64_t bytes;
	uint64_t born_ns; /* CLOCK_MONOTONIC */
	char tag[GM_LIMIT_NAME_BYTES + 1];
	uint8_t reserved[40];
};

struct gm_page_client {
	struct gm_page_header header;
	struct gm_page_use use[GM_LIMIT_DEVICES];
	struct gm_page_row rows[GM_LIMIT_TRACKED_BUFFERS];
};

_Static_assert(sizeof(struct gm_page_header) == GM_PAGE_BLOCK, "blocks are 128 bytes");
_Static_assert(sizeof(struct gm_page_device) == GM_PAGE_BLOCK, "blocks are 128 bytes");
_Static_assert(sizeof(struct gm_page_use) == GM_PAGE_BLOCK, "blocks are 128 bytes");
_Static_assert(sizeof(struct gm_page_row) == GM_PAGE_BLOCK, "blocks are 128 bytes");

/* Writer's side: everything between begin and end changes together. One writer per block at a time.
 */
static inline void gm_page_write_begin(_Atomic uint32_t *seq)
{
	atomic_store_explicit(
		seq, atomic_load_explicit(seq, memory_order_relaxed) + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
}

static inline void gm_page_write_end(_Atomic uint32_t *seq)
{
	atomic_store_explicit(
		seq, atomic_load_explicit(seq, memory_order_relaxed) + 1, memory_order_release);
}

/*
 * Publishes value (a whole block: its count is ignored) in one write_begin and write_end, word by
 * word and atomically, so that a reader in the same process is no data race. n: a multiple of 8.
 */
void gm_page_write(void *block, const void *value, size_t n);

/*
 * Reader's side: one state of the block of n bytes (a multiple of 8, at most GM_PAGE_BLOCK), its
 * count first. 0; -EAGAIN: its writer was at it at every one of a bounded number of tries, keep
 * what you had; -EINVAL. The block is mapped memory, aligned to 8, or a copy made with pread(), of
 * which this checks no more than that its count is even: such a copy can be torn.
 */
int gm_page_read(const void *block, size_t n, void *ret_copy);
/* The same of a block in a file, untorn, without mapping it: three reads per try. Also -EIO, … */
int gm_page_pread(int fd, off_t offset, size_t n, void *ret_copy);

#endif
