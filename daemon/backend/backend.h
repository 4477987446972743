/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_BACKEND_H
#define GM_DAEMON_BACKEND_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/types.h"
#include "daemon/core/chunk.h"

/*
 * A backend makes physical memory. Everything but open, close, device_info, trouble and
 * read_only_fd may be slow and runs on the thread of the device it names, one call at a time per
 * device; open, close, device_info and a first memory_free run on the loop's thread before and
 * after those threads.
 */

#define GM_BACKEND_WHY 128

struct gm_backend_device {
	char name[64];
	uint8_t uuid[GM_UUID_BYTES];
	char pci[32]; /* "" where there is none */
	uint64_t total;
	bool transport_fd;
	bool transport_ipc;
	/* Why it has not the one or the other, for who asks for it. */
	char fd_why[GM_BACKEND_WHY], ipc_why[GM_BACKEND_WHY];
	bool mig;      /* an instance of a GPU that is in MIG mode */
	bool measured; /* what others take from it can be sampled */
	/* Host memory that the GPUs can reach, and no device of its own: at most one, the last. */
	bool pinned;
	/* The half of a backend that maps its chunks in a client; NULL: the one of this name. */
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
	uint64_t size[GM_LIMIT_DEVICES]; /* host: bytes of device n; 0: the default (device 0), no
					    such device (others) */
	uint64_t host_limit;             /* bytes of pinned host memory; 0: none */
	enum gm_host_memory host_memory;
};

#define GM_BACKEND_PINNED_NAME "pinned memory"

struct gm_backend_ops {
	const char *name;
	/* Nobody else can take memory from these devices: there is nothing foreign to sample. */
	bool exclusive;
	/* Its devices are as many and as large as the configuration says (gm_backend_config.size).
	 */
	bool sized;
	/*
	 * 0; -ENODEV: nothing of this kind on this host. why is for a person. ret_devices counts
	 * the pinned host memory, too, which is there if it is wanted and a number is left for it.
	 */
	int (*open)(const struct gm_backend_config *config, void **ret_backend,
		uint32_t *ret_devices, char why[256]);
	void (*close)(void *backend);
	void (*device_info)(void *backend, uint32_t device, struct gm_backend_device *ret);
	int (*memory_free)(void *backend, uint32_t device, uint64_t *ret_free);
	/*
	 * Which processes use the device, each once, by what they made themselves: memory of the
	 * broker's that they map does not count. *ret_list is malloc'ed. -EOPNOTSUPP: it cannot be
	 * told. NULL: there can be none.
	 */
	int (*processes)(void *backend, uint32_t device, struct gm_backend_process **ret_list,
		size_t *ret_n);
	/* What went wrong there last, and when (monotonic); false: nothing. Any thread, quick.
	 * NULL: nothing ever does. */
	bool (*trouble)(
		void *backend, uint32_t device, char text[GM_BACKEND_TROUBLE], uint64_t *ret_ns);
	/*
	 * seen: whom it is made for. -ENOMEM: the device is out of memory. -EDQUOT: nothing can be
	 * made for them that an old handle would not open (ipc).
	 */
	int (*create)(void *backend, uint32_t device, enum gm_transport transport, uint64_t bytes,
		const struct gm_seen *seen, struct gm_handle *ret);
	/* Takes over an fd that outlived the daemon that made it. */
	int (*adopt)(void *backend, uint32_t device, int fd, uint64_t bytes, struct gm_handle *ret);
	/* seen: who may have its handle by now. */
	void (*destroy)(void *backend, uint32_t device, enum gm_transport transport, uint64_t bytes,
		const struct gm_seen *seen, struct gm_handle *handle);
	/* A second fd for the same memory that can only be read, for the caller to close. Runs on
	 * the loop's thread and must be quick. NULL: read-only is a request to the client. */
	int (*read_only_fd)(void *backend, const struct gm_handle *handle, int *ret_fd);
};

extern const struct gm_backend_ops gm_backend_host;

#endif
