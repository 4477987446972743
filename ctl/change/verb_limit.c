/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl limit: shows, sets and resets how much memory owners may hold. Names of users and
 * groups are looked up here, by the same rules as in the configuration. The daemon gets numbers.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/arith.h"
#include "common/cleanup.h"
#include "common/text/message.h"
#include "common/text/limit_values.h"
#include "ctl/io/user_name.h"
#include "ctl/verb/limit_file.h"
#include "ctl/verb/verb.h"
#include "daemon/config/config_machine.h"

#define LIMIT_WHERE     32
#define LIMIT_ID_DIGITS 64 /* of a container's id */

static const struct gm_column columns[] = {
	{"owner", NULL, 0},
	{"owner_name", "OWNER", GM_COLUMN_OWNER},
	{"device", "DEV", GM_COLUMN_RIGHT},
#define LIMIT_COLUMN(KIND, name, unit, bit, unset, how, ...) \
	{#name, #KIND, GM_COLUMN_RIGHT | (how)},
	GM_LIMIT_KINDS(LIMIT_COLUMN)
#undef LIMIT_COLUMN
		{"held", "HELD", GM_COLUMN_RIGHT},
	{"clients", "CLIENTS", GM_COLUMN_RIGHT | GM_COLUMN_SPARE},
	{"state", "STATE", 0},
	{"source", "SET", 0},
};

/* The limits are kept until they are shown: 'limit set --save' has written its file by then. */
struct limit_answer {
	const struct gm_options *options;
	Gm__Wire__Limit *rows; /* with copies of their texts */
	size_t n, room;
	uint64_t hidden; /* owners */
	struct gm_limit_file_devices devices;
	bool no_memory;
};

/* Returns the values that are in force, and which of them these bits name. */
static struct gm_limit_values limit_values(const Gm__Wire__Limit *limit, uint32_t bits)
{
#define LIMIT_VALUE(KIND, name, ...) .name = limit->name,
	return (struct gm_limit_values){.set = bits, GM_LIMIT_KINDS(LIMIT_VALUE)};
#undef LIMIT_VALUE
}

/* Returns whether all values that were set at run time are in a drop-in. */
static bool limit_is_saved(const struct limit_answer *answer, const Gm__Wire__Limit *limit)
{
	const struct gm_limit_values values = limit_values(limit, limit->run_time);
	char texts[GM_LIMIT_N_KINDS][GM_LIMIT_PAIR_TEXT], path[PATH_MAX];
	const char *pairs[GM_LIMIT_N_KINDS];
	struct gm_limit_file file = {.owner = limit->owner, .pairs = pairs};

	for (size_t i = 0; i < GM_LIMIT_N_KINDS; i++)
		if (values.set & gm_limit_kinds[i].bit)
			pairs[file.n_pairs++] =
				gm_limit_values_pair(&values, &gm_limit_kinds[i], texts[i]);
	return gm_limit_file_find(
		answer->options->socket, &file, limit->device, &answer->devices, path);
}

static void limit_answer_deinit(struct limit_answer *answer)
{
	for (size_t i = 0; i < answer->n; i++) {
		free(answer->rows[i].owner);
		free(answer->rows[i].name);
	}
	free(answer->rows);
}

static void limit_keep(struct limit_answer *answer, const Gm__Wire__Limit *limit)
{
	if (answer->n == answer->room) {
		size_t room = answer->room ? 2 * answer->room : 16;
		Gm__Wire__Limit *more = reallocarray(answer->rows, room, sizeof(*more));
		answer->no_memory |= !more;
		if (!more)
			return;
		answer->rows = more;
		answer->room = room;
	}

	Gm__Wire__Limit *row = &answer->rows[answer->n++];
	*row = *limit;
	row->owner = strdup(limit->owner);
	row->name = strdup(limit->name);
	answer->no_memory |= !row->owner || !row->name;
}

static void limit_take(void *user, const Gm__Wire__Packet *packet)
{
	struct limit_answer *answer = user;

	if (packet->limits->hidden_owners > answer->hidden)
		answer->hidden = packet->limits->hidden_owners;
	for (size_t i = 0; i < packet->limits->n_limits; i++) {
		const Gm__Wire__Limit *limit = packet->limits->limits[i];

		if (!(answer->options->given & GM_OPTION_DEVICE) ||
			limit->device == answer->options->device)
			limit_keep(answer, limit);
	}
}

/* Writes the owner for people: a run has a name, and an ID as well if another run has the same name. */
static void limit_name_owner(const struct limit_answer *answer, const Gm__Wire__Limit *limit,
	char owner[GM_USER_NAME_OWNER_TEXT])
{
	char run[GM_USER_NAME_RUN_TEXT];
	bool shared = false;

	if (!*limit->name) {
		gm_user_name_owner(limit->owner, owner);
		return;
	}
	for (size_t i = 0; i < answer->n && !shared; i++)
		shared = !strcmp(answer->rows[i].name, limit->name) &&
			 strcmp(answer->rows[i].owner, limit->owner);
	snprintf(owner, GM_USER_NAME_OWNER_TEXT, "run:%s",
		shared ? gm_user_name_run(limit->name, limit->owner + strlen("run:"), run)
		       : limit->name);
}

static void limit_add(
	const struct limit_answer *answer, struct gm_table *table, const Gm__Wire__Limit *limit)
{
	char owner[GM_USER_NAME_OWNER_TEXT];

	gm_table_row(table);
	gm_table_text(table, limit->owner);
	limit_name_owner(answer, limit, owner);
	gm_table_text(table, owner);
	gm_table_count(table, limit->device);
#define LIMIT_ADD(KIND, name, unit, bit, unset, ...) \
	gm_table_##unit(table, limit->name); \
	gm_table_known( \
		table, limit->set &GM_LIMIT_##KIND && \
			       !((unset) == UINT64_MAX && (uint64_t)limit->name == UINT64_MAX));
	GM_LIMIT_KINDS(LIMIT_ADD)
#undef LIMIT_ADD
	gm_table_size(table, limit->held);
	gm_table_count(table, limit->clients);
	gm_table_text(table, limit->over ? "over" : "ok");
	gm_table_mark(table, limit->over ? GM_MARK_BAD : GM_MARK_NONE);
	gm_table_text(table, !limit->run_time                ? "configured"
			     : limit_is_saved(answer, limit) ? "saved"
							     : "run-time");
}

/* A limit of a container that has another name waits for ever, and nobody notices. A whole id, or the path of a cgroup,
 * is no mistake: the container is not started yet. */
static void limit_note_container(struct gm_ctl *ctl, const char *owner)
{
	static const char kind[] = "container:";
	const char *name = owner + strlen(kind);

	if (strncmp(owner, kind, strlen(kind)) || *name == '/' ||
		strspn(name, "0123456789abcdef") >= LIMIT_ID_DIGITS)
		return;
	gm_writer_note(ctl->writer, "container", GM_MARK_WARN,
		"no client is in a container with this name now; those of Docker and Podman have their whole id, which 'docker inspect -f {{.Id}} %s' shows",
		name);
}

/* The largest of the devices that the limit is about. */
struct limit_largest {
	const Gm__Wire__SetLimit *set;
	uint64_t total;
};

static void limit_take_device(void *user, const Gm__Wire__Packet *packet)
{
	struct limit_largest *largest = user;

	for (size_t i = 0; i < packet->status->n_devices; i++) {
		const Gm__Wire__Device *device = packet->status->devices[i];
		bool meant = largest->set->all_devices ? !device->pinned
						       : device->number == largest->set->device;
		if (meant)
			largest->total = gm_u64_max(largest->total, device->total);
	}
}

/* Notes a max that nobody can reach, as a check of the configuration does. A daemon that does not answer the question is no
 * failure: the limit is set. */
static void limit_note_max(
	struct gm_ctl *ctl, struct gm_ctl_conn *conn, const Gm__Wire__SetLimit *set)
{
	struct limit_largest largest = {.set = set};
	struct gm_trouble trouble;
	char wanted[GM_UNITS_TEXT], has[GM_UNITS_TEXT], where[32] = "any device";

	if (!(set->set & GM_LIMIT_MAX) || set->max == UINT64_MAX)
		return;
	if (gm_ctl_conn_get(conn, GM__WIRE__PACKET__BODY_GET_STATUS, limit_take_device, &largest,
		    &trouble) != GPUMEM_OK)
		return;
	if (!largest.total || set->max <= largest.total)
		return;
	if (!set->all_devices)
		snprintf(where, sizeof(where), "device %u", set->device);
	gm_writer_note(ctl->writer, "max", GM_MARK_WARN,
		"max: %s is more than %s has (%s), so it limits nothing; set a smaller max, or none",
		gm_format_size(set->max, wanted), where, gm_format_size(largest.total, has));
}

/* Asks, and takes what is answered. request: NULL: lists all limits, on a connection of its own. answer needs
 * limit_answer_deinit(), whatever this returns. */
static gpumem_status limit_ask(struct gm_ctl *ctl, struct gm_ctl_conn *conn,
	Gm__Wire__Packet *request, struct limit_answer *answer)
{
	gpumem_status status;

	/* The daemon refuses to change limits of a missing device, but would list none for it. */
	*answer = (struct limit_answer){.options = ctl->options};
	if (request)
		status = gm_ctl_conn_ask(conn, request, GM__WIRE__PACKET__BODY_LIMITS, limit_take,
			answer, &ctl->trouble);
	else
		status = gm_verb_get_on_device(
			ctl, GM__WIRE__PACKET__BODY_GET_LIMITS, limit_take, answer);
	if (status == GPUMEM_OK && answer->no_memory)
		return gm_trouble_set(&ctl->trouble, GPUMEM_E_NO_MEMORY, "out of memory");
	if (status == GPUMEM_OK)
		gm_limit_file_ask_devices(ctl, &answer->devices);
	return status;
}

/* none: what to say if no limits are left to show. */
static void limit_print(struct gm_ctl *ctl, const struct limit_answer *answer, const char *none)
{
	struct gm_table *table = GM_TABLE_NEW(columns);

	for (size_t i = 0; i < answer->n; i++)
		limit_add(answer, table, &answer->rows[i]);
	gm_writer_table_or(ctl->writer, "limits", table,
		answer->hidden ? "None of the limits are for you to see." : none);
	gm_writer_count(ctl->writer, "hidden_owners", answer->hidden);
	gm_verb_note_hidden_limits(ctl, answer->hidden);
}

/* Shows the limits that were set. */
static void limit_print_set(
	struct gm_ctl *ctl, const struct limit_answer *answer, const char *owner)
{
	bool used = false;

	limit_print(ctl, answer, "");
	for (size_t i = 0; i < answer->n; i++)
		used |= answer->rows[i].clients > 0;
	if (!used)
		limit_note_container(ctl, owner);
}

/* Asks, and shows the answer. */
static gpumem_status limit_ask_and_print(
	struct gm_ctl *ctl, struct gm_ctl_conn *conn, Gm__Wire__Packet *request, const char *none)
{
	struct limit_answer answer;

	gpumem_status status = limit_ask(ctl, conn, request, &answer);
	if (status == GPUMEM_OK)
		limit_print(ctl, &answer, none);
	limit_answer_deinit(&answer);
	return status;
}

static gpumem_status limit_parse_owner(
	struct gm_ctl *ctl, const char *text, char ret_owner[GM_CONFIG_OWNER_BYTES])
{
	char why[GM_CONFIG_OWNER_WHY];

	if (gm_config_owner_parse(text, true, ret_owner, why) == 0)
		return GPUMEM_OK;
	return gm_verb_wrong_use(ctl, "%s", why);
}

/* The device that the answer is about, as the end of a sentence. "": all of them. */
static const char *limit_where(const struct gm_options *options, char text[LIMIT_WHERE])
{
	text[0] = '\0';
	if (options->given & GM_OPTION_DEVICE)
		snprintf(text, LIMIT_WHERE, " on device %u", options->device);
	return text;
}

static gpumem_status limit_refuse_save(struct gm_ctl *ctl)
{
	if (!(ctl->options->given & GM_OPTION_SAVE))
		return GPUMEM_OK;
	return gm_verb_wrong_use(ctl, "--save is for 'limit set'");
}

static gpumem_status limit_show(struct gm_ctl *ctl)
{
	char none[64], where[LIMIT_WHERE];

	if (ctl->options->n_args > 1)
		return gm_verb_too_many(ctl, 1);
	if (limit_refuse_save(ctl) != GPUMEM_OK)
		return ctl->trouble.status;
	snprintf(none, sizeof(none), "No limits are set%s.", limit_where(ctl->options, where));
	return limit_ask_and_print(ctl, NULL, NULL, none);
}

/* Reads a size that a limit may have. */
static gpumem_status limit_parse_size(struct gm_ctl *ctl, const char *text,
	const struct gm_limit_kind *kind, const char *value, uint64_t *ret)
{
	bool is_bound = kind->unset == UINT64_MAX;
	char why[GM_UNITS_WHY];
	uint64_t n;

	if (gm_parse_bare(value, why))
		return gm_verb_wrong_use(ctl, "'%s' %s", text, why);
	if (is_bound && !strcmp(value, "none"))
		n = UINT64_MAX;
	else if (gm_parse_size(value, &n) < 0)
		return gm_verb_wrong_use(ctl, "'%s' is not a size; use %s", text, kind->example);
	else if (is_bound && gm_parse_too_small(n, why))
		return gm_verb_wrong_use(
			ctl, "'%s' %s; use %s=0 if that is what you want", text, why, kind->name);
	*ret = n;
	return GPUMEM_OK;
}

/* Reads one value, such as "max=48G". */
static gpumem_status limit_parse_value(
	struct gm_ctl *ctl, const char *text, struct gm_limit_values *set)
{
	const char *value = strchr(text, '=');
	const struct gm_limit_kind *kind =
		value ? gm_limit_kind_named(text, (size_t)(value - text)) : NULL;
	char usage[GM_LIMIT_NAMES_TEXT];
	uint64_t n;

	if (!kind)
		return gm_verb_wrong_use(ctl, "'%s' is not a value of a limit; use %s", text,
			gm_limit_kind_names(NULL, " or ", usage));
	value++;
	if (kind->unit == GM_LIMIT_UNIT_size) {
		gpumem_status status = limit_parse_size(ctl, text, kind, value, &n);
		if (status != GPUMEM_OK)
			return status;
	} else {
		bool negative = *value == '-';
		if (gm_parse_u64(value + negative, &n) < 0 || n > 1000)
			return gm_verb_wrong_use(
				ctl, "'%s' is not a %s; use %s", text, kind->name, kind->example);
		n = negative ? -n : n;
	}
	gm_limit_values_set(set, kind->bit, n);
	return GPUMEM_OK;
}

/* ---- how long it lasts */

static void limit_say(const struct gm_ctl *ctl, const char *text)
{
	if (!ctl->options->json && !ctl->options->csv)
		gm_message(NULL, text);
}

/* Gives the user the text that an administrator can put into the configuration. */
static void limit_hand_over(struct gm_ctl *ctl, const char *path, char *text, const char *why)
{
	char line[GM_LIMIT_FILE_WHY + PATH_MAX + 256];
	char *rest = text;

	snprintf(line, sizeof(line),
		ctl->trouble.status == GPUMEM_E_DENIED
			? "neither set nor saved: %s; give an administrator these lines for %s"
			: "not saved: %s; the limit holds until the next reboot, or until 'limit reset'. To keep it, give an administrator these lines for %s",
		why, *path ? path : "a file in the folder gpumemd.conf.d of the daemon");
	limit_say(ctl, line);
	gm_writer_text(ctl->writer, "file", path);
	gm_writer_text(ctl->writer, "drop_in", text);
	gm_writer_blank_line(ctl->writer);
	for (char *at; (at = strsep(&rest, "\n"));)
		if (*at && *at != '#')
			gm_writer_line(ctl->writer, "", "%s", at);
	ctl->exit_status = gm_status_exit(GPUMEM_E_DENIED);
}

/* Says how long a limit in this file holds. A daemon that refuses its configuration, for whatever mistake, does not start
 * with it. */
static void limit_say_saved(struct gm_ctl *ctl, const char *path)
{
	const struct gm_config_known known = {.listens = true};
	struct gm_config_report report;
	struct gm_config *config = NULL;
	char line[2 * PATH_MAX];
	char *unchecked = NULL;

	int r = gm_config_machine_read(NULL, &known, &config, &report, &unchecked);
	gm_writer_text(ctl->writer, "file", path);
	if (r == 0) {
		snprintf(line, sizeof(line),
			"The limit also persists across a reboot. The daemon reads the file at its next start or reload: %s",
			path);
		limit_say(ctl, line);
	} else {
		if (report.errors)
			report.errors[strcspn(report.errors, "\n")] = '\0';
		snprintf(line, sizeof(line),
			"saved in %s, but the daemon will not start with its configuration: %s; 'gpumemctl config check' lists all mistakes",
			path, report.errors ? report.errors : strerror(-r));
		gm_message(NULL, line);
		ctl->exit_status = EXIT_FAILURE;
	}
	gm_config_report_deinit(&report);
	gm_config_free(config);
	free(unchecked);
}

/* Saves what was set, if that is wanted, shows it, and says how long it lasts. set: the daemon's answer; NULL: the daemon
 * denied it, ctl->trouble says so, and only an administrator can set and save it. */
static gpumem_status limit_save(
	struct gm_ctl *ctl, const char *owner, const struct limit_answer *set)
{
	const struct gm_options *options = ctl->options;
	const struct gm_limit_file limit = {
		.owner = owner,
		.said = options->args[1],
		.device = options->given & GM_OPTION_DEVICE ? options->device_text : NULL,
		.pairs = options->args + 2,
		.n_pairs = options->n_args - 2,
	};
	char path[PATH_MAX] = "", text[GM_LIMIT_FILE_TEXT] = "", why[GM_LIMIT_FILE_WHY];

	if (!(options->given & GM_OPTION_SAVE)) {
		limit_print_set(ctl, set, owner);
		gm_writer_bool(ctl->writer, "saved", false);
		limit_say(ctl,
			"The limit holds until the next reboot, or until 'limit reset'; --save keeps it.");
		return GPUMEM_OK;
	}

	int r = gm_limit_file_make(&limit, path, text);
	if (r < 0) {
		if (set)
			limit_print_set(ctl, set, owner);
		return gm_trouble_set(&ctl->trouble, GPUMEM_E_SYSTEM,
			"the limit is set, but not saved: %s",
			r == -ENOENT ? "neither XDG_CONFIG_HOME nor HOME is set" : strerror(-r));
	}
	if (!set) {
		(void)gm_limit_file_is_ours(options->socket, path);
		snprintf(why, sizeof(why), "%.500s", ctl->trouble.text);
		gm_text_mend(why);
		r = -EACCES;
	} else if (!gm_limit_file_is_ours(options->socket, path)) {
		snprintf(why, sizeof(why), "%s",
			geteuid() == 0
				? "this daemon is not the system's, and may read another configuration"
				: "only root can change the configuration of this daemon");
		r = -EACCES;
	} else {
		r = gm_limit_file_write(path, text, why);
	}

	if (set)
		limit_print_set(ctl, set, owner);
	gm_writer_bool(ctl->writer, "saved", r == 0);
	if (r == -EACCES || r == -EPERM || r == -EROFS) {
		limit_hand_over(ctl, path, text, why);
		return GPUMEM_OK;
	}
	if (r < 0)
		return gm_trouble_set(
			&ctl->trouble, GPUMEM_E_SYSTEM, "the limit is set, but not saved: %s", why);
	limit_say_saved(ctl, path);
	return GPUMEM_OK;
}

static gpumem_status limit_set(struct gm_ctl *ctl)
{
	const struct gm_options *options = ctl->options;
	Gm__Wire__SetLimit body = GM__WIRE__SET_LIMIT__INIT;
	Gm__Wire__Packet request = GM_WIRE_PACKET(SET_LIMIT, set_limit, &body);
	struct gm_limit_values values = {.set = 0};
	char owner[GM_CONFIG_OWNER_BYTES];

	if (options->n_args < 3)
		return gm_verb_wrong_use(ctl,
			"'limit set' needs an owner and a value; use 'gpumemctl limit set OWNER max=SIZE', "
			"or guarantee=SIZE, or priority=N");

	gpumem_status status = limit_parse_owner(ctl, options->args[1], owner);
	for (size_t i = 2; i < options->n_args && status == GPUMEM_OK; i++) {
		unsigned before = values.set;
		status = limit_parse_value(ctl, options->args[i], &values);
		if (status == GPUMEM_OK && values.set == before)
			status = gm_verb_wrong_use(
				ctl, "'%s': this value was given before", options->args[i]);
	}
	if (status == GPUMEM_OK && options->given & GM_OPTION_SAVE &&
		!strncmp(owner, "session:", strlen("session:")))
		status = gm_verb_wrong_use(ctl,
			"a limit of a session cannot be saved: the session ends with its client");
	if (status != GPUMEM_OK)
		return status;

	body.owner = owner;
	body.set = values.set;
#define LIMIT_SET(KIND, name, ...) body.name = values.name;
	GM_LIMIT_KINDS(LIMIT_SET)
#undef LIMIT_SET
	body.all_devices = !(options->given & GM_OPTION_DEVICE);
	body.device = options->device;
	struct gm_ctl_conn *conn = NULL;
	status = gm_verb_connect(ctl, &conn);
	if (status != GPUMEM_OK)
		return status;
	struct limit_answer answer;
	status = limit_ask(ctl, conn, &request, &answer);
	bool done = status == GPUMEM_OK;
	bool handed = status == GPUMEM_E_DENIED && options->given & GM_OPTION_SAVE;
	if (done || handed)
		status = limit_save(ctl, owner, handed ? NULL : &answer);
	limit_answer_deinit(&answer);
	if (done)
		limit_note_max(ctl, conn, &body);
	gm_ctl_conn_free(conn);
	return status;
}

/* Notes that a drop-in outlives the reset. */
static void limit_note_file(void *user, const char *path)
{
	const struct gm_ctl *ctl = user;

	gm_writer_note(ctl->writer, "saved", GM_MARK_WARN,
		"%s still sets a limit, which holds after the next start or reload of the daemon; to end it, remove this file and run 'gpumemctl config reload'",
		path);
}

/* The limits that a reset undoes, as lines of text. */
struct limit_undone {
	const struct gm_options *options;
	const char *owner; /* "": all */
	FILE *lines;
	uint64_t n;
	bool runs; /* limits of runs stay */
};

static void limit_take_undone(void *user, const Gm__Wire__Packet *packet)
{
	struct limit_undone *undone = user;
	char owner[GM_USER_NAME_OWNER_TEXT], text[GM_UNITS_TEXT];

	for (size_t i = 0; i < packet->limits->n_limits; i++) {
		const Gm__Wire__Limit *limit = packet->limits->limits[i];

		if (!limit->run_time || (*undone->owner && strcmp(limit->owner, undone->owner)) ||
			(undone->options->given & GM_OPTION_DEVICE &&
				limit->device != undone->options->device))
			continue;
		if (!strncmp(limit->owner, "run:", strlen("run:"))) {
			undone->runs = true;
			continue;
		}
		undone->n++;
		fprintf(undone->lines,
			"Undone: %s on device %u:", gm_user_name_owner(limit->owner, owner),
			limit->device);
		const struct gm_limit_values values = limit_values(limit, limit->run_time);
		for (size_t k = 0; k < GM_LIMIT_N_KINDS; k++)
			if (values.set & gm_limit_kinds[k].bit)
				fprintf(undone->lines, " %s %s", gm_limit_kinds[k].name,
					gm_limit_values_text(&values, &gm_limit_kinds[k], text));
		fputc('\n', undone->lines);
	}
}

/* Finds out what is to be undone. *ret_lines is to be freed. */
static gpumem_status limit_find_undone(
	struct gm_ctl *ctl, struct gm_ctl_conn *conn, struct limit_undone *undone, char **ret_lines)
{
	size_t size;

	undone->lines = open_memstream(ret_lines, &size);
	if (!undone->lines)
		return gm_trouble_set(&ctl->trouble, GPUMEM_E_SYSTEM, "%s", strerror(ENOMEM));
	gpumem_status status = gm_ctl_conn_get(
		conn, GM__WIRE__PACKET__BODY_GET_LIMITS, limit_take_undone, undone, &ctl->trouble);
	fclose(undone->lines);
	return status;
}

static void limit_tell_undone(
	struct gm_ctl *ctl, const struct limit_undone *undone, const char *lines)
{
	gm_writer_count(ctl->writer, "undone", undone->n);
	if (!undone->n)
		gm_writer_line(ctl->writer, "", "Nothing %swas set at run time.",
			undone->runs ? "else " : "");
	for (const char *at = lines, *end; at && *at; at = *end ? end + 1 : end) {
		end = at + strcspn(at, "\n");
		gm_writer_line(ctl->writer, "", "%.*s", (int)(end - at), at);
	}
	if (undone->runs)
		gm_writer_line(
			ctl->writer, "", "The limits of runs stay in force until the runs end.");
}

static gpumem_status limit_reset(struct gm_ctl *ctl)
{
	const struct gm_options *options = ctl->options;
	Gm__Wire__ResetLimit body = GM__WIRE__RESET_LIMIT__INIT;
	Gm__Wire__Packet request = GM_WIRE_PACKET(RESET_LIMIT, reset_limit, &body);
	char owner[GM_CONFIG_OWNER_BYTES] = "", name[GM_USER_NAME_OWNER_TEXT];
	char none[GM_USER_NAME_OWNER_TEXT + 64], where[LIMIT_WHERE];

	if (options->n_args > 2)
		return gm_verb_too_many(ctl, 2);
	if (limit_refuse_save(ctl) != GPUMEM_OK)
		return ctl->trouble.status;
	if (options->n_args > 1) {
		gpumem_status status = limit_parse_owner(ctl, options->args[1], owner);
		if (status != GPUMEM_OK)
			return status;
	}

	body.owner = owner;
	body.all_devices = !(options->given & GM_OPTION_DEVICE);
	body.device = options->device;

	/* The answer is about this owner and this device only. Others may still have limits. */
	limit_where(options, where);
	if (*owner)
		snprintf(none, sizeof(none), "%s has no limits%s.", gm_user_name_owner(owner, name),
			where);
	else
		snprintf(none, sizeof(none), "No limits are left%s.", where);
	GM_AUTO_FREE char *lines = NULL;
	struct gm_ctl_conn *conn = NULL;
	struct limit_undone undone = {.options = options, .owner = owner};
	gpumem_status status = gm_verb_connect(ctl, &conn);
	if (status == GPUMEM_OK)
		status = limit_find_undone(ctl, conn, &undone, &lines);
	if (status == GPUMEM_OK)
		status = limit_ask_and_print(ctl, conn, &request, none);
	gm_ctl_conn_free(conn);
	if (status != GPUMEM_OK)
		return status;

	limit_tell_undone(ctl, &undone, lines);
	gm_limit_file_list(options->socket, owner, limit_note_file, ctl);
	return GPUMEM_OK;
}

static gpumem_status limit_run(struct gm_ctl *ctl)
{
	static const struct gm_verb_word words[GM_VERB_WORDS] = {{NULL, limit_show},
		{"show", limit_show}, {"set", limit_set}, {"reset", limit_reset}};

	return gm_verb_run_word(ctl, words,
		"use 'limit show', 'limit set OWNER VALUE...' or 'limit reset [OWNER]'");
}

const struct gm_verb gm_verb_limit = {
	.name = "limit",
	.arguments = "show | set | reset",
	.summary = "show or change how much owners may hold",
	.help = "  show                show all limits, and which owners are over theirs\n"
		"  set OWNER VALUE...  change some of the values max=SIZE (or max=none),\n"
		"                      guarantee=SIZE and priority=N\n"
		"  reset [OWNER]       undo what was set, for OWNER or for all owners but runs;\n"
		"                      the configured values apply again\n"
		"  --device N          only on this device; without it, on each device\n"
		"  --save              with 'set': also write it to the configuration, as root;\n"
		"                      others get lines for an administrator, and status 4\n\n"
		"OWNER is uid:USER, gid:GROUP, unit:NAME, container:NAME, client:NAME (the name\n"
		"that clients give themselves) or session:N (one client). 'show' also lists\n"
		"run:NAME, a program under gpumem-run, whose limit gpumem-run sets;\n"
		"'gpumemctl clients --columns run,name,held' shows its clients. A max below\n"
		"what the owner holds takes nothing away, but the owner gets nothing more. What\n"
		"is set lasts until it is reset, also if the daemon restarts, but not after a\n"
		"reboot, unless it was saved. 'set' and 'reset' are for administrators.\n",
	.takes = GM_OPTION_DEVICE | GM_OPTION_SAVE,
	.max_args = 2 + GM_LIMIT_N_KINDS,
	.run = limit_run,
};
