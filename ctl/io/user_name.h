/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CTL_IO_USER_NAME_H
#define GM_CTL_IO_USER_NAME_H

#include <sys/types.h>

#include "common/bounds.h"

#define GM_USER_NAME_TEXT 64
/* The name of the user or, if there is none, the uid. Caches names. */
const char *gm_user_name(uid_t uid, char text[GM_USER_NAME_TEXT]);

/*
 * The name of an owner as the daemon writes it, with the names of users and groups: "uid:1000"
 * becomes "uid:ann". All other owners, and users without a name, stay as they are. Returns text.
 */
#define GM_USER_NAME_OWNER_TEXT 512
const char *gm_user_name_owner(const char *owner, char text[GM_USER_NAME_OWNER_TEXT]);

/*
 * The name of a run that other runs have, too: with the first digits of its ID, "train#4f2a91c3". Returns text.
 */
#define GM_USER_NAME_RUN_TEXT (GM_BOUND_NAME_BYTES + 10)
const char *gm_user_name_run(const char *name, const char *id, char text[GM_USER_NAME_RUN_TEXT]);

/*
 * What the daemon says about a user at the beginning of a sentence, with the name instead of the
 * number: "user 1000" and "uid 1000 in box" become "user ann" and "user ann in box", or "user 1000 in box" if the
 * number has no name. Other sentences stay as they are. Returns text.
 */
const char *gm_user_name_sentence(const char *sentence, char *text, size_t room);

/* Finds a user by number or by name. Digits are a number, which needs no name. Returns -ENOENT if there is no such user. */
int gm_user_name_find(const char *text, uid_t *ret_uid);
/* The same for a group. */
int gm_user_name_find_group(const char *text, gid_t *ret_gid);

#endif
