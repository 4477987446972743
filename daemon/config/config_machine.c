/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A configuration, held against the devices of this machine. The file has the daemon's own choice
 * among backends, so that a check finds what the daemon would find.
 */
#include "daemon/config/config_machine.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/arith.h"
#include "common/cuda/cuda.h"
#include "common/log.h"
#include "common/system/path.h"
#include "common/system/platform.h"
#include "common/system/subuid.h"
#include "common/text/uid_name.h"
#include "common/text/units.h"
#include "daemon/backend/backend.h"
#include "daemon/backend/backend_ram.h"

#define UNIT     GM_CONFIG_SERVICE_UNIT
#define VARIABLE "CUDA_VISIBLE_DEVICES"

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
	for (uint32_t i = 0; i < GM_BOUND_DEVICES; i++)
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
	device->total = gm_u64_min(device->total, gm_backend_ram_within(most, files));
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

/* Environment=: assignments; an empty line takes back those before it. */
static void machine_take_environment(void *ctx, const char *value)
{
	struct machine_variable *variable = ctx;
	char word[sizeof(variable->value)];

	if (!*value)
		variable->set = false;
	while ((value = gm_config_service_word(value, word, sizeof(word))))
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
		if (gm_config_service_word(line, word, sizeof(word)))
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

/* Finds out as whom a daemon with this configuration runs. A user of NULL is the user of this process, and "" is not known. */
static void machine_find_user(
	const char *path, struct gm_config_service *service, struct gm_config_known *known)
{
	known->user = NULL;
	if (geteuid() != 0)
		known->user =
			machine_is_of_service(path) && geteuid() >= GM_PATH_USER_UIDS ? "" : NULL;
	if (geteuid() != 0 || path)
		return;
	gm_config_service_read(service);
	if (getpwnam(service->user)) {
		known->user = service->user;
		known->group = service->group;
		known->groups = service->groups;
	}
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

/* ---- users */

static int machine_warn_user(struct gm_config *config, const struct gm_config_limit *limit,
	unsigned uid, unsigned payer_uid)
{
	const char *source = NULL;
	char user[GM_UID_NAME_TEXT];

	for (size_t i = 0; i < GM_LIMIT_N_KINDS && !source; i++)
		source = limit->sources[i];
	return gm_config_service_add(&config->warnings,
		"%s%sthe limit of uid:%u has no effect: it is a subordinate uid of %s, whose limits hold for it; limit uid:%u",
		source ? source : "", source ? ": " : "", uid,
		gm_uid_name_say((uid_t)payer_uid, user), payer_uid);
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
		if (config->limits[i].values.guarantee ||
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
	struct gm_backend_device devices[GM_BOUND_DEVICES];

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
	struct gm_config_service service = {.user = ""};

	machine_find_user(path, &service, &here);
	here.passed = known->listens && machine_passes_socket(path);
	here.listens = known->listens && !here.passed;
	int r = machine_read(path, &here, &config, ret_report, ret_unchecked);
	struct gm_config *said = config ? config : ret_report->rest;
	if (*service.user && ret_report->path) {
		int s = gm_config_service_check(&service, ret_report, said);
		r = s ? s : r;
	}
	/* The configuration of an ordinary user's daemon counts uids by the same files. */
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
