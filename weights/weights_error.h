/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_WEIGHTS_ERROR_H
#define GM_WEIGHTS_ERROR_H

#include <stdint.h>

#include "gpumem/gpumem.h"

/* Sentences for gpumem_error_detail(). They may quote files and tensors, whose names can hold anything: what is not
 * printable is written as "?". Both functions return the status. */

gpumem_status gm_weights_error(gpumem_status status, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* GPUMEM_E_INVALID for a file that is damaged at this offset. tensor: what is wrong is about this one; may be NULL. */
gpumem_status gm_weights_damaged(const char *file, uint64_t offset, const char *tensor,
	const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
