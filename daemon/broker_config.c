/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Applies the configuration to the parts of the daemon: at the start, and again when it is reloaded. A
 * new configuration is applied as a whole, or not at all. Settings that have no effect here are warned
 * about.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/arith.h"
#include "common/log.h"
#include "common/system/platform.h"
#include "common/text/uid_name.h"
#include "daemon/broker_private.h"
#include "daemon/config/config_account.h"
#include "daemon/config/config_machine.h"
#include "daemon/serve/admin_limits.h"
#include "daemon/serve/journal.h"
#include "daemon/serve/watch.h"
#include "daemon/service.h"
#include "daemon/tenant/client_news.h"

gid_t gm_broker_config_admin_group(const struct gm_config *config)
{
	if (!config->admin_group[0])
		return (gid_t)-1;
	gid_t gid;
	return gm_config_account_group(config->admin_group, &gid) ? gid : (gid_t)-1;
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

/* Reads who has which name, and who pays for whom. */
static void config_read_users(struct gm_broker *broker)
{
	const char *root = gm_platform_root();
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/etc/passwd", root);
	gm_uid_name_read(path);
	gm_subuids_read(&broker->hub.subuids, root);
	config_check_users(broker);
}

void gm_broker_config_apply_bounds(struct gm_broker *broker)
{
	const struct gm_config *config = broker->config;
	broker->serve.admin_group = gm_broker_config_admin_group(config);
	config_read_users(broker);
	gm_front_set_bounds(&broker->front, config);
	gm_clients_set_bound(&broker->clients, config->connections_per_uid);
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

	/* The reserve is fd chunks, which clients of this device get only if they ask for fd. */
	if (gm_serve_auto_transport(&broker->serve, device) != GM_TRANSPORT_FD)
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
		wanted = wanted || policy.oom == GM_OOM_TERMINATE;
	}
	if (!wanted || gm_terminator_may())
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

/* Applies a new configuration. Returns false and changes nothing if core refuses its limits; detail
 * says why. Takes ownership of the configuration on success; detail then names the keys that need a restart. */
static bool config_change(
	struct gm_broker *broker, struct gm_config *config, char detail[GM_DETAIL_BYTES])
{
	struct gm_config *old = broker->config;
	struct gm_policy policies[GM_LIMIT_DEVICES];
	gm_broker_config_use(broker, config);
	for (uint32_t i = 0; i < broker->serve.n_devices; i++)
		gm_broker_config_policy(broker, i, &policies[i]);
	if (gm_admin_configure(broker->core, config, policies, detail) != GPUMEM_OK) {
		gm_broker_config_use(broker, old);
		return false;
	}

	char *fixed = gm_config_fixed_changes(broker->started, config);
	if (fixed)
		gm_log(GM_LOG_WARNING, "these changes need a restart: %s", fixed);
	gm_say(detail, "%s", fixed ? fixed : "");
	free(fixed);
	gm_broker_config_apply_bounds(broker);
	if (old != broker->started)
		gm_config_free(old);
	gm_broker_config_check(broker);
	gm_clients_limits_changed(&broker->clients);
	gm_watch_limits(&broker->serve, NULL, "",
		"as in the new configuration, except those set at run time", 0);
	return true;
}

int gm_broker_config_load(
	const struct gm_broker *broker, uint32_t n, struct gm_config **ret_config, char **ret_error)
{
	struct gm_config_known known = {.backend = broker->options->backend};
	gm_config_machine_describe(broker->ops, broker->serve.devices, n, &known);
	int r = gm_config_load_for(broker->options->config_path, &known, ret_config, ret_error);
	if (r == 0 && !broker->front.endpoint.own)
		gm_config_drop_socket(*ret_config);
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

/* The first of the mistakes, and how many more there are. */
static void config_say_mistakes(const char *text, char detail[GM_DETAIL_BYTES])
{
	size_t first = strcspn(text, "\n"), more = 0;
	char rest[64] = "";

	for (const char *at = text + first; *at; at += strcspn(at, "\n")) {
		at += strspn(at, "\n");
		more += *at != '\0';
	}
	if (more)
		snprintf(rest, sizeof(rest), " (and %zu more: see the daemon's log)", more);
	gm_say(detail, "%.*s%s", (int)gm_min(first, GM_DETAIL_BYTES - 1 - strlen(rest)), text,
		rest);
}

bool gm_broker_config_reload(struct gm_broker *broker, char detail[GM_DETAIL_BYTES])
{
	struct gm_config *config = NULL;
	char *error = NULL;
	bool changed = false;
	gm_config_account_stay_local();
	gm_service_reloading();
	int r = gm_broker_config_load(broker, broker->serve.n_devices, &config, &error);
	if (r < 0) {
		config_say_mistakes(error ? error : strerror(-r), detail);
		if (error)
			gm_broker_config_log(GM_LOG_ERROR, error);
		gm_log(GM_LOG_ERROR, "the configuration stays as it was");
		free(error);
	} else if (!config_change(broker, config, detail)) {
		gm_log(GM_LOG_ERROR, "limits: %s", detail);
		gm_log(GM_LOG_ERROR, "the configuration stays as it was");
		gm_config_free(config);
	} else {
		gm_log(GM_LOG_INFO, "configuration reloaded");
		changed = true;
	}

	gm_broker_config_say_ready(broker);
	return changed;
}
