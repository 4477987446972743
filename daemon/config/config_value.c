/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of keys, and how their values are parsed. A value is accepted as it is, or refused with
 * the reason and what would be right. It must never be cut, or rounded to fit its bounds.
 */
#include "daemon/config/config_value.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text/closest.h"
#include "common/text/units.h"

static const struct gm_config_key keys[GM_CONFIG_N_KEYS] = {
#define GM_CONFIG_KEY_ROW( \
	id, name_, kind_, place_, def, inference, constrained, least_, most_, choices_) \
	[GM_CONFIG_KEY_##id] = { \
		.name = name_, \
		.kind = GM_CONFIG_##kind_, \
		.place = GM_CONFIG_##place_, \
		.presets = {def, inference, constrained}, \
		.least = least_, \
		.most = most_, \
		.choices = choices_, \
	},
	GM_CONFIG_KEYS(GM_CONFIG_KEY_ROW)
#undef GM_CONFIG_KEY_ROW
};

const struct gm_config_key *gm_config_key(size_t id)
{
	return &keys[id];
}

const struct gm_config_setting *gm_config_setting_later(
	const struct gm_config_setting *a, const struct gm_config_setting *b)
{
	if (a->source->order != b->source->order)
		return a->source->order < b->source->order ? b : a;
	return a->line < b->line ? b : a;
}

const char *gm_config_shown(const char *text, char shown[GM_CONFIG_SHOW_BYTES])
{
	bool fits = strlen(text) < GM_CONFIG_SHOW_BYTES;

	snprintf(shown, GM_CONFIG_SHOW_BYTES, fits ? "%.*s" : "%.*s...",
		GM_CONFIG_SHOW_BYTES - (fits ? 1 : 4), text);
	return gm_text_mend(shown);
}

/* Refuses a value: why, which has GM_CONFIG_WHY_BYTES, becomes "VALUE" and the reason. Values with
 * a comment behind them are common in other files, so the reason says that they are not taken. */
static int value_refuse(char *why, const char *text, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int value_refuse(char *why, const char *text, const char *format, ...)
{
	char shown[GM_CONFIG_SHOW_BYTES];
	va_list args;
	int n = snprintf(why, GM_CONFIG_WHY_BYTES, "\"%s\" ", gm_config_shown(text, shown));
	va_start(args, format);
	n += vsnprintf(why + n, GM_CONFIG_WHY_BYTES - n, format, args);
	va_end(args);
	if (n < GM_CONFIG_WHY_BYTES && (strstr(text, " #") || strstr(text, " ;")))
		snprintf(why + n, GM_CONFIG_WHY_BYTES - n, "; a comment needs a line of its own");
	return GM_CONFIG_E_VALUE;
}

static int value_refuse_length(char *why, size_t n, const char *what, uint64_t most)
{
	snprintf(why, GM_CONFIG_WHY_BYTES, "the %s has %zu bytes; the most is %llu", what, n,
		(unsigned long long)most);
	return GM_CONFIG_E_VALUE;
}

/* One parser per kind of key. It sets what the kind needs in *value, which is zeroed before. */
typedef int value_parser(const struct gm_config_key *key, const char *text,
	struct gm_config_value *value, char *why);

static int value_parse_choice(
	const struct gm_config_key *key, const char *text, struct gm_config_value *value, char *why)
{
	const char *words[8] = {NULL};
	char copy[64], list[64] = "", *save = NULL;
	size_t n = 0;
	snprintf(copy, sizeof(copy), "%s", key->choices);
	for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		if (!strcmp(word, text)) {
			value->number = n;
			return 0;
		}
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s", n ? ", " : "",
			word);
		words[n++] = word;
	}

	const char *closest = gm_closest(text, words);
	if (closest)
		return value_refuse(why, text, "is not one of %s; did you mean %s?", list, closest);
	return value_refuse(why, text, "is not one of %s", list);
}

static int value_parse_socket(
	const struct gm_config_key *key, const char *text, struct gm_config_value *value, char *why)
{
	size_t n = strlen(text);
	if (!strcmp(text, "auto")) {
		value->text = "";
		return 0;
	}
	if (text[0] != '/')
		return value_refuse(why, text, "is not an absolute path; give one, or auto");
	if (n > key->most)
		return value_refuse_length(why, n, "path of a socket", key->most);
	if (text[n - 1] == '/')
		return value_refuse(why, text, "names a folder, not a socket");
	value->text = text;
	return 0;
}

static int value_parse_mode(
	const struct gm_config_key *key, const char *text, struct gm_config_value *value, char *why)
{
	size_t n = strlen(text);
	if (n < 3 || n > 4 || strspn(text, "01234567") != n)
		return value_refuse(
			why, text, "is not a mode of three or four octal digits, such as 0666");
	value->number = strtoul(text, NULL, 8);
	if (value->number > key->most)
		return value_refuse(why, text, "sets more than permission bits; the most is 0777");
	if ((value->number & key->least) != key->least)
		return value_refuse(
			why, text, "locks out the daemon's own user; it needs at least 0600");
	return 0;
}

static int value_parse_group(
	const struct gm_config_key *key, const char *text, struct gm_config_value *value, char *why)
{
	size_t n = strlen(text);
	if (n > key->most)
		return value_refuse_length(why, n, "name", key->most);
	if (n < key->least || !gm_name_ok(text) || strpbrk(text, " \t:,/"))
		return value_refuse(why, text, "is not a group's name");
	value->text = text;
	return 0;
}

static int value_parse_fraction(
	const struct gm_config_key *key, const char *text, struct gm_config_value *value, char *why)
{
	size_t digits = strspn(text, "0123456789");
	if (gm_parse_fraction(text, &value->fraction) < 0)
		return value_refuse(why, text,
			!strcmp(text + digits, "%") && strtoul(text, NULL, 10) > 100
				? "is more than 100%%"
				: "is not a fraction, such as 0.9 or 90%%");
	value->number = (uint64_t)(value->fraction * 1e6 + 0.5);
	if (value->number < key->least)
		return value_refuse(why, text, "is too small; it must be more than 0");
	if (value->number > key->most)
		return value_refuse(
			why, text, "is too large; the most is %g", (double)key->most / 1e6);
	return 0;
}

static int value_parse_size(
	const struct gm_config_key *key, const char *text, struct gm_config_value *value, char *why)
{
	char bound[GM_UNITS_TEXT], bare[GM_UNITS_WHY];
	int r = gm_parse_size(text, &value->number);
	if (gm_parse_bare(text, bare))
		return value_refuse(why, text, "%s", bare);
	if (r < 0 && r != -ERANGE)
		return value_refuse(why, text, "is not a size, such as 512M or 1.5G");
	if (r == -ERANGE || value->number > key->most)
		return value_refuse(why, text, "is too large; the most is %s",
			gm_format_size(key->most, bound));
	if (value->number < key->least)
		return value_refuse(why, text, "is too small; the least is %s",
			gm_format_size(key->least, bound));
	return 0;
}

static int value_parse_device_size(
	const struct gm_config_key *key, const char *text, struct gm_config_value *value, char *why)
{
	return strcmp(text, "auto") ? value_parse_size(key, text, value, why) : 0;
}

static int value_parse_host_limit(
	const struct gm_config_key *key, const char *text, struct gm_config_value *value, char *why)
{
	if (!strcmp(text, "auto"))
		value->number = UINT64_MAX;
	else if (gm_parse_size(text, &value->number) < 0 || value->number)
		return value_parse_size(key, text, value, why);
	return 0;
}

static int value_parse_max(
	const struct gm_config_key *key, const char *text, struct gm_config_value *value, char *why)
{
	if (strcmp(text, "none"))
		return value_parse_size(key, text, value, why);
	value->number = UINT64_MAX;
	return 0;
}

static int value_parse_priority(
	const struct gm_config_key *key, const char *text, struct gm_config_value *value, char *why)
{
	uint64_t n;
	bool negative = text[0] == '-';
	int r = gm_parse_u64(text + negative, &n);
	if (r < 0 && r != -ERANGE)
		return value_refuse(why, text, "is not a whole number, such as 10 or -10");
	if (r == -ERANGE || n > key->most)
		return value_refuse(why, text, "is not between -%llu and %llu",
			(unsigned long long)key->most, (unsigned long long)key->most);
	value->priority = negative ? -(int32_t)n : (int32_t)n;
	return 0;
}

static int value_parse_pool(
	const struct gm_config_key *key, const char *text, struct gm_config_value *value, char *why)
{
	size_t n = strlen(text);
	if (text[n - 1] == '%') {
		if (gm_parse_fraction(text, &value->fraction) < 0)
			return value_refuse(why, text, "is not a share from 0%% to 100%%");
		value->share = true;
		return 0;
	}
	/* 0.25 and 25 are rejected, because the user most likely meant a percentage. */
	char bare[GM_UNITS_WHY];
	if ((strchr(text, '.') && strspn(text, "0123456789.") == n) || gm_parse_bare(text, bare))
		return value_refuse(
			why, text, "is neither a size, such as 512M, nor a share, such as 25%%");
	return value_parse_size(key, text, value, why);
}

static int value_parse_count(
	const struct gm_config_key *key, const char *text, struct gm_config_value *value, char *why)
{
	int r = gm_parse_u64(text, &value->number);
	if (r < 0 && r != -ERANGE)
		return value_refuse(why, text, "is not a whole number");
	if (r == -ERANGE || value->number > key->most || value->number < key->least)
		return value_refuse(why, text, "is not between %llu and %llu",
			(unsigned long long)key->least, (unsigned long long)key->most);
	return 0;
}

static int value_parse_duration(
	const struct gm_config_key *key, const char *text, struct gm_config_value *value, char *why)
{
	char least[GM_UNITS_TEXT], most[GM_UNITS_TEXT];
	int r = gm_parse_duration(text, &value->number);
	if (r < 0 && r != -ERANGE)
		return value_refuse(why, text, "is not a time, such as 100ms, 10s or 5min");
	if (r == -ERANGE || value->number > key->most || value->number < key->least)
		return value_refuse(why, text, "is not between %s and %s",
			gm_format_duration(key->least, least), gm_format_duration(key->most, most));
	return 0;
}

static int value_parse_time_or_off(
	const struct gm_config_key *key, const char *text, struct gm_config_value *value, char *why)
{
	if (!strcmp(text, "off"))
		return 0;
	if (gm_parse_duration(text, &value->number) == 0 && value->number == 0)
		return value_refuse(why, text, "is no time; write off if it should never happen");
	return value_parse_duration(key, text, value, why);
}

int gm_config_value_parse(const struct gm_config_key *key, const char *text,
	struct gm_config_value *ret_value, char ret_why[GM_CONFIG_WHY_BYTES])
{
	static value_parser *const parsers[] = {
		[GM_CONFIG_CHOICE] = value_parse_choice,
		[GM_CONFIG_SOCKET] = value_parse_socket,
		[GM_CONFIG_MODE] = value_parse_mode,
		[GM_CONFIG_GROUP] = value_parse_group,
		[GM_CONFIG_FRACTION] = value_parse_fraction,
		[GM_CONFIG_SIZE] = value_parse_size,
		[GM_CONFIG_DEVICE_SIZE] = value_parse_device_size,
		[GM_CONFIG_HOST_LIMIT] = value_parse_host_limit,
		[GM_CONFIG_POOL] = value_parse_pool,
		[GM_CONFIG_COUNT] = value_parse_count,
		[GM_CONFIG_DURATION] = value_parse_duration,
		[GM_CONFIG_TIME_OR_OFF] = value_parse_time_or_off,
		[GM_CONFIG_MAX] = value_parse_max,
		[GM_CONFIG_PRIORITY] = value_parse_priority,
	};
	struct gm_config_value value = {0};
	if (!text[0] && !(key->kind == GM_CONFIG_GROUP && key->least == 0)) {
		snprintf(ret_why, GM_CONFIG_WHY_BYTES, "has no value");
		return GM_CONFIG_E_VALUE;
	}

	int r = parsers[key->kind](key, text, &value, ret_why);
	if (r == 0)
		*ret_value = value;
	return r;
}
