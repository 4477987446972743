/* SPDX-License-Identifier: Apache-2.0 */

/* Headers of safetensors files: sound ones, and ones that lie. */

#include <sys/mman.h>

#include "common/cleanup.h"
#include "tests/tap.h"
#include "tests/unit/weights/model_writer.h"
#include "weights/safetensors.h"

static struct gm_weights_file file;
static struct gm_weights_table table;

static void set_up(void)
{
	file = (struct gm_weights_file){
		.name = (char *)"m", .fd = memfd_create("model", MFD_CLOEXEC)};
	ck_assert_int_ge(file.fd, 0);
}

static void tear_down(void)
{
	gm_weights_table_deinit(&table);
	close(file.fd);
}

static gpumem_status read_it(void)
{
	struct stat st;

	gm_weights_table_deinit(&table);
	ck_assert_int_eq(fstat(file.fd, &st), 0);
	file.size = (uint64_t)st.st_size;
	return gm_safetensors_read(&file, 0, &table);
}

static gpumem_status read_header(const char *header, uint64_t data)
{
	model_put(file.fd, strlen(header), header, strlen(header), data, 1);
	return read_it();
}

#define ENTRY(dtype, shape, offsets) \
	"{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

START_TEST(a_sound_header_is_read)
{
	/* In another order than the data, with a scalar, an empty tensor, and blanks at the end. */
	static const char header[] =
		"{\"__metadata__\":{\"format\":\"pt\"}," /* */
		"\"b\":" ENTRY("F32", "[2,3]",
			"[8,32]") "," /* */
				  "\"a\\u0041\":" ENTRY("I64", "[]",
					  "[0,8]") "," /* */
						   "\"e\":" ENTRY("BF16", "[0,7]",
							   "[32,32]") "," /* */
								      "\"f\":" ENTRY("F4", "[4]",
									      "[32,34]") "}   ";

	ck_assert_int_eq(read_header(header, 34), GPUMEM_OK);
	ck_assert_uint_eq(table.n, 4);
	ck_assert_uint_eq(file.data, 8 + strlen(header));
	ck_assert_str_eq(table.rows[0].name, "aA");
	ck_assert_uint_eq(table.rows[0].ndim, 0);
	ck_assert_uint_eq(table.rows[0].bytes, 8);
	ck_assert_str_eq(table.rows[1].name, "b");
	ck_assert_str_eq(table.rows[1].dtype, "F32");
	ck_assert_uint_eq(table.rows[1].shape[1], 3);
	ck_assert_uint_eq(table.rows[1].begin, 8);
	ck_assert_uint_eq(table.rows[1].bytes, 24);
	ck_assert_uint_eq(table.rows[2].bytes, 0);
	ck_assert_uint_eq(table.rows[3].bits, 4);
}
END_TEST

/* The length is that of the header, and the data has 16 bytes. */
static const struct hostile {
	const char *header, *says;
} hostile[] = {
	{"[]", "m, byte 8: the header does not begin with \"{\""},
	{" {}", "m, byte 8: the header does not begin with \"{\""},
	{"{", "m, byte 9: string or '}' expected near end of file"},
	{"{}x", "m, byte 11: end of file expected near 'x'"},
	{"{\"a\":" ENTRY("U8", "[16]", "[0,16]") "}{}", "m, byte 64: end of file expected"},
	{"{}", "m, byte 10: the last 16 bytes belong to no tensor"},
	{"{\"a\":1}", "m, byte 9: tensor \"a\" is not described by a JSON object"},
	{"{\"a\":{}}", "m, byte 9: tensor \"a\" has no dtype"},
	{"{\"a\":{\"dtype\":7}}", "tensor \"a\" has no dtype"},
	{"{\"a\":{\"dtype\":\"U8\"}}", "m, byte 9: tensor \"a\" has no shape"},
	{"{\"a\":{\"dtype\":\"U8\",\"shape\":[16]}}", "tensor \"a\" has no data_offsets"},
	{"{\"a\":" ENTRY("U9", "[16]", "[0,16]") "}",
		"m, byte 9: tensor \"a\" has the dtype \"U9\""},
	{"{\"a\":" ENTRY("U8", "[-16]", "[0,16]") "}", "tensor \"a\" has a dimension that"},
	{"{\"a\":" ENTRY("U8", "[16.0]", "[0,16]") "}", "tensor \"a\" has a dimension that"},
	{"{\"a\":" ENTRY("U8", "[\"16\"]", "[0,16]") "}", "tensor \"a\" has a dimension that"},
	{"{\"a\":" ENTRY("U8", "16", "[0,16]") "}", "tensor \"a\" has no shape"},
	{"{\"a\":" ENTRY("U8", "[16]", "[0]") "}", "tensor \"a\" has no data_offsets"},
	{"{\"a\":" ENTRY("U8", "[16]", "[0,16,16]") "}", "tensor \"a\" has no data_offsets"},
	{"{\"a\":" ENTRY("U8", "[16]", "[-1,15]") "}", "tensor \"a\" has no data_offsets"},
	{"{\"a\":" ENTRY("U8", "[16]", "[16,0]") "}",
		"m, byte 9: tensor \"a\" ends before it begins"},
	{"{\"a\":" ENTRY("U8", "[17]", "[0,17]") "}",
		"m, byte 9: tensor \"a\" ends at byte 17 of the data, which has 16 bytes"},
	{"{\"a\":" ENTRY("U8", "[16]", "[9223372036854775800,9223372036854775807]") "}",
		"tensor \"a\" ends at byte 9223372036854775807 of the data"},
	{"{\"a\":" ENTRY("U8", "[16]", "[0,9223372036854775808]") "}",
		"m, byte 77: too big integer"},
	{"{\"a\":" ENTRY("U8", "[15]", "[0,16]") "}",
		"m, byte 9: tensor \"a\" has 16 bytes, which is not what its shape and its dtype U8"},
	{"{\"a\":" ENTRY("F32", "[16]", "[0,16]") "}", "tensor \"a\" has 16 bytes, which is not"},
	{"{\"a\":" ENTRY("F4", "[3]", "[0,2]") "}", "tensor \"a\" has 2 bytes, which is not"},
	{"{\"a\":" ENTRY("U8", "[4294967296,4294967296]", "[0,0]") "}",
		"m, byte 9: tensor \"a\" has a shape that is too large for any memory"},
	{"{\"a\":" ENTRY("U8", "[0,4294967296,4294967296]", "[0,0]") "}",
		"tensor \"a\" has a shape that is too large for any memory"},
	{"{\"a\":" ENTRY("F64", "[2305843009213693952]", "[0,0]") "}",
		"tensor \"a\" has 0 bytes, which is not"},
	{"{\"a\":" ENTRY("F32", "[4611686018427387904]", "[0,0]") "}",
		"tensor \"a\" has 0 bytes, which is not"},
	{"{\"a\":" ENTRY("U8",
		 "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,16]",
		 "[0,16]") "}",
		"tensor \"a\" has 33 dimensions, and at most 32 are allowed"},
	{"{\"a\":" ENTRY("U8", "[9]", "[0,9]") ",\"b\":" ENTRY("U8", "[8]", "[8,16]") "}",
		"m, byte 61: tensor \"b\" overlaps with tensor \"a\""},
	{"{\"b\":" ENTRY("U8", "[8]", "[8,16]") ",\"a\":" ENTRY("U8", "[16]", "[0,16]") "}",
		"m, byte 9: tensor \"b\" overlaps with tensor \"a\""},
	{"{\"a\":" ENTRY("U8", "[7]", "[0,7]") ",\"b\":" ENTRY("U8", "[8]", "[8,16]") "}",
		"m, byte 61: tensor \"b\" begins at byte 8 of the data, and the 1 bytes before it"},
	{"{\"a\":" ENTRY("U8", "[15]", "[1,16]") "}", "tensor \"a\" begins at byte 1 of the data"},
	{"{\"a\":" ENTRY("U8", "[15]", "[0,15]") "}",
		"m, byte 78: the last 1 bytes belong to no tensor"},
	{"{\"a\":" ENTRY("U8", "[8]", "[0,8]") ",\"a\":" ENTRY("U8", "[8]", "[8,16]") "}",
		"m, byte 64: duplicate object key near '\"a\"'"},
	{"{\"a\\u0000b\":" ENTRY("U8", "[16]", "[0,16]") "}", "m, byte 19: NUL byte in object key"},
	{"{\"a\xff\":" ENTRY("U8", "[16]", "[0,16]") "}",
		"m, byte 11: unable to decode byte 0xff near '\"a'"},
	{"{\"a\xed\xa0\x80\":1}", "unable to decode byte 0xed"},
	{"{\"__metadata__\":7}", "m, byte 9: __metadata__ is no JSON object"},
	{"{\"__metadata__\":{\"x\":7}}", "m, byte 9: __metadata__ has a value that is no text: x"},
	/* What a terminal would obey is not printed. */
	{"{\"a\\u001b[31m\\u009b\\u202e\":1}", "tensor \"a?[31m??"},
};

START_TEST(a_hostile_header_is_refused_with_its_place)
{
	const struct hostile *h = &hostile[_i];

	ck_assert_int_eq(read_header(h->header, 16), GPUMEM_E_INVALID);
	ck_assert_msg(strstr(gpumem_error_detail(), h->says), "%s: '%s', not '%s'", h->header,
		gpumem_error_detail(), h->says);
	for (const char *at = gpumem_error_detail(); *at; at++)
		ck_assert_msg((unsigned char)*at >= 0x20, "%s", gpumem_error_detail());
}
END_TEST

/* ---- lengths */

static void require_damaged(const char *says)
{
	ck_assert_int_eq(read_it(), GPUMEM_E_INVALID);
	ck_assert_msg(
		strstr(gpumem_error_detail(), says), "'%s', not '%s'", gpumem_error_detail(), says);
}

START_TEST(the_length_of_a_header_is_not_believed)
{
	static const char header[] = "{\"a\":" ENTRY("U8", "[16]", "[0,16]") "}";

	for (size_t n = 0; n < 8; n++) {
		char says[64];

		ck_assert_int_eq(ftruncate(file.fd, (off_t)n), 0);
		snprintf(says, sizeof(says), "m, byte %zu: the file ends before", n);
		require_damaged(says);
	}
	model_put(file.fd, UINT64_C(1) << 63, header, strlen(header), 16, 0);
	require_damaged("m, byte 0: the header has 9223372036854775808 bytes");
	model_put(file.fd, UINT64_MAX, header, strlen(header), 16, 0);
	require_damaged("m, byte 0: the header has 18446744073709551615 bytes");
	model_put(file.fd, GPUMEM_WEIGHTS_HEADER_MOST + 1, header, strlen(header), 16, 0);
	require_damaged("m, byte 0: the header has 100000001 bytes, and at most 100000000");
	model_put(file.fd, GPUMEM_WEIGHTS_HEADER_MOST, header, strlen(header), 16, 0);
	require_damaged("m, byte 79: the file ends within its header of 100000000 bytes");
	model_put(file.fd, strlen(header) + 17, header, strlen(header), 16, 0);
	require_damaged("the file ends within its header");
	model_put(file.fd, 0, header, strlen(header), 16, 0);
	require_damaged("m, byte 8: the header does not begin with");
	model_put(file.fd, strlen(header) - 1, header, strlen(header), 16, 0);
	require_damaged("expected near end of file");
	model_put(file.fd, strlen(header) + 1, header, strlen(header), 16, 0);
	require_damaged("m, byte 64: ");
}
END_TEST

START_TEST(a_file_that_is_cut_anywhere_is_refused)
{
	static const char header[] =
		"{\"a\":" ENTRY("U8", "[7]", "[0,7]") ",\"b\":" ENTRY("U8", "[9]", "[7,16]") "}";

	ck_assert_int_eq(read_header(header, 16), GPUMEM_OK);
	for (off_t n = (off_t)file.size - 1; n >= 0; n--) {
		ck_assert_int_eq(ftruncate(file.fd, n), 0);
		ck_assert_int_eq(read_it(), GPUMEM_E_INVALID);
		ck_assert(strstr(gpumem_error_detail(), "m, byte "));
	}
}
END_TEST

START_TEST(too_many_tensors_are_refused_before_they_cost_memory)
{
	GM_AUTO_FREE char *header = model_header("t", GPUMEM_WEIGHTS_TENSORS_MOST + 2, 0);

	model_put(file.fd, strlen(header), header, strlen(header), 0, 0);
	require_damaged("there are more than 262145 tensors");
	const char *says = strstr(gpumem_error_detail(), "byte ");
	unsigned long long at = strtoull(says + 5, NULL, 10);
	ck_assert_int_eq(strncmp(header + at - 8, "\"t262144\"", 9), 0);
}
END_TEST

START_TEST(too_many_values_are_refused_before_they_cost_memory)
{
	const size_t n = 20000000;
	GM_AUTO_FREE char *header = malloc(n + 1);

	ck_assert_ptr_nonnull(header);
	memset(header, ',', n);
	header[n] = '\0';
	memcpy(header, "{\"a\":[", 6);
	model_put(file.fd, n, header, n, 0, 0);
	require_damaged("m, byte 4194316: there are more than 4194304 values");
}
END_TEST

/* Writes the text again and again until the header has so many bytes. */
static char *repeat(const char *begin, const char *text, size_t n)
{
	size_t at = strlen(begin), length = strlen(text);
	char *header = malloc(n + length + 1);

	ck_assert_ptr_nonnull(header);
	memcpy(header, begin, at);
	for (; at < n; at += length)
		memcpy(header + at, text, length);
	header[at] = '\0';
	return header;
}

START_TEST(lists_in_lists_are_refused_before_they_cost_memory)
{
	/* A gigabyte, if the parser took it: there is hardly a comma. */
	GM_AUTO_FREE char *wide = repeat("{\"a\":[", "[[[[[[[]]]]]]],", 16000000);
	GM_AUTO_FREE char *deep = repeat("{\"a\":", "[", 100000);

	model_put(file.fd, strlen(wide), wide, strlen(wide), 0, 0);
	require_damaged("there are more than 4194304 values");
	model_put(file.fd, strlen(deep), deep, strlen(deep), 0, 0);
	require_damaged("m, byte 44: values are more than 32 deep in each other");
}
END_TEST

/* ---- mutations */

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Whether every tensor is inside of the data and none overlaps, whatever the header said. */
static void require_sound(void)
{
	uint64_t end = 0, data = file.size - file.data;

	for (size_t i = 0; i < table.n; i++) {
		const struct gm_weights_row *row = &table.rows[i];

		ck_assert_uint_eq(row->begin, end);
		end = row->begin + row->bytes;
		ck_assert_uint_le(end, data);
		ck_assert_ptr_nonnull(row->name);
		ck_assert_ptr_nonnull(row->dtype);
		ck_assert_uint_le(row->ndim, GPUMEM_WEIGHTS_DIMS_MOST);
	}
	ck_assert_uint_eq(end, data);
}

START_TEST(a_mutated_file_is_sound_or_refused)
{
	static const char header[] =
		"{\"__metadata__\":{\"format\":\"pt\"}," /* */
		"\"model.embed\":" ENTRY("BF16", "[4,8]",
			"[0,64]") "," /* */
				  "\"model.norm\":" ENTRY(
					  "F32", "[8]", "[64,96]") "," /* */
								   "\"lm_head\":" ENTRY("U8",
									   "[3,1]", "[96,99]") "}";
	static const char swaps[] = "0123456789[]{}\",:-.eE\\u \xff\x80";
	uint8_t sound[1024], bytes[1024];
	uint64_t state = 88172645463325252u;
	unsigned refused = 0, read = 0;

	ck_assert_int_eq(read_header(header, 99), GPUMEM_OK);
	size_t size = (size_t)file.size;
	ck_assert_uint_le(size, sizeof(sound));
	ck_assert_int_eq(pread(file.fd, sound, size, 0), (ssize_t)size);

	for (int i = 0; i < 20000; i++) {
		size_t n = size;

		memcpy(bytes, sound, size);
		for (uint64_t k = next_random(&state) % 3 + 1; k > 0; k--) {
			/* Mostly in the header, where it matters. */
			size_t at = next_random(&state) % (8 + strlen(header));
			uint8_t to =
				next_random(&state) % 4
					? (uint8_t)swaps[next_random(&state) % (sizeof(swaps) - 1)]
					: (uint8_t)next_random(&state);
			bytes[at] = to;
		}
		if (next_random(&state) % 16 == 0)
			n = next_random(&state) % size;
		ck_assert_int_eq(ftruncate(file.fd, 0), 0);
		ck_assert_int_eq(pwrite(file.fd, bytes, n, 0), (ssize_t)n);
		gpumem_status status = read_it();
		if (status) {
			ck_assert_int_eq(status, GPUMEM_E_INVALID);
			ck_assert(strstr(gpumem_error_detail(), "m, byte "));
			refused++;
		} else {
			require_sound();
			read++;
		}
	}
	/* A change of a name or of the metadata harms nothing. */
	ck_assert_uint_gt(refused, 1000);
	ck_assert_uint_gt(read, 100);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("safetensors");
	TCase *tc = tcase_create("safetensors");

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, a_sound_header_is_read);
	tcase_add_loop_test(tc, a_hostile_header_is_refused_with_its_place, 0,
		sizeof(hostile) / sizeof(*hostile));
	tcase_add_test(tc, the_length_of_a_header_is_not_believed);
	tcase_add_test(tc, a_file_that_is_cut_anywhere_is_refused);
	tcase_add_test(tc, too_many_tensors_are_refused_before_they_cost_memory);
	tcase_add_test(tc, too_many_values_are_refused_before_they_cost_memory);
	tcase_add_test(tc, lists_in_lists_are_refused_before_they_cost_memory);
	tcase_add_test(tc, a_mutated_file_is_sound_or_refused);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
