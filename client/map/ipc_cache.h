/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_IPC_CACHE_H
#define GM_CLIENT_IPC_CACHE_H

#include <stdint.h>

#include "common/bounds.h"
#include "common/lock.h"

/*
 * The blocks of the ipc transport that are open in this process. Each is open once, however many
 * users it has. A block is opened in a context and belongs to it; a number that no other context
 * has stands for the context.
 *
 * All calls may be made from any thread. No lock is held while the driver opens or closes a block.
 */
struct gm_ipc_cache_block;

#define GM_IPC_CACHE_BUCKETS 512

struct gm_ipc_cache {
	struct gm_lock lock;
	struct gm_ipc_cache_block *by_handle[GM_IPC_CACHE_BUCKETS], *by_addr[GM_IPC_CACHE_BUCKETS];
};

#define GM_IPC_CACHE_INIT \
	{ \
		.lock = GM_LOCK_INITIALIZER(GM_LOCK_LEAF) \
	}

/* The calls to the driver. They return 0 or a negative errno. */
struct gm_ipc_ops {
	/* Opens the block in the context with this number, which is current. If the block had to be
	 * opened in another context, writes the number of that one. */
	int (*open)(void *ctx, const uint8_t handle[GM_IPC_HANDLE_BYTES], uint64_t *context,
		void **ret_addr);
	/* Closes a block; context is the one that it was opened in. */
	int (*close)(void *ctx, uint64_t context, void *addr);
};

/* Counts one more use of a block. The first use opens it, in the context with this number, which is
 * current, or in another one if the driver insists. -ENOMEM, or the error of open(). */
int gm_ipc_cache_take(struct gm_ipc_cache *cache, const struct gm_ipc_ops *ops, void *ctx,
	const uint8_t handle[GM_IPC_HANDLE_BYTES], uint64_t context, void **ret_addr);
/* Counts one use less. The last one closes the block. -ENOENT: no block is open there. If close()
 * fails, returns its error, and the use still counts. */
int gm_ipc_cache_put(
	struct gm_ipc_cache *cache, const struct gm_ipc_ops *ops, void *ctx, void *addr);

#endif
