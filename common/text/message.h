/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TEXT_MESSAGE_H
#define GM_TEXT_MESSAGE_H

#include <stdarg.h>
#include <stddef.h>

/* Writes one cleaned line to stderr. from is a prefix such as "gpumemctl"; NULL for none. On a terminal,
 * a long line becomes several, which end with a word. */
void gm_message(const char *from, const char *text);
/* The same, with a text to be formatted. */
void gm_message_format(const char *from, const char *format, va_list args)
	__attribute__((format(printf, 2, 0)));
/* Returns how wide a line of a message may be there; 0: as long as it is, for programs that look for a sentence in it. */
size_t gm_message_columns(int fd);

#endif
