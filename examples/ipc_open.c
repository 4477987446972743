/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plain CUDA program that knows nothing about gpumemd. It opens the memory behind a CUDA IPC
 * handle and prints its first bytes.
 *
 *   ipc_open HANDLE     HANDLE is the 128 hexadecimal digits that cuda_worker --ipc prints,
 *                       or - to read them from the standard input
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
		fprintf(stderr,
			"usage: ipc_open HANDLE    (128 hexadecimal digits, which cuda_worker --ipc "
			"prints, or - to read them)\n");
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
	/* The owner destroys the buffer only after this. */
	CUDA(cuIpcCloseMemHandle(memory));
	return 0;
}
