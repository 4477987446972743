/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl buffers: the buffers that clients track. The oldest come first, because they are the
 * most likely leaks. What a client holds besides them has rows of its own, and so has what clients
 * left behind, so that the rows add up to what gpumemctl clients shows.
 */

#include <stdio.h>
#include <string.h>

#include "common/arith.h"
#include "ctl/io/user_name.h"
#include "ctl/verb/name_list.h"
#include "ctl/show/stack_list.h"
#include "ctl/verb/verb.h"

static const struct gm_column columns[] = {
	{"age_ms", "AGE", GM_COLUMN_RIGHT},
	{"idle_ms", "IDLE", GM_COLUMN_RIGHT | GM_COLUMN_OPTIONAL | GM_COLUMN_SPARE},
	{"bytes", "SIZE", GM_COLUMN_RIGHT},
	{"device", "DEV", GM_COLUMN_RIGHT},
	{"kind", "KIND", GM_COLUMN_SPARE | GM_COLUMN_LAST},
	{"location", "WHERE", GM_COLUMN_OPTIONAL},
	{"pinned", NULL, 0},
	{"buffer", "BUFFER", GM_COLUMN_OPTIONAL | GM_COLUMN_SPARE | GM_COLUMN_LAST},
	{"tag", "TAG", GM_COLUMN_NAME},
	{"type", "TYPE", GM_COLUMN_SHRINK | GM_COLUMN_OPTIONAL | GM_COLUMN_SPARE | GM_COLUMN_LAST},
	{"precision", "PREC",
		GM_COLUMN_SHRINK | GM_COLUMN_OPTIONAL | GM_COLUMN_SPARE | GM_COLUMN_LAST},
	{"stack", "STACK", GM_COLUMN_RIGHT | GM_COLUMN_OPTIONAL | GM_COLUMN_FLAT},
	{"stack", NULL, GM_COLUMN_NESTED},
	{"session", NULL, GM_COLUMN_RIGHT},
	{"pid", "PID", GM_COLUMN_RIGHT},
	{"uid", NULL, GM_COLUMN_RIGHT},
	{"user", "USER", GM_COLUMN_OWNER},
	{"client", "CLIENT", GM_COLUMN_NAME},
	{"used_bytes", "USED", GM_COLUMN_RIGHT | GM_COLUMN_OPTIONAL | GM_COLUMN_SPARE},
	{"max_bytes", "MAX", GM_COLUMN_RIGHT | GM_COLUMN_OPTIONAL | GM_COLUMN_SPARE},
	{"growth_factor", "FACTOR", GM_COLUMN_RIGHT | GM_COLUMN_OPTIONAL | GM_COLUMN_SPARE},
	{"growth_step", "STEP", GM_COLUMN_RIGHT | GM_COLUMN_OPTIONAL | GM_COLUMN_SPARE},
	{"growth_ceiling", "CEILING", GM_COLUMN_RIGHT | GM_COLUMN_OPTIONAL | GM_COLUMN_SPARE},
};
#define GROWTH_COLUMNS 5
#define PLACE_COLUMNS  3

struct buffers_answer {
	const struct gm_options *options;
	struct gm_table *table;
	struct gm_stack_list *stacks; /* NULL: nobody wants them */
	bool has_stacks;              /* a client keeps them */
	struct gm_name_list names;    /* of what has no process any more */
	bool left;                    /* there is something of that */
	uint64_t untracked, hidden;
};

/* A size that is 0 if it does not apply. */
static void buffers_add_size(struct gm_table *table, uint64_t bytes)
{
	gm_table_size(table, bytes);
	gm_table_known(table, bytes);
}

/* How the buffer grows, and how much of it is used. */
static void buffers_add_growth(struct gm_table *table, const Gm__Wire__Buffer *buffer)
{
	const Gm__Wire__BufferGrowth *growth = buffer->growth;

	gm_table_size(table, buffer->used_bytes);
	gm_table_known(table, buffer->use_known);
	buffers_add_size(table, buffer->max_bytes);
	gm_table_factor(table, growth ? growth->percent * UINT64_C(10000) : 0);
	gm_table_known(table, growth && growth->percent);
	buffers_add_size(table, growth ? growth->step : 0);
	buffers_add_size(table, growth ? growth->ceiling : 0);
}

/* Where an evictable buffer or a region is, and the buffer's name for gpumemctl evict. */
static void buffers_add_place(struct gm_table *table, const Gm__Wire__Buffer *buffer)
{
	char name[48];

	if (!buffer->evictable) {
		if (buffer->paused)
			gm_table_text(table, "paused");
		gm_table_nones(table, PLACE_COLUMNS - buffer->paused);
		return;
	}
	gm_table_text(table, buffer->in_host ? "host" : "device");
	gm_table_bool(table, buffer->pinned);
	snprintf(name, sizeof(name), "%llu/%u", (unsigned long long)buffer->session, buffer->row);
	gm_table_text(table, name);
}

/* The number of the stack, and its frames, which all buffers with this stack share. */
static void buffers_add_stack(struct buffers_answer *answer, const Gm__Wire__Buffer *buffer)
{
	struct gm_table *table = answer->table;
	uint32_t number = answer->stacks && buffer->stack
				  ? gm_stack_list_count(answer->stacks, buffer->session,
					    buffer->stack, buffer->bytes)
				  : 0;

	if (!number) {
		gm_table_nones(table, 2);
		return;
	}
	gm_table_count(table, number);
	/* Only JSON has them. */
	if (answer->options->json)
		gm_table_same_rows(table, gm_stack_list_frames(answer->stacks, number));
	else
		gm_table_none(table);
}

static void buffers_add(struct buffers_answer *answer, const Gm__Wire__Buffer *buffer)
{
	struct gm_table *table = answer->table;

	if (!gm_verb_wants(answer->options, buffer->device, buffer->uid, buffer->client))
		return;
	gm_table_row(table);
	gm_table_time(table, buffer->age_ms);
	/* As old as itself: no use of it is known. */
	gm_table_time(table, buffer->idle_ms);
	gm_table_known(table, buffer->idle_ms < buffer->age_ms);
	gm_table_size(table, buffer->bytes);
	gm_table_count(table, buffer->device);
	gm_table_text(table, "buffer");
	buffers_add_place(table, buffer);
	gm_table_text(table, buffer->tag);
	gm_table_text(table, buffer->type);
	gm_table_text(table, buffer->precision);
	buffers_add_stack(answer, buffer);
	gm_verb_add_client(table, buffer->session, buffer->pid, buffer->uid, buffer->client);
	buffers_add_growth(table, buffer);
}

static void buffers_add_part(struct buffers_answer *answer, const Gm__Wire__BufferTotals *totals,
	const char *kind, uint64_t bytes)
{
	struct gm_table *table = answer->table;

	if (!bytes || !gm_verb_wants(answer->options, totals->device, totals->uid, totals->client))
		return;
	gm_table_row(table);
	gm_table_nones(table, 2);
	gm_table_size(table, bytes);
	gm_table_count(table, totals->device);
	gm_table_text(table, kind);
	gm_table_nones(table, 5 + PLACE_COLUMNS);
	gm_verb_add_client(table, totals->session, totals->pid, totals->uid, totals->client);
	gm_table_nones(table, GROWTH_COLUMNS);
}

/* Adds what the client holds besides its tracked buffers. */
static void buffers_add_rest(struct buffers_answer *answer, const Gm__Wire__BufferTotals *totals)
{
	/* The client says what it uses and caches. The daemon says what it holds, which is true. */
	uint64_t left = gm_u64_minus(gm_u64_minus(totals->held, totals->declared), totals->tracked);
	uint64_t small = gm_u64_min(gm_u64_minus(totals->in_use, totals->tracked), left);

	left -= small;
	uint64_t cached = gm_u64_min(totals->cached, left);

	buffers_add_part(answer, totals, "small", small);
	buffers_add_part(answer, totals, "cached", cached);
	buffers_add_part(answer, totals, "slack", left - cached);
	buffers_add_part(answer, totals, "declared", gm_u64_min(totals->declared, totals->held));
}

static void buffers_take(void *user, const Gm__Wire__Packet *packet)
{
	struct buffers_answer *answer = user;
	const Gm__Wire__BuffersReply *reply = packet->buffers;

	for (size_t i = 0; i < reply->n_buffers; i++)
		buffers_add(answer, reply->buffers[i]);
	/* The rest has no age. */
	if (!(answer->options->given & GM_OPTION_OLDER_THAN))
		for (size_t i = 0; i < reply->n_totals; i++)
			buffers_add_rest(answer, reply->totals[i]);

	/* Any packet may carry these. */
	if (reply->untracked > answer->untracked)
		answer->untracked = reply->untracked;
	if (reply->hidden_clients > answer->hidden)
		answer->hidden = reply->hidden_clients;
}

/* Adds what clients left behind on a device. what: without a name if it is not published. */
static void buffers_add_left(struct buffers_answer *answer, const Gm__Wire__Client *client,
	const char *kind, const struct gm_name_list_item *what)
{
	struct gm_table *table = answer->table;
	char user[GM_USER_NAME_TEXT];

	if (!what->bytes || !gm_verb_wants(answer->options, what->device, client->uid, what->name))
		return;
	gm_table_row(table);
	gm_table_time(table, what->age_ms);
	gm_table_known(table, what->name[0]);
	gm_table_none(table);
	gm_table_size(table, what->bytes);
	gm_table_count(table, what->device);
	gm_table_text(table, kind);
	gm_table_nones(table, PLACE_COLUMNS);
	gm_table_text(table, what->name);
	gm_table_nones(table, 4);
	gm_table_count(table, client->session);
	gm_table_none(table);
	gm_table_count(table, client->uid);
	gm_table_text(table, gm_user_name(client->uid, user));
	gm_table_none(table);
	gm_table_nones(table, GROWTH_COLUMNS);
}

/* Adds what a client that has no process any more has on a device: what it published, and the rest. */
static void buffers_add_left_use(struct buffers_answer *answer, const Gm__Wire__Client *client,
	const Gm__Wire__ClientUse *use)
{
	struct gm_name_list_item rest = {.device = use->device, .bytes = use->held};
	struct gm_name_list_item orphaned = {
		.device = use->device, .bytes = gm_u64_min(use->orphaned, use->held)};

	rest.bytes -= orphaned.bytes;
	for (size_t i = 0; i < answer->names.n; i++) {
		struct gm_name_list_item item = answer->names.items[i];

		if (item.payer != client->session || item.device != use->device)
			continue;
		item.bytes = gm_u64_min(item.bytes, rest.bytes);
		rest.bytes -= item.bytes;
		buffers_add_left(answer, client, "published", &item);
	}
	buffers_add_left(answer, client, "left", &rest);
	buffers_add_left(answer, client, "orphaned", &orphaned);
}

static void buffers_look_for_left(void *user, const Gm__Wire__Packet *packet)
{
	struct buffers_answer *answer = user;

	for (size_t i = 0; i < packet->clients->n_clients; i++)
		answer->left |= packet->clients->clients[i]->left;
}

/* Takes the list of clients, for those that have no process any more. */
static void buffers_take_clients(void *user, const Gm__Wire__Packet *packet)
{
	struct buffers_answer *answer = user;

	for (size_t i = 0; i < packet->clients->n_clients; i++) {
		const Gm__Wire__Client *client = packet->clients->clients[i];

		if (!client->left)
			continue;
		answer->hidden += !client->details;
		for (size_t k = 0; client->details && k < client->n_use; k++)
			buffers_add_left_use(answer, client, client->use[k]);
	}
}

static void buffers_want_stacks(void *user, const Gm__Wire__Packet *packet)
{
	struct buffers_answer *answer = user;
	const Gm__Wire__BuffersReply *reply = packet->buffers;

	for (size_t i = 0; i < reply->n_buffers; i++) {
		const Gm__Wire__Buffer *buffer = reply->buffers[i];

		if (!buffer->stack || !gm_verb_wants(answer->options, buffer->device, buffer->uid,
					      buffer->client))
			continue;
		answer->has_stacks = true;
		gm_stack_list_want(answer->stacks, buffer->session, buffer->uid);
	}
}

/* Asks whose buffers have stacks, and for those. */
static gpumem_status buffers_ask_stacks(struct gm_ctl *ctl, struct gm_ctl_conn *conn,
	Gm__Wire__Packet *request, struct buffers_answer *answer)
{
	gpumem_status status = gm_ctl_conn_ask(conn, request, GM__WIRE__PACKET__BODY_BUFFERS,
		buffers_want_stacks, answer, &ctl->trouble);

	return status == GPUMEM_OK ? gm_stack_list_ask(answer->stacks, ctl, conn) : status;
}

/* Asks for what has no process any more and, if there is something, for its names. */
static gpumem_status buffers_ask_left(
	struct gm_ctl *ctl, struct gm_ctl_conn *conn, struct buffers_answer *answer)
{
	gpumem_status status = gm_ctl_conn_get(conn, GM__WIRE__PACKET__BODY_GET_CLIENTS,
		buffers_look_for_left, answer, &ctl->trouble);
	if (status != GPUMEM_OK || !answer->left)
		return status;
	status = gm_name_list_ask(&answer->names, ctl, conn);
	if (status == GPUMEM_OK)
		status = gm_ctl_conn_get(conn, GM__WIRE__PACKET__BODY_GET_CLIENTS,
			buffers_take_clients, answer, &ctl->trouble);
	gm_name_list_deinit(&answer->names);
	return status;
}

static gpumem_status buffers_ask(struct gm_ctl *ctl, struct buffers_answer *answer)
{
	Gm__Wire__GetBuffers get_buffers = GM__WIRE__GET_BUFFERS__INIT;
	Gm__Wire__Packet ask_buffers = GM_WIRE_PACKET(GET_BUFFERS, get_buffers, &get_buffers);
	struct gm_ctl_conn *conn;

	gpumem_status status = gm_verb_connect_on_device(ctl, &conn);
	if (status != GPUMEM_OK)
		return status;

	get_buffers.older_than_ms = ctl->options->older_than_ms;
	if (answer->stacks)
		status = buffers_ask_stacks(ctl, conn, &ask_buffers, answer);
	if (status == GPUMEM_OK)
		status = gm_ctl_conn_ask(conn, &ask_buffers, GM__WIRE__PACKET__BODY_BUFFERS,
			buffers_take, answer, &ctl->trouble);
	if (status == GPUMEM_OK && !(ctl->options->given & GM_OPTION_OLDER_THAN))
		status = buffers_ask_left(ctl, conn, answer);
	gm_ctl_conn_free(conn);
	return status;
}

/* Says why there is nothing to show. */
static const char *buffers_none(const struct gm_options *options, uint64_t hidden)
{
	unsigned given = options->given & ~(unsigned)GM_OPTION_STACKS;

	if (given & ~(unsigned)GM_OPTION_OLDER_THAN)
		return "No buffer matches.";
	if (given)
		return "No tracked buffer is that old.";
	return hidden ? "No client of yours holds memory." : "No client holds memory.";
}

/* Whether --columns asks for the stacks. */
static bool buffers_shows_stack(const struct gm_options *options)
{
	for (size_t i = 0; i < options->view.n_shown; i++)
		if (!strcmp(columns[options->view.shown[i]].key, "stack"))
			return true;
	return false;
}

static gpumem_status buffers_run(struct gm_ctl *ctl)
{
	struct buffers_answer answer = {.options = ctl->options, .table = GM_TABLE_NEW(columns)};
	bool stacks = ctl->options->given & GM_OPTION_STACKS || buffers_shows_stack(ctl->options);

	if (stacks)
		answer.stacks = gm_stack_list_new();
	gpumem_status status = buffers_ask(ctl, &answer);
	if (status != GPUMEM_OK || (stacks && !answer.stacks)) {
		gm_stack_list_free(answer.stacks);
		gm_table_free(answer.table);
		return status != GPUMEM_OK ? status
					   : gm_trouble_set(&ctl->trouble, GPUMEM_E_HOST_MEMORY,
						     "no memory for the call stacks");
	}

	bool shown = answer.table && answer.table->n_rows;
	gm_verb_show_list(ctl, "buffers", answer.table, buffers_none(ctl->options, answer.hidden));

	if (answer.stacks && ctl->options->csv)
		gm_writer_data(ctl->writer, "stacks", gm_stack_list_table(answer.stacks));
	else if (answer.stacks)
		gm_stack_list_write(answer.stacks, ctl->writer);
	gm_stack_list_free(answer.stacks);

	gm_writer_count(ctl->writer, "untracked", answer.untracked);
	gm_writer_count(ctl->writer, "hidden_clients", answer.hidden);
	gm_writer_notes(ctl->writer);
	if (answer.untracked)
		gm_writer_note(ctl->writer, "untracked", GM_MARK_WARN,
			"%llu more buffer%s found no room in the tables of their clients",
			(unsigned long long)answer.untracked, answer.untracked == 1 ? "" : "s");
	if (stacks && shown && !answer.has_stacks)
		gm_writer_line(ctl->writer, "",
			"! none of these has a stack: start programs with GPUMEM_TRACK=stacks");
	if (answer.hidden)
		gm_writer_note(ctl->writer, "hidden", GM_MARK_NONE,
			"%llu more client%s memory; only %s and administrators see %s buffers",
			(unsigned long long)answer.hidden, answer.hidden == 1 ? " holds" : "s hold",
			answer.hidden == 1 ? "its user" : "their users",
			answer.hidden == 1 ? "its" : "their");
	return GPUMEM_OK;
}

const struct gm_verb gm_verb_buffers = {
	.name = "buffers",
	.arguments = "[--older-than TIME]",
	.summary = "what clients hold, oldest buffers first",
	.help = "  --older-than TIME     only buffers that are at least this old: 60s, 2h\n"
		"  --stacks              show where they were allocated, if clients track that\n" GM_VERB_HELP_OF_LISTS
		"\nA row is a tracked buffer or, by its KIND, all small and untracked blocks of a\n"
		"client on a device, what it caches, or its slack: memory that it holds because\n"
		"of rounding; or memory that it made itself and 'declared'. What clients left\n"
		"behind is 'published' under the name in TAG, 'left' while others have it\n"
		"open, and 'orphaned' while a process still maps it. The rows of a client add\n"
		"up to its HELD in 'gpumemctl clients'.\n\n"
		"USED, MAX and what follows are shown if a program says how much of a buffer it\n"
		"uses, or lets it grow: where it is up to MAX, and by a policy to FACTOR of its\n"
		"size (1.5 is half as much again), by multiples of STEP, at most to CEILING.\n\n"
		"WHERE is shown if a client has evictable buffers, which are on their device or\n"
		"in host memory, or paused regions. SIZE is what the content of such a region\n"
		"takes in host memory. BUFFER is a buffer's name for 'gpumemctl evict' and\n"
		"'restore'.\n\n"
		"A buffer that is much older than the work it was for may be a leak. The key\n"
		"'track' in gpumemd.conf(5) sets which buffers clients track.\n\n"
		"IDLE is the time since the program said that it uses the buffer. TYPE and PREC\n"
		"are what it says about the content.\n",
	.takes = GM_OPTION_OLDER_THAN | GM_OPTION_STACKS | GM_OPTIONS_OF_LISTS,
	.columns = columns,
	.n_columns = sizeof(columns) / sizeof(*columns),
	.sort = "-age_ms,-bytes",
	.run = buffers_run,
};
