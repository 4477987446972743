/* SPDX-License-Identifier: Apache-2.0 */

/* The list of the values of a limit: what is made of it, and the messages that are written by hand. */

#include <string.h>

#include "common/text/limit_values.h"
#include "common/wire/wire.h"
#include "tests/tap.h"

START_TEST(a_value_is_what_was_set)
{
	struct gm_limit_values values = GM_LIMIT_VALUES_UNSET;

	ck_assert_uint_eq(values.set, 0);
	ck_assert_uint_eq(values.max, UINT64_MAX);
	ck_assert_uint_eq(values.guarantee, 0);
	for (size_t i = 0; i < GM_LIMIT_N_KINDS; i++) {
		const struct gm_limit_kind *kind = &gm_limit_kinds[i];
		uint64_t value = kind->unit == GM_LIMIT_UNIT_signed ? (uint64_t)-7 : 7;

		ck_assert_uint_eq(gm_limit_values_get(&values, kind->bit), kind->unset);
		gm_limit_values_set(&values, kind->bit, value);
		ck_assert_uint_eq(gm_limit_values_get(&values, kind->bit), value);
		ck_assert_uint_eq(values.set & kind->bit, kind->bit);
	}
	ck_assert_uint_eq(values.set, GM_LIMIT_ALL);
	ck_assert_int_eq(values.priority, -7);

	const struct gm_limit_values before = values;
	gm_limit_values_set(&values, GM_LIMIT_ALL + 1, 9);
	gm_limit_values_set(&values, GM_LIMIT_MAX | GM_LIMIT_GUARANTEE, 9);
	ck_assert_mem_eq(&values, &before, sizeof(values));
	ck_assert_uint_eq(gm_limit_values_get(&values, GM_LIMIT_ALL + 1), 0);
}
END_TEST

START_TEST(values_and_kinds_are_written_as_people_write_them)
{
	struct gm_limit_values values = {
		.max = UINT64_MAX, .guarantee = UINT64_C(8) << 30, .priority = -10};
	const struct gm_limit_kind *kinds = gm_limit_kinds;
	char text[GM_UNITS_TEXT], pair[GM_LIMIT_PAIR_TEXT], names[GM_LIMIT_NAMES_TEXT];

	ck_assert_str_eq(gm_limit_values_text(&values, &kinds[0], text), "none");
	ck_assert_str_eq(gm_limit_values_text(&values, &kinds[1], text), "8.0G");
	ck_assert_str_eq(gm_limit_values_text(&values, &kinds[2], text), "-10");
	ck_assert_str_eq(gm_limit_values_pair(&values, &kinds[0], pair), "max=none");
	ck_assert_str_eq(gm_limit_values_pair(&values, &kinds[1], pair), "guarantee=8589934592");
	ck_assert_str_eq(gm_limit_values_pair(&values, &kinds[2], pair), "priority=-10");
	values.priority = -1;
	ck_assert_str_eq(gm_limit_values_text(&values, &kinds[2], text), "-1");
	ck_assert_str_eq(
		gm_limit_kind_names("a ", " or ", names), "a max, a guarantee or a priority");
	ck_assert_str_eq(
		gm_limit_kind_names(NULL, " or ", names), "max=SIZE, guarantee=SIZE or priority=N");
	ck_assert_ptr_eq(gm_limit_kind_named("guarantee=8G", 9), &kinds[1]);
	ck_assert_ptr_null(gm_limit_kind_named("guarantees", 10));
	ck_assert_ptr_null(gm_limit_kind_named("", 0));
}
END_TEST

START_TEST(the_messages_have_a_field_and_a_number_for_each_kind)
{
	const ProtobufCMessageDescriptor *const messages[] = {
		&gm__wire__limit__descriptor, &gm__wire__set_limit__descriptor};

	for (size_t i = 0; i < GM_LIMIT_N_KINDS; i++) {
		const struct gm_limit_kind *kind = &gm_limit_kinds[i];
		char name[32] = "LIMIT_";

		for (size_t m = 0; m < 2; m++)
			ck_assert_msg(protobuf_c_message_descriptor_get_field_by_name(
					      messages[m], kind->name),
				"%s has no field %s", messages[m]->name, kind->name);
		for (const char *at = kind->name; *at; at++)
			snprintf(name + strlen(name), 2, "%c", *at - 'a' + 'A');
		const ProtobufCEnumValue *number = protobuf_c_enum_descriptor_get_value_by_name(
			&gm__wire__limit_value__descriptor, name);
		ck_assert_msg(number && (unsigned)number->value == kind->bit,
			"LimitValue has no %s = %u", name, kind->bit);
	}
	/* LIMIT_NONE is the other one. */
	ck_assert_uint_eq(gm__wire__limit_value__descriptor.n_value_names, 1 + GM_LIMIT_N_KINDS);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("quota_values");
	TCase *tc = tcase_create("quota_values");

	tcase_add_test(tc, a_value_is_what_was_set);
	tcase_add_test(tc, values_and_kinds_are_written_as_people_write_them);
	tcase_add_test(tc, the_messages_have_a_field_and_a_number_for_each_kind);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
