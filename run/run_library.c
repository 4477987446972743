/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at the library and at every folder above it, from the root down: nobody can exchange what lies in a folder that was found safe.
 * Whoever can change gpumem-run itself, or a folder above it, is trusted, because that code runs already.
 */
#include "run/run_library.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct library_self {
	char path[PATH_MAX]; /* of gpumem-run; "": nobody knows */
	struct stat st;
};

static void library_find_self(struct library_self *self)
{
	ssize_t n = readlink("/proc/self/exe", self->path, sizeof self->path - 1);

	self->path[n > 0 && stat("/proc/self/exe", &self->st) == 0 ? n : 0] = 0;
}

/* Whether gpumem-run lies below the folder. */
static bool library_is_above(const struct library_self *self, const char *folder)
{
	size_t n = strlen(folder);

	return strncmp(self->path, folder, n) == 0 && self->path[n] == '/';
}

static const char *library_objection(const struct library_self *self, const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? "is not there" : "cannot be looked at";
	bool known = self->path[0];
	bool folder = S_ISDIR(st.st_mode);
	if (!folder && !S_ISREG(st.st_mode))
		return "is no regular file";
	if (st.st_uid != 0 && st.st_uid != geteuid() && !(known && st.st_uid == self->st.st_uid))
		return "belongs to another user";
	/* In /tmp, nobody exchanges what belongs to others. */
	if (st.st_mode & S_IWOTH && !(folder && st.st_mode & S_ISVTX))
		return "can be changed by all users";
	if (st.st_mode & S_IWGRP && !(folder && st.st_mode & S_ISVTX) && st.st_gid != 0 &&
		st.st_gid != getegid() && !(known && st.st_gid == self->st.st_gid))
		return "can be changed by a group";
	return NULL;
}

const char *gm_run_library_distrusts(const char *path, char why[GM_RUN_LIBRARY_WHY])
{
	struct library_self self;
	char part[PATH_MAX];

	library_find_self(&self);
	for (size_t n = 0; path[n];) {
		n += 1 + strcspn(path + n + 1, "/");
		if (n >= sizeof part)
			return strerror(ENAMETOOLONG);
		memcpy(part, path, n);
		part[n] = 0;
		const char *objection =
			library_is_above(&self, part) ? NULL : library_objection(&self, part);
		if (objection) {
			snprintf(
				why, GM_RUN_LIBRARY_WHY, "%s %s", path[n] ? part : "it", objection);
			return why;
		}
	}
	return NULL;
}
