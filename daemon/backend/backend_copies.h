/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_BACKEND_BACKEND_COPIES_H
#define GM_DAEMON_BACKEND_BACKEND_COPIES_H

#include <stdatomic.h>
#include <stdint.h>

/*
 * Descriptors that were opened in advance, one for each of a few chunks, so that a lease from the
 * pool need not wait for open(). A new one pushes out an older one. Any thread may call these
 * functions; a chunk's own descriptor must stay open during the calls that name it.
 */
#define GM_BACKEND_COPIES 16

struct gm_backend_copies {
	_Atomic uint64_t slots[GM_BACKEND_COPIES]; /* 0: empty */
};

/* Keeps copy for the chunk whose own descriptor is fd. Takes ownership of copy. */
void gm_backend_copies_put(struct gm_backend_copies *copies, int fd, int copy);
/* Returns the copy that is kept for fd, which the caller then owns, or -1. */
int gm_backend_copies_take(struct gm_backend_copies *copies, int fd);
/* Closes the copy that is kept for fd, if there is one. */
void gm_backend_copies_drop(struct gm_backend_copies *copies, int fd);
/* Closes all. */
void gm_backend_copies_clear(struct gm_backend_copies *copies);

#endif
