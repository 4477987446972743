/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl clients: who holds memory, one line for each client and device. The figures that the
 * client reports stand beside what the daemon charges; only the latter is known to be true.
 */

#include "ctl/io/user.h"
#include "ctl/verb/verb.h"

static const struct gm_column columns[] = {
	{"session", NULL, 0},
	{"pid", "PID", GM_COLUMN_RIGHT},
	{"uid", NULL, 0},
	{NULL, "USER", GM_COLUMN_SHRINK},
	{"name", "NAME", GM_COLUMN_SHRINK},
	{"command", NULL, 0},
	{"unit", NULL, 0},
	{"container", NULL, 0},
	{"state", NULL, 0},
	{"details", NULL, 0},
	{"age_ms", "AGE", GM_COLUMN_RIGHT},
	{"leases", NULL, 0},
	{"use", NULL, 0},
	{NULL, "DEV", GM_COLUMN_RIGHT},
	{NULL, "HELD", GM_COLUMN_RIGHT},
	{NULL, "IN USE", GM_COLUMN_RIGHT},
	{NULL, "CACHED", GM_COLUMN_RIGHT},
	{NULL, "STATE", GM_COLUMN_OPTIONAL},
	{NULL, "UNIT", GM_COLUMN_OPTIONAL | GM_COLUMN_SHRINK},
};

#define COLUMNS_BEFORE_USE 13
#define COLUMNS_AFTER_USE  2

static const struct gm_column use_columns[] = {
	{"device", NULL, 0},
	{"held", NULL, 0},
	{"in_use", NULL, 0},
	{"cached", NULL, 0},
	{"peak", NULL, 0},
	{"hits", NULL, 0},
	{"misses", NULL, 0},
	{"returns", NULL, 0},
	{"active_buffers", NULL, 0},
};
#define COLUMNS_OF_DETAILS 7

static struct gm_table *clients_use_table(const Gm__Wire__Client *client)
{
	struct gm_table *table = GM_TABLE_NEW(use_columns);

	for (size_t i = 0; i < client->n_use; i++) {
		const Gm__Wire__ClientUse *use = client->use[i];

		gm_table_row(table);
		gm_table_count(table, use->device);
		gm_table_size(table, use->held);
		if (!client->details) {
			gm_table_nones(table, COLUMNS_OF_DETAILS);
			continue;
		}
		gm_table_size(table, use->in_use);
		gm_table_size(table, use->cached);
		gm_table_size(table, use->peak);
		gm_table_count(table, use->hits);
		gm_table_count(table, use->misses);
		gm_table_count(table, use->returns);
		gm_table_count(table, use->active_buffers);
	}
	return table;
}

static void clients_add_use(
	struct gm_table *table, const Gm__Wire__Client *client, const Gm__Wire__ClientUse *use)
{
	gm_table_count(table, use->device);
	gm_table_size(table, use->held);
	gm_table_size(table, use->in_use);
	gm_table_known(table, client->details);
	gm_table_size(table, use->cached);
	gm_table_known(table, client->details);
}

/* Returns the next device on which the client holds memory, from *i on, or NULL. */
static const Gm__Wire__ClientUse *clients_next_use(const Gm__Wire__Client *client, size_t *i)
{
	while (*i < client->n_use) {
		const Gm__Wire__ClientUse *use = client->use[(*i)++];
		if (use->held)
			return use;
	}
	return NULL;
}

static void clients_add_client(struct gm_table *table, const Gm__Wire__Client *client)
{
	char user[GM_USER_TEXT];
	size_t at = 0;
	const Gm__Wire__ClientUse *use = clients_next_use(client, &at);

	/* The daemon sends 0 for a number that the asker may not see: not known, rather than 0. */
	gm_table_row(table);
	gm_table_count(table, client->session);
	gm_table_known(table, client->details || client->session);
	gm_table_count(table, (uint64_t)client->pid);
	gm_table_known(table, client->pid > 0);
	gm_table_count(table, client->uid);
	gm_table_text(table, gm_user_name(client->uid, user));
	gm_table_text(table, client->name);
	gm_table_text(table, client->command);
	gm_table_text(table, client->unit);
	gm_table_text(table, client->container);
	gm_table_text(table, client->quarantined ? "quarantined" : "connected");
	gm_table_bool(table, client->details);
	gm_table_time(table, client->age_ms);
	gm_table_known(table, client->details || client->age_ms);
	gm_table_count(table, client->leases);
	gm_table_known(table, client->details || client->leases);
	gm_table_rows(table, clients_use_table(client));

	if (use) {
		clients_add_use(table, client, use);
	} else {
		gm_table_none(table);
		gm_table_size(table, 0);
		gm_table_nones(table, 2);
	}
	gm_table_text(table, client->quarantined ? "quarantined" : NULL);
	gm_table_mark(table, GM_MARK_WARN);
	gm_table_text(table, *client->container ? client->container : client->unit);

	while (use && (use = clients_next_use(client, &at))) {
		gm_table_more(table);
		gm_table_nones(table, COLUMNS_BEFORE_USE);
		clients_add_use(table, client, use);
		gm_table_nones(table, COLUMNS_AFTER_USE);
	}
}

static void clients_take(void *user, const Gm__Wire__Packet *packet)
{
	for (size_t i = 0; i < packet->clients->n_clients; i++)
		clients_add_client(user, packet->clients->clients[i]);
}

static gpumem_status clients_run(struct gm_ctl *ctl)
{
	Gm__Wire__GetClients body = GM__WIRE__GET_CLIENTS__INIT;
	Gm__Wire__Packet request = GM__WIRE__PACKET__INIT;
	struct gm_table *table = GM_TABLE_NEW(columns);

	request.body_case = GM__WIRE__PACKET__BODY_GET_CLIENTS;
	request.get_clients = &body;
	gpumem_status status =
		gm_verb_ask(ctl, &request, GM__WIRE__PACKET__BODY_CLIENTS, clients_take, table);
	if (status != GPUMEM_OK) {
		gm_table_free(table);
		return status;
	}
	gm_writer_table_or(ctl->writer, "clients", table, "No clients are connected.");
	return GPUMEM_OK;
}

const struct gm_verb gm_verb_clients = {
	.name = "clients",
	.arguments = "",
	.summary = "clients and the memory that they hold",
	.help = "HELD is what the daemon charges. IN USE and CACHED are what the client says\n"
		"about it. You see only the totals of other users' clients, unless you are an\n"
		"administrator. A quarantined client has lost its connection, but its process\n"
		"lives. Its memory stays charged until it reconnects or its process ends.\n",
	.run = clients_run,
};
