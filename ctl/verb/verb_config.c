/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl config: "check" reads a file with the daemon's own reader and needs no running daemon;
 * "show" asks the running daemon for its settings; "reload" lets it read them again.
 */

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/text/message.h"
#include "common/text/limit_values.h"
#include "ctl/io/user_name.h"
#include "ctl/verb/limit_file.h"
#include "ctl/verb/verb.h"
#include "daemon/config/config_machine.h"

#define CONFIG_SECTION (GM_CONFIG_OWNER_BYTES + GM_DEVICE_NAME_TEXT + 32)

/* In CSV the heading tells the two lists apart. In JSON their keys do. */
#define LIST_COLUMNS 2
static const struct gm_column file_columns[LIST_COLUMNS] = {
	{"text", NULL, GM_COLUMN_NESTED}, {"file", NULL, GM_COLUMN_FLAT}};
static const struct gm_column error_columns[LIST_COLUMNS] = {
	{"text", NULL, GM_COLUMN_NESTED}, {"error", NULL, GM_COLUMN_FLAT}};

static const struct gm_column columns[] = {
	{"section", NULL, 0},
	{"section_name", "SECTION", GM_COLUMN_OPTIONAL | GM_COLUMN_SHRINK},
	{"key", "KEY", 0},
	{"value", "VALUE", 0},
	{"source", "SOURCE", GM_COLUMN_SHRINK | GM_COLUMN_PATH},
};

/* One row for each line of a text. Mistakes also go to stderr if people read the answer. */
static struct gm_table *config_lines(
	struct gm_ctl *ctl, char *text, const struct gm_column list[LIST_COLUMNS])
{
	struct gm_table *table = gm_table_new(list, LIST_COLUMNS);
	char *rest = text;

	for (char *line; (line = strsep(&rest, "\n"));) {
		if (!*line)
			continue;
		gm_table_row(table);
		gm_table_text(table, line);
		gm_table_text(table, line);
		if (list == error_columns && !ctl->options->json)
			gm_message(NULL, line);
	}
	return table;
}

/* Returns how many of the mistakes, one a line, are in this file. */
static size_t config_count_mistakes(const char *errors, const char *file, size_t length)
{
	size_t n = 0;

	for (const char *at = errors, *end; *at; at = *end ? end + 1 : end) {
		end = at + strcspn(at, "\n");
		n += !strncmp(at, file, length) && at[length] == ':';
	}
	return n;
}

/* Says which files were read: with the answer, or behind the mistakes. errors: these, or "". */
static void config_name_files(
	struct gm_ctl *ctl, const struct gm_config_report *report, const char *errors, bool ok)
{
	const char *files = report->files ? report->files : "";

	/* If none could be read, the mistakes say why. */
	if (!*files && !ok)
		return;
	if (!*files && !report->path)
		gm_writer_line(ctl->writer, "",
			"no configuration is read, because neither XDG_CONFIG_HOME nor HOME is set");
	else if (!*files)
		gm_writer_line(ctl->writer, "",
			"%s: there is no such file, so every key has its default", report->path);

	for (const char *end; *files; files = *end ? end + 1 : end) {
		char line[PATH_MAX + 32];
		end = files + strcspn(files, "\n");
		size_t n = config_count_mistakes(errors, files, (size_t)(end - files));
		if (n)
			snprintf(line, sizeof(line), "%.*s: %zu mistake%s", (int)(end - files),
				files, n, n == 1 ? "" : "s");
		else
			snprintf(
				line, sizeof(line), "%.*s: no mistakes", (int)(end - files), files);
		if (ok)
			gm_writer_line(ctl->writer, "", "%s", line);
		else if (!ctl->options->json)
			gm_message(NULL, line);
	}
}

/* Notes what the daemon accepts and has no effect here, one note for each line. */
static void config_note_lines(struct gm_ctl *ctl, const char *warnings)
{
	for (const char *at = warnings, *end; *at; at = *end ? end + 1 : end) {
		end = at + strcspn(at, "\n");
		gm_writer_note(ctl->writer, "config", GM_MARK_WARN, "%.*s", (int)(end - at), at);
	}
}

/* Notes the same, and what could not be checked. */
static void config_warn(struct gm_ctl *ctl, const struct gm_config *config, const char *unchecked)
{
	gm_writer_notes(ctl->writer);
	config_note_lines(ctl, config ? config->warnings : "");
	if (unchecked)
		gm_writer_note(ctl->writer, "unchecked", GM_MARK_WARN, "%s", unchecked);
}

static gpumem_status config_check(struct gm_ctl *ctl)
{
	/* The daemon may be told otherwise on its command line, but most often it is not. */
	const struct gm_config_known known = {.listens = true};
	const char *path = ctl->options->n_args > 1 ? ctl->options->args[1] : NULL;
	struct gm_config_report report;
	struct gm_config *config = NULL;
	char *unchecked = NULL;

	int r = gm_config_machine_read(path, &known, &config, &report, &unchecked);
	if (r < 0 && !report.errors &&
		asprintf(&report.errors, "%s: %s", path ? path : "the configuration",
			strerror(-r)) < 0)
		report.errors = NULL;

	gm_writer_text(ctl->writer, "file", report.path);
	gm_writer_bool(ctl->writer, "ok", r == 0);
	/* "No" is an answer, too. Programs find the mistakes in it, people on stderr. */
	if (r < 0)
		ctl->exit_status = EXIT_FAILURE;
	GM_AUTO_FREE char *mistakes = report.errors ? strdup(report.errors) : NULL;
	struct gm_table *errors = config_lines(ctl, report.errors, error_columns);
	config_name_files(ctl, &report, mistakes ? mistakes : "", r == 0);
	gm_writer_data(ctl->writer, "files", config_lines(ctl, report.files, file_columns));
	gm_writer_data(ctl->writer, "errors", errors);
	config_warn(ctl, config ? config : report.rest, unchecked);
	gm_config_report_deinit(&report);
	gm_config_free(config);
	free(unchecked);
	return GPUMEM_OK;
}

/* Adds a section as it is and, for people, with the name of the user, the group or the run that it limits. run: the name of
 * the run; "": it is none. */
static void config_add_section(struct gm_table *table, const char *section, const char *run)
{
	static const char word[] = "limit ";
	char name[CONFIG_SECTION + GM_USER_NAME_OWNER_TEXT], owner[GM_USER_NAME_OWNER_TEXT] = "";
	const char *at = strstr(section, word);
	const char *rest = at ? at + strlen(word) : section + strlen(section);

	if (*run)
		snprintf(owner, sizeof(owner), "run:%s", run);
	else if (at)
		gm_user_name_owner(rest, owner);
	snprintf(name, sizeof(name), "%.*s%s", (int)(rest - section), section, owner);
	gm_table_text(table, section);
	gm_table_text(table, name);
}

/* People get a table for each of these: names of sections are long, and would cut what other settings
 * are and where they come from. */
enum config_part { CONFIG_OF_DAEMON, CONFIG_OF_DEVICES, CONFIG_LIMITS, CONFIG_PARTS };

struct config_answer {
	struct gm_table *tables[CONFIG_PARTS]; /* programs get one for all */
	uint64_t hidden;                       /* owners of limits */
	const char *socket;                    /* NULL: where clients look for it */
	struct gm_limit_file_devices devices;
};

static enum config_part config_part_of(const char *section)
{
	return !*section                   ? CONFIG_OF_DAEMON
	       : strstr(section, "limit ") ? CONFIG_LIMITS
					   : CONFIG_OF_DEVICES;
}

static void config_take(void *user, const Gm__Wire__Packet *packet)
{
	const struct config_answer *answer = user;

	for (size_t i = 0; i < packet->config->n_entries; i++) {
		const Gm__Wire__ConfigEntry *entry = packet->config->entries[i];
		struct gm_table *table = answer->tables[config_part_of(entry->section)];

		gm_table_row(table);
		config_add_section(table, entry->section, "");
		gm_table_text(table, entry->key);
		gm_table_text(table, entry->value);
		gm_table_text(table, entry->source);
	}
}

/* A size as a file could say it, to the byte. */
static void config_format_size(uint64_t bytes, char text[GM_UNITS_TEXT])
{
	static const char units[] = "BKMGT";
	size_t unit = 0;

	if (bytes == UINT64_MAX) {
		strcpy(text, "none");
		return;
	}
	while (bytes && bytes % 1024 == 0 && unit + 1 < strlen(units)) {
		bytes /= 1024;
		unit++;
	}
	snprintf(text, GM_UNITS_TEXT, "%llu%.*s", (unsigned long long)bytes, bytes > 0,
		units + unit);
}

/* Returns the name of the run that is limited, with the first digits of its ID if another one of this answer has the name. "": the
 * owner is no run. */
static const char *config_run_name(const Gm__Wire__LimitsReply *limits,
	const Gm__Wire__Limit *limit, char text[GM_USER_NAME_RUN_TEXT])
{
	for (size_t i = 0; *limit->name && i < limits->n_limits; i++)
		if (!strcmp(limits->limits[i]->name, limit->name) &&
			strcmp(limits->limits[i]->owner, limit->owner))
			return gm_user_name_run(limit->name, limit->owner + strlen("run:"), text);
	return limit->name;
}

/* run: the name of a run; "": the owner is none. */
static void config_add_limit(const struct config_answer *answer, const Gm__Wire__Limit *limit,
	const char *run, const char *key, const char *value)
{
	struct gm_table *table = answer->tables[CONFIG_LIMITS];
	char section[CONFIG_SECTION], pair[GM_UNITS_TEXT + 16], path[PATH_MAX];
	char source[PATH_MAX + 32] = "set at run time, in no file";
	const char *pairs[] = {pair};
	const struct gm_limit_file file = {.owner = limit->owner, .pairs = pairs, .n_pairs = 1};

	snprintf(pair, sizeof(pair), "%s=%s", key, value);
	if (gm_limit_file_find(answer->socket, &file, limit->device, &answer->devices, path))
		snprintf(source, sizeof(source), "saved in %s", path);
	snprintf(section, sizeof(section), "device %u limit %s", limit->device, limit->owner);
	gm_table_row(table);
	config_add_section(table, section, run);
	gm_table_text(table, key);
	gm_table_text(table, value);
	gm_table_text(table, source);
}

/* Takes the limits, of which those that no file sets are part of the settings. */
static void config_take_limits(void *user, const Gm__Wire__Packet *packet)
{
	struct config_answer *answer = user;
	char text[GM_UNITS_TEXT], named[GM_USER_NAME_RUN_TEXT];

	if (packet->limits->hidden_owners > answer->hidden)
		answer->hidden = packet->limits->hidden_owners;

	for (size_t i = 0; i < packet->limits->n_limits; i++) {
		const Gm__Wire__Limit *limit = packet->limits->limits[i];
		const char *run = config_run_name(packet->limits, limit, named);

#define CONFIG_FORMAT_size(n)   config_format_size(n, text)
#define CONFIG_FORMAT_signed(n) snprintf(text, sizeof(text), "%d", n)
#define CONFIG_LIMIT(KIND, name, unit, ...) \
	if (limit->run_time & GM_LIMIT_##KIND) { \
		CONFIG_FORMAT_##unit(limit->name); \
		config_add_limit(answer, limit, run, #name, text); \
	}
		GM_LIMIT_KINDS(CONFIG_LIMIT)
#undef CONFIG_LIMIT
	}
}

static void config_write(struct gm_ctl *ctl, struct config_answer *answer, bool apart)
{
	gm_writer_table(ctl->writer, "config", answer->tables[0]);
	for (size_t i = 1; apart && i < CONFIG_PARTS; i++) {
		struct gm_table *table = answer->tables[i];

		if (gm_table_is_empty(table)) {
			gm_table_free(table);
			continue;
		}
		gm_writer_blank_line(ctl->writer);
		gm_writer_table(ctl->writer, "config", table);
	}
}

static gpumem_status config_show(struct gm_ctl *ctl)
{
	bool apart = !ctl->options->json && !ctl->options->csv;
	struct config_answer answer = {.socket = ctl->options->socket};
	struct gm_ctl_conn *conn = NULL;

	if (ctl->options->n_args > 1)
		return gm_verb_too_many(ctl, 1);

	for (size_t i = 0; i < CONFIG_PARTS; i++)
		answer.tables[i] = i == 0 || apart ? GM_TABLE_NEW(columns) : answer.tables[0];
	gpumem_status status = gm_verb_connect(ctl, &conn);
	if (status == GPUMEM_OK)
		gm_limit_file_ask_devices(ctl, &answer.devices);
	if (status == GPUMEM_OK)
		status = gm_ctl_conn_get(conn, GM__WIRE__PACKET__BODY_GET_CONFIG, config_take,
			&answer, &ctl->trouble);
	if (status == GPUMEM_OK)
		status = gm_ctl_conn_get(conn, GM__WIRE__PACKET__BODY_GET_LIMITS,
			config_take_limits, &answer, &ctl->trouble);
	gm_ctl_conn_free(conn);
	if (status != GPUMEM_OK) {
		for (size_t i = 0; i < (apart ? CONFIG_PARTS : 1); i++)
			gm_table_free(answer.tables[i]);
		return status;
	}

	config_write(ctl, &answer, apart);
	gm_verb_note_hidden_limits(ctl, answer.hidden);
	return GPUMEM_OK;
}

/* The answer to a reload. NULL: it does not have this. */
struct reloaded {
	char *after_restart; /* keys */
	char *warnings;      /* lines */
};

static void config_take_reloaded(void *user, const Gm__Wire__Packet *packet)
{
	struct reloaded *reloaded = user;

	if (*packet->done->after_restart)
		reloaded->after_restart = strdup(packet->done->after_restart);
	if (*packet->done->warnings)
		reloaded->warnings = strdup(packet->done->warnings);
}

static gpumem_status config_reload(struct gm_ctl *ctl)
{
	struct reloaded reloaded = {NULL, NULL};

	Gm__Wire__Reload body = GM__WIRE__RELOAD__INIT;
	Gm__Wire__Packet request = GM_WIRE_PACKET(RELOAD, reload, &body);

	if (ctl->options->n_args > 1)
		return gm_verb_too_many(ctl, 1);
	gpumem_status status = gm_verb_ask(
		ctl, &request, GM__WIRE__PACKET__BODY_DONE, config_take_reloaded, &reloaded);
	if (status != GPUMEM_OK)
		return status;

	gm_writer_bool(ctl->writer, "reloaded", true);
	gm_writer_line(ctl->writer, "", "The daemon has read its configuration again.");
	gm_writer_notes(ctl->writer);
	if (reloaded.after_restart)
		gm_writer_note(ctl->writer, "restart", GM_MARK_WARN,
			"not in force before the daemon is restarted: %s", reloaded.after_restart);
	config_note_lines(ctl, reloaded.warnings ? reloaded.warnings : "");
	free(reloaded.after_restart);
	free(reloaded.warnings);
	return GPUMEM_OK;
}

#define CONFIG_REMEDY \
	"use 'gpumemctl config check [FILE]', 'gpumemctl config show' or 'gpumemctl config reload'"

static gpumem_status config_without_word(struct gm_ctl *ctl)
{
	return gm_verb_wrong_use(ctl, "'config' needs an argument; " CONFIG_REMEDY);
}

static gpumem_status config_run(struct gm_ctl *ctl)
{
	static const struct gm_verb_word words[GM_VERB_WORDS] = {{NULL, config_without_word},
		{"check", config_check}, {"show", config_show}, {"reload", config_reload}};

	return gm_verb_run_word(ctl, words, CONFIG_REMEDY);
}

const struct gm_verb gm_verb_config = {
	.name = "config",
	.arguments = "check | show | reload",
	.summary = "check, show or reload the configuration",
	.help = "  check [FILE]  read FILE, or else the configuration that gpumemd would read if\n"
		"                you started it (for root that of the system), and report all\n"
		"                mistakes and the files that were read\n"
		"  show          show the settings of the running daemon, with limits that were\n"
		"                set at run time, and where each value comes from\n"
		"  reload        let the daemon read its configuration again; fails, and the old\n"
		"                one stays, if it has a mistake. For administrators\n",
	.max_args = 2,
	.run = config_run,
};
