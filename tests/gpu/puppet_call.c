/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of a puppet: see puppet_call.h. Each is one call of the driver's or a few that belong
 * together, made in the thread that asks for it; what comes of it is handed on as it is, judged by
 * nobody here.
 */
#include "tests/gpu/puppet_call.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cuda/cuda.h"
#include "tests/gpu/puppet_astray.h"

static const struct gm_cuda *cuda;
static sem_t gate;
static int busy;

void puppet_call_init(void)
{
	sem_init(&gate, 0, 0);
}

static void wait_at_gate(void *unused)
{
	(void)unused;
	while (sem_wait(&gate) < 0 && errno == EINTR)
		;
}

static int create(const struct puppet_call *call, uint64_t *ret)
{
	gm_cu_prop prop = {0};
	gm_cu_mem handle = 0;
	int result;

	prop.type = GM_CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = (int)call->b < 0 ? GM_CU_MEM_LOCATION_TYPE_HOST_NUMA
					      : GM_CU_MEM_LOCATION_TYPE_DEVICE;
	prop.location.id = (int)call->b < 0 ? 0 : (int)call->b;
	if (call->c)
		prop.requested_handle_types = GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	result = cuda->cuMemCreate(&handle, call->a, &prop, 0);
	*ret = handle;
	return result;
}

static int set_access(const struct puppet_call *call)
{
	gm_cu_access access = {0};

	access.location.type =
		(int)call->d < 0 ? GM_CU_MEM_LOCATION_TYPE_HOST : GM_CU_MEM_LOCATION_TYPE_DEVICE;
	access.location.id = (int)call->d < 0 ? 0 : (int)call->d;
	access.flags = (int)call->c;
	return cuda->cuMemSetAccess(call->a, call->b, &access, 1);
}

static uint64_t count_bytes(const unsigned char *bytes, size_t n, unsigned char value)
{
	uint64_t found = 0;

	for (size_t i = 0; i < n; i++)
		found += bytes[i] == value;
	return found;
}

static int count(const struct puppet_call *call, uint64_t *ret)
{
	gm_cu_stream stream = (gm_cu_stream)(uintptr_t)call->d;
	unsigned char *copy = malloc(call->b);
	int result;

	if (!copy)
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	memset(copy, (int)~call->c, call->b); /* a copy that is not made is not taken for one */
	result = cuda->cuMemcpyAsync((gm_cu_ptr)(uintptr_t)copy, call->a, call->b, stream);
	if (!result)
		result = cuda->cuStreamSynchronize(stream);
	if (!result)
		*ret = count_bytes(copy, call->b, (unsigned char)call->c);
	free(copy);
	return result;
}

static int nvml_device(int device, const struct gm_nvml **ret_nvml, gm_nvml_device *ret_handle)
{
	char why[GM_CUDA_WHY_BYTES], text[64], *at = text + sprintf(text, "GPU-");
	gm_cu_uuid uuid;

	if (gm_nvml_load(ret_nvml, why) < 0)
		return GM_NVML_ERROR_UNINITIALIZED;
	if (cuda->cuDeviceGetUuid(&uuid, device))
		return GM_NVML_ERROR_NOT_FOUND;
	for (int i = 0; i < 16; i++)
		at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
			(unsigned char)uuid.bytes[i]);
	return (*ret_nvml)->nvmlDeviceGetHandleByUUID(text, ret_handle);
}

static int nvml_free(int device, struct puppet_answer *answer)
{
	const struct gm_nvml *nvml;
	gm_nvml_device handle;
	gm_nvml_memory memory;
	int result = nvml_device(device, &nvml, &handle);

	if (!result)
		result = nvml->nvmlDeviceGetMemoryInfo(handle, &memory);
	if (!result) {
		answer->value = memory.free;
		answer->value2 = memory.total;
	}
	return result;
}

static int nvml_process(int device, unsigned int pid, struct puppet_answer *answer)
{
	gm_nvml_process processes[256];
	unsigned int n = 256;
	const struct gm_nvml *nvml;
	gm_nvml_device handle;
	int result = nvml_device(device, &nvml, &handle);

	if (!result)
		result = nvml->nvmlDeviceGetComputeRunningProcesses(handle, &n, processes);
	for (unsigned int i = 0; !result && i < n; i++)
		if (processes[i].pid == pid) {
			answer->value = processes[i].used;
			answer->value2 = 1;
		}
	return result;
}

/* Functions that only tests of graphs call, and that are therefore in no table. */
static void *driver_symbol(const char *name)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	return library ? dlsym(library, name) : NULL;
}

static int capture(gm_cu_stream stream, int mode)
{
	int (*begin)(gm_cu_stream, int) =
		(int (*)(gm_cu_stream, int))driver_symbol("cuStreamBeginCapture_v2");

	return begin ? begin(stream, mode) : GM_CUDA_ERROR_NOT_FOUND;
}

static int context_reset(gm_cu_device device)
{
	int (*reset)(gm_cu_device) =
		(int (*)(gm_cu_device))driver_symbol("cuDevicePrimaryCtxReset_v2");

	return reset ? reset(device) : GM_CUDA_ERROR_NOT_FOUND;
}

static int context_sync(void)
{
	int (*sync)(void) = (int (*)(void))driver_symbol("cuCtxSynchronize");

	return sync ? sync() : GM_CUDA_ERROR_NOT_FOUND;
}

static int look(gm_cu_device device)
{
	const char *name;
	gm_cu_device same;
	gm_cu_uuid uuid;
	char text[128];
	size_t bytes;
	int number, result;

	if ((result = cuda->cuInit(0)) || (result = cuda->cuDriverGetVersion(&number)) ||
		(result = cuda->cuGetErrorName(GM_CUDA_ERROR_UNKNOWN, &name)) ||
		(result = cuda->cuGetErrorString(GM_CUDA_ERROR_UNKNOWN, &name)) ||
		(result = cuda->cuDeviceGetCount(&number)) ||
		(result = cuda->cuDeviceGet(&same, device)) ||
		(result = cuda->cuDeviceGetName(text, sizeof text, device)) ||
		(result = cuda->cuDeviceGetUuid(&uuid, device)) ||
		(result = cuda->cuDeviceGetPCIBusId(text, sizeof text, device)) ||
		(result = cuda->cuDeviceTotalMem(&bytes, device)) ||
		(result = cuda->cuDeviceGetAttribute(
			 &number, GM_CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, device)) ||
		(result = cuda->cuDeviceCanAccessPeer(&number, device, device)))
		return result;
	return GM_CUDA_SUCCESS;
}

static int granularity(int device, uint64_t *ret)
{
	gm_cu_prop prop = {.type = GM_CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {GM_CU_MEM_LOCATION_TYPE_DEVICE, device}};
	size_t bytes = 0;
	int result = cuda->cuMemGetAllocationGranularity(
		&bytes, &prop, GM_CU_MEM_ALLOC_GRANULARITY_MINIMUM);

	*ret = bytes;
	return result;
}

static void do_nothing(void *unused)
{
	(void)unused;
}

static int pages(uint64_t bytes, int fd, uint64_t *ret)
{
	int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);

	*ret = (uintptr_t)at;
	return at == MAP_FAILED ? GM_CUDA_ERROR_OUT_OF_MEMORY : GM_CUDA_SUCCESS;
}

static int capture_end(gm_cu_stream stream)
{
	int (*end)(gm_cu_stream, void **) =
		(int (*)(gm_cu_stream, void **))driver_symbol("cuStreamEndCapture");
	int (*destroy)(void *) = (int (*)(void *))driver_symbol("cuGraphDestroy");
	void *graph = NULL;
	int result = end ? end(stream, &graph) : GM_CUDA_ERROR_NOT_FOUND;

	if (!result && graph && destroy)
		result = destroy(graph);
	return result;
}

static int fork_call(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		gm_cu_device device;
		/* Results fit neither an exit status nor each other: what is asked is whether it is
		 * the expected one. */
		_exit(cuda->cuDeviceGet(&device, 0) == GM_CUDA_ERROR_NOT_INITIALIZED ? 3 : 0);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) && WEXITSTATUS(status) == 3 ? GM_CUDA_ERROR_NOT_INITIALIZED
							     : GM_CUDA_SUCCESS;
}

void puppet_call_make(
	const struct puppet_call *call, int fd, struct puppet_answer *answer, int *ret_fd)
{
	gm_cu_stream stream = (gm_cu_stream)(uintptr_t)call->a;
	gm_cu_event event = NULL;
	gm_cu_ctx context = NULL;
	gm_cu_ipc_mem ipc;
	uint64_t *value = &answer->value;
	char why[GM_CUDA_WHY_BYTES];
	size_t bytes = 0, bytes2 = 0;
	int number = 0;

	if (call->op == PUPPET_INIT) {
		answer->result = gm_cuda_load(&cuda, why) < 0 ? GM_CUDA_ERROR_NO_DEVICE : 0;
		if (answer->result)
			fprintf(stderr, "%s\n", why);
		return;
	}
	switch (call->op) {
	case PUPPET_INIT:
		break;
	case PUPPET_CONTEXT:
		answer->result = cuda->cuDevicePrimaryCtxRetain(&context, (int)call->a);
		if (!answer->result)
			answer->result = cuda->cuCtxSetCurrent(context);
		*value = (uintptr_t)context;
		break;
	case PUPPET_CONTEXT_END:
		answer->result = cuda->cuDevicePrimaryCtxRelease((int)call->a);
		break;
	case PUPPET_CONTEXT_POP:
		answer->result = cuda->cuCtxPopCurrent(&context);
		break;
	case PUPPET_CONTEXT_NEW:
		answer->result = cuda->cuCtxCreate(&context, 0, (int)call->a);
		*value = (uintptr_t)context;
		break;
	case PUPPET_CONTEXT_DROP:
		answer->result = cuda->cuCtxDestroy((gm_cu_ctx)(uintptr_t)call->a);
		break;
	case PUPPET_CONTEXT_PUSH:
		answer->result = cuda->cuCtxPushCurrent((gm_cu_ctx)(uintptr_t)call->a);
		break;
	case PUPPET_CONTEXT_ID: {
		unsigned long long id = 0;
		answer->result = cuda->cuCtxGetId((gm_cu_ctx)(uintptr_t)call->a, &id);
		*value = id;
		break;
	}
	case PUPPET_CONTEXT_DEVICE: {
		gm_cu_device device = -1;
		answer->result = cuda->cuCtxGetDevice(&device);
		*value = (uint64_t)device;
		break;
	}
	case PUPPET_CONTEXT_RESET:
		answer->result = context_reset((int)call->a);
		break;
	case PUPPET_CONTEXT_TAKE:
		answer->result = cuda->cuDevicePrimaryCtxRetain(&context, (int)call->a);
		*value = (uintptr_t)context;
		break;
	case PUPPET_CONTEXT_STATE: {
		unsigned int flags;
		answer->result = cuda->cuDevicePrimaryCtxGetState((int)call->a, &flags, &number);
		*value = (uint64_t)number;
		break;
	}
	case PUPPET_CONTEXT_CURRENT:
		answer->result = cuda->cuCtxGetCurrent(&context);
		*value = (uintptr_t)context;
		break;
	case PUPPET_CONTEXT_SET:
		answer->result = cuda->cuCtxSetCurrent((gm_cu_ctx)(uintptr_t)call->a);
		break;
	case PUPPET_CONTEXT_VERSION: {
		unsigned int version;
		answer->result = cuda->cuCtxGetApiVersion((gm_cu_ctx)(uintptr_t)call->a, &version);
		break;
	}
	case PUPPET_CONTEXT_RECORD:
		answer->result = cuda->cuCtxRecordEvent(
			(gm_cu_ctx)(uintptr_t)call->a, (gm_cu_event)(uintptr_t)call->b);
		break;
	case PUPPET_LOOK:
		answer->result = look((int)call->a);
		break;
	case PUPPET_GRANULARITY:
		answer->result = granularity((int)call->a, value);
		break;
	case PUPPET_ASTRAY:
		answer->result = puppet_astray(cuda);
		break;
	case PUPPET_CONTEXT_SYNC:
		answer->result = context_sync();
		break;
	case PUPPET_CREATE:
		answer->result = create(call, value);
		break;
	case PUPPET_RELEASE:
		answer->result = cuda->cuMemRelease(call->a);
		break;
	case PUPPET_EXPORT:
		answer->result = cuda->cuMemExportToShareableHandle(
			ret_fd, call->a, GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
		break;
	case PUPPET_IMPORT:
		answer->result = cuda->cuMemImportFromShareableHandle((gm_cu_mem *)value,
			(void *)(intptr_t)fd, GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
		break;
	case PUPPET_RESERVE:
		answer->result =
			cuda->cuMemAddressReserve((gm_cu_ptr *)value, call->a, call->b, call->c, 0);
		break;
	case PUPPET_UNRESERVE:
		answer->result = cuda->cuMemAddressFree(call->a, call->b);
		break;
	case PUPPET_MAP:
		answer->result = cuda->cuMemMap(call->a, call->b, call->d, call->c, 0);
		break;
	case PUPPET_UNMAP:
		answer->result = cuda->cuMemUnmap(call->a, call->b);
		break;
	case PUPPET_ACCESS:
		answer->result = set_access(call);
		break;
	case PUPPET_RETAIN:
		answer->result = cuda->cuMemRetainAllocationHandle(
			(gm_cu_mem *)value, (void *)(uintptr_t)call->a);
		break;
	case PUPPET_SET:
		answer->result = cuda->cuMemsetD8Async(
			call->a, (unsigned char)call->c, call->b, (gm_cu_stream)(uintptr_t)call->d);
		break;
	case PUPPET_COUNT:
		answer->result = count(call, value);
		break;
	case PUPPET_CPU_COUNT:
		*value = count_bytes(
			(const unsigned char *)(uintptr_t)call->a, call->b, (unsigned char)call->c);
		break;
	case PUPPET_COPY:
		answer->result = cuda->cuMemcpyAsync(
			call->a, call->b, call->c, (gm_cu_stream)(uintptr_t)call->d);
		break;
	case PUPPET_MEMORY_TYPE: {
		unsigned int type = 0;
		answer->result = cuda->cuPointerGetAttribute(
			&type, GM_CU_POINTER_ATTRIBUTE_MEMORY_TYPE, call->a);
		*value = type;
		break;
	}
	case PUPPET_PAGES:
		answer->result = pages(call->a, fd, value);
		break;
	case PUPPET_REGISTER:
		answer->result = cuda->cuMemHostRegister((void *)(uintptr_t)call->a, call->b,
			GM_CU_MEMHOSTREGISTER_PORTABLE | GM_CU_MEMHOSTREGISTER_DEVICEMAP);
		break;
	case PUPPET_DEVICE_PTR:
		answer->result = cuda->cuMemHostGetDevicePointer(
			(gm_cu_ptr *)value, (void *)(uintptr_t)call->a, 0);
		break;
	case PUPPET_UNREGISTER:
		answer->result = cuda->cuMemHostUnregister((void *)(uintptr_t)call->a);
		break;
	case PUPPET_HOST_ALLOC:
		answer->result = cuda->cuMemHostAlloc((void **)value, call->a, 0);
		break;
	case PUPPET_MANAGED:
		answer->result =
			cuda->cuMemAllocManaged((gm_cu_ptr *)value, call->a, (unsigned int)call->b);
		break;
	case PUPPET_PREFETCH:
		answer->result = cuda->cuMemPrefetchAsync(
			call->a, call->b, (gm_cu_device)call->c, (gm_cu_stream)(uintptr_t)call->d);
		break;
	case PUPPET_ADVISE:
		answer->result = cuda->cuMemAdvise(
			call->a, call->b, (gm_cu_advice)call->c, (gm_cu_device)call->d);
		break;
	case PUPPET_HOST_FREE:
		answer->result = cuda->cuMemFreeHost((void *)(uintptr_t)call->a);
		break;
	case PUPPET_SYNC:
		answer->result = cuda->cuStreamSynchronize(stream);
		break;
	case PUPPET_BUSY:
		answer->result = cuda->cuLaunchHostFunc(stream, wait_at_gate, NULL);
		busy += !answer->result;
		break;
	case PUPPET_IDLE:
		for (; busy; busy--)
			sem_post(&gate);
		break;
	case PUPPET_CALL:
		answer->result = cuda->cuLaunchHostFunc(stream, do_nothing, NULL);
		break;
	case PUPPET_STREAM_NEW:
		answer->result = cuda->cuStreamCreate(&stream, (unsigned)call->a);
		*value = (uintptr_t)stream;
		break;
	case PUPPET_STREAM_END:
		answer->result = cuda->cuStreamDestroy(stream);
		break;
	case PUPPET_STREAM_ID:
		answer->result = cuda->cuStreamGetId(stream, (unsigned long long *)value);
		break;
	case PUPPET_STREAM_QUERY:
		answer->result = cuda->cuStreamQuery(stream);
		break;
	case PUPPET_EVENT_NEW:
		answer->result = cuda->cuEventCreate(&event, (unsigned)call->a);
		*value = (uintptr_t)event;
		break;
	case PUPPET_EVENT_RECORD:
		answer->result = cuda->cuEventRecord(
			(gm_cu_event)(uintptr_t)call->a, (gm_cu_stream)(uintptr_t)call->b);
		break;
	case PUPPET_EVENT:
	case PUPPET_CONTEXT_EVENT:
		answer->result = cuda->cuEventCreate(&event, GM_CU_EVENT_DISABLE_TIMING);
		if (!answer->result && call->op == PUPPET_EVENT)
			answer->result = cuda->cuEventRecord(event, stream);
		else if (!answer->result && !(answer->result = cuda->cuCtxGetCurrent(&context)))
			answer->result = cuda->cuCtxRecordEvent(context, event);
		*value = (uintptr_t)event;
		break;
	case PUPPET_EVENT_QUERY:
		answer->result = cuda->cuEventQuery((gm_cu_event)(uintptr_t)call->a);
		break;
	case PUPPET_EVENT_END:
		answer->result = cuda->cuEventDestroy((gm_cu_event)(uintptr_t)call->a);
		break;
	case PUPPET_WAIT_EVENT:
		answer->result =
			cuda->cuStreamWaitEvent(stream, (gm_cu_event)(uintptr_t)call->b, 0);
		break;
	case PUPPET_WRITE_WORD:
		answer->result = cuda->cuStreamWriteValue64(
			stream, call->b, call->c, GM_CU_STREAM_WRITE_VALUE_DEFAULT);
		break;
	case PUPPET_AWAIT_WORD:
		answer->result = cuda->cuStreamWaitValue64(
			stream, call->b, call->c, GM_CU_STREAM_WAIT_VALUE_GEQ);
		break;
	case PUPPET_ALLOC:
		answer->result = cuda->cuMemAlloc((gm_cu_ptr *)value, call->a);
		break;
	case PUPPET_FREE:
		answer->result = cuda->cuMemFree(call->a);
		break;
	case PUPPET_IPC_GET:
		answer->result = cuda->cuIpcGetMemHandle(&ipc, call->a);
		memcpy(answer->blob, &ipc, sizeof ipc);
		break;
	case PUPPET_IPC_OPEN:
		memcpy(&ipc, call->blob, sizeof ipc);
		answer->result =
			cuda->cuIpcOpenMemHandle((gm_cu_ptr *)value, ipc, (unsigned)call->a);
		break;
	case PUPPET_IPC_CLOSE:
		answer->result = cuda->cuIpcCloseMemHandle(call->a);
		break;
	case PUPPET_FORK: {
		pid_t pid = fork();
		if (pid == 0)
			for (;;)
				pause();
		*value = (uint64_t)pid;
		break;
	}
	case PUPPET_FORK_CALL:
		answer->result = fork_call();
		break;
	case PUPPET_MEM_INFO:
		answer->result = cuda->cuMemGetInfo(&bytes, &bytes2);
		answer->value = bytes;
		answer->value2 = bytes2;
		break;
	case PUPPET_NVML_FREE:
		answer->result = nvml_free((int)call->a, answer);
		break;
	case PUPPET_NVML_PROCESS:
		answer->result = nvml_process((int)call->a, (unsigned)call->b, answer);
		break;
	case PUPPET_CAPTURE:
		answer->result = capture(stream, (int)call->b);
		break;
	case PUPPET_CAPTURE_END:
		answer->result = capture_end(stream);
		break;
	case PUPPET_CAPTURING:
		answer->result = cuda->cuStreamIsCapturing(stream, &number);
		*value = (uint64_t)number;
		break;
	case PUPPET_CAPTURE_INFO: {
		gm_cu_u64 id;
		answer->result = cuda->cuStreamGetCaptureInfo(stream, &number, &id);
		*value = (uint64_t)number;
		break;
	}
	case PUPPET_CAPTURE_MODE:
		number = (int)call->a;
		answer->result = cuda->cuThreadExchangeStreamCaptureMode(&number);
		*value = (uint64_t)number;
		break;
	case PUPPET_FD_FLAGS:
		answer->result = cuda->cuMemExportToShareableHandle(
			&number, call->a, GM_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
		if (!answer->result) {
			*value = (uint64_t)fcntl(number, F_GETFD);
			close(number);
		}
		break;
	case PUPPET_ATTRIBUTE:
		answer->result = cuda->cuDeviceGetAttribute(&number, (int)call->a, (int)call->b);
		*value = (uint64_t)number;
		break;
	}
}

/* ---- beside */

struct beside {
	struct puppet_call call;
	gm_cu_ctx context;
};

static void *make_beside(void *arg)
{
	struct beside *beside = arg;
	struct puppet_answer unheard = {0};
	int fd = -1;

	if (cuda->cuCtxSetCurrent(beside->context) == GM_CUDA_SUCCESS)
		puppet_call_make(&beside->call, -1, &unheard, &fd);
	if (fd >= 0)
		close(fd);
	free(beside);
	return NULL;
}

int puppet_call_beside(const struct puppet_call *call)
{
	struct beside *beside = malloc(sizeof *beside);
	pthread_t thread;
	int result;

	if (!beside)
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	beside->call = *call;
	result = cuda->cuCtxGetCurrent(&beside->context);
	if (!result && pthread_create(&thread, NULL, make_beside, beside) == 0)
		pthread_detach(thread);
	else
		free(beside);
	return result;
}
