/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The place where the daemon listens. A daemon holds a lock beside the socket for as long as it
 * lives. The daemon that gets the lock tries to connect to an existing socket, because a daemon
 * started by socket activation takes no lock. If nobody answers, a dead daemon left the socket. It
 * must never remove anything but a socket, and at the end only the one that it made itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/arith.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/text/uid_name.h"
#include "common/wire/seqpacket.h"
#include "daemon/net/listener_socket.h"

#define GM_LISTENER_SOCKET_BACKLOG 1024
/* Maximum time to wait for the end of a daemon that has the path, and how often to look, in ms. */
#define GM_LISTENER_SOCKET_CLAIM_MS 1000
#define GM_LISTENER_SOCKET_LOOK_MS  20
/* Bytes of a program's name, as the kernel has it. */
#define LISTENER_SOCKET_PROGRAM 32

/* Says that something failed with errno. */
static int listener_socket_fail(const char *what, char why[GM_LISTENER_SOCKET_WHY])
{
	int error = errno;
	snprintf(why, GM_LISTENER_SOCKET_WHY, "%.400s: %s", what, strerror(error));
	return -error;
}

static void listener_socket_reset(struct gm_listener_socket *endpoint)
{
	memset(endpoint, 0, sizeof(*endpoint));
	endpoint->socket = -1;
	endpoint->lock = -1;
}

/* Returns whether a keeper of this user listens in the folder. */
static bool listener_socket_has_own_keeper(const char *folder)
{
	char path[GM_PATH_BYTES];
	GM_AUTO_FD int fd = -1;
	struct ucred who;
	socklen_t n = sizeof(who);

	snprintf(path, sizeof(path), "%.4000s/keeper", folder);
	return gm_seqpacket_connect(path, 0, &fd) == 0 &&
	       getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 && who.uid == geteuid();
}

/* Says why the folder of a default path cannot be used, and what to do about it. */
static void listener_socket_refuse_folder(
	const char *folder, const struct stat *st, char why[GM_LISTENER_SOCKET_WHY])
{
	const struct passwd *user = getpwuid(st->st_uid);
	const struct group *group = getgrgid(st->st_gid);
	uid_t own = geteuid();

	/* In /tmp, nobody but that user and root can remove it, or give it to somebody else. */
	if (own != 0 && st->st_uid != own)
		snprintf(why, GM_LISTENER_SOCKET_WHY,
			"%.150s belongs to uid %u, and only that user and root can change that; listen "
			"elsewhere: 'mkdir -p -m 700 ~/.gpumemd; gpumemd --socket ~/.gpumemd/socket', "
			"and let clients find it: 'export GPUMEM_SOCKET=~/.gpumemd/socket'",
			folder, st->st_uid);
	else if (!S_ISDIR(st->st_mode))
		snprintf(why, GM_LISTENER_SOCKET_WHY, "%.200s is not a folder; remove it", folder);
	else if (st->st_mode & (S_IWGRP | S_IWOTH))
		snprintf(why, GM_LISTENER_SOCKET_WHY,
			"other users can write to the folder %.150s; run 'chmod go-w %.150s'",
			folder, folder);
	else if (listener_socket_has_own_keeper(folder))
		snprintf(why, GM_LISTENER_SOCKET_WHY,
			"the folder %.150s belongs to uid %u, and the keeper in it to root: to take over "
			"what clients hold, run 'chown root: %.150s', then gpumemd again",
			folder, st->st_uid, folder);
	else if (user && group)
		/* That user could replace the files that root makes and changes there. */
		snprintf(why, GM_LISTENER_SOCKET_WHY,
			"the folder %.150s belongs to the user %.32s; run gpumemd as that user: 'setpriv "
			"--reuid %.32s --regid %.32s --init-groups gpumemd'",
			folder, user->pw_name, user->pw_name, group->gr_name);
	else
		snprintf(why, GM_LISTENER_SOCKET_WHY,
			"the folder %.150s belongs to uid %u; it must belong to uid %u: change its "
			"owner, or choose another place with --socket",
			folder, st->st_uid, geteuid());
}

/* The system's folder is missing, or belongs to root as a daemon that root had started leaves it, and this user of the
 * system may not write there: says how to give the user its folder. */
static bool listener_socket_refuse_system(const char *folder, char why[GM_LISTENER_SOCKET_WHY])
{
	const struct passwd *user = getpwuid(geteuid());
	const struct group *group = getgrgid(getegid());
	struct stat st;

	if (strcmp(folder, GM_SYSTEM_FOLDER) || geteuid() >= GM_PATH_USER_UIDS || !user || !group)
		return false;
	bool missing = lstat(folder, &st) < 0;
	if (!missing && st.st_uid != 0)
		return false;
	snprintf(why, GM_LISTENER_SOCKET_WHY,
		"the folder %s %s, and the user %.32s may not %s; run as root 'install -d -o %.32s "
		"-g %.32s %s'",
		folder, missing ? "does not exist" : "belongs to root", user->pw_name,
		missing ? "make it" : "write in it", user->pw_name, group->gr_name, folder);
	return true;
}

/* Says why the folder of a default path cannot be made. */
static int listener_socket_refuse_to_make(
	const char *folder, int error, char why[GM_LISTENER_SOCKET_WHY])
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	size_t n = runtime ? strlen(runtime) : 0;

	if (error == ENOENT && n && strncmp(folder, runtime, n) == 0)
		snprintf(why, GM_LISTENER_SOCKET_WHY,
			"XDG_RUNTIME_DIR names %.200s, which does not exist: unset it, or use --socket",
			runtime);
	else if (error != EACCES || !listener_socket_refuse_system(folder, why))
		snprintf(why, GM_LISTENER_SOCKET_WHY, "%.400s: %s", folder, strerror(error));
	return -error;
}

/* Makes the folder of a default path if it is missing. Refuses one that others can write to. */
static int listener_socket_make_folder(
	const char *path, mode_t mode, char why[GM_LISTENER_SOCKET_WHY])
{
	char folder[GM_PATH_BYTES];
	snprintf(folder, sizeof(folder), "%s", path);
	char *slash = strrchr(folder, '/');
	if (!slash || slash == folder)
		return 0;

	*slash = '\0';

	if (mkdir(folder, mode) < 0 && errno != EEXIST)
		return listener_socket_refuse_to_make(folder, errno, why);

	struct stat st;
	if (lstat(folder, &st) < 0)
		return listener_socket_fail(folder, why);
	if (!S_ISDIR(st.st_mode) || (st.st_uid != geteuid() && st.st_uid != 0) ||
		(st.st_mode & (S_IWGRP | S_IWOTH))) {
		listener_socket_refuse_folder(folder, &st, why);
		return -EPERM;
	}
	return 0;
}

static int listener_socket_choose_path(
	struct gm_listener_socket *endpoint, const char *path, char why[GM_LISTENER_SOCKET_WHY])
{
	size_t n = strlen(path);
	bool user = geteuid() >= GM_PATH_USER_UIDS;
	if (n > GM_BOUND_SOCKET_PATH_BYTES) {
		snprintf(why, GM_LISTENER_SOCKET_WHY,
			"the socket's path is %zu bytes long; at most %d are possible: %.200s", n,
			GM_BOUND_SOCKET_PATH_BYTES, path);
		return -ENAMETOOLONG;
	}
	if (n) {
		strcpy(endpoint->path, path);
		return 0;
	}
	if (user) {
		int r = gm_path_user_socket(geteuid(), endpoint->path);
		if (r < 0 || strlen(endpoint->path) > GM_BOUND_SOCKET_PATH_BYTES) {
			snprintf(why, GM_LISTENER_SOCKET_WHY,
				"the path of the user's socket is too long; shorten XDG_RUNTIME_DIR");
			return -ENAMETOOLONG;
		}
	} else {
		strcpy(endpoint->path, GM_SYSTEM_SOCKET);
	}
	return listener_socket_make_folder(endpoint->path, user ? 0700 : 0755, why);
}

static void listener_socket_fill_address(const char *path, struct sockaddr_un *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->sun_family = AF_UNIX;
	/* The caller has checked the length. */
	memcpy(ret->sun_path, path, strnlen(path, sizeof(ret->sun_path) - 1));
}

/* The process that listens on the socket, whether it answers or hangs. 0: nobody knows. */
static pid_t listener_socket_find_listener(const char *path)
{
	struct sockaddr_un address;
	struct ucred who;
	socklen_t n = sizeof(who);
	GM_AUTO_FD int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	listener_socket_fill_address(path, &address);
	if (probe < 0 || connect(probe, (struct sockaddr *)&address, sizeof(address)) < 0 ||
		getsockopt(probe, SOL_SOCKET, SO_PEERCRED, &who, &n) < 0)
		return 0;
	return who.pid;
}

/* Reads the user and the program of a process. Returns whether it is gpumemd. */
static bool listener_socket_look_at(
	pid_t pid, char user[GM_UID_NAME_TEXT], char program[LISTENER_SOCKET_PROGRAM])
{
	char path[64];
	struct stat st;

	snprintf(user, GM_UID_NAME_TEXT, "another user");
	snprintf(program, LISTENER_SOCKET_PROGRAM, "a program");
	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	if (stat(path, &st) == 0)
		gm_uid_name_say(st.st_uid, user);
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	FILE *file = fopen(path, "re");
	if (!file)
		return false;
	if (fgets(program, LISTENER_SOCKET_PROGRAM, file))
		program[strcspn(program, "\n")] = '\0';
	fclose(file);
	return strcmp(program, "gpumemd") == 0;
}

/* Nobody listens, and a process has the lock. holder: as gm_path_lock_holder() says. */
static void listener_socket_refuse_locked(
	const char *path, pid_t holder, char why[GM_LISTENER_SOCKET_WHY])
{
	char user[GM_UID_NAME_TEXT], program[LISTENER_SOCKET_PROGRAM];

	if (holder <= 0)
		snprintf(why, GM_LISTENER_SOCKET_WHY,
			"a process that cannot be seen from here holds the lock %.150s.lock; as root, "
			"outside of containers, 'fuser -v %.150s.lock' shows it: end it, or use --socket "
			"with another path",
			path, path);
	else if (listener_socket_look_at(holder, user, program))
		snprintf(why, GM_LISTENER_SOCKET_WHY,
			"another gpumemd (pid %d, %s) has %.200s, but somebody has removed the socket, so "
			"that no client can connect; run 'kill %d', then start gpumemd again: what "
			"clients hold waits for it",
			(int)holder, user, path, (int)holder);
	else
		snprintf(why, GM_LISTENER_SOCKET_WHY,
			"%s (pid %d, %s), which is no gpumemd, holds the lock %.180s.lock; end it with "
			"'kill %d' as %s or as root, or use --socket with another path",
			program, (int)holder, user, path, (int)holder, user);
}

static int listener_socket_refuse_second(const char *path, char why[GM_LISTENER_SOCKET_WHY])
{
	pid_t pid = listener_socket_find_listener(path);
	char whose[32] = "";

	if (pid > 0)
		snprintf(whose, sizeof(whose), " (pid %d)", (int)pid);
	if (!pid)
		listener_socket_refuse_locked(path, gm_path_lock_holder(path), why);
	else
		snprintf(why, GM_LISTENER_SOCKET_WHY,
			"another gpumemd%s already listens on %.150s; 'gpumemctl status --socket %.150s' "
			"shows whether it answers",
			whose, path, path);
	return -EADDRINUSE;
}

/* Says why this user cannot make files in the folder of the socket. */
static int listener_socket_refuse_path(const char *path, char why[GM_LISTENER_SOCKET_WHY])
{
	bool default_path = strcmp(path, GM_SYSTEM_SOCKET) == 0;

	if (default_path && listener_socket_find_listener(path))
		(void)listener_socket_refuse_second(path, why);
	else if (!default_path || !listener_socket_refuse_system(GM_SYSTEM_FOLDER, why))
		snprintf(why, GM_LISTENER_SOCKET_WHY,
			"cannot listen on %.300s: you may not write in its folder, or another "
			"user's daemon has it; use --socket with another path",
			path);
	return -EACCES;
}

/* Keeps other daemons from this path until this one ends. */
static int listener_socket_take_lock(
	struct gm_listener_socket *endpoint, char why[GM_LISTENER_SOCKET_WHY])
{
	char name[GM_PATH_BYTES + 8];
	snprintf(name, sizeof(name), "%s.lock", endpoint->path);
	for (;;) {
		GM_AUTO_FD int fd =
			open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
		if (fd < 0 && errno == ENOENT) {
			snprintf(why, GM_LISTENER_SOCKET_WHY,
				"cannot listen on %.400s: its folder does not exist; make it first",
				endpoint->path);
			return -ENOENT;
		}
		if (fd < 0 && errno == EACCES)
			return listener_socket_refuse_path(endpoint->path, why);
		if (fd < 0)
			return listener_socket_fail(name, why);
		if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
			if (errno != EWOULDBLOCK)
				return listener_socket_fail(name, why);
			return listener_socket_refuse_second(endpoint->path, why);
		}

		/* The daemon before may have removed the file between open() and flock(). */
		struct stat locked, named;
		if (fstat(fd, &locked) == 0 && lstat(name, &named) == 0 &&
			locked.st_dev == named.st_dev && locked.st_ino == named.st_ino) {
			endpoint->lock = gm_steal_fd(&fd);
			return 0;
		}
	}
}

static void listener_socket_drop_lock(struct gm_listener_socket *endpoint)
{
	char name[GM_PATH_BYTES + 8];
	if (endpoint->lock < 0)
		return;
	snprintf(name, sizeof(name), "%s.lock", endpoint->path);
	unlink(name); /* while the lock is still held */
	endpoint->lock = gm_close(endpoint->lock);
}

/* Removes the socket of a dead daemon. Returns -EADDRINUSE if somebody listens on it. */
static int listener_socket_clear_path(const char *path, char why[GM_LISTENER_SOCKET_WHY])
{
	struct stat st;
	if (lstat(path, &st) < 0) {
		int error = errno;
		if (error == ENOENT)
			return 0;
		snprintf(why, GM_LISTENER_SOCKET_WHY, "%.400s: %s", path, strerror(error));
		return -error;
	}
	if (!S_ISSOCK(st.st_mode)) {
		snprintf(why, GM_LISTENER_SOCKET_WHY,
			"%.400s exists and is not a socket; remove it", path);
		return -EEXIST;
	}

	struct sockaddr_un address;
	listener_socket_fill_address(path, &address);
	GM_AUTO_FD int probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (probe < 0)
		return listener_socket_fail("socket", why);

	/* Only ECONNREFUSED says that nobody listens. A full queue or a socket of another type
	 * belongs to somebody. */
	if (connect(probe, (struct sockaddr *)&address, sizeof(address)) == 0 ||
		errno != ECONNREFUSED) {
		snprintf(why, GM_LISTENER_SOCKET_WHY, "another program already listens on %.400s",
			path);
		return -EADDRINUSE;
	}

	if (unlink(path) < 0 && errno != ENOENT)
		return listener_socket_fail(path, why);
	return 0;
}

static int listener_socket_set_owner(
	const char *path, mode_t mode, const char *group, char why[GM_LISTENER_SOCKET_WHY])
{
	if (*group) {
		struct group *found = getgrnam(group);
		if (!found) {
			snprintf(why, GM_LISTENER_SOCKET_WHY, "socket_group: there is no group %s",
				group);
			return -ENOENT;
		}
		if (chown(path, (uid_t)-1, found->gr_gid) < 0) {
			int error = errno;
			snprintf(why, GM_LISTENER_SOCKET_WHY,
				"socket_group: %.200s cannot be given to the group %s: %s; make the "
				"daemon's user a member of that group, or leave out the key",
				path, group, strerror(error));
			return -error;
		}
	}

	if (chmod(path, mode) < 0)
		return listener_socket_fail(path, why);
	return 0;
}

/*
 * Until endpoint_listen(), nobody can connect, whatever the mode. So the socket begins with a mode that
 * denies nobody: a client that tries in between must hear that no daemon listens, not that it may not
 * use the socket.
 */
static int listener_socket_bind(
	struct gm_listener_socket *endpoint, char why[GM_LISTENER_SOCKET_WHY])
{
	struct sockaddr_un address;
	struct stat st;
	listener_socket_fill_address(endpoint->path, &address);
	endpoint->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (endpoint->socket < 0)
		goto failed;

	mode_t before = umask(0);
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
	gm_seqpacket_refuse_fds(endpoint->socket);
	return 0;

failed:
	return listener_socket_fail(endpoint->path, why);
}

/* The owner and the mode are set before. */
static int listener_socket_listen(
	const struct gm_listener_socket *endpoint, char why[GM_LISTENER_SOCKET_WHY])
{
	if (listen(endpoint->socket, GM_LISTENER_SOCKET_BACKLOG) < 0)
		return listener_socket_fail(endpoint->path, why);
	return 0;
}

/* Takes the lock, if it was not taken before, and removes a socket that nobody listens on. A daemon that was killed has both until the kernel has closed
 * its files, so this looks again for a while. */
static int listener_socket_claim(
	struct gm_listener_socket *endpoint, bool locked, char why[GM_LISTENER_SOCKET_WHY])
{
	uint64_t until_ns = gm_clock_ns() + GM_LISTENER_SOCKET_CLAIM_MS * GM_NS_PER_MS;
	for (;;) {
		int r = locked ? 0 : listener_socket_take_lock(endpoint, why);
		locked = r == 0;
		if (r == 0)
			r = listener_socket_clear_path(endpoint->path, why);
		if (r != -EADDRINUSE || gm_clock_ns() >= until_ns)
			return r;
		poll(NULL, 0, GM_LISTENER_SOCKET_LOOK_MS);
	}
}

int gm_listener_socket_open(struct gm_listener_socket *endpoint, const char *path, mode_t mode,
	const char *group, char why[GM_LISTENER_SOCKET_WHY])
{
	listener_socket_reset(endpoint);
	int r = listener_socket_choose_path(endpoint, path, why);
	if (r == 0)
		r = listener_socket_claim(endpoint, false, why);
	if (r == 0)
		r = listener_socket_bind(endpoint, why);
	if (r == 0)
		r = listener_socket_set_owner(endpoint->path, mode, group, why);
	if (r == 0)
		r = listener_socket_listen(endpoint, why);
	if (r < 0)
		gm_listener_socket_close(endpoint);
	return r;
}

int gm_listener_socket_open_admin(struct gm_listener_socket *endpoint,
	const struct gm_listener_socket *beside, gid_t group, char why[GM_LISTENER_SOCKET_WHY])
{
	listener_socket_reset(endpoint);
	int r = gm_path_admin_socket(beside->path, endpoint->path);
	if (r < 0) {
		snprintf(why, GM_LISTENER_SOCKET_WHY,
			"the path of the administrators' socket is too long");
		return r;
	}

	r = listener_socket_claim(endpoint, true, why); /* the other one's lock covers it */
	if (r == 0)
		r = listener_socket_bind(endpoint, why);
	if (r == 0) {
		bool given = group != (gid_t)-1 && chown(endpoint->path, (uid_t)-1, group) == 0;
		if (chmod(endpoint->path, given ? 0660 : 0600) < 0)
			r = listener_socket_fail(endpoint->path, why);
	}
	if (r == 0)
		r = listener_socket_listen(endpoint, why);
	if (r < 0)
		gm_listener_socket_close(endpoint);
	return r;
}

int gm_listener_socket_adopt(
	struct gm_listener_socket *endpoint, int socket, char why[GM_LISTENER_SOCKET_WHY])
{
	struct sockaddr_un address;
	socklen_t n = sizeof(address);
	listener_socket_reset(endpoint);
	if (getsockname(socket, (struct sockaddr *)&address, &n) < 0 ||
		fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK) < 0)
		return listener_socket_fail("the socket from the service manager", why);

	/* The kernel counts a 0 byte behind a path that fills all of it. */
	size_t length =
		gm_u64_min(n - offsetof(struct sockaddr_un, sun_path), sizeof(address.sun_path));
	if (length && address.sun_path[0]) {
		memcpy(endpoint->path, address.sun_path, length);
		endpoint->path[length] = '\0';
	} else {
		strcpy(endpoint->path, "(passed, without a path)");
	}

	gm_seqpacket_refuse_fds(socket);
	endpoint->socket = socket;
	return 0;
}

void gm_listener_socket_close(struct gm_listener_socket *endpoint)
{
	struct stat st;
	if (endpoint->own && lstat(endpoint->path, &st) == 0 && st.st_dev == endpoint->device &&
		st.st_ino == endpoint->inode)
		unlink(endpoint->path);
	endpoint->own = false;
	endpoint->socket = gm_close(endpoint->socket);
	listener_socket_drop_lock(endpoint);
}
