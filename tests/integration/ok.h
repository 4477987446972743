/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_INTEGRATION_OK_H
#define GM_TESTS_INTEGRATION_OK_H

#include "gpumem/gpumem.h"
#include "tests/integration/harness.h"

/* A call of the library that must go well; otherwise its sentence is said and the process ends. */
#define OK(call) require_ok_((call), #call, __FILE__, __LINE__)
static inline void require_ok_(gpumem_status status, const char *what, const char *file, int line)
{
	if (status != GPUMEM_OK)
		gm_fail(file, line, "%s: %s: %s", what, gpumem_status_text(status),
			gpumem_error_detail());
}

#endif
