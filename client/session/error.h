/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_SESSION_ERROR_H
#define GM_CLIENT_SESSION_ERROR_H

#include "gpumem/status.h"

/* Longer sentences are cut at the end, between two characters, without a mark. */
#define GM_ERROR_BYTES 512

/* Sets this thread's sentence for gpumem_error_detail() and returns the status, so that a failure
 * is one line: return gm_error(…). */
gpumem_status gm_error(gpumem_status status, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The same for a complete sentence, without formatting. It is quick: for failures that are a normal part of a
 * program's work. */
gpumem_status gm_error_plain(gpumem_status status, const char *sentence);
/* This thread's sentence. */
const char *gm_error_text(void);

#endif
