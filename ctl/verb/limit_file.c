/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* Makes, writes and finds the drop-ins of 'gpumemctl limit set --save'. */

#include "ctl/verb/limit_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/system/path.h"
#include "common/text/device_name.h"
#include "common/text/units.h"
#include "ctl/io/other_daemon.h"
#include "ctl/verb/verb.h"
#include "daemon/config/config.h"

/* Drop-ins are read in the order of their names. Those of administrators may come before and after. */
#define LIMIT_FILE_FIRST "80-limit-"
/* Stands between the owner and the device, as the user named it. */
#define LIMIT_FILE_DEVICE "@device-"
/* Maximum length of an owner in the name of a file, which has 255 bytes. */
#define LIMIT_FILE_OWNER_BYTES 200
#define LIMIT_FILE_ESCAPED     (3 * GM_CONFIG_OWNER_BYTES)

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

/* Writes an owner as it stands in the name of a file. */
static void limit_file_escape_owner(const char *from, char to[LIMIT_FILE_ESCAPED])
{
	limit_file_escape(from, to, LIMIT_FILE_ESCAPED);
	/* The colon behind the kind of the owner. */
	char *colon = strstr(to, "_3a");
	if (colon) {
		*colon = '-';
		memmove(colon + 1, colon + 3, strlen(colon + 3) + 1);
	}
}

/* Finds the path of a drop-in. name: without 80-limit-. */
static int limit_file_path(const char *name, char ret_path[PATH_MAX])
{
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
	return snprintf(ret_path, PATH_MAX, "%s.d/" LIMIT_FILE_FIRST "%s", base, name) >= PATH_MAX
		       ? -ENAMETOOLONG
		       : 0;
}

/* Finds the path of the drop-in of this owner and device (NULL: of all devices). */
static int limit_file_path_of(const char *from, const char *device, char ret_path[PATH_MAX])
{
	char owner[LIMIT_FILE_ESCAPED], escaped[3 * GM_DEVICE_NAME_TEXT] = "";
	char name[sizeof(owner) + sizeof(escaped) + 16];

	limit_file_escape_owner(from, owner);
	if (device)
		limit_file_escape(device, escaped, sizeof(escaped));
	if (strlen(owner) > LIMIT_FILE_OWNER_BYTES)
		return -ENAMETOOLONG;
	/* No owner has an @ in it by now, so two owners never have one file. */
	snprintf(
		name, sizeof(name), "%s%s%s.conf", owner, device ? LIMIT_FILE_DEVICE : "", escaped);
	return limit_file_path(name, ret_path);
}

int gm_limit_file_make(const struct gm_limit_file *limit, char ret_path[PATH_MAX],
	char ret_text[GM_LIMIT_FILE_TEXT])
{
	/* The owner stands in the line of a section. */
	if (strpbrk(limit->said, "[]"))
		return -EINVAL;
	int r = limit_file_path_of(limit->owner, limit->device, ret_path);
	if (r < 0)
		return r;

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

/* Makes the folder and those above it, if they are missing. The user of the service can read those of the system, whatever
 * the umask of this process. */
static int limit_file_folder(const char *folder)
{
	bool of_system = !strcmp(folder, GM_CONFIG_SYSTEM_FILE ".d");
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s", folder);
	for (char *slash = path; slash;) {
		slash = strchr(slash + 1, '/');
		if (slash)
			*slash = '\0';
		bool made = mkdir(path, 0755) == 0;
		if ((!made && errno != EEXIST) || (made && of_system && chmod(path, 0755) < 0))
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

bool gm_limit_file_is_ours(const char *socket, char file[PATH_MAX])
{
	char path[GM_PATH_BYTES], base[PATH_MAX];
	const char *why;
	bool of_system = !strncmp(file, GM_CONFIG_SYSTEM_FILE, strlen(GM_CONFIG_SYSTEM_FILE));
	enum gm_daemon_kind kind = GM_DAEMON_ELSEWHERE;

	if (socket || gm_path_client_socket(path, &why) >= 0)
		kind = gm_other_daemon_kind(socket ? socket : path);
	if (kind == (of_system ? GM_DAEMON_SYSTEM : GM_DAEMON_USER))
		return true;
	snprintf(base, sizeof(base), "%s", strrchr(file, '/') + 1);
	*file = '\0';
	if (kind == GM_DAEMON_SYSTEM)
		snprintf(file, PATH_MAX, GM_CONFIG_SYSTEM_FILE ".d/%.255s", base);
	return false;
}

/* Returns whether the line of a file has the key and the value of a pair. Changes the line. */
static bool limit_file_line_is(char *line, const char *pair)
{
	size_t n = strcspn(pair, "=");
	char *value = strchr(line, '=');
	uint64_t a, b;

	if (!value || strncmp(line, pair, n) || !strchr(" \t=", line[n]))
		return false;
	value += 1 + strspn(value + 1, " \t");
	value[strcspn(value, " \t\n")] = '\0';
	return !strcmp(value, pair + n + 1) ||
	       (gm_parse_size(value, &a) == 0 && gm_parse_size(pair + n + 1, &b) == 0 && a == b);
}

static bool limit_file_has_pair(const char *path, const char *pair)
{
	FILE *file = *path ? fopen(path, "re") : NULL;
	char line[256];
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file))
		found = limit_file_line_is(line, pair);
	if (file)
		fclose(file);
	return found;
}

static bool limit_file_has(const struct gm_limit_file *limit, const char *path)
{
	size_t found = 0;

	while (found < limit->n_pairs && limit_file_has_pair(path, limit->pairs[found]))
		found++;
	return limit->n_pairs && found == limit->n_pairs;
}

/* Undoes limit_file_escape() for the name of a device. */
static void limit_file_unescape(const char *from, char to[GM_DEVICE_NAME_TEXT])
{
	size_t n = 0;
	unsigned byte;

	for (; *from && n + 1 < GM_DEVICE_NAME_TEXT; from++) {
		if (*from == '_' && sscanf(from + 1, "%2x", &byte) == 1) {
			to[n++] = (char)byte;
			from += strlen("3a");
		} else {
			to[n++] = *from;
		}
	}
	to[n] = '\0';
}

/* Whether the file of that path is for the device. */
static bool limit_file_means(
	const char *path, uint32_t number, const struct gm_limit_file_devices *devices)
{
	static const char ending[] = ".conf";
	const char *at = strstr(strrchr(path, '/'), LIMIT_FILE_DEVICE);
	char escaped[3 * GM_DEVICE_NAME_TEXT], text[GM_DEVICE_NAME_TEXT];
	struct gm_device_name name;

	if (!at)
		return false;
	at += strlen(LIMIT_FILE_DEVICE);
	snprintf(escaped, sizeof(escaped), "%.*s", (int)(strlen(at) - strlen(ending)), at);
	limit_file_unescape(escaped, text);
	if (gm_device_name_parse(text, &name) < 0)
		return false;
	if (name.kind == GM_DEVICE_NUMBER)
		return name.number == number;
	for (size_t i = 0; i < devices->n; i++)
		if (devices->list[i].number == number)
			return gm_device_name_means(&name, number,
				devices->list[i].has_uuid ? devices->list[i].uuid : NULL,
				devices->list[i].pci, devices->list[i].pinned);
	return false;
}

/* Finds the drop-ins that daemon at this socket reads. pattern: of their names, without 80-limit-. Returns whether there are
 * any: then *ret is to be given to globfree(). */
static bool limit_file_glob(const char *socket, const char *pattern, glob_t *ret)
{
	char path[PATH_MAX];

	if (limit_file_path(pattern, path) < 0)
		return false;
	(void)gm_limit_file_is_ours(socket, path);
	return *path && glob(path, GLOB_BRACE, NULL, ret) == 0;
}

static void limit_file_take_devices(void *user, const Gm__Wire__Packet *packet)
{
	struct gm_limit_file_devices *devices = user;

	for (size_t i = 0; i < packet->devices->n_devices && devices->n <= GM_BOUND_DEVICES; i++) {
		const Gm__Wire__Device *device = packet->devices->devices[i];

		devices->list[devices->n].number = device->number;
		devices->list[devices->n].pinned = device->pinned;
		devices->list[devices->n].has_uuid = device->uuid.len == GM_UUID_BYTES;
		if (device->uuid.len == GM_UUID_BYTES)
			memcpy(devices->list[devices->n].uuid, device->uuid.data, GM_UUID_BYTES);
		snprintf(devices->list[devices->n].pci, sizeof(devices->list[0].pci), "%s",
			device->pci);
		devices->n++;
	}
}

void gm_limit_file_ask_devices(struct gm_ctl *ctl, struct gm_limit_file_devices *ret_devices)
{
	const struct gm_trouble before = ctl->trouble;
	glob_t found;

	ret_devices->n = 0;
	if (!(ctl->options->given & GM_OPTION_SAVE)) {
		if (!limit_file_glob(ctl->options->socket, "*" LIMIT_FILE_DEVICE "*.conf", &found))
			return;
		globfree(&found);
	}
	if (gm_verb_ask_devices(ctl, NULL, limit_file_take_devices, ret_devices) != GPUMEM_OK)
		ctl->trouble = before;
}

bool gm_limit_file_find(const char *socket, const struct gm_limit_file *limit, uint32_t device,
	const struct gm_limit_file_devices *devices, char ret_path[PATH_MAX])
{
	char owner[LIMIT_FILE_ESCAPED], pattern[sizeof(owner) + 32], path[PATH_MAX];
	bool has = false;
	glob_t found;

	limit_file_escape_owner(limit->owner, owner);
	snprintf(pattern, sizeof(pattern), "%s" LIMIT_FILE_DEVICE "*.conf", owner);
	if (limit_file_glob(socket, pattern, &found)) {
		for (size_t i = 0; i < found.gl_pathc && !has; i++) {
			has = limit_file_means(found.gl_pathv[i], device, devices) &&
			      limit_file_has(limit, found.gl_pathv[i]);
			if (has)
				snprintf(ret_path, PATH_MAX, "%s", found.gl_pathv[i]);
		}
		globfree(&found);
	}
	if (has || limit_file_path_of(limit->owner, NULL, path) < 0)
		return has;
	(void)gm_limit_file_is_ours(socket, path);
	has = limit_file_has(limit, path);
	if (has)
		snprintf(ret_path, PATH_MAX, "%s", path);
	return has;
}

void gm_limit_file_list(
	const char *socket, const char *owner, void (*fn)(void *user, const char *path), void *user)
{
	char escaped[LIMIT_FILE_ESCAPED], name[sizeof(escaped) + 32];
	glob_t found;

	limit_file_escape_owner(owner, escaped);
	snprintf(name, sizeof(name), "%s%s.conf", escaped, *owner ? "{,@*}" : "*");
	if (!limit_file_glob(socket, name, &found))
		return;
	for (size_t i = 0; i < found.gl_pathc; i++)
		fn(user, found.gl_pathv[i]);
	globfree(&found);
}
