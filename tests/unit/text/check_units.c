/* SPDX-License-Identifier: Apache-2.0 */

/* Sizes, times, fractions, names: what people write, and what somebody writes who means harm. */

#include <errno.h>
#include <string.h>

#include "common/bounds.h"
#include "common/text/units.h"
#include "tests/bound.h"
#include "tests/tap.h"

#define K         UINT64_C(1024)
#define UNTOUCHED UINT64_C(0xfeedfacecafebeef)

START_TEST(sizes_are_read_as_people_write_them)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} rows[] = {
		{"0", 0},
		{"4096", 4096},
		{"007", 7},
		{"64K", 64 * K},
		{"64k", 64 * K},
		{"64KiB", 64 * K},
		{"64KB", 64 * K},
		{"10B", 10},
		{"512M", 512 * K * K},
		{"1.5G", 1536 * K * K},
		{"2T", 2 * K * K * K * K},
		{"1P", K * K * K * K * K},
		{"0.5E", K * K * K * K * K * K / 2},
		{"0.0001K", 0},
		{"0.001K", 1},
		{"18446744073709551615", UINT64_MAX},
		{"15.999999999999999E", UINT64_C(18446744073709550463)},
		{"1.0000000000000000000000000000001K", 1024},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t bytes = UNTOUCHED;
		ck_assert_msg(gm_parse_size(rows[i].text, &bytes) == 0, "%s", rows[i].text);
		ck_assert_msg(bytes == rows[i].bytes, "%s: %llu", rows[i].text,
			(unsigned long long)bytes);
	}
}
END_TEST

START_TEST(what_is_no_size_is_refused_and_changes_nothing)
{
	static const char *const texts[] = {"", " ", "K", "-1", "+1", " 1", "1 ", "1 K", "1,5G",
		".5G", "1.G", "1.", "1.5", "1.5B", "1..5G", "0x10", "1KK", "1Ki", "1iB", "1BB",
		"1KBB", "1KiBB", "1e3", "1Z", "nan", "inf", "12\n", "1\xc2\xa0K", "1K;",
		"99999999999999999999999999Q"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		uint64_t bytes = UNTOUCHED;
		ck_assert_msg(gm_parse_size(texts[i], &bytes) == -EINVAL, "\"%s\"", texts[i]);
		ck_assert(bytes == UNTOUCHED);
	}
}
END_TEST

START_TEST(a_size_without_its_unit_is_found_and_the_unit_that_was_meant_is_guessed)
{
	static const char *const forgotten[][2] = {{"1", "1G"}, {"20", "20G"}, {"255", "255G"},
		{"256", "256M"}, {"8192", "8192M"}, {"262143", "262143M"}, {"262144", "262144K"},
		{"2097151", "2097151K"}, {"020", "20G"}};
	static const char *const right[] = {"0", "000", "2097152", "17179869184",
		"99999999999999999999999999", "20B", "20G", "20K", "1.5", "20%", "", "none", "-20"};
	char why[GM_UNITS_WHY], want[64];

	for (size_t i = 0; i < sizeof(forgotten) / sizeof(forgotten[0]); i++) {
		snprintf(want, sizeof(want), "; did you mean %s? Bytes", forgotten[i][1]);
		ck_assert_ptr_eq(gm_parse_bare(forgotten[i][0], why), why);
		ck_assert_msg(strstr(why, want), "%s: %s", forgotten[i][0], why);
	}
	ck_assert_str_eq(gm_parse_bare("2097151", why),
		"is a number of bytes, and less than any memory that gpumemd hands out; did you mean 2097151K? Bytes are written 2097151B");
	for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++)
		ck_assert_msg(!gm_parse_bare(right[i], why), "%s", right[i]);
}
END_TEST

START_TEST(a_share_is_rounded_down_so_that_a_threshold_shows_only_when_it_is_reached)
{
	char text[GM_UNITS_TEXT];

	ck_assert_str_eq(gm_format_percent(0, text), "0%");
	ck_assert_str_eq(gm_format_percent(9999, text), "0%");
	ck_assert_str_eq(gm_format_percent(945000, text), "94%");
	ck_assert_str_eq(gm_format_percent(949999, text), "94%");
	ck_assert_str_eq(gm_format_percent(950000, text), "95%");
	ck_assert_str_eq(gm_format_percent(1000000, text), "100%");
}
END_TEST

START_TEST(a_size_that_does_not_fit_is_out_of_range)
{
	static const char *const texts[] = {"18446744073709551616", "16E", "16.0E",
		"18014398509481984K", "100000P", "99999999999999999999999999",
		"99999999999999999999999999K", "184467440737095516160"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		uint64_t bytes = UNTOUCHED;
		ck_assert_msg(gm_parse_size(texts[i], &bytes) == -ERANGE, "\"%s\"", texts[i]);
		ck_assert(bytes == UNTOUCHED);
	}
}
END_TEST

START_TEST(durations_are_read_with_their_units)
{
	static const struct {
		const char *text;
		int r;
		uint64_t ns;
	} rows[] = {
		{"0", 0, 0},
		{"10", 0, UINT64_C(10000000000)},
		{"1.5", 0, UINT64_C(1500000000)},
		{"7ns", 0, 7},
		{"250us", 0, 250000},
		{"100ms", 0, 100000000},
		{"10s", 0, UINT64_C(10000000000)},
		{"0.5s", 0, 500000000},
		{"5min", 0, UINT64_C(300000000000)},
		{"2h", 0, UINT64_C(7200000000000)},
		{"1d", 0, UINT64_C(86400000000000)},
		{"213503d", 0, UINT64_C(18446659200000000000)},
		{"213504d", -ERANGE, 0},
		{"18446744073709551615ns", 0, UINT64_MAX},
		{"18446744073709551616ns", -ERANGE, 0},
		{"18446744074", -ERANGE, 0},
		{"99999999999999999999999h", -ERANGE, 0},
		{"99999999999999999999999x", -EINVAL, 0},
		{"", -EINVAL, 0},
		{"s", -EINVAL, 0},
		{"-1s", -EINVAL, 0},
		{"1S", -EINVAL, 0},
		{"1 s", -EINVAL, 0},
		{"10m", 0, UINT64_C(600000000000)},
		{"1.5m", 0, UINT64_C(90000000000)},
		{"1M", -EINVAL, 0},
		{"1mi", -EINVAL, 0},
		{"1mins", -EINVAL, 0},
		{"1s1s", -EINVAL, 0},
		{"1e9", -EINVAL, 0},
		/* Several parts, as gm_format_duration() writes them. */
		{"1m30s", 0, UINT64_C(90000000000)},
		{"1min 30s", 0, UINT64_C(90000000000)},
		{"2h 5min", 0, UINT64_C(7500000000000)},
		{"1d2h3min4s5ms6us7ns", 0, UINT64_C(93784005006007)},
		{"1min 1m", -EINVAL, 0},
		{"30s 1min", -EINVAL, 0},
		{"1min 30", -EINVAL, 0},
		{"0min 30", -EINVAL, 0},
		{"30 5ms", -EINVAL, 0},
		{"1min ", -EINVAL, 0},
		{"1min  30s", -EINVAL, 0},
		{" 1min", -EINVAL, 0},
		{"1min -30s", -EINVAL, 0},
		{"213503d 86400s", -ERANGE, 0},
		{"213503d 99999999999999999999999s", -ERANGE, 0},
		{"99999999999999999999999h 1x", -EINVAL, 0},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t ns = UNTOUCHED;
		int r = gm_parse_duration(rows[i].text, &ns);
		ck_assert_msg(r == rows[i].r, "\"%s\": %d", rows[i].text, r);
		ck_assert_msg(ns == (r ? UNTOUCHED : rows[i].ns), "\"%s\": %llu", rows[i].text,
			(unsigned long long)ns);
	}
}
END_TEST

START_TEST(fractions_lie_between_0_and_1)
{
	static const struct {
		const char *text;
		int r;
		double fraction;
	} rows[] = {
		{"0", 0, 0.0},
		{"1", 0, 1.0},
		{"1.000", 0, 1.0},
		{"0.9", 0, 0.9},
		{"0.95", 0, 0.95},
		{"90%", 0, 0.9},
		{"12.5%", 0, 0.125},
		{"100%", 0, 1.0},
		{"0%", 0, 0.0},
		{"0.333333333333333333333", 0, 0.333333333333333},
		{"1.1", -ERANGE, 0},
		{"1.000000000000001", -ERANGE, 0},
		{"100.1%", -ERANGE, 0},
		{"2", -ERANGE, 0},
		{"99999999999999999999999", -ERANGE, 0},
		{"-0.1", -EINVAL, 0},
		{"0,9", -EINVAL, 0},
		{".9", -EINVAL, 0},
		{"0.9 %", -EINVAL, 0},
		{"90%%", -EINVAL, 0},
		{"%", -EINVAL, 0},
		{"nan", -EINVAL, 0},
		{"", -EINVAL, 0},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		double fraction = -5;
		int r = gm_parse_fraction(rows[i].text, &fraction);
		ck_assert_msg(r == rows[i].r, "\"%s\": %d", rows[i].text, r);
		ck_assert_msg(fraction == (r ? -5 : rows[i].fraction), "\"%s\": %.17g",
			rows[i].text, fraction);
	}
}
END_TEST

START_TEST(numbers_are_decimal_digits_alone)
{
	static const char *const wrong[] = {"", "-1", "+1", "0x1", "1.0", "1 ", " 1", "1K", "one"};
	uint64_t value = UNTOUCHED;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_int_eq(gm_parse_u64(wrong[i], &value), -EINVAL);
	ck_assert_int_eq(gm_parse_u64("18446744073709551616", &value), -ERANGE);
	ck_assert(value == UNTOUCHED);
	ck_assert_int_eq(gm_parse_u64("18446744073709551615", &value), 0);
	ck_assert(value == UINT64_MAX);
	ck_assert_int_eq(gm_parse_u64("0", &value), 0);
	ck_assert(value == 0);
}
END_TEST

START_TEST(hexadecimal_numbers_have_as_many_digits_as_allowed)
{
	uint32_t value = 7;
	const char *text = "fF09g";

	ck_assert_ptr_eq(gm_parse_hex(text, 1, 8, &value), text + 4);
	ck_assert_uint_eq(value, 0xff09);
	ck_assert_ptr_eq(gm_parse_hex(text, 2, 2, &value), text + 2);
	ck_assert_uint_eq(value, 0xff);
	ck_assert_ptr_null(gm_parse_hex(text, 5, 8, &value));
	ck_assert_ptr_null(gm_parse_hex("", 1, 1, &value));
	ck_assert_ptr_null(gm_parse_hex("G", 1, 1, &value));
	ck_assert_uint_eq(value, 0xff);
}
END_TEST

START_TEST(sizes_are_shown_with_one_decimal)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} rows[] = {
		{0, "0B"},
		{512, "512B"},
		{1023, "1023B"},
		{1024, "1.0K"},
		{1536, "1.5K"},
		{48 * K * K * K, "48.0G"},
		{K * K - 1, "1.0M"}, /* not 1024.0K */
		{K * K - 52, "1023.9K"},
		{UINT64_C(143155) * K * K, "139.8G"},
		{UINT64_MAX, "16.0E"},
	};
	char text[GM_UNITS_TEXT];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		ck_assert_str_eq(gm_format_size(rows[i].bytes, text), rows[i].text);
	ck_assert_ptr_eq(gm_format_size(0, text), text);
}
END_TEST

START_TEST(a_shown_size_reads_back_within_its_last_decimal)
{
	char text[GM_UNITS_TEXT];

	for (unsigned shift = 0; shift < 63; shift++)
		for (int delta = -3; delta <= 3; delta++) {
			uint64_t bytes = (UINT64_C(1) << shift) + (uint64_t)(int64_t)delta, back;
			if (bytes > UINT64_C(1) << 63)
				continue; /* below 0 */
			ck_assert_int_eq(gm_parse_size(gm_format_size(bytes, text), &back), 0);
			uint64_t off = bytes > back ? bytes - back : back - bytes;
			ck_assert_msg(off <= bytes / 20, "%s", text);
		}
}
END_TEST

START_TEST(durations_are_shown_in_their_two_largest_units)
{
	static const struct {
		uint64_t ns;
		const char *text;
	} rows[] = {
		{0, "0s"},
		{999, "999ns"},
		{999999, "999us"},
		{350000000, "350ms"},
		{999999999, "999ms"},
		{UINT64_C(12000000000), "12s"},
		{UINT64_C(59999999999), "59s"},
		{UINT64_C(180000000000), "3min"},
		{UINT64_C(200000000000), "3min 20s"},
		{UINT64_C(3599999999999), "59min 59s"},
		{UINT64_C(7500000000000), "2h 5min"},
		{UINT64_C(86399000000000), "23h 59min"},
		{UINT64_C(349200000000000), "4d 1h"},
		{UINT64_MAX, "213503d 23h"},
	};
	char text[GM_UNITS_TEXT];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		ck_assert_str_eq(gm_format_duration(rows[i].ns, text), rows[i].text);
}
END_TEST

START_TEST(names_may_be_any_printable_utf8)
{
	static const char *const names[] = {"", "a", "worker 7", "~!@#$%^&*()\"'\\/", "Gr\xc3\xb6n",
		"\xe6\xa8\xa1\xe5\x9e\x8b", "\xf0\x9f\xa6\x8a", "\xc2\xa0" /* U+00A0 */,
		"\xdf\xbf" /* U+07FF */, "\xe0\xa0\x80" /* U+0800 */, "\xed\x9f\xbf" /* U+D7FF */,
		"\xee\x80\x80" /* U+E000 */, "\xef\xbf\xbd" /* U+FFFD */,
		"\xf0\x90\x80\x80" /* U+10000 */, "\xf4\x8f\xbf\xbd" /* U+10FFFD */};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		ck_assert_msg(gm_name_ok(names[i]), "row %zu", i);
}
END_TEST

START_TEST(names_with_control_characters_or_broken_utf8_are_none)
{
	static const char *const names[] = {
		"a\nb", "\t", "\x1b[31m", "\x01", "\x1f", "\x7f", /* C0 and DEL */
		"\xc2\x80", "\xc2\x9b", "\xc2\x9f",               /* C1 */
		"\x80", "\xbf", "a\xff", "\xfe", "\xc3", "\xc3(", /* stray and cut */
		"\xe6\xa8", "\xe6\xa8(", "\xf0\x9f\xa6", "\xf0\x9f", "\xc0\x80", "\xc0\xaf",
		"\xc1\xbf",                                         /* overlong: 2 bytes */
		"\xe0\x80\xaf", "\xe0\x9f\xbf", "\xf0\x80\x80\xaf", /* overlong: 3 and 4 */
		"\xf0\x8f\xbf\xbf", "\xed\xa0\x80", "\xed\xaf\xbf", "\xed\xb0\x80",
		"\xed\xbf\xbf",                                             /* surrogates */
		"\xed\xa0\xbd\xed\xb8\x80",                                 /* a pair of them */
		"\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf7\xbf\xbf\xbf", /* past U+10FFFF */
		"\xf8\x88\x80\x80\x80", "\xfc\x84\x80\x80\x80\x80",         /* 5 and 6 bytes */
		"\xe2\x80\xa8", "\xe2\x80\xa9",                             /* line, paragraph */
		"\xe2\x80\xaetxt", "\xe2\x81\xa6", /* right to left from here */
		"\xef\xbf\xbe", "\xef\xbf\xbf", "\xf0\x9f\xbf\xbf", "\xef\xb7\x90", /* none */
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		ck_assert_msg(!gm_name_ok(names[i]), "row %zu", i);
	ck_assert(!gm_name_ok(NULL));
}
END_TEST

START_TEST(every_byte_that_follows_a_good_name_is_judged)
{
	/* The bytes up to the bound are read, and none past the end. */
	for (unsigned c = 1; c < 256; c++) {
		char *name = malloc(3);
		ck_assert_ptr_nonnull(name);
		name[0] = 'a', name[1] = (char)c, name[2] = '\0';
		ck_assert_int_eq(gm_name_ok(name), c >= 0x20 && c < 0x7f);
		free(name);
	}
}
END_TEST

START_TEST(a_name_one_byte_past_the_limit_is_none)
{
	GM_BOUND_TEST(NAME_BYTES);
	char name[GM_BOUND_NAME_BYTES + 2];

	memset(name, 'x', sizeof(name));
	name[GM_BOUND_NAME_BYTES] = '\0';
	ck_assert(gm_name_ok(name));
	name[GM_BOUND_NAME_BYTES] = 'x';
	name[GM_BOUND_NAME_BYTES + 1] = '\0';
	ck_assert(!gm_name_ok(name));
	/* One character across the border. */
	memcpy(name + GM_BOUND_NAME_BYTES - 1, "\xc3\xb6", 2);
	ck_assert(!gm_name_ok(name));
}
END_TEST

START_TEST(counts_are_shown_in_groups_of_three_digits)
{
	char text[GM_UNITS_TEXT];

	ck_assert_str_eq(gm_format_count(0, text), "0");
	ck_assert_str_eq(gm_format_count(999, text), "999");
	ck_assert_str_eq(gm_format_count(1000, text), "1,000");
	ck_assert_str_eq(gm_format_count(18000, text), "18,000");
	ck_assert_str_eq(gm_format_count(UINT64_MAX, text), "18,446,744,073,709,551,615");
}
END_TEST

START_TEST(a_text_is_cut_between_characters)
{
	static const char *const rows[][2] = {
		{"", ""},
		{"plain", "plain"},
		{"\xc3\xb6l", "\xc3\xb6l"},
		/* Cut short at the end, and before what follows. */
		{"a\xc3", "a"},
		{"a\xe2\x82", "a"},
		{"a\xf0\x9f\x98", "a"},
		{"\"a\xf0\x9f\" names", "\"a\" names"},
		{"a\xe2\x82...", "a..."},
		{"\xc3\xe2\x82\xac", "\xe2\x82\xac"},
		/* What is no character, or none that is printable. */
		{"a\x1b[0m\n", "a?[0m?"},
		{"\xff\x80", "??"},
		{"\xc0\x80", "??"},
		{"\xed\xa0\x80", "???"},
		{"\xe2\x80\xae!", "?!"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		char *text = strdup(rows[i][0]);
		ck_assert_str_eq(gm_text_mend(text), rows[i][1]);
		ck_assert(gm_text_ok(text));
		free(text);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("units");
	TCase *tc = tcase_create("units");

	tcase_add_test(tc, sizes_are_read_as_people_write_them);
	tcase_add_test(tc, what_is_no_size_is_refused_and_changes_nothing);
	tcase_add_test(tc, a_size_without_its_unit_is_found_and_the_unit_that_was_meant_is_guessed);
	tcase_add_test(
		tc, a_share_is_rounded_down_so_that_a_threshold_shows_only_when_it_is_reached);
	tcase_add_test(tc, a_size_that_does_not_fit_is_out_of_range);
	tcase_add_test(tc, durations_are_read_with_their_units);
	tcase_add_test(tc, fractions_lie_between_0_and_1);
	tcase_add_test(tc, numbers_are_decimal_digits_alone);
	tcase_add_test(tc, hexadecimal_numbers_have_as_many_digits_as_allowed);
	tcase_add_test(tc, sizes_are_shown_with_one_decimal);
	tcase_add_test(tc, a_shown_size_reads_back_within_its_last_decimal);
	tcase_add_test(tc, durations_are_shown_in_their_two_largest_units);
	tcase_add_test(tc, names_may_be_any_printable_utf8);
	tcase_add_test(tc, names_with_control_characters_or_broken_utf8_are_none);
	tcase_add_test(tc, every_byte_that_follows_a_good_name_is_judged);
	tcase_add_test(tc, a_name_one_byte_past_the_limit_is_none);
	tcase_add_test(tc, counts_are_shown_in_groups_of_three_digits);
	tcase_add_test(tc, a_text_is_cut_between_characters);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
