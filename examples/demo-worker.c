/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker for the demo. It reads commands from stdin, one per line, and answers each with one
 * line. It uses only the public interface of libgpumem-client.
 *
 *   make BYTES TAG        create a buffer
 *   hold BYTES TAG [MS]   create a second buffer; wait for room for up to MS milliseconds
 *   drop                  destroy the second buffer
 *   cache BYTES           allocate and free a block, which the library keeps for its next allocation
 *   fill N                set number i of the buffer to N + i
 *   add N                 add N to every number, in place
 *   check N               check that every number i is N + i
 *   share                 share the buffer, and answer with its token
 *   open TOKEN            open a buffer that another process shared
 *   where                 answer with the kernel's name for the buffer's memory
 *
 * It ends when stdin ends.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gpumem/gpumem.h>

#include "demo-gpu.h"

static gpumem_session *session;
static int gpu; /* the memory is on a GPU */
static gpumem_buffer *buffer, *held;

static int failed(const char *what)
{
	printf("error %s: %s\n", what, gpumem_error_detail());
	return 0;
}

static int make(const char *size, const char *tag, const char *wait_ms, gpumem_buffer **ret)
{
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;

	options.tag = tag;
	options.wait_ms = wait_ms ? (uint32_t)strtoul(wait_ms, NULL, 10) : 0;
	if (gpumem_buffer_create(session, 0, strtoull(size, NULL, 10), &options, ret) != GPUMEM_OK)
		return failed("make");
	return printf("ok\n");
}

static int drop(void)
{
	gpumem_buffer_destroy(held);
	held = NULL;
	return printf("ok\n");
}

static int cache(const char *size)
{
	void *block;

	if (gpumem_alloc(session, 0, strtoull(size, NULL, 10), GPUMEM_STREAM_ANY, NULL, &block))
		return failed("cache");
	gpumem_free(session, block, GPUMEM_STREAM_DONE);
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

/* The inode behind the buffer's memory. It is the same in every process that maps the memory. */
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
		return printf("error where: the memory has no inode\n");
	return printf("ok %lu\n", found);
}

static int numbers(const char *verb, uint64_t n)
{
	size_t bytes = gpumem_buffer_size(buffer), count = bytes / sizeof(uint64_t);
	void *memory = gpumem_buffer_ptr(buffer);
	uint64_t *at = gpu ? malloc(bytes) : memory;
	const char *error = at ? NULL : "no memory";
	size_t i;

	if (gpu && !error && strcmp(verb, "fill"))
		error = demo_gpu_copy(at, memory, bytes);
	for (i = 0; !error && i < count; i++) {
		if (!strcmp(verb, "fill"))
			at[i] = n + i;
		else if (!strcmp(verb, "add"))
			at[i] += n;
		else if (at[i] != n + i)
			break;
	}
	if (!error && i < count)
		error = "a number is not what it should be";
	if (gpu && !error && strcmp(verb, "check"))
		error = demo_gpu_copy(memory, at, bytes);
	if (gpu)
		free(at);
	return error ? printf("error %s: %s\n", verb, error) : printf("ok %zu\n", count);
}

static int obey(char *line)
{
	const char *verb = strtok(line, " \n"), *first = strtok(NULL, " \n");
	const char *second = strtok(NULL, " \n"), *third = strtok(NULL, " \n");

	if (!verb)
		return printf("error no command\n");
	if (first && second && !strcmp(verb, "make"))
		return make(first, second, NULL, &buffer);
	if (first && second && !strcmp(verb, "hold"))
		return make(first, second, third, &held);
	if (first && !strcmp(verb, "open"))
		return open_token(first);
	if (!strcmp(verb, "drop"))
		return drop();
	if (first && !strcmp(verb, "cache"))
		return cache(first);
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
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	const char *error;
	char line[256];

	setvbuf(stdout, NULL, _IOLBF, 0);
	options.name = argc > 1 ? argv[1] : "worker";
	if (gpumem_connect(&options, &session) != GPUMEM_OK ||
		gpumem_device_info(session, 0, &info) != GPUMEM_OK) {
		failed("connect");
		return 1;
	}
	gpu = strcmp(info.backend, "host") != 0;
	if (gpu && (error = demo_gpu_start(info.uuid))) {
		printf("error connect: %s\n", error);
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
