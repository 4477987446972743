/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_PAGES_H
#define GM_DAEMON_PAGES_H

#include <stdint.h>

#include "common/wire/page.h"
#include "daemon/core/core.h"

/* The daemon's side of a client's two shared pages (common/wire/page.h). */
struct gm_pages {
	struct gm_page_daemon *daemon; /* mapped here, read-only for everybody else */
	int daemon_fd; /* for the client; -1 once handed over: the daemon has its mapping */
	int client_fd;
	uint32_t version; /* that the client knows */
	uint32_t devices;
};

void gm_pages_init(struct gm_pages *pages); /* empty */
/* Makes both pages. Returns 0, or a negative errno (-EMFILE, -ENOMEM, …) and leaves pages empty. */
int gm_pages_open(struct gm_pages *pages, uint32_t version, uint64_t generation, uint64_t session,
	uint32_t devices);
void gm_pages_deinit(struct gm_pages *pages);
/* Opens the client's page for the client, which takes ownership of the fd. */
/* Sets the session of pages that were opened for session 0, before anybody else has them. */
int gm_pages_set_session(struct gm_pages *pages, uint64_t session);
int gm_pages_share(const struct gm_pages *pages, int *ret_fd);
/* Whether a process may still have the client's page, open or mapped. A program that called exec has
 * not. Never waits. */
bool gm_pages_in_use(const struct gm_pages *pages);

/* Writes the figures of a device, which are the same for all clients, and what this client holds,
 * may hold and could get of it. */
void gm_pages_write_device(struct gm_pages *pages, uint32_t device,
	const struct gm_device_figures *figures, uint64_t held, uint64_t max, uint64_t room);
void gm_pages_write_held(struct gm_pages *pages, uint32_t device, uint64_t held, uint64_t room);

/* Events of a device: their sequence numbers, 0: there is no such event. */
struct gm_pages_event {
	uint64_t pressure, reclaim, limits, evict;
	bool urgent;     /* of the reclaim */
	uint64_t wanted; /* by the reclaim; 0: everything unused */
	uint64_t spill;  /* of evictable buffers, by the reclaim */
	uint64_t max;    /* of the limits */
	uint32_t row;    /* of the buffer that is to move; 0: all */
	bool restore;    /* back */
};
/* Writes events with the figures that they are about. */
void gm_pages_write_event(struct gm_pages *pages, uint32_t device,
	const struct gm_device_figures *figures, const struct gm_pages_event *event);

/*
 * Reads what the client says about its use of a device, bounded by what the daemon knows: in_use,
 * cached and slack together are held, and there are no more buffers than fit into held. Returns 0,
 * -ENODATA if the client never said anything, -EAGAIN if the client is writing or died while it
 * was, or another negative errno.
 */
int gm_pages_read_use(
	const struct gm_pages *pages, uint32_t device, uint64_t held, struct gm_page_use *ret);

/* A buffer that the client tracks on its page. */
struct gm_pages_row {
	uint32_t number; /* of the row, from 1 on */
	uint32_t device; /* that the memory is charged on */
	uint32_t home;   /* that it comes back to, if it is in host memory; otherwise the same */
	uint32_t place;  /* GM_PAGE_PLACE_… */
	uint64_t bytes;
	uint64_t born_ns;
	uint64_t used_ns; /* not before born_ns, and not after now */
	uint32_t stack;   /* of gm_pages_read_stacks(); 0: not known */
	char tag[GM_BOUND_NAME_BYTES + 1];
	char type[GM_BOUND_KIND_BYTES + 1];
	char precision[GM_BOUND_KIND_BYTES + 1];
	struct gm_page_growth growth; /* used is at most bytes */
};
/* Rows of a page as they were read together. Begins as {.valid = false}, for one page. */
#define GM_PAGES_ROWS 64
struct gm_pages_rows {
	bool valid;
	uint32_t first;
	struct gm_page_row rows[GM_PAGES_ROWS];
	struct gm_page_note notes[GM_PAGES_ROWS];
};
_Static_assert(GM_BOUND_TRACKED_BUFFERS % GM_PAGES_ROWS == 0, "the table has whole blocks of rows");
/*
 * Finds the next tracked buffer, in row *at or after it, and moves *at behind it. Skips rows that
 * cannot be true, or that the client is writing. A tag, type or precision that is not printable becomes
 * "". held says how much the client holds of each device. Returns 1 if there is a buffer, 0 if there are
 * no more, or a negative errno. -EAGAIN: none is in the next GM_PAGES_ROWS rows, and *at is behind those. Thus a call
 * takes 5 system calls at most, whatever is on the page.
 */
int gm_pages_next_row(const struct gm_pages *pages, struct gm_pages_rows *rows,
	const uint64_t held[GM_BOUND_DEVICES], uint64_t now_ns, uint32_t *at,
	struct gm_pages_row *ret);

/*
 * Reads up to GM_PAGES_STACKS call stacks, or GM_PAGES_MODULES modules, from this index on. Blocks that
 * are free, that the client is writing, or that cannot be true have no frames, or neither path nor id.
 * A path is printable, or "". Returns how many blocks there were, 0 at the end, or a negative errno.
 */
#define GM_PAGES_STACKS  64
#define GM_PAGES_MODULES 16
int gm_pages_read_stacks(const struct gm_pages *pages, uint32_t first,
	struct gm_page_stack ret_stacks[GM_PAGES_STACKS]);
int gm_pages_read_modules(const struct gm_pages *pages, uint32_t first,
	struct gm_page_module ret_modules[GM_PAGES_MODULES]);

#endif
