/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * A lease from the pool, from the call to the reply with its fd, compared with a bare epoll echo
 * that passes one fd over the same kind of socket. Neither mapping nor giving back is counted: both
 * sides make the same second exchange, which is not timed. Short rounds alternate, so that a busy
 * machine affects both. The first round of each only warms up.
 */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/measure.h"
#include "tests/integration/raw.h"

#define ROUNDS 101
#define CALLS  300

/* ---- the peer: epoll, one recvmsg, one sendmsg with one fd */

struct echo {
	pid_t pid;
	int socket;
};

static void send_fd(int socket, const void *bytes, size_t n, int fd)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec data = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = n};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
	if (fd >= 0) {
		message.msg_control = control.room;
		message.msg_controllen = sizeof(control.room);
		struct cmsghdr *c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	}
	if (sendmsg(socket, &message, MSG_NOSIGNAL) < 0)
		_exit(1);
}

static _Noreturn void echo_loop(int socket, size_t reply_bytes)
{
	char bytes[4096] = {0};
	int memfd = memfd_create("echo", MFD_CLOEXEC);
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = {.events = EPOLLIN};
	if (memfd < 0 || ftruncate(memfd, 2 << 20) != 0 || epoll < 0 ||
		epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event) != 0)
		_exit(1);
	for (;;) {
		if (epoll_wait(epoll, &event, 1, -1) < 0 && errno != EINTR)
			_exit(1);
		struct iovec data = {.iov_base = bytes, .iov_len = sizeof(bytes)};
		struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
		ssize_t n = recvmsg(socket, &message, MSG_DONTWAIT);
		if (n <= 0)
			_exit(0);
		/* The first byte says whether the caller wants an fd. */
		send_fd(socket, bytes, reply_bytes, bytes[0] ? memfd : -1);
	}
}

static void echo_start(struct echo *echo, size_t reply_bytes)
{
	int ends[2];
	GM_REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
	echo->pid = fork();
	GM_REQUIRE(echo->pid >= 0);
	if (echo->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ends[0]);
		echo_loop(ends[1], reply_bytes);
	}
	close(ends[1]);
	echo->socket = ends[0];
}

/* ---- the caller, the same code for both */

static ssize_t receive_fd(int socket, void *bytes, size_t room, int *ret_fd)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int) * 4)];
	} control;
	struct iovec data = {.iov_base = bytes, .iov_len = room};
	struct msghdr message = {.msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = control.room,
		.msg_controllen = sizeof(control.room)};
	ssize_t n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);
	*ret_fd = -1;
	if (n > 0 && c && c->cmsg_type == SCM_RIGHTS)
		memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
	return n;
}

static double timed_call(
	int socket, const void *request, size_t n, void *reply, size_t room, ssize_t *ret_n)
{
	int fd;
	uint64_t start = gm_monotonic_ns();
	if (send(socket, request, n, MSG_NOSIGNAL) != (ssize_t)n)
		GM_FAIL("send: %s", strerror(errno));
	*ret_n = receive_fd(socket, reply, room, &fd);
	uint64_t end = gm_monotonic_ns();
	GM_REQUIRE(fd >= 0);
	close(fd);
	return (double)(end - start) / 1000.0;
}

static void lease_round(struct gm_raw *raw, double *samples, size_t *ret_request, size_t *ret_reply)
{
	uint8_t request[256];
	for (size_t i = 0; i < CALLS; i++) {
		Gm__Wire__Lease lease = GM__WIRE__LEASE__INIT;
		lease.bytes = GM_CHUNK_MIN;
		Gm__Wire__Packet *p = GM_RAW_PACKET(LEASE, lease, &lease);
		p->id = raw->next_id++;
		p->fds_seen = raw->fds_seen;
		size_t n;
		ssize_t got;
		GM_REQUIRE(gm_wire_pack(p, request, sizeof(request), &n) == 0);
		samples[i] = timed_call(
			raw->socket, request, n, raw->bytes, GM_BOUND_PACKET_BYTES, &got);
		GM_REQUIRE(got > 0);
		GM_REQUIRE(gm_wire_unpack(&raw->arena, raw->bytes, (size_t)got, &raw->packet) == 0);
		GM_REQUIRE_EQ(raw->packet->body_case, GM__WIRE__PACKET__BODY_LEASE_REPLY);
		raw->fds_seen += raw->packet->fds;
		*ret_request = n;
		*ret_reply = (size_t)got;
		GM_REQUIRE_EQ(
			gm_raw_return(raw, raw->packet->lease_reply->lease, NULL, 0), GPUMEM_OK);
	}
}

static void echo_round(struct echo *echo, double *samples, size_t request_bytes)
{
	uint8_t request[256] = {1}, plain[256] = {0}, reply[4096];
	ssize_t got;
	int fd;
	for (size_t i = 0; i < CALLS; i++) {
		samples[i] = timed_call(
			echo->socket, request, request_bytes, reply, sizeof(reply), &got);
		GM_REQUIRE(send(echo->socket, plain, request_bytes, MSG_NOSIGNAL) > 0);
		GM_REQUIRE(receive_fd(echo->socket, reply, sizeof(reply), &fd) > 0 && fd < 0);
	}
}

static double all_leases[ROUNDS * CALLS], all_echoes[ROUNDS * CALLS];

int main(void)
{
	struct gm_daemon daemon;
	struct gm_raw raw;
	struct echo echo;
	double ratio[ROUNDS], round[CALLS];
	size_t request_bytes, reply_bytes;
	gm_daemon_start(&daemon, NULL);
	gm_raw_join(&raw, &daemon);
	lease_round(&raw, round, &request_bytes, &reply_bytes); /* also tells the sizes */
	echo_start(&echo, reply_bytes);
	echo_round(&echo, round, request_bytes);
	for (size_t r = 0; r < ROUNDS; r++) {
		double *leases = all_leases + r * CALLS, *echoes = all_echoes + r * CALLS;
		echo_round(&echo, echoes, request_bytes);
		lease_round(&raw, leases, &request_bytes, &reply_bytes);
		ratio[r] = gm_median(leases, CALLS) / gm_median(echoes, CALLS);
	}
	size_t n = ROUNDS * CALLS;
	gm_print_title(
		"A lease answered from the pool, against a bare epoll echo that passes one fd");
	gm_print_ratio("call to reply with its fd, p50", gm_percentile(all_leases, n, 50),
		gm_percentile(all_echoes, n, 50), "us", 1.4);
	gm_print_ratio("call to reply with its fd, p99", gm_percentile(all_leases, n, 99),
		gm_percentile(all_echoes, n, 99), "us", -1);
	printf("  %-44s %10.2f\n", "median of the ratios of each round's p50",
		gm_median(ratio, ROUNDS));
	gm_raw_goodbye(&raw);
	gm_raw_close(&raw);
	kill(echo.pid, SIGKILL);
	gm_daemon_stop(&daemon);
	return 0;
}
