/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_SYSTEM_RANDOM_H
#define GM_SYSTEM_RANDOM_H

#include <stddef.h>

/* Gets random bytes from the kernel, good enough for secrets. On error, returns a negative errno,
 * and none of the bytes may be used. */
int gm_random(void *bytes, size_t n);

#endif
