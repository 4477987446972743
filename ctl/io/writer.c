/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The writer's front: turns what verbs say into values and hands them to the text or the JSON
 * writer. Keeps the first error, so that verbs need not look at each line they say.
 */

#include "ctl/io/writer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

void gm_writer_free(struct gm_writer *writer)
{
	if (writer)
		writer->ops->free(writer);
}

static void writer_field(
	struct gm_writer *writer, const char *key, enum gm_value_kind kind, uint64_t n)
{
	struct gm_value value = {.kind = kind, .n = n};
	writer->ops->field(writer, key, &value);
}

void gm_writer_text(struct gm_writer *writer, const char *key, const char *text)
{
	struct gm_value value = {
		.kind = text ? GM_VALUE_TEXT : GM_VALUE_NONE, .text = (char *)text};
	writer->ops->field(writer, key, &value);
}

void gm_writer_size(struct gm_writer *writer, const char *key, uint64_t bytes)
{
	writer_field(writer, key, GM_VALUE_SIZE, bytes);
}

void gm_writer_count(struct gm_writer *writer, const char *key, uint64_t n)
{
	writer_field(writer, key, GM_VALUE_COUNT, n);
}

void gm_writer_time(struct gm_writer *writer, const char *key, uint64_t ms)
{
	writer_field(writer, key, GM_VALUE_TIME, ms);
}

void gm_writer_signed(struct gm_writer *writer, const char *key, int64_t n)
{
	writer_field(writer, key, GM_VALUE_SIGNED, (uint64_t)n);
}

void gm_writer_share(struct gm_writer *writer, const char *key, uint64_t millionths)
{
	writer_field(writer, key, GM_VALUE_SHARE, millionths);
}

void gm_writer_bool(struct gm_writer *writer, const char *key, bool yes)
{
	writer_field(writer, key, GM_VALUE_BOOL, yes);
}

void gm_writer_group(struct gm_writer *writer, const char *key)
{
	writer->ops->group(writer, key);
}

void gm_writer_line(struct gm_writer *writer, const char *label, const char *format, ...)
{
	va_list list;
	char *text;

	va_start(list, format);
	if (vasprintf(&text, format, list) < 0)
		writer->error = -ENOMEM;
	else {
		writer->ops->line(writer, label, text);
		free(text);
	}
	va_end(list);
}

void gm_writer_table(struct gm_writer *writer, const char *key, struct gm_table *table)
{
	if (!table || table->no_memory)
		writer->error = -ENOMEM;
	else
		writer->ops->table(writer, key, table);
	gm_table_free(table);
}

void gm_writer_data(struct gm_writer *writer, const char *key, struct gm_table *table)
{
	if (!table || table->no_memory)
		writer->error = -ENOMEM;
	else
		writer->ops->data(writer, key, table);
	gm_table_free(table);
}

void gm_writer_notes(struct gm_writer *writer)
{
	writer->ops->notes(writer);
}

void gm_writer_note(
	struct gm_writer *writer, const char *kind, enum gm_mark mark, const char *format, ...)
{
	va_list list;
	char *text;

	va_start(list, format);
	if (vasprintf(&text, format, list) < 0)
		writer->error = -ENOMEM;
	else {
		writer->ops->note(writer, kind, mark, text);
		free(text);
	}
	va_end(list);
}

int gm_writer_finish(struct gm_writer *writer, FILE *out)
{
	if (writer->error)
		return writer->error;
	errno = 0;
	int r = writer->ops->finish(writer, out);
	if (r < 0)
		return r;
	if (fflush(out) || ferror(out))
		return errno ? -errno : -EIO;
	return 0;
}
