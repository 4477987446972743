/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any text into what reads sizes, times, fractions, numbers and names, held against the C library
 * where that has an opinion: strtoull, strtod, and its decoder of UTF-8.
 */

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "common/bounds.h"
#include "common/text/units.h"
#include "tests/fuzz/fuzz.h"

#define MUST(what) \
	do { \
		if (!(what)) \
			abort(); \
	} while (0)

static void outcome(int r)
{
	MUST(r == 0 || r == -EINVAL || r == -ERANGE);
}

static void check_numbers(const char *text)
{
	size_t digits = strspn(text, "0123456789");
	bool plain = digits > 0 && text[digits] == '\0';
	uint64_t value = 0, bytes = 0, ns = 0;
	int r = gm_parse_u64(text, &value);

	outcome(r);
	MUST((r != -EINVAL) == plain);
	if (plain) {
		errno = 0;
		unsigned long long library = strtoull(text, NULL, 10);
		MUST((r == -ERANGE) == (errno == ERANGE));
		MUST(r < 0 || value == library);
	}
	/* Without a unit a size is that number, and a time as many seconds. */
	r = gm_parse_size(text, &bytes);
	outcome(r);
	if (plain)
		MUST(r == -ERANGE || bytes == value);
	if (r == 0) {
		char shown[GM_UNITS_TEXT];
		uint64_t back;
		MUST(strlen(gm_format_size(bytes, shown)) < GM_UNITS_TEXT);
		if (gm_parse_size(shown, &back) == 0)
			MUST((bytes > back ? bytes - back : back - bytes) <= bytes / 20);
		else
			MUST(bytes > UINT64_MAX / 20 * 19); /* 16.0E is one more than there is */
	}
	r = gm_parse_duration(text, &ns);
	outcome(r);
	if (plain && r == 0)
		MUST(ns / UINT64_C(1000000000) == value);
	if (r == 0) {
		char shown[GM_UNITS_TEXT];
		MUST(strlen(gm_format_duration(ns, shown)) < GM_UNITS_TEXT);
	}
}

static void check_fraction(const char *text)
{
	double fraction = -1;
	int r = gm_parse_fraction(text, &fraction);
	char *end;

	outcome(r);
	if (r == 0) {
		double library = strtod(text, &end);
		if (*end == '%')
			library /= 100;
		MUST(fraction >= 0 && fraction <= 1);
		MUST(fabs(fraction - library) < 1e-12);
	}
}

static bool name_by_library(const char *text)
{
	mbstate_t state = {0};
	const char *at = text;

	if (strlen(text) > GM_BOUND_NAME_BYTES)
		return false;
	while (*at) {
		wchar_t c;
		size_t n = mbrtowc(&c, at, strlen(at), &state);
		if (n == (size_t)-1 || n == (size_t)-2 || n == 0)
			return false;
		if (c < 0x20 || (c >= 0x7f && c < 0xa0) || c > 0x10ffff)
			return false;
		if ((c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069))
			return false;
		if ((c & 0xfffe) == 0xfffe || (c >= 0xfdd0 && c <= 0xfdef))
			return false;
		at += n;
	}
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	static bool set;
	char *text = malloc(n + 1);

	MUST(text);
	if (!set) {
		/* Characters only: strtod is to read a point in every build. */
		MUST(setlocale(LC_CTYPE, "C.UTF-8"));
		set = true;
	}
	memcpy(text, bytes, n);
	text[n] = '\0';
	check_numbers(text);
	check_fraction(text);
	MUST(gm_name_ok(text) == name_by_library(text));
	free(text);
	return 0;
}
