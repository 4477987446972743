/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TEXT_CLOSEST_H
#define GM_TEXT_CLOSEST_H

/*
 * For "did you mean …?": returns the candidate that is closest to a misspelt word, or NULL if none
 * is close. candidates: NULL ends the list. A word is close if few letters must be put in, taken
 * out, changed or swapped with their neighbour, or if it is the beginning of the candidate. Upper
 * and lower case count as the same.
 */
const char *gm_closest(const char *word, const char *const *candidates);

#endif
