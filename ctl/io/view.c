/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Finds columns by what people type, and sorts rows. The names are those of CSV, because they never
 * change. The headings work, too, because people see them.
 */

#include "ctl/io/view.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text/closest.h"
#include "common/text/units.h"

const char *gm_view_name(const struct gm_column *column)
{
	return column->flags & GM_COLUMN_NESTED ? NULL : column->key;
}

bool gm_view_chooses(const struct gm_view *view)
{
	return view && view->n_shown;
}

size_t gm_view_width(const struct gm_table *table)
{
	return gm_view_chooses(table->view) ? table->view->n_shown : table->n_columns;
}

size_t gm_view_column(const struct gm_table *table, size_t i)
{
	return gm_view_chooses(table->view) ? table->view->shown[i] : i;
}

/* ---- reading lists of columns */

/* Whether a word of n bytes is this name or heading: IN_USE, in_use, "in use" and in-use are one. */
static bool view_same(const char *name, const char *word, size_t n)
{
	if (!name || strlen(name) != n)
		return false;
	for (size_t i = 0; i < n; i++) {
		int a = tolower((unsigned char)name[i]), b = tolower((unsigned char)word[i]);

		a = a == ' ' || a == '-' ? '_' : a;
		b = b == ' ' || b == '-' ? '_' : b;
		if (a != b)
			return false;
	}
	return true;
}

static bool view_find(
	const struct gm_column *columns, size_t n_columns, const char *word, size_t n, size_t *ret)
{
	/* A heading that only people see comes after a name in CSV that is the same. */
	for (int only_people = 0; only_people < 2; only_people++)
		for (size_t i = 0; i < n_columns; i++) {
			const char *name = gm_view_name(&columns[i]);

			if (columns[i].flags & GM_COLUMN_NESTED || (name == NULL) != only_people ||
				(!view_same(name, word, n) &&
					!view_same(columns[i].title, word, n)))
				continue;
			*ret = i;
			return true;
		}
	return false;
}

/* Returns the word by which people choose a column, or NULL if they choose it by the name of another one. A heading is
 * written as names are: "what", "run_name". */
static const char *view_word(
	const struct gm_column *columns, size_t n_columns, size_t column, char text[GM_VIEW_WORD])
{
	const char *name = gm_view_name(&columns[column]);
	const char *word = name ? name : columns[column].title;
	size_t found;

	if (!word || !view_find(columns, n_columns, word, strlen(word), &found) || found != column)
		return NULL;
	snprintf(text, GM_VIEW_WORD, "%s", word);
	for (char *t = text; *t; t++)
		*t = *t == ' ' ? '_' : (char)tolower((unsigned char)*t);
	return text;
}

void gm_view_words(const struct gm_column *columns, size_t n_columns, char ret_text[GM_VIEW_WHY])
{
	char word[GM_VIEW_WORD];
	size_t used = 0;

	*ret_text = '\0';
	for (size_t i = 0; i < n_columns && used < GM_VIEW_WHY; i++)
		if (view_word(columns, n_columns, i, word))
			used += (size_t)snprintf(ret_text + used, GM_VIEW_WHY - used, "%s%s",
				used ? ", " : "", word);
}

/* Says that there is no such column, and which ones there are. */
static int view_unknown(const struct gm_column *columns, size_t n_columns, const char *word,
	size_t n, char why[GM_VIEW_WHY])
{
	const char *names[GM_VIEW_MAX + 1] = {0};
	char text[GM_VIEW_WHY], copy[64], words[GM_VIEW_MAX][GM_VIEW_WORD];
	size_t count = 0;

	for (size_t i = 0; i < n_columns && count < GM_VIEW_MAX; i++)
		if (view_word(columns, n_columns, i, words[count])) {
			names[count] = words[count];
			count++;
		}
	gm_view_words(columns, n_columns, text);

	snprintf(copy, sizeof(copy), "%.*s", (int)(n < sizeof(copy) ? n : sizeof(copy) - 1), word);
	if (n >= sizeof(copy))
		gm_text_mend(copy);
	const char *closest = gm_closest(copy, names);
	if (closest)
		snprintf(why, GM_VIEW_WHY, "there is no column '%s'; did you mean '%s'?", copy,
			closest);
	else
		snprintf(why, GM_VIEW_WHY, "there is no column '%s'; there are %.300s", copy, text);
	return -EINVAL;
}

/* Reads the column at *list and moves *list behind it. */
static int view_next(const struct gm_column *columns, size_t n_columns, const char **list,
	size_t *ret, char why[GM_VIEW_WHY])
{
	size_t n = strcspn(*list, ",");

	if (!view_find(columns, n_columns, *list, n, ret))
		return view_unknown(columns, n_columns, *list, n, why);
	*list += n;
	if (**list == ',')
		++*list;
	else
		*list = NULL;
	return 0;
}

static int view_too_many(char why[GM_VIEW_WHY])
{
	snprintf(why, GM_VIEW_WHY, "there are more than %d columns in the list", GM_VIEW_MAX);
	return -EINVAL;
}

int gm_view_show(struct gm_view *view, const struct gm_column *columns, size_t n_columns,
	const char *list, char why[GM_VIEW_WHY])
{
	struct gm_view made = *view;

	for (made.n_shown = 0; list; made.n_shown++) {
		char word[GM_VIEW_WORD];
		size_t column;

		if (made.n_shown == GM_VIEW_MAX)
			return view_too_many(why);
		int r = view_next(columns, n_columns, &list, &column, why);
		if (r < 0)
			return r;
		for (size_t i = 0; i < made.n_shown; i++)
			if (made.shown[i] == column) {
				snprintf(why, GM_VIEW_WHY, "column '%s' is named twice",
					view_word(columns, n_columns, column, word));
				return -EINVAL;
			}
		made.shown[made.n_shown] = column;
	}
	*view = made;
	return 0;
}

int gm_view_sort(struct gm_view *view, const struct gm_column *columns, size_t n_columns,
	const char *list, char why[GM_VIEW_WHY])
{
	struct gm_view made = *view;

	for (made.n_sorted = 0; list; made.n_sorted++) {
		bool down = *list == '-';
		size_t column;

		if (made.n_sorted == GM_VIEW_MAX)
			return view_too_many(why);
		list += down;
		int r = view_next(columns, n_columns, &list, &column, why);
		if (r < 0)
			return r;
		made.sorted[made.n_sorted].column = column;
		made.sorted[made.n_sorted].down = down;
	}
	*view = made;
	return 0;
}

/* ---- sorting */

static int view_compare_numbers(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int view_compare_values(const struct gm_value *a, const struct gm_value *b)
{
	if (a->kind != b->kind)
		return view_compare_numbers(a->kind, b->kind);

	switch (a->kind) {
	case GM_VALUE_TEXT:
		return strcmp(a->text, b->text);
	case GM_VALUE_SIGNED:
		return (int64_t)a->n < (int64_t)b->n ? -1 : (int64_t)a->n > (int64_t)b->n;
	case GM_VALUE_NONE:
	case GM_VALUE_ROWS:
	case GM_VALUE_SAME_ROWS:
		return 0;
	default:
		return view_compare_numbers(a->n, b->n);
	}
}

static int view_compare_rows(const void *a, const void *b, void *user)
{
	const struct gm_view *view = user;
	const struct gm_row *x = a, *y = b;

	for (size_t i = 0; i < view->n_sorted; i++) {
		const struct gm_value *v = &x->values[view->sorted[i].column];
		const struct gm_value *w = &y->values[view->sorted[i].column];

		if ((v->kind == GM_VALUE_NONE) != (w->kind == GM_VALUE_NONE))
			return v->kind == GM_VALUE_NONE ? 1 : -1;
		int r = view_compare_values(v, w);
		if (r)
			return view->sorted[i].down ? -r : r;
	}
	return view_compare_numbers(x->added, y->added);
}

void gm_view_apply(const struct gm_view *view, struct gm_table *table)
{
	if (!table || table->no_memory)
		return;
	table->view = view;
	if (view->n_sorted && table->n_rows > 1)
		qsort_r(table->rows, table->n_rows, sizeof(*table->rows), view_compare_rows,
			(void *)view);
}
