/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_FDLIST_H
#define GM_COMMON_FDLIST_H

#include <stddef.h>

#include "common/limits.h"

/* A set of file descriptors that travels with one packet. It owns what is in it. */
struct gm_fdlist {
	int fds[GM_LIMIT_PACKET_FDS];
	size_t n;
};
void gm_fdlist_init(struct gm_fdlist *list);
void gm_fdlist_deinit(struct gm_fdlist *list); /* closes what is left */
/* Takes the fd. -E2BIG: full; -EBADF: negative; the fd stays the caller's. */
int gm_fdlist_add(struct gm_fdlist *list, int fd);
/* The fd at place i is the caller's from now on; -1 if it was taken before or is none. */
int gm_fdlist_steal(struct gm_fdlist *list, size_t i);

#endif
