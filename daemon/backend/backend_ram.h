/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_BACKEND_RAM_H
#define GM_DAEMON_BACKEND_RAM_H

#include <stdint.h>

/* Host memory, for the backends that hand it out: how much of it the daemon may use, and chunks of
 * it. */

/* The memory that this process and its clients may use (RAM, or the lowest limit of its cgroups),
 * rounded down to GM_CHUNK_MIN, but at least that. MemoryMax= of the daemon's own service does not
 * count: clients are charged for the memory that they touch. */
uint64_t gm_backend_ram_total(void);
/* The memory that this process itself may fill: the same with its own service's limit, less what it
 * may need for other things (common/kept.h), but at least a quarter of the limit. */
uint64_t gm_backend_ram_own(void);
/* The same for a process that has this limit, and may open so many files. */
uint64_t gm_backend_ram_within(uint64_t limit, uint64_t files);
/* A quarter of gm_backend_ram_total(), rounded likewise. */
uint64_t gm_backend_ram_quarter(void);

/* Makes a chunk: a sealed memfd of exactly that size. Nobody can resize it, and only a process that
 * is given the fd can open it. It uses no memory until somebody touches it. */
int gm_backend_ram_create(uint64_t bytes, int *ret_fd);
/*
 * Allocates all memory of a chunk, so that nobody who touches it can fail. It comes from the NUMA
 * node (-1: from any), and in huge pages if the kernel can. bytes must be a multiple of
 * GM_CHUNK_MIN. Returns 0; GM_BACKEND_RAM_SMALL: not all of it is in huge pages; or a negative
 * errno, such as -ENOMEM.
 */
int gm_backend_ram_fill(int fd, uint64_t bytes, int node);
enum {
	GM_BACKEND_RAM_SMALL = 1,
};
/* Checks that an fd is such a chunk of that size. Returns 0, -EINVAL if it is not, or another
 * negative errno. */
int gm_backend_ram_check(int fd, uint64_t bytes);
/* Opens a second fd for the chunk that can only be read. */
int gm_backend_ram_read_only(int fd, int *ret_fd);

#endif
