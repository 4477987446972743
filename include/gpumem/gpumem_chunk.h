/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUMEM_CHUNK_H
#define GPUMEM_CHUNK_H

/*
 * Chunks: physical memory of a device that the program maps itself, as it maps what cuMemCreate()
 * makes. For programs with an allocator of their own that moves memory between addresses.
 *
 * What a program may rely on:
 *
 *   - A chunk is one physical allocation of exactly the size that was asked for. The daemon makes it for
 *     this program alone, and destroys it when it comes back. Whether it is zero at first is up to the
 *     driver.
 *   - The daemon charges exactly its size, before it makes it. The limits are the same as for buffers.
 *   - It reaches the program as a file descriptor, which cuMemImportFromShareableHandle() takes; on the
 *     host backend, mmap() does. The descriptor can be closed after that.
 *   - It survives a restart of the daemon, like a buffer.
 */

#include "gpumem.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The size of a chunk is a multiple of this. */
#define GPUMEM_CHUNK_GRANULARITY ((size_t)2097152)

typedef struct gpumem_chunk gpumem_chunk;

typedef struct gpumem_chunk_options {
	size_t size;
	uint32_t wait_ms; /* how long to wait if the device is full, as for buffers */
	const char *tag;  /* as for buffers; may be NULL */
} gpumem_chunk_options;

#define GPUMEM_CHUNK_OPTIONS_INIT \
	{ \
		sizeof(gpumem_chunk_options), 0, NULL \
	}

/*
 * Makes a chunk. options may be NULL. *ret_fd is the caller's to close, and has FD_CLOEXEC set.
 *
 *   GPUMEM_E_INVALID      bytes is 0, too large, or not a multiple of GPUMEM_CHUNK_GRANULARITY.
 *   GPUMEM_E_LIMIT        A limit of the user, group, unit, container or session does not allow it.
 *   GPUMEM_E_NO_MEMORY    The device does not have that much free memory.
 *   GPUMEM_E_UNSUPPORTED  The device has no fd transport, or the daemon is older than this request.
 */
GPUMEM_API gpumem_status gpumem_chunk_create(gpumem_session *session, uint32_t device, size_t bytes,
	const gpumem_chunk_options *options, gpumem_chunk **ret_chunk, int *ret_fd);

/* Gets another descriptor of the chunk from the daemon, with FD_CLOEXEC set. A program that shares the chunk
 * with another process needs this, because the driver does not export memory that was imported. */
GPUMEM_API gpumem_status gpumem_chunk_fd(gpumem_chunk *chunk, int *ret_fd);

/* The size, and the device. 0 if chunk is NULL. */
GPUMEM_API size_t gpumem_chunk_size(const gpumem_chunk *chunk);
GPUMEM_API uint32_t gpumem_chunk_device(const gpumem_chunk *chunk);

/*
 * Gives the chunk back. The program must have unmapped it and released what it imported, or the memory
 * stays in use and charged until it has. chunk may be NULL. gpumem_disconnect() gives back what is left.
 */
GPUMEM_API void gpumem_chunk_destroy(gpumem_chunk *chunk);

#ifdef __cplusplus
}
#endif

#endif
