/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_BOUND_H
#define GM_TESTS_BOUND_H

/*
 * Marks a test that goes one past a bound of common/bounds.h and checks what that table says
 * happens. tests/check-limits finds these marks. The value is checked too, so that a bound that is
 * renamed takes its test along.
 */
#include "common/bounds.h"
#define GM_BOUND_TEST(name) ((void)(GM_BOUND_##name))

#endif
