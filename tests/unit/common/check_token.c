/* SPDX-License-Identifier: Apache-2.0 */

/* Tokens and the random bytes they are made of. */

#include <string.h>

#include "common/bounds.h"
#include "common/system/random.h"
#include "common/token.h"
#include "tests/tap.h"

START_TEST(no_two_tokens_are_the_same)
{
	uint8_t tokens[64][GM_TOKEN_BYTES];

	for (size_t i = 0; i < 64; i++) {
		ck_assert_int_eq(gm_random(tokens[i], GM_TOKEN_BYTES), 0);
		for (size_t j = 0; j < i; j++)
			ck_assert(!gm_secret_equal(tokens[i], tokens[j], GM_TOKEN_BYTES));
	}
}
END_TEST

START_TEST(one_bit_anywhere_makes_them_differ)
{
	uint8_t a[GM_TOKEN_BYTES], b[GM_TOKEN_BYTES];

	ck_assert_int_eq(gm_random(a, sizeof(a)), 0);
	memcpy(b, a, sizeof(b));
	ck_assert(gm_secret_equal(a, b, sizeof(a)));
	for (unsigned bit = 0; bit < 8 * GM_TOKEN_BYTES; bit++) {
		b[bit / 8] ^= (uint8_t)(1u << bit % 8);
		ck_assert(!gm_secret_equal(a, b, sizeof(a)));
		b[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	ck_assert(gm_secret_equal(a, b, sizeof(a)));
}
END_TEST

START_TEST(every_byte_asked_for_is_filled_and_no_other)
{
	/* A byte that stays as it was through 64 fills was not filled: once in 2^512 by chance. */
	uint8_t bytes[300 + 2];
	bool moved[300] = {false};

	for (int round = 0; round < 64; round++) {
		memset(bytes, 0x5a, sizeof(bytes));
		ck_assert_int_eq(gm_random(bytes + 1, 300), 0);
		ck_assert_uint_eq(bytes[0], 0x5a);
		ck_assert_uint_eq(bytes[301], 0x5a);
		for (size_t i = 0; i < 300; i++)
			moved[i] |= bytes[i + 1] != 0x5a;
	}
	for (size_t i = 0; i < 300; i++)
		ck_assert(moved[i]);
	ck_assert_int_eq(gm_random(NULL, 0), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("token");
	TCase *tc = tcase_create("token");

	tcase_add_test(tc, no_two_tokens_are_the_same);
	tcase_add_test(tc, one_bit_anywhere_makes_them_differ);
	tcase_add_test(tc, every_byte_asked_for_is_filled_and_no_other);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
