/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_WEIGHTS_SOURCE_H
#define GM_WEIGHTS_SOURCE_H

#include "weights/weights_file.h"
#include "weights/weights_table.h"

/* The files of a model: one safetensors file, or several with an index that says which tensor is in which. */
struct gm_weights_source {
	struct gm_weights_file *files;
	size_t n;
	struct gm_weights_table table;
};

/* Opens and reads what path stands for: see gpumem_weights_load(). The table is complete and indexed. On error, leaves a
 * sentence. */
gpumem_status gm_weights_source_open(struct gm_weights_source *source, const char *path);
void gm_weights_source_close(struct gm_weights_source *source);

#endif
