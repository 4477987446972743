/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_CLEANUP_H
#define GM_COMMON_CLEANUP_H

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/*
 * Variables that release what they own at the end of their scope. A function that keeps the object
 * takes it out on its last line: "return gm_steal_fd(&fd)", "*ret = gm_steal_ptr(&p)".
 */

/* Closes fd unless it is negative, keeps errno, and returns -1: fd = gm_close(fd). */
static inline int gm_close(int fd)
{
	if (fd >= 0) {
		int saved = errno;
		close(fd); /* releases the fd even if it fails */
		errno = saved;
	}
	return -1;
}

static inline int gm_steal_fd(int *fd)
{
	int stolen = *fd;
	*fd = -1;
	return stolen;
}

#define gm_steal_ptr(pointer) \
	({ \
		__typeof__(pointer) gm_steal_from = (pointer); \
		__typeof__(*gm_steal_from) gm_stolen = *gm_steal_from; \
		*gm_steal_from = NULL; \
		gm_stolen; \
	})

static inline void gm_cleanup_fd(int *fd)
{
	*fd = gm_close(*fd);
}

static inline void gm_cleanup_free(void *pointer)
{
	free(*(void **)pointer);
}

#define GM_AUTO_FD   __attribute__((cleanup(gm_cleanup_fd)))
#define GM_AUTO_FREE __attribute__((cleanup(gm_cleanup_free)))

#endif
