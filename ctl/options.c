/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Reads the command line. getopt_long() finds the options. This file decides which verb they belong
 * to and what a misspelt one may have meant. It prints nothing; the caller does.
 */

#include "ctl/options.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/text/closest.h"
#include "common/bounds.h"
#include "common/types.h"
#include "common/text/units.h"
#include "ctl/io/device_table.h"
#include "ctl/io/model_file.h"
#include "ctl/io/user_name.h"
#include "ctl/verbs.h"

static int options_fail(char error[GM_OPTIONS_ERROR], const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int options_fail(char error[GM_OPTIONS_ERROR], const char *format, ...)
{
	va_list list;

	va_start(list, format);
	int n = vsnprintf(error, GM_OPTIONS_ERROR, format, list);
	va_end(list);
	if (n >= GM_OPTIONS_ERROR)
		gm_text_mend(error);
	return -EINVAL;
}

/* One option of the command line. */
struct options_row {
	const char *name;
	unsigned bit; /* of an option that only some verbs take; 0: all verbs take it */
	bool has_value;
	/* Reads the option into the member at this offset. text is the value, or NULL if there is none.
	 * Returns 0 or -EINVAL. NULL: the bit says it all. */
	int (*read)(const struct options_row *row, void *member, const char *text,
		char error[GM_OPTIONS_ERROR]);
	size_t offset;
	const char *examples; /* of times */
	uint64_t min_ns;      /* of times */
};

static int options_read_flag(
	const struct options_row *row, void *member, const char *text, char error[GM_OPTIONS_ERROR])
{
	*(bool *)member = true;
	return 0;
}

static int options_read_text(
	const struct options_row *row, void *member, const char *text, char error[GM_OPTIONS_ERROR])
{
	*(const char **)member = text;
	return 0;
}

static int options_read_path(
	const struct options_row *row, void *member, const char *text, char error[GM_OPTIONS_ERROR])
{
	if (!*text)
		return options_fail(error, "--%s needs a path", row->name);
	return options_read_text(row, member, text, error);
}

static int options_read_time(const struct options_row *row, const char *text, uint64_t *ret_ns,
	char error[GM_OPTIONS_ERROR])
{
	bool time = gm_parse_duration(text, ret_ns) == 0;

	if (time && *ret_ns >= row->min_ns)
		return 0;
	return options_fail(error, "--%s '%s' is %s; use %s", row->name, text,
		time ? "too short a time" : "not a time", row->examples);
}

static int options_read_ms(
	const struct options_row *row, void *member, const char *text, char error[GM_OPTIONS_ERROR])
{
	uint64_t ns;

	int r = options_read_time(row, text, &ns, error);
	if (r < 0)
		return r;
	*(uint64_t *)member = ns / 1000000;
	return 0;
}

/* Reads after what time a name ends: whole seconds, as the library takes them. */
static int options_read_seconds(
	const struct options_row *row, void *member, const char *text, char error[GM_OPTIONS_ERROR])
{
	uint64_t ns;

	int r = options_read_time(row, text, &ns, error);
	if (r < 0)
		return r;
	uint64_t seconds = (ns + GM_NS_PER_S - 1) / GM_NS_PER_S;
	if (seconds > GM_LIFETIME_MS_MAX / 1000)
		return options_fail(error,
			"--%s '%s' is more than a hundred years; leave the option out", row->name,
			text);
	*(uint32_t *)member = (uint32_t)seconds;
	return 0;
}

static int options_read_size(
	const struct options_row *row, void *member, const char *text, char error[GM_OPTIONS_ERROR])
{
	char why[GM_UNITS_WHY];
	uint64_t *size = member;

	if (gm_parse_bare(text, why))
		return options_fail(error, "--%s '%s' %s", row->name, text, why);
	if (gm_parse_size(text, size) < 0 || !*size)
		return options_fail(
			error, "--%s '%s' is not a size; use 512M or 16G", row->name, text);
	return 0;
}

/* Reads a dimension of a model. */
static int options_read_dimension(
	const struct options_row *row, void *member, const char *text, char error[GM_OPTIONS_ERROR])
{
	uint64_t *n = member;

	/* 128K tokens are usual. */
	if (gm_parse_size(text, n) < 0 || *n == 0)
		return options_fail(
			error, "--%s '%s' is not a whole number of 1 or more", row->name, text);
	return 0;
}

/* Reads --tied or --no-tied. */
static int options_read_tied(
	const struct options_row *row, void *member, const char *text, char error[GM_OPTIONS_ERROR])
{
	struct gm_options *options = member;

	options->untied = strcmp(row->name, "tied") != 0;
	options->model.tied = !options->untied;
	return 0;
}

static int options_read_dtype(
	const struct options_row *row, void *member, const char *text, char error[GM_OPTIONS_ERROR])
{
	gpumem_model *model = member;

	if (gm_model_file_dtype(text, &model->bytes_per_weight) < 0)
		return options_fail(error,
			"--dtype '%s' is not a type; use float32, bfloat16, int8, int4, or a "
			"number of bytes up to 16",
			text);
	return 0;
}

static int options_read_kv_bytes(
	const struct options_row *row, void *member, const char *text, char error[GM_OPTIONS_ERROR])
{
	uint64_t n;

	if (gm_parse_u64(text, &n) < 0 || n < 1 || n > 16)
		return options_fail(
			error, "--kv-bytes '%s' is not a whole number from 1 to 16", text);
	*(uint32_t *)member = (uint32_t)n;
	return 0;
}

static int options_take_device(struct gm_options *options, const char *before, const char *text,
	char error[GM_OPTIONS_ERROR])
{
	if (gm_device_name_parse(text, &options->device_name) < 0)
		return options_fail(error,
			"%s'%s' is not a device; use a number from 0 to %d, a UUID, a PCI address or pinned",
			before, text, GM_BOUND_DEVICES - 1);
	options->device = options->device_name.number;
	options->device_text = text;
	options->given |= GM_OPTION_DEVICE;
	return 0;
}

static int options_read_device(
	const struct options_row *row, void *member, const char *text, char error[GM_OPTIONS_ERROR])
{
	return options_take_device(member, "--device ", text, error);
}

static int options_read_level(
	const struct options_row *row, void *member, const char *text, char error[GM_OPTIONS_ERROR])
{
	for (uint32_t level = 0; level < GM_LEVELS; level++)
		if (!strcmp(text, gm_device_level(level))) {
			*(uint32_t *)member = level;
			return 0;
		}
	return options_fail(error, "--%s '%s' is not a level; use low, medium, high or critical",
		row->name, text);
}

static int options_read_user(
	const struct options_row *row, void *member, const char *text, char error[GM_OPTIONS_ERROR])
{
	if (gm_user_name_find(text, member) < 0)
		return options_fail(error, "--%s '%s': there is no such user", row->name, text);
	return 0;
}

static int options_read_group(
	const struct options_row *row, void *member, const char *text, char error[GM_OPTIONS_ERROR])
{
	if (gm_user_name_find_group(text, member) < 0)
		return options_fail(error, "--%s '%s': there is no such group", row->name, text);
	return 0;
}

/* Reads TERM, SIGTERM or 15. */
static int options_read_signal(
	const struct options_row *row, void *member, const char *text, char error[GM_OPTIONS_ERROR])
{
	const char *word = strncasecmp(text, "SIG", 3) ? text : text + 3;
	uint64_t n;

	if (gm_parse_u64(text, &n) < 0)
		for (n = 1; n < (uint64_t)SIGRTMIN; n++) {
			const char *name = sigabbrev_np((int)n);
			if (name && !strcasecmp(name, word))
				break;
		}
	if (n == 0 || n >= (uint64_t)SIGRTMIN)
		return options_fail(error, "--%s '%s' is not a signal; use TERM, KILL or a number",
			row->name, text);
	*(int *)member = (int)n;
	return 0;
}

static int options_read_colour(
	const struct options_row *row, void *member, const char *text, char error[GM_OPTIONS_ERROR])
{
	static const char *const colours[GM_COLOURS] = {
		[GM_COLOUR_AUTO] = "auto",
		[GM_COLOUR_ALWAYS] = "always",
		[GM_COLOUR_NEVER] = "never",
	};

	for (size_t i = 0; i < GM_COLOURS; i++)
		if (!strcmp(text, colours[i])) {
			*(enum gm_colour *)member = (enum gm_colour)i;
			return 0;
		}
	return options_fail(error, "--%s '%s': use auto, always or never", row->name, text);
}

#define MEMBER(member) offsetof(struct gm_options, member)
#define BIT(name, bit) \
	{ \
		name, bit, false, NULL, 0, NULL, 0 \
	}
#define FLAG(name, bit, member) \
	{ \
		name, bit, false, options_read_flag, MEMBER(member), NULL, 0 \
	}
#define VALUE(name, bit, how, member) \
	{ \
		name, bit, true, options_read_##how, MEMBER(member), NULL, 0 \
	}
#define TIME(name, bit, how, member, examples, min_ns) \
	{ \
		name, bit, true, options_read_##how, MEMBER(member), examples, min_ns \
	}
#define DIMENSION(member, name, key) VALUE(name, GM_OPTION_MODEL, dimension, model.member),

/* getopt_long() returns the number of an option's row, behind the letters. */
#define OPTIONS_FIRST 256
static const struct options_row rows[] = {
	FLAG("help", 0, help),
	FLAG("json", 0, json),
	VALUE("socket", 0, path, socket),
	TIME("timeout", 0, ms, timeout_ms, "500ms, 10s or 1min", 1000000),
	FLAG("csv", 0, csv),
	FLAG("no-header", 0, no_header),
	FLAG("no-legend", 0, no_header), /* its old name */
	FLAG("bytes", 0, bytes),
	FLAG("debug", 0, debug),
	FLAG("version", 0, version),
	TIME("older-than", GM_OPTION_OLDER_THAN, ms, older_than_ms, "30s, 5min or 2h", 0),
	BIT("stacks", GM_OPTION_STACKS),
	{"device", GM_OPTION_DEVICE, true, options_read_device, 0, NULL, 0},
	BIT("measure", GM_OPTION_MEASURE),
	VALUE("at-least", GM_OPTION_AT_LEAST, level, at_least),
	VALUE("need", GM_OPTION_NEED, size, need),
	BIT("may-wait", GM_OPTION_MAY_WAIT),
	VALUE("dtype", GM_OPTION_MODEL, dtype, model),
	{"tied", GM_OPTION_MODEL, false, options_read_tied, 0, NULL, 0},
	{"no-tied", GM_OPTION_MODEL, false, options_read_tied, 0, NULL, 0},
	VALUE("kv-bytes", GM_OPTION_MODEL, kv_bytes, model.bytes_per_value),
	GM_MODEL_DIMENSIONS(DIMENSION) BIT("dry-run", GM_OPTION_DRY_RUN),
	VALUE("sort", GM_OPTION_SORT, text, sort),
	VALUE("columns", GM_OPTION_COLUMNS, text, columns),
	VALUE("user", GM_OPTION_USER, user, user),
	VALUE("name", GM_OPTION_NAME, text, name),
	VALUE("signal", GM_OPTION_SIGNAL, signal, signal),
	BIT("quiet", GM_OPTION_QUIET),
	BIT("replace", GM_OPTION_REPLACE),
	VALUE("uid", GM_OPTION_UID, user, audience_uid),
	VALUE("gid", GM_OPTION_GID, group, audience_gid),
	TIME("expires", GM_OPTION_EXPIRES, seconds, expires_s, "90s, 12h or 7d", 1),
	BIT("readers-can-write", GM_OPTION_READERS_CAN_WRITE),
	BIT("save", GM_OPTION_SAVE),
	BIT("no-reconnect", GM_OPTION_NO_RECONNECT),
	BIT("forget", GM_OPTION_FORGET),
	BIT("undo", GM_OPTION_UNDO),
	TIME("wait", GM_OPTION_WAIT, ms, wait_ms, "0s, 30s, 5min or 2h", 0),
	VALUE("color", 0, colour, colour),
};
#define N_ROWS (sizeof(rows) / sizeof(*rows))

static int options_take(struct gm_options *options, const struct options_row *row, const char *text,
	char error[GM_OPTIONS_ERROR])
{
	options->given |= row->bit;
	return row->read ? row->read(row, (char *)options + row->offset, text, error) : 0;
}

/* The word that getopt_long() has just refused. It stays at a word with several short options until
 * it has read the last of them. */
static const char *options_refused_word(char **argv)
{
	const char *before = argv[optind - 1];

	if (strncmp(before, "--", 2) == 0 ||
		(before[0] == '-' && optopt && before[strlen(before) - 1] == optopt))
		return before;
	return argv[optind];
}

/* The first of these options that begins with the letter of this word, such as -s, or NULL. */
static const char *options_with_letter(const char *word, const char *const *names)
{
	for (; *names; names++)
		if (word[0] && word[1] == (*names)[0] && !word[2])
			return *names;
	return NULL;
}

/* The first word that is a verb, or NULL. The value of an option may be one, too: this is only for
 * advice. */
static const char *options_verb_among(char **argv)
{
	for (size_t i = 1; argv[i]; i++)
		if (gm_verb_find(gm_verbs, argv[i]))
			return argv[i];
	return NULL;
}

/* Says why getopt_long() does not accept this word. */
static int options_wrong_option(char **argv, const char *word, char error[GM_OPTIONS_ERROR])
{
	const char *names[N_ROWS + 1] = {0};
	char name[33];

	if (word[0] == '-' && word[1] >= '0' && word[1] <= '9')
		return options_fail(error, "'%s' is negative; sizes and times are 0 or more", word);

	size_t n = strncmp(word, "--", 2) ? 0 : strcspn(word + 2, "=");
	if (n >= sizeof(name))
		n = 0;
	memcpy(name, word + (n ? 2 : 0), n);
	name[n] = '\0';

	/* Without a verb, it is 'status'. */
	const char *verb = options_verb_among(argv);
	unsigned takes = gm_verb_find(gm_verbs, verb ? verb : "status")->takes;
	for (size_t i = 0, k = 0; i < N_ROWS; i++) {
		if (!strcmp(rows[i].name, name))
			return options_fail(error, "option '--%s' takes no value", name);
		if (!rows[i].bit || rows[i].bit & takes)
			names[k++] = rows[i].name;
	}

	const char *closest = n ? gm_closest(name, names) : options_with_letter(word, names);
	if (closest)
		return options_fail(
			error, "unknown option '%s'; did you mean '--%s'?", word, closest);
	return options_fail(error, "unknown option '%s'; see 'gpumemctl %s%s'", word,
		verb ? verb : "help", verb ? " --help" : "");
}

static int options_unknown_verb(const char *word, char error[GM_OPTIONS_ERROR])
{
	const char *familiar = gm_verb_familiar(word);
	const char *closest = gm_verb_closest(gm_verbs, word);

	if (familiar)
		return options_fail(error, "unknown verb '%s'; %s", word, familiar);
	if (closest)
		return options_fail(error, "unknown verb '%s'; did you mean '%s'?", word, closest);
	return options_fail(error, "unknown verb '%s'; see 'gpumemctl help'", word);
}

/* Writes the name of the first option in a set of bits. Returns text. */
static const char *options_first_name(unsigned set, char text[48])
{
	snprintf(text, 48, "the dimensions of a model");
	for (size_t i = 0; i < N_ROWS && !(set & GM_OPTION_MODEL); i++)
		if (set & rows[i].bit) {
			snprintf(text, 48, "--%s", rows[i].name);
			break;
		}
	return text;
}

/* Checks what the verb was given, and reads what only the verb gives a meaning. */
static int options_for_verb(struct gm_options *options, char error[GM_OPTIONS_ERROR])
{
	const struct gm_verb *verb = options->verb;
	const char *sort = options->sort ? options->sort : verb->sort;
	char why[GM_VIEW_WHY], name[48];

	unsigned wrong = options->given & ~verb->takes;
	if (wrong)
		return options_fail(error,
			"'gpumemctl %s' does not take %s; see 'gpumemctl %s --help'", verb->name,
			options_first_name(wrong, name), verb->name);
	if (options->json && options->csv)
		return options_fail(error, "--json and --csv exclude each other");
	if ((options->json || options->csv) && verb->plain)
		return options_fail(error,
			"'gpumemctl %s' has a format of its own, and takes neither --json nor --csv",
			verb->name);
	if (options->csv && verb->streams)
		return options_fail(error, "'gpumemctl %s' shows no table; use --json", verb->name);
	if (options->json && options->columns)
		return options_fail(error,
			"--columns is for tables and --csv; a program that reads JSON can choose");

	if (sort && gm_view_sort(&options->view, verb->columns, verb->n_columns, sort, why) < 0)
		return options_fail(error, "--sort: %s", why);
	if (options->columns && gm_view_show(&options->view, verb->columns, verb->n_columns,
					options->columns, why) < 0)
		return options_fail(error, "--columns: %s", why);
	return 0;
}

/* Says which columns there are: --columns or --sort, the last word, has none. */
static int options_without_columns(char **argv, char error[GM_OPTIONS_ERROR])
{
	const char *verb_word = options_verb_among(argv);
	const struct gm_verb *verb = gm_verb_find(gm_verbs, verb_word ? verb_word : "status");
	char names[GM_VIEW_WHY];

	gm_view_words(verb->columns, verb->n_columns, names);
	if (!*names)
		return options_fail(error, "option '%s' needs a value", argv[optind - 1]);
	return options_fail(error, "the columns of '%s' are %.400s", verb->name, names);
}

int gm_options_parse(
	int argc, char **argv, struct gm_options *ret_options, char error[GM_OPTIONS_ERROR])
{
	struct gm_options options = {
		.timeout_ms = GM_OPTIONS_TIMEOUT_MS, .wait_ms = UINT64_MAX, .signal = SIGTERM};
	struct option list[N_ROWS + 1] = {0};
	int r;

	for (size_t i = 0; i < N_ROWS; i++)
		list[i] = (struct option){rows[i].name,
			rows[i].has_value ? required_argument : no_argument, NULL,
			OPTIONS_FIRST + (int)i};
	optind = 0; /* how to restart GNU getopt, so that it may change the order of argv */
	opterr = 0;
	for (;;) {
		int option = getopt_long(argc, argv, ":h", list, NULL);
		if (option == -1)
			break;
		if (option == '?')
			return options_wrong_option(argv, options_refused_word(argv), error);

		const struct options_row *row =
			option == 'h' ? &rows[0]
				      : &rows[(option == ':' ? optopt : option) - OPTIONS_FIRST];
		if (option == ':' && row->bit & (GM_OPTION_COLUMNS | GM_OPTION_SORT))
			return options_without_columns(argv, error);
		if (option == ':')
			return options_fail(error, "option '%s' needs a value", argv[optind - 1]);

		r = options_take(&options, row, optarg, error);
		if (r < 0)
			return r;
	}

	if (optind < argc) {
		options.verb = gm_verb_find(gm_verbs, argv[optind]);
		if (!options.verb)
			return options_unknown_verb(argv[optind], error);
		options.verb_given = true;
		optind++;
	} else {
		options.verb = gm_verb_find(gm_verbs, "status");
	}

	for (; optind < argc; optind++) {
		if (options.n_args == options.verb->max_args || options.n_args == GM_OPTIONS_ARGS)
			return options_fail(error,
				"'%s' is one argument too many; see 'gpumemctl %s --help'",
				argv[optind], options.verb->name);
		options.args[options.n_args++] = argv[optind];
		r = options.verb->names_device && !options.help
			    ? options_take_device(&options, "", argv[optind], error)
			    : 0;
		if (r < 0)
			return r;
	}

	r = options.help ? 0 : options_for_verb(&options, error);
	if (r < 0)
		return r;
	*ret_options = options;
	return 0;
}
