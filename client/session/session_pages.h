/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_PAGES_H
#define GM_CLIENT_PAGES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/page.h"

/*
 * The two pages a session shares with the daemon: the daemon's, to read without a message, and the
 * client's own, in which it tells how it uses what it holds and lists its larger buffers.
 */
struct gm_session_pages {
	const struct gm_page_daemon *daemon; /* read-only */
	struct gm_page_client *client;
	pthread_mutex_t lock;                         /* of all that is written here */
	uint64_t untracked[GM_LIMIT_DEVICES];         /* buffers */
	uint64_t unlisted[GM_LIMIT_DEVICES];          /* blocks */
	uint16_t free_rows[GM_LIMIT_TRACKED_BUFFERS]; /* a stack */
	uint32_t n_free;
};

void gm_session_pages_init(struct gm_session_pages *pages);
void gm_session_pages_deinit(struct gm_session_pages *pages);

/*
 * Maps both. Once mapped before, the new ones come over the old, in place, and the client's goes on
 * as it was: readers and writers need not know. The fds stay the caller's. 0; -EBADMSG: not such
 * pages, or not sealed against shrinking; others.
 */
int gm_session_pages_map(struct gm_session_pages *pages, int daemon_fd, int client_fd);

/* What the daemon says of a device. 0; -EAGAIN: it is writing at every try. */
int gm_session_pages_device(
	const struct gm_session_pages *pages, uint32_t device, struct gm_page_device *ret);

/* Publishes figures; untracked is filled in here. true: they differ from those before. */
bool gm_session_pages_use(
	struct gm_session_pages *pages, uint32_t device, const struct gm_page_use *use);

/* Lists a buffer, born now: its number for the calls below, never 0. GM_PAGES_UNTRACKED: no row is
 * free, and it is counted instead; the calls below take that too. */
#define GM_PAGES_UNTRACKED UINT32_C(0xffffffff)
uint32_t gm_session_pages_row_add(
	struct gm_session_pages *pages, uint32_t device, uint64_t bytes, const char *tag);
/* The same for a block of the heap, which is counted otherwise. 0: no row is free. */
uint32_t gm_session_pages_row_try(
	struct gm_session_pages *pages, uint32_t device, uint64_t bytes, const char *tag);
/* How many blocks found no row, from now on. */
void gm_session_pages_unlisted(struct gm_session_pages *pages, uint32_t device, uint64_t n);
void gm_session_pages_row_tag(struct gm_session_pages *pages, uint32_t row, const char *tag);
/* device: of the buffer, for the count of untracked ones. */
void gm_session_pages_row_remove(struct gm_session_pages *pages, uint32_t device, uint32_t row);

#endif
