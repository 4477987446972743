/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Messages on stderr. A message may quote a client or the daemon, so it is cleaned like all text
 * that reaches a terminal.
 */

#include "common/text/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/text/text.h"

#define MESSAGE_COLUMNS 80 /* longer lines are hard to read */

size_t gm_message_columns(int fd)
{
	struct winsize size;

	if (!isatty(fd))
		return 0;
	return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col && size.ws_col < MESSAGE_COLUMNS
		       ? size.ws_col
		       : MESSAGE_COLUMNS;
}

void gm_message(const char *from, const char *text)
{
	size_t columns = gm_message_columns(STDERR_FILENO);
	char *line, *clean = NULL;

	if (asprintf(&line, "%s%s%s", from ? from : "", from ? ": " : "", text) >= 0) {
		clean = gm_text_clean(line, false);
		free(line);
	}
	if (clean) {
		/* What continues an item of a list is indented further. */
		size_t blanks = strspn(clean, " ");
		fprintf(stderr, "%*s", (int)blanks, "");
		gm_text_put(stderr, clean + blanks, columns, blanks ? blanks + 2 : 0);
	}
	fputs(clean ? "\n" : "out of memory\n", stderr);
	free(clean);
}

void gm_message_format(const char *from, const char *format, va_list args)
{
	char *text;

	if (vasprintf(&text, format, args) < 0) {
		gm_message(from, "out of memory");
		return;
	}
	gm_message(from, text);
	free(text);
}
