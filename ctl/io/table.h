/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_IO_TABLE_H
#define GM_CTL_IO_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Rows of values for a writer to show. A value knows what it is (a size, a time, …), but not how it
 * is shown: people read 48.0G, programs read 51539607552.
 */

enum gm_value_kind {
	GM_VALUE_NONE, /* not known, or not for the asker to see: "-", null */
	GM_VALUE_TEXT,
	GM_VALUE_SIZE, /* bytes */
	GM_VALUE_COUNT,
	GM_VALUE_SIGNED, /* n is an int64_t */
	GM_VALUE_TIME,   /* milliseconds that have passed: 3min */
	GM_VALUE_LEFT,   /* milliseconds that are left: 3min 20s */
	GM_VALUE_SHARE,  /* millionths: 38%, 0.38 */
	GM_VALUE_FACTOR, /* millionths: 1.5 */
	GM_VALUE_BOOL,
	GM_VALUE_ROWS,      /* a table within a row, for programs only */
	GM_VALUE_SAME_ROWS, /* the same, and several rows have it: it belongs to somebody else */
};

/* How much attention a value or a note deserves. */
enum gm_mark { GM_MARK_NONE, GM_MARK_GOOD, GM_MARK_WARN, GM_MARK_BAD };

struct gm_table;

struct gm_value {
	enum gm_value_kind kind;
	enum gm_mark mark;
	union { /* by kind; a union because there may be a million values */
		uint64_t n;
		char *text; /* owned, not cleaned */
		struct gm_table *rows;
		const struct gm_table *same_rows;
	};
};

enum gm_column_flags {
	GM_COLUMN_RIGHT = 1,
	GM_COLUMN_SHRINK = 2,   /* becomes narrower if the terminal is too narrow */
	GM_COLUMN_OPTIONAL = 4, /* hidden from people if no row has a value in it */
	GM_COLUMN_NESTED = 8,   /* a table within a row: in JSON only */
	GM_COLUMN_FLAT = 16,    /* not in JSON, where a nested table has the same */
	GM_COLUMN_NAME = 32,    /* is cut in the middle, after texts that shrink */
	GM_COLUMN_SPARE = 64,   /* left out if there is no room */
	GM_COLUMN_PATH = 128,   /* texts that end with a path, which is cut at its front */
	GM_COLUMN_LAST = 256,   /* left out after the other columns that can be spared */
	/* A user or another owner: as a name, but other columns are left out before it is cut. With GM_COLUMN_NAME: the name
	 * of the row, for which other columns are left out. */
	GM_COLUMN_OWNER = 512,
};

struct gm_column {
	const char *key;   /* for programs; NULL: programs do not get this column */
	const char *title; /* for people; NULL: people get this column only if they ask for it */
	unsigned flags;
};

enum gm_row_kind {
	GM_ROW_WHOLE,
	GM_ROW_FOLDED, /* continues the row before it; for people only */
	GM_ROW_FLAT,   /* not in JSON, where a row before it has the same in a nested table */
};

struct gm_row {
	struct gm_value *values;
	enum gm_row_kind kind;
	size_t added; /* how many rows were added before it */
};

struct gm_view;

struct gm_table {
	const struct gm_column *columns;
	size_t n_columns;
	struct gm_row *rows;
	size_t n_rows, room;
	size_t filled;  /* how many values the last row has so far */
	bool no_memory; /* something could not be stored, so the table must not be shown */
	const struct gm_view *view; /* view.h; NULL: all columns */
};

/* Does not copy the columns, which must outlive the table. Returns NULL if out of memory. */
struct gm_table *gm_table_new(const struct gm_column *columns, size_t n_columns);
#define GM_TABLE_NEW(columns) gm_table_new(columns, sizeof(columns) / sizeof(*(columns)))
void gm_table_free(struct gm_table *table);
/* Returns whether there is nothing to show. A table for which memory ran out is not empty. */
bool gm_table_is_empty(const struct gm_table *table);

/*
 * Begin a row, then add its values in the order of the columns. None of these functions fails: if
 * memory runs out, the table remembers it in no_memory, and a writer reports it instead of showing
 * the table. With a table of NULL they do nothing, and a writer treats NULL the same way.
 */
void gm_table_row(struct gm_table *table);
void gm_table_more(struct gm_table *table); /* GM_ROW_FOLDED */
void gm_table_flat(struct gm_table *table); /* GM_ROW_FLAT */
/* The next value goes into this column, also if the column has one. A column without a value has none. */
void gm_table_at(struct gm_table *table, size_t column);
void gm_table_none(struct gm_table *table);
void gm_table_nones(struct gm_table *table, size_t n);
void gm_table_text(struct gm_table *table, const char *text); /* NULL or "": none */
void gm_table_size(struct gm_table *table, uint64_t bytes);
void gm_table_count(struct gm_table *table, uint64_t n);
/* The same, for a count that only grows. */
#define gm_table_total(table, n) gm_table_count(table, n)
void gm_table_signed(struct gm_table *table, int64_t n);
void gm_table_time(struct gm_table *table, uint64_t ms);
void gm_table_left(struct gm_table *table, uint64_t ms);
void gm_table_share(struct gm_table *table, uint64_t millionths);
void gm_table_factor(struct gm_table *table, uint64_t millionths);
void gm_table_bool(struct gm_table *table, bool yes);
/* Takes ownership of rows. NULL counts as out of memory. */
void gm_table_rows(struct gm_table *table, struct gm_table *rows);
/* The rows must outlive the table, and the writer that shows it. NULL counts as out of memory. */
void gm_table_same_rows(struct gm_table *table, const struct gm_table *rows);

/* These change the value that was added last. */
void gm_table_mark(struct gm_table *table, enum gm_mark mark);
void gm_table_known(struct gm_table *table, bool known); /* false: makes it none */

#endif
