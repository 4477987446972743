/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* The config.json of a model: what is read of it, and what is said about a bad one. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/io/model_file.h"
#include "tests/tap.h"

static char path[64], error[GM_MODEL_FILE_ERROR];
static struct gm_model_file file;

static void setup(void)
{
	snprintf(path, sizeof(path), "/tmp/gm-model-XXXXXX");
	int fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

static void teardown(void)
{
	unlink(path);
}

static int read_bytes(const char *text, size_t n)
{
	FILE *out = fopen(path, "w");
	ck_assert_ptr_nonnull(out);
	ck_assert_uint_eq(fwrite(text, 1, n, out), n);
	fclose(out);
	*error = '\0';
	memset(&file, 0x55, sizeof(file));
	return gm_model_file_read(path, &file, error);
}

static void reads(const char *text)
{
	ck_assert_msg(read_bytes(text, strlen(text)) == 0, "%s", error);
}

/* The file is refused, and the message is its path followed by this. */
static void refused(const char *text, const char *message)
{
	char expected[GM_MODEL_FILE_ERROR];
	ck_assert_int_eq(read_bytes(text, strlen(text)), -EINVAL);
	snprintf(expected, sizeof(expected), "%s%s", path, message);
	ck_assert_str_eq(error, expected);
	ck_assert_uint_eq(file.model.hidden, UINT64_C(0x5555555555555555));
}

START_TEST(the_keys_of_a_model_are_read)
{
	reads("{\n"
	      "  \"architectures\": [\"MistralForCausalLM\"],\n"
	      "  \"hidden_size\": 4096,\n"
	      "  \"nested\": {\"vocab_size\": 1, \"x\": [{\"head_dim\": 7}]},\n"
	      "  \"text\": \"vocab_size\", \"quote\": \"\\\"vocab_size\\\": {[\",\n"
	      "  \"intermediate_size\": 14336, \"num_hidden_layers\": 32,\n"
	      "  \"vocab_size\"  :\n 32000,\n"
	      "  \"num_attention_heads\": 32, \"num_key_value_heads\": 8,\n"
	      "  \"max_position_embeddings\": 32768,\n"
	      "  \"head_dim\": null,\n"
	      "  \"torch_dtype\": \"bfloat16\",\n"
	      "  \"tie_word_embeddings\": true\n"
	      "}\n");
	ck_assert_uint_eq(file.model.hidden, 4096);
	ck_assert_uint_eq(file.model.intermediate, 14336);
	ck_assert_uint_eq(file.model.layers, 32);
	ck_assert_uint_eq(file.model.vocab, 32000);
	ck_assert_uint_eq(file.model.heads, 32);
	ck_assert_uint_eq(file.model.kv_heads, 8);
	ck_assert_uint_eq(file.model.context, 32768);
	ck_assert_uint_eq(file.model.head_dim, 0);
	ck_assert_uint_eq(file.model.tied, 1);
	ck_assert_double_eq(file.model.bytes_per_weight, 2);
	ck_assert(!file.quantised);

	/* The lines are those of the outermost object. */
	static const unsigned lines[] = {3, 6, 6, 7, 9, 9, 10, 0};
	for (size_t i = 0; i < GM_MODEL_N_DIMENSIONS; i++)
		ck_assert_uint_eq(file.lines[i], lines[i]);
}
END_TEST

START_TEST(what_is_missing_is_no_error)
{
	reads("{}");
	ck_assert_uint_eq(file.model.hidden, 0);
	ck_assert_uint_eq(file.model.tied, 0);
	ck_assert(!(file.model.bytes_per_weight > 0));
	reads("{\"dtype\": \"float32\", \"torch_dtype\": \"float16\", \"quantization_config\": {}}");
	ck_assert_double_eq(file.model.bytes_per_weight, 4);
	ck_assert(file.quantised);
}
END_TEST

START_TEST(wrong_values_are_named_with_line_and_key)
{
	static const char *const bad[] = {
		"0", "-1", "4096.0", "\"4096\"", "true", "[]", "{}", "1e3"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		char text[128];
		snprintf(text, sizeof(text), "{\n\n\"vocab_size\": %s}", bad[i]);
		refused(text, ":3: vocab_size: is not a whole number of 1 or more");
	}
	refused("{\n\"torch_dtype\": \"float7\"}",
		":2: torch_dtype: is no type that gpumemctl knows, such as \"bfloat16\"; give "
		"--dtype");
	refused("{\n\"dtype\": 2}",
		":2: dtype: is no type that gpumemctl knows, such as \"bfloat16\"; give --dtype");
	refused("{\"tie_word_embeddings\": 1}",
		":1: tie_word_embeddings: is neither true nor false");
	refused("{\n\"hidden_size\": 1,\n\"num_local_experts\": 8}",
		":3: num_local_experts: a mixture of experts has more weights than the estimate "
		"counts");
	refused("{\"text_config\": {\"hidden_size\": 1}}",
		":1: text_config: has the dimensions; a model with several parts is not estimated");
	refused("{\n\"is_encoder_decoder\": true}",
		":2: is_encoder_decoder: a model with an encoder is not estimated");
	refused("{\n\"hidden_size\": 1,\n\"kv_lora_rank\": 512}",
		":3: kv_lora_rank: a model with a compressed KV cache is not estimated");
	refused("{\n\"model_type\": \"gpt2\",\n\"n_embd\": 768}",
		":3: n_embd: a model like GPT-2, whose MLP has no gate, is not estimated");
	refused("{\n\"model_type\": 7}", ":2: model_type: is not a text");
	/* A key that is written with escapes is the same key, but its line is not found. */
	refused("{\"vocab\\u005fsize\": 0}", ": vocab_size: is not a whole number of 1 or more");
}
END_TEST

START_TEST(models_that_are_built_otherwise_are_noticed)
{
	static const char *const known[] = {"llama", "mistral", "qwen2", "qwen3", "gemma2", "phi3"};
	static const char *const strange[] = {"bert", "roberta", "opt", "", "llamas", "qwen"};
	char text[128];

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		snprintf(text, sizeof(text), "{\"model_type\": \"%s\"}", known[i]);
		reads(text);
		ck_assert_msg(!*file.strange, "%s", known[i]);
	}
	for (size_t i = 0; i < sizeof(strange) / sizeof(*strange); i++) {
		snprintf(text, sizeof(text), "{\"model_type\": \"%s\"}", strange[i]);
		reads(text);
		ck_assert_str_eq(file.strange, strange[i]);
	}
	/* A long one is cut. */
	reads("{\"model_type\": \"0123456789012345678901234567890123456789\"}");
	ck_assert_uint_eq(strlen(file.strange), sizeof(file.strange) - 1);

	reads("{\"is_encoder_decoder\": false, \"kv_lora_rank\": null}");
	ck_assert(!*file.strange);
}
END_TEST

START_TEST(embeddings_are_tied_by_default_where_the_model_does_so)
{
	reads("{\"model_type\": \"gemma2\"}");
	ck_assert_uint_eq(file.model.tied, 1);
	reads("{\"model_type\": \"gemma\", \"tie_word_embeddings\": false}");
	ck_assert_uint_eq(file.model.tied, 0);
	reads("{\"model_type\": \"llama\"}");
	ck_assert_uint_eq(file.model.tied, 0);
}
END_TEST

START_TEST(damaged_files_are_refused)
{
	static const char *const bad[] = {"", "{", "}", "{\"hidden_size\": }", "{} x",
		"{\"a\": 1,}", "\xff\xfe", "{\"a\": \"\xc3\x28\"}", "nonsense",
		"{\"hidden_size\": 99999999999999999999999}",
		"{\"hidden_size\": 1, \"hidden_size\": 2}"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		ck_assert_int_eq(read_bytes(bad[i], strlen(bad[i])), -EINVAL);
		ck_assert_msg(strstr(error, ":1: ") != NULL, "%s", error);
	}
	refused("root:x:0:0",
		":1: is not JSON: '[' or '{' expected near 'root'; the file must be a model's config.json");
	refused("[1]", ":1: is not a JSON object; the file must be a model's config.json");
	ck_assert_int_eq(read_bytes("{}\0{}", 5), -EINVAL);
}
END_TEST

START_TEST(huge_and_deep_files_are_refused)
{
	size_t n = GM_MODEL_FILE_BYTES;
	char *text = malloc(n + 1);
	ck_assert_ptr_nonnull(text);
	memset(text, ' ', n + 1);
	memcpy(text, "{}", 2);
	ck_assert_int_eq(read_bytes(text, n), 0);
	ck_assert_int_eq(read_bytes(text, n + 1), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, "is longer than 1 MiB"));

	memset(text, '[', n);
	ck_assert_int_eq(read_bytes(text, n), -EINVAL);
	ck_assert_ptr_nonnull(strstr(error, ":1: "));
	free(text);
}
END_TEST

START_TEST(files_that_cannot_be_read_are_named)
{
	ck_assert_int_eq(gm_model_file_read("/nonexistent", &file, error), -ENOENT);
	ck_assert_str_eq(error, "/nonexistent: cannot be read: No such file or directory");
	ck_assert_int_eq(gm_model_file_read("/", &file, error), -EISDIR);
	ck_assert_int_eq(gm_model_file_read("/dev/zero", &file, error), -EINVAL);
	ck_assert_int_eq(gm_model_file_read("/dev/null", &file, error), -EINVAL);
}
END_TEST

START_TEST(types_are_names_or_numbers_of_bytes)
{
	static const struct {
		const char *text;
		double bytes;
	} good[] = {{"float32", 4}, {"bfloat16", 2}, {"torch.float16", 2}, {"BF16", 2}, {"int8", 1},
		{"int4", 0.5}, {"float8_e4m3fn", 1}, {"2", 2}, {"0.5", 0.5}, {"16", 16}};
	static const char *const bad[] = {"", "float7", "0", "-1", "17", "nan", "inf", "0x2", "2 ",
		" 2", "1e0", ".", "torch.", "1.2.3"};
	double bytes;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		ck_assert_int_eq(gm_model_file_dtype(good[i].text, &bytes), 0);
		ck_assert_double_eq(bytes, good[i].bytes);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		ck_assert_msg(gm_model_file_dtype(bad[i], &bytes) == -EINVAL, "'%s'", bad[i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("model_file");
	TCase *tc = tcase_create("model_file");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, the_keys_of_a_model_are_read);
	tcase_add_test(tc, what_is_missing_is_no_error);
	tcase_add_test(tc, wrong_values_are_named_with_line_and_key);
	tcase_add_test(tc, models_that_are_built_otherwise_are_noticed);
	tcase_add_test(tc, embeddings_are_tied_by_default_where_the_model_does_so);
	tcase_add_test(tc, damaged_files_are_refused);
	tcase_add_test(tc, huge_and_deep_files_are_refused);
	tcase_add_test(tc, files_that_cannot_be_read_are_named);
	tcase_add_test(tc, types_are_names_or_numbers_of_bytes);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
