/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of keys, and how one value is read by it. A value is taken whole or refused with the
 * reason and what would have been right; nothing is rounded into bounds or cut.
 */
#include "daemon/config/config_value.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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
		/* Not in the middle of a character. */
		while (n > 0 && ((unsigned char)shown[n] & 0xc0) == 0x80)
			n--;
		memcpy(shown + n, ellipsis, sizeof(ellipsis));
	} else {
		shown[n] = '\0';
	}
	return shown;
}

/* Insertions, deletions, replacements and swaps of neighbours between two short words. */
static size_t value_distance(const char *a, const char *b)
{
	enum { MOST = 32 };
	size_t n = strlen(a), m = strlen(b);
	if (n > MOST || m > MOST)
		return SIZE_MAX;
	size_t d[MOST + 1][MOST + 1];
	for (size_t i = 0; i <= n; i++)
		d[i][0] = i;
	for (size_t j = 0; j <= m; j++)
		d[0][j] = j;
	for (size_t i = 1; i <= n; i++) {
		for (size_t j = 1; j <= m; j++) {
			int x = tolower((unsigned char)a[i - 1]),
			    y = tolower((unsigned char)b[j - 1]);
			size_t best = d[i - 1][j - 1] + (x != y);
			if (d[i - 1][j] + 1 < best)
				best = d[i - 1][j] + 1;
			if (d[i][j - 1] + 1 < best)
				best = d[i][j - 1] + 1;
			if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
				y == tolower((unsigned char)a[i - 2]) && d[i - 2][j - 2] + 1 < best)
				best = d[i - 2][j - 2] + 1;
			d[i][j] = best;
		}
	}
	return d[n][m];
}

const char *gm_config_nearest(
	const char *text, const char *(*word)(void *ctx, size_t i), void *ctx, size_t n)
{
	const char *nearest = NULL;
	size_t least = SIZE_MAX;
	for (size_t i = 0; i < n; i++) {
		const char *candidate = word(ctx, i);
		if (!candidate)
			continue;
		size_t d = value_distance(text, candidate);
		/* A third of the word may be wrong: enough for a slip, too little for another word.
		 */
		if (d < least && d <= (strlen(candidate) + 2) / 3) {
			nearest = candidate;
			least = d;
		}
	}
	return nearest;
}

struct words {
	const char *start[8];
	char copy[64];
	size_t n;
};

static void value_split(const char *choices, struct words *words)
{
	*words = (struct words){0};
	snprintf(words->copy, sizeof(words->copy), "%s", choices);
	char *save = NULL;
	for (char *word = strtok_r(words->copy, " ", &save); word && words->n < 8;
		word = strtok_r(NULL, " ", &save))
		words->start[words->n++] = word;
}

static const char *value_nth_word(void *ctx, size_t i)
{
	return ((struct words *)ctx)->start[i];
}

static int value_refuse_choice(struct words *words, const char *text, char why[GM_CONFIG_WHY_BYTES])
{
	char shown[GM_CONFIG_SHOW_BYTES];
	int n = snprintf(
		why, GM_CONFIG_WHY_BYTES, "\"%s\" is none of ", gm_config_shown(text, shown));
	for (size_t i = 0; i < words->n && n < GM_CONFIG_WHY_BYTES; i++)
		n += snprintf(
			why + n, GM_CONFIG_WHY_BYTES - n, "%s%s", i ? ", " : "", words->start[i]);
	const char *nearest = gm_config_nearest(text, value_nth_word, words, words->n);
	if (nearest && n < GM_CONFIG_WHY_BYTES)
		snprintf(why + n, GM_CONFIG_WHY_BYTES - n, "; did you mean %s?", nearest);
	return GM_CONFIG_E_VALUE;
}

static int value_parse_choice(const struct gm_config_key *key, const char *text,
	struct gm_config_value *value, char why[GM_CONFIG_WHY_BYTES])
{
	struct words words;
	value_split(key->choices, &words);
	for (size_t i = 0; i < words.n; i++) {
		if (!strcmp(words.start[i], text)) {
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
		return value_refuse(text, "is not an absolute path; or say auto", why);
	size_t n = strlen(text);
	if (n > key->most) {
		snprintf(why, GM_CONFIG_WHY_BYTES,
			"the path has %zu bytes, a socket's can have at most %llu", n,
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
		return value_refuse(text, "has more than permission bits; the most is 0777", why);
	if ((mode & key->least) != key->least)
		return value_refuse(
			text, "does not let the daemon's own user in; the least is 0600", why);
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
		snprintf(why, GM_CONFIG_WHY_BYTES, "the name has %zu bytes, the most is %llu", n,
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
		snprintf(why, GM_CONFIG_WHY_BYTES, "\"%s\" is too much; the most is %g",
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
		snprintf(why, GM_CONFIG_WHY_BYTES, "\"%s\" is too much; the most is %s",
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
		snprintf(why, GM_CONFIG_WHY_BYTES, "\"%s\" is not within -%llu and %llu",
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
	/* 0.25 could be meant as a share; as a size it would be nothing. */
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
		snprintf(why, GM_CONFIG_WHY_BYTES, "\"%s\" is not within %llu and %llu",
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
		snprintf(why, GM_CONFIG_WHY_BYTES, "\"%s\" is not within %s and %s",
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
