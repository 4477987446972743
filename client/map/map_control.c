/* SPDX-License-Identifier: Apache-2.0 */
#include "client/map/map_control.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>

int gm_map_control_init(struct gm_map_control *word, int fd, bool read_only)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS), prot = read_only ? PROT_READ : PROT_READ | PROT_WRITE;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) < 0 ||
		st.st_size < GM_CONTROL_BYTES)
		return -EPROTO;
	void *addr = mmap(NULL, GM_CONTROL_BYTES, prot, MAP_SHARED, fd, 0);
	if (addr == MAP_FAILED)
		return -errno;
	/* A child must not keep it alive. */
	if (madvise(addr, GM_CONTROL_BYTES, MADV_DONTFORK) < 0) {
		int r = -errno;
		(void)munmap(addr, GM_CONTROL_BYTES);
		return r;
	}

	*word = (struct gm_map_control){.control = addr, .read_only = read_only};
	return 0;
}

void gm_map_control_deinit(struct gm_map_control *word)
{
	(void)munmap(word->control, GM_CONTROL_BYTES);
}
