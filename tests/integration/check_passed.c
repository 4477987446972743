/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * A client sends the daemon a descriptor whose last close waits for an hour: a TCP socket that
 * is orphaned with data nobody reads. Whoever does that close waits, and it must not be the daemon's
 * loop. Each test runs on this kernel, and once more as on a kernel that cannot refuse descriptors:
 * the program runs itself with --old-kernel before the daemon, and a seccomp filter hides the socket
 * option.
 */

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/integration/raw.h"
#include "tests/tap.h"

#define PASSRIGHTS 83 /* SO_PASSRIGHTS, since Linux 6.16 */
#define HOUR_S     3600

#define FIELD(name)      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, name))
#define UNLESS(value, n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, (n))

static void hide_passrights(void)
{
	struct sock_filter filter[] = {
		FIELD(nr),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setsockopt, 1, 0),
		UNLESS(SYS_getsockopt, 5),
		FIELD(args[1]),
		UNLESS(SOL_SOCKET, 3),
		FIELD(args[2]),
		UNLESS(PASSRIGHTS, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOPROTOOPT),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(*filter), filter};

	GM_REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	GM_REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static char self[512];
static const char *const old_kernel[] = {self, "--old-kernel", NULL};

static void start(struct gm_daemon *daemon, int old)
{
	gm_daemon_start(daemon, &(struct gm_daemon_options){.runner = old ? old_kernel : NULL});
}

/* A TCP connection to this process itself that is full, whose last close waits for an hour. Returns
 * the end that waits. */
static int orphaned_socket(int *ret_other)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t n = sizeof(address);
	static char bytes[1 << 16];
	struct linger linger = {1, HOUR_S};

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int listener = socket(AF_INET, SOCK_STREAM, 0), end = socket(AF_INET, SOCK_STREAM, 0);
	GM_REQUIRE(listener >= 0 && end >= 0);
	GM_REQUIRE(bind(listener, (struct sockaddr *)&address, n) == 0 && listen(listener, 1) == 0);
	GM_REQUIRE(getsockname(listener, (struct sockaddr *)&address, &n) == 0);
	GM_REQUIRE(connect(end, (struct sockaddr *)&address, sizeof(address)) == 0);
	*ret_other = accept(listener, NULL, NULL);
	GM_REQUIRE(*ret_other >= 0);
	close(listener);
	while (send(end, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	GM_REQUIRE(setsockopt(end, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0);
	return end;
}

static void *close_here(void *ctx)
{
	close((int)(intptr_t)ctx);
	return NULL;
}

/* Sends a packet with the descriptor, if the kernel lets it, and closes it here. */
static void pass(int socket, int fd, size_t bytes)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	char byte = 'x';
	struct iovec data = {&byte, bytes};
	struct msghdr message = {.msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes)};

	memset(&control, 0, sizeof(control));
	CMSG_FIRSTHDR(&message)->cmsg_level = SOL_SOCKET;
	CMSG_FIRSTHDR(&message)->cmsg_type = SCM_RIGHTS;
	CMSG_FIRSTHDR(&message)->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &fd, sizeof(fd));
	GM_REQUIRE(sendmsg(socket, &message, MSG_NOSIGNAL) >= 0 || errno == EPERM ||
		   errno == EPIPE || errno == ENOTSOCK);

	/* The last copy should be the daemon's. If it is this one after all, the thread waits, and ends
	 * with the process. */
	pthread_t thread;
	GM_REQUIRE(pthread_create(&thread, NULL, close_here, (void *)(intptr_t)fd) == 0);
	GM_REQUIRE(pthread_detach(thread) == 0);
}

/* The daemon serves somebody else after it has seen the end of the peer. */
static void expect_alive(struct gm_daemon *daemon, struct gm_raw *user)
{
	struct gm_raw_lease lease;

	GM_UNTIL(gm_figures_now(daemon).clients == 1);
	GM_REQUIRE_EQ(gm_raw_lease(user, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_give_back(user, &lease), GPUMEM_OK);
	gm_raw_goodbye(user);
	gm_raw_close(user);
	gm_daemon_stop(daemon);
}

enum way { READ, UNREAD, EMPTY, EVENTS, WAYS };

START_TEST(a_descriptor_whose_close_waits_does_not_stop_the_daemon)
{
	struct gm_daemon daemon;
	struct gm_raw user, peer;
	enum way way = _i % WAYS;
	int other;

	start(&daemon, _i / WAYS);
	gm_raw_join(&user, &daemon);
	gm_raw_join(&peer, &daemon);
	int fd = orphaned_socket(&other);
	if (way == READ)
		pass(peer.socket, fd, 1);
	if (way == EMPTY)
		pass(peer.socket, fd, 0);
	if (way == EVENTS)
		pass(peer.wakeup, fd, 1);
	if (way == UNREAD) {
		/* The daemon refuses the first packet, and never reads the second. */
		gm_raw_send_bytes(&peer, "\xff", 1, NULL, 0);
		pass(peer.socket, fd, 1);
	}
	gm_raw_close(&peer);
	expect_alive(&daemon, &user);
	close(other);
}
END_TEST

/* The refusal closes a connection on which something lies. */
START_TEST(so_it_is_with_a_connection_that_is_refused)
{
	struct gm_daemon daemon;
	struct gm_raw user, peer;
	int other;

	gm_daemon_start(
		&daemon, &(struct gm_daemon_options){
				 .config = GM_DAEMON_CONFIG_WITH("connections_per_uid = 4\n", "1G"),
				 .runner = _i ? old_kernel : NULL});
	gm_raw_join(&user, &daemon);
	struct gm_raw more[3];
	for (size_t i = 0; i < 3; i++)
		gm_raw_join(&more[i], &daemon);
	GM_REQUIRE(gm_raw_connect(&peer, daemon.socket) == 0);
	int fd = orphaned_socket(&other);
	pass(peer.socket, fd, 1);
	GM_REQUIRE(gm_raw_receive(&peer));
	GM_REQUIRE_EQ(peer.packet->body_case, GM__WIRE__PACKET__BODY_FAILURE);
	GM_REQUIRE(!gm_raw_receive(&peer));
	gm_raw_close(&peer);

	struct gm_raw_lease lease;
	GM_REQUIRE_EQ(gm_raw_lease(&user, 0, GM_CHUNK_MIN, &lease), GPUMEM_OK);
	GM_REQUIRE_EQ(gm_raw_give_back(&user, &lease), GPUMEM_OK);
	for (size_t i = 0; i < 3; i++)
		gm_raw_close(&more[i]);
	gm_raw_close(&user);
	gm_daemon_stop(&daemon);
	close(other);
}
END_TEST

/* Whether the kernel refuses to send the packet. If not, the daemon must say what was wrong. */
static bool refused(struct gm_raw *peer, const void *bytes, size_t n, const int *fds, size_t n_fds)
{
	int r = gm_raw_send_bytes(peer, bytes, n, fds, n_fds);

	if (r == -EPERM)
		return true;
	GM_REQUIRE_EQ(r, 0);
	GM_REQUIRE(gm_raw_receive(peer));
	GM_REQUIRE_EQ(peer->packet->body_case, GM__WIRE__PACKET__BODY_FAILURE);
	GM_REQUIRE_EQ(peer->packet->failure->status, GPUMEM_E_PROTOCOL);
	GM_REQUIRE(!gm_raw_receive(peer));
	return false;
}

START_TEST(fds_sent_by_a_client_are_an_error_and_closed)
{
	static const uint8_t request[] = {0x08, 0x01, 0x5a, 0x00};
	struct gm_daemon daemon;
	struct gm_raw user, peer;
	int fds[GM_BOUND_PACKET_FDS], ends[2];
	char c;

	start(&daemon, _i);
	gm_raw_join(&user, &daemon);
	size_t before = gm_daemon_fds(&daemon);
	for (size_t round = 0; round < 2; round++) {
		GM_REQUIRE(pipe(ends) == 0);
		for (size_t i = 0; i < GM_BOUND_PACKET_FDS; i++)
			fds[i] = ends[1];
		gm_raw_join(&peer, &daemon);
		/* A request, and a packet that is none at all. */
		bool no =
			round ? refused(&peer, "\xff", 1, fds, 1)
			      : refused(&peer, request, sizeof(request), fds, GM_BOUND_PACKET_FDS);
		GM_REQUIRE(!(no && _i));
		gm_raw_close(&peer);
		close(ends[1]);
		/* The daemon kept no copy of the pipe's writing end: reading finds the end. */
		GM_REQUIRE(read(ends[0], &c, 1) == 0);
		close(ends[0]);
	}
	GM_UNTIL(gm_daemon_fds(&daemon) <= before);
	gm_raw_close(&user);
	gm_daemon_stop(&daemon);
}
END_TEST

int main(int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[1], "--old-kernel") == 0) {
		hide_passrights();
		execvp(argv[2], argv + 2);
		return 127;
	}

	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	GM_REQUIRE(n > 0);
	Suite *suite = suite_create("passed");
	TCase *tc = tcase_create("passed");
	tcase_set_timeout(tc, 20);
	tcase_add_loop_test(
		tc, a_descriptor_whose_close_waits_does_not_stop_the_daemon, 0, 2 * WAYS);
	tcase_add_loop_test(tc, so_it_is_with_a_connection_that_is_refused, 0, 2);
	tcase_add_loop_test(tc, fds_sent_by_a_client_are_an_error_and_closed, 0, 2);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
