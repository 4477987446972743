/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_VALUE_H
#define GM_DAEMON_CONFIG_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/config/config_error.h"
#include "daemon/config/config_keys.h"

/* What one value means. The kind of its key says which members count. */
struct gm_config_value {
	uint64_t number; /* bytes, nanoseconds, bits, a count, a choice's position, or ppm */
	double fraction; /* of a fraction or a share */
	bool share;      /* of max_pool: a share of the capacity, not bytes */
	int32_t priority;
	const char *text; /* of a path or a group: points into the text that was parsed */
};

/* What the files set one key of one section to, and where. */
struct gm_config_setting {
	char *text; /* NULL: they do not set it */
	const struct gm_config_source *source;
	uint32_t line;
	bool refused; /* the text is no value; value is the default */
	struct gm_config_value value;
};

#define GM_CONFIG_WHY_BYTES  256
#define GM_CONFIG_E_VALUE    1
#define GM_CONFIG_SHOW_BYTES 64

/* Returns 0, or GM_CONFIG_E_VALUE: the text is no value for this key, and ret_why says what is
 * wrong and what would be right. */
int gm_config_value_parse(const struct gm_config_key *key, const char *text,
	struct gm_config_value *ret_value, char ret_why[GM_CONFIG_WHY_BYTES]);

/* Of two settings that files contain, the one that was read later. */
const struct gm_config_setting *gm_config_setting_later(
	const struct gm_config_setting *a, const struct gm_config_setting *b);

/* Makes text from a file fit for a message: replaces unprintable bytes and shortens a long text
 * with an ellipsis. Returns shown. */
const char *gm_config_shown(const char *text, char shown[GM_CONFIG_SHOW_BYTES]);

#endif
