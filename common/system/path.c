/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Where daemons listen. This file creates nothing and connects to nothing. It trusts a user's
 * socket only in a folder that no other user could have created, because anybody can write to /tmp.
 * It ignores the environment in programs that have more rights than the user who started them.
 */

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/system/path.h"

static int path_fits(int n)
{
	return n < 0 || n >= GM_PATH_BYTES ? -ENAMETOOLONG : 0;
}

int gm_path_user_socket(uid_t uid, char path[GM_PATH_BYTES])
{
	const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
	char made[GM_PATH_BYTES];
	int r;

	/* The variable's specification says that a relative path is to be ignored. */
	if (runtime && runtime[0] == '/')
		r = path_fits(snprintf(made, sizeof(made), "%s/gpumemd/socket", runtime));
	else
		r = path_fits(snprintf(
			made, sizeof(made), "/tmp/gpumemd-%lu/socket", (unsigned long)uid));
	if (r < 0)
		return r;
	strcpy(path, made);
	return 0;
}

static const char not_there[] = "not there";

static const char *path_why_not_found(void)
{
	return errno == EACCES || errno == EPERM ? "not permitted" : not_there;
}

/* Why the socket is not used, or NULL: the socket or its keeper's must exist, in a folder that only the user or root can
 * change. */
static const char *path_objection(const char *path, uid_t uid)
{
	char folder[GM_PATH_BYTES];
	struct stat st;

	strcpy(folder, path);
	*strrchr(folder, '/') = '\0';
	if (lstat(folder, &st) < 0)
		return path_why_not_found();
	if (!S_ISDIR(st.st_mode))
		return "not in a folder";
	if (st.st_uid != uid && st.st_uid != 0)
		return "not trusted, its folder belongs to another user";
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return "not trusted, others can write to its folder";
	if (lstat(path, &st) == 0)
		return NULL;
	const char *why = path_why_not_found();
	return gm_path_keeper_socket(path, folder) == 0 && lstat(folder, &st) == 0 ? NULL : why;
}

/*
 * Writes a place where a user's own daemon may listen. Returns -ENOENT past the last one. The first place is that of a daemon
 * with this environment. The others are those of a login session and of a process without one: su, cron and ssh
 * give a process another XDG_RUNTIME_DIR than the user's daemon has, or none.
 */
static int path_user_place(uid_t uid, unsigned place, char path[GM_PATH_BYTES])
{
	switch (place) {
	case 0:
		return gm_path_user_socket(uid, path);
	case 1:
		return path_fits(snprintf(
			path, GM_PATH_BYTES, "/run/user/%lu/gpumemd/socket", (unsigned long)uid));
	case 2:
		return path_fits(snprintf(
			path, GM_PATH_BYTES, "/tmp/gpumemd-%lu/socket", (unsigned long)uid));
	default:
		return -ENOENT;
	}
}

bool gm_path_find_user_socket(uid_t uid, char path[GM_PATH_BYTES])
{
	char users[GM_PATH_BYTES];
	int r;

	for (unsigned i = 0; (r = path_user_place(uid, i, users)) != -ENOENT; i++) {
		if (r < 0 || path_objection(users, uid))
			continue;
		strcpy(path, users);
		return true;
	}
	return false;
}

static const char users_daemon[] = "the user's daemon", systems_daemon[] = "the system's daemon";

int gm_path_client_socket(char path[GM_PATH_BYTES], const char **ret_why)
{
	const char *named = secure_getenv("GPUMEM_SOCKET");

	if (named && named[0]) {
		if (strlen(named) >= GM_PATH_BYTES)
			return -ENAMETOOLONG;
		strcpy(path, named);
		*ret_why = "GPUMEM_SOCKET";
		return 0;
	}

	if (gm_path_find_user_socket(geteuid(), path)) {
		*ret_why = users_daemon;
		return 0;
	}

	strcpy(path, GM_SYSTEM_SOCKET);
	*ret_why = systems_daemon;
	return 0;
}

/* Adds the places of a user's socket: the first one, and of the others those where there is something that is not used. */
static void path_say_user_places(uid_t uid, char text[GM_PATH_OTHER_BYTES])
{
	char path[GM_PATH_BYTES], first[GM_PATH_BYTES] = "";
	size_t n = 0;
	int r;

	for (unsigned i = 0; (r = path_user_place(uid, i, path)) != -ENOENT; i++) {
		const char *objection = r < 0 ? not_there : path_objection(path, uid);

		if (r < 0 || (i > 0 && (objection == not_there || !strcmp(path, first))))
			continue;
		if (i == 0)
			strcpy(first, path);
		n += (size_t)snprintf(text + n, GM_PATH_OTHER_BYTES - n, "; %s %.*s (%s): %s",
			n ? "and at" : "also looked at", GM_BOUND_SOCKET_PATH_BYTES, path,
			users_daemon, objection ? objection : "there only now, try again");
	}
}

const char *gm_path_other(const char *why, char text[GM_PATH_OTHER_BYTES])
{
	struct stat st;

	*text = '\0';
	if (!strcmp(why, users_daemon)) {
		snprintf(text, GM_PATH_OTHER_BYTES, "; " GM_SYSTEM_SOCKET " (%s): %s",
			systems_daemon,
			lstat(GM_SYSTEM_SOCKET, &st) == 0
				? "not tried, set GPUMEM_SOCKET to this path to use it"
				: path_why_not_found());
	} else if (!strcmp(why, systems_daemon)) {
		path_say_user_places(geteuid(), text);
	}
	return text;
}

/* The path of a socket beside another one: the word in place of "socket", else added to its name. */
static int path_beside(const char *socket, const char *word, char path[GM_PATH_BYTES])
{
	const char *slash = strrchr(socket, '/');
	const char *name = slash ? slash + 1 : socket;

	return strcmp(name, "socket") == 0
		       ? snprintf(path, GM_PATH_BYTES, "%.*s%s", (int)(name - socket), socket, word)
		       : snprintf(path, GM_PATH_BYTES, "%s.%s", socket, word);
}

int gm_path_admin_socket(const char *socket, char path[GM_PATH_BYTES])
{
	char made[GM_PATH_BYTES];
	int n = path_beside(socket, "admin", made);

	if (n < 0 || n > GM_BOUND_SOCKET_PATH_BYTES)
		return -ENAMETOOLONG;
	strcpy(path, made);
	return 0;
}

int gm_path_keeper_socket(const char *socket, char path[GM_PATH_BYTES])
{
	char made[GM_PATH_BYTES];
	int r = path_fits(path_beside(socket, "keeper", made));

	if (r == 0)
		strcpy(path, made);
	return r;
}

/* The inode of the host's pid namespace, which the kernel has fixed. */
#define PATH_HOST_PID_NS UINT64_C(0xeffffffc)

pid_t gm_path_lock_holder(const char *socket)
{
	char name[GM_PATH_BYTES], line[256];
	struct stat st, ns;
	unsigned long long inode;
	unsigned major_number, minor_number;
	pid_t pid, holder = 0;

	if (path_fits(snprintf(name, sizeof(name), "%s.lock", socket)) < 0)
		return -1;
	if (stat(name, &st) < 0)
		return errno == ENOENT ? 0 : -1;
	FILE *locks = fopen("/proc/locks", "re");
	if (!locks || stat("/proc/self/ns/pid", &ns) < 0 || ns.st_ino != PATH_HOST_PID_NS)
		holder = -1;
	while (locks && holder <= 0 && fgets(line, sizeof(line), locks)) {
		if (sscanf(line, "%*d: FLOCK %*s WRITE %d %x:%x:%llu", &pid, &major_number,
			    &minor_number, &inode) != 4 ||
			inode != st.st_ino)
			continue;
		/* Some file systems show another device there than stat() does. */
		bool same = makedev(major_number, minor_number) == st.st_dev;
		holder = same && pid > 0 ? pid : -1;
	}
	if (locks)
		fclose(locks);
	return holder;
}
