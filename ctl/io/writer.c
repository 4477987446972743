/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * What all writers have in common: turns what verbs say into values and texts, and
 * remembers errors, so that verbs need not check each line they say.
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

static void writer_field(struct gm_writer *writer, const char *key, struct gm_value value)
{
	if (writer->ops->field)
		writer->ops->field(writer, key, &value);
}

void gm_writer_text(struct gm_writer *writer, const char *key, const char *text)
{
	struct gm_value value = {0};

	if (text && *text)
		value = (struct gm_value){.kind = GM_VALUE_TEXT, .text = (char *)text};
	writer_field(writer, key, value);
}

void gm_writer_size(struct gm_writer *writer, const char *key, uint64_t bytes)
{
	writer_field(writer, key, (struct gm_value){.kind = GM_VALUE_SIZE, .n = bytes});
}

void gm_writer_count(struct gm_writer *writer, const char *key, uint64_t n)
{
	writer_field(writer, key, (struct gm_value){.kind = GM_VALUE_COUNT, .n = n});
}

void gm_writer_time(struct gm_writer *writer, const char *key, uint64_t ms)
{
	writer_field(writer, key, (struct gm_value){.kind = GM_VALUE_TIME, .n = ms});
}

void gm_writer_signed(struct gm_writer *writer, const char *key, int64_t n)
{
	writer_field(writer, key, (struct gm_value){.kind = GM_VALUE_SIGNED, .n = (uint64_t)n});
}

void gm_writer_share(struct gm_writer *writer, const char *key, uint64_t millionths)
{
	writer_field(writer, key, (struct gm_value){.kind = GM_VALUE_SHARE, .n = millionths});
}

void gm_writer_bool(struct gm_writer *writer, const char *key, bool yes)
{
	writer_field(writer, key, (struct gm_value){.kind = GM_VALUE_BOOL, .n = yes});
}

void gm_writer_group(struct gm_writer *writer, const char *key)
{
	if (writer->ops->group)
		writer->ops->group(writer, key);
}

const char *gm_writer_bytes(struct gm_writer *writer, uint64_t bytes, char text[GM_UNITS_TEXT])
{
	if (!writer->plain_bytes)
		return gm_format_size(bytes, text);
	writer->has_bytes = true;
	snprintf(text, GM_UNITS_TEXT, "%llu", (unsigned long long)bytes);
	return text;
}

/* Returns a malloc'ed text. On failure, notes the error and returns NULL. */
static char *writer_format(struct gm_writer *writer, const char *format, va_list list)
{
	char *text;

	if (vasprintf(&text, format, list) >= 0)
		return text;
	writer->error = -ENOMEM;
	return NULL;
}

void gm_writer_line(struct gm_writer *writer, const char *label, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	char *text = writer_format(writer, format, list);
	va_end(list);

	if (text && writer->ops->line)
		writer->ops->line(writer, label, text);
	free(text);
}

void gm_writer_blank_line(struct gm_writer *writer)
{
	gm_writer_line(writer, "", "%s", "");
}

static void writer_show_table(struct gm_writer *writer, const char *key, struct gm_table *table,
	void (*show)(struct gm_writer *writer, const char *key, const struct gm_table *table))
{
	if (!table || table->no_memory)
		writer->error = -ENOMEM;
	else if (show)
		show(writer, key, table);
	gm_table_free(table);
}

void gm_writer_table(struct gm_writer *writer, const char *key, struct gm_table *table)
{
	writer_show_table(writer, key, table, writer->ops->table);
}

void gm_writer_data(struct gm_writer *writer, const char *key, struct gm_table *table)
{
	writer_show_table(writer, key, table, writer->ops->data);
}

void gm_writer_table_or(
	struct gm_writer *writer, const char *key, struct gm_table *table, const char *none)
{
	if (gm_table_is_empty(table)) {
		gm_writer_line(writer, "", "%s", none);
		gm_writer_data(writer, key, table);
	} else {
		gm_writer_table(writer, key, table);
	}
}

void gm_writer_notes(struct gm_writer *writer)
{
	if (writer->ops->notes)
		writer->ops->notes(writer);
}

void gm_writer_note(
	struct gm_writer *writer, const char *kind, enum gm_mark mark, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	char *text = writer_format(writer, format, list);
	va_end(list);

	if (text)
		writer->ops->note(writer, kind, mark, text);
	free(text);
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
