/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration as a whole: what the files said, with presets and defaults under it, then what
 * only makes sense together. A configuration comes out complete or not at all, and everything that
 * is wrong with it is said in one go. It reads files and touches no socket, so that a configuration
 * can be checked on any machine that knows the users and groups its limits name.
 */
#include "daemon/config/config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/config_error.h"
#include "daemon/config/config_keys.h"
#include "daemon/config/config_reader.h"
#include "daemon/config/config_value.h"

/* What holds in the end: a setting, or a value of a preset. */
struct effective {
	size_t id;
	const struct gm_config_setting *setting; /* NULL: not written anywhere */
	const char *text;
	const char *preset; /* where the text is from, if not from a setting; NULL: the default */
	struct gm_config_value value;
};

static struct effective config_effective(
	const struct gm_config_reader *reader, size_t id, int slot, size_t preset)
{
	static const char *const presets[GM_CONFIG_N_PRESETS] = {NULL, "inference", "constrained"};
	const struct gm_config_key *key = gm_config_key(id);
	const struct gm_config_setting *setting = &reader->settings[slot][id];
	if (!setting->text && key->place & GM_CONFIG_GENERAL)
		setting = &reader->settings[GM_CONFIG_SLOT_GENERAL][id];
	if (setting->text)
		return (struct effective){.id = id,
			.setting = setting,
			.text = setting->text,
			.value = setting->value};
	size_t from = key->presets[preset] ? preset : 0;
	struct effective e = {.id = id, .text = key->presets[from], .preset = presets[from]};
	char why[GM_CONFIG_WHY_BYTES];
	/* The table's own values are good, which a test holds. */
	if (gm_config_value_parse(key, e.text, &e.value, why) != 0)
		abort();
	return e;
}

/* A complaint about two values that do not go together, told at the later one of those written. */
static int config_complain_about(struct gm_config_reader *reader, const struct effective *a,
	const struct effective *b, const char *format, ...) __attribute__((format(printf, 4, 5)));

static int config_complain_about(struct gm_config_reader *reader, const struct effective *a,
	const struct effective *b, const char *format, ...)
{
	const struct effective *at = a->setting ? a : b;
	if (a->setting && b->setting &&
		(b->setting->file_order > a->setting->file_order ||
			(b->setting->file_order == a->setting->file_order &&
				b->setting->line > a->setting->line)))
		at = b;
	/* The defaults and presets go together by themselves, which a test holds. */
	if (!at->setting)
		return 0;
	char text[GM_CONFIG_WHY_BYTES];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return gm_config_errors_add(&reader->errors, at->setting->file, at->setting->file_order,
		at->setting->line, "%s: %s", gm_config_key(at->id)->name, text);
}

static int config_check_pressure(struct gm_config_reader *reader, size_t preset)
{
	static const size_t ids[] = {GM_CONFIG_KEY_PRESSURE_MEDIUM, GM_CONFIG_KEY_PRESSURE_HIGH,
		GM_CONFIG_KEY_PRESSURE_CRITICAL};
	struct effective e[3];
	for (size_t i = 0; i < 3; i++)
		e[i] = config_effective(reader, ids[i], GM_CONFIG_SLOT_GENERAL, preset);
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
	struct effective hysteresis = config_effective(
		reader, GM_CONFIG_KEY_PRESSURE_HYSTERESIS, GM_CONFIG_SLOT_GENERAL, preset);
	if (hysteresis.value.number < e[0].value.number)
		return 0;
	return config_complain_about(reader, &hysteresis, &e[0],
		"pressure_hysteresis (%s) must be below pressure_medium (%s), or pressure is never low again",
		hysteresis.text, e[0].text);
}

static int config_check_slot(struct gm_config_reader *reader, int slot, size_t preset)
{
	struct effective size = config_effective(reader, GM_CONFIG_KEY_SIZE, slot, preset);
	struct effective min_free = config_effective(reader, GM_CONFIG_KEY_MIN_FREE, slot, preset);
	struct effective pool = config_effective(reader, GM_CONFIG_KEY_MAX_POOL, slot, preset);
	struct effective reserve = config_effective(reader, GM_CONFIG_KEY_RESERVE, slot, preset);
	struct effective transport =
		config_effective(reader, GM_CONFIG_KEY_TRANSPORT, GM_CONFIG_SLOT_GENERAL, preset);
	struct effective backend =
		config_effective(reader, GM_CONFIG_KEY_BACKEND, GM_CONFIG_SLOT_GENERAL, preset);
	int r = 0;
	if (slot != GM_CONFIG_SLOT_GENERAL && size.value.number && !strcmp(backend.text, "cuda"))
		r = config_complain_about(reader, &size, &backend,
			"a GPU is as large as it is: [device %d] can have a size on the host backend only, and backend is %s",
			slot - GM_CONFIG_SLOT_DEVICES, backend.text);
	if (slot != GM_CONFIG_SLOT_GENERAL && size.value.number &&
		size.value.number <= min_free.value.number)
		r = config_complain_about(reader, &size, &min_free,
			"a size of %s leaves nothing to give out, because min_free is %s",
			size.text, min_free.text);
	/* One that was not written gives way to the other; two that were contradict each other. */
	bool own = reader->settings[slot][GM_CONFIG_KEY_MAX_POOL].text ||
		   reader->settings[slot][GM_CONFIG_KEY_RESERVE].text;
	if (r >= 0 && own && pool.setting && reserve.setting && !pool.value.share &&
		reserve.value.number > pool.value.number)
		r = config_complain_about(reader, &pool, &reserve,
			"the reserve (%s) is a part of the pool and cannot be more than max_pool (%s)",
			reserve.text, pool.text);
	/* By default it gives way, too (broker.c). */
	bool first = slot == GM_CONFIG_SLOT_GENERAL ||
		     reader->settings[slot][GM_CONFIG_KEY_RESERVE].text;
	if (r >= 0 && first && reserve.setting && reserve.value.number &&
		transport.value.number == GM_TRANSPORT_IPC)
		r = config_complain_about(reader, &reserve, &transport,
			"the reserve (%s) is memory of the fd transport, which nobody is given by transport = ipc, and of ipc none is made before somebody asks; leave one of the two out",
			reserve.text);
	return r;
}

/* Host devices are numbered without gaps; device 0 is there without being given a size. */
static int config_check_gaps(struct gm_config_reader *reader)
{
	int missing = 0, r = 0;
	for (int i = 1; i < GM_LIMIT_DEVICES && r >= 0; i++) {
		const struct gm_config_setting *size =
			&reader->settings[GM_CONFIG_SLOT_DEVICES + i][GM_CONFIG_KEY_SIZE];
		if (!size->text || !size->value.number)
			missing = missing ? missing : i;
		else if (missing)
			r = gm_config_errors_add(&reader->errors, size->file, size->file_order,
				size->line,
				"size: [device %d] has a size but [device %d] has none; devices are numbered without gaps",
				i, missing);
	}
	return r;
}

static int config_check(struct gm_config_reader *reader, size_t preset)
{
	int r = config_check_pressure(reader, preset);
	for (int slot = 0; slot < GM_CONFIG_SLOTS && r >= 0; slot++)
		r = config_check_slot(reader, slot, preset);
	if (r >= 0)
		r = config_check_gaps(reader);
	return r < 0 ? r : gm_config_limits_check(&reader->limits, &reader->errors);
}

static int config_add_entry(
	struct gm_config *config, const char *section, size_t id, const struct effective *e)
{
	struct gm_config_entry *entry = &config->entries[config->n_entries++];
	int n;
	entry->section = strdup(section);
	entry->key = strdup(gm_config_key(id)->name);
	entry->value = strdup(e->text);
	if (e->setting)
		n = asprintf(&entry->source, "%s:%u", e->setting->file, e->setting->line);
	else if (e->preset)
		n = asprintf(&entry->source, "preset %s", e->preset);
	else
		n = asprintf(&entry->source, "default");
	if (n < 0)
		entry->source = NULL;
	return entry->section && entry->key && entry->value && entry->source ? 0 : -ENOMEM;
}

static int config_fill_entries(
	const struct gm_config_reader *reader, size_t preset, struct gm_config *config)
{
	config->entries =
		calloc((size_t)GM_CONFIG_SLOTS * GM_CONFIG_N_KEYS, sizeof(*config->entries));
	if (!config->entries)
		return -ENOMEM;
	for (int slot = 0; slot < GM_CONFIG_SLOTS; slot++) {
		char section[GM_DEVICE_NAME_TEXT + 16] = "", name[GM_DEVICE_NAME_TEXT];
		if (slot != GM_CONFIG_SLOT_GENERAL) {
			if (!reader->named[slot])
				continue;
			snprintf(section, sizeof(section), "device %s",
				gm_config_names_text(&reader->names,
					(uint32_t)(slot - GM_CONFIG_SLOT_DEVICES), name));
		}
		for (size_t id = 0; id < GM_CONFIG_N_KEYS; id++) {
			if (!(gm_config_key(id)->place & gm_config_slot_place(slot)))
				continue;
			struct effective e = config_effective(reader, id, slot, preset);
			int r = config_add_entry(config, section, id, &e);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

static void config_fill_device(const struct gm_config_reader *reader, size_t preset, int slot,
	struct gm_config_device *device)
{
#define NUMBER(key) config_effective(reader, GM_CONFIG_KEY_##key, slot, preset).value.number
	struct effective pool = config_effective(reader, GM_CONFIG_KEY_MAX_POOL, slot, preset);
	device->size = NUMBER(SIZE);
	device->max_pool_share = pool.value.share ? pool.value.fraction : -1;
	device->policy = (struct gm_policy){
		.fraction = config_effective(reader, GM_CONFIG_KEY_FRACTION, slot, preset)
				    .value.fraction,
		.min_free = NUMBER(MIN_FREE),
		.max_pool = pool.value.share ? UINT64_MAX : pool.value.number,
		.max_per_bucket = (uint32_t)NUMBER(MAX_POOLED_PER_BUCKET),
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
}

static void config_copy(char *to, size_t size, const struct effective *e)
{
	/* The parsers hold these to less than the room. */
	snprintf(to, size, "%s", e->value.text ? e->value.text : e->text);
}

static int config_fill(
	const struct gm_config_reader *reader, size_t preset, struct gm_config *config)
{
#define EFFECTIVE(key) config_effective(reader, GM_CONFIG_KEY_##key, GM_CONFIG_SLOT_GENERAL, preset)
	struct effective e = EFFECTIVE(PRESET);
	config_copy(config->preset, sizeof(config->preset), &e);
	e = EFFECTIVE(BACKEND);
	config_copy(config->backend, sizeof(config->backend), &e);
	e = EFFECTIVE(SOCKET);
	config_copy(config->socket, sizeof(config->socket), &e);
	e = EFFECTIVE(SOCKET_GROUP);
	config_copy(config->socket_group, sizeof(config->socket_group), &e);
	e = EFFECTIVE(ADMIN_GROUP);
	config_copy(config->admin_group, sizeof(config->admin_group), &e);
	config->socket_mode = (mode_t)EFFECTIVE(SOCKET_MODE).value.number;
	config->trust = (enum gm_trust)EFFECTIVE(TRUST).value.number;
	config->transport = (enum gm_transport)EFFECTIVE(TRANSPORT).value.number;
	config->track = (enum gm_track)EFFECTIVE(TRACK).value.number;
	config->host_limit = EFFECTIVE(HOST_LIMIT).value.number;
	config->host_memory = (enum gm_host_memory)EFFECTIVE(HOST_MEMORY).value.number;
	config->decay_ns = EFFECTIVE(DECAY).value.number;
	config->hello_deadline_ns = EFFECTIVE(HELLO_DEADLINE).value.number;
	config->terminate_grace_ns = EFFECTIVE(TERMINATE_GRACE).value.number;
	config->connections_per_uid = (uint32_t)EFFECTIVE(CONNECTIONS_PER_UID).value.number;
#undef EFFECTIVE
	config_fill_device(reader, preset, GM_CONFIG_SLOT_GENERAL, &config->pinned);
	for (int i = 0; i < GM_LIMIT_DEVICES; i++) {
		config_fill_device(reader, preset, GM_CONFIG_SLOT_DEVICES + i, &config->devices[i]);
		if (reader->named[GM_CONFIG_SLOT_DEVICES + i])
			config->n_devices = i + 1;
	}
	config->n_strangers = reader->names.n;
	for (uint32_t i = 0; i < reader->names.n; i++)
		strcpy(config->strangers[i], reader->names.strangers[i].text);
	int r = config_fill_entries(reader, preset, config);
	return r < 0 ? r : gm_config_limits_fill(&reader->limits, config);
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
	if (reader) {
		gm_config_reader_init(reader, known);
		r = gm_config_reader_read(reader, path);
	}
	if (r != -ENOMEM) {
		size_t preset = 0;
		const struct gm_config_setting *setting =
			&reader->settings[GM_CONFIG_SLOT_GENERAL][GM_CONFIG_KEY_PRESET];
		if (setting->text)
			preset = setting->value.number;
		/* What goes together is judged only once each by itself is right: a refused value
		 * stands in for nothing. */
		int s = reader->errors.n ? 0 : config_check(reader, preset);
		if (s == 0 && reader->errors.n && r == 0)
			r = -EINVAL;
		if (s < 0)
			r = s;
		if (r == 0) {
			config = calloc(1, sizeof(*config));
			r = config ? config_fill(reader, preset, config) : -ENOMEM;
		}
	}
	if (r < 0 && r != -ENOMEM) {
		int s = gm_config_errors_text(&reader->errors, &text);
		r = s < 0 ? s : r;
	}
	if (reader)
		gm_config_reader_deinit(reader);
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
