/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

#include "common/text/closest.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

/* Longer words are close to nothing. */
#define WORD_BYTES 32

/* How many letters must be put in, taken out, changed or swapped with their neighbour. */
static size_t closest_distance(const char *a, const char *b)
{
	size_t n = strlen(a), m = strlen(b);
	size_t d[WORD_BYTES + 1][WORD_BYTES + 1];

	for (size_t i = 0; i <= n; i++)
		d[i][0] = i;
	for (size_t j = 0; j <= m; j++)
		d[0][j] = j;

	for (size_t i = 1; i <= n; i++) {
		for (size_t j = 1; j <= m; j++) {
			int x = tolower((unsigned char)a[i - 1]);
			int y = tolower((unsigned char)b[j - 1]);
			size_t best = d[i - 1][j - 1] + (x != y);
			if (d[i - 1][j] + 1 < best)
				best = d[i - 1][j] + 1;
			if (d[i][j - 1] + 1 < best)
				best = d[i][j - 1] + 1;
			if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
				y == tolower((unsigned char)a[i - 2]) && d[i - 2][j - 2] + 1 < best)
				best = d[i - 2][j - 2] + 1;
			d[i][j] = best;
		}
	}
	return d[n][m];
}

const char *gm_closest(const char *word, const char *const *candidates)
{
	const char *closest = NULL;
	size_t length = strlen(word), best = 0;

	if (length == 0 || length > WORD_BYTES)
		return NULL;

	for (; *candidates; candidates++) {
		size_t n = strlen(*candidates);
		if (n > WORD_BYTES)
			continue;
		/* The beginning of a name is close to it, however much is missing. */
		size_t d = length > 1 && !strncasecmp(word, *candidates, length)
				   ? 1
				   : closest_distance(word, *candidates);
		if (d <= 1 + n / 4 && d < n && (!closest || d < best)) {
			closest = *candidates;
			best = d;
		}
	}
	return closest;
}
