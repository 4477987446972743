/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* gpumemctl estimate against a scripted daemon: what it computes, where it looks for room, and what it
 * says about a model that cannot be. tests/unit/common/check_estimate.c has the figures by hand. */

#include <unistd.h>

#include "tests/tap.h"
#include "tests/unit/show/placement_script.h"

static char path[64];

static void make_file(void)
{
	setup();
	snprintf(path, sizeof(path), "/tmp/gm-model-XXXXXX");
	int fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

static void remove_file(void)
{
	unlink(path);
}

static void write_file(const char *heads, const char *rest)
{
	FILE *out = fopen(path, "w");
	ck_assert_ptr_nonnull(out);
	fprintf(out,
		"{\"hidden_size\": 4096,\n\"intermediate_size\": 14336,\n\"num_hidden_layers\": 32,\n"
		"\"vocab_size\": 32000,\n\"num_attention_heads\": %s,\n\"num_key_value_heads\": 8,\n"
		"\"max_position_embeddings\": 4096%s}\n",
		heads, rest);
	fclose(out);
}

static struct gm_options mistral(void)
{
	struct gm_options options = {.given = GM_OPTION_MODEL};
	options.model.hidden = 4096;
	options.model.intermediate = 14336;
	options.model.layers = 32;
	options.model.vocab = 32000;
	options.model.heads = 32;
	options.model.kv_heads = 8;
	options.model.context = 4096;
	return options;
}

static int64_t field(const json_t *json, const char *key)
{
	const json_t *value = json_object_get(json, key);
	ck_assert_msg(json_is_integer(value), "%s is no number", key);
	return json_integer_value(value);
}

/* A daemon that goes away at once. */
static void script_nothing(struct gm_fake *f, void *user)
{
}

/* The verb fails before it asks a daemon. */
static void refused(const struct gm_options *options, const char *text)
{
	struct gm_ctl ctl = {.options = options, .writer = gm_writer_json_new()};
	ck_assert_int_ne(gm_verb_find(gm_verbs, "estimate")->run(&ctl), GPUMEM_OK);
	gm_writer_free(ctl.writer);
	usage = ctl.usage;
	ck_assert_str_eq(ctl.trouble.text, text);
}

START_TEST(a_model_that_no_device_can_ever_hold_is_said_to_be_one)
{
	struct gm_options options = mistral();
	char *text = run("estimate", script_place, false, &options);
	ck_assert_ptr_null(strstr(text, "can ever give"));
	free(text);
	too_small = true;
	text = run("estimate", script_place, false, &options);
	has(text, "No device can ever give you 14.3G: the most is 6.0G, on device 2.\n");
	free(text);
	too_small = false;
}
END_TEST

START_TEST(dimensions_are_options_and_the_daemon_is_asked_for_the_total)
{
	struct gm_options options = mistral();
	json_t *json = parse(run("estimate", script_place, true, &options));
	ck_assert_int_eq(field(json, "parameters"), 7241732096);
	ck_assert_int_eq(field(json, "weights"), 14483464192);
	ck_assert_int_eq(field(json, "kv_cache"), 536870912);
	ck_assert_int_eq(field(json, "activations"), 302117888);
	ck_assert_int_eq(field(json, "total"), 15322452992);
	ck_assert_uint_eq(placed, 15322452992);
	ck_assert_int_eq(number(json, "placements", 0, "device"), 7);
	const json_t *model = json_object_get(json, "model");
	ck_assert_int_eq(field(model, "head_dim"), 128);
	ck_assert_double_eq(json_real_value(json_object_get(model, "bytes_per_weight")), 2);
	json_decref(json);
}
END_TEST

START_TEST(a_file_says_the_same_and_an_option_overrides_it)
{
	struct gm_options options = {.args = {path}, .n_args = 1};
	write_file("32", ", \"torch_dtype\": \"float32\"");
	json_t *json = parse(run("estimate", script_place, true, &options));
	ck_assert_int_eq(field(json, "total"), 30644777984);
	json_decref(json);

	options.given = GM_OPTION_MODEL;
	options.model.bytes_per_weight = 2;
	json = parse(run("estimate", script_place, true, &options));
	ck_assert_int_eq(field(json, "total"), 15322452992);
	json_decref(json);

	options.model.tied = 1;
	json = parse(run("estimate", script_place, true, &options));
	ck_assert_int_eq(field(json, "parameters"), 7241732096 - 131072000);
	json_decref(json);
}
END_TEST

START_TEST(people_see_the_parts_and_the_devices)
{
	struct gm_options options = mistral();
	char *text = run("estimate", script_place, false, &options);
	has(text, " parameters: 7,241,732,096\n");
	has(text, "13.5G (2 bytes each)");
	has(text, "512.0M (4096 tokens)\n");
	has(text, "14.3G");
	has(text, "DEV FIT");
	/* The reasons are below the table, whole. */
	has(text, "\n  device 2 is full\n  device 0 is too small\n");
	fits_screen(text, 14);
	free(text);
}
END_TEST

START_TEST(the_context_is_what_the_model_allows_unless_one_says_less)
{
	struct gm_options options = {.args = {path}, .n_args = 1};
	write_file("32", "");
	char *text = run("estimate", script_place, false, &options);
	has(text, "512.0M (4096 tokens, the model's maximum; see --context)\n");
	free(text);

	options.given = GM_OPTION_MODEL;
	options.model.context = 4096;
	text = run("estimate", script_place, false, &options);
	has(text, "512.0M (4096 tokens)\n");
	ck_assert_ptr_null(strstr(text, "!"));
	free(text);

	options.model.context = 8192;
	text = run("estimate", script_place, false, &options);
	has(text, "! the model allows for 4096 tokens, and --context is 8192\n");
	free(text);
	json_t *json = parse(run("estimate", script_place, true, &options));
	equals(json, "warnings", 0, "kind", "context");
	json_decref(json);
}
END_TEST

START_TEST(a_model_of_another_build_has_a_warning)
{
	struct gm_options options = {.args = {path}, .n_args = 1};
	write_file("32", ", \"model_type\": \"bert\"");
	json_t *json = parse(run("estimate", script_place, true, &options));
	equals(json, "warnings", 0, "kind", "model-type");
	equals(json, "warnings", 0, "text",
		"the formulas are for models like Llama, and may be wrong for a model of the type "
		"'bert'; see gpumem_estimate_inference(3)");
	json_decref(json);
}
END_TEST

START_TEST(values_of_the_cache_have_a_size_of_their_own)
{
	struct gm_options options = mistral();
	options.model.bytes_per_value = 1;
	json_t *json = parse(run("estimate", script_place, true, &options));
	ck_assert_int_eq(field(json, "weights"), 14483464192);
	ck_assert_int_eq(field(json, "kv_cache"), 536870912 / 2);
	ck_assert_int_eq(field(json_object_get(json, "model"), "bytes_per_value"), 1);
	json_decref(json);

	/* It follows from the weights if nobody says. */
	options.model.bytes_per_value = 0;
	options.model.bytes_per_weight = 4;
	json = parse(run("estimate", script_place, true, &options));
	ck_assert_int_eq(field(json_object_get(json, "model"), "bytes_per_value"), 4);
	json_decref(json);
}
END_TEST

START_TEST(embeddings_can_be_untied)
{
	struct gm_options options = {.args = {path}, .n_args = 1};
	write_file("32", ", \"tie_word_embeddings\": true");
	json_t *json = parse(run("estimate", script_place, true, &options));
	ck_assert_int_eq(field(json, "parameters"), 7241732096 - 131072000);
	json_decref(json);

	options.given = GM_OPTION_MODEL;
	options.untied = true;
	json = parse(run("estimate", script_place, true, &options));
	ck_assert_int_eq(field(json, "parameters"), 7241732096);
	ck_assert(json_is_false(json_object_get(json_object_get(json, "model"), "tied")));
	json_decref(json);
}
END_TEST

START_TEST(as_many_heads_of_keys_as_heads_if_nobody_says)
{
	struct gm_options options = mistral();
	options.model.kv_heads = 0;
	json_t *json = parse(run("estimate", script_place, true, &options));
	ck_assert_int_eq(field(json_object_get(json, "model"), "kv_heads"), 32);
	ck_assert_int_eq(field(json, "kv_cache"), UINT64_C(4) * 536870912);
	json_decref(json);
}
END_TEST

START_TEST(quantised_weights_want_a_type)
{
	struct gm_options options = {.args = {path}, .n_args = 1};
	write_file("32", ", \"quantization_config\": {\"bits\": 4}");
	json_t *json = parse(run("estimate", script_place, true, &options));
	equals(json, "warnings", 0, "kind", "quantised");
	json_decref(json);

	options.given = GM_OPTION_MODEL;
	options.model.bytes_per_weight = 0.5;
	json = parse(run("estimate", script_place, true, &options));
	ck_assert_uint_eq(json_array_size(json_object_get(json, "warnings")), 0);
	ck_assert_int_eq(field(json, "weights"), 3620866048);
	json_decref(json);
}
END_TEST

START_TEST(what_is_wrong_is_named_where_it_comes_from)
{
	struct gm_options options = {.args = {path}, .n_args = 1};
	char text[256];

	write_file("24", "");
	snprintf(text, sizeof(text),
		"%s:5: num_attention_heads: heads is 24, which does not divide hidden (4096); set "
		"head_dim",
		path);
	refused(&options, text);
	ck_assert(!usage);

	write_file("null", "");
	snprintf(text, sizeof(text), "%s: num_attention_heads is missing; give --heads", path);
	refused(&options, text);
	ck_assert(!usage);

	write_file("9223372036854775807", "");
	options.given = GM_OPTION_MODEL;
	options.model.head_dim = 128;
	options.model.kv_heads = 1;
	snprintf(text, sizeof(text),
		"%s:5: num_attention_heads: heads is 9223372036854775807: the weights would pass "
		"2^63 bytes",
		path);
	refused(&options, text);

	options = mistral();
	options.model.kv_heads = 5;
	refused(&options, "--kv-heads: kv_heads is 5, which does not divide heads (32)");
	ck_assert(usage);
	options = mistral();
	options.model.vocab = 0;
	refused(&options, "--vocab is missing; give all dimensions, or the config.json of a model; "
			  "see 'gpumemctl estimate --help'");
	ck_assert(usage);
}
END_TEST

START_TEST(without_a_daemon_there_is_an_estimate_all_the_same)
{
	struct gm_options options = mistral();
	json_t *json = parse(run("estimate", script_nothing, true, &options));
	ck_assert_int_eq(field(json, "total"), 15322452992);
	ck_assert_uint_eq(json_array_size(json_object_get(json, "placements")), 0);
	equals(json, "warnings", 0, "kind", "no-daemon");
	json_decref(json);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("verb_estimate");
	TCase *tcase = tcase_create("verb");
	tcase_add_checked_fixture(tcase, make_file, remove_file);
	tcase_add_test(tcase, a_model_that_no_device_can_ever_hold_is_said_to_be_one);
	tcase_add_test(tcase, dimensions_are_options_and_the_daemon_is_asked_for_the_total);
	tcase_add_test(tcase, a_file_says_the_same_and_an_option_overrides_it);
	tcase_add_test(tcase, people_see_the_parts_and_the_devices);
	tcase_add_test(tcase, the_context_is_what_the_model_allows_unless_one_says_less);
	tcase_add_test(tcase, a_model_of_another_build_has_a_warning);
	tcase_add_test(tcase, values_of_the_cache_have_a_size_of_their_own);
	tcase_add_test(tcase, embeddings_can_be_untied);
	tcase_add_test(tcase, as_many_heads_of_keys_as_heads_if_nobody_says);
	tcase_add_test(tcase, quantised_weights_want_a_type);
	tcase_add_test(tcase, what_is_wrong_is_named_where_it_comes_from);
	tcase_add_test(tcase, without_a_daemon_there_is_an_estimate_all_the_same);
	suite_add_tcase(suite, tcase);
	return gm_tap_run(suite);
}
