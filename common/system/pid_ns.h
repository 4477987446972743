/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_PID_NS_H
#define GM_PID_NS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * Pid namespaces, as containers have them. A process in a container may have any uid of the machine, also 0. So where a uid
 * alone would give it the right to other users' memory, it must be in the pid namespace of the one that asks.
 */

/* How many numbers the NSpid line of a /proc/PID/status, or of a pidfd's fdinfo, has: one for each
 * nested pid namespace. 0 without such a line. */
size_t gm_pid_ns_depth(const char *status);

/*
 * Whether a process is in the pid namespace of this one: 1 if it is, or if there is no /proc; 0 if it is not, or if /proc hides
 * it; a negative errno if this process cannot find out now, for want of file descriptors for example. Only 1 is a reason to trust.
 * depth: as in the fdinfo of its pidfd, or 0 if that is not known. It saves reading the process's list of groups, which may be long.
 */
int gm_pid_ns_is_own(pid_t pid, size_t depth);

#endif
