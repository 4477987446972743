/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration as a whole: the files in their order, each value checked where it stands, then
 * presets and defaults under what was written, then what only makes sense together. A configuration
 * comes out complete or not at all, and everything that is wrong with it is said in one go. It
 * reads files and touches no socket, so that a configuration can be checked on any machine that
 * knows the users and groups its limits name.
 */
#include "daemon/config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/units.h"
#include "daemon/config_error.h"
#include "daemon/config_file.h"
#include "daemon/config_keys.h"
#include "daemon/config_reader.h"
#include "daemon/config_value.h"

#define SYSTEM_FILE "/etc/gpumemd/gpumemd.conf"
#define FIRST_USER  1000 /* uids below are root and system users */

/* Slot 0 is the general section, slot N + 1 is [device N]; then come those of strangers. */
enum {
	GENERAL,
	FIRST_DEVICE,
	FIRST_STRANGER = FIRST_DEVICE + GM_LIMIT_DEVICES,
	SLOTS = FIRST_STRANGER + GM_CONFIG_STRANGERS
};

struct reader {
	struct gm_config_errors errors;
	const char *file;
	size_t file_order;
	bool named[SLOTS];
	struct gm_config_names names;
	struct gm_config_setting settings[SLOTS][GM_CONFIG_N_KEYS];
	struct gm_config_limits limits;
};

/* What holds in the end: a setting, or a value of a preset. */
struct effective {
	size_t id;
	const struct gm_config_setting *setting; /* NULL: not written anywhere */
	const char *text;
	const char *preset; /* where the text is from, if not from a setting; NULL: the default */
	struct gm_config_value value;
};

#define COMPLAIN(reader, line, ...) \
	gm_config_errors_add( \
		&(reader)->errors, (reader)->file, (reader)->file_order, line, __VA_ARGS__)

/* What a device's section calls it; NULL: it is none. */
static const char *device_of(const char *section)
{
	size_t n = strlen("device");
	if (strncasecmp(section, "device", n) || !strspn(section + n, " \t"))
		return NULL;
	return section + n + strspn(section + n, " \t");
}

/* The slot of a section. -EINVAL: none; -ERANGE, -E2BIG: a device that there cannot be. */
static int slot_of(struct reader *reader, const char *section)
{
	if (!strcasecmp(section, GM_CONFIG_SECTION))
		return GENERAL;
	const char *name = device_of(section);
	uint32_t device;
	int r = name ? gm_config_names_find(&reader->names, name, strlen(name), &device) : -EINVAL;
	return r < 0 ? r : FIRST_DEVICE + (int)device;
}

/* A size is given to a piece of host memory, which has a number and no name that lasts. */
static bool may_have_size(const char *section)
{
	const char *name = device_of(section);
	return name && !name[strspn(name, "0123456789")];
}

static const char *nth_section(void *ctx, size_t i)
{
	static const char *const names[] = {
		GM_CONFIG_SECTION, "device 0", "limit uid:0", "device 0 limit uid:0"};
	return names[i];
}

static int on_section(void *ctx, const char *section, uint32_t line)
{
	struct reader *reader = ctx;
	char shown[GM_CONFIG_SHOW_BYTES];
	if (gm_config_limit_named(section))
		return gm_config_limit_section(&reader->limits, &reader->errors, reader->file,
			reader->file_order, line, section);
	int slot = slot_of(reader, section), r;
	if (slot >= 0) {
		reader->named[slot] = true;
		return 0;
	}
	gm_config_shown(section, shown);
	if (slot != -EINVAL) {
		char why[GM_CONFIG_WHY_BYTES];
		gm_config_names_why(slot, why);
		r = COMPLAIN(reader, line, "[%s]: %s", shown, why);
	} else {
		const char *nearest = gm_config_nearest(section, nth_section, NULL, 4);
		r = COMPLAIN(reader, line, "[%s]: unknown section; %s[%s]%s", shown,
			nearest ? "did you mean "
				: "there are [" GM_CONFIG_SECTION
				  "], [device N], [limit OWNER] and ",
			nearest ? nearest : "device N limit OWNER", nearest ? "?" : "");
	}
	return r < 0 ? r : 1;
}

static int find_key(const char *name)
{
	for (size_t i = 0; i < GM_CONFIG_N_KEYS; i++)
		if (!strcasecmp(gm_config_key(i)->name, name))
			return (int)i;
	return -1;
}

static enum gm_config_place place_of(int slot)
{
	return slot == GENERAL ? GM_CONFIG_GENERAL : GM_CONFIG_DEVICE;
}

static const char *home_of(const struct gm_config_key *key)
{
	if (key->place & GM_CONFIG_GENERAL)
		return "[" GM_CONFIG_SECTION "]";
	return key->place & GM_CONFIG_DEVICE ? "a [device N] section" : "a [limit OWNER] section";
}

static const char *nth_key(void *ctx, size_t i)
{
	const struct gm_config_key *key = gm_config_key(i);
	return key->place & *(enum gm_config_place *)ctx ? key->name : NULL;
}

static int on_key(void *ctx, const char *section, const char *name, uint32_t line)
{
	struct reader *reader = ctx;
	char shown[GM_CONFIG_SHOW_BYTES];
	enum gm_config_place place = gm_config_limit_named(section)
					     ? GM_CONFIG_LIMIT
					     : place_of(slot_of(reader, section));
	int id = find_key(name), r;
	bool unsized =
		id == GM_CONFIG_KEY_SIZE && place == GM_CONFIG_DEVICE && !may_have_size(section);
	if (id >= 0 && gm_config_key(id)->place & place && !unsized)
		return 0;
	gm_config_shown(name, shown);
	if (unsized) {
		r = COMPLAIN(reader, line,
			"%s: is for host memory, which goes by number: [device N]", shown);
	} else if (id >= 0) {
		r = COMPLAIN(reader, line, "%s: belongs into %s, not into [%s]", shown,
			home_of(gm_config_key(id)), section);
	} else {
		const char *nearest = gm_config_nearest(name, nth_key, &place, GM_CONFIG_N_KEYS);
		r = nearest ? COMPLAIN(reader, line, "%s: unknown key; did you mean %s?", shown,
				      nearest)
			    : COMPLAIN(reader, line, "%s: unknown key; see gpumemd.conf(5)", shown);
	}
	return r < 0 ? r : 1;
}

static int on_value(
	void *ctx, const char *section, const char *name, const char *text, uint32_t line)
{
	struct reader *reader = ctx;
	struct gm_config_limit_section *limit = gm_config_limit_find(&reader->limits, section);
	int slot = limit ? -EINVAL : slot_of(reader, section), id = find_key(name);
	if ((slot < 0 && !limit) || id < 0)
		return COMPLAIN(reader, line, "%s: unknown", name); /* refused before by on_key() */
	const struct gm_config_key *key = gm_config_key(id);
	struct gm_config_setting *setting =
		limit ? &limit->settings[id] : &reader->settings[slot][id];
	if (setting->text && setting->file_order == reader->file_order)
		return COMPLAIN(reader, line, "%s: is set twice, on line %u already", key->name,
			setting->line);

	struct gm_config_setting new = {.text = strdup(text),
		.file = strdup(reader->file),
		.file_order = reader->file_order,
		.line = line};
	char why[GM_CONFIG_WHY_BYTES];
	int r = -ENOMEM;
	if (new.text &&new.file)
		r = gm_config_value_parse(key, new.text, &new.value, why);
	if (r > 0) {
		r = COMPLAIN(reader, line, "%s: %s", key->name, why);
		/* It stays noted as written, so that a second one is a second one. */
		if (r == 0)
			r = gm_config_value_parse(key, key->presets[0], &new.value, why);
	}
	if (r < 0) {
		gm_config_setting_deinit(&new);
		return r;
	}
	gm_config_setting_deinit(setting);
	*setting = new;
	return 0;
}

static const struct gm_config_file_ops file_ops = {
	.section = on_section, .key = on_key, .value = on_value};

static int read_file(struct reader *reader, const char *path)
{
	reader->file = path;
	reader->file_order++;
	return gm_config_file_read(path, reader->file_order, &file_ops, reader, &reader->errors);
}

static int is_drop_in(const struct dirent *entry)
{
	size_t n = strlen(entry->d_name);
	return entry->d_name[0] != '.' && n > 5 && !strcmp(entry->d_name + n - 5, ".conf");
}

/* By bytes, whatever the locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* Each drop-in is read even if another could not be; the first failure is returned. */
static int read_drop_ins(struct reader *reader, const char *path)
{
	char *folder = NULL;
	if (asprintf(&folder, "%s.d", path) < 0)
		return -ENOMEM;
	struct dirent **list = NULL;
	int n = scandir(folder, &list, is_drop_in, by_name), first = 0;
	if (n < 0 && errno != ENOENT) {
		first = -errno;
		reader->file = folder;
		reader->file_order++;
		int r = first == -ENOMEM
				? 0
				: COMPLAIN(reader, 0, "cannot be read: %s", strerror(-first));
		first = r < 0 ? r : first;
	}
	for (int i = 0; i < n; i++) {
		char *file = NULL;
		int r = asprintf(&file, "%s/%s", folder, list[i]->d_name) < 0 ? -ENOMEM : 0;
		if (r == 0) {
			r = read_file(reader, file);
			free(file);
		}
		first = first && r != -ENOMEM ? first : r;
		free(list[i]);
	}
	free(list);
	free(folder);
	return first;
}

static struct effective effective(const struct reader *reader, size_t id, int slot, size_t preset)
{
	static const char *const presets[GM_CONFIG_N_PRESETS] = {NULL, "inference", "constrained"};
	const struct gm_config_key *key = gm_config_key(id);
	const struct gm_config_setting *setting = &reader->settings[slot][id];
	if (!setting->text && key->place & GM_CONFIG_GENERAL)
		setting = &reader->settings[GENERAL][id];
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
static int complain_about(struct reader *reader, const struct effective *a,
	const struct effective *b, const char *format, ...) __attribute__((format(printf, 4, 5)));

static int complain_about(struct reader *reader, const struct effective *a,
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

static int check_pressure(struct reader *reader, size_t preset)
{
	static const size_t ids[] = {GM_CONFIG_KEY_PRESSURE_MEDIUM, GM_CONFIG_KEY_PRESSURE_HIGH,
		GM_CONFIG_KEY_PRESSURE_CRITICAL};
	struct effective e[3];
	for (size_t i = 0; i < 3; i++)
		e[i] = effective(reader, ids[i], GENERAL, preset);
	for (size_t i = 0; i < 2; i++) {
		if (e[i].value.number < e[i + 1].value.number)
			continue;
		int r = complain_about(reader, &e[i], &e[i + 1],
			"the levels are out of order: %s (%s) must be below %s (%s)",
			gm_config_key(ids[i])->name, e[i].text, gm_config_key(ids[i + 1])->name,
			e[i + 1].text);
		if (r < 0)
			return r;
	}
	struct effective hysteresis =
		effective(reader, GM_CONFIG_KEY_PRESSURE_HYSTERESIS, GENERAL, preset);
	if (hysteresis.value.number < e[0].value.number)
		return 0;
	return complain_about(reader, &hysteresis, &e[0],
		"pressure_hysteresis (%s) must be below pressure_medium (%s), or pressure is never low again",
		hysteresis.text, e[0].text);
}

static int check_slot(struct reader *reader, int slot, size_t preset)
{
	struct effective size = effective(reader, GM_CONFIG_KEY_SIZE, slot, preset);
	struct effective min_free = effective(reader, GM_CONFIG_KEY_MIN_FREE, slot, preset);
	struct effective pool = effective(reader, GM_CONFIG_KEY_MAX_POOL, slot, preset);
	struct effective reserve = effective(reader, GM_CONFIG_KEY_RESERVE, slot, preset);
	struct effective transport = effective(reader, GM_CONFIG_KEY_TRANSPORT, GENERAL, preset);
	struct effective backend = effective(reader, GM_CONFIG_KEY_BACKEND, GENERAL, preset);
	int r = 0;
	if (slot != GENERAL && size.value.number && !strcmp(backend.text, "cuda"))
		r = complain_about(reader, &size, &backend,
			"a GPU is as large as it is: [device %d] can have a size on the host backend only, and backend is %s",
			slot - FIRST_DEVICE, backend.text);
	if (slot != GENERAL && size.value.number && size.value.number <= min_free.value.number)
		r = complain_about(reader, &size, &min_free,
			"a size of %s leaves nothing to give out, because min_free is %s",
			size.text, min_free.text);
	/* One that was not written gives way to the other; two that were contradict each other. */
	bool own = reader->settings[slot][GM_CONFIG_KEY_MAX_POOL].text ||
		   reader->settings[slot][GM_CONFIG_KEY_RESERVE].text;
	if (r >= 0 && own && pool.setting && reserve.setting && !pool.value.share &&
		reserve.value.number > pool.value.number)
		r = complain_about(reader, &pool, &reserve,
			"the reserve (%s) is a part of the pool and cannot be more than max_pool (%s)",
			reserve.text, pool.text);
	/* By default it gives way, too (broker.c). */
	bool first = slot == GENERAL || reader->settings[slot][GM_CONFIG_KEY_RESERVE].text;
	if (r >= 0 && first && reserve.setting && reserve.value.number &&
		transport.value.number == GM_TRANSPORT_IPC)
		r = complain_about(reader, &reserve, &transport,
			"the reserve (%s) is memory of the fd transport, which nobody is given by transport = ipc, and of ipc none is made before somebody asks; leave one of the two out",
			reserve.text);
	return r;
}

/* Host devices are numbered without gaps; device 0 is there without being given a size. */
static int check_gaps(struct reader *reader)
{
	int missing = 0, r = 0;
	for (int i = 1; i < GM_LIMIT_DEVICES && r >= 0; i++) {
		const struct gm_config_setting *size =
			&reader->settings[FIRST_DEVICE + i][GM_CONFIG_KEY_SIZE];
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

static int check(struct reader *reader, size_t preset)
{
	int r = check_pressure(reader, preset);
	for (int slot = 0; slot < SLOTS && r >= 0; slot++)
		r = check_slot(reader, slot, preset);
	if (r >= 0)
		r = check_gaps(reader);
	return r < 0 ? r : gm_config_limits_check(&reader->limits, &reader->errors);
}

static int add_entry(
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

static int fill_entries(const struct reader *reader, size_t preset, struct gm_config *config)
{
	config->entries = calloc((size_t)SLOTS * GM_CONFIG_N_KEYS, sizeof(*config->entries));
	if (!config->entries)
		return -ENOMEM;
	for (int slot = 0; slot < SLOTS; slot++) {
		char section[GM_DEVICE_NAME_TEXT + 16] = "", name[GM_DEVICE_NAME_TEXT];
		if (slot != GENERAL) {
			if (!reader->named[slot])
				continue;
			snprintf(section, sizeof(section), "device %s",
				gm_config_names_text(
					&reader->names, (uint32_t)(slot - FIRST_DEVICE), name));
		}
		for (size_t id = 0; id < GM_CONFIG_N_KEYS; id++) {
			if (!(gm_config_key(id)->place & place_of(slot)))
				continue;
			struct effective e = effective(reader, id, slot, preset);
			int r = add_entry(config, section, id, &e);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

static void fill_device(
	const struct reader *reader, size_t preset, int slot, struct gm_config_device *device)
{
#define NUMBER(key) effective(reader, GM_CONFIG_KEY_##key, slot, preset).value.number
	struct effective pool = effective(reader, GM_CONFIG_KEY_MAX_POOL, slot, preset);
	device->size = NUMBER(SIZE);
	device->max_pool_share = pool.value.share ? pool.value.fraction : -1;
	device->policy = (struct gm_policy){
		.fraction = effective(reader, GM_CONFIG_KEY_FRACTION, slot, preset).value.fraction,
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

static void copy(char *to, size_t size, const struct effective *e)
{
	/* The parsers hold these to less than the room. */
	snprintf(to, size, "%s", e->value.text ? e->value.text : e->text);
}

static int fill(const struct reader *reader, size_t preset, struct gm_config *config)
{
#define EFFECTIVE(key) effective(reader, GM_CONFIG_KEY_##key, GENERAL, preset)
	struct effective e = EFFECTIVE(PRESET);
	copy(config->preset, sizeof(config->preset), &e);
	e = EFFECTIVE(BACKEND);
	copy(config->backend, sizeof(config->backend), &e);
	e = EFFECTIVE(SOCKET);
	copy(config->socket, sizeof(config->socket), &e);
	e = EFFECTIVE(SOCKET_GROUP);
	copy(config->socket_group, sizeof(config->socket_group), &e);
	e = EFFECTIVE(ADMIN_GROUP);
	copy(config->admin_group, sizeof(config->admin_group), &e);
	config->socket_mode = (mode_t)EFFECTIVE(SOCKET_MODE).value.number;
	config->trust = (enum gm_trust)EFFECTIVE(TRUST).value.number;
	config->transport = (enum gm_transport)EFFECTIVE(TRANSPORT).value.number;
	config->track = (enum gm_track)EFFECTIVE(TRACK).value.number;
	config->host_limit = EFFECTIVE(HOST_LIMIT).value.number;
	config->decay_ns = EFFECTIVE(DECAY).value.number;
	config->hello_deadline_ns = EFFECTIVE(HELLO_DEADLINE).value.number;
	config->terminate_grace_ns = EFFECTIVE(TERMINATE_GRACE).value.number;
	config->connections_per_uid = (uint32_t)EFFECTIVE(CONNECTIONS_PER_UID).value.number;
#undef EFFECTIVE
	fill_device(reader, preset, GENERAL, &config->pinned);
	for (int i = 0; i < GM_LIMIT_DEVICES; i++) {
		fill_device(reader, preset, FIRST_DEVICE + i, &config->devices[i]);
		if (reader->named[FIRST_DEVICE + i])
			config->n_devices = i + 1;
	}
	config->n_strangers = reader->names.n;
	for (uint32_t i = 0; i < reader->names.n; i++)
		strcpy(config->strangers[i], reader->names.strangers[i].text);
	int r = fill_entries(reader, preset, config);
	return r < 0 ? r : gm_config_limits_fill(&reader->limits, config);
}

/* The file when none is named. *ret_path is NULL when there is nowhere to look. */
static int default_path(char **ret_path)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	char *path = NULL;
	int n = 0;
	if (getuid() < FIRST_USER)
		n = asprintf(&path, "%s", SYSTEM_FILE);
	else if (config && config[0] == '/')
		n = asprintf(&path, "%s/gpumemd/gpumemd.conf", config);
	else if (home && home[0] == '/')
		n = asprintf(&path, "%s/.config/gpumemd/gpumemd.conf", home);
	if (n < 0)
		return -ENOMEM;
	*ret_path = path;
	return 0;
}

static int read_all(struct reader *reader, const char *path)
{
	char *found = NULL;
	int r = 0;
	bool missing = false;
	if (!path) {
		r = default_path(&found);
		if (r < 0 || !found)
			return r;
		path = found;
		/* Only a file that is not there may be missing; one that cannot be reached is told.
		 */
		struct stat st;
		missing = lstat(path, &st) < 0 && (errno == ENOENT || errno == ENOTDIR);
	}
	if (!missing)
		r = read_file(reader, path);
	if (r != -ENOMEM) {
		int s = read_drop_ins(reader, path);
		r = r && s != -ENOMEM ? r : s;
	}
	free(found);
	return r;
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
	struct reader *reader = calloc(1, sizeof(*reader));
	if (reader) {
		reader->names.known = known;
		reader->limits.names = &reader->names;
	}
	int r = reader ? read_all(reader, path) : -ENOMEM;
	if (r != -ENOMEM) {
		size_t preset = 0;
		const struct gm_config_setting *setting =
			&reader->settings[GENERAL][GM_CONFIG_KEY_PRESET];
		if (setting->text)
			preset = setting->value.number;
		/* What goes together is judged only once each by itself is right: a refused value
		 * stands in for nothing. */
		int s = reader->errors.n ? 0 : check(reader, preset);
		if (s == 0 && reader->errors.n && r == 0)
			r = -EINVAL;
		if (s < 0)
			r = s;
		if (r == 0) {
			config = calloc(1, sizeof(*config));
			r = config ? fill(reader, preset, config) : -ENOMEM;
		}
	}
	if (r < 0 && r != -ENOMEM) {
		int s = gm_config_errors_text(&reader->errors, &text);
		r = s < 0 ? s : r;
	}
	if (reader) {
		for (int slot = 0; slot < SLOTS; slot++)
			for (size_t id = 0; id < GM_CONFIG_N_KEYS; id++)
				gm_config_setting_deinit(&reader->settings[slot][id]);
		gm_config_limits_deinit(&reader->limits);
		gm_config_errors_deinit(&reader->errors);
		free(reader);
	}
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
