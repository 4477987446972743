/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cleanups that an administrator asks for. The answer is the plan, whose length grows with the
 * number of clients, so it takes several packets. The result follows in one packet, once core says
 * that the cleanup has ended. A cleanup may end while its plan is still being sent.
 */
#include "daemon/serve/admin_cleanup.h"

#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "daemon/reclaim/ladder.h"
#include "daemon/serve/answer.h"

#define GM_CLEANUP_STEPS 256 /* of a plan, in a packet */

/* A cleanup under way, or one whose result is still to be sent. */
struct gm_cleanup {
	struct gm_peer *peer;
	uint64_t id; /* of the request; 0 until the whole plan was sent */
	uint32_t device;
	uint64_t need;
	bool ended, reached;
	uint64_t freed[GM_RUNGS];
	struct gm_cleanup *prev, *next;
};

static void cleanup_free(struct gm_serve *serve, struct gm_cleanup *cleanup)
{
	DL_DELETE(serve->cleanups, cleanup);
	free(cleanup);
}

void gm_admin_cleanup_peer_closed(struct gm_serve *serve, struct gm_peer *peer)
{
	struct gm_cleanup *cleanup, *next;

	DL_FOREACH_SAFE (serve->cleanups, cleanup, next)
		if (cleanup->peer == peer)
			cleanup_free(serve, cleanup);
}

/* ---- the result */

/* Fills in what of the device's memory is for nobody. */
static void cleanup_fill_policy(
	const struct gm_device_figures *figures, Gm__Wire__CleanupReply *ret)
{
	ret->min_free = figures->policy.min_free;
	ret->reserve = figures->policy.reserve;
}

static void cleanup_fill_result(
	struct gm_serve *serve, struct gm_cleanup *cleanup, Gm__Wire__CleanupReply *ret)
{
	struct gm_device_figures figures;

	gm_core_device_figures(serve->core, cleanup->device, &figures);
	gm__wire__cleanup_reply__init(ret);
	ret->device = cleanup->device;
	ret->need = cleanup->need;
	ret->done = true;
	ret->reached = cleanup->reached;
	ret->n_freed = GM_RUNGS;
	ret->freed = cleanup->freed;
	ret->free = figures.free;
	cleanup_fill_policy(&figures, ret);
}

static void cleanup_send_result(struct gm_serve *serve, struct gm_cleanup *cleanup)
{
	Gm__Wire__CleanupReply reply;

	cleanup_fill_result(serve, cleanup, &reply);
	gm_answer_send(cleanup->peer, cleanup->id, GM__WIRE__PACKET__BODY_CLEANUP_REPLY, &reply);
	cleanup_free(serve, cleanup);
}

void gm_admin_cleanup_ended(struct gm_serve *serve, const struct gm_event *event)
{
	struct gm_cleanup *cleanup, *next;

	DL_FOREACH_SAFE (serve->cleanups, cleanup, next) {
		if (cleanup->device != event->device || cleanup->ended)
			continue;
		cleanup->reached = event->reached;
		memcpy(cleanup->freed, event->rungs, sizeof(cleanup->freed));
		cleanup->ended = true;
		/* Without an id, the plan is still being sent. The result follows it. */
		if (cleanup->id)
			cleanup_send_result(serve, cleanup);
	}
}

/* ---- the plan */

/* One step of a plan. If the peer may not see the client's details, only rung and bytes are set:
 * naming the client would reveal how much it caches. */
struct cleanup_step {
	enum gm_rung rung;
	int32_t priority;
	uint64_t bytes, held, session;
	pid_t pid;
	uid_t uid;
};

struct cleanup_plan {
	struct gm_answer head;
	struct gm_cleanup *cleanup; /* NULL: a dry run */
	uint32_t device;
	uint64_t need, planned;
	bool sent; /* the whole plan; the last packet is the result */
	size_t at, n;
	struct cleanup_step steps[];
};

static int cleanup_emit_result(struct cleanup_plan *plan, struct gm_peer *peer)
{
	struct gm_serve *serve = plan->head.serve;
	Gm__Wire__CleanupReply reply;

	cleanup_fill_result(serve, plan->cleanup, &reply);
	int r = gm_answer_emit(
		&plan->head.stream, peer, false, GM__WIRE__PACKET__BODY_CLEANUP_REPLY, &reply);
	if (r == 0)
		cleanup_free(serve, plan->cleanup);
	return r;
}

static void cleanup_fill_step(
	struct gm_serve *serve, const struct cleanup_step *from, Gm__Wire__CleanupStep *ret)
{
	const struct gm_client *client = gm_clients_find(serve->clients, from->session);

	gm__wire__cleanup_step__init(ret);
	ret->rung = (Gm__Wire__Rung)from->rung;
	ret->bytes = from->bytes;
	ret->held = from->held;
	ret->priority = from->priority;
	ret->session = from->session;
	ret->pid = from->pid;
	ret->uid = from->uid;
	if (client)
		ret->client = (char *)client->name;
}

static int cleanup_plan_next(struct gm_stream *stream, struct gm_peer *peer)
{
	struct cleanup_plan *plan = (struct cleanup_plan *)stream;
	Gm__Wire__CleanupStep steps[GM_CLEANUP_STEPS];
	Gm__Wire__CleanupStep *list[GM_CLEANUP_STEPS];
	Gm__Wire__CleanupReply reply = GM__WIRE__CLEANUP_REPLY__INIT;
	struct gm_device_figures figures;
	size_t n = 0;

	if (plan->sent)
		return cleanup_emit_result(plan, peer);
	for (; n < GM_CLEANUP_STEPS && plan->at + n < plan->n; n++) {
		cleanup_fill_step(plan->head.serve, &plan->steps[plan->at + n], &steps[n]);
		list[n] = &steps[n];
	}
	reply.device = plan->device;
	reply.need = plan->need;
	reply.planned = plan->planned;
	gm_core_device_figures(plan->head.serve->core, plan->device, &figures);
	cleanup_fill_policy(&figures, &reply);
	reply.n_steps = n;
	reply.steps = list;
	int r = gm_answer_emit(stream, peer, plan->cleanup || plan->at + n < plan->n,
		GM__WIRE__PACKET__BODY_CLEANUP_REPLY, &reply);
	if (r < 0)
		return r;

	plan->at += n;
	if (plan->at < plan->n || !plan->cleanup)
		return r;
	plan->sent = plan->cleanup->ended;
	if (!plan->sent) {
		plan->cleanup->id = stream->id;
		stream->parted = true;
	}
	return plan->sent;
}

/* Returns false if the daemon is out of memory. */
static bool cleanup_send_plan(struct gm_serve *serve, struct gm_peer *peer, uint64_t id,
	const struct gm_ladder_plan *from, struct gm_cleanup *cleanup)
{
	size_t bytes = from->n_steps * sizeof(struct cleanup_step);
	struct cleanup_plan *plan =
		gm_answer_new(serve, peer, id, cleanup_plan_next, sizeof(*plan) + bytes);

	if (!plan)
		return false;
	plan->head.stream.bytes = bytes;
	plan->cleanup = cleanup;
	plan->device = from->device;
	plan->need = from->need;
	plan->planned = from->planned;
	plan->n = from->n_steps;
	for (size_t i = 0; i < plan->n; i++) {
		const struct gm_ladder_step *step = &from->steps[i];
		const struct gm_client *client =
			step->session ? gm_clients_of(serve->clients, step->session) : NULL;
		struct cleanup_step *to = &plan->steps[i];
		to->rung = step->rung;
		to->bytes = step->bytes;
		if (!client || !gm_answer_may_see(&plan->head, peer, client))
			continue;
		to->held = step->held;
		to->priority = step->priority;
		to->session = gm_session_id(step->session);
		to->pid = client->identity->pid;
		to->uid = client->identity->uid;
	}
	gm_peer_start(peer, &plan->head.stream);
	return true;
}

/* ---- the request */

static void cleanup_dry_run(
	struct gm_serve *serve, struct gm_peer *peer, uint64_t id, const Gm__Wire__Cleanup *what)
{
	char detail[GM_DETAIL_BYTES] = "";
	struct gm_ladder_plan plan = {0};
	gpumem_status status =
		gm_core_cleanup_plan(serve->core, what->device, what->need, &plan, detail);

	if (status != GPUMEM_OK)
		gm_peer_send_failure(peer, id, status, detail);
	else if (!cleanup_send_plan(serve, peer, id, &plan, NULL))
		gm_serve_fail_memory(peer, id);
	gm_ladder_plan_deinit(&plan);
}

void gm_admin_cleanup(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__Cleanup *what = packet->cleanup;
	uint64_t id = packet->id;
	char detail[GM_DETAIL_BYTES] = "";
	struct gm_ladder_plan plan = {0};

	if (!what->dry_run && !gm_serve_require_admin(serve, peer, id, "a cleanup"))
		return;
	if (!gm_serve_require_device(serve, peer, id, what->device))
		return;
	if (what->dry_run) {
		cleanup_dry_run(serve, peer, id, what);
		return;
	}

	struct gm_cleanup *cleanup = calloc(1, sizeof(*cleanup));
	if (!cleanup) {
		gm_serve_fail_memory(peer, id);
		return;
	}
	cleanup->peer = peer;
	cleanup->device = what->device;
	/* It may end before the call that begins it returns. */
	DL_APPEND(serve->cleanups, cleanup);
	gm_peer_log(peer, GM_LOG_NOTICE, "begins a cleanup of device %u", cleanup->device);

	gpumem_status status =
		gm_core_cleanup(serve->core, cleanup->device, what->need, &plan, detail);
	if (status != GPUMEM_OK) {
		gm_peer_log(peer, GM_LOG_NOTICE, "the cleanup is refused: %s", detail);
		gm_peer_send_failure(peer, id, status, detail);
		cleanup_free(serve, cleanup);
	} else {
		cleanup->need = plan.need;
		if (plan.n_steps == 0)
			cleanup->ended = cleanup->reached = true;
		if (!cleanup_send_plan(serve, peer, id, &plan, cleanup)) {
			/* The cleanup is under way, so its result can be sent without the plan. */
			cleanup->id = id;
			if (cleanup->ended)
				cleanup_send_result(serve, cleanup);
		}
	}
	gm_ladder_plan_deinit(&plan);
}
