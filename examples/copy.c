/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies data to memory from gpumemd and back. Without a GPU that memory is host memory, which the
 * CPU can access by itself. A GPU's memory is copied by the CUDA driver.
 */
#include <dlfcn.h>
#include <gpumem/gpumem.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The driver is loaded at run time, so that this program also runs where there is none. A program
 * for GPUs only would include <cuda.h> and link with -lcuda. */
static int (*copy_async)(uint64_t to, uint64_t from, size_t n, void *stream);
static int (*synchronize)(void *stream);

/* Makes a context on the GPU. The driver may number it differently, so its UUID is looked for. */
static int use_gpu(const gpumem_device_info_t *gpu)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context;
	int device, count = 0;
	uint8_t uuid[16];

	if (!cuda)
		return -1;
	int (*init)(unsigned) = dlsym(cuda, "cuInit");
	int (*get_count)(int *) = dlsym(cuda, "cuDeviceGetCount");
	int (*get)(int *, int) = dlsym(cuda, "cuDeviceGet");
	int (*get_uuid)(void *, int) = dlsym(cuda, "cuDeviceGetUuid_v2");
	int (*retain)(void **, int) = dlsym(cuda, "cuDevicePrimaryCtxRetain");
	int (*set_current)(void *) = dlsym(cuda, "cuCtxSetCurrent");
	copy_async = dlsym(cuda, "cuMemcpyAsync");
	synchronize = dlsym(cuda, "cuStreamSynchronize");
	if (!get_uuid || init(0) || get_count(&count))
		return -1;
	for (int i = 0; i < count; i++)
		if (!get(&device, i) && !get_uuid(uuid, device) &&
			!memcmp(uuid, gpu->uuid, sizeof(uuid)))
			return retain(&context, device) || set_current(context) ? -1 : 0;
	return -1;
}

/* Copies in either direction, and waits until it is done. */
static int copy(void *to, const void *from, size_t n)
{
	if (!copy_async) {
		memcpy(to, from, n);
		return 0;
	}
	return copy_async((uintptr_t)to, (uintptr_t)from, n, NULL) || synchronize(NULL) ? -1 : 0;
}

int main(void)
{
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	gpumem_session *session;
	char text[] = "hello", back[sizeof(text)] = "";
	void *memory;

	if (gpumem_connect(NULL, &session) || gpumem_device_info(session, 0, &info)) {
		fprintf(stderr, "%s\n", gpumem_error_detail());
		return 1;
	}
	if (!strcmp(info.backend, "cuda") && use_gpu(&info)) {
		fprintf(stderr, "the driver cannot use %s\n", info.name);
		return 1;
	}
	if (gpumem_alloc(session, 0, sizeof(text), NULL, NULL, &memory)) {
		fprintf(stderr, "%s\n", gpumem_error_detail());
		return 1;
	}

	if (copy(memory, text, sizeof(text)) || copy(back, memory, sizeof(back))) {
		fprintf(stderr, "the copy failed\n");
		return 1;
	}
	printf("\"%s\" at %p on %s\n", back, memory, info.name);

	gpumem_free(session, memory, GPUMEM_STREAM_DONE);
	gpumem_disconnect(session);
	return 0;
}
