/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_IO_MODEL_FILE_H
#define GM_CTL_IO_MODEL_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "gpumem/gpumem_plan.h"

/* The dimensions of a model: as options of gpumemctl, and as keys of a config.json. */

/* The member of gpumem_model, the option, and the key. */
#define GM_MODEL_DIMENSIONS(X) \
	X(hidden, "hidden", "hidden_size") \
	X(intermediate, "intermediate", "intermediate_size") \
	X(layers, "layers", "num_hidden_layers") \
	X(vocab, "vocab", "vocab_size") \
	X(heads, "heads", "num_attention_heads") \
	X(kv_heads, "kv-heads", "num_key_value_heads") \
	X(context, "context", "max_position_embeddings") \
	X(head_dim, "head-dim", "head_dim")

#define GM_MODEL_DIMENSION(member, option, key) GM_MODEL_##member,
enum { GM_MODEL_DIMENSIONS(GM_MODEL_DIMENSION) GM_MODEL_N_DIMENSIONS };
#undef GM_MODEL_DIMENSION

struct gm_model_dimension {
	const char *member, *option, *key;
	size_t offset; /* of the member, a uint64_t */
};
extern const struct gm_model_dimension gm_model_dimensions[GM_MODEL_N_DIMENSIONS];

static inline uint64_t *gm_model_dimension(gpumem_model *model, size_t i)
{
	return (uint64_t *)((char *)model + gm_model_dimensions[i].offset);
}

/* A file that is longer is refused: a config.json has a few kilobytes. */
#define GM_MODEL_FILE_BYTES 1048576
#define GM_MODEL_FILE_ERROR 512

struct gm_model_file {
	gpumem_model model; /* 0: the file does not say */
	bool quantised;     /* the weights are smaller than bytes_per_weight says */
	char strange[32]; /* the type of the model, if the formulas may not hold for it; else "" */
	unsigned lines[GM_MODEL_N_DIMENSIONS]; /* where each dimension stands; 0: not known */
};

/* Reads a config.json. On -EINVAL, or the errno with which the file cannot be read, error names the file
 * and, where it can, the line and the key. Keys that are missing are no error. */
int gm_model_file_read(
	const char *path, struct gm_model_file *ret_file, char error[GM_MODEL_FILE_ERROR]);

/* How many bytes a number of this type has: "bfloat16", "int4", or the bytes themselves ("0.5"). Returns 0
 * or -EINVAL. */
int gm_model_file_dtype(const char *text, double *ret_bytes);

#endif
