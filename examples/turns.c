/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two programs that use one device by turns: one trains, one serves. Each pauses its region when its turn
 * is over: the memory goes back to gpumemd, which gives it to the other. It comes back at the same
 * addresses, with its content. A program that needs several regions resumes them in an order that all
 * programs follow, so that no two of them wait for each other.
 */
#include <gpumem/gpumem_region.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "demo-gpu.h"

#define MiB   ((size_t)1 << 20)
#define TURNS 3

static const char *role;

static int fail(const char *trouble)
{
	fprintf(stderr, "%s: %s\n", role, trouble ? trouble : gpumem_error_detail());
	return 1;
}

/* Copies in either direction. Returns NULL, or what failed. */
static const char *copy(int gpu, void *to, const void *from, size_t n)
{
	if (gpu)
		return demo_gpu_copy(to, from, n);
	memcpy(to, from, n);
	return NULL;
}

static int take_turns(void)
{
	GPUMEM_AUTO_SESSION gpumem_session *session = NULL;
	GPUMEM_AUTO_REGION gpumem_region *weights = NULL;
	gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	const char *trouble;
	void *model;
	char said[64] = "", found[64];

	if (gpumem_connect(NULL, &session) || gpumem_device_info(session, 0, &info))
		return fail(NULL);
	const int gpu = strcmp(info.backend, "cuda") == 0;
	trouble = gpu ? demo_gpu_start(info.uuid) : NULL;
	if (trouble)
		return fail(trouble);

	/* The memory comes with the first allocation, when it is our turn. */
	options.wait_ms = GPUMEM_WAIT_FOREVER;
	if (gpumem_region_create(session, 0, "weights", 64 * MiB, NULL, &weights) ||
		gpumem_region_alloc(weights, 60 * MiB, NULL, &options, &model))
		return fail(NULL);

	for (int turn = 1; turn <= TURNS; turn++) {
		snprintf(said, sizeof(said), "%s, turn %d", role, turn);
		if ((trouble = copy(gpu, model, said, sizeof(said))))
			return fail(trouble);

		/* The other one's turn, and then ours again. GPUMEM_REGION_DROP is quicker, for what
		 * can be computed again. */
		if (gpumem_region_pause(session, "weights", GPUMEM_REGION_KEEP) ||
			gpumem_region_resume(session, "weights", GPUMEM_WAIT_FOREVER))
			return fail(NULL);

		if ((trouble = copy(gpu, found, model, sizeof(found))))
			return fail(trouble);
		if (memcmp(found, said, sizeof(said)) != 0)
			return fail("the weights are not what they were");
	}
	printf("%s: %d turns, and the weights were always there\n", role, TURNS);
	return 0;
}

int main(void)
{
	/* Before the library or the driver is used: neither survives a fork. */
	pid_t child = fork();
	int status = 1;

	role = child ? "train" : "serve";
	int failed = child < 0 ? fail("cannot fork") : take_turns();
	fflush(stdout);
	if (child > 0 && (waitpid(child, &status, 0) < 0 || status != 0))
		failed = 1;
	return failed;
}
