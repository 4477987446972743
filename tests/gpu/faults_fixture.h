/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_GPU_FAULTS_FIXTURE_H
#define GM_TESTS_GPU_FAULTS_FIXTURE_H

/* Fake GPUs that fail on demand, and a daemon on them. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tests/gpu/worker.h"
#include "tests/integration/device.h"
#include "tests/integration/raw.h"
#include "tests/scratch.h"
#include "tests/tap.h"

static struct gm_daemon daemon_;

/* Everything may be handed out and nothing is kept ready, so that every byte can be told. */
static const char config[] =
	"[gpumemd]\nfraction = 1.0\nmin_free = 0\nreserve = 0\nmax_pool = 100%\n"
	"host_limit = 0\n";

static inline void start(const char *variable)
{
	static const char *env[2];
	env[0] = variable;
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = config, .env = env});
}

static inline void path_of(uint32_t device, const char *mark, char path[256])
{
	snprintf(path, 256, "%s/gpu%u%s", getenv("GPUMEM_FAKE_DIR"), device, mark);
}

/* What is used on the device, as the kernel counts it. */
static inline uint64_t used(uint32_t device)
{
	char path[256];
	struct statvfs vfs;
	path_of(device, "", path);
	GM_REQUIRE(statvfs(path, &vfs) == 0);
	return (uint64_t)(vfs.f_blocks - vfs.f_bfree) * vfs.f_frsize;
}

static inline struct gm_figures figures(uint32_t device)
{
	struct gm_figures f;
	gm_figures_of(&daemon_, device, &f);
	return f;
}

static inline void mark(uint32_t device, const char *which, bool on)
{
	char path[256];
	path_of(device, which, path);
	if (on)
		close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	else
		unlink(path);
}

/* Ends the daemon, once nothing is charged and the device holds what the daemon pools, no more. */
static inline void stop(void)
{
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	for (uint32_t i = 0; i < 2; i++) {
		struct gm_figures f = figures(i);
		GM_REQUIRE_EQ(f.leased + f.quarantined + f.admitted, 0);
	}
	gm_daemon_stop(&daemon_);
}

static inline bool ledger_is_true(uint32_t device)
{
	struct gm_figures f = figures(device);
	return f.leased + f.quarantined + f.admitted + f.pooled == used(device);
}

/* In a worker. */
static inline void join(const char *name)
{
	join_at(daemon_.socket, name);
}

/* 30 MiB are four chunks: 16, 8, 4 and 2. */
#define FOUR_CHUNKS (30 * MIB)

#endif
