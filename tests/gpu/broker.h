/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_GPU_BROKER_H
#define GM_TESTS_GPU_BROKER_H

/*
 * What tests of the whole broker on GPUs share: a private daemon on the cuda backend, and what a
 * worker process does there. The test itself never touches CUDA, so that it may fork workers at any
 * time; memory is set and read by the driver, in the worker that holds it.
 */

#include <errno.h>
#include <grp.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cuda.h"
#include "gpumem/gpumem.h"
#include "tests/integration/raw.h"
#include "tests/tap.h"

#define MIB   (UINT64_C(1) << 20)
#define UID_A 54321

static struct gm_daemon daemon_;

/* Sizes that fit a fake device of 512 MiB and do not hurt a real one. */
#define CONFIG(general) "[gpumemd]\nfraction = 0.9\nmin_free = 16M\nreserve = 8M\n" general

static inline void start_with(const char *config)
{
	static const char *const args[] = {"--backend", "cuda", NULL};
	gm_daemon_start(&daemon_, &(struct gm_daemon_options){.config = config, .args = args});
}

static inline void tear_down(void)
{
	GM_UNTIL(gm_figures_now(&daemon_).clients == 0);
	struct gm_figures f = gm_figures_now(&daemon_);
	GM_REQUIRE_EQ(f.leased + f.quarantined + f.admitted, 0);
	gm_daemon_stop(&daemon_);
}

/* ---- in a worker */

static const struct gm_cuda *cuda;
static gpumem_session *session;

static inline void require_ok_(gpumem_status status, const char *what, int line)
{
	if (status != GPUMEM_OK)
		gm_fail(__FILE__, line, "%s: %s: %s", what, gpumem_status_text(status),
			gpumem_error_detail());
}
#define OK(call) require_ok_((call), #call, __LINE__)

static inline void require_cuda_(gm_cu_result result, const char *what, int line)
{
	if (result)
		gm_fail(__FILE__, line, "%s: %s", what, gm_cuda_error(cuda, result));
}
#define CU(call) require_cuda_((call), #call, __LINE__)

static inline void join(const char *name)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	options.socket = daemon_.socket;
	options.name = name;
	OK(gpumem_connect(&options, &session));
}

/* A context, as a program that computes has one. */
static inline void use_gpu(void)
{
	char why[GM_CUDA_WHY_BYTES];
	gm_cu_ctx context;
	if (gm_cuda_load(&cuda, why) < 0)
		GM_FAIL("%s", why);
	CU(cuda->cuDevicePrimaryCtxRetain(&context, 0));
	CU(cuda->cuCtxSetCurrent(context));
}

static inline gm_cu_stream stream_new(void)
{
	gm_cu_stream stream;
	CU(cuda->cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING));
	return stream;
}

static inline void fill(void *ptr, uint64_t bytes, unsigned char value, gm_cu_stream stream)
{
	CU(cuda->cuMemsetD8Async((gm_cu_ptr)(uintptr_t)ptr, value, bytes, stream));
}

/* Whether every byte has that value, once the stream's work is done. */
static inline bool all(void *ptr, uint64_t bytes, unsigned char value, gm_cu_stream stream)
{
	unsigned char *copy = malloc(bytes);
	GM_REQUIRE(copy);
	memset(copy, ~value, bytes);
	CU(cuda->cuMemcpyAsync(
		(gm_cu_ptr)(uintptr_t)copy, (gm_cu_ptr)(uintptr_t)ptr, bytes, stream));
	CU(cuda->cuStreamSynchronize(stream));
	bool same = true;
	for (uint64_t i = 0; i < bytes && same; i++)
		same = copy[i] == value;
	free(copy);
	return same;
}

static sem_t gate;

static inline void wait_at_gate(void *unused)
{
	while (sem_wait(&gate) < 0 && errno == EINTR)
		;
}

/* The stream works until the gate is opened. */
static inline void keep_busy(gm_cu_stream stream)
{
	GM_REQUIRE(sem_init(&gate, 0, 0) == 0);
	CU(cuda->cuLaunchHostFunc(stream, wait_at_gate, NULL));
}

static inline void open_gate(void)
{
	sem_post(&gate);
}

static inline uint64_t free_on_device(void)
{
	size_t free_bytes, total;
	CU(cuda->cuMemGetInfo(&free_bytes, &total));
	return free_bytes;
}

/* Another user's process from now on. */
static inline void become(uid_t uid)
{
	GM_REQUIRE(setgroups(0, NULL) == 0 && setresgid(uid, uid, uid) == 0 &&
		   setresuid(uid, uid, uid) == 0);
}

#endif
