/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A configuration, held against the devices of this machine. The file has the daemon's own choice
 * among backends, so that a check finds what the daemon would find.
 */
#include "daemon/config/config_machine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/arith.h"
#include "common/cuda/cuda.h"
#include "common/log.h"
#include "common/system/platform.h"
#include "common/system/subuid.h"
#include "common/text/uid_name.h"
#include "common/text/units.h"
#include "daemon/backend/backend.h"
#include "daemon/backend/backend_ram.h"
#include "daemon/config/config_account.h"

#define UNIT       GM_CONFIG_MACHINE_UNIT
#define USER       "gpumemd" /* of the unit, unless it says otherwise */
#define NAME       64
#define FIRST_USER 1000 /* uids below are root and system users */
#define VARIABLE   "CUDA_VISIBLE_DEVICES"

/* ---- the devices */

int gm_config_machine_open(const struct gm_config *config, const char *name,
	struct gm_config_machine *ret, char why[256])
{
	/* auto takes the first one that has devices. */
	static const struct gm_backend_ops *const backends[] = {&gm_backend_cuda, &gm_backend_host};
	struct gm_config_machine machine = {0};
	struct gm_backend_config wanted = {
		.host_limit = config->host_limit, .host_memory = config->host_memory};
	int r = -ENODEV;

	name = name ? name : config->backend;
	*why = '\0';
	for (uint32_t i = 0; i < GM_LIMIT_DEVICES; i++)
		wanted.size[i] = config->devices[i].size;
	if (wanted.host_limit == UINT64_MAX)
		wanted.host_limit = gm_backend_ram_quarter();
	wanted.host_limit = wanted.host_limit / GM_CHUNK_MIN * GM_CHUNK_MIN;

	for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]) && r == -ENODEV; i++) {
		if (strcmp(name, "auto") != 0 && strcmp(name, backends[i]->name) != 0)
			continue;
		machine.ops = backends[i];
		r = machine.ops->open(&wanted, &machine.backend, &machine.n, why);
		if (r == -ENODEV && strcmp(name, "auto") == 0)
			snprintf(machine.note, sizeof(machine.note), "%s: %.200s",
				backends[i]->name, why);
	}
	if (r < 0) {
		if (!*why)
			snprintf(why, 256, "there is no backend of this name");
		return r;
	}
	*ret = machine;
	return 0;
}

void gm_config_machine_describe(const struct gm_backend_ops *ops,
	const struct gm_backend_device *devices, uint32_t n, struct gm_config_known *known)
{
	known->n = n;
	known->sized = ops->sized;
	known->ram = gm_backend_ram_total();
	for (uint32_t i = 0; i < n; i++) {
		known->devices[i].uuid = devices[i].pinned ? NULL : devices[i].uuid;
		known->devices[i].pci = devices[i].pci;
		known->devices[i].name = devices[i].name;
		known->devices[i].total = devices[i].total;
		known->devices[i].pinned = devices[i].pinned;
	}
}

/* ---- the service's limits */

struct machine_number {
	bool found;
	uint64_t value;
};

static void machine_take_number(void *ctx, const char *text)
{
	struct machine_number *number = ctx;

	/* A percentage says nothing here. */
	if (!strncmp(text, "infinity", 8)) {
		number->value = UINT64_MAX;
		number->found = true;
	} else if (gm_parse_size(text, &number->value) == 0) {
		number->found = true;
	}
}

bool gm_config_machine_unit(const char *root, const char *key, bool *ret_found, uint64_t *ret)
{
	struct machine_number number = {.value = *ret};
	bool unit = gm_platform_unit(root, UNIT, key, machine_take_number, &number);

	*ret_found = number.found;
	*ret = number.value;
	return unit;
}

/* Pinned host memory that is made of memfds counts as the service's own: it cannot exceed what the unit lets
 * the service use. */
static void machine_bound_pinned(struct gm_backend_device *device)
{
	uint64_t most = UINT64_MAX, files = 0;
	bool found;

	if (!device->pinned || !device->reopened)
		return;
	gm_config_machine_unit(gm_platform_root(), "LimitNOFILE", &found, &files);
	if (!gm_config_machine_unit(gm_platform_root(), "MemoryMax", &found, &most) || !found ||
		most == UINT64_MAX)
		return;
	device->total = gm_min(device->total, gm_backend_ram_within(most, files));
}

/* ---- the service's environment */

struct machine_variable {
	bool set;
	char value[1024];
};

/* Takes the variable from "VARIABLE=value", and leaves any other assignment. */
static void machine_take_assignment(struct machine_variable *variable, const char *text)
{
	size_t n = strlen(VARIABLE);

	if (strncmp(text, VARIABLE, n) != 0 || text[n] != '=')
		return;
	variable->set = true;
	snprintf(variable->value, sizeof(variable->value), "%s", text + n + 1);
}

/* Copies the next word of a line without its quotes. Returns what follows, or NULL if there is none. */
static const char *machine_next_word(const char *at, char *word, size_t size)
{
	size_t n = 0;
	char quote = '\0';

	at += strspn(at, " \t\n");
	if (!*at)
		return NULL;
	for (; *at && (quote || !strchr(" \t\n", *at)); at++) {
		if (quote ? *at == quote : *at == '"' || *at == '\'')
			quote = quote ? '\0' : *at;
		else if (n + 1 < size)
			word[n++] = *at;
	}
	word[n] = '\0';
	return at;
}

/* Environment=: assignments; an empty line takes back those before it. */
static void machine_take_environment(void *ctx, const char *value)
{
	struct machine_variable *variable = ctx;
	char word[sizeof(variable->value)];

	if (!*value)
		variable->set = false;
	while ((value = machine_next_word(value, word, sizeof(word))))
		machine_take_assignment(variable, word);
}

/* EnvironmentFile=: a file with an assignment on each line. */
static void machine_take_file(void *ctx, const char *value)
{
	struct machine_variable *variable = ctx;
	char path[PATH_MAX], line[sizeof(variable->value)], word[sizeof(variable->value)];

	value += *value == '-';
	snprintf(path, sizeof(path), "%s%s", gm_platform_root(), value);
	FILE *file = *value == '/' ? fopen(path, "re") : NULL;
	while (file && fgets(line, sizeof(line), file))
		if (machine_next_word(line, word, sizeof(word)))
			machine_take_assignment(variable, word);
	if (file)
		fclose(file);
}

/* Sees the GPUs that the service sees. */
static void machine_use_service(void)
{
	struct machine_variable variable = {0};
	const char *root = gm_platform_root();

	if (gm_platform_unit(root, UNIT, "Environment", machine_take_environment, &variable))
		gm_platform_unit(root, UNIT, "EnvironmentFile", machine_take_file, &variable);
	if (variable.set)
		setenv(VARIABLE, variable.value, 1);
}

/* Whether the system's service reads this configuration, or may be meant to. */
static bool machine_is_of_service(const char *path)
{
	char system[PATH_MAX];

	snprintf(system, sizeof(system), "%s" GM_CONFIG_SYSTEM_FILE, gm_platform_root());
	return geteuid() == 0 ||
	       (path && (!strcmp(path, system) || !strcmp(path, GM_CONFIG_SYSTEM_FILE)));
}

/* ---- the service's user */

static void machine_take_word(void *ctx, const char *value)
{
	snprintf(ctx, NAME, "%s", value);
}

/* Finds the user that runs a daemon with this configuration. Returns NULL for the user of this process, and "" if that is not
 * known. */
static const char *machine_find_user(const char *path, char user[NAME])
{
	if (geteuid() != 0)
		return machine_is_of_service(path) && geteuid() >= FIRST_USER ? "" : NULL;
	if (path)
		return NULL;
	strcpy(user, USER);
	gm_platform_unit(gm_platform_root(), UNIT, "User", machine_take_word, user);
	return getpwnam(user) ? user : NULL;
}

static void machine_take_listen(void *ctx, const char *value)
{
	(void)value;
	*(bool *)ctx = true;
}

/* Returns whether the service manager makes the socket of a daemon with this configuration. */
static bool machine_passes_socket(const char *path)
{
	const char *root = gm_platform_root();
	char folder[PATH_MAX];
	bool listens = false;

	snprintf(folder, sizeof(folder), "%s/run/systemd/system", root);
	return machine_is_of_service(path) && access(folder, F_OK) == 0 &&
	       gm_platform_unit(root, "gpumemd.socket", "ListenSequentialPacket",
		       machine_take_listen, &listens) &&
	       listens;
}

/* ---- what the service can read */

struct machine_access {
	struct gm_config_report *report;
	const char *user;
	char home[NAME], tmp[NAME]; /* ProtectHome=, PrivateTmp=; "": not set */
};

static int machine_complain(struct gm_config_report *report, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int machine_complain(struct gm_config_report *report, const char *format, ...)
{
	const char *before = report->errors ? report->errors : "";
	char *text = NULL, *more = NULL;
	va_list args;

	va_start(args, format);
	int n = vasprintf(&text, format, args);
	va_end(args);
	if (n < 0)
		return -ENOMEM;
	n = asprintf(&more, "%s%s%s", before, *before ? "\n" : "", text);
	free(text);
	if (n < 0)
		return -ENOMEM;
	free(report->errors);
	report->errors = more;
	return -EACCES;
}

/* Returns whether a path is the folder or below it. */
static bool machine_is_below(const char *path, const char *folder)
{
	size_t n = strlen(folder);

	return !strncmp(path, folder, n) && (!path[n] || path[n] == '/');
}

static bool machine_is_yes(const char *value)
{
	static const char *const words[] = {"yes", "true", "on", "1"};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (!strcasecmp(value, words[i]))
			return true;
	return false;
}

/* Returns the setting of the unit that hides the path from the service, or NULL. */
static const char *machine_hidden_by(const struct machine_access *access, const char *path)
{
	static const char *const homes[] = {"/home", "/root", "/run/user"};
	static const char *const tmps[] = {"/tmp", "/var/tmp"};

	for (size_t i = 0; i < sizeof(homes) / sizeof(*homes); i++)
		if (machine_is_below(path, homes[i]) &&
			(machine_is_yes(access->home) || !strcasecmp(access->home, "tmpfs")))
			return "ProtectHome";
	for (size_t i = 0; i < sizeof(tmps) / sizeof(*tmps); i++)
		if (machine_is_below(path, tmps[i]) &&
			(machine_is_yes(access->tmp) || !strcasecmp(access->tmp, "disconnected")))
			return "PrivateTmp";
	return NULL;
}

static int machine_try_open(const void *path)
{
	return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) < 0 ? -errno : 0;
}

static int machine_try_enter(const void *folder)
{
	return faccessat(AT_FDCWD, folder, X_OK, AT_EACCESS) < 0 ? -errno : 0;
}

/* Finds the first folder above the path that the user may not enter. Returns false if there is none. */
static bool machine_find_closed(const char *user, const char *path, char closed[PATH_MAX])
{
	for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		snprintf(closed, PATH_MAX, "%.*s", slash == path ? 1 : (int)(slash - path), path);
		if (gm_config_account_try(user, machine_try_enter, closed) == -EACCES)
			return true;
	}
	return false;
}

/* Returns 0, -EACCES with a complaint about the file or folder at path, or -ENOMEM. */
static int machine_check_file(const struct machine_access *access, const char *path)
{
	char real[PATH_MAX], closed[PATH_MAX];

	if (!realpath(path, real))
		return 0;
	const char *hides = machine_hidden_by(access, real);
	if (hides)
		return machine_complain(access->report,
			"%s: the service cannot see it: %s%s is hidden from the service (%s= of its unit); copy the file into /etc/gpumemd",
			path, strcmp(real, path) ? "it is a link, and " : "",
			strcmp(real, path) ? real : "it", hides);
	if (gm_config_account_try(access->user, machine_try_open, path) != -EACCES)
		return 0;
	if (machine_find_closed(access->user, path, closed) ||
		machine_find_closed(access->user, real, closed))
		return machine_complain(access->report,
			"%s: cannot be read by the user %s, as which the service runs, because this user may not enter the folder %s; change the mode of this folder, or copy the file into one that the user may enter",
			path, access->user, closed);
	return machine_complain(access->report,
		"%s: cannot be read by the user %s, as which the service runs; change its mode or its owner",
		path, access->user);
}

/*
 * Adds a complaint to report->errors for each file of the configuration, and for the folder of its drop-ins, that the
 * system's service cannot read although root can: because its user may not, or because the unit hides the place from it
 * (ProtectHome=, PrivateTmp=). Returns 0, -EACCES if there is a complaint, or -ENOMEM. For a program with one thread, which
 * runs as root.
 */
static int machine_check_access(struct gm_config_report *report, const char *unit, const char *user)
{
	struct machine_access access = {.report = report, .user = user};
	const char *root = gm_platform_root();
	char path[PATH_MAX];

	gm_platform_unit(root, unit, "ProtectHome", machine_take_word, access.home);
	gm_platform_unit(root, unit, "PrivateTmp", machine_take_word, access.tmp);
	snprintf(path, sizeof(path), "%s.d", report->path);
	int r = machine_check_file(&access, path);
	for (const char *at = report->files ? report->files : "", *end; *at;
		at = *end ? end + 1 : end) {
		end = at + strcspn(at, "\n");
		snprintf(path, sizeof(path), "%.*s", (int)(end - at), at);
		int s = machine_check_file(&access, path);
		r = s ? s : r;
	}
	return r;
}

/* ---- users */

/* Adds a warning. Returns 0 or -ENOMEM. */
static int machine_warn_user(struct gm_config *config, const struct gm_config_limit *limit,
	unsigned uid, unsigned payer_uid)
{
	const char *source = limit->max_source ? limit->max_source : limit->guarantee_source;
	char user[GM_UID_NAME_TEXT], *more;

	if (asprintf(&more,
		    "%s%s%s%sthe limit of uid:%u has no effect: it is a subordinate uid of %s, whose limits hold for it; limit uid:%u",
		    config->warnings, *config->warnings ? "\n" : "", source ? source : "",
		    source ? ": " : "", uid, gm_uid_name_say((uid_t)payer_uid, user),
		    payer_uid) < 0)
		return -ENOMEM;
	free(config->warnings);
	config->warnings = more;
	return 0;
}

/* Warns about limits of uids that somebody else pays for, as the daemon does when it starts. It logs what is wrong with the
 * files of users. */
static int machine_check_users(struct gm_config *config)
{
	const char *root = gm_platform_root();
	gm_log_sink sink = gm_log_get_sink();
	struct gm_subuids subuids = {0};
	char path[PATH_MAX];
	unsigned uid;
	int r = 0;

	if (!config->n_limits)
		return 0;
	snprintf(path, sizeof(path), "%s/etc/passwd", root);
	gm_uid_name_read(path);
	gm_log_set_sink(gm_log_nowhere);
	if (gm_subuids_read(root, &subuids) < 0)
		subuids = (struct gm_subuids){0};
	gm_log_set_sink(sink);
	for (size_t i = 0; i < config->n_limits && r == 0; i++) {
		if (sscanf(config->limits[i].owner, "uid:%u", &uid) != 1)
			continue;
		uid_t payer_uid = gm_subuids_payer(&subuids, uid);
		if (payer_uid != uid)
			r = machine_warn_user(config, &config->limits[i], uid, payer_uid);
	}
	gm_subuids_deinit(&subuids);
	return r;
}

/* ---- the check */

/* Whether limits of this configuration depend on the devices. */
static bool machine_matters(const struct gm_config *config)
{
	for (size_t i = 0; i < config->n_limits; i++)
		if (config->limits[i].guarantee ||
			config->limits[i].device != GM_CONFIG_ALL_DEVICES)
			return true;
	return config->n_devices || config->n_strangers;
}

/* Opens the devices as the daemon does, and discards the messages of the backends: the daemon logs them at its start. Sets
 * *ret_certain to false if the daemon may succeed although this process failed: an installed driver can refuse this user and
 * accept the daemon's user. */
static int machine_look(const struct gm_config *config, const char *backend,
	struct gm_config_machine *ret, bool *ret_certain, char why[256])
{
	gm_log_sink sink = gm_log_get_sink();

	gm_log_set_sink(gm_log_nowhere);
	int r = gm_config_machine_open(config, backend, ret, why);
	gm_log_set_sink(sink);
	if (r == 0 && *ret->note && gm_cuda_lack() == GM_CUDA_BROKEN) {
		snprintf(why, 256, "%.255s", ret->note);
		ret->ops->close(ret->backend);
		r = -ENODEV;
	}
	*ret_certain = r == -ENODEV && gm_cuda_lack() != GM_CUDA_BROKEN;
	return r;
}

/* Reads the configuration again, with the devices of this machine. */
static int machine_read_with(const char *path, struct gm_config_known *full, bool service,
	const struct gm_config_machine *machine, struct gm_config **ret_config,
	struct gm_config_report *report)
{
	struct gm_backend_device devices[GM_LIMIT_DEVICES];

	gm_config_report_deinit(report);
	for (uint32_t i = 0; i < machine->n; i++) {
		machine->ops->device_info(machine->backend, i, &devices[i]);
		if (service && !machine->ops->sized)
			machine_bound_pinned(&devices[i]);
	}
	if (machine->n)
		gm_config_machine_describe(machine->ops, devices, machine->n, full);
	return gm_config_read(path, full, ret_config, report);
}

static int machine_read(const char *path, const struct gm_config_known *known,
	struct gm_config **ret_config, struct gm_config_report *ret_report, char **ret_unchecked)
{
	struct gm_config_known full = *known;
	struct gm_config_machine machine = {0};
	struct gm_config *config = NULL;
	char why[256];
	bool certain;

	*ret_unchecked = NULL;
	int r = gm_config_read(path, known, &config, ret_report);
	const struct gm_config *said = r == 0 ? config : ret_report->rest;
	if (!said || said->devices_doubtful)
		return r;

	bool service = machine_is_of_service(ret_report->path);
	if (service)
		machine_use_service();
	int looked = machine_look(said, known->backend, &machine, &certain, why);
	if (looked < 0 && !certain) {
		if (machine_matters(said) &&
			asprintf(ret_unchecked,
				"not checked: whether limits and sections of devices fit the devices of the daemon, because they cannot be looked at here (%s)",
				why) < 0)
			*ret_unchecked = NULL;
		if (r == 0)
			*ret_config = config;
		return r;
	}

	gm_config_free(config);
	full.lack = looked < 0 ? why : NULL;
	if (looked < 0)
		machine = (struct gm_config_machine){0};
	r = machine_read_with(path, &full, service, &machine, ret_config, ret_report);
	if (looked == 0)
		machine.ops->close(machine.backend);
	return r;
}

int gm_config_machine_read(const char *path, const struct gm_config_known *known,
	struct gm_config **ret_config, struct gm_config_report *ret_report, char **ret_unchecked)
{
	struct gm_config_known here = *known;
	struct gm_config *config = NULL;
	char user[NAME];

	here.user = machine_find_user(path, user);
	here.passed = known->listens && machine_passes_socket(path);
	here.listens = known->listens && !here.passed;
	int r = machine_read(path, &here, &config, ret_report, ret_unchecked);
	if (here.user && *here.user && ret_report->path) {
		int s = machine_check_access(ret_report, UNIT, here.user);
		r = s ? s : r;
	}
	/* The configuration of an ordinary user's daemon counts uids by the same files. */
	struct gm_config *said = config ? config : ret_report->rest;
	if (said && machine_check_users(said) < 0 && r == 0)
		r = -ENOMEM;
	if (r == 0) {
		*ret_config = config;
	} else if (config) {
		gm_config_free(ret_report->rest);
		ret_report->rest = config;
	}
	return r;
}
