/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host backend: devices made of RAM, chunks made of memfds (backend_ram.h). It promises that a
 * device never holds more than its size. It must never touch the bytes: a chunk is sparse until a
 * client uses it.
 */
#include "daemon/backend/backend.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/arith.h"
#include "common/cleanup.h"
#include "common/system/memfd.h"
#include "common/text/units.h"
#include "daemon/backend/backend_ram.h"
#include "daemon/backend/backend_copies.h"

struct gm_host_device {
	uint64_t total;
	bool pinned;
	_Atomic uint64_t used;
};

struct gm_host {
	uint32_t n_devices;
	struct gm_host_device devices[GM_BOUND_DEVICES];
	_Atomic uint64_t next_native;
	struct gm_backend_copies copies;
	char machine[64]; /* what /etc/machine-id has; empty: there is none */
	/* For tests. */
	int gate;           /* -1: none */
	uint64_t fail_from; /* 0: never */
	bool fail_all;
	_Atomic uint64_t creations;
};

static int host_open_test_controls(struct gm_host *host, char why[256])
{
	const char *gate = getenv("GPUMEM_TEST_HOST_GATE");
	if (gate && *gate) {
		/* Also for writing, so that reading waits for bytes and never sees the end. */
		host->gate = open(gate, O_RDWR | O_CLOEXEC);
		if (host->gate < 0) {
			int error = errno;
			snprintf(why, 256, "GPUMEM_TEST_HOST_GATE: %s: %s", gate, strerror(error));
			return -error;
		}
	}

	const char *fail = getenv("GPUMEM_TEST_HOST_FAIL");
	if (fail && *fail) {
		char number[24];
		size_t n = strlen(fail);
		host->fail_all = fail[n - 1] == '+';
		int bad = n >= sizeof(number) ? -EINVAL : 0;
		if (!bad) {
			memcpy(number, fail, n + 1);
			if (host->fail_all)
				number[n - 1] = '\0';
			bad = gm_parse_u64(number, &host->fail_from);
		}
		if (bad || host->fail_from == 0) {
			snprintf(why, 256, "GPUMEM_TEST_HOST_FAIL: %.100s is not N or N+", fail);
			return -EINVAL;
		}
	}
	return 0;
}

static void host_close(void *backend)
{
	struct gm_host *host = backend;
	if (!host)
		return;
	gm_backend_copies_clear(&host->copies);
	if (host->gate >= 0)
		close(host->gate);
	free(host);
}

/*
 * Reads the machine's id, from which devices get theirs. A machine may have none. An id that cannot be
 * read right now, for lack of a descriptor, is an error: with other ids, the devices would not be those
 * whose memory an earlier daemon left.
 */
static int host_read_machine(struct gm_host *host, char why[256])
{
	static const char path[] = "/etc/machine-id";
	GM_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && (errno == ENOENT || errno == EACCES || errno == EPERM))
		return 0;
	if (fd >= 0 && read(fd, host->machine, sizeof(host->machine)) >= 0)
		return 0;
	int r = -errno;
	snprintf(why, 256, "cannot read %s: %s", path, strerror(-r));
	return r;
}

static int host_open(const struct gm_backend_config *config, void **ret_backend,
	uint32_t *ret_devices, char why[256])
{
	struct gm_host *host = calloc(1, sizeof(*host));
	if (!host) {
		snprintf(why, 256, "out of memory");
		return -ENOMEM;
	}

	host->gate = -1;
	atomic_init(&host->next_native, 1);
	int r = host_open_test_controls(host, why);
	if (r == 0)
		r = host_read_machine(host, why);
	if (r < 0) {
		host_close(host);
		return r;
	}

	for (uint32_t i = 0; i < GM_BOUND_DEVICES; i++) {
		uint64_t size = config->size[i];
		if (size == 0 && i == 0)
			size = gm_backend_ram_quarter();
		if (size == 0)
			continue;
		/* A gap would change the numbers of the devices behind it. */
		if (host->n_devices != i) {
			snprintf(why, 256, "device %u has a size, device %u has none", i,
				host->n_devices);
			host_close(host);
			return -EINVAL;
		}
		host->devices[host->n_devices++].total = size;
	}

	/* Without a GPU nothing needs to be pinned. This is ordinary memory with a limit of its
	 * own. */
	if (config->host_limit && host->n_devices < GM_BOUND_DEVICES) {
		host->devices[host->n_devices].pinned = true;
		host->devices[host->n_devices++].total = config->host_limit;
	}

	*ret_devices = host->n_devices;
	*ret_backend = host;
	return 0;
}

/* FNV-1a. machine-id(5) says that its value must not be shown, so only a hash of it is. */
static uint64_t host_mix(uint64_t hash, const void *bytes, size_t n)
{
	const uint8_t *at = bytes;
	for (size_t i = 0; i < n; i++)
		hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
	return hash;
}

static void host_device_info(void *backend, uint32_t device, struct gm_backend_device *ret)
{
	struct gm_host *host = backend;
	const struct gm_host_device *d = &host->devices[device];
	memset(ret, 0, sizeof(*ret));
	ret->total = d->total;
	ret->transport_fd = true;
	ret->reopened = true;
	ret->visibility = GM_BACKEND_VISIBILITY_SYSTEM;
	snprintf(ret->ipc_why, sizeof(ret->ipc_why), "host memory has no CUDA IPC handles");
	if (d->pinned) {
		snprintf(ret->name, sizeof(ret->name), "%s", GM_BACKEND_PINNED_NAME);
		ret->pinned = true;
		return;
	}

	snprintf(ret->name, sizeof(ret->name), "host memory %u", device);
	static const char salt[2][16] = {"gpumemd host a", "gpumemd host b"};
	for (int half = 0; half < 2; half++) {
		uint64_t hash =
			host_mix(UINT64_C(0xcbf29ce484222325), salt[half], sizeof(salt[half]));
		hash = host_mix(hash, host->machine, sizeof(host->machine));
		hash = host_mix(hash, &device, sizeof(device));
		memcpy(ret->uuid + 8 * half, &hash, sizeof(hash));
	}
}

static int host_memory_free(void *backend, uint32_t device, uint64_t *ret_free)
{
	struct gm_host *host = backend;
	struct gm_host_device *d = &host->devices[device];
	*ret_free = gm_u64_minus(d->total, atomic_load(&d->used));
	return 0;
}

/* Only the device's thread charges it, so nobody but a reader can race with this. */
static int host_charge(struct gm_host_device *device, uint64_t bytes)
{
	if (bytes > gm_u64_minus(device->total, atomic_load(&device->used)))
		return -ENOMEM;
	atomic_fetch_add(&device->used, bytes);
	return 0;
}

static int host_pass_gate(struct gm_host *host)
{
	char byte;
	ssize_t n;
	if (host->gate < 0)
		return 0;
	do
		n = read(host->gate, &byte, 1);
	while (n < 0 && errno == EINTR);
	return n == 1 ? 0 : -EIO;
}

static int host_create(void *backend, uint32_t device, enum gm_transport transport, uint64_t bytes,
	const struct gm_backend_seen *seen, struct gm_backend_handle *ret)
{
	struct gm_host *host = backend;
	struct gm_host_device *d = &host->devices[device];
	if (transport != GM_TRANSPORT_FD)
		return -EOPNOTSUPP;

	int r = host_pass_gate(host);
	if (r < 0)
		return r;

	uint64_t n = atomic_fetch_add(&host->creations, 1) + 1;
	if (host->fail_from && (n == host->fail_from || (host->fail_all && n > host->fail_from)))
		return -ENOMEM;

	r = host_charge(d, bytes);
	if (r < 0)
		return r;

	int fd = -1;
	r = gm_backend_ram_create(bytes, &fd);
	if (r < 0) {
		atomic_fetch_sub(&d->used, bytes);
		return r;
	}

	memset(ret, 0, sizeof(*ret));
	ret->fd = fd;
	ret->native = atomic_fetch_add(&host->next_native, 1);
	return 0;
}

static int host_adopt(
	void *backend, uint32_t device, int fd, uint64_t bytes, struct gm_backend_handle *ret)
{
	struct gm_host *host = backend;
	struct gm_host_device *d = &host->devices[device];
	int r = gm_backend_ram_check(fd, bytes);
	if (r < 0)
		return r;

	/* The device may have been larger before. What clients hold counts all the same. */
	atomic_fetch_add(&d->used, bytes);
	memset(ret, 0, sizeof(*ret));
	ret->fd = fd;
	ret->native = atomic_fetch_add(&host->next_native, 1);
	return 0;
}

/* A path alone (O_PATH) keeps the file, with its memory, but nobody can use it. */
static void host_discard(
	void *backend, const struct gm_backend_handle *handle, uint64_t from, uint64_t bytes)
{
	struct gm_host *host = backend;
	gm_backend_copies_drop(&host->copies, handle->fd);
	if (gm_memfd_in_use(handle->fd) == GM_MEMFD_FREE)
		(void)fallocate(handle->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from,
			(off_t)bytes);
}

static void host_destroy(void *backend, uint32_t device, enum gm_transport transport,
	uint64_t bytes, const struct gm_backend_seen *seen, struct gm_backend_handle *handle)
{
	struct gm_host *host = backend;
	if (handle->fd < 0)
		return;
	gm_backend_copies_drop(&host->copies, handle->fd);
	close(handle->fd);
	handle->fd = -1;
	atomic_fetch_sub(&host->devices[device].used, bytes);
}

static int host_open_fd(
	void *backend, const struct gm_backend_handle *handle, bool read_only, int *ret_fd)
{
	struct gm_host *host = backend;
	int copy = read_only ? -1 : gm_backend_copies_take(&host->copies, handle->fd);
	if (copy < 0)
		return gm_memfd_open(handle->fd, read_only, ret_fd);
	*ret_fd = copy;
	return 0;
}

static void host_prepare(void *backend, const struct gm_backend_handle *handle)
{
	struct gm_host *host = backend;
	int copy;
	if (gm_memfd_open(handle->fd, false, &copy) == 0)
		gm_backend_copies_put(&host->copies, handle->fd, copy);
}

static bool host_in_use(void *backend, const struct gm_backend_handle *handle)
{
	struct gm_host *host = backend;
	gm_backend_copies_drop(&host->copies, handle->fd);
	return gm_memfd_in_use(handle->fd) == GM_MEMFD_IN_USE;
}

const struct gm_backend_ops gm_backend_host = {
	.name = "host",
	.exclusive = true,
	.sized = true,
	.read_only = true,
	.open = host_open,
	.close = host_close,
	.device_info = host_device_info,
	.memory_free = host_memory_free,
	.create = host_create,
	.adopt = host_adopt,
	.discard = host_discard,
	.destroy = host_destroy,
	.open_fd = host_open_fd,
	.prepare = host_prepare,
	.in_use = host_in_use,
};
