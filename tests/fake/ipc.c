/* SPDX-License-Identifier: Apache-2.0 */
/*
 * IPC handles of the fake driver. One names a process, a socket of it and an allocation; whoever
 * has the 64 bytes can open it, whatever its uid, while the owner lives. Opening asks the owner for
 * the file. An old handle, whose memory was freed, opens what has its number since and is shared,
 * if that is no smaller: so does a real driver's. Whatever context closes, the opening is one less.
 */
#include "tests/fake/fake.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <utlist.h>

#define IPC_MAGIC UINT64_C(0x454b41462d435049)

struct ipc_handle {
	uint64_t magic;
	int64_t pid;
	uint64_t secret;
	uint64_t size;
	uint64_t serial; /* one for each allocation, and nobody looks at it */
	int32_t device;  /* the folder's number */
	int32_t unused;
	uint32_t client; /* these two stand where the real driver has them */
	uint32_t number;
	uint64_t rest;
};
_Static_assert(sizeof(struct ipc_handle) == 64, "an IPC handle is 64 bytes");
_Static_assert(offsetof(struct ipc_handle, client) == 48, "where the real driver has it");

static int server = -1;
static uint64_t server_secret;

static void server_path(int64_t pid, char path[108])
{
	/* Short: the path of a socket has little room. */
	snprintf(path, 108, "%.80s/ipc.%lld", fake.folder, (long long)pid);
}

/* What the handle is of, or what took its number; whether anything did. Lock. */
static bool named(const struct ipc_handle *want, struct fake_mem **ret_mem)
{
	struct fake_map *map;

	*ret_mem = NULL;
	DL_FOREACH (fake.maps, map)
		if (!map->mem->imported && map->mem->number == want->number) {
			if (map->plain && map->mem->shared && map->mem->size >= want->size)
				*ret_mem = map->mem;
			/* What is shared and too small is no such thing at all. */
			return !map->mem->shared || *ret_mem;
		}
	return fake_host_numbered(want->number);
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
			bool known;
			pthread_mutex_lock(&fake.lock);
			known = named(&want, &mem);
			if (known && !mem) {
				(void)!send(peer, &want, sizeof want, MSG_NOSIGNAL);
			} else if (mem) {
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
		struct ipc_handle out = {.magic = IPC_MAGIC,
			.pid = getpid(),
			.secret = server_secret,
			.size = map->mem->size,
			.serial = map->mem->id,
			.device = fake.device[map->mem->device].number,
			.client = 0xc1d00001,
			.number = map->mem->number};
		map->mem->shared = true;
		memcpy(handle, &out, sizeof out);
		result = GM_CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&fake.lock);
	return result;
}

/* The file, from the owner. */
static gm_cu_result fetch(const struct ipc_handle *want, int *ret_fd)
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
	gm_cu_result result = GM_CUDA_ERROR_INVALID_VALUE; /* it has no such allocation */
	int peer = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (peer < 0)
		return GM_CUDA_ERROR_OPERATING_SYSTEM;
	server_path(want->pid, address.sun_path);
	if (connect(peer, (struct sockaddr *)&address, sizeof address) < 0) {
		result = GM_CUDA_ERROR_INVALID_HANDLE; /* it is dead */
	} else if (send(peer, want, sizeof *want, MSG_NOSIGNAL) == sizeof *want &&
		   recvmsg(peer, &message, MSG_CMSG_CLOEXEC) == sizeof answer) {
		if (!CMSG_FIRSTHDR(&message)) {
			close(peer);
			return GM_CUDA_ERROR_NOT_PERMITTED; /* what is there now is not shared */
		}
		memcpy(ret_fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof *ret_fd);
		result = GM_CUDA_SUCCESS;
	}
	close(peer);
	return result;
}

/* Of a process's memory one context of a device opens handles, until it has closed them all. */
static bool open_elsewhere(const struct ipc_handle *want, const struct fake_device *device)
{
	struct fake_map *map;

	pthread_mutex_lock(&fake.lock);
	DL_FOREACH (fake.maps, map)
		if (map->plain && map->mem->imported && map->mem->owner == want->pid &&
			map->context != fake_context() &&
			fake_context_device(map->context) == device)
			break;
	pthread_mutex_unlock(&fake.lock);
	return map;
}

/* The GPU of that number as this process counts them; -1: it does not see it. */
static int ordinal_of(int number)
{
	for (int i = 0; i < fake.devices; i++)
		if (fake.device[i].number == number)
			return i;
	return -1;
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
	int fd, home;

	FAKE_ENTER("cuIpcOpenMemHandle");
	if (!ptr || flags != GM_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if (fake_without("ipc"))
		return GM_CUDA_ERROR_NOT_SUPPORTED;
	if ((result = fake_need_context(&device)))
		return result;
	memcpy(&want, &handle, sizeof want);
	if (want.magic != IPC_MAGIC)
		return GM_CUDA_ERROR_INVALID_VALUE;
	if (want.pid == getpid())
		return GM_CUDA_ERROR_INVALID_CONTEXT;
	home = ordinal_of(want.device);
	if (home < 0)
		return GM_CUDA_ERROR_INVALID_DEVICE; /* this process does not see it */
	if (home != device - fake.device && fake_without("p2p"))
		return GM_CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	if (open_elsewhere(&want, device))
		return GM_CUDA_ERROR_INVALID_HANDLE;
	if ((result = fetch(&want, &fd)))
		return result;
	if (fstat(fd, &st) < 0) {
		close(fd);
		return GM_CUDA_ERROR_OPERATING_SYSTEM;
	}
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
		mem->device = home;
		mem->imported = true;
		mem->owner = want.pid;
		HASH_ADD(hh, fake.mems, id, sizeof mem->id, mem);
		result = fake_map_add(0, mem, &map);
		if (result) {
			fake_mem_put(mem);
		} else {
			mem->handles = 1;
			fake_map_plain(map);
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
	return fake_drop_plain(ptr, true);
}
