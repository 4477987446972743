/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sentence behind a status. Each thread has its own, in a buffer of fixed size, so that even a
 * lack of memory can be reported. A call that succeeds does not change it.
 */
#include "client/session/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/status_table.h"
#include "common/text/units.h"
#include "gpumem/gpumem.h"

static __thread char text[GM_ERROR_BYTES];

gpumem_status gm_error(gpumem_status status, const char *format, ...)
{
	/* In a second buffer, because an argument may be the old sentence. */
	char next[GM_ERROR_BYTES];
	va_list args;
	va_start(args, format);
	int n = vsnprintf(next, sizeof(next), format, args);
	va_end(args);
	strcpy(text, n < 0 ? gm_status_text(status) : gm_text_mend(next));
	return status;
}

gpumem_status gm_error_plain(gpumem_status status, const char *sentence)
{
	size_t n = strnlen(sentence, sizeof(text) - 1);

	memmove(text, sentence, n);
	text[n] = '\0';
	if (n == sizeof(text) - 1)
		gm_text_mend(text);
	return status;
}

const char *gm_error_text(void)
{
	return text;
}

gpumem_status gpumem_error_set(gpumem_status status, const char *sentence)
{
	return gm_error_plain(status, sentence ? sentence : gm_status_text(status));
}

const char *gpumem_error_detail(void)
{
	return text;
}

const char *gpumem_status_text(gpumem_status status)
{
	return gm_status_text(status);
}
