/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake driver as those of CUDA 11 are: with cuGetProcAddress in its first form, which tells no
 * status, and without the second. It finds everything in the fake driver, whose file
 * GPUMEM_FAKE_DRIVER names.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "tests/fake/fake.h"

typedef gm_cu_result (*get_proc_v2_fn)(
	const char *name, void **fn, int version, uint64_t flags, gm_cu_query_result *status);

FAKE_API gm_cu_result cuGetProcAddress(const char *name, void **fn, int version, uint64_t flags);
FAKE_API gm_cu_result cuGetProcAddress(const char *name, void **fn, int version, uint64_t flags)
{
	const char *file = getenv("GPUMEM_FAKE_DRIVER");
	void *driver = file ? dlopen(file, RTLD_NOW | RTLD_LOCAL) : NULL;
	get_proc_v2_fn get_proc =
		driver ? (get_proc_v2_fn)dlsym(driver, "cuGetProcAddress_v2") : NULL;

	return get_proc ? get_proc(name, fn, version, flags, NULL) : GM_CUDA_ERROR_NOT_FOUND;
}
