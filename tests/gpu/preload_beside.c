/* SPDX-License-Identifier: Apache-2.0 */
/* Another preloaded library: it stands in for a function of the C library and for one of the driver, and finds
 * the next ones as such libraries do. */
#include <dlfcn.h>
#include <stddef.h>
#include <unistd.h>

#include "common/cuda/cuda_abi.h"

__attribute__((visibility("default"))) pid_t getppid(void);
__attribute__((visibility("default"))) gm_cu_result cuMemGetInfo_v2(
	size_t *free_bytes, size_t *total);
__attribute__((visibility("default"))) int beside_calls(void);
__attribute__((visibility("default"))) void *beside_find(const char *name);

static int calls;

pid_t getppid(void)
{
	pid_t (*next)(void);

	calls++;
	*(void **)&next = dlsym(RTLD_NEXT, "getppid");
	return next();
}

gm_cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	gm_cu_result (*next)(size_t *, size_t *);

	calls++;
	*(void **)&next = dlsym(RTLD_NEXT, "cuMemGetInfo_v2");
	return next ? next(free_bytes, total) : GM_CUDA_ERROR_NOT_FOUND;
}

int beside_calls(void)
{
	return calls;
}

void *beside_find(const char *name)
{
	/* Not by a jump, which would make its caller the one who asks. */
	void *volatile found = dlsym(RTLD_DEFAULT, name);
	return found;
}
