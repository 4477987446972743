/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_BACKEND_RAM_H
#define GM_DAEMON_BACKEND_RAM_H

#include <stdint.h>

/*
 * Host memory, for the backends that hand it out: how much of it there is for us, and chunks made
 * of it.
 */

/* The memory that this process may have (RAM, or the least its cgroups allow), in whole chunks of
 * the smallest size, at least one. */
uint64_t gm_backend_ram_total(void);
/* A quarter of it, likewise. */
uint64_t gm_backend_ram_quarter(void);

/* A chunk: a sealed memfd of exactly that size, which nobody can resize and only who is given the
 * fd can open. It costs no memory until somebody touches it. */
int gm_backend_ram_create(uint64_t bytes, int *ret_fd);
/*
 * From now on all of it is there, so that nobody who touches it can fail: zero where nothing was
 * written, from that node of a machine that has several (-1: from any), and in huge pages where the
 * kernel makes them. bytes is a multiple of GM_CHUNK_MIN. GM_BACKEND_RAM_SMALL: not all of it is in
 * huge pages. -ENOMEM: there is not as much.
 */
int gm_backend_ram_fill(int fd, uint64_t bytes, int node);
enum {
	GM_BACKEND_RAM_SMALL = 1,
};
/* Whether an fd is such a chunk of that size. -EINVAL: it is not. */
int gm_backend_ram_check(int fd, uint64_t bytes);
/* A second fd for it that can only be read. */
int gm_backend_ram_read_only(int fd, int *ret_fd);

#endif
