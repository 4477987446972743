/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_COPY_COPY_H
#define GM_CLIENT_COPY_COPY_H

#include "client/copy/copy_transfer.h"

/*
 * The folder client/copy/ promises transfers between host memory or files and buffers, as
 * gpumem_copy.h describes them: when a call returns, nothing of its transfer is left. It must never
 * know how leases, chunks or heaps work: it has a buffer's address, pinned memory that it allocates as
 * a program would, and the device's mapping.
 */

/* Checks the arguments that all calls have, and begins the transfer of that range of the buffer. The
 * transfer is all zeros before. */
gpumem_status gm_copy_init(struct gm_copy_transfer *copy, gpumem_buffer *buffer, size_t offset,
	uint64_t bytes, bool out, gpumem_stream stream, const gpumem_copy_options *options,
	const gpumem_copy_result *result);
/* Ends what gm_copy_init() began, also if that failed. */
void gm_copy_deinit(struct gm_copy_transfer *copy);
/* Runs it by its strategy, SYNC or STAGED, and fills in its result. If the driver knows the host's
 * memory, no ring is needed. */
gpumem_status gm_copy_run(struct gm_copy_transfer *copy, bool known);
/* Hands the result to the program and passes the status on. */
gpumem_status gm_copy_end(
	const struct gm_copy_transfer *copy, gpumem_status status, gpumem_copy_result *ret_result);

#endif
