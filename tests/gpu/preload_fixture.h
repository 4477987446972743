/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_GPU_PRELOAD_FIXTURE_H
#define GM_TESTS_GPU_PRELOAD_FIXTURE_H

/* What tests share that run programs under libgpumem-preload.so. */

#include <fcntl.h>

#include "tests/gpu/broker.h"
#include "tests/gpu/preload_actor.h"
#include "tests/scratch.h"

/* A file of the build, or of a staged folder. */
static inline void built(char path[512], const char *folder, const char *name)
{
	const char *top = getenv("top_builddir");

	snprintf(path, 512, "%s/%s/.libs/%s", top ? top : ".", folder, name);
	if (access(path, F_OK) < 0)
		snprintf(path, 512, "%s/%s/%s", top ? top : ".", folder, name);
}

/* In a worker: its programs find the client library, and have the channel to the test. */
static inline void prepare_program(int channel)
{
	char client[512], path[1024];
	const char *before = getenv("LD_LIBRARY_PATH");

	built(client, "client", "libgpumem-client.so.0");
	*strrchr(client, '/') = 0;
	snprintf(path, sizeof path, "%s%s%s", client, before ? ":" : "", before ? before : "");
	setenv("LD_LIBRARY_PATH", path, 1);
	GM_REQUIRE(dup2(channel, ACTOR_CHANNEL) == ACTOR_CHANNEL);
	fcntl(ACTOR_CHANNEL, F_SETFD, 0);
}

/* Sends what it prints to a file. */
static inline void redirect(const char *path, int to)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	GM_REQUIRE(fd >= 0 && dup2(fd, to) >= 0);
}

static inline void read_file(const char *path, char *text, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, room - 1);

	GM_REQUIRE(n >= 0);
	text[n] = 0;
	if (fd >= 0)
		close(fd);
}

/* How a worker ended, as waitpid() says it. */
static inline int end_of(struct gm_worker *worker)
{
	int status;

	GM_REQUIRE(waitpid(worker->pid, &status, 0) == worker->pid);
	close(worker->channel);
	return status;
}

#endif
