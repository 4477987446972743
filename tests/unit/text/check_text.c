/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* What reaches a terminal: common/text/text.c. */

#include <stdlib.h>
#include <string.h>

#include "common/text/text.h"
#include "tests/tap.h"

static void setup(void)
{
	bool utf8;
	gm_text_init(&utf8);
}

static void cleans(const char *text, bool ascii, const char *expected)
{
	char *clean = gm_text_clean(text, ascii);
	ck_assert_str_eq(clean, expected);
	free(clean);
}

static void fits(const char *text, size_t columns, const char *expected)
{
	char *fit = gm_text_fit(text, columns, false);
	ck_assert_str_eq(fit, expected);
	ck_assert_uint_le(gm_text_width(fit), columns);
	free(fit);
}

START_TEST(printable_text_stays_as_it_is)
{
	cleans("", false, "");
	cleans("worker 7 (träge) 重み 🙂 \\ \"x\"", false,
		"worker 7 (träge) 重み 🙂 \\ \"x\"");
}
END_TEST

START_TEST(control_characters_are_written_out)
{
	cleans("\033[2Jgone", false, "\\x1b[2Jgone");
	cleans("a\rb\nc\td\177", false, "a\\x0db\\x0ac\\x09d\\x7f");
	cleans("\302\233"
	       "31m",
		false, "\\x9b31m"); /* CSI as one C1 character */
}
END_TEST

START_TEST(invalid_utf8_is_written_out_byte_by_byte)
{
	cleans("a\377b", false, "a\\xffb");
	cleans("\300\257", false, "\\xc0\\xaf");                   /* an overlong slash */
	cleans("\355\240\200", false, "\\xed\\xa0\\x80");          /* a surrogate */
	cleans("\364\220\200\200", false, "\\xf4\\x90\\x80\\x80"); /* past the last plane */
	cleans("cut \342\202", false, "cut \\xe2\\x82");
}
END_TEST

START_TEST(text_that_would_turn_or_hide_its_neighbours_is_written_out)
{
	cleans("abc\342\200\256fed", false, "abc\\u202efed");
	cleans("zero\342\200\213width", false, "zero\\u200bwidth");
	cleans("\342\201\246x\342\201\251", false, "\\u2066x\\u2069");
	cleans("\363\240\201\201", false, "\\U000e0041");
	cleans("line\342\200\250sep", false, "line\\u2028sep");
}
END_TEST

START_TEST(every_single_byte_comes_out_printable)
{
	for (int byte = 1; byte < 256; byte++) {
		char text[2] = {(char)byte, '\0'};
		char *clean = gm_text_clean(text, false);
		for (const char *c = clean; *c; c++)
			ck_assert(*c >= ' ' && *c <= '~');
		free(clean);
	}
}
END_TEST

START_TEST(every_code_point_is_clean_after_cleaning)
{
	for (unsigned long point = 1; point < 0x110000; point += point < 0x3000 ? 1 : 37) {
		char text[5] = {0};
		if (point < 0x80) {
			text[0] = (char)point;
		} else if (point < 0x800) {
			text[0] = (char)(0xc0 | point >> 6);
			text[1] = (char)(0x80 | (point & 63));
		} else if (point < 0x10000) {
			text[0] = (char)(0xe0 | point >> 12);
			text[1] = (char)(0x80 | (point >> 6 & 63));
			text[2] = (char)(0x80 | (point & 63));
		} else {
			text[0] = (char)(0xf0 | point >> 18);
			text[1] = (char)(0x80 | (point >> 12 & 63));
			text[2] = (char)(0x80 | (point >> 6 & 63));
			text[3] = (char)(0x80 | (point & 63));
		}
		char *once = gm_text_clean(text, false), *twice = gm_text_clean(once, false);
		ck_assert_str_eq(once, twice);
		free(once);
		free(twice);
	}
}
END_TEST

START_TEST(a_terminal_of_ascii_gets_ascii)
{
	cleans("träge…", true, "tr?ge?");
	cleans("\033", true, "\\x1b");
}
END_TEST

START_TEST(width_counts_columns_not_bytes)
{
	ck_assert_uint_eq(gm_text_width(""), 0);
	ck_assert_uint_eq(gm_text_width("abc"), 3);
	ck_assert_uint_eq(gm_text_width("träge"), 5);
	ck_assert_uint_eq(gm_text_width("重み"), 4);
	ck_assert_uint_eq(gm_text_width("e\314\201"), 1); /* e and a combining acute */
}
END_TEST

START_TEST(what_does_not_fit_is_cut_at_a_character)
{
	fits("abcdef", 6, "abcdef");
	fits("abcdef", 5, "abcd…");
	fits("abcdef", 1, "…");
	fits("重み重み", 8, "重み重み");
	fits("重み重み", 7, "重み重…");
	fits("重み重み", 6, "重み…"); /* half of a wide one would be left: it goes too */
	fits("ae\314\201bc", 3, "ae\314\201…");
	char *fit = gm_text_fit("abcdef", 4, true);
	ck_assert_str_eq(fit, "abc~");
	free(fit);
}
END_TEST

static void fits_name(const char *text, size_t columns, const char *expected)
{
	char *fit = gm_text_fit_name(text, columns, false);
	ck_assert_str_eq(fit, expected);
	ck_assert_uint_le(gm_text_width(fit), columns);
	free(fit);
}

START_TEST(a_name_is_cut_in_the_middle_so_that_its_end_stays)
{
	fits_name("abcdef", 6, "abcdef");
	fits_name("abcdef", 5, "a…def");
	fits_name("abcdef", 2, "…f");
	fits_name("abcdef", 1, "…");
	fits_name("重み重み", 8, "重み重み");
	fits_name("重み重み", 7, "重…重み");
	fits_name("重み重み", 6, "…重み"); /* half of a wide one would be left: it goes too */
	fits_name("e\314\201abce\314\201", 4, "e\314\201…ce\314\201");
	fits_name("meta-llama-3-70b-instruct-00002-of-00003", 16, "meta-…2-of-00003");
	fits_name("systemd-timesync", 8, "sy…esync");
	char *fit = gm_text_fit_name("abcdef", 4, true);
	ck_assert_str_eq(fit, "a~ef");
	free(fit);
}
END_TEST

static void fits_path(const char *text, size_t columns, const char *expected)
{
	char *fit = gm_text_fit_path(text, columns, false);
	ck_assert_str_eq(fit, expected);
	ck_assert_uint_le(gm_text_width(fit), columns);
	free(fit);
}

START_TEST(a_path_is_cut_at_its_front)
{
	fits_path("/etc/a.conf:7", 13, "/etc/a.conf:7");
	fits_path("/etc/a.conf:7", 12, "…tc/a.conf:7");
	fits_path("/etc/a.conf:7", 4, "…f:7");
	fits_path("/etc/a.conf:7", 1, "…");
	fits_path("/重み/重み", 8, "…み/重み");
	fits_path("/重み/重み", 7, "…/重み"); /* half of a wide one would be left: it goes too */
	fits_path("/ae\314\201bc", 3, "…bc");
	fits_path("/ae\314\201bc", 4, "…e\314\201bc");
	char *fit = gm_text_fit_path("/etc/a.conf:7", 9, true);
	ck_assert_str_eq(fit, "~a.conf:7");
	free(fit);
}
END_TEST

START_TEST(words_before_a_path_stay_if_the_name_has_room)
{
	fits_path("after a restart: /etc/a.conf:7", 29, "after a restart: …tc/a.conf:7");
	fits_path("after a restart: /etc/a.conf:7", 27, "after a restart: …/a.conf:7");
	fits_path("after a restart: /etc/a.conf:7", 26, "… a restart: /etc/a.conf:7");
	fits_path("after a restart: /etc/a.conf:7", 12, "…tc/a.conf:7");
}
END_TEST

START_TEST(words_without_a_path_are_cut_at_their_end)
{
	fits_path("set at run time, in no file", 16, "set at run time…");
	fits_path("default", 7, "default");
}
END_TEST

static void wraps(const char *text, size_t columns, const char *expected)
{
	char *copy = strdup(text);
	gm_text_wrap(copy, columns);
	ck_assert_str_eq(copy, expected);
	free(copy);
}

START_TEST(a_long_line_breaks_between_words)
{
	wraps("", 5, "");
	wraps("one two", 7, "one two");
	wraps("one two", 6, "one\ntwo");
	wraps("one two three four", 9, "one two\nthree\nfour");
	wraps("a wordthatistoolong b c", 6, "a\nwordthatistoolong\nb c");
	wraps("重み 重み", 9, "重み 重み");
	wraps("重み 重み", 8, "重み\n重み");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("text");
	TCase *tcase = tcase_create("text");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, printable_text_stays_as_it_is);
	tcase_add_test(tcase, control_characters_are_written_out);
	tcase_add_test(tcase, invalid_utf8_is_written_out_byte_by_byte);
	tcase_add_test(tcase, text_that_would_turn_or_hide_its_neighbours_is_written_out);
	tcase_add_test(tcase, every_single_byte_comes_out_printable);
	tcase_add_test(tcase, every_code_point_is_clean_after_cleaning);
	tcase_add_test(tcase, a_terminal_of_ascii_gets_ascii);
	tcase_add_test(tcase, width_counts_columns_not_bytes);
	tcase_add_test(tcase, what_does_not_fit_is_cut_at_a_character);
	tcase_add_test(tcase, a_name_is_cut_in_the_middle_so_that_its_end_stays);
	tcase_add_test(tcase, a_path_is_cut_at_its_front);
	tcase_add_test(tcase, words_before_a_path_stay_if_the_name_has_room);
	tcase_add_test(tcase, words_without_a_path_are_cut_at_their_end);
	tcase_add_test(tcase, a_long_line_breaks_between_words);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
