/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * A wakeup. To send it is to set the timer to the next nanosecond. The other side may set the timer,
 * too; then it has only itself to blame for what it does not hear.
 */

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/wire/wakeup.h"

int gm_wakeup_new(int *ret_wakeup)
{
	int wakeup = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);

	if (wakeup < 0)
		return -errno;
	*ret_wakeup = wakeup;
	return 0;
}

void gm_wakeup_send(int wakeup)
{
	const struct itimerspec soon = {.it_value.tv_nsec = 1};

	(void)timerfd_settime(wakeup, 0, &soon, NULL);
}

bool gm_wakeup_is_sent(int wakeup)
{
	struct pollfd p = {.fd = wakeup, .events = POLLIN};

	return poll(&p, 1, 0) == 1 && (p.revents & POLLIN);
}

int gm_wakeup_clear(int wakeup)
{
	uint64_t count;

	/* Polled first, because the descriptor may be blocking. */
	while (gm_wakeup_is_sent(wakeup)) {
		ssize_t n = read(wakeup, &count, sizeof(count));
		if (n == 0)
			return -EPIPE;
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return -errno;
	}
	return 0;
}
