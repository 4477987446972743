/* SPDX-License-Identifier: Apache-2.0 */
#include "common/text/limit_values.h"

#include <stdio.h>
#include <string.h>

const struct gm_limit_kind gm_limit_kinds[GM_LIMIT_N_KINDS] = {
#define LIMIT_KIND(KIND, name, unit, bit, unset, how, usage, example) \
	{bit, #name, GM_LIMIT_UNIT_##unit, unset, usage, example},
	GM_LIMIT_KINDS(LIMIT_KIND)
#undef LIMIT_KIND
};

const struct gm_limit_kind *gm_limit_kind_named(const char *name, size_t n)
{
	for (size_t i = 0; i < GM_LIMIT_N_KINDS; i++)
		if (strlen(gm_limit_kinds[i].name) == n &&
			!strncmp(gm_limit_kinds[i].name, name, n))
			return &gm_limit_kinds[i];
	return NULL;
}

uint64_t gm_limit_values_get(const struct gm_limit_values *values, unsigned bit)
{
	switch (bit) {
#define LIMIT_GET(KIND, name, ...) \
	case GM_LIMIT_##KIND: \
		return (uint64_t)values->name;
		GM_LIMIT_KINDS(LIMIT_GET)
#undef LIMIT_GET
	default:
		return 0;
	}
}

void gm_limit_values_set(struct gm_limit_values *values, unsigned bit, uint64_t value)
{
	switch (bit) {
#define LIMIT_SET(KIND, name, unit, ...) \
	case GM_LIMIT_##KIND: \
		values->set |= GM_LIMIT_##KIND; \
		values->name = (GM_LIMIT_TYPE_##unit)value; \
		break;
		GM_LIMIT_KINDS(LIMIT_SET)
#undef LIMIT_SET
	}
}

const char *gm_limit_values_text(const struct gm_limit_values *values,
	const struct gm_limit_kind *kind, char text[GM_UNITS_TEXT])
{
	uint64_t value = gm_limit_values_get(values, kind->bit);

	if (kind->unit == GM_LIMIT_UNIT_signed)
		snprintf(text, GM_UNITS_TEXT, "%lld", (long long)value);
	else if (value == UINT64_MAX)
		strcpy(text, "none");
	else
		gm_format_size(value, text);
	return text;
}

const char *gm_limit_values_pair(const struct gm_limit_values *values,
	const struct gm_limit_kind *kind, char text[GM_LIMIT_PAIR_TEXT])
{
	uint64_t value = gm_limit_values_get(values, kind->bit);

	if (kind->unit == GM_LIMIT_UNIT_signed)
		snprintf(text, GM_LIMIT_PAIR_TEXT, "%s=%lld", kind->name, (long long)value);
	else if (value == UINT64_MAX)
		snprintf(text, GM_LIMIT_PAIR_TEXT, "%s=none", kind->name);
	else
		snprintf(
			text, GM_LIMIT_PAIR_TEXT, "%s=%llu", kind->name, (unsigned long long)value);
	return text;
}

const char *gm_limit_kind_names(
	const char *article, const char *word, char text[GM_LIMIT_NAMES_TEXT])
{
	size_t n = 0;

	for (size_t i = 0; i < GM_LIMIT_N_KINDS && n < GM_LIMIT_NAMES_TEXT; i++)
		n += (size_t)snprintf(text + n, GM_LIMIT_NAMES_TEXT - n, "%s%s%s",
			i == 0                     ? ""
			: i + 1 < GM_LIMIT_N_KINDS ? ", "
						   : word,
			article ? article : "",
			article ? gm_limit_kinds[i].name : gm_limit_kinds[i].usage);
	return text;
}
