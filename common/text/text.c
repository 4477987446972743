/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Cleans, measures and cuts text. The promise: what gm_text_clean() returns is valid UTF-8 that
 * moves the cursor of a terminal to the right and does nothing else to the terminal. libc decodes
 * and measures, in a UTF-8 locale that is set here and does not depend on the user's.
 */

#include "common/text/text.h"

#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

/* Fewer columns than these are no room for words. */
#define WRAP_LEAST 20

void gm_text_init(bool *ret_utf8)
{
	setlocale(LC_CTYPE, "");
	*ret_utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
	/* In the C locale every byte above 0x7f counts as invalid: ugly, but safe. */
	if (!setlocale(LC_CTYPE, "C.UTF-8") && !*ret_utf8)
		setlocale(LC_CTYPE, "C");
}

/* Decodes one character. Returns its length; 0 at the end. *ret_char is -1 for an invalid byte. */
static size_t text_next(const char *text, wchar_t *ret_char)
{
	mbstate_t state = {0};

	if (!*text)
		return 0;

	size_t n = mbrtowc(ret_char, text, strlen(text), &state);
	if (n == (size_t)-1 || n == (size_t)-2 || n == 0 ||
		(*ret_char >= 0xd800 && *ret_char <= 0xdfff) || *ret_char > 0x10ffff) {
		*ret_char = -1;
		return 1;
	}
	return n;
}

/* Characters that print nothing themselves but reorder or hide their neighbours. */
static bool text_is_deceptive(wchar_t c)
{
	static const struct {
		wchar_t first, last;
	} ranges[] = {
		{0x00ad, 0x00ad},   /* soft hyphen */
		{0x061c, 0x061c},   /* Arabic letter mark */
		{0x115f, 0x1160},   /* Hangul fillers */
		{0x180e, 0x180e},   /* Mongolian vowel separator */
		{0x200b, 0x200f},   /* zero width spaces and joiners, direction marks */
		{0x2028, 0x202e},   /* line and paragraph separators, embeddings, overrides */
		{0x2060, 0x206f},   /* word joiner, isolates */
		{0x3164, 0x3164},   /* Hangul filler */
		{0xfeff, 0xfeff},   /* zero width no-break space */
		{0xfff9, 0xfffb},   /* interlinear annotations */
		{0xe0000, 0xe0fff}, /* tags */
	};

	for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++)
		if (c >= ranges[i].first && c <= ranges[i].last)
			return true;
	return false;
}

char *gm_text_clean(const char *text, bool ascii)
{
	size_t n, room = 1;
	wchar_t c;

	/* The longest escape takes 10 bytes: \UNNNNNNNN. */
	for (const char *t = text; (n = text_next(t, &c)); t += n)
		room += 10;
	char *clean = malloc(room), *end = clean;
	if (!clean)
		return NULL;

	for (const char *t = text; (n = text_next(t, &c)); t += n) {
		if (c == (wchar_t)-1)
			end += sprintf(end, "\\x%02x", (unsigned char)*t);
		else if (wcwidth(c) < 0 || text_is_deceptive(c))
			end += sprintf(end,
				c < 0x100     ? "\\x%02x"
				: c < 0x10000 ? "\\u%04x"
					      : "\\U%08x",
				(unsigned)c);
		else if (ascii && c > 0x7e)
			*end++ = '?';
		else
			end = (char *)memcpy(end, t, n) + n;
	}
	*end = '\0';
	return clean;
}

static size_t text_char_width(wchar_t c)
{
	int width = c == (wchar_t)-1 ? 1 : wcwidth(c);

	return width < 0 ? 1 : (size_t)width;
}

size_t gm_text_width(const char *clean)
{
	size_t n, width = 0;
	wchar_t c;

	for (; (n = text_next(clean, &c)); clean += n)
		width += text_char_width(c);
	return width;
}

/* Returns where the beginning of a cleaned text ends that takes at most this many columns. *ret_width: how many it takes. */
static const char *text_head(const char *clean, size_t columns, size_t *ret_width)
{
	size_t n, width = 0;
	wchar_t c;

	/* A mark of width 0 stays with the character before it. */
	for (; (n = text_next(clean, &c)); clean += n) {
		if (width + text_char_width(c) > columns)
			break;
		width += text_char_width(c);
	}
	*ret_width = width;
	return clean;
}

/* Returns where the end of a cleaned text begins that takes at most this many columns. */
static const char *text_tail(const char *clean, size_t columns)
{
	size_t n, width = gm_text_width(clean);
	wchar_t c;

	/* A mark of width 0 goes with the character before it. */
	for (; (n = text_next(clean, &c)); clean += n) {
		if (width <= columns && text_char_width(c) > 0)
			break;
		width -= text_char_width(c);
	}
	return clean;
}

/* Cuts a cleaned text to this number of columns, one of them for the ellipsis. beginning: columns for the part before it. */
static char *text_fit(const char *clean, size_t columns, size_t beginning, bool ascii)
{
	size_t width;
	char *fit;

	if (gm_text_width(clean) <= columns)
		return strdup(clean);
	const char *end = text_head(clean, beginning, &width);
	if (asprintf(&fit, "%.*s%s%s", (int)(end - clean), clean, ascii ? "~" : "…",
		    beginning < columns - 1 ? text_tail(end, columns - 1 - width) : "") < 0)
		return NULL;
	return fit;
}

char *gm_text_fit(const char *clean, size_t columns, bool ascii)
{
	return text_fit(clean, columns, columns - 1, ascii);
}

char *gm_text_fit_name(const char *clean, size_t columns, bool ascii)
{
	return text_fit(clean, columns, (columns - 1) / 3, ascii);
}

char *gm_text_fit_path(const char *clean, size_t columns, bool ascii)
{
	const char *path = strchr(clean, '/'), *name = strrchr(clean, '/');
	char *fit;

	if (!path || gm_text_width(clean) <= columns)
		return gm_text_fit(clean, columns, ascii);

	/* The words before the path stay if they leave room for the name of the file. */
	size_t words = gm_text_width(clean) - gm_text_width(path);
	if (words + 1 + gm_text_width(name) > columns) {
		path = clean;
		words = 0;
	}

	if (asprintf(&fit, "%.*s%s%s", (int)(path - clean), clean, ascii ? "~" : "…",
		    text_tail(path, columns - words - 1)) < 0)
		return NULL;
	return fit;
}

void gm_text_wrap(char *clean, size_t columns)
{
	char *blank = NULL; /* the last one in this line */

	for (char *line = clean, *at = clean;; at++) {
		bool end = *at == '\0';

		if (!end && *at != ' ')
			continue;
		*at = '\0';
		if (blank && gm_text_width(line) > columns) {
			*blank = '\n';
			line = blank + 1;
		}
		if (end)
			return;
		*at = ' ';
		blank = at;
	}
}

/* Writes one line. Breaks a word that is wider than room (0: as wide as needed) and goes on below its beginning. A path
 * stays in one piece, so that people can copy it. */
static void text_put_line(FILE *stream, const char *line, size_t room, size_t indent)
{
	while (room && !strchr(line, '/') && gm_text_width(line) > room) {
		const char *at = line;
		size_t n, width = 0;
		wchar_t c;

		while ((n = text_next(at, &c)) && width + text_char_width(c) <= room) {
			width += text_char_width(c);
			at += n;
		}
		fprintf(stream, "%.*s\n%*s", (int)(at - line), line, (int)indent, "");
		line = at;
	}
	fputs(line, stream);
}

void gm_text_put(FILE *stream, char *clean, size_t columns, size_t indent)
{
	size_t room = columns >= indent + WRAP_LEAST ? columns - indent : 0;

	if (room)
		gm_text_wrap(clean, room);
	for (char *line = clean, *end; line; line = end) {
		end = strchr(line, '\n');
		if (end)
			*end++ = '\0';
		fprintf(stream, "%*s", line == clean ? 0 : (int)indent, "");
		text_put_line(stream, line, room, indent);
		fputs(end ? "\n" : "", stream);
	}
}

const char *gm_text_duration(uint64_t ms, char text[GM_UNITS_TEXT])
{
	return gm_format_duration(ms > UINT64_MAX / 1000000 ? UINT64_MAX : ms * 1000000, text);
}
