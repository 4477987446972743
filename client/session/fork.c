/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marks that end with fork(). There is one page per process, and the kernel wipes it in a child.
 * The first mark after that gives the process a number. Numbers come from a counter that the child
 * inherits, so a child never gets its parent's number: a session of the parent stays foreign even
 * in a child that has connected on its own.
 *
 * There is no lock, because a thread that does not exist in the child might hold it.
 */
#include "client/session/fork.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic(_Atomic uint64_t *) the_page;
static _Atomic uint64_t numbers;

static int fork_page_get(_Atomic uint64_t **ret_page)
{
	_Atomic uint64_t *page = atomic_load(&the_page);
	if (!page) {
		size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
		void *fresh = mmap(
			NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (fresh == MAP_FAILED)
			return -errno;
		if (madvise(fresh, bytes, MADV_WIPEONFORK) < 0) {
			int r = -errno;
			munmap(fresh, bytes);
			return r;
		}
		if (atomic_compare_exchange_strong(&the_page, &page, fresh))
			page = fresh;
		else
			munmap(fresh, bytes);
	}

	*ret_page = page;
	return 0;
}

int gm_fork_mark(struct gm_fork_mark *ret_mark)
{
	_Atomic uint64_t *page;
	int r = fork_page_get(&page);
	if (r < 0)
		return r;
	uint64_t value = atomic_load(page);
	if (!value) {
		uint64_t next = atomic_fetch_add(&numbers, 1) + 1;
		if (atomic_compare_exchange_strong(page, &value, next))
			value = next;
	}

	*ret_mark = (struct gm_fork_mark){.page = page, .value = value};
	return 0;
}
