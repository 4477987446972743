/* SPDX-License-Identifier: Apache-2.0 */
#include "common/text/share_name.h"

#include <stddef.h>
#include <string.h>

#include "common/text/units.h"

/* Reads the digits of a uid. Returns what follows them; NULL: there is no uid. */
static const char *share_name_uid(const char *text, uint32_t *ret_uid)
{
	uint64_t uid = 0;
	const char *at = text;

	for (; *at >= '0' && *at <= '9'; at++) {
		uid = uid * 10 + (uint64_t)(*at - '0');
		if (uid >= UINT32_MAX) /* (uid_t)-1 is nobody's */
			return NULL;
	}
	if (at == text)
		return NULL;
	*ret_uid = (uint32_t)uid;
	return at;
}

const char *gm_token_name_check(const char *text)
{
	if (!text)
		return "must not be NULL";
	if (!*text)
		return "must not be empty";
	if (!gm_name_ok(text))
		return "must be printable UTF-8 of at most 63 bytes";
	if (strchr(text, '/'))
		return "must not have a \"/\"";
	return NULL;
}

const char *gm_token_name_parse(const char *text, struct gm_token_name *ret_name)
{
	static const char prefix[] = "uid:";
	struct gm_token_name name = {.name = text};

	if (text && strchr(text, '/')) {
		const char *at = strncmp(text, prefix, strlen(prefix)) == 0
					 ? share_name_uid(text + strlen(prefix), &name.owner)
					 : NULL;
		if (!at || *at != '/')
			return "must not have a \"/\", unless it begins with the number of its owner, as in "
			       "uid:1000/llama";
		name.foreign = true;
		name.name = at + 1;
	}

	const char *wrong = gm_token_name_check(name.name);
	if (!wrong)
		*ret_name = name;
	return wrong;
}
