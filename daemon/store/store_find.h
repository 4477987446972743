/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_STORE_STORE_FIND_H
#define GM_DAEMON_STORE_STORE_FIND_H

#include <sys/types.h>

/* Finds the keeper: its socket, the process behind it, and its program. Never waits. */

#define GM_STORE_FIND_WHY 512

/*
 * Connects to the keeper. The result is CLOEXEC. On error, returns a negative errno, and why tells a
 * person the cause and the remedy:
 *   -ENOENT, -ECONNREFUSED   nobody listens there
 *   -EPERM                   the socket, or the process that listens, belongs to another user
 */
int gm_store_find(const char *path, int *ret_socket, pid_t *ret_pid, char why[GM_STORE_FIND_WHY]);

/*
 * Starts a keeper that listens on this path. *ret_pid is a helper process that ends as soon as the keeper, in a
 * session of its own, listens or has failed. The caller waits for the helper (waitpid()).
 */
int gm_store_find_start(const char *program, const char *path, pid_t *ret_pid);

#endif
