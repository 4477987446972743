/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_IO_WRITER_H
#define GM_CTL_IO_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/text/units.h"
#include "ctl/io/table.h"

/*
 * The folder ctl/io asks the daemon one question at a time (ctl_conn.h) and shows the answers to
 * people as text and to programs as JSON or CSV (this header), so that no text from elsewhere can command
 * the terminal. It must never know which verb is asking, nor what the command line said.
 *
 * A verb says everything once. Fields are for programs, lines are for people, tables and notes are
 * for both. Nothing is written before gm_writer_finish(), so a verb that fails half-way leaves
 * stdout empty.
 */

struct gm_writer;

/* What one kind of writer does. NULL: this writer ignores the call. */
struct gm_writer_ops {
	void (*field)(struct gm_writer *writer, const char *key, const struct gm_value *value);
	void (*group)(struct gm_writer *writer, const char *key);
	void (*line)(struct gm_writer *writer, const char *label, const char *text);
	void (*table)(struct gm_writer *writer, const char *key, const struct gm_table *table);
	void (*data)(struct gm_writer *writer, const char *key, const struct gm_table *table);
	void (*notes)(struct gm_writer *writer);
	void (*note)(
		struct gm_writer *writer, const char *kind, enum gm_mark mark, const char *text);
	int (*finish)(struct gm_writer *writer, FILE *out);
	void (*free)(struct gm_writer *writer);
};

struct gm_writer {
	const struct gm_writer_ops *ops;
	int error;        /* a negative errno that gm_writer_finish() returns; 0 if all went well */
	bool plain_bytes; /* people want 1536 rather than 1.5K */
	bool has_bytes;   /* such a number is shown, and a line must name the unit */
};

struct gm_writer_style {
	bool colour;
	bool ascii;       /* the terminal can show nothing else */
	bool legend;      /* show the headings of tables */
	bool plain_bytes; /* show sizes as numbers of bytes */
	size_t columns;   /* how wide tables may be; 0: as wide as needed */
};

/* Return NULL if out of memory. */
struct gm_writer *gm_writer_text_new(const struct gm_writer_style *style);
struct gm_writer *gm_writer_json_new(void);
/* Writes its object on one line, for an answer of many objects that each have their own writer. */
struct gm_writer *gm_writer_json_line_new(void);
/*
 * Writes tables as RFC 4180 says, with lines that end in LF. The columns have the keys of JSON, and
 * sizes and times are plain numbers, as there. A value that is not known is empty. An empty line
 * separates two tables. Fields are written only if there is no table: then they are one row. Notes
 * go to stderr.
 */
struct gm_writer *gm_writer_csv_new(bool header);
void gm_writer_free(struct gm_writer *writer);

/* For programs: one field of the object. No text (NULL or "") and UINT64_MAX become null. */
void gm_writer_text(struct gm_writer *writer, const char *key, const char *text);
void gm_writer_size(struct gm_writer *writer, const char *key, uint64_t bytes);
void gm_writer_count(struct gm_writer *writer, const char *key, uint64_t n);
void gm_writer_time(struct gm_writer *writer, const char *key, uint64_t ms);
void gm_writer_signed(struct gm_writer *writer, const char *key, int64_t n);
void gm_writer_share(struct gm_writer *writer, const char *key, uint64_t millionths);
void gm_writer_bool(struct gm_writer *writer, const char *key, bool yes);
/* The fields that follow belong to an object under this key; NULL: to the outermost one again. */
void gm_writer_group(struct gm_writer *writer, const char *key);

/* The escape sequence that begins the colour of a mark ("" for none), and the one that ends it. */
const char *gm_mark_colour(enum gm_mark mark);
#define GM_COLOUR_END "\033[0m"

/* Formats a size for a line, as this writer shows sizes in tables. Returns text. If that is a number of bytes, the last line
 * of the output names the unit. */
const char *gm_writer_bytes(struct gm_writer *writer, uint64_t bytes, char text[GM_UNITS_TEXT]);

/* For people: a line, with a label before it unless label is "". */
void gm_writer_line(struct gm_writer *writer, const char *label, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void gm_writer_blank_line(struct gm_writer *writer);

/* These take ownership of the table. NULL counts as out of memory. */
void gm_writer_table(struct gm_writer *writer, const char *key, struct gm_table *table);
/* If the table has no rows, people read this sentence instead. */
void gm_writer_table_or(
	struct gm_writer *writer, const char *key, struct gm_table *table, const char *none);
/* For programs only. */
void gm_writer_data(struct gm_writer *writer, const char *key, struct gm_table *table);

/* Call it once if notes may follow: programs then get a list "warnings", even if it is empty. */
void gm_writer_notes(struct gm_writer *writer);
/* Something unusual, for both. kind is a word for programs that never changes. */
void gm_writer_note(struct gm_writer *writer, const char *kind, enum gm_mark mark,
	const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Writes everything. Returns 0, -ENOMEM, or why writing failed (-EPIPE, -ENOSPC, …). */
int gm_writer_finish(struct gm_writer *writer, FILE *out);

#endif
