/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_DEVICE_BYTES_H
#define GM_TESTS_INTEGRATION_DEVICE_BYTES_H

/*
 * How much memory of device 0 exists, whatever the daemon's books say: on the host backend what the
 * daemon and its keeper have open (pinned host memory is of the same kind there, and counts too), on a
 * fake GPU what the GPU has used.
 */

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tests/end_keeper.h"
#include "tests/integration/harness.h"

/* The chunks that were counted: the keeper has what is leased or pooled open as well. */
struct gm_device_seen {
	ino_t chunks[4096];
	size_t n;
};

/* How many bytes of chunks a process has open on the host backend, beside those that were counted. */
static inline uint64_t gm_device_open_bytes(pid_t pid, struct gm_device_seen *seen)
{
	char path[64], name[PATH_MAX], target[128];
	uint64_t sum = 0;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	DIR *d = opendir(path);
	GM_REQUIRE(d);
	for (struct dirent *e = readdir(d); e; e = readdir(d)) {
		struct stat st;
		snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
		ssize_t length = readlink(name, target, sizeof(target) - 1);
		target[length < 0 ? 0 : length] = '\0';
		if (strncmp(target, "/memfd:gpumem-chunk", 19) != 0 || stat(name, &st) < 0)
			continue;
		bool known = false;
		for (size_t i = 0; i < seen->n && !known; i++)
			known = seen->chunks[i] == st.st_ino;
		GM_REQUIRE(seen->n < sizeof(seen->chunks) / sizeof(*seen->chunks));
		if (!known) {
			seen->chunks[seen->n++] = st.st_ino;
			sum += (uint64_t)st.st_size;
		}
	}
	closedir(d);
	return sum;
}

static inline pid_t gm_device_keeper(const struct gm_daemon *daemon)
{
	char folder[128];
	snprintf(folder, sizeof(folder), "%s/run", daemon->folder);
	return gm_keeper_in(folder);
}

static inline uint64_t gm_device_bytes(const struct gm_daemon *daemon)
{
	struct statvfs fs;
	char path[PATH_MAX];

	if (!gm_on_gpu()) {
		struct gm_device_seen seen = {.n = 0};
		uint64_t sum = gm_device_open_bytes(daemon->pid, &seen);
		return sum + gm_device_open_bytes(gm_device_keeper(daemon), &seen);
	}
	snprintf(path, sizeof(path), "%s/gpu0", getenv("GPUMEM_FAKE_DIR"));
	GM_REQUIRE(statvfs(path, &fs) == 0);
	return (fs.f_blocks - fs.f_bfree) * fs.f_frsize;
}

#endif
