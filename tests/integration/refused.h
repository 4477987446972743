/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_REFUSED_H
#define GM_TESTS_INTEGRATION_REFUSED_H

#include <string.h>

#include "gpumem/gpumem.h"
#include "tests/integration/harness.h"

/* A call of the library that must fail with that status, and say that. */
#define REFUSED(call, status, says) \
	require_refused_((call), (status), (says), #call, __FILE__, __LINE__)
static inline void require_refused_(gpumem_status got, gpumem_status status, const char *says,
	const char *what, const char *file, int line)
{
	if (got != status || !strstr(gpumem_error_detail(), says))
		gm_fail(file, line, "%s: %s: %s, not %s with '%s' in it", what,
			gpumem_status_text(got), gpumem_error_detail(), gpumem_status_text(status),
			says);
}

#endif
