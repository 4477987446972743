/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

#include "common/text/share_name.h"

#include <string.h>

#include "common/bounds.h"
#include "tests/tap.h"

START_TEST(a_bare_name_is_ones_own)
{
	static const char *const names[] = {"llama", "7", "uid:1000", "a b", "naïve", "uid:", "..",
		"123456789012345678901234567890123456789012345678901234567890123"};
	struct gm_token_name name;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		ck_assert_ptr_null(gm_token_name_parse(names[i], &name));
		ck_assert(!name.foreign);
		ck_assert_str_eq(name.name, names[i]);
		ck_assert_ptr_null(gm_token_name_check(names[i]));
	}
	ck_assert_uint_eq(strlen(names[7]), GM_BOUND_NAME_BYTES);
}
END_TEST

START_TEST(a_name_of_another_user_begins_with_the_uid)
{
	struct gm_token_name name;

	ck_assert_ptr_null(gm_token_name_parse("uid:1000/llama", &name));
	ck_assert(name.foreign);
	ck_assert_uint_eq(name.owner, 1000);
	ck_assert_str_eq(name.name, "llama");
	ck_assert_ptr_null(gm_token_name_parse("uid:0/x", &name));
	ck_assert_uint_eq(name.owner, 0);
	ck_assert_ptr_null(gm_token_name_parse("uid:4294967294/x", &name));
	ck_assert_uint_eq(name.owner, UINT32_MAX - 1);
	ck_assert_ptr_nonnull(gm_token_name_check("uid:1000/llama"));
}
END_TEST

START_TEST(other_names_are_refused_with_the_reason)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{NULL, "NULL"},
		{"", "empty"},
		{"uid:1000/", "empty"},
		{"a/b", "uid:1000/llama"},
		{"/", "uid:1000/llama"},
		{"uid:/x", "uid:1000/llama"},
		{"uid:-1/x", "uid:1000/llama"},
		{"uid:+1/x", "uid:1000/llama"},
		{"uid: 1/x", "uid:1000/llama"},
		{"uid:1 /x", "uid:1000/llama"},
		{"uid:0x10/x", "uid:1000/llama"},
		{"uid:4294967295/x", "uid:1000/llama"},
		{"uid:99999999999999999999999999/x", "uid:1000/llama"},
		{"UID:1000/x", "uid:1000/llama"},
		{"uid:1000/a/b", "\"/\""},
		{"uid:1000/a\nb", "printable"},
		{"a\tb", "printable"},
		{"a\x7f", "printable"},
		{"\xff\xfe", "printable"},
		{"1234567890123456789012345678901234567890123456789012345678901234", "63 bytes"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct gm_token_name name = {.name = "untouched"};
		const char *wrong = gm_token_name_parse(bad[i].text, &name);
		ck_assert_msg(wrong && strstr(wrong, bad[i].says), "%s: %s", bad[i].text, wrong);
		ck_assert_str_eq(name.name, "untouched");
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("share_name");
	TCase *tc = tcase_create("share_name");
	tcase_add_test(tc, a_bare_name_is_ones_own);
	tcase_add_test(tc, a_name_of_another_user_begins_with_the_uid);
	tcase_add_test(tc, other_names_are_refused_with_the_reason);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
