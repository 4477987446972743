/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Rows of typed values that own their texts. Adding a value never fails, so a verb reads like the
 * list of what it shows. If memory runs out, the table remembers that and is never shown with parts
 * missing.
 */

#include "ctl/io/table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void table_value_deinit(struct gm_value *value)
{
	if (value->kind == GM_VALUE_TEXT)
		free(value->text);
	else if (value->kind == GM_VALUE_ROWS)
		gm_table_free(value->rows);
	*value = (struct gm_value){0};
}

struct gm_table *gm_table_new(const struct gm_column *columns, size_t n_columns)
{
	struct gm_table *table = calloc(1, sizeof(*table));

	if (!table)
		return NULL;
	table->columns = columns;
	table->n_columns = n_columns;
	return table;
}

void gm_table_free(struct gm_table *table)
{
	if (!table)
		return;

	for (size_t r = 0; r < table->n_rows; r++) {
		for (size_t c = 0; c < table->n_columns; c++)
			table_value_deinit(&table->rows[r].values[c]);
		free(table->rows[r].values);
	}
	free(table->rows);
	free(table);
}

bool gm_table_is_empty(const struct gm_table *table)
{
	return table && table->n_rows == 0 && !table->no_memory;
}

static void table_begin(struct gm_table *table, enum gm_row_kind kind)
{
	if (!table || table->no_memory)
		return;
	assert(table->n_rows == 0 || table->filled == table->n_columns);

	if (table->n_rows == table->room) {
		size_t room = table->room ? 2 * table->room : 16;
		struct gm_row *rows = reallocarray(table->rows, room, sizeof(*rows));
		if (!rows) {
			table->no_memory = true;
			return;
		}
		table->rows = rows;
		table->room = room;
	}

	struct gm_value *values = calloc(table->n_columns, sizeof(*values));
	if (!values) {
		table->no_memory = true;
		return;
	}
	table->rows[table->n_rows] =
		(struct gm_row){.values = values, .kind = kind, .added = table->n_rows};
	table->n_rows++;
	table->filled = 0;
}

void gm_table_row(struct gm_table *table)
{
	table_begin(table, GM_ROW_WHOLE);
}

void gm_table_more(struct gm_table *table)
{
	table_begin(table, GM_ROW_FOLDED);
}

void gm_table_flat(struct gm_table *table)
{
	table_begin(table, GM_ROW_FLAT);
}

static void table_add(struct gm_table *table, struct gm_value value)
{
	if (!table || table->no_memory) {
		table_value_deinit(&value);
		return;
	}
	assert(table->n_rows > 0 && table->filled < table->n_columns);
	struct gm_value *at = &table->rows[table->n_rows - 1].values[table->filled++];
	table_value_deinit(at);
	*at = value;
}

void gm_table_at(struct gm_table *table, size_t column)
{
	if (table)
		table->filled = column;
}

void gm_table_none(struct gm_table *table)
{
	table_add(table, (struct gm_value){.kind = GM_VALUE_NONE});
}

void gm_table_nones(struct gm_table *table, size_t n)
{
	while (n--)
		gm_table_none(table);
}

void gm_table_text(struct gm_table *table, const char *text)
{
	if (!text || !*text) {
		gm_table_none(table);
		return;
	}

	char *copy = strdup(text);
	if (!copy && table)
		table->no_memory = true;
	table_add(table, (struct gm_value){.kind = GM_VALUE_TEXT, .text = copy});
}

void gm_table_size(struct gm_table *table, uint64_t bytes)
{
	table_add(table, (struct gm_value){.kind = GM_VALUE_SIZE, .n = bytes});
}

void gm_table_count(struct gm_table *table, uint64_t n)
{
	table_add(table, (struct gm_value){.kind = GM_VALUE_COUNT, .n = n});
}

void gm_table_signed(struct gm_table *table, int64_t n)
{
	table_add(table, (struct gm_value){.kind = GM_VALUE_SIGNED, .n = (uint64_t)n});
}

void gm_table_time(struct gm_table *table, uint64_t ms)
{
	table_add(table, (struct gm_value){.kind = GM_VALUE_TIME, .n = ms});
}

void gm_table_left(struct gm_table *table, uint64_t ms)
{
	table_add(table, (struct gm_value){.kind = GM_VALUE_LEFT, .n = ms});
}

void gm_table_share(struct gm_table *table, uint64_t millionths)
{
	table_add(table, (struct gm_value){.kind = GM_VALUE_SHARE, .n = millionths});
}

void gm_table_factor(struct gm_table *table, uint64_t millionths)
{
	table_add(table, (struct gm_value){.kind = GM_VALUE_FACTOR, .n = millionths});
}

void gm_table_bool(struct gm_table *table, bool yes)
{
	table_add(table, (struct gm_value){.kind = GM_VALUE_BOOL, .n = yes});
}

void gm_table_rows(struct gm_table *table, struct gm_table *rows)
{
	if (table && (!rows || rows->no_memory))
		table->no_memory = true;
	table_add(table, (struct gm_value){.kind = GM_VALUE_ROWS, .rows = rows});
}

void gm_table_same_rows(struct gm_table *table, const struct gm_table *rows)
{
	if (table && (!rows || rows->no_memory))
		table->no_memory = true;
	table_add(table, (struct gm_value){.kind = GM_VALUE_SAME_ROWS, .same_rows = rows});
}

/* The value that was added last, or NULL if there is none. */
static struct gm_value *table_last(struct gm_table *table)
{
	if (!table || table->no_memory || !table->n_rows || !table->filled)
		return NULL;
	return &table->rows[table->n_rows - 1].values[table->filled - 1];
}

void gm_table_mark(struct gm_table *table, enum gm_mark mark)
{
	struct gm_value *value = table_last(table);

	if (value)
		value->mark = mark;
}

void gm_table_known(struct gm_table *table, bool known)
{
	struct gm_value *value = table_last(table);

	if (value && !known)
		table_value_deinit(value);
}
