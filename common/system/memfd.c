/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory whose users can be counted. It uses a write lease (fcntl(2), F_SETLEASE), which the kernel
 * grants only on the last open file of an inode. The lease is given back at once. The file that
 * memfd_create() itself returns is not counted, so it is opened once more and closed.
 */
#include "common/system/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SETLEASE
#define F_SETLEASE 1024
#endif

#define MEMFD_PATH 32

/* Somebody may look at a new memfd just when the kernel is asked about it. */
#define MEMFD_TRIES 4

static enum gm_memfd_use memfd_ask(int fd)
{
	if (fcntl(fd, F_SETLEASE, F_WRLCK) < 0)
		return errno == EAGAIN ? GM_MEMFD_IN_USE : GM_MEMFD_UNKNOWN;
	(void)fcntl(fd, F_SETLEASE, F_UNLCK);
	return GM_MEMFD_FREE;
}

/* Every chunk that is sent passes here, so it does without snprintf(). */
static const char *memfd_path(int fd, char text[MEMFD_PATH])
{
	static const char folder[] = "/proc/self/fd/";
	char *at = text + MEMFD_PATH;
	*--at = '\0';
	do
		*--at = (char)('0' + fd % 10);
	while (fd /= 10);
	return memcpy(at - (sizeof(folder) - 1), folder, sizeof(folder) - 1);
}

int gm_memfd_open(int fd, bool read_only, int *ret_fd)
{
	char text[MEMFD_PATH];
	if (fd < 0)
		return -EBADF;
	const char *path = memfd_path(fd, text);
	/* Must not wait for anybody to give up a lease. */
	int copy = open(path, (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK);
	if (copy < 0)
		return -errno;
	*ret_fd = copy;
	return 0;
}

int gm_memfd_create(const char *name, uint64_t bytes, int *ret_fd)
{
	unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL) /* Linux before 6.3 */
		fd = memfd_create(name, flags);
	if (fd < 0)
		return -errno;

	int r = 0;
	if (fchmod(fd, 0600) < 0 || ftruncate(fd, (off_t)bytes) < 0)
		r = -errno;
	if (r == 0)
		r = gm_memfd_open(fd, false, ret_fd);
	gm_close(fd);
	return r;
}

/* Whether the kernel refuses the lease even on memory that nobody else has open, so that its answer
 * means nothing. */
static bool memfd_find_blind(void)
{
	bool blind = true;
	for (int i = 0; i < MEMFD_TRIES && blind; i++) {
		GM_AUTO_FD int fd = -1;
		blind = gm_memfd_create("gpumem-try", 1, &fd) == 0 &&
			memfd_ask(fd) == GM_MEMFD_IN_USE;
	}
	return blind;
}

/* Finds that out once. */
static bool memfd_is_blind(void)
{
	enum { NOT_KNOWN, SEES, BLIND };
	static atomic_int sight = NOT_KNOWN;
	int known = atomic_load_explicit(&sight, memory_order_relaxed);
	if (known == NOT_KNOWN) {
		known = memfd_find_blind() ? BLIND : SEES;
		atomic_store_explicit(&sight, known, memory_order_relaxed);
	}
	return known == BLIND;
}

enum gm_memfd_use gm_memfd_in_use(int fd)
{
	return memfd_is_blind() ? GM_MEMFD_UNKNOWN : memfd_ask(fd);
}

bool gm_memfd_can_tell(void)
{
	GM_AUTO_FD int fd = -1;
	return gm_memfd_create("gpumem-try", 1, &fd) == 0 &&
	       gm_memfd_in_use(fd) != GM_MEMFD_UNKNOWN;
}
