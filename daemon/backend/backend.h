/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_BACKEND_H
#define GM_DAEMON_BACKEND_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/types.h"
#include "daemon/books/chunk.h"

/*
 * This folder promises physical memory: a backend makes and destroys it, and a worker calls the
 * backend on one thread per device. It must never know who may have memory, or how much of it.
 *
 * These run on the loop's thread, before the device threads start or after they have ended: open,
 * close and the first memory_free. device_info runs there too, while threads of other devices start, so it
 * reads only what open wrote. trouble, open_fd, prepare and in_use must be quick, and
 * may run at any time. Everything else may be slow and runs on the device's thread, one call at a time.
 */

#define GM_BACKEND_WHY 128

struct gm_backend_device {
	char name[64];
	uint8_t uuid[GM_UUID_BYTES];
	char pci[32]; /* "" where there is none */
	uint64_t total;
	bool transport_fd;
	bool transport_ipc;
	/* Why it does not have the one or the other transport, for a client that asks for it. */
	char fd_why[GM_BACKEND_WHY], ipc_why[GM_BACKEND_WHY];
	enum gm_backend_visibility visibility;
	bool mig;      /* an instance of a GPU that is in MIG mode */
	bool measured; /* how much of it is free can be sampled */
	/* Pinned host memory, which the GPUs can reach. At most one device is that: the last. */
	bool pinned;
	/* "Reopened": each client gets an fd of its own for a chunk (open_fd), so that in_use can tell whether
	 * a process has the chunk. */
	bool reopened;
	/* The part of the client library that maps its chunks; NULL: the one named like the
	 * backend */
	const char *mapping;
};

/* A process that uses a device. */
struct gm_backend_process {
	pid_t pid;
	uint64_t bytes; /* GM_BACKEND_UNKNOWN: the driver does not tell */
};
#define GM_BACKEND_UNKNOWN UINT64_MAX

#define GM_BACKEND_TROUBLE 160

struct gm_backend_config {
	/* For the host backend: bytes of each device. 0: for device 0 the default size, for others
	 * no such device. */
	uint64_t size[GM_BOUND_DEVICES];
	uint64_t host_limit; /* bytes of pinned host memory; 0: none */
	enum gm_backend_host_memory host_memory;
};

#define GM_BACKEND_PINNED_NAME "pinned memory"

struct gm_backend_ops {
	const char *name;
	/* Nobody else can use memory of these devices, so there is nothing foreign to sample. */
	bool exclusive;
	/* The configuration says how many devices there are, and how large
	 * (gm_backend_config.size). */
	bool sized;
	/* open_fd keeps a client that may only read from writing. Otherwise that is only a request to the
	 * client. */
	bool read_only;
	/*
	 * On error, returns a negative errno, and why tells a person the reason. -ENODEV: this host
	 * has no device of this kind. *ret_devices counts the pinned host memory, too, which exists
	 * if the configuration wants it and a number is left for it.
	 */
	int (*open)(const struct gm_backend_config *config, void **ret_backend,
		uint32_t *ret_devices, char why[256]);
	void (*close)(void *backend);
	void (*device_info)(void *backend, uint32_t device, struct gm_backend_device *ret);
	int (*memory_free)(void *backend, uint32_t device, uint64_t *ret_free);
	/*
	 * Lists the processes that use the device, each once, with the memory that they allocated
	 * themselves. The broker's memory that they map does not count. *ret_list is malloc'ed.
	 * -EOPNOTSUPP: the driver does not tell. May be NULL: there can be no such process.
	 */
	int (*processes)(void *backend, uint32_t device, struct gm_backend_process **ret_list,
		size_t *ret_n);
	/* What went wrong with the device last, and when (monotonic clock). Returns false if
	 * nothing did. May run on any thread. May be NULL: nothing ever goes wrong. */
	bool (*trouble)(
		void *backend, uint32_t device, char text[GM_BACKEND_TROUBLE], uint64_t *ret_ns);
	/*
	 * Makes a chunk for the client that seen describes. -ENOMEM: the device is out of memory.
	 * -EDQUOT (ipc): old handles of another client would open every block that can be made.
	 */
	int (*create)(void *backend, uint32_t device, enum gm_transport transport, uint64_t bytes,
		const struct gm_backend_seen *seen, struct gm_backend_handle *ret);
	/* Takes over a chunk by its fd, which outlived the daemon that made it. The device's size is no
	 * bound here: it may have been larger then. -EINVAL: the fd is no such chunk. Any other error says nothing
	 * about the fd. */
	int (*adopt)(void *backend, uint32_t device, int fd, uint64_t bytes,
		struct gm_backend_handle *ret);
	/* Frees a part of a chunk that is about to be destroyed for good, unless a process has the chunk. Only for
	 * devices that are reopened. Not called when the daemon ends, because the keeper may then hold the chunk
	 * for the next daemon. May be NULL: destroying frees the memory. */
	void (*discard)(void *backend, const struct gm_backend_handle *handle, uint64_t from,
		uint64_t bytes);
	/* Destroys a chunk. seen describes the clients that may have its handle. */
	void (*destroy)(void *backend, uint32_t device, enum gm_transport transport, uint64_t bytes,
		const struct gm_backend_seen *seen, struct gm_backend_handle *handle);
	/* Opens a second fd for the same memory, which the daemon sends to a client. The caller closes it. Only for
	 * devices that are reopened; for others, the daemon sends the handle's own fd. May be NULL: no device is
	 * reopened. */
	int (*open_fd)(
		void *backend, const struct gm_backend_handle *handle, bool read_only, int *ret_fd);
	/* Called when a client may soon get the chunk, which no process has now. Opens in advance the fd that
	 * open_fd will return. At most GM_BACKEND_COPIES chunks stay prepared. May be NULL: nothing to do. */
	void (*prepare)(void *backend, const struct gm_backend_handle *handle);
	/* Whether a process has such an fd, or maps what it got by one. Only for devices that are
	 * reopened. */
	bool (*in_use)(void *backend, const struct gm_backend_handle *handle);
};

/*
 * NVIDIA GPUs, through the driver API. The devices are those that the driver shows, in its order;
 * it respects CUDA_VISIBLE_DEVICES.
 *
 * fd transport: a chunk is created and exported once. From then on the fd alone is the chunk, and
 * closing the last copy of it frees the memory. No context is ever made for it.
 *
 * ipc transport: a chunk is a plain allocation in the device's primary context, which exists while
 * there is any such chunk. The old IPC handles of another trust domain never open it
 * (ipc_blocks.h).
 *
 * Pinned host memory needs no context either, and is of the same kind for all clients
 * (backend_pinned.h).
 *
 * open() fails with -ENODEV if there is no driver or no device, and why says what is missing.
 */
extern const struct gm_backend_ops gm_backend_cuda;

/*
 * Host memory as devices: gm_backend_host. Device 0 always exists. The others are those to which
 * the configuration gives a size, and the last is the pinned host memory. A chunk is a sealed memfd
 * (backend_ram.h).
 *
 * When this backend is opened, it reads two variables that are meant for tests:
 *
 *   GPUMEM_TEST_HOST_GATE=PATH      PATH is a FIFO. Each creation takes one byte out of it, and
 *                                   waits for one if it is empty. So a test holds creations back
 *                                   and lets them go one by one. Creations for the reserve count.
 *   GPUMEM_TEST_HOST_FAIL=N or N+   The N-th creation (from 1, over all devices) fails as if the
 *                                   device were out of memory. N+: so do all creations after it.
 */
extern const struct gm_backend_ops gm_backend_host;

#endif
