/* SPDX-License-Identifier: Apache-2.0 */

/* What is published with weights: written and read again, and what somebody else may have published instead. */

#include "common/cleanup.h"
#include "tests/tap.h"
#include "weights/weights_metadata.h"

static struct gm_weights_table table, again;

static void tear_down(void)
{
	gm_weights_table_deinit(&table);
	gm_weights_table_deinit(&again);
}

static void add(const char *name, const char *entry, uint64_t place)
{
	json_t *json = json_loads(entry, 0, NULL);

	ck_assert_ptr_nonnull(json);
	ck_assert_int_eq(gm_weights_table_add(&table, "m", 0, name, json, 0, 1 << 20), GPUMEM_OK);
	table.rows[table.n - 1].place = place;
	json_decref(json);
}

static void add_some(void)
{
	add("a \"quoted\\name\" \x01 \xc3\xa9",
		"{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}", 0);
	add("scalar", "{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[24,25]}", 256);
	add("empty", "{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[25,25]}", 512);
}

static void require_same(void)
{
	ck_assert_uint_eq(again.n, table.n);
	for (size_t i = 0; i < table.n; i++) {
		const struct gm_weights_row *row =
			gm_weights_table_find(&again, table.rows[i].name);

		ck_assert_ptr_nonnull(row);
		ck_assert_uint_eq(row->place, table.rows[i].place);
		ck_assert_uint_eq(row->bytes, table.rows[i].bytes);
		ck_assert_uint_eq(row->ndim, table.rows[i].ndim);
		ck_assert_str_eq(row->dtype, table.rows[i].dtype);
	}
}

START_TEST(what_is_written_is_read_again)
{
	struct gm_weights_text text;
	struct gm_weights_head head;

	add_some();
	ck_assert_int_eq(gm_weights_metadata_write(&table, 512, 1 << 20, &text), GPUMEM_OK);
	ck_assert_ptr_null(text.table);
	ck_assert_int_eq(gm_weights_head_read(text.head, text.head_bytes, &head), 0);
	ck_assert_uint_eq(head.count, 3);
	ck_assert_uint_eq(head.bytes, 25);
	ck_assert_uint_eq(head.end, 0);
	ck_assert_int_eq(gm_weights_head_tensors(&head, "x", NULL, 512, &again), GPUMEM_OK);
	require_same();
	gm_weights_head_deinit(&head);
	gm_weights_text_deinit(&text);
}
END_TEST

START_TEST(a_long_table_goes_into_the_buffer)
{
	struct gm_weights_text text;
	struct gm_weights_head head;

	add_some();
	ck_assert_int_eq(gm_weights_metadata_write(&table, 512, 1024, &text), GPUMEM_OK);
	ck_assert_uint_gt(text.table_bytes, 0);
	ck_assert_uint_lt(text.head_bytes, 256);
	ck_assert_int_eq(gm_weights_head_read(text.head, text.head_bytes, &head), 0);
	ck_assert_uint_eq(head.count, 3);
	ck_assert_uint_eq(head.begin, 512);
	ck_assert_uint_eq(head.end, 512 + text.table_bytes);
	ck_assert_int_eq(
		gm_weights_head_tensors(&head, "x", text.table, 512 + text.table_bytes, &again),
		GPUMEM_OK);
	require_same();
	gm_weights_head_deinit(&head);
	gm_weights_text_deinit(&text);
}
END_TEST

#define HEAD "{\"format\":\"gpumem-weights\",\"layout\":1,\"count\":1,\"bytes\":1,"

START_TEST(metadata_of_others_is_not_taken_for_weights)
{
	static const char *const others[] = {
		"",
		"{",
		"{\"format\"",
		"{\"format\":\"pt\"}",
		"{\"layers\":32}",
		"hello",
		"{\"format\":\"gpumem-weights\"}",
		"{\"format\":\"gpumem-weights\",\"layout\":2,\"count\":1,\"bytes\":1,\"tensors\":{}}",
		"{\"format\":\"gpumem-weights\",\"layout\":1,\"count\":-1,\"bytes\":1}",
		HEAD "\"table\":[5]}",
		HEAD "\"table\":[5,5]}",
		HEAD "\"table\":[5,-1]}",
		HEAD "\"table\":\"x\"}",
	};
	struct gm_weights_head head;

	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		ck_assert_msg(gm_weights_head_read(others[i], strlen(others[i]), &head) == -1, "%s",
			others[i]);
}
END_TEST

START_TEST(a_hostile_table_is_refused)
{
	static const char *const hostile[][2] = {
		{HEAD "\"tensors\":7}", "has no table of tensors"},
		{HEAD "\"x\":7}", "has no table of tensors"},
		{HEAD "\"tensors\":{\"a\":{\"dtype\":\"U8\",\"shape\":[513],\"data_offsets\":[0,513]}}}",
			"tensor \"a\" ends at byte 513"},
		{HEAD "\"tensors\":{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}}",
			"tensor \"a\" is not aligned"},
		{HEAD "\"tensors\":{\"a\":{\"dtype\":\"U8\",\"shape\":[9],\"data_offsets\":[0,8]}}}",
			"tensor \"a\" has 8 bytes"},
		{HEAD "\"tensors\":{\"a\":{\"dtype\":\"U8\",\"shape\":[300],\"data_offsets\":[0,300]},"
		      "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[256,257]}}}",
			"tensor \"b\" overlaps with tensor \"a\""},
	};

	for (size_t i = 0; i < sizeof(hostile) / sizeof(*hostile); i++) {
		struct gm_weights_head head;

		ck_assert_int_eq(
			gm_weights_head_read(hostile[i][0], strlen(hostile[i][0]), &head), 0);
		ck_assert_int_eq(
			gm_weights_head_tensors(&head, "x", NULL, 512, &again), GPUMEM_E_INVALID);
		ck_assert_msg(strstr(gpumem_error_detail(), hostile[i][1]), "'%s', not '%s'",
			gpumem_error_detail(), hostile[i][1]);
		gm_weights_head_deinit(&head);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("weights metadata");
	TCase *tc = tcase_create("weights metadata");

	tcase_add_checked_fixture(tc, NULL, tear_down);
	tcase_add_test(tc, what_is_written_is_read_again);
	tcase_add_test(tc, a_long_table_goes_into_the_buffer);
	tcase_add_test(tc, metadata_of_others_is_not_taken_for_weights);
	tcase_add_test(tc, a_hostile_table_is_refused);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
