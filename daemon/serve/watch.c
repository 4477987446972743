/* SPDX-License-Identifier: Apache-2.0 */
/*
 * News. Everybody may watch, and learns the number, pid and uid of the client that a notice is
 * about. The client's name, unit and container go only to watchers that may see them in the list of
 * clients. A watcher that does not read is dropped like any other peer: nothing waits for it, and
 * daemon/net bounds what is kept for it.
 *
 * The journal gets no more than one line a second of each kind about each client, however often the
 * client runs against its limit. The same holds for reclaims by one trigger on one device, however
 * often two clients make the daemon ask each other for memory.
 */
#include "daemon/serve/watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "common/clock.h"
#include "daemon/core/owner.h"
#include "daemon/serve/admin_cleanup.h"
#include "daemon/serve/answer.h"
#include "daemon/serve/journal.h"

#define GM_WATCH_JOURNAL_NS GM_NS_PER_S

struct watcher {
	struct gm_peer *peer;
	bool admin;
	struct watcher *prev, *next;
};

struct gm_watch {
	struct watcher *watchers;
	/* When the journal last got a line that is about no client. */
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
	free(watch);
}

void gm_watch_peer_closed(struct gm_watch *watch, const struct gm_peer *peer)
{
	struct watcher *watcher, *next;

	if (!watch)
		return;
	DL_FOREACH_SAFE (watch->watchers, watcher, next) {
		if (watcher->peer != peer)
			continue;
		DL_DELETE(watch->watchers, watcher);
		free(watcher);
	}
}

/* Sends an event to all watchers. */
static void watch_send(struct gm_watch *watch, Gm__Wire__Packet__BodyCase body, void *message)
{
	struct watcher *watcher;

	if (!watch)
		return;
	DL_FOREACH (watch->watchers, watcher)
		gm_answer_send(watcher->peer, 0, body, message);
}

/* ---- events */

static bool watch_log_again(
	struct gm_watch *watch, struct gm_client *client, const struct gm_event *event)
{
	uint64_t now = gm_clock_ns();
	uint64_t *said = client ? &client->said_ns[event->kind]
				: &watch->said_ns[event->device][event->kind][event->trigger];

	/* The client has just gone, so this is the last line about it. */
	if (!client && event->session)
		return true;
	if (*said && now - *said < GM_WATCH_JOURNAL_NS)
		return false;
	*said = now;
	return true;
}

/* What happened, for watchers that may not know whose limit it is. */
static const char *watch_bare_text(const struct gm_event *event)
{
	if (!gm_serve_is_private(event->owner))
		return event->text;
	switch (event->kind) {
	case GM_EVENT_LIMIT:
		return "asked for more than a limit allows";
	case GM_EVENT_QUEUED:
		return "waits because of a limit";
	default:
		return "was refused because of a limit";
	}
}

static void watch_send_event(struct gm_serve *serve, const struct gm_event *event,
	const struct gm_client *client, char *text)
{
	const struct gm_identity *identity = client ? client->identity : NULL;
	Gm__Wire__NoticeEvent notice = GM__WIRE__NOTICE_EVENT__INIT;
	char bare[GM_JOURNAL_TEXT], owner[GM_OWNER_TEXT] = "";
	struct watcher *watcher;

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
	if (event->kind == GM_EVENT_RECLAIM_STARTED || event->kind == GM_EVENT_RECLAIM_ENDED) {
		notice.trigger = (char *)gm_journal_trigger(event->trigger);
		notice.n_rungs = GM_RUNGS;
		notice.rungs = (uint64_t *)event->rungs;
	}

	DL_FOREACH (serve->watch->watchers, watcher) {
		bool all = !identity || watcher->admin ||
			   gm_identity_same_owner(gm_peer_identity(watcher->peer), identity);
		notice.text = all ? text : bare;
		if (identity)
			notice.what = (char *)(all ? event->text : watch_bare_text(event));
		notice.client = (char *)(all && client ? client->name : "");
		notice.owner = all || !gm_serve_is_private(event->owner) ? owner : (char *)"";
		gm_answer_send(watcher->peer, 0, GM__WIRE__PACKET__BODY_NOTICE_EVENT, &notice);
	}
}

void gm_watch_event(struct gm_serve *serve, const struct gm_event *event)
{
	struct gm_client *client =
		event->session ? gm_clients_of(serve->clients, event->session) : NULL;
	const struct gm_identity *identity = client ? client->identity : NULL;
	char text[GM_JOURNAL_TEXT];

	gm_journal_text(event, identity, client ? client->name : NULL, text);
	if (watch_log_again(serve->watch, client, event))
		gm_journal_event(event, identity, text);
	if (event->kind == GM_EVENT_RECLAIM_ENDED && event->trigger == GM_TRIGGER_MANUAL)
		gm_admin_cleanup_ended(serve, event);
	if (serve->watch->watchers)
		watch_send_event(serve, event, client, text);
}

static Gm__Wire__PressureEvent watch_level_event(const struct gm_serve *serve, uint32_t device)
{
	Gm__Wire__PressureEvent event = GM__WIRE__PRESSURE_EVENT__INIT;
	struct gm_device_figures figures;

	gm_core_device_figures(serve->core, device, &figures);
	event.device = device;
	event.pressure_ppm = figures.pressure_ppm;
	event.level = figures.level;
	return event;
}

void gm_watch_level(struct gm_serve *serve, uint32_t device)
{
	Gm__Wire__PressureEvent event = watch_level_event(serve, device);
	struct gm_device_figures figures;

	gm_core_device_figures(serve->core, device, &figures);
	gm_journal_pressure(device, &figures);
	watch_send(serve->watch, GM__WIRE__PACKET__BODY_PRESSURE_EVENT, &event);
}

void gm_watch_limits(
	struct gm_serve *serve, const struct gm_identity *who, const char *owner, const char *what)
{
	Gm__Wire__NoticeEvent notice = GM__WIRE__NOTICE_EVENT__INIT;
	char text[GM_JOURNAL_TEXT];

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
	watch_send(serve->watch, GM__WIRE__PACKET__BODY_NOTICE_EVENT, &notice);
}

void gm_watch_goodbye(struct gm_serve *serve, const char *reason, bool restart)
{
	Gm__Wire__GoodbyeEvent event = GM__WIRE__GOODBYE_EVENT__INIT;

	event.reason = (char *)reason;
	event.restart = restart;
	watch_send(serve->watch, GM__WIRE__PACKET__BODY_GOODBYE_EVENT, &event);
}

/* ---- the request */

void gm_watch_start(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	struct watcher *watcher;

	DL_SEARCH_SCALAR(serve->watch->watchers, watcher, peer, peer);
	if (watcher) {
		gm_peer_send_failure(
			peer, packet->id, GPUMEM_E_INVALID, "this connection is watching already");
		return;
	}
	watcher = calloc(1, sizeof(*watcher));
	if (!watcher) {
		gm_serve_fail_memory(peer, packet->id);
		return;
	}
	watcher->peer = peer;
	watcher->admin = gm_serve_is_admin(serve, peer);
	DL_APPEND(serve->watch->watchers, watcher);
	gm_peer_send_done(peer, packet->id);

	/* The levels as they are, so that the watcher misses no change before its first event. */
	for (uint32_t i = 0; i < serve->n_devices; i++) {
		Gm__Wire__PressureEvent event = watch_level_event(serve, i);
		gm_answer_send(peer, 0, GM__WIRE__PACKET__BODY_PRESSURE_EVENT, &event);
	}
}
