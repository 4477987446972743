/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_CONFIG_ACCOUNT_H
#define GM_CONFIG_ACCOUNT_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Looks up the users and groups that a configuration names. At first it asks the host's name service, which may
 * take any time, and keeps the answers. Once the daemon serves clients, it looks in /etc/passwd or /etc/group,
 * and then among those answers: a reload must never wait for a directory. One thread at a time may call these
 * functions.
 */

/* Returns false if the name is not known. */
bool gm_config_account_user(const char *name, uid_t *ret_uid);
bool gm_config_account_group(const char *name, gid_t *ret_gid);

/*
 * Calls fn as this user, in a child process; if user is NULL, in this process, as itself. group replaces the user's own group, and
 * groups, separated by blanks, are added to those of the user; both can be NULL or "". Returns what fn returned, 0 or a
 * negative errno; -ENOENT if there is no such user, or -EPERM if this process cannot become that user. For a program with
 * one thread.
 */
int gm_config_account_try(const char *user, const char *group, const char *groups,
	int (*fn)(const void *ctx), const void *ctx);

/* From now on, no name service is asked. */
void gm_config_account_stay_local(void);
/* What a person can do about a name that is not known, or "". */
const char *gm_config_account_hint(void);

#endif
