/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TEXT_SHARE_NAME_H
#define GM_TEXT_SHARE_NAME_H

#include <stdbool.h>
#include <stdint.h>

/* The name of a published buffer as people write it: "llama" is one's own, and "uid:1000/llama" that
 * of another user. */
struct gm_token_name {
	bool foreign;
	uint32_t owner;   /* if foreign: the uid */
	const char *name; /* without the owner; points into the text that was parsed */
};

/* Returns NULL, or what is wrong with the text, which may be NULL: a phrase that goes on after the
 * word for the argument, such as "must not be NULL". */
const char *gm_token_name_parse(const char *text, struct gm_token_name *ret_name);
/* The same for a name of one's own, without an owner. */
const char *gm_token_name_check(const char *text);

#endif
