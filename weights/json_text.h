/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_WEIGHTS_JSON_TEXT_H
#define GM_WEIGHTS_JSON_TEXT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "gpumem/gpumem.h"

/*
 * JSON that nobody trusts. jansson does not say where in the text a value stands, and makes an object of each value, so
 * the text is looked through before: for the places of the keys, and for more values than any model has.
 */

struct gm_json_text {
	json_t *root; /* an object */
	uint64_t *
		keys; /* where each key of the member stands in the file, in the order of the text */
	size_t n_keys;
};

/* Parses a text that must be an object and stands at base in the file. member: the places of the keys of this member are
 * wanted, which is an object, too; NULL: those of the outermost object. There may be most of them. On error, leaves a
 * sentence. */
gpumem_status gm_json_text_parse(struct gm_json_text *text, const char *file_name, uint64_t base,
	const char *bytes, size_t n, const char *member, size_t most);
void gm_json_text_deinit(struct gm_json_text *text);
/* Where key number i stands in the file. */
static inline uint64_t gm_json_text_at(const struct gm_json_text *text, size_t i)
{
	return i < text->n_keys ? text->keys[i] : 0;
}

#endif
