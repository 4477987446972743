/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * What the process of the running daemon is allowed. A unit says what a daemon gets that the service manager starts;
 * somebody may have started this one by hand, in a container or in a session with limits of its own.
 */

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/arith.h"
#include "common/text/units.h"
#include "ctl/doctor/doctor.h"

/* A cgroup of version 1 without a limit has the largest multiple of the page size that a long can hold. */
#define NO_LIMIT ((uint64_t)INT64_MAX - 0xFFFF)

/* Returns the number in a file of a cgroup, or UINT64_MAX if it has none: "max", for example. */
static uint64_t process_read_limit(const struct gm_doctor *doctor, const char *path)
{
	char text[64];
	uint64_t n;

	if (!gm_doctor_read(doctor, path, text, sizeof(text)))
		return UINT64_MAX;
	text[strcspn(text, "\n")] = '\0';
	return gm_parse_u64(text, &n) == 0 && n < NO_LIMIT ? n : UINT64_MAX;
}

/* Returns the least limit of a cgroup and of those above it. Changes path. */
static uint64_t process_least_limit(
	const struct gm_doctor *doctor, const char *root, char *path, const char *name)
{
	char file[PATH_MAX];
	uint64_t least = UINT64_MAX;

	for (char *end = path + strlen(path); end; end = strrchr(path, '/')) {
		*end = '\0';
		int n = snprintf(file, sizeof(file), "%s%s/%s", root, path, name);
		if (n > 0 && (size_t)n < sizeof(file))
			least = gm_u64_min(least, process_read_limit(doctor, file));
	}
	return least;
}

/* Takes a line of /proc/PID/cgroup, ID:CONTROLLERS:PATH. */
static void process_take_cgroup(struct gm_doctor *doctor, char *line)
{
	struct gm_doctor_daemon *daemon = &doctor->daemon;
	char *controllers = strchr(line, ':');
	char *path = controllers ? strchr(controllers + 1, ':') : NULL;

	if (!path)
		return;
	*path++ = '\0';
	controllers++;
	daemon->of_service |= strstr(path, "/gpumemd.service") != NULL;
	if (!*controllers)
		daemon->memory_max = gm_u64_min(daemon->memory_max,
			process_least_limit(doctor, "/sys/fs/cgroup", path, "memory.max"));
	else if (!strcmp(controllers, "memory"))
		daemon->memory_max = gm_u64_min(
			daemon->memory_max, process_least_limit(doctor, "/sys/fs/cgroup/memory",
						    path, "memory.limit_in_bytes"));
}

void gm_doctor_process(struct gm_doctor *doctor)
{
	struct gm_doctor_daemon *daemon = &doctor->daemon;
	char path[64], text[4096], *rest = text;
	struct stat own;

	/* A pid means nothing in another pid namespace. */
	if (!daemon->pid || stat("/proc/self/ns/pid", &own) < 0 ||
		own.st_ino != daemon->pid_namespace)
		return;
	snprintf(path, sizeof(path), "/proc/%llu/cgroup", (unsigned long long)daemon->pid);
	if (!gm_doctor_read(doctor, path, text, sizeof(text)))
		return;

	daemon->seen = true;
	daemon->memory_max = UINT64_MAX;
	for (char *line; (line = strsep(&rest, "\n"));)
		process_take_cgroup(doctor, line);
}
