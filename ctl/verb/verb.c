/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

#include "ctl/verb/verb.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/arith.h"
#include "common/clock.h"
#include "common/text/closest.h"
#include "common/text/share_name.h"
#include "ctl/io/user_name.h"

/* ---- the list of verbs, and their help */

const struct gm_verb *gm_verb_find(const struct gm_verb *const *verbs, const char *name)
{
	for (; *verbs; verbs++)
		if (!strcmp((*verbs)->name, name))
			return *verbs;
	return NULL;
}

const char *gm_verb_familiar(const char *name)
{
	static const char start[] = "'systemctl start gpumemd', or 'gpumemd', starts the daemon";
	static const char clients[] = "use 'gpumemctl clients', or 'gpumemctl watch' for events";
	static const char *const words[][2] = {
		{"top", clients},
		{"ps", clients},
		{"list", clients},
		{"ls", clients},
		{"names", "use 'gpumemctl shares'"},
		{"events", "use 'gpumemctl watch'"},
		{"gpus", "use 'gpumemctl devices'"},
		{"free", "use 'gpumemctl cleanup'"},
		{"start", start},
		{"restart", "'systemctl restart gpumemd' does that; without systemd, "
			    "use 'gpumemctl stop', and start gpumemd"},
		{"reload",
			"'systemctl reload gpumemd' does that, or 'kill -HUP' and the daemon's pid"},
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (!strcmp(name, words[i][0]))
			return words[i][1];
	return NULL;
}

const char *gm_verb_closest(const struct gm_verb *const *verbs, const char *name)
{
	const char *names[32] = {0};

	for (size_t i = 0; verbs[i] && i < sizeof(names) / sizeof(*names) - 1; i++)
		names[i] = verbs[i]->name;
	return gm_closest(name, names);
}

static void verb_print_options(void)
{
	fputs("  --json          write one JSON object: sizes in bytes, times in ms\n"
	      "  --csv           write tables as CSV, with the names and values of --json\n"
	      "  --no-header     leave out the headings of tables\n"
	      "  --bytes         show sizes as numbers of bytes\n"
	      "  --color WHEN    auto (on a terminal; the default), always or never\n"
	      "  --socket PATH   the socket of gpumemd (default: $GPUMEM_SOCKET, else the\n"
	      "                  socket of your own daemon, else that of the system)\n"
	      "  --timeout TIME  how long to wait for each answer (default: 10s)\n"
	      "  --debug         report on stderr what is sent and received\n"
	      "  --version       show the version of gpumemctl\n"
	      "  -h, --help      show a summary of all verbs or, after a verb, help on it\n",
		stdout);
}

static void verb_print_one(const struct gm_verb *verb)
{
	printf("gpumemctl %s%s%s [OPTION...]\n\n%c%s.\n", verb->name, *verb->arguments ? " " : "",
		verb->arguments, toupper((unsigned char)verb->summary[0]), verb->summary + 1);
	if (*verb->help)
		printf("\n%s", verb->help);

	fputs("\nOptions of all verbs:\n", stdout);
	verb_print_options();
}

void gm_verb_print_help(const struct gm_verb *const *verbs, const struct gm_verb *verb)
{
	if (verb) {
		verb_print_one(verb);
		return;
	}

	fputs("gpumemctl [OPTION...] [VERB [ARGUMENT...]]\n\n"
	      "Shows and steers gpumemd, the GPU memory broker. Without a verb: status.\n\n"
	      "Verbs:\n",
		stdout);
	for (; *verbs; verbs++) {
		int n = printf("  %s %s", (*verbs)->name, (*verbs)->arguments);
		printf("%*s%s\n", n < 31 ? 31 - n : 1, "", (*verbs)->summary);
	}

	fputs("\nOptions:\n", stdout);
	verb_print_options();
	fputs("\nExit status: 0 success, 1 failure (also 'no' of place, pressure --at-least),\n"
	      "2 wrong use, 3 daemon not reached, 4 permission denied, 5 over a limit,\n"
	      "6 not enough memory, 7 the daemon ended (watch --no-reconnect). See\n"
	      "gpumemctl(1).\n",
		stdout);
}

/* ---- questions to the daemon */

void gm_verb_pause(uint64_t *pause_ms, uint64_t most_ms, uint64_t until_ms)
{
	uint64_t ms = gm_u64_min(*pause_ms, gm_u64_minus(until_ms, gm_clock_ns() / GM_NS_PER_MS));

	nanosleep(&(struct timespec){.tv_sec = (time_t)(ms / 1000),
			  .tv_nsec = (long)(ms % 1000 * GM_NS_PER_MS)},
		NULL);
	*pause_ms = gm_u64_min(2 * *pause_ms, most_ms);
}

gpumem_status gm_verb_connect(struct gm_ctl *ctl, struct gm_ctl_conn **ret_conn)
{
	return gm_ctl_conn_open(
		ctl->options->socket, ctl->options->timeout_ms, &ctl->trouble, ret_conn);
}

gpumem_status gm_verb_ask(struct gm_ctl *ctl, Gm__Wire__Packet *request,
	Gm__Wire__Packet__BodyCase expected, gm_ctl_conn_answer_fn fn, void *user)
{
	struct gm_ctl_conn *conn = NULL;
	gpumem_status status = gm_verb_connect(ctl, &conn);

	if (status == GPUMEM_OK)
		status = gm_ctl_conn_ask(conn, request, expected, fn, user, &ctl->trouble);
	gm_ctl_conn_free(conn);
	return status;
}

/* Asks unless the connection has failed with this status, and disconnects. */
static gpumem_status verb_get_last(struct gm_ctl *ctl, struct gm_ctl_conn *conn,
	gpumem_status status, Gm__Wire__Packet__BodyCase question, gm_ctl_conn_answer_fn fn,
	void *user)
{
	if (status == GPUMEM_OK)
		status = gm_ctl_conn_get(conn, question, fn, user, &ctl->trouble);
	gm_ctl_conn_free(conn);
	return status;
}

gpumem_status gm_verb_get(struct gm_ctl *ctl, Gm__Wire__Packet__BodyCase question,
	gm_ctl_conn_answer_fn fn, void *user)
{
	struct gm_ctl_conn *conn = NULL;
	gpumem_status status = gm_verb_connect(ctl, &conn);

	return verb_get_last(ctl, conn, status, question, fn, user);
}

gpumem_status gm_verb_ask_devices(
	struct gm_ctl *ctl, struct gm_ctl_conn *conn, gm_ctl_conn_answer_fn fn, void *user)
{
	if (!conn)
		return gm_verb_get(ctl, GM__WIRE__PACKET__BODY_GET_DEVICES, fn, user);
	return gm_ctl_conn_get(conn, GM__WIRE__PACKET__BODY_GET_DEVICES, fn, user, &ctl->trouble);
}

struct verb_wanted {
	struct gm_device_name name;
	uint32_t number;
	bool found, pinned;
};

static void verb_match_device(void *user, const Gm__Wire__Packet *packet)
{
	struct verb_wanted *wanted = user;

	for (size_t i = 0; i < packet->devices->n_devices; i++) {
		const Gm__Wire__Device *device = packet->devices->devices[i];
		if (!gm_device_name_means(&wanted->name, device->number,
			    device->uuid.len == GM_UUID_BYTES ? device->uuid.data : NULL,
			    device->pci, device->pinned))
			continue;
		wanted->pinned = device->pinned;
		wanted->number = device->number;
		wanted->found = true;
	}
}

gpumem_status gm_verb_resolve_device(struct gm_ctl *ctl, struct gm_options *options)
{
	struct verb_wanted wanted = {.name = options->device_name};

	if (!(options->given & GM_OPTION_DEVICE) ||
		(options->device_name.kind == GM_DEVICE_NUMBER &&
			!(options->given & GM_OPTION_SAVE)))
		return GPUMEM_OK;

	gpumem_status status = gm_verb_ask_devices(ctl, NULL, verb_match_device, &wanted);
	if (status != GPUMEM_OK)
		return status;
	if (!wanted.found)
		return gm_trouble_set(&ctl->trouble, GPUMEM_E_NOT_FOUND,
			"the daemon serves no device %s; see 'gpumemctl devices'",
			options->device_text);
	options->device = wanted.number;
	/* A file must not name it by a number. */
	if (wanted.pinned)
		options->device_text = GM_DEVICE_PINNED_NAME;
	return GPUMEM_OK;
}

static gpumem_status verb_require_device(struct gm_ctl *ctl, struct gm_ctl_conn *conn)
{
	struct verb_wanted wanted = {
		.name = {.kind = GM_DEVICE_NUMBER, .number = ctl->options->device}};

	if (!(ctl->options->given & GM_OPTION_DEVICE))
		return GPUMEM_OK;

	gpumem_status status = gm_verb_ask_devices(ctl, conn, verb_match_device, &wanted);
	if (status == GPUMEM_OK && !wanted.found)
		status = gm_trouble_set(&ctl->trouble, GPUMEM_E_NOT_FOUND,
			"there is no device %u; see 'gpumemctl devices'", ctl->options->device);
	return status;
}

gpumem_status gm_verb_connect_on_device(struct gm_ctl *ctl, struct gm_ctl_conn **ret_conn)
{
	struct gm_ctl_conn *conn = NULL;

	gpumem_status status = gm_verb_connect(ctl, &conn);
	if (status == GPUMEM_OK)
		status = verb_require_device(ctl, conn);
	if (status == GPUMEM_OK)
		*ret_conn = conn;
	else
		gm_ctl_conn_free(conn);
	return status;
}

gpumem_status gm_verb_get_on_device(struct gm_ctl *ctl, Gm__Wire__Packet__BodyCase question,
	gm_ctl_conn_answer_fn fn, void *user)
{
	struct gm_ctl_conn *conn = NULL;
	gpumem_status status = gm_verb_connect_on_device(ctl, &conn);

	return verb_get_last(ctl, conn, status, question, fn, user);
}

bool gm_verb_wants(const struct gm_options *options, int64_t device, uint32_t uid, const char *name)
{
	if (options->given & GM_OPTION_DEVICE && device != options->device)
		return false;
	if (options->given & GM_OPTION_USER && uid != options->user)
		return false;
	if (options->given & GM_OPTION_NAME && fnmatch(options->name, name ? name : "", 0))
		return false;
	return true;
}

bool gm_verb_narrows(const struct gm_options *options)
{
	return (options->given & ~(unsigned)(GM_OPTION_SORT | GM_OPTION_COLUMNS)) != 0;
}

gpumem_status gm_verb_parse_name(
	struct gm_ctl *ctl, const char *text, struct gm_token_name *ret_name)
{
	static const char prefix[] = "uid:";
	const char *slash = strchr(text, '/');
	struct gm_token_name name = {0};

	if (slash && strncmp(text, prefix, strlen(prefix)) == 0) {
		const char *from = text + strlen(prefix);
		char user[GM_USER_NAME_TEXT];
		uid_t uid;

		if ((size_t)(slash - from) >= sizeof(user))
			return gm_verb_wrong_use(ctl, "the name of the owner is too long");
		snprintf(user, sizeof(user), "%.*s", (int)(slash - from), from);
		if (gm_user_name_find(user, &uid) < 0)
			return gm_verb_wrong_use(ctl, "there is no user '%s'", user);
		name.foreign = true;
		name.owner = uid;
		text = slash + 1;
	}

	const char *wrong = gm_token_name_check(text);
	if (wrong)
		return gm_verb_wrong_use(ctl,
			"the name %s; it is as 'gpumemctl %s' shows it, or uid:USER/NAME for that of "
			"another user",
			wrong, ctl->options->verb->name);
	name.name = text;
	*ret_name = name;
	return GPUMEM_OK;
}

gpumem_status gm_verb_refuse_cut_name(struct gm_ctl *ctl, const char *name)
{
	const char *verb = ctl->options->verb->name;
	const char *list = !strcmp(verb, "shares") || !strcmp(verb, "weights") ? verb : "clients";

	if (!strstr(name, "…"))
		return GPUMEM_OK;
	return gm_trouble_set(&ctl->trouble, GPUMEM_E_NOT_FOUND,
		"there is no %s: a table cut this name where … is; 'gpumemctl %s --columns name' "
		"shows whole names",
		name, list);
}

gpumem_status gm_verb_no_such_name(
	struct gm_ctl *ctl, const struct gm_token_name *name, const char *what, const uid_t *other)
{
	const char *verb = ctl->options->verb->name;
	char user[GM_USER_NAME_TEXT];

	gpumem_status status = gm_verb_refuse_cut_name(ctl, name->name);
	if (status != GPUMEM_OK)
		return status;
	if (name->foreign)
		return gm_trouble_set(&ctl->trouble, GPUMEM_E_NOT_FOUND,
			"user %s has no %s with the name %s; see 'gpumemctl %s'",
			gm_user_name(name->owner, user), what, name->name, verb);
	if (other)
		return gm_trouble_set(&ctl->trouble, GPUMEM_E_NOT_FOUND,
			"you have no %s with the name %s; for that of user %s, write uid:%s/%s",
			what, name->name, gm_user_name(*other, user), user, name->name);
	return gm_trouble_set(&ctl->trouble, GPUMEM_E_NOT_FOUND,
		"you have no %s with the name %s; see 'gpumemctl %s'", what, name->name, verb);
}

gpumem_status gm_verb_refuse_list_options(struct gm_ctl *ctl, const char *use)
{
	if (!ctl->options->given)
		return GPUMEM_OK;
	return gm_verb_wrong_use(ctl, "'%s' takes no options of the list", use);
}

void gm_verb_show_list(
	struct gm_ctl *ctl, const char *key, struct gm_table *table, const char *none)
{
	gm_view_apply(&ctl->options->view, table);
	gm_writer_table_or(ctl->writer, key, table, none);
}

void gm_verb_add_client(
	struct gm_table *table, uint64_t session, int64_t pid, uint32_t uid, const char *name)
{
	char user[GM_USER_NAME_TEXT];

	gm_table_count(table, session);
	gm_table_count(table, (uint64_t)pid);
	gm_table_known(table, pid > 0); /* what a client left behind has no process */
	gm_table_count(table, uid);
	gm_table_text(table, gm_user_name(uid, user));
	gm_table_text(table, name);
}

void gm_verb_note_hidden_limits(struct gm_ctl *ctl, uint64_t owners)
{
	gm_writer_notes(ctl->writer);
	if (owners)
		gm_writer_note(ctl->writer, "hidden", GM_MARK_NONE,
			"%llu more owner%s limits; only %s users and administrators see them",
			(unsigned long long)owners, owners == 1 ? " has" : "s have",
			owners == 1 ? "its" : "their");
}

/* ---- wrong use */

gpumem_status gm_verb_wrong_use(struct gm_ctl *ctl, const char *format, ...)
{
	va_list list;
	char text[512];

	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);

	ctl->usage = true;
	return gm_trouble_set(&ctl->trouble, GPUMEM_E_INVALID, "%s", text);
}

gpumem_status gm_verb_too_many(struct gm_ctl *ctl, size_t index)
{
	return gm_verb_wrong_use(ctl, "'%s' is one argument too many; see 'gpumemctl %s --help'",
		ctl->options->args[index], ctl->options->verb->name);
}

gpumem_status gm_verb_no_client(struct gm_ctl *ctl, const char *word, bool hidden)
{
	gpumem_status status = gm_verb_refuse_cut_name(ctl, word);

	if (status != GPUMEM_OK)
		return status;
	return gm_trouble_set(&ctl->trouble, GPUMEM_E_NOT_FOUND,
		"there is no client '%.64s'%s; see 'gpumemctl clients'", word,
		hidden ? " whose name you may see" : "");
}

gpumem_status gm_verb_unknown(struct gm_ctl *ctl, const char *before, const char *word,
	const char *closest, const char *remedy)
{
	if (closest)
		return gm_verb_wrong_use(ctl, "unknown verb '%s%s'; did you mean '%s%s'?", before,
			word, before, closest);
	return gm_verb_wrong_use(ctl, "unknown verb '%s%s'; %s", before, word, remedy);
}

gpumem_status gm_verb_run_word(
	struct gm_ctl *ctl, const struct gm_verb_word words[GM_VERB_WORDS], const char *remedy)
{
	const char *names[GM_VERB_WORDS] = {0};
	char before[32];

	if (ctl->options->n_args == 0)
		return words[0].run(ctl);
	const char *word = ctl->options->args[0];
	for (size_t i = 1; i < GM_VERB_WORDS && words[i].word; i++) {
		if (!strcmp(word, words[i].word))
			return words[i].run(ctl);
		names[i - 1] = words[i].word;
	}

	snprintf(before, sizeof(before), "%s ", ctl->options->verb->name);
	return gm_verb_unknown(ctl, before, word, gm_closest(word, names), remedy);
}
