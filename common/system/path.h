/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_SYSTEM_PATH_H
#define GM_SYSTEM_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/bounds.h"

/* Where daemons listen: the same rules for the daemon, the client library and gpumemctl. */

#define GM_SYSTEM_FOLDER "/run/gpumemd"
#define GM_SYSTEM_SOCKET GM_SYSTEM_FOLDER "/socket"
#define GM_SYSTEM_KEEPER GM_SYSTEM_FOLDER "/keeper"
#define GM_PATH_BYTES    4096
/* As Debian's SYS_UID_MAX + 1: below are root and system users, whose daemon listens on the system's socket. */
#define GM_PATH_USER_UIDS 1000

/*
 * The socket where a user's own daemon listens: $XDG_RUNTIME_DIR/gpumemd/socket, or /tmp/gpumemd-UID/socket if
 * that variable is not set. Creates nothing. Returns -ENAMETOOLONG if the path does not fit.
 */
int gm_path_user_socket(uid_t uid, char path[GM_PATH_BYTES]);
/*
 * Returns whether there is a socket of the user's own daemon that can be trusted: its folder belongs to the
 * user or to root, and nobody else can write there. Looks at gm_path_user_socket() first, then at
 * /run/user/UID/gpumemd/socket and /tmp/gpumemd-UID/socket: the daemon may have been started with another
 * XDG_RUNTIME_DIR. A daemon that restarts may have removed its socket: that of its keeper counts as well. If so, fills
 * in path.
 */
bool gm_path_find_user_socket(uid_t uid, char path[GM_PATH_BYTES]);
/*
 * The socket that a client uses by default. The first of these that applies:
 *   1. $GPUMEM_SOCKET;
 *   2. the user's socket: see gm_path_find_user_socket();
 *   3. the system's socket.
 * *ret_why names the choice for messages: "GPUMEM_SOCKET", "the user's daemon" or "the system's
 * daemon".
 */
int gm_path_client_socket(char path[GM_PATH_BYTES], const char **ret_why);
/*
 * What to add to a message that nobody answers at the socket that was chosen for this reason: what is
 * with the other one of the two, the user's and the system's. "; also looked at /run/user/7/gpumemd/socket (the user's daemon): not
 * there". Empty if the choice was neither. Returns text.
 */
#define GM_PATH_OTHER_BYTES 512
const char *gm_path_other(const char *why, char text[GM_PATH_OTHER_BYTES]);
/*
 * The administrators' socket of the daemon that listens on `socket`: "admin" in the same folder if
 * that is called "socket", otherwise its name with ".admin" added. Returns -ENAMETOOLONG if a socket
 * cannot have that path.
 */
int gm_path_admin_socket(const char *socket, char path[GM_PATH_BYTES]);
/* The keeper's socket of that daemon: "keeper", or its name with ".keeper" added. It may be too long
 * to be the address of a socket. -ENAMETOOLONG: it does not fit here. */
int gm_path_keeper_socket(const char *socket, char path[GM_PATH_BYTES]);
/*
 * Returns the pid of the process that holds the lock of the file beside the socket, whose name ends in .lock: of the daemon or the
 * keeper that has made the socket, even if somebody has removed the socket since. 0: no process holds the lock. -1: a process may
 * hold it, and this one cannot tell which: a container, for example, does not see the locks of the host.
 */
pid_t gm_path_lock_holder(const char *socket);

#endif
