/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Sizes, times, fractions and names as people write and read them. The code is independent of the
 * locale and exact: it computes in integers (except for the fraction itself), and refuses a number
 * that does not fit instead of wrapping or cutting it.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/bounds.h"
#include "common/text/units.h"

/* A number with an optional decimal point: whole + part / 10^decimals. */
struct units_decimal {
	uint64_t whole;
	uint64_t part;
	unsigned decimals;
};

/* Further decimals are read but ignored: they are too small to matter in any unit. */
#define DECIMALS_MAX 15

static const uint64_t power10[DECIMALS_MAX + 1] = {UINT64_C(1), UINT64_C(10), UINT64_C(100),
	UINT64_C(1000), UINT64_C(10000), UINT64_C(100000), UINT64_C(1000000), UINT64_C(10000000),
	UINT64_C(100000000), UINT64_C(1000000000), UINT64_C(10000000000), UINT64_C(100000000000),
	UINT64_C(1000000000000), UINT64_C(10000000000000), UINT64_C(100000000000000),
	UINT64_C(1000000000000000)};

static bool units_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static int units_parse_decimal(const char **text, struct units_decimal *ret)
{
	const char *at = *text;
	struct units_decimal d = {0};
	bool overflow = false;

	if (!units_is_digit(*at))
		return -EINVAL;
	for (; units_is_digit(*at); at++)
		overflow |= __builtin_mul_overflow(d.whole, (uint64_t)10, &d.whole) ||
			    __builtin_add_overflow(d.whole, (uint64_t)(*at - '0'), &d.whole);
	if (*at == '.') {
		at++;
		if (!units_is_digit(*at))
			return -EINVAL;
		for (; units_is_digit(*at); at++) {
			if (d.decimals == DECIMALS_MAX)
				continue;
			d.part = d.part * 10 + (uint64_t)(*at - '0');
			d.decimals++;
		}
	}

	*text = at;
	if (overflow)
		d.whole = UINT64_MAX;
	*ret = d;
	return overflow ? -ERANGE : 0;
}

static int units_scale(const struct units_decimal *d, uint64_t unit, uint64_t *ret)
{
	unsigned __int128 value = (unsigned __int128)d->whole * unit +
				  (unsigned __int128)d->part * unit / power10[d->decimals];

	if (value > UINT64_MAX)
		return -ERANGE;
	*ret = (uint64_t)value;
	return 0;
}

int gm_parse_size(const char *text, uint64_t *ret_bytes)
{
	static const char letters[] = "KMGTPE";
	struct units_decimal d;
	unsigned shift = 0;
	int parsed = units_parse_decimal(&text, &d);

	if (parsed == -EINVAL)
		return parsed;
	if (*text) {
		char upper = *text >= 'a' && *text <= 'z' ? (char)(*text - 'a' + 'A') : *text;
		const char *letter = strchr(letters, upper);
		if (letter) {
			shift = 10 * (unsigned)(letter - letters + 1);
			text++;
			if (*text == 'i' && text[1] == 'B')
				text++;
		}
		if (*text == 'B')
			text++;
	}

	/* A bad unit is -EINVAL, even if the number in front of it is out of range. */
	if (*text || (shift == 0 && d.decimals > 0))
		return -EINVAL;
	return parsed < 0 ? parsed : units_scale(&d, UINT64_C(1) << shift, ret_bytes);
}

/* Numbers below the first are taken for gigabytes, below the second for megabytes, others for kilobytes. */
#define BARE_GIGABYTES 256
#define BARE_MEGABYTES (1024 * BARE_GIGABYTES)

const char *gm_parse_bare(const char *text, char why[GM_UNITS_WHY])
{
	uint64_t n;

	if (gm_parse_u64(text, &n) < 0 || n == 0 || n >= GM_CHUNK_MIN)
		return NULL;
	snprintf(why, GM_UNITS_WHY,
		"is a number of bytes, and less than any memory that gpumemd hands out; did you mean %" PRIu64
		"%c? Bytes are written %" PRIu64 "B",
		n,
		n < BARE_GIGABYTES   ? 'G'
		: n < BARE_MEGABYTES ? 'M'
				     : 'K',
		n);
	return why;
}

const char *gm_parse_too_small(uint64_t bytes, char why[GM_UNITS_WHY])
{
	char least[GM_UNITS_TEXT];

	if (bytes == 0 || bytes >= GM_CHUNK_MIN)
		return NULL;
	snprintf(why, GM_UNITS_WHY,
		"would allow nothing: the smallest chunk that gpumemd hands out has %s",
		gm_format_size(GM_CHUNK_MIN, least));
	return why;
}

/* The nanoseconds of a unit, whose name has n letters. 0: there is no such unit. */
static uint64_t units_of_time(const char *name, size_t n)
{
	static const struct {
		const char *name;
		uint64_t ns;
	} units[] = {
		{"ns", 1},
		{"us", GM_NS_PER_US},
		{"ms", GM_NS_PER_MS},
		{"s", GM_NS_PER_S},
		{"min", 60 * GM_NS_PER_S},
		{"m", 60 * GM_NS_PER_S},
		{"h", 3600 * GM_NS_PER_S},
		{"d", 86400 * GM_NS_PER_S},
	};

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (strlen(units[i].name) == n && !strncmp(name, units[i].name, n))
			return units[i].ns;
	return 0;
}

int gm_parse_duration(const char *text, uint64_t *ret_ns)
{
	uint64_t sum = 0, before = UINT64_MAX;
	bool range = false;

	for (const char *at = text;;) {
		struct units_decimal d;
		uint64_t part = 0;
		int parsed = units_parse_decimal(&at, &d);
		if (parsed == -EINVAL)
			return parsed;

		/* A number without a unit stands alone. */
		size_t n = strspn(at, "abcdefghijklmnopqrstuvwxyz");
		bool alone = !*at && before == UINT64_MAX;
		uint64_t unit = alone ? GM_NS_PER_S : units_of_time(at, n);
		if (!unit || unit >= before)
			return -EINVAL;
		before = unit;
		at += n;
		range |= parsed < 0 || units_scale(&d, unit, &part) < 0 ||
			 __builtin_add_overflow(sum, part, &sum);
		if (!*at)
			break;
		at += *at == ' ';
	}
	if (range)
		return -ERANGE;
	*ret_ns = sum;
	return 0;
}

int gm_parse_fraction(const char *text, double *ret_fraction)
{
	struct units_decimal d;
	uint64_t one = 1;
	int parsed = units_parse_decimal(&text, &d);

	if (parsed == -EINVAL)
		return parsed;
	if (*text == '%') {
		one = 100;
		text++;
	}

	if (*text)
		return -EINVAL;
	if (parsed < 0 || d.whole > one || (d.whole == one && d.part > 0))
		return -ERANGE;
	/* A double holds both integers exactly (up to 13 decimals of a percent), so one division
	 * gives the double that is nearest to the text, as a compiler would read it. */
	*ret_fraction = (double)(d.whole * power10[d.decimals] + d.part) /
			((double)one * (double)power10[d.decimals]);
	return 0;
}

int gm_parse_u64(const char *text, uint64_t *ret)
{
	struct units_decimal d;
	int parsed = units_parse_decimal(&text, &d);

	if (parsed == -EINVAL || d.decimals > 0 || *text)
		return -EINVAL;
	if (parsed < 0)
		return parsed;
	*ret = d.whole;
	return 0;
}

static int units_hex_digit(char c)
{
	if (units_is_digit(c))
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

const char *gm_parse_hex(const char *text, size_t least, size_t most, uint32_t *ret)
{
	uint32_t value = 0;
	size_t n = 0;

	for (; n < most && units_hex_digit(text[n]) >= 0; n++)
		value = value << 4 | (uint32_t)units_hex_digit(text[n]);
	if (n < least)
		return NULL;
	*ret = value;
	return text + n;
}

const char *gm_format_size(uint64_t bytes, char text[GM_UNITS_TEXT])
{
	static const char letters[] = "KMGTPE";

	if (bytes < 1024) {
		snprintf(text, GM_UNITS_TEXT, "%" PRIu64 "B", bytes);
		return text;
	}

	for (unsigned i = 0;; i++) {
		unsigned shift = 10 * (i + 1);
		/* In tenths, rounded to the nearest. If that gives 1024.0, the next unit is
		 * used. */
		unsigned __int128 tenths =
			((unsigned __int128)bytes * 10 + (UINT64_C(1) << (shift - 1))) >> shift;
		if (tenths < 10240 || letters[i + 1] == '\0') {
			snprintf(text, GM_UNITS_TEXT, "%u.%u%c", (unsigned)(tenths / 10),
				(unsigned)(tenths % 10), letters[i]);
			return text;
		}
	}
}

const char *gm_format_duration(uint64_t ns, char text[GM_UNITS_TEXT])
{
	uint64_t s = ns / GM_NS_PER_S;
	uint64_t large, small;
	const char *large_name, *small_name;

	if (ns == 0) {
		strcpy(text, "0s");
		return text;
	}

	if (s < 60) {
		if (ns < GM_NS_PER_US)
			snprintf(text, GM_UNITS_TEXT, "%" PRIu64 "ns", ns);
		else if (ns < GM_NS_PER_MS)
			snprintf(text, GM_UNITS_TEXT, "%" PRIu64 "us", ns / GM_NS_PER_US);
		else if (ns < GM_NS_PER_S)
			snprintf(text, GM_UNITS_TEXT, "%" PRIu64 "ms", ns / GM_NS_PER_MS);
		else
			snprintf(text, GM_UNITS_TEXT, "%" PRIu64 "s", s);
		return text;
	}

	if (s < 3600) {
		large = s / 60, small = s % 60, large_name = "min", small_name = "s";
	} else if (s < 86400) {
		large = s / 3600, small = s / 60 % 60, large_name = "h", small_name = "min";
	} else {
		large = s / 86400, small = s / 3600 % 24, large_name = "d", small_name = "h";
	}

	if (small)
		snprintf(text, GM_UNITS_TEXT, "%" PRIu64 "%s %" PRIu64 "%s", large, large_name,
			small, small_name);
	else
		snprintf(text, GM_UNITS_TEXT, "%" PRIu64 "%s", large, large_name);
	return text;
}

/* Returns the character at *at and moves *at past it. Returns -1 if the UTF-8 is not valid:
 * overlong forms, surrogates and numbers past U+10FFFF are not. */
static int32_t units_utf8_next(const unsigned char **at)
{
	static const int32_t least[] = {0, 0x80, 0x800, 0x10000};
	const unsigned char *p = *at;
	int32_t c = *p++;
	unsigned more;

	if (c < 0x80)
		more = 0;
	else if ((c & 0xe0) == 0xc0)
		more = 1, c &= 0x1f;
	else if ((c & 0xf0) == 0xe0)
		more = 2, c &= 0x0f;
	else if ((c & 0xf8) == 0xf0)
		more = 3, c &= 0x07;
	else
		return -1;
	for (unsigned i = 0; i < more; i++, p++) {
		if ((*p & 0xc0) != 0x80)
			return -1; /* also at the terminating 0 */
		c = c << 6 | (*p & 0x3f);
	}

	if (c < least[more] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return -1;
	*at = p;
	return c;
}

/* Whether the bytes begin a character, and end before it does. */
static bool units_utf8_is_cut(const unsigned char *at)
{
	unsigned bytes = *at >= 0xf0 ? 4 : *at >= 0xe0 ? 3 : 2, n = 1;

	if (*at < 0xc2 || *at > 0xf4)
		return false;
	while (n < bytes && (at[n] & 0xc0) == 0x80)
		n++;
	return n < bytes;
}

static bool units_printable(int32_t c)
{
	if (c < 0x20 || (c >= 0x7f && c < 0xa0))
		return false; /* C0, DEL, C1 */
	if (c == 0x2028 || c == 0x2029)
		return false; /* line and paragraph separators */
	if ((c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069))
		return false; /* change the direction of the text around them */
	return (c & 0xfffe) != 0xfffe && !(c >= 0xfdd0 && c <= 0xfdef); /* noncharacters */
}

bool gm_name_ok(const char *name)
{
	return name && strnlen(name, GM_BOUND_NAME_BYTES + 1) <= GM_BOUND_NAME_BYTES &&
	       gm_text_ok(name);
}

bool gm_text_ok(const char *text)
{
	const unsigned char *at = (const unsigned char *)text;

	while (*at) {
		int32_t c = units_utf8_next(&at);
		if (c < 0 || !units_printable(c))
			return false;
	}
	return true;
}

char *gm_text_mend(char *text)
{
	unsigned char *to = (unsigned char *)text;
	const unsigned char *at = to;

	while (*at) {
		const unsigned char *from = at;
		int32_t c = units_utf8_next(&at);
		if (c >= 0 && units_printable(c)) {
			while (from < at)
				*to++ = *from++;
		} else if (c >= 0) {
			*to++ = '?';
		} else if (units_utf8_is_cut(at)) {
			for (at++; (*at & 0xc0) == 0x80;)
				at++;
		} else {
			*to++ = '?';
			at++;
		}
	}
	*to = '\0';
	return text;
}

const char *gm_format_count(uint64_t n, char text[GM_UNITS_TEXT])
{
	char digits[GM_UNITS_TEXT], *to = text;
	size_t left = (size_t)snprintf(digits, sizeof(digits), "%" PRIu64, n);

	for (const char *at = digits; left; left--) {
		*to++ = *at++;
		if (left % 3 == 1 && left > 1)
			*to++ = ',';
	}
	*to = '\0';
	return text;
}

const char *gm_format_percent(uint64_t millionths, char text[GM_UNITS_TEXT])
{
	snprintf(text, GM_UNITS_TEXT, "%llu%%", (unsigned long long)(millionths / 10000));
	return text;
}
