/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_ACCESS_H
#define GM_DAEMON_CONFIG_ACCESS_H

#include "daemon/config/config.h"

/*
 * Adds a complaint to report->errors for each file of the configuration, and for the folder of its drop-ins, that the
 * system's service cannot read although root can: because its user may not, or because the unit hides the place from it
 * (ProtectHome=, PrivateTmp=). Returns 0, -EACCES if there is a complaint, or -ENOMEM. For a program with one thread, which
 * runs as root.
 */
int gm_config_access_check(struct gm_config_report *report, const char *unit, const char *user);

#endif
