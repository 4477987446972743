/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads one JSON value from stdin, strictly, and prints what a path leads to: "devices.0.total";
 * "devices.#" is how many there are; "keys" as the only word lists every key in it, once each per
 * use. 0; 1: it is no JSON, or nothing is there.
 */

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_keys(const json_t *json)
{
	const char *key;
	json_t *value;
	size_t i;

	json_object_foreach((json_t *)json, key, value)
	{
		puts(key);
		print_keys(value);
	}
	json_array_foreach(json, i, value) print_keys(value);
}

int main(int argc, char **argv)
{
	json_error_t error;
	json_t *root = json_loadf(stdin, JSON_REJECT_DUPLICATES, &error);
	const json_t *at = root;

	if (!root) {
		fprintf(stderr, "no JSON: line %d: %s\n", error.line, error.text);
		return 1;
	}
	if (argc == 2 && !strcmp(argv[1], "keys")) {
		print_keys(root);
		json_decref(root);
		return 0;
	}
	char *rest = argc == 2 ? argv[1] : NULL;
	for (char *word; at && (word = strsep(&rest, "."));) {
		if (json_is_array(at) && !strcmp(word, "#")) {
			printf("%zu\n", json_array_size(at));
			json_decref(root);
			return 0;
		}
		at = json_is_array(at) ? json_array_get(at, strtoul(word, NULL, 10))
				       : json_object_get(at, word);
	}
	if (!at) {
		fprintf(stderr, "nothing is there\n");
		json_decref(root);
		return 1;
	}
	if (json_is_string(at)) {
		puts(json_string_value(at));
	} else {
		json_dumpf(at, stdout, JSON_ENCODE_ANY | JSON_COMPACT);
		putchar('\n');
	}
	json_decref(root);
	return 0;
}
