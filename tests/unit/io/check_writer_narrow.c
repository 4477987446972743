/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* What the writers cut, leave out and wrap where a table or a line is too wide: ctl/io/writer.h. */

#include <string.h>

#include "tests/unit/io/writer_fixture.h"

START_TEST(a_narrow_terminal_cuts_the_widest_column_that_may_shrink)
{
	struct gm_writer *writer = text_writer(20, true, false);
	struct gm_table *table = gm_table_new(columns, N(columns));

	row(table, "a name that is far too long", 512);
	row(table, "重み重み重み重み", 512);
	gm_writer_table(writer, "rows", table);
	is_text(writer, "NAME       SIZE MOOD\n"
			"a name th… 512B fine\n"
			"重み重み…  512B fine\n"
			"! cut, too narrow: NAME; see --json\n");
}
END_TEST

START_TEST(a_name_is_cut_after_others_until_it_is_as_short_as_they_are)
{
	static const struct gm_column texts[] = {
		{"user", "USER", GM_COLUMN_SHRINK},
		{"name", "NAME", GM_COLUMN_NAME},
	};
	static const char *const expected[] = {
		"USER     NAME\nsomebod… a name that goes on\n! cut, too narrow: USER;\n  see --json\n",
		"USER     NAME\nsomebod… a nam…at goes on\n! cut, too narrow:\n  USER, NAME; see --json\n",
		"USER     NAME\nsomebod… a …es on\n! cut, too narrow: USER, NAME; see --json\n",
		"USER NAME\nsom… a …es on\n! cut, too narrow: USER, NAME; see --json\n",
		"USER NAME\nsom… a …s on\n! cut, too narrow: USER, NAME; see --json\n",
	};
	static const size_t widths[] = {28, 25, 17, 13, 12};

	struct gm_writer *writer = text_writer(widths[_i], true, false);
	struct gm_table *table = GM_TABLE_NEW(texts);
	gm_table_row(table);
	gm_table_text(table, "somebody else");
	gm_table_text(table, "a name that goes on");
	gm_writer_table(writer, "rows", table);
	is_text(writer, expected[_i]);
}
END_TEST

START_TEST(names_that_read_the_same_when_they_are_cut_are_said_to_differ)
{
	static const struct gm_column names[] = {{"name", "NAME", GM_COLUMN_NAME}};
	struct gm_writer *writer = text_writer(12, true, false);
	struct gm_table *table = GM_TABLE_NEW(names);

	for (int i = 1; i < 3; i++) {
		char name[32];
		snprintf(name, sizeof(name), "train seed %d november", i);
		gm_table_row(table);
		gm_table_text(table, name);
	}
	gm_writer_table(writer, "rows", table);
	is_text(writer, "NAME\ntra…november\ntra…november\n"
			"! cut, too narrow: NAME (different ones read the same); see --json\n");
}
END_TEST

START_TEST(a_very_long_name_leaves_room_for_the_texts_beside_it)
{
	static const struct gm_column texts[] = {
		{"client", "CLIENT", GM_COLUMN_SHRINK},
		{"name", "NAME", GM_COLUMN_NAME},
	};
	static const char *const expected[] = {
		"CLIENT           NAME\na client with a… the tag of…as long as a sentence\n"
		"! cut, too narrow: CLIENT, NAME; see --json\n",
		"CLIENT    NAME\na client… the tag of…as long as a sentence\n"
		"! cut, too narrow: CLIENT, NAME; see\n  --json\n",
		"CLIENT   NAME\na clien… the tag of…s long as a sentence\n"
		"! cut, too narrow: CLIENT, NAME; see\n  --json\n",
	};
	static const size_t widths[] = {49, 42, 40};

	struct gm_writer *writer = text_writer(widths[_i], true, false);
	struct gm_table *table = GM_TABLE_NEW(texts);
	gm_table_row(table);
	gm_table_text(table, "a client with a long name");
	gm_table_text(table, "the tag of a buffer, which is as long as a sentence");
	gm_writer_table(writer, "rows", table);
	is_text(writer, expected[_i]);
}
END_TEST

START_TEST(what_can_be_spared_is_left_out_from_the_end_and_named)
{
	static const struct gm_column many[] = {
		{"one", "ONE", GM_COLUMN_SPARE},
		{"two", "TWO", GM_COLUMN_NAME},
		{"three", "THREE", GM_COLUMN_SPARE},
		{"four", "FOUR", 0},
		{"five", "FIVE", GM_COLUMN_SPARE},
	};
	static const char word[] = "0123456789012345678901234567890123456789";
	static const struct gm_view view = {0};
	struct gm_writer *writer = text_writer(80, true, false);
	struct gm_table *table = GM_TABLE_NEW(many);

	gm_table_row(table);
	gm_table_text(table, "short");
	gm_table_text(table, word);
	gm_table_text(table, word);
	gm_table_text(table, word);
	gm_table_text(table, "x");
	gm_view_apply(&view, table);
	gm_writer_table(writer, "rows", table);
	is_text(writer, "ONE   TWO                               FOUR\n"
			"short 0123456789…8901234567890123456789 "
			"0123456789012345678901234567890123456789\n"
			"! not shown, too narrow: THREE, FIVE; see --columns\n"
			"! cut, too narrow: TWO; see --columns or --json\n");
}
END_TEST

START_TEST(a_user_is_not_cut_while_a_column_can_be_spared)
{
	static const struct gm_column of_users[] = {
		{"user", "USER", GM_COLUMN_OWNER},
		{"why", "WHY", GM_COLUMN_SHRINK},
		{"size", "SIZE", GM_COLUMN_RIGHT},
		{"age", "AGE", GM_COLUMN_SPARE | GM_COLUMN_LAST},
		{"prio", "PRIO", GM_COLUMN_SPARE},
		{"for", "FOR", GM_COLUMN_OWNER},
	};
	struct gm_writer *writer = text_writer(80, true, false);
	struct gm_table *table = GM_TABLE_NEW(of_users);

	gm_table_row(table);
	gm_table_text(table, "systemd-timesync");
	gm_table_text(table, "why it waits, in a sentence");
	gm_table_size(table, UINT64_C(354) << 20);
	gm_table_text(table, "3min");
	gm_table_text(table, "-1000000000");
	gm_table_text(table, "uid:systemd-network-and-more-of-it");
	gm_writer_table(writer, "rows", table);
	is_text(writer,
		"USER             WHY                SIZE AGE  FOR\n"
		"systemd-timesync why it waits, i… 354.0M 3min uid:systemd-network-and-more-of-it\n"
		"! not shown, too narrow: PRIO; see --json\n"
		"! cut, too narrow: WHY; see --json\n");
}
END_TEST

START_TEST(columns_are_left_out_until_names_that_differ_read_differently)
{
	static const struct gm_column of_names[] = {
		{"name", "NAME", GM_COLUMN_NAME},
		{"text", "TEXT", 0},
		{"more", "MORE", GM_COLUMN_SPARE},
	};
	static const char *const names[][2] = {
		{"a-name-0001-that-ends-as-others-do", "a-name-0002-that-ends-as-others-do"},
		{"a-long-name-that-differs-1-and-ends-as-the-names-of-all-others",
			"a-long-name-that-differs-2-and-ends-as-the-names-of-all-others"},
	};
	static const char *const expected[] = {
		"NAME                               TEXT\n"
		"a-name-0001-that-ends-as-others-do 0123456789012345678901234567890123456789\n"
		"a-name-0002-that-ends-as-others-do 0123456789012345678901234567890123456789\n"
		"! not shown, too narrow: MORE; see --json\n",
		/* If that does not help, the columns stay. */
		"NAME                     TEXT                                     MORE\n"
		"a-long-…es-of-all-others 0123456789012345678901234567890123456789 "
		"01234567890123\n"
		"a-long-…es-of-all-others 0123456789012345678901234567890123456789 "
		"01234567890123\n"
		"! cut, too narrow: NAME (different ones read the same); see --json\n",
	};
	struct gm_writer *writer = text_writer(80, true, false);
	struct gm_table *table = GM_TABLE_NEW(of_names);

	for (size_t i = 0; i < 2; i++) {
		gm_table_row(table);
		gm_table_text(table, names[_i][i]);
		gm_table_text(table, "0123456789012345678901234567890123456789");
		gm_table_text(table, "01234567890123");
	}
	gm_writer_table(writer, "rows", table);
	is_text(writer, expected[_i]);
}
END_TEST

START_TEST(a_table_that_is_too_wide_for_a_large_terminal_is_a_list)
{
	static const struct gm_column wide[] = {{"one", "ONE", 0}, {"two", "TWO", GM_COLUMN_NAME}};
	static const char word[] = "012345678901234567890123456789012345678901234567890123456789"
				   "012345678901234567890";
	struct gm_writer *writer = text_writer(80, true, false);
	struct gm_table *table = GM_TABLE_NEW(wide);

	gm_table_row(table);
	gm_table_text(table, word + 3);
	gm_table_text(table, word);
	gm_writer_table(writer, "rows", table);
	is_text(writer,
		"ONE: 3456789012345678901234567890123456789012345678901234567890123456789012"
		"3456…\n"
		"TWO: 012345678901234567890123…123456789012345678901234567890123456789012"
		"34567890\n"
		"! cut, too narrow: ONE, TWO; see --json\n");
}
END_TEST

START_TEST(long_lines_and_notes_are_wrapped_where_the_terminal_ends)
{
	struct gm_writer *writer = text_writer(40, true, false);

	gm_writer_line(writer, "label", "one two three four five six seven eight");
	gm_writer_line(writer, "", "  one two three four five six seven eight nine");
	gm_writer_line(writer, "", "one two three four five six seven eight nine");
	gm_writer_notes(writer);
	gm_writer_note(writer, "kind", GM_MARK_NONE, "one two three four five six seven eight");
	gm_writer_note(writer, "kind", GM_MARK_NONE, "%s",
		"a /path/that/is/much/longer/than/a/line/of/the/terminal ends");
	is_text(writer, "      label: one two three four five six\n"
			"             seven eight\n"
			"  one two three four five six seven\n"
			"    eight nine\n"
			"one two three four five six seven eight\n"
			"nine\n"
			"! one two three four five six seven\n"
			"  eight\n"
			"! a\n"
			"  /path/that/is/much/longer/than/a/line/of/the/terminal\n"
			"  ends\n");
}
END_TEST

START_TEST(nothing_is_wrapped_in_a_file_or_on_a_tiny_terminal)
{
	for (size_t i = 0; i < 2; i++) {
		struct gm_writer *writer = text_writer(i ? 15 : 0, true, false);
		gm_writer_line(writer, "label", "one two three four five six seven");
		is_text(writer, "      label: one two three four five six seven\n");
	}
}
END_TEST

START_TEST(where_a_table_does_not_fit_its_rows_are_lists)
{
	static const struct gm_column wide[] = {
		{"device", "DEV", GM_COLUMN_RIGHT},
		{"tag", "A LONG HEADING", GM_COLUMN_SHRINK},
		{"held", "HELD BY ALL", GM_COLUMN_RIGHT},
		{"state", "STATE", 0},
	};
	static const char *const expected[] = {
		"           DEV: 0\n"
		"A LONG HEADING: a tag that goes on\n"
		"   HELD BY ALL: 512B\n"
		"         STATE: -\n"
		"\n"
		"           DEV: 1\n"
		"A LONG HEADING: b\n"
		"   HELD BY ALL: 1B\n"
		"         STATE: over\n",
		/* As a table, it just fits. */
		"DEV A LONG HEADING HELD BY ALL STATE\n"
		"  0 a tag that go…        512B -\n"
		"  1 b                       1B over\n"
		"! cut, too narrow: A LONG HEADING;\n  see --json\n",
	};

	struct gm_writer *writer = text_writer(_i ? 36 : 35, true, false);
	struct gm_table *table = gm_table_new(wide, N(wide));
	for (uint64_t i = 0; i < 2; i++) {
		gm_table_row(table);
		gm_table_count(table, i);
		gm_table_text(table, i ? "b" : "a tag that goes on");
		gm_table_size(table, i ? 1 : 512);
		gm_table_text(table, i ? "over" : NULL);
	}
	gm_writer_table(writer, "rows", table);
	is_text(writer, expected[_i]);
}
END_TEST

START_TEST(numbers_of_bytes_fit_in_80_columns_and_their_unit_is_named_once)
{
	static const struct gm_column sizes[] = {
		{"device", "DEV", GM_COLUMN_RIGHT},
		{"total", "TOTAL", GM_COLUMN_RIGHT},
		{"capacity", "CAPACITY", GM_COLUMN_RIGHT},
		{"leased", "LEASED", GM_COLUMN_RIGHT},
		{"pooled", "POOLED", GM_COLUMN_RIGHT},
		{"foreign", "FOREIGN", GM_COLUMN_RIGHT},
		{"available", "AVAIL", GM_COLUMN_RIGHT},
	};
	struct gm_writer_style style = {.columns = 80, .legend = true, .plain_bytes = true};
	struct gm_writer *writer = gm_writer_text_new(&style);
	struct gm_table *table = gm_table_new(sizes, N(sizes));
	char text[GM_UNITS_TEXT];

	gm_table_row(table);
	gm_table_count(table, 0);
	for (int i = 1; i < 7; i++)
		gm_table_size(table, UINT64_C(150754820096));
	gm_writer_table(writer, "rows", table);
	gm_writer_line(writer, "", "%s at once", gm_writer_bytes(writer, 2097152, text));
	is_text(writer, "     DEV: 0\n"
			"   TOTAL: 150754820096\n"
			"CAPACITY: 150754820096\n"
			"  LEASED: 150754820096\n"
			"  POOLED: 150754820096\n"
			" FOREIGN: 150754820096\n"
			"   AVAIL: 150754820096\n"
			"2097152 at once\n"
			"Sizes are in bytes.\n");

	/* A program that asks for no headings wants nothing but data. */
	style.legend = false;
	writer = gm_writer_text_new(&style);
	gm_writer_line(writer, "", "%s", gm_writer_bytes(writer, 2097152, text));
	is_text(writer, "2097152\n");
}
END_TEST

START_TEST(a_terminal_narrower_than_any_table_still_gets_one)
{
	struct gm_writer *writer = text_writer(1, true, false);
	struct gm_table *table = gm_table_new(columns, N(columns));

	row(table, "a long name", 512);
	gm_writer_table(writer, "rows", table);
	is_text(writer, "NAME SIZE MOOD\na l… 512B fine\n"
			"! cut, too narrow: NAME; see --json\n");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("writer_narrow");
	TCase *tcase = tcase_create("writer_narrow");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, a_narrow_terminal_cuts_the_widest_column_that_may_shrink);
	tcase_add_loop_test(
		tcase, a_name_is_cut_after_others_until_it_is_as_short_as_they_are, 0, 5);
	tcase_add_test(tcase, names_that_read_the_same_when_they_are_cut_are_said_to_differ);
	tcase_add_loop_test(tcase, a_very_long_name_leaves_room_for_the_texts_beside_it, 0, 3);
	tcase_add_test(tcase, what_can_be_spared_is_left_out_from_the_end_and_named);
	tcase_add_test(tcase, a_user_is_not_cut_while_a_column_can_be_spared);
	tcase_add_loop_test(
		tcase, columns_are_left_out_until_names_that_differ_read_differently, 0, 2);
	tcase_add_test(tcase, a_table_that_is_too_wide_for_a_large_terminal_is_a_list);
	tcase_add_test(tcase, long_lines_and_notes_are_wrapped_where_the_terminal_ends);
	tcase_add_test(tcase, nothing_is_wrapped_in_a_file_or_on_a_tiny_terminal);
	tcase_add_loop_test(tcase, where_a_table_does_not_fit_its_rows_are_lists, 0, 2);
	tcase_add_test(tcase, numbers_of_bytes_fit_in_80_columns_and_their_unit_is_named_once);
	tcase_add_test(tcase, a_terminal_narrower_than_any_table_still_gets_one);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
