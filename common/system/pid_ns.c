/* SPDX-License-Identifier: Apache-2.0 */
#include "common/system/pid_ns.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"

size_t gm_pid_ns_depth(const char *status)
{
	const char *line = strncmp(status, "NSpid:", 6) == 0 ? status : strstr(status, "\nNSpid:");
	if (!line)
		return 0;

	line = strchr(line, ':') + 1;
	size_t n = 0;
	while (*line && *line != '\n') {
		size_t digits = strspn(line, "0123456789");
		if (digits) {
			n++;
			line += digits;
		} else {
			line++;
		}
	}
	return n;
}

/* Reads the depth from a status file: 0 if the kernel has no pid namespaces. -EFBIG if it stands behind more groups than
 * any daemon is in. */
static int pid_ns_read_depth(const char *path, size_t *ret_depth)
{
	char text[16384];
	size_t used = 0;
	GM_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;

	for (;;) {
		ssize_t n = read(fd, text + used, sizeof(text) - 1 - used);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		used += (size_t)n;
		if (used == sizeof(text) - 1)
			return -EFBIG;
	}
	text[used] = '\0';
	*ret_depth = gm_pid_ns_depth(text);
	return 0;
}

/* The link of a pid namespace is the same for all processes in it. It takes a right to see that of another user's process. */
static bool pid_ns_links(pid_t pid, bool *ret_same)
{
	char path[48], theirs[64], ours[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
	ssize_t n = readlink(path, theirs, sizeof(theirs));
	ssize_t m = readlink("/proc/self/ns/pid", ours, sizeof(ours));
	if (n <= 0 || m <= 0)
		return false;
	*ret_same = n == m && memcmp(theirs, ours, (size_t)n) == 0;
	return true;
}

/*
 * Where the link cannot be seen, the depth tells: in the /proc of this process, another one has one number for each namespace
 * that it is nested in below that /proc. If this process is nested itself, processes in sibling namespaces have as many numbers.
 */
int gm_pid_ns_is_own(pid_t pid, size_t depth)
{
	char path[48];
	size_t own;
	bool same;

	if (pid_ns_links(pid, &same))
		return same;

	int r = pid_ns_read_depth("/proc/self/status", &own);
	if (r < 0)
		return r == -ENOENT ? 1 : r;
	if (own == 0)
		return 1;
	if (own > 1)
		return 0;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (depth == 0)
		r = pid_ns_read_depth(path, &depth);
	if (r == -EMFILE || r == -ENFILE || r == -ENOMEM)
		return r;
	return r == 0 && depth == own;
}
