/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether limits fit the devices. Reading a file needs no device, so this is a separate step: the
 * daemon takes it with its own devices, and a check of a file with the devices of host memory that
 * the file itself describes. All errors are reported at once, each with its file and line.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/units.h"
#include "daemon/config/config.h"

/* The "FILE:LINE" of a key of a limit, or of its first key if key is NULL. */
static const char *fit_place_of(
	const struct gm_config *config, const struct gm_config_limit *limit, const char *key)
{
	char section[GM_CONFIG_OWNER_BYTES + 32];
	if (limit->device == GM_CONFIG_ALL_DEVICES)
		snprintf(section, sizeof(section), "limit %s", limit->owner);
	else
		snprintf(section, sizeof(section), "device %u limit %s", limit->device,
			limit->owner);
	for (size_t i = 0; i < config->n_entries; i++)
		if (!strcmp(config->entries[i].section, section) &&
			(!key || !strcmp(config->entries[i].key, key)))
			return config->entries[i].source;
	return limit->owner;
}

/* Whether this limit gives the owner's guarantee on a device. */
static bool fit_guarantees(
	const struct gm_config *config, const struct gm_config_limit *limit, uint32_t device)
{
	if (!limit->has_guarantee)
		return false;
	if (limit->device != GM_CONFIG_ALL_DEVICES)
		return limit->device == device;
	for (size_t i = 0; i < config->n_limits; i++) {
		const struct gm_config_limit *other = &config->limits[i];
		if (other->device == device && other->has_guarantee &&
			!strcmp(other->owner, limit->owner))
			return false;
	}
	return true;
}

static void fit_check_guarantees(
	const struct gm_config *config, uint32_t device, uint64_t capacity, FILE *errors)
{
	char size[GM_UNITS_TEXT], most[GM_UNITS_TEXT];
	uint64_t sum = 0;
	for (size_t i = 0; i < config->n_limits; i++) {
		const struct gm_config_limit *limit = &config->limits[i];
		if (!fit_guarantees(config, limit, device))
			continue;
		if (limit->guarantee > capacity - sum) {
			fprintf(errors,
				"%s: guarantee: with %s for %s, guarantees on device %u go beyond its capacity of %s%s\n",
				fit_place_of(config, limit, "guarantee"),
				gm_format_size(limit->guarantee, size), limit->owner, device,
				gm_format_size(capacity, most),
				limit->device == GM_CONFIG_ALL_DEVICES
					? "; [device N limit OWNER] sets it for one device"
					: "");
			return;
		}
		sum += limit->guarantee;
	}
}

int gm_config_limits_fit(const struct gm_config *config, const uint64_t *capacities,
	uint32_t n_devices, char **ret_error)
{
	char *text = NULL;
	size_t size = 0;
	FILE *errors = open_memstream(&text, &size);
	if (!errors)
		return -ENOMEM;

	for (size_t i = 0; i < config->n_limits; i++) {
		const struct gm_config_limit *limit = &config->limits[i];
		if (limit->device != GM_CONFIG_ALL_DEVICES && limit->device >= n_devices)
			fprintf(errors,
				"%s: [device %u limit %s]: there is no device %u; there %s %u, numbered from 0\n",
				fit_place_of(config, limit, NULL), limit->device, limit->owner,
				limit->device, n_devices == 1 ? "is" : "are", n_devices);
	}

	for (uint32_t d = 0; d < n_devices; d++)
		if (capacities[d] != UINT64_MAX)
			fit_check_guarantees(config, d, capacities[d], errors);
	int failed = ferror(errors);
	if (fclose(errors) || failed || !text) {
		free(text);
		return -ENOMEM;
	}
	if (!size) {
		free(text);
		return 0;
	}

	text[size - 1] = '\0'; /* the last newline */
	*ret_error = text;
	return -EINVAL;
}

int gm_config_limits_fit_host(const struct gm_config *config, char **ret_error)
{
	uint64_t capacities[GM_LIMIT_DEVICES];
	uint32_t n = 0;
	for (; n < GM_LIMIT_DEVICES && (n == 0 || config->devices[n].size); n++)
		capacities[n] = config->devices[n].size ? gm_config_capacity(&config->devices[n],
								  config->devices[n].size)
							: UINT64_MAX;

	/* Pinned memory comes last. Its limit is its capacity. */
	if (config->host_limit && n < GM_LIMIT_DEVICES)
		capacities[n++] = config->host_limit == UINT64_MAX
					  ? UINT64_MAX
					  : config->host_limit / GM_CHUNK_MIN * GM_CHUNK_MIN;
	return gm_config_limits_fit(config, capacities, n, ret_error);
}
