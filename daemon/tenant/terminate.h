/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_TERMINATE_H
#define GM_DAEMON_TERMINATE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/net/identity.h"

/*
 * Ends processes: SIGTERM, and SIGKILL when the grace has passed and the process lives. By its
 * pidfd, so that no other process can ever be meant. That it has ended is for its pidfd to tell.
 */
struct gm_terminator;

int gm_terminator_new(uv_loop_t *loop, struct gm_terminator **ret_terminator);
/* Its handle; the loop must turn once more. Who was sent SIGTERM is sent nothing further. */
void gm_terminator_free(struct gm_terminator *terminator);

/* grace_ns 0: SIGKILL at once. 0; -EPERM: the daemon has no right to; -ESRCH: it has ended;
 * -ENOMEM. One that is being ended already is left to it. */
int gm_terminator_end(
	struct gm_terminator *terminator, struct gm_identity *identity, uint64_t grace_ns);

/* Whether the daemon may send signals to processes of any user (root with CAP_KILL, or that right
 * alone). */
bool gm_terminator_may(void);

#endif
