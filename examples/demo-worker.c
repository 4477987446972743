/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker for the demo: it does what the lines on its stdin say, one after the other, and answers
 * each with one line. It uses nothing but the public interface of libgpumem-client.
 *
 *   make BYTES TAG   ask the broker for a buffer       check N   is number i still N + i, for all?
 *   fill N           number i becomes N + i            add N     add N to every number, in place
 *   share            answer with the buffer's token    where     which piece of memory is it?
 *   open TOKEN       map a buffer that another made    hold BYTES TAG   a second buffer, just held
 *
 * It ends when stdin does.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gpumem/gpumem.h>

static gpumem_session *session;
static gpumem_buffer *buffer, *held;

static int failed(const char *what)
{
	printf("error %s: %s\n", what, gpumem_error_detail());
	return 0;
}

static int make(const char *size, const char *tag, gpumem_buffer **ret)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;

	options.tag = tag;
	if (gpumem_buffer_create(session, 0, strtoull(size, NULL, 10), &options, ret) != GPUMEM_OK)
		return failed("make");
	return printf("ok\n");
}

static int share(void)
{
	char text[GPUMEM_TOKEN_TEXT_BYTES];
	gpumem_token token;

	if (gpumem_share(buffer, NULL, &token) != GPUMEM_OK)
		return failed("share");
	gpumem_token_to_text(&token, text);
	return printf("ok %s\n", text);
}

static int open_token(const char *text)
{
	gpumem_token token;

	if (gpumem_token_from_text(text, &token) != GPUMEM_OK ||
		gpumem_open(session, &token, &buffer) != GPUMEM_OK)
		return failed("open");
	return printf("ok %zu\n", gpumem_buffer_size(buffer));
}

/* The kernel's name for the memory behind the buffer: the same in every process that maps it. */
static int where(void)
{
	uintptr_t at = (uintptr_t)gpumem_buffer_ptr(buffer), from, to;
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long inode = 0, found = 0;
	char line[512];

	while (maps && !found && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %lu", &from, &to, &inode) ==
				3 &&
			at >= from && at < to)
			found = inode;
	if (maps)
		fclose(maps);
	if (!found)
		return printf("error where: the memory has no name\n");
	return printf("ok %lu\n", found);
}

static int numbers(const char *verb, uint64_t n)
{
	uint64_t *at = gpumem_buffer_ptr(buffer);
	size_t count = gpumem_buffer_size(buffer) / sizeof(*at);

	for (size_t i = 0; i < count; i++) {
		if (!strcmp(verb, "fill"))
			at[i] = n + i;
		else if (!strcmp(verb, "add"))
			at[i] += n;
		else if (at[i] != n + i)
			return printf("error check: number %zu is %" PRIu64 ", not %" PRIu64 "\n",
				i, at[i], n + i);
	}
	return printf("ok %zu\n", count);
}

static int obey(char *line)
{
	const char *verb = strtok(line, " \n"), *first = strtok(NULL, " \n");
	const char *second = strtok(NULL, " \n");

	if (!verb)
		return printf("error no command\n");
	if (first && second && !strcmp(verb, "make"))
		return make(first, second, &buffer);
	if (first && second && !strcmp(verb, "hold"))
		return make(first, second, &held);
	if (first && !strcmp(verb, "open"))
		return open_token(first);
	if (!buffer)
		return printf("error %s: there is no buffer yet\n", verb);
	if (!strcmp(verb, "share"))
		return share();
	if (!strcmp(verb, "where"))
		return where();
	if (first && (!strcmp(verb, "fill") || !strcmp(verb, "add") || !strcmp(verb, "check")))
		return numbers(verb, strtoull(first, NULL, 10));
	return printf("error %s: not a command\n", verb);
}

int main(int argc, char **argv)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	char line[256];

	setvbuf(stdout, NULL, _IOLBF, 0);
	options.name = argc > 1 ? argv[1] : "worker";
	if (gpumem_connect(&options, &session) != GPUMEM_OK) {
		failed("connect");
		return 1;
	}
	printf("ok %d\n", (int)getpid());
	while (fgets(line, sizeof(line), stdin))
		obey(line);
	gpumem_buffer_destroy(held);
	gpumem_buffer_destroy(buffer);
	gpumem_disconnect(session);
	return 0;
}
