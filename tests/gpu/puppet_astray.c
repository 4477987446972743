/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work that goes astray: see puppet_astray.h. On a GPU it is a kernel, which the driver compiles,
 * that stores where nothing is mapped. The fake driver has no kernels: there it is a set of memory
 * that is unmapped before its turn comes.
 */
#include "tests/gpu/puppet_astray.h"

#include <dlfcn.h>
#include <errno.h>
#include <semaphore.h>

#define BYTES ((size_t)2 << 20)

static const char kernel[] = ".version 7.0\n"
			     ".target sm_70\n"
			     ".address_size 64\n"
			     ".visible .entry astray(.param .u64 where)\n"
			     "{\n"
			     "	.reg .b64 %where;\n"
			     "	.reg .b32 %what;\n"
			     "	ld.param.u64 %where, [where];\n"
			     "	mov.u32 %what, 1;\n"
			     "	st.global.u32 [%where], %what;\n"
			     "	ret;\n"
			     "}\n";

/* Of no table, as nobody else launches kernels. */
struct launcher {
	int (*load)(void **module, const void *image);
	int (*find)(void **function, void *module, const char *name);
	int (*launch)(void *function, unsigned x, unsigned y, unsigned z, unsigned block_x,
		unsigned block_y, unsigned block_z, unsigned shared_bytes, gm_cu_stream stream,
		void **parameters, void **extra);
};

static int find_launcher(struct launcher *ret_launcher)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	if (!library)
		return GM_CUDA_ERROR_NOT_FOUND;
	*(void **)&ret_launcher->load = dlsym(library, "cuModuleLoadData");
	*(void **)&ret_launcher->find = dlsym(library, "cuModuleGetFunction");
	*(void **)&ret_launcher->launch = dlsym(library, "cuLaunchKernel");
	return ret_launcher->load && ret_launcher->find && ret_launcher->launch
		       ? GM_CUDA_SUCCESS
		       : GM_CUDA_ERROR_NOT_FOUND;
}

static int store_astray(
	const struct gm_cuda *cuda, const struct launcher *launcher, gm_cu_stream stream)
{
	void *module, *function;
	gm_cu_ptr where = 0;
	void *parameters[] = {&where};
	int result;

	if ((result = cuda->cuMemAddressReserve(&where, BYTES, 0, 0, 0)) ||
		(result = launcher->load(&module, kernel)) ||
		(result = launcher->find(&function, module, "astray")))
		return result;
	return launcher->launch(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
}

static sem_t gate;

static void wait_at_gate(void *unused)
{
	(void)unused;
	while (sem_wait(&gate) < 0 && errno == EINTR)
		;
}

static int set_astray(const struct gm_cuda *cuda, gm_cu_stream stream)
{
	gm_cu_prop prop = {.type = GM_CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = GM_CU_MEM_LOCATION_TYPE_DEVICE}};
	gm_cu_access access = {.location = {.type = GM_CU_MEM_LOCATION_TYPE_DEVICE},
		.flags = GM_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	gm_cu_ptr where;
	gm_cu_mem mem;
	int result;

	sem_init(&gate, 0, 0);
	if ((result = cuda->cuMemCreate(&mem, BYTES, &prop, 0)) ||
		(result = cuda->cuMemAddressReserve(&where, BYTES, 0, 0, 0)) ||
		(result = cuda->cuMemMap(where, BYTES, 0, mem, 0)) ||
		(result = cuda->cuMemSetAccess(where, BYTES, &access, 1)) ||
		(result = cuda->cuLaunchHostFunc(stream, wait_at_gate, NULL)) ||
		(result = cuda->cuMemsetD8Async(where, 1, BYTES, stream)))
		return result;
	result = cuda->cuMemUnmap(where, BYTES);
	sem_post(&gate);
	return result;
}

int puppet_astray(const struct gm_cuda *cuda)
{
	struct launcher launcher;
	gm_cu_stream stream;
	int result = cuda->cuStreamCreate(&stream, GM_CU_STREAM_NON_BLOCKING);

	if (result)
		return result;
	result = find_launcher(&launcher) ? set_astray(cuda, stream)
					  : store_astray(cuda, &launcher, stream);
	return result ? result : (int)cuda->cuStreamSynchronize(stream);
}
