/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_BROKER_H
#define GM_DAEMON_BROKER_H

#include "daemon/config/config.h"
#include "daemon/service.h"

/*
 * This folder puts the daemon together: it makes every part, connects them, and takes down whatever
 * was made, in the order that their users allow. It must never know a rule about memory, nor what a
 * request means: core, tenant and serve do.
 */

struct gm_broker_options {
	const char *config_path; /* NULL: the default file. Read again on SIGHUP */
	const char *socket;      /* NULL: the one in the configuration */
	const char *backend;     /* NULL: the one in the configuration */
	const struct gm_service_passed *passed;
};

/* Runs the daemon until SIGTERM or SIGINT. Takes ownership of the configuration. Returns 0 if it
 * was stopped, or a negative errno if it could not start: then the log and the status of the service say why. */
int gm_broker_run(const struct gm_broker_options *options, struct gm_config *config);

/*
 * Hands what the previous daemon left with the service manager over to the keeper. Does nothing if gm_broker_run() has done so.
 * Meant for a daemon that does not start, and that the service manager does not start again: then the manager closes what it
 * has stored. On error, logs why, returns a negative errno and leaves everything with the service manager.
 */
int gm_broker_store_forward(const struct gm_broker_options *options);

/* The exit status for what gm_broker_run() returned. CONFIG: another start would not help. */
#define GM_BROKER_EXIT_CONFIG 78
int gm_broker_exit_status(int result);

#endif
