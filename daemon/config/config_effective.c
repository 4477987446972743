/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which value counts: that of the section, of the general section, of the preset, or the default.
 */
#include "daemon/config/config_effective.h"

#include <stdlib.h>

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
