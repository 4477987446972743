/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_COPY_PIPE_H
#define GM_CLIENT_COPY_PIPE_H

#include "client/copy/copy_slots.h"
#include "client/copy/copy_transfer.h"

enum gm_copy_way {
	GM_COPY_WAY_IN,     /* threads fill slots, and the device reads them */
	GM_COPY_WAY_OUT,    /* the device fills slots, and threads empty them */
	GM_COPY_WAY_CPU,    /* threads read or write the buffer itself */
	GM_COPY_WAY_DRIVER, /* the driver reads or writes the program's memory itself */
};

/*
 * Takes a transfer through in pieces, and fills in the bytes and threads of its result. The pieces
 * arrive in their order. Only the calling thread calls the driver and the program's function, so the
 * stream may be the calling thread's own. With threads = 0 it also moves the bytes.
 *
 * through is NULL for the last two ways. *ret_done gets false if the device may still use the slots: it
 * does not say when it has finished.
 */
gpumem_status gm_copy_pipe(struct gm_copy_transfer *copy, enum gm_copy_way way,
	const struct gm_copy_slots *through, size_t piece, uint32_t threads, bool *ret_done);

#endif
