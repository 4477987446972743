/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * A bell. To ring it is to set the timer to the next nanosecond. The other side may set the timer,
 * too; then it has only itself to blame for what it does not hear.
 */

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/wire/bell.h"

int gm_bell_new(int *ret_bell)
{
	int bell = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);

	if (bell < 0)
		return -errno;
	*ret_bell = bell;
	return 0;
}

void gm_bell_ring(int bell)
{
	const struct itimerspec soon = {.it_value.tv_nsec = 1};

	(void)timerfd_settime(bell, 0, &soon, NULL);
}

bool gm_bell_rung(int bell)
{
	struct pollfd p = {.fd = bell, .events = POLLIN};

	return poll(&p, 1, 0) == 1 && (p.revents & POLLIN);
}

int gm_bell_clear(int bell)
{
	uint64_t count;

	/* Polled first, because the descriptor may be blocking. */
	while (gm_bell_rung(bell)) {
		ssize_t n = read(bell, &count, sizeof(count));
		if (n == 0)
			return -EPIPE;
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return -errno;
	}
	return 0;
}
