/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_IPC_BLOCKS_H
#define GM_DAEMON_IPC_BLOCKS_H

#include <stdint.h>
#include <sys/types.h>

#include "common/cuda.h"
#include "daemon/core/chunk.h"

/*
 * The blocks of the ipc transport. A CUDA IPC handle is 64 bytes that anybody may keep, and names
 * the block by a number of the driver's, which comes again when the block is freed: an old handle
 * then opens what has its number since and is shared, wherever that lies. So a number that one
 * trust domain has had never goes to another one, for as long as the daemon runs (handles end with
 * it). A block that gets such a number is not taken; a page of host memory takes the number
 * instead, which cannot be opened, and the next block gets another one.
 *
 * Numbers are not bounded, and a domain may be gone for good (trust = client makes one for every
 * connection), so a uid can have GM_LIMIT_IPC_NUMBERS_PER_UID of them, in use or former. It counts
 * by uid, not by domain, because nobody makes uids by connecting.
 *
 * Thread-safe: numbers are the process's, whichever device asks.
 */
struct gm_ipc_blocks;

/* -ENOMEM. */
int gm_ipc_blocks_new(const struct gm_cuda *cuda, struct gm_ipc_blocks **ret_blocks);
/* NULL is fine. */
void gm_ipc_blocks_free(struct gm_ipc_blocks *blocks);

struct gm_ipc_block {
	gm_cu_ptr ptr;
	gm_cu_ipc_mem handle;
};

#define GM_IPC_BLOCKS_E_DRIVER 1 /* *ret_call says what failed, *ret_result how */
#define GM_IPC_BLOCKS_E_SPENT  2 /* the uid has had too many numbers */
#define GM_IPC_BLOCKS_E_TAKEN  3 /* however often it was tried, the number was another domain's */

/*
 * Memory of the current context, for the domain and at the cost of the uid that seen names. 0; one
 * of the above; -ENOMEM: no host memory. After a failure nothing is left of it.
 */
int gm_ipc_blocks_take(struct gm_ipc_blocks *blocks, uint32_t device, uint64_t bytes,
	const struct gm_seen *seen, struct gm_ipc_block *ret_block, const char **ret_call,
	gm_cu_result *ret_result);
/* Frees it, in the same context. seen: who may have its handle by now. What cuMemFree says: when it
 * fails the number stays in use. */
gm_cu_result gm_ipc_blocks_release(
	struct gm_ipc_blocks *blocks, const struct gm_ipc_block *block, const struct gm_seen *seen);
/* The device's context, which is current, is about to be released: so are its pages. */
void gm_ipc_blocks_leave(struct gm_ipc_blocks *blocks, uint32_t device);

/* How many numbers a uid has had; true: this was asked before. */
bool gm_ipc_blocks_had(struct gm_ipc_blocks *blocks, uid_t uid, uint64_t *ret_numbers);

#endif
