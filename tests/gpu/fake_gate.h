/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_GPU_FAKE_GATE_H
#define GM_TESTS_GPU_FAKE_GATE_H

/* A call of the fake driver that does not return before the test lets it: for threads of one process. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/harness.h"

struct fake_gate {
	char path[64];
	int fd;
};

#define FAKE_GATE_NONE "none:none"

/* Before the process has threads: to add a variable beside threads that read others would crash them. To
 * change one that is there does not. */
static inline void fake_gate_prepare(void)
{
	setenv("GPUMEM_FAKE_GATE", FAKE_GATE_NONE, 1);
	setenv("GPUMEM_FAKE_FAIL", "none:1:1", 1);
}

/* From now on, each such call waits. */
static inline void fake_gate_close(struct fake_gate *closed, const char *call)
{
	char setting[128];

	snprintf(closed->path, sizeof(closed->path), "/tmp/gpumem-gate.%d", (int)getpid());
	GM_REQUIRE_EQ(mkfifo(closed->path, 0600), 0);
	snprintf(setting, sizeof(setting), "%s:%s", call, closed->path);
	setenv("GPUMEM_FAKE_GATE", setting, 1);
}

/* Until a thread waits there. */
static inline void fake_gate_await(struct fake_gate *closed)
{
	/* It can be opened once there is a reader. */
	GM_UNTIL((closed->fd = open(closed->path, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) >= 0);
}

/* For good. */
static inline void fake_gate_open(struct fake_gate *closed)
{
	static const char bytes[64];

	setenv("GPUMEM_FAKE_GATE", FAKE_GATE_NONE, 1);
	GM_REQUIRE_EQ(write(closed->fd, bytes, sizeof(bytes)), (ssize_t)sizeof(bytes));
	close(closed->fd);
	unlink(closed->path);
}

#endif
