/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_OPEN_FDS_H
#define GM_TESTS_UNIT_OPEN_FDS_H

#include <fcntl.h>

/* How many files this process has open: for tests that lose none. */
static inline unsigned open_fds(void)
{
	unsigned n = 0;
	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

#endif
