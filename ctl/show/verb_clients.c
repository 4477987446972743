/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl clients: who holds memory, one line for each client and device. The figures that the
 * client reports stand beside what the daemon charges; only the latter is known to be true.
 */

#include <stdlib.h>
#include <string.h>

#include "common/figures.h"
#include "ctl/io/user_name.h"
#include "ctl/verb/name_list.h"
#include "ctl/verb/verb.h"

/* Where the device and the client's figures on it begin, and the columns after them. */
enum clients_columns {
	CLIENTS_USE = 17,
	CLIENTS_AFTER_USE = CLIENTS_USE + GM_CLIENT_FIGURES_COLUMNS,
};

/* An optional figure has one column for programs and another one for people: for them, 0 is nothing. */
#define CLIENTS_FLAT(name, unit, since, column, title, how, note) \
	[CLIENTS_USE + (column)] = {#name, GM_COLUMN_OPTIONAL & (how) ? NULL : (title), \
		GM_COLUMN_RIGHT | GM_COLUMN_FLAT | (GM_COLUMN_OPTIONAL & (how) ? 0 : (how))},
#define CLIENTS_IF_ANY(name, unit, since, column, title, how, note) \
	{NULL, GM_COLUMN_OPTIONAL & (how) ? (title) : NULL, GM_COLUMN_RIGHT | (how)},
#define CLIENTS_NESTED(name, unit, since, column, ...) [column] = {#name, NULL, 0},

/* JSON has the figures of all devices in a nested table. In tables and CSV, each device has a row. */
static const struct gm_column columns[] = {
	{"session", NULL, GM_COLUMN_RIGHT},
	{"pid", "PID", GM_COLUMN_RIGHT},
	{"uid", NULL, GM_COLUMN_RIGHT},
	{"user", "USER", GM_COLUMN_OWNER},
	{"name", "NAME", GM_COLUMN_NAME | GM_COLUMN_OWNER},
	{"command", NULL, GM_COLUMN_SHRINK},
	{"unit", NULL, GM_COLUMN_SHRINK},
	{"container", NULL, GM_COLUMN_SHRINK},
	{"run", NULL, 0},
	{NULL, "RUN NAME", GM_COLUMN_OPTIONAL | GM_COLUMN_NAME | GM_COLUMN_SPARE | GM_COLUMN_LAST},
	{"state", NULL, 0},
	{"details", NULL, 0},
	{"age_ms", "AGE", GM_COLUMN_RIGHT | GM_COLUMN_SPARE | GM_COLUMN_LAST},
	{"leases", NULL, GM_COLUMN_RIGHT},
	{"refused", NULL, GM_COLUMN_RIGHT},
	{"waiting", NULL, GM_COLUMN_RIGHT},
	{"use", NULL, GM_COLUMN_NESTED},
	[CLIENTS_USE] = {"device", "DEV", GM_COLUMN_RIGHT | GM_COLUMN_FLAT},
	/* clang-format off */
	GM_CLIENT_FIGURES(CLIENTS_FLAT, GM_FIGURE_SKIP, CLIENTS_FLAT)
	[CLIENTS_AFTER_USE] =
	GM_CLIENT_FIGURES(CLIENTS_IF_ANY, GM_FIGURE_SKIP, CLIENTS_IF_ANY)
	/* clang-format on */
	{NULL, "REFUSED", GM_COLUMN_RIGHT | GM_COLUMN_OPTIONAL | GM_COLUMN_SPARE | GM_COLUMN_LAST},
	{NULL, "WAITING", GM_COLUMN_RIGHT | GM_COLUMN_OPTIONAL | GM_COLUMN_SPARE | GM_COLUMN_LAST},
	{NULL, "STATE", GM_COLUMN_OPTIONAL},
	{NULL, "UNIT", GM_COLUMN_OPTIONAL | GM_COLUMN_SHRINK | GM_COLUMN_SPARE},
	{"run_name", NULL, 0},
};

static const struct gm_column use_columns[GM_CLIENT_FIGURES_COLUMNS] = {
	{"device", NULL, 0}, GM_CLIENT_FIGURES(CLIENTS_NESTED, GM_FIGURE_SKIP, CLIENTS_NESTED)};

/* A run, as its clients name it. */
struct clients_run {
	char id[GM_BOUND_RUN_BYTES + 1], name[GM_BOUND_NAME_BYTES + 1];
	bool shared; /* another run has this name, too */
};

struct clients_answer {
	const struct gm_options *options;
	struct gm_table *table;
	struct clients_run *runs;
	size_t n_runs, room;
	bool shared;               /* two runs have one name */
	struct gm_name_list names; /* of what has no process any more */
	bool left;                 /* there are rows of that */
	uint64_t unnamed; /* how many clients --name left out because their names are hidden */
};

/* Notes the name of the client's run. Without memory, runs of one name look alike. */
static void clients_note_run(struct clients_answer *answer, const Gm__Wire__Client *client)
{
	bool shared = false;

	if (!*client->run || !*client->run_name)
		return;
	for (size_t i = 0; i < answer->n_runs; i++)
		if (!strcmp(answer->runs[i].name, client->run_name) &&
			!strcmp(answer->runs[i].id, client->run))
			return;
	if (answer->n_runs == answer->room) {
		size_t room = answer->room ? 2 * answer->room : 16;
		struct clients_run *more = reallocarray(answer->runs, room, sizeof(*more));
		if (!more)
			return;
		answer->runs = more;
		answer->room = room;
	}

	for (size_t i = 0; i < answer->n_runs; i++)
		if (!strcmp(answer->runs[i].name, client->run_name))
			shared = answer->runs[i].shared = true;
	struct clients_run *run = &answer->runs[answer->n_runs++];
	*run = (struct clients_run){.shared = shared};
	snprintf(run->id, sizeof(run->id), "%s", client->run);
	snprintf(run->name, sizeof(run->name), "%s", client->run_name);
	answer->shared |= shared;
}

/* Returns whether another run has the name of the client's. */
static bool clients_run_shared(const struct clients_answer *answer, const Gm__Wire__Client *client)
{
	for (size_t i = 0; i < answer->n_runs; i++)
		if (!strcmp(answer->runs[i].name, client->run_name))
			return answer->runs[i].shared;
	return false;
}

/* Returns whether the client is there to say figures of its own, and the asker may see them. */
static bool clients_says(const Gm__Wire__Client *client)
{
	return client->details && !client->left;
}

/* Adds the figures of a client on a device, after the column of the device. said: also what the client says. */
static void clients_add_use(
	struct gm_table *table, size_t device, const Gm__Wire__ClientUse *use, bool said)
{
#define CLIENTS_ADD_KNOWN(name, unit, since, column, ...) \
	gm_table_at(table, device + (column)); \
	gm_table_##unit(table, use->name);
#define CLIENTS_ADD_SAID(name, unit, since, column, ...) \
	if (said) { \
		CLIENTS_ADD_KNOWN(name, unit, since, column) \
	}
	GM_CLIENT_FIGURES(CLIENTS_ADD_SAID, GM_FIGURE_SKIP, CLIENTS_ADD_KNOWN)
#undef CLIENTS_ADD_KNOWN
#undef CLIENTS_ADD_SAID
	gm_table_at(table, device + GM_CLIENT_FIGURES_COLUMNS);
}

/* Adds the optional figures for people, and an empty value in place of each other one. */
static void clients_add_optional(struct gm_table *table, const Gm__Wire__ClientUse *use)
{
#define CLIENTS_ADD(name, unit, since, column, title, how, note) \
	gm_table_##unit(table, use->name); \
	gm_table_known(table, GM_COLUMN_OPTIONAL &(how) && use->name > 0);
	GM_CLIENT_FIGURES(CLIENTS_ADD, GM_FIGURE_SKIP, CLIENTS_ADD)
#undef CLIENTS_ADD
}

static struct gm_table *clients_use_table(
	const struct gm_options *options, const Gm__Wire__Client *client)
{
	struct gm_table *table = GM_TABLE_NEW(use_columns);

	for (size_t i = 0; i < client->n_use; i++) {
		const Gm__Wire__ClientUse *use = client->use[i];

		if (options->given & GM_OPTION_DEVICE && use->device != options->device)
			continue;
		gm_table_row(table);
		gm_table_count(table, use->device);
		clients_add_use(table, 0, use, clients_says(client));
	}
	return table;
}

static const char *clients_state(const Gm__Wire__Client *client)
{
	if (client->left)
		return "left";
	return client->quarantined ? "quarantined" : "connected";
}

/* Adds a number of requests, for a column that is hidden if all of them are 0. */
static void clients_add_count_if_any(struct gm_table *table, uint64_t n)
{
	gm_table_count(table, n);
	gm_table_known(table, n > 0);
}

/* Adds a number that only those see who see the details of a client. */
static void clients_add_detail(struct gm_table *table, const Gm__Wire__Client *client, uint64_t n)
{
	gm_table_count(table, n);
	gm_table_known(table, clients_says(client) || n);
}

/* Adds the values of a row. name: of the client, or of what it has published. use: one device; NULL: the client holds
 * nothing anywhere. */
static void clients_add_values(const struct clients_answer *answer, const Gm__Wire__Client *client,
	const char *name, const Gm__Wire__ClientUse *use, bool first)
{
	static const Gm__Wire__ClientUse nothing = GM__WIRE__CLIENT_USE__INIT;
	struct gm_table *table = answer->table;
	char user[GM_USER_NAME_TEXT], run[GM_USER_NAME_RUN_TEXT];

	/* The daemon sends 0 for a number that the asker may not see: not known, rather than 0. */
	gm_table_count(table, client->session);
	gm_table_known(table, client->details || client->session);
	gm_table_count(table, (uint64_t)client->pid);
	gm_table_known(table, client->pid > 0);
	gm_table_count(table, client->uid);
	gm_table_text(table, gm_user_name(client->uid, user));
	gm_table_text(table, name);
	gm_table_text(table, client->command);
	gm_table_text(table, client->unit);
	gm_table_text(table, client->container);
	gm_table_text(table, client->run);
	/* A program that has no name of its own has that of its run. */
	if (clients_run_shared(answer, client))
		gm_table_text(table, gm_user_name_run(client->run_name, client->run, run));
	else
		gm_table_text(table, strcmp(client->run_name, name) ? client->run_name : NULL);
	gm_table_text(table, clients_state(client));
	gm_table_bool(table, client->details);
	gm_table_time(table, client->age_ms);
	gm_table_known(table, clients_says(client) || client->age_ms);
	clients_add_detail(table, client, client->leases);
	clients_add_detail(table, client, client->refused);
	clients_add_detail(table, client, client->waiting);
	if (first)
		gm_table_rows(table, clients_use_table(answer->options, client));
	else
		gm_table_none(table);

	gm_table_count(table, use ? use->device : 0);
	gm_table_known(table, use);
	if (!use)
		use = &nothing;
	clients_add_use(table, CLIENTS_USE, use, use != &nothing && clients_says(client));
	clients_add_optional(table, use);
	clients_add_count_if_any(table, first ? client->refused : 0);
	clients_add_count_if_any(table, first ? client->waiting : 0);
	if (use->orphaned)
		gm_table_text(table, "orphaned");
	else
		gm_table_text(
			table, client->quarantined || client->left ? clients_state(client) : NULL);
	gm_table_mark(table, GM_MARK_WARN);
	gm_table_text(table, *client->container ? client->container : client->unit);
	gm_table_text(table, client->run_name);
}

/* Returns true if the options select the client. --name matches the client's own name and that of its run. */
static bool clients_wanted(const struct gm_options *options, const Gm__Wire__Client *client,
	const char *name, int64_t device)
{
	return gm_verb_wants(options, device, client->uid, name) ||
	       (*client->run_name && gm_verb_wants(options, device, client->uid, client->run_name));
}

/* A row for each device on which the client holds memory, or of which it has content in host memory. */
static void clients_add_client(struct clients_answer *answer, const Gm__Wire__Client *client)
{
	const struct gm_options *options = answer->options;
	char *published = client->left ? gm_name_list_of(&answer->names, client->session) : NULL;
	const char *name = published ? published : client->name;
	bool first = true;

	for (size_t i = 0; i < client->n_use; i++) {
		const Gm__Wire__ClientUse *use = client->use[i];

		if ((!use->held && !use->in_host && !use->passed) ||
			!clients_wanted(options, client, name, use->device))
			continue;
		if (first)
			gm_table_row(answer->table);
		else
			gm_table_flat(answer->table);
		clients_add_values(answer, client, name, use, first);
		first = false;
	}

	if (first && clients_wanted(options, client, name, -1)) {
		gm_table_row(answer->table);
		clients_add_values(answer, client, name, NULL, true);
	}
	free(published);
}

static void clients_take(void *user, const Gm__Wire__Packet *packet)
{
	struct clients_answer *answer = user;

	for (size_t i = 0; i < packet->clients->n_clients; i++) {
		const Gm__Wire__Client *client = packet->clients->clients[i];

		answer->left |= client->left;
		clients_note_run(answer, client);
		answer->unnamed += answer->options->given & GM_OPTION_NAME && !client->details;
		clients_add_client(answer, client);
	}
}

static gpumem_status clients_ask(struct gm_ctl *ctl, struct clients_answer *answer)
{
	struct gm_ctl_conn *conn;

	gpumem_status status = gm_verb_connect_on_device(ctl, &conn);
	if (status != GPUMEM_OK)
		return status;
	status = gm_ctl_conn_get(
		conn, GM__WIRE__PACKET__BODY_GET_CLIENTS, clients_take, answer, &ctl->trouble);
	if (status == GPUMEM_OK && (answer->left || answer->shared)) {
		/* Once more, with the names of what clients left behind and those that runs share. */
		gm_table_free(answer->table);
		answer->table = GM_TABLE_NEW(columns);
		answer->unnamed = 0;
		if (answer->left)
			status = gm_name_list_ask(&answer->names, ctl, conn);
		if (status == GPUMEM_OK)
			status = gm_ctl_conn_get(conn, GM__WIRE__PACKET__BODY_GET_CLIENTS,
				clients_take, answer, &ctl->trouble);
	}
	gm_name_list_deinit(&answer->names);
	gm_ctl_conn_free(conn);
	return status;
}

static gpumem_status clients_run(struct gm_ctl *ctl)
{
	struct clients_answer answer = {.options = ctl->options, .table = GM_TABLE_NEW(columns)};

	gpumem_status status = clients_ask(ctl, &answer);
	free(answer.runs);
	if (status != GPUMEM_OK) {
		gm_table_free(answer.table);
		return status;
	}

	gm_verb_show_list(ctl, "clients", answer.table,
		ctl->options->given ? "No client matches." : "No clients are connected.");
	gm_writer_notes(ctl->writer);
	if (answer.unnamed)
		gm_writer_note(ctl->writer, "hidden", GM_MARK_NONE,
			"%llu client%s left out: only %s and administrators see %s",
			(unsigned long long)answer.unnamed, answer.unnamed == 1 ? " was" : "s were",
			answer.unnamed == 1 ? "its user" : "their users",
			answer.unnamed == 1 ? "its name" : "their names");
	return GPUMEM_OK;
}

const struct gm_verb gm_verb_clients = {
	.name = "clients",
	.arguments = "[--sort COLUMN]",
	.summary = "clients and the memory that they hold",
	.help = GM_VERB_HELP_OF_LISTS
	"\nHELD is what the daemon charges. IN USE, CACHED and SLACK are what the client\n"
	"says about it: CACHED could come back now, SLACK cannot (rounding). DECLARED is\n"
	"memory that it made itself, such as managed memory. You see only the totals of\n"
	"other users' clients, unless you are an administrator. A quarantined client has\n"
	"lost its connection, but its process lives. Its memory stays charged until it\n"
	"reconnects or its process ends. A row in the state left has no process: the\n"
	"user's processes published buffers, which NAME names, or shared buffers that\n"
	"others still have open. The user is charged until they are gone. REFUSED and\n"
	"WAITING are shown if requests for memory were refused, or wait. In the state\n"
	"orphaned, the row has memory that no client has any more, but that a process\n"
	"still maps. The user is charged until that process lets go or ends. RUN NAME is\n"
	"that of gpumem-run --name, where a program has given itself another name, or\n"
	"where several runs have one name: then the first digits of its ID follow.\n",
	.takes = GM_OPTIONS_OF_LISTS,
	.columns = columns,
	.n_columns = sizeof(columns) / sizeof(*columns),
	.run = clients_run,
};
