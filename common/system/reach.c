/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Explains why connecting to a socket has failed. The errno alone misleads: to an ordinary user, a
 * plain file that is not writable looks like a socket that denies access, and to root like one on
 * which nobody listens. So this file looks at what has the path.
 */

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/bounds.h"
#include "common/system/path.h"
#include "common/system/reach.h"

/* It exists where systemd runs, and only there: sd_booted(3). */
#define REACH_SYSTEMD "/run/systemd/system"

/* A message shows no longer name of a user, but its number. */
#define REACH_USER_BYTES 64
/* Maximum memory of one entry of a user, in bytes. */
#define REACH_ENTRY_BYTES 4096

/* A message shows no more than so many bytes of a folder, the last ones, so that it has room for a remedy. */
#define REACH_FOLDER_BYTES 100
#define REACH_IN_BYTES     (REACH_FOLDER_BYTES + 16)

/* The folder that a relative path begins in, for messages: " (in /home/me)", or " (in .../deep/below)". Otherwise "". */
static const char *reach_begins_in(const char *path, char text[REACH_IN_BYTES])
{
	char folder[GM_PATH_BYTES];

	*text = '\0';
	if (!path[0] || path[0] == '/' || !getcwd(folder, sizeof(folder)))
		return text;

	size_t n = strlen(folder);
	const char *shown = folder;
	if (n > REACH_FOLDER_BYTES) {
		shown = folder + n - REACH_FOLDER_BYTES;
		const char *slash = strchr(shown, '/');
		if (slash)
			shown = slash;
		while ((*shown & 0xC0) == 0x80) /* not from the middle of a character */
			shown++;
	}
	snprintf(text, REACH_IN_BYTES, " (in %s%.*s)", shown == folder ? "" : "...",
		REACH_FOLDER_BYTES, shown);
	return text;
}

/* Writes the folder that the socket at the path is in. Returns folder. */
static const char *reach_folder_of(const char *path, char folder[GM_PATH_BYTES])
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		return strcpy(folder, ".");
	snprintf(folder, GM_PATH_BYTES, "%.*s", slash == path ? 1 : (int)(slash - path), path);
	return folder;
}

static bool reach_stat_folder(const char *path, struct stat *ret_st)
{
	char folder[GM_PATH_BYTES];

	return stat(reach_folder_of(path, folder), ret_st) == 0;
}

/* Writes the user's name or, if /etc/passwd has none, "uid 1000". No directory service is asked: it may not answer. */
static const char *reach_user(uid_t uid, char text[REACH_USER_BYTES])
{
	char room[REACH_ENTRY_BYTES];
	struct passwd entry, *found;
	FILE *file = fopen("/etc/passwd", "re");

	snprintf(text, REACH_USER_BYTES, "uid %u", (unsigned)uid);
	while (file && fgetpwent_r(file, &entry, room, sizeof(room), &found) == 0)
		if (found->pw_uid == uid && strlen(found->pw_name) < REACH_USER_BYTES) {
			strcpy(text, found->pw_name);
			break;
		}
	if (file)
		fclose(file);
	return text;
}

/* Whether this user may make the socket of a daemon at the path. */
static bool reach_may_listen(const char *path)
{
	char folder[GM_PATH_BYTES];

	return faccessat(AT_FDCWD, reach_folder_of(path, folder), W_OK | X_OK, AT_EACCESS) == 0;
}

/* How to start the system's daemon, as far as this user may: gpumemd listens elsewhere for an ordinary user, and refuses a folder of
 * another user. */
static void reach_say_start_system(struct gm_reach *reach)
{
	static const char systemctl[] = "run 'systemctl start gpumemd'";
	bool systemd = access(REACH_SYSTEMD, F_OK) == 0;
	struct stat st;
	bool there = reach_stat_folder(GM_SYSTEM_SOCKET, &st);
	bool foreign = there && st.st_uid != 0 && st.st_uid != geteuid();
	char user[REACH_USER_BYTES];

	if (geteuid() >= GM_PATH_USER_UIDS)
		snprintf(reach->remedy, sizeof(reach->remedy),
			"%s, or run 'gpumemd' for a daemon of your own",
			systemd ? systemctl : "ask root to start it");
	else if (foreign && geteuid() == 0)
		snprintf(reach->remedy, sizeof(reach->remedy),
			"%s, as %s, to whom its folder belongs: 'setpriv --reuid %u --regid %u --init-groups gpumemd'",
			systemd ? "run 'systemctl start gpumemd', or run gpumemd" : "run gpumemd",
			reach_user(st.st_uid, user), st.st_uid, st.st_gid);
	else if (geteuid() != 0 && !(there && !foreign && reach_may_listen(GM_SYSTEM_SOCKET)))
		snprintf(reach->remedy, sizeof(reach->remedy), "%s",
			systemd ? systemctl : "ask root to start it");
	else
		snprintf(reach->remedy, sizeof(reach->remedy), "%s%s",
			systemd ? systemctl : "run 'gpumemd'",
			systemd ? ", or run 'gpumemd' yourself" : "");
}

/* How to start a daemon that listens on this path. */
static void reach_say_start(struct gm_reach *reach, const char *path, const char *before)
{
	struct stat st;
	char user[REACH_USER_BYTES];

	if (strcmp(path, GM_SYSTEM_SOCKET) == 0)
		reach_say_start_system(reach);
	else if (!reach_may_listen(path) && reach_stat_folder(path, &st))
		snprintf(reach->remedy, sizeof(reach->remedy),
			"%sask %s, to whom its folder belongs: this user may not listen there",
			before, reach_user(st.st_uid, user));
	else
		snprintf(reach->remedy, sizeof(reach->remedy), "%srun 'gpumemd --socket %.*s'",
			before, GM_BOUND_SOCKET_PATH_BYTES, path);
}

static void reach_explain_missing(struct gm_reach *reach, const char *path)
{
	struct stat st;
	bool folder = reach_stat_folder(path, &st);
	char in[REACH_IN_BYTES];
	pid_t pid = gm_path_lock_holder(path);

	if (pid > 0) {
		snprintf(reach->cause, sizeof(reach->cause),
			"the daemon that made the socket runs (pid %d), but somebody has removed the socket%s",
			(int)pid, reach_begins_in(path, in));
		snprintf(reach->remedy, sizeof(reach->remedy),
			"run 'kill %d' as its user or as root, then start it again; what clients hold waits for it",
			(int)pid);
		return;
	}
	snprintf(reach->cause, sizeof(reach->cause),
		"no daemon listens there, because %s does not exist%s",
		folder ? "the socket" : "its folder", reach_begins_in(path, in));
	/* The system's daemon makes its folder when it starts, so that path is right. A service that runs made the socket,
	 * and somebody has removed it since. */
	if (strcmp(path, GM_SYSTEM_SOCKET) == 0 && access(REACH_SYSTEMD, F_OK) == 0)
		snprintf(reach->remedy, sizeof(reach->remedy),
			"run 'systemctl start gpumemd', or 'systemctl restart gpumemd.socket' if it runs already; 'gpumemctl doctor' says which");
	else if (folder || strcmp(path, GM_SYSTEM_SOCKET) == 0)
		reach_say_start(reach, path, "check the path, or ");
	else
		snprintf(reach->remedy, sizeof(reach->remedy), "check the path");
}

static void reach_explain_denied(struct gm_reach *reach, const char *path)
{
	struct stat st;
	bool entered = stat(path, &st) == 0;
	const char *slash = strrchr(path, '/');
	int length = entered || !slash ? (int)strlen(path) : (int)(slash - path);
	char closed[GM_BOUND_SOCKET_PATH_BYTES + 1];

	snprintf(closed, sizeof(closed), "%.*s", length ? length : 1, path);
	/* If a folder above it is closed, its mode is not known. */
	bool group = entered ? st.st_mode & S_IWGRP : stat(closed, &st) < 0 || st.st_mode & S_IXGRP;

	snprintf(reach->cause, sizeof(reach->cause), "this user may not %s",
		entered ? "open the socket" : "enter its folder");
	snprintf(reach->remedy, sizeof(reach->remedy),
		group ? "'ls -ld %s' shows which user and group may; an administrator can add users to the group"
		      : "'ls -ld %s' shows which user may; no group may",
		closed);
}

static void reach_say(struct gm_reach *reach, const char *cause, const char *remedy)
{
	snprintf(reach->cause, sizeof(reach->cause), "%s", cause);
	snprintf(reach->remedy, sizeof(reach->remedy), "%s", remedy);
}

void gm_reach_explain(const char *path, int error, struct gm_reach *ret_reach)
{
	struct stat st;

	/* The folder on the way to the path may be what denies access, so the path must be seen. */
	if ((error == -ECONNREFUSED || error == -EACCES) && stat(path, &st) == 0 &&
		!S_ISSOCK(st.st_mode)) {
		error = -ENOTSOCK;
		reach_say(ret_reach,
			S_ISDIR(st.st_mode) ? "this is a folder, not a socket"
					    : "this is a file, not a socket",
			"name the socket of a daemon, such as " GM_SYSTEM_SOCKET);
	}
	ret_reach->error = error;

	switch (-error) {
	case ENOTSOCK:
		break;
	case ENOENT:
		reach_explain_missing(ret_reach, path);
		break;
	case ENOTDIR:
		reach_say(ret_reach,
			"no daemon listens there, because a part of the path is a file, not a folder",
			"check the path");
		break;
	case ECONNREFUSED:
		reach_say(ret_reach,
			"no daemon listens there, because the one that made the socket has ended",
			"");
		reach_say_start(ret_reach, path, "to start it again, ");
		break;
	case EACCES:
	case EPERM:
		reach_explain_denied(ret_reach, path);
		break;
	case EPROTOTYPE:
		reach_say(ret_reach, "another program listens there, on a socket of another type",
			"check the path");
		break;
	case ENAMETOOLONG:
		snprintf(ret_reach->cause, sizeof(ret_reach->cause),
			"the path of a socket can have at most %d bytes",
			GM_BOUND_SOCKET_PATH_BYTES);
		snprintf(ret_reach->remedy, sizeof(ret_reach->remedy), "use a shorter one");
		break;
	case EINVAL:
		reach_say(ret_reach, "the path of the socket is empty", "name a socket");
		break;
	case ETIMEDOUT:
		reach_say(ret_reach, "the daemon accepts no connections now",
			"try again; if that does not help, it is overloaded or stopped");
		break;
	default:
		reach_say(ret_reach, strerror(-error),
			"'systemctl status gpumemd' shows whether the daemon runs");
	}
}

const char *gm_reach_silence(const char *path)
{
	if (strcmp(path, GM_SYSTEM_SOCKET) == 0 && access(REACH_SYSTEMD, F_OK) == 0)
		return "it may be overloaded or stopped, or its service cannot start: see 'systemctl status gpumemd'";
	return "it may be overloaded or stopped";
}
