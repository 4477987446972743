/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_IO_MESSAGE_H
#define GM_CTL_IO_MESSAGE_H

/* Writes one cleaned line to stderr. from is a prefix such as "gpumemctl"; NULL for none. */
void gm_message(const char *from, const char *text);

#endif
