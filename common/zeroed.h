/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_ZEROED_H
#define GM_COMMON_ZEROED_H

#include <stdlib.h>
#include <string.h>

/* Like calloc(1, bytes), for what is allocated with every request: glibc's malloc() takes small
 * blocks from the thread's own cache, its calloc() does not. */
static inline void *gm_zeroed(size_t bytes)
{
	void *block = malloc(bytes);

	__asm__("" : "+r"(block)); /* or the compiler makes a calloc() of it */
	return block ? memset(block, 0, bytes) : NULL;
}

#endif
