/* SPDX-License-Identifier: Apache-2.0 */
#include "weights/weights_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "weights/weights_error.h"

/* The types of safetensors, and their bits. */
static const struct table_dtype {
	const char *name;
	uint32_t bits;
} table_dtypes[] = {
	{"BOOL", 8},
	{"F4", 4},
	{"F6_E2M3", 6},
	{"F6_E3M2", 6},
	{"U8", 8},
	{"I8", 8},
	{"F8_E5M2", 8},
	{"F8_E4M3", 8},
	{"F8_E8M0", 8},
	{"I16", 16},
	{"U16", 16},
	{"F16", 16},
	{"BF16", 16},
	{"I32", 32},
	{"U32", 32},
	{"F32", 32},
	{"C64", 64},
	{"F64", 64},
	{"I64", 64},
	{"U64", 64},
};

void gm_weights_table_deinit(struct gm_weights_table *table)
{
	for (size_t i = 0; i < table->n; i++) {
		free(table->rows[i].name);
		free(table->rows[i].shape);
	}
	free(table->rows);
	free(table->by_name);
	*table = (struct gm_weights_table){0};
}

/* ---- one entry */

struct table_entry {
	const char *file_name;
	const json_t *json;
	struct gm_weights_row *row;
};

static gpumem_status table_wrong(const struct table_entry *entry, const char *what)
{
	return gm_weights_damaged(entry->file_name, entry->row->at, entry->row->name, "%s", what);
}

static gpumem_status table_take_dtype(const struct table_entry *entry)
{
	const char *name = json_string_value(json_object_get(entry->json, "dtype"));

	if (!name)
		return table_wrong(entry, "has no dtype");
	for (size_t i = 0; i < sizeof(table_dtypes) / sizeof(*table_dtypes); i++)
		if (!strcmp(name, table_dtypes[i].name)) {
			entry->row->dtype = table_dtypes[i].name;
			entry->row->bits = table_dtypes[i].bits;
			return GPUMEM_OK;
		}
	return gm_weights_damaged(entry->file_name, entry->row->at, entry->row->name,
		"has the dtype \"%.20s\", which this version does not know", name);
}

/* A number of 0 or more. */
static bool table_number(const json_t *json, uint64_t *ret_number)
{
	if (!json_is_integer(json) || json_integer_value(json) < 0)
		return false;
	*ret_number = (uint64_t)json_integer_value(json);
	return true;
}

static gpumem_status table_take_shape(const struct table_entry *entry, uint64_t *ret_elements)
{
	struct gm_weights_row *row = entry->row;
	const json_t *shape = json_object_get(entry->json, "shape");
	uint64_t elements = 1;
	bool empty = false;

	if (!json_is_array(shape))
		return table_wrong(entry, "has no shape");
	if (json_array_size(shape) > GPUMEM_WEIGHTS_DIMS_MOST)
		return gm_weights_damaged(entry->file_name, row->at, row->name,
			"has %zu dimensions, and at most %d are allowed", json_array_size(shape),
			GPUMEM_WEIGHTS_DIMS_MOST);
	row->ndim = (uint32_t)json_array_size(shape);
	row->shape = row->ndim ? calloc(row->ndim, sizeof(*row->shape)) : NULL;
	if (row->ndim && !row->shape)
		return gm_weights_error(GPUMEM_E_HOST_MEMORY, "no memory for the table of tensors");

	for (uint32_t i = 0; i < row->ndim; i++) {
		if (!table_number(json_array_get(shape, i), &row->shape[i]))
			return table_wrong(
				entry, "has a dimension that is not a number of 0 or more");
		empty = empty || row->shape[i] == 0;
	}
	/* Others multiply the dimensions in another order, so none of the products may overflow. */
	for (uint32_t i = 0; i < row->ndim; i++)
		if (row->shape[i] && __builtin_mul_overflow(elements, row->shape[i], &elements))
			return table_wrong(entry, "has a shape that is too large for any memory");
	*ret_elements = empty ? 0 : elements;
	return GPUMEM_OK;
}

static gpumem_status table_take_offsets(
	const struct table_entry *entry, uint64_t elements, uint64_t data)
{
	struct gm_weights_row *row = entry->row;
	const json_t *offsets = json_object_get(entry->json, "data_offsets");
	uint64_t begin, end, bits;

	if (json_array_size(offsets) != 2 || !table_number(json_array_get(offsets, 0), &begin) ||
		!table_number(json_array_get(offsets, 1), &end))
		return table_wrong(
			entry, "has no data_offsets, which are two numbers of 0 or more");
	if (begin > end)
		return table_wrong(entry, "ends before it begins");
	if (end > data)
		return gm_weights_damaged(entry->file_name, row->at, row->name,
			"ends at byte %" PRIu64 " of the data, which has %" PRIu64 " bytes", end,
			data);
	if (__builtin_mul_overflow(elements, (uint64_t)row->bits, &bits) || bits % 8 ||
		bits / 8 != end - begin)
		return gm_weights_damaged(entry->file_name, row->at, row->name,
			"has %" PRIu64 " bytes, which is not what its shape and its dtype %s need",
			end - begin, row->dtype);
	row->begin = begin;
	row->bytes = end - begin;
	return GPUMEM_OK;
}

static gpumem_status table_reserve(struct gm_weights_table *table)
{
	if (table->n < table->room)
		return GPUMEM_OK;
	size_t room = table->room ? 2 * table->room : 64;
	struct gm_weights_row *rows = realloc(table->rows, room * sizeof(*rows));
	if (!rows)
		return gm_weights_error(GPUMEM_E_HOST_MEMORY, "no memory for the table of tensors");
	table->rows = rows;
	table->room = room;
	return GPUMEM_OK;
}

gpumem_status gm_weights_table_add(struct gm_weights_table *table, const char *file_name,
	uint32_t file, const char *name, const json_t *json, uint64_t at, uint64_t data)
{
	if (table->n == GPUMEM_WEIGHTS_TENSORS_MOST)
		return gm_weights_damaged(file_name, at, NULL, "the model has more than %d tensors",
			GPUMEM_WEIGHTS_TENSORS_MOST);
	gpumem_status status = table_reserve(table);
	if (status)
		return status;

	struct gm_weights_row row = {.name = strdup(name), .at = at, .file = file};
	const struct table_entry entry = {file_name, json, &row};
	uint64_t elements = 0;
	if (!row.name)
		return gm_weights_error(GPUMEM_E_HOST_MEMORY, "no memory for the table of tensors");

	if (!json_is_object(json))
		status = table_wrong(&entry, "is not described by a JSON object");
	if (!status)
		status = table_take_dtype(&entry);
	if (!status)
		status = table_take_shape(&entry, &elements);
	if (!status)
		status = table_take_offsets(&entry, elements, data);
	if (status) {
		free(row.name);
		free(row.shape);
		return status;
	}
	table->rows[table->n++] = row;
	return GPUMEM_OK;
}

/* ---- all of them */

static int table_by_place(const void *a, const void *b)
{
	const struct gm_weights_row *x = a, *y = b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? -1 : 1;
	return strcmp(x->name, y->name);
}

gpumem_status gm_weights_table_check(struct gm_weights_table *table, size_t first,
	const char *file_name, uint64_t data, bool packed, uint64_t end_at)
{
	uint64_t end = 0;

	if (table->n > first)
		qsort(table->rows + first, table->n - first, sizeof(*table->rows), table_by_place);
	for (size_t i = first; i < table->n; i++) {
		const struct gm_weights_row *row = &table->rows[i];

		if (row->begin < end)
			return gm_weights_damaged(file_name, row->at, row->name,
				"overlaps with tensor \"%.80s\"", table->rows[i - 1].name);
		if (packed && row->begin > end)
			return gm_weights_damaged(file_name, row->at, row->name,
				"begins at byte %" PRIu64 " of the data, and the %" PRIu64
				" bytes before it belong to no tensor",
				row->begin, row->begin - end);
		end = row->begin + row->bytes;
	}
	if (packed && end < data)
		return gm_weights_damaged(file_name, end_at - (data - end), NULL,
			"the last %" PRIu64 " bytes belong to no tensor", data - end);
	return GPUMEM_OK;
}

static int table_compare_names(const void *a, const void *b)
{
	return strcmp((*(const struct gm_weights_row *const *)a)->name,
		(*(const struct gm_weights_row *const *)b)->name);
}

gpumem_status gm_weights_table_index(
	struct gm_weights_table *table, const struct gm_weights_row *ret_twice[2])
{
	table->by_name = calloc(table->n + 1, sizeof(*table->by_name));
	if (!table->by_name)
		return gm_weights_error(GPUMEM_E_HOST_MEMORY, "no memory for the table of tensors");

	for (size_t i = 0; i < table->n; i++)
		table->by_name[i] = &table->rows[i];
	qsort(table->by_name, table->n, sizeof(*table->by_name), table_compare_names);
	ret_twice[0] = ret_twice[1] = NULL;
	for (size_t i = 1; i < table->n && !ret_twice[0]; i++)
		if (!table_compare_names(&table->by_name[i - 1], &table->by_name[i]))
			memcpy(ret_twice, &table->by_name[i - 1], 2 * sizeof(*ret_twice));
	return GPUMEM_OK;
}

const struct gm_weights_row *gm_weights_table_find(
	const struct gm_weights_table *table, const char *name)
{
	size_t low = 0, high = table->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		int order = strcmp(table->by_name[middle]->name, name);

		if (order == 0)
			return table->by_name[middle];
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

uint64_t gm_weights_table_bytes(const struct gm_weights_table *table)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < table->n; i++)
		bytes += table->rows[i].bytes;
	return bytes;
}
