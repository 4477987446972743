/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_CONTROL_H
#define GM_COMMON_CONTROL_H

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>

/*
 * The control block of a buffer with signals. It lies at the start of a memfd of its own, which the daemon
 * makes with the lease and gives to every process that has the lease. So the CPU of each of them can write
 * it at any time, whatever streams wait for it. The daemon never looks at it.
 *
 * Only the process that made the buffer signals. A process that has the buffer open can write here, too,
 * unless it may only read host memory: nothing in this block is a secret, and no library trusts it
 * further than the buffer's contents.
 */
struct gm_control {
	_Atomic uint64_t value;  /* what streams wait for: the last signal, or GM_CONTROL_LOST */
	_Atomic uint64_t last;   /* the last signal, written before value */
	_Atomic uint32_t wakeup; /* host memory: grows with each signal, and is a futex */
	uint32_t reserved[11];
};
_Static_assert(sizeof(struct gm_control) == 64, "one cache line");

/* Signals go up to this one. A stream compares by difference, with a sign: each value up to here is
 * below GM_CONTROL_LOST by less than 2^63. */
#define GM_CONTROL_MOST (UINT64_C(1) << 62)
/* No signal will come any more: releases every wait. */
#define GM_CONTROL_LOST (UINT64_MAX >> 1)

/* The size of the memfd, and its seals. A process that cut it would kill the others with SIGBUS, and one
 * that sealed it would keep the next ones from mapping it. */
#define GM_CONTROL_BYTES 4096
#define GM_CONTROL_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

#endif
