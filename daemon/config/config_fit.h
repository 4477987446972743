/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_FIT_H
#define GM_DAEMON_CONFIG_FIT_H

#include "daemon/config/config_reader.h"

/* Whether a configuration fits its devices. */

/* Returns how much of a device of total bytes stays free. A default that leaves nothing to give out is reduced to
 * half of the device; a value that a file sets is not. */
uint64_t gm_config_fit_min_free(uint64_t min_free, bool from_file, uint64_t total);

/* Returns false if a file sets a size that leaves nothing to give out. */
bool gm_config_fit_size(const struct gm_config_reader *reader, int slot);

/* Complains about what does not fit the devices that are known, and warns about what has no effect on them. Returns a
 * negative errno only if there is no memory. */
int gm_config_fit_check(struct gm_config_reader *reader);

#endif
