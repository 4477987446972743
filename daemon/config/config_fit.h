/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_FIT_H
#define GM_DAEMON_CONFIG_FIT_H

#include "daemon/config/config_reader.h"

/* Complains about limits that do not fit the devices: each device must exist, and the guarantees on
 * it must not exceed its capacity. Judges only devices that are known. Returns a negative errno
 * only if there is no memory. */
int gm_config_fit_check(struct gm_config_reader *reader);
/* Warns about settings that have no effect on the devices that are known, or leave nothing to give out, and
 * about sizes that host memory cannot have. They are no error: one file may serve hosts with and without GPUs. Returns a negative
 * errno only if there is no memory. */
int gm_config_fit_warn(struct gm_config_reader *reader);

#endif
