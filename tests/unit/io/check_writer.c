/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* The two writers: ctl/io/writer.h, and the tables they show. */

#include <errno.h>
#include <string.h>

#include "tests/unit/io/writer_fixture.h"

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
	gm_writer_group(writer, "stages");
	gm_writer_size(writer, "pool", 1);
	gm_writer_size(writer, "cached", UINT64_MAX);
	gm_writer_group(writer, NULL);
	gm_writer_signed(writer, "priority", -3);
	gm_writer_share(writer, "pressure", 812345);
	gm_writer_group(writer, "empty");
	is_text(writer, "{\"event\":\"a\\\\x0ab\","
			"\"stages\":{\"pool\":1,\"cached\":null},"
			"\"priority\":-3,\"pressure\":0.812345,\"empty\":{}}\n");
	/* People get none of it. */
	writer = text_writer(0, true, false);
	gm_writer_group(writer, "stages");
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
	tcase_add_test(tcase, names_from_clients_cannot_command_the_terminal);
	tcase_add_test(tcase, colour_surrounds_marked_values_only_and_does_not_count_as_width);
	tcase_add_test(tcase, without_colour_no_escape_is_written);
	tcase_add_test(
		tcase, time_that_is_left_has_two_units_and_a_factor_as_many_decimals_as_it_needs);
	tcase_add_test(tcase, a_table_shows_the_larger_unit_of_a_time);
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
