/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory whose users can be counted. It uses a write lease (fcntl(2), F_SETLEASE), which the kernel
 * grants only on the last open file of an inode. The lease is given back at once. The file that
 * memfd_create() itself returns is not counted, so it is opened once more and closed.
 */
#include "common/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
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

int gm_memfd_open(int fd, bool read_only, int *ret_fd)
{
	char path[32];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int copy = open(path, (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
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

bool gm_memfd_in_use(int fd)
{
	if (fcntl(fd, F_SETLEASE, F_WRLCK) < 0)
		return errno == EAGAIN;
	(void)fcntl(fd, F_SETLEASE, F_UNLCK);
	return false;
}
