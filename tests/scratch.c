/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests leave under /tmp. All of it carries the number of the process that is the test
 * program, so that this one finds what its children could not remove any more. It must never remove
 * what belongs to another program or to another user.
 */
#include "tests/scratch.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define FOLDER "/tmp"

static pid_t program; /* the test program; its children have their own numbers and this one's */

static void prefix_of(char prefix[32])
{
	snprintf(prefix, 32, "gpumem-test-%d-", (int)program);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
	(void)remove(path);
	return 0;
}

static void remove_all(void)
{
	char prefix[32];
	DIR *folder;
	if (getpid() != program || getenv("GPUMEM_TEST_KEEP"))
		return;
	prefix_of(prefix);
	folder = opendir(FOLDER);
	for (struct dirent *e = folder ? readdir(folder) : NULL; e; e = readdir(folder)) {
		char path[sizeof(FOLDER) + sizeof(e->d_name)];
		struct stat st;
		if (strncmp(e->d_name, prefix, strlen(prefix)) != 0)
			continue;
		snprintf(path, sizeof(path), FOLDER "/%s", e->d_name);
		if (lstat(path, &st) == 0 && st.st_uid == geteuid())
			(void)nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	}
	if (folder)
		closedir(folder);
}

__attribute__((constructor)) static void begin(void)
{
	program = getpid();
	if (atexit(remove_all) != 0)
		abort();
}

void gm_scratch_path(const char *purpose, char *path, size_t room)
{
	char prefix[32];
	prefix_of(prefix);
	snprintf(path, room, FOLDER "/%s%s-%d", prefix, purpose, (int)getpid());
}

void gm_scratch_folder(char *path, size_t room)
{
	char prefix[32];
	prefix_of(prefix);
	snprintf(path, room, FOLDER "/%sXXXXXX", prefix);
	if (!mkdtemp(path)) {
		perror(path);
		exit(1);
	}
}
