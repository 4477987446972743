/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_RANDOM_H
#define GM_COMMON_RANDOM_H

#include <stddef.h>

/* Random bytes from the kernel, good enough for secrets. 0 or a negative errno: then none are
 * usable. */
int gm_random(void *bytes, size_t n);

#endif
