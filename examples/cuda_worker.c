/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker that computes on a GPU, in memory from gpumemd.
 *
 *   cuda_worker         computes, checks the result, and frees the memory
 *   cuda_worker --ipc   leaves the result in a buffer on the ipc transport, prints the buffer's
 *                       CUDA IPC handle, and keeps the buffer until its input ends; meanwhile
 *                       examples/ipc_open can open it
 */
#include <gpumem/gpumem.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_driver.h"

#define N 1000000

/* x = factor * x + 1. It is in PTX, which the driver compiles for its GPU, so nvcc is not
 * needed. */
static const char kernel_text[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	".visible .entry scale(.param .u64 data, .param .f32 factor, .param .u32 n)\n"
	"{\n"
	"	.reg .pred %p<2>;\n"
	"	.reg .b32 %r<5>;\n"
	"	.reg .f32 %f<3>;\n"
	"	.reg .b64 %rd<3>;\n"
	"	ld.param.u64 %rd1, [data];\n"
	"	ld.param.f32 %f1, [factor];\n"
	"	ld.param.u32 %r1, [n];\n"
	"	mov.u32 %r2, %ctaid.x;\n"
	"	mov.u32 %r3, %ntid.x;\n"
	"	mov.u32 %r4, %tid.x;\n"
	"	mad.lo.u32 %r2, %r2, %r3, %r4;\n"
	"	setp.ge.u32 %p1, %r2, %r1;\n"
	"	@%p1 bra DONE;\n"
	"	cvta.to.global.u64 %rd1, %rd1;\n"
	"	mul.wide.u32 %rd2, %r2, 4;\n"
	"	add.u64 %rd1, %rd1, %rd2;\n"
	"	ld.global.f32 %f2, [%rd1];\n"
	"	fma.rn.f32 %f2, %f2, %f1, 0f3F800000;\n"
	"	st.global.f32 [%rd1], %f2;\n"
	"DONE:\n"
	"	ret;\n"
	"}\n";

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, gpumem_error_detail());
	return 1;
}

/* Makes a context on the GPU that the daemon calls device 0. The driver may number it
 * differently. */
static int use_device(const gpumem_device_info_t *info)
{
	int count;
	CUDA(cuInit(0));
	CUDA(cuDeviceGetCount(&count));
	for (int i = 0; i < count; i++) {
		CUdevice device;
		CUuuid uuid;
		CUcontext context;
		CUDA(cuDeviceGet(&device, i));
		CUDA(cuDeviceGetUuid(&uuid, device));
		if (memcmp(uuid.bytes, info->uuid, sizeof(uuid.bytes)))
			continue;
		CUDA(cuDevicePrimaryCtxRetain(&context, device));
		CUDA(cuCtxSetCurrent(context));
		return 0;
	}
	fprintf(stderr, "the driver does not show %s to this process\n", info->name);
	return 1;
}

static int compute(CUdeviceptr data, CUstream stream)
{
	static float x[N];
	CUmodule module;
	CUfunction scale;
	float factor = 2;
	unsigned n = N;
	void *arguments[] = {&data, &factor, &n};

	if (!cuModuleLoadData || !cuModuleGetFunction || !cuLaunchKernel) {
		fprintf(stderr, "this driver runs no kernels\n");
		return 1;
	}
	CUDA(cuModuleLoadData(&module, kernel_text));
	CUDA(cuModuleGetFunction(&scale, module, "scale"));
	for (int i = 0; i < N; i++)
		x[i] = (float)i;
	CUDA(cuMemcpyAsync(data, (CUdeviceptr)(uintptr_t)x, sizeof(x), stream));
	CUDA(cuLaunchKernel(scale, (N + 255) / 256, 1, 1, 256, 1, 1, 0, stream, arguments, NULL));
	CUDA(cuMemcpyAsync((CUdeviceptr)(uintptr_t)x, data, sizeof(x), stream));
	CUDA(cuStreamSynchronize(stream));
	for (int i = 0; i < N; i++)
		if (x[i] != 2 * (float)i + 1) {
			fprintf(stderr, "x[%d] is %g\n", i, (double)x[i]);
			return 1;
		}
	printf("%d numbers computed at %#llx\n", N, data);
	return 0;
}

static int in_heap(gpumem_session *session, CUstream stream)
{
	void *memory;
	if (gpumem_alloc(session, 0, N * sizeof(float), stream, NULL, &memory))
		return fail("gpumem_alloc");
	if (compute((CUdeviceptr)(uintptr_t)memory, stream))
		return 1;
	/* Freed on the stream: even if the stream were still working, this call would not wait, and
	 * the memory would be reused only after that work. */
	return gpumem_free(session, memory, stream) ? fail("gpumem_free") : 0;
}

static int in_ipc_buffer(gpumem_session *session, CUstream stream)
{
	GPUMEM_AUTO_BUFFER gpumem_buffer *buffer = NULL;
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	unsigned char handle[GPUMEM_IPC_HANDLE_BYTES];

	options.tag = "result";
	options.transport = GPUMEM_TRANSPORT_IPC;
	if (gpumem_buffer_create(session, 0, N * sizeof(float), &options, &buffer))
		return fail("gpumem_buffer_create");
	if (compute((CUdeviceptr)(uintptr_t)gpumem_buffer_ptr(buffer), stream))
		return 1;
	if (gpumem_buffer_ipc_handle(buffer, handle))
		return fail("gpumem_buffer_ipc_handle");
	for (size_t i = 0; i < sizeof(handle); i++)
		printf("%02x", handle[i]);
	printf("\n");
	fflush(stdout);
	/* Programs that opened the buffer must close it before it is destroyed. */
	while (getchar() != EOF)
		;
	return 0;
}

int main(int argc, char **argv)
{
	gpumem_session *session;
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	CUstream stream;

	if (cuda_load())
		return 1;
	if (gpumem_connect(NULL, &session) || gpumem_device_info(session, 0, &info))
		return fail("gpumem_connect");
	if (use_device(&info))
		return 1;
	CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	int status = argc > 1 && !strcmp(argv[1], "--ipc") ? in_ipc_buffer(session, stream)
							   : in_heap(session, stream);
	gpumem_disconnect(session);
	return status;
}
