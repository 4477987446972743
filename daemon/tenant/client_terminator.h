/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_TENANT_CLIENT_TERMINATOR_H
#define GM_DAEMON_TENANT_CLIENT_TERMINATOR_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/net/identity.h"

/*
 * Ends processes: sends SIGTERM, and SIGKILL if the process still lives after a grace period. It
 * signals the pidfd, so it can never hit another process. It does not report the end of a process:
 * the client's own pidfd does.
 */
struct gm_client_terminator;

int gm_client_terminator_new(uv_loop_t *loop, struct gm_client_terminator **ret_terminator);
/* Sends no more signals. Frees the memory in the loop's next turn. terminator may be NULL. */
void gm_client_terminator_free(struct gm_client_terminator *terminator);

/*
 * Ends a process. With grace_ns 0 it sends SIGKILL at once. Does nothing if the process is being
 * ended already. Returns 0, -EPERM if the daemon may not signal it, -ESRCH if it has ended, or
 * -ENOMEM.
 */
int gm_client_terminator_end(
	struct gm_client_terminator *terminator, struct gm_identity *identity, uint64_t grace_ns);

/* Whether the daemon has CAP_KILL: whether it may signal processes of any user. */
bool gm_client_terminator_may(void);

#endif
