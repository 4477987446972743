/* SPDX-License-Identifier: Apache-2.0 */

/* Packets and their fds over a real socket, against a sender that keeps to nothing. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <linux/sockios.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/wire/seqpacket.h"
#include "tests/bound.h"
#include "tests/scratch.h"
#include "tests/tap.h"

static int near, far; /* the two ends; near is ours, far the enemy's */
static struct gm_conn_packet in;
static uint8_t room[GM_BOUND_PACKET_BYTES];

static void setup(void)
{
	int ends[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	near = ends[0];
	far = ends[1];
	/* A packet longer than the bound must be able to leave. */
	int large = 4 << 20;
	setsockopt(far, SOL_SOCKET, SO_SNDBUF, &large, sizeof(large));
}

static void teardown(void)
{
	if (near >= 0)
		close(near);
	if (far >= 0)
		close(far);
}

static int count_fds(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int n = 0;

	ck_assert_ptr_nonnull(folder);
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

/* What no call of ours would send. */
static ssize_t send_raw(int socket, const void *bytes, size_t n, const int *fds, size_t n_fds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(253 * sizeof(int))];
	} control;
	struct iovec data = {.iov_base = (void *)bytes, .iov_len = n};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};

	if (n_fds > 0) {
		memset(&control, 0, sizeof(control));
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
	}
	return sendmsg(socket, &message, MSG_NOSIGNAL);
}

static int receive(void)
{
	return gm_seqpacket_receive(near, room, sizeof(room), &in);
}

START_TEST(a_packet_arrives_whole_with_its_fds_in_order)
{
	int fds[3] = {open("/dev/null", O_RDONLY | O_CLOEXEC),
		open("/dev/zero", O_RDONLY | O_CLOEXEC), open("/", O_RDONLY | O_CLOEXEC)};
	struct stat sent, got;

	ck_assert_int_eq(gm_seqpacket_send(far, "first", 5, fds, 3), 0);
	ck_assert_int_eq(gm_seqpacket_send(far, "second", 6, NULL, 0), 0);
	ck_assert_int_eq(receive(), 0);
	ck_assert_uint_eq(in.n, 5);
	ck_assert_int_eq(memcmp(room, "first", 5), 0);
	ck_assert_uint_eq(in.fds.n, 3);
	ck_assert(!in.fds_cut && !in.data_cut);
	for (size_t i = 0; i < 3; i++) {
		ck_assert_int_eq(fstat(fds[i], &sent), 0);
		ck_assert_int_eq(fstat(in.fds.fds[i], &got), 0);
		ck_assert(sent.st_dev == got.st_dev && sent.st_ino == got.st_ino);
		ck_assert_int_eq(fcntl(in.fds.fds[i], F_GETFD), FD_CLOEXEC);
		close(fds[i]);
	}
	gm_fdlist_deinit(&in.fds);
	ck_assert_int_eq(receive(), 0);
	ck_assert_uint_eq(in.n, 6);
	ck_assert_uint_eq(in.fds.n, 0);
}
END_TEST

START_TEST(nothing_to_read_is_no_reason_to_wait)
{
	ck_assert_int_eq(receive(), -EAGAIN);
}
END_TEST

START_TEST(no_room_to_send_is_no_reason_to_wait)
{
	static uint8_t bytes[GM_BOUND_PACKET_BYTES];
	int sent = 0, r;

	while ((r = gm_seqpacket_send(near, bytes, sizeof(bytes), NULL, 0)) == 0)
		ck_assert_int_lt(++sent, 100000);
	ck_assert_int_eq(r, -EAGAIN);
	ck_assert_int_gt(sent, 0);
	struct pollfd p = {.fd = near, .events = POLLOUT};
	ck_assert_int_eq(poll(&p, 1, 0), 0);
	/* What was sent is there, and reading it makes room. */
	for (int i = 0; i < sent; i++) {
		ck_assert_int_eq(gm_seqpacket_receive(far, room, sizeof(room), &in), 0);
		ck_assert_uint_eq(in.n, sizeof(bytes));
	}
	ck_assert_int_eq(gm_seqpacket_send(near, bytes, sizeof(bytes), NULL, 0), 0);
}
END_TEST

START_TEST(packets_that_are_not_read_take_so_much_memory)
{
	GM_BOUND_TEST(SOCKET_BYTES);
	const int rooms[] = {16384, GM_BOUND_SOCKET_BYTES};
	const size_t sizes[] = {40, 4000, GM_BOUND_PACKET_BYTES};
	static char bytes[GM_BOUND_PACKET_BYTES];

	for (size_t i = 0; i < 2; i++) {
		for (size_t k = 0; k < 3; k++) {
			int ends[2], queued, r;

			ck_assert_int_eq(
				socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
			gm_seqpacket_set_room(ends[0], rooms[i]);
			do
				r = gm_seqpacket_send(ends[0], bytes, sizes[k], NULL, 0);
			while (r == 0);
			/* A packet that can never pass is refused as too long. */
			ck_assert(r == -EAGAIN || (r == -EMSGSIZE && (size_t)rooms[i] < sizes[k]));
			ck_assert_int_eq(ioctl(ends[0], SIOCOUTQ, &queued), 0);
			ck_assert_int_le(queued, rooms[i] + 2 * (int)sizes[k] + 4096);
			close(ends[0]);
			close(ends[1]);
		}
	}
}
END_TEST

START_TEST(one_byte_past_the_limit_is_not_sent_and_is_seen_when_received)
{
	GM_BOUND_TEST(PACKET_BYTES);
	static uint8_t bytes[GM_BOUND_PACKET_BYTES + 1];

	ck_assert_int_eq(gm_seqpacket_send(far, bytes, sizeof(bytes), NULL, 0), -EMSGSIZE);
	ck_assert_int_eq(receive(), -EAGAIN);
	ck_assert_int_eq(gm_seqpacket_send(far, bytes, GM_BOUND_PACKET_BYTES, NULL, 0), 0);
	ck_assert_int_eq(receive(), 0);
	ck_assert_uint_eq(in.n, GM_BOUND_PACKET_BYTES);
	ck_assert(!in.data_cut);
	ck_assert_int_eq(send_raw(far, bytes, sizeof(bytes), NULL, 0), sizeof(bytes));
	ck_assert_int_eq(receive(), 0);
	ck_assert_uint_eq(in.n, GM_BOUND_PACKET_BYTES);
	ck_assert(in.data_cut);
	/* The rest of it is gone, not the start of the next packet. */
	ck_assert_int_eq(send_raw(far, "next", 4, NULL, 0), 4);
	ck_assert_int_eq(receive(), 0);
	ck_assert_uint_eq(in.n, 4);
	ck_assert(!in.data_cut);
}
END_TEST

START_TEST(one_fd_past_the_limit_is_not_sent_and_is_closed_when_received)
{
	GM_BOUND_TEST(PACKET_FDS);
	int fds[253], before;

	for (size_t i = 0; i < 253; i++)
		fds[i] = far;
	before = count_fds();
	ck_assert_int_eq(gm_seqpacket_send(far, "x", 1, fds, GM_BOUND_PACKET_FDS + 1), -E2BIG);
	ck_assert_int_eq(receive(), -EAGAIN);
	ck_assert_int_eq(gm_seqpacket_send(far, "x", 1, fds, GM_BOUND_PACKET_FDS), 0);
	ck_assert_int_eq(receive(), 0);
	ck_assert_uint_eq(in.fds.n, GM_BOUND_PACKET_FDS);
	ck_assert(!in.fds_cut);
	gm_fdlist_deinit(&in.fds);
	/* One more; as many more as the room for credentials would hold; the most there is. */
	static const size_t more[] = {
		GM_BOUND_PACKET_FDS + 1, GM_BOUND_PACKET_FDS + 8, GM_BOUND_PACKET_FDS + 20, 253};
	for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
		ck_assert_int_eq(send_raw(far, "x", 1, fds, more[i]), 1);
		ck_assert_int_eq(receive(), 0);
		ck_assert_uint_eq(in.fds.n, GM_BOUND_PACKET_FDS);
		ck_assert(in.fds_cut);
		gm_fdlist_deinit(&in.fds);
		ck_assert_int_eq(count_fds(), before);
	}
}
END_TEST

START_TEST(a_receiver_at_its_fd_limit_keeps_what_fits_and_knows)
{
	struct rlimit limit, low;
	int fds[GM_BOUND_PACKET_FDS], before = count_fds();

	for (size_t i = 0; i < GM_BOUND_PACKET_FDS; i++)
		fds[i] = far;
	ck_assert_int_eq(gm_seqpacket_send(far, "cut", 3, fds, GM_BOUND_PACKET_FDS), 0);
	ck_assert_int_eq(gm_seqpacket_send(far, "none", 4, fds, 1), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	low = limit;
	int next = dup(far);
	ck_assert_int_ge(next, 0);
	close(next);
	low.rlim_cur = (rlim_t)next + 16;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
	ck_assert_int_eq(receive(), 0);
	ck_assert_uint_eq(in.n, 3);
	ck_assert(in.fds_cut);
	ck_assert_uint_ge(in.fds.n, 1);
	ck_assert_uint_le(in.fds.n, 16);
	for (size_t i = 0; i < in.fds.n; i++)
		ck_assert_int_ge(fcntl(in.fds.fds[i], F_GETFD), 0);
	/* And with no place at all: the bytes still come. */
	struct gm_fdlist kept = in.fds;
	ck_assert_int_eq(receive(), 0);
	ck_assert_uint_eq(in.n, 4);
	ck_assert(in.fds_cut);
	ck_assert_uint_eq(in.fds.n, 0);
	gm_fdlist_deinit(&kept);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_eq(count_fds(), before);
}
END_TEST

START_TEST(a_packet_of_length_0_is_told_from_the_end)
{
	int fds[1] = {far}, before = count_fds();

	ck_assert_int_eq(gm_seqpacket_send(far, "", 0, NULL, 0), -EINVAL);
	ck_assert_int_eq(send_raw(far, "", 0, NULL, 0), 0);
	ck_assert_int_eq(receive(), -EBADMSG);
	ck_assert_int_eq(receive(), -EAGAIN);
	/* With fds, which must not stay. */
	ck_assert_int_eq(send_raw(far, "", 0, fds, 1), 0);
	ck_assert_int_eq(receive(), -EBADMSG);
	ck_assert_int_eq(count_fds(), before);
	/* Followed by a real one and the end. */
	ck_assert_int_eq(send_raw(far, "", 0, NULL, 0), 0);
	ck_assert_int_eq(send_raw(far, "last", 4, NULL, 0), 4);
	close(far);
	far = -1;
	ck_assert_int_eq(receive(), -EBADMSG);
	ck_assert_int_eq(receive(), 0);
	ck_assert_uint_eq(in.n, 4);
	ck_assert_int_eq(receive(), -EPIPE);
	ck_assert_int_eq(receive(), -EPIPE);
}
END_TEST

START_TEST(what_was_sent_before_the_end_is_read_before_the_end)
{
	/* With something of ours unread at the other end, which makes the kernel say "reset" first.
	 */
	ck_assert_int_eq(gm_seqpacket_send(near, "unread", 6, NULL, 0), 0);
	ck_assert_int_eq(gm_seqpacket_send(far, "one", 3, NULL, 0), 0);
	ck_assert_int_eq(gm_seqpacket_send(far, "two", 3, NULL, 0), 0);
	close(far);
	far = -1;
	ck_assert_int_eq(receive(), 0);
	ck_assert_int_eq(memcmp(room, "one", 3), 0);
	ck_assert_int_eq(receive(), 0);
	ck_assert_int_eq(memcmp(room, "two", 3), 0);
	ck_assert_int_eq(receive(), -EPIPE);
}
END_TEST

START_TEST(half_a_close_is_the_end_for_the_reader)
{
	ck_assert_int_eq(shutdown(far, SHUT_WR), 0);
	ck_assert_int_eq(receive(), -EPIPE);
	ck_assert_int_eq(gm_seqpacket_send(near, "still", 5, NULL, 0), 0);
}
END_TEST

START_TEST(sending_to_a_closed_end_is_an_error_and_no_signal)
{
	signal(SIGPIPE, SIG_DFL);
	ck_assert_int_eq(gm_seqpacket_send(near, "unread", 6, NULL, 0), 0);
	close(far);
	far = -1;
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(gm_seqpacket_send(near, "x", 1, NULL, 0), -EPIPE);
}
END_TEST

START_TEST(a_failed_receive_writes_nothing)
{
	struct gm_conn_packet untouched;

	memset(&in, 0x5a, sizeof(in));
	memset(&untouched, 0x5a, sizeof(untouched));
	ck_assert_int_eq(receive(), -EAGAIN);
	ck_assert_int_eq(send_raw(far, "", 0, NULL, 0), 0);
	ck_assert_int_eq(receive(), -EBADMSG);
	close(far);
	far = -1;
	ck_assert_int_eq(receive(), -EPIPE);
	ck_assert_int_eq(memcmp(&in, &untouched, sizeof(in)), 0);
	ck_assert_int_eq(gm_seqpacket_receive(-1, room, sizeof(room), &in), -EBADF);
	ck_assert_int_eq(gm_seqpacket_send(-1, "x", 1, NULL, 0), -EBADF);
}
END_TEST

START_TEST(credentials_that_a_socket_brings_push_no_fd_out)
{
	int fds[GM_BOUND_PACKET_FDS], on = 1, before = count_fds();

	for (size_t i = 0; i < GM_BOUND_PACKET_FDS; i++)
		fds[i] = far;
	ck_assert_int_eq(setsockopt(near, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
#ifndef SO_PASSPIDFD
#define SO_PASSPIDFD 76
#endif
	/* Linux 6.5: an fd that nobody asked for by hand. Older kernels refuse the option. */
	(void)setsockopt(near, SOL_SOCKET, SO_PASSPIDFD, &on, sizeof(on));
	ck_assert_int_eq(gm_seqpacket_send(far, "x", 1, fds, GM_BOUND_PACKET_FDS), 0);
	ck_assert_int_eq(receive(), 0);
	ck_assert_uint_eq(in.fds.n, GM_BOUND_PACKET_FDS);
	ck_assert(!in.fds_cut);
	gm_fdlist_deinit(&in.fds);
	ck_assert_int_eq(count_fds(), before);
}
END_TEST

START_TEST(too_many_fds_in_flight_is_an_outcome_of_its_own)
{
	/* The kernel counts unread fds per user, and lets root go on: so a child of another uid. */
	pid_t child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		struct rlimit limit = {.rlim_cur = 32, .rlim_max = 32};
		int fds[GM_BOUND_PACKET_FDS], r = 0;

		for (size_t i = 0; i < GM_BOUND_PACKET_FDS; i++)
			fds[i] = far;
		if (geteuid() == 0 && setuid(47110) < 0)
			_exit(9);
		if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
			_exit(9);
		for (int i = 0; i < 100 && r == 0; i++)
			r = gm_seqpacket_send(near, "x", 1, fds, GM_BOUND_PACKET_FDS);
		_exit(r == -ETOOMANYREFS ? 0 : r == -EAGAIN ? 2 : 1);
	}
	int status;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

/* ---- connecting */

static char folder[64];

static void address_of(struct sockaddr_un *address, const char *path)
{
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	ck_assert_uint_lt(strlen(path), sizeof(address->sun_path));
	strcpy(address->sun_path, path);
}

static int listen_at(const char *path, int type)
{
	struct sockaddr_un address;
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	address_of(&address, path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fd, 8), 0);
	return fd;
}

START_TEST(connecting_reaches_a_listener_and_closes_on_exec)
{
	char path[96];
	int socket = -1;

	gm_scratch_folder(folder, sizeof(folder));
	snprintf(path, sizeof(path), "%s/s", folder);
	ck_assert_int_eq(gm_seqpacket_connect(path, 10000, &socket), -ENOENT);
	int listener = listen_at(path, SOCK_SEQPACKET);
	ck_assert_int_eq(gm_seqpacket_connect(path, 10000, &socket), 0);
	ck_assert_int_eq(fcntl(socket, F_GETFD), FD_CLOEXEC);
	int peer = accept(listener, NULL, NULL);
	ck_assert_int_ge(peer, 0);
	ck_assert_int_eq(gm_seqpacket_send(peer, "hello", 5, NULL, 0), 0);
	ck_assert_int_eq(gm_seqpacket_receive(socket, room, sizeof(room), &in), 0);
	ck_assert_uint_eq(in.n, 5);
	close(peer);
	close(socket);
	/* The daemon is gone, its socket file is not. */
	close(listener);
	socket = -7;
	ck_assert_int_eq(gm_seqpacket_connect(path, 10000, &socket), -ECONNREFUSED);
	unlink(path);
	/* Another kind of socket, and what is none. */
	listener = listen_at(path, SOCK_STREAM);
	ck_assert_int_eq(gm_seqpacket_connect(path, 10000, &socket), -EPROTOTYPE);
	close(listener);
	unlink(path);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(gm_seqpacket_connect(path, 10000, &socket), -ECONNREFUSED);
	rmdir(path);
	ck_assert_int_eq(socket, -7);
}
END_TEST

/* With the timeout of a test rather than of connect(), this would never end. */
START_TEST(a_full_queue_is_waited_for_as_long_as_asked)
{
	enum { MANY = 64 };
	int sockets[MANY], n = 0, r;
	char path[96];

	gm_scratch_folder(folder, sizeof(folder));
	snprintf(path, sizeof(path), "%s/s", folder);
	int listener = listen_at(path, SOCK_SEQPACKET);
	do
		r = gm_seqpacket_connect(path, (uint64_t)(n % 2), &sockets[n]);
	while (r == 0 && ++n < MANY);
	ck_assert_int_gt(n, 8);
	ck_assert_int_eq(r, -ETIMEDOUT);
	while (n--)
		close(sockets[n]);
	close(listener);
	unlink(path);
}
END_TEST

/* Asks as a user who may not open the socket. */
static bool others_find_bound(const char *path)
{
	int status;
	pid_t child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		if (geteuid() == 0 && (setgid(64998) < 0 || setuid(64998) < 0))
			_exit(2);
		_exit(gm_seqpacket_is_bound(path));
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) < 2);
	return WEXITSTATUS(status);
}

START_TEST(a_socket_that_nobody_may_open_is_bound_while_its_lock_is_held)
{
	char scratch[80], path[100], lock[120];
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct stat ns;
	ck_assert_int_eq(stat("/proc/self/ns/pid", &ns), 0);
	gm_scratch_folder(scratch, sizeof(scratch));
	ck_assert_int_eq(chmod(scratch, 0755), 0);
	snprintf(path, sizeof(path), "%s/keeper", scratch);
	snprintf(lock, sizeof(lock), "%s.lock", path);
	strcpy(address.sun_path, path);
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(s, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(s, 1), 0);
	ck_assert_int_eq(chmod(path, 0666), 0);
	ck_assert(others_find_bound(path));
	ck_assert_int_eq(chmod(path, 0), 0);
	ck_assert(!others_find_bound(path));
	int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
	ck_assert(others_find_bound(path));

	/* The process dies, and leaves both files. */
	close(s);
	close(fd);
	ck_assert(others_find_bound(path) == (ns.st_ino != 0xeffffffc));
}
END_TEST

START_TEST(a_path_one_byte_past_the_limit_is_refused)
{
	GM_BOUND_TEST(SOCKET_PATH_BYTES);
	char path[GM_BOUND_SOCKET_PATH_BYTES + 2];
	int socket = -7;

	gm_scratch_folder(folder, sizeof(folder));
	memset(path, 'x', sizeof(path));
	memcpy(path, folder, strlen(folder));
	path[strlen(folder)] = '/';
	path[GM_BOUND_SOCKET_PATH_BYTES] = '\0';
	int listener = listen_at(path, SOCK_SEQPACKET);
	ck_assert_int_eq(gm_seqpacket_connect(path, 10000, &socket), 0);
	close(socket);
	close(listener);
	unlink(path);
	path[GM_BOUND_SOCKET_PATH_BYTES] = 'x';
	path[GM_BOUND_SOCKET_PATH_BYTES + 1] = '\0';
	socket = -7;
	ck_assert_int_eq(gm_seqpacket_connect(path, 10000, &socket), -ENAMETOOLONG);
	ck_assert_int_eq(gm_seqpacket_connect("", 10000, &socket), -EINVAL);
	ck_assert_int_eq(socket, -7);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("seqpacket");
	TCase *packets = tcase_create("packets"), *connecting = tcase_create("connecting");

	tcase_add_checked_fixture(packets, setup, teardown);
	tcase_add_test(packets, a_packet_arrives_whole_with_its_fds_in_order);
	tcase_add_test(packets, nothing_to_read_is_no_reason_to_wait);
	tcase_add_test(packets, no_room_to_send_is_no_reason_to_wait);
	tcase_add_test(packets, packets_that_are_not_read_take_so_much_memory);
	tcase_add_test(packets, one_byte_past_the_limit_is_not_sent_and_is_seen_when_received);
	tcase_add_test(packets, one_fd_past_the_limit_is_not_sent_and_is_closed_when_received);
	tcase_add_test(packets, a_receiver_at_its_fd_limit_keeps_what_fits_and_knows);
	tcase_add_test(packets, a_packet_of_length_0_is_told_from_the_end);
	tcase_add_test(packets, what_was_sent_before_the_end_is_read_before_the_end);
	tcase_add_test(packets, half_a_close_is_the_end_for_the_reader);
	tcase_add_test(packets, sending_to_a_closed_end_is_an_error_and_no_signal);
	tcase_add_test(packets, a_failed_receive_writes_nothing);
	tcase_add_test(packets, credentials_that_a_socket_brings_push_no_fd_out);
	tcase_add_test(packets, too_many_fds_in_flight_is_an_outcome_of_its_own);
	suite_add_tcase(suite, packets);
	tcase_add_test(connecting, a_full_queue_is_waited_for_as_long_as_asked);
	tcase_add_test(connecting, a_full_queue_is_waited_for_as_long_as_asked);
	tcase_add_test(connecting, connecting_reaches_a_listener_and_closes_on_exec);
	tcase_add_test(connecting, a_socket_that_nobody_may_open_is_bound_while_its_lock_is_held);
	tcase_add_test(connecting, a_path_one_byte_past_the_limit_is_refused);
	suite_add_tcase(suite, connecting);
	return gm_tap_run(suite);
}
