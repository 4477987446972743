/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads a file into a buffer, as a program loads the weights of a model: load_file [FILE]. It shows how
 * far it is, and can be interrupted with Ctrl-C. Then it copies the beginning back. FILE may be a pipe.
 */
#include <errno.h>
#include <gpumem/gpumem_copy.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Room for a pipe, whose length nobody knows. */
#define PIPE_MOST (64 << 20)

static uint32_t cancel;

static void on_interrupt(int number)
{
	(void)number;
	gpumem_copy_cancel(&cancel);
}

static int show(void *user, uint64_t done, uint64_t total)
{
	unsigned *percent = user, now = (unsigned)(done * 100 / total);

	if (now / 10 != *percent / 10 || now == 100)
		printf("%3u%%\n", now);
	*percent = now;
	return 0; /* anything else cancels */
}

static int fail(void)
{
	fprintf(stderr, "load_file: %s\n", gpumem_error_detail());
	return 1;
}

int main(int argc, char **argv)
{
	/* Both end when main() returns, the buffer first. */
	GPUMEM_AUTO_SESSION gpumem_session *session = NULL;
	GPUMEM_AUTO_BUFFER gpumem_buffer *weights = NULL;
	gpumem_copy_file file = GPUMEM_COPY_FILE_INIT;
	gpumem_copy_options options = GPUMEM_COPY_OPTIONS_INIT;
	gpumem_copy_result result = GPUMEM_COPY_RESULT_INIT;
	static const char *const names[] = {
		"automatic", "synchronous", "asynchronous", "staged", "managed"};
	unsigned char first[8] = {0};
	unsigned percent = 0;
	struct stat st;

	file.path = argc > 1 ? argv[1] : argv[0];
	if (stat(file.path, &st)) {
		fprintf(stderr, "load_file: %s: %s\n", file.path, strerror(errno));
		return 1;
	}
	if (S_ISREG(st.st_mode) && st.st_size == 0) {
		fprintf(stderr, "load_file: %s is empty\n", file.path);
		return 1;
	}
	size_t room = S_ISREG(st.st_mode) ? (size_t)st.st_size : PIPE_MOST;

	signal(SIGINT, on_interrupt);
	options.progress = S_ISREG(st.st_mode) ? show : NULL;
	options.user = &percent;
	options.cancel = &cancel;

	/* The stream says after which work the copy may begin. Nothing uses a new buffer. */
	if (gpumem_connect(NULL, &session) ||
		gpumem_buffer_create(session, 0, room, NULL, &weights) ||
		gpumem_copy_file_in(weights, 0, &file, GPUMEM_STREAM_DONE, &options, &result))
		return fail();
	printf("%llu bytes, %s, with %u threads and %u pinned slots\n",
		(unsigned long long)result.bytes, names[result.strategy], result.threads,
		result.slots);

	/* Short copies need no options. */
	size_t n = result.bytes < sizeof(first) ? (size_t)result.bytes : sizeof(first);
	if (gpumem_copy_out(weights, 0, first, n, GPUMEM_STREAM_DONE, NULL, NULL))
		return fail();
	printf("it begins with");
	for (size_t i = 0; i < n; i++)
		printf(" %02x", first[i]);
	printf("\n");
	return 0;
}
