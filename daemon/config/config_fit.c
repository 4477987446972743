/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checks of a configuration against the devices that are known: settings that leave nothing to give out, limits
 * that the devices cannot keep, and settings without effect.
 */
#include "daemon/config/config_fit.h"

#include <stdio.h>
#include <string.h>

#include "common/arith.h"
#include "common/text/units.h"
#include "daemon/books/policy.h"

/* ---- whether limits and sizes fit the devices, as far as those are known */

#define FIT_NAME 80

struct fit_devices {
	uint32_t n;
	uint64_t capacity[GM_BOUND_DEVICES]; /* UINT64_MAX: not known */
};

bool gm_config_fit_size(const struct gm_config_reader *reader, int slot)
{
	struct gm_config_effective size = gm_config_effective(reader, GM_CONFIG_KEY_SIZE, slot);
	struct gm_config_effective min_free =
		gm_config_effective(reader, GM_CONFIG_KEY_MIN_FREE, slot);

	return !size.value.number || !min_free.value.number ||
	       gm_u64_minus(size.value.number, min_free.value.number) >= GM_CHUNK_MIN;
}

uint64_t gm_config_fit_min_free(uint64_t min_free, bool from_file, uint64_t total)
{
	bool nothing = gm_u64_minus(total, min_free) < GM_CHUNK_MIN;

	return nothing && !from_file ? gm_u64_min(min_free, total / 2) : min_free;
}

/* Returns how many bytes a device of total bytes can give out; UINT64_MAX if a value that counts is doubtful. */
static uint64_t fit_capacity(const struct gm_config_reader *reader, uint32_t device, uint64_t total)
{
	int slot = GM_CONFIG_SLOT_DEVICES + (int)device;
	struct gm_config_effective fraction =
		gm_config_effective(reader, GM_CONFIG_KEY_FRACTION, slot);
	struct gm_config_effective min_free =
		gm_config_effective(reader, GM_CONFIG_KEY_MIN_FREE, slot);
	if (gm_config_effective_is_doubtful(reader, &fraction) ||
		gm_config_effective_is_doubtful(reader, &min_free))
		return UINT64_MAX;
	uint64_t kept =
		gm_config_fit_min_free(min_free.value.number, min_free.setting != NULL, total);
	return gm_policy_ceiling(
		(uint64_t)(fraction.value.fraction * (double)total), gm_u64_minus(total, kept), 0);
}

static void fit_use_known(const struct gm_config_reader *reader, struct fit_devices *ret)
{
	const struct gm_config_known *known = reader->names.known;
	ret->n = known->n;
	for (uint32_t i = 0; i < known->n; i++) {
		uint64_t total = known->devices[i].total;
		if (known->devices[i].pinned || !total)
			ret->capacity[i] = total ? total : UINT64_MAX;
		else
			ret->capacity[i] = fit_capacity(reader, i, total);
	}
}

/* The devices of host memory that the files describe. Pinned memory comes last, and its limit is
 * its capacity. */
static void fit_use_host(const struct gm_config_reader *reader, struct fit_devices *ret)
{
	for (ret->n = 0; ret->n < GM_BOUND_DEVICES; ret->n++) {
		const struct gm_config_setting *size =
			&reader->settings[GM_CONFIG_SLOT_DEVICES + ret->n][GM_CONFIG_KEY_SIZE];
		bool sized = size->text && size->value.number && !size->refused;
		if (ret->n > 0 && !sized && !size->refused)
			break;
		ret->capacity[ret->n] =
			sized ? fit_capacity(reader, ret->n, size->value.number) : UINT64_MAX;
	}

	struct gm_config_effective limit =
		gm_config_effective_general(reader, GM_CONFIG_KEY_HOST_LIMIT);
	if (!limit.value.number || ret->n == GM_BOUND_DEVICES)
		return;
	ret->capacity[ret->n++] = limit.value.number == UINT64_MAX
					  ? UINT64_MAX
					  : limit.value.number / GM_CHUNK_MIN * GM_CHUNK_MIN;
}

/* Whether this limit gives the owner's guarantee on a device. */
static bool fit_add_guarantees(const struct gm_config_reader *reader,
	const struct gm_config_limit_section *limit, uint32_t device)
{
	const struct gm_config_setting *guarantee = &limit->settings[GM_CONFIG_KEY_GUARANTEE];
	if (!guarantee->text || guarantee->refused)
		return false;
	if (limit->device != GM_CONFIG_ALL_DEVICES)
		return limit->device == device;
	for (const struct gm_config_limit_section *l = reader->limits.list; l; l = l->next)
		if (l->device == device && l->settings[GM_CONFIG_KEY_GUARANTEE].text &&
			!strcmp(l->owner, limit->owner))
			return false;
	return true;
}

/* Writes the name of a device, in parentheses, or "" if it is not known. */
static const char *fit_name(
	const struct gm_config_reader *reader, uint32_t device, char text[FIT_NAME])
{
	const struct gm_config_known *known = reader->names.known;

	*text = '\0';
	if (device < known->n && known->devices[device].name)
		snprintf(text, FIT_NAME, " (%s)", known->devices[device].name);
	return text;
}

static int fit_guarantees(struct gm_config_reader *reader, uint32_t device, uint64_t capacity)
{
	char size[GM_UNITS_TEXT], most[GM_UNITS_TEXT], name[FIT_NAME];
	uint64_t sum = 0;
	for (const struct gm_config_limit_section *l = reader->limits.list; l; l = l->next) {
		const struct gm_config_setting *guarantee = &l->settings[GM_CONFIG_KEY_GUARANTEE];
		if (!fit_add_guarantees(reader, l, device))
			continue;
		if (guarantee->value.number > capacity - sum)
			return gm_config_errors_add(&reader->errors, guarantee->source,
				guarantee->line,
				"guarantee: with %s for %s, guarantees on device %u%s go beyond its capacity of %s%s",
				gm_format_size(guarantee->value.number, size), l->owner, device,
				fit_name(reader, device, name), gm_format_size(capacity, most),
				l->device == GM_CONFIG_ALL_DEVICES
					? "; [device N limit OWNER] sets it for one device"
					: "");
		sum += guarantee->value.number;
	}
	return 0;
}

/* A limit on a device that is named by its UUID and not here has no effect. */
static int fit_number(struct gm_config_reader *reader, const struct gm_config_limit_section *limit,
	const struct fit_devices *devices)
{
	if (limit->device < devices->n || limit->device >= GM_BOUND_DEVICES)
		return 0;
	char title[GM_CONFIG_LIMIT_TITLE];
	return gm_config_errors_add(&reader->errors, limit->source, limit->line,
		"[%s]: there is no device %u; there %s %u, numbered from 0",
		gm_config_limit_title(&reader->limits, limit, title), limit->device,
		devices->n == 1 ? "is" : "are", devices->n);
}

/* Complains about limits that do not fit the devices: each device must exist, and the guarantees on
 * it must not exceed its capacity. Judges only devices that are known. Returns a negative errno
 * only if there is no memory. */
static int fit_limits(struct gm_config_reader *reader)
{
	const struct gm_config_known *known = reader->names.known;
	struct gm_config_effective backend =
		gm_config_effective_general(reader, GM_CONFIG_KEY_BACKEND);
	struct fit_devices devices;
	if (!known)
		return 0;
	if (known->n)
		fit_use_known(reader, &devices);
	else if (!strcmp(known->backend ? known->backend : backend.text, "host"))
		fit_use_host(reader, &devices);
	else
		return 0;

	int r = 0;
	/* A line that was not understood may have been meant to give the device a size. */
	bool numbered = known->n || !(reader->unsure || reader->doubtful[GM_CONFIG_KEY_SIZE]);
	for (const struct gm_config_limit_section *l = reader->limits.list; l && numbered && r >= 0;
		l = l->next)
		r = fit_number(reader, l, &devices);
	for (uint32_t d = 0; d < devices.n && r >= 0; d++)
		if (devices.capacity[d] != UINT64_MAX)
			r = fit_guarantees(reader, d, devices.capacity[d]);
	return r < 0 ? r : 0;
}

/* ---- what has no effect, or cannot work */

/* Finds the first line about a device: in its section, or in that of a limit. *ret_source is NULL if the
 * section is empty. */
static void fit_find_line(const struct gm_config_reader *reader, uint32_t device,
	const struct gm_config_source **ret_source, uint32_t *ret_line)
{
	const struct gm_config_setting *first = NULL;

	*ret_source = NULL;
	*ret_line = 0;
	for (size_t id = 0; id < GM_CONFIG_N_KEYS; id++) {
		const struct gm_config_setting *setting =
			&reader->settings[GM_CONFIG_SLOT_DEVICES + device][id];
		if (setting->text && (!first || gm_config_setting_later(setting, first) == first))
			first = setting;
	}
	if (first) {
		*ret_source = first->source;
		*ret_line = first->line;
		return;
	}
	for (const struct gm_config_limit_section *l = reader->limits.list; l; l = l->next)
		if (l->device == device) {
			*ret_source = l->source;
			*ret_line = l->line;
			return;
		}
}

static int fit_warn_strangers(struct gm_config_reader *reader)
{
	const struct gm_config_source *source;
	uint32_t line;
	int r = 0;

	for (uint32_t i = 0; i < reader->names.n && r >= 0; i++) {
		fit_find_line(reader, GM_BOUND_DEVICES + i, &source, &line);
		r = gm_config_errors_add(&reader->warnings, source, line,
			"[device %s] has no effect: no device here has this name; see gpumemctl devices",
			reader->names.strangers[i].text);
	}
	return r;
}

static int fit_warn_numbers(struct gm_config_reader *reader, uint32_t n)
{
	const struct gm_config_source *source;
	uint32_t line;
	int r = 0;

	for (uint32_t i = n; i < GM_BOUND_DEVICES && r >= 0; i++) {
		if (!reader->named[GM_CONFIG_SLOT_DEVICES + i])
			continue;
		fit_find_line(reader, i, &source, &line);
		r = gm_config_errors_add(&reader->warnings, source, line,
			"[device %u] has no effect: there %s %u device%s here, numbered from 0%s",
			i, n == 1 ? "is" : "are", n, n == 1 ? "" : "s",
			i == n && n < reader->names.known->n
				? "; pinned host memory has the settings of [gpumemd]"
				: "");
	}
	return r;
}

/* Warns about a key with a size that is larger than the host's memory. */
static int fit_warn_ram(struct gm_config_reader *reader, size_t id,
	const struct gm_config_setting *size, const char *instead)
{
	char wanted[GM_UNITS_TEXT], has[GM_UNITS_TEXT];
	uint64_t ram = reader->names.known->ram;

	if (!size->text || size->refused || size->value.number == UINT64_MAX ||
		size->value.number <= ram)
		return 0;
	return gm_config_errors_add(&reader->warnings, size->source, size->line,
		"%s: %s are more than the %s of host memory here: the kernel ends processes before clients can use all of it; %s",
		gm_config_key(id)->name, gm_format_size(size->value.number, wanted),
		gm_format_size(ram, has), instead);
}

static int fit_warn_size(struct gm_config_reader *reader, uint32_t device)
{
	const struct gm_config_known *known = reader->names.known;
	const struct gm_config_setting *size =
		&reader->settings[GM_CONFIG_SLOT_DEVICES + device][GM_CONFIG_KEY_SIZE];

	if (!size->text || size->refused || !size->value.number)
		return 0;
	if (known->sized && known->ram)
		return fit_warn_ram(reader, GM_CONFIG_KEY_SIZE, size, "write a smaller size");
	if (known->sized || !known->devices[device].name)
		return 0;
	return gm_config_errors_add(&reader->warnings, size->source, size->line,
		"size of [device %u] has no effect: it is for the host backend, and device %u is a GPU (%s)",
		device, device, known->devices[device].name);
}

/* Complains about a fraction of the device that is less than a chunk. */
static int fit_fraction(struct gm_config_reader *reader, uint32_t device, uint64_t total)
{
	struct gm_config_effective fraction = gm_config_effective(
		reader, GM_CONFIG_KEY_FRACTION, GM_CONFIG_SLOT_DEVICES + (int)device);
	const struct gm_config_setting *at = fraction.setting;
	char size[GM_UNITS_TEXT], chunk[GM_UNITS_TEXT], name[FIT_NAME];

	if ((uint64_t)(fraction.value.fraction * (double)total) >= GM_CHUNK_MIN || !at ||
		gm_config_effective_is_doubtful(reader, &fraction))
		return 0;
	return gm_config_errors_add(&reader->errors, at->source, at->line,
		"fraction: %s leaves nothing to give out on device %u%s, which has %s: the smallest piece of memory has %s; write a larger fraction",
		fraction.text, device, fit_name(reader, device, name), gm_format_size(total, size),
		gm_format_size(GM_CHUNK_MIN, chunk));
}

/* Complains about a min_free that leaves nothing to give out. A default gives way, with a warning. */
static int fit_min_free(struct gm_config_reader *reader, uint32_t device, uint64_t total)
{
	struct gm_config_effective min_free = gm_config_effective(
		reader, GM_CONFIG_KEY_MIN_FREE, GM_CONFIG_SLOT_DEVICES + (int)device);
	const struct gm_config_setting *at = min_free.setting;
	uint64_t kept = gm_config_fit_min_free(min_free.value.number, at != NULL, total);
	char size[GM_UNITS_TEXT], less[GM_UNITS_TEXT], name[FIT_NAME];

	if (gm_u64_minus(total, min_free.value.number) >= GM_CHUNK_MIN ||
		min_free.value.number == 0 || gm_config_effective_is_doubtful(reader, &min_free))
		return 0;
	fit_name(reader, device, name);
	gm_format_size(total, size);
	if (at)
		return gm_config_errors_add(&reader->errors, at->source, at->line,
			"min_free: %s leaves nothing to give out on device %u%s, which has %s; write a smaller min_free",
			min_free.text, device, name, size);
	return gm_config_errors_add(&reader->warnings, NULL, 0,
		"min_free: %s, as by %s, would leave nothing to give out on device %u%s, which has %s: %s stay free instead; write a smaller min_free",
		min_free.text, min_free.preset ? "the preset" : "default", device, name, size,
		gm_format_size(kept, less));
}

/* Complains about settings that leave nothing to give out on a device. */
static int fit_nothing(struct gm_config_reader *reader, uint32_t device)
{
	uint64_t total = reader->names.known->devices[device].total;
	int r = 0;

	if (!total)
		return 0;
	/* config_check_size() has complained already. */
	if (!reader->names.known->sized ||
		gm_config_fit_size(reader, GM_CONFIG_SLOT_DEVICES + (int)device))
		r = fit_min_free(reader, device, total);
	return r < 0 ? r : fit_fraction(reader, device, total);
}

/* Warns about a max that no owner can reach: on the device of the section, or on any device. */
static int fit_warn_max(
	struct gm_config_reader *reader, const struct gm_config_limit_section *limit, uint32_t n)
{
	const struct gm_config_known *known = reader->names.known;
	const struct gm_config_setting *max = &limit->settings[GM_CONFIG_KEY_MAX];
	char wanted[GM_UNITS_TEXT], has[GM_UNITS_TEXT], where[FIT_NAME + 32] = "any device here",
									 name[FIT_NAME];
	uint64_t largest = 0;

	if (!max->text || max->refused || max->value.number == UINT64_MAX)
		return 0;
	if (limit->device < known->n) {
		largest = known->devices[limit->device].total;
		snprintf(where, sizeof(where), "device %u%s", limit->device,
			fit_name(reader, limit->device, name));
	}
	for (uint32_t i = 0; i < n && limit->device == GM_CONFIG_ALL_DEVICES; i++)
		largest = gm_u64_max(
			largest, known->devices[i].total ? known->devices[i].total : UINT64_MAX);
	if (!largest || max->value.number <= largest)
		return 0;
	return gm_config_errors_add(&reader->warnings, max->source, max->line,
		"max: %s for %s is more than %s has (%s), so it limits nothing; write a smaller max, or none",
		gm_format_size(max->value.number, wanted), limit->owner, where,
		gm_format_size(largest, has));
}

/* Complains about settings that leave nothing to give out. Warns about those that have no effect on the devices that are
 * known, and about sizes that host memory cannot have: one file may serve hosts with and without GPUs. Returns a
 * negative errno only if there is no memory. */
static int fit_settings(struct gm_config_reader *reader)
{
	const struct gm_config_known *known = reader->names.known;
	uint32_t n = known ? known->n : 0;
	int r = 0;

	if (!n)
		return 0;
	n -= known->devices[n - 1].pinned;
	for (uint32_t i = 0; i < n && r >= 0; i++) {
		r = fit_warn_size(reader, i);
		if (r >= 0)
			r = fit_nothing(reader, i);
	}
	for (const struct gm_config_limit_section *l = reader->limits.list; l && r >= 0;
		l = l->next)
		r = fit_warn_max(reader, l, n);
	if (r >= 0 && known->ram)
		r = fit_warn_ram(reader, GM_CONFIG_KEY_HOST_LIMIT,
			&reader->settings[GM_CONFIG_SLOT_GENERAL][GM_CONFIG_KEY_HOST_LIMIT],
			"lower it, or write host_limit = auto");
	if (r >= 0)
		r = fit_warn_strangers(reader);
	if (r >= 0)
		r = fit_warn_numbers(reader, n);
	return r < 0 ? r : 0;
}

int gm_config_fit_check(struct gm_config_reader *reader)
{
	int r = fit_limits(reader);
	return r < 0 ? r : fit_settings(reader);
}
