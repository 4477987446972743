/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts of the fake driver, and what needs one: plain allocations, their IPC handles, host
 * memory. Only primary contexts exist. Making one takes device memory, as on a real machine, which
 * is what a daemon that holds none saves.
 *
 * An IPC handle names a process, a socket of it and an allocation; whoever has the 64 bytes can
 * open it, whatever its uid, while the owner lives. Opening asks the owner for the file.
 */
#include "tests/fake/fake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <utlist.h>

#define STACK_MAX 16

static __thread struct {
	gm_cu_ctx at[STACK_MAX];
	int n;
} stack;

static gm_cu_ctx context_of(struct fake_device *device)
{
	return (gm_cu_ctx)device;
}

static struct fake_device *device_of(gm_cu_ctx ctx)
{
	return (struct fake_device *)ctx;
}

static bool context_ok(gm_cu_ctx ctx)
{
	for (int i = 0; i < fake.devices; i++)
		if (context_of(&fake.device[i]) == ctx)
			return fake.device[i].context_refs > 0;
	return false;
}

gm_cu_result fake_need_context(struct fake_device **ret_device)
{
	if (!stack.n || !stack.at[stack.n - 1])
		return GM_CUDA_ERROR_INVALID_CONTEXT;
	*ret_device = device_of(stack.at[stack.n - 1]);
	return fake_device_lost(*ret_device) ? GM_CUDA_ERROR_DEVICE_UNAVAILABLE : GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuDevicePrimaryCtxRetain(gm_cu_ctx *ctx, gm_cu_device number);
FAKE_API gm_cu_result cuDevicePrimaryCtxRetain(gm_cu_ctx *ctx, gm_cu_device number)
{
	gm_cu_result result = GM_CUDA_SUCCESS;
	struct fake_device *device = fake_get_device(number);

	FAKE_ENTER("cuDevicePrimaryCtxRetain");
	if (!device)
		return GM_CUDA_ERROR_INVALID_DEVICE;
	if (!ctx)
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.lock);
	if (fake_device_lost(device)) {
		result = GM_CUDA_ERROR_DEVICE_UNAVAILABLE;
	} else if (!device->context_refs) {
		size_t bytes = fake_bytes_env("GPUMEM_FAKE_CONTEXT_BYTES", (size_t)16 << 20);
		device->context_fd = openat(device->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		if (device->context_fd < 0 ||
			(bytes && fallocate(device->context_fd, 0, 0, (off_t)bytes) < 0)) {
			if (device->context_fd >= 0)
				close(device->context_fd);
			device->context_fd = -1;
			result = GM_CUDA_ERROR_OUT_OF_MEMORY;
		} else {
			fake_account(device, (int64_t)bytes);
			fake_account_context(device, true);
		}
	}
	if (!result) {
		device->context_refs++;
		*ctx = context_of(device);
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

FAKE_API gm_cu_result cuDevicePrimaryCtxRelease_v2(gm_cu_device number);
FAKE_API gm_cu_result cuDevicePrimaryCtxRelease_v2(gm_cu_device number)
{
	struct fake_device *device = fake_get_device(number);
	gm_cu_result result = GM_CUDA_SUCCESS;

	FAKE_ENTER("cuDevicePrimaryCtxRelease");
	if (!device)
		return GM_CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&fake.lock);
	if (!device->context_refs) {
		result = GM_CUDA_ERROR_INVALID_CONTEXT;
	} else if (--device->context_refs == 0) {
		struct stat st;
		if (fstat(device->context_fd, &st) == 0)
			fake_account(device, -(int64_t)st.st_size);
		fake_account_context(device, false);
		close(device->context_fd);
		device->context_fd = -1;
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

FAKE_API gm_cu_result cuDevicePrimaryCtxGetState(
	gm_cu_device number, unsigned int *flags, int *active);
FAKE_API gm_cu_result cuDevicePrimaryCtxGetState(
	gm_cu_device number, unsigned int *flags, int *active)
{
	struct fake_device *device = fake_get_device(number);

	FAKE_ENTER("cuDevicePrimaryCtxGetState");
	if (!device)
		return GM_CUDA_ERROR_INVALID_DEVICE;
	if (!flags || !active)
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.lock);
	*flags = 0;
	*active = device->context_refs > 0;
	pthread_mutex_unlock(&fake.lock);
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuCtxGetCurrent(gm_cu_ctx *ctx);
FAKE_API gm_cu_result cuCtxGetCurrent(gm_cu_ctx *ctx)
{
	FAKE_ENTER("cuCtxGetCurrent");
	if (!ctx)
		return GM_CUDA_ERROR_INVALID_VALUE;
	*ctx = stack.n ? stack.at[stack.n - 1] : NULL;
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuCtxSetCurrent(gm_cu_ctx ctx);
FAKE_API gm_cu_result cuCtxSetCurrent(gm_cu_ctx ctx)
{
	FAKE_ENTER("cuCtxSetCurrent");
	if (ctx && !context_ok(ctx))
		return GM_CUDA_ERROR_INVALID_CONTEXT;
	if (!stack.n)
		stack.n = 1;
	stack.at[stack.n - 1] = ctx;
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuCtxPushCurrent_v2(gm_cu_ctx ctx);
FAKE_API gm_cu_result cuCtxPushCurrent_v2(gm_cu_ctx ctx)
{
	FAKE_ENTER("cuCtxPushCurrent");
	if (!context_ok(ctx) || stack.n == STACK_MAX)
		return GM_CUDA_ERROR_INVALID_CONTEXT;
	stack.at[stack.n++] = ctx;
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuCtxPopCurrent_v2(gm_cu_ctx *ctx);
FAKE_API gm_cu_result cuCtxPopCurrent_v2(gm_cu_ctx *ctx)
{
	FAKE_ENTER("cuCtxPopCurrent");
	if (!stack.n)
		return GM_CUDA_ERROR_INVALID_CONTEXT;
	stack.n--;
	if (ctx)
		*ctx = stack.at[stack.n];
	return GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuCtxGetDevice(gm_cu_device *number);
FAKE_API gm_cu_result cuCtxGetDevice(gm_cu_device *number)
{
	struct fake_device *device;
	gm_cu_result result;

	FAKE_ENTER("cuCtxGetDevice");
	if (!number)
		return GM_CUDA_ERROR_INVALID_VALUE;
	result = fake_need_context(&device);
	if (!result)
		*number = (gm_cu_device)(device - fake.device);
	return result;
}

FAKE_API gm_cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total);
FAKE_API gm_cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	struct fake_device *device;
	gm_cu_result result;

	FAKE_ENTER("cuMemGetInfo");
	if (!free_bytes || !total)
		return GM_CUDA_ERROR_INVALID_VALUE;
	result = fake_need_context(&device);
	if (!result) {
		*free_bytes = fake_free_bytes(device);
		*total = device->total;
	}
	return result;
}

/* ---- plain allocations */

FAKE_API gm_cu_result cuMemAlloc_v2(gm_cu_ptr *ptr, size_t bytes);
FAKE_API gm_cu_result cuMemAlloc_v2(gm_cu_ptr *ptr, size_t bytes)
{
	struct fake_device *device;
	struct fake_map *map;
	struct fake_mem *mem;
	gm_cu_result result;

	FAKE_ENTER("cuMemAlloc");
	if (!ptr || !bytes)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if ((result = fake_need_context(&device)))
		return result;
	if (bytes > device->total)
		return GM_CUDA_ERROR_OUT_OF_MEMORY;
	bytes = (bytes + FAKE_GRANULARITY - 1) & ~(FAKE_GRANULARITY - 1);
	pthread_mutex_lock(&fake.lock);
	result = fake_mem_new((int)(device - fake.device), bytes, &mem);
	if (!result) {
		result = fake_map_add(0, mem, &map);
		if (result) {
			fake_mem_put(mem);
		} else {
			map->plain = true;
			map->device_access = ~0u;
			*ptr = (gm_cu_ptr)map->va;
		}
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

static gm_cu_result drop_plain(gm_cu_ptr ptr, bool imported)
{
	gm_cu_result result = GM_CUDA_ERROR_INVALID_VALUE;
	struct fake_map *map;

	pthread_mutex_lock(&fake.lock);
	map = fake_map_find((uintptr_t)ptr);
	if (map && map->plain && map->va == ptr && map->mem->imported == imported) {
		if (imported && map->mem->handles > 1)
			map->mem->handles--; /* opened more than once: this was not the last close
					      */
		else {
			map->mem->handles = 0;
			fake_map_remove(map, false);
		}
		result = GM_CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

FAKE_API gm_cu_result cuMemFree_v2(gm_cu_ptr ptr);
FAKE_API gm_cu_result cuMemFree_v2(gm_cu_ptr ptr)
{
	struct fake_device *device;
	gm_cu_result result;

	FAKE_ENTER("cuMemFree");
	if (!ptr)
		return GM_CUDA_SUCCESS;
	if ((result = fake_need_context(&device)))
		return result;
	fake_sync_all(); /* as the real one: it waits for the device */
	return drop_plain(ptr, false);
}

/* ---- IPC handles */

#define IPC_MAGIC UINT64_C(0x454b41462d435049)

struct ipc_handle {
	uint64_t magic;
	int64_t pid;
	uint64_t secret;
	uint64_t mem;
	int32_t device; /* the folder's number */
	int32_t unused[7];
};
_Static_assert(sizeof(struct ipc_handle) == 64, "an IPC handle is 64 bytes");

static int server = -1;
static uint64_t server_secret;

static void server_path(int64_t pid, char path[108])
{
	/* Short: the path of a socket has little room. */
	snprintf(path, 108, "%.80s/ipc.%lld", fake.folder, (long long)pid);
}

/* Hands the file of an allocation to whoever names it rightly. */
static void *serve(void *arg)
{
	(void)arg;
	for (;;) {
		struct ipc_handle want;
		int peer = accept4(server, NULL, NULL, SOCK_CLOEXEC);
		if (peer < 0) {
			if (errno == EINTR || errno == ECONNABORTED)
				continue;
			return NULL;
		}
		if (recv(peer, &want, sizeof want, 0) == sizeof want &&
			want.secret == server_secret) {
			union {
				struct cmsghdr align;
				char bytes[CMSG_SPACE(sizeof(int))];
			} control = {0};
			struct iovec iov = {&want, sizeof want};
			struct msghdr message = {.msg_iov = &iov,
				.msg_iovlen = 1,
				.msg_control = control.bytes,
				.msg_controllen = sizeof control};
			struct fake_mem *mem;
			pthread_mutex_lock(&fake.lock);
			mem = fake_mem_find(want.mem);
			if (mem) {
				struct cmsghdr *c = CMSG_FIRSTHDR(&message);
				c->cmsg_level = SOL_SOCKET;
				c->cmsg_type = SCM_RIGHTS;
				c->cmsg_len = CMSG_LEN(sizeof(int));
				memcpy(CMSG_DATA(c), &mem->fd, sizeof(int));
				(void)!sendmsg(peer, &message, MSG_NOSIGNAL);
			}
			pthread_mutex_unlock(&fake.lock);
		}
		close(peer);
	}
}

static bool start_server(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	pthread_t thread;

	if (server >= 0)
		return true;
	server_path(getpid(), address.sun_path);
	unlink(address.sun_path);
	server = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (server < 0 || getrandom(&server_secret, sizeof server_secret, 0) < 0 ||
		bind(server, (struct sockaddr *)&address, sizeof address) < 0 ||
		chmod(address.sun_path, 0777) < 0 || listen(server, 64) < 0 ||
		pthread_create(&thread, NULL, serve, NULL)) {
		if (server >= 0)
			close(server);
		server = -1;
		return false;
	}
	pthread_detach(thread);
	return true;
}

FAKE_API gm_cu_result cuIpcGetMemHandle(gm_cu_ipc_mem *handle, gm_cu_ptr ptr);
FAKE_API gm_cu_result cuIpcGetMemHandle(gm_cu_ipc_mem *handle, gm_cu_ptr ptr)
{
	gm_cu_result result = GM_CUDA_ERROR_INVALID_VALUE;
	struct fake_device *device;
	struct fake_map *map;

	FAKE_ENTER("cuIpcGetMemHandle");
	if (!handle)
		return result;
	if (fake_without("ipc"))
		return GM_CUDA_ERROR_NOT_SUPPORTED;
	if ((result = fake_need_context(&device)))
		return result;
	pthread_mutex_lock(&fake.lock);
	map = fake_map_find((uintptr_t)ptr);
	if (!map || !map->plain || map->mem->imported) {
		result = GM_CUDA_ERROR_INVALID_VALUE;
	} else if (!start_server()) {
		result = GM_CUDA_ERROR_OPERATING_SYSTEM;
	} else {
		struct ipc_handle out = {IPC_MAGIC, getpid(), server_secret, map->mem->id,
			fake.device[map->mem->device].number, {0}};
		memcpy(handle, &out, sizeof out);
		result = GM_CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

static int fetch(const struct ipc_handle *want)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct ipc_handle answer;
	struct iovec iov = {&answer, sizeof answer};
	struct msghdr message = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof control};
	int fd = -1, peer = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	server_path(want->pid, address.sun_path);
	if (peer >= 0 && connect(peer, (struct sockaddr *)&address, sizeof address) == 0 &&
		send(peer, want, sizeof *want, MSG_NOSIGNAL) == sizeof *want &&
		recvmsg(peer, &message, MSG_CMSG_CLOEXEC) == sizeof answer &&
		CMSG_FIRSTHDR(&message))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	if (peer >= 0)
		close(peer);
	return fd;
}

FAKE_API gm_cu_result cuIpcOpenMemHandle_v2(
	gm_cu_ptr *ptr, gm_cu_ipc_mem handle, unsigned int flags);
FAKE_API gm_cu_result cuIpcOpenMemHandle_v2(
	gm_cu_ptr *ptr, gm_cu_ipc_mem handle, unsigned int flags)
{
	struct ipc_handle want;
	struct fake_device *device;
	struct fake_map *map;
	struct fake_mem *mem;
	gm_cu_result result;
	struct stat st;
	int fd;

	FAKE_ENTER("cuIpcOpenMemHandle");
	if (!ptr || flags != GM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if ((result = fake_need_context(&device)))
		return result;
	memcpy(&want, &handle, sizeof want);
	if (want.magic != IPC_MAGIC)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if (want.pid == getpid())
		return GM_CUDA_ERROR_INVALID_CONTEXT;
	fd = fetch(&want);
	if (fd < 0 || fstat(fd, &st) < 0)
		return GM_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.lock);
	/* Opened here before: the same address, counted. */
	DL_FOREACH (fake.maps, map) {
		struct stat other;
		if (map->plain && map->mem->imported && fstat(map->mem->fd, &other) == 0 &&
			other.st_ino == st.st_ino && other.st_dev == st.st_dev)
			break;
	}
	if (map) {
		map->mem->handles++;
		*ptr = (gm_cu_ptr)map->va;
		close(fd);
	} else if (!(mem = calloc(1, sizeof *mem))) {
		close(fd);
		result = GM_CUDA_ERROR_OUT_OF_MEMORY;
	} else {
		mem->fd = fd;
		mem->id = fake.next_id++;
		mem->size = (size_t)st.st_size;
		mem->device = (int)(device - fake.device);
		mem->imported = true;
		HASH_ADD(hh, fake.mems, id, sizeof mem->id, mem);
		result = fake_map_add(0, mem, &map);
		if (result) {
			fake_mem_put(mem);
		} else {
			mem->handles = 1;
			map->plain = true;
			map->device_access = ~0u;
			*ptr = (gm_cu_ptr)map->va;
		}
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

FAKE_API gm_cu_result cuIpcCloseMemHandle(gm_cu_ptr ptr);
FAKE_API gm_cu_result cuIpcCloseMemHandle(gm_cu_ptr ptr)
{
	struct fake_device *device;
	gm_cu_result result;

	FAKE_ENTER("cuIpcCloseMemHandle");
	if ((result = fake_need_context(&device)))
		return result;
	fake_sync_all();
	return drop_plain(ptr, true);
}

/* ---- host memory that a device can reach */

FAKE_API gm_cu_result cuMemHostAlloc(void **ptr, size_t bytes, unsigned int flags);
FAKE_API gm_cu_result cuMemHostAlloc(void **ptr, size_t bytes, unsigned int flags)
{
	struct fake_device *device;
	gm_cu_result result;

	FAKE_ENTER("cuMemHostAlloc");
	(void)flags;
	if (!ptr || !bytes)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if ((result = fake_need_context(&device)))
		return result;
	return posix_memalign(ptr, 4096, bytes) ? GM_CUDA_ERROR_OUT_OF_MEMORY : GM_CUDA_SUCCESS;
}

FAKE_API gm_cu_result cuMemFreeHost(void *ptr);
FAKE_API gm_cu_result cuMemFreeHost(void *ptr)
{
	FAKE_ENTER("cuMemFreeHost");
	free(ptr);
	return GM_CUDA_SUCCESS;
}

#define REGISTERED_MAX 256
static struct {
	void *ptr;
	size_t bytes;
} registered[REGISTERED_MAX]; /* behind fake.lock */

FAKE_API gm_cu_result cuMemHostRegister_v2(void *ptr, size_t bytes, unsigned int flags);
FAKE_API gm_cu_result cuMemHostRegister_v2(void *ptr, size_t bytes, unsigned int flags)
{
	struct fake_device *device;
	gm_cu_result result;
	int room = -1;

	FAKE_ENTER("cuMemHostRegister");
	(void)flags;
	if (!ptr || !bytes)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if ((result = fake_need_context(&device)))
		return result;
	pthread_mutex_lock(&fake.lock);
	for (int i = 0; i < REGISTERED_MAX; i++) {
		if (registered[i].ptr == ptr)
			result = GM_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
		if (!registered[i].ptr && room < 0)
			room = i;
	}
	if (!result && room < 0)
		result = GM_CUDA_ERROR_OUT_OF_MEMORY;
	if (!result) {
		registered[room].ptr = ptr;
		registered[room].bytes = bytes;
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

/* For tests: how many registrations this process has. */
FAKE_API int fake_registered(void);
FAKE_API int fake_registered(void)
{
	int n = 0;

	pthread_mutex_lock(&fake.lock);
	for (int i = 0; i < REGISTERED_MAX; i++)
		n += registered[i].ptr != NULL;
	pthread_mutex_unlock(&fake.lock);
	return n;
}

FAKE_API gm_cu_result cuMemHostUnregister(void *ptr);
FAKE_API gm_cu_result cuMemHostUnregister(void *ptr)
{
	gm_cu_result result = GM_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;

	FAKE_ENTER("cuMemHostUnregister");
	pthread_mutex_lock(&fake.lock);
	for (int i = 0; i < REGISTERED_MAX; i++)
		if (ptr && registered[i].ptr == ptr) {
			registered[i].ptr = NULL;
			result = GM_CUDA_SUCCESS;
		}
	pthread_mutex_unlock(&fake.lock);
	return result;
}
