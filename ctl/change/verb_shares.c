/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl shares: the buffers that are published under names, removing a name, and saying when it
 * ends. Whose name it is, a person writes as in 'limit', with the name of the user. The daemon gets
 * numbers.
 */

#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/bounds.h"
#include "common/text/share_name.h"
#include "common/text/units.h"
#include "common/text/text.h"
#include "ctl/io/user_name.h"
#include "ctl/verb/verb.h"

static const struct gm_column columns[] = {
	{"uid", NULL, 0},
	{"user", "OWNER", GM_COLUMN_OWNER},
	{"name", "NAME", GM_COLUMN_NAME | GM_COLUMN_OWNER},
	{"version", "VERSION", GM_COLUMN_RIGHT | GM_COLUMN_SPARE},
	{"device", "DEV", GM_COLUMN_RIGHT},
	{"bytes", "SIZE", GM_COLUMN_RIGHT},
	{"user_bytes", NULL, 0},
	{"audience", NULL, 0},
	{"audience_name", "FOR", GM_COLUMN_OWNER},
	{"mode", NULL, 0},
	{NULL, "MODE", GM_COLUMN_SPARE | GM_COLUMN_LAST},
	{"readers", "READERS", GM_COLUMN_RIGHT | GM_COLUMN_SPARE | GM_COLUMN_LAST},
	{"age_ms", "AGE", GM_COLUMN_RIGHT | GM_COLUMN_SPARE},
	{"left_ms", "LEFT", GM_COLUMN_RIGHT | GM_COLUMN_SPARE | GM_COLUMN_LAST},
	{"maker", "MAKER", GM_COLUMN_SPARE},
	{"until_unread", NULL, 0},
	{"metadata_bytes", NULL, 0},
	{"tag", NULL, 0},
	{"enforced", NULL, 0},
};

struct shares_answer {
	const struct gm_options *options;
	struct gm_table *table;
};

/* Who may attach, as the daemon writes owners. */
static const char *shares_audience(const Gm__Wire__Name *name, char *text, size_t room)
{
	switch (name->audience) {
	case GM__WIRE__AUDIENCE__AUDIENCE_UID:
		snprintf(text, room, "uid:%u", name->audience_id);
		return text;
	case GM__WIRE__AUDIENCE__AUDIENCE_GID:
		snprintf(text, room, "gid:%u", name->audience_id);
		return text;
	case GM__WIRE__AUDIENCE__AUDIENCE_DOMAIN:
		return "domain";
	default:
		return NULL;
	}
}

/* Returns what a process that attached can do. */
static const char *shares_mode(const Gm__Wire__Name *name)
{
	if (!name->read_only)
		return "write";
	return name->advisory ? "advisory" : "read";
}

static void shares_add(struct gm_table *table, const Gm__Wire__Name *name)
{
	char user[GM_USER_NAME_TEXT], number[32], owner[GM_USER_NAME_OWNER_TEXT];
	const char *audience = shares_audience(name, number, sizeof(number));

	gm_table_row(table);
	gm_table_count(table, name->owner);
	gm_table_text(table, gm_user_name(name->owner, user));
	gm_table_text(table, name->name);
	gm_table_count(table, name->version);
	gm_table_count(table, name->device);
	gm_table_size(table, name->bytes);
	gm_table_size(table, name->user_bytes);
	gm_table_text(table, audience);
	gm_table_text(table, audience ? gm_user_name_owner(audience, owner) : NULL);
	gm_table_text(table, name->read_only ? "read" : "write");
	gm_table_text(table, shares_mode(name));
	gm_table_count(table, name->readers);
	gm_table_time(table, name->age_ms);
	gm_table_left(table, name->left_ms);
	gm_table_known(table, name->left_ms != 0);
	gm_table_bool(table, name->maker);
	gm_table_bool(table, name->until_unread);
	gm_table_size(table, name->metadata_bytes);
	gm_table_text(table, name->tag);
	gm_table_bool(table, !name->advisory);
	gm_table_known(table, name->read_only);
}

static void shares_take(void *user, const Gm__Wire__Packet *packet)
{
	struct shares_answer *answer = user;

	for (size_t i = 0; i < packet->names->n_names; i++) {
		const Gm__Wire__Name *name = packet->names->names[i];

		if (gm_verb_wants(answer->options, name->device, name->owner, name->name))
			shares_add(answer->table, name);
	}
}

static gpumem_status shares_list(struct gm_ctl *ctl)
{
	struct shares_answer answer = {.options = ctl->options, .table = GM_TABLE_NEW(columns)};

	gpumem_status status =
		gm_verb_get_on_device(ctl, GM__WIRE__PACKET__BODY_GET_NAMES, shares_take, &answer);
	if (status != GPUMEM_OK) {
		gm_table_free(answer.table);
		return status;
	}

	gm_verb_show_list(ctl, "shares", answer.table,
		gm_verb_narrows(ctl->options) ? "No name matches."
					      : "No buffers are published that you may see.");
	return GPUMEM_OK;
}

/* ---- changing */

/* Reads the name that is to change. use: "shares remove" or "shares expire" */
static gpumem_status shares_parse(
	struct gm_ctl *ctl, const char *use, struct gm_token_name *ret_name)
{
	gpumem_status status = gm_verb_refuse_list_options(ctl, use);

	return status == GPUMEM_OK ? gm_verb_parse_name(ctl, ctl->options->args[1], ret_name)
				   : status;
}

/* Looks for the name among those of other users. */
struct shares_search {
	const char *name;
	bool found;
	uid_t owner;
};

static void shares_take_search(void *user, const Gm__Wire__Packet *packet)
{
	struct shares_search *search = user;

	for (size_t i = 0; i < packet->names->n_names; i++) {
		const Gm__Wire__Name *name = packet->names->names[i];

		if (search->found || strcmp(name->name, search->name) != 0)
			continue;
		search->found = true;
		search->owner = name->owner;
	}
}

/* There is no such name: says whose name may be meant. */
static gpumem_status shares_explain(
	struct gm_ctl *ctl, struct gm_ctl_conn *conn, const struct gm_token_name *name)
{
	struct shares_search search = {.name = name->name};

	gpumem_status status = gm_verb_refuse_cut_name(ctl, name->name);
	if (status != GPUMEM_OK)
		return status;
	if (name->foreign)
		return gm_verb_no_such_name(ctl, name, "buffer", NULL);
	status = gm_ctl_conn_get(
		conn, GM__WIRE__PACKET__BODY_GET_NAMES, shares_take_search, &search, &ctl->trouble);
	return gm_verb_no_such_name(
		ctl, name, "buffer", status == GPUMEM_OK && search.found ? &search.owner : NULL);
}

/* Asks the daemon to change a name. */
static gpumem_status shares_change(
	struct gm_ctl *ctl, const struct gm_token_name *name, Gm__Wire__Packet *request)
{
	struct gm_ctl_conn *conn;

	gpumem_status status = gm_verb_connect(ctl, &conn);
	if (status != GPUMEM_OK)
		return status;
	status = gm_ctl_conn_ask(
		conn, request, GM__WIRE__PACKET__BODY_DONE, NULL, NULL, &ctl->trouble);
	if (status == GPUMEM_E_NOT_FOUND)
		status = shares_explain(ctl, conn, name);
	gm_ctl_conn_free(conn);
	return status;
}

static gpumem_status shares_remove(struct gm_ctl *ctl)
{
	const struct gm_options *options = ctl->options;
	Gm__Wire__Unpublish body = GM__WIRE__UNPUBLISH__INIT;
	Gm__Wire__Packet request = GM_WIRE_PACKET(UNPUBLISH, unpublish, &body);
	struct gm_token_name name = {0};

	if (options->n_args > 2)
		return gm_verb_wrong_use(ctl, "'shares remove' takes one name");
	if (options->n_args < 2)
		return gm_verb_wrong_use(
			ctl, "'shares remove' needs a name; see 'gpumemctl shares' for the names");
	gpumem_status status = shares_parse(ctl, "shares remove", &name);
	if (status != GPUMEM_OK)
		return status;
	body.name = (char *)name.name;
	body.foreign = name.foreign;
	body.owner = name.owner;

	status = shares_change(ctl, &name, &request);
	if (status != GPUMEM_OK)
		return status;

	gm_writer_text(ctl->writer, "removed", options->args[1]);
	gm_writer_line(ctl->writer, "",
		"Removed %s. Processes that attached to it keep the buffer.", options->args[1]);
	return GPUMEM_OK;
}

/* Reads TIME or 'never', which is 0. */
static gpumem_status shares_parse_lifetime(
	struct gm_ctl *ctl, const char *text, uint64_t *ret_lifetime_ms)
{
	uint64_t ns;

	*ret_lifetime_ms = 0;
	if (!strcmp(text, "never"))
		return GPUMEM_OK;
	if (gm_parse_duration(text, &ns) < 0)
		return gm_verb_wrong_use(
			ctl, "'%s' is not a time; use 90s, 12h or 7d, or never", text);
	*ret_lifetime_ms = ns / GM_NS_PER_MS;
	if (*ret_lifetime_ms == 0)
		return gm_verb_wrong_use(ctl, "to end a name now, use 'shares remove'");
	if (*ret_lifetime_ms > GM_LIFETIME_MS_MAX)
		return gm_verb_wrong_use(ctl, "that is more than a hundred years; use 'never'");
	return GPUMEM_OK;
}

static gpumem_status shares_expire(struct gm_ctl *ctl)
{
	const struct gm_options *options = ctl->options;
	Gm__Wire__ExpireName body = GM__WIRE__EXPIRE_NAME__INIT;
	Gm__Wire__Packet request = GM_WIRE_PACKET(EXPIRE_NAME, expire_name, &body);
	struct gm_token_name name = {0};
	char text[GM_UNITS_TEXT];

	if (options->n_args < 3)
		return gm_verb_wrong_use(ctl,
			"'shares expire' needs a name, and a time or 'never'; see 'gpumemctl shares' "
			"for the names");
	gpumem_status status = shares_parse(ctl, "shares expire", &name);
	if (status == GPUMEM_OK)
		status = shares_parse_lifetime(ctl, options->args[2], &body.lifetime_ms);
	if (status != GPUMEM_OK)
		return status;

	body.name = (char *)name.name;
	body.foreign = name.foreign;
	body.owner = name.owner;
	status = shares_change(ctl, &name, &request);
	if (status != GPUMEM_OK)
		return status;

	gm_writer_text(ctl->writer, "expires", options->args[1]);
	gm_writer_time(ctl->writer, "left_ms", body.lifetime_ms ? body.lifetime_ms : UINT64_MAX);
	/* As it was understood: a bare number is seconds, for example. */
	if (body.lifetime_ms)
		gm_writer_line(ctl->writer, "",
			"%s ends in %s. Processes that attached keep the buffer.", options->args[1],
			gm_text_duration(body.lifetime_ms, text));
	else
		gm_writer_line(ctl->writer, "", "%s does not end by itself.", options->args[1]);
	return GPUMEM_OK;
}

static gpumem_status shares_run(struct gm_ctl *ctl)
{
	static const struct gm_verb_word words[GM_VERB_WORDS] = {
		{NULL, shares_list}, {"remove", shares_remove}, {"expire", shares_expire}};

	return gm_verb_run_word(ctl, words,
		"use 'shares', 'shares remove NAME' or 'shares expire NAME TIME|never'");
}

const struct gm_verb gm_verb_shares = {
	.name = "shares",
	.arguments = "[remove | expire]",
	.summary = "buffers that are published under names",
	.help = "  remove NAME           remove a name; processes that attached keep the buffer\n"
		"  expire NAME TIME      remove it after this time, such as 90s, 12h or 7d;\n"
		"                        'never': it does not end by itself\n" GM_VERB_HELP_OF_NAMES
		"\nA published buffer outlives the process that made it, and its user pays for it.\n"
		"FOR says who may attach, READERS how often it is attached now, and MAKER whether\n"
		"the process that made it still has it. MODE says what readers can do: read,\n"
		"write, or advisory, which is read-only on a GPU: they should not write, but\n"
		"nothing keeps them from it. LEFT says in what time the name ends by itself.\n"
		"You see your own names and those that you may attach to; administrators see\n"
		"all. NAME is one of yours, or uid:USER/NAME. Only administrators may remove or\n"
		"expire the names of others.\n",
	.takes = GM_OPTIONS_OF_LISTS,
	.max_args = 3,
	.columns = columns,
	.n_columns = sizeof(columns) / sizeof(*columns),
	.sort = "user,name",
	.run = shares_run,
};
