/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

#include "run/run.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text/closest.h"
#include "common/bounds.h"
#include "common/text/message.h"
#include "common/text/units.h"
#include "gpumem/gpumem.h"

/* As [limit] sections have them. */
#define PRIORITY_LEAST (-GM_PRIORITY_MAX)

/* X(letter, name, argument or NULL, text of the help) */
#define RUN_OPTIONS(X) \
	X('l', "limit", "SIZE", "limit on the device memory of the program, per GPU: 20G, 40%") \
	X('n', "name", "NAME", "the name that gpumemctl shows (default: the program's)") \
	X('p', "priority", "N", "-1000 to 0: a lower one waits longer, and gives back first") \
	X('w', "wait", "TIME", "how long an allocation waits if the GPU is full: 30s") \
	X('S', "spill", NULL, "take what does not fit on the GPU from pinned host memory") \
	X('d', "device", "N", "show it only this GPU, by its number in gpumemctl devices") \
	X('s', "socket", "PATH", "the socket of gpumemd") \
	X('r', "required", NULL, "refuse to start without gpumemd (default)") \
	X('o', "optional", NULL, "without gpumemd, run on the plain driver") \
	X('R', "report", NULL, "at the end, say on stderr what came from gpumemd") \
	X('q', "quiet", NULL, "do not say on stderr why there is no memory") \
	X('a', "see-all", NULL, "show it the size of the whole GPU, not its limit") \
	X('h', "help", NULL, "show this help") \
	X('V', "version", NULL, "show the version")

static const struct option long_options[] = {
#define RUN_LONG(letter, name, argument, text) \
	{name, (argument) ? required_argument : no_argument, NULL, letter},
	RUN_OPTIONS(RUN_LONG)
#undef RUN_LONG
		{NULL, 0, NULL, 0},
};

static const char *const option_names[] = {
#define RUN_NAME(letter, name, argument, text) "--" name,
	RUN_OPTIONS(RUN_NAME)
#undef RUN_NAME
		NULL,
};

static void run_options_help(void)
{
	puts("Usage: gpumem-run [OPTION]... [--] PROGRAM [ARGUMENT]...\n"
	     "Runs a CUDA program, and all that it starts, on device memory from gpumemd.\n");
	static const struct {
		const char *name, *argument, *text;
	} rows[] = {
#define RUN_ROW(letter, name, argument, text) {name, argument, text},
		RUN_OPTIONS(RUN_ROW)
#undef RUN_ROW
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char left[40];
		snprintf(left, sizeof left, "--%s%s%s", rows[i].name, rows[i].argument ? " " : "",
			rows[i].argument ? rows[i].argument : "");
		printf("  %-16s %s\n", left, rows[i].text);
	}
	puts("\nSee gpumem-run(1).");
}

__attribute__((format(printf, 1, 2))) static enum gm_run_parsed run_options_wrong(
	const char *format, ...)
{
	va_list args;

	va_start(args, format);
	gm_message_format("gpumem-run", format, args);
	va_end(args);
	gm_message(NULL, "Try 'gpumem-run --help'.");
	return GM_RUN_WRONG;
}

/* What getopt did not take: the option does not exist, or it was given a value and takes none. */
static enum gm_run_parsed run_options_unknown(const char *word)
{
	char name[64];
	snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
	for (size_t i = 0; strchr(word, '=') && option_names[i]; i++)
		if (strcmp(option_names[i], name) == 0)
			return run_options_wrong("%s takes no value", name);
	const char *close = strncmp(word, "--", 2) == 0 ? gm_closest(name, option_names) : NULL;

	if (close)
		return run_options_wrong("there is no option %s; did you mean %s?", name, close);
	return run_options_wrong("there is no option %s", name);
}

static enum gm_run_parsed run_options_limit(const char *text, struct gm_run_options *options)
{
	char why[GM_UNITS_WHY];
	size_t n = strlen(text);

	options->limit_text = text;
	if (n && text[n - 1] == '%') {
		if (gm_parse_fraction(text, &options->fraction) == 0 && options->fraction > 0)
			return GM_RUN_GO;
	} else if (gm_parse_size(text, &options->limit) == 0 && options->limit > 0) {
		if (gm_parse_bare(text, why))
			return run_options_wrong("--limit: '%s' %s", text, why);
		if (gm_parse_too_small(options->limit, why))
			return run_options_wrong("--limit: %s %s", text, why);
		return GM_RUN_GO;
	}
	return run_options_wrong(
		n && text[n - 1] == '%'
			? "--limit: '%s' is not a part of the GPU above 0%% and up to 100%%; write 40%%, or a size, such as 20G"
			: "--limit: '%s' is not a size above 0; write 20G, 512M, or a part of the GPU up to 100%%, such as 40%%",
		text);
}

static enum gm_run_parsed run_options_wait(const char *text, struct gm_run_options *options)
{
	uint64_t ns;

	if (gm_parse_duration(text, &ns) < 0 || ns / 1000000 >= GPUMEM_NO_WAIT - 1)
		return run_options_wrong(
			"--wait: '%s' is not a time below 49 days; write 30s, 500ms or 5min", text);
	options->wait_given = true;
	options->wait_ms = (uint32_t)(ns / 1000000 + (ns % 1000000 != 0));
	return GM_RUN_GO;
}

static enum gm_run_parsed run_options_priority(const char *text, struct gm_run_options *options)
{
	char *end;
	errno = 0;
	long value = strtol(text, &end, 10);

	if (!*text || *end || errno || value < PRIORITY_LEAST || value > 0)
		return run_options_wrong(
			"--priority: '%s' is not a number from %d to 0; only an administrator can raise a priority",
			text, PRIORITY_LEAST);
	options->priority = (int32_t)value;
	return GM_RUN_GO;
}

static enum gm_run_parsed run_options_device(const char *text, struct gm_run_options *options)
{
	uint64_t value;

	if (gm_parse_u64(text, &value) < 0 || value > INT32_MAX)
		return run_options_wrong(
			"--device: '%s' is not the number of a device; see 'gpumemctl devices'",
			text);
	options->device = (int64_t)value;
	return GM_RUN_GO;
}

static enum gm_run_parsed run_options_name(const char *text, struct gm_run_options *options)
{
	if (!*text || !gm_name_ok(text))
		return run_options_wrong("--name: a name has 1 to 63 bytes of printable UTF-8");
	options->name = text;
	return GM_RUN_GO;
}

static enum gm_run_parsed run_options_take(int letter, struct gm_run_options *options)
{
	switch (letter) {
	case 'l':
		return run_options_limit(optarg, options);
	case 'n':
		return run_options_name(optarg, options);
	case 'p':
		return run_options_priority(optarg, options);
	case 'w':
		return run_options_wait(optarg, options);
	case 'd':
		return run_options_device(optarg, options);
	case 's':
		options->socket = optarg;
		return GM_RUN_GO;
	case 'r':
		options->optional = false;
		return GM_RUN_GO;
	case 'o':
		options->optional = true;
		return GM_RUN_GO;
	case 'S':
		options->spill = true;
		return GM_RUN_GO;
	case 'R':
		options->report = true;
		return GM_RUN_GO;
	case 'q':
		options->quiet = true;
		return GM_RUN_GO;
	case 'a':
		options->see_all = true;
		return GM_RUN_GO;
	case 'h':
		run_options_help();
		return GM_RUN_DONE;
	default:
		puts("gpumem-run " PACKAGE_VERSION);
		return GM_RUN_DONE;
	}
}

enum gm_run_parsed gm_run_parse(int argc, char **argv, struct gm_run_options *ret_options)
{
	struct gm_run_options options = {.device = -1};

	opterr = 0;
	for (;;) {
		int at = optind ? optind : 1;
		/* The first word that is no option is the program, whose options are its own. */
		int letter = getopt_long(argc, argv, "+:hV", long_options, NULL);
		if (letter < 0)
			break;
		if (letter == '?')
			return run_options_unknown(argv[at]);
		if (letter == ':')
			return run_options_wrong("%s needs a value", argv[at]);
		enum gm_run_parsed parsed = run_options_take(letter, &options);
		if (parsed != GM_RUN_GO)
			return parsed;
	}

	if (optind >= argc)
		return run_options_wrong("no program is given");
	options.program = argv + optind;
	*ret_options = options;
	return GM_RUN_GO;
}
