/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_TEXT_H
#define GM_CTL_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Text from elsewhere made fit to be shown: names and tags come from clients, and a terminal obeys
 * what it is sent.
 */

/*
 * Once, before anything else here: characters are UTF-8 from now on, whatever the user's locale
 * says. *ret_utf8: whether the user's own locale is UTF-8 too, so that a terminal can show more
 * than ASCII.
 */
void gm_text_init(bool *ret_utf8);

/*
 * A malloc'ed copy in which every character is printable: what is invalid UTF-8 becomes \xNN, what
 * is a control character, or changes the direction or order of the text around it, \xNN or \uNNNN.
 * ascii: everything outside of ASCII becomes '?'. NULL: out of memory.
 */
char *gm_text_clean(const char *text, bool ascii);

/* How many columns a cleaned text takes on a terminal. */
size_t gm_text_width(const char *clean);

/*
 * A malloc'ed copy of a cleaned text that takes at most this many columns (1 or more): the end is
 * cut, and the cut shown by … (~ in ASCII). No character is cut in two, nor parted from the marks
 * that combine with it. NULL: out of memory.
 */
char *gm_text_fit(const char *clean, size_t columns, bool ascii);

#endif
