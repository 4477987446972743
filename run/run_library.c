/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at the library and at every folder above it, from the root down: nobody can exchange what lies in a folder that was found safe.
 * Whoever can change gpumem-run itself, or a folder above it, is trusted, because that code runs already.
 *
 * In a user namespace, all owners that it does not map look alike, root among them. Such an owner counts as root where nobody
 * else could have made the entry: below a folder that not everybody can write to.
 */
#include "run/run.h"

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

/* Whether the uid stands for all owners that this user namespace does not map. */
static bool library_unmapped(uid_t uid)
{
	unsigned long inside, outside, count, overflow = 65534;
	bool mapped = false;

	FILE *file = fopen("/proc/sys/kernel/overflowuid", "re");
	if (file && fscanf(file, "%lu", &overflow) != 1)
		overflow = 65534;
	if (file)
		fclose(file);
	file = fopen("/proc/self/uid_map", "re");
	if (!file)
		return false;
	while (fscanf(file, "%lu %lu %lu", &inside, &outside, &count) == 3)
		mapped |= overflow >= inside && overflow - inside < count;
	fclose(file);
	return uid == overflow && !mapped;
}

/* Whether the owner may decide what gpumem-run loads. open: everybody can write to the folder above. */
static bool library_owner_trusted(const struct library_self *self, uid_t owner, bool open)
{
	if (owner == 0 || owner == geteuid())
		return true;
	if (library_unmapped(owner))
		return !open;
	return self->path[0] && owner == self->st.st_uid;
}

static const char *library_objection(
	const struct library_self *self, const struct stat *st, bool open)
{
	bool known = self->path[0];
	bool folder = S_ISDIR(st->st_mode);

	if (!folder && !S_ISREG(st->st_mode))
		return "is no regular file";
	if (!library_owner_trusted(self, st->st_uid, open))
		return "belongs to another user";
	/* In /tmp, nobody exchanges what belongs to others. */
	if (st->st_mode & S_IWOTH && !(folder && st->st_mode & S_ISVTX))
		return "can be changed by all users";
	if (st->st_mode & S_IWGRP && !(folder && st->st_mode & S_ISVTX) && st->st_gid != 0 &&
		st->st_gid != getegid() && !(known && st->st_gid == self->st.st_gid))
		return "can be changed by a group";
	return NULL;
}

const char *gm_run_library_distrusts(const char *path, char why[GM_RUN_LIBRARY_WHY])
{
	struct library_self self;
	char part[PATH_MAX];
	struct stat st;
	bool open = false;

	library_find_self(&self);
	for (size_t n = 0; path[n];) {
		n += 1 + strcspn(path + n + 1, "/");
		if (n >= sizeof part)
			return strerror(ENAMETOOLONG);
		memcpy(part, path, n);
		part[n] = 0;
		const char *objection = NULL;
		if (lstat(part, &st) < 0)
			objection = errno == ENOENT ? "is not there" : "cannot be looked at";
		else if (!library_is_above(&self, part))
			objection = library_objection(&self, &st, open);
		if (objection) {
			snprintf(
				why, GM_RUN_LIBRARY_WHY, "%s %s", path[n] ? part : "it", objection);
			return why;
		}
		open = st.st_mode & S_IWOTH;
	}
	return NULL;
}
