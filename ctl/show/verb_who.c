/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl who: everybody who has memory of a device, in one table: clients, programs under gpumem-run,
 * published buffers, and processes outside of the broker. It asks what 'clients', 'shares' and 'devices'
 * ask, so nobody sees more here than there.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/io/device_table.h"
#include "ctl/io/user_name.h"
#include "ctl/show/usage_list.h"
#include "ctl/verb/verb.h"

static const struct gm_column columns[] = {
	{"device", "DEV", GM_COLUMN_RIGHT},
	{"uid", NULL, 0},
	{"user", "USER", GM_COLUMN_OWNER},
	{"name", "NAME", GM_COLUMN_NAME | GM_COLUMN_OWNER},
	{"pid", "PID", GM_COLUMN_RIGHT},
	{"bytes", "SIZE", GM_COLUMN_RIGHT},
	{"in_host", "IN HOST", GM_COLUMN_RIGHT | GM_COLUMN_OPTIONAL},
	{"kind", NULL, 0},
	{"run", NULL, 0},
	{NULL, "WHAT", 0},
	{NULL, "RUN NAME", GM_COLUMN_OPTIONAL | GM_COLUMN_NAME | GM_COLUMN_SPARE | GM_COLUMN_LAST},
	{"run_name", NULL, 0},
};

/* A published buffer whose maker is gone: 'clients' has it in a row of its user that names nobody. */
struct who_orphan {
	uint32_t uid, device;
	uint64_t bytes;
};

struct who_answer {
	const struct gm_options *options;
	struct gm_usage_list usage;
	struct gm_device_drains drains;
	struct who_orphan *orphans;
	size_t n_orphans, room;
	bool no_memory;
	struct gm_table *table;
};

/* One row. */
struct who_row {
	uint32_t device;
	bool uid_known;
	uint32_t uid;
	const char *name, *run, *run_name, *kind, *what;
	int64_t pid;
	uint64_t bytes, in_host;
	bool bytes_unknown;
};

static void who_add(const struct who_answer *answer, const struct who_row *row)
{
	struct gm_table *table = answer->table;
	char user[GM_USER_NAME_TEXT];

	if ((answer->options->given & GM_OPTION_USER && !row->uid_known) ||
		(!gm_verb_wants(answer->options, row->device, row->uid, row->name) &&
			(!row->run_name || !*row->run_name ||
				!gm_verb_wants(
					answer->options, row->device, row->uid, row->run_name))))
		return;
	gm_table_row(table);
	gm_table_count(table, row->device);
	gm_table_count(table, row->uid);
	gm_table_known(table, row->uid_known);
	gm_table_text(table, row->uid_known ? gm_user_name(row->uid, user) : NULL);
	gm_table_text(table, row->name);
	gm_table_count(table, row->pid > 0 ? (uint64_t)row->pid : 0);
	gm_table_known(table, row->pid > 0);
	gm_table_size(table, row->bytes);
	gm_table_known(table, !row->bytes_unknown);
	gm_table_size(table, row->in_host);
	gm_table_known(table, row->in_host > 0);
	gm_table_text(table, row->kind);
	gm_table_text(table, row->run);
	gm_table_text(table, row->what);
	/* A program that has no name of its own has that of its run. */
	gm_table_text(
		table, row->run_name && strcmp(row->run_name, row->name) ? row->run_name : NULL);
	gm_table_text(table, row->run_name);
}

/* ---- outside of the broker */

static void who_add_processes(struct who_answer *answer)
{
	for (size_t i = 0; i < answer->usage.n; i++) {
		const struct gm_usage_item *item = &answer->usage.items[i];
		bool daemon = item->kind == GM__WIRE__PROCESS_KIND__PROCESS_DAEMON;
		bool client = item->kind == GM__WIRE__PROCESS_KIND__PROCESS_CLIENT;
		bool context = item->bytes <= GM_USAGE_CONTEXT_MAX;

		who_add(answer, &(struct who_row){
					.device = item->device,
					.uid = item->uid,
					.uid_known = item->uid_known,
					.name = *item->client ? item->client : item->command,
					.pid = item->pid,
					.bytes = item->bytes,
					.bytes_unknown = !item->bytes_known,
					.kind = daemon   ? "daemon"
						: client ? "context"
							 : "foreign",
					.what = daemon    ? "gpumemd"
						: !client ? "foreign"
						: context ? "context"
							  : "outside leases",
				});
	}
}

static void who_take_devices(void *user, const Gm__Wire__Packet *packet)
{
	struct who_answer *answer = user;

	for (size_t i = 0; i < packet->devices->n_devices; i++) {
		const Gm__Wire__Device *device = packet->devices->devices[i];
		uint64_t rest = gm_usage_list_rest(&answer->usage, device);
		bool wanted = !(answer->options->given & GM_OPTION_DEVICE) ||
			      device->number == answer->options->device;

		if (wanted)
			gm_device_drains_add(&answer->drains, device);

		if (rest > 0)
			who_add(answer, &(struct who_row){
						.device = device->number,
						.bytes = rest,
						.kind = "unlisted",
						.what = "no process",
					});
	}
}

/* ---- published */

static void who_keep_orphan(struct who_answer *answer, const Gm__Wire__Name *name)
{
	if (answer->n_orphans == answer->room) {
		size_t room = answer->room ? 2 * answer->room : 64;
		void *more = reallocarray(answer->orphans, room, sizeof(*answer->orphans));
		answer->no_memory |= !more;
		if (!more)
			return;
		answer->orphans = more;
		answer->room = room;
	}
	answer->orphans[answer->n_orphans++] = (struct who_orphan){
		.uid = name->owner, .device = name->device, .bytes = name->bytes};
}

static void who_take_names(void *user, const Gm__Wire__Packet *packet)
{
	struct who_answer *answer = user;

	for (size_t i = 0; i < packet->names->n_names; i++) {
		const Gm__Wire__Name *name = packet->names->names[i];

		if (!name->maker)
			who_keep_orphan(answer, name);
		who_add(answer, &(struct who_row){
					.device = name->device,
					.uid = name->owner,
					.uid_known = true,
					.name = name->name,
					.bytes = name->bytes,
					.kind = name->maker ? "published-by-client" : "published",
					.what = name->maker ? "in client's" : "published",
				});
	}
}

/* ---- clients */

/* Takes from what a user left behind the published buffers, which have rows of their own. */
static uint64_t who_without_published(
	struct who_answer *answer, uint32_t uid, const Gm__Wire__ClientUse *use)
{
	uint64_t left = use->held;

	for (size_t i = 0; i < answer->n_orphans; i++) {
		struct who_orphan *orphan = &answer->orphans[i];

		if (orphan->uid != uid || orphan->device != use->device || orphan->bytes > left)
			continue;
		left -= orphan->bytes;
		orphan->bytes = 0;
	}
	return left;
}

static void who_add_client(
	struct who_answer *answer, const Gm__Wire__Client *client, const Gm__Wire__ClientUse *use)
{
	bool orphaned = client->left && use->orphaned;
	struct who_row row = {
		.device = use->device,
		.uid = client->uid,
		.uid_known = true,
		.name = *client->name ? client->name : client->command,
		.run = client->run,
		.run_name = client->run_name,
		.pid = client->pid,
		.bytes = client->left ? who_without_published(answer, client->uid, use) : use->held,
		.in_host = client->left ? 0 : use->in_host,
		.kind = orphaned       ? "orphaned"
			: client->left ? "left"
			: *client->run ? "run"
				       : "client",
		.what = orphaned              ? "orphaned"
			: client->left        ? "left"
			: client->quarantined ? "quarantined"
			: *client->run        ? "run"
					      : "client",
	};

	if (row.bytes + row.in_host > 0)
		who_add(answer, &row);
}

/* Keeps the client's name for the rows of its contexts. */
static void who_name_contexts(struct who_answer *answer, const Gm__Wire__Client *client)
{
	const char *name = *client->name ? client->name : client->run_name;

	for (size_t i = 0; !client->left && client->pid > 0 && i < answer->usage.n; i++) {
		struct gm_usage_item *item = &answer->usage.items[i];

		if (item->pid == client->pid && item->uid_known && item->uid == client->uid &&
			!*item->client && item->kind == GM__WIRE__PROCESS_KIND__PROCESS_CLIENT)
			snprintf(item->client, sizeof(item->client), "%s", name);
	}
}

static void who_take_clients(void *user, const Gm__Wire__Packet *packet)
{
	for (size_t i = 0; i < packet->clients->n_clients; i++) {
		const Gm__Wire__Client *client = packet->clients->clients[i];

		who_name_contexts(user, client);
		for (size_t j = 0; j < client->n_use; j++)
			who_add_client(user, client, client->use[j]);
	}
}

/* ---- the verb */

/* Asks everything on one connection. The processes come first, because the daemon then measures. */
static gpumem_status who_ask(struct gm_ctl *ctl, struct who_answer *answer)
{
	struct gm_ctl_conn *conn = NULL;

	gpumem_status status = gm_verb_connect_on_device(ctl, &conn);
	if (status == GPUMEM_OK)
		status = gm_usage_list_ask(conn, &answer->usage, &ctl->trouble);
	if (status == GPUMEM_OK)
		status = gm_verb_ask_devices(ctl, conn, who_take_devices, answer);
	if (status == GPUMEM_OK)
		status = gm_ctl_conn_get(conn, GM__WIRE__PACKET__BODY_GET_NAMES, who_take_names,
			answer, &ctl->trouble);
	if (status == GPUMEM_OK)
		status = gm_ctl_conn_get(conn, GM__WIRE__PACKET__BODY_GET_CLIENTS, who_take_clients,
			answer, &ctl->trouble);
	gm_ctl_conn_free(conn);
	if (status == GPUMEM_OK)
		who_add_processes(answer); /* with the names of clients */
	if (status == GPUMEM_OK && (answer->no_memory || answer->usage.no_memory))
		return gm_trouble_set(&ctl->trouble, GPUMEM_E_NO_MEMORY, "out of memory");
	return status;
}

static gpumem_status who_run(struct gm_ctl *ctl)
{
	struct who_answer answer = {.options = ctl->options, .table = GM_TABLE_NEW(columns)};

	gpumem_status status = who_ask(ctl, &answer);
	free(answer.orphans);
	if (status != GPUMEM_OK) {
		gm_usage_list_deinit(&answer.usage);
		gm_table_free(answer.table);
		return status;
	}

	gm_verb_show_list(ctl, "who", answer.table,
		gm_verb_narrows(ctl->options) ? "Nobody matches." : "Nobody uses a device.");
	gm_usage_list_note(&answer.usage, ctl->writer);
	gm_device_drains_note(&answer.drains, ctl->writer);
	gm_usage_list_deinit(&answer.usage);
	return GPUMEM_OK;
}

const struct gm_verb gm_verb_who = {
	.name = "who",
	.arguments = "[DEVICE]",
	.summary = "who uses the devices, also outside the broker",
	.help = GM_VERB_HELP_OF_ROWS
	"  --user USER           only memory of this user (a name or a number)\n"
	"  --name PATTERN        only clients, commands and names like this; quote *, ?\n"
	"                        and [...]\n"
	"\nWHAT is client, quarantined (a client that did not return memory in time), run\n"
	"(a program under gpumem-run), published (a buffer under a name, whose maker is\n"
	"gone), in client's (the maker still runs, and the buffer is in its SIZE, too),\n"
	"left (buffers that others have open or may attach), orphaned (returned, but\n"
	"still mapped), foreign (a process that does not ask the daemon for this memory),\n"
	"context (that of a client, which is foreign, too), outside leases (the same, if\n"
	"it is more than 1G: then it is more than a context), gpumemd (the daemon's own),\n"
	"or no process (foreign memory that belongs to none). IN HOST is what a client\n"
	"has of the device in host memory: evicted buffers and paused regions. You see\n"
	"of other users what 'clients', 'shares' and 'devices' show you. Pooled memory\n"
	"is nobody's: see 'gpumemctl pools'.\n",
	.takes = GM_OPTIONS_OF_LISTS,
	.max_args = 1,
	.names_device = true,
	.columns = columns,
	.n_columns = sizeof(columns) / sizeof(*columns),
	.sort = "device,-bytes",
	.run = who_run,
};
