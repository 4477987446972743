/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_LAUNCH_H
#define GM_TESTS_LAUNCH_H

#include "tests/integration/harness.h"

/*
 * The program, the arguments and the environment of a daemon that the harness starts.
 *
 * They are made before the fork. The child of a process with threads must not allocate: with the
 * address sanitizer, another thread may have held malloc's lock at that moment, and the child waits
 * for it for ever.
 */
struct gm_launch;
struct gm_launch *gm_launch_new(const struct gm_daemon *daemon);
void gm_launch_free(struct gm_launch *launch);

/* In the child: becomes the daemon. It ends with its parent, whose pid that is. */
_Noreturn void gm_launch_exec(struct gm_launch *launch, pid_t parent);

#endif
