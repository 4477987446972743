/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_WEIGHTS_WEIGHTS_H
#define GM_WEIGHTS_WEIGHTS_H

#include "weights/weights_table.h"

/*
 * The folder weights/ promises models whose weights are loaded once and stay on their device: it reads their files, lays
 * them out in one buffer, and publishes and attaches it. It must never know more of the broker than its public headers
 * say: no message, no lease, no driver.
 */

/* The tag of buffers with weights, by which they are found among all names. */
#define GM_WEIGHTS_TAG "weights"

struct gpumem_weights {
	gpumem_buffer *buffer;
	struct gm_weights_table table; /* indexed; in the order of the buffer */
	gpumem_weights_tensor *tensors;
	uint64_t version, bytes;
};

/* Takes ownership of the buffer, and of what is in the table, also if it fails. On error, leaves a sentence. */
gpumem_status gm_weights_new(
	gpumem_buffer *buffer, struct gm_weights_table *table, gpumem_weights **ret_weights);

/* What a name stands for. tensors is 0 where nobody but its audience can know. */
struct gm_weights_found {
	bool exists, weights;
	uint64_t version, tensors, bytes; /* if they are weights */
};

/* Looks what a name stands for. A name that does not exist is no error. */
gpumem_status gm_weights_look(
	gpumem_session *session, const char *name, struct gm_weights_found *ret_found);

#endif
