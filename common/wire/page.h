/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_WIRE_PAGE_H
#define GM_WIRE_PAGE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "common/figures.h"
#include "common/bounds.h"

/*
 * The two pages that each client shares with the daemon. There are no locks in them.
 *
 * Only the daemon writes the daemon's page; clients can map it only read-only
 * (F_SEAL_FUTURE_WRITE). Only the client writes the client's page. The daemon reads that page with
 * pread() into memory of its own, so that the copy cannot change while the daemon looks at it, and
 * trusts nothing in it.
 *
 * Each block has a sequence count, which is odd while the block's one writer is writing. A reader
 * copies the block and tries again if the count has changed. After a bounded number of tries it
 * gives up and keeps its old copy. Writers never wait.
 */

#define GM_PAGE_DAEMON_MAGIC UINT32_C(0x31444d47) /* "GMD1" */
#define GM_PAGE_CLIENT_MAGIC UINT32_C(0x31434d47) /* "GMC1" */

/*
 * A newer version only gives a meaning to reserved words, so each side reads the pages of the other,
 * whatever its version. The daemon writes the version that the client knows (GM_PAGE_VERSION_AT).
 *
 *   1   cached includes rounding, so a client may hold "cached" memory that it cannot return.
 *   2   cached is what the client could return right now. Has slack, opened, room, and bytes in the
 *       header.
 *   3   The daemon's page has the events. Rows have growth. The client's page has notes on its rows, and
 *       call stacks.
 */
#define GM_PAGE_VERSION        3
#define GM_PAGE_VERSION_EVENTS 3
#define GM_PAGE_VERSION_NOTES  3
#define GM_PAGE_BLOCK          128
/* The version for a client that speaks this minor version of the protocol. */
#define GM_PAGE_VERSION_AT(minor) ((minor) < 2 ? 1 : (minor) < 4 ? 2 : GM_PAGE_VERSION)

/* What the daemon's page says at the end of a run of the daemon. */
enum gm_page_goodbye {
	GM_PAGE_STAYS = 0,
	GM_PAGE_STOPS = 1,    /* the daemon is stopping */
	GM_PAGE_RESTARTS = 2, /* and means to come back */
};
#define GM_PAGE_REASON_BYTES 80

/* Written once, before the page is handed over; goodbye and reason once more, by
 * gm_page_event_goodbye(), and makers_left as it grows. */
struct gm_page_header {
	uint32_t magic;
	uint32_t version;
	uint64_t generation;
	uint64_t session;
	uint32_t devices; /* how many device blocks follow */
	uint32_t rows;    /* client's page: how many tracked rows follow the device blocks */
	uint64_t bytes;   /* of the whole page; 0 in version 1 */
	/* the daemon's page, from version 3 on */
	_Atomic uint32_t goodbye;     /* enum gm_page_goodbye; written after the reason */
	_Atomic uint32_t makers_left; /* how often GM_PAGE_EVENT_MAKERS happened */
	char reason[GM_PAGE_REASON_BYTES];
};

/* What the daemon tells one client about one device. */
struct gm_page_device {
	_Atomic uint32_t seq;
	uint32_t level;         /* 0 low … 3 critical */
	uint32_t pressure_ppm;  /* 0 … 1,000,000 */
	uint32_t urgent;        /* of the last reclaim: it wants everything unused, now */
	uint64_t reclaim_epoch; /* grows when the daemon wants cached chunks back */
	uint64_t total;
	uint64_t capacity;
	uint64_t available;
	uint64_t held; /* by this client */
	uint64_t max;  /* this client's limit; UINT64_MAX: none of its own */
	uint64_t room; /* what this client could get now, by all limits; from version 2 on */
	/* Events, from version 3 on: the sequence number of the last one of each kind; 0: none yet. */
	uint64_t pressure_event;
	uint64_t reclaim_event;
	uint64_t limits_event;
	uint64_t wanted; /* bytes, by the last reclaim; 0: everything unused */
	uint64_t spill;  /* bytes of them that evictable buffers have; 0: nothing is to be moved */
	/* The client is to move the buffer of a row, by number from 1 on, or (0) all buffers. */
	uint64_t evict_event;
	uint32_t evict_row;
	uint32_t restore; /* back to the device */
};

struct gm_page_daemon {
	struct gm_page_header header;
	struct gm_page_device devices[GM_BOUND_DEVICES];
};

/* Figures of a client on one device, as the client tells them. A figure is 0 before its version. */
#define GM_PAGE_USE_MEMBERS 15
struct gm_page_use {
	_Atomic uint32_t seq;
	uint32_t reserved0;
#define GM_PAGE_USE_FIGURE(name, ...) uint64_t name;
	GM_CLIENT_FIGURES(GM_PAGE_USE_FIGURE, GM_PAGE_USE_FIGURE, GM_FIGURE_SKIP)
	uint64_t reserved[GM_PAGE_USE_MEMBERS -
			  (0 GM_CLIENT_FIGURES(GM_FIGURE_ONE, GM_FIGURE_ONE, GM_FIGURE_SKIP))];
#undef GM_PAGE_USE_FIGURE
};

/* How a buffer grows, and how much of it is used; from version 3 on. Sizes are in units of
 * GM_CHUNK_MIN. All 0: it was not made to grow. */
struct gm_page_growth {
	uint64_t used;    /* bytes; see use_known */
	uint32_t max;     /* how far it can grow where it is; 0: not at all */
	uint32_t step;    /* of its policy, as the next two; 0: none */
	uint32_t ceiling; /* 0: none */
	uint16_t percent; /* 150: half as much again; 0: none */
	uint16_t use_known;
};

/* Where a buffer is, from version 3 on: a sum of these. 0: on its device, which it does not leave. */
#define GM_PAGE_PLACE_EVICTABLE UINT32_C(1)
#define GM_PAGE_PLACE_PINNED    UINT32_C(2)
#define GM_PAGE_PLACE_HOST      UINT32_C(4) /* its content is in host memory */
#define GM_PAGE_PLACE_SHARED    UINT32_C(8) /* others may have it */
/* It is a region that its program has paused. bytes is what its content takes in host memory; without
 * GM_PAGE_PLACE_HOST, it has no memory, and bytes is what it will need on its device. */
#define GM_PAGE_PLACE_PAUSED UINT32_C(16)

/* One tracked buffer. bytes == 0: the row is free. */
struct gm_page_row {
	_Atomic uint32_t seq;
	uint32_t device;
	uint64_t bytes;
	uint64_t born_ns; /* CLOCK_MONOTONIC */
	char tag[GM_BOUND_NAME_BYTES + 1];
	struct gm_page_growth growth;
	uint32_t place; /* GM_PAGE_PLACE_… */
	uint8_t reserved[12];
};

/*
 * More about the buffer in the row of the same index, from version 3 on. It is about that buffer only
 * if born_ns is the same in both.
 */
struct gm_page_note {
	_Atomic uint32_t seq;
	uint32_t stack; /* index of the block of its call stack, plus 1; 0: not known */
	uint64_t born_ns;
	uint64_t used_ns; /* CLOCK_MONOTONIC, the last use that is known; 0: none */
	char type[GM_BOUND_KIND_BYTES + 1];
	char precision[GM_BOUND_KIND_BYTES + 1];
};

/*
 * Call stacks of buffers, from version 3 on. A frame is an address in a module, less one, so that it
 * lies within the call: the index of the module in the upper 16 bits, and below it the offset from the
 * start of the module. The caller of the library comes first.
 */
#define GM_PAGE_FRAMES       15
#define GM_PAGE_FRAME_SHIFT  48
#define GM_PAGE_FRAME_OFFSET ((UINT64_C(1) << GM_PAGE_FRAME_SHIFT) - 1)
struct gm_page_stack {
	_Atomic uint32_t seq;
	uint32_t frames; /* 0: the block is free */
	uint64_t frame[GM_PAGE_FRAMES];
};

#define GM_PAGE_MODULE_ID   20
#define GM_PAGE_MODULE_PATH 228
/* A program or a library that frames are in. Once written, it does not change. */
struct gm_page_module {
	_Atomic uint32_t seq;
	uint32_t id_bytes; /* of the build id; 0: it has none */
	uint8_t id[GM_PAGE_MODULE_ID];
	char path
		[GM_PAGE_MODULE_PATH]; /* "": not known, or longer than fits; then the block is free
					   if it has no id either */
};

struct gm_page_client {
	struct gm_page_header header;
	struct gm_page_use use[GM_BOUND_DEVICES];
	struct gm_page_row rows[GM_BOUND_TRACKED_BUFFERS];
	/* Pages of older versions end here. */
	struct gm_page_note notes[GM_BOUND_TRACKED_BUFFERS];
	struct gm_page_module modules[GM_BOUND_STACK_MODULES];
	struct gm_page_stack stacks[GM_BOUND_STACKS];
};
#define GM_PAGE_CLIENT_BYTES_OLD offsetof(struct gm_page_client, notes)

_Static_assert(sizeof(struct gm_page_header) == GM_PAGE_BLOCK, "blocks are 128 bytes");
_Static_assert(sizeof(struct gm_page_device) == GM_PAGE_BLOCK, "blocks are 128 bytes");
_Static_assert(sizeof(struct gm_page_use) == GM_PAGE_BLOCK, "blocks are 128 bytes");
_Static_assert(sizeof(struct gm_page_row) == GM_PAGE_BLOCK, "blocks are 128 bytes");
_Static_assert(sizeof(struct gm_page_stack) == GM_PAGE_BLOCK, "blocks are 128 bytes");
_Static_assert(sizeof(struct gm_page_note) == 48, "the layout is part of the protocol");
_Static_assert(sizeof(struct gm_page_module) == 256, "the layout is part of the protocol");

/* For writers: everything written between begin and end changes together. Each block may have only
 * one writer at a time. */
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
 * For writers: publishes a whole block of n bytes, a multiple of 8, between one write_begin and one
 * write_end. The count in value is ignored. Words are written atomically, so a reader in the same
 * process is not a data race.
 */
void gm_page_write(void *block, const void *value, size_t n);

/*
 * For readers: copies one consistent state of a block of n bytes (a multiple of 8, at most
 * GM_PAGE_BLOCK), which begins with its count. Returns -EAGAIN if the writer was writing at each of
 * a bounded number of tries: keep the old copy. Returns -EINVAL for a bad n.
 *
 * The block is either mapped memory, aligned to 8, or a copy made with pread(). Of such a copy the
 * function can only check that its count is even: the copy may be torn.
 */
int gm_page_read(const void *block, size_t n, void *ret_copy);
/* The same for a block in a file, without mapping it and never torn: three reads per try. On error,
 * also returns the errno of pread(), or -EIO for a short read. */
int gm_page_pread(int fd, off_t offset, size_t n, void *ret_copy);

#endif
