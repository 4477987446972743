/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_SYSTEM_MEMFD_H
#define GM_SYSTEM_MEMFD_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Memory that a process makes, gives to others, and wants to know gone.
 *
 * The maker keeps an open file of its own and gives each other process another one. The kernel counts
 * the open files of the memory. A descriptor keeps its open file, and so do its copies in other
 * processes and every mapping made of it, even after the descriptor is closed. So the maker can see
 * whether anybody else can still reach the memory.
 *
 * To find that out, it asks for a lease (fcntl(2)) and gives it back at once. If somebody opens the
 * memory in between, the kernel sends SIGIO to the asking process. It must ignore that signal,
 * whose default action would end it.
 */

/* Makes memory of exactly this size. Only the maker's uid can open it by itself. The result is
 * CLOEXEC. Seals can be added. */
int gm_memfd_create(const char *name, uint64_t bytes, int *ret_fd);
/* Opens the memory once more, to be given to another process. */
int gm_memfd_open(int fd, bool read_only, int *ret_fd);
/* Whether anybody has the memory open or mapped through another open file than this one. Never
 * waits. */
enum gm_memfd_use {
	GM_MEMFD_FREE,
	GM_MEMFD_IN_USE,
	GM_MEMFD_UNKNOWN, /* the kernel does not tell; leases may be disabled (fs.leases-enable) */
};
enum gm_memfd_use gm_memfd_in_use(int fd);
/* Whether that is ever known on this kernel. */
bool gm_memfd_can_tell(void);

#endif
