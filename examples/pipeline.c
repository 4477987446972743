/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes that work on one buffer in turns. The producer writes a frame and signals its number. The
 * consumer waits for that number, reads the frame, and signals the same number on a buffer of its own,
 * so that the producer knows when it may write the next one. On a GPU all of that is done by streams,
 * here by the default stream; on the host, the waits block.
 *
 * After five frames the producer ends without a word. The consumer waits for the sixth, and is told that
 * it will not come.
 */
#include <gpumem/gpumem.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "demo-gpu.h"

#define BYTES  (4 << 20)
#define TEXT   64
#define FRAMES 5

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "pipeline: %s: %s\n", what, why);
	exit(1);
}

static void check(gpumem_status status, const char *what)
{
	if (status)
		fail(what, gpumem_error_detail());
}

static bool gpu;

/* Copies, with the driver if the memory is a GPU's. Returns when the copy is done, which is after
 * everything that was launched on the default stream before. */
static void copy(void *to, const void *from, size_t n)
{
	const char *trouble = NULL;

	if (gpu)
		trouble = demo_gpu_copy(to, from, n);
	else
		memcpy(to, from, n);
	if (trouble)
		fail("copy", trouble);
}

static gpumem_session *join(void)
{
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	gpumem_session *session;
	const char *trouble;

	check(gpumem_connect(NULL, &session), "connect");
	check(gpumem_device_info(session, 0, &info), "device");
	gpu = !strcmp(info.backend, "cuda");
	trouble = gpu ? demo_gpu_start(info.uuid) : NULL;
	if (trouble)
		fail(info.name, trouble);
	return session;
}

/* Makes a buffer with signals, gives it to the other process, and opens the one that the other process
 * made. */
static void exchange(
	gpumem_session *session, int other, gpumem_buffer **ret_mine, gpumem_buffer **ret_theirs)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_token token;

	options.flags = GPUMEM_BUFFER_SIGNALS;
	check(gpumem_buffer_create(session, 0, BYTES, &options, ret_mine), "create");
	check(gpumem_share(*ret_mine, NULL, &token), "share");
	if (write(other, &token, sizeof(token)) != sizeof(token) ||
		read(other, &token, sizeof(token)) != sizeof(token))
		fail("exchange", "the other process is gone");
	check(gpumem_open(session, &token, ret_theirs), "open");
}

static int produce(int consumer)
{
	gpumem_session *session = join();
	gpumem_buffer *frames, *taken;
	char text[TEXT] = "", word;

	if (write(consumer, "r", 1) != 1)
		fail("start", "the other process is gone");
	exchange(session, consumer, &frames, &taken);
	for (uint64_t i = 1; i <= FRAMES; i++) {
		if (i > 1)
			check(gpumem_buffer_wait(taken, NULL, i - 1, GPUMEM_WAIT_FOREVER), "wait");
		snprintf(text, sizeof(text), "frame %llu", (unsigned long long)i);
		copy(gpumem_buffer_ptr(frames), text, TEXT);
		check(gpumem_buffer_signal(frames, NULL, i), "signal");
	}
	/* The last signal must have been sent before this process goes. */
	if (read(consumer, &word, 1) != 1)
		fail("end", "the other process is gone");
	gpumem_disconnect(session);
	return 0;
}

static int consume(int producer)
{
	gpumem_buffer *frames, *taken;
	char text[TEXT], word;

	/* If the producer cannot begin, it has said why. */
	if (read(producer, &word, 1) != 1)
		return 1;
	gpumem_session *session = join();
	exchange(session, producer, &taken, &frames);
	for (uint64_t i = 1;; i++) {
		gpumem_status status = gpumem_buffer_wait(frames, NULL, i, GPUMEM_WAIT_FOREVER);
		if (status != GPUMEM_E_CANCELLED) {
			check(status, "wait");
			copy(text, gpumem_buffer_ptr(frames), TEXT);
			/* The stream has come here: because of the signal, or because none will
			 * come? */
			status = gpumem_buffer_lost(frames, i);
		}
		if (status == GPUMEM_E_CANCELLED) {
			printf("lost: %s\n", gpumem_error_detail());
			break;
		}
		check(status, "look");
		printf("got %.*s\n", TEXT, text);
		check(gpumem_buffer_signal(taken, NULL, i), "signal");
		if (i == FRAMES && write(producer, "e", 1) != 1)
			fail("end", "the other process is gone");
	}
	gpumem_buffer_destroy(frames);
	gpumem_buffer_destroy(taken);
	gpumem_disconnect(session);
	return 0;
}

int main(void)
{
	int pair[2], status = 0;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0)
		fail("start", "no socket");
	pid_t pid = fork();
	if (pid < 0)
		fail("start", "no process");
	if (pid == 0) {
		close(pair[0]);
		exit(produce(pair[1]));
	}
	close(pair[1]);
	int failed = consume(pair[0]);
	if (waitpid(pid, &status, 0) != pid || status)
		return 1;
	return failed;
}
