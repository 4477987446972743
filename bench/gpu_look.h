/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_BENCH_GPU_LOOK_H
#define GM_BENCH_GPU_LOOK_H

/* For benchmarks that fork their workers: the parent must not use CUDA before it forks. */

#include <stdio.h>

#include "tests/gpu/worker.h"

static inline void gpu_look_worker(int channel, void *argument)
{
	char why[GM_CUDA_WHY_BYTES];
	size_t total = 0;

	if (try_gpu(0, why))
		CU(cuda->cuDeviceTotalMem(&total, 0));
	else
		printf("  no GPU: %s\n", why);
	fflush(stdout);
	gm_text_say(channel, &total, sizeof(total));
}

/* Asks, in a process of its own, how much memory the first GPU has. Says so and returns 0 if there is no
 * GPU. */
static inline size_t gpu_look(void)
{
	struct gm_worker worker;
	size_t total;

	gm_worker_start(&worker, gpu_look_worker, NULL);
	gm_hear(worker.channel, &total, sizeof(total));
	gm_worker_join(&worker);
	return total;
}

#endif
