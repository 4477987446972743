/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* The two writers: ctl/io/writer.h, and the tables they show. */

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void setup(void)
{
	bool utf8;
	gm_text_init(&utf8);
}

static void row(struct gm_table *table, const char *name, uint64_t bytes)
{
	gm_table_row(table);
	gm_table_text(table, name);
	gm_table_size(table, bytes);
	gm_table_count(table, 7);
	gm_table_text(table, "fine");
	gm_table_none(table);
}

/* malloc'ed: what the writer writes. */
static char *written(struct gm_writer *writer)
{
	char *bytes = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&bytes, &n);

	ck_assert_int_eq(gm_writer_finish(writer, out), 0);
	fclose(out);
	gm_writer_free(writer);
	return bytes;
}

static struct gm_writer *text_writer(size_t width, bool legend, bool colour)
{
	struct gm_writer_style style = {.columns = width, .legend = legend, .colour = colour};
	return gm_writer_text_new(&style);
}

static void is_text(struct gm_writer *writer, const char *expected)
{
	char *text = written(writer);
	ck_assert_str_eq(text, expected);
	free(text);
}

static json_t *json_of(struct gm_writer *writer)
{
	char *text = written(writer);
	json_t *json = json_loads(text, 0, NULL);
	ck_assert_ptr_nonnull(json);
	free(text);
	return json;
}

START_TEST(a_table_aligns_numbers_to_the_right_and_leaves_no_blanks_behind)
{
	struct gm_writer *writer = text_writer(0, true, false);
	struct gm_table *table = gm_table_new(columns, N(columns));

	row(table, "a", 512);
	row(table, "longer", UINT64_C(48) << 30);
	gm_writer_table(writer, "rows", table);
	is_text(writer, "NAME    SIZE MOOD\n"
			"a       512B fine\n"
			"longer 48.0G fine\n");
}
END_TEST

START_TEST(without_a_legend_there_is_data_only)
{
	struct gm_writer *writer = text_writer(0, false, false);
	struct gm_table *table = gm_table_new(columns, N(columns));

	row(table, "a", 1);
	gm_writer_table(writer, "rows", table);
	is_text(writer, "a 1B fine\n");
}
END_TEST

START_TEST(an_optional_column_appears_with_its_first_value)
{
	struct gm_writer *writer = text_writer(0, true, false);
	struct gm_table *table = gm_table_new(columns, N(columns));

	row(table, "a", 1);
	gm_table_row(table);
	gm_table_text(table, NULL);
	gm_table_none(table);
	gm_table_none(table);
	gm_table_none(table);
	gm_table_text(table, "quarantined");
	gm_writer_table(writer, "rows", table);
	is_text(writer, "NAME SIZE MOOD NOTE\n"
			"a      1B fine -\n"
			"-       - -    quarantined\n");
}
END_TEST

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
		"! cut, too narrow: NAME; see --json\n",
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

START_TEST(names_from_clients_cannot_command_the_terminal)
{
	struct gm_writer *writer = text_writer(0, false, true);
	struct gm_table *table = gm_table_new(columns, N(columns));

	row(table, "\033]0;owned\007\377", 1);
	gm_writer_table(writer, "rows", table);
	gm_writer_line(writer, "label", "%s", "x\033[31m\ny");
	gm_writer_notes(writer);
	gm_writer_note(writer, "kind", GM_MARK_NONE, "%s", "\r!");
	is_text(writer, "\\x1b]0;owned\\x07\\xff 1B fine\n"
			"      label: x\\x1b[31m\\x0ay\n"
			"! \\x0d!\n");
}
END_TEST

START_TEST(colour_surrounds_marked_values_only_and_does_not_count_as_width)
{
	struct gm_writer *writer = text_writer(0, true, true);
	struct gm_table *table = gm_table_new(columns, 2);

	gm_table_row(table);
	gm_table_text(table, "ab");
	gm_table_mark(table, GM_MARK_BAD);
	gm_table_size(table, 1);
	gm_table_row(table);
	gm_table_text(table, "cd");
	gm_table_size(table, 1);
	gm_writer_table(writer, "rows", table);
	is_text(writer, "NAME SIZE\n\033[1;31mab\033[0m     1B\ncd     1B\n");
}
END_TEST

START_TEST(without_colour_no_escape_is_written)
{
	struct gm_writer *writer = text_writer(0, true, false);

	gm_writer_note(writer, "kind", GM_MARK_BAD, "device %d is full", 3);
	is_text(writer, "! device 3 is full\n");
}
END_TEST

START_TEST(time_that_is_left_has_two_units_and_a_factor_as_many_decimals_as_it_needs)
{
	static const struct gm_column kinds[] = {{"left_ms", "LEFT", 0}, {"by", "BY", 0}};
	struct gm_writer *writer = text_writer(0, false, false);
	struct gm_table *table = GM_TABLE_NEW(kinds);

	gm_table_row(table);
	gm_table_left(table, 90 * 1000);
	gm_table_factor(table, 1500000);
	gm_table_row(table);
	gm_table_left(table, 59999);
	gm_table_factor(table, 2000000);
	gm_table_row(table);
	gm_table_left(table, 350);
	gm_table_factor(table, 1050000);
	gm_writer_table(writer, "rows", table);
	is_text(writer, "1min 30s 1.5\n59s      2.0\n350ms    1.05\n");
}
END_TEST

START_TEST(a_table_shows_the_larger_unit_of_a_time)
{
	static const struct gm_column ages[] = {{"age_ms", "AGE", GM_COLUMN_RIGHT}};
	struct gm_writer *writer = text_writer(0, true, false);
	struct gm_table *table = gm_table_new(ages, N(ages));

	gm_table_row(table);
	gm_table_time(table, 200 * 1000);
	gm_table_row(table);
	gm_table_time(table, UINT64_MAX);
	gm_writer_table(writer, "rows", table);
	char *text = written(writer);
	ck_assert_ptr_nonnull(strstr(text, " 3min\n"));
	free(text);
}
END_TEST

START_TEST(rows_that_go_on_are_for_people_only)
{
	struct gm_writer *writer = text_writer(0, false, false);
	struct gm_table *table = gm_table_new(columns, N(columns));

	row(table, "a", 1);
	gm_table_more(table);
	gm_table_none(table);
	gm_table_size(table, 2);
	gm_table_none(table);
	gm_table_text(table, "so so");
	gm_table_none(table);
	gm_writer_table(writer, "rows", table);
	is_text(writer, "a 1B fine\n  2B so so\n");
}
END_TEST

START_TEST(json_has_the_keys_and_exact_numbers)
{
	struct gm_writer *writer = gm_writer_json_new();
	struct gm_table *table = gm_table_new(columns, N(columns));

	gm_writer_text(writer, "version", "1.2.3");
	gm_writer_text(writer, "nothing", NULL);
	gm_writer_bool(writer, "ok", true);
	gm_writer_size(writer, "huge", UINT64_C(1) << 60);
	gm_writer_count(writer, "past", UINT64_MAX);
	gm_writer_line(writer, "label", "for %s", "people");
	row(table, "a", 51539607552);
	gm_table_more(table);
	for (int i = 0; i < 5; i++)
		gm_table_none(table);
	gm_writer_table(writer, "rows", table);
	gm_writer_notes(writer);
	gm_writer_note(writer, "pressure", GM_MARK_BAD, "device %d", 0);

	json_t *json = json_of(writer);
	ck_assert_uint_eq(json_object_size(json), 7);
	ck_assert_str_eq(json_string_value(json_object_get(json, "version")), "1.2.3");
	ck_assert(json_is_null(json_object_get(json, "nothing")));
	ck_assert(json_is_true(json_object_get(json, "ok")));
	ck_assert_int_eq(json_integer_value(json_object_get(json, "huge")), INT64_C(1) << 60);
	ck_assert(json_is_null(json_object_get(json, "past")));
	json_t *rows = json_object_get(json, "rows");
	ck_assert_uint_eq(json_array_size(rows), 1);
	json_t *first = json_array_get(rows, 0);
	ck_assert_uint_eq(json_object_size(first), 4);
	ck_assert_str_eq(json_string_value(json_object_get(first, "name")), "a");
	ck_assert_int_eq(json_integer_value(json_object_get(first, "bytes")), 51539607552);
	ck_assert_int_eq(json_integer_value(json_object_get(first, "secret")), 7);
	ck_assert(json_is_null(json_object_get(first, "note")));
	json_t *warning = json_array_get(json_object_get(json, "warnings"), 0);
	ck_assert_str_eq(json_string_value(json_object_get(warning, "kind")), "pressure");
	ck_assert_str_eq(json_string_value(json_object_get(warning, "text")), "device 0");
	json_decref(json);
}
END_TEST

START_TEST(json_nests_rows_and_writes_shares_as_fractions)
{
	static const struct gm_column outer[] = {{"use", NULL, 0}, {"pressure", "PRESSURE", 0}};
	static const struct gm_column inner[] = {{"device", NULL, 0}};
	struct gm_writer *writer = gm_writer_json_new();
	struct gm_table *table = gm_table_new(outer, N(outer));
	struct gm_table *use = gm_table_new(inner, N(inner));

	gm_table_row(use);
	gm_table_count(use, 3);
	gm_table_row(table);
	gm_table_rows(table, use);
	gm_table_share(table, 380000);
	gm_writer_data(writer, "rows", table);
	json_t *json = json_of(writer);
	json_t *first = json_array_get(json_object_get(json, "rows"), 0);
	json_t *nested = json_array_get(json_object_get(first, "use"), 0);
	ck_assert_int_eq(json_integer_value(json_object_get(nested, "device")), 3);
	ck_assert_double_eq_tol(json_real_value(json_object_get(first, "pressure")), 0.38, 1e-9);
	json_decref(json);
}
END_TEST

START_TEST(rows_that_several_rows_have_are_written_for_each_and_stay_with_their_owner)
{
	static const struct gm_column outer[] = {{"stack", NULL, GM_COLUMN_NESTED}};
	static const struct gm_column frames[] = {{"line", NULL, 0}};
	struct gm_writer *writer = gm_writer_json_new();
	struct gm_table *table = GM_TABLE_NEW(outer), *stack = GM_TABLE_NEW(frames);

	gm_table_row(stack);
	gm_table_count(stack, 7);
	for (int i = 0; i < 3; i++) {
		gm_table_row(table);
		gm_table_same_rows(table, stack);
	}
	gm_writer_table(writer, "rows", table);
	ck_assert_uint_eq(stack->n_rows, 1);
	json_t *json = json_of(writer);
	for (size_t i = 0; i < 3; i++) {
		const json_t *row = json_array_get(json_object_get(json, "rows"), i);
		const json_t *frame = json_array_get(json_object_get(row, "stack"), 0);
		ck_assert_int_eq(json_integer_value(json_object_get(frame, "line")), 7);
	}
	json_decref(json);
	gm_table_free(stack);
}
END_TEST

START_TEST(a_stack_that_lacks_memory_is_not_shown)
{
	static const struct gm_column outer[] = {{"stack", NULL, GM_COLUMN_NESTED}};
	struct gm_table *table = GM_TABLE_NEW(outer);

	gm_table_row(table);
	gm_table_same_rows(table, NULL);
	ck_assert(table->no_memory);
	gm_table_free(table);
}
END_TEST

START_TEST(json_survives_names_that_are_no_utf8)
{
	struct gm_writer *writer = gm_writer_json_new();
	struct gm_table *table = gm_table_new(columns, N(columns));

	row(table, "\377\033[2J\302\233", 1);
	gm_writer_table(writer, "rows", table);
	char *text = written(writer);
	for (const char *c = text; *c; c++)
		ck_assert(*c == '\n' || (*c >= ' ' && *c <= '~'));
	json_t *json = json_loads(text, 0, NULL);
	ck_assert_ptr_nonnull(json);
	json_decref(json);
	free(text);
}
END_TEST

START_TEST(one_line_has_groups_of_fields_and_ends_with_the_line)
{
	struct gm_writer *writer = gm_writer_json_line_new();

	gm_writer_text(writer, "event", "a\nb");
	gm_writer_group(writer, "rungs");
	gm_writer_size(writer, "pool", 1);
	gm_writer_size(writer, "cached", UINT64_MAX);
	gm_writer_group(writer, NULL);
	gm_writer_signed(writer, "priority", -3);
	gm_writer_share(writer, "pressure", 812345);
	gm_writer_group(writer, "empty");
	is_text(writer, "{\"event\":\"a\\\\x0ab\","
			"\"rungs\":{\"pool\":1,\"cached\":null},"
			"\"priority\":-3,\"pressure\":0.812345,\"empty\":{}}\n");
	/* People get none of it. */
	writer = text_writer(0, true, false);
	gm_writer_group(writer, "rungs");
	gm_writer_size(writer, "pool", 1);
	gm_writer_group(writer, NULL);
	is_text(writer, "");
}
END_TEST

START_TEST(a_table_that_lacks_memory_is_not_shown)
{
	struct gm_writer *writers[] = {text_writer(0, true, false), gm_writer_json_new()};
	char *bytes = NULL;
	size_t n = 0;

	for (size_t i = 0; i < N(writers); i++) {
		FILE *out = open_memstream(&bytes, &n);
		struct gm_table *table = gm_table_new(columns, N(columns));
		row(table, "a", 1);
		table->no_memory = true;
		gm_writer_table(writers[i], "rows", table);
		gm_writer_table(writers[i], "none", NULL);
		ck_assert_int_eq(gm_writer_finish(writers[i], out), -ENOMEM);
		fclose(out);
		ck_assert_uint_eq(n, 0);
		free(bytes);
		gm_writer_free(writers[i]);
	}
	row(NULL, "values for a table that was never made", 1);
}
END_TEST

START_TEST(a_full_disk_is_reported)
{
	struct gm_writer *writers[] = {text_writer(0, true, false), gm_writer_json_new()};

	for (size_t i = 0; i < N(writers); i++) {
		FILE *full = fopen("/dev/full", "w");
		ck_assert_ptr_nonnull(full);
		gm_writer_line(writers[i], "", "%s", "data");
		gm_writer_text(writers[i], "data", "data");
		ck_assert_int_eq(gm_writer_finish(writers[i], full), -ENOSPC);
		fclose(full);
		gm_writer_free(writers[i]);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("writer");
	TCase *tcase = tcase_create("writer");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, a_table_aligns_numbers_to_the_right_and_leaves_no_blanks_behind);
	tcase_add_test(tcase, without_a_legend_there_is_data_only);
	tcase_add_test(tcase, an_optional_column_appears_with_its_first_value);
	tcase_add_test(tcase, a_narrow_terminal_cuts_the_widest_column_that_may_shrink);
	tcase_add_loop_test(
		tcase, a_name_is_cut_after_others_until_it_is_as_short_as_they_are, 0, 5);
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
	tcase_add_test(tcase, names_from_clients_cannot_command_the_terminal);
	tcase_add_test(tcase, colour_surrounds_marked_values_only_and_does_not_count_as_width);
	tcase_add_test(tcase, without_colour_no_escape_is_written);
	tcase_add_test(tcase, a_table_shows_the_larger_unit_of_a_time);
	tcase_add_test(
		tcase, time_that_is_left_has_two_units_and_a_factor_as_many_decimals_as_it_needs);
	tcase_add_test(tcase, rows_that_go_on_are_for_people_only);
	tcase_add_test(tcase, json_has_the_keys_and_exact_numbers);
	tcase_add_test(tcase, json_nests_rows_and_writes_shares_as_fractions);
	tcase_add_test(
		tcase, rows_that_several_rows_have_are_written_for_each_and_stay_with_their_owner);
	tcase_add_test(tcase, a_stack_that_lacks_memory_is_not_shown);
	tcase_add_test(tcase, json_survives_names_that_are_no_utf8);
	tcase_add_test(tcase, one_line_has_groups_of_fields_and_ends_with_the_line);
	tcase_add_test(tcase, a_table_that_lacks_memory_is_not_shown);
	tcase_add_test(tcase, a_full_disk_is_reported);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
