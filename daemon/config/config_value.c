/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of keys, and how their values are parsed. A value is accepted as it is, or refused with
 * the reason and what would be right. It must never be cut, or rounded to fit its bounds.
 */
#include "daemon/config/config_value.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/closest.h"
#include "common/units.h"

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
	static const char ellipsis[] = "...";
	size_t n = 0;
	for (; text[n] && n < GM_CONFIG_SHOW_BYTES - 1; n++) {
		unsigned char c = text[n];
		shown[n] = c < 0x20 || c == 0x7f ? '?' : (char)c;
	}

	if (text[n]) {
		n = GM_CONFIG_SHOW_BYTES - sizeof(ellipsis);
		/* Do not cut a character in the middle. */
		while (n > 0 && ((unsigned char)shown[n] & 0xc0) == 0x80)
			n--;
		memcpy(shown + n, ellipsis, sizeof(ellipsis));
	} else {
		shown[n] = '\0';
	}
	return shown;
}

struct words {
	const char *list[9]; /* NULL ends it */
	char copy[64];
};

static void value_split(const char *choices, struct words *words)
{
	*words = (struct words){0};
	snprintf(words->copy, sizeof(words->copy), "%s", choices);
	char *save = NULL;
	size_t n = 0;
	for (char *word = strtok_r(words->copy, " ", &save); word && n < 8;
		word = strtok_r(NULL, " ", &save))
		words->list[n++] = word;
}

static int value_refuse_choice(struct words *words, const char *text, char why[GM_CONFIG_WHY_BYTES])
{
	char shown[GM_CONFIG_SHOW_BYTES];
	int n = snprintf(
		why, GM_CONFIG_WHY_BYTES, "\"%s\" is not one of ", gm_config_shown(text, shown));
	for (size_t i = 0; words->list[i] && n < GM_CONFIG_WHY_BYTES; i++)
		n += snprintf(
			why + n, GM_CONFIG_WHY_BYTES - n, "%s%s", i ? ", " : "", words->list[i]);
	const char *closest = gm_closest(text, words->list);
	if (closest && n < GM_CONFIG_WHY_BYTES)
		snprintf(why + n, GM_CONFIG_WHY_BYTES - n, "; did you mean %s?", closest);
	return GM_CONFIG_E_VALUE;
}

static int value_parse_choice(const struct gm_config_key *key, const char *text,
	struct gm_config_value *value, char why[GM_CONFIG_WHY_BYTES])
{
	struct words words;
	value_split(key->choices, &words);
	for (size_t i = 0; words.list[i]; i++) {
		if (!strcmp(words.list[i], text)) {
			value->number = i;
			return 0;
		}
	}
	return value_refuse_choice(&words, text, why);
}

static int value_refuse(const char *text, const char *what, char why[GM_CONFIG_WHY_BYTES])
{
	char shown[GM_CONFIG_SHOW_BYTES];
	snprintf(why, GM_CONFIG_WHY_BYTES, "\"%s\" %s", gm_config_shown(text, shown), what);
	return GM_CONFIG_E_VALUE;
}

static int value_parse_socket(const struct gm_config_key *key, const char *text,
	struct gm_config_value *value, char why[GM_CONFIG_WHY_BYTES])
{
	if (!strcmp(text, "auto")) {
		value->text = "";
		return 0;
	}
	if (text[0] != '/')
		return value_refuse(text, "is not an absolute path; give one, or auto", why);

	size_t n = strlen(text);
	if (n > key->most) {
		snprintf(why, GM_CONFIG_WHY_BYTES,
			"the path has %zu bytes; a socket's path can have at most %llu", n,
			(unsigned long long)key->most);
		return GM_CONFIG_E_VALUE;
	}
	if (text[n - 1] == '/')
		return value_refuse(text, "names a folder, not a socket", why);

	value->text = text;
	return 0;
}

static int value_parse_mode(const struct gm_config_key *key, const char *text,
	struct gm_config_value *value, char why[GM_CONFIG_WHY_BYTES])
{
	size_t n = strlen(text);
	if (n < 3 || n > 4 || strspn(text, "01234567") != n)
		return value_refuse(
			text, "is not a mode of three or four octal digits, such as 0666", why);
	unsigned long mode = strtoul(text, NULL, 8);
	if (mode > key->most)
		return value_refuse(text, "sets more than permission bits; the most is 0777", why);
	if ((mode & key->least) != key->least)
		return value_refuse(
			text, "locks out the daemon's own user; it needs at least 0600", why);
	value->number = mode;
	return 0;
}

static int value_parse_group(const struct gm_config_key *key, const char *text,
	struct gm_config_value *value, char why[GM_CONFIG_WHY_BYTES])
{
	size_t n = strlen(text);
	if (n < key->least)
		return value_refuse(text, "is not a group's name", why);
	if (n > key->most) {
		snprintf(why, GM_CONFIG_WHY_BYTES, "the name has %zu bytes; the most is %llu", n,
			(unsigned long long)key->most);
		return GM_CONFIG_E_VALUE;
	}
	if (!gm_name_ok(text) || strpbrk(text, " \t:,/"))
		return value_refuse(text, "is not a group's name", why);
	value->text = text;
	return 0;
}

static int value_parse_fraction(const struct gm_config_key *key, const char *text,
	struct gm_config_value *value, char why[GM_CONFIG_WHY_BYTES])
{
	double fraction;
	if (gm_parse_fraction(text, &fraction) < 0)
		return value_refuse(text, "is not a fraction, such as 0.9 or 90%", why);

	uint64_t ppm = (uint64_t)(fraction * 1e6 + 0.5);
	if (ppm < key->least)
		return value_refuse(text, "is too small; it must be more than 0", why);
	if (ppm > key->most) {
		char shown[GM_CONFIG_SHOW_BYTES];
		snprintf(why, GM_CONFIG_WHY_BYTES, "\"%s\" is too large; the most is %g",
			gm_config_shown(text, shown), (double)key->most / 1e6);
		return GM_CONFIG_E_VALUE;
	}

	value->number = ppm;
	value->fraction = fraction;
	return 0;
}

static int value_parse_size(const struct gm_config_key *key, const char *text,
	struct gm_config_value *value, char why[GM_CONFIG_WHY_BYTES])
{
	uint64_t bytes;
	char shown[GM_CONFIG_SHOW_BYTES], bound[GM_UNITS_TEXT];
	int r = gm_parse_size(text, &bytes);
	if (r < 0 && r != -ERANGE)
		return value_refuse(text, "is not a size, such as 512M or 1.5G", why);
	if (r == -ERANGE || bytes > key->most) {
		snprintf(why, GM_CONFIG_WHY_BYTES, "\"%s\" is too large; the most is %s",
			gm_config_shown(text, shown), gm_format_size(key->most, bound));
		return GM_CONFIG_E_VALUE;
	}
	if (bytes < key->least) {
		snprintf(why, GM_CONFIG_WHY_BYTES, "\"%s\" is too small; the least is %s",
			gm_config_shown(text, shown), gm_format_size(key->least, bound));
		return GM_CONFIG_E_VALUE;
	}

	value->number = bytes;
	return 0;
}

static int value_parse_host_limit(const struct gm_config_key *key, const char *text,
	struct gm_config_value *value, char why[GM_CONFIG_WHY_BYTES])
{
	uint64_t bytes;
	if (!strcmp(text, "auto")) {
		value->number = UINT64_MAX;
		return 0;
	}
	if (gm_parse_size(text, &bytes) == 0 && bytes == 0) {
		value->number = 0;
		return 0;
	}
	return value_parse_size(key, text, value, why);
}

static int value_parse_max(const struct gm_config_key *key, const char *text,
	struct gm_config_value *value, char why[GM_CONFIG_WHY_BYTES])
{
	if (!strcmp(text, "none")) {
		value->number = UINT64_MAX;
		return 0;
	}
	return value_parse_size(key, text, value, why);
}

static int value_parse_priority(const struct gm_config_key *key, const char *text,
	struct gm_config_value *value, char why[GM_CONFIG_WHY_BYTES])
{
	uint64_t n;
	bool negative = text[0] == '-';
	int r = gm_parse_u64(text + negative, &n);
	if (r < 0 && r != -ERANGE)
		return value_refuse(text, "is not a whole number, such as 10 or -10", why);
	if (r == -ERANGE || n > key->most) {
		char shown[GM_CONFIG_SHOW_BYTES];
		snprintf(why, GM_CONFIG_WHY_BYTES, "\"%s\" is not between -%llu and %llu",
			gm_config_shown(text, shown), (unsigned long long)key->most,
			(unsigned long long)key->most);
		return GM_CONFIG_E_VALUE;
	}
	value->priority = negative ? -(int32_t)n : (int32_t)n;
	return 0;
}

static int value_parse_pool(const struct gm_config_key *key, const char *text,
	struct gm_config_value *value, char why[GM_CONFIG_WHY_BYTES])
{
	size_t n = strlen(text);
	if (n && text[n - 1] == '%') {
		if (gm_parse_fraction(text, &value->fraction) < 0)
			return value_refuse(text, "is not a share from 0% to 100%", why);
		value->share = true;
		return 0;
	}

	/* Whoever writes 0.25 means a share, not a quarter of a byte. */
	if (n && strchr(text, '.') && strspn(text, "0123456789.") == n)
		return value_refuse(
			text, "is neither a size, such as 512M, nor a share, such as 25%", why);
	return value_parse_size(key, text, value, why);
}

static int value_parse_count(const struct gm_config_key *key, const char *text,
	struct gm_config_value *value, char why[GM_CONFIG_WHY_BYTES])
{
	uint64_t count;
	int r = gm_parse_u64(text, &count);
	if (r < 0 && r != -ERANGE)
		return value_refuse(text, "is not a whole number", why);
	if (r == -ERANGE || count > key->most || count < key->least) {
		char shown[GM_CONFIG_SHOW_BYTES];
		snprintf(why, GM_CONFIG_WHY_BYTES, "\"%s\" is not between %llu and %llu",
			gm_config_shown(text, shown), (unsigned long long)key->least,
			(unsigned long long)key->most);
		return GM_CONFIG_E_VALUE;
	}
	value->number = count;
	return 0;
}

static int value_parse_duration(const struct gm_config_key *key, const char *text,
	struct gm_config_value *value, char why[GM_CONFIG_WHY_BYTES])
{
	uint64_t ns;
	int r = gm_parse_duration(text, &ns);
	if (r < 0 && r != -ERANGE)
		return value_refuse(text, "is not a time, such as 100ms or 10s", why);
	if (r == -ERANGE || ns > key->most || ns < key->least) {
		char shown[GM_CONFIG_SHOW_BYTES], least[GM_UNITS_TEXT], most[GM_UNITS_TEXT];
		snprintf(why, GM_CONFIG_WHY_BYTES, "\"%s\" is not between %s and %s",
			gm_config_shown(text, shown), gm_format_duration(key->least, least),
			gm_format_duration(key->most, most));
		return GM_CONFIG_E_VALUE;
	}
	value->number = ns;
	return 0;
}

int gm_config_value_parse(const struct gm_config_key *key, const char *text,
	struct gm_config_value *ret_value, char ret_why[GM_CONFIG_WHY_BYTES])
{
	struct gm_config_value value = {0};
	int r = GM_CONFIG_E_VALUE;
	if (!text[0] && !(key->kind == GM_CONFIG_GROUP && key->least == 0)) {
		snprintf(ret_why, GM_CONFIG_WHY_BYTES, "has no value");
		return GM_CONFIG_E_VALUE;
	}

	switch (key->kind) {
	case GM_CONFIG_CHOICE:
		r = value_parse_choice(key, text, &value, ret_why);
		break;
	case GM_CONFIG_SOCKET:
		r = value_parse_socket(key, text, &value, ret_why);
		break;
	case GM_CONFIG_MODE:
		r = value_parse_mode(key, text, &value, ret_why);
		break;
	case GM_CONFIG_GROUP:
		r = value_parse_group(key, text, &value, ret_why);
		break;
	case GM_CONFIG_FRACTION:
		r = value_parse_fraction(key, text, &value, ret_why);
		break;
	case GM_CONFIG_HOST_LIMIT:
		r = value_parse_host_limit(key, text, &value, ret_why);
		break;
	case GM_CONFIG_DEVICE_SIZE:
		if (!strcmp(text, "auto")) {
			r = 0;
			break;
		}
		/* fall through */
	case GM_CONFIG_SIZE:
		r = value_parse_size(key, text, &value, ret_why);
		break;
	case GM_CONFIG_POOL:
		r = value_parse_pool(key, text, &value, ret_why);
		break;
	case GM_CONFIG_COUNT:
		r = value_parse_count(key, text, &value, ret_why);
		break;
	case GM_CONFIG_DURATION:
		r = value_parse_duration(key, text, &value, ret_why);
		break;
	case GM_CONFIG_MAX:
		r = value_parse_max(key, text, &value, ret_why);
		break;
	case GM_CONFIG_PRIORITY:
		r = value_parse_priority(key, text, &value, ret_why);
		break;
	}

	if (r == 0)
		*ret_value = value;
	return r;
}
