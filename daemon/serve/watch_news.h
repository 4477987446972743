/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_SERVE_WATCH_NEWS_H
#define GM_DAEMON_SERVE_WATCH_NEWS_H

#include "daemon/books/owner.h"
#include "daemon/serve/journal.h"
#include "daemon/serve/serve.h"

/*
 * The last GM_WATCH_NEWS_ITEMS events, and the watchers that are sent them. An event is stored once, however
 * many watch. Each watcher gets it on its own user's turn (daemon/net/hub_flow.h), so that 1,000
 * watchers of one user delay nobody else. A watcher that falls behind by more than the ring holds
 * loses the oldest events, and is told how many.
 */
#define GM_WATCH_NEWS_ITEMS 128

/* What is known about an event. The strings of `notice` point into the item itself. */
struct gm_watch_news_item {
	Gm__Wire__Packet__BodyCase body; /* NOTICE_EVENT or PRESSURE_EVENT */
	Gm__Wire__PressureEvent pressure;
	Gm__Wire__NoticeEvent notice; /* without text, what, client and owner: see below */
	/* A watcher that may see the client gets text, what, client and owner. All others get bare and
	 * bare_what, and the owner only if it is not private. */
	char text[GM_JOURNAL_TEXT], bare[GM_JOURNAL_TEXT];
	char what[GM_JOURNAL_TEXT], bare_what[GM_JOURNAL_TEXT];
	char client[GM_BOUND_NAME_BYTES + 1], owner[GM_OWNER_TEXT];
	bool owner_is_private;
	uint64_t stages[GM_STAGES];
	bool about_client; /* of this owner: */
	bool confined;
	uid_t uid;
	char scope[GM_CGROUP_SCOPE_BYTES];
};

struct gm_watch_news;

int gm_watch_news_new(struct gm_watch_news **ret_news);
/* All watchers must be gone. news may be NULL. */
void gm_watch_news_free(struct gm_watch_news *news);

bool gm_watch_news_is_watched(const struct gm_watch_news *news);
bool gm_watch_news_watches(const struct gm_watch_news *news, const struct gm_peer *peer);
/* Sends the peer everything from now on. Returns 0 or -ENOMEM. sees_all: also what is about others' clients. */
int gm_watch_news_watch(struct gm_watch_news *news, struct gm_peer *peer, bool sees_all);
/* Does nothing if the peer does not watch. */
void gm_watch_news_unwatch(struct gm_watch_news *news, const struct gm_peer *peer);

/* Adds an event and has it sent. The caller fills in the item, which is zeroed, before the loop's
 * next turn. There must be a watcher. */
struct gm_watch_news_item *gm_watch_news_add(struct gm_watch_news *news);
/* Sends a message to all watchers at once, before any item that waits: for the daemon's end. */
void gm_watch_news_send_now(
	struct gm_watch_news *news, Gm__Wire__Packet__BodyCase body, void *message);

#endif
