/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_COMMON_UID_NAME_H
#define GM_COMMON_UID_NAME_H

#include <sys/types.h>

/*
 * The names of users, for the daemon's sentences. Any thread may call these functions. None of them
 * waits for a directory service: a name that is not known yet is left out.
 */

#define GM_UID_NAME_TEXT 48
/* Writes "user ann" or, if the name is not known, "uid 1000". Returns text. */
const char *gm_uid_name_say(uid_t uid, char text[GM_UID_NAME_TEXT]);

/*
 * Begins to look up the name, on a thread of its own, unless it is known or known to be missing. One
 * lookup is under way at a time: while there is one, this does nothing, and the caller asks again
 * when the user comes back.
 */
void gm_uid_name_learn(uid_t uid);

/*
 * Forgets all names, and reads those in a file like /etc/passwd. It waits for the disk. If the file
 * cannot be read, no names are known.
 */
void gm_uid_name_read(const char *path);

#endif
