/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_END_KEEPER_H
#define GM_TESTS_END_KEEPER_H

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

/*
 * The keeper of a test's daemon. A daemon that is stopped while its clients hold something leaves it
 * behind, and so does one that is killed.
 */

/* The keeper that listens in this folder; 0: none does. */
static inline pid_t gm_keeper_in(const char *folder)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct ucred who = {.pid = 0};
	socklen_t n = sizeof(who);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int length = snprintf(address.sun_path, sizeof(address.sun_path), "%s/keeper", folder);
	if (fd < 0 || (size_t)length >= sizeof(address.sun_path) ||
		connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
		getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) < 0)
		who.pid = 0;
	close(fd);
	return who.pid;
}

/* Sends the signal to a keeper, and waits for its end. */
static inline void gm_keeper_signal(pid_t keeper, int number)
{
	struct pollfd p = {.fd = (int)syscall(SYS_pidfd_open, keeper, 0), .events = POLLIN};
	if (p.fd < 0)
		return;
	kill(keeper, number);
	poll(&p, 1, -1);
	close(p.fd);
}

/* Ends the keeper that listens in this folder, if there is one. It takes its files with it. One inside this process goes with
 * the process. */
static inline void gm_keeper_end(const char *folder)
{
	pid_t keeper = gm_keeper_in(folder);
	if (keeper > 0 && keeper != getpid())
		gm_keeper_signal(keeper, SIGTERM);
}

#endif
