/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_MESSAGE_H
#define GM_CTL_MESSAGE_H

/* Messages for people, on stderr, cleaned: one line each. from: "gpumemctl"; NULL: no such prefix.
 */
void gm_message(const char *from, const char *text);

#endif
