/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_COVERAGE_H
#define GM_TESTS_COVERAGE_H

/*
 * Included at the beginning of each file in a build with --enable-coverage. Exit handlers write
 * down what a process ran, and _exit() skips these: here it writes the same first.
 */

#include <unistd.h>

void __gcov_dump(void);
#define _exit(status) (__gcov_dump(), (_exit)(status))

#endif
