/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puppets: see puppet.h. The program runs itself again with "--puppet FD", so that a puppet starts
 * without anything that this process had of CUDA. A call and its answer are one packet each on a
 * socket pair.
 */
#include "tests/gpu/puppet.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cuda/cuda_abi.h"

static void die(const char *what)
{
	printf("Bail out! %s: %s\n", what, strerror(errno));
	fflush(stdout);
	exit(99);
}

/* ---- packets with at most one fd */

static bool send_packet(int socket, const void *data, size_t n, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {(void *)data, n};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

	if (fd >= 0) {
		message.msg_control = control.bytes;
		message.msg_controllen = sizeof control;
		struct cmsghdr *c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof fd);
	}
	return sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)n;
}

static bool receive_packet(int socket, void *data, size_t n, int *ret_fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = {data, n};
	struct msghdr message = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof control};
	ssize_t got;

	do
		got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	*ret_fd = -1;
	if (got == (ssize_t)n && CMSG_FIRSTHDR(&message))
		memcpy(ret_fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof *ret_fd);
	return got == (ssize_t)n;
}

/* ---- in the puppet */

/* What is done aside: one call at a time, which the first thread waits for. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t moved;
	bool started;
	const struct puppet_call *call; /* NULL: nothing to do */
	int fd, out;
	struct puppet_answer *answer;
} second = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

static void *perform_aside(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&second.lock);
	for (;;) {
		while (!second.call)
			pthread_cond_wait(&second.moved, &second.lock);
		puppet_call_make(second.call, second.fd, second.answer, &second.out);
		second.call = NULL;
		pthread_cond_broadcast(&second.moved);
	}
	return NULL;
}

static void aside(const struct puppet_call *call, int fd, struct puppet_answer *answer, int *ret_fd)
{
	pthread_t thread;

	pthread_mutex_lock(&second.lock);
	if (!second.started && pthread_create(&thread, NULL, perform_aside, NULL))
		die("pthread_create");
	second.started = true;
	second.answer = answer;
	second.fd = fd;
	second.out = -1;
	second.call = call;
	pthread_cond_broadcast(&second.moved);
	while (second.call)
		pthread_cond_wait(&second.moved, &second.lock);
	*ret_fd = second.out;
	pthread_mutex_unlock(&second.lock);
}

void puppet_main(int argc, char **argv)
{
	struct puppet_call call;
	int socket, fd;

	if (argc != 3 || strcmp(argv[1], "--puppet") != 0)
		return;
	socket = atoi(argv[2]);
	puppet_call_init();
	while (receive_packet(socket, &call, sizeof call, &fd)) {
		struct puppet_answer answer = {0};
		int out = -1;
		if (call.aside)
			aside(&call, fd, &answer, &out);
		else if (call.beside)
			answer.result = puppet_call_beside(&call);
		else
			puppet_call_make(&call, fd, &answer, &out);
		if (fd >= 0)
			close(fd);
		if (!send_packet(socket, &answer, sizeof answer, out))
			break;
		if (out >= 0)
			close(out);
	}
	/* No clean-up: a driver's exit handlers would wait for streams that are kept busy. */
	_exit(0);
}

/* ---- in the test */

struct puppet puppet_start(uid_t uid)
{
	struct puppet puppet;
	int pair[2];
	char number[16];

	fflush(stdout);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		die("socketpair");
	puppet.pid = fork();
	if (puppet.pid < 0)
		die("fork");
	if (puppet.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (uid && (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 ||
				   setresuid(uid, uid, uid) < 0))
			_exit(98);
		snprintf(number, sizeof number, "%d", pair[1]);
		fcntl(pair[1], F_SETFD, 0);
		execl("/proc/self/exe", "puppet", "--puppet", number, (char *)NULL);
		_exit(97);
	}
	close(pair[1]);
	puppet.socket = pair[0];
	return puppet;
}

void puppet_begin(struct puppet *puppet, const struct puppet_call *call)
{
	if (!send_packet(puppet->socket, call, sizeof *call, -1))
		die("a puppet is gone");
}

bool puppet_finished(struct puppet *puppet)
{
	struct pollfd ready = {puppet->socket, POLLIN, 0};

	return poll(&ready, 1, 0) == 1;
}

struct puppet_answer puppet_finish(struct puppet *puppet)
{
	struct puppet_answer answer;
	int fd;

	if (!receive_packet(puppet->socket, &answer, sizeof answer, &fd))
		die("a puppet died");
	if (fd >= 0)
		close(fd);
	return answer;
}

struct puppet_answer puppet_do(
	struct puppet *puppet, const struct puppet_call *call, int fd, int *ret_fd)
{
	struct puppet_answer answer;
	int got;

	if (!send_packet(puppet->socket, call, sizeof *call, fd))
		die("a puppet is gone");
	if (!receive_packet(puppet->socket, &answer, sizeof answer, &got))
		die("a puppet died");
	if (ret_fd)
		*ret_fd = got;
	else if (got >= 0)
		close(got);
	return answer;
}

void puppet_kill(struct puppet *puppet)
{
	kill(puppet->pid, SIGKILL);
	waitpid(puppet->pid, NULL, 0);
	close(puppet->socket);
	*puppet = (struct puppet){-1, -1};
}

void puppet_stop(struct puppet *puppet)
{
	close(puppet->socket);
	waitpid(puppet->pid, NULL, 0);
	*puppet = (struct puppet){-1, -1};
}

const char *puppet_result_name(int result)
{
	static const struct {
		int value;
		const char *name;
	} names[] = {
#define NAME(name, value) {value, #name},
		GM_CU_VALUES(NAME)
#undef NAME
	};
	static char text[32];

	/* Results come first in the table. */
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i].value == result && strncmp(names[i].name, "CUDA_", 5) == 0)
			return names[i].name;
	snprintf(text, sizeof text, "result %d", result);
	return text;
}
