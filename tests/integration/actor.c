/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that does what the lines on its stdin say, one after the other, and answers each with a
 * line: for scripts that need clients who hold, cache and wait. Its name is its argument.
 *
 *   alloc SIZE [WAIT]   takes memory; WAIT is a time, or "forever"
 *   free                frees what it took last, which its library caches
 *   touch               writes to all that it holds
 *   join NAME           becomes one more client, with this name
 *
 * An answer is "ok", or the status' name and why. It ends with its stdin.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text/units.h"
#include "gpumem/gpumem.h"

static gpumem_session *session;
static struct {
	void *at;
	uint64_t bytes;
} held[64];
static size_t n_held;

static void answer(gpumem_status status)
{
	if (status == GPUMEM_OK)
		puts("ok");
	else
		printf("%s: %s\n", gpumem_status_text(status), gpumem_error_detail());
	fflush(stdout);
}

static void take(const char *size, const char *wait)
{
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	uint64_t bytes, ns = 0;
	if (n_held == sizeof(held) / sizeof(held[0]) || gm_parse_size(size, &bytes) < 0 ||
		(wait && strcmp(wait, "forever") && gm_parse_duration(wait, &ns) < 0)) {
		puts("what?");
		fflush(stdout);
		return;
	}
	if (wait)
		options.wait_ms = ns ? (uint32_t)(ns / 1000000) : GPUMEM_WAIT_FOREVER;
	gpumem_status status =
		gpumem_alloc(session, 0, bytes, GPUMEM_STREAM_ANY, &options, &held[n_held].at);
	if (status == GPUMEM_OK)
		held[n_held++].bytes = bytes;
	answer(status);
}

int main(int argc, char **argv)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	char line[256], word[32], size[64], wait[64];
	options.name = argc > 1 ? argv[1] : NULL;
	gpumem_status status = gpumem_connect(&options, &session);
	answer(status);
	while (status == GPUMEM_OK && fgets(line, sizeof(line), stdin)) {
		int n = sscanf(line, "%31s %63s %63s", word, size, wait);
		if (n >= 2 && strcmp(word, "alloc") == 0) {
			take(size, n == 3 ? wait : NULL);
		} else if (n == 1 && strcmp(word, "free") == 0 && n_held) {
			answer(gpumem_free(session, held[--n_held].at, GPUMEM_STREAM_DONE));
		} else if (n == 2 && strcmp(word, "join") == 0) {
			options.name = size;
			answer(gpumem_connect(&options, &(gpumem_session *){NULL}));
		} else if (n == 1 && strcmp(word, "touch") == 0) {
			for (size_t i = 0; i < n_held; i++)
				memset(held[i].at, 1, held[i].bytes);
			answer(GPUMEM_OK);
		} else {
			puts("what?");
			fflush(stdout);
		}
	}
	gpumem_disconnect(session);
	return status != GPUMEM_OK;
}
