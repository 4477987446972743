/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumemctl metrics: all figures in the text format of Prometheus, also if the daemon cannot be reached.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "ctl/show/metrics.h"

/* Writes the text to stdout at once: a collector never sees a part of it. */
static int metrics_put(const char *text, size_t n)
{
	if (fwrite(text, 1, n, stdout) != n || fflush(stdout) != 0)
		return errno ? -errno : -EIO;
	return 0;
}

static gpumem_status metrics_run(struct gm_ctl *ctl)
{
	char *text;
	size_t n;

	gpumem_status status = gm_metrics_write(ctl, &text, &n);
	if (text) {
		ctl->stream_error = metrics_put(text, n);
		ctl->streamed = true;
	}
	free(text);
	return status;
}

const struct gm_verb gm_verb_metrics = {
	.name = "metrics",
	.arguments = "",
	.summary = "all figures in the text format of Prometheus",
	.help = "Writes the figures of the daemon, the devices, the pools, the users and the\n"
		"50 clients that hold most, for Prometheus and what reads its text format.\n"
		"All other clients, and those whose names you may not see, are one, \"other\".\n"
		"If the daemon cannot be reached, gpumem_up is 0 and nothing else is written.\n"
		"gpumem-exporter(8) serves the same over HTTP. For the textfile collector of\n"
		"node_exporter, write a new file and rename it:\n\n"
		"  gpumemctl metrics >gpumem.prom.new; mv gpumem.prom.new gpumem.prom\n",
	.plain = true,
	.run = metrics_run,
};
