/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_IPC_BLOCKS_H
#define GM_DAEMON_IPC_BLOCKS_H

#include <stdint.h>
#include <sys/types.h>

#include "common/cuda/cuda.h"
#include "daemon/books/chunk.h"

/*
 * The blocks of the ipc transport. A CUDA IPC handle is 64 bytes that anybody may keep. It names
 * the block by a number, which the driver gives to another block once the first is freed. The old
 * handle then opens the new block. So a number that one trust domain has had never goes to another
 * domain while the daemon runs; handles end with the daemon. If a new block gets such a number, the
 * block is freed again. A page of host memory, which no handle can open, takes the number instead,
 * and the next block gets another one.
 *
 * The driver does not bound its numbers, and a domain may be gone for good (trust = client makes
 * one for every connection). So a uid can have GM_BOUND_IPC_NUMBERS_PER_UID numbers, in use or
 * former. They count for the uid that pays: users can make subordinate uids, but not uids that pay.
 *
 * Thread-safe, because all devices share the process's numbers.
 */
struct gm_ipc_blocks;

/* Returns 0 or -ENOMEM. */
int gm_ipc_blocks_new(const struct gm_cuda *cuda, struct gm_ipc_blocks **ret_blocks);
/* blocks may be NULL. */
void gm_ipc_blocks_free(struct gm_ipc_blocks *blocks);

struct gm_ipc_block {
	gm_cu_ptr ptr;
	gm_cu_ipc_mem handle;
};

#define GM_IPC_BLOCKS_E_DRIVER 1 /* *ret_call failed with *ret_result */
#define GM_IPC_BLOCKS_E_SPENT  2 /* the uid has had too many numbers */
#define GM_IPC_BLOCKS_E_TAKEN  3 /* every number that the driver gave was another domain's */

/* Makes a block in the current context, for seen->domain and charged to seen->payer_uid. Returns 0, one
 * of the above, or -ENOMEM: there is no host memory. */
int gm_ipc_blocks_take(struct gm_ipc_blocks *blocks, uint32_t device, uint64_t bytes,
	const struct gm_backend_seen *seen, struct gm_ipc_block *ret_block, const char **ret_call,
	gm_cu_result *ret_result);
/* Frees a block, in the same context. seen describes the clients that may have its handle. Returns
 * the result of cuMemFree; if that fails, the number stays in use. */
gm_cu_result gm_ipc_blocks_release(struct gm_ipc_blocks *blocks, const struct gm_ipc_block *block,
	const struct gm_backend_seen *seen);
/* Frees the device's pages. Its context must be current, and is released after this. */
void gm_ipc_blocks_leave(struct gm_ipc_blocks *blocks, uint32_t device);

/* Tells how many numbers a uid has. Returns true if that was asked before. */
bool gm_ipc_blocks_had(struct gm_ipc_blocks *blocks, uid_t uid, uint64_t *ret_numbers);

#endif
