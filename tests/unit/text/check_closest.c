/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

#include "common/text/closest.h"

#include "tests/tap.h"

static const char *const words[] = {
	"status", "devices", "pools", "pressure", "max_pool_bytes", NULL};

START_TEST(a_misspelt_word_finds_the_one_that_was_meant)
{
	ck_assert_str_eq(gm_closest("statsu", words), "status");    /* swapped */
	ck_assert_str_eq(gm_closest("statuss", words), "status");   /* one too many */
	ck_assert_str_eq(gm_closest("presure", words), "pressure"); /* one missing */
	ck_assert_str_eq(gm_closest("davices", words), "devices");  /* changed */
}
END_TEST

START_TEST(upper_and_lower_case_are_the_same)
{
	ck_assert_str_eq(gm_closest("STATUS", words), "status");
	ck_assert_str_eq(gm_closest("DEVCIES", words), "devices");
	ck_assert_str_eq(gm_closest("Max", words), "max_pool_bytes");
}
END_TEST

START_TEST(the_beginning_of_a_word_is_close_to_it)
{
	ck_assert_str_eq(gm_closest("max", words), "max_pool_bytes");
	ck_assert_ptr_null(gm_closest("m", words));
}
END_TEST

START_TEST(what_is_not_close_finds_nothing)
{
	static const char *const long_words[] = {
		"a_word_that_is_longer_than_thirty_two_letters", NULL};

	ck_assert_ptr_null(gm_closest("", words));
	ck_assert_ptr_null(gm_closest("elephant", words));
	ck_assert_ptr_null(gm_closest("a_word_that_is_longer_than_thirty_two_letter", words));
	ck_assert_ptr_null(gm_closest("a_word", long_words));
	ck_assert_ptr_null(gm_closest("status", (const char *const[]){NULL}));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("closest");
	TCase *tests = tcase_create("closest");

	tcase_add_test(tests, a_misspelt_word_finds_the_one_that_was_meant);
	tcase_add_test(tests, upper_and_lower_case_are_the_same);
	tcase_add_test(tests, the_beginning_of_a_word_is_close_to_it);
	tcase_add_test(tests, what_is_not_close_finds_nothing);
	suite_add_tcase(suite, tests);
	return gm_tap_run(suite);
}
