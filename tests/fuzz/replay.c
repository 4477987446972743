/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Gives every file of a folder to a fuzz target once: what a fuzzer found stays found, in builds
 * that have no fuzzer. Speaks TAP, one line per file; an input that breaks something ends the
 * program, so that the plan at the end is missing. The folder is an argument, else the one that
 * CORPUS names below $top_srcdir.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_input(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

/* Memory of exactly the file's length, so that a sanitizer sees a read past it. */
static uint8_t *read_whole(const char *path, size_t *ret_n)
{
	struct stat st;
	uint8_t *bytes = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fstat(fd, &st) < 0)
		goto end;
	bytes = malloc(st.st_size > 0 ? (size_t)st.st_size : 1);
	if (bytes && read(fd, bytes, (size_t)st.st_size) != st.st_size) {
		free(bytes);
		bytes = NULL;
	}
	*ret_n = (size_t)st.st_size;
end:
	if (fd >= 0)
		close(fd);
	return bytes;
}

int main(int argc, char **argv)
{
	const char *top = getenv("top_srcdir");
	char folder[4096], path[8192];
	struct dirent **files;
	int count, failed = 0;

	if (argc > 1)
		snprintf(folder, sizeof(folder), "%s", argv[1]);
	else
		snprintf(folder, sizeof(folder), "%s/%s", top ? top : ".", CORPUS);
	count = scandir(folder, &files, is_input, by_name);
	if (count <= 0) {
		printf("Bail out! no corpus in %s: %s\n", folder, strerror(errno));
		return EXIT_FAILURE;
	}
	for (int i = 0; i < count; i++) {
		size_t n = 0;
		snprintf(path, sizeof(path), "%s/%s", folder, files[i]->d_name);
		uint8_t *bytes = read_whole(path, &n);
		if (bytes) {
			LLVMFuzzerTestOneInput(bytes, n);
			printf("ok %d - %s\n", i + 1, files[i]->d_name);
		} else {
			printf("not ok %d - %s cannot be read\n", i + 1, files[i]->d_name);
			failed++;
		}
		fflush(stdout);
		free(bytes);
		free(files[i]);
	}
	free(files);
	printf("1..%d\n", count);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
