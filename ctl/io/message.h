/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_IO_MESSAGE_H
#define GM_CTL_IO_MESSAGE_H

/* Writes one cleaned line to stderr. from is a prefix such as "gpumemctl"; NULL for none. On a terminal,
 * a long line becomes several, which end with a word. */
void gm_message(const char *from, const char *text);

#endif
