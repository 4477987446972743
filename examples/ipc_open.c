/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plain CUDA program: it opens the memory behind a CUDA IPC handle, and knows nothing of gpumemd.
 *
 *   ipc_open HANDLE     the 128 hexadecimal digits that examples/cuda_worker --ipc prints; - reads
 *                       them from the standard input
 *
 * Prints the first bytes of the memory.
 */
#include <stdint.h>
#include <string.h>

#include "cuda_driver.h"

static int parse(const char *text, CUipcMemHandle *handle)
{
	if (strlen(text) != 2 * sizeof(handle->reserved))
		return -1;
	for (size_t i = 0; i < sizeof(handle->reserved); i++) {
		unsigned byte;
		if (sscanf(text + 2 * i, "%2x", &byte) != 1)
			return -1;
		handle->reserved[i] = (char)byte;
	}
	return 0;
}

int main(int argc, char **argv)
{
	char line[256] = "";
	unsigned char bytes[16];
	CUipcMemHandle handle;
	CUdevice device;
	CUcontext context;
	CUdeviceptr memory;

	if (argc == 2 && !strcmp(argv[1], "-") && fgets(line, sizeof(line), stdin))
		line[strcspn(line, "\n")] = '\0';
	else if (argc == 2)
		snprintf(line, sizeof(line), "%s", argv[1]);
	if (parse(line, &handle)) {
		fprintf(stderr, "usage: ipc_open HANDLE    (128 hexadecimal digits, or -)\n");
		return 2;
	}
	if (cuda_load())
		return 1;
	CUDA(cuInit(0));
	CUDA(cuDeviceGet(&device, 0));
	CUDA(cuDevicePrimaryCtxRetain(&context, device));
	CUDA(cuCtxSetCurrent(context));
	CUDA(cuIpcOpenMemHandle(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	CUDA(cuMemcpyAsync((CUdeviceptr)(uintptr_t)bytes, memory, sizeof(bytes), NULL));
	CUDA(cuStreamSynchronize(NULL));
	for (size_t i = 0; i < sizeof(bytes); i++)
		printf("%02x%s", bytes[i], i + 1 < sizeof(bytes) ? " " : "\n");
	/* Before the owner frees it. */
	CUDA(cuIpcCloseMemHandle(memory));
	return 0;
}
