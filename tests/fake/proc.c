/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuGetProcAddress of the fake driver: a symbol in the version that has the caller's signature, as
 * the real one answers.
 */
#include "tests/fake/fake.h"

#include <dlfcn.h>
#include <string.h>

static const struct {
	const char *name, *exported;
	int version;
	const char *ability; /* absent when GPUMEM_FAKE_WITHOUT names it */
} symbols[] = {
#define SYMBOL(name, symbol, version, needed, parameters) {#name, symbol, version, NULL},
	GM_CU_FUNCTIONS(SYMBOL) GM_CU_OLD_FUNCTIONS(SYMBOL)
#undef SYMBOL
		{"cuStreamBeginCapture", "cuStreamBeginCapture_v2", 10010, NULL},
	{"cuStreamEndCapture", "cuStreamEndCapture", 10000, NULL},
	{"cuGraphDestroy", "cuGraphDestroy", 10000, NULL},
};

/*
 * What a driver may lack must not be in the library's symbol table either, where a program looks
 * next: it stands there under a name that nobody asks for.
 */
static const char *own_name(size_t i)
{
	if (strcmp(symbols[i].name, "cuStreamGetId") == 0)
		return "fake_cuStreamGetId";
	if (strcmp(symbols[i].name, "cuCtxRecordEvent") == 0)
		return "fake_cuCtxRecordEvent";
	if (strcmp(symbols[i].name, "cuCtxGetId") == 0)
		return "fake_cuCtxGetId";
	return symbols[i].exported;
}

static bool absent(const char *name)
{
	return (strcmp(name, "cuStreamGetId") == 0 && fake_without("streamid")) ||
	       (strcmp(name, "cuCtxRecordEvent") == 0 && fake_without("ctxevent")) ||
	       (strcmp(name, "cuCtxGetId") == 0 && fake_without("ctxid"));
}

FAKE_API gm_cu_result cuGetProcAddress_v2(
	const char *name, void **fn, int version, gm_cu_u64 flags, gm_cu_query_result *status);
FAKE_API gm_cu_result cuGetProcAddress_v2(
	const char *name, void **fn, int version, gm_cu_u64 flags, gm_cu_query_result *status)
{
	int driver = (int)fake_bytes_env("GPUMEM_FAKE_VERSION", 13000);

	(void)flags;
	if (!name || !fn)
		return GM_CUDA_ERROR_INVALID_VALUE;
	*fn = NULL;
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
		if (strcmp(symbols[i].name, name) == 0 && !absent(name)) {
			int enough = symbols[i].version <= version && symbols[i].version <= driver;
			if (status)
				*status = enough ? 0 : 2;
			if (!enough)
				return GM_CUDA_ERROR_NOT_FOUND;
			*fn = dlsym(RTLD_DEFAULT, own_name(i));
			if (!*fn) {
				Dl_info self;
				if (dladdr((void *)cuGetProcAddress_v2, &self)) {
					void *handle =
						dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
					*fn = handle ? dlsym(handle, own_name(i)) : NULL;
				}
			}
			return *fn ? GM_CUDA_SUCCESS : GM_CUDA_ERROR_NOT_FOUND;
		}
	if (status)
		*status = 1;
	return GM_CUDA_ERROR_NOT_FOUND;
}
