/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_WIRE_FDLIST_H
#define GM_WIRE_FDLIST_H

#include <stddef.h>

#include "common/bounds.h"

/* The file descriptors of one packet. The list owns them. */
struct gm_fdlist {
	int fds[GM_BOUND_PACKET_FDS];
	size_t n;
};
void gm_fdlist_init(struct gm_fdlist *list);
void gm_fdlist_deinit(struct gm_fdlist *list); /* closes the fds that nobody took out */
/* Takes ownership of the fd, except on error: -E2BIG if the list is full, -EBADF if fd is
 * negative. */
int gm_fdlist_add(struct gm_fdlist *list, int fd);
/* Takes the i-th fd out; the caller owns it. Returns -1 if it was taken before or never existed. */
int gm_fdlist_steal(struct gm_fdlist *list, size_t i);

#endif
