/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_WIRE_BELL_H
#define GM_WIRE_BELL_H

#include <stdbool.h>

/*
 * A bell: a descriptor that polls readable once it was rung. Two processes that do not trust each
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
int gm_bell_new(int *ret_bell);
/* Rings it, whether it was rung before or not. Never waits. */
void gm_bell_ring(int bell);
/* Whether it was rung and not cleared since. A bell that was rung just now may take some microseconds
 * until it polls readable. */
bool gm_bell_rung(int bell);
/* Clears it; it need not have been rung. Never waits. Also drains the event socket of a daemon that
 * speaks a protocol before 1.4. Returns 0, or a negative errno: this is no bell, or that socket has
 * ended. */
int gm_bell_clear(int bell);

#endif
