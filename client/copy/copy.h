/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_COPY_COPY_H
#define GM_CLIENT_COPY_COPY_H

#include "client/memory/buffer.h"
#include "gpumem/gpumem_copy.h"

/*
 * The folder client/copy/ promises transfers between host memory or files and buffers, as
 * gpumem_copy.h describes them: when a call returns, nothing of its transfer is left. It must never
 * know how leases, chunks or heaps work: it has a buffer's address, pinned memory that it allocates as
 * a program would, and the device's mapping.
 */

/* Moves bytes between a place that the CPU sees (a slot, or the buffer itself) and the program's
 * memory or file; at counts from the beginning of the transfer. Several threads call it at a time.
 * Returns 0 or a negative errno. If it moved fewer bytes than n, the input ends there. */
typedef int (*gm_copy_move)(void *ctx, uint64_t at, void *place, size_t n, size_t *ret_n);

/* One transfer. */
struct gm_copy {
	struct gpumem_session *session;
	const struct gm_session_device *device;
	uint8_t *at;    /* the place in the buffer */
	uint64_t room;  /* bytes of the buffer from there on */
	uint64_t total; /* bytes of the transfer */
	bool out;       /* from the buffer */
	bool visible;   /* the CPU sees the buffer */
	gpumem_stream stream;
	gpumem_copy_options options;
	gpumem_copy_result result;

	/* The host's side. */
	gm_copy_move move;
	void *ctx;
	uint8_t *memory;       /* NULL: a file */
	bool serial;           /* the input has an order: one thread reads it */
	_Atomic bool stopping; /* a move() that waits for input gives up: -ECANCELED */
	/* What to say of another error of move(), after result.bytes have arrived. */
	gpumem_status (*explain)(const struct gm_copy *copy, int error);
};

/* Checks the arguments that all calls have, and begins the transfer of that range of the buffer. */
gpumem_status gm_copy_init(struct gm_copy *copy, gpumem_buffer *buffer, size_t offset,
	uint64_t bytes, bool out, gpumem_stream stream, const gpumem_copy_options *options,
	const gpumem_copy_result *result);
/* Runs it by its strategy, SYNC or STAGED, and fills in its result. If the driver knows the host's
 * memory, no ring is needed. */
gpumem_status gm_copy_run(struct gm_copy *copy, bool known);
/* Hands the result to the program and passes the status on. */
gpumem_status gm_copy_end(
	const struct gm_copy *copy, gpumem_status status, gpumem_copy_result *ret_result);

#endif
