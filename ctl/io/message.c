/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Messages on stderr. A message may quote a client or the daemon, so it is cleaned like all text
 * that reaches a terminal.
 */

#include <stdio.h>
#include <stdlib.h>

#include "ctl/io/message.h"
#include "ctl/io/text.h"

void gm_message(const char *from, const char *text)
{
	char *clean = gm_text_clean(text, false);

	fprintf(stderr, "%s%s%s\n", from ? from : "", from ? ": " : "",
		clean ? clean : "out of memory");
	free(clean);
}
