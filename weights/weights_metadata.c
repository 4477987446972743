/* SPDX-License-Identifier: Apache-2.0 */
#include "weights/weights_metadata.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "weights/json_text.h"
#include "weights/weights_error.h"

#define METADATA_FORMAT "gpumem-weights"
#define METADATA_LAYOUT 1

/* ---- writing */

void gm_weights_text_deinit(struct gm_weights_text *text)
{
	free(text->head);
	free(text->table);
	*text = (struct gm_weights_text){0};
}

/* Names are UTF-8 already. */
static void metadata_write_name(FILE *out, const char *name)
{
	putc('"', out);
	for (const char *at = name; *at; at++) {
		if ((unsigned char)*at < 0x20 || *at == 0x7f)
			fprintf(out, "\\u%04x", (unsigned char)*at);
		else if (*at == '"' || *at == '\\')
			fprintf(out, "\\%c", *at);
		else
			putc(*at, out);
	}
	putc('"', out);
}

static void metadata_write_tensors(FILE *out, const struct gm_weights_table *table)
{
	putc('{', out);
	for (size_t i = 0; i < table->n; i++) {
		const struct gm_weights_row *row = &table->rows[i];

		fputs(i ? ",\n" : "\n", out);
		metadata_write_name(out, row->name);
		fprintf(out, ":{\"dtype\":\"%s\",\"shape\":[", row->dtype);
		for (uint32_t d = 0; d < row->ndim; d++)
			fprintf(out, "%s%" PRIu64, d ? "," : "", row->shape[d]);
		fprintf(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", row->place,
			row->place + row->bytes);
	}
	fputs("}", out);
}

/* Closes the stream. false: there was no memory for all of it. */
static bool metadata_finish(FILE *out)
{
	bool wrong = ferror(out) != 0;

	return fclose(out) == 0 && !wrong;
}

static gpumem_status metadata_no_memory(struct gm_weights_text *text)
{
	gm_weights_text_deinit(text);
	return gm_weights_error(GPUMEM_E_HOST_MEMORY, "no memory for the table of tensors");
}

gpumem_status gm_weights_metadata_write(const struct gm_weights_table *table, uint64_t end,
	size_t most, struct gm_weights_text *ret_text)
{
	struct gm_weights_text text = {0};
	FILE *out = open_memstream(&text.table, &text.table_bytes);

	if (!out)
		return metadata_no_memory(&text);
	metadata_write_tensors(out, table);
	if (!metadata_finish(out))
		return metadata_no_memory(&text);

	out = open_memstream(&text.head, &text.head_bytes);
	if (!out)
		return metadata_no_memory(&text);
	fprintf(out,
		"{\"format\":\"" METADATA_FORMAT "\",\"layout\":%d,\"count\":%zu,\"bytes\":%" PRIu64
		",",
		METADATA_LAYOUT, table->n, gm_weights_table_bytes(table));
	/* What stands around the table is far below a kilobyte. */
	bool fits = text.table_bytes + 1024 <= most;
	if (fits)
		fprintf(out, "\"tensors\":%s}\n", text.table);
	else
		fprintf(out, "\"table\":[%" PRIu64 ",%" PRIu64 "]}\n", end, end + text.table_bytes);
	if (!metadata_finish(out))
		return metadata_no_memory(&text);

	if (fits) {
		free(gm_steal_ptr(&text.table));
		text.table_bytes = 0;
	}
	*ret_text = text;
	return GPUMEM_OK;
}

/* ---- reading */

static bool metadata_number(const json_t *json, uint64_t *ret_number)
{
	if (!json_is_integer(json) || json_integer_value(json) < 0)
		return false;
	*ret_number = (uint64_t)json_integer_value(json);
	return true;
}

static bool metadata_take_head(struct gm_weights_head *head)
{
	const char *format = json_string_value(json_object_get(head->root, "format"));
	const json_t *table = json_object_get(head->root, "table");
	uint64_t layout;

	return format && !strcmp(format, METADATA_FORMAT) &&
	       metadata_number(json_object_get(head->root, "layout"), &layout) &&
	       layout == METADATA_LAYOUT &&
	       metadata_number(json_object_get(head->root, "count"), &head->count) &&
	       metadata_number(json_object_get(head->root, "bytes"), &head->bytes) &&
	       (!table || (json_array_size(table) == 2 &&
				  metadata_number(json_array_get(table, 0), &head->begin) &&
				  metadata_number(json_array_get(table, 1), &head->end) &&
				  head->begin < head->end));
}

int gm_weights_head_read(const void *data, size_t size, struct gm_weights_head *ret_head)
{
	struct gm_weights_head head = {0};
	struct gm_json_text text;

	/* Metadata of others may be anything: it is looked at only if it begins as ours does. */
	if (size < strlen("{\"format\"") || memcmp(data, "{\"format\"", strlen("{\"format\"")) ||
		gm_json_text_parse(
			&text, "metadata", 0, data, size, "tensors", GPUMEM_WEIGHTS_TENSORS_MOST))
		return -1;
	head.root = json_incref(text.root);
	gm_json_text_deinit(&text);

	if (!metadata_take_head(&head)) {
		gm_weights_head_deinit(&head);
		return -1;
	}
	*ret_head = head;
	return 0;
}

void gm_weights_head_deinit(struct gm_weights_head *head)
{
	json_decref(head->root);
	head->root = NULL;
}

static gpumem_status metadata_take_tensors(
	json_t *tensors, const char *name, uint64_t buffer_bytes, struct gm_weights_table *table)
{
	const struct gm_weights_row *twice[2];
	const char *tensor;
	json_t *entry;

	json_object_foreach(tensors, tensor, entry)
	{
		gpumem_status status =
			gm_weights_table_add(table, name, 0, tensor, entry, 0, buffer_bytes);
		if (status)
			return status;

		struct gm_weights_row *row = &table->rows[table->n - 1];
		row->place = row->begin;
		if (row->place % GPUMEM_WEIGHTS_ALIGNMENT)
			return gm_weights_damaged(name, 0, tensor, "is not aligned");
	}
	gpumem_status status =
		gm_weights_table_check(table, 0, name, buffer_bytes, false, buffer_bytes);
	return status ? status : gm_weights_table_index(table, twice);
}

gpumem_status gm_weights_head_tensors(const struct gm_weights_head *head, const char *name,
	const char *bytes, uint64_t buffer_bytes, struct gm_weights_table *ret_table)
{
	struct gm_weights_table table = {0};
	struct gm_json_text text = {0};
	json_t *tensors = json_object_get(head->root, "tensors");
	gpumem_status status = GPUMEM_OK;

	if (bytes) {
		status = gm_json_text_parse(&text, name, 0, bytes,
			(size_t)(head->end - head->begin), NULL, GPUMEM_WEIGHTS_TENSORS_MOST);
		tensors = text.root;
	}
	if (!status && !json_is_object(tensors))
		status = gm_weights_damaged(name, 0, NULL, "its metadata has no table of tensors");
	if (!status)
		status = metadata_take_tensors(tensors, name, buffer_bytes, &table);
	gm_json_text_deinit(&text);

	if (status)
		gm_weights_table_deinit(&table);
	else
		*ret_table = table;
	return status;
}
