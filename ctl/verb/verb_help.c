/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl help [VERB]: prints the help texts of the verbs; with --json, lists the verbs.
 */

#include "ctl/verb/verb.h"

static const struct gm_column columns[] = {
	{"name", NULL, 0},
	{"arguments", NULL, 0},
	{"summary", NULL, 0},
};

static gpumem_status help_run(struct gm_ctl *ctl)
{
	const char *name = ctl->options->n_args ? ctl->options->args[0] : NULL;
	const struct gm_verb *about = name ? gm_verb_find(ctl->verbs, name) : NULL;

	if (name && !about)
		return gm_verb_unknown(
			ctl, "", name, gm_verb_closest(ctl->verbs, name), "see 'gpumemctl help'");
	if (!ctl->options->json && !ctl->options->csv) {
		gm_verb_print_help(ctl->verbs, about);
		return GPUMEM_OK;
	}

	struct gm_table *table = GM_TABLE_NEW(columns);
	for (size_t i = 0; ctl->verbs[i]; i++) {
		const struct gm_verb *verb = ctl->verbs[i];
		if (about && verb != about)
			continue;
		gm_table_row(table);
		gm_table_text(table, verb->name);
		gm_table_text(table, verb->arguments);
		gm_table_text(table, verb->summary);
	}
	gm_writer_data(ctl->writer, "verbs", table);
	return GPUMEM_OK;
}

const struct gm_verb gm_verb_help = {
	.name = "help",
	.arguments = "[VERB]",
	.summary = "a summary of all verbs, or help on one verb",
	.help = "",
	.max_args = 1,
	.run = help_run,
};
