/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the system's service can read what root has read. */
#include "daemon/config/config_access.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/system/platform.h"
#include "daemon/config/config_account.h"

#define ACCESS_VALUE 64

struct access {
	struct gm_config_report *report;
	const char *user;
	char home[ACCESS_VALUE], tmp[ACCESS_VALUE]; /* ProtectHome=, PrivateTmp=; "": not set */
};

static void access_take_value(void *ctx, const char *value)
{
	snprintf(ctx, ACCESS_VALUE, "%.60s", value);
}

static int access_complain(struct gm_config_report *report, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int access_complain(struct gm_config_report *report, const char *format, ...)
{
	const char *before = report->errors ? report->errors : "";
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
	free(report->errors);
	report->errors = more;
	return -EACCES;
}

/* Returns whether a path is the folder or below it. */
static bool access_is_below(const char *path, const char *folder)
{
	size_t n = strlen(folder);

	return !strncmp(path, folder, n) && (!path[n] || path[n] == '/');
}

static bool access_is_yes(const char *value)
{
	static const char *const words[] = {"yes", "true", "on", "1"};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (!strcasecmp(value, words[i]))
			return true;
	return false;
}

/* Returns the setting of the unit that hides the path from the service, or NULL. */
static const char *access_hidden_by(const struct access *access, const char *path)
{
	static const char *const homes[] = {"/home", "/root", "/run/user"};
	static const char *const tmps[] = {"/tmp", "/var/tmp"};

	for (size_t i = 0; i < sizeof(homes) / sizeof(*homes); i++)
		if (access_is_below(path, homes[i]) &&
			(access_is_yes(access->home) || !strcasecmp(access->home, "tmpfs")))
			return "ProtectHome";
	for (size_t i = 0; i < sizeof(tmps) / sizeof(*tmps); i++)
		if (access_is_below(path, tmps[i]) &&
			(access_is_yes(access->tmp) || !strcasecmp(access->tmp, "disconnected")))
			return "PrivateTmp";
	return NULL;
}

static int access_try_open(const void *path)
{
	return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) < 0 ? -errno : 0;
}

static int access_try_enter(const void *folder)
{
	return faccessat(AT_FDCWD, folder, X_OK, AT_EACCESS) < 0 ? -errno : 0;
}

/* Finds the first folder above the path that the user may not enter. Returns false if there is none. */
static bool access_find_closed(const char *user, const char *path, char closed[PATH_MAX])
{
	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		snprintf(closed, PATH_MAX, "%.*s", slash == path ? 1 : (int)(slash - path), path);
		if (gm_config_account_try(user, access_try_enter, closed) == -EACCES)
			return true;
	}
	return false;
}

/* Returns 0, -EACCES with a complaint about the file or folder at path, or -ENOMEM. */
static int access_check_file(const struct access *access, const char *path)
{
	char real[PATH_MAX], closed[PATH_MAX];

	if (!realpath(path, real))
		return 0;
	const char *hides = access_hidden_by(access, real);
	if (hides)
		return access_complain(access->report,
			"%s: the service cannot see it: %s%s is hidden from the service (%s= of its unit); copy the file into /etc/gpumemd",
			path, strcmp(real, path) ? "it is a link, and " : "",
			strcmp(real, path) ? real : "it", hides);
	if (gm_config_account_try(access->user, access_try_open, path) != -EACCES)
		return 0;
	if (access_find_closed(access->user, path, closed) ||
		access_find_closed(access->user, real, closed))
		return access_complain(access->report,
			"%s: cannot be read by the user %s, as which the service runs, because this user may not enter the folder %s; change the mode of this folder, or copy the file into one that the user may enter",
			path, access->user, closed);
	return access_complain(access->report,
		"%s: cannot be read by the user %s, as which the service runs; change its mode or its owner",
		path, access->user);
}

int gm_config_access_check(struct gm_config_report *report, const char *unit, const char *user)
{
	struct access access = {.report = report, .user = user};
	const char *root = gm_platform_root();
	char path[PATH_MAX];

	gm_platform_unit(root, unit, "ProtectHome", access_take_value, access.home);
	gm_platform_unit(root, unit, "PrivateTmp", access_take_value, access.tmp);
	snprintf(path, sizeof(path), "%s.d", report->path);
	int r = access_check_file(&access, path);
	for (const char *at = report->files ? report->files : "", *end; *at;
		at = *end ? end + 1 : end) {
		end = at + strcspn(at, "\n");
		snprintf(path, sizeof(path), "%.*s", (int)(end - at), at);
		int s = access_check_file(&access, path);
		r = s ? s : r;
	}
	return r;
}
