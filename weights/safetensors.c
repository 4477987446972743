/* SPDX-License-Identifier: Apache-2.0 */
#include "weights/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "weights/json_text.h"
#include "weights/weights_error.h"

#define SAFETENSORS_LENGTH_BYTES 8
/* The one key that is no tensor: texts, which say where the file comes from. */
#define SAFETENSORS_METADATA "__metadata__"

/* Reads the length of the header, which is at most as long as the file allows. */
static gpumem_status safetensors_length(const struct gm_weights_file *file, size_t *ret_n)
{
	uint8_t bytes[SAFETENSORS_LENGTH_BYTES];
	uint64_t n = 0;

	if (file->size < sizeof(bytes))
		return gm_weights_damaged(file->name, file->size, NULL,
			"the file ends before the length of its header");
	int r = gm_weights_file_read(file, 0, bytes, sizeof(bytes));
	if (r)
		return gm_weights_file_explain(file, 0, r);
	for (size_t i = sizeof(bytes); i > 0; i--)
		n = n << 8 | bytes[i - 1];

	if (n > GPUMEM_WEIGHTS_HEADER_MOST)
		return gm_weights_damaged(file->name, 0, NULL,
			"the header has %" PRIu64 " bytes, and at most %d are allowed; this is "
			"probably not a safetensors file",
			n, GPUMEM_WEIGHTS_HEADER_MOST);
	if (n > file->size - sizeof(bytes))
		return gm_weights_damaged(file->name, file->size, NULL,
			"the file ends within its header of %" PRIu64 " bytes", n);
	*ret_n = (size_t)n;
	return GPUMEM_OK;
}

static gpumem_status safetensors_check_metadata(
	const struct gm_weights_file *file, json_t *metadata, uint64_t at)
{
	const char *key;
	json_t *value;

	if (!json_is_object(metadata))
		return gm_weights_damaged(
			file->name, at, NULL, SAFETENSORS_METADATA " is no JSON object");
	json_object_foreach(metadata, key,
		value) if (!json_is_string(value)) return gm_weights_damaged(file->name, at, NULL,
		SAFETENSORS_METADATA " has a value that is no text: %.80s", key);
	return GPUMEM_OK;
}

static gpumem_status safetensors_take(struct gm_weights_file *file, uint32_t number,
	const struct gm_json_text *text, struct gm_weights_table *table)
{
	size_t first = table->n, i = 0;
	uint64_t data = file->size - file->data;
	const char *name;
	json_t *entry;

	json_object_foreach(text->root, name, entry)
	{
		uint64_t at = gm_json_text_at(text, i++);
		gpumem_status status = !strcmp(name, SAFETENSORS_METADATA)
					       ? safetensors_check_metadata(file, entry, at)
					       : gm_weights_table_add(table, file->name, number,
							 name, entry, at, data);
		if (status)
			return status;
	}
	return gm_weights_table_check(table, first, file->name, data, true, file->size);
}

gpumem_status gm_safetensors_read(
	struct gm_weights_file *file, uint32_t number, struct gm_weights_table *table)
{
	GM_AUTO_FREE char *bytes = NULL;
	struct gm_json_text text;
	size_t n = 0;

	gpumem_status status = safetensors_length(file, &n);
	if (status)
		return status;
	bytes = malloc(n + 1);
	if (!bytes)
		return gm_weights_error(
			GPUMEM_E_HOST_MEMORY, "no memory for the header of %.200s", file->name);
	int r = gm_weights_file_read(file, SAFETENSORS_LENGTH_BYTES, bytes, n);
	if (r)
		return gm_weights_file_explain(file, SAFETENSORS_LENGTH_BYTES, r);
	if (n == 0 || bytes[0] != '{')
		return gm_weights_damaged(file->name, SAFETENSORS_LENGTH_BYTES, NULL,
			"the header does not begin with \"{\"; this is probably not a safetensors file");

	/* One more key than tensors: the metadata. */
	status = gm_json_text_parse(&text, file->name, SAFETENSORS_LENGTH_BYTES, bytes, n, NULL,
		GPUMEM_WEIGHTS_TENSORS_MOST + 1);
	if (status)
		return status;
	file->data = SAFETENSORS_LENGTH_BYTES + n;
	status = safetensors_take(file, number, &text, table);
	gm_json_text_deinit(&text);
	return status;
}
