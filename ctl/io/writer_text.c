/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The text writer: labelled lines, tables and notes for a terminal. Columns are as wide as what is
 * in them; on a terminal that is too narrow those that may shrink are cut, the widest first. Every
 * text passes gm_text_clean() here, at the one door to the terminal.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/units.h"
#include "ctl/io/text.h"
#include "ctl/io/writer.h"

#define LABEL_COLUMNS  11
#define SHRUNK_COLUMNS 4 /* no column that shrinks gets narrower */

struct writer_text {
	struct gm_writer base;
	struct gm_writer_style style;
	FILE *stream;  /* into bytes */
	size_t blanks; /* due before the next cell of the row */
	char *bytes;
	size_t n_bytes;
};

static const char *writer_colour_of(const struct writer_text *writer, enum gm_mark mark)
{
	static const char *const colours[] = {
		[GM_MARK_NONE] = "",
		[GM_MARK_GOOD] = "\033[32m",
		[GM_MARK_WARN] = "\033[33m",
		[GM_MARK_BAD] = "\033[1;31m",
	};
	return writer->style.colour ? colours[mark] : "";
}

static const char *writer_plain(const struct writer_text *writer, enum gm_mark mark)
{
	return writer->style.colour && mark != GM_MARK_NONE ? "\033[0m" : "";
}

static void text_field(struct gm_writer *base, const char *key, const struct gm_value *value)
{
}

static void text_line(struct gm_writer *base, const char *label, const char *text)
{
	struct writer_text *writer = (struct writer_text *)base;
	char *clean = gm_text_clean(text, writer->style.ascii);

	if (!clean)
		base->error = -ENOMEM;
	else if (*label)
		fprintf(writer->stream, "%*s: %s\n", LABEL_COLUMNS, label, clean);
	else
		fprintf(writer->stream, "%s\n", clean);
	free(clean);
}

/* malloc'ed and cleaned. NULL: out of memory. */
static char *writer_show(const struct writer_text *writer, const struct gm_value *value)
{
	char text[GM_UNITS_TEXT];
	char *shown;

	switch (value->kind) {
	case GM_VALUE_TEXT:
		return gm_text_clean(value->text, writer->style.ascii);
	case GM_VALUE_SIZE:
		return strdup(gm_format_size(value->n, text));
	case GM_VALUE_COUNT:
		return asprintf(&shown, "%llu", (unsigned long long)value->n) < 0 ? NULL : shown;
	case GM_VALUE_SIGNED:
		return asprintf(&shown, "%lld", (long long)value->n) < 0 ? NULL : shown;
	case GM_VALUE_TIME:
		/* In a table the larger unit is enough: "3min", not "3min 20s". */
		gm_format_duration(
			value->n > UINT64_MAX / 1000000 ? UINT64_MAX : value->n * 1000000, text);
		text[strcspn(text, " ")] = '\0';
		return strdup(text);
	case GM_VALUE_SHARE:
		return asprintf(&shown, "%.0f%%", (double)value->n / 1e4) < 0 ? NULL : shown;
	case GM_VALUE_BOOL:
		return strdup(value->n ? "yes" : "no");
	case GM_VALUE_NONE:
	case GM_VALUE_ROWS:
		break;
	}
	return strdup("-");
}

/* The columns that people see, and how wide they are. */
struct layout {
	size_t n;
	struct {
		size_t column;
		size_t width;
		bool shrinks;
	} * columns;
};

static bool writer_has_something(const struct gm_table *table, size_t column)
{
	for (size_t r = 0; r < table->n_rows; r++)
		if (table->rows[r].values[column].kind != GM_VALUE_NONE)
			return true;
	return false;
}

/* malloc'ed: the cell's text. A row that goes on with the one before repeats nothing, not even "-".
 */
static char *writer_show_cell(
	const struct writer_text *writer, const struct gm_row *row, size_t column)
{
	const struct gm_value *value = &row->values[column];

	if (row->more && value->kind == GM_VALUE_NONE)
		return strdup("");
	return writer_show(writer, value);
}

/* Every cell is made twice, here and when it is written, and none is kept: tables can be long. */
static int writer_layout_init(
	struct layout *layout, const struct writer_text *writer, const struct gm_table *table)
{
	*layout = (struct layout){0};
	layout->columns = calloc(table->n_columns, sizeof(*layout->columns));
	if (!layout->columns)
		return -ENOMEM;
	for (size_t c = 0; c < table->n_columns; c++) {
		const struct gm_column *column = &table->columns[c];
		if (!column->title ||
			((column->flags & GM_COLUMN_OPTIONAL) && !writer_has_something(table, c)))
			continue;
		size_t width = writer->style.legend ? strlen(column->title) : 1;
		for (size_t r = 0; r < table->n_rows; r++) {
			char *cell = writer_show_cell(writer, &table->rows[r], c);
			if (!cell)
				return -ENOMEM;
			size_t w = gm_text_width(cell);
			width = w > width ? w : width;
			free(cell);
		}
		layout->columns[layout->n].column = c;
		layout->columns[layout->n].width = width;
		layout->columns[layout->n].shrinks = column->flags & GM_COLUMN_SHRINK;
		layout->n++;
	}
	return 0;
}

static void writer_layout_shrink(struct layout *layout, size_t columns)
{
	for (;;) {
		size_t sum = layout->n - 1, widest = layout->n;
		for (size_t i = 0; i < layout->n; i++) {
			sum += layout->columns[i].width;
			if (layout->columns[i].shrinks &&
				layout->columns[i].width > SHRUNK_COLUMNS &&
				(widest == layout->n ||
					layout->columns[i].width > layout->columns[widest].width))
				widest = i;
		}
		if (sum <= columns || widest == layout->n)
			return;
		layout->columns[widest].width--;
	}
}

static int writer_put_cell(struct writer_text *writer, const struct layout *layout, size_t i,
	const char *text, bool right, enum gm_mark mark)
{
	size_t room = layout->columns[i].width;
	char *fit = gm_text_fit(text, room, writer->style.ascii);
	if (!fit)
		return -ENOMEM;
	size_t pad = room - gm_text_width(fit);

	/* Blanks are written when something follows them: no line ends in any. */
	writer->blanks += right ? pad : 0;
	if (*fit) {
		fprintf(writer->stream, "%*s%s%s%s", (int)writer->blanks, "",
			writer_colour_of(writer, mark), fit, writer_plain(writer, mark));
		writer->blanks = 0;
	}
	writer->blanks += right ? 1 : pad + 1;
	if (i + 1 == layout->n) {
		fputc('\n', writer->stream);
		writer->blanks = 0;
	}
	free(fit);
	return 0;
}

static int writer_put_row(struct writer_text *writer, const struct layout *layout,
	const struct gm_table *table, const struct gm_row *row)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < layout->n; i++) {
		size_t c = layout->columns[i].column;
		char *cell =
			row ? writer_show_cell(writer, row, c) : strdup(table->columns[c].title);
		r = cell ? writer_put_cell(writer, layout, i, cell,
				   table->columns[c].flags & GM_COLUMN_RIGHT,
				   row ? row->values[c].mark : GM_MARK_NONE)
			 : -ENOMEM;
		free(cell);
	}
	return r;
}

static void text_table(struct gm_writer *base, const char *key, const struct gm_table *table)
{
	struct writer_text *writer = (struct writer_text *)base;
	struct layout layout;
	int r = writer_layout_init(&layout, writer, table);

	if (r == 0 && layout.n) {
		if (writer->style.columns)
			writer_layout_shrink(&layout, writer->style.columns);
		if (writer->style.legend)
			r = writer_put_row(writer, &layout, table, NULL);
		for (size_t i = 0; r == 0 && i < table->n_rows; i++)
			r = writer_put_row(writer, &layout, table, &table->rows[i]);
	}
	free(layout.columns);
	if (r < 0)
		base->error = r;
}

static void text_group(struct gm_writer *base, const char *key)
{
}

static void text_data(struct gm_writer *base, const char *key, const struct gm_table *table)
{
}

static void text_notes(struct gm_writer *base)
{
}

static void text_note(struct gm_writer *base, const char *kind, enum gm_mark mark, const char *text)
{
	struct writer_text *writer = (struct writer_text *)base;
	char *clean = gm_text_clean(text, writer->style.ascii);

	if (!clean)
		base->error = -ENOMEM;
	else
		fprintf(writer->stream, "%s! %s%s\n", writer_colour_of(writer, mark), clean,
			writer_plain(writer, mark));
	free(clean);
}

static int text_finish(struct gm_writer *base, FILE *out)
{
	struct writer_text *writer = (struct writer_text *)base;

	if (fflush(writer->stream) || ferror(writer->stream))
		return -ENOMEM;
	if (fwrite(writer->bytes, 1, writer->n_bytes, out) != writer->n_bytes)
		return errno ? -errno : -EIO;
	return 0;
}

static void text_free(struct gm_writer *base)
{
	struct writer_text *writer = (struct writer_text *)base;
	fclose(writer->stream);
	free(writer->bytes);
	free(writer);
}

struct gm_writer *gm_writer_text_new(const struct gm_writer_style *style)
{
	static const struct gm_writer_ops ops = {
		.field = text_field,
		.group = text_group,
		.line = text_line,
		.table = text_table,
		.data = text_data,
		.notes = text_notes,
		.note = text_note,
		.finish = text_finish,
		.free = text_free,
	};
	struct writer_text *writer = calloc(1, sizeof(*writer));
	if (!writer)
		return NULL;
	writer->base.ops = &ops;
	writer->style = *style;
	writer->stream = open_memstream(&writer->bytes, &writer->n_bytes);
	if (!writer->stream) {
		free(writer);
		return NULL;
	}
	return &writer->base;
}
