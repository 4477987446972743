/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_CONFIG_FIXTURE_H
#define GM_TESTS_UNIT_CONFIG_FIXTURE_H

/* A folder with one configuration in it, its drop-ins, and what came of reading it. */

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config/config.h"
#include "tests/scratch.h"

/* No user of this machine. */
#define ORDINARY_UID 64999

static char folder[64];
static char path[256];
static struct gm_config *config;
static char *error;

static inline void make_folder(void)
{
	gm_scratch_folder(folder, sizeof(folder));
	snprintf(path, sizeof(path), "%s/gpumemd.conf", folder);
}

static inline void forget(void)
{
	gm_config_free(config);
	free(error);
	config = NULL;
	error = NULL;
}

static inline void remove_folder(void)
{
	char command[300];
	forget();
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	ck_assert_int_eq(system(command), 0);
}

static inline void put(const char *file, const void *data, size_t n)
{
	int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, data, n), (ssize_t)n);
	close(fd);
}

static inline void put_drop_in(const char *name, const char *text)
{
	char file[600];
	snprintf(file, sizeof(file), "%s.d", path);
	ck_assert(mkdir(file, 0755) == 0 || errno == EEXIST);
	snprintf(file, sizeof(file), "%s.d/%s", path, name);
	put(file, text, strlen(text));
}

static inline int load_bytes(const void *data, size_t n)
{
	forget();
	put(path, data, n);
	return gm_config_load(path, &config, &error);
}

static inline int load(const char *text)
{
	return load_bytes(text, strlen(text));
}

static inline void accept_text(const char *text)
{
	int r = load(text);
	ck_assert_msg(r == 0, "refused: %s\n%s", error, text);
}

/* The whole complaint, with %s for the file's name at the start of each line. */
static inline void refuse_text(const char *text, const char *expected)
{
	char want[8192] = "";
	const char *line = expected;
	size_t n = 0;
	while (*line) {
		size_t length = strcspn(line, "\n");
		n += snprintf(want + n, sizeof(want) - n, "%s%s:%.*s", n ? "\n" : "", path,
			(int)length, line);
		line += length + (line[length] == '\n');
	}
	ck_assert_int_eq(load(text), -EINVAL);
	ck_assert_ptr_null(config);
	ck_assert_str_eq(error, want);
}

static inline const struct gm_config_entry *entry(const char *section, const char *key)
{
	for (size_t i = 0; i < config->n_entries; i++)
		if (!strcmp(config->entries[i].section, section) &&
			!strcmp(config->entries[i].key, key))
			return &config->entries[i];
	ck_abort_msg("no entry for %s in [%s]", key, section);
	return NULL;
}

static inline void expect(
	const char *section, const char *key, const char *value, const char *source)
{
	char full[600];
	const struct gm_config_entry *e = entry(section, key);
	ck_assert_str_eq(e->value, value);
	/* ":3" is line 3 of the file, "/x.conf:3" of a drop-in. */
	if (source[0] == ':')
		snprintf(full, sizeof(full), "%s%s", path, source);
	else if (source[0] == '/')
		snprintf(full, sizeof(full), "%s.d%s", path, source);
	else
		snprintf(full, sizeof(full), "%s", source);
	ck_assert_str_eq(e->source, full);
}

#endif
