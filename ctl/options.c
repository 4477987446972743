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
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/text/closest.h"
#include "common/limits.h"
#include "common/types.h"
#include "common/text/units.h"
#include "ctl/io/device_table.h"
#include "ctl/io/model_file.h"
#include "ctl/io/user.h"
#include "ctl/verbs.h"

enum {
	OPTION_JSON = 256,
	OPTION_SOCKET,
	OPTION_TIMEOUT,
	OPTION_CSV,
	OPTION_NO_HEADER,
	OPTION_BYTES,
	OPTION_DEBUG,
	OPTION_VERSION,
	OPTION_OLDER_THAN,
	OPTION_STACKS,
	OPTION_DEVICE,
	OPTION_MEASURE,
	OPTION_AT_LEAST,
	OPTION_NEED,
	OPTION_MAY_WAIT,
	OPTION_DTYPE,
	OPTION_TIED,
	OPTION_NO_TIED,
	OPTION_KV_BYTES,
	OPTION_DIMENSION, /* of a model; its other dimensions follow */
	OPTION_DRY_RUN = OPTION_DIMENSION + GM_MODEL_N_DIMENSIONS,
	OPTION_SORT,
	OPTION_COLUMNS,
	OPTION_USER,
	OPTION_NAME,
	OPTION_SIGNAL,
	OPTION_QUIET,
	OPTION_REPLACE,
	OPTION_UID,
	OPTION_GID,
	OPTION_EXPIRES,
	OPTION_READERS_CAN_WRITE,
	OPTION_SAVE,
	OPTION_NO_RECONNECT,
	OPTION_FORGET,
	OPTION_UNDO,
	OPTION_WAIT,
	OPTION_COLOR,
};

#define OPTION_OF_DIMENSION(member, name, key) \
	{name, required_argument, NULL, OPTION_DIMENSION + GM_MODEL_##member},

static const struct option long_options[] = {
	{"help", no_argument, NULL, 'h'},
	{"json", no_argument, NULL, OPTION_JSON},
	{"socket", required_argument, NULL, OPTION_SOCKET},
	{"timeout", required_argument, NULL, OPTION_TIMEOUT},
	{"csv", no_argument, NULL, OPTION_CSV},
	{"no-header", no_argument, NULL, OPTION_NO_HEADER},
	{"no-legend", no_argument, NULL, OPTION_NO_HEADER}, /* its old name */
	{"bytes", no_argument, NULL, OPTION_BYTES},
	{"debug", no_argument, NULL, OPTION_DEBUG},
	{"version", no_argument, NULL, OPTION_VERSION},
	{"older-than", required_argument, NULL, OPTION_OLDER_THAN},
	{"stacks", no_argument, NULL, OPTION_STACKS},
	{"device", required_argument, NULL, OPTION_DEVICE},
	{"measure", no_argument, NULL, OPTION_MEASURE},
	{"at-least", required_argument, NULL, OPTION_AT_LEAST},
	{"need", required_argument, NULL, OPTION_NEED},
	{"may-wait", no_argument, NULL, OPTION_MAY_WAIT},
	{"dtype", required_argument, NULL, OPTION_DTYPE},
	{"tied", no_argument, NULL, OPTION_TIED},
	{"no-tied", no_argument, NULL, OPTION_NO_TIED},
	{"kv-bytes", required_argument, NULL, OPTION_KV_BYTES},
	GM_MODEL_DIMENSIONS(OPTION_OF_DIMENSION){"dry-run", no_argument, NULL, OPTION_DRY_RUN},
	{"sort", required_argument, NULL, OPTION_SORT},
	{"columns", required_argument, NULL, OPTION_COLUMNS},
	{"user", required_argument, NULL, OPTION_USER},
	{"name", required_argument, NULL, OPTION_NAME},
	{"signal", required_argument, NULL, OPTION_SIGNAL},
	{"quiet", no_argument, NULL, OPTION_QUIET},
	{"replace", no_argument, NULL, OPTION_REPLACE},
	{"uid", required_argument, NULL, OPTION_UID},
	{"gid", required_argument, NULL, OPTION_GID},
	{"expires", required_argument, NULL, OPTION_EXPIRES},
	{"readers-can-write", no_argument, NULL, OPTION_READERS_CAN_WRITE},
	{"save", no_argument, NULL, OPTION_SAVE},
	{"no-reconnect", no_argument, NULL, OPTION_NO_RECONNECT},
	{"forget", no_argument, NULL, OPTION_FORGET},
	{"undo", no_argument, NULL, OPTION_UNDO},
	{"wait", required_argument, NULL, OPTION_WAIT},
	{"color", required_argument, NULL, OPTION_COLOR},
	{0},
};
#define N_LONG_OPTIONS (sizeof(long_options) / sizeof(*long_options) - 1)

/* The bit of an option that only some verbs take; 0: all verbs take it. */
static unsigned options_bit(int option)
{
	static const struct {
		int option;
		unsigned bit;
	} bits[] = {
		{OPTION_OLDER_THAN, GM_OPTION_OLDER_THAN},
		{OPTION_STACKS, GM_OPTION_STACKS},
		{OPTION_DEVICE, GM_OPTION_DEVICE},
		{OPTION_MEASURE, GM_OPTION_MEASURE},
		{OPTION_AT_LEAST, GM_OPTION_AT_LEAST},
		{OPTION_NEED, GM_OPTION_NEED},
		{OPTION_MAY_WAIT, GM_OPTION_MAY_WAIT},
		{OPTION_DTYPE, GM_OPTION_MODEL},
		{OPTION_TIED, GM_OPTION_MODEL},
		{OPTION_NO_TIED, GM_OPTION_MODEL},
		{OPTION_KV_BYTES, GM_OPTION_MODEL},
		{OPTION_DRY_RUN, GM_OPTION_DRY_RUN},
		{OPTION_SORT, GM_OPTION_SORT},
		{OPTION_COLUMNS, GM_OPTION_COLUMNS},
		{OPTION_USER, GM_OPTION_USER},
		{OPTION_NAME, GM_OPTION_NAME},
		{OPTION_SIGNAL, GM_OPTION_SIGNAL},
		{OPTION_QUIET, GM_OPTION_QUIET},
		{OPTION_REPLACE, GM_OPTION_REPLACE},
		{OPTION_UID, GM_OPTION_UID},
		{OPTION_GID, GM_OPTION_GID},
		{OPTION_EXPIRES, GM_OPTION_EXPIRES},
		{OPTION_READERS_CAN_WRITE, GM_OPTION_READERS_CAN_WRITE},
		{OPTION_SAVE, GM_OPTION_SAVE},
		{OPTION_NO_RECONNECT, GM_OPTION_NO_RECONNECT},
		{OPTION_FORGET, GM_OPTION_FORGET},
		{OPTION_UNDO, GM_OPTION_UNDO},
		{OPTION_WAIT, GM_OPTION_WAIT},
	};

	if (option >= OPTION_DIMENSION && option < OPTION_DRY_RUN)
		return GM_OPTION_MODEL;
	for (size_t i = 0; i < sizeof(bits) / sizeof(*bits); i++)
		if (bits[i].option == option)
			return bits[i].bit;
	return 0;
}

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
	const char *names[N_LONG_OPTIONS + 1] = {0};
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
	for (size_t i = 0, k = 0; i < N_LONG_OPTIONS; i++) {
		unsigned bit = options_bit(long_options[i].val);
		if (!strcmp(long_options[i].name, name))
			return options_fail(error, "option '--%s' takes no value", name);
		if (!bit || bit & takes)
			names[k++] = long_options[i].name;
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

static const char *const colours[GM_COLOURS] = {
	[GM_COLOUR_AUTO] = "auto",
	[GM_COLOUR_ALWAYS] = "always",
	[GM_COLOUR_NEVER] = "never",
};

/* Reads TERM, SIGTERM or 15. Returns 0 if there is no such signal. */
static int options_signal(const char *text)
{
	uint64_t n;

	if (gm_parse_u64(text, &n) == 0)
		return n > 0 && n < (uint64_t)SIGRTMIN ? (int)n : 0;
	if (!strncasecmp(text, "SIG", 3))
		text += 3;
	for (int i = 1; i < SIGRTMIN; i++) {
		const char *name = sigabbrev_np(i);
		if (name && !strcasecmp(name, text))
			return i;
	}
	return 0;
}

/* Values that cannot be read before the verb is known. */
struct options_texts {
	const char *sort, *columns;
};

static int options_take_device(struct gm_options *options, const char *before, const char *text,
	char error[GM_OPTIONS_ERROR])
{
	if (gm_device_name_parse(text, &options->device_name) < 0)
		return options_fail(error,
			"%s'%s' is not a device; use a number from 0 to %d, a UUID or a PCI address",
			before, text, GM_LIMIT_DEVICES - 1);
	options->device = options->device_name.number;
	options->device_text = text;
	options->given |= GM_OPTION_DEVICE;
	return 0;
}

/* Reads the i-th dimension of a model. */
static int options_take_dimension(
	struct gm_options *options, size_t i, const char *text, char error[GM_OPTIONS_ERROR])
{
	const char *name = gm_model_dimensions[i].option;
	uint64_t n;

	/* 128K tokens are usual. */
	if (gm_parse_size(text, &n) < 0 || n == 0)
		return options_fail(
			error, "--%s '%s' is not a whole number of 1 or more", name, text);
	*gm_model_dimension(&options->model, i) = n;
	return 0;
}

/* Reads after what time a name ends: whole seconds, as the library takes them. */
static int options_take_expires(
	struct gm_options *options, const char *text, char error[GM_OPTIONS_ERROR])
{
	uint64_t ns;

	if (gm_parse_duration(text, &ns) < 0 || ns == 0)
		return options_fail(
			error, "--expires '%s' is not a time; use 90s, 12h or 7d", text);
	uint64_t seconds = (ns + GM_NS_PER_S - 1) / GM_NS_PER_S;
	if (seconds > GM_LIFETIME_MS_MAX / 1000)
		return options_fail(error,
			"--expires '%s' is more than a hundred years; leave the option out", text);
	options->expires_s = (uint32_t)seconds;
	return 0;
}

static int options_take(struct gm_options *options, struct options_texts *texts, int option,
	char error[GM_OPTIONS_ERROR])
{
	char why[GM_UNITS_WHY];
	uint64_t n;

	options->given |= options_bit(option);
	if (option >= OPTION_DIMENSION && option < OPTION_DRY_RUN)
		return options_take_dimension(
			options, (size_t)(option - OPTION_DIMENSION), optarg, error);
	switch (option) {
	case 'h':
		options->help = true;
		return 0;
	case OPTION_JSON:
		options->json = true;
		return 0;
	case OPTION_SOCKET:
		if (!*optarg)
			return options_fail(error, "--socket needs a path");
		options->socket = optarg;
		return 0;
	case OPTION_TIMEOUT:
		if (gm_parse_duration(optarg, &n) < 0 || n < 1000000)
			return options_fail(error,
				"--timeout '%s' is not a time; use 500ms, 10s or 1min", optarg);
		options->timeout_ms = n / 1000000;
		return 0;
	case OPTION_CSV:
		options->csv = true;
		return 0;
	case OPTION_NO_HEADER:
		options->no_header = true;
		return 0;
	case OPTION_BYTES:
		options->bytes = true;
		return 0;
	case OPTION_DEBUG:
		options->debug = true;
		return 0;
	case OPTION_VERSION:
		options->version = true;
		return 0;
	case OPTION_OLDER_THAN:
		if (gm_parse_duration(optarg, &n) < 0)
			return options_fail(error,
				"--older-than '%s' is not a time; use 30s, 5min or 2h", optarg);
		options->older_than_ms = n / 1000000;
		return 0;
	case OPTION_DEVICE:
		return options_take_device(options, "--device ", optarg, error);
	case OPTION_AT_LEAST:
		for (options->at_least = 0; options->at_least < GM_LEVELS; options->at_least++)
			if (!strcmp(optarg, gm_device_level(options->at_least)))
				break;
		if (options->at_least == GM_LEVELS)
			return options_fail(error,
				"--at-least '%s' is not a level; use low, medium, high or critical",
				optarg);
		return 0;
	case OPTION_NEED:
		if (gm_parse_bare(optarg, why))
			return options_fail(error, "--need '%s' %s", optarg, why);
		if (gm_parse_size(optarg, &options->need) < 0 || !options->need)
			return options_fail(
				error, "--need '%s' is not a size; use 512M or 16G", optarg);
		return 0;
	case OPTION_DTYPE:
		if (gm_model_file_dtype(optarg, &options->model.bytes_per_weight) < 0)
			return options_fail(error,
				"--dtype '%s' is not a type; use float32, bfloat16, int8, int4, or a "
				"number of bytes up to 16",
				optarg);
		return 0;
	case OPTION_TIED:
	case OPTION_NO_TIED:
		options->model.tied = option == OPTION_TIED;
		options->untied = option == OPTION_NO_TIED;
		return 0;
	case OPTION_KV_BYTES:
		if (gm_parse_u64(optarg, &n) < 0 || n < 1 || n > 16)
			return options_fail(error,
				"--kv-bytes '%s' is not a whole number from 1 to 16", optarg);
		options->model.bytes_per_value = (uint32_t)n;
		return 0;
	case OPTION_SORT:
		texts->sort = optarg;
		return 0;
	case OPTION_COLUMNS:
		texts->columns = optarg;
		return 0;
	case OPTION_USER:
		if (gm_user_find(optarg, &options->user) < 0)
			return options_fail(error, "--user '%s': there is no such user", optarg);
		return 0;
	case OPTION_NAME:
		options->name = optarg;
		return 0;
	case OPTION_SIGNAL:
		options->signal = options_signal(optarg);
		if (!options->signal)
			return options_fail(error,
				"--signal '%s' is not a signal; use TERM, KILL or a number",
				optarg);
		return 0;
	case OPTION_UID:
		if (gm_user_find(optarg, &options->audience_uid) < 0)
			return options_fail(error, "--uid '%s': there is no such user", optarg);
		return 0;
	case OPTION_GID:
		if (gm_user_find_group(optarg, &options->audience_gid) < 0)
			return options_fail(error, "--gid '%s': there is no such group", optarg);
		return 0;
	case OPTION_EXPIRES:
		return options_take_expires(options, optarg, error);
	case OPTION_WAIT:
		if (gm_parse_duration(optarg, &n) < 0)
			return options_fail(error,
				"--wait '%s' is not a time; use 0s, 30s, 5min or 2h", optarg);
		options->wait_ms = n / 1000000;
		return 0;
	case OPTION_COLOR:
		for (n = 0; n < GM_COLOURS && strcmp(optarg, colours[n]) != 0; n++)
			;
		if (n == GM_COLOURS)
			return options_fail(
				error, "--color '%s': use auto, always or never", optarg);
		options->colour = (enum gm_colour)n;
		return 0;
	}
	/* An option without a value is a bit, and no more. */
	return 0;
}

/* Writes the name of the first option in a set of bits. Returns text. */
static const char *options_first_name(unsigned set, char text[48])
{
	snprintf(text, 48, "the dimensions of a model");
	for (size_t i = 0; i < N_LONG_OPTIONS && !(set & GM_OPTION_MODEL); i++)
		if (set & options_bit(long_options[i].val)) {
			snprintf(text, 48, "--%s", long_options[i].name);
			break;
		}
	return text;
}

/* Checks what the verb was given, and reads what only the verb gives a meaning. */
static int options_for_verb(
	struct gm_options *options, const struct options_texts *texts, char error[GM_OPTIONS_ERROR])
{
	const struct gm_verb *verb = options->verb;
	const char *sort = texts->sort ? texts->sort : verb->sort;
	char why[GM_VIEW_WHY], name[48];

	unsigned wrong = options->given & ~verb->takes;
	if (wrong)
		return options_fail(error,
			"'gpumemctl %s' does not take %s; see 'gpumemctl %s --help'", verb->name,
			options_first_name(wrong, name), verb->name);
	if (options->json && options->csv)
		return options_fail(error, "--json and --csv exclude each other");
	if (options->csv && verb->streams)
		return options_fail(error, "'gpumemctl %s' shows no table; use --json", verb->name);
	if (options->json && texts->columns)
		return options_fail(error,
			"--columns is for tables and --csv; a program that reads JSON can choose");

	if (sort && gm_view_sort(&options->view, verb->columns, verb->n_columns, sort, why) < 0)
		return options_fail(error, "--sort: %s", why);
	if (texts->columns && gm_view_show(&options->view, verb->columns, verb->n_columns,
				      texts->columns, why) < 0)
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
	struct options_texts texts = {0};
	int r;

	optind = 0; /* how to restart GNU getopt, so that it may change the order of argv */
	opterr = 0;
	for (;;) {
		int option = getopt_long(argc, argv, ":h", long_options, NULL);
		if (option == -1)
			break;

		if (option == ':' && (optopt == OPTION_COLUMNS || optopt == OPTION_SORT))
			return options_without_columns(argv, error);
		if (option == ':')
			return options_fail(error, "option '%s' needs a value", argv[optind - 1]);
		if (option == '?')
			return options_wrong_option(argv, options_refused_word(argv), error);

		r = options_take(&options, &texts, option, error);
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

	r = options.help ? 0 : options_for_verb(&options, &texts, error);
	if (r < 0)
		return r;
	*ret_options = options;
	return 0;
}
