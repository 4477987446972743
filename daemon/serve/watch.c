/* SPDX-License-Identifier: Apache-2.0 */
/*
 * News. Everybody may watch; a client's own name for itself, its unit and its container are told to
 * those who may see them in the list of clients, and its number, pid and uid to all. A watcher that
 * does not read is dropped like any peer that does not: nothing waits for it, and the bound on what
 * is kept for it is the peer's.
 *
 * The journal is spared what repeats: of one kind about one client a line a second, however often a
 * client runs against its limit; and of reclaims by one trigger on one device the same, however
 * often two clients have one another's memory asked for.
 */
#include "daemon/serve/watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "common/clock.h"
#include "daemon/core/ladder.h"
#include "daemon/core/quota.h"
#include "daemon/serve/journal.h"

#define GM_WATCH_STEPS      256 /* of a plan, in a packet */
#define GM_WATCH_JOURNAL_NS GM_NS_PER_S

struct watcher {
	struct gm_peer *peer;
	bool admin;
	struct watcher *prev, *next;
};

/* A cleanup that was begun and whose asker waits for its end. */
struct cleanup {
	struct gm_peer *peer;
	uint64_t id;
	uint32_t device;
	uint64_t need;
	bool ended, reached;
	uint64_t freed[GM_RUNGS];
	struct cleanup *prev, *next;
};

struct gm_watch {
	struct watcher *watchers;
	struct cleanup *cleanups;
	/* When the journal last had one that is about no client. */
	uint64_t said_ns[GM_LIMIT_DEVICES][GM_EVENTS][GM_TRIGGERS];
};

int gm_watch_new(struct gm_watch **ret_watch)
{
	struct gm_watch *watch = calloc(1, sizeof(*watch));
	if (!watch)
		return -ENOMEM;
	*ret_watch = watch;
	return 0;
}

void gm_watch_free(struct gm_watch *watch)
{
	struct watcher *watcher, *next_watcher;
	struct cleanup *cleanup, *next_cleanup;
	if (!watch)
		return;
	DL_FOREACH_SAFE (watch->watchers, watcher, next_watcher)
		free(watcher);
	DL_FOREACH_SAFE (watch->cleanups, cleanup, next_cleanup)
		free(cleanup);
	free(watch);
}

void gm_watch_peer_closed(struct gm_watch *watch, struct gm_peer *peer)
{
	struct watcher *watcher, *next_watcher;
	struct cleanup *cleanup, *next_cleanup;
	if (!watch)
		return;
	DL_FOREACH_SAFE (watch->watchers, watcher, next_watcher) {
		if (watcher->peer != peer)
			continue;
		DL_DELETE(watch->watchers, watcher);
		free(watcher);
	}
	DL_FOREACH_SAFE (watch->cleanups, cleanup, next_cleanup) {
		if (cleanup->peer != peer)
			continue;
		DL_DELETE(watch->cleanups, cleanup);
		free(cleanup);
	}
}

/* ---- the end of a cleanup */

static void watch_fill_result(
	struct gm_dispatch *dispatch, struct cleanup *cleanup, Gm__Wire__CleanupReply *reply)
{
	struct gm_device_figures figures;
	gm_core_device_figures(dispatch->core, cleanup->device, &figures);
	gm__wire__cleanup_reply__init(reply);
	reply->device = cleanup->device;
	reply->need = cleanup->need;
	reply->done = true;
	reply->reached = cleanup->reached;
	reply->n_freed = GM_RUNGS;
	reply->freed = cleanup->freed;
	reply->free = figures.free;
}

static void watch_end_cleanup(struct gm_dispatch *dispatch, struct cleanup *cleanup)
{
	DL_DELETE(dispatch->watch->cleanups, cleanup);
	free(cleanup);
}

static void watch_send_result(struct gm_dispatch *dispatch, struct cleanup *cleanup)
{
	Gm__Wire__CleanupReply reply;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	watch_fill_result(dispatch, cleanup, &reply);
	packet.id = cleanup->id;
	packet.body_case = GM__WIRE__PACKET__BODY_CLEANUP_REPLY;
	packet.cleanup_reply = &reply;
	gm_peer_send(cleanup->peer, &packet);
	watch_end_cleanup(dispatch, cleanup);
}

static void watch_end_cleanups(struct gm_dispatch *dispatch, const struct gm_event *event)
{
	struct cleanup *cleanup, *next;
	DL_FOREACH_SAFE (dispatch->watch->cleanups, cleanup, next) {
		if (cleanup->device != event->device || cleanup->ended)
			continue;
		cleanup->reached = event->reached;
		memcpy(cleanup->freed, event->rungs, sizeof(cleanup->freed));
		cleanup->ended = true;
		/* One without an id has not told its plan yet, and tells this after it. */
		if (cleanup->id)
			watch_send_result(dispatch, cleanup);
	}
}

/* ---- news */

static bool watch_may_see(const struct watcher *watcher, const struct gm_identity *other)
{
	const struct gm_identity *asker = gm_peer_identity(watcher->peer);
	return watcher->admin || gm_identity_same_owner(asker, other);
}

static void watch_send_notice(const struct watcher *watcher, const Gm__Wire__NoticeEvent *notice)
{
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	packet.body_case = GM__WIRE__PACKET__BODY_NOTICE_EVENT;
	packet.notice_event = (Gm__Wire__NoticeEvent *)notice;
	gm_peer_send(watcher->peer, &packet);
}

static bool watch_log_again(
	struct gm_watch *watch, struct gm_client *client, const struct gm_event *event)
{
	uint64_t now = gm_clock_ns();
	uint64_t *said = client ? &client->said_ns[event->kind]
				: &watch->said_ns[event->device][event->kind][event->trigger];
	if (!client && event->session) /* it has just gone, and says no more */
		return true;
	if (*said && now - *said < GM_WATCH_JOURNAL_NS)
		return false;
	*said = now;
	return true;
}

/* What happened, for who may not know whose limit it is. */
static const char *watch_bare_text(const struct gm_event *event)
{
	if (!gm_dispatch_is_private(event->owner))
		return event->text;
	switch (event->kind) {
	case GM_EVENT_LIMIT:
		return "asked for more than a limit lets it have";
	case GM_EVENT_QUEUED:
		return "waits: a limit is in the way";
	default:
		return "was refused: a limit was in the way";
	}
}

void gm_watch_event(struct gm_dispatch *dispatch, const struct gm_event *event)
{
	struct gm_client *client =
		event->session ? gm_clients_of(dispatch->clients, event->session) : NULL;
	const struct gm_identity *identity = client ? client->identity : NULL;
	char text[GM_JOURNAL_TEXT], bare[GM_JOURNAL_TEXT], owner[GM_OWNER_TEXT] = "";
	struct watcher *watcher;
	gm_journal_text(event, identity, client ? client->name : NULL, text);
	if (watch_log_again(dispatch->watch, client, event))
		gm_journal_event(event, identity, text);
	if (event->kind == GM_EVENT_RECLAIM_ENDED && event->trigger == GM_TRIGGER_MANUAL)
		watch_end_cleanups(dispatch, event);
	if (!dispatch->watch->watchers)
		return;

	Gm__Wire__NoticeEvent notice = GM__WIRE__NOTICE_EVENT__INIT;
	uint64_t rungs[GM_RUNGS];
	bool reclaim =
		event->kind == GM_EVENT_RECLAIM_STARTED || event->kind == GM_EVENT_RECLAIM_ENDED;
	notice.kind = (char *)gm_journal_kind(event->kind);
	notice.device = event->device;
	if (event->session)
		notice.session = gm_session_id(event->session);
	if (identity) {
		notice.pid = identity->pid;
		notice.uid = identity->uid;
		snprintf(bare, sizeof(bare), "client %llu (pid %d, uid %u): %s",
			(unsigned long long)notice.session, (int)identity->pid, identity->uid,
			watch_bare_text(event));
	}
	if (event->owner)
		gm_owner_name(event->owner, owner);
	notice.asked = event->asked;
	notice.held = event->held;
	notice.max = event->max;
	notice.bytes = event->bytes;
	notice.waited_ms = event->waited_ns / GM_NS_PER_MS;
	notice.priority = event->priority;
	notice.need = event->need;
	notice.reached = event->reached;
	notice.status = (uint32_t)event->status;
	if (reclaim) {
		memcpy(rungs, event->rungs, sizeof(rungs));
		notice.trigger = (char *)gm_journal_trigger(event->trigger);
		notice.n_rungs = GM_RUNGS;
		notice.rungs = rungs;
	}
	DL_FOREACH (dispatch->watch->watchers, watcher) {
		bool all = !identity || watch_may_see(watcher, identity);
		notice.text = all ? text : bare;
		notice.client = (char *)(all && client ? client->name : "");
		notice.owner = (char *)(all || !gm_dispatch_is_private(event->owner) ? owner : "");
		watch_send_notice(watcher, &notice);
	}
}

static void watch_send_level(struct gm_dispatch *dispatch, struct gm_peer *peer, uint32_t device)
{
	struct gm_device_figures figures;
	Gm__Wire__PressureEvent event = GM__WIRE__PRESSURE_EVENT__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	gm_core_device_figures(dispatch->core, device, &figures);
	event.device = device;
	event.pressure_ppm = figures.pressure_ppm;
	event.level = figures.level;
	packet.body_case = GM__WIRE__PACKET__BODY_PRESSURE_EVENT;
	packet.pressure_event = &event;
	gm_peer_send(peer, &packet);
}

void gm_watch_level(struct gm_dispatch *dispatch, uint32_t device)
{
	struct gm_device_figures figures;
	struct watcher *watcher;
	gm_core_device_figures(dispatch->core, device, &figures);
	gm_journal_pressure(device, &figures);
	if (!dispatch->watch)
		return;
	DL_FOREACH (dispatch->watch->watchers, watcher)
		watch_send_level(dispatch, watcher->peer, device);
}

void gm_watch_limits(struct gm_dispatch *dispatch, const struct gm_identity *who, const char *owner,
	const char *what)
{
	char text[GM_JOURNAL_TEXT];
	struct watcher *watcher;
	Gm__Wire__NoticeEvent notice = GM__WIRE__NOTICE_EVENT__INIT;
	if (who) {
		gm_journal_limits(who, owner, what);
		notice.pid = who->pid;
		notice.uid = who->uid;
		snprintf(text, sizeof(text), "uid %u (pid %d) changed limits: %s %s", who->uid,
			(int)who->pid, owner, what);
	} else {
		snprintf(text, sizeof(text), "limits: %s", what);
	}
	notice.kind = (char *)"limits";
	notice.owner = (char *)owner;
	notice.text = text;
	DL_FOREACH (dispatch->watch->watchers, watcher)
		watch_send_notice(watcher, &notice);
}

void gm_watch_goodbye(struct gm_dispatch *dispatch, const char *reason, bool restart)
{
	struct watcher *watcher;
	Gm__Wire__GoodbyeEvent event = GM__WIRE__GOODBYE_EVENT__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	if (!dispatch->watch)
		return;
	event.reason = (char *)reason;
	event.restart = restart;
	packet.body_case = GM__WIRE__PACKET__BODY_GOODBYE_EVENT;
	packet.goodbye_event = &event;
	DL_FOREACH (dispatch->watch->watchers, watcher)
		gm_peer_send(watcher->peer, &packet);
}

/* ---- requests */

void gm_watch_start(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	struct watcher *watcher;
	DL_SEARCH_SCALAR(dispatch->watch->watchers, watcher, peer, peer);
	if (watcher) {
		gm_peer_send_failure(
			peer, packet->id, GPUMEM_E_INVALID, "this connection watches already");
		return;
	}
	watcher = calloc(1, sizeof(*watcher));
	if (!watcher) {
		gm_peer_send_failure(
			peer, packet->id, GPUMEM_E_SYSTEM, "the daemon is out of memory");
		return;
	}
	watcher->peer = peer;
	watcher->admin = gm_dispatch_is_admin(dispatch, peer);
	DL_APPEND(dispatch->watch->watchers, watcher);
	gm_peer_send_done(peer, packet->id);
	/* What holds now, so that nothing is missed between a look and the first change. */
	for (uint32_t i = 0; i < dispatch->n_devices; i++)
		watch_send_level(dispatch, peer, i);
}

/* ---- plans: as long as there are clients, so told as they are read */

/* What a plan says of one of its steps. Of a client whose details are not for who asked: only how
 * much, not of whom, since that is what it caches. */
struct step {
	enum gm_rung rung;
	int32_t priority;
	uint64_t bytes, held, session;
	pid_t pid;
	uid_t uid;
};

struct plan {
	struct gm_stream stream;
	struct gm_dispatch *dispatch;
	struct cleanup *cleanup; /* NULL: a dry run */
	uint32_t device;
	uint64_t need, planned;
	bool told; /* and what came of it is the last packet */
	size_t at, n;
	struct step steps[];
};

static void watch_plan_free(struct gm_stream *stream)
{
	free(stream);
}

static int watch_tell_result(struct plan *plan, struct gm_peer *peer)
{
	Gm__Wire__CleanupReply reply;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	watch_fill_result(plan->dispatch, plan->cleanup, &reply);
	packet.id = plan->stream.id;
	packet.body_case = GM__WIRE__PACKET__BODY_CLEANUP_REPLY;
	packet.cleanup_reply = &reply;
	int r = gm_peer_emit(peer, &packet, NULL, 0);
	if (r == 0)
		watch_end_cleanup(plan->dispatch, plan->cleanup);
	return r;
}

static void watch_fill_step(
	const struct plan *plan, const struct step *from, Gm__Wire__CleanupStep *ret)
{
	struct gm_session *session =
		from->session ? gm_core_find_session(plan->dispatch->core, from->session) : NULL;
	const struct gm_client *client =
		session ? gm_clients_of(plan->dispatch->clients, session) : NULL;
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

static int watch_plan_next(struct gm_stream *stream, struct gm_peer *peer)
{
	struct plan *plan = (struct plan *)stream;
	Gm__Wire__CleanupStep steps[GM_WATCH_STEPS];
	Gm__Wire__CleanupStep *list[GM_WATCH_STEPS];
	Gm__Wire__CleanupReply reply = GM__WIRE__CLEANUP_REPLY__INIT;
	Gm__Wire__Packet packet = GM__WIRE__PACKET__INIT;
	size_t n = 0;
	if (plan->told)
		return watch_tell_result(plan, peer);
	for (; n < GM_WATCH_STEPS && plan->at + n < plan->n; n++) {
		watch_fill_step(plan, &plan->steps[plan->at + n], &steps[n]);
		list[n] = &steps[n];
	}
	reply.device = plan->device;
	reply.need = plan->need;
	reply.planned = plan->planned;
	reply.n_steps = n;
	reply.steps = list;
	packet.id = stream->id;
	packet.more = plan->cleanup || plan->at + n < plan->n;
	packet.body_case = GM__WIRE__PACKET__BODY_CLEANUP_REPLY;
	packet.cleanup_reply = &reply;
	int r = gm_peer_emit(peer, &packet, NULL, 0);
	if (r < 0)
		return r;
	plan->at += n;
	if (plan->at < plan->n)
		return 1;
	if (!plan->cleanup)
		return 0;
	plan->told = plan->cleanup->ended;
	if (!plan->told) {
		plan->cleanup->id = stream->id;
		stream->parted = true;
	}
	return plan->told;
}

/* false: no memory. */
static bool watch_tell_plan(struct gm_dispatch *dispatch, struct gm_peer *peer, uint64_t id,
	const struct gm_ladder_plan *from, struct cleanup *cleanup)
{
	const struct watcher asker = {.peer = peer, .admin = gm_dispatch_is_admin(dispatch, peer)};
	size_t bytes = from->n_steps * sizeof(struct step);
	struct plan *plan = calloc(1, sizeof(*plan) + bytes);
	if (!plan)
		return false;
	plan->stream.id = id;
	plan->stream.bytes = bytes;
	plan->stream.next = watch_plan_next;
	plan->stream.free = watch_plan_free;
	plan->dispatch = dispatch;
	plan->cleanup = cleanup;
	plan->device = from->device;
	plan->need = from->need;
	plan->planned = from->planned;
	plan->n = from->n_steps;
	for (size_t i = 0; i < plan->n; i++) {
		const struct gm_ladder_step *step = &from->steps[i];
		const struct gm_client *client =
			step->session ? gm_clients_of(dispatch->clients, step->session) : NULL;
		struct step *to = &plan->steps[i];
		to->rung = step->rung;
		to->bytes = step->bytes;
		if (!client || !watch_may_see(&asker, client->identity))
			continue;
		to->held = step->held;
		to->priority = step->priority;
		to->session = gm_session_id(step->session);
		to->pid = client->identity->pid;
		to->uid = client->identity->uid;
	}
	gm_peer_start(peer, &plan->stream);
	return true;
}

void gm_watch_cleanup(
	struct gm_dispatch *dispatch, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	const Gm__Wire__Cleanup *what = packet->cleanup;
	uint64_t id = packet->id;
	uint64_t need = what->need;
	bool dry_run = what->dry_run;
	char detail[GM_DETAIL_BYTES] = "";
	struct gm_ladder_plan plan = {0};
	gpumem_status status;
	if (!dry_run && !gm_dispatch_require_admin(dispatch, peer, id, "a cleanup"))
		return;
	if (what->device >= dispatch->n_devices) {
		gm_dispatch_no_device(dispatch, peer, id, what->device);
		return;
	}
	if (dry_run) {
		status = gm_core_cleanup_plan(dispatch->core, what->device, need, &plan, detail);
		if (status != GPUMEM_OK)
			gm_peer_send_failure(peer, id, status, detail);
		else if (!watch_tell_plan(dispatch, peer, id, &plan, NULL))
			gm_peer_send_failure(
				peer, id, GPUMEM_E_SYSTEM, "the daemon is out of memory");
		gm_ladder_plan_deinit(&plan);
		return;
	}
	struct cleanup *cleanup = calloc(1, sizeof(*cleanup));
	if (!cleanup) {
		gm_peer_send_failure(peer, id, GPUMEM_E_SYSTEM, "the daemon is out of memory");
		return;
	}
	cleanup->peer = peer;
	cleanup->device = what->device;
	/* It may end before the call that begins it returns. */
	DL_APPEND(dispatch->watch->cleanups, cleanup);
	gm_peer_log(peer, GM_LOG_NOTICE, "a cleanup of device %u by hand", cleanup->device);
	status = gm_core_cleanup(dispatch->core, cleanup->device, need, &plan, detail);
	if (status == GPUMEM_OK) {
		cleanup->need = plan.need;
		if (plan.n_steps == 0)
			cleanup->ended = cleanup->reached = true;
		if (!watch_tell_plan(dispatch, peer, id, &plan, cleanup)) {
			/* It is under way: what came of it can be told all the same. */
			cleanup->id = id;
			if (cleanup->ended)
				watch_send_result(dispatch, cleanup);
		}
	} else {
		gm_peer_log(peer, GM_LOG_NOTICE, "it was refused: %s", detail);
		gm_peer_send_failure(peer, id, status, detail);
		watch_end_cleanup(dispatch, cleanup);
	}
	gm_ladder_plan_deinit(&plan);
}
