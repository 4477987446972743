/* SPDX-License-Identifier: Apache-2.0 */
/* What the unit of the system's service says about its user and about the files that it sees. */
#include "daemon/config/config_service.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/system/path.h"
#include "common/system/platform.h"
#include "daemon/config/config_account.h"

#define UNIT   GM_CONFIG_SERVICE_UNIT
#define USER   "gpumemd"
#define FOLDER "/etc/gpumemd"

/* ---- texts */

const char *gm_config_service_word(const char *at, char *word, size_t size)
{
	size_t n = 0;
	char quote = '\0';

	at += strspn(at, " \t\n");
	if (!*at)
		return NULL;
	for (; *at && (quote || !strchr(" \t\n", *at)); at++) {
		if (quote ? *at == quote : *at == '"' || *at == '\'')
			quote = quote ? '\0' : *at;
		else if (n + 1 < size)
			word[n++] = *at;
	}
	word[n] = '\0';
	return at;
}

int gm_config_service_add(char **lines, const char *format, ...)
{
	const char *before = *lines ? *lines : "";
	char *text = NULL, *more = NULL;
	va_list args;

	va_start(args, format);
	int n = vasprintf(&text, format, args);
	va_end(args);
	if (n < 0)
		return -ENOMEM;
	n = asprintf(&more, "%s%s%s", before, *before ? "\n" : "", text);
	free(text);
	if (n < 0)
		return -ENOMEM;
	free(*lines);
	*lines = more;
	return 0;
}

/* Adds a complaint. Expands to -EACCES, or -ENOMEM. */
#define SERVICE_COMPLAIN(report, ...) \
	(gm_config_service_add(&(report)->errors, __VA_ARGS__) < 0 ? -ENOMEM : -EACCES)

/* ---- its user */

static void service_take_name(void *ctx, const char *value)
{
	snprintf(ctx, GM_CONFIG_SERVICE_NAME, "%s", value);
}

static void service_take_user(void *ctx, const char *value)
{
	struct gm_config_service *service = ctx;

	service->named = *value;
	snprintf(service->user, sizeof(service->user), "%s", *value ? value : "root");
}

/* Takes a line of a list, which an empty line empties. */
static void service_take_list(void *ctx, const char *value)
{
	char *groups = ctx;
	size_t n = *value ? strlen(groups) : 0;

	snprintf(groups + n, sizeof(((struct gm_config_service *)NULL)->groups) - n, "%s%s",
		n ? " " : "", value);
}

static void service_take_capabilities(void *ctx, const char *value)
{
	bool *reads_all = ctx;

	if (!*value || *value == '~')
		*reads_all = false;
	else if (strcasestr(value, "CAP_DAC_READ_SEARCH") || strcasestr(value, "CAP_DAC_OVERRIDE"))
		*reads_all = true;
}

void gm_config_service_read(struct gm_config_service *ret_service)
{
	const char *root = gm_platform_root();
	struct gm_config_service service = {.user = USER};

	gm_platform_unit(root, UNIT, "User", service_take_user, &service);
	gm_platform_unit(root, UNIT, "Group", service_take_name, service.group);
	gm_platform_unit(root, UNIT, "SupplementaryGroups", service_take_list, service.groups);
	gm_platform_unit(
		root, UNIT, "AmbientCapabilities", service_take_capabilities, &service.reads_all);
	const struct passwd *by_number = NULL;
	if (service.user[strspn(service.user, "0123456789")] == '\0')
		by_number = getpwuid((uid_t)strtoul(service.user, NULL, 10));
	if (by_number)
		service_take_name(service.user, by_number->pw_name);
	*ret_service = service;
}

/* Complains about a user that does not exist, and about one whose daemon reads another configuration. */
static int service_check_user(
	const struct gm_config_service *service, struct gm_config_report *report)
{
	const struct passwd *user = getpwnam(service->user);

	if (!service->named)
		return 0;
	if (!user)
		return SERVICE_COMPLAIN(report,
			UNIT
			": there is no user %s, as which the service is to run (User= of its unit); name one that exists",
			service->user);
	if (user->pw_uid >= GM_PATH_USER_UIDS)
		return SERVICE_COMPLAIN(report,
			UNIT
			": the service runs as %s (User= of its unit), an ordinary user (uid %u), and reads the configuration of this user in place of %s; name a user with a uid below %d",
			service->user, (unsigned)user->pw_uid, report->path, GM_PATH_USER_UIDS);
	return 0;
}

/* ---- what it sees */

/* The longest folder above a path that a key of the unit names. */
struct service_place {
	const char *path;
	bool binds;    /* the key puts one path in the place of another: SOURCE[:PLACE[:OPTIONS]] */
	size_t length; /* of the folder; 0: the key names none */
	bool elsewhere; /* its source is another path */
};

/* Returns whether a path is the folder or below it. */
static bool service_is_below(const char *path, const char *folder)
{
	size_t n = strlen(folder);

	return !strncmp(path, folder, n) && (!path[n] || path[n] == '/');
}

/* Returns whether the value is one of the words, which blanks separate. */
static bool service_is_one_of(const char *value, const char *words)
{
	size_t n = strlen(value);

	for (; *words; words += strcspn(words, " "), words += *words == ' ')
		if (strcspn(words, " ") == n && !strncasecmp(value, words, n))
			return true;
	return false;
}

static void service_take_place(void *ctx, const char *value)
{
	struct service_place *place = ctx;
	char word[PATH_MAX];

	if (!*value)
		place->length = 0;
	while ((value = gm_config_service_word(value, word, sizeof(word)))) {
		char *rest = word + strspn(word, "-+");
		char *source = strsep(&rest, ":"), *target = source;

		if (place->binds && rest && *rest == '/')
			target = strsep(&rest, ":");
		size_t n = strlen(target);
		while (n > 1 && target[n - 1] == '/')
			target[--n] = '\0';
		if (*target == '/' && n >= place->length &&
			(n == 1 || service_is_below(place->path, target))) {
			place->length = n;
			place->elsewhere = strncmp(source, target, n) != 0;
		}
	}
}

static struct service_place service_find_place(const char *key, bool binds, const char *path)
{
	struct service_place place = {.path = path, .binds = binds};

	gm_platform_unit(gm_platform_root(), UNIT, key, service_take_place, &place);
	return place;
}

/* Returns how long the folder above the path is that the switch of the unit hides, with "yes" or with the other word; 0: the
 * switch hides none. */
static size_t service_switched(const char *key, const char *other, const char *const *folders,
	const char *path, bool *ret_other)
{
	char value[GM_CONFIG_SERVICE_NAME] = "";

	gm_platform_unit(gm_platform_root(), UNIT, key, service_take_name, value);
	*ret_other = !strcasecmp(value, other);
	if (!*ret_other && !service_is_one_of(value, "yes true on 1"))
		return 0;
	for (; *folders; folders++)
		if (service_is_below(path, *folders))
			return strlen(*folders);
	return 0;
}

/*
 * Returns the key of the unit that hides the path from the service, or NULL. *ret_unsure: the key puts something in its place that
 * only the service sees. As systemd does it, what is made inaccessible hides everything below, and otherwise the longest path
 * decides.
 */
static const char *service_hidden_by(const char *path, bool *ret_unsure)
{
	static const char *const homes[] = {"/home", "/root", "/run/user", NULL};
	static const char *const tmps[] = {"/tmp", "/var/tmp", NULL};
	static const char *const binds[] = {"BindPaths", "BindReadOnlyPaths"};
	static const char *const roots[] = {"RootDirectory", "RootImage"};
	struct service_place shown = {.length = 0};
	const char *key = NULL, *shows = NULL;
	size_t length = 0;
	bool tmpfs, disconnected;

	*ret_unsure = false;
	for (size_t i = 0; i < 2; i++) {
		char root[GM_CONFIG_SERVICE_NAME] = "";
		gm_platform_unit(gm_platform_root(), UNIT, roots[i], service_take_name, root);
		*ret_unsure = *root && strcmp(root, "/") != 0;
		if (*ret_unsure)
			return roots[i];
	}

	size_t home = service_switched("ProtectHome", "tmpfs", homes, path, &tmpfs);
	size_t tmp = service_switched("PrivateTmp", "disconnected", tmps, path, &disconnected);
	struct service_place empty = service_find_place("TemporaryFileSystem", false, path);
	if (service_find_place("InaccessiblePaths", false, path).length)
		return "InaccessiblePaths";
	if (home && !tmpfs)
		return "ProtectHome";
	if (home || tmp) {
		key = home ? "ProtectHome" : "PrivateTmp";
		length = home ? home : tmp;
	}
	if (empty.length >= length && empty.length) {
		key = "TemporaryFileSystem";
		length = empty.length;
	}
	for (size_t i = 0; i < 2; i++) {
		struct service_place place = service_find_place(binds[i], true, path);
		if (place.length && place.length >= shown.length) {
			shown = place;
			shows = binds[i];
		}
	}
	if (!shows || shown.length < length)
		return key;
	*ret_unsure = shown.elsewhere;
	return shown.elsewhere ? shows : NULL;
}

/* Warns about a key of the unit that hides clients from the daemon. The daemon does not start while such a client has memory. */
static int service_warn_unseen(struct gm_config *config)
{
	static const struct {
		const char *key, *harmless, *hides;
	} rows[] = {
		{"ProtectProc", "default", "/proc does not show it the processes of other users"},
		{"PrivateUsers", "no false off 0 full",
			"its user namespace does not have most users"},
	};
	int r = 0;

	for (size_t i = 0; config && i < sizeof(rows) / sizeof(*rows) && r == 0; i++) {
		char value[GM_CONFIG_SERVICE_NAME] = "";

		gm_platform_unit(gm_platform_root(), UNIT, rows[i].key, service_take_name, value);
		if (*value && !service_is_one_of(value, rows[i].harmless))
			r = gm_config_service_add(&config->warnings,
				UNIT
				": %s=%s hides clients from the daemon: %s. The daemon does not start while such a client holds memory; remove %s= from the unit ('systemctl edit gpumemd')",
				rows[i].key, value, rows[i].hides, rows[i].key);
	}
	return r;
}

/* ---- what it may read */

struct service_access {
	const struct gm_config_service *service;
	struct gm_config_report *report;
	struct gm_config *config; /* or NULL */
};

static int service_try(
	const struct gm_config_service *service, int (*fn)(const void *ctx), const void *ctx)
{
	return gm_config_account_try(service->user, service->group, service->groups, fn, ctx);
}

static int service_try_open(const void *path)
{
	return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) < 0 ? -errno : 0;
}

static int service_try_enter(const void *folder)
{
	return faccessat(AT_FDCWD, folder, X_OK, AT_EACCESS) < 0 ? -errno : 0;
}

/* Finds the first folder above the path that the user may not enter. Returns false if there is none. */
static bool service_find_closed(
	const struct gm_config_service *service, const char *path, char closed[PATH_MAX])
{
	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		snprintf(closed, PATH_MAX, "%.*s", slash == path ? 1 : (int)(slash - path), path);
		if (service_try(service, service_try_enter, closed) == -EACCES)
			return true;
	}
	return false;
}

/* Judges whether the service sees the file at path, which is real after links. Returns 0, 1 if nobody can tell, -EACCES with a complaint,
 * or -ENOMEM. */
static int service_check_seen(
	const struct service_access *access, const char *path, const char *real)
{
	bool unsure, link = strcmp(real, path) != 0;
	const char *hides = service_hidden_by(path, &unsure), *hidden = "it";

	if (!hides && link) {
		hides = service_hidden_by(real, &unsure);
		hidden = real;
	}
	if (!hides)
		return 0;
	if (!unsure)
		return SERVICE_COMPLAIN(access->report,
			"%s: the service cannot see it: %s%s is hidden from the service (%s= of its unit); %s",
			path, hidden == real ? "it is a link, and " : "", hidden, hides,
			service_is_below(hidden == real ? real : path, FOLDER)
				? "take the path out of this key"
				: "copy the file into " FOLDER);
	if (access->config &&
		gm_config_service_add(&access->config->warnings,
			"%s: not checked: whether the service can read it, which sees another place there (%s= of its unit)",
			path, hides) < 0)
		return -ENOMEM;
	return 1;
}

/* Returns 0, -EACCES with a complaint about the file or folder at path, or -ENOMEM. */
static int service_check_file(const struct service_access *access, const char *path)
{
	const struct gm_config_service *service = access->service;
	char real[PATH_MAX], closed[PATH_MAX];

	if (!realpath(path, real))
		return 0;
	int r = service_check_seen(access, path, real);
	if (r != 0 || service->reads_all)
		return r < 0 ? r : 0;
	if (service_try(service, service_try_open, path) != -EACCES)
		return 0;
	if (service_find_closed(service, path, closed) ||
		service_find_closed(service, real, closed))
		return SERVICE_COMPLAIN(access->report,
			"%s: cannot be read by the user %s, as which the service runs, because this user may not enter the folder %s; change the mode of this folder, or copy the file into one that the user may enter",
			path, service->user, closed);
	return SERVICE_COMPLAIN(access->report,
		"%s: cannot be read by the user %s, as which the service runs; change its mode or its owner",
		path, service->user);
}

int gm_config_service_check(const struct gm_config_service *service,
	struct gm_config_report *report, struct gm_config *config)
{
	struct service_access access = {.service = service, .report = report, .config = config};
	char path[PATH_MAX];
	int r = service_check_user(service, report);

	if (service_warn_unseen(config) < 0)
		return -ENOMEM;
	if (r != 0 || !getpwnam(service->user))
		return r;
	snprintf(path, sizeof(path), "%s.d", report->path);
	r = service_check_file(&access, path);
	for (const char *at = report->files ? report->files : "", *end; *at;
		at = *end ? end + 1 : end) {
		end = at + strcspn(at, "\n");
		snprintf(path, sizeof(path), "%.*s", (int)(end - at), at);
		int s = service_check_file(&access, path);
		r = s ? s : r;
	}
	return r;
}
