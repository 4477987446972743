/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_LIMIT_H
#define GM_DAEMON_CONFIG_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/config/config_names.h"
#include "daemon/config/config_value.h"

/* The sections [limit OWNER] and [device N limit OWNER]. */

/* What all files together set for one owner, on all devices or on one. */
struct gm_config_limit_section {
	char owner[GM_CONFIG_OWNER_BYTES];
	uint32_t device; /* from gm_config_names_find(), or GM_CONFIG_ALL_DEVICES */
	const struct gm_config_source *source; /* where the section was first named */
	uint32_t line;
	bool doubtful; /* a line in it was refused */
	struct gm_config_setting settings[GM_CONFIG_N_KEYS];
	struct gm_config_limit_section *next;
};

struct gm_config_limits {
	struct gm_config_limit_section *list; /* in the order in which files name them */
	size_t n, n_owners;
	struct gm_config_names *names;
};
void gm_config_limits_deinit(struct gm_config_limits *limits);

/* Whether a section's name begins like that of a limit. The rest of it may still be wrong. */
bool gm_config_limit_is_section(const char *section);
/* The limit that a section names, or NULL if there is none yet. */
struct gm_config_limit_section *gm_config_limit_find(
	struct gm_config_limits *limits, const char *section);
/* Adds the limit that a section names, if it is new. Returns 0, GM_CONFIG_E_REFUSED or -ENOMEM. */
int gm_config_limit_add(struct gm_config_limits *limits, struct gm_config_errors *errors,
	const struct gm_config_source *source, uint32_t line, const char *section);
/* Complains about limits that contradict themselves or one another. unsure: a line was not
 * understood, and may have been meant for one of them. Returns a negative errno only if there is no
 * memory. */
int gm_config_limits_check(
	const struct gm_config_limits *limits, struct gm_config_errors *errors, bool unsure);
/* Fills in the limits of known devices and returns how many there are. ret_list must have room for
 * limits->n. */
size_t gm_config_limits_fill(
	const struct gm_config_limits *limits, struct gm_config_limit *ret_list);

/* The name of a limit's section. */
#define GM_CONFIG_LIMIT_TITLE (GM_CONFIG_OWNER_BYTES + GM_DEVICE_NAME_TEXT + 16)
const char *gm_config_limit_title(const struct gm_config_limits *limits,
	const struct gm_config_limit_section *limit, char title[GM_CONFIG_LIMIT_TITLE]);

#endif
