/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl limit: what owners may hold, shown, set and reset. Users and groups are looked up here,
 * by the same rules as in the configuration; the daemon hears numbers.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/closest.h"
#include "common/units.h"
#include "ctl/verb/verb.h"
#include "daemon/config/config.h"

static const struct gm_column columns[] = {
	{"owner", "OWNER", GM_COLUMN_SHRINK},
	{"device", "DEV", GM_COLUMN_RIGHT},
	{"max", "MAX", GM_COLUMN_RIGHT},
	{"guarantee", "GUARANTEE", GM_COLUMN_RIGHT},
	{"priority", "PRIORITY", GM_COLUMN_RIGHT},
	{"held", "HELD", GM_COLUMN_RIGHT},
	{"clients", "CLIENTS", GM_COLUMN_RIGHT},
	{"state", "STATE", 0},
	{"source", "SET", 0},
};

struct limit_answer {
	const struct gm_options *options;
	struct gm_table *table;
};

static void limit_take(void *user, const Gm__Wire__Packet *packet)
{
	const struct limit_answer *answer = user;
	struct gm_table *table = answer->table;

	for (size_t i = 0; i < packet->limits->n_limits; i++) {
		const Gm__Wire__Limit *limit = packet->limits->limits[i];
		bool max = limit->set & GM__WIRE__LIMIT_VALUE__LIMIT_MAX;
		if (answer->options->given & GM_OPTION_DEVICE &&
			limit->device != answer->options->device)
			continue;
		gm_table_row(table);
		gm_table_text(table, limit->owner);
		gm_table_count(table, limit->device);
		if (max && limit->max != UINT64_MAX)
			gm_table_size(table, limit->max);
		else
			gm_table_none(table);
		if (limit->set & GM__WIRE__LIMIT_VALUE__LIMIT_GUARANTEE)
			gm_table_size(table, limit->guarantee);
		else
			gm_table_none(table);
		if (limit->set & GM__WIRE__LIMIT_VALUE__LIMIT_PRIORITY)
			gm_table_signed(table, limit->priority);
		else
			gm_table_none(table);
		gm_table_size(table, limit->held);
		gm_table_count(table, limit->clients);
		gm_table_text(table, limit->over ? "over" : "ok");
		gm_table_mark(table, limit->over ? GM_MARK_BAD : GM_MARK_NONE);
		gm_table_text(table, limit->run_time ? "run-time" : "configured");
	}
}

static gpumem_status limit_ask(struct gm_ctl *ctl, Gm__Wire__Packet *request, const char *none)
{
	struct gm_table *table = gm_table_new(columns, sizeof(columns) / sizeof(*columns));
	struct limit_answer answer = {.options = ctl->options, .table = table};
	struct gm_ctl_conn *conn = NULL;

	gpumem_status status = gm_ctl_conn_open(
		ctl->options->socket, ctl->options->timeout_ms, &ctl->trouble, &conn);
	/* A change is for the daemon to refuse; a question would find nothing there. */
	if (status == GPUMEM_OK && request->body_case == GM__WIRE__PACKET__BODY_GET_LIMITS)
		status = gm_verb_require_device(ctl, conn);
	if (status == GPUMEM_OK)
		status = gm_ctl_conn_ask(conn, request, GM__WIRE__PACKET__BODY_LIMITS, limit_take,
			&answer, &ctl->trouble);
	gm_ctl_conn_free(conn);
	if (status != GPUMEM_OK) {
		gm_table_free(table);
		return status;
	}
	if (table && table->n_rows == 0) {
		gm_writer_line(ctl->writer, "", "%s", none);
		gm_writer_data(ctl->writer, "limits", table);
	} else {
		gm_writer_table(ctl->writer, "limits", table);
	}
	return GPUMEM_OK;
}

static gpumem_status limit_usage(struct gm_ctl *ctl, const char *format, const char *word)
{
	ctl->usage = true;
	return gm_trouble_set(&ctl->trouble, GPUMEM_E_INVALID, format, word);
}

static gpumem_status limit_owner(
	struct gm_ctl *ctl, const char *text, char ret_owner[GM_CONFIG_OWNER_BYTES])
{
	char why[GM_CONFIG_OWNER_WHY];

	if (gm_config_owner_parse(text, true, ret_owner, why) == 0)
		return GPUMEM_OK;
	return limit_usage(ctl, "%s", why);
}

static gpumem_status limit_show(struct gm_ctl *ctl)
{
	Gm__Wire__GetLimits body = GM__WIRE__GET_LIMITS__INIT;
	Gm__Wire__Packet request = GM__WIRE__PACKET__INIT;

	if (ctl->options->n_args > 1)
		return limit_usage(ctl,
			"'%s' is one argument too many; see 'gpumemctl limit --help'",
			ctl->options->args[1]);
	request.body_case = GM__WIRE__PACKET__BODY_GET_LIMITS;
	request.get_limits = &body;
	return limit_ask(ctl, &request, "No limits are set.");
}

/* "max=48G" */
static gpumem_status limit_take_value(struct gm_ctl *ctl, const char *text, Gm__Wire__SetLimit *set)
{
	const char *value = strchr(text, '=');
	uint64_t n;

	if (value && !strncmp(text, "max=", 4)) {
		if (!strcmp(value + 1, "none"))
			set->max = UINT64_MAX;
		else if (gm_parse_size(value + 1, &n) < 0)
			return limit_usage(ctl, "'%s' is no size; say max=48G or max=none", text);
		else
			set->max = n;
		set->set |= GM__WIRE__LIMIT_VALUE__LIMIT_MAX;
		return GPUMEM_OK;
	}
	if (value && !strncmp(text, "guarantee=", 10)) {
		if (gm_parse_size(value + 1, &n) < 0)
			return limit_usage(ctl, "'%s' is no size; say guarantee=8G", text);
		set->guarantee = n;
		set->set |= GM__WIRE__LIMIT_VALUE__LIMIT_GUARANTEE;
		return GPUMEM_OK;
	}
	if (value && !strncmp(text, "priority=", 9)) {
		bool negative = value[1] == '-';
		if (gm_parse_u64(value + 1 + negative, &n) < 0 || n > 1000)
			return limit_usage(
				ctl, "'%s' is no priority; they are from -1000 to 1000", text);
		set->priority = negative ? -(int32_t)n : (int32_t)n;
		set->set |= GM__WIRE__LIMIT_VALUE__LIMIT_PRIORITY;
		return GPUMEM_OK;
	}
	return limit_usage(ctl,
		"'%s' is nothing of a limit; say max=SIZE, guarantee=SIZE or priority=N", text);
}

static gpumem_status limit_set(struct gm_ctl *ctl)
{
	const struct gm_options *options = ctl->options;
	Gm__Wire__SetLimit body = GM__WIRE__SET_LIMIT__INIT;
	Gm__Wire__Packet request = GM__WIRE__PACKET__INIT;
	char whose[GM_CONFIG_OWNER_BYTES];

	if (options->n_args < 3)
		return limit_usage(ctl, "say %s",
			"'gpumemctl limit set OWNER max=SIZE', or guarantee=SIZE, or priority=N");
	gpumem_status status = limit_owner(ctl, options->args[1], whose);
	for (size_t i = 2; i < options->n_args && status == GPUMEM_OK; i++) {
		uint32_t before = body.set;
		status = limit_take_value(ctl, options->args[i], &body);
		if (status == GPUMEM_OK && body.set == before)
			status = limit_usage(
				ctl, "'%s': that value was given already", options->args[i]);
	}
	if (status != GPUMEM_OK)
		return status;
	body.owner = whose;
	body.all_devices = !(options->given & GM_OPTION_DEVICE);
	body.device = options->device;
	request.body_case = GM__WIRE__PACKET__BODY_SET_LIMIT;
	request.set_limit = &body;
	return limit_ask(ctl, &request, "");
}

static gpumem_status limit_reset(struct gm_ctl *ctl)
{
	const struct gm_options *options = ctl->options;
	Gm__Wire__ResetLimit body = GM__WIRE__RESET_LIMIT__INIT;
	Gm__Wire__Packet request = GM__WIRE__PACKET__INIT;
	char whose[GM_CONFIG_OWNER_BYTES] = "";

	if (options->n_args > 2)
		return limit_usage(ctl,
			"'%s' is one argument too many; see 'gpumemctl limit --help'",
			options->args[2]);
	if (options->n_args > 1) {
		gpumem_status status = limit_owner(ctl, options->args[1], whose);
		if (status != GPUMEM_OK)
			return status;
	}
	body.owner = whose;
	body.all_devices = !(options->given & GM_OPTION_DEVICE);
	body.device = options->device;
	request.body_case = GM__WIRE__PACKET__BODY_RESET_LIMIT;
	request.reset_limit = &body;
	return limit_ask(ctl, &request, "No limits are left.");
}

static gpumem_status limit_run(struct gm_ctl *ctl)
{
	static const char *const words[] = {"show", "set", "reset", NULL};
	const char *word = ctl->options->n_args ? ctl->options->args[0] : "show";

	if (!strcmp(word, "show"))
		return limit_show(ctl);
	if (!strcmp(word, "set"))
		return limit_set(ctl);
	if (!strcmp(word, "reset"))
		return limit_reset(ctl);
	const char *closest = gm_closest(word, words);
	ctl->usage = true;
	if (closest)
		return gm_trouble_set(&ctl->trouble, GPUMEM_E_INVALID,
			"unknown verb 'limit %s'; did you mean 'limit %s'?", word, closest);
	return gm_trouble_set(&ctl->trouble, GPUMEM_E_INVALID,
		"say 'gpumemctl limit show', 'limit set OWNER VALUE...' or 'limit reset [OWNER]'");
}

const struct gm_verb gm_verb_limit = {
	.name = "limit",
	.arguments = "show | set | reset",
	.summary = "what owners may hold: show, change",
	.help = "  show                show all limits, and who is over one\n"
		"  set OWNER VALUE...  change some of max=SIZE (or none), guarantee=SIZE,\n"
		"                      priority=N, until it is reset\n"
		"  reset [OWNER]       what was set ends, what is configured holds again\n"
		"  --device N          only on this device; else on each of them\n\n"
		"OWNER is uid:USER, gid:GROUP, unit:NAME, container:NAME, client:NAME (what it\n"
		"calls itself) or session:N (one client). A max below what is held takes nothing\n"
		"away. Setting is for administrators.\n",
	.takes = GM_OPTION_DEVICE,
	.max_args = 5,
	.run = limit_run,
};
