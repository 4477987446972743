/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_EFFECTIVE_H
#define GM_DAEMON_CONFIG_EFFECTIVE_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/config/config_reader.h"

/* The value that a key has in the end: from a file, from the preset, or the default. */
struct gm_config_effective {
	size_t id;
	const struct gm_config_setting *setting; /* NULL: no file sets the key */
	const char *text;
	const char *preset; /* the preset that the text comes from; NULL: none */
	struct gm_config_value value;
};

struct gm_config_effective gm_config_effective(
	const struct gm_config_reader *reader, size_t id, int slot);
struct gm_config_effective gm_config_effective_general(
	const struct gm_config_reader *reader, size_t id);
/* Whether a file sets the key to something that is no value, or a line that was refused may have
 * been meant to set it. */
bool gm_config_effective_is_doubtful(
	const struct gm_config_reader *reader, const struct gm_config_effective *effective);

#endif
