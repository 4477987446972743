/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl config: "check" reads a file with the daemon's own reader and needs no running daemon;
 * "show" asks the running daemon for its settings.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/closest.h"
#include "ctl/io/message.h"
#include "ctl/verb/verb.h"
#include "daemon/config/config.h"

static const struct gm_column error_columns[] = {{"text", NULL, 0}};

static const struct gm_column columns[] = {
	{"section", "SECTION", GM_COLUMN_OPTIONAL},
	{"key", "KEY", 0},
	{"value", "VALUE", GM_COLUMN_SHRINK},
	{"source", "SOURCE", GM_COLUMN_SHRINK},
};

static gpumem_status config_check(struct gm_ctl *ctl)
{
	const char *path = ctl->options->n_args > 1 ? ctl->options->args[1] : NULL;
	const char *name = path ? path : "the default configuration";
	struct gm_table *errors = GM_TABLE_NEW(error_columns);
	struct gm_config *config = NULL;
	char *error = NULL;

	int r = gm_config_load(path, &config, &error);
	if (r == 0 && !strcmp(config->backend, "host")) {
		r = gm_config_limits_fit_host(config, &error);
		if (r < 0)
			gm_config_free(config);
	}

	gm_writer_text(ctl->writer, "file", path);
	gm_writer_bool(ctl->writer, "ok", r == 0);
	if (r == 0) {
		gm_writer_line(ctl->writer, "", "%s: no errors", name);
		gm_config_free(config);
	} else {
		/* "No" is an answer, too. Programs find the mistakes in it, people on stderr. */
		ctl->status = GPUMEM_E_INVALID;
		if (!error && asprintf(&error, "%s: %s", name, strerror(-r)) < 0)
			error = NULL;
		if (!error && errors)
			errors->no_memory = true;

		char *rest = error;
		for (char *line; (line = strsep(&rest, "\n"));) {
			if (!*line)
				continue;
			gm_table_row(errors);
			gm_table_text(errors, line);
			if (!ctl->options->json)
				gm_message(NULL, line);
		}
	}
	gm_writer_data(ctl->writer, "errors", errors);
	free(error);
	return GPUMEM_OK;
}

static void config_take(void *user, const Gm__Wire__Packet *packet)
{
	struct gm_table *table = user;

	for (size_t i = 0; i < packet->config->n_entries; i++) {
		const Gm__Wire__ConfigEntry *entry = packet->config->entries[i];

		gm_table_row(table);
		gm_table_text(table, entry->section);
		gm_table_text(table, entry->key);
		gm_table_text(table, entry->value);
		gm_table_text(table, entry->source);
	}
}

static gpumem_status config_show(struct gm_ctl *ctl)
{
	Gm__Wire__GetConfig body = GM__WIRE__GET_CONFIG__INIT;
	Gm__Wire__Packet request = GM__WIRE__PACKET__INIT;
	struct gm_table *table = GM_TABLE_NEW(columns);

	request.body_case = GM__WIRE__PACKET__BODY_GET_CONFIG;
	request.get_config = &body;
	gpumem_status status =
		gm_verb_ask(ctl, &request, GM__WIRE__PACKET__BODY_CONFIG, config_take, table);
	if (status != GPUMEM_OK) {
		gm_table_free(table);
		return status;
	}
	gm_writer_table(ctl->writer, "config", table);
	return GPUMEM_OK;
}

static gpumem_status config_run(struct gm_ctl *ctl)
{
	static const char *const words[] = {"check", "show", NULL};
	static const char remedy[] =
		"use 'gpumemctl config check [FILE]' or 'gpumemctl config show'";
	const char *word = ctl->options->n_args ? ctl->options->args[0] : NULL;

	if (!word)
		return gm_verb_wrong_use(ctl, "'config' needs an argument; %s", remedy);
	if (!strcmp(word, "check"))
		return config_check(ctl);
	if (!strcmp(word, "show"))
		return ctl->options->n_args == 1 ? config_show(ctl) : gm_verb_too_many(ctl, 1);
	return gm_verb_unknown(ctl, "config ", word, gm_closest(word, words), remedy);
}

const struct gm_verb gm_verb_config = {
	.name = "config",
	.arguments = "check [FILE] | show",
	.summary = "check a configuration, or show the one in use",
	.help = "  check [FILE]  read FILE, or else the default configuration, as gpumemd would,\n"
		"                and report all mistakes\n"
		"  show          show the settings of the running daemon, and where each value\n"
		"                comes from\n",
	.max_args = 2,
	.run = config_run,
};
