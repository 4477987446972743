/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * The names of users. A uid has one place in a table of fixed size, so no number of users makes it
 * grow. Of two users with the same place, the one that was looked up last has it; the other is a
 * number until somebody looks it up again.
 *
 * A directory service may take a minute to answer, or forever. So names are looked up on a thread
 * that nobody waits for, not even at exit.
 */

#include "common/uid_name.h"

#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/units.h"

#define UID_NAME_PLACES 1024
/* A longer name is not shown: useradd allows 32 bytes. */
#define UID_NAME_BYTES 33
/* What one entry of a user may take in memory. */
#define UID_NAME_ENTRY 16384

struct uid_name {
	bool known;
	uid_t uid;
	char name[UID_NAME_BYTES]; /* "": it has none */
};

static pthread_mutex_t uid_name_lock = PTHREAD_MUTEX_INITIALIZER;
static struct uid_name uid_names[UID_NAME_PLACES];
static bool uid_name_is_looking;

/* Needs the lock. name: NULL for a user without one. */
static void uid_name_put(uid_t uid, const char *name)
{
	struct uid_name *at = &uid_names[uid % UID_NAME_PLACES];

	at->known = true;
	at->uid = uid;
	at->name[0] = '\0';
	if (name && strlen(name) < sizeof(at->name) && gm_text_ok(name))
		strcpy(at->name, name);
}

const char *gm_uid_name_say(uid_t uid, char text[GM_UID_NAME_TEXT])
{
	const struct uid_name *at = &uid_names[uid % UID_NAME_PLACES];

	pthread_mutex_lock(&uid_name_lock);
	if (at->known && at->uid == uid && at->name[0])
		snprintf(text, GM_UID_NAME_TEXT, "user %s", at->name);
	else
		snprintf(text, GM_UID_NAME_TEXT, "uid %u", (unsigned)uid);
	pthread_mutex_unlock(&uid_name_lock);
	return text;
}

static void *uid_name_thread(void *argument)
{
	uid_t uid = (uid_t)(uintptr_t)argument;
	char room[UID_NAME_ENTRY];
	struct passwd entry, *found = NULL;

	int r = getpwuid_r(uid, &entry, room, sizeof(room), &found);

	pthread_mutex_lock(&uid_name_lock);
	if (r == 0)
		uid_name_put(uid, found ? found->pw_name : NULL);
	uid_name_is_looking = false;
	pthread_mutex_unlock(&uid_name_lock);
	return NULL;
}

/* Whether the caller is to look this user up. */
static bool uid_name_begin(uid_t uid)
{
	const struct uid_name *at = &uid_names[uid % UID_NAME_PLACES];

	pthread_mutex_lock(&uid_name_lock);
	bool begins = !uid_name_is_looking && !(at->known && at->uid == uid);
	uid_name_is_looking |= begins;
	pthread_mutex_unlock(&uid_name_lock);
	return begins;
}

void gm_uid_name_learn(uid_t uid)
{
	sigset_t all, before;
	pthread_t thread;

	if (!uid_name_begin(uid))
		return;

	/* Signals are for the other threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int r = pthread_create(&thread, NULL, uid_name_thread, (void *)(uintptr_t)uid);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r == 0) {
		pthread_detach(thread);
		return;
	}

	pthread_mutex_lock(&uid_name_lock);
	uid_name_is_looking = false;
	pthread_mutex_unlock(&uid_name_lock);
}

void gm_uid_name_read(const char *path)
{
	char room[UID_NAME_ENTRY];
	struct passwd entry, *found;
	FILE *file = fopen(path, "re");

	pthread_mutex_lock(&uid_name_lock);
	memset(uid_names, 0, sizeof(uid_names));
	pthread_mutex_unlock(&uid_name_lock);
	if (!file)
		return;

	while (fgetpwent_r(file, &entry, room, sizeof(room), &found) == 0) {
		pthread_mutex_lock(&uid_name_lock);
		uid_name_put(found->pw_uid, found->pw_name);
		pthread_mutex_unlock(&uid_name_lock);
	}
	fclose(file);
}
