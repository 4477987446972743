/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl help [VERB]: prints the help texts of the verbs; with --json, lists the verbs.
 */

#include <string.h>

#include "ctl/verb/verb.h"

static const struct gm_column columns[] = {
	{"name", NULL, 0},
	{"arguments", NULL, 0},
	{"summary", NULL, 0},
};

/* Whether the help of a verb explains this word after it: a line begins with the word. */
static bool help_explains(const struct gm_verb *verb, const char *word)
{
	size_t n = strlen(word);

	for (const char *line = verb->help; line; line = strchr(line, '\n')) {
		line += strspn(line, "\n ");
		if (n && !strncmp(line, word, n) && line[n] == ' ')
			return true;
	}
	return false;
}

static gpumem_status help_run(struct gm_ctl *ctl)
{
	const char *name = ctl->options->n_args ? ctl->options->args[0] : NULL;
	const struct gm_verb *about = name ? gm_verb_find(ctl->verbs, name) : NULL;

	const char *familiar = name && !about ? gm_verb_familiar(name) : NULL;
	if (familiar)
		return gm_verb_unknown(ctl, "", name, NULL, familiar);
	if (name && !about)
		return gm_verb_unknown(
			ctl, "", name, gm_verb_closest(ctl->verbs, name), "see 'gpumemctl help'");
	/* 'help shares expire': the help of the verb has that, too. */
	if (ctl->options->n_args > 1 && !help_explains(about, ctl->options->args[1]))
		return gm_verb_too_many(ctl, 1);
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
	.max_args = 2,
	.run = help_run,
};
