/* SPDX-License-Identifier: Apache-2.0 */
/*
 * News. Everybody may watch, and learns the number, pid and uid of the client that a notice is
 * about. The client's name, unit and container go only to watchers that may see them in the list of
 * clients. A watcher that does not read is dropped like any other peer: nothing waits for it, and
 * daemon/net bounds what is kept for it. watch_news.c sends the events.
 *
 * The journal gets no more than one line a second of each kind about each client, however often the
 * client runs against its limit. The same holds for reclaims by one trigger on one device, however
 * often two clients make the daemon ask each other for memory.
 *
 * Watchers hear of GM_LOG_LIMIT_NEWS events a second about each user, and then that further ones are left out. So a
 * user who runs against a limit without end hides nothing about others, and gets nobody's watcher dropped. A
 * reclaim for requests is about the user that made them. Other reclaims are counted by device and trigger.
 *
 * A request that waits causes reclaims as long as it waits. Watchers hear of those that say the same more and more
 * seldom, and how many were left out, as in the journal.
 */
#include "daemon/serve/watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/text/uid_name.h"
#include "common/text/units.h"
#include "daemon/books/owner.h"
#include "daemon/serve/admin_reclaim.h"
#include "daemon/serve/answer.h"
#include "daemon/serve/handlers.h"
#include "daemon/serve/journal.h"
#include "daemon/serve/watch_news.h"
#include "daemon/serve/serve_repeat.h"

#define GM_WATCH_JOURNAL_NS GM_NS_PER_S

/* The events that one user can cause at once (log_limit.h) leave room in the list for those of others. */
_Static_assert(
	2 * 2 * (GM_LOG_LIMIT_NEWS + 1) <= GM_WATCH_NEWS_ITEMS * 2 / 3, "no user fills the list");

struct gm_watch {
	struct gm_watch_news *news;
	/* When the journal last got a line that is about no client. */
	struct gm_serve_repeat said[GM_BOUND_DEVICES][GM_EVENTS][GM_TRIGGERS];
	/* How many events about no user watchers heard of. */
	struct gm_log_limit_news told[GM_BOUND_DEVICES][GM_TRIGGERS];
	/* When watchers last heard of a reclaim. */
	struct gm_serve_repeat_list reclaims;
};

int gm_watch_new(struct gm_watch **ret_watch)
{
	struct gm_watch *watch = calloc(1, sizeof(*watch));

	if (!watch)
		return -ENOMEM;
	int r = gm_watch_news_new(&watch->news);
	if (r < 0) {
		free(watch);
		return r;
	}
	*ret_watch = watch;
	return 0;
}

void gm_watch_free(struct gm_watch *watch)
{
	if (!watch)
		return;
	gm_watch_news_free(watch->news);
	free(watch);
}

void gm_watch_peer_closed(struct gm_watch *watch, const struct gm_peer *peer)
{
	if (watch)
		gm_watch_news_unwatch(watch->news, peer);
}

/* ---- events */

/* Whether the journal gets the line now. *ret_left_out: how many like it were left out before. */
static bool watch_log_again(struct gm_serve *serve, struct gm_client *client,
	const struct gm_event *event, const char *text, uint64_t *ret_left_out)
{
	struct gm_watch *watch = serve->watch;
	struct gm_log_limit *quiet = &serve->clients->hub->quiet;
	uint64_t now = gm_clock_ns();

	*ret_left_out = 0;
	if (!event->session || event->kind == GM_EVENT_RECLAIM_STARTED)
		return gm_serve_repeat_allows(
			&watch->said[event->device][event->kind][event->trigger], now,
			ret_left_out);
	/* Without a client: it has just gone, and this is the last line about it. */
	uid_t payer = gm_session_info(event->session)->payer_uid;
	bool soon = client && client->said_ns[event->kind] &&
		    now - client->said_ns[event->kind] < GM_WATCH_JOURNAL_NS;
	if (client && !soon)
		client->said_ns[event->kind] = now;
	if (!soon && gm_log_limit_allows(
			     quiet, payer, gm_journal_counts_as(event->kind), GM_LOG_LIMIT_EVENT))
		return true;
	gm_log_limit_leave_out(quiet, payer, (int)event->kind, text);
	return false;
}

/* Adds to a text how many like it were left out. */
static void watch_add_left_out(char text[GM_JOURNAL_TEXT], uint64_t left_out)
{
	char more[GM_UNITS_TEXT], end[GM_UNITS_TEXT + 32];

	if (!left_out)
		return;
	snprintf(end, sizeof(end), " (%s more like this)", gm_format_count(left_out, more));
	size_t n = strnlen(text, GM_JOURNAL_TEXT - 1 - strlen(end));
	strcpy(text + n, end);
}

static void watch_log(const struct gm_event *event, const struct gm_identity *identity,
	const char *text, uint64_t left_out)
{
	char longer[GM_JOURNAL_TEXT];

	strcpy(longer, text);
	watch_add_left_out(longer, left_out);
	gm_journal_event(event, identity, longer);
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
	case GM_EVENT_RESTS:
		return event->text; /* which does not name the limit */
	case GM_EVENT_RECLAIM_STARTED:
		return "reclaim for a request that has reached a limit";
	default:
		return "was refused because of a limit";
	}
}

/* left_out: how many events like this one watchers have not heard of. */
static void watch_add_event(struct gm_serve *serve, const struct gm_event *event,
	const struct gm_client *client, const char *text, uint64_t left_out)
{
	const struct gm_identity *identity = client ? client->identity : NULL;
	struct gm_watch_news_item *item = gm_watch_news_add(serve->watch->news);
	Gm__Wire__NoticeEvent *notice = &item->notice;
	char user[GM_UID_NAME_TEXT];

	item->body = GM__WIRE__PACKET__BODY_NOTICE_EVENT;
	snprintf(item->text, sizeof(item->text), "%s", text);
	notice->kind = (char *)gm_journal_kind(event->kind);
	notice->device = event->device;
	if (event->session)
		notice->session = gm_session_id(event->session);
	if (identity) {
		item->about_client = true;
		item->confined = identity->confined;
		item->uid = identity->uid;
		strcpy(item->scope, identity->cgroup.scope);
		strcpy(item->client, gm_client_name(client));
		notice->pid = identity->pid;
		notice->uid = identity->uid;
		snprintf(item->bare, sizeof(item->bare), "pid %d, %s: %s", (int)identity->pid,
			gm_uid_name_say(identity->uid, user), watch_bare_text(event));
		snprintf(item->what, sizeof(item->what), "%s", event->text);
		snprintf(item->bare_what, sizeof(item->bare_what), "%s", watch_bare_text(event));
		watch_add_left_out(item->bare, left_out);
		watch_add_left_out(item->what, left_out);
		watch_add_left_out(item->bare_what, left_out);
	}
	watch_add_left_out(item->text, left_out);
	if (event->owner)
		gm_owner_name(event->owner, item->owner);
	item->owner_is_private = gm_serve_is_private(event->owner);
	notice->asked = event->asked;
	notice->held = event->held;
	notice->max = event->max;
	notice->bytes = event->bytes;
	notice->waited_ms = event->waited_ns / GM_NS_PER_MS;
	notice->priority = event->priority;
	notice->need = event->need;
	notice->reached = event->reached;
	notice->status = (uint32_t)event->status;
	if (event->kind == GM_EVENT_RECLAIM_STARTED || event->kind == GM_EVENT_RECLAIM_ENDED) {
		notice->trigger = (char *)gm_journal_trigger(event->trigger);
		notice->n_stages = GM_STAGES;
		notice->stages = memcpy(item->stages, event->stages, sizeof(item->stages));
	}
}

/* The user that the event is about, or GM_EVENT_NOBODY. */
static uid_t watch_payer_of(const struct gm_event *event)
{
	if (event->session)
		return gm_session_info(event->session)->payer_uid;
	return event->trigger == GM_RECLAIM_TRIGGER_REQUEST ? event->payer_uid : GM_EVENT_NOBODY;
}

/* Tells watchers that they do not hear of further events like this one. */
static void watch_add_lost(struct gm_serve *serve, const struct gm_event *event, uid_t payer)
{
	struct gm_watch_news_item *item = gm_watch_news_add(serve->watch->news);
	char user[GM_UID_NAME_TEXT];

	item->body = GM__WIRE__PACKET__BODY_NOTICE_EVENT;
	item->notice.kind = (char *)"lost";
	if (payer != GM_EVENT_NOBODY) {
		item->notice.uid = payer;
		snprintf(item->owner, sizeof(item->owner), "uid:%u", payer);
		snprintf(item->text, sizeof(item->text),
			"%s causes more than %d events a second: further ones are left out",
			gm_uid_name_say(payer, user), GM_LOG_LIMIT_NEWS);
	} else {
		snprintf(item->text, sizeof(item->text),
			"device %u: there are more than %d reclaims and ends of reclaims with the "
			"trigger %s a second: further ones are left out",
			event->device, GM_LOG_LIMIT_NEWS, gm_journal_trigger(event->trigger));
	}
}

/* Whether a reclaim says something new to watchers, or it is time to say the same again. *ret_left_out: how many like it
 * were left out. */
static bool watch_is_new(
	struct gm_watch *watch, const struct gm_event *event, uint64_t *ret_left_out)
{
	const uint64_t key[GM_SERVE_REPEAT_PARTS] = {
		(uint64_t)event->kind << 32 | (uint64_t)event->trigger << 16 | event->device,
		(uint64_t)event->payer_uid << 32 | (event->reached ? 1U : 0U),
		event->session ? gm_session_id(event->session) : 0,
		event->asked,
		event->need,
	};

	return gm_serve_repeat_list_allows(&watch->reclaims, key, gm_clock_ns(), ret_left_out);
}

/* Whether watchers hear of the event. Tells them when they do not any more. *ret_left_out: how many like it
 * they have not heard of. */
static bool watch_may_add(
	struct gm_serve *serve, const struct gm_event *event, uint64_t *ret_left_out)
{
	struct gm_watch *watch = serve->watch;
	uid_t payer = watch_payer_of(event);
	enum gm_log_level level = gm_journal_counts_as(event->kind);
	bool may, first;

	if (!gm_watch_news_is_watched(watch->news))
		return false;
	if (event->trigger == GM_RECLAIM_TRIGGER_MANUAL && !event->session)
		return true; /* an administrator caused it */
	if ((event->kind == GM_EVENT_RECLAIM_STARTED || event->kind == GM_EVENT_RECLAIM_ENDED) &&
		!watch_is_new(watch, event, ret_left_out))
		return false;

	if (payer != GM_EVENT_NOBODY)
		may = gm_log_limit_allows_news(&serve->clients->hub->quiet, payer, level, &first);
	else
		may = gm_log_limit_news_allows(&watch->told[event->device][event->trigger],
			gm_clock_ns() / GM_NS_PER_MS, level, &first);
	if (!may && first)
		watch_add_lost(serve, event, payer);
	return may;
}

void gm_watch_event(struct gm_serve *serve, const struct gm_event *event)
{
	struct gm_client *client =
		event->session ? gm_clients_of(serve->clients, event->session) : NULL;
	const struct gm_identity *identity = client ? client->identity : NULL;
	char text[GM_JOURNAL_TEXT];
	uint64_t left_out;

	gm_journal_text(event, identity, client ? gm_client_name(client) : NULL, text);
	if (watch_log_again(serve, client, event, text, &left_out))
		watch_log(event, identity, text, left_out);
	if (event->kind == GM_EVENT_RECLAIM_ENDED && event->trigger == GM_RECLAIM_TRIGGER_MANUAL)
		gm_admin_reclaim_ended(serve, event);
	left_out = 0;
	if (watch_may_add(serve, event, &left_out))
		watch_add_event(serve, event, client, text, left_out);
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
	struct gm_device_figures figures;

	gm_core_device_figures(serve->core, device, &figures);
	gm_journal_pressure(device, &figures);
	if (!gm_watch_news_is_watched(serve->watch->news))
		return;
	struct gm_watch_news_item *item = gm_watch_news_add(serve->watch->news);
	item->body = GM__WIRE__PACKET__BODY_PRESSURE_EVENT;
	item->pressure = watch_level_event(serve, device);
}

void gm_watch_limits(struct gm_serve *serve, const struct gm_identity *who, const char *owner,
	const char *what, uint64_t max)
{
	if (who)
		gm_journal_limits(who, owner, what);
	if (!gm_watch_news_is_watched(serve->watch->news))
		return;

	struct gm_watch_news_item *item = gm_watch_news_add(serve->watch->news);
	char user[GM_UID_NAME_TEXT], name[GM_JOURNAL_OWNER];
	item->body = GM__WIRE__PACKET__BODY_NOTICE_EVENT;
	item->notice.kind = (char *)"limits";
	item->notice.max = max;
	snprintf(item->owner, sizeof(item->owner), "%s", owner);
	if (who) {
		item->notice.pid = who->pid;
		item->notice.uid = who->uid;
		snprintf(item->text, sizeof(item->text), "%s (pid %d) changed limits: %s %s",
			gm_uid_name_say(who->uid, user), (int)who->pid,
			gm_journal_owner(owner, name), what);
	} else {
		snprintf(item->text, sizeof(item->text), "limits: %s", what);
	}
}

void gm_watch_drain(
	struct gm_serve *serve, const struct gm_identity *who, uint32_t device, bool undone)
{
	gm_journal_drain(who, device, undone);
	if (!gm_watch_news_is_watched(serve->watch->news))
		return;

	struct gm_watch_news_item *item = gm_watch_news_add(serve->watch->news);
	char user[GM_UID_NAME_TEXT];
	item->body = GM__WIRE__PACKET__BODY_NOTICE_EVENT;
	item->notice.kind = (char *)"drain";
	item->notice.device = device;
	item->notice.pid = who->pid;
	item->notice.uid = who->uid;
	snprintf(item->text, sizeof(item->text), "%s (pid %d) %s device %u",
		gm_uid_name_say(who->uid, user), (int)who->pid,
		undone ? "ended the drain of" : "drains", device);
}

void gm_watch_goodbye(struct gm_serve *serve, const char *reason, bool restart)
{
	Gm__Wire__GoodbyeEvent event = GM__WIRE__GOODBYE_EVENT__INIT;

	event.reason = (char *)reason;
	event.restart = restart;
	if (serve->watch)
		gm_watch_news_send_now(
			serve->watch->news, GM__WIRE__PACKET__BODY_GOODBYE_EVENT, &event);
}

/* ---- the request */

void gm_watch_start(struct gm_serve *serve, struct gm_peer *peer, const Gm__Wire__Packet *packet)
{
	struct gm_watch_news *news = serve->watch->news;

	if (gm_watch_news_watches(news, peer)) {
		gm_peer_send_failure(
			peer, packet->id, GPUMEM_E_INVALID, "this connection is watching already");
		return;
	}
	if (gm_watch_news_watch(news, peer, gm_serve_sees_all(serve, peer)) < 0) {
		gm_serve_fail_memory(peer, packet->id);
		return;
	}
	gm_peer_send_done(peer, packet->id);

	/* The levels as they are, so that the watcher misses no change before its first event. */
	for (uint32_t i = 0; i < serve->n_devices; i++) {
		Gm__Wire__PressureEvent event = watch_level_event(serve, i);
		gm_answer_send(peer, 0, GM__WIRE__PACKET__BODY_PRESSURE_EVENT, &event);
	}
}
