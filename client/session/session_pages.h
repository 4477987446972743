/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SESSION_SESSION_PAGES_H
#define GM_CLIENT_SESSION_SESSION_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/lock.h"

#include "common/wire/page.h"

/*
 * The two pages that a session shares with the daemon. The daemon's page can be read without a
 * message. In the client's page, this process says how it uses what it holds, and lists its larger
 * buffers.
 *
 * A row is a tracked buffer or block. The page has a bounded number of them. If the session tracks
 * everything, the rows that find no room there are kept in this process.
 */

/* A row that is not in the page. */
struct gm_pages_own_row {
	struct gm_page_row row;
	struct gm_page_note note;
	union {
		void *ptr;
		uint32_t next; /* of the free ones, plus 1; 0: the last one */
	};
};
#define GM_PAGES_OWN_ROWS 64

struct gm_session_stacks;

struct gm_session_pages {
	const struct gm_page_daemon *daemon; /* read-only */
	struct gm_page_client *client;
	struct gm_lock lock;                          /* held by writers of this process */
	uint64_t untracked[GM_BOUND_DEVICES];         /* buffers without a row */
	uint64_t unlisted[GM_BOUND_DEVICES];          /* blocks without a row */
	uint16_t free_rows[GM_BOUND_TRACKED_BUFFERS]; /* a stack */
	uint32_t n_free;
	void *row_ptr[GM_BOUND_TRACKED_BUFFERS]; /* where the memory of a row is */
	uint64_t last_born_ns;
	bool noted; /* the page has notes and call stacks */

	bool own_rows;                    /* rows that find no room in the page are kept here */
	struct gm_pages_own_row **own;    /* slabs of GM_PAGES_OWN_ROWS */
	uint32_t n_own;                   /* slabs */
	uint32_t free_own;                /* the first free one, plus 1; 0: none */
	struct gm_session_stacks *stacks; /* session_stacks.h; NULL: no call stacks are kept */
};

void gm_session_pages_init(struct gm_session_pages *pages);
void gm_session_pages_deinit(struct gm_session_pages *pages);
/* Leaves the client's page mapped when the session ends. It shows the daemon that this process still
 * runs the program that has the memory. No other function but _deinit may be called afterwards. */
void gm_session_pages_keep(struct gm_session_pages *pages);

/*
 * Maps both pages. If pages were mapped before, the new ones replace them at the same addresses,
 * and the client's page keeps its contents: readers and writers do not notice. The fds stay the
 * caller's. On error, returns a negative errno: -EBADMSG if these are not such pages, or if they
 * are not sealed against shrinking.
 */
int gm_session_pages_map(struct gm_session_pages *pages, int daemon_fd, int client_fd);

/* Returns the maximum that this client may ever hold on the device, in bytes, by the daemon's page; UINT64_MAX: the page does
 * not say. */
uint64_t gm_session_pages_most(const struct gm_session_pages *pages, uint32_t device);
/* Reads what the daemon says about a device. Returns -EAGAIN if the daemon was writing at every
 * try. */
int gm_session_pages_device(
	const struct gm_session_pages *pages, uint32_t device, struct gm_page_device *ret);

/* Publishes figures, except untracked, which is counted here. Returns true if they have changed. */
bool gm_session_pages_use(
	struct gm_session_pages *pages, uint32_t device, const struct gm_page_use *use);

/* Lists a buffer that was made just now. Returns its row for the functions below, never 0. If no
 * row is free, counts the buffer and returns GM_PAGES_UNTRACKED, which those functions also accept.
 */
#define GM_PAGES_UNTRACKED UINT32_C(0xffffffff)
uint32_t gm_session_pages_row_add(
	struct gm_session_pages *pages, uint32_t device, uint64_t bytes, const char *tag);
/* The same for a block of the heap. Returns 0 if no row of the page is free, and does not count the
 * block. */
uint32_t gm_session_pages_row_try(
	struct gm_session_pages *pages, uint32_t device, uint64_t bytes, const char *tag);
/* Sets the number of blocks that have no row. */
void gm_session_pages_unlisted(struct gm_session_pages *pages, uint32_t device, uint64_t n);
/* Sets where a buffer is, its size, and how it grows. */
void gm_session_pages_row_size(struct gm_session_pages *pages, uint32_t row, void *ptr,
	uint64_t bytes, const struct gm_page_growth *growth);
/* Sets in which memory the buffer is: GM_PAGE_PLACE_…. */
void gm_session_pages_row_place(struct gm_session_pages *pages, uint32_t row, uint32_t place);
void gm_session_pages_row_tag(struct gm_session_pages *pages, uint32_t row, const char *tag);
/* device is the buffer's, for the count of untracked buffers. */
void gm_session_pages_row_remove(struct gm_session_pages *pages, uint32_t device, uint32_t row);

/* Further facts about a row. */
struct gm_pages_about {
	void *ptr;
	const char *type, *precision; /* NULL: none */
	uint32_t stack;               /* session_stacks.h; 0: none. The row takes the reference. */
};
void gm_session_pages_row_note(
	struct gm_session_pages *pages, uint32_t row, const struct gm_pages_about *about);
/* Sets the stack alone, and takes the reference. */
void gm_session_pages_row_stack(struct gm_session_pages *pages, uint32_t row, uint32_t stack);
/* The buffer is being used now. */
void gm_session_pages_row_touch(struct gm_session_pages *pages, uint32_t row);

/* A copy of a row. */
struct gm_pages_seen_row {
	struct gm_page_row row;
	struct gm_page_note note;
	void *ptr;
};
/* Copies all rows whose buffers were born at that time or before. The caller frees *ret_rows. Returns
 * -ENOMEM if there is no memory for them. */
int gm_session_pages_rows(struct gm_session_pages *pages, uint64_t born_until_ns,
	struct gm_pages_seen_row **ret_rows, size_t *ret_n);

#endif
