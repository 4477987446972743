/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The names of users. A uid has one place in a table of fixed size, so no number of users makes it
 * grow. Of two users with the same place, the one that the file names last has it; the other is a
 * number.
 *
 * No directory service is asked: it may take a minute to answer, or forever, and its modules end the
 * program if there is no memory for them.
 */

#include "common/text/uid_name.h"

#include <pthread.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/text/units.h"

#define UID_NAME_PLACES 1024
/* A longer name is not shown. useradd allows 32 bytes, but other programs allow more; gpumemctl shows as many as this. */
#define UID_NAME_BYTES 64
/* Maximum memory of one entry of a user, in bytes. */
#define UID_NAME_ENTRY 16384

struct uid_name {
	bool known;
	uid_t uid;
	char name[UID_NAME_BYTES]; /* "": it has none that can be shown */
};

static pthread_mutex_t uid_name_lock = PTHREAD_MUTEX_INITIALIZER;
static struct uid_name uid_names[UID_NAME_PLACES];

static void uid_name_put(struct uid_name names[UID_NAME_PLACES], uid_t uid, const char *name)
{
	struct uid_name *at = &names[uid % UID_NAME_PLACES];

	at->known = true;
	at->uid = uid;
	at->name[0] = '\0';
	if (strlen(name) < sizeof(at->name) && gm_text_ok(name))
		strcpy(at->name, name);
}

const char *gm_uid_name_say(uid_t uid, char text[GM_UID_NAME_TEXT])
{
	const struct uid_name *at = &uid_names[uid % UID_NAME_PLACES];

	pthread_mutex_lock(&uid_name_lock);
	if (at->known && at->uid == uid && at->name[0])
		snprintf(text, GM_UID_NAME_TEXT, "user %s", at->name);
	else
		snprintf(text, GM_UID_NAME_TEXT, "user %u", (unsigned)uid);
	pthread_mutex_unlock(&uid_name_lock);
	return text;
}

const char *gm_uid_name_say_payer(uid_t payer_uid, uid_t uid, char text[GM_UID_NAME_PAYER_TEXT])
{
	char payer[GM_UID_NAME_TEXT];

	gm_uid_name_say(payer_uid, payer);
	if (payer_uid == uid)
		snprintf(text, GM_UID_NAME_PAYER_TEXT, "%s", payer);
	else
		snprintf(text, GM_UID_NAME_PAYER_TEXT, "%s (with subordinate uid %u)", payer,
			(unsigned)uid);
	return text;
}

void gm_uid_name_read(const char *path)
{
	static struct uid_name names[UID_NAME_PLACES];
	char room[UID_NAME_ENTRY];
	struct passwd entry, *found;
	FILE *file = fopen(path, "re");

	memset(names, 0, sizeof(names));
	while (file && fgetpwent_r(file, &entry, room, sizeof(room), &found) == 0)
		uid_name_put(names, found->pw_uid, found->pw_name);
	if (file)
		fclose(file);
	pthread_mutex_lock(&uid_name_lock);
	memcpy(uid_names, names, sizeof(uid_names));
	pthread_mutex_unlock(&uid_name_lock);
}
