/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Compares secrets. It looks at every byte, so that the time a refusal takes does not tell how much
 * of a guess was right.
 */

#include <stdint.h>

#include "common/token.h"

bool gm_secret_equal(const void *a, const void *b, size_t n)
{
	/* volatile: the compiler may not leave the loop early either. */
	const volatile uint8_t *left = a, *right = b;
	uint8_t difference = 0;

	for (size_t i = 0; i < n; i++)
		difference |= left[i] ^ right[i];
	return difference == 0;
}
