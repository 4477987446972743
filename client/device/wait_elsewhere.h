/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_DEVICE_WAIT_ELSEWHERE_H
#define GM_CLIENT_DEVICE_WAIT_ELSEWHERE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/session/gpumem_session.h"
#include "client/grant/session_lease.h"

/*
 * While a call waits for the daemon to grant memory, it looks whether other threads of this process have
 * freed some. Memory that is freed here may stay in the heap, in the cache of a thread, or wait for the
 * GPU, and the daemon hears of none of that.
 *
 * The call looks whenever something was freed (gm_session_dirty_freed()). It also looks now and then,
 * more and more seldom, and often while freed memory waits for the GPU. It takes what it can use.
 * Otherwise it gives whole unused chunks back, because they may complete what the daemon has. A call that needs more than the
 * client may ever hold keeps them: the daemon will refuse it.
 */
struct gm_wait_elsewhere {
	struct gpumem_session *session;
	uint32_t device;
	uint64_t bytes; /* that the call needs; 0: not known */
	/* Tries to take the memory out of what is here, and returns whether it did. NULL: only the
	 * daemon can grant it. */
	bool (*take)(void *ctx);
	void *ctx;

	bool found;               /* take() did */
	struct gm_wait_look look; /* of the wait */
	uint64_t delay_ns;        /* until the next look, if nothing is freed */
	uint64_t trim_ns;         /* unused chunks go back at this time at the earliest */
};

/* How a request waits while it looks; the request must end before *elsewhere does. wait_ms is as the program gave it: with
 * GPUMEM_NO_WAIT, the request does not wait for an absent daemon, either. */
struct gm_wait gm_wait_elsewhere_wait(struct gm_wait_elsewhere *elsewhere, uint32_t wait_ms);

#endif
