/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_IO_VIEW_H
#define GM_CTL_IO_VIEW_H

#include "ctl/io/table.h"

/*
 * Which columns of a table are shown, in which order, and how its rows are sorted. A column is
 * chosen by its name in CSV, or by its heading.
 */

#define GM_VIEW_MAX  32
#define GM_VIEW_WHY  512
#define GM_VIEW_WORD 32 /* a name of a column */

struct gm_view {
	size_t n_shown; /* 0: all */
	size_t shown[GM_VIEW_MAX];
	size_t n_sorted; /* 0: as they came */
	struct {
		size_t column;
		bool down;
	} sorted[GM_VIEW_MAX];
};

/*
 * Read a list of columns, separated by commas. Before a column to sort by, '-' means that the
 * largest comes first. On error, return -EINVAL, leave *view untouched, and why says what is wrong.
 */
int gm_view_show(struct gm_view *view, const struct gm_column *columns, size_t n_columns,
	const char *list, char why[GM_VIEW_WHY]);
int gm_view_sort(struct gm_view *view, const struct gm_column *columns, size_t n_columns,
	const char *list, char why[GM_VIEW_WHY]);

/* Writes the names of all columns, separated by commas. */
void gm_view_words(const struct gm_column *columns, size_t n_columns, char ret_text[GM_VIEW_WHY]);

/*
 * Sorts the rows of a table, and makes writers show the chosen columns. Values that are not known
 * come last. Rows that compare equal stay in the order in which they were added. The view must
 * outlive the table. Does nothing if the table is NULL.
 */
void gm_view_apply(const struct gm_view *view, struct gm_table *table);

/* For writers. The name of a column in CSV; NULL: it is not in CSV. */
const char *gm_view_name(const struct gm_column *column);
/* Whether somebody chose the columns. The view may be NULL. */
bool gm_view_chooses(const struct gm_view *view);
/* How many columns there are to look at, and the index of each of them in the table. */
size_t gm_view_width(const struct gm_table *table);
size_t gm_view_column(const struct gm_table *table, size_t i);

#endif
