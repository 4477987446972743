/* SPDX-License-Identifier: Apache-2.0 */
/* daemon/books/token_hash.c against the published vectors of SipHash-2-4 with 128 bits of result, and the hash
 * of owners that rests on it. */
#include <endian.h>
#include <string.h>

#include "daemon/books/hash_table.h"
#include "daemon/books/owner.h"
#include "daemon/books/token_hash.h"
#include "tests/tap.h"

START_TEST(the_reference_vector_comes_out)
{
	/* Key 00 01 ... 0f, message 00 01 ... 0f: vectors_sip128[16] of the reference code. */
	static const uint8_t expected[16] = {0x6e, 0xe2, 0xa4, 0xca, 0x67, 0xb0, 0x54, 0xbb, 0xfd,
		0x33, 0x15, 0xbf, 0x85, 0x23, 0x05, 0x77};
	struct gm_token_hash_key key = {
		.k0 = UINT64_C(0x0706050403020100), .k1 = UINT64_C(0x0f0e0d0c0b0a0908)};
	uint8_t token[GM_TOKEN_BYTES], got[16];
	for (int i = 0; i < GM_TOKEN_BYTES; i++)
		token[i] = (uint8_t)i;
	struct gm_token_hash hash = gm_token_hash_make(&key, token);
	uint64_t words[2] = {htole64(hash.h[0]), htole64(hash.h[1])};
	memcpy(got, words, sizeof(got));
	ck_assert_mem_eq(got, expected, sizeof(got));
}
END_TEST

START_TEST(another_key_or_another_bit_gives_another_hash)
{
	struct gm_token_hash_key key = {1, 2}, other = {1, 3};
	uint8_t token[GM_TOKEN_BYTES] = {0};
	struct gm_token_hash hash = gm_token_hash_make(&key, token);
	struct gm_token_hash changed = gm_token_hash_make(&other, token);
	ck_assert_mem_ne(&hash, &changed, sizeof(hash));
	for (int bit = 0; bit < GM_TOKEN_BYTES * 8; bit++) {
		token[bit / 8] ^= (uint8_t)(1 << bit % 8);
		changed = gm_token_hash_make(&key, token);
		ck_assert_uint_ne(hash.h[0], changed.h[0]);
		ck_assert_uint_ne(hash.h[1], changed.h[1]);
		token[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}
END_TEST

/* Two names of runs that were searched for because the quick hash is the same. */
START_TEST(names_of_runs_that_collide_in_a_quick_hash_do_not_in_that_of_owners)
{
	const char *names[2] = {
		"yzDSPpEFpws2QUFtZfZLZZ5eOANnMDkm", "oUgXfzpU2uVkC318oTvdbwmEtrdqmDFD"};
	const struct gm_token_hash_key key = {1, 2}, other = {1, 3};
	struct gm_owner owners[2];
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(gm_owner_by_name(GM_OWNER_RUN, names[i], &owners[i]), 0);
		owners[i].id = 1235;
	}
	ck_assert_uint_eq(gm_table_hash(&owners[0], sizeof(owners[0])),
		gm_table_hash(&owners[1], sizeof(owners[1])));
	ck_assert_uint_ne(gm_owner_hash(&key, &owners[0]), gm_owner_hash(&key, &owners[1]));
	ck_assert_uint_ne(gm_owner_hash(&key, &owners[0]), gm_owner_hash(&other, &owners[0]));
	owners[1] = owners[0];
	owners[1].id++;
	ck_assert_uint_ne(gm_owner_hash(&key, &owners[0]), gm_owner_hash(&key, &owners[1]));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("token_hash");
	TCase *tcase = tcase_create("token_hash");
	tcase_add_test(tcase, the_reference_vector_comes_out);
	tcase_add_test(tcase, another_key_or_another_bit_gives_another_hash);
	tcase_add_test(tcase, names_of_runs_that_collide_in_a_quick_hash_do_not_in_that_of_owners);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
