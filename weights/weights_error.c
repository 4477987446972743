/* SPDX-License-Identifier: Apache-2.0 */
#include "weights/weights_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/text/units.h"

#define ERROR_BYTES 512
/* What a sentence quotes of a name: the cause has to fit behind it. */
#define ERROR_FILE   160
#define ERROR_TENSOR 120

/* The bytes of the UTF-8 character at text; 0: it is none, or not printable. */
static size_t error_printable(const char *text)
{
	for (size_t n = 1; n <= 4 && text[n - 1]; n++) {
		char one[5] = "";

		memcpy(one, text, n);
		if (gm_text_ok(one))
			return n;
	}
	return 0;
}

static void error_clean(char *text)
{
	while (*text) {
		size_t n = error_printable(text);

		if (!n)
			*text = '?';
		text += n ? n : 1;
	}
}

gpumem_status gm_weights_error(gpumem_status status, const char *format, ...)
{
	char text[ERROR_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	error_clean(text);
	return gpumem_error_set(status, text);
}

gpumem_status gm_weights_damaged(
	const char *file, uint64_t offset, const char *tensor, const char *format, ...)
{
	char what[ERROR_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	if (!tensor)
		return gm_weights_error(GPUMEM_E_INVALID, "%.*s, byte %llu: %s", ERROR_FILE, file,
			(unsigned long long)offset, what);
	return gm_weights_error(GPUMEM_E_INVALID, "%.*s, byte %llu: tensor \"%.*s\" %s", ERROR_FILE,
		file, (unsigned long long)offset, ERROR_TENSOR, tensor, what);
}
