/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the keeper. Whoever else could listen in its place would be given every client's memory, so
 * both the socket and the process at its other end must belong to this user or to root.
 */
#include "daemon/store/store_find.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/bounds.h"
#include "common/system/pid_ns.h"
#include "common/text/uid_name.h"

/* Refuses the keeper of another user. Names what keeps the memory first: a daemon of that user, which must have the folder. */
static int store_find_refuse(
	const char *path, const char *what, uid_t uid, char why[GM_STORE_FIND_WHY])
{
	char owner[GM_UID_NAME_TEXT], own[GM_UID_NAME_TEXT], give[160] = "", number[16];
	const char *slash = strrchr(path, '/');
	GM_AUTO_FREE char *folder = strndup(path, slash ? (size_t)(slash - path) : 0);
	struct stat st;

	snprintf(number, sizeof(number), "%u", (unsigned int)uid);
	if (folder && *folder && stat(folder, &st) == 0 && st.st_uid != uid)
		snprintf(give, sizeof(give), ", after 'chown %s: %.120s'", uid ? number : "root",
			folder);
	snprintf(why, GM_STORE_FIND_WHY,
		"%.160s: %s belongs to the %s (uid %u), and this daemon runs as the %s; run the daemon as that user (User= of its unit)%s; or end the keeper and remove the socket, which gives up what clients hold",
		path, what, gm_uid_name_say(uid, owner), (unsigned int)uid,
		gm_uid_name_say(geteuid(), own), give);
	return -EPERM;
}

static bool store_find_is_ours(uid_t uid)
{
	return uid == geteuid() || uid == 0;
}

/* Opens the socket's folder, so that its path may be longer than a socket's address. */
static int store_find_folder(const char *path, int *ret_folder, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	GM_AUTO_FREE char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
	if (!folder)
		return -ENOMEM;
	int fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_folder = fd;
	*ret_name = slash ? slash + 1 : path;
	return 0;
}

static int store_find_connect(int folder, const char *name, int *ret_socket)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int n = snprintf(
		address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", folder, name);
	if (n < 0 || (size_t)n >= sizeof(address.sun_path))
		return -ENAMETOOLONG;

	GM_AUTO_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	while (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		if (errno != EINTR)
			return -errno;
	*ret_socket = gm_steal_fd(&fd);
	return 0;
}

int gm_store_find(const char *path, int *ret_socket, pid_t *ret_pid, char why[GM_STORE_FIND_WHY])
{
	GM_AUTO_FD int folder = -1;
	GM_AUTO_FD int fd = -1;
	const char *name = NULL;
	struct stat st;
	struct ucred who;
	socklen_t n = sizeof(who);

	int r = store_find_folder(path, &folder, &name);
	if (r == 0 && fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	if (r == 0 && !store_find_is_ours(st.st_uid))
		return store_find_refuse(path, "the keeper's socket", st.st_uid, why);
	if (r == 0) {
		r = store_find_connect(folder, name, &fd);
		if (r == -EACCES && st.st_uid != geteuid())
			return store_find_refuse(path, "the keeper's socket", st.st_uid, why);
	}
	if (r < 0) {
		snprintf(why, GM_STORE_FIND_WHY, "%.300s: no keeper listens there: %s", path,
			strerror(-r));
		return r;
	}

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) < 0)
		return -errno;
	if (!store_find_is_ours(who.uid))
		return store_find_refuse(path, "the process that listens", who.uid, why);
	r = gm_pid_ns_is_own(who.pid, 0);
	if (r < 0) {
		snprintf(why, GM_STORE_FIND_WHY,
			"%.300s: cannot tell whether the process that listens is in a container: %s",
			path, strerror(-r));
		return r;
	}
	if (r == 0) {
		snprintf(why, GM_STORE_FIND_WHY,
			"%.300s: the process that listens is in a container; end it and remove the socket",
			path);
		return -EPERM;
	}
	*ret_socket = gm_steal_fd(&fd);
	*ret_pid = who.pid;
	return 0;
}

int gm_store_find_start(const char *program, const char *path, pid_t *ret_pid)
{
	char *const argv[] = {(char *)"gpumem-keeper", (char *)"--background", (char *)"--socket",
		(char *)path, NULL};
	posix_spawnattr_t attributes;
	sigset_t none, all;

	/* Signals are as for any new program, whatever this process blocks or ignores. */
	sigemptyset(&none);
	sigfillset(&all);
	sigdelset(&all, SIGKILL);
	sigdelset(&all, SIGSTOP);
	int r = posix_spawnattr_init(&attributes);
	if (r)
		return -r;
	posix_spawnattr_setflags(
		&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);
	r = posix_spawn(ret_pid, program, NULL, &attributes, argv, environ);
	posix_spawnattr_destroy(&attributes);
	return -r;
}
