/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts the daemon together. broker_start() makes the parts in the order in which they need one
 * another. broker_finish() takes down whatever was made, in the order that their users allow. This
 * file also handles signals; broker_config.c applies the configuration, and broker_core.c connects core
 * to the other parts.
 *
 * Stopping is the same whether a signal asked for it or broker_start() failed: clients are told,
 * sessions end, core gives its chunks back, and the loop runs until no job is under way and the keeper has what the next
 * daemon needs. If a call of the backend does not return, or no keeper comes, the daemon ends without it after a while. Then the service
 * manager gets what the keeper lacks.
 */
#include "daemon/broker_private.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "common/arith.h"
#include "common/clock.h"
#include "common/log.h"
#include "daemon/config/config_machine.h"
#include "daemon/log_thread.h"
#include "daemon/serve/admin_limits.h"
#include "daemon/serve/admin_processes.h"
#include "daemon/serve/watch.h"
#include "daemon/service.h"
#include "daemon/tenant/client_store.h"
#include "daemon/tenant/client_news.h"

#define GM_BROKER_STOP_MS 3000
/* Maximum additional time to wait for a keeper that has everything, in ms. */
#define GM_BROKER_LATE_MS   7000
#define GM_BROKER_SAMPLE_MS 1000

/* Descriptors that the daemon opens later for itself: the reserves of its listeners (21), and those
 * of the loop, the device threads, the driver and what the keeper is told (1). */
#define GM_BROKER_FDS_LATER 25
/* With fewer, no chunk is prepared. */
#define GM_BROKER_FDS_MANY 1024

static void broker_on_watchdog(uv_timer_t *timer)
{
	gm_service_alive();
}

/* ---- the end */

/* Handles an end that is late: because of a job of the backend, or because no keeper has what the next daemon needs. */
static void broker_on_late(uv_timer_t *timer)
{
	struct gm_broker *broker = timer->data;
	if (!gm_core_idle(broker->core) && !gm_broker_store_delays(broker)) {
		broker->stuck = true;
	} else if (!broker->late) {
		broker->late = true;
		uv_timer_start(timer, broker_on_late, GM_BROKER_LATE_MS, 0);
		return;
	} else {
		broker->abandons = true;
	}
	uv_stop(&broker->loop);
}

static void broker_begin_stop(struct gm_broker *broker, const char *reason)
{
	if (broker->stopping)
		return;

	bool kept = broker->store && !broker->forget;
	char detail[GM_DETAIL_BYTES];
	broker->stopping = true;
	gm_service_stopping();
	if (broker->store)
		gm_store_ask(broker->store);
	if (broker->clients_open)
		gm_clients_goodbye(&broker->clients, reason, kept);
	gm_watch_goodbye(&broker->serve, reason, kept);

	/* What clients hold waits for the next daemon, or it ends: end the clients before
	 * gm_listeners_hang_up() closes the connections, or they would be quarantined. */
	if (broker->clients_open && !kept)
		gm_clients_end_all(&broker->clients);
	if (broker->forget)
		gm_core_reset_limit(broker->core, NULL, GM_ALL_DEVICES, detail);
	gm_listeners_hang_up(&broker->front);
	if (!broker->forget && gm_broker_store_is_worth(broker))
		gm_core_retire(broker->core);
	else
		gm_core_shutdown(broker->core);
	for (uint32_t i = 0; broker->forget && i < gm_core_device_count(broker->core); i++)
		gm_core_undrain(broker->core, i);
	uv_timer_start(&broker->stop, broker_on_late, GM_BROKER_STOP_MS, 0);
	gm_broker_check_idle(broker);
}

/* The request must be answered first, so the signal comes in the next turn of the loop. */
static void broker_on_stop(void *ctx, bool forget)
{
	struct gm_broker *broker = ctx;
	broker->forget = broker->forget || (forget && !broker->stopping);
	broker->asked_to_stop = true;
	raise(SIGTERM);
}

static int broker_on_reload(void *ctx)
{
	struct gm_broker *broker = ctx;

	if (broker->stopping)
		return -ESHUTDOWN;
	return gm_broker_config_reload(broker);
}

static void broker_on_signal(uv_signal_t *handle, int number)
{
	struct gm_broker *broker = handle->data;
	if (number == SIGHUP) {
		if (!broker->stopping)
			(void)gm_broker_config_reload(broker);
		return;
	}
	if (broker->asked_to_stop && number == SIGTERM)
		gm_log(GM_LOG_INFO, "stopping because gpumemctl stop asks for it");
	else
		gm_log(GM_LOG_INFO, "stopping on SIG%s", number == SIGTERM ? "TERM" : "INT");
	broker_begin_stop(broker, "the daemon is stopping");
}

static void broker_close_handle(uv_handle_t *handle, void *ctx)
{
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

/* Takes down what broker_start() made. Does not return if a backend call is stuck. */
static void broker_finish(struct gm_broker *broker, int result)
{
	gm_listeners_close(&broker->front);
	/* What the next daemon takes over must not be taken down. */
	bool kept = gm_broker_store_is_worth(broker);
	if (broker->stuck)
		gm_log(GM_LOG_WARNING, "a call of the backend does not return; ending without it");
	if (broker->stuck || kept) {
		gm_broker_store_leave(broker);
		if (broker->hub_open)
			gm_log_limit_expire(&broker->hub.quiet, UINT64_MAX);
		gm_log_thread_stop();
		_exit(gm_broker_exit_status(result));
	}

	gm_broker_config_end_reload(broker);
	for (uint32_t i = 0; i < GM_BOUND_DEVICES; i++)
		gm_worker_stop(broker->workers[i]);
	gm_broker_store_close(broker);
	gm_admin_processes_free(broker->serve.processes);
	gm_client_terminator_free(broker->terminator);
	gm_watch_free(broker->serve.watch);
	broker->serve.watch = NULL;
	if (broker->clients_open)
		gm_clients_close(&broker->clients);
	gm_broker_drop_works(broker);
	if (broker->hub_open)
		gm_hub_close(&broker->hub);
	if (broker->loop_open) {
		/* Only the broker's own timers and signals are left. */
		uv_walk(&broker->loop, broker_close_handle, NULL);
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
	if (broker->started != broker->config)
		gm_config_free(broker->started);
	gm_config_free(broker->config);
}

/* ---- the start */

static int broker_fail(int error, const char *what)
{
	gm_log(GM_LOG_ERROR, "%s: %s", what, strerror(-error));
	return error;
}

static int broker_start_loop(struct gm_broker *broker)
{
	static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
	int r = uv_loop_init(&broker->loop);
	if (r < 0)
		return broker_fail(r, "the event loop");

	broker->loop_open = true;
	uv_timer_t *const timers[] = {
		&broker->tick, &broker->sample, &broker->watchdog, &broker->stop, &broker->ready};
	for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++) {
		uv_timer_init(&broker->loop, timers[i]); /* cannot fail */
		timers[i]->data = broker;
	}
	uv_prepare_init(&broker->loop, &broker->turn); /* cannot fail */
	broker->turn.data = broker;
	r = gm_broker_config_init_reload(broker);
	if (r < 0)
		return broker_fail(r, "the event loop");

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		r = uv_signal_init(&broker->loop, &broker->signals[i]);
		if (r == 0) {
			broker->signals[i].data = broker;
			r = uv_signal_start(&broker->signals[i], broker_on_signal, numbers[i]);
		}
		if (r < 0)
			return broker_fail(r, "signals");
	}
	return 0;
}

/* Warns a daemon that a service manager runs, which serves all users, if it cannot see some of them. */
static void broker_warn_unseen(const struct gm_broker *broker)
{
	int r = broker->options->passed->socket < 0 ? 0 : gm_identity_sees_others();
	if (r == -EACCES)
		gm_log(GM_LOG_WARNING,
			"/proc hides the processes of other users from this daemon: their containers are not known, and their memory is never pooled; remove ProtectProc= from gpumemd.service, or hidepid= from the mount of /proc");
	else if (r == -EOVERFLOW)
		gm_log(GM_LOG_WARNING,
			"this daemon is in a user namespace that does not have most users: they count as one user without a name, and their memory is never pooled; remove PrivateUsers= from gpumemd.service");
}

static int broker_start_front(struct gm_broker *broker)
{
	const char *path =
		broker->options->socket ? broker->options->socket : broker->config->socket;
	gm_broker_config_read_names();
	broker_warn_unseen(broker);

	return gm_listeners_open(&broker->front, broker->options->passed, path, broker->config,
		gm_broker_config_group(broker->config->admin_group));
}

static int broker_start_ids(struct gm_broker *broker)
{
	char file[GM_PATH_BYTES + 16];
	bool stored;
	snprintf(file, sizeof(file), "%s", broker->front.endpoint.path);
	char *slash = strrchr(file, '/');
	bool has_path = slash || broker->front.endpoint.own;
	strcpy(slash ? slash + 1 : file, "generation");
	int r = gm_broker_ids_init(
		&broker->ids, has_path ? file : NULL, (int64_t)time(NULL), &stored);
	if (r < 0)
		return broker_fail(r, "ids");
	if (!stored)
		gm_log(GM_LOG_WARNING,
			"cannot write %s: only the clock keeps this run's ids apart from those of the next",
			file);
	return 0;
}

static int broker_start_backend(struct gm_broker *broker, uint32_t *ret_devices)
{
	const char *name = broker->options->backend;
	struct gm_config_machine machine = {0};
	char why[256];
	int r = gm_config_machine_open(broker->config, name, &machine, why);
	if (r < 0) {
		gm_log(GM_LOG_ERROR, "backend %s: %s", name ? name : broker->config->backend, why);
		return r;
	}
	if (*machine.note)
		gm_log(GM_LOG_INFO, "backend %s", machine.note);
	_Static_assert(sizeof(machine.note) <= sizeof(broker->serve.backend_note), "one size");
	strcpy(broker->serve.backend_note, machine.note);
	broker->ops = broker->serve.ops = machine.ops;
	broker->backend = broker->serve.backend = machine.backend;
	*ret_devices = machine.n;
	return 0;
}

/* Asks the backend about its devices, and reads the configuration again: now it can be held against
 * them. */
static int broker_start_devices(struct gm_broker *broker, uint32_t n)
{
	struct gm_config *config = NULL;
	char *error = NULL;
	for (uint32_t i = 0; i < n; i++)
		broker->ops->device_info(broker->backend, i, &broker->serve.devices[i]);

	int r = gm_broker_config_load(broker, n, &config, &error);
	if (r < 0) {
		if (error)
			gm_broker_config_log(GM_LOG_ERROR, error);
		else
			broker_fail(r, "the configuration");
		free(error);
		return r;
	}

	struct gm_config *old = broker->config;
	gm_broker_config_use(broker, config);
	broker->started = config;
	gm_config_free(old);
	return 0;
}

static void broker_count_kept(void *ctx, uint64_t id)
{
	uint64_t *n = ctx;
	(*n)++;
}

/* How many descriptors came from the keeper and are not claimed yet. Those are of chunks, of clients,
 * of metadata and of signals, and will be counted as such when they are adopted. */
static uint64_t broker_kept_fds(struct gm_broker *broker)
{
	static const enum gm_store_kind kinds[] = {GM_STORE_CHUNK, GM_STORE_PROCESS, GM_STORE_PAGE,
		GM_STORE_FORMER, GM_STORE_METADATA, GM_STORE_CONTROL_BLOCK};
	uint64_t n = 0;

	for (size_t i = 0; broker->store && i < sizeof(kinds) / sizeof(*kinds); i++)
		gm_store_each_unclaimed(broker->store, kinds[i], broker_count_kept, &n);
	return n;
}

/* Shares out what the limit on descriptors leaves to clients. The backend is open by now, and has
 * its own. */
static void broker_share_fds(struct gm_broker *broker)
{
	struct rlimit nofile;
	uint64_t limit = getrlimit(RLIMIT_NOFILE, &nofile) == 0 ? nofile.rlim_cur : 1024;
	uint64_t n = GM_BROKER_FDS_LATER;
	DIR *folder = opendir("/proc/self/fd");
	for (; folder && readdir(folder); n++)
		;
	if (folder)
		closedir(folder);
	n = gm_u64_minus(n, broker_kept_fds(broker));
	if (broker->ops->prepare && limit >= GM_BROKER_FDS_MANY) {
		uv_prepare_start(&broker->turn, gm_broker_on_iteration);
		n += GM_BACKEND_COPIES;
	}
	if (broker->store) {
		struct gm_store_state store;
		gm_store_get_state(broker->store, &store);
		limit = gm_u64_min(limit, store.capacity + n);
	}
	gm_fd_budget_init(&broker->hub.users.fds, limit, n);
	gm_core_share_users(broker->core, &broker->hub.users);
}

static int broker_start_core(struct gm_broker *broker, uint32_t n)
{
	int r = gm_watch_new(&broker->serve.watch);
	if (r < 0)
		return broker_fail(r, "events");

	r = gm_client_terminator_new(&broker->loop, &broker->terminator);
	if (r < 0)
		return broker_fail(r, "ending clients");

	struct gm_core_ops ops = gm_broker_core_ops;
	if (!broker->store) {
		ops.record = NULL;
		ops.erase = NULL;
		ops.deposit = NULL;
		ops.withdraw = NULL;
	}
	r = gm_core_new(&ops, broker, &broker->core);
	if (r < 0)
		return broker_fail(r, "core");

	gm_core_begin_adoption(broker->core);
	broker_share_fds(broker);
	broker->serve.core = broker->core;
	broker->serve.clients = &broker->clients;
	r = gm_clients_init(
		&broker->clients, &broker->hub, broker->core, n, gm_broker_on_flushed, broker);
	if (r < 0)
		return broker_fail(r, "clients");

	broker->clients_open = true;
	if (broker->store) {
		r = gm_clients_set_store(&broker->clients, &gm_broker_clients_keep, broker);
		if (r < 0)
			return broker_fail(r,
				"cannot read the boot id; is there ProcSubset= in gpumemd.service? /proc/sys/kernel/random/boot_id");
	}
	for (uint32_t i = 0; i < n; i++) {
		struct gm_backend_device *info = &broker->serve.devices[i];
		uint64_t free_bytes = 0;
		/* Measured before its thread starts, so that no client is told that the device
		 * cannot be measured. */
		bool measured = info->measured && !broker->ops->exclusive &&
				broker->ops->memory_free(broker->backend, i, &free_bytes) == 0;
		r = gm_worker_new(&broker->loop, broker->ops, broker->backend, i,
			&gm_broker_device_events, broker, &broker->workers[i]);
		if (r < 0)
			return broker_fail(r, "a device's thread");
		struct gm_core_device_info core_info = {
			.total = info->total,
			.transport_fd = info->transport_fd,
			.transport_ipc = info->transport_ipc,
			.fd_why = info->fd_why,
			.ipc_why = info->ipc_why,
			.measured = measured,
			.pinned = info->pinned,
			.counted = measured && broker->ops->processes && !info->pinned,
			.free_bytes = free_bytes,
		};
		memcpy(core_info.uuid, info->uuid, sizeof(core_info.uuid));
		gm_broker_config_policy(broker, i, &core_info.policy);
		uint32_t number;
		r = gm_core_add_device(broker->core, &core_info, &number);
		if (r < 0)
			return broker_fail(r, "a device");
		broker->serve.n_devices = number + 1;
	}

	r = gm_admin_processes_new(
		&broker->loop, broker->ops, broker->workers, n, &broker->serve.processes);
	if (r < 0)
		return broker_fail(r, "the survey of devices");

	char detail[GM_DETAIL_BYTES];
	if (gm_admin_configure(broker->core, broker->config, NULL, detail) != GPUMEM_OK) {
		gm_log(GM_LOG_ERROR, "limits: %s", detail);
		return -EINVAL;
	}

	r = gm_broker_store_adopt(broker);
	if (r < 0)
		return r;
	gm_core_end_adoption(broker->core);
	gm_broker_config_check(broker);
	return 0;
}

static int broker_start_serving(struct gm_broker *broker)
{
	struct gm_serve *serve = &broker->serve;

	serve->socket = broker->front.endpoint.path;
	serve->start_ns = gm_clock_ns();
	serve->uid = geteuid();
	serve->stop = broker_on_stop;
	serve->reload = broker_on_reload;
	serve->ctx = broker;
	int r = gm_listeners_listen(&broker->front, &broker->hub, serve);
	if (r < 0)
		return broker_fail(r, "the listening socket");
	gm_broker_config_apply_users(broker);
	return 0;
}

/* Whether any device can be measured. If not, the daemon does not wake up for samples. */
static bool broker_is_measured(const struct gm_broker *broker)
{
	bool any = false;
	for (uint32_t i = 0; i < broker->serve.n_devices; i++)
		any = any || broker->serve.devices[i].measured;
	return any && !broker->ops->exclusive;
}

static int broker_start(struct gm_broker *broker)
{
	uint32_t n;
	int r = broker_start_loop(broker);
	if (r == 0)
		r = broker_start_front(broker);
	if (r == 0)
		r = broker_start_ids(broker);
	if (r == 0)
		r = gm_broker_store_open(broker);
	if (r == 0)
		r = broker_start_backend(broker, &n);
	if (r == 0) {
		r = gm_hub_init(&broker->hub, &broker->loop, broker->ids.generation);
		broker->hub_open = r == 0;
		if (r < 0)
			broker_fail(r, "connections");
	}

	if (r == 0)
		r = broker_start_devices(broker, n);
	if (r == 0)
		r = broker_start_core(broker, n);
	if (r == 0)
		r = broker_start_serving(broker);
	if (r < 0)
		return r;
	if (broker_is_measured(broker)) {
		gm_broker_on_sample(&broker->sample);
		uv_timer_start(&broker->sample, gm_broker_on_sample, GM_BROKER_SAMPLE_MS,
			GM_BROKER_SAMPLE_MS);
	}

	uint64_t watchdog_ms = gm_service_watchdog_ms();
	if (watchdog_ms)
		uv_timer_start(&broker->watchdog, broker_on_watchdog, watchdog_ms, watchdog_ms);
	return 0;
}

int gm_broker_exit_status(int result)
{
	if (result == -EINVAL || result == -EPROTONOSUPPORT)
		return GM_BROKER_EXIT_CONFIG;
	return result < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Turns the loop until it is stopped. In the turn in which it is, a client may end that was to be kept:
 * what it held must still be destroyed. */
static void broker_turn(struct gm_broker *broker)
{
	do
		uv_run(&broker->loop, UV_RUN_DEFAULT);
	while (!gm_broker_may_end(broker));
}

int gm_broker_run(const struct gm_broker_options *options, struct gm_config *config)
{
	struct gm_broker *broker = calloc(1, sizeof(*broker));
	if (!broker) {
		gm_config_free(config);
		broker_fail(-ENOMEM, "the broker");
		gm_service_failed(NULL);
		return -ENOMEM;
	}

	broker->options = options;
	gm_broker_config_use(broker, config);
	int r = broker_start(broker);
	if (r == 0) {
		char status[256];
		gm_broker_config_status(broker, status);
		gm_log(GM_LOG_INFO, "%s", status);
		gm_broker_config_say_ready(broker);
		broker_turn(broker);
	} else if (broker->core && !gm_broker_store_is_worth(broker)) {
		broker_begin_stop(broker, "the daemon could not start");
		broker_turn(broker);
	}

	/* Stopping can end the process, and can log further errors. */
	if (r < 0)
		gm_service_failed(NULL);
	broker_finish(broker, r);
	free(broker);
	return r;
}
