/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CLIENT_ERROR_H
#define GM_CLIENT_ERROR_H

#include "gpumem/status.h"

/* Longer sentences are cut, at the end, without a word. */
#define GM_ERROR_BYTES 512

/* Leaves a sentence for gpumem_error_detail() in this thread and hands the status through, so that
 * a failure is one line. */
gpumem_status gm_error(gpumem_status status, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* The sentence as it stands. */
const char *gm_error_text(void);

#endif
