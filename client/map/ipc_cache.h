/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_IPC_CACHE_H
#define GM_CLIENT_IPC_CACHE_H

#include <pthread.h>
#include <stdint.h>

#include "common/limits.h"

/*
 * Which blocks of the ipc transport are open in this process, each once, however many use it. A
 * handle is opened in a context, which is told by a number that no other has, and belongs to it.
 * All calls may be made from any thread; no lock is held while the driver opens or closes.
 */
struct gm_ipc_cache_block;

#define GM_IPC_CACHE_BUCKETS 512

struct gm_ipc_cache {
	pthread_mutex_t lock;
	struct gm_ipc_cache_block *by_handle[GM_IPC_CACHE_BUCKETS], *by_addr[GM_IPC_CACHE_BUCKETS];
};

#define GM_IPC_CACHE_INIT \
	{ \
		.lock = PTHREAD_MUTEX_INITIALIZER \
	}

/* The driver's part. 0 or a negative errno. */
struct gm_ipc_ops {
	/* In the context of that number, which is current, or in another, whose number is written
	 * then. */
	int (*open)(void *ctx, const uint8_t handle[GM_IPC_HANDLE_BYTES], uint64_t *context,
		void **ret_addr);
	/* In the context that the block was opened in. */
	int (*close)(void *ctx, uint64_t context, void *addr);
};

/* One more use of the block; the first opens it, in that context, which is current, or where the
 * driver lets it be opened. -ENOMEM, or what the driver said. */
int gm_ipc_cache_take(struct gm_ipc_cache *cache, const struct gm_ipc_ops *ops, void *ctx,
	const uint8_t handle[GM_IPC_HANDLE_BYTES], uint64_t context, void **ret_addr);
/* One use less; the last closes it. -ENOENT: nothing is open there. When the driver cannot close
 * it, that is said, and the use stands. */
int gm_ipc_cache_put(
	struct gm_ipc_cache *cache, const struct gm_ipc_ops *ops, void *ctx, void *addr);

#endif
