/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_GPU_WORKER_H
#define GM_TESTS_GPU_WORKER_H

/*
 * A process that uses the broker's memory on a GPU, for tests and benchmarks: its session, its
 * context, and how it sets and reads memory. A call that fails ends the process and says why.
 */

#include <dlfcn.h>
#include <errno.h>
#include <grp.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cuda/cuda.h"
#include "common/cuda/cuda_device.h"
#include "gpumem/gpumem.h"
#include "tests/integration/harness.h"
#include "tests/integration/ok.h"
#include "tests/integration/refused.h"

#define MIB (UINT64_C(1) << 20)

static const struct gm_cuda *cuda;
static gpumem_session *session;

static inline void require_cuda_(gm_cu_result result, const char *what, const char *file, int line)
{
	if (result)
		gm_fail(file, line, "%s: %s", what, gm_cuda_error(cuda, result));
}
#define CU(call) require_cuda_((call), #call, __FILE__, __LINE__)

/* The test's side: a worker that does that and ends well. */
static inline void one_worker(gm_worker_fn fn, void *argument)
{
	struct gm_worker worker;
	gm_worker_start(&worker, fn, argument);
	gm_worker_join(&worker);
}

/* Ends a worker that goes when it hears an e. */
static inline void end_worker(struct gm_worker *worker)
{
	gm_text_say_word(worker->channel, 'e');
	gm_worker_join(worker);
}

static inline void join_at(const char *socket, const char *name)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	options.socket = socket;
	options.name = name;
	OK(gpumem_connect(&options, &session));
}

/* A context, as a program that computes has one. false: there is no GPU, and why says so. */
static inline bool try_gpu(int ordinal, char why[GM_CUDA_WHY_BYTES])
{
	gm_cu_ctx context;
	if (gm_cuda_load(&cuda, why) < 0)
		return false;
	CU(cuda->cuDevicePrimaryCtxRetain(&context, ordinal));
	CU(cuda->cuCtxSetCurrent(context));
	return true;
}

static inline void use_gpu(void)
{
	char why[GM_CUDA_WHY_BYTES];
	if (!try_gpu(0, why))
		GM_FAIL("%s", why);
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
	/* Each byte is the one before it. In one call: with every access of ours watched, a loop
	 * over so many bytes takes minutes. */
	bool same = copy[0] == value && memcmp(copy, copy + 1, bytes - 1) == 0;
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

/* NVML, and its handle of the first GPU. */
static inline gm_nvml_device find_in_nvml(const struct gm_nvml **ret_nvml)
{
	char why[GM_CUDA_WHY_BYTES], text[GM_CUDA_UUID_TEXT];
	gm_nvml_device device;
	gm_cu_uuid uuid;
	if (gm_cuda_load(&cuda, why) < 0 || gm_nvml_load(ret_nvml, why) < 0)
		GM_FAIL("%s", why);
	CU(cuda->cuDeviceGetUuid(&uuid, 0));
	gm_cuda_uuid_text((const uint8_t *)uuid.bytes, false, text);
	if ((*ret_nvml)->nvmlDeviceGetHandleByUUID(text, &device) != GM_NVML_SUCCESS)
		GM_FAIL("NVML does not know %s", text);
	return device;
}

/* Trims until the library holds nothing of the device any more; how much went back. */
static inline uint64_t give_all_back(void)
{
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	uint64_t bytes, given = 0;
	for (struct gm_patience p = {0};; gm_patience_wait(&p, __FILE__, __LINE__, "given back")) {
		OK(gpumem_trim(session, &bytes));
		given += bytes;
		OK(gpumem_stats(session, 0, &stats));
		if (stats.allocated == 0)
			return given;
	}
}

/* Another user's process from now on. */
static inline void become(uid_t uid)
{
	GM_REQUIRE(setgroups(0, NULL) == 0 && setresgid(uid, uid, uid) == 0 &&
		   setresuid(uid, uid, uid) == 0);
}

/* ---- graphs */

/* Functions of the driver that only a program with graphs calls. */
static inline void *driver_symbol(const char *name)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	return library ? dlsym(library, name) : NULL;
}

/* In the strictest way there is. */
static inline void begin_capture(gm_cu_stream stream)
{
	gm_cu_result (*begin)(gm_cu_stream, int) =
		(gm_cu_result(*)(gm_cu_stream, int))driver_symbol("cuStreamBeginCapture_v2");
	CU(begin(stream, 0 /* global */));
}

/* Ends the capture. What can launch the graph; NULL on the fake driver, which runs none. */
static inline void *end_capture(gm_cu_stream stream)
{
	gm_cu_result (*end)(gm_cu_stream, void **) =
		(gm_cu_result(*)(gm_cu_stream, void **))driver_symbol("cuStreamEndCapture");
	gm_cu_result (*instantiate)(void **, void *, unsigned long long) = (gm_cu_result(*)(
		void **, void *, unsigned long long))driver_symbol("cuGraphInstantiateWithFlags");
	gm_cu_result (*destroy)(void *) = (gm_cu_result(*)(void *))driver_symbol("cuGraphDestroy");
	void *graph, *runnable = NULL;
	CU(end(stream, &graph));
	if (instantiate && driver_symbol("cuGraphLaunch")) /* the fake driver launches none */
		CU(instantiate(&runnable, graph, 0));
	CU(destroy(graph));
	return runnable;
}

#endif
