/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tenant/client_news.h"

#include <stdio.h>

#include <utlist.h>

#include "common/text/uid_name.h"
#include "daemon/lease/declare.h"

/* How old the figures of a device on the pages may be. */
#define GM_CLIENTS_INTERVAL_MS 50

void gm_client_log(const struct gm_client *client, enum gm_log_level level, const char *what)
{
	char id[48], pid[32], uid[32], user[GM_UID_NAME_TEXT];
	const char *const fields[] = {id, pid, uid, NULL};

	if (!gm_log_limit_allows(&client->clients->hub->quiet, client->identity->payer_uid, level,
		    GM_LOG_LIMIT_OTHER))
		return;
	snprintf(id, sizeof(id), "GPUMEM_CLIENT=%llu", (unsigned long long)client->id);
	snprintf(pid, sizeof(pid), "GPUMEM_PID=%d", (int)client->identity->pid);
	snprintf(uid, sizeof(uid), "GPUMEM_UID=%u", client->identity->uid);
	gm_log_fields(level, fields, "%s (pid %d, %s) %s",
		*gm_client_name(client) ? gm_client_name(client) : client->identity->command,
		(int)client->identity->pid, gm_uid_name_say(client->identity->uid, user), what);
}

void gm_client_write_page(
	struct gm_client *client, uint32_t device, const struct gm_device_figures *figures)
{
	gm_pages_write_device(&client->pages, device, figures,
		gm_session_held(client->session, device), client->max[device],
		gm_session_room(client->session, device));
}

static void client_news_write(struct gm_clients *clients, uint32_t device)
{
	struct gm_device_figures figures;
	struct gm_client *client;

	gm_core_device_figures(clients->core, device, &figures);
	DL_FOREACH (clients->list, client)
		gm_client_write_page(client, device, &figures);
	clients->dirty &= ~(UINT32_C(1) << device);
}

/* Says which clients are quarantined. When a process ends, the kernel closes its connection just
 * before the pidfd tells. So only a client that is still there some time later is worth a line. */
static void client_news_say(struct gm_clients *clients)
{
	struct gm_client *client;

	clients->unsaid = false;
	DL_FOREACH (clients->list, client) {
		if (client->unsaid && !gm_identity_dead(client->identity))
			gm_client_log(client, GM_LOG_NOTICE,
				"closed its connection but is still running; its memory is "
				"quarantined");
		client->unsaid = false;
	}
}

static void client_news_on_interval(uv_timer_t *timer)
{
	struct gm_clients *clients = timer->data;

	if (clients->unsaid)
		client_news_say(clients);

	for (uint32_t i = 0; i < clients->devices; i++)
		if (clients->dirty & UINT32_C(1) << i)
			client_news_write(clients, i);
	clients->flushed(clients->ctx);
}

static void client_news_start(struct gm_clients *clients)
{
	if (clients->timer_open && !uv_is_active((uv_handle_t *)&clients->timer))
		uv_timer_start(&clients->timer, client_news_on_interval, GM_CLIENTS_INTERVAL_MS, 0);
}

void gm_client_say_quarantined(struct gm_client *client)
{
	client->unsaid = client->clients->unsaid = true;
	client_news_start(client->clients);
}

void gm_clients_device_changed(struct gm_clients *clients, uint32_t device)
{
	clients->dirty |= UINT32_C(1) << device;
	client_news_start(clients);
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

	client_news_write(clients, device);
	DL_FOREACH (clients->list, client)
		if (client->events)
			gm_events_pressure(client->events, device);
}

uint64_t gm_clients_reclaim(struct gm_clients *clients, uint32_t device, bool urgent)
{
	struct gm_client *client;
	uint64_t asked = 0;

	client_news_write(clients, device);
	DL_FOREACH (clients->list, client) {
		if (client->events && gm_session_held(client->session, device)) {
			gm_events_reclaim(client->events, device, urgent, 0, 0);
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
			gm_client_write_page(client, i, &figures);
			if (client->events)
				gm_events_limits(client->events, i, max);
		}
	}
}

void gm_clients_reclaim_from(struct gm_session *session, const struct gm_reclaim_message *ask)
{
	struct gm_client *client = gm_session_info(session)->user;

	/* A request lacks so much and no more. Urgent pressure wants all that can be spared. */
	bool all = ask->urgent && ask->trigger == GM_RECLAIM_TRIGGER_PRESSURE;
	if (client && client->events)
		gm_events_reclaim(
			client->events, ask->device, ask->urgent, all ? 0 : ask->bytes, ask->spill);
}

void gm_clients_maker_left(struct gm_session *session)
{
	struct gm_client *client = gm_session_info(session)->user;

	/* A client that is away looks at all its leases when it comes back. */
	if (client && client->events)
		gm_events_makers(client->events);
}

void gm_clients_use(struct gm_session *session, uint32_t device, struct gm_account_use *ret)
{
	struct gm_client *client = gm_session_info(session)->user;
	uint64_t held = gm_session_held(session, device) - gm_declare_sum(session, device);
	struct gm_page_use said;

	*ret = (struct gm_account_use){0};
	if (client && client->events && gm_pages_read_use(&client->pages, device, held, &said) == 0)
		*ret = (struct gm_account_use){.cached = said.cached,
			.evictable = said.evictable,
			.rough = client->pages.version < 2};
}

void gm_clients_goodbye(struct gm_clients *clients, const char *reason, bool restart)
{
	struct gm_client *client;

	DL_FOREACH (clients->list, client)
		if (client->events)
			gm_events_goodbye(client->events, reason, restart);
}
