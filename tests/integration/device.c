/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Sets and reads device memory for tests that run on the host backend and on a GPU. A call of the
 * driver that fails fails the test; nothing is left on a stream when a call returns.
 */

#include <stdlib.h>
#include <string.h>

#include "common/cuda/cuda.h"
#include "tests/integration/device.h"
#include "tests/integration/harness.h"

static const struct gm_cuda *enter(void)
{
	static _Thread_local const struct gm_cuda *cuda;
	static _Thread_local gm_cu_ctx context;
	char why[GM_CUDA_WHY_BYTES];
	if (!cuda) {
		if (gm_cuda_load(&cuda, why) < 0)
			GM_FAIL("%s", why);
		GM_REQUIRE_EQ(cuda->cuDevicePrimaryCtxRetain(&context, 0), GM_CUDA_SUCCESS);
	}
	GM_REQUIRE_EQ(cuda->cuCtxPushCurrent(context), GM_CUDA_SUCCESS);
	return cuda;
}

void gm_device_set(void *ptr, size_t n, uint8_t byte)
{
	if (!gm_on_gpu()) {
		memset(ptr, byte, n);
		return;
	}
	const struct gm_cuda *cuda = enter();
	GM_REQUIRE_EQ(
		cuda->cuMemsetD8Async((gm_cu_ptr)(uintptr_t)ptr, byte, n, NULL), GM_CUDA_SUCCESS);
	GM_REQUIRE_EQ(cuda->cuStreamSynchronize(NULL), GM_CUDA_SUCCESS);
	cuda->cuCtxPopCurrent(NULL);
}

static bool all(const uint8_t *at, size_t n, uint8_t byte)
{
	return at[0] == byte && memcmp(at, at + 1, n - 1) == 0;
}

static void copy(void *to, const void *from, size_t n)
{
	if (!gm_on_gpu()) {
		memcpy(to, from, n);
		return;
	}
	const struct gm_cuda *cuda = enter();
	GM_REQUIRE_EQ(
		cuda->cuMemcpyAsync((gm_cu_ptr)(uintptr_t)to, (gm_cu_ptr)(uintptr_t)from, n, NULL),
		GM_CUDA_SUCCESS);
	GM_REQUIRE_EQ(cuda->cuStreamSynchronize(NULL), GM_CUDA_SUCCESS);
	cuda->cuCtxPopCurrent(NULL);
}

void gm_device_write(void *ptr, const void *from, size_t n)
{
	copy(ptr, from, n);
}

void gm_device_read(void *to, const void *ptr, size_t n)
{
	copy(to, ptr, n);
}

bool gm_device_is(const void *ptr, size_t n, uint8_t byte)
{
	if (!gm_on_gpu())
		return all(ptr, n, byte);
	uint8_t *there = malloc(n);
	GM_REQUIRE(there);
	copy(there, ptr, n);
	bool same = all(there, n, byte);
	free(there);
	return same;
}
