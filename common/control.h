/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_CONTROL_H
#define GM_COMMON_CONTROL_H

#include <stdatomic.h>
#include <stdint.h>

/*
 * The control block of a buffer with signals. It lies in the buffer's own memory, behind the bytes that
 * the program asked for, so every process that maps the buffer has it, and it lives as long as they do.
 * The daemon makes room for it and never looks at it.
 *
 * Only the process that made the buffer signals. A process that may write to the buffer can write here,
 * too: nothing in this block is a secret, and no library trusts it further than the buffer's contents.
 */
struct gm_control {
	_Atomic uint64_t value; /* what streams wait for: the last signal, or GM_CONTROL_LOST */
	_Atomic uint64_t last;  /* the last signal, written before value */
	_Atomic uint32_t bell;  /* host memory: grows with each signal, and is a futex */
	uint32_t reserved[11];
};
_Static_assert(sizeof(struct gm_control) == 64, "one cache line");

/* Signals go up to this one. A stream compares by difference, with a sign: each value up to here is
 * below GM_CONTROL_LOST by less than 2^63. */
#define GM_CONTROL_MOST (UINT64_C(1) << 62)
/* No signal will come any more: releases every wait. */
#define GM_CONTROL_LOST (UINT64_MAX >> 1)

/* How much longer a lease with a control block is. */
#define GM_CONTROL_BYTES 4096

/* Where the block begins in a buffer of that size. */
static inline uint64_t gm_control_offset(uint64_t user_bytes)
{
	uint64_t align = sizeof(struct gm_control);
	return (user_bytes + align - 1) & ~(align - 1);
}

#endif
