/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl: reads the command line, runs one verb, and writes the answer to stdout. Messages go to
 * stderr. The exit status follows from the status of the verb (include/gpumem/status.h), except
 * that wrong use is 2.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/log.h"
#include "common/system/program.h"
#include "common/text/units.h"
#include "common/text/message.h"
#include "common/text/text.h"
#include "ctl/options.h"
#include "ctl/verbs.h"

#define EXIT_USAGE 2

static const char own_name[] = "gpumemctl";

static void main_style_init(
	struct gm_writer_style *style, bool utf8, const struct gm_options *options)
{
	bool terminal = isatty(STDOUT_FILENO);
	const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
	const char *columns = getenv("COLUMNS");
	struct winsize size;
	uint64_t n;

	bool colour = terminal && !(no_colour && *no_colour) && term && strcmp(term, "dumb");

	*style = (struct gm_writer_style){
		.colour = options->colour == GM_COLOUR_AUTO ? colour
							    : options->colour == GM_COLOUR_ALWAYS,
		.ascii = terminal && !utf8,
		.legend = !options->no_header,
		.plain_bytes = options->bytes,
	};

	/* In a pipe or a file, tables are as wide as needed, unless COLUMNS is set. */
	if (columns && gm_parse_u64(columns, &n) == 0 && n > 0 && n < 100000)
		style->columns = n;
	else if (terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
		style->columns = size.ws_col;
	else if (terminal)
		style->columns = 80;
}

static void main_say_trouble(const struct gm_trouble *trouble)
{
	char text[sizeof(trouble->text) + sizeof(trouble->hint) + 4];
	char mended[sizeof(text) + 2 * GM_PROGRAM_BYTES];

	snprintf(text, sizeof(text), "%s%s%s", trouble->text, *trouble->hint ? "; " : "",
		trouble->hint);
	gm_message(own_name, gm_program_mend(text, mended, sizeof(mended)));
}

static int main_run(struct gm_options *options, bool utf8)
{
	struct gm_ctl ctl = {.options = options, .verbs = gm_verbs};
	struct gm_writer_style style;
	int exit_status;

	main_style_init(&style, utf8, options);
	ctl.colour = style.colour;
	ctl.columns = style.columns;
	ctl.writer = options->json  ? gm_writer_json_new()
		     : options->csv ? gm_writer_csv_new(!options->no_header)
				    : gm_writer_text_new(&style);
	if (!ctl.writer) {
		gm_message(own_name, "out of memory");
		return EXIT_FAILURE;
	}

	gpumem_status status = gm_verb_resolve_device(&ctl, options);
	if (status == GPUMEM_OK)
		status = options->verb->run(&ctl);
	if (status != GPUMEM_OK) {
		main_say_trouble(&ctl.trouble);
		exit_status = ctl.usage ? EXIT_USAGE : gm_status_exit(status);
	} else {
		int r = ctl.streamed ? ctl.stream_error : gm_writer_finish(ctl.writer, stdout);

		exit_status = ctl.exit_status ? ctl.exit_status : gm_status_exit(ctl.status);
		/* A reader that closes the pipe early, such as head, has read enough. */
		if (r < 0 && r != -EPIPE) {
			char text[256];
			snprintf(text, sizeof(text), "cannot write the answer: %s", strerror(-r));
			gm_message(own_name, text);
			exit_status = EXIT_FAILURE;
		}
	}
	gm_writer_free(ctl.writer);
	return exit_status;
}

int main(int argc, char **argv)
{
	struct gm_options options;
	char error[GM_OPTIONS_ERROR];
	bool utf8;

	gm_text_init(&utf8);
	if (gm_options_parse(argc, argv, &options, error) < 0) {
		gm_message(own_name, error);
		return EXIT_USAGE;
	}
	gm_log_set_level(options.debug ? GM_LOG_DEBUG : GM_LOG_WARNING);
	if (!options.version && !options.help)
		return main_run(&options, utf8);
	if (options.version)
		puts("gpumemctl " PACKAGE_VERSION);
	else
		gm_verb_print_help(gm_verbs, options.verb_given ? options.verb : NULL);
	return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}
