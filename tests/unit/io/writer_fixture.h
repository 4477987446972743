/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_WRITER_FIXTURE_H
#define GM_TESTS_WRITER_FIXTURE_H

/* A table, and what a writer makes of it. For the tests of ctl/io/writer.h. */

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/text/text.h"
#include "ctl/io/view.h"
#include "ctl/io/writer.h"
#include "tests/tap.h"

#define N(array) (sizeof(array) / sizeof(*(array)))

static const struct gm_column columns[] = {
	{"name", "NAME", GM_COLUMN_SHRINK},
	{"bytes", "SIZE", GM_COLUMN_RIGHT},
	{"secret", NULL, 0},
	{NULL, "MOOD", 0},
	{"note", "NOTE", GM_COLUMN_OPTIONAL},
};

static inline void setup(void)
{
	bool utf8;
	gm_text_init(&utf8);
}

static inline void row(struct gm_table *table, const char *name, uint64_t bytes)
{
	gm_table_row(table);
	gm_table_text(table, name);
	gm_table_size(table, bytes);
	gm_table_count(table, 7);
	gm_table_text(table, "fine");
	gm_table_none(table);
}

/* malloc'ed: what the writer writes. */
static inline char *written(struct gm_writer *writer)
{
	char *bytes = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&bytes, &n);

	ck_assert_int_eq(gm_writer_finish(writer, out), 0);
	fclose(out);
	gm_writer_free(writer);
	return bytes;
}

static inline struct gm_writer *text_writer(size_t width, bool legend, bool colour)
{
	struct gm_writer_style style = {.columns = width, .legend = legend, .colour = colour};
	return gm_writer_text_new(&style);
}

static inline void is_text(struct gm_writer *writer, const char *expected)
{
	char *text = written(writer);
	ck_assert_str_eq(text, expected);
	free(text);
}

static inline json_t *json_of(struct gm_writer *writer)
{
	char *text = written(writer);
	json_t *json = json_loads(text, 0, NULL);
	ck_assert_ptr_nonnull(json);
	free(text);
	return json;
}

#endif
