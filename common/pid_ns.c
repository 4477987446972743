/* SPDX-License-Identifier: Apache-2.0 */
#include "common/pid_ns.h"

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

/* The depth of a process; 0: it cannot be read, or stands behind more groups than any daemon is in. */
static size_t pid_ns_depth_of(const char *path)
{
	char text[16384];
	size_t used = 0;
	GM_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;

	while (used < sizeof(text) - 1) {
		ssize_t n = read(fd, text + used, sizeof(text) - 1 - used);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		used += (size_t)n;
	}
	text[used] = '\0';
	return gm_pid_ns_depth(text);
}

/*
 * In the /proc of this process, another one has one number for each namespace that it is nested in below that /proc. If this
 * process is nested itself, processes in sibling namespaces have as many numbers, and only the link tells them apart.
 */
bool gm_pid_ns_is_own(pid_t pid)
{
	char path[48], theirs[64], ours[64];
	size_t depth = pid_ns_depth_of("/proc/self/status");

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (depth == 0)
		return true;
	if (pid_ns_depth_of(path) != depth)
		return false;
	if (depth == 1)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
	ssize_t n = readlink(path, theirs, sizeof(theirs));
	ssize_t m = readlink("/proc/self/ns/pid", ours, sizeof(ours));
	return n > 0 && n == m && memcmp(theirs, ours, (size_t)n) == 0;
}
