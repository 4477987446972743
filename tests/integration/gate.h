/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_GATE_H
#define GM_TESTS_INTEGRATION_GATE_H

/*
 * A gate before a daemon's backend: each chunk that it makes waits until it is let through. The
 * host backend does so, and the fake driver's cuMemCreate.
 */

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/harness.h"
#include "tests/scratch.h"

struct gm_gate {
	char path[128], variable[160];
	const char *env[2]; /* for the daemon */
	int fd;
};

static inline void gm_gate_make(struct gm_gate *gate)
{
	gm_scratch_path("gate", gate->path, sizeof(gate->path));
	snprintf(gate->variable, sizeof(gate->variable), "GPUMEM_TEST_HOST_GATE=%s", gate->path);
	gate->env[0] = gate->variable;
	gate->env[1] = NULL;
	unlink(gate->path);
	GM_REQUIRE(mkfifo(gate->path, 0666) == 0);
	gate->fd = open(gate->path, O_RDWR | O_CLOEXEC);
	GM_REQUIRE(gate->fd >= 0);
}

static inline void gm_gate_let(const struct gm_gate *gate, size_t n)
{
	while (n--)
		GM_REQUIRE_EQ(write(gate->fd, "x", 1), 1);
}

static inline void gm_gate_end(struct gm_gate *gate)
{
	close(gate->fd);
	unlink(gate->path);
}

#endif
