/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_BOOKS_TEXT_SAY_H
#define GM_BOOKS_TEXT_SAY_H

#include <stdarg.h>
#include <stdio.h>

#include "common/text/units.h"
#include "gpumem/status.h"

/* Sentences for a person, in printable UTF-8. A sentence that is too long is cut between two characters, and so is
 * a text in it. */

/* The size of a sentence, with the NUL at its end. */
#define GM_DETAIL_BYTES 256

static inline void __attribute__((format(printf, 2, 3)))
gm_text_say(char detail[GM_DETAIL_BYTES], const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(detail, GM_DETAIL_BYTES, format, args);
	va_end(args);
	gm_text_mend(detail);
}

/* Writes why something is refused, and returns the status. */
#define gm_text_refuse(status, detail, ...) (gm_text_say((detail), __VA_ARGS__), (status))

#endif
