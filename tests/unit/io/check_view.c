/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* Choosing columns and sorting rows: ctl/io/view.h. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text/text.h"
#include "ctl/io/view.h"
#include "ctl/io/writer.h"
#include "tests/tap.h"

#define N(array) (sizeof(array) / sizeof(*(array)))

static const struct gm_column columns[] = {
	{"name", "NAME", 0},
	{"in_use", "IN USE", GM_COLUMN_RIGHT},
	{"change", NULL, GM_COLUMN_RIGHT},
	{"nested", NULL, GM_COLUMN_NESTED},
	{NULL, "MOOD", 0},
	{"device", "DEV", GM_COLUMN_RIGHT | GM_COLUMN_FLAT},
};

static struct gm_view view;
static char why[GM_VIEW_WHY];

static void setup(void)
{
	bool utf8;
	gm_text_init(&utf8);
	view = (struct gm_view){0};
}

static void row(struct gm_table *table, const char *name, uint64_t in_use, int64_t change)
{
	gm_table_row(table);
	gm_table_text(table, name);
	gm_table_size(table, in_use);
	gm_table_known(table, in_use != UINT64_MAX);
	gm_table_signed(table, change);
	gm_table_nones(table, 1);
	gm_table_text(table, "fine");
	gm_table_count(table, 0);
}

/* What people see of four rows through this view. */
static void shows(const char *expected)
{
	struct gm_writer_style style = {.legend = true};
	struct gm_writer *writer = gm_writer_text_new(&style);
	struct gm_table *table = GM_TABLE_NEW(columns);
	char *bytes = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&bytes, &n);

	row(table, "b", 2048, -1);
	row(table, "a", 512, 7);
	row(table, "c", UINT64_MAX, -9);
	row(table, "b", 1, 0);
	gm_view_apply(&view, table);
	gm_writer_table(writer, "rows", table);
	ck_assert_int_eq(gm_writer_finish(writer, out), 0);
	fclose(out);
	ck_assert_str_eq(bytes, expected);
	free(bytes);
	gm_writer_free(writer);
}

static int sort_by(const char *list)
{
	return gm_view_sort(&view, columns, N(columns), list, why);
}

static int show(const char *list)
{
	return gm_view_show(&view, columns, N(columns), list, why);
}

START_TEST(without_a_choice_rows_and_columns_stay_as_they_are)
{
	shows("NAME IN USE MOOD DEV\n"
	      "b      2.0K fine   0\n"
	      "a      512B fine   0\n"
	      "c         - fine   0\n"
	      "b        1B fine   0\n");
}
END_TEST

START_TEST(rows_are_sorted_by_value_and_not_by_text)
{
	ck_assert_int_eq(sort_by("in_use"), 0);
	shows("NAME IN USE MOOD DEV\n"
	      "b        1B fine   0\n"
	      "a      512B fine   0\n"
	      "b      2.0K fine   0\n"
	      "c         - fine   0\n");
	/* What is not known is last either way. */
	ck_assert_int_eq(sort_by("-in_use"), 0);
	shows("NAME IN USE MOOD DEV\n"
	      "b      2.0K fine   0\n"
	      "a      512B fine   0\n"
	      "b        1B fine   0\n"
	      "c         - fine   0\n");
	ck_assert_int_eq(sort_by("change"), 0);
	ck_assert_int_eq(show("name,change"), 0);
	shows("NAME CHANGE\n"
	      "c        -9\n"
	      "b        -1\n"
	      "b         0\n"
	      "a         7\n");
}
END_TEST

START_TEST(equal_rows_are_sorted_by_the_next_column_or_stay_in_order)
{
	ck_assert_int_eq(sort_by("name"), 0);
	ck_assert_int_eq(show("name,in_use"), 0);
	shows("NAME IN USE\n"
	      "a      512B\n"
	      "b      2.0K\n"
	      "b        1B\n"
	      "c         -\n");
	ck_assert_int_eq(sort_by("-name,in_use"), 0);
	shows("NAME IN USE\n"
	      "c         -\n"
	      "b        1B\n"
	      "b      2.0K\n"
	      "a      512B\n");
}
END_TEST

START_TEST(columns_are_shown_in_the_order_that_was_asked_for)
{
	ck_assert_int_eq(show("in_use,name"), 0);
	shows("IN USE NAME\n"
	      "  2.0K b\n"
	      "  512B a\n"
	      "     - c\n"
	      "    1B b\n");
}
END_TEST

START_TEST(a_column_is_known_by_its_name_and_by_its_heading)
{
	static const char *const same[] = {"in_use", "IN_USE", "in use", "In-Use"};

	for (size_t i = 0; i < N(same); i++) {
		ck_assert_int_eq(show(same[i]), 0);
		ck_assert_uint_eq(view.n_shown, 1);
		ck_assert_uint_eq(view.shown[0], 1);
	}
	ck_assert_int_eq(show("dev"), 0);
	ck_assert_uint_eq(view.shown[0], 5);
	/* No program gets this one, but people see it. */
	ck_assert_int_eq(show("mood,name"), 0);
	ck_assert_uint_eq(view.shown[0], 4);
	ck_assert_int_eq(show("mood,MOOD"), -EINVAL);
	ck_assert_str_eq(why, "column 'mood' is named twice");
	ck_assert_int_eq(sort_by("-Device"), 0);
	ck_assert(view.sorted[0].down && view.sorted[0].column == 5);
}
END_TEST

START_TEST(a_wrong_column_is_refused_with_what_there_is)
{
	static const char *const wrong[] = {
		"", ",", "name,", ",name", "nested", "mode", "--name", "na me"};

	for (size_t i = 0; i < N(wrong); i++) {
		ck_assert_int_eq(show(wrong[i]), -EINVAL);
		ck_assert_int_eq(sort_by(wrong[i]), -EINVAL);
	}
	ck_assert_uint_eq(view.n_shown + view.n_sorted, 0);

	ck_assert_int_eq(show("nmae"), -EINVAL);
	ck_assert_str_eq(why, "there is no column 'nmae'; did you mean 'name'?");
	ck_assert_int_eq(show("xyzzy"), -EINVAL);
	ck_assert_str_eq(
		why, "there is no column 'xyzzy'; there are name, in_use, change, mood, device");
	ck_assert_int_eq(show("name,dev,Name"), -EINVAL);
	ck_assert_str_eq(why, "column 'name' is named twice");
}
END_TEST

START_TEST(a_list_of_any_length_is_safe)
{
	static char list[100000];

	memset(list, 'a', sizeof(list) - 1);
	ck_assert_int_eq(show(list), -EINVAL);
	for (size_t i = 0; i < sizeof(list) - 1; i++)
		list[i] = "name,"[i % 5];
	ck_assert_int_eq(sort_by(list), -EINVAL);
	ck_assert_str_eq(why, "there are more than 32 columns in the list");
	ck_assert_int_eq(show(list), -EINVAL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("view");
	TCase *tcase = tcase_create("view");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, without_a_choice_rows_and_columns_stay_as_they_are);
	tcase_add_test(tcase, rows_are_sorted_by_value_and_not_by_text);
	tcase_add_test(tcase, equal_rows_are_sorted_by_the_next_column_or_stay_in_order);
	tcase_add_test(tcase, columns_are_shown_in_the_order_that_was_asked_for);
	tcase_add_test(tcase, a_column_is_known_by_its_name_and_by_its_heading);
	tcase_add_test(tcase, a_wrong_column_is_refused_with_what_there_is);
	tcase_add_test(tcase, a_list_of_any_length_is_safe);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
