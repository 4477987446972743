/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_PATH_H
#define GM_COMMON_PATH_H

#include <stddef.h>
#include <sys/types.h>

#include "common/limits.h"

/* Where daemons listen: the same rules for the daemon, the client library and gpumemctl. */

#define GM_SYSTEM_SOCKET "/run/gpumemd/socket"
#define GM_PATH_BYTES    4096

/*
 * The socket of a user's own daemon: $XDG_RUNTIME_DIR/gpumemd/socket, else /tmp/gpumemd-UID/socket.
 * 0; -ENAMETOOLONG. Makes nothing.
 */
int gm_path_user_socket(uid_t uid, char path[GM_PATH_BYTES]);
/*
 * The one a client talks to when it is told nothing: $GPUMEM_SOCKET; else the user's, if its folder
 * belongs to the user (or root) and something is at that path; else the system's. *ret_why, for
 * messages: "GPUMEM_SOCKET", "the user's daemon", "the system's daemon".
 */
int gm_path_client_socket(char path[GM_PATH_BYTES], const char **ret_why);

#endif
