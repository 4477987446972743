/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wiring. start() makes every part in the order in which they need one another and finish()
 * takes them down in the opposite one, from wherever start() came to. In between, this is where
 * core's needs (jobs, clock, ids, randomness) meet what provides them, and where signals arrive.
 *
 * Stopping is the same whether it was asked for or start() failed: clients are told, sessions end,
 * core gives its chunks back, and the loop runs until no job is under way. A backend that is stuck
 * in a call does not keep the daemon: after a while it ends all the same.
 */
#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/random.h"
#include "daemon/backend.h"
#include "daemon/backend_cuda.h"
#include "daemon/backend_ram.h"
#include "daemon/broker.h"
#include "daemon/client.h"
#include "daemon/worker.h"
#include "daemon/admin_limits.h"
#include "daemon/admin_processes.h"
#include "daemon/dispatch.h"
#include "daemon/endpoint.h"
#include "daemon/ids.h"
#include "daemon/journal.h"
#include "daemon/listener.h"
#include "daemon/peer.h"
#include "daemon/service.h"
#include "daemon/terminate.h"
#include "daemon/watch.h"

#define GM_BROKER_STOP_MS   3000
#define GM_BROKER_SAMPLE_MS 1000

static const struct gm_backend_ops *const backends[] = {
	&gm_backend_cuda, &gm_backend_host}; /* auto: the first there is */

struct gm_broker {
	const struct gm_broker_options *options;
	struct gm_config *config;
	uv_loop_t loop;
	bool loop_open;
	uv_signal_t signals[3];
	uv_timer_t tick, sample, watchdog, stop;
	uint64_t tick_ns; /* when the tick is due */
	struct gm_terminator *terminator;
	bool timers_open, signals_open;

	struct gm_endpoint endpoint;
	bool endpoint_open;
	struct gm_ids ids;
	const struct gm_backend_ops *ops;
	void *backend;
	struct gm_worker *workers[GM_LIMIT_DEVICES];
	struct gm_core *core;
	struct gm_hub hub;
	bool hub_open;
	struct gm_clients clients;
	bool clients_open;
	struct gm_dispatch dispatch;
	struct gm_listener *listener;
	uint32_t failing; /* a bit per device whose last creation failed oddly */
	bool stopping;
	bool stuck;
};

/* ---- core's needs */

static void core_create(void *ctx, struct gm_chunk *chunk, uint64_t turn)
{
	struct gm_broker *broker = ctx;
	gm_worker_create(broker->workers[chunk->device], chunk, turn);
}

static void core_destroy(void *ctx, struct gm_chunk *chunk)
{
	struct gm_broker *broker = ctx;
	gm_worker_destroy(broker->workers[chunk->device], chunk);
}

static uint64_t core_now_ns(void *ctx)
{
	return gm_clock_ns();
}

static uint64_t core_new_id(void *ctx)
{
	struct gm_broker *broker = ctx;
	return gm_ids_next(&broker->ids);
}

static void core_random(void *ctx, void *bytes, size_t n)
{
	if (gm_random(bytes, n) < 0) {
		/* A token that can be guessed is worse than no daemon. */
		gm_log(GM_LOG_ERROR, "the kernel gives no random bytes");
		abort();
	}
}

static void core_device_changed(void *ctx, uint32_t device)
{
	struct gm_broker *broker = ctx;
	if (broker->clients_open)
		gm_clients_device_changed(&broker->clients, device);
}

static void core_session_changed(void *ctx, struct gm_session *session, uint32_t device)
{
	gm_clients_session_changed(session, device);
}

static void core_level_changed(void *ctx, uint32_t device, enum gm_level level)
{
	struct gm_broker *broker = ctx;
	gm_watch_level(&broker->dispatch, device);
	if (broker->clients_open)
		gm_clients_level_changed(&broker->clients, device);
}

static void core_use(void *ctx, struct gm_session *session, uint32_t device, struct gm_use *ret)
{
	gm_clients_use(session, device, ret);
}

static void core_reclaim(void *ctx, struct gm_session *session, const struct gm_reclaim *ask)
{
	gm_clients_reclaim_from(session, ask);
}

static int core_terminate(void *ctx, struct gm_session *session, uint32_t device)
{
	struct gm_broker *broker = ctx;
	struct gm_client *client = gm_clients_of(&broker->clients, session);
	if (!client)
		return -ESRCH;
	return gm_terminator_end(
		broker->terminator, client->identity, broker->config->terminate_grace_ns);
}

static void core_event(void *ctx, const struct gm_event *event)
{
	struct gm_broker *broker = ctx;
	if (broker->dispatch.watch && broker->clients_open)
		gm_watch_event(&broker->dispatch, event);
}

static void core_wake_at(void *ctx, uint64_t ns);

static const struct gm_core_ops core_ops = {
	.create = core_create,
	.destroy = core_destroy,
	.now_ns = core_now_ns,
	.new_id = core_new_id,
	.random = core_random,
	.device_changed = core_device_changed,
	.session_changed = core_session_changed,
	.level_changed = core_level_changed,
	.use = core_use,
	.reclaim = core_reclaim,
	.terminate = core_terminate,
	.wake_at = core_wake_at,
	.event = core_event,
};

/* ---- what the device threads and the clock tell core */

static void check_idle(struct gm_broker *broker)
{
	if (broker->stopping && gm_core_idle(broker->core))
		uv_stop(&broker->loop);
}

static void on_created(void *ctx, struct gm_chunk *chunk, int result)
{
	struct gm_broker *broker = ctx;
	uint32_t bit = UINT32_C(1) << chunk->device;
	if (result == 0 || result == -ENOMEM) {
		broker->failing &= ~bit;
	} else if (!(broker->failing & bit)) {
		/* Said once: whoever asks again and again must not fill the log. */
		broker->failing |= bit;
		char field[32];
		const char *const fields[] = {field, NULL};
		snprintf(field, sizeof(field), "GPUMEM_DEVICE=%u", chunk->device);
		gm_log_fields(GM_LOG_ERROR, fields, "device %u: a chunk could not be made: %s",
			chunk->device, strerror(-result));
	}
	gm_core_created(broker->core, chunk, result);
	check_idle(broker);
}

static void on_destroyed(void *ctx, struct gm_chunk *chunk)
{
	struct gm_broker *broker = ctx;
	gm_core_destroyed(broker->core, chunk);
	check_idle(broker);
}

static void on_sampled(void *ctx, uint32_t device, int result, uint64_t free_bytes)
{
	struct gm_broker *broker = ctx;
	if (result < 0)
		gm_core_sample_failed(broker->core, device);
	else
		gm_core_sample(broker->core, device, free_bytes);
}

static void on_looked(void *ctx, uint32_t device, struct gm_usage *usage)
{
	struct gm_broker *broker = ctx;
	gm_processes_looked(broker->dispatch.processes, device, usage);
}

static const struct gm_worker_events device_events = {
	.created = on_created,
	.destroyed = on_destroyed,
	.sampled = on_sampled,
	.looked = on_looked,
};

static void run_tick(struct gm_broker *broker);

static void on_tick(uv_timer_t *timer)
{
	run_tick(timer->data);
}

static void tick_at(struct gm_broker *broker, uint64_t ns)
{
	uint64_t now = gm_clock_ns();
	uint64_t wait_ms = ns > now ? (ns - now) / GM_NS_PER_MS + 1 : 1;
	/* The loop's own idea of the time may be as old as the turn is. */
	uv_update_time(&broker->loop);
	uv_timer_start(&broker->tick, on_tick, wait_ms, 0);
	broker->tick_ns = ns;
}

static void run_tick(struct gm_broker *broker)
{
	uint64_t next = gm_core_tick(broker->core);
	if (next == UINT64_MAX) {
		uv_timer_stop(&broker->tick);
		broker->tick_ns = UINT64_MAX;
		return;
	}
	tick_at(broker, next);
}

static void core_wake_at(void *ctx, uint64_t ns)
{
	struct gm_broker *broker = ctx;
	if (!broker->stopping &&
		(!uv_is_active((uv_handle_t *)&broker->tick) || ns < broker->tick_ns))
		tick_at(broker, ns);
}

static void on_flushed(void *ctx)
{
	struct gm_broker *broker = ctx;
	if (!broker->stopping)
		run_tick(broker);
}

static void on_sample(uv_timer_t *timer)
{
	struct gm_broker *broker = timer->data;
	for (uint32_t i = 0; i < broker->dispatch.n_devices; i++)
		if (broker->dispatch.devices[i].measured)
			gm_worker_sample(broker->workers[i]);
}

static void on_watchdog(uv_timer_t *timer)
{
	gm_service_alive();
}

/* ---- configuration */

static gid_t find_admin_group(const struct gm_config *config)
{
	if (!config->admin_group[0])
		return (gid_t)-1;
	struct group *group = getgrnam(config->admin_group);
	return group ? group->gr_gid : (gid_t)-1;
}

static void apply_config(struct gm_broker *broker)
{
	const struct gm_config *config = broker->config;
	broker->dispatch.admin_group = find_admin_group(config);
	gm_listener_set_bounds(broker->listener, config->connections_per_uid,
		config->hello_deadline_ns / GM_NS_PER_MS);
	gm_clients_set_bound(&broker->clients, config->connections_per_uid);
}

static void log_lines(enum gm_log_level level, char *text)
{
	char *rest = text;
	for (char *line; (line = strsep(&rest, "\n"));)
		if (*line)
			gm_log(level, "%s", line);
}

static void use_config(struct gm_broker *broker, struct gm_config *config)
{
	broker->config = config;
	broker->dispatch.config = config;
}

static void device_policy(
	const struct gm_broker *broker, uint32_t device, struct gm_policy *ret_policy)
{
	const struct gm_backend_device *info = &broker->dispatch.devices[device];
	if (info->pinned)
		gm_config_pinned_policy(broker->config, info->total, ret_policy);
	else
		gm_config_policy(broker->config, device, info->total, ret_policy);
	/* The reserve is fd chunks, which nobody gets there without asking for them by name. */
	if (gm_dispatch_auto(&broker->dispatch, device) != GM_TRANSPORT_FD)
		ret_policy->reserve = 0;
}

/* One file may serve hosts with and without GPUs, so what has no effect on this one is no error. */
static void check_devices(const struct gm_broker *broker)
{
	const struct gm_config *config = broker->config;
	uint32_t n = broker->dispatch.n_devices;
	n -= n && broker->dispatch.devices[n - 1].pinned;
	for (uint32_t i = 0; i < n && !broker->ops->sized; i++)
		if (config->devices[i].size)
			gm_log(GM_LOG_WARNING,
				"size of [device %u] has no effect: it is for the host backend, and device %u is a GPU (%s)",
				i, i, broker->dispatch.devices[i].name);
	for (uint32_t i = 0; i < config->n_strangers; i++)
		gm_log(GM_LOG_WARNING,
			"[device %s] has no effect: no device here has this name; see gpumemctl devices",
			config->strangers[i]);
	if (config->n_devices > n)
		gm_log(GM_LOG_WARNING,
			"[device %u] has no effect: there %s %u device%s here, numbered from 0",
			config->n_devices - 1, n == 1 ? "is" : "are", n, n == 1 ? "" : "s");
}

static void status_text(const struct gm_broker *broker, char text[256])
{
	uint32_t n = broker->dispatch.n_devices;
	bool pinned = n && broker->dispatch.devices[n - 1].pinned;
	n -= pinned;
	snprintf(text, 256, "Serving %u device%s (%s)%s on %.150s", n, n == 1 ? "" : "s",
		broker->ops->name, pinned ? " and pinned host memory" : "", broker->endpoint.path);
}

static void set_policies(struct gm_broker *broker)
{
	for (uint32_t i = 0; i < broker->dispatch.n_devices; i++) {
		struct gm_policy policy;
		device_policy(broker, i, &policy);
		gm_core_set_policy(broker->core, i, &policy);
	}
}

/* Says it at once, not when it is too late: the last rung may be missing. */
static void check_oom(const struct gm_broker *broker)
{
	bool wanted = false;
	for (uint32_t i = 0; i < broker->dispatch.n_devices; i++) {
		struct gm_policy policy;
		device_policy(broker, i, &policy);
		wanted = wanted || policy.oom == GM_OOM_TERMINATE;
	}
	if (!wanted || gm_terminator_may())
		return;
	const char *const fields[] = {"MESSAGE_ID=" GM_MESSAGE_POWERLESS, NULL};
	gm_log_fields(GM_LOG_WARNING, fields,
		"oom = terminate: this daemon cannot end clients of other users, because it has no "
		"CAP_KILL; see ENDING CLIENTS in gpumemd(8)");
}

/* The new configuration, all of it or, if its limits contradict what there is, nothing. Takes it on
 * success. */
static bool put_to_use(
	struct gm_broker *broker, struct gm_config *config, char detail[GM_DETAIL_BYTES])
{
	struct gm_config *old = broker->config;
	use_config(broker, config);
	/* Guarantees are held against the capacity that will be. */
	set_policies(broker);
	if (gm_admin_configure_limits(broker->core, config, detail) != GPUMEM_OK) {
		use_config(broker, old);
		set_policies(broker);
		return false;
	}
	char *fixed = gm_config_fixed_changes(old, config);
	if (fixed)
		gm_log(GM_LOG_WARNING, "these changes need a restart: %s", fixed);
	free(fixed);
	apply_config(broker);
	gm_config_free(old);
	check_devices(broker);
	check_oom(broker);
	gm_clients_limits_changed(&broker->clients);
	gm_watch_limits(
		&broker->dispatch, NULL, "", "as configured anew, but for those set at run time");
	return true;
}

/* Reads the configuration by the devices there are, so that it may name them by UUID or PCI
 * address. */
static int load_for_devices(
	const struct gm_broker *broker, uint32_t n, struct gm_config **ret_config, char **ret_error)
{
	struct gm_config_known known = {.n = n};
	for (uint32_t i = 0; i < n; i++) {
		const struct gm_backend_device *device = &broker->dispatch.devices[i];
		known.devices[i].uuid = device->pinned ? NULL : device->uuid;
		known.devices[i].pci = device->pci;
	}
	return gm_config_load_for(broker->options->config_path, &known, ret_config, ret_error);
}

static void reload(struct gm_broker *broker)
{
	struct gm_config *config = NULL;
	char *error = NULL;
	char status[256], detail[GM_DETAIL_BYTES];
	gm_service_reloading();
	int r = load_for_devices(broker, broker->dispatch.n_devices, &config, &error);
	if (r < 0) {
		if (error)
			log_lines(GM_LOG_ERROR, error);
		gm_log(GM_LOG_ERROR, "the configuration stays as it was");
		free(error);
	} else if (!put_to_use(broker, config, detail)) {
		gm_log(GM_LOG_ERROR, "limits: %s", detail);
		gm_log(GM_LOG_ERROR, "the configuration stays as it was");
		gm_config_free(config);
	} else {
		gm_log(GM_LOG_INFO, "configuration reloaded");
	}
	status_text(broker, status);
	gm_service_ready(status);
}

/* ---- the end */

static void on_stuck(uv_timer_t *timer)
{
	struct gm_broker *broker = timer->data;
	broker->stuck = true;
	uv_stop(&broker->loop);
}

static void begin_stop(struct gm_broker *broker, const char *reason)
{
	if (broker->stopping)
		return;
	broker->stopping = true;
	gm_service_stopping();
	if (broker->clients_open)
		gm_clients_goodbye(&broker->clients, reason, false);
	gm_watch_goodbye(&broker->dispatch, reason, false);
	/* Clients first: what ends with the daemon is not quarantined. */
	if (broker->clients_open)
		gm_clients_end_all(&broker->clients);
	gm_listener_close(broker->listener);
	broker->listener = NULL;
	gm_core_shutdown(broker->core);
	uv_timer_start(&broker->stop, on_stuck, GM_BROKER_STOP_MS, 0);
	check_idle(broker);
}

static void on_signal(uv_signal_t *handle, int number)
{
	struct gm_broker *broker = handle->data;
	if (number == SIGHUP) {
		if (!broker->stopping)
			reload(broker);
		return;
	}
	gm_log(GM_LOG_INFO, "stopping on SIG%s", number == SIGTERM ? "TERM" : "INT");
	begin_stop(broker, "the daemon is stopping");
}

static void close_handle(uv_handle_t *handle, void *ctx)
{
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

/* Everything is idle, or was never made. */
static void finish(struct gm_broker *broker)
{
	if (broker->endpoint_open)
		gm_endpoint_close(&broker->endpoint);
	if (broker->stuck) {
		gm_log(GM_LOG_WARNING,
			"the backend does not come back from a call; ending without it");
		_exit(EXIT_SUCCESS);
	}
	for (uint32_t i = 0; i < GM_LIMIT_DEVICES; i++)
		gm_worker_stop(broker->workers[i]);
	gm_processes_free(broker->dispatch.processes);
	gm_terminator_free(broker->terminator);
	gm_watch_free(broker->dispatch.watch);
	broker->dispatch.watch = NULL;
	if (broker->clients_open)
		gm_clients_close(&broker->clients);
	if (broker->hub_open)
		gm_hub_close(&broker->hub);
	if (broker->loop_open) {
		/* What is left are timers and signals of ours. */
		uv_walk(&broker->loop, close_handle, NULL);
		while (uv_run(&broker->loop, UV_RUN_DEFAULT))
			;
		uv_loop_close(&broker->loop);
	}
	gm_core_free(broker->core);
	if (broker->clients_open)
		gm_clients_deinit(&broker->clients);
	if (broker->hub_open)
		gm_hub_deinit(&broker->hub);
	if (broker->backend)
		broker->ops->close(broker->backend);
	gm_config_free(broker->config);
}

/* ---- the beginning */

static int fail(int error, const char *what)
{
	gm_log(GM_LOG_ERROR, "%s: %s", what, strerror(-error));
	return error;
}

static int start_loop(struct gm_broker *broker)
{
	static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
	int r = uv_loop_init(&broker->loop);
	if (r < 0)
		return fail(r, "the event loop");
	broker->loop_open = true;
	uv_timer_t *const timers[] = {
		&broker->tick, &broker->sample, &broker->watchdog, &broker->stop};
	for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++) {
		uv_timer_init(&broker->loop, timers[i]); /* cannot fail */
		timers[i]->data = broker;
	}
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		r = uv_signal_init(&broker->loop, &broker->signals[i]);
		if (r == 0) {
			broker->signals[i].data = broker;
			r = uv_signal_start(&broker->signals[i], on_signal, numbers[i]);
		}
		if (r < 0)
			return fail(r, "signals");
	}
	return 0;
}

static int start_endpoint(struct gm_broker *broker)
{
	char why[GM_ENDPOINT_WHY] = "";
	int socket;
	int r = gm_service_listen_socket(&socket);
	if (r < 0) {
		gm_log(GM_LOG_ERROR,
			"socket activation: exactly one listening SOCK_SEQPACKET socket is wanted");
		return r;
	}
	if (r > 0) {
		r = gm_endpoint_adopt(&broker->endpoint, socket, why);
	} else {
		const char *path =
			broker->options->socket ? broker->options->socket : broker->config->socket;
		r = gm_endpoint_open(&broker->endpoint, path, broker->config->socket_mode,
			broker->config->socket_group, why);
	}
	if (r < 0) {
		gm_log(GM_LOG_ERROR, "%s", why);
		return r;
	}
	broker->endpoint_open = true;
	return 0;
}

static int start_ids(struct gm_broker *broker)
{
	char file[GM_PATH_BYTES + 16];
	bool stored;
	snprintf(file, sizeof(file), "%s", broker->endpoint.path);
	char *slash = strrchr(file, '/');
	bool has_path = slash || broker->endpoint.own;
	strcpy(slash ? slash + 1 : file, "generation");
	int r = gm_ids_init(&broker->ids, has_path ? file : NULL, (int64_t)time(NULL), &stored);
	if (r < 0)
		return fail(r, "ids");
	if (!stored)
		gm_log(GM_LOG_WARNING,
			"%s cannot be written: only the clock keeps this run's ids apart from those "
			"of the next",
			file);
	return 0;
}

static int start_backend(struct gm_broker *broker, uint32_t *ret_devices)
{
	const char *name =
		broker->options->backend ? broker->options->backend : broker->config->backend;
	struct gm_backend_config config;
	char why[256] = "";
	int r = -ENODEV;
	for (uint32_t i = 0; i < GM_LIMIT_DEVICES; i++)
		config.size[i] = broker->config->devices[i].size;
	config.host_limit = broker->config->host_limit;
	if (config.host_limit == UINT64_MAX)
		config.host_limit = gm_backend_ram_quarter();
	config.host_limit = config.host_limit / GM_CHUNK_MIN * GM_CHUNK_MIN;
	for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]) && r == -ENODEV; i++) {
		if (strcmp(name, "auto") != 0 && strcmp(name, backends[i]->name) != 0)
			continue;
		broker->ops = backends[i];
		r = broker->ops->open(&config, &broker->backend, ret_devices, why);
		if (r == -ENODEV && strcmp(name, "auto") == 0) {
			gm_log(GM_LOG_INFO, "backend %s: %s", backends[i]->name, why);
			snprintf(broker->dispatch.backend_note,
				sizeof(broker->dispatch.backend_note), "%s: %.200s",
				backends[i]->name, why);
		}
	}
	if (r < 0)
		gm_log(GM_LOG_ERROR, "backend %s: %s", name,
			why[0] ? why : "there is none of this name");
	broker->dispatch.ops = broker->ops;
	broker->dispatch.backend = broker->backend;
	return r;
}

/* What the devices are; and if the configuration names some, it is read again to know which. */
static int start_devices(struct gm_broker *broker, uint32_t n)
{
	struct gm_config *config = NULL;
	char *error = NULL;
	for (uint32_t i = 0; i < n; i++)
		broker->ops->device_info(broker->backend, i, &broker->dispatch.devices[i]);
	if (broker->config->n_strangers == 0)
		return 0;
	int r = load_for_devices(broker, n, &config, &error);
	if (r < 0) {
		if (error)
			log_lines(GM_LOG_ERROR, error);
		free(error);
		return r;
	}
	gm_config_free(broker->config);
	broker->config = config;
	return 0;
}

static int start_core(struct gm_broker *broker, uint32_t n)
{
	int r = gm_watch_new(&broker->dispatch.watch);
	if (r < 0)
		return fail(r, "news");
	r = gm_terminator_new(&broker->loop, &broker->terminator);
	if (r < 0)
		return fail(r, "the last rung");
	r = gm_core_new(&core_ops, broker, &broker->core);
	if (r < 0)
		return fail(r, "core");
	broker->dispatch.core = broker->core;
	broker->dispatch.clients = &broker->clients;
	r = gm_clients_init(&broker->clients, &broker->hub, broker->core, n, on_flushed, broker);
	if (r < 0)
		return fail(r, "clients");
	broker->clients_open = true;
	for (uint32_t i = 0; i < n; i++) {
		struct gm_backend_device *info = &broker->dispatch.devices[i];
		r = gm_worker_new(&broker->loop, broker->ops, broker->backend, i, &device_events,
			broker, &broker->workers[i]);
		if (r < 0)
			return fail(r, "a device's thread");
		struct gm_core_device_info core_info = {
			.total = info->total,
			.transport_fd = info->transport_fd,
			.transport_ipc = info->transport_ipc,
		};
		device_policy(broker, i, &core_info.policy);
		uint32_t number;
		r = gm_core_add_device(broker->core, &core_info, &number);
		if (r < 0)
			return fail(r, "a device");
		broker->dispatch.n_devices = number + 1;
	}
	r = gm_processes_new(
		&broker->loop, broker->ops, broker->workers, n, &broker->dispatch.processes);
	if (r < 0)
		return fail(r, "who uses the devices");
	char detail[GM_DETAIL_BYTES];
	if (gm_admin_configure_limits(broker->core, broker->config, detail) != GPUMEM_OK) {
		gm_log(GM_LOG_ERROR, "limits: %s", detail);
		return -EINVAL;
	}
	check_devices(broker);
	check_oom(broker);
	return 0;
}

static int start_listener(struct gm_broker *broker)
{
	static const struct gm_peer_ops ops = {
		.packet = gm_dispatch_packet,
		.closed = gm_dispatch_closed,
	};
	struct gm_dispatch *dispatch = &broker->dispatch;
	dispatch->socket = broker->endpoint.path;
	dispatch->start_ns = gm_clock_ns();
	dispatch->uid = geteuid();
	int r = gm_listener_new(
		&broker->hub, broker->endpoint.socket, &ops, dispatch, &broker->listener);
	if (r < 0)
		return fail(r, "the listening socket");
	apply_config(broker);
	return 0;
}

/* Where nothing can be sampled nothing wakes up for it. */
static bool is_measured(const struct gm_broker *broker)
{
	bool any = false;
	for (uint32_t i = 0; i < broker->dispatch.n_devices; i++)
		any = any || broker->dispatch.devices[i].measured;
	return any && !broker->ops->exclusive;
}

static int start(struct gm_broker *broker)
{
	uint32_t n;
	int r = start_loop(broker);
	if (r == 0)
		r = start_endpoint(broker);
	if (r == 0)
		r = start_ids(broker);
	if (r == 0)
		r = start_backend(broker, &n);
	if (r == 0) {
		r = gm_hub_init(&broker->hub, &broker->loop, broker->ids.generation);
		broker->hub_open = r == 0;
	}
	if (r == 0)
		r = start_devices(broker, n);
	if (r == 0)
		r = start_core(broker, n);
	if (r == 0)
		r = start_listener(broker);
	if (r < 0)
		return r;
	if (is_measured(broker)) {
		on_sample(&broker->sample);
		uv_timer_start(
			&broker->sample, on_sample, GM_BROKER_SAMPLE_MS, GM_BROKER_SAMPLE_MS);
	}
	uint64_t watchdog_ms = gm_service_watchdog_ms();
	if (watchdog_ms)
		uv_timer_start(&broker->watchdog, on_watchdog, watchdog_ms, watchdog_ms);
	return 0;
}

int gm_broker_run(const struct gm_broker_options *options, struct gm_config *config)
{
	struct gm_broker *broker = calloc(1, sizeof(*broker));
	if (!broker) {
		gm_config_free(config);
		return fail(-ENOMEM, "the broker");
	}
	broker->options = options;
	use_config(broker, config);
	int r = start(broker);
	if (r == 0) {
		char status[256];
		status_text(broker, status);
		gm_log(GM_LOG_INFO, "%s", status);
		gm_service_ready(status);
		uv_run(&broker->loop, UV_RUN_DEFAULT);
	} else if (broker->core) {
		begin_stop(broker, "the daemon could not start");
		uv_run(&broker->loop, UV_RUN_DEFAULT);
	}
	finish(broker);
	free(broker);
	return r;
}
