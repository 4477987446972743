/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The JSON writer: writes one object, with fields and tables under the keys that gpumemctl(1)
 * documents. It cleans texts as the text writer does, because people look at JSON on terminals too.
 */

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#define HASH_NONFATAL_OOM         1
#define uthash_nonfatal_oom(same) ((same)->lost = true)
#include <uthash.h>

#include "common/text/text.h"
#include "ctl/io/writer.h"

/* Rows that several values have become one JSON value, to which all of them refer. */
struct json_same {
	const struct gm_table *rows;
	json_t *json;
	bool lost; /* no memory to find it again */
	UT_hash_handle hh;
};

struct writer_json {
	struct gm_writer base;
	struct json_same *same;
	json_t *root;
	json_t *into; /* the object that fields go to: the root, or a group in it */
	size_t flags; /* for json_dumpf() */
};

static json_t *json_from_text(const char *text)
{
	char *clean = gm_text_clean(text, false);
	json_t *string = clean ? json_string(clean) : NULL;

	free(clean);
	return string;
}

static json_t *json_from_number(uint64_t n)
{
	/* UINT64_MAX stands for "all" or "no end", and no real figure exceeds INT64_MAX. */
	return n > INT64_MAX ? json_null() : json_integer((json_int_t)n);
}

static json_t *json_from_rows(struct writer_json *writer, const struct gm_table *table);

/* Returns a new reference, or NULL if out of memory. */
static json_t *json_from_same_rows(struct writer_json *writer, const struct gm_table *rows)
{
	struct json_same *same;

	HASH_FIND_PTR(writer->same, &rows, same);
	if (same)
		return json_incref(same->json);

	same = calloc(1, sizeof(*same));
	if (same) {
		same->rows = rows;
		same->json = json_from_rows(writer, rows);
		HASH_ADD_PTR(writer->same, rows, same);
	}
	if (same && !same->lost)
		return json_incref(same->json);
	if (same)
		json_decref(same->json);
	free(same);
	return NULL;
}

static json_t *json_from_value(struct writer_json *writer, const struct gm_value *value)
{
	switch (value->kind) {
	case GM_VALUE_TEXT:
		return json_from_text(value->text);
	case GM_VALUE_SIZE:
	case GM_VALUE_COUNT:
	case GM_VALUE_TIME:
	case GM_VALUE_LEFT:
		return json_from_number(value->n);
	case GM_VALUE_SIGNED:
		return json_integer((json_int_t)(int64_t)value->n);
	case GM_VALUE_SHARE:
	case GM_VALUE_FACTOR:
		return json_real((double)value->n / 1e6);
	case GM_VALUE_BOOL:
		return json_boolean(value->n);
	case GM_VALUE_ROWS:
		return json_from_rows(writer, value->rows);
	case GM_VALUE_SAME_ROWS:
		return json_from_same_rows(writer, value->same_rows);
	case GM_VALUE_NONE:
		break;
	}
	return json_null();
}

static json_t *json_from_rows(struct writer_json *writer, const struct gm_table *table)
{
	json_t *rows = json_array();

	for (size_t r = 0; r < table->n_rows; r++) {
		if (table->rows[r].kind != GM_ROW_WHOLE)
			continue;

		/* The _new calls take ownership and fail on NULL, so one check is enough. */
		json_t *row = json_object();
		if (json_array_append_new(rows, row) < 0)
			goto fail;
		for (size_t c = 0; c < table->n_columns; c++)
			if (table->columns[c].key && !(table->columns[c].flags & GM_COLUMN_FLAT) &&
				json_object_set_new(row, table->columns[c].key,
					json_from_value(writer, &table->rows[r].values[c])) < 0)
				goto fail;
	}
	return rows;
fail:
	json_decref(rows);
	return NULL;
}

static void json_field(struct gm_writer *base, const char *key, const struct gm_value *value)
{
	struct writer_json *writer = (struct writer_json *)base;

	if (json_object_set_new(writer->into, key, json_from_value(writer, value)) < 0)
		base->error = -ENOMEM;
}

static void json_group(struct gm_writer *base, const char *key)
{
	struct writer_json *writer = (struct writer_json *)base;
	json_t *group = key ? json_object() : writer->root;

	writer->into = writer->root;
	if (key && json_object_set_new(writer->root, key, group) < 0)
		base->error = -ENOMEM;
	else
		writer->into = group;
}

static void json_table(struct gm_writer *base, const char *key, const struct gm_table *table)
{
	struct writer_json *writer = (struct writer_json *)base;

	if (json_object_set_new(writer->root, key, json_from_rows(writer, table)) < 0)
		base->error = -ENOMEM;
}

static void json_notes(struct gm_writer *base)
{
	struct writer_json *writer = (struct writer_json *)base;

	if (json_object_set_new(writer->root, "warnings", json_array()) < 0)
		base->error = -ENOMEM;
}

static void json_note(struct gm_writer *base, const char *kind, enum gm_mark mark, const char *text)
{
	struct writer_json *writer = (struct writer_json *)base;
	json_t *warnings = json_object_get(writer->root, "warnings"), *note = json_object();

	if (json_array_append_new(warnings, note) < 0 ||
		json_object_set_new(note, "kind", json_from_text(kind)) < 0 ||
		json_object_set_new(note, "text", json_from_text(text)) < 0)
		base->error = -ENOMEM;
}

static int json_finish(struct gm_writer *base, FILE *out)
{
	struct writer_json *writer = (struct writer_json *)base;

	errno = 0;
	if (json_dumpf(writer->root, out, writer->flags | JSON_REAL_PRECISION(9)) < 0)
		return errno ? -errno : -EIO;
	if (fputc('\n', out) == EOF)
		return -errno;
	return 0;
}

static void json_free(struct gm_writer *base)
{
	struct writer_json *writer = (struct writer_json *)base;
	struct json_same *same, *next;

	HASH_ITER (hh, writer->same, same, next) {
		HASH_DEL(writer->same, same);
		json_decref(same->json);
		free(same);
	}
	json_decref(writer->root);
	free(writer);
}

static struct gm_writer *json_new(size_t flags)
{
	static const struct gm_writer_ops ops = {
		.field = json_field,
		.group = json_group,
		.table = json_table,
		.data = json_table,
		.notes = json_notes,
		.note = json_note,
		.finish = json_finish,
		.free = json_free,
	};
	struct writer_json *writer = calloc(1, sizeof(*writer));

	if (!writer)
		return NULL;
	writer->base.ops = &ops;
	writer->flags = flags;
	writer->into = writer->root = json_object();
	if (!writer->root) {
		free(writer);
		return NULL;
	}
	return &writer->base;
}

struct gm_writer *gm_writer_json_new(void)
{
	return json_new(JSON_INDENT(2));
}

struct gm_writer *gm_writer_json_line_new(void)
{
	return json_new(JSON_COMPACT);
}
