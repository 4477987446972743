/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The fds of one packet as one object, which closes the fds that nobody takes out. An fd keeps its
 * position when others are taken out, because the n-th handle of a packet is the n-th fd.
 */

#include <errno.h>

#include "common/cleanup.h"
#include "common/wire/fdlist.h"

void gm_fdlist_init(struct gm_fdlist *list)
{
	list->n = 0;
}

void gm_fdlist_deinit(struct gm_fdlist *list)
{
	for (size_t i = 0; i < list->n; i++)
		list->fds[i] = gm_close(list->fds[i]);
	list->n = 0;
}

int gm_fdlist_add(struct gm_fdlist *list, int fd)
{
	if (fd < 0)
		return -EBADF;
	if (list->n >= GM_BOUND_PACKET_FDS)
		return -E2BIG;
	list->fds[list->n++] = fd;
	return 0;
}

int gm_fdlist_steal(struct gm_fdlist *list, size_t i)
{
	return i < list->n ? gm_steal_fd(&list->fds[i]) : -1;
}
