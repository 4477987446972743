/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CORE_SAY_H
#define GM_CORE_SAY_H

#include <stdarg.h>
#include <stdio.h>

#include "daemon/core/core.h"

/* A sentence for a person, cut where there is no more room. */
static inline void __attribute__((format(printf, 2, 3)))
gm_say(char detail[GM_DETAIL_BYTES], const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(detail, GM_DETAIL_BYTES, format, args);
	va_end(args);
}

#endif
