/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a model, and dimensions that no model can have. */

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/estimate.h"
#include "tests/tap.h"

static char wrong[GM_ESTIMATE_WRONG];

static gpumem_model mistral(double bytes_per_weight)
{
	gpumem_model model = GPUMEM_MODEL_INIT;

	model.hidden = 4096;
	model.intermediate = 14336;
	model.layers = 32;
	model.vocab = 32000;
	model.heads = 32;
	model.kv_heads = 8;
	model.context = 4096;
	model.bytes_per_weight = bytes_per_weight;
	return model;
}

static gpumem_estimate estimate(const gpumem_model *model)
{
	gpumem_estimate e = GPUMEM_ESTIMATE_INIT;

	wrong[0] = '\0';
	ck_assert_msg(gm_estimate_inference(model, &e, wrong) == GPUMEM_OK, "%s", wrong);
	return e;
}

/* The estimate is refused with this sentence, and nothing is written. */
static void refused(const gpumem_model *model, const char *sentence)
{
	gpumem_estimate e = {.total = 77};

	ck_assert_int_eq(gm_estimate_inference(model, &e, wrong), GPUMEM_E_INVALID);
	ck_assert_str_eq(wrong, sentence);
	ck_assert_uint_eq(e.total, 77);
}

/*
 * Mistral 7B has 7,241,732,096 parameters. A head has 4096 / 32 = 128 values; 8 heads of keys have 1,024.
 *
 *   embeddings     32,000 x 4,096                      131,072,000
 *   a layer: Q     4,096 x 4,096                        16,777,216
 *            K, V  2 x 4,096 x 1,024                     8,388,608
 *            O     4,096 x 4,096                        16,777,216
 *            MLP   3 x 4,096 x 14,336                  176,160,768
 *            norms 2 x 4,096                                 8,192
 *                                                      218,112,000
 *   32 layers                                        6,979,584,000
 *   last norm                                                4,096
 *   output layer   4,096 x 32,000                      131,072,000
 *                                                    7,241,732,096
 *
 *   KV cache       2 x 32 x 4,096 x 8 x 128            268,435,456 values
 *   activations    4,096 x (2 x 4,096 + 2 x 14,336)    150,994,944 values
 *                  (attention has 2 x 4,096 + 2 x 1,024 = 10,240, the MLP 28,672: the MLP counts)
 *   logits         32,000 x 4 bytes                        128,000 bytes
 *
 *                          4 bytes                     2 bytes
 *   weights         28,966,928,384              14,483,464,192
 *   KV cache         1,073,741,824                 536,870,912
 *   activations        604,107,776                 302,117,888     (with 128,000 of logits)
 *   total           30,644,777,984              15,322,452,992
 */
START_TEST(mistral_7b_with_4_bytes)
{
	gpumem_model model = mistral(4);
	gpumem_estimate e = estimate(&model);

	ck_assert_uint_eq(e.parameters, 7241732096);
	ck_assert_uint_eq(e.weights, 28966928384);
	ck_assert_uint_eq(e.kv_cache, 1073741824);
	ck_assert_uint_eq(e.activations, 604107776);
	ck_assert_uint_eq(e.total, 30644777984);
}
END_TEST

START_TEST(mistral_7b_with_2_bytes)
{
	gpumem_model model = mistral(2);
	gpumem_estimate e = estimate(&model);

	ck_assert_uint_eq(e.parameters, 7241732096);
	ck_assert_uint_eq(e.weights, 14483464192);
	ck_assert_uint_eq(e.kv_cache, 536870912);
	ck_assert_uint_eq(e.activations, 302117888);
	ck_assert_uint_eq(e.total, 15322452992);
}
END_TEST

START_TEST(quantised_weights_do_not_shrink_the_cache)
{
	gpumem_model model = mistral(0.5);
	gpumem_estimate e = estimate(&model);

	ck_assert_uint_eq(e.weights, 3620866048);
	ck_assert_uint_eq(e.kv_cache, 536870912);
	ck_assert_uint_eq(e.activations, 302117888);

	/* Unless the program says so: 1 byte for each value. */
	model.bytes_per_value = 1;
	e = estimate(&model);
	ck_assert_uint_eq(e.kv_cache, 268435456);
	ck_assert_uint_eq(e.activations, 151122944);
}
END_TEST

START_TEST(a_part_of_a_byte_is_a_byte)
{
	gpumem_model model = GPUMEM_MODEL_INIT;

	model.hidden = model.intermediate = model.layers = model.vocab = 1;
	model.heads = model.kv_heads = model.context = 1;
	model.bytes_per_weight = 0.5;
	gpumem_estimate e = estimate(&model);
	/* embeddings, output, Q, K, V, O, 3 of the MLP, 3 norms */
	ck_assert_uint_eq(e.parameters, 12);
	ck_assert_uint_eq(e.weights, 6);
	model.tied = 1;
	e = estimate(&model);
	ck_assert_uint_eq(e.parameters, 11);
	ck_assert_uint_eq(e.weights, 6);
	/* Attention has 4 values here, the MLP 2; the stream has 2. */
	ck_assert_uint_eq(e.activations, (4 + 2) * 2 + 4);
}
END_TEST

/*
 * Qwen3 0.6B: 1024 wide, but 16 heads of 128. Tied embeddings 151,936 x 1,024 = 155,582,464. A layer: Q and O
 * 2 x 1,024 x 2,048 = 4,194,304; K and V 2 x 1,024 x 1,024 = 2,097,152; MLP 3 x 1,024 x 3,072 = 9,437,184; norms
 * 2,048: 15,730,688. 28 layers 440,459,264; last norm 1,024: 596,042,752. (The real one also has norms of Q and K: 256
 * in each layer.)
 */
START_TEST(heads_may_have_a_width_of_their_own)
{
	gpumem_model model = GPUMEM_MODEL_INIT;

	model.hidden = 1024;
	model.intermediate = 3072;
	model.layers = 28;
	model.vocab = 151936;
	model.heads = 16;
	model.kv_heads = 8;
	model.context = 1;
	model.bytes_per_weight = 2;
	model.head_dim = 128;
	model.tied = 1;
	gpumem_estimate e = estimate(&model);
	ck_assert_uint_eq(e.parameters, 596042752);
	ck_assert_uint_eq(e.kv_cache, 2 * 28 * 8 * 128 * 2);

	/* Then the number of heads need not divide the width. */
	model.heads = 24;
	model.hidden = 1000;
	estimate(&model);
}
END_TEST

START_TEST(impossible_dimensions_are_named)
{
	static const struct {
		size_t offset;
		const char *sentence;
	} zeros[] = {
		{offsetof(gpumem_model, hidden), "hidden must not be 0"},
		{offsetof(gpumem_model, intermediate), "intermediate must not be 0"},
		{offsetof(gpumem_model, layers), "layers must not be 0"},
		{offsetof(gpumem_model, vocab), "vocab must not be 0"},
		{offsetof(gpumem_model, heads), "heads must not be 0"},
		{offsetof(gpumem_model, kv_heads), "kv_heads must not be 0"},
		{offsetof(gpumem_model, context), "context must not be 0"},
	};
	gpumem_model model;

	for (size_t i = 0; i < sizeof(zeros) / sizeof(*zeros); i++) {
		model = mistral(2);
		memset((char *)&model + zeros[i].offset, 0, sizeof(uint64_t));
		refused(&model, zeros[i].sentence);
	}

	model = mistral(2);
	model.heads = 24;
	refused(&model, "heads is 24, which does not divide hidden (4096); set head_dim");
	model = mistral(2);
	model.kv_heads = 5;
	refused(&model, "kv_heads is 5, which does not divide heads (32)");
	model.kv_heads = 64;
	refused(&model, "kv_heads is 64, which does not divide heads (32)");
}
END_TEST

START_TEST(impossible_sizes_of_weights_are_named)
{
	static const double bad[] = {0, -1, 16.5, INFINITY, -INFINITY, NAN};
	gpumem_model model;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		gpumem_estimate e;
		model = mistral(bad[i]);
		ck_assert_int_eq(gm_estimate_inference(&model, &e, wrong), GPUMEM_E_INVALID);
		ck_assert_msg(!strncmp(wrong, "bytes_per_weight is ", 20), "%s", wrong);
	}
	model = mistral(16);
	estimate(&model);
	model.bytes_per_value = 17;
	refused(&model, "bytes_per_value is 17; it must be at most 16");
}
END_TEST

START_TEST(products_that_overflow_are_named)
{
	gpumem_model model;

	model = mistral(2);
	model.vocab = UINT64_C(1) << 60;
	refused(&model, "vocab is 1152921504606846976: the weights would pass 2^63 bytes");
	model = mistral(2);
	model.layers = UINT64_MAX;
	refused(&model, "layers is 18446744073709551615: the weights would pass 2^63 bytes");
	model = mistral(2);
	model.intermediate = UINT64_C(1) << 40;
	estimate(&model);
	model.intermediate = UINT64_C(1) << 50;
	refused(&model, "intermediate is 1125899906842624: the weights would pass 2^63 bytes");
	model = mistral(2);
	model.head_dim = UINT64_C(1) << 52;
	refused(&model, "head_dim is 4503599627370496: the weights would pass 2^63 bytes");

	/* The weights fit; the cache does not, or the activations do not. */
	model = mistral(2);
	model.context = UINT64_C(1) << 50;
	refused(&model, "context is 1125899906842624: the KV cache would pass 2^63 bytes");
	model = mistral(2);
	model.layers = 1;
	model.context = UINT64_C(1) << 49;
	refused(&model, "context is 562949953421312: the activations would pass 2^63 bytes");
}
END_TEST

START_TEST(a_total_that_overflows_is_refused)
{
	gpumem_model model = GPUMEM_MODEL_INIT;

	model.hidden = model.intermediate = model.vocab = 1;
	model.layers = model.heads = model.kv_heads = 1;
	model.bytes_per_weight = 16;
	model.bytes_per_value = 16;
	model.context = UINT64_C(1) << 55;
	/* 2^60 bytes of KV cache for each layer, and 3 x 2^60 of activations. */
	gpumem_estimate e = estimate(&model);
	ck_assert_uint_eq(e.kv_cache, UINT64_C(1) << 60);
	ck_assert_uint_eq(e.activations, (UINT64_C(3) << 60) + 4);
	model.layers = 4;
	estimate(&model);
	model.layers = 5;
	refused(&model, "context is 36028797018963968: the total would pass 2^63 bytes");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("estimate");
	TCase *tc = tcase_create("estimate");

	tcase_add_test(tc, mistral_7b_with_4_bytes);
	tcase_add_test(tc, mistral_7b_with_2_bytes);
	tcase_add_test(tc, quantised_weights_do_not_shrink_the_cache);
	tcase_add_test(tc, a_part_of_a_byte_is_a_byte);
	tcase_add_test(tc, heads_may_have_a_width_of_their_own);
	tcase_add_test(tc, impossible_dimensions_are_named);
	tcase_add_test(tc, impossible_sizes_of_weights_are_named);
	tcase_add_test(tc, products_that_overflow_are_named);
	tcase_add_test(tc, a_total_that_overflows_is_refused);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
