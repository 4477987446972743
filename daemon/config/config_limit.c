/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sections [limit OWNER] and [device N limit OWNER]. An owner's keys may stand in several
 * files, and may call the owner by name in one and by number in another: what counts is who is
 * meant. What can be seen to contradict itself without knowing the devices is refused here; what
 * depends on them is for config_fit.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/units.h"
#include "daemon/config/config_reader.h"

#define WORD "limit"

void gm_config_limits_deinit(struct gm_config_limits *limits)
{
	while (limits->list) {
		struct gm_config_limit_section *limit = limits->list;
		limits->list = limit->next;
		for (size_t i = 0; i < GM_CONFIG_N_KEYS; i++)
			gm_config_setting_deinit(&limit->settings[i]);
		free(limit->file);
		free(limit);
	}
	limits->n = limits->n_owners = 0;
}

/* What stands behind a word and the blanks after it. NULL: the text does not begin with it. */
static const char *limit_behind(const char *text, const char *word)
{
	size_t n = strlen(word);
	if (strncasecmp(text, word, n) || !(text[n] == '\0' || strchr(" \t", text[n])))
		return NULL;
	return text + n + strspn(text + n, " \t");
}

/* The owner's part comes last, because a name may have blanks and any word in it. Without a device
 * its part is NULL. */
static bool limit_split(const char *section, const char **ret_device, const char **ret_owner)
{
	*ret_device = NULL;
	*ret_owner = limit_behind(section, WORD);
	if (*ret_owner)
		return true;
	*ret_device = limit_behind(section, "device");
	if (!*ret_device)
		return false;
	const char *rest = *ret_device + strcspn(*ret_device, " \t");
	*ret_owner = limit_behind(rest + strspn(rest, " \t"), WORD);
	return *ret_owner;
}

bool gm_config_limit_named(const char *section)
{
	const char *device, *owner;
	return limit_split(section, &device, &owner);
}

/* 0, or why there cannot be such a device. */
static int limit_parse_device(
	const struct gm_config_limits *limits, const char *text, uint32_t *ret_device)
{
	*ret_device = GM_CONFIG_ALL_DEVICES;
	if (!text)
		return 0;
	return gm_config_names_find(limits->names, text, strcspn(text, " \t"), ret_device);
}

static struct gm_config_limit_section *limit_find(
	const struct gm_config_limits *limits, const char *owner, uint32_t device)
{
	struct gm_config_limit_section *limit = limits->list;
	while (limit && (limit->device != device || strcmp(limit->owner, owner)))
		limit = limit->next;
	return limit;
}

struct gm_config_limit_section *gm_config_limit_find(
	struct gm_config_limits *limits, const char *section)
{
	char owner[GM_CONFIG_OWNER_BYTES], why[GM_CONFIG_OWNER_WHY];
	const char *device_text, *owner_text;
	uint32_t device;
	if (!limit_split(section, &device_text, &owner_text) ||
		limit_parse_device(limits, device_text, &device) < 0 ||
		gm_config_owner_parse(owner_text, false, owner, why) != 0)
		return NULL;
	return limit_find(limits, owner, device);
}

int gm_config_limit_section(struct gm_config_limits *limits, struct gm_config_errors *errors,
	const char *file, size_t file_order, uint32_t line, const char *section)
{
	char owner[GM_CONFIG_OWNER_BYTES], why[GM_CONFIG_OWNER_WHY], shown[GM_CONFIG_SHOW_BYTES];
	const char *device_text, *owner_text;
	uint32_t device;
	if (!limit_split(section, &device_text, &owner_text))
		return 1;
	gm_config_shown(section, shown);
	int r = limit_parse_device(limits, device_text, &device);
	if (r < 0) {
		char device_why[GM_CONFIG_WHY_BYTES];
		gm_config_names_why(r, device_why);
		r = gm_config_errors_add(
			errors, file, file_order, line, "[%s]: %s", shown, device_why);
		return r < 0 ? r : 1;
	}
	if (gm_config_owner_parse(owner_text, false, owner, why) != 0) {
		r = gm_config_errors_add(errors, file, file_order, line, "[%s]: %s", shown, why);
		return r < 0 ? r : 1;
	}
	/* The library that reads the files takes no such names, and would not say why. */
	for (const char *p = owner; *p; p++) {
		if (*p != '!' && (unsigned char)*p < 0x80)
			continue;
		r = gm_config_errors_add(errors, file, file_order, line,
			"[%s]: a name here has ASCII characters only, and no '!'; use gpumemctl limit set",
			shown);
		return r < 0 ? r : 1;
	}
	if (limit_find(limits, owner, device))
		return 0;
	struct gm_config_limit_section **end = &limits->list;
	bool known = false;
	for (; *end; end = &(*end)->next) {
		known = known || !strcmp((*end)->owner, owner);
		/* The files' syntax does not tell them apart, and the wrong one would be limited.
		 */
		if (!strcmp((*end)->owner, owner) || strcasecmp((*end)->owner, owner))
			continue;
		r = gm_config_errors_add(errors, file, file_order, line,
			"[%s]: differs from [" WORD " %s] only in case, which does not count here",
			shown, (*end)->owner);
		return r < 0 ? r : 1;
	}
	if (!known && limits->n_owners == GM_LIMIT_QUOTAS) {
		r = gm_config_errors_add(errors, file, file_order, line,
			"[%s]: is one limit too many; there can be %d", shown, GM_LIMIT_QUOTAS);
		return r < 0 ? r : 1;
	}
	struct gm_config_limit_section *limit = calloc(1, sizeof(*limit));
	if (!limit)
		return -ENOMEM;
	limit->file = strdup(file);
	if (!limit->file) {
		free(limit);
		return -ENOMEM;
	}
	strcpy(limit->owner, owner);
	limit->device = device;
	limit->file_order = file_order;
	limit->line = line;
	*end = limit;
	limits->n++;
	limits->n_owners += !known;
	return 0;
}

#define SECTION_BYTES (GM_CONFIG_OWNER_BYTES + GM_DEVICE_NAME_TEXT + 16)

static const char *limit_section_text(const struct gm_config_limits *limits,
	const struct gm_config_limit_section *limit, char text[SECTION_BYTES])
{
	char device[GM_DEVICE_NAME_TEXT];
	if (limit->device == GM_CONFIG_ALL_DEVICES)
		snprintf(text, SECTION_BYTES, WORD " %s", limit->owner);
	else
		snprintf(text, SECTION_BYTES, "device %s " WORD " %s",
			gm_config_names_text(limits->names, limit->device, device), limit->owner);
	return text;
}

static size_t limit_kind_bytes(const char *owner)
{
	return strcspn(owner, ":");
}

static int limit_complain(struct gm_config_errors *errors, const struct gm_config_setting *at,
	const char *key, const char *text)
{
	return gm_config_errors_add(
		errors, at->file, at->file_order, at->line, "%s: %s", key, text);
}

/* Of two settings the one written later. */
static const struct gm_config_setting *limit_later(
	const struct gm_config_setting *a, const struct gm_config_setting *b)
{
	bool second = b->file_order > a->file_order ||
		      (b->file_order == a->file_order && b->line > a->line);
	return second ? b : a;
}

/* What holds where the section does: its own setting, else that for all devices. */
static const struct gm_config_setting *limit_in_force(const struct gm_config_limits *limits,
	const struct gm_config_limit_section *limit, size_t id)
{
	const struct gm_config_limit_section *all =
		limit_find(limits, limit->owner, GM_CONFIG_ALL_DEVICES);
	return limit->settings[id].text || !all ? &limit->settings[id] : &all->settings[id];
}

/* max below guarantee. Told once: not again for a device that has both from [limit OWNER]. */
static int limit_check_order(const struct gm_config_limits *limits, struct gm_config_errors *errors,
	const struct gm_config_limit_section *limit)
{
	const struct gm_config_setting *max = limit_in_force(limits, limit, GM_CONFIG_KEY_MAX);
	const struct gm_config_setting *guarantee =
		limit_in_force(limits, limit, GM_CONFIG_KEY_GUARANTEE);
	if (!max->text || !guarantee->text || max->value.number >= guarantee->value.number ||
		(max != &limit->settings[GM_CONFIG_KEY_MAX] &&
			guarantee != &limit->settings[GM_CONFIG_KEY_GUARANTEE]))
		return 0;
	char text[GM_CONFIG_WHY_BYTES], where[GM_DEVICE_NAME_TEXT + 16] = "";
	char device[GM_DEVICE_NAME_TEXT];
	const struct gm_config_setting *at = limit_later(max, guarantee);
	if (limit->device != GM_CONFIG_ALL_DEVICES)
		snprintf(where, sizeof(where), "on device %s, ",
			gm_config_names_text(limits->names, limit->device, device));
	snprintf(text, sizeof(text), "%smax (%s) is less than guarantee (%s)", where, max->text,
		guarantee->text);
	return limit_complain(errors, at, at == max ? "max" : "guarantee", text);
}

int gm_config_limits_check(const struct gm_config_limits *limits, struct gm_config_errors *errors)
{
	const struct gm_config_limit_section *limit, *first = NULL;
	char text[GM_CONFIG_WHY_BYTES], section[SECTION_BYTES];
	int r = 0;
	for (limit = limits->list; limit && r >= 0; limit = limit->next) {
		const struct gm_config_setting *guarantee =
			&limit->settings[GM_CONFIG_KEY_GUARANTEE];
		if (!limit->settings[GM_CONFIG_KEY_MAX].text && !guarantee->text &&
			!limit->settings[GM_CONFIG_KEY_PRIORITY].text) {
			r = gm_config_errors_add(errors, limit->file, limit->file_order,
				limit->line, "[%s]: sets nothing; say max, guarantee or priority",
				limit_section_text(limits, limit, section));
			continue;
		}
		r = limit_check_order(limits, errors, limit);
		if (r < 0 || !guarantee->text || guarantee->value.number == 0)
			continue;
		if (!strncmp(limit->owner, "client:", 7)) {
			r = limit_complain(errors, guarantee, "guarantee",
				"a client's name is its own word, so nothing can be guaranteed to it; "
				"use uid:, gid:, unit: or container:");
		} else if (!first) {
			first = limit;
		} else if (strncmp(limit->owner, first->owner,
				   limit_kind_bytes(first->owner) + 1)) {
			snprintf(text, sizeof(text),
				"guarantees are given to one kind of owner only, and %.80s has one",
				first->owner);
			r = limit_complain(errors, guarantee, "guarantee", text);
		}
	}
	return r;
}

static int limit_add_entry(struct gm_config *config, const struct gm_config_limits *limits,
	const struct gm_config_limit_section *limit, size_t id,
	const struct gm_config_setting *setting)
{
	char section[SECTION_BYTES];
	struct gm_config_entry *entry = &config->entries[config->n_entries++];
	entry->section = strdup(limit_section_text(limits, limit, section));
	entry->key = strdup(gm_config_key(id)->name);
	entry->value = strdup(setting->text);
	if (asprintf(&entry->source, "%s:%u", setting->file, setting->line) < 0)
		entry->source = NULL;
	return entry->section && entry->key && entry->value && entry->source ? 0 : -ENOMEM;
}

int gm_config_limits_fill(const struct gm_config_limits *limits, struct gm_config *config)
{
	static const size_t ids[] = {
		GM_CONFIG_KEY_MAX, GM_CONFIG_KEY_GUARANTEE, GM_CONFIG_KEY_PRIORITY};
	if (!limits->n)
		return 0;
	config->limits = calloc(limits->n, sizeof(*config->limits));
	if (!config->limits)
		return -ENOMEM;
	struct gm_config_entry *entries = reallocarray(config->entries,
		config->n_entries + limits->n * sizeof(ids) / sizeof(ids[0]), sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	config->entries = entries;
	for (const struct gm_config_limit_section *limit = limits->list; limit;
		limit = limit->next) {
		/* Of a device that is not here it is shown, and holds for nobody. */
		struct gm_config_limit nobody = {0}, *out = &nobody;
		if (limit->device < GM_LIMIT_DEVICES || limit->device == GM_CONFIG_ALL_DEVICES)
			out = &config->limits[config->n_limits++];
		strcpy(out->owner, limit->owner);
		out->device = limit->device;
		for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
			const struct gm_config_setting *setting = &limit->settings[ids[i]];
			if (!setting->text)
				continue;
			int r = limit_add_entry(config, limits, limit, ids[i], setting);
			if (r < 0)
				return r;
			out->has_max |= ids[i] == GM_CONFIG_KEY_MAX;
			out->has_guarantee |= ids[i] == GM_CONFIG_KEY_GUARANTEE;
			out->has_priority |= ids[i] == GM_CONFIG_KEY_PRIORITY;
		}
		out->max = limit->settings[GM_CONFIG_KEY_MAX].value.number;
		out->guarantee = limit->settings[GM_CONFIG_KEY_GUARANTEE].value.number;
		out->priority = limit->settings[GM_CONFIG_KEY_PRIORITY].value.priority;
	}
	return 0;
}
