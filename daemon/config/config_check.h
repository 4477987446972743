/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_CHECK_H
#define GM_DAEMON_CONFIG_CHECK_H

#include "daemon/config/config_reader.h"

/* Complains about values that do not go together and, as far as reader->known says where the
 * configuration is to be used, about what this machine does not have. Returns a negative errno only
 * if there is no memory. */
int gm_config_check(struct gm_config_reader *reader);

#endif
