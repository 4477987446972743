/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_VALUE_H
#define GM_DAEMON_CONFIG_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/config/config_keys.h"

/* What one value of the configuration means. */
struct gm_config_value {
	uint64_t number; /* bytes, nanoseconds, bits, a count, a choice's position, ppm */
	double fraction; /* of a fraction or a share */
	bool share;      /* of max_pool: a share of the capacity, not bytes */
	int32_t priority;
	const char *text; /* of a path or a group: the text itself, not copied */
};

#define GM_CONFIG_WHY_BYTES  256
#define GM_CONFIG_E_VALUE    1
#define GM_CONFIG_SHOW_BYTES 64

/* 0; GM_CONFIG_E_VALUE: it is none, and why says what is wrong and what would be right. */
int gm_config_value_parse(const struct gm_config_key *key, const char *text,
	struct gm_config_value *ret_value, char ret_why[GM_CONFIG_WHY_BYTES]);

/* Text from a file as it may stand in a message: unprintable bytes replaced, a long one shortened
 * with an ellipsis. Into shown, which is also returned. */
const char *gm_config_shown(const char *text, char shown[GM_CONFIG_SHOW_BYTES]);

#endif
