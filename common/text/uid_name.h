/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TEXT_UID_NAME_H
#define GM_TEXT_UID_NAME_H

#include <sys/types.h>

/*
 * The names of users, for the daemon's sentences. Any thread may call these functions. Users whom
 * only a directory service knows are numbers here; gpumemctl looks them up for its tables.
 */

#define GM_UID_NAME_TEXT 72
/* Writes "user ann" or, if the name is not known, "user 1000". Returns text. */
const char *gm_uid_name_say(uid_t uid, char text[GM_UID_NAME_TEXT]);

#define GM_UID_NAME_PAYER_TEXT 112
/* The same for one that pays for a process with another uid: "user ann (with subordinate uid 100000)".
 */
const char *gm_uid_name_say_payer(uid_t payer_uid, uid_t uid, char text[GM_UID_NAME_PAYER_TEXT]);

/*
 * Forgets all names, and reads those in a file like /etc/passwd. It waits for the disk. If the file
 * cannot be read, no names are known.
 */
void gm_uid_name_read(const char *path);

#endif
