/* SPDX-License-Identifier: Apache-2.0 */
#include "weights/json_text.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "weights/weights_error.h"

/* Each value becomes an object of some 50 bytes, and of some 300 if it holds others. The largest models have a quarter of
 * this. */
#define JSON_VALUES_MOST 4194304
/* What describes a model is 4 deep. */
#define JSON_DEPTH_MOST 32

struct json_scan {
	struct gm_json_text *text;
	const char *file_name, *bytes, *member;
	uint64_t base;
	size_t n, most, room;
	unsigned depth, wanted; /* whose keys are wanted; the member's value has depth 2 */
	bool inside;            /* in the member; always, if there is none */
	bool key;               /* a string that comes now is a key */
	size_t values;
};

static gpumem_status json_note_key(struct json_scan *scan, size_t at)
{
	struct gm_json_text *text = scan->text;

	if (text->n_keys == scan->most)
		return gm_weights_damaged(scan->file_name, scan->base + at, NULL,
			"there are more than %zu tensors", scan->most);
	if (text->n_keys == scan->room) {
		scan->room = scan->room ? 2 * scan->room : 256;
		uint64_t *keys = realloc(text->keys, scan->room * sizeof(*keys));
		if (!keys)
			return gm_weights_error(
				GPUMEM_E_HOST_MEMORY, "no memory for the table of tensors");
		text->keys = keys;
	}
	text->keys[text->n_keys++] = scan->base + at;
	return GPUMEM_OK;
}

/* Takes the string that begins at i. *ret_end is its closing quote. */
static gpumem_status json_scan_string(struct json_scan *scan, size_t i, size_t *ret_end)
{
	size_t end = i + 1;

	while (end < scan->n && scan->bytes[end] != '"')
		end += scan->bytes[end] == '\\' ? 2 : 1;
	*ret_end = end;
	if (!scan->key || end >= scan->n)
		return GPUMEM_OK;

	scan->key = false;
	if (scan->depth == 1 && scan->member)
		scan->inside = end - i - 1 == strlen(scan->member) &&
			       !memcmp(scan->bytes + i + 1, scan->member, end - i - 1);
	return scan->depth == scan->wanted && scan->inside ? json_note_key(scan, i) : GPUMEM_OK;
}

static gpumem_status json_count_value(struct json_scan *scan, size_t at)
{
	if (++scan->values > JSON_VALUES_MOST)
		return gm_weights_damaged(scan->file_name, scan->base + at, NULL,
			"there are more than %d values", JSON_VALUES_MOST);
	return GPUMEM_OK;
}

/* A list or an object begins. It costs memory without a comma, too: lists in lists have none. */
static gpumem_status json_scan_deeper(struct json_scan *scan, size_t at)
{
	if (++scan->depth > JSON_DEPTH_MOST)
		return gm_weights_damaged(scan->file_name, scan->base + at, NULL,
			"values are more than %d deep in each other", JSON_DEPTH_MOST);
	scan->key = scan->bytes[at] == '{';
	return json_count_value(scan, at);
}

/* Goes through a text that may be no JSON. In that case it notes nonsense, and jansson refuses the text. */
static gpumem_status json_scan_all(struct json_scan *scan)
{
	gpumem_status status = GPUMEM_OK;

	for (size_t i = 0; i < scan->n && !status; i++) {
		switch (scan->bytes[i]) {
		case '"':
			status = json_scan_string(scan, i, &i);
			break;
		case '{':
		case '[':
			status = json_scan_deeper(scan, i);
			break;
		case '}':
		case ']':
			scan->depth -= scan->depth > 0;
			scan->key = false;
			break;
		case ',':
			/* In a list no string is a key, but none is wanted there either. */
			scan->key = true;
			status = json_count_value(scan, i);
			break;
		default:
			break;
		}
	}
	return status;
}

gpumem_status gm_json_text_parse(struct gm_json_text *text, const char *file_name, uint64_t base,
	const char *bytes, size_t n, const char *member, size_t most)
{
	struct gm_json_text parsed = {0};
	struct json_scan scan = {.text = &parsed,
		.file_name = file_name,
		.bytes = bytes,
		.member = member,
		.base = base,
		.n = n,
		.most = most,
		.wanted = member ? 2 : 1,
		.inside = !member};
	json_error_t error;

	gpumem_status status = json_scan_all(&scan);
	if (!status) {
		parsed.root = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &error);
		if (!parsed.root)
			status = gm_weights_damaged(file_name,
				base + (error.position > 0 ? (uint64_t)error.position : 0), NULL,
				"%s", error.text);
		else if (!json_is_object(parsed.root))
			status =
				gm_weights_damaged(file_name, base, NULL, "this is no JSON object");
	}
	if (status)
		gm_json_text_deinit(&parsed);
	else
		*text = parsed;
	return status;
}

void gm_json_text_deinit(struct gm_json_text *text)
{
	json_decref(text->root);
	free(text->keys);
	*text = (struct gm_json_text){0};
}
