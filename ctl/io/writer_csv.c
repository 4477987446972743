/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The CSV writer: tables for spreadsheets and for awk. It quotes as RFC 4180 says, and cleans texts
 * as the other writers do, because people look at CSV on terminals too. So no value has a line break
 * in it, and each line is a row.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/text/message.h"
#include "common/text/text.h"
#include "ctl/io/view.h"
#include "ctl/io/writer.h"

struct writer_csv {
	struct gm_writer base;
	bool header;
	size_t n_tables;
	size_t n_cells, n_bytes_of_row; /* of the row that is being written */
	size_t n_fields;
	/* Each stream writes into the bytes below it. */
	FILE *tables, *field_keys, *field_values, *notes;
	char *table_bytes, *key_bytes, *value_bytes, *note_bytes;
	size_t n_table_bytes, n_key_bytes, n_value_bytes, n_note_bytes;
};

static void csv_put_text(FILE *stream, const char *text)
{
	if (!text[strcspn(text, ",\"\r\n")]) {
		fputs(text, stream);
		return;
	}

	fputc('"', stream);
	for (; *text; text++) {
		if (*text == '"')
			fputc('"', stream);
		fputc(*text, stream);
	}
	fputc('"', stream);
}

/* Returns a malloc'ed, cleaned text, or NULL if out of memory. A spreadsheet takes a value that begins
 * with one of these characters for a formula, and other users choose names: an apostrophe comes first. */
static char *csv_plain(const char *text)
{
	char *clean = gm_text_clean(text, false), *plain;

	if (!clean || !*clean || !strchr("=+-@", *clean))
		return clean;
	int n = asprintf(&plain, "'%s", clean);
	free(clean);
	return n < 0 ? NULL : plain;
}

/* Returns a malloc'ed, cleaned text, or NULL if out of memory. */
static char *csv_text(const struct gm_value *value)
{
	char *shown;
	int n = 0;

	switch (value->kind) {
	case GM_VALUE_TEXT:
		return csv_plain(value->text);
	case GM_VALUE_SIZE:
	case GM_VALUE_COUNT:
	case GM_VALUE_TIME:
	case GM_VALUE_LEFT:
		/* As in JSON, UINT64_MAX stands for "all" or "no end". */
		if (value->n > INT64_MAX)
			return strdup("");
		n = asprintf(&shown, "%llu", (unsigned long long)value->n);
		break;
	case GM_VALUE_SIGNED:
		n = asprintf(&shown, "%lld", (long long)value->n);
		break;
	case GM_VALUE_SHARE:
	case GM_VALUE_FACTOR:
		n = asprintf(&shown, "%llu.%06llu", (unsigned long long)(value->n / 1000000),
			(unsigned long long)(value->n % 1000000));
		break;
	case GM_VALUE_BOOL:
		return strdup(value->n ? "true" : "false");
	case GM_VALUE_NONE:
	case GM_VALUE_ROWS:
	case GM_VALUE_SAME_ROWS:
		return strdup("");
	}
	return n < 0 ? NULL : shown;
}

static void csv_cell(struct writer_csv *writer, const char *text)
{
	if (writer->n_cells++)
		fputc(',', writer->tables);
	csv_put_text(writer->tables, text);
	writer->n_bytes_of_row += strlen(text);
}

static void csv_end_row(struct writer_csv *writer)
{
	/* An empty line would end the table. */
	if (writer->n_cells == 1 && !writer->n_bytes_of_row)
		fputs("\"\"", writer->tables);
	fputc('\n', writer->tables);
	writer->n_cells = writer->n_bytes_of_row = 0;
}

static void csv_row(
	struct writer_csv *writer, const struct gm_table *table, const struct gm_row *row)
{
	for (size_t i = 0; i < gm_view_width(table); i++) {
		size_t c = gm_view_column(table, i);
		const char *name = gm_view_name(&table->columns[c]);

		/* Somebody may choose what otherwise only people see. */
		if (!name && gm_view_chooses(table->view))
			name = table->columns[c].title;
		if (!name)
			continue;
		if (!row) {
			csv_cell(writer, name);
			continue;
		}

		char *text = csv_text(&row->values[c]);
		if (!text) {
			writer->base.error = -ENOMEM;
			return;
		}
		csv_cell(writer, text);
		free(text);
	}
	csv_end_row(writer);
}

static void csv_table(struct gm_writer *base, const char *key, const struct gm_table *table)
{
	struct writer_csv *writer = (struct writer_csv *)base;

	if (writer->n_tables++)
		fputc('\n', writer->tables);
	if (writer->header)
		csv_row(writer, table, NULL);
	for (size_t i = 0; i < table->n_rows; i++)
		if (table->rows[i].kind != GM_ROW_FOLDED)
			csv_row(writer, table, &table->rows[i]);
}

static void csv_field(struct gm_writer *base, const char *key, const struct gm_value *value)
{
	struct writer_csv *writer = (struct writer_csv *)base;
	char *text = csv_text(value);

	if (!text) {
		base->error = -ENOMEM;
		return;
	}
	if (writer->n_fields++) {
		fputc(',', writer->field_keys);
		fputc(',', writer->field_values);
	}
	csv_put_text(writer->field_keys, key);
	csv_put_text(writer->field_values, text);
	free(text);
}

static void csv_note(struct gm_writer *base, const char *kind, enum gm_mark mark, const char *text)
{
	struct writer_csv *writer = (struct writer_csv *)base;

	/* With its end, as a text of its own. */
	fwrite(text, 1, strlen(text) + 1, writer->notes);
}

static int csv_finish(struct gm_writer *base, FILE *out)
{
	struct writer_csv *writer = (struct writer_csv *)base;

	if (fflush(writer->tables) || fflush(writer->field_keys) || fflush(writer->field_values) ||
		fflush(writer->notes))
		return -ENOMEM;

	errno = 0;
	if (fwrite(writer->table_bytes, 1, writer->n_table_bytes, out) != writer->n_table_bytes)
		return errno ? -errno : -EIO;
	if (!writer->n_tables && writer->n_fields &&
		fprintf(out, "%s%s%s\n", writer->header ? writer->key_bytes : "",
			writer->header ? "\n" : "", writer->value_bytes) < 0)
		return errno ? -errno : -EIO;

	for (size_t at = 0; at < writer->n_note_bytes; at += strlen(writer->note_bytes + at) + 1)
		gm_message(NULL, writer->note_bytes + at);
	return 0;
}

static void csv_free(struct gm_writer *base)
{
	struct writer_csv *writer = (struct writer_csv *)base;
	FILE *streams[] = {writer->tables, writer->field_keys, writer->field_values, writer->notes};

	for (size_t i = 0; i < sizeof(streams) / sizeof(*streams); i++)
		if (streams[i])
			fclose(streams[i]);
	free(writer->table_bytes);
	free(writer->key_bytes);
	free(writer->value_bytes);
	free(writer->note_bytes);
	free(writer);
}

struct gm_writer *gm_writer_csv_new(bool header)
{
	static const struct gm_writer_ops ops = {
		.field = csv_field,
		.table = csv_table,
		.data = csv_table,
		.note = csv_note,
		.finish = csv_finish,
		.free = csv_free,
	};
	struct writer_csv *writer = calloc(1, sizeof(*writer));

	if (!writer)
		return NULL;
	writer->base.ops = &ops;
	writer->header = header;

	writer->tables = open_memstream(&writer->table_bytes, &writer->n_table_bytes);
	writer->field_keys = open_memstream(&writer->key_bytes, &writer->n_key_bytes);
	writer->field_values = open_memstream(&writer->value_bytes, &writer->n_value_bytes);
	writer->notes = open_memstream(&writer->note_bytes, &writer->n_note_bytes);
	if (!writer->tables || !writer->field_keys || !writer->field_values || !writer->notes) {
		csv_free(&writer->base);
		return NULL;
	}
	return &writer->base;
}
