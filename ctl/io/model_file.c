/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Reads the dimensions of a model from its config.json, as the transformers library writes it. The file
 * may come from anywhere: it is bounded in size, jansson bounds its depth, and every value is checked.
 * An error names the line and the key.
 */

#include "ctl/io/model_file.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/cleanup.h"

#define DIMENSION(member, option, key) {#member, option, key, offsetof(gpumem_model, member)},
const struct gm_model_dimension gm_model_dimensions[GM_MODEL_N_DIMENSIONS] = {
	GM_MODEL_DIMENSIONS(DIMENSION)};

int gm_model_file_dtype(const char *text, double *ret_bytes)
{
	static const struct {
		const char *name;
		double bytes;
	} types[] = {
		{"float64", 8},
		{"double", 8},
		{"float32", 4},
		{"fp32", 4},
		{"float", 4},
		{"bfloat16", 2},
		{"bf16", 2},
		{"float16", 2},
		{"fp16", 2},
		{"half", 2},
		{"float8_e4m3fn", 1},
		{"float8_e5m2", 1},
		{"float8", 1},
		{"fp8", 1},
		{"int8", 1},
		{"uint8", 1},
		{"int4", 0.5},
		{"uint4", 0.5},
		{"fp4", 0.5},
		{"nf4", 0.5},
	};
	char *end;

	if (!strncmp(text, "torch.", 6))
		text += 6;
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
		if (strcasecmp(text, types[i].name))
			continue;
		*ret_bytes = types[i].bytes;
		return 0;
	}

	double bytes = strtod(text, &end);
	if (strspn(text, "0123456789.") != strlen(text) || end == text || *end ||
		!(bytes > 0 && bytes <= 16))
		return -EINVAL;
	*ret_bytes = bytes;
	return 0;
}

/* ---- the file as text */

static int model_fail(char error[GM_MODEL_FILE_ERROR], int result, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int model_fail(char error[GM_MODEL_FILE_ERROR], int result, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vsnprintf(error, GM_MODEL_FILE_ERROR, format, list);
	va_end(list);
	return result;
}

/* Reads all of the file, which may be a pipe. The caller frees *ret_text. */
static int model_load(
	const char *path, char **ret_text, size_t *ret_n, char error[GM_MODEL_FILE_ERROR])
{
	GM_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	GM_AUTO_FREE char *text = malloc(GM_MODEL_FILE_BYTES + 1);
	size_t n = 0;

	if (!text)
		return model_fail(error, -ENOMEM, "%s: out of memory", path);
	while (fd >= 0 && n <= GM_MODEL_FILE_BYTES) {
		ssize_t got = read(fd, text + n, GM_MODEL_FILE_BYTES + 1 - n);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			fd = gm_close(fd);
			break;
		}
		if (got == 0)
			break;
		n += (size_t)got;
	}
	if (fd < 0)
		return model_fail(error, -errno, "%s: cannot be read: %s", path, strerror(errno));
	if (n > GM_MODEL_FILE_BYTES)
		return model_fail(error, -EINVAL,
			"%s: is longer than 1 MiB, which no config.json of a model is", path);
	*ret_text = gm_steal_ptr(&text);
	*ret_n = n;
	return 0;
}

/* The line of a key of the outermost object, in text that is known to be JSON; 0: it is not there as it
 * is written here. */
static unsigned model_line_of(const char *text, size_t n, const char *key)
{
	size_t length = strlen(key);
	unsigned line = 1, depth = 0;

	for (size_t i = 0; i < n; i++) {
		if (text[i] == '\n')
			line++;
		if (text[i] == '{' || text[i] == '[')
			depth++;
		if (text[i] == '}' || text[i] == ']')
			depth--;
		if (text[i] != '"')
			continue;

		size_t begin = ++i;
		for (; i < n && text[i] != '"'; i++)
			i += text[i] == '\\';
		if (depth != 1 || i - begin != length || memcmp(text + begin, key, length) != 0)
			continue;
		size_t after = i + 1;
		while (after < n && strchr(" \t\r\n", text[after]))
			after++;
		if (after < n && text[after] == ':')
			return line;
	}
	return 0;
}

/* ---- its values */

struct model_source {
	const char *path, *text;
	size_t n;
	const json_t *root;
	char *error;
};

static int model_wrong(const struct model_source *from, const char *key, const char *what)
{
	unsigned line = model_line_of(from->text, from->n, key);

	if (line)
		return model_fail(
			from->error, -EINVAL, "%s:%u: %s: %s", from->path, line, key, what);
	return model_fail(from->error, -EINVAL, "%s: %s: %s", from->path, key, what);
}

/* A key that is null counts as missing: then NULL. */
static const json_t *model_get(const struct model_source *from, const char *key)
{
	const json_t *value = json_object_get(from->root, key);
	return json_is_null(value) ? NULL : value;
}

static int model_take_dimensions(const struct model_source *from, struct gm_model_file *file)
{
	for (size_t i = 0; i < GM_MODEL_N_DIMENSIONS; i++) {
		const char *key = gm_model_dimensions[i].key;
		const json_t *value = model_get(from, key);

		if (!value)
			continue;
		if (!json_is_integer(value) || json_integer_value(value) < 1)
			return model_wrong(from, key, "is not a whole number of 1 or more");
		*gm_model_dimension(&file->model, i) = (uint64_t)json_integer_value(value);
		file->lines[i] = model_line_of(from->text, from->n, key);
	}
	return 0;
}

static int model_take_type(const struct model_source *from, struct gm_model_file *file)
{
	static const char *const keys[] = {"dtype", "torch_dtype"};

	for (size_t i = 0; i < 2; i++) {
		const json_t *value = model_get(from, keys[i]);
		if (!value)
			continue;
		if (!json_is_string(value) || gm_model_file_dtype(json_string_value(value),
						      &file->model.bytes_per_weight) < 0)
			return model_wrong(from, keys[i],
				"is no type that gpumemctl knows, such as \"bfloat16\"; give --dtype");
		break;
	}

	file->quantised = model_get(from, "quantization_config") != NULL;
	return 0;
}

/* Types of models that are built as gpumem_estimate_inference(3) says. */
static const struct {
	const char *name;
	bool tied; /* unless the file says otherwise */
} model_types[] = {
	{"arcee", false},
	{"cohere", true},
	{"cohere2", true},
	{"gemma", true},
	{"gemma2", true},
	{"gemma3_text", true},
	{"glm", false},
	{"glm4", false},
	{"granite", false},
	{"internlm2", false},
	{"llama", false},
	{"ministral", false},
	{"mistral", false},
	{"olmo", false},
	{"olmo2", false},
	{"phi3", false},
	{"qwen2", false},
	{"qwen3", false},
	{"seed_oss", false},
	{"smollm3", true},
	{"stablelm", false},
};

static int model_take_kind(const struct model_source *from, struct gm_model_file *file)
{
	const json_t *type = model_get(from, "model_type");

	if (json_is_true(model_get(from, "is_encoder_decoder")))
		return model_wrong(
			from, "is_encoder_decoder", "a model with an encoder is not estimated");
	if (model_get(from, "kv_lora_rank"))
		return model_wrong(from, "kv_lora_rank",
			"a model with a compressed KV cache is not estimated");
	if (model_get(from, "n_embd") && !model_get(from, "hidden_size"))
		return model_wrong(from, "n_embd",
			"a model like GPT-2, whose MLP has no gate, is not estimated");
	if (!type)
		return 0;
	if (!json_is_string(type))
		return model_wrong(from, "model_type", "is not a text");

	for (size_t i = 0; i < sizeof(model_types) / sizeof(*model_types); i++)
		if (!strcmp(json_string_value(type), model_types[i].name)) {
			file->model.tied = model_types[i].tied;
			return 0;
		}
	snprintf(file->strange, sizeof(file->strange), "%s", json_string_value(type));
	return 0;
}

static int model_take_rest(const struct model_source *from, struct gm_model_file *file)
{
	static const char *const experts[] = {
		"num_local_experts", "num_experts", "n_routed_experts"};
	const json_t *tied = model_get(from, "tie_word_embeddings");

	if (tied && !json_is_boolean(tied))
		return model_wrong(from, "tie_word_embeddings", "is neither true nor false");
	if (tied)
		file->model.tied = json_is_true(tied);

	for (size_t i = 0; i < sizeof(experts) / sizeof(*experts); i++) {
		const json_t *value = model_get(from, experts[i]);
		if (value && json_integer_value(value) != 1)
			return model_wrong(from, experts[i],
				"a mixture of experts has more weights than the estimate counts");
	}
	if (!model_get(from, "hidden_size") && model_get(from, "text_config"))
		return model_wrong(from, "text_config",
			"has the dimensions; a model with several parts is not estimated");
	return 0;
}

int gm_model_file_read(
	const char *path, struct gm_model_file *ret_file, char error[GM_MODEL_FILE_ERROR])
{
	struct gm_model_file file = {.model = GPUMEM_MODEL_INIT};
	GM_AUTO_FREE char *text = NULL;
	json_error_t why;
	size_t n = 0;

	int r = model_load(path, &text, &n, error);
	if (r < 0)
		return r;
	json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
	if (!root)
		return model_fail(error, -EINVAL,
			"%s:%d: is not JSON: %s; the file must be a model's config.json", path,
			why.line, why.text);

	struct model_source from = {path, text, n, root, error};
	if (!json_is_object(root))
		r = model_fail(error, -EINVAL,
			"%s:1: is not a JSON object; the file must be a model's config.json", path);
	if (r == 0)
		r = model_take_dimensions(&from, &file);
	if (r == 0)
		r = model_take_type(&from, &file);
	if (r == 0)
		r = model_take_kind(&from, &file);
	if (r == 0)
		r = model_take_rest(&from, &file);
	json_decref(root);
	if (r == 0)
		*ret_file = file;
	return r;
}
