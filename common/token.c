/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

/*
 * Tokens. Comparing looks at every byte, so that how long a refusal took says nothing about how
 * much of a guess was right.
 */

#include <string.h>

#include "common/random.h"
#include "common/token.h"

int gm_token_make(uint8_t ret_token[GM_TOKEN_BYTES])
{
	uint8_t token[GM_TOKEN_BYTES];
	int r = gm_random(token, sizeof(token));

	if (r < 0)
		return r;
	memcpy(ret_token, token, sizeof(token));
	return 0;
}

bool gm_secret_equal(const void *a, const void *b, size_t n)
{
	/* volatile: the compiler may not leave the loop early either. */
	const volatile uint8_t *left = a, *right = b;
	uint8_t difference = 0;

	for (size_t i = 0; i < n; i++)
		difference |= left[i] ^ right[i];
	return difference == 0;
}

bool gm_token_equal(const uint8_t a[GM_TOKEN_BYTES], const uint8_t b[GM_TOKEN_BYTES])
{
	return gm_secret_equal(a, b, GM_TOKEN_BYTES);
}
