/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_WEIGHTS_TABLE_H
#define GM_WEIGHTS_TABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpumem/gpumem_weights.h"

/*
 * The tensors of a model: from the headers of its files, and from the metadata of a published buffer, which has the same
 * entries. Either may be hostile, so every entry is checked where it comes in. All functions leave a sentence if they
 * fail.
 */

struct gm_weights_row {
	char *name;        /* owned */
	const char *dtype; /* static */
	uint64_t *shape;   /* owned; NULL: ndim is 0 */
	uint64_t begin,
		bytes;  /* in the data of its file, or in the buffer if it comes from there */
	uint64_t place; /* in the buffer */
	uint64_t at;    /* where its entry is in the file, for messages */
	uint32_t file;
	uint32_t ndim, bits;
};

struct gm_weights_table {
	struct gm_weights_row *rows;
	size_t n, room;
	const struct gm_weights_row *
		*by_name; /* n of them, once gm_weights_table_index() has run */
};

void gm_weights_table_deinit(struct gm_weights_table *table);

/* Adds the entry of a tensor: {"dtype": …, "shape": […], "data_offsets": [begin, end]}. data is how many bytes of data
 * there are. file_name and at are for messages. */
gpumem_status gm_weights_table_add(struct gm_weights_table *table, const char *file_name,
	uint32_t file, const char *name, const json_t *entry, uint64_t at, uint64_t data);
/* Sorts the rows from first on by their place in the data, and checks that no two overlap. packed: they must also fill
 * all of the data, without a hole. end: where the data ends in the file, for messages. */
gpumem_status gm_weights_table_check(struct gm_weights_table *table, size_t first,
	const char *file_name, uint64_t data, bool packed, uint64_t end);
/* Makes the rows findable by name. ret_twice gets two rows with the same name, or NULLs. No row may be added
 * afterwards. */
gpumem_status gm_weights_table_index(
	struct gm_weights_table *table, const struct gm_weights_row *ret_twice[2]);
/* NULL: there is none. */
const struct gm_weights_row *gm_weights_table_find(
	const struct gm_weights_table *table, const char *name);
/* Bytes of all tensors. */
uint64_t gm_weights_table_bytes(const struct gm_weights_table *table);

#endif
