/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_NET_LISTENER_SOCKET_H
#define GM_DAEMON_NET_LISTENER_SOCKET_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/system/path.h"

/* The listening socket: its path, and who may connect to it. */
struct gm_listener_socket {
	int socket;
	char path[GM_PATH_BYTES];
	bool own; /* this daemon made the socket; the next three are about that */
	int lock;
	dev_t device;
	ino_t inode;
};

#define GM_LISTENER_SOCKET_WHY 512

/*
 * Makes the socket at path. If path is "", takes the default for the user who runs the daemon
 * (/run/gpumemd/socket for root and system users, otherwise the user's own) and makes its folder,
 * too. If group is "", leaves the group as it is.
 *
 * On error, returns a negative errno, and why says what is wrong. -EADDRINUSE: a live daemon
 * listens there, and did so for a second. A socket that a dead daemon left is replaced. Of two daemons that start at once,
 * only one gets the path.
 */
int gm_listener_socket_open(struct gm_listener_socket *endpoint, const char *path, mode_t mode,
	const char *group, char why[GM_LISTENER_SOCKET_WHY]);
/*
 * Makes the administrators' socket beside another one that this daemon made, whose lock covers both.
 * Only root, this user and the group may connect; if group is -1 or this user may not give files to
 * it, root and this user only. Fails like gm_listener_socket_open().
 */
int gm_listener_socket_open_admin(struct gm_listener_socket *endpoint,
	const struct gm_listener_socket *beside, gid_t group, char why[GM_LISTENER_SOCKET_WHY]);
/* Takes a socket from the service manager. It is not removed at the end. */
int gm_listener_socket_adopt(
	struct gm_listener_socket *endpoint, int socket, char why[GM_LISTENER_SOCKET_WHY]);
/* Stops listening, and removes the socket and its lock if this daemon made them. */
void gm_listener_socket_close(struct gm_listener_socket *endpoint);

#endif
