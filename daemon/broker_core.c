/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connects core to the other parts. Core asks for jobs, samples, the time, ids, random bytes and
 * messages to clients. The device threads and the clock tell core what happened. Core is called
 * only on the loop's thread, and learns about a device's jobs and samples in the order in which the
 * device's thread did them. This file must never hold a rule about memory: those belong to core.
 */
#include "daemon/broker_private.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/system/random.h"
#include "common/step.h"
#include "daemon/net/identity.h"
#include "daemon/serve/admin_processes.h"
#include "daemon/serve/watch.h"
#include "daemon/tenant/client_news.h"

/* ---- what core asks for */

static void broker_core_create(void *ctx, struct gm_chunk *chunk, uint64_t turn)
{
	gm_broker_store_create(ctx, chunk, turn);
}

static bool broker_core_call_off(void *ctx, struct gm_chunk *chunk)
{
	return gm_broker_store_call_off(ctx, chunk);
}

static void broker_core_destroy(void *ctx, struct gm_chunk *chunk)
{
	gm_broker_store_destroy(ctx, chunk);
}

static uint64_t broker_core_now_ns(void *ctx)
{
	return gm_clock_ns();
}

static uint64_t broker_core_new_id(void *ctx)
{
	struct gm_broker *broker = ctx;
	return gm_broker_ids_next(&broker->ids);
}

static void broker_core_random(void *ctx, void *bytes, size_t n)
{
	if (gm_random(bytes, n) < 0) {
		/* Tokens that can be guessed are worse than no daemon. */
		gm_log(GM_LOG_ERROR, "cannot read random bytes from the kernel; giving up");
		abort();
	}
}

static void broker_core_device_changed(void *ctx, uint32_t device)
{
	struct gm_broker *broker = ctx;
	if (broker->clients_open)
		gm_clients_device_changed(&broker->clients, device);
}

static void broker_core_session_changed(void *ctx, struct gm_session *session, uint32_t device)
{
	gm_clients_session_changed(session, device);
}

static void broker_core_level_changed(void *ctx, uint32_t device, enum gm_pressure_level level)
{
	struct gm_broker *broker = ctx;
	gm_watch_level(&broker->serve, device);
	if (broker->clients_open)
		gm_clients_level_changed(&broker->clients, device);
}

static void broker_core_use(
	void *ctx, struct gm_session *session, uint32_t device, struct gm_account_use *ret)
{
	gm_clients_use(session, device, ret);
}

static void broker_core_reclaim(
	void *ctx, struct gm_session *session, const struct gm_reclaim_message *ask)
{
	gm_clients_reclaim_from(session, ask);
}

static void broker_core_maker_left(void *ctx, struct gm_session *session)
{
	gm_clients_maker_left(session);
}

static int broker_core_terminate(void *ctx, struct gm_session *session, uint32_t device)
{
	struct gm_broker *broker = ctx;
	struct gm_client *client = gm_clients_of(&broker->clients, session);
	if (!client)
		return -ESRCH;
	return gm_client_terminator_end(
		broker->terminator, client->identity, broker->config->terminate_grace_ns);
}

static void broker_core_event(void *ctx, const struct gm_event *event)
{
	struct gm_broker *broker = ctx;
	if (broker->serve.watch && broker->clients_open)
		gm_watch_event(&broker->serve, event);
}

/* A backend remembers only its last failure. If it is not older than this, it is the one that core
 * asks about. */
#define GM_BROKER_TROUBLE_NS UINT64_C(5000000000)

static bool broker_core_trouble(void *ctx, uint32_t device, char text[GM_DETAIL_BYTES])
{
	struct gm_broker *broker = ctx;
	uint64_t when;
	_Static_assert(GM_BACKEND_TROUBLE <= GM_DETAIL_BYTES, "core's sentences have room for it");
	return broker->ops->trouble && broker->ops->trouble(broker->backend, device, text, &when) &&
	       gm_clock_ns() - when < GM_BROKER_TROUBLE_NS;
}

static bool broker_core_foreigner(void *ctx, uint32_t device, char text[GM_DETAIL_BYTES])
{
	const struct gm_broker *broker = ctx;
	return gm_admin_processes_foreigner(broker->serve.processes, device, text);
}

static bool broker_core_in_use(void *ctx, const struct gm_chunk *chunk)
{
	struct gm_broker *broker = ctx;
	return broker->serve.devices[chunk->device].reopened && chunk->handle.fd >= 0 &&
	       broker->ops->in_use(broker->backend, &chunk->handle);
}

/* A client that returns thousands of chunks must not hold up the loop with as many calls of open(). */
static void broker_core_pooled(void *ctx, const struct gm_chunk *chunk)
{
	struct gm_broker *broker = ctx;
	if (broker->to_prepare == 0 || chunk->handle.fd < 0)
		return;
	broker->to_prepare--;
	broker->ops->prepare(broker->backend, &chunk->handle);
}

void gm_broker_on_iteration(uv_prepare_t *turn)
{
	((struct gm_broker *)turn->data)->to_prepare = GM_BACKEND_COPIES;
}

static void broker_core_count(void *ctx, uint32_t device)
{
	struct gm_broker *broker = ctx;
	gm_worker_count(broker->workers[device]);
}

static enum gm_env_process broker_core_fate(void *ctx, pid_t pid, uint64_t began)
{
	unsigned long long now_began;
	bool ended;
	int r = gm_identity_number(pid, &now_began, &ended);
	if (r < 0)
		return r == -ESRCH ? GM_ENV_PROCESS_GONE : GM_ENV_PROCESS_ALIVE;
	if (began && now_began != began)
		return GM_ENV_PROCESS_REPLACED;
	return ended ? GM_ENV_PROCESS_GONE : GM_ENV_PROCESS_ALIVE;
}

/* What is foreign depends on what clients declared, too, as far as the driver counts that. */
static void broker_measure(struct gm_broker *broker, uint32_t device)
{
	struct gm_device_figures figures;
	gm_core_device_figures(broker->core, device, &figures);
	if (figures.declared && broker->ops->processes && !broker->ops->exclusive &&
		!broker->serve.devices[device].pinned)
		gm_worker_count(broker->workers[device]);
	gm_worker_sample(broker->workers[device]);
}

static void broker_core_probe(void *ctx, uint32_t device)
{
	broker_measure(ctx, device);
}

/* A task that runs gm_core_work() for one user, a slice on each of the user's turns. */
struct gm_broker_work {
	struct gm_hub_flow_task task;
	struct gm_broker *broker;
	struct gm_hub_flow *flow;
	uid_t payer_uid;
	struct gm_broker_work *prev, *next;
};

static void broker_work_free(struct gm_broker_work *work)
{
	DL_DELETE(work->broker->works, work);
	gm_hub_flow_withdraw(&work->task);
	gm_hub_flow_unref(work->flow);
	free(work);
}

static void broker_on_work(struct gm_hub_flow_task *task)
{
	struct gm_broker_work *work =
		(struct gm_broker_work *)((char *)task - offsetof(struct gm_broker_work, task));
	bool more;

	do
		more = gm_core_work(work->broker->core, work->payer_uid);
	while (more && !gm_hub_flow_time_is_up(work->flow));
	if (more)
		gm_hub_flow_post(work->flow, task);
	else
		broker_work_free(work);
}

static int broker_core_work(void *ctx, uid_t payer_uid)
{
	struct gm_broker *broker = ctx;
	struct gm_broker_work *work = calloc(1, sizeof(*work));
	if (!work)
		return -ENOMEM;
	int r = gm_hub_flow_get(&broker->hub.flows, payer_uid | GM_HUB_FLOW_ENDS, &work->flow);
	if (r < 0) {
		free(work);
		return r;
	}

	work->task.run = broker_on_work;
	work->broker = broker;
	work->payer_uid = payer_uid;
	DL_APPEND(broker->works, work);
	gm_hub_flow_post(work->flow, &work->task);
	return 0;
}

void gm_broker_drop_works(struct gm_broker *broker)
{
	while (broker->works)
		broker_work_free(broker->works);
}

/* ---- what the device threads and the clock tell core */

bool gm_broker_may_end(struct gm_broker *broker)
{
	return broker->stuck || broker->abandons ||
	       (gm_core_idle(broker->core) && gm_broker_store_is_safe(broker));
}

void gm_broker_check_idle(struct gm_broker *broker)
{
	if (broker->stopping && gm_broker_may_end(broker))
		uv_stop(&broker->loop);
}

/* The user that a chunk was made for, or whose it was, pays for what its end or its creation takes
 * here. */
static uint64_t broker_begin_result(struct gm_broker *broker)
{
	return gm_hub_flow_begin_work(&broker->hub.flows);
}

static void broker_end_result(struct gm_broker *broker, uid_t payer_uid, uint64_t began_ns)
{
	gm_hub_flow_end_work_of(&broker->hub.flows, payer_uid, began_ns);
	gm_broker_check_idle(broker);
}

static void broker_on_created(void *ctx, struct gm_chunk *chunk, int result)
{
	struct gm_broker *broker = ctx;
	uint64_t began_ns = broker_begin_result(broker);
	uid_t payer_uid = chunk->payer_uid; /* core may free the chunk */
	uint32_t bit = UINT32_C(1) << chunk->device;
	if (result == 0 || result == -ENOMEM || result == -EDQUOT) {
		broker->failing &= ~bit;
	} else if (!(broker->failing & bit)) {
		/* Logged once, so that a client that asks again and again cannot fill the log. */
		broker->failing |= bit;
		char field[32];
		const char *const fields[] = {field, NULL};
		snprintf(field, sizeof(field), "GPUMEM_DEVICE=%u", chunk->device);
		gm_log_fields(GM_LOG_ERROR, fields, "device %u: a chunk could not be made: %s%s",
			chunk->device, strerror(-result),
			result == -EMFILE ? "; raise LimitNOFILE=" : "");
	}

	gm_broker_store_created(broker, chunk, result);
	broker_end_result(broker, payer_uid, began_ns);
}

static void broker_on_destroyed(void *ctx, struct gm_chunk *chunk)
{
	struct gm_broker *broker = ctx;
	uint64_t began_ns = broker_begin_result(broker);
	uid_t payer_uid = chunk->payer_uid;
	GM_STEP("chunk: destroyed");
	if (!gm_broker_store_failed(broker, chunk))
		gm_core_destroyed(broker->core, chunk);
	broker_end_result(broker, payer_uid, began_ns);
}

static void broker_on_sampled(
	void *ctx, uint32_t device, int result, uint64_t free_bytes, bool latest)
{
	struct gm_broker *broker = ctx;
	struct gm_device_figures figures;
	if (gm_broker_store_hides(broker, device, latest))
		return;
	if (result < 0) {
		gm_core_sample_failed(broker->core, device);
	} else {
		gm_core_sample(broker->core, device, free_bytes);
		gm_core_device_figures(broker->core, device, &figures);
		gm_admin_processes_watch(broker->serve.processes, device, figures.foreign);
	}
	if (latest)
		gm_core_probed(broker->core, device);
}

static void broker_on_counted(void *ctx, uint32_t device, struct gm_usage_sample *counted)
{
	struct gm_broker *broker = ctx;
	if (gm_broker_store_hides(broker, device, false))
		counted->sampled = false;
	gm_core_counted(broker->core, device, counted);
}

static void broker_on_surveyed(void *ctx, uint32_t device, struct gm_usage *usage)
{
	struct gm_broker *broker = ctx;
	gm_admin_processes_update(&broker->serve, device, usage);
}

const struct gm_worker_events gm_broker_device_events = {
	.created = broker_on_created,
	.destroyed = broker_on_destroyed,
	.sampled = broker_on_sampled,
	.counted = broker_on_counted,
	.surveyed = broker_on_surveyed,
};

static void broker_run_tick(struct gm_broker *broker);

static void broker_on_tick(uv_timer_t *timer)
{
	broker_run_tick(timer->data);
}

static void broker_tick_at(struct gm_broker *broker, uint64_t ns)
{
	uint64_t now = gm_clock_ns();
	uint64_t wait_ms = ns > now ? (ns - now) / GM_NS_PER_MS + 1 : 1;
	/* The loop's own time is that of the beginning of its turn. */
	uv_update_time(&broker->loop);
	uv_timer_start(&broker->tick, broker_on_tick, wait_ms, 0);
	broker->tick_ns = ns;
}

static void broker_run_tick(struct gm_broker *broker)
{
	uint64_t next = gm_core_tick(broker->core);
	if (next == UINT64_MAX) {
		uv_timer_stop(&broker->tick);
		broker->tick_ns = UINT64_MAX;
		return;
	}
	broker_tick_at(broker, next);
}

static void broker_core_wake_at(void *ctx, uint64_t ns)
{
	struct gm_broker *broker = ctx;
	if (!broker->stopping &&
		(!uv_is_active((uv_handle_t *)&broker->tick) || ns < broker->tick_ns))
		broker_tick_at(broker, ns);
}

static void broker_core_close(void *ctx, uid_t payer_uid, int fd)
{
	struct gm_broker *broker = ctx;
	gm_closer_close_file(broker->hub.closer, payer_uid, fd);
}

const struct gm_core_ops gm_broker_core_ops = {
	.slice = 4, /* some 10 microseconds' work */
	.create = broker_core_create,
	.destroy = broker_core_destroy,
	.now_ns = broker_core_now_ns,
	.new_id = broker_core_new_id,
	.random = broker_core_random,
	.device_changed = broker_core_device_changed,
	.session_changed = broker_core_session_changed,
	.level_changed = broker_core_level_changed,
	.call_off = broker_core_call_off,
	.use = broker_core_use,
	.reclaim = broker_core_reclaim,
	.maker_left = broker_core_maker_left,
	.terminate = broker_core_terminate,
	.probe = broker_core_probe,
	.in_use = broker_core_in_use,
	.count = broker_core_count,
	.fate = broker_core_fate,
	.pooled = broker_core_pooled,
	.trouble = broker_core_trouble,
	.foreigner = broker_core_foreigner,
	.work = broker_core_work,
	.wake_at = broker_core_wake_at,
	.event = broker_core_event,
	.record = gm_broker_store_record,
	.erase = gm_broker_store_erase,
	.deposit = gm_broker_store_deposit,
	.withdraw = gm_broker_store_withdraw,
	.close = broker_core_close,
};

void gm_broker_on_flushed(void *ctx)
{
	struct gm_broker *broker = ctx;
	if (!broker->stopping)
		broker_run_tick(broker);
}

void gm_broker_on_sample(uv_timer_t *timer)
{
	struct gm_broker *broker = timer->data;
	for (uint32_t i = 0; i < broker->serve.n_devices; i++)
		if (broker->serve.devices[i].measured)
			broker_measure(broker, i);
}
