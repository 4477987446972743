/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TEXT_TEXT_H
#define GM_TEXT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/text/units.h"

/*
 * Makes text safe to show and fits it to a width. Names and tags come from clients, and a terminal
 * obeys the escape sequences that it is sent.
 */

/*
 * Call it once, before any other function here: from then on, text is UTF-8, whatever the locale of
 * the user is. *ret_utf8 says whether that locale is UTF-8 as well, so that a terminal can show
 * more than ASCII.
 */
void gm_text_init(bool *ret_utf8);

/*
 * Returns a malloc'ed copy in which every character is printable. Bytes that are not UTF-8 become
 * \xNN. Control characters, and characters that change the direction or the order of the text
 * around them, become \xNN or \uNNNN. With ascii, everything outside of ASCII becomes '?'. Returns
 * NULL if out of memory.
 */
char *gm_text_clean(const char *text, bool ascii);

/* How many columns a cleaned text takes on a terminal. */
size_t gm_text_width(const char *clean);

/*
 * Returns a malloc'ed copy of a cleaned text that takes at most this many columns (1 or more). If
 * the end has to be cut off, … (in ASCII: ~) shows that. Never cuts a character in two, nor
 * separates it from the marks that combine with it. Returns NULL if out of memory.
 */
char *gm_text_fit(const char *clean, size_t columns, bool ascii);

/* The same for a name, which is cut in the middle. Most of what remains is the end, because the names of shards, runs and
 * workers differ there. */
char *gm_text_fit_name(const char *clean, size_t columns, bool ascii);

/*
 * The same for a text that ends with a path, such as "after a restart: /etc/gpumemd/gpumemd.conf:7": it is cut at the
 * front of the path, so that the file's name and the line remain. A text without a path is cut at its end.
 */
char *gm_text_fit_path(const char *clean, size_t columns, bool ascii);

/* Breaks a cleaned text into lines of at most so many columns: blanks become line ends. A longer word has a
 * line of its own. */
void gm_text_wrap(char *clean, size_t columns);

/* Writes a cleaned text in lines of at most so many columns; 0, or too few for words: in one line. The
 * first line begins where the stream is, at most at the column indent, and the others are indented. A word
 * that is too long is broken, unless it has a path in it. Changes the text. */
void gm_text_put(FILE *stream, char *clean, size_t columns, size_t indent);

/* Formats a number of milliseconds as gm_format_duration() does. Returns text. */
const char *gm_text_duration(uint64_t ms, char text[GM_UNITS_TEXT]);

#endif
