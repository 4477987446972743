/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds out who is at the other end of a socket. Everything comes from the kernel: the credentials
 * and groups from when the peer connected; a pidfd, which stays with the process when its number is
 * reused; and /proc for the cgroup and the pid namespace. A peer whose process cannot be identified
 * is refused. If something else cannot be found out, the daemon assumes the worst: without a known
 * container the client shares no memory, and without a known pid namespace it may not administer.
 */
#include "daemon/net/identity.h"

#include <errno.h>
#include <signal.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/bounds.h"
#include "common/system/pid_ns.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* Files of /proc are far shorter. A longer one counts as unreadable. */
#define GM_PROC_BYTES 65536
/* A user namespace with fewer uids is one user's own. That of PrivateUsers=yes has two. */
#define IDENTITY_FEW_UIDS 1000

struct gm_identity *gm_identity_ref(struct gm_identity *identity)
{
	identity->references++;
	return identity;
}

static void identity_drop_pidfd(struct gm_identity *identity)
{
	if (identity->process)
		gm_identity_unref(identity->process);
	else if (identity->pidfd >= 0)
		close(identity->pidfd);
}

void gm_identity_unref(struct gm_identity *identity)
{
	if (!identity || --identity->references > 0)
		return;
	identity_drop_pidfd(identity);
	free(identity->groups);
	free(identity);
}

void gm_identity_share(struct gm_identity *identity, struct gm_identity *same)
{
	gm_identity_ref(same);
	identity_drop_pidfd(identity);
	identity->process = same;
	identity->pidfd = same->pidfd;
}

/* Whether the daemon itself is short of something right now, which says nothing about a client. */
static bool identity_is_shortage(int error)
{
	return error == -ENOMEM || error == -EMFILE || error == -ENFILE;
}

/* The text of /proc/PID/FILE (pid 0: self), malloc'ed. */
static int identity_read_proc(pid_t pid, const char *file, char **ret_text)
{
	char path[64];
	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	else
		snprintf(path, sizeof(path), "/proc/self/%s", file);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;

	char *text = malloc(GM_PROC_BYTES);
	if (!text) {
		close(fd);
		return -ENOMEM;
	}

	size_t used = 0;
	int r = 0;
	for (;;) {
		ssize_t n = read(fd, text + used, GM_PROC_BYTES - 1 - used);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) /* only memory can be short: there is no disk behind it */
			r = errno == ESRCH ? -ESRCH : -ENOMEM;
		if (n <= 0)
			break;
		used += (size_t)n;
		if (used == GM_PROC_BYTES - 1) {
			r = -EFBIG;
			break;
		}
	}

	close(fd);
	if (r < 0) {
		free(text);
		return r;
	}

	text[used] = '\0';
	*ret_text = text;
	return 0;
}

/* Reads fields 3 and 22 of /proc/PID/stat. Counts from the end of field 2, because the name in it may
 * contain anything. */
static int identity_read_stat(pid_t pid, char *ret_state, unsigned long long *ret_ticks)
{
	char *text;
	int r = identity_read_proc(pid, "stat", &text);
	if (r < 0)
		return r;
	const char *at = strrchr(text, ')');
	r = -EBADMSG;
	if (at && sscanf(at + 1,
			  " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
			  "%*s %*s %*s %llu",
			  ret_state, ret_ticks) == 2)
		r = 0;
	free(text);
	return r;
}

static int identity_read_start_time(pid_t pid, unsigned long long *ret)
{
	char state;
	return identity_read_stat(pid, &state, ret);
}

int gm_identity_number(pid_t pid, unsigned long long *ret_began, bool *ret_ended)
{
	char state;
	int r = identity_read_stat(pid, &state, ret_began);
	if (r == 0)
		*ret_ended = state == 'Z' || state == 'X';
	/* /proc may hide the processes of other users. */
	if (r < 0 && kill(pid, 0) < 0 && errno == ESRCH)
		return -ESRCH;
	return r == -ESRCH ? -ENOENT : r;
}

/*
 * The process must be the same before and after the pidfd is opened. Its number may still have been
 * reused between connect() and accept(). The uid narrows that down to processes of the same user,
 * or of root: the /proc entry of a process that has changed its user belongs to root.
 */
int gm_identity_pin(pid_t pid, uid_t uid, int *ret_pidfd)
{
	unsigned long long before, after;
	int r = identity_read_start_time(pid, &before);
	if (r < 0)
		return r == -ENOENT ? -ESRCH : r;

	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0)
		return -errno;

	char path[32];
	struct stat st;
	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	r = identity_read_start_time(pid, &after);
	if (r == -ENOENT)
		r = -ESRCH;
	if (r == 0 &&
		(before != after || stat(path, &st) < 0 || (st.st_uid != uid && st.st_uid != 0)))
		r = -ESRCH;
	if (r < 0) {
		close(pidfd);
		return r;
	}

	*ret_pidfd = pidfd;
	return 0;
}

/* Reads which number the process has in the daemon's pid namespace (0: it is not in it), and how many
 * it has in all. Returns an error on a shortage only. /proc/PID/status has both, too, but also a
 * list of groups, which takes the kernel milliseconds if the user likes. */
static int identity_read_pid(struct gm_identity *identity)
{
	char file[32];
	char *text;
	snprintf(file, sizeof(file), "fdinfo/%d", identity->pidfd);
	identity->depth = 0;
	int r = identity_read_proc(0, file, &text);
	if (r < 0)
		return identity_is_shortage(r) ? r : 0;

	int pid = 0;
	const char *line = strstr(text, "\nPid:");
	if (line && sscanf(line, "\nPid: %d", &pid) != 1)
		pid = 0;
	identity->pid = pid > 0 ? pid : 0;
	identity->depth = (uint16_t)gm_pid_ns_depth(text);
	free(text);
	return 0;
}

/* The kernel copies all groups or none, one by one. So that neither time nor memory grows with what a
 * user can have, a process with more than these counts as one without any. */
static int identity_read_groups(int socket, struct gm_identity *identity)
{
	gid_t groups[GM_BOUND_GROUPS];
	socklen_t n = sizeof(groups);
	if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups, &n) < 0)
		return errno == ERANGE ? 0 : -errno;
	if (n == 0)
		return 0;

	identity->groups = malloc(n);
	if (!identity->groups)
		return -ENOMEM;
	memcpy(identity->groups, groups, n);
	identity->n_groups = (uint32_t)(n / sizeof(gid_t));
	return 0;
}

static int identity_read_command(pid_t pid, struct gm_identity *identity)
{
	char *text;
	int r = identity_read_proc(pid, "comm", &text);
	if (r < 0)
		return r;
	size_t i = 0;
	for (; i + 1 < sizeof(identity->command) && text[i] && text[i] != '\n'; i++)
		identity->command[i] = (text[i] >= ' ' && text[i] < 127) ? text[i] : '?';
	identity->command[i] = '\0';
	free(text);
	return 0;
}

/*
 * What is read about a process, a file of /proc each. If something cannot be read, assumes the worse. A
 * shortage of the daemon's own is an error instead, because it must not cost the client its rights for as
 * long as it is connected.
 */

static int identity_read_cgroup(struct gm_identity *identity)
{
	char *text;
	int r = identity_read_proc(identity->pid, "cgroup", &text);
	if (r < 0)
		return identity_is_shortage(r) ? r : 0;
	identity->confined = gm_cgroup_parse(text, &identity->cgroup) < 0;
	free(text);
	return 0;
}

static int identity_read_namespace(struct gm_identity *identity)
{
	int r = gm_pid_ns_is_own(identity->pid, identity->depth);
	identity->own_pid_namespace = r == 1;
	return identity_is_shortage(r) ? r : 0;
}

static int identity_read_name(struct gm_identity *identity)
{
	int r = identity_read_command(identity->pid, identity);
	return identity_is_shortage(r) ? r : 0;
}

static int identity_read_started(struct gm_identity *identity)
{
	int r = identity_read_start_time(identity->pid, &identity->started);
	if (r < 0)
		identity->started = 0;
	return identity_is_shortage(r) ? r : 0;
}

/* Opens a pidfd for the process at the other end. */
static int identity_read_pidfd(int socket, const struct ucred *cred, int *ret_pidfd)
{
	int pidfd = -1;
	socklen_t n = sizeof(pidfd);
	if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &n) < 0) {
		if (errno != ENOPROTOOPT)
			return -errno;
		return cred->pid > 0 ? gm_identity_pin(cred->pid, cred->uid, ret_pidfd) : -ESRCH;
	}

	/* Not every kernel sets the flag. */
	if (fcntl(pidfd, F_SETFD, FD_CLOEXEC) < 0) {
		int error = errno;
		close(pidfd);
		return -error;
	}

	*ret_pidfd = pidfd;
	return 0;
}

static int identity_begin(int socket, struct gm_identity *identity, char why[256])
{
	struct ucred cred;
	socklen_t n = sizeof(cred);
	if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0) {
		int error = errno;
		snprintf(why, 256, "its credentials cannot be read: %s", strerror(error));
		return -error;
	}

	identity->uid = identity->payer_uid = cred.uid;
	identity->gid = cred.gid;
	int r = identity_read_pidfd(socket, &cred, &identity->pidfd);
	if (r < 0) {
		snprintf(why, 256, "its process cannot be identified: %s", strerror(-r));
		return r;
	}

	r = identity_read_groups(socket, identity);
	if (r < 0)
		snprintf(why, 256, "its groups cannot be read: %s", strerror(-r));
	return r;
}

/* Says why the client must be refused, if the daemon itself is short of something. Returns r. */
static int identity_say(int r, char why[256])
{
	if (r == -ENOMEM)
		snprintf(why, 256, "the daemon is out of memory");
	else if (identity_is_shortage(r))
		snprintf(why, 256,
			"the daemon has no file descriptors left; raise its LimitNOFILE=");
	return r;
}

int gm_identity_begin(int socket, struct gm_identity **ret_identity, char why[256])
{
	struct gm_identity *identity = calloc(1, sizeof(*identity));
	int r = -ENOMEM;
	if (identity) {
		identity->references = 1;
		identity->pidfd = -1;
		identity->confined = true;
		r = identity_begin(socket, identity, why);
	}
	if (r < 0) {
		gm_identity_unref(identity);
		return identity_say(r, why);
	}

	*ret_identity = identity;
	return 0;
}

int gm_identity_go_on(struct gm_identity *identity, char why[256])
{
	static int (*const steps[])(struct gm_identity * identity) = {
		identity_read_pid,
		identity_read_cgroup,
		identity_read_namespace,
		identity_read_name,
		identity_read_started,
	};
	/* A process without a number here has no files in /proc. */
	if (identity->step < sizeof(steps) / sizeof(*steps) &&
		(identity->step == 0 || identity->pid)) {
		int r = steps[identity->step++](identity);
		return r < 0 ? identity_say(r, why) : 1;
	}

	/* If the process is still alive, everything read from /proc was about it. */
	if (gm_identity_dead(identity)) {
		snprintf(why, 256, "its process has ended");
		return -ESRCH;
	}
	return 0;
}

int gm_identity_read(int socket, struct gm_identity **ret_identity, char why[256])
{
	struct gm_identity *identity;
	int r = gm_identity_begin(socket, &identity, why);
	if (r < 0)
		return r;
	do
		r = gm_identity_go_on(identity, why);
	while (r > 0);
	if (r < 0)
		gm_identity_unref(identity);
	else
		*ret_identity = identity;
	return r;
}

/* Compares the start time of a process that lives. -EACCES: /proc hides the process. */
static int identity_check_started(const struct gm_identity *identity, unsigned long long start_time)
{
	unsigned long long ticks;
	if (start_time == 0)
		return 0; /* it was hidden when it connected, too */
	int r = identity_read_start_time(identity->pid, &ticks);
	if (identity_is_shortage(r))
		return r;
	if (gm_identity_dead(identity))
		return -ESRCH;
	if (r < 0)
		return -EACCES;
	return ticks == start_time ? 0 : -ESRCH;
}

/* Checks that the pidfd is that of the process, and that the process lives. */
static int identity_check_restored(
	const struct gm_identity *identity, unsigned long long start_time)
{
	if (syscall(SYS_pidfd_send_signal, identity->pidfd, 0, NULL, 0) < 0 && errno == EBADF)
		return -ESRCH; /* it is no pidfd */
	struct gm_identity now = {.pidfd = identity->pidfd};
	int r = identity_read_pid(&now);
	if (r < 0)
		return r;
	if (gm_identity_dead(identity) || (now.pid && now.pid != identity->pid))
		return -ESRCH;
	if (now.pid == 0) /* another pid namespace, as before: the pidfd alone tells */
		return identity->pid ? -EACCES : 0;
	return identity_check_started(identity, start_time);
}

/* Reads how many uids the user namespace of this process has, and whether it has this one. Without such a namespace it has all. */
static bool identity_is_mapped(uid_t uid, uint64_t *ret_uids)
{
	unsigned long long first, outside, n;
	bool found = false;
	char *text;
	*ret_uids = UINT32_MAX;
	if (identity_read_proc(0, "uid_map", &text) < 0)
		return true;

	*ret_uids = 0;
	for (const char *line = text; sscanf(line, "%llu %llu %llu", &first, &outside, &n) == 3;) {
		*ret_uids += n;
		found |= uid >= first && uid - first < n;
		line += strcspn(line, "\n");
		line += *line == '\n';
	}
	free(text);
	return found;
}

/* Checks that the user is the one that the earlier daemon saw: -EOVERFLOW if one of the two daemons, in a user namespace of its own,
 * cannot tell that user from others. */
static int identity_check_user(const struct gm_identity *identity)
{
	char path[32];
	struct stat st;
	uint64_t uids;
	if (identity->uid != GM_OVERFLOW_UID)
		return identity_is_mapped(identity->uid, &uids) ? 0 : -EOVERFLOW;

	snprintf(path, sizeof(path), "/proc/%d", (int)identity->pid);
	if (!identity->pid || stat(path, &st) < 0)
		return 0;
	/* The entry of a process that may not be dumped belongs to root. */
	return st.st_uid == GM_OVERFLOW_UID || st.st_uid == 0 ? 0 : -EOVERFLOW;
}

int gm_identity_restore(const struct gm_identity *known, unsigned long long start_time, int pidfd,
	struct gm_identity **ret_identity)
{
	struct gm_identity *identity = malloc(sizeof(*identity));
	if (!identity) {
		if (pidfd >= 0)
			close(pidfd);
		return -ENOMEM;
	}
	*identity = *known;
	identity->references = 1;
	identity->groups = NULL;
	identity->n_groups = 0;
	identity->pidfd = pidfd;

	int r = 0;
	if (pidfd < 0 && (!known->pid || !start_time))
		r = -ESRCH;
	if (r == 0 && pidfd < 0)
		identity->pidfd = (int)syscall(SYS_pidfd_open, known->pid, 0);
	if (r == 0 && identity->pidfd < 0)
		r = -errno;
	if (r == 0)
		r = identity_check_restored(identity, start_time);
	if (r == 0)
		r = identity_check_user(identity);
	if (r < 0) {
		gm_identity_unref(identity);
		return identity_is_shortage(r) || r == -EACCES || r == -EOVERFLOW ? r : -ESRCH;
	}
	*ret_identity = identity;
	return 0;
}

int gm_identity_sees_others(void)
{
	unsigned long long ticks;
	char state;
	uint64_t uids;
	int r = identity_read_stat(1, &state, &ticks);
	if (r == -ENOENT || r == -EPERM || r == -EACCES)
		return -EACCES;
	identity_is_mapped(0, &uids);
	return uids < IDENTITY_FEW_UIDS ? -EOVERFLOW : 0;
}

bool gm_identity_same_owner(const struct gm_identity *a, const struct gm_identity *b)
{
	return !a->confined && !b->confined && a->uid == b->uid &&
	       strcmp(a->cgroup.scope, b->cgroup.scope) == 0;
}

bool gm_identity_dead(const struct gm_identity *identity)
{
	struct pollfd poll_one = {.fd = identity->pidfd, .events = POLLIN};
	return poll(&poll_one, 1, 0) == 1 && (poll_one.revents & (POLLIN | POLLHUP));
}

bool gm_identity_exiting(const struct gm_identity *identity)
{
	char *text;

	if (!identity->pid)
		return false;
	/* If it has been reaped, which the loop may not have heard yet, it has no file. */
	if (identity_read_proc(identity->pid, "statm", &text) < 0)
		return gm_identity_dead(identity);
	bool none = strncmp(text, "0 ", 2) == 0;
	free(text);
	return none;
}

bool gm_identity_has_role(const struct gm_identity *identity, uid_t daemon_uid, gid_t group)
{
	if (!identity->own_pid_namespace)
		return false;
	if (identity->uid == 0 || identity->uid == daemon_uid)
		return true;
	if (group == (gid_t)-1)
		return false;
	if (identity->gid == group)
		return true;
	for (size_t i = 0; i < identity->n_groups; i++)
		if (identity->groups[i] == group)
			return true;
	return false;
}
