/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration as a whole: what the files say, with presets and defaults below it, and the
 * checks that need several values. A configuration comes out complete or not at all.
 */
#include "daemon/config/config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/config_reader.h"

/* The value that a key has in the end: from a file, from the preset, or the default. */
struct effective {
	size_t id;
	const struct gm_config_setting *setting; /* NULL: no file sets the key */
	const char *text;
	const char *preset; /* the preset that the text comes from; NULL: none */
	struct gm_config_value value;
};

static struct effective config_effective(const struct gm_config_reader *reader, size_t id, int slot)
{
	static const char *const presets[GM_CONFIG_N_PRESETS] = {NULL, "inference", "constrained"};
	const struct gm_config_setting *general = reader->settings[GM_CONFIG_SLOT_GENERAL];
	const struct gm_config_key *key = gm_config_key(id);
	const struct gm_config_setting *setting = &reader->settings[slot][id];
	if (!setting->text && key->place & GM_CONFIG_GENERAL)
		setting = &general[id];
	if (setting->text)
		return (struct effective){.id = id,
			.setting = setting,
			.text = setting->text,
			.value = setting->value};

	uint64_t preset = general[GM_CONFIG_KEY_PRESET].value.number; /* 0 if it is not set */
	if (!key->presets[preset])
		preset = GM_CONFIG_PRESET_DEFAULT;
	struct effective e = {.id = id, .text = key->presets[preset], .preset = presets[preset]};
	char why[GM_CONFIG_WHY_BYTES];

	/* A test shows that the table's own values are valid. */
	if (gm_config_value_parse(key, e.text, &e.value, why) != 0)
		abort();
	return e;
}

static struct effective config_general(const struct gm_config_reader *reader, size_t id)
{
	return config_effective(reader, id, GM_CONFIG_SLOT_GENERAL);
}

/* Complains that two values do not go together, at the one that was written later. */
static int config_complain_about(struct gm_config_reader *reader, const struct effective *a,
	const struct effective *b, const char *format, ...) __attribute__((format(printf, 4, 5)));

static int config_complain_about(struct gm_config_reader *reader, const struct effective *a,
	const struct effective *b, const char *format, ...)
{
	/* A test shows that defaults and presets go together. */
	if (!a->setting && !b->setting)
		return 0;
	const struct effective *at = a->setting ? a : b;
	if (a->setting && b->setting)
		at = gm_config_setting_later(a->setting, b->setting) == a->setting ? a : b;

	char text[GM_CONFIG_WHY_BYTES];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return gm_config_errors_add(&reader->errors, at->setting->source, at->setting->line,
		"%s: %s", gm_config_key(at->id)->name, text);
}

static int config_check_pressure(struct gm_config_reader *reader)
{
	static const size_t ids[] = {GM_CONFIG_KEY_PRESSURE_MEDIUM, GM_CONFIG_KEY_PRESSURE_HIGH,
		GM_CONFIG_KEY_PRESSURE_CRITICAL};
	struct effective e[3];
	for (size_t i = 0; i < 3; i++)
		e[i] = config_general(reader, ids[i]);
	for (size_t i = 0; i < 2; i++) {
		if (e[i].value.number < e[i + 1].value.number)
			continue;
		int r = config_complain_about(reader, &e[i], &e[i + 1],
			"the levels are out of order: %s (%s) must be below %s (%s)",
			gm_config_key(ids[i])->name, e[i].text, gm_config_key(ids[i + 1])->name,
			e[i + 1].text);
		if (r < 0)
			return r;
	}

	struct effective hysteresis = config_general(reader, GM_CONFIG_KEY_PRESSURE_HYSTERESIS);
	if (hysteresis.value.number < e[0].value.number)
		return 0;
	return config_complain_about(reader, &hysteresis, &e[0],
		"pressure_hysteresis (%s) must be below pressure_medium (%s), or the pressure never becomes low again",
		hysteresis.text, e[0].text);
}

static int config_check_size(struct gm_config_reader *reader, int slot)
{
	struct effective size = config_effective(reader, GM_CONFIG_KEY_SIZE, slot);
	struct effective min_free = config_effective(reader, GM_CONFIG_KEY_MIN_FREE, slot);
	struct effective backend = config_general(reader, GM_CONFIG_KEY_BACKEND);
	if (slot == GM_CONFIG_SLOT_GENERAL || !size.value.number)
		return 0;

	int r = 0;
	if (!strcmp(backend.text, "cuda"))
		r = config_complain_about(reader, &size, &backend,
			"the size of a GPU cannot be set: [device %d] can have a size only with backend = host, and backend is %s",
			slot - GM_CONFIG_SLOT_DEVICES, backend.text);
	if (r >= 0 && size.value.number <= min_free.value.number)
		r = config_complain_about(reader, &size, &min_free,
			"a size of %s leaves nothing to give out, because min_free is %s",
			size.text, min_free.text);
	return r;
}

static int config_check_reserve(struct gm_config_reader *reader, int slot)
{
	const struct gm_config_setting *settings = reader->settings[slot];
	struct effective pool = config_effective(reader, GM_CONFIG_KEY_MAX_POOL, slot);
	struct effective reserve = config_effective(reader, GM_CONFIG_KEY_RESERVE, slot);
	struct effective transport = config_general(reader, GM_CONFIG_KEY_TRANSPORT);
	if (!reserve.setting)
		return 0; /* a default gives way: see gm_config_policy() and broker.c */

	int r = 0;
	bool own = settings[GM_CONFIG_KEY_MAX_POOL].text || settings[GM_CONFIG_KEY_RESERVE].text;
	if (own && pool.setting && !pool.value.share && reserve.value.number > pool.value.number)
		r = config_complain_about(reader, &pool, &reserve,
			"the reserve (%s) is part of the pool and cannot be more than max_pool (%s)",
			reserve.text, pool.text);
	bool first = slot == GM_CONFIG_SLOT_GENERAL || settings[GM_CONFIG_KEY_RESERVE].text;
	if (r >= 0 && first && reserve.value.number && transport.value.number == GM_TRANSPORT_IPC)
		r = config_complain_about(reader, &reserve, &transport,
			"the reserve (%s) holds memory for the fd transport, which no client gets with transport = ipc; leave out one of the two",
			reserve.text);
	return r;
}

/* The devices of the host backend are numbered without gaps. Device 0 needs no size. */
static int config_check_gaps(struct gm_config_reader *reader)
{
	int missing = 0, r = 0;
	for (int i = 1; i < GM_LIMIT_DEVICES && r >= 0; i++) {
		const struct gm_config_setting *size =
			&reader->settings[GM_CONFIG_SLOT_DEVICES + i][GM_CONFIG_KEY_SIZE];
		if (!size->text || !size->value.number)
			missing = missing ? missing : i;
		else if (missing)
			r = gm_config_errors_add(&reader->errors, size->source, size->line,
				"size: [device %d] has a size but [device %d] has none; devices are numbered without gaps",
				i, missing);
	}
	return r;
}

static int config_check(struct gm_config_reader *reader)
{
	int r = config_check_pressure(reader);
	for (int slot = 0; slot < GM_CONFIG_SLOTS && r >= 0; slot++) {
		r = config_check_size(reader, slot);
		if (r >= 0)
			r = config_check_reserve(reader, slot);
	}
	if (r >= 0)
		r = config_check_gaps(reader);
	return r < 0 ? r : gm_config_limits_check(&reader->limits, &reader->errors);
}

static int config_add_entry(
	struct gm_config *config, const char *section, const struct effective *e)
{
	struct gm_config_entry *entry = &config->entries[config->n_entries++];
	int n;
	entry->section = strdup(section);
	entry->key = strdup(gm_config_key(e->id)->name);
	entry->value = strdup(e->text);
	if (e->setting)
		n = asprintf(&entry->source, "%s:%u", e->setting->source->path, e->setting->line);
	else if (e->preset)
		n = asprintf(&entry->source, "preset %s", e->preset);
	else
		n = asprintf(&entry->source, "default");
	if (n < 0)
		entry->source = NULL;
	return entry->section && entry->key && entry->value && entry->source ? 0 : -ENOMEM;
}

static int config_fill_slot(
	const struct gm_config_reader *reader, int slot, struct gm_config *config)
{
	char section[GM_DEVICE_NAME_TEXT + 16] = "", name[GM_DEVICE_NAME_TEXT];
	if (slot != GM_CONFIG_SLOT_GENERAL) {
		if (!reader->named[slot])
			return 0;
		snprintf(section, sizeof(section), "device %s",
			gm_config_names_text(
				&reader->names, (uint32_t)(slot - GM_CONFIG_SLOT_DEVICES), name));
	}

	int r = 0;
	for (size_t id = 0; id < GM_CONFIG_N_KEYS && r == 0; id++) {
		if (!(gm_config_key(id)->place & gm_config_slot_place(slot)))
			continue;
		struct effective e = config_effective(reader, id, slot);
		r = config_add_entry(config, section, &e);
	}
	return r;
}

static int config_fill_entries(const struct gm_config_reader *reader, struct gm_config *config)
{
	int r = 0;
	config->entries = calloc(
		(GM_CONFIG_SLOTS + reader->limits.n) * GM_CONFIG_N_KEYS, sizeof(*config->entries));
	if (!config->entries)
		return -ENOMEM;

	for (int slot = 0; slot < GM_CONFIG_SLOTS && r == 0; slot++)
		r = config_fill_slot(reader, slot, config);
	for (const struct gm_config_limit_section *limit = reader->limits.list; limit;
		limit = limit->next) {
		char title[GM_CONFIG_LIMIT_TITLE];
		gm_config_limit_title(&reader->limits, limit, title);
		for (size_t id = 0; id < GM_CONFIG_N_KEYS && r == 0; id++) {
			const struct gm_config_setting *setting = &limit->settings[id];
			struct effective e = {.id = id, .setting = setting, .text = setting->text};
			if (setting->text)
				r = config_add_entry(config, title, &e);
		}
	}
	return r;
}

static void config_fill_device(
	const struct gm_config_reader *reader, int slot, struct gm_config_device *device)
{
#define VALUE(key)  config_effective(reader, GM_CONFIG_KEY_##key, slot).value
#define NUMBER(key) VALUE(key).number
	struct gm_config_value pool = VALUE(MAX_POOL);
	device->size = NUMBER(SIZE);
	device->max_pool_share = pool.share ? pool.fraction : -1;
	device->policy = (struct gm_policy){
		.fraction = VALUE(FRACTION).fraction,
		.min_free = NUMBER(MIN_FREE),
		.max_pool = pool.share ? UINT64_MAX : pool.number,
		.max_per_bucket = (uint32_t)NUMBER(MAX_POOLED_PER_BUCKET),
		.pool_decay_ns = NUMBER(POOL_DECAY),
		.reserve = NUMBER(RESERVE),
		.pooling = NUMBER(TRUST) != GM_TRUST_CLIENT,
		.level_ppm = {(uint32_t)NUMBER(PRESSURE_MEDIUM), (uint32_t)NUMBER(PRESSURE_HIGH),
			(uint32_t)NUMBER(PRESSURE_CRITICAL)},
		.hysteresis_ppm = (uint32_t)NUMBER(PRESSURE_HYSTERESIS),
		.dwell_ns = NUMBER(PRESSURE_DWELL),
		.oom = (enum gm_oom)NUMBER(OOM),
		.wait_ns = NUMBER(OOM_WAIT),
		.reclaim_ns = NUMBER(RECLAIM_DEADLINE),
		.settle_ns = NUMBER(AFTER_ACTION),
	};
#undef NUMBER
#undef VALUE
}

/* gm_config_value_parse() refuses a text that is too long for the field. */
static void config_copy(const struct gm_config_reader *reader, size_t id, char *to, size_t size)
{
	struct effective e = config_general(reader, id);
	snprintf(to, size, "%s", e.value.text ? e.value.text : e.text);
}

static int config_fill(const struct gm_config_reader *reader, struct gm_config *config)
{
#define COPY(key, to) config_copy(reader, GM_CONFIG_KEY_##key, to, sizeof(to))
#define NUMBER(key)   config_general(reader, GM_CONFIG_KEY_##key).value.number
	COPY(PRESET, config->preset);
	COPY(BACKEND, config->backend);
	COPY(SOCKET, config->socket);
	COPY(SOCKET_GROUP, config->socket_group);
	COPY(ADMIN_GROUP, config->admin_group);
	config->socket_mode = (mode_t)NUMBER(SOCKET_MODE);
	config->trust = (enum gm_trust)NUMBER(TRUST);
	config->transport = (enum gm_transport)NUMBER(TRANSPORT);
	config->track = (enum gm_track)NUMBER(TRACK);
	config->host_limit = NUMBER(HOST_LIMIT);
	config->host_memory = (enum gm_host_memory)NUMBER(HOST_MEMORY);
	config->decay_ns = NUMBER(DECAY);
	config->hello_deadline_ns = NUMBER(HELLO_DEADLINE);
	config->terminate_grace_ns = NUMBER(TERMINATE_GRACE);
	config->connections_per_uid = (uint32_t)NUMBER(CONNECTIONS_PER_UID);
#undef NUMBER
#undef COPY
	config_fill_device(reader, GM_CONFIG_SLOT_GENERAL, &config->pinned);
	for (int i = 0; i < GM_LIMIT_DEVICES; i++) {
		config_fill_device(reader, GM_CONFIG_SLOT_DEVICES + i, &config->devices[i]);
		if (reader->named[GM_CONFIG_SLOT_DEVICES + i])
			config->n_devices = i + 1;
	}

	config->n_strangers = reader->names.n;
	for (uint32_t i = 0; i < reader->names.n; i++)
		strcpy(config->strangers[i], reader->names.strangers[i].text);

	if (reader->limits.n) {
		config->limits = calloc(reader->limits.n, sizeof(*config->limits));
		if (!config->limits)
			return -ENOMEM;
		config->n_limits = gm_config_limits_fill(&reader->limits, config->limits);
	}
	return config_fill_entries(reader, config);
}

int gm_config_load(const char *path, struct gm_config **ret_config, char **ret_error)
{
	return gm_config_load_for(path, NULL, ret_config, ret_error);
}

int gm_config_load_for(const char *path, const struct gm_config_known *known,
	struct gm_config **ret_config, char **ret_error)
{
	struct gm_config *config = NULL;
	char *text = NULL;
	struct gm_config_reader *reader = malloc(sizeof(*reader));
	int r = -ENOMEM;
	if (!reader)
		goto out;

	gm_config_reader_init(reader, known);
	r = gm_config_reader_read(reader, path);

	/* While a value is refused, nothing can be said about what goes with it. */
	if (r == 0 && !reader->errors.n)
		r = config_check(reader);
	if (r >= 0 && reader->errors.n)
		r = -EINVAL;
	if (r >= 0) {
		config = calloc(1, sizeof(*config));
		r = config ? config_fill(reader, config) : -ENOMEM;
	}

	if (r < 0 && r != -ENOMEM && gm_config_errors_text(&reader->errors, &text) < 0)
		r = -ENOMEM;
	gm_config_reader_deinit(reader);

out:
	free(reader);
	if (r < 0) {
		gm_config_free(config);
		*ret_error = text;
		return r;
	}

	*ret_config = config;
	return 0;
}

void gm_config_free(struct gm_config *config)
{
	if (!config)
		return;
	for (size_t i = 0; i < config->n_entries; i++) {
		free(config->entries[i].section);
		free(config->entries[i].key);
		free(config->entries[i].value);
		free(config->entries[i].source);
	}
	free(config->entries);
	free(config->limits);
	free(config);
}
