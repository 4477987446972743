/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SESSION_FORK_H
#define GM_CLIENT_SESSION_FORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * Marks the process that made an object, without asking for a pid. The kernel wipes a page in every
 * child (MADV_WIPEONFORK), so one load tells whether this is still the process that made it.
 */
struct gm_fork_mark {
	const _Atomic uint64_t *page;
	uint64_t value;
};

/* Returns 0, -ENOMEM, or -EINVAL if the kernel cannot wipe a page on fork (before 4.14). */
int gm_fork_mark(struct gm_fork_mark *ret_mark);

static inline bool gm_fork_same(const struct gm_fork_mark *mark)
{
	return atomic_load_explicit(mark->page, memory_order_relaxed) == mark->value;
}

#endif
