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

gpumem_status gm_verb_help(struct gm_ctl *ctl)
{
	const char *name = ctl->options->n_args ? ctl->options->args[0] : NULL;
	const struct gm_verb *about = name ? gm_verb_find(name) : NULL;

	if (name && !about) {
		const char *names[32] = {0};
		for (size_t i = 0; gm_verbs[i].name && i < 31; i++)
			names[i] = gm_verbs[i].name;
		const char *closest = gm_options_closest(name, names);
		ctl->usage = true;
		return gm_trouble_set(&ctl->trouble, GPUMEM_E_INVALID,
			closest ? "unknown verb '%s'; did you mean '%s'?"
				: "unknown verb '%s'; see 'gpumemctl help'",
			name, closest);
	}
	if (!ctl->options->json) {
		gm_verb_print_help(about);
		return GPUMEM_OK;
	}
	struct gm_table *table = gm_table_new(columns, sizeof(columns) / sizeof(*columns));
	for (const struct gm_verb *verb = gm_verbs; verb->name; verb++) {
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
