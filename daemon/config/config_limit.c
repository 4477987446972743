/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sections [limit OWNER] and [device N limit OWNER]. An owner's keys may be spread over several
 * files, and one file may use the owner's name where another uses the number: they are the same
 * limit. What contradicts itself on any device is refused here; what depends on the devices is
 * checked by config_fit.c.
 */
#include "daemon/config/config_limit.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/text/units.h"

#define WORD "limit"

void gm_config_limits_deinit(struct gm_config_limits *limits)
{
	while (limits->list) {
		struct gm_config_limit_section *limit = limits->list;
		limits->list = limit->next;
		for (size_t i = 0; i < GM_CONFIG_N_KEYS; i++)
			free(limit->settings[i].text);
		free(limit);
	}
	limits->n = limits->n_owners = 0;
}

/* What follows a word and the blanks after it, or NULL if the text does not begin with the word. */
static const char *limit_after_word(const char *text, const char *word)
{
	size_t n = strlen(word);
	if (strncasecmp(text, word, n) || !(text[n] == '\0' || strchr(" \t", text[n])))
		return NULL;
	return text + n + strspn(text + n, " \t");
}

/* Splits a section's name. The owner comes last, because a name may contain blanks and any word.
 * *ret_device is NULL if the section names no device. */
static bool limit_split(const char *section, const char **ret_device, const char **ret_owner)
{
	*ret_device = NULL;
	*ret_owner = limit_after_word(section, WORD);
	if (*ret_owner)
		return true;
	*ret_device = limit_after_word(section, "device");
	if (!*ret_device)
		return false;
	const char *rest = *ret_device + strcspn(*ret_device, " \t");
	*ret_owner = limit_after_word(rest + strspn(rest, " \t"), WORD);
	return *ret_owner;
}

bool gm_config_limit_is_section(const char *section)
{
	const char *device, *owner;
	return limit_split(section, &device, &owner);
}

/* Returns false, and writes why, if a number names pinned host memory: the author counted a GPU that is not here. */
static bool limit_check_number(const struct gm_config_names *names, const char *text,
	uint32_t device, const char *owner, char why[GM_CONFIG_WHY_BYTES])
{
	const struct gm_config_known *known = names->known;
	char shown[GM_CONFIG_SHOW_BYTES];

	if (!known || device >= known->n || !known->devices[device].pinned ||
		!isdigit((unsigned char)*text))
		return true;
	snprintf(why, GM_CONFIG_WHY_BYTES,
		"there %s %u device%s here, numbered from 0, and %u is pinned host memory; did you mean [device " GM_DEVICE_PINNED_NAME
		" limit %s]?",
		device == 1 ? "is" : "are", device, device == 1 ? "" : "s", device,
		gm_config_shown(owner, shown));
	return false;
}

/* Parses a section's name. Returns 0, or GM_CONFIG_E_REFUSED and why: it names no limit. */
static int limit_parse(const struct gm_config_limits *limits, const char *section,
	char ret_owner[GM_CONFIG_OWNER_BYTES], uint32_t *ret_device, char why[GM_CONFIG_WHY_BYTES])
{
	const char *device, *owner;
	if (!limit_split(section, &device, &owner))
		return GM_CONFIG_E_REFUSED;

	*ret_device = GM_CONFIG_ALL_DEVICES;
	int r = 0;
	if (device)
		r = gm_config_names_find(limits->names, device, strcspn(device, " \t"), ret_device);
	if (r < 0) {
		gm_config_names_why(r, why);
		return GM_CONFIG_E_REFUSED;
	}
	if (device && !limit_check_number(limits->names, device, *ret_device, owner, why))
		return GM_CONFIG_E_REFUSED;
	return gm_config_owner_parse(owner, false, ret_owner, why) ? GM_CONFIG_E_REFUSED : 0;
}

static struct gm_config_limit_section *config_limit_find_row(
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
	char owner[GM_CONFIG_OWNER_BYTES], why[GM_CONFIG_WHY_BYTES];
	uint32_t device;
	if (limit_parse(limits, section, owner, &device, why) != 0)
		return NULL;
	return config_limit_find_row(limits, owner, device);
}

int gm_config_limit_add(struct gm_config_limits *limits, struct gm_config_errors *errors,
	const struct gm_config_source *source, uint32_t line, const char *section)
{
	char owner[GM_CONFIG_OWNER_BYTES], why[GM_CONFIG_WHY_BYTES] = "";
	char shown[GM_CONFIG_SHOW_BYTES];
	uint32_t device;
	gm_config_shown(section, shown);
	if (limit_parse(limits, section, owner, &device, why) != 0)
		return gm_config_errors_add(errors, source, line, "[%s]: %s", shown, why);

	if (config_limit_find_row(limits, owner, device))
		return 0;

	struct gm_config_limit_section **end = &limits->list;
	bool known = false;
	for (; *end; end = &(*end)->next)
		known = known || !strcmp((*end)->owner, owner);

	if (!known && limits->n_owners == GM_BOUND_LIMITS)
		return gm_config_errors_add(errors, source, line,
			"[%s]: is one limit too many; there can be at most %d", shown,
			GM_BOUND_LIMITS);

	struct gm_config_limit_section *limit = calloc(1, sizeof(*limit));
	if (!limit)
		return -ENOMEM;

	strcpy(limit->owner, owner);
	limit->device = device;
	limit->source = source;
	limit->line = line;
	*end = limit;
	limits->n++;
	limits->n_owners += !known;
	return 0;
}

const char *gm_config_limit_title(const struct gm_config_limits *limits,
	const struct gm_config_limit_section *limit, char title[GM_CONFIG_LIMIT_TITLE])
{
	char device[GM_DEVICE_NAME_TEXT];
	if (limit->device == GM_CONFIG_ALL_DEVICES)
		snprintf(title, GM_CONFIG_LIMIT_TITLE, WORD " %s", limit->owner);
	else
		snprintf(title, GM_CONFIG_LIMIT_TITLE, "device %s " WORD " %s",
			gm_config_names_text(limits->names, limit->device, device), limit->owner);
	return title;
}

static int limit_complain(struct gm_config_errors *errors, const struct gm_config_setting *at,
	const char *key, const char *text)
{
	return gm_config_errors_add(errors, at->source, at->line, "%s: %s", key, text);
}

/* The setting that holds on a section's devices: its own, or else the owner's for all devices. */
static const struct gm_config_setting *limit_in_force(const struct gm_config_limits *limits,
	const struct gm_config_limit_section *limit, size_t id)
{
	const struct gm_config_limit_section *all =
		config_limit_find_row(limits, limit->owner, GM_CONFIG_ALL_DEVICES);
	return limit->settings[id].text || !all ? &limit->settings[id] : &all->settings[id];
}

/* Complains if max is below guarantee. A device that takes both from [limit OWNER] is skipped, so
 * that the user is told once. */
static int limit_check_order(const struct gm_config_limits *limits, struct gm_config_errors *errors,
	const struct gm_config_limit_section *limit)
{
	const struct gm_config_setting *max = limit_in_force(limits, limit, GM_CONFIG_KEY_MAX);
	const struct gm_config_setting *guarantee =
		limit_in_force(limits, limit, GM_CONFIG_KEY_GUARANTEE);
	if (!max->text || !guarantee->text || max->refused || guarantee->refused ||
		max->value.number >= guarantee->value.number ||
		(max != &limit->settings[GM_CONFIG_KEY_MAX] &&
			guarantee != &limit->settings[GM_CONFIG_KEY_GUARANTEE]))
		return 0;

	char text[GM_CONFIG_WHY_BYTES], where[GM_DEVICE_NAME_TEXT + 16] = "";
	char device[GM_DEVICE_NAME_TEXT];
	const struct gm_config_setting *at = gm_config_setting_later(max, guarantee);
	if (limit->device != GM_CONFIG_ALL_DEVICES)
		snprintf(where, sizeof(where), "on device %s, ",
			gm_config_names_text(limits->names, limit->device, device));
	snprintf(text, sizeof(text), "%smax (%s) is less than guarantee (%s)", where, max->text,
		guarantee->text);
	return limit_complain(errors, at, at == max ? "max" : "guarantee", text);
}

/* Returns the values of the section's settings. */
static struct gm_limit_values limit_values(const struct gm_config_limit_section *limit)
{
	const struct gm_config_setting *settings = limit->settings;
	struct gm_limit_values values = GM_LIMIT_VALUES_UNSET;

#define LIMIT_SETTING_size   number
#define LIMIT_SETTING_signed priority
#define LIMIT_VALUE(KIND, name, unit, ...) \
	if (settings[GM_CONFIG_KEY_##KIND].text) { \
		values.set |= GM_LIMIT_##KIND; \
		values.name = settings[GM_CONFIG_KEY_##KIND].value.LIMIT_SETTING_##unit; \
	}
	GM_LIMIT_KINDS(LIMIT_VALUE)
#undef LIMIT_VALUE
	return values;
}

int gm_config_limits_check(
	const struct gm_config_limits *limits, struct gm_config_errors *errors, bool unsure)
{
	const struct gm_config_limit_section *limit, *first = NULL;
	char text[GM_CONFIG_WHY_BYTES], title[GM_CONFIG_LIMIT_TITLE], names[GM_LIMIT_NAMES_TEXT];
	int r = 0;
	for (limit = limits->list; limit && r >= 0; limit = limit->next) {
		const struct gm_config_setting *guarantee =
			&limit->settings[GM_CONFIG_KEY_GUARANTEE];
		if (limit_values(limit).set == 0) {
			if (!unsure && !limit->doubtful)
				r = gm_config_errors_add(errors, limit->source, limit->line,
					"[%s]: sets nothing; set %s",
					gm_config_limit_title(limits, limit, title),
					gm_limit_kind_names("", " or ", names));
			continue;
		}

		r = limit_check_order(limits, errors, limit);
		if (r < 0 || !guarantee->text || guarantee->refused || guarantee->value.number == 0)
			continue;

		if (!strncmp(limit->owner, "client:", 7)) {
			r = limit_complain(errors, guarantee, "guarantee",
				"clients choose their own names, so nothing can be guaranteed to a name; use uid:, gid:, unit: or container:");
		} else if (!first) {
			first = limit;
		} else if (strncmp(limit->owner, first->owner, strcspn(first->owner, ":") + 1)) {
			snprintf(text, sizeof(text),
				"guarantees can be given to one kind of owner only, and %.80s has one",
				first->owner);
			r = limit_complain(errors, guarantee, "guarantee", gm_text_mend(text));
		}
	}
	return r;
}

size_t gm_config_limits_fill(
	const struct gm_config_limits *limits, struct gm_config_limit *ret_list)
{
	size_t n = 0;
	for (const struct gm_config_limit_section *limit = limits->list; limit;
		limit = limit->next) {
		if (limit->device >= GM_BOUND_DEVICES && limit->device != GM_CONFIG_ALL_DEVICES)
			continue;
		struct gm_config_limit *out = &ret_list[n++];
		*out = (struct gm_config_limit){
			.device = limit->device,
			.values = limit_values(limit),
		};
		strcpy(out->owner, limit->owner);
	}
	return n;
}
