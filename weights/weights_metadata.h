/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_WEIGHTS_METADATA_H
#define GM_WEIGHTS_METADATA_H

#include "weights/weights_table.h"

/*
 * What is published with weights:
 *
 *   {"format": "gpumem-weights", "layout": 1, "count": 2, "bytes": 1234, "tensors": {…}}
 *
 * The tensors are described as in a safetensors file, but their data_offsets are those in the buffer. If that is longer
 * than the metadata of a name may be, "tensors" is in the buffer behind the last tensor, and "table": [begin, end] says
 * where.
 */

struct gm_weights_text {
	char *head;  /* the metadata */
	char *table; /* what goes into the buffer; NULL: nothing */
	size_t head_bytes, table_bytes;
};

/* Writes the table, whose rows have their place. end is where the buffer has room for more; most is how long the
 * metadata of a name may be. On error, leaves a sentence. */
gpumem_status gm_weights_metadata_write(const struct gm_weights_table *table, uint64_t end,
	size_t most, struct gm_weights_text *ret_text);
void gm_weights_text_deinit(struct gm_weights_text *text);

/* The metadata of a name that somebody published. */
struct gm_weights_head {
	json_t *root;
	uint64_t count, bytes;
	uint64_t begin, end; /* of the table in the buffer; both 0: it is in the metadata */
};

/* -1: this is no metadata of weights. Otherwise 0, and gm_weights_head_deinit() frees it. */
int gm_weights_head_read(const void *data, size_t size, struct gm_weights_head *ret_head);
void gm_weights_head_deinit(struct gm_weights_head *head);
/* Reads the tensors of a buffer of so many bytes: from the metadata, or from bytes, which are those of the table in the
 * buffer. Every row has its place. The table is indexed. On error, leaves a sentence. */
gpumem_status gm_weights_head_tensors(const struct gm_weights_head *head, const char *name,
	const char *bytes, uint64_t buffer_bytes, struct gm_weights_table *ret_table);

#endif
