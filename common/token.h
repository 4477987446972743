/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_TOKEN_H
#define GM_COMMON_TOKEN_H

#include <stdbool.h>
#include <stddef.h>

/* A token (GM_TOKEN_BYTES random bytes) lets its bearer in. Neither a token nor anything derived
 * from it, such as a hash, is ever logged or compared with memcmp(). */

/* Takes the same time wherever the two differ. */
bool gm_secret_equal(const void *a, const void *b, size_t n);

#endif
