/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_PAGES_H
#define GM_DAEMON_PAGES_H

#include <stdint.h>

#include "common/page.h"
#include "daemon/core/core.h"

/* A client's two shared pages (common/page.h), the daemon's side of them. */
struct gm_pages {
	struct gm_page_daemon *daemon; /* mapped here, read-only for everybody else */
	/* To be handed to the client; -1 once it was taken out for that: the mapping is enough. */
	int daemon_fd;
	int client_fd;
	uint32_t devices;
};

void gm_pages_init(struct gm_pages *pages); /* empty */
/* Makes both. -EMFILE, -ENOMEM, others. */
int gm_pages_open(struct gm_pages *pages, uint64_t generation, uint64_t session, uint32_t devices);
void gm_pages_deinit(struct gm_pages *pages);

/* What everybody is told of a device, and what this client holds on it. */
void gm_pages_write_device(struct gm_pages *pages, uint32_t device,
	const struct gm_device_figures *figures, uint64_t held, uint64_t max);
void gm_pages_write_held(struct gm_pages *pages, uint32_t device, uint64_t held);

/*
 * What the client says of a device. Nothing is believed past what the daemon knows: in_use, cached
 * and together no more than held, the count of buffers no more than held could hold. 0; -EAGAIN:
 * the client is writing, or died while it was; others.
 */
int gm_pages_read_use(
	const struct gm_pages *pages, uint32_t device, uint64_t held, struct gm_page_use *ret);

/*
 * The next tracked buffer in row *at or behind it; *at is then the row behind that one. Rows that
 * make no sense are passed over; a tag that is no name is "". 1: one found, 0: no more, or a
 * negative errno. held: what the client holds per device.
 */
struct gm_pages_row {
	uint32_t device;
	uint64_t bytes;
	uint64_t born_ns;
	char tag[GM_LIMIT_NAME_BYTES + 1];
};
int gm_pages_next_row(const struct gm_pages *pages, const uint64_t held[GM_LIMIT_DEVICES],
	uint64_t now_ns, uint32_t *at, struct gm_pages_row *ret);

#endif
