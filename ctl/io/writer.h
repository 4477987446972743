/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_WRITER_H
#define GM_CTL_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "ctl/io/table.h"

/*
 * What a verb says, once, for two kinds of readers: people get text, programs JSON. Fields are for
 * programs, lines for people; tables and notes are for both. Nothing is written before
 * gm_writer_finish(), so that a verb that fails half-way leaves stdout empty.
 */

struct gm_writer;

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
	int error; /* the first thing that went wrong; finish returns it */
};

struct gm_writer_style {
	bool colour;
	bool ascii;     /* the terminal shows nothing else */
	bool legend;    /* headings, and words around the data */
	size_t columns; /* 0: as wide as it gets */
};

/* NULL: out of memory. */
struct gm_writer *gm_writer_text_new(const struct gm_writer_style *style);
struct gm_writer *gm_writer_json_new(void);
/* The same on one line, for an answer that is many objects, each of a writer of its own. */
struct gm_writer *gm_writer_json_line_new(void);
void gm_writer_free(struct gm_writer *writer);

/* For programs. key: "uptime_ms". A text of NULL is null. */
void gm_writer_text(struct gm_writer *writer, const char *key, const char *text);
void gm_writer_size(struct gm_writer *writer, const char *key, uint64_t bytes);
void gm_writer_count(struct gm_writer *writer, const char *key, uint64_t n);
void gm_writer_time(struct gm_writer *writer, const char *key, uint64_t ms);
void gm_writer_signed(struct gm_writer *writer, const char *key, int64_t n);
void gm_writer_share(struct gm_writer *writer, const char *key, uint64_t millionths);
void gm_writer_bool(struct gm_writer *writer, const char *key, bool yes);
/* The fields that follow are those of an object under this key; NULL: of the answer again. */
void gm_writer_group(struct gm_writer *writer, const char *key);

/* For people: a label ("" for none), and what there is to say. Both empty: an empty line. */
void gm_writer_line(struct gm_writer *writer, const char *label, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* For both. Takes the table; NULL counts as out of memory. */
void gm_writer_table(struct gm_writer *writer, const char *key, struct gm_table *table);
/* The same for programs alone: people get lines instead. */
void gm_writer_data(struct gm_writer *writer, const char *key, struct gm_table *table);

/* Notes may follow: programs get a list of them, "warnings", even if none does. Call it once. */
void gm_writer_notes(struct gm_writer *writer);
/* For both: something unusual. kind is a stable word for programs. */
void gm_writer_note(struct gm_writer *writer, const char *kind, enum gm_mark mark,
	const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Writes all of it. 0; -ENOMEM; the error of writing (-EPIPE, -ENOSPC, …). */
int gm_writer_finish(struct gm_writer *writer, FILE *out);

#endif
