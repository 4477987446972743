/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The names of users. A lookup may go over the network, and a thousand clients usually belong to a
 * few users, so the names are cached.
 */

#include "ctl/io/user.h"

#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define KEPT 64

const char *gm_user_name(uid_t uid, char text[GM_USER_TEXT])
{
	static struct {
		bool known;
		uid_t uid;
		char name[GM_USER_TEXT];
	} kept[KEPT];
	size_t i = uid % KEPT;

	if (!kept[i].known || kept[i].uid != uid) {
		const struct passwd *user = getpwuid(uid);
		if (!user || (size_t)snprintf(kept[i].name, GM_USER_TEXT, "%s", user->pw_name) >=
				     GM_USER_TEXT)
			snprintf(kept[i].name, GM_USER_TEXT, "%lu", (unsigned long)uid);
		kept[i].uid = uid;
		kept[i].known = true;
	}
	return strcpy(text, kept[i].name);
}
