/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cleanups that an administrator asks for. The answer is the plan, whose length grows with the
 * number of clients, so it takes several packets. The result follows in one packet, once core says
 * that the cleanup has ended. A cleanup may end while its plan is still being sent.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/reclaim/reclaim.h"
#include "daemon/serve/admin_reclaim.h"
#include "daemon/serve/handlers.h"

#define GM_CLEANUP_STEPS 256 /* of a plan, in a packet */

/* One step of a plan. If the peer may not see the client's details, only stage and bytes are set:
 * naming the client would reveal how much it caches. */
struct cleanup_step {
	enum gm_stage stage;
	int32_t priority;
	uint64_t bytes, held, session;
	pid_t pid;
	uid_t uid;
};

struct cleanup_job {
	struct gm_admin_reclaim job;
	bool dry_run, reached;
	bool sent; /* the whole plan; the next packet is the result */
	uint64_t need, planned;
	uint64_t freed[GM_STAGES];
	size_t at, n; /* of the plan's steps, which the job owns */
};

/* ---- the answer */

/* Begins a packet, with what of the device's memory is for nobody. */
static void cleanup_init_reply(const struct cleanup_job *cleanup, Gm__Wire__CleanupReply *ret)
{
	struct gm_device_figures figures;

	gm_core_device_figures(cleanup->job.head.serve->core, cleanup->job.device, &figures);
	gm__wire__cleanup_reply__init(ret);
	ret->device = cleanup->job.device;
	ret->need = cleanup->need;
	ret->min_free = figures.policy.min_free;
	ret->reserve = figures.policy.reserve;
	ret->free = cleanup->sent ? figures.free : 0;
}

static int cleanup_emit_result(struct cleanup_job *cleanup, struct gm_peer *peer)
{
	Gm__Wire__CleanupReply reply;

	cleanup_init_reply(cleanup, &reply);
	reply.done = true;
	reply.reached = cleanup->reached;
	reply.n_freed = GM_STAGES;
	reply.freed = cleanup->freed;
	return gm_answer_emit(&cleanup->job.head.stream, peer, false,
		GM__WIRE__PACKET__BODY_CLEANUP_REPLY, &reply);
}

static void cleanup_fill_step(
	struct gm_serve *serve, const struct cleanup_step *from, Gm__Wire__CleanupStep *ret)
{
	const struct gm_client *client = gm_clients_find(serve->clients, from->session);

	gm__wire__cleanup_step__init(ret);
	ret->stage = (Gm__Wire__Stage)from->stage;
	ret->bytes = from->bytes;
	ret->held = from->held;
	ret->priority = from->priority;
	ret->session = from->session;
	ret->pid = from->pid;
	ret->uid = from->uid;
	if (client)
		ret->client = (char *)gm_client_name(client);
}

static int cleanup_emit_steps(struct cleanup_job *cleanup, struct gm_peer *peer)
{
	const struct cleanup_step *from = cleanup->job.owned;
	Gm__Wire__CleanupStep steps[GM_CLEANUP_STEPS];
	Gm__Wire__CleanupStep *list[GM_CLEANUP_STEPS];
	Gm__Wire__CleanupReply reply;
	size_t n = 0;

	for (; n < GM_CLEANUP_STEPS && cleanup->at + n < cleanup->n; n++) {
		cleanup_fill_step(cleanup->job.head.serve, &from[cleanup->at + n], &steps[n]);
		list[n] = &steps[n];
	}
	cleanup_init_reply(cleanup, &reply);
	reply.planned = cleanup->planned;
	reply.n_steps = n;
	reply.steps = list;
	int r = gm_answer_emit(&cleanup->job.head.stream, peer,
		!cleanup->dry_run || cleanup->at + n < cleanup->n,
		GM__WIRE__PACKET__BODY_CLEANUP_REPLY, &reply);
	if (r < 0)
		return r;

	cleanup->at += n;
	cleanup->sent = cleanup->at == cleanup->n;
	return r;
}

static int cleanup_tell(struct gm_admin_reclaim *job, struct gm_peer *peer)
{
	struct cleanup_job *cleanup = (struct cleanup_job *)job;

	if (!cleanup->sent) {
		int r = cleanup_emit_steps(cleanup, peer);
		if (r <= 0 || !cleanup->sent || job->ended)
			return r;
	}
	return job->ended ? cleanup_emit_result(cleanup, peer) : GM_ADMIN_RECLAIM_WAITS;
}

static void cleanup_ended(struct gm_admin_reclaim *job, const struct gm_event *event)
{
	struct cleanup_job *cleanup = (struct cleanup_job *)job;

	cleanup->reached = event->reached;
	memcpy(cleanup->freed, event->stages, sizeof(cleanup->freed));
}

/* ---- the request */

/* Copies the plan, whose clients may end while it is sent. Returns false if the daemon is out of memory. */
static bool cleanup_take_plan(
	struct cleanup_job *cleanup, struct gm_peer *peer, const struct gm_reclaim_plan *from)
{
	struct gm_serve *serve = cleanup->job.head.serve;
	struct cleanup_step *steps = calloc(from->n_steps + 1, sizeof(*steps));

	cleanup->need = from->need;
	cleanup->planned = from->planned;
	if (!steps)
		return false;
	cleanup->job.owned = steps;
	cleanup->n = from->n_steps;
	for (size_t i = 0; i < cleanup->n; i++) {
		const struct gm_reclaim_step *step = &from->steps[i];
		const struct gm_client *client =
			step->session ? gm_clients_of(serve->clients, step->session) : NULL;
		struct cleanup_step *to = &steps[i];
		to->stage = step->stage;
		to->bytes = step->bytes;
		if (!client || !gm_answer_may_see(&cleanup->job.head, peer, client))
			continue;
		to->held = step->held;
		to->priority = step->priority;
		to->session = gm_session_id(step->session);
		to->pid = client->identity->pid;
		to->uid = client->identity->uid;
	}
	return true;
}

/* Plans the cleanup and, unless it is a dry run, begins it. It may end before this function returns. */
static gpumem_status cleanup_begin(struct cleanup_job *cleanup, struct gm_peer *peer,
	struct gm_reclaim_plan *ret_plan, char detail[GM_DETAIL_BYTES])
{
	struct gm_core *core = cleanup->job.head.serve->core;
	uint32_t device = cleanup->job.device;

	if (cleanup->dry_run)
		return gm_core_cleanup_plan(core, device, cleanup->need, ret_plan, detail);

	gm_admin_reclaim_await_core(&cleanup->job);
	gm_peer_log(peer, GM_LOG_NOTICE, "begins a cleanup of device %u", device);
	gpumem_status status = gm_core_cleanup(core, device, cleanup->need, ret_plan, detail);
	if (status != GPUMEM_OK)
		gm_peer_log(peer, GM_LOG_NOTICE, "the cleanup is refused: %s", detail);
	else if (ret_plan->n_steps == 0)
		cleanup->job.ended = cleanup->reached = true;
	return status;
}

void gm_admin_cleanup(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	static const struct gm_admin_reclaim_way way = {
		.tell = cleanup_tell, .ended = cleanup_ended};
	const Gm__Wire__Cleanup *what = packet->cleanup;
	char detail[GM_DETAIL_BYTES] = "";
	struct gm_reclaim_plan plan = {0};

	if (!what->dry_run && !gm_serve_require_admin(serve, peer, packet->id, "a cleanup"))
		return;
	if (!gm_serve_require_device(serve, peer, packet->id, what->device))
		return;

	struct cleanup_job *cleanup =
		gm_admin_reclaim_new(serve, peer, packet->id, &way, what->device, sizeof(*cleanup));
	if (!cleanup)
		return;
	cleanup->dry_run = what->dry_run;
	cleanup->need = what->need;

	gpumem_status status = cleanup_begin(cleanup, peer, &plan, detail);
	if (status != GPUMEM_OK) {
		gm_peer_send_failure(peer, packet->id, status, detail);
		gm_admin_reclaim_free(&cleanup->job);
	} else if (cleanup_take_plan(cleanup, peer, &plan)) {
		gm_admin_reclaim_start(&cleanup->job, cleanup->n * sizeof(struct cleanup_step));
	} else if (cleanup->dry_run) {
		gm_serve_fail_memory(peer, packet->id);
		gm_admin_reclaim_free(&cleanup->job);
	} else {
		/* The cleanup is under way, so its result can be sent without the plan. */
		cleanup->sent = true;
		gm_admin_reclaim_start(&cleanup->job, 0);
	}
	gm_reclaim_plan_deinit(&plan);
}
