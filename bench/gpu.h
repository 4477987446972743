/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_BENCH_GPU_H
#define GM_BENCH_GPU_H

/*
 * Each benchmark of one process on a GPU begins and ends with these functions. They give it a daemon of its
 * own, a session, a context, and a unit for sizes that suits the device.
 */

#include <stdio.h>

#include "bench/measure.h"
#include "tests/gpu/worker.h"

static struct gm_daemon daemon_;
static uint64_t unit; /* 1 GiB, or 8 MiB on a device that is too small, such as the fake one */

/* Starts the daemon and joins it. needs: how much the device must have for units of 1 GiB. Returns false
 * if there is no GPU, and says so. */
static inline bool gpu_begin(const char *title, const char *config, uint64_t needs)
{
	static const char *const args[] = {"--backend", "cuda", NULL};
	struct gm_daemon_options options = {.config = config, .args = args};
	char why[GM_CUDA_WHY_BYTES];
	size_t total = 0;

	gm_print_title(title);
	gm_daemon_prepare(&daemon_, &options);
	if (!try_gpu(0, why)) {
		printf("  no GPU: %s\n", why);
		return false;
	}
	if (gm_daemon_spawn(&daemon_) != -1)
		GM_FAIL("the daemon does not start");
	join_at(daemon_.socket, "bench");

	CU(cuda->cuDeviceTotalMem(&total, 0));
	unit = total > needs ? 1024 * MIB : 8 * MIB;
	return true;
}

static inline void gpu_end(void)
{
	gpumem_disconnect(session);
	gm_daemon_stop(&daemon_);
}

static inline double ms_since(uint64_t start)
{
	return (double)(gm_monotonic_ns() - start) / 1e6;
}

/* How long the driver copies between pinned host memory and the device, in one direction. */
static inline double driver_copies(void *to, const void *from, uint64_t bytes)
{
	uint64_t start = gm_monotonic_ns();
	CU(cuda->cuMemcpyAsync((gm_cu_ptr)(uintptr_t)to, (gm_cu_ptr)(uintptr_t)from, bytes, NULL));
	CU(cuda->cuStreamSynchronize(NULL));
	return ms_since(start);
}

#endif
