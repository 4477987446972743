/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

#include "common/system/program.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether that is a program. ret_st may be written in any case. */
static bool program_is(const char *path, struct stat *ret_st)
{
	return stat(path, ret_st) == 0 && S_ISREG(ret_st->st_mode) && access(path, X_OK) == 0;
}

/* The folder of the running program. In a source tree, libtool has moved programs to a folder of their own. */
static bool program_find_folder(char folder[PATH_MAX])
{
	static const char moved[] = "/.libs";
	ssize_t n = readlink("/proc/self/exe", folder, PATH_MAX - 1);

	if (n <= 0 || folder[0] != '/')
		return false;
	folder[n] = '\0';
	*strrchr(folder, '/') = '\0';
	size_t length = strlen(folder);
	if (length > strlen(moved) && strcmp(folder + length - strlen(moved), moved) == 0)
		folder[length - strlen(moved)] = '\0';
	return true;
}

/* Finds the program beside the running one, or in a folder beside that: where it is installed, or in a source tree. */
static bool program_find(const char *name, char path[GM_PROGRAM_BYTES], struct stat *ret_st)
{
	static const char *const folders[] = {"", "bin/", "sbin/", "ctl/", "daemon/"};
	char folder[PATH_MAX];

	if (!program_find_folder(folder))
		return false;
	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
		if (i == 1 && *folder)
			*strrchr(folder, '/') = '\0';
		int n = snprintf(path, GM_PROGRAM_BYTES, "%s/%s%s", folder, folders[i], name);
		if (n < GM_PROGRAM_BYTES && program_is(path, ret_st))
			return true;
	}
	return false;
}

/* Whether a shell that is told the name runs this file. */
static bool program_is_on_path(const char *name, const struct stat *own)
{
	const char *at = getenv("PATH");
	char path[PATH_MAX];
	struct stat st;

	while (at) {
		size_t n = strcspn(at, ":");
		int r = snprintf(path, sizeof(path), "%.*s%s%s", (int)n, at, n ? "/" : "", name);

		if (r > 0 && (size_t)r < sizeof(path) && program_is(path, &st))
			return st.st_dev == own->st_dev && st.st_ino == own->st_ino;
		at = at[n] ? at + n + 1 : NULL;
	}
	return false;
}

/* Whether a shell takes the path for what it is. */
static bool program_is_plain(const char *path)
{
	static const char plain[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+-@";

	return path[strspn(path, plain)] == '\0';
}

const char *gm_program(const char *name, char text[GM_PROGRAM_BYTES])
{
	struct stat own;

	if (!program_find(name, text, &own) || program_is_on_path(name, &own) ||
		!program_is_plain(text))
		snprintf(text, GM_PROGRAM_BYTES, "%s", name);
	return text;
}

/* Whether the words before and behind a name make it a command: "run gpumemd", "'gpumemctl status", "mkdir a; gpumemd --socket",
 * "--init-groups gpumemd". */
static bool program_is_run_by(const char *sentence, const char *at, const char *behind)
{
	static const char *const before[] = {"'", "run ", "--init-groups ", "; "};

	for (size_t i = 0; i < sizeof(before) / sizeof(*before); i++) {
		size_t n = strlen(before[i]);
		if ((size_t)(at - sentence) >= n && memcmp(at - n, before[i], n) == 0)
			return *before[i] != ';' || strncmp(behind, " -", 2) == 0;
	}
	return false;
}

/* Returns the program that the sentence says to run here, or NULL. */
static const char *program_at(const char *sentence, const char *at)
{
	static const char *const names[] = {"gpumemd", "gpumemctl"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		size_t n = strlen(names[i]);
		if (strncmp(at, names[i], n) == 0 && at[n] && strchr(" ',", at[n]) &&
			program_is_run_by(sentence, at, at + n))
			return names[i];
	}
	return NULL;
}

char *gm_program_mend(const char *sentence, char *to, size_t room)
{
	char path[GM_PROGRAM_BYTES];
	size_t n = 0;

	for (const char *at = sentence; *at && n < room; at++) {
		const char *name = program_at(sentence, at);
		if (!name) {
			to[n++] = *at;
			continue;
		}
		n += (size_t)snprintf(to + n, room - n, "%s", gm_program(name, path));
		at += strlen(name) - 1;
	}
	if (n < room)
		to[n] = '\0';
	else
		snprintf(to, room, "%s", sentence);
	return to;
}
