/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl help [VERB]: the texts of the table of verbs; with --json that table itself.
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

	if (name && !about) {
		const char *closest = gm_verb_closest(ctl->verbs, name);
		ctl->usage = true;
		return gm_trouble_set(&ctl->trouble, GPUMEM_E_INVALID,
			closest ? "unknown verb '%s'; did you mean '%s'?"
				: "unknown verb '%s'; see 'gpumemctl help'",
			name, closest);
	}
	if (!ctl->options->json) {
		gm_verb_print_help(ctl->verbs, about);
		return GPUMEM_OK;
	}
	struct gm_table *table = gm_table_new(columns, sizeof(columns) / sizeof(*columns));
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
	.summary = "this, or more about a verb",
	.help = "",
	.max_args = 1,
	.run = help_run,
};
