/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* The CSV writer, as RFC 4180 and gpumemctl(1) promise it. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/text/text.h"
#include "ctl/io/view.h"
#include "ctl/io/writer.h"
#include "tests/tap.h"

static const struct gm_column columns[] = {
	{"name", "NAME", GM_COLUMN_SHRINK},
	{"bytes", "SIZE", GM_COLUMN_RIGHT},
	{"secret", NULL, 0},
	{"nested", NULL, GM_COLUMN_NESTED},
	{NULL, "MOOD", 0},
	{"flat", NULL, GM_COLUMN_FLAT},
};
#define HEADER "name,bytes,secret,flat\n"

static void setup(void)
{
	bool utf8;
	gm_text_init(&utf8);
}

static void fill(struct gm_table *table, const char *name, uint64_t bytes)
{
	gm_table_text(table, name);
	gm_table_size(table, bytes);
	gm_table_count(table, 7);
	gm_table_rows(table, GM_TABLE_NEW(columns));
	gm_table_text(table, "fine");
	gm_table_none(table);
}

static void row(struct gm_table *table, const char *name, uint64_t bytes)
{
	gm_table_row(table);
	fill(table, name, bytes);
}

static void writes(struct gm_writer *writer, const char *expected)
{
	char *bytes = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&bytes, &n);

	ck_assert_int_eq(gm_writer_finish(writer, out), 0);
	fclose(out);
	gm_writer_free(writer);
	ck_assert_str_eq(bytes, expected);
	free(bytes);
}

START_TEST(a_row_has_exact_numbers_and_nothing_for_what_is_not_known)
{
	struct gm_writer *writer = gm_writer_csv_new(true);
	struct gm_table *table = GM_TABLE_NEW(columns);

	row(table, "a", 51539607552);
	row(table, NULL, UINT64_MAX);
	gm_writer_line(writer, "label", "for people");
	gm_writer_text(writer, "version", "1");
	gm_writer_table(writer, "rows", table);
	writes(writer, HEADER "a,51539607552,7,\n,,7,\n");
}
END_TEST

START_TEST(what_would_end_a_value_is_quoted)
{
	struct gm_writer *writer = gm_writer_csv_new(false);
	struct gm_table *table = GM_TABLE_NEW(columns);

	row(table, "a,b", 1);
	row(table, "say \"hi\"", 2);
	row(table, " blanks ", 3);
	gm_writer_table(writer, "rows", table);
	writes(writer, "\"a,b\",1,7,\n\"say \"\"hi\"\"\",2,7,\n blanks ,3,7,\n");
}
END_TEST

START_TEST(names_from_clients_add_no_line_and_no_escape)
{
	struct gm_writer *writer = gm_writer_csv_new(false);
	struct gm_table *table = GM_TABLE_NEW(columns);

	row(table, "a\nb\r\033[2J", 1);
	row(table, "\"\n", 1);
	gm_writer_table(writer, "rows", table);
	writes(writer, "a\\x0ab\\x0d\\x1b[2J,1,7,\n\"\"\"\\x0a\",1,7,\n");
}
END_TEST

START_TEST(a_name_cannot_become_a_formula_and_a_number_stays_one)
{
	static const struct gm_column kinds[] = {{"text", "T", 0}, {"signed", "S", 0}};
	struct gm_writer *writer = gm_writer_csv_new(false);
	struct gm_table *table = GM_TABLE_NEW(kinds);
	const char *names[] = {"=1+1", "+1", "-1", "@SUM(A1)", "=HYPERLINK(\"a\",\"b\")", "a=1"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		gm_table_row(table);
		gm_table_text(table, names[i]);
		gm_table_signed(table, -5);
	}
	gm_writer_table(writer, "rows", table);
	writes(writer, "'=1+1,-5\n'+1,-5\n'-1,-5\n'@SUM(A1),-5\n"
		       "\"'=HYPERLINK(\"\"a\"\",\"\"b\"\")\",-5\na=1,-5\n");
}
END_TEST

START_TEST(each_kind_of_value_is_written_as_in_json)
{
	static const struct gm_column kinds[] = {{"share", NULL, 0}, {"yes", NULL, 0},
		{"no", NULL, 0}, {"ms", NULL, 0}, {"low", NULL, 0}};
	struct gm_writer *writer = gm_writer_csv_new(false);
	struct gm_table *table = GM_TABLE_NEW(kinds);

	gm_table_row(table);
	gm_table_share(table, 428571);
	gm_table_bool(table, true);
	gm_table_bool(table, false);
	gm_table_time(table, 200000);
	gm_table_signed(table, -10);
	gm_writer_table(writer, "rows", table);
	writes(writer, "0.428571,true,false,200000,-10\n");
}
END_TEST

START_TEST(folded_rows_are_left_out_and_flat_ones_are_not)
{
	struct gm_writer *writer = gm_writer_csv_new(false);
	struct gm_table *table = GM_TABLE_NEW(columns);

	row(table, "a", 1);
	gm_table_more(table);
	fill(table, "folded", 2);
	gm_table_flat(table);
	fill(table, "flat", 3);
	gm_writer_table(writer, "rows", table);
	writes(writer, "a,1,7,\nflat,3,7,\n");
}
END_TEST

START_TEST(an_empty_line_stands_between_two_tables_and_nowhere_else)
{
	static const struct gm_column one[] = {{"only", "ONLY", 0}};
	struct gm_writer *writer = gm_writer_csv_new(true);
	struct gm_table *table = GM_TABLE_NEW(one);

	gm_table_row(table);
	gm_table_none(table);
	gm_writer_table_or(writer, "none", GM_TABLE_NEW(columns), "There are none.");
	gm_writer_blank_line(writer);
	gm_writer_data(writer, "rows", table);
	writes(writer, HEADER "\nonly\n\"\"\n");
}
END_TEST

START_TEST(chosen_columns_are_the_only_ones)
{
	struct gm_writer *writer = gm_writer_csv_new(true);
	struct gm_table *table = GM_TABLE_NEW(columns);
	struct gm_view view = {0};
	char why[GM_VIEW_WHY];

	ck_assert_int_eq(gm_view_show(&view, columns, 6, "secret,name", why), 0);
	ck_assert_int_eq(gm_view_sort(&view, columns, 6, "-bytes", why), 0);
	row(table, "a", 1);
	row(table, "b", 2);
	gm_view_apply(&view, table);
	gm_writer_table(writer, "rows", table);
	writes(writer, "secret,name\n7,b\n7,a\n");
}
END_TEST

START_TEST(without_a_table_the_fields_are_a_row)
{
	for (int header = 0; header < 2; header++) {
		struct gm_writer *writer = gm_writer_csv_new(header);

		gm_writer_size(writer, "released", 4096);
		gm_writer_text(writer, "what", "a,b");
		gm_writer_text(writer, "nothing", NULL);
		writes(writer,
			header ? "released,what,nothing\n4096,\"a,b\",\n" : "4096,\"a,b\",\n");
	}
	writes(gm_writer_csv_new(true), "");
}
END_TEST

START_TEST(notes_go_to_stderr)
{
	struct gm_writer *writer = gm_writer_csv_new(true);
	struct gm_table *table = GM_TABLE_NEW(columns);
	FILE *file = tmpfile();
	char text[128] = "";

	ck_assert_ptr_nonnull(file);
	int saved = dup(STDERR_FILENO);
	ck_assert_int_ge(dup2(fileno(file), STDERR_FILENO), 0);
	gm_writer_table(writer, "rows", table);
	gm_writer_notes(writer);
	gm_writer_note(writer, "hidden", GM_MARK_NONE, "%d more", 3);
	gm_writer_note(writer, "pressure", GM_MARK_BAD, "\033");
	writes(writer, HEADER);
	dup2(saved, STDERR_FILENO);
	close(saved);

	rewind(file);
	ck_assert_uint_gt(fread(text, 1, sizeof(text) - 1, file), 0);
	ck_assert_str_eq(text, "3 more\n\\x1b\n");
	fclose(file);
}
END_TEST

START_TEST(a_full_disk_is_no_success)
{
	for (int table = 0; table < 2; table++) {
		struct gm_writer *writer = gm_writer_csv_new(true);
		FILE *full = fopen("/dev/full", "w");

		ck_assert_ptr_nonnull(full);
		gm_writer_text(writer, "data", "data");
		if (table)
			gm_writer_table(writer, "rows", GM_TABLE_NEW(columns));
		ck_assert_int_eq(gm_writer_finish(writer, full), -ENOSPC);
		fclose(full);
		gm_writer_free(writer);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("writer_csv");
	TCase *tcase = tcase_create("writer_csv");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, a_row_has_exact_numbers_and_nothing_for_what_is_not_known);
	tcase_add_test(tcase, what_would_end_a_value_is_quoted);
	tcase_add_test(tcase, names_from_clients_add_no_line_and_no_escape);
	tcase_add_test(tcase, a_name_cannot_become_a_formula_and_a_number_stays_one);
	tcase_add_test(tcase, each_kind_of_value_is_written_as_in_json);
	tcase_add_test(tcase, folded_rows_are_left_out_and_flat_ones_are_not);
	tcase_add_test(tcase, an_empty_line_stands_between_two_tables_and_nowhere_else);
	tcase_add_test(tcase, chosen_columns_are_the_only_ones);
	tcase_add_test(tcase, without_a_table_the_fields_are_a_row);
	tcase_add_test(tcase, notes_go_to_stderr);
	tcase_add_test(tcase, a_full_disk_is_no_success);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
