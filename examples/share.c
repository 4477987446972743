/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One buffer in two processes, without a copy. The parent fills a buffer, shares it, and sends the
 * child only a token, here through a pipe. The child opens the buffer read-only and finds what the
 * parent wrote. When the parent writes again, the child sees it at the same address. The CPU cannot
 * access a GPU's memory, so on a GPU both processes read and write it with copies by the driver.
 */
#include <gpumem/gpumem.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "demo-gpu.h"

#define BYTES (32 << 20)
#define TEXT  32

static void check(gpumem_status status, const char *what)
{
	if (!status)
		return;
	fprintf(stderr, "share: %s: %s (%s)\n", what, gpumem_error_detail(),
		gpumem_status_text(status));
	exit(1);
}

static bool gpu;

static void copy(void *to, const void *from, size_t n)
{
	const char *trouble = NULL;

	if (gpu)
		trouble = demo_gpu_copy(to, from, n);
	else
		memcpy(to, from, n);
	if (trouble) {
		fprintf(stderr, "share: %s\n", trouble);
		exit(1);
	}
}

static void join(gpumem_session **session)
{
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	const char *trouble;

	check(gpumem_connect(NULL, session), "connect");
	check(gpumem_device_info(*session, 0, &info), "device");
	gpu = !strcmp(info.backend, "cuda");
	trouble = gpu ? demo_gpu_start(info.uuid) : NULL;
	if (trouble) {
		fprintf(stderr, "share: %s: %s\n", info.name, trouble);
		exit(1);
	}
}

static int child(int from, int to)
{
	char text[GPUMEM_TOKEN_TEXT_BYTES], word, found[TEXT];
	gpumem_session *session;
	gpumem_token token;

	if (read(from, text, sizeof(text)) != sizeof(text))
		return 1;
	check(gpumem_token_from_text(text, &token), "token");
	/* A child does not inherit the session, so it connects on its own. */
	join(&session);
	{
		GPUMEM_AUTO_BUFFER gpumem_buffer *buffer = NULL;
		check(gpumem_open(session, &token, &buffer), "open");
		const void *memory = gpumem_buffer_ptr(buffer);
		copy(found, memory, TEXT);
		printf("child %d: %zu bytes \"%s\" at %p: %s\n", (int)getpid(),
			gpumem_buffer_size(buffer), gpumem_buffer_tag(buffer), memory, found);
		if (write(to, "r", 1) != 1 || read(from, &word, 1) != 1)
			return 1;
		copy(found, memory, TEXT);
		printf("child %d: the same place now says: %s\n", (int)getpid(), found);
	}
	gpumem_disconnect(session);
	fflush(stdout);
	return 0;
}

int main(void)
{
	int down[2], up[2], status = 0;
	char text[GPUMEM_TOKEN_TEXT_BYTES], word;
	gpumem_session *session;
	gpumem_token token;
	gpumem_buffer *buffer;
	gpumem_buffer_options buffer_options = GPUMEM_BUFFER_OPTIONS_INIT;
	gpumem_share_options share_options = GPUMEM_SHARE_OPTIONS_INIT;

	if (pipe(down) || pipe(up))
		return 1;
	pid_t pid = fork();
	if (pid == 0)
		_exit(child(down[0], up[1]));

	buffer_options.tag = "greeting";
	share_options.mode = GPUMEM_SHARE_READ_ONLY;
	join(&session);
	check(gpumem_buffer_create(session, 0, BYTES, &buffer_options, &buffer), "create");
	copy(gpumem_buffer_ptr(buffer), (char[TEXT]){"hello from the parent"}, TEXT);
	check(gpumem_share(buffer, &share_options, &token), "share");
	gpumem_token_to_text(&token, text);
	if (write(down[1], text, sizeof(text)) != sizeof(text) || read(up[0], &word, 1) != 1)
		return 1;
	copy(gpumem_buffer_ptr(buffer), (char[TEXT]){"hello again"}, TEXT);
	if (write(down[1], "w", 1) != 1 || waitpid(pid, &status, 0) != pid)
		return 1;
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
