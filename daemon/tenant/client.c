/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients. Memory is charged to a process, so the record of a client outlives its connection. It
 * ends when the pidfd reports the end of the process (a forked child may still hold a copy of the
 * socket), with a goodbye, with a connection that leaves no lease behind, or when the process has
 * neither the connection nor its page: then it runs another program.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define HASH_NONFATAL_OOM 1
#include "daemon/tenant/client.h"

#include <utlist.h>

#include "common/arith.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/step.h"
#include "common/text/units.h"
#include "daemon/tenant/client_store.h"
#include "daemon/tenant/client_news.h"

/* How often to look whether quarantined clients have called exec: soon after one came, then more and
 * more rarely. A look is at so many clients at most. */
#define GM_CLIENTS_LOOK_FIRST_MS 10
#define GM_CLIENTS_LOOK_LAST_MS  4000
#define GM_CLIENTS_LOOK_AT       64

/* ---- the table */

int gm_clients_init(struct gm_clients *clients, struct gm_hub *hub, struct gm_core *core,
	uint32_t devices, void (*flushed)(void *ctx), void *ctx)
{
	memset(clients, 0, sizeof(*clients));
	clients->hub = hub;
	clients->core = core;
	clients->devices = devices;
	clients->flushed = flushed;
	clients->ctx = ctx;
	int r = gm_domains_new(&clients->domains);
	if (r < 0)
		return r;

	uv_timer_init(hub->loop, &clients->timer); /* cannot fail */
	clients->timer.data = clients;
	clients->timer_open = true;
	uv_timer_init(hub->loop, &clients->look);
	clients->look.data = clients;
	return 0;
}

void gm_clients_close(struct gm_clients *clients)
{
	if (clients->timer_open) {
		uv_close((uv_handle_t *)&clients->timer, NULL);
		uv_close((uv_handle_t *)&clients->look, NULL);
	}
	clients->timer_open = false;
}

void gm_clients_deinit(struct gm_clients *clients)
{
	gm_domains_free(clients->domains);
	clients->domains = NULL;
}

void gm_clients_set_bound(struct gm_clients *clients, uint32_t per_uid)
{
	clients->hub->users.bounds[GM_USER_CLIENTS].own = per_uid;
}

/* The client is quarantined no more. */
static void client_is_back(struct gm_client *client)
{
	if (!client->away_prev)
		return;
	DL_DELETE2(client->clients->away, client, away_prev, away_next);
	client->away_prev = client->away_next = NULL;
}

void gm_client_forget(struct gm_client *client)
{
	struct gm_clients *clients = client->clients;

	client_is_back(client);
	clients->uncharged_clients -= client->uncharged > 0;
	clients->uncharged -= client->uncharged;
	HASH_DELETE(hh, clients->by_id, client);
	DL_DELETE(clients->list, client);
	gm_domains_release(clients->domains, client->domain);
	gm_events_free(client->events);
	gm_pages_deinit(&client->pages);
	gm_pages_deinit(&client->former);
	gm_hub_flow_remove(&client->process);
	gm_hub_flow_unref(client->ends);
	gm_user_charge_deinit(&client->charge);
	gm_hub_flow_unref(client->flow);
	gm_identity_unref(client->identity);
	free(client);
}

/* Ends the client and returns its session, which the caller must end. */
static struct gm_session *client_end(struct gm_client *client)
{
	struct gm_session *session = client->session;

	if (client->peer)
		gm_peer_set_user(client->peer, NULL);
	else
		client->clients->quarantined--;
	gm_session_set_user(session, NULL);
	gm_session_cancel(session); /* while the client can still say whose the requests are */
	gm_client_forget(client);
	return session;
}

static void client_end_died(struct gm_client *client)
{
	const struct gm_clients *clients = client->clients;
	uint64_t id = client->id;

	if (client->peer)
		gm_peer_drop(client->peer);
	gm_session_end_died(client_end(client));
	gm_client_unstore(clients, id);
}

void gm_client_goodbye(struct gm_client *client)
{
	const struct gm_clients *clients = client->clients;
	uint64_t id = client->id;

	gm_client_log(client, GM_LOG_DEBUG, "said goodbye");
	/* The connection stays open: the answer to the goodbye goes there. */
	gm_session_end_unmapped(client_end(client));
	gm_client_unstore(clients, id);
}

/* This is no complaint: a program under gpumem-run says no goodbye when it ends. */
static void client_log_death(struct gm_client *client)
{
	gm_client_log(client, GM_LOG_INFO,
		"ended with its process; its memory is released, except what has a name or is open "
		"elsewhere");
}

static void client_on_process_end(struct gm_hub_flow_fd *process, uint32_t events)
{
	struct gm_client *client =
		(struct gm_client *)((char *)process - offsetof(struct gm_client, process));

	(void)events;
	gm_hub_flow_remove(process);
	if (!gm_identity_dead(client->identity)) {
		/* The process lives: polling its pidfd failed. */
		gm_client_log(
			client, GM_LOG_ERROR, "can no longer be watched; its memory stays charged");
		return;
	}
	client_log_death(client);
	client_end_died(client);
}

static void client_on_look(uv_timer_t *timer);

static void client_look_in(struct gm_clients *clients, uint64_t ms)
{
	clients->look_ms = ms;
	if (clients->timer_open)
		uv_timer_start(&clients->look, client_on_look, ms, 0);
}

/* Ends the client if its process runs another program now. Returns whether it did. */
static bool client_end_if_replaced(struct gm_client *client)
{
	/* A process that ends gives up its page, too. Its pidfd will tell. */
	if (client->page_lost || gm_pages_in_use(&client->pages) ||
		gm_pages_in_use(&client->former) || gm_identity_exiting(client->identity))
		return false;
	gm_client_log(client, GM_LOG_INFO,
		"runs another program now (exec), or gave up its page; its memory is released");
	client_end_died(client);
	return true;
}

/*
 * exec closes the connection and takes the page away in one go, but in no order that could be relied
 * on. A forked child may also keep the page for a while.
 */
static void client_on_look(uv_timer_t *timer)
{
	struct gm_clients *clients = timer->data;
	struct gm_client *client, *last = clients->away ? clients->away->away_prev : NULL;
	bool done = !last;

	for (int i = 0; i < GM_CLIENTS_LOOK_AT && !done; i++) {
		client = clients->away;
		done = client == last;
		/* To the end of the list, so that the next look begins behind it. */
		client_is_back(client);
		DL_APPEND2(clients->away, client, away_prev, away_next);
		client_end_if_replaced(client);
	}

	if (!done)
		client_look_in(clients, clients->look_ms);
	else if (clients->away)
		client_look_in(clients, gm_u64_min(2 * clients->look_ms, GM_CLIENTS_LOOK_LAST_MS));
}

void gm_client_is_away(struct gm_client *client)
{
	struct gm_clients *clients = client->clients;

	DL_APPEND2(clients->away, client, away_prev, away_next);
	/* Never later than it would be: clients that come and go must not put off the look at others. */
	if (!uv_is_active((uv_handle_t *)&clients->look) ||
		uv_timer_get_due_in(&clients->look) > GM_CLIENTS_LOOK_FIRST_MS)
		client_look_in(clients, GM_CLIENTS_LOOK_FIRST_MS);
}

void gm_client_disconnected(struct gm_client *client)
{
	client->peer = NULL;
	client->clients->quarantined++;
	if (gm_identity_dead(client->identity)) {
		client_log_death(client);
		client_end_died(client);
		return;
	}
	if (gm_session_lease_count(client->session) == 0) {
		gm_client_log(client, GM_LOG_DEBUG, "disconnected and holds nothing");
		client_end_died(client);
		return;
	}
	if (client_end_if_replaced(client))
		return;

	gm_client_say_quarantined(client);
	gm_events_free(client->events);
	client->events = NULL;
	gm_session_quarantine(client->session);
	gm_client_is_away(client);
}

void gm_clients_end_all(struct gm_clients *clients)
{
	while (clients->list) {
		struct gm_client *client = clients->list;
		if (client->peer) {
			struct gm_peer *peer = client->peer;
			gm_peer_set_user(peer, NULL);
			client->peer = NULL;
			clients->quarantined++;
			gm_peer_close(peer);
		}
		client_end_died(client);
	}
}

/* ---- joining */

void gm_client_welcome_deinit(struct gm_client_welcome *welcome)
{
	welcome->wakeup = gm_close(welcome->wakeup);
	welcome->daemon_page = gm_close(welcome->daemon_page);
	welcome->client_page = gm_close(welcome->client_page);
}

/* The client gets new pages. It may never see them, if its new connection ends at once. So the page
 * that it has now goes on showing that it runs the same program. */
static void client_keep_former_page(struct gm_client *client)
{
	struct gm_pages kept;
	gm_pages_init(&kept);
	if (gm_pages_in_use(&client->pages))
		kept.client_fd = gm_steal_fd(&client->pages.client_fd);
	else if (gm_pages_in_use(&client->former))
		kept.client_fd = gm_steal_fd(&client->former.client_fd);

	gm_pages_deinit(&client->pages);
	gm_pages_deinit(&client->former);
	client->former = kept;
}

/* Gives the client new pages and a new wakeup. A process that resumes its client keeps those of its
 * previous connection to itself. A client that does not know of events on its page gets a wakeup that
 * never rings. */
static int client_equip(
	struct gm_client *client, struct gm_pages *pages, struct gm_client_welcome *welcome)
{
	struct gm_clients *clients = client->clients;
	struct gm_events *events = NULL;
	int r = gm_pages_set_session(pages, client->id);
	if (r == 0)
		r = gm_pages_share(pages, &welcome->client_page);
	if (r == 0)
		r = gm_events_new(clients->hub, client->flow, clients->core, &client->pages,
			&welcome->wakeup, &events);
	if (r < 0)
		return r;

	welcome->daemon_page = gm_steal_fd(&pages->daemon_fd);
	client_keep_former_page(client);
	gm_events_free(client->events);
	client->pages = *pages;
	gm_pages_init(pages);
	client->page_lost = false;
	if (client->pages.version < GM_PAGE_VERSION_EVENTS) {
		gm_events_free(events);
		events = NULL;
	}
	client->events = events;
	/* The record says so before the client can have its new page. */
	bool safe = gm_client_store_fd(client, GM_STORE_FORMER, client->former.client_fd);
	GM_STEP("hello: former page deposited");
	client->page_unsafe =
		!gm_client_store_fd(client, GM_STORE_PAGE, client->pages.client_fd) || !safe;
	GM_STEP("hello: page deposited");
	for (uint32_t i = 0; i < clients->devices; i++) {
		struct gm_device_figures figures;
		gm_core_device_figures(clients->core, i, &figures);
		client->max[i] = gm_session_max(client->session, i);
		gm_client_write_page(client, i, &figures);
	}
	return 0;
}

int gm_client_enter(struct gm_client *client, struct gm_identity *identity)
{
	struct gm_clients *clients = client->clients;

	client->process.fd = identity->pidfd;
	client->process.events = EPOLLIN;
	client->process.ready = client_on_process_end;
	int r = gm_hub_flow_get(
		&clients->hub->flows, client->flow->key | GM_HUB_FLOW_ENDS, &client->ends);
	if (r < 0)
		return r;
	r = gm_hub_flow_add(client->ends, &client->process);
	if (r < 0)
		goto no_watch;
	HASH_ADD(hh, clients->by_id, id, sizeof(client->id), client);
	if (!client->hh.tbl) {
		r = -ENOMEM;
		goto no_entry;
	}

	DL_APPEND(clients->list, client);
	gm_user_charge_init(&client->charge, client->flow->user, GM_USER_CLIENTS);
	gm_user_charge_add(&client->charge, 1);
	client->identity = gm_identity_ref(identity);
	return 0;
no_entry:
	gm_hub_flow_remove(&client->process);
no_watch:
	gm_hub_flow_unref(client->ends);
	return r;
}

/* The identity of a client that joins, but for its domain. */
static struct gm_session_info client_info(const struct gm_clients *clients,
	const struct gm_identity *identity, const struct gm_client_hello *hello)
{
	struct gm_session_info info = {
		.pid = identity->pid,
		.began = identity->started,
		.uid = identity->uid,
		.payer_uid = identity->payer_uid,
		.subordinate = identity->payer_uid != identity->uid,
		.gid = identity->gid,
		.unit = identity->cgroup.unit,
		.container = identity->cgroup.container,
		.name = hello->name,
		.run = hello->run,
		.run_limit = hello->run_limit,
		.scope = identity->cgroup.scope,
		.command = identity->command,
		.loose = identity->cgroup.name_is_loose,
		.confined = identity->confined,
		.own_pid_namespace = identity->own_pid_namespace,
	};
	memcpy(info.boot, clients->boot, sizeof(info.boot));
	return info;
}

static int client_new(struct gm_clients *clients, struct gm_peer *peer,
	const struct gm_client_hello *hello, uint8_t token[GM_TOKEN_BYTES],
	struct gm_client **ret_client)
{
	struct gm_identity *identity = gm_peer_identity(peer);
	struct gm_client *client = calloc(1, sizeof(*client));
	if (!client)
		return -ENOMEM;
	client->clients = clients;
	gm_pages_init(&client->pages);
	gm_pages_init(&client->former);
	struct gm_session_info info = client_info(clients, identity, hello);

	int r = gm_hub_flow_get(&clients->hub->flows, identity->payer_uid, &client->flow);
	if (r < 0)
		goto no_flow;
	int full = gm_user_check(client->flow->user, GM_USER_CLIENTS, 1);
	if (full) {
		r = full == GM_USER_E_OWN ? -EUSERS : -EDQUOT;
		goto no_domain;
	}
	r = gm_domains_get(
		clients->domains, hello->trust, identity, &client->domain, &info.pooling);
	if (r < 0)
		goto no_domain;
	info.domain = client->domain;
	char key[GM_DOMAIN_KEY_BYTES];
	if (gm_domain_key(hello->trust, identity, key))
		info.domain_key = key;
	r = gm_session_new(clients->core, &info, token, &client->session);
	if (r < 0)
		goto no_session;

	client->id = gm_session_id(client->session);
	r = gm_client_enter(client, identity);
	if (r < 0)
		goto no_entry;

	client->peer = peer;
	gm_session_set_user(client->session, client);
	/* Without it, the next daemon goes by the number and the start time. */
	(void)gm_client_store_fd(client, GM_STORE_PROCESS, identity->pidfd);
	GM_STEP("hello: process deposited");
	*ret_client = client;
	return 0;
no_entry:
	gm_session_end_died(client->session);
no_session:
	gm_domains_release(clients->domains, client->domain);
no_domain:
	gm_hub_flow_unref(client->flow);
no_flow:
	free(client);
	return r;
}

/* Resumes a quarantined client. Returns -ENOENT if it has ended. */
static int client_resume(struct gm_clients *clients, struct gm_peer *peer,
	const struct gm_client_hello *hello, uint8_t token[GM_TOKEN_BYTES],
	struct gm_client **ret_client)
{
	struct gm_client *client = gm_clients_find(clients, hello->resume_id);
	struct gm_identity *identity = gm_peer_identity(peer);

	if (!client)
		return -ENOENT;
	/* The client's process lives, as its pidfd says, so an equal pid is the same process. */
	if (!identity->pid || identity->pid != client->identity->pid ||
		identity->uid != client->identity->uid)
		return -EACCES;
	int r = gm_session_resume(client->session, hello->resume_token, client, token);
	if (r == -EBUSY) {
		/* The client is back before the daemon saw the end of its old connection. Only the
		 * right token leads here, so nobody else can close a client's connection. */
		gm_peer_close(client->peer);
		client = gm_clients_find(clients, hello->resume_id);
		if (!client)
			return -ENOENT;
		r = gm_session_resume(client->session, hello->resume_token, client, token);
	}
	if (r < 0)
		return r;
	gm_identity_share(identity, client->identity);
	clients->quarantined--;
	client_is_back(client);
	client->peer = peer;
	client->unsaid = false;
	*ret_client = client;
	return 0;
}

/* Notes a client that came back with a session of a daemon before this one. Most of these held nothing: a daemon that
 * stops leaves no record of them. An older library does not say what it held. */
static void client_note_unknown(struct gm_client *client, uint64_t held)
{
	struct gm_clients *clients = client->clients;
	char text[256], size[GM_UNITS_TEXT];

	if (!held) {
		gm_client_log(client, GM_LOG_INFO,
			"came back with a session that this daemon does not know, and has a new one: if it held memory, nobody is charged for that until the program returns it or ends (on a GPU, it is foreign)");
		return;
	}
	client->uncharged = gm_u64_min(held, UINT64_C(1) << 50);
	clients->uncharged_clients++;
	clients->uncharged += client->uncharged;
	snprintf(text, sizeof(text),
		"came back with a session that this daemon does not know, and has a new one: nobody is charged for the %s that it held until the program returns them or ends (on a GPU, they are foreign)",
		gm_format_size(client->uncharged, size));
	gm_client_log(client, GM_LOG_WARNING, text);
}

int gm_clients_join(struct gm_clients *clients, struct gm_peer *peer,
	const struct gm_client_hello *hello, struct gm_client **ret_client,
	struct gm_client_welcome *ret_welcome)
{
	struct gm_client *client = NULL;
	struct gm_client_welcome welcome = {.wakeup = -1, .daemon_page = -1, .client_page = -1};
	int r = -ENOENT;

	if (hello->resume_id)
		r = client_resume(clients, peer, hello, welcome.token, &client);
	welcome.resumed = r == 0;
	if (r == -ENOENT)
		r = client_new(clients, peer, hello, welcome.token, &client);
	if (r < 0)
		return r;

	r = client_equip(client, hello->pages, &welcome);
	if (r == 0 &&
		gm_session_keep(client->session, client->pages.version, client->page_unsafe) < 0)
		r = -ENOMEM;
	if (r < 0) {
		gm_client_welcome_deinit(&welcome);
		if (welcome.resumed)
			gm_session_keep_token(client->session, hello->resume_token);
		/* The connection does not know the client yet, so its end would not be told. */
		gm_client_disconnected(client);
		return r;
	}

	client->unproven = welcome.resumed;
	client->resumed = welcome.resumed && hello->unique_ids;
	gm_peer_set_user(peer, client);
	gm_client_log(client, GM_LOG_DEBUG, welcome.resumed ? "resumed its session" : "joined");
	if (hello->resume_id && !welcome.resumed)
		client_note_unknown(client, hello->held);
	*ret_client = client;
	*ret_welcome = welcome;
	return 0;
}
