/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The names of users. A lookup may go over the network, and a thousand clients usually belong to a few users, so the names
 * are cached.
 */

#include "ctl/io/user_name.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/arith.h"
#include "common/text/units.h"

#define KEPT 64

const char *gm_user_name(uid_t uid, char text[GM_USER_NAME_TEXT])
{
	static struct {
		bool known;
		uid_t uid;
		char name[GM_USER_NAME_TEXT];
	} kept[KEPT];
	size_t i = uid % KEPT;

	if (!kept[i].known || kept[i].uid != uid) {
		const struct passwd *user = getpwuid(uid);
		if (!user || (size_t)snprintf(kept[i].name, GM_USER_NAME_TEXT, "%s",
				     user->pw_name) >= GM_USER_NAME_TEXT)
			snprintf(kept[i].name, GM_USER_NAME_TEXT, "%lu", (unsigned long)uid);
		kept[i].uid = uid;
		kept[i].known = true;
	}
	return strcpy(text, kept[i].name);
}

const char *gm_user_name_owner(const char *owner, char text[GM_USER_NAME_OWNER_TEXT])
{
	char user[GM_USER_NAME_TEXT];
	uint64_t n;

	if (!strncmp(owner, "uid:", 4) && gm_parse_u64(owner + 4, &n) == 0 && n < UINT32_MAX) {
		snprintf(text, GM_USER_NAME_OWNER_TEXT, "uid:%s", gm_user_name((uid_t)n, user));
		return text;
	}
	if (!strncmp(owner, "gid:", 4) && gm_parse_u64(owner + 4, &n) == 0 && n < UINT32_MAX) {
		const struct group *group = getgrgid((gid_t)n);

		if (group) {
			snprintf(text, GM_USER_NAME_OWNER_TEXT, "gid:%s", group->gr_name);
			return text;
		}
	}
	snprintf(text, GM_USER_NAME_OWNER_TEXT, "%s", owner);
	return text;
}

const char *gm_user_name_run(const char *name, const char *id, char text[GM_USER_NAME_RUN_TEXT])
{
	snprintf(text, GM_USER_NAME_RUN_TEXT, "%.*s#%.8s", GM_BOUND_NAME_BYTES, name, id);
	return text;
}

const char *gm_user_name_sentence(const char *sentence, char *text, size_t room)
{
	char number[16], user[GM_USER_NAME_TEXT];
	uint64_t n;

	/* The daemon says "user N", and about the trust domain of a pool "uid N". */
	size_t before = !strncmp(sentence, "user ", 5) ? 5 : !strncmp(sentence, "uid ", 4) ? 4 : 0;
	size_t digits = before ? strspn(sentence + before, "0123456789") : 0;
	snprintf(number, sizeof(number), "%.*s", (int)gm_u64_min(digits, sizeof(number) - 1),
		sentence + before);
	bool user_of = digits && digits < sizeof(number) && gm_parse_u64(number, &n) == 0 &&
		       n < UINT32_MAX;
	int length = user_of ? snprintf(text, room, "user %s%s", gm_user_name((uid_t)n, user),
				       sentence + before + digits)
			     : snprintf(text, room, "%s", sentence);
	return length < 0 || (size_t)length >= room ? gm_text_mend(text) : text;
}

int gm_user_name_find(const char *text, uid_t *ret_uid)
{
	uint64_t n;

	if (gm_parse_u64(text, &n) == 0) {
		/* The last number stands for "no user". */
		if (n >= UINT32_MAX)
			return -ENOENT;
		*ret_uid = (uid_t)n;
		return 0;
	}
	const struct passwd *user = getpwnam(text);
	if (!user)
		return -ENOENT;
	*ret_uid = user->pw_uid;
	return 0;
}

int gm_user_name_find_group(const char *text, gid_t *ret_gid)
{
	uint64_t n;

	if (gm_parse_u64(text, &n) == 0) {
		if (n >= UINT32_MAX)
			return -ENOENT;
		*ret_gid = (gid_t)n;
		return 0;
	}
	const struct group *group = getgrnam(text);
	if (!group)
		return -ENOENT;
	*ret_gid = group->gr_gid;
	return 0;
}
