/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_WEIGHTS_SAFETENSORS_H
#define GM_WEIGHTS_SAFETENSORS_H

#include "weights/weights_file.h"
#include "weights/weights_table.h"

/*
 * Reads the header of a safetensors file: 8 bytes with its length, little-endian, then a JSON object with an entry for
 * each tensor, then the data. Adds the tensors to the table, sorted by their place, as those of this file. All of the
 * data must belong to exactly one tensor. Sets file->data. On error, leaves a sentence with the offset in the file, and
 * the table may have some of the tensors.
 */
gpumem_status gm_safetensors_read(
	struct gm_weights_file *file, uint32_t number, struct gm_weights_table *table);

#endif
