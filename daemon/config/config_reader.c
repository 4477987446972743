/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the files of a configuration in their order. It knows the sections and keys, checks each
 * value by itself, and keeps the one that wins. What depends on several values is left to config.c.
 * An error does not stop the reading, so that the user sees all of them at once.
 */
#include "daemon/config/config_reader.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/text/closest.h"
#include "daemon/config/config_file.h"

#define FIRST_USER 1000 /* uids below are root and system users */
#define ANYWHERE   (GM_CONFIG_BOTH | GM_CONFIG_LIMIT)

#define COMPLAIN(reader, line, ...) \
	gm_config_errors_add(&(reader)->errors, (reader)->source, line, __VA_ARGS__)

void gm_config_reader_init(struct gm_config_reader *reader, const struct gm_config_known *known)
{
	memset(reader, 0, sizeof(*reader));
	reader->names.known = known;
	reader->limits.names = &reader->names;
}

void gm_config_reader_deinit(struct gm_config_reader *reader)
{
	for (int slot = 0; slot < GM_CONFIG_SLOTS; slot++)
		for (size_t id = 0; id < GM_CONFIG_N_KEYS; id++)
			free(reader->settings[slot][id].text);
	gm_config_limits_deinit(&reader->limits);
	gm_config_errors_deinit(&reader->errors);
	gm_config_errors_deinit(&reader->warnings);
	free(reader->path);
	while (reader->source) {
		struct gm_config_source *source = reader->source;
		reader->source = source->next;
		free(source);
	}
}

enum gm_config_place gm_config_slot_place(int slot)
{
	return slot == GM_CONFIG_SLOT_GENERAL ? GM_CONFIG_GENERAL : GM_CONFIG_DEVICE;
}

/* The name that a section gives a device, or NULL if it is not a device's section. */
static const char *reader_device_name(const char *section)
{
	size_t n = strlen("device");
	if (strncasecmp(section, "device", n) || !strspn(section + n, " \t"))
		return NULL;
	return section + n + strspn(section + n, " \t");
}

/* The slot of a section. On error, returns -EINVAL if no such section exists, or -ERANGE or -E2BIG
 * from gm_config_names_find(). */
static int reader_slot_of(struct gm_config_reader *reader, const char *section)
{
	if (!strcasecmp(section, GM_CONFIG_SECTION))
		return GM_CONFIG_SLOT_GENERAL;
	const char *name = reader_device_name(section);
	uint32_t device;
	int r = name ? gm_config_names_find(&reader->names, name, strlen(name), &device) : -EINVAL;
	return r < 0 ? r : GM_CONFIG_SLOT_DEVICES + (int)device;
}

/* Only host memory can be given a size, and it has no name but its number. */
static bool reader_may_have_size(const char *section)
{
	const char *name = reader_device_name(section);
	return name && !name[strspn(name, "0123456789")];
}

static int reader_on_section(void *ctx, const char *section, uint32_t line)
{
	static const char *const names[] = {
		GM_CONFIG_SECTION, "device 0", "limit uid:0", "device 0 limit uid:0", NULL};
	struct gm_config_reader *reader = ctx;
	char shown[GM_CONFIG_SHOW_BYTES], why[GM_CONFIG_WHY_BYTES];
	if (gm_config_limit_is_section(section))
		return gm_config_limit_add(
			&reader->limits, &reader->errors, reader->source, line, section);

	int slot = reader_slot_of(reader, section);
	if (slot >= 0) {
		reader->named[slot] = true;
		return 0;
	}

	gm_config_shown(section, shown);
	if (slot != -EINVAL) {
		gm_config_names_why(slot, why);
		return COMPLAIN(reader, line, "[%s]: %s", shown, why);
	}

	const char *closest = gm_closest(section, names);
	if (closest)
		return COMPLAIN(
			reader, line, "[%s]: unknown section; did you mean [%s]?", shown, closest);
	return COMPLAIN(reader, line,
		"[%s]: unknown section; there are [" GM_CONFIG_SECTION
		"], [device N], [limit OWNER] and [device N limit OWNER]",
		shown);
}

static int reader_find_key(const char *name)
{
	for (size_t i = 0; i < GM_CONFIG_N_KEYS; i++)
		if (!strcasecmp(gm_config_key(i)->name, name))
			return (int)i;
	return -1;
}

/* The section in which a key may stand. */
static const char *reader_home_of(const struct gm_config_key *key)
{
	if (key->place & GM_CONFIG_GENERAL)
		return "[" GM_CONFIG_SECTION "]";
	return key->place & GM_CONFIG_DEVICE ? "a [device N] section" : "a [limit OWNER] section";
}

/* The key that a misspelt name may have meant, among those that may stand there. */
static const char *reader_closest_key(const char *name, enum gm_config_place place)
{
	const char *names[GM_CONFIG_N_KEYS + 1] = {0};
	size_t n = 0;
	for (size_t i = 0; i < GM_CONFIG_N_KEYS; i++)
		if (gm_config_key(i)->place & place)
			names[n++] = gm_config_key(i)->name;
	return gm_closest(name, names);
}

/* Keeps in mind which key a refused line may have been meant to set. A key without its equals sign
 * is the first word of its line. section may be NULL. */
static void reader_doubt(struct gm_config_reader *reader, const char *section, const char *text)
{
	char word[GM_CONFIG_SHOW_BYTES];
	snprintf(word, sizeof(word), "%.*s", (int)strcspn(text, " \t:"), text);
	for (int i = 0; i < 2; i++) {
		const char *name = i ? word : text;
		const char *key = *name ? reader_closest_key(name, ANYWHERE) : NULL;
		if (key)
			reader->doubtful[reader_find_key(key)] = true;
	}

	struct gm_config_limit_section *limit =
		section ? gm_config_limit_find(&reader->limits, section) : NULL;
	if (limit)
		limit->doubtful = true;
}

/* section: NULL if nobody knows which. */
static enum gm_config_place reader_place_of(const char *section)
{
	if (!section)
		return ANYWHERE;
	if (gm_config_limit_is_section(section))
		return GM_CONFIG_LIMIT;
	const char *device = reader_device_name(section);
	if (device && !strpbrk(device, " \t"))
		return GM_CONFIG_DEVICE;
	return strcasecmp(section, GM_CONFIG_SECTION) ? ANYWHERE : GM_CONFIG_GENERAL;
}

static int reader_check_key(struct gm_config_reader *reader, const char *section, const char *name,
	uint32_t line, int id)
{
	char shown[GM_CONFIG_SHOW_BYTES];
	enum gm_config_place place = reader_place_of(section);
	if (id >= 0 && gm_config_key(id)->place & place)
		return 0;

	reader_doubt(reader, section, name);
	gm_config_shown(name, shown);
	if (id >= 0)
		return COMPLAIN(reader, line, "%s: belongs in %s, not in [%s]", shown,
			reader_home_of(gm_config_key(id)), section);
	const char *closest = reader_closest_key(name, place);
	if (closest)
		return COMPLAIN(reader, line, "%s: unknown key; did you mean %s?", shown, closest);
	return COMPLAIN(reader, line, "%s: unknown key; see gpumemd.conf(5)", shown);
}

static int reader_on_stray(
	void *ctx, const char *section, const char *name, const char *text, uint32_t line)
{
	struct gm_config_reader *reader = ctx;
	if (!name) {
		reader->unsure = true;
		return 0;
	}
	reader_doubt(reader, section, name);
	if (!text)
		return 0;

	int id = reader_find_key(name);
	int r = reader_check_key(reader, section, name, line, id);
	struct gm_config_value value;
	char why[GM_CONFIG_WHY_BYTES];
	if (r == 0 && gm_config_value_parse(gm_config_key(id), text, &value, why) != 0)
		r = COMPLAIN(reader, line, "%s: %s", gm_config_key(id)->name, why);
	return r;
}

static int reader_on_value(
	void *ctx, const char *section, const char *name, const char *text, uint32_t line)
{
	struct gm_config_reader *reader = ctx;
	int id = reader_find_key(name);
	int r = reader_check_key(reader, section, name, line, id);
	if (r)
		return r;
	if (id == GM_CONFIG_KEY_SIZE && !reader_may_have_size(section)) {
		reader_doubt(reader, section, name);
		return COMPLAIN(reader, line,
			"%s: is for host memory only, so its section must give the device's number: [device N]",
			name);
	}

	struct gm_config_limit_section *limit = gm_config_limit_find(&reader->limits, section);
	const struct gm_config_key *key = gm_config_key(id);
	struct gm_config_setting *setting =
		limit ? &limit->settings[id]
		      : &reader->settings[reader_slot_of(reader, section)][id];
	if (setting->text && setting->source == reader->source)
		return COMPLAIN(
			reader, line, "%s: is already set on line %u", key->name, setting->line);

	struct gm_config_setting new = {
		.text = strdup(text), .source = reader->source, .line = line};
	char why[GM_CONFIG_WHY_BYTES];
	if (!new.text)
		return -ENOMEM;
	if (gm_config_value_parse(key, new.text, &new.value, why) != 0) {
		/* The key still counts as set, so that a second line that sets it is refused. */
		r = COMPLAIN(reader, line, "%s: %s", key->name, why);
		if (r < 0) {
			free(new.text);
			return r;
		}
		gm_config_value_parse(key, key->presets[0], &new.value, why);
		new.refused = true;
	}

	free(setting->text);
	*setting = new;
	return 0;
}

static const struct gm_config_file_ops file_ops = {
	.section = reader_on_section,
	.value = reader_on_value,
	.stray = reader_on_stray,
};

/* Makes a file the one that is being read. */
static int reader_enter(struct gm_config_reader *reader, const char *path)
{
	struct gm_config_source *source = malloc(sizeof(*source) + strlen(path) + 1);
	if (!source)
		return -ENOMEM;
	strcpy(source->path, path);
	source->order = reader->source ? reader->source->order + 1 : 0;
	source->was_read = false;
	source->next = reader->source;
	reader->source = source;
	return 0;
}

static int reader_read_file(struct gm_config_reader *reader, const char *path)
{
	int r = reader_enter(reader, path);
	if (r == 0)
		r = gm_config_file_read(reader->source, &file_ops, reader, &reader->errors);
	if (r == 0)
		reader->source->was_read = true;
	else
		reader->unsure = true;
	return r;
}

static int reader_is_drop_in(const struct dirent *entry)
{
	size_t n = strlen(entry->d_name);
	return entry->d_name[0] != '.' && n > 5 && !strcmp(entry->d_name + n - 5, ".conf");
}

/* A file of the folder that is meant to be a drop-in and is none. A README is not meant to be one. */
static bool reader_is_passed_over(const struct dirent *entry)
{
	return !reader_is_drop_in(entry) && strcmp(entry->d_name, ".") != 0 &&
	       strcmp(entry->d_name, "..") != 0 && strcmp(entry->d_name, "README") != 0;
}

static int reader_is_entry(const struct dirent *entry)
{
	return reader_is_drop_in(entry) || reader_is_passed_over(entry);
}

static int reader_warn_passed_over(struct gm_config_reader *reader, const char *file, bool hidden)
{
	int r = reader_enter(reader, file);
	if (r < 0)
		return r;
	r = gm_config_errors_add(&reader->warnings, reader->source, 0, "not read: its name %s",
		hidden ? "begins with a dot" : "does not end in .conf");
	return r < 0 ? r : 0;
}

/* By bytes, whatever the locale. */
static int reader_by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* Reads every drop-in, even if another cannot be read. Returns the first failure, or -ENOMEM. */
static int reader_read_drop_ins(struct gm_config_reader *reader, const char *path)
{
	char *folder = NULL;
	if (asprintf(&folder, "%s.d", path) < 0)
		return -ENOMEM;

	struct dirent **list = NULL;
	int n = scandir(folder, &list, reader_is_entry, reader_by_name), first = 0;
	if (n < 0 && errno != ENOENT) {
		first = -errno;
		reader->unsure = true;
		int r = reader_enter(reader, folder);
		if (r == 0)
			r = COMPLAIN(reader, 0, "cannot be read: %s", strerror(-first));
		first = r < 0 ? r : first;
	}

	for (int i = 0; i < n; i++) {
		char *file = NULL;
		int r = asprintf(&file, "%s/%s", folder, list[i]->d_name) < 0 ? -ENOMEM : 0;
		if (r == 0) {
			r = reader_is_passed_over(list[i]) ? reader_warn_passed_over(reader, file,
								     list[i]->d_name[0] == '.')
							   : reader_read_file(reader, file);
			free(file);
		}
		first = first && r != -ENOMEM ? first : r;
		free(list[i]);
	}

	free(list);
	free(folder);
	return first;
}

/* The file that is read if the user names none. *ret_path is NULL if there is nowhere to look. */
static int reader_default_path(char **ret_path)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	char *path = NULL;
	int n = 0;
	if (geteuid() < FIRST_USER)
		n = asprintf(&path, "%s", GM_CONFIG_SYSTEM_FILE);
	else if (config && config[0] == '/')
		n = asprintf(&path, "%s/gpumemd/gpumemd.conf", config);
	else if (home && home[0] == '/')
		n = asprintf(&path, "%s/.config/gpumemd/gpumemd.conf", home);
	if (n < 0)
		return -ENOMEM;
	*ret_path = path;
	return 0;
}

int gm_config_reader_read(struct gm_config_reader *reader, const char *path)
{
	int r = 0;
	bool missing = false;
	if (path) {
		reader->path = strdup(path);
		r = reader->path ? 0 : -ENOMEM;
	} else {
		r = reader_default_path(&reader->path);
	}
	if (r < 0 || !reader->path)
		return r;

	if (!path) {
		/* The file may be missing. If it exists and cannot be reached, that is an error. */
		struct stat st;
		missing = lstat(reader->path, &st) < 0 && (errno == ENOENT || errno == ENOTDIR);
	}

	if (!missing)
		r = reader_read_file(reader, reader->path);
	if (r != -ENOMEM) {
		int s = reader_read_drop_ins(reader, reader->path);
		r = r && s != -ENOMEM ? r : s;
	}
	return r;
}

int gm_config_reader_names(const struct gm_config_reader *reader, char **ret_names)
{
	char *names = strdup("");
	for (const struct gm_config_source *s = reader->source; s && names; s = s->next) {
		char *more = NULL;
		if (!s->was_read)
			continue;
		/* The list begins with the last file. */
		if (asprintf(&more, "%s%s%s", s->path, *names ? "\n" : "", names) < 0)
			more = NULL;
		free(names);
		names = more;
	}
	if (!names)
		return -ENOMEM;
	*ret_names = names;
	return 0;
}

/* ---- which value counts */

struct gm_config_effective gm_config_effective(
	const struct gm_config_reader *reader, size_t id, int slot)
{
	static const char *const presets[GM_CONFIG_N_PRESETS] = {NULL, "inference", "constrained"};
	const struct gm_config_setting *general = reader->settings[GM_CONFIG_SLOT_GENERAL];
	const struct gm_config_key *key = gm_config_key(id);
	const struct gm_config_setting *setting = &reader->settings[slot][id];
	if (!setting->text && key->place & GM_CONFIG_GENERAL)
		setting = &general[id];
	if (setting->text)
		return (struct gm_config_effective){.id = id,
			.setting = setting,
			.text = setting->text,
			.value = setting->value};

	uint64_t preset = general[GM_CONFIG_KEY_PRESET].value.number; /* 0 if it is not set */
	if (!key->presets[preset])
		preset = GM_CONFIG_PRESET_DEFAULT;
	struct gm_config_effective e = {
		.id = id, .text = key->presets[preset], .preset = presets[preset]};
	char why[GM_CONFIG_WHY_BYTES];

	/* A test shows that the table's own values are valid. */
	if (gm_config_value_parse(key, e.text, &e.value, why) != 0)
		abort();
	return e;
}

struct gm_config_effective gm_config_effective_general(
	const struct gm_config_reader *reader, size_t id)
{
	return gm_config_effective(reader, id, GM_CONFIG_SLOT_GENERAL);
}

bool gm_config_effective_is_doubtful(
	const struct gm_config_reader *reader, const struct gm_config_effective *effective)
{
	if (effective->setting)
		return effective->setting->refused;
	return reader->unsure || reader->doubtful[effective->id] ||
	       reader->doubtful[GM_CONFIG_KEY_PRESET];
}
