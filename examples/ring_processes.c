/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring between two processes. One asks, and the other answers with the calls that wait: it sleeps while
 * there is nothing to do, and uses no processor. It ends when the first one hangs up. The processes find
 * each other by a token, which goes through a socket.
 */
#include <gpumem/gpumem_ring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define QUESTIONS 3
#define TEXT      64
#define PLACES    16

static void check(gpumem_status status, const char *what)
{
	if (!status)
		return;
	fprintf(stderr, "ring_processes: %s: %s\n", what, gpumem_error_detail());
	exit(1);
}

/* ---- the process that answers */

static int answer(int channel)
{
	gpumem_session *session;
	gpumem_buffer *buffer;
	gpumem_ring *ring;
	gpumem_token token;
	gpumem_status status;
	char text[TEXT], reply[TEXT];
	unsigned n = 0;

	if (read(channel, &token, sizeof(token)) != sizeof(token))
		return 1; /* the other process has said why */
	check(gpumem_connect(NULL, &session), "connect");
	check(gpumem_open(session, &token, &buffer), "open");
	check(gpumem_ring_open(buffer, NULL, &ring), "open the ring");

	while (!(status = gpumem_ring_receive(ring, text, GPUMEM_WAIT_FOREVER))) {
		snprintf(reply, sizeof(reply), "%.40s, to be sure (%u)", text, ++n);
		check(gpumem_ring_send(ring, reply), "send");
	}
	/* The other end has hung up, or its process has ended. */
	if (status != GPUMEM_E_CANCELLED)
		check(status, "receive");
	gpumem_ring_close(ring); /* and its buffer */
	gpumem_disconnect(session);
	return 0;
}

/* ---- the process that asks */

static int ask(int channel)
{
	static const char *const questions[QUESTIONS] = {"north", "east", "south"};
	gpumem_session *session;
	gpumem_ring *ring;
	gpumem_token token;
	char text[TEXT] = "";

	check(gpumem_connect(NULL, &session), "connect");
	check(gpumem_ring_create(session, TEXT, PLACES, NULL, &ring), "create");
	check(gpumem_share(gpumem_ring_buffer(ring), NULL, &token), "share");
	if (write(channel, &token, sizeof(token)) != sizeof(token))
		return 1;

	for (int i = 0; i < QUESTIONS; i++) {
		snprintf(text, sizeof(text), "%s", questions[i]);
		check(gpumem_ring_send(ring, text), "send");
		/* Ten seconds, in case that the other process does not answer. */
		check(gpumem_ring_receive(ring, text, 10000), "receive");
		printf("%s: %.*s\n", questions[i], TEXT, text);
	}
	check(gpumem_ring_hang_up(ring), "hang up");
	gpumem_ring_close(ring);
	gpumem_disconnect(session);
	return 0;
}

int main(void)
{
	int pair[2], status = 0;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0)
		return 1;
	/* Each process connects for itself: a session does not survive fork(). */
	pid_t pid = fork();
	if (pid < 0)
		return 1;
	if (pid == 0) {
		close(pair[0]);
		return answer(pair[1]);
	}
	close(pair[1]);
	int failed = ask(pair[0]);
	if (waitpid(pid, &status, 0) != pid || status)
		return 1;
	return failed;
}
