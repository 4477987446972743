/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Random bytes from the kernel. The call delivers all of them or fails: it never falls back on a
 * weaker source.
 */

#include <errno.h>
#include <stdint.h>
#include <sys/random.h>

#include "common/system/random.h"

int gm_random(void *bytes, size_t n)
{
	uint8_t *at = bytes;

	while (n > 0) {
		ssize_t got = getrandom(at, n, 0);
		if (got < 0) {
			if (errno == EINTR)
				continue;
			return -errno;
		}
		at += got;
		n -= (size_t)got;
	}
	return 0;
}
