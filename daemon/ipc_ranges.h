/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_IPC_RANGES_H
#define GM_DAEMON_IPC_RANGES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/cuda.h"
#include "daemon/core/chunk.h"

/*
 * The addresses of ipc blocks. A CUDA IPC handle is 64 bytes that anybody may keep, and the driver
 * lets an old one open what was allocated and shared since at the same address. So an address that
 * one trust domain has had a block at never holds another domain's block, for as long as the daemon
 * runs (the handles end with it).
 *
 * What a block takes is a range. It is live while the block is there, and retired from then on:
 * kept reserved, for its domain alone, whose next block of that size on that device is put there
 * again. What several domains have seen is never used again. Where the driver does not reserve a
 * range in its place, or reserves nothing at all, it is remembered all the same, and memory that
 * the driver puts there is not taken; that costs time and, while it goes on, memory.
 *
 * Addresses and reservations are finite, and a domain may be gone for good (trust = client makes
 * one for every connection, a container is one of its own), so what a uid can leave behind is
 * bounded: GM_LIMIT_IPC_RANGES_PER_UID, and in bytes GM_LIMIT_IPC_RANGES_GIB_PER_UID. It counts by
 * uid, not by domain, because nobody makes uids by connecting. At the first bound neighbours become
 * one range, which nobody uses again; when that does not help, and at the second, the uid gets no
 * block but where its domain had one, and nobody else notices.
 *
 * Thread-safe: addresses are the process's, whichever device asks, so freeing and reserving a
 * range, or releasing and taking it, is one step for all of them.
 */
struct gm_ipc_ranges;

/* -ENOMEM. */
int gm_ipc_ranges_new(const struct gm_cuda *cuda, struct gm_ipc_ranges **ret_ranges);
/* Gives every reservation back. No block may be taken or released meanwhile. NULL is fine. */
void gm_ipc_ranges_free(struct gm_ipc_ranges *ranges);

#define GM_IPC_RANGES_E_DRIVER 1 /* *ret_result says what the driver said to cuMemAlloc */
#define GM_IPC_RANGES_E_SPENT  2 /* the uid has left too much behind */

/*
 * Memory of the current context's device, in whole GM_CHUNK_MIN, for the domain and at the cost of
 * the uid that seen names. 0; one of the above; -ENOMEM: no host memory. After a failure everything
 * is as before.
 */
int gm_ipc_ranges_take(struct gm_ipc_ranges *ranges, uint32_t device, uint64_t bytes,
	const struct gm_seen *seen, gm_cu_ptr *ret_ptr, gm_cu_result *ret_result);
/*
 * Frees it, in the same device's context, and retires its range. seen: who may have its handle by
 * now; NULL: nobody was given one since it was taken. What cuMemFree says: when it fails the range
 * is lost, too.
 */
gm_cu_result gm_ipc_ranges_release(
	struct gm_ipc_ranges *ranges, gm_cu_ptr ptr, const struct gm_seen *seen);

/* What a uid has left behind, in whole ranges and bytes; true: it was told to the log before (and
 * is from now on). */
bool gm_ipc_ranges_left(
	struct gm_ipc_ranges *ranges, uid_t uid, uint64_t *ret_ranges, uint64_t *ret_bytes);

#endif
