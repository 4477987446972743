/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration as a whole: what the files say, with presets and defaults below it. A
 * configuration comes out complete or not at all.
 */
#include "daemon/config/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/arith.h"
#include "daemon/config/config_check.h"
#include "daemon/config/config_fit.h"

static int config_add_entry(
	struct gm_config *config, const char *section, const struct gm_config_effective *e)
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
		struct gm_config_effective e = gm_config_effective(reader, id, slot);
		r = config_add_entry(config, section, &e);
	}
	return r;
}

/* Adds the entries of a limit. out: the limit itself, which gets the sources of its values; NULL: its device is
 * not known. */
static int config_fill_limit(struct gm_config *config, const char *title,
	const struct gm_config_limit_section *limit, struct gm_config_limit *out)
{
	int r = 0;
	for (size_t id = 0; id < GM_CONFIG_N_KEYS && r == 0; id++) {
		const struct gm_config_setting *setting = &limit->settings[id];
		struct gm_config_effective e = {
			.id = id, .setting = setting, .text = setting->text};
		if (!setting->text)
			continue;
		r = config_add_entry(config, title, &e);
		const char *source = config->entries[config->n_entries - 1].source;
#define CONFIG_SOURCE(KIND, ...) \
	if (out && id == GM_CONFIG_KEY_##KIND) \
		out->sources[GM_LIMIT_AT_##KIND] = source;
		GM_LIMIT_KINDS(CONFIG_SOURCE)
#undef CONFIG_SOURCE
	}
	return r;
}

static int config_fill_entries(const struct gm_config_reader *reader, struct gm_config *config)
{
	size_t n = 0;
	int r = 0;
	config->entries = calloc(
		(GM_CONFIG_SLOTS + reader->limits.n) * GM_CONFIG_N_KEYS, sizeof(*config->entries));
	if (!config->entries)
		return -ENOMEM;

	for (int slot = 0; slot < GM_CONFIG_SLOTS && r == 0; slot++)
		r = config_fill_slot(reader, slot, config);
	for (const struct gm_config_limit_section *limit = reader->limits.list; limit && r == 0;
		limit = limit->next) {
		char title[GM_CONFIG_LIMIT_TITLE];
		gm_config_limit_title(&reader->limits, limit, title);
		/* Limits are in the order of their sections. */
		bool known = n < config->n_limits && config->limits[n].device == limit->device &&
			     !strcmp(config->limits[n].owner, limit->owner);
		r = config_fill_limit(config, title, limit, known ? &config->limits[n++] : NULL);
	}
	return r;
}

static void config_fill_device(
	const struct gm_config_reader *reader, int slot, struct gm_config_device *device)
{
#define VALUE(key)  gm_config_effective(reader, GM_CONFIG_KEY_##key, slot).value
#define NUMBER(key) VALUE(key).number
	struct gm_config_value pool = VALUE(MAX_POOL);
	device->size = NUMBER(SIZE);
	device->min_free_from_file =
		gm_config_effective(reader, GM_CONFIG_KEY_MIN_FREE, slot).setting != NULL;
	device->max_pool_share = pool.share ? pool.fraction : -1;
	device->policy = (struct gm_policy){
		.fraction = VALUE(FRACTION).fraction,
		.min_free = NUMBER(MIN_FREE),
		.max_pool = pool.share ? UINT64_MAX : pool.number,
		.max_per_bucket = (uint32_t)NUMBER(MAX_POOLED_PER_BUCKET),
		.pool_decay_ns = NUMBER(POOL_DECAY),
		.reserve = NUMBER(RESERVE),
		.pooling = NUMBER(TRUST) != GM_DOMAIN_TRUST_CLIENT,
		.level_ppm = {(uint32_t)NUMBER(PRESSURE_MEDIUM), (uint32_t)NUMBER(PRESSURE_HIGH),
			(uint32_t)NUMBER(PRESSURE_CRITICAL)},
		.hysteresis_ppm = (uint32_t)NUMBER(PRESSURE_HYSTERESIS),
		.dwell_ns = NUMBER(PRESSURE_DWELL),
		.oom = (enum gm_policy_oom)NUMBER(OOM),
		.wait_ns = NUMBER(OOM_WAIT),
		.reclaim_ns = NUMBER(RECLAIM_DEADLINE),
		.settle_ns = NUMBER(AFTER_ACTION),
		.deadlock_ns = NUMBER(DEADLOCK_AFTER),
	};
#undef NUMBER
#undef VALUE
}

/* gm_config_value_parse() refuses a text that is too long for the field. */
static void config_copy(const struct gm_config_reader *reader, size_t id, char *to, size_t size)
{
	struct gm_config_effective e = gm_config_effective_general(reader, id);
	snprintf(to, size, "%s", e.value.text ? e.value.text : e.text);
}

static int config_fill(const struct gm_config_reader *reader, struct gm_config *config)
{
#define COPY(key, to) config_copy(reader, GM_CONFIG_KEY_##key, to, sizeof(to))
#define NUMBER(key)   gm_config_effective_general(reader, GM_CONFIG_KEY_##key).value.number
	COPY(PRESET, config->preset);
	COPY(BACKEND, config->backend);
	COPY(SOCKET, config->socket);
	COPY(SOCKET_GROUP, config->socket_group);
	COPY(ADMIN_GROUP, config->admin_group);
	COPY(OBSERVER_GROUP, config->observer_group);
	config->socket_mode = (mode_t)NUMBER(SOCKET_MODE);
	config->trust = (enum gm_domain_trust)NUMBER(TRUST);
	config->transport = (enum gm_transport)NUMBER(TRANSPORT);
	config->track = (enum gm_track)NUMBER(TRACK);
	config->host_limit = NUMBER(HOST_LIMIT);
	config->host_memory = (enum gm_backend_host_memory)NUMBER(HOST_MEMORY);
	config->cpu_fallback = NUMBER(CPU_FALLBACK);
	config->decay_ns = NUMBER(DECAY);
	config->hello_deadline_ns = NUMBER(HELLO_DEADLINE);
	config->terminate_grace_ns = NUMBER(TERMINATE_GRACE);
	config->connections_per_uid = (uint32_t)NUMBER(CONNECTIONS_PER_UID);
#undef NUMBER
#undef COPY
	config_fill_device(reader, GM_CONFIG_SLOT_GENERAL, &config->pinned);
	for (int i = 0; i < GM_BOUND_DEVICES; i++) {
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

/* ---- reading */

void gm_config_report_deinit(struct gm_config_report *report)
{
	free(report->path);
	free(report->files);
	free(report->errors);
	gm_config_free(report->rest);
	*report = (struct gm_config_report){0};
}

/* Whether a mistake may be about which devices there are, and how large. */
static bool config_doubts_devices(const struct gm_config_reader *reader)
{
	static const size_t ids[] = {GM_CONFIG_KEY_BACKEND, GM_CONFIG_KEY_HOST_LIMIT,
		GM_CONFIG_KEY_HOST_MEMORY, GM_CONFIG_KEY_SIZE};
	bool doubtful = false;
	for (int slot = 0; slot < GM_CONFIG_SLOTS; slot++)
		for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
			struct gm_config_effective e = gm_config_effective(reader, ids[i], slot);
			doubtful = doubtful || gm_config_effective_is_doubtful(reader, &e);
		}
	return doubtful;
}

static int config_make(struct gm_config_reader *reader, struct gm_config **ret_config)
{
	struct gm_config *config = calloc(1, sizeof(*config));
	int r = config ? config_fill(reader, config) : -ENOMEM;
	if (r == 0)
		r = gm_config_errors_text(&reader->warnings, &config->warnings);
	if (r < 0) {
		gm_config_free(config);
		return r;
	}
	config->devices_doubtful = config_doubts_devices(reader);
	*ret_config = config;
	return 0;
}

/* What the reader found, and then everything that several values or this machine contradict. */
static int config_read(struct gm_config_reader *reader, const char *path,
	struct gm_config **ret_config, struct gm_config_report *report)
{
	int r = gm_config_reader_read(reader, path);
	if (r != -ENOMEM) {
		int s = gm_config_check(reader);
		r = s < 0 ? s : r;
	}
	if (r == 0 && reader->errors.n)
		r = -EINVAL;

	report->path = reader->path;
	reader->path = NULL;
	if (gm_config_reader_names(reader, &report->files) < 0)
		r = -ENOMEM;
	if (r < 0 && r != -ENOMEM && gm_config_errors_text(&reader->errors, &report->errors) < 0)
		r = -ENOMEM;
	if (r < 0 && r != -EINVAL)
		return r;

	int s = config_make(reader, r == 0 ? ret_config : &report->rest);
	return s < 0 ? s : r;
}

int gm_config_read(const char *path, const struct gm_config_known *known,
	struct gm_config **ret_config, struct gm_config_report *ret_report)
{
	struct gm_config_report report = {0};
	struct gm_config_reader *reader = malloc(sizeof(*reader));
	int r = -ENOMEM;
	if (reader) {
		gm_config_reader_init(reader, known);
		r = config_read(reader, path, ret_config, &report);
		gm_config_reader_deinit(reader);
	}
	free(reader);
	*ret_report = report;
	return r;
}

int gm_config_load_for(const char *path, const struct gm_config_known *known,
	struct gm_config **ret_config, char **ret_error)
{
	struct gm_config_report report;
	int r = gm_config_read(path, known, ret_config, &report);
	if (r < 0) {
		*ret_error = report.errors;
		report.errors = NULL;
	}
	gm_config_report_deinit(&report);
	return r;
}

int gm_config_load(const char *path, struct gm_config **ret_config, char **ret_error)
{
	return gm_config_load_for(path, NULL, ret_config, ret_error);
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
	free(config->warnings);
	free(config);
}

/* ---- what a configuration means for a device of a certain size, and for a daemon that runs with an older one */

static uint64_t config_policy_capacity(const struct gm_policy *policy, uint64_t total)
{
	return gm_policy_ceiling((uint64_t)(policy->fraction * (double)total),
		gm_u64_minus(total, policy->min_free), 0);
}

static void config_policy_compute(
	const struct gm_config_device *set, uint64_t total, struct gm_policy *ret_policy)
{
	struct gm_policy policy = set->policy;
	policy.min_free = gm_config_fit_min_free(policy.min_free, set->min_free_from_file, total);
	if (set->max_pool_share >= 0)
		policy.max_pool = (uint64_t)(set->max_pool_share *
					     (double)config_policy_capacity(&policy, total));
	if (policy.reserve > policy.max_pool)
		policy.reserve = policy.max_pool;
	*ret_policy = policy;
}

void gm_config_policy(const struct gm_config *config, uint32_t device, uint64_t total,
	struct gm_policy *ret_policy)
{
	config_policy_compute(&config->devices[device], total, ret_policy);
}

void gm_config_pinned_policy(
	const struct gm_config *config, uint64_t total, struct gm_policy *ret_policy)
{
	struct gm_config_device set = config->pinned;
	set.policy.fraction = 1;
	set.policy.min_free = 0;
	set.policy.reserve = 0;
	config_policy_compute(&set, total, ret_policy);
}

/* Says in the source of a setting why it is not in force. Returns whether a file has the setting. */
static bool config_policy_mark(
	struct gm_config *config, const char *section, const char *key, const char *why)
{
	bool written = false;
	for (size_t i = 0; i < config->n_entries; i++) {
		struct gm_config_entry *entry = &config->entries[i];
		char *source;
		if (strcmp(entry->section, section) || strcmp(entry->key, key))
			continue;
		written = written || strcmp(entry->source, "default");
		if (asprintf(&source, "%s: %s", why, entry->source) < 0)
			continue;
		free(entry->source);
		entry->source = source;
	}
	return written;
}

void gm_config_drop_socket(struct gm_config *config)
{
	static const char *const keys[] = {"socket", "socket_mode", "socket_group"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (!config_policy_mark(config, "", keys[i], "no effect"))
			continue;
		if (config->dropped[0])
			strcat(config->dropped, ", ");
		strcat(config->dropped, keys[i]);
	}
	config->socket[0] = config->socket_group[0] = '\0';
	config->socket_mode = 0;
}

/* Replaces the value of an entry, and says that the command line has it. Without memory, the entry stays as it is. */
static void config_policy_replace(
	struct gm_config *config, const char *key, const char *value, const char *source)
{
	for (size_t i = 0; i < config->n_entries; i++) {
		struct gm_config_entry *entry = &config->entries[i];
		char *new_value, *new_source;
		if (*entry->section || strcmp(entry->key, key))
			continue;
		new_value = strdup(value);
		new_source = strdup(source);
		if (!new_value || !new_source) {
			free(new_value);
			free(new_source);
			return;
		}
		free(entry->value);
		free(entry->source);
		entry->value = new_value;
		entry->source = new_source;
	}
}

void gm_config_use_options(struct gm_config *config, const char *backend, const char *socket)
{
	if (backend) {
		snprintf(config->backend, sizeof(config->backend), "%s", backend);
		config_policy_replace(config, "backend", backend, "command line (-b)");
	}
	if (socket) {
		snprintf(config->socket, sizeof(config->socket), "%s", socket);
		config_policy_replace(config, "socket", socket, "command line (-s)");
	}
}

bool gm_config_same_start(const struct gm_config *a, const struct gm_config *b)
{
	bool same = !strcmp(a->backend, b->backend) && a->host_limit == b->host_limit &&
		    a->host_memory == b->host_memory && !strcmp(a->socket, b->socket) &&
		    a->socket_mode == b->socket_mode && !strcmp(a->socket_group, b->socket_group);

	for (uint32_t i = 0; i < GM_BOUND_DEVICES; i++)
		same = same && a->devices[i].size == b->devices[i].size;
	return same;
}

char *gm_config_fixed_changes(const struct gm_config *running, struct gm_config *new)
{
	char *text = NULL;
	size_t size = 0;
	FILE *stream = open_memstream(&text, &size);
	if (!stream)
		return NULL;

	const char *comma = "";
#define CHANGED(condition, key) \
	do { \
		if (condition) { \
			fprintf(stream, "%s%s", comma, key); \
			comma = ", "; \
			config_policy_mark(new, "", key, "after a restart"); \
		} \
	} while (0)
	CHANGED(strcmp(running->backend, new->backend), "backend");
	CHANGED(running->host_limit != new->host_limit, "host_limit");
	CHANGED(running->host_memory != new->host_memory, "host_memory");
	CHANGED(strcmp(running->socket, new->socket), "socket");
	CHANGED(running->socket_mode != new->socket_mode, "socket_mode");
	CHANGED(strcmp(running->socket_group, new->socket_group), "socket_group");
#undef CHANGED
	for (uint32_t i = 0; i < GM_BOUND_DEVICES; i++) {
		char section[32];
		if (running->devices[i].size == new->devices[i].size)
			continue;
		snprintf(section, sizeof(section), "device %u", i);
		fprintf(stream, "%ssize of [%s]", comma, section);
		comma = ", ";
		config_policy_mark(new, section, "size", "after a restart");
	}
	int failed = ferror(stream);
	if (fclose(stream) || failed || !size) {
		free(text);
		return NULL;
	}
	return text;
}
