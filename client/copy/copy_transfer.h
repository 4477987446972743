/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_COPY_COPY_TRANSFER_H
#define GM_CLIENT_COPY_COPY_TRANSFER_H

#include <stdatomic.h>

#include "client/session/gpumem_session.h"
#include "gpumem/gpumem_copy.h"

/* Moves bytes between a place that the CPU sees (a slot, or the buffer itself) and the program's
 * memory or file; at counts from the beginning of the transfer. Several threads call it at a time.
 * Returns 0, a negative errno, or a positive number that the transfer's explain() knows. If it moved
 * fewer bytes than n, the input ends there. */
typedef int (*gm_copy_transfer_move)(void *ctx, uint64_t at, void *place, size_t n, size_t *ret_n);

/* One transfer. */
struct gm_copy_transfer {
	struct gpumem_session *session;
	const struct gm_session_device *device;
	struct gpumem_buffer *buffer; /* whose memory it uses; NULL: it has not begun */
	uint8_t *at;                  /* the place in the buffer */
	uint64_t room;                /* bytes of the buffer from there on */
	uint64_t total;               /* bytes of the transfer */
	bool out;                     /* from the buffer */
	bool visible;                 /* the CPU sees the buffer */
	bool pageable;                /* the driver does not know the program's memory */
	gpumem_stream stream;
	gpumem_copy_options options;
	gpumem_copy_result result;

	/* The host's side. */
	gm_copy_transfer_move move;
	void *ctx;
	uint8_t *memory;       /* NULL: a file */
	bool serial;           /* the input has an order: one thread reads it */
	_Atomic bool stopping; /* a move() that waits for input gives up: -ECANCELED */
	/* Leaves the sentence for another error of move(); result.bytes have arrived. */
	gpumem_status (*explain)(const struct gm_copy_transfer *copy, int error);
};

#endif
