/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_DAEMON_CONFIG_READER_H
#define GM_DAEMON_CONFIG_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/config.h"
#include "daemon/config_error.h"
#include "daemon/config_keys.h"
#include "daemon/config_value.h"

/* What the files said, before it is a configuration: between config.c and config_limit.c. */

/* A value that was written, and where. text is NULL: it was not. */
struct gm_config_setting {
	char *text;
	char *file;
	size_t file_order;
	uint32_t line;
	struct gm_config_value value;
};
void gm_config_setting_deinit(struct gm_config_setting *setting);

/* One owner's limit, on all devices or on one, of all files together. */
struct gm_config_limit_section {
	char owner[GM_CONFIG_OWNER_BYTES];
	uint32_t device; /* or GM_CONFIG_ALL_DEVICES */
	char *file;      /* where it was first named */
	size_t file_order;
	uint32_t line;
	struct gm_config_setting settings[GM_CONFIG_N_KEYS];
	struct gm_config_limit_section *next;
};

struct gm_config_limits {
	struct gm_config_limit_section *list; /* in the order in which they were named */
	size_t n, n_owners;
};
void gm_config_limits_deinit(struct gm_config_limits *limits);

/* Whether the section's name is "limit …" or "device … limit …", so that it is one or was meant to
 * be. */
bool gm_config_limit_named(const char *section);
/* The limit of a section, NULL: none such (yet). */
struct gm_config_limit_section *gm_config_limit_find(
	struct gm_config_limits *limits, const char *section);
/* A section's header, where it stands. 0; 1: refused, which was told; -ENOMEM. */
int gm_config_limit_section(struct gm_config_limits *limits, struct gm_config_errors *errors,
	const char *file, size_t file_order, uint32_t line, const char *section);
/* Limits that contradict themselves or one another. 0, -ENOMEM. */
int gm_config_limits_check(const struct gm_config_limits *limits, struct gm_config_errors *errors);
/* 0, -ENOMEM. */
int gm_config_limits_fill(const struct gm_config_limits *limits, struct gm_config *config);

#endif
