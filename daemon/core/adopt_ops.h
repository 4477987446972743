/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_ADOPT_OPS_H
#define GM_CORE_ADOPT_OPS_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/books/chunk.h"
#include "common/text/limit_values.h"
#include "daemon/books/owner.h"
#include "daemon/books/record.h"

/* Functions that adoption calls in the layer above, which knows the processes and the memory that the records name. */
struct gm_adopt_ops {
	/*
	 * Finds the process of a client, and its page. On success, the client gets that domain, which must not be
	 * GM_DOMAIN_FRESH. On a negative errno, the client is not adopted; gm_adopt_is_unseen(): nor is anything else. Even on success core may not adopt
	 * it: gm_core_find_session() tells afterwards.
	 */
	int (*client)(void *ctx, uint64_t id, const struct gm_record_client *record,
		gm_domain *ret_domain, bool *ret_pooling);
	/* Takes over a chunk of the fd transport on this device. A negative errno: it is not there,
	 * or is no such chunk. gm_adopt_is_unusable(): the chunk may well be sound. */
	int (*chunk)(void *ctx, uint64_t id, uint32_t device, uint64_t bytes,
		struct gm_backend_handle *ret_handle);
	/* Takes back the memfd of metadata, which is core's from then on. A negative errno: it is not
	 * there. */
	int (*metadata)(void *ctx, uint64_t id, int *ret_fd);
	/* The same for the control block of the lease with this id. */
	int (*word)(void *ctx, uint64_t id, int *ret_fd);
	/* Reports that values of an owner on a device, which were set at run time, contradict the configuration.
	 * The values now are adopted instead. why: the contradiction. May be NULL. */
	void (*limit)(void *ctx, const struct gm_owner *owner, uint32_t device,
		const struct gm_limit_values *set, const struct gm_limit_values *now,
		const char *why);
	/* Gives up a chunk that was taken over, for lack of host memory. The next daemon must find it. */
	void (*drop)(void *ctx, uint64_t id, uint32_t device, uint64_t bytes,
		struct gm_backend_handle *handle);
};

/* Whether the error is the daemon's own shortage (-ENOMEM, -EMFILE, -ENFILE), which says nothing about the record.
 * The caller must not give up a record for it. */
static inline bool gm_adopt_is_shortage(int error)
{
	return error == -ENOMEM || error == -EMFILE || error == -ENFILE;
}

/* Whether the error says that the driver or the device cannot take over memory now, which says nothing about the memory.
 * The adoption must end: a daemon that starts when they work again adopts what clients hold. */
static inline bool gm_adopt_is_unusable(int error)
{
	return error == -EIO;
}

/* Whether the error says that the process of a client lives, but this daemon cannot see it. The adoption must end: a daemon that
 * sees the process adopts what the client holds. */
static inline bool gm_adopt_is_unseen(int error)
{
	return error == -EACCES || error == -EOVERFLOW;
}

#endif
