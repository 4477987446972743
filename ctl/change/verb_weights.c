/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl weights: loads the weights of a model and publishes them under a name, lists them, and removes them. This
 * verb is a client for as long as it runs: it holds memory while it loads. What it has published stays.
 */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/bounds.h"
#include "common/text/share_name.h"
#include "common/text/units.h"
#include "common/text/text.h"
#include "ctl/io/user_name.h"
#include "ctl/verb/verb.h"
#include "gpumem/gpumem_weights.h"

#define WEIGHTS_BAR 30
/* Options that only 'weights load' takes. */
#define WEIGHTS_LOAD \
	(GM_OPTION_REPLACE | GM_OPTION_UID | GM_OPTION_GID | GM_OPTION_EXPIRES | \
		GM_OPTION_READERS_CAN_WRITE)

static const struct gm_column columns[] = {
	{"uid", NULL, 0},
	{"user", "OWNER", GM_COLUMN_OWNER},
	{"name", "NAME", GM_COLUMN_NAME | GM_COLUMN_OWNER},
	{"version", "VERSION", GM_COLUMN_RIGHT | GM_COLUMN_SPARE},
	{"device", "DEV", GM_COLUMN_RIGHT},
	{"bytes", "SIZE", GM_COLUMN_RIGHT},
	{"tensors", "TENSORS", GM_COLUMN_RIGHT | GM_COLUMN_SPARE},
	{"readers", "READERS", GM_COLUMN_RIGHT},
};

/* Passes on what the library said. */
static gpumem_status weights_failed(struct gm_ctl *ctl, gpumem_status status)
{
	return gm_trouble_set(&ctl->trouble, status, "%s", gpumem_error_detail());
}

/* Connects as a client. Before that, as all verbs do: so the words are the same if there is no daemon. */
static gpumem_status weights_connect(struct gm_ctl *ctl, gpumem_session **ret_session)
{
	gpumem_connect_options options = GPUMEM_CONNECT_OPTIONS_INIT;
	uint64_t timeout_ms = ctl->options->timeout_ms;
	struct gm_ctl_conn *conn = NULL;

	gpumem_status status = gm_verb_connect_on_device(ctl, &conn);
	if (status == GPUMEM_OK) {
		options.socket = gm_ctl_conn_path(conn);
		options.name = "gpumemctl";
		options.timeout_ms = timeout_ms < UINT32_MAX ? (uint32_t)timeout_ms : UINT32_MAX;
		options.away_ms = options.timeout_ms;
		status = gpumem_connect(&options, ret_session);
		if (status != GPUMEM_OK)
			weights_failed(ctl, status);
	}
	gm_ctl_conn_free(conn);
	return status;
}

/* ---- list */

static void weights_add(struct gm_table *table, const gpumem_weights_entry *entry)
{
	const char *slash = strchr(entry->name, '/');
	char user[GM_USER_NAME_TEXT];

	gm_table_row(table);
	gm_table_count(table, entry->owner);
	gm_table_text(table, gm_user_name(entry->owner, user));
	gm_table_text(table, slash ? slash + 1 : entry->name);
	gm_table_count(table, entry->version);
	gm_table_count(table, entry->device);
	gm_table_size(table, entry->bytes);
	gm_table_count(table, entry->tensors);
	gm_table_known(table, entry->tensors != 0);
	gm_table_count(table, entry->readers);
}

static gpumem_status weights_list(struct gm_ctl *ctl)
{
	const struct gm_options *options = ctl->options;
	gpumem_weights_entry *entries = NULL;
	gpumem_session *session = NULL;
	size_t n = 0;

	if (options->n_args > 1)
		return gm_verb_too_many(ctl, 1);
	if (options->given & WEIGHTS_LOAD)
		return gm_verb_wrong_use(ctl,
			"--replace, --uid, --gid, --readers-can-write and --expires are for 'weights load'");
	gpumem_status status = weights_connect(ctl, &session);
	if (status != GPUMEM_OK)
		return status;
	status = gpumem_weights_list(session, &entries, &n);
	if (status != GPUMEM_OK)
		weights_failed(ctl, status);
	gpumem_disconnect(session);
	if (status != GPUMEM_OK)
		return status;

	struct gm_table *table = GM_TABLE_NEW(columns);
	for (size_t i = 0; table && i < n; i++) {
		const char *slash = strchr(entries[i].name, '/');

		if (gm_verb_wants(options, entries[i].device, entries[i].owner,
			    slash ? slash + 1 : entries[i].name))
			weights_add(table, &entries[i]);
	}
	gpumem_weights_list_free(entries);
	if (table)
		gm_view_apply(&options->view, table);
	gm_writer_table_or(ctl->writer, "weights", table,
		gm_verb_narrows(options)
			? "No weights match."
			: "There are no weights that you may attach to; see 'gpumemctl weights --help' on how to load some.");
	return GPUMEM_OK;
}

/* ---- load */

struct weights_bar {
	bool shown;
	unsigned percent;
};

/* Draws a bar on the terminal: one line of fewer than 80 columns. */
static int weights_progress(void *user, uint64_t done, uint64_t total)
{
	struct weights_bar *bar = user;
	unsigned percent = total ? (unsigned)((double)done / (double)total * 100) : 100;
	char drawn[WEIGHTS_BAR + 1], of[GM_UNITS_TEXT], all[GM_UNITS_TEXT];

	if (bar->shown && percent == bar->percent)
		return 0;
	bar->shown = true;
	bar->percent = percent;
	for (unsigned i = 0; i < WEIGHTS_BAR; i++)
		drawn[i] = i * 100 < percent * WEIGHTS_BAR ? '#' : '.';
	drawn[WEIGHTS_BAR] = '\0';
	fprintf(stderr, "\r[%s] %3u%%  %s of %s\033[K", drawn, percent, gm_format_size(done, of),
		gm_format_size(total, all));
	fflush(stderr);
	return 0;
}

static gpumem_status weights_load_arguments(struct gm_ctl *ctl)
{
	const unsigned takes = GM_OPTION_NAME | GM_OPTION_DEVICE | WEIGHTS_LOAD;
	const struct gm_options *options = ctl->options;

	if (options->n_args < 2)
		return gm_verb_wrong_use(ctl,
			"'weights load' needs a safetensors file, or a folder with one or with its "
			"index");
	if (options->n_args > 2)
		return gm_verb_too_many(ctl, 2);
	if (!options->name)
		return gm_verb_wrong_use(ctl, "'weights load' needs --name NAME");
	const char *wrong = gm_token_name_check(options->name);
	if (wrong)
		return gm_verb_wrong_use(ctl, "--name '%s' %s", options->name, wrong);
	if (options->given & ~takes)
		return gm_verb_wrong_use(ctl,
			"'weights load' takes --name, --device, --uid, --gid, --readers-can-write, "
			"--expires and --replace only");
	if (options->given & GM_OPTION_UID && options->given & GM_OPTION_GID)
		return gm_verb_wrong_use(ctl,
			"--uid and --gid exclude each other: weights are for one user, or for one "
			"group");
	return GPUMEM_OK;
}

/* Says who may attach, if that is not the user alone, and when the name ends. */
static void weights_say_audience(struct gm_ctl *ctl)
{
	const struct gm_options *options = ctl->options;
	char audience[32] = "", owner[GM_USER_NAME_OWNER_TEXT], time[GM_UNITS_TEXT];
	uint64_t left_ms = options->expires_s ? options->expires_s * UINT64_C(1000) : UINT64_MAX;

	if (options->given & GM_OPTION_UID)
		snprintf(audience, sizeof(audience), "uid:%u", (unsigned)options->audience_uid);
	else if (options->given & GM_OPTION_GID)
		snprintf(audience, sizeof(audience), "gid:%u", (unsigned)options->audience_gid);
	gm_writer_text(ctl->writer, "audience", *audience ? audience : "domain");
	gm_writer_time(ctl->writer, "left_ms", left_ms);
	if (*audience)
		gm_writer_line(
			ctl->writer, "", "It is for %s.", gm_user_name_owner(audience, owner));
	if (options->expires_s)
		gm_writer_line(
			ctl->writer, "", "The name ends in %s.", gm_text_duration(left_ms, time));
}

static void weights_say(struct gm_ctl *ctl, const gpumem_weights *weights)
{
	char size[GM_UNITS_TEXT];

	gm_writer_text(ctl->writer, "loaded", ctl->options->name);
	gm_writer_count(ctl->writer, "version", gpumem_weights_version(weights));
	gm_writer_count(ctl->writer, "device", gpumem_weights_device(weights));
	gm_writer_count(ctl->writer, "tensors", gpumem_weights_count(weights));
	gm_writer_size(ctl->writer, "bytes", gpumem_weights_bytes(weights));
	gm_writer_line(ctl->writer, "", "Loaded %s, version %llu: %zu tensor%s, %s on device %u.",
		ctl->options->name, (unsigned long long)gpumem_weights_version(weights),
		gpumem_weights_count(weights), gpumem_weights_count(weights) == 1 ? "" : "s",
		gm_writer_bytes(ctl->writer, gpumem_weights_bytes(weights), size),
		gpumem_weights_device(weights));
	weights_say_audience(ctl);
}

static gpumem_status weights_load(struct gm_ctl *ctl)
{
	const struct gm_options *options = ctl->options;
	gpumem_weights_options load = GPUMEM_WEIGHTS_OPTIONS_INIT;
	struct weights_bar bar = {0};
	gpumem_session *session = NULL;
	gpumem_weights *weights = NULL;

	gpumem_status status = weights_load_arguments(ctl);
	if (status == GPUMEM_OK)
		status = weights_connect(ctl, &session);
	if (status != GPUMEM_OK)
		return status;

	load.replace = (options->given & GM_OPTION_REPLACE) != 0;
	load.expires_s = options->expires_s;
	if (options->given & GM_OPTION_READERS_CAN_WRITE)
		load.flags |= GPUMEM_READERS_CAN_WRITE;
	if (options->given & GM_OPTION_UID) {
		load.audience = GPUMEM_AUDIENCE_UID;
		load.id = options->audience_uid;
	} else if (options->given & GM_OPTION_GID) {
		load.audience = GPUMEM_AUDIENCE_GID;
		load.id = options->audience_gid;
	}
	if (isatty(STDERR_FILENO) && !options->json && !options->csv) {
		load.progress = weights_progress;
		load.user = &bar;
	}
	status = gpumem_weights_load(
		session, options->device, options->args[1], options->name, &load, &weights);
	if (bar.shown)
		fputs("\r\033[K", stderr);
	if (status == GPUMEM_OK)
		weights_say(ctl, weights);
	else
		weights_failed(ctl, status);
	if (status == GPUMEM_E_UNSUPPORTED && load.audience != GPUMEM_AUDIENCE_DOMAIN &&
		!load.flags)
		snprintf(ctl->trouble.hint, sizeof(ctl->trouble.hint),
			"--readers-can-write says so");
	gpumem_weights_detach(weights);
	gpumem_disconnect(session);
	return status;
}

/* ---- remove */

/* Passes on what the library said, with the name as the user gave it instead of the one that the library knows. */
static void weights_failed_named(struct gm_ctl *ctl, gpumem_status status, const char *known)
{
	char text[sizeof(ctl->trouble.text)] = "";
	size_t used = 0;

	for (const char *at = gpumem_error_detail(); *at && used < sizeof(text);) {
		const char *end = strstr(at, known);
		size_t n = end ? (size_t)(end - at) : strlen(at);

		used += (size_t)snprintf(text + used, sizeof(text) - used, "%.*s%s", (int)n, at,
			end ? ctl->options->args[1] : "");
		at += n + (end ? strlen(known) : 0);
	}
	gm_trouble_set(&ctl->trouble, status, "%s", gm_text_mend(text));
}

/* There are no such weights: says whose may be meant. A buffer of this name that is no weights is the library's to
 * explain, as it did. */
static gpumem_status weights_explain(
	struct gm_ctl *ctl, gpumem_session *session, const struct gm_token_name *name)
{
	gpumem_weights_entry *entries = NULL;
	const uid_t *other = NULL;
	size_t n = 0;

	if (!name->foreign && gpumem_weights_list(session, &entries, &n) == GPUMEM_OK)
		for (size_t i = 0; !other && i < n; i++) {
			const char *slash = strchr(entries[i].name, '/');

			if (slash && !strcmp(slash + 1, name->name))
				other = &entries[i].owner;
		}
	(void)gm_verb_refuse_cut_name(ctl, name->name);
	if (other)
		(void)gm_verb_no_such_name(ctl, name, "weights", other);
	gpumem_weights_list_free(entries);
	return GPUMEM_E_NOT_FOUND;
}

static gpumem_status weights_remove(struct gm_ctl *ctl)
{
	const struct gm_options *options = ctl->options;
	char number[GM_BOUND_NAME_BYTES + sizeof("uid:4294967294/")];
	struct gm_token_name name = {0};
	gpumem_session *session = NULL;

	if (options->n_args < 2)
		return gm_verb_wrong_use(ctl,
			"'weights remove' needs a name; see 'gpumemctl weights' for the names");
	if (options->n_args > 2)
		return gm_verb_too_many(ctl, 2);
	gpumem_status status = gm_verb_refuse_list_options(ctl, "weights remove");
	if (status == GPUMEM_OK)
		status = gm_verb_parse_name(ctl, options->args[1], &name);
	if (status == GPUMEM_OK)
		status = weights_connect(ctl, &session);
	if (status != GPUMEM_OK)
		return status;

	/* The library knows other users by their numbers. */
	snprintf(number, sizeof(number), "uid:%u/%s", name.owner, name.name);
	const char *known = name.foreign ? number : name.name;
	status = gpumem_weights_remove(session, known);
	if (status != GPUMEM_OK)
		weights_failed_named(ctl, status, known);
	if (status == GPUMEM_E_NOT_FOUND)
		status = weights_explain(ctl, session, &name);
	gpumem_disconnect(session);
	if (status != GPUMEM_OK)
		return status;
	gm_writer_text(ctl->writer, "removed", options->args[1]);
	gm_writer_line(ctl->writer, "",
		"Removed %s. Processes that attached to it keep the weights.", options->args[1]);
	return GPUMEM_OK;
}

static gpumem_status weights_run(struct gm_ctl *ctl)
{
	static const struct gm_verb_word words[GM_VERB_WORDS] = {{NULL, weights_list},
		{"load", weights_load}, {"list", weights_list}, {"remove", weights_remove}};

	return gm_verb_run_word(ctl, words,
		"use 'weights list', 'weights load PATH --name NAME' or 'weights remove NAME'");
}

const struct gm_verb gm_verb_weights = {
	.name = "weights",
	.arguments = "[load | remove]",
	.summary = "weights of models that stay on their device",
	.help = "  load PATH             load a safetensors file, or a folder with one or with\n"
		"                        shards and their index, and publish the weights\n"
		"    --name NAME         under this name of yours\n"
		"    --device N          on this device; without it, on device 0\n"
		"    --replace           as the next version, if there are weights of that name\n"
		"    --uid USER          for this user, not only for your own programs\n"
		"    --gid GROUP         for the members of this group\n"
		"    --readers-can-write needed for both on a GPU, where others could write, too\n"
		"    --expires TIME      remove the name after this time, such as 12h or 7d\n"
		"  remove NAME           remove the name; processes that attached keep them. NAME\n"
		"                        is one of yours, or uid:USER/NAME\n"
		"  list                  show the weights that you may attach to\n" GM_VERB_HELP_OF_NAMES
		"\nThe weights stay on the device when this program has ended, and when the daemon\n"
		"restarts, and you pay for them. Programs attach to them within milliseconds:\n"
		"gpumem_weights_load(3). READERS says how often they are attached now. A damaged\n"
		"file is refused with the place in it, and nothing is published.\n",
	.takes = GM_OPTIONS_OF_LISTS | WEIGHTS_LOAD,
	.max_args = 3,
	.columns = columns,
	.n_columns = sizeof(columns) / sizeof(*columns),
	.sort = "user,name",
	.run = weights_run,
};
