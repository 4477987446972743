/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits until a daemon is ready, so that scripts can wait for the event and not for some time.
 * Listens on the socket that NOTIFY_SOCKET will name and prints "listening". Prints "ready" when
 * READY=1 has come. Also ends when nobody reads its output any more.
 */

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char message[4096];

	if (argc != 2 || strlen(argv[1]) >= sizeof(address.sun_path)) {
		fprintf(stderr, "usage: demo-ready SOCKET\n");
		return 2;
	}
	strcpy(address.sun_path, argv[1]);
	int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (s < 0 || bind(s, (struct sockaddr *)&address, sizeof(address)) < 0) {
		perror(argv[1]);
		return 1;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("listening");
	for (;;) {
		/* poll() reports an error on a pipe whose last reader is gone. */
		struct pollfd fds[] = {{.fd = s, .events = POLLIN}, {.fd = STDOUT_FILENO}};
		if (poll(fds, 2, -1) < 0 || fds[1].revents)
			return 1;
		ssize_t n = recv(s, message, sizeof(message) - 1, 0);
		if (n < 0)
			return 1;
		message[n] = '\0';
		if (strstr(message, "READY=1"))
			break;
	}
	puts("ready");
	unlink(argv[1]);
	return 0;
}
