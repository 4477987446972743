/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The place where the daemon listens. A lock beside the socket decides between daemons, for as long
 * as one lives; under it, a connect() tells a socket that somebody answers on (a daemon started by
 * socket activation takes no lock) from one that a dead daemon left. Only a socket is ever removed,
 * and at the end only if it is still the one that was made here.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "daemon/net/endpoint.h"

#define GM_ENDPOINT_BACKLOG 1024
/* As Debian's SYS_UID_MAX: below are root and system users, who run the host's daemon. */
#define GM_ENDPOINT_USER_UIDS 1000

static void endpoint_reset(struct gm_endpoint *endpoint)
{
	memset(endpoint, 0, sizeof(*endpoint));
	endpoint->socket = -1;
	endpoint->lock = -1;
}

/* The folder of a default path: made if it is missing, and refused if it is not ours alone. */
static int endpoint_make_folder(const char *path, mode_t mode, char why[GM_ENDPOINT_WHY])
{
	char folder[GM_PATH_BYTES];
	snprintf(folder, sizeof(folder), "%s", path);
	char *slash = strrchr(folder, '/');
	if (!slash || slash == folder)
		return 0;
	*slash = '\0';
	if (mkdir(folder, mode) < 0 && errno != EEXIST) {
		int error = errno;
		snprintf(why, GM_ENDPOINT_WHY, "%.400s: %s", folder, strerror(error));
		return -error;
	}
	struct stat st;
	if (lstat(folder, &st) < 0) {
		int error = errno;
		snprintf(why, GM_ENDPOINT_WHY, "%.400s: %s", folder, strerror(error));
		return -error;
	}
	if (!S_ISDIR(st.st_mode) || (st.st_uid != geteuid() && st.st_uid != 0) ||
		(st.st_mode & (S_IWGRP | S_IWOTH))) {
		snprintf(why, GM_ENDPOINT_WHY,
			"%.400s must be a folder that belongs to uid %u and that nobody else can "
			"write",
			folder, geteuid());
		return -EPERM;
	}
	return 0;
}

static int endpoint_choose_path(
	struct gm_endpoint *endpoint, const char *path, char why[GM_ENDPOINT_WHY])
{
	size_t n = strlen(path);
	bool user = geteuid() >= GM_ENDPOINT_USER_UIDS;
	if (n > GM_LIMIT_SOCKET_PATH_BYTES) {
		snprintf(why, GM_ENDPOINT_WHY,
			"the socket's path is %zu bytes long, at most %d are possible: %.200s", n,
			GM_LIMIT_SOCKET_PATH_BYTES, path);
		return -ENAMETOOLONG;
	}
	if (n) {
		strcpy(endpoint->path, path);
		return 0;
	}
	if (user) {
		int r = gm_path_user_socket(geteuid(), endpoint->path);
		if (r < 0 || strlen(endpoint->path) > GM_LIMIT_SOCKET_PATH_BYTES) {
			snprintf(why, GM_ENDPOINT_WHY,
				"the path of the user's socket is too long (XDG_RUNTIME_DIR)");
			return -ENAMETOOLONG;
		}
	} else {
		strcpy(endpoint->path, GM_SYSTEM_SOCKET);
	}
	return endpoint_make_folder(endpoint->path, user ? 0700 : 0755, why);
}

/* Until we end, nobody else takes this path. */
static int endpoint_take_lock(struct gm_endpoint *endpoint, char why[GM_ENDPOINT_WHY])
{
	char name[GM_PATH_BYTES + 8];
	snprintf(name, sizeof(name), "%s.lock", endpoint->path);
	for (;;) {
		GM_AUTO_FD int fd =
			open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
		if (fd < 0) {
			int error = errno;
			snprintf(why, GM_ENDPOINT_WHY, "%.400s: %s", name, strerror(error));
			return -error;
		}
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			int error = errno;
			if (error == EWOULDBLOCK)
				snprintf(why, GM_ENDPOINT_WHY,
					"another gpumemd already listens on %.400s",
					endpoint->path);
			else
				snprintf(why, GM_ENDPOINT_WHY, "%.400s: %s", name, strerror(error));
			return error == EWOULDBLOCK ? -EADDRINUSE : -error;
		}
		/* The one before may have removed the file between our open and our lock. */
		struct stat locked, named;
		if (fstat(fd, &locked) == 0 && lstat(name, &named) == 0 &&
			locked.st_dev == named.st_dev && locked.st_ino == named.st_ino) {
			endpoint->lock = gm_steal_fd(&fd);
			return 0;
		}
	}
}

static void endpoint_drop_lock(struct gm_endpoint *endpoint)
{
	char name[GM_PATH_BYTES + 8];
	if (endpoint->lock < 0)
		return;
	snprintf(name, sizeof(name), "%s.lock", endpoint->path);
	unlink(name); /* while it is still locked */
	endpoint->lock = gm_close(endpoint->lock);
}

static void endpoint_fill_address(const char *path, struct sockaddr_un *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->sun_family = AF_UNIX;
	/* Its length was checked. */
	memcpy(ret->sun_path, path, strnlen(path, sizeof(ret->sun_path) - 1));
}

/* Removes what a dead daemon left. -EADDRINUSE: somebody is there. */
static int endpoint_clear_path(const char *path, char why[GM_ENDPOINT_WHY])
{
	struct stat st;
	if (lstat(path, &st) < 0) {
		int error = errno;
		if (error == ENOENT)
			return 0;
		snprintf(why, GM_ENDPOINT_WHY, "%.400s: %s", path, strerror(error));
		return -error;
	}
	if (!S_ISSOCK(st.st_mode)) {
		snprintf(why, GM_ENDPOINT_WHY, "%.400s is in the way and is no socket", path);
		return -EEXIST;
	}
	struct sockaddr_un address;
	endpoint_fill_address(path, &address);
	GM_AUTO_FD int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (probe < 0) {
		int error = errno;
		snprintf(why, GM_ENDPOINT_WHY, "socket: %s", strerror(error));
		return -error;
	}
	/* Only a refusal says that nobody listens; a full queue or a socket of another type is
	 * somebody's. */
	if (connect(probe, (struct sockaddr *)&address, sizeof(address)) == 0 ||
		errno != ECONNREFUSED) {
		snprintf(why, GM_ENDPOINT_WHY, "another program already listens on %.400s", path);
		return -EADDRINUSE;
	}
	if (unlink(path) < 0 && errno != ENOENT) {
		int error = errno;
		snprintf(why, GM_ENDPOINT_WHY, "%.400s: %s", path, strerror(error));
		return -error;
	}
	return 0;
}

static int endpoint_set_owner(
	const char *path, mode_t mode, const char *group, char why[GM_ENDPOINT_WHY])
{
	if (*group) {
		struct group *found = getgrnam(group);
		if (!found) {
			snprintf(why, GM_ENDPOINT_WHY, "socket_group: there is no group %s", group);
			return -ENOENT;
		}
		if (chown(path, (uid_t)-1, found->gr_gid) < 0) {
			int error = errno;
			snprintf(why, GM_ENDPOINT_WHY, "%.400s: group %s: %s", path, group,
				strerror(error));
			return -error;
		}
	}
	if (chmod(path, mode) < 0) {
		int error = errno;
		snprintf(why, GM_ENDPOINT_WHY, "%.400s: %s", path, strerror(error));
		return -error;
	}
	return 0;
}

static int endpoint_bind_and_listen(
	struct gm_endpoint *endpoint, mode_t mode, const char *group, char why[GM_ENDPOINT_WHY])
{
	struct sockaddr_un address;
	struct stat st;
	endpoint_fill_address(endpoint->path, &address);
	endpoint->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (endpoint->socket < 0)
		goto failed;
	/* Nobody can connect before the mode is what it should be. */
	mode_t before = umask(0777);
	int r = bind(endpoint->socket, (struct sockaddr *)&address, sizeof(address));
	int error = errno;
	umask(before);
	errno = error;
	if (r < 0)
		goto failed;
	if (lstat(endpoint->path, &st) < 0)
		goto failed;
	endpoint->own = true;
	endpoint->device = st.st_dev;
	endpoint->inode = st.st_ino;
	if (listen(endpoint->socket, GM_ENDPOINT_BACKLOG) < 0)
		goto failed;
	return endpoint_set_owner(endpoint->path, mode, group, why);
failed:
	error = errno;
	snprintf(why, GM_ENDPOINT_WHY, "%.400s: %s", endpoint->path, strerror(error));
	return -error;
}

int gm_endpoint_open(struct gm_endpoint *endpoint, const char *path, mode_t mode, const char *group,
	char why[GM_ENDPOINT_WHY])
{
	endpoint_reset(endpoint);
	int r = endpoint_choose_path(endpoint, path, why);
	if (r == 0)
		r = endpoint_take_lock(endpoint, why);
	if (r == 0)
		r = endpoint_clear_path(endpoint->path, why);
	if (r == 0)
		r = endpoint_bind_and_listen(endpoint, mode, group, why);
	if (r < 0)
		gm_endpoint_close(endpoint);
	return r;
}

int gm_endpoint_adopt(struct gm_endpoint *endpoint, int socket, char why[GM_ENDPOINT_WHY])
{
	struct sockaddr_un address;
	socklen_t n = sizeof(address);
	endpoint_reset(endpoint);
	if (getsockname(socket, (struct sockaddr *)&address, &n) < 0 ||
		fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK) < 0) {
		int error = errno;
		snprintf(why, GM_ENDPOINT_WHY, "the socket passed to us: %s", strerror(error));
		return -error;
	}
	size_t length = n - offsetof(struct sockaddr_un, sun_path);
	if (length && address.sun_path[0]) {
		memcpy(endpoint->path, address.sun_path, length);
		endpoint->path[length] = '\0';
	} else {
		strcpy(endpoint->path, "(passed, without a path)");
	}
	endpoint->socket = socket;
	return 0;
}

void gm_endpoint_close(struct gm_endpoint *endpoint)
{
	struct stat st;
	if (endpoint->own && lstat(endpoint->path, &st) == 0 && st.st_dev == endpoint->device &&
		st.st_ino == endpoint->inode)
		unlink(endpoint->path);
	endpoint->own = false;
	endpoint->socket = gm_close(endpoint->socket);
	endpoint_drop_lock(endpoint);
}
