/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Packets over a Unix socket, with their fds. When a call returns, every fd that the kernel put
 * into this process is either in the caller's list or closed: none leaks, however odd the packet.
 *
 * MSG_NOSIGNAL keeps a closed socket from killing the program that uses the library. MSG_DONTWAIT
 * keeps the calls from waiting.
 */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#include "common/cleanup.h"
#include "common/system/path.h"
#include "common/wire/seqpacket.h"

/* Since Linux 6.5, on sockets that were set to receive it. Debian 12's headers do not have it. */
#ifndef SCM_PIDFD
#define SCM_PIDFD 0x04
#endif

/* Since Linux 6.16. */
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

_Static_assert(GM_BOUND_SOCKET_PATH_BYTES == sizeof(((struct sockaddr_un *)0)->sun_path) - 1,
	"a path of SOCKET_PATH_BYTES and its end fill the address");

/* Room for a packet's fds, and for the credentials that a socket from elsewhere may be set to
 * deliver: those come first, and would leave no room for the last fds. */
union control_in {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * GM_BOUND_PACKET_FDS) +
		   CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
};

union control_out {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(sizeof(int) * GM_BOUND_PACKET_FDS)];
};

/* Returns true if there was no room for one of the fds. */
static bool seqpacket_take_fds(struct msghdr *message, struct gm_fdlist *list)
{
	bool cut = false;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		if (c->cmsg_level != SOL_SOCKET ||
			(c->cmsg_type != SCM_RIGHTS && c->cmsg_type != SCM_PIDFD))
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (fd < 0)
				continue;
			if (c->cmsg_type == SCM_PIDFD) {
				gm_close(fd);
			} else if (gm_fdlist_add(list, fd) < 0) {
				gm_close(fd);
				cut = true;
			}
		}
	}
	return cut;
}

/*
 * recvmsg() returned 0: is it the end, or a packet of length 0? After the end, the socket is hung
 * up and stays empty. A packet of length 0 right before the end is taken for the end; callers treat
 * both alike.
 */
static int seqpacket_end_or_empty(int socket)
{
	struct pollfd p = {.fd = socket, .events = POLLRDHUP};
	int waiting = 0;

	if (poll(&p, 1, 0) < 0)
		return errno == EINTR ? -EBADMSG : -errno;
	if (!(p.revents & (POLLRDHUP | POLLHUP)))
		return -EBADMSG;
	if (ioctl(socket, FIONREAD, &waiting) == 0 && waiting > 0)
		return -EBADMSG;
	return -EPIPE;
}

int gm_seqpacket_receive(int socket, void *bytes, size_t room, struct gm_conn_packet *ret)
{
	union control_in control;
	struct iovec data = {.iov_base = bytes, .iov_len = room};
	struct msghdr message;
	struct gm_fdlist fds;
	ssize_t n;
	bool cut, reset = false;

	for (;;) {
		message = (struct msghdr){
			.msg_iov = &data,
			.msg_iovlen = 1,
			.msg_control = control.bytes,
			.msg_controllen = sizeof(control.bytes),
		};
		n = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (n >= 0)
			break;
		if (errno == EINTR)
			continue;
		/* The other end closed before it read everything we sent. The kernel reports this
		 * once, before it delivers what the other end had sent. */
		if (errno == ECONNRESET && !reset) {
			reset = true;
			continue;
		}
		return errno == ECONNRESET || errno == ENOTCONN ? -EPIPE : -errno;
	}

	gm_fdlist_init(&fds);
	cut = seqpacket_take_fds(&message, &fds);
	if (n == 0) {
		gm_fdlist_deinit(&fds);
		return seqpacket_end_or_empty(socket);
	}

	ret->n = (size_t)n;
	ret->fds = fds;
	ret->fds_cut = cut || (message.msg_flags & MSG_CTRUNC);
	ret->data_cut = message.msg_flags & MSG_TRUNC;
	return 0;
}

int gm_seqpacket_send(int socket, const void *bytes, size_t n, const int *fds, size_t n_fds)
{
	union control_out control;
	struct iovec data = {.iov_base = (void *)bytes, .iov_len = n};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};

	if (n == 0)
		return -EINVAL; /* the receiver would take it for the end */
	if (n > GM_BOUND_PACKET_BYTES)
		return -EMSGSIZE;
	if (n_fds > GM_BOUND_PACKET_FDS)
		return -E2BIG;
	if (n_fds > 0) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		memset(control.bytes, 0, message.msg_controllen);
		struct cmsghdr *c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
	}

	for (;;) {
		if (sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
			return 0; /* the kernel sends a whole packet or nothing */
		switch (errno) {
		case EINTR:
			continue;
		case ECONNRESET:
		case ECONNREFUSED:
		case ENOTCONN:
		case EPIPE:
			return -EPIPE;
		default:
			return -errno;
		}
	}
}

void gm_seqpacket_set_room(int socket, int bytes)
{
	bytes /= 2; /* the kernel doubles it */
	(void)setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

int gm_seqpacket_connect(const char *path, uint64_t wait_ms, int *ret_socket)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	/* For the kernel, 0 is forever. */
	struct timeval wait = {.tv_sec = (time_t)(wait_ms / 1000),
		.tv_usec = wait_ms ? (suseconds_t)(wait_ms % 1000 * 1000) : 1};
	struct timeval forever = {0};
	size_t length = strlen(path);
	GM_AUTO_FD int fd = -1;

	if (length == 0)
		return -EINVAL; /* to the kernel, "" is an address of its own choice */
	if (length > GM_BOUND_SOCKET_PATH_BYTES)
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, length + 1);

	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	/* Limits how long connect() waits for a place in the listener's queue. */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) < 0)
		return -errno;
	while (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		if (errno == EINTR)
			continue; /* a Unix socket is never half connected */
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	}

	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &forever, sizeof(forever)) < 0)
		return -errno;
	*ret_socket = gm_steal_fd(&fd);
	return 0;
}

bool gm_seqpacket_is_bound(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct stat st;
	/* Of another type, which the kernel refuses to connect to it. */
	GM_AUTO_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || lstat(path, &st) < 0 || !S_ISSOCK(st.st_mode))
		return false;
	if (strlen(path) > GM_BOUND_SOCKET_PATH_BYTES)
		return true;
	strcpy(address.sun_path, path);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return false;
	if (errno != EACCES && errno != EPERM)
		return errno == EPROTOTYPE;
	return gm_path_lock_holder(path) != 0;
}

void gm_seqpacket_refuse_fds(int socket)
{
	int no = 0;

	(void)setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no));
}

bool gm_seqpacket_may_have_fds(int socket)
{
	int passes = 1;
	socklen_t n = sizeof(passes);

	return getsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &passes, &n) < 0 || passes;
}

bool gm_seqpacket_has_fds(int socket)
{
	char byte;
	struct iovec data = {.iov_base = &byte, .iov_len = 1};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};

	/* There is no room for them, which the kernel says. */
	return recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT) >= 0 &&
	       (message.msg_flags & MSG_CTRUNC);
}
