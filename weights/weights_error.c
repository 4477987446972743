/* SPDX-License-Identifier: Apache-2.0 */
#include "weights/weights_error.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/text/units.h"

#define ERROR_BYTES 512
/* What a sentence quotes of a name: the cause has to fit behind it. */
#define ERROR_FILE   160
#define ERROR_TENSOR 120

gpumem_status gm_weights_error(gpumem_status status, const char *format, ...)
{
	char text[ERROR_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return gpumem_error_set(status, gm_text_mend(text));
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
