/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_WEIGHTS_WEIGHTS_H
#define GM_WEIGHTS_WEIGHTS_H

#include "weights/weights_table.h"

/*
 * The folder weights/ promises models whose weights are loaded once and stay on their device: it reads their files, lays
 * them out in one buffer, and publishes and attaches it. It must never know more of the broker than its public headers
 * say: no message, no lease, no driver.
 */

/* How the tag of a buffer with weights begins, by which they are found among all names. Behind it the tag says how many
 * tensors there are: "weights: 291 tensors, 16060522496 bytes". So a list of weights reads no metadata, which may be long,
 * and anybody's. */
#define GM_WEIGHTS_TAG       "weights"
#define GM_WEIGHTS_TAG_BYTES 64

void gm_weights_tag_write(uint64_t tensors, uint64_t bytes, char ret_tag[GM_WEIGHTS_TAG_BYTES]);
/* false: these are no weights. A tag that makes no sense leaves the tensors at 0, which means unknown, and the bytes are
 * those of the buffer. */
bool gm_weights_tag_read(const gpumem_name *name, uint64_t *ret_tensors, uint64_t *ret_bytes);

struct gpumem_weights {
	gpumem_buffer *buffer;
	struct gm_weights_table table; /* indexed; in the order of the buffer */
	gpumem_weights_tensor *tensors;
	uint64_t version, bytes;
};

/* Takes ownership of the buffer, and of what is in the table, also if it fails. On error, leaves a sentence. */
gpumem_status gm_weights_new(
	gpumem_buffer *buffer, struct gm_weights_table *table, gpumem_weights **ret_weights);

/* What a name stands for. */
struct gm_weights_found {
	bool exists, weights;
	uint64_t version;
};

/* Looks what a name stands for. A name that does not exist is no error. */
gpumem_status gm_weights_look(
	gpumem_session *session, const char *name, struct gm_weights_found *ret_found);

#endif
