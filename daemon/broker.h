/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_BROKER_H
#define GM_DAEMON_BROKER_H

#include "daemon/config/config.h"

/* The daemon as a whole: every part made and wired in one place. */

struct gm_broker_options {
	const char *config_path; /* as given; NULL: the default one. Read again on SIGHUP */
	const char *socket;      /* over the configuration's; NULL: that */
	const char *backend;     /* the same */
};

/*
 * Runs until SIGTERM or SIGINT; takes the configuration. 0: it ended as it was told to. A negative
 * errno: it could not start, and the log says why.
 */
int gm_broker_run(const struct gm_broker_options *options, struct gm_config *config);

#endif
