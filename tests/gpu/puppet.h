/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_PUPPET_H
#define GM_TESTS_PUPPET_H

#include <stdbool.h>
#include <sys/types.h>

#include "tests/gpu/puppet_call.h"

/*
 * A process that makes driver calls as it is told, one at a time, and says what came of each. A
 * test is then one sequence of calls in several processes, written down in one place; the process
 * that runs the test uses no CUDA itself, so that it can hold an fd as one that never did, fork
 * puppets at any time, and kill them.
 */

struct puppet {
	pid_t pid;
	int socket;
};

/* In main(), before all else: in a puppet's process this does not return. */
void puppet_main(int argc, char **argv);
/* Ends the test program if it cannot. uid: whose process it shall be; 0: as this one. */
struct puppet puppet_start(uid_t uid);
/* One call. fd: sent along, stays the caller's; -1: none. ret_fd may be NULL. Ends the test program
 * if the puppet died. */
struct puppet_answer puppet_do(
	struct puppet *puppet, const struct puppet_call *call, int fd, int *ret_fd);
/* Starts a call that may take long; puppet_finish() waits for its answer, puppet_finished() looks
 * whether it is there. */
void puppet_begin(struct puppet *puppet, const struct puppet_call *call);
bool puppet_finished(struct puppet *puppet);
struct puppet_answer puppet_finish(struct puppet *puppet);
void puppet_kill(struct puppet *puppet); /* SIGKILL, and waits for its end */
void puppet_stop(struct puppet *puppet); /* the end of its input; waits for its end */

#define PUPPET(p, op_, ...) \
	puppet_do((p), &(struct puppet_call){.op = PUPPET_##op_, __VA_ARGS__}, -1, NULL)

/* The driver's name for a result. */
const char *puppet_result_name(int result);

#endif
