/* SPDX-License-Identifier: Apache-2.0 */
/* Users and groups by name: from a name service, from files, and from memory. */
#include "daemon/config/config_account.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/text/units.h"

enum account_kind { ACCOUNT_USER, ACCOUNT_GROUP };

/* What a name service said. There are as many as the configuration names. */
struct account {
	struct account *next;
	enum account_kind kind;
	uint32_t id;
	char name[];
};

static struct account *account_list;
static bool account_is_local;

static struct account *account_find(enum account_kind kind, const char *name)
{
	struct account *at = account_list;

	while (at && (at->kind != kind || strcmp(at->name, name) != 0))
		at = at->next;
	return at;
}

/* Without memory, the name is not known after a reload. */
static void account_keep(enum account_kind kind, const char *name, uint32_t id)
{
	struct account *account = account_find(kind, name);

	if (!account) {
		account = malloc(sizeof(*account) + strlen(name) + 1);
		if (!account)
			return;
		account->kind = kind;
		strcpy(account->name, name);
		account->next = account_list;
		account_list = account;
	}
	account->id = id;
}

static bool account_ask(enum account_kind kind, const char *name, uint32_t *ret_id)
{
	const struct passwd *user = kind == ACCOUNT_USER ? getpwnam(name) : NULL;
	const struct group *group = kind == ACCOUNT_GROUP ? getgrnam(name) : NULL;

	if (!user && !group)
		return false;
	*ret_id = user ? user->pw_uid : group->gr_gid;
	account_keep(kind, name, *ret_id);
	return true;
}

/* In both files, a line begins with the name, a password and the number. */
static bool account_read(enum account_kind kind, const char *name, uint32_t *ret_id)
{
	FILE *file = fopen(kind == ACCOUNT_USER ? "/etc/passwd" : "/etc/group", "re");
	char *line = NULL;
	size_t room = 0;
	bool found = false;

	while (file && !found && getline(&line, &room, file) > 0) {
		char *rest = line;
		const char *first = strsep(&rest, ":");
		uint64_t id;

		(void)strsep(&rest, ":");
		const char *number = strsep(&rest, ":");
		if (number && strcmp(first, name) == 0 && gm_parse_u64(number, &id) == 0 &&
			id < UINT32_MAX) {
			*ret_id = (uint32_t)id;
			found = true;
		}
	}
	free(line);
	if (file)
		fclose(file);
	return found;
}

static bool account_look_up(enum account_kind kind, const char *name, uint32_t *ret_id)
{
	const struct account *kept;

	if (!account_is_local)
		return account_ask(kind, name, ret_id);
	if (account_read(kind, name, ret_id))
		return true;

	kept = account_find(kind, name);
	if (kept)
		*ret_id = kept->id;
	return kept;
}

bool gm_config_account_user(const char *name, uid_t *ret_uid)
{
	return account_look_up(ACCOUNT_USER, name, ret_uid);
}

bool gm_config_account_group(const char *name, gid_t *ret_gid)
{
	return account_look_up(ACCOUNT_GROUP, name, ret_gid);
}

/* Adds groups, separated by blanks, to those of this process. */
static void account_join(const char *groups)
{
	gid_t list[1024];
	int room = sizeof(list) / sizeof(list[0]), n = getgroups(room, list);
	char *copy = strdup(groups), *rest = copy;

	for (char *name; n >= 0 && n < room && (name = strsep(&rest, " "));) {
		uint64_t number;

		if (*name && account_ask(ACCOUNT_GROUP, name, &list[n]))
			n++;
		else if (gm_parse_u64(name, &number) == 0 && number < UINT32_MAX)
			list[n++] = (gid_t)number;
	}
	if (n >= 0)
		(void)setgroups((size_t)n, list);
	free(copy);
}

/* In the child. The exit status of the child is the answer, as an errno. */
static _Noreturn void account_call(const struct passwd *user, const char *group, const char *groups,
	int (*fn)(const void *ctx), const void *ctx)
{
	uint32_t gid;

	if (!group || !*group || !account_ask(ACCOUNT_GROUP, group, &gid))
		gid = user->pw_gid;
	if (initgroups(user->pw_name, gid) < 0)
		_exit(EPERM);
	account_join(groups ? groups : "");
	if (setresgid(gid, gid, gid) < 0 || setresuid(user->pw_uid, user->pw_uid, user->pw_uid) < 0)
		_exit(EPERM);
	_exit(-fn(ctx));
}

int gm_config_account_try(const char *user, const char *group, const char *groups,
	int (*fn)(const void *ctx), const void *ctx)
{
	const struct passwd *found = user ? getpwnam(user) : NULL;
	int status;

	if (!user)
		return fn(ctx);
	if (!found)
		return -ENOENT;
	pid_t pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		account_call(found, group, groups, fn, ctx);

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -ECHILD;
}

void gm_config_account_stay_local(void)
{
	account_is_local = true;
}

const char *gm_config_account_hint(void)
{
	return account_is_local
		       ? "; check the spelling; if a directory has the name, which a reload does not ask, run "
			 "'gpumemctl config check' before a restart"
		       : "";
}
