/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_LONG_USER_H
#define GM_TESTS_UNIT_LONG_USER_H

/* A user with a name that no test machine has. Takes the place of getpwuid() in the test. */

#include <pwd.h>
#include <stddef.h>

static const char *long_user; /* the name of each user; NULL: "root" */

struct passwd *getpwuid(uid_t uid)
{
	static struct passwd user;

	user.pw_name = (char *)(long_user ? long_user : "root");
	user.pw_uid = uid;
	return &user;
}

#endif
