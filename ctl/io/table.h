/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_TABLE_H
#define GM_CTL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Rows of values, for a writer to show. A value knows what it is (a size, a time, …), not how it is
 * shown: people read 48.0G, programs 51539607552.
 */

enum gm_value_kind {
	GM_VALUE_NONE, /* not known, or not for the asker: "-", null */
	GM_VALUE_TEXT,
	GM_VALUE_SIZE, /* bytes */
	GM_VALUE_COUNT,
	GM_VALUE_SIGNED, /* n is an int64_t */
	GM_VALUE_TIME,   /* milliseconds */
	GM_VALUE_SHARE,  /* millionths: 38%, 0.38 */
	GM_VALUE_BOOL,
	GM_VALUE_ROWS, /* a table within a row, for programs only */
};

/* Attention a value or a note deserves. */
enum gm_mark { GM_MARK_NONE, GM_MARK_GOOD, GM_MARK_WARN, GM_MARK_BAD };

struct gm_table;

struct gm_value {
	enum gm_value_kind kind;
	enum gm_mark mark;
	union { /* by kind: there may be a million of them */
		uint64_t n;
		char *text; /* owned, not cleaned */
		struct gm_table *rows;
	};
};
void gm_value_deinit(struct gm_value *value);

enum gm_column_flags {
	GM_COLUMN_RIGHT = 1,
	GM_COLUMN_SHRINK = 2,   /* gives way when the terminal is narrow */
	GM_COLUMN_OPTIONAL = 4, /* not shown to people when no row has anything in it */
};

struct gm_column {
	const char *key;   /* for programs; NULL: not for them */
	const char *title; /* for people; NULL: not for them */
	unsigned flags;
};

struct gm_row {
	struct gm_value *values;
	bool more; /* for people only: goes on with what the row before is about */
};

struct gm_table {
	const struct gm_column *columns;
	size_t n_columns;
	struct gm_row *rows;
	size_t n_rows, room;
	size_t filled;  /* values given to the last row so far */
	bool no_memory; /* something could not be kept: whoever shows the table fails */
};

/* columns: static. NULL: out of memory. */
struct gm_table *gm_table_new(const struct gm_column *columns, size_t n_columns);
void gm_table_free(struct gm_table *table);

/*
 * A row is begun, then given its values in the order of the columns. None of these fails: what
 * memory lacks for is noted in the table, and no_memory stops it from being shown. So does a table
 * of NULL, to which they do nothing.
 */
void gm_table_row(struct gm_table *table);
void gm_table_more(struct gm_table *table);
void gm_table_none(struct gm_table *table);
void gm_table_text(struct gm_table *table, const char *text); /* NULL or "": none */
void gm_table_size(struct gm_table *table, uint64_t bytes);
void gm_table_count(struct gm_table *table, uint64_t n);
void gm_table_signed(struct gm_table *table, int64_t n);
void gm_table_time(struct gm_table *table, uint64_t ms);
void gm_table_share(struct gm_table *table, uint64_t millionths);
void gm_table_bool(struct gm_table *table, bool yes);
void gm_table_rows(struct gm_table *table, struct gm_table *rows); /* takes rows; NULL: no memory */
/* Of the value given last. */
void gm_table_mark(struct gm_table *table, enum gm_mark mark);

#endif
