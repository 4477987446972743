/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_WIRE_WAKEUP_H
#define GM_WIRE_WAKEUP_H

#include <stdbool.h>

/*
 * A wakeup: a descriptor that polls readable once it was sent. Two processes that do not trust each
 * other share it, and neither can make the other wait. It is a timer (timerfd), because that holds
 * for no other descriptor of the kernel's:
 *
 *   - A pipe: read() keeps the pipe locked while it copies to memory of the reader, which may be a
 *     file of a file system that is a program of the reader. write(), even without blocking, waits
 *     for as long as that program likes.
 *   - An eventfd: both sides have the same file, so one can make it blocking, and full.
 *   - A Unix socket: sendmsg() of one may wait for the kernel's garbage collector of sockets.
 *   - A futex cannot be polled.
 */

/* The descriptor is CLOEXEC. On error, returns a negative errno. */
int gm_wakeup_new(int *ret_wakeup);
/* Sends it, whether it was sent before or not. Never waits. */
void gm_wakeup_send(int wakeup);
/* Whether it was sent and not cleared since. A wakeup that was sent just now may take some microseconds
 * until it polls readable. */
bool gm_wakeup_is_sent(int wakeup);
/* Clears it; it need not have been sent. Never waits. Also drains the event socket of a daemon that
 * speaks a protocol before 1.4. Returns 0, or a negative errno: this is no wakeup, or that socket has
 * ended. */
int gm_wakeup_clear(int wakeup);

#endif
