/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Applies the configuration to the parts of the daemon: at the start, and again when it is reloaded. A
 * new configuration is applied as a whole, or not at all. Settings that have no effect here are warned
 * about.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/arith.h"
#include "common/log.h"
#include "common/system/platform.h"
#include "common/text/uid_name.h"
#include "common/text/units.h"
#include "daemon/broker_private.h"
#include "daemon/config/config_account.h"
#include "daemon/config/config_machine.h"
#include "daemon/serve/admin_daemon.h"
#include "daemon/serve/admin_limits.h"
#include "daemon/serve/journal.h"
#include "daemon/serve/watch.h"
#include "daemon/service.h"
#include "daemon/tenant/client_news.h"

#define CONFIG_RESTART_FAILS "a restart would fail: "

gid_t gm_broker_config_group(const char *name)
{
	gid_t gid;

	return name[0] && gm_config_account_group(name, &gid) ? gid : (gid_t)-1;
}

/* Warns about limits of uids that somebody else pays for. */
static void config_check_users(const struct gm_broker *broker)
{
	for (size_t i = 0; i < broker->config->n_limits; i++) {
		char user[GM_UID_NAME_TEXT];
		unsigned uid;
		if (sscanf(broker->config->limits[i].owner, "uid:%u", &uid) != 1)
			continue;

		uid_t payer_uid = gm_subuids_payer(&broker->hub.subuids, uid);
		if (payer_uid != uid)
			gm_log(GM_LOG_WARNING,
				"the limit of uid:%u has no effect: it is a subordinate uid of %s, whose limits hold for it; limit uid:%u",
				uid, gm_uid_name_say(payer_uid, user), (unsigned)payer_uid);
	}
}

void gm_broker_config_read_names(void)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/etc/passwd", gm_platform_root());
	gm_uid_name_read(path);
}

/* Reads who has which name, who pays for whom, and who administers or observes. */
static void config_read_users(const struct gm_config *config, struct gm_broker_reading *reading)
{
	gm_broker_config_read_names();
	reading->subuids_known = gm_subuids_read(gm_platform_root(), &reading->subuids) == 0;
	reading->admin_group = gm_broker_config_group(config->admin_group);
	reading->observer_group = gm_broker_config_group(config->observer_group);
}

static void config_apply_users(struct gm_broker *broker, struct gm_broker_reading *reading)
{
	const struct gm_config *config = broker->config;

	broker->serve.admin_group = reading->admin_group;
	broker->serve.observer_group = reading->observer_group;
	if (reading->subuids_known) {
		gm_subuids_deinit(&broker->hub.subuids);
		broker->hub.subuids = reading->subuids;
		reading->subuids_known = false;
	}
	config_check_users(broker);
	gm_listeners_set_bounds(&broker->front, config);
	gm_clients_set_bound(&broker->clients, config->connections_per_uid);
}

void gm_broker_config_apply_users(struct gm_broker *broker)
{
	config_read_users(broker->config, &broker->reading);
	config_apply_users(broker, &broker->reading);
}

void gm_broker_config_log(enum gm_log_level level, const char *text)
{
	for (const char *end; *text; text = *end ? end + 1 : end) {
		end = text + strcspn(text, "\n");
		if (end > text)
			gm_log(level, "%.*s", (int)(end - text), text);
	}
}

void gm_broker_config_use(struct gm_broker *broker, struct gm_config *config)
{
	broker->config = config;
	broker->serve.config = config;
}

void gm_broker_config_policy(
	const struct gm_broker *broker, uint32_t device, struct gm_policy *ret_policy)
{
	const struct gm_backend_device *info = &broker->serve.devices[device];
	if (info->pinned)
		gm_config_pinned_policy(broker->config, info->total, ret_policy);
	else
		gm_config_policy(broker->config, device, info->total, ret_policy);

	/* The setting is about GPUs: host memory has one transport only. */
	if (!info->pinned && strcmp(broker->ops->name, "host") != 0)
		ret_policy->transport = broker->config->transport;
	/* The reserve is fd chunks, which clients of this device get only if they ask for fd. */
	if (gm_policy_transport(ret_policy, GM_TRANSPORT_AUTO, info->transport_fd) !=
		GM_TRANSPORT_FD)
		ret_policy->reserve = 0;
}

/* Warns if the files say who may connect, but do not decide it. */
static void config_check_dropped(const struct gm_broker *broker)
{
	const char *keys = broker->config->dropped;

	if (*keys)
		gm_log(GM_LOG_WARNING,
			"%s: no effect, because the service manager makes the socket: see THE SERVICE in gpumemd(8) for its mode and its group",
			keys);
}

/* Warns at the start, not when it is too late, if oom = terminate cannot work. */
static void config_check_oom(const struct gm_broker *broker)
{
	bool wanted = false;
	for (uint32_t i = 0; i < broker->serve.n_devices; i++) {
		struct gm_policy policy;
		gm_broker_config_policy(broker, i, &policy);
		wanted = wanted || policy.oom == GM_POLICY_OOM_TERMINATE;
	}
	if (!wanted || gm_client_terminator_may())
		return;
	const char *const fields[] = {"MESSAGE_ID=" GM_MESSAGE_POWERLESS, NULL};
	gm_log_fields(GM_LOG_WARNING, fields,
		"oom = terminate: this daemon cannot end clients of other users, because it has no "
		"CAP_KILL; see ENDING CLIENTS in gpumemd(8)");
}

void gm_broker_config_check(const struct gm_broker *broker)
{
	gm_broker_config_log(GM_LOG_WARNING, broker->config->warnings);
	config_check_dropped(broker);
	config_check_oom(broker);
}

/* Warns if the next start, with this configuration, gives up what clients hold on GPUs. */
static void config_warn_backend(const struct gm_broker *broker, const struct gm_config *config)
{
	char text[GM_UNITS_TEXT];
	uint64_t bytes = 0;

	if (broker->options->backend || strcmp(config->backend, "host") != 0 ||
		strcmp(broker->ops->name, "host") == 0)
		return;
	for (uint32_t i = 0; i < broker->serve.n_devices; i++) {
		struct gm_device_figures figures;
		gm_core_device_figures(broker->core, i, &figures);
		if (!broker->serve.devices[i].pinned)
			bytes += figures.leased + figures.quarantined;
	}
	if (bytes)
		gm_log(GM_LOG_WARNING,
			"backend = host: clients hold %s on GPUs, which the next start gives up; end these clients before it, or set the backend back",
			gm_format_size(bytes, text));
}

/* Applies a new configuration. Returns false and changes nothing if core refuses its limits; detail says why. Takes ownership of the configuration on success; detail then names the keys that need a restart. */
static bool config_change(
	struct gm_broker *broker, struct gm_config *config, char detail[GM_DETAIL_BYTES])
{
	struct gm_config *old = broker->config;
	struct gm_policy policies[GM_BOUND_DEVICES];
	gm_broker_config_use(broker, config);
	for (uint32_t i = 0; i < broker->serve.n_devices; i++)
		gm_broker_config_policy(broker, i, &policies[i]);
	gm_broker_config_use(broker, old);
	if (gm_admin_configure(broker->core, config, policies, detail) != GPUMEM_OK) {
		gm_log(GM_LOG_ERROR, "limits: %s", detail);
		return false;
	}
	gm_broker_config_use(broker, config);

	char *fixed = gm_config_fixed_changes(broker->started, config);
	if (fixed)
		gm_log(GM_LOG_WARNING, "these changes need a restart: %s", fixed);
	config_warn_backend(broker, config);
	gm_text_say(detail, "%s", fixed ? fixed : "");
	free(fixed);
	config_apply_users(broker, &broker->reading);
	if (old != broker->started)
		gm_config_free(old);
	gm_broker_config_check(broker);
	gm_clients_limits_changed(&broker->clients);
	gm_watch_limits(&broker->serve, NULL, "",
		"as in the new configuration, except those set at run time", 0);
	return true;
}

/* Reads the configuration for the first n of the devices in use. */
static int config_read_for(const struct gm_broker *broker, uint32_t n,
	struct gm_config **ret_config, struct gm_config_report *ret_report)
{
	struct gm_config_known known = {.backend = broker->options->backend};
	gm_config_machine_describe(broker->ops, broker->serve.devices, n, &known);
	int r = gm_config_read(broker->options->config_path, &known, ret_config, ret_report);
	struct gm_config *said = r == 0 ? *ret_config : ret_report->rest;
	bool own = broker->front.endpoint.own;
	if (said && !own)
		gm_config_drop_socket(said);
	if (said)
		gm_config_use_options(
			said, broker->options->backend, own ? broker->options->socket : NULL);
	return r;
}

int gm_broker_config_load(
	const struct gm_broker *broker, uint32_t n, struct gm_config **ret_config, char **ret_error)
{
	struct gm_config_report report;
	int r = config_read_for(broker, n, ret_config, &report);
	if (r < 0) {
		*ret_error = report.errors;
		report.errors = NULL;
	}
	gm_config_report_deinit(&report);
	return r;
}

void gm_broker_config_status(const struct gm_broker *broker, char text[256])
{
	uint32_t n = broker->serve.n_devices;
	bool pinned = n && broker->serve.devices[n - 1].pinned;
	n -= pinned;
	snprintf(text, 256, "Serving %u device%s (%s)%s on %.150s", n, n == 1 ? "" : "s",
		broker->ops->name, pinned ? " and pinned host memory" : "",
		broker->front.endpoint.path);
}

/* Interval between attempts to send READY=1 while the socket of the service manager is full. */
#define GM_BROKER_READY_MS 50

static void config_on_ready(uv_timer_t *timer)
{
	gm_broker_config_say_ready(timer->data);
}

void gm_broker_config_say_ready(struct gm_broker *broker)
{
	char status[256];

	gm_broker_config_status(broker, status);
	if (!gm_service_ready(status) && !broker->stopping)
		uv_timer_start(&broker->ready, config_on_ready, GM_BROKER_READY_MS, 0);
}

/* Says why a file is refused that fits the devices after a restart, and what to do. */
static const char *config_restart_helps(const struct gm_broker *broker)
{
	return broker->front.endpoint.own
		       ? "the devices change only at a restart, which this file fits: restart the daemon"
		       : "the devices change only at a restart, which this file fits: 'systemctl restart gpumemd'";
}

/* Writes the first of the mistakes, how many more there are, and what a restart has to do with them. */
static void config_say_mistakes(
	const struct gm_broker *broker, const char *text, char detail[GM_DETAIL_BYTES])
{
	enum gm_broker_restart restart = broker->reading.restart;
	const char *before = restart == GM_BROKER_RESTART_FAILS ? CONFIG_RESTART_FAILS : "";
	size_t first = strcspn(text, "\n"), more = 0;
	char rest[192], count[64] = "";

	for (const char *at = text + first; *at; at += strcspn(at, "\n")) {
		at += strspn(at, "\n");
		more += *at != '\0';
	}
	if (more)
		snprintf(count, sizeof(count), " (and %zu more: see the daemon's log)", more);
	snprintf(rest, sizeof(rest), "%s%s%s", count,
		restart == GM_BROKER_RESTART_HELPS ? "; " : "",
		restart == GM_BROKER_RESTART_HELPS ? config_restart_helps(broker) : "");
	size_t room = GM_DETAIL_BYTES - 1 - strlen(before) - strlen(rest);
	gm_text_say(detail, "%s%.*s%s", before, (int)gm_u64_min(first, room), text, rest);
}

/* Applies what was read. Returns false if everything stays as it was; detail says the first cause. On success, detail
 * names the keys that need a restart. */
static bool config_take(struct gm_broker *broker, char detail[GM_DETAIL_BYTES])
{
	struct gm_broker_reading *reading = &broker->reading;

	if (reading->result < 0) {
		config_say_mistakes(broker,
			reading->error ? reading->error : strerror(-reading->result), detail);
		if (reading->restart == GM_BROKER_RESTART_FAILS)
			gm_log(GM_LOG_ERROR, "the daemon would not start with this configuration:");
		if (reading->error)
			gm_broker_config_log(GM_LOG_ERROR, reading->error);
		if (reading->restart == GM_BROKER_RESTART_HELPS)
			gm_log(GM_LOG_ERROR, "%s", config_restart_helps(broker));
	} else if (config_change(broker, reading->config, detail)) {
		reading->config = NULL;
		gm_log(GM_LOG_INFO, "configuration reloaded");
		return true;
	}
	gm_log(GM_LOG_ERROR, "the configuration stays as it was");
	return false;
}

/* Frees what was not applied. */
static void config_drop_read(struct gm_broker_reading *reading)
{
	if (reading->subuids_known)
		gm_subuids_deinit(&reading->subuids);
	reading->subuids_known = false;
	gm_config_free(reading->config);
	reading->config = NULL;
	free(reading->error);
	reading->error = NULL;
}

/* Reads the configuration as a start would, with the devices that it makes. Returns 0 or the negative errno that the
 * start would end with, and then writes why; 1 if this cannot be known. */
static int config_try_restart(
	const struct gm_broker *broker, const struct gm_config *said, char **ret_error)
{
	const struct gm_broker_options *options = broker->options;
	struct gm_config_known known = {.backend = options->backend,
		.listens = broker->front.endpoint.own && !options->socket};
	struct gm_backend_device devices[GM_BOUND_DEVICES];
	struct gm_config_machine machine = {0};
	struct gm_config *config = NULL;
	char why[256];

	int r = gm_config_machine_open(said, options->backend, &machine, why);
	if (r < 0 && r != -ENODEV)
		return 1;
	known.lack = r < 0 ? why : NULL;
	for (uint32_t i = 0; r == 0 && i < machine.n; i++)
		machine.ops->device_info(machine.backend, i, &devices[i]);
	if (r == 0)
		gm_config_machine_describe(machine.ops, devices, machine.n, &known);
	int s = gm_config_load_for(options->config_path, &known, &config, ret_error);
	gm_config_free(config);
	if (r == 0)
		machine.ops->close(machine.backend);
	return s;
}

/* Compares what was read with the devices of a restart, if the files ask for others than those in use. What only the one
 * or only the other contradicts is a mistake, too: a crash must not find a configuration that no daemon starts with. */
static void config_judge_restart(const struct gm_broker *broker, const struct gm_config *said,
	struct gm_broker_reading *reading)
{
	char *error = NULL;

	if (!said || said->devices_doubtful || gm_config_same_start(broker->started, said))
		return;
	int r = config_try_restart(broker, said, &error);
	if (r == 0 && reading->result < 0)
		reading->restart = GM_BROKER_RESTART_HELPS;
	if (r < 0 && r != -ENOMEM) {
		if (reading->result == 0)
			reading->restart = GM_BROKER_RESTART_FAILS;
		reading->result = r;
		free(reading->error);
		reading->error = error;
		error = NULL;
	}
	free(error);
}

static void *config_read_again(void *argument)
{
	struct gm_broker *broker = argument;
	struct gm_broker_reading *reading = &broker->reading;
	struct gm_config_report report;

	gm_config_account_stay_local();
	reading->restart = GM_BROKER_RESTART_SAME;
	reading->result =
		config_read_for(broker, broker->serve.n_devices, &reading->config, &report);
	reading->error = report.errors;
	report.errors = NULL;
	config_judge_restart(broker, reading->config ? reading->config : report.rest, reading);
	gm_config_report_deinit(&report);
	if (reading->result == 0)
		config_read_users(reading->config, reading);
	uv_async_send(&reading->done); /* cannot fail */
	return NULL;
}

static void config_on_read(uv_async_t *done)
{
	struct gm_broker *broker = done->data;
	struct gm_broker_reading *reading = &broker->reading;
	char detail[GM_DETAIL_BYTES];

	if (!reading->under_way)
		return;
	if (reading->threaded)
		pthread_join(reading->thread, NULL);
	reading->under_way = false;
	if (!broker->stopping) {
		bool changed = config_take(broker, detail);
		gm_broker_config_say_ready(broker);
		gm_admin_reloaded(&broker->serve, changed, detail);
	}
	config_drop_read(reading);
	if (reading->again && !broker->stopping)
		(void)gm_broker_config_reload(broker);
}

int gm_broker_config_init_reload(struct gm_broker *broker)
{
	broker->reading.done.data = broker;
	return uv_async_init(&broker->loop, &broker->reading.done, config_on_read);
}

bool gm_broker_config_reload(struct gm_broker *broker)
{
	struct gm_broker_reading *reading = &broker->reading;
	sigset_t all, before;

	reading->again = reading->under_way;
	if (reading->under_way)
		return false;
	gm_service_reloading();
	reading->under_way = true;
	/* Signals are for the loop. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	reading->threaded = pthread_create(&reading->thread, NULL, config_read_again, broker) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!reading->threaded)
		config_read_again(broker);
	return true;
}

void gm_broker_config_end_reload(struct gm_broker *broker)
{
	struct gm_broker_reading *reading = &broker->reading;

	if (reading->under_way && reading->threaded)
		pthread_join(reading->thread, NULL);
	reading->under_way = false;
	config_drop_read(reading);
}
