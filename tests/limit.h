/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_LIMIT_H
#define GM_TESTS_LIMIT_H

/*
 * Marks a test that goes one past a bound of common/limits.h and checks what that table says
 * happens. tests/check-limits finds these marks. The value is checked too, so that a bound that is
 * renamed takes its test along.
 */
#include "common/limits.h"
#define GM_LIMIT_TEST(name) ((void)(GM_LIMIT_##name))

#endif
