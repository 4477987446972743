/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The text writer: labelled lines, tables and notes for a terminal. Each column is as wide as its
 * widest cell. If the terminal is too narrow, columns that can be spared are left out until users, owners and names have
 * room: columns that are empty first, then the others from the end. A line below the table names them. Then the columns
 * that may shrink do, the widest one first; names after other texts, and owners after names. If two names or owners would
 * read the same, further columns are left out. A name is cut in the middle, because the end tells it from others. Another
 * line below the table says which columns have cells that are cut, and whether different ones read the same. No heading is cut.
 * If the table is still too wide, each row becomes a list, with a line for each of its cells.
 * Every text goes through gm_text_clean() here, just before it is written.
 */

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/arith.h"
#include "common/text/text.h"
#include "ctl/io/view.h"
#include "ctl/io/writer.h"

#define LABEL_COLUMNS  11
#define SHRUNK_COLUMNS 4 /* columns shrink no further than this */
/* A text is only cut to less if there is no other way. A text that is longer than LONG_TEXT_COLUMNS is
 * cut to that before a name is cut. */
#define TEXT_COLUMNS      8
#define LONG_TEXT_COLUMNS 16
/* Minimum width of the name of a row, for which other columns are left out, and width to which a longer name is cut
 * before shorter texts are. */
#define NAME_COLUMNS      24
#define LONG_NAME_COLUMNS 32
/* Width to which a name is cut before an owner is. */
#define SHORT_NAME_COLUMNS 12
/* The same for an owner: "uid:" and the longest name of a user. */
#define OWNER_COLUMNS 36
/* Rows become lists on terminals of at least the first and less than the second width, without leaving out a column. On
 * a narrower one, a list is no better. */
#define LISTS_FROM  20
#define LISTS_BELOW 80

struct writer_text {
	struct gm_writer base;
	struct gm_writer_style style;
	FILE *stream;  /* writes into bytes */
	size_t blanks; /* to be written before the next cell of the row */
	char *bytes;
	size_t n_bytes;
};

const char *gm_mark_colour(enum gm_mark mark)
{
	static const char *const colours[] = {
		[GM_MARK_NONE] = "",
		[GM_MARK_GOOD] = "\033[32m",
		[GM_MARK_WARN] = "\033[33m",
		[GM_MARK_BAD] = "\033[1;31m",
	};

	return colours[mark];
}

static const char *text_colour(const struct writer_text *writer, enum gm_mark mark)
{
	return writer->style.colour ? gm_mark_colour(mark) : "";
}

static const char *text_colour_end(const struct writer_text *writer, enum gm_mark mark)
{
	return writer->style.colour && mark != GM_MARK_NONE ? GM_COLOUR_END : "";
}

static void text_line(struct gm_writer *base, const char *label, const char *text)
{
	struct writer_text *writer = (struct writer_text *)base;
	char *clean = gm_text_clean(text, writer->style.ascii);

	if (!clean) {
		base->error = -ENOMEM;
		return;
	}
	size_t blanks = strspn(clean, " ");
	fprintf(writer->stream, "%*s%s%.*s", *label ? LABEL_COLUMNS : 0, label, *label ? ": " : "",
		(int)blanks, clean);
	gm_text_put(writer->stream, clean + blanks, writer->style.columns,
		*label   ? LABEL_COLUMNS + 2
		: blanks ? blanks + 2
			 : 0);
	fputc('\n', writer->stream);
	free(clean);
}

/* Returns a malloc'ed text with at most two decimals, or NULL if out of memory. */
static char *text_factor(uint64_t millionths)
{
	unsigned hundredths = (unsigned)(millionths / 10000 % 100);
	unsigned long long whole = millionths / 1000000;
	char *shown;
	int n = hundredths % 10 ? asprintf(&shown, "%llu.%02u", whole, hundredths)
				: asprintf(&shown, "%llu.%u", whole, hundredths / 10);

	return n < 0 ? NULL : shown;
}

/* Returns a malloc'ed, cleaned text, or NULL if out of memory. */
static char *text_value(struct writer_text *writer, const struct gm_value *value)
{
	char text[GM_UNITS_TEXT];
	char *shown;

	switch (value->kind) {
	case GM_VALUE_TEXT:
		return gm_text_clean(value->text, writer->style.ascii);
	case GM_VALUE_SIZE:
		return strdup(gm_writer_bytes(&writer->base, value->n, text));
	case GM_VALUE_COUNT:
		return asprintf(&shown, "%llu", (unsigned long long)value->n) < 0 ? NULL : shown;
	case GM_VALUE_SIGNED:
		return asprintf(&shown, "%lld", (long long)value->n) < 0 ? NULL : shown;
	case GM_VALUE_TIME:
		/* In a table, the larger unit is enough: "3min", not "3min 20s". Seconds
		 * are rounded, so that little less than 3s does not read 2s. */
		gm_text_duration(value->n < 1000 || value->n >= 60000
					 ? value->n
					 : (value->n + 500) / 1000 * 1000,
			text);
		text[strcspn(text, " ")] = '\0';
		return strdup(text);
	case GM_VALUE_LEFT:
		/* Twice as much may be left as the larger unit says. */
		return strdup(gm_text_duration(
			value->n < 1000 ? value->n : value->n / 1000 * 1000, text));
	case GM_VALUE_SHARE:
		return strdup(gm_format_percent(value->n, text));
	case GM_VALUE_FACTOR:
		return text_factor(value->n);
	case GM_VALUE_BOOL:
		return strdup(value->n ? "yes" : "no");
	case GM_VALUE_NONE:
	case GM_VALUE_ROWS:
	case GM_VALUE_SAME_ROWS:
		break;
	}
	return strdup("-");
}

/* Columns that tell one row from another. */
#define TEXT_IDENTIFIES (GM_COLUMN_NAME | GM_COLUMN_OWNER)

struct text_column {
	size_t column;
	size_t width;
	size_t natural; /* how wide it is if nothing is cut */
	size_t label;   /* how wide its heading is */
	size_t least;   /* minimum width: the heading, where headings are shown */
	unsigned flags;
	bool empty; /* no row has a value other than 0 */
	bool cut;   /* a cell was cut */
};

/* The columns that are shown, and how wide they are. Those that are left out follow them, the one that was left out
 * first at the end. */
struct text_layout {
	size_t n, n_all;
	struct text_column *columns;
};

static bool text_column_has_values(const struct gm_table *table, size_t column)
{
	for (size_t r = 0; r < table->n_rows; r++)
		if (table->rows[r].values[column].kind != GM_VALUE_NONE)
			return true;
	return false;
}

/* Returns whether no row has a number other than 0, a text or another value in the column. */
static bool text_column_is_empty(const struct gm_table *table, size_t column)
{
	for (size_t r = 0; r < table->n_rows; r++) {
		const struct gm_value *value = &table->rows[r].values[column];
		bool number = value->kind == GM_VALUE_SIZE || value->kind == GM_VALUE_COUNT;

		if (value->kind != GM_VALUE_NONE && !(number && value->n == 0))
			return false;
	}
	return true;
}

/* As text_value(), but a row that continues the one before it has empty cells instead of "-". */
static char *text_cell(struct writer_text *writer, const struct gm_row *row, size_t column)
{
	const struct gm_value *value = &row->values[column];

	if (row->kind == GM_ROW_FOLDED && value->kind == GM_VALUE_NONE)
		return strdup("");
	return text_value(writer, value);
}

/* Returns the malloc'ed heading of a column, or NULL if out of memory. */
static char *text_title(const struct gm_column *column)
{
	char *title = strdup(column->title ? column->title : gm_view_name(column));

	for (char *t = title; t && !column->title && *t; t++)
		*t = *t == '_' ? ' ' : (char)toupper((unsigned char)*t);
	return title;
}

/* People see the columns that they ask for. Otherwise they see those that have a title. */
static bool text_column_shown(const struct gm_table *table, size_t column)
{
	unsigned flags = table->columns[column].flags;

	if (gm_view_chooses(table->view))
		return true;
	if (!table->columns[column].title)
		return false;
	return !(flags & GM_COLUMN_OPTIONAL) || text_column_has_values(table, column);
}

/* Formats every cell to measure it, and keeps none of them, because tables can be long. */
static int text_layout_init(
	struct text_layout *layout, struct writer_text *writer, const struct gm_table *table)
{
	*layout = (struct text_layout){0};
	layout->columns = calloc(table->n_columns, sizeof(*layout->columns));
	if (!layout->columns)
		return -ENOMEM;

	for (size_t i = 0; i < gm_view_width(table); i++) {
		size_t c = gm_view_column(table, i);
		const struct gm_column *column = &table->columns[c];
		if (!text_column_shown(table, c))
			continue;

		char *title = text_title(column);
		if (!title)
			return -ENOMEM;
		size_t label = strlen(title), width = writer->style.legend ? label : 1;
		free(title);
		for (size_t r = 0; r < table->n_rows; r++) {
			char *cell = text_cell(writer, &table->rows[r], c);
			if (!cell)
				return -ENOMEM;
			size_t w = gm_text_width(cell);
			width = w > width ? w : width;
			free(cell);
		}

		layout->columns[layout->n].column = c;
		layout->columns[layout->n].width = width;
		layout->columns[layout->n].natural = width;
		layout->columns[layout->n].label = label;
		layout->columns[layout->n].least = writer->style.legend ? label : 1;
		layout->columns[layout->n].flags = column->flags;
		layout->columns[layout->n].empty = text_column_is_empty(table, c);
		layout->n++;
	}
	layout->n_all = layout->n;
	return 0;
}

/* How wide the table is if what may shrink is as narrow as it still reads well. */
static size_t text_layout_least(const struct text_layout *layout)
{
	size_t sum = layout->n - 1;

	for (size_t i = 0; i < layout->n; i++) {
		const struct text_column *column = &layout->columns[i];
		bool owner = column->flags & GM_COLUMN_OWNER, name = column->flags & GM_COLUMN_NAME;
		size_t least = owner && name                      ? NAME_COLUMNS
			       : owner                            ? OWNER_COLUMNS
			       : name                             ? LONG_TEXT_COLUMNS
			       : column->flags & GM_COLUMN_SHRINK ? TEXT_COLUMNS
								  : column->width;

		sum += gm_u64_min(column->width, gm_u64_max(least, column->least));
	}
	return sum;
}

/* Leaves out one column: with empty, the last one without a value, and otherwise the last one of a rank (0, or
 * GM_COLUMN_LAST). Returns false if there is none. */
static bool text_layout_spare_some(struct text_layout *layout, bool empty, unsigned rank)
{
	for (size_t at = layout->n; at-- > 0;) {
		struct text_column spare = layout->columns[at];

		if (!(spare.flags & GM_COLUMN_SPARE) ||
			(empty ? !spare.empty : (spare.flags & GM_COLUMN_LAST) != rank))
			continue;
		layout->n--;
		memmove(&layout->columns[at], &layout->columns[at + 1],
			(layout->n - at) * sizeof(spare));
		layout->columns[layout->n] = spare;
		return true;
	}
	return false;
}

/* Leaves out the least important column. Returns false if no column can be spared. */
static bool text_layout_spare(struct text_layout *layout)
{
	return text_layout_spare_some(layout, true, 0) ||
	       text_layout_spare_some(layout, false, 0) ||
	       text_layout_spare_some(layout, false, GM_COLUMN_LAST);
}

/* Makes the columns with this flag narrower, the widest one first, but none narrower than least or than its
 * heading. Returns whether the table fits now. */
static bool text_layout_narrow(
	struct text_layout *layout, size_t columns, unsigned flag, size_t least)
{
	for (;;) {
		size_t sum = layout->n - 1, widest = layout->n;

		for (size_t i = 0; i < layout->n; i++) {
			const struct text_column *column = &layout->columns[i];

			sum += column->width;
			if (column->flags & flag &&
				column->width > gm_u64_max(least, column->least) &&
				(widest == layout->n ||
					column->width > layout->columns[widest].width))
				widest = i;
		}

		if (sum <= columns || widest == layout->n)
			return sum <= columns;
		layout->columns[widest].width--;
	}
}

/* Returns whether the table fits now. */
static bool text_layout_shrink(struct text_layout *layout, size_t columns)
{
	for (size_t i = 0; i < layout->n; i++)
		layout->columns[i].width = layout->columns[i].natural;
	return text_layout_narrow(layout, columns, GM_COLUMN_SHRINK, LONG_TEXT_COLUMNS) ||
	       text_layout_narrow(layout, columns, GM_COLUMN_NAME, LONG_NAME_COLUMNS) ||
	       text_layout_narrow(layout, columns, GM_COLUMN_SHRINK, TEXT_COLUMNS) ||
	       text_layout_narrow(layout, columns, GM_COLUMN_NAME, NAME_COLUMNS) ||
	       text_layout_narrow(layout, columns, GM_COLUMN_OWNER, OWNER_COLUMNS) ||
	       text_layout_narrow(layout, columns, GM_COLUMN_NAME, LONG_TEXT_COLUMNS) ||
	       text_layout_narrow(layout, columns, GM_COLUMN_NAME, SHORT_NAME_COLUMNS) ||
	       text_layout_narrow(layout, columns, GM_COLUMN_OWNER, LONG_TEXT_COLUMNS) ||
	       text_layout_narrow(layout, columns, GM_COLUMN_NAME, TEXT_COLUMNS) ||
	       text_layout_narrow(layout, columns, GM_COLUMN_SHRINK, SHRUNK_COLUMNS) ||
	       text_layout_narrow(layout, columns, GM_COLUMN_OWNER, TEXT_COLUMNS) ||
	       text_layout_narrow(
		       layout, columns, GM_COLUMN_NAME | GM_COLUMN_OWNER, SHRUNK_COLUMNS);
}

/* Returns a malloc'ed copy of a cell that is at most so wide, or NULL if out of memory. */
static char *text_fit(const struct writer_text *writer, const struct text_column *column,
	const char *cell, size_t width)
{
	bool ascii = writer->style.ascii;

	return column->flags & GM_COLUMN_PATH    ? gm_text_fit_path(cell, width, ascii)
	       : column->flags & TEXT_IDENTIFIES ? gm_text_fit_name(cell, width, ascii)
						 : gm_text_fit(cell, width, ascii);
}

/* ---- names that are cut */

/* The hashes of a cell as it is shown, and of the whole of it. */
struct text_hash {
	uint64_t fit, whole;
};

static uint64_t text_hash_of(const char *text)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
	return hash;
}

static int text_hash_compare(const void *a, const void *b)
{
	const struct text_hash *x = a, *y = b;

	if (x->fit != y->fit)
		return x->fit < y->fit ? -1 : 1;
	return x->whole < y->whole ? -1 : x->whole > y->whole;
}

/* Returns whether two different cells of a column would read the same, or -ENOMEM. */
static int text_column_is_ambiguous(
	struct writer_text *writer, const struct text_column *column, const struct gm_table *table)
{
	struct text_hash *hashes = calloc(table->n_rows + 1, sizeof(*hashes));
	int r = hashes ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < table->n_rows; i++) {
		char *cell = text_cell(writer, &table->rows[i], column->column);
		char *fit = cell ? text_fit(writer, column, cell, column->width) : NULL;

		if (fit)
			hashes[i] = (struct text_hash){text_hash_of(fit), text_hash_of(cell)};
		else
			r = -ENOMEM;
		free(fit);
		free(cell);
	}
	if (r == 0)
		qsort(hashes, table->n_rows, sizeof(*hashes), text_hash_compare);
	for (size_t i = 1; r == 0 && i < table->n_rows; i++)
		r = hashes[i].fit == hashes[i - 1].fit && hashes[i].whole != hashes[i - 1].whole;
	free(hashes);
	return r;
}

/* Returns whether two different names or owners would read the same, or -ENOMEM. */
static int text_layout_is_ambiguous(
	struct writer_text *writer, const struct text_layout *layout, const struct gm_table *table)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < layout->n; i++) {
		const struct text_column *column = &layout->columns[i];

		if (column->flags & TEXT_IDENTIFIES && column->width < column->natural)
			r = text_column_is_ambiguous(writer, column, table);
	}
	return r;
}

/* Leaves out columns until no two names or owners read the same. If that does not help, leaves out none. Returns 0 or
 * -ENOMEM. */
static int text_layout_tell_apart(struct text_layout *layout, struct writer_text *writer,
	const struct gm_table *table, size_t columns)
{
	int r = text_layout_is_ambiguous(writer, layout, table);
	struct text_column *before = NULL;
	size_t bytes = layout->n_all * sizeof(*before), n = layout->n;

	if (r > 0) {
		before = malloc(bytes);
		if (!before)
			return -ENOMEM;
		memcpy(before, layout->columns, bytes);
	}
	while (r > 0 && text_layout_spare(layout)) {
		(void)text_layout_shrink(layout, columns);
		r = text_layout_is_ambiguous(writer, layout, table);
	}
	if (r > 0) {
		memcpy(layout->columns, before, bytes);
		layout->n = n;
	}
	free(before);
	return r < 0 ? r : 0;
}

/* Makes the table as wide as the terminal, if it can. Returns whether it fits now, or -ENOMEM. */
static int text_layout_fit(struct text_layout *layout, struct writer_text *writer,
	const struct gm_table *table, size_t columns)
{
	bool spares = columns >= LISTS_BELOW && !gm_view_chooses(table->view);

	while (spares && text_layout_least(layout) > columns && text_layout_spare(layout))
		;
	bool fits = text_layout_shrink(layout, columns);
	while (spares && !fits && text_layout_spare(layout))
		fits = text_layout_shrink(layout, columns);
	int r = spares && fits ? text_layout_tell_apart(layout, writer, table, columns) : 0;
	return r < 0 ? r : fits;
}

/* ---- writing tables */

static int text_put_cell(struct writer_text *writer, struct text_layout *layout, size_t i,
	const char *text, bool right, enum gm_mark mark)
{
	size_t room = layout->columns[i].width;
	char *fit = text_fit(writer, &layout->columns[i], text, room);

	if (!fit)
		return -ENOMEM;
	layout->columns[i].cut |= strcmp(fit, text) != 0;

	/* Blanks are only written when something follows them, so that no line ends with any. */
	size_t pad = room - gm_text_width(fit);
	writer->blanks += right ? pad : 0;
	if (*fit) {
		fprintf(writer->stream, "%*s%s%s%s", (int)writer->blanks, "",
			text_colour(writer, mark), fit, text_colour_end(writer, mark));
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

/* row: NULL for the headings. */
static int text_put_row(struct writer_text *writer, struct text_layout *layout,
	const struct gm_table *table, const struct gm_row *row)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < layout->n; i++) {
		size_t c = layout->columns[i].column;
		char *cell = row ? text_cell(writer, row, c) : text_title(&table->columns[c]);
		r = cell ? text_put_cell(writer, layout, i, cell,
				   table->columns[c].flags & GM_COLUMN_RIGHT,
				   row ? row->values[c].mark : GM_MARK_NONE)
			 : -ENOMEM;
		free(cell);
	}
	return r;
}

/* Writes a row as a list: the headings are the labels. */
static int text_put_list(struct writer_text *writer, struct text_layout *layout,
	const struct gm_table *table, const struct gm_row *row)
{
	size_t widest = 0;

	for (size_t i = 0; i < layout->n; i++)
		widest = layout->columns[i].label > widest ? layout->columns[i].label : widest;

	for (size_t i = 0; i < layout->n; i++) {
		size_t c = layout->columns[i].column, used = widest + 2;
		char *title = text_title(&table->columns[c]), *cell = text_cell(writer, row, c);
		char *fit =
			cell ? text_fit(writer, &layout->columns[i], cell,
				       writer->style.columns > used ? writer->style.columns - used
								    : SHRUNK_COLUMNS)
			     : NULL;
		enum gm_mark mark = row->values[c].mark;
		bool made = title && fit;

		layout->columns[i].cut |= made && strcmp(fit, cell) != 0;
		if (made && *fit)
			fprintf(writer->stream, "%*s: %s%s%s\n", (int)widest, title,
				text_colour(writer, mark), fit, text_colour_end(writer, mark));
		free(fit);
		free(cell);
		free(title);
		if (!made)
			return -ENOMEM;
	}
	return 0;
}

static int text_put_lists(
	struct writer_text *writer, struct text_layout *layout, const struct gm_table *table)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < table->n_rows; i++) {
		if (i && table->rows[i].kind != GM_ROW_FOLDED)
			fputc('\n', writer->stream);
		r = text_put_list(writer, layout, table, &table->rows[i]);
	}
	return r;
}

/* Writes a line below a table about some of its columns: those that are left out, or whose cells are cut. Writes
 * nothing if there are none. */
static void text_put_about(struct writer_text *writer, const struct text_layout *layout,
	const struct gm_table *table, bool left_out)
{
	size_t end = left_out ? layout->n_all : layout->n, used = 0;
	char line[512];

	for (size_t i = left_out ? layout->n : 0; i < end && used < sizeof(line); i++) {
		const struct text_column *column = &layout->columns[i];
		const struct gm_column *named = &table->columns[column->column];

		if (!left_out && !column->cut)
			continue;
		bool alike = !left_out && column->flags & TEXT_IDENTIFIES &&
			     text_column_is_ambiguous(writer, column, table) > 0;
		used += (size_t)snprintf(line + used, sizeof(line) - used, "%s%s%s",
			used       ? ", "
			: left_out ? "! not shown, too narrow: "
				   : "! cut, too narrow: ",
			named->title ? named->title : gm_view_name(named),
			alike ? " (different ones read the same)" : "");
	}
	if (!used)
		return;
	if (used < sizeof(line))
		snprintf(line + used, sizeof(line) - used, "; see %s",
			!table->view ? "--json"
			: left_out   ? "--columns"
				     : "--columns or --json");
	gm_text_put(writer->stream, line, writer->style.columns, 2);
	fputc('\n', writer->stream);
}

static void text_table(struct gm_writer *base, const char *key, const struct gm_table *table)
{
	struct writer_text *writer = (struct writer_text *)base;
	size_t columns = writer->style.columns;
	struct text_layout layout;

	int r = text_layout_init(&layout, writer, table);
	int fits = r == 0 && layout.n && columns ? text_layout_fit(&layout, writer, table, columns)
						 : 1;
	bool legend = writer->style.legend;
	r = fits < 0 ? fits : r;

	if (r == 0 && layout.n && !fits && columns >= LISTS_FROM && legend) {
		r = text_put_lists(writer, &layout, table);
	} else if (r == 0 && layout.n) {
		if (legend)
			r = text_put_row(writer, &layout, table, NULL);
		for (size_t i = 0; r == 0 && i < table->n_rows; i++)
			r = text_put_row(writer, &layout, table, &table->rows[i]);
	}
	if (r == 0 && legend) {
		text_put_about(writer, &layout, table, true);
		text_put_about(writer, &layout, table, false);
	}
	free(layout.columns);
	if (r < 0)
		base->error = r;
}

static void text_note(struct gm_writer *base, const char *kind, enum gm_mark mark, const char *text)
{
	struct writer_text *writer = (struct writer_text *)base;
	char *clean = gm_text_clean(text, writer->style.ascii);

	if (!clean) {
		base->error = -ENOMEM;
		return;
	}
	fprintf(writer->stream, "%s! ", text_colour(writer, mark));
	gm_text_put(writer->stream, clean, writer->style.columns, 2);
	fprintf(writer->stream, "%s\n", text_colour_end(writer, mark));
	free(clean);
}

static int text_finish(struct gm_writer *base, FILE *out)
{
	struct writer_text *writer = (struct writer_text *)base;

	if (base->has_bytes && writer->style.legend)
		fputs("Sizes are in bytes.\n", writer->stream);
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
		.line = text_line,
		.table = text_table,
		.note = text_note,
		.finish = text_finish,
		.free = text_free,
	};
	struct writer_text *writer = calloc(1, sizeof(*writer));

	if (!writer)
		return NULL;
	writer->base.ops = &ops;
	writer->base.plain_bytes = style->plain_bytes;
	writer->style = *style;

	writer->stream = open_memstream(&writer->bytes, &writer->n_bytes);
	if (!writer->stream) {
		free(writer);
		return NULL;
	}
	return &writer->base;
}
