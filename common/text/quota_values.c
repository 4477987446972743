/* SPDX-License-Identifier: Apache-2.0 */
#include "common/text/quota_values.h"

#include <stdio.h>
#include <string.h>

const struct gm_quota_kind gm_quota_kinds[GM_QUOTA_N_KINDS] = {
#define QUOTA_KIND(KIND, name, unit, bit, unset, how, usage, example) \
	{bit, #name, GM_QUOTA_UNIT_##unit, unset, usage, example},
	GM_QUOTA_KINDS(QUOTA_KIND)
#undef QUOTA_KIND
};

const struct gm_quota_kind *gm_quota_kind_named(const char *name, size_t n)
{
	for (size_t i = 0; i < GM_QUOTA_N_KINDS; i++)
		if (strlen(gm_quota_kinds[i].name) == n &&
			!strncmp(gm_quota_kinds[i].name, name, n))
			return &gm_quota_kinds[i];
	return NULL;
}

uint64_t gm_quota_values_get(const struct gm_quota_values *values, unsigned bit)
{
	switch (bit) {
#define QUOTA_GET(KIND, name, ...) \
	case GM_QUOTA_##KIND: \
		return (uint64_t)values->name;
		GM_QUOTA_KINDS(QUOTA_GET)
#undef QUOTA_GET
	default:
		return 0;
	}
}

void gm_quota_values_set(struct gm_quota_values *values, unsigned bit, uint64_t value)
{
	switch (bit) {
#define QUOTA_SET(KIND, name, unit, ...) \
	case GM_QUOTA_##KIND: \
		values->set |= GM_QUOTA_##KIND; \
		values->name = (GM_QUOTA_TYPE_##unit)value; \
		break;
		GM_QUOTA_KINDS(QUOTA_SET)
#undef QUOTA_SET
	}
}

const char *gm_quota_values_text(const struct gm_quota_values *values,
	const struct gm_quota_kind *kind, char text[GM_UNITS_TEXT])
{
	uint64_t value = gm_quota_values_get(values, kind->bit);

	if (kind->unit == GM_QUOTA_UNIT_signed)
		snprintf(text, GM_UNITS_TEXT, "%lld", (long long)value);
	else if (value == UINT64_MAX)
		strcpy(text, "none");
	else
		gm_format_size(value, text);
	return text;
}

const char *gm_quota_values_pair(const struct gm_quota_values *values,
	const struct gm_quota_kind *kind, char text[GM_QUOTA_PAIR_TEXT])
{
	uint64_t value = gm_quota_values_get(values, kind->bit);

	if (kind->unit == GM_QUOTA_UNIT_signed)
		snprintf(text, GM_QUOTA_PAIR_TEXT, "%s=%lld", kind->name, (long long)value);
	else if (value == UINT64_MAX)
		snprintf(text, GM_QUOTA_PAIR_TEXT, "%s=none", kind->name);
	else
		snprintf(
			text, GM_QUOTA_PAIR_TEXT, "%s=%llu", kind->name, (unsigned long long)value);
	return text;
}

const char *gm_quota_kind_names(
	const char *article, const char *word, char text[GM_QUOTA_NAMES_TEXT])
{
	size_t n = 0;

	for (size_t i = 0; i < GM_QUOTA_N_KINDS && n < GM_QUOTA_NAMES_TEXT; i++)
		n += (size_t)snprintf(text + n, GM_QUOTA_NAMES_TEXT - n, "%s%s%s",
			i == 0                     ? ""
			: i + 1 < GM_QUOTA_N_KINDS ? ", "
						   : word,
			article ? article : "",
			article ? gm_quota_kinds[i].name : gm_quota_kinds[i].usage);
	return text;
}
