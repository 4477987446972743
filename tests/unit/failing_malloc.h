/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_FAILING_MALLOC_H
#define GM_TESTS_FAILING_MALLOC_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Memory that fails when told: malloc, calloc and realloc of what is linked into the program (not
 * of shared libraries) go through here, by the linker's --wrap; of the thread that arms it alone.
 * Link with
 * $(failing_malloc_ldflags).
 */

/* The n-th allocation from now on fails, once; 0: none does. */
void failing_malloc_arm(uint64_t n);
/* While paused nothing fails and nothing is counted: for what a test itself allocates. */
void failing_malloc_pause(bool paused);
/* Whether it has happened. Disarms. */
bool failing_malloc_fired(void);

#endif
