/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients. Memory is charged to a process, so the record of a client outlives its connection. It
 * ends when the pidfd reports the end of the process (a forked child may still hold a copy of the
 * socket), with a goodbye, with a connection that leaves no lease behind, or when the process has
 * neither the connection nor its page: then it runs another program.
 *
 * The daemon writes what a client holds to the client's page at once. The figures of a device are
 * the same for all clients, so they are written to all pages together, at most once per interval.
 * Only a new pressure level is written at once. So the cost of a request does not grow with the
 * number of clients, and nothing runs while nothing changes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
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
#include "common/log.h"
#include "common/uid_name.h"
#include "common/units.h"

/* How often to look whether quarantined clients have called exec: soon after one came, then more and
 * more rarely. A look is at so many clients at most. */
#define GM_CLIENTS_LOOK_FIRST_MS 10
#define GM_CLIENTS_LOOK_LAST_MS  4000
#define GM_CLIENTS_LOOK_AT       64

/* How old the figures of a device on the pages may be. */
#define GM_CLIENTS_INTERVAL_MS 50

static void client_log(const struct gm_client *client, enum gm_log_level level, const char *what)
{
	char id[48], pid[32], uid[32], user[GM_UID_NAME_TEXT];
	const char *const fields[] = {id, pid, uid, NULL};

	if (!gm_quiet_allows(
		    &client->clients->hub->quiet, client->identity->uid, level, GM_QUIET_OTHER))
		return;
	snprintf(id, sizeof(id), "GPUMEM_CLIENT=%llu", (unsigned long long)client->id);
	snprintf(pid, sizeof(pid), "GPUMEM_PID=%d", (int)client->identity->pid);
	snprintf(uid, sizeof(uid), "GPUMEM_UID=%u", client->identity->uid);
	gm_log_fields(level, fields, "client %llu (%s, pid %d, %s) %s",
		(unsigned long long)client->id,
		client->name[0] ? client->name : client->identity->command,
		(int)client->identity->pid, gm_uid_name_say(client->identity->uid, user), what);
}

/* ---- figures for the pages */

static void client_write_page(
	struct gm_client *client, uint32_t device, const struct gm_device_figures *figures)
{
	gm_pages_write_device(&client->pages, device, figures,
		gm_session_held(client->session, device), client->max[device],
		gm_session_room(client->session, device));
}

static void client_write_device(struct gm_clients *clients, uint32_t device)
{
	struct gm_device_figures figures;
	struct gm_client *client;

	gm_core_device_figures(clients->core, device, &figures);
	DL_FOREACH (clients->list, client)
		client_write_page(client, device, &figures);
	clients->dirty &= ~(UINT32_C(1) << device);
}

/* Says which clients are quarantined. When a process ends, the kernel closes its connection just
 * before the pidfd tells. So only a client that is still there some time later is worth a line. */
static void client_say_quarantined(struct gm_clients *clients)
{
	struct gm_client *client;

	clients->unsaid = false;
	DL_FOREACH (clients->list, client) {
		if (client->unsaid && !gm_identity_dead(client->identity))
			client_log(client, GM_LOG_NOTICE,
				"closed its connection but is still running; its memory is "
				"quarantined");
		client->unsaid = false;
	}
}

static void client_on_interval(uv_timer_t *timer)
{
	struct gm_clients *clients = timer->data;

	if (clients->unsaid)
		client_say_quarantined(clients);

	for (uint32_t i = 0; i < clients->devices; i++)
		if (clients->dirty & UINT32_C(1) << i)
			client_write_device(clients, i);
	clients->flushed(clients->ctx);
}

static void client_start_interval(struct gm_clients *clients)
{
	if (clients->timer_open && !uv_is_active((uv_handle_t *)&clients->timer))
		uv_timer_start(&clients->timer, client_on_interval, GM_CLIENTS_INTERVAL_MS, 0);
}

void gm_clients_device_changed(struct gm_clients *clients, uint32_t device)
{
	clients->dirty |= UINT32_C(1) << device;
	client_start_interval(clients);
}

void gm_clients_session_changed(struct gm_session *session, uint32_t device)
{
	struct gm_client *client = gm_session_info(session)->user;

	if (client)
		gm_pages_write_held(&client->pages, device, gm_session_held(session, device),
			gm_session_room(session, device));
}

void gm_clients_level_changed(struct gm_clients *clients, uint32_t device)
{
	struct gm_client *client;

	client_write_device(clients, device);
	DL_FOREACH (clients->list, client)
		if (client->events)
			gm_events_pressure(client->events, device);
}

uint64_t gm_clients_reclaim(struct gm_clients *clients, uint32_t device, bool urgent)
{
	struct gm_client *client;
	uint64_t asked = 0;

	client_write_device(clients, device);
	DL_FOREACH (clients->list, client) {
		if (client->events && gm_session_held(client->session, device)) {
			gm_events_reclaim(client->events, device, urgent, 0);
			asked++;
		}
	}
	return asked;
}

void gm_clients_limits_changed(struct gm_clients *clients)
{
	struct gm_client *client;

	for (uint32_t i = 0; i < clients->devices; i++) {
		struct gm_device_figures figures;
		gm_core_device_figures(clients->core, i, &figures);
		DL_FOREACH (clients->list, client) {
			uint64_t max = gm_session_max(client->session, i);
			if (max == client->max[i])
				continue;
			client->max[i] = max;
			client_write_page(client, i, &figures);
			if (client->events)
				gm_events_limits(client->events, i, max);
		}
	}
}

void gm_clients_reclaim_from(struct gm_session *session, const struct gm_reclaim *ask)
{
	struct gm_client *client = gm_session_info(session)->user;

	/* A request lacks so much and no more. Urgent pressure wants all that can be spared. */
	bool all = ask->urgent && ask->trigger == GM_TRIGGER_PRESSURE;
	if (client && client->events)
		gm_events_reclaim(client->events, ask->device, ask->urgent, all ? 0 : ask->bytes);
}

void gm_clients_use(struct gm_session *session, uint32_t device, struct gm_use *ret)
{
	struct gm_client *client = gm_session_info(session)->user;
	uint64_t held = gm_session_held(session, device);
	struct gm_page_use said;

	*ret = (struct gm_use){0};
	if (client && client->events && gm_pages_read_use(&client->pages, device, held, &said) == 0)
		*ret = (struct gm_use){.cached = said.cached, .rough = client->pages.version < 2};
}

void gm_clients_goodbye(struct gm_clients *clients, const char *reason, bool restart)
{
	struct gm_client *client;

	DL_FOREACH (clients->list, client)
		if (client->events)
			gm_events_goodbye(client->events, reason, restart);
}

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
	clients->per_uid = GM_LIMIT_CONNECTIONS;
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

struct gm_client *gm_clients_find(const struct gm_clients *clients, uint64_t id)
{
	struct gm_client *client;

	HASH_FIND(hh, clients->by_id, &id, sizeof(id), client);
	return client;
}

struct gm_client *gm_clients_of(const struct gm_clients *clients, const struct gm_session *session)
{
	return gm_clients_find(clients, gm_session_id(session));
}

struct gm_client *gm_clients_after(const struct gm_clients *clients, uint64_t id)
{
	struct gm_client *client = gm_clients_find(clients, id);

	if (client)
		return client->next;
	/* The client has ended in the meantime. */
	DL_FOREACH (clients->list, client)
		if (client->id > id)
			return client;
	return NULL;
}

void gm_clients_set_bound(struct gm_clients *clients, uint32_t per_uid)
{
	clients->per_uid = per_uid;
}

/* The client is quarantined no more. */
static void client_is_back(struct gm_client *client)
{
	if (!client->away_prev)
		return;
	DL_DELETE2(client->clients->away, client, away_prev, away_next);
	client->away_prev = client->away_next = NULL;
}

/* ---- what outlives the daemon */

static int client_read_boot(uint8_t boot[GM_RECORD_BOOT_BYTES])
{
	char text[64];
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ssize_t n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return n < 0 ? -errno : -EIO;

	text[n] = '\0';
	size_t digits = 0;
	memset(boot, 0, GM_RECORD_BOOT_BYTES);
	for (const char *at = text; *at && digits < 2 * GM_RECORD_BOOT_BYTES; at++) {
		static const char hex[] = "0123456789abcdef";
		const char *place = strchr(hex, *at);
		if (!place)
			continue;
		unsigned digit = (unsigned)(place - hex);
		boot[digits / 2] |= (uint8_t)(digits % 2 ? digit : digit << 4);
		digits++;
	}
	return digits == 2 * GM_RECORD_BOOT_BYTES ? 0 : -EBADMSG;
}

int gm_clients_set_keep(struct gm_clients *clients, const struct gm_clients_keep *keep, void *ctx)
{
	int r = client_read_boot(clients->boot);
	if (r < 0)
		return r;
	clients->keep = keep;
	clients->keep_ctx = ctx;
	return 0;
}

/* Writes the client's record. */
static int client_commit(struct gm_client *client)
{
	const struct gm_clients *clients = client->clients;
	const struct gm_identity *identity = client->identity;
	if (!clients->keep)
		return 0;

	struct gm_record_client record = {
		.start_time = client->start_time,
		.since_ns = client->since_ns,
		.pid = identity->pid,
		.gid = identity->gid,
		.page_version = client->pages.version,
		.loose = identity->cgroup.name_is_loose,
		.confined = identity->confined,
		.own_pid_namespace = identity->own_pid_namespace,
		.page_unsafe = client->page_unsafe,
	};
	gm_record_begin(&record.head, GM_RECORD_CLIENT, client->id, sizeof(record), identity->uid);
	memcpy(record.boot, clients->boot, sizeof(record.boot));
	strcpy(record.name, client->name);
	strcpy(record.command, identity->command);
	strcpy(record.unit, identity->cgroup.unit);
	strcpy(record.container, identity->cgroup.container);
	strcpy(record.scope, identity->cgroup.scope);
	return clients->keep->record(clients->keep_ctx, GM_RECORD_CLIENT, client->id,
		&client->place, &record, sizeof(record));
}

/* Returns whether the fd is safe. fd -1: there is none any more. */
static bool client_deposit(const struct gm_client *client, enum gm_client_item item, int fd)
{
	const struct gm_clients *clients = client->clients;
	if (!clients->keep)
		return true;
	if (fd >= 0)
		return clients->keep->deposit(clients->keep_ctx, item, client->id, fd);
	clients->keep->withdraw(clients->keep_ctx, item, client->id);
	return true;
}

/* Forgets a client whose session has ended. */
static void client_unkeep(const struct gm_clients *clients, uint64_t id, uint32_t place)
{
	if (!clients->keep)
		return;
	clients->keep->erase(clients->keep_ctx, &place);
	clients->keep->withdraw(clients->keep_ctx, GM_CLIENT_PROCESS, id);
	clients->keep->withdraw(clients->keep_ctx, GM_CLIENT_PAGE, id);
	clients->keep->withdraw(clients->keep_ctx, GM_CLIENT_FORMER, id);
}

/* Ends the record. The caller ends the session. */
static void client_forget(struct gm_client *client)
{
	struct gm_clients *clients = client->clients;

	client_is_back(client);
	HASH_DELETE(hh, clients->by_id, client);
	DL_DELETE(clients->list, client);
	gm_domains_release(clients->domains, client->domain);
	gm_events_free(client->events);
	gm_pages_deinit(&client->pages);
	gm_pages_deinit(&client->former);
	gm_lane_remove(&client->process);
	gm_lane_left(client->lane);
	gm_lane_unref(client->lane);
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
	gm_session_cancel(session); /* while the record can still say whose the requests are */
	client_forget(client);
	return session;
}

static void client_end_died(struct gm_client *client)
{
	const struct gm_clients *clients = client->clients;
	uint64_t id = client->id;
	uint32_t place = client->place;

	if (client->peer)
		gm_peer_drop(client->peer);
	gm_session_end_died(client_end(client));
	client_unkeep(clients, id, place);
}

void gm_client_goodbye(struct gm_client *client)
{
	const struct gm_clients *clients = client->clients;
	uint64_t id = client->id;
	uint32_t place = client->place;

	client_log(client, GM_LOG_DEBUG, "said goodbye");
	/* The connection stays open: the answer to the goodbye goes there. */
	gm_session_end_unmapped(client_end(client));
	client_unkeep(clients, id, place);
}

static void client_on_process_end(struct gm_lane_fd *process, uint32_t events)
{
	struct gm_client *client =
		(struct gm_client *)((char *)process - offsetof(struct gm_client, process));

	(void)events;
	gm_lane_remove(process);
	if (!gm_identity_dead(client->identity)) {
		/* The process lives: polling its pidfd failed. */
		client_log(
			client, GM_LOG_ERROR, "can no longer be watched; its memory stays charged");
		return;
	}
	client_log(client, GM_LOG_INFO, "ended without a goodbye; its memory is released");
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
	client_log(client, GM_LOG_INFO,
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
		client_look_in(clients, gm_min(2 * clients->look_ms, GM_CLIENTS_LOOK_LAST_MS));
}

void gm_client_disconnected(struct gm_client *client)
{
	struct gm_clients *clients = client->clients;

	client->peer = NULL;
	client->clients->quarantined++;
	if (gm_identity_dead(client->identity)) {
		client_log(client, GM_LOG_INFO, "ended without a goodbye; its memory is released");
		client_end_died(client);
		return;
	}
	if (gm_session_lease_count(client->session) == 0) {
		client_log(client, GM_LOG_DEBUG, "disconnected and holds nothing");
		client_end_died(client);
		return;
	}
	if (client_end_if_replaced(client))
		return;

	client->unsaid = client->clients->unsaid = true;
	client_start_interval(client->clients);
	gm_events_free(client->events);
	client->events = NULL;
	gm_session_quarantine(client->session);
	DL_APPEND2(clients->away, client, away_prev, away_next);
	/* Never later than it would be: clients that come and go must not put off the look at others. */
	if (!uv_is_active((uv_handle_t *)&clients->look) ||
		uv_timer_get_due_in(&clients->look) > GM_CLIENTS_LOOK_FIRST_MS)
		client_look_in(clients, GM_CLIENTS_LOOK_FIRST_MS);
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
	welcome->events = gm_close(welcome->events);
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

/* Gives the client new pages and a new event channel. A process that resumes its client keeps those
 * of its previous connection to itself. */
static int client_equip(
	struct gm_client *client, uint32_t page_version, struct gm_client_welcome *welcome)
{
	struct gm_clients *clients = client->clients;
	struct gm_pages pages;
	struct gm_events *events = NULL;
	int r = gm_pages_open(
		&pages, page_version, clients->hub->generation, client->id, clients->devices);
	if (r < 0)
		return r;
	r = gm_pages_share(&pages, &welcome->client_page);
	if (r == 0)
		r = gm_events_new(
			clients->hub, client->lane, clients->core, &welcome->events, &events);
	if (r < 0) {
		gm_pages_deinit(&pages);
		return r;
	}

	welcome->daemon_page = gm_steal_fd(&pages.daemon_fd);
	client_keep_former_page(client);
	gm_events_free(client->events);
	client->pages = pages;
	client->page_lost = false;
	client->events = events;
	/* The record says so before the client can have its new page. */
	bool safe = client_deposit(client, GM_CLIENT_FORMER, client->former.client_fd);
	client->page_unsafe =
		!client_deposit(client, GM_CLIENT_PAGE, client->pages.client_fd) || !safe;
	for (uint32_t i = 0; i < clients->devices; i++) {
		struct gm_device_figures figures;
		gm_core_device_figures(clients->core, i, &figures);
		client->max[i] = gm_session_max(client->session, i);
		client_write_page(client, i, &figures);
	}
	return 0;
}

static int client_new(struct gm_clients *clients, struct gm_peer *peer, const char *name,
	enum gm_trust trust, uint8_t token[GM_TOKEN_BYTES], struct gm_client **ret_client)
{
	struct gm_identity *identity = gm_peer_identity(peer);
	struct gm_client *client = calloc(1, sizeof(*client));
	if (!client)
		return -ENOMEM;
	client->clients = clients;
	client->since_ns = gm_clock_ns();
	gm_pages_init(&client->pages);
	gm_pages_init(&client->former);
	struct gm_session_info info = {
		.pid = identity->pid,
		.uid = identity->uid,
		.gid = identity->gid,
		.unit = identity->cgroup.unit,
		.container = gm_cgroup_limit_name(&identity->cgroup),
		.name = name,
	};

	int r = gm_lane_get(&clients->hub->lanes, identity->uid, &client->lane);
	if (r < 0)
		goto no_lane;
	if (client->lane->clients >= clients->per_uid)
		r = -EUSERS;
	else if (!gm_lane_may_open(&clients->hub->lanes, client->lane, GM_LANE_SESSION_FDS))
		r = -EDQUOT;
	if (r < 0)
		goto no_domain;
	r = gm_domains_get(clients->domains, trust, identity, &client->domain, &info.pooling);
	if (r < 0)
		goto no_domain;
	info.domain = client->domain;
	r = gm_session_new(clients->core, &info, token, &client->session);
	if (r < 0)
		goto no_session;

	client->id = gm_session_id(client->session);
	client->process.fd = identity->pidfd;
	client->process.events = EPOLLIN;
	client->process.ready = client_on_process_end;
	r = gm_lane_add(client->lane, &client->process);
	if (r < 0)
		goto no_process;
	HASH_ADD(hh, clients->by_id, id, sizeof(client->id), client);
	if (!client->hh.tbl) {
		r = -ENOMEM;
		goto no_record;
	}

	DL_APPEND(clients->list, client);
	client->identity = gm_identity_ref(identity);
	gm_lane_joined(client->lane);
	client->peer = peer;
	gm_session_set_user(client->session, client);
	if (clients->keep)
		client->start_time = gm_identity_start_time(identity);
	/* Without it, the next daemon goes by the number and the start time. */
	(void)client_deposit(client, GM_CLIENT_PROCESS, identity->pidfd);
	*ret_client = client;
	return 0;
no_record:
	gm_lane_remove(&client->process);
no_process:
	gm_session_end_died(client->session);
no_session:
	gm_domains_release(clients->domains, client->domain);
no_domain:
	gm_lane_unref(client->lane);
no_lane:
	free(client);
	return r;
}

/* Resumes a quarantined client. Returns -ENOENT if it has ended. */
static int client_resume(struct gm_clients *clients, struct gm_peer *peer, uint64_t id,
	const uint8_t *token, uint8_t new_token[GM_TOKEN_BYTES], struct gm_client **ret_client)
{
	struct gm_client *client = gm_clients_find(clients, id);
	struct gm_identity *identity = gm_peer_identity(peer);

	if (!client)
		return -ENOENT;
	/* The client's process lives, as its pidfd says, so an equal pid is the same process. */
	if (!identity->pid || identity->pid != client->identity->pid ||
		identity->uid != client->identity->uid)
		return -EACCES;
	int r = gm_session_resume(client->session, token, client, new_token);
	if (r == -EBUSY) {
		/* The client is back before the daemon saw the end of its old connection. Only the
		 * right token leads here, so nobody else can close a client's connection. */
		gm_peer_close(client->peer);
		client = gm_clients_find(clients, id);
		if (!client)
			return -ENOENT;
		r = gm_session_resume(client->session, token, client, new_token);
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

int gm_clients_join(struct gm_clients *clients, struct gm_peer *peer, const char *name,
	uint32_t page_version, bool unique_ids, enum gm_trust trust, uint64_t resume_id,
	const uint8_t *resume_token, struct gm_client **ret_client,
	struct gm_client_welcome *ret_welcome)
{
	struct gm_client *client = NULL;
	struct gm_client_welcome welcome = {.events = -1, .daemon_page = -1, .client_page = -1};
	int r = -ENOENT;

	if (resume_id)
		r = client_resume(clients, peer, resume_id, resume_token, welcome.token, &client);
	welcome.resumed = r == 0;
	if (r == -ENOENT)
		r = client_new(clients, peer, name, trust, welcome.token, &client);
	if (r < 0)
		return r;

	/* Limits go by the name that the session began with, so that is the one to show. */
	if (!welcome.resumed)
		strncpy(client->name, name, sizeof(client->name) - 1);
	r = client_equip(client, page_version, &welcome);
	if (r == 0 && client_commit(client) < 0)
		r = -ENOMEM;
	if (r < 0) {
		gm_client_welcome_deinit(&welcome);
		if (welcome.resumed)
			gm_session_keep_token(client->session, resume_token);
		/* The connection does not know the client yet, so its end would not be told. */
		gm_client_disconnected(client);
		return r;
	}

	client->unproven = welcome.resumed;
	client->resumed = welcome.resumed && unique_ids;
	gm_peer_set_user(peer, client);
	client_log(client, GM_LOG_DEBUG, welcome.resumed ? "resumed its session" : "joined");
	*ret_client = client;
	*ret_welcome = welcome;
	return 0;
}

/* ---- adoption */

/* Makes the record of a client whose process lives. */
static int client_restore(struct gm_clients *clients, uint64_t id, uint32_t place,
	const struct gm_record_client *record, struct gm_identity *identity,
	struct gm_client **ret_client)
{
	struct gm_client *client = calloc(1, sizeof(*client));
	if (!client)
		return -ENOMEM;
	int r = gm_lane_get(&clients->hub->lanes, identity->uid, &client->lane);
	if (r < 0) {
		free(client);
		return r;
	}

	client->clients = clients;
	client->id = id;
	client->place = place;
	client->since_ns = record->since_ns;
	client->start_time = record->start_time;
	strcpy(client->name, record->name);
	gm_pages_init(&client->pages);
	gm_pages_init(&client->former);
	client->pages.version = record->page_version;
	client->pages.devices = clients->devices;
	client->process.fd = identity->pidfd;
	client->process.events = EPOLLIN;
	client->process.ready = client_on_process_end;
	r = gm_lane_add(client->lane, &client->process);
	if (r == 0) {
		HASH_ADD(hh, clients->by_id, id, sizeof(client->id), client);
		if (!client->hh.tbl) {
			gm_lane_remove(&client->process);
			r = -ENOMEM;
		}
	}
	if (r < 0) {
		gm_lane_unref(client->lane);
		free(client);
		return r;
	}
	DL_APPEND(clients->list, client);
	gm_lane_joined(client->lane);
	client->identity = gm_identity_ref(identity);
	clients->quarantined++;
	*ret_client = client;
	return 0;
}

static bool client_record_is_sound(const struct gm_record_client *record)
{
	return memchr(record->name, 0, sizeof(record->name)) &&
	       memchr(record->command, 0, sizeof(record->command)) &&
	       memchr(record->unit, 0, sizeof(record->unit)) &&
	       memchr(record->container, 0, sizeof(record->container)) &&
	       memchr(record->scope, 0, sizeof(record->scope)) && record->pid >= 0 &&
	       gm_name_ok(record->name);
}

/* Who the client was when it connected. */
static void client_known(const struct gm_record_client *record, struct gm_identity *ret)
{
	*ret = (struct gm_identity){
		.pid = record->pid,
		.uid = record->head.uid,
		.gid = record->gid,
		.pidfd = -1,
		.own_pid_namespace = record->own_pid_namespace,
		.confined = record->confined,
	};
	ret->cgroup.name_is_loose = record->loose;
	_Static_assert(sizeof(ret->cgroup.unit) == sizeof(record->unit) &&
			       sizeof(ret->cgroup.container) == sizeof(record->container) &&
			       sizeof(ret->cgroup.scope) == sizeof(record->scope) &&
			       sizeof(ret->command) == sizeof(record->command),
		"an identity fits its record");
	strcpy(ret->cgroup.unit, record->unit);
	strcpy(ret->cgroup.container, record->container);
	strcpy(ret->cgroup.scope, record->scope);
	strcpy(ret->command, record->command);
}

static int client_adopt(struct gm_clients *clients, enum gm_trust trust,
	const struct gm_record_client *record, int *pidfd, int *page, int *former,
	struct gm_client_adopted *adopted, bool *ret_pooling)
{
	struct gm_identity known, *identity = NULL;
	if (!client_record_is_sound(record))
		return -EBADMSG;
	client_known(record, &known);

	int r = -ESRCH;
	if (memcmp(record->boot, clients->boot, sizeof(record->boot)) == 0)
		r = gm_identity_restore(&known, record->start_time, gm_steal_fd(pidfd), &identity);
	if (r < 0 && r != -ESRCH)
		return r;

	bool gone = r == -ESRCH;
	r = gm_domains_get(clients->domains, trust, &known, &adopted->domain, ret_pooling);
	if (r == 0 && !gone) {
		r = client_restore(
			clients, adopted->id, adopted->place, record, identity, &adopted->client);
		if (r < 0)
			gm_domains_release(clients->domains, adopted->domain);
	}
	gm_identity_unref(identity);
	if (r < 0 || gone)
		return r;

	struct gm_client *client = adopted->client;
	client->domain = adopted->domain;
	client->page_lost = *page < 0 || record->page_unsafe;
	client->pages.client_fd = gm_steal_fd(page);
	client->former.client_fd = gm_steal_fd(former);
	return 0;
}

int gm_clients_adopt(struct gm_clients *clients, enum gm_trust trust, uint64_t id, uint32_t place,
	const struct gm_record_client *record, int pidfd, int page, int former,
	gm_domain *ret_domain, bool *ret_pooling)
{
	struct gm_client_adopted *list =
		realloc(clients->adopted, (clients->n_adopted + 1) * sizeof(clients->adopted[0]));
	int r = -ENOMEM;
	if (list) {
		clients->adopted = list;
		list[clients->n_adopted] = (struct gm_client_adopted){.id = id, .place = place};
		r = client_adopt(clients, trust, record, &pidfd, &page, &former,
			&list[clients->n_adopted], ret_pooling);
	}
	if (r == 0)
		*ret_domain = list[clients->n_adopted++].domain;
	gm_close(pidfd);
	gm_close(page);
	gm_close(former);
	return r;
}

/* Core has decided about the session. Returns whether the client's process is gone. */
static bool client_adopt_end(struct gm_clients *clients, const struct gm_client_adopted *adopted)
{
	struct gm_session *session = gm_core_find_session(clients->core, adopted->id);
	struct gm_client *client = adopted->client;
	if (client && !session) {
		clients->quarantined--;
		client_unkeep(clients, adopted->id, 0); /* core has erased the record */
		client_forget(client);
		return false;
	}
	if (!client) {
		if (session)
			gm_session_end_died(session);
		gm_domains_release(clients->domains, adopted->domain);
		client_unkeep(clients, adopted->id, session ? adopted->place : 0);
		return session;
	}

	client->session = session;
	for (uint32_t i = 0; i < clients->devices; i++)
		client->max[i] = gm_session_max(session, i);
	DL_APPEND2(clients->away, client, away_prev, away_next);
	return false;
}

uint64_t gm_clients_adopt_end(struct gm_clients *clients)
{
	uint64_t gone = 0;
	for (size_t i = 0; i < clients->n_adopted; i++)
		gone += client_adopt_end(clients, &clients->adopted[i]);
	free(clients->adopted);
	clients->adopted = NULL;
	clients->n_adopted = 0;
	if (clients->away)
		client_look_in(clients, GM_CLIENTS_LOOK_FIRST_MS);
	return gone;
}
