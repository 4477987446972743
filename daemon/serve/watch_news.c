/* SPDX-License-Identifier: Apache-2.0 */
/*
 * News. The watchers of one user are a list in the order of what they have been sent: the first is
 * the furthest behind. On each turn of the user, the first watcher gets one event and goes to the
 * end of the list. So adding an event costs one step per user that watches, and no scan is needed to
 * find out who has not got everything.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utlist.h>

#include "daemon/serve/answer.h"
#include "daemon/serve/watch_news.h"

struct watch_news_watcher {
	struct gm_peer *peer;
	bool sees_all;
	uint64_t seen; /* how many events it was sent, or has lost */
	struct watch_news_watcher *prev, *next;
};

/* The watchers of one user. */
struct watch_news_user {
	struct gm_watch_news *news;
	struct gm_hub_flow *flow;
	struct gm_hub_flow_task task; /* posted while a watcher is behind */
	struct watch_news_watcher *watchers;
	struct watch_news_user *prev, *next;
};

struct gm_watch_news {
	uint64_t added; /* how many events there were */
	struct watch_news_user *users;
	struct gm_watch_news_item items[GM_WATCH_NEWS_ITEMS];
};

int gm_watch_news_new(struct gm_watch_news **ret_news)
{
	struct gm_watch_news *news = calloc(1, sizeof(*news));

	if (!news)
		return -ENOMEM;
	*ret_news = news;
	return 0;
}

void gm_watch_news_free(struct gm_watch_news *news)
{
	free(news);
}

/* ---- sending */

static bool watch_news_may_see(
	const struct watch_news_watcher *watcher, const struct gm_watch_news_item *item)
{
	const struct gm_identity *who = gm_peer_identity(watcher->peer);

	return !item->about_client || watcher->sees_all ||
	       (!item->confined && !who->confined && item->uid == who->uid &&
		       strcmp(item->scope, who->cgroup.scope) == 0);
}

static void watch_news_send_item(
	const struct watch_news_watcher *watcher, struct gm_watch_news_item *item)
{
	if (item->body == GM__WIRE__PACKET__BODY_PRESSURE_EVENT) {
		gm_answer_send(watcher->peer, 0, item->body, &item->pressure);
		return;
	}

	Gm__Wire__NoticeEvent notice = item->notice;
	bool all = watch_news_may_see(watcher, item);
	notice.text = all ? item->text : item->bare;
	notice.what = all ? item->what : item->bare_what;
	notice.client = all ? item->client : (char *)"";
	notice.owner = all || !item->owner_is_private ? item->owner : (char *)"";
	gm_answer_send(watcher->peer, 0, item->body, &notice);
}

static void watch_news_send_lost(const struct watch_news_watcher *watcher, uint64_t lost)
{
	Gm__Wire__NoticeEvent notice = GM__WIRE__NOTICE_EVENT__INIT;
	char text[96];

	snprintf(text, sizeof(text), "%llu event%s lost: events came faster than they were sent",
		(unsigned long long)lost, lost == 1 ? " was" : "s were");
	notice.kind = (char *)"lost";
	notice.text = text;
	gm_answer_send(watcher->peer, 0, GM__WIRE__PACKET__BODY_NOTICE_EVENT, &notice);
}

static void watch_news_on_turn(struct gm_hub_flow_task *task)
{
	struct watch_news_user *user =
		(struct watch_news_user *)((char *)task - offsetof(struct watch_news_user, task));
	struct gm_watch_news *news = user->news;
	struct watch_news_watcher *watcher = user->watchers;

	if (watcher->seen == news->added)
		return;
	if (news->added - watcher->seen > GM_WATCH_NEWS_ITEMS) {
		uint64_t oldest = news->added - GM_WATCH_NEWS_ITEMS;
		watch_news_send_lost(watcher, oldest - watcher->seen);
		watcher->seen = oldest;
	} else {
		watch_news_send_item(watcher, &news->items[watcher->seen++ % GM_WATCH_NEWS_ITEMS]);
	}

	DL_DELETE(user->watchers, watcher);
	DL_APPEND(user->watchers, watcher);
	gm_hub_flow_post(user->flow, &user->task);
}

struct gm_watch_news_item *gm_watch_news_add(struct gm_watch_news *news)
{
	struct gm_watch_news_item *item = &news->items[news->added++ % GM_WATCH_NEWS_ITEMS];
	struct watch_news_user *user;

	memset(item, 0, sizeof(*item));
	gm__wire__notice_event__init(&item->notice);
	gm__wire__pressure_event__init(&item->pressure);
	DL_FOREACH (news->users, user)
		gm_hub_flow_post(user->flow, &user->task);
	return item;
}

void gm_watch_news_send_now(
	struct gm_watch_news *news, Gm__Wire__Packet__BodyCase body, void *message)
{
	struct watch_news_user *user;
	struct watch_news_watcher *watcher;

	DL_FOREACH (news->users, user)
		DL_FOREACH (user->watchers, watcher)
			gm_answer_send(watcher->peer, 0, body, message);
}

/* ---- watchers */

bool gm_watch_news_is_watched(const struct gm_watch_news *news)
{
	return news->users != NULL;
}

static struct watch_news_user *watch_news_find_user(
	const struct gm_watch_news *news, const struct gm_peer *peer)
{
	struct watch_news_user *user;

	DL_SEARCH_SCALAR(news->users, user, flow, gm_peer_flow(peer));
	return user;
}

static struct watch_news_watcher *watch_news_find(
	const struct gm_watch_news *news, const struct gm_peer *peer)
{
	struct watch_news_user *user = watch_news_find_user(news, peer);
	struct watch_news_watcher *watcher = NULL;

	if (user)
		DL_SEARCH_SCALAR(user->watchers, watcher, peer, peer);
	return watcher;
}

bool gm_watch_news_watches(const struct gm_watch_news *news, const struct gm_peer *peer)
{
	return watch_news_find(news, peer) != NULL;
}

int gm_watch_news_watch(struct gm_watch_news *news, struct gm_peer *peer, bool sees_all)
{
	struct watch_news_watcher *watcher = calloc(1, sizeof(*watcher));
	struct watch_news_user *user = watch_news_find_user(news, peer);

	if (watcher && !user) {
		user = calloc(1, sizeof(*user));
		if (user) {
			user->news = news;
			user->flow = gm_hub_flow_ref(gm_peer_flow(peer));
			user->task.run = watch_news_on_turn;
			DL_APPEND(news->users, user);
		}
	}
	if (!watcher || !user) {
		free(watcher);
		return -ENOMEM;
	}

	watcher->peer = peer;
	watcher->sees_all = sees_all;
	watcher->seen = news->added;
	DL_APPEND(user->watchers, watcher);
	return 0;
}

void gm_watch_news_unwatch(struct gm_watch_news *news, const struct gm_peer *peer)
{
	struct watch_news_watcher *watcher = watch_news_find(news, peer);

	if (!watcher)
		return;
	struct watch_news_user *user = watch_news_find_user(news, peer);
	DL_DELETE(user->watchers, watcher);
	free(watcher);
	if (user->watchers)
		return;

	DL_DELETE(news->users, user);
	gm_hub_flow_withdraw(&user->task);
	gm_hub_flow_unref(user->flow);
	free(user);
}
