/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_ENDPOINT_H
#define GM_DAEMON_ENDPOINT_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/path.h"

/* The listening socket: where it is, whether it is free, and who may connect. */
struct gm_endpoint {
	int socket;
	char path[GM_PATH_BYTES];
	/* Of a socket that we made. */
	bool own;
	int lock;
	dev_t device;
	ino_t inode;
};

#define GM_ENDPOINT_WHY 512

/*
 * Makes the socket at path. path "": the place for who runs this (/run/gpumemd/socket for root and
 * system users, else the user's own); then its folder is made, too. group "": left as it is.
 *
 * A path that a live daemon listens on is refused (-EADDRINUSE), one that a dead one left is taken
 * over; two daemons that start at once never both get it. why says what was wrong.
 */
int gm_endpoint_open(struct gm_endpoint *endpoint, const char *path, mode_t mode, const char *group,
	char why[GM_ENDPOINT_WHY]);
/* Takes a socket that was passed to us; it is not removed at the end. */
int gm_endpoint_adopt(struct gm_endpoint *endpoint, int socket, char why[GM_ENDPOINT_WHY]);
/* Stops listening and removes what was made. */
void gm_endpoint_close(struct gm_endpoint *endpoint);

#endif
