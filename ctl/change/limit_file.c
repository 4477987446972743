/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* Makes and writes the drop-ins of 'gpumemctl limit set --save'. */

#include "ctl/change/limit_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "daemon/config/config.h"

/* Drop-ins are read in the order of their names. Those of administrators may come before and after. */
#define LIMIT_FILE_FIRST "80-limit-"
/* Maximum length of an owner in the name of a file, which has 255 bytes. */
#define LIMIT_FILE_OWNER_BYTES 200

/* Writes a text with letters, digits, - and . as they are, and any other byte as _ and two digits, so that it
 * is one part of a path. */
static void limit_file_escape(const char *text, char *to, size_t size)
{
	size_t n = 0;

	for (; *text && n + 4 < size; text++)
		n += (size_t)snprintf(to + n, size - n,
			isalnum((unsigned char)*text) || strchr("-.", *text) ? "%c" : "_%02x",
			(unsigned char)*text);
	to[n] = '\0';
}

/* Whether one of the pairs sets the key of this line. */
static bool limit_file_is_replaced(const struct gm_limit_file *limit, const char *line)
{
	for (size_t i = 0; i < limit->n_pairs; i++) {
		size_t n = strcspn(limit->pairs[i], "=");

		if (!strncmp(line, limit->pairs[i], n) && strchr(" \t=", line[n]))
			return true;
	}
	return false;
}

/* Adds the values of the file that stay. */
static void limit_file_keep(const struct gm_limit_file *limit, const char *path, FILE *to)
{
	FILE *file = fopen(path, "re");
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (isalpha((unsigned char)*line) && !limit_file_is_replaced(limit, line))
			fputs(line, to);
	if (file)
		fclose(file);
}

int gm_limit_file_make(const struct gm_limit_file *limit, char ret_path[PATH_MAX],
	char ret_text[GM_LIMIT_FILE_TEXT])
{
	char owner[3 * GM_CONFIG_OWNER_BYTES], device[3 * GM_DEVICE_NAME_TEXT] = "";
	struct gm_config_report report;
	struct gm_config *config = NULL;

	/* Whether the configuration has mistakes does not matter here. */
	(void)gm_config_read(NULL, NULL, &config, &report);
	gm_config_free(config);
	GM_AUTO_FREE char *base = report.path;
	report.path = NULL;
	gm_config_report_deinit(&report);
	if (!base)
		return -ENOENT;

	/* The owner stands in the line of a section. */
	if (strpbrk(limit->said, "[]"))
		return -EINVAL;
	limit_file_escape(limit->owner, owner, sizeof(owner));
	/* The colon behind the kind of the owner. */
	char *colon = strstr(owner, "_3a");
	if (colon) {
		*colon = '-';
		memmove(colon + 1, colon + 3, strlen(colon + 3) + 1);
	}
	if (limit->device)
		limit_file_escape(limit->device, device, sizeof(device));
	/* No owner has an @ in it by now, so two owners never have one file. */
	if (strlen(owner) > LIMIT_FILE_OWNER_BYTES ||
		snprintf(ret_path, PATH_MAX, "%s.d/" LIMIT_FILE_FIRST "%s%s%s.conf", base, owner,
			limit->device ? "@device-" : "", device) >= PATH_MAX)
		return -ENAMETOOLONG;

	FILE *to = fmemopen(ret_text, GM_LIMIT_FILE_TEXT, "w");
	if (!to)
		return -errno;
	fputs("# Written by gpumemctl limit set --save. To undo it, remove this file and reload.\n",
		to);
	if (limit->device)
		fprintf(to, "[device %s limit %s]\n", limit->device, limit->said);
	else
		fprintf(to, "[limit %s]\n", limit->said);
	for (size_t i = 0; i < limit->n_pairs; i++) {
		size_t n = strcspn(limit->pairs[i], "=");
		fprintf(to, "%.*s = %s\n", (int)n, limit->pairs[i], limit->pairs[i] + n + 1);
	}
	limit_file_keep(limit, ret_path, to);
	bool cut = ferror(to);
	return fclose(to) || cut ? -ENAMETOOLONG : 0;
}

__attribute__((format(printf, 3, 4))) static int limit_file_fail(
	char why[GM_LIMIT_FILE_WHY], int error, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	int n = vsnprintf(why, GM_LIMIT_FILE_WHY, format, list);
	va_end(list);
	if (n > 0 && n < GM_LIMIT_FILE_WHY)
		snprintf(why + n, GM_LIMIT_FILE_WHY - (size_t)n, ": %s", strerror(error));
	return -error;
}

/* Makes the folder and those above it, if they are missing. */
static int limit_file_folder(const char *folder)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s", folder);
	for (char *slash = path; slash;) {
		slash = strchr(slash + 1, '/');
		if (slash)
			*slash = '\0';
		if (mkdir(path, 0755) < 0 && errno != EEXIST)
			return -errno;
		if (slash)
			*slash = '/';
	}
	return 0;
}

static int limit_file_fill(int fd, const char *text)
{
	size_t n = strlen(text);
	ssize_t done = write(fd, text, n);

	if (done < 0 || (size_t)done != n)
		return done < 0 ? -errno : -ENOSPC;
	return fchmod(fd, 0644) < 0 || fsync(fd) < 0 ? -errno : 0;
}

int gm_limit_file_write(const char *path, const char *text, char why[GM_LIMIT_FILE_WHY])
{
	char folder[PATH_MAX], temporary[PATH_MAX + 16];
	struct gm_config *config = NULL;
	char *error = NULL;

	snprintf(folder, sizeof(folder), "%s", path);
	char *slash = strrchr(folder, '/');
	*slash = '\0';
	/* Only names that end in .conf are read. */
	snprintf(temporary, sizeof(temporary), "%s/.%s.XXXXXX", folder, slash + 1);

	int r = limit_file_folder(folder);
	if (r < 0)
		return limit_file_fail(why, -r, "%.300s cannot be made", folder);
	GM_AUTO_FD int place = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	GM_AUTO_FD int fd = mkostemp(temporary, O_CLOEXEC);
	if (place < 0 || fd < 0)
		return limit_file_fail(why, errno, "%.300s cannot be written", folder);
	r = limit_file_fill(fd, text);
	if (r < 0) {
		limit_file_fail(why, -r, "%.300s cannot be written", temporary);
	} else if ((r = gm_config_load(temporary, &config, &error)) < 0) {
		snprintf(why, GM_LIMIT_FILE_WHY, "the daemon would not read it: %.400s",
			error ? error : strerror(-r));
	} else if (rename(temporary, path) < 0) {
		r = limit_file_fail(why, errno, "%.300s cannot be written", path);
	} else if (fsync(place) < 0) {
		r = limit_file_fail(why, errno, "%.300s may not be on the disk yet", path);
	}
	gm_config_free(config);
	free(error);
	if (r < 0)
		(void)unlink(temporary);
	return r;
}
