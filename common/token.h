/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_TOKEN_H
#define GM_COMMON_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"

/* Tokens: 128 random bits that let their bearer in. Never logged, never compared with memcmp(). */

/* 0 or a negative errno. */
int gm_token_make(uint8_t ret_token[GM_TOKEN_BYTES]);
/* Takes the same time wherever the two differ. */
bool gm_token_equal(const uint8_t a[GM_TOKEN_BYTES], const uint8_t b[GM_TOKEN_BYTES]);
/* The same for any secret of n bytes, a hash for one. */
bool gm_secret_equal(const void *a, const void *b, size_t n);

#endif
